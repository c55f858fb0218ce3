package remoting

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one connection.
const (
	// idleLimit is how long a connection may be without a whole frame in either
	// direction, and how long one write may take. Java:
	// serverChannelMaxIdleTimeSeconds, clientChannelMaxIdleTimeSeconds.
	idleLimit = 120 * time.Second
	// maxPending is how many bytes may wait to be written before whoever adds
	// more has to wait.
	maxPending = 1 << 20
	// maxBlocked is how many bytes may wait for that. A side that lets so much
	// come and reads none of it is cut off.
	maxBlocked = 64 << 20
	// readBuffer is what is read ahead.
	readBuffer = 16 << 10
)

// errLinkEnded is a frame that was not written because the connection is over.
var errLinkEnded = errors.New("connection over")

// link is one connection: frames in both directions, each side with ids of its
// own. Two goroutines serve it, read and write; end ends them, wait joins them.
type link struct {
	conn   net.Conn
	idle   time.Duration
	in     *bufio.Reader
	active atomic.Int64 // when the last whole frame crossed, in ns since begun
	begun  time.Time

	ctx    context.Context // ended by end
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: out has bytes; a second signal would say no more

	mu      sync.Mutex // guards what follows; never held during a read or a write
	over    bool
	last    bool          // the link ends once out is written
	out     []byte        // frames that wait to be written
	room    chan struct{} // closed and replaced when out was taken; nil while nobody waits
	blocked int           // bytes that wait for room
	opaque  int32         // of our last request
	waiting map[int32]chan *Frame

	loops sync.WaitGroup
}

func newLink(conn net.Conn, idle time.Duration) *link {
	l := &link{conn: conn, idle: idle, begun: time.Now(), wake: make(chan struct{}, 1), waiting: make(map[int32]chan *Frame)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.in = bufio.NewReaderSize(idleReader{l}, readBuffer)
	return l
}

// start serves the link until it ends: requests go to request, on the reading
// goroutine; done runs there last. charge is asked before a large frame is
// read and returns what gives its bytes back.
func (l *link) start(charge func(size int) (release func(), err error), request func(f *Frame, release func()), done func()) {
	l.loops.Go(func() {
		defer done()
		defer l.end()
		if !l.rearm() {
			return
		}
		for {
			f, release, err := l.next(charge)
			if err != nil {
				return
			}
			l.touch()
			if f.Response() {
				release()
				l.answered(f)
				continue
			}
			request(f, release)
		}
	})
	l.loops.Go(func() {
		defer l.end()
		l.write()
	})
}

// wait returns when the goroutines have ended, after end.
func (l *link) wait() { l.loops.Wait() }

// end ends the link. Whoever waits for an answer learns of it through ctx.
func (l *link) end() {
	l.mu.Lock()
	over := l.over
	l.over = true
	l.mu.Unlock()
	if over {
		return
	}
	l.cancel()
	_ = l.conn.Close() // The link is over: there is nobody to tell.
}

// finish is end, but what was sent before is written first, as far as that is
// possible within the limit.
func (l *link) finish(limit time.Duration) {
	l.mu.Lock()
	l.last = true
	l.mu.Unlock()
	if l.conn.SetWriteDeadline(time.Now().Add(limit)) != nil {
		l.end()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) alive() bool { return l.ctx.Err() == nil }

func (l *link) touch() { l.active.Store(int64(time.Since(l.begun))) }

// next reads a frame. Of a large one no more than the first piece is read
// before charge allows it.
func (l *link) next(charge func(int) (func(), error)) (*Frame, func(), error) {
	var word [4]byte
	release := func() {}
	if _, err := io.ReadFull(l.in, word[:]); err != nil {
		return nil, nil, err
	}
	n, err := Length(word)
	if err != nil {
		return nil, nil, err
	}
	if n > piece && charge != nil {
		if release, err = charge(n); err != nil {
			return nil, nil, err
		}
	}
	b, err := readPieces(l.in, n)
	var f *Frame
	if err == nil {
		f, err = Parse(b)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return f, release, nil
}

// idleReader reads from a link's connection. It gives up when for the idle
// limit no whole frame has crossed in either direction; single bytes do not
// keep a connection.
type idleReader struct{ l *link }

func (r idleReader) Read(b []byte) (int, error) {
	for {
		n, err := r.l.conn.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if !r.l.rearm() {
			return 0, err
		}
	}
}

// rearm moves the deadline of reads to when the link will have been idle for
// too long. It is false when it has.
func (l *link) rearm() bool {
	at := l.begun.Add(time.Duration(l.active.Load()) + l.idle)
	if !time.Now().Before(at) {
		return false
	}
	return l.conn.SetReadDeadline(at) == nil
}

// send adds a frame to what is written next. It waits for room, at most as long
// as ctx and the link last.
func (l *link) send(ctx context.Context, f *Frame) error {
	size := f.size()
	l.mu.Lock()
	for !l.over && !l.last && len(l.out) > maxPending {
		if l.blocked+size > maxBlocked {
			l.mu.Unlock()
			l.end()
			return errLinkEnded
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.blocked += size
		l.mu.Unlock()
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
			l.mu.Unlock()
			return err
		}
	}
	return l.addLocked(f)
}

// trySend is send for what may be lost: it does not wait.
func (l *link) trySend(f *Frame) error {
	l.mu.Lock()
	if len(l.out) > maxPending {
		l.mu.Unlock()
		return errLinkEnded
	}
	return l.addLocked(f)
}

// addLocked adds a frame, and unlocks.
func (l *link) addLocked(f *Frame) (err error) {
	if l.over || l.last {
		err = errLinkEnded
	} else {
		l.out, err = f.Append(l.out)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// write writes what was added, all of it at once, until the link ends.
func (l *link) write() {
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return
		}
		l.mu.Lock()
		b, last := l.out, l.last
		l.out = spare[:0]
		if l.room != nil {
			close(l.room)
			l.room = nil
		}
		l.mu.Unlock()
		if len(b) == 0 {
			if last {
				return
			}
			spare = b
			continue
		}
		if !last && l.conn.SetWriteDeadline(time.Now().Add(l.idle)) != nil {
			return
		}
		if _, err := l.conn.Write(b); err != nil {
			return
		}
		l.touch()
		if last {
			return
		}
		if spare = b; cap(spare) > maxPending {
			spare = nil
		}
	}
}

// ask sends a request under an id of its own. The answer comes through the
// channel; forget ends the wait for it.
func (l *link) ask(ctx context.Context, f *Frame) (answer chan *Frame, err error) {
	answer = make(chan *Frame, 1) // the reader never waits for whoever asked
	l.mu.Lock()
	l.opaque++
	f.Opaque = l.opaque
	l.waiting[f.Opaque] = answer
	l.mu.Unlock()
	if err = l.send(ctx, f); err != nil {
		l.forget(f)
	}
	return answer, err
}

func (l *link) forget(f *Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, f.Opaque)
}

// answered hands an answer to whoever waits for it. One that nobody waits for,
// or not any more, is dropped.
func (l *link) answered(f *Frame) {
	l.mu.Lock()
	answer := l.waiting[f.Opaque]
	delete(l.waiting, f.Opaque)
	l.mu.Unlock()
	if answer != nil {
		answer <- f
	}
}
