package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPowerOffTakesWhatWasNotSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "a", "b")
		require.NoError(t, s.Sync(t.Context()))
		put(t, s, "T", 0, "c")
		time.Sleep(DefaultFlushInterval) // the flusher syncs c
		synctest.Wait()
		put(t, s, "T", 0, "d")
		put(t, s, "U", 1, "e")
		require.NoError(t, s.PowerOff())
		require.ErrorIs(t, s.Sync(t.Context()), ErrClosed)
		require.NoError(t, s.PowerOff(), "the second has nothing to do")

		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assert.Zero(t, s.Cut(), "nothing tells that there was more")
		assertBodies(t, s, "T", 0, []string{"a", "b", "c"})
		assert.Zero(t, s.MaxOffset("U", 1))
		assert.Equal(t, int64(3), put(t, s, "T", 0, "x").QueueOffset)
		require.NoError(t, s.PowerOff())
		s = mustOpen(t, cfg)
		assertBodies(t, s, "T", 0, []string{"a", "b", "c"})
	})
}

func TestPowerOffTakesUnsyncedFilesWithTheirFolders(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FlushInterval = time.Hour
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a")
	require.NoError(t, s.Sync(t.Context()))
	for s.log.fileCount() < 4 {
		put(t, s, "T", 0, numbered("lost", 5)...)
	}
	require.NoError(t, s.PowerOff())
	assert.Len(t, segments(t, cfg.Dir), 1)
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assertBodies(t, s, "T", 0, []string{"a"})
}

func TestPowerOffOfANewStoreLeavesAnEmptyOne(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FlushInterval = time.Hour
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a")
	require.NoError(t, s.PowerOff())
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, Positions{Min: 1}, s.Positions())
}

func TestAThrowawayStoreHasNoPowerToLose(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, throwawayConfig(t))
	require.ErrorContains(t, s.PowerOff(), s.cfg.Dir)
	put(t, s, "T", 0, "still open")
}

// What a failed fsync has left undone is gone with the power, and only that.
func TestPowerOffAfterAFailedFsync(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.SyncFlush = true
	var disk faultyDisk
	cause := error(assert.AnError)
	s := mustOpenOn(t, cfg, disk.syncer())
	put(t, s, "T", 0, "a")
	disk.fail.Store(&cause)
	_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "b"), AppendOptions{})
	require.ErrorIs(t, err, ErrFenced)
	disk.fail.Store(nil)
	require.ErrorIs(t, s.Sync(t.Context()), ErrFenced, "no second fsync makes good for the first")
	require.NoError(t, s.PowerOff())
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assertBodies(t, s, "T", 0, []string{"a"})
	put(t, s, "T", 0, "c")
	require.NoError(t, s.PowerOff())
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, []string{"a", "c"})
}
