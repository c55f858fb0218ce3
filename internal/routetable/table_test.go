package routetable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func topic(name string, queues int) protocol.TopicConfig {
	return protocol.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: protocol.PermRead | protocol.PermWrite}
}

// registration is a full one of broker-a/0: two topics, version 1.
func registration(change ...func(*protocol.RegisterBrokerRequest)) *protocol.RegisterBrokerRequest {
	r := &protocol.RegisterBrokerRequest{
		Cluster: "c", BrokerName: "broker-a", Addr: "127.1.0.1:10911", HAAddr: "127.1.0.1:10912",
		Version: protocol.DataVersion{Timestamp: 1, Counter: 1},
		Topics:  []protocol.TopicConfig{topic("orders", 4), topic("TBW102", 8)},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func as(name string, id int64, addr string) func(*protocol.RegisterBrokerRequest) {
	return func(r *protocol.RegisterBrokerRequest) { r.BrokerName, r.BrokerID, r.Addr = name, id, addr }
}

func version(counter int64) func(*protocol.RegisterBrokerRequest) {
	return func(r *protocol.RegisterBrokerRequest) { r.Version.Counter = counter }
}

func with(topics ...protocol.TopicConfig) func(*protocol.RegisterBrokerRequest) {
	return func(r *protocol.RegisterBrokerRequest) { r.Topics = topics }
}

func register(t *testing.T, table *Table, now time.Time, conn uint64, r *protocol.RegisterBrokerRequest) Change {
	t.Helper()
	_, c, err := table.Register(now, conn, r)
	require.NoError(t, err)
	checkInvariants(t, table)
	return c
}

func unregistration(r *protocol.RegisterBrokerRequest) *protocol.UnregisterBrokerRequest {
	return &protocol.UnregisterBrokerRequest{Cluster: r.Cluster, BrokerName: r.BrokerName, BrokerID: r.BrokerID, Addr: r.Addr}
}

// checkInvariants states how the tables hang together.
func checkInvariants(t *testing.T, table *Table) {
	seen := 0
	table.routes.Range(func(topic, queues any) bool {
		seen++
		shares := make(map[string]protocol.QueueData)
		for _, q := range queues.([]protocol.QueueData) {
			shares[q.BrokerName] = q
		}
		require.Equal(t, table.topics[topic.(string)], shares, topic)
		return true
	})
	require.Len(t, table.topics, seen, "look-ups see every topic")
	for name, g := range table.brokers {
		v, ok := table.groups.Load(name)
		require.Equal(t, len(g.addrs) > 0, ok, name)
		if ok {
			require.Equal(t, g.data(name), v.(*shown).data)
		}
	}
	table.groups.Range(func(name, _ any) bool {
		require.Contains(t, table.brokers, name)
		return true
	})
	t.Helper()
	all := 0
	for name, shares := range table.topics {
		all += len(shares)
		require.NotEmpty(t, shares, "topic %s", name)
		for broker, share := range shares {
			require.Equal(t, broker, share.BrokerName)
			require.Contains(t, table.brokers, broker, "topic %s", name)
		}
	}
	require.Equal(t, all, table.shares)
	for cluster, names := range table.clusters {
		require.NotEmpty(t, names, "cluster %s", cluster)
	}
	for name, g := range table.brokers {
		require.Contains(t, table.clusters[g.cluster], name)
		addrs := slices.Sorted(maps.Values(g.addrs))
		require.Equal(t, slices.Compact(slices.Clone(addrs)), addrs, "an address has one id")
	}
	for _, filters := range table.filters {
		require.NotEmpty(t, filters)
	}
}

func TestRegistrationMakesTopicsRoutable(t *testing.T) {
	table := New()
	_, ok := table.Route("orders")
	assert.False(t, ok)

	c := register(t, table, t0, 1, registration())
	assert.Equal(t, Change{Registered: true, Topics: []string{"TBW102", "orders"}}, c)
	c = register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:10911"), with(topic("orders", 2), topic("x", 1))))
	assert.Equal(t, Change{Registered: true, Topics: []string{"orders", "x"}}, c)

	route, ok := table.Route("orders")
	require.True(t, ok)
	assert.Equal(t, protocol.TopicRoute{
		Queues: []protocol.QueueData{
			{BrokerName: "broker-a", ReadQueues: 4, WriteQueues: 4, Perm: 6},
			{BrokerName: "broker-b", ReadQueues: 2, WriteQueues: 2, Perm: 6},
		},
		Brokers: []protocol.BrokerData{
			{Cluster: "c", BrokerName: "broker-a", Addrs: map[int64]string{0: "127.1.0.1:10911"}},
			{Cluster: "c", BrokerName: "broker-b", Addrs: map[int64]string{0: "127.1.0.2:10911"}},
		},
	}, route)
	assert.Equal(t, []string{"TBW102", "orders", "x"}, table.Topics())
	assert.Equal(t, route.Brokers, table.ClusterInfo())
	assert.Equal(t, []Live{
		{Name: "broker-a", Addr: "127.1.0.1:10911", Age: time.Second},
		{Name: "broker-b", Addr: "127.1.0.2:10911", Age: time.Second},
	}, table.Live(t0.Add(time.Second)))
}

func TestRouteIsACopy(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(func(r *protocol.RegisterBrokerRequest) { r.FilterServers = []string{"f:1"} }))
	want, _ := table.Route("orders")
	got, _ := table.Route("orders")
	got.Queues[0].Perm = 0
	got.Brokers[0].Addrs[7] = "elsewhere"
	got.FilterServers["127.1.0.1:10911"][0] = "elsewhere"
	info := table.ClusterInfo()
	info[0].Addrs[7] = "elsewhere"
	again, _ := table.Route("orders")
	assert.Equal(t, want, again)
	assert.Equal(t, want.Brokers, table.ClusterInfo())
}

func TestNothingOfARequestIsKept(t *testing.T) {
	table := New()
	r := registration(func(r *protocol.RegisterBrokerRequest) { r.FilterServers = []string{"f:1"} })
	register(t, table, t0, 1, r)
	want, _ := table.Route("orders")
	r.FilterServers[0] = "elsewhere"
	r.Topics[0].Perm = 0
	got, _ := table.Route("orders")
	assert.Equal(t, want, got)
}

func TestRegistrationNeedsNames(t *testing.T) {
	for _, f := range []func(*protocol.RegisterBrokerRequest){
		func(r *protocol.RegisterBrokerRequest) { r.Cluster = "" },
		func(r *protocol.RegisterBrokerRequest) { r.BrokerName = "" },
		func(r *protocol.RegisterBrokerRequest) { r.Addr = "" },
	} {
		table := New()
		_, _, err := table.Register(t0, 1, registration(f))
		assert.ErrorIs(t, err, &protocol.Error{Code: protocol.SystemError})
		assert.Empty(t, table.ClusterInfo())
	}
}

func TestUnknownBrokerWithOneTopicIsRefused(t *testing.T) {
	table := New()
	_, c, err := table.Register(t0, 1, registration(with(topic("orders", 4))))
	var e *protocol.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, protocol.SystemError, e.Code)
	assert.Regexp(t, `^register broker failed`, e.Remark)
	assert.Contains(t, e.Remark, "register all of its topics first")
	assert.Equal(t, Change{}, c)
	assert.Equal(t, []protocol.BrokerData{{Cluster: "c", BrokerName: "broker-a", Addrs: map[int64]string{}}}, table.ClusterInfo(), "the group stays, without an address")
	assert.Empty(t, table.Topics())
	assert.Empty(t, table.Live(t0))
	checkInvariants(t, table)

	register(t, table, t0, 1, registration())
	c = register(t, table, t0, 1, registration(with(topic("new", 1)), version(2)))
	assert.Equal(t, Change{Topics: []string{"new"}}, c, "a known broker may bring one topic")

	// A slave without topics is no such case; one with a single topic is.
	_, _, err = table.Register(t0, 2, registration(as("broker-a", 1, "127.1.0.9:1"), with(topic("new", 1))))
	require.Error(t, err)
	register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.9:1"), with()))
}

