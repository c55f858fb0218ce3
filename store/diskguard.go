package store

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// The disk guard looks how much space is left, and refuses appends before the
// disk is full: a full disk takes down more than this store, and what still has
// to be written then, such as the mark of a deletion that would make room,
// cannot be. Below four times the limit the oldest files are deleted. Reads go
// on, and so do appends as soon as there is space again.
//
// It looks when the store opens, every Config.CleanInterval, whenever a part of
// what is still allowed may have been used up by this store, and when an append
// has been refused.

// DiskFullError tells of a disk with too little free space. It is [ErrDiskFull].
type DiskFullError struct {
	Dir       string // the data folder
	Free, Min int64  // bytes that are free, and that must be
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("store: %v: %d MiB free on %s, minimum %d MiB (Config.MinFreeBytes); appends go on when there is space again, reads go on",
		ErrDiskFull, e.Free>>20, e.Dir, e.Min>>20)
}

// Is makes the error an ErrDiskFull.
func (e *DiskFullError) Is(target error) bool { return target == ErrDiskFull }

// trimBelow is below how many times the minimum of free bytes old files go.
const trimBelow = 4

// diskGuard is the state of the guard.
type diskGuard struct {
	full atomic.Pointer[DiskFullError] // nil while there is space
	free atomic.Int64                  // at the last look; 0 while it is not known

	next int64 // size of all that was ever written at which to look again; owned by the leader

	blind bool // that the space is not known has been logged; owned by the janitor
}

// measureDisk looks how much space is left.
func (s *Store) measureDisk() {
	if s.cfg.MinFreeBytes <= 0 {
		return
	}
	g := &s.guard
	free, err := s.cfg.FreeBytes(s.cfg.Dir)
	if err != nil {
		if !g.blind {
			g.blind = true
			s.cfg.Logger.Warn("store: the free space of the disk is not known; appends are not refused before one fails", "dir", s.cfg.Dir, "err", err)
		}
		return
	}
	g.blind = false
	g.free.Store(max(free, 1))
	var full *DiskFullError
	if free < s.cfg.MinFreeBytes {
		full = &DiskFullError{Dir: s.cfg.Dir, Free: free, Min: s.cfg.MinFreeBytes}
	}
	if before := g.full.Swap(full); (before == nil) == (full == nil) {
		return
	}
	s.mu.Lock()
	s.refuseLocked()
	s.mu.Unlock()
	if full != nil {
		s.cfg.Logger.Error("store: too little space on the disk; appends are refused until there is more", "dir", s.cfg.Dir, "free", free, "min", s.cfg.MinFreeBytes)
	} else {
		s.cfg.Logger.Info("store: there is space on the disk again; appends go on", "dir", s.cfg.Dir, "free", free)
	}
}

// missingBytes is how much must be deleted for the disk to have enough free
// space.
func (s *Store) missingBytes() int64 {
	free := s.guard.free.Load()
	if free == 0 {
		return 0
	}
	return trimBelow*s.cfg.MinFreeBytes - free
}

// noteUse makes the janitor look again when a part of the space that is allowed
// may have been used. Only the leader calls it.
func (s *Store) noteUse() {
	if s.cfg.MinFreeBytes <= 0 {
		return
	}
	f := s.log.active
	if used := f.header.bytes + f.size.Load(); used >= s.guard.next {
		s.guard.next = used + max(s.cfg.MinFreeBytes/16, 64<<10)
		s.wakeJanitor()
	}
}

// refuseLocked sets what new appends are told.
func (s *Store) refuseLocked() {
	switch full, fenced := s.guard.full.Load(), s.fenced.Load(); {
	case s.mu.ended:
		s.mu.refuse = ErrClosed
	case fenced != nil:
		s.mu.refuse = *fenced
	case s.damage != nil:
		s.mu.refuse = s.damage
	case full != nil:
		s.mu.refuse = full
	default:
		s.mu.refuse = nil
	}
}

// lacksSpace reports whether an error of the file system goes away when there is
// space again, or a larger limit.
func lacksSpace(err error) bool { return errors.Is(err, ErrDiskFull) || isTooLarge(err) }
