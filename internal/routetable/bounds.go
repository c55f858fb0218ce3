package routetable

import (
	"github.com/pocketmq/pocketmq/protocol"
)

// MaxQueues bounds the queues of a topic on one broker, as our brokers do. Those
// beyond it are in no route.
const MaxQueues = 65535

// limits bound what strangers can make a table hold: with the default ones less
// than 512 MiB, whatever they register.
type limits struct {
	groups  int // broker groups
	live    int // live brokers
	shares  int // of all topics together: a topic on a broker group is one
	filters int // filter servers of a broker
	text    int // bytes of a name or an address
}

func defaultLimits() limits {
	return limits{groups: 4096, live: 16_384, shares: 1 << 18, filters: 64, text: 255}
}

// bounded keeps the numbers of queues within what clients can make of them:
// they list them one by one, whoever told a name server of them.
func bounded(q protocol.QueueData) protocol.QueueData {
	q.ReadQueues = min(max(q.ReadQueues, 0), MaxQueues)
	q.WriteQueues = min(max(q.WriteQueues, 0), MaxQueues)
	return q
}

// roomLocked tells whether there is room for what a registration brings. It
// forgets groups that have no address when there are too many: nobody else would.
func (t *Table) roomLocked(at place, r *protocol.RegisterBrokerRequest) error {
	refuse := func(format string, args ...any) error {
		return protocol.Errorf(protocol.SystemError, "register broker failed: "+format, args...)
	}
	texts := append([]string{r.Cluster, r.BrokerName, r.Addr, r.HAAddr, r.Zone}, r.FilterServers...)
	for _, topic := range r.Topics {
		texts = append(texts, topic.Name)
	}
	for _, text := range texts {
		if len(text) > t.limits.text {
			return refuse("a name or address has %d bytes, at most %d are allowed", len(text), t.limits.text)
		}
	}
	if len(r.FilterServers) > t.limits.filters {
		return refuse("%d filter servers, at most %d are allowed", len(r.FilterServers), t.limits.filters)
	}
	if t.live[at] == nil && len(t.live) >= t.limits.live {
		return refuse("there are %d brokers, at most %d are allowed", len(t.live), t.limits.live)
	}
	if t.brokers[r.BrokerName] == nil && len(t.brokers) >= t.limits.groups {
		for name, g := range t.brokers {
			if len(g.addrs) == 0 {
				t.forgetLocked(name)
			}
		}
		if len(t.brokers) >= t.limits.groups {
			return refuse("there are %d broker groups, at most %d are allowed", len(t.brokers), t.limits.groups)
		}
	}
	fresh := 0
	for _, topic := range r.Topics {
		if _, known := t.topics[topic.Name][r.BrokerName]; !known {
			fresh++
		}
	}
	if r.BrokerID == protocol.MasterID && t.shares+fresh > t.limits.shares {
		return refuse("the topics of all brokers are %d, %d more would be more than the %d that are allowed", t.shares, fresh, t.limits.shares)
	}
	return nil
}
