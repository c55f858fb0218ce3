package longpoll

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Outcome is why a Wait ended.
type Outcome int

const (
	Arrived  Outcome = iota // a message that matches is readable
	Timeout                 // the time is up
	Canceled                // the context has ended
	Closed                  // the Waiters are closed
	Roused                  // something else has changed: look again
)

func (o Outcome) String() string {
	switch o {
	case Arrived:
		return "arrived"
	case Timeout:
		return "timeout"
	case Canceled:
		return "canceled"
	case Roused:
		return "roused"
	}
	return "closed"
}

const (
	// slots is how finely it is known, without a lock, where nobody waits.
	slots  = 1024
	shards = 64
	// maxFree bounds the parking places that a shard keeps for reuse.
	maxFree = 32
	// filtered is how many filters Notify runs between two looks at a queue's
	// waiters. It bounds what it keeps on its stack.
	filtered = 16
)

// Waiters holds the pulls of one broker. Safe for concurrent use.
type Waiters struct {
	held   atomic.Int64 // parked or about to: 0 lets Notify return at once
	seed   maphash.Seed
	slots  [slots]atomic.Int32 // as held, by a queue's hash
	shards [shards]shard
}

// shard is the queues of some slots.
type shard struct {
	mu     sync.Mutex        // guards all below; a leaf, never held over a channel or a callback
	queues map[queue]*waiter // the first waiter of a ring, in the order of their tickets
	free   *waiter           // linked by next
	nfree  int
	ticket uint64 // the last one given out
	closed bool
}

type queue struct {
	topic string
	id    int
}

// waiter is a place to park. It is reused, together with its channel and
// timer.
type waiter struct {
	// Guarded by the shard's mu.
	next, prev *waiter
	ticket     uint64 // identifies one stay
	parked     bool   // linked into its queue's ring
	outcome    Outcome

	offset int64
	match  func(tagsCode int64) bool

	wake  chan struct{} // capacity 1: one send per stay that another goroutine ends
	timer *time.Timer   // only used by the Wait that stays
}

// New returns a Waiters without any.
func New() *Waiters {
	w := &Waiters{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].queues = make(map[queue]*waiter)
	}
	return w
}

// slot is a queue's hash. It spreads the queues of one topic too.
func (w *Waiters) slot(topic string, queueID int) uint64 {
	return (maphash.String(w.seed, topic) + uint64(queueID)) % slots
}

// Wait blocks until Notify reports a message of the queue with an offset of at
// least offset that match accepts, until d has passed, ctx has ended, or Rouse
// or Close is called. It returns at once when d is not positive or ctx has ended.
//
// ready is called once after parking: it must report whether such a message is
// readable already, and then Wait returns Arrived. match gets the message's tags
// code. Either may be nil: nothing is ready, everything matches. Both run
// without a lock. match runs on the goroutine that stores messages, must be
// fast, and may still be running when Wait has returned.
//
// Arrived wins over the other outcomes when they coincide.
func (w *Waiters) Wait(ctx context.Context, topic string, queueID int, offset int64, match func(tagsCode int64) bool, d time.Duration, ready func() bool) Outcome {
	if ctx.Err() != nil {
		return Canceled
	}
	if d <= 0 {
		return Timeout
	}
	slot, q := w.slot(topic, queueID), queue{topic, queueID}
	s := &w.shards[slot%shards]
	// Before ready looks: whoever stores a message afterwards sees them.
	w.held.Add(1)
	w.slots[slot].Add(1)
	defer func() {
		w.slots[slot].Add(-1)
		w.held.Add(-1)
	}()
	p := s.park(q, offset, match)
	if p == nil {
		return Closed
	}
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
	if ready != nil && ready() {
		s.leave(q, p, Arrived)
		return s.recycle(p)
	}
	select {
	case <-p.wake:
		return s.recycle(p)
	case <-p.timer.C:
		s.leave(q, p, Timeout)
	case <-ctx.Done():
		s.leave(q, p, Canceled)
	}
	return s.recycle(p)
}

// park takes a place in q's ring; nil when closed.
func (s *shard) park(q queue, offset int64, match func(int64) bool) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	p := s.free
	if p != nil {
		s.free = p.next
		s.nfree--
	} else {
		p = &waiter{wake: make(chan struct{}, 1)}
	}
	s.ticket++
	p.ticket, p.parked, p.offset, p.match = s.ticket, true, offset, match
	if first := s.queues[q]; first == nil {
		p.next, p.prev = p, p
		s.queues[q] = p
	} else { // behind the last one
		p.next, p.prev = first, first.prev
		first.prev.next = p
		first.prev = p
	}
	return p
}

// unlinkLocked takes p out of q's ring, for the given reason.
func (s *shard) unlinkLocked(q queue, p *waiter, why Outcome) {
	switch {
	case p.next == p:
		delete(s.queues, q)
	default:
		p.next.prev, p.prev.next = p.prev, p.next
		if s.queues[q] == p {
			s.queues[q] = p.next
		}
	}
	p.next, p.prev, p.parked, p.outcome = nil, nil, false, why
}

