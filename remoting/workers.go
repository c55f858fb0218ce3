package remoting

import (
	"context"
	"sync"
	"time"
)

const (
	// idleWorkers is how many workers of a server may wait for something to do.
	idleWorkers = 128
	// workerRest is how long one waits before it ends: long enough that a server
	// that has something to do keeps those that it needs.
	workerRest = 100 * time.Millisecond
)

// workers run tasks side by side; none waits for another. A worker is used
// again: its stack has grown to what requests need, which that of a goroutine
// for each request would do anew each time. Those that are too many to wait, or
// have waited for a while, end.
type workers struct {
	work  chan task     // to one that waits
	idle  chan struct{} // a place for each that waits
	quit  chan struct{} // closed by close
	once  sync.Once     // that
	loops sync.WaitGroup
}

func newWorkers(idle int) *workers {
	return &workers{work: make(chan task), idle: make(chan struct{}, idle), quit: make(chan struct{})}
}

// run runs t on a worker.
func (w *workers) run(t task) {
	select {
	case w.work <- t:
	default:
		w.loops.Go(func() { w.loop(t) })
	}
}

func (w *workers) loop(t task) {
	var rest *time.Timer // nil until it waits for the first time
	for {
		t.run()
		t = task{} // what it held is nobody's any more
		select {
		case w.idle <- struct{}{}:
		default:
			return
		}
		if rest == nil {
			rest = time.NewTimer(workerRest)
			defer rest.Stop()
		} else {
			rest.Reset(workerRest)
		}
		select {
		case t = <-w.work:
		case <-rest.C:
			<-w.idle
			return
		case <-w.quit:
			return
		}
		<-w.idle
	}
}

// close returns when all workers have ended. Nothing may be run any more.
func (w *workers) close() {
	w.once.Do(func() { close(w.quit) })
	w.loops.Wait()
}

// task is a request that has a place among the calls of a connection.
type task struct {
	calls *calls
	place place
	after chan struct{} // closed when it may begin; nil: at once
	serve func(context.Context) *Frame
	lease *lease       // of its bytes, given back when it was served and before its answer is written
	held  func()       // the same for a pull; nil: nothing
	made  *reservation // of its answer; nil: it is not counted before
	later bool         // its answer is written when there is nothing more to read
}

// ready reports whether it may begin.
func (t *task) ready() bool {
	if t.after == nil {
		return true
	}
	select {
	case <-t.after:
		return true
	default:
		return false
	}
}

func (t *task) run() {
	defer t.calls.done.Done()
	defer t.made.Release()
	defer func() { <-t.calls.places }()
	if f := t.answer(); f != nil {
		t.calls.answer(f, t.later, t.made)
	}
}

func (t *task) answer() *Frame {
	defer t.calls.leave(t)
	if t.after != nil {
		<-t.after // the lane serves everything that is in it, also when the link has ended
	}
	return t.serve(t.calls.ctx)
}
