package consume

import (
	"container/heap"
	"context"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// An orderly engine calls one handler per queue at a time, with the messages in
// the order of their offsets. What failed stays in place: it is handed out again,
// the same messages first, after OrderlySuspend, and the queue waits. Java:
// ConsumeMessageOrderlyService.

// claimableLocked reports whether a handler may be called with messages of h now.
func (r *run) claimableLocked(h *heldQueue) bool {
	return !r.cfg.Orderly || h.running == 0 && !h.suspended && !h.revoked
}

// nextLocked notes that h may have messages for a handler.
func (r *run) nextLocked(h *heldQueue) {
	if h.pq.ready() > 0 && r.claimableLocked(h) {
		r.readyLocked(h)
	}
}

// suspendLocked puts everything that a handler has of h back in place, for
// OrderlySuspend. It reports whether the redelivery loop has to be told.
func (r *run) suspendLocked(h *heldQueue, now time.Time) (sooner bool) {
	h.pq.back()
	if h.revoked || h.pq.gone {
		return false
	}
	h.suspended = true
	due := now.Add(r.cfg.OrderlySuspend)
	sooner = len(r.retries) == 0 || due.Before(r.retries[0].due)
	heap.Push(&r.retries, retry{due: due, h: h})
	return sooner
}

// revokeLocked takes an orderly queue whose handler runs from this member: no
// other handler starts, and what the handler finishes counts still. release does
// the rest when it has returned.
func (r *run) revokeLocked(h *heldQueue) {
	h.revoked = true
	r.draining[h.queue] = h
}

// release lets go of revoked queues whose handler has returned: the offset is
// committed, then the lock given back, and the next member goes on where this
// one ended. Java: RebalancePushImpl.removeUnnecessaryMessageQueue, which tries
// every RebalanceRetry whether the handler has returned; here that asks for a
// round.
func (r *run) release(ctx context.Context) {
	if !r.locking {
		return
	}
	var queues []*heldQueue
	r.mu.Lock()
	for h := range r.leaving {
		if h.revoked && h.running == 0 {
			r.cached -= h.pq.drop()
			queues = append(queues, h)
		}
	}
	r.mu.Unlock()
	if len(queues) > 0 {
		r.warn(r.letGo(ctx, queues))
	}
}

// letGo commits the offsets of dropped queues, then unlocks them. It returns the
// commits that failed.
func (r *run) letGo(ctx context.Context, queues []*heldQueue) []unstored {
	r.regain(ctx, queues)
	failed := r.commitAll(ctx, queues)
	if ctx.Err() == nil {
		r.unlock(ctx, namesOf(queues))
	}
	if ctx.Err() != nil { // the run halts, and leave does all of it
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range queues {
		h.lock = queueLock{}
		delete(r.leaving, h)
		if h.revoked && r.draining[h.queue] == h {
			delete(r.draining, h.queue)
		}
	}
	return failed
}

// namesOf returns the queues that are held.
func namesOf(queues []*heldQueue) []message.Queue {
	list := make([]message.Queue, len(queues))
	for i, h := range queues {
		list[i] = h.queue
	}
	return list
}

// failInOrder settles a claim of an orderly queue whose handler failed: what it
// has done is consumed, the other messages stay where they are, but for those that
// get no further attempt. After the handlers' context was cancelled they just stay
// unfinished, for the group. Java: processConsumeResult, checkReconsumeTimes.
func (w *worker) failInOrder(err error) {
	r, h, queue := w.r, w.h, w.h.queue
	v := judge(err, len(w.claimed))
	if v.done == len(w.claimed) {
		return // next acknowledges it
	}
	cancelled := r.handlerCtx.Err() != nil
	left := w.claimed[:0]
	r.mu.Lock()
	r.counters.Consumed += w.ackLocked(w.claimed[:v.done])
	if !cancelled {
		for _, t := range w.claimed[v.done:] {
			dead := v.dead || r.cfg.MaxReconsume != GroupMaximum && int(t.attempts) >= r.cfg.MaxReconsume
			if t, ok := h.pq.failed(t, dead); ok { // otherwise it was passed over, or the queue is dropped
				left = append(left, t)
			}
		}
		r.counters.Failed += int64(len(left))
	}
	w.claimed = left
	r.mu.Unlock()
	if !cancelled {
		n := 0
		for n < len(left) && left[n].dead {
			n++
		}
		if dead := left[:n]; n > 0 {
			r.log.Warn("messages failed and get no further attempt", "queue", queue, "offset", dead[0].offset, "messages", n, "failures", dead[0].attempts, "error", err)
		}
		if again := left[n:]; len(again) > 0 {
			r.log.Warn("messages failed, their queue waits for them", "queue", queue, "offset", again[0].offset, "messages", len(again), "failures", again[0].attempts, "delay", r.cfg.OrderlySuspend, "error", err)
		}
		w.bury()
	}
	w.suspend(!cancelled)
}

// bury makes dead letters of the dead messages of the claim. They come first:
// whatever fails, nothing behind it has failed more often. It stops at one that
// no broker takes: that stays, and is tried again after OrderlySuspend.
//
// Differs: there RocketMQ asks the handler once more, so that a message may get
// more attempts than allowed. In a broadcasting group, which has no dead letters,
// it is passed over.
func (w *worker) bury() {
	r, h := w.r, w.h
	for len(w.claimed) > 0 && w.claimed[0].dead {
		t := w.claimed[0]
		if r.cfg.Model == protocol.Broadcasting {
			r.log.Warn("a message of a broadcasting group gets no further attempt and is passed over", "queue", h.queue, "offset", t.offset, "failures", t.attempts)
		} else {
			if !r.owns(h) { // it may be another member's
				return
			}
			if err := r.giveBack(r.backCtx, h.queue, t, 0, true); err != nil {
				r.log.Warn("no broker took a dead letter, its queue waits", "queue", h.queue, "offset", t.offset, "delay", r.cfg.OrderlySuspend, "error", err)
				return
			}
		}
		r.mu.Lock()
		if r.cfg.Model != protocol.Broadcasting {
			r.counters.SentBack++
		}
		w.ackLocked(w.claimed[:1])
		w.claimed = w.claimed[1:]
		r.mu.Unlock()
	}
}

// suspend ends a claim of an orderly queue. What is left of it goes back in
// place, and is handed out again after OrderlySuspend unless the handlers are
// cancelled.
func (w *worker) suspend(again bool) {
	r := w.r
	sooner := false
	r.mu.Lock()
	if again && len(w.claimed) > 0 {
		sooner = r.suspendLocked(w.h, time.Now())
	}
	w.releaseLocked()
	r.mu.Unlock()
	w.wakeLoops()
	if sooner {
		signal(r.sooner)
	}
}
