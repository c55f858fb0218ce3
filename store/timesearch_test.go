package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func offsetAt(t testing.TB, s *Store, queue int, millis int64, b Boundary) int64 {
	t.Helper()
	offset, err := s.OffsetByTime("T", queue, time.UnixMilli(millis), b)
	require.NoError(t, err)
	return offset
}

// wantOffset is what protocol says about SEARCH_OFFSET_BY_TIMESTAMP, by looking
// at every record. times[i] is that of offset min+i.
func wantOffset(times []int64, min, millis int64, b Boundary) int64 {
	if b == LowerBoundary {
		for i, t := range times {
			if t >= millis {
				return min + int64(i)
			}
		}
		return min + int64(len(times))
	}
	for i := len(times) - 1; i >= 0; i-- {
		if times[i] <= millis {
			return min + int64(i)
		}
	}
	return min
}

func TestOffsetsByTimeAreThoseOfALookAtEveryRecord(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		times := map[int][]int64{}
		check := func() {
			first, last := times[0][0], times[0][len(times[0])-1]
			for queue, list := range times {
				for millis := first - 2; millis <= last+2; millis++ {
					for _, b := range []Boundary{LowerBoundary, UpperBoundary} {
						require.Equal(t, wantOffset(list, 0, millis, b), offsetAt(t, s, queue, millis, b), "queue %d time %d %v", queue, millis-first, b)
					}
				}
				for offset, millis := range list {
					got, err := s.StoreTime("T", queue, int64(offset))
					require.NoError(t, err)
					require.Equal(t, millis, got.UnixMilli())
				}
				earliest, err := s.EarliestStoreTime("T", queue)
				require.NoError(t, err)
				require.Equal(t, list[0], earliest.UnixMilli())
			}
		}
		for i := range 700 {
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			queue := rng.IntN(3)
			if i == 0 {
				queue = 0
			}
			n := 1 + rng.IntN(2)
			a := put(t, s, "T", queue, numbered(strings.Repeat("x", rng.IntN(90)), n)...)
			require.Equal(t, time.Now().UnixMilli(), a.StoreTime.UnixMilli())
			for range n {
				times[queue] = append(times[queue], a.StoreTime.UnixMilli())
			}
			if rng.IntN(10) == 0 { // takes no place in any queue
				r := record("T", queue, "prepared", "")
				r.SysFlag = message.FlagTransactionPrepared
				b := s.NewBatch()
				require.NoError(t, b.Add(r))
				_, err := s.Append(t.Context(), b, AppendOptions{})
				require.NoError(t, err)
			}
		}
		require.Greater(t, len(segments(t, cfg.Dir)), 20)
		check() // from the memory of the wals
		mustClose(t, s)
		s = mustOpen(t, cfg)
		check() // from disk
		mustClose(t, s)
		_, err := s.OffsetByTime("T", 0, time.Now(), LowerBoundary)
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestBoundariesOfATimeSearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, testConfig(t))
		at := func(d time.Duration, b Boundary, queue int) int64 {
			offset, err := s.OffsetByTime("T", queue, time.Now().Add(d), b)
			require.NoError(t, err)
			return offset
		}
		assert.Zero(t, at(0, LowerBoundary, 7), "an unknown queue")
		assert.Zero(t, at(0, UpperBoundary, 7), "an unknown queue")
		r := record("T", 1, "prepared only", "")
		r.SysFlag = message.FlagTransactionPrepared
		b := s.NewBatch()
		require.NoError(t, b.Add(r))
		_, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
		assert.Zero(t, at(0, LowerBoundary, 1), "an empty queue")
		assert.Zero(t, at(0, UpperBoundary, 1), "an empty queue")

		time.Sleep(time.Second + 300*time.Microsecond)
		put(t, s, "T", 0, "0", "1") // both at one time
		time.Sleep(10 * time.Millisecond)
		put(t, s, "T", 0, "2")
		assert.Equal(t, int64(0), at(-10*time.Millisecond, LowerBoundary, 0), "the first of several")
		assert.Equal(t, int64(1), at(-10*time.Millisecond, UpperBoundary, 0), "the last of several")
		assert.Equal(t, int64(2), at(-9*time.Millisecond, LowerBoundary, 0))
		assert.Equal(t, int64(1), at(-time.Millisecond, UpperBoundary, 0))
		assert.Equal(t, int64(2), at(600*time.Microsecond, LowerBoundary, 0), "the same millisecond")
		assert.Equal(t, int64(1), at(-time.Millisecond, UpperBoundary, 0))
		assert.Equal(t, int64(3), at(time.Millisecond, LowerBoundary, 0), "after the last: max")
		assert.Equal(t, int64(2), at(time.Hour, UpperBoundary, 0), "after the last: the last")
		assert.Equal(t, int64(0), at(-time.Hour, LowerBoundary, 0), "before the first: min")
		assert.Equal(t, int64(0), at(-time.Hour, UpperBoundary, 0), "none so early: min")
		for _, millis := range []int64{math.MinInt64, math.MinInt64 + 1, 0, -1} {
			assert.Equal(t, int64(0), offsetAt(t, s, 0, millis, LowerBoundary))
			assert.Equal(t, int64(0), offsetAt(t, s, 0, millis, UpperBoundary))
		}
		for _, millis := range []int64{math.MaxInt64, math.MaxInt64 - 1} {
			assert.Equal(t, int64(3), offsetAt(t, s, 0, millis, LowerBoundary))
			assert.Equal(t, int64(2), offsetAt(t, s, 0, millis, UpperBoundary))
		}
		assert.Equal(t, "LOWER", LowerBoundary.String())
		assert.Equal(t, "UPPER", UpperBoundary.String())
	})
}

