package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Engine consumes for one member of a group. All methods are safe for
// concurrent use. Java: DefaultMQPushConsumerImpl.
//
// Life: New, Start, then Shutdown or Close, once. A Start that failed leaves
// nothing running and may be repeated.
type Engine struct {
	cfg  Config
	subs *subscriptions

	hard     chan struct{} // closed by the first Close: handlers get no more time than CloseTimeout
	hardOnce sync.Once

	mu struct { // guards the life of the engine
		sync.Mutex
		state       state
		run         *run                    // of the last Start that did not fail; nil before
		cancelStart context.CancelCauseFunc // while starting
		started     chan struct{}           // closed when the Start under way has returned
		stopped     chan struct{}           // made by the first Close or Shutdown, closed when it is done
		err         error                   // its result: user code that still runs
		lost        error                   // the last offsets that it could not store
		waited      bool                    // it gave cancelled handlers CloseTimeout
	}
}

type state int

const (
	stateNew state = iota
	stateStarting
	stateRunning
	stateStopped // also while stopping
)

// New makes an engine and starts nothing.
func New(cfg Config) *Engine {
	cfg.Subscriptions = maps.Clone(cfg.Subscriptions)
	if cfg.Pauses == nil {
		cfg.Pauses = new(Pauses)
	}
	e := &Engine{cfg: cfg, hard: make(chan struct{})}
	e.subs = newSubscriptions(&e.cfg)
	return e
}

