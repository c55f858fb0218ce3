package consume

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

const (
	sendBackTimeout = 5 * time.Second // Java: consumerSendMessageBack's 5000
	fallbackTimeout = 3 * time.Second // of all attempts. Java: sendMsgTimeout of the inner producer
	// keepDelay is how long a message that could not be given back waits for its
	// next delivery here. Java: submitConsumeRequestLater's 5000.
	keepDelay = 5 * time.Second

	// innerProducer is the group of sends that a consumer makes by itself.
	// Java: MixAll.CLIENT_INNER_PRODUCER_GROUP.
	innerProducer = "CLIENT_INNER_PRODUCER"
)

// GroupMaximum as Config.MaxReconsume means that the group's settings say how
// many attempts a message gets.
const GroupMaximum = -1

// back is a failed message on its way back to its broker.
type back struct {
	h     *heldQueue
	t     taken
	level int  // delay level wished for; 0 = what the attempts call for
	dead  bool // no further attempt
}

// backList is what is to be given back to one broker group. Each has its own, so
// that a silent one does not delay what belongs to others.
type backList struct {
	waiting []back // first come first served
	giving  int    // goroutines that give back
}

// backLocked puts a message on the list of its broker.
func (r *run) backLocked(b back) {
	broker := b.h.queue.BrokerName
	l := r.backs[broker]
	if l == nil {
		l = new(backList)
		r.backs[broker] = l
	}
	l.waiting = append(l.waiting, b)
}

// startBacksLocked returns how many goroutines have to be started, outside the
// lock, so that what waits for a broker is given back, Concurrency messages at a
// time at most.
func (r *run) startBacksLocked(broker string) int {
	l := r.backs[broker]
	if l == nil {
		return 0
	}
	n := max(min(len(l.waiting), r.cfg.Concurrency)-l.giving, 0)
	l.giving += n
	return n
}

// spawnBacks starts n goroutines that startBacksLocked has counted. They end when
// the list is empty, or the handlers' context.
func (r *run) spawnBacks(broker string, n int) {
	for range n {
		r.spawn(func() { r.giveBacks(broker) })
	}
}

// giveBacks gives back what waits for a broker until that is nothing. It is apart
// from the workers, so that a silent broker does not keep them from other
// messages; what is on its way counts for flow control.
func (r *run) giveBacks(broker string) {
	for {
		r.mu.Lock()
		l := r.backs[broker]
		for len(l.waiting) > 0 && !l.waiting[0].h.pq.returning(l.waiting[0].t) {
			l.waiting = l.waiting[1:] // dropped or reset: its next owner gets it from the queue
		}
		// Once Close has cancelled the handlers nothing more is given back: what is
		// unfinished is for the group.
		if len(l.waiting) == 0 || r.handlerCtx.Err() != nil {
			l.waiting = nil
			l.giving--
			r.mu.Unlock()
			return
		}
		b := l.waiting[0]
		l.waiting[0] = back{}
		l.waiting = l.waiting[1:]
		r.mu.Unlock()
		err := r.giveBack(r.backCtx, b.h.queue, b.t, b.level, b.dead)
		r.settleBack(b, err)
	}
}

// settleBack finishes a message that was given back. One that was not is handed
// out again here, and keeps the commit offset until then.
func (r *run) settleBack(b back, err error) {
	if err != nil && r.backCtx.Err() != nil {
		return // unfinished, for the group
	}
	now := time.Now()
	var wake []*heldQueue
	var sooner, kept bool
	var data []byte
	if err != nil {
		// The record leaves the batch it was pulled with: a message that waits must
		// not keep the memory of its neighbours.
		data = bytes.Clone(b.t.data)
	}
	r.mu.Lock()
	if err == nil {
		r.counters.SentBack++
		if freed, ok := b.h.pq.returned(b.t); ok {
			r.cached -= freed
			wake = r.roomLocked(nil, b.h)
		}
	} else if kept = b.h.pq.keep(b.t, data); kept {
		due := now.Add(keepDelay)
		sooner = len(r.retries) == 0 || due.Before(r.retries[0].due)
		heap.Push(&r.retries, retry{due: due, h: b.h, seq: b.t.seq})
	}
	r.mu.Unlock()

	for _, h := range wake {
		signal(h.room)
	}
	if sooner {
		signal(r.sooner)
	}
	if kept {
		r.log.Warn("a failed message could not be given back to a broker and is handed out again here", "queue", b.h.queue, "offset", b.t.offset, "delay", keepDelay, "error", err)
	}
	if err == nil && r.cfg.Client.Cached(r.retryTopic) == nil {
		r.trigger(retried) // the broker has made the topic by now
	}
}

// giveBack gives a failed message of queue q back: its broker stores it again,
// for the group to get it after a delay, or as a dead letter. When that fails the
// message goes as an ordinary send to any broker that has the group's retry
// topic. nil means that a broker has acknowledged it. After an error nobody may
// pass the message over; a broker may have stored it nevertheless, so it may come
// twice: it is never lost. Java:
// ConsumeMessageConcurrentlyService.sendMessageBack,
// DefaultMQPushConsumerImpl.sendMessageBack.
func (r *run) giveBack(ctx context.Context, q message.Queue, t taken, level int, dead bool) error {
	rec := message.View(t.data)
	if dead {
		level = -1
	}
	first := r.sendBack(ctx, q.BrokerName, rec, level)
	if first == nil || ctx.Err() != nil {
		return first
	}
	second := r.sendToRetry(ctx, q.BrokerName, fallback(r.cfg, rec, int(t.attempts), level))
	if second == nil {
		r.log.Warn("a broker did not take a failed message back, sent to the retry topic instead", "queue", q, "offset", t.offset, "error", first)
		return nil
	}
	return fmt.Errorf("send-back: %w; send to the retry topic: %w", first, second)
}