func TestStoreTimesOfPlacesWithoutARecord(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, "a", "b")
	for _, id := range []QueueID{{"T", 1}, {"U", 0}} {
		_, err := s.StoreTime(id.Topic, id.ID, 0)
		require.ErrorIs(t, err, ErrNoRecord)
		_, err = s.EarliestStoreTime(id.Topic, id.ID)
		require.ErrorIs(t, err, ErrNoRecord)
	}
	for _, offset := range []int64{-1, 2, math.MinInt64, math.MaxInt64} {
		_, err := s.StoreTime("T", 0, offset)
		require.ErrorIs(t, err, ErrNoRecord)
		assert.Contains(t, err.Error(), "0 to 1")
	}
	mustClose(t, s)
	_, err := s.StoreTime("T", 0, 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.EarliestStoreTime("T", 0)
	require.ErrorIs(t, err, ErrClosed)
}

// A queue that begins at an offset above 0, with units whose record is lost.
func TestATimeSearchPassesOverUnitsWithoutARecord(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, testConfig(t))
		const first = 1000
		var times []int64 // of all offsets: a lost one has that of the next
		q := &queue{key: QueueID{"L", 0}}
		lost := 0
		add := func(u unit) {
			require.NoError(t, q.place(&s.extents, first+int64(len(times)+lost), u, true))
		}
		for i := range 300 {
			time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			a := put(t, s, "T", 0, fmt.Sprint(i))
			if i < 3 || rng.IntN(3) == 0 {
				add(unit{position: a.Position})
				lost++
				continue
			}
			add(unit{position: a.Position, size: 1})
			for ; lost >= 0; lost-- {
				times = append(times, a.StoreTime.UnixMilli())
			}
			lost = 0
		}
		v := q.view()
		v.tail = v.tail[:len(v.tail)-lost*unitSize]
		for millis := times[0] - 1; millis <= times[len(times)-1]+1; millis++ {
			got, err := s.firstNotBefore(q, millis)
			require.NoError(t, err)
			require.Equal(t, wantOffset(times, first, millis, LowerBoundary), got)
		}
		v = q.view()
		_, err := s.storeTimeOf(q, &v, first)
		require.ErrorIs(t, err, ErrNoRecord)
		require.NoError(t, s.Close())
	})
}

func TestTheFirstRecordsOfFilesNarrowATimeSearchDownToOneFile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		start := time.Now()
		for range 2000 {
			put(t, s, "T", 0, strings.Repeat("x", 100))
			time.Sleep(time.Millisecond)
		}
		mustClose(t, s)
		s = mustOpen(t, cfg)
		files := *s.log.files.Load()
		require.Greater(t, len(files), 50)
		assert.Equal(t, int64(1234), offsetAt(t, s, 0, start.UnixMilli()+1234, LowerBoundary))
		indexed := 0
		for _, f := range files {
			if f.index.Load() != nil {
				indexed++
			}
		}
		assert.LessOrEqual(t, indexed, 1)
		mustClose(t, s)
	})
}

func TestATimeSearchReportsDamageByNameAndDoesNotGuess(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	for range 100 {
		put(t, s, "T", 0, strings.Repeat("x", 100))
	}
	require.NoError(t, s.Sync(t.Context()))
	path := segments(t, cfg.Dir)[1]
	_, at := lastEntry(t, path)
	flip(t, path, at-1)
	last := baseOf(t, segments(t, cfg.Dir)[2]) - 2 // offset of the damaged record
	_, err := s.StoreTime("T", 0, last)
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), path)
	assert.False(t, s.stale.Load(), "the queues are not to blame")
	require.NoError(t, s.Close())
}

func TestRecordsByPosition(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	_, err := s.Record(1)
	require.ErrorIs(t, err, ErrNoRecord, "an empty log")
	const n = 400
	for i := range n {
		put(t, s, "T", i%3, fmt.Sprint(i+1, strings.Repeat("x", i%150)))
	}
	require.NoError(t, s.Sync(t.Context()))
	check := func() {
		for i := range n {
			rec, err := s.Record(int64(i + 1))
			require.NoError(t, err)
			require.Equal(t, len(rec), cap(rec))
			v, err := message.ParseView(rec)
			require.NoError(t, err)
			require.NoError(t, v.CheckBody())
			require.Equal(t, int64(i+1), v.Position())
			require.Equal(t, fmt.Sprint(i+1, strings.Repeat("x", i%150)), string(v.Body()))
		}
		for _, position := range []int64{0, -1, n + 1, math.MinInt64, math.MaxInt64} {
			_, err := s.Record(position)
			require.ErrorIs(t, err, ErrNoRecord)
			assert.Contains(t, err.Error(), "1 to 400")
		}
	}
	check()
	mustClose(t, s)
	s = mustOpen(t, cfg)
	check()
	mustClose(t, s)
	_, err = s.Record(1)
	require.ErrorIs(t, err, ErrClosed)
}

