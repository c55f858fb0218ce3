package interop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

func TestProducerSimple(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box, ours := consume(t, c, topic, everything), consumeOurs(t, c, topic, pocketmq.Filter{})
	p := rmqtest.Producer(t, c)
	const n = 200
	sent := sendSync(t, p, topic, n, func(i int, m *primitive.Message) {
		m.WithProperty("shop", fmt.Sprint("shop-", i))
		m.Flag = int32(i)
	})

	queues := make(map[int]int)
	for name, got := range map[string][]received{"official": box.wait(t, n), "ours": ours.wait(t, n)} {
		messages := byID(got)
		require.Len(t, messages, n, name)
		for i, r := range sent {
			m := messages[r.MsgID]
			assert.Equal(t, topic, m.topic, name)
			assert.Equal(t, fmt.Sprintf("%s %d", topic, i), m.body, name)
			assert.Equal(t, r.OffsetMsgID, m.offsetMsgID, name)
			assert.Equal(t, r.MessageQueue.QueueId, m.queue, name)
			assert.Equal(t, r.QueueOffset, m.offset, name)
			assert.Equal(t, fmt.Sprint("shop-", i), m.property("shop"), name)
			queues[m.queue]++
		}
	}
	assert.Len(t, queues, 4, "the official producer goes round all queues")

	byOffsetID, err := c.Admin().MessageByID(t.Context(), sent[7].OffsetMsgID)
	require.NoError(t, err)
	assert.Equal(t, sent[7].MsgID, byOffsetID.MsgID)
	assert.EqualValues(t, 7, byOffsetID.Flag)
	byKey, err := c.Admin().MessageByUniqueKey(t.Context(), topic, sent[8].MsgID)
	require.NoError(t, err)
	assert.Equal(t, sent[8].OffsetMsgID, byKey.OffsetMsgID)
	report(t, "producer/simple", n, box.distinct(), "ours consumed "+fmt.Sprint(ours.distinct()))
}

func TestProducerAsync(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c)
	const n = 300
	var mu sync.Mutex // guards ids
	var ids []string
	var answers sync.WaitGroup
	for i := range n {
		answers.Add(1)
		require.NoError(t, p.SendAsync(t.Context(), func(_ context.Context, r *primitive.SendResult, err error) {
			defer answers.Done()
			if assert.NoError(t, err) && assert.Equal(t, primitive.SendOK, r.Status) {
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, r.MsgID)
			}
		}, primitive.NewMessage(topic, fmt.Append(nil, i))))
	}
	answers.Wait()
	messages := byID(box.wait(t, n))
	for _, id := range ids {
		assert.Contains(t, messages, id)
	}
	report(t, "producer/async", n, box.distinct())
}

func TestProducerOneway(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c)
	const n = 300
	for i := range n {
		require.NoError(t, p.SendOneWay(t.Context(), primitive.NewMessage(topic, fmt.Append(nil, i))))
	}
	box.wait(t, n)
	report(t, "producer/oneway", n, box.distinct())
}

func TestProducerBatch(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box, ours := consume(t, c, topic, everything), consumeOurs(t, c, topic, pocketmq.Filter{})
	p := rmqtest.Producer(t, c)
	const batches, size = 10, 30
	want := make(map[string]int64) // offset message id -> queue offset
	for b := range batches {
		var batch []*primitive.Message
		for i := range size {
			batch = append(batch, primitive.NewMessage(topic, fmt.Appendf(nil, "%d/%d", b, i)).WithTag("T").WithKeys([]string{fmt.Sprint("k", b), "all"}))
		}
		r, err := p.SendSync(t.Context(), batch...)
		require.NoError(t, err)
		require.Equal(t, primitive.SendOK, r.Status)
		ids := strings.Split(r.OffsetMsgID, ",")
		require.Len(t, ids, size)
		for i, id := range ids {
			want[id] = r.QueueOffset + int64(i)
		}
	}
	require.Len(t, want, batches*size)
	for name, got := range map[string][]received{"official": box.wait(t, batches*size), "ours": ours.wait(t, batches*size)} {
		require.Len(t, got, batches*size, name)
		for _, m := range got {
			offset, ok := want[m.offsetMsgID]
			assert.True(t, ok, "%s: %s is not one of the ids of the results", name, m.offsetMsgID)
			assert.Equal(t, offset, m.offset, name)
			assert.Equal(t, "T", m.tag, name)
			assert.Contains(t, m.keys, "all", name)
		}
	}
	report(t, "producer/batch", batches*size, box.distinct(), "ours consumed "+fmt.Sprint(ours.distinct()))
}

