package consume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// startOffset decides where a queue is consumed from. Java:
// RebalancePushImpl.computePullFromWhereWithException.
//
// A committed offset always counts. Without one, From decides for queues that
// were in the topic's route while Start, or the topic's Subscribe, ran: the end of
// the queue, its minimum, or the first message stored at FromTime or later. Any
// other queue starts at its minimum; with FromTime where the earlier of FromTime
// and Start lies. What was decided is committed at once, so that a member which
// takes the queue over decides the same. A 0 need not be: a broker answers 0 for
// an uncommitted queue that holds message 0. With FromTime nobody wants that
// answer, so 0 is committed too. An internal topic starts at its minimum, whatever
// From says. Differs: with FromTime Java starts a retry topic at its end.
//
// The committed offset is asked for again after the end, or after what a future
// FromTime has found: another member may have decided in between, and messages
// sent after its Start lie below our end.
//
// A broadcasting member looks into its own table, where 0 is an offset as any.
//
// It returns the offset and what is known to be committed, -1 when that is
// nothing, or the broker's 0, which may be either. Of an internal topic 0
// counts as committed.
func (r *run) startOffset(ctx context.Context, q message.Queue, sub subscription) (start, committed int64, err error) {
	if r.local != nil {
		if start, err = r.localStart(ctx, q, sub); err != nil {
			return 0, -1, fmt.Errorf("start offset of %v: %w", q, err)
		}
		return start, start, nil
	}
	from := r.startFrom(q, sub)
	err = r.call(ctx, q.BrokerName, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		committed = -1
		found := false
		if start, found, err = r.committedOffset(ctx, conn, q); err != nil {
			return err
		}
		if !found {
			if start, err = r.offsetBy(ctx, conn, q, from); err != nil {
				return err
			}
			if from.policy != protocol.ConsumeFromFirst {
				decided := start
				if start, found, err = r.committedOffset(ctx, conn, q); err != nil {
					return err
				}
				if !found {
					start = decided
				}
			}
		}
		if start <= 0 {
			start = 0
			if sub.internal { // every member begins there: nothing has to be committed
				committed = 0
				return nil
			}
			if found || from.policy != protocol.ConsumeFromTime {
				return nil
			}
		}
		if !found && !(r.cfg.ManualCommit && sub.queues != nil) { // what is assigned changes hands by its user only
			if _, err := conn.UpdateConsumerOffset(ctx, r.commitRequest(q, start)); err != nil {
				return fmt.Errorf("commit of the start offset: %w", err)
			}
		}
		committed = start
		return nil
	})
	if err != nil {
		return 0, -1, fmt.Errorf("start offset of %v: %w", q, err)
	}
	return start, committed, nil
}

// localStart is startOffset for a broadcasting member. The round saves what was
// decided.
func (r *run) localStart(ctx context.Context, q message.Queue, sub subscription) (start int64, err error) {
	if start, found := r.local.get(q); found {
		return start, nil
	}
	err = r.call(ctx, q.BrokerName, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) (err error) {
		start, err = r.offsetBy(ctx, conn, q, r.startFrom(q, sub))
		return err
	})
	if err != nil {
		return 0, err
	}
	start = max(start, 0)
	r.local.put(q, start)
	return start, nil
}

// startPoint is where a queue without a committed offset starts.
type startPoint struct {
	policy protocol.ConsumeFrom
	time   time.Time // with ConsumeFromTime
}

// startFrom decides by which rule a queue without a committed offset starts.
func (r *run) startFrom(q message.Queue, sub subscription) startPoint {
	known := r.first[q.Topic][q]
	switch {
	case sub.internal: // what lies there was the group's already: nothing is skipped
	case r.cfg.From == protocol.ConsumeFromLast && known:
		return startPoint{policy: protocol.ConsumeFromLast}
	case r.cfg.From == protocol.ConsumeFromTime:
		since := r.cfg.FromTime
		if !known && sub.since.Before(since) {
			since = sub.since
		}
		return startPoint{policy: protocol.ConsumeFromTime, time: since}
	}
	return startPoint{policy: protocol.ConsumeFromFirst}
}

