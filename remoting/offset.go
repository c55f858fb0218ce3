package remoting

import (
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// putQueue writes the fields that name a queue of the broker asked.
func (f *Frame) putQueue(topic string, id int) {
	f.put("topic", topic)
	f.putInt("queueId", id)
}

// queryConsumerOffset asks for a committed offset. Java:
// QueryConsumerOffsetRequestHeader.
func queryConsumerOffset() *command[protocol.BrokerConn, protocol.QueryConsumerOffsetRequest, protocol.QueryConsumerOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.QueryConsumerOffsetRequest, protocol.QueryConsumerOffsetResponse]{
		name:   "QueryConsumerOffset",
		codes:  []protocol.Code{protocol.CodeQueryConsumerOffset},
		method: protocol.BrokerConn.QueryConsumerOffset,
		encodeRequest: func(q *protocol.QueryConsumerOffsetRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
			f.putQueue(q.Topic, q.QueueID)
			if q.CommittedOnly {
				f.put("setZeroIfNotFound", "false")
			}
		},
		decodeRequest: func(f *Frame) (*protocol.QueryConsumerOffsetRequest, error) {
			h := f.header()
			q := &protocol.QueryConsumerOffsetRequest{
				Group: h.must("consumerGroup"), Topic: h.must("topic"), QueueID: h.int("queueId"), CommittedOnly: !h.boolOr("setZeroIfNotFound", true),
			}
			return q, h.err
		},
		encodeResponse: func(_ site, _ *protocol.QueryConsumerOffsetRequest, r *protocol.QueryConsumerOffsetResponse, f *Frame) {
			f.putLong("offset", r.Offset)
		},
		decodeResponse: func(f *Frame) (*protocol.QueryConsumerOffsetResponse, error) {
			h := f.header()
			return &protocol.QueryConsumerOffsetResponse{Offset: h.long("offset")}, h.err
		},
	}
}

// updateConsumerOffset commits an offset. Java:
// UpdateConsumerOffsetRequestHeader.
func updateConsumerOffset() *command[protocol.BrokerConn, protocol.UpdateConsumerOffsetRequest, protocol.UpdateConsumerOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.UpdateConsumerOffsetRequest, protocol.UpdateConsumerOffsetResponse]{
		name:   "UpdateConsumerOffset",
		codes:  []protocol.Code{protocol.CodeUpdateConsumerOffset},
		method: protocol.BrokerConn.UpdateConsumerOffset,
		encodeRequest: func(q *protocol.UpdateConsumerOffsetRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
			f.putQueue(q.Topic, q.QueueID)
			f.putLong("commitOffset", q.Offset)
		},
		decodeRequest: func(f *Frame) (*protocol.UpdateConsumerOffsetRequest, error) {
			h := f.header()
			if h.text("queueId") == "" || h.text("commitOffset") == "" {
				return nil, protocol.Errorf(protocol.InvalidParameter, "QueueId and offset can't be null, topic=%s", clip(h.text("topic")))
			}
			q := &protocol.UpdateConsumerOffsetRequest{
				Group: h.must("consumerGroup"), Topic: h.must("topic"), QueueID: h.int("queueId"), Offset: h.long("commitOffset"), Oneway: f.Oneway(),
			}
			return q, h.err
		},
		oneway: func(q *protocol.UpdateConsumerOffsetRequest) bool { return q.Oneway },
		encodeResponse: func(_ site, _ *protocol.UpdateConsumerOffsetRequest, r *protocol.UpdateConsumerOffsetResponse, f *Frame) {
			if r.Ignored {
				f.Remark = remarkReset
			}
		},
		decodeResponse: func(f *Frame) (*protocol.UpdateConsumerOffsetResponse, error) {
			return &protocol.UpdateConsumerOffsetResponse{Ignored: f.Remark == remarkReset}, nil
		},
	}
}

// remarkReset is the remark of a successful answer to a commit that is ignored.
const remarkReset = "Offset has been previously reset"

