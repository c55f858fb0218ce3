package store

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// killed writes the records with a store that is then killed, so that nothing
// proves that any of them was synced.
func killed(t *testing.T, cfg Config, bodies ...string) {
	s := mustOpen(t, cfg)
	for _, body := range bodies {
		put(t, s, "T", 0, body)
	}
	require.Zero(t, s.Positions().Synced)
	mustKill(t, s)
}

// lastEntry returns where the last entry of a segment begins, and its end.
func lastEntry(t *testing.T, path string) (from, to int) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for off := 0; off < len(data); {
		_, n, ok := cutEntry(data[off:])
		require.True(t, ok)
		from, off = off, off+n
	}
	return from, len(data)
}

func overwrite(t *testing.T, path string, off int, b []byte) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, int64(off))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func flip(t *testing.T, path string, off int) {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	overwrite(t, path, off, []byte{data[off] ^ 0x10})
}

func TestST10_TornLastWriteAtAnyByteIsCutAndTheLogGoesOn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killed(t, cfg, "m0", "m1", "m2")
	path := lastSegment(t, cfg.Dir)
	from, to := lastEntry(t, path)
	name, err := filepath.Rel(cfg.Dir, path)
	require.NoError(t, err)

	for pass, tear := range map[string]func(*testing.T, string, int){
		"cut":  func(t *testing.T, path string, k int) { require.NoError(t, os.Truncate(path, int64(to-k))) },
		"zero": func(t *testing.T, path string, k int) { overwrite(t, path, to-k, make([]byte, k)) },
	} {
		for k := 1; k <= to-from; k++ {
			cfg := cfg
			cfg.Dir = copyDir(t, cfg.Dir)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			tear(t, filepath.Join(cfg.Dir, name), k)
			after, err := os.ReadFile(filepath.Join(cfg.Dir, name))
			require.NoError(t, err)
			if string(data) == string(after) {
				continue // the bytes were zero already
			}

			what := fmt.Sprintf("%s %d bytes", pass, k)
			s := mustOpen(t, cfg)
			require.NoError(t, s.Err(), what)
			cut := 1
			if pass == "cut" && k == to-from {
				cut = 0 // exactly between two entries: nothing tells that there was more
			}
			require.Equal(t, cut, s.Cut(), what)
			require.Equal(t, []string{"m0", "m1"}, bodies(t, s, "T", 0), what)
			require.Equal(t, int64(2), put(t, s, "T", 0, "new").QueueOffset, what)
			mustClose(t, s)
			s = mustOpen(t, cfg)
			require.Zero(t, s.Cut(), what)
			require.Equal(t, []string{"m0", "m1", "new"}, bodies(t, s, "T", 0), what)
			mustClose(t, s)
		}
	}
}

func TestST10_LastFileCutInsideItsHeaderOrToZeroLengthIsRemoved(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	var want []string
	s := mustOpen(t, cfg)
	for len(segments(t, cfg.Dir)) < 3 {
		want = append(want, fmt.Sprintf("m%d", len(want)))
		put(t, s, "T", 0, want[len(want)-1])
	}
	mustKill(t, s)
	want = want[:len(want)-1] // the only one in the last file
	from, _ := lastEntry(t, lastSegment(t, cfg.Dir))
	for k := 0; k < from; k++ {
		for _, zero := range []bool{false, true} {
			cfg := cfg
			cfg.Dir = copyDir(t, cfg.Dir)
			path := lastSegment(t, cfg.Dir)
			if zero {
				overwrite(t, path, k, make([]byte, 4096))
			} else {
				require.NoError(t, os.Truncate(path, int64(k)))
			}
			s := mustOpen(t, cfg)
			require.NoError(t, s.Err())
			require.Equal(t, want, bodies(t, s, "T", 0))
			require.Equal(t, int64(len(want)), put(t, s, "T", 0, "new").QueueOffset)
			mustClose(t, s)
			s = mustOpen(t, cfg)
			require.Equal(t, append(want[:len(want):len(want)], "new"), bodies(t, s, "T", 0))
			mustClose(t, s)
		}
	}
}

func TestST10_TailOfGarbageIsCut(t *testing.T) { // zeros parse as entries for the wal
	t.Parallel()
	for name, tail := range map[string][]byte{
		"zeros": make([]byte, 4096), "0xFF": []byte("\xff\xff\xff\xff\xff\xff\xff\xff"), "text": []byte("garbage that parses"), "one": {1},
	} {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "m0", "m1")
		mustClose(t, s) // even what is synced does not make the tail a part of the log
		path := lastSegment(t, cfg.Dir)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(data, tail...), 0o640))
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err(), name)
		assert.Equal(t, 1, s.Cut(), name)
		assertBodies(t, s, "T", 0, []string{"m0", "m1"})
		put(t, s, "T", 0, "m2")
		mustClose(t, s)
		assertBodies(t, mustOpen(t, cfg), "T", 0, []string{"m0", "m1", "m2"})
	}
}

