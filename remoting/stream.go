package remoting

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/protocol"
)

// streamMark is what a stream without TLS begins with. No frame begins so, nor a
// TLS hello, so that neither is taken for the other.
const streamMark = "PMQ\x01"

// errNoStream is a connection that does not begin as a stream does.
var errNoStream = errors.New("no stream of PocketMQ: it begins otherwise")

// ListenStream listens for streams, as ListenBroker does for sessions. Streams
// come with and without TLS as the options say; accepted ones have no PROXY
// preamble. A node that listens for streams more than once at a time has to say
// where, to get its addresses again.
func (t *Transport) ListenStream(ctx context.Context, at protocol.Listen) (net.Listener, error) {
	b, err := t.listenAt(ctx, at, true, streamsOf(at.Node))
	if err != nil {
		return nil, err
	}
	told, err := netip.ParseAddrPort(b.told)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for %s: %w", at.Node, err), b.net.Close())
	}
	return &streamListener{Listener: b.net, t: t, key: streamsOf(at.Node), bind: b.bind, told: told}, nil
}

// streamsOf is what the listener for the streams of a node is remembered by. No
// node has such a name.
func streamsOf(node string) string {
	if node == "" {
		return ""
	}
	return node + "\x00streams"
}

// DialStream opens a stream to d.Addr, over TLS if the options say so; then it
// waits for the accepting side to answer the hello. Its errors are those of
// DialBroker.
func (t *Transport) DialStream(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	conn, err := t.connect(ctx, d)
	if err != nil {
		return nil, err
	}
	if t.secure.dial != nil {
		return securedStream{conn}, nil
	}
	return &dialled{Conn: conn, first: make(chan struct{}, 1), mark: []byte(streamMark)}, nil
}

// dialled is the dialling side of a stream without TLS.
type dialled struct {
	net.Conn
	first  chan struct{} // 1 slot: who holds it writes the mark, and owns mark
	mark   []byte        // what is left of it
	marked atomic.Bool
}

// Write implements net.Conn. The first one says what this is.
func (c *dialled) Write(b []byte) (int, error) {
	if c.marked.Load() {
		return c.Conn.Write(b)
	}
	c.first <- struct{}{} // a writer waits for the network, or its deadline
	defer func() { <-c.first }()
	if c.marked.Load() {
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(slices.Concat(c.mark, b))
	mark := min(n, len(c.mark))
	c.mark = c.mark[mark:]
	c.marked.Store(len(c.mark) == 0)
	return n - mark, err
}

// securedStream is a stream with TLS.
type securedStream struct{ net.Conn }

// Close implements net.Conn. That the other side could not be told in TLS's words
// is no error, or the end of one side would be one of the other.
func (c securedStream) Close() error {
	if err := c.Conn.Close(); errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// streamListener is a net.Listener for streams.
type streamListener struct {
	net.Listener
	t         *Transport
	key, bind string
	told      netip.AddrPort
}

// Accept waits for a connection, or for Close. It does not wait for what the
// connection says.
func (l *streamListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &accepted{Conn: conn, secure: l.t.secure, greeting: make(chan struct{}, 1)}, nil
}

// Addr is a *net.TCPAddr: what peers dial.
func (l *streamListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.told) }

// Close frees the address, for the node to get it again.
func (l *streamListener) Close() error {
	err := l.Listener.Close()
	l.t.remember(l.key, l.bind)
	return err
}

// accepted is the accepting side of a stream. Its first Read or Write finds out
// whether it is one with TLS.
type accepted struct {
	net.Conn // as it was accepted
	secure   *security

	greeting chan struct{}            // 1 slot: who holds it reads the beginning, and owns begin
	begin    []byte                   // what was read of it
	ready    atomic.Pointer[net.Conn] // set once that is known
}

// Read implements net.Conn.
func (c *accepted) Read(b []byte) (int, error) {
	conn, err := c.conn()
	if err != nil {
		return 0, err
	}
	return conn.Read(b)
}

// Write implements net.Conn. It waits until the dialler has said something.
func (c *accepted) Write(b []byte) (int, error) {
	conn, err := c.conn()
	if err != nil {
		return 0, err
	}
	return conn.Write(b)
}

// Close implements net.Conn.
func (c *accepted) Close() error {
	if conn := c.ready.Load(); conn != nil {
		return (*conn).Close()
	}
	return c.Conn.Close()
}

// conn is the connection behind its beginning. An error of the network, that of a
// deadline among them, leaves it to the next call to go on.
func (c *accepted) conn() (net.Conn, error) {
	if conn := c.ready.Load(); conn != nil {
		return *conn, nil
	}
	c.greeting <- struct{}{} // a reader waits for the network, or its deadline
	defer func() { <-c.greeting }()
	if conn := c.ready.Load(); conn != nil {
		return *conn, nil
	}
	for len(c.begin) < len(streamMark) {
		buf := make([]byte, len(streamMark)-len(c.begin))
		n, err := c.Conn.Read(buf)
		c.begin = append(c.begin, buf[:n]...)
		if tlsHello := len(c.begin) > 0 && c.begin[0] == helloByte; tlsHello && c.secure.mode != TLSDisabled {
			return c.is(securedStream{tls.Server(&begun{c.Conn, bytes.NewReader(c.begin)}, c.secure.server)}), nil
		}
		if !bytes.HasPrefix([]byte(streamMark), c.begin) {
			return nil, errors.Join(errNoStream, c.Conn.Close())
		}
		if err != nil && len(c.begin) < len(streamMark) {
			if err == io.EOF && len(c.begin) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	if c.secure.mode == TLSEnforcing {
		return nil, errors.Join(errPlain, c.Conn.Close())
	}
	return c.is(c.Conn), nil
}

func (c *accepted) is(conn net.Conn) net.Conn {
	c.ready.Store(&conn)
	return conn
}
