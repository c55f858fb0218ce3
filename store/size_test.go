package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a store takes of the machine does not grow with what it holds, or so
// slowly that 10,000 queues and 100 million records are little.

// liveHeap is the memory that is in use.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what has a finalizer, or was in a pool, goes with the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The tests of memory do not run beside others, whose memory they would count.

func TestMemoryOfTenThousandQueuesIsBounded(t *testing.T) {
	const queues, active = 10_000, 1000
	const idleMost, activeMost = 1 << 10, 6 << 10
	cfg := testConfig(t)
	cfg.FileSize = 64 << 10 // so little of the log is in memory
	open := func() *Store {
		s, err := Open(cfg)
		require.NoError(t, err)
		return s
	}
	s := open()
	put(t, s, "warm", 0, "x")
	grown := func(before int64) float64 {
		require.NoError(t, s.Sync(t.Context())) // lets full files of the log go
		return float64(liveHeap() - before)
	}
	before := liveHeap()
	for i := range queues {
		put(t, s, fmt.Sprint("topic-", i/8), i%8, "x")
	}
	idle := grown(before) / queues
	before = liveHeap()
	for i := range active { // more units than the smallest tail takes
		put(t, s, fmt.Sprint("topic-", i/8), i%8, numbered("", 40)...)
	}
	more := idle + grown(before)/active
	t.Logf("%.0f bytes per idle queue, %.0f per active one", idle, more)
	assert.Less(t, idle, float64(idleMost), "bytes of a queue with a record")
	assert.Less(t, more, float64(activeMost), "bytes of a queue with many records")

	require.NoError(t, s.Close())
	s = nil
	before = liveHeap()
	s = open()
	again := grown(before)
	t.Logf("%.0f bytes for all of them, opened again", again)
	assert.Less(t, again, float64(queues*idleMost+active*activeMost))
	assert.Equal(t, int64(41), s.MaxOffset("topic-7", 3))
	require.NoError(t, s.Close())
}

// With -store.large it is 100 million units, and takes 2 GB of disk.
func TestMemoryOfAQueueGrowsByFourBytesForABlock(t *testing.T) {
	queues, each, dir := 1000, 1000, quickDir(t)
	if *largeFlag {
		queues, each, dir = 10_000, 10_000, t.TempDir()
	}
	x := &extents{dir: filepath.Join(dir, queuesName), disk: durable(), handles: &handles{}}
	t.Cleanup(func() {
		require.NoError(t, x.close())
		x.handles.close()
	})
	list := make([]*queue, queues)
	for i := range list {
		list[i] = &queue{id: uint32(i)}
	}
	before := liveHeap()
	for n := range queues * each {
		offset := n / queues
		require.NoError(t, list[n%queues].place(x, int64(offset), unit{position: int64(n) + 1, size: 100}, false))
		if n%(1<<21) == 0 { // as checkpoints do
			_, _, err := x.sync()
			require.NoError(t, err)
		}
	}
	_, _, err := x.sync()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(openBelow(t, dir)), 1, "files open for writing")
	grown := liveHeap() - before
	// A slice that grows by a quarter, or is small and doubles, is at worst half empty.
	most := int64(queues)*(unitBytes+16) + int64(queues*each/blockUnits)*4*2 + 64<<10
	t.Logf("%d units in %d queues: %d KiB, %.3f bytes per unit", queues*each, queues, grown>>10, float64(grown)/float64(queues*each))
	assert.Less(t, grown, most)

	for range 1000 {
		n := rand.IntN(queues * (each - each%blockUnits))
		v := list[n%queues].view()
		units, err := v.units(x, int64(n/queues))
		require.NoError(t, err)
		require.Equal(t, int64(n)+1, unitAt(units, 0).position)
	}
	assert.LessOrEqual(t, len(openBelow(t, dir)), 1+maxHandles, "files open")
}

// openBelow lists the files below a folder that this process has open.
func openBelow(t *testing.T, dir string) []string {
	t.Helper()
	const handles = "/proc/self/fd"
	entries, err := os.ReadDir(handles)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the system does not tell which files are open")
	}
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		if path, err := os.Readlink(filepath.Join(handles, e.Name())); err == nil && strings.HasPrefix(path, dir+"/") {
			list = append(list, path)
		}
	}
	return list
}

func TestOpenFilesDoNotGrowWithTheStore(t *testing.T) {
	t.Parallel()
	cfg := sweepConfig(t) // many index files
	cfg.FlushInterval, cfg.CheckpointInterval = time.Millisecond, 10*time.Millisecond
	s := mustOpen(t, cfg)
	const records = 1500
	for i := range records {
		b := s.NewBatch()
		r := keyedRecord("T", strings.Repeat("x", 1500), fmt.Sprint("uniq", i), fmt.Sprint("key", i%7))
		r.QueueID = int32(i % 10)
		require.NoError(t, b.Add(r))
		_, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, s.Sync(t.Context()))
	require.Greater(t, s.log.fileCount(), 300)
	// So small index files are full faster than a checkpoint syncs and closes them.
	require.Eventually(t, func() bool { return s.checkpointed.position.Load() == records }, 10*time.Second, time.Millisecond)
	// LOCK; the wal's handle and ours of the file that is written to; an extent
	// and an index file that are written to. What the janitor has open for a
	// moment: a checkpoint, the next file, full files before they are synced.
	const always = 1 + 2 + 1 + 1 + 5
	const readers = 4
	most := always + maxHandles + readers // a handle that has left the list is open while it is read
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for range 200 {
				offset := rand.Int64N(records / 10)
				_, err := s.Get(GetRequest{Topic: "T", QueueID: rand.IntN(10), Offset: offset, MaxMessages: 8})
				assert.NoError(t, err)
				_, err = s.Record(1 + rand.Int64N(records))
				assert.NoError(t, err)
				_, err = s.QueryKey(context.Background(), KeyQuery{Topic: "T", Key: fmt.Sprint("uniq", rand.IntN(records)), Max: 1})
				assert.NoError(t, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	peak := 0
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		if open := openBelow(t, cfg.Dir); len(open) > peak {
			peak = len(open)
			assert.LessOrEqual(t, peak, most, "%v", open)
		}
	}
	t.Logf("%d log files, at most %d files open", s.log.fileCount(), peak)
}
