package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"

	"github.com/pocketmq/pocketmq/message"
)

// Every benchmark does the same work twice, in turns of some milliseconds: with
// a store, and with a bare wal that gets the same record bytes. "ratio" is the
// speed of the store as a part of that of the wal.

// benchRecord is a record of about 290 bytes with a body of the given size, as
// a producer sends it.
func benchRecord(body int) *message.Record {
	r := record("benchmark", 0, string(make([]byte, body)), "tag-a")
	p := message.AppendProperty([]byte(r.Properties), message.PropKeys, "order-12345678")
	p = message.AppendProperty(p, message.PropUniqKey, "7F00000100002A9D0000000000000001")
	r.Properties = string(p)
	return r
}

// versus runs n units of work with each of two sides in turns, and reports
// the time of ours per unit and the ratio.
func versus(b *testing.B, perUnit int, ours, raw func(n int)) {
	const turns = 20
	var timeOurs, timeRaw time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	step := max(1, b.N/turns)
	for done := 0; done < b.N; done += step {
		n := min(step, b.N-done)
		start := time.Now()
		ours(n)
		timeOurs += time.Since(start)
		b.StopTimer()
		start = time.Now()
		raw(n)
		timeRaw += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(float64(timeRaw)/float64(timeOurs), "ratio")
	b.ReportMetric(float64(perUnit)*float64(b.N)/timeOurs.Seconds(), "rec/s")
	b.ReportMetric(float64(perUnit)*float64(b.N)/timeRaw.Seconds(), "raw-rec/s")
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

// rawLog is a bare wal with files as large as those of the store.
type rawLog struct {
	log  *wal.Log
	next uint64
	b    wal.Batch
}

func benchRaw(b *testing.B) *rawLog {
	dir := filepath.Join(b.TempDir(), "raw")
	log, err := wal.Open(dir, &wal.Options{NoSync: true, NoCopy: true, SegmentSize: 4 << 20})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, log.Close()) })
	return &rawLog{log: log, next: 1}
}

func (r *rawLog) write(b *testing.B, rec []byte, n int) {
	for range n {
		r.b.Write(r.next, rec)
		r.next++
	}
	if err := r.log.WriteBatch(&r.b); err != nil {
		b.Fatal(err)
	}
}

func encoded(b *testing.B, r *message.Record) []byte {
	rec, err := message.AppendRecord(nil, r)
	require.NoError(b, err)
	return rec
}

