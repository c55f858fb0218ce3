package consume

import (
	"container/heap"
	"slices"
	"time"
)

// retry is a failed message that could not be given back to its broker and waits
// for its next delivery here.
type retry struct {
	due time.Time
	h   *heldQueue
	seq uint64 // of no meaning for an orderly queue, which waits as a whole
}

// retryHeap orders retries by due time. Used through container/heap.
type retryHeap []retry

func (a retryHeap) Len() int           { return len(a) }
func (a retryHeap) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a retryHeap) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *retryHeap) Push(x any)        { *a = append(*a, x.(retry)) }
func (a *retryHeap) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = retry{}
	*a = (*a)[:last]
	return x
}

// forget removes the retries of one queue.
func (a *retryHeap) forget(h *heldQueue) {
	h.suspended = false
	n := len(*a)
	*a = slices.DeleteFunc(*a, func(x retry) bool { return x.h == h })
	if len(*a) != n {
		heap.Init(a)
	}
}

// redeliver makes such messages ready when they are due: one timer for all.
func (r *run) redeliver() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if wait, any := r.releaseDue(time.Now()); any {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-due:
		case <-r.sooner:
		case <-r.ctx.Done():
			return
		}
	}
}

// releaseDue makes ready what is due and returns how long the next one waits.
func (r *run) releaseDue(now time.Time) (wait time.Duration, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.retries) > 0 {
		if next := r.retries[0].due; next.After(now) {
			return next.Sub(now), true
		}
		x := heap.Pop(&r.retries).(retry)
		if x.h.suspended { // orderly: the whole queue waited
			x.h.suspended = false
			r.nextLocked(x.h)
		} else if x.h.pq.due(x.seq) {
			r.readyLocked(x.h)
		}
	}
	return 0, false
}
