package interop_test

import (
	"fmt"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestUnknownTopicIsCreatedByTheFirstSend(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	p := rmqtest.Producer(t, c, producer.WithDefaultTopicQueueNums(3))
	const n = 50
	sendSync(t, p, "new", n, nil)
	_, err := p.SendSync(t.Context(), primitive.NewMessage("new-batch", []byte("1")), primitive.NewMessage("new-batch", []byte("2")))
	require.NoError(t, err)
	// The official client says 4 for a single message, whatever its option says.
	for topic, queues := range map[string]int{"new": 4, "new-batch": 3} {
		route, err := c.Admin().Route(t.Context(), topic)
		require.NoError(t, err)
		require.Len(t, route.Queues, 1)
		assert.Equal(t, queues, route.Queues[0].WriteQueues, topic)
	}
	box, batched := consume(t, c, "new", everything), consume(t, c, "new-batch", everything)
	box.wait(t, n)
	batched.wait(t, 2)
	report(t, "producer/unknown topic", n+2, box.distinct()+batched.distinct(), "created by the first send")
}

func TestUnknownTopicIsAnErrorWhereBrokersCreateNone(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{DisableAutoCreateTopic: true}}}})
	p := rmqtest.Producer(t, c)
	_, err := p.SendSync(t.Context(), primitive.NewMessage("unknown", []byte("x")))
	require.Error(t, err)
	topics, err := c.Admin().Topics(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, topics, "unknown")

	topic := rmqtest.Topic(t, c, 4) // the same producer sends to topics that exist
	sendSync(t, p, topic, 1, nil)
	done("producer/unknown topic", "an error where brokers create none")
}

// TestRetryOnAnotherBroker: a broker refuses, another one is killed, and comes
// back. What was acknowledged is there, once.
func TestRetryOnAnotherBroker(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	topic := rmqtest.Topic(t, c, 4)
	p := rmqtest.Producer(t, c, producer.WithRetry(2))
	const n = 60
	acked := make(map[string]bool)
	send := func(what string) (brokers map[string]int) {
		brokers = make(map[string]int)
		for _, r := range sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.Body = fmt.Append(nil, what, i) }) {
			acked[r.MsgID] = true
			brokers[r.MessageQueue.BrokerName]++
		}
		return brokers
	}

	refusal := c.Inject(pocketmq.Fault{
		Code: protocol.CodeSendMessage, Node: "broker-a/0", Times: 5,
		Err: &protocol.Error{Code: protocol.ServiceNotAvailable, Remark: "not now"},
	})
	assert.Len(t, send("refused "), 2)
	require.NoError(t, refusal.Wait(t.Context(), 5))

	require.NoError(t, c.Kill("broker-a", 0))
	assert.Equal(t, map[string]int{"broker-b": n}, send("killed "))

	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	assert.Len(t, send("back "), 2)

	box := consume(t, c, topic, everything)
	messages := byID(box.wait(t, len(acked)))
	for id := range acked {
		assert.Contains(t, messages, id)
	}
	report(t, "producer/retry", 3*n, box.distinct(), "5 refused by a broker, one broker killed and restarted")
}
