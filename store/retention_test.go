package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retainConfig keeps records for an hour.
func retainConfig(t testing.TB) Config {
	cfg := testConfig(t)
	cfg.Retention = time.Hour
	return cfg
}

// pass lets time go by, and everybody do what is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// putMany appends n records of some 200 bytes to a queue.
func putMany(t testing.TB, s *Store, topic string, queue, n int) {
	t.Helper()
	for i := range n {
		put(t, s, topic, queue, fmt.Sprintf("%0150d", i))
	}
}

func TestFilesGoWhenTheirNewestRecordIsTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 40) // two files and a part of one
		time.Sleep(10 * time.Minute)
		putMany(t, s, "T", 0, 10)
		files := s.segmentsNow()
		require.Greater(t, len(files), 2)
		var oldest []*logFile // those that hold nothing but the first 40
		for i, f := range files[:len(files)-1] {
			if files[i+1].base <= 41 {
				oldest = append(oldest, f)
			}
		}
		require.NotEmpty(t, oldest)
		pass(50*time.Minute - time.Nanosecond)
		assert.Equal(t, int64(1), s.Positions().Min, "kept for the whole hour")
		pass(DefaultCleanInterval + time.Millisecond)
		p := s.Positions()
		assert.Equal(t, files[len(oldest)].base, p.Min, "whole files, and all of them")
		assert.Equal(t, p.Min-1, s.MinOffset("T", 0))
		assert.Equal(t, int64(50), s.MaxOffset("T", 0))
		assert.Len(t, segments(t, cfg.Dir), len(files)-len(oldest))
		res, err := s.Get(GetRequest{Topic: "T", QueueID: 0})
		require.NoError(t, err)
		assert.Equal(t, GetResult{Status: GetTooSmall, Next: p.Min - 1, Min: p.Min - 1, Max: 50}, res)
		_, err = s.Record(p.Min - 1)
		assert.ErrorIs(t, err, ErrNoRecord)
		assert.Len(t, bodies(t, s, "T", 0), int(50-p.Min+1))
		mustClose(t, s)
		s = mustOpen(t, cfg)
		assert.Equal(t, p.Min, s.Positions().Min)
		assert.Equal(t, p.Min-1, s.MinOffset("T", 0))
		mustClose(t, s)
	})
}

// ends are the ways in which a store ends, and what may happen to its derived
// files while it is closed.
var ends = []struct {
	name string
	end  func(*Store) error
	lose []string
	old  bool // the derived files are those of before the deletion
}{
	{"closed", (*Store).Close, nil, false},
	{"killed", (*Store).Kill, nil, false},
	{"power lost", (*Store).PowerOff, nil, false},
	{"checkpoint lost", (*Store).Close, []string{checkpointName}, false},
	{"queues lost", (*Store).Close, []string{queuesName}, false},
	{"both lost", (*Store).Close, []string{checkpointName, queuesName}, false},
	{"killed, checkpoint lost", (*Store).Kill, []string{checkpointName}, false},
	{"older ones", (*Store).Close, []string{checkpointName, queuesName}, true},
	{"older checkpoint", (*Store).Close, []string{checkpointName}, true},
	{"older queues", (*Store).Close, []string{queuesName}, true},
}

