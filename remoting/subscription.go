package remoting

import (
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Names of a group's settings on the wire. What is not known is taken for the
// first of its kind, as a heartbeat must not fail over it.
const (
	modelBroadcasting = "BROADCASTING"
	consumePassively  = "CONSUME_PASSIVELY"
	consumeActively   = "CONSUME_ACTIVELY"
	fromLast          = "CONSUME_FROM_LAST_OFFSET"
	fromFirst         = "CONSUME_FROM_FIRST_OFFSET"
	fromTimestamp     = "CONSUME_FROM_TIMESTAMP"
)

func modelOf(name string) protocol.MessageModel {
	if strings.EqualFold(name, modelBroadcasting) {
		return protocol.Broadcasting
	}
	return protocol.Clustering
}

func nameOfFrom(from protocol.ConsumeFrom) string {
	switch from {
	case protocol.ConsumeFromFirst:
		return fromFirst
	case protocol.ConsumeFromTime:
		return fromTimestamp
	}
	return fromLast
}

func fromOf(name string) protocol.ConsumeFrom {
	switch name {
	case fromFirst:
		return protocol.ConsumeFromFirst
	case fromTimestamp:
		return protocol.ConsumeFromTime
	}
	return protocol.ConsumeFromLast
}

func nameOfType(passive bool) string {
	if passive {
		return consumePassively
	}
	return consumeActively
}

// subscription writes one topic of a group. Java: SubscriptionData.
func (w *writer) subscription(s *protocol.Subscription) {
	w.open('{')
	w.bool("classFilterMode", false)
	w.list("codeSet")
	for _, code := range s.Codes {
		w.number(int64(code))
	}
	w.shut(']')
	w.text("expressionType", s.ExpressionType)
	w.text("subString", s.Expression)
	w.int("subVersion", s.Version)
	w.texts("tagsSet", s.Tags)
	w.text("topic", s.Topic)
	w.shut('}')
}

func (w *writer) subscriptions(name string, subs []protocol.Subscription) {
	w.list(name)
	for i := range subs {
		w.subscription(&subs[i])
	}
	w.shut(']')
}

// subscriptionOf reads one topic of a group. The codes of tags are computed:
// the Go client hashes the bytes of a tag, RocketMQ's brokers its characters,
// and it is theirs that stored messages bear.
func subscriptionOf(v Value) protocol.Subscription {
	s := protocol.Subscription{
		Topic:          v.Get("topic").Text(),
		Expression:     v.Get("subString").Text(),
		ExpressionType: v.Get("expressionType").Text(),
		Tags:           textsOf(v.Get("tagsSet")),
		Version:        v.Get("subVersion").Int(0),
	}
	if s.ExpressionType == "" {
		s.ExpressionType = protocol.ExpressionTag
	}
	for _, code := range v.Get("codeSet").List() {
		s.Codes = append(s.Codes, int32(code.Int(0)))
	}
	if s.ExpressionType == protocol.ExpressionTag && len(s.Tags) > 0 {
		s.Codes = make([]int32, len(s.Tags))
		for i, tag := range s.Tags {
			s.Codes[i] = message.TagHash(tag)
		}
	}
	return s
}

func subscriptionsOf(v Value) []protocol.Subscription {
	var subs []protocol.Subscription
	for _, item := range v.List() {
		subs = append(subs, subscriptionOf(item))
	}
	return subs
}