// Start joins the group and returns after the first rebalance of every
// subscribed topic that has a route, start offsets resolved: what is sent after
// Start returned is never skipped. A topic without a route is no error; it is
// looked for every RouteRetry.
//
// Start tries again every RebalanceRetry while a broker does not answer, as long
// as ctx lasts; then it returns an error that matches protocol.ErrTimeout (or
// ctx's) and names the last failure, and nothing is left running. ctx bounds the
// start only; its values reach the handlers. What trying again cannot help is
// returned at once: no name server that answers (protocol.ErrUnreachable), a
// refusal for good such as protocol.ErrNoPermission, a strategy that fails.
// protocol.ErrClosed after or during Close. No handler has run when Start fails.
// Leaving the group after a failure takes up to 1 s more when a broker is
// silent.
func (e *Engine) Start(ctx context.Context) error {
	base := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	e.mu.Lock()
	switch e.mu.state {
	case stateStopped:
		e.mu.Unlock()
		return fmt.Errorf("consume: start of group %q: %w", e.cfg.Group, protocol.ErrClosed)
	case stateStarting, stateRunning:
		e.mu.Unlock()
		return fmt.Errorf("consume: group %q is started already", e.cfg.Group)
	}
	now := time.Now()
	e.subs.start(now)
	r := newRun(&e.cfg, e.subs, base, now)
	started := make(chan struct{})
	e.mu.state, e.mu.run, e.mu.cancelStart, e.mu.started = stateStarting, r, cancel, started
	e.mu.Unlock()
	defer close(started)

	joined, err := r.join(ctx)
	e.mu.Lock()
	if err == nil && e.mu.state == stateStarting {
		e.mu.state = stateRunning
		e.mu.Unlock()
		r.activate(joined)
		return nil
	}
	if err == nil || errors.Is(context.Cause(ctx), protocol.ErrClosed) {
		err = fmt.Errorf("consume: start of group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	e.mu.run = nil
	if e.mu.state == stateStarting {
		e.mu.state = stateNew
	}
	e.mu.Unlock()
	r.abandon()
	return err
}

// ErrUnderWay is returned by a Shutdown whose ctx ended while it waited for
// another call that had begun to stop the engine. That one goes on.
var ErrUnderWay = errors.New("begun by another call")

// Shutdown stops pulling, starts no more handlers, lets those that run finish,
// commits what is finished and leaves the group. Messages that were pulled and
// not started are left to the group, as are failed ones that wait for their next
// delivery.
//
// It returns as soon as ctx ends, and its requests to brokers end with ctx. If
// handlers run then, their context is cancelled; the error says what was left
// and matches protocol.ErrHandlersRunning and ctx's error. A strategy or
// OnRebalanced that has not returned is such an error too. What handlers finish
// while Shutdown waits is committed at once, not only at the end. A silent broker
// costs 3 s when ctx has no deadline; otherwise 5 s for a commit and 3 s for the
// farewell, as far as ctx allows.
//
// When the last offset of a queue could not be stored, or it is open whether it
// was, the error names the queue and matches the cause, such as
// protocol.ErrUnreachable, protocol.ErrUnknownOutcome or ctx's error: messages
// that were finished are delivered again. With a ctx that has ended already
// nothing is stored.
//
// A Close meanwhile turns it into a Close, with a Close's bounds. nil before
// Start; a later call waits for the handlers that still run, as long as ctx
// lasts. ErrUnderWay when ctx ends while another call stops the engine.
func (e *Engine) Shutdown(ctx context.Context) error { return e.stop(ctx, false) }

// Close cancels the handlers' context, waits at most CloseTimeout for them,
// commits what is finished and leaves the group; silent brokers get 3 s. What a
// handler returns after that is not committed; an error it returns after the
// cancellation leaves its messages unfinished, for the group. Offsets that could
// not be stored are logged and no error, since brokers may have gone before:
// what they cover is delivered again.
//
// protocol.ErrHandlersRunning when handlers still run then; a later Close waits
// again and returns the same while they run, nil after. Concurrent calls wait
// for the first. A Close from inside a handler cancels, waits CloseTimeout and
// returns ErrHandlersRunning. nil before Start, which then fails.
func (e *Engine) Close() error {
	e.hardOnce.Do(func() { close(e.hard) })
	return e.stop(context.Background(), true)
}

// stop ends the engine, or waits for the call that does.
func (e *Engine) stop(ctx context.Context, hard bool) error {
	e.mu.Lock()
	first := e.mu.stopped == nil
	if first {
		e.mu.stopped = make(chan struct{})
	}
	stopped, started, r := e.mu.stopped, e.mu.started, e.mu.run
	starting := e.mu.state == stateStarting
	e.mu.state = stateStopped
	if starting {
		e.mu.cancelStart(protocol.ErrClosed)
	}
	e.mu.Unlock()

	switch {
	case first && starting:
		// The Start gives up by itself, and leaves nothing running; a Close from
		// inside it (a strategy's) must not wait for ever.
		err := e.await(started, ctx, hard)
		e.finish(stopped, err, nil)
		return err
	case first && r == nil:
		e.finish(stopped, nil, nil)
		return nil
	case first:
		failed, err := e.halt(r, ctx, hard)
		lost := r.lost(failed)
		e.finish(stopped, err, lost)
		if hard {
			r.warn(failed)
			return err
		}
		return joined([]error{err, lost})
	}

	late := isClosed(stopped)
	if !late {
		select {
		case <-stopped:
		case <-ctx.Done():
			return fmt.Errorf("consume: shutdown of group %q, %w: %w", e.cfg.Group, ErrUnderWay, ctx.Err())
		}
	}
	e.mu.Lock()
	err, lost, waited, r := e.mu.err, e.mu.lost, e.mu.waited, e.mu.run
	e.mu.Unlock()
	switch {
	case !late && !hard:
		return joined([]error{err, lost})
	case !late && waited:
		return err
	case r != nil:
		return e.await(r.quiet, ctx, hard)
	case started != nil:
		return e.await(started, ctx, hard)
	}
	return nil
}

// finish publishes the result of the first stop.
func (e *Engine) finish(stopped chan struct{}, err, lost error) {
	e.mu.Lock()
	e.mu.err, e.mu.lost = err, lost
	e.mu.Unlock()
	close(stopped)
}

// halt ends a run. It returns the last commits that failed, and an error for
// user code that still runs.
func (e *Engine) halt(r *run, ctx context.Context, hard bool) (failed []unstored, err error) {
	r.halt()
	last := r.base // of the last requests
	patient := hard
	var tried map[string]error // by broker: why there was no time for the last requests
	if !hard {
		last = ctx
		end := r.commitFinished(ctx)
		defer end()
		select {
		case <-r.quiet:
		case <-e.hard:
			last, patient = r.base, true
		case <-ctx.Done():
			tried = end()
			running, inside, unfinished := r.left()
			if !isClosed(e.hard) {
				r.cancelBacks()
			}
			switch {
			case isClosed(e.hard):
				last, patient, tried = r.base, true, nil
			case running > 0:
				err = fmt.Errorf("consume: shutdown of group %q was cut short: %d handlers cancelled while they ran, %d messages pulled but unfinished; "+
					"the group gets them again, give Shutdown more time to finish what runs: %w: %w", e.cfg.Group, running, unfinished, protocol.ErrHandlersRunning, ctx.Err())
			case inside > 0:
				err = e.await(r.quiet, ctx, false)
			default: // nothing but our own loops, which end by themselves
				patient = true
			}
		}
	}
	if patient || err != nil {
		r.cancelHandlers(protocol.ErrClosed)
	}
	if patient {
		// What is being given back is waited for, but not longer than handlers are.
		impatient := time.AfterFunc(min(leaveTimeout, e.cfg.CloseTimeout/2), r.cancelBacks)
		defer impatient.Stop()
		err = e.await(r.quiet, ctx, true)
		e.mu.Lock()
		e.mu.waited = true
		e.mu.Unlock()
	}
	failed = r.leave(last)
	for i, u := range failed {
		if err := tried[u.broker]; err != nil {
			failed[i].err = err
		}
	}
	r.cancelHandlers(protocol.ErrClosed)
	r.cancelBacks()
	return failed, err
}

// await waits for done: Close at most CloseTimeout, Shutdown as long as ctx
// lasts. What is awaited hangs in user code when it does not come.
func (e *Engine) await(done <-chan struct{}, ctx context.Context, hard bool) error {
	if isClosed(done) {
		return nil
	}
	if !hard {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("consume: shutdown of group %q: %s: %w: %w", e.cfg.Group, e.stuck(), protocol.ErrHandlersRunning, ctx.Err())
		}
	}
	timer := time.NewTimer(e.cfg.CloseTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("consume: close of group %q: %s %v after their context was cancelled, let them watch it: %w",
			e.cfg.Group, e.stuck(), e.cfg.CloseTimeout, protocol.ErrHandlersRunning)
	}
}

// stuck says what an engine that does not end waits for.
func (e *Engine) stuck() string {
	if n := e.Status().Running; n > 0 {
		return fmt.Sprintf("%d handlers have not returned", n)
	}
	return "a strategy or OnRebalanced has not returned"
}

// MembersChanged tells that a broker reported a change in the group: the engine
// rebalances at once. It never blocks and may be called at any time.
func (e *Engine) MembersChanged() {
	if r := e.current(); r != nil {
		r.trigger(membersChanged)
	}
}

// RoutesChanged tells that routes changed: the engine rebalances at once if it
// subscribes to one of the topics. It never blocks and may be called at any
// time.
func (e *Engine) RoutesChanged(topics []string) {
	r := e.current()
	if r == nil {
		return
	}
	for _, topic := range topics {
		if _, ok := e.subs.get(topic); ok {
			r.trigger(routeChanged)
			return
		}
	}
}

// ConsumerData returns what a heartbeat tells of the group. The version of a
// subscription is the time of the last Start, or of its latest change if that is
// later, in milliseconds; 0 before the first Start. The caller owns the result.
func (e *Engine) ConsumerData() protocol.ConsumerData {
	return protocol.ConsumerData{
		Group:         e.cfg.Group,
		Model:         e.cfg.Model,
		From:          e.cfg.From,
		Passive:       !e.cfg.Polled,
		Subscriptions: e.subs.tell(),
	}
}

// Assignment returns the queues held, sorted. The caller owns the result.
func (e *Engine) Assignment() []message.Queue {
	if r := e.current(); r != nil {
		return r.assignment("")
	}
	return nil
}

// Status returns the counters of the last Start, zero before.
func (e *Engine) Status() Status {
	if r := e.current(); r != nil {
		return r.status()
	}
	return Status{}
}

func (e *Engine) current() *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.run
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
