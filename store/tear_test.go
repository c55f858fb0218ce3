package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// entryEnds lists where the entries of a segment end, the header's first.
func entryEnds(t *testing.T, path string) (ends []int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for off := 0; off < len(data); {
		_, n, ok := cutEntry(data[off:])
		require.True(t, ok)
		off += n
		ends = append(ends, off)
	}
	return ends
}

// twoFiles writes two log files, the second with a few records, and ends the
// store.
func twoFiles(t *testing.T, cfg Config, end func(*testing.T, *Store)) (want []string) {
	t.Helper()
	s := mustOpen(t, cfg)
	for len(segments(t, cfg.Dir)) < 2 {
		want = append(want, fmt.Sprint("m", len(want)))
		put(t, s, "T", 0, want[len(want)-1])
	}
	for i := range 3 {
		want = append(want, fmt.Sprint("last", i))
		put(t, s, "T", 0, want[len(want)-1])
	}
	end(t, s)
	return want
}

// change makes a copy of a folder in which one file is another.
func change(t *testing.T, dir, path string, data []byte) string {
	t.Helper()
	name, err := filepath.Rel(dir, path)
	require.NoError(t, err)
	to := copyDir(t, dir)
	writeFile(t, filepath.Join(to, name), data)
	return to
}

func TestST10_LastFileCutAtAnyByteKeepsEveryWholeRecord(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := twoFiles(t, cfg, mustKillUnsynced)
	path := lastSegment(t, cfg.Dir)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	first := int(baseOf(t, path)) - 1
	ends := entryEnds(t, path)
	whole := 0 // entries that end at or before the cut
	for at := range sweep(data) {
		for ends[whole] <= at {
			whole++
		}
		cfg := cfg
		cfg.Dir = change(t, cfg.Dir, path, data[:at])
		s := mustOpen(t, cfg)
		require.NoError(t, s.Err(), "cut at %d", at)
		keep := first + max(0, whole-1)
		require.Equal(t, want[:keep], bodies(t, s, "T", 0), "cut at %d", at)
		torn := at > 0 && (whole == 0 || ends[whole-1] != at)
		require.Equal(t, torn, s.Cut() > 0, "cut at %d", at)
		require.Equal(t, int64(keep), put(t, s, "T", 0, "new").QueueOffset)
		mustClose(t, s)
		require.NoError(t, os.RemoveAll(cfg.Dir))
	}
}

func mustKillUnsynced(t *testing.T, s *Store) {
	t.Helper()
	require.Zero(t, s.Positions().Synced)
	mustKill(t, s)
}

func TestLastFileCutAtAnyByteOfWhatWasSyncedIsDamage(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := twoFiles(t, cfg, func(t *testing.T, s *Store) { mustClose(t, s) })
	path := lastSegment(t, cfg.Dir)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	first := int(baseOf(t, path)) - 1
	ends := entryEnds(t, path)
	whole := 0
	for at := range sweep(data) {
		for ends[whole] <= at {
			whole++
		}
		cfg := cfg
		cfg.Dir = change(t, cfg.Dir, path, data[:at])
		before := readAll(t, cfg.Dir)
		s := mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly, "cut at %d", at)
		keep := first + max(0, whole-1)
		require.ErrorContains(t, s.Err(), fmt.Sprintf("position %d", keep+1), "cut at %d", at)
		require.Equal(t, want[:keep], bodies(t, s, "T", 0), "cut at %d", at)
		require.NoError(t, s.Close())
		require.Equal(t, before, readAll(t, cfg.Dir), "nothing is touched")
		require.NoError(t, os.RemoveAll(cfg.Dir))
	}
}

