package remoting

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Network is what connections are made of. Safe for concurrent use.
type Network interface {
	// Listen listens on an IP literal with a port; port 0 is any free one. The
	// listener's Addr is a *net.TCPAddr.
	Listen(ctx context.Context, addr string) (net.Listener, error)
	// Dial connects to addr. It gives up when ctx ends.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// Transport is a protocol.Transport whose calls are RocketMQ's commands on
// connections of a Network. It may be shared by several clusters. Safe for
// concurrent use. It needs no Close: all it holds belongs to listeners and
// sessions.
type Transport struct {
	host   string
	net    Network
	secure *security

	mu     sync.Mutex // guards what follows
	claims map[claim]*claim
	addrs  map[string]string // node, or streamsOf it -> where it listened before its last Close
}

var _ protocol.Transport = (*Transport)(nil)

type claim struct{ group, clientID string }

// NewTransport returns a Transport whose servers listen on host, a name or an
// IP literal that is resolved when the first of them does, unless their own
// address says otherwise.
func NewTransport(host string, n Network) *Transport { return NewTransportWith(host, n, Options{}) }

// NewTransportWith is NewTransport with options. What is wrong with them is
// protocol.ErrInvalidConfig of whoever listens or dials.
func NewTransportWith(host string, n Network, o Options) *Transport {
	t := &Transport{host: host, net: n, secure: newSecurity(o), claims: make(map[claim]*claim), addrs: make(map[string]string)}
	if _, _, err := net.SplitHostPort(host); t.secure.err == nil && (err == nil || strings.HasPrefix(host, "[")) {
		t.secure.err = fmt.Errorf("%w: the host of a TCP transport is %q: want a host alone, without a port or brackets, such as 127.0.0.1 or ::1", protocol.ErrInvalidConfig, host)
	}
	return t
}

// TCP is the Network of the operating system.
type TCP struct{}

// Listen implements Network.
func (TCP) Listen(ctx context.Context, addr string) (net.Listener, error) {
	var c net.ListenConfig
	return c.Listen(ctx, "tcp", addr)
}

// Dial implements Network.
func (TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// ListenNameServer serves s until the listener is closed. l.Addr is an IP
// literal with a port; "" means the transport's host and a free port, of a node
// that has listened before the one that it had. Nobody is told where a name
// server is, so that it may listen on a wildcard address; its own Addr is then
// the loopback's. It blocks as long as it takes to resolve the host.
func (t *Transport) ListenNameServer(ctx context.Context, l protocol.Listen, s protocol.NameServer) (protocol.Listener, error) {
	return listen(ctx, t, l, false, nameServerRows(), s.Connect)
}

// ListenBroker is ListenNameServer for a broker. A wildcard address that is not
// advertised as another one is refused with protocol.ErrInvalidConfig: clients
// are told where brokers are.
func (t *Transport) ListenBroker(ctx context.Context, l protocol.Listen, s protocol.Broker) (protocol.Listener, error) {
	return listen(ctx, t, l, true, brokerRows(), s.Connect)
}

// DialNameServer opens a session with the name server at d.Addr, over TLS if the
// options say so. A refused dial, a handshake that fails, and one that ctx ends,
// match protocol.ErrUnreachable, the latter ctx's error as well, a refused
// certificate also its error of crypto/x509. What listens there turns out with
// the first call.
func (t *Transport) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	c, err := t.dial(ctx, d)
	if err != nil {
		return nil, err
	}
	return nameServerClient{c}, nil
}

// DialBroker is DialNameServer for a broker. Its requests come through d.Peer,
// notices one by one and in their order.
func (t *Transport) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	c, err := t.dial(ctx, d)
	if err != nil {
		return nil, err
	}
	return brokerClient{c}, nil
}

func (t *Transport) dial(ctx context.Context, d protocol.Dial) (*client, error) {
	conn, err := t.connect(ctx, d)
	if err != nil {
		return nil, err
	}
	return newClient(conn, d.Addr, d.Node, d.Peer), nil
}

// connect dials d.Addr, over TLS if the options say so.
func (t *Transport) connect(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	if _, _, err := net.SplitHostPort(d.Addr); err != nil {
		return nil, protocol.Tagged(fmt.Sprintf("%v: address to dial %q: want host:port", protocol.ErrInvalidConfig, d.Addr),
			protocol.ErrUnreachable, protocol.ErrInvalidConfig)
	}
	if err := t.secure.err; err != nil {
		return nil, protocol.Tagged(err.Error(), protocol.ErrUnreachable, protocol.ErrInvalidConfig)
	}
	start := time.Now()
	if err := ctx.Err(); err != nil {
		return nil, errDialEnded(d.Addr, 0, err)
	}
	conn, err := t.net.Dial(ctx, d.Addr)
	if err != nil {
		if ended := pastDeadline(ctx); ended != nil {
			return nil, errDialEnded(d.Addr, time.Since(start), ended)
		}
		return nil, errRefused(d.Addr, err)
	}
	return t.secure.secure(ctx, conn, d.Addr)
}

// Claim reserves (group, clientID) until release is called. A pair that is
// taken is refused with protocol.ErrDuplicateClient.
func (t *Transport) Claim(group, clientID string) (release func(), err error) {
	c := &claim{group, clientID}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.claims[*c] != nil {
		return nil, fmt.Errorf("%w: group %q has a running client with id %q on this transport; set a different InstanceName",
			protocol.ErrDuplicateClient, group, clientID)
	}
	t.claims[*c] = c
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.claims[*c] == c {
			delete(t.claims, *c)
		}
	}, nil
}

