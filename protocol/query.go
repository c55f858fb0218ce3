package protocol

import "time"

// Times of requests count in whole milliseconds, as store times do: a broker
// cuts off what is finer, whichever transport the request came by.

// Boundary chooses between the messages next to an instant. Java: BoundaryType.
type Boundary int

const (
	// BoundaryLower is the first message stored at or after the instant; the end
	// of the queue when all are older.
	BoundaryLower Boundary = iota
	// BoundaryUpper is the last message stored at or before the instant; the
	// start of the queue when all are newer.
	BoundaryUpper
)

// SearchOffsetRequest asks where in a queue an instant lies, by store time.
// Java: SearchOffsetRequestHeader.
type SearchOffsetRequest struct {
	Topic    string
	QueueID  int
	Time     time.Time
	Boundary Boundary
}

// SearchOffsetResponse carries an offset between the start and the end of the
// queue, both included; 0 for an unknown queue.
type SearchOffsetResponse struct{ Offset int64 }

// GetEarliestStoreTimeRequest asks how far back a queue goes.
// Java: GetEarliestMsgStoretimeRequestHeader.
type GetEarliestStoreTimeRequest struct {
	Topic   string
	QueueID int
}

// GetEarliestStoreTimeResponse carries when the first message kept was stored;
// the zero time for a queue that holds none (on the wire: -1).
type GetEarliestStoreTimeResponse struct{ Time time.Time }

// QueryMessageRequest asks for messages by a key: one of KEYS, or the unique
// key. Java: QueryMessageRequestHeader.
type QueryMessageRequest struct {
	Topic       string
	Key         string
	MaxMessages int       // at most 64 are served
	From, To    time.Time // by store time, both included; the zero time = no bound
	Unique      bool      // Key is a unique key: MaxMessages counts as 32 (_UNIQUE_KEY_QUERY)

	// Below limits the answer to records at positions below it, so that a query
	// can go on where an answer ended, also within one millisecond; 0 = no
	// limit. RocketMQ's brokers do not know it and take no notice of it.
	Below int64
}

// QueryMessageResponse carries the newest matching messages, the oldest of them
// first. A query without a match is answered with an *Error of code
// QueryNotFound instead. The match may be by hash only, as RocketMQ's is: who
// asks compares the keys.
type QueryMessageResponse struct {
	Records [][]byte // stored records, read-only
	More    bool     // older ones that match may be left: ask again with Below

	// How far the broker's index goes. indexLastUpdateTimestamp,
	// indexLastUpdatePhyoffset.
	IndexTime     time.Time
	IndexPosition int64
}

// ViewMessageRequest asks for the record at a position of the commit log, be it
// visible to consumers or not. Java: ViewMessageRequestHeader.
type ViewMessageRequest struct{ Position int64 }

// ViewMessageResponse carries one stored record, read-only. Where there is none
// the answer is an *Error of code SystemError with RemarkNoMessage.
type ViewMessageResponse struct{ Record []byte }

// GetTopicStatsRequest asks for the bounds of a topic's queues on one broker.
// Java: GetTopicStatsInfoRequestHeader.
type GetTopicStatsRequest struct{ Topic string }

// GetTopicStatsResponse describes queue i in Queues[i], each that can be read
// or written. An unknown topic is answered with an *Error of code
// TopicNotExist instead. Java: TopicStatsTable.
type GetTopicStatsResponse struct{ Queues []QueueStats }

// QueueStats are the bounds of a queue. Java: TopicOffset.
type QueueStats struct {
	MinOffset     int64     // of the first message kept
	MaxOffset     int64     // after the last one
	LastStoreTime time.Time // of the last one; the zero time when it is not kept any more
}
