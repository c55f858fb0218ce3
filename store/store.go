package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Store is an open data folder: one commit log and the consume queues derived
// from it. It is made by [Open] and ended by Close, Kill, PowerOff or Discard. All
// methods are safe for concurrent use.
//
// Invariants: synced <= written; dispatched <= written, and equal between
// appends; each queue holds dense offsets, and each of its units points at the
// record that says the same.
//
// Locks, in the order in which they are taken: Store.mu, queueTable.mu;
// trimmer.mu, queue.mu, extents.mu; logFile.indexMu, handles.mu. flusher.mu,
// keyIndex.mu, blockCache.mu and damages.mu are taken alone. ledger.mu is the last
// one whatever is held, also commitLog.prepare.
// Nobody waits for a channel, a timer or user code under any of them.
type Store struct {
	cfg     Config
	lock    *os.File // of the folder; nil once given back
	log     commitLog
	queues  queueTable
	extents extents
	index   keyIndex
	cut     int

	// live is false while Open replays: nobody is told then.
	live bool
	// replayed is for the record that is being replayed.
	replayed struct {
		hashes []uint32
		gone   int64 // position of the last lost entry whose queue is not known
	}
	// dropped is the position of the last drop of a topic, or one behind all of
	// them: no checkpoint is written for a position before.
	dropped atomic.Int64
	// dispatched is the position up to which records are in their queues.
	dispatched atomic.Int64
	// fenced is why nothing can be written any more since an I/O error.
	fenced atomic.Pointer[error]
	// damage is why the store was opened read-only.
	damage error
	// stale means that a queue or the key index was found damaged: every
	// checkpoint from now on makes the next open rebuild them all, and the
	// janitor replaces the one there is at once.
	stale atomic.Bool

	mu struct {
		sync.Mutex
		refuse    error         // why appends are refused; nil while they are not
		writing   bool          // a leader is at work, or has been given its turn
		pending   []*group      // in the order in which they will be led; the last may be joined
		crowd     int           // callers of the last group
		next      int64         // next position to give out
		storeTime int64         // last given out, milliseconds
		idle      chan struct{} // closed by the last leader when set
		ended     bool          // closing has begun
		noEpoch   bool          // see AwaitEpoch
		drops     []unwrittenDrop
	}
	solo group // of a leader without followers; owned by the leader
	// Owned by the leader: how often in a row those whom an fsync released did
	// not come back, and how many groups will not wait for them therefore.
	missed, skip int
	background   sync.WaitGroup // leaders in place of openers that left

	confirm confirming
	flusher flusher
	brake   brake
	janitor janitor
	guard   diskGuard
	trimmer trimmer
	damages damages

	checkpointed lastCheckpoint
	mark         syncedMark // owned by the janitor, but for its position

	closed atomic.Bool // set when closing has begun

	// Pools of this store: a pool of the package would tie stores in different
	// synctest bubbles together.
	batches, turns, timers sync.Pool
	chosen                 unitPool

	closeDone chan struct{} // closed when the store is closed
	closeErr  error         // result of closing; set before closeDone is closed
}

// Open opens the data folder of cfg, makes it if it is new, repairs what a
// crash left behind and rebuilds what is missing of the consume queues.
//
// A torn end of the log, that is records of which nothing proves that they had
// been synced, is cut off; see [Store.Cut]. Damage in what had been synced opens
// the store read-only; see [Store.Err].
//
// Errors: [ErrInUse], [ErrForeign], [ErrNewerFormat], [ErrNotAStore]; every
// violation of cfg at once; errors of the file system.
func Open(cfg Config) (*Store, error) {
	return open(cfg, durable())
}

