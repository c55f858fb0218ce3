//go:build linux || darwin

package store

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A write fails for a limit on files, and the limit goes: the store goes on by
// itself at the next look, also when writers, readers and checks are under way.
func TestST09_AppendsGoOnWhenThereIsSpaceAgain(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	for _, mode := range []string{"async", "sync", "throwaway"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := testConfig(t)
				cfg.FileSize, cfg.SyncFlush, cfg.Throwaway = 1<<20, mode == "sync", mode == "throwaway"
				var told events
				told.of(&cfg)
				s := mustOpen(t, cfg)
				var mu sync.Mutex
				acked := map[string]bool{}
				failed := map[string]bool{}
				send := func(body string) {
					_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, body, body+"'"), AppendOptions{})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						acked[body], acked[body+"'"] = true, true
						return
					}
					assert.ErrorIs(t, err, ErrFenced)
					failed[body], failed[body+"'"] = true, true
				}
				limitFileSize(t, 40_000)
				for round := range 3 {
					var writers sync.WaitGroup
					for w := range 4 {
						writers.Go(func() {
							for i := range 100 {
								send(fmt.Sprintf("%d-%d-%d-%s", round, w, i, strings.Repeat("x", 150)))
							}
						})
					}
					writers.Wait()
					synctest.Wait()
					require.ErrorIs(t, s.Err(), syscall.EFBIG)
					assert.Len(t, told.take(), 1)
					pass(3 * DefaultCleanInterval)
					require.ErrorIs(t, s.Err(), ErrFenced, "the limit is still there")
					assert.Empty(t, told.take())
					require.NoError(t, s.Check(t.Context()))
					limitFileSize(t, uint64(300_000*(round+1)))
					if round == 1 { // beside readers, for whom no time passes
						var stop atomic.Bool
						var readers sync.WaitGroup
						for range 2 {
							readers.Go(func() {
								for !stop.Load() {
									bodies(t, s, "T", 0)
								}
							})
						}
						require.NoError(t, s.Repair(t.Context()))
						stop.Store(true)
						readers.Wait()
					}
					pass(DefaultCleanInterval)
					require.NoError(t, s.Err())
					assert.Len(t, told.take(), 1)
					limitFileSize(t, uint64(40_000+s.log.active.size.Load()))
				}
				limitFileSize(t, 1<<40)
				send("last")
				verify := func() {
					t.Helper()
					got := map[string]int{}
					for _, body := range bodies(t, s, "T", 0) {
						got[body]++
						assert.True(t, acked[body] || failed[body])
					}
					for body := range acked {
						assert.Equal(t, 1, got[body], body)
					}
				}
				verify()
				mustKill(t, s)
				s = mustOpen(t, cfg)
				require.NoError(t, s.Err())
				verify()
				mustClose(t, s)
			})
		})
	}
}

func TestRepairWhenTheQueueFilesCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t) // small log files, so that only the extent is too large
		s := mustOpen(t, cfg)
		texts := numbered("m", 17)
		var want []string
		limitFileSize(t, 20_000)
		for s.Err() == nil {
			put(t, s, "T", 0, texts...) // the append that meets the error is stored
			want = append(want, texts...)
		}
		pass(2 * DefaultCleanInterval)
		require.ErrorIs(t, s.Err(), ErrFenced)
		limitFileSize(t, 1<<40)
		pass(DefaultCleanInterval)
		require.NoError(t, s.Err())
		put(t, s, "T", 0, texts...)
		want = append(want, texts...)
		assertBodies(t, s, "T", 0, want)
		mustClose(t, s)
		s = mustOpen(t, cfg)
		assertBodies(t, s, "T", 0, want)
		mustClose(t, s)
	})
}
