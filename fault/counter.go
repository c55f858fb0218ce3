package fault

import (
	"sync/atomic"

	"github.com/pocketmq/pocketmq/message"
)

// Counter goes round a topic's queues. Its users share one turn: a producer
// has one Counter per topic. Safe for concurrent use; it takes no lock and does
// not allocate. The zero value starts at 0. It must not be copied.
//
// Java: ThreadLocalIndex. Differs: there each thread has its own turn.
type Counter struct{ n atomic.Int32 }

// NewCounter returns a Counter whose first pick looks at index start+1. Any
// value is legal, and overflow is harmless; producers start at random so that
// they do not all begin with the same queue.
func NewCounter(start int32) *Counter {
	c := &Counter{}
	c.n.Store(start)
	return c
}

// Pick returns the next queue that is not on lastBroker, and any next one when
// all are there, so that a topic on a single broker stays usable after a
// failure. An empty lastBroker excludes nothing. It reports false only when
// there are no queues. It never changes queues and keeps nothing of them.
//
// Each queue that is looked at advances the turn by one. Java:
// TopicPublishInfo.selectOneMessageQueue(lastBrokerName).
func (c *Counter) Pick(queues []message.Queue, lastBroker string) (message.Queue, bool) {
	if lastBroker != "" {
		if q, ok := c.next(queues, func(broker string) bool { return broker != lastBroker }); ok {
			return q, true
		}
	}
	return c.any(queues)
}

// any returns the next queue, whatever its broker.
func (c *Counter) any(queues []message.Queue) (message.Queue, bool) {
	if len(queues) == 0 {
		return message.Queue{}, false
	}
	return queues[index(c.n.Add(1), len(queues))], true
}

// next returns the next queue on a broker that good accepts, false when none
// is. Java: TopicPublishInfo.selectOneMessageQueue(QueueFilter...).
func (c *Counter) next(queues []message.Queue, good func(broker string) bool) (message.Queue, bool) {
	size := len(queues)
	if size == 0 {
		return message.Queue{}, false
	}
	// The whole round is looked at from one n: if each look took the counter
	// anew, concurrent picks could hand one caller only queues that are no good.
	n := c.n.Add(1)
	for i := range size {
		q := &queues[index(n+int32(i), size)]
		if good(q.BrokerName) {
			if i > 0 {
				c.n.Add(int32(i))
			}
			return *q, true
		}
	}
	c.n.Add(int32(size - 1))
	// The sequence of indexes breaks where the counter wraps, which may have
	// hidden a queue from the round above.
	for i := range queues {
		if good(queues[i].BrokerName) {
			return queues[i], true
		}
	}
	return message.Queue{}, false
}

// index maps a counter value to a queue, negative ones too.
func index(n int32, size int) int { return int(n&0x7FFFFFFF) % size }
