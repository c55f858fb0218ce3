package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func topicQueue(topic, broker string, id int) message.Queue {
	return message.Queue{Topic: topic, BrokerName: broker, QueueID: id}
}

func TestSubscribeReturnsWhenTheTopicIsConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic("other", "b", 2)
		in := new(inbox)
		var seen changes
		e, c := w.member("c1", in, func(c *Config) { c.OnRebalanced = seen.add })
		w.send(topicQueue("other", "b", 1), "early") // message 0: the broker answers 0 for it
		w.change(func() { w.brokers["b"].queues[topicQueue("other", "b", 1)].min = 5 })
		start(t, e)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, e.Subscribe(t.Context(), "other", filter.Tags{}))
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 1, c.watching("other"))
		w.send(topicQueue("other", "b", 1), "late") // in the instant in which Subscribe has returned
		synctest.Wait()
		assert.Equal(t, []string{"late"}, in.bodies(), "From counts as at a Start")
		assert.Equal(t, Rebalanced{Topic: "other", After: []message.Queue{topicQueue("other", "b", 0), topicQueue("other", "b", 1)}, Reason: "subscriptions changed"}, seen.last())
		version := e.ConsumerData().Subscriptions[1].Version
		assert.LessOrEqual(t, w.pulls(topicQueue("other", "b", 0))[0].req.SubVersion, version)
		assert.Positive(t, w.calls("b", "Heartbeat"))

		require.NoError(t, e.Unsubscribe(t.Context(), "other"))
		assert.Zero(t, c.watching("other"))
		assert.Equal(t, []message.Queue{queueOf("a", 0)}, e.Assignment())
		assert.EqualValues(t, 7, w.committed(topicQueue("other", "b", 1)), "what is finished is committed")
		assert.Equal(t, Rebalanced{Topic: "other", Before: []message.Queue{topicQueue("other", "b", 0), topicQueue("other", "b", 1)}, After: []message.Queue{}, Reason: "subscriptions changed"}, seen.last())
		require.NoError(t, e.Unsubscribe(t.Context(), "other"), "no subscription is no error")
	})
}

func TestSubscribeWithoutARouteWaitsForTheTopicInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		start(t, e)
		require.NoError(t, e.Subscribe(t.Context(), "later", filter.Tags{}))
		w.topic("later", "a", 1)
		w.send(topicQueue("later", "a", 0), "x")
		time.Sleep(e.cfg.RouteRetry)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies())
	})
}

func TestSubscribeGoesOnInTheBackgroundWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic("other", "b", 1)
		w.change(func() { w.brokers["b"].down = true })
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		start(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		err := e.Subscribe(ctx, "other", filter.Tags{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, protocol.ErrUnreachable, "the last failure is named")
		w.change(func() { w.brokers["b"].down = false })
		w.send(topicQueue("other", "b", 0), "x")
		time.Sleep(e.cfg.RebalanceRetry)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies())

		require.NoError(t, e.Close())
		assert.ErrorIs(t, e.Subscribe(t.Context(), "third", filter.Tags{}), protocol.ErrClosed)
		assert.ErrorIs(t, e.Unsubscribe(t.Context(), "other"), protocol.ErrClosed)
	})
}

func TestSubscriptionsBeforeStartAreTakenNoteOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.topic("other", "a", 1)
		e, _ := w.member("c1", new(inbox), nil)
		require.NoError(t, e.Subscribe(t.Context(), "other", filter.Tags{}))
		require.NoError(t, e.Unsubscribe(t.Context(), testTopic))
		start(t, e)
		assert.Equal(t, []message.Queue{topicQueue("other", "a", 0)}, e.Assignment())
	})
}

func TestUnsubscribeWaitsForHandlersAndCommitsWhatTheyFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		in := &inbox{work: time.Second}
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency = 2 })
		start(t, e)
		w.send(q, numbered(0, 6)...)
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		require.NoError(t, e.Unsubscribe(t.Context(), testTopic))
		assert.Equal(t, 500*time.Millisecond, time.Since(began), "the two that run end; no other starts")
		assert.Equal(t, numbered(0, 2), in.bodies())
		assert.EqualValues(t, 2, w.committed(q))
		require.NoError(t, e.Subscribe(t.Context(), testTopic, filter.Tags{}))
		time.Sleep(time.Minute)
		assert.Equal(t, numbered(0, 6), in.bodies(), "nothing is lost, nothing comes twice")
		assert.EqualValues(t, 6, w.committed(q))
	})
}

