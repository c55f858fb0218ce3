package pipenet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// firstPort is the first port given to who asks for none, on either side.
const firstPort = 49152

// Network is a network of its own. It has no goroutines and needs no Close.
// Safe for concurrent use.
type Network struct {
	mu        sync.Mutex // guards what follows; never held while somebody waits
	listeners map[string]*listener
	port      uint16 // given last
}

// New returns a network without listeners.
func New() *Network { return &Network{listeners: make(map[string]*listener), port: firstPort - 1} }

// Listen listens on an IP literal with a port; port 0 is one that was never
// used, until all were. An address that is taken is EADDRINUSE. It does not
// block.
func (n *Network) Listen(_ context.Context, addr string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("pipenet: listen: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Port() == 0 {
		at = netip.AddrPortFrom(at.Addr(), n.portLocked())
	}
	if n.listeners[at.String()] != nil {
		return nil, fmt.Errorf("pipenet: listen on %v: %w", at, syscall.EADDRINUSE)
	}
	l := &listener{net: n, addr: at, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[at.String()] = l
	return l, nil
}

func (n *Network) portLocked() uint16 {
	if n.port++; n.port == 0 {
		n.port = firstPort
	}
	return n.port
}

// Dial connects to a listener. It waits until the connection is accepted, at
// most as long as ctx lasts. An address where nobody listens is ECONNREFUSED.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listenerLocked(addr)
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), n.portLocked())
	n.mu.Unlock()
	refused := fmt.Errorf("pipenet: dial %s: %w", addr, syscall.ECONNREFUSED)
	if l == nil {
		return nil, refused
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- &conn{Conn: theirs, local: l.addr, remote: from}:
		return &conn{Conn: ours, local: from, remote: l.addr}, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// listenerLocked finds who listens on addr, or on its port of all addresses.
func (n *Network) listenerLocked(addr string) *listener {
	if l := n.listeners[addr]; l != nil {
		return l
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil
	}
	all := netip.IPv4Unspecified()
	if at.Addr().Is6() {
		all = netip.IPv6Unspecified()
	}
	return n.listeners[netip.AddrPortFrom(all, at.Port()).String()]
}

// listener is a served address.
type listener struct {
	net    *Network
	addr   netip.AddrPort
	conns  chan net.Conn // without capacity: what is in it would be lost with Close
	once   sync.Once
	closed chan struct{}
}

// Accept waits for a connection, or for Close.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Addr is a *net.TCPAddr.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

// Close frees the address. Connections that were accepted go on.
func (l *listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		delete(l.net.listeners, l.addr.String())
		err = nil
	})
	return err
}

// conn is a side of a pipe that says where it comes from and goes to, and whose
// errors are those of TCP.
type conn struct {
	net.Conn
	local, remote netip.AddrPort
	closed        atomic.Bool
}

// Read is net.Conn.Read.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.ErrClosedPipe {
		err = net.ErrClosed
	}
	return n, err
}

// Write is net.Conn.Write.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == io.ErrClosedPipe {
		if err = syscall.EPIPE; c.closed.Load() {
			err = net.ErrClosed
		}
	}
	return n, err
}

// Close is net.Conn.Close.
func (c *conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	return c.Conn.Close()
}

// SetDeadline is net.Conn.SetDeadline.
func (c *conn) SetDeadline(t time.Time) error { return c.limited(c.Conn.SetDeadline(t)) }

// SetReadDeadline is net.Conn.SetReadDeadline.
func (c *conn) SetReadDeadline(t time.Time) error { return c.limited(c.Conn.SetReadDeadline(t)) }

// SetWriteDeadline is net.Conn.SetWriteDeadline.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.limited(c.Conn.SetWriteDeadline(t)) }

// limited is the error of setting a deadline. That the other side is gone is for the
// next Read or Write to say.
func (c *conn) limited(err error) error {
	if err == io.ErrClosedPipe {
		if err = nil; c.closed.Load() {
			err = net.ErrClosed
		}
	}
	return err
}

// LocalAddr is a *net.TCPAddr.
func (c *conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr is a *net.TCPAddr.
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }
