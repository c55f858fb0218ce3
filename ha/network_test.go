package ha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// testNet is a network of one listener, in which everything can go wrong. All its
// connections are cut at the end of the test.
type testNet struct {
	conns  chan net.Conn
	closed chan struct{}
	pumps  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	links  []*testLink
	refuse bool
	frozen [2]bool
	change chan struct{} // closed when frozen changes
	delay  time.Duration
	piece  int // bytes that cross at a time; 0: any
	spoil  func(b []byte)
	number int
}

// Directions of a link.
const (
	toMaster = 0
	toSlave  = 1
)

type testLink struct {
	net  *testNet
	ends []net.Conn
}

func newTestNet(t testing.TB) *testNet {
	n := &testNet{conns: make(chan net.Conn), closed: make(chan struct{}), change: make(chan struct{})}
	t.Cleanup(func() {
		n.cut()
		n.pumps.Wait()
	})
	return n
}

// listen forgets a closed listener.
func (n *testNet) listen() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns, n.closed = make(chan net.Conn), make(chan struct{})
	return &testListener{n, n.conns, n.closed, &sync.Once{}}
}

type testListener struct {
	net    *testNet
	conns  chan net.Conn
	closed chan struct{}
	once   *sync.Once
}

func (l *testListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *testListener) Addr() net.Addr { return testAddr("master") }

func (l *testListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

type testAddr string

func (testAddr) Network() string  { return "test" }
func (a testAddr) String() string { return string(a) }

type namedConn struct {
	net.Conn
	remote testAddr
}

func (c namedConn) RemoteAddr() net.Addr { return c.remote }

var errNobody = errors.New("nobody listens")

func (n *testNet) dial(ctx context.Context) (net.Conn, error) {
	n.mu.Lock()
	conns, closed, refuse := n.conns, n.closed, n.refuse
	n.number++
	name := testAddr(fmt.Sprintf("slave:%d", n.number))
	n.mu.Unlock()
	if refuse {
		return nil, errNobody
	}
	mine, near := net.Pipe()
	far, theirs := net.Pipe()
	l := &testLink{n, []net.Conn{mine, near, far, theirs}}
	select {
	case conns <- namedConn{theirs, name}:
	case <-closed:
		return nil, errNobody
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	n.links = append(n.links, l)
	n.mu.Unlock()
	n.pumps.Go(func() { l.pump(near, far, toMaster) })
	n.pumps.Go(func() { l.pump(far, near, toSlave) })
	return namedConn{mine, "master"}, nil
}

// pump carries bytes one way. It ends with the link.
func (l *testLink) pump(from, to net.Conn, way int) {
	buf := make([]byte, 64<<10)
	for {
		l.net.mu.Lock()
		piece := l.net.piece
		l.net.mu.Unlock()
		if piece == 0 {
			piece = len(buf)
		}
		n, err := from.Read(buf[:piece])
		if err != nil {
			if errors.Is(err, io.EOF) {
				l.net.pass(way) // an end crosses as bytes do
			}
			_, _ = from.Close(), to.Close()
			return
		}
		l.net.mu.Lock()
		if l.net.spoil != nil && way == toSlave {
			l.net.spoil(buf[:n])
		}
		l.net.mu.Unlock()
		l.net.pass(way)
		if _, err := to.Write(buf[:n]); err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// pass waits until bytes may cross.
func (n *testNet) pass(way int) {
	n.mu.Lock()
	delay := n.delay
	for n.frozen[way] {
		change := n.change
		n.mu.Unlock()
		<-change
		n.mu.Lock()
	}
	n.mu.Unlock()
	if delay > 0 { // none is no reason to wait for a timer
		time.Sleep(delay)
	}
}

// set changes the rules of the network.
func (n *testNet) set(do func(n *testNet)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n)
	close(n.change)
	n.change = make(chan struct{})
}

func (n *testNet) freeze(toMasterToo bool) {
	n.set(func(n *testNet) { n.frozen = [2]bool{toMasterToo, true} })
}

func (n *testNet) thaw() { n.set(func(n *testNet) { n.frozen = [2]bool{} }) }

// cut resets all connections.
func (n *testNet) cut() {
	n.mu.Lock()
	links := n.links
	n.links = nil
	n.mu.Unlock()
	n.thaw()
	for _, l := range links {
		for _, c := range l.ends {
			_ = c.Close()
		}
	}
}

// scripted is a connection from which certain bytes come, in pieces.
type scripted struct {
	net.Conn
	in    []byte
	piece int
}

func (s *scripted) Read(b []byte) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.in[:min(len(s.in), s.piece)])
	s.in = s.in[n:]
	return n, nil
}

func (s *scripted) SetReadDeadline(time.Time) error { return nil }
func (s *scripted) SetDeadline(time.Time) error     { return nil }
func (s *scripted) RemoteAddr() net.Addr            { return testAddr("scripted") }
