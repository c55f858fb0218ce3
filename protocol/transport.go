package protocol

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Transport is the one boundary between members of a cluster. Everything that
// crosses it goes through the services of this package. Safe for concurrent
// use.
//
// A call returns as soon as its ctx ends, with ErrUnknownOutcome if it was under way.
// The ctx of the handler ends then, too, and for the same reason: at its caller's
// deadline, or when that cancels.
type Transport interface {
	// ListenNameServer serves s on l.Addr until the Listener is closed. It does
	// not wait for anybody. Nobody is told where name servers are, so one may
	// listen on a wildcard address: its Listener's Addr is then one that callers
	// on the same machine can dial.
	ListenNameServer(ctx context.Context, l Listen, s NameServer) (Listener, error)
	// ListenBroker is ListenNameServer for a broker. A wildcard address without
	// l.Advertise is ErrInvalidConfig: clients are told where brokers are.
	ListenBroker(ctx context.Context, l Listen, s Broker) (Listener, error)
	// DialNameServer opens a session. A refused dial is ErrUnreachable.
	DialNameServer(ctx context.Context, d Dial) (NameServerConn, error)
	// DialBroker opens a session; the broker reaches the caller through d.Peer.
	DialBroker(ctx context.Context, d Dial) (BrokerConn, error)
	// ListenStream listens for streams of bytes, on which servers of one cluster
	// talk to each other. l is as for ListenBroker, of which the listener is
	// independent: a node may have both, each at an address of its own that it gets
	// again. The listener's Addr is what peers dial. As with package net, its Close
	// ends what nobody has accepted, and leaves what was accepted to its owner.
	//
	// A stream's RemoteAddr says where it comes from; who dialled is for what is
	// said on it. The dialler speaks first: until it has, a Write of the accepting
	// side may wait, and so may DialStream itself where TLS asks for an answer.
	// Errors are those of package net: io.EOF behind the last byte of a side that
	// has closed, syscall.ECONNRESET or EPIPE where a connection is lost,
	// net.ErrClosed of one's own Close, os.ErrDeadlineExceeded.
	ListenStream(ctx context.Context, l Listen) (net.Listener, error)
	// DialStream opens a stream; d.Node says for whom, d.Peer is not used. A refused
	// dial is ErrUnreachable.
	DialStream(ctx context.Context, d Dial) (net.Conn, error)
	// Claim reserves (group, clientID) among all clients that dial through
	// this Transport. A pair that is taken is ErrDuplicateClient. release may
	// be called more than once.
	Claim(group, clientID string) (release func(), err error)
}

// Listen says who listens where.
type Listen struct {
	Node      string // the node's name: "ns-0", "broker-a/0"
	Addr      string // IP literal and port; "" = chosen by the transport, for a node that has closed its Listener where it listened before
	Advertise string // what peers are told instead of Addr, port 0 = the one of Addr; "" = Addr
}

// Dial says who calls whom.
type Dial struct {
	Node string // the caller's node name: a client id, a broker's name
	Addr string
	Peer Peer // calls from the server; nil = none are wanted
}

// Session is how a server sees one caller.
type Session struct {
	Node   string         // the caller's node name; "" when the transport can't tell, as of official clients
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

// Drainer is a Listener on whose connections answers may still be under way when the
// server has given them. Others have none.
type Drainer interface {
	Listener
	// Drain ends every session in good order: what was asked before is answered, and
	// the answers leave. It blocks until that is so, or shortly after ctx ends. Held
	// pulls end at once. Close follows.
	Drain(ctx context.Context)
}

// WildcardAddr is the refusal of a broker that listens on a wildcard address and
// advertises no other one. It matches ErrInvalidConfig.
func WildcardAddr(addr netip.AddrPort, node string) error {
	return Tagged(fmt.Sprintf("%v: %s listens on the wildcard address %v, which clients can't dial; set AdvertiseAddr to an address of this machine", ErrInvalidConfig, node, addr), ErrInvalidConfig)
}

// LoopbackOf is the loopback address that reaches who listens on the wildcard
// address ip.
func LoopbackOf(ip netip.Addr) netip.Addr {
	if ip.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
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
