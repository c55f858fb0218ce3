package remoting

import (
	"fmt"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Kinds of filters that a topic's messages have tags for. Java: TopicFilterType.
const (
	singleTag = "SINGLE_TAG"
	multiTag  = "MULTI_TAG"
)

func nameOfFilter(multi bool) string {
	if multi {
		return multiTag
	}
	return singleTag
}

// topic writes a topic's config. Java: TopicConfig.
func (w *writer) topic(t *protocol.TopicConfig) {
	w.open('{')
	w.object("attributes")
	if t.Attributes != "" {
		attributes := t.Attributes.Map()
		for _, name := range sortedKeys(attributes) {
			w.text(name, attributes[name])
		}
	}
	w.shut('}')
	w.bool("order", t.Order)
	w.int("perm", int64(t.Perm))
	w.int("readQueueNums", int64(t.ReadQueues))
	w.text("topicFilterType", nameOfFilter(t.MultiTag))
	w.text("topicName", t.Name)
	w.int("topicSysFlag", int64(t.SysFlag))
	w.int("writeQueueNums", int64(t.WriteQueues))
	w.shut('}')
}

// topic reads a topic's config; its name stands beside it.
func (m *members) topic(name, t Value) protocol.TopicConfig {
	c := protocol.TopicConfig{
		Name: name.Text(), ReadQueues: m.int(t, "readQueueNums", 0), WriteQueues: m.int(t, "writeQueueNums", 0),
		Perm: protocol.Perm(m.int(t, "perm", 0)), Order: t.Get("order").Bool(false), SysFlag: m.int(t, "topicSysFlag", 0),
		MultiTag: t.Get("topicFilterType").Text() == multiTag,
	}
	if list := t.Get("attributes"); list.Len() > 0 {
		attributes := make(map[string]string, list.Len())
		list.Each(func(name, value Value) { attributes[name.Text()] = value.Text() })
		c.Attributes = protocol.AttributesOf(attributes)
	}
	return c
}

// appendChanges writes changes of attributes as a field: "+name=value,-name". Java:
// AttributeParser.
func appendChanges(changes protocol.Attributes) string {
	m := changes.Map()
	var parts []string
	for _, name := range sortedKeys(m) {
		if strings.HasPrefix(name, "-") {
			parts = append(parts, name)
		} else {
			parts = append(parts, name+"="+m[name])
		}
	}
	return strings.Join(parts, ",")
}

// changesOf reads what appendChanges wrote.
func (h *header) changesOf(name string) protocol.Attributes {
	text := h.text(name)
	if text == "" {
		return ""
	}
	changes := make(map[string]string)
	for _, part := range strings.Split(text, ",") {
		key, value, set := strings.Cut(part, "=")
		_, known := changes[key]
		switch {
		case len(key) < 2 || known,
			set != strings.HasPrefix(key, "+"),
			!set && !strings.HasPrefix(key, "-"):
			h.fail("the field %s is %q, not such as +name=value,-name, each once", name, clip(text))
			return ""
		}
		changes[key] = value
	}
	return protocol.AttributesOf(changes)
}

// createTopic creates or changes a topic. Java: CreateTopicRequestHeader.
func createTopic() *command[protocol.BrokerConn, protocol.CreateTopicRequest, protocol.CreateTopicResponse] {
	return &command[protocol.BrokerConn, protocol.CreateTopicRequest, protocol.CreateTopicResponse]{
		name:   "CreateTopic",
		codes:  []protocol.Code{protocol.CodeCreateTopic},
		method: protocol.BrokerConn.CreateTopic,
		encodeRequest: func(q *protocol.CreateTopicRequest, f *Frame) {
			t := &q.Config
			f.put("topic", t.Name)
			f.put("defaultTopic", message.AutoCreateTopic)
			f.putInt("readQueueNums", t.ReadQueues)
			f.putInt("writeQueueNums", t.WriteQueues)
			f.putInt("perm", int(t.Perm))
			f.put("topicFilterType", nameOfFilter(t.MultiTag))
			f.putInt("topicSysFlag", t.SysFlag)
			f.putBool("order", t.Order)
			if t.Attributes != "" {
				f.put("attributes", appendChanges(t.Attributes))
			}
		},
		decodeRequest: func(f *Frame) (*protocol.CreateTopicRequest, error) {
			h := f.header()
			q := &protocol.CreateTopicRequest{Config: protocol.TopicConfig{
				Name: h.must("topic"), ReadQueues: h.int("readQueueNums"), WriteQueues: h.int("writeQueueNums"), Perm: protocol.Perm(h.int("perm")),
				SysFlag: h.intOr("topicSysFlag", 0), Order: h.bool("order"), Attributes: h.changesOf("attributes"),
			}}
			switch kind := h.text("topicFilterType"); kind {
			case "", singleTag:
			case multiTag:
				q.Config.MultiTag = true
			default:
				h.fail("the field topicFilterType is %q, neither %s nor %s", clip(kind), singleTag, multiTag)
			}
			return q, h.err
		},
	}
}

// deleteTopic removes a topic from a broker. Java: DeleteTopicRequestHeader.
func deleteTopic() *command[protocol.BrokerConn, protocol.DeleteTopicRequest, protocol.DeleteTopicResponse] {
	return &command[protocol.BrokerConn, protocol.DeleteTopicRequest, protocol.DeleteTopicResponse]{
		name:          "DeleteTopic",
		codes:         []protocol.Code{protocol.CodeDeleteTopic},
		method:        protocol.BrokerConn.DeleteTopic,
		encodeRequest: func(q *protocol.DeleteTopicRequest, f *Frame) { f.put("topic", q.Topic) },
		decodeRequest: func(f *Frame) (*protocol.DeleteTopicRequest, error) {
			h := f.header()
			return &protocol.DeleteTopicRequest{Topic: h.must("topic")}, h.err
		},
	}
}

// getTopicStats asks for the bounds of a topic's queues. Java: TopicStatsTable.
func getTopicStats() *command[protocol.BrokerConn, protocol.GetTopicStatsRequest, protocol.GetTopicStatsResponse] {
	return &command[protocol.BrokerConn, protocol.GetTopicStatsRequest, protocol.GetTopicStatsResponse]{
		name:          "GetTopicStats",
		codes:         []protocol.Code{protocol.CodeGetTopicStats},
		method:        protocol.BrokerConn.GetTopicStats,
		encodeRequest: func(q *protocol.GetTopicStatsRequest, f *Frame) { f.put("topic", q.Topic) },
		decodeRequest: func(f *Frame) (*protocol.GetTopicStatsRequest, error) {
			h := f.header()
			return &protocol.GetTopicStatsRequest{Topic: h.must("topic")}, h.err
		},
		encodeResponse: func(at site, q *protocol.GetTopicStatsRequest, r *protocol.GetTopicStatsResponse, f *Frame) {
			var w writer
			w.open('{')
			w.object("offsetTable")
			for i, s := range r.Queues {
				w.queueName(at.broker, q.Topic, i)
				w.open('{')
				w.int("lastUpdateTimestamp", toMillis(s.LastStoreTime))
				w.int("maxOffset", s.MaxOffset)
				w.int("minOffset", s.MinOffset)
				w.shut('}')
			}
			w.shut('}')
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: decodeTopicStats,
	}
}

func decodeTopicStats(f *Frame) (*protocol.GetTopicStatsResponse, error) {
	v, err := f.object()
	if err != nil {
		return nil, err
	}
	entries := v.Get("offsetTable").Len()
	r := &protocol.GetTopicStatsResponse{Queues: make([]protocol.QueueStats, entries)}
	seen := make([]bool, entries)
	v.Get("offsetTable").Each(func(name, value Value) {
		id := queueOf(name).QueueID
		if id < 0 || id >= entries || seen[id] {
			err = fmt.Errorf("%w: queue %d among %d, from 0 and each once", errBadHeader, id, entries)
			return
		}
		seen[id] = true
		r.Queues[id] = protocol.QueueStats{
			MinOffset: value.Get("minOffset").Int(0), MaxOffset: value.Get("maxOffset").Int(0),
			LastStoreTime: fromMillis(value.Get("lastUpdateTimestamp").Int(0)),
		}
	})
	return r, err
}
