package routetable

import (
	"maps"
	"slices"

	"github.com/pocketmq/pocketmq/protocol"
)

// shown is what routes say of a broker group. It is never changed.
type shown struct {
	data    protocol.BrokerData
	filters map[string][]string // filter servers by address; nil = none
}

// showLocked lets look-ups see the shares of topics as they are now. Those of a broker
// group that is not shown lead nowhere, so a new group is shown before.
func (t *Table) showLocked(topics ...string) {
	for _, topic := range topics {
		shares := t.topics[topic]
		if len(shares) == 0 {
			t.routes.Delete(topic)
			continue
		}
		queues := make([]protocol.QueueData, 0, len(shares))
		for _, name := range slices.Sorted(maps.Keys(shares)) {
			queues = append(queues, shares[name])
		}
		t.routes.Store(topic, queues)
	}
}

// showGroupLocked is showLocked for a broker group.
func (t *Table) showGroupLocked(name string) {
	g := t.brokers[name]
	if g == nil || len(g.addrs) == 0 {
		t.groups.Delete(name)
		return
	}
	s := &shown{data: g.data(name)}
	for _, addr := range g.addrs {
		if filters := t.filters[place{g.cluster, addr}]; len(filters) > 0 {
			if s.filters == nil {
				s.filters = make(map[string][]string)
			}
			s.filters[addr] = filters
		}
	}
	t.groups.Store(name, s)
}

// Route returns where a topic lies: its shares, and the groups that still have
// members. It reports false when either is missing, which clients see as
// TopicNotExist. It waits for no registration: of one that is being taken in it may
// see a part. Java: RouteInfoManager.pickupTopicRouteData.
func (t *Table) Route(topic string) (protocol.TopicRoute, bool) {
	v, ok := t.routes.Load(topic)
	if !ok {
		return protocol.TopicRoute{}, false
	}
	route := protocol.TopicRoute{Queues: slices.Clone(v.([]protocol.QueueData))}
	route.Brokers = make([]protocol.BrokerData, 0, len(route.Queues))
	for i := range route.Queues {
		v, ok := t.groups.Load(route.Queues[i].BrokerName)
		if !ok {
			continue
		}
		g := v.(*shown)
		data := g.data
		data.Addrs = maps.Clone(data.Addrs)
		route.Brokers = append(route.Brokers, data)
		for addr, filters := range g.filters {
			if route.FilterServers == nil {
				route.FilterServers = make(map[string][]string)
			}
			route.FilterServers[addr] = slices.Clone(filters)
		}
	}
	if len(route.Brokers) == 0 {
		return protocol.TopicRoute{}, false
	}
	return route, true
}