// getMaxOffset asks for the end of a queue. Java: GetMaxOffsetRequestHeader.
func getMaxOffset() *command[protocol.BrokerConn, protocol.GetMaxOffsetRequest, protocol.GetMaxOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.GetMaxOffsetRequest, protocol.GetMaxOffsetResponse]{
		name:          "GetMaxOffset",
		codes:         []protocol.Code{protocol.CodeGetMaxOffset},
		method:        protocol.BrokerConn.GetMaxOffset,
		encodeRequest: func(q *protocol.GetMaxOffsetRequest, f *Frame) { f.putQueue(q.Topic, q.QueueID) },
		decodeRequest: func(f *Frame) (*protocol.GetMaxOffsetRequest, error) {
			h := f.header()
			return &protocol.GetMaxOffsetRequest{Topic: h.must("topic"), QueueID: h.int("queueId")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetMaxOffsetRequest, r *protocol.GetMaxOffsetResponse, f *Frame) {
			f.putLong("offset", r.Offset)
		},
		decodeResponse: func(f *Frame) (*protocol.GetMaxOffsetResponse, error) {
			h := f.header()
			return &protocol.GetMaxOffsetResponse{Offset: h.long("offset")}, h.err
		},
	}
}

// getMinOffset asks for the start of a queue. Java: GetMinOffsetRequestHeader.
func getMinOffset() *command[protocol.BrokerConn, protocol.GetMinOffsetRequest, protocol.GetMinOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.GetMinOffsetRequest, protocol.GetMinOffsetResponse]{
		name:          "GetMinOffset",
		codes:         []protocol.Code{protocol.CodeGetMinOffset},
		method:        protocol.BrokerConn.GetMinOffset,
		encodeRequest: func(q *protocol.GetMinOffsetRequest, f *Frame) { f.putQueue(q.Topic, q.QueueID) },
		decodeRequest: func(f *Frame) (*protocol.GetMinOffsetRequest, error) {
			h := f.header()
			return &protocol.GetMinOffsetRequest{Topic: h.must("topic"), QueueID: h.int("queueId")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetMinOffsetRequest, r *protocol.GetMinOffsetResponse, f *Frame) {
			f.putLong("offset", r.Offset)
		},
		decodeResponse: func(f *Frame) (*protocol.GetMinOffsetResponse, error) {
			h := f.header()
			return &protocol.GetMinOffsetResponse{Offset: h.long("offset")}, h.err
		},
	}
}

// searchOffset asks for the place of an instant. Java:
// SearchOffsetRequestHeader.
func searchOffset() *command[protocol.BrokerConn, protocol.SearchOffsetRequest, protocol.SearchOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.SearchOffsetRequest, protocol.SearchOffsetResponse]{
		name:   "SearchOffset",
		codes:  []protocol.Code{protocol.CodeSearchOffset},
		method: protocol.BrokerConn.SearchOffset,
		encodeRequest: func(q *protocol.SearchOffsetRequest, f *Frame) {
			f.putQueue(q.Topic, q.QueueID)
			f.putLong("timestamp", q.Time.UnixMilli())
			if q.Boundary == protocol.BoundaryUpper {
				f.put("boundaryType", "UPPER")
			} else {
				f.put("boundaryType", "LOWER")
			}
		},
		decodeRequest: func(f *Frame) (*protocol.SearchOffsetRequest, error) {
			h := f.header()
			q := &protocol.SearchOffsetRequest{Topic: h.must("topic"), QueueID: h.int("queueId"), Time: time.UnixMilli(h.long("timestamp"))}
			if strings.EqualFold(h.text("boundaryType"), "upper") {
				q.Boundary = protocol.BoundaryUpper
			}
			return q, h.err
		},
		encodeResponse: func(_ site, _ *protocol.SearchOffsetRequest, r *protocol.SearchOffsetResponse, f *Frame) {
			f.putLong("offset", r.Offset)
		},
		decodeResponse: func(f *Frame) (*protocol.SearchOffsetResponse, error) {
			h := f.header()
			return &protocol.SearchOffsetResponse{Offset: h.long("offset")}, h.err
		},
	}
}

