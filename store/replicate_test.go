package store

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// follow brings a slave up to the end of a master.
func follow(t testing.TB, master, slave *Store, maxBytes int) {
	t.Helper()
	for {
		b, err := master.ReadLog(slave.Positions().Written+1, maxBytes)
		require.NoError(t, err)
		if len(b.Records) == 0 {
			return
		}
		require.NoError(t, slave.Replicate(context.Background(), b))
	}
}

// slaveConfig is that of a second broker of the group.
func slaveConfig(t testing.TB) Config {
	cfg := testConfig(t)
	cfg.ID = 1
	return cfg
}

// assertSameLog compares everything that two stores hold from the later beginning
// on.
func assertSameLog(t testing.TB, want, got *Store) {
	t.Helper()
	w, g := want.Positions(), got.Positions()
	require.Equal(t, w.Written, g.Written)
	for at := max(w.Min, g.Min); at <= w.Written; {
		a, err := want.ReadLog(at, 1<<20)
		require.NoError(t, err)
		b, err := got.ReadLog(at, 1<<20)
		require.NoError(t, err)
		n := min(len(a.Records), len(b.Records))
		require.Positive(t, n)
		require.Equal(t, a.Epoch, b.Epoch, "at %d", at)
		require.Equal(t, a.Records[:n], b.Records[:n], "at %d", at)
		at += int64(n)
	}
	queues := func(s *Store) map[QueueID]Range {
		m := make(map[QueueID]Range)
		for id, r := range s.Queues() {
			if r.Max > 0 {
				m[id] = r
			}
		}
		return m
	}
	a, b := queues(want), queues(got)
	for id, r := range a {
		assert.Equal(t, r.Max, b[id].Max, "%v", id)
	}
	assert.Len(t, b, len(a))
}

func TestReplicatedLogIsTheMastersByteForByte(t *testing.T) {
	for _, maxBytes := range []int{1, 700, 64 << 10} {
		t.Run(fmt.Sprint(maxBytes), func(t *testing.T) {
			master, slave := mustOpen(t, testConfig(t)), mustOpen(t, slaveConfig(t))
			for i := range 40 {
				put(t, master, "T", i%3, strings.Repeat("x", 50*i), "b")
				if i%10 == 5 {
					require.NoError(t, master.BeginEpoch(t.Context(), int64(i)))
				}
				if i == 20 {
					require.NoError(t, master.DropTopic(t.Context(), "T"))
				}
				if i%7 == 0 {
					follow(t, master, slave, maxBytes)
				}
			}
			follow(t, master, slave, maxBytes)
			assertSameLog(t, master, slave)
			assert.Equal(t, master.Epochs(), slave.Epochs())
			for q := range 3 {
				assert.Equal(t, bodies(t, master, "T", q), bodies(t, slave, "T", q))
			}
			mustClose(t, master)
			mustClose(t, slave)
		})
	}
}

func TestAnEpochIsDurableWhenItHasBegun(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	assert.Equal(t, []Epoch{{0, 1}}, s.Epochs())
	require.NoError(t, s.BeginEpoch(t.Context(), 3), "of an empty log")
	assert.Equal(t, []Epoch{{3, 1}}, s.Epochs())
	require.NoError(t, s.BeginEpoch(t.Context(), 4), "again without a record")
	put(t, s, "T", 0, "a", "b")
	require.NoError(t, s.BeginEpoch(t.Context(), 7))
	want := []Epoch{{4, 1}, {7, 3}}
	assert.Equal(t, want, s.Epochs())
	require.ErrorIs(t, s.BeginEpoch(t.Context(), 7), ErrOldEpoch)
	require.NoError(t, s.PowerOff())

	s = mustOpen(t, cfg)
	assert.Equal(t, want, s.Epochs())
	require.ErrorIs(t, s.BeginEpoch(t.Context(), 6), ErrOldEpoch)
	put(t, s, "T", 0, "c")
	require.NoError(t, s.BeginEpoch(t.Context(), 8))
	assert.Equal(t, append(want, Epoch{8, 4}), s.Epochs())
	assert.Equal(t, []string{"a", "b", "c"}, bodies(t, s, "T", 0))
	mustClose(t, s)
}

