package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// indexedFolder fills a store with several index files of several runs, sealed
// tables and a table, and closes it.
func indexedFolder(t *testing.T, cfg Config) *keyedLog {
	t.Helper()
	l := &keyedLog{t: t, rng: newSeed(t)}
	s := mustOpen(t, cfg)
	for range 3 {
		l.append(s, 400)
		settle(t, s)
	}
	l.append(s, 150)
	require.Greater(t, len(s.index.files), 2)
	require.NoError(t, s.Close())
	return l
}

func TestST04_EmptyIndexFilesDoNotStopOpen(t *testing.T) {
	zeros := make([]byte, 1<<16)
	synctest.Test(t, func(t *testing.T) {
		original := indexConfig(t)
		l := indexedFolder(t, original)
		last := uint32(len(indexFiles(t, original.Dir)) - 1)
		for name, change := range map[string]func(cfg Config){
			"zero-filled next":  func(cfg Config) { writeFile(t, indexPath(cfg, last+1), zeros) },
			"zero-length next":  func(cfg Config) { writeFile(t, indexPath(cfg, last+1), nil) },
			"zero-filled last":  func(cfg Config) { writeFile(t, indexPath(cfg, last), zeros) },
			"zero-length last":  func(cfg Config) { writeFile(t, indexPath(cfg, last), nil) },
			"zero-filled first": func(cfg Config) { writeFile(t, indexPath(cfg, 0), zeros) },
			"of another making": func(cfg Config) { flip(t, indexPath(cfg, 1), 10) },
			"cut short":         func(cfg Config) { require.NoError(t, os.Truncate(indexPath(cfg, 1), 5000)) },
			"deleted first":     func(cfg Config) { require.NoError(t, os.Remove(indexPath(cfg, 0))) },
			"deleted last":      func(cfg Config) { require.NoError(t, os.Remove(indexPath(cfg, last))) },
			"deleted folder":    func(cfg Config) { require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, indexName))) },
			"a foreign file":    func(cfg Config) { writeFile(t, filepath.Join(cfg.Dir, indexName, "notes.txt"), nil) },
		} {
			for _, clean := range []bool{true, false} {
				cfg := original
				cfg.Dir = copyDir(t, original.Dir)
				here := &keyedLog{t: t, rng: l.rng, all: slices.Clone(l.all)}
				if !clean {
					s := mustOpen(t, cfg)
					here.append(s, 50)
					mustKill(t, s)
				}
				change(cfg)
				s := mustOpen(t, cfg)
				require.NoError(t, s.Err(), name)
				here.compare(s)
				here.append(s, 200)
				settle(t, s)
				here.compare(s)
				mustClose(t, s)
			}
		}
	})
}

// Derived files may be replaced by older copies, one or all of them.
func TestST06_OlderCopiesOfDerivedFilesAreNeverBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		l := indexedFolder(t, cfg)
		old := copyDir(t, cfg.Dir)
		s := mustOpen(t, cfg)
		l.append(s, 300)
		settle(t, s)
		l.append(s, 50)
		mustClose(t, s)
		for mask := range 1 << 3 {
			unclean := mask%3 == 0
			mixed := cfg
			mixed.Dir = copyDir(t, cfg.Dir)
			for i, name := range []string{indexName, checkpointName, queuesName} {
				if mask>>i&1 == 1 {
					require.NoError(t, os.RemoveAll(filepath.Join(mixed.Dir, name)))
					if info, err := os.Stat(filepath.Join(old, name)); err == nil && info.IsDir() {
						require.NoError(t, os.CopyFS(filepath.Join(mixed.Dir, name), os.DirFS(filepath.Join(old, name))))
					} else {
						data, err := os.ReadFile(filepath.Join(old, name))
						require.NoError(t, err)
						writeFile(t, filepath.Join(mixed.Dir, name), data)
					}
				}
			}
			here := &keyedLog{t: t, rng: l.rng, all: slices.Clone(l.all)}
			for range 2 {
				s := mustOpen(t, mixed)
				require.NoError(t, s.Err())
				here.compare(s)
				require.NoError(t, s.Check(t.Context()), "mask %b", mask)
				here.append(s, 120)
				settle(t, s)
				here.compare(s)
				if unclean {
					mustKill(t, s)
				} else {
					mustClose(t, s)
				}
			}
		}
	})
}

