package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guarded is a store on a disk of which the test says how much is free.
func guarded(t testing.TB) (Config, *atomic.Int64) {
	cfg := testConfig(t)
	cfg.MinFreeBytes = 0
	var free atomic.Int64
	free.Store(10 << 30)
	cfg.FreeBytes = func(dir string) (int64, error) {
		assert.Equal(t, cfg.Dir, dir)
		return free.Load(), nil
	}
	return cfg, &free
}

func tryPut(t testing.TB, s *Store, body string) error {
	_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, body), AppendOptions{})
	return err
}

func TestAppendsAreRefusedWhileTheDiskIsNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, free := guarded(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "a")
		free.Store(256<<20 - 1)
		pass(DefaultCleanInterval)
		err := tryPut(t, s, "refused")
		require.ErrorIs(t, err, ErrDiskFull)
		assert.NotErrorIs(t, err, ErrFenced)
		var full *DiskFullError
		require.ErrorAs(t, err, &full)
		assert.Equal(t, DiskFullError{Dir: cfg.Dir, Free: 256<<20 - 1, Min: 256 << 20}, *full)
		assert.ErrorContains(t, err, "255 MiB free on "+cfg.Dir+", minimum 256 MiB (Config.MinFreeBytes)")
		assert.Equal(t, err, s.Err())
		assertBodies(t, s, "T", 0, []string{"a"})

		free.Store(256 << 20)
		pass(DefaultCleanInterval)
		require.NoError(t, s.Err())
		put(t, s, "T", 0, "b")

		free.Store(0)
		pass(DefaultCleanInterval)
		free.Store(1 << 30)
		require.ErrorIs(t, tryPut(t, s, "refused"), ErrDiskFull)
		synctest.Wait() // a refused append makes the store look again
		require.NoError(t, tryPut(t, s, "c"))
		assertBodies(t, s, "T", 0, []string{"a", "b", "c"})
		mustClose(t, s)
	})
}

func TestAStoreOnAFullDiskOpensAndServesReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, free := guarded(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "a")
		mustClose(t, s)
		free.Store(1 << 20)
		s = mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrDiskFull)
		require.ErrorIs(t, tryPut(t, s, "refused"), ErrDiskFull)
		assertBodies(t, s, "T", 0, []string{"a"})
		require.NoError(t, s.Close())
		require.ErrorIs(t, tryPut(t, s, "late"), ErrClosed)
	})
}

func TestTheDiskIsLookedAtWhenMuchHasBeenWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, free := guarded(t)
		cfg.MinFreeBytes, cfg.FileSize = 2<<20, 1<<30
		s := mustOpen(t, cfg)
		free.Store(1 << 20)
		body := string(make([]byte, 64<<10))
		n := 0
		for ; tryPut(t, s, body) == nil && n < 100; n++ {
			synctest.Wait()
		}
		assert.LessOrEqual(t, n, 3, "no more than a part of the minimum")
		mustClose(t, s)
	})
}

func TestTheOldestFilesGoWhenTheDiskGetsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, free := guarded(t)
		cfg.MinFreeBytes = 100_000
		var open atomic.Pointer[Store]
		cfg.FreeBytes = func(string) (int64, error) { // what is deleted is free afterwards
			n := free.Load()
			if s := open.Load(); s != nil {
				n += s.segmentsNow()[0].header.bytes
			}
			return n, nil
		}
		s := mustOpen(t, cfg)
		open.Store(s)
		putMany(t, s, "T", 0, 300)
		pass(time.Second)
		files := s.segmentsNow()
		require.Greater(t, len(files), 10)
		const missing = 3 * MinFileSize
		goes, n := int64(0), 0
		for goes < missing {
			goes += files[n].size.Load()
			n++
		}
		free.Store(trimBelow*cfg.MinFreeBytes - missing)
		pass(DefaultCleanInterval)
		assert.Equal(t, files[n].base, s.Positions().Min, "as many as are needed")
		pass(10 * DefaultCleanInterval)
		assert.Equal(t, files[n].base, s.Positions().Min)
		require.NoError(t, s.Err(), "there is enough for appends")
		mustClose(t, s)
	})
}

func TestThrowawayStoresAndThoseWithoutAGuardUseTheDiskUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, change := range []func(*Config){
			func(c *Config) { c.Throwaway = true },
			func(c *Config) { c.MinFreeBytes = -1 },
			func(c *Config) {
				c.FreeBytes = func(string) (int64, error) { return 0, errors.New("not for everybody") }
			},
		} {
			cfg, free := guarded(t)
			free.Store(0)
			change(&cfg)
			s := mustOpen(t, cfg)
			putMany(t, s, "T", 0, 100)
			pass(10 * DefaultCleanInterval)
			require.NoError(t, tryPut(t, s, "x"))
			assert.Equal(t, int64(1), s.Positions().Min)
			mustClose(t, s)
		}
	})
}