func TestWhatDoesNotFitIsNotReplicated(t *testing.T) {
	master, slave := mustOpen(t, testConfig(t)), mustOpen(t, slaveConfig(t))
	require.NoError(t, master.BeginEpoch(t.Context(), 2))
	put(t, master, "T", 0, "a", "b", "c", "d")
	all, err := master.ReadLog(1, 1<<20)
	require.NoError(t, err)
	part := func(from, to int, change func(*LogBatch)) LogBatch {
		b := LogBatch{First: int64(from), Epoch: all.Epoch}
		for _, rec := range all.Records[from-1 : to] {
			b.Records = append(b.Records, append([]byte(nil), rec...))
		}
		if change != nil {
			change(&b)
		}
		return b
	}
	require.NoError(t, slave.Replicate(t.Context(), part(1, 2, nil)))
	for name, c := range map[string]struct {
		batch LogBatch
		want  error
	}{
		"nothing":               {LogBatch{First: 3, Epoch: 2}, ErrBadBatch},
		"once more":             {part(2, 3, nil), ErrNoRecord},
		"a gap":                 {part(4, 4, nil), ErrNoRecord},
		"an older epoch":        {part(3, 4, func(b *LogBatch) { b.Epoch = 1 }), ErrOldEpoch},
		"another position":      {part(4, 4, func(b *LogBatch) { b.First = 3 }), ErrDamaged},
		"a flipped bit":         {part(3, 4, func(b *LogBatch) { message.View(b.Records[1]).Body()[0] ^= 1 }), ErrDamaged},
		"cut short":             {part(3, 4, func(b *LogBatch) { b.Records[1] = b.Records[1][:40] }), ErrDamaged},
		"empty":                 {part(3, 4, func(b *LogBatch) { b.Records[0] = nil }), ErrDamaged},
		"another queue's place": {part(3, 4, func(b *LogBatch) { b.Records[0][27]++ }), ErrDamaged},
	} {
		assert.ErrorIs(t, slave.Replicate(t.Context(), c.batch), c.want, name)
	}
	assert.NoError(t, slave.Err(), "it is not fenced for that")
	require.NoError(t, slave.Replicate(t.Context(), part(3, 4, nil)))
	assertSameLog(t, master, slave)
	mustClose(t, master)
	mustClose(t, slave)
}

func TestUnconfirmedRecordsAreInNoQueue(t *testing.T) {
	cfg := testConfig(t)
	cfg.Confirming = true
	var arrived []int64
	cfg.Arrived = func(_ string, _ int, offset, _ int64) { arrived = append(arrived, offset) }
	s := mustOpen(t, cfg)
	a := put(t, s, "T", 0, "a", "b", "c")
	assert.Empty(t, bodies(t, s, "T", 0))
	assert.Zero(t, s.MaxOffset("T", 0))
	_, err := s.Record(a.Position)
	require.ErrorIs(t, err, ErrNoRecord)
	require.NoError(t, s.SetConfirmed(2))
	assert.Equal(t, []string{"a", "b"}, bodies(t, s, "T", 0))
	assert.Equal(t, []int64{0, 1}, arrived)
	b := put(t, s, "T", 0, "d")
	assert.Equal(t, int64(3), b.QueueOffset, "offsets do not wait")
	require.NoError(t, s.SetConfirmed(100))
	assert.Equal(t, []string{"a", "b", "c", "d"}, bodies(t, s, "T", 0))
	require.NoError(t, s.SetConfirmed(1), "it does not go back")

	// A topic that is deleted: what came before goes to its old queues.
	put(t, s, "T", 0, "e")
	require.NoError(t, s.DropTopic(t.Context(), "T"))
	c := put(t, s, "T", 0, "f")
	assert.Zero(t, c.QueueOffset)
	require.NoError(t, s.SetConfirmed(c.Position-2), "e")
	require.NoError(t, s.SetConfirmed(c.Position))
	assert.Equal(t, []string{"f"}, bodies(t, s, "T", 0))
	put(t, s, "T", 0, "g", "h")
	require.NoError(t, s.SetConfirmed(c.Position+1))
	mustClose(t, s)

	arrived = nil
	s = mustOpen(t, cfg)
	assert.Equal(t, []string{"f", "g"}, bodies(t, s, "T", 0), "as far as it was confirmed")
	d := put(t, s, "T", 0, "i")
	assert.Equal(t, int64(3), d.QueueOffset)
	require.NoError(t, s.SetConfirmed(d.Position))
	assert.Equal(t, []string{"f", "g", "h", "i"}, bodies(t, s, "T", 0))
	mustClose(t, s)
}

