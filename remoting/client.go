package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// maxPeerCalls bounds how many requests of a server a client answers at a time.
// One more is refused as busy.
const maxPeerCalls = 16

// client is the caller's side of a connection. Requests are pipelined, and what
// several callers send at a time is written at once.
type client struct {
	addr string
	link *link
	peer protocol.Peer // nil: requests of the server are refused
	rows table[protocol.Peer]

	// The commands that are called most, made once.
	send *command[protocol.BrokerConn, protocol.SendMessageRequest, protocol.SendMessageResponse]
	pull *command[protocol.BrokerConn, protocol.PullMessageRequest, protocol.PullMessageResponse]

	lane    *lane
	calls   *calls
	cancels cancels
	serving serving // of calls
}

// newClient serves conn, which node has dialled as addr, until it ends or Close.
func newClient(conn net.Conn, addr, node string, peer protocol.Peer) *client {
	c := &client{addr: addr, link: newLink(conn, idleLimit), peer: peer, rows: tableOf(peerRows()), send: sendMessage(), pull: pullMessage()}
	c.cancels.link = c.link
	c.lane = newLane()
	c.calls = newCalls(c.link.ctx, c.link, newWorkers(0), maxPeerCalls, maxPeerCalls, nil)
	if len(node) <= maxNode {
		c.link.node = node
	}
	c.link.start(service{request: c.request, done: c.lane.close})
	return c
}

// closeLimit bounds how long a client that closes waits for what it has sent
// oneway to leave.
const closeLimit = time.Second

// Close ends the connection: calls in flight fail, what was sent before still
// leaves, and the server learns of the end at once. It returns when nothing of
// the connection runs any more.
func (c *client) Close() error {
	c.link.finish(closeLimit)
	c.link.wait()
	c.lane.wait()
	c.calls.workers.close()
	return nil
}

// restLimit is how long a connection may be idle before a client gives it up.
// It is well below idleLimit: a request that leaves just when the server ends
// an idle connection would be lost, and nobody could tell whether it was served.
const restLimit = idleLimit - 20*time.Second

// Alive is false once the connection is over, and ends one that the server may
// be about to end. It never comes back: dial again.
func (c *client) Alive() bool {
	if c.link.alive() && c.link.quiet(restLimit) {
		c.link.end(nil)
	}
	return c.link.alive()
}

// request serves a request of the server.
func (c *client) request(f *Frame, _ *lease) bool {
	row := c.rows[protocol.Code(f.Code)]
	switch {
	case f.Code == int32(codeOurs):
		c.cancels.known()
	case f.Code == int32(codeCancel):
		c.serving.cancel(f)
	case c.peer == nil || row == nil:
		refuse(c.link, f, protocol.RequestCodeNotSupported, " request type %d not supported", f.Code)
	case f.Oneway():
		c.lane.add(c.link.ctx, f.size(), func() { row.serve(c.link.ctx, c.peer, site{}, f) })
	default:
		p := c.calls.try()
		if p == placeFull {
			refuse(c.link, f, protocol.SystemBusy, "[OVERLOAD] %d requests are being answered", maxPeerCalls)
			return true
		}
		own := c.serving.begin(c.calls.ctx, f.Opaque, f.until())
		c.calls.run(task{place: p, after: c.lane.last, serve: func(context.Context) *Frame {
			defer c.serving.end(own)
			return serveAlive(&own.Context, row, c.peer, site{}, f)
		}})
	}
	return true
}

