package memnet

import (
	"context"
	"errors"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// server is a server's side of a session: a BrokerConn or a NameServerConn.
type server interface{ Close() error }

// conn is the caller's side of a session with a server of kind C.
type conn[C server] struct {
	s   *session
	srv C
}

// Close ends the session. Calls in flight fail; the server learns of it at
// once unless the way there is silent.
func (c *conn[C]) Close() error {
	c.s.net.hangUp(c.s, true, false)
	return nil
}

// Alive tells whether the caller's side knows of no end of the session. What
// is not alive never comes back: dial again. It does not block.
func (c *conn[C]) Alive() bool { return !c.s.dead.Load() }

// call carries one request to the server and its answer back, on the caller's
// goroutine. A oneway request has no answer: it is over, without an error, as
// soon as it has left and the server, if it is reached at once, has served it.
func call[C server, Q, R any](c *conn[C], ctx context.Context, oneway bool, req *Q, method func(C, context.Context, *Q) (*R, error)) (*R, error) {
	s := c.s
	if s.dead.Load() {
		return nil, errGone(&s.server)
	}
	if err := ctx.Err(); err != nil {
		return nil, errNotSent(&s.server, err)
	}
	var start time.Time // stays zero on the fast path, where nobody may need it
	if s.net.rules.Load() != nil {
		l := s.rules()
		if oneway && (l.silentTo || l.delayTo > 0) {
			if !l.silentTo {
				postpone(c, ctx, l.delayTo, req, method)
			}
			return nil, nil
		}
		start = time.Now()
		if err := s.travel(ctx, l.silentTo, l.delayTo); err != nil {
			return nil, s.unanswered(start, err)
		}
	}
	resp, since, err, served := serve(c, ctx, req, method)
	if oneway {
		return nil, nil
	}
	if start.IsZero() {
		start = since
	}
	if !served {
		return nil, s.undelivered(ctx, start)
	}
	if s.net.rules.Load() != nil {
		l := s.rules()
		if err := s.travel(ctx, l.silentBack, l.delayBack); err != nil {
			return nil, s.unanswered(start, err)
		}
	}
	if s.dead.Load() {
		return nil, errLost(&s.server)
	}
	if err != nil {
		return answer(s, ctx, start, resp, err)
	}
	return resp, nil
}

// serve runs the handler. served is false when the server's side was over.
func serve[C server, Q, R any](c *conn[C], ctx context.Context, req *Q, method func(C, context.Context, *Q) (*R, error)) (resp *R, since time.Time, err error, served bool) {
	s := c.s
	if !s.enter() {
		return nil, time.Time{}, nil, false
	}
	defer s.exit()
	cc := &callCtx{parent: ctx, s: s}
	defer func() { since = cc.finish() }()
	resp, err = method(c.srv, cc, req)
	return resp, since, err, true
}

// postpone has a copy of a oneway request served d from now. The caller may
// reuse the request at once.
func postpone[C server, Q, R any](c *conn[C], ctx context.Context, d time.Duration, req *Q, method func(C, context.Context, *Q) (*R, error)) {
	later := protocol.Detached(req)
	ctx = context.WithoutCancel(ctx)
	c.s.toServer.post(d, func() { serve(c, ctx, later, method) })
}

// answer turns what a handler returned beside its response into what the
// caller gets. Over a wire only an *Error arrives, so every error becomes one,
// except that of a handler that gave up because ctx ended.
func answer[R any](s *session, ctx context.Context, start time.Time, resp *R, err error) (*R, error) {
	var e *protocol.Error
	if errors.As(err, &e) {
		return resp, e
	}
	if isContextError(err) {
		cause := ctx.Err()
		if at, ok := ctx.Deadline(); cause == nil && ok && !time.Now().Before(at) {
			cause = context.DeadlineExceeded // The handler's own timer was the first of two for one instant.
		}
		if cause != nil {
			return nil, errUnanswered(&s.server, start, cause)
		}
	}
	e = protocol.AsError(err)
	e.Broker = s.server.name()
	return nil, e
}

// undelivered ends a call that found the server's side over: at once when the
// caller's side has been told, otherwise nobody answers.
func (s *session) undelivered(ctx context.Context, start time.Time) error {
	if s.dead.Load() {
		return errGone(&s.server)
	}
	if start.IsZero() {
		start = time.Now()
	}
	return s.unanswered(start, s.travel(ctx, true, 0))
}

// unanswered turns an error of travel into one of a call.
func (s *session) unanswered(start time.Time, err error) error {
	if err == errDead {
		return errLost(&s.server)
	}
	return errUnanswered(&s.server, start, err)
}

// notify carries one notice of the server to the caller's Peer. It does not
// block. A notice that cannot be delivered is lost, as the contract says.
func notify[Q any](s *session, notice *Q, method func(protocol.Peer, *Q)) {
	if s.peer == nil || s.dead.Load() || s.over() {
		return
	}
	if s.net.rules.Load() != nil {
		l := s.rules()
		if l.silentBack {
			return
		}
		if l.delayBack > 0 {
			later := *notice
			s.toClient.post(l.delayBack, func() { method(s.peer, &later) })
			return
		}
	}
	method(s.peer, notice)
}

// ask carries one request of the server to the caller's Peer and its answer
// back, on the server's goroutine. A client that is not there any more is an
// *Error, as RocketMQ's brokers answer.
func ask[Q, R any](s *session, ctx context.Context, req *Q, method func(protocol.Peer, context.Context, *Q) (*R, error)) (*R, error) {
	gone := func() error {
		return protocol.Errorf(protocol.SystemError, "client %s is not online", s.client.name())
	}
	if s.peer == nil || s.dead.Load() || s.over() {
		return nil, gone()
	}
	cross := func(silent func(*link) bool, delay func(*link) time.Duration) error {
		if s.net.rules.Load() == nil {
			return nil
		}
		l := s.rules()
		if err := s.travel(ctx, silent(l), delay(l)); err == errDead {
			return gone()
		} else if err != nil {
			return err
		}
		return nil
	}
	if err := cross(func(l *link) bool { return l.silentBack }, func(l *link) time.Duration { return l.delayBack }); err != nil {
		return nil, err
	}
	resp, err := method(s.peer, ctx, req)
	if err != nil {
		return nil, err
	}
	if err := cross(func(l *link) bool { return l.silentTo }, func(l *link) time.Duration { return l.delayTo }); err != nil {
		return nil, err
	}
	return resp, nil
}
