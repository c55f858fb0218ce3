package store

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// flusher is the goroutine of a store that somebody may wait for. It does every
// fsync of the log, closes the wals of full files, repairs and reports fencing.
// Close, Kill, PowerOff and Discard end it and wait for it.
type flusher struct {
	wake chan struct{} // capacity 1: a wake-up that nobody has taken serves all
	stop chan struct{} // closed once
	done chan struct{} // closed when it has ended
	last bool          // whether to sync once more before it ends; set before stop is closed

	// armed means that the flusher knows of unsynced data and will sync it
	// within the interval. Set by the leader, cleared before a sync begins.
	armed atomic.Bool
	// pressed means that the flusher must not wait for the interval to be over.
	pressed atomic.Bool

	// busy is there while an fsync is under way, and closed afterwards.
	busy atomic.Pointer[chan struct{}]
	// served and took are of the last sync that somebody waited for: how many
	// did, and how many nanoseconds it took.
	served, took atomic.Int64

	mu struct {
		sync.Mutex
		groups  []*group // written, waiting for their sync
		waiters int      // callers in groups
		repairs []*repairRequest
		closed  bool // nobody will serve groups any more
	}

	// broken means that a sync failed: the kernel may have dropped the data. Set
	// by the goroutine.
	broken   atomic.Bool
	reported bool // Config.Fenced has been called; owned by the goroutine
}

// maxUnsynced is how many bytes may be unsynced before the interval is over: the
// files that hold them are open, and in memory, until they have been synced.
const maxUnsynced = 32 << 20

// noteWritten tells the flusher and the janitor what a write left to do. Only
// the leader calls it. rolled means that the write began a file.
func (s *Store) noteWritten(rolled bool) {
	f := &s.flusher
	if !s.cfg.Throwaway && !f.armed.Load() && !f.armed.Swap(true) ||
		s.cfg.Throwaway && rolled { // a full file to close
		s.wakeFlusher()
	}
	if rolled && !s.cfg.Throwaway {
		s.brakeBehind() // before the flusher is woken, who takes it back
		if bytes, _ := s.log.unsynced(); bytes > maxUnsynced || s.brake.on.Load() {
			f.pressed.Store(true)
			s.wakeFlusher()
		}
	}
	if rolled && s.cfg.RetentionBytes > 0 && s.log.size() > s.cfg.RetentionBytes {
		s.wakeJanitor()
	}
	if s.log.halfFull() {
		s.janitor.prepare.Store(true)
		s.wakeJanitor()
	}
}

func (s *Store) wakeFlusher() {
	select {
	case s.flusher.wake <- struct{}{}:
	default:
	}
}

// enqueueSync lets the next sync serve a group that has been written.
func (s *Store) enqueueSync(g *group) {
	f := &s.flusher
	f.mu.Lock()
	closed := f.mu.closed
	if !closed {
		f.mu.groups = append(f.mu.groups, g)
		f.mu.waiters += g.waiters
	}
	f.mu.Unlock()
	if closed {
		g.flushErr = ErrClosed
		close(g.synced)
		return
	}
	s.wakeFlusher()
}

// awaitSync waits until the group is synced. position is the caller's last.
func (s *Store) awaitSync(ctx context.Context, g *group, position int64) error {
	timer := s.newTimer(s.cfg.FlushTimeout)
	defer s.putTimer(timer)
	for {
		select {
		case <-g.synced:
			if g.err != nil {
				return g.err
			}
			return g.flushErr
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if s.log.written.Load() >= position {
				return fmt.Errorf("store: position %d is written but not synced after %v: %w", position, s.cfg.FlushTimeout, ErrFlushTimeout)
			}
			timer.Reset(s.cfg.FlushTimeout)
		}
	}
}

func (s *Store) newTimer(d time.Duration) *time.Timer {
	if timer, ok := s.timers.Get().(*time.Timer); ok {
		timer.Reset(d)
		return timer
	}
	return time.NewTimer(d)
}

func (s *Store) putTimer(timer *time.Timer) {
	timer.Stop()
	s.timers.Put(timer)
}

