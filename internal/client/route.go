package client

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Route is where a topic lies. It is shared by all who ask: nobody may change
// it or what it holds. A changed route is a new Route.
//
// Differs from Java: static topics, whose queues are logical ones mapped to
// brokers, are not known. Their queues are those of the brokers that the route
// names, as in the official Go client. That client otherwise differs from both
// in malformed OrderConfs: it panics at a semicolon at the end, and takes what
// is no number for 0, which is an error here as in Java.
type Route struct {
	Topic string
	protocol.TopicRoute

	// Publish lists the queues that can be sent to: writable ones on brokers
	// that have a master, or those of OrderConf if there is one. Sorted; a
	// broker that the name server lists twice is there twice.
	// Java: MQClientInstance.topicRouteData2TopicPublishInfo. Differs: those of
	// an OrderConf are sorted too, so that one sharding key always means one
	// queue.
	Publish []message.Queue

	// Subscribe lists the readable queues, each once, sorted.
	// Java: MQClientInstance.topicRouteData2TopicSubscribeInfo.
	Subscribe []message.Queue
}

// newRoute takes over r. A malformed OrderConf is an error, as it is in Java.
func newRoute(topic string, r protocol.TopicRoute) (*Route, error) {
	slices.SortStableFunc(r.Queues, func(a, b protocol.QueueData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
	slices.SortStableFunc(r.Brokers, func(a, b protocol.BrokerData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
	route := &Route{Topic: topic, TopicRoute: r, Subscribe: readable(topic, r.Queues)}
	if r.OrderConf == "" {
		route.Publish = writable(topic, r)
		return route, nil
	}
	publish, err := ordered(topic, r.OrderConf)
	if err != nil {
		return nil, err
	}
	route.Publish = publish
	return route, nil
}

func readable(topic string, data []protocol.QueueData) []message.Queue {
	var queues []message.Queue
	for _, q := range data {
		if q.Perm&protocol.PermRead != 0 {
			queues = appendQueues(queues, topic, q.BrokerName, q.ReadQueues)
		}
	}
	slices.SortFunc(queues, message.Queue.Compare)
	return slices.Compact(queues)
}

func writable(topic string, r protocol.TopicRoute) []message.Queue {
	var queues []message.Queue
	for _, q := range r.Queues {
		if q.Perm&protocol.PermWrite != 0 && hasMaster(r.Brokers, q.BrokerName) {
			queues = appendQueues(queues, topic, q.BrokerName, q.WriteQueues)
		}
	}
	return queues
}

// hasMaster looks at the first of several brokers of that name only, as Java
// does.
func hasMaster(brokers []protocol.BrokerData, name string) bool {
	for _, b := range brokers {
		if b.BrokerName == name {
			_, ok := b.Addrs[protocol.MasterID]
			return ok
		}
	}
	return false
}

// ordered reads the queues of an ordered topic, "broker-a:4;broker-b:2".
// Fields after the second are ignored, and so are semicolons at the end.
func ordered(topic, conf string) ([]message.Queue, error) {
	type share struct {
		broker string
		queues int
	}
	var shares []share
	if conf = strings.TrimRight(conf, ";"); conf == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(conf, ";") {
		broker, rest, _ := strings.Cut(part, ":")
		number, _, _ := strings.Cut(rest, ":")
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("route of topic %q: order configuration %q: %q is not of the form broker:queues", topic, conf, part)
		}
		shares = append(shares, share{broker, int(n)})
	}
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(a.broker, b.broker) })
	var queues []message.Queue
	for _, s := range shares {
		queues = appendQueues(queues, topic, s.broker, s.queues)
	}
	return queues, nil
}

func appendQueues(queues []message.Queue, topic, broker string, n int) []message.Queue {
	for id := range n {
		queues = append(queues, message.Queue{Topic: topic, BrokerName: broker, QueueID: id})
	}
	return queues
}

// MissesMaster tells whether a group that could be sent to has slaves only.
func (r *Route) MissesMaster() bool {
	return slices.ContainsFunc(r.Queues, func(q protocol.QueueData) bool { return sendable(q) && !hasMaster(r.Brokers, q.BrokerName) })
}

// Masterless tells whether a queue cannot be sent to only because its broker group has
// no master.
func (r *Route) Masterless(queue message.Queue) bool {
	return slices.ContainsFunc(r.Queues, func(q protocol.QueueData) bool {
		return q.BrokerName == queue.BrokerName && sendable(q) && queue.QueueID < q.WriteQueues && !hasMaster(r.Brokers, q.BrokerName)
	})
}

// sendable tells whether queues take messages when their group has a master.
func sendable(q protocol.QueueData) bool { return q.Perm&protocol.PermWrite != 0 && q.WriteQueues > 0 }

// equal tells whether two routes mean the same to a client.
// Java: MQClientInstance.topicRouteDataIsChange.
func (r *Route) equal(o *Route) bool {
	return r.OrderConf == o.OrderConf && slices.Equal(r.Queues, o.Queues) && slices.EqualFunc(r.Brokers, o.Brokers, sameBroker)
}

func sameBroker(a, b protocol.BrokerData) bool {
	return a.Cluster == b.Cluster && a.BrokerName == b.BrokerName && maps.Equal(a.Addrs, b.Addrs)
}
