package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// filledStore is a store with n records in one queue, in files of a size, all
// synced.
func filledStore(b *testing.B, n int, fileSize int64) *Store {
	s := benchStore(b, func(c *Config) { c.FileSize = fileSize })
	put := whole(b, benchRecord(benchRecordSize))
	for range n / 256 {
		put(s, 256)
	}
	require.NoError(b, s.Sync(context.Background()))
	return s
}

// get is Get of n records of the benchmark's queue, which must be there.
func get(b *testing.B, s *Store, offset int64, n int) GetResult {
	res, err := s.Get(GetRequest{Topic: "benchmark", Offset: offset, MaxMessages: n})
	if err != nil || len(res.Records) != n {
		b.Error(res.Status, len(res.Records), err)
	}
	return res
}

// Records are read from the memory of the file that is being written, one by its
// position and 32 of a queue; the floor reads entries of a wal.
func BenchmarkTailRead(b *testing.B) {
	const n = 32 << 8
	rec := encoded(b, benchRecord(benchRecordSize))
	for _, step := range []int{1, 32} {
		b.Run(fmt.Sprint(step), func(b *testing.B) {
			s, raw := filledStore(b, n, 1<<30), benchRaw(b)
			raw.write(rec, n)
			at := uint64(0)
			slower(b, "rec", 3, func() int {
				const times = 128
				for range times {
					at = at%(n-64) + uint64(step)
					if step == 1 {
						if _, err := s.Record(int64(at)); err != nil {
							b.Error(err)
						}
					} else {
						get(b, s, int64(at)-32, step)
					}
				}
				return times * step
			}, func() int {
				const times = 4096
				for range times {
					at = at%(n-64) + 1
					if _, err := raw.log.Read(at); err != nil {
						b.Error(err)
					}
				}
				return times
			})
		})
	}
}

// The tail is read while another goroutine appends and waits for fsync without
// a pause; the floor is the same without the other.
func BenchmarkTailReadBesideSync(b *testing.B) {
	s := benchStore(b, func(c *Config) { c.SyncFlush = true })
	put := whole(b, benchRecord(benchRecordSize))
	put(s, 256)
	var idle, beside latencies
	read := func(l *latencies) func() int {
		return func() int {
			for range 64 {
				l.time(func() { get(b, s, s.MaxOffset("benchmark", 0)-32, 32) })
			}
			return 64
		}
	}
	for range benchRounds {
		round(read(&idle))
		var over atomic.Bool
		var writer sync.WaitGroup
		writer.Go(func() {
			for !over.Load() {
				put(s, 1)
			}
		})
		round(read(&beside))
		over.Store(true)
		writer.Wait()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(beside.us(0.99), "p99_us")
	b.ReportMetric(idle.us(0.99), "raw_p99_us")
	b.ReportMetric(beside.us(0.99)/idle.us(0.99), "times")
	b.ReportMetric(5, "most")
}

// placer puts units into queues of their own, n in turn.
func placer(b *testing.B, queues int) func() int {
	x := &extents{dir: filepath.Join(b.TempDir(), queuesName), disk: volatile(), handles: &handles{}}
	b.Cleanup(func() { require.NoError(b, x.close()) })
	list := make([]*queue, queues)
	for i := range list {
		list[i] = &queue{id: uint32(i)}
	}
	next := 0
	return func() int {
		const times = 1 << 10
		for range times {
			q := list[next%len(list)]
			if err := q.place(x, int64(next/len(list)), unit{position: int64(next)}, false); err != nil {
				b.Error(err)
			}
			next++
		}
		return times
	}
}

// Units go to 10,000 queues in turn; the floor is a single queue. 100 ns are the
// most for a unit.
func BenchmarkDispatch(b *testing.B) {
	slower(b, "unit", 3, placer(b, 10_000), placer(b, 1))
}

// 32 units are read from blocks on disk: in order, as a consumer that catches up
// does, and at random, as pulls of many queues do; the floor is a pread of 640
// bytes at the same places. 2 us are the most for a pull.
func BenchmarkQueuePull32(b *testing.B) {
	const blocks = 4096
	x := &extents{dir: filepath.Join(b.TempDir(), queuesName), disk: volatile(), handles: &handles{}}
	b.Cleanup(func() {
		require.NoError(b, x.close())
		x.handles.close()
	})
	q := &queue{}
	for i := range int64(blocks * blockUnits) {
		require.NoError(b, q.place(x, i, unit{position: i + 1}, false))
	}
	_, _, err := x.sync()
	require.NoError(b, err)
	file, err := os.Open(x.files[0].path)
	require.NoError(b, err)
	defer file.Close()
	buf := make([]byte, 32*unitSize)
	run := func(b *testing.B, next func() int64) {
		slower(b, "pull", 2, func() int {
			v := q.view()
			units, err := v.units(x, next())
			if err != nil || len(units) < 32*unitSize {
				b.Error(err)
			}
			return 1
		}, func() int {
			at := next()
			if _, err := file.ReadAt(buf, (at/blockUnits+1)*blockSize+at%blockUnits*unitSize); err != nil {
				b.Error(err)
			}
			return 1
		})
	}
	b.Run("in order", func(b *testing.B) {
		n := int64(0)
		run(b, func() int64 {
			n++
			return n/6%blocks*blockUnits + n%6*32
		})
	})
	b.Run("random", func(b *testing.B) {
		run(b, func() int64 { return rand.Int64N(blocks)*blockUnits + rand.Int64N(blockUnits-32) })
	})
}
