package remoting

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pocketmq/pocketmq/protocol"
)

// limits bound what strangers can make a server hold. In the worst case, that
// of clients which send as much as they may and read nothing, a server holds, see
// worst,
//
//	conns * (3*piece + readBuffer + 2*maxSpare + freeBacklog)   bytes of connections,
//	conns * ownHeld * smallFrame                                bytes of their own pulls,
//	served * piece + large                                      bytes of requests,
//	held * smallFrame + heldBytes                               bytes of pulls,
//	decoders * mostMade                                         bytes of bodies that are being read,
//	made + (conns + served) * smallMade                         bytes of what has become of them, as long as handlers have it,
//	conns * registeredOwn + registeredShared                    bytes of groups that clients have registered, see internal/groups,
//	asks * 2 * maxBodyText                                      bytes of what clients have answered,
//	answers + 2 * making                                        bytes of answers, those that are being made twice,
//
// with 3 * conns + (conns + served) + (conns * ownHeld + held) goroutines, and
// idleWorkers that wait for the next request. A connection of
// which no whole frame has come holds about 10 KiB, one with TLS 50 KiB more.
type limits struct {
	idle       time.Duration
	conns      int   // connections; for one more another is closed, see evict, or the new one
	connServed int   // requests of a connection that are served or whose answers wait to be written; then it is not read, nor is its end noticed
	ownServed  int   // requests of a connection that need no place among served
	served     int   // requests of all connections that are served, beyond their own; then nobody's are
	connHeld   int   // pulls of a connection; one more is refused as busy
	ownHeld    int   // pulls of a connection that need no place among held
	held       int   // pulls of all connections, beyond their own; one more is refused as busy
	heldBytes  int64 // bytes of pulls that are larger than smallFrame; one more is refused as busy
	large      int64 // bytes of requests that are larger than a piece
	decoders   int   // bodies larger than smallFrame, or compressed ones, that are being read at a time
	made       int64 // bytes of what has become of bodies that were read, beyond smallMade each; one more waits
	asks       int   // questions to clients whose answers are awaited; one more waits
	making     int64 // bytes of answers that are being made; one more waits
	answers    int64 // bytes of answers that wait to be written, beyond freeBacklog of each connection; then the slowest reader is cut off
}

func defaultLimits() limits {
	return limits{
		idle: idleLimit, conns: 10_000, connServed: 256, ownServed: 1, served: 4096, connHeld: 8192, ownHeld: 16, held: 32_768,
		heldBytes: 64 << 20, large: 256 << 20, decoders: 1, made: 256 << 20, asks: 32, making: 128 << 20, answers: 256 << 20,
	}
}

// What clients may register: internal/groups bounds it.
const (
	registeredOwn    = 32 << 10  // for each connection
	registeredShared = 256 << 20 // beyond
)

// goroutineBytes is about what a goroutine of a connection or a request takes.
const goroutineBytes = 8 << 10

// worst is how many bytes a server holds at most, for each connection and for what all
// share, but for topics, groups and messages that clients may create, and what lists
// of these take. The collector may let garbage of as much come beside it.
func (l limits) worst() (each, shared int64) {
	each = 3*piece + readBuffer + 2*maxSpare + freeBacklog + int64(l.ownHeld)*smallFrame + int64(3+1+l.ownHeld)*goroutineBytes +
		int64(l.ownServed)*smallMade + registeredOwn
	shared = int64(l.served)*(piece+smallMade) + l.large + int64(l.held)*smallFrame + l.heldBytes + int64(l.decoders)*mostMade + l.made +
		int64(l.asks)*2*maxBodyText + l.answers + 2*l.making + int64(l.served+l.held)*goroutineBytes + registeredShared
	return each, shared
}

// smallFrame is the size up to which requests are small: they are many, and
// what is made of them need not be counted.
const smallFrame = 4 << 10

// serverConn is a server's side of a session: a BrokerConn or a NameServerConn.
type serverConn interface{ Close() error }

// listener serves a broker or a name server on a net.Listener.
type listener[S serverConn] struct {
	addr    string
	at      site
	connect func(protocol.Session) S
	rows    table[S]
	secure  *security
	limits  limits
	net     net.Listener

	served    chan struct{} // a place for each request that is served
	held      chan struct{} // a place for each pull
	heldBytes *semaphore.Weighted
	large     *budget
	bodies    *bodies
	turns     chan struct{} // a place for each connection with more pulls than one whose pull is begun
	asks      chan struct{} // a place for each question to a client whose answer is awaited
	workers   *workers
	making    *semaphore.Weighted
	answers   backlog

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing atomic.Bool // set before the first session ends: notices are dropped
	loop    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	sessions map[*session[S]]struct{}
	evicted  int // sessions that were ended for others and are still there
}

