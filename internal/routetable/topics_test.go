package routetable

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func perm(name string, p protocol.Perm) protocol.TopicConfig {
	c := topic(name, 4)
	c.Perm = p
	return c
}

func marked(name string, sysFlag int) protocol.TopicConfig {
	c := topic(name, 4)
	c.SysFlag = sysFlag
	return c
}

func inCluster(cluster string) func(*protocol.RegisterBrokerRequest) {
	return func(r *protocol.RegisterBrokerRequest) { r.Cluster = cluster }
}

// permsOf are the permissions of a topic by broker.
func permsOf(t *testing.T, table *Table, topic string) map[string]protocol.Perm {
	t.Helper()
	route, ok := table.Route(topic)
	require.True(t, ok)
	perms := make(map[string]protocol.Perm)
	for _, q := range route.Queues {
		perms[q.BrokerName] = q.Perm
	}
	return perms
}

func TestWipedTopicsAreReadableOnly(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(with(perm("rw", 6), perm("rwx", 7), perm("r", 4), perm("w", 2))))
	register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:1"), with(perm("rw", 6), perm("only b", 6))))
	n, c := table.WipeWritePerm("broker-a")
	assert.Equal(t, 4, n, "all of its topics count")
	assert.Equal(t, Change{Topics: []string{"rw", "rwx", "w"}}, c, "those whose route changed")
	assert.Equal(t, map[string]protocol.Perm{"broker-a": 4, "broker-b": 6}, permsOf(t, table, "rw"))
	assert.Equal(t, map[string]protocol.Perm{"broker-a": 5}, permsOf(t, table, "rwx"))
	assert.Equal(t, map[string]protocol.Perm{"broker-a": 4}, permsOf(t, table, "r"))
	assert.Equal(t, map[string]protocol.Perm{"broker-a": 0}, permsOf(t, table, "w"))
	n, c = table.WipeWritePerm("broker-a")
	assert.Equal(t, 4, n)
	assert.Equal(t, Change{}, c, "no route changed")

	n, c = table.AddWritePerm("broker-a")
	assert.Equal(t, 4, n)
	assert.Equal(t, Change{Topics: []string{"r", "rw", "rwx", "w"}}, c)
	for _, name := range []string{"rw", "rwx", "r", "w"} {
		assert.Equal(t, protocol.Perm(6), permsOf(t, table, name)["broker-a"], "exactly 6, whatever it was: %s", name)
	}
	n, c = table.AddWritePerm("broker-a")
	assert.Equal(t, 4, n)
	assert.Equal(t, Change{}, c)

	for _, f := range []func(string) (int, Change){table.WipeWritePerm, table.AddWritePerm} {
		n, c = f("unknown")
		assert.Zero(t, n)
		assert.Equal(t, Change{}, c)
	}
	checkInvariants(t, table)
}

// A registration with a new data version brings back what it carries, and nothing
// else; one with the same version brings back nothing.
func TestAWipedPermissionLastsUntilTheTopicIsRegisteredAnew(t *testing.T) {
	table := New()
	r := registration(with(perm("A", 6), perm("B", 6)))
	register(t, table, t0, 1, r)
	table.WipeWritePerm("broker-a")
	assert.Equal(t, Change{}, register(t, table, t0, 1, r), "the periodic registration")
	assert.Equal(t, protocol.Perm(4), permsOf(t, table, "A")["broker-a"])

	c := register(t, table, t0, 1, registration(with(perm("C", 6)), version(2)))
	assert.Equal(t, Change{Topics: []string{"C"}}, c, "a topic that was created meanwhile")
	assert.Equal(t, protocol.Perm(4), permsOf(t, table, "A")["broker-a"])
	assert.Equal(t, protocol.Perm(6), permsOf(t, table, "C")["broker-a"])
	register(t, table, t0, 1, registration(with(perm("A", 6), perm("B", 6), perm("C", 6)), version(2)))
	assert.Equal(t, protocol.Perm(4), permsOf(t, table, "A")["broker-a"], "all of it, in a version that is known")

	c = register(t, table, t0, 1, registration(with(perm("A", 6), perm("C", 6)), version(3)))
	assert.Equal(t, Change{Topics: []string{"A"}}, c)
	assert.Equal(t, protocol.Perm(4), permsOf(t, table, "B")["broker-a"])
}

