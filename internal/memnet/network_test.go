package memnet

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestRB03_SecondClientOfOneIDIsRefused(t *testing.T) {
	n := New()
	release, err := n.Claim("orders", "10.0.0.1@blue")
	require.NoError(t, err)
	_, err = n.Claim("orders", "10.0.0.1@blue")
	assert.ErrorIs(t, err, protocol.ErrDuplicateClient)
	assert.EqualError(t, err, `duplicate client: group "orders" has a running client with id "10.0.0.1@blue" on this transport; set a different InstanceName`)
	_, err = n.Claim("other", "10.0.0.1@blue")
	assert.NoError(t, err)
	_, err = n.Claim("orders", "10.0.0.1@green")
	assert.NoError(t, err)

	release()
	_, err = n.Claim("orders", "10.0.0.1@blue")
	require.NoError(t, err)
	release()
	_, err = n.Claim("orders", "10.0.0.1@blue")
	assert.ErrorIs(t, err, protocol.ErrDuplicateClient, "an old release lets go of nothing")
}

func TestNameServerIsServed(t *testing.T) {
	n, ctx := New(), context.Background()
	l, err := n.ListenNameServer(ctx, protocol.Listen{Node: "ns-0"}, &fakeNameServer{"ns-0"})
	require.NoError(t, err)
	c, err := n.DialNameServer(ctx, protocol.Dial{Node: "c", Addr: l.Addr()})
	require.NoError(t, err)
	r, err := c.GetRoute(ctx, &protocol.GetRouteRequest{Topic: "orders"})
	require.NoError(t, err)
	assert.Equal(t, "ns-0/orders", r.Route.OrderConf)
	require.NoError(t, c.Close())
	_, err = c.GetRoute(ctx, &protocol.GetRouteRequest{Topic: "orders"})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
}

func TestDialRefused(t *testing.T) {
	n, ctx := New(), context.Background()
	ns, err := n.ListenNameServer(ctx, protocol.Listen{Node: "ns-0"}, &fakeNameServer{})
	require.NoError(t, err)
	a, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-a/0"}, &fakeBroker{})
	require.NoError(t, err)

	_, err = n.DialBroker(ctx, protocol.Dial{Node: "c", Addr: ns.Addr()})
	assert.EqualError(t, err, "ns-0 (127.1.0.1:9876): a name server listens there")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	_, err = n.DialNameServer(ctx, protocol.Dial{Node: "c", Addr: a.Addr()})
	assert.EqualError(t, err, "broker-a/0 (127.1.0.2:10911): a broker listens there")
	_, err = n.DialBroker(ctx, protocol.Dial{Node: "c", Addr: "10.0.0.9:10911"})
	assert.EqualError(t, err, "10.0.0.9:10911: connection refused")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	require.NoError(t, a.Close())
	_, err = n.DialBroker(ctx, protocol.Dial{Node: "c", Addr: a.Addr()})
	assert.EqualError(t, err, "broker-a/0 (127.1.0.2:10911): connection refused")
	_, err = n.DialBroker(ctx, protocol.Dial{Node: "c", Addr: "broker-a"})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorIs(t, err, protocol.ErrInvalidConfig)
	assert.ErrorContains(t, err, `address to dial "broker-a": want an IP literal with a port`)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = n.DialNameServer(ended, protocol.Dial{Node: "c", Addr: ns.Addr()})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	assert.ErrorIs(t, err, context.Canceled)
	require.NoError(t, ns.Close())
	assert.Empty(t, n.sessions)
}
