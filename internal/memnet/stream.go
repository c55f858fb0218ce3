package memnet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// acceptBacklog is how many streams may wait to be accepted; who dials one more
// waits. Linux: net.core.somaxconn of old.
const acceptBacklog = 128

// stream is a session that carries bytes.
type stream struct {
	up, down       pipe // to the server, and back
	client, server streamConn
}

func newStream(s *session) *stream {
	st := &stream{}
	st.up.init(s, true)
	st.down.init(s, false)
	server, _ := netip.ParseAddrPort(s.server.addr) // it was parsed before
	st.client = streamConn{s: s, in: &st.down, out: &st.up, local: s.born, remote: server}
	st.server = streamConn{s: s, in: &st.up, out: &st.down, local: server, remote: s.born, accepted: true}
	return st
}

// move lets through what the rules, which have changed, have kept back.
func (st *stream) move() {
	st.up.move()
	st.down.move()
}

// streamConn is one end of a stream. Safe for concurrent use.
type streamConn struct {
	s             *session
	in, out       *pipe
	local, remote netip.AddrPort
	accepted      bool // it is the server's

	mu     sync.Mutex // guards closed
	closed bool
}

var _ net.Conn = (*streamConn)(nil)

// end tells this end that the stream is over.
func (c *streamConn) end(reset bool) {
	if reset {
		c.in.fail(syscall.ECONNRESET, nil, false)
		c.out.fail(nil, syscall.ECONNRESET, false)
		return
	}
	c.in.finish()
	c.out.fail(nil, syscall.EPIPE, false)
}

// Read implements net.Conn.
func (c *streamConn) Read(b []byte) (int, error) {
	n, err := c.in.receive(b)
	return n, c.error("read", err)
}

// Write implements net.Conn. It waits while 64 KiB before it are not read, or not
// known to be. What it has taken may be lost when the stream is cut.
func (c *streamConn) Write(b []byte) (int, error) {
	n, err := c.out.send(b)
	return n, c.error("write", err)
}

// Close ends the stream. The other side gets what was written, and learns of it
// then.
func (c *streamConn) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return c.error("close", net.ErrClosed)
	}
	c.in.fail(net.ErrClosed, nil, true)
	c.out.fail(nil, net.ErrClosed, true)
	c.s.net.hangUp(c.s, !c.accepted, c.accepted)
	return nil
}

// LocalAddr is a *net.TCPAddr.
func (c *streamConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr is a *net.TCPAddr.
func (c *streamConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *streamConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *streamConn) SetReadDeadline(t time.Time) error {
	if c.isClosed() {
		return c.error("set", net.ErrClosed)
	}
	c.in.limit(&c.in.readBy, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *streamConn) SetWriteDeadline(t time.Time) error {
	if c.isClosed() {
		return c.error("set", net.ErrClosed)
	}
	c.out.limit(&c.out.writeBy, t)
	return nil
}

func (c *streamConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// error is err as package net has it.
func (c *streamConn) error(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// acceptQueue is the streams of a listener that wait to be accepted.
type acceptQueue struct {
	waiting chan *streamConn
	once    sync.Once
	closed  chan struct{}
}

// add has c accepted. It waits while the queue is full.
func (q *acceptQueue) add(ctx context.Context, c *streamConn) error {
	select {
	case <-q.closed:
		return errRefused(&c.s.server)
	default:
	}
	select {
	case q.waiting <- c:
	case <-q.closed:
		return errRefused(&c.s.server)
	case <-c.s.done:
		return errRefused(&c.s.server)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-q.closed:
		q.refuse() // Close may have looked before c came
	default:
	}
	return nil
}

// refuse resets what nobody will accept.
func (q *acceptQueue) refuse() {
	for {
		select {
		case c := <-q.waiting:
			n := c.s.net
			n.mu.Lock()
			c.s.serverGone, c.s.reset = true, true
			e := n.verdictLocked(c.s)
			n.mu.Unlock()
			finish([]ending{e})
		default:
			return
		}
	}
}

// streamListener is a net.Listener for streams.
type streamListener struct {
	at *listener
	q  *acceptQueue
}

var _ net.Listener = streamListener{}

// ListenStream listens for streams, as ListenBroker does for sessions; the port
// is 10912. A node that listens for streams more than once at a time has to say
// where, to get its addresses again.
func (n *Network) ListenStream(ctx context.Context, l protocol.Listen) (net.Listener, error) {
	q := &acceptQueue{waiting: make(chan *streamConn, acceptBacklog), closed: make(chan struct{})}
	at, err := n.listen(ctx, l, streamPort, &listener{queue: q})
	if err != nil {
		return nil, err
	}
	return streamListener{at, q}, nil
}

// Accept waits for a stream, or for Close.
func (l streamListener) Accept() (net.Conn, error) {
	select {
	case <-l.q.closed:
	default:
		select {
		case c := <-l.q.waiting:
			return c, nil
		case <-l.q.closed:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
}

// Addr is a *net.TCPAddr: what peers dial.
func (l streamListener) Addr() net.Addr {
	at, _ := netip.ParseAddrPort(l.at.addr) // listen has made it
	return net.TCPAddrFromAddrPort(at)
}

// Close frees the address and resets what was not accepted. Streams that were
// accepted go on, as package net has it.
func (l streamListener) Close() error {
	err := net.ErrClosed
	l.q.once.Do(func() {
		l.at.net.mu.Lock()
		l.at.withdrawLocked()
		l.at.net.mu.Unlock()
		close(l.q.closed)
		l.q.refuse()
		err = nil
	})
	return err
}

// DialStream opens a stream with who listens for streams at d.Addr. Without
// delays it blocks only while 128 wait to be accepted there. Its errors are those
// of DialBroker.
func (n *Network) DialStream(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	s, err := n.reach(ctx, d, true, func(s *session, l *listener) error {
		if l.queue == nil {
			return errOther(&s.server, l)
		}
		return l.queue.add(ctx, &s.stream.server)
	})
	if err != nil {
		return nil, err
	}
	return &s.stream.client, nil
}
