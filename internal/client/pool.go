package client

import (
	"context"
	"errors"
	"sync"

	"github.com/pocketmq/pocketmq/protocol"
)

// session is what a pool keeps: a BrokerConn or a NameServerConn. They are
// compared, so the types behind them are pointers.
type session interface {
	comparable
	Close() error
}

// pool keeps one session per address, dialled on first use.
type pool[C session] struct {
	c     *Client
	dial  func(ctx context.Context, addr string) (C, error)
	dials flights[C]
	conns table[C]

	mu     sync.Mutex // guards closed; taken before conns.mu
	closed bool
}

// get returns the session with addr. A session that knows that it is dead is
// replaced. Concurrent callers share one dial; each waits as long as its own
// ctx allows. Whatever fails, nothing has left: the error matches
// protocol.ErrUnreachable, or protocol.ErrClosed after close.
func (p *pool[C]) get(ctx context.Context, addr string) (C, error) {
	if conn, ok := p.held(addr); ok {
		return conn, nil
	}
	conn, err := p.dials.do(p.c, ctx, addr, connectTimeout, func(ctx context.Context) (C, error) {
		if conn, ok := p.held(addr); ok {
			return conn, nil // by a dial that ended just before
		}
		conn, err := p.dial(ctx, addr)
		if err == nil && !p.keep(addr, conn) {
			var none C
			return none, errors.Join(p.c.errClosed(), conn.Close())
		}
		return conn, err
	})
	if err != nil {
		var none C
		if errors.Is(err, protocol.ErrUnreachable) || errors.Is(err, protocol.ErrClosed) {
			return none, err
		}
		return none, unreachable(err, "%s: no session: %v", addr, err)
	}
	return conn, nil
}

// held returns the session with addr if there is one that is not known to be
// dead.
func (p *pool[C]) held(addr string) (C, bool) {
	conn, ok := p.conns.get(addr)
	if !ok {
		return conn, false
	}
	if !alive(conn) {
		p.drop(addr, conn)
		var none C
		return none, false
	}
	return conn, true
}

// alive is false for a session that knows that it is over.
func alive(conn any) bool {
	a, tells := conn.(interface{ Alive() bool })
	return !tells || a.Alive()
}

// keep adds a session. It is false after close; the caller then closes it.
func (p *pool[C]) keep(addr string, conn C) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns.change(func(m map[string]C) bool { m[addr] = conn; return true })
	return true
}

// drop closes conn, and forgets it if it is still the session with addr.
func (p *pool[C]) drop(addr string, conn C) {
	var none C
	if conn == none {
		return
	}
	if held, ok := p.conns.get(addr); ok && held == conn {
		p.conns.change(func(m map[string]C) bool {
			if m[addr] != conn {
				return false
			}
			delete(m, addr)
			return true
		})
	}
	_ = conn.Close() // It is given up because it has failed already.
}

// close closes all sessions; no more are kept.
func (p *pool[C]) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	var errs []error
	for _, conn := range p.conns.all() {
		errs = append(errs, conn.Close())
	}
	p.conns.change(func(m map[string]C) bool { clear(m); return true })
	return errors.Join(errs...)
}
