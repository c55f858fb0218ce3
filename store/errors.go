package store

import (
	"errors"
	"fmt"
)

// Errors of Open. Each text names the folder and the remedy.
var (
	// ErrInUse means that another open store, in this process or in another,
	// holds the lock of the folder.
	ErrInUse = errors.New("folder in use")
	// ErrForeign means that the folder belongs to another broker.
	ErrForeign = errors.New("folder of another broker")
	// ErrNewerFormat means that a newer build wrote the folder.
	ErrNewerFormat = errors.New("newer folder format")
	// ErrNotAStore means that the folder holds something else than a store.
	ErrNotAStore = errors.New("not a store folder")
)

// Errors of a store in use.
var (
	// ErrFenced means that an earlier write or sync failed and the log takes
	// nothing more until the store is opened anew; it wraps the cause. Reads
	// go on. The outcome of an append that returns it is unknown unless the
	// append began after the fencing.
	ErrFenced = errors.New("store fenced after an I/O error; reopen it to repair and go on")
	// ErrReadOnly means that the log was found damaged when it was opened:
	// something known to have been synced cannot be read back. Reads below the
	// damage work, appends do not. The text names file and position. [Inspect]
	// says more, and [PlanSalvage] what can be kept.
	ErrReadOnly = errors.New("store is read-only")
	// ErrFlushTimeout means that a record is stored but its fsync did not
	// finish within Config.FlushTimeout.
	ErrFlushTimeout = errors.New("flush timed out")
	// ErrBehind means that an append was refused because fsync does not keep up with
	// writing, or hangs. Appends go on by themselves when it has caught up.
	ErrBehind = errors.New("too much is not synced yet")
	// ErrDiskFull means that the disk has too little free space, or, together
	// with ErrFenced, that a write failed because it had none. Appends go on by
	// themselves when there is space again.
	ErrDiskFull = errors.New("disk full")
	// ErrNoEpoch means that an append was refused because an epoch has to begin first:
	// see [Store.AwaitEpoch].
	ErrNoEpoch = errors.New("no epoch has begun yet")
	// ErrDamaged means that stored bytes do not match their checksum or
	// contradict each other.
	ErrDamaged = errors.New("stored data is damaged")
	// ErrClosed means that the store is closed, or was while the call waited.
	ErrClosed = errors.New("store closed")
	// ErrNoRecord means that there is no record where one was asked for: the
	// place is not filled yet, or what was there has been deleted.
	ErrNoRecord = errors.New("no such record")
	// ErrHookRunning means that the store has ended, but a call of Config.FreeBytes
	// has not: nothing but its goroutine is left. A later Close returns it again, or
	// nil once the call has returned.
	ErrHookRunning = errors.New("a call of FreeBytes has not returned")
	// ErrBadBatch means that a batch is empty, or that its records lie in more
	// than one queue.
	ErrBadBatch = errors.New("bad batch")
)

// errQueueDamaged is the ErrDamaged of a consume queue alone: a block of it is
// not what was written, or contradicts a record that is. The queues can be
// rebuilt from the log then, which damage of the log itself forbids: a rebuild
// ends at the first damaged record.
var errQueueDamaged = fmt.Errorf("%w: consume queue", ErrDamaged)

// errIndexDamaged is the same of the key index.
var errIndexDamaged = fmt.Errorf("%w: key index", ErrDamaged)

// errLogDamaged is the ErrDamaged of an entry of the log.
var errLogDamaged = fmt.Errorf("%w: commit log", ErrDamaged)

// damageError is an ErrDamaged of which it is known where the damage lies.
type damageError struct {
	kind     error // that of the log, or of a consume queue
	path     string
	position int64
	reason   string
}

func (e *damageError) Error() string {
	return fmt.Sprintf("%v file %s, position %d: %s", e.kind, e.path, e.position, e.reason)
}

func (e *damageError) Unwrap() error { return e.kind }

// damagef makes an error for bytes of the commit log that cannot be right.
func damagef(path string, pos int64, format string, args ...any) error {
	return &damageError{errLogDamaged, path, pos, fmt.Sprintf(format, args...)}
}

// contradictf makes an error for a consume queue that does not fit to a record
// of the commit log, or to its bounds.
func contradictf(path string, pos int64, format string, args ...any) error {
	return fmt.Errorf("%w against commit log file %s, position %d: %s", errQueueDamaged, path, pos, fmt.Sprintf(format, args...))
}
