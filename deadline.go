package pocketmq

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// deadlineCtx is parent with an earlier deadline. It is context.WithDeadline
// without its price: the timer is made only when somebody asks for Done, which
// a request that is served at once never does.
type deadlineCtx struct {
	parent   context.Context
	deadline time.Time

	inner  atomic.Pointer[innerCtx] // made by the first Done
	mu     sync.Mutex               // serialises Done and end
	closed bool
}

// innerCtx is the real context behind a deadlineCtx that somebody waits for.
type innerCtx struct {
	context.Context
	cancel context.CancelFunc
}

// set makes c parent with deadline, or with parent's if that is earlier. c must
// be new. The parent of a deadlineCtx that is itself inside another one is the
// outer one's: its deadline is the later one.
func (c *deadlineCtx) set(parent context.Context, deadline time.Time) {
	if d, ok := parent.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if p, ok := parent.(*deadlineCtx); ok {
		parent = p.parent
	}
	c.parent, c.deadline = parent, deadline
}

func (c *deadlineCtx) Deadline() (time.Time, bool) { return c.deadline, true }

// Parent is c without its deadline: for those who wait with a timer of their
// own, which is cheaper than Done.
func (c *deadlineCtx) Parent() context.Context { return c.parent }

// Value answers through inner once there is one: package context then finds it
// and needs no goroutine to follow a deadlineCtx.
func (c *deadlineCtx) Value(key any) any {
	if i := c.inner.Load(); i != nil {
		return i.Value(key)
	}
	return c.parent.Value(key)
}

func (c *deadlineCtx) Err() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	if !time.Now().Before(c.deadline) {
		return context.DeadlineExceeded // inner's timer may be the second one of this instant
	}
	if i := c.inner.Load(); i != nil {
		return i.Err()
	}
	return nil
}

func (c *deadlineCtx) Done() <-chan struct{} {
	if i := c.inner.Load(); i != nil {
		return i.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.inner.Load()
	if i == nil {
		ctx, cancel := context.WithDeadline(c.parent, c.deadline)
		i = &innerCtx{ctx, cancel}
		c.inner.Store(i)
		if c.closed {
			cancel()
		}
	}
	return i.Done()
}

// end releases the timer. Like a CancelFunc it must be called.
func (c *deadlineCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if i := c.inner.Load(); i != nil {
		i.cancel()
	}
}
