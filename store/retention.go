package store

import (
	"fmt"
	"sync"
	"time"
)

// Retention deletes whole files from the front of the log: those whose records
// are all older than Config.Retention, those that make the log larger than
// Config.RetentionBytes, and, with little space left on the disk, the oldest.
// The file that is written to goes too when all its records are too old: it is
// closed and an empty one begun, so an idle log shrinks to nothing.
//
// A deletion up to position p goes like this, and a crash after any part of it
// leaves a store that opens as one before or after the whole:
//
//	nothing at or above p has to change; all below p is synced
//	commitlog/first says p                  from here on it has happened
//	the queues forget their units below p   readers get "too small" from here on
//	the list of files becomes shorter
//	the folders of the files are removed; what a crash leaves of them lies
//	below commitlog/first and is removed by the next open
//	index files go: a checkpoint that still names them is read without
//	extent files that no queue refers to any more go after the next checkpoint
//
// No step holds Store.mu, and none keeps a lock of a queue while it reads, so
// neither the writer nor readers wait. A reader that took the list of files, or
// the units of a queue, before they became shorter may find a file missing: it
// looks at the minimum again, which has moved before the file went.
//
// Java: DefaultMessageStore.CleanCommitLogService, CleanConsumeQueueService.
//
// Differs: RocketMQ deletes at an hour of the day, by the time at which a file
// was changed, and never the last file.

// trimmer lets readers of the whole store keep its beginning where it is.
type trimmer struct {
	// mu guards pins, and is held by the janitor while it moves the beginning.
	mu   sync.Mutex
	pins int
}

// pin keeps the beginning of the log where it is until Store.unpin.
func (t *trimmer) pin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pins++
}

func (s *Store) unpin() {
	s.trimmer.mu.Lock()
	s.trimmer.pins--
	s.trimmer.mu.Unlock()
	s.wakeJanitor()
}

// retain deletes what is not to be kept any longer.
func (s *Store) retain() {
	if s.damage != nil {
		return
	}
	s.removeLeftovers()
	s.warnAhead()
	files := *s.log.files.Load()
	n, why, idle := s.expired(files)
	if n > 0 {
		if err := s.trim(files[n], why); err != nil {
			s.retainFailed(err)
			return
		}
	}
	if idle {
		s.rollIdle()
	}
}

// retainFailed reports why old files could not be deleted, once per reason.
func (s *Store) retainFailed(err error) {
	s.noteStale(err)
	if text := err.Error(); text != s.janitor.complaint {
		s.janitor.complaint = text
		s.cfg.Logger.Error("store: cannot delete old commit-log files; this is tried again", "dir", s.cfg.Dir, "err", err)
	}
}

// maxAhead is how far store times may be ahead of the clock without a word.
const maxAhead = time.Minute

// warnAhead tells of store times that are ahead of the clock, because that was put
// back: records are not older than Config.Retention before it has caught up.
func (s *Store) warnAhead() {
	files := *s.log.files.Load()
	last := files[len(files)-1]
	ahead := time.Duration(last.newest.Load()-nowMillis()) * time.Millisecond
	if s.cfg.Retention <= 0 || ahead < maxAhead {
		s.janitor.ahead = false
		return
	}
	if !s.janitor.ahead {
		s.janitor.ahead = true
		s.cfg.Logger.Warn("store: the clock was put back; messages get the last time before that, and none is deleted for its age, until it has caught up",
			"dir", s.cfg.Dir, "ahead", ahead)
	}
}

