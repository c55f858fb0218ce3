package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

func puller(t testing.TB, c *pocketmq.Cluster, cfg pocketmq.PullConsumerConfig) *pocketmq.PullConsumer {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "g"
	}
	co, err := c.StartPullConsumer(context.Background(), cfg)
	require.NoError(t, err)
	return co
}

// polled returns the bodies of one Poll that waits a second at most.
func polled(t testing.TB, co *pocketmq.PullConsumer) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	msgs, err := co.Poll(ctx)
	if err != nil {
		require.Equal(t, context.DeadlineExceeded, err)
		require.Nil(t, msgs)
		return nil
	}
	require.NotEmpty(t, msgs)
	var bodies []string
	for _, m := range msgs {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

// drained returns what Poll returns until there is nothing for a second.
func drained(t testing.TB, co *pocketmq.PullConsumer) []string {
	t.Helper()
	var bodies []string
	for {
		more := polled(t, co)
		if more == nil {
			return bodies
		}
		bodies = append(bodies, more...)
	}
}

// sendNumbers sends the bodies "from" to "to-1" to one queue.
func sendNumbers(t testing.TB, p *pocketmq.Producer, q pocketmq.MessageQueue, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := p.SendTo(t.Context(), q, text(q.Topic, "%d", i))
		require.NoError(t, err)
	}
}

// between are the bodies "from" to "to-1" in order.
func between(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func committedBy(t testing.TB, co *pocketmq.PullConsumer, q pocketmq.MessageQueue) int64 {
	t.Helper()
	offset, err := co.Committed(t.Context(), q)
	require.NoError(t, err)
	return offset
}

// queueOf is a cluster whose topic T has one queue with the bodies 0 to n-1.
func queueOf(t testing.TB, n int, cfg pocketmq.ClusterConfig) (*pocketmq.Cluster, *pocketmq.Producer, pocketmq.MessageQueue) {
	t.Helper()
	cfg.Topics = map[string]int{"T": 1}
	c := run(t, cfg)
	p := producer(t, c, pocketmq.ProducerConfig{})
	q := queue("T", "broker-a", 0)
	sendNumbers(t, p, q, 0, n)
	return c, p, q
}

func TestPollWaitsForAMessageOrItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, p, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		msgs, err := co.Poll(ctx)
		assert.Nil(t, msgs)
		assert.Equal(t, context.DeadlineExceeded, err, "ctx's error itself")
		assert.Equal(t, 7*time.Second, time.Since(begin))
		msgs, err = co.Poll(ctx)
		assert.Nil(t, msgs)
		assert.Equal(t, context.DeadlineExceeded, err, "an ended ctx does not wait")

		go func() {
			time.Sleep(time.Minute)
			sendNumbers(t, p, q, 0, 1)
		}()
		begin = time.Now()
		msgs, err = co.Poll(t.Context())
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(begin), "in the instant of the send")
		require.Len(t, msgs, 1)
		assert.Equal(t, q, msgs[0].Queue)
		assert.Equal(t, "0", string(msgs[0].Body))
	})
}

func TestPollReturnsABatchOfOneQueueInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 3}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for id := range 3 {
			sendNumbers(t, p, queue("T", "broker-a", id), 0, 100)
		}
		for size, cfg := range map[int]int{10: 0, 7: 7, 100: 1000} {
			co := puller(t, c, pocketmq.PullConsumerConfig{Group: fmt.Sprint("g", size), PullBatchSize: cfg, Subscriptions: all("T")})
			synctest.Wait()
			next := map[pocketmq.MessageQueue]int64{}
			largest := 0
			for total := 0; total < 300; {
				msgs, err := co.Poll(t.Context())
				require.NoError(t, err)
				for _, m := range msgs {
					assert.Equal(t, msgs[0].Queue, m.Queue)
					assert.Equal(t, next[m.Queue], m.QueueOffset)
					next[m.Queue]++
				}
				total += len(msgs)
				largest = max(largest, len(msgs))
			}
			assert.Equal(t, size, largest)
			require.NoError(t, co.Close())
		}
	})
}

