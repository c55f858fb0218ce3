package mqtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// stub is a broker and a name server whose answers a case decides.
type stub struct {
	// serve answers a request to the named method with a pointer to its response,
	// nil for a zero one.
	serve func(ctx context.Context, s *stubSession, method string, q any) (any, error)

	pinged chan *stubSession // the session of each GetMinOffset; wide enough for any case
}

func newStub() *stub {
	return &stub{
		serve:  func(context.Context, *stubSession, string, any) (any, error) { return nil, nil },
		pinged: make(chan *stubSession, 1024),
	}
}

// stubSession is a session with a stub, as it sees it.
type stubSession struct {
	protocol.Session
	stub *stub

	closed chan struct{} // closed by the first close

	mu     sync.Mutex // guards what follows
	closes int
	served []string // methods called
}

func (s *stub) open(p protocol.Session) *stubSession {
	return &stubSession{Session: p, stub: s, closed: make(chan struct{})}
}

// stubBroker is a stub as a broker.
type stubBroker struct{ *stub }

// Connect opens a session.
func (b stubBroker) Connect(p protocol.Session) protocol.BrokerConn {
	return &stubBrokerConn{session: b.open(p)}
}

// stubNameServer is a stub as a name server.
type stubNameServer struct{ *stub }

// Connect opens a session.
func (n stubNameServer) Connect(p protocol.Session) protocol.NameServerConn {
	return &stubNameServerConn{session: n.open(p)}
}

// close ends the session.
func (s *stubSession) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closes++; s.closes == 1 {
		close(s.closed)
	}
	return nil
}

// timesClosed tells how often the session was closed.
func (s *stubSession) timesClosed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closes
}

// methods lists the methods called, in their order.
func (s *stubSession) methods() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.served...)
}

// stubbed serves one request.
func stubbed[R, Q any](s *stubSession, ctx context.Context, method string, q *Q) (*R, error) {
	s.mu.Lock()
	s.served = append(s.served, method)
	s.mu.Unlock()
	if method == "GetMinOffset" {
		s.stub.pinged <- s
	}
	r, err := s.stub.serve(ctx, s, method, q)
	resp, _ := r.(*R)
	if resp == nil && err == nil {
		resp = new(R)
	}
	return resp, err
}

// stubWorld is a stub broker, "broker-a/0", and a client, "client", with a session.
type stubWorld struct {
	*stub
	*transportTest
	peer     *stubPeer
	listener protocol.Listener
	conn     protocol.BrokerConn
}

func (t *transportTest) stubWorld() *stubWorld {
	t.Helper()
	w := &stubWorld{stub: newStub(), transportTest: t, peer: &stubPeer{notices: make(chan string, 1024)}}
	w.listener = w.listen("broker-a/0", w.stub)
	w.conn = w.dial("client")
	return w
}

// listen serves s as a broker until the case ends.
func (t *transportTest) listen(node string, s *stub) protocol.Listener {
	t.Helper()
	l, err := t.ListenBroker(t.Context(), protocol.Listen{Node: node}, stubBroker{s})
	t.ok(err, "listen")
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close of the listener: %v", err)
		}
	})
	return l
}

// dial opens a session, which ends with the case.
func (w *stubWorld) dial(node string) protocol.BrokerConn {
	w.Helper()
	conn, err := w.DialBroker(w.Context(), protocol.Dial{Node: node, Addr: w.listener.Addr(), Peer: w.peer})
	w.ok(err, "dial")
	w.Cleanup(func() {
		if err := conn.Close(); err != nil {
			w.Errorf("close of the connection: %v", err)
		}
	})
	return conn
}

// ping makes a request that is answered at once, and returns its session.
func (w *stubWorld) ping(conn protocol.BrokerConn) *stubSession {
	w.Helper()
	_, err := conn.GetMinOffset(w.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
	w.ok(err, "a request")
	return await(w.transportTest, w.pinged, "the request")
}

// hold makes the stub hold requests to some methods until their ctx ends. begun tells
// of each that is held, ended of the error that its ctx ended with.
func (w *stubWorld) hold(methods ...string) (begun chan *stubSession, ended chan error) {
	begun, ended = make(chan *stubSession, 1024), make(chan error, 1024)
	w.serve = func(ctx context.Context, s *stubSession, method string, _ any) (any, error) {
		if !slices.Contains(methods, method) {
			return nil, nil
		}
		begun <- s
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	return begun, ended
}

// pull makes a request that the stub may hold.
func pull(ctx context.Context, conn protocol.BrokerConn) (*protocol.PullMessageResponse, error) {
	return conn.PullMessage(ctx, &protocol.PullMessageRequest{Group: "G", Topic: "T", Suspend: time.Minute})
}

// stubPeer is a client that servers call.
type stubPeer struct {
	protocol.Peer // nil: methods that no case calls
	notices       chan string
	running       func(context.Context) (*protocol.GetConsumerRunningInfoResponse, error)
}

// NotifyConsumerIDsChanged notes the group.
func (p *stubPeer) NotifyConsumerIDsChanged(q *protocol.NotifyConsumerIDsChangedRequest) {
	p.notices <- q.Group
}

// GetConsumerRunningInfo answers with what running says.
func (p *stubPeer) GetConsumerRunningInfo(ctx context.Context, _ *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	if p.running == nil {
		return nil, &pocketmq.Error{Code: protocol.SystemError, Remark: "nothing runs"}
	}
	return p.running(ctx)
}