func TestUnsubscribeGivesUpOnHandlersWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		release := make(chan struct{})
		e, _ := w.member("c1", nil, func(c *Config) { c.Handler = stubborn(release) })
		start(t, e)
		w.send(q, "x")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := e.Unsubscribe(ctx, testTopic)
		assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "1 handlers still run")
		synctest.Wait()
		assert.Empty(t, e.Assignment(), "the topic is given up all the same")
		close(release)
		synctest.Wait()
		assert.LessOrEqual(t, w.committed(q), int64(0), "what ends later does not count")
	})
}

func TestANewFilterAppliesToWhatNoHandlerHasGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		in := &inbox{work: time.Second}
		e, _ := w.member("c1", in, func(c *Config) {
			c.Concurrency = 1
			c.Subscriptions = map[string]filter.Tags{testTopic: tagsOf(t, "A")}
		})
		start(t, e)
		for i := range 4 {
			w.sendTagged(q, "A", fmt.Sprint("a", i))
			w.sendTagged(q, "B", fmt.Sprint("b", i))
		}
		time.Sleep(1500 * time.Millisecond) // a0 is done, a1 runs
		require.NoError(t, e.Subscribe(t.Context(), testTopic, tagsOf(t, "B")))
		w.sendTagged(q, "B", "b4")
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"a0", "a1", "b2", "b3", "b4"}, in.bodies(), "b0 and b1 were passed over before, b1 behind a1 is passed over with it")
		assert.EqualValues(t, 9, w.committed(q))
		assert.Zero(t, e.Status().Failed)
		assert.Equal(t, "B", e.ConsumerData().Subscriptions[0].Expression)
	})
}

func TestCloseEndsWhatWaitsForASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic("other", "b", 1)
		release := make(chan struct{})
		e, _ := w.member("c1", nil, func(c *Config) { c.Handler = stubborn(release) })
		start(t, e)
		w.send(queueOf("a", 0), "x")
		synctest.Wait()
		w.change(func() { w.brokers["b"].down = true })
		errs := make(chan error, 2)
		go func() { errs <- e.Subscribe(t.Context(), "other", filter.Tags{}) }()
		go func() { errs <- e.Unsubscribe(t.Context(), testTopic) }()
		synctest.Wait()
		assert.Empty(t, errs)
		closed := make(chan error)
		go func() { closed <- e.Close() }()
		synctest.Wait()
		assert.ErrorIs(t, <-errs, protocol.ErrClosed)
		assert.ErrorIs(t, <-errs, protocol.ErrClosed)
		close(release)
		assert.NoError(t, <-closed)
	})
}

func TestSubscribeWaitsForAStartUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.topic("other", "a", 1)
		w.change(func() { w.brokers["a"].down = true })
		e, _ := w.member("c1", new(inbox), nil)
		started := make(chan error)
		go func() { started <- e.Start(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		assert.ErrorIs(t, e.Subscribe(ctx, "other", filter.Tags{}), context.DeadlineExceeded)
		subscribed := make(chan error)
		go func() { subscribed <- e.Subscribe(t.Context(), "other", tagsOf(t, "A")) }()
		synctest.Wait()
		w.change(func() { w.brokers["a"].down = false })
		require.NoError(t, <-started)
		require.NoError(t, <-subscribed)
		assert.Len(t, e.Assignment(), 2)
		require.NoError(t, e.Close())
	})
}

// held returns who holds each queue; a queue that two hold fails the test.
func held(t *testing.T, engines map[string]*Engine) map[message.Queue]string {
	t.Helper()
	owners := make(map[message.Queue]string)
	for id, e := range engines {
		for _, q := range e.Assignment() {
			require.Empty(t, owners[q], "%v has two owners", q)
			owners[q] = id
		}
	}
	return owners
}

