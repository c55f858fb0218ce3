package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"runtime"
	"slices"
	"time"
)

// send adds a frame to what is written next. It waits for room, at most as long
// as ctx and the link last.
func (l *link) send(ctx context.Context, f *Frame) error { return l.add(ctx, f, false, nil) }

// add is send. With later, which is for who has the right to read, the frame is
// written when there is nothing more to read, together with those that have come
// until then. What made holds is given back once the frame is counted.
func (l *link) add(ctx context.Context, f *Frame, later bool, made *reservation) error {
	defer made.Release()
	size := f.size()
	l.mu.Lock()
	if err := l.roomLocked(ctx, size, made); err != nil {
		l.mu.Unlock()
		return err
	}
	return l.addLocked(f, size, later)
}

// roomLocked waits, unlocked, until there is room for a frame, or nothing is written
// any more. Meanwhile size bytes of the caller's count as waiting, too, and what made
// holds is given back.
func (l *link) roomLocked(ctx context.Context, size int, made *reservation) error {
	for !l.over && !l.last && !l.deaf.Load() && len(l.out) > maxPending {
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.blocked += size
		much := l.countLocked()
		l.mu.Unlock()
		made.Release()
		l.awake() // some of it may wait for its turn
		if much {
			l.backlog.relieve()
		}
		var err error
		select {
		case <-room:
		case <-l.ctx.Done():
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.mu.Lock()
		l.blocked -= size
		if err != nil {
			l.countLocked()
			return err
		}
	}
	return nil
}

// awaitRoom waits until whoever answers would not have to wait, or the link is over.
// It fails when ctx ends before.
func (l *link) awaitRoom(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roomLocked(ctx, 0, nil)
}

// errNotRead is the end of a side that does not read what it lets come.
var errNotRead = errors.New("too much waits to be read")

// trySend is send for what may be lost: it does not wait.
func (l *link) trySend(f *Frame) error {
	l.mu.Lock()
	if len(l.out) > maxPending {
		l.mu.Unlock()
		return errLinkEnded
	}
	return l.addLocked(f, f.size(), false)
}

// addLocked adds a frame of about a size, and unlocks.
func (l *link) addLocked(f *Frame, size int, later bool) (err error) {
	switch {
	case l.over || l.last || l.deaf.Load():
		err = errLinkEnded
	case l.node != "" && !f.Response():
		f.Ext = append(f.Ext, Field{fieldNode, l.node})
		if l.out, err = f.Append(slices.Grow(l.out, size)); err == nil {
			l.node = ""
		}
	default:
		l.out, err = f.Append(slices.Grow(l.out, size))
	}
	var mine []byte // to be written by this goroutine
	signal := false
	if err == nil {
		l.added++
		switch {
		case l.writing > 0: // who writes looks again
			l.single = 0
		case later && len(l.out) <= maxSpare:
		case l.direct != nil && l.single >= writeAlone && l.added == 1:
			mine = l.takeLocked()
		default:
			signal = true
		}
	}
	much := l.countLocked()
	l.mu.Unlock()
	if much {
		l.backlog.relieve()
	}
	switch {
	case mine != nil:
		l.writeDirect(mine)
	case signal:
		l.awake()
	}
	return err
}

// awake has the writing goroutine look what there is to be written.
func (l *link) awake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// countLocked has the backlog count what waits. It is true when that has become
// too much.
func (l *link) countLocked() bool {
	if l.backlog == nil {
		return false
	}
	waits := 0
	if !l.over {
		waits = max(0, len(l.out)+l.writing+l.blocked-freeBacklog)
	}
	more := waits - l.charged
	if more == 0 {
		return false
	}
	l.charged = waits
	return l.backlog.add(more)
}

// takeLocked takes what was added, for who is going to write it: until wroteLocked
// nobody else does.
func (l *link) takeLocked() []byte {
	b := l.out
	l.out, l.spare = l.spare, nil
	if l.added == 1 {
		l.single++
	} else {
		l.single = 0
	}
	l.added = 0
	l.writing, l.since = len(b), time.Now()
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	return b
}

// wroteLocked ends what takeLocked began, after a write of the first n bytes of
// b. It is true when there is more to do.
func (l *link) wroteLocked(b []byte, n int) (more bool) {
	l.writing = 0
	if rest := b[n:]; len(rest) > 0 && !l.over && !l.deaf.Load() {
		l.out = append(rest, l.out...)
		l.added++
	} else if cap(b) <= maxSpare {
		l.spare = b[:0]
	}
	l.countLocked()
	return len(l.out) > 0 || l.last
}

// write writes what was added, all of it at once, until the link ends.
func (l *link) write() error {
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return nil
		}
		for more := true; more; {
			runtime.Gosched() // those who are about to add frames do so: one write takes them all
			l.mu.Lock()
			if l.writing > 0 || len(l.out) == 0 && !l.last { // who writes wakes this one again
				l.mu.Unlock()
				break
			}
			b, last := l.takeLocked(), l.last
			var err error
			if len(b) > 0 && !last {
				err = l.conn.SetWriteDeadline(l.since.Add(l.idle))
			}
			l.mu.Unlock()
			n := 0
			if len(b) > 0 {
				if err == nil {
					n, err = l.stream.Write(b)
				}
				l.touch()
			}
			if err != nil || last {
				n = len(b) // what was not written never is
			}
			l.mu.Lock()
			more = l.wroteLocked(b, n)
			l.mu.Unlock()
			if err != nil || last {
				return l.farewell(err)
			}
		}
	}
}

// farewell says over TLS that nothing follows; elsewhere the end of the
// connection says so.
func (l *link) farewell(err error) error {
	if secured, ok := l.stream.(*tls.Conn); ok && err == nil {
		err = secured.CloseWrite()
	}
	return err
}

// unheardLimit is how long a client goes on reading that cannot write any more. What
// has come by then lies here: to read it takes no time.
const unheardLimit = time.Second

// unheard goes on without writing, after a write that failed because the other
// side has closed the connection: what it had said before that still lies here to
// be read. A server does of it what has an effect, a client takes its answers. The
// reading goroutine finds the end behind that. It is false for a link that has to end
// now, as one whose other side is only slow.
func (l *link) unheard(cause error) bool {
	if cause == nil || errors.Is(cause, os.ErrDeadlineExceeded) {
		return false
	}
	l.deafen() // before whoever waits for room goes on
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.backlog == nil {
		if l.goodbye.IsZero() {
			l.goodbye = time.Now().Add(unheardLimit)
		}
		if l.over || l.conn.SetReadDeadline(l.goodbye) != nil {
			return false
		}
	}
	l.deaf.Store(true)
	l.out = nil
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
	l.countLocked()
	return true
}

// linger says that nothing follows, and leaves the end of the link to the other
// side, within the time that finish allows: what is still under way is read. A
// connection that is closed while something lies unread is reset, and what was sent
// before and has not arrived is thrown away. It is false for a client when no answer
// is due, and where a connection cannot be closed in one direction.
func (l *link) linger(cause error) bool {
	l.mu.Lock()
	unanswered, goodbye := l.unanswered, l.goodbye
	l.mu.Unlock()
	half, ok := l.conn.(interface{ CloseWrite() error })
	if cause != nil || goodbye.IsZero() || l.backlog == nil && unanswered <= 0 || !ok {
		return false
	}
	return half.CloseWrite() == nil && l.conn.SetReadDeadline(goodbye) == nil
}