func TestWhatPollReturnedBeforeTheLastPollIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 100, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.Equal(t, int64(-1), committedBy(t, co, q), "none")
		assert.Equal(t, between(0, 10), polled(t, co))
		sleepUntil(time.Now().Add(time.Minute))
		assert.Equal(t, int64(-1), committedBy(t, co, q), "the last Poll's may be worked on still, whatever was fetched")
		assert.Equal(t, between(10, 20), polled(t, co))
		assert.Equal(t, int64(-1), committedBy(t, co, q))
		sleepUntil(time.Now().Add(5 * time.Second))
		assert.Equal(t, int64(10), committedBy(t, co, q), "by OffsetPersist")
		assert.Equal(t, between(20, 30), polled(t, co))
		require.NoError(t, co.Close())

		co = puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.Equal(t, int64(20), committedBy(t, co, q), "on Close")
		assert.Equal(t, between(20, 100), drained(t, co), "what the last Poll returned comes again")
		require.NoError(t, co.Shutdown(t.Context()))

		co = puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.Equal(t, int64(100), committedBy(t, co, q), "the Poll that found nothing was one too")
		assert.Empty(t, drained(t, co))
	})
}

func TestMessagesAreConsumedWhenTheLoopAsksForTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 20, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		i := 0
		for m, err := range co.Messages(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint(i), string(m.Body))
			i++
			if i == 5 {
				break
			}
		}
		sleepUntil(time.Now().Add(10 * time.Second))
		assert.Equal(t, int64(4), committedBy(t, co, q), "the loop did not ask for a message after the fifth")
		assert.Equal(t, between(5, 15), polled(t, co), "nothing is lost when a loop is left")

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Minute)
			cancel()
		}()
		var got []string
		var last error
		for m, err := range co.Messages(ctx) {
			if err != nil {
				assert.Nil(t, m)
				last = err
				continue // it is over anyhow
			}
			got = append(got, string(m.Body))
		}
		assert.Equal(t, between(15, 20), got)
		assert.Equal(t, context.Canceled, last)
		sleepUntil(time.Now().Add(5 * time.Second))
		assert.Equal(t, int64(20), committedBy(t, co, q))
	})
}

func TestManualCommitLeavesItToCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 3000, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: true})
		require.NoError(t, co.Commit(t.Context()), "nothing to commit")
		assert.Equal(t, int64(-1), committedBy(t, co, q))
		assert.Len(t, drained(t, co), 3000, "what is not committed does not fill the consumer up")
		sleepUntil(time.Now().Add(time.Minute))
		assert.Equal(t, int64(-1), committedBy(t, co, q))
		require.NoError(t, co.Close())

		co = puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: true})
		assert.Equal(t, between(0, 10), polled(t, co), "all over again")
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(10), committedBy(t, co, q), "behind the last message that Poll returned, at once")
		assert.Equal(t, between(10, 20), polled(t, co))
		require.NoError(t, co.Close())

		co = puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.Equal(t, between(10, 20), polled(t, co))
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(20), committedBy(t, co, q), "Commit counts beside the automatic commits, too")
	})
}

func TestCommitTellsWhatWasNotStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 30, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: true})
		polled(t, co)
		h := c.Inject(pocketmq.Fault{Code: protocol.CodeUpdateConsumerOffset, Drop: true})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := co.Commit(ctx)
		assert.Equal(t, 2*time.Second, time.Since(begin))
		assert.ErrorIs(t, err, pocketmq.ErrUnknownOutcome)
		assert.ErrorContains(t, err, q.String())
		h.Remove()
		assert.ErrorIs(t, co.Commit(ctx), context.DeadlineExceeded)
		sleepUntil(time.Now().Add(10 * time.Second))
		assert.Equal(t, int64(10), committedBy(t, co, q), "tried again in the background")
	})
}

