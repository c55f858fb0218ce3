package store

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// faultyDisk is a disk whose fsync can be made to fail or to hang.
type faultyDisk struct {
	syncs atomic.Int64
	fail  atomic.Pointer[error]
	hang  atomic.Pointer[chan struct{}]
}

func (d *faultyDisk) syncer() syncer {
	return syncer{
		file: func(f *os.File) error {
			d.syncs.Add(1)
			if c := d.hang.Load(); c != nil {
				<-*c
			}
			if err := d.fail.Load(); err != nil {
				return *err
			}
			return nil
		},
		dir: func(string) error { return nil },
	}
}

func TestAsyncFlushHappens500msAfterTheFirstUnsyncedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		s := mustOpenOn(t, testConfig(t), disk.syncer())
		before := disk.syncs.Load()
		time.Sleep(10 * time.Second)
		assert.Equal(t, before, disk.syncs.Load(), "nothing to do, nothing done")

		put(t, s, "T", 0, "a")
		time.Sleep(300 * time.Millisecond)
		put(t, s, "T", 0, "b")
		time.Sleep(200*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, int64(0), s.Positions().Synced)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, int64(2), s.Positions().Synced)
		assert.Equal(t, before+1, disk.syncs.Load())

		put(t, s, "T", 0, "c")
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, int64(3), s.Positions().Synced)
		mustClose(t, s)
	})
}

func TestCheckpointIsWritten5sAfterTheFirstSyncedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "a")
		time.Sleep(5500*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		assert.NoFileExists(t, checkpointPath(cfg))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		cp, err := loadCheckpoint(cfg.Dir)
		require.NoError(t, err)
		require.NotNil(t, cp)
		assert.Equal(t, int64(1), cp.position)
		assert.False(t, cp.clean)
		mustClose(t, s)
	})
}

func TestSyncFlushAcknowledgesAfterFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		cfg := testConfig(t)
		cfg.SyncFlush = true
		s := mustOpenOn(t, cfg, disk.syncer())
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		waiting := start(t.Context(), t, s, "T", "a")
		select {
		case err := <-waiting:
			t.Fatal("acknowledged before the fsync returned", err)
		default:
		}
		// It can be read before, and whoever does not want to wait does not.
		assertBodies(t, s, "T", 0, []string{"a"})
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "b"), AppendOptions{NoWait: true})
		require.NoError(t, err)
		disk.hang.Store(nil)
		close(hang)
		require.NoError(t, <-waiting)
		assert.GreaterOrEqual(t, s.Positions().Synced, int64(1))
		mustClose(t, s)
	})
}

func TestFlushTimeoutAfter5sReturnsAValidAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		cfg := testConfig(t)
		cfg.SyncFlush = true
		s := mustOpenOn(t, cfg, disk.syncer())
		put(t, s, "T", 0, "a")
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		begin := time.Now()
		a, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "b"), AppendOptions{})
		require.ErrorIs(t, err, ErrFlushTimeout)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		assert.Equal(t, int64(1), a.QueueOffset)
		assert.Equal(t, int64(2), a.Position)
		disk.hang.Store(nil)
		close(hang)
		require.NoError(t, s.Sync(t.Context()))
		assertBodies(t, s, "T", 0, []string{"a", "b"})
		mustClose(t, s)
	})
}

func TestManySyncedAppendersShareFsyncs(t *testing.T) {
	t.Parallel()
	var disk faultyDisk
	cfg := testConfig(t)
	cfg.Dir = t.TempDir() // on a disk, where an fsync takes its time
	cfg.SyncFlush = true
	real := disk.syncer()
	slow := syncer{file: func(f *os.File) error { return errors.Join(real.file(f), f.Sync()) }, dir: real.dir}
	s := mustOpenOn(t, cfg, slow)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 10 {
				put(t, s, "T", 0, "x")
			}
		})
	}
	wg.Wait()
	assert.Less(t, disk.syncs.Load(), int64(160), "fsyncs for 320 appends")
}

func TestH9_FailedFsyncFencesAndFailsAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		cfg := testConfig(t)
		cfg.SyncFlush = true
		reported := make(chan error, 2)
		cfg.Fenced = func(err error) { reported <- err }
		s := mustOpenOn(t, cfg, disk.syncer())
		put(t, s, "T", 0, "a")
		cause := errors.New("no medium found")
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		one := start(t.Context(), t, s, "T", "b")
		two := start(t.Context(), t, s, "T", "c")
		disk.fail.Store(&cause)
		disk.hang.Store(nil)
		close(hang)
		for _, c := range []<-chan error{one, two} {
			err := <-c
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, cause)
		}
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "late"), AppendOptions{})
		require.ErrorIs(t, err, ErrFenced)
		require.ErrorIs(t, s.Err(), ErrFenced)
		assert.Equal(t, s.Err(), <-reported)

		// The disk works again, but what it dropped does not come back: no
		// later fsync may acknowledge anything.
		disk.fail.Store(nil)
		require.ErrorIs(t, s.Sync(t.Context()), ErrFenced)
		assert.Equal(t, int64(1), s.Positions().Synced)
		assert.Equal(t, "a", bodies(t, s, "T", 0)[0], "reads go on")
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, s.Close())
		assert.Empty(t, reported, "reported once")

		s = mustOpenOn(t, cfg, disk.syncer())
		require.NoError(t, s.Err())
		all := bodies(t, s, "T", 0)
		assert.Equal(t, "a", all[0])
		assert.NotContains(t, all, "late")
		put(t, s, "T", 0, "d")
		assert.Equal(t, s.Positions().Written, s.Positions().Synced)
		mustClose(t, s)
	})
}

func TestAsyncAppendsFailAfterAFailedBackgroundSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		s := mustOpenOn(t, testConfig(t), disk.syncer())
		put(t, s, "T", 0, "a")
		cause := errors.New("no medium found")
		disk.fail.Store(&cause)
		time.Sleep(DefaultFlushInterval)
		synctest.Wait()
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "b"), AppendOptions{})
		require.ErrorIs(t, err, ErrFenced)
		disk.fail.Store(nil)
		require.NoError(t, s.Close())
		s = mustOpen(t, s.cfg)
		assertBodies(t, s, "T", 0, []string{"a"})
		mustClose(t, s)
	})
}

func TestKillAnswersThoseWhoWaitForASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk faultyDisk
		cfg := testConfig(t)
		cfg.SyncFlush = true
		s := mustOpenOn(t, cfg, disk.syncer())
		put(t, s, "T", 0, "a")
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		one := start(t.Context(), t, s, "T", "b")
		two := start(t.Context(), t, s, "T", "c")
		killed := make(chan error, 1)
		go func() { killed <- s.Kill() }()
		synctest.Wait()
		disk.hang.Store(nil)
		close(hang)
		require.NoError(t, <-killed)
		require.NoError(t, <-one, "its fsync was under way")
		if err := <-two; err != nil {
			require.ErrorIs(t, err, ErrClosed)
		}
		require.ErrorIs(t, s.Sync(t.Context()), ErrClosed)
	})
}

func TestH11_SyncedFilesAreClosedAndReadFromDisk(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", 200)
	for _, body := range want {
		put(t, s, "T", 0, body)
	}
	files := s.segmentsNow()
	require.GreaterOrEqual(t, len(files), 4)
	require.NotNil(t, files[0].log.Load(), "not synced yet")
	assertBodies(t, s, "T", 0, want)
	require.NoError(t, s.Sync(t.Context()))
	for i, f := range files {
		assert.Equal(t, i == len(files)-1, f.log.Load() != nil, "file %d", i)
	}
	assertBodies(t, s, "T", 0, want)
}