// A flipped byte of a header of a log file is never taken for the truth.
func TestEveryFlippedByteOfAFileHeaderIsSeen(t *testing.T) {
	t.Parallel()
	synced := testConfig(t)
	want := severalFiles(t, synced, 4)
	unsynced := testConfig(t)
	wantUnsynced := twoFiles(t, unsynced, mustKillUnsynced)
	for _, path := range segments(t, synced.Dir) {
		for at := range entryEnds(t, path)[0] {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[at] ^= 0x10
			cfg := synced
			cfg.Dir = change(t, synced.Dir, path, data)
			s := mustOpen(t, cfg)
			what := fmt.Sprintf("byte %d of %s", at, path)
			require.ErrorIs(t, s.Err(), ErrReadOnly, what)
			base := baseOf(t, path)
			require.ErrorContains(t, s.Err(), fmt.Sprintf("position %d", base), what)
			require.Equal(t, want[:base-1], append([]string{}, bodies(t, s, "T", 0)...), what)
			require.NoError(t, s.Close())
			require.NoError(t, os.RemoveAll(cfg.Dir))
		}
	}
	// Nothing proves an unsynced file: it ends before its header.
	path := lastSegment(t, unsynced.Dir)
	keep := int(baseOf(t, path)) - 1
	for at := range entryEnds(t, path)[0] {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[at] ^= 0x10
		cfg := unsynced
		cfg.Dir = change(t, unsynced.Dir, path, data)
		s := mustOpen(t, cfg)
		require.NoError(t, s.Err(), "byte %d", at)
		require.Equal(t, wantUnsynced[:keep], bodies(t, s, "T", 0), "byte %d", at)
		require.Equal(t, len(wantUnsynced)-keep, s.Cut(), "byte %d", at)
		mustClose(t, s)
		require.NoError(t, os.RemoveAll(cfg.Dir))
	}
}

// derivedFiles lists what may be deleted, or replaced by an older copy.
func derivedFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case name == commitLogName || name == configName:
			return fs.SkipDir
		case e.IsDir() || name == formatName || name == lockName:
		default:
			names = append(names, name)
		}
		return nil
	}))
	return names
}

// derivedStore is a folder with every kind of derived file, what it must hold, and
// an older copy.
func derivedStore(t *testing.T, change func(*Config)) (cfg Config, older string, p crashPoint) {
	t.Helper()
	cfg = testConfig(t)
	cfg.tableEntries, cfg.indexBlocks = 300, 5 // two runs in a file
	synctest.Test(t, func(inner *testing.T) {
		r := &scripted{t: inner, cfg: cfg, disk: durable()}
		change(&r.cfg)
		r.open()
		for range 2 {
			r.put("T", 0, 205, 0) // a block
			r.put("T", 1, 30, 100)
			r.put("U", 0, 20, 0)
			sleepThroughCheckpoints()
			r.close()
			if older == "" {
				older = copyDir(t, cfg.Dir)
				r.open()
				r.put("W", 0, 1, 0)
				time.Sleep(2 * time.Hour) // with retention only the end of W is left of it
				r.put("T", 0, 205, 0)
			}
		}
		p = r.left("")
	})
	return cfg, older, p
}

// unclean makes a copy of the folder whose store went on and was killed.
func unclean(t *testing.T, cfg Config, p crashPoint) (Config, crashPoint) {
	t.Helper()
	cfg.Dir = copyDir(t, cfg.Dir)
	r := &scripted{t: t, cfg: cfg, disk: durable(), order: slices.Clip(p.order)}
	r.open()
	r.put("V", 0, 3, 10)
	mustKill(t, r.s)
	return cfg, r.left("")
}

// intact opens a folder and demands that nothing of it is missing, now and after
// it has gone on.
func (p crashPoint) intact(t *testing.T, cfg Config, what string) {
	t.Helper()
	p.what, p.promised = what, len(p.order)
	p.verify(t, cfg, cfg.Dir, "rebuilt")
}

// derivedLives are those of the lives after which other derived files are left.
func derivedLives(t *testing.T, test func(*testing.T, Config, string, crashPoint)) {
	for _, life := range lives {
		if life.name == "SyncFlush" {
			continue
		}
		t.Run(life.name, func(t *testing.T) {
			t.Parallel()
			cfg, older, p := derivedStore(t, life.change)
			require.Equal(t, life.name == "retention", p.min > 1)
			test(t, cfg, older, p)
		})
	}
}

