package pocketmq

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/internal/consume"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// groupMember is what a Consumer and a PullConsumer have in common: how each is
// a client of its group.
type groupMember struct {
	group, instance string
	nameServers     []string
	transport       Transport
	subscriptions   map[string]Filter
	model           MessageModel
	offsetDir       string
}

// check reports what is wrong with the common part of a config and returns the
// subscriptions, compiled. nameServers becomes a copy.
func (m *groupMember) check(p *problems) map[string]filter.Tags {
	p.check("Group", message.ValidateGroup(m.group))
	checkInstance(p, m.instance)
	m.nameServers = checkNameServers(p, m.nameServers)
	if m.transport == nil {
		p.add("Transport is nil: use pocketmq.InMemory() or pocketmq.TCP(host)")
	}
	subs := make(map[string]filter.Tags, len(m.subscriptions))
	for _, topic := range slices.Sorted(maps.Keys(m.subscriptions)) {
		p.check("Subscriptions", message.CheckTopic(topic))
		f := m.subscriptions[topic]
		if f.err != nil {
			p.add("Subscriptions[%q]: %v", topic, f.err)
		}
		subs[topic] = f.tags
	}
	switch {
	case m.model != Clustering && m.model != Broadcasting:
		p.add("Model is %d, must be Clustering or Broadcasting", int(m.model))
	case m.offsetDir != "" && m.model == Clustering:
		p.add("OffsetDir is for a Broadcasting consumer: brokers keep the offsets of a clustering group")
	case m.offsetDir != "" && strings.ContainsAny(m.instance, `/\`):
		p.add("InstanceName %q names a folder below OffsetDir and must not hold a slash or backslash", m.instance)
	}
	return subs
}

// offsetFile returns where a broadcasting member keeps its offsets, "" = in
// memory.
func (m *groupMember) offsetFile(clientID string, log *slog.Logger) string {
	if m.offsetDir == "" {
		return ""
	}
	file := filepath.Join(m.offsetDir, clientID, m.group, "offsets.json")
	if m.instance == "" {
		log.Warn("the offsets of this consumer are not found again, since its client id is new each time: give it an InstanceName", "file", file)
	}
	return file
}

// client makes the connections and routes of a member; engine returns what it is
// for, from the client's Start on.
func (m *groupMember) client(clientID string, t *Timings, log *slog.Logger, engine func() *consume.Engine) *client.Client {
	return client.New(client.Config{
		Node: clientID, NameServers: m.nameServers, Transport: m.transport,
		Peer:         &consumerPeer{group: m.group, engine: engine},
		RouteRefresh: t.RouteRefresh, RouteRetry: t.RouteRetry, Heartbeat: t.ClientHeartbeat, Logger: log,
		HeartbeatData: func() *protocol.HeartbeatRequest {
			if !engine().Member() {
				return nil
			}
			return &protocol.HeartbeatRequest{ClientID: clientID, Consumers: []protocol.ConsumerData{engine().ConsumerData()}}
		},
		RoutesChanged: func(topics []string) { engine().RoutesChanged(topics) },
	})
}

// tell has what happens to an engine emitted as events.
func (m *groupMember) tell(cfg *consume.Config, clientID string, events *emitter) {
	cfg.OnRebalanced = func(r consume.Rebalanced) {
		events.emit(clientID, func(b EventBase) Event {
			return Rebalanced{b, m.group, clientID, r.Topic, r.Before, r.After, r.Reason}
		})
	}
	cfg.OnIdle = func(i consume.Idle) {
		events.emit(clientID, func(b EventBase) Event {
			return ConsumerIdle{b, m.group, clientID, i.Topic, i.Members, i.Queues, i.Strategy}
		})
	}
	cfg.OnJumped = func(j consume.Jumped) {
		events.emit(clientID, func(b EventBase) Event { return OffsetJumped{b, m.group, j.Queue, j.From, j.To} })
	}
}