// expired is the number of files to delete, and the strongest reason for it. idle
// means that the last file, behind all of them, holds nothing either that is to be
// kept.
func (s *Store) expired(files []*logFile) (n int, why DeletionReason, idle bool) {
	deletable := files[len(files)-1].header.bytes - files[0].header.bytes
	size, space := int64(0), s.excessForSpace(deletable) // bytes to delete whatever their age
	if limit := s.cfg.RetentionBytes; limit > 0 {
		size = s.log.size() - limit
	}
	synced := s.indexUpTo() // of a log that has to be confirmed, what is in the queues
	cutoff := nowMillis() - s.cfg.Retention.Milliseconds()
	for ; n < len(files)-1; n++ {
		f, next := files[n], files[n+1]
		if f.log.Load() != nil || next.base-1 > synced {
			return n, why, false // the flusher is not done with it
		}
		switch {
		case s.cfg.Retention > 0 && s.newestIn(f, files[n+1:]) < cutoff:
			why = DeletedForAge
		case size > 0:
			why = DeletedForSize
		case space > 0:
			why = DeletedForSpace
		default:
			return n, why, false
		}
		size -= f.size.Load()
		space -= f.size.Load()
	}
	last := files[n]
	return n, why, s.cfg.Retention > 0 && s.log.written.Load() >= last.base && last.newest.Load() < cutoff
}

// newestIn is the store time of the last record of a full file. When that cannot
// be read, or the record is lost, it is the time at which a file behind was
// begun.
func (s *Store) newestIn(f *logFile, behind []*logFile) int64 {
	if t := f.newest.Load(); t != 0 {
		return t
	}
	end := behind[0].base
	t := int64(0)
	if rec, err := s.log.lastRecord(f, end); err == nil {
		t, _ = storeTimeOfEntry(rec) // 0 when it is not known
	}
	for i := 0; t <= 0 && i < len(behind); i++ {
		t = behind[i].header.created
	}
	f.newest.Store(t)
	return t
}

// trim makes file the first of the log and deletes all before it, unless a
// reader has pinned them.
func (s *Store) trim(file *logFile, why DeletionReason) error {
	gone, err := s.moveFirst(file)
	if err != nil || len(gone) == 0 {
		return err
	}
	s.janitor.complaint = ""
	d := Deletion{Reason: why, Files: len(gone), First: gone[0].base, Last: file.base - 1}
	say := s.cfg.Logger.Info
	if why == DeletedForSpace {
		say = s.cfg.Logger.Warn
	}
	say("store: deleted old commit-log files, with all messages in them", "dir", s.cfg.Dir,
		"reason", d.Reason, "files", d.Files, "from", d.First, "to", d.Last)
	if s.cfg.Deleted != nil {
		s.cfg.Deleted(d)
	}
	for _, f := range gone {
		s.janitor.leftovers = append(s.janitor.leftovers, leftover{f.dir, f.path})
	}
	s.removeLeftovers()
	if err := s.extents.retire(s.queues.lowestBlock(s.extents.nextBlock())); err != nil {
		return err
	}
	if err := s.index.trim(file.base); err != nil {
		return err
	}
	if s.cfg.Throwaway {
		return s.extents.remove() // without a checkpoint to come
	}
	s.janitor.checkpoint.Store(true)
	return nil
}

// moveFirst moves the beginning of the log, of its queues and of the list of
// files, and returns the files that are not in it any more.
func (s *Store) moveFirst(file *logFile) ([]*logFile, error) {
	s.trimmer.mu.Lock()
	defer s.trimmer.mu.Unlock()
	if s.trimmer.pins > 0 {
		return nil, nil
	}
	mark := firstMark{position: file.base, bytes: file.header.bytes, epoch: file.header.epoch}
	synced := s.log.proven.Load()
	var trims []queueTrim
	for _, q := range s.queues.all() {
		t, err := q.planTrim(&s.extents, file.base)
		if err != nil {
			return nil, fmt.Errorf("find the first kept offset: %w", err)
		}
		trims = append(trims, t)
		if !q.isVacant() && (t.first == 0 || t.first > synced) {
			mark.queues = append(mark.queues, queueStart{key: q.key, next: t.min})
		}
	}
	if s.dropped.Load() > s.keptUpTo() {
		// Queues have left the table by an entry that may still be lost, and then
		// the mark would miss them. It will be kept soon.
		return nil, nil
	}
	if err := mark.save(s.log.dir, s.log.disk); err != nil {
		return nil, fmt.Errorf("write %s: %w", firstName, err)
	}
	for _, t := range trims {
		if t.apply() {
			continue
		}
		if err := t.q.trim(&s.extents, file.base); err != nil {
			// The mark stands: the next open does the rest.
			return nil, fmt.Errorf("move the first kept offset: %w", err)
		}
	}
	return s.log.dropBefore(file), nil
}

