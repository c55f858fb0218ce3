package remoting

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/pocketmq/pocketmq/protocol"
)

// What may wait in a lane for the request that is served. It is little: it is
// memory of a stranger.
const (
	laneLength = 64
	laneBytes  = piece
)

// lane serves the oneway requests of a connection one by one, in the order in
// which they came: nobody is told when one is done, so that nobody could keep
// the order otherwise. For the same reason what comes after one waits for it:
// see last. Its goroutine ends at close.
type lane struct {
	work  chan func()
	bytes *semaphore.Weighted
	last  chan struct{} // closed when the newest is done; nil before the first. For who adds
	done  sync.WaitGroup

	pending atomic.Int64 // those that wait for a place, have one, or are served
}

func newLane() *lane {
	n := &lane{work: make(chan func(), laneLength), bytes: semaphore.NewWeighted(laneBytes)}
	n.done.Go(func() {
		for f := range n.work {
			f()
		}
	})
	return n
}

// add waits for a place, for a request of a size. It is false when ctx ended
// before there was one.
func (n *lane) add(ctx context.Context, size int, f func()) bool {
	bytes := int64(min(size, laneBytes))
	n.pending.Add(1)
	if n.bytes.Acquire(ctx, bytes) != nil {
		n.pending.Add(-1)
		return false
	}
	done := make(chan struct{})
	select {
	case n.work <- func() {
		defer close(done)
		defer n.pending.Add(-1)
		defer n.bytes.Release(bytes)
		f()
	}:
		n.last = done
		return true
	case <-ctx.Done():
		n.pending.Add(-1)
		return false
	}
}

// close lets nothing more in; what is in the lane is served. Only who adds may
// call it.
func (n *lane) close() { close(n.work) }

func (n *lane) wait() { n.done.Wait() }

// calls serves the other requests of a connection side by side, and writes
// their answers. The last ends after the link; wait waits for it.
//
// Each has a place of its connection. Those beyond the connection's own also
// need one that all connections share, so that those who take all of these
// leave everybody else something.
type calls struct {
	link    *link
	ctx     context.Context // under which requests are served
	workers *workers
	places  chan struct{} // a place for each request that is served or whose answer waits to be written
	own     int64         // requests that need no shared place
	shared  chan struct{} // a place for each request beyond; nil with an own that is never reached
	served  atomic.Int64  // requests that are being served
	freed   chan struct{} // capacity 1: one was served; a second signal would say no more
	done    sync.WaitGroup
}

// newCalls lets places requests be served at a time, of which own need no
// shared place.
func newCalls(ctx context.Context, l *link, w *workers, places, own int, shared chan struct{}) *calls {
	return &calls{link: l, ctx: ctx, workers: w, places: make(chan struct{}, places), own: int64(own), shared: shared, freed: make(chan struct{}, 1)}
}

// place is what a request may run in.
type place byte

const (
	placeNone   place = iota
	placeOwn          // one of the connection
	placeShared       // one of the connection, and one that all share
	placeFull         // none: all of the connection are taken
	placeBusy         // none: all that are shared are taken
)

// try takes a place if there is one.
func (c *calls) try() place {
	select {
	case c.places <- struct{}{}:
	default:
		return placeFull
	}
	if p := c.enter(); p != placeNone {
		return p
	}
	<-c.places
	return placeBusy
}

// enter takes what is needed beside a place of the connection.
func (c *calls) enter() place {
	if c.served.Add(1) <= c.own {
		return placeOwn
	}
	select {
	case c.shared <- struct{}{}:
		return placeShared
	default:
		c.served.Add(-1)
		return placeNone
	}
}

// take waits for a place. It is placeNone when ctx ended before.
func (c *calls) take() place {
	select {
	case c.places <- struct{}{}:
	case <-c.ctx.Done():
		return placeNone
	}
	for {
		if p := c.enter(); p != placeNone {
			return p
		}
		select {
		case c.shared <- struct{}{}:
			c.served.Add(1)
			return placeShared
		case <-c.freed:
		case <-c.ctx.Done():
			<-c.places
			return placeNone
		}
	}
}

// run serves a request in a place that was taken.
func (c *calls) run(t task) {
	t.calls = c
	c.done.Add(1)
	c.workers.run(t)
}

// leave gives back what a request that was served needed.
func (c *calls) leave(t *task) {
	t.lease.release()
	if t.held != nil {
		t.held()
	}
	c.served.Add(-1)
	if t.place == placeShared {
		<-c.shared
	}
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// answer writes an answer, which nobody may use any more. One that no frame can hold becomes an error.
func (c *calls) answer(f *Frame, later bool, made *reservation) {
	err := c.link.add(c.link.ctx, f, later, made)
	if errors.Is(err, ErrBadFrame) { // else nothing can be written any more
		short := &Frame{Flag: f.Flag, Opaque: f.Opaque, Serialize: f.Serialize, Language: f.Language, Version: f.Version, Code: int32(protocol.SystemError), Remark: err.Error()}
		_ = c.link.send(c.link.ctx, short) // The link is over, or somebody will end it.
	}
	c.link.frames.put(f)
}

func (c *calls) wait() { c.done.Wait() }
