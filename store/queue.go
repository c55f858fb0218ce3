package store

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
	"sync"
)

const (
	// unitSize is the size of a consume-queue unit: position 8, size 4,
	// tagsCode 8 bytes. Java: ConsumeQueue.CQ_STORE_UNIT_SIZE.
	unitSize = 20
	// blockUnits is the number of units in a block of an extent.
	blockUnits = 204
	unitBytes  = blockUnits * unitSize
	// firstTail is the capacity of the tail of a queue with few records.
	firstTail = 32 * unitSize
)

// unit says where the record at one offset of a queue lies in the commit log.
type unit struct {
	position int64
	size     int32 // of the record
	tags     int64
}

func (u unit) appendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.position))
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.size))
	return binary.BigEndian.AppendUint64(dst, uint64(u.tags))
}

// unitAt reads unit i of an array of units.
func unitAt(b []byte, i int) unit {
	b = b[i*unitSize : (i+1)*unitSize]
	return unit{
		position: int64(binary.BigEndian.Uint64(b)),
		size:     int32(binary.BigEndian.Uint32(b[8:])),
		tags:     int64(binary.BigEndian.Uint64(b[12:])),
	}
}

// unitsUpTo is the number of units at the start of b that lie at or below a
// position.
func unitsUpTo(b []byte, position int64) int {
	return sort.Search(len(b)/unitSize, func(i int) bool { return unitAt(b, i).position > position })
}

// QueueID names a queue of a store.
type QueueID struct {
	Topic string
	ID    int
}

// Range is the part of a queue that is stored: offsets Min up to but not
// including Max.
type Range struct {
	Min, Max int64
}

// queue is the consume queue of one (topic, queue id): full blocks in the
// extents, and a tail in memory.
type queue struct {
	key QueueID
	id  uint32 // index in the table, and owner mark of its blocks

	// next is the next offset to give out; dropped means none, because the queue
	// has left the table. Guarded by Store.mu.
	next    int64
	dropped bool

	// mu guards all below. The arrays behind blocks and tail only grow: what a
	// reader has seen under the lock stays as it is, so it may read on without.
	mu     sync.Mutex
	base   int64    // offset of the first unit of blocks, or of tail
	blocks []uint32 // full blocks in the extents, from base on
	tail   []byte   // the units behind them, fewer than blockUnits
	min    int64    // first offset whose record is kept: base, or a little more
	first  int64    // position of that record; 0 while there is none
}

func (q *queue) tailBaseLocked() int64 { return q.base + int64(len(q.blocks))*blockUnits }
func (q *queue) maxLocked() int64      { return q.tailBaseLocked() + int64(len(q.tail)/unitSize) }

func (q *queue) bounds() Range {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Range{Min: q.min, Max: q.maxLocked()}
}

// place appends the unit of an offset. The offset must be the next one of the
// queue, or any one when the queue has never held one and first allows it. An error that
// is an [ErrDamaged] means that nothing was placed; any other, that the unit is
// readable but a full block could not be written to disk yet.
func (q *queue) place(x *extents, offset int64, u unit, first bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if want := q.maxLocked(); offset != want {
		if !first || want > 0 {
			return fmt.Errorf("%w: topic %q queue %d: the record at position %d has queue offset %d, expected %d",
				ErrDamaged, q.key.Topic, q.key.ID, u.position, offset, want)
		}
		q.base, q.min = offset, offset
	}
	if q.min == offset {
		q.first = u.position
	}
	switch len(q.tail) {
	case 0:
		q.tail = make([]byte, 0, firstTail)
	case firstTail:
		q.tail = append(make([]byte, 0, unitBytes), q.tail...)
	}
	q.tail = u.appendTo(q.tail)
	if len(q.tail) < unitBytes {
		return nil
	}
	n, err := x.add(q.id, q.tailBaseLocked(), q.tail)
	q.blocks = append(q.blocks, n)
	q.tail = nil // readers may still hold it
	return err
}

// view is what a reader took from a queue under its lock.
type view struct {
	id     uint32
	base   int64
	blocks []uint32
	tail   []byte
	min    int64
	first  int64
}

