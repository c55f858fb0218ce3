package consume

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// errGoexit is the failure of a handler that ended its goroutine, as
// testing.T.FailNow does.
var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// readyList is a first-in-first-out list of the queues that have ready messages,
// each at most once. Workers take from the first one and put it last, so queues
// take turns.
type readyList struct{ first, last *heldQueue }

func (l *readyList) push(h *heldQueue) {
	h.listed = true
	if l.last == nil {
		l.first = h
	} else {
		l.last.next = h
	}
	l.last = h
}

func (l *readyList) pop() *heldQueue {
	h := l.first
	if h == nil {
		return nil
	}
	l.first = h.next
	if l.first == nil {
		l.last = nil
	}
	h.next, h.listed = nil, false
	return h
}

// readyLocked notes that h has ready messages.
func (r *run) readyLocked(h *heldQueue) {
	if h.blocked {
		return // unblock calls again
	}
	if !h.listed {
		r.ready.push(h)
	}
	r.wakeLocked()
}

// wakeLocked wakes one worker if some queue has ready messages. At most one is
// on its way: it wakes the next one when it has found work. So a burst reaches
// every idle worker at once when handlers take time, and only as many as the
// processors can run when they do not.
func (r *run) wakeLocked() {
	if r.idle > 0 && !r.waking && r.ready.first != nil {
		r.waking = true
		r.work.Signal()
	}
}

// worker hands messages to the handler, one call at a time. A message is claimed
// only when a worker is free for it, so none waits behind a slow one.
type worker struct {
	r         *run
	h         *heldQueue
	claimed   []taken // of h; empty: nothing to settle
	inHandler bool

	// What releaseLocked found to do once the lock is released.
	wake     []*heldQueue  // pull loops that have room again
	poke     bool          // the rebalance loop has to take a drained queue, or to release a revoked one
	unlocked bool          // the lock loop has to lock a queue
	rested   chan struct{} // to be closed: somebody waits for the last handler of a queue
}

// consume is the loop of one worker. It ends after halt.
func (r *run) consume() {
	w := worker{r: r}
	defer w.exit()
	for w.next(time.Now()) {
		w.deliver()
	}
}

// exit looks after a handler that took the worker's goroutine with it.
func (w *worker) exit() {
	if w.inHandler {
		w.fail(errGoexit)
		w.r.spawn(w.r.consume)
	}
}

// next acknowledges what was claimed before and claims the next messages; false
// when the run has halted. One lock for both: this is the hot path, and now is
// asked for outside of it.
func (w *worker) next(now time.Time) bool {
	r := w.r
	r.mu.Lock()
	if len(w.claimed) > 0 {
		r.counters.Consumed += w.ackLocked(w.claimed)
		w.releaseLocked()
	}
	for {
		if r.halted {
			r.mu.Unlock()
			w.wakeLoops()
			return false
		}
		if h := r.ready.pop(); h != nil {
			if h.blocked || r.cfg.Orderly && (!r.claimableLocked(h) || !w.ownsLocked(h)) {
				continue // unblock, a lock, or the end of a handler lists it again
			}
			w.claimed = h.pq.take(w.claimed[:0], r.cfg.BatchSize, now.UnixNano())
			if !r.cfg.Orderly && h.pq.ready() > 0 {
				r.ready.push(h)
			}
			if len(w.claimed) == 0 { // dropped or reset meanwhile
				continue
			}
			w.h = h
			h.running++
			h.lastGiven = now
			r.counters.Running++
			r.wakeLocked()
			r.mu.Unlock()
			w.wakeLoops()
			return true
		}
		if len(w.wake) > 0 || w.poke || w.unlocked || w.rested != nil {
			r.mu.Unlock()
			w.wakeLoops()
			r.mu.Lock()
			continue
		}
		r.idle++
		r.work.Wait()
		r.idle--
		r.waking = false
		now = time.Now()
	}
}

// ackLocked finishes messages of the claim and returns how many of them counted:
// those of a queue that was dropped or reset meanwhile, and those whose time was
// up, do not.
func (w *worker) ackLocked(claimed []taken) (n int64) {
	for _, t := range claimed {
		if freed, ok := w.h.pq.ack(t); ok {
			w.r.cached -= freed
			n++
		}
	}
	return n
}

// releaseLocked ends a claim: the handler call is over and settled.
func (w *worker) releaseLocked() {
	r, h := w.r, w.h
	clear(w.claimed)
	w.claimed, w.h = w.claimed[:0], nil
	h.running--
	r.counters.Running--
	w.wake = r.roomLocked(w.wake, h)
	if h.rested != nil && h.running == 0 {
		w.rested, h.rested = h.rested, nil
	}
	if h.pq.gone && h.running == 0 && r.draining[h.queue] == h {
		delete(r.draining, h.queue)
		if h.wanted {
			r.reasons |= retried
			w.poke = true
		}
	}
	if h.revoked {
		r.reasons |= retried
		w.poke = true
	} else if r.cfg.Orderly {
		r.nextLocked(h)
	}
}