func TestST06_EveryDerivedFileMayBeDeletedOrOld(t *testing.T) {
	t.Parallel()
	derivedLives(t, func(t *testing.T, original Config, older string, all crashPoint) {
		names := derivedFiles(t, original.Dir)
		require.Contains(t, names, checkpointName)
		require.Contains(t, names, filepath.Join(queuesName, numberedName(0)))
		indexed := slices.ContainsFunc(names, func(name string) bool { return filepath.Dir(name) == indexName })
		require.True(t, indexed, "%v", names)
		old := func(t *testing.T, dir, name string) {
			data, err := os.ReadFile(filepath.Join(older, name))
			if err != nil {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				return
			}
			writeFile(t, filepath.Join(dir, name), data)
		}
		gone := func(t *testing.T, dir, name string) { require.NoError(t, os.Remove(filepath.Join(dir, name))) }
		for _, clean := range []bool{true, false} {
			from, p := original, all
			if !clean {
				from, p = unclean(t, original, all)
			}
			// Each file alone, each file but one, and all of them.
			for kind, change := range map[string]func(*testing.T, string, string){"old": old, "deleted": gone} {
				for i := -1; i < len(names); i++ {
					for _, but := range []bool{false, true} {
						cfg := from
						cfg.Dir = copyDir(t, from.Dir)
						what := fmt.Sprintf("clean %t, all %s", clean, kind)
						for j, name := range names {
							if i < 0 || (i == j) != but {
								change(t, cfg.Dir, name)
							}
						}
						if i >= 0 {
							what = fmt.Sprintf("clean %t, %s %s, the others not: %t", clean, names[i], kind, !but)
						}
						p.intact(t, cfg, what)
					}
				}
			}
		}
	})
}

func TestST04_EveryDerivedFileMayBeTornOrZeroed(t *testing.T) {
	t.Parallel()
	derivedLives(t, func(t *testing.T, original Config, _ string, all crashPoint) {
		for _, clean := range []bool{true, false} {
			from, p := original, all
			if !clean {
				from, p = unclean(t, original, all)
			}
			for _, name := range derivedFiles(t, from.Dir) {
				data, err := os.ReadFile(filepath.Join(from.Dir, name))
				require.NoError(t, err)
				half := len(data) / 2
				for what, torn := range map[string][]byte{
					"empty": nil, "half": data[:half], "a byte short": data[:len(data)-1], "zeros": make([]byte, len(data)),
					"more zeros":       make([]byte, 1<<20),
					"half zeros":       slices.Concat(data[:half], make([]byte, len(data)-half)),
					"first half zeros": slices.Concat(make([]byte, half), data[half:]),
					"a zero tail":      slices.Concat(data, make([]byte, blockSize)),
					"twice":            slices.Concat(data, data),
				} {
					cfg := from
					cfg.Dir = change(t, from.Dir, filepath.Join(from.Dir, name), torn)
					mend(t, cfg)
					p.intact(t, cfg, fmt.Sprintf("clean %t, %s: %s", clean, name, what))
				}
			}
		}
	})
}

// mend opens a folder and checks it, which finds blocks that are damaged behind
// a good head, and ends it: the next open rebuilds them. What a check of the
// first finds must be damage of derived files alone.
func mend(t *testing.T, cfg Config) {
	t.Helper()
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	if err := s.Check(t.Context()); err != nil {
		require.True(t, errors.Is(err, errQueueDamaged) || errors.Is(err, errIndexDamaged), "%v", err)
	}
	require.NoError(t, s.Close())
}

