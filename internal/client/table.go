package client

import (
	"maps"
	"sync"
	"sync/atomic"
)

// table is a map that is read without a lock and copied by every change. The
// zero value is empty and ready.
type table[V any] struct {
	mu sync.Mutex // serialises changes
	m  atomic.Pointer[map[string]V]
}

func (t *table[V]) get(key string) (V, bool) {
	v, ok := t.all()[key]
	return v, ok
}

// all returns the present map; it is never written again.
func (t *table[V]) all() map[string]V {
	if m := t.m.Load(); m != nil {
		return *m
	}
	return nil
}

// change has edit work on a copy, which takes the map's place if edit returns
// true. edit runs under the lock and must only look and write.
func (t *table[V]) change(edit func(m map[string]V) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(t.all())
	if next == nil {
		next = make(map[string]V)
	}
	if edit(next) {
		t.m.Store(&next)
	}
}

// remove deletes key if it is there.
func (t *table[V]) remove(key string) {
	t.change(func(m map[string]V) bool {
		_, was := m[key]
		delete(m, key)
		return was
	})
}
