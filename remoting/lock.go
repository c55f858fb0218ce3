package remoting

import (
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// lockQueues asks for the right to consume queues in order. Java:
// LockBatchRequestBody, LockBatchResponseBody.
func lockQueues() *command[protocol.BrokerConn, protocol.LockQueuesRequest, protocol.LockQueuesResponse] {
	return &command[protocol.BrokerConn, protocol.LockQueuesRequest, protocol.LockQueuesResponse]{
		name:   "LockQueues",
		codes:  []protocol.Code{protocol.CodeLockQueues},
		method: protocol.BrokerConn.LockQueues,
		encodeRequest: func(q *protocol.LockQueuesRequest, f *Frame) {
			f.Body = lockBody(q.Group, q.ClientID, q.Queues)
		},
		decodeRequest: func(f *Frame) (*protocol.LockQueuesRequest, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			q := &protocol.LockQueuesRequest{
				Group: v.Get("consumerGroup").Text(), ClientID: v.Get("clientId").Text(), Queues: m.queues(v, "mqSet"),
			}
			return q, m.err
		},
		encodeResponse: func(_ site, _ *protocol.LockQueuesRequest, r *protocol.LockQueuesResponse, f *Frame) {
			var w writer
			w.open('{')
			w.queues("lockOKMQSet", r.Locked)
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.LockQueuesResponse, error) {
			v, err := f.object()
			return &protocol.LockQueuesResponse{Locked: queuesOf(v.Get("lockOKMQSet"))}, err
		},
	}
}

// unlockQueues gives queues back. Java: UnlockBatchRequestBody.
func unlockQueues() *command[protocol.BrokerConn, protocol.UnlockQueuesRequest, protocol.UnlockQueuesResponse] {
	return &command[protocol.BrokerConn, protocol.UnlockQueuesRequest, protocol.UnlockQueuesResponse]{
		name:   "UnlockQueues",
		codes:  []protocol.Code{protocol.CodeUnlockQueues},
		method: protocol.BrokerConn.UnlockQueues,
		encodeRequest: func(q *protocol.UnlockQueuesRequest, f *Frame) {
			f.Body = lockBody(q.Group, q.ClientID, q.Queues)
		},
		decodeRequest: func(f *Frame) (*protocol.UnlockQueuesRequest, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			var m members
			q := &protocol.UnlockQueuesRequest{
				Group: v.Get("consumerGroup").Text(), ClientID: v.Get("clientId").Text(), Queues: m.queues(v, "mqSet"), Oneway: f.Oneway(),
			}
			return q, m.err
		},
		oneway: func(q *protocol.UnlockQueuesRequest) bool { return q.Oneway },
	}
}

func lockBody(group, clientID string, queues []message.Queue) []byte {
	var w writer
	w.open('{')
	w.text("clientId", clientID)
	w.text("consumerGroup", group)
	w.queues("mqSet", queues)
	w.bool("onlyThisBroker", false)
	w.shut('}')
	return w.b
}