func (q *queue) view() view {
	q.mu.Lock()
	defer q.mu.Unlock()
	return view{id: q.id, base: q.base, blocks: q.blocks, tail: q.tail, min: q.min, first: q.first}
}

func (v *view) tailBase() int64 { return v.base + int64(len(v.blocks))*blockUnits }
func (v *view) max() int64      { return v.tailBase() + int64(len(v.tail)/unitSize) }

// units returns the units from offset on that lie together: the rest of a block
// or of the tail. base <= offset < max. They are read-only.
func (v *view) units(x *extents, offset int64) ([]byte, error) {
	if t := v.tailBase(); offset >= t {
		return v.tail[(offset-t)*unitSize:], nil
	}
	i := (offset - v.base) / blockUnits
	first := v.base + i*blockUnits
	b, err := x.read(v.blocks[i], v.id, first)
	if err != nil {
		return nil, err
	}
	return b[(offset-first)*unitSize:], nil
}

// queueTable holds the queues of a store.
type queueTable struct {
	// mu guards all fields. Queues come and go by the holder of Store.mu, or while
	// the store opens.
	mu     sync.RWMutex
	byKey  map[QueueID]*queue
	list   []*queue // by id; an element is only replaced in a copy
	vacant []uint32 // ids that the next queues may have
}

func (t *queueTable) get(key QueueID) *queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[key]
}

// ensure returns the queue and makes it when it is missing.
func (t *queueTable) ensure(topic string, id int) *queue {
	if q := t.get(QueueID{topic, id}); q != nil {
		return q
	}
	key := QueueID{strings.Clone(topic), id}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.vacant); n > 0 {
		q := &queue{key: key, id: t.vacant[n-1]}
		t.vacant = t.vacant[:n-1]
		t.list = slices.Clone(t.list)
		t.byKey[key], t.list[q.id] = q, q
		return q
	}
	q := &queue{key: key, id: uint32(len(t.list))}
	t.addLocked(q)
	return q
}

func (t *queueTable) addLocked(q *queue) {
	if t.byKey == nil {
		t.byKey = make(map[QueueID]*queue)
	}
	if q.isVacant() {
		t.vacant = append(t.vacant, q.id)
	} else {
		t.byKey[q.key] = q
	}
	t.list = append(t.list, q)
}

// all is a snapshot, by their numbers. In the place of a queue whose topic was
// dropped is an empty one without a name, until another one gets its number.
func (t *queueTable) all() []*queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Clip(t.list)
}

// replace swaps the whole content, while the store opens.
func (t *queueTable) replace(list []*queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byKey, t.list, t.vacant = nil, nil, nil
	for _, q := range list {
		t.addLocked(q)
	}
}

// MinOffset is the first stored offset of a queue; 0 for an unknown one. Safe
// for concurrent use.
func (s *Store) MinOffset(topic string, queueID int) int64 {
	if q := s.queues.get(QueueID{topic, queueID}); q != nil {
		return q.bounds().Min
	}
	return 0
}

// MaxOffset is the offset that the next record of a queue will be read at; 0
// for an unknown queue. Safe for concurrent use. Java:
// MessageStore.getMaxOffsetInQueue.
func (s *Store) MaxOffset(topic string, queueID int) int64 {
	if q := s.queues.get(QueueID{topic, queueID}); q != nil {
		return q.bounds().Max
	}
	return 0
}

// NextOffset is the offset that the next record appended to a queue gets, MaxOffset or
// more: what lies between them is not to be read yet, because it is being written,
// dispatched, or not confirmed. 0 for an unknown queue. Safe for concurrent use.
func (s *Store) NextOffset(topic string, queueID int) int64 {
	q := s.queues.get(QueueID{topic, queueID})
	if q == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.dropped {
		return 0
	}
	return q.next
}

// Queues lists the queues of the store and what each holds, mostly in the order in
// which they were first written. It is a snapshot of the list; each range is
// read when it is its turn. Safe for concurrent use.
func (s *Store) Queues() iter.Seq2[QueueID, Range] {
	return func(yield func(QueueID, Range) bool) {
		for _, q := range s.queues.all() {
			if !q.isVacant() && !yield(q.key, q.bounds()) {
				return
			}
		}
	}
}