func TestTopicsLeftOutOfARegistrationStay(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	c := register(t, table, t0, 1, registration(with(topic("orders", 6), topic("other", 1)), version(2)))
	assert.Equal(t, Change{Topics: []string{"orders", "other"}}, c)
	assert.Equal(t, []string{"TBW102", "orders", "other"}, table.Topics())
	route, _ := table.Route("orders")
	assert.Equal(t, 6, route.Queues[0].ReadQueues)
}

func TestKnownTopicIsReplacedOnlyByANewDataVersion(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	c := register(t, table, t0, 1, registration(with(topic("orders", 9), topic("new", 1))))
	assert.Equal(t, Change{Topics: []string{"new"}}, c, "same version: only the unknown one")
	route, _ := table.Route("orders")
	assert.Equal(t, 4, route.Queues[0].ReadQueues)

	for _, newer := range []protocol.DataVersion{{Timestamp: 1, Counter: 2}, {Timestamp: 2, Counter: 2}, {StateVersion: 1, Timestamp: 2, Counter: 2}, {}} {
		queues := route.Queues[0].ReadQueues + 1
		c = register(t, table, t0, 1, registration(with(topic("orders", queues), topic("new", 1)), func(r *protocol.RegisterBrokerRequest) { r.Version = newer }))
		assert.Equal(t, Change{Topics: []string{"orders"}}, c)
		route, _ = table.Route("orders")
		assert.Equal(t, queues, route.Queues[0].ReadQueues)
	}
	c = register(t, table, t0, 1, registration(with(topic("orders", route.Queues[0].ReadQueues), topic("new", 1)), version(77)))
	assert.Equal(t, Change{}, c, "a new version of the same topics changes no route")
}