func TestSeek(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, p, q := queueOf(t, 50, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.Equal(t, between(0, 10), polled(t, co))
		require.NoError(t, co.Seek(t.Context(), q, 40))
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(40), committedBy(t, co, q), "the offset that Seek set")
		assert.Equal(t, between(40, 50), polled(t, co), "what was fetched before is forgotten")
		require.NoError(t, co.Seek(t.Context(), q, 5))
		assert.Equal(t, between(5, 15), polled(t, co))
		assert.Equal(t, between(15, 50), drained(t, co))

		// While a broker holds the pull, and its answer is late.
		synctest.Wait()
		c.Network().Delay("broker-a/0", co.ClientID(), 200*time.Millisecond)
		go sendNumbers(t, p, q, 50, 60)
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, co.Seek(t.Context(), q, 55))
		assert.Equal(t, between(55, 60), drained(t, co))
		c.Network().HealAll()

		for _, err := range []error{co.Seek(t.Context(), queue("T", "broker-a", 1), 0), co.SeekTime(t.Context(), queue("U", "broker-a", 0), time.Now())} {
			assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
			assert.ErrorContains(t, err, "does not hold")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, co.Seek(ctx, q, 0), context.Canceled)
	})
}

func TestSeekTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		begin := time.Now()
		for i := range 10 {
			sendNumbers(t, p, q, i, i+1)
			time.Sleep(time.Second)
		}
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		require.NoError(t, co.SeekTime(t.Context(), q, begin.Add(7*time.Second)))
		assert.Equal(t, between(7, 10), polled(t, co))
		require.NoError(t, co.SeekTime(t.Context(), q, begin.Add(-time.Hour)))
		assert.Equal(t, between(0, 10), polled(t, co))
		require.NoError(t, co.SeekTime(t.Context(), q, begin.Add(time.Hour)))
		assert.Empty(t, polled(t, co))
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(10), committedBy(t, co, q))
	})
}

func TestAnOffsetOutsideTheQueueJumpsAndIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c, p, q := queueOf(t, 20, pocketmq.ClusterConfig{OnEvent: events.add})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: true})
		require.NoError(t, co.Seek(t.Context(), q, 1_000_000), "nothing is checked")
		assert.Empty(t, polled(t, co))
		sendNumbers(t, p, q, 20, 21)
		assert.Equal(t, between(20, 21), polled(t, co), "the end of the queue")
		require.NoError(t, co.Seek(t.Context(), q, -7))
		assert.Equal(t, between(0, 10), polled(t, co), "its start")
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(10), committedBy(t, co, q))
		synctest.Wait()
		jumps := eventsOf[pocketmq.OffsetJumped](&events)
		require.Len(t, jumps, 2)
		for i, want := range []struct{ from, to int64 }{{1_000_000, 20}, {-7, 0}} {
			j := jumps[i]
			assert.Equal(t, pocketmq.OffsetJumped{EventBase: j.EventBase, Group: "g", Queue: q, From: want.from, To: want.to}, j)
			assert.Equal(t, co.ClientID(), j.Node)
		}
	})
}

// A commit after a jump is where the queue goes on, not where nobody can read.
func TestACommitAfterAJumpLiesInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 20, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		require.NoError(t, co.Seek(t.Context(), q, 1_000_000))
		assert.Empty(t, polled(t, co))
		sleepUntil(time.Now().Add(10 * time.Second))
		assert.Equal(t, int64(20), committedBy(t, co, q))
	})
}

func TestAssignReplacesTheFormerSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		a0, a1, b0, u := queue("T", "broker-a", 0), queue("T", "broker-a", 1), queue("T", "broker-b", 0), queue("U", "broker-a", 0)
		for i, q := range []pocketmq.MessageQueue{a0, a1, b0, u} {
			sendNumbers(t, p, q, 100*i, 100*i+20)
		}
		co, err := pocketmq.NewPullConsumer(pocketmq.PullConsumerConfig{Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport()})
		require.NoError(t, err)
		require.NoError(t, co.Assign(t.Context(), u), "before Start")
		require.NoError(t, co.Assign(t.Context(), b0, a0, a0), "and again")
		assert.Equal(t, []pocketmq.MessageQueue{a0, b0}, co.Assignment())
		require.NoError(t, co.Start(t.Context()))
		t.Cleanup(func() { assert.NoError(t, co.Close()) })
		assert.Equal(t, []pocketmq.MessageQueue{a0, b0}, co.Assignment())
		assert.ElementsMatch(t, slices.Concat(between(0, 20), between(200, 220)), drained(t, co))

		require.NoError(t, co.Assign(t.Context(), a1, a0), "after Start")
		sendNumbers(t, p, a0, 20, 30)
		sendNumbers(t, p, b0, 220, 230)
		assert.ElementsMatch(t, slices.Concat(between(100, 120), between(20, 30)), drained(t, co), "a0 goes on where it was, b0 is gone")
		assert.Equal(t, int64(20), committedBy(t, co, b0), "what was finished there is committed")
		assert.ErrorIs(t, co.Seek(t.Context(), b0, 0), pocketmq.ErrInvalidConfig)

		require.NoError(t, co.Assign(t.Context()), "nothing")
		assert.Empty(t, co.Assignment())
		sendNumbers(t, p, a0, 30, 40)
		assert.Empty(t, drained(t, co))
		require.NoError(t, co.Assign(t.Context(), b0, u))
		assert.ElementsMatch(t, slices.Concat(between(220, 230), between(300, 320)), drained(t, co), "from the committed offset")
	})
}

func TestAssignAndSubscribeExcludeEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		subscribed := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		assert.ErrorIs(t, subscribed.Assign(t.Context(), q), pocketmq.ErrInvalidConfig)
		later := puller(t, c, pocketmq.PullConsumerConfig{Group: "h"})
		require.NoError(t, later.Subscribe(t.Context(), "T", pocketmq.Filter{}))
		assert.ErrorIs(t, later.Assign(t.Context(), q), pocketmq.ErrInvalidConfig)
		assigned := puller(t, c, pocketmq.PullConsumerConfig{})
		require.NoError(t, assigned.Assign(t.Context(), q))
		assert.ErrorIs(t, assigned.Subscribe(t.Context(), "T", pocketmq.Filter{}), pocketmq.ErrInvalidConfig)
		require.NoError(t, assigned.Assign(t.Context()))
		assert.ErrorIs(t, assigned.Subscribe(t.Context(), "T", pocketmq.Filter{}), pocketmq.ErrInvalidConfig)

		assert.ErrorIs(t, assigned.Assign(t.Context(), queue("no/good", "b", 0)), pocketmq.ErrIllegalName)
		assert.ErrorIs(t, assigned.Assign(t.Context(), queue("T", "", 0)), pocketmq.ErrInvalidConfig)
		assert.ErrorIs(t, assigned.Assign(t.Context(), queue("T", "b", -1)), pocketmq.ErrInvalidConfig)
		assert.Empty(t, assigned.Assignment(), "nothing has changed")
		assert.ErrorIs(t, later.Subscribe(t.Context(), "no/good", pocketmq.Filter{}), pocketmq.ErrIllegalName)
		assert.ErrorIs(t, later.Subscribe(t.Context(), "U", pocketmq.Tags("a||b")), pocketmq.ErrInvalidConfig)
	})
}

func TestWhoAssignsTakesNoPartInRebalance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: events.add})
		assigned := puller(t, c, pocketmq.PullConsumerConfig{})
		require.NoError(t, assigned.Assign(t.Context(), queuesOf(4, "broker-a")...))
		reader := puller(t, c, pocketmq.PullConsumerConfig{})
		_, err := reader.Pull(t.Context(), queue("T", "broker-a", 0), 0, 1)
		require.NoError(t, err)
		one := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		two := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		time.Sleep(5 * time.Minute)
		assert.Len(t, assigned.Assignment(), 4)
		assert.Len(t, one.Assignment(), 2)
		assert.Len(t, two.Assignment(), 2)
		for _, e := range eventsOf[pocketmq.Rebalanced](&events) {
			assert.Contains(t, []string{one.ClientID(), two.ClientID()}, e.Client)
		}
		members, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		assert.Len(t, members.Members, 2)
	})
}

