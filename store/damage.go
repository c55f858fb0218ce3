package store

import (
	"errors"
	"sync"
)

// maxDamages bounds the places that are remembered, and so what is told of them.
const maxDamages = 1000

// damages are the places at which reads have found stored data damaged.
type damages struct {
	mu    sync.Mutex // guards all below
	seen  map[damagePlace]struct{}
	first error
}

// damagePlace is a record of the log, or the text of an error without a position.
type damagePlace struct {
	path     string
	position int64
}

// add notes an error, and reports whether its place is a new one.
func (d *damages) add(err error) bool {
	place := damagePlace{path: err.Error()}
	var at *damageError
	if errors.As(err, &at) {
		place = damagePlace{at.path, at.position}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.seen[place]; known || len(d.seen) >= maxDamages {
		return false
	}
	if d.seen == nil {
		d.seen, d.first = make(map[damagePlace]struct{}), err
	}
	d.seen[place] = struct{}{}
	return true
}

// noteDamage tells of damage that a read has met, once for each place. err is an
// [ErrDamaged].
func (s *Store) noteDamage(err error) {
	if !s.damages.add(err) {
		return
	}
	s.cfg.Logger.Error("store: stored data is damaged", "dir", s.cfg.Dir, "err", err)
	if s.cfg.Damaged != nil {
		s.cfg.Damaged(err)
	}
}

// Damage is the first damage that a read has met since the store was opened; nil
// when none has. Unlike that which [Store.Err] tells of it does not keep the store
// from being written: what is damaged cannot be read, all else can. A consume queue
// or the key index is rebuilt by the next open; for the log see [Inspect]. Safe for
// concurrent use.
func (s *Store) Damage() error {
	s.damages.mu.Lock()
	defer s.damages.mu.Unlock()
	return s.damages.first
}