func TestDamagedRunIsReportedAndRebuiltAtTheNextOpenHoweverTheStoreEnds(t *testing.T) {
	query := func(s *Store, l *keyedLog) (err error) {
		for i := 0; i < len(l.all) && err == nil; i++ {
			_, err = s.QueryKey(context.Background(), KeyQuery{Topic: "T", Key: fmt.Sprint("U", i), Max: 5})
		}
		return err
	}
	check := func(s *Store, _ *keyedLog) error { return s.Check(context.Background()) }
	synctest.Test(t, func(t *testing.T) {
		original := indexConfig(t)
		l := indexedFolder(t, original)
		// The header of the first run, its only data block, and the run behind.
		for i, at := range []int{blockSize + 9, blockSize + 50, 2*blockSize - 5, 2*blockSize + 1, 2*blockSize + 300, 3*blockSize + 20, 4*blockSize + 40} {
			find, end := query, (*Store).Close
			if i%2 == 1 {
				find = check
			}
			if i/2%2 == 1 {
				end = (*Store).Kill
			}
			cfg := original
			cfg.Dir = copyDir(t, original.Dir)
			flip(t, indexPath(cfg, 1), at)
			s := mustOpen(t, cfg)
			err := find(s, l)
			require.ErrorIs(t, err, ErrDamaged, "byte %d", at)
			assert.Contains(t, err.Error(), indexPath(cfg, 1), "byte %d", at)
			require.NoError(t, end(s))
			s = mustOpen(t, cfg)
			l.compare(s)
			mustClose(t, s)
		}
	})
}

func TestIndexFileThatGoesWhileTheStoreIsOpenIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		l := indexedFolder(t, cfg)
		s := mustOpen(t, cfg)
		require.NoError(t, os.Rename(indexPath(cfg, 0), indexPath(cfg, 0)+"-"))
		_, err := s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: "missing"})
		require.ErrorIs(t, err, errIndexDamaged)
		assert.Contains(t, err.Error(), indexPath(cfg, 0))
		require.ErrorIs(t, s.Check(t.Context()), errIndexDamaged)
		require.NoError(t, s.Kill())
		s = mustOpen(t, cfg)
		l.compare(s)
	})
}

// The folder is copied at each step of a workload and each copy opened.
func TestKeysAreTheSameAfterACrashAtAnyPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		cfg.tableEntries = 20
		l := &keyedLog{t: t, rng: newSeed(t)}
		s := mustOpen(t, cfg)
		crash := func() {
			copied := cfg
			copied.Dir = copyDir(t, cfg.Dir)
			s := mustOpen(t, copied)
			l.compare(s)
			require.NoError(t, s.Check(t.Context()))
			require.NoError(t, s.Kill())
		}
		for range 12 {
			l.append(s, 1+l.rng.IntN(60))
			crash()
			require.NoError(t, s.Sync(t.Context()))
			crash()
			settle(t, s)
			crash()
			l.append(s, l.rng.IntN(5))
			if l.rng.IntN(3) == 0 {
				time.Sleep(DefaultCheckpointInterval)
				synctest.Wait()
				crash()
			}
		}
	})
}

func TestCheckFindsEveryKindOfWrongIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		indexedFolder(t, cfg)
		for name, row := range map[string]struct {
			spoil func(x *keyIndex)
			says  string
		}{
			"another hash":        {func(x *keyIndex) { x.table.chunks[0][3].hash++ }, "of the keys, not"},
			"another position":    {func(x *keyIndex) { x.table.chunks[0][0].position += 2 }, "of the keys, not"},
			"another time":        {func(x *keyIndex) { x.table.chunks[0][3].time++ }, "store time"},
			"entry missing":       {func(x *keyIndex) { x.table.chunks[0] = x.table.chunks[0][1:] }, "of the keys, not"},
			"entry too many":      {func(x *keyIndex) { x.table.add(x.table.last, x.table.lastTime, []uint32{7}) }, "of the keys, not"},
			"run missing":         {func(x *keyIndex) { x.runs = slices.Delete(slices.Clone(x.runs), 1, 2) }, "of the keys, not"},
			"table missing":       {func(x *keyIndex) { x.table = keyTable{} }, "of the keys, not"},
			"run of other bounds": {func(x *keyIndex) { x.runs[2].last++ }, "it is not the header"},
			"run of another file": {func(x *keyIndex) { x.runs[0].file = x.files[1] }, "it is not the header"},
		} {
			copied := cfg
			copied.Dir = copyDir(t, cfg.Dir)
			s := mustOpen(t, copied)
			require.NotZero(t, s.index.table.entries)
			require.NoError(t, s.Check(t.Context()))
			synctest.Wait() // the janitor is idle
			s.index.mu.Lock()
			row.spoil(&s.index)
			s.index.mu.Unlock()
			err := s.Check(t.Context())
			require.ErrorIs(t, err, ErrDamaged, name)
			assert.Contains(t, err.Error(), row.says, name)
			require.NoError(t, s.Kill())
		}
	})
}

func TestIndexFollowsTheDeletionOfOldFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		cfg.Retention, cfg.FileSize = time.Hour, MinFileSize
		l := indexedFolder(t, cfg)
		s := mustOpen(t, cfg)
		time.Sleep(50 * time.Minute)
		l.append(s, 600)
		settle(t, s)
		before := len(indexFiles(t, cfg.Dir))
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		first := s.Positions().Min
		require.Greater(t, first, int64(1))
		kept := &keyedLog{t: t, rng: l.rng, all: slices.Clone(l.all[first-1:])}
		kept.compare(s)
		require.NoError(t, s.Check(t.Context()))
		assert.Less(t, len(indexFiles(t, cfg.Dir)), before)
		for _, r := range s.index.view().runs {
			assert.GreaterOrEqual(t, r.last, first)
		}
		copied := cfg // before a checkpoint that does not name the removed files
		copied.Dir = copyDir(t, cfg.Dir)
		for _, cfg := range []Config{copied, cfg} {
			if cfg.Dir == s.cfg.Dir {
				mustClose(t, s)
			}
			s := mustOpen(t, cfg)
			require.GreaterOrEqual(t, s.checkpointed.position.Load(), int64(len(indexedBefore(l))), "the checkpoint is used")
			kept.compare(s)
			mustClose(t, s)
		}

		s = mustOpen(t, cfg)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Empty(t, s.index.view().runs)
		assert.Zero(t, s.index.view().table.entries)
		assert.LessOrEqual(t, len(indexFiles(t, cfg.Dir)), 1)
		rest := &keyedLog{t: t, rng: l.rng}
		rest.append(s, 300)
		settle(t, s)
		rest.compare(s)
		mustClose(t, s)
		rest.compare(mustOpen(t, cfg))
	})
}

// indexedBefore are the records of indexedFolder.
func indexedBefore(l *keyedLog) []keyed { return l.all[:1350] }

func TestFailedSyncOfTheIndexStaysAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		var disk faultyDisk
		s := mustOpenOn(t, cfg, disk.syncer())
		l := &keyedLog{t: t, rng: newSeed(t)}
		l.append(s, 300)
		settle(t, s)
		cause := errors.New("no medium found")
		disk.fail.Store(&cause)
		require.ErrorIs(t, s.index.sync(), cause)
		disk.fail.Store(nil)
		require.ErrorIs(t, s.index.sync(), cause, "the kernel may have dropped the run")
		require.ErrorIs(t, s.Close(), cause)
		l.compare(mustOpen(t, cfg))
	})
}

