package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func kinds(in *Inspection) (list []FindingKind) {
	for _, f := range in.Findings {
		list = append(list, f.Kind)
	}
	return list
}

func TestInspectFindsNothingWrongInAWholeFolder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *Store){"close": closeStore, "kill": func(t *testing.T, s *Store) { mustKill(t, s) }} {
		cfg := testConfig(t)
		all := someQueues(t, cfg, 4, end)
		before := readAll(t, cfg.Dir)
		in, err := Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		assert.Equal(t, before, readAll(t, cfg.Dir))
		assert.Empty(t, in.Findings, name)
		assert.Nil(t, in.Salvage, name)
		assert.Equal(t, OpensClean, in.Opens, name)
		assert.Equal(t, int64(len(all)), in.Records)
		assert.Equal(t, []int64{1, int64(len(all))}, []int64{in.First, in.Last})
		assert.Equal(t, "broker-a", in.Broker)
		assert.Len(t, in.Files, 4)
		ends := endsOf(all)
		assert.Len(t, in.Queues, len(ends))
		for _, q := range in.Queues {
			assert.Equal(t, InspectedQueue{Topic: q.Topic, ID: q.ID, Max: ends[QueueID{q.Topic, q.ID}], Records: q.Max}, q)
		}
	}
}

func TestInspectOfAnEmptyFolderThatIsNew(t *testing.T) {
	cfg := testConfig(t)
	mustClose(t, mustOpen(t, cfg))
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Empty(t, in.Findings)
	assert.Equal(t, OpensClean, in.Opens)
	assert.Equal(t, []int64{1, 0}, []int64{in.First, in.Last})
}

func TestInspectNamesEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	origin := testConfig(t)
	someQueues(t, origin, 4, closeStore)
	for name, row := range map[string]struct {
		damage func(t *testing.T, dir string, paths []string)
		want   []FindingKind
		opens  OpenOutcome
	}{
		"record in a sealed file": {
			func(t *testing.T, dir string, paths []string) { flip(t, paths[1], 200) },
			[]FindingKind{FindingDamage}, OpensClean, // the next open does not read sealed files
		},
		"record in a sealed file, and no queues": {
			func(t *testing.T, dir string, paths []string) {
				flip(t, paths[1], 200)
				dropPositions(t, dir)
			},
			[]FindingKind{FindingDamage}, OpensReadOnly,
		},
		"header": {
			func(t *testing.T, dir string, paths []string) { flip(t, paths[1], 20) },
			[]FindingKind{FindingHeader}, OpensReadOnly,
		},
		"missing file": {
			func(t *testing.T, dir string, paths []string) {
				require.NoError(t, os.RemoveAll(filepath.Dir(paths[1])))
			},
			[]FindingKind{FindingMissing}, OpensReadOnly,
		},
		"missing first file": {
			func(t *testing.T, dir string, paths []string) {
				require.NoError(t, os.RemoveAll(filepath.Dir(paths[0])))
			},
			[]FindingKind{FindingMissing}, OpensReadOnly,
		},
		"missing last file": {
			func(t *testing.T, dir string, paths []string) {
				require.NoError(t, os.RemoveAll(filepath.Dir(paths[3])))
			},
			[]FindingKind{FindingMissing}, OpensReadOnly,
		},
		"missing log": {
			func(t *testing.T, dir string, paths []string) {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, commitLogName)))
			},
			[]FindingKind{FindingMissing}, OpensReadOnly,
		},
		"torn end": {
			func(t *testing.T, dir string, paths []string) { grow(t, paths[3], make([]byte, 50)) },
			[]FindingKind{FindingTorn}, OpensCut,
		},
		"bytes behind a sealed file": {
			func(t *testing.T, dir string, paths []string) { grow(t, paths[1], make([]byte, 50)) },
			[]FindingKind{FindingRest}, OpensReadOnly,
		},
		"stray file": {
			func(t *testing.T, dir string, paths []string) {
				require.NoError(t, os.WriteFile(paths[3]+".bak", nil, 0o640))
			},
			[]FindingKind{FindingStray}, OpensRefused,
		},
		"a file in place of the queues": {
			func(t *testing.T, dir string, paths []string) { fileInPlaceOf(t, filepath.Join(dir, queuesName)) },
			[]FindingKind{FindingStray}, OpensRefused,
		},
		"a file in place of the index": {
			func(t *testing.T, dir string, paths []string) { fileInPlaceOf(t, filepath.Join(dir, indexName)) },
			[]FindingKind{FindingStray}, OpensRefused,
		},
		"files of two copies": {
			func(t *testing.T, dir string, paths []string) {
				data, err := os.ReadFile(paths[2])
				require.NoError(t, err)
				grow(t, paths[1], data[entriesOf(t, paths[2])[1]:])
			},
			[]FindingKind{FindingRest, FindingContradiction}, OpensReadOnly,
		},
		"queues": {
			func(t *testing.T, dir string, paths []string) {
				cp, err := loadCheckpoint(dir)
				require.NoError(t, err)
				s := &Store{cfg: Config{Dir: dir}}
				s.log.disk = durable()
				clear(cp.queues[0].tail[:unitSize])
				require.NoError(t, s.replaceCheckpoint(func(f *os.File) error {
					w := newCheckpointWriter(f)
					require.NoError(t, w.start(cp, len(cp.queues)))
					for _, q := range cp.queues {
						require.NoError(t, w.queue(q))
					}
					return w.finish(cp.extents, cp.next, cp.index)
				}))
			},
			[]FindingKind{FindingQueues}, OpensClean,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyDir(t, origin.Dir)
			row.damage(t, dir, segments(t, dir))
			in, err := Inspect(t.Context(), dir)
			require.NoError(t, err)
			assert.Equal(t, row.want, kinds(in))
			assert.Equal(t, row.opens, in.Opens)
			for _, f := range in.Findings {
				assert.NotEmpty(t, f.Text)
				assert.NotEmpty(t, f.Remedy)
			}
			requireForeseen(t, origin, dir, in)
		})
	}
}

