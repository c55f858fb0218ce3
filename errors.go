package pocketmq

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// Sentinels for errors.Is. An error that a server answered also carries an
// *Error; protocol.Error.Sentinel is the table from wire codes to these.
var (
	ErrClosed            = protocol.ErrClosed            // used after, or while, it closes
	ErrNotStarted        = protocol.ErrNotStarted        // used before Start returned
	ErrInvalidConfig     = protocol.ErrInvalidConfig     // a config or argument that can't work; all violations at once
	ErrNoRoute           = protocol.ErrNoRoute           // no name server knows the topic (17)
	ErrNoPermission      = protocol.ErrNoPermission      // (16)
	ErrNotMaster         = protocol.ErrNotMaster         // the broker does not serve this now (11, 14)
	ErrNotEnoughReplicas = protocol.ErrNotEnoughReplicas // fewer replicas are in sync than BrokerConfig.MinInSyncReplicas: nothing is stored (1)
	ErrBrokerBusy        = protocol.ErrBrokerBusy        // (2)
	ErrTimeout           = protocol.ErrTimeout           // the time budget of a call is used up
	ErrUnreachable       = protocol.ErrUnreachable       // nobody listens there, nothing was sent
	ErrUnknownOutcome    = protocol.ErrUnknownOutcome    // sent, but no answer: it may have been stored
	ErrIllegalMessage    = protocol.ErrIllegalMessage    // (13, 29, 604)
	ErrIllegalName       = protocol.ErrIllegalName       // a topic or group name outside the allowed alphabet or length
	ErrMessageTooLarge   = protocol.ErrMessageTooLarge   // (13)
	ErrFlushDiskTimeout  = protocol.ErrFlushDiskTimeout  // stored, fsync not confirmed in time (10)
	ErrFlushSlaveTimeout = protocol.ErrFlushSlaveTimeout // stored, no slave confirmed in time (12)
	ErrSlaveNotAvailable = protocol.ErrSlaveNotAvailable // stored, no slave follows (11)
	ErrOffsetOutOfRange  = protocol.ErrOffsetOutOfRange  // (21)
	ErrNotFound          = protocol.ErrNotFound          // (22, 26)
	ErrFenced            = protocol.ErrFenced            // the store refuses writes after a failed write or sync, or because it is damaged
	ErrDiskFull          = protocol.ErrDiskFull          // the broker refuses sends for lack of space
	ErrHandlersRunning   = protocol.ErrHandlersRunning   // closed, but user code has not returned yet
	ErrDuplicateClient   = protocol.ErrDuplicateClient   // the group already has a client of this id on this Transport
	ErrNotSupported      = protocol.ErrNotSupported      // (3)
)

// problems collects every violation of one config, so that all are reported
// at once.
type problems struct {
	what  string // "BrokerConfig"
	list  []string
	kinds []error // sentinels beside ErrInvalidConfig
}

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// check adds err under a field's name and keeps its kind.
func (p *problems) check(field string, err error) {
	if err == nil {
		return
	}
	p.add("%s: %v", field, err)
	if errors.Is(err, ErrIllegalName) {
		p.kinds = append(p.kinds, ErrIllegalName)
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return protocol.Tagged("invalid "+p.what+": "+strings.Join(p.list, "; "), append(p.kinds, ErrInvalidConfig)...)
}
