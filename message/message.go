package message

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is what a producer sends. Nothing of it is kept after the send
// returns, so it may be changed and sent again. Java: Message.
type Message struct {
	// Topic is where the message goes; ValidateTopic gives the rules.
	Topic string

	// Tag is what consumers filter by, at most one: property TAGS.
	Tag string

	// Keys find the message again: property KEYS, joined by blanks, so none
	// may contain one.
	Keys []string

	// ShardingKey chooses the queue: messages of equal keys keep their order.
	// Property __SHARDINGKEY.
	ShardingKey string

	// Properties are the user's own. Names must not be reserved (IsReserved);
	// neither names nor values may be empty or contain 0x01 or 0x02; all must
	// be UTF-8.
	Properties map[string]string

	// Body is the content, at least one byte for an official client to send.
	Body []byte

	// Flag is the application's own number, passed through.
	Flag int32

	// DelayLevel from 1 delays delivery by the broker's table of levels: property
	// DELAY. A level above the highest means the highest. At most one of
	// DelayLevel, Delay and DeliverAt may be set.
	DelayLevel int

	// Delay delivers this long after the broker stored the message, rounded
	// up to milliseconds: property TIMER_DELAY_MS.
	Delay time.Duration

	// DeliverAt delivers at this moment, rounded up to milliseconds; in the
	// past means at once. Property TIMER_DELIVER_MS.
	DeliverAt time.Time

	// NoWait asks the broker to acknowledge after its own append, whatever it
	// is configured to wait for: property WAIT with the value "false".
	NoWait bool
}

// AppendProperties appends the properties text that travels with m: the
// user's own sorted by name, then those that the fields stand for, then
// uniqKey as UNIQ_KEY unless it is "". It checks nothing: Validate does.
//
// Differs: Java sends WAIT=true too, which is what its absence means.
func (m *Message) AppendProperties(dst []byte, uniqKey string) []byte {
	if len(m.Properties) > 0 {
		var few [8]property // sorted on the stack
		list := few[:0]
		for name, value := range m.Properties {
			list = append(list, property{name, value})
		}
		slices.SortFunc(list, func(a, b property) int { return strings.Compare(a.name, b.name) })
		for _, p := range list {
			dst = AppendProperty(dst, p.name, p.value)
		}
	}
	if len(m.Keys) > 0 {
		dst = append(dst, PropKeys...)
		dst = append(dst, nameEnd)
		dst = append(dst, m.Keys[0]...)
		for _, key := range m.Keys[1:] {
			dst = append(dst, ' ')
			dst = append(dst, key...)
		}
		dst = append(dst, valueEnd)
	}
	if m.Tag != "" {
		dst = AppendProperty(dst, PropTags, m.Tag)
	}
	if m.ShardingKey != "" {
		dst = AppendProperty(dst, PropShardingKey, m.ShardingKey)
	}
	if m.NoWait {
		dst = AppendProperty(dst, PropWait, "false")
	}
	switch {
	case m.DelayLevel > 0:
		dst = appendNumber(dst, PropDelay, int64(m.DelayLevel))
	case m.Delay > 0:
		dst = appendNumber(dst, PropTimerDelayMs, ceilMillis(m.Delay))
	case !m.DeliverAt.IsZero():
		dst = appendNumber(dst, PropTimerDeliverMs, deliverMillis(m.DeliverAt))
	}
	if uniqKey != "" {
		dst = AppendProperty(dst, PropUniqKey, uniqKey)
	}
	return dst
}

type property struct{ name, value string }

// fieldsSize is what AppendProperties adds for m without its Properties.
func (m *Message) fieldsSize() int {
	n := 0
	if len(m.Keys) > 0 {
		n += propertySize(PropKeys, "") + len(m.Keys) - 1
		for _, key := range m.Keys {
			n += len(key)
		}
	}
	if m.Tag != "" {
		n += propertySize(PropTags, m.Tag)
	}
	if m.ShardingKey != "" {
		n += propertySize(PropShardingKey, m.ShardingKey)
	}
	if m.NoWait {
		n += propertySize(PropWait, "false")
	}
	switch {
	case m.DelayLevel > 0:
		n += numberSize(PropDelay, int64(m.DelayLevel))
	case m.Delay > 0:
		n += numberSize(PropTimerDelayMs, ceilMillis(m.Delay))
	case !m.DeliverAt.IsZero():
		n += numberSize(PropTimerDeliverMs, deliverMillis(m.DeliverAt))
	}
	return n
}

func appendNumber(dst []byte, name string, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, nameEnd)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, valueEnd)
}

func numberSize(name string, n int64) int {
	var digits [20]byte
	return len(name) + 2 + len(strconv.AppendInt(digits[:0], n, 10))
}

// ceilMillis rounds up: a delay is never shorter than asked.
func ceilMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func deliverMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}