func appendN(b *testing.B, s *Store, r *message.Record, n int) {
	batch := s.NewBatch()
	for range n {
		if err := batch.Add(r); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.Append(context.Background(), batch, AppendOptions{}); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppendAlone(b *testing.B) {
	s, raw := benchStore(b, nil), benchRaw(b)
	r := benchRecord(128)
	rec := encoded(b, r)
	versus(b, 1, func(n int) {
		for range n {
			appendN(b, s, r, 1)
		}
	}, func(n int) {
		for range n {
			raw.write(b, rec, 1)
		}
	})
}

func BenchmarkAppendBatch256(b *testing.B) {
	s, raw := benchStore(b, nil), benchRaw(b)
	r := benchRecord(128)
	rec := encoded(b, r)
	versus(b, 256, func(n int) {
		for range n {
			appendN(b, s, r, 256)
		}
	}, func(n int) {
		for range n {
			raw.write(b, rec, 256)
		}
	})
}

// parallel splits n appends over goroutines.
func parallel(goroutines, n int, work func()) {
	var wg sync.WaitGroup
	for i := range goroutines {
		share := n / goroutines
		if i < n%goroutines {
			share++
		}
		wg.Go(func() {
			for range share {
				work()
			}
		})
	}
	wg.Wait()
}

func BenchmarkAppend64(b *testing.B) {
	s, raw := benchStore(b, nil), benchRaw(b)
	r := benchRecord(128)
	rec := encoded(b, r)
	versus(b, 1, func(n int) {
		parallel(64, n, func() { appendN(b, s, r, 1) })
	}, func(n int) { // batches of 32
		for ; n > 0; n -= 32 {
			raw.write(b, rec, min(n, 32))
		}
	})
}

func BenchmarkAppendSync(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("%d", goroutines), func(b *testing.B) {
			var syncs atomic.Int64
			disk := syncer{file: func(f *os.File) error { syncs.Add(1); return f.Sync() }, dir: syncDir}
			s, err := open(Config{Dir: b.TempDir(), Broker: "broker-a", SyncFlush: true}, disk)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			raw := benchRaw(b)
			r := benchRecord(128)
			rec := encoded(b, r)
			versus(b, 1, func(n int) {
				parallel(goroutines, n, func() { appendN(b, s, r, 1) })
			}, func(n int) {
				for ; n > 0; n -= goroutines {
					raw.write(b, rec, min(n, goroutines))
					if err := raw.log.Sync(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/float64(max(1, syncs.Load())), "rec/fsync")
		})
	}
}

// filledStore is a store with n records, read back from disk up to the last
// file when sealed, and a raw wal with the same.
func filledStore(b *testing.B, n int, sealed bool) (*Store, *rawLog) {
	return filledWith(b, n, 128, sealed)
}

func filledWith(b *testing.B, n, body int, sealed bool) (*Store, *rawLog) {
	s, raw := benchStore(b, func(c *Config) {
		if !sealed {
			c.FileSize = 1 << 30
		}
	}), benchRaw(b)
	r := benchRecord(body)
	rec := encoded(b, r)
	for range n / 256 {
		appendN(b, s, r, 256)
		raw.write(b, rec, 256)
	}
	require.NoError(b, s.Sync(context.Background()))
	return s, raw
}

// BenchmarkGetTail32 reads 32 records from memory; raw is 32 reads of the wal.
func BenchmarkGetTail32(b *testing.B) {
	const n = 33 * 256 // less than a segment of the raw wal, and more than 64 units in the tail
	s, raw := filledStore(b, n, false)
	at := int64(n - 64)
	versus(b, 32, func(k int) {
		for range k {
			res, err := s.Get(GetRequest{Topic: "benchmark", Offset: at, MaxMessages: 32})
			if err != nil || len(res.Records) != 32 {
				b.Fatal(res.Status, err)
			}
		}
	}, func(k int) {
		for range k {
			for i := range uint64(32) {
				if _, err := raw.log.Read(uint64(at) + 1 + i); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkDispatch puts units into 10,000 queues in turn.
func BenchmarkDispatch(b *testing.B) {
	x := &extents{dir: filepath.Join(b.TempDir(), queuesName), disk: volatile(), handles: &handles{}}
	defer x.close()
	queues := make([]*queue, 10_000)
	for i := range queues {
		queues[i] = &queue{id: uint32(i)}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q := queues[i%len(queues)]
		if err := q.place(x, int64(i/len(queues)), unit{position: int64(i)}, false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLife opens and discards a throwaway store, and opens and closes one
// with a folder that stays.
func BenchmarkLife(b *testing.B) {
	b.Run("throwaway", func(b *testing.B) {
		cfg := Config{Dir: filepath.Join(b.TempDir(), "t"), Broker: "broker-a", Throwaway: true}
		var opening time.Duration
		for b.Loop() {
			start := time.Now()
			s, err := Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			opening += time.Since(start)
			appendN(b, s, benchRecord(128), 1)
			if err := s.Discard(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(opening.Microseconds())/float64(b.N), "open-us")
	})
	b.Run("kept", func(b *testing.B) {
		cfg := Config{Dir: b.TempDir(), Broker: "broker-a"}
		for b.Loop() {
			s, err := Open(cfg)
			if err != nil {
				b.Fatal(err)
			}
			appendN(b, s, benchRecord(128), 1)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOpenAfterCrash replays a store without a checkpoint.
func BenchmarkOpenAfterCrash(b *testing.B) {
	s, _ := filledStore(b, 64<<10, true)
	require.NoError(b, s.Kill())
	for b.Loop() {
		s, err := Open(s.cfg)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Kill(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*(64<<10)/b.Elapsed().Seconds(), "rec/s")
}