func TestTopicsOfAClusterAreThoseOfItsBrokers(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(with(topic("both", 1), topic("a", 1))))
	register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:1"), with(topic("both", 1), topic("b", 1))))
	register(t, table, t0, 3, registration(inCluster("d"), as("broker-d", 0, "127.1.0.3:1"), with(topic("both", 1), topic("d", 1))))
	assert.Equal(t, []string{"a", "b", "both"}, table.TopicsOf("c"))
	assert.Equal(t, []string{"both", "d"}, table.TopicsOf("d"))
	assert.Empty(t, table.TopicsOf("unknown"))
	assert.Empty(t, table.TopicsOf(""))
	assert.True(t, table.HasTopic("a"))
	assert.False(t, table.HasTopic("x"))
}

func TestUnitTopicsAreThoseMarkedOnTheFirstBroker(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(with(marked("none", 0), marked("unit", 1), marked("sub", 2), marked("both", 3), marked("mixed", 0), marked("other", 4))))
	register(t, table, t0, 2, registration(as("broker-0", 0, "127.1.0.2:1"), with(marked("mixed", 1), marked("sub", 2))))
	assert.Equal(t, []string{"both", "mixed", "unit"}, table.UnitTopics(protocol.UnitTopicsOwn))
	assert.Equal(t, []string{"both", "sub"}, table.UnitTopics(protocol.UnitTopicsSubscribed))
	assert.Equal(t, []string{"sub"}, table.UnitTopics(protocol.UnitTopicsForeign))
}

func TestSystemTopicsAreTheNamesOfClustersAndBrokers(t *testing.T) {
	table := New()
	topics, broker := table.SystemTopics()
	assert.Empty(t, topics)
	assert.Empty(t, broker)

	register(t, table, t0, 1, registration(as("broker-b", 1, "127.1.0.9:1"), with()))
	register(t, table, t0, 1, registration(as("broker-b", 0, "127.1.0.2:1")))
	register(t, table, t0, 2, registration(inCluster("d"), as("d", 0, "127.1.0.3:1"))) // a broker named as its cluster
	_, _, err := table.Register(t0, 3, registration(as("broker-a", 0, "127.1.0.4:1"), with(topic("one", 1))))
	require.Error(t, err, "a group without an address")
	topics, broker = table.SystemTopics()
	assert.Equal(t, []string{"broker-a", "broker-b", "c", "d"}, topics)
	assert.Equal(t, "127.1.0.2:1", broker, "of the first group that has one, the lowest id")
}

func TestABrokerGroupAndItsMembers(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	register(t, table, t0, 2, registration(as("broker-a", 1, "127.1.0.9:1"), with()))
	want := map[int64]string{0: "127.1.0.1:10911", 1: "127.1.0.9:1"}
	got := table.Members("broker-a")
	assert.Equal(t, want, got)
	got[7] = "elsewhere"
	assert.Equal(t, want, table.Members("broker-a"), "a copy")
	assert.Equal(t, map[int64]string{}, table.Members("unknown"))
}

func inZone(zone string) func(*protocol.RegisterBrokerRequest) {
	return func(r *protocol.RegisterBrokerRequest) { r.Zone = zone }
}

func TestARouteInAZoneLeavesOutMastersThatStandElsewhere(t *testing.T) {
	table := New()
	filters := func(r *protocol.RegisterBrokerRequest) { r.FilterServers = []string{"f:1"} }
	register(t, table, t0, 1, registration(inZone("North"), filters))
	register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:1"), inZone("south"), filters))
	register(t, table, t0, 3, registration(as("broker-c", 0, "127.1.0.3:1"), filters))
	register(t, table, t0, 4, registration(as("broker-c", 1, "127.1.0.4:1"), with()))
	brokers := func(zone string) (names []string) {
		all, ok := table.Route("orders")
		require.True(t, ok)
		r := InZone(all, zone)
		for _, b := range r.Brokers {
			names = append(names, b.BrokerName)
		}
		var queues []string
		for _, q := range r.Queues {
			queues = append(queues, q.BrokerName)
		}
		assert.Equal(t, names, queues)
		for addr := range r.FilterServers {
			assert.True(t, slices.ContainsFunc(r.Brokers, func(b protocol.BrokerData) bool { return b.Addrs[0] == addr }), addr)
		}
		assert.Len(t, r.FilterServers, len(names))
		return names
	}
	assert.Equal(t, []string{"broker-a"}, brokers("north"), "in any case")
	assert.Equal(t, []string{"broker-b"}, brokers("south"))
	assert.Empty(t, brokers("west"))
	table.ConnClosed(3)
	route, _ := table.Route("orders")
	route = InZone(route, "south")
	require.Len(t, route.Brokers, 2, "a group without a master is everybody's")
	assert.Equal(t, "broker-c", route.Brokers[1].BrokerName)

	c := register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:1"), inZone("north")))
	assert.Equal(t, []string{"TBW102", "orders"}, c.Topics, "a broker that moved")
	assert.Equal(t, Change{}, register(t, table, t0, 2, registration(as("broker-b", 0, "127.1.0.2:1"), inZone("north"))))
	route, _ = table.Route("orders")
	assert.Equal(t, "north", route.Brokers[1].Zone)
}

