package pocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// committedOf is what a group has committed in a queue, -1 for nothing. It
// demands that no lag is negative and no commit beyond its queue.
func committedOf(t *testing.T, c *pocketmq.Cluster, group string, q pocketmq.MessageQueue) int64 {
	t.Helper()
	at := int64(-1)
	for b := range c.Brokers() {
		g, _ := b.Group(group)
		for _, l := range g.Queues {
			require.GreaterOrEqual(t, l.Lag, int64(0))
			require.LessOrEqual(t, l.Committed, l.Max, "%v", l)
			if l.Queue == q {
				at = l.Committed
			}
		}
	}
	return at
}

// sendTo sends n messages, each with its number, wherever the producer likes.
func sendTo(t *testing.T, p *pocketmq.Producer, topic string, from, n int) {
	t.Helper()
	for i := range n {
		_, err := p.Send(t.Context(), text(topic, "message %03d", from+i))
		require.NoError(t, err)
	}
}

func TestCP03_ResetActsAtOnceOnARunningConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p, q := producer(t, c, pocketmq.ProducerConfig{}), queue("T", "broker-a", 0)
		sendNumbered(t, p, 0, 100, 0)
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c")})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, in.arrivals(), 100)
		require.EqualValues(t, 100, committedOf(t, c, "g", q))

		for round := range 3 {
			before := len(in.arrivals())
			begin := time.Now()
			require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 60))
			synctest.Wait()
			assert.Zero(t, time.Since(begin), "without any wait")
			again := in.arrivals()[before:]
			require.Len(t, again, 40, "round %d", round)
			slices.SortFunc(again, func(a, b arrival) int { return int(a.msg.QueueOffset - b.msg.QueueOffset) })
			for i, a := range again {
				require.EqualValues(t, 60+i, a.msg.QueueOffset)
			}
			time.Sleep(6 * time.Second)
			assert.EqualValues(t, 100, committedOf(t, c, "g", q))
		}

		// To where it is, while messages flow: nothing comes again, nothing waits.
		before := len(in.arrivals())
		require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 100))
		begin := time.Now()
		sendTo(t, p, "T", 100, 10)
		synctest.Wait()
		assert.Zero(t, time.Since(begin))
		assert.Len(t, in.arrivals(), before+10)
		assert.EqualValues(t, 20*time.Second, pocketmq.DefaultTimings().Rebalance, "the time that is allowed")
		time.Sleep(6 * time.Second)
		assert.EqualValues(t, 110, committedOf(t, c, "g", q))
	})
}

func TestCP03_WhatAHandlerHoldsDuringAResetDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p, q := producer(t, c, pocketmq.ProducerConfig{}), queue("T", "broker-a", 0)
		sendNumbered(t, p, 0, 100, 0)
		var in inbox
		gate := make(chan struct{})
		held := true // only the handler uses it: Concurrency is 1
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Concurrency: 1,
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				if msgs[0].QueueOffset == 80 && held {
					held = false
					<-gate
				}
				in.put("c", msgs)
				return nil
			},
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 80, committedOf(t, c, "g", q))
		require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 60))
		for range 20 {
			time.Sleep(time.Second)
			synctest.Wait()
			require.EqualValues(t, 60, committedOf(t, c, "g", q))
		}
		close(gate)
		synctest.Wait()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 100, committedOf(t, c, "g", q))
		times := map[int64]int{}
		for _, a := range in.arrivals() {
			times[a.msg.QueueOffset]++
		}
		for i := range int64(100) {
			want := 1
			if i >= 60 && i <= 80 {
				want = 2 // what had been handled, and what was held
			}
			assert.Equal(t, want, times[i], "offset %d", i)
		}
	})
}

func TestCP03_ResetHoldsForMembersThatCannotPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: dir})
		p, q := producer(t, c, pocketmq.ProducerConfig{}), queue("T", "broker-a", 0)
		sendNumbered(t, p, 0, 100, 0)
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c")})
		time.Sleep(10 * time.Second)
		links(t, c).CutOneWay(co.ClientID(), "broker-a/0") // nothing of it arrives
		require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 60))
		synctest.Wait()
		assert.EqualValues(t, 60, committedOf(t, c, "g", q))
		require.NoError(t, c.Kill("broker-a", 0)) // at once: it has been written
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.EqualValues(t, 60, committedOf(t, c, "g", q))
		links(t, c).HealAll()
		time.Sleep(time.Minute)
		assert.Len(t, in.arrivals(), 140)
		assert.EqualValues(t, 100, committedOf(t, c, "g", q))
	})
}

func TestCP04_RecreatedTopicStartsFresh(t *testing.T) {
	for _, running := range []bool{true, false} {
		for _, restart := range []bool{false, true} {
			for _, pause := range []time.Duration{0, time.Second, time.Minute} {
				t.Run(fmt.Sprintf("running=%v restart=%v pause=%v", running, restart, pause), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { recreate(t, running, restart, pause) })
				})
			}
		}
	}
}