func TestTheEndOfALogIsCut(t *testing.T) {
	for _, confirming := range []bool{false, true} {
		for last := range int64(13) {
			t.Run(fmt.Sprint(confirming, last), func(t *testing.T) {
				cfg := testConfig(t)
				cfg.Confirming = confirming
				s := mustOpen(t, cfg)
				var want []string
				for i := range 12 {
					body := fmt.Sprint(i, strings.Repeat("x", 1000))
					put(t, s, "T", 0, body)
					want = append(want, body)
					if i == 6 {
						require.NoError(t, s.BeginEpoch(t.Context(), 1))
					}
				}
				require.NoError(t, s.SetConfirmed(last))
				require.NoError(t, s.Close())
				n, err := CutEnd(cfg, last)
				require.NoError(t, err)
				assert.Equal(t, 12-last, n)
				for range 2 {
					s = mustOpen(t, cfg)
					assert.Equal(t, last, s.Positions().Written)
					assert.Zero(t, s.Cut())
					require.NoError(t, s.SetConfirmed(last))
					assert.Equal(t, want[:last], append([]string{}, bodies(t, s, "T", 0)...))
					if last < 7 {
						assert.Equal(t, []Epoch{{0, 1}}, s.Epochs())
					}
					mustClose(t, s)
				}
				s = mustOpen(t, cfg)
				a := put(t, s, "T", 0, "z")
				assert.Equal(t, last, a.QueueOffset)
				require.NoError(t, s.PowerOff())
				mustClose(t, mustOpen(t, cfg))
			})
		}
	}
}

func TestANewSlaveBeginsWhereItsMasterDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		cfg.RetentionBytes = 3 * MinFileSize
		master := mustOpen(t, cfg)
		require.NoError(t, master.BeginEpoch(t.Context(), 5))
		put(t, master, "old", 3, "a", "b")
		for i := range 30 {
			put(t, master, "T", i%2, strings.Repeat("x", 900))
		}
		require.NoError(t, master.Sync(t.Context()))
		pass(DefaultCleanInterval)
		b := master.Beginning()
		require.Greater(t, b.Position, int64(3))
		_, err := master.ReadLog(b.Position-1, 1)
		require.ErrorIs(t, err, ErrNoRecord)

		scfg := slaveConfig(t)
		scfg.Begin = &b
		slave := mustOpen(t, scfg)
		assert.Equal(t, b.Position, slave.Positions().Min)
		follow(t, master, slave, 4000)
		assertSameLog(t, master, slave)
		assert.Equal(t, int64(2), slave.MaxOffset("old", 3), "no record of it is left")
		assert.Equal(t, master.Epochs(), slave.Epochs())
		mustClose(t, slave)
		_, err = Open(scfg)
		require.ErrorIs(t, err, ErrNotAStore, "it holds a log")
		scfg.Begin = nil
		slave = mustOpen(t, scfg)
		assert.Equal(t, int64(2), slave.MaxOffset("old", 3))
		assert.Equal(t, int64(2), put(t, slave, "old", 3, "c").QueueOffset)
		mustClose(t, slave)

		require.NoError(t, Clear(scfg))
		scfg.Begin = &b
		slave = mustOpen(t, scfg)
		follow(t, master, slave, 4000)
		assertSameLog(t, master, slave)
		mustClose(t, slave)
		mustClose(t, master)
	})
}

