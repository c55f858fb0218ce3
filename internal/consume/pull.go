package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// startPull starts the pull loop of a queue that was just taken.
func (r *run) startPull(h *heldQueue) {
	ctx, cancel := context.WithCancel(r.ctx)
	h.stop, h.stopped = cancel, make(chan struct{})
	r.spawn(func() {
		defer close(h.stopped)
		defer cancel()
		r.pullLoop(ctx, h)
	})
}

// pullLoop pulls one queue until ctx ends: the queue is dropped or the run
// halts. Java: DefaultMQPushConsumerImpl.pullMessage.
func (r *run) pullLoop(ctx context.Context, h *heldQueue) {
	for r.awaitRoom(ctx, h) {
		turn, end := r.turn(ctx, h)
		if wait := r.pull(turn, h); wait > 0 {
			pause(turn, wait)
		}
		end()
	}
}

// awaitRoom waits until flow control allows a pull; false when ctx ended.
func (r *run) awaitRoom(ctx context.Context, h *heldQueue) bool {
	for {
		r.mu.Lock()
		h.waiting = true
		owned := r.ownsLocked(h, time.Now())
		room := owned && r.lookForRoomLocked(h)
		r.mu.Unlock()
		if room {
			return ctx.Err() == nil
		}
		if !owned {
			signal(r.unlocked)
		}
		select {
		case <-h.room:
		case <-ctx.Done():
			return false
		}
	}
}

// hasRoomLocked reports whether flow control allows a pull.
func (r *run) hasRoomLocked(h *heldQueue) bool {
	cfg, p := r.cfg, &h.pq
	return !h.blocked && p.count+min(cfg.PullBatchSize, cfg.MaxCached) <= cfg.MaxCached &&
		p.bytes < cfg.MaxCachedBytes &&
		(cfg.Orderly || p.span() <= cfg.MaxSpan) &&
		!r.fullLocked()
}

// fullLocked reports whether the limits of all queues together are reached.
func (r *run) fullLocked() bool {
	cfg := r.cfg
	if r.cached >= cfg.MaxCachedTotal {
		return true
	}
	if cfg.MaxCachedAll == 0 || len(r.held)*cfg.MaxCached <= cfg.MaxCachedAll {
		return false
	}
	count := 0
	for _, h := range r.held {
		count += h.pq.count
	}
	return count+cfg.PullBatchSize > cfg.MaxCachedAll
}

// lookForRoomLocked reports whether the pull loop of h, which waits, may pull,
// and then notes that it does not wait any more. A queue that goes on waiting is
// looked at again when something of itself is set free, and, if the total is
// reached, when that has room again.
func (r *run) lookForRoomLocked(h *heldQueue) bool {
	room := r.hasRoomLocked(h)
	h.waiting = !room
	if !room && r.fullLocked() {
		r.full[h] = true
	} else {
		delete(r.full, h)
	}
	return room
}

// roomLocked appends to dst the queues that may be pulled again now that
// something of h was set free. They are to be signalled outside the lock.
func (r *run) roomLocked(dst []*heldQueue, h *heldQueue) []*heldQueue {
	if h.waiting && r.lookForRoomLocked(h) {
		dst = append(dst, h)
	}
	return r.totalRoomLocked(dst)
}

// totalRoomLocked is roomLocked for the queues that wait for MaxCachedTotal.
func (r *run) totalRoomLocked(dst []*heldQueue) []*heldQueue {
	if r.fullLocked() {
		return dst
	}
	for h := range r.full {
		if r.lookForRoomLocked(h) {
			dst = append(dst, h)
		}
	}
	return dst
}

