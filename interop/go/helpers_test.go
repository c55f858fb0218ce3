package interop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
)

// patience is how long a scenario waits for something that happens, sooner or
// later. It decides nothing else.
const patience = 30 * time.Second

// start runs a cluster on loopback for t, with mqtest's short intervals unless
// cfg says otherwise.
func start(t *testing.T, cfg pocketmq.ClusterConfig) *pocketmq.Cluster {
	t.Helper()
	if cfg.Transport == nil {
		cfg.Transport = pocketmq.TCP("127.0.0.1")
	}
	return mqtest.Run(t, cfg)
}

// report prints the summary line of a scenario that has succeeded, and fails it
// when something was lost.
func report(t *testing.T, scenario string, sent, consumed int, more ...string) {
	t.Helper()
	require.Equal(t, sent, consumed, "%s: sent and consumed", scenario)
	line := fmt.Sprintf("interop: %s: %d sent, %d consumed, lost %d", scenario, sent, consumed, sent-consumed)
	for _, s := range more {
		line += ", " + s
	}
	fmt.Println(line)
}

// done prints the summary line of a scenario that sends nothing.
func done(scenario, what string) { fmt.Printf("interop: %s: %s\n", scenario, what) }

// received is a message as a consumer got it, an official one or one of ours.
type received struct {
	topic, msgID, offsetMsgID string
	tag, keys, body           string
	queue, reconsumed         int
	offset                    int64
	storeSize                 int
	at                        time.Time
	property                  func(name string) string
}

// inbox collects what consumers get. Safe for concurrent use.
type inbox struct {
	mu      sync.Mutex // guards the fields below; leaf
	got     []received
	changed chan struct{} // closed, and made anew, with every message
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{})} }

func (b *inbox) add(r received) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, r)
	close(b.changed)
	b.changed = make(chan struct{})
}

// all returns what has come, in the order of its coming.
func (b *inbox) all() []received {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// distinct counts the message ids that have come.
func (b *inbox) distinct() int {
	ids := make(map[string]bool)
	for _, r := range b.all() {
		ids[r.msgID] = true
	}
	return len(ids)
}

// wait waits until n different messages have come, and returns all that have.
func (b *inbox) wait(t *testing.T, n int) []received {
	t.Helper()
	b.until(func() bool { return b.distinct() >= n })
	require.GreaterOrEqual(t, b.distinct(), n, "messages consumed within %v", patience)
	return b.all()
}

// waitFor waits for messages by id, and returns how many of them have come.
func (b *inbox) waitFor(ids map[string]bool) (found int) {
	b.until(func() bool {
		messages := byID(b.all())
		found = 0
		for id := range ids {
			if _, ok := messages[id]; ok {
				found++
			}
		}
		return found == len(ids)
	})
	return found
}

// until waits until enough holds, which it asks after each message.
func (b *inbox) until(enough func() bool) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if enough() {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			return
		}
	}
}

// official is a handler for official push consumers.
func (b *inbox) official(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, m := range msgs {
		b.add(received{
			topic: m.Topic, msgID: m.MsgId, offsetMsgID: m.OffsetMsgId, tag: m.GetTags(), keys: m.GetKeys(), body: string(m.Body),
			queue: m.Queue.QueueId, reconsumed: int(m.ReconsumeTimes), offset: m.QueueOffset, storeSize: int(m.StoreSize),
			at: time.Now(), property: m.GetProperty,
		})
	}
	return consumer.ConsumeSuccess, nil
}

// ours is a handler for consumers of ours.
func (b *inbox) ours(_ context.Context, msgs []*pocketmq.MessageExt) error {
	for _, m := range msgs {
		b.add(received{
			topic: m.Topic, msgID: m.MsgID, offsetMsgID: m.OffsetMsgID, tag: m.Tag, keys: m.Property("KEYS"), body: string(m.Body),
			queue: m.Queue.QueueID, reconsumed: m.ReconsumeTimes, offset: m.QueueOffset, storeSize: m.StoreSize,
			at: time.Now(), property: m.Property,
		})
	}
	return nil
}

var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

// consume starts an official push consumer of the topic from its first message,
// in a group named after the topic.
func consume(t *testing.T, c *pocketmq.Cluster, topic string, selector consumer.MessageSelector, opts ...consumer.Option) *inbox {
	t.Helper()
	box := newInbox()
	opts = append([]consumer.Option{consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)
	p := rmqtest.Consumer(t, c, "g-"+topic, opts...)
	require.NoError(t, p.Subscribe(topic, selector, box.official))
	require.NoError(t, p.Start())
	return box
}

// consumeOurs starts a consumer of ours of the topic from its first message, in
// another group.
func consumeOurs(t *testing.T, c *pocketmq.Cluster, topic string, filter pocketmq.Filter) *inbox {
	t.Helper()
	box := newInbox()
	_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: "ours-" + topic, Subscriptions: map[string]pocketmq.Filter{topic: filter},
		From: pocketmq.FromFirstOffset, Handler: box.ours,
	})
	require.NoError(t, err)
	return box
}

// sendSync sends n messages one after another and returns the results; edit, if
// not nil, changes a message first.
func sendSync(t *testing.T, p rocketmq.Producer, topic string, n int, edit func(i int, m *primitive.Message)) []*primitive.SendResult {
	t.Helper()
	results := make([]*primitive.SendResult, n)
	for i := range n {
		m := primitive.NewMessage(topic, fmt.Appendf(nil, "%s %d", topic, i))
		if edit != nil {
			edit(i, m)
		}
		r, err := p.SendSync(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, primitive.SendOK, r.Status)
		results[i] = r
	}
	return results
}

// byID indexes messages by id.
func byID(messages []received) map[string]received {
	out := make(map[string]received, len(messages))
	for _, m := range messages {
		out[m.msgID] = m
	}
	return out
}
