package pocketmq

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// gate stands wherever something enters or leaves a broker, a name server or a
// controller: requests and their answers, its own calls, its streams, its loops, and, as a
// store.Disk, what it writes and syncs. Shut, it makes a stopped process of it. Nothing
// waits at it under a mutex, so that all that waits is durably blocked in a synctest
// bubble.
type gate struct {
	disk *store.Disk // nil of a name server, and of a broker on its own, which nobody can pause

	state atomic.Pointer[pausing] // nil while it is open

	mu sync.Mutex // serialises changes of state
}

// pausing is one time during which a gate is shut. Immutable.
type pausing struct {
	over  chan struct{} // closed by open
	ended chan struct{} // closed by end
}

func (g *gate) isShut() bool { return g.state.Load() != nil }

// shut begins a pause, unless there is one.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isShut() {
		g.state.Store(&pausing{make(chan struct{}), make(chan struct{})})
		if g.disk != nil {
			g.disk.Hold()
		}
	}
}

// open ends a pause: what waits goes on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.state.Load(); p != nil {
		g.state.Store(nil)
		if g.disk != nil {
			g.disk.Release()
		}
		close(p.over)
	}
}

// end is the end of the node: nobody has to be waited for any more. What came
// during a pause is not served, and what was to leave does not.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.disk != nil {
		g.disk.Abandon()
	}
	if p := g.state.Load(); p != nil {
		select {
		case <-p.ended:
		default:
			close(p.ended)
		}
	}
}

