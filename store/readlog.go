package store

import (
	"errors"
	"time"

	"github.com/tidwall/wal"
)

// LogBatch is a piece of the log as one store hands it to another: records that
// follow each other, all of one epoch.
type LogBatch struct {
	First int64 // position of the first record
	Epoch int64
	// Records are the log's records as they are stored, those of lost messages and
	// deleted topics too.
	Records [][]byte
}

// Last is the position of the last record; First - 1 when there is none.
func (b *LogBatch) Last() int64 { return b.First + int64(len(b.Records)) - 1 }

// ReadLog reads the log from a position on, whether it is confirmed or not: at least
// one record, and no more once they have maxBytes or their epoch ends. At the end of
// the log the batch is empty. The records are read-only, stay valid, and may share
// memory with the store.
//
// Errors: [ErrNoRecord] below the first position and more than one above the last;
// [ErrDamaged] with file and position; [ErrClosed]; those of the file system. It may
// block for reads from disk. Safe for concurrent use. Java:
// DefaultMessageStore.getCommitLogData.
func (s *Store) ReadLog(from int64, maxBytes int) (LogBatch, error) {
	if s.closed.Load() {
		return LogBatch{}, ErrClosed
	}
	b, err := s.log.readFrom(from, maxBytes)
	if err != nil {
		return LogBatch{}, s.recordError(from, err)
	}
	return b, nil
}

// LoggedAt is when the entry at a position was stored, whether it is confirmed or not; when
// it is not there any more, the oldest one behind it. False: it is not known. It may block
// for reads from disk. Safe for concurrent use.
func (s *Store) LoggedAt(position int64) (time.Time, bool) {
	b, err := s.ReadLog(max(position, s.log.min()), 1)
	if err != nil || len(b.Records) == 0 {
		return time.Time{}, false
	}
	millis, err := storeTimeOfEntry(b.Records[0])
	return time.UnixMilli(millis), err == nil
}

func (c *commitLog) readFrom(from int64, maxBytes int) (LogBatch, error) {
	written := c.written.Load()
	files := *c.files.Load()
	i := c.search(files, from)
	switch {
	case i < 0 || from > written+1:
		return LogBatch{}, ErrNoRecord
	case from == written+1:
		return LogBatch{First: from, Epoch: files[i].header.epoch}, nil
	}
	f := files[i]
	end := written
	if i+1 < len(files) {
		end = min(end, files[i+1].base-1)
	}
	b := LogBatch{First: from, Epoch: f.header.epoch}
	if done, err := f.readMemoryFrom(&b, end, maxBytes); done || err != nil {
		return b, err
	}
	sealed, done, err := c.sealed(files, i)
	if err != nil {
		return LogBatch{}, err
	}
	defer done()
	return b, sealed.readFrom(&b, end, maxBytes)
}

// readMemoryFrom reads records as long as the wal of the file is open; done is
// whether that was enough.
func (f *logFile) readMemoryFrom(b *LogBatch, end int64, maxBytes int) (done bool, err error) {
	log := f.log.Load()
	if log == nil {
		return false, nil
	}
	for position, bytes := b.First, 0; position <= end && (bytes < maxBytes || bytes == 0); position++ {
		entry, err := log.Read(uint64(position - f.base + 2))
		if errors.Is(err, wal.ErrClosed) {
			return len(b.Records) > 0, nil
		}
		rec := recordOf(entry)
		if err != nil || rec == nil {
			return false, damagef(f.path, position, "read: %v", err)
		}
		b.Records = append(b.Records, rec[:len(rec):len(rec)])
		bytes += len(rec)
	}
	return true, nil
}

// readFrom reads records from disk, into memory of their own.
func (f *sealedFile) readFrom(b *LogBatch, end int64, maxBytes int) error {
	cur, found := f.chain.cursors.take(f.logFile, b.First)
	if !found {
		cur = f.cursorAt(b.First)
	}
	cur.runs = max(cur.runs, scanRuns) // it goes on
	// As much as is wanted, or there; one record more may be part of it.
	data := make([]byte, 0, min(int64(maxBytes)+4<<10, max(f.index.size-cur.off, 0)))
	var ends []int
	err := func() error {
		for cur.position < b.First {
			if err := cur.skip(f, f.index.size); err != nil {
				return err
			}
		}
		for cur.position <= end && (len(data) < maxBytes || len(data) == 0) {
			entry, _, err := cur.fetch(f, f.index.size)
			if err != nil {
				return err
			}
			rec, n, ok := verify(entry, cur.position)
			if !ok {
				return f.damaged(cur.position, cur.off)
			}
			data = append(data, rec...)
			ends = append(ends, len(data))
			cur.step(n)
		}
		return nil
	}()
	if err != nil {
		f.chain.cursors.drop(&cur)
		return err
	}
	f.leave(cur)
	at := 0
	for _, e := range ends {
		b.Records = append(b.Records, data[at:e:e])
		at = e
	}
	return nil
}

// BytesBetween estimates how many bytes of the log lie behind position from, up to
// and including position to: exact to within a part of a file. Safe for concurrent
// use.
func (s *Store) BytesBetween(from, to int64) int64 {
	files := *s.log.files.Load()
	return max(0, s.log.bytesUpTo(files, to)-s.log.bytesUpTo(files, from))
}

// bytesUpTo is where in the log, in bytes, a position ends, as if all records of a
// file had one size.
func (c *commitLog) bytesUpTo(files []*logFile, position int64) int64 {
	i := c.search(files, position)
	if i < 0 {
		return files[0].header.bytes
	}
	f := files[i]
	last := c.written.Load()
	if i+1 < len(files) {
		last = files[i+1].base - 1
	}
	n := last - f.base + 1
	if n <= 0 {
		return f.header.bytes
	}
	return f.header.bytes + f.size.Load()*min(position-f.base+1, n)/n
}
