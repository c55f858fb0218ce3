package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// indexConfig is a store whose tables are full after 100 keys, and whose index
// files after a few runs.
func indexConfig(t testing.TB) Config {
	cfg := testConfig(t)
	cfg.tableEntries, cfg.indexBlocks, cfg.FileSize = 100, 8, 32<<10
	return cfg
}

func indexPath(cfg Config, number uint32) string {
	return filepath.Join(cfg.Dir, indexName, numberedName(number))
}

func indexFiles(t testing.TB, dir string) []string {
	paths, err := filepath.Glob(filepath.Join(dir, indexName, "*"))
	require.NoError(t, err)
	return paths
}

func keyedRecord(topic, body, uniq, keys string) *message.Record {
	r := record(topic, 0, body, "")
	var p []byte
	if uniq != "" {
		p = message.AppendProperty(p, message.PropUniqKey, uniq)
	}
	if keys != "" {
		p = message.AppendProperty(p, message.PropKeys, keys)
	}
	r.Properties = string(p)
	return r
}

// keyed is a record that must be found by its keys.
type keyed struct {
	topic, body string
	uniq, keys  string
	time        int64
	position    int64
}

func (k keyed) has(key string) bool {
	return k.uniq == key || slices.Contains(strings.Split(k.keys, " "), key)
}

// keyedLog is what a store with keys must hold.
type keyedLog struct {
	t   testing.TB
	rng *rand.Rand
	all []keyed
}

// append adds n random records in batches to a store. Few keys are frequent and
// many are rare.
func (l *keyedLog) append(s *Store, n int) {
	l.t.Helper()
	for n > 0 {
		topic := []string{"T", "U"}[l.rng.IntN(2)]
		b := s.NewBatch()
		var batch []keyed
		for range min(n, 1+l.rng.IntN(20)) {
			k := keyed{topic: topic, body: fmt.Sprint(len(l.all) + len(batch))}
			if l.rng.IntN(5) > 0 {
				k.uniq = fmt.Sprintf("U%d", len(l.all)+len(batch))
			}
			for range l.rng.IntN(4) {
				k.keys += []string{"", " ", "  "}[l.rng.IntN(3)] + []string{
					"often", "Aa", "BB", "schlüssel😀", fmt.Sprintf("k%d", l.rng.IntN(1000)),
				}[l.rng.IntN(5)]
			}
			require.NoError(l.t, b.Add(keyedRecord(topic, k.body, k.uniq, k.keys)))
			batch = append(batch, k)
		}
		n -= len(batch)
		a, err := s.Append(context.Background(), b, AppendOptions{})
		require.NoError(l.t, err)
		for i := range batch {
			batch[i].time, batch[i].position = a.StoreTime.UnixMilli(), a.Position+int64(i)
		}
		l.all = append(l.all, batch...)
	}
}

// find is QueryKey by looking at everything.
func (l *keyedLog) find(q KeyQuery) (found []string) {
	for _, k := range slices.Backward(l.all) {
		at := time.UnixMilli(k.time)
		if q.Below > 0 && k.position >= q.Below || k.topic != q.Topic || !k.has(q.Key) || !q.From.IsZero() && at.Before(q.From) || !q.To.IsZero() && at.After(q.To) {
			continue
		}
		if found = append(found, k.body); len(found) == max(1, q.Max) {
			break
		}
	}
	return found
}

func queried(t testing.TB, s *Store, q KeyQuery) (found []string) {
	t.Helper()
	records, err := s.QueryKey(context.Background(), q)
	require.NoError(t, err)
	for _, rec := range records {
		found = append(found, string(message.View(rec).Body()))
	}
	return found
}

// compare asks for many things.
func (l *keyedLog) compare(s *Store) {
	l.t.Helper()
	keys := []string{"often", "Aa", "BB", "schlüssel😀", "missing", "often Aa"}
	for range 6 {
		keys = append(keys, fmt.Sprintf("k%d", l.rng.IntN(1000)), fmt.Sprintf("U%d", l.rng.IntN(len(l.all)+1)))
	}
	for _, key := range keys {
		for _, topic := range []string{"T", "U"} {
			q := KeyQuery{Topic: topic, Key: key, Max: 1 + l.rng.IntN(2*len(l.all)+1)}
			if n := len(l.all); n > 0 && l.rng.IntN(2) == 0 {
				q.From = time.UnixMilli(l.all[l.rng.IntN(n)].time - int64(l.rng.IntN(2)))
				q.To = time.UnixMilli(l.all[l.rng.IntN(n)].time + int64(l.rng.IntN(2)))
			}
			if n := len(l.all); n > 0 && l.rng.IntN(2) == 0 {
				q.Below = l.all[l.rng.IntN(n)].position + int64(l.rng.IntN(2))
			}
			require.Equal(l.t, l.find(q), queried(l.t, s, q), "%+v", q)
		}
	}
}

// settle makes the log durable and lets the janitor write what is due. It needs
// a bubble.
func settle(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.Sync(context.Background()))
	s.wakeJanitor()
	synctest.Wait()
}

func TestQueryKeyFindsRecordsByUniqueKeyAndByEachOfTheirKeys(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, testConfig(t))
	b := s.NewBatch()
	add := func(r *message.Record) { require.NoError(t, b.Add(r)) }
	add(keyedRecord("T", "0", "uniq-0", "a b"))
	add(keyedRecord("T", "1", "uniq-1", " b  c b "))
	add(keyedRecord("T", "2", "", ""))
	prepared := keyedRecord("T", "3", "uniq-3", "b")
	prepared.SysFlag = message.FlagTransactionPrepared
	add(prepared)
	rolledBack := keyedRecord("T", "4", "uniq-4", "b")
	rolledBack.SysFlag = message.FlagTransactionRollback
	add(rolledBack)
	add(keyedRecord("T", "5", "b", "uniq-0"))
	add(keyedRecord("T", "6", "two words", "two words"))
	committed := keyedRecord("T", "7", "uniq-7", "Aa")
	committed.SysFlag = message.FlagTransactionCommit
	add(committed)
	add(keyedRecord("T", "8", "", "BB"))
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	b = s.NewBatch()
	add(keyedRecord("U", "9", "uniq-0", "b"))
	_, err = s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)

	for key, want := range map[string][]string{
		"uniq-0": {"5", "0"}, "uniq-1": {"1"}, "a": {"0"}, "b": {"5", "1", "0"}, "c": {"1"},
		"": nil, " ": nil, "uniq-3": nil, "uniq-4": nil, "two words": {"6"}, "words": {"6"}, "uniq-7": {"7"},
		"Aa": {"7"}, "BB": {"8"}, // of one hash
		"UNIQ-0": nil,
	} {
		assert.Equal(t, want, queried(t, s, KeyQuery{Topic: "T", Key: key, Max: 10}), "key %q", key)
	}
	assert.Equal(t, []string{"9"}, queried(t, s, KeyQuery{Topic: "U", Key: "b", Max: 10}))
	assert.Equal(t, []string{"5", "1"}, queried(t, s, KeyQuery{Topic: "T", Key: "b", Max: 2}))
	assert.Equal(t, []string{"5"}, queried(t, s, KeyQuery{Topic: "T", Key: "b"}))
	assert.Empty(t, queried(t, s, KeyQuery{Topic: "unknown", Key: "b", Max: 10}))
}

func TestAQueryGoesOnBelowWhereTheLastOneEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all of one millisecond
		s := mustOpen(t, indexConfig(t))
		const n = 500
		for i := range n {
			b := s.NewBatch()
			require.NoError(t, b.Add(keyedRecord("T", fmt.Sprintf("%03d", i), "", "k other")))
			require.NoError(t, b.Add(keyedRecord("T", "", "", "other")))
			_, err := s.Append(t.Context(), b, AppendOptions{})
			require.NoError(t, err)
			if i == n/2 {
				settle(t, s)
			}
		}
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf("%03d", n-1-i))
		}
		first, err := s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: "k", Max: 1})
		require.NoError(t, err)
		size := len(first[0])
		for what, limit := range map[string]KeyQuery{
			"by number":              {Max: 7},
			"by bytes":               {Max: n, MaxBytes: 7 * size},
			"by some bytes more":     {Max: n, MaxBytes: 6*size + 1},
			"by less than a record":  {Max: n, MaxBytes: 1},
			"by number before bytes": {Max: 7, MaxBytes: 8 * size},
			"by bytes before number": {Max: 8, MaxBytes: 7 * size},
			"not at all":             {Max: n + 1, MaxBytes: -1, Below: -1},
		} {
			each := 7
			switch {
			case limit.MaxBytes == 1:
				each = 1
			case limit.Max > n:
				each = n
			}
			limit.Topic, limit.Key = "T", "k"
			var got []string
			for len(got) < n {
				records, err := s.QueryKey(t.Context(), limit)
				require.NoError(t, err, what)
				require.Len(t, records, min(each, n-len(got)), what)
				for _, rec := range records {
					got = append(got, string(message.View(rec).Body()))
					limit.Below = message.View(rec).Position()
				}
			}
			assert.Equal(t, want, got, what)
			assert.Empty(t, queried(t, s, limit), "%s: the end", what)
		}
	})
}

