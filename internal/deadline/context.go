package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context is parent with an earlier deadline. It is context.WithDeadline
// without its price: the timer is made only when somebody asks for Done, which
// a request that is served at once never does. It is made by Set and not copied
// afterwards; then it is safe for concurrent use.
type Context struct {
	parent      context.Context
	deadline    time.Time // zero: none, of one that is cancellable
	cancellable bool

	waited    atomic.Pointer[waited] // made by the first Done
	cancelled atomic.Bool
	mu        sync.Mutex // serialises Done, Cancel and End
	closed    bool
}

var _ context.Context = (*Context)(nil)

// waited is the real context behind a Context that somebody waits for.
type waited struct {
	context.Context
	cancel context.CancelFunc
}

// Set makes c parent with deadline, or with parent's if that is earlier. c must
// be new. The parent of a Context that is itself inside another one is the
// outer one's: its deadline is the later one.
func (c *Context) Set(parent context.Context, deadline time.Time) {
	if d, ok := parent.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if p, ok := parent.(*Context); ok && !p.cancellable {
		parent = p.parent
	}
	c.parent, c.deadline = parent, deadline
}

// SetCancellable is Set for a Context that Cancel ends before its deadline; a zero
// deadline is none but parent's. It is no cheaper inside another one.
func (c *Context) SetCancellable(parent context.Context, deadline time.Time) {
	if d, ok := parent.Deadline(); ok && (deadline.IsZero() || d.Before(deadline)) {
		deadline = d
	}
	c.parent, c.deadline, c.cancellable = parent, deadline, true
}

// Cancel ends a Context that is cancellable, if it has not ended.
func (c *Context) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Err() != nil {
		return
	}
	c.cancelled.Store(true)
	if w := c.waited.Load(); w != nil {
		w.cancel()
	}
}

// Deadline implements context.Context; only a cancellable one may have none.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Parent is c without its deadline: for those who wait with a timer of their
// own, which is cheaper than Done. A cancellable one is returned as it is.
func (c *Context) Parent() context.Context {
	if c.cancellable {
		return c
	}
	return c.parent
}

// Value answers through the real context once there is one: package context
// then finds it and needs no goroutine to follow a Context.
func (c *Context) Value(key any) any {
	if w := c.waited.Load(); w != nil {
		return w.Value(key)
	}
	return c.parent.Value(key)
}

// Err implements context.Context.
func (c *Context) Err() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	if c.cancelled.Load() {
		return context.Canceled
	}
	if !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded // the timer may be the second one of this instant
	}
	if w := c.waited.Load(); w != nil {
		return w.Err()
	}
	return nil
}

// Done implements context.Context. The first call makes the timer, if there is one.
func (c *Context) Done() <-chan struct{} {
	if w := c.waited.Load(); w != nil {
		return w.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waited.Load()
	if w == nil {
		w = new(waited)
		if c.deadline.IsZero() {
			w.Context, w.cancel = context.WithCancel(c.parent)
		} else {
			w.Context, w.cancel = context.WithDeadline(c.parent, c.deadline)
		}
		c.waited.Store(w)
		if c.closed || c.cancelled.Load() {
			w.cancel()
		}
	}
	return w.Done()
}

// End releases the timer. Like a CancelFunc it must be called.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if w := c.waited.Load(); w != nil {
		w.cancel()
	}
}
