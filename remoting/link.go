package remoting

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
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
	// readBuffer is what is read ahead, firstBuffer until a whole frame has come.
	readBuffer  = 16 << 10
	firstBuffer = 1 << 10
	// firstPiece is what is allocated for the first frame before more of it has
	// arrived. Who has sent a frame gets a whole piece at once.
	firstPiece = 4 << 10
	// maxSpare is how large a buffer of written bytes may be to be kept for the
	// next ones.
	maxSpare = 64 << 10
)

// errLinkEnded is a frame that was not written because the connection is over.
var errLinkEnded = errors.New("connection over")

// link is one connection: frames in both directions, each side with ids of its
// own. Two goroutines serve it, read and write; end ends them, wait joins them.
type link struct {
	conn    net.Conn
	stream  net.Conn // conn, or TLS over it; fixed before the first frame
	idle    time.Duration
	leaving atomic.Bool  // last is set
	active  atomic.Int64 // when the last whole frame crossed, in ns since begun
	begun   time.Time
	heard   atomic.Bool // a whole frame has come

	// Of the reading goroutine.
	in      *bufio.Reader
	hurried bool   // a deadline is one, however short the link was idle
	large   *lease // of the large frame that is being read

	ctx    context.Context // ended by end
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: out has bytes; a second signal would say no more

	backlog *backlog // of a server's links; nil: nobody counts

	mu         sync.Mutex // guards what follows; never held during a read or a write
	over       bool
	cause      error         // why it is over; nil: this side wanted it
	ended      time.Duration // when, since begun
	last       bool          // the link ends once out is written
	goodbye    time.Time     // and by then; set with last
	deaf       bool          // the other side takes nothing more: nothing is written
	out        []byte        // frames that wait to be written
	writing    int           // bytes that are being written
	since      time.Time     // when that began
	room       chan struct{} // closed and replaced when out was taken; nil while nobody waits
	blocked    int           // bytes that wait for room
	charged    int           // what backlog counts of all these
	opaque     int32         // of our last request
	node       string        // goes out with the next request; "" when it has, or when there is none
	waiting    map[int32]chan *Frame
	unanswered int // requests that were asked and not answered, awaited or not

	frames  frames
	answers sync.Pool // of chan *Frame: empty, and nobody has them
	timers  sync.Pool // of *time.Timer: stopped
	loops   sync.WaitGroup
}

