package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Beginning is where a log begins whose older files have been deleted, with all that
// its records do not tell: what another store needs to hold the same log from there
// on.
type Beginning struct {
	Position int64 // of the first record
	Bytes    int64 // size of all before it
	Epoch    int64 // of the record before it
	Queues   []QueueStart
}

// QueueStart is where a queue goes on.
type QueueStart struct {
	Topic string
	ID    int
	Next  int64 // offset of the first record that the log holds, or will hold
}

// Beginning tells where the log begins now. Safe for concurrent use.
func (s *Store) Beginning() Beginning {
	s.trimmer.mu.Lock() // nothing is deleted meanwhile
	defer s.trimmer.mu.Unlock()
	first := (*s.log.files.Load())[0]
	b := Beginning{Position: first.base, Bytes: first.header.bytes, Epoch: first.header.epoch}
	if first.base == 1 {
		return b
	}
	for _, q := range s.queues.all() {
		if !q.isVacant() {
			b.Queues = append(b.Queues, QueueStart{Topic: q.key.Topic, ID: q.key.ID, Next: q.bounds().Min})
		}
	}
	return b
}

// BeginningOfLastFile is Beginning for a log that is to begin with what is the last file
// now. It may block for reads from disk. Errors: those of [Store.Append] and
// [Store.ReadLog]. Safe for concurrent use. Java: the start of a slave with
// isSyncFromLastFile.
func (s *Store) BeginningOfLastFile(ctx context.Context) (Beginning, error) {
	next := make(map[QueueID]int64) // of all queues, behind position end
	var end int64
	note := func() error {
		for _, q := range s.queues.all() {
			next[q.key] = q.next
		}
		end = s.mu.next - 1
		return nil
	}
	var b Beginning
	err := s.alone(ctx, note, func() error {
		files := *s.log.files.Load()
		last := files[len(files)-1]
		b = Beginning{Position: last.base, Bytes: last.header.bytes, Epoch: last.header.epoch}
		return nil
	})
	if err != nil || b.Position == 1 {
		return b, err
	}
	// Back to where the file begins: a queue that has records in it begins with the
	// first of them.
	seen := make(map[QueueID]bool)
	for at := b.Position; at <= end; {
		batch, err := s.ReadLog(at, confirmBytes)
		if err != nil {
			return Beginning{}, err
		}
		for i, rec := range batch.Records {
			r, err := slotOf(s.log.dir, at+int64(i), rec)
			if err != nil {
				return Beginning{}, err
			}
			if !r.drop && !r.silent && !seen[r.key] {
				seen[r.key], next[r.key] = true, r.offset
			}
		}
		at = batch.Last() + 1
	}
	for key, n := range next {
		b.Queues = append(b.Queues, QueueStart{Topic: key.Topic, ID: key.ID, Next: n})
	}
	return b, nil
}

// beginAt makes a log that is not there yet begin as Config.Begin says.
func (s *Store) beginAt(b *Beginning) error {
	if b == nil || b.Position <= 1 {
		return nil
	}
	mark := firstMark{position: b.Position, bytes: b.Bytes, epoch: b.Epoch}
	for _, q := range b.Queues {
		mark.queues = append(mark.queues, queueStart{key: QueueID{q.Topic, q.ID}, next: q.Next})
	}
	if parsed, ok := parseFirst(mark.encode()); !ok || parsed.bytes < 0 {
		return fmt.Errorf("store: Config.Begin is not where a log can begin: position %d, %d bytes, epoch %d", b.Position, b.Bytes, b.Epoch)
	}
	var r recovery
	r.first = 1
	if err := s.log.find(&r); err != nil {
		return err
	}
	old, bad, err := loadFirst(s.log.dir)
	switch {
	case err != nil:
		return err
	case bad || len(r.files) > 0 || old != nil && old.position != b.Position:
		return fmt.Errorf("store: folder %s holds a log already, it cannot begin at position %d; open it without Config.Begin, or clear it first: %w", s.cfg.Dir, b.Position, ErrNotAStore)
	}
	return mark.save(s.log.dir, s.log.disk)
}

// Clear removes the log and all that is derived from it from the folder of a store
// that is not open, so that a new log can begin there. What else is in the folder
// stays. A crash leaves the log as it was, or none. Errors: [ErrInUse], [ErrForeign],
// those of the file system.
func Clear(cfg Config) error {
	cfg = cfg.withDefaults()
	disk, unlock, err := borrowToChange(cfg)
	if err != nil {
		return err
	}
	return errors.Join(clearFolder(cfg.Dir, disk), unlock())
}

func clearFolder(dir string, disk syncer) error {
	log := filepath.Join(dir, commitLogName)
	gone := log + tempSuffix
	// First what would prove that there was more: then the log, at once.
	if err := errors.Join(disk.remove(gone), disk.remove(filepath.Join(dir, checkpointName)), disk.dir(dir)); err != nil {
		return err
	}
	if err := disk.rename(log, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := disk.dir(dir); err != nil {
		return err
	}
	return errors.Join(disk.remove(gone), disk.remove(filepath.Join(dir, queuesName)), disk.remove(filepath.Join(dir, indexName)))
}

// borrowToChange locks a folder that belongs to the broker of cfg.
func borrowToChange(cfg Config) (syncer, func() error, error) {
	if err := cfg.validate(); err != nil {
		return syncer{}, nil, err
	}
	disk := durable()
	if cfg.Throwaway {
		disk = volatile()
	}
	lock, err := claimDir(cfg, disk)
	if err != nil {
		return syncer{}, nil, err
	}
	return disk, func() error { return unlockFile(lock) }, nil
}
