package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func drop(t testing.TB, s *Store, topic string) {
	t.Helper()
	require.NoError(t, s.DropTopic(context.Background(), topic))
}

// requireNoQueue says that a store knows nothing of a topic.
func requireNoQueue(t *testing.T, s *Store, topic string) {
	t.Helper()
	for key := range s.Queues() {
		require.NotEqual(t, topic, key.Topic)
	}
	res, err := s.Get(GetRequest{Topic: topic, Offset: 3})
	require.NoError(t, err)
	require.Equal(t, GetResult{Status: GetNoQueue}, res)
}

// lifeEnds are ways in which a store ends, and what is left of derived files.
var lifeEnds = map[string]func(*testing.T, *Store, string){
	"close": func(t *testing.T, s *Store, _ string) { mustClose(t, s) },
	"kill":  func(t *testing.T, s *Store, _ string) { mustKill(t, s) },
	"power off": func(t *testing.T, s *Store, _ string) {
		require.NoError(t, s.PowerOff())
	},
	"without derived files": func(t *testing.T, s *Store, _ string) {
		mustClose(t, s)
		for _, name := range []string{checkpointName, queuesName, indexName} {
			require.NoError(t, os.RemoveAll(filepath.Join(s.cfg.Dir, name)))
		}
	},
	"older derived files": func(t *testing.T, s *Store, older string) {
		mustClose(t, s)
		for _, name := range []string{checkpointName, queuesName, indexName} {
			require.NoError(t, os.RemoveAll(filepath.Join(s.cfg.Dir, name)))
			if _, err := os.Stat(filepath.Join(older, name)); err == nil {
				copyInto(t, filepath.Join(older, name), filepath.Join(s.cfg.Dir, name))
			}
		}
	},
}

func copyInto(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	require.NoError(t, err)
	if info.IsDir() {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o640))
}

func TestCP04_DroppedTopicBeginsAnewWhateverHappensBetween(t *testing.T) {
	t.Parallel()
	for name, end := range lifeEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig(t)
			s := mustOpen(t, cfg)
			put(t, s, "stays", 0, numbered("s", 10)...)
			put(t, s, "t", 0, numbered("a", 300)...) // more than a block
			put(t, s, "t", 2, "q2")
			mustClose(t, s)
			older := copyDir(t, cfg.Dir)
			s = mustOpen(t, cfg)
			put(t, s, "t", 0, "late")
			at := put(t, s, "t", 2, "q2 late").Position

			drop(t, s, "t")
			requireNoQueue(t, s, "t")
			end(t, s, older)

			s = mustOpen(t, cfg)
			requireNoQueue(t, s, "t")
			rec, err := s.Record(at)
			require.NoError(t, err, "by position it can be read until its file goes")
			assert.Contains(t, string(rec), "q2 late")
			_, err = s.Record(at + 1)
			require.ErrorIs(t, err, ErrNoRecord, "there is the drop")

			assert.Zero(t, put(t, s, "t", 0, "b0").QueueOffset)
			put(t, s, "t", 0, numbered("c", 250)...)
			require.NoError(t, s.Sync(t.Context()))
			end(t, s, older)

			s = mustOpen(t, cfg)
			assertBodies(t, s, "t", 0, append([]string{"b0"}, numbered("c", 250)...))
			assertBodies(t, s, "stays", 0, numbered("s", 10))
			assert.Equal(t, Range{}, Range{s.MinOffset("t", 2), s.MaxOffset("t", 2)})
			drop(t, s, "t")
			drop(t, s, "t")
			end(t, s, older)
			s = mustOpen(t, cfg)
			requireNoQueue(t, s, "t")
		})
	}
}

func TestDropOfAnUnknownTopicWritesNothing(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, testConfig(t))
	put(t, s, "t", 0, "a")
	drop(t, s, "other")
	assert.EqualValues(t, 1, s.Positions().Written)
	require.ErrorIs(t, s.DropTopic(context.Background(), ""), ErrBadBatch)
	require.ErrorIs(t, s.DropTopic(context.Background(), strings.Repeat("x", 1<<16)), ErrBadBatch)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.DropTopic(ctx, "t"), context.Canceled)
	mustClose(t, s)
	require.ErrorIs(t, s.DropTopic(context.Background(), "t"), ErrClosed)
}