// pull sends one pull and puts what it brings. It returns how long to wait
// before the next one.
func (r *run) pull(ctx context.Context, h *heldQueue) time.Duration {
	broker := h.queue.BrokerName
	addr, id, ok := r.cfg.Client.MemberAddr(broker, h.from)
	if !ok {
		return r.pullFailed(ctx, h, fmt.Errorf("broker %q has no address in any route: %w", broker, protocol.ErrUnreachable))
	}
	callCtx, cancel := context.WithTimeout(ctx, r.cfg.PullSuspend+pullSlack)
	defer cancel()
	conn, err := r.cfg.Client.Broker(callCtx, addr)
	if err != nil {
		h.from = protocol.MasterID
		return r.pullFailed(ctx, h, fmt.Errorf("%s at %s: %w", broker, addr, err))
	}

	r.mu.Lock()
	offset, commit := h.pq.end, h.commitLocked()
	begun := time.Now()
	owned := r.ownsLocked(h, begun)
	h.lastPull, h.pulling = begun, true
	if !h.poll.on {
		h.poll.turn, h.poll.endTurn = h.poll.seeks, cancel
	}
	r.mu.Unlock()
	carries := commit > 0 && id == protocol.MasterID && owned && r.local == nil && !h.poll.on // a slave takes no commits
	expression := ""
	if h.poll.on { // it says itself what it wants: its group need have no members
		expression = expressionOf(h.filter)
	}
	resp, err := conn.PullMessage(callCtx, &protocol.PullMessageRequest{
		Group:          r.cfg.Group,
		Topic:          h.queue.Topic,
		QueueID:        h.queue.QueueID,
		Offset:         offset,
		MaxMessages:    min(r.cfg.PullBatchSize, r.cfg.MaxCached),
		Commit:         carries,
		CommitOffset:   commit,
		Suspend:        r.cfg.PullSuspend,
		HasExpression:  h.poll.on,
		Expression:     expression,
		ExpressionType: protocol.ExpressionTag,
		SubVersion:     h.version,
	})
	stale := r.pullEnded(h, carries, commit, err)
	if ctx.Err() != nil || stale {
		return 0
	}
	if err != nil {
		h.from = protocol.MasterID
		if id == protocol.MasterID && errors.Is(err, protocol.ErrNotMaster) {
			return r.pullElsewhere(ctx, h, err)
		}
		return r.pullRefused(ctx, h, addr, conn, err)
	}
	h.from = resp.SuggestBrokerID
	if h.failing {
		h.failing = false
		r.log.Info("pulls work again", "queue", h.queue)
	}
	wait := r.pulled(ctx, h, resp, offset, time.Since(begun))
	if _, next, _ := r.cfg.Client.MemberAddr(broker, h.from); resp.Code == protocol.PullRetryImmediately && next != id {
		return 0 // a slave does not have it, and says who may
	}
	return wait
}

// pulled puts what a pull brought.
func (r *run) pulled(ctx context.Context, h *heldQueue, resp *protocol.PullMessageResponse, offset int64, held time.Duration) time.Duration {
	var records []record
	switch resp.Code {
	case protocol.Success:
		records = r.accept(h.queue, h.filter, resp.Records)
	case protocol.PullNotFound, protocol.PullRetryImmediately:
	case protocol.PullOffsetMoved:
		return r.offsetMoved(ctx, h, offset, resp)
	default:
		return r.pullFailed(ctx, h, fmt.Errorf("%s answered a pull with code %d", h.queue.BrokerName, resp.Code))
	}
	h.stayed = false

	r.mu.Lock()
	if h.staleLocked() {
		r.mu.Unlock()
		return 0
	}
	before := h.pq.bytes
	n := h.pq.put(records, resp.NextBeginOffset)
	r.cached += h.pq.bytes - before
	r.counters.Received += int64(n)
	moved := h.pq.end > offset
	if n > 0 {
		r.nextLocked(h)
	}
	r.mu.Unlock()
	if moved || held >= r.cfg.PullSuspend/2 {
		h.elsewhere = false
	}
	if !moved && held < r.cfg.PullSuspend/2 {
		// Neither held nor moved on, as by a slave that has not come this far:
		// asking again at once would spin.
		return r.cfg.PullErrorDelay
	}
	return 0
}

// accept parses what a pull brought, applies the exact tag filter (the broker
// compares hashes only), and copies what is left out of the response into one
// buffer: the response may belong to a far larger piece of memory, such as a
// broker's log file.
func (r *run) accept(q message.Queue, tags filter.Tags, raw [][]byte) []record {
	all := tags.All()
	records := make([]record, 0, len(raw))
	size, bad := 0, 0
	for _, b := range raw {
		view, err := message.ParseView(b)
		if err != nil {
			bad++
			r.log.Error("a stored record does not decode and is passed over", "queue", q, "error", err)
			continue
		}
		if !all {
			tag, _ := message.PropertyBytes(view.Properties(), message.PropTags)
			if !tags.MatchTag(string(tag)) {
				continue
			}
		}
		records = append(records, record{offset: view.QueueOffset(), data: view})
		size += len(view)
	}
	buf := make([]byte, 0, size)
	for i := range records {
		from := len(buf)
		buf = append(buf, records[i].data...)
		records[i].data = buf[from:len(buf):len(buf)]
	}
	if bad > 0 {
		r.mu.Lock()
		r.counters.Undecodable += int64(bad)
		r.mu.Unlock()
	}
	return records
}

// offsetMoved goes on at the offset that the broker names. One that was asked for and
// lies outside of the queue says nothing about what was pulled before: that is consumed
// still, but for what lies at or behind the new one, which comes again. One that lies
// inside means that somebody has reset the group: what is cached is dropped. The offset is
// committed at once. Java freezes the queue, drops it with all that is cached, which is
// lost then, and rebalances.
func (r *run) offsetMoved(ctx context.Context, h *heldQueue, offset int64, resp *protocol.PullMessageResponse) time.Duration {
	if h.poll.on {
		return r.polledMoved(ctx, h, offset, resp)
	}
	next := resp.NextBeginOffset
	r.toldToMove(h.queue, offset, resp)
	r.mu.Lock()
	if wasReset(offset, resp) {
		r.cached -= h.pq.reset(next)
		r.retries.forget(h)
	} else {
		r.cached -= h.pq.unread(next)
	}
	wake := r.roomLocked(nil, h)
	r.mu.Unlock()
	for _, f := range wake {
		signal(f.room)
	}
	if err := r.commit(ctx, h); err != nil && ctx.Err() == nil {
		r.log.Warn("offset not committed, trying again later", "queue", h.queue, "error", err)
	}
	// A group that is reset to where it reads is told so once. Who says it again
	// calls an offset illegal, and yet the one to use.
	again := h.stayed && next == offset
	h.stayed = next == offset
	if again {
		return r.cfg.PullErrorDelay
	}
	r.jumped(h.queue, offset, next)
	return 0
}

