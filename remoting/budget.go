package remoting

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// At what pace a large request has to come while others wait for its place:
// looked at every paceGrace, it has brought so many bytes per second.
const (
	paceGrace = time.Second
	paceRate  = 64 << 10
)

// errSlow is a large request that came too slowly while others waited.
var errSlow = errors.New("a large request came too slowly")

// budget is how many bytes of large requests a server holds. Whoever wants more
// than there are waits, in turn. A request holds its bytes from when a piece of
// it has arrived until it was served.
type budget struct {
	most    int64
	bytes   *semaphore.Weighted
	waiting atomic.Int64 // requests that wait
}

func newBudget(most int64) *budget {
	return &budget{most: most, bytes: semaphore.NewWeighted(most)}
}

// take waits until there are size bytes, or all where that is less, at most as
// long as ctx and the limit last.
func (b *budget) take(ctx context.Context, size int, limit time.Duration) (*lease, error) {
	n := min(int64(size), b.most)
	if !b.bytes.TryAcquire(n) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		b.waiting.Add(1)
		defer b.waiting.Add(-1)
		if err := b.bytes.Acquire(ctx, n); err != nil {
			return nil, err
		}
	}
	return &lease{budget: b, size: n, begun: time.Now()}, nil
}

// lease is what one request holds of a budget. The methods of a nil one do
// nothing.
type lease struct {
	budget *budget
	size   int64
	begun  time.Time
	come   int64 // bytes that have arrived since
}

// release gives the bytes back.
func (l *lease) release() {
	if l != nil {
		l.budget.bytes.Release(l.size)
	}
}

// arrived notes bytes. It is errSlow when somebody waits and they come too
// slowly.
func (l *lease) arrived(n int) error {
	if l == nil {
		return nil
	}
	l.come += int64(n)
	took := time.Since(l.begun)
	if took < paceGrace || l.budget.waiting.Load() == 0 || l.come >= int64(took.Seconds()*paceRate) {
		return nil
	}
	return errSlow
}

// freeBacklog is how many bytes of a connection may wait to be written without
// being counted by the server's backlog.
const freeBacklog = 64 << 10

// backlog counts what waits to be written on all connections of a server, but
// for what each may have for nothing. When it is too much, the connection whose
// write has lasted longest is cut off: whoever reads is not harmed by those who
// do not.
type backlog struct {
	most  int64
	bytes atomic.Int64
	busy  atomic.Bool // somebody is cutting off
	cut   func() bool // cuts one off; false: there is none
}

// add is true when there is too much now.
func (b *backlog) add(bytes int) bool { return b.bytes.Add(int64(bytes)) > b.most && bytes > 0 }

// relieve cuts off until it is not too much any more.
func (b *backlog) relieve() {
	if !b.busy.CompareAndSwap(false, true) {
		return
	}
	defer b.busy.Store(false)
	for b.bytes.Load() > b.most && b.cut() {
	}
}
