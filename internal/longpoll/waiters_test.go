package longpoll

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const suspend = 15 * time.Second

// start begins a Wait and returns when it is parked. It must run in a bubble.
func start(ctx context.Context, w *Waiters, topic string, queueID int, offset int64, match func(int64) bool) <-chan Outcome {
	done := make(chan Outcome, 1)
	go func() { done <- w.Wait(ctx, topic, queueID, offset, match, suspend, nil) }()
	synctest.Wait()
	return done
}

func ended(done <-chan Outcome) (Outcome, bool) {
	synctest.Wait()
	select {
	case o := <-done:
		return o, true
	default:
		return 0, false
	}
}

func requireOutcome(t *testing.T, want Outcome, done <-chan Outcome) {
	t.Helper()
	o, ok := ended(done)
	require.True(t, ok, "still held")
	require.Equal(t, want, o, "%v, not %v", o, want)
}

func requireHeld(t *testing.T, done <-chan Outcome) {
	t.Helper()
	o, ok := ended(done)
	require.False(t, ok, "%v", o)
}

func TestHeldPullEndsExactlyWhenItsTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begin := New(), time.Now()
		for range 3 { // the timer is reused
			assert.Equal(t, Timeout, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, func() bool { return false }))
		}
		assert.Equal(t, 3*suspend, time.Since(begin))
		assert.Zero(t, w.Held())
	})
}

func TestMessageAtOrAfterTheOffsetWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, arriving := range []int64{5, 6, 100} {
			w, begin := New(), time.Now()
			done := start(t.Context(), w, "orders", 3, 5, nil)
			assert.Equal(t, 1, w.Held())
			w.Notify("orders", 3, 4, 0) // before the offset
			w.Notify("orders", 2, arriving, 0)
			w.Notify("other", 3, arriving, 0)
			requireHeld(t, done)
			w.Notify("orders", 3, arriving, 0)
			requireOutcome(t, Arrived, done)
			assert.Zero(t, time.Since(begin))
			assert.Zero(t, w.Held())
		}
	})
}

func TestOnlyAMatchingMessageWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		done := start(t.Context(), w, "orders", 0, 5, func(code int64) bool { return code == 77 })
		w.Notify("orders", 0, 5, 76)
		w.Notify("orders", 0, 4, 77)
		requireHeld(t, done)
		w.Notify("orders", 0, 6, 77)
		requireOutcome(t, Arrived, done)
	})
}

func TestSeveralPullsOfOneQueueAreHeldSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		code := func(want int64) func(int64) bool { return func(c int64) bool { return c == want } }
		a := start(t.Context(), w, "orders", 0, 5, code(1))
		b := start(t.Context(), w, "orders", 0, 5, nil)
		c := start(t.Context(), w, "orders", 0, 9, nil)
		d := start(t.Context(), w, "orders", 0, 5, code(2))
		assert.Equal(t, 4, w.Held())
		w.Notify("orders", 0, 5, 2)
		requireHeld(t, a)
		requireOutcome(t, Arrived, b)
		requireHeld(t, c)
		requireOutcome(t, Arrived, d)
		w.Notify("orders", 0, 9, 1)
		requireOutcome(t, Arrived, a)
		requireOutcome(t, Arrived, c)
	})
}

func TestMessageThatSlippedInBeforeParkingIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begin := New(), time.Now()
		calls := 0
		assert.Equal(t, Arrived, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, func() bool { calls++; return true }))
		assert.Equal(t, 1, calls)
		// And one that is notified while ready looks.
		assert.Equal(t, Arrived, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, func() bool {
			w.Notify("orders", 0, 5, 0)
			return false
		}))
		assert.Equal(t, Arrived, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, func() bool {
			w.Notify("orders", 0, 5, 0)
			return true
		}))
		assert.Zero(t, time.Since(begin))
		assert.Equal(t, Timeout, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, nil), "nothing is left over in the reused place")
	})
}

func TestContextEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		ctx, cancel := context.WithCancel(t.Context())
		done := start(ctx, w, "orders", 0, 5, nil)
		cancel()
		requireOutcome(t, Canceled, done)
		assert.Equal(t, Canceled, w.Wait(ctx, "orders", 0, 5, nil, suspend, nil))
		assert.Equal(t, Timeout, w.Wait(t.Context(), "orders", 0, 5, nil, 0, nil))
		assert.Zero(t, w.Held())
	})
}

func TestCloseEndsAllWaitsNowAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		var waits []<-chan Outcome
		for i := range 100 {
			waits = append(waits, start(t.Context(), w, "orders", i%7, 5, nil))
		}
		w.Close()
		w.Close()
		for _, done := range waits {
			requireOutcome(t, Closed, done)
		}
		assert.Equal(t, Closed, w.Wait(t.Context(), "orders", 0, 5, nil, suspend, nil))
		w.Notify("orders", 0, 5, 0)
		assert.Zero(t, w.Held())
	})
}

func TestArrivalWinsOverATimeoutOfTheSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			w := New()
			done := make(chan Outcome, 1)
			go func() { done <- w.Wait(t.Context(), "orders", 0, 5, nil, suspend, nil) }()
			synctest.Wait()
			s := &w.shards[w.slot("orders", 0)%shards]
			s.mu.Lock() // both happen before the Wait can act
			p := s.queues[queue{"orders", 0}]
			s.unlinkLocked(queue{"orders", 0}, p, Arrived)
			s.mu.Unlock()
			time.Sleep(suspend)
			p.wake <- struct{}{}
			require.Equal(t, Arrived, <-done)
		}
	})
}

func TestThousandsOfWaitersWithAndWithoutFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begin := New(), time.Now()
		const queues, perQueue = 100, 50
		var arrived, timeouts atomic.Int64
		var wg sync.WaitGroup
		for q := range queues {
			for i := range perQueue {
				var match func(int64) bool
				if i%3 != 0 {
					match = func(code int64) bool { return code == int64(i%3) }
				}
				wg.Go(func() {
					switch w.Wait(t.Context(), "orders", q, 5, match, suspend, nil) {
					case Arrived:
						arrived.Add(1)
					case Timeout:
						timeouts.Add(1)
					}
				})
			}
		}
		synctest.Wait()
		assert.Equal(t, queues*perQueue, w.Held())
		for q := range queues {
			w.Notify("orders", q, 5, 1)
		}
		synctest.Wait()
		perCode := func(code int) int64 { // waiters with i%3 == code
			return int64(queues * ((perQueue - code + 2) / 3))
		}
		assert.Equal(t, perCode(0)+perCode(1), arrived.Load())
		assert.Zero(t, time.Since(begin))
		wg.Wait()
		assert.Equal(t, perCode(2), timeouts.Load())
		assert.Equal(t, suspend, time.Since(begin))
		for i := range w.shards {
			assert.Empty(t, w.shards[i].queues)
			assert.LessOrEqual(t, w.shards[i].nfree, maxFree)
		}
	})
}

// Many filtered waiters on one queue are asked in several rounds; waiters that
// leave between them, also the one where the next round begins, do not matter.
func TestFiltersMayEndOtherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 30 {
			w := New()
			n := 1 + rng.IntN(5*filtered)
			cancels, done, asked := make([]context.CancelFunc, n), make([]<-chan Outcome, n), make([]int, n)
			wants := make([]bool, n)
			for i := range n {
				wants[i] = rng.IntN(3) == 0
				leaves := rng.IntN(n)
				ctx, cancel := context.WithCancel(t.Context())
				cancels[i] = cancel
				done[i] = start(ctx, w, "orders", 0, 0, func(int64) bool {
					asked[i]++
					if leaves > n/2 {
						cancels[leaves]()
						synctest.Wait()
					}
					return wants[i]
				})
			}
			w.Notify("orders", 0, 0, 0)
			for i := range n {
				assert.LessOrEqual(t, asked[i], 1)
				if o, ok := ended(done[i]); ok {
					assert.True(t, o == Canceled || o == Arrived && wants[i], "%v", o)
				} else {
					assert.False(t, wants[i])
					assert.Equal(t, 1, asked[i])
				}
			}
			w.Close()
		}
	})
}

// Writers and readers of a few queues race for real; a lost wake-up would show
// as virtual time that passes.
func TestNoWakeUpIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begin := New(), time.Now()
		const queues, readers, messages = 3, 4, 2_000
		var end [queues]atomic.Int64
		var wg sync.WaitGroup
		for q := range queues {
			for r := range readers {
				var match func(int64) bool
				if r%2 == 1 {
					match = func(code int64) bool { return code == 1 }
				}
				wg.Go(func() {
					for at := int64(0); at < messages; {
						if now := end[q].Load(); now > at {
							at = now
							continue
						}
						o := w.Wait(t.Context(), "orders", q, at, match, suspend, func() bool { return end[q].Load() > at })
						assert.Equal(t, Arrived, o)
					}
				})
			}
			wg.Go(func() {
				for i := range int64(messages) {
					end[q].Store(i + 1)
					w.Notify("orders", q, i, 1)
				}
			})
		}
		wg.Wait()
		assert.Zero(t, time.Since(begin))
		assert.Zero(t, w.Held())
	})
}

