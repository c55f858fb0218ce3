package protocol

import (
	"errors"
	"fmt"
)

// ErrStaleVersion is of a table that comes from an earlier state of a broker group
// than the one that is there: from a master that has been replaced.
var ErrStaleVersion = errors.New("of a former master")

// Follows says whether a table of version v may take the place of what, which has
// version have: it may not when it is of an earlier state, ErrStaleVersion then.
// Within a state what a master has replaces whatever its slave had.
//
// Differs: RocketMQ's slaves take what differs.
func (v DataVersion) Follows(have DataVersion, what string) error {
	if v.StateVersion < have.StateVersion {
		return fmt.Errorf("%s of state %d do not replace those of state %d: %w; the group has another master now", what, v.StateVersion, have.StateVersion, ErrStaleVersion)
	}
	return nil
}

// GroupOffset is a number that a consumer group has in a queue of one broker.
type GroupOffset struct {
	Group   string
	Topic   string
	QueueID int
	Offset  int64
}

// OwnOffset is an offset that was committed at a slave and that its master may not
// have.
type OwnOffset struct {
	GroupOffset
	Moved int64 // the last move that the slave knew of: OffsetTable.Moved
}

// OffsetTable is all that a broker knows of committed offsets. Its lists are sorted
// by topic, group and queue.
//
// A move is a change that somebody made on purpose: a group's offset was set, or a
// topic's or group's offsets were deleted. Moves are numbered, so that an offset
// committed elsewhere can be told to be older.
type OffsetTable struct {
	Version DataVersion

	Offsets []GroupOffset // the first message of each queue that is not consumed
	// Resets wait for the next pull of their queue, which is told where to go on; -1
	// is at the queue's first message.
	Resets []GroupOffset

	// Moves has the number of the last move of a queue; without a group of all queues
	// of a topic, without a topic of all those of a group, and the queue is -1 then.
	Moves       []GroupOffset
	Moved       int64 // number of the last move
	MovedBefore int64 // moves up to this number are not all in Moves
}

// GetAllConsumerOffsetRequest asks a broker for the offsets of all groups. Java:
// GET_ALL_CONSUMER_OFFSET.
type GetAllConsumerOffsetRequest struct {
	// Own are offsets for a master to take in before it answers, for which it must be
	// one. RocketMQ's brokers pass over them.
	Own []OwnOffset
}

// GetAllConsumerOffsetResponse carries them. Java: ConsumerOffsetSerializeWrapper.
type GetAllConsumerOffsetResponse struct {
	OffsetTable
	// Position is that of a log record: every message that the offsets stand for lies
	// at or before it. 0 from a broker that does not tell.
	Position int64
}

// DelayProgress is how far a broker has delivered delayed messages.
type DelayProgress struct {
	Version DataVersion
	// Offsets is by level, from 1 on, the first message that is not delivered; without
	// one it is the first of all.
	Offsets map[int]int64
	// Deleted has for each topic that was deleted, by level, the offset before which
	// the level's messages are of the topic that was. Not RocketMQ's.
	Deleted map[string]map[int]int64
}

// GetAllDelayOffsetRequest asks a broker how far it has delivered delayed messages.
// Java: GET_ALL_DELAY_OFFSET.
type GetAllDelayOffsetRequest struct{}

// GetAllDelayOffsetResponse carries that. Java: DelayOffsetSerializeWrapper.
type GetAllDelayOffsetResponse struct {
	DelayProgress
	// Position is that of a log record: every copy that was delivered lies at or
	// before it. 0 from a broker that does not tell.
	Position int64
}
