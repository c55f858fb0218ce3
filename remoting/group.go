package remoting

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// updateGroup creates a consumer group or changes its settings. Java:
// SubscriptionGroupConfig.
func updateGroup() *command[protocol.BrokerConn, protocol.UpdateGroupRequest, protocol.UpdateGroupResponse] {
	return &command[protocol.BrokerConn, protocol.UpdateGroupRequest, protocol.UpdateGroupResponse]{
		name:          "UpdateGroup",
		codes:         []protocol.Code{protocol.CodeUpdateGroup},
		method:        protocol.BrokerConn.UpdateGroup,
		encodeRequest: encodeGroup,
		decodeRequest: decodeGroup,
	}
}

func encodeGroup(q *protocol.UpdateGroupRequest, f *Frame) {
	var w writer
	w.group(&q.Config)
	f.Body = w.b
}

func decodeGroup(f *Frame) (*protocol.UpdateGroupRequest, error) {
	v, err := f.object()
	if err != nil {
		return nil, err
	}
	var m members
	q := &protocol.UpdateGroupRequest{Config: m.group(v)}
	return q, m.err
}

// group writes the settings of a group. Java: SubscriptionGroupConfig, whose
// groupRetryPolicy is left out: it is of a kind of retry that we do not have, and
// has its default where it is absent.
func (w *writer) group(g *protocol.GroupConfig) {
	w.open('{')
	w.object("attributes")
	for _, name := range sortedKeys(g.Attributes) {
		w.text(name, g.Attributes[name])
	}
	w.shut('}')
	w.int("brokerId", g.BrokerID)
	w.bool("consumeBroadcastEnable", g.ConsumeBroadcastEnable)
	w.bool("consumeEnable", g.ConsumeEnable)
	w.bool("consumeFromMinEnable", g.ConsumeFromMinEnable)
	w.bool("consumeMessageOrderly", g.ConsumeMessageOrderly)
	w.int("consumeTimeoutMinute", int64(g.ConsumeTimeoutMinute))
	w.text("groupName", g.Name)
	w.int("groupSysFlag", int64(g.GroupSysFlag))
	w.bool("notifyConsumerIdsChangedEnable", g.NotifyConsumerIDsChangedEnable)
	w.int("retryMaxTimes", int64(g.RetryMaxTimes))
	w.int("retryQueueNums", int64(g.RetryQueues))
	w.int("whichBrokerWhenConsumeSlowly", g.WhichBrokerWhenConsumeSlowly)
	w.shut('}')
}

// group reads the settings of a group; what is absent has its default.
func (m *members) group(v Value) protocol.GroupConfig {
	g := protocol.DefaultGroupConfig(v.Get("groupName").Text())
	g.ConsumeEnable = v.Get("consumeEnable").Bool(g.ConsumeEnable)
	g.ConsumeFromMinEnable = v.Get("consumeFromMinEnable").Bool(g.ConsumeFromMinEnable)
	g.ConsumeBroadcastEnable = v.Get("consumeBroadcastEnable").Bool(g.ConsumeBroadcastEnable)
	g.ConsumeMessageOrderly = v.Get("consumeMessageOrderly").Bool(g.ConsumeMessageOrderly)
	g.RetryQueues = m.int(v, "retryQueueNums", g.RetryQueues)
	g.RetryMaxTimes = m.int(v, "retryMaxTimes", g.RetryMaxTimes)
	g.BrokerID = m.long(v, "brokerId", g.BrokerID)
	g.WhichBrokerWhenConsumeSlowly = m.long(v, "whichBrokerWhenConsumeSlowly", g.WhichBrokerWhenConsumeSlowly)
	g.NotifyConsumerIDsChangedEnable = v.Get("notifyConsumerIdsChangedEnable").Bool(g.NotifyConsumerIDsChangedEnable)
	g.GroupSysFlag = m.int(v, "groupSysFlag", g.GroupSysFlag)
	g.ConsumeTimeoutMinute = m.int(v, "consumeTimeoutMinute", g.ConsumeTimeoutMinute)
	v.Get("attributes").Each(func(name, value Value) { g.Attributes[name.Text()] = value.Text() })
	return g
}

