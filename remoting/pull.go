package remoting

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// codeLitePullMessage is a pull of consumers that poll. Java: LITE_PULL_MESSAGE.
const codeLitePullMessage = 361

// Bits of a pull's sysFlag. Java: PullSysFlag.
const (
	pullCommit       = 1
	pullSuspend      = 2
	pullSubscription = 4
)

// pullMessage reads from a queue. Java: PullMessageProcessor.
func pullMessage() *command[protocol.BrokerConn, protocol.PullMessageRequest, protocol.PullMessageResponse] {
	return &command[protocol.BrokerConn, protocol.PullMessageRequest, protocol.PullMessageResponse]{
		name:           "PullMessage",
		codes:          []protocol.Code{protocol.CodePullMessage, codeLitePullMessage},
		method:         protocol.BrokerConn.PullMessage,
		encodeRequest:  encodePull,
		decodeRequest:  decodePull,
		encodeResponse: encodePulled,
		decodeResponse: decodePulled,
		outcome: func(code protocol.Code) outcome {
			switch code {
			case protocol.Success, protocol.PullNotFound, protocol.PullRetryImmediately, protocol.PullOffsetMoved:
				return answered
			}
			return failed
		},
	}
}

func encodePull(q *protocol.PullMessageRequest, f *Frame) {
	flag := 0
	if q.Commit {
		flag |= pullCommit
	}
	if q.Suspend > 0 {
		flag |= pullSuspend
	}
	if q.HasExpression {
		flag |= pullSubscription
	}
	f.Ext = slices.Grow(f.Ext, 13)
	f.put("consumerGroup", q.Group)
	f.put("topic", q.Topic)
	f.putInt("queueId", q.QueueID)
	f.putLong("queueOffset", q.Offset)
	f.putInt("maxMsgNums", q.MaxMessages)
	f.putInt("sysFlag", flag)
	f.putLong("commitOffset", q.CommitOffset)
	f.putLong("suspendTimeoutMillis", (q.Suspend + time.Millisecond - 1).Milliseconds())
	f.putIfAny("subscription", q.Expression)
	f.putLong("subVersion", q.SubVersion)
	f.putIfAny("expressionType", q.ExpressionType)
}

func decodePull(f *Frame) (*protocol.PullMessageRequest, error) {
	h := f.header()
	flag := h.int("sysFlag")
	q := &protocol.PullMessageRequest{
		Group:          h.must("consumerGroup"),
		Topic:          h.must("topic"),
		QueueID:        h.int("queueId"),
		Offset:         h.long("queueOffset"),
		MaxMessages:    h.int("maxMsgNums"),
		Commit:         flag&pullCommit != 0,
		CommitOffset:   h.long("commitOffset"),
		HasExpression:  flag&pullSubscription != 0,
		Expression:     h.text("subscription"),
		ExpressionType: h.text("expressionType"),
		SubVersion:     h.long("subVersion"),
	}
	if wait := duration(h.long("suspendTimeoutMillis")); flag&pullSuspend != 0 {
		q.Suspend = wait
	}
	return q, h.err
}

func encodePulled(_ site, _ *protocol.PullMessageRequest, r *protocol.PullMessageResponse, f *Frame) {
	f.Code = int32(r.Code)
	f.Ext = slices.Grow(f.Ext, 4)
	f.putLong("suggestWhichBrokerId", r.SuggestBrokerID)
	f.putLong("nextBeginOffset", r.NextBeginOffset)
	f.putLong("minOffset", r.MinOffset)
	f.putLong("maxOffset", r.MaxOffset)
	f.parts = r.Records
}

// decodePulled wants all four offsets, as RocketMQ's clients do: one that is
// taken for 0 would rewind the group.
func decodePulled(f *Frame) (*protocol.PullMessageResponse, error) {
	h := f.header()
	r := &protocol.PullMessageResponse{
		Code:            protocol.Code(f.Code),
		NextBeginOffset: h.long("nextBeginOffset"),
		MinOffset:       h.long("minOffset"),
		MaxOffset:       h.long("maxOffset"),
		SuggestBrokerID: h.long("suggestWhichBrokerId"),
	}
	var err error
	if r.Records, err = splitRecords(f.Body); h.err == nil {
		h.err = err
	}
	return r, h.err
}

// splitRecords parts stored records that lie one behind the other. The records
// are parts of b.
func splitRecords(b []byte) ([][]byte, error) {
	const word = 4
	n := 0
	for rest := b; len(rest) > 0; n++ {
		if len(rest) < word {
			return nil, fmt.Errorf("%w: %d bytes behind the last record", errBadHeader, len(rest))
		}
		size := binary.BigEndian.Uint32(rest)
		if size < word || uint64(size) > uint64(len(rest)) {
			return nil, fmt.Errorf("%w: a record of %d bytes, %d are left", errBadHeader, size, len(rest))
		}
		rest = rest[size:]
	}
	if n == 0 {
		return nil, nil
	}
	records := make([][]byte, n)
	for i := range records {
		size := binary.BigEndian.Uint32(b)
		records[i], b = b[:size:size], b[size:]
	}
	return records, nil
}