func TestDeletionsOfTopicsAreToldInTheOrderOfTheLog(t *testing.T) {
	for _, confirming := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			master := mustOpen(t, testConfig(t))
			cfg := slaveConfig(t)
			cfg.Confirming = confirming
			var told []string
			cfg.Arrived = func(topic string, _ int, offset, _ int64) { told = append(told, fmt.Sprint(topic, offset)) }
			cfg.Dropped = func(topic string, position int64) { told = append(told, fmt.Sprint("drop ", topic, " at ", position)) }
			slave := mustOpen(t, cfg)
			put(t, master, "A", 0, "x")
			put(t, master, "B", 0, "x")
			require.NoError(t, master.DropTopic(ctx, "A"))
			put(t, master, "A", 0, "x")
			require.NoError(t, master.DropTopic(ctx, "B"))
			follow(t, master, slave, 1<<20)
			if confirming {
				require.Empty(t, told)
				require.NoError(t, slave.SetConfirmed(4))
				require.Equal(t, []string{"A0", "B0", "drop A at 3", "A0"}, told)
				require.NoError(t, slave.SetConfirmed(5))
			}
			assert.Equal(t, []string{"A0", "B0", "drop A at 3", "A0", "drop B at 5"}, told)
			mustClose(t, slave)
			told = nil
			slave = mustOpen(t, cfg)
			assert.Empty(t, told, "the same is not told at a start")
			mustClose(t, slave)
			mustClose(t, master)
		})
	}
}

func TestANewSlaveMayBeginWithTheLastFileOfItsMaster(t *testing.T) {
	cfg := testConfig(t)
	cfg.FileSize = MinFileSize
	master := mustOpen(t, cfg)
	b, err := master.BeginningOfLastFile(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Beginning{Position: 1}, b, "an empty log has one file")
	put(t, master, "old", 0, "a", "b") // its last record is in the first file
	require.NoError(t, master.BeginEpoch(t.Context(), 3))
	for i := range 200 {
		put(t, master, "T", i%3, strings.Repeat("x", 100))
	}
	put(t, master, "gone", 0, "a")
	require.NoError(t, master.DropTopic(t.Context(), "gone"))
	put(t, master, "gone", 0, "b")
	b, err = master.BeginningOfLastFile(t.Context())
	require.NoError(t, err)
	files := *master.log.files.Load()
	last := files[len(files)-1]
	require.Greater(t, len(files), 3)
	assert.Equal(t, last.base, b.Position)
	assert.Equal(t, int64(3), b.Epoch)

	other := slaveConfig(t)
	other.FileSize, other.Begin = MinFileSize, &b
	slave := mustOpen(t, other)
	follow(t, master, slave, 1<<10)
	for _, topic := range []string{"old", "T", "gone"} {
		for q := range 3 {
			m, s := master.MaxOffset(topic, q), slave.MaxOffset(topic, q)
			assert.Equal(t, m, s, "%s %d", topic, q)
			assert.LessOrEqual(t, master.MinOffset(topic, q), slave.MinOffset(topic, q), "%s %d", topic, q)
			all := bodies(t, master, topic, q)
			got := bodies(t, slave, topic, q)
			assert.Equal(t, append([]string(nil), all[len(all)-len(got):]...), got, "%s %d", topic, q)
		}
	}
	assert.Empty(t, bodies(t, slave, "old", 0))
	require.NoError(t, slave.Check(t.Context()))

	// What comes later is the same, and both go on after a restart.
	put(t, master, "old", 0, "c")
	put(t, master, "new", 0, "d")
	follow(t, master, slave, 1<<10)
	mustClose(t, slave)
	other.Begin = nil
	slave = mustOpen(t, other)
	assert.Equal(t, []string{"c"}, bodies(t, slave, "old", 0))
	assert.Equal(t, int64(2), slave.MinOffset("old", 0))
	assert.Equal(t, b.Position, slave.Positions().Min)
	assert.Equal(t, master.Positions().Written, slave.Positions().Written)
	require.NoError(t, slave.Check(t.Context()))
	mustClose(t, slave)
	mustClose(t, master)
}

func TestALogBeginsOnlyWhereThereIsNone(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a")
	mustClose(t, s)
	cfg.Begin = &Beginning{Position: 10, Bytes: 100}
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrNotAStore)
	assert.ErrorContains(t, err, "cannot begin at position 10")
	require.NoError(t, Clear(cfg))
	s = mustOpen(t, cfg)
	assert.Equal(t, int64(10), s.Positions().Min)
	assert.Equal(t, int64(9), s.Positions().Written)
	mustClose(t, s)
	cfg.Begin = &Beginning{Position: 10, Bytes: -1}
	cfg.Dir = t.TempDir()
	_, err = Open(cfg)
	assert.ErrorContains(t, err, "not where a log can begin")
}
