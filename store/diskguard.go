package store

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// The disk guard looks how much space is left, and refuses appends before the
// disk is full: a full disk takes down more than this store, and what still has
// to be written then, such as the mark of a deletion that would make room,
// cannot be. Below four times the limit the oldest files are deleted, if that
// makes enough room. Reads go on, and so do appends as soon as there is space
// again.
//
// It looks when the store opens, every Config.CleanInterval, whenever a part of
// what is still allowed may have been used up by this store, and when an append
// has been refused.
//
// Config.FreeBytes may be the user's code, so each call has a goroutine of its own,
// one at a time. The janitor starts it and takes its result later; whoever ends
// the store waits for it for hookPatience and leaves it behind then.

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

const (
	// trimBelow is below how many times the minimum of free bytes old files go.
	trimBelow = 4
	// openPatience bounds how long Open waits for Config.FreeBytes, and
	// hookPatience how long the end of a store does.
	openPatience = time.Second
	hookPatience = 10 * time.Second
)

// errNoAnswer is what a call of Config.FreeBytes is taken for that does not return.
var errNoAnswer = errors.New("FreeBytes does not return")

// diskGuard is the state of the guard.
type diskGuard struct {
	full atomic.Pointer[DiskFullError] // nil while there is space
	free atomic.Int64                  // at the last look; 0 while it is not known

	next int64 // size of all that was ever written at which to look again; owned by the leader

	// look is the call of FreeBytes that runs, or whose result nobody has taken
	// yet; nil without one. Owned by the janitor, or who opens or closes the store.
	look *diskLook
	// fresh means that nothing has been deleted by what free tells: what goes is not
	// in it. Owned as look.
	fresh bool
	blind bool // that the space is not known has been logged; owned as look
	short bool // that deleting would not suffice has been logged; owned as look
}

// diskLook is one call of Config.FreeBytes.
type diskLook struct {
	begun time.Time
	done  chan struct{} // closed when the rest is set
	free  int64
	err   error
}

// measureDisk takes the result of a look at the disk if there is one; else it
// starts a look, unless one is under way. Its end wakes the janitor.
func (s *Store) measureDisk() {
	if s.cfg.MinFreeBytes <= 0 {
		return
	}
	g := &s.guard
	if g.look != nil {
		select {
		case <-g.look.done:
			look := g.look
			g.look = nil
			s.noteFree(look.free, look.err)
		default:
			if time.Since(g.look.begun) >= s.cfg.CleanInterval {
				s.noteFree(0, errNoAnswer)
			}
		}
		return
	}
	look := &diskLook{begun: time.Now(), done: make(chan struct{})}
	g.look = look
	go func() {
		defer s.wakeJanitor()
		defer close(look.done)
		defer func() {
			if p := recover(); p != nil {
				look.err = fmt.Errorf("FreeBytes panics: %v", p)
			}
		}()
		look.err = errNoAnswer // should it end the goroutine
		if s.cfg.Disk.space("statfs", s.cfg.Dir) != nil {
			look.free, look.err = 0, nil
			return
		}
		look.free, look.err = s.cfg.FreeBytes(s.cfg.Dir)
	}()
}

// measureFirst looks at the disk when the store opens.
func (s *Store) measureFirst() {
	s.measureDisk()
	if s.awaitLook(openPatience) {
		s.measureDisk()
	}
}

// awaitLook waits for the call of Config.FreeBytes that runs, and reports whether
// it has returned.
func (s *Store) awaitLook(patience time.Duration) bool {
	look := s.guard.look
	if look == nil {
		return true
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-look.done:
		return true
	case <-timer.C:
		return false
	}
}

// noteFree acts on how much space is left. With an error that is not known: then
// nothing is refused and nothing deleted for it.
func (s *Store) noteFree(free int64, err error) {
	g := &s.guard
	var full *DiskFullError
	switch {
	case err != nil:
		g.free.Store(0)
		if !g.blind {
			s.cfg.Logger.Warn("store: the free space of the disk is not known; appends are not refused before one fails", "dir", s.cfg.Dir, "err", err)
		}
	case free < s.cfg.MinFreeBytes:
		full = &DiskFullError{Dir: s.cfg.Dir, Free: free, Min: s.cfg.MinFreeBytes}
		fallthrough
	default:
		g.free.Store(max(free, 1))
	}
	g.fresh = err == nil
	g.blind = err != nil
	if before := g.full.Swap(full); (before == nil) == (full == nil) {
		return
	}
	s.mu.Lock()
	s.refuseLocked()
	s.mu.Unlock()
	if full != nil {
		s.cfg.Logger.Error("store: too little space on the disk; appends are refused until there is more", "dir", s.cfg.Dir, "free", free, "min", s.cfg.MinFreeBytes)
	} else {
		s.cfg.Logger.Info("store: appends are not refused any more for a lack of space", "dir", s.cfg.Dir, "free", free)
	}
	if s.cfg.Full != nil && (full != nil || s.Err() == nil) {
		s.cfg.Full(full)
	}
}

// excessForSpace is how many bytes must be deleted for the disk to have enough
// free space, of those that can be. When they do not suffice for that, but for
// appends to go on, it is what that takes; and when they do not either, nothing:
// old records would go for no use.
func (s *Store) excessForSpace(deletable int64) int64 {
	g := &s.guard
	if !g.fresh {
		return 0
	}
	g.fresh = false
	free := g.free.Load()
	missing := trimBelow*s.cfg.MinFreeBytes - free
	if missing <= 0 {
		g.short = false
		return 0
	}
	if missing <= deletable {
		g.short = false
		return missing
	}
	if !g.short {
		g.short = true
		s.cfg.Logger.Warn("store: there is little space on the disk, and deleting all old commit-log files would not make enough", "dir", s.cfg.Dir,
			"free", free, "wanted", trimBelow*s.cfg.MinFreeBytes, "log", s.log.size())
	}
	if missing = s.cfg.MinFreeBytes - free; missing <= deletable {
		return max(missing, 0)
	}
	return 0
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
	case s.mu.noEpoch:
		s.mu.refuse = ErrNoEpoch
	default:
		s.mu.refuse = nil
	}
}

// lacksSpace reports whether an error of the file system goes away when there is
// space again, or a larger limit.
func lacksSpace(err error) bool { return errors.Is(err, ErrDiskFull) || isTooLarge(err) }

// IsDiskFull reports whether something failed for a lack of space: [ErrDiskFull], or what
// the operating system says of a full disk or a quota that is used up.
func IsDiskFull(err error) bool { return errors.Is(err, ErrDiskFull) || isDiskFull(err) }
