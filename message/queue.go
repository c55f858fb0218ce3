package message

import (
	"cmp"
	"strconv"
)

// Queue names one queue of a topic on one broker group. It is comparable and
// usable as a map key. Java: MessageQueue.
type Queue struct {
	Topic      string
	BrokerName string // the group's name, not an address
	QueueID    int    // from 0, 32 bits
}

// String returns topic@broker:id, as in "orders@broker-a:3".
func (q Queue) String() string {
	return q.Topic + "@" + q.BrokerName + ":" + strconv.Itoa(q.QueueID)
}

// Compare orders queues by topic, broker name, and numeric id, all ascending.
// Every member of a group sorts with it, so that they agree on the shares.
// Names are ordered by UTF-16 code units, and ids by the sign of their 32-bit
// difference, as every member does whatever it is written in; the latter is the
// order of numbers as long as no id is negative.
// Java: MessageQueue.compareTo.
func (q Queue) Compare(other Queue) int {
	if c := compareUTF16(q.Topic, other.Topic); c != 0 {
		return c
	}
	if c := compareUTF16(q.BrokerName, other.BrokerName); c != 0 {
		return c
	}
	return cmp.Compare(int32(q.QueueID)-int32(other.QueueID), 0)
}

// compareUTF16 compares as Java's String.compareTo does. UTF-8 orders the same
// way except that characters beyond the basic plane, lead bytes 0xF0 and up,
// come before U+E000 to U+FFFF, lead bytes 0xEE and 0xEF.
func compareUTF16(a, b string) int {
	if a == b {
		return 0
	}
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return cmp.Compare(x, y)
	}
	return cmp.Compare(len(a), len(b))
}