func TestDropIsSyncedWhenItReturns(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, testConfig(t))
	put(t, s, "t", 0, "a")
	drop(t, s, "t")
	assert.EqualValues(t, 2, s.Positions().Synced)
}

func TestNumbersOfDroppedQueuesAreUsedAgain(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	for i := range 20 {
		topic := fmt.Sprintf("t%d", i)
		for q := range 3 {
			put(t, s, topic, q, numbered("x", 210)...)
		}
		if i%2 == 0 {
			drop(t, s, topic)
		}
		if i == 9 {
			mustClose(t, s)
			s = mustOpen(t, cfg)
		}
	}
	assert.LessOrEqual(t, len(s.queues.all()), 33)
	for i := range 20 {
		if i%2 == 1 {
			assertBodies(t, s, fmt.Sprintf("t%d", i), 1, numbered("x", 210))
		}
	}
}

func TestAppendsBesideADropCountAsBeforeItOrBehindIt(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				put(t, s, "t", i%2, "a", "b")
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			assert.NoError(t, s.DropTopic(context.Background(), "t"))
		}
	})
	wg.Go(func() {
		for range 20 {
			assert.NoError(t, s.Check(context.Background()))
		}
	})
	wg.Wait()
	want := [][]string{bodies(t, s, "t", 0), bodies(t, s, "t", 1)}
	mustKill(t, s)
	s = mustOpen(t, cfg)
	assert.Equal(t, want, [][]string{bodies(t, s, "t", 0), bodies(t, s, "t", 1)})
}

func TestDropThatIsNotWrittenIsUndoneByARepair(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "t", 0, "a", "b")
	put(t, s, "u", 0, "c")
	_ = s.fence(errFaulty) // it lets nothing be written
	s.mu.Lock()
	position := s.mu.next
	s.mu.next++
	s.dropLocked("t", position) // as an append that was under way
	q := s.queues.ensure("t", 0)
	q.next++
	s.mu.next++
	s.dropLocked("t", position+2)
	s.mu.next++
	s.mu.Unlock()
	requireNoQueue(t, s, "t")
	require.NoError(t, s.Repair(t.Context()))
	assertBodies(t, s, "t", 0, []string{"a", "b"})
	assert.EqualValues(t, 2, put(t, s, "t", 0, "d").QueueOffset)
	put(t, s, "v", 0, "e")
	require.NoError(t, s.Sync(t.Context()))
	require.NoError(t, s.writeCheckpoint(false), "nothing stands in its way any more")
	mustClose(t, s)
	s = mustOpen(t, cfg)
	assertBodies(t, s, "t", 0, []string{"a", "b", "d"})
	assertBodies(t, s, "v", 0, []string{"e"})
}

func TestDropAndRetention(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	roll := func() {
		s.rollIdle()
		require.NoError(t, s.Sync(t.Context()))
	}
	put(t, s, "t", 0, numbered("a", 5)...)
	roll()
	put(t, s, "t", 0, numbered("b", 5)...)
	put(t, s, "other", 0, "x")
	drop(t, s, "t")
	roll()
	put(t, s, "t", 0, "c", "d")
	roll()
	put(t, s, "t", 0, "e")
	for n := 1; len(*s.log.files.Load()) > 1; n++ {
		files := *s.log.files.Load()
		require.Eventually(t, func() bool { return files[0].log.Load() == nil }, 10*time.Second, time.Millisecond)
		s.janitor.end() // whose work it is otherwise
		require.NoError(t, s.trim(files[1], DeletedForAge))
		s.janitor.stop = make(chan struct{}) // for Kill to end it
		mustKill(t, s)
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, checkpointName)))
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		all := []string{"c", "d", "e"}
		if n >= 3 {
			all = []string{"e"}
		}
		assertBodies(t, s, "t", 0, all)
		assert.EqualValues(t, 3, s.MaxOffset("t", 0))
		assert.EqualValues(t, 1, s.MaxOffset("other", 0))
	}
}