// Sync makes everything appended so far durable and waits for it. It fails with
// [ErrFenced], [ErrClosed] or the error of ctx. In a throwaway store it does
// nothing. Safe for concurrent use.
func (s *Store) Sync(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if s.cfg.Throwaway || s.log.synced.Load() >= s.log.written.Load() {
		return nil
	}
	g := &group{waiters: 1, synced: make(chan struct{})}
	s.enqueueSync(g)
	select {
	case <-g.synced:
		return g.flushErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) runFlusher() {
	f := &s.flusher
	defer close(f.done)
	var flush <-chan time.Time // nil while there is nothing to wait for
	for {
		due := false
		select {
		case <-f.wake:
			due = f.pressed.Swap(false)
		case <-flush:
			flush, due = nil, true
		case <-f.stop:
			s.endFlusher()
			return
		}
		if !s.cfg.Disk.ready(f.stop) {
			s.endFlusher()
			return
		}
		if f.armed.Load() && flush == nil {
			flush = time.After(s.cfg.FlushInterval)
		}
		s.flush(due)
		s.releaseBrake(false)
		s.serveRepairs()
		if !s.cfg.Throwaway && (s.checkpointWanted() || s.proofWanted()) && !s.janitor.checkpoint.Swap(true) {
			s.wakeJanitor()
		}
		s.reportFenced()
	}
}

// endFlusher serves those who still wait and, for a clean end, syncs.
func (s *Store) endFlusher() {
	f := &s.flusher
	f.mu.Lock()
	f.mu.closed = true
	f.mu.Unlock()
	if f.last {
		s.flush(true)
	}
	s.releaseBrake(true)
	for _, g := range f.take() {
		g.flushErr = ErrClosed
		close(g.synced)
	}
	f.mu.Lock()
	repairs := f.mu.repairs
	f.mu.Unlock()
	for _, r := range repairs {
		r.err = ErrClosed
		close(r.done)
	}
	s.reportFenced()
}

// flush syncs when somebody waits for it or the interval is over, and closes
// what the sync made superfluous.
func (s *Store) flush(due bool) {
	f := &s.flusher
	f.gather()
	groups := f.take()
	var err error
	if len(groups) > 0 || due {
		busy := make(chan struct{})
		f.busy.Store(&busy)
		f.armed.Store(false) // before the sync looks how far it has to go
		begin := time.Now()
		err = s.syncLog()
		if len(groups) > 0 {
			f.took.Store(int64(time.Since(begin)))
		}
		f.busy.Store(nil)
		defer close(busy) // after those who waited have been told
	}
	if len(groups) > 0 || due || s.cfg.Throwaway {
		if e := s.log.retire(); e != nil && err == nil {
			err = s.fence(fmt.Errorf("close a full file: %w", e))
		}
	}
	for _, g := range groups {
		g.flushErr = err
		close(g.synced)
	}
}

// syncLog syncs the log unless that has failed before: after a failed fsync the
// kernel may have dropped the data, and a second one would succeed for nothing.
func (s *Store) syncLog() error {
	f := &s.flusher
	if f.broken.Load() {
		return s.Err()
	}
	if err := s.log.sync(); err != nil {
		f.broken.Store(true)
		return s.fence(fmt.Errorf("sync: %w", err))
	}
	if s.cfg.Synced != nil && !s.cfg.Throwaway {
		s.cfg.Synced(s.log.synced.Load())
	}
	return nil
}

// gather lets appenders run as long as more of them come to wait, when the
// last sync served more than one: those it released come back together.
func (f *flusher) gather() {
	for range maxGather {
		f.mu.Lock()
		before := f.mu.waiters
		f.mu.Unlock()
		if before == 0 || f.served.Load() <= 1 {
			return
		}
		runtime.Gosched()
		f.mu.Lock()
		after := f.mu.waiters
		f.mu.Unlock()
		if after == before {
			return
		}
	}
}

func (f *flusher) take() []*group {
	f.mu.Lock()
	defer f.mu.Unlock()
	groups := f.mu.groups
	if len(groups) > 0 {
		f.served.Store(int64(f.mu.waiters))
	}
	f.mu.groups, f.mu.waiters = nil, 0
	return groups
}

// reportFenced calls Config.Fenced once.
func (s *Store) reportFenced() {
	err := s.fenced.Load()
	if err == nil || s.flusher.reported {
		return
	}
	s.flusher.reported = true
	if s.cfg.Fenced != nil {
		s.cfg.Fenced(*err)
	}
}
