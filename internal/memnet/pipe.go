package memnet

import (
	"io"
	"os"
	"sync"
	"time"
)

// streamBuffer is how many bytes of one direction of a stream may be under way,
// at its reader unread, or read without its writer's knowledge.
const streamBuffer = 64 << 10

// pipe is one direction of a stream. Everything that waits waits for one of its
// two conditions, so that it is durably blocked in a testing/synctest bubble;
// timers run only for deadlines, and for a reader that waits for what a rule
// delays.
type pipe struct {
	s  *session
	up bool // from the caller to the server

	mu                sync.Mutex // guards what follows; taken before Network.mu
	canRead, canWrite sync.Cond

	// Positions count the bytes since the stream began:
	//
	//	acked <= read <= arrived <= left <= written <= acked + streamBuffer
	written int64
	left    int64 // what is behind it waits at the sender for a link that lets it through
	arrived int64
	read    int64
	acked   int64       // what the writer knows to be read
	transit []departure // what left and has not arrived, oldest first
	ring    []byte      // holds read to written; its length is a power of two, or 0

	writing  bool  // a Write is at work: others wait for their turn
	ended    bool  // the writer is gone: io.EOF behind what it wrote
	readErr  error // why nothing more can be read
	writeErr error // why nothing more can be written
	readBy   deadline
	writeBy  deadline
}

// departure is bytes that a rule delays: those before end, and behind the
// departure before.
type departure struct {
	end int64
	due time.Time
}

func (p *pipe) init(s *session, up bool) {
	p.s, p.up = s, up
	p.canRead.L, p.canWrite.L = &p.mu, &p.mu
}

// way is what the rules are for bytes that leave now, and for the news that they
// were read.
func (p *pipe) way() (silent, unheard bool, d time.Duration) {
	if p.s.net.rules.Load() == nil {
		return false, false, 0
	}
	l := p.s.rules()
	if p.up {
		return l.silentTo, l.silentBack, l.delayTo
	}
	return l.silentBack, l.silentTo, l.delayBack
}

// moveLocked has leave, arrive and become known what may.
func (p *pipe) moveLocked() {
	silent, unheard, d := p.way()
	if p.left < p.written && !silent {
		p.left = p.written
		k := len(p.transit)
		if d == 0 && k == 0 {
			p.arrived = p.left
		} else {
			due := time.Now().Add(d)
			if k > 0 && p.transit[k-1].due.After(due) {
				due = p.transit[k-1].due
			}
			p.transit = append(p.transit, departure{p.left, due})
		}
	}
	for len(p.transit) > 0 && !time.Now().Before(p.transit[0].due) {
		p.arrived = p.transit[0].end
		p.transit = p.transit[1:]
	}
	if !unheard {
		p.acked = p.read
	}
}

// move is moveLocked after the rules have changed.
func (p *pipe) move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked()
	p.wakeLocked()
}

func (p *pipe) wakeLocked() {
	p.canRead.Broadcast()
	p.canWrite.Broadcast()
}

// receive reads what has arrived into b, and waits for it if nothing has.
func (p *pipe) receive(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.readErr != nil {
			return 0, p.readErr
		}
		if p.readBy.passed {
			return 0, os.ErrDeadlineExceeded
		}
		if len(b) == 0 {
			return 0, nil
		}
		p.moveLocked()
		if p.read < p.arrived {
			n := p.takeLocked(b)
			p.moveLocked()
			p.canWrite.Broadcast()
			return n, nil
		}
		if p.ended && p.read == p.written {
			return 0, io.EOF
		}
		if len(p.transit) == 0 {
			p.canRead.Wait()
			continue
		}
		t := time.AfterFunc(time.Until(p.transit[0].due), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.canRead.Broadcast()
		})
		p.canRead.Wait()
		t.Stop()
	}
}

func (p *pipe) takeLocked(b []byte) int {
	n := 0
	for _, part := range p.heldLocked(p.read, min(p.arrived, p.read+int64(len(b)))) {
		n += copy(b[n:], part)
	}
	p.read += int64(n)
	return n
}

// heldLocked is what the ring holds between two positions: up to its end, and on
// from its beginning.
func (p *pipe) heldLocked(from, to int64) [2][]byte {
	if from == to {
		return [2][]byte{}
	}
	at, n := int(from)&(len(p.ring)-1), int(to-from)
	first := min(n, len(p.ring)-at)
	return [2][]byte{p.ring[at : at+first], p.ring[:n-first]}
}

// send writes all of b, and waits for room as often as it has to.
func (p *pipe) send(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mine := false; ; {
		switch {
		case p.writeErr != nil:
			err = p.writeErr
		case p.writeBy.passed:
			err = os.ErrDeadlineExceeded
		case p.writing && !mine:
			p.canWrite.Wait()
			continue
		}
		if err != nil || n == len(b) {
			if mine {
				p.writing = false
				p.canWrite.Broadcast()
			}
			return n, err
		}
		mine, p.writing = true, true
		p.moveLocked()
		room := int(streamBuffer - (p.written - p.acked))
		if room == 0 {
			p.canWrite.Wait()
			continue
		}
		k := min(room, len(b)-n)
		p.putLocked(b[n : n+k])
		n += k
		p.moveLocked()
		p.canRead.Broadcast()
	}
}

// putLocked writes b, for which there is room, into the ring.
func (p *pipe) putLocked(b []byte) {
	if need := int(p.written-p.read) + len(b); need > len(p.ring) {
		held, size := p.heldLocked(p.read, p.written), max(len(p.ring), 512)
		for size < need {
			size *= 2
		}
		p.ring = make([]byte, size)
		p.storeLocked(p.read, held[0])
		p.storeLocked(p.read+int64(len(held[0])), held[1])
	}
	p.storeLocked(p.written, b)
	p.written += int64(len(b))
}

// storeLocked writes b into the ring at a position.
func (p *pipe) storeLocked(at int64, b []byte) {
	for _, part := range p.heldLocked(at, at+int64(len(b))) {
		b = b[copy(part, b):]
	}
}

// fail ends reading and writing with the errors that are not nil; own is that of
// one's own Close, which hides what was before.
func (p *pipe) fail(readErr, writeErr error, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if readErr != nil && (p.readErr == nil || own) {
		p.readErr = readErr
		p.readBy.stop()
	}
	if writeErr != nil && (p.writeErr == nil || own) {
		p.writeErr = writeErr
		p.writeBy.stop()
	}
	if p.readErr != nil && p.writeErr != nil {
		p.ring = nil // nobody comes for it
	}
	p.wakeLocked()
}

// finish says that the writer is gone: behind what it wrote there is no more.
func (p *pipe) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.wakeLocked()
}

// deadline of the reader or the writer of a pipe, guarded by its mu.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
}

// limit sets a deadline of p; the zero time removes it.
func (p *pipe) limit(d *deadline, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.stop()
	if at.IsZero() {
		return
	}
	left := time.Until(at)
	if left <= 0 {
		d.passed = true
		p.wakeLocked()
		return
	}
	var t *time.Timer
	t = time.AfterFunc(left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.timer == t { // or it was replaced
			d.passed = true
			p.wakeLocked()
		}
	})
	d.timer = t
}
