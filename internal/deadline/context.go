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
	parent   context.Context
	deadline time.Time

	waited atomic.Pointer[waited] // made by the first Done
	mu     sync.Mutex             // serialises Done and End
	closed bool
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
	if p, ok := parent.(*Context); ok {
		parent = p.parent
	}
	c.parent, c.deadline = parent, deadline
}

// Deadline implements context.Context; there always is one.
func (c *Context) Deadline() (time.Time, bool) { return c.deadline, true }

// Parent is c without its deadline: for those who wait with a timer of their
// own, which is cheaper than Done.
func (c *Context) Parent() context.Context { return c.parent }

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
	if !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded // the timer may be the second one of this instant
	}
	if w := c.waited.Load(); w != nil {
		return w.Err()
	}
	return nil
}

// Done implements context.Context. The first call makes the timer.
func (c *Context) Done() <-chan struct{} {
	if w := c.waited.Load(); w != nil {
		return w.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waited.Load()
	if w == nil {
		ctx, cancel := context.WithDeadline(c.parent, c.deadline)
		w = &waited{ctx, cancel}
		c.waited.Store(w)
		if c.closed {
			cancel()
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
