package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/pocketmq/pocketmq/message"
)

// Replicate writes records of another store's log, as [Store.ReadLog] gives them, to
// the end of this one: with the same positions, queue offsets and times, under the
// same epoch. It returns when they are written, or synced if the store has SyncFlush.
// They are dispatched as appended records are. A store that replicates must not
// append.
//
// Nothing is written of a batch that does not fit: [ErrNoRecord] unless it begins
// behind the last record; [ErrOldEpoch] when its epoch is older than the log's;
// [ErrDamaged] for a record that is not what it should be at its position, and for one
// whose offset does not follow in its queue. Others are those of [Store.Append].
// Safe for concurrent use.
func (s *Store) Replicate(ctx context.Context, b LogBatch) error {
	if len(b.Records) == 0 {
		return fmt.Errorf("store: replication of a batch without records: %w", ErrBadBatch)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := received(b)
	if err != nil {
		return fmt.Errorf("store: %s: replicate: %w", s.cfg.Dir, err)
	}
	if s.brake.on.Load() {
		if err := s.awaitRoom(ctx); err != nil {
			return err
		}
	}
	// Its positions are given out before its turn comes, so it takes the turn.
	err = s.alone(context.WithoutCancel(ctx), func() error { return s.giveOutReceivedLocked(r) }, func() error { return s.writeReceived(r) })
	if err != nil || !s.cfg.SyncFlush {
		return err
	}
	return s.Sync(ctx)
}

// receivedBatch is a batch of another store that was looked at.
type receivedBatch struct {
	LogBatch
	slots []slot
	time  int64 // store time of the last record
}

func received(b LogBatch) (*receivedBatch, error) {
	r := &receivedBatch{LogBatch: b, slots: make([]slot, len(b.Records))}
	for i, rec := range b.Records {
		at := b.First + int64(i)
		if !plausible(rec) || isHeader(rec) {
			return nil, damagef("received", at, "it is no record")
		}
		place, err := slotOf("received", at, rec)
		if err != nil {
			return nil, err
		}
		if !place.lost && !place.drop {
			if err := message.View(rec).CheckBody(); err != nil {
				return nil, damagef("received", at, "%v", err)
			}
		}
		r.slots[i], r.time = place, max(r.time, place.time)
	}
	return r, nil
}

// giveOutReceivedLocked gives out what the records of a batch say that they have. It
// changes nothing when one of them does not fit. It holds Store.mu.
func (s *Store) giveOutReceivedLocked(b *receivedBatch) error {
	if b.First != s.mu.next {
		return fmt.Errorf("store: %s: the log goes on at position %d, but the records begin at %d: %w", s.cfg.Dir, s.mu.next, b.First, ErrNoRecord)
	}
	if last := s.log.epoch.Load(); b.Epoch < last {
		return fmt.Errorf("store: %s: records of epoch %d after epoch %d: %w", s.cfg.Dir, b.Epoch, last, ErrOldEpoch)
	}
	next := make(map[QueueID]int64)
	anew := make(map[string]bool) // topics that are dropped by the batch
	for i, r := range b.slots {
		switch {
		case r.drop:
			anew[r.key.Topic] = true
			for key := range next {
				if key.Topic == r.key.Topic {
					delete(next, key)
				}
			}
		case !r.silent:
			want, ok := next[r.key]
			if q := s.queues.get(r.key); !ok && q != nil && !anew[r.key.Topic] {
				want = q.next
			}
			// The records of a log that does not begin at 1 may begin at any offset.
			if r.offset != want && (want > 0 || s.log.min() == 1) {
				return damagef("received", b.First+int64(i), "it has offset %d in topic %q queue %d, which goes on at %d", r.offset, r.key.Topic, r.key.ID, want)
			}
			next[r.key] = r.offset + 1
		}
	}
	for i, r := range b.slots {
		s.giveOutLocked(r, b.First+int64(i))
	}
	s.mu.next += int64(len(b.Records))
	s.mu.storeTime = max(s.mu.storeTime, b.time)
	return nil
}

// writeReceived writes the batch. After an error the store is fenced.
func (s *Store) writeReceived(b *receivedBatch) error {
	if err := s.fenced.Load(); err != nil {
		return *err
	}
	before := s.log.active
	begin := s.log.begin
	if b.Epoch > s.log.epoch.Load() {
		begin = func(now int64) error { return s.log.beginEpoch(now, b.Epoch) }
	}
	if err := begin(b.slots[0].time); err != nil {
		return s.fence(fmt.Errorf("start a file: %w", err))
	}
	synced := s.log.proven.Load()
	buf := make([]byte, 0, headroom+len(b.Records[0]))
	for i, rec := range b.Records {
		buf = append(buf[:headroom], rec...) // the wal copies it
		s.log.add(buf, headroom, len(rec), b.First+int64(i), synced)
	}
	if err := s.log.commit(); err != nil {
		return s.fence(fmt.Errorf("write: %w", err))
	}
	s.log.active.newest.Store(max(b.time, s.log.active.newest.Load()))
	if !s.cfg.Confirming {
		if err := s.dispatchReceived(b); err != nil {
			_ = s.fence(err) // as after an append
		}
	}
	s.wrote(s.log.active != before)
	return nil
}

func (s *Store) dispatchReceived(b *receivedBatch) error {
	s.confirm.mu.Lock() // for its memory: nobody else dispatches
	defer s.confirm.mu.Unlock()
	var errs error
	for i, r := range b.slots {
		errs = errors.Join(errs, s.confirmRecord(r, b.First+int64(i), b.Records[i]))
	}
	return errs
}
