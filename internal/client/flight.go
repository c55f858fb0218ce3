package client

import (
	"context"
	"sync"
	"time"
)

// flights runs work once for all callers that want the same thing at the same
// time. The zero value is ready.
type flights[T any] struct {
	mu sync.Mutex // guards m
	m  map[string]*flight[T]
}

type flight[T any] struct {
	done  chan struct{} // closed when what follows is set
	v     T
	err   error
	short bool // it failed because the caller who began it had no more time
}

// do returns what work returns, run by this call or by one that has begun
// already. work runs on a goroutine of c, with the deadline of the caller who
// began it but not later than limit from now (0 = no limit), so that no
// waiter's end disturbs the others. A waiter whose ctx ends leaves with ctx's
// error.
func (f *flights[T]) do(c *Client, ctx context.Context, key string, limit time.Duration, work func(context.Context) (T, error)) (T, error) {
	for {
		if err := ctx.Err(); err != nil {
			var none T
			return none, err
		}
		fl, mine := f.join(c, ctx, key, limit, work)
		if fl == nil {
			var none T
			return none, c.errClosed()
		}
		select {
		case <-fl.done:
			if fl.short && !mine {
				continue // This caller has time left: once more, with its own.
			}
			return fl.v, fl.err
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}

// join returns the flight for key, beginning one if there is none; nil after
// c's Close.
func (f *flights[T]) join(c *Client, ctx context.Context, key string, limit time.Duration, work func(context.Context) (T, error)) (fl *flight[T], mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.m[key]; fl != nil {
		return fl, false
	}
	if !c.begin() {
		return nil, false
	}
	fl = &flight[T]{done: make(chan struct{})}
	if f.m == nil {
		f.m = make(map[string]*flight[T])
	}
	f.m[key] = fl
	own, hasDeadline := ctx.Deadline()
	go func() { // ends when work returns, which the end of c.life makes it do
		defer c.running.Done()
		ctx, cancel := c.life, context.CancelFunc(func() {})
		if hasDeadline {
			ctx, cancel = context.WithDeadline(ctx, own)
		}
		v, err := limited(ctx, limit, work)
		short := err != nil && hasDeadline && !time.Now().Before(own)
		cancel()
		f.mu.Lock()
		delete(f.m, key)
		f.mu.Unlock()
		fl.v, fl.err, fl.short = v, err, short
		close(fl.done)
	}()
	return fl, true
}

func limited[T any](ctx context.Context, limit time.Duration, work func(context.Context) (T, error)) (T, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return work(ctx)
}