var _ protocol.Listener = (*listener[protocol.BrokerConn])(nil)

func serve[S serverConn](ln net.Listener, addr string, at site, rows []row[S], connect func(protocol.Session) S, secure *security, lim limits) *listener[S] {
	l := &listener[S]{
		addr:      addr,
		at:        at,
		connect:   connect,
		rows:      tableOf(rows),
		secure:    secure,
		limits:    lim,
		net:       ln,
		served:    make(chan struct{}, lim.served),
		held:      make(chan struct{}, lim.held),
		heldBytes: semaphore.NewWeighted(lim.heldBytes),
		large:     newBudget(lim.large),
		bodies:    newBodies(lim.decoders, lim.made),
		turns:     make(chan struct{}, runtime.GOMAXPROCS(0)),
		asks:      make(chan struct{}, lim.asks),
		workers:   newWorkers(idleWorkers),
		making:    semaphore.NewWeighted(lim.making),
		sessions:  make(map[*session[S]]struct{}),
	}
	l.answers.most, l.answers.cut = lim.answers, l.cutSlowest
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.loop.Go(l.accept)
	return l
}

// Addr is the address that peers dial.
func (l *listener[S]) Addr() string { return l.addr }

// Close stops accepting, ends every session, cancels the calls in flight and
// returns when the last handler has returned. A second Close waits as the first
// does. A handler must not call it: it would wait for itself.
func (l *listener[S]) Close() error {
	l.closing.Store(true)
	l.cancel()
	err := l.net.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	l.loop.Wait()
	l.mu.Lock()
	l.closed = true
	open := make([]*session[S], 0, len(l.sessions))
	for s := range l.sessions {
		open = append(open, s)
	}
	l.mu.Unlock()
	for _, s := range open {
		s.link.end(nil)
	}
	for _, s := range open {
		s.link.wait()
	}
	l.workers.close()
	return err
}

// drainLimit bounds how long a session that is drained may take to end.
const drainLimit = time.Second

// Drain implements protocol.Drainer.
func (l *listener[S]) Drain(ctx context.Context) {
	var draining sync.WaitGroup
	l.mu.Lock()
	for s := range l.sessions {
		draining.Go(func() { s.drain(ctx) })
	}
	l.mu.Unlock()
	draining.Wait()
}

// accept takes connections until Close.
func (l *listener[S]) accept() {
	const first, longest = 5 * time.Millisecond, time.Second
	pause := first
	for {
		conn, err := l.net.Accept()
		if err == nil {
			pause = first
			l.open(conn)
			continue
		}
		if l.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file handles, say: later there may be some, or at once, those of
		// connections that nobody uses.
		if l.evict() {
			pause = first
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return
		}
		pause = min(2*pause, longest)
	}
}

// open begins a session.
func (l *listener[S]) open(conn net.Conn) {
	l.mu.Lock()
	full := len(l.sessions)-l.evicted >= l.limits.conns
	l.mu.Unlock()
	refused := full && !l.evict()
	s := &session[S]{l: l, link: newLink(conn, l.limits.idle)}
	s.link.backlog, s.link.reads = &l.answers, make(chan struct{}, readsPerConn)
	s.at = site{broker: l.at.broker, frames: &s.link.frames}
	s.calls = newCalls(l.ctx, s.link, l.workers, l.limits.connServed, l.limits.ownServed, l.served)
	s.pulls = newCalls(s.link.reader, s.link, l.workers, l.limits.connHeld, l.limits.ownHeld, l.held)
	s.here = newHere()
	if !refused { // from now on Drain may find it
		l.mu.Lock()
		if refused = l.closed; !refused {
			l.sessions[s] = struct{}{}
		}
		l.mu.Unlock()
	}
	if refused {
		s.link.end(nil)
		return
	}
	s.lane = newLane()
	s.link.start(service{begin: s.begin, charge: s.charge, request: s.request, late: func() { s.here.took(overdue) }, done: s.end})
}

// evictRest is how long a session that has said something must have been idle
// before it is ended for another one: one that was just used is about to be again.
const evictRest = time.Second

