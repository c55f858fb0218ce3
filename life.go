package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// life is the one life of every server and client: New, Start, Close.
//
//	new -> starting -> running -> closing -> closed
//	          |  ^
//	          v  |  a failed Start leaves nothing behind and may be repeated
//	         new-+
//
// Close during starting cancels the start; Start then returns ErrClosed.
type life struct {
	what  string // "broker broker-a", for errors
	state atomic.Int32

	mu       sync.Mutex    // guards the fields below and changes of state
	abort    func()        // cancels a running start
	started  chan struct{} // closed when a running start has ended
	finished chan struct{} // made by the first Close, closed when it is done
	err      error         // what the first Close returned
}

const (
	lifeNew int32 = iota
	lifeStarting
	lifeRunning
	lifeClosing
	lifeClosed
)

// use is nil while running, otherwise ErrNotStarted or ErrClosed.
func (l *life) use() error {
	if l.state.Load() == lifeRunning {
		return nil
	}
	return l.unusable()
}

func (l *life) unusable() error {
	switch l.state.Load() {
	case lifeNew, lifeStarting:
		return fmt.Errorf("%s: %w", l.what, ErrNotStarted)
	}
	return fmt.Errorf("%s: %w", l.what, ErrClosed)
}

// start runs f, which must leave nothing behind when it fails.
func (l *life) start(ctx context.Context, f func(context.Context) error) error {
	l.mu.Lock()
	if l.finished != nil { // a Close that has begun would not see this start
		l.mu.Unlock()
		return fmt.Errorf("%s: %w", l.what, ErrClosed)
	}
	switch l.state.Load() {
	case lifeStarting, lifeRunning:
		l.mu.Unlock()
		return fmt.Errorf("%s: already started", l.what)
	}
	if err := ctx.Err(); err != nil {
		l.mu.Unlock()
		return fmt.Errorf("%s: start: %w", l.what, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan struct{})
	l.abort, l.started = cancel, started
	l.state.Store(lifeStarting)
	l.mu.Unlock()

	err := f(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(started)
	closing := l.finished != nil
	switch {
	case err != nil && closing:
		l.state.Store(lifeNew) // nothing runs: Close has nothing to stop
		return fmt.Errorf("%s: %w", l.what, ErrClosed)
	case err != nil:
		l.state.Store(lifeNew)
		return fmt.Errorf("%s: start: %w", l.what, err)
	case closing:
		l.state.Store(lifeRunning) // Close takes it down
		return fmt.Errorf("%s: %w", l.what, ErrClosed)
	}
	l.state.Store(lifeRunning)
	return nil
}

// close runs stop once, if anything runs. A second or concurrent call waits
// for the first and returns its result; an early one returns nil. While that
// result is ErrHandlersRunning, a later call runs left, which waits for the
// user code again and returns nil once it has returned.
func (l *life) close(stop, left func() error) error {
	l.mu.Lock()
	if done := l.finished; done != nil {
		l.mu.Unlock()
		late := false
		select {
		case <-done:
			late = true
		default:
			<-done
		}
		l.mu.Lock()
		err := l.err
		l.mu.Unlock()
		if late && errors.Is(err, ErrHandlersRunning) {
			err = left()
			l.mu.Lock()
			l.err = err
			l.mu.Unlock()
		}
		return err
	}
	done := make(chan struct{})
	l.finished = done
	starting := l.started
	if l.state.Load() == lifeStarting {
		l.abort()
	}
	l.mu.Unlock()
	if starting != nil {
		<-starting
	}
	var err error
	if l.state.Load() == lifeRunning {
		l.state.Store(lifeClosing)
		err = stop()
	}
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.state.Store(lifeClosed)
	close(done)
	return err
}

// undo collects what a start has opened, to be closed in reverse order.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

func (u undo) run() {
	for i := len(u) - 1; i >= 0; i-- {
		u[i]()
	}
}
