package pocketmq

import (
	"sync"
	"sync/atomic"
	"time"
)

// rate turns a count into messages a second between two readings.
type rate struct {
	count atomic.Int64

	mu    sync.Mutex // guards the rest
	start time.Time  // of the window
	base  int64      // count at start
	value float64    // of the last whole window
	known bool
}

func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, d := r.count.Load(), now.Sub(r.start)
	if d < time.Second {
		if r.known || d <= 0 {
			return r.value
		}
		return float64(n-r.base) / d.Seconds()
	}
	r.value, r.known = float64(n-r.base)/d.Seconds(), true
	r.start, r.base = now, n
	return r.value
}
