package groups_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/rebalance"
)

// poll puts what a pull consumer polls into in until each of bodies is there.
// verdict says what to acknowledge; nil = success.
func poll(t *testing.T, co rocketmq.PullConsumer, in *inbox, who string, bodies []string, verdict func(arrival) consumer.ConsumeResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for next := 0; next < len(bodies); {
		if in.count(bodies[next]) > 0 {
			next++
			continue
		}
		require.NoError(t, ctx.Err(), "poll %s", bodies[next])
		request, err := co.Poll(ctx, time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		require.NoError(t, err)
		result := consumer.ConsumeSuccess
		for _, m := range request.GetMsgList() {
			a := officialArrival(who, m)
			if verdict != nil {
				result = verdict(a)
			}
			if result == consumer.ConsumeSuccess {
				in.put(a)
			}
		}
		co.ACK(ctx, request, result)
	}
}

// TestPollInAGroup: two pull consumers share the queues; one message fails and is
// polled again from the retry topic.
func TestPollInAGroup(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4})
	bodies := numbered("m", 100)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	in := newInbox()
	// Without a batch size the official client asks for 0 messages, and gets one.
	a := rmqtest.PullConsumer(t, c, "G", consumer.WithMaxReconsumeTimes(2), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, a.Subscribe("T", everything))
	require.NoError(t, a.Start())
	failed := false
	poll(t, a, in, "a", bodies, func(m arrival) consumer.ConsumeResult {
		if m.body == bodies[0] && !failed {
			failed = true
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	})
	assert.Zero(t, in.repeats())
	for _, m := range in.arrivals() {
		want := 0
		if m.body == bodies[0] {
			want = 1
		}
		assert.Equal(t, want, m.tries, m.body)
	}
	require.NoError(t, a.Shutdown())
	waitGroup(t, c, "G", "everything committed", lagless)

	b := rmqtest.PullConsumer(t, c, "G", consumer.WithPullBatchSize(10))
	require.NoError(t, b.Subscribe("T", everything))
	require.NoError(t, b.Start())
	waitShared(t, c, "G", "T", 1, rebalance.Averagely)
	more := numbered("more", 100)
	sendAll(t, rmqtest.Producer(t, c), "T", more)
	poll(t, b, in, "b", more, nil)
	assert.Zero(t, in.repeats())
	summary(t, "consumer/pull/poll", "%d polled by two consumers one after the other, lost 0, 1 failed and was polled again", len(bodies)+len(more))
}

// TestPollOfAssignedQueues begins where SeekOffset says.
func TestPollOfAssignedQueues(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4})
	p := rmqtest.Producer(t, c)
	sendAll(t, p, "T", numbered("old", 40))
	<-time.After(2 * time.Millisecond) // store times are whole milliseconds
	moment := time.Now()
	bodies := numbered("m", 40)
	sendAll(t, p, "T", bodies)

	co := rmqtest.PullConsumer(t, c, "G", consumer.WithPullBatchSize(8))
	require.NoError(t, co.Assign("T", nil)) // the official client does not start without
	require.NoError(t, co.Start())
	queues, err := co.GetTopicRouteInfo("T")
	require.NoError(t, err)
	require.Len(t, queues, 4)
	for _, q := range queues {
		offset, err := co.OffsetForTimestamp(q, moment.UnixMilli())
		require.NoError(t, err)
		assert.EqualValues(t, 10, offset)
		co.SeekOffset(q, offset)
	}
	require.NoError(t, co.Assign("T", queues))
	in := newInbox()
	poll(t, co, in, "a", bodies, nil)
	assert.Len(t, in.arrivals(), len(bodies), "nothing from before")
	summary(t, "consumer/pull/poll_assign", "%d polled of 4 assigned queues, from a time on, lost 0", len(bodies))
}

