package remoting

import (
	"cmp"
	"maps"
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// queue writes a queue. Java: MessageQueue.
func (w *writer) queue(broker, topic string, id int) {
	w.open('{')
	w.text("brokerName", broker)
	w.int("queueId", int64(id))
	w.text("topic", topic)
	w.shut('}')
}

// queueName writes a queue as the name of a member, which is no JSON but what
// fastjson makes of a map of queues, and what RocketMQ's tools read.
func (w *writer) queueName(broker, topic string, id int) {
	w.queue(broker, topic, id)
	w.colon()
}

func (w *writer) queues(name string, queues []message.Queue) {
	w.list(name)
	for _, q := range queues {
		w.queue(q.BrokerName, q.Topic, q.QueueID)
	}
	w.shut(']')
}

func queueOf(v Value) message.Queue {
	return message.Queue{Topic: v.Get("topic").Text(), BrokerName: v.Get("brokerName").Text(), QueueID: v.Get("queueId").int32(0)}
}

// queuesOf reads a list of queues; an empty one is not nil.
func queuesOf(v Value) []message.Queue {
	queues := make([]message.Queue, 0, len(v.List()))
	for _, item := range v.List() {
		queues = append(queues, queueOf(item))
	}
	return queues
}

// sortedQueues makes bodies repeat, as sortedKeys.
func sortedQueues[V any](m map[message.Queue]V) []message.Queue {
	return slices.SortedFunc(maps.Keys(m), message.Queue.Compare)
}

// sortedKeys makes bodies repeat.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
