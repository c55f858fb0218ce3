package consume

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// changes collects what OnRebalanced reports.
type changes struct {
	mu   sync.Mutex
	list []Rebalanced
}

func (c *changes) add(r Rebalanced) { c.mu.Lock(); c.list = append(c.list, r); c.mu.Unlock() }

func (c *changes) last() Rebalanced {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		return Rebalanced{}
	}
	return c.list[len(c.list)-1]
}

func TestNoticeRebalancesInTheSameInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 2)
		w.topic(testTopic, "b", 2)
		seen := new(changes)
		e1, _ := w.member("c1", new(inbox), func(c *Config) { c.OnRebalanced = seen.add })
		start(t, e1)
		all := []message.Queue{queueOf("a", 0), queueOf("a", 1), queueOf("b", 0), queueOf("b", 1)}
		assert.Equal(t, all, e1.Assignment())
		assert.Equal(t, Rebalanced{Topic: testTopic, After: all, Reason: "start"}, seen.last())

		time.Sleep(3 * time.Second)
		now := time.Now()
		e2, c2 := w.member("c2", new(inbox), nil)
		require.NoError(t, e2.Start(t.Context()))
		synctest.Wait()
		assert.Equal(t, now, time.Now())
		assert.Equal(t, all[:2], e1.Assignment())
		assert.Equal(t, all[2:], e2.Assignment())
		assert.Equal(t, Rebalanced{Topic: testTopic, Before: all, After: all[:2], Reason: "members changed"}, seen.last())

		require.NoError(t, e2.Close())
		synctest.Wait()
		assert.Equal(t, now, time.Now())
		assert.Equal(t, all, e1.Assignment())
		assert.Empty(t, e2.Assignment())
		assert.Zero(t, c2.watching(testTopic))
	})
}

func TestLostNoticeIsRepairedAtTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		w.mute = true
		seen := new(changes)
		e1, _ := w.member("c1", new(inbox), func(c *Config) { c.OnRebalanced = seen.add })
		began := time.Now()
		start(t, e1)
		time.Sleep(7 * time.Second)
		e2, _ := w.member("c2", new(inbox), nil)
		start(t, e2)
		time.Sleep(13*time.Second - 1)
		synctest.Wait()
		assert.Len(t, e1.Assignment(), 2)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, 20*time.Second, time.Since(began))
		assert.Len(t, e1.Assignment(), 1)
		assert.Equal(t, "periodic", seen.last().Reason)
	})
}

func TestTriggersAreServedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		var inside, most, rounds atomic.Int64
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Strategy = strategyFunc(func(queues []message.Queue, _ []string) ([]message.Queue, error) {
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer inside.Add(-1)
				rounds.Add(1)
				time.Sleep(10 * time.Millisecond)
				return queues, nil
			})
		})
		start(t, e)
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%5) * time.Millisecond)
				if i%2 == 0 {
					e.MembersChanged()
				} else {
					e.RoutesChanged([]string{"other", testTopic})
				}
			})
		}
		wg.Wait()
		e.RoutesChanged([]string{"other"})
		time.Sleep(time.Second)
		assert.EqualValues(t, 1, most.Load())
		assert.EqualValues(t, 3, rounds.Load(), "the start, the first trigger, and one for all that came meanwhile")
	})
}

// strategyFunc is a strategy out of a function.
type strategyFunc func(queues []message.Queue, members []string) ([]message.Queue, error)

func (strategyFunc) Name() string { return "TEST" }
func (f strategyFunc) Allocate(_, _ string, queues []message.Queue, members []string) ([]message.Queue, error) {
	return f(queues, members)
}

func TestStrategyFaultsKeepWhatIsHeld(t *testing.T) {
	faults := map[string]func(queues []message.Queue) ([]message.Queue, error){
		"error":         func([]message.Queue) ([]message.Queue, error) { return nil, errors.New("no idea") },
		"panic":         func([]message.Queue) ([]message.Queue, error) { panic("strategy bug") },
		"foreign queue": func(q []message.Queue) ([]message.Queue, error) { return append(q, queueOf("z", 9)), nil },
		"queue twice":   func(q []message.Queue) ([]message.Queue, error) { return []message.Queue{q[0], q[0]}, nil },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				var broken atomic.Bool
				log := new(lines)
				e, c := w.member("c1", new(inbox), func(c *Config) {
					c.Logger = log.logger()
					c.Strategy = strategyFunc(func(queues []message.Queue, _ []string) ([]message.Queue, error) {
						slices.Reverse(queues) // a bad habit that must not reach the route
						if broken.Load() {
							return fault(queues)
						}
						return queues, nil
					})
				})
				start(t, e)
				broken.Store(true)
				w.topic(testTopic, "a", 3)
				_, _, err := c.Refresh(t.Context(), testTopic)
				require.NoError(t, err)
				synctest.Wait()
				assert.Len(t, e.Assignment(), 2)
				assert.Contains(t, log.String(), "allocation strategy")
				assert.True(t, slices.IsSortedFunc(c.Cached(testTopic).Subscribe, message.Queue.Compare))
				broken.Store(false)
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Len(t, e.Assignment(), 3, "tried again after RebalanceRetry")
			})
		})
		t.Run(name+" at the start", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				e, _ := w.member("c1", new(inbox), func(c *Config) {
					c.Strategy = strategyFunc(func(queues []message.Queue, _ []string) ([]message.Queue, error) { return fault(queues) })
				})
				assert.ErrorContains(t, e.Start(t.Context()), "allocation strategy")
			})
		})
	}
}

