package store

import "time"

// DefaultCleanInterval is the default of [Config].CleanInterval.
const DefaultCleanInterval = 10 * time.Second

// janitor is the second goroutine of a store. It does what nobody waits for, so
// that the flusher has nothing to do but what somebody does wait for. Close,
// Kill and Discard end it and wait for it, after the last appender and before
// the flusher.
type janitor struct {
	wake chan struct{} // capacity 1: a wake-up that nobody has taken serves all
	stop chan struct{} // closed once
	done chan struct{} // closed when it has ended
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
	var tick <-chan time.Time // nil while there is nothing to watch
	for {
		if tick == nil && s.watching() {
			tick = time.After(s.cfg.CleanInterval)
		}
		select {
		case <-j.wake:
		case <-tick:
			tick = nil
		case <-j.stop:
			return
		}
		s.tidy()
	}
}

// watching reports whether something has to be looked at even though nobody
// wakes the janitor for it.
func (s *Store) watching() bool {
	return false
}

// tidy does the jobs of the janitor. Each returns at once when it has nothing to
// do, reports its own errors, and leaves what it could not do to a later call.
func (s *Store) tidy() {
}
