package pocketmq_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/remoting"
)

func TestABrokerOnAWildcardAddressIsWhereItSaysItIs(t *testing.T) {
	const host = "127.0.0.1"
	names, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Transport: pocketmq.TCP("0.0.0.0")})
	require.NoError(t, err)
	require.NoError(t, names.Start(t.Context()))
	assert.True(t, strings.HasPrefix(names.Addr(), host+":"), "what members here dial: %s", names.Addr())
	for _, addr := range []string{"", "0.0.0.0:0"} {
		cfg := pocketmq.BrokerConfig{
			Name: "broker-a", Addr: addr, AdvertiseAddr: host, Dir: t.TempDir(), NameServers: []string{names.Addr()},
			Transport: pocketmq.TCP("0.0.0.0"), Topics: map[string]int{"T": 1},
		}
		b, err := pocketmq.NewBroker(cfg)
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
		at, err := netip.ParseAddrPort(b.Addr())
		require.NoError(t, err)
		assert.Equal(t, host, at.Addr().String())
		live := names.Status().Brokers
		require.Len(t, live, 1)
		assert.Equal(t, b.Addr(), live[0].Addr)

		p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: cfg.NameServers, Transport: pocketmq.TCP(host)})
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context()))
		admin, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: cfg.NameServers, Transport: pocketmq.TCP(host)})
		require.NoError(t, err)
		require.NoError(t, admin.Start(t.Context()))
		r, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		m, err := admin.MessageByID(t.Context(), r.OffsetMsgID)
		require.NoError(t, err)
		assert.Equal(t, at, m.StoreHost)
		require.NoError(t, errors.Join(p.Close(), admin.Close(), b.Close()))
	}
	require.NoError(t, names.Close())
}

func TestMembersOfAClusterShareAnAdvertisedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, over := range map[string]pocketmq.Transport{"frames": remoting.NewTransport("0.0.0.0", pipenet.New()), "memory": pocketmq.InMemory()} {
			cfg := pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}}
			for _, name := range []string{"broker-a", "broker-b"} {
				cfg.Groups = append(cfg.Groups, pocketmq.BrokerGroup{Name: name, Config: pocketmq.BrokerConfig{AdvertiseAddr: "127.0.0.7"}})
			}
			c := run(t, cfg)
			addrs := make(map[string]bool)
			for b := range c.Brokers() {
				addrs[b.Addr()] = true
				assert.True(t, strings.HasPrefix(b.Addr(), "127.0.0.7:"), "%s: %s", what, b.Addr())
			}
			require.Len(t, addrs, 2, "each has a port of its own")
			p := producer(t, c, pocketmq.ProducerConfig{})
			for range 4 {
				sendNow(t, p, text("T", "x"))
			}
			before := c.Broker("broker-a", 0).Addr()
			require.NoError(t, c.Kill("broker-a", 0))
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			assert.Equal(t, before, c.Broker("broker-a", 0).Addr(), what)
			stop(t, c)
		}
	})
}

func TestABrokerThatIsStartedAgainHasItsPortAgain(t *testing.T) {
	for what, addr := range map[string]string{"chosen by the transport": "", "a free port": "127.0.0.1:0"} {
		c := run(t, pocketmq.ClusterConfig{
			Transport: pocketmq.TCP("127.0.0.1"), Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Addrs: []string{addr}}}, NameServerAddrs: []string{addr},
		})
		for range 3 {
			addr, names := c.Broker("broker-a", 0).Addr(), c.NameServerAddrs()
			require.NoError(t, c.Kill("broker-a", 0))
			require.NoError(t, c.KillNameServer(0))
			require.NoError(t, c.RestartNameServer(t.Context(), 0))
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			assert.Equal(t, addr, c.Broker("broker-a", 0).Addr(), what)
			assert.Equal(t, names, c.NameServerAddrs(), what)
		}
	}
}

func TestNameServersMayHaveNames(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), NameServers: 2, Topics: map[string]int{"T": 1}})
	var list []string
	for _, addr := range c.NameServerAddrs() {
		_, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		list = append(list, "localhost:"+port)
	}
	for _, servers := range [][]string{list, {strings.Join(list, ";")}, {" " + list[0] + " ; ;"}} {
		p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: servers, Transport: pocketmq.TCP("localhost")})
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context()))
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err, "%q", servers)
		require.NoError(t, p.Close())
	}
	b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{Name: "broker-b", Dir: t.TempDir(), NameServers: []string{strings.Join(list, ";")}, Transport: pocketmq.TCP("localhost")})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	for i := range 2 {
		assert.Len(t, c.NameServer(i).Status().Brokers, 2)
	}
	require.NoError(t, b.Close())

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	admin, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: []string{"nowhere.invalid:9876"}, Transport: pocketmq.TCP("localhost")})
	require.NoError(t, err)
	require.NoError(t, admin.Start(ctx))
	_, err = admin.Topics(ctx)
	assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
	assert.ErrorContains(t, err, "nowhere.invalid")
	require.NoError(t, admin.Close())
}
