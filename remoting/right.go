package remoting

import (
	"sync/atomic"
	"time"
)

// The right to read a link is in one of these states. Whoever has it reads, one
// frame after the other, and nobody else does.
const (
	rightHeld  int32 = iota // a goroutine of the link has it
	rightFree               // nobody has it: it is whose who takes it first
	rightLent               // a caller that waits for its answer has it
	rightAsked              // the same, and the caller is to give it to the link
)

// overdue is how long the right to read may be free, or lent.
const overdue = time.Millisecond

// right is the right to read a link. Whoever has it may do something else for a
// moment: it lets go of the right, does it, and takes the right again. One that
// has not come back in time loses it to another goroutine, so that a connection
// is read, and its end noticed, whatever becomes of a single request. That is
// what allows to serve a request, and to wait for an answer, without waking
// another goroutine.
//
// While the right is free or lent the timer runs, or its function does.
type right struct {
	state atomic.Int32
	timer *time.Timer
	lost  bool // by who had it before, who was late; of who has it
}

// free lets go of the right.
func (r *right) free() {
	r.state.Store(rightFree)
	r.timer.Reset(overdue)
}

// again takes the right that free has let go. It is false when another one has
// it.
func (r *right) again() bool { return r.state.CompareAndSwap(rightFree, rightHeld) }

// borrow takes the right for a caller if it is free.
func (r *right) borrow() bool {
	if r.state.Load() != rightFree || !r.state.CompareAndSwap(rightFree, rightLent) {
		return false
	}
	r.timer.Reset(overdue)
	return true
}

// giveBack is free for a caller. It is false when the caller still has the
// right and has to give it to the link.
func (r *right) giveBack() bool { return r.state.CompareAndSwap(rightLent, rightFree) }

// asked reports whether who reads is a caller that is not to go on.
func (r *right) asked() bool { return r.state.Load() == rightAsked }

// late runs when the right was free, or lent, for too long.
func (l *link) late() {
	for {
		switch l.right.state.Load() {
		case rightFree:
			if l.right.again() {
				l.right.lost = true
				l.flush() // what was not written yet because more was to come soon
				l.read(nil, nil)
				return
			}
		case rightLent:
			if l.right.state.CompareAndSwap(rightLent, rightAsked) {
				_ = l.conn.SetReadDeadline(l.begun) // The read ends now, or the link is over.
				return
			}
		default:
			return
		}
	}
}

// readAlone is how many callers of a client in a row were alone with their request,
// and were answered soon, before the next one reads its answer itself: another
// goroutine would have to wake it.
const readAlone = 8

// lead has a caller read until its answer has come, or for a moment, if nobody
// reads. What bounds a server's reading is for its own goroutines.
func (l *link) lead(answer chan *Frame) {
	if l.backlog != nil || len(answer) > 0 || !l.right.borrow() {
		return
	}
	for len(answer) == 0 {
		f, err := l.small()
		if f == nil || err != nil || !f.Response() || l.right.asked() {
			l.handOver(f, err)
			return
		}
		l.noteFrame()
		l.answered(f)
	}
	if !l.only || l.in.Buffered() > 0 || !l.right.giveBack() {
		l.handOver(nil, nil)
	}
}

// handOver has another goroutine go on reading, behind a frame or an error that
// the caller has read.
func (l *link) handOver(f *Frame, err error) {
	if err == errGiveBack {
		err = nil
	}
	l.right.lost = true
	l.right.state.Store(rightHeld)
	go l.read(f, err)
}
