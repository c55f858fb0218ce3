package memnet

import (
	"sync"
	"time"
)

// mailbox delivers what a rule delays in one direction of a session, in the
// order in which it was posted. The zero value is ready. It has a timer while
// something is under way and runs deliveries on that timer's goroutine.
type mailbox struct {
	mu      sync.Mutex // guards what follows; not held during a delivery
	queue   []parcel   // in order of due
	timer   *time.Timer
	running bool // deliver is at work
	closed  bool
}

type parcel struct {
	due     time.Time
	deliver func()
}

// post has deliver called d from now, or later if something posted before is
// due later. After close nothing is delivered any more.
func (m *mailbox) post(d time.Duration, deliver func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	due := time.Now().Add(d)
	if k := len(m.queue); k > 0 && m.queue[k-1].due.After(due) {
		due = m.queue[k-1].due
	}
	m.queue = append(m.queue, parcel{due, deliver})
	if len(m.queue) == 1 && !m.running {
		m.armLocked(due)
	}
}

func (m *mailbox) armLocked(due time.Time) {
	m.timer = time.AfterFunc(time.Until(due), m.deliver)
}

func (m *mailbox) deliver() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = true
	defer func() { m.running = false }()
	for len(m.queue) > 0 {
		if head := m.queue[0]; !time.Now().Before(head.due) {
			m.queue = m.queue[1:]
			m.mu.Unlock()
			head.deliver()
			m.mu.Lock()
			continue
		}
		m.armLocked(m.queue[0].due)
		return
	}
}

// close drops what is still under way. A delivery that has begun goes on.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.queue = nil
	if m.timer != nil {
		m.timer.Stop()
	}
}
