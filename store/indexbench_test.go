package store

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// BenchmarkIndexKeys is what the index costs the appender of a record with a
// unique key of 32 characters and one key: hashing, and an entry each in the
// table. Sealed tables are thrown away.
func BenchmarkIndexKeys(b *testing.B) {
	s := &Store{}
	s.index.limit = tableEntries
	batch := s.NewBatch()
	r := benchRecord(128)
	properties := r.Properties
	b.Run("hash", func(b *testing.B) {
		b.ReportAllocs()
		prefix := topicHash(r.Topic)
		var hashes []uint32
		for b.Loop() {
			hashes = indexedOf(properties).appendHashes(hashes[:0], prefix)
		}
	})
	b.Run("properties", func(b *testing.B) { // what was done without an index
		rec := encoded(b, r)
		for b.Loop() {
			message.View(rec).TagsCode()
		}
	})
	b.Run("table", func(b *testing.B) {
		b.ReportAllocs()
		for range 256 {
			require.NoError(b, batch.Add(r))
		}
		for b.Loop() {
			if s.index.addBatch(batch); len(s.index.sealed) > 0 {
				s.index.sealed = nil
			}
			batch.position += 256
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/key")
	})
}

// BenchmarkWriteRun sorts and writes full tables.
func BenchmarkWriteRun(b *testing.B) {
	x := benchIndex(b, tableEntries, 1)
	t := benchTable(tableEntries, 1)
	for b.Loop() {
		if _, err := x.writeRun(t); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tableEntries, "ns/key")
}

func benchTable(entries int, first int64) *keyTable {
	var t keyTable
	hash := uint32(first)
	for i := range entries {
		hash = hash*1664525 + 1013904223
		t.add(first+int64(i), 1000, []uint32{hash >> 1})
	}
	return &t
}

// benchIndex has so many runs of so many entries.
func benchIndex(b *testing.B, entries, runs int) *keyIndex {
	x := &keyIndex{limit: entries}
	x.dir, x.disk, x.handles, x.fileBlocks = filepath.Join(b.TempDir(), indexName), volatile(), &handles{}, indexBlocks
	b.Cleanup(func() {
		require.NoError(b, x.close())
		x.handles.close()
	})
	for i := range runs {
		x.sealed = append(x.sealed, benchTable(entries, int64(1+i*entries)))
		require.NoError(b, x.flush(1<<40, func() bool { return false }))
	}
	return x
}

// BenchmarkQueryKeyInRuns looks for a key that is in none of many runs, as many
// as 200 million keys make: one block of each is read.
func BenchmarkQueryKeyInRuns(b *testing.B) {
	for _, runs := range []int{100, 3050} {
		b.Run(fmt.Sprint(runs), func(b *testing.B) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			x := benchIndex(b, 4096, runs) // smaller ones, as many blocks
			x.scratch.Get()
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&after)
			s := &Store{index: keyIndex{runFiles: runFiles{handles: x.handles}}}
			s.log.written.Store(1 << 40)
			b.ReportAllocs()
			for b.Loop() {
				q := keySearch{s: s, ctx: context.Background(), hash: 1 << 30, to: 1 << 40, max: 1, bytes: 1, below: 1 << 60}
				if err := q.run(x.view()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(runs), "ns/run")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(runs), "heap-B/run")
		})
	}
}

// BenchmarkQueryKeyRecent finds one of the last 64 Ki keys, still in memory.
func BenchmarkQueryKeyRecent(b *testing.B) {
	s := benchStore(b, nil)
	for i := 0; i < 40_000; i += 100 {
		batch := s.NewBatch()
		for j := range 100 {
			require.NoError(b, batch.Add(keyedRecord("T", "body", fmt.Sprint("U", i+j), "")))
		}
		_, err := s.Append(b.Context(), batch, AppendOptions{})
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		records, err := s.QueryKey(b.Context(), KeyQuery{Topic: "T", Key: "U20000"})
		if err != nil || len(records) != 1 {
			b.Fatal(len(records), err)
		}
	}
}