func TestAnIdleLogShrinksToNothingAndItsOffsetsGoOn(t *testing.T) {
	for _, c := range ends {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := retainConfig(t)
				s := mustOpen(t, cfg)
				putMany(t, s, "T", 0, 250) // a block and a bit
				putMany(t, s, "T", 1, 3)
				put(t, s, "U", 7, "alone")
				pass(6 * time.Second) // a checkpoint
				before := copyDir(t, cfg.Dir)
				pass(time.Hour + 2*DefaultCleanInterval)
				assert.Equal(t, Positions{Min: 255, Written: 254, Synced: 254, Dispatched: 254}, s.Positions())
				assert.Len(t, segments(t, cfg.Dir), 1)
				ranges := map[QueueID]Range{{"T", 0}: {250, 250}, {"T", 1}: {3, 3}, {"U", 7}: {1, 1}}
				check := func() {
					t.Helper()
					for id, want := range ranges {
						assert.Equal(t, want, Range{s.MinOffset(id.Topic, id.ID), s.MaxOffset(id.Topic, id.ID)}, "%v", id)
						res, err := s.Get(GetRequest{Topic: id.Topic, QueueID: id.ID})
						require.NoError(t, err)
						assert.Equal(t, GetTooSmall, res.Status)
						assert.Equal(t, want.Min, res.Next)
					}
					require.NoError(t, s.Check(t.Context()))
				}
				check()
				require.NoError(t, c.end(s))
				for _, name := range c.lose {
					require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, name)))
					if !c.old {
						continue
					}
					if info, err := os.Stat(filepath.Join(before, name)); err == nil && info.IsDir() {
						require.NoError(t, os.CopyFS(filepath.Join(cfg.Dir, name), os.DirFS(filepath.Join(before, name))))
					} else if err == nil {
						data, err := os.ReadFile(filepath.Join(before, name))
						require.NoError(t, err)
						writeFile(t, filepath.Join(cfg.Dir, name), data)
					}
				}
				s = mustOpen(t, cfg)
				require.NoError(t, s.Err())
				assert.Zero(t, s.Cut())
				assert.Equal(t, int64(255), s.Positions().Min)
				check()
				a := put(t, s, "T", 0, "next")
				assert.Equal(t, int64(250), a.QueueOffset)
				assert.Equal(t, int64(255), a.Position)
				a = put(t, s, "U", 7, "next")
				assert.Equal(t, int64(1), a.QueueOffset)
				assertBodies(t, s, "T", 0, []string{"next"})
				assertBodies(t, s, "U", 7, []string{"next"})
				require.NoError(t, s.Kill())
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, checkpointName)))
				s = mustOpen(t, cfg)
				assertBodies(t, s, "T", 0, []string{"next"})
				assert.Equal(t, int64(251), s.MaxOffset("T", 0))
				assert.Equal(t, int64(3), s.MaxOffset("T", 1))
				mustClose(t, s)
			})
		})
	}
}

func TestALogIsKeptBelowRetentionBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.RetentionBytes = 5 * MinFileSize
		s := mustOpen(t, cfg)
		for range 20 {
			putMany(t, s, "T", 0, 40)
			pass(time.Second) // synced
			assert.LessOrEqual(t, s.log.size(), cfg.RetentionBytes+MinFileSize)
		}
		pass(DefaultCleanInterval)
		assert.LessOrEqual(t, s.log.size(), cfg.RetentionBytes)
		size := int64(0)
		for _, path := range segments(t, cfg.Dir) {
			info, err := os.Stat(path)
			require.NoError(t, err)
			size += info.Size()
		}
		assert.Equal(t, s.log.size(), size)
		assert.Greater(t, size, cfg.RetentionBytes-2*MinFileSize, "and no more is deleted than needed")
		assert.Equal(t, int64(800), s.MaxOffset("T", 0))
		assert.Equal(t, s.Positions().Min-1, s.MinOffset("T", 0))
		mustClose(t, s)
	})
}

func TestNegativeRetentionKeepsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Retention, cfg.RetentionBytes = -1, -1
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 100)
		pass(1000 * time.Hour)
		assert.Equal(t, int64(1), s.Positions().Min)
		mustClose(t, s)
	})
}

func TestThrowawayStoresAreTrimmedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		cfg.Throwaway = true
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 300)
		pass(time.Hour + 2*DefaultCleanInterval)
		assert.Equal(t, int64(301), s.Positions().Min)
		mustKill(t, s)
		s = mustOpen(t, cfg)
		assert.Equal(t, int64(300), put(t, s, "T", 0, "next").QueueOffset)
		mustClose(t, s)
	})
}

func TestUnsyncedFilesAreNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		cfg.FlushInterval = 1000 * time.Hour
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 100)
		pass(10 * time.Hour)
		assert.Equal(t, int64(1), s.Positions().Min)
		require.NoError(t, s.Sync(t.Context()))
		pass(2 * DefaultCleanInterval)
		assert.Equal(t, s.segmentsNow()[0].base, s.Positions().Min)
		mustClose(t, s)
	})
}