func TestST01_DamagedUnsyncedRecordIsCutAndAppendingGoesOn(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := numbered("m", 20)
	killed(t, cfg, want...)
	path := lastSegment(t, cfg.Dir)
	from, to := lastEntry(t, path)
	for off := from; off < to; off++ {
		cfg := cfg
		cfg.Dir = copyDir(t, cfg.Dir)
		flip(t, lastSegment(t, cfg.Dir), off)
		s := mustOpen(t, cfg)
		require.NoError(t, s.Err())
		require.Equal(t, 1, s.Cut())
		require.Equal(t, want[:19], bodies(t, s, "T", 0))
		for i := range 5 {
			require.Equal(t, Appended{QueueOffset: int64(19 + i), Position: int64(20 + i)}.Position, put(t, s, "T", 0, "new").Position)
		}
		mustKill(t, s)
		s = mustOpen(t, cfg)
		require.Equal(t, append(want[:19:19], "new", "new", "new", "new", "new"), bodies(t, s, "T", 0))
		mustClose(t, s)
	}
}

func TestST01_DamagedSyncedRecordOpensReadOnlyAndNamesFileAndPosition(t *testing.T) {
	t.Parallel()
	// The proof that record 10 was synced is: the checkpoint; a distance in a
	// later entry of the same file; the header of the next file.
	prepare := map[string]func(t *testing.T, s *Store){
		"checkpoint": func(t *testing.T, s *Store) { mustClose(t, s) },
		"entry behind": func(t *testing.T, s *Store) {
			require.NoError(t, s.Sync(t.Context()))
			put(t, s, "T", 0, "proof")
			mustKill(t, s)
		},
		"entry behind in another file": func(t *testing.T, s *Store) {
			require.NoError(t, s.Sync(t.Context()))
			for n := len(segments(t, s.cfg.Dir)); len(segments(t, s.cfg.Dir)) < n+2; {
				put(t, s, "T", 0, "proof")
			}
			mustKill(t, s)
		},
	}
	for name, finish := range prepare {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			s := mustOpen(t, cfg)
			want := numbered("m", 20)
			for _, body := range want {
				put(t, s, "T", 0, body)
			}
			finish(t, s)
			first := segments(t, cfg.Dir)[0]
			before := readAll(t, cfg.Dir)
			data := before[first]
			off, pos := 0, int64(0)
			for ; pos < 10; pos++ { // the header and records 1 to 9
				_, n, _ := cutEntry(data[off:])
				off += n
			}
			flip(t, first, off+50)

			s = mustOpen(t, cfg)
			require.ErrorIs(t, s.Err(), ErrReadOnly)
			assert.Contains(t, s.Err().Error(), first)
			assert.Contains(t, s.Err().Error(), "position 10")
			assert.Zero(t, s.Cut())
			assertBodies(t, s, "T", 0, want[:9])
			_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "x"), AppendOptions{})
			require.ErrorIs(t, err, ErrReadOnly)
			require.ErrorIs(t, s.Check(t.Context()), ErrReadOnly)
			require.NoError(t, s.Close())

			// It stays so, and nothing of the log was touched.
			flip(t, first, off+50)
			assert.Equal(t, before, readAll(t, cfg.Dir))
			s = mustOpen(t, cfg)
			require.NoError(t, s.Err(), "restored from a copy")
			assert.Equal(t, want, bodies(t, s, "T", 0)[:20])
		})
	}
}

// readAll reads all segments of a folder.
func readAll(t *testing.T, dir string) map[string][]byte {
	all := make(map[string][]byte)
	for _, path := range segments(t, dir) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		all[path] = data
	}
	return all
}

// severalFiles writes records until there are n files, and returns their bodies.
func severalFiles(t *testing.T, cfg Config, n int) []string {
	s := mustOpen(t, cfg)
	var want []string
	for len(segments(t, cfg.Dir)) < n {
		want = append(want, fmt.Sprintf("m%d", len(want)))
		put(t, s, "T", 0, want[len(want)-1])
	}
	mustClose(t, s)
	return want
}

func baseOf(t *testing.T, segment string) int64 {
	base, ok := parseFileName(filepath.Base(filepath.Dir(segment)))
	require.True(t, ok)
	return base
}

func TestH7_MissingFileIsDamage(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := severalFiles(t, cfg, 5)
	paths := segments(t, cfg.Dir)
	for i, path := range paths {
		rel, err := filepath.Rel(cfg.Dir, path)
		require.NoError(t, err)
		cfg := cfg
		cfg.Dir = copyDir(t, cfg.Dir)
		require.NoError(t, os.RemoveAll(filepath.Dir(filepath.Join(cfg.Dir, rel))))
		s := mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly, "file %d", i)
		base := baseOf(t, path)
		assert.Contains(t, s.Err().Error(), fmt.Sprintf("position %d", base))
		var below []string
		if base > 1 {
			below = want[:base-1]
		}
		assertBodies(t, s, "T", 0, below)
		_, err = s.Append(t.Context(), batchOf(t, s, "T", 0, "x"), AppendOptions{})
		require.ErrorIs(t, err, ErrReadOnly)
		require.NoError(t, s.Close())
	}
}

