package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func checkpointPath(cfg Config) string { return filepath.Join(cfg.Dir, checkpointName) }

func extentFiles(t testing.TB, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, queuesName, "*"))
	require.NoError(t, err)
	return paths
}

// manyUnits fills a store with several blocks of two queues and closes it.
func manyUnits(t *testing.T, cfg Config) (want map[int][]string) {
	s := mustOpen(t, cfg)
	want = map[int][]string{}
	for i := range 40 {
		for queue := range 2 {
			texts := numbered(fmt.Sprintf("q%d-%d-", queue, i), 20+queue)
			put(t, s, "T", queue, texts...)
			want[queue] = append(want[queue], texts...)
		}
	}
	mustClose(t, s)
	return want
}

func assertQueues(t *testing.T, s *Store, want map[int][]string) {
	t.Helper()
	for queue, texts := range want {
		assertBodies(t, s, "T", queue, texts)
	}
}

func TestCheckpointSavesTheReplay(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := manyUnits(t, cfg)
	cp, err := loadCheckpoint(cfg.Dir)
	require.NoError(t, err)
	require.NotNil(t, cp)
	assert.True(t, cp.clean)
	assert.Equal(t, int64(40*41), cp.position)
	assert.Len(t, cp.queues, 2)
	assert.Len(t, cp.queues[0].blocks, 3)
	s := mustOpen(t, cfg)
	assert.Equal(t, cp.position, s.checkpointed.position.Load())
	assertQueues(t, s, want)
}

func TestST02_QueuesFollowTheLogThroughTwoCrashesThatCutIt(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	var want []string
	crash := func(n int) {
		s := mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assertBodies(t, s, "T", 0, want)
		for i := range n {
			if i == n-3 { // only what is not known to be synced can be torn
				require.NoError(t, s.Sync(t.Context()))
			}
			text := fmt.Sprintf("m%d", len(want))
			require.Equal(t, int64(len(want)), put(t, s, "T", 0, text).QueueOffset)
			want = append(want, text)
		}
		mustKill(t, s)
		cfg.Dir = copyDir(t, cfg.Dir)
		for range 3 {
			path := lastSegment(t, cfg.Dir)
			from, _ := lastEntry(t, path)
			if from == 0 { // only a header is left
				require.NoError(t, os.RemoveAll(filepath.Dir(path)))
				path = lastSegment(t, cfg.Dir)
				from, _ = lastEntry(t, path)
			}
			require.NoError(t, os.Truncate(path, int64(from)))
			want = want[:len(want)-1]
		}
	}
	crash(200)
	crash(100)
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assertBodies(t, s, "T", 0, want)
	require.NoError(t, s.Check(t.Context()))
	assert.Equal(t, int64(len(want)), put(t, s, "T", 0, "next").QueueOffset)
}

func TestST04_EmptyExtentFilesDoNotStopOpen(t *testing.T) {
	t.Parallel()
	original := testConfig(t)
	want := manyUnits(t, original)
	zeros := make([]byte, 1<<20)
	for name, change := range map[string]func(t *testing.T, dir string){
		"zero-filled next":  func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, queuesName, numberedName(1)), zeros) },
		"zero-length next":  func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, queuesName, numberedName(1)), nil) },
		"zero-filled only":  func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, queuesName, numberedName(0)), zeros) },
		"zero-length only":  func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, queuesName, numberedName(0)), nil) },
		"of another making": func(t *testing.T, dir string) { flip(t, filepath.Join(dir, queuesName, numberedName(0)), 10) },
		"zero-filled checkpoint": func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, checkpointName), zeros)
		},
		"zero-length checkpoint": func(t *testing.T, dir string) { writeFile(t, filepath.Join(dir, checkpointName), nil) },
	} {
		for _, clean := range []bool{true, false} {
			cfg := original
			cfg.Dir = copyDir(t, original.Dir)
			if !clean {
				s := mustOpen(t, cfg)
				put(t, s, "T", 9, "unclean")
				mustKill(t, s)
			}
			change(t, cfg.Dir)
			s := mustOpen(t, cfg)
			require.NoError(t, s.Err(), name)
			assertQueues(t, s, want)
			assert.Equal(t, int64(len(want[0])), put(t, s, "T", 0, "next").QueueOffset, name)
			mustClose(t, s)
		}
	}
}