func TestConcurrentEverything(t *testing.T) {
	w := New()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 0))
			for range 300 {
				q := rng.IntN(2)
				switch rng.IntN(4) {
				case 0:
					w.Wait(ctx, "orders", q, 0, nil, time.Microsecond, nil)
				case 1:
					w.Wait(ctx, "orders", q, 0, func(c int64) bool { return c == 1 }, 50*time.Microsecond, func() bool { return rng.IntN(3) == 0 })
				default:
					w.Notify("orders", q, 0, int64(rng.IntN(2)))
				}
			}
		})
	}
	wg.Go(func() {
		w.Wait(ctx, "orders", 0, 1, nil, time.Hour, nil)
		cancel()
	})
	wg.Go(w.Close)
	wg.Wait()
	cancel()
	assert.Zero(t, w.Held())
}

func TestNotifyAndSteadyWaitsDoNotAllocate(t *testing.T) {
	w := New()
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Notify("orders", 0, 1, 1) }))
	var wg sync.WaitGroup
	parked := make(chan struct{})
	for i := range 100 {
		wg.Go(func() {
			w.Wait(t.Context(), "orders", i, 0, func(int64) bool { return false }, time.Hour, func() bool { parked <- struct{}{}; return false })
		})
	}
	for range 100 {
		<-parked
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Notify("orders", 5, 1, 1) }), "a filter says no")
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Notify("none waits", 5, 1, 1) }))
	ready := func() bool { return true }
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Wait(t.Context(), "orders", 1_000, 0, nil, time.Hour, ready) }), "places are reused")
	w.Close()
	wg.Wait()
}

func TestOutcomesHaveNames(t *testing.T) {
	assert.Equal(t, "arrived timeout canceled closed", fmt.Sprint(Arrived, " ", Timeout, " ", Canceled, " ", Closed))
}

func benchmarkHeld(b *testing.B, n int) *Waiters {
	w := New()
	var wg sync.WaitGroup
	parked := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			w.Wait(b.Context(), "others", i, 0, nil, time.Hour, func() bool { parked <- struct{}{}; return false })
		})
	}
	for range n {
		<-parked
	}
	b.Cleanup(func() { w.Close(); wg.Wait() })
	return w
}

func BenchmarkNotify(b *testing.B) {
	for _, held := range []int{0, 1, 16, 10_000} {
		b.Run(fmt.Sprintf("%d held elsewhere", held), func(b *testing.B) {
			w := benchmarkHeld(b, held)
			b.ReportAllocs()
			for b.Loop() {
				w.Notify("orders", 3, 1, 0)
			}
		})
	}
	b.Run("one filtered here", func(b *testing.B) {
		w := New()
		var wg sync.WaitGroup
		parked := make(chan struct{})
		wg.Go(func() {
			w.Wait(b.Context(), "orders", 3, 0, func(int64) bool { return false }, time.Hour, func() bool { close(parked); return false })
		})
		<-parked
		b.ReportAllocs()
		for b.Loop() {
			w.Notify("orders", 3, 1, 0)
		}
		w.Close()
		wg.Wait()
	})
}

// One round of a tailing consumer: wait, be woken by a message.
func BenchmarkWaitAndNotify(b *testing.B) {
	w := New()
	var end atomic.Int64
	var wg sync.WaitGroup
	turn := make(chan struct{}, 1)
	wg.Go(func() {
		for at := int64(0); ; at++ {
			ready := func() bool {
				select {
				case turn <- struct{}{}:
				default:
				}
				return end.Load() > at
			}
			if w.Wait(b.Context(), "orders", 0, at, nil, time.Hour, ready) != Arrived {
				return
			}
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		<-turn
		at := end.Add(1) - 1
		w.Notify("orders", 0, at, 0)
	}
	w.Close()
	wg.Wait()
}

func TestRouseEndsEveryWaitOfTheQueueAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New()
		never := func(int64) bool { return false }
		a := start(t.Context(), w, "orders", 0, 5, nil)
		b := start(t.Context(), w, "orders", 0, 50, never)
		other := start(t.Context(), w, "orders", 1, 5, nil)
		w.Rouse("orders", 0)
		requireOutcome(t, Roused, a)
		requireOutcome(t, Roused, b)
		requireHeld(t, other)
		w.Rouse("nobody", 0)
		again := start(t.Context(), w, "orders", 0, 5, nil)
		requireHeld(t, again)
		w.Notify("orders", 0, 5, 0)
		requireOutcome(t, Arrived, again)
		w.Close()
		requireOutcome(t, Closed, other)
	})
}
