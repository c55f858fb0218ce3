package groups_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

func TestOfficialInterceptorsSeeEveryMessage(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	var before, after, inner atomic.Int64
	outermost := func(ctx context.Context, req, reply any, next primitive.Invoker) error {
		before.Add(int64(len(req.([]*primitive.MessageExt))))
		err := next(ctx, req, reply)
		if reply.(*consumer.ConsumeResultHolder).ConsumeResult == consumer.ConsumeSuccess {
			after.Add(int64(len(req.([]*primitive.MessageExt))))
		}
		return err
	}
	innermost := func(ctx context.Context, req, reply any, next primitive.Invoker) error {
		if m, ok := primitive.GetConsumerCtx(ctx); ok && m.ConsumerGroup == "G" {
			inner.Add(int64(len(req.([]*primitive.MessageExt))))
		}
		return next(ctx, req, reply)
	}
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("a", nil), consumer.WithInterceptor(outermost, innermost))
	bodies := numbered("m", 50)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	in.waitBodies(t, bodies)
	waitGroup(t, c, "G", "a pull after the last message", func(st pocketmq.GroupStatus) bool { return after.Load() == int64(len(bodies)) })
	assert.EqualValues(t, len(bodies), before.Load())
	assert.EqualValues(t, len(bodies), inner.Load())
	summary(t, "consumer/interceptor", "%d messages through two interceptors, lost 0", len(bodies))
}

// TestOfficialConsumersLeaveTraces of what they consume, two for each message.
func TestOfficialConsumersLeaveTraces(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in, traces := newInbox(), newInbox()
	push(t, c, "G", "T", everything, in.official("a", nil), consumer.WithTrace(rmqtest.Trace()))
	_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: "tracer", Subscriptions: map[string]pocketmq.Filter{rmqtest.TraceTopic: {}}, From: pocketmq.FromFirstOffset,
		Handler: traces.ours("tracer", nil),
	})
	require.NoError(t, err)
	bodies := numbered("m", 30)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	in.waitBodies(t, bodies)
	kinds := make(map[string]int)
	next := 0
	traces.wait(t, "the traces", func(list []arrival, _ map[string]int) bool {
		for ; next < len(list); next++ {
			for record := range strings.SplitSeq(strings.TrimSuffix(list[next].body, "\x02"), "\x02") {
				kind, _, _ := strings.Cut(record, "\x01")
				kinds[kind]++
			}
		}
		return kinds["SubBefore"]+kinds["SubAfter"] >= 2*len(bodies)
	})
	assert.Equal(t, map[string]int{"SubBefore": len(bodies), "SubAfter": len(bodies)}, kinds)
	summary(t, "consumer/trace", "%d consumed, lost 0, %d traces", len(bodies), kinds["SubBefore"]+kinds["SubAfter"])
}

func TestANamespaceKeepsGroupsAndTopicsApart(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2, "space%T": 2})
	inside, outside := newInbox(), newInbox()
	push(t, c, "G", "T", everything, inside.official("a", nil), consumer.WithNamespace("space"),
		consumer.WithCredentials(primitive.Credentials{AccessKey: "RocketMQ", SecretKey: "12345678"}))
	push(t, c, "G", "T", everything, outside.official("b", nil))
	in, out := numbered("in", 40), numbered("out", 40)
	sendAll(t, rmqtest.Producer(t, c, producer.WithNamespace("space")), "T", in)
	sendAll(t, rmqtest.Producer(t, c), "T", out)
	inside.waitBodies(t, in)
	outside.waitBodies(t, out)
	assert.Len(t, inside.arrivals(), len(in))
	assert.Len(t, outside.arrivals(), len(out))
	for _, group := range []string{"G", "space%G"} {
		waitShared(t, c, group, map[string]string{"G": "T", "space%G": "space%T"}[group], 1, rebalance.Averagely)
	}
	summary(t, "consumer/namespace, consumer/acl", "%d messages inside, %d outside, none on the wrong side", len(in), len(out))
}

