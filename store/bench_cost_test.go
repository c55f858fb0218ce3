package store

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

// gcSeconds is the CPU time that the garbage collector has taken so far.
func gcSeconds() float64 {
	sample := []metrics.Sample{{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64()
}

// A million records are appended in batches of 32, by a store and by the floor:
// what each allocates, what it costs to collect that, and what stays.
func BenchmarkMillion(b *testing.B) {
	const n, batch = 1_000_000, 32
	put, rec := whole(b, benchRecord(benchRecordSize)), encoded(b, benchRecord(benchRecordSize))
	for _, side := range []string{"store", "raw"} {
		b.Run(side, func(b *testing.B) {
			var base, before, after runtime.MemStats
			debug.FreeOSMemory()
			runtime.ReadMemStats(&base)
			var write func()
			if side == "store" {
				s := benchStore(b, nil)
				write = func() { put(s, batch) }
			} else {
				raw := benchRaw(b)
				write = func() { raw.write(rec, batch) }
			}
			runtime.ReadMemStats(&before)
			gc := gcSeconds()
			took := timeOf(func() {
				for range n / batch {
					write()
				}
			})
			runtime.GC() // updates the figures of the collector
			gc = gcSeconds() - gc
			runtime.ReadMemStats(&after)
			debug.FreeOSMemory()
			var rest runtime.MemStats
			runtime.ReadMemStats(&rest)
			bytes := float64(n * len(rec))
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took.Seconds(), "s")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/bytes, "alloc_B/B")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/rec")
			b.ReportMetric(float64(after.NumGC-before.NumGC), "GCs")
			b.ReportMetric(1e3*gc, "gc_cpu_ms")
			b.ReportMetric(float64(after.PauseTotalNs-before.PauseTotalNs)/1e6, "pause_ms")
			b.ReportMetric((float64(rest.HeapAlloc)-float64(base.HeapAlloc))/(1<<20), "heap_MiB")
		})
	}
}

// One goroutine appends 16 records of 1 KiB every 400 us, about 40 MB a second:
// to a store that keeps all, the floor; to one that deletes a file for each that
// it begins; and to one of those that two goroutines read meanwhile from its
// oldest record on.
func BenchmarkPacedAppend(b *testing.B) {
	const pause, batch, kept = 400 * time.Microsecond, 16, 6
	put := whole(b, benchRecord(1024))
	retain := func(c *Config) { c.RetentionBytes = kept * DefaultFileSize }
	sides := []struct {
		name    string
		store   *Store
		readers int
		each    latencies
		read    int
	}{
		{name: "raw_", store: benchStore(b, nil)},
		{name: "", store: benchStore(b, retain)},
		{name: "cold_", store: benchStore(b, retain), readers: 2},
	}
	for i := range sides { // full
		for range (kept + 1) * DefaultFileSize / (batch * 1024) {
			put(sides[i].store, batch)
		}
	}
	for range 4 {
		for i := range sides {
			side := &sides[i]
			stop := make(chan struct{})
			var readers sync.WaitGroup
			var read [2]int
			for r := range side.readers {
				readers.Go(func() { read[r] = scanOldest(b, side.store, stop) })
			}
			begin := time.Now()
			for next := begin; next.Sub(begin) < 400*time.Millisecond; next = next.Add(pause) {
				time.Sleep(time.Until(next))
				side.each.time(func() { put(side.store, batch) })
			}
			close(stop)
			readers.Wait()
			side.read += read[0] + read[1]
		}
	}
	b.ReportMetric(0, "ns/op")
	for i := range sides {
		side := &sides[i]
		b.ReportMetric(side.each.us(0.5), side.name+"p50_us")
		b.ReportMetric(side.each.us(0.99), side.name+"p99_us")
		b.ReportMetric(side.each.us(0.999), side.name+"p99.9_us")
	}
	b.ReportMetric(sides[1].each.us(0.999)/sides[0].each.us(0.999), "times")
	b.ReportMetric(sides[2].each.us(0.999)/sides[0].each.us(0.999), "cold_times")
	b.ReportMetric(1.3, "most")
	b.ReportMetric(float64(sides[2].read)/(4*0.4), "cold_rec/s")
}

// scanOldest reads from the oldest record of the benchmark's queue on, again and
// again, until stop is closed, and returns how many it read.
func scanOldest(b *testing.B, s *Store, stop <-chan struct{}) (n int) {
	for at := int64(0); ; {
		select {
		case <-stop:
			return n
		default:
		}
		res, err := s.Get(GetRequest{Topic: "benchmark", Offset: at, MaxMessages: 32})
		if err != nil {
			b.Error(err)
			return n
		}
		at = res.Next
		if res.Status != GetFound || at > res.Min+(res.Max-res.Min)*2/3 {
			at = res.Min
		}
		n += len(res.Records)
	}
}