func TestSalvageAroundADrop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		damaged  int // index of the entry in the file
		recreate bool
		want     []string
	}{
		{"the drop, and the topic was made again", 5, true, []string{"c", "d"}},
		{"the drop, and nothing came behind", 5, false, []string{"a", "b"}},
		{"a record before", 2, true, []string{"c", "d"}},
		{"the first record behind", 6, true, []string{"d"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, keepCheckpoint := range []bool{true, false} {
				cfg := testConfig(t)
				cfg.FileSize = 1 << 20
				s := mustOpen(t, cfg)
				put(t, s, "t", 0, "a")
				put(t, s, "t", 0, "b")
				put(t, s, "u", 0, "x")
				put(t, s, "u", 0, "y")
				drop(t, s, "t")
				if c.recreate {
					put(t, s, "t", 0, "c")
					put(t, s, "t", 0, "d")
				}
				put(t, s, "u", 0, "z")
				mustClose(t, s)
				if !keepCheckpoint {
					dropPositions(t, cfg.Dir)
				}
				path := lastSegment(t, cfg.Dir)
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				data[entriesOf(t, path)[c.damaged]+12] ^= 0xFF
				require.NoError(t, os.WriteFile(path, data, 0o640))

				s = mustOpen(t, cfg)
				require.ErrorIs(t, s.Err(), ErrReadOnly)
				mustClose(t, s)
				in, err := Inspect(t.Context(), cfg.Dir)
				require.NoError(t, err)
				require.NotNil(t, in.Salvage, "%+v", in.Findings)
				mustSalvage(t, cfg.Dir)
				s = mustOpen(t, cfg)
				require.NoError(t, s.Err())
				res, err := s.Get(GetRequest{Topic: "t", MaxMessages: 32})
				require.NoError(t, err)
				var found []string
				for _, rec := range res.Records {
					found = append(found, string(message.View(rec).Body()))
				}
				assert.Equal(t, c.want, found)
				assert.EqualValues(t, 2, res.Max)
				assertBodies(t, s, "u", 0, []string{"x", "y", "z"})
				mustClose(t, s)
			}
		})
	}
}

func FuzzParseDrop(f *testing.F) {
	rec := appendDrop(nil, "topic")
	patchDrop(rec, 7, 8)
	f.Add(rec)
	f.Fuzz(func(t *testing.T, rec []byte) {
		if len(rec) < 8 {
			return
		}
		d, ok := parseDrop(rec)
		if !ok {
			return
		}
		again := appendDrop(nil, d.topic)
		patchDrop(again, d.position, d.storeTime)
		require.Equal(t, again[44:], rec[44:])
	})
}

// A deletion that comes between a drop and its sync must not write down that the
// topic has no queues: the drop may be lost, and its records are gone.
func TestDeletionBesideAnUnsyncedDropKeepsTheOffsetsOfItsQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.CleanInterval = time.Second
		var disk faultyDisk
		s := mustOpenOn(t, cfg, disk.syncer())
		put(t, s, "U", 0, numbered("u", 20)...)
		putMany(t, s, "V", 0, 200)
		require.NoError(t, s.Sync(t.Context()))
		synctest.Wait()
		require.Greater(t, s.log.fileCount(), 3)
		cause := error(assert.AnError)
		disk.fail.Store(&cause)
		require.ErrorIs(t, s.DropTopic(t.Context(), "U"), ErrFenced)
		disk.fail.Store(nil)
		require.NoError(t, s.trim(s.segmentsNow()[2], DeletedForSize)) // as the janitor does, which sleeps
		require.NoError(t, s.PowerOff())
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assert.Equal(t, int64(20), s.MaxOffset("U", 0))
	})
}