// A queue may lose its only kept record with the unsynced end of the log.
func TestOffsetsGoOnWhenTheOnlyKeptRecordOfAQueueIsTornOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		cfg.FlushInterval = 1000 * time.Hour
		s := mustOpen(t, cfg)
		putMany(t, s, "Q", 0, 5)
		putMany(t, s, "T", 0, 60)
		require.NoError(t, s.Sync(t.Context()))
		time.Sleep(2 * time.Hour)
		put(t, s, "Q", 0, "unsynced") // offset 5
		pass(2 * DefaultCleanInterval)
		require.Greater(t, s.Positions().Min, int64(5))
		require.NoError(t, s.PowerOff())
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, checkpointName)))
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assert.Equal(t, int64(5), s.MaxOffset("Q", 0))
		assert.Equal(t, int64(5), put(t, s, "Q", 0, "again").QueueOffset)
		mustClose(t, s)
	})
}

func TestNothingIsDeletedDuringACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 100)
		s.trimmer.pin() // as Check does
		pass(2 * time.Hour)
		assert.Equal(t, int64(1), s.Positions().Min)
		s.unpin()
		pass(2 * DefaultCleanInterval)
		assert.Equal(t, int64(101), s.Positions().Min)
		mustClose(t, s)
	})
}

func TestLostMarkOfTheBeginning(t *testing.T) {
	trimmed := func(t *testing.T) (Config, Positions) {
		cfg := retainConfig(t)
		s := mustOpen(t, cfg)
		putMany(t, s, "Q", 0, 5)
		putMany(t, s, "T", 0, 50)
		time.Sleep(30 * time.Minute)
		putMany(t, s, "T", 0, 50)
		pass(31 * time.Minute)
		p := s.Positions()
		require.Greater(t, p.Min, int64(5))
		mustClose(t, s)
		return cfg, p
	}
	for _, lose := range []struct {
		name string
		how  func(*testing.T, string)
	}{
		{"missing", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }},
		{"torn", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 10)) }},
		{"damaged", func(t *testing.T, path string) { flip(t, path, 12) }},
	} {
		t.Run(lose.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, p := trimmed(t)
				first := filepath.Join(cfg.Dir, commitLogName, firstName)
				lose.how(t, first)
				damaged := copyDir(t, cfg.Dir)

				// The checkpoint knows.
				s := mustOpen(t, cfg)
				require.NoError(t, s.Err())
				assert.Equal(t, p, s.Positions())
				assert.Equal(t, int64(5), s.MaxOffset("Q", 0))
				mustClose(t, s)
				require.NoError(t, os.Remove(checkpointPath(cfg)))
				s = mustOpen(t, cfg)
				require.NoError(t, s.Err(), "the mark has been written again")
				assert.Equal(t, int64(5), s.MaxOffset("Q", 0))
				mustClose(t, s)

				// Nobody knows.
				cfg.Dir = damaged
				require.NoError(t, os.Remove(checkpointPath(cfg)))
				before := readAll(t, cfg.Dir)
				s = mustOpen(t, cfg)
				require.ErrorIs(t, s.Err(), ErrReadOnly)
				mustClose(t, s)
				after := readAll(t, cfg.Dir)
				delete(after, lockName)
				delete(before, lockName)
				assert.Equal(t, before, after)
			})
		})
	}
}

func TestFirstFileAboveTheMarkIsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 50)
		time.Sleep(30 * time.Minute)
		putMany(t, s, "T", 0, 100)
		pass(31 * time.Minute)
		require.Greater(t, s.Positions().Min, int64(1))
		path := s.segmentsNow()[0].dir
		mustClose(t, s)
		require.NoError(t, os.RemoveAll(path))
		s = mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly)
		assert.ErrorContains(t, s.Err(), path)
		mustClose(t, s)
	})
}