// sendBack asks the master of the broker group that has the message.
func (r *run) sendBack(ctx context.Context, broker string, rec message.View, level int) error {
	props := rec.Properties()
	id, _ := message.PropertyBytes(props, message.PropUniqKey)
	topic, _ := message.PropertyBytes(props, message.PropRetryTopic)
	req := &protocol.ConsumerSendMsgBackRequest{
		Group:      r.cfg.Group,
		Position:   rec.Position(),
		DelayLevel: level,
		MsgID:      string(id),
		Topic:      string(topic),
	}
	if len(id) == 0 {
		req.MsgID = message.OffsetMsgID(rec.StoreHost(), rec.Position())
	}
	if len(topic) == 0 {
		req.Topic = string(rec.Topic())
	}
	if r.cfg.MaxReconsume != GroupMaximum {
		most := int32(r.cfg.MaxReconsume)
		req.MaxReconsumeTimes = &most
	}
	return r.callMaster(ctx, broker, sendBackTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		_, err := conn.ConsumerSendMsgBack(ctx, req)
		return err
	})
}

// fallback makes the ordinary send that stands in for a send-back: to the group's
// retry topic, delayed as the attempts so far call for, or as level wishes. Body
// and properties are those of the record, without what was meant for its first
// way. A broker makes it a dead letter when it has failed more often than
// allowed, for a level below 0 at once.
//
// Differs: Java's wish for a level is lost here, a dead letter is tried again.
func fallback(cfg *Config, rec message.View, attempts, level int) *protocol.SendMessageRequest {
	failures := int(rec.ReconsumeTimes()) + attempts
	props := message.DecodeProperties(string(rec.Properties()))
	if props == nil {
		props = make(map[string]string)
	}
	if props[message.PropRetryTopic] == "" {
		props[message.PropRetryTopic] = string(rec.Topic())
	}
	if props[message.PropOriginMessageID] == "" {
		if props[message.PropOriginMessageID] = props[message.PropUniqKey]; props[message.PropOriginMessageID] == "" {
			props[message.PropOriginMessageID] = message.OffsetMsgID(rec.StoreHost(), rec.Position())
		}
	}
	for _, name := range []string{
		message.PropTransactionPrepared, message.PropWait, message.PropRealTopic, message.PropRealQueueID,
		message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs,
		message.PropReconsumeTime, message.PropMaxReconsumeTimes, message.PropDelay, message.PropCRC32,
	} {
		delete(props, name)
	}
	req := &protocol.SendMessageRequest{
		ProducerGroup:      innerProducer,
		Topic:              message.RetryTopic(cfg.Group),
		DefaultTopic:       message.AutoCreateTopic,
		DefaultTopicQueues: 1,
		QueueID:            -1,
		SysFlag:            rec.SysFlag() & (message.FlagCompressed | message.FlagCompressionMask),
		BornTime:           time.UnixMilli(rec.BornTime()),
		Flag:               rec.Flag(),
		ReconsumeTimes:     int32(failures + 1),
		Body:               rec.Body(),
	}
	if most := int32(cfg.MaxReconsume); level < 0 {
		req.MaxReconsumeTimes = new(int32) // it has failed more often than that: a dead letter at once
	} else if cfg.MaxReconsume != GroupMaximum {
		req.MaxReconsumeTimes = &most
	}
	if level == 0 {
		level = 3 + failures
	}
	if level > 0 {
		props[message.PropDelay] = strconv.Itoa(level)
	}
	req.Properties = message.EncodeProperties(props)
	return req
}

// sendToRetry sends to some broker that has the retry topic: to one that is not
// last first, since that has just failed.
func (r *run) sendToRetry(ctx context.Context, last string, req *protocol.SendMessageRequest) error {
	ctx, cancel := context.WithTimeout(ctx, fallbackTimeout)
	defer cancel()
	route, err := r.cfg.Client.Route(ctx, req.Topic)
	if err != nil {
		return err
	}
	var brokers []string
	for _, q := range route.Publish { // sorted: the queues of a broker follow each other
		if n := len(brokers); q.BrokerName != last && (n == 0 || brokers[n-1] != q.BrokerName) {
			brokers = append(brokers, q.BrokerName)
		}
	}
	rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	for _, q := range route.Publish {
		if q.BrokerName == last {
			brokers = append(brokers, last)
			break
		}
	}
	if len(brokers) == 0 {
		return fmt.Errorf("topic %q has no writable queue: %w", req.Topic, protocol.ErrNoRoute)
	}
	end, _ := ctx.Deadline()
	var errs []error
	for i, broker := range brokers {
		share := time.Until(end) / time.Duration(len(brokers)-i)
		err := r.callMaster(ctx, broker, share, func(ctx context.Context, conn protocol.BrokerConn) error {
			_, err := conn.SendMessage(ctx, req)
			return err
		})
		if err == nil || stored(err) {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return joined(errs)
}

// stored reports whether a send that failed has stored its message all the same:
// the producer of it would be told so, too, and would not send it again.
func stored(err error) bool {
	return errors.Is(err, protocol.ErrFlushDiskTimeout) || errors.Is(err, protocol.ErrFlushSlaveTimeout) || errors.Is(err, protocol.ErrSlaveNotAvailable)
}
