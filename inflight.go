package pocketmq

import (
	"context"
	"sync"
	"sync/atomic"
)

// inflight counts calls that run, so that somebody can wait for the last one.
type inflight struct {
	n    atomic.Int64
	mu   sync.Mutex    // guards idle
	last chan struct{} // made by idle, closed by the call that ends last
}

func (f *inflight) enter() { f.n.Add(1) }

func (f *inflight) leave() {
	if f.n.Add(-1) != 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && f.n.Load() == 0 {
		close(f.last)
		f.last = nil
	}
}

// idle returns a channel that is closed once no call runs.
func (f *inflight) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n.Load() == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if f.last == nil {
		f.last = make(chan struct{})
	}
	return f.last
}

// wait returns when no call runs, or when ctx ends.
func (f *inflight) wait(ctx context.Context) {
	select {
	case <-f.idle():
	case <-ctx.Done():
	}
}
