package memnet

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Network is a protocol.Transport inside one process, with faults on its
// links: Cut, CutOneWay, Drop, Delay, Heal, HealAll. It may be shared by
// several clusters. Safe for concurrent use. It has no goroutines and needs no
// Close: all it holds belongs to listeners and sessions.
type Network struct {
	rules    atomic.Pointer[ruleSet] // nil: no rules, the hot path is this one load
	finished *wait                   // marks a callCtx whose call has returned

	// mu guards what follows and the fields of node, listener and session that
	// say so. It is never held while code of a server or a peer runs.
	mu        sync.Mutex
	book      book
	listeners map[string]*listener // by each address they serve
	sessions  map[*session]struct{}
	nextID    uint64
	claims    map[claim]*claim
}

var _ protocol.Transport = (*Network)(nil)

// claim is a client of a group.
type claim struct{ group, clientID string }

// New returns a network without nodes and without rules.
func New() *Network {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return &Network{
		finished:  &wait{ctx: ended, cancel: cancel},
		book:      newBook(),
		listeners: make(map[string]*listener),
		sessions:  make(map[*session]struct{}),
		claims:    make(map[claim]*claim),
	}
}

// ListenNameServer serves s for the node l.Node until the listener is closed.
// l.Addr "" means the node's own label with port 9876, the same one again
// after a Close. An explicit l.Addr is an IP literal with a port; port 0 means
// the first free one from 9876 on. Peers reach the server under l.Addr and
// under l.Advertise, where port 0 is the one listened on. A wildcard address
// that is not advertised as another one is dialled as the loopback's. An address that somebody serves is refused by name, a
// malformed one with protocol.ErrInvalidConfig. It does not block.
func (n *Network) ListenNameServer(ctx context.Context, l protocol.Listen, s protocol.NameServer) (protocol.Listener, error) {
	return served(n.listen(ctx, l, nameServerPort, &listener{names: s}))
}

// ListenBroker is ListenNameServer for a broker; the port is 10911, and a
// wildcard address that is not advertised as another one is refused with
// protocol.ErrInvalidConfig: clients are told where brokers are.
func (n *Network) ListenBroker(ctx context.Context, l protocol.Listen, s protocol.Broker) (protocol.Listener, error) {
	return served(n.listen(ctx, l, brokerPort, &listener{broker: s}))
}

// served keeps a nil *listener from becoming a Listener.
func served(l *listener, err error) (protocol.Listener, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// DialNameServer opens a session with the name server at d.Addr. Without
// delays it does not block. A refused dial, and one that ctx ends, match
// protocol.ErrUnreachable, the latter ctx's error as well.
func (n *Network) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	c, err := dial(n, ctx, d, func(l *listener) func(protocol.Session) protocol.NameServerConn {
		if l.names == nil {
			return nil
		}
		return l.names.Connect
	})
	if err != nil {
		return nil, err
	}
	return &nameServerConn{c}, nil
}

// DialBroker is DialNameServer for a broker. Notices of the broker come
// through d.Peer on goroutines of the broker or, when a rule delays them, of a
// timer. One that is under way while the session is closed may still arrive.
func (n *Network) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	c, err := dial(n, ctx, d, func(l *listener) func(protocol.Session) protocol.BrokerConn {
		if l.broker == nil {
			return nil
		}
		return l.broker.Connect
	})
	if err != nil {
		return nil, err
	}
	return &brokerConn{c}, nil
}

// Claim reserves (group, clientID) until release is called. A pair that is
// taken is refused with protocol.ErrDuplicateClient.
func (n *Network) Claim(group, clientID string) (release func(), err error) {
	c := &claim{group, clientID}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.claims[*c] != nil {
		return nil, fmt.Errorf("%w: group %q has a running client with id %q on this transport; set a different InstanceName",
			protocol.ErrDuplicateClient, group, clientID)
	}
	n.claims[*c] = c
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.claims[*c] == c {
			delete(n.claims, *c)
		}
	}, nil
}

