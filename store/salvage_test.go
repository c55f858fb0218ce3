package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// wrote is a record that a test has written.
type wrote struct {
	key    QueueID
	offset int64
	body   string
	silent bool
}

// someQueues writes records to several queues until there are files log files,
// and ends the store by end. It returns them by position.
func someQueues(t *testing.T, cfg Config, files int, end func(*testing.T, *Store)) map[int64]wrote {
	t.Helper()
	s := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(1, 2))
	all := make(map[int64]wrote)
	for n := 0; len(segments(t, cfg.Dir)) < files || s.Positions().Written < s.log.active.base+12; n++ {
		key := QueueID{Topic: fmt.Sprintf("topic-%d", rng.IntN(3)), ID: rng.IntN(2)}
		body := fmt.Sprintf("body-%d-%s", n, string(make([]byte, rng.IntN(60))))
		r := record(key.Topic, key.ID, body, "")
		r.Properties = string(message.AppendProperty(nil, message.PropKeys, fmt.Sprintf("key-%d all", n)))
		if rng.IntN(10) == 0 {
			r.SysFlag = message.FlagTransactionPrepared
		}
		b := s.NewBatch()
		require.NoError(t, b.Add(r))
		a, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
		all[a.Position] = wrote{key: key, offset: a.QueueOffset, body: body, silent: r.SysFlag != 0}
	}
	end(t, s)
	return all
}

// entriesOf returns where the entries of a segment are: header first, then the
// positions from the first on. The last one is where the file ends.
func entriesOf(t *testing.T, path string) (offsets []int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	off := 0
	for off < len(data) {
		offsets = append(offsets, off)
		_, n, ok := cutEntry(data[off:])
		require.True(t, ok)
		off += n
	}
	return append(offsets, off)
}

func positionsOf(ranges []PositionRange) map[int64]bool {
	all := make(map[int64]bool)
	for _, r := range ranges {
		for p := r.First; p <= r.Last; p++ {
			all[p] = true
		}
	}
	return all
}

// mustSalvage plans a salvage, carries it out, and returns the plan.
func mustSalvage(t *testing.T, dir string) *SalvagePlan {
	t.Helper()
	p, err := PlanSalvage(t.Context(), dir)
	require.NoError(t, err)
	require.False(t, p.Empty(), "nothing to salvage")
	_, err = p.Apply(t.Context())
	require.NoError(t, err)
	return p
}

// requireSalvaged opens a salvaged folder and makes sure that every record that
// is not lost is where it was, and that readers pass over the others.
func requireSalvaged(t *testing.T, cfg Config, all map[int64]wrote, lost map[int64]bool) *Store {
	t.Helper()
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	require.NoError(t, s.Check(t.Context()))
	kept := make(map[QueueID][]wrote)
	ends := endsOf(all)
	hurt := make(map[QueueID]bool)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		switch w := all[p]; {
		case w.silent:
		case lost[p]:
			hurt[w.key] = true
		default:
			kept[w.key] = append(kept[w.key], w)
		}
	}
	for key, end := range ends {
		if !hurt[key] && len(kept[key]) > 0 {
			require.Equal(t, end, s.MaxOffset(key.Topic, key.ID))
		}
		require.LessOrEqual(t, s.MaxOffset(key.Topic, key.ID), end)
	}
	for key, want := range kept {
		var got []wrote
		next := s.MinOffset(key.Topic, key.ID)
		for {
			res, err := s.Get(GetRequest{Topic: key.Topic, QueueID: key.ID, Offset: next, MaxMessages: 7})
			require.NoError(t, err)
			if res.Status != GetFound && res.Status != GetNoMatch {
				require.Equal(t, GetOverflowOne, res.Status)
				break
			}
			require.Greater(t, res.Next, next)
			next = res.Next
			for _, rec := range res.Records {
				v, err := message.ParseView(rec)
				require.NoError(t, err)
				require.Equal(t, all[v.Position()].body, string(v.Body()))
				got = append(got, wrote{key: QueueID{string(v.Topic()), int(v.QueueID())}, offset: v.QueueOffset(), body: string(v.Body())})
			}
		}
		require.Equal(t, want, got)
		require.GreaterOrEqual(t, next, want[len(want)-1].offset+1)
		require.LessOrEqual(t, next, ends[key])
	}
	return s
}