// open is Open with another way to make things durable.
func open(cfg Config, disk syncer) (_ *Store, err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	disk.faults = cfg.Disk
	if cfg.Throwaway {
		disk = volatile()
		disk.faults = cfg.Disk
	} else {
		disk = disk.recorded()
	}
	lock, err := claimDir(cfg, disk)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, lock: lock, closeDone: make(chan struct{})}
	s.log.dir = filepath.Join(cfg.Dir, commitLogName)
	s.log.fileSize, s.log.throwaway, s.log.disk = cfg.FileSize, cfg.Throwaway, disk
	s.log.blocks.budget = cfg.CacheBytes
	s.extents.dir = filepath.Join(cfg.Dir, queuesName)
	s.extents.disk, s.extents.handles = disk, &s.log.handles
	s.index.dir = filepath.Join(cfg.Dir, indexName)
	s.index.disk, s.index.handles = disk, &s.log.handles
	s.index.limit, s.index.fileBlocks = cfg.tableEntries, cfg.indexBlocks
	defer func() {
		if err != nil {
			err = errors.Join(err, s.log.closeFiles(s.log.closing()), s.extents.close(), s.index.close(), unlockFile(lock))
		}
	}()
	if err := checkFolders(cfg.Dir); err != nil {
		return nil, err
	}
	cp, err := loadCheckpoint(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := s.beginAt(cfg.Begin); err != nil {
		return nil, err
	}
	if err := s.recoverLog(cp); err != nil {
		return nil, fmt.Errorf("store: open %s: %w", cfg.Dir, err)
	}
	if err := s.startAppends(); err != nil {
		return nil, fmt.Errorf("store: open %s: %w", cfg.Dir, err)
	}
	s.flusher.wake = make(chan struct{}, 1)
	s.flusher.stop = make(chan struct{})
	s.flusher.done = make(chan struct{})
	s.janitor.init()
	s.measureFirst()
	go s.runFlusher()
	go s.runJanitor()
	return s, nil
}

// startAppends continues the log, its clock and the queues where they end.
func (s *Store) startAppends() error {
	last := s.log.written.Load()
	if s.damage == nil && last >= s.log.min() {
		rec, err := s.log.readOne(last)
		if err != nil {
			return err
		}
		if s.mu.storeTime, err = storeTimeOfEntry(rec); err != nil {
			return damagef(s.log.dir, last, "%v", err)
		}
		s.log.active.newest.Store(s.mu.storeTime)
	} else if f := s.log.active; f != nil {
		s.mu.storeTime = f.header.created
	}
	if err := s.resumeOffsets(); err != nil {
		return err
	}
	if s.cfg.Throwaway { // nothing tells whether a topic was dropped in the last file
		s.dropped.Store(max(last, s.dropped.Load()))
	}
	s.mu.next = last + 1
	s.refuseLocked()
	s.log.frozen = s.damage != nil
	s.live = true
	return nil
}

// Positions are the marks of the log. Positions count records from 1.
type Positions struct {
	Min        int64 // first stored; 1 while the log is empty
	Written    int64 // last written; Min - 1 while the log is empty
	Synced     int64 // last known to be durable; equals Written in a throwaway store
	Dispatched int64 // last that can be read through its queue
}

// Positions returns the marks of the log. Safe for concurrent use; the marks
// are read one after the other and only grow.
func (s *Store) Positions() Positions {
	p := Positions{Min: s.log.min(), Dispatched: s.dispatched.Load(), Synced: s.log.synced.Load()}
	p.Written = s.log.written.Load()
	return p
}

// Cut is the number of records that were cut off the end of the log when the
// store was opened: at least 1 when anything was cut.
func (s *Store) Cut() int { return s.cut }

// Err tells why the store cannot be written: an error that is [ErrFenced],
// [ErrReadOnly] or [ErrDiskFull]. It is nil while it can be.
func (s *Store) Err() error {
	if err := s.fenced.Load(); err != nil {
		return *err
	}
	if full := s.guard.full.Load(); full != nil && s.damage == nil {
		return full
	}
	return s.damage
}

// fence stops all writing because of an I/O error and returns the error to give
// to those who wait. The first cause stays.
func (s *Store) fence(cause error) error {
	err := fmt.Errorf("store: %s: %w: %w", s.cfg.Dir, ErrFenced, cause)
	if isDiskFull(cause) {
		err = fmt.Errorf("store: %s: %w: %w: %w", s.cfg.Dir, ErrFenced, ErrDiskFull, cause)
	}
	if !s.fenced.CompareAndSwap(nil, &err) {
		return *s.fenced.Load()
	}
	s.mu.Lock()
	s.refuseLocked()
	s.mu.Unlock()
	s.cfg.Logger.Error("store: fenced; appends fail until it is repaired or opened anew", "dir", s.cfg.Dir, "err", cause)
	s.wakeFlusher()
	s.wakeJanitor()
	return err
}

