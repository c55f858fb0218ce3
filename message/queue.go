package message

import (
	"cmp"
	"strconv"
	"strings"
)

// Queue names one queue of a topic on one broker group. It is comparable and
// usable as a map key. Java: MessageQueue.
type Queue struct {
	Topic      string
	BrokerName string // the group's name, not an address
	QueueID    int    // from 0
}

// String returns topic@broker:id, as in "orders@broker-a:3".
func (q Queue) String() string {
	return q.Topic + "@" + q.BrokerName + ":" + strconv.Itoa(q.QueueID)
}

// Compare orders queues by topic, broker name, and numeric id, all ascending.
// Every member of a group sorts with it, so that they agree on the shares.
// Java: MessageQueue.compareTo.
func (q Queue) Compare(other Queue) int {
	if c := strings.Compare(q.Topic, other.Topic); c != 0 {
		return c
	}
	if c := strings.Compare(q.BrokerName, other.BrokerName); c != 0 {
		return c
	}
	return cmp.Compare(q.QueueID, other.QueueID)
}
