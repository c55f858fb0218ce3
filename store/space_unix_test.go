//go:build linux || darwin

package store

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every write of the workload fails at some length of its file: what fits is
// written, the rest is not. What was acknowledged before is there at once, and
// when the store is opened anew.
func TestAShortWriteAtAnyLengthLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	lengths := []uint64{1, 20, 70, 71, 100, 150, 300, 700, 1000, 1500, 2500, 4000, 4096, 4097, 4200, 5000, 6000, 8000, 8192, 9000, 12288, 20000}
	fenced := 0
	for _, sync := range []bool{false, true} {
		for _, length := range lengths {
			cfg := testConfig(t)
			cfg.SyncFlush = sync
			what := fmt.Sprintf("SyncFlush=%t, %d bytes", sync, length)
			mustClose(t, mustOpen(t, cfg))
			s := mustOpen(t, cfg)
			var order []entry
			sizes := []int{10, 100, 1000, 300, 5000, 20, 0}
			limitFileSize(t, length)
			var failure error
			for i := 0; i < 300 && failure == nil; i++ {
				b := s.NewBatch()
				more := order
				for range 1 + i%7 {
					more = append(more, entry{queue: QueueID{"T", i % 3}, body: fmt.Sprintf("%d %0*d", len(more), sizes[i%len(sizes)], 0)})
					require.NoError(t, b.Add(more[len(more)-1].record(len(more)-1)))
				}
				if _, failure = s.Append(t.Context(), b, AppendOptions{}); failure == nil {
					order = more
				}
			}
			limitFileSize(t, 1<<40)
			if failure != nil {
				fenced++
				require.ErrorIs(t, failure, ErrFenced, what)
				require.ErrorIs(t, failure, syscall.EFBIG, what)
				compareEntries(t, s, order, what)
			}
			copied := copyDir(t, cfg.Dir)
			_ = s.Close() // says so if it could not write a checkpoint
			p := crashPoint{what: what, promised: len(order), order: order}
			p.verify(t, cfg, cfg.Dir, "closed")
			p.verify(t, cfg, copied, "crashed")
		}
	}
	assert.Greater(t, fenced, len(lengths))
}

// fillUp makes every write of the store to its log fail for lack of space.
func fillUp(t *testing.T, s *Store) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no /dev/full")
	}
	f := walFile(s.log.active.log.Load())
	require.NoError(t, (*f).Close())
	*f = full
}

func TestNoSpaceLeftFencesAndSaysSo(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a", "b")
	fillUp(t, s)
	_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "c"), AppendOptions{})
	require.ErrorIs(t, err, ErrFenced)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, cfg.Dir)
	require.ErrorIs(t, s.Err(), syscall.ENOSPC)
	assertBodies(t, s, "T", 0, []string{"a", "b"})
	require.NoError(t, s.Check(t.Context()))
	_ = s.Close() // the stand-in cannot be synced
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, []string{"a", "b"})
	put(t, s, "T", 0, "c")
}
