package protocol

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// all sentinels, so that a code is known not to match any other.
var all = []error{
	ErrClosed, ErrNotStarted, ErrInvalidConfig, ErrNoRoute, ErrNoPermission, ErrNotMaster, ErrNotEnoughReplicas, ErrBrokerBusy, ErrTimeout,
	ErrUnreachable, ErrUnknownOutcome, ErrIllegalMessage, ErrIllegalName, ErrMessageTooLarge, ErrFlushDiskTimeout,
	ErrFlushSlaveTimeout, ErrSlaveNotAvailable, ErrOffsetOutOfRange, ErrNotFound, ErrFenced, ErrDiskFull,
	ErrHandlersRunning, ErrDuplicateClient, ErrNotSupported,
}

func TestEveryCodeMatchesItsSentinelAndNoOther(t *testing.T) {
	for _, c := range []struct {
		code   Code
		remark string
		want   error
	}{
		{SystemError, "x", nil},
		{SystemError, RemarkNoMessage + " 7", ErrNotFound},
		{SystemError, RemarkInSync + ": x", ErrNotEnoughReplicas},
		{SystemError, "in-sync replicas not enough", ErrNotEnoughReplicas}, // RocketMQ's
		{SystemBusy, "x", ErrBrokerBusy},
		{RequestCodeNotSupported, "x", ErrNotSupported},
		{FlushDiskTimeout, "x", ErrFlushDiskTimeout},
		{SlaveNotAvailable, "x", ErrSlaveNotAvailable},
		{SlaveNotAvailable, RemarkRole + " x", ErrNotMaster},
		{FlushSlaveTimeout, "x", ErrFlushSlaveTimeout},
		{MessageIllegal, "x", ErrIllegalMessage},
		{MessageIllegal, RemarkBodyTooBig + " x", ErrMessageTooLarge},
		{ServiceNotAvailable, "x", ErrNotMaster},
		{ServiceNotAvailable, RemarkRole + " x", ErrNotMaster},
		{ServiceNotAvailable, RemarkDiskFull + " x", ErrDiskFull},
		{ServiceNotAvailable, RemarkFenced + " x", ErrFenced},
		{NoPermission, "x", ErrNoPermission},
		{TopicNotExist, "x", ErrNoRoute},
		{PullOffsetMoved, "x", ErrOffsetOutOfRange},
		{QueryNotFound, "x", ErrNotFound},
		{SubscriptionGroupNotExist, "x", ErrNotFound},
		{InvalidParameter, "x", ErrIllegalMessage},
		{InvalidParameter, RemarkBadName + " x", ErrIllegalName},
		{IllegalOperation, "x", ErrIllegalMessage},
		{9999, "x", nil},
	} {
		err := fmt.Errorf("wrapped: %w", &Error{Code: c.code, Remark: c.remark, Broker: "broker-a"})
		for _, s := range all {
			assert.Equal(t, s == c.want, errors.Is(err, s), "%d %q is %v", c.code, c.remark, s)
		}
		assert.ErrorIs(t, err, &Error{Code: c.code})
		assert.NotErrorIs(t, err, &Error{Code: c.code + 1})
	}
}

func TestErrorsThatAreNoAnswerGetACode(t *testing.T) {
	cause := errors.New("disk on fire")
	assert.Equal(t, &Error{Code: SystemError, Remark: "disk on fire"}, AsError(cause))
	e := Errorf(NoPermission, "topic %s", "T")
	assert.Same(t, e, AsError(fmt.Errorf("wrapped: %w", e)))
	assert.Equal(t, "topic T (code 16)", e.Error())
	e.Broker = "broker-a"
	assert.Equal(t, "broker-a: topic T (code 16)", e.Error())
}

func TestATaggedErrorMatchesWhatItsTextDoesNotName(t *testing.T) {
	answer := &Error{Code: NoPermission, Remark: "x"}
	err := Tagged("all is lost", ErrTimeout, answer)
	assert.EqualError(t, err, "all is lost")
	assert.ErrorIs(t, err, ErrTimeout)
	assert.ErrorIs(t, err, ErrNoPermission)
	assert.NotErrorIs(t, err, ErrClosed)
	var got *Error
	assert.ErrorAs(t, err, &got)
	assert.Same(t, answer, got)
}
