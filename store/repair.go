package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidwall/wal"
)

// Repair makes a fenced store one that can be written again, in place, and
// readers never notice. It is what opening anew does, without the scan: all that
// was acknowledged is known, and the memory of the wals has it.
//
//	nobody writes: appends are refused, and the last leader has finished
//	what is not known to be synced is written once more, from memory. An fsync
//	that failed may have dropped it, and only a write makes the kernel take it
//	up again
//	the last file is cut to what was acknowledged; of a write that failed a part
//	may lie behind
//	all of that is synced, read back and verified
//	the last file gets a new wal: what the old one has in memory is not what the
//	file holds
//	positions and offsets go on behind what is stored
//
// The flusher does it, so nothing else syncs meanwhile. Whatever fails leaves
// the store fenced, with all there was, and can be tried again.

// probeBytes is how much is written for a test, and taken away again, when a
// write failed for a lack of space.
const probeBytes = 64 << 10

// repairRequest is one call of Repair.
type repairRequest struct {
	done chan struct{} // closed when err is set
	err  error
}

// Repair makes a store that is fenced after a failed write or sync take appends
// again. Nothing that was acknowledged is lost, and reads go on meanwhile. It
// does nothing to a store that is not fenced.
//
// The store does it by itself, within Config.CleanInterval, when a write failed
// for a lack of space and there is space again. After another error call it when
// you know that the disk is good; opening the store anew does the same.
//
// Errors: [ErrFenced] with what failed: the store stays as it was; [ErrReadOnly];
// [ErrClosed]; that of ctx, and then it may still be done. Safe for concurrent
// use.
func (s *Store) Repair(ctx context.Context) error {
	if s.closed.Load() {
		return ErrClosed
	}
	if s.damage != nil {
		return s.damage
	}
	r := s.requestRepair()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requestRepair lets the flusher repair the store.
func (s *Store) requestRepair() *repairRequest {
	f := &s.flusher
	r := &repairRequest{done: make(chan struct{})}
	f.mu.Lock()
	closed := f.mu.closed
	if !closed {
		f.mu.repairs = append(f.mu.repairs, r)
	}
	f.mu.Unlock()
	if closed {
		r.err = ErrClosed
		close(r.done)
		return r
	}
	s.wakeFlusher()
	return r
}

// repairWhenSpace asks for a repair when the store was fenced for a lack of
// space. Whether there is space again, the repair itself finds out.
func (s *Store) repairWhenSpace() {
	if err := s.fenced.Load(); err != nil && lacksSpace(*err) && s.guard.full.Load() == nil {
		s.requestRepair()
	}
}

// serveRepairs repairs the store for those who asked. Only the flusher calls it.
func (s *Store) serveRepairs() {
	f := &s.flusher
	f.mu.Lock()
	requests := f.mu.repairs
	f.mu.repairs = nil
	f.mu.Unlock()
	if len(requests) == 0 {
		return
	}
	s.reportFenced() // before it is over
	err := s.repair()
	for _, r := range requests {
		r.err = err
		close(r.done)
	}
}

// repair does the work of Repair.
func (s *Store) repair() error {
	fenced := s.fenced.Load()
	if fenced == nil {
		return nil
	}
	if err := s.awaitLeaders(); err != nil {
		return err
	}
	err := s.log.repair(lacksSpace(*fenced))
	if err == nil {
		err = s.extents.write() // or the next append would meet the same error
	}
	if err != nil {
		s.cfg.Logger.Warn("store: the repair failed, the store stays fenced", "dir", s.cfg.Dir, "err", err)
		return fmt.Errorf("%w; repair: %w", *fenced, err)
	}
	if err := s.resumeOffsets(); err != nil {
		return fmt.Errorf("%w; repair: %w", *fenced, err)
	}
	s.flusher.broken.Store(false)
	s.janitor.checkpoint.Store(true) // what is written is synced now
	s.wakeJanitor()
	s.mu.Lock()
	written := s.log.written.Load()
	lost := s.mu.next - 1 - written
	s.mu.next = written + 1
	s.fenced.Store(nil)
	s.refuseLocked()
	s.mu.Unlock()
	s.flusher.reported = false
	s.cfg.Logger.Info("store: repaired; appends go on", "dir", s.cfg.Dir, "refused records", lost)
	if s.cfg.Repaired != nil {
		s.cfg.Repaired(int(lost))
	}
	return nil
}

// awaitLeaders waits until nobody leads. Appends are refused, so nobody begins
// to, and each leader gives up at once.
func (s *Store) awaitLeaders() error {
	s.mu.Lock()
	idle := s.idleLocked()
	s.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-s.flusher.stop:
		return ErrClosed
	}
}

