package store

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordingDisk remembers what was synced, in order.
type recordingDisk struct {
	mu    sync.Mutex // guards paths
	paths []string
}

func (d *recordingDisk) add(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paths = append(d.paths, path)
}

func (d *recordingDisk) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := d.paths
	d.paths = nil
	return paths
}

func (d *recordingDisk) syncer() syncer {
	return syncer{
		file: func(f *os.File) error { d.add(f.Name()); return nil },
		dir:  func(path string) error { d.add(path); return nil },
	}
}

func TestH10_NewFilesCountAsSyncedOnlyWithTheirFolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		var disk recordingDisk
		s := mustOpenOn(t, cfg, disk.syncer())
		disk.take()
		put(t, s, "T", 0, "a")
		require.NoError(t, s.Sync(t.Context()))
		first := s.segmentsNow()[0]
		assert.Equal(t, []string{first.dir, s.log.dir, first.path}, disk.take())
		put(t, s, "T", 0, "b")
		require.NoError(t, s.Sync(t.Context()))
		assert.Equal(t, []string{first.path}, disk.take(), "once is enough")

		// The next file is prepared with its folder when this one is half full.
		put(t, s, "T", 0, strings.Repeat("x", MinFileSize))
		synctest.Wait()
		next := filepath.Join(s.log.dir, nextName)
		assert.Equal(t, []string{filepath.Join(next, segmentName), next}, disk.take())
		assert.DirExists(t, next)
		put(t, s, "T", 0, "c")
		assert.NoDirExists(t, next, "renamed")
		second := s.segmentsNow()[1]
		require.NoError(t, s.Sync(t.Context()))
		assert.Equal(t, []string{first.path, s.log.dir, second.path}, disk.take(), "in the order of the log")
		mustClose(t, s)
	})
}

func TestH11_RollingDoesNotWaitForTheFsyncOfTheFullFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		var disk faultyDisk
		s := mustOpenOn(t, cfg, disk.syncer())
		hang := make(chan struct{})
		disk.hang.Store(&hang)
		put(t, s, "T", 0, strings.Repeat("x", MinFileSize))
		time.Sleep(DefaultFlushInterval)
		synctest.Wait() // the flusher hangs in the fsync of the first file
		for range 3 {
			put(t, s, "T", 0, strings.Repeat("x", MinFileSize))
		}
		assert.Len(t, s.segmentsNow(), 4)
		assert.Len(t, bodies(t, s, "T", 0), 4, "nor do readers")
		assert.Zero(t, s.Positions().Synced)
		disk.hang.Store(nil)
		close(hang)
		require.NoError(t, s.Sync(t.Context()))
		assert.Equal(t, int64(4), s.Positions().Synced)
		mustClose(t, s)
	})
}

func TestSyncedIsAPrefixWhenALaterFileCannotBeSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		var base recordingDisk
		broken := ""
		disk := base.syncer()
		plain := disk.file
		disk.file = func(f *os.File) error {
			if f.Name() == broken {
				return os.ErrInvalid
			}
			return plain(f)
		}
		s := mustOpenOn(t, cfg, disk)
		for range 3 {
			put(t, s, "T", 0, strings.Repeat("x", MinFileSize))
		}
		synctest.Wait() // the flusher is idle
		broken = s.segmentsNow()[1].path
		require.ErrorIs(t, s.Sync(t.Context()), ErrFenced)
		assert.Equal(t, int64(1), s.Positions().Synced)
		require.NoError(t, s.Close())
	})
}

func TestHeadersCountTheBytesBeforeTheirFile(t *testing.T) {
	cfg := testConfig(t)
	severalFiles(t, cfg, 4)
	before := int64(0)
	for _, path := range segments(t, cfg.Dir) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		h, _, _, ok := parseHeader(data, baseOf(t, path))
		require.True(t, ok)
		assert.Equal(t, before, h.bytes)
		assert.Equal(t, uint32(currentFormat), h.format)
		assert.NotZero(t, h.created)
		before += int64(len(data))
	}
}
