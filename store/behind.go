package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// What is not synced is in memory, and the files it is in are open. A disk that
// takes writes faster than it syncs them, or whose fsync hangs, would make both
// grow without end. Above one of these limits appends wait for the flusher, as
// long as they would for their own fsync, and are refused then.
const (
	maxBehindBytes = 256 << 20
	maxBehindFiles = 256
)

// brake holds appends up while too much is not synced. The leader puts it on,
// the flusher takes it off.
type brake struct {
	on atomic.Bool // whether room is there

	mu    sync.Mutex // guards what follows
	room  chan struct{}
	since time.Time // when it was put on
}

// tooFarBehind reports whether more is not synced than may be.
func (c *commitLog) tooFarBehind() bool {
	bytes, files := c.unsynced()
	return bytes > maxBehindBytes || files > maxBehindFiles
}

// brakeBehind puts the brake on when a new file has made that necessary.
func (s *Store) brakeBehind() {
	if !s.log.tooFarBehind() || s.brake.on.Load() {
		return
	}
	s.brake.mu.Lock()
	s.brake.room, s.brake.since = make(chan struct{}), time.Now()
	s.brake.on.Store(true)
	s.brake.mu.Unlock()
	bytes, files := s.log.unsynced()
	s.cfg.Logger.Warn("store: the disk does not keep up with syncing; appends wait for it", "dir", s.cfg.Dir, "unsynced", bytes, "files", files)
}

// releaseBrake takes the brake off when enough has been synced, or when nothing
// will be any more. Only the flusher calls it, after each sync.
func (s *Store) releaseBrake(ended bool) {
	if !s.brake.on.Load() {
		return
	}
	if !ended && s.fenced.Load() == nil && s.log.tooFarBehind() {
		s.flusher.pressed.Store(true)
		s.wakeFlusher()
		return
	}
	s.brake.mu.Lock()
	close(s.brake.room)
	s.brake.room = nil
	s.brake.on.Store(false)
	s.brake.mu.Unlock()
}

// awaitRoom waits while the brake is on: until it is off, for FlushTimeout, or
// for ctx.
func (s *Store) awaitRoom(ctx context.Context) error {
	s.brake.mu.Lock()
	room := s.brake.room
	s.brake.mu.Unlock()
	if room == nil {
		return nil
	}
	timer := s.newTimer(s.cfg.FlushTimeout)
	defer s.putTimer(timer)
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		if err := s.Behind(); err != nil {
			return err
		}
		return nil
	}
}

// Behind says why appends have to wait now: so much is not synced that no more may
// be added. It is [ErrBehind], or nil when they need not. Safe for concurrent use.
func (s *Store) Behind() error {
	if !s.brake.on.Load() {
		return nil
	}
	s.brake.mu.Lock()
	since := s.brake.since
	s.brake.mu.Unlock()
	bytes, files := s.log.unsynced()
	return fmt.Errorf("store: %s: %w: %d MiB in %d files wait for fsync, for %v; look at the disk, or send less",
		s.cfg.Dir, ErrBehind, bytes>>20, files, time.Since(since).Round(time.Millisecond))
}
