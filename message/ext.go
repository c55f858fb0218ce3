package message

import (
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Ext is a stored message as a consumer or a query sees it. It owns its
// memory: nothing in it changes or is used again when the call that gave it
// returns. Reading it from several goroutines is safe. Java: MessageExt.
type Ext struct {
	// Message is the content. Topic is the original topic, also of a retried
	// message. Properties holds the user's own only, nil if there is none;
	// Property reads all. DelayLevel, Delay, DeliverAt and NoWait are zero:
	// they were the sender's wishes.
	Message

	Queue           Queue  // where it lies: %RETRY%group for a retried message
	QueueOffset     int64  // its place in Queue, dense from 0
	CommitLogOffset int64  // its place in the broker's log; opaque
	MsgID           string // UNIQ_KEY, made by the producer; OffsetMsgID without one
	OffsetMsgID     string // store host and CommitLogOffset, as tools show it

	TransactionID             string // UNIQ_KEY of a transactional message
	PreparedTransactionOffset int64  // position of its half message, else 0

	ReconsumeTimes      int            // failed deliveries so far
	BornTime, StoreTime time.Time      // to the millisecond, in local time
	BornHost, StoreHost netip.AddrPort // the producer, the broker
	SysFlag             int32          // Flag constants; FlagCompressed is cleared as Body is inflated
	StoreSize           int            // bytes that the record takes
	BodyCRC             uint32         // checksum of the body as stored: compressed if it was

	properties string // the whole text, reserved names too
}

// Property returns any property of the stored message, reserved ones too, ""
// when absent. It does not allocate when the message came from a broker. On
// an Ext made by hand it answers from the fields.
func (e *Ext) Property(name string) string {
	if e.properties != "" {
		value, _ := Property(e.properties, name)
		return value
	}
	switch name {
	case PropKeys:
		return strings.Join(e.Keys, " ")
	case PropTags:
		return e.Tag
	case PropShardingKey:
		return e.ShardingKey
	case PropWait:
		if e.NoWait {
			return "false"
		}
		return ""
	case PropDelay:
		if e.DelayLevel > 0 {
			return strconv.Itoa(e.DelayLevel)
		}
		return ""
	}
	return e.Properties[name]
}