// dial opens a session. service picks the Connect that fits, nil for a server
// of the other kind.
func dial[C server](n *Network, ctx context.Context, d protocol.Dial, service func(*listener) func(protocol.Session) C) (conn[C], error) {
	var srv C
	s, err := n.reach(ctx, d, false, func(s *session, lis *listener) error {
		connect := service(lis)
		if connect == nil {
			return errOther(&s.server, lis)
		}
		var accepted bool
		if srv, accepted = accept(s, connect); !accepted {
			return errRefused(&s.server)
		}
		return nil
	})
	if err != nil {
		return conn[C]{}, err
	}
	return conn[C]{s: s, srv: srv}, nil
}

// reach opens a session with who listens at d.Addr, for which welcome takes it.
func (n *Network) reach(ctx context.Context, d protocol.Dial, stream bool, welcome func(*session, *listener) error) (*session, error) {
	addr, err := netip.ParseAddrPort(d.Addr)
	if err != nil {
		return nil, protocol.Tagged(errAddress("address to dial", d.Addr).Error(), protocol.ErrUnreachable, protocol.ErrInvalidConfig)
	}
	start := time.Now()
	s, l := n.open(d, addr.String(), stream)
	fail := func(err error) (*session, error) {
		n.hangUp(s, true, true)
		if isContextError(err) {
			return nil, errDialEnded(&s.server, time.Since(start), err)
		}
		return nil, err
	}
	if l.cut {
		return fail(errRefused(&s.server))
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	// A handshake needs both ways: one that is silent leaves it open for ever.
	if err := s.travel(ctx, l.silentTo || l.silentBack, l.delayTo); err != nil {
		return fail(s.dialError(err))
	}
	var refusal error
	lis := n.arrive(s)
	if lis != nil {
		refusal = welcome(s, lis)
	}
	l = s.rules()
	if err := s.travel(ctx, l.silentTo || l.silentBack, l.delayBack); err != nil {
		return fail(s.dialError(err))
	}
	if refusal == nil && (lis == nil || s.dead.Load()) {
		refusal = errRefused(&s.server)
	}
	if refusal != nil {
		return fail(refusal)
	}
	return s, nil
}

// accept makes the server's side of s. It is false when the server went away
// meanwhile.
func accept[C server](s *session, connect func(protocol.Session) C) (srv C, ok bool) {
	if !s.enter() {
		return srv, false
	}
	defer s.exit()
	srv = connect(protocol.Session{Node: s.client.node.name, Remote: s.born, Peer: &peer{s}})
	if !s.attach(srv.Close) {
		_ = srv.Close() // The session is over: nobody is left who could be told.
		return srv, false
	}
	return srv, true
}

// open registers a session that is being dialled, so that a cut reaches it,
// and returns the link it has now.
func (n *Network) open(d protocol.Dial, addr string, stream bool) (*session, *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	caller := n.book.node(d.Node)
	caller.callers++
	born := n.book.born(caller)
	n.nextID++
	s := &session{
		net:     n,
		id:      n.nextID,
		client:  end{caller, born.String()},
		server:  end{n.book.byAddr[addr], addr},
		born:    born,
		peer:    d.Peer,
		done:    make(chan struct{}),
		drained: make(chan struct{}),
	}
	if l := n.listeners[addr]; l != nil {
		s.server.node = l.node
	}
	if stream {
		s.stream = newStream(s)
	}
	n.sessions[s] = struct{}{}
	return s, n.linkLocked(s)
}

// arrive attaches s to the listener at its address, nil when there is none.
func (n *Network) arrive(s *session) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[s.server.addr]
	if l == nil || s.clientGone || s.serverGone {
		return nil
	}
	s.lis = l
	if s.stream == nil { // what was accepted outlives a listener for streams
		l.sessions[s] = struct{}{}
	}
	return l
}
