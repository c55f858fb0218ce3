package remoting

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
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
	maxPending = 256 << 10
	// readBuffer is what is read ahead, firstBuffer until a whole frame has come.
	readBuffer  = 16 << 10
	firstBuffer = 1 << 10
	// firstPiece is what is allocated for the first frame before more of it has
	// arrived. Who has sent a frame gets a whole piece at once.
	firstPiece = 4 << 10
	// turnFrames is how many frames that have come already are served before others
	// have their turn: who sends more than is served keeps no processor.
	turnFrames = 32
	// maxSpare is how large a buffer of written bytes may be to be kept for the
	// next ones.
	maxSpare = 64 << 10
)

// errLinkEnded is a frame that was not written because the connection is over.
var errLinkEnded = errors.New("connection over")

// link is one connection: frames in both directions, each side with ids of its
// own. One goroutine reads, see right, one writes what others do not write
// themselves; end ends them, wait joins them.
type link struct {
	conn    net.Conn
	stream  net.Conn // conn, or TLS over it; fixed before the first frame
	idle    time.Duration
	leaving atomic.Bool  // last is set
	deaf    atomic.Bool  // the other side takes nothing more: nothing is written; set with mu
	active  atomic.Int64 // when the last whole frame crossed, in ns since begun
	begun   time.Time
	heard   atomic.Bool // a whole frame has come
	coming  atomic.Bool // some of a large one has

	// Of who has the right to read.
	right   right
	in      *bufio.Reader
	hurried bool          // a deadline is one, however short the link was idle
	large   *lease        // of the large frame that is being read
	unsaid  int           // frames added to be written later: that is before more is read
	only    bool          // nobody waited for another answer than the last one that came
	onlyAt  time.Duration // when that came, since begun
	inTurn  int           // frames since others had their turn
	soon    int           // answers in a row that came soon after the one before, and nobody else waited

	ctx    context.Context // ended by end
	cancel context.CancelFunc
	reader context.Context // also ended by unheard: nobody reads what is written
	deafen context.CancelFunc
	wake   chan struct{} // capacity 1: out has bytes; a second signal would say no more

	service service
	backlog *backlog      // of a server's links; nil: nobody counts
	reads   chan struct{} // a place for each request that makes a large answer; of a server's links
	direct  nonblocking   // nil: only the writing goroutine writes

	mu         sync.Mutex // guards what follows; never held during a read or a write
	over       bool
	cause      error         // why it is over; nil: this side wanted it
	ended      time.Duration // when, since begun
	last       bool          // the link ends once out is written
	goodbye    time.Time     // and by then; set with last
	out        []byte        // frames that wait to be written
	added      int           // how many these are
	single     int           // writes in a row that had one frame each
	spare      []byte        // for the next out
	writing    int           // bytes that are being written
	since      time.Time     // when that began
	room       chan struct{} // closed and replaced when out was taken; nil while nobody waits
	blocked    int           // bytes that wait for room
	charged    int           // what backlog counts of all these
	opaque     int32         // of our last request
	node       string        // goes out with the next request; "" when it has, or when there is none
	waiting    map[int32]chan *Frame
	unanswered int // requests that were asked and not answered, awaited or not

	frames  framePool
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
	l.reader, l.deafen = context.WithCancel(l.ctx)
	l.direct = directOf(conn)
	l.in = bufio.NewReaderSize(idleReader{l}, firstBuffer)
	return l
}

// service is what a link does for its owner, called by who has the right to read.
type service struct {
	begin  func() error                   // before the first frame; may be nil
	charge func(size int) (*lease, error) // before a large frame is read to its end; nil: it always may
	late   func()                         // the last request has lost the right to read; may be nil
	done   func()                         // at last

	// request serves a request that has come, with what charge took, or sees to it.
	// It is false when it has lost the right to read.
	request func(f *Frame, taken *lease) bool
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
	if l.right.again() { // nobody reads who could find the end
		go l.read(nil, nil)
	}
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

// alive reports whether something can be written.
func (l *link) alive() bool { return l.ctx.Err() == nil && !l.deaf.Load() }

// quiet reports whether for d no whole frame has crossed and none is awaited.
func (l *link) quiet(d time.Duration) bool {
	if l.rested() < d {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) == 0 && len(l.out) == 0
}

// rested is for how long no whole frame has crossed.
func (l *link) rested() time.Duration {
	return time.Since(l.begun) - time.Duration(l.active.Load())
}

// busy reports whether an answer is awaited, a frame is to be written, or a large
// one is coming.
func (l *link) busy() bool {
	if l.coming.Load() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) > 0 || len(l.out) > 0 || l.writing > 0
}

func (l *link) touch() { l.active.Store(int64(time.Since(l.begun))) }

// use makes what crosses the connection cross stream instead, which lies over
// it. Only before the first frame.
func (l *link) use(stream net.Conn) {
	l.stream, l.direct = stream, nil
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
	l.only = len(l.waiting) == 0
	l.mu.Unlock()
	now := time.Duration(l.active.Load())
	if l.backlog == nil && l.only && now-l.onlyAt < overdue {
		l.soon++
	} else {
		l.soon = 0
	}
	l.onlyAt = now
	if answer != nil {
		answer <- f
	}
}
