package pocketmq

import (
	"context"
	"net"
	"sync"
)

// standing is what a broker is in its group, for as long as that lasts. Immutable.
type standing struct {
	role  Role
	epoch int64 // under which it is that; 0 as long as nobody has replicated anything
	id    int64 // under which it is registered: the master's is 0
	// fenced: it has no role for now, in a group with failover, and follows nobody.
	fenced bool
	// ha is where it gets the log, of a slave that was told by a controller; "": the name
	// servers know that.
	ha string
}

// duty is what runs for as long as a broker is master, or slave. One goroutine begins
// and ends duties, one after the other.
type duty struct {
	ctx    context.Context // ends with the duty
	cancel context.CancelCauseFunc
	loops  sync.WaitGroup
}

func (r *brokerRun) newDuty() *duty {
	d := &duty{}
	d.ctx, d.cancel = context.WithCancelCause(r.ctx)
	return d
}

// end returns when nothing of the duty runs any more. Peers are told of the end, unless
// it has a cause of its own: then connections to them break off at once.
func (d *duty) end(cause error) {
	if d == nil {
		return
	}
	d.cancel(cause)
	d.loops.Wait()
}

// door is where slaves connect, for as long as the broker runs: whoever serves slaves
// at a time gets the connections, and when nobody does they are closed at once.
type door struct {
	listener net.Listener

	mu  sync.Mutex // guards what follows
	way *doorway   // who gets them; nil: nobody
}

// run takes connections until the listener is closed.
func (d *door) run() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		way := d.way
		d.mu.Unlock()
		if way == nil || !way.hand(conn) {
			_ = conn.Close() // nothing was said on it
		}
	}
}

// open hands connections to the doorway that it returns, from now on.
func (d *door) open() *doorway {
	way := &doorway{door: d, conns: make(chan net.Conn), closed: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.way = way
	return way
}

// closeWith closes the doorway when ctx ends, whether it is served by then or not.
func (w *doorway) closeWith(ctx context.Context) {
	context.AfterFunc(ctx, func() { _ = w.Close() }) // it is never an error
}

// doorway is a net.Listener for one who serves slaves.
type doorway struct {
	door   *door
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once // closes closed
}

var _ net.Listener = (*doorway)(nil)

// hand gives a connection away. It waits until somebody takes it, and is false when
// nobody does any more.
func (w *doorway) hand(conn net.Conn) bool {
	select {
	case w.conns <- conn:
		return true
	case <-w.closed:
		return false
	}
}

// Accept implements net.Listener.
func (w *doorway) Accept() (net.Conn, error) {
	select {
	case conn := <-w.conns:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. The door stays.
func (w *doorway) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.door.mu.Lock()
		defer w.door.mu.Unlock()
		if w.door.way == w {
			w.door.way = nil
		}
	})
	return nil
}

// Addr implements net.Listener.
func (w *doorway) Addr() net.Addr { return w.door.listener.Addr() }