func TestQueryKeyTakesStoreTimesToTheMillisecondBothBoundsIncluded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		s := mustOpen(t, cfg)
		start := time.Now()
		for i := range 300 { // times 0, 2, 4, ...
			b := s.NewBatch()
			require.NoError(t, b.Add(keyedRecord("T", fmt.Sprint(i), "", "k")))
			_, err := s.Append(t.Context(), b, AppendOptions{})
			require.NoError(t, err)
			time.Sleep(2 * time.Millisecond)
		}
		at := func(millis int, d time.Duration) time.Time {
			return start.Add(time.Duration(millis)*time.Millisecond + d)
		}
		for range 2 {
			for _, millis := range []int{0, 100, 198, 200, 202, 400, 598} {
				want := fmt.Sprint(millis / 2)
				for _, row := range []struct {
					from, to time.Time
					want     []string
				}{
					{at(millis, 0), at(millis, 0), []string{want}},
					{at(millis, -time.Nanosecond), at(millis, time.Nanosecond), []string{want}},
					{at(millis, time.Nanosecond), at(millis, time.Millisecond), nil},
					{at(millis, -time.Millisecond), at(millis, -time.Nanosecond), nil},
				} {
					assert.Equal(t, row.want, queried(t, s, KeyQuery{Topic: "T", Key: "k", From: row.from, To: row.to, Max: 10}), "%v to %v", row.from, row.to)
				}
				assert.Len(t, queried(t, s, KeyQuery{Topic: "T", Key: "k", From: at(millis, 0), Max: 1000}), 300-millis/2)
				assert.Len(t, queried(t, s, KeyQuery{Topic: "T", Key: "k", To: at(millis, 0), Max: 1000}), millis/2+1)
			}
			settle(t, s) // once more, with runs
			require.NotEmpty(t, s.index.view().runs)
		}
	})
}

func TestKeysAreFoundInTablesRunsAndAfterAnyEnd(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	for _, throwaway := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := indexConfig(t)
			cfg.Throwaway = throwaway
			l := &keyedLog{t: t, rng: rng}
			for _, end := range []func(*Store) error{(*Store).Close, (*Store).Kill, (*Store).Close, (*Store).Kill} {
				s := mustOpen(t, cfg)
				l.compare(s)
				require.NoError(t, s.Check(t.Context()))
				for range 4 {
					l.append(s, 60+rng.IntN(200))
					l.compare(s)
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
					l.compare(s)
					settle(t, s)
					l.compare(s)
					require.NoError(t, s.Check(t.Context()))
				}
				v := s.index.view()
				assert.Empty(t, v.sealed)
				assert.Greater(t, len(v.runs), 4)
				assert.Greater(t, len(s.index.files), 1)
				require.NoError(t, end(s))
			}
		})
	}
}

func TestOpenReadsNoKeysFromTheLogThatItsCheckpointCovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		s := mustOpen(t, cfg)
		l := &keyedLog{t: t, rng: newSeed(t)}
		l.append(s, 500)
		settle(t, s)
		l.append(s, 300) // sealed tables that are not runs yet, too
		before := s.index.view()
		require.NoError(t, s.Close())
		s = mustOpen(t, cfg)
		after := s.index.view()
		assert.Equal(t, s.Positions().Written, s.checkpointed.position.Load())
		require.GreaterOrEqual(t, len(after.runs), len(before.runs))
		for i, r := range before.runs {
			assert.Equal(t, r.keySpan, after.runs[i].keySpan)
		}
		l.compare(s)
	})
}

func TestIndexOfAnIdleStoreCostsNothing(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	b := s.NewBatch()
	require.NoError(t, b.Add(keyedRecord("T", "no key", "", "")))
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	assert.Nil(t, s.index.table.tail)
	assert.NoDirExists(t, filepath.Join(cfg.Dir, indexName))
	b = s.NewBatch()
	require.NoError(t, b.Add(keyedRecord("T", "a", "u", "k")))
	_, err = s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	assert.Equal(t, firstChunk, cap(s.index.table.tail))
	assert.NoDirExists(t, filepath.Join(cfg.Dir, indexName))
}

