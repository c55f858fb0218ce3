package memnet

import (
	"fmt"
	"net/netip"
	"slices"
)

// Ports that listeners get when they ask for none, and the first one of a
// caller. Java: NamesrvConfig, BrokerConfig,
// MessageStoreConfig.haListenPort; RFC 6335 dynamic ports.
const (
	nameServerPort = 9876
	brokerPort     = 10911
	streamPort     = 10912
	firstBornPort  = 49152
)

// node is whoever listens or dials under one name. Guarded by Network.mu,
// except name, which never changes.
type node struct {
	name      string              // "" for a caller without a name
	labels    []netip.Addr        // IPs given to it, oldest first
	addrs     map[string]struct{} // every address it has ever listened on
	listening []*listener
	callers   int // its sessions, as the dialling side, that are not over
	bornPort  uint16
}

// end is one side of a link. Immutable.
type end struct {
	node *node  // nil: an address that nobody has ever listened on
	addr string // the dialled address; of a caller: its born host
}

func (e *end) String() string {
	if e.node == nil || e.node.name == "" {
		return e.addr
	}
	return e.node.name + " (" + e.addr + ")"
}

// name is the node's name, its address if it has none.
func (e *end) name() string {
	if e.node == nil || e.node.name == "" {
		return e.addr
	}
	return e.node.name
}

// book knows all nodes and hands out addresses. Guarded by Network.mu.
type book struct {
	nodes  map[string]*node
	owners map[netip.Addr]*node // labels, and the IPs of explicit addresses
	byAddr map[string]*node     // who listens, or listened last, on an address
	next   uint32               // the label handed out last, as an offset from 127.1.0.0
}

func newBook() book {
	return book{
		nodes:  make(map[string]*node),
		owners: make(map[netip.Addr]*node),
		byAddr: make(map[string]*node),
	}
}

// node returns the node of that name, a new one for an unknown or empty name.
func (b *book) node(name string) *node {
	if nd := b.nodes[name]; nd != nil {
		return nd
	}
	nd := &node{name: name, addrs: make(map[string]struct{}), bornPort: firstBornPort}
	if name != "" {
		b.nodes[name] = nd
	}
	return nd
}

// label gives nd one more IP that is nobody's. Labels run from 127.1.0.1 to
// 127.255.255.254 and are reused, once forgotten, only after all of them were.
func (b *book) label(nd *node) netip.Addr {
	const size = 255 << 16
	for range size {
		b.next = (b.next + 1) % size
		x, y := byte(b.next>>8), byte(b.next)
		if y == 0 || y == 255 {
			continue // reads like a network or a broadcast address
		}
		ip := netip.AddrFrom4([4]byte{127, byte(1 + b.next>>16), x, y})
		if b.owners[ip] == nil {
			b.owners[ip] = nd
			nd.labels = append(nd.labels, ip)
			return ip
		}
	}
	panic(fmt.Sprintf("memnet: all %d labels are in use", size))
}

// born returns the host that a new session of nd comes from: the address it
// serves on if it serves, otherwise its first label.
func (b *book) born(nd *node) netip.AddrPort {
	port := nd.bornPort
	nd.bornPort++
	if nd.bornPort == 0 {
		nd.bornPort = firstBornPort
	}
	switch {
	case len(nd.listening) > 0:
		return netip.AddrPortFrom(nd.listening[0].ip, port)
	case len(nd.labels) > 0:
		return netip.AddrPortFrom(nd.labels[0], port)
	}
	return netip.AddrPortFrom(b.label(nd), port)
}

// forget lets go of a caller that never listened and has no session left, so
// that a long-lived network does not grow with every client it has seen.
func (b *book) forget(nd *node) {
	if nd.callers > 0 || len(nd.addrs) > 0 {
		return
	}
	for _, ip := range nd.labels {
		delete(b.owners, ip)
	}
	nd.labels = nil
	if nd.name != "" {
		delete(b.nodes, nd.name)
	}
}

// bind notes that nd listens on addr from now on.
func (b *book) bind(nd *node, addr netip.AddrPort) {
	if b.owners[addr.Addr()] == nil {
		b.owners[addr.Addr()] = nd
	}
	b.byAddr[addr.String()] = nd
	nd.addrs[addr.String()] = struct{}{}
}

// has tells whether pattern names nd: by its name or by an address of its own.
func (nd *node) has(pattern string) bool {
	if nd == nil || pattern == "" {
		return false
	}
	_, ok := nd.addrs[pattern]
	return ok || nd.name == pattern
}

// unlisten takes l out of nd's live listeners.
func (nd *node) unlisten(l *listener) {
	nd.listening = slices.DeleteFunc(nd.listening, func(o *listener) bool { return o == l })
}