func TestSlaveBringsNoTopicsAndLearnsItsMaster(t *testing.T) {
	table := New()
	slave := registration(as("broker-a", 1, "127.1.0.2:10911"), with(topic("only", 1), topic("slave", 1)))
	resp, c, err := table.Register(t0, 2, slave)
	require.NoError(t, err)
	assert.Equal(t, &protocol.RegisterBrokerResponse{}, resp, "no master yet")
	assert.Equal(t, Change{Registered: true}, c)
	assert.Empty(t, table.Topics())

	register(t, table, t0, 1, registration())
	resp, _, err = table.Register(t0, 2, slave)
	require.NoError(t, err)
	assert.Equal(t, &protocol.RegisterBrokerResponse{MasterAddr: "127.1.0.1:10911", HAAddr: "127.1.0.1:10912"}, resp)
	route, _ := table.Route("orders")
	assert.Equal(t, map[int64]string{0: "127.1.0.1:10911", 1: "127.1.0.2:10911"}, route.Brokers[0].Addrs)

	resp, _, err = table.Register(t0, 1, registration())
	require.NoError(t, err)
	assert.Equal(t, &protocol.RegisterBrokerResponse{}, resp, "a master is told nothing")
}

func TestSlaveJoiningChangesTheRoutesOfItsGroup(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	c := register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.2:10911"), with()))
	assert.Equal(t, Change{Registered: true, Topics: []string{"TBW102", "orders"}}, c)
	c = register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.2:10911"), with()))
	assert.Equal(t, Change{}, c)
}

func TestPromotedSlaveKeepsOneEntry(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	slave := registration(as("broker-a", 1, "127.1.0.2:10911"), with())
	register(t, table, t0, 2, slave)
	table.Unregister(unregistration(registration()))
	promoted := registration(as("broker-a", 0, "127.1.0.2:10911"), version(2))
	c := register(t, table, t0, 2, promoted)
	assert.Equal(t, Change{Registered: true, Topics: []string{"TBW102", "orders"}}, c)
	assert.Equal(t, map[int64]string{0: "127.1.0.2:10911"}, table.ClusterInfo()[0].Addrs)
	assert.Len(t, table.Live(t0), 1)

	assert.Equal(t, Change{}, table.Unregister(unregistration(slave)), "a late request of its life as a slave")
	assert.Len(t, table.Live(t0), 1)
	_, ok := table.Route("orders")
	assert.True(t, ok)
}

