package remoting

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/require"
)

// fakeBroker is a broker whose methods are functions of the test; those that
// are nil note their name.
type fakeBroker struct {
	recordedBroker
	connecting sync.Mutex // guards session against another one
	session    protocol.Session
	send       func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error)
	pull       func(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error)
	commit     func(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error)
	maximum    func(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error)
	offsets    func() *protocol.GetAllConsumerOffsetResponse
	beat       func(context.Context, *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error)
	close      func()
}

func (b *fakeBroker) SendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	if b.send == nil {
		return b.recordedBroker.SendMessage(ctx, q)
	}
	return b.send(ctx, q)
}

func (b *fakeBroker) GetAllConsumerOffset(ctx context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	if b.offsets == nil {
		return b.recordedBroker.GetAllConsumerOffset(ctx, q)
	}
	return b.offsets(), nil
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

func (b *fakeBroker) Heartbeat(ctx context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	if b.beat == nil {
		return b.recordedBroker.Heartbeat(ctx, q)
	}
	return b.beat(ctx, q)
}

func (b *fakeBroker) Close() error {
	if b.close != nil {
		b.close()
	}
	return nil
}

// Connect lets the one fake serve every session.
func (b *fakeBroker) Connect(s protocol.Session) protocol.BrokerConn {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	b.session = s
	return b
}

// site of a test: a broker behind pipes and a client that is connected to it.
type pair struct {
	t      *Transport
	net    *pipenet.Network
	broker *fakeBroker
	lis    protocol.Listener
	conn   protocol.BrokerConn
}

func newPair(t *testing.T, b *fakeBroker, p protocol.Peer) *pair {
	t.Helper()
	if b.r == nil {
		b.r = &recorder{}
	}
	n := pipenet.New()
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
