package statefile

import "context"

// Turn is a lock that may be held over file calls, of which a slow disk makes long ones.
// Differs from a sync.Mutex in that who waits for it waits at a channel: a
// testing/synctest bubble knows that as waiting, and its time goes on. It is fair to
// nobody. Make it with [NewTurn].
type Turn struct{ taken chan struct{} }

// NewTurn returns a lock that nobody holds.
func NewTurn() Turn { return Turn{make(chan struct{}, 1)} }

// Lock blocks until nobody else holds the turn.
func (t Turn) Lock() { t.taken <- struct{}{} }

// LockContext is Lock, but gives up when ctx ends, and returns its error then. It takes
// a turn that nobody has, even if ctx has ended.
func (t Turn) LockContext(ctx context.Context) error {
	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock lets the next one in.
func (t Turn) Unlock() { <-t.taken }