func newLink(conn net.Conn, idle time.Duration) *link {
	l := &link{conn: conn, stream: conn, idle: idle, begun: time.Now(), wake: make(chan struct{}, 1), waiting: make(map[int32]chan *Frame)}
	if secured, ok := conn.(*tls.Conn); ok {
		l.conn = secured.NetConn()
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.in = bufio.NewReaderSize(idleReader{l}, firstBuffer)
	return l
}

// service is what a link does for its owner, on the reading goroutine.
type service struct {
	begin   func() error                   // before the first frame; may be nil
	charge  func(size int) (*lease, error) // before a large frame is read to its end; nil: it always may
	request func(f *Frame, taken *lease)   // a request has come, with what charge took
	done    func()                         // at last
}

// start serves the link until it ends.
func (l *link) start(s service) {
	l.loops.Go(func() {
		defer s.done()
		l.end(l.read(s))
	})
}

// read reads frames until one cannot be, and lets the other goroutine write.
func (l *link) read(s service) error {
	if !l.rearm() {
		return os.ErrDeadlineExceeded
	}
	if s.begin != nil {
		if err := s.begin(); err != nil {
			return err
		}
	}
	l.loops.Go(func() {
		if err := l.write(); !l.unheard(err) && !l.linger(err) {
			l.end(err)
		}
	})
	for {
		f, taken, err := l.next(s.charge)
		if err != nil {
			return err
		}
		l.touch()
		l.heard.Store(true)
		if f.Response() {
			if l.backlog != nil && len(f.Body) > maxBodyText { // a server has places for requests, not for answers
				f.Code, f.Ext, f.Body = int32(protocol.SystemError), nil, nil
				f.Remark = fmt.Sprintf("the client's answer is larger than the %d bytes that are allowed", maxBodyText)
			}
			taken.release()
			l.answered(f)
			continue
		}
		s.request(f, taken)
	}
}

// unheard goes on without writing, after a write that failed because the other
// side has closed the connection: what it had said before that still lies here to
// be read, and a server does what was asked of it. The reading goroutine finds the
// end behind that. It is false for a link that has to end now: that of a client,
// which asks and needs answers, and one whose other side is only slow.
func (l *link) unheard(cause error) bool {
	if l.backlog == nil || cause == nil || errors.Is(cause, os.ErrDeadlineExceeded) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf, l.out = true, nil
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

// wait returns when the goroutines have ended, after end.
func (l *link) wait() { l.loops.Wait() }

// end ends the link; the first cause counts. Whoever waits for an answer learns
// of it through ctx.
func (l *link) end(cause error) {
	l.mu.Lock()
	over := l.over
	if !over {
		l.over, l.cause, l.ended, l.out = true, cause, time.Since(l.begun), nil
		l.countLocked()
	}
	l.mu.Unlock()
	if over {
		return
	}
	l.cancel()
	// Without a word of TLS before it, for which a peer that does not read could
	// make us wait. The link is over: there is nobody to tell of an error.
	_ = l.conn.Close()
}

// why is the cause of the end, and after which time that came.
func (l *link) why() (after time.Duration, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended, l.cause
}

// finish is end, but what was sent before is written first, as far as that is
// possible within the limit.
func (l *link) finish(limit time.Duration) {
	l.leaving.Store(true)
	l.mu.Lock()
	l.last = true
	l.goodbye = time.Now().Add(limit)
	err := l.conn.SetDeadline(l.goodbye) // under mu, as in write and rearm, which come before or know of it
	l.mu.Unlock()
	if err != nil {
		l.end(nil)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) alive() bool { return l.ctx.Err() == nil }

// quiet reports whether for d no whole frame has crossed and none is awaited.
func (l *link) quiet(d time.Duration) bool {
	if time.Since(l.begun)-time.Duration(l.active.Load()) < d {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0 && len(l.out) == 0
}

func (l *link) touch() { l.active.Store(int64(time.Since(l.begun))) }

// use makes what crosses the connection cross stream instead, which lies over
// it. Only before the first frame.
func (l *link) use(stream net.Conn) {
	l.stream = stream
	l.in.Reset(idleReader{l})
}

// within runs f, of which a read or a write fails when the limit is over.
func (l *link) within(limit time.Duration, f func() error) error {
	l.hurried = true
	err := l.conn.SetDeadline(time.Now().Add(limit))
	if err == nil {
		err = f()
	}
	l.hurried = false
	if err == nil {
		err = l.conn.SetWriteDeadline(time.Time{})
	}
	if err == nil && !l.rearm() {
		err = os.ErrDeadlineExceeded
	}
	return err
}

// next reads a frame. Of a large one no more than the first piece is read
// before charge allows it.
func (l *link) next(charge func(int) (*lease, error)) (f *Frame, taken *lease, err error) {
	first := firstPiece
	if l.heard.Load() {
		first = piece
		if l.in.Size() < readBuffer && l.in.Buffered() == 0 {
			l.in = bufio.NewReaderSize(idleReader{l}, readBuffer)
		}
	}
	var word [4]byte
	if _, err := io.ReadFull(l.in, word[:]); err != nil {
		return nil, nil, err
	}
	n, err := Length(word)
	if err != nil {
		return nil, nil, err
	}
	head, err := l.in.Peek(4)
	if err != nil {
		return nil, nil, err
	}
	if _, _, err := splitHead(head, n); err != nil {
		return nil, nil, err
	}
	b, err := readPieces(l.in, n, first, func() (err error) {
		if charge == nil {
			return nil
		}
		if taken, err = charge(n); err != nil {
			return err
		}
		l.large = taken
		if !l.rearm() {
			return os.ErrDeadlineExceeded
		}
		return nil
	})
	l.large = nil
	if err == nil {
		f = l.frames.get()
		err = f.parse(b)
	}
	if err != nil {
		taken.release()
		return nil, nil, err
	}
	return f, taken, nil
}

// idleReader reads from a link's connection. It gives up when for the idle
// limit no whole frame has crossed in either direction; single bytes do not
// keep a connection.
type idleReader struct{ l *link }

func (r idleReader) Read(b []byte) (int, error) {
	for {
		n, err := r.l.stream.Read(b)
		if slow := r.l.large.arrived(n); slow != nil {
			return n, slow
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if r.l.hurried || !r.l.rearm() {
			return 0, err
		}
	}
}

// rearm moves the deadline of reads to when the link will have been idle for
// too long, or to when a large frame is looked at again. It is false when it
// has been idle for too long.
func (l *link) rearm() bool {
	now := time.Now()
	at := l.begun.Add(time.Duration(l.active.Load()) + l.idle)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.goodbye.IsZero() && l.goodbye.Before(at) {
		at = l.goodbye
	}
	if !now.Before(at) {
		return false
	}
	if again := now.Add(paceGrace); l.large != nil && again.Before(at) {
		at = again
	}
	return l.conn.SetReadDeadline(at) == nil
}

// send adds a frame to what is written next. It waits for room, at most as long
// as ctx and the link last.
func (l *link) send(ctx context.Context, f *Frame) error {
	size := f.size()
	l.mu.Lock()
	for !l.over && !l.last && !l.deaf && len(l.out) > maxPending {
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.blocked += size
		much := l.countLocked()
		l.mu.Unlock()
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
			l.mu.Unlock()
			return err
		}
	}
	return l.addLocked(f, size)
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
	return l.addLocked(f, f.size())
}

// addLocked adds a frame of about a size, and unlocks.
func (l *link) addLocked(f *Frame, size int) (err error) {
	switch {
	case l.over || l.last || l.deaf:
		err = errLinkEnded
	case l.node != "" && !f.Response():
		f.Ext = append(f.Ext, Field{fieldNode, l.node})
		if l.out, err = f.Append(slices.Grow(l.out, size)); err == nil {
			l.node = ""
		}
	default:
		l.out, err = f.Append(slices.Grow(l.out, size))
	}
	much := l.countLocked()
	l.mu.Unlock()
	if much {
		l.backlog.relieve()
	}
	if err != nil {
		return err
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
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

// write writes what was added, all of it at once, until the link ends.
func (l *link) write() error {
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			return nil
		}
		runtime.Gosched() // those who are about to add frames do so: one write takes them all
		l.mu.Lock()
		b, last := l.out, l.last
		l.out = spare
		l.writing, l.since = len(b), time.Now()
		if l.room != nil {
			close(l.room)
			l.room = nil
		}
		var err error
		if len(b) > 0 && !last {
			err = l.conn.SetWriteDeadline(l.since.Add(l.idle))
		}
		l.mu.Unlock()
		if len(b) > 0 {
			if err == nil {
				_, err = l.stream.Write(b)
			}
			l.touch()
		}
		l.mu.Lock()
		l.writing = 0
		l.countLocked()
		l.mu.Unlock()
		if err != nil || last {
			return l.farewell(err)
		}
		if spare = b[:0]; cap(spare) > maxSpare {
			spare = nil
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

// ask sends a request under an id of its own. The answer comes through the
// channel; forget ends the wait for it.
func (l *link) ask(ctx context.Context, f *Frame) (answer chan *Frame, err error) {
	answer, _ = l.answers.Get().(chan *Frame)
	if answer == nil {
		answer = make(chan *Frame, 1) // the reader never waits for whoever asked
	}
	l.mu.Lock()
	l.opaque++
	f.Opaque = l.opaque
	l.waiting[f.Opaque] = answer
	l.unanswered++
	l.mu.Unlock()
	opaque := f.Opaque
	if err = l.send(ctx, f); err != nil {
		l.mu.Lock()
		delete(l.waiting, opaque)
		l.unanswered--
		l.mu.Unlock()
	}
	return answer, err
}

// timer is a new timer, or one of timers.
func (l *link) timer(d time.Duration) *time.Timer {
	t, ok := l.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(d)
	}
	t.Reset(d)
	return t
}

func (l *link) forget(opaque int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, opaque)
}

// answered hands an answer to whoever waits for it. One that nobody waits for,
// or not any more, is dropped.
func (l *link) answered(f *Frame) {
	l.mu.Lock()
	answer := l.waiting[f.Opaque]
	delete(l.waiting, f.Opaque)
	l.unanswered--
	l.mu.Unlock()
	if answer != nil {
		answer <- f
	}
}
