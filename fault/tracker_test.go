package fault

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var start = time.Unix(1_000, 0)

func TestAnUnknownBrokerIsAvailableAndReachable(t *testing.T) {
	for _, cfg := range []Config{{}, V5()} {
		tracker := NewTracker(cfg)
		assert.True(t, tracker.Available("a", start))
		assert.True(t, tracker.Reachable("a"))
		assert.Empty(t, tracker.Items())
		tracker.Remove("a")
		_, ok := tracker.PickAtLeastOne(start)
		assert.False(t, ok)
		assert.Empty(t, tracker.Due(start))
	}
}

func TestWithoutEnabledNothingIsRecorded(t *testing.T) {
	tracker := NewTracker(Config{Detect: true})
	tracker.Report("a", time.Hour, true, false, start)
	tracker.SetReachable("a", false)
	assert.Empty(t, tracker.Items())
	assert.True(t, tracker.Available("a", start))
	assert.True(t, tracker.Reachable("a"))
}

func TestItemsAreSortedAndTheCallers(t *testing.T) {
	tracker := NewTracker(V5())
	tracker.Report("c", 600*time.Millisecond, false, true, start)
	tracker.Report("a", 7*time.Millisecond, true, false, start)
	tracker.Report("b", time.Microsecond, false, true, start)
	want := []Item{
		{"a", 7 * time.Millisecond, start.Add(10 * time.Second), false},
		{"b", time.Microsecond, time.Time{}, true},
		{"c", 600 * time.Millisecond, start.Add(2 * time.Second), true},
	}
	items := tracker.Items()
	assert.Equal(t, want, items)
	items[0].Broker = "x"
	assert.Equal(t, want, tracker.Items())
	tracker.Remove("b")
	tracker.SetReachable("a", true)
	assert.Equal(t, []Item{{"a", 7 * time.Millisecond, start.Add(10 * time.Second), true}, want[2]}, tracker.Items())
	tracker.SetReachable("d", false)
	assert.False(t, tracker.Reachable("d"))
	assert.True(t, tracker.Available("d", start))
}

func TestObserveTellsWhatBeginsAnIsolation(t *testing.T) {
	tracker := NewTracker(V5())
	observe := func(at, latency time.Duration) time.Duration {
		until, began := tracker.Observe("a", latency, false, true, start.Add(at))
		if !began {
			return 0
		}
		return until.Sub(start)
	}
	const s = time.Second
	assert.Zero(t, observe(0, 100*time.Millisecond), "not slow")
	assert.Equal(t, 2*s, observe(0, 600*time.Millisecond))
	assert.Zero(t, observe(s, 600*time.Millisecond), "longer, to 3 s")
	assert.Zero(t, observe(2*s, 100*time.Millisecond), "not slow")
	assert.False(t, tracker.Available("a", start.Add(3*s-1)))
	assert.True(t, tracker.Available("a", start.Add(3*s)))
	assert.Equal(t, 5*s, observe(3*s, 600*time.Millisecond), "over, and again")
	tracker.Remove("a")
	assert.True(t, tracker.Available("a", start.Add(3*s)))
	assert.Equal(t, 5*s, observe(3*s, 600*time.Millisecond))
}

func TestOneOfManyReportsBeginsAnIsolation(t *testing.T) {
	tracker := NewTracker(V5())
	for round := range 200 {
		var began atomic.Int32
		var wg sync.WaitGroup
		now := start.Add(time.Duration(round) * time.Minute)
		for i := range 4 {
			wg.Go(func() {
				if _, ok := tracker.Observe("a", time.Duration(i)*time.Second, true, true, now.Add(time.Duration(i))); ok {
					began.Add(1)
				}
			})
		}
		wg.Wait()
		assert.Equal(t, int32(1), began.Load(), "round %d", round)
		assert.Equal(t, now.Add(3+10*time.Second), tracker.Items()[0].AvailableFrom)
	}
}

func TestConcurrentUseLosesNoBroker(t *testing.T) {
	tracker := NewTracker(Breaker())
	queues, next := queuesOf(2, "a", "b", "c", "d"), NewCounter(0)
	var wg sync.WaitGroup
	for i, broker := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for n := range 300 {
				now := start.Add(time.Duration(n) * time.Second)
				tracker.Report(broker, time.Duration(n), n%50 == i, n%2 == 0, now)
				_, ok := tracker.Select(queues, "a", next, now)
				assert.True(t, ok)
				tracker.PickAtLeastOne(now)
				tracker.Due(now)
				tracker.Available(broker, now)
				if n == 150 {
					tracker.Remove(broker)
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, tracker.Items(), 4)
}

func TestPickAtLeastOneGoesRoundTheReachableOnesBestFirst(t *testing.T) {
	tracker := NewTracker(V5())
	tracker.Report("gone", 0, false, false, start)
	tracker.Report("failed", 0, true, true, start)
	tracker.Report("slow", 100*time.Millisecond, false, true, start)
	tracker.Report("fast", time.Millisecond, false, true, start)
	for range 2 {
		for _, want := range []string{"fast", "slow", "failed"} {
			got, ok := tracker.PickAtLeastOne(start)
			assert.True(t, ok)
			assert.Equal(t, want, got)
		}
	}
}

func TestABrokerIsDueEveryTwoSeconds(t *testing.T) {
	tracker := NewTracker(V5())
	tracker.Report("b", 0, false, true, start)
	tracker.Report("a", 0, false, true, start)
	assert.Equal(t, []string{"a", "b"}, tracker.Due(start))
	tracker.Report("c", 0, false, true, start)
	assert.Equal(t, []string{"c"}, tracker.Due(start.Add(time.Second)))
	assert.Empty(t, tracker.Due(start.Add(2*time.Second-1)))
	assert.Equal(t, []string{"a", "b"}, tracker.Due(start.Add(2*time.Second)))
	assert.Equal(t, []string{"c"}, tracker.Due(start.Add(3*time.Second)))
}

func BenchmarkReport(b *testing.B) {
	b.Run("good", func(b *testing.B) {
		tracker := NewTracker(V5())
		b.ReportAllocs()
		for b.Loop() {
			tracker.Report("broker-a", time.Millisecond, false, true, start)
		}
	})
	b.Run("good, in parallel", func(b *testing.B) {
		tracker := NewTracker(V5())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tracker.Report("broker-a", time.Millisecond, false, true, start)
			}
		})
	})
}