func TestTableIsSealedBeforeItsCountsWouldOverflow(t *testing.T) {
	var x keyIndex
	x.limit = 1000
	add := func(position, time int64, n int) {
		x.add(position, time, make([]uint32, n))
	}
	add(1, 1000, 1)
	add(1<<32, 1000, 1)
	require.Empty(t, x.sealed)
	add(1<<32+1, 1000, 1)
	require.Len(t, x.sealed, 1)
	add(1<<32+2, 1000+1<<32-1, 1)
	require.Len(t, x.sealed, 1)
	add(1<<32+3, 1000+1<<32, 1)
	require.Len(t, x.sealed, 2)
	add(1<<32+4, 5, 1) // a log whose times go back
	require.Len(t, x.sealed, 3)
	add(1<<32+5, 5, 5000) // all keys of a record in one table
	require.Len(t, x.sealed, 4)
	assert.Equal(t, 5001, x.sealed[3].entries)
	assert.Zero(t, x.table.entries)
}

func TestTableIsCutAtAnyPosition(t *testing.T) {
	var table keyTable
	for i := range 3000 {
		table.add(int64(10+i/3*2), int64(100+i/3), []uint32{uint32(i)})
	}
	for _, position := range []int64{0, 9, 10, 11, 12, 500, 2007, 2008, 2009, 3000} {
		cut := table.upTo(position)
		n := 0
		for _, piece := range cut.pieces() {
			for _, e := range piece {
				require.Equal(t, uint32(n), e.hash)
				n++
			}
		}
		want := min(3000, 3*int(max(0, (position-10)/2+1)))
		if position < 10 {
			want = 0
		}
		assert.Equal(t, want, n)
		assert.Equal(t, n, cut.entries)
		if n > 0 {
			assert.Equal(t, int64(10+(n-1)/3*2), cut.last)
			assert.Equal(t, int64(100+(n-1)/3), cut.lastTime)
		}
	}
}

func TestQueriesBesideAppendsSeeWhatWasAppendedBefore(t *testing.T) {
	t.Parallel()
	cfg := indexConfig(t)
	s := mustOpen(t, cfg)
	var wg sync.WaitGroup
	for sender := range 3 {
		wg.Go(func() {
			for i := range 400 {
				b := s.NewBatch()
				key := fmt.Sprintf("s%d-%d", sender, i)
				if err := b.Add(keyedRecord("T", key, key, "common")); err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Append(context.Background(), b, AppendOptions{}); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					if err := s.Sync(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
				for _, back := range []int{0, i / 2} {
					key := fmt.Sprintf("s%d-%d", sender, i-back)
					records, err := s.QueryKey(context.Background(), KeyQuery{Topic: "T", Key: key, Max: 5})
					if err != nil || len(records) != 1 || string(message.View(records[0]).Body()) != key {
						t.Errorf("key %s: %d records, %v", key, len(records), err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, queried(t, s, KeyQuery{Topic: "T", Key: "common", Max: 10_000}), 1200)
}

func TestQueryKeyEndsWithItsContextAndWithTheStore(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	b := s.NewBatch()
	require.NoError(t, b.Add(keyedRecord("T", "a", "u", "k")))
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.QueryKey(ctx, KeyQuery{Topic: "T", Key: "k"})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Close())
	_, err = s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: "k"})
	require.ErrorIs(t, err, ErrClosed)
}

func TestIndexThatCannotBeWrittenStaysInMemoryAndIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		s := mustOpen(t, cfg)
		blocker := filepath.Join(cfg.Dir, indexName)
		require.NoError(t, os.WriteFile(blocker, nil, 0o640)) // a file where the folder should be
		l := &keyedLog{t: t, rng: newSeed(t)}
		l.append(s, 500)
		settle(t, s)
		require.NoError(t, s.Err())
		waiting := s.index.unwritten()
		require.Positive(t, waiting)
		l.compare(s)
		require.NoError(t, s.Check(t.Context()))
		require.NoError(t, os.Remove(blocker))
		settle(t, s)
		assert.Len(t, s.index.view().runs, waiting)
		assert.Zero(t, s.index.unwritten())
		l.compare(s)
	})
}

func TestTooMuchIndexInMemoryFencesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := indexConfig(t)
		s := mustOpen(t, cfg)
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, indexName), nil, 0o640))
		l := &keyedLog{t: t, rng: newSeed(t)}
		for s.index.unwritten() <= maxUnwritten {
			require.NoError(t, s.Err())
			l.append(s, 50)
		}
		settle(t, s)
		require.ErrorIs(t, s.Err(), ErrFenced)
		l.compare(s)
		require.NoError(t, s.Kill())
		require.NoError(t, os.Remove(filepath.Join(cfg.Dir, indexName)))
		s = mustOpen(t, cfg)
		l.compare(s)
	})
}
