package store

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func syncedPath(cfg Config) string { return filepath.Join(cfg.Dir, commitLogName, syncedName) }

// marked is what commitlog/synced of a folder says.
func marked(t *testing.T, cfg Config) int64 {
	t.Helper()
	var m syncedMark
	require.NoError(t, m.load(filepath.Join(cfg.Dir, commitLogName), durable()))
	return m.position.Load()
}

func TestSyncedMarkSaysWhatItWasRaisedToLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := func() *syncedMark {
		m := new(syncedMark)
		require.NoError(t, m.load(dir, durable()))
		return m
	}
	assert.Zero(t, load().position.Load())
	for p := int64(1); p < 9; p++ {
		m := load()
		require.NoError(t, m.raise(p))
		require.NoError(t, m.raise(p-1))
		assert.Equal(t, p, m.position.Load())
		assert.Equal(t, p, load().position.Load())
	}
	info, err := os.Stat(filepath.Join(dir, syncedName))
	require.NoError(t, err)
	assert.Equal(t, int64(syncedSize), info.Size())
}

// Whatever becomes of a write, the mark says what it said before or after.
func TestTornOrFlippedSlotOfTheSyncedMarkLeavesTheOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var m syncedMark
	require.NoError(t, m.load(dir, durable()))
	require.NoError(t, m.raise(100))
	before, err := os.ReadFile(m.path)
	require.NoError(t, err)
	at := m.next()
	require.NoError(t, m.raise(200))
	after, err := os.ReadFile(m.path)
	require.NoError(t, err)
	loaded := func(data []byte) int64 {
		require.NoError(t, os.WriteFile(m.path, data, 0o640))
		var got syncedMark
		require.NoError(t, got.load(dir, durable()))
		return got.position.Load()
	}
	for n := range int64(syncedSlot) {
		torn := append([]byte(nil), before...)
		copy(torn[at:at+n], after[at:])
		if string(torn) != string(after) {
			assert.Equal(t, int64(100), loaded(torn), "%d bytes written", n)
		}
		for bit := range 8 {
			flipped := append([]byte(nil), after...)
			flipped[at+n] ^= 1 << bit
			assert.Equal(t, int64(100), loaded(flipped), "byte %d bit %d", n, bit)
		}
	}
	assert.Equal(t, int64(200), loaded(after))
	assert.Zero(t, loaded(after[:syncedSize-1]))
	assert.Zero(t, loaded(nil))
}

func TestDerivedFilesMayGoWithoutTheProofOfWhatWasSynced(t *testing.T) {
	t.Parallel()
	for _, sync := range []bool{false, true} {
		cfg := testConfig(t)
		cfg.SyncFlush = sync
		s := mustOpen(t, cfg)
		want := numbered("acknowledged", 300)
		for _, text := range want {
			put(t, s, "T", 0, text)
		}
		mustClose(t, s)
		assert.Equal(t, int64(300), marked(t, cfg))
		flip(t, extentFiles(t, cfg.Dir)[0], blockSize+blockHeader+30)
		in, err := Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, []FindingKind{FindingQueues}, kinds(in))
		assert.Equal(t, rebuildRemedy, in.Findings[0].Remedy)
		require.NoError(t, os.Remove(checkpointPath(cfg)))
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, queuesName)))
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, indexName)))

		path := lastSegment(t, cfg.Dir)
		from, _ := lastEntry(t, path)
		flip(t, path, from+40)
		before := readAll(t, cfg.Dir)
		in, err = Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, OpensReadOnly, in.Opens)
		s = mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly)
		assert.ErrorContains(t, s.Err(), "position 300")
		assert.Zero(t, s.Cut())
		assertBodies(t, s, "T", 0, want[:299])
		require.NoError(t, s.Close())
		assert.Equal(t, before, readAll(t, cfg.Dir))
	}
}

// A folder of before commitlog/synced opens by the weaker proofs, and Inspect does
// not have them thrown away.
func TestFolderWithoutASyncedMark(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := manyUnits(t, cfg)
	require.NoError(t, os.Remove(syncedPath(cfg)))
	flip(t, extentFiles(t, cfg.Dir)[0], blockSize+blockHeader+30)
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, []FindingKind{FindingQueues}, kinds(in))
	assert.Equal(t, proofRemedy, in.Findings[0].Remedy)
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	assert.Equal(t, in.Synced, marked(t, cfg), "an open and a close suffice")
	in, err = Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, rebuildRemedy, in.Findings[0].Remedy)
	require.NoError(t, os.Remove(checkpointPath(cfg)))
	assertQueues(t, mustOpen(t, cfg), want)
}

func TestSalvagePutsItsProofIntoTheSyncedMark(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	all := someQueues(t, cfg, 3, closeStore)
	require.NoError(t, os.Remove(syncedPath(cfg)))
	flip(t, segments(t, cfg.Dir)[1], 20)
	mustSalvage(t, cfg.Dir)
	assert.Equal(t, int64(len(all)), marked(t, cfg))
	require.NoError(t, os.Remove(checkpointPath(cfg)))
	path := lastSegment(t, cfg.Dir)
	from, _ := lastEntry(t, path)
	flip(t, path, from+40)
	s := mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	require.NoError(t, s.Close())
}

