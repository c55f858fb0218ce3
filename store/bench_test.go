package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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

// rawLog is a bare wal with files of 20 MB, as its defaults are.
type rawLog struct {
	log  *wal.Log
	file *os.File
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
			s, raw := benchStore(b, func(c *Config) { c.SyncFlush = true }), benchRaw(b)
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
		})
	}
}
