package store

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// behindStore is a store in a bubble whose fsync hangs until release, with as much
// unsynced as there may be.
func behindStore(t *testing.T, disk *faultyDisk) (s *Store, full string, release func()) {
	s = mustOpenOn(t, testConfig(t), disk.syncer())
	hang := make(chan struct{})
	disk.hang.Store(&hang)
	full = strings.Repeat("x", MinFileSize)
	for s.Behind() == nil {
		require.LessOrEqual(t, len(s.segmentsNow()), maxBehindFiles+1, "no end")
		put(t, s, "T", 0, full)
	}
	return s, full, func() {
		disk.hang.Store(nil)
		close(hang)
	}
}

func TestAHangingFsyncBoundsWhatIsOpenAndInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, full, release := behindStore(t, new(faultyDisk))
		files := len(s.segmentsNow())
		assert.Equal(t, maxBehindFiles+1, files)

		begin := time.Now()
		for range 3 {
			_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, full), AppendOptions{})
			require.ErrorIs(t, err, ErrBehind)
			assert.ErrorContains(t, err, "files wait for fsync")
		}
		assert.Equal(t, 3*DefaultFlushTimeout, time.Since(begin), "each had that much patience")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Append(ctx, batchOf(t, s, "T", 0, full), AppendOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Len(t, s.segmentsNow(), files)
		assert.NoError(t, s.Err(), "it is slow, not broken")
		assert.Len(t, bodies(t, s, "T", 0), files, "reads go on, nothing refused was stored")

		waiting := start(t.Context(), t, s, "T", "a")
		release()
		require.NoError(t, <-waiting, "the brake is taken off as soon as there is room")
		synctest.Wait() // what else waits is synced
		assert.NoError(t, s.Behind())
		require.NoError(t, s.Sync(t.Context()))
		synctest.Wait() // files are closed after what they wait for is told
		open := 0
		for _, f := range s.segmentsNow() {
			if f.log.Load() != nil {
				open++
			}
		}
		assert.Equal(t, 1, open, "only the last file")
		require.NoError(t, s.Check(t.Context()))
		mustClose(t, s)
	})
}

func TestAppendsThatWaitForTheDiskEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, release := behindStore(t, new(faultyDisk))
		waiting := start(t.Context(), t, s, "T", "a")
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		release()
		require.NoError(t, <-closed)
		err := <-waiting
		if err != nil { // or it was let in while closing had not begun
			assert.ErrorIs(t, err, ErrClosed)
		}
	})
}

func TestAppendsThatWaitForTheDiskLearnOfItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		s, _, release := behindStore(t, &disk)
		waiting := start(t.Context(), t, s, "T", "a")
		broken := errors.New("broken disk")
		disk.fail.Store(&broken)
		release()
		require.ErrorIs(t, <-waiting, ErrFenced)
		synctest.Wait() // who waited is told before the brake is off
		assert.NoError(t, s.Behind())
		require.NoError(t, s.Kill())
	})
}
