package client

import (
	"context"
	"sync"
)

// turns lets one caller at a time do something with an address. The zero value is
// ready.
type turns struct {
	mu sync.Mutex // guards m
	m  map[string]*turn
}

type turn struct {
	taken  chan struct{} // 1 slot
	wanted int           // by whom has it, and who wait; guarded by turns.mu
}

// take waits for the turn until ctx ends. Whoever has it calls give.
func (t *turns) take(ctx context.Context, addr string) (give func(), err error) {
	t.mu.Lock()
	w := t.m[addr]
	if w == nil {
		w = &turn{taken: make(chan struct{}, 1)}
		if t.m == nil {
			t.m = make(map[string]*turn)
		}
		t.m[addr] = w
	}
	w.wanted++
	t.mu.Unlock()
	select {
	case w.taken <- struct{}{}:
		return func() { <-w.taken; t.leave(addr, w) }, nil
	case <-ctx.Done():
		t.leave(addr, w)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(addr string, w *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.wanted--; w.wanted == 0 {
		delete(t.m, addr)
	}
}
