package ha

import "context"

// Batch is a piece of a log: records that follow each other, all of one epoch.
type Batch struct {
	First int64 // position of the first record
	Epoch int64
	// Records are the records as they are stored, none of them empty.
	Records [][]byte
}

// Last is the position of the last record; First - 1 when there is none.
func (b *Batch) Last() int64 { return b.First + int64(len(b.Records)) - 1 }

// Log is what master and slave both have. Safe for concurrent use.
type Log interface {
	// Bounds are the first and the last position, written or not synced yet; an empty
	// log ends before its first position.
	Bounds() (first, end int64)
	// Epochs is the history of the log, oldest first. The slice is the caller's.
	Epochs() []Epoch
	// Read returns records from a position on: at least one, no more once they have
	// maxBytes or their epoch ends, none at the end of the log. They are read-only,
	// and valid for as long as the caller has them.
	Read(from int64, maxBytes int) (Batch, error)
}

// MasterLog is the log of a master. Safe for concurrent use.
type MasterLog interface {
	Log
	// Beginning is where the log of a new slave begins: with the oldest file, or with
	// the last one, with what it has to know of all before it, which is nothing at
	// position 1.
	Beginning(lastFile bool) (position int64, state []byte, err error)
	// BytesBetween estimates how many bytes lie behind a position, up to another one.
	BytesBetween(from, to int64) int64
}

// SlaveLog is the log of a slave. One goroutine uses it, and Status the functions of
// Log.
type SlaveLog interface {
	Log
	// Confirmed is up to where the log must never be cut, as far as this replica
	// knows; 0 when nothing is confirmed to it.
	Confirmed() int64
	// Append writes a batch behind the last record, and returns when it has it as
	// durably as an ack promises. It keeps nothing of the batch.
	Append(ctx context.Context, b Batch) error
	// Confirm tells that all up to a position is to stay. A position beyond the end
	// means the end.
	Confirm(position int64) error
	// Cut takes back all records behind a position.
	Cut(ctx context.Context, last int64) error
	// Begin drops the whole log, and makes it begin at a position with the state that
	// MasterLog.Beginning gave there.
	Begin(ctx context.Context, position int64, state []byte) error
}

// Promises keep the highest epoch that a replica knows of. Safe for concurrent use.
type Promises interface {
	// Highest is the highest epoch promised: nothing of a lower one is to be followed.
	// Once it has grown, no ack of the lower epoch is sent of which the log's end was
	// not read later.
	Highest() int64
	// Promise makes an epoch the highest one, durably, before it returns.
	// [ErrOldEpoch] for one that is lower already.
	Promise(ctx context.Context, epoch int64) error
}
