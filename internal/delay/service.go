package delay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
)

const (
	// maxRound is how many messages one look at a level takes at most: then the
	// others have their turn, and progress has moved.
	maxRound = 256
	// maxRoundBytes bounds the records of one read, but for the first.
	maxRoundBytes = 1 << 20
)

// Log is what a Service needs of the store. Levels count from 0, as the queues of
// message.ScheduleTopic do.
type Log interface {
	// Bounds returns the first offset of a level, and the one behind its last.
	Bounds(level int) (first, end int64)
	// Due returns when the messages from an offset on are due, at most limit, at
	// least one if there is one.
	Due(level int, offset int64, limit int) ([]int64, error)
	// Records returns the records from an offset on, at most limit and maxBytes but
	// at least one, and the offset to go on with. Those that are lost are left out.
	// It has no record only when it goes on behind offset.
	Records(level int, offset int64, limit, maxBytes int) (records [][]byte, next int64, err error)
	// Takes reports whether the broker has a topic, and this queue of it. It does not
	// block.
	Takes(topic string, queue int) bool
	// Append stores records of one topic and queue, all or none.
	Append(ctx context.Context, records []message.Record) error
	// Sync makes everything appended so far durable.
	Sync(ctx context.Context) error
}

// Service delivers delayed messages when they are due. All but Run, which is called
// once, is safe for concurrent use.
type Service struct {
	log      Log
	progress *Progress
	logger   *slog.Logger
	wake     chan struct{}  // capacity 1: something is to be looked at earlier
	turn     statefile.Turn // of who delivers, or has frozen the service
	saving   statefile.Turn // one save at a time, so that none overtakes a later one; taken after turn, before mu

	mu       sync.Mutex // guards the rest; a leaf
	schedule *Schedule
	deleted  deletions
}

// NewService returns a service for the levels with these delays. It moves the
// progress of each into the bounds of its queue.
func NewService(delays []time.Duration, log Log, progress *Progress, logger *slog.Logger) *Service {
	s := &Service{log: log, progress: progress, logger: logger, wake: make(chan struct{}, 1), turn: statefile.NewTurn(), saving: statefile.NewTurn()}
	next := make([]int64, len(delays))
	for i := range next {
		next[i] = progress.Offset(i)
	}
	s.schedule = NewSchedule(delays, next)
	end := make([]int64, len(delays))
	for i := range next {
		next[i] = s.clamp(i)
		_, end[i] = log.Bounds(i)
	}
	s.deleted = progress.Deleted()
	s.deleted.lower(end)
	s.deleted.trim(next)
	return s
}

// Delete tells that a topic was deleted: what waits for it now is not delivered,
// even when a topic of that name is created later. It is durable when Delete
// returns nil, and has not happened after an error; it blocks for that.
func (s *Service) Delete(ctx context.Context, topic string) error {
	end := make([]int64, len(s.Offsets()))
	for i := range end {
		_, end[i] = s.log.Bounds(i)
	}
	s.mu.Lock()
	before := s.deleted[topic]
	waits := s.deleted.add(topic, s.offsetsLocked(), end)
	s.mu.Unlock()
	if !waits {
		return nil
	}
	err := s.Persist(ctx) // its sync covers the offsets: they are not given out again
	if err != nil {
		s.mu.Lock()
		if delete(s.deleted, topic); before != nil {
			s.deleted[topic] = before
		}
		s.mu.Unlock()
	}
	return err
}

// clamp moves a level into its queue.
func (s *Service) clamp(level int) (next int64) {
	first, end := s.log.Bounds(level)
	s.mu.Lock()
	was := s.schedule.Offset(level)
	moved := s.schedule.Clamp(level, first, end)
	next = s.schedule.Offset(level)
	s.mu.Unlock()
	if moved {
		s.logger.Warn("the progress of a delay level did not fit its queue and was corrected", "level", level+1, "was", was, "is", next, "first", first, "end", end)
	}
	return next
}

// Arrived tells that a delayed message became readable, which is due at due, in
// milliseconds since 1970. It does not block.
func (s *Service) Arrived(level int, offset, due int64, now time.Time) {
	s.mu.Lock()
	earlier := level < len(s.schedule.levels) && s.schedule.Arrived(level, offset, due, now.UnixMilli())
	s.mu.Unlock()
	if earlier {
		s.signal()
	}
}

// Hurry tells that what failed may succeed now.
func (s *Service) Hurry(now time.Time) {
	s.mu.Lock()
	s.schedule.Hurry(now.UnixMilli())
	s.mu.Unlock()
	s.signal()
}

func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends.
func (s *Service) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		level, at, any := s.schedule.Next()
		s.mu.Unlock()
		wait := time.Until(time.UnixMilli(at))
		if !any || wait > 0 {
			var due <-chan time.Time
			if any {
				timer.Reset(wait)
				due = timer.C
			}
			select {
			case <-due: // whatever the clock on the wall says: it may have gone back
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil || s.turn.LockContext(ctx) != nil {
			return
		}
		s.look(ctx, level)
		s.turn.Unlock()
	}
}

// Freeze stops deliveries: the one that goes on ends first. Then it saves the progress,
// which stays as it is until thaw is called. It returns once everything in the log is
// durable, whether there was progress or not. It blocks for that, and for the file calls.
//
// The errors are that of ctx, and those of the save. thaw is to be called after an error,
// too, and once.
func (s *Service) Freeze(ctx context.Context) (thaw func(), err error) {
	if err := s.turn.LockContext(ctx); err != nil {
		return func() {}, err
	}
	return s.turn.Unlock, s.persist(ctx, true)
}

