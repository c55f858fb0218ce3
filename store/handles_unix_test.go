//go:build linux || darwin

package store

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limitHandles leaves this process n more file handles than it has.
func limitHandles(t *testing.T, n int) (restore func()) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	was := limit.Cur
	// The limit is on the number of a handle: take those that are free below
	// the highest one in use.
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		require.NoError(t, err)
		taken = append(taken, f)
		if list, err := os.ReadDir("/dev/fd"); err == nil && int(f.Fd()) >= len(list)-2 {
			break
		}
	}
	limit.Cur = uint64(taken[len(taken)-1].Fd()) + 1 + uint64(n)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	return func() {
		limit.Cur = was
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
		for _, f := range taken {
			require.NoError(t, f.Close())
		}
	}
}

// handlesInUse counts the open handles of this process.
func handlesInUse(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(list)
}

func TestH8b_NoHandleLeftAtARollFencesAndLosesNothing(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	mustClose(t, mustOpen(t, testConfig(t))) // the runtime keeps handles of its own from now on
	for free := range 5 {
		for _, prepared := range []bool{true, false} {
			what := fmt.Sprintf("%d handles free, prepared %t", free, prepared)
			cfg := testConfig(t)
			cfg.FlushInterval = time.Hour // a sync needs handles, and gives some back
			before := handlesInUse(t)
			s := mustOpen(t, cfg)
			var want []string
			if prepared {
				require.NoError(t, s.log.prepareNext())
			}
			restore := limitHandles(t, free)
			var failure error
			for failure == nil && len(want) < 200 {
				body := fmt.Sprintf("m%d", len(want))
				if _, failure = s.Append(t.Context(), batchOf(t, s, "T", 0, body), AppendOptions{}); failure == nil {
					want = append(want, body)
				}
			}
			require.ErrorIs(t, failure, ErrFenced, what)
			require.ErrorIs(t, failure, syscall.EMFILE, what)
			require.ErrorIs(t, s.Err(), syscall.EMFILE, what)
			assert.Equal(t, int64(len(want)), s.Positions().Written, what)
			restore()
			assertBodies(t, s, "T", 0, want)
			require.NoError(t, s.Check(t.Context()), what)
			require.NoError(t, s.Close(), what)
			assert.Equal(t, before, handlesInUse(t), what)

			s = mustOpen(t, cfg)
			require.NoError(t, s.Err(), what)
			assert.Zero(t, s.Cut(), what)
			assertBodies(t, s, "T", 0, want)
			for range 50 { // over the next roll
				want = append(want, "more")
				put(t, s, "T", 0, "more")
			}
			assertBodies(t, s, "T", 0, want)
			mustClose(t, s)
		}
	}
}

func TestOpenWithoutHandlesFailsAndLeaksNone(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	cfg := testConfig(t)
	var want []string
	s := mustOpen(t, cfg)
	for i := range 300 {
		want = append(want, fmt.Sprintf("m%d", i))
		put(t, s, "T", 0, want[i])
	}
	require.NoError(t, s.Kill())
	mustClose(t, mustOpen(t, testConfig(t)))
	opened := false
	for free := 0; !opened && free < 20; free++ {
		before := handlesInUse(t)
		restore := limitHandles(t, free)
		s, err := Open(cfg)
		restore()
		if opened = err == nil; opened {
			require.NoError(t, s.Err())
			assertBodies(t, s, "T", 0, want)
			mustClose(t, s)
			break
		}
		require.ErrorIs(t, err, syscall.EMFILE, "%d handles", free)
		require.ErrorContains(t, err, cfg.Dir, "%d handles", free)
		assert.Equal(t, before, handlesInUse(t), "%d handles: %v", free, err)
	}
	require.True(t, opened)
}

func TestReadsWithoutHandlesFailForTheMoment(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	cfg := testConfig(t)
	want := manyUnits(t, cfg) // blocks on disk, closed log files
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "in a new file")
	want[0] = append(want[0], "in a new file")
	restore := limitHandles(t, 0)
	_, err := s.Get(GetRequest{Topic: "T", QueueID: 0, Offset: 0, MaxMessages: 32})
	require.ErrorIs(t, err, syscall.EMFILE)
	require.NotErrorIs(t, err, ErrDamaged)
	require.ErrorIs(t, s.Check(t.Context()), syscall.EMFILE)
	a := put(t, s, "T", 0, "appends need none")
	restore()
	want[0] = append(want[0], "appends need none")
	assert.Equal(t, int64(len(want[0])-1), a.QueueOffset)
	assertQueues(t, s, want)
	assert.False(t, s.stale.Load(), "nothing is damaged")
	mustClose(t, s)
}