// Readers of records and times beside appends, rolls and the end of the store.
func TestReadersBesideAppendsRollsAndClose(t *testing.T) {
	t.Parallel()
	for _, end := range []func(*Store) error{(*Store).Close, (*Store).Kill} {
		s := mustOpen(t, testConfig(t))
		put(t, s, "T", 0, "first")
		ctx, cancel := context.WithCancel(t.Context())
		var readers, writers sync.WaitGroup
		for i := range 4 {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			readers.Go(func() {
				for {
					pos := s.Positions()
					want := pos.Min + rng.Int64N(pos.Written-pos.Min+1)
					rec, err := s.Record(want)
					if err == nil && message.View(rec).Position() != want {
						t.Errorf("record %d says it is %d", want, message.View(rec).Position())
					}
					var at time.Time
					offset := int64(0)
					if err == nil {
						offset = rng.Int64N(s.MaxOffset("T", 0))
						at, err = s.StoreTime("T", 0, offset)
					}
					if err == nil {
						var found int64
						found, err = s.OffsetByTime("T", 0, at, Boundary(rng.IntN(2)))
						if same, e := s.StoreTime("T", 0, found); err == nil && e == nil && !same.Equal(at) {
							t.Errorf("offset %d of %v was stored at %v", found, at, same)
						}
					}
					if err != nil {
						assert.ErrorIs(t, err, ErrClosed)
						return
					}
				}
			})
		}
		for range 2 {
			writers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					_, err := s.Append(context.Background(), batchOf(t, s, "T", 0, numbered(strings.Repeat("x", 100), 1+i%9)...), AppendOptions{})
					if err != nil {
						assert.ErrorIs(t, err, ErrClosed)
						return
					}
				}
			})
		}
		for s.log.fileCount() < rounds(150) {
			require.NoError(t, s.Sync(t.Context()))
		}
		require.NoError(t, end(s))
		readers.Wait()
		cancel()
		writers.Wait()
	}
}

func TestTimesBeyondMillisecondsAreTheNearestThereAre(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, "m0", "m1", "m2")
	last := time.Unix(1<<63-62135596801, 999999999)
	first := time.Unix(-1<<63+62135596801, 0)
	for _, row := range []struct {
		at   time.Time
		b    Boundary
		want int64
	}{{last, LowerBoundary, 3}, {last, UpperBoundary, 2}, {first, LowerBoundary, 0}, {first, UpperBoundary, 0}} {
		got, err := s.OffsetByTime("T", 0, row.at, row.b)
		require.NoError(t, err)
		assert.Equal(t, row.want, got, "%v %v", row.at, row.b)
	}
	for _, q := range []KeyQuery{{To: last}, {From: first}, {From: first, To: last}} {
		q.Topic, q.Key = "T", keyOf("m1")
		found, err := s.QueryKey(t.Context(), q)
		require.NoError(t, err)
		assert.Len(t, found, 1, "%v", q)
	}
	found, err := s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: keyOf("m1"), From: last})
	require.NoError(t, err)
	assert.Empty(t, found)
}

// A salvage may leave a great many units without a record in a row.
func TestALongGapIsPassedOverOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m0")
	const lost = 500 * blockUnits
	q := s.queues.get(QueueID{"T", 0})
	for i := range int64(lost) {
		require.NoError(t, q.place(&s.extents, 1+i, unit{position: 1}, false))
	}
	v := q.view()
	reads := func(f func()) (n int) {
		// Each block that is read takes the place of another.
		before := make(map[*readBlock]bool)
		for i := range s.extents.recent {
			before[s.extents.recent[i].Load()] = true
		}
		f()
		for i := range s.extents.recent {
			if !before[s.extents.recent[i].Load()] {
				n++
			}
		}
		return n
	}
	var skip skipper
	assert.Equal(t, len(s.extents.recent), reads(func() {
		next, err := s.nextRecord(q, &v, 1, v.max(), &skip)
		require.NoError(t, err)
		assert.Equal(t, v.max(), next)
	}))
	assert.Zero(t, reads(func() {
		for from := int64(1); from < lost; from += 1000 {
			next, err := s.nextRecord(q, &v, from, v.max(), &skip)
			require.NoError(t, err)
			assert.Equal(t, v.max(), next)
		}
	}), "what was passed over is not read again")
	at, err := s.OffsetByTime("T", 0, time.Now().Add(time.Hour), LowerBoundary)
	require.NoError(t, err)
	assert.Equal(t, int64(1), at, "as if nothing were behind")
	require.NoError(t, s.Kill())
}
