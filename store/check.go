package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// maxProblems bounds what one Check reports.
const maxProblems = 20

// checker compares the log with the consume queues and the key index.
type checker struct {
	s        *Store
	ctx      context.Context
	first    int64 // first and last position looked at
	end      int64
	problems []error
	queues   map[QueueID]*checkedQueue
	keys     *indexWalk

	past    map[QueueID]pastQueue // queues of topics that the log will drop
	orphans map[string][]error    // by topic: problems, unless the log drops it
	gone    int64                 // position of the last lost entry whose queue is not known
}

// pastQueue is how far a queue has been followed that is not in the table any
// more.
type pastQueue struct {
	next, last int64 // offset that the next record must have; position of the last
}

// checkedQueue is how far a queue has been compared.
type checkedQueue struct {
	view  view
	next  int64  // offset that the next record must have
	units []byte // from offset at on
	at    int64
	bad   bool // its units cannot be read; reported
}

// errEnough ends a check that has found too much.
var errEnough = errors.New("too many problems")

// Check verifies everything that is stored up to the moment it begins: the
// checksum of every entry, dense positions, dense queue offsets, and that each
// record has exactly the unit, and the key index exactly the entries, that say
// the same of it. It reads the whole log and the whole index from disk. A store
// that was opened read-only has the reason among its problems. It reports up to
// 20 problems as one error that is [ErrDamaged], or the error of ctx, or
// [ErrClosed], or, when a file cannot be read for the moment, why. Safe for
// concurrent use, also with appends; while it runs no old file is deleted.
func (s *Store) Check(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	s.trimmer.pin()
	defer s.unpin()
	c := checker{s: s, ctx: ctx, end: s.dispatched.Load(), queues: make(map[QueueID]*checkedQueue)}
	if s.damage != nil {
		c.problems = append(c.problems, s.damage)
	}
	c.first = s.log.min()
	// After end was read, so that every record up to it has its unit and its
	// entries in them.
	c.keys = newIndexWalk(s)
	for _, q := range s.queues.all() {
		v := q.view()
		c.queues[q.key] = &checkedQueue{view: v, next: v.min, at: v.min}
	}
	err := s.log.scan(c.first, c.end, c.record)
	if err == nil {
		err = c.indexRest()
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed.Load():
		return ErrClosed
	case err != nil && !errors.Is(err, errEnough) && !errors.Is(err, ErrDamaged) && !errors.Is(err, fs.ErrNotExist):
		// Nothing can be said of what cannot be read for the moment.
		return fmt.Errorf("store: check of %s up to position %d could not read on: %w", s.cfg.Dir, c.end, errors.Join(append(c.problems, err)...))
	case err != nil && !errors.Is(err, errEnough):
		c.problems = append(c.problems, err)
	case err == nil:
		c.rest()
	}
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("store: check of %s up to position %d: %w: %w", s.cfg.Dir, c.end, ErrDamaged, errors.Join(c.problems...))
}

// problem notes one problem; errEnough means to stop.
func (c *checker) problem(format string, args ...any) error {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
	if len(c.problems) >= maxProblems {
		return errEnough
	}
	return nil
}

// record compares one record of the log with its unit.
func (c *checker) record(e logEntry) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	r, err := slotOf(e.file.path, e.position, e.record)
	if err != nil {
		return c.problem("position %d in %s: %v", e.position, e.file.path, err)
	}
	if !r.lost && !r.drop {
		if err := message.View(e.record).CheckBody(); err != nil {
			return c.problem("position %d in %s: %v", e.position, e.file.path, err)
		}
	}
	switch {
	case r.drop:
		return c.drop(r.key.Topic, e.position)
	case r.silent:
		if r.lost {
			c.gone = e.position
		}
		return nil
	}
	if err := c.index(e, r); err != nil {
		return err
	}
	key, offset := r.key, r.offset
	q := c.queues[key]
	if q == nil || q.view.first == 0 || e.position < q.view.first {
		return c.pastRecord(e.position, r, q)
	}
	if past, ok := c.past[key]; ok && offset == 0 && past.last < c.gone {
		// The entry between that dropped the topic is lost.
		if err := c.drop(key.Topic, e.position); err != nil {
			return err
		}
	}
	if offset != q.next {
		err := c.problem("position %d: topic %q queue %d: queue offset %d follows %d", e.position, key.Topic, key.ID, offset, q.next-1)
		if err != nil {
			return err
		}
	}
	q.next = offset + 1
	if q.bad {
		return nil
	}
	if offset < q.view.min || offset >= q.view.max() {
		return c.problem("position %d: topic %q queue %d has no unit at offset %d; it holds %d up to %d",
			e.position, key.Topic, key.ID, offset, q.view.min, q.view.max())
	}
	got, err := q.unit(&c.s.extents, offset)
	if err != nil {
		q.bad = true
		c.s.noteStale(err)
		return c.problem("topic %q queue %d: %w", key.Topic, key.ID, err)
	}
	want := r.unit
	if key.Topic == message.ScheduleTopic && got.tags >= r.time {
		want.tags = got.tags // when it is due, by the levels of its time
	}
	if got != want {
		return c.problem("topic %q queue %d offset %d: the unit says position %d size %d tagsCode %d, the log %d, %d, %d",
			key.Topic, key.ID, offset, got.position, got.size, got.tags, want.position, want.size, want.tags)
	}
	return nil
}