func TestATopicThatNoBrokerHasBrought(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration())
	share := protocol.QueueData{BrokerName: "broker-a", ReadQueues: 2, WriteQueues: 3, Perm: 6, SysFlag: 1}
	for what, queues := range map[string][]protocol.QueueData{
		"no queues":               nil,
		"a broker is not known":   {share, {BrokerName: "unknown", ReadQueues: 1, WriteQueues: 1, Perm: 6}},
		"no broker is named":      {{ReadQueues: 1, WriteQueues: 1, Perm: 6}},
		"the first one is unkown": {{BrokerName: "unknown"}, share},
	} {
		assert.Equal(t, Change{}, table.RegisterTopic("new", queues), what)
		assert.False(t, table.HasTopic("new"), what)
	}
	assert.Equal(t, Change{}, table.RegisterTopic("", []protocol.QueueData{share}))

	assert.Equal(t, Change{Topics: []string{"new"}}, table.RegisterTopic("new", []protocol.QueueData{{BrokerName: "broker-a"}, share}))
	route, ok := table.Route("new")
	require.True(t, ok)
	assert.Equal(t, []protocol.QueueData{share}, route.Queues)
	assert.Equal(t, Change{}, table.RegisterTopic("new", []protocol.QueueData{{BrokerName: "broker-a"}}), "one that is known stays")
	assert.Equal(t, Change{}, table.RegisterTopic("orders", []protocol.QueueData{share}))

	// It goes with its broker.
	table.ConnClosed(1)
	assert.Empty(t, table.Topics())
	checkInvariants(t, table)
}

func TestNumbersOfQueuesAreKeptWithinBounds(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(with(
		protocol.TopicConfig{Name: "many", ReadQueues: 1 << 30, WriteQueues: MaxQueues + 1, Perm: 6},
		protocol.TopicConfig{Name: "below", ReadQueues: -1, WriteQueues: -1 << 30, Perm: 6},
	)))
	table.RegisterTopic("mine", []protocol.QueueData{{BrokerName: "broker-a", ReadQueues: 1 << 30, WriteQueues: -1, Perm: 6}})
	for name, want := range map[string][2]int{"many": {MaxQueues, MaxQueues}, "below": {0, 0}, "mine": {MaxQueues, 0}} {
		route, ok := table.Route(name)
		require.True(t, ok)
		assert.Equal(t, want, [2]int{route.Queues[0].ReadQueues, route.Queues[0].WriteQueues}, name)
	}
}

func TestATopicIsDeletedInOneCluster(t *testing.T) {
	table := New()
	register(t, table, t0, 1, registration(with(topic("both", 1), topic("c only", 1))))
	register(t, table, t0, 2, registration(inCluster("d"), as("broker-d", 0, "127.1.0.3:1"), with(topic("both", 2), topic("x", 1))))
	for _, cluster := range []string{"unknown", "d"} {
		assert.False(t, table.DeleteTopic("c only", cluster), cluster)
	}
	assert.False(t, table.DeleteTopic("unknown", "c"))
	assert.True(t, table.DeleteTopic("both", "c"))
	assert.False(t, table.DeleteTopic("both", "c"))
	assert.Equal(t, map[string]protocol.Perm{"broker-d": 6}, permsOf(t, table, "both"))
	assert.True(t, table.DeleteTopic("both", "d"))
	assert.False(t, table.HasTopic("both"))
	assert.True(t, table.DeleteTopic("c only", ""), "of all")
	assert.False(t, table.DeleteTopic("c only", ""))
	checkInvariants(t, table)
	assert.Equal(t, []string{"x"}, table.Topics())
	// A broker that still has it brings it back, in the version that is known, too.
	assert.Equal(t, Change{Topics: []string{"both", "c only"}}, register(t, table, t0, 1, registration(with(topic("both", 1), topic("c only", 1)))))
}
