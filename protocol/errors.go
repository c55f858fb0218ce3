package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pocketmq/pocketmq/message"
)

// Sentinels. Every error of the library that a caller may want to tell apart
// matches one of these with errors.Is. Package pocketmq re-exports them.
var (
	ErrClosed            = errors.New("closed")
	ErrNotStarted        = errors.New("not started")
	ErrInvalidConfig     = errors.New("invalid config")
	ErrNoRoute           = errors.New("no route")
	ErrNoPermission      = errors.New("no permission")
	ErrNotMaster         = errors.New("not the master")
	ErrNotEnoughReplicas = errors.New("not enough in-sync replicas")
	ErrBrokerBusy        = errors.New("broker busy")
	ErrTimeout           = errors.New("timeout")
	ErrUnreachable       = errors.New("unreachable")
	ErrUnknownOutcome    = errors.New("unknown outcome")
	ErrIllegalMessage    = message.ErrIllegalMessage
	ErrIllegalName       = message.ErrIllegalName
	ErrMessageTooLarge   = message.ErrMessageTooLarge
	ErrFlushDiskTimeout  = errors.New("stored, but not flushed to disk in time")
	ErrFlushSlaveTimeout = errors.New("stored, but not acknowledged by a slave in time")
	ErrSlaveNotAvailable = errors.New("stored, but no slave is available")
	ErrOffsetOutOfRange  = errors.New("offset out of range")
	ErrNotFound          = errors.New("not found")
	ErrFenced            = errors.New("store fenced")
	ErrDiskFull          = errors.New("disk full")
	ErrHandlersRunning   = errors.New("handlers still running")
	ErrDuplicateClient   = errors.New("duplicate client")
	ErrNotSupported      = errors.New("not supported")
)

// First words of remarks that refine a code. The wire has fewer codes than
// the library has sentinels.
const (
	RemarkDiskFull   = "[DISK_FULL]"
	RemarkFenced     = "[FENCED]"
	RemarkBodyTooBig = "[BODY_TOO_LARGE]"                    // with MessageIllegal
	RemarkBadName    = "[ILLEGAL_NAME]"                      // with InvalidParameter
	RemarkInSync     = "the in-sync replicas are not enough" // with SystemError: Java's PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
	RemarkRole       = "[NOT_MASTER]"                        // with ServiceNotAvailable: nothing is stored; with SlaveNotAvailable outside sends
	RemarkNoMessage  = "can not find message by the offset," // with SystemError, RocketMQ's own: to ViewMessage
)

// remarkInSyncJava is what a RocketMQ broker says in place of RemarkInSync. Java:
// SendMessageProcessor.handlePutMessageResult.
const remarkInSyncJava = "in-sync replicas not enough"

// Error is an answer that is not a success. It is the same from memory and
// from TCP: exactly those errors carry an *Error that a server answered.
type Error struct {
	Code   Code
	Remark string
	Broker string // name of the server that answered
}

func (e *Error) Error() string {
	switch {
	case e.Broker == "":
		return fmt.Sprintf("%s (code %d)", e.Remark, e.Code)
	default:
		return fmt.Sprintf("%s: %s (code %d)", e.Broker, e.Remark, e.Code)
	}
}

// Is reports whether target is the sentinel of e's code, or an *Error with the
// same code.
func (e *Error) Is(target error) bool {
	if t, ok := target.(*Error); ok {
		return t.Code == e.Code
	}
	return target == e.Sentinel()
}

// Sentinel returns the sentinel that e's code and remark stand for, nil when
// the code has none. This is the one table of codes and sentinels.
func (e *Error) Sentinel() error {
	switch e.Code {
	case SystemError:
		switch {
		case strings.HasPrefix(e.Remark, RemarkNoMessage):
			return ErrNotFound
		case strings.HasPrefix(e.Remark, RemarkInSync), strings.HasPrefix(e.Remark, remarkInSyncJava):
			return ErrNotEnoughReplicas
		}
	case SystemBusy:
		return ErrBrokerBusy
	case RequestCodeNotSupported:
		return ErrNotSupported
	case FlushDiskTimeout:
		return ErrFlushDiskTimeout
	case SlaveNotAvailable:
		if strings.HasPrefix(e.Remark, RemarkRole) {
			return ErrNotMaster
		}
		return ErrSlaveNotAvailable
	case FlushSlaveTimeout:
		return ErrFlushSlaveTimeout
	case MessageIllegal:
		if strings.HasPrefix(e.Remark, RemarkBodyTooBig) {
			return ErrMessageTooLarge
		}
		return ErrIllegalMessage
	case ServiceNotAvailable:
		switch {
		case strings.HasPrefix(e.Remark, RemarkDiskFull):
			return ErrDiskFull
		case strings.HasPrefix(e.Remark, RemarkFenced):
			return ErrFenced
		}
		return ErrNotMaster
	case NoPermission:
		return ErrNoPermission
	case TopicNotExist:
		return ErrNoRoute
	case PullOffsetMoved:
		return ErrOffsetOutOfRange
	case QueryNotFound, SubscriptionGroupNotExist:
		return ErrNotFound
	case InvalidParameter:
		if strings.HasPrefix(e.Remark, RemarkBadName) {
			return ErrIllegalName
		}
		return ErrIllegalMessage
	case IllegalOperation:
		return ErrIllegalMessage
	}
	return nil
}

// Errorf makes an *Error with a formatted remark. Broker is filled in by the
// server that answers with it.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// AsError returns err as an *Error: itself when it carries one, otherwise
// SystemError with err's text, so that a server never answers without a code.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: SystemError, Remark: err.Error()}
}

// BadName is a server's refusal of the name that err, an error of package
// message, is about. It matches ErrIllegalName on every transport.
func BadName(err error) *Error {
	return Errorf(InvalidParameter, "%s %v", RemarkBadName, err)
}

// Tagged returns an error whose text stands alone. errors.Is and errors.As
// find each of is, which are no part of the text.
func Tagged(text string, is ...error) error { return &tagged{text, is} }

type tagged struct {
	text string
	is   []error
}

func (e *tagged) Error() string   { return e.text }
func (e *tagged) Unwrap() []error { return e.is }
