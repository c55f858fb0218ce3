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
		bound:         true,
		codes:         []protocol.Code{protocol.CodeHeartbeat},
		method:        protocol.BrokerConn.Heartbeat,
		encodeRequest: encodeHeartbeat,
		decodeRequest: decodeHeartbeat,
		encodeResponse: func(_ site, _ *protocol.HeartbeatRequest, r *protocol.HeartbeatResponse, f *Frame) {
			f.put(fieldSupportsV2, "true")
			f.putBool(fieldSubChange, r.SubscriptionsWanted)
		},
		decodeResponse: func(f *Frame) (*protocol.HeartbeatResponse, error) {
			h := f.header()
			return &protocol.HeartbeatResponse{SubscriptionsWanted: h.bool(fieldSubChange)}, h.err
		},
	}
}

// Fields of the answer to a heartbeat. Java: MixAll.
const (
	fieldSupportsV2 = "IS_SUPPORT_HEART_BEAT_V2"
	fieldSubChange  = "IS_SUB_CHANGE"
)

// encodeHeartbeat writes language and version of a client into the header, where
// those of a frame's sender are.
func encodeHeartbeat(q *protocol.HeartbeatRequest, f *Frame) {
	if q.Language != "" {
		f.Language, f.Version = languageOf(q.Language), int32(q.Version)
	}
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
		w.bool("unitMode", c.UnitMode)
		w.shut('}')
	}
	w.shut(']')
	w.int("heartbeatFingerprint", int64(q.Fingerprint))
	w.list("producerDataSet")
	for _, group := range q.Producers {
		w.open('{')
		w.text("groupName", group)
		w.shut('}')
	}
	w.shut(']')
	w.bool("withoutSub", q.WithoutSubscriptions)
	w.shut('}')
	f.Body = w.b
}

func decodeHeartbeat(f *Frame) (*protocol.HeartbeatRequest, error) {
	v, err := f.object()
	if err != nil {
		return nil, err
	}
	q := &protocol.HeartbeatRequest{
		ClientID: v.Get("clientID").Text(), Version: int(f.Version),
		Fingerprint: int32(v.Get("heartbeatFingerprint").int32(0)), WithoutSubscriptions: v.Get("withoutSub").Bool(false),
	}
	if name, ok := languageName(f.Language); ok {
		q.Language = name
	}
	for _, p := range v.Get("producerDataSet").List() {
		q.Producers = append(q.Producers, p.Get("groupName").Text())
	}
	for _, c := range v.Get("consumerDataSet").List() {
		q.Consumers = append(q.Consumers, protocol.ConsumerData{
			Group:         c.Get("groupName").Text(),
			Model:         modelOf(c.Get("messageModel").Text()),
			From:          fromOf(c.Get("consumeFromWhere").Text()),
			Passive:       strings.EqualFold(c.Get("consumeType").Text(), consumePassively),
			UnitMode:      c.Get("unitMode").Bool(false),
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