// forget deletes old files, and takes their records out of all.
func forget(t *testing.T, cfg Config, rng *rand.Rand, all map[int64]wrote) bool {
	s := mustOpen(t, cfg)
	files := s.segmentsNow()
	first := files[rng.IntN(len(files))]
	require.NoError(t, s.trim(first, DeletedForAge))
	ends := endsOf(all)
	for p := range all {
		if p < first.base {
			delete(all, p)
		}
	}
	for key, end := range ends {
		require.Equal(t, end, s.MaxOffset(key.Topic, key.ID))
	}
	mustClose(t, s)
	return first.base > 1
}

func closeStore(t *testing.T, s *Store) { mustClose(t, s) }

func TestSalvageKeepsEveryRecordThatCanBeRead(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	all := someQueues(t, cfg, 5, closeStore)
	paths := segments(t, cfg.Dir)
	zero := func(t *testing.T, path string, from, to int) { overwrite(t, path, from, make([]byte, to-from)) }
	for name, row := range map[string]struct {
		damage func(t *testing.T, path string, entries []int) // entries of the middle file
		lost   func(base, last int64) []PositionRange
	}{
		"first record": {
			func(t *testing.T, path string, e []int) { flip(t, path, e[1]+30) },
			func(base, last int64) []PositionRange { return []PositionRange{{base, base}} },
		},
		"middle record, its length": {
			func(t *testing.T, path string, e []int) { flip(t, path, e[10]) },
			func(base, last int64) []PositionRange { return []PositionRange{{base + 9, base + 9}} },
		},
		"last record": {
			func(t *testing.T, path string, e []int) { flip(t, path, e[len(e)-1]-1) },
			func(base, last int64) []PositionRange { return []PositionRange{{last, last}} },
		},
		"two records": {
			func(t *testing.T, path string, e []int) { flip(t, path, e[3]+20); flip(t, path, e[7]+20) },
			func(base, last int64) []PositionRange {
				return []PositionRange{{base + 2, base + 2}, {base + 6, base + 6}}
			},
		},
		"some together": {
			func(t *testing.T, path string, e []int) { zero(t, path, e[3]+5, e[8]-5) },
			func(base, last int64) []PositionRange { return []PositionRange{{base + 2, base + 6}} },
		},
		"header": {
			func(t *testing.T, path string, e []int) { flip(t, path, 20) },
			func(base, last int64) []PositionRange { return []PositionRange{} },
		},
		"header and first records": {
			func(t *testing.T, path string, e []int) { zero(t, path, 3, e[3]) },
			func(base, last int64) []PositionRange { return []PositionRange{{base, base + 1}} },
		},
		"everything": {
			func(t *testing.T, path string, e []int) { zero(t, path, 0, e[len(e)-1]) },
			func(base, last int64) []PositionRange { return []PositionRange{{base, last}} },
		},
		"cut short": {
			func(t *testing.T, path string, e []int) { require.NoError(t, os.Truncate(path, int64(e[6]+10))) },
			func(base, last int64) []PositionRange { return []PositionRange{{base + 5, last}} },
		},
		"cut between two records": {
			func(t *testing.T, path string, e []int) { require.NoError(t, os.Truncate(path, int64(e[6]))) },
			func(base, last int64) []PositionRange { return []PositionRange{{base + 5, last}} },
		},
		"emptied": {
			func(t *testing.T, path string, e []int) { require.NoError(t, os.Truncate(path, 0)) },
			func(base, last int64) []PositionRange { return []PositionRange{{base, last}} },
		},
		"missing": {
			func(t *testing.T, path string, e []int) { require.NoError(t, os.RemoveAll(filepath.Dir(path))) },
			func(base, last int64) []PositionRange { return []PositionRange{{base, last}} },
		},
	} {
		for file := range paths {
			t.Run(fmt.Sprintf("%s/file %d", name, file), func(t *testing.T) {
				withQueues := file%2 == 0
				cfg := cfg
				cfg.Dir = copyDir(t, cfg.Dir)
				paths := segments(t, cfg.Dir)
				path := paths[file]
				base, last := baseOf(t, path), int64(len(all))
				if file+1 < len(paths) {
					last = baseOf(t, paths[file+1]) - 1
				}
				entries := entriesOf(t, path)
				require.GreaterOrEqual(t, len(entries), 12)
				before := readAll(t, cfg.Dir)
				row.damage(t, path, entries)
				if !withQueues {
					require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, queuesName)))
					dropPositions(t, cfg.Dir)
				}
				damaged := readAll(t, cfg.Dir)
				want := row.lost(base, last)

				p, err := PlanSalvage(t.Context(), cfg.Dir)
				require.NoError(t, err)
				assert.Equal(t, damaged, readAll(t, cfg.Dir), "a plan changes nothing")
				assert.Equal(t, want, p.Lost)
				assert.Equal(t, int64(len(all))-p.LostRecords, p.Kept)
				folder, err := p.Apply(t.Context())
				require.NoError(t, err)

				after := readAll(t, cfg.Dir)
				sizes := 0
				for at, content := range before {
					sizes += len(content)
					if at != path && string(content) != string(after[at]) {
						t.Errorf("%s has changed, which was not damaged", at)
					}
				}
				for _, content := range after {
					sizes -= len(content)
				}
				if file+1 < len(paths) {
					assert.Zero(t, sizes, "the sizes that the headers behind tell are still true")
				}
				if old, ok := damaged[path]; ok && string(old) != string(after[path]) {
					copied, err := os.ReadFile(filepath.Join(folder, commitLogName, filepath.Base(filepath.Dir(path)), segmentName))
					require.NoError(t, err)
					assert.Equal(t, old, copied)
				}
				again, err := PlanSalvage(t.Context(), cfg.Dir)
				require.NoError(t, err)
				assert.True(t, again.Empty())
				s := requireSalvaged(t, cfg, all, positionsOf(p.Lost))
				a := put(t, s, "topic-0", 0, "new")
				assert.Equal(t, int64(len(all))+1, a.Position)
				mustClose(t, s)
				mustClose(t, mustOpen(t, cfg))
			})
		}
	}
}

