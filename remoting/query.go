package remoting

import (
	"errors"
	"math"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Fields of a query that RocketMQ does not have, and takes no notice of.
const (
	fieldBelow = "maxPosition" // QueryMessageRequest.Below
	fieldMore  = "more"        // QueryMessageResponse.More
)

// fieldUnique says that the key is a unique one. Java:
// MixAll.UNIQUE_MSG_QUERY_FLAG.
const fieldUnique = "_UNIQUE_KEY_QUERY"

// queryMessage asks for messages by key. Java: QueryMessageProcessor.
func queryMessage() *command[protocol.BrokerConn, protocol.QueryMessageRequest, protocol.QueryMessageResponse] {
	return &command[protocol.BrokerConn, protocol.QueryMessageRequest, protocol.QueryMessageResponse]{
		name:           "QueryMessage",
		codes:          []protocol.Code{protocol.CodeQueryMessage},
		method:         protocol.BrokerConn.QueryMessage,
		encodeRequest:  encodeQuery,
		decodeRequest:  decodeQuery,
		encodeResponse: encodeFound,
		decodeResponse: decodeFound,
	}
}

func encodeQuery(q *protocol.QueryMessageRequest, f *Frame) {
	f.put("topic", q.Topic)
	f.put("key", q.Key)
	f.putInt("maxNum", q.MaxMessages)
	f.putLong("beginTimestamp", toMillis(q.From))
	if q.To.IsZero() {
		f.putLong("endTimestamp", math.MaxInt64)
	} else {
		f.putLong("endTimestamp", q.To.UnixMilli())
	}
	if q.Unique {
		f.put(fieldUnique, "true")
	}
	if q.Below > 0 {
		f.putLong(fieldBelow, q.Below)
	}
}

func decodeQuery(f *Frame) (*protocol.QueryMessageRequest, error) {
	h := f.header()
	q := &protocol.QueryMessageRequest{
		Topic: h.must("topic"), Key: h.must("key"), MaxMessages: h.int("maxNum"), From: fromMillis(h.long("beginTimestamp")),
		Unique: h.bool(fieldUnique), Below: h.longOr(fieldBelow, 0),
	}
	if ms := h.long("endTimestamp"); ms != math.MaxInt64 {
		q.To = time.UnixMilli(ms)
	}
	return q, h.err
}

func encodeFound(_ site, _ *protocol.QueryMessageRequest, r *protocol.QueryMessageResponse, f *Frame) {
	f.putLong("indexLastUpdateTimestamp", toMillis(r.IndexTime))
	f.putLong("indexLastUpdatePhyoffset", r.IndexPosition)
	if r.More {
		f.put(fieldMore, "true")
	}
	f.parts = r.Records
}

func decodeFound(f *Frame) (*protocol.QueryMessageResponse, error) {
	h := f.header()
	r := &protocol.QueryMessageResponse{
		IndexTime: fromMillis(h.longOr("indexLastUpdateTimestamp", 0)), IndexPosition: h.longOr("indexLastUpdatePhyoffset", 0), More: h.bool(fieldMore),
	}
	var err error
	r.Records, err = splitRecords(f.Body)
	return r, errors.Join(h.err, err)
}

// viewMessage asks for one record. Java: ViewMessageRequestHeader.
func viewMessage() *command[protocol.BrokerConn, protocol.ViewMessageRequest, protocol.ViewMessageResponse] {
	return &command[protocol.BrokerConn, protocol.ViewMessageRequest, protocol.ViewMessageResponse]{
		name:          "ViewMessage",
		codes:         []protocol.Code{protocol.CodeViewMessage},
		method:        protocol.BrokerConn.ViewMessage,
		encodeRequest: func(q *protocol.ViewMessageRequest, f *Frame) { f.putLong("offset", q.Position) },
		decodeRequest: func(f *Frame) (*protocol.ViewMessageRequest, error) {
			h := f.header()
			return &protocol.ViewMessageRequest{Position: h.long("offset")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.ViewMessageRequest, r *protocol.ViewMessageResponse, f *Frame) {
			f.Body = r.Record
		},
		decodeResponse: func(f *Frame) (*protocol.ViewMessageResponse, error) {
			return &protocol.ViewMessageResponse{Record: f.Body}, nil
		},
	}
}
