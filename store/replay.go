package store

import (
	"errors"
	"fmt"
	"path/filepath"
)

// The queues and the key index of a store are those of its checkpoint, brought up
// to date by a replay of what the log holds behind it; or, when the checkpoint
// does not fit the log or its files, by a replay of all of it.

// loadQueues makes queues and key index, up to the end of the log or to where it
// finds that damaged. starts are the queues that begin behind the records there
// are.
func (s *Store) loadQueues(cp *checkpoint, starts []queueStart) error {
	taken, err := s.takeOver(cp)
	if err == nil && taken {
		err = s.replay(s.dispatched.Load())
	}
	switch {
	case errors.Is(err, errLogDamaged):
		s.stopBelow(err)
		return nil
	case errors.Is(err, ErrDamaged):
		s.cfg.Logger.Warn("store: the checkpoint contradicts the commit log; consume queues and key index are rebuilt", "dir", s.cfg.Dir, "err", err)
	case err != nil || taken:
		return err
	}
	if err := s.startOver(cp, starts); err != nil {
		return err
	}
	err = s.replay(s.dispatched.Load())
	if errors.Is(err, ErrDamaged) {
		s.stopBelow(err)
		return nil
	}
	return err
}

// covers reports whether queues and key index of a checkpoint go on in the log as
// it is. A damaged log ends, for now, where its damage begins: its queues end there
// too, and the files of what lies behind stay: they tell a salvage which records it
// has lost.
func (s *Store) covers(cp *checkpoint) bool {
	return cp != nil && cp.position > 0 && cp.position >= s.log.min()-1 &&
		(cp.position <= s.log.written.Load() || s.damage != nil)
}

// takeOver takes queues and key index from the checkpoint. taken is false when
// they do not fit, or their files are not those of the checkpoint.
func (s *Store) takeOver(cp *checkpoint) (taken bool, err error) {
	if !s.covers(cp) {
		return false, nil
	}
	first, end := s.log.min(), s.log.written.Load()
	if ok, err := s.extents.load(cp.extents, cp.next); err != nil {
		return false, fmt.Errorf("load consume queues: %w", err)
	} else if !ok {
		return false, nil
	}
	if ok, err := s.index.load(cp.index, first); err != nil {
		return false, fmt.Errorf("load key index: %w", err)
	} else if !ok {
		return false, nil
	}
	list := make([]*queue, len(cp.queues))
	for i, st := range cp.queues {
		list[i] = st.restore(uint32(i))
		if cp.position > end {
			if st, err = list[i].stateAt(&s.extents, end); err != nil {
				return false, err
			}
			list[i] = st.restore(uint32(i))
		}
	}
	s.queues.replace(list)
	if cp.position > end {
		s.dropped.Store(cp.position) // what was dropped behind the damage is not in it
	}
	s.dispatched.Store(min(cp.position, end))
	s.noteCheckpoint(min(cp.position, end), cp.min, cp.size)
	return true, s.trimQueues(first) // files may have gone since
}

// startOver forgets the queues and the key index.
func (s *Store) startOver(cp *checkpoint, starts []queueStart) error {
	if err := s.extents.reset(); err != nil {
		return fmt.Errorf("reset consume queues: %w", err)
	}
	if err := s.index.reset(); err != nil {
		return fmt.Errorf("reset key index: %w", err)
	}
	if cp != nil && s.cfg.Throwaway {
		// The log of a throwaway store may have been cut below what its
		// checkpoint covers, and would grow into it with other records. In any
		// other store the checkpoint stays below the cut, and is kept for what
		// it proves.
		if err := s.log.disk.remove(filepath.Join(s.cfg.Dir, checkpointName)); err != nil {
			return err
		}
	}
	list := make([]*queue, len(starts))
	for i, st := range starts {
		list[i] = &queue{key: st.key, id: uint32(i), base: st.next, min: st.next}
	}
	s.queues.replace(list)
	first := s.log.min()
	s.dispatched.Store(first - 1)
	s.noteCheckpoint(0, first, 0)
	return nil
}

// replay dispatches what the log holds behind a position.
func (s *Store) replay(after int64) error {
	if s.cfg.Confirming { // SetConfirmed does it; here the records are only looked at
		return s.unconfirmed(func(slot, int64) {})
	}
	return s.log.scan(after+1, s.log.written.Load(), func(e logEntry) error {
		if err := s.dispatchRecord(e); err != nil {
			return err
		}
		s.dispatched.Store(e.position)
		return nil
	})
}

// stopBelow makes the store a read-only one that ends before the first record
// that could not be replayed. What could be is consistent and can be read.
func (s *Store) stopBelow(err error) {
	at := s.dispatched.Load() + 1
	if d := (*damageError)(nil); s.cfg.Confirming && errors.As(err, &d) {
		at = max(at, d.position)
	}
	files := *s.log.files.Load()
	path := s.log.dir
	if i := s.log.search(files, at); i >= 0 {
		path = files[i].path
	}
	s.setDamage(path, at, err.Error()) // it may be below what was found first
	s.log.written.Store(at - 1)
	s.log.synced.Store(min(s.log.synced.Load(), at-1))
}