// listen serves what connect opens. told says that clients are told the address
// by others.
func listen[S serverConn](ctx context.Context, t *Transport, at protocol.Listen, told bool, rows []row[S], connect func(protocol.Session) S) (protocol.Listener, error) {
	b, err := t.listenAt(ctx, at, told, at.Node)
	if err != nil {
		return nil, err
	}
	var here site
	if told { // a broker, and no name server
		here.broker, _, _ = strings.Cut(at.Node, "/")
	}
	l := serve(b.net, b.told, here, rows, connect, t.secure, defaultLimits())
	return &remembered[S]{l, t, at.Node, b.bind}, nil
}

// bound is a listener of the network, with where it listens and what peers dial.
type bound struct {
	net        net.Listener
	bind, told string
}

// listenAt listens where at says, without it where who is remembered by key has
// listened before, or on a free port. told is as for listen.
func (t *Transport) listenAt(ctx context.Context, at protocol.Listen, told bool, key string) (b bound, err error) {
	if err := ctx.Err(); err != nil {
		return b, fmt.Errorf("listen for %s: %w", at.Node, err)
	}
	if err := t.secure.err; err != nil {
		return b, fmt.Errorf("listen for %s: %w", at.Node, err)
	}
	bind, err := t.bindAddr(ctx, at, key)
	if err != nil {
		return b, err
	}
	var advertised netip.AddrPort
	if at.Advertise != "" {
		if advertised, err = netip.ParseAddrPort(at.Advertise); err != nil {
			return b, errAddress("advertised address of "+at.Node, at.Advertise)
		}
	}
	if bind.Addr().IsUnspecified() && !advertised.IsValid() {
		if told {
			return b, protocol.WildcardAddr(bind, at.Node)
		}
		advertised = netip.AddrPortFrom(protocol.LoopbackOf(bind.Addr()), 0)
	}
	ln, err := t.bind(ctx, bind)
	if err != nil {
		return b, fmt.Errorf("listen for %s on %v: %w", at.Node, bind, err)
	}
	t.mu.Lock()
	delete(t.addrs, key) // what it had before is its own again, or free
	t.mu.Unlock()
	bound, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		return b, errors.Join(fmt.Errorf("listen for %s: the network listens on %v, which is no IP address", at.Node, ln.Addr()), ln.Close())
	}
	bind = netip.AddrPortFrom(bind.Addr(), uint16(bound.Port))
	dialled := bind
	if advertised.IsValid() {
		dialled = advertised
		if dialled.Port() == 0 {
			dialled = netip.AddrPortFrom(dialled.Addr(), bind.Port())
		}
	}
	b.net, b.bind, b.told = ln, bind.String(), dialled.String()
	return b, nil
}

// Ports of servers that ask for none lie below those that systems give to
// outgoing connections: one of these could have taken the port of a server by the
// time that it is restarted.
const (
	firstPort = 20_000
	lastPort  = 29_999
	portTries = 16
)

// bind listens on addr, for port 0 on one that is free.
func (t *Transport) bind(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	if addr.Port() == 0 {
		for range portTries {
			port := firstPort + rand.N(lastPort-firstPort+1)
			if ln, err := t.net.Listen(ctx, netip.AddrPortFrom(addr.Addr(), uint16(port)).String()); err == nil {
				return ln, nil
			}
		}
	}
	return t.net.Listen(ctx, addr.String())
}

// remembered is a listener whose address its node gets again.
type remembered[S serverConn] struct {
	*listener[S]
	t          *Transport
	node, bind string
}

// Close is listener.Close.
func (r *remembered[S]) Close() error {
	err := r.listener.Close()
	r.t.remember(r.node, r.bind)
	return err
}

// remember has who listens by that key listen again where it did.
func (t *Transport) remember(key, bind string) {
	if key == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addrs[key] = bind
}

// bindAddr is where a node is to listen.
func (t *Transport) bindAddr(ctx context.Context, at protocol.Listen, key string) (netip.AddrPort, error) {
	if at.Addr != "" {
		addr, err := netip.ParseAddrPort(at.Addr)
		if err != nil {
			return addr, errAddress("listen address of "+at.Node, at.Addr)
		}
		return addr, nil
	}
	t.mu.Lock()
	again, ok := t.addrs[key]
	t.mu.Unlock()
	if ok {
		return netip.ParseAddrPort(again)
	}
	ip, err := netip.ParseAddr(t.host)
	if err == nil {
		return netip.AddrPortFrom(ip, 0), nil
	}
	if t.host == "" {
		return netip.AddrPort{}, fmt.Errorf("%w: the transport has no host; name one, such as 127.0.0.1", protocol.ErrInvalidConfig)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen for %s: %w", at.Node, err)
	}
	best := ips[0]
	for _, ip := range ips {
		if ip.Unmap().Is4() { // RocketMQ's clients know IPv4 best
			best = ip
			break
		}
	}
	return netip.AddrPortFrom(best.Unmap(), 0), nil
}

// errAddress is an address that no socket could have.
func errAddress(what, addr string) error {
	return fmt.Errorf("%w: %s %q: want an IP literal with a port, such as 127.0.0.1:10911", protocol.ErrInvalidConfig, what, addr)
}