// evict ends a session for a new one: the oldest of which no whole frame has come,
// or else that which has been idle for longest and is not missed, as its client
// dials again. It is false when there is none.
func (l *listener[S]) evict() bool {
	var silent, idle *session[S]
	var rest time.Duration // of idle
	l.mu.Lock()
	for s := range l.sessions {
		switch {
		case s.evicted:
		case !s.link.heard.Load():
			if silent == nil || s.link.begun.Before(silent.link.begun) {
				silent = s
			}
		case silent == nil && !s.bound.Load():
			if has := s.link.rested(); has >= evictRest && has > rest && !s.busy() {
				idle, rest = s, has
			}
		}
	}
	gone := silent
	if gone == nil {
		gone = idle
	}
	if gone != nil {
		gone.evicted = true
		l.evicted++
	}
	l.mu.Unlock()
	if gone == nil {
		return false
	}
	gone.link.end(errEvicted)
	return true
}

// commitLimit is how long a commit may take whose caller does not say how long it
// waits: what comes after it on the connection has to wait for it. Official clients
// wait as long at most.
const commitLimit = 5 * time.Second

// errEvicted is the end of a connection that did nothing when there were too many.
var errEvicted = errors.New("too many connections")

// cutSlowest ends the session whose write has lasted longest, of those that
// have more to be written than is free.
func (l *listener[S]) cutSlowest() bool {
	var slowest *link
	var since time.Time
	l.mu.Lock()
	for s := range l.sessions {
		s.link.mu.Lock()
		if s.link.charged > 0 && s.link.writing > 0 && (slowest == nil || s.link.since.Before(since)) {
			slowest, since = s.link, s.link.since
		}
		s.link.mu.Unlock()
	}
	l.mu.Unlock()
	if slowest == nil {
		return false
	}
	slowest.end(errNotRead)
	return true
}

func remoteOf(conn net.Conn) netip.AddrPort {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		at := a.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	}
	return netip.AddrPort{}
}

// session is one connection to a server.
type session[S serverConn] struct {
	l         *listener[S]
	link      *link
	remote    netip.AddrPort // where it comes from; set by begin
	peer      *peer          // set by begin
	srv       S
	connected bool        // there is an srv; of who has the right to read
	evicted   bool        // guarded by l.mu
	bound     atomic.Bool // a command with bound has come
	at        site
	lane      *lane
	calls     *calls
	pulls     *calls
	serving   serving // of calls and pulls, of a client that is ours
	here      here    // of who has the right to read
}

// begin finds out where the session comes from.
func (s *session[S]) begin() error {
	from, err := s.l.secure.greet(s.link)
	if err != nil {
		return err
	}
	if !from.IsValid() {
		from = remoteOf(s.link.conn)
	}
	s.remote = from
	s.peer = &peer{link: s.link, remote: from.String(), closing: &s.l.closing, asks: s.l.asks, reading: s.l.bodies.reading}
	return nil
}

// connect begins the session with the service: with the first request, which
// says who the caller is, and not for a stranger that says nothing.
func (s *session[S]) connect(first *Frame) {
	if s.connected {
		return
	}
	s.connected = true
	node := strings.Clone(first.node()) // it outlives the frame
	s.peer.ours = node != ""
	s.srv = s.l.connect(protocol.Session{Node: node, Remote: s.remote, Peer: s.peer})
	if s.peer.ours {
		_ = s.link.trySend(ownCommand(codeOurs)) // nothing waits to be written before it
	}
}

// charge takes the bytes of a large request from what the server has for them.
func (s *session[S]) charge(size int) (*lease, error) {
	return s.l.large.take(s.link.ctx, size, s.l.limits.idle)
}

