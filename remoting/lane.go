package remoting

import (
	"context"
	"sync"

	"github.com/pocketmq/pocketmq/protocol"
)

// laneLength is how many oneway requests of a connection may wait for the one
// that is served. It is small: what waits in it is memory of a stranger.
const laneLength = 64

// lane serves the oneway requests of a connection one by one, in the order in
// which they came: nobody is told when one is done, so that nobody could keep
// the order otherwise. For the same reason what comes after one waits for it:
// see last. Its goroutine ends at close.
type lane struct {
	work chan func()
	last chan struct{} // closed when the newest is done; nil before the first. For who adds
	done sync.WaitGroup
}

func newLane() *lane {
	n := &lane{work: make(chan func(), laneLength)}
	n.done.Go(func() {
		for f := range n.work {
			f()
		}
	})
	return n
}

// add waits for a place. It is false when ctx ended before there was one.
func (n *lane) add(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	select {
	case n.work <- func() { defer close(done); f() }:
		n.last = done
		return true
	case <-ctx.Done():
		return false
	}
}

// close lets nothing more in; what is in the lane is served. Only who adds may
// call it.
func (n *lane) close() { close(n.work) }

func (n *lane) wait() { n.done.Wait() }

// calls serves the other requests of a connection side by side, and writes
// their answers. Its goroutines end after the link; wait joins them.
type calls struct {
	link   *link
	places chan struct{} // a place for each request that is served or whose answer waits to be written
	done   sync.WaitGroup
}

func newCalls(l *link, places int) *calls {
	return &calls{link: l, places: make(chan struct{}, places)}
}

// try serves a request, after what ends when after is closed, unless all places
// are taken.
func (c *calls) try(after chan struct{}, serve func(context.Context) *Frame) bool {
	select {
	case c.places <- struct{}{}:
	default:
		return false
	}
	c.run(after, serve)
	return true
}

// add is try, but waits for a place. It is false when the link ended before.
func (c *calls) add(after chan struct{}, serve func(context.Context) *Frame) bool {
	select {
	case c.places <- struct{}{}:
	case <-c.link.ctx.Done():
		return false
	}
	c.run(after, serve)
	return true
}

func (c *calls) run(after chan struct{}, serve func(context.Context) *Frame) {
	c.done.Go(func() {
		defer func() { <-c.places }()
		if after != nil {
			<-after // the lane serves everything that is in it, also when the link has ended
		}
		if f := serve(c.link.ctx); f != nil {
			c.answer(f)
		}
	})
}

// answer writes an answer. One that no frame can hold becomes an error.
func (c *calls) answer(f *Frame) {
	err := c.link.send(c.link.ctx, f)
	if err != nil && c.link.alive() {
		short := &Frame{Flag: f.Flag, Opaque: f.Opaque, Serialize: f.Serialize, Language: f.Language, Version: f.Version, Code: int32(protocol.SystemError), Remark: err.Error()}
		_ = c.link.send(c.link.ctx, short) // The link is over, or somebody will end it.
	}
}

func (c *calls) wait() { c.done.Wait() }