func writeFile(t *testing.T, path string, data []byte) {
	require.NoError(t, os.WriteFile(path, data, 0o640))
}

func TestST06_DeletedQueueFilesAreRebuiltAtTheRecordedOffsets(t *testing.T) {
	t.Parallel()
	original := testConfig(t)
	want := manyUnits(t, original)
	for name, remove := range map[string]string{"extent": filepath.Join(queuesName, numberedName(0)), "folder": queuesName, "checkpoint": checkpointName} {
		cfg := original
		cfg.Dir = copyDir(t, original.Dir)
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, remove)), name)
		s := mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assertQueues(t, s, want)
		mustClose(t, s)
	}
}

func TestDamagedBlockIsReportedAndRebuiltAtTheNextOpen(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := manyUnits(t, cfg)
	flip(t, extentFiles(t, cfg.Dir)[0], blockSize+blockHeader+30) // queue 1 fills the first block
	s := mustOpen(t, cfg)
	_, err := s.Get(GetRequest{Topic: "T", QueueID: 1})
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), extentFiles(t, cfg.Dir)[0])
	require.ErrorIs(t, s.Check(t.Context()), ErrDamaged)
	require.NoError(t, s.Close())
	s = mustOpen(t, cfg)
	assertQueues(t, s, want)
	mustClose(t, s)
}

func TestDamagedBlockIsRebuiltAtTheNextOpenHoweverTheStoreEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill}
	finds := map[string]func(*Store) error{
		"get":   func(s *Store) error { _, err := s.Get(GetRequest{Topic: "T", QueueID: 1}); return err },
		"check": func(s *Store) error { return s.Check(context.Background()) },
	}
	for _, throwaway := range []bool{false, true} {
		cfg := testConfig(t)
		if throwaway {
			cfg = throwawayConfig(t)
		}
		want := manyUnits(t, cfg)
		for how, end := range ends {
			for by, find := range finds {
				name := fmt.Sprint(how, " ", by, " throwaway ", throwaway)
				flip(t, extentFiles(t, cfg.Dir)[0], blockSize+blockHeader+30)
				s := mustOpen(t, cfg)
				err := find(s)
				require.ErrorIs(t, err, ErrDamaged, name)
				assert.Contains(t, err.Error(), `topic "T" queue 1`, name)
				require.NoError(t, end(s), name)
				s = mustOpen(t, cfg)
				assertQueues(t, s, want)
				mustClose(t, s)
			}
		}
	}
}

func TestDamagedBlockOfAReadOnlyStoreTakesNoProofAway(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	manyUnits(t, cfg)
	path := lastSegment(t, cfg.Dir)
	_, to := lastEntry(t, path)
	flip(t, path, to-1)
	before, err := loadCheckpoint(cfg.Dir)
	require.NoError(t, err)
	s := mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	s.noteStale(errQueueDamaged)
	require.NoError(t, s.Kill())
	after, err := loadCheckpoint(cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, &checkpoint{synced: before.synced, min: before.min, size: after.size}, after)
	s = mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
}

func TestCheckpointThatMeetsADamagedBlockLeavesTheQueuesOut(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", blockUnits) // one block, no tail: a checkpoint looks into the block
	put(t, s, "T", 0, want...)
	mustClose(t, s)
	s = mustOpen(t, cfg)
	put(t, s, "U", 0, "something new to a checkpoint")
	flip(t, extentFiles(t, cfg.Dir)[0], blockSize+blockHeader+30)
	require.NoError(t, s.Close())
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, want)
}

