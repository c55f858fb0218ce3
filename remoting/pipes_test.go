package remoting

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/require"
)

// pipes is a Network inside one bubble: connections are net.Pipe.
type pipes struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*pipeListener
	port      uint16
}

func newPipes() *pipes { return &pipes{listeners: make(map[string]*pipeListener), port: 40000} }

type pipeListener struct {
	net    *pipes
	addr   netip.AddrPort
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

type pipeConn struct {
	net.Conn
	remote netip.AddrPort
}

func (c pipeConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

func (n *pipes) Listen(_ context.Context, addr string) (net.Listener, error) {
	at := netip.MustParseAddrPort(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		n.port++
		at = netip.AddrPortFrom(at.Addr(), n.port)
	}
	if n.listeners[at.String()] != nil {
		return nil, syscall.EADDRINUSE
	}
	l := &pipeListener{net: n, addr: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[at.String()] = l
	return l, nil
}

func (n *pipes) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.port++
	from := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.9"), n.port)
	n.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- pipeConn{theirs, from}:
		return pipeConn{ours, l.addr}, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

func (l *pipeListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.listeners, l.addr.String())
		err = nil
	})
	return err
}

// fakeBroker is a broker whose methods are functions of the test; those that
// are nil note their name.
type fakeBroker struct {
	recordedBroker
	session protocol.Session
	send    func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error)
	pull    func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error)
	commit  func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error)
	maximum func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error)
	close   func()
}

func (b *fakeBroker) SendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	if b.send == nil {
		return b.recordedBroker.SendMessage(ctx, q)
	}
	return b.send(ctx, q)
}

func (b *fakeBroker) PullMessage(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	if b.pull == nil {
		return b.recordedBroker.PullMessage(ctx, q)
	}
	return b.pull(ctx, q)
}

func (b *fakeBroker) UpdateConsumerOffset(ctx context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	if b.commit == nil {
		return b.recordedBroker.UpdateConsumerOffset(ctx, q)
	}
	return b.commit(ctx, q)
}

func (b *fakeBroker) GetMaxOffset(ctx context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	if b.maximum == nil {
		return b.recordedBroker.GetMaxOffset(ctx, q)
	}
	return b.maximum(ctx, q)
}

func (b *fakeBroker) Close() error {
	if b.close != nil {
		b.close()
	}
	return nil
}

// Connect lets the one fake serve every session.
func (b *fakeBroker) Connect(s protocol.Session) protocol.BrokerConn {
	b.session = s
	return b
}

// site of a test: a broker behind pipes and a client that is connected to it.
type pair struct {
	t      *Transport
	net    *pipes
	broker *fakeBroker
	lis    protocol.Listener
	conn   protocol.BrokerConn
}

func newPair(t *testing.T, b *fakeBroker, p protocol.Peer) *pair {
	t.Helper()
	if b.r == nil {
		b.r = &recorder{}
	}
	n := newPipes()
	tr := NewTransport("127.0.0.1", n)
	lis, err := tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	conn, err := tr.DialBroker(t.Context(), protocol.Dial{Node: "client", Addr: lis.Addr(), Peer: p})
	require.NoError(t, err)
	return &pair{tr, n, b, lis, conn}
}

func (p *pair) close(t *testing.T) {
	require.NoError(t, errors.Join(p.conn.Close(), p.lis.Close()))
}

// raw connects without a client.
func (p *pair) raw(t *testing.T) net.Conn {
	t.Helper()
	conn, err := p.net.Dial(t.Context(), p.lis.Addr())
	require.NoError(t, err)
	return conn
}
