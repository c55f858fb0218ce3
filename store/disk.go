package store

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"time"
)

// Disk does to a store, and to other files, what a bad disk does, for tests of what depends on it: it
// is slow, or full, or holds still as for a process that is stopped. The zero value
// does nothing. Put it into [Config].Disk; it may serve one store after the other.
// Safe for concurrent use. A nil *Disk is a good disk, too.
type Disk struct {
	state atomic.Pointer[diskState] // nil: nothing is wrong

	mu sync.Mutex // serialises changes of state
}

// diskState is what is wrong. Immutable.
type diskState struct {
	slow       time.Duration
	full       bool
	held, left bool
	changed    chan struct{} // closed when another state has taken its place
}

// Slow makes each write to the log, and each fsync of it, take that much longer.
// One write carries what many appends had to say, as always. 0 ends it, for what is
// under way, too.
func (d *Disk) Slow(perOperation time.Duration) {
	d.change(func(s *diskState) { s.slow = max(perOperation, 0) })
}

// Full makes whatever needs space fail as a full disk does, and Config.FreeBytes
// count as 0. What is stored can be read and synced. With false there is space
// again; the store finds out as it always does.
func (d *Disk) Full(full bool) { d.change(func(s *diskState) { s.full = full }) }

// Hold keeps a store from writing and syncing until Release. What waits for either
// waits, as long as it may: an append with SyncFlush for Config.FlushTimeout.
func (d *Disk) Hold() { d.change(func(s *diskState) { s.held, s.left = true, false }) }

// Release ends Hold and Abandon.
func (d *Disk) Release() { d.change(func(s *diskState) { s.held, s.left = false, false }) }

// Abandon is for who is about to end the store: what waits to be written is, and
// no write or fsync is slow any more, so that nobody has to be waited for; but after
// Hold nothing is synced before Close does.
func (d *Disk) Abandon() { d.change(func(s *diskState) { s.left = true }) }

func (d *Disk) change(edit func(*diskState)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.state.Load()
	var now diskState
	if old != nil {
		now = *old
	}
	edit(&now)
	now.changed = make(chan struct{})
	if now.slow == 0 && !now.full && !now.held && !now.left {
		d.state.Store(nil)
	} else {
		d.state.Store(&now)
	}
	if old != nil {
		close(old.changed)
	}
}

func (d *Disk) load() *diskState {
	if d == nil {
		return nil
	}
	return d.state.Load()
}

// admit waits until something may be written.
func (d *Disk) admit() {
	for s := d.load(); s != nil && s.held && !s.left; s = d.load() {
		<-s.changed
	}
}

// ready waits until something may be done that nobody waits for. It is false when
// stop was closed meanwhile.
func (d *Disk) ready(stop <-chan struct{}) bool {
	for s := d.load(); s != nil && s.held; s = d.load() {
		select {
		case <-s.changed:
		case <-stop:
			return false
		}
	}
	return true
}

// delay takes as long as one operation takes longer.
func (d *Disk) delay() {
	s := d.load()
	if s == nil {
		return
	}
	for begin := time.Now(); s != nil && !s.left; s = d.load() {
		rest := s.slow - time.Since(begin)
		if rest <= 0 {
			return
		}
		t := time.NewTimer(rest)
		select {
		case <-t.C:
		case <-s.changed:
			t.Stop()
		}
	}
}

// BeforeWrite is for files on the disk that are not the store's: it takes what a write
// takes longer, and says what one says, nil while the disk is not full. After Hold it
// waits for Release or Abandon.
func (d *Disk) BeforeWrite(path string) error {
	d.admit()
	d.delay()
	return d.space("write", path)
}

// BeforeSync is the same for a sync, which is never short of space.
func (d *Disk) BeforeSync() {
	d.admit()
	d.delay()
}

// space is the error of an operation that needs space, when there is none.
func (d *Disk) space(op, path string) error {
	if s := d.load(); s != nil && s.full {
		return &fs.PathError{Op: op, Path: path, Err: errNoSpace}
	}
	return nil
}