func TestNewAddressOfABrokerReplacesTheOldOne(t *testing.T) {
	table := New()
	old := registration()
	register(t, table, t0, 1, old)
	moved := registration(as("broker-a", 0, "127.1.0.7:10911"))
	c := register(t, table, t0.Add(time.Second), 2, moved)
	assert.Equal(t, Change{Registered: true, Topics: []string{"TBW102", "orders"}}, c)
	assert.Equal(t, map[int64]string{0: "127.1.0.7:10911"}, table.ClusterInfo()[0].Addrs)
	assert.Len(t, table.Live(t0), 1)

	assert.Equal(t, Change{}, table.Unregister(unregistration(old)), "the late goodbye of the old life")
	assert.Empty(t, table.ConnClosed(1))
	assert.Empty(t, table.Expire(t0.Add(DefaultTimeout+time.Nanosecond)))
	_, ok := table.Route("orders")
	assert.True(t, ok)
	checkInvariants(t, table)
}

func TestOlderStateDoesNotTakeABrokerIDOver(t *testing.T) {
	table := New()
	state := func(v int64) func(*protocol.RegisterBrokerRequest) {
		return func(r *protocol.RegisterBrokerRequest) { r.Version.StateVersion = v }
	}
	register(t, table, t0, 1, registration(state(5)))
	before, _ := table.Route("orders")
	resp, c, err := table.Register(t0, 2, registration(as("broker-a", 0, "127.1.0.7:10911"), state(4), with(topic("x", 1), topic("y", 1))))
	assert.Equal(t, protocol.Errorf(protocol.ServiceNotAvailable,
		"register broker failed: id 0 of broker-a is that of 127.1.0.1:10911, whose state is 5, and later than that of 127.1.0.7:10911, which is 4: it has taken over"), err)
	assert.Nil(t, resp)
	assert.Equal(t, Change{}, c)
	after, _ := table.Route("orders")
	assert.Equal(t, before, after)
	assert.Len(t, table.Live(t0), 1)

	c = register(t, table, t0, 2, registration(as("broker-a", 0, "127.1.0.7:10911"), state(5)))
	assert.True(t, c.Registered, "an equal state version may")
}

func TestWhoIsRefusedTheMastersIDHasNotKeptItsOldOneEither(t *testing.T) {
	table := New()
	state := func(v int64) func(*protocol.RegisterBrokerRequest) {
		return func(r *protocol.RegisterBrokerRequest) { r.Version.StateVersion = v }
	}
	register(t, table, t0, 1, registration(state(5)))
	register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.7:10911"), state(4)))
	_, c, err := table.Register(t0, 2, registration(as("broker-a", 0, "127.1.0.7:10911"), state(4)))
	require.ErrorIs(t, err, protocol.ErrNotMaster)
	assert.Equal(t, []string{"TBW102", "orders"}, c.Topics, "it says itself that it is no slave any more")
	assert.Equal(t, map[int64]string{0: "127.1.0.1:10911"}, table.Members("broker-a"))
	register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.7:10911"), state(4)))
	assert.Equal(t, map[int64]string{0: "127.1.0.1:10911", 1: "127.1.0.7:10911"}, table.Members("broker-a"))
	checkInvariants(t, table)
}

func TestTwoThatChangeTheirIDsEndUpRightWhateverComesFirst(t *testing.T) {
	for _, masterFirst := range []bool{true, false} {
		table := New()
		was := func(id int64, addr string) *protocol.RegisterBrokerRequest {
			r := registration(as("broker-a", id, addr))
			r.Version.StateVersion = 1
			return r
		}
		is := func(id int64, addr string) *protocol.RegisterBrokerRequest {
			r := was(id, addr)
			r.Version.StateVersion = 2
			return r
		}
		register(t, table, t0, 1, was(0, "127.1.0.1:10911"))
		register(t, table, t0, 2, was(1, "127.1.0.2:10911"))
		// The second one is elected, and the first one is its slave: it takes its id.
		changes := []func(){
			func() { register(t, table, t0, 2, is(0, "127.1.0.2:10911")) },
			func() { register(t, table, t0, 1, was(1, "127.1.0.1:10911")) },
		}
		if !masterFirst {
			slices.Reverse(changes)
		}
		for _, change := range changes {
			change()
			checkInvariants(t, table)
		}
		want := map[int64]string{0: "127.1.0.2:10911", 1: "127.1.0.1:10911"}
		assert.Equal(t, want, table.Members("broker-a"), "the master first: %v", masterFirst)
		assert.Len(t, table.Live(t0), 2)
		assert.Equal(t, Change{}, table.Unregister(unregistration(was(0, "127.1.0.1:10911"))), "the late goodbye of the old master")
		assert.Equal(t, want, table.Members("broker-a"))
	}
}