func TestFreeBytesOfARealFolder(t *testing.T) {
	free, err := freeBytes(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	assert.Positive(t, free)
	_, err = freeBytes(t.TempDir() + "/missing")
	require.Error(t, err)
}

func TestSpaceThatIsNotKnownAnyMoreRefusesAndDeletesNothing(t *testing.T) {
	for name, fail := range map[string]func() (int64, error){
		"error": func() (int64, error) { return 0, errors.New("stale handle") },
		"panic": func() (int64, error) { panic("hook") },
		"goexit": func() (int64, error) {
			runtime.Goexit()
			return 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, free := guarded(t)
				cfg.MinFreeBytes = 100_000
				var failing atomic.Bool
				ask := cfg.FreeBytes
				cfg.FreeBytes = func(dir string) (int64, error) {
					if failing.Load() {
						return fail()
					}
					return ask(dir)
				}
				s := mustOpen(t, cfg)
				putMany(t, s, "T", 0, 100)
				free.Store(1)
				pass(DefaultCleanInterval)
				require.ErrorIs(t, tryPut(t, s, "refused"), ErrDiskFull)
				failing.Store(true)
				pass(DefaultCleanInterval)
				require.NoError(t, tryPut(t, s, "goes on"))
				failing.Store(false)
				free.Store(trimBelow*cfg.MinFreeBytes - 5000) // less is missing than there is
				pass(DefaultCleanInterval)
				min := s.Positions().Min
				require.Greater(t, min, int64(1))
				failing.Store(true)
				pass(DefaultCleanInterval)
				min = s.Positions().Min
				putMany(t, s, "T", 0, 200)
				pass(10 * DefaultCleanInterval)
				assert.Equal(t, min, s.Positions().Min)
				mustClose(t, s)
			})
		})
	}
}

func TestFreeBytesThatDoesNotReturnHoldsUpNothingButTheEndForAWhile(t *testing.T) {
	for name, end := range map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill, "power off": (*Store).PowerOff} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, free := guarded(t)
				var blocked atomic.Bool
				release := make(chan struct{})
				ask := cfg.FreeBytes
				cfg.FreeBytes = func(dir string) (int64, error) {
					if blocked.Load() {
						<-release
					}
					return ask(dir)
				}
				s := mustOpen(t, cfg)
				free.Store(1)
				pass(DefaultCleanInterval)
				require.ErrorIs(t, tryPut(t, s, "refused"), ErrDiskFull)
				free.Store(1 << 40)
				blocked.Store(true)
				pass(3 * DefaultCleanInterval)
				put(t, s, "T", 0, "what it said last is forgotten")
				sleepThroughCheckpoints()
				assert.Equal(t, int64(1), marked(t, cfg), "the janitor works")
				begin := time.Now()
				err := end(s)
				require.ErrorIs(t, err, ErrHookRunning)
				assert.ErrorContains(t, err, cfg.Dir)
				assert.Equal(t, hookPatience, time.Since(begin))
				require.ErrorIs(t, s.Close(), ErrHookRunning)

				blocked.Store(false) // the folder is free
				other := mustOpen(t, cfg)
				assertBodies(t, other, "T", 0, []string{"what it said last is forgotten"})
				mustClose(t, other)
				close(release)
				require.NoError(t, s.Close())
			})
		})
	}
}

func TestAnOpenDoesNotWaitForFreeBytesForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := guarded(t)
		release := make(chan struct{})
		cfg.FreeBytes = func(dir string) (int64, error) {
			<-release
			return 1, nil
		}
		begin := time.Now()
		s := mustOpen(t, cfg)
		assert.Equal(t, openPatience, time.Since(begin))
		put(t, s, "T", 0, "a")
		close(release)
		synctest.Wait()
		require.ErrorIs(t, tryPut(t, s, "refused"), ErrDiskFull)
		mustClose(t, s)
	})
}

func TestNothingIsDeletedForSpaceWhenThatWouldNotSuffice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg, free := guarded(t) // the minimum is 256 MiB
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		var deleted []Deletion
		cfg.Deleted = func(d Deletion) { deleted = append(deleted, d) }
		s := mustOpen(t, cfg)
		putMany(t, s, "T", 0, 300)
		free.Store(900 << 20)
		pass(3 * DefaultCleanInterval)
		assert.Equal(t, int64(1), s.Positions().Min, "124 MiB are missing, the log has less")
		assert.Equal(t, 1, strings.Count(log.String(), "would not make enough"))

		// It does for appends to go on.
		free.Store(256<<20 - 2*MinFileSize)
		first := s.segmentsNow()
		pass(DefaultCleanInterval)
		min := s.Positions().Min
		require.Contains(t, []int64{first[2].base, first[3].base}, min)
		require.Len(t, deleted, 1)
		assert.Equal(t, Deletion{Reason: DeletedForSpace, Files: deleted[0].Files, First: 1, Last: min - 1}, deleted[0])
		assert.Contains(t, log.String(), "level=WARN msg=\"store: deleted old")
		mustClose(t, s)
	})
}

func TestFullTellsWhenAppendsAreRefusedAndWhenNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, free := guarded(t)
		var told []string
		cfg.Full = func(full *DiskFullError) {
			if full == nil {
				told = append(told, "space")
			} else {
				told = append(told, fmt.Sprint("full ", full.Free))
			}
		}
		free.Store(1)
		s := mustOpen(t, cfg)
		free.Store(2)
		pass(5 * DefaultCleanInterval)
		free.Store(1 << 40)
		pass(5 * DefaultCleanInterval)
		assert.Equal(t, []string{"full 1", "space"}, told)
		mustClose(t, s)
	})
}

func TestACacheOfAnySizeThatIsAllowedCanBeMade(t *testing.T) {
	cfg := testConfig(t)
	cfg.CacheBytes = MaxCacheBytes
	s := mustOpen(t, cfg)
	require.NoError(t, s.log.blocks.ensure())
	assert.False(t, s.log.blocks.again(7))
	assert.True(t, s.log.blocks.again(7))
	for _, bytes := range []int64{MaxCacheBytes + 1, math.MaxInt64} {
		cfg := testConfig(t)
		cfg.CacheBytes = bytes
		_, err := Open(cfg)
		require.ErrorContains(t, err, "Config.CacheBytes")
	}
}