// TestConcurrentTriggersLeaveEveryQueueOneOwner throws everything that may cause a
// round at three members at once: nothing sent to a topic that stays subscribed is
// lost, and after quiet each queue has one owner.
func TestConcurrentTriggersLeaveEveryQueueOneOwner(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				w := newWorld(t, "a", "b")
				w.topic(testTopic, "a", 4)
				w.topic("other", "b", 4)
				in := &inbox{work: 3 * time.Millisecond}
				engines := make(map[string]*Engine)
				for _, id := range []string{"c1", "c2", "c3"} {
					e, _ := w.member(id, in, func(c *Config) { c.PullExpire = 200 * time.Millisecond })
					engines[id] = e
					start(t, e)
				}
				seeds := make([]uint64, 6)
				for i := range seeds {
					seeds[i] = rng.Uint64()
				}
				ids := []string{"c1", "c2", "c3"}
				var wg sync.WaitGroup
				for _, s := range seeds {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(s, 2))
						for range 40 {
							e := engines[ids[rng.IntN(3)]]
							ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(50))*time.Millisecond)
							switch rng.IntN(7) {
							case 0:
								e.MembersChanged()
							case 1:
								e.RoutesChanged([]string{testTopic, "other"})
							case 2:
								_ = e.Subscribe(ctx, "other", filter.Tags{}) // ctx may end first
							case 3:
								_ = e.Unsubscribe(ctx, "other")
							case 4:
								e.cfg.Pauses.Pause(queueOf("a", rng.IntN(4)))
								e.PausesChanged()
							case 5:
								e.cfg.Pauses.Resume()
								e.PausesChanged()
							case 6:
								w.change(func() { w.brokers["ab"[rng.IntN(2):][:1]].epoch++ }) // every connection breaks
							}
							cancel()
							pause(t.Context(), time.Duration(rng.IntN(20))*time.Millisecond)
						}
					})
				}
				n := 0
				for range 100 {
					w.send(queueOf("a", rng.IntN(4)), fmt.Sprint("m", n))
					n++
					time.Sleep(5 * time.Millisecond)
				}
				wg.Wait()
				for _, id := range ids {
					engines[id].cfg.Pauses.Resume()
					engines[id].PausesChanged()
					require.NoError(t, engines[id].Subscribe(t.Context(), "other", filter.Tags{}))
				}
				time.Sleep(2 * engines["c1"].cfg.Rebalance)
				assert.Len(t, held(t, engines), 8, "seed %d", seed)
				got := in.bodies()
				assert.Equal(t, slices.Sorted(slices.Values(numbered(0, n))), slices.Compact(got), "seed %d: at least once each", seed)
				for i := range 4 {
					q := queueOf("a", i)
					w.mu.Lock()
					end := int64(len(w.brokers["a"].queues[q].records))
					w.mu.Unlock()
					assert.Equal(t, end, max(w.committed(q), 0), "seed %d: %v", seed, q)
				}
			})
		})
	}
}

func TestAPullWithoutAnAnswerIsRebuiltAfterPullExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		in := new(inbox)
		hang, hung := make(chan struct{}), make(chan struct{}, 1)
		defer close(hang)
		b := w.brokers["a"]
		e, _ := w.member("c1", in, nil)
		first := true
		w.change(func() {
			b.answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				w.mu.Lock()
				stuck := first && r.Topic == testTopic && r.QueueID == 0
				if stuck {
					first = false
				}
				w.mu.Unlock()
				if stuck {
					hung <- struct{}{}
					<-hang // deaf to its context
				}
				return &protocol.PullMessageResponse{Code: protocol.PullNotFound, NextBeginOffset: r.Offset}, nil
			}
		})
		start(t, e)
		<-hung
		w.change(func() { b.answer = nil })
		w.send(queueOf("a", 0), "x")
		time.Sleep(120 * time.Second)
		assert.Empty(t, in.bodies())
		time.Sleep(e.cfg.Rebalance)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies(), "dropped and taken anew by the first round later than 120 s")
		assert.Len(t, e.Assignment(), 2)
	})
}
