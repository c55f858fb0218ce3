package store

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestST09_AFullDiskThatIsEmptiedAgain(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	for _, sync := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ballast := filepath.Join(disk, "ballast")
			require.NoError(t, os.WriteFile(ballast, make([]byte, 512<<10), 0o600))
			cfg := testConfig(t)
			cfg.Dir, cfg.FileSize, cfg.SyncFlush, cfg.MinFreeBytes = filepath.Join(disk, "broker"), 64<<10, sync, -1
			var told events
			told.of(&cfg)
			s := mustOpen(t, cfg)
			var want []string
			fill := func() (err error) {
				for err == nil && len(want) < 5000 {
					body := strings.Repeat("x", len(want)%700)
					if err = tryPut(t, s, body); err == nil {
						want = append(want, body)
					}
				}
				return err
			}
			err := fill()
			require.ErrorIs(t, err, ErrFenced)
			require.ErrorIs(t, err, ErrDiskFull)
			require.ErrorIs(t, err, syscall.ENOSPC)
			pass(3 * DefaultCleanInterval)
			require.ErrorIs(t, s.Err(), ErrDiskFull, "it is still full")
			assert.Len(t, told.take(), 1)
			assertBodies(t, s, "T", 0, want)
			require.NoError(t, s.Check(t.Context()))

			require.NoError(t, os.Remove(ballast))
			pass(DefaultCleanInterval)
			require.NoError(t, s.Err())
			assert.Len(t, told.take(), 1)
			n := len(want)
			require.ErrorIs(t, fill(), ErrDiskFull)
			assert.Greater(t, len(want), n+100)
			assertBodies(t, s, "T", 0, want)
			require.NoError(t, s.Check(t.Context()))
			require.NoError(t, s.Kill())
			cfg.RetentionBytes = 300 << 10
			s = mustOpen(t, cfg) // full as it is
			require.NoError(t, s.Err())
			assertBodies(t, s, "T", 0, want)
			require.NoError(t, s.Check(t.Context()))
			mustKill(t, s) // a checkpoint would find no space
			require.NoError(t, os.RemoveAll(cfg.Dir))
		})
	}
}

// The guard refuses appends before one fails, and deletes old files to make
// room.
func TestTheGuardKeepsASmallDiskFromGettingFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 16<<20)
	if disk == "" {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Dir, cfg.FileSize, cfg.MinFreeBytes = filepath.Join(disk, "broker"), 64<<10, 2<<20
		s := mustOpen(t, cfg)
		body := strings.Repeat("x", 10_000)
		for range 4000 { // 40 MB
			synctest.Wait()
			if err := tryPut(t, s, body); err != nil {
				require.ErrorIs(t, err, ErrDiskFull)
				require.NotErrorIs(t, err, ErrFenced)
				pass(DefaultCleanInterval)
			}
		}
		assert.Greater(t, s.Positions().Min, int64(2000))
		require.NoError(t, s.Check(t.Context()))
		mustClose(t, s)
	})
}
