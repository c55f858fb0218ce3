package consume

import (
	"sync"

	"github.com/pocketmq/pocketmq/message"
)

// Pauses says which queues are paused: some, all, or all but some. The zero
// value pauses none. Safe for concurrent use; it does not block.
type Pauses struct {
	mu     sync.Mutex // guards everything below; a leaf
	all    bool
	except map[message.Queue]bool // of what all says
}

// Pause pauses queues; none given: every queue, also one that comes later.
func (p *Pauses) Pause(queues ...message.Queue) { p.set(true, queues) }

// Resume undoes Pause for queues; none given: for every queue.
func (p *Pauses) Resume(queues ...message.Queue) { p.set(false, queues) }

func (p *Pauses) set(paused bool, queues []message.Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(queues) == 0 {
		p.all, p.except = paused, nil
		return
	}
	if p.except == nil {
		p.except = make(map[message.Queue]bool)
	}
	for _, q := range queues {
		if paused == p.all {
			delete(p.except, q)
		} else {
			p.except[q] = true
		}
	}
}

// Has reports whether q is paused.
func (p *Pauses) Has(q message.Queue) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all != p.except[q]
}

// PausesChanged tells that Config.Pauses was changed. A queue paused is neither
// pulled nor handed out from then on; handlers that run go on, and a pull that a
// broker holds may still bring messages, which wait. The queue stays this
// member's. It never blocks. Java: suspend, resume.
func (e *Engine) PausesChanged() {
	if r := e.current(); r != nil {
		r.unblock("")
	}
}

// blockedLocked reports whether a queue is to rest: it is paused, or its topic is
// not subscribed any more, or about to be so.
func (r *run) blockedLocked(q message.Queue) bool {
	_, subscribed := r.subs.get(q.Topic)
	return !subscribed || r.retiring[q.Topic] > 0 || r.cfg.Pauses.Has(q)
}

// unblock looks again which queues of a topic, "" = of all, have to rest. Those
// that need not any more go on at once.
func (r *run) unblock(topic string) {
	var wake []*heldQueue
	r.mu.Lock()
	for q, h := range r.held {
		if topic != "" && q.Topic != topic {
			continue
		}
		was := h.blocked
		if h.blocked = r.blockedLocked(q); h.blocked || !was {
			continue
		}
		r.nextLocked(h)
		wake = r.roomLocked(wake, h)
	}
	r.mu.Unlock()
	for _, h := range wake {
		signal(h.room)
	}
}