// TestASuspendedOfficialConsumerRests: it pulls nothing and takes no queue until
// Resume. What a broker holds for it when Suspend is called still comes.
func TestASuspendedOfficialConsumerRests(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 1})
	in := newInbox()
	// Gives way to whoever else is there, so that the test need not wait 30 s: so
	// long the official client rests once it has found itself suspended, Resume or
	// not. A queue that it gets anew it pulls at once.
	generous := func(_, _ string, all []*primitive.MessageQueue, ids []string) []*primitive.MessageQueue {
		if len(ids) > 1 {
			return nil
		}
		return all
	}
	a := push(t, c, "G", "T", everything, in.official("a", nil), consumer.WithStrategy(generous))
	p := rmqtest.Producer(t, c)
	sendAll(t, p, "T", []string{"before"})
	in.waitBodies(t, []string{"before"})
	const queues = 2 // with that of the retry topic
	require.Eventually(t, func() bool { return c.Broker("broker-a", 0).Status().HeldPulls == queues }, patience, time.Millisecond, "pulls that wait")

	a.Suspend()
	sendAll(t, p, "T", []string{"held"})
	in.waitBodies(t, []string{"held"})
	while := numbered("while", 20)
	sendAll(t, p, "T", while)
	other := newInbox()
	b, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: "G", Subscriptions: map[string]pocketmq.Filter{"T": {}}, From: pocketmq.FromFirstOffset,
		Strategy: rebalance.ByConfig(queuesOf(t, c, "T")...), Handler: other.ours("b", nil),
	})
	require.NoError(t, err)
	other.waitBodies(t, while)

	a.Resume()
	require.NoError(t, b.Close())
	after := numbered("after", 5)
	sendAll(t, p, "T", after)
	in.waitBodies(t, after)
	for _, arrived := range in.arrivals() {
		assert.NotContains(t, while, arrived.body, "delivered while suspended")
	}
	summary(t, "consumer suspend and resume", "%d messages passed by a suspended consumer, %d consumed after Resume, lost 0", len(while), len(after))
}

// TestASlowOfficialConsumerIsNotFlooded: flow control is the client's, and works
// on what the broker answers: its cache stays within what it was told.
func TestASlowOfficialConsumerIsNotFlooded(t *testing.T) {
	t.Parallel()
	const total, cached, batch = 1000, 64, 32
	c := cluster(t, map[string]int{"T": 1})
	bodies := numbered("m", total)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	in := newInbox()
	slow := func(context.Context, arrival) consumer.ConsumeResult {
		<-time.After(time.Millisecond) // what a handler may take
		return consumer.ConsumeSuccess
	}
	push(t, c, "G", "T", everything, in.official("a", slow), consumer.WithConsumeGoroutineNums(2),
		consumer.WithPullThresholdForQueue(cached), consumer.WithPullThresholdForTopic(cached), consumer.WithPullBatchSize(batch))
	id := joined(t, c, "G", nil)
	most, looks := 0, 0
	for n := 50; n <= total; n += 50 {
		in.wait(t, fmt.Sprint(n, " messages"), func(_ []arrival, counts map[string]int) bool { return len(counts) >= n })
		for _, q := range running(t, c, "G", id).Queues {
			most = max(most, q.CachedCount)
		}
		looks++
	}
	assert.LessOrEqual(t, most, cached+batch, "messages in the cache")
	assert.Greater(t, most, batch, "messages in the cache: it was never full")
	summary(t, "consumer flow control", "%d consumed, lost 0, at most %d of %d allowed in the cache, seen in %d looks", total, most, cached+batch, looks)
}

// running asks a member, through its broker, what it is doing.
func running(t *testing.T, c *pocketmq.Cluster, group, clientID string) *protocol.GetConsumerRunningInfoResponse {
	t.Helper()
	conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: t.Name(), Addr: c.Broker("broker-a", 0).Addr()})
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	r, err := conn.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: group, ClientID: clientID})
	require.NoError(t, err)
	return r
}

func TestTenThousandFromOfficialToOfficial(t *testing.T) {
	const total, senders = 10_000, 8
	c := cluster(t, map[string]int{"T": 4}, "broker-a", "broker-b")
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("a", nil))
	waitShared(t, c, "G", "T", 1, rebalance.Averagely)
	p := rmqtest.Producer(t, c)
	began := time.Now()
	errs := make(chan error, senders)
	for s := range senders {
		go func() {
			for i := s; i < total; i += senders {
				if _, err := p.SendSync(t.Context(), primitive.NewMessage("T", fmt.Append(nil, "m", i))); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range senders {
		require.NoError(t, <-errs)
	}
	sending := time.Since(began)
	in.waitBodies(t, numbered("m", total))
	all := time.Since(began)
	assert.Zero(t, in.repeats())
	summary(t, "consumer load", "%d messages from official to official, lost 0: sent %.0f a second, consumed %.0f a second",
		total, total/sending.Seconds(), total/all.Seconds())
}