// The folder is copied at every sync of a deletion. Each copy opens as a store
// of before or after it.
func TestACrashAtAnyPointOfADeletionLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		var mu sync.Mutex // guards copies
		var copies []string
		var copying atomic.Bool
		shot := func() {
			if copying.Load() {
				mu.Lock()
				defer mu.Unlock()
				copies = append(copies, copyDir(t, cfg.Dir))
			}
		}
		real := durable()
		disk := syncer{
			file: func(f *os.File) error { defer shot(); return real.file(f) },
			dir:  func(path string) error { defer shot(); return real.dir(path) },
		}
		s := mustOpenOn(t, cfg, disk)
		putMany(t, s, "Q", 0, 5)
		putMany(t, s, "T", 0, 300)
		time.Sleep(30 * time.Minute)
		putMany(t, s, "T", 0, 20)
		pass(6 * time.Second)
		copying.Store(true)
		pass(31 * time.Minute)
		copying.Store(false)
		min := s.Positions().Min
		require.Greater(t, min, int64(200))
		require.Greater(t, len(copies), 3)
		mustClose(t, s)
		// Folders that had not been removed yet, as a crash may leave them.
		last := copyDir(t, copies[0])
		data, err := os.ReadFile(filepath.Join(cfg.Dir, commitLogName, firstName))
		require.NoError(t, err)
		writeFile(t, filepath.Join(last, commitLogName, firstName), data)
		copies = append(copies, last)
		mins := map[int64]int{}
		for i, dir := range copies {
			for _, lose := range []string{"nothing", checkpointName, queuesName} {
				cfg := cfg
				cfg.Dir = copyDir(t, dir)
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, lose)))
				s := mustOpen(t, cfg)
				require.NoError(t, s.Err(), "copy %d", i)
				p := s.Positions()
				mins[p.Min]++
				assert.Equal(t, int64(325), p.Written)
				assert.Equal(t, int64(5), s.MaxOffset("Q", 0), "copy %d", i)
				assert.Equal(t, int64(320), s.MaxOffset("T", 0), "copy %d", i)
				if p.Min == min {
					assert.Equal(t, min-6, s.MinOffset("T", 0), "copy %d", i)
					assert.Equal(t, int64(5), s.MinOffset("Q", 0), "copy %d", i)
					assert.Equal(t, min, baseOf(t, segments(t, cfg.Dir)[0]), "leftovers are removed")
				}
				mustClose(t, s)
			}
		}
		assert.Len(t, mins, 2, "before and after: %v", mins)
	})
}

func TestQueueFilesGoWithTheLogAfterACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		cfg.FileSize = 256 << 10
		s := mustOpen(t, cfg)
		s.extents.mu.Lock()
		s.extents.next = extentBlocks - 2 // as if the first file were nearly full
		s.extents.mu.Unlock()
		add := func(n int) {
			for range n {
				put(t, s, "T", 0, numbered("x", blockUnits)...)
			}
		}
		add(20)
		pass(10 * time.Second)
		require.Len(t, extentFiles(t, cfg.Dir), 2)
		time.Sleep(30 * time.Minute)
		add(20)
		pass(31 * time.Minute)
		min := s.MinOffset("T", 0)
		require.Greater(t, min, int64(10*blockUnits))
		mustKill(t, s)
		s = mustOpen(t, cfg) // the checkpoint is of before or after; both fit
		require.NoError(t, s.Err())
		assert.Equal(t, min, s.MinOffset("T", 0))
		put(t, s, "T", 0, "one more")
		pass(10 * time.Second)
		assert.Equal(t, []string{numberedName(1)}, func() (names []string) {
			for _, path := range extentFiles(t, cfg.Dir) {
				names = append(names, filepath.Base(path))
			}
			return names
		}())
		mustKill(t, s)
		s = mustOpen(t, cfg)
		assert.Equal(t, int64(40*blockUnits+1), s.MaxOffset("T", 0))
		mustClose(t, s)
	})
}

