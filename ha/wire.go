package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readBytes is the buffer of a slave, and what it writes to its log at a time when
	// more is there than one frame.
	readBytes = 256 << 10
	// ackReadBytes is the buffer of a master: anybody may connect, and hellos and acks
	// are small.
	ackReadBytes = 4 << 10
	// writeBytes is what is written to a connection at a time: each such piece has the
	// housekeeping time to go.
	writeBytes = 64 << 10
	// keepBytes is how large a buffer may be that is kept after a large frame.
	keepBytes = 1 << 20
	// goodbyeTime is how long the other side may take to take in why a connection ends.
	goodbyeTime = time.Second
)

// errIdle means that nothing came until the time asked for.
var errIdle = errors.New("idle")

// wire is one end of a replication connection. One goroutine reads, one writes, and
// any may stop them.
type wire struct {
	conn    net.Conn
	silence time.Duration // housekeeping
	limit   func(frameKind) int
	why     atomic.Pointer[error] // it is to end; nil: not yet
	done    chan struct{}         // closed by stop

	// What the reader has: bodies of frames lie in buf, unread is buf[r:w].
	size  int // of buf to begin with
	buf   []byte
	r, w  int
	quiet time.Duration // that was waited in vain since the last byte

	// The writer's.
	lastWrite time.Time
	torn      bool // a frame was begun and not ended
}

// newWire begins to use a connection, with a buffer of a size, whose frames may have up to
// limit bytes, 0 where a kind is not due. Its end is the caller's: close.
func newWire(conn net.Conn, size int, silence time.Duration, limit func(frameKind) int) *wire {
	return &wire{conn: conn, size: size, silence: silence, limit: limit, done: make(chan struct{}), lastWrite: time.Now()}
}

// stop makes whoever reads or writes return an error: the first one given to stop.
func (w *wire) stop(why error) {
	if w.why.CompareAndSwap(nil, &why) {
		close(w.done)
		_ = w.conn.SetDeadline(time.Unix(1, 0)) // fails only if it is closed
	}
}

// endOf is what a connection is stopped for when ctx ends: a cause of its own is none that
// the other side is told.
func endOf(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return ErrStopped
}

// stopped is what it was stopped for; nil: it was not.
func (w *wire) stopped() error {
	if why := w.why.Load(); why != nil {
		return *why
	}
	return nil
}

// peer is the address of the other side.
func (w *wire) peer() string { return w.conn.RemoteAddr().String() }

// next is the next frame: its body is valid until the call after that which finds no
// whole frame in the buffer (see ready). Errors: errIdle when none came until the time given;
// [ErrSilent] when no byte came for the housekeeping time; what it was
// stopped for.
func (w *wire) next(until time.Time) (frameKind, []byte, error) {
	for {
		kind, body, whole, err := w.take()
		if whole || err != nil {
			return kind, body, err
		}
		if err := w.fill(until); err != nil {
			return 0, nil, err
		}
	}
}

// ready tells whether a whole frame of a kind is in the buffer.
func (w *wire) ready(kind frameKind) bool {
	if w.w-w.r < headerBytes {
		return false
	}
	k, size, err := parseHeader(w.buf[w.r:], w.limit)
	return err == nil && k == kind && w.w-w.r >= headerBytes+size
}

// take takes a whole frame out of the buffer.
func (w *wire) take() (kind frameKind, body []byte, whole bool, err error) {
	frame := w.buf[w.r:w.w]
	if len(frame) < headerBytes {
		return 0, nil, false, nil
	}
	kind, size, err := parseHeader(frame, w.limit)
	if err != nil {
		return 0, nil, false, fmt.Errorf("ha: from %s: %w", w.peer(), err)
	}
	if len(frame) < headerBytes+size {
		return 0, nil, false, nil
	}
	frame = frame[: headerBytes+size : headerBytes+size]
	if !bodyIntact(frame) {
		return 0, nil, false, fmt.Errorf("ha: from %s: %w: the checksum of a %v is wrong", w.peer(), ErrBadFrame, kind)
	}
	w.r += len(frame)
	return kind, frame[headerBytes:], true, nil
}

// fill reads once. The buffer grows only as far as it was filled: the size of a frame
// is a claim.
func (w *wire) fill(until time.Time) error {
	switch free := len(w.buf) - w.w; {
	case w.buf == nil:
		w.buf = make([]byte, w.size)
	case w.r > 0 && free < len(w.buf)/2: // what is unread is a part of one frame
		w.w = copy(w.buf, w.buf[w.r:w.w])
		w.r = 0
	case free == 0:
		larger := make([]byte, 2*len(w.buf))
		copy(larger, w.buf)
		w.buf = larger
	}
	// Only waiting counts as silence: what came meanwhile is still to be read.
	start := time.Now()
	dead := start.Add(w.silence - w.quiet)
	if until.IsZero() || dead.Before(until) {
		until = dead
	}
	if err := w.conn.SetReadDeadline(until); err != nil {
		return w.lost(err)
	}
	if err := w.stopped(); err != nil { // stop's deadline may be the one before
		return err
	}
	n, err := w.conn.Read(w.buf[w.w:])
	w.w += n
	switch {
	case n > 0:
		w.quiet = 0
		return nil
	case w.stopped() != nil:
		return w.stopped()
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return w.lost(err)
	}
	w.quiet += time.Since(start)
	if w.quiet >= w.silence {
		return fmt.Errorf("ha: nothing came from %s for %v: %w", w.peer(), w.silence, ErrSilent)
	}
	if w.r == w.w && len(w.buf) > keepBytes {
		w.buf, w.r, w.w = nil, 0, 0
	}
	return errIdle
}

// write writes frames. The other side takes each piece within a time, or is silent.
func (w *wire) write(b []byte, patience time.Duration) error {
	for len(b) > 0 {
		piece := b[:min(len(b), writeBytes)]
		if err := w.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return w.lost(err)
		}
		if err := w.stopped(); err != nil {
			return err
		}
		w.torn = true
		if _, err := w.conn.Write(piece); err != nil {
			if why := w.stopped(); why != nil {
				return why
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("ha: %s takes nothing for %v: %w", w.peer(), patience, ErrSilent)
			}
			return w.lost(err)
		}
		b = b[len(piece):]
	}
	w.lastWrite, w.torn = time.Now(), false
	return nil
}

func (w *wire) lost(err error) error {
	return fmt.Errorf("ha: the connection to %s was lost: %w", w.peer(), err)
}

// close ends the connection. The other side is told why, unless it has said so itself,
// or was lost, or would take it for the rest of a frame. Nobody reads or writes any more.
func (w *wire) close(why error) {
	defer func() { _ = w.conn.Close() }() // it has ended, however it closes
	var refused *RefusedError
	if why == nil || w.torn || errors.As(why, &refused) || reasonOf(why) == reasonOther {
		return
	}
	if w.conn.SetDeadline(time.Now().Add(goodbyeTime)) != nil {
		return
	}
	// Meanwhile the rest is read: a peer that waits for that would not read what it is
	// told, and closed with something unread, TCP resets. The other side closes when it
	// has read it.
	var rest sync.WaitGroup
	rest.Go(func() {
		b := make([]byte, 4<<10)
		for {
			if _, err := w.conn.Read(b); err != nil {
				return
			}
		}
	})
	_, err := w.conn.Write(appendGoodbye(nil, goodbye{reason: reasonOf(why), text: why.Error()}))
	if half, ok := w.conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		_ = w.conn.Close() // ends the reading
	}
	rest.Wait()
}