// ownsLocked is run.ownsLocked; a lock that is missing is asked for.
func (w *worker) ownsLocked(h *heldQueue) bool {
	if w.r.ownsLocked(h, time.Now()) {
		return true
	}
	w.unlocked = true
	return false
}

// wakeLoops does what releaseLocked noted. Not under the lock.
func (w *worker) wakeLoops() {
	for i, h := range w.wake {
		signal(h.room)
		w.wake[i] = nil
	}
	w.wake = w.wake[:0]
	if w.poke {
		w.poke = false
		signal(w.r.poke)
	}
	if w.unlocked {
		w.unlocked = false
		signal(w.r.unlocked)
	}
	if w.rested != nil {
		close(w.rested)
		w.rested = nil
	}
}

// deliver decodes what was claimed and calls the handler. What is left in
// claimed afterwards is acknowledged by next.
func (w *worker) deliver() {
	if w.claimed[0].dead { // no broker took it before
		if w.bury(); len(w.claimed) == 0 || w.claimed[0].dead {
			w.suspend(true)
			return
		}
	}
	msgs := w.decode()
	if len(msgs) == 0 {
		return
	}
	if err := w.call(msgs); err != nil {
		w.fail(err)
	}
}

// decode makes a fresh message of every claimed record. Records that do not
// decode are finished here.
func (w *worker) decode() []*message.Ext {
	cfg, q := w.r.cfg, w.h.queue
	msgs := make([]*message.Ext, 0, len(w.claimed))
	good := w.claimed[:0]
	var bad []taken
	for _, t := range w.claimed {
		m, err := cfg.Codec.DecodeExt(t.data, q.BrokerName, q.Topic)
		if err != nil {
			w.r.log.Error("a stored record does not decode and is passed over", "queue", q, "offset", t.offset, "error", err)
			bad = append(bad, t)
			continue
		}
		m.ReconsumeTimes += int(t.attempts)
		msgs = append(msgs, m)
		good = append(good, t)
	}
	if len(bad) > 0 {
		w.passOver(bad, good)
	}
	return msgs
}

// passOver finishes undecodable records and keeps the rest of the claim.
func (w *worker) passOver(bad, good []taken) {
	r := w.r
	r.mu.Lock()
	w.ackLocked(bad)
	r.counters.Undecodable += int64(len(bad))
	w.claimed = good
	if len(good) == 0 {
		w.releaseLocked()
	}
	r.mu.Unlock()
	w.wakeLoops()
}

// call runs the handler. A panic is an error.
func (w *worker) call(msgs []*message.Ext) (err error) {
	w.inHandler = true
	defer func() {
		if v := recover(); v != nil {
			w.inHandler = false
			err = fmt.Errorf("the handler panicked: %v", v)
			w.r.log.Error("consumer handler panicked", "queue", w.h.queue, "offset", w.claimed[0].offset, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	err = w.r.cfg.Handler(w.r.handlerCtx, msgs)
	w.inHandler = false
	return err
}

// skip passes over what is left of a claim whose handler failed in a broadcasting
// group, where nothing is delivered again.
func (w *worker) skip(done int, err error) {
	r, queue, first, n := w.r, w.h.queue, w.claimed[done], len(w.claimed)-done
	r.mu.Lock()
	r.counters.Consumed += w.ackLocked(w.claimed[:done])
	w.ackLocked(w.claimed[done:])
	r.counters.Failed += int64(n)
	w.releaseLocked()
	r.mu.Unlock()
	w.wakeLoops()
	r.log.Warn("messages of a broadcasting group failed and are passed over", "queue", queue, "offset", first.offset, "messages", n, "error", err)
}

// fail settles a claim whose handler failed: what it has done is consumed, the
// other messages are given back to their broker, for the group to get them again.
// After the handlers' context was cancelled they just stay unfinished.
func (w *worker) fail(err error) {
	r := w.r
	w.inHandler = false
	if r.cfg.Orderly {
		w.failInOrder(err)
		return
	}
	v := judge(err, len(w.claimed))
	if v.done == len(w.claimed) {
		return // next acknowledges it
	}
	cancelled := r.handlerCtx.Err() != nil
	if r.cfg.Model == protocol.Broadcasting && !cancelled {
		w.skip(v.done, err)
		return
	}
	queue, first := w.h.queue, w.claimed[v.done]
	failed, givers := 0, 0

	r.mu.Lock()
	r.counters.Consumed += w.ackLocked(w.claimed[:v.done])
	if !cancelled {
		for _, t := range w.claimed[v.done:] {
			if w.h.pq.giveBack(t) {
				failed++
				r.backLocked(back{h: w.h, t: t, level: v.level, dead: v.dead})
			}
		}
		r.counters.Failed += int64(failed)
		givers = r.startBacksLocked(queue.BrokerName)
	}
	w.releaseLocked()
	r.mu.Unlock()

	r.spawnBacks(queue.BrokerName, givers)
	w.wakeLoops()
	if failed > 0 {
		r.log.Warn("messages failed and go back to their broker", "queue", queue, "offset", first.offset, "messages", failed, "level", v.level, "dead", v.dead, "error", err)
	}
}
