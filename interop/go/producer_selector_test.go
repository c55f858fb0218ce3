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
)

// TestProducerSelectorHash: the queue of a sharding key is the one that a
// producer of ours chooses, so both may send one key's messages in order.
func TestProducerSelectorHash(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	topic := rmqtest.Topic(t, c, 5)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	ours, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
	require.NoError(t, err)
	const keys, each = 40, 5
	used := make(map[pocketmq.MessageQueue]bool)
	for k := range keys {
		key := fmt.Sprint("order-", k)
		mine, err := ours.Send(t.Context(), &pocketmq.Message{Topic: topic, ShardingKey: key, Body: []byte("ours")})
		require.NoError(t, err)
		used[mine.Queue] = true
		for _, r := range sendSync(t, p, topic, each, func(_ int, m *primitive.Message) { m.WithShardingKey(key) }) {
			require.Equal(t, mine.Queue, pocketmq.MessageQueue{Topic: r.MessageQueue.Topic, BrokerName: r.MessageQueue.BrokerName, QueueID: r.MessageQueue.QueueId}, key)
		}
	}
	assert.Len(t, used, 10, "40 keys meet all 10 queues")
	box.wait(t, keys*(each+1))
	report(t, "producer/selector hash", keys*(each+1), box.distinct(), "queues as a producer of ours chooses them")
}

func TestProducerSelectorManual(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c, producer.WithQueueSelector(producer.NewManualQueueSelector()))
	queues, err := rmqtest.Admin(t, c).FetchPublishMessageQueues(t.Context(), topic)
	require.NoError(t, err)
	require.Len(t, queues, 4)
	const n = 80
	for i, r := range sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.Queue = queues[i*i%4] }) {
		assert.Equal(t, queues[i*i%4], r.MessageQueue)
	}
	box.wait(t, n)
	report(t, "producer/selector manual", n, box.distinct())
}

func TestProducerSelectorRoundRobinAndRandom(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	for name, s := range map[string]producer.QueueSelector{"round robin": producer.NewRoundRobinQueueSelector(), "random": producer.NewRandomQueueSelector()} {
		topic := rmqtest.Topic(t, c, 4)
		box := consume(t, c, topic, everything)
		p := rmqtest.Producer(t, c, producer.WithQueueSelector(s))
		const n = 80
		count := make(map[int]int)
		for _, r := range sendSync(t, p, topic, n, nil) {
			count[r.MessageQueue.QueueId]++
		}
		if name == "random" {
			assert.Len(t, count, 4)
		} else {
			assert.Equal(t, map[int]int{0: n / 4, 1: n / 4, 2: n / 4, 3: n / 4}, count)
		}
		box.wait(t, n)
		report(t, "producer/selector "+name, n, box.distinct())
	}
}