func TestRunIsReadBackAsItWasWritten(t *testing.T) {
	rng := newSeed(t)
	for _, n := range []int{1, runBlockEntries - 1, runBlockEntries, runBlockEntries + 1, 5000} {
		var table keyTable
		want := map[uint32][]keyEntry{}
		for i := range n {
			h := rng.Uint32N(uint32(n)/3 + 2)
			if i%4 == 0 {
				h = 1 // fills several blocks
			}
			table.add(int64(i+7), int64(i+9), []uint32{h})
			want[h] = append(want[h], keyEntry{hash: h, position: uint32(i), time: uint32(i)})
		}
		entries := slices.Concat(table.pieces()...)
		data, fences := appendRun(nil, table.keySpan, sortByHash(entries, make([]keyEntry, n)))
		s, parsed, ok := parseRunHeader(data[:blockSize])
		require.True(t, ok)
		assert.Equal(t, table.keySpan, s)
		assert.Equal(t, fences, parsed)
		r := &keyRun{keySpan: s, file: &indexFile{path: "f"}}
		require.Equal(t, int(r.blocks())*blockSize, len(data))
		b := make([]byte, blockSize)
		for h := range uint32(n)/3 + 4 {
			var got []keyEntry
			require.NoError(t, r.find(bytes.NewReader(data), h, b, func(e keyEntry) bool { got = append(got, e); return true }))
			slices.Reverse(got)
			require.Equal(t, want[h], got, "hash %d", h)
		}
		for range 200 { // any flipped bit is found
			at := rng.IntN(len(data))
			data[at] ^= 1 << rng.IntN(8)
			r := &keyRun{keySpan: s, file: &indexFile{path: "f"}}
			_, err := r.fencesOf(bytes.NewReader(data), b)
			for i := range dataBlocks(n) {
				_, bad := r.block(bytes.NewReader(data), i, b)
				err = errors.Join(err, bad)
			}
			require.ErrorIs(t, err, errIndexDamaged, "byte %d", at)
			data, _ = appendRun(data[:0], table.keySpan, sortByHash(slices.Concat(table.pieces()...), make([]keyEntry, n)))
		}
	}
}

func FuzzParseRunHeaderNeverPanics(f *testing.F) {
	data, _ := appendRun(nil, keySpan{entries: 2, first: 1, last: 2}, []keyEntry{{hash: 1}, {hash: 2, position: 1}})
	f.Add(data[:blockSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, fences, ok := parseRunHeader(b); ok && len(fences) != dataBlocks(s.entries) {
			t.Error("a header with other fences than blocks")
		}
	})
}

func TestIndexStateThatIsNoneIsRefused(t *testing.T) {
	good := func() indexState {
		run := func(file, at uint32, first int64) indexRunState {
			return indexRunState{file: file, at: at, keySpan: keySpan{entries: 400, first: first, last: first + 9, lastTime: 5}}
		}
		return indexState{
			files: []indexFileState{{number: 3, blocks: 7}, {number: 4, blocks: 4}},
			runs:  []indexRunState{run(3, 1, 10), run(3, 4, 20), run(4, 1, 30)},
		}
	}
	st, ok := good().from(1)
	require.True(t, ok)
	assert.Equal(t, good(), st)
	st, ok = good().from(35)
	require.True(t, ok)
	assert.Equal(t, good().runs[2:], st.runs)
	assert.Equal(t, good().files[1:], st.files)
	st, ok = good().from(1000)
	require.True(t, ok)
	assert.Empty(t, st.runs)
	assert.Equal(t, good().files[1:], st.files, "the last one is written to")
	changes := map[string]func(st *indexState){
		"gap in the files":       func(st *indexState) { st.files[1].number++ },
		"file without its stamp": func(st *indexState) { st.files[0].blocks = 0 },
		"file too short":         func(st *indexState) { st.files[0].blocks = 6 },
		"unknown file":           func(st *indexState) { st.runs[1].file = 9 },
		"runs out of order":      func(st *indexState) { st.runs[1].keySpan.first = 19 },
		"run without entries":    func(st *indexState) { st.runs[1].keySpan.entries = 0 },
		"run too large":          func(st *indexState) { st.runs[1].keySpan.entries = 1 << 30 },
		"run that ends early":    func(st *indexState) { st.runs[1].keySpan.last = 19 },
		"run at the stamp":       func(st *indexState) { st.runs[0].at = 0 },
		"times out of order":     func(st *indexState) { st.runs[0].keySpan.lastTime = -1 },
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		st := good()
		changes[name](&st)
		_, ok := st.from(1)
		assert.False(t, ok, name)
	}
}
