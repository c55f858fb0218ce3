package memnet

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestEachNodeKeepsAnAddressOfItsOwn(t *testing.T) {
	n, ctx := New(), context.Background()
	ns, err := n.ListenNameServer(ctx, protocol.Listen{Node: "ns-0"}, &fakeNameServer{})
	require.NoError(t, err)
	a, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-a/0"}, &fakeBroker{})
	require.NoError(t, err)
	b, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-b/0"}, &fakeBroker{})
	require.NoError(t, err)
	assert.Equal(t, []string{"127.1.0.1:9876", "127.1.0.2:10911", "127.1.0.3:10911"}, []string{ns.Addr(), a.Addr(), b.Addr()})

	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	b, err = n.ListenBroker(ctx, protocol.Listen{Node: "broker-b/0"}, &fakeBroker{})
	require.NoError(t, err)
	assert.Equal(t, "127.1.0.3:10911", b.Addr(), "a node that listens again has its old address, whatever the order")

	twin, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-b/0"}, &fakeBroker{})
	require.NoError(t, err)
	assert.Equal(t, "127.1.0.4:10911", twin.Addr(), "a second live node of the same name gets another address")
	require.NoError(t, b.Close())
	b, err = n.ListenBroker(ctx, protocol.Listen{Node: "broker-b/0"}, &fakeBroker{})
	require.NoError(t, err)
	assert.Equal(t, "127.1.0.3:10911", b.Addr())
}

func TestListenAddresses(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		listen protocol.Listen
		addr   string
		err    string
		is     error
	}{
		{"explicit", protocol.Listen{Addr: "127.0.0.1:10911"}, "127.0.0.1:10911", "", nil},
		{"explicit IPv6", protocol.Listen{Addr: "[0:0::1]:10911"}, "[::1]:10911", "", nil},
		{"port 0", protocol.Listen{Addr: "10.0.0.1:0"}, "10.0.0.1:10912", "", nil},
		{"advertised", protocol.Listen{Addr: "0.0.0.0:10911", Advertise: "10.0.0.2:10911"}, "10.0.0.2:10911", "", nil},
		{"advertised, own label", protocol.Listen{Advertise: "10.0.0.2:10911"}, "10.0.0.2:10911", "", nil},
		{"host name", protocol.Listen{Addr: "localhost:10911"}, "", `invalid config: listen address of x "localhost:10911": want an IP literal with a port, such as 127.0.0.1:10911`, protocol.ErrInvalidConfig},
		{"no port", protocol.Listen{Addr: "127.0.0.1"}, "", `invalid config: listen address of x "127.0.0.1": want an IP literal with a port, such as 127.0.0.1:10911`, protocol.ErrInvalidConfig},
		{"bad advertised", protocol.Listen{Advertise: "me"}, "", `invalid config: advertised address of x "me": want an IP literal with a port, such as 127.0.0.1:10911`, protocol.ErrInvalidConfig},
		{"wildcard", protocol.Listen{Addr: "0.0.0.0:10911"}, "", "invalid config: x listens on the wildcard address 0.0.0.0:10911, which clients can't dial; set AdvertiseAddr to an address of this machine", protocol.ErrInvalidConfig},
		{"busy", protocol.Listen{Addr: "10.0.0.1:10911"}, "", "address 10.0.0.1:10911 of x is in use by taken; close that or choose another address", nil},
		{"busy advertised", protocol.Listen{Advertise: "10.0.0.1:10911"}, "", "address 10.0.0.1:10911 of x is in use by taken; close that or choose another address", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := New()
			_, err := n.ListenBroker(ctx, protocol.Listen{Node: "taken", Addr: "10.0.0.1:10911"}, &fakeBroker{})
			require.NoError(t, err)
			c.listen.Node = "x"
			l, err := n.ListenBroker(ctx, c.listen, &fakeBroker{})
			if c.err != "" {
				assert.EqualError(t, err, c.err)
				if c.is != nil {
					assert.ErrorIs(t, err, c.is)
				}
				assert.Len(t, n.listeners, 1)
				assert.NotContains(t, n.book.nodes, "x", "a refused listener leaves nothing behind")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.addr, l.Addr())
			conn, err := n.DialBroker(ctx, protocol.Dial{Node: "c", Addr: l.Addr()})
			require.NoError(t, err)
			_, err = send(ctx, conn, "m")
			assert.NoError(t, err)
			require.NoError(t, l.Close())
			l, err = n.ListenBroker(ctx, protocol.Listen{Node: "y", Addr: l.Addr()}, &fakeBroker{})
			require.NoError(t, err, "a closed listener's address is free")
			require.NoError(t, l.Close())
		})
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := New().ListenBroker(ended, protocol.Listen{Node: "x"}, &fakeBroker{})
	assert.ErrorIs(t, err, context.Canceled)
}

func TestLabelsSkipExplicitAddresses(t *testing.T) {
	n, ctx := New(), context.Background()
	_, err := n.ListenBroker(ctx, protocol.Listen{Node: "x", Addr: "127.1.0.1:10911"}, &fakeBroker{})
	require.NoError(t, err)
	l, err := n.ListenBroker(ctx, protocol.Listen{Node: "y"}, &fakeBroker{})
	require.NoError(t, err)
	assert.Equal(t, "127.1.0.2:10911", l.Addr())
}

func TestServersSeeWhereCallersComeFrom(t *testing.T) {
	n, ctx := New(), context.Background()
	b := &fakeBroker{}
	l, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	for _, node := range []string{"c", "c", "", "", "broker-a/0"} {
		_, err := n.DialBroker(ctx, protocol.Dial{Node: node, Addr: l.Addr()})
		require.NoError(t, err)
	}
	var got []string
	for i := range 5 {
		s := b.session(i)
		require.NotNil(t, s.Peer)
		s.Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{}) // a nil Dial.Peer takes it
		got = append(got, fmt.Sprint(s.Node, "=", s.Remote))
	}
	assert.Equal(t, []string{
		"c=127.1.0.2:49152", "c=127.1.0.2:49153", "=127.1.0.3:49152", "=127.1.0.4:49152",
		"broker-a/0=127.1.0.1:49152",
	}, got)
}

func TestCallersAreForgotten(t *testing.T) {
	n, ctx := New(), context.Background()
	l, err := n.ListenBroker(ctx, protocol.Listen{Node: "broker-a/0"}, &fakeBroker{})
	require.NoError(t, err)
	for i := range 300 {
		c, err := n.DialBroker(ctx, protocol.Dial{Node: fmt.Sprint("client-", i), Addr: l.Addr()})
		require.NoError(t, err)
		require.NoError(t, c.Close())
		_, err = n.DialBroker(ctx, protocol.Dial{Addr: "10.0.0.9:1"})
		require.Error(t, err)
	}
	require.NoError(t, l.Close())
	assert.Len(t, n.book.nodes, 1)
	assert.Len(t, n.book.owners, 1)
	assert.Empty(t, n.sessions)
}

func TestLabelsRunThroughTheirRange(t *testing.T) {
	b := newBook()
	b.next = 0xfd
	nd := b.node("x")
	var got []netip.Addr
	for range 3 {
		got = append(got, b.label(nd))
	}
	b.next = 255<<16 - 3
	got = append(got, b.label(nd), b.label(nd))
	assert.Equal(t, "[127.1.0.254 127.1.1.1 127.1.1.2 127.255.255.254 127.1.0.1]", fmt.Sprint(got))
}