// deleteGroup removes a group's settings. Java:
// DeleteSubscriptionGroupRequestHeader.
func deleteGroup() *command[protocol.BrokerConn, protocol.DeleteGroupRequest, protocol.DeleteGroupResponse] {
	return &command[protocol.BrokerConn, protocol.DeleteGroupRequest, protocol.DeleteGroupResponse]{
		name:   "DeleteGroup",
		codes:  []protocol.Code{protocol.CodeDeleteGroup},
		method: protocol.BrokerConn.DeleteGroup,
		encodeRequest: func(q *protocol.DeleteGroupRequest, f *Frame) {
			f.put("groupName", q.Group)
			f.putBool("cleanOffset", q.CleanOffsets)
		},
		decodeRequest: func(f *Frame) (*protocol.DeleteGroupRequest, error) {
			h := f.header()
			return &protocol.DeleteGroupRequest{Group: h.must("groupName"), CleanOffsets: h.bool("cleanOffset")}, h.err
		},
	}
}

// cloneGroupOffset copies committed offsets. Java:
// CloneGroupOffsetRequestHeader.
func cloneGroupOffset() *command[protocol.BrokerConn, protocol.CloneGroupOffsetRequest, protocol.CloneGroupOffsetResponse] {
	return &command[protocol.BrokerConn, protocol.CloneGroupOffsetRequest, protocol.CloneGroupOffsetResponse]{
		name:   "CloneGroupOffset",
		codes:  []protocol.Code{protocol.CodeCloneGroupOffset},
		method: protocol.BrokerConn.CloneGroupOffset,
		encodeRequest: func(q *protocol.CloneGroupOffsetRequest, f *Frame) {
			f.put("srcGroup", q.From)
			f.put("destGroup", q.To)
			f.putIfAny("topic", q.Topic)
		},
		decodeRequest: func(f *Frame) (*protocol.CloneGroupOffsetRequest, error) {
			h := f.header()
			return &protocol.CloneGroupOffsetRequest{From: h.must("srcGroup"), To: h.must("destGroup"), Topic: h.text("topic")}, h.err
		},
	}
}

// memberUncommitted marks a queue without a committed offset in a ConsumeStats
// body, where consumerOffset is 0 for it. RocketMQ does not have it, and takes
// no notice of it.
const memberUncommitted = "uncommitted"

// getConsumeStats asks how far a group has come. Java: ConsumeStats.
func getConsumeStats() *command[protocol.BrokerConn, protocol.GetConsumeStatsRequest, protocol.GetConsumeStatsResponse] {
	return &command[protocol.BrokerConn, protocol.GetConsumeStatsRequest, protocol.GetConsumeStatsResponse]{
		name:   "GetConsumeStats",
		codes:  []protocol.Code{protocol.CodeGetConsumeStats},
		method: protocol.BrokerConn.GetConsumeStats,
		encodeRequest: func(q *protocol.GetConsumeStatsRequest, f *Frame) {
			f.put("consumerGroup", q.Group)
			f.putIfAny("topic", q.Topic)
		},
		decodeRequest: func(f *Frame) (*protocol.GetConsumeStatsRequest, error) {
			h := f.header()
			return &protocol.GetConsumeStatsRequest{Group: h.must("consumerGroup"), Topic: h.text("topic")}, h.err
		},
		encodeResponse: encodeConsumeStats,
		decodeResponse: decodeConsumeStats,
	}
}

func encodeConsumeStats(at site, _ *protocol.GetConsumeStatsRequest, r *protocol.GetConsumeStatsResponse, f *Frame) {
	var w writer
	w.open('{')
	w.int("consumeTps", 0)
	w.object("offsetTable")
	for _, s := range r.Queues {
		w.queueName(at.broker, s.Topic, s.QueueID)
		w.open('{')
		w.int("brokerOffset", s.BrokerOffset)
		w.int("consumerOffset", max(s.ConsumerOffset, 0))
		w.int("lastTimestamp", toMillis(s.LastTime))
		w.int("pullOffset", max(s.ConsumerOffset, 0))
		if s.ConsumerOffset < 0 {
			w.bool(memberUncommitted, true)
		}
		w.shut('}')
	}
	w.shut('}')
	w.shut('}')
	f.Body = w.b
}

