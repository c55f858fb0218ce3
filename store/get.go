package store

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// minScan is how many bytes of units one Get looks at, at least. Java:
// DefaultMessageStore.getMessage, maxFilterMessageCount.
const minScan = 16000

// GetStatus says what a Get found. Java: GetMessageStatus.
type GetStatus int

// Statuses of a Get at offset o of a queue that holds [min, max), and the
// offset to go on with.
//
// Differs: OFFSET_FOUND_NULL and MESSAGE_WAS_REMOVING do not occur, because a
// queue has no holes and does not outlive its records. Offsets whose records are
// lost, see [PlanSalvage], are passed over like records that do not match.
const (
	GetFound         GetStatus = iota // records; next is behind the last unit looked at. FOUND
	GetNoQueue                        // the queue is unknown; next 0. NO_MATCHED_LOGIC_QUEUE
	GetEmptyQueue                     // max is 0; next 0. NO_MESSAGE_IN_QUEUE
	GetTooSmall                       // o < min; next min. OFFSET_TOO_SMALL
	GetOverflowOne                    // o = max: nothing there yet; next o. OFFSET_OVERFLOW_ONE
	GetOverflowBadly                  // o > max; next max. OFFSET_OVERFLOW_BADLY
	GetNoMatch                        // nothing in the part looked at matched; next is behind it. NO_MATCHED_MESSAGE
)

// String is RocketMQ's name of the status.
func (s GetStatus) String() string {
	switch s {
	case GetFound:
		return "FOUND"
	case GetNoQueue:
		return "NO_MATCHED_LOGIC_QUEUE"
	case GetEmptyQueue:
		return "NO_MESSAGE_IN_QUEUE"
	case GetTooSmall:
		return "OFFSET_TOO_SMALL"
	case GetOverflowOne:
		return "OFFSET_OVERFLOW_ONE"
	case GetOverflowBadly:
		return "OFFSET_OVERFLOW_BADLY"
	case GetNoMatch:
		return "NO_MATCHED_MESSAGE"
	}
	return "UNKNOWN"
}

// GetRequest asks for the records of a queue from an offset on.
type GetRequest struct {
	Topic   string
	QueueID int
	Offset  int64
	// MaxMessages bounds the number of records; 0 or less reads one.
	MaxMessages int
	// MaxBytes bounds the size of all records; 0 or less means no bound. The
	// first record is included whatever its size.
	MaxBytes int
	// Match chooses by the hash of the tag; nil takes everything. It is called
	// for one unit after the other, and not under a lock.
	Match func(tagsCode int64) bool
}

// GetResult is what a Get found.
type GetResult struct {
	Status GetStatus
	// Records are stored records in the order of their offsets. They are
	// read-only, stay valid and may share memory with the store: keep copies
	// of what is kept for long.
	Records [][]byte
	// Next is the offset to go on with; see [GetStatus].
	Next int64
	// Min and Max are the bounds of the queue.
	Min, Max int64
}

// Get reads records of one queue. A lack of records is a status, not an error;
// errors are [ErrClosed], [ErrDamaged] with the queue, the file and the position, and those
// of the file system. It may block for reads from disk. Safe for concurrent use.
// Java: DefaultMessageStore.getMessage.
func (s *Store) Get(r GetRequest) (GetResult, error) {
	if s.closed.Load() {
		return GetResult{}, ErrClosed
	}
	q := s.queues.get(QueueID{r.Topic, r.QueueID})
	if q == nil {
		return GetResult{Status: GetNoQueue}, nil
	}
	v := q.view()
	res := GetResult{Min: v.min, Max: v.max()}
	switch {
	case res.Max == 0:
		res.Status = GetEmptyQueue
		return res, nil
	case r.Offset < res.Min:
		res.Status, res.Next = GetTooSmall, res.Min
		return res, nil
	case r.Offset == res.Max:
		res.Status, res.Next = GetOverflowOne, r.Offset
		return res, nil
	case r.Offset > res.Max:
		res.Status, res.Next = GetOverflowBadly, res.Max
		return res, nil
	}
	chosen := s.chosen.get()
	defer s.chosen.put(chosen)
	next, err := s.choose(&v, r, chosen)
	if err != nil {
		return s.readFailed(q, r, err)
	}
	res.Next = next
	if len(*chosen) == 0 {
		res.Status = GetNoMatch
		return res, nil
	}
	res.Records, err = s.log.read(*chosen, make([][]byte, 0, len(*chosen)))
	if err != nil {
		return s.readFailed(q, r, err)
	}
	return res, nil
}

// readFailed is the result of a Get that could not read something: what it
// wanted may have been deleted meanwhile, with all of the topic or beginning with
// the first record.
func (s *Store) readFailed(q *queue, r GetRequest, err error) (GetResult, error) {
	if s.queues.get(q.key) != q { // the topic was dropped meanwhile
		return GetResult{Status: GetNoQueue}, nil
	}
	if b := q.bounds(); r.Offset < b.Min {
		return GetResult{Status: GetTooSmall, Next: b.Min, Min: b.Min, Max: b.Max}, nil
	}
	return GetResult{}, s.readError(r, err)
}

// choose collects the units that Get returns, and tells where it stopped.
func (s *Store) choose(v *view, r GetRequest, chosen *[]unit) (next int64, err error) {
	messages := max(1, r.MaxMessages)
	window := max(minScan/unitSize, int64(messages))
	bytes := int64(math.MaxInt64)
	if r.MaxBytes > 0 {
		bytes = int64(r.MaxBytes)
	}
	stop := v.max()
	if window < stop-r.Offset {
		stop = r.Offset + window
	}
	for next = r.Offset; next < stop; {
		units, err := v.units(&s.extents, next)
		if err != nil {
			return 0, err
		}
		for i := 0; i < len(units)/unitSize && next < stop; i++ {
			u := unitAt(units, i)
			if u.size > 0 && (r.Match == nil || r.Match(u.tags)) { // else void: its record is lost
				bytes -= int64(u.size)
				if bytes < 0 && len(*chosen) > 0 {
					return next, nil
				}
				*chosen = append(*chosen, u)
				if len(*chosen) == messages {
					return next + 1, nil
				}
			}
			next++
		}
	}
	return next, nil
}

// readError prepares the error of a read for the caller.
func (s *Store) readError(r GetRequest, err error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	err = fmt.Errorf("store: read topic %q queue %d from offset %d: %w", r.Topic, r.QueueID, r.Offset, err)
	if errors.Is(err, ErrDamaged) {
		s.noteStale(err)
		s.noteDamage(err)
	}
	return err
}

// unitPool keeps the arrays in which Get collects units.
type unitPool struct{ pool sync.Pool }

func (p *unitPool) get() *[]unit {
	if u, ok := p.pool.Get().(*[]unit); ok {
		return u
	}
	return new([]unit)
}

func (p *unitPool) put(u *[]unit) {
	if cap(*u) <= maxGroupEntries {
		*u = (*u)[:0]
		p.pool.Put(u)
	}
}
