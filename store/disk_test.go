package store

import (
	"context"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// onDisk is a store in a bubble on a disk that the test can make worse.
func onDisk(t *testing.T, edit func(*Config)) (*Store, *Disk) {
	cfg := testConfig(t)
	cfg.Disk = new(Disk)
	if edit != nil {
		edit(&cfg)
	}
	return mustOpen(t, cfg), cfg.Disk
}

func TestASlowDiskMakesEachWriteAndFsyncLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := onDisk(t, func(c *Config) { c.SyncFlush = true })
		put(t, s, "T", 0, "a") // the file is there, and its folder synced
		disk.Slow(time.Second)
		begin := time.Now()
		put(t, s, "T", 0, "b")
		assert.Equal(t, 2*time.Second, time.Since(begin), "one write and one fsync")
		begin = time.Now()
		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "c"), AppendOptions{NoWait: true})
		require.NoError(t, err)
		assert.Equal(t, time.Second, time.Since(begin))
		begin = time.Now()
		require.NoError(t, s.Sync(t.Context()))
		assert.Equal(t, time.Second, time.Since(begin))

		disk.Slow(4 * time.Second)
		begin = time.Now()
		a, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "d"), AppendOptions{})
		require.NoError(t, err)
		assert.Equal(t, 8*time.Second, time.Since(begin), "the time of the write is none of the wait for fsync")
		assert.Equal(t, int64(3), a.QueueOffset)
		disk.Slow(6 * time.Second)
		_, err = s.Append(t.Context(), batchOf(t, s, "T", 0, "e"), AppendOptions{})
		require.ErrorIs(t, err, ErrFlushTimeout)

		disk.Slow(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		_, err = s.Append(ctx, batchOf(t, s, "T", 0, "f"), AppendOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begin), "who has to go does")
		waiting := start(t.Context(), t, s, "T", "g")
		begin = time.Now()
		time.AfterFunc(time.Minute, func() { disk.Slow(0) })
		require.NoError(t, <-waiting)
		assert.Equal(t, time.Minute, time.Since(begin), "it ends with the fault")
		assertBodies(t, s, "T", 0, []string{"a", "b", "c", "d", "e", "f", "g"})
		mustClose(t, s)
	})
}

func TestAFullDiskFencesUntilThereIsSpace(t *testing.T) {
	for _, throwaway := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var fenced, repaired int
			s, disk := onDisk(t, func(c *Config) {
				c.Throwaway = throwaway
				c.Fenced = func(error) { fenced++ }
				c.Repaired = func(cut int) { repaired += cut }
			})
			put(t, s, "T", 0, "a")
			disk.Full(true)
			err := tryPut(t, s, "refused")
			require.ErrorIs(t, err, ErrDiskFull)
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, errNoSpace)
			var at *fs.PathError
			require.ErrorAs(t, err, &at)
			require.ErrorIs(t, tryPut(t, s, "refused"), ErrFenced)
			assertBodies(t, s, "T", 0, []string{"a"})
			pass(3 * DefaultCleanInterval)
			require.ErrorIs(t, s.Err(), ErrFenced, "nothing has changed")
			disk.Full(false)
			pass(DefaultCleanInterval)
			require.NoError(t, s.Err())
			assert.Equal(t, []int{1, 1}, []int{fenced, repaired})
			put(t, s, "T", 0, "b")
			assertBodies(t, s, "T", 0, []string{"a", "b"})
			mustClose(t, s)
		})
	}
}

func TestTheGuardSeesAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := guarded(t)
		cfg.Disk = new(Disk)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "a")
		cfg.Disk.Full(true)
		pass(DefaultCleanInterval)
		err := tryPut(t, s, "refused")
		require.ErrorIs(t, err, ErrDiskFull)
		require.NotErrorIs(t, err, ErrFenced, "it was seen before a write could fail")
		require.ErrorIs(t, s.Close(), errNoSpace, "there is no space for a checkpoint")

		s, err = open(cfg, durable())
		require.NoError(t, err)
		require.ErrorIs(t, s.Err(), ErrDiskFull)
		assertBodies(t, s, "T", 0, []string{"a"})
		cfg.Disk.Full(false)
		pass(DefaultCleanInterval)
		put(t, s, "T", 0, "b")
		mustClose(t, s)
	})
}

func TestAFullDiskHitsEverythingThatNeedsSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := onDisk(t, nil)
		put(t, s, "T", 0, "a")
		disk.Full(true)
		assert.ErrorIs(t, s.writeCheckpoint(false), errNoSpace)
		assert.ErrorIs(t, s.log.prepareNext(), errNoSpace)
		require.NoError(t, s.Sync(t.Context()), "what is written has its space")
		require.NoError(t, s.log.disk.makeDir(s.log.dir), "it is there")
		disk.Full(false)
		mustClose(t, s)
	})
}

func TestNothingIsWrittenOrSyncedWhileADiskIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := onDisk(t, nil)
		put(t, s, "T", 0, "a")
		disk.Hold()
		waiting := start(t.Context(), t, s, "T", "b")
		pass(time.Minute)
		p := s.Positions()
		assert.Equal(t, []int64{1, 0}, []int64{p.Written, p.Synced})
		assert.Empty(t, waiting)
		assertBodies(t, s, "T", 0, []string{"a"})
		disk.Release()
		require.NoError(t, <-waiting)
		pass(DefaultFlushInterval)
		assert.Equal(t, int64(2), s.Positions().Synced)
		mustClose(t, s)
	})
}

func TestAStoreOnAHeldDiskEndsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*Store) error
		want []string
	}{
		"Close":    {(*Store).Close, []string{"a", "b", "c"}},
		"Kill":     {(*Store).Kill, []string{"a", "b", "c"}},
		"PowerOff": {(*Store).PowerOff, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, disk := onDisk(t, nil)
				put(t, s, "T", 0, "a")
				require.NoError(t, s.Sync(t.Context()))
				put(t, s, "T", 0, "b")
				disk.Slow(time.Hour)
				disk.Hold()
				waiting := start(t.Context(), t, s, "T", "c")
				synctest.Wait()
				pass(time.Minute)
				begin := time.Now()
				disk.Abandon()
				require.NoError(t, c.end(s))
				assert.Zero(t, time.Since(begin))
				require.NoError(t, <-waiting)
				disk.Release()
				disk.Slow(0)
				s = mustOpen(t, s.cfg)
				assertBodies(t, s, "T", 0, c.want)
				mustClose(t, s)
			})
		})
	}
}
