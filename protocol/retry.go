package protocol

import (
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// ConsumerSendMsgBackRequest gives a message that a consumer failed at back to
// the broker: it is delivered to the group again later, or becomes a dead
// letter. Java: ConsumerSendMsgBackRequestHeader.
type ConsumerSendMsgBackRequest struct {
	Group    string
	Position int64 // of the message that failed: Ext.CommitLogOffset

	// DelayLevel is the wait before the next delivery: 0 = what the attempts so
	// far call for, level 3 + reconsume times; below 0 = a dead letter at once.
	DelayLevel int

	// MsgID and Topic say which message is meant, because a position may name
	// another one after a truncation: its unique key, or its offsetMsgId when it
	// has none, and its topic. What is empty is not compared.
	MsgID string // originMsgId
	Topic string // originTopic

	// MaxReconsumeTimes replaces the group's maximum unless it is nil.
	MaxReconsumeTimes *int32
	UnitMode          bool
}

// ConsumerSendMsgBackResponse acknowledges a message that is stored again.
type ConsumerSendMsgBackResponse struct{}

// LockQueuesRequest asks for the right to consume queues in order, or renews
// it. Java: LockBatchRequestBody.
type LockQueuesRequest struct {
	Group    string
	ClientID string
	Queues   []message.Queue
}

// LockQueuesResponse lists the queues that the client holds now, a part of
// those it asked for.
type LockQueuesResponse struct{ Locked []message.Queue }

// UnlockQueuesRequest gives queues back. Those that another client holds are
// left alone. Java: UnlockBatchRequestBody.
type UnlockQueuesRequest struct {
	Group    string
	ClientID string
	Queues   []message.Queue
	Oneway   bool // no answer is wanted: (nil, nil) as soon as the request has left
}

// UnlockQueuesResponse acknowledges an UnlockQueuesRequest.
type UnlockQueuesResponse struct{}

// ResetOffsetRequest moves a group within a topic, on the broker asked. It
// takes effect at once, for members that are connected too.
// Java: ResetOffsetRequestHeader with useServerSideResetOffset.
type ResetOffsetRequest struct {
	Group   string
	Topic   string
	QueueID int // below 0: all queues

	// Time: to the first message stored then or later; the zero time = to the
	// end (on the wire: timestamp -1). It does not count when Offset is set.
	Time   time.Time
	Offset *int64 // to this offset; needs QueueID
}

// ResetOffsetResponse says where the group stands now, by queue id.
type ResetOffsetResponse struct{ Offsets map[int]int64 }
