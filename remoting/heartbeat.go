package remoting

import (
	"context"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// heartbeat registers a client's groups. Java: ClientManageProcessor,
// HeartbeatData.
func heartbeat() *command[protocol.BrokerConn, protocol.HeartbeatRequest, protocol.HeartbeatResponse] {
	return &command[protocol.BrokerConn, protocol.HeartbeatRequest, protocol.HeartbeatResponse]{
		name:          "Heartbeat",
		codes:         []protocol.Code{protocol.CodeHeartbeat},
		method:        protocol.BrokerConn.Heartbeat,
		encodeRequest: encodeHeartbeat,
		decodeRequest: decodeHeartbeat,
	}
}

func encodeHeartbeat(q *protocol.HeartbeatRequest, f *Frame) {
	var w writer
	w.open('{')
	w.text("clientID", q.ClientID)
	w.list("consumerDataSet")
	for i := range q.Consumers {
		c := &q.Consumers[i]
		w.open('{')
		w.text("consumeFromWhere", nameOfFrom(c.From))
		w.text("consumeType", nameOfType(c.Passive))
		w.text("groupName", c.Group)
		w.text("messageModel", c.Model.String())
		w.subscriptions("subscriptionDataSet", c.Subscriptions)
		w.bool("unitMode", false)
		w.shut('}')
	}
	w.shut(']')
	w.int("heartbeatFingerprint", 0)
	w.list("producerDataSet")
	for _, group := range q.Producers {
		w.open('{')
		w.text("groupName", group)
		w.shut('}')
	}
	w.shut(']')
	w.bool("withoutSub", false)
	w.shut('}')
	f.Body = w.b
}

func decodeHeartbeat(f *Frame) (*protocol.HeartbeatRequest, error) {
	v, err := f.object()
	if err != nil {
		return nil, err
	}
	q := &protocol.HeartbeatRequest{ClientID: v.Get("clientID").Text()}
	for _, p := range v.Get("producerDataSet").List() {
		q.Producers = append(q.Producers, p.Get("groupName").Text())
	}
	for _, c := range v.Get("consumerDataSet").List() {
		q.Consumers = append(q.Consumers, protocol.ConsumerData{
			Group:         c.Get("groupName").Text(),
			Model:         modelOf(c.Get("messageModel").Text()),
			From:          fromOf(c.Get("consumeFromWhere").Text()),
			Passive:       strings.EqualFold(c.Get("consumeType").Text(), consumePassively),
			Subscriptions: subscriptionsOf(c.Get("subscriptionDataSet")),
		})
	}
	return q, nil
}

// unregisterClient takes a client out of its groups. Java:
// UnregisterClientRequestHeader.
func unregisterClient() *command[protocol.BrokerConn, protocol.UnregisterClientRequest, protocol.UnregisterClientResponse] {
	return &command[protocol.BrokerConn, protocol.UnregisterClientRequest, protocol.UnregisterClientResponse]{
		name:   "UnregisterClient",
		codes:  []protocol.Code{protocol.CodeUnregisterClient},
		method: protocol.BrokerConn.UnregisterClient,
		encodeRequest: func(q *protocol.UnregisterClientRequest, f *Frame) {
			f.put("clientID", q.ClientID)
			f.putIfAny("producerGroup", q.ProducerGroup)
			f.putIfAny("consumerGroup", q.ConsumerGroup)
		},
		decodeRequest: func(f *Frame) (*protocol.UnregisterClientRequest, error) {
			h := f.header()
			q := &protocol.UnregisterClientRequest{ClientID: h.must("clientID"), ProducerGroup: h.text("producerGroup"), ConsumerGroup: h.text("consumerGroup")}
			return q, h.err
		},
	}
}

// getConsumerList asks for a group's members. Java:
// ConsumerManageProcessor.getConsumerListByGroup.
func getConsumerList() *command[protocol.BrokerConn, protocol.GetConsumerListRequest, protocol.GetConsumerListResponse] {
	return &command[protocol.BrokerConn, protocol.GetConsumerListRequest, protocol.GetConsumerListResponse]{
		name:   "GetConsumerList",
		codes:  []protocol.Code{protocol.CodeGetConsumerList},
		method: protocol.BrokerConn.GetConsumerList,
		encodeRequest: func(q *protocol.GetConsumerListRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
		},
		decodeRequest: func(f *Frame) (*protocol.GetConsumerListRequest, error) {
			h := f.header()
			return &protocol.GetConsumerListRequest{Group: h.must("consumerGroup")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetConsumerListRequest, r *protocol.GetConsumerListResponse, f *Frame) {
			var w writer
			w.open('{')
			w.texts("consumerIdList", r.ClientIDs)
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetConsumerListResponse, error) {
			v, err := f.object()
			return &protocol.GetConsumerListResponse{ClientIDs: textsOf(v.Get("consumerIdList"))}, err
		},
	}
}

// notifyConsumerIDsChanged tells a member that its group changed. Java:
// NotifyConsumerIdsChangedRequestHeader.
func notifyConsumerIDsChanged() *command[protocol.Peer, protocol.NotifyConsumerIDsChangedRequest, nothing] {
	return &command[protocol.Peer, protocol.NotifyConsumerIDsChangedRequest, nothing]{
		name:  "NotifyConsumerIDsChanged",
		codes: []protocol.Code{protocol.CodeNotifyConsumerIDsChanged},
		method: func(p protocol.Peer, _ context.Context, q *protocol.NotifyConsumerIDsChangedRequest) (*nothing, error) {
			p.NotifyConsumerIDsChanged(q)
			return &nothing{}, nil
		},
		encodeRequest: func(q *protocol.NotifyConsumerIDsChangedRequest, f *Frame) { f.put("consumerGroup", q.Group) },
		decodeRequest: func(f *Frame) (*protocol.NotifyConsumerIDsChangedRequest, error) {
			h := f.header()
			return &protocol.NotifyConsumerIDsChangedRequest{Group: h.must("consumerGroup")}, h.err
		},
		oneway: always[protocol.NotifyConsumerIDsChangedRequest],
	}
}