func TestUnregisterRemovesTheLastMembersTopics(t *testing.T) {
	table := New()
	a, slave := registration(), registration(as("broker-a", 1, "127.1.0.2:10911"), with())
	b := registration(as("broker-b", 0, "127.1.0.3:10911"), with(topic("orders", 2), topic("x", 1)))
	register(t, table, t0, 1, a)
	register(t, table, t0, 2, slave)
	register(t, table, t0, 3, b)

	assert.Equal(t, Change{
		Topics: []string{"TBW102", "orders"},
		Min:    &MinID{BrokerName: "broker-a", ID: 1, Addr: "127.1.0.2:10911", HAAddr: slave.HAAddr, Offline: "127.1.0.1:10911", Tell: []string{"127.1.0.2:10911"}},
	}, table.Unregister(unregistration(a)))
	checkInvariants(t, table)
	route, ok := table.Route("orders")
	require.True(t, ok)
	assert.Equal(t, map[int64]string{1: "127.1.0.2:10911"}, route.Brokers[0].Addrs, "the slave goes on serving reads")
	assert.Len(t, route.Queues, 2)

	assert.Equal(t, Change{Topics: []string{"TBW102", "orders"}}, table.Unregister(unregistration(slave)))
	checkInvariants(t, table)
	assert.Equal(t, []string{"orders", "x"}, table.Topics())
	assert.Equal(t, Change{Topics: []string{"orders", "x"}}, table.Unregister(unregistration(b)))
	assert.Empty(t, table.Topics())
	assert.Empty(t, table.ClusterInfo())
	assert.Empty(t, table.clusters)
	assert.Empty(t, table.live)
	assert.Equal(t, Change{}, table.Unregister(unregistration(b)), "twice")
}

func TestBrokerExpiresOnlyLaterThanItsTimeout(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"default": 0, "own": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			table := New()
			want := timeout
			if want == 0 {
				want = 120 * time.Second
			}
			register(t, table, t0, 9, registration(func(r *protocol.RegisterBrokerRequest) { r.HeartbeatTimeout = timeout }))
			assert.Empty(t, table.Expire(t0.Add(want)), "exactly the timeout")
			assert.Equal(t, []Expired{{BrokerName: "broker-a", Addr: "127.1.0.1:10911", Topics: []string{"TBW102", "orders"}}},
				table.Expire(t0.Add(want+1)))
			checkInvariants(t, table)
			assert.Empty(t, table.Topics())
			assert.Empty(t, table.Live(t0))
			assert.Empty(t, table.Expire(t0.Add(time.Hour)))
		})
	}
}

func TestSignsOfLifePostponeExpiry(t *testing.T) {
	a := registration()
	later := t0.Add(100 * time.Second)
	signs := map[string]func(*Table){
		"registration": func(table *Table) { register(t, table, later, 1, a) },
		"heartbeat": func(table *Table) {
			assert.True(t, table.Heartbeat(later, &protocol.BrokerHeartbeatRequest{Cluster: "c", BrokerName: "broker-a", Addr: a.Addr}))
		},
		"data version": func(table *Table) {
			table.DataVersion(later, &protocol.QueryDataVersionRequest{Cluster: "c", BrokerName: "broker-a", Addr: a.Addr})
		},
	}
	for name, sign := range signs {
		t.Run(name, func(t *testing.T) {
			table := New()
			register(t, table, t0, 1, a)
			sign(table)
			assert.Empty(t, table.Expire(later.Add(DefaultTimeout)))
			assert.Len(t, table.Expire(later.Add(DefaultTimeout+1)), 1)
		})
	}
	assert.False(t, New().Heartbeat(t0, &protocol.BrokerHeartbeatRequest{Cluster: "c", BrokerName: "broker-a", Addr: a.Addr}))
}

func TestDataVersion(t *testing.T) {
	table := New()
	q := &protocol.QueryDataVersionRequest{Cluster: "c", BrokerName: "broker-a", Addr: "127.1.0.1:10911", Version: protocol.DataVersion{Timestamp: 1, Counter: 1}}
	assert.Equal(t, protocol.QueryDataVersionResponse{Changed: true}, table.DataVersion(t0, q))
	register(t, table, t0, 1, registration())
	assert.Equal(t, protocol.QueryDataVersionResponse{Version: q.Version}, table.DataVersion(t0, q))
	known := q.Version
	q.Version.Counter++
	assert.Equal(t, protocol.QueryDataVersionResponse{Changed: true, Version: known}, table.DataVersion(t0, q))
}

func TestConnectionLossDropsOnlyWhatRegisteredThroughIt(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:10911")))
	assert.Empty(t, table.ConnClosed(3), "a client's connection")
	register(t, table, t0, 4, registration()) // broker-a reconnected
	assert.Empty(t, table.ConnClosed(1))
	assert.Equal(t, []Expired{{BrokerName: "broker-b", Addr: "127.1.0.2:10911", Topics: []string{"TBW102", "orders"}}}, table.ConnClosed(2))
	assert.Len(t, table.ConnClosed(4), 1)
	assert.Empty(t, table.ClusterInfo())
}

func TestFilterServersAreReplacedByEachRegistration(t *testing.T) {
	table := New()
	filters := func(f ...string) func(*protocol.RegisterBrokerRequest) {
		return func(r *protocol.RegisterBrokerRequest) { r.FilterServers = f }
	}
	register(t, table, t0, 1, registration(filters("f:1", "f:2")))
	route, _ := table.Route("orders")
	assert.Equal(t, map[string][]string{"127.1.0.1:10911": {"f:1", "f:2"}}, route.FilterServers)
	register(t, table, t0, 1, registration(filters("f:3")))
	route, _ = table.Route("orders")
	assert.Equal(t, map[string][]string{"127.1.0.1:10911": {"f:3"}}, route.FilterServers)
	register(t, table, t0, 1, registration())
	route, _ = table.Route("orders")
	assert.Empty(t, route.FilterServers)
	register(t, table, t0, 1, registration(filters("f:3")))
	table.ConnClosed(1)
	assert.Empty(t, table.filters)
}

func TestSameBrokerNameInTwoClustersIsStillRemovable(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	register(t, table, t0, 2, registration(as("broker-a", 0, "127.1.0.5:1"), func(r *protocol.RegisterBrokerRequest) { r.Cluster = "d" }))
	table.ConnClosed(1)
	assert.Len(t, table.ConnClosed(2), 1)
	checkInvariants(t, table)
	assert.Empty(t, table.Topics())
	assert.Empty(t, table.ClusterInfo())
}

// Random lives of three groups: after every step the tables hang together, a
// live broker is routable, and Topics of a change covers every route that
// differs.
func TestRandomLivesKeepTheTablesConsistent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		table, now := New(), t0
		for range 200 {
			now = now.Add(time.Duration(rng.IntN(20)) * time.Second)
			before := routes(table)
			r := registration(as(fmt.Sprintf("b%d", rng.IntN(3)), int64(rng.IntN(2)), fmt.Sprintf("127.1.0.%d:1", rng.IntN(6))), version(int64(rng.IntN(5))))
			r.Topics = nil
			for i := range rng.IntN(4) {
				r.Topics = append(r.Topics, topic(fmt.Sprintf("t%d", i), 1+rng.IntN(3)))
			}
			conn := uint64(rng.IntN(8))
			var announced []string
			switch rng.IntN(5) {
			case 0:
				announced = table.Unregister(unregistration(r)).Topics
			case 1:
				for _, e := range table.ConnClosed(conn) {
					announced = append(announced, e.Topics...)
				}
			case 2:
				for _, e := range table.Expire(now) {
					announced = append(announced, e.Topics...)
				}
			default:
				_, c, err := table.Register(now, conn, r)
				if err == nil {
					g := table.ClusterInfo()[slices.IndexFunc(table.ClusterInfo(), func(b protocol.BrokerData) bool { return b.BrokerName == r.BrokerName })]
					require.Equal(t, r.Addr, g.Addrs[r.BrokerID])
				}
				announced = c.Topics
			}
			checkInvariants(t, table)
			after := routes(table)
			for name := range maps.Keys(mergeKeys(before, after)) {
				if !assert.ObjectsAreEqual(before[name], after[name]) {
					require.Contains(t, announced, name)
				}
			}
		}
	}
}