// offsetBy asks a broker where in a queue a start point lies.
func (r *run) offsetBy(ctx context.Context, conn protocol.BrokerConn, q message.Queue, from startPoint) (int64, error) {
	switch from.policy {
	case protocol.ConsumeFromLast:
		resp, err := conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
		if err != nil {
			return 0, fmt.Errorf("end of the queue: %w", err)
		}
		return resp.Offset, nil
	case protocol.ConsumeFromTime:
		resp, err := conn.SearchOffset(ctx, &protocol.SearchOffsetRequest{Topic: q.Topic, QueueID: q.QueueID, Time: from.time})
		if err != nil {
			return 0, fmt.Errorf("offset of %v: %w", from.time, err)
		}
		return resp.Offset, nil
	}
	resp, err := conn.GetMinOffset(ctx, &protocol.GetMinOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
	if err != nil {
		return 0, fmt.Errorf("minimum of the queue: %w", err)
	}
	return resp.Offset, nil
}

// committedOffset asks for the group's committed offset.
//
// Differs: with FromTime a young queue starts where the time says. RocketMQ's
// consumers take the broker's 0 for it.
func (r *run) committedOffset(ctx context.Context, conn protocol.BrokerConn, q message.Queue) (offset int64, found bool, err error) {
	resp, err := conn.QueryConsumerOffset(ctx, &protocol.QueryConsumerOffsetRequest{
		Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, CommittedOnly: r.cfg.From == protocol.ConsumeFromTime,
	})
	switch {
	case code(err) == protocol.QueryNotFound:
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("committed offset: %w", err)
	}
	return resp.Offset, true, nil
}

func (r *run) commitRequest(q message.Queue, offset int64) *protocol.UpdateConsumerOffsetRequest {
	return &protocol.UpdateConsumerOffsetRequest{Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, Offset: offset}
}

// commitLoop commits the offsets that changed, every OffsetPersist from the
// start on. Java: MQClientInstance's persistAllConsumerOffset, whose first run
// is later.
func (r *run) commitLoop() {
	ticker := time.NewTicker(r.cfg.OffsetPersist)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		var queues []*heldQueue
		now := time.Now()
		for _, h := range r.held {
			switch {
			case h.commitLocked() == h.committed:
				h.noTopic, h.noted = false, false // a pull may have carried it
			case r.ownsLocked(h, now):
				queues = append(queues, h)
			}
		}
		r.mu.Unlock()
		failed := r.commitAll(r.ctx, queues)
		if r.ctx.Err() == nil { // otherwise the run halts, and leave commits
			r.warn(r.news(failed))
		}
	}
}

// news leaves out the queues of which was said before that their broker has no
// such topic: a deleted one may stay subscribed for long.
func (r *run) news(failed []unstored) []unstored {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range failed {
		failed[i].queues = slices.DeleteFunc(failed[i].queues, func(h *heldQueue) bool {
			told := h.noted
			h.noted = h.noTopic
			return told && h.noted
		})
	}
	return slices.DeleteFunc(failed, func(u unstored) bool { return len(u.queues) == 0 })
}

