package ha

import (
	"errors"
	"fmt"
)

// ErrWrongGroup means that a slave and a master belong to different groups, or are one
// and the same replica.
var ErrWrongGroup = errors.New("another replication group")

// ErrStopped means that a side ends its part: the broker closes, or changes its role.
var ErrStopped = errors.New("replication was stopped")

// ErrSilent means that nothing came from the other side for the housekeeping time, or
// that it did not take what was sent to it.
var ErrSilent = errors.New("the other side is silent")

// ErrConfirmedMissing means that records are missing on the master, or are others there,
// that were confirmed to the slave: somebody may have been told that they are safe. The
// slave keeps its log; an operator has to decide whose is the right one.
var ErrConfirmedMissing = errors.New("confirmed records are missing on the master")

// reason is a sentinel on the wire.
type reason uint8

const (
	reasonNone reason = iota
	reasonDiverged
	reasonTooFarBehind
	reasonBadEpochs
	reasonOldEpoch
	reasonWrongGroup
	reasonStale
	reasonStopped
	reasonSilent
	reasonBadFrame
	reasonImpossibleAck
	reasonVersion
	reasonFrameTooLarge
	reasonConfirmedMissing
	reasonOther
)

// errOther is what a peer refused for that has no name on the wire.
var errOther = errors.New("refused")

func (r reason) sentinel() error {
	switch r {
	case reasonDiverged:
		return ErrDiverged
	case reasonTooFarBehind:
		return ErrTooFarBehind
	case reasonBadEpochs:
		return ErrBadEpochs
	case reasonOldEpoch:
		return ErrOldEpoch
	case reasonWrongGroup:
		return ErrWrongGroup
	case reasonStale:
		return ErrStaleConnection
	case reasonStopped:
		return ErrStopped
	case reasonSilent:
		return ErrSilent
	case reasonBadFrame:
		return ErrBadFrame
	case reasonImpossibleAck:
		return ErrImpossibleAck
	case reasonVersion:
		return ErrVersion
	case reasonFrameTooLarge:
		return ErrFrameTooLarge
	case reasonConfirmedMissing:
		return ErrConfirmedMissing
	}
	return errOther
}

// reasonOf finds the sentinel of an error.
func reasonOf(err error) reason {
	for r := reasonDiverged; r < reasonOther; r++ {
		if errors.Is(err, r.sentinel()) {
			return r
		}
	}
	return reasonOther
}

// A RefusedError is what the other side said before it closed the connection. It is the
// sentinel of its reason too: errors.Is(err, ErrDiverged).
type RefusedError struct {
	Peer string // its address
	Text string // its words
	err  error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("ha: %s refuses: %s", e.Peer, e.Text)
}

func (e *RefusedError) Unwrap() error { return e.err }

// refusedBy is the error for a goodbye; one without a reason says that the other side
// stops.
func refusedBy(peer string, g goodbye) error {
	if g.reason == reasonNone {
		g.reason = reasonStopped
	}
	text := g.text
	if text == "" {
		text = g.reason.sentinel().Error()
	}
	return &RefusedError{Peer: peer, Text: text, err: g.reason.sentinel()}
}