func routes(table *Table) map[string]protocol.TopicRoute {
	all := make(map[string]protocol.TopicRoute)
	for _, name := range table.Topics() {
		if route, ok := table.Route(name); ok {
			all[name] = route
		}
	}
	return all
}

func mergeKeys(a, b map[string]protocol.TopicRoute) map[string]protocol.TopicRoute {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

func TestConcurrentUse(t *testing.T) {
	table := New()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := registration(as(fmt.Sprintf("b%d", g), 0, fmt.Sprintf("127.1.0.%d:1", g)))
			for i := range 200 {
				_, _, err := table.Register(t0, uint64(g), r)
				assert.NoError(t, err)
				table.Route("orders")
				table.Topics()
				table.ClusterInfo()
				table.Live(t0)
				table.Heartbeat(t0, &protocol.BrokerHeartbeatRequest{Cluster: "c", Addr: r.Addr})
				table.DataVersion(t0, &protocol.QueryDataVersionRequest{Cluster: "c", Addr: r.Addr})
				switch i % 3 {
				case 0:
					table.Unregister(unregistration(r))
				case 1:
					table.ConnClosed(uint64(g))
				}
				table.Expire(t0)
			}
		})
	}
	wg.Wait()
	checkInvariants(t, table)
}

func BenchmarkRoute(b *testing.B) {
	table := New()
	for g := range 4 {
		if _, _, err := table.Register(t0, uint64(g), registration(as(fmt.Sprintf("b%d", g), 0, fmt.Sprintf("127.1.0.%d:1", g)))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		table.Route("orders")
	}
}

func TestTheSmallestIDOfAGroupIsTold(t *testing.T) {
	table := New()
	member := func(id int64, host string) *protocol.RegisterBrokerRequest {
		r := registration(as("broker-a", id, host+":10911"))
		r.HAAddr = host + ":10912"
		return r
	}
	const a, b, c = "127.1.0.1", "127.1.0.2", "127.1.0.3"
	assert.Nil(t, register(t, table, t0, 2, member(2, b)).Min, "nobody else is there")
	assert.Nil(t, register(t, table, t0, 3, member(3, c)).Min, "it is not the smallest one")
	master := &MinID{BrokerName: "broker-a", ID: 0, Addr: a + ":10911", HAAddr: a + ":10912", Tell: []string{b + ":10911", c + ":10911"}}
	assert.Equal(t, master, register(t, table, t0, 1, member(0, a)).Min)
	assert.Nil(t, register(t, table, t0, 1, member(0, a)).Min, "again")
	moved := member(0, a)
	moved.HAAddr = a + ":7"
	assert.Equal(t, a+":7", register(t, table, t0, 1, moved).Min.HAAddr, "it gives its log elsewhere")

	gone := table.ConnClosed(1)
	require.Len(t, gone, 1)
	assert.Equal(t, &MinID{BrokerName: "broker-a", ID: 2, Addr: b + ":10911", HAAddr: b + ":10912", Offline: a + ":10911", Tell: []string{b + ":10911", c + ":10911"}}, gone[0].Min)
	assert.Nil(t, table.Unregister(unregistration(member(3, c))).Min, "it was not the smallest one")
	gone = table.ConnClosed(2)
	require.Len(t, gone, 1)
	assert.Nil(t, gone[0].Min, "nobody is left")

	// A slave that becomes the master.
	register(t, table, t0, 1, member(0, a))
	register(t, table, t0, 2, member(1, b))
	register(t, table, t0, 2, member(0, b))
	assert.Equal(t, &MinID{BrokerName: "broker-a", ID: 0, Addr: b + ":10911", HAAddr: b + ":10912", Tell: []string{a + ":10911"}}, func() *MinID {
		register(t, table, t0, 1, member(1, a))
		m := member(0, b)
		m.HAAddr = b + ":7"
		register(t, table, t0, 2, m)
		return register(t, table, t0, 2, member(0, b)).Min
	}())
	checkInvariants(t, table)
}
