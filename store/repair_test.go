package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// events notes what a store reports.
type events struct {
	mu  sync.Mutex
	all []any
}

func (e *events) of(cfg *Config) {
	cfg.Fenced = func(err error) { e.add(err) }
	cfg.Repaired = func(cut int) { e.add(cut) }
}

func (e *events) add(what any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, what)
}

func (e *events) take() []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

// After a failed fsync the disk may hold anything of what was not synced. A
// repair writes it once more, from memory.
func TestRepairAfterAFailedFsyncBringsBackWhatTheDiskDropped(t *testing.T) {
	for _, sync := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var disk faultyDisk
			cfg := testConfig(t)
			cfg.SyncFlush = sync
			var told events
			told.of(&cfg)
			s := mustOpenOn(t, cfg, disk.syncer())
			var want []string
			add := func(n int) {
				for _, text := range numbered("m", n) {
					put(t, s, "T", 0, text)
					want = append(want, text)
				}
			}
			add(70)
			require.NoError(t, s.Sync(t.Context()))
			synced := s.Positions().Synced
			cause := errors.New("no medium found")
			if sync {
				disk.fail.Store(&cause)
				require.ErrorIs(t, tryPut(t, s, "unknown"), ErrFenced)
				want = append(want, "unknown") // it is stored all the same
			} else {
				add(100) // more than one file
				disk.fail.Store(&cause)
				pass(DefaultFlushInterval)
			}
			require.ErrorIs(t, s.Err(), ErrFenced)
			require.ErrorIs(t, tryPut(t, s, "late"), ErrFenced)
			synctest.Wait() // the store is fenced before it tells
			assert.Len(t, told.take(), 1)

			err := s.Repair(t.Context()) // the disk still fails
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, cause)
			require.ErrorIs(t, s.Err(), ErrFenced)
			assert.Empty(t, told.take())
			pass(10 * DefaultCleanInterval)
			require.ErrorIs(t, s.Err(), ErrFenced, "nobody repairs it uncalled")

			disk.fail.Store(nil)
			for _, f := range s.segmentsNow() { // what was not synced is gone from the disk
				data, err := os.ReadFile(f.path)
				require.NoError(t, err)
				off, pos := 0, f.base-1
				for ; off < len(data) && pos <= synced; pos++ {
					_, n, ok := cutEntry(data[off:])
					require.True(t, ok)
					off += n
				}
				clear(data[off:])
				require.NoError(t, os.WriteFile(f.path, data, 0o640))
			}
			require.NoError(t, s.Repair(t.Context()))
			require.NoError(t, s.Err())
			assert.Equal(t, []any{0}, told.take())
			assert.Equal(t, s.Positions().Written, s.Positions().Synced)
			assertBodies(t, s, "T", 0, want)
			assert.Equal(t, int64(len(want)), put(t, s, "T", 0, "next").QueueOffset)
			want = append(want, "next")
			require.NoError(t, s.Check(t.Context()))
			mustKill(t, s)
			s = mustOpenOn(t, cfg, disk.syncer())
			require.NoError(t, s.Err())
			require.Zero(t, s.Cut())
			assertBodies(t, s, "T", 0, want)
			mustClose(t, s)
		})
	}
}

func TestRepairWhenAFileCouldNotBeBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		var told events
		told.of(&cfg)
		s := mustOpen(t, cfg)
		n := 0
		var blocked string
		for s.log.active.size.Load() <= cfg.FileSize {
			put(t, s, "T", 0, "a")
			n++
		}
		require.NoError(t, s.log.dropPrepared())
		blocked = filepath.Join(cfg.Dir, commitLogName, fileName(int64(n+1)))
		writeFile(t, blocked, []byte("a file where a folder is to be"))
		require.ErrorIs(t, tryPut(t, s, "b"), ErrFenced)
		require.ErrorIs(t, tryPut(t, s, "b"), ErrFenced)
		require.NoError(t, s.Repair(t.Context()))
		assert.Equal(t, int64(n), put(t, s, "T", 0, "b").QueueOffset)
		synctest.Wait()
		assert.Equal(t, 1, told.take()[1], "one append had its place and lost it")
		mustKill(t, s)
		s = mustOpen(t, cfg)
		assert.Equal(t, int64(n+1), s.MaxOffset("T", 0))
		mustClose(t, s)
	})
}

func TestRepairOfStoresThatNeedOrAllowNone(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a", "b", "c")
	require.NoError(t, s.Repair(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Repair(ctx); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	mustClose(t, s)
	require.ErrorIs(t, s.Repair(t.Context()), ErrClosed)
	flip(t, lastSegment(t, cfg.Dir), 80)
	s = mustOpen(t, cfg)
	require.ErrorIs(t, s.Repair(t.Context()), ErrReadOnly)
}
