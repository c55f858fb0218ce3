package store

import (
	"errors"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// Dispatch turns records of the log into units of consume queues and entries of
// the key index, in the order of their positions. The leader of a group does it
// right after the write, so what an append acknowledged can be read at once and
// nobody hands anything over; replay does the same from a checkpoint's position
// on. Records reach a queue only through dispatch, whoever drives it and up to
// whichever position.

// dispatch puts the unit of one record into its queue and announces it. first
// allows a queue without units to begin at any offset.
func (s *Store) dispatch(q *queue, offset int64, u unit, first bool) error {
	err := q.place(&s.extents, offset, u, first)
	if s.cfg.Arrived != nil && !errors.Is(err, ErrDamaged) && s.live {
		s.cfg.Arrived(q.key.Topic, q.key.ID, offset, u.tags)
	}
	return err
}

// endsBefore reports whether the queue holds records, all of them before a
// position.
func (s *Store) endsBefore(q *queue, position int64) bool {
	v := q.view()
	if v.min == v.max() {
		return v.max() > 0
	}
	units, err := v.units(&s.extents, v.max()-1)
	return err == nil && unitAt(units, 0).position < position
}

// dispatchBatch dispatches the records of a batch just written. It goes on
// after an error that left the unit readable.
func (s *Store) dispatchBatch(b *Batch) error {
	var errs error
	offset := b.offset
	s.indexBatch(b) // first: who is told of a record may look for its keys
	for i := range b.records {
		r := &b.records[i]
		if r.silent {
			continue
		}
		u := unit{position: b.position + int64(i), size: int32(r.size), tags: r.tags}
		if b.topic == message.ScheduleTopic {
			u.tags = s.dueAt(b.queue.key.ID, b.storeTime)
		}
		if err := s.dispatch(b.queue, offset, u, false); err != nil {
			errs = errors.Join(errs, err)
		}
		offset++
	}
	return errs
}

// dispatchRecord dispatches a record read back from the log, or the void unit of
// a lost one. It fails when the record contradicts its place or its queue.
func (s *Store) dispatchRecord(e logEntry) error {
	r, err := slotOf(e.file.path, e.position, e.record)
	switch {
	case err != nil:
		return err
	case r.drop:
		s.replayDrop(r.key.Topic, e.position)
		return nil
	case r.silent:
		if r.lost {
			s.replayed.gone = e.position
		}
		return nil
	}
	if r.key.Topic == message.ScheduleTopic && !r.lost {
		r.unit.tags = s.dueAt(r.key.ID, r.time)
	}
	q := s.queues.ensure(r.key.Topic, r.key.ID)
	if r.offset == 0 && s.replayed.gone > 0 && s.endsBefore(q, s.replayed.gone) {
		// The entry between that dropped the topic is lost.
		s.replayDrop(r.key.Topic, s.replayed.gone)
		q = s.queues.ensure(r.key.Topic, r.key.ID)
	}
	if err := s.dispatch(q, r.offset, r.unit, s.log.min() > 1); err != nil {
		return err
	}
	s.indexRecord(r, e.record)
	return nil
}

// dueAt is when a delayed record is due, in milliseconds. Java:
// ScheduleMessageService.computeDeliverTimestamp.
func (s *Store) dueAt(queueID int, storeTime int64) int64 {
	d := message.LevelDelay(s.cfg.DelayLevels, queueID+1)
	return storeTime + int64((d+time.Millisecond-1)/time.Millisecond)
}
