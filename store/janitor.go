package store

import (
	"errors"
	"sync/atomic"
	"time"
)

// DefaultCleanInterval is the default of [Config].CleanInterval.
const DefaultCleanInterval = 10 * time.Second

// janitor is the second goroutine of a store. It does what nobody waits for, so
// that the flusher has nothing to do but what somebody does wait for: it prepares
// the next file, writes the key index, what is synced and the checkpoints, looks at
// the disk and deletes old files. Close, Kill, PowerOff and Discard end it and wait
// for it, after the last appender and before the flusher.
type janitor struct {
	wake chan struct{} // capacity 1: a wake-up that nobody has taken serves all
	stop chan struct{} // closed once
	done chan struct{} // closed when it has ended

	prepare    atomic.Bool // the next file is wanted
	checkpoint atomic.Bool // it knows of something for a checkpoint, and will write one within the interval

	// Owned by the goroutine.
	dropped   bool // the checkpoint no longer holds the queues; see dropStale
	leftovers []leftover
	ahead     bool   // that store times are ahead of the clock has been logged
	complaint string // the last error that was logged about deleting files
}

func (j *janitor) init() {
	j.wake = make(chan struct{}, 1)
	j.stop = make(chan struct{})
	j.done = make(chan struct{})
}

// end ends the goroutine and waits for it.
func (j *janitor) end() {
	close(j.stop)
	<-j.done
}

// ending reports whether the goroutine is to end: a job of many parts gives up
// between two of them.
func (j *janitor) ending() bool {
	select {
	case <-j.stop:
		return true
	default:
		return false
	}
}

// wakeJanitor makes the janitor look for work now. It never blocks.
func (s *Store) wakeJanitor() {
	select {
	case s.janitor.wake <- struct{}{}:
	default:
	}
}

func (s *Store) runJanitor() {
	j := &s.janitor
	defer close(j.done)
	var tick, checkpoint <-chan time.Time // nil while there is nothing to wait for
	for {
		if tick == nil && s.watching() {
			tick = time.After(s.cfg.CleanInterval)
		}
		if checkpoint == nil && j.checkpoint.Load() {
			checkpoint = time.After(s.cfg.CheckpointInterval)
		}
		ticked, due := false, false
		select {
		case <-j.wake:
		case <-tick:
			tick, ticked = nil, true
		case <-checkpoint:
			checkpoint, due = nil, true
			j.checkpoint.Store(false) // before it is looked how far it has to go
		case <-j.stop:
			s.dropStale()
			return
		}
		if !s.cfg.Disk.ready(j.stop) {
			s.dropStale()
			return
		}
		s.tidy(ticked, due)
	}
}

// watching reports whether something has to be looked at even though nobody
// wakes the janitor for it.
func (s *Store) watching() bool {
	if s.damage != nil {
		return false
	}
	if s.cfg.Retention > 0 || s.cfg.RetentionBytes > 0 || s.cfg.MinFreeBytes > 0 {
		return true
	}
	err := s.fenced.Load()
	return err != nil && lacksSpace(*err)
}

// tidy does the jobs of the janitor. Each returns at once when it has nothing to
// do, reports its own errors, and leaves what it could not do to a later call.
// ticked means that it is time for what is not done at once, and checkpointDue
// that it is time for a checkpoint.
func (s *Store) tidy(ticked, checkpointDue bool) {
	s.prepareFile()
	s.writeIndex()
	s.dropStale()
	s.measureDisk()
	s.retain()
	if ticked {
		s.repairWhenSpace()
	}
	if checkpointDue {
		s.tidyCheckpoint()
	}
}

// prepareFile makes the next commit-log file ahead of time, when the leader
// wants it.
func (s *Store) prepareFile() {
	if !s.janitor.prepare.Swap(false) {
		return
	}
	if err := s.log.prepareNext(); err != nil {
		s.cfg.Logger.Warn("store: cannot prepare the next commit-log file; it is made when it is needed", "dir", s.cfg.Dir, "err", err)
	}
}

// tidyCheckpoint writes down what is synced, and a checkpoint when that is worth
// it.
func (s *Store) tidyCheckpoint() {
	s.markSynced()
	if s.cfg.Throwaway || !s.checkpointWanted() {
		return
	}
	err := s.writeCheckpoint(false)
	if errors.Is(err, errDropUnsynced) {
		s.janitor.checkpoint.Store(true) // it will be synced soon
		return
	}
	if err != nil {
		// Nothing is lost: the last one stands, and more is replayed.
		s.cfg.Logger.Warn("store: no checkpoint; the next is tried later", "dir", s.cfg.Dir, "err", err)
		s.janitor.checkpoint.Store(true)
	}
}