// dropPositions makes the checkpoint one without queues.
func dropPositions(t *testing.T, dir string) {
	t.Helper()
	cp, err := loadCheckpoint(dir)
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, checkpointName))
	require.NoError(t, err)
	require.NoError(t, writeProof(f, *cp))
	require.NoError(t, f.Close())
}

func TestSalvageOfSeveralFilesStoppedAnywhereIsCompletedByTheNext(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	all := someQueues(t, cfg, 7, closeStore)
	paths := segments(t, cfg.Dir)
	flip(t, paths[0], entriesOf(t, paths[0])[4]+30)
	require.NoError(t, os.RemoveAll(filepath.Dir(paths[1])))
	require.NoError(t, os.RemoveAll(filepath.Dir(paths[2])))
	flip(t, paths[4], 30) // the header
	e := entriesOf(t, paths[5])
	overwrite(t, paths[5], e[len(e)-4], make([]byte, 40))
	plan, err := PlanSalvage(t.Context(), cfg.Dir)
	require.NoError(t, err)
	lost := positionsOf(plan.Lost)

	for n := 0; ; n++ {
		stop, power := n, n%2 == 1 // a kill, or a loss of power
		cfg := cfg
		cfg.Dir = copyDir(t, cfg.Dir)
		p, err := PlanSalvage(t.Context(), cfg.Dir)
		require.NoError(t, err)
		steps := 0
		errStop := errors.New("stopped")
		step := func() error {
			if steps++; steps > stop {
				return errStop
			}
			return nil
		}
		disk := syncer{file: func(*os.File) error { return step() }, dir: func(string) error { return step() }}.recorded()
		_, err = p.apply(t.Context(), disk)
		if err != nil {
			require.ErrorIs(t, err, errStop)
			if power {
				require.NoError(t, disk.ledger.cut())
			}
			if stop%3 == 0 { // somebody starts the broker in between
				s := mustOpen(t, cfg)
				mustClose(t, s)
			}
			p, err = PlanSalvage(t.Context(), cfg.Dir)
			require.NoError(t, err)
			_, applied := p.Apply(t.Context())
			require.NoError(t, applied)
		}
		require.Subset(t, plan.Lost, p.Lost)
		s := requireSalvaged(t, cfg, all, lost)
		for key, end := range endsOf(all) {
			require.Equal(t, end, s.MaxOffset(key.Topic, key.ID), "stopped after %d steps", stop)
		}
		mustClose(t, s)
		if err == nil && steps <= stop {
			require.Greater(t, stop, 20)
			return
		}
	}
}

