package groups_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
)

// keys is how many orders the tests of order follow.
const keys = 20

// order watches that the messages of each key come in order and those of each
// queue one at a time, whoever handles them.
type order struct {
	mu     sync.Mutex // guards the rest
	last   map[string]int
	busy   map[string]string // queue -> who handles one of it
	wrongs []string
	seen   int
	again  int
	queues map[string]map[string]bool // queue -> who has handled one of it
}

func newOrder() *order {
	return &order{last: make(map[string]int), busy: make(map[string]string), queues: make(map[string]map[string]bool)}
}

func (o *order) begin(a arrival) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if other, ok := o.busy[a.queue]; ok {
		o.wrongs = append(o.wrongs, fmt.Sprintf("%s handles %s of queue %s while %s handles another one", a.who, a.body, a.queue, other))
	}
	o.busy[a.queue] = a.who
	if o.queues[a.queue] == nil {
		o.queues[a.queue] = make(map[string]bool)
	}
	o.queues[a.queue][a.who] = true
	key, number, _ := strings.Cut(a.body, " ")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n > o.last[key]+1:
		o.wrongs = append(o.wrongs, fmt.Sprintf("%s got %s after number %d", a.who, a.body, o.last[key]))
	case n == o.last[key]+1:
		o.last[key] = n
		o.seen++
	default:
		o.again++ // a new owner begins where the former one had committed
	}
}

func (o *order) end(a arrival) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.busy, a.queue)
}

func (o *order) check(t *testing.T, messages int) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	assert.Empty(t, o.wrongs)
	assert.Equal(t, messages, o.seen, "messages in order")
}

// official is a handler of an official orderly consumer.
func (o *order) official(in *inbox, who string) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			a := officialArrival(who, m)
			o.begin(a)
			in.put(a)
			o.end(a)
		}
		return consumer.ConsumeSuccess, nil
	}
}

// ours is a handler of an orderly consumer of ours.
func (o *order) ours(in *inbox, who string) func(context.Context, []*pocketmq.MessageExt) error {
	return func(_ context.Context, msgs []*pocketmq.MessageExt) error {
		for _, m := range msgs {
			a := ourArrival(who, m)
			o.begin(a)
			in.put(a)
			o.end(a)
		}
		return nil
	}
}

// orders sends the messages from to to-1 of each key, numbers from 1, and returns
// their bodies.
func orders(t *testing.T, p rocketmq.Producer, topic string, from, to int) []string {
	t.Helper()
	var bodies []string
	for n := from; n < to; n++ {
		for k := range keys {
			body := fmt.Sprintf("key%d %d", k, n)
			m := primitive.NewMessage(topic, []byte(body))
			m.WithShardingKey(fmt.Sprintf("key%d", k))
			_, err := p.SendSync(t.Context(), m)
			require.NoError(t, err)
			bodies = append(bodies, body)
		}
	}
	return bodies
}

// quickLocks are timings with which a queue that an official orderly consumer
// has let go is free after 3 s: it gives no lock back when it loses a queue, and
// lets 60 s pass with the default. Its own renewals must come that much faster:
// see officialOrderly.
func quickLocks() pocketmq.Timings {
	timings := mqtest.Fast()
	timings.LockExpire, timings.LockClientLife = 3*time.Second, 2*time.Second
	return timings
}

// officialOrderly starts an official orderly consumer.
func officialOrderly(t *testing.T, c *pocketmq.Cluster, handler func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error), opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	opts = append([]consumer.Option{consumer.WithConsumerOrder(true), consumer.WithRebalanceLockInterval(200 * time.Millisecond)}, opts...)
	return push(t, c, "G", "T", everything, handler, opts...)
}

// locked waits until the members named hold the locks of that many queues each.
func locked(t *testing.T, c *pocketmq.Cluster, want map[string]int) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, _ := c.Broker("broker-a", 0).Group("G")
		has := make(map[string]int)
		for q, id := range st.Locks {
			if q.Topic == "T" {
				has[id]++
			}
		}
		return maps.Equal(has, want)
	}, patience, 20*time.Millisecond, "locks %v", want)
}

// TestOfficialOrderlyConsumersKeepOrder while members come and go. The one that
// joins waits: for the lock that the other one does not give back, and for its
// own next rebalance, 20 s after its start.
func TestOfficialOrderlyConsumersKeepOrder(t *testing.T) {
	t.Parallel()
	c := clusterWith(t, quickLocks(), map[string]int{"T": 4})
	o, in := newOrder(), newInbox()
	ids := make(map[string]string)
	p := rmqtest.Producer(t, c, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	a := officialOrderly(t, c, o.official(in, "a"))
	ids["a"] = joined(t, c, "G", ids)
	locked(t, c, map[string]int{ids["a"]: 4})

	officialOrderly(t, c, o.official(in, "b"))
	ids["b"] = joined(t, c, "G", ids)
	bodies := orders(t, p, "T", 1, 36)
	in.waitBodies(t, bodies)
	locked(t, c, map[string]int{ids["a"]: 2, ids["b"]: 2})

	require.NoError(t, a.Shutdown())
	bodies = append(bodies, orders(t, p, "T", 36, 51)...)
	in.waitBodies(t, bodies)
	locked(t, c, map[string]int{ids["b"]: 4})
	o.check(t, len(bodies))
	summary(t, "consumer/orderly", "%d consumed in order per key while a member joined and one left, lost 0; %d delivered again", len(bodies), o.again)
}

// TestAnOrderlyMessageThatAlwaysFailsBecomesADeadLetter, and the ones behind it
// are consumed after it.
func TestAnOrderlyMessageThatAlwaysFailsBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 1})
	in, dead := newInbox(), newInbox()
	const max = 5
	handler := in.official("a", func(_ context.Context, a arrival) consumer.ConsumeResult {
		if a.body == "poison" {
			return consumer.SuspendCurrentQueueAMoment
		}
		return consumer.ConsumeSuccess
	})
	push(t, c, "G", "T", everything, handler, consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(max))
	sendAll(t, rmqtest.Producer(t, c), "T", []string{"first", "poison", "last"})
	in.waitBodies(t, []string{"first", "poison", "last"})
	deadLetters(t, c, "G", dead)
	dead.waitBodies(t, []string{"poison"})
	attempts := in.count("poison")
	assert.Equal(t, 1, in.count("first"))
	assert.Equal(t, 1, in.count("last"))
	assert.Equal(t, max+2, attempts, "the official client counts more than, not at least")
	summary(t, "consumer/retry/order", "1 of 3 failed %d times in its place, then became a dead letter, lost 0", attempts)
}

// deadLetters has a consumer of ours collect the dead letters of a group.
func deadLetters(t *testing.T, c *pocketmq.Cluster, group string, in *inbox) {
	t.Helper()
	_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: "undertaker", Subscriptions: map[string]pocketmq.Filter{"%DLQ%" + group: {}}, From: pocketmq.FromFirstOffset,
		Handler: in.ours("undertaker", nil),
	})
	require.NoError(t, err)
}
