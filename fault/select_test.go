package fault

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// picks are the brokers of n selections.
func picks(t *testing.T, tracker *Tracker, queues []message.Queue, last string, next *Counter, now time.Time, n int) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for range n {
		q, ok := tracker.Select(queues, last, next, now)
		require.True(t, ok)
		out[q.BrokerName]++
	}
	return out
}

func TestNoQueuesNothingToSelect(t *testing.T) {
	for _, cfg := range []Config{{}, V5(), Breaker()} {
		tracker := NewTracker(cfg)
		tracker.Report("a", 0, true, true, start)
		for _, queues := range [][]message.Queue{nil, {}} {
			_, ok := tracker.Select(queues, "a", NewCounter(0), start)
			assert.False(t, ok)
		}
	}
}

// model is Select without a turn: the brokers that it may choose.
func model(cfg Config, tracker *Tracker, brokers []string, last string, now time.Time) []string {
	choose := func(good func(string) bool) []string {
		return slices.DeleteFunc(slices.Clone(brokers), func(b string) bool { return b == last || !good(b) })
	}
	var isolated []string
	for _, b := range brokers {
		if !tracker.Available(b, now) {
			isolated = append(isolated, b)
		}
	}
	var spared []string
	if cfg.MaxIsolated > 0 {
		limit := max(1, int(math.Floor(cfg.MaxIsolated*float64(len(brokers)))))
		slices.SortFunc(isolated, func(a, b string) int {
			return (*tracker.table.Load())[a].isolated.Load().since.Compare((*tracker.table.Load())[b].isolated.Load().since)
		})
		spared = isolated[:max(0, len(isolated)-limit)]
	}
	if out := choose(func(b string) bool { return tracker.Available(b, now) || slices.Contains(spared, b) }); len(out) > 0 {
		return out
	}
	if out := choose(tracker.Reachable); len(out) > 0 {
		return out
	}
	return brokers
}

// Whatever is in the table, in the route and in the counter: the choice is one
// of the best step that has any, the last broker comes again only when nothing
// else can be reached, and the route stays as it was.
func TestFT01_FT02_SelectionIsThatOfTheThreeSteps(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	starts := []int32{math.MaxInt32, math.MinInt32, -1, 0}
	for range 5_000 {
		cfg := V5()
		if rng.IntN(2) == 0 {
			cfg.MaxIsolated = rng.Float64()
		}
		tracker, now := NewTracker(cfg), start
		all := []string{"a", "b", "c", "d", "e"}[:1+rng.IntN(5)]
		for i := range rng.IntN(12) {
			tracker.Report(all[rng.IntN(len(all))], time.Duration(rng.IntN(1000))*time.Millisecond, rng.IntN(3) == 0, rng.IntN(3) > 0, now)
			now = now.Add(time.Duration(rng.IntN(4_000)+i) * time.Millisecond)
		}
		queues := queuesOf(1+rng.IntN(3), all...)
		if rng.IntN(2) == 0 {
			rng.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		}
		given := slices.Clone(queues)
		last := []string{"", "a", "b", "unknown"}[rng.IntN(4)]
		next := NewCounter(starts[rng.IntN(len(starts))] + int32(rng.IntN(60)) - 30)
		want := model(cfg, tracker, all, last, now)
		for range 4 {
			q, ok := tracker.Select(queues, last, next, now)
			require.True(t, ok)
			require.Contains(t, want, q.BrokerName, "last %q, table %+v at %v", last, tracker.Items(), now)
			require.Contains(t, queues, q)
		}
		require.Equal(t, given, queues)
	}
}

