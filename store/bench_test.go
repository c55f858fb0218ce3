package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"

	"github.com/pocketmq/pocketmq/message"
)

// The benchmarks of the store measure it beside a floor, in the same process:
// rounds of both alternate, so that what else the machine does hits both. They
// report
//
//	ratio  our speed as a part of the floor's, the median over pairs of rounds;
//	       at least "want"
//	times  our time as a multiple of the floor's; at most "most"
//
// and the figures themselves, those of the floor with "raw_". docs/storage.md has
// the table. One call takes some seconds and does not depend on b.N:
//
//	go test -run '^$' -bench . -benchtime 1x ./store
//
// The floor of everything that writes is a rawLog.

const (
	benchRounds = 9
	benchRound  = 150 * time.Millisecond
	// benchRecordSize is the size of a record, as stored, where nothing else is said.
	benchRecordSize = 256
)

// benchRecord is a record as a producer sends it, of the given size when stored.
func benchRecord(size int) *message.Record {
	r := record("benchmark", 0, "", "tag-a")
	p := message.AppendProperty([]byte(r.Properties), message.PropKeys, "order-12345678")
	p = message.AppendProperty(p, message.PropUniqKey, "7F00000100002A9D0000000000000001")
	r.Properties = string(p)
	r.Body = make([]byte, max(0, size-message.RecordSize(r)))
	return r
}

func encoded(b testing.TB, r *message.Record) []byte {
	rec, err := message.AppendRecord(nil, r)
	require.NoError(b, err)
	return rec
}

// round calls f, which does some units of work and returns how many, until the
// time is over, and returns the units per second.
func round(f func() int) float64 {
	begin := time.Now()
	n := 0
	for time.Since(begin) < benchRound {
		n += f()
	}
	return float64(n) / time.Since(begin).Seconds()
}

