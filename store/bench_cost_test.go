package store

import (
	"fmt"
	"hash/crc32"
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
// it begins ("retention"); and to one of those that two goroutines read meanwhile
// from its oldest record on ("cold"). "cold/busy" is the last against another floor:
// one that keeps all while two goroutines compute, so that the writer has to wait for
// a processor there, too.
func BenchmarkPacedAppend(b *testing.B) {
	const pause, batch, kept = 400 * time.Microsecond, 16, 6
	put := whole(b, benchRecord(1024))
	retain := func(c *Config) { c.RetentionBytes = kept * DefaultFileSize }
	sides := []struct {
		store  *Store
		beside func(s *Store, stop <-chan struct{}) int // in two goroutines
		each   latencies
		read   int
	}{
		{store: benchStore(b, nil)},
		{store: benchStore(b, retain)},
		{store: benchStore(b, nil), beside: burn},
		{store: benchStore(b, retain), beside: func(s *Store, stop <-chan struct{}) int { return scanOldest(b, s, stop) }},
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
			for r := range read {
				if side.beside != nil {
					readers.Go(func() { read[r] = side.beside(side.store, stop) })
				}
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
	for _, row := range []struct {
		name      string
		ours, raw int
	}{{"retention", 1, 0}, {"cold", 3, 0}, {"cold/busy", 3, 2}} {
		b.Run(row.name, func(b *testing.B) {
			ours, raw := sides[row.ours].each, sides[row.raw].each
			b.ReportMetric(0, "ns/op")
			for _, p := range []float64{0.5, 0.99, 0.999} {
				b.ReportMetric(ours.us(p), fmt.Sprintf("p%g_us", 100*p))
				b.ReportMetric(raw.us(p), fmt.Sprintf("raw_p%g_us", 100*p))
			}
			b.ReportMetric(ours.us(0.999)/raw.us(0.999), "times")
			b.ReportMetric(1.3, "most")
			if read := sides[row.ours].read; read > 0 {
				b.ReportMetric(float64(read)/(4*0.4), "read_rec/s")
			}
		})
	}
}

// burn computes until stop is closed.
func burn(_ *Store, stop <-chan struct{}) int {
	data := make([]byte, 64<<10)
	for {
		select {
		case <-stop:
			return 0
		default:
			data[0] += byte(crc32.Checksum(data, castagnoli))
		}
	}
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