func TestProducerTag(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagC"}
	box, ours := consume(t, c, topic, selector), consumeOurs(t, c, topic, pocketmq.Tags("TagA", "TagC"))
	p := rmqtest.Producer(t, c)
	const n = 150
	tags := []string{"TagA", "TagB", "TagC"}
	sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.WithTag(tags[i%3]) })
	const wanted = n / 3 * 2
	for name, got := range map[string][]received{"official": box.wait(t, wanted), "ours": ours.wait(t, wanted)} {
		count := make(map[string]int)
		for _, m := range got {
			count[m.tag]++
		}
		assert.Equal(t, map[string]int{"TagA": n / 3, "TagC": n / 3}, count, name)
	}
	report(t, "producer/tag", wanted, box.distinct(), fmt.Sprintf("%d of another tag left out", n-wanted))
}

func TestProducerNamespace(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Topics: map[string]int{"shop%orders": 4, "orders": 4}})
	box := consume(t, c, "orders", everything, consumer.WithNamespace("shop"))
	outside := consume(t, c, "orders", everything)
	ours := consumeOurs(t, c, "shop%orders", pocketmq.Filter{})
	p := rmqtest.Producer(t, c, producer.WithNamespace("shop"))
	const n = 100
	for i := range n {
		r, err := p.SendSync(t.Context(), primitive.NewMessage("orders", fmt.Append(nil, i)))
		require.NoError(t, err)
		require.Equal(t, "shop%orders", r.MessageQueue.Topic)
	}
	ours.wait(t, n)
	for _, m := range box.wait(t, n) {
		assert.Equal(t, "shop%orders", m.topic)
	}
	assert.Empty(t, outside.all(), "a topic of the same name outside of the namespace is another one")
	_, inside := c.Broker("broker-a", 0).Group("shop%g-orders")
	assert.True(t, inside, "the group's name is in the namespace too")
	report(t, "producer/namespace", n, box.distinct())
}

func TestProducerInterceptor(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	var mu sync.Mutex // guards steps
	var steps []string
	interceptor := func(name string) primitive.Interceptor {
		return func(ctx context.Context, req, reply any, next primitive.Invoker) error {
			step := func(when string) {
				mu.Lock()
				defer mu.Unlock()
				steps = append(steps, name+" "+when)
			}
			step("before")
			req.(*primitive.Message).WithProperty(name, "was here")
			err := next(ctx, req, reply)
			if r, ok := reply.(*primitive.SendResult); ok && r.Status == primitive.SendOK && r.TraceOn && r.RegionID == "DefaultRegion" {
				step("after")
			}
			return err
		}
	}
	p := rmqtest.Producer(t, c, producer.WithInterceptor(interceptor("first"), interceptor("second")))
	const n = 20
	sendSync(t, p, topic, n, nil)
	for _, m := range box.wait(t, n) {
		assert.Equal(t, "was here", m.property("first"))
		assert.Equal(t, "was here", m.property("second"))
	}
	assert.Equal(t, slices.Repeat([]string{"first before", "second before", "second after", "first after"}, n), steps)
	report(t, "producer/interceptor", n, box.distinct())
}

func TestProducerKeys(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c)
	const n = 60
	sent := sendSync(t, p, topic, n, func(i int, m *primitive.Message) {
		m.WithKeys([]string{fmt.Sprint("order-", i%20), fmt.Sprint("customer-", i%3)})
	})
	box.wait(t, n)
	for key, indices := range map[string][]int{"order-7": {7, 27, 47}, "order-19": {19, 39, 59}} {
		found, err := c.Admin().MessagesByKey(t.Context(), topic, key, timeZero, timeZero, 100)
		require.NoError(t, err)
		var ids, want []string
		for _, m := range found {
			ids = append(ids, m.MsgID)
		}
		for _, i := range indices {
			want = append(want, sent[i].MsgID)
		}
		assert.ElementsMatch(t, want, ids, key)
	}
	found, err := c.Admin().MessagesByKey(t.Context(), topic, "customer-2", timeZero, timeZero, 100)
	require.NoError(t, err)
	assert.Len(t, found, n/3)
	assert.Equal(t, []string{"order-5", "customer-2"}, mustFind(t, found, sent[5].MsgID).Keys)
	report(t, "producer/keys", n, box.distinct(), "all found by key")
}

func mustFind(t *testing.T, messages []*pocketmq.MessageExt, id string) *pocketmq.MessageExt {
	t.Helper()
	i := slices.IndexFunc(messages, func(m *pocketmq.MessageExt) bool { return m.MsgID == id })
	require.GreaterOrEqual(t, i, 0, "message %s", id)
	return messages[i]
}

// TestProducerACL: who signs requests is served like everybody else.
func TestProducerACL(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	who := primitive.Credentials{AccessKey: "RocketMQ", SecretKey: "12345678", SecurityToken: "token"}
	box := consume(t, c, topic, everything, consumer.WithCredentials(who))
	p := rmqtest.Producer(t, c, producer.WithCredentials(who))
	const n = 50
	sendSync(t, p, topic, n, nil)
	box.wait(t, n)
	report(t, "producer/acl", n, box.distinct())
}