func decodeConsumeStats(f *Frame) (*protocol.GetConsumeStatsResponse, error) {
	v, err := f.object()
	r := &protocol.GetConsumeStatsResponse{}
	v.Get("offsetTable").Each(func(name, value Value) {
		q := queueOf(name)
		s := protocol.ConsumeStats{
			Topic: q.Topic, QueueID: q.QueueID, BrokerOffset: value.Get("brokerOffset").Int(0),
			ConsumerOffset: value.Get("consumerOffset").Int(0), LastTime: fromMillis(value.Get("lastTimestamp").Int(0)),
		}
		if value.Get(memberUncommitted).Bool(false) {
			s.ConsumerOffset = -1
		}
		r.Queues = append(r.Queues, s)
	})
	slices.SortFunc(r.Queues, func(a, b protocol.ConsumeStats) int {
		return message.Queue{Topic: a.Topic, QueueID: a.QueueID}.Compare(message.Queue{Topic: b.Topic, QueueID: b.QueueID})
	})
	return r, err
}

// getConsumerConnection asks who is in a group. Java: ConsumerConnection.
func getConsumerConnection() *command[protocol.BrokerConn, protocol.GetConsumerConnectionRequest, protocol.GetConsumerConnectionResponse] {
	return &command[protocol.BrokerConn, protocol.GetConsumerConnectionRequest, protocol.GetConsumerConnectionResponse]{
		name:          "GetConsumerConnection",
		codes:         []protocol.Code{protocol.CodeGetConsumerConnection},
		method:        protocol.BrokerConn.GetConsumerConnection,
		encodeRequest: func(q *protocol.GetConsumerConnectionRequest, f *Frame) { f.put("consumerGroup", q.Group) },
		decodeRequest: func(f *Frame) (*protocol.GetConsumerConnectionRequest, error) {
			h := f.header()
			return &protocol.GetConsumerConnectionRequest{Group: h.must("consumerGroup")}, h.err
		},
		encodeResponse: encodeConnections,
		decodeResponse: decodeConnections,
	}
}

func encodeConnections(_ site, _ *protocol.GetConsumerConnectionRequest, r *protocol.GetConsumerConnectionResponse, f *Frame) {
	var w writer
	w.open('{')
	w.list("connectionSet")
	for _, m := range r.Members {
		w.open('{')
		w.text("clientAddr", m.Addr)
		w.text("clientId", m.ClientID)
		w.text("language", m.Language)
		w.int("version", int64(m.Version))
		w.shut('}')
	}
	w.shut(']')
	w.text("consumeFromWhere", nameOfFrom(r.From))
	w.text("consumeType", nameOfType(r.Passive))
	w.text("messageModel", r.Model.String())
	w.object("subscriptionTable")
	for i := range r.Subscriptions {
		w.name(r.Subscriptions[i].Topic)
		w.subscription(&r.Subscriptions[i])
	}
	w.shut('}')
	w.shut('}')
	f.Body = w.b
}

func decodeConnections(f *Frame) (*protocol.GetConsumerConnectionResponse, error) {
	v, err := f.object()
	r := &protocol.GetConsumerConnectionResponse{
		Model: modelOf(v.Get("messageModel").Text()), From: fromOf(v.Get("consumeFromWhere").Text()),
		Passive: strings.EqualFold(v.Get("consumeType").Text(), consumePassively),
	}
	for _, m := range v.Get("connectionSet").List() {
		r.Members = append(r.Members, protocol.Connection{
			ClientID: m.Get("clientId").Text(), Addr: m.Get("clientAddr").Text(), Language: m.Get("language").Text(), Version: m.Get("version").int32(0),
		})
	}
	v.Get("subscriptionTable").Each(func(topic, value Value) {
		s := subscriptionOf(value)
		s.Topic = topic.Text()
		r.Subscriptions = append(r.Subscriptions, s)
	})
	slices.SortFunc(r.Members, func(a, b protocol.Connection) int { return cmp.Compare(a.ClientID, b.ClientID) })
	slices.SortFunc(r.Subscriptions, func(a, b protocol.Subscription) int { return cmp.Compare(a.Topic, b.Topic) })
	return r, err
}
