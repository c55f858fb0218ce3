package remoting

import (
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Wire codes that protocol.CodeSendMessage stands for.
const (
	codeSendMessage      = 10  // long names
	codeSendMessageV2    = 310 // short names
	codeSendBatchMessage = 320 // short names; whether it is a batch, the field says
)

// sendNames are the fields of a send. Java: SendMessageRequestHeader,
// SendMessageRequestHeaderV2.
type sendNames struct {
	group, topic, defaultTopic, defaultTopicQueues, queueID, sysFlag, bornTime, flag string
	properties, reconsumeTimes, unitMode, maxReconsumeTimes, batch                   string
}

func namesOfSend(code int32) sendNames {
	if code == codeSendMessage {
		return sendNames{
			"producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
			"properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch",
		}
	}
	return sendNames{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"}
}

// Fields of every answer to a send. Java: MessageConst.
const (
	fieldRegion  = "MSG_REGION"
	fieldTraceOn = "TRACE_ON"
)

// sendMessage sends one message, or a batch. Java: SendMessageProcessor.
func sendMessage() *command[protocol.BrokerConn, protocol.SendMessageRequest, protocol.SendMessageResponse] {
	return &command[protocol.BrokerConn, protocol.SendMessageRequest, protocol.SendMessageResponse]{
		name:           "SendMessage",
		codes:          []protocol.Code{codeSendMessageV2, codeSendBatchMessage, codeSendMessage},
		method:         protocol.BrokerConn.SendMessage,
		encodeRequest:  encodeSend,
		decodeRequest:  decodeSend,
		encodeResponse: encodeSent,
		decodeResponse: decodeSent,
		oneway:         func(q *protocol.SendMessageRequest) bool { return q.Oneway },
		onFailure: func(f *Frame) {
			f.put(fieldRegion, protocol.DefaultRegion)
			f.putBool(fieldTraceOn, true)
		},
		body: bodyBytes,
		outcome: func(code protocol.Code) outcome {
			switch code {
			case protocol.Success:
				return answered
			case protocol.FlushDiskTimeout, protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout:
				return both
			}
			return failed
		},
	}
}

func encodeSend(q *protocol.SendMessageRequest, f *Frame) {
	if q.Batch {
		f.Code = codeSendBatchMessage
	}
	n := namesOfSend(f.Code)
	f.Ext = slices.Grow(f.Ext, 15)
	f.put(n.group, q.ProducerGroup)
	f.put(n.topic, q.Topic)
	f.put(n.defaultTopic, q.DefaultTopic)
	f.putInt(n.defaultTopicQueues, q.DefaultTopicQueues)
	f.putInt(n.queueID, q.QueueID)
	f.putInt(n.sysFlag, int(q.SysFlag))
	f.putLong(n.bornTime, q.BornTime.UnixMilli())
	f.putInt(n.flag, int(q.Flag))
	f.put(n.properties, q.Properties)
	f.putInt(n.reconsumeTimes, int(q.ReconsumeTimes))
	f.put(n.unitMode, "false")
	f.putMaximum(n.maxReconsumeTimes, q.MaxReconsumeTimes)
	f.putBool(n.batch, q.Batch)
	f.Body = q.Body
}

func decodeSend(f *Frame) (*protocol.SendMessageRequest, error) {
	n, h := namesOfSend(f.Code), f.lettered()
	q := &protocol.SendMessageRequest{
		ProducerGroup:      h.must(n.group),
		Topic:              h.must(n.topic),
		DefaultTopic:       h.text(n.defaultTopic),
		DefaultTopicQueues: h.intOr(n.defaultTopicQueues, 0),
		QueueID:            h.int(n.queueID),
		SysFlag:            int32(h.int(n.sysFlag)),
		BornTime:           time.UnixMilli(h.long(n.bornTime)),
		Flag:               int32(h.int(n.flag)),
		Properties:         h.text(n.properties),
		ReconsumeTimes:     int32(h.intOr(n.reconsumeTimes, 0)),
		MaxReconsumeTimes:  f.maximum(&h, n.maxReconsumeTimes),
		Batch:              h.bool(n.batch),
		Body:               f.Body,
		Oneway:             f.Oneway(),
	}
	return q, h.err
}

func encodeSent(_ site, _ *protocol.SendMessageRequest, r *protocol.SendMessageResponse, f *Frame) {
	f.Ext = slices.Grow(f.Ext, 6)
	f.put("msgId", r.MsgID)
	f.putInt("queueId", r.QueueID)
	f.putLong("queueOffset", r.QueueOffset)
	f.putIfAny("transactionId", r.TransactionID)
	f.putIfAny(fieldRegion, r.Region)
	f.putBool(fieldTraceOn, r.TraceOn)
}

// putMaximum writes how often a message may be consumed again, unless that is the
// group's to say.
func (f *Frame) putMaximum(name string, most *int32) {
	if most != nil {
		f.putInt(name, int(*most))
	}
}

// versionOfMaximum is the first whose clients say how often a message may be
// consumed again. Java: MQVersion.Version.V3_4_9.
const versionOfMaximum = 121

// maximum reads what putMaximum wrote. That of an old client does not count.
func (f *Frame) maximum(h *header, name string) *int32 {
	if f.Version < versionOfMaximum || h.text(name) == "" {
		return nil
	}
	n := int32(h.int(name))
	return &n
}

func decodeSent(f *Frame) (*protocol.SendMessageResponse, error) {
	h := f.header()
	r := &protocol.SendMessageResponse{
		MsgID:         h.text("msgId"),
		QueueID:       h.int("queueId"),
		QueueOffset:   h.long("queueOffset"),
		TransactionID: h.text("transactionId"),
		Region:        h.text(fieldRegion),
		TraceOn:       h.bool(fieldTraceOn),
	}
	return r, h.err
}