// Readers go on while the beginning of the log moves past them: they are told
// so, and never meet an error.
func TestReadersBesideRetention(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.RetentionBytes = 3 * MinFileSize
	cfg.FlushInterval = time.Millisecond
	cfg.CleanInterval = time.Millisecond
	s := mustOpen(t, cfg)
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for q := range 2 {
		writers.Go(func() {
			putMany(t, s, "T", q, 1500)
			for s.Positions().Min == 1 { // retention has its own goroutine: until it had a turn
				putMany(t, s, "T", q, 10)
			}
		})
		readers.Go(func() {
			small := 0
			for {
				select {
				case <-stop:
					return
				default:
				}
				min := s.MinOffset("T", q)
				res, err := s.Get(GetRequest{Topic: "T", QueueID: q, Offset: min, MaxMessages: 8})
				if !assert.NoError(t, err) {
					return
				}
				if res.Status == GetTooSmall {
					small++
					assert.Greater(t, res.Next, min)
				}
				if _, err := s.StoreTime("T", q, min); err != nil {
					assert.ErrorIs(t, err, ErrNoRecord)
				}
				if _, err := s.OffsetByTime("T", q, time.Now(), UpperBoundary); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, s.Check(t.Context()))
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	assert.Greater(t, s.Positions().Min, int64(1))
	mustClose(t, s)
}

func TestFirstMark(t *testing.T) {
	m := &firstMark{position: 500, bytes: 12345, epoch: 3, queues: []queueStart{
		{QueueID{"topic", 3}, 77}, {QueueID{"", 0}, 0}, {QueueID{"%RETRY%group", 65535}, 1 << 40},
	}}
	data := m.encode()
	got, ok := parseFirst(data)
	require.True(t, ok)
	assert.Equal(t, m, got)
	for k := range data {
		_, ok := parseFirst(data[:k])
		require.False(t, ok, "cut to %d bytes", k)
		data[k] ^= 1
		_, ok = parseFirst(data)
		require.False(t, ok, "byte %d flipped", k)
		data[k] ^= 1
	}
}

func FuzzParseFirstNeverPanics(f *testing.F) {
	f.Add((&firstMark{position: 5, queues: []queueStart{{QueueID{"t", 1}, 2}}}).encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, ok := parseFirst(data); ok {
			again, ok := parseFirst(m.encode())
			require.True(t, ok)
			require.Equal(t, m, again)
		}
	})
}

// Where the log begins is not known when its mark and the checkpoint are gone. A
// salvage takes the first file for the beginning, and makes up nothing before it.
func TestSalvageWithoutAMarkBeginsAtTheFirstFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 50)
		time.Sleep(30 * time.Minute)
		putMany(t, s, "T", 0, 50)
		pass(31 * time.Minute)
		p := s.Positions()
		min := s.MinOffset("T", 0)
		require.Greater(t, p.Min, int64(1))
		mustClose(t, s)
		require.NoError(t, os.Remove(checkpointPath(cfg)))
		require.NoError(t, os.Remove(filepath.Join(cfg.Dir, commitLogName, firstName)))
		files := segments(t, cfg.Dir)
		in, err := Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, []FindingKind{FindingBeginning}, kinds(in))
		assert.Contains(t, in.Findings[0].Text, "is missing")
		requireForeseen(t, cfg, cfg.Dir, in)
		plan := mustSalvage(t, cfg.Dir)
		assert.Zero(t, plan.LostRecords)
		assert.Equal(t, p.Min, plan.First)
		assert.Equal(t, files, segments(t, cfg.Dir))
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assert.Equal(t, p, s.Positions())
		assert.Equal(t, min, s.MinOffset("T", 0))
		mustClose(t, s)
	})
}

func TestDeletionsAreToldWithTheirReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		var mu sync.Mutex // guards told
		var told []Deletion
		cfg.Deleted = func(d Deletion) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, d)
		}
		cfg.RetentionBytes = 3 * MinFileSize
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 100)
		pass(DefaultCleanInterval)
		mu.Lock()
		require.NotEmpty(t, told)
		next := int64(1)
		for _, d := range told {
			assert.Equal(t, Deletion{DeletedForSize, d.Files, next, d.Last}, d)
			next = d.Last + 1
		}
		mu.Unlock()
		assert.Equal(t, s.Positions().Min, next)
		pass(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		last := told[len(told)-1]
		assert.Equal(t, Deletion{DeletedForAge, last.Files, last.First, 100}, last)
		mustClose(t, s)
	})
}

// The clock is put back: messages get the last time before that, so none is too
// old before it has caught up. That is said, once.
func TestAClockThatWasPutBackIsToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := retainConfig(t)
		var log bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := mustOpen(t, cfg)
		s.mu.Lock()
		s.mu.storeTime = nowMillis() + (5 * time.Hour).Milliseconds()
		s.mu.Unlock()
		putMany(t, s, "T", 0, 100)
		pass(3 * time.Hour)
		assert.Equal(t, int64(1), s.Positions().Min)
		pass(4 * time.Hour)
		assert.Equal(t, int64(101), s.Positions().Min)
		mustClose(t, s)
		assert.Equal(t, 1, strings.Count(log.String(), "the clock was put back"), "once, and nobody writes to log any more")
	})
}
