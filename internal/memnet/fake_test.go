package memnet

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// fakeBroker answers sends with what send does and remembers its sessions.
// Methods that no test calls are nil.
type fakeBroker struct {
	send func(ctx context.Context, s protocol.Session, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error)

	mu       sync.Mutex // guards what follows
	sessions []protocol.Session
	closed   map[int]int // session -> how often it was closed
	served   []string    // bodies of the sends that reached the handler
}

type fakeBrokerConn struct {
	protocol.BrokerConn
	b  *fakeBroker
	id int
}

func (b *fakeBroker) Connect(s protocol.Session) protocol.BrokerConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions = append(b.sessions, s)
	return &fakeBrokerConn{b: b, id: len(b.sessions) - 1}
}

func (c *fakeBrokerConn) SendMessage(ctx context.Context, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	c.b.mu.Lock()
	c.b.served = append(c.b.served, string(r.Body))
	s, send := c.b.sessions[c.id], c.b.send
	c.b.mu.Unlock()
	if send == nil {
		return &protocol.SendMessageResponse{MsgID: string(r.Body)}, nil
	}
	return send(ctx, s, r)
}

func (c *fakeBrokerConn) Close() error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.b.closed == nil {
		c.b.closed = make(map[int]int)
	}
	c.b.closed[c.id]++
	return nil
}

func (b *fakeBroker) handled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.served...)
}

func (b *fakeBroker) session(i int) protocol.Session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[i]
}

// closes tells how often each session was closed, by its number.
func (b *fakeBroker) closes() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := make([]int, len(b.sessions))
	for id, n := range b.closed {
		counts[id] = n
	}
	return counts
}

// hold is a send that waits until its ctx ends, as a held request does.
func hold(ctx context.Context, _ protocol.Session, _ *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// fakePeer remembers the groups it was told of.
type fakePeer struct {
	mu     sync.Mutex // guards groups
	groups []string
}

func (p *fakePeer) NotifyConsumerIDsChanged(r *protocol.NotifyConsumerIDsChangedRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups = append(p.groups, r.Group)
}

func (p *fakePeer) GetConsumerRunningInfo(_ context.Context, r *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	p.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "asked " + r.Group})
	return &protocol.GetConsumerRunningInfoResponse{Concurrency: 3}, nil
}

func (p *fakePeer) ResetConsumerOffset(r *protocol.ResetConsumerOffsetRequest) {
	p.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "reset " + r.Group})
}

func (p *fakePeer) GetConsumerStatus(_ context.Context, r *protocol.PeerConsumerStatusRequest) (*protocol.PeerConsumerStatusResponse, error) {
	p.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "status " + r.Group})
	return &protocol.PeerConsumerStatusResponse{}, nil
}

func (p *fakePeer) ConsumeMessageDirectly(_ context.Context, r *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	p.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "consumes " + r.Group})
	return &protocol.ConsumeMessageDirectlyResponse{Remark: "done"}, nil
}

func (p *fakePeer) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.groups...)
}

// fakeNameServer answers route lookups with its own name.
type fakeNameServer struct{ name string }

type fakeNameServerConn struct {
	protocol.NameServerConn
	s *fakeNameServer
}

func (s *fakeNameServer) Connect(protocol.Session) protocol.NameServerConn {
	return &fakeNameServerConn{s: s}
}

func (c *fakeNameServerConn) Close() error { return nil }
func (c *fakeNameServerConn) GetRoute(_ context.Context, r *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return &protocol.GetRouteResponse{Route: protocol.TopicRoute{OrderConf: c.s.name + "/" + r.Topic}}, nil
}

// world is a broker "broker-a/0" and a client "c" with a session.
type world struct {
	*Network
	broker   *fakeBroker
	listener protocol.Listener
	conn     protocol.BrokerConn
	peer     *fakePeer
}

func newWorld(t *testing.T) *world {
	w := &world{Network: New(), broker: &fakeBroker{}, peer: &fakePeer{}}
	w.listen(t)
	var err error
	w.conn, err = w.dial(t.Context())
	require.NoError(t, err)
	return w
}

func (w *world) listen(t *testing.T) {
	l, err := w.ListenBroker(context.Background(), protocol.Listen{Node: "broker-a/0"}, w.broker)
	require.NoError(t, err)
	w.listener = l
	t.Cleanup(func() { require.NoError(t, l.Close()) })
}

func (w *world) dial(ctx context.Context) (protocol.BrokerConn, error) {
	return w.DialBroker(ctx, protocol.Dial{Node: "c", Addr: w.listener.Addr(), Peer: w.peer})
}

func send(ctx context.Context, c protocol.BrokerConn, body string) (*protocol.SendMessageResponse, error) {
	return c.SendMessage(ctx, &protocol.SendMessageRequest{Body: []byte(body)})
}
