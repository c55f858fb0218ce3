package consume

import (
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// QueueStatus is a snapshot of one queue that an engine holds. Java:
// ProcessQueueInfo.
type QueueStatus struct {
	Queue          message.Queue
	Cached         int   // messages received and not finished
	CachedBytes    int64 // of them, as they are stored
	CommitOffset   int64 // the lowest unfinished one
	NextPullOffset int64
	Locked         bool // orderly in a group: the broker's lock counts
	Paused         bool
	Pulling        bool      // a pull is under way, which the broker may hold
	LastPull       time.Time // when it, or the one before, was sent
}

// Queues returns the queues held, as Assignment does. The caller owns the result.
func (e *Engine) Queues() []QueueStatus {
	r := e.current()
	if r == nil {
		return nil
	}
	hidden := r.subs.hidden()
	var list []QueueStatus
	now := time.Now()
	r.mu.Lock()
	for q, h := range r.held {
		if hidden[q.Topic] {
			continue
		}
		list = append(list, QueueStatus{
			Queue: q, Cached: h.pq.count, CachedBytes: h.pq.bytes, CommitOffset: h.commitLocked(), NextPullOffset: h.pq.end,
			Locked: r.hasLockLocked(h, now), Paused: r.cfg.Pauses.Has(q), Pulling: h.pulling, LastPull: h.lastPull,
		})
	}
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b QueueStatus) int { return a.Queue.Compare(b.Queue) })
	return list
}

// RunningInfo returns what the engine tells of itself when somebody asks its
// client; internal topics are part of it. The caller owns the result. Java:
// DefaultMQPushConsumerImpl.consumerRunningInfo.
func (e *Engine) RunningInfo() *protocol.GetConsumerRunningInfoResponse {
	info := &protocol.GetConsumerRunningInfoResponse{
		Orderly: e.cfg.Orderly, Passive: !e.cfg.Polled, Concurrency: e.cfg.Concurrency, Subscriptions: e.subs.tell(),
	}
	r := e.current()
	if r == nil {
		return info
	}
	info.Start = r.began
	now := time.Now()
	r.mu.Lock()
	for q, h := range r.held {
		first, last := h.pq.bounds()
		info.Queues = append(info.Queues, protocol.ProcessQueueInfo{
			Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID,
			CommitOffset: h.commitLocked(), CachedMin: first, CachedMax: last, CachedCount: h.pq.count, CachedBytes: h.pq.bytes,
			Locked: r.hasLockLocked(h, now), LastLock: h.lock.at, LastPull: h.lastPull, LastConsume: h.lastGiven,
		})
	}
	r.mu.Unlock()
	slices.SortFunc(info.Queues, func(a, b protocol.ProcessQueueInfo) int { return queueOfInfo(a).Compare(queueOfInfo(b)) })
	return info
}

// Offsets returns, of each queue held of a topic, the offset to consume next by
// what is finished here. A polled engine leaves out queues of which it has nothing
// to commit. The caller owns the result. Java: OffsetStore.cloneOffsetTable.
func (e *Engine) Offsets(topic string) map[message.Queue]int64 {
	offsets := make(map[message.Queue]int64)
	r := e.current()
	if r == nil {
		return offsets
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, h := range r.held {
		if offset := h.commitLocked(); q.Topic == topic && offset >= 0 {
			offsets[q] = offset
		}
	}
	return offsets
}

func queueOfInfo(i protocol.ProcessQueueInfo) message.Queue {
	return message.Queue{Topic: i.Topic, BrokerName: i.BrokerName, QueueID: i.QueueID}
}
