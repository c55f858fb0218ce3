package remoting

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// resetConsumerOffset tells a consumer to go on elsewhere. Java:
// RESET_CONSUMER_CLIENT_OFFSET.
func resetConsumerOffset() *command[protocol.Peer, protocol.ResetConsumerOffsetRequest, nothing] {
	return &command[protocol.Peer, protocol.ResetConsumerOffsetRequest, nothing]{
		name:  "ResetConsumerOffset",
		codes: []protocol.Code{protocol.CodeResetConsumerOffset},
		method: func(p protocol.Peer, _ context.Context, q *protocol.ResetConsumerOffsetRequest) (*nothing, error) {
			p.ResetConsumerOffset(q)
			return &nothing{}, nil
		},
		encodeRequest: func(q *protocol.ResetConsumerOffsetRequest, f *Frame) {
			f.put("topic", q.Topic)
			f.put("group", q.Group)
			f.putInstant("timestamp", q.Time)
			f.put("isForce", "true")
			var w writer
			w.open('{')
			w.name("offsetTable")
			w.offsets(q.Offsets)
			w.shut('}')
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.ResetConsumerOffsetRequest, error) {
			h := f.header()
			q := &protocol.ResetConsumerOffsetRequest{Topic: h.must("topic"), Group: h.must("group"), Time: instantOf(h.longOr("timestamp", -1))}
			v, err := f.object()
			q.Offsets = offsetsOf(v.Get("offsetTable"))
			if h.err == nil {
				h.err = err
			}
			return q, h.err
		},
		oneway: always[protocol.ResetConsumerOffsetRequest],
	}
}

// listedReset is the same for clients in C++, which read no maps of queues. Java:
// ResetOffsetBodyForC.
func listedReset(q *protocol.ResetConsumerOffsetRequest) *Frame {
	f := resetConsumerOffset().request(q)
	var w writer
	w.open('{')
	w.list("offsetTable")
	for _, queue := range sortedQueues(q.Offsets) {
		w.open('{')
		w.text("brokerName", queue.BrokerName)
		w.int("offset", q.Offsets[queue])
		w.int("queueId", int64(queue.QueueID))
		w.text("topic", queue.Topic)
		w.shut('}')
	}
	w.shut(']')
	w.shut('}')
	f.Body = w.b
	return f
}

// offsets writes a map of queues, and no JSON: see queueName.
func (w *writer) offsets(m map[message.Queue]int64) {
	w.open('{')
	for _, q := range sortedQueues(m) {
		w.queueName(q.BrokerName, q.Topic, q.QueueID)
		w.number(m[q])
	}
	w.shut('}')
}

// offsetsOf reads offsets by queue in every form there is: a map of queues, a
// list of pairs, as of gson, and a list of queues that have an offset. Negative
// offsets, and what is no queue, are left out; the map is never nil.
func offsetsOf(v Value) map[message.Queue]int64 {
	m := make(map[message.Queue]int64)
	add := func(queue, offset Value) {
		if q, at := queueOf(queue), offset.Int(-1); at >= 0 && q.QueueID >= 0 && q.Topic != "" {
			m[q] = at
		}
	}
	v.Each(add)
	for _, item := range v.List() {
		if pair := item.List(); len(pair) == 2 {
			add(pair[0], pair[1])
		} else {
			add(item, item.Get("offset"))
		}
	}
	return m
}

// putInstant writes an instant that has -1 for none.
func (f *Frame) putInstant(name string, t time.Time) {
	if t.IsZero() {
		f.putLong(name, -1)
		return
	}
	f.putLong(name, t.UnixMilli())
}

