package pocketmq

import (
	"sync"
	"sync/atomic"
)

// groupWatch wakes those who wait for a consumer group to come to some state. It
// costs one atomic load while nobody does. A nil one has nobody.
type groupWatch struct {
	watching atomic.Int64 // watchers there are

	mu       sync.Mutex // guards watchers; a leaf
	watchers map[*groupWatcher]struct{}
}

// groupWatcher is one who waits.
type groupWatcher struct {
	group string
	woken chan struct{} // capacity 1: changes that come before the watcher looks are one
}

// watch begins to watch a group: what changes from now on wakes the watcher.
func (w *groupWatch) watch(group string) *groupWatcher {
	at := &groupWatcher{group: group, woken: make(chan struct{}, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers == nil {
		w.watchers = make(map[*groupWatcher]struct{})
	}
	w.watchers[at] = struct{}{}
	w.watching.Add(1)
	return at
}

func (w *groupWatch) end(at *groupWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.watchers, at)
	w.watching.Add(-1)
}

// changed tells that something a group's status shows has changed; "" means that
// of any group. It must be called after the change and never blocks.
func (w *groupWatch) changed(group string) {
	if w == nil || w.watching.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for at := range w.watchers {
		if group != "" && group != at.group {
			continue
		}
		select {
		case at.woken <- struct{}{}:
		default:
		}
	}
}