// wasReset reports whether a broker that names another offset than the one it was
// asked for does so because somebody has reset the group: offset is the queue's.
func wasReset(offset int64, resp *protocol.PullMessageResponse) bool {
	return offset >= resp.MinOffset && offset <= resp.MaxOffset
}

// toldToMove reports that a broker named another offset.
func (r *run) toldToMove(q message.Queue, offset int64, resp *protocol.PullMessageResponse) {
	attrs := []any{"queue", q, "offset", offset, "next", resp.NextBeginOffset, "min", resp.MinOffset, "max", resp.MaxOffset}
	if wasReset(offset, resp) {
		r.log.Info("the group was reset, going on where the broker says", attrs...)
	} else {
		r.log.Warn("the offset is outside the queue, or the group was reset, going on where the broker says", attrs...)
	}
}

// pullRefused treats a pull that failed with a broker's answer, or without one.
func (r *run) pullRefused(ctx context.Context, h *heldQueue, addr string, conn protocol.BrokerConn, err error) time.Duration {
	if !answered(err) {
		r.cfg.Client.Lost(addr, conn)
		return r.pullFailed(ctx, h, fmt.Errorf("%s at %s: %w", h.queue.BrokerName, addr, err))
	}
	switch code(err) {
	case protocol.SubscriptionNotExist, protocol.SubscriptionNotLatest, protocol.SubscriptionGroupNotExist:
		// The broker does not know this member (any more): it has restarted, or
		// has just joined.
		r.log.Debug("broker does not know the subscription, registering", "queue", h.queue, "error", err)
		if err := r.heartbeat(ctx, h.queue.BrokerName); err != nil && ctx.Err() == nil {
			return r.pullFailed(ctx, h, err)
		}
		return r.cfg.RebalanceRetry
	}
	return r.pullFailed(ctx, h, err)
}

// pullElsewhere goes on at the new master, when a master says that it is none any more,
// or at a slave, for once, when there is no other one yet.
func (r *run) pullElsewhere(ctx context.Context, h *heldQueue, err error) time.Duration {
	former, _ := r.cfg.Client.MasterAddr(h.queue.BrokerName)
	r.refresh(ctx, h.queue.Topic)
	if now, ok := r.cfg.Client.MasterAddr(h.queue.BrokerName); ok && now != former {
		return 0
	}
	slave, ok := r.slaveOf(h.queue)
	if !ok {
		return r.pullFailed(ctx, h, err)
	}
	h.from = slave
	if h.elsewhere { // that has brought nothing the last time: asking again at once would spin
		return r.cfg.PullErrorDelay
	}
	h.elsewhere = true
	return 0
}

// slaveOf is the slave of a queue's broker group with the lowest id.
func (r *run) slaveOf(q message.Queue) (id int64, ok bool) {
	route := r.cfg.Client.Cached(q.Topic)
	if route == nil {
		return 0, false
	}
	for _, b := range route.Brokers {
		for one := range b.Addrs {
			if b.BrokerName == q.BrokerName && one != protocol.MasterID && (!ok || one < id) {
				id, ok = one, true
			}
		}
	}
	return id, ok
}

// pullFailed reports a failed pull, the first of a series as a warning, and
// looks for a newer route unless a broker answered.
func (r *run) pullFailed(ctx context.Context, h *heldQueue, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	log := r.log.Debug
	if !h.failing {
		h.failing = true
		log = r.log.Warn
	}
	log("pull failed, trying again", "queue", h.queue, "delay", r.cfg.PullErrorDelay, "error", err)
	if !answered(err) || errors.Is(err, protocol.ErrNoRoute) {
		r.refresh(ctx, h.queue.Topic)
	}
	return r.cfg.PullErrorDelay
}

// pullEnded notes that a pull is over, and the commit that it carried. The broker
// may have served it after a later UpdateConsumerOffset, so an older one has to be
// replaced, and after an error it is open what the broker has. It reports whether
// the queue was moved meanwhile: then nothing else of the answer counts.
func (r *run) pullEnded(h *heldQueue, carries bool, commit int64, err error) (stale bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.pulling = false
	if carries {
		if err != nil {
			commit = -1
		}
		h.committed = commit
	}
	return h.staleLocked()
}