// pass waits until the gate is open, or the node ends: for what it does by itself.
func (g *gate) pass(ctx context.Context) error {
	for p := g.state.Load(); p != nil; p = g.state.Load() {
		select {
		case <-p.over:
		case <-p.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hold waits until the gate is open: for a request, and for its answer. The end of
// the node ends the request's ctx.
func (g *gate) hold(ctx context.Context) error {
	for p := g.state.Load(); p != nil; p = g.state.Load() {
		select {
		case <-p.over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// holdStream waits until the gate is open, for a stream or its listener. It is false
// when that was closed meanwhile, or the node ends.
func (g *gate) holdStream(closed <-chan struct{}) bool {
	for p := g.state.Load(); p != nil; p = g.state.Load() {
		select {
		case <-p.over:
		case <-p.ended:
			return false
		case <-closed:
			return false
		}
	}
	return true
}

// pause stops the broker as a signal stops a process; resume lets it go on.
func (b *Broker) pause() {
	b.gate.shut()
	b.log.Info("broker paused")
}

func (b *Broker) resume() {
	b.gate.open()
	b.log.Info("broker goes on")
}

// oneways are what a session has said during a pause and nobody waits for, in order.
type oneways struct {
	mu   sync.Mutex    // guards last
	last chan struct{} // closed when the last one is done; nil before the first
}

// pending tells whether something is still to be done.
func (o *oneways) pending() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		return false
	}
	select {
	case <-o.last:
		return false
	default:
		return true
	}
}

// postpone has f run after the pause, or when the broker ends, with the error of
// which ctx then ends, and after all that was postponed before.
func (s *brokerSession) postpone(f func(context.Context)) {
	done := make(chan struct{})
	s.oneways.mu.Lock()
	before := s.oneways.last
	s.oneways.last = done
	s.oneways.mu.Unlock()
	s.later(func(ctx context.Context) {
		defer close(done)
		if before != nil {
			<-before // it ends with the pause, or ctx
		}
		_ = s.gate.hold(ctx) // f looks at ctx
		f(ctx)
	})
}

// serveBroker is the one path of every request to a broker.
func serveBroker[Q, R any](ctx context.Context, s *brokerSession, code Code, topic, group string, q *Q, serve func(*brokerSession, context.Context, *Q) (*R, error)) (*R, error) {
	if s.gate.isShut() || s.paused.Load() && s.oneways.pending() {
		s.paused.Store(true)
		if isOneway(q) {
			own := protocol.Detached(q)
			s.postpone(func(ctx context.Context) {
				if ctx.Err() == nil {
					_, _ = serveOpen(ctx, s, code, topic, group, own, serve) // nobody waits for an answer
				}
			})
			return nil, nil
		}
		if err := s.gate.hold(ctx); err != nil {
			return nil, err
		}
	}
	was := s.standing.Load()
	resp, err := serveOpen(ctx, s, code, topic, group, q, serve)
	if !s.gate.isShut() {
		return resp, err
	}
	if held := s.gate.hold(ctx); held != nil {
		return nil, held
	}
	if err == nil { // its lease may have ended meanwhile
		if err = s.mayServe(code, was); err != nil {
			return nil, answer(ctx, s.cfg.Name, err)
		}
	}
	return resp, err
}

// pausable is the transport of a broker or a controller that can be paused: its calls and
// streams stop with it.
type pausable struct {
	Transport
	gate *gate
}

// DialNameServer implements Transport.
func (t pausable) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	if err := t.gate.dial(ctx, d.Addr); err != nil {
		return nil, err
	}
	c, err := t.Transport.DialNameServer(ctx, d)
	if err != nil {
		return nil, err
	}
	return pausedNames{c, t.gate}, nil
}

// DialBroker implements Transport.
func (t pausable) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	if err := t.gate.dial(ctx, d.Addr); err != nil {
		return nil, err
	}
	c, err := t.Transport.DialBroker(ctx, d)
	if err != nil {
		return nil, err
	}
	return pausedBroker{c, t.gate}, nil
}

// DialStream implements Transport.
func (t pausable) DialStream(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	if err := t.gate.dial(ctx, d.Addr); err != nil {
		return nil, err
	}
	c, err := t.Transport.DialStream(ctx, d)
	if err != nil {
		return nil, err
	}
	return &pausedStream{Conn: c, gate: t.gate, closed: make(chan struct{})}, nil
}

// ListenStream implements Transport.
func (t pausable) ListenStream(ctx context.Context, l protocol.Listen) (net.Listener, error) {
	ln, err := t.Transport.ListenStream(ctx, l)
	if err != nil {
		return nil, err
	}
	return &pausedListener{Listener: ln, gate: t.gate, closed: make(chan struct{})}, nil
}

func (g *gate) dial(ctx context.Context, addr string) error {
	if err := g.pass(ctx); err != nil {
		return protocol.Tagged(fmt.Sprintf("%s: not dialled, the broker is paused: %v", addr, err), ErrUnreachable, err)
	}
	return nil
}

// outward carries a call of the broker: it leaves, and its answer is seen, while the
// gate is open.
func outward[Q, R any](g *gate, ctx context.Context, q *Q, call func(context.Context, *Q) (*R, error)) (*R, error) {
	if err := g.pass(ctx); err != nil {
		return nil, protocol.Tagged(fmt.Sprintf("request not sent, the broker is paused: %v", err), ErrUnreachable, err)
	}
	r, err := call(ctx, q)
	if held := g.pass(ctx); held != nil {
		return nil, protocol.Tagged(fmt.Sprintf("no answer seen, the broker is paused: %v", held), ErrUnknownOutcome, held)
	}
	return r, err
}

// pausedNames are the calls of a broker to a name server.
type pausedNames struct {
	protocol.NameServerConn
	gate *gate
}

// RegisterBroker implements NameServerConn.
func (c pausedNames) RegisterBroker(ctx context.Context, q *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return outward(c.gate, ctx, q, c.NameServerConn.RegisterBroker)
}

// UnregisterBroker implements NameServerConn.
func (c pausedNames) UnregisterBroker(ctx context.Context, q *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return outward(c.gate, ctx, q, c.NameServerConn.UnregisterBroker)
}

// BrokerHeartbeat implements NameServerConn.
func (c pausedNames) BrokerHeartbeat(ctx context.Context, q *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return outward(c.gate, ctx, q, c.NameServerConn.BrokerHeartbeat)
}

// QueryDataVersion implements NameServerConn.
func (c pausedNames) QueryDataVersion(ctx context.Context, q *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return outward(c.gate, ctx, q, c.NameServerConn.QueryDataVersion)
}

// GetBrokerMemberGroup implements NameServerConn.
func (c pausedNames) GetBrokerMemberGroup(ctx context.Context, q *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return outward(c.gate, ctx, q, c.NameServerConn.GetBrokerMemberGroup)
}

// pausedBroker are the calls of a slave to its master.
type pausedBroker struct {
	protocol.BrokerConn
	gate *gate
}

// GetAllTopicConfig implements BrokerConn.
func (c pausedBroker) GetAllTopicConfig(ctx context.Context, q *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return outward(c.gate, ctx, q, c.BrokerConn.GetAllTopicConfig)
}

// GetAllGroupConfig implements BrokerConn.
func (c pausedBroker) GetAllGroupConfig(ctx context.Context, q *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return outward(c.gate, ctx, q, c.BrokerConn.GetAllGroupConfig)
}

// GetAllConsumerOffset implements BrokerConn.
func (c pausedBroker) GetAllConsumerOffset(ctx context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return outward(c.gate, ctx, q, c.BrokerConn.GetAllConsumerOffset)
}

// GetAllDelayOffset implements BrokerConn.
func (c pausedBroker) GetAllDelayOffset(ctx context.Context, q *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return outward(c.gate, ctx, q, c.BrokerConn.GetAllDelayOffset)
}

// pausedStream is a stream of a broker or a controller: what arrives is not seen while the gate is
// shut, and nothing leaves. Its deadlines run on, and show afterwards.
type pausedStream struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{} // closed by Close
}

// Read implements net.Conn.
func (c *pausedStream) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.gate.isShut() && !c.gate.holdStream(c.closed) {
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *pausedStream) Write(b []byte) (int, error) {
	if c.gate.isShut() && !c.gate.holdStream(c.closed) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *pausedStream) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// pausedListener is a listener for streams of a broker or a controller.
type pausedListener struct {
	net.Listener
	gate   *gate
	once   sync.Once
	closed chan struct{} // closed by Close
}

// Accept implements net.Listener.
func (l *pausedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if l.gate.isShut() && !l.gate.holdStream(l.closed) {
		_ = c.Close() // nobody has used it
		return nil, net.ErrClosed
	}
	return &pausedStream{Conn: c, gate: l.gate, closed: make(chan struct{})}, nil
}

// Close implements net.Listener.
func (l *pausedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