// request serves a request, or sees to it.
func (s *session[S]) request(f *Frame, taken *lease) bool {
	if s.link.leaving.Load() { // nobody could be told
		taken.release()
		return true
	}
	if s.peer.language.Load() != int32(f.Language) {
		s.peer.language.Store(int32(f.Language))
	}
	if f.Code == int32(codeCancel) && s.peer.ours {
		taken.release()
		s.serving.cancel(f)
		s.link.frames.put(f)
		return true
	}
	row := s.l.rows[protocol.Code(f.Code)]
	if row == nil {
		taken.release()
		refuse(s.link, f, protocol.RequestCodeNotSupported, " request type %d not supported", f.Code)
		return true
	}
	if s.only(row) {
		taken.release()
		s.link.frames.put(f)
		return true
	}
	s.connect(f)
	if row.binds() {
		s.bound.Store(true)
	}
	switch f.Code {
	case int32(protocol.CodePullMessage), codeLitePullMessage:
		taken.release()
		f.Body = nil // nothing was asked by it
		s.pull(row, f)
		return true
	}
	f.bodies = s.l.bodies
	// What a client has asked for before it went is done: unlike a pull it is not
	// only for the client. An official Go client marks nothing as oneway, waits for
	// no answer to a commit, and closes the connection right behind its last ones.
	if f.Oneway() || f.Code == int32(protocol.CodeUpdateConsumerOffset) {
		var own *cancellable
		ctx := s.l.ctx
		if !f.Oneway() {
			until := f.until()
			if until.IsZero() {
				until = time.Now().Add(commitLimit)
			}
			own = s.serving.begin(s.l.ctx, f.Opaque, until)
			ctx = &own.Context
		}
		if !s.lane.add(s.l.ctx, f.size(), func() {
			defer taken.release()
			answer := row.serve(ctx, s.srv, s.at, f) // whatever has become of ctx
			if own != nil {
				s.serving.end(own)
			}
			s.link.frames.put(f)
			if answer != nil {
				s.calls.answer(answer, false, nil)
			}
		}) {
			taken.release()
		}
		return true
	}
	ctx := s.calls.ctx
	var made *reservation
	if !row.isLasting() {
		ctx, made = s.reserving()
	}
	serve := s.serve(ctx, row, f) // how long its caller waits counts from now
	p := s.calls.take()
	if p == placeNone {
		taken.release()
		return true
	}
	t := task{place: p, after: s.lane.last, lease: taken, made: made, serve: serve}
	if s.here.may() && s.calls.served.Load() == 1 && t.ready() {
		return s.serveHere(t)
	}
	s.calls.run(t)
	return true
}

// reserving is the ctx of a request that only answers, and what bounds its answer.
func (s *session[S]) reserving() (context.Context, *reservation) {
	r := &reservation{link: s.link, making: s.l.making, most: s.l.limits.making}
	return protocol.WithAnswers(s.link.reader, r), r
}

// only reports whether a command would only answer, and nobody reads answers any more.
func (s *session[S]) only(row row[S]) bool { return !row.isLasting() && s.link.reader.Err() != nil }

// busy reports whether something of the session is under way. It may be asked for a
// session of which a whole frame has come.
func (s *session[S]) busy() bool {
	return len(s.calls.places) > 0 || len(s.pulls.places) > 0 || s.lane.pending.Load() > 0 || s.link.busy()
}

// serve serves f under ctx when it is its turn, and takes the frame back. Its caller
// may cancel it from now on.
func (s *session[S]) serve(ctx context.Context, row row[S], f *Frame) func(context.Context) *Frame {
	until := f.until()
	if !s.peer.ours {
		return func(context.Context) *Frame {
			answer := serveUntil(ctx, until, row, s.srv, s.at, f)
			s.link.frames.put(f)
			return answer
		}
	}
	own := s.serving.begin(ctx, f.Opaque, until)
	return func(context.Context) *Frame {
		answer := serveAlive(&own.Context, row, s.srv, s.at, f)
		s.serving.end(own)
		s.link.frames.put(f)
		return answer
	}
}

// pull serves a pull, which may be held for long.
func (s *session[S]) pull(row row[S], f *Frame) {
	_ = s.link.awaitRoom(s.link.ctx) // nothing is made ready for a client that does not read
	if s.only(row) {
		s.link.frames.put(f)
		return
	}
	var held func()
	if size := int64(f.size()); size > smallFrame {
		if !s.l.heldBytes.TryAcquire(size) {
			refuse(s.link, f, protocol.SystemBusy, "[OVERLOAD] the server holds %d bytes of large pulls", s.l.limits.heldBytes)
			return
		}
		held = func() { s.l.heldBytes.Release(size) }
	}
	p := s.pulls.try()
	if p != placeFull && p != placeBusy {
		// Nothing bounds how many pulls look for messages before they are held. So
		// each does before the next is read, and of connections that have asked for
		// more already only some go on at a time: requests of others would queue
		// behind thousands.
		if s.link.in.Buffered() > 0 {
			s.l.turns <- struct{}{} // whoever has one waits for nothing
			defer func() { <-s.l.turns }()
		}
		ctx, made := s.reserving()
		s.pulls.run(task{place: p, after: s.lane.last, held: held, made: made, serve: s.serve(ctx, row, f)})
		runtime.Gosched()
		return
	}
	if held != nil {
		held()
	}
	if p == placeFull {
		refuse(s.link, f, protocol.SystemBusy, "[OVERLOAD] the connection holds %d pulls", s.l.limits.connHeld)
	} else {
		refuse(s.link, f, protocol.SystemBusy, "[OVERLOAD] the server holds %d pulls", s.l.limits.held)
	}
}

