package protocol

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
)

// Transport is the one boundary between members of a cluster. Everything that
// crosses it goes through the services of this package. Safe for concurrent
// use.
type Transport interface {
	// ListenNameServer serves s on l.Addr ("" = chosen by the transport) until
	// the Listener is closed. It does not block.
	ListenNameServer(ctx context.Context, l Listen, s NameServer) (Listener, error)
	// ListenBroker is ListenNameServer for a broker.
	ListenBroker(ctx context.Context, l Listen, s Broker) (Listener, error)
	// DialNameServer opens a session. A refused dial is ErrUnreachable.
	DialNameServer(ctx context.Context, d Dial) (NameServerConn, error)
	// DialBroker opens a session; the broker reaches the caller through d.Peer.
	DialBroker(ctx context.Context, d Dial) (BrokerConn, error)
	// Claim reserves (group, clientID) among all clients that dial through
	// this Transport. A pair that is taken is ErrDuplicateClient. release may
	// be called more than once.
	Claim(group, clientID string) (release func(), err error)
}

// Listen says who listens where.
type Listen struct {
	Node      string // the node's name: "ns-0", "broker-a/0"
	Addr      string // host:port; "" = chosen by the transport
	Advertise string // what peers are told instead of Addr; "" = Addr
}

// Dial says who calls whom.
type Dial struct {
	Node string // the caller's node name: a client id, a broker's name
	Addr string
	Peer Peer // calls from the server; nil = none are wanted
}

// Session is how a server sees one caller.
type Session struct {
	Node   string         // the caller's node name; "" when the transport can't tell (TCP)
	Remote netip.AddrPort // born host of what the caller sends
	Peer   Peer           // never nil
}

// Listener is a served address.
type Listener interface {
	// Addr is the address that peers dial: an IP literal with a port.
	Addr() string
	// Close stops accepting, ends every session, cancels the calls in flight
	// and returns when the last of them has returned.
	Close() error
}

// Detached returns a copy of a request, to be served after its call has
// returned: the callee may keep the copy. It clones what callers reuse, the
// Body of a SendMessageRequest and the Queues of an UnlockQueuesRequest; other
// slices and maps of requests are never written again.
func Detached[Q any](q *Q) *Q {
	own := *q
	switch r := any(&own).(type) {
	case *SendMessageRequest:
		r.Body = bytes.Clone(r.Body)
	case *UnlockQueuesRequest:
		r.Queues = slices.Clone(r.Queues)
	}
	return &own
}
