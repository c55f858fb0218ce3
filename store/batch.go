package store

import (
	"fmt"
	"sync"

	"github.com/pocketmq/pocketmq/message"
)

// maxBatchKeep is the largest buffer that a batch keeps for its next use.
const maxBatchKeep = 1 << 20

// Batch holds encoded records of one queue until they are appended together. It
// is made by [Store.NewBatch], filled by Add and consumed by [Store.Append]; a
// batch that is not appended needs no cleaning up. It must not be used by two
// goroutines at once.
type Batch struct {
	pool    *sync.Pool
	topic   string
	queueID int32
	buf     []byte // headroom and record, in turn
	records []batchRecord
	bytes   int
	hashes  []uint32 // of the keys of all records
	prefix  uint32   // topicHash of topic
	silent  int      // records that get no queue offset
	drop    bool     // its one record drops the topic

	// Set by Append, under Store.mu.
	queue     *queue
	offset    int64 // queue offset of the first record that gets one
	position  int64 // of the first record
	storeTime int64 // milliseconds
}

// batchRecord is a record inside the buffer of a batch.
type batchRecord struct {
	at, size int
	tags     int64
	keys     int // hashes
	silent   bool
}

// NewBatch returns an empty batch. Its memory comes from appended ones.
func (s *Store) NewBatch() *Batch {
	if b, ok := s.batches.Get().(*Batch); ok {
		return b
	}
	return &Batch{pool: &s.batches}
}

// Add encodes r. QueueOffset, Position and StoreTime of r are ignored: they are
// assigned by Append. Nothing of r is kept but its topic. A record that is
// part of a transaction not yet committed, or rolled back, takes no queue
// offset and does not show in its queue.
//
// It fails with [ErrBadBatch] for a record of another queue than the first one,
// and with the errors of [message.AppendRecord]; the batch is then as before.
func (b *Batch) Add(r *message.Record) error {
	switch {
	case r.QueueID < 0:
		return fmt.Errorf("store: queue id %d of topic %q is negative: %w", r.QueueID, r.Topic, ErrBadBatch)
	case len(b.records) == 0:
		b.topic, b.queueID, b.prefix = r.Topic, r.QueueID, topicHash(r.Topic)
	case b.queueID != r.QueueID || b.topic != r.Topic:
		return fmt.Errorf("store: a record of topic %q queue %d in a batch of topic %q queue %d; use one batch per queue: %w",
			r.Topic, r.QueueID, b.topic, b.queueID, ErrBadBatch)
	}
	at := len(b.buf) + headroom
	if need := at + message.RecordSize(r); cap(b.buf) < need {
		b.buf = append(make([]byte, 0, max(need, 2*cap(b.buf))), b.buf...)
	}
	buf, err := message.AppendRecord(b.buf[:at], r)
	if err != nil {
		return err
	}
	b.buf = buf
	rec := batchRecord{at: at, size: len(buf) - at, silent: undispatched(r.SysFlag)}
	if rec.silent {
		b.silent++
	} else {
		x := indexedOf(r.Properties)
		before := len(b.hashes)
		b.hashes = x.appendHashes(b.hashes, b.prefix)
		rec.tags, rec.keys = x.tags, len(b.hashes)-before
	}
	b.records = append(b.records, rec)
	b.bytes += rec.size
	return nil
}

// undispatched tells records of prepared and rolled back transactions from
// all others. Java: CommitLogDispatcherBuildConsumeQueue.
func undispatched(sysFlag int32) bool {
	t := sysFlag & message.FlagTransactionMask
	return t == message.FlagTransactionPrepared || t == message.FlagTransactionRollback
}

// Len is the number of records.
func (b *Batch) Len() int { return len(b.records) }

// Bytes is the size of the encoded records.
func (b *Batch) Bytes() int { return b.bytes }

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.topic, b.queue = "", nil
	b.buf, b.records, b.hashes = b.buf[:0], b.records[:0], b.hashes[:0]
	b.bytes, b.silent, b.drop = 0, 0, false
}

// recycle gives the memory to the next batch.
func (b *Batch) recycle() {
	if cap(b.buf) > maxBatchKeep {
		return
	}
	b.Reset()
	b.pool.Put(b)
}
