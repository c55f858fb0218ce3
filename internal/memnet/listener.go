package memnet

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/pocketmq/pocketmq/protocol"
)

// listener is a served address. All but sessions is set before it is
// published.
type listener struct {
	net    *Network
	node   *node
	ip     netip.Addr // the host its node's own dials come from
	addr   string     // what peers dial
	bound  []string   // its keys in Network.listeners: addr, and Listen.Addr where that is another
	broker protocol.Broker
	names  protocol.NameServer
	queue  *acceptQueue // of streams; exactly one of the three is set

	sessions map[*session]struct{} // those with a handler running or to come. Guarded by Network.mu
}

var _ protocol.Listener = (*listener)(nil)

func (l *listener) kind() string {
	switch {
	case l.broker != nil:
		return "broker"
	case l.names != nil:
		return "name server"
	}
	return "server of streams"
}

// listen publishes l, of which the service is set.
func (n *Network) listen(ctx context.Context, at protocol.Listen, port uint16, l *listener) (*listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listen for %s: %w", at.Node, err)
	}
	var addr, advertised netip.AddrPort
	var err error
	if at.Addr != "" {
		if addr, err = netip.ParseAddrPort(at.Addr); err != nil {
			return nil, errAddress("listen address of "+at.Node, at.Addr)
		}
		if addr.Addr().IsUnspecified() && at.Advertise == "" {
			if l.names == nil {
				return nil, protocol.WildcardAddr(addr, at.Node)
			}
			advertised = netip.AddrPortFrom(protocol.LoopbackOf(addr.Addr()), 0)
		}
	}
	if at.Advertise != "" {
		if advertised, err = netip.ParseAddrPort(at.Advertise); err != nil {
			return nil, errAddress("advertised address of "+at.Node, at.Advertise)
		}
	}

	n.mu.Lock()
	ends, err := n.listenLocked(at, addr, advertised, port, l)
	if err != nil {
		n.book.forget(n.book.node(at.Node))
	}
	n.mu.Unlock()
	if err != nil {
		return nil, err
	}
	finish(ends)
	return l, nil
}

func (n *Network) listenLocked(at protocol.Listen, addr, advertised netip.AddrPort, port uint16, l *listener) ([]ending, error) {
	nd := n.book.node(at.Node)
	switch {
	case !addr.IsValid():
		addr = n.ownAddressLocked(nd, port)
	case addr.Port() == 0:
		free := n.freePortLocked(addr.Addr(), port)
		if !free.IsValid() {
			return nil, fmt.Errorf("listen address of %s: no port of %v is free", at.Node, addr.Addr())
		}
		addr = free
	}
	if advertised.IsValid() && advertised.Port() == 0 {
		if at.Addr == "" {
			addr = netip.AddrPortFrom(addr.Addr(), n.freePortLocked(advertised.Addr(), addr.Port()).Port())
		}
		advertised = netip.AddrPortFrom(advertised.Addr(), addr.Port())
	}
	bind := []netip.AddrPort{addr}
	if advertised.IsValid() && advertised != addr {
		bind = []netip.AddrPort{advertised, addr}
	}
	for _, a := range bind {
		if other := n.listeners[a.String()]; other != nil {
			return nil, fmt.Errorf("address %v of %s is in use by %s; close that or choose another address", a, at.Node, other.node.name)
		}
	}
	l.net, l.node, l.ip, l.addr = n, nd, bind[0].Addr(), bind[0].String()
	l.sessions = make(map[*session]struct{})
	for _, a := range bind {
		n.book.bind(nd, a)
		n.listeners[a.String()] = l
		l.bound = append(l.bound, a.String())
	}
	nd.listening = append(nd.listening, l)
	// Rules may name the address that has just found its node.
	if old := n.rules.Load(); old != nil {
		n.publishLocked(old.rules)
		return n.reviewLocked(), nil
	}
	return nil, nil
}

// ownAddressLocked returns the oldest label of nd on which port is free, a new
// one if there is none.
func (n *Network) ownAddressLocked(nd *node, port uint16) netip.AddrPort {
	for _, ip := range nd.labels {
		if a := netip.AddrPortFrom(ip, port); n.listeners[a.String()] == nil {
			return a
		}
	}
	return netip.AddrPortFrom(n.book.label(nd), port)
}

// freePortLocked returns the first free port from first on, the zero AddrPort
// if there is none.
func (n *Network) freePortLocked(ip netip.Addr, first uint16) netip.AddrPort {
	for p := first; p != 0; p++ {
		if a := netip.AddrPortFrom(ip, p); n.listeners[a.String()] == nil {
			return a
		}
	}
	return netip.AddrPort{}
}

// Addr is the address that peers dial.
func (l *listener) Addr() string { return l.addr }

// Close stops accepting, ends every session on the server's side, cancels the
// calls in flight and returns when the last handler has returned. Callers
// learn of it at once unless the way to them is silent. A second Close waits
// as the first does. A handler must not call it: it would wait for itself.
func (l *listener) Close() error {
	n := l.net
	n.mu.Lock()
	l.withdrawLocked()
	open := make([]*session, 0, len(l.sessions))
	var ends []ending
	for s := range l.sessions {
		s.serverGone = true
		open = append(open, s)
		ends = append(ends, n.verdictLocked(s))
	}
	n.mu.Unlock()
	finish(ends)
	for _, s := range open {
		<-s.drained
	}
	return nil
}

// withdrawLocked takes l out of the network: it is dialled no more.
func (l *listener) withdrawLocked() {
	for _, a := range l.bound {
		if l.net.listeners[a] == l {
			delete(l.net.listeners, a)
		}
	}
	l.node.unlisten(l)
}
