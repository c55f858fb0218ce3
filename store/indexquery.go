package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// KeyQuery asks for the records that have a key.
type KeyQuery struct {
	// Topic is the topic that the records lie in, and Key what is looked for:
	// their unique key, or one of their keys.
	Topic, Key string
	// From and To bound the store times, both included; the zero time is no
	// bound. Store times count milliseconds.
	From, To time.Time
	// Below is a position that all records lie below, so that a query can go on
	// where another one ended; 0 or less is no bound.
	Below int64
	// Max bounds the number of records; 0 or less asks for one.
	Max int
	// MaxBytes ends the query with the record that takes the size of all to it; 0
	// or less is no bound.
	MaxBytes int
}

// QueryKey returns the records of a topic whose unique key is q.Key, or among
// whose keys it is, the newest first. The records are read-only, stay valid and
// may share memory with the store: keep copies of what is kept for long.
// Records of prepared and rolled back transactions are not found.
//
// Errors: [ErrClosed], the error of ctx, [ErrDamaged] with file and position, and
// those of the file system. Beside ErrDamaged it returns what can be read: a
// damaged record does not hide others. It reads from disk once per 64 Ki keys stored
// within the times, and per record found. Safe for concurrent use. Java:
// DefaultMessageStore.queryMessage, IndexService.queryOffset.
//
// Differs: RocketMQ takes all whose key has the same hash, leaves the
// comparison to who asked, and rounds store times to seconds.
func (s *Store) QueryKey(ctx context.Context, q KeyQuery) ([][]byte, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	search := keySearch{
		s: s, ctx: ctx, topic: q.Topic, key: q.Key, hash: keyHash(topicHash(q.Topic), q.Key),
		from: math.MinInt64, to: math.MaxInt64, max: max(1, q.Max), bytes: math.MaxInt, below: math.MaxInt64,
	}
	if q.MaxBytes > 0 {
		search.bytes = q.MaxBytes
	}
	if q.Below > 0 {
		search.below = q.Below
	}
	if !q.From.IsZero() {
		search.from = millisOf(q.From)
		if search.from < math.MaxInt64 && time.UnixMilli(search.from).Before(q.From) {
			search.from++
		}
	}
	if !q.To.IsZero() {
		search.to = millisOf(q.To)
	}
	err := search.run(s.index.view())
	if err == nil {
		err = search.damage
	}
	switch {
	case err == nil:
		return search.found, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case s.closed.Load():
		return nil, ErrClosed
	}
	err = fmt.Errorf("store: query topic %q for key %q: %w", q.Topic, q.Key, err)
	if errors.Is(err, errIndexDamaged) {
		s.noteStale(err)
		s.noteDamage(err)
	}
	if errors.Is(err, ErrDamaged) {
		return search.found, err
	}
	return nil, err
}

// keySearch is one QueryKey.
type keySearch struct {
	s          *Store
	ctx        context.Context
	topic, key string
	hash       uint32
	from, to   int64 // store times, milliseconds
	max        int
	bytes      int // what may still be added, and then one more
	found      [][]byte
	damage     error // of the first record that is damaged
	below      int64 // positions from here on have been looked at, or are not asked for
}

// run looks at everything from the newest on.
func (q *keySearch) run(v keyView) error {
	for _, t := range slices.Backward(v.tables()) {
		if q.misses(t.keySpan) {
			continue
		}
		if err := q.table(t); err != nil || q.done() {
			return err
		}
	}
	var fd *handle
	var path string
	defer func() {
		if fd != nil {
			q.s.index.handles.release(fd)
		}
	}()
	b := make([]byte, blockSize)
	for _, r := range slices.Backward(v.runs) {
		if q.misses(r.keySpan) {
			continue
		}
		if err := q.ctx.Err(); err != nil {
			return err
		}
		if fd == nil || path != r.file.path {
			if fd != nil {
				q.s.index.handles.release(fd)
			}
			var err error
			if fd, err = q.s.index.handles.acquire(r.file.path); err != nil {
				fd = nil
				if r.last < q.s.log.min() {
					return nil // it went with the records that it and all before it lead to
				}
				if errors.Is(err, fs.ErrNotExist) {
					err = r.damaged(0, "the file is missing")
				}
				return err
			}
			path = r.file.path
		}
		var failed error
		err := r.find(fd, q.hash, b, func(e keyEntry) bool {
			failed = q.look(r.keySpan, e)
			return failed == nil && !q.done()
		})
		if err = errors.Join(failed, err); err != nil || q.done() {
			return err
		}
	}
	return nil
}

func (q *keySearch) done() bool { return len(q.found) >= q.max || q.bytes <= 0 }

// misses reports whether nothing of what a table or run covers is asked for, or there.
func (q *keySearch) misses(s keySpan) bool {
	return s.lastTime < q.from || s.firstTime > q.to || s.last < q.s.log.min() || s.first >= q.below
}

// table looks at the entries of a table.
func (q *keySearch) table(t *keyTable) error {
	for _, piece := range slices.Backward(t.pieces()) {
		for i := len(piece) - 1; i >= 0; i-- {
			if piece[i].hash != q.hash {
				continue
			}
			if err := q.look(t.keySpan, piece[i]); err != nil || q.done() {
				return err
			}
		}
	}
	return nil
}

// look takes the record of an entry if it is one of those asked for.
func (q *keySearch) look(s keySpan, e keyEntry) error {
	position, at := s.first+int64(e.position), s.firstTime+int64(e.time)
	if at < q.from || at > q.to || position >= q.below {
		return nil // the same again is another key of the same hash
	}
	q.below = position
	if err := q.ctx.Err(); err != nil {
		return err
	}
	rec, err := q.s.Record(position)
	if errors.Is(err, ErrNoRecord) {
		return nil // deleted meanwhile
	}
	var v message.View
	if err == nil {
		if v, err = message.ParseView(rec); err != nil {
			err = q.s.recordError(position, damagef(q.s.log.dir, position, "%v", err))
		}
	}
	if errors.Is(err, ErrDamaged) {
		q.damage = cmp.Or(q.damage, err)
		return nil
	}
	if err != nil {
		return err
	}
	if string(v.Topic()) == q.topic && indexedOf(string(v.Properties())).has(q.key) {
		q.found = append(q.found, rec)
		q.bytes -= len(rec)
	}
	return nil
}
