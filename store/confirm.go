package store

import (
	"sync"

	"github.com/pocketmq/pocketmq/message"
)

// A log that is replicated may be cut: what its master wrote last, and nobody else
// has, is not on the next one. With Config.Confirming nothing that may still be cut
// is in a queue or in the key index, so nothing derived ever has to be taken back.
//
//	Append, Replicate   give out offsets, write the log; queues do not change
//	SetConfirmed        dispatches up to a position
//	Open                dispatches what the checkpoint covers, and looks only at the
//	                    offsets of what is behind
//
// A topic that is deleted has two sets of queues until the deletion is confirmed:
// those in the table, from which offsets are given out, and those in Store.mu.drops,
// into which records from before the deletion go.

// confirming serialises the dispatchers.
type confirming struct {
	mu     sync.Mutex // held during a dispatch; guards what follows
	hashes []uint32
	ended  bool // the store ends
}

// confirmBytes is how much of the log is dispatched at a time.
const confirmBytes = 256 << 10

// SetConfirmed tells that all records up to a position are to stay. With
// Config.Confirming it returns when they can be read through their queues and found
// by key; without, it does nothing. A position beyond the end of the log means its
// end, one that is confirmed already, nothing.
//
// Errors: [ErrClosed]; [ErrDamaged] and those of the file system: the store is fenced
// then. It may block for reads from disk. Safe for concurrent use.
func (s *Store) SetConfirmed(position int64) error {
	if !s.cfg.Confirming || position <= s.dispatched.Load() {
		return nil
	}
	s.confirm.mu.Lock()
	defer s.confirm.mu.Unlock()
	if s.confirm.ended {
		return ErrClosed
	}
	position = min(position, s.log.written.Load())
	for s.dispatched.Load() < position {
		b, err := s.log.readFrom(s.dispatched.Load()+1, confirmBytes)
		if err != nil {
			return s.fence(err)
		}
		for i, rec := range b.Records {
			at := b.First + int64(i)
			if at > position {
				break
			}
			r, err := slotOf(s.log.dir, at, rec)
			if err == nil {
				err = s.confirmRecord(r, at, rec)
			}
			if err != nil {
				return s.fence(err)
			}
			s.dispatched.Store(at)
		}
	}
	if s.checkpointWanted() {
		s.wakeFlusher() // who looks after the checkpoint
	}
	return nil
}

// confirmRecord dispatches a record whose offset was given out before.
func (s *Store) confirmRecord(r slot, position int64, rec []byte) error {
	switch {
	case r.drop:
		s.dropWritten(position)
		if s.cfg.Dropped != nil {
			s.cfg.Dropped(r.key.Topic, position)
		}
		return nil
	case r.silent:
		return nil
	}
	if r.key.Topic == message.ScheduleTopic && !r.lost {
		r.unit.tags = s.dueAt(r.key.ID, r.time)
	}
	s.confirm.hashes = r.appendHashes(s.confirm.hashes[:0], rec)
	if s.index.add(position, r.time, s.confirm.hashes) {
		s.wakeJanitor()
	}
	return s.dispatch(s.queueBefore(r.key, position), r.offset, r.unit, s.log.min() > 1)
}

// queueBefore is the queue that a record at a position belongs to: one that left the
// table because of a deletion behind the position, or that in the table.
func (s *Store) queueBefore(key QueueID, position int64) *queue {
	if s.dropped.Load() > position {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, d := range s.mu.drops {
			if d.position < position {
				continue
			}
			for _, q := range d.queues {
				if q.key == key {
					return q
				}
			}
		}
	}
	return s.queues.ensure(key.Topic, key.ID)
}

// giveOutLocked does to the offsets what the append of a record did that is not
// dispatched. It holds Store.mu, or the store opens.
func (s *Store) giveOutLocked(r slot, position int64) {
	switch {
	case r.drop:
		s.dropLocked(r.key.Topic, position)
	case !r.silent:
		s.queues.ensure(r.key.Topic, r.key.ID).next = r.offset + 1
	}
}

// unconfirmed reads what is in the log behind the queues.
func (s *Store) unconfirmed(yield func(slot, int64)) error {
	if !s.cfg.Confirming {
		return nil
	}
	return s.log.scan(s.dispatched.Load()+1, s.log.written.Load(), func(e logEntry) error {
		r, err := slotOf(e.file.path, e.position, e.record)
		if err == nil {
			yield(r, e.position)
		}
		return err
	})
}

// resumeOffsets makes offsets go on behind what the log holds, after the queues were
// loaded or appends were undone. Nobody appends.
func (s *Store) resumeOffsets() error {
	type place struct {
		slot
		position int64
	}
	var behind []place
	if err := s.unconfirmed(func(r slot, at int64) { behind = append(behind, place{r, at}) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.drops) > 0 {
		s.undoDropsLocked(s.dispatched.Load())
	}
	for _, q := range s.queues.all() {
		q.next = q.bounds().Max
	}
	for _, p := range behind {
		s.giveOutLocked(p.slot, p.position)
	}
	return nil
}
