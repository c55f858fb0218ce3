package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// An epoch is the time of one master. Every file of the log has the number of the
// epoch in its header under which it was written, and an epoch begins a file: so
// the headers are the history of epochs, and tell where two logs have parted.

// ErrOldEpoch means that an epoch is not newer than what the log already knows.
var ErrOldEpoch = errors.New("old epoch")

// Epoch is a part of the log that was written under one master.
type Epoch struct {
	Number int64 // 0 in a log that never had one
	// First is the first position written under it, or that will be. That of the
	// oldest epoch is where the log begins now: older records of it may have been
	// deleted.
	First int64
}

// Epochs is the history of the log, oldest first: at least one epoch. Safe for
// concurrent use; the slice is the caller's. Java: EpochFileCache.
func (s *Store) Epochs() []Epoch {
	var list []Epoch
	for _, f := range *s.log.files.Load() {
		if n := len(list); n == 0 || list[n-1].Number != f.header.epoch {
			list = append(list, Epoch{Number: f.header.epoch, First: f.base})
		}
	}
	if len(list) == 0 {
		list = append(list, Epoch{Number: s.log.origin.epoch, First: s.log.origin.base})
	}
	return list
}

// BeginEpoch makes all further appends part of a new epoch, and returns when all of
// the log, and that an epoch begins, is durable. Errors: [ErrOldEpoch] unless number
// is larger than that of the last epoch; those of [Store.Append]. Safe for
// concurrent use.
func (s *Store) BeginEpoch(ctx context.Context, number int64) error {
	newer := func() error {
		if last := s.log.epoch.Load(); number <= last {
			return fmt.Errorf("store: %s: epoch %d cannot begin after epoch %d: %w", s.cfg.Dir, number, last, ErrOldEpoch)
		}
		return nil
	}
	err := s.alone(ctx, newer, func() error {
		if err := newer(); err != nil { // another one has come before
			return err
		}
		if err := s.log.beginEpoch(nowMillis(), number); err != nil {
			return s.fence(fmt.Errorf("begin epoch %d: %w", number, err))
		}
		s.noteWritten(true)
		return nil
	})
	if err != nil {
		return err
	}
	s.setNoEpoch(false)
	return s.Sync(ctx)
}

// AwaitEpoch refuses appends with [ErrNoEpoch] until the next epoch has begun. It is for a
// master that could not begin one: others may have records where its log ends, which only
// an epoch tells apart from what it would append. Safe for concurrent use.
func (s *Store) AwaitEpoch() { s.setNoEpoch(true) }

func (s *Store) setNoEpoch(v bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.noEpoch = v
	s.refuseLocked()
}

// beginEpoch begins a file with the header of a new epoch, and makes it durable.
// Only the leader calls it, and the flusher has nothing to do with the file: it is
// the last, and nothing is in it that has to be synced.
func (c *commitLog) beginEpoch(now, number int64) error {
	c.epoch.Store(number)
	start := c.roll
	if c.written.Load() < c.active.base {
		start = c.replaceEmpty
	}
	if err := start(now); err != nil {
		return err
	}
	c.beginFile()
	c.last = c.written.Load()
	if err := c.commit(); err != nil {
		return err
	}
	if c.throwaway {
		return nil
	}
	f := c.active
	err := errors.Join(c.disk.file(f.rw), c.disk.dir(f.dir), c.disk.dir(c.dir))
	f.listed, f.durable = err == nil, err == nil
	return err
}

// replaceEmpty puts another file in place of the last, in which there is no record:
// two cannot begin at one position. After an error the last file is closed, and only
// opening the log anew helps.
func (c *commitLog) replaceEmpty(now int64) error {
	old := c.active
	if err := errors.Join(old.closeUnsynced(), c.disk.remove(old.dir)); err != nil {
		return err
	}
	h := old.header
	h.created, h.epoch = now, c.epoch.Load()
	f := newLogFile(c.dir, h)
	f.headerDue = true
	c.disk.madeDir(f.dir)
	c.disk.madeFile(f.path)
	if err := f.open(c.disk, 0); err != nil {
		return err
	}
	for done := false; !done; {
		files := c.files.Load()
		changed := slices.Clone(*files) // readers have the array
		changed[len(changed)-1] = f
		done = c.files.CompareAndSwap(files, &changed)
	}
	c.active = f
	return nil
}