func TestFT02_SelectionNeverChangesTheRouteAndSpreadsAfterRecovery(t *testing.T) {
	tracker, next := NewTracker(V5()), NewCounter(math.MaxInt32-200)
	queues := queuesOf(2, "a", "b")
	given := slices.Clone(queues)
	tracker.Report("a", 0, true, false, start)
	tracker.Report("b", 0, true, false, start)
	spread := func(total int, now time.Time) map[message.Queue]int {
		var mu sync.Mutex
		n := make(map[message.Queue]int)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range total / 8 {
					q, _ := tracker.Select(queues, "", next, now)
					mu.Lock()
					n[q]++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return n
	}
	assert.Len(t, spread(64, start), 4, "nobody is any good: all are used")
	n := spread(400, start.Add(10*time.Second))
	for _, q := range given {
		assert.InDelta(t, 100, n[q], 20, "%v", q)
	}
	assert.Equal(t, given, queues)
}

func TestConcurrentSelectionsNeverTakeAnIsolatedBroker(t *testing.T) {
	tracker, next := NewTracker(V5()), NewCounter(math.MaxInt32-2_000)
	tracker.Report("a", 0, true, true, start)
	queues := queuesOf(3, "a", "b")
	var wrong atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2_000 {
				if q, _ := tracker.Select(queues, "", next, start); q.BrokerName == "a" {
					wrong.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.Zero(t, wrong.Load())
}

func TestBeyondTheLimitTheOneIsolatedLongestIsUsedAgain(t *testing.T) {
	cfg := Breaker()
	tracker, next := NewTracker(cfg), NewCounter(0)
	queues := queuesOf(2, "a", "b", "c", "d")
	all := func(now time.Time, last string) map[string]int {
		return picks(t, tracker, queues, last, next, now, 120)
	}
	now := start
	tracker.Report("b", 0, true, true, now)
	got := all(now, "")
	assert.NotContains(t, got, "b", "1 of 4 may be isolated")
	assert.Len(t, got, 3)

	now = now.Add(time.Second)
	tracker.Report("c", time.Second, false, true, now)
	got = all(now, "")
	assert.NotContains(t, got, "c")
	assert.GreaterOrEqual(t, got["b"], 30, "isolated longest: its share of calls")
	assert.False(t, tracker.Available("b", now), "which the table still shows as isolated")
	assert.NotContains(t, all(now, "b"), "b", "but not as the next attempt of a send that failed there")

	now = now.Add(time.Second)
	tracker.Report("b", 0, true, true, now)
	got = all(now, "")
	assert.NotContains(t, got, "b", "bad again: the other one's turn")
	assert.Contains(t, got, "c")

	now = now.Add(time.Second)
	tracker.Report("d", 0, true, true, now)
	got = all(now, "")
	assert.NotContains(t, got, "d", "3 of 4: the two isolated longest are used")
	assert.Len(t, got, 3)

	now = start.Add(time.Second + time.Minute)
	got = all(now, "")
	assert.Contains(t, got, "c", "its minute is over")
	assert.Contains(t, got, "b", "b and d are isolated, b longer")
	assert.NotContains(t, got, "d")

	// What counts is the route, not the table.
	assert.Equal(t, map[string]int{"b": 10}, picks(t, tracker, queuesOf(2, "b", "d"), "", next, now, 10))
}

func TestTheLimitHoldsForRoutesOfAnySizeAndOrder(t *testing.T) {
	cfg := Breaker()
	tracker, next := NewTracker(cfg), NewCounter(0)
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("broker-%02d", i))
	}
	for i, name := range names[:20] {
		tracker.Report(name, 0, true, true, start.Add(time.Duration(i)*time.Millisecond))
	}
	queues := queuesOf(2, names...)
	slices.SortStableFunc(queues, func(a, b message.Queue) int { return a.QueueID - b.QueueID }) // broker-00:0 broker-01:0 ...
	got := picks(t, tracker, queues, "", next, start.Add(time.Second), 1_000)
	assert.Len(t, got, 35, "15 of 50 are avoided")
	for i, name := range names {
		assert.Equal(t, i < 5 || i >= 20, got[name] > 0, name)
	}
}

// tables are trackers of a route of four brokers in states that cost
// differently.
func tables() map[string]*Tracker {
	out := make(map[string]*Tracker)
	for name, cfg := range map[string]Config{"off": {}, "calm": V5(), "one isolated": V5(), "two isolated of one allowed": Breaker()} {
		out[name] = NewTracker(cfg)
	}
	out["calm"].Report("a", 0, true, true, start.Add(-time.Hour))
	out["one isolated"].Report("a", 0, true, true, start)
	out["two isolated of one allowed"].Report("a", 0, true, true, start)
	out["two isolated of one allowed"].Report("b", 0, true, true, start.Add(time.Second))
	return out
}

func TestSelectDoesNotAllocate(t *testing.T) {
	queues, next := queuesOf(4, "a", "b", "c", "d"), NewCounter(0)
	for name, tracker := range tables() {
		assert.Zero(t, testing.AllocsPerRun(100, func() { tracker.Select(queues, "d", next, start.Add(time.Second)) }), name)
	}
	tracker := NewTracker(V5())
	tracker.Report("a", 0, false, true, start)
	assert.Zero(t, testing.AllocsPerRun(100, func() { tracker.Report("a", time.Millisecond, false, true, start) }))
}

func BenchmarkSelect(b *testing.B) {
	queues := queuesOf(4, "a", "b", "c", "d")
	for name, tracker := range tables() {
		b.Run(name, func(b *testing.B) {
			next, now := NewCounter(0), start.Add(time.Second)
			b.ReportAllocs()
			for b.Loop() {
				tracker.Select(queues, "", next, now)
			}
		})
	}
}
