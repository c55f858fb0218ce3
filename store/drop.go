package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A topic is dropped by an entry in the log. From its position on the queues of
// the topic are empty, as if they had never been, and begin at offset 0 again.
// The log is the truth, so nothing else has to say it: whoever reads the log in
// order, replay, Check or a survey, drops the queues where the entry says so, and
// older copies of derived files are brought up to date like any others. Its
// record:
//
//	 0  u32  TOTALSIZE
//	 4  u32  MAGIC 0xDAA320F3
//	 8  u64  position
//	16  u64  store time, milliseconds
//	24       20 zeros: no record is shorter than a lost entry
//	44  u16  length of the topic
//	46       the topic
//
// The records before it stay where they are until their files go: they can be
// read by position and found by key.
//
// The queues leave the table when the entry gets its position, under Store.mu:
// appends behind it must get offsets of the new queues. Their memory is given
// back when it is written. Should that fail, Repair puts them back.
//
// Rejected: a file beside the log, which would have to be in step with it after
// any crash; going on with the old offsets, which consumers of the new topic
// would take for progress.

const (
	magicDrop = 0xDAA320F3
	dropFixed = 46 // bytes of a drop record in front of the topic
)

func isDrop(rec []byte) bool { return binary.BigEndian.Uint32(rec[4:]) == magicDrop }

// appendDrop appends the record that drops a topic. Position and store time are
// not known yet.
func appendDrop(dst []byte, topic string) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(dropFixed+len(topic)))
	dst = be.AppendUint32(dst, magicDrop)
	dst = append(dst, make([]byte, 36)...)
	dst = be.AppendUint16(dst, uint16(len(topic)))
	return append(dst, topic...)
}

// patchDrop fills in what an append assigns.
func patchDrop(rec []byte, position, storeTime int64) {
	binary.BigEndian.PutUint64(rec[8:], uint64(position))
	binary.BigEndian.PutUint64(rec[16:], uint64(storeTime))
}

// dropRecord is the content of a drop record.
type dropRecord struct {
	position, storeTime int64
	topic               string
}

// parseDrop reads a record for which isDrop is true.
func parseDrop(rec []byte) (d dropRecord, ok bool) {
	if len(rec) <= dropFixed {
		return dropRecord{}, false
	}
	be := binary.BigEndian
	d = dropRecord{position: int64(be.Uint64(rec[8:])), storeTime: int64(be.Uint64(rec[16:])), topic: string(rec[dropFixed:])}
	return d, d.position >= 1 && d.storeTime >= 0 && int(be.Uint16(rec[44:])) == len(d.topic) && int(be.Uint32(rec)) == len(rec)
}

// unwrittenDrop is a drop whose entry has a position and is not written yet.
type unwrittenDrop struct {
	position int64
	queues   []*queue // that left the table for it
}

// DropTopic deletes all queues of a topic. The next record of each gets offset 0,
// and none of the records before is in a queue any more; they can still be read
// by position and found by key until their files are deleted. Appends that run at
// the same time count as before it or behind it. A topic without queues is no
// error.
//
// It returns when the deletion is synced, whatever Config.SyncFlush says, and in a
// throwaway store when it is written. Readers may see it a moment earlier. Errors
// are those of [Store.Append]; after [ErrFlushTimeout] the deletion is in effect
// and may not be synced yet; after another one it may or may not have happened. Safe for
// concurrent use. Java: DefaultMessageStore.deleteTopics.
//
// Differs: RocketMQ removes the files of the queues, and a replay of the log after
// a crash brings their old records back.
func (s *Store) DropTopic(ctx context.Context, topic string) error {
	if topic == "" || len(topic) > maxDropTopic {
		return fmt.Errorf("store: drop of a topic whose name has %d bytes: %w", len(topic), ErrBadBatch)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return ErrClosed
	}
	if !s.queues.has(topic) {
		return nil
	}
	b := s.NewBatch()
	b.drop, b.topic, b.queueID, b.silent = true, topic, 0, 1
	b.buf = appendDrop(append(b.buf, make([]byte, headroom)...), topic)
	b.bytes = len(b.buf) - headroom
	b.records = append(b.records, batchRecord{at: headroom, size: b.bytes, silent: true})
	_, err := s.appendBatch(ctx, b, !s.cfg.Throwaway)
	return err
}

// maxDropTopic bounds the name of a topic by what its length is stored in.
const maxDropTopic = 1<<16 - 1

// dropLocked takes the queues of a topic out of the table, because of a drop that
// just got its position. It holds Store.mu.
func (s *Store) dropLocked(topic string, position int64) {
	// First: a checkpoint that misses the queues must not be one of before.
	s.dropped.Store(position)
	gone := s.queues.drop(topic)
	for _, q := range gone {
		q.dropped = true
	}
	s.mu.drops = append(s.mu.drops, unwrittenDrop{position: position, queues: gone})
}

// dropWritten lets the memory of dropped queues go.
func (s *Store) dropWritten(position int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.drops = slices.DeleteFunc(s.mu.drops, func(d unwrittenDrop) bool {
		if d.position == position {
			s.queues.free(d.queues)
		}
		return d.position == position
	})
}

// undoDropsLocked puts back the queues of drops that were not written: nothing
// behind them was either.
func (s *Store) undoDropsLocked(written int64) {
	for _, d := range slices.Backward(s.mu.drops) { // the first one took those with records
		s.queues.putBack(d.queues)
		for _, q := range d.queues {
			q.dropped = false
		}
	}
	s.mu.drops = nil
	s.dropped.Store(min(s.dropped.Load(), written))
}

// replayDrop drops a topic while the store opens.
func (s *Store) replayDrop(topic string, position int64) {
	s.dropped.Store(max(position, s.dropped.Load()))
	s.queues.free(s.queues.drop(topic))
}

// has reports whether a topic has queues.
func (t *queueTable) has(topic string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.ContainsFunc(t.list, func(q *queue) bool { return q.key.Topic == topic })
}

// drop takes the queues of a topic out and returns them. Their numbers are not
// given to others before they are free.
func (t *queueTable) drop(topic string) (gone []*queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.list) // readers have the old one
	for i, q := range list {
		if q.key.Topic == topic {
			gone = append(gone, q)
			delete(t.byKey, q.key)
			list[i] = &queue{id: q.id}
		}
	}
	t.list = list
	return gone
}

// free gives the numbers of queues that were taken out to later ones.
func (t *queueTable) free(queues []*queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		t.vacant = append(t.vacant, q.id)
	}
}

// putBack undoes drop.
func (t *queueTable) putBack(queues []*queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.list)
	for _, q := range queues {
		if other := t.byKey[q.key]; other != nil { // made behind the drop
			list[other.id] = &queue{id: other.id}
			t.vacant = append(t.vacant, other.id)
		}
		key := QueueID{strings.Clone(q.key.Topic), q.key.ID}
		t.byKey[key] = q
		list[q.id] = q
	}
	t.list = list
}

// isVacant reports whether q only keeps a number.
func (q *queue) isVacant() bool { return q.key.Topic == "" }

// errDropUnsynced keeps a checkpoint from being written that would miss the
// queues of a topic that was not yet dropped at its position.
var errDropUnsynced = errors.New("a topic was dropped behind the position of the checkpoint")