func TestRB02MoreConsumersThanQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		in := new(inbox)
		var engines []*Engine
		for i := range 6 {
			e, _ := w.member(fmt.Sprintf("c%d", i), in, nil)
			require.NoError(t, e.Start(t.Context()))
			engines = append(engines, e)
		}
		synctest.Wait()
		sizes := func() (out []int) {
			for _, e := range engines {
				out = append(out, len(e.Assignment()))
			}
			return out
		}
		assert.Equal(t, []int{1, 1, 1, 1, 0, 0}, sizes())
		for i := range 4 {
			w.send(queueOf("a", i), numbered(i*10, i*10+10)...)
		}
		synctest.Wait()
		assert.ElementsMatch(t, numbered(0, 40), in.bodies(), "each once")
		time.Sleep(6 * time.Second) // all is committed: queues change hands without duplicates
		require.NoError(t, engines[1].Shutdown(t.Context()))
		synctest.Wait()
		assert.Equal(t, []int{1, 0, 1, 1, 1, 0}, sizes(), "a spare takes over at once")
		w.send(queueOf("a", 1), "after")
		synctest.Wait()
		assert.Len(t, in.all(), 41)
		for _, e := range engines {
			require.NoError(t, e.Close())
		}
	})
}

func TestRB05QueuesAndBrokersAddedAtRunTimeStartAtTheirMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		for i := range 4 {
			w.change(func() { w.brokers["a"].queues[queueOf("a", i)].min = 5 }) // no message 0: the end counts
			w.send(queueOf("a", i), "old")
		}
		in := new(inbox)
		e, c := w.member("c1", in, nil)
		start(t, e)
		synctest.Wait()
		assert.Empty(t, in.all(), "a new group starts at the end")
		refresh := func() {
			_, changed, err := c.Refresh(t.Context(), testTopic)
			require.NoError(t, err)
			require.True(t, changed)
			synctest.Wait()
		}

		w.topic(testTopic, "a", 8)
		w.change(func() { w.brokers["a"].queues[queueOf("a", 7)].min = 3 })
		for i := range 8 {
			w.send(queueOf("a", i), fmt.Sprintf("grown %d", i)) // before the route is seen
		}
		refresh()
		assert.Len(t, e.Assignment(), 8)
		assert.Len(t, in.all(), 8, "one of every queue, the new ones from their minimum")
		assert.Contains(t, in.bodies(), "grown 7")

		w.addBroker("b")
		w.topic(testTopic, "b", 4)
		for i := range 4 {
			w.send(queueOf("b", i), fmt.Sprintf("joined %d", i))
		}
		now := time.Now()
		refresh()
		assert.Len(t, e.Assignment(), 12)
		assert.Len(t, in.all(), 12)
		assert.Equal(t, now, time.Now(), "the new broker got a heartbeat before its first pull")
		assert.Equal(t, 1, w.calls("b", "Heartbeat"))
	})
}

func TestTopicWithoutARouteIsConsumedFromItsFirstMessageOnceItHasOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		log := new(lines)
		in := new(inbox)
		e, _ := w.member("c1", in, func(c *Config) { c.Logger = log.logger() })
		start(t, e)
		assert.Empty(t, e.Assignment())
		time.Sleep(1500 * time.Millisecond)
		w.topic(testTopic, "a", 1)
		w.change(func() { w.brokers["a"].queues[queueOf("a", 0)].min = 4 })
		w.send(queueOf("a", 0), "x")
		time.Sleep(500*time.Millisecond - 1)
		synctest.Wait()
		assert.Empty(t, in.all())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies(), "RouteRetry after the second look")
		assert.Equal(t, 1, countLines(log, "has no route"))
	})
}

func TestReturningQueueWaitsForItsOldHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, "slow")
		in := &inbox{work: 10 * time.Second}
		seen := new(changes)
		e, _ := w.member("c2", in, func(c *Config) { c.OnRebalanced = seen.add })
		start(t, e)
		time.Sleep(time.Second)
		other, _ := w.member("c1", &inbox{work: time.Hour}, nil) // takes the queue, does not finish
		require.NoError(t, other.Start(t.Context()))
		synctest.Wait()
		assert.Empty(t, e.Assignment())
		require.NoError(t, other.Close())
		synctest.Wait()
		assert.Empty(t, e.Assignment(), "the old handler still runs")
		assert.Equal(t, 1, e.Status().Running)
		time.Sleep(9*time.Second - 1)
		synctest.Wait()
		assert.Empty(t, e.Assignment())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []message.Queue{q}, e.Assignment(), "taken in the instant the handler returned")
		assert.Equal(t, "retry", seen.last().Reason)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Len(t, in.all(), 2, "what finished after the drop did not count")
	})
}

func TestRevokedQueueIsCommittedForItsNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		in := new(inbox)
		e1, _ := w.member("c1", in, nil)
		start(t, e1)
		w.send(queueOf("a", 1), numbered(0, 10)...)
		time.Sleep(time.Second)
		e2, _ := w.member("c2", in, nil)
		start(t, e2)
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("a", 1)}, e2.Assignment())
		assert.Equal(t, int64(10), w.committed(queueOf("a", 1)))
		for range 20 { // LK-06: toggling leaves nothing behind
			require.NoError(t, e2.Close())
			synctest.Wait()
			e2, _ = w.member("c2", in, nil)
			start(t, e2)
			synctest.Wait()
		}
		assert.Len(t, e1.Assignment(), 1)
		r := e1.current()
		r.mu.Lock()
		goroutines := r.goroutines
		r.mu.Unlock()
		assert.Equal(t, 20+4+2, goroutines, "workers, loops, one per queue held, the retry queue among them")
	})
}

func TestLK06IdleEngineWakesForItsTimersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 10)
		e, _ := w.member("c1", new(inbox), nil)
		start(t, e)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, w.pulls(queueOf("a", 0)), 1+240, "one pull per 15 s")
		assert.Equal(t, 2+180, w.calls("a", "GetConsumerList"), "the start, the notice of it, and one round per 20 s")
		assert.Equal(t, 10, w.calls("a", "UpdateConsumerOffset"), "each start offset once, but that of the retry queue")
	})
}

func TestForgetfulBrokerIsAskedLastAndGetsAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		e1, _ := w.member("c1", new(inbox), nil)
		e2, _ := w.member("c2", new(inbox), nil)
		start(t, e1)
		start(t, e2)
		synctest.Wait()
		require.Equal(t, []message.Queue{queueOf("b", 0)}, e2.Assignment())
		w.change(func() { clear(w.brokers["a"].members) }) // as after a restart
		e2.MembersChanged()
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("b", 0)}, e2.Assignment(), "b knows both")
		w.change(func() { clear(w.brokers["a"].members); clear(w.brokers["b"].members) })
		e2.MembersChanged()
		e1.MembersChanged()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("a", 0)}, e1.Assignment())
		assert.Equal(t, []message.Queue{queueOf("b", 0)}, e2.Assignment())
	})
}

func TestUnreachableBrokersKeepWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		e, _ := w.member("c1", new(inbox), nil)
		start(t, e)
		w.change(func() { w.brokers["a"].silent = true })
		e.MembersChanged()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.Len(t, e.Assignment(), 2, "b was asked instead")
		w.change(func() { w.brokers["b"].silent = true })
		e.MembersChanged()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, e.Assignment(), 2)
		w.change(func() { w.brokers["a"].silent = false; w.brokers["b"].silent = false })
	})
}

func TestTopicThatLosesItsQueuesIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 2)
		w.topic(testTopic, "b", 2)
		e, c := w.member("c1", new(inbox), nil)
		start(t, e)
		w.topic(testTopic, "b", 0)
		_, _, err := c.Refresh(t.Context(), testTopic)
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("a", 0), queueOf("a", 1)}, e.Assignment())
		w.topic(testTopic, "a", 0)
		_, _, err = c.Refresh(t.Context(), testTopic)
		require.NoError(t, err)
		synctest.Wait()
		assert.Empty(t, e.Assignment())
	})
}

func TestEachTopicIsSharedForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 3)
		w.topic("other", "a", 1)
		tags, err := filter.ParseTags("B || A")
		require.NoError(t, err)
		edit := func(c *Config) {
			c.Subscriptions = map[string]filter.Tags{testTopic: {}, "other": tags}
			c.Strategy = rebalance.Averagely
		}
		e1, _ := w.member("c1", new(inbox), edit)
		e2, _ := w.member("c2", new(inbox), edit)
		began := time.Now()
		start(t, e1)
		start(t, e2)
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("a", 0), queueOf("a", 1)}, e1.Assignment()[:2])
		assert.Equal(t, "other", e1.Assignment()[2].Topic)
		assert.Equal(t, []message.Queue{queueOf("a", 2)}, e2.Assignment())
		version := began.UnixMilli()
		assert.Equal(t, protocol.ConsumerData{
			Group: testGroup, From: protocol.ConsumeFromLast, Passive: true,
			Subscriptions: []protocol.Subscription{
				{Topic: testTopic, Expression: "*", ExpressionType: "TAG", Version: version + 1},
				{Topic: "other", Expression: "A || B", ExpressionType: "TAG", Tags: []string{"A", "B"}, Codes: []int32{65, 66}, Version: version + 1},
				{Topic: "%RETRY%g", Expression: "*", ExpressionType: "TAG", Version: version + 1},
			},
		}, e1.ConsumerData(), "told anew when the share changed")
	})
}