// TestPullTakesTurns: each Pull reads the next queue where the group stands. One
// of the queues is that of the group's retry topic, and a Pull of it waits 20 s;
// nobody waits for it here.
func TestPullTakesTurns(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 3})
	p := rmqtest.Producer(t, c)
	co := rmqtest.PullConsumer(t, c, "G", consumer.WithPullBatchSize(1), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, co.Subscribe("T", consumer.MessageSelector{Type: consumer.TAG, Expression: "wanted"}))
	require.NoError(t, co.Start())
	waitGroup(t, c, "G", "the queues of the topic", func(st pocketmq.GroupStatus) bool { return len(st.Members) == 1 && len(st.Members[0].Assigned) == 3 })
	in := newInbox()
	total := 0
	for _, name := range []string{"first", "second"} {
		var wanted []string
		for i := range 60 {
			m := primitive.NewMessage("T", fmt.Append(nil, name, i)).WithTag([]string{"wanted", "other"}[i/3%2])
			_, err := p.SendSync(t.Context(), m)
			require.NoError(t, err)
			if m.GetTags() == "wanted" {
				wanted = append(wanted, string(m.Body))
			}
		}
		answers := make(chan error, 4)
		for range cap(answers) {
			go func() { answers <- pull(co, in) }()
		}
		in.waitBodies(t, wanted)
		for range 3 {
			require.NoError(t, <-answers)
		}
		require.NoError(t, co.PersistOffset(t.Context(), "T"))
		total += len(wanted)
	}
	assert.Zero(t, in.repeats())
	summary(t, "consumer/pull/pull", "%d pulled from 3 queues in turns, by tag, lost 0", total)
}

// pull reads the next queue once and says that what came is consumed.
func pull(co rocketmq.PullConsumer, in *inbox) error {
	r, err := co.Pull(context.Background(), 32)
	if err != nil {
		return err
	}
	for _, m := range r.GetMessageExts() {
		err = co.UpdateOffset(m.Queue, r.NextBeginOffset)
		in.put(officialArrival("a", m))
	}
	return err
}

// TestPullFromReadsAnywhere.
func TestPullFromReadsAnywhere(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 1})
	bodies := numbered("m", 30)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	co := rmqtest.PullConsumer(t, c, "G", consumer.WithPullBatchSize(1))
	require.NoError(t, co.Subscribe("T", everything))
	require.NoError(t, co.Start())
	queues, err := rmqtest.Admin(t, c).FetchPublishMessageQueues(t.Context(), "T")
	require.NoError(t, err)
	require.Len(t, queues, 1)
	for _, at := range []int64{0, 29, 10} {
		r, err := co.PullFrom(t.Context(), queues[0], at, 1)
		require.NoError(t, err)
		require.Equal(t, primitive.PullFound, r.Status)
		require.Len(t, r.GetMessageExts(), 1)
		assert.Equal(t, bodies[at], string(r.GetMessageExts()[0].Body))
		assert.Equal(t, at+1, r.NextBeginOffset)
		assert.EqualValues(t, 0, r.MinOffset)
		assert.EqualValues(t, len(bodies), r.MaxOffset)
	}
	beyond, err := co.PullFrom(t.Context(), queues[0], 31, 1)
	require.NoError(t, err)
	assert.Equal(t, primitive.PullOffsetIllegal, beyond.Status)
	assert.EqualValues(t, len(bodies), beyond.NextBeginOffset)
	// At the end a pull waits for what comes next.
	arrived := make(chan string, 1)
	go func() {
		r, err := co.PullFrom(context.WithoutCancel(t.Context()), queues[0], 30, 1)
		if err != nil || len(r.GetMessageExts()) == 0 {
			arrived <- fmt.Sprint(r, err)
			return
		}
		arrived <- string(r.GetMessageExts()[0].Body)
	}()
	const held = 3 // with those of the consumer's own loops, for the topic and the retry topic
	require.Eventually(t, func() bool { return c.Broker("broker-a", 0).Status().HeldPulls == held }, patience, time.Millisecond)
	sendAll(t, rmqtest.Producer(t, c), "T", []string{"next"})
	select {
	case got := <-arrived:
		assert.Equal(t, "next", got)
	case <-time.After(patience):
		require.Fail(t, "the pull at the end was not answered")
	}
	summary(t, "consumer/pull/pull_from", "read at 0, 29, 10, beyond the end, and what came next")
}
