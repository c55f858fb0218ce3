package memnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// errDead says that the caller's side of a session is over. It stays inside
// the package.
var errDead = errors.New("session over")

// errRefused is a dial that nobody accepts.
func errRefused(server *end) error {
	return protocol.Tagged(fmt.Sprintf("%v: connection refused", server), protocol.ErrUnreachable)
}

// errOther is a dial to a server of another kind.
func errOther(server *end, l *listener) error {
	return protocol.Tagged(fmt.Sprintf("%v: a %s listens there", server, l.kind()), protocol.ErrUnreachable)
}

// errDialEnded is a dial whose ctx ended before anybody answered.
func errDialEnded(server *end, waited time.Duration, cause error) error {
	return protocol.Tagged(fmt.Sprintf("%v: no connection within %v: %v", server, waited.Round(time.Millisecond), cause),
		protocol.ErrUnreachable, cause)
}

// errLost is a call whose session ended while it was under way.
func errLost(server *end) error {
	return protocol.Tagged(fmt.Sprintf("connection to %v lost", server), protocol.ErrUnknownOutcome)
}

// errGone is a call on a session that had ended before: nothing has left.
func errGone(server *end) error {
	return protocol.Tagged(fmt.Sprintf("connection to %v is closed; dial again", server), protocol.ErrUnreachable)
}

// errNotSent is a call whose ctx had ended before it began: nothing has left.
func errNotSent(server *end, cause error) error {
	return protocol.Tagged(fmt.Sprintf("request to %v not sent: %v", server, cause), protocol.ErrUnreachable, cause)
}

// errUnanswered is a call whose ctx ended while it waited. A zero since means
// that nobody looked at the clock when the wait began.
func errUnanswered(server *end, since time.Time, cause error) error {
	text := fmt.Sprintf("no answer from %v: %v", server, cause)
	if !since.IsZero() {
		text = fmt.Sprintf("no answer from %v within %v: %v", server, time.Since(since).Round(time.Millisecond), cause)
	}
	return protocol.Tagged(text, protocol.ErrUnknownOutcome, cause)
}

// errAddress is an address that no socket could have.
func errAddress(what, addr string) error {
	return fmt.Errorf("%w: %s %q: want an IP literal with a port, such as 127.0.0.1:10911", protocol.ErrInvalidConfig, what, addr)
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
