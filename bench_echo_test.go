package pocketmq_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pocketmq/pocketmq/remoting"
	"github.com/stretchr/testify/require"
)

// echo is the floor of what goes over TCP: one loopback connection over which
// requests of so many bytes go out and answers of so many bytes come back, in
// order, each behind its length. Nothing is read of them, and nothing is done.
//
// With combined set each side writes at once whatever there is to be written, as
// remoting does; otherwise each request and each answer is one write.
type echo struct {
	request, answer int
	combined        bool

	listener net.Listener
	conn     net.Conn
	in       *bufio.Reader
	loops    sync.WaitGroup

	mu      sync.Mutex // guards what follows; without combined it is held during the write
	waiting chan chan struct{}
	out     []byte
	spare   []byte
	writing bool
	frame   []byte
}

const echoLength = 4 // bytes of the length before each request and answer

func newEcho(b *testing.B, request, answer int, combined bool) *echo {
	b.Helper()
	e := &echo{
		request: request, answer: answer, combined: combined,
		waiting: make(chan chan struct{}, 4096), frame: make([]byte, echoLength+request),
	}
	binary.BigEndian.PutUint32(e.frame, uint32(request))
	var err error
	e.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	e.loops.Go(e.serve)
	e.conn, err = net.Dial("tcp", e.listener.Addr().String())
	require.NoError(b, err)
	e.in = bufio.NewReaderSize(e.conn, 64<<10)
	b.Cleanup(func() {
		require.NoError(b, e.conn.Close())
		require.NoError(b, e.listener.Close())
		close(e.waiting)
		e.loops.Wait()
	})
	return e
}

// serve answers requests until the connection ends.
func (e *echo) serve() {
	conn, err := e.listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 64<<10)
	out := bufio.NewWriterSize(conn, 64<<10)
	answer := make([]byte, echoLength+e.answer)
	binary.BigEndian.PutUint32(answer, uint32(e.answer))
	var request []byte
	for {
		if request, err = readEcho(in, request); err != nil {
			return
		}
		if _, err := out.Write(answer); err != nil {
			return
		}
		if e.combined && in.Buffered() > 0 {
			continue
		}
		if err := out.Flush(); err != nil {
			return
		}
	}
}

// readEcho reads what is behind a length into b.
func readEcho(in *bufio.Reader, b []byte) ([]byte, error) {
	head, err := in.Peek(echoLength)
	if err != nil {
		return b, err
	}
	n := int(binary.BigEndian.Uint32(head))
	if _, err := in.Discard(echoLength); err != nil {
		return b, err
	}
	if cap(b) < n {
		b = make([]byte, n)
	}
	_, err = io.ReadFull(in, b[:n])
	return b[:n], err
}

// alone is a round trip on the goroutine of its caller: no other may use e.
func (e *echo) alone() error {
	if _, err := e.conn.Write(e.frame); err != nil {
		return err
	}
	_, err := readEcho(e.in, nil)
	return err
}

// share lets goroutines use e side by side: arrived gets every answer.
func (e *echo) share(arrived func(body []byte)) {
	e.loops.Go(func() {
		var body []byte
		for {
			var err error
			if body, err = readEcho(e.in, body); err != nil {
				return
			}
			arrived(body)
		}
	})
}

// wake ends the wait of the request whose answer has come.
func (e *echo) wake([]byte) { <-e.waiting <- struct{}{} }

// call is a round trip beside others, after share with wake. c has one slot and
// belongs to the caller.
func (e *echo) call(c chan struct{}) error {
	err := e.send(c)
	if err == nil {
		<-c
	}
	return err
}

// send sends a request; c, unless it is nil, gets the answer.
func (e *echo) send(c chan struct{}) error {
	e.mu.Lock()
	if c != nil {
		e.waiting <- c
	}
	if !e.combined {
		defer e.mu.Unlock()
		_, err := e.conn.Write(e.frame)
		return err
	}
	e.out = append(e.out, e.frame...)
	if e.writing {
		e.mu.Unlock()
		return nil
	}
	e.writing = true
	for len(e.out) > 0 {
		b := e.out
		e.out = e.spare[:0]
		e.mu.Unlock()
		_, err := e.conn.Write(b)
		e.mu.Lock()
		e.spare = b
		if err != nil {
			e.mu.Unlock()
			return err
		}
	}
	e.writing = false
	e.mu.Unlock()
	return nil
}

// traffic counts what the sides of connections of a network do.
type traffic struct {
	remoting.TCP
	dialled, accepted count
}

type count struct{ reads, writes, in, out atomic.Int64 }

func (c *count) reset() {
	for _, n := range []*atomic.Int64{&c.reads, &c.writes, &c.in, &c.out} {
		n.Store(0)
	}
}

func (t *traffic) reset() {
	t.dialled.reset()
	t.accepted.reset()
}

func (t *traffic) Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := t.TCP.Listen(ctx, addr)
	return countedListener{l, &t.accepted}, err
}

func (t *traffic) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := t.TCP.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, &t.dialled}, nil
}

type countedListener struct {
	net.Listener
	n *count
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{conn, l.n}, nil
}

type countedConn struct {
	net.Conn
	n *count
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.reads.Add(1)
	c.n.in.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if !errors.Is(err, net.ErrClosed) {
		c.n.writes.Add(1)
		c.n.out.Add(int64(n))
	}
	return n, err
}
