package consume

import (
	"errors"
	"fmt"
)

// RetryAfter wraps err so that the failed messages come again after the delay of
// level instead of the one that their attempts call for: 1 is the first level of
// Timings.DelayLevels, a level above the last one means the last one, and one
// below 1 is no wish. nil stays nil. Java: ConsumeConcurrentlyContext's
// delayLevelWhenNextConsume.
func RetryAfter(err error, level int) error {
	if err == nil {
		return nil
	}
	return &retryAfter{err, level}
}

// DeadLetter wraps err so that the failed messages get no further attempt. nil
// stays nil. Java: delayLevelWhenNextConsume of -1.
func DeadLetter(err error) error {
	if err == nil {
		return nil
	}
	return &deadLetter{err}
}

// Done says that the first n messages of a call are consumed and the others
// failed with err. It is never nil: without err the others failed, too.
// Java: ConsumeConcurrentlyContext.setAckIndex(n - 1).
func Done(n int, err error) error { return &done{err, n} }

type retryAfter struct {
	err   error
	level int
}

func (e *retryAfter) Error() string {
	return fmt.Sprintf("%v (again after delay level %d)", e.err, e.level)
}
func (e *retryAfter) Unwrap() error { return e.err }

type deadLetter struct{ err error }

func (e *deadLetter) Error() string { return fmt.Sprintf("%v (dead letter)", e.err) }
func (e *deadLetter) Unwrap() error { return e.err }

type done struct {
	err error // nil: none was given
	n   int
}

func (e *done) Error() string {
	if e.err == nil {
		return fmt.Sprintf("the messages after the first %d are not consumed", e.n)
	}
	return fmt.Sprintf("%v (after %d consumed messages)", e.err, e.n)
}
func (e *done) Unwrap() error { return e.err }

// verdict is what the error of a handler means for the messages of its call.
type verdict struct {
	done  int  // the first of them are consumed
	level int  // delay level wished for the others; 0 = what their attempts call for
	dead  bool // the others become dead letters
}

// judge reads err for a call of n messages. The order in which DeadLetter,
// RetryAfter and Done are nested does not matter: Done(2, DeadLetter(err)) and
// DeadLetter(Done(2, err)) both mean two consumed messages and the others dead
// letters. DeadLetter outweighs RetryAfter; of two of the same kind the outer
// one counts. A count outside of 0 to n is the nearest within.
func judge(err error, n int) verdict {
	if err == nil {
		return verdict{done: n}
	}
	var v verdict
	var d *done
	if errors.As(err, &d) {
		v.done = min(max(d.n, 0), n)
	}
	var dead *deadLetter
	var after *retryAfter
	switch {
	case errors.As(err, &dead):
		v.dead = true
	case errors.As(err, &after):
		v.level = max(after.level, 0)
	}
	return v
}