func TestST04_EveryFlippedByteOfADerivedFileIsSeenOrHarmless(t *testing.T) {
	t.Parallel()
	original := testConfig(t)
	original.tableEntries = 500
	r := &scripted{t: t, cfg: original, disk: durable()}
	r.open()
	r.put("T", 0, 206, 0) // a block and a tail, a run and a table
	mustClose(t, r.s)
	p := r.left("")
	// The bytes of the heads; of those that one checksum covers with them, more
	// in many rounds.
	every := max(1, 1000/crashRounds(t))
	for _, name := range derivedFiles(t, original.Dir) {
		data, err := os.ReadFile(filepath.Join(original.Dir, name))
		require.NoError(t, err)
		for at := range sweep(data) {
			if at%blockSize >= 32 && at%every > 0 {
				continue
			}
			flipped := append([]byte{}, data...)
			flipped[at] ^= 0x10
			cfg := original
			cfg.Dir = change(t, original.Dir, filepath.Join(original.Dir, name), flipped)
			mend(t, cfg)
			p.intact(t, cfg, fmt.Sprintf("byte %d of %s", at, name))
		}
	}
}

func TestFlippedFORMATNeverOpensAsSomethingElse(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m")
	mustClose(t, s)
	path := filepath.Join(cfg.Dir, formatName)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	opened := 0
	for bit := range 8 * len(data) {
		flipped := append([]byte{}, data...)
		flipped[bit/8] ^= 1 << (bit % 8)
		require.NoError(t, os.WriteFile(path, flipped, 0o640))
		s, err := Open(cfg)
		if err != nil {
			// Not that it is another broker's; a higher format may be true.
			if !errors.Is(err, ErrNewerFormat) {
				require.ErrorIs(t, err, ErrNotAStore, "bit %d", bit)
			}
			require.ErrorContains(t, err, cfg.Dir)
			require.ErrorContains(t, err, "restore")
			continue
		}
		opened++
		assertBodies(t, s, "T", 0, []string{"m"})
		require.NoError(t, s.Close())
	}
	assert.Less(t, opened, 2*len(data), "a quarter: those in the name of the checksum, and capital letters in names")
	require.NoError(t, os.WriteFile(path, data, 0o640))
}

// A damaged or missing commitlog/first is seen. Where the checkpoint says the
// same as it did, nothing is lost by it.
func TestADamagedFirstMarkIsSeenOrHarmless(t *testing.T) {
	t.Parallel()
	original, _, p := derivedStore(t, lives[2].change)
	path := filepath.Join(original.Dir, commitLogName, firstName)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	harmless := 0
	try := func(what string, damaged []byte, checkpoint bool) {
		cfg := original
		cfg.Dir = change(t, original.Dir, path, damaged)
		if damaged == nil {
			require.NoError(t, os.Remove(filepath.Join(cfg.Dir, commitLogName, firstName)))
		}
		if !checkpoint {
			require.NoError(t, os.Remove(filepath.Join(cfg.Dir, checkpointName)))
		}
		s, err := Open(cfg)
		if err != nil {
			require.ErrorContains(t, err, cfg.Dir, what)
			return
		}
		if s.Err() != nil {
			require.ErrorIs(t, s.Err(), ErrReadOnly, what)
			require.ErrorContains(t, s.Err(), cfg.Dir, what)
			require.NoError(t, s.Close())
			return
		}
		harmless++
		require.NoError(t, s.Kill())
		p.intact(t, cfg, what)
	}
	for _, checkpoint := range []bool{true, false} {
		step, start := 1, 0
		if crashRounds(t) <= 3 {
			step, start = 3, newSeed(t).IntN(3)
		}
		for at := start; at < len(data); at += step {
			flipped := slices.Clone(data)
			flipped[at] ^= 0x10
			try(fmt.Sprintf("byte %d flipped, checkpoint %t", at, checkpoint), flipped, checkpoint)
			if at%8 == 0 {
				try(fmt.Sprintf("cut at %d, checkpoint %t", at, checkpoint), data[:at:at], checkpoint)
			}
		}
		try(fmt.Sprintf("missing, checkpoint %t", checkpoint), nil, checkpoint)
		try(fmt.Sprintf("zeros, checkpoint %t", checkpoint), make([]byte, len(data)), checkpoint)
	}
	require.NotZero(t, harmless, "with a checkpoint beside it")
}