func TestH7_ShortMiddleFileIsDamage(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	want := severalFiles(t, cfg, 4)
	path := segments(t, cfg.Dir)[1]
	from, to := lastEntry(t, path)
	for _, size := range []int{from, to - 1, 0, 20} {
		cfg := cfg
		cfg.Dir = copyDir(t, cfg.Dir)
		require.NoError(t, os.Truncate(segments(t, cfg.Dir)[1], int64(size)))
		s := mustOpen(t, cfg)
		require.ErrorIs(t, s.Err(), ErrReadOnly)
		next := baseOf(t, segments(t, cfg.Dir)[2])
		if size >= from {
			assertBodies(t, s, "T", 0, want[:next-2])
		} else {
			assertBodies(t, s, "T", 0, want[:baseOf(t, path)-1])
		}
		require.NoError(t, s.Close())
	}
}

func TestUnsyncedFilesBehindATornOneAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	var want []string
	for len(s.segmentsNow()) < 4 {
		want = append(want, fmt.Sprintf("m%d", len(want)))
		put(t, s, "T", 0, want[len(want)-1])
	}
	require.Zero(t, s.Positions().Synced)
	mustKill(t, s)
	paths := segments(t, cfg.Dir)
	from, _ := lastEntry(t, paths[1])
	require.NoError(t, os.Truncate(paths[1], int64(from)+10))
	kept := want[:baseOf(t, paths[2])-2]

	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, len(want)-len(kept), s.Cut())
	assertBodies(t, s, "T", 0, kept)
	assert.Len(t, segments(t, cfg.Dir), 2)
	put(t, s, "T", 0, "new")
	mustClose(t, s)
	assertBodies(t, mustOpen(t, cfg), "T", 0, append(kept, "new"))
}

func (s *Store) segmentsNow() []*logFile { return *s.log.files.Load() }

func TestLogThatEndsBeforeWhatWasSyncedIsDamage(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m0", "m1")
	mustClose(t, s)
	path := lastSegment(t, cfg.Dir)
	from, _ := lastEntry(t, path)
	require.NoError(t, os.Truncate(path, int64(from)))
	s = mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	assert.Contains(t, s.Err().Error(), "position 2")
	assertBodies(t, s, "T", 0, []string{"m0"})
	require.NoError(t, s.Close())

	require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, commitLogName)))
	s = mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	assert.Contains(t, s.Err().Error(), "position 1")
	assertBodies(t, s, "T", 0, nil)
	require.NoError(t, s.Close())
}

func TestPreparedFileLeftByACrashIsRemoved(t *testing.T) {
	cfg := testConfig(t)
	killed(t, cfg, "m0")
	next := filepath.Join(cfg.Dir, commitLogName, nextName)
	require.NoError(t, os.MkdirAll(next, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(next, segmentName), []byte("x"), 0o640))
	s := mustOpen(t, cfg)
	assert.NoDirExists(t, next)
	assertBodies(t, s, "T", 0, []string{"m0"})
}

func TestForeignFileBesideTheLastSegmentIsRefused(t *testing.T) {
	cfg := testConfig(t)
	killed(t, cfg, "m0")
	stray := filepath.Join(filepath.Dir(lastSegment(t, cfg.Dir)), "00000000000000000007")
	require.NoError(t, os.WriteFile(stray, nil, 0o640))
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), stray)
	require.NoError(t, os.Remove(stray))
	mustOpen(t, cfg)
}

func TestH9_UnsyncedTailIsWrittenAgainAndSyncedAtOpen(t *testing.T) {
	cfg := testConfig(t)
	killed(t, cfg, numbered("m", 200)...)
	before := readAll(t, cfg.Dir)
	s := mustOpen(t, cfg)
	assert.Equal(t, int64(200), s.Positions().Synced)
	assert.Equal(t, before, readAll(t, cfg.Dir))
}

func TestStoreThatWasNeverWrittenToOpensWithoutAWord(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill} {
		cfg := testConfig(t)
		var said bytes.Buffer
		cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		for range 3 {
			s := mustOpen(t, cfg)
			require.NoError(t, s.Err(), name)
			assert.Zero(t, s.Cut(), name)
			require.NoError(t, end(s), name)
		}
		assert.Empty(t, said.String(), name)
		s := mustOpen(t, cfg)
		assert.Equal(t, int64(1), put(t, s, "T", 0, "m").Position, name)
	}
}
