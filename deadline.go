package pocketmq

import (
	"context"
	"sync"
	"time"
)

// deadlineCtx is parent with an earlier deadline. It is context.WithDeadline
// without its price: the timer is made only when somebody asks for Done, which
// a request that is served at once never does.
type deadlineCtx struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex      // guards the rest
	inner  context.Context // made by the first Done
	cancel context.CancelFunc
	ended  bool
}

func withDeadline(parent context.Context, deadline time.Time) *deadlineCtx {
	if d, ok := parent.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	return &deadlineCtx{parent: parent, deadline: deadline}
}

func (c *deadlineCtx) Deadline() (time.Time, bool) { return c.deadline, true }

// Value answers through inner once there is one: package context then finds it
// and needs no goroutine to follow a deadlineCtx.
func (c *deadlineCtx) Value(key any) any {
	c.mu.Lock()
	from := c.parent
	if c.inner != nil {
		from = c.inner
	}
	c.mu.Unlock()
	return from.Value(key)
}

func (c *deadlineCtx) Err() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded // inner's timer may be the second one of this instant
	case c.inner != nil:
		return c.inner.Err()
	case c.ended:
		return context.Canceled
	}
	return nil
}

func (c *deadlineCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.deadline)
		if c.ended {
			c.cancel()
		}
	}
	return c.inner.Done()
}

// end releases the timer. Like a CancelFunc it must be called.
func (c *deadlineCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}