// look delivers what is due of a level.
func (s *Service) look(ctx context.Context, level int) {
	next, then, err := s.deliver(ctx, level)
	now := time.Now().UnixMilli()
	s.mu.Lock()
	if err != nil {
		s.schedule.Failed(level, now)
	} else {
		s.schedule.Settle(level, then)
	}
	s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("a delayed message could not be delivered, it is tried again", "level", level+1, "offset", next, "err", err)
	}
}

// deliver returns when to look again, or the error that stopped it at next.
func (s *Service) deliver(ctx context.Context, level int) (next, then int64, err error) {
	next = s.clamp(level)
	due, err := s.log.Due(level, next, maxRound)
	if err != nil {
		return next, 0, err
	}
	s.mu.Lock()
	n, then := s.schedule.Ready(level, due, time.Now().UnixMilli())
	s.mu.Unlock()
	if n == 0 {
		return next, then, nil
	}
	records, end, err := s.log.Records(level, next, n, maxRoundBytes)
	if err != nil {
		return next, 0, err
	}
	if end < next+int64(n) { // less than what is due fits a read
		then = 0
	}
	var batch run
	var gone dropped
	defer gone.report(s.logger, level)
	for _, rec := range records {
		v, err := message.ParseView(rec)
		if err != nil {
			return next, 0, err
		}
		if v.QueueOffset() >= next+int64(n) {
			break
		}
		r, err := Restore(v)
		if err != nil {
			s.logger.Error("a delayed message cannot be delivered and is passed over", "level", level+1, "offset", v.QueueOffset(), "err", err)
			continue
		}
		if !s.wanted(level, v.QueueOffset(), &r) {
			gone.add(s.logger, level, r.Topic)
			continue
		}
		if !batch.fits(&r) {
			if err := s.append(ctx, level, &batch, v.QueueOffset()); err != nil {
				return s.offset(level), 0, err
			}
		}
		batch.records = append(batch.records, r)
	}
	if err := s.append(ctx, level, &batch, min(end, next+int64(n))); err != nil {
		return s.offset(level), 0, err
	}
	return min(end, next+int64(n)), then, nil
}

// wanted reports whether a message still has a place: its topic was not deleted
// while it waited, and has its queue.
func (s *Service) wanted(level int, offset int64, r *message.Record) bool {
	s.mu.Lock()
	deleted := s.deleted.has(r.Topic, level, offset)
	s.mu.Unlock()
	return !deleted && s.log.Takes(r.Topic, int(r.QueueID))
}

// dropped counts messages in a row that had no place in a topic any more.
type dropped struct {
	topic string
	count int
}

func (d *dropped) add(logger *slog.Logger, level int, topic string) {
	if topic != d.topic {
		d.report(logger, level)
		d.topic, d.count = topic, 0
	}
	d.count++
}

func (d *dropped) report(logger *slog.Logger, level int) {
	if d.count > 0 {
		logger.Info("delayed messages dropped: their topic was deleted while they waited, or has not got their queue any more", "topic", d.topic, "level", level+1, "messages", d.count)
	}
}

// run is a number of messages in a row that go to the same queue.
type run struct{ records []message.Record }

func (b *run) fits(r *message.Record) bool {
	return len(b.records) == 0 || b.records[0].Topic == r.Topic && b.records[0].QueueID == r.QueueID
}

// append stores a run, which ends before an offset of its level, and empties it.
func (s *Service) append(ctx context.Context, level int, b *run, end int64) error {
	if len(b.records) > 0 {
		if err := s.log.Append(ctx, b.records); err != nil {
			return fmt.Errorf("append to topic %q queue %d: %w", b.records[0].Topic, b.records[0].QueueID, err)
		}
		b.records = b.records[:0]
	}
	s.mu.Lock()
	s.schedule.Delivered(level, end)
	s.mu.Unlock()
	return nil
}

func (s *Service) offset(level int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schedule.Offset(level)
}

// Offsets returns, by level, the offset up to which messages were delivered.
func (s *Service) Offsets() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offsetsLocked()
}

func (s *Service) offsetsLocked() []int64 {
	next := make([]int64, len(s.schedule.levels))
	for i := range next {
		next[i] = s.schedule.Offset(i)
	}
	return next
}

// Persist saves the progress once what it stands for is durable. It blocks for
// that, and for the file calls.
func (s *Service) Persist(ctx context.Context) error { return s.persist(ctx, false) }

// persist waits for the sync when there is nothing to save, too, if sync says so.
func (s *Service) persist(ctx context.Context, sync bool) error {
	if err := s.saving.LockContext(ctx); err != nil {
		return err
	}
	defer s.saving.Unlock()
	s.mu.Lock()
	next := s.offsetsLocked()
	s.deleted.trim(next)
	deleted := s.deleted.clone()
	s.mu.Unlock()
	if !sync && s.progress.saved(next, deleted) {
		return nil
	}
	if err := s.log.Sync(ctx); err != nil {
		return fmt.Errorf("delay offsets: not saved, because the messages delivered before are not durable: %w", err)
	}
	return s.progress.Save(time.Now(), next, deleted)
}
