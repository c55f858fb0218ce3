package pocketmq

import (
	"fmt"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// The vocabulary of messages and of answers lives in packages of its own, so
// that strategies and transports can be written without importing this one.
type (
	Message      = message.Message
	MessageExt   = message.Ext
	MessageQueue = message.Queue
	Code         = protocol.Code
	Error        = protocol.Error
	Compression  = message.Compression
	Perm         = protocol.Perm
	Transport    = protocol.Transport
	MessageModel = protocol.MessageModel
)

// How a consumer group shares the messages of a topic. Java: MessageModel.
const (
	// Clustering: each message goes to one member of the group.
	Clustering = protocol.Clustering
	// Broadcasting: each message goes to every member.
	Broadcasting = protocol.Broadcasting
)

// How bodies over ProducerConfig.CompressOver are compressed. Zlib is what
// every official client inflates; the official Go client inflates nothing
// else. Java: CompressionType.
const (
	Zlib = message.Zlib
	LZ4  = message.LZ4
	Zstd = message.Zstd
)

// Permissions of a topic. Java: PermName.
const (
	PermWrite = protocol.PermWrite
	PermRead  = protocol.PermRead
)

// NoRetries as ProducerConfig.Retries or ConsumerConfig.MaxReconsume means one
// attempt only.
const NoRetries = -1

// SendStatus tells how well a stored message is secured. Java: SendStatus.
type SendStatus int

const (
	SendOK                SendStatus = iota
	SendFlushDiskTimeout             // stored, but the synchronous flush did not end in time
	SendFlushSlaveTimeout            // stored, but too few slaves acknowledged it in time
	SendSlaveNotAvailable            // stored, but too few slaves follow the master
)

func (s SendStatus) String() string {
	switch s {
	case SendOK:
		return "SEND_OK"
	case SendFlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case SendFlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case SendSlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	}
	return "UNKNOWN"
}

// SendResult tells where a message was stored. It is the caller's.
type SendResult struct {
	Status      SendStatus
	MsgID       string   // unique key made by the producer; of a batch: the first one's
	MsgIDs      []string // of a batch: one per message; nil otherwise
	OffsetMsgID string   // store host and position; of a batch: comma separated
	Queue       MessageQueue
	QueueOffset int64 // of a batch: of its first message, the others follow without a gap
}

// FlushMode tells when a broker acknowledges a send. Java: FlushDiskType.
type FlushMode int

const (
	// AsyncFlush acknowledges after write(2): a message survives a crash of the
	// process, and a power cut once FlushInterval has passed.
	AsyncFlush FlushMode = iota
	// SyncFlush acknowledges after fsync: a message survives a power cut.
	SyncFlush
)

func (m FlushMode) String() string {
	if m == SyncFlush {
		return "SYNC_FLUSH"
	}
	return "ASYNC_FLUSH"
}

// ReplicationMode tells which members of a broker group have a message before it is
// acknowledged. Java: BrokerRole.ASYNC_MASTER, SYNC_MASTER.
type ReplicationMode int

const (
	// AsyncReplication acknowledges what the master has; slaves follow as fast as
	// they can. What they lack is lost with the master's disk.
	AsyncReplication ReplicationMode = iota
	// SyncReplication acknowledges what BrokerConfig.InSyncReplicas members have.
	SyncReplication
)

func (m ReplicationMode) String() string {
	if m == SyncReplication {
		return "SYNC_REPLICATION"
	}
	return "ASYNC_REPLICATION"
}

// Role is what a broker does in its group. Java: BrokerRole.
type Role int

const (
	// RoleMaster takes messages, and gives them to the slaves of its group.
	RoleMaster Role = iota
	// RoleSlave follows the master of its group, and serves reads.
	RoleSlave
)

func (r Role) String() string {
	if r == RoleSlave {
		return "SLAVE"
	}
	return "MASTER"
}

// ConsumeFrom tells where a group without a committed offset starts. The zero
// value is FromLastOffset. Java: ConsumeFromWhere.
type ConsumeFrom struct {
	from protocol.ConsumeFrom
	at   time.Time // of ConsumeFromTime
}

var (
	// FromLastOffset starts at the end of each queue: only what is sent after
	// the group's first start is consumed. A queue that still holds its first
	// message starts at 0 all the same, as in RocketMQ.
	FromLastOffset = ConsumeFrom{from: protocol.ConsumeFromLast}
	// FromFirstOffset starts at the first message kept.
	FromFirstOffset = ConsumeFrom{from: protocol.ConsumeFromFirst}
)

// FromTime starts at the first message of each queue that was stored in the
// millisecond of t or later, by the broker's clock. A queue whose messages are
// all older starts at its end, and what is sent to it then is consumed even if
// t lies in the future. Java: CONSUME_FROM_TIMESTAMP, consumeTimestamp.
//
// Differs: a queue that still holds its first message starts at t, too.
// RocketMQ's consumers start it at 0, whatever t says.
func FromTime(t time.Time) ConsumeFrom {
	return ConsumeFrom{from: protocol.ConsumeFromTime, at: t}
}

func (c ConsumeFrom) String() string {
	switch c.from {
	case protocol.ConsumeFromFirst:
		return "CONSUME_FROM_FIRST_OFFSET"
	case protocol.ConsumeFromTime:
		return "CONSUME_FROM_TIMESTAMP " + c.at.Format(time.RFC3339Nano)
	}
	return "CONSUME_FROM_LAST_OFFSET"
}

// Filter chooses messages of a subscribed topic. The zero value is everything.
// A Filter made from a bad expression is reported by NewConsumer.
type Filter struct {
	tags filter.Tags
	err  error
}

// Tags subscribes to messages whose Tag is one of tags; without arguments, to
// everything. Each argument is one tag: blanks around it are trimmed, and "||"
// in it is an error.
func Tags(tags ...string) Filter {
	for _, t := range tags {
		if strings.Contains(t, "||") {
			return Filter{err: fmt.Errorf("tag %q contains \"||\": give each tag as an argument of its own", t)}
		}
		if strings.TrimSpace(t) == "" {
			return Filter{err: fmt.Errorf("tag %q is blank", t)}
		}
	}
	t, err := filter.ParseTags(strings.Join(tags, "||"))
	return Filter{t, err}
}

// QueueSelector chooses the queue for a message. queues are the topic's
// writable queues sorted by broker name and queue id, the same for every
// producer with the same route; they belong to the caller. A queue that is not
// among them is ErrIllegalMessage, a panic is recovered and returned as an
// error.
type QueueSelector func(m *Message, queues []MessageQueue) (MessageQueue, error)
