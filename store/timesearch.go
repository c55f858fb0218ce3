package store

import (
	"errors"
	"math"
	"time"
)

// Boundary says which offset a search for a time gives. Java: BoundaryType.
type Boundary int

const (
	// LowerBoundary is the first record stored at the time or later; Max when
	// all are older.
	LowerBoundary Boundary = iota
	// UpperBoundary is the last record stored at the time or earlier; Min when
	// all are newer.
	UpperBoundary
)

// String is RocketMQ's name of the boundary.
func (b Boundary) String() string {
	if b == UpperBoundary {
		return "UPPER"
	}
	return "LOWER"
}

// OffsetByTime finds the offset of a queue that belongs to a time, by the store
// times of its records, which grow with their offsets. Store times count
// milliseconds, so what t has beyond them does not count. The offset lies within
// the bounds of the queue, and Max is possible; it is Min = Max for an empty queue
// and 0 for an unknown one. Java: ConsumeQueue.getOffsetInQueueByTime.
//
// Errors: [ErrClosed], [ErrDamaged] with file and position, those of the file
// system. It may block for some reads from disk: besides the units, the first
// records of some files and then records of one file. Safe for concurrent use.
func (s *Store) OffsetByTime(topic string, queueID int, t time.Time, b Boundary) (int64, error) {
	if s.closed.Load() {
		return 0, ErrClosed
	}
	q := s.queues.get(QueueID{topic, queueID})
	if q == nil {
		return 0, nil
	}
	millis := millisOf(t)
	if b == UpperBoundary {
		if millis == math.MaxInt64 {
			return max(q.bounds().Max-1, q.bounds().Min), nil
		}
		millis++ // the last one before the first that is newer
	}
	offset, err := s.firstNotBefore(q, millis)
	if err != nil {
		return 0, err
	}
	if b == UpperBoundary {
		offset--
	}
	return max(offset, q.bounds().Min), nil
}

// millisOf is a time in milliseconds, or the nearest that there is.
func millisOf(t time.Time) int64 {
	switch sec := t.Unix(); {
	case sec > math.MaxInt64/1000-1:
		return math.MaxInt64
	case sec < math.MinInt64/1000+1:
		return math.MinInt64
	}
	return t.UnixMilli()
}

// firstNotBefore is the first offset of a queue whose record was stored at a
// time or later. A unit without a record counts as the one behind it, and one
// whose record has been deleted meanwhile is before any time.
func (s *Store) firstNotBefore(q *queue, millis int64) (int64, error) {
	v := q.view()
	lo, hi := max(v.base, q.bounds().Min), v.max()
	var skip skipper
	for lo < hi {
		mid := lo + (hi-lo)/2
		probe, err := s.nextRecord(q, &v, mid, hi, &skip)
		if err != nil {
			return 0, err
		}
		if probe >= hi {
			hi = mid
			continue
		}
		before, err := s.storedBefore(q, &v, probe, millis)
		switch {
		case err != nil:
			return 0, err
		case before:
			lo = probe + 1
		default:
			hi = mid
		}
	}
	return lo, nil
}

// skipper remembers the last run of units without a record that was passed over.
type skipper struct{ from, to int64 }

// nextRecord is the first offset from one on whose unit has a record, or was
// deleted meanwhile; to when there is none before. A salvage may have left hundreds
// of thousands of units without one in a row: they are looked at once.
func (s *Store) nextRecord(q *queue, v *view, from, to int64, skip *skipper) (int64, error) {
	at := from
	for at < to && at >= q.bounds().Min {
		if at >= skip.from && at < skip.to {
			at = skip.to
			continue
		}
		units, err := v.units(&s.extents, at)
		if err != nil {
			if at < q.bounds().Min { // its block may just have gone
				break
			}
			return 0, s.readError(GetRequest{Topic: q.key.Topic, QueueID: q.key.ID, Offset: at}, err)
		}
		n := int64(len(units) / unitSize)
		i := int64(0)
		for i < n && unitAt(units, int(i)).size == 0 {
			i++
		}
		at += i
		if i < n {
			break
		}
	}
	if at > from {
		if from == skip.to {
			from = skip.from
		}
		*skip = skipper{from, at}
	}
	return min(at, to), nil
}

// storedBefore reports whether the record at an offset was stored before a
// time. The first records of its file and of the next one mostly tell, so that
// no more than one file is read in other places.
func (s *Store) storedBefore(q *queue, v *view, offset, millis int64) (bool, error) {
	u, err := s.unitOf(q, v, offset)
	if errors.Is(err, ErrNoRecord) && offset < q.bounds().Min {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	files := *s.log.files.Load()
	i := s.log.search(files, u.position)
	if i < 0 {
		return true, nil
	}
	if t, ok := s.log.firstStoreTime(files, i); ok && t >= millis {
		return false, nil
	}
	if t, ok := s.log.firstStoreTime(files, i+1); ok && t < millis {
		return true, nil
	}
	t, err := s.storeTimeOf(q, v, offset)
	if errors.Is(err, ErrNoRecord) && u.position < s.log.min() {
		return true, nil
	}
	return t < millis, err
}

// firstStoreTime is the store time of the first record of file i. ok is false
// when it has none yet or cannot be read: whoever reads that record meets the
// error himself. A file's header has a time, too, but the clock may have been
// put back between that and the record.
func (c *commitLog) firstStoreTime(files []*logFile, i int) (millis int64, ok bool) {
	if i >= len(files) {
		return 0, false
	}
	f := files[i]
	if t := f.firstTime.Load(); t != 0 {
		return t, true
	}
	var rec []byte
	var err error
	if f.log.Load() != nil {
		rec, err = c.record(f.base)
	} else {
		rec, err = c.firstRecord(f)
	}
	if err != nil {
		return 0, false
	}
	// That of a lost one lies between those around it, which is all that is asked.
	if millis, err = storeTimeOfEntry(rec); err != nil {
		return 0, false
	}
	if i+1 < len(files) { // else it may still be torn off and written anew
		f.firstTime.Store(millis)
	}
	return millis, true
}

// firstRecord reads the first record of a sealed file without its index.
func (c *commitLog) firstRecord(f *logFile) ([]byte, error) {
	fd, err := c.handles.acquire(f.path)
	if err != nil {
		return nil, err
	}
	defer c.handles.release(fd)
	sealed := &sealedFile{logFile: f, chain: c, fd: fd, index: &sparseIndex{size: f.size.Load()}}
	cur := cursor{file: f, position: f.base - 1}
	defer c.cursors.drop(&cur)
	const head = 1 << 10 // of a file: the header and, mostly, a record
	if err := cur.skip(sealed, head); err != nil {
		return nil, err
	}
	return cur.read(sealed, head)
}