func TestDamagedRecordDoesNotHideThoseBehindItFromTheNextOpen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill} {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		for _, text := range numbered("m", 100) {
			put(t, s, "T", 0, text)
		}
		mustClose(t, s)
		path := segments(t, cfg.Dir)[1]
		bad := baseOf(t, segments(t, cfg.Dir)[2]) - 2 // offset of the last record of the file
		_, to := lastEntry(t, path)
		flip(t, path, to-1)
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err(), name)
		put(t, s, "T", 0, "behind")
		require.NoError(t, s.Sync(t.Context()))
		_, err := s.Get(GetRequest{Topic: "T", Offset: bad})
		require.ErrorIs(t, err, ErrDamaged, name)
		require.ErrorIs(t, s.Check(t.Context()), ErrDamaged, name)
		require.NoError(t, end(s), name)

		s = mustOpen(t, cfg)
		require.NoError(t, s.Err(), name)
		res, err := s.Get(GetRequest{Topic: "T", Offset: 100})
		require.NoError(t, err, name)
		require.Equal(t, GetFound, res.Status, name)
		assert.Equal(t, "behind", string(message.View(res.Records[0]).Body()), name)
		require.NoError(t, s.Close(), name)
	}
}

func TestCheckpointTakenWhileAppendingCoversExactlyItsPosition(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FileSize = 1 << 20
	s := mustOpen(t, cfg)
	stop := make(chan struct{})
	appended := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				appended <- n
				return
			default:
				b := s.NewBatch()
				for range 50 {
					_ = b.Add(record("T", n%3, "x", "")) // cannot fail
				}
				if _, err := s.Append(context.Background(), b, AppendOptions{}); err == nil {
					n++
				}
			}
		}
	}()
	for range 5 {
		require.NoError(t, s.Sync(t.Context()))
		// As the janitor does, which sleeps meanwhile.
		require.NoError(t, s.writeCheckpoint(false))
		data, err := os.ReadFile(checkpointPath(cfg))
		require.NoError(t, err)
		cp, ok := parseCheckpoint(data)
		require.True(t, ok)
		units := int64(0)
		for _, q := range cp.queues {
			units += int64(len(q.blocks)*blockUnits + len(q.tail)/unitSize)
			if n := len(q.tail) / unitSize; n > 0 {
				assert.LessOrEqual(t, unitAt(q.tail, n-1).position, cp.position)
			}
		}
		assert.Equal(t, cp.position, units)
		assert.LessOrEqual(t, cp.position, cp.synced)
	}
	close(stop)
	n := <-appended
	mustKill(t, s)
	s = mustOpen(t, cfg)
	assert.Equal(t, int64(50*n), s.Positions().Written)
	require.NoError(t, s.Check(t.Context()))
}

func TestParsedCheckpointIsWhatWasWritten(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	cp := checkpoint{clean: true, synced: 100, position: 90, min: 1, next: 77}
	for i := range 20 {
		st := queueState{key: QueueID{fmt.Sprintf("topic-%d", i), i}, base: int64(i * 10), min: int64(i*10 + i*7/2), first: int64(i), blocks: []uint32{}, tail: []byte{}}
		for range i % 5 {
			st.blocks = append(st.blocks, rng.Uint32())
		}
		for j := range i * 7 {
			st.tail = unit{position: int64(j), size: int32(j), tags: -int64(j)}.appendTo(st.tail)
		}
		cp.queues = append(cp.queues, st)
	}
	cp.extents = []extentState{{number: 4, blocks: 16384, stamp: stamp{1}}, {number: 5, blocks: 3, stamp: stamp{2}}}

	cp.index = indexState{
		files: []indexFileState{{number: 2, blocks: 16, stamp: stamp{3}}, {number: 3, blocks: 1, stamp: stamp{4}}},
		runs: []indexRunState{
			{file: 2, at: 1, keySpan: keySpan{entries: 7, first: 2, last: 9, firstTime: 11, lastTime: 13}},
			{file: 2, at: 3, keySpan: keySpan{entries: 1, first: 10, last: 10, firstTime: 14, lastTime: 14}},
		},
	}
	for i := range 3 {
		entries := []keyEntry{{hash: 8, position: 0, time: 0}, {hash: rng.Uint32(), position: 5, time: 6}}
		cp.index.tables = append(cp.index.tables, keyTable{
			keySpan: keySpan{entries: 2, first: int64(100 * i), last: int64(100*i + 5), firstTime: 50, lastTime: 56},
			chunks:  [][]keyEntry{entries},
		})
	}

	data := writeCheckpointTo(t, &cp)
	got, ok := parseCheckpoint(data)
	require.True(t, ok)
	assert.Equal(t, &cp, got)
	for k := range data {
		_, ok := parseCheckpoint(data[:k])
		require.False(t, ok, "cut to %d bytes", k)
		data[k] ^= 1
		_, ok = parseCheckpoint(data)
		require.False(t, ok, "byte %d flipped", k)
		data[k] ^= 1
	}
}