// alternate runs rounds of all sides in turn, one before that warms them, and
// returns the units per second, by side and round.
func alternate(b *testing.B, sides ...func() int) [][]float64 {
	b.Helper()
	rates := make([][]float64, len(sides))
	for i := range benchRounds + 1 {
		for j, side := range sides {
			if rate := round(side); i > 0 {
				rates[j] = append(rates[j], rate)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	return rates
}

// beside alternates ours with the floor and reports both and the ratio.
func beside(b *testing.B, unit string, want float64, ours, raw func() int) {
	b.Helper()
	rates := alternate(b, ours, raw)
	b.ReportMetric(median(rates[0]), unit+"/s")
	b.ReportMetric(median(rates[1]), "raw_"+unit+"/s")
	b.ReportMetric(medianRatio(rates[0], rates[1]), "ratio")
	b.ReportMetric(want, "want")
}

// slower is beside for what is judged by the time of a unit.
func slower(b *testing.B, unit string, most float64, ours, raw func() int) {
	b.Helper()
	rates := alternate(b, ours, raw)
	b.ReportMetric(1e9/median(rates[0]), "ns/"+unit)
	b.ReportMetric(1e9/median(rates[1]), "raw_ns/"+unit)
	b.ReportMetric(medianRatio(rates[1], rates[0]), "times")
	b.ReportMetric(most, "most")
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func medianRatio(a, b []float64) float64 {
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}

// latencies collects the times that single calls took.
type latencies []time.Duration

func (l *latencies) time(f func()) {
	begin := time.Now()
	f()
	*l = append(*l, time.Since(begin))
}

// us is the time in microseconds that a part of the calls did not exceed.
func (l latencies) us(part float64) float64 {
	slices.Sort(l)
	return float64(l[min(len(l)-1, int(part*float64(len(l))))]) / float64(time.Microsecond)
}

func benchStore(b *testing.B, change func(*Config)) *Store {
	cfg := Config{Dir: b.TempDir(), Cluster: "c", Broker: "broker-a"}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// rawLog is the floor: the wal and nothing else, in a chain of files as large as
// those of the store, each a wal of one segment that is never synced by a write.
// Full ones are closed, which syncs them, beside the writer.
type rawLog struct {
	b       *testing.B
	dir     string
	log     *wal.Log
	next    uint64 // local index
	bytes   int
	files   int
	batch   wal.Batch
	closing sync.WaitGroup
}

func benchRaw(b *testing.B) *rawLog {
	r := &rawLog{b: b, dir: b.TempDir()}
	r.roll()
	b.Cleanup(func() {
		r.closing.Wait()
		require.NoError(b, r.log.Close())
	})
	return r
}

func (r *rawLog) roll() {
	if old := r.log; old != nil {
		r.closing.Go(func() {
			if err := old.Close(); err != nil {
				r.b.Error(err)
			}
		})
	}
	log, err := wal.Open(filepath.Join(r.dir, fileName(int64(r.files)+1)), walOptions())
	require.NoError(r.b, err)
	r.log, r.next, r.bytes = log, 1, 0
	r.files++
}

// write writes n entries as one batch.
func (r *rawLog) write(rec []byte, n int) int {
	if r.bytes > DefaultFileSize {
		r.roll()
	}
	for range n {
		r.batch.Write(r.next, rec)
		r.next++
	}
	r.bytes += n * len(rec)
	if err := r.log.WriteBatch(&r.batch); err != nil {
		r.b.Fatal(err)
	}
	return n
}

func (r *rawLog) sync() {
	if err := r.log.Sync(); err != nil {
		r.b.Fatal(err)
	}
}

// appender appends n records in one batch to a store.
type appender func(s *Store, n int)

// whole does all that an append is: encode the records, write them with header
// and checksum, dispatch them.
func whole(b *testing.B, r *message.Record) appender {
	return func(s *Store, n int) {
		batch := s.NewBatch()
		for range n {
			if err := batch.Add(r); err != nil {
				b.Error(err)
			}
		}
		if _, err := s.Append(context.Background(), batch, AppendOptions{}); err != nil {
			b.Error(err)
		}
	}
}

// logOnly is whole without what a wal has no part in: the records are encoded
// already, and in no queue.
func logOnly(b *testing.B, r *message.Record) appender {
	r.SysFlag = message.FlagTransactionPrepared
	rec := encoded(b, r)
	return func(s *Store, n int) {
		batch := s.NewBatch()
		batch.topic, batch.queueID = r.Topic, r.QueueID
		for range n {
			at := len(batch.buf) + headroom
			batch.buf = append(append(batch.buf, make([]byte, headroom)...), rec...)
			batch.records = append(batch.records, batchRecord{at: at, size: len(rec), silent: true})
		}
		batch.silent, batch.bytes = n, n*len(rec)
		if _, err := s.Append(context.Background(), batch, AppendOptions{}); err != nil {
			b.Error(err)
		}
	}
}

// bothAppends runs f for the log alone and for all of an append.
func bothAppends(b *testing.B, f func(b *testing.B, put appender)) {
	b.Run("log", func(b *testing.B) { f(b, logOnly(b, benchRecord(benchRecordSize))) })
	b.Run("whole", func(b *testing.B) { f(b, whole(b, benchRecord(benchRecordSize))) })
}

// many runs work in goroutines, n times in all.
func many(goroutines, n int, work func()) int {
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range n / goroutines {
				work()
			}
		})
	}
	wg.Wait()
	return n / goroutines * goroutines
}

// One goroutine appends record by record.
func BenchmarkAppend1(b *testing.B) {
	rec := encoded(b, benchRecord(benchRecordSize))
	bothAppends(b, func(b *testing.B, put appender) {
		s, raw := benchStore(b, nil), benchRaw(b)
		var each latencies
		ours := func() int {
			for range 100 {
				put(s, 1)
			}
			each.time(func() { put(s, 1) })
			return 101
		}
		beside(b, "rec", 0.85, ours, func() int { return raw.write(rec, 1) })
		b.ReportMetric(each.us(0.5), "p50_us")
		b.ReportMetric(allocs(ours)/101, "allocs/rec")
	})
}

// One goroutine appends batches of 32 and of 256.
func BenchmarkAppendBatch(b *testing.B) {
	rec := encoded(b, benchRecord(benchRecordSize))
	for _, n := range []int{32, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			bothAppends(b, func(b *testing.B, put appender) {
				s, raw := benchStore(b, nil), benchRaw(b)
				ours := func() int { put(s, n); return n }
				beside(b, "rec", 0.85, ours, func() int { return raw.write(rec, n) })
				b.ReportMetric(allocs(ours)/float64(n), "allocs/rec")
			})
		})
	}
}

