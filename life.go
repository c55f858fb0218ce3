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
	orphan   func() error  // set by a Close that gave up on a running start: the start stops itself
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

	err := errors.New("its goroutine was ended by user code (runtime.Goexit)")
	defer func() { _ = l.startEnded(err, started) }()
	err = f(ctx)
	return l.startEnded(err, started)
}

// startEnded notes how a start ended; the second call of one start does
// nothing. It runs deferred too, for a start that takes its goroutine with it.
func (l *life) startEnded(err error, started chan struct{}) error {
	l.mu.Lock()
	select {
	case <-started:
		l.mu.Unlock()
		return err
	default:
	}
	closing, orphan := l.finished != nil, l.orphan
	switch {
	case err != nil:
		l.state.Store(lifeNew) // nothing runs: a Close has nothing to stop
	case orphan != nil:
		l.state.Store(lifeClosed)
	default:
		l.state.Store(lifeRunning) // a Close that waits takes it down
	}
	close(started)
	l.mu.Unlock()
	switch {
	case closing:
		if err == nil && orphan != nil {
			_ = orphan() // the Close has returned long ago
		}
		return fmt.Errorf("%s: %w", l.what, ErrClosed)
	case err != nil:
		return fmt.Errorf("%s: start: %w", l.what, err)
	}
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
			l.mu.Lock()
			starting := l.started
			hung := l.orphan != nil
			l.mu.Unlock()
			if hung {
				left = func() error { return waitOr(starting, closeTimeout) }
			}
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
	var err error
	if starting != nil && waitOr(starting, closeTimeout) != nil && l.abandon(starting, stop) {
		err = fmt.Errorf("%s: its start hangs in user code: %w", l.what, ErrHandlersRunning)
	} else if l.state.Load() == lifeRunning {
		l.state.Store(lifeClosing)
		err = stop()
	}
	l.mu.Lock()
	l.err = err
	if l.orphan == nil {
		l.state.Store(lifeClosed)
	}
	l.mu.Unlock()
	close(done)
	return err
}

// abandon leaves a start that does not end to itself. It is false when it has
// ended meanwhile.
func (l *life) abandon(started chan struct{}, stop func() error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-started:
		return false
	default:
		l.orphan = stop
		return true
	}
}

// undo collects what a start has opened, to be closed in reverse order.
type undo []func()

func (u *undo) add(f func()) { *u = append(*u, f) }

func (u undo) run() {
	for i := len(u) - 1; i >= 0; i-- {
		u[i]()
	}
}
