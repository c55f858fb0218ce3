package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// The errors of calls without an answer are those of every transport: nothing
// has left is ErrUnreachable, everything else ErrUnknownOutcome.

// errRefused is a dial that nobody accepts.
func errRefused(addr string, cause error) error {
	return protocol.Tagged(fmt.Sprintf("%s: no connection: %v", addr, cause), protocol.ErrUnreachable, cause)
}

// errDialEnded is a dial whose ctx ended before anybody answered.
func errDialEnded(addr string, waited time.Duration, cause error) error {
	return protocol.Tagged(fmt.Sprintf("%s: no connection within %v: %v", addr, waited.Round(time.Millisecond), cause), protocol.ErrUnreachable, cause)
}

// errLost is a call whose connection ended while it was under way. why is the
// reason, as in whyEnded.
func errLost(addr, why string) error {
	return protocol.Tagged(fmt.Sprintf("connection to %s lost%s", addr, why), protocol.ErrUnknownOutcome)
}

// whyEnded says why a connection is over, and what to do; "" where there is
// nothing to say. hint is what may be wrong when the other side says nothing.
func whyEnded(cause error, hint string) string {
	switch {
	case isAlert(cause):
		return fmt.Sprintf(": %v; %s", cause, remedy(cause))
	case errors.Is(cause, ErrBadFrame):
		return fmt.Sprintf(": %v", cause)
	case hint != "":
		return " before it answered anything; " + hint
	}
	return ""
}

// isAlert reports whether the other side of TLS has said that it goes.
func isAlert(err error) bool {
	var alert tls.AlertError
	var remote *net.OpError
	return errors.As(err, &alert) || errors.As(err, &remote) && remote.Op == "remote error"
}

// isReset reports whether the other side has cut a connection off.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe)
}

// errGone is a call on a connection that had ended before. why is the reason,
// as in whyEnded.
func errGone(addr, why string) error {
	return protocol.Tagged(fmt.Sprintf("connection to %s is closed%s; dial again", addr, why), protocol.ErrUnreachable)
}

// errTooLarge is a request that no frame can hold. It is of the code with which a server
// would refuse it: sending it once more, or to another one, is of no use.
func errTooLarge(addr string, cause error) error {
	return protocol.Errorf(protocol.MessageIllegal, "%s request to %s not sent: %v", protocol.RemarkBodyTooBig, addr, cause)
}

// errNotSent is a request that has not left because ctx ended.
func errNotSent(addr string, cause error) error {
	return protocol.Tagged(fmt.Sprintf("request to %s not sent: %v", addr, cause), protocol.ErrUnreachable, cause)
}

// errUnanswered is a call whose ctx ended while it waited.
func errUnanswered(addr string, waited time.Duration, cause error) error {
	return protocol.Tagged(fmt.Sprintf("no answer from %s within %v: %v", addr, waited.Round(time.Millisecond), cause), protocol.ErrUnknownOutcome, cause)
}

// errUnreadable is an answer that cannot be understood.
func errUnreadable(addr, command string, cause error) error {
	return protocol.Tagged(fmt.Sprintf("%s: answer to %s not understood: %v", addr, command, cause), protocol.ErrUnknownOutcome, cause)
}

// pastDeadline is ctx's error, also where its timer has still to fire.
func pastDeadline(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return nil
}