// Close ends the store: appends under way finish, everything is synced, a
// checkpoint is written, and all handles and the lock are given back. It
// returns what went wrong; the store is closed all the same. Calls after the
// first wait for it and return the same, but for [ErrHookRunning].
func (s *Store) Close() error {
	return s.end(func() error {
		s.endAppends(true)
		var errs []error
		s.markSynced()
		if s.checkpointWanted() {
			if err := s.writeCheckpoint(s.fenced.Load() == nil); !errors.Is(err, errDropUnsynced) {
				errs = append(errs, err) // else the last one stands
			}
		}
		if s.damage == nil {
			errs = append(errs, s.log.dropPrepared())
		}
		closed := s.log.closeFiles(s.log.closing())
		if s.fenced.Load() != nil {
			closed = nil // known to be broken
		}
		return errors.Join(append(errs, closed, s.extents.close(), s.index.close())...)
	})
}

// Kill ends the store as a crash of the process would: nothing is synced on
// purpose, no checkpoint is written unless to give up a damaged consume queue,
// nothing is tidied up. Handles and the lock are given back, appends under way
// may or may not be stored. What the kernel holds of the files is not lost.
func (s *Store) Kill() error {
	return s.end(func() error {
		s.endAppends(false)
		closed := s.log.closeFiles(s.log.closing()) // a sync, which nobody can tell from a crash
		if s.fenced.Load() != nil {
			closed = nil // known to be broken
		}
		return errors.Join(closed, s.extents.close(), s.index.close())
	})
}

// PowerOff ends the store as a loss of power would: it does what Kill does, and
// then every byte is gone that no fsync has covered, and so is every file and
// folder whose name no fsync of its folder has. It is for tests of what depends on
// the store. The folder "config" is not touched: its owner syncs each change.
//
// It takes as much as a disk may; a real one often keeps more. For a throwaway
// store it does nothing but return an error.
func (s *Store) PowerOff() error {
	if s.cfg.Throwaway {
		return fmt.Errorf("store: folder %s is a throwaway one, nothing of it is ever synced; use a store with a folder that is kept", s.cfg.Dir)
	}
	return s.end(func() error {
		s.endAppends(false)
		closed := s.log.closeFiles((*logFile).closeUnsynced)
		return errors.Join(closed, s.extents.close(), s.index.close(), s.log.disk.ledger.cut())
	})
}

// Discard ends a throwaway store and removes its folder with all that is in it.
// For any other store it does nothing but return an error.
func (s *Store) Discard() error {
	if !s.cfg.Throwaway {
		return fmt.Errorf("store: folder %s is not a throwaway one; close the store and remove the folder if you mean it", s.cfg.Dir)
	}
	return s.end(func() error {
		s.endAppends(false)
		err := errors.Join(s.log.closeFiles(s.log.closing()), s.extents.close(), s.index.close(), unlockFile(s.lock))
		s.lock = nil // the folder could not be removed on Windows
		return errors.Join(err, os.RemoveAll(s.cfg.Dir))
	})
}

// end runs the first of several calls to end the store; the others wait for it.
func (s *Store) end(how func() error) error {
	if s.closed.Swap(true) {
		<-s.closeDone
		return s.ended()
	}
	s.closeErr = how()
	if s.lock != nil {
		s.closeErr = errors.Join(s.closeErr, unlockFile(s.lock))
	}
	close(s.closeDone)
	return s.ended()
}

// ended is the result of ending the store, once user code has returned, too.
func (s *Store) ended() error {
	if !s.awaitLook(hookPatience) {
		return errors.Join(s.closeErr, fmt.Errorf("store: folder %s is closed: %w", s.cfg.Dir, ErrHookRunning))
	}
	return s.closeErr
}

// endAppends refuses further appends, waits for those under way and ends the
// janitor and then the flusher, after one more sync if wanted.
func (s *Store) endAppends(sync bool) {
	s.mu.Lock()
	s.mu.ended = true
	s.refuseLocked()
	idle := s.idleLocked()
	s.mu.Unlock()
	if idle != nil {
		<-idle
	}
	s.background.Wait()
	s.confirm.mu.Lock() // a dispatch under way is the last
	s.confirm.ended = true
	s.confirm.mu.Unlock()
	s.janitor.end()
	s.flusher.last = sync
	close(s.flusher.stop)
	<-s.flusher.done
}