func endsOf(all map[int64]wrote) map[QueueID]int64 {
	ends := make(map[QueueID]int64)
	for _, w := range all {
		if !w.silent {
			ends[w.key] = max(ends[w.key], w.offset+1)
		}
	}
	return ends
}

func TestSalvageKeepsTheEndOfAQueueThatLostItsLastRecords(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, numbered("t", 300)...)
	put(t, s, "U", 1, "u0", "u1")
	put(t, s, "V", 0, "v0")
	put(t, s, "T", 0, "t300", "t301")
	put(t, s, "U", 1, "u2", "u3")
	mustClose(t, s)
	path := lastSegment(t, cfg.Dir)
	e := entriesOf(t, path)
	// All behind u1, to the end of the log.
	from := e[3] // the first file holds t0 to t299
	overwrite(t, path, from, make([]byte, e[len(e)-1]-from))

	opened := mustOpen(t, cfg) // as its owner will have done first
	require.ErrorIs(t, opened.Err(), ErrReadOnly)
	assert.Equal(t, int64(300), opened.MaxOffset("T", 0))
	require.NoError(t, opened.Close())

	p := mustSalvage(t, cfg.Dir)
	assert.Equal(t, []PositionRange{{303, 307}}, p.Lost)
	assert.Equal(t, []QueueGap{{"T", 0, 300, 301}, {"U", 1, 2, 3}, {"V", 0, 0, 0}}, p.Queues)
	assert.Zero(t, p.Unplaced)
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, int64(302), put(t, s, "T", 0, "new").QueueOffset)
	assert.Equal(t, int64(4), put(t, s, "U", 1, "new").QueueOffset)
	assert.Equal(t, int64(1), put(t, s, "V", 0, "new").QueueOffset)
	mustClose(t, s)
}

func TestSalvageWithoutQueuesCountsWhatItCannotPlace(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "t0", "t1")
	put(t, s, "U", 0, "u0")
	put(t, s, "T", 0, "t2")
	mustClose(t, s)
	dropPositions(t, cfg.Dir)
	path := lastSegment(t, cfg.Dir)
	e := entriesOf(t, path)
	overwrite(t, path, e[2]+3, make([]byte, e[4]-e[2]-6)) // t1 and u0
	p := mustSalvage(t, cfg.Dir)
	assert.Equal(t, []PositionRange{{2, 3}}, p.Lost)
	assert.Equal(t, []QueueGap{{"T", 0, 1, 1}}, p.Queues)
	assert.Equal(t, int64(1), p.Unplaced)
	s = mustOpen(t, cfg)
	assert.Equal(t, int64(3), put(t, s, "T", 0, "new").QueueOffset)
	assert.Equal(t, int64(0), put(t, s, "U", 0, "new").QueueOffset)
	mustClose(t, s)
}