// pastRecord follows a queue that is not in the table, or begins there behind
// the record. Nothing is wrong if the log drops its topic later on.
func (c *checker) pastRecord(position int64, r slot, q *checkedQueue) error {
	key := r.key
	if c.past == nil {
		c.past, c.orphans = make(map[QueueID]pastQueue), make(map[string][]error)
	}
	past, ok := c.past[key]
	if ok && r.offset == 0 && past.last < c.gone {
		if err := c.drop(key.Topic, position); err != nil {
			return err
		}
		ok = false
	}
	c.past[key] = pastQueue{next: r.offset + 1, last: position}
	if ok && r.offset != past.next {
		return c.problem("position %d: topic %q queue %d: queue offset %d follows %d", position, key.Topic, key.ID, r.offset, past.next-1)
	}
	if len(c.orphans[key.Topic]) >= maxProblems {
		return nil
	}
	err := fmt.Errorf("position %d: topic %q queue %d is not in the queue table", position, key.Topic, key.ID)
	if q != nil {
		err = fmt.Errorf("position %d: topic %q queue %d has no unit at offset %d; it holds %d up to %d",
			position, key.Topic, key.ID, r.offset, q.view.min, q.view.max())
	}
	c.orphans[key.Topic] = append(c.orphans[key.Topic], err)
	return nil
}

// drop takes note that the log drops a topic.
func (c *checker) drop(topic string, position int64) error {
	delete(c.orphans, topic)
	for key := range c.past {
		if key.Topic == topic {
			delete(c.past, key)
		}
	}
	for key, q := range c.queues {
		if key.Topic == topic && q.view.first != 0 && q.view.first < position {
			if err := c.problem("position %d: topic %q was deleted there, but its queue %d still holds the record at position %d", position, topic, key.ID, q.view.first); err != nil {
				return err
			}
		}
	}
	return nil
}

// unit reads the unit of an offset and keeps those behind it.
func (q *checkedQueue) unit(x *extents, offset int64) (unit, error) {
	if i := offset - q.at; i < 0 || i >= int64(len(q.units)/unitSize) {
		units, err := q.view.units(x, offset)
		if err != nil {
			return unit{}, err
		}
		q.units, q.at = units, offset
	}
	return unitAt(q.units, int(offset-q.at)), nil
}

// rest looks at the units behind those of the records: they must belong to
// records behind the end of the check.
func (c *checker) rest() {
	if c.s.dropped.Load() <= c.end { // else the entry that drops them may lie behind the end
		for _, topic := range slices.Sorted(maps.Keys(c.orphans)) {
			for _, err := range c.orphans[topic] {
				if c.problem("%w", err) != nil {
					return
				}
			}
		}
	}
	for key, q := range c.queues {
		if q.bad || q.next >= q.view.max() {
			continue
		}
		u, err := q.unit(&c.s.extents, q.next)
		switch {
		case err != nil:
			c.s.noteStale(err)
			err = c.problem("topic %q queue %d: %w", key.Topic, key.ID, err)
		case u.position <= c.end:
			err = c.problem("topic %q queue %d offset %d: the unit points at position %d, where no record of it is", key.Topic, key.ID, q.next, u.position)
		}
		if err != nil {
			return
		}
	}
}
