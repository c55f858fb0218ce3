package remoting

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOverLoopback(t *testing.T) {
	b := &fakeBroker{recordedBroker: recordedBroker{&recorder{}}, maximum: func(_ context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
		return &protocol.GetMaxOffsetResponse{Offset: int64(q.QueueID)}, nil
	}}
	tr := NewTransport("localhost", TCP{})
	lis, err := tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	addr := lis.Addr()
	assert.Contains(t, addr, "127.0.0.1:", "an IP literal")
	conn, err := tr.DialBroker(t.Context(), protocol.Dial{Addr: addr})
	require.NoError(t, err)
	for i := range 100 {
		r, err := conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: i})
		require.NoError(t, err)
		require.EqualValues(t, i, r.Offset)
	}
	assert.Equal(t, "127.0.0.1", b.session.Remote.Addr().String())
	_, err = tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-b/0", Addr: addr}, b)
	assert.ErrorContains(t, err, addr)
	require.NoError(t, lis.Close())

	_, err = tr.DialBroker(t.Context(), protocol.Dial{Addr: addr})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	lis, err = tr.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	assert.Equal(t, addr, lis.Addr(), "a node keeps its address")
	require.NoError(t, errors.Join(conn.Close(), lis.Close()))
}

func TestAddressesToListenOn(t *testing.T) {
	b := &fakeBroker{}
	tr := NewTransport("127.0.0.1", pipenet.New())
	for _, l := range []protocol.Listen{{Addr: "0.0.0.0:0"}, {Addr: "x:1"}, {Addr: "[::]:1"}, {Advertise: "host:1"}} {
		_, err := tr.ListenBroker(t.Context(), l, b)
		assert.ErrorIs(t, err, protocol.ErrInvalidConfig, "%v", l)
	}
	_, err := NewTransport("", pipenet.New()).ListenBroker(t.Context(), protocol.Listen{}, b)
	assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
	_, err = NewTransport("0.0.0.0", pipenet.New()).ListenBroker(t.Context(), protocol.Listen{}, b)
	assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tr.ListenBroker(ended, protocol.Listen{}, b)
	assert.ErrorIs(t, err, context.Canceled)

	lis, err := tr.ListenBroker(t.Context(), protocol.Listen{Addr: "0.0.0.0:7", Advertise: "10.0.0.1:0"}, b)
	require.NoError(t, err)
	assert.Equal(t, "10.0.0.1:7", lis.Addr())
	require.NoError(t, lis.Close())
}

func TestNodesOfOneNameMayListenAtTheSameTime(t *testing.T) {
	tr := NewTransport("127.0.0.1", pipenet.New())
	node := protocol.Listen{Node: "broker-a/0"}
	first, err := tr.ListenBroker(t.Context(), node, &fakeBroker{})
	require.NoError(t, err)
	require.NoError(t, first.Close())
	first, err = tr.ListenBroker(t.Context(), protocol.Listen{Node: node.Node, Addr: first.Addr()}, &fakeBroker{})
	require.NoError(t, err, "started again where it was")
	second, err := tr.ListenBroker(t.Context(), node, &fakeBroker{})
	require.NoError(t, err, "of another cluster")
	assert.NotEqual(t, first.Addr(), second.Addr())
	require.NoError(t, errors.Join(first.Close(), second.Close()))
}

func TestClaims(t *testing.T) {
	tr := NewTransport("127.0.0.1", pipenet.New())
	release, err := tr.Claim("G", "id")
	require.NoError(t, err)
	_, err = tr.Claim("G", "id")
	require.ErrorIs(t, err, protocol.ErrDuplicateClient)
	_, err = tr.Claim("H", "id")
	require.NoError(t, err)
	release()
	again, err := tr.Claim("G", "id")
	require.NoError(t, err)
	release()
	_, err = tr.Claim("G", "id")
	require.ErrorIs(t, err, protocol.ErrDuplicateClient, "an old release says nothing about a later claim")
	again()
}

func BenchmarkCallOverLoopback(b *testing.B) {
	fake := &fakeBroker{recordedBroker: recordedBroker{&recorder{}}, send: func(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
		return &protocol.SendMessageResponse{MsgID: "C0A8000900002A9F0000000000000400", QueueID: 1, QueueOffset: 2, TransactionID: "C0A8000900002A9F0000000000000400"}, nil
	}}
	tr := NewTransport("127.0.0.1", TCP{})
	lis, err := tr.ListenBroker(b.Context(), protocol.Listen{Node: "broker-a/0"}, fake)
	require.NoError(b, err)
	conn, err := tr.DialBroker(b.Context(), protocol.Dial{Addr: lis.Addr()})
	require.NoError(b, err)
	q := &protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", DefaultTopic: "TBW102", DefaultTopicQueues: 4, BornTime: time.Now(), Properties: "UNIQ_KEY\x01C0A8000900002A9F0000000000000400\x02", Body: make([]byte, 128)}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := conn.SendMessage(b.Context(), q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("64", func(b *testing.B) {
		b.SetParallelism(64)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := conn.SendMessage(b.Context(), q); err != nil {
					b.Error(err)
				}
			}
		})
	})
	require.NoError(b, errors.Join(conn.Close(), lis.Close()))
}

func TestTheHostOfATransportIsAHostAlone(t *testing.T) {
	for _, host := range []string{"127.0.0.1:80", "[::1]", "[::1]:80", "localhost:0"} {
		_, err := NewTransport(host, TCP{}).ListenBroker(t.Context(), protocol.Listen{}, &fakeBroker{})
		assert.ErrorIs(t, err, protocol.ErrInvalidConfig, host)
		assert.ErrorContains(t, err, "without a port or brackets", host)
	}
}
