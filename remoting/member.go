package remoting

import (
	"fmt"
	"math"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// members reads members of a request's body that must not be guessed: what is there
// and no such number is an error. What is absent, null or an empty text has its
// default, as with fastjson. The first error counts.
type members struct{ err error }

func (m *members) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("%w: %s", errBadBody, fmt.Sprintf(format, args...))
	}
}

func (m *members) long(of Value, name string, def int64) int64 {
	return m.number(of, name, def, math.MinInt64, math.MaxInt64, 64)
}

// int is long for 32 bits.
func (m *members) int(of Value, name string, def int) int {
	return int(m.number(of, name, int64(def), math.MinInt32, math.MaxInt32, 32))
}

func (m *members) number(of Value, name string, def, low, high int64, bits int) int64 {
	v := of.Get(name)
	if v.Null() || v.kind == kindText && v.text == "" {
		return def
	}
	n, ok := parseInteger(v.text)
	if !ok || n < low || n > high {
		m.fail("%s is %q, no number of %d bits", name, clip(v.written()), bits)
		return def
	}
	return n
}

// objects returns the items of a list, each of which has to be an object.
func (m *members) objects(of Value, name string) []Value {
	list := of.Get(name)
	if list.kind != kindList && !list.Null() {
		m.fail("%s is no list", name)
	}
	for i, item := range list.List() {
		if item.kind != kindObject {
			m.fail("item %d of %s is no object", i, name)
		}
	}
	return list.List()
}

// queues reads a list of queues; an empty one is not nil.
func (m *members) queues(of Value, name string) []message.Queue {
	list := m.objects(of, name)
	queues := make([]message.Queue, 0, len(list))
	for _, v := range list {
		queues = append(queues, message.Queue{Topic: v.Get("topic").Text(), BrokerName: v.Get("brokerName").Text(), QueueID: m.int(v, "queueId", 0)})
	}
	return queues
}

func (m *members) dataVersion(v Value) protocol.DataVersion {
	return protocol.DataVersion{StateVersion: m.long(v, "stateVersion", 0), Timestamp: m.long(v, "timestamp", 0), Counter: m.long(v, "counter", 0)}
}

// written is a value for an error.
func (v Value) written() string {
	switch v.kind {
	case kindList:
		return "[...]"
	case kindObject:
		return "{...}"
	}
	return v.text
}
