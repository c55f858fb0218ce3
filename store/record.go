package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/tidwall/wal"
)

// Record returns the stored record at a position of the log, whether or not it
// shows in a queue. It is read-only, stays valid and may share memory with the
// store: keep a copy of what is kept for long. Java:
// DefaultMessageStore.lookMessageByOffset.
//
// Errors: [ErrNoRecord] for a position outside of [Positions.Min,
// Positions.Written], for one whose record is lost, see [PlanSalvage], and for that
// of a [Store.DropTopic]; [ErrDamaged] with file and position; [ErrClosed]; those of
// the file system. It may block for reads from disk. Safe for concurrent use.
func (s *Store) Record(position int64) ([]byte, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if s.cfg.Confirming && position > s.dispatched.Load() {
		return nil, s.recordError(position, ErrNoRecord)
	}
	rec, err := s.log.record(position)
	if err != nil {
		return nil, s.recordError(position, err)
	}
	if isLost(rec) {
		return nil, fmt.Errorf("store: position %d: %w: it was lost to damage, and salvaged without it", position, ErrNoRecord)
	}
	if isDrop(rec) {
		return nil, fmt.Errorf("store: position %d: %w: a topic was deleted there", position, ErrNoRecord)
	}
	return rec, nil
}

// recordError prepares the error of reading the record at a position for the
// caller. A file may go while it is read, with all that is before it.
func (s *Store) recordError(position int64, err error) error {
	switch {
	case s.closed.Load():
		return ErrClosed
	case errors.Is(err, ErrNoRecord) || position < s.log.min():
		return fmt.Errorf("store: position %d: %w: the log holds %d to %d; ask for a position in that range",
			position, ErrNoRecord, s.log.min(), s.log.written.Load())
	}
	err = fmt.Errorf("store: read position %d: %w", position, err)
	if errors.Is(err, ErrDamaged) {
		s.noteDamage(err)
	}
	return err
}

// StoreTime is the store time, in milliseconds, of the record at an offset of a
// queue. It fails with [ErrNoRecord] where no record is, and as [Store.Record]
// and [Store.Get] do. It may block for reads from disk. Safe for concurrent
// use. Java: MessageStore.getMessageStoreTimeStamp.
func (s *Store) StoreTime(topic string, queueID int, offset int64) (time.Time, error) {
	if s.closed.Load() {
		return time.Time{}, ErrClosed
	}
	q := s.queues.get(QueueID{topic, queueID})
	if q == nil {
		return time.Time{}, fmt.Errorf("store: topic %q queue %d offset %d: %w: the queue is unknown", topic, queueID, offset, ErrNoRecord)
	}
	v := q.view()
	millis, err := s.storeTimeOf(q, &v, offset)
	if err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(millis), nil
}

// EarliestStoreTime is the store time of the first record of a queue. It fails
// with [ErrNoRecord] for a queue that is empty or unknown, and as
// [Store.StoreTime] does. Java: MessageStore.getEarliestMessageTime.
func (s *Store) EarliestStoreTime(topic string, queueID int) (time.Time, error) {
	if s.closed.Load() {
		return time.Time{}, ErrClosed
	}
	if q := s.queues.get(QueueID{topic, queueID}); q != nil {
		v := q.view()
		var skip skipper
		for offset := q.bounds().Min; offset < v.max(); offset = max(offset+1, q.bounds().Min) {
			next, err := s.nextRecord(q, &v, offset, v.max(), &skip)
			if err != nil {
				return time.Time{}, err
			}
			if offset = next; offset == v.max() {
				break
			}
			millis, err := s.storeTimeOf(q, &v, offset)
			if err == nil {
				return time.UnixMilli(millis), nil
			}
			if !errors.Is(err, ErrNoRecord) {
				return time.Time{}, err
			}
		}
	}
	return time.Time{}, fmt.Errorf("store: topic %q queue %d: %w: the queue is empty", topic, queueID, ErrNoRecord)
}

// storeTimeOf reads the store time of the record at an offset of a queue.
func (s *Store) storeTimeOf(q *queue, v *view, offset int64) (int64, error) {
	u, err := s.unitOf(q, v, offset)
	if err != nil {
		return 0, err
	}
	rec, err := s.log.record(u.position)
	if err != nil {
		return 0, s.recordError(u.position, err)
	}
	view, err := message.ParseView(rec)
	if err != nil {
		return 0, s.recordError(u.position, damagef(s.log.dir, u.position, "%v", err))
	}
	return view.StoreTime(), nil
}

// unitOf reads the unit at an offset of a queue. A unit without a record is
// [ErrNoRecord].
func (s *Store) unitOf(q *queue, v *view, offset int64) (unit, error) {
	bounds := q.bounds()
	if offset >= bounds.Min && offset >= v.base && offset < v.max() {
		units, err := v.units(&s.extents, offset)
		if err == nil {
			if u := unitAt(units, 0); u.size > 0 {
				return u, nil
			}
		} else if offset >= q.bounds().Min { // else its block may just have gone
			return unit{}, s.readError(GetRequest{Topic: q.key.Topic, QueueID: q.key.ID, Offset: offset}, err)
		}
	}
	return unit{}, fmt.Errorf("store: topic %q queue %d offset %d: %w: the queue holds %d to %d",
		q.key.Topic, q.key.ID, offset, ErrNoRecord, bounds.Min, bounds.Max-1)
}

// record returns the record at a position: from the memory of a wal, not
// verified again, or from disk, verified.
func (c *commitLog) record(position int64) ([]byte, error) {
	files := *c.files.Load()
	i := c.search(files, position)
	if i < 0 || position > c.written.Load() {
		return nil, ErrNoRecord
	}
	f := files[i]
	if log := f.log.Load(); log != nil {
		entry, err := log.Read(uint64(position - f.base + 2))
		if err == nil {
			if rec := recordOf(entry); rec != nil {
				return rec[:len(rec):len(rec)], nil
			}
			return nil, damagef(f.path, position, "the entry has only %d bytes", len(entry))
		}
		if !errors.Is(err, wal.ErrClosed) {
			return nil, damagef(f.path, position, "read: %v", err)
		}
	}
	if b := c.blocks.get(f, f.first(f.step(position))); b != nil {
		return ownCopy(b.record(position)), nil
	}
	sealed, done, err := c.sealed(files, i)
	if err != nil {
		return nil, err
	}
	defer done()
	return sealed.readRecord(position)
}