func instantOf(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// getConsumerStatus asks members, through the broker, how far they have come.
// Java: GetConsumerStatusBody.
func getConsumerStatus() *command[protocol.BrokerConn, protocol.GetConsumerStatusRequest, protocol.GetConsumerStatusResponse] {
	return &command[protocol.BrokerConn, protocol.GetConsumerStatusRequest, protocol.GetConsumerStatusResponse]{
		name:   "GetConsumerStatus",
		codes:  []protocol.Code{protocol.CodeGetConsumerStatus},
		method: protocol.BrokerConn.GetConsumerStatus,
		encodeRequest: func(q *protocol.GetConsumerStatusRequest, f *Frame) {
			f.put("topic", q.Topic)
			f.put("group", q.Group)
			f.putIfAny("clientAddr", q.ClientID)
		},
		decodeRequest: func(f *Frame) (*protocol.GetConsumerStatusRequest, error) {
			h := f.header()
			return &protocol.GetConsumerStatusRequest{Group: h.must("group"), Topic: h.must("topic"), ClientID: h.text("clientAddr")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetConsumerStatusRequest, r *protocol.GetConsumerStatusResponse, f *Frame) {
			var w writer
			w.open('{')
			w.object("consumerTable")
			for _, id := range sortedKeys(r.Offsets) {
				w.name(id)
				w.offsets(r.Offsets[id])
			}
			w.shut('}')
			w.object("messageQueueTable")
			w.shut('}')
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetConsumerStatusResponse, error) {
			v, err := f.object()
			r := &protocol.GetConsumerStatusResponse{Offsets: make(map[string]map[message.Queue]int64)}
			v.Get("consumerTable").Each(func(id, offsets Value) { r.Offsets[id.Text()] = offsetsOf(offsets) })
			return r, err
		},
	}
}

// peerGetConsumerStatus is what each of them is asked.
func peerGetConsumerStatus() *command[protocol.Peer, protocol.PeerConsumerStatusRequest, protocol.PeerConsumerStatusResponse] {
	return &command[protocol.Peer, protocol.PeerConsumerStatusRequest, protocol.PeerConsumerStatusResponse]{
		name:   "GetConsumerStatus",
		codes:  []protocol.Code{protocol.CodePeerConsumerStatus},
		method: protocol.Peer.GetConsumerStatus,
		encodeRequest: func(q *protocol.PeerConsumerStatusRequest, f *Frame) {
			f.put("topic", q.Topic)
			f.put("group", q.Group)
		},
		decodeRequest: func(f *Frame) (*protocol.PeerConsumerStatusRequest, error) {
			h := f.header()
			return &protocol.PeerConsumerStatusRequest{Group: h.must("group"), Topic: h.must("topic")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.PeerConsumerStatusRequest, r *protocol.PeerConsumerStatusResponse, f *Frame) {
			var w writer
			w.open('{')
			w.object("consumerTable")
			w.shut('}')
			w.name("messageQueueTable")
			w.offsets(r.Offsets)
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.PeerConsumerStatusResponse, error) {
			v, err := f.object()
			return &protocol.PeerConsumerStatusResponse{Offsets: offsetsOf(v.Get("messageQueueTable"))}, err
		},
	}
}

// consumeMessageDirectly has a member, through the broker, consume one message.
// Java: ConsumeMessageDirectlyResultRequestHeader.
func consumeMessageDirectly() *command[protocol.BrokerConn, protocol.ConsumeMessageDirectlyRequest, protocol.ConsumeMessageDirectlyResponse] {
	return consumeDirectly(protocol.BrokerConn.ConsumeMessageDirectly)
}

// peerConsumeMessageDirectly is the same, between broker and client.
func peerConsumeMessageDirectly() *command[protocol.Peer, protocol.ConsumeMessageDirectlyRequest, protocol.ConsumeMessageDirectlyResponse] {
	return consumeDirectly(protocol.Peer.ConsumeMessageDirectly)
}

func consumeDirectly[S any](method func(S, context.Context, *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error)) *command[S, protocol.ConsumeMessageDirectlyRequest, protocol.ConsumeMessageDirectlyResponse] {
	return &command[S, protocol.ConsumeMessageDirectlyRequest, protocol.ConsumeMessageDirectlyResponse]{
		name:   "ConsumeMessageDirectly",
		codes:  []protocol.Code{protocol.CodeConsumeMessageDirectly},
		method: method,
		encodeRequest: func(q *protocol.ConsumeMessageDirectlyRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
			f.putIfAny("clientId", q.ClientID)
			f.putIfAny("msgId", q.MsgID)
			f.putIfAny("topic", q.Topic)
			f.putIfAny("brokerName", q.BrokerName)
			f.putInt("topicSysFlag", q.TopicSysFlag)
			f.putInt("groupSysFlag", q.GroupSysFlag)
			f.Body = q.Record
		},
		decodeRequest: func(f *Frame) (*protocol.ConsumeMessageDirectlyRequest, error) {
			h := f.header()
			return &protocol.ConsumeMessageDirectlyRequest{
				Group: h.must("consumerGroup"), ClientID: h.text("clientId"), MsgID: h.text("msgId"), Topic: h.text("topic"),
				BrokerName: h.text("brokerName"), TopicSysFlag: h.intOr("topicSysFlag", 0), GroupSysFlag: h.intOr("groupSysFlag", 0), Record: f.Body,
			}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.ConsumeMessageDirectlyRequest, r *protocol.ConsumeMessageDirectlyResponse, f *Frame) {
			if f.Body = r.Verbatim; f.Body != nil {
				return
			}
			var w writer
			w.open('{')
			w.bool("autoCommit", r.AutoCommit)
			w.text("consumeResult", r.Result.String())
			w.bool("order", r.Orderly)
			if r.Remark != "" {
				w.text("remark", r.Remark)
			}
			w.int("spentTimeMills", r.Spent.Milliseconds())
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.ConsumeMessageDirectlyResponse, error) {
			v, err := f.object()
			return &protocol.ConsumeMessageDirectlyResponse{
				Result: consumeResultOf(v.Get("consumeResult")), Remark: v.Get("remark").Text(), Orderly: v.Get("order").Bool(false),
				AutoCommit: v.Get("autoCommit").Bool(true), Spent: duration(v.Get("spentTimeMills").Int(0)), Verbatim: f.Body,
			}, err
		},
	}
}

// consumeResultOf reads a result by its name, or by its number, as the Go client
// writes it. One that is not known counts as a failure.
func consumeResultOf(v Value) protocol.ConsumeResult {
	for r := protocol.ConsumeSuccess; r <= protocol.ConsumeReturnNull; r++ {
		if strings.EqualFold(v.Text(), r.String()) || v.Int(math.MinInt64) == int64(r) {
			return r
		}
	}
	return protocol.ConsumeException
}
