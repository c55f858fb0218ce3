package memnet

import (
	"context"
	"sync/atomic"
	"time"
)

// callCtx is the context that a handler gets: the caller's, ended also by the
// end of either side of the session and by the end of the call. Only a handler
// that asks for Done, because it is about to wait, pays for being told.
type callCtx struct {
	parent context.Context
	s      *session
	wait   atomic.Pointer[wait] // nil until Done is called; Network.finished after the call
}

var _ context.Context = (*callCtx)(nil)

// wait is the cancellable context that stands behind a callCtx once somebody
// waits for it. Immutable.
type wait struct {
	ctx    context.Context
	cancel context.CancelFunc
	since  time.Time // when the handler began to wait
}

func (c *callCtx) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *callCtx) Done() <-chan struct{} { return c.waiter().ctx.Done() }

func (c *callCtx) Err() error {
	if w := c.wait.Load(); w != nil {
		return w.ctx.Err()
	}
	if c.s.dead.Load() || c.s.over() {
		return context.Canceled
	}
	return c.parent.Err()
}

// Value answers through the cancellable context once there is one, so that
// contexts derived from c find it and need no goroutine to follow it.
func (c *callCtx) Value(key any) any {
	if w := c.wait.Load(); w != nil && w != c.s.net.finished {
		return w.ctx.Value(key)
	}
	return c.parent.Value(key)
}

func (c *callCtx) waiter() *wait {
	if w := c.wait.Load(); w != nil {
		return w
	}
	ctx, cancel := context.WithCancel(c.parent)
	w := &wait{ctx, cancel, time.Now()}
	if !c.wait.CompareAndSwap(nil, w) {
		cancel()
		return c.wait.Load()
	}
	c.s.watch(c, w)
	if c.wait.Load() != w {
		c.s.unwatch(c) // The call returned before it was watched.
	}
	return w
}

// finish ends c: its call has returned. It tells since when the handler had
// waited, the zero time if it never did.
func (c *callCtx) finish() (since time.Time) {
	w := c.wait.Swap(c.s.net.finished)
	if w == nil {
		return time.Time{}
	}
	c.s.unwatch(c)
	w.cancel()
	return w.since
}

// watch has w cancelled when either side of s ends, at once if one has.
func (s *session) watch(c *callCtx, w *wait) {
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting = make(map[*callCtx]*wait)
	}
	s.waiting[c] = w
	s.mu.Unlock()
	if s.dead.Load() || s.over() {
		w.cancel()
	}
}

func (s *session) unwatch(c *callCtx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c)
}

// cancelCalls wakes the handlers that wait. Those that begin to wait later
// find in watch that s is over.
func (s *session) cancelCalls() {
	s.mu.Lock()
	waits := make([]*wait, 0, len(s.waiting))
	for _, w := range s.waiting {
		waits = append(waits, w)
	}
	s.mu.Unlock()
	for _, w := range waits {
		w.cancel()
	}
}