// recreate deletes a topic of which 50 messages have been consumed, and makes it
// again.
func recreate(t *testing.T, running, restart bool, pause time.Duration) {
	c := run(t, pocketmq.ClusterConfig{NameServers: 2, Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	admin := c.Admin()
	create := func() {
		require.NoError(t, admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 2}))
	}
	create()
	p := producer(t, c, pocketmq.ProducerConfig{})
	sendTo(t, p, "T", 0, 50)
	var in inbox
	start := func() *pocketmq.Consumer {
		return consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c"), From: pocketmq.FromFirstOffset})
	}
	co := start()
	lags := func() {
		all, err := admin.Lag(t.Context(), "g")
		require.NoError(t, err)
		for _, l := range all {
			require.GreaterOrEqual(t, l.Lag, int64(0))
			require.LessOrEqual(t, l.Committed, l.Max, "%v", l)
		}
	}
	time.Sleep(6 * time.Second)
	synctest.Wait()
	require.Len(t, in.arrivals(), 50)
	lags()
	if !running {
		require.NoError(t, co.Close())
	}

	require.NoError(t, admin.DeleteTopic(t.Context(), "T"))
	for i := range 2 {
		conn, err := c.Transport().DialNameServer(t.Context(), protocol.Dial{Node: "probe", Addr: c.NameServerAddrs()[i]})
		require.NoError(t, err)
		_, err = conn.GetRoute(t.Context(), &protocol.GetRouteRequest{Topic: "T"})
		require.ErrorIs(t, err, pocketmq.ErrNoRoute, "gone from name server %d", i)
		require.NoError(t, conn.Close())
	}
	offsets, err := admin.Offsets(t.Context(), "g", "T")
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
	require.Empty(t, offsets)
	lags()
	if restart {
		for _, b := range []string{"broker-a", "broker-b"} {
			require.NoError(t, c.Kill(b, 0))
			require.NoError(t, c.Restart(t.Context(), b, 0))
		}
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
	}
	time.Sleep(pause)
	create()
	lags()
	sendTo(t, p, "T", 50, 5)
	if !running {
		start()
	}
	for range 120 {
		time.Sleep(time.Second)
		synctest.Wait()
		lags()
	}
	var fresh []string
	for _, a := range in.arrivals()[50:] {
		fresh = append(fresh, string(a.msg.Body))
		assert.Less(t, a.msg.QueueOffset, int64(5), "offsets begin at 0")
	}
	slices.Sort(fresh)
	assert.Equal(t, numbered(50, 5), fresh, "these, once")
	all, err := admin.Lag(t.Context(), "g")
	require.NoError(t, err)
	for _, l := range all {
		assert.Zero(t, l.Lag, "%v", l)
		assert.Equal(t, l.Max, max(l.Committed, 0), "%v", l)
	}
}

func TestHeldPullOfADeletedTopicAnswersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		done := make(chan error, 1)
		begin := time.Now()
		go func() {
			_, err := conn.PullMessage(context.Background(), &protocol.PullMessageRequest{Group: "g", Topic: "T", MaxMessages: 1, Suspend: time.Minute, HasExpression: true, Expression: "*"})
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Admin().DeleteTopic(t.Context(), "T"))
		require.ErrorIs(t, <-done, &protocol.Error{Code: protocol.TopicNotExist})
		assert.Zero(t, time.Since(begin))
		require.NoError(t, c.Admin().DeleteTopic(t.Context(), "T"), "it is gone: no error")
		require.ErrorIs(t, c.Admin().DeleteTopic(t.Context(), "a b"), pocketmq.ErrIllegalName)
		require.ErrorIs(t, c.Admin().DeleteTopic(t.Context(), "TBW102"), pocketmq.ErrIllegalName)
		_, err := c.Admin().Route(t.Context(), "TBW102")
		require.NoError(t, err, "and still there")
	})
}

func TestAResetMovesEveryMemberOfABroadcastingGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		in := []*inbox{{}, {}}
		for i := range in {
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Model: pocketmq.Broadcasting, Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in[i].handler("")})
		}
		pull := puller(t, c, pocketmq.PullConsumerConfig{Group: "g", Model: pocketmq.Broadcasting, Subscriptions: all("T"), From: pocketmq.FromFirstOffset, PullBatchSize: 32})
		poll := func(want int) {
			t.Helper()
			for n := 0; n < want; {
				msgs, err := pull.Poll(t.Context())
				require.NoError(t, err)
				n += len(msgs)
			}
		}
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 20 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		poll(20)
		synctest.Wait()
		began := time.Now()
		_, err := c.Admin().ResetOffsets(t.Context(), "g", "T", time.Unix(0, 0))
		require.NoError(t, err)
		poll(20)
		synctest.Wait()
		for i := range in {
			assert.Len(t, in[i].arrivals(), 40, "all of it once more")
		}
		assert.Zero(t, time.Since(began))
		require.NoError(t, c.Admin().SkipBacklog(t.Context(), "g", "T"))
		_, err = p.Send(t.Context(), text("T", "last"))
		require.NoError(t, err)
		poll(1)
		synctest.Wait()
		for i := range in {
			assert.Len(t, in[i].arrivals(), 41)
		}
	})
}