func writeCheckpointTo(t testing.TB, cp *checkpoint) []byte {
	var buf bytes.Buffer
	w := newCheckpointWriter(&buf)
	require.NoError(t, w.start(cp, len(cp.queues)))
	for _, q := range cp.queues {
		require.NoError(t, w.queue(q))
	}
	require.NoError(t, w.finish(cp.extents, cp.next, cp.index))
	return buf.Bytes()
}

func FuzzParseCheckpointNeverPanics(f *testing.F) {
	f.Add(writeCheckpointTo(f, &checkpoint{synced: 1, queues: []queueState{{key: QueueID{"T", 1}, blocks: []uint32{1}, tail: make([]byte, 40)}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The checksum would hide the rest from the fuzzer: put the right one.
		var buf bytes.Buffer
		w := newCheckpointWriter(&buf)
		_ = w.put(data) // a buffer takes everything
		_ = w.w.Flush() // as above
		_ = w.put(binarySum(w))
		_ = w.w.Flush()
		parseCheckpoint(buf.Bytes())
		parseCheckpoint(data)
	})
}

func binarySum(w *checkpointWriter) []byte {
	s := w.sum.Sum32()
	return []byte{byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}

func TestLargeCheckpointIsNotWrittenForALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.FileSize = 1 << 20
		s := mustOpen(t, cfg)
		for queue := range 60 {
			put(t, s, "T", queue, numbered("m", 100)...)
		}
		sleepThroughCheckpoints()
		before := readFile(t, checkpointPath(cfg))
		require.Greater(t, len(before), smallCheckpoint)
		put(t, s, "T", 0, "one more")
		sleepThroughCheckpoints()
		assert.Equal(t, before, readFile(t, checkpointPath(cfg)))
		assert.Equal(t, int64(6001), marked(t, cfg), "what is synced is written down all the same")
		mustClose(t, s)
		assert.Equal(t, before, readFile(t, checkpointPath(cfg)), "an open replays the one")

		s = mustOpen(t, cfg)
		assert.Equal(t, "one more", bodies(t, s, "T", 0)[100])
		for n := 0; n < len(before); n += 1000 {
			put(t, s, "T", 0, string(make([]byte, 1000)))
		}
		sleepThroughCheckpoints()
		cp, err := loadCheckpoint(cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, s.Positions().Written, cp.position, "the log has grown by as much as it takes")
		mustClose(t, s)
	})
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func TestOpenAndCloseWithoutAChangeWritesNothing(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	manyUnits(t, cfg)
	for range 2 {
		note := func() map[string]time.Time {
			into := make(map[string]time.Time)
			require.NoError(t, filepath.WalkDir(cfg.Dir, func(path string, e os.DirEntry, err error) error {
				require.NoError(t, err)
				info, err := e.Info()
				require.NoError(t, err)
				if !e.IsDir() {
					into[path] = info.ModTime()
				}
				return nil
			}))
			return into
		}
		before := note()
		mustClose(t, mustOpen(t, cfg))
		after := note()
		maps.DeleteFunc(after, func(path string, at time.Time) bool { return before[path] == at })
		assert.Empty(t, after)
	}
}
