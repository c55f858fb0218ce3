package message

import "errors"

// The kinds of refusal. Match them with errors.Is; the errors that carry them
// name the thing and the remedy.
var (
	// ErrIllegalMessage is a message that no broker would store: a reserved
	// or empty property, a control character, two kinds of delay, too long a
	// properties text, a batch that does not fit together.
	// Java: ResponseCode.MESSAGE_ILLEGAL (13).
	ErrIllegalMessage = errors.New("illegal message")

	// ErrMessageTooLarge is a body over the limit.
	// Java: also ResponseCode.MESSAGE_ILLEGAL.
	ErrMessageTooLarge = errors.New("message too large")

	// ErrIllegalName is a topic or group name that breaks the rules of names.
	ErrIllegalName = errors.New("illegal name")

	// ErrBadRecord is a stored record, or a compressed body in it, that
	// cannot be decoded.
	ErrBadRecord = errors.New("bad record")

	// ErrBadID is a text that is no message id.
	ErrBadID = errors.New("bad message id")
)

// refusal is an error whose whole text is fixed by the reference
// implementation, because clients and operators know it.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }
