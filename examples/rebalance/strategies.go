package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/rebalance"
)

// A strategy decides who gets which queues. All members of a group must use the
// same one.
type strategy struct {
	name  string
	about string

	// of makes the strategy of one member. All are made alike, but for CONFIG,
	// where each has a list of its own.
	of func(member string) rebalance.Strategy
	// gaps: it leaves queues to nobody when their member is gone.
	gaps bool
	// rename: it needs brokers whose names say in which room they are.
	rename bool
}

// strategies are the six of RocketMQ and two of our own.
func strategies() []strategy {
	same := func(s rebalance.Strategy) func(string) rebalance.Strategy {
		return func(string) rebalance.Strategy { return s }
	}
	return []strategy{
		{name: "AVG", about: "blocks of neighbours; the default", of: same(rebalance.Averagely)},
		{name: "AVG_BY_CIRCLE", about: "one by one, as cards are dealt", of: same(rebalance.AveragelyByCircle)},
		{name: "CONSISTENT_HASH", about: "a ring of hashes: moves nothing in vain, shares unevenly", of: same(rebalance.ConsistentHash(rebalance.DefaultVirtualNodes))},
		{name: "MACHINE_ROOM_NEARBY", about: "anna and carla are in the room of broker-a, bert and dora in that of broker-b", of: same(rebalance.MachineRoomNearby(rebalance.Averagely, rooms{}))},
		{name: "MACHINE_ROOM", about: "the rooms are in the brokers' names, north@a and south@b here; brokers of PocketMQ have no @", of: same(rebalance.MachineRoom("north", "south")), rename: true},
		{name: "CONFIG", about: "each member has a list of its own, and nobody stands in for it", of: listOf, gaps: true},
		{name: "STICKY", about: "ours: even, and moves little (sticky.go)", of: same(sticky{})},
		{name: "CANARY", about: "ours: dora tries a new version on one queue (canary.go)", of: same(canary{"dora", rebalance.Averagely})},
	}
}

// names lists the strategies that a group of this cluster can use.
func names() []string {
	var out []string
	for _, s := range strategies() {
		if !s.rename {
			out = append(out, s.name)
		}
	}
	return out
}

func strategyOf(name string) strategy {
	all := strategies()
	return all[slices.IndexFunc(all, func(s strategy) bool { return s.name == name })]
}

// rooms says where brokers and consumers stand. In life it would look at
// addresses: a client id begins with one.
type rooms struct{}

func (rooms) BrokerRoom(q pocketmq.MessageQueue) string {
	if q.BrokerName == "broker-a" {
		return "north"
	}
	return "south"
}

func (rooms) ConsumerRoom(clientID string) string {
	if name := nameOf(clientID); name == "anna" || name == "carla" {
		return "north"
	}
	return "south"
}

// listOf is the CONFIG of a member: four queues for each of four.
func listOf(member string) rebalance.Strategy {
	at := slices.Index([]string{"anna", "bert", "carla", "dora"}, member)
	if at < 0 {
		return rebalance.ByConfig()
	}
	return rebalance.ByConfig(ordersQueues()[4*at : 4*at+4]...)
}

// ordersQueues are the queues of the topic, as every client sorts them.
func ordersQueues() []pocketmq.MessageQueue {
	var queues []pocketmq.MessageQueue
	for _, broker := range []string{"broker-a", "broker-b"} {
		for id := range 8 {
			queues = append(queues, pocketmq.MessageQueue{Topic: orders, BrokerName: broker, QueueID: id})
		}
	}
	return queues
}

// shares computes who gets what: that anybody can is how RocketMQ works without
// anybody who hands queues out.
func (s strategy) shares(queues []pocketmq.MessageQueue, members ...string) (map[string][]pocketmq.MessageQueue, error) {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = clientID(m)
	}
	rebalance.SortMembers(ids)
	out := make(map[string][]pocketmq.MessageQueue)
	for _, m := range members {
		share, err := s.of(m).Allocate(group, clientID(m), queues, ids)
		if err != nil {
			return nil, fmt.Errorf("%s for %s: %w", s.name, m, err)
		}
		slices.SortFunc(share, pocketmq.MessageQueue.Compare)
		out[m] = share
	}
	return out, nil
}

// In memory every client has this address.
func clientID(member string) string { return "127.0.0.1@" + member }

// nameOf returns the InstanceName in a client id.
func nameOf(clientID string) string {
	_, name, _ := strings.Cut(clientID, "@")
	return name
}