func TestInspectNamesADamagedIndex(t *testing.T) {
	cfg := testConfig(t)
	cfg.tableEntries = 50
	var all map[int64]wrote
	synctest.Test(t, func(t *testing.T) {
		all = someQueues(t, cfg, 4, func(t *testing.T, s *Store) {
			pass(2 * DefaultCleanInterval) // the janitor writes what is synced
			mustClose(t, s)
		})
	})
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, in.Findings)
	require.True(t, in.Checkpoint.Usable)
	require.Positive(t, in.Checkpoint.Runs)
	keys := int64(0)
	for _, w := range all {
		if !w.silent {
			keys += 2
		}
	}
	assert.Equal(t, keys, in.Checkpoint.Keys)

	path := indexPath(cfg, 0)
	flip(t, path, 2*blockSize+100)
	in, err = Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, []FindingKind{FindingIndex}, kinds(in))
	requireForeseen(t, cfg, cfg.Dir, in)
	require.NoError(t, os.Remove(path))
	in, err = Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Empty(t, in.Findings, "it is rebuilt")
	assert.False(t, in.Checkpoint.Usable)
}

func grow(t *testing.T, path string, more []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(data, more...), 0o640))
}

// requireForeseen opens a copy of an inspected folder and compares what becomes
// of it with what the inspection says.
func fileInPlaceOf(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.RemoveAll(path))
	require.NoError(t, os.WriteFile(path, []byte("x"), 0o640))
}

func TestAFileInPlaceOfAFolderIsRefusedWithARemedy(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	someQueues(t, cfg, 2, closeStore)
	for name, remedy := range map[string]string{queuesName: "move it away", indexName: "move it away", commitLogName: "from a copy"} {
		cfg := cfg
		cfg.Dir = copyDir(t, cfg.Dir)
		path := filepath.Join(cfg.Dir, name)
		fileInPlaceOf(t, path)
		_, err := Open(cfg)
		require.ErrorIs(t, err, ErrNotAStore)
		assert.ErrorContains(t, err, path)
		assert.ErrorContains(t, err, remedy)
		if name == commitLogName {
			_, err = Inspect(t.Context(), cfg.Dir)
			assert.ErrorContains(t, err, remedy)
			continue
		}
		require.NoError(t, os.Remove(path))
		mustClose(t, mustOpen(t, cfg))
	}
}

func requireForeseen(t *testing.T, cfg Config, dir string, in *Inspection) {
	t.Helper()
	cfg.Dir = copyDir(t, dir)
	s, err := Open(cfg)
	if in.Opens == OpensRefused {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	if len(in.Findings) > 0 && !slices.ContainsFunc(in.Findings, func(f Finding) bool { return !f.Harmless }) {
		require.NoError(t, s.Err())
		require.Nil(t, in.Salvage)
	}
	opens := OpensClean
	switch {
	case s.Err() != nil:
		opens = OpensReadOnly
	case s.Cut() > 0:
		opens = OpensCut
	}
	require.Equal(t, in.Opens, opens, "%v", s.Err())
	require.Equal(t, in.Cut, s.Cut())
	require.NoError(t, s.Close())
}

func TestInspectForeseesWhatAnOpenDoes(t *testing.T) {
	t.Parallel()
	for range crashRounds(t) {
		rng := newSeed(t)
		cfg := testConfig(t)
		end := closeStore
		if rng.IntN(2) == 0 {
			end = func(t *testing.T, s *Store) { mustKill(t, s) }
		}
		someQueues(t, cfg, 1+rng.IntN(4), end)
		for range 1 + rng.IntN(2) {
			paths := segments(t, cfg.Dir)
			path := paths[len(paths)-1-rng.IntN(min(2, len(paths)))]
			info, err := os.Stat(path)
			require.NoError(t, err)
			switch rng.IntN(4) {
			case 0:
				require.NoError(t, os.Truncate(path, rng.Int64N(info.Size()+1)))
			case 1:
				require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, checkpointName)))
			case 2:
				grow(t, path, []byte("garbage"))
			default:
				if info.Size() > 0 {
					flip(t, path, int(rng.Int64N(info.Size())))
				}
			}
		}
		in, err := Inspect(t.Context(), cfg.Dir)
		require.NoError(t, err)
		requireForeseen(t, cfg, cfg.Dir, in)
	}
}