// keptUpTo is the last position that no crash takes away. Of a throwaway store, of
// which a loss of power may take anything, only the last file counts.
func (s *Store) keptUpTo() int64 {
	if !s.cfg.Throwaway {
		return s.indexUpTo()
	}
	files := *s.log.files.Load()
	return min(s.dispatched.Load(), files[len(files)-1].base-1)
}

// trimQueues makes the queues forget all records before a position.
func (s *Store) trimQueues(before int64) error {
	for _, q := range s.queues.all() {
		if err := q.trim(&s.extents, before); err != nil {
			return err
		}
	}
	return nil
}

// dropBefore takes the files before one out of the list.
func (c *commitLog) dropBefore(file *logFile) []*logFile {
	for {
		old := c.files.Load()
		n := c.search(*old, file.base)
		kept := append([]*logFile(nil), (*old)[n:]...)
		if c.files.CompareAndSwap(old, &kept) {
			return (*old)[:n]
		}
	}
}

// leftover is a deleted log file that may still be on disk.
type leftover struct{ dir, path string }

// removeLeftovers removes deleted log files from disk, but not more of them than
// can be done before the store has to end, and looks after the next file in
// between.
func (s *Store) removeLeftovers() {
	var kept []leftover
	for i, f := range s.janitor.leftovers {
		if s.janitor.ending() {
			kept = append(kept, s.janitor.leftovers[i:]...) // the next open removes them
			break
		}
		s.prepareFile()
		if err := removeRead(&s.log.handles, s.log.disk, f.path, f.dir); err != nil {
			s.retainFailed(err)
			kept = append(kept, f)
		}
	}
	s.janitor.leftovers = kept
}

// DeletionReason says why records were deleted.
type DeletionReason string

// Reasons of a deletion.
const (
	DeletedForAge   DeletionReason = "age"   // Config.Retention
	DeletedForSize  DeletionReason = "size"  // Config.RetentionBytes
	DeletedForSpace DeletionReason = "space" // Config.MinFreeBytes
)

// Deletion tells of old records that were deleted, read or not.
type Deletion struct {
	Reason      DeletionReason // the strongest: age, then size, then space
	Files       int            // of the commit log
	First, Last int64          // positions of the records
}

// removeRead removes a path, all of it, after the handles through which file,
// which is or lies in it, is read have been let go: Windows would not remove it
// before, and others would not free its space.
func removeRead(h *handles, disk syncer, file, path string) error {
	h.forget(file)
	err := disk.remove(path)
	h.forget(file) // a reader may have come meanwhile
	return err
}

// rollIdle begins an empty file, so that the last one can be deleted. It does
// so only when nobody else writes: then the log is not idle.
func (s *Store) rollIdle() {
	s.mu.Lock()
	if s.mu.refuse != nil || s.mu.writing {
		s.mu.Unlock()
		return
	}
	s.mu.writing = true
	s.mu.Unlock()
	err := s.lead(&group{act: func() error {
		if err := s.log.startFile(nowMillis()); err != nil {
			return s.fence(fmt.Errorf("start a file: %w", err))
		}
		s.noteWritten(true)
		return nil
	}})
	if err == nil {
		s.wakeFlusher() // which closes the file
	}
}

// saveFirst writes commitlog/first anew, when the store opens.
func (s *Store) saveFirst() error {
	mark := firstMark{position: s.log.min(), bytes: s.log.origin.bytes, epoch: s.log.origin.epoch}
	if files := *s.log.files.Load(); len(files) > 0 {
		mark.bytes, mark.epoch = files[0].header.bytes, files[0].header.epoch
	}
	for _, q := range s.queues.all() {
		if v := q.view(); v.first == 0 && !q.isVacant() {
			mark.queues = append(mark.queues, queueStart{key: q.key, next: v.min})
		}
	}
	if err := mark.save(s.log.dir, s.log.disk); err != nil {
		return fmt.Errorf("write %s: %w", firstName, err)
	}
	return nil
}