// 64 goroutines append record by record; the floor is one with batches of 32.
func BenchmarkAppend64(b *testing.B) {
	rec := encoded(b, benchRecord(benchRecordSize))
	bothAppends(b, func(b *testing.B, put appender) {
		s, raw := benchStore(b, nil), benchRaw(b)
		ours := func() int { return many(64, 64*100, func() { put(s, 1) }) }
		beside(b, "rec", 1.0, ours, func() int { return raw.write(rec, 32) })
		b.ReportMetric(allocs(ours)/(64*100), "allocs/rec")
	})
}

// allocs counts the allocations of f, those of goroutines beside it included.
func allocs(f func() int) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

// Goroutines append record by record, each waits for fsync; the floor is one
// that writes as many at once as there are goroutines, then syncs. A third side
// is a single goroutine that appends and waits.
func BenchmarkAppendSync(b *testing.B) {
	rec := encoded(b, benchRecord(benchRecordSize))
	for _, n := range []struct {
		goroutines            int
		ratio, together, lone float64 // wanted: of the floor's speed; records per fsync; times a lone appender's speed
	}{{1, 0.9, 1, 0}, {64, 0.7, 48, 0}, {256, 0.6, 128, 50}} {
		b.Run(fmt.Sprint(n.goroutines), func(b *testing.B) {
			bothAppends(b, func(b *testing.B, put appender) {
				var syncs atomic.Int64
				disk := durable()
				disk.file = func(f *os.File) error { syncs.Add(1); return f.Sync() }
				open := func(disk syncer) *Store {
					s, err := open(Config{Dir: b.TempDir(), Broker: "broker-a", SyncFlush: true}, disk)
					require.NoError(b, err)
					b.Cleanup(func() { require.NoError(b, s.Close()) })
					return s
				}
				s, alone, raw := open(disk), open(durable()), benchRaw(b)
				var each, eachRaw latencies
				count := 0
				rates := alternate(b,
					func() int {
						if n.goroutines == 1 {
							each.time(func() { put(s, 1) })
							count++
							return 1
						}
						done := many(n.goroutines, n.goroutines*16, func() { put(s, 1) })
						count += done
						return done
					}, func() int {
						eachRaw.time(func() {
							raw.write(rec, n.goroutines)
							raw.sync()
						})
						return n.goroutines
					}, func() int { put(alone, 1); return 1 })
				b.ReportMetric(median(rates[0]), "rec/s")
				b.ReportMetric(median(rates[1]), "raw_rec/s")
				b.ReportMetric(medianRatio(rates[0], rates[1]), "ratio")
				b.ReportMetric(n.ratio, "want")
				if n.goroutines == 1 {
					b.ReportMetric(each.us(0.5), "p50_us")
					b.ReportMetric(eachRaw.us(0.5), "raw_p50_us")
					return
				}
				b.ReportMetric(float64(count)/float64(syncs.Load()), "rec/fsync")
				b.ReportMetric(n.together, "want_rec/fsync")
				b.ReportMetric(medianRatio(rates[0], rates[2]), "x_lone")
				if n.lone > 0 {
					b.ReportMetric(n.lone, "want_x_lone")
				}
			})
		})
	}
}