// call carries one request to the server and its answer back. A oneway request
// is over, without an error, as soon as it is about to leave.
func call[S, Q, R any](c *client, ctx context.Context, cmd *command[S, Q, R], q *Q) (*R, error) {
	if !c.Alive() {
		return nil, errGone(c.addr, c.whyEnded())
	}
	if err := ctx.Err(); err != nil {
		return nil, errNotSent(c.addr, err)
	}
	f := cmd.fill(c.link.frames.get(), q)
	f.Serialize = Binary // every server reads it, and it is half the work of JSON
	if f.Oneway() {
		err := c.link.send(ctx, f)
		c.link.frames.put(f)
		if err != nil {
			return nil, c.notSent(err)
		}
		return nil, nil
	}
	start := time.Now()
	if at, ok := ctx.Deadline(); ok {
		f.putLeft(at.Sub(start))
	}
	answer, err := c.link.ask(ctx, f)
	opaque := f.Opaque
	c.link.frames.put(f)
	if err != nil {
		return nil, c.notSent(err)
	}
	got, err := await(ctx, c.link, answer)
	switch {
	case err == errLinkEnded:
		return nil, errLost(c.addr, c.whyEnded())
	case err != nil:
		c.link.forget(opaque)
		if !errors.Is(err, context.DeadlineExceeded) { // of a deadline the server has been told
			c.cancels.cancel(opaque)
		}
		return nil, errUnanswered(c.addr, time.Since(start), err)
	}
	r, err := cmd.read(got)
	c.link.frames.put(got)
	if err != nil {
		var e *protocol.Error
		if !errors.As(err, &e) {
			return nil, errUnreadable(c.addr, cmd.name, err)
		}
		if e.Broker == "" {
			e.Broker = c.addr
		}
	}
	return r, err
}

// deadlined is a context that is its parent with a deadline, and whose Done
// costs more than a timer: a deadline.Context. One that is more than that is its own
// parent.
type deadlined interface {
	context.Context
	Parent() context.Context
}

// await waits for an answer. One that has come counts, whatever has ended since.
func await(ctx context.Context, l *link, answer chan *Frame) (*Frame, error) {
	l.lead(answer)
	select {
	case f := <-answer:
		l.answers.Put(answer)
		return f, nil
	default:
	}
	var err error
	var late <-chan time.Time
	if d, ok := ctx.(deadlined); ok && d.Parent() != ctx {
		at, _ := d.Deadline()
		t := l.timer(time.Until(at))
		defer l.timers.Put(t)
		defer t.Stop()
		ctx, late = d.Parent(), t.C
	}
	select {
	case f := <-answer:
		l.answers.Put(answer)
		return f, nil
	case <-l.ctx.Done():
		err = errLinkEnded
	case <-late:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	select {
	case f := <-answer:
		l.answers.Put(answer)
		return f, nil
	default:
		return nil, err
	}
}

// whyEnded says why the connection is over, for an error.
func (c *client) whyEnded() string {
	after, cause := c.link.why()
	if cause == nil { // this side wanted it
		return ""
	}
	return whyEnded(cause, c.hint(after, cause))
}

// hint is what may be wrong when a server closes soon and without a word.
func (c *client) hint(after time.Duration, cause error) string {
	if c.link.heard.Load() || after >= time.Second || !errors.Is(cause, io.EOF) && !isReset(cause) {
		return ""
	}
	if _, secured := c.link.stream.(*tls.Conn); secured {
		return "where clients have to show a certificate (ClientAuth), set Certificates of DialTLS"
	}
	return "where only TLS is taken (TLSEnforcing), set DialTLS"
}

// notSent turns an error of a link's send into one of a call.
func (c *client) notSent(err error) error {
	switch {
	case err == errLinkEnded:
		return errGone(c.addr, c.whyEnded())
	case errors.Is(err, ErrBadFrame):
		return errTooLarge(c.addr, err)
	}
	return errNotSent(c.addr, err)
}

// refuse answers a request that is not served. It does not wait: what cannot be
// written at once is as lost as the request.
func refuse(l *link, req *Frame, code protocol.Code, format string, args ...any) {
	if req.Oneway() {
		return
	}
	e := protocol.Errorf(code, format, args...)
	f := answerTo(req)
	f.Code, f.Remark = int32(e.Code), e.Remark
	_ = l.trySend(f)
}