// drain ends the session once every request that was read, but for pulls, has been
// answered and the answers have left, or ctx ends.
func (s *session[S]) drain(ctx context.Context) {
	if !s.link.heard.Load() {
		s.link.end(nil)
	}
	taken := 0
	for more := true; more && taken < cap(s.calls.places); {
		select {
		case s.calls.places <- struct{}{}: // a request has its place until its answer waits to be written
			taken++
		case <-ctx.Done():
			more = false
		case <-s.link.ctx.Done():
			more = false
		}
	}
	s.link.finish(drainLimit)
	for range taken {
		<-s.calls.places
	}
	<-s.link.ctx.Done()
}

// end ends the session: the link has ended. What came oneway before is served
// first, so that a client that says something and leaves is heard.
func (s *session[S]) end() {
	s.lane.close()
	s.lane.wait()
	if s.connected {
		_ = s.srv.Close() // The session is over: nobody is left who could be told.
	}
	s.calls.wait()
	s.pulls.wait()
	s.l.mu.Lock()
	delete(s.l.sessions, s)
	if s.evicted {
		s.l.evicted--
	}
	s.l.mu.Unlock()
}

// peer is a server's way back to the client of one session.
type peer struct {
	link     *link
	remote   string
	ours     bool // it knows fields of our own; set before the session begins
	closing  *atomic.Bool
	language atomic.Int32 // of the client's last request

	asks, reading chan struct{} // the listener's
}

var _ protocol.Peer = (*peer)(nil)

// NotifyConsumerIDsChanged does not block: a notice that cannot be written soon
// is lost, as the contract says.
func (p *peer) NotifyConsumerIDsChanged(q *protocol.NotifyConsumerIDsChangedRequest) {
	if !p.closing.Load() {
		_ = p.link.trySend(notifyConsumerIDsChanged().request(q))
	}
}

// ResetConsumerOffset does not block, either.
func (p *peer) ResetConsumerOffset(q *protocol.ResetConsumerOffsetRequest) {
	if p.closing.Load() {
		return
	}
	f := resetConsumerOffset().request(q)
	if Language(p.language.Load()) == LanguageCPP {
		f = listedReset(q)
	}
	_ = p.link.trySend(f)
}

func (p *peer) GetConsumerStatus(ctx context.Context, q *protocol.PeerConsumerStatusRequest) (*protocol.PeerConsumerStatusResponse, error) {
	return askPeer(p, ctx, peerGetConsumerStatus(), q)
}

func (p *peer) ConsumeMessageDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return askPeer(p, ctx, peerConsumeMessageDirectly(), q)
}

func (p *peer) GetConsumerRunningInfo(ctx context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return askPeer(p, ctx, peerGetConsumerRunningInfo(), q)
}

// askPeer carries a request to the client and its answer back. A client that is
// not there any more is an *Error, as RocketMQ's brokers answer.
func askPeer[Q, R any](p *peer, ctx context.Context, cmd *command[protocol.Peer, Q, R], q *Q) (*R, error) {
	select {
	case p.asks <- struct{}{}:
		defer func() { <-p.asks }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f := cmd.request(q)
	if at, ok := ctx.Deadline(); ok && p.ours {
		f.putLeft(time.Until(at))
	}
	answer, err := p.link.ask(ctx, f)
	if err == nil {
		var got *Frame
		if got, err = await(ctx, p.link, answer); err == nil {
			if len(got.Body) > smallFrame {
				p.reading <- struct{}{} // whoever has a place is at work and waits for nothing
				defer func() { <-p.reading }()
			}
			r, err := cmd.read(got)
			var e *protocol.Error
			if err != nil && !errors.As(err, &e) {
				return nil, protocol.Errorf(protocol.SystemError, "client %s: answer not understood: %v", p.remote, err)
			}
			return r, err
		}
		p.link.forget(f.Opaque)
		if p.ours && err != errLinkEnded && !errors.Is(err, context.DeadlineExceeded) {
			p.link.sayCancelled(f.Opaque)
		}
	}
	if err == errLinkEnded {
		return nil, protocol.Errorf(protocol.SystemError, "client %s is not online", p.remote)
	}
	return nil, err
}