// commitFinished commits what handlers finish from now on, after halt, each
// broker for itself, until end is called or ctx ends: when ctx ends before the
// last handler, what the others have finished is stored already. end returns
// when nothing of it runs any more: what the last attempt at each broker failed
// with.
func (r *run) commitFinished(ctx context.Context) (end func() map[string]error) {
	brokers := make(map[string]chan struct{})
	r.mu.Lock()
	if r.counters.Running > 0 { // otherwise leave follows at once
		for q := range r.held {
			brokers[q.BrokerName] = nil
		}
		for h := range r.leaving {
			brokers[h.queue.BrokerName] = nil
		}
		for broker := range brokers {
			brokers[broker] = make(chan struct{}, 1)
			r.ended = append(r.ended, brokers[broker])
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards failed
	failed := make(map[string]error)
	for broker, ended := range brokers {
		signal(ended) // for what was finished before
		wg.Go(func() {
			for {
				select {
				case <-ended:
				case <-ctx.Done():
					return
				}
				if queues := r.finished(broker); len(queues) > 0 && ctx.Err() == nil {
					u := r.commitTo(ctx, queues)
					mu.Lock()
					failed[broker] = u.err
					mu.Unlock()
				}
			}
		})
	}
	return func() map[string]error {
		cancel()
		wg.Wait()
		return failed
	}
}

// finished returns the queues of a broker with finished messages that the broker
// is not known to have been told of.
func (r *run) finished(broker string) []*heldQueue {
	r.mu.Lock()
	defer r.mu.Unlock()
	var queues []*heldQueue
	for q, h := range r.held {
		if q.BrokerName == broker && h.losesLocked() {
			queues = append(queues, h)
		}
	}
	for h := range r.leaving {
		if h.queue.BrokerName == broker && h.losesLocked() {
			queues = append(queues, h)
		}
	}
	return queues
}

// losesLocked reports whether messages that this member finished may come again
// when the commit offset does not reach the broker.
func (h *heldQueue) losesLocked() bool {
	offset := h.commitLocked()
	return offset != h.committed && offset != h.start
}

// unstored is what one broker was not told, or has not confirmed.
type unstored struct {
	broker string
	queues []*heldQueue // at least one
	err    error        // of the first one; a missing topic's only when there is no other
}

// commitAll commits the offsets of queues, one broker beside the other, so that
// a silent one delays its own queues only. It returns what failed, by broker.
func (r *run) commitAll(ctx context.Context, queues []*heldQueue) []unstored {
	byBroker := make(map[string][]*heldQueue)
	for _, h := range queues {
		byBroker[h.queue.BrokerName] = append(byBroker[h.queue.BrokerName], h)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex // guards failed
		failed []unstored
	)
	for _, queues := range byBroker {
		wg.Go(func() {
			u := r.commitTo(ctx, queues)
			if len(u.queues) > 0 {
				mu.Lock()
				failed = append(failed, u)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(failed, func(a, b unstored) int { return strings.Compare(a.broker, b.broker) })
	return failed
}

// commitTo commits the offsets of queues of one broker, one after the other,
// until it does not answer. It returns what failed: no queues if nothing did.
func (r *run) commitTo(ctx context.Context, queues []*heldQueue) unstored {
	if r.local != nil {
		if err := r.commitLocal(queues); err != nil {
			return unstored{broker: queues[0].queue.BrokerName, queues: queues, err: err}
		}
		return unstored{}
	}
	var failed unstored
	for i, h := range queues {
		err := r.commit(ctx, h)
		if err == nil {
			continue
		}
		if failed.err == nil || code(failed.err) == protocol.TopicNotExist {
			failed.broker, failed.err = h.queue.BrokerName, err
		}
		if answered(err) {
			failed.queues = append(failed.queues, h)
			continue
		}
		r.mu.Lock()
		for _, h := range queues[i:] {
			if h.commitLocked() != h.committed {
				failed.queues = append(failed.queues, h)
			}
		}
		r.mu.Unlock()
		break
	}
	return failed
}

// warn reports commits that failed and that nobody is told of.
func (r *run) warn(failed []unstored) {
	for _, u := range failed {
		r.log.Warn("offsets not committed", "broker", u.broker, "queues", nameQueues(u.queues), "error", u.err)
	}
}

// maxNamed bounds how many brokers, and queues of each, an error names.
const maxNamed = 3

// nameQueues names queues, in order, the first ones of many.
func nameQueues(queues []*heldQueue) string {
	list := make([]message.Queue, len(queues))
	for i, h := range queues {
		list[i] = h.queue
	}
	slices.SortFunc(list, message.Queue.Compare)
	var b strings.Builder
	for i, q := range list[:min(len(list), maxNamed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(q.String())
	}
	if rest := len(list) - maxNamed; rest > 0 {
		fmt.Fprintf(&b, " and %d more", rest)
	}
	return b.String()
}

// lost tells which of the last offsets were not stored, nil when no message comes
// again for them. Its text is bounded; errors.Is finds the causes of all brokers.
func (r *run) lost(failed []unstored) error {
	var causes []error
	var where []string
	n := 0
	for _, u := range failed {
		r.mu.Lock()
		queues := slices.DeleteFunc(slices.Clone(u.queues), func(h *heldQueue) bool { return !h.losesLocked() })
		r.mu.Unlock()
		if len(queues) == 0 {
			continue
		}
		n += len(queues)
		if causes = append(causes, u.err); len(causes) <= maxNamed {
			where = append(where, fmt.Sprintf("%s: %v", nameQueues(queues), u.err))
		}
	}
	if n == 0 {
		return nil
	}
	if rest := len(causes) - maxNamed; rest > 0 {
		where = append(where, fmt.Sprintf("and %d more brokers", rest))
	}
	text := fmt.Sprintf("consume: shutdown of group %q: the last offsets of %d queues are not known to be stored, the group gets again what was finished there since the commit before, "+
		"give Shutdown more time if the broker is only slow: %s", r.cfg.Group, n, strings.Join(where, "; "))
	return protocol.Tagged(text, causes...)
}

// commit tells the broker a queue's commit offset unless it has it. One call at
// a time per queue, each with the newest offset: the last one wins at the broker.
func (r *run) commit(ctx context.Context, h *heldQueue) error {
	if r.local != nil {
		return r.commitLocal([]*heldQueue{h})
	}
	select {
	case h.committing <- struct{}{}:
	default:
		select {
		case h.committing <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%s: no answer to the commit before: %w: %w", h.queue.BrokerName, protocol.ErrUnknownOutcome, ctx.Err())
		}
	}
	defer func() { <-h.committing }()

	r.mu.Lock()
	offset := h.commitLocked()
	known := offset == h.committed
	r.mu.Unlock()
	if !known {
		if !r.owns(h) { // another member may have it: its offset must not be replaced
			return fmt.Errorf("%v: no offset is committed: %w", h.queue, errNotLocked)
		}
		err := r.call(ctx, h.queue.BrokerName, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
			_, err := conn.UpdateConsumerOffset(ctx, r.commitRequest(h.queue, offset))
			return err
		})
		if err != nil {
			r.mu.Lock()
			h.noTopic = code(err) == protocol.TopicNotExist
			if !answered(err) { // it is open what the broker has
				h.committed = -1
			}
			r.mu.Unlock()
			return err
		}
	}
	r.mu.Lock()
	h.committed, h.noTopic, h.noted = offset, false, false
	if !r.locking { // otherwise it has to be unlocked, too
		delete(r.leaving, h)
	}
	r.mu.Unlock()
	return nil
}

// commitLocal commits the offsets of queues in a broadcasting member's own table,
// and saves it.
func (r *run) commitLocal(queues []*heldQueue) error {
	offsets := make([]int64, len(queues))
	r.mu.Lock()
	for i, h := range queues {
		offsets[i] = h.commitLocked()
		r.local.put(h.queue, offsets[i]) // under the lock: the newest is put last
	}
	r.mu.Unlock()
	if err := r.local.save(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, h := range queues {
		h.committed = offsets[i]
		delete(r.leaving, h)
	}
	return nil
}
