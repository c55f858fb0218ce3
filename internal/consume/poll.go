package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// A polled engine has no workers: its messages go to whoever calls Poll, who is
// done with them when he comes for more. It sends nothing back and retries
// nothing. What it commits is how far its user has come, not what is finished
// here. Java: DefaultLitePullConsumerImpl.

// polling is what a polled engine knows of a queue. Guarded by run.mu.
type polling struct {
	on       bool
	taken    int64 // behind the last message that a Poll took, or where Seek went; -1 = neither
	position int64 // taken, but for Polls that have not returned yet
	due      int64 // what is to be committed; -1 = nothing
	decoding int   // Polls that have taken messages and not returned
	listed   bool  // in run.returned

	// Of every engine.
	seeks   int                // how often the place of the next pull was moved
	turn    int                // seeks when the pull under way began
	endTurn context.CancelFunc // ends that pull; in a polled engine the pause after it, too
}

// newPolling returns the state of a queue of which committed is committed.
func newPolling(on bool, committed int64) polling {
	return polling{on: on, taken: -1, position: -1, due: committed}
}

// commitLocked returns the offset to commit.
func (h *heldQueue) commitLocked() int64 {
	if h.poll.on {
		return h.poll.due
	}
	return h.pq.commit()
}

// moveLocked notes that the queue goes on at offset, by order of the user or of a
// broker. It returns what ends the pull under way; nil without one.
func (h *heldQueue) moveLocked(offset int64, commit bool) (endTurn context.CancelFunc) {
	offset = max(offset, 0)
	h.poll.taken, h.poll.position = offset, offset
	if commit {
		h.poll.due = offset
	}
	h.poll.seeks++
	return h.poll.endTurn
}

// staleLocked reports whether the queue was moved since the pull under way began:
// what that brings does not count.
func (h *heldQueue) staleLocked() bool { return h.poll.turn != h.poll.seeks }