func TestInspectOfACopyTakesNoLock(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m")
	_, err := Inspect(t.Context(), cfg.Dir)
	require.ErrorIs(t, err, ErrInUse)
	dir := copyDir(t, cfg.Dir)
	require.NoError(t, os.Remove(filepath.Join(dir, lockName)))
	in, err := Inspect(t.Context(), dir)
	require.NoError(t, err)
	assert.Empty(t, in.Findings)
	assert.NoFileExists(t, filepath.Join(dir, lockName))
	mustClose(t, s)
	_, err = Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	mustClose(t, mustOpen(t, cfg))
}

func TestInspectRefusesWhatIsNoDataFolder(t *testing.T) {
	dir := t.TempDir()
	_, err := Inspect(t.Context(), dir)
	require.ErrorIs(t, err, ErrNotAStore)
	_, err = Inspect(t.Context(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	file := filepath.Join(dir, formatName)
	require.NoError(t, os.WriteFile(file, []byte(`{"format":1000}`), 0o640))
	_, err = Inspect(t.Context(), file)
	require.ErrorIs(t, err, ErrNotAStore)
	_, err = Inspect(t.Context(), dir)
	require.ErrorIs(t, err, ErrNewerFormat)
}

func TestInspectEndsWithItsContext(t *testing.T) {
	cfg := testConfig(t)
	severalFiles(t, cfg, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Inspect(ctx, cfg.Dir)
	require.ErrorIs(t, err, context.Canceled)
}

// brokenDisk does not give back the pages that begin within [from, to).
type brokenDisk struct {
	data     []byte
	from, to int64
}

func (d brokenDisk) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, d.data[off:])
	if off < d.to && off+int64(len(p)) > d.from {
		return max(0, int(d.from-off)), errors.New("input/output error")
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func TestPagesThatTheDiskDoesNotGiveBackAreZeros(t *testing.T) {
	data := make([]byte, 10*pageSize+100)
	for i := range data {
		data[i] = 1
	}
	got, unread := readPages(brokenDisk{data: data}, int64(len(data)))
	assert.Equal(t, data, got)
	assert.Zero(t, unread)
	got, unread = readPages(brokenDisk{data: data}, int64(len(data)+50))
	assert.Equal(t, data, got, "a file that is shorter than it was")
	assert.Zero(t, unread)
	got, unread = readPages(brokenDisk{data: data, from: 2*pageSize + 5, to: 3*pageSize + 7}, int64(len(data)+50))
	assert.Equal(t, 2*pageSize-5, unread)
	want := append([]byte(nil), data...)
	clear(want[2*pageSize+5 : 4*pageSize])
	assert.Equal(t, want, got)
}

func TestReadOnlyStoreKeepsWhatTheCheckpointKnowsUpToTheDamage(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	all := someQueues(t, cfg, 4, closeStore)
	paths := segments(t, cfg.Dir)
	flip(t, paths[1], 20) // the header: all behind the first file is out of reach
	end := baseOf(t, paths[1]) - 1
	s := mustOpen(t, cfg)
	require.ErrorIs(t, s.Err(), ErrReadOnly)
	assert.Equal(t, Positions{Min: 1, Written: end, Synced: end, Dispatched: end}, s.Positions())
	for p, w := range all {
		if w.silent {
			continue
		}
		found, err := s.QueryKey(t.Context(), KeyQuery{Topic: w.key.Topic, Key: fmt.Sprintf("key-%d", p-1), Max: 5})
		require.NoError(t, err)
		assert.Equal(t, p <= end, len(found) == 1, "position %d of %d", p, end)
		assert.Equal(t, p <= end, w.offset < s.MaxOffset(w.key.Topic, w.key.ID))
	}
	var joined interface{ Unwrap() []error }
	err := s.Check(t.Context())
	require.ErrorIs(t, err, ErrReadOnly)
	require.ErrorAs(t, err, &joined)
	assert.NotContains(t, err.Error(), "queue offset")
	assert.NotContains(t, err.Error(), "key index")
	require.NoError(t, s.Close())
	_, err = os.Stat(filepath.Join(cfg.Dir, checkpointName))
	require.NoError(t, err)
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.True(t, in.Checkpoint.Usable)
}
