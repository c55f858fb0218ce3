package protocol

import (
	"strconv"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// What a broker asks a member of a group, by itself or for somebody who asks the
// broker. A member that is not connected is an *Error of code SystemError, one
// that does not answer in time of code ConsumeMsgTimeout.

// GetConsumerRunningInfoRequest asks a member what it is doing. A broker
// passes it on to the client. Java: GetConsumerRunningInfoRequestHeader.
type GetConsumerRunningInfoRequest struct {
	Group    string
	ClientID string
	Stacks   bool // of its threads, too, if it likes: jstackEnable
}

// GetConsumerRunningInfoResponse is a member's own view. A client that is not
// connected is an *Error of code SystemError. Java: ConsumerRunningInfo.
type GetConsumerRunningInfoResponse struct {
	Orderly       bool
	Passive       bool
	Start         time.Time
	Concurrency   int
	Subscriptions []Subscription
	Queues        []ProcessQueueInfo // sorted; %RETRY% queues too

	// Verbatim is the body of an answer that came over a wire, nil otherwise. A
	// broker passes it on as it is, with all that this type does not know.
	Verbatim []byte
}

// ProcessQueueInfo is one queue that a member holds. Java: ProcessQueueInfo.
type ProcessQueueInfo struct {
	Topic        string
	BrokerName   string
	QueueID      int
	CommitOffset int64 // the lowest unfinished
	CachedMin    int64 // lowest and highest offset cached; 0 without any
	CachedMax    int64
	CachedCount  int
	CachedBytes  int64
	Locked       bool
	Dropped      bool
	LastLock     time.Time
	LastPull     time.Time
	LastConsume  time.Time
}

// ResetConsumerOffsetRequest tells a consumer to go on elsewhere. Java:
// RESET_CONSUMER_CLIENT_OFFSET.
type ResetConsumerOffsetRequest struct {
	Group   string
	Topic   string
	Time    time.Time // that the offsets were looked up by; the zero time = the end (on the wire: timestamp -1)
	Offsets map[message.Queue]int64
}

// GetConsumerStatusRequest asks members of a group how far they have come by
// their own account, which no commit may have told yet. Java:
// INVOKE_BROKER_TO_GET_CONSUMER_STATUS.
type GetConsumerStatusRequest struct {
	Group    string
	Topic    string
	ClientID string // "" = all members. Java: clientAddr
}

// GetConsumerStatusResponse has the offsets to consume next, by client id. Java:
// GetConsumerStatusBody.
type GetConsumerStatusResponse struct {
	Offsets map[string]map[message.Queue]int64
}

// PeerConsumerStatusRequest is what each of them is asked. Java:
// GET_CONSUMER_STATUS_FROM_CLIENT.
type PeerConsumerStatusRequest struct {
	Group string
	Topic string
}

// PeerConsumerStatusResponse has the offset to consume next of each queue that
// the member holds.
type PeerConsumerStatusResponse struct {
	Offsets map[message.Queue]int64
}

// ConsumeMessageDirectlyRequest has one member consume one stored message, at
// once and beside everything else. Java: ConsumeMessageDirectlyResultRequestHeader.
type ConsumeMessageDirectlyRequest struct {
	Group    string
	ClientID string
	MsgID    string // the offset message id: where the message is stored
	Topic    string

	// What the broker adds for the member.
	BrokerName   string
	TopicSysFlag int
	GroupSysFlag int
	Record       []byte // the stored message
}

// ConsumeMessageDirectlyResponse tells what came of it. Nothing is committed, and
// nothing is sent back. Java: ConsumeMessageDirectlyResult.
type ConsumeMessageDirectlyResponse struct {
	Result     ConsumeResult
	Remark     string // of what has failed
	Orderly    bool   // the member consumes in order
	AutoCommit bool   // by Java's ConsumeOrderlyContext; true elsewhere
	Spent      time.Duration

	// Verbatim is the body of an answer that came over a wire, nil otherwise. A
	// broker passes it on as it is.
	Verbatim []byte
}

// ConsumeResult is how a message was consumed. Java: CMResult.
type ConsumeResult int

const (
	ConsumeSuccess    ConsumeResult = iota // CR_SUCCESS
	ConsumeLater                           // CR_LATER: it has failed, another attempt may help
	ConsumeRollback                        // CR_ROLLBACK: of orderly listeners in Java
	ConsumeCommit                          // CR_COMMIT: of orderly listeners in Java
	ConsumeException                       // CR_THROW_EXCEPTION: a panic
	ConsumeReturnNull                      // CR_RETURN_NULL: of listeners in Java
)

// String returns the name on the wire.
func (r ConsumeResult) String() string {
	switch r {
	case ConsumeSuccess:
		return "CR_SUCCESS"
	case ConsumeLater:
		return "CR_LATER"
	case ConsumeRollback:
		return "CR_ROLLBACK"
	case ConsumeCommit:
		return "CR_COMMIT"
	case ConsumeException:
		return "CR_THROW_EXCEPTION"
	case ConsumeReturnNull:
		return "CR_RETURN_NULL"
	}
	return "consume result " + strconv.Itoa(int(r))
}