// idleLocked is closed when nobody leads any more; nil when nobody does.
func (s *Store) idleLocked() chan struct{} {
	if s.mu.writing && s.mu.idle == nil {
		s.mu.idle = make(chan struct{})
	}
	return s.mu.idle
}

// repair makes the files what was written successfully, and durable. Only the
// flusher calls it, and nobody writes.
func (c *commitLog) repair(probe bool) error {
	written := c.written.Load()
	active := c.active
	if active.rw == nil {
		return fmt.Errorf("file %s could not be begun; open the store anew", active.path)
	}
	if next := newLogFile(c.dir, fileHeader{base: written + 1}); active.base != next.base {
		if err := c.disk.remove(next.dir); err != nil { // begun in vain
			return err
		}
	}
	files := *c.files.Load()
	for i := max(0, c.search(files, c.synced.Load()+1)); i < len(files); i++ {
		if err := c.restore(files[i], min(c.synced.Load()+1, written+1)); err != nil {
			return err
		}
	}
	if probe {
		if err := c.disk.write(active.rw, make([]byte, probeBytes), active.size.Load()); err != nil {
			return errors.Join(err, c.disk.truncate(active.rw, active.size.Load()))
		}
	}
	if err := c.disk.truncate(active.rw, active.size.Load()); err != nil {
		return err
	}
	if !c.throwaway {
		for i := max(0, c.search(files, c.synced.Load()+1)); i < len(files); i++ {
			if err := errors.Join(c.disk.file(files[i].rw), c.disk.dir(files[i].dir), c.disk.dir(c.dir)); err != nil {
				return err
			}
			files[i].listed, files[i].durable = true, true
		}
	}
	if !active.headerDue {
		if err := c.scanFile(active, active.base, written, func(logEntry) error { return nil }); err != nil {
			return err
		}
	}
	log, err := active.openLog(written - active.base + 1)
	if err != nil {
		return err
	}
	_ = closeWalUnsynced(active.log.Swap(log)) // all is synced, and readers of its memory go on
	c.batch, c.pending = wal.Batch{}, 0
	steps := (written - active.base + indexStep) / indexStep
	active.offsets = active.offsets[:min(steps, int64(len(active.offsets)))]
	c.publishSynced(written)
	return nil
}

// restore writes the entries of a file from a position on once more, from the
// memory of its wal, and the header with the first of them.
func (c *commitLog) restore(f *logFile, from int64) error {
	log := f.log.Load()
	if log == nil || f.size.Load() == 0 {
		return nil // synced, or nothing is in it
	}
	index, off := uint64(1), int64(0)
	if from > f.base {
		step := f.step(from)
		if step >= int64(len(f.offsets)) {
			return nil // it has no such record
		}
		index, off = uint64(step*indexStep+2), f.offsets[step]
	}
	size := f.size.Load()
	var buf []byte
	flush := func() error {
		err := c.disk.write(f.rw, buf, off)
		off += int64(len(buf))
		buf = buf[:0]
		return err
	}
	for at := off; at < size; index++ {
		entry, err := log.Read(index)
		if err != nil {
			return fmt.Errorf("entry %d of %s: %w", index, f.path, err)
		}
		buf = append(binary.AppendUvarint(buf, uint64(len(entry))), entry...)
		at += storedSize(len(entry))
		if len(buf) >= maxGroupBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
