package remoting

import "github.com/pocketmq/pocketmq/protocol"

// consumerSendMsgBack gives a failed message back. Java:
// ConsumerSendMsgBackRequestHeader.
func consumerSendMsgBack() *command[protocol.BrokerConn, protocol.ConsumerSendMsgBackRequest, protocol.ConsumerSendMsgBackResponse] {
	return &command[protocol.BrokerConn, protocol.ConsumerSendMsgBackRequest, protocol.ConsumerSendMsgBackResponse]{
		name:   "ConsumerSendMsgBack",
		codes:  []protocol.Code{protocol.CodeConsumerSendMsgBack},
		method: protocol.BrokerConn.ConsumerSendMsgBack,
		encodeRequest: func(q *protocol.ConsumerSendMsgBackRequest, f *Frame) {
			f.putLong("offset", q.Position)
			f.put("group", q.Group)
			f.putInt("delayLevel", q.DelayLevel)
			f.putIfAny("originMsgId", q.MsgID)
			f.putIfAny("originTopic", q.Topic)
			f.putBool("unitMode", q.UnitMode)
			f.putMaximum("maxReconsumeTimes", q.MaxReconsumeTimes)
		},
		decodeRequest: func(f *Frame) (*protocol.ConsumerSendMsgBackRequest, error) {
			h := f.header()
			q := &protocol.ConsumerSendMsgBackRequest{
				Group: h.must("group"), Position: h.long("offset"), DelayLevel: h.int("delayLevel"),
				MsgID: h.text("originMsgId"), Topic: h.text("originTopic"), UnitMode: h.bool("unitMode"),
				MaxReconsumeTimes: f.maximum(&h, "maxReconsumeTimes"),
			}
			return q, h.err
		},
	}
}
