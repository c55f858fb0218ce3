package store

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func throwawayConfig(t testing.TB) Config {
	cfg := testConfig(t)
	cfg.Throwaway = true
	cfg.Dir = filepath.Join(cfg.Dir, "throwaway")
	return cfg
}

func TestThrowawayStoreNeverSyncs(t *testing.T) {
	t.Parallel()
	syncsOf := func(cfg Config) (files, dirs int64) {
		cfg.SyncFlush = true
		var disk faultyDisk
		sync := disk.syncer()
		var n atomic.Int64
		sync.dir = func(string) error { n.Add(1); return nil }
		for range 2 {
			s := mustOpenOn(t, cfg, sync)
			for range 50 {
				put(t, s, "T", 0, numbered("m", 100)...)
			}
			require.NoError(t, s.Sync(t.Context()))
			assert.Equal(t, s.Positions().Written, s.Positions().Synced)
			require.NoError(t, s.Close())
		}
		return disk.syncs.Load(), n.Load()
	}
	files, dirs := syncsOf(throwawayConfig(t))
	assert.Zero(t, files)
	assert.Zero(t, dirs)
	files, dirs = syncsOf(testConfig(t))
	assert.NotZero(t, files, "any other store is seen to sync")
	assert.NotZero(t, dirs)
}

func TestThrowawayStoreSurvivesCloseAndKill(t *testing.T) {
	t.Parallel()
	cfg := throwawayConfig(t)
	var want []string
	for _, end := range []func(*Store) error{(*Store).Close, (*Store).Kill, (*Store).Kill, (*Store).Close} {
		s := mustOpen(t, cfg)
		assertBodies(t, s, "T", 0, want)
		for range 5 {
			texts := numbered("m", 100)
			put(t, s, "T", 0, texts...)
			want = append(want, texts...)
		}
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, end(s))
	}
	assertBodies(t, mustOpen(t, cfg), "T", 0, want)
}

func TestThrowawayStoreClaimsNothingToBeSynced(t *testing.T) {
	cfg := throwawayConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m0", "m1", "m2")
	mustKill(t, s)
	path := lastSegment(t, cfg.Dir)
	from, _ := lastEntry(t, path)
	require.NoError(t, os.Truncate(path, int64(from)+5))
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, 1, s.Cut())
	assertBodies(t, s, "T", 0, []string{"m0", "m1"})
}

func TestDiscardRemovesTheFolderOfAThrowawayStoreOnly(t *testing.T) {
	cfg := throwawayConfig(t)
	s := mustOpen(t, cfg)
	for range 10 {
		put(t, s, "T", 0, numbered("m", 100)...)
	}
	require.NoError(t, s.Discard())
	assert.NoDirExists(t, cfg.Dir)
	require.NoError(t, s.Discard())

	kept := mustOpen(t, testConfig(t))
	put(t, kept, "T", 0, "m")
	err := kept.Discard()
	require.Error(t, err)
	assert.Contains(t, err.Error(), kept.cfg.Dir)
	assertBodies(t, kept, "T", 0, []string{"m"})
}