// Routes come and go; what was assigned is not theirs to take.
func TestAssignedQueuesOutliveTheirRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		q, later := queue("T", "broker-a", 0), queue("later", "broker-a", 0)
		p := producer(t, c, pocketmq.ProducerConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{ManualCommit: true})
		require.NoError(t, co.Assign(t.Context(), q, later, queue("T", "broker-z", 3)), "no route yet is no error")
		sendNumbers(t, p, q, 0, 10)
		assert.Equal(t, between(0, 10), drained(t, co))

		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(10 * time.Minute)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(time.Minute)
		sendNumbers(t, p, q, 10, 20)
		assert.Equal(t, between(10, 20), drained(t, co), "it goes on where it was, though nothing was committed")

		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "later", ReadQueues: 1}))
		sendNumbers(t, p, later, 0, 5)
		time.Sleep(2 * time.Second)
		assert.Equal(t, between(0, 5), drained(t, co))
	})
}

func TestPullConsumersShareQueuesWithTheirGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		one := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), Strategy: rebalance.AveragelyByCircle})
		assert.Len(t, one.Assignment(), 8)
		two := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), Strategy: rebalance.AveragelyByCircle})
		synctest.Wait()
		queues, err := one.Queues(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, queuesOf(4, "broker-a", "broker-b"), queues)
		members := []string{one.ClientID(), two.ClientID()}
		rebalance.SortMembers(members)
		for _, co := range []*pocketmq.PullConsumer{one, two} {
			share, err := rebalance.AveragelyByCircle.Allocate("g", co.ClientID(), queues, members)
			require.NoError(t, err)
			assert.ElementsMatch(t, share, co.Assignment())
		}
		for i := range 80 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		got := append(drained(t, one), drained(t, two)...)
		slices.Sort(got)
		assert.Equal(t, numbers(80), got)
		require.NoError(t, two.Close())
		synctest.Wait()
		assert.Len(t, one.Assignment(), 8)
		assert.NotEmpty(t, eventsOf[pocketmq.Rebalanced](&events))
	})
}

func TestPullConsumersFilterExactly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		for i := range 40 {
			m := text("T", "%d", i)
			m.Tag = []string{"BB", "Aa"}[i%2] // the same hash
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("BB")}})
		var want []string
		for i := 0; i < 40; i += 2 {
			want = append(want, fmt.Sprint(i))
		}
		assert.Equal(t, want, drained(t, co))
		require.NoError(t, co.Commit(t.Context()))
		assert.Equal(t, int64(39), committedBy(t, co, q), "behind the last message that was returned")

		res, err := co.Pull(t.Context(), q, 39, 1)
		require.NoError(t, err)
		assert.Equal(t, pocketmq.PullNoMatchedMessage, res.Status)
		assert.Equal(t, int64(40), res.NextOffset)

		// Another filter holds for what was not returned yet.
		require.NoError(t, co.Seek(t.Context(), q, 0))
		synctest.Wait()
		require.NoError(t, co.Subscribe(t.Context(), "T", pocketmq.Tags("Aa")))
		for _, body := range drained(t, co) {
			assert.NotContains(t, want, body)
		}
	})
}

func TestPausedQueuesAreNotPolled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q0, q1 := queue("T", "broker-a", 0), queue("T", "broker-a", 1)
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		sendNumbers(t, p, q0, 0, 10)
		sendNumbers(t, p, q1, 10, 20)
		synctest.Wait() // all are fetched
		co.Pause(q0)
		assert.Equal(t, between(10, 20), drained(t, co))
		assert.Len(t, co.Assignment(), 2)
		co.Pause()
		sendNumbers(t, p, q1, 20, 30)
		assert.Empty(t, drained(t, co))
		co.Resume(q1)
		assert.Equal(t, between(20, 30), drained(t, co))
		co.Resume()
		assert.Equal(t, between(0, 10), drained(t, co))
	})
}

func TestPullReadsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, p, q := queueOf(t, 100, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{})
		pull := func(offset int64, max int) *pocketmq.PullResult {
			begin := time.Now()
			res, err := co.Pull(t.Context(), q, offset, max)
			require.NoError(t, err)
			assert.Zero(t, time.Since(begin), "it does not wait")
			assert.Equal(t, int64(0), res.MinOffset)
			return res
		}
		res := pull(42, 5)
		assert.Equal(t, pocketmq.PullFound, res.Status)
		require.Len(t, res.Messages, 5)
		for i, m := range res.Messages {
			assert.Equal(t, int64(42+i), m.QueueOffset)
			assert.Equal(t, q, m.Queue)
		}
		assert.Equal(t, int64(47), res.NextOffset)
		assert.Equal(t, int64(100), res.MaxOffset)
		assert.Len(t, pull(0, 0).Messages, 10)
		assert.Len(t, pull(0, 1000).Messages, 32)

		none := pull(100, 5)
		assert.Equal(t, pocketmq.PullNoNewMessage, none.Status)
		assert.Empty(t, none.Messages)
		assert.Equal(t, int64(100), none.NextOffset)
		for offset, next := range map[int64]int64{-1: 0, -1000: 0, 101: 100, 1 << 40: 100} {
			res := pull(offset, 5)
			assert.Equal(t, pocketmq.PullOffsetIllegal, res.Status, "%d", offset)
			assert.Equal(t, next, res.NextOffset, "%d", offset)
			assert.Empty(t, res.Messages)
		}
		assert.Equal(t, int64(-1), committedBy(t, co, q), "nothing is committed")
		assert.Empty(t, co.Assignment())

		_, err := co.Pull(t.Context(), queue("T", "broker-a", 1), 0, 1)
		assert.Error(t, err)
		_, err = co.Pull(t.Context(), queue("nope", "broker-a", 0), 0, 1)
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
		_, err = co.Pull(t.Context(), queue("T", "broker-z", 0), 0, 1)
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
		_, err = co.Pull(t.Context(), q, 0, -1)
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		_, err = co.Queues(t.Context(), "nope")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)

		// It changes nothing for Poll.
		require.NoError(t, co.Assign(t.Context(), q))
		assert.Len(t, pull(90, 5).Messages, 5)
		assert.Equal(t, between(0, 10), polled(t, co))
		assert.Len(t, pull(0, 5).Messages, 5)
		assert.Equal(t, between(10, 20), polled(t, co))
		_ = p
	})
}

func TestPullOfAnEmptyQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{})
		for offset, want := range map[int64]pocketmq.PullStatus{0: pocketmq.PullNoNewMessage, -1: pocketmq.PullOffsetIllegal, 1: pocketmq.PullOffsetIllegal} {
			res, err := co.Pull(t.Context(), q, offset, 1)
			require.NoError(t, err)
			assert.Equal(t, &pocketmq.PullResult{Status: want}, res, "%d", offset)
		}
	})
}

func TestPullStatusesHaveRocketMQsNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "FOUND NO_NEW_MSG NO_MATCHED_MSG OFFSET_ILLEGAL PullStatus(9)", fmt.Sprint(
		pocketmq.PullFound, " ", pocketmq.PullNoNewMessage, " ", pocketmq.PullNoMatchedMessage, " ", pocketmq.PullOffsetIllegal, " ", pocketmq.PullStatus(9)))
}

func TestWhereAPullConsumerStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		sendNumbers(t, p, q, 0, 5)
		time.Sleep(time.Minute)
		later := time.Now()
		sendNumbers(t, p, q, 5, 8)
		for name, tc := range map[string]struct {
			from pocketmq.ConsumeFrom
			want []string
		}{
			"first": {pocketmq.FromFirstOffset, between(0, 9)},
			"last":  {pocketmq.FromLastOffset, between(0, 9)}, // it holds its first message still
			"time":  {pocketmq.FromTime(later), between(5, 9)},
		} {
			for _, assign := range []bool{false, true} {
				cfg := pocketmq.PullConsumerConfig{Group: fmt.Sprint(name, assign), From: tc.from, ManualCommit: assign}
				if !assign {
					cfg.Subscriptions = all("T")
				}
				co := puller(t, c, cfg)
				if assign {
					require.NoError(t, co.Assign(t.Context(), q))
					assert.Equal(t, int64(-1), committedBy(t, co, q), "%s: nothing is committed before Commit", name)
				}
				res, err := co.Pull(t.Context(), q, 8, 1)
				require.NoError(t, err)
				if res.Status == pocketmq.PullNoNewMessage {
					sendNumbers(t, p, q, 8, 9)
				}
				assert.Equal(t, tc.want, drained(t, co), "%s assign=%v", name, assign)
			}
		}
	})
}

func TestBroadcastingPullConsumersKeepTheirOwnOffsets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		c, p, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		start := func(name string) *pocketmq.PullConsumer {
			return puller(t, c, pocketmq.PullConsumerConfig{InstanceName: name, Model: pocketmq.Broadcasting, OffsetDir: dir, Subscriptions: all("T")})
		}
		one, two := start("one"), start("two")
		sendNumbers(t, p, q, 0, 30)
		assert.Equal(t, between(0, 30), drained(t, one))
		assert.Equal(t, between(0, 10), polled(t, two))
		assert.Equal(t, between(10, 20), polled(t, two))
		require.NoError(t, one.Close())
		require.NoError(t, two.Close())
		for _, name := range []string{"one", "two"} {
			assert.FileExists(t, filepath.Join(dir, "127.0.0.1@"+name, "g", "offsets.json"))
		}
		one, two = start("one"), start("two")
		assert.Equal(t, int64(30), committedBy(t, one, q))
		assert.Equal(t, int64(10), committedBy(t, two, q))
		assert.Equal(t, int64(-1), committedBy(t, two, queue("T", "broker-a", 7)))
		assert.Empty(t, drained(t, one))
		assert.Equal(t, between(10, 30), drained(t, two))
		require.NoError(t, two.Seek(t.Context(), q, 3))
		require.NoError(t, two.Commit(t.Context()))
		assert.Equal(t, int64(3), committedBy(t, two, q))
	})
}

func TestPullConsumerConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := pocketmq.NewPullConsumer(pocketmq.PullConsumerConfig{
		Group: "no good", InstanceName: "a b", Model: 7, PullBatchSize: -1, NameServers: []string{"x"},
		Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("a||b"), "/": {}}, Timings: pocketmq.Timings{PullSuspend: -1},
	})
	assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
	assert.ErrorIs(t, err, pocketmq.ErrIllegalName)
	for _, part := range []string{"Group", "InstanceName", "Model", "PullBatchSize", "NameServers", "Transport", `Subscriptions["T"]`, "Subscriptions:", "PullSuspend"} {
		assert.ErrorContains(t, err, part)
	}
	_, err = pocketmq.NewPullConsumer(pocketmq.PullConsumerConfig{Group: "g", OffsetDir: "x"})
	assert.ErrorContains(t, err, "OffsetDir")
}

func TestASubscribedTopicMayComeLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, p, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{})
		time.Sleep(time.Minute)
		require.NoError(t, co.Subscribe(t.Context(), "T", pocketmq.Filter{}))
		assert.Equal(t, []pocketmq.MessageQueue{q}, co.Assignment())
		sendNumbers(t, p, q, 0, 3)
		synctest.Wait() // Poll returns what has come
		assert.Equal(t, between(0, 3), polled(t, co))
		status, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		require.Len(t, status.Members, 1)
		assert.Equal(t, co.ClientID(), status.Members[0].ClientID)
	})
}

func TestPollWithoutRetriesOrDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, _ := queueOf(t, 5, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		drained(t, co)
		time.Sleep(5 * time.Minute)
		for _, q := range co.Assignment() {
			assert.Equal(t, "T", q.Topic)
		}
		_, err := co.Poll(cancelled(t))
		assert.True(t, errors.Is(err, context.Canceled))
	})
}

func cancelled(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