// getEarliestStoreTime asks how far back a queue goes. Java:
// GetEarliestMsgStoretimeRequestHeader.
func getEarliestStoreTime() *command[protocol.BrokerConn, protocol.GetEarliestStoreTimeRequest, protocol.GetEarliestStoreTimeResponse] {
	return &command[protocol.BrokerConn, protocol.GetEarliestStoreTimeRequest, protocol.GetEarliestStoreTimeResponse]{
		name:          "GetEarliestStoreTime",
		codes:         []protocol.Code{protocol.CodeGetEarliestStoreTime},
		method:        protocol.BrokerConn.GetEarliestStoreTime,
		encodeRequest: func(q *protocol.GetEarliestStoreTimeRequest, f *Frame) { f.putQueue(q.Topic, q.QueueID) },
		decodeRequest: func(f *Frame) (*protocol.GetEarliestStoreTimeRequest, error) {
			h := f.header()
			return &protocol.GetEarliestStoreTimeRequest{Topic: h.must("topic"), QueueID: h.int("queueId")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetEarliestStoreTimeRequest, r *protocol.GetEarliestStoreTimeResponse, f *Frame) {
			ms := int64(-1)
			if !r.Time.IsZero() {
				ms = r.Time.UnixMilli()
			}
			f.putLong("timestamp", ms)
		},
		decodeResponse: func(f *Frame) (*protocol.GetEarliestStoreTimeResponse, error) {
			h := f.header()
			return &protocol.GetEarliestStoreTimeResponse{Time: fromMillis(h.long("timestamp"))}, h.err
		},
	}
}

// resetOffset moves a group. Java: ResetOffsetRequestHeader,
// INVOKE_BROKER_TO_RESET_OFFSET.
func resetOffset() *command[protocol.BrokerConn, protocol.ResetOffsetRequest, protocol.ResetOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.ResetOffsetRequest, protocol.ResetOffsetResponse]{
		name:           "ResetOffset",
		codes:          []protocol.Code{protocol.CodeResetOffset},
		method:         protocol.BrokerConn.ResetOffset,
		encodeRequest:  encodeReset,
		decodeRequest:  decodeReset,
		encodeResponse: encodeResetDone,
		decodeResponse: decodeResetDone,
	}
}

func encodeReset(q *protocol.ResetOffsetRequest, f *Frame) {
	f.put("topic", q.Topic)
	f.put("group", q.Group)
	f.putInstant("timestamp", q.Time)
	f.put("isForce", "true")
	f.putInt("queueId", max(q.QueueID, -1))
	if q.Offset != nil {
		f.putLong("offset", *q.Offset)
	}
}

func decodeReset(f *Frame) (*protocol.ResetOffsetRequest, error) {
	h := f.header()
	q := &protocol.ResetOffsetRequest{Topic: h.must("topic"), Group: h.must("group"), QueueID: h.intOr("queueId", -1)}
	// Java: ResetOffsetRequestHeader.offset is -1 for none.
	if offset := h.longOr("offset", -1); offset != -1 {
		q.Offset = &offset
	}
	q.Time = instantOf(h.long("timestamp"))
	return q, h.err
}

func encodeResetDone(at site, q *protocol.ResetOffsetRequest, r *protocol.ResetOffsetResponse, f *Frame) {
	var w writer
	w.open('{')
	w.object("offsetTable")
	for _, id := range sortedKeys(r.Offsets) {
		w.queueName(at.broker, q.Topic, id)
		w.number(r.Offsets[id])
	}
	w.shut('}')
	w.shut('}')
	f.Body = w.b
}

func decodeResetDone(f *Frame) (*protocol.ResetOffsetResponse, error) {
	v, err := f.object()
	r := &protocol.ResetOffsetResponse{Offsets: make(map[int]int64)}
	v.Get("offsetTable").Each(func(name, value Value) { r.Offsets[queueOf(name).QueueID] = value.Int(0) })
	return r, err
}
