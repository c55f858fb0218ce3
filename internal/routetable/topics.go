package routetable

import (
	"maps"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// Topics lists all topics, sorted. Java: RouteInfoManager.getAllTopicList.
func (t *Table) Topics() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.topics))
}

// HasTopic reports whether a topic is known.
func (t *Table) HasTopic(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.topics[name]) > 0
}

// TopicsOf lists the topics that have a share on a broker of a cluster, sorted;
// none for a cluster that is not known. Java: RouteInfoManager.getTopicsByCluster.
func (t *Table) TopicsOf(cluster string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.selectLocked(func(shares map[string]protocol.QueueData) bool {
		for name := range t.clusters[cluster] {
			if _, ok := shares[name]; ok {
				return true
			}
		}
		return false
	})
}

// UnitTopics lists the topics with certain marks of units on their share of the
// first broker, by name; sorted. Java: RouteInfoManager.getUnitTopics,
// getHasUnitSubTopicList, getHasUnitSubUnUnitTopicList.
func (t *Table) UnitTopics(which protocol.UnitTopics) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.selectLocked(func(shares map[string]protocol.QueueData) bool {
		flag := shares[slices.Min(slices.Collect(maps.Keys(shares)))].SysFlag
		unit, subscribed := flag&protocol.SysFlagUnit != 0, flag&protocol.SysFlagUnitSubscribed != 0
		switch which {
		case protocol.UnitTopicsSubscribed:
			return subscribed
		case protocol.UnitTopicsForeign:
			return subscribed && !unit
		}
		return unit
	})
}

// selectLocked lists the topics with shares that f wants, sorted.
func (t *Table) selectLocked(f func(shares map[string]protocol.QueueData) bool) []string {
	var topics []string
	for name, shares := range t.topics {
		if f(shares) {
			topics = append(topics, name)
		}
	}
	slices.Sort(topics)
	return topics
}

// SystemTopics lists the names of clusters and brokers, which brokers have
// topics of, sorted, and the address of a broker that knows the system's other
// topics: that of the first group's lowest id, "" when there is none.
// Java: RouteInfoManager.getSystemTopicList.
func (t *Table) SystemTopics() (topics []string, broker string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for cluster, names := range t.clusters {
		topics = append(topics, cluster)
		topics = slices.AppendSeq(topics, maps.Keys(names))
	}
	slices.Sort(topics)
	for _, name := range slices.Sorted(maps.Keys(t.brokers)) {
		if addrs := t.brokers[name].addrs; len(addrs) > 0 {
			broker = addrs[slices.Min(slices.Collect(maps.Keys(addrs)))]
			break
		}
	}
	return slices.Compact(topics), broker
}

// RegisterTopic makes a topic routable that no broker has brought. One that is
// known stays as it is, and nothing happens either when there are no queues, when
// one of the brokers is not known, or when there is no room. Of several shares of one broker the last
// counts. Java: RouteInfoManager.registerTopic.
func (t *Table) RegisterTopic(name string, queues []protocol.QueueData) Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	if name == "" || len(queues) == 0 || t.topics[name] != nil || t.shares+len(queues) > t.limits.shares {
		return Change{}
	}
	shares := make(map[string]protocol.QueueData)
	for _, q := range queues {
		if t.brokers[q.BrokerName] == nil {
			return Change{}
		}
		shares[q.BrokerName] = bounded(q)
	}
	t.topics[name] = shares
	t.shares += len(shares)
	t.showLocked(name)
	return Change{Topics: []string{name}}
}

// DeleteTopic takes a topic out of the routes: of all brokers, or, when cluster
// is not empty, of those of that cluster. It reports whether the route changed.
// A broker that still has the topic brings it back when its topics change, and
// with its next full registration. Java: RouteInfoManager.deleteTopic.
func (t *Table) DeleteTopic(name, cluster string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	shares := t.topics[name]
	before := len(shares)
	if cluster == "" {
		clear(shares)
	}
	for broker := range t.clusters[cluster] {
		delete(shares, broker)
	}
	if len(shares) == 0 {
		delete(t.topics, name)
	}
	t.shares -= before - len(shares)
	t.showLocked(name)
	return len(shares) != before
}

// WipeWritePerm takes the write permission from all topics of a broker, and
// returns how many it has. A topic gets its own permission back when the broker
// registers it with a new data version.
// Java: RouteInfoManager.wipeWritePermOfBrokerByLock.
func (t *Table) WipeWritePerm(brokerName string) (topics int, c Change) {
	return t.permit(brokerName, func(p protocol.Perm) protocol.Perm { return p &^ protocol.PermWrite })
}

// AddWritePerm makes all topics of a broker readable and writable, whatever they
// were, and returns how many it has.
// Java: RouteInfoManager.addWritePermOfBrokerByLock.
func (t *Table) AddWritePerm(brokerName string) (topics int, c Change) {
	return t.permit(brokerName, func(protocol.Perm) protocol.Perm { return protocol.PermRead | protocol.PermWrite })
}

func (t *Table) permit(brokerName string, perm func(protocol.Perm) protocol.Perm) (topics int, c Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, shares := range t.topics {
		share, ok := shares[brokerName]
		if !ok {
			continue
		}
		topics++
		if p := perm(share.Perm); p != share.Perm {
			share.Perm = p
			shares[brokerName] = share
			c.Topics = append(c.Topics, name)
		}
	}
	slices.Sort(c.Topics)
	t.showLocked(c.Topics...)
	return topics, c
}

// InZone takes the broker groups out of a route that have a master and stand in
// another zone, with their queues and filter servers. Java: ZoneRouteRPCHook.
func InZone(r protocol.TopicRoute, zone string) protocol.TopicRoute {
	elsewhere := make(map[string]bool)
	r.Brokers = slices.DeleteFunc(r.Brokers, func(b protocol.BrokerData) bool {
		if _, master := b.Addrs[protocol.MasterID]; !master || strings.EqualFold(b.Zone, zone) {
			return false
		}
		elsewhere[b.BrokerName] = true
		for _, addr := range b.Addrs {
			delete(r.FilterServers, addr)
		}
		return true
	})
	r.Queues = slices.DeleteFunc(r.Queues, func(q protocol.QueueData) bool { return elsewhere[q.BrokerName] })
	return r
}