func TestSalvageOfRandomDamage(t *testing.T) {
	t.Parallel()
	for range crashRounds(t) {
		rng := newSeed(t)
		cfg := testConfig(t)
		end := closeStore
		if rng.IntN(2) == 0 {
			end = func(t *testing.T, s *Store) {
				require.NoError(t, s.Sync(t.Context()))
				put(t, s, "topic-0", 0, "proof")
				mustKill(t, s)
			}
		}
		all := someQueues(t, cfg, 2+rng.IntN(5), end)
		s := mustOpen(t, cfg)
		if n := int(s.Positions().Written); n > len(all) {
			all[int64(n)] = wrote{key: QueueID{"topic-0", 0}, offset: s.MaxOffset("topic-0", 0) - 1, body: "proof"}
		}
		mustClose(t, s)
		trimmed := rng.IntN(2) == 0
		if trimmed { // queues may be left without a record
			trimmed = forget(t, cfg, rng, all)
		}
		lost := make(map[int64]bool)
		for range 1 + rng.IntN(3) {
			if trimmed && rng.IntN(4) == 0 {
				overwrite(t, filepath.Join(cfg.Dir, commitLogName, firstName), 10, []byte("xxx"))
			}
			for range 1 + rng.IntN(4) {
				paths := segments(t, cfg.Dir)
				path := paths[rng.IntN(len(paths))]
				info, err := os.Stat(path)
				require.NoError(t, err)
				switch rng.IntN(5) {
				case 0:
					require.NoError(t, os.RemoveAll(filepath.Dir(path)))
				case 1:
					require.NoError(t, os.Truncate(path, rng.Int64N(info.Size()+1)))
				default:
					if n := rng.Int64N(300); info.Size() > n {
						overwrite(t, path, int(rng.Int64N(info.Size()-n)), make([]byte, n))
					}
				}
				if len(segments(t, cfg.Dir)) == 0 {
					break
				}
			}
			if cp, err := loadCheckpoint(cfg.Dir); err == nil && cp != nil && rng.IntN(3) == 0 {
				dropPositions(t, cfg.Dir)
			}
			p, err := PlanSalvage(t.Context(), cfg.Dir)
			require.NoError(t, err)
			_, err = p.Apply(t.Context())
			require.NoError(t, err)
			for at := range positionsOf(p.Lost) {
				lost[at] = true
			}
			for at := range all {
				if at < p.First { // the first file and the mark of the beginning both gone
					delete(all, at)
				}
			}
			mustClose(t, requireSalvaged(t, cfg, all, lost))
			if len(segments(t, cfg.Dir)) == 0 {
				break
			}
		}
	}
}

func TestSalvageOfAnOpenStoreIsRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, numbered("m", 3)...)
	_, err := PlanSalvage(t.Context(), cfg.Dir)
	require.ErrorIs(t, err, ErrInUse)
	assert.Contains(t, err.Error(), "stop its broker")
	mustClose(t, s)

	flip(t, lastSegment(t, cfg.Dir), 100)
	p, err := PlanSalvage(t.Context(), cfg.Dir)
	require.NoError(t, err)
	s = mustOpen(t, cfg)
	_, err = p.Apply(t.Context())
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, s.Close())
	flip(t, lastSegment(t, cfg.Dir), 300)
	_, err = p.Apply(t.Context())
	require.ErrorContains(t, err, "changed since")
}

func TestSalvageThatCannotBePreparedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	someQueues(t, cfg, 3, closeStore)
	flip(t, segments(t, cfg.Dir)[0], 300)
	before := readAll(t, cfg.Dir)
	p, err := PlanSalvage(t.Context(), cfg.Dir)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Apply(ctx)
	require.ErrorIs(t, err, context.Canceled)
	full := errors.New("no space left on device")
	_, err = p.apply(t.Context(), syncer{file: func(*os.File) error { return full }, dir: syncDir})
	require.ErrorIs(t, err, full)
	assert.Contains(t, err.Error(), "nothing readable is lost")
	left, err := filepath.Glob(filepath.Join(cfg.Dir, salvagePrefix+"*"))
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Equal(t, before, readAll(t, cfg.Dir))
	_, err = p.Apply(t.Context())
	require.NoError(t, err, "the plan is still good")
}