// leave ends p's own stay. When another goroutine has ended it in the same
// moment, its reason counts, and its send on wake is taken so that the place
// can be used again.
func (s *shard) leave(q queue, p *waiter, why Outcome) {
	s.mu.Lock()
	parked := p.parked
	if parked {
		s.unlinkLocked(q, p, why)
	}
	s.mu.Unlock()
	if !parked {
		<-p.wake // sent already or about to be
		if why == Arrived {
			p.outcome = Arrived
		}
	}
}

// recycle keeps p for the next Wait and returns why its stay ended.
func (s *shard) recycle(p *waiter) Outcome {
	outcome := p.outcome
	p.timer.Stop() // and no value of it comes later
	p.match = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nfree < maxFree && !s.closed {
		p.next = s.free
		s.free = p
		s.nfree++
	}
	return outcome
}

// Notify reports a message that has become readable. It must be called for
// every one, after it is readable. It wakes the Waits of the queue whose offset
// is at most this one and whose match accepts tagsCode. It does not block and
// does not allocate. Java: PullRequestHoldService.notifyMessageArriving.
func (w *Waiters) Notify(topic string, queueID int, offset int64, tagsCode int64) {
	if w.held.Load() != 0 {
		w.notify(topic, queueID, offset, tagsCode)
	}
}

func (w *Waiters) notify(topic string, queueID int, offset int64, tagsCode int64) {
	slot := w.slot(topic, queueID)
	if w.slots[slot].Load() == 0 {
		return
	}
	s := &w.shards[slot%shards]
	q := queue{topic, queueID}
	var from *waiter // the last one asked
	var after uint64 // its ticket
	for {
		s.mu.Lock()
		p := s.queues[q]
		if p == nil {
			s.mu.Unlock()
			return
		}
		last := p.prev
		if from != nil && from.parked && from.ticket == after {
			p = from // or else from the start, past those asked before
		}
		// Who has no filter is woken at once. Filters are not ours, so they run
		// unlocked, a few at a time; who waits stays parked meanwhile, so that
		// no other message is missed.
		var asked [filtered]struct {
			p      *waiter
			ticket uint64
			match  func(int64) bool
		}
		n := 0
		var woken *waiter
		for done := false; !done && n < filtered; {
			next := p.next
			done = p == last
			if p.ticket > after && p.offset <= offset {
				if p.match == nil {
					s.unlinkLocked(q, p, Arrived)
					p.next, woken = woken, p
				} else {
					asked[n].p, asked[n].ticket, asked[n].match = p, p.ticket, p.match
					n++
				}
			}
			p = next
		}
		s.mu.Unlock()
		wake(woken)
		for _, a := range asked[:n] {
			if a.match(tagsCode) {
				s.end(q, a.p, a.ticket)
			}
		}
		if n < filtered {
			return
		}
		from, after = asked[n-1].p, asked[n-1].ticket
	}
}

// Rouse ends every Wait of a queue with Roused: what a pull depends on besides
// messages has changed, such as its group's offset or the topic itself. It must be
// called after the change; a Wait that parks later sees it through ready.
func (w *Waiters) Rouse(topic string, queueID int) {
	slot, q := w.slot(topic, queueID), queue{topic, queueID}
	s := &w.shards[slot%shards]
	var woken *waiter
	s.mu.Lock()
	for p := s.queues[q]; p != nil; p = s.queues[q] {
		s.unlinkLocked(q, p, Roused)
		p.next = woken
		woken = p
	}
	s.mu.Unlock()
	wake(woken)
}

// RouseAll is Rouse for every queue.
func (w *Waiters) RouseAll() { w.endAll(Roused, false) }

// endAll ends every Wait, for a reason, and with closes those that come later, too.
func (w *Waiters) endAll(why Outcome, closes bool) {
	for i := range w.shards {
		s := &w.shards[i]
		var woken *waiter
		s.mu.Lock()
		if closes {
			s.closed, s.free, s.nfree = true, nil, 0
		}
		for q := range s.queues {
			for p := s.queues[q]; p != nil; p = s.queues[q] {
				s.unlinkLocked(q, p, why)
				p.next = woken
				woken = p
			}
		}
		s.mu.Unlock()
		wake(woken)
	}
}

// end wakes p unless that stay has ended meanwhile.
func (s *shard) end(q queue, p *waiter, ticket uint64) {
	s.mu.Lock()
	still := p.parked && p.ticket == ticket
	if still {
		s.unlinkLocked(q, p, Arrived)
	}
	s.mu.Unlock()
	if still {
		p.wake <- struct{}{}
	}
}

// wake wakes a list of waiters that are unlinked already.
func wake(p *waiter) {
	for p != nil {
		next := p.next // p is another's as soon as it is woken
		p.next = nil
		p.wake <- struct{}{}
		p = next
	}
}

// Held is how many Waits are in progress.
func (w *Waiters) Held() int { return int(w.held.Load()) }

// Close ends every Wait, now and later, with Closed. It does not wait for them
// to return. It may be called again.
func (w *Waiters) Close() { w.endAll(Closed, true) }