// turn returns the context of one pull and the pause after it: in a polled engine
// a Seek ends both.
func (r *run) turn(ctx context.Context, h *heldQueue) (context.Context, context.CancelFunc) {
	if !h.poll.on {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	r.mu.Lock()
	h.poll.endTurn, h.poll.turn = cancel, h.poll.seeks
	r.mu.Unlock()
	return ctx, cancel
}

// Poll returns up to most messages of one queue, in the order of their offsets,
// as soon as there are some. Queues take turns. The messages are the caller's;
// each is returned once, unless its queue changes hands or is moved back.
//
// Without ManualCommit what earlier calls returned is finished with this one, and
// gets committed by the next OffsetPersist, when its queue is let go, and at the
// end. It is safe for concurrent use: a call finishes what others have returned
// until then. ctx's error when ctx ends first; protocol.ErrClosed before Start,
// and as soon as Shutdown or Close is called. Java: poll.
func (e *Engine) Poll(ctx context.Context, most int) ([]*message.Ext, error) {
	r := e.current()
	if r == nil {
		return nil, fmt.Errorf("consume: poll of group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	r.pass()
	for {
		h, claimed, err := r.claim(ctx, most)
		if err != nil {
			return nil, err
		}
		msgs := r.handOver(h, claimed)
		if len(msgs) > 0 {
			return msgs, nil
		}
	}
}

// pass finishes what was returned so far, unless that is the user's to say.
func (r *run) pass() {
	if r.cfg.ManualCommit {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, h := range r.returned {
		if h.poll.listed = false; !h.pq.gone && h.poll.decoding == 0 {
			h.poll.due = h.poll.position
		}
		r.returned[i] = nil
	}
	r.returned = r.returned[:0]
}

// claim waits for messages and takes them. Whoever gets some must hand them over.
func (r *run) claim(ctx context.Context, most int) (*heldQueue, []taken, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var (
		watching bool
		ended    bool // guarded by r.mu: ctx has ended
	)
	r.mu.Lock()
	for {
		switch {
		case r.halted:
			r.mu.Unlock()
			return nil, nil, fmt.Errorf("consume: poll of group %q: %w", r.cfg.Group, protocol.ErrClosed)
		case ended:
			r.wakeLocked() // in place of this one
			r.mu.Unlock()
			return nil, nil, ctx.Err()
		}
		if h, claimed := r.claimLocked(most); h != nil {
			wake := r.roomLocked(nil, h)
			r.wakeLocked()
			r.mu.Unlock()
			for _, other := range wake {
				signal(other.room)
			}
			return h, claimed, nil
		}
		if !watching {
			r.mu.Unlock()
			watching = true
			unwatch := context.AfterFunc(ctx, func() {
				r.mu.Lock()
				ended = true
				r.work.Broadcast()
				r.mu.Unlock()
			})
			defer unwatch()
			r.mu.Lock()
			continue
		}
		r.idle++
		r.work.Wait()
		r.idle--
		r.waking = false
	}
}

// claimLocked takes messages of the queue whose turn it is; nil when there are
// none. They are finished as far as flow control is concerned.
func (r *run) claimLocked(most int) (*heldQueue, []taken) {
	for {
		h := r.ready.pop()
		if h == nil {
			return nil, nil
		}
		if h.blocked {
			continue // unblock lists it again
		}
		claimed := h.pq.take(make([]taken, 0, min(most, h.pq.ready())), most, 0)
		if h.pq.ready() > 0 {
			r.ready.push(h)
		}
		if len(claimed) == 0 { // dropped or moved meanwhile
			continue
		}
		for _, t := range claimed {
			if freed, ok := h.pq.ack(t); ok {
				r.cached -= freed
			}
		}
		h.poll.taken = claimed[len(claimed)-1].offset + 1
		h.poll.decoding++
		h.lastGiven = time.Now()
		r.goroutines++ // the codec outlives it
		return h, claimed
	}
}

// handOver decodes what was claimed and notes that it is returned.
func (r *run) handOver(h *heldQueue, claimed []taken) []*message.Ext {
	defer r.gone()
	msgs := make([]*message.Ext, 0, len(claimed))
	for _, t := range claimed {
		m, err := r.cfg.Codec.DecodeExt(t.data, h.queue.BrokerName, h.queue.Topic)
		if err != nil {
			r.log.Error("a stored record does not decode and is passed over", "queue", h.queue, "offset", t.offset, "error", err)
			continue
		}
		msgs = append(msgs, m)
	}
	r.mu.Lock()
	r.counters.Consumed += int64(len(msgs))
	r.counters.Undecodable += int64(len(claimed) - len(msgs))
	h.poll.decoding--
	if h.poll.decoding == 0 {
		h.poll.position = h.poll.taken
		if !r.cfg.ManualCommit && !h.poll.listed {
			h.poll.listed = true
			r.returned = append(r.returned, h)
		}
	}
	r.mu.Unlock()
	return msgs
}

// ErrNotHeld is returned for a queue that the engine does not hold.
var ErrNotHeld = errors.New("this consumer does not hold it")

// Holds reports whether the engine holds q: nil, or an error that matches
// ErrNotHeld.
func (e *Engine) Holds(q message.Queue) error {
	if r := e.current(); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.held[q] != nil {
			return nil
		}
	}
	return fmt.Errorf("consume: %v in group %q: %w", q, e.cfg.Group, ErrNotHeld)
}

// Seek has the next Poll of a queue that is held go on at offset, whatever that
// is. What was fetched and not returned is forgotten. Without ManualCommit the
// offset gets committed. ErrNotHeld if the engine does not hold q. It does not
// block. Java: seek.
func (e *Engine) Seek(q message.Queue, offset int64) error {
	r := e.current()
	if r == nil {
		return e.Holds(q)
	}
	if !r.seek(q, offset, !r.cfg.ManualCommit) {
		return e.Holds(q)
	}
	return nil
}

// seek has a queue go on at offset, and commits that if it is to; false when it is
// not held.
func (r *run) seek(q message.Queue, offset int64, commit bool) bool {
	r.mu.Lock()
	h := r.held[q]
	if h == nil {
		r.mu.Unlock()
		return false
	}
	r.cached -= h.pq.reset(offset)
	r.retries.forget(h)
	endTurn := h.moveLocked(offset, commit)
	wake := r.roomLocked(nil, h)
	r.mu.Unlock()
	if endTurn != nil {
		endTurn()
	}
	for _, other := range wake {
		signal(other.room)
	}
	return true
}

// Commit commits, for each queue held, the offset behind the last message that
// Poll returned or that Seek set. A queue of which neither is true is left alone.
// What could not be stored is named by the error, and tried again every
// OffsetPersist. Java: commit.
func (e *Engine) Commit(ctx context.Context) error {
	r := e.current()
	if r == nil {
		return fmt.Errorf("consume: commit of group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	ctx, cancel := r.within(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return r.cut("commit", err)
	}
	var queues []*heldQueue
	r.mu.Lock()
	for _, h := range r.held {
		if h.poll.position >= 0 {
			h.poll.due = h.poll.position
		}
		if h.poll.due != h.committed {
			queues = append(queues, h)
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, u := range r.commitAll(ctx, queues) {
		errs = append(errs, fmt.Errorf("%s: %w", nameQueues(u.queues), u.err))
	}
	if len(errs) > 0 {
		return r.cut("commit", joined(errs))
	}
	return nil
}

// within returns a context that also ends with the run.
func (r *run) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(r.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// cut tells what failed, and that it was the end of the engine if so.
func (r *run) cut(what string, err error) error {
	if r.ctx.Err() != nil && !errors.Is(err, protocol.ErrClosed) {
		err = fmt.Errorf("%w: %w", protocol.ErrClosed, err)
	}
	return fmt.Errorf("consume: %s of group %q: %w", what, r.cfg.Group, err)
}

// Jumped tells that a queue goes on elsewhere than it was: a broker said that the
// offset asked for is none of the queue's, or that somebody reset the group.
type Jumped struct {
	Queue    message.Queue
	From, To int64
}

// polledMoved goes on where the broker says. An offset that lies outside the queue
// says nothing about what was fetched already: that is returned by Poll still, but
// for what lies at or behind the new offset, which comes again. One that lies
// inside means that somebody has reset the group: then nothing from before counts.
// Java: ProcessQueue continues at nextBeginOffset.
func (r *run) polledMoved(ctx context.Context, h *heldQueue, offset int64, resp *protocol.PullMessageResponse) time.Duration {
	next := resp.NextBeginOffset
	reset := wasReset(offset, resp)
	r.mu.Lock()
	if h.staleLocked() {
		r.mu.Unlock()
		return 0
	}
	if reset {
		r.cached -= h.pq.reset(next)
		h.moveLocked(next, true)
		h.poll.turn = h.poll.seeks
	} else {
		r.cached -= h.pq.jump(next)
		if p := &h.poll; p.taken >= 0 && (p.taken == offset || p.taken > next) {
			p.taken = next
			if p.decoding == 0 {
				p.position = next
			}
		}
		if !r.cfg.ManualCommit && h.poll.due > next {
			h.poll.due = next
		}
	}
	wake := r.roomLocked(nil, h)
	r.mu.Unlock()
	for _, other := range wake {
		signal(other.room)
	}
	r.toldToMove(h.queue, offset, resp)
	if reset {
		if err := r.commit(ctx, h); err != nil && ctx.Err() == nil {
			r.log.Warn("offset not committed, trying again later", "queue", h.queue, "error", err)
		}
	}
	if next == offset {
		return r.cfg.PullErrorDelay // illegal, and yet the one to use
	}
	r.jumped(h.queue, offset, next)
	return 0
}

// jumped tells OnJumped.
func (r *run) jumped(q message.Queue, from, to int64) {
	if r.cfg.OnJumped != nil && from != to {
		r.cfg.OnJumped(Jumped{Queue: q, From: from, To: to})
	}
}
