package remoting

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pocketmq/pocketmq/protocol"
)

// limits bound what strangers can make a server hold. In the worst case, that
// of clients which send as much as they may and read nothing, a server holds
//
//	conns * (piece + readBuffer + 2*maxPending)   bytes of connections,
//	served * piece + large                        bytes of requests,
//	held                                          goroutines of pulls,
//
// and for each connection at most maxBlocked bytes of answers before it is cut
// off.
type limits struct {
	idle       time.Duration
	conns      int   // connections; one more is closed at once
	connServed int   // requests of a connection that are served or whose answers wait to be written; then it is not read, nor is its end noticed
	served     int   // requests that are served, but for pulls; then nobody's are
	connHeld   int   // pulls of a connection; one more is refused as busy
	held       int   // pulls; one more is refused as busy
	large      int64 // bytes of requests that are larger than a piece
}

func defaultLimits() limits {
	return limits{idle: idleLimit, conns: 10_000, connServed: 256, served: 4096, connHeld: 8192, held: 32_768, large: 256 << 20}
}

// serverConn is a server's side of a session: a BrokerConn or a NameServerConn.
type serverConn interface{ Close() error }

// listener serves a broker or a name server on a net.Listener.
type listener[S serverConn] struct {
	addr    string
	at      site
	connect func(protocol.Session) S
	rows    table[S]
	limits  limits
	net     net.Listener

	served chan struct{} // a place for each request that is served
	held   chan struct{} // a place for each pull
	large  *semaphore.Weighted

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing atomic.Bool // set before the first session ends: notices are dropped
	loop    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	closed   bool
	sessions map[*session[S]]struct{}
}

var _ protocol.Listener = (*listener[protocol.BrokerConn])(nil)

func serve[S serverConn](ln net.Listener, addr string, at site, rows []row[S], connect func(protocol.Session) S, lim limits) *listener[S] {
	l := &listener[S]{
		addr: addr, at: at, connect: connect, rows: tableOf(rows), limits: lim, net: ln,
		served: make(chan struct{}, lim.served), held: make(chan struct{}, lim.held), large: semaphore.NewWeighted(lim.large),
		sessions: make(map[*session[S]]struct{}),
	}
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
		s.link.end()
	}
	for _, s := range open {
		s.link.wait()
	}
	return err
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
		// Out of file handles, say: later there may be some.
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
	s := &session[S]{l: l, link: newLink(conn, l.limits.idle), lane: newLane()}
	s.calls, s.pulls = newCalls(s.link, l.limits.connServed), newCalls(s.link, l.limits.connHeld)
	l.mu.Lock()
	refused := l.closed || len(l.sessions) >= l.limits.conns
	if !refused {
		l.sessions[s] = struct{}{}
	}
	l.mu.Unlock()
	if refused {
		s.link.end()
		s.lane.close()
		s.lane.wait()
		return
	}
	remote := remoteOf(conn)
	s.peer = &peer{link: s.link, remote: remote.String(), closing: &l.closing}
	s.srv = l.connect(protocol.Session{Remote: remote, Peer: s.peer})
	s.link.start(s.charge, s.request, s.end)
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
	l     *listener[S]
	link  *link
	peer  *peer
	srv   S
	lane  *lane
	calls *calls
	pulls *calls
}

// charge takes the bytes of a large request from what the server has for them.
func (s *session[S]) charge(size int) (release func(), err error) {
	ctx, cancel := context.WithTimeout(s.link.ctx, s.l.limits.idle)
	defer cancel()
	n := min(int64(size), s.l.limits.large)
	if err := s.l.large.Acquire(ctx, n); err != nil {
		return nil, err
	}
	return func() { s.l.large.Release(n) }, nil
}

// request serves a request, or sees to it.
func (s *session[S]) request(f *Frame, release func()) {
	if s.peer.language.Load() != int32(f.Language) {
		s.peer.language.Store(int32(f.Language))
	}
	row := s.l.rows[protocol.Code(f.Code)]
	if row == nil {
		release()
		refuse(s.link, f, protocol.RequestCodeNotSupported, " request type %d not supported", f.Code)
		return
	}
	switch f.Code {
	case int32(protocol.CodePullMessage), codeLitePullMessage:
		release() // a pull is small in memory, whatever came with it
		f.Body = nil
		s.pull(row, f)
		return
	}
	if f.Oneway() {
		if !s.lane.add(s.link.ctx, func() {
			defer release()
			row.serve(s.l.ctx, s.srv, s.l.at, f)
		}) {
			release()
		}
		return
	}
	if !s.calls.add(s.lane.last, func(ctx context.Context) *Frame {
		defer release()
		select {
		case s.l.served <- struct{}{}:
			defer func() { <-s.l.served }()
		case <-ctx.Done():
			return nil
		}
		return row.serve(ctx, s.srv, s.l.at, f)
	}) {
		release()
	}
}

func (s *session[S]) pull(row row[S], f *Frame) {
	select {
	case s.l.held <- struct{}{}:
	default:
		refuse(s.link, f, protocol.SystemBusy, "[OVERLOAD] the server holds %d pulls", s.l.limits.held)
		return
	}
	if !s.pulls.try(s.lane.last, func(ctx context.Context) *Frame {
		defer func() { <-s.l.held }()
		return row.serve(ctx, s.srv, s.l.at, f)
	}) {
		<-s.l.held
		refuse(s.link, f, protocol.SystemBusy, "[OVERLOAD] the connection holds %d pulls", s.l.limits.connHeld)
	}
}

// end ends the session: the link has ended. What came oneway before is served
// first, so that a client that says something and leaves is heard.
func (s *session[S]) end() {
	s.lane.close()
	s.lane.wait()
	_ = s.srv.Close() // The session is over: nobody is left who could be told.
	s.calls.wait()
	s.pulls.wait()
	s.l.mu.Lock()
	delete(s.l.sessions, s)
	s.l.mu.Unlock()
}

// peer is a server's way back to the client of one session.
type peer struct {
	link     *link
	remote   string
	closing  *atomic.Bool
	language atomic.Int32 // of the client's last request
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
	f := cmd.request(q)
	answer, err := p.link.ask(ctx, f)
	if err == nil {
		var got *Frame
		if got, err = await(ctx, p.link, answer); err == nil {
			r, err := cmd.read(got)
			var e *protocol.Error
			if err != nil && !errors.As(err, &e) {
				return nil, protocol.Errorf(protocol.SystemError, "client %s: answer not understood: %v", p.remote, err)
			}
			return r, err
		}
		p.link.forget(f)
	}
	if err == errLinkEnded {
		return nil, protocol.Errorf(protocol.SystemError, "client %s is not online", p.remote)
	}
	return nil, err
}