func TestSyncedMarkFollowsWithinACheckpointInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		assert.NoFileExists(t, syncedPath(cfg))
		put(t, s, "T", 0, "a", "b")
		sleepThroughCheckpoints()
		assert.Equal(t, int64(2), marked(t, cfg))
		put(t, s, "T", 0, "c")
		require.NoError(t, s.Kill())
		s = mustOpen(t, cfg)
		assert.Equal(t, int64(3), marked(t, cfg), "an open makes durable what it finds")
		require.NoError(t, s.Close())

		throwaway := throwawayConfig(t)
		s = mustOpen(t, throwaway)
		put(t, s, "T", 0, "a")
		sleepThroughCheckpoints()
		mustClose(t, s)
		assert.NoFileExists(t, syncedPath(throwaway))
	})
}

// What the last fsync of the mark did not cover is gone with the power.
func TestPowerOffTakesAnUnsyncedSlotOfTheMark(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := newLedger()
	broken := false
	disk := durable()
	file := disk.file
	disk.file = func(f *os.File) error {
		if broken {
			return errFaulty
		}
		return file(f)
	}
	disk.ledger = l
	var m syncedMark
	require.NoError(t, m.load(dir, disk.recorded()))
	require.NoError(t, m.raise(100))
	require.NoError(t, m.raise(200))
	broken = true
	require.ErrorIs(t, m.raise(300), errFaulty)
	require.ErrorIs(t, m.raise(301), errFaulty, "over the slot that failed")
	require.NoError(t, l.cut())
	var got syncedMark
	require.NoError(t, got.load(dir, durable()))
	assert.Equal(t, int64(200), got.position.Load())
}

// Damage in what is replayed and a torn end: nothing is cut, and Inspect says so.
func TestDamageIsFoundBeforeATornEndIsCut(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		prepare func(t *testing.T, cfg Config)
		bad     int // number of the file that is damaged
	}{
		"no checkpoint": {func(t *testing.T, cfg Config) { require.NoError(t, os.Remove(checkpointPath(cfg))) }, 1},
		"no queues":     {func(t *testing.T, cfg Config) { dropPositions(t, cfg.Dir) }, 1},
		"no index, and damage behind": {func(t *testing.T, cfg Config) {
			require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, queuesName)))
		}, 2},
	} {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		want := numbered("m", 300)
		for _, text := range want {
			put(t, s, "T", 0, text)
		}
		mustClose(t, s)
		s = mustOpen(t, cfg)
		put(t, s, "T", 0, "unsynced")
		mustKill(t, s)
		row.prepare(t, cfg)
		paths := segments(t, cfg.Dir)
		require.Greater(t, len(paths), 3)
		first := baseOf(t, paths[row.bad])
		flip(t, paths[row.bad], entriesOf(t, paths[row.bad])[3]+40) // its third record
		path := lastSegment(t, cfg.Dir)
		from, _ := lastEntry(t, path)
		flip(t, path, from+40)
		before := readAll(t, cfg.Dir)
		in, err := Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, OpensReadOnly, in.Opens, name)
		assert.Zero(t, in.Cut, name)
		requireForeseen(t, cfg, cfg.Dir, in)
		for _, f := range in.Findings {
			assert.NotContains(t, f.Remedy, "next start cuts", name)
		}
		s = mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly, name)
		assert.Zero(t, s.Cut(), name)
		assertBodies(t, s, "T", 0, want[:first+1])
		require.NoError(t, s.Close())
		assert.Equal(t, before, readAll(t, cfg.Dir), name)
		mustSalvage(t, cfg.Dir)
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err(), name)
		assert.Equal(t, int64(300), s.Positions().Written, name)
	}
}

// Damage behind a good checkpoint does not cost the queues that it holds.
func TestDamageBehindTheCheckpointLeavesItsQueues(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", 250)
	put(t, s, "T", 0, want...)
	mustClose(t, s)
	saved, err := os.ReadFile(checkpointPath(cfg))
	require.NoError(t, err)
	s = mustOpen(t, cfg)
	for len(s.segmentsNow()) < 4 {
		put(t, s, "T", 0, "behind", "behind", "behind")
	}
	require.NoError(t, s.Sync(t.Context()))
	put(t, s, "T", 0, "proof")
	require.NoError(t, s.Kill())
	writeFile(t, checkpointPath(cfg), saved)
	path := segments(t, cfg.Dir)[1]
	flip(t, path, entriesOf(t, path)[1]+40)
	extent, err := os.ReadFile(extentFiles(t, cfg.Dir)[0])
	require.NoError(t, err)
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	requireForeseen(t, cfg, cfg.Dir, in)
	s = mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	assert.Equal(t, want, bodies(t, s, "T", 0)[:250])
	require.NoError(t, s.Close())
	after, err := os.ReadFile(extentFiles(t, cfg.Dir)[0])
	require.NoError(t, err)
	assert.Equal(t, extent[:2*blockSize], after[:2*blockSize], "they were not made anew")
}
