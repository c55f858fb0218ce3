package pocketmq

import (
	"context"
	"net"
	"time"

	"github.com/pocketmq/pocketmq/internal/memnet"
	"github.com/pocketmq/pocketmq/protocol"
)

// MemoryNetwork is a Transport inside one process: calls are direct, addresses
// are labels, and links can be broken. Several clusters may share one. It
// holds no resources: there is nothing to close. Safe for concurrent use.
//
// A node is named by its node name ("ns-0"; "broker-a/0" = group and id; a
// client's ClientID) or by its address; "*" is everybody. Rules for a pair of
// nodes hold for sessions that exist and for those to come, until Heal.
type MemoryNetwork struct{ net *memnet.Network }

// InMemory makes a network without nodes.
func InMemory() *MemoryNetwork { return &MemoryNetwork{memnet.New()} }

// Cut breaks the link both ways: sessions, calls in flight and dials fail at
// once, as when a host is switched off and its network says so.
func (n *MemoryNetwork) Cut(a, b string) { n.net.Cut(a, b) }

// CutOneWay makes whatever from sends to to vanish, silently: requests are not
// served, or answers do not arrive.
func (n *MemoryNetwork) CutOneWay(from, to string) { n.net.CutOneWay(from, to) }

// Drop makes everything between a and b vanish, silently: nothing arrives,
// nothing is reset, callers run into their deadlines.
func (n *MemoryNetwork) Drop(a, b string) { n.net.Drop(a, b) }

// Delay makes everything between a and b take d longer, each way. 0 removes
// the delay.
func (n *MemoryNetwork) Delay(a, b string, d time.Duration) { n.net.Delay(a, b, d) }

// Heal removes every rule between a and b, in both directions.
func (n *MemoryNetwork) Heal(a, b string) { n.net.Heal(a, b) }

// HealAll removes every rule.
func (n *MemoryNetwork) HealAll() { n.net.HealAll() }

// ListenNameServer implements Transport.
func (n *MemoryNetwork) ListenNameServer(ctx context.Context, l protocol.Listen, s protocol.NameServer) (protocol.Listener, error) {
	return n.net.ListenNameServer(ctx, l, s)
}

// ListenBroker implements Transport.
func (n *MemoryNetwork) ListenBroker(ctx context.Context, l protocol.Listen, s protocol.Broker) (protocol.Listener, error) {
	return n.net.ListenBroker(ctx, l, s)
}

// DialNameServer implements Transport.
func (n *MemoryNetwork) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	return n.net.DialNameServer(ctx, d)
}

// DialBroker implements Transport.
func (n *MemoryNetwork) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	return n.net.DialBroker(ctx, d)
}

// ListenStream implements Transport. Rules hold for streams, too: what a rule
// silences is not lost, though, but held by its sender, whose Write waits behind
// 64 KiB, and arrives after Heal, as TCP would send it again.
func (n *MemoryNetwork) ListenStream(ctx context.Context, l protocol.Listen) (net.Listener, error) {
	return n.net.ListenStream(ctx, l)
}

// DialStream implements Transport.
func (n *MemoryNetwork) DialStream(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	return n.net.DialStream(ctx, d)
}

// Claim implements Transport.
func (n *MemoryNetwork) Claim(group, clientID string) (release func(), err error) {
	return n.net.Claim(group, clientID)
}
