package remoting

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Properties of a consumer's running info. Java: ConsumerRunningInfo.
const (
	propOrderly = "PROP_CONSUMEORDERLY"
	propType    = "PROP_CONSUME_TYPE"
	propStart   = "PROP_CONSUMER_START_TIMESTAMP"
	propThreads = "PROP_THREADPOOL_CORE_SIZE"
)

// memberCachedBytes is exact where RocketMQ's cachedMsgSizeInMiB is not.
// RocketMQ does not have it, and takes no notice of it.
const memberCachedBytes = "cachedMsgSizeInBytes"

// getConsumerRunningInfo asks a member, through the broker, what it is doing.
// Java: GetConsumerRunningInfoRequestHeader.
func getConsumerRunningInfo() *command[protocol.BrokerConn, protocol.GetConsumerRunningInfoRequest, protocol.GetConsumerRunningInfoResponse] {
	return runningInfo(protocol.BrokerConn.GetConsumerRunningInfo)
}

// peerGetConsumerRunningInfo is the same, between broker and client.
func peerGetConsumerRunningInfo() *command[protocol.Peer, protocol.GetConsumerRunningInfoRequest, protocol.GetConsumerRunningInfoResponse] {
	return runningInfo(protocol.Peer.GetConsumerRunningInfo)
}

func runningInfo[S any](method func(S, context.Context, *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error)) *command[S, protocol.GetConsumerRunningInfoRequest, protocol.GetConsumerRunningInfoResponse] {
	return &command[S, protocol.GetConsumerRunningInfoRequest, protocol.GetConsumerRunningInfoResponse]{
		name:   "GetConsumerRunningInfo",
		codes:  []protocol.Code{protocol.CodeGetConsumerRunningInfo},
		method: method,
		encodeRequest: func(q *protocol.GetConsumerRunningInfoRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
			f.put("clientId", q.ClientID)
			f.putBool("jstackEnable", q.Stacks)
		},
		decodeRequest: func(f *Frame) (*protocol.GetConsumerRunningInfoRequest, error) {
			h := f.header()
			return &protocol.GetConsumerRunningInfoRequest{Group: h.must("consumerGroup"), ClientID: h.must("clientId"), Stacks: h.bool("jstackEnable")}, h.err
		},
		encodeResponse: encodeRunning,
		decodeResponse: decodeRunning,
	}
}

func encodeRunning(_ site, _ *protocol.GetConsumerRunningInfoRequest, r *protocol.GetConsumerRunningInfoResponse, f *Frame) {
	if f.Body = r.Verbatim; f.Body != nil {
		return
	}
	var w writer
	w.open('{')
	w.object("mqPopTable")
	w.shut('}')
	w.object("mqTable")
	for i := range r.Queues {
		q := &r.Queues[i]
		w.queueName(q.BrokerName, q.Topic, q.QueueID)
		w.open('{')
		w.int("cachedMsgCount", int64(q.CachedCount))
		w.int("cachedMsgMaxOffset", q.CachedMax)
		w.int("cachedMsgMinOffset", q.CachedMin)
		w.int(memberCachedBytes, q.CachedBytes)
		w.int("cachedMsgSizeInMiB", q.CachedBytes>>20)
		w.int("commitOffset", q.CommitOffset)
		w.bool("droped", q.Dropped)
		w.int("lastConsumeTimestamp", toMillis(q.LastConsume))
		w.int("lastLockTimestamp", toMillis(q.LastLock))
		w.int("lastPullTimestamp", toMillis(q.LastPull))
		w.bool("locked", q.Locked)
		w.int("transactionMsgCount", 0)
		w.int("transactionMsgMaxOffset", 0)
		w.int("transactionMsgMinOffset", 0)
		w.int("tryUnlockTimes", 0)
		w.shut('}')
	}
	w.shut('}')
	w.object("properties")
	w.text(propOrderly, strconv.FormatBool(r.Orderly))
	w.text(propStart, strconv.FormatInt(toMillis(r.Start), 10))
	w.text(propType, nameOfType(r.Passive))
	w.text(propThreads, strconv.Itoa(r.Concurrency))
	w.shut('}')
	w.object("statusTable")
	w.shut('}')
	w.subscriptions("subscriptionSet", r.Subscriptions)
	w.shut('}')
	f.Body = w.b
}

func decodeRunning(f *Frame) (*protocol.GetConsumerRunningInfoResponse, error) {
	v, err := f.object()
	if err != nil && f.Remark != "" {
		// An official Go client that cannot tell says so in a success: from 10 to
		// 20 s after its start, when its statistics have one sample.
		return nil, fmt.Errorf("%w, %s", err, f.Remark)
	}
	props := v.Get("properties")
	r := &protocol.GetConsumerRunningInfoResponse{
		Orderly:       props.Get(propOrderly).Bool(false),
		Passive:       strings.EqualFold(props.Get(propType).Text(), consumePassively),
		Start:         fromMillis(props.Get(propStart).Int(0)),
		Concurrency:   props.Get(propThreads).int32(0),
		Subscriptions: subscriptionsOf(v.Get("subscriptionSet")),
		Verbatim:      f.Body,
	}
	v.Get("mqTable").Each(func(name, value Value) {
		q := queueOf(name)
		r.Queues = append(r.Queues, protocol.ProcessQueueInfo{
			Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID,
			CommitOffset: value.Get("commitOffset").Int(0),
			CachedMin:    value.Get("cachedMsgMinOffset").Int(0),
			CachedMax:    value.Get("cachedMsgMaxOffset").Int(0),
			CachedCount:  value.Get("cachedMsgCount").int32(0),
			CachedBytes:  value.Get(memberCachedBytes).Int(value.Get("cachedMsgSizeInMiB").Int(0) << 20),
			Locked:       value.Get("locked").Bool(false),
			Dropped:      value.Get("droped").Bool(value.Get("dropped").Bool(false)), // RocketMQ's name, and the Go client's
			LastLock:     fromMillis(value.Get("lastLockTimestamp").Int(0)),
			LastPull:     fromMillis(value.Get("lastPullTimestamp").Int(0)),
			LastConsume:  fromMillis(value.Get("lastConsumeTimestamp").Int(0)),
		})
	})
	slices.SortFunc(r.Queues, func(a, b protocol.ProcessQueueInfo) int {
		return message.Queue{Topic: a.Topic, BrokerName: a.BrokerName, QueueID: a.QueueID}.
			Compare(message.Queue{Topic: b.Topic, BrokerName: b.BrokerName, QueueID: b.QueueID})
	})
	return r, err
}