func TestSalvageRefusesWhatContradictsItself(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	severalFiles(t, cfg, 4)
	paths := segments(t, cfg.Dir)
	data, err := os.ReadFile(paths[2])
	require.NoError(t, err)
	e := entriesOf(t, paths[2])
	f, err := os.OpenFile(paths[1], os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Write(data[e[1]:])
	require.NoError(t, errors.Join(err, f.Close()))
	_, err = PlanSalvage(t.Context(), cfg.Dir)
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), "different copies of the log")
	assert.Contains(t, err.Error(), paths[1])
}

func TestSalvageOfATornEndHasNothingToDo(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killed(t, cfg, numbered("m", 5)...)
	path := lastSegment(t, cfg.Dir)
	_, to := lastEntry(t, path)
	flip(t, path, to-1)
	p, err := PlanSalvage(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.True(t, p.Empty())
	folder, err := p.Apply(t.Context())
	require.NoError(t, err)
	assert.Empty(t, folder)
}

func TestSalvageRescuesReadableRecordsBehindATornOne(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killed(t, cfg, numbered("m", 5)...)
	path := lastSegment(t, cfg.Dir)
	flip(t, path, entriesOf(t, path)[3]+30)
	p := mustSalvage(t, cfg.Dir)
	assert.Equal(t, []PositionRange{{3, 3}}, p.Lost)
	s := mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Zero(t, s.Cut())
	assert.Equal(t, int64(5), s.MaxOffset("T", 0))
	mustClose(t, s)
}

func TestSalvageOfALogWhoseBeginningIsNotKnown(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	someQueues(t, cfg, 4, closeStore)
	s := mustOpen(t, cfg)
	first := s.segmentsNow()[2].base
	require.NoError(t, s.trim(s.segmentsNow()[2], DeletedForAge))
	mustClose(t, s)
	dropPositions(t, cfg.Dir)
	mark := filepath.Join(cfg.Dir, commitLogName, firstName)
	overwrite(t, mark, 10, []byte("xxx"))
	damaged, err := os.ReadFile(mark)
	require.NoError(t, err)
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, []FindingKind{FindingBeginning}, kinds(in))
	assert.Equal(t, OpensReadOnly, in.Opens)
	requireForeseen(t, cfg, cfg.Dir, in)

	require.NotNil(t, in.Salvage)
	assert.Equal(t, first, in.Salvage.First)
	assert.Empty(t, in.Salvage.Files)
	folder, err := in.Salvage.Apply(t.Context())
	require.NoError(t, err)
	copied, err := os.ReadFile(filepath.Join(folder, commitLogName, firstName))
	require.NoError(t, err)
	assert.Equal(t, damaged, copied)
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, first, s.Positions().Min)
	mustClose(t, s)
}

func TestSalvageKeepsWhatOnlyTheCheckpointTellsOfTheBeginning(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "gone", 0, "g0", "g1")
	putMany(t, s, "T", 0, 60)
	files := s.segmentsNow()
	require.NoError(t, s.Sync(t.Context()))
	mustClose(t, s)
	s = mustOpen(t, cfg)
	require.NoError(t, s.trim(s.segmentsNow()[1], DeletedForAge))
	mustClose(t, s)
	require.NoError(t, os.Remove(filepath.Join(cfg.Dir, commitLogName, firstName)))
	path := segments(t, cfg.Dir)[0]
	require.Equal(t, files[1].path, path)
	flip(t, path, 300)
	mustSalvage(t, cfg.Dir)
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	assert.Equal(t, files[1].base, s.Positions().Min)
	assert.Equal(t, int64(2), put(t, s, "gone", 0, "g2").QueueOffset)
	mustClose(t, s)
}

func TestPlanEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	severalFiles(t, cfg, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := PlanSalvage(ctx, cfg.Dir)
	require.ErrorIs(t, err, context.Canceled)
}
