package store

import (
	"fmt"
	"slices"
	"sort"
)

// queueTrim is what is left of a queue when all records before some position
// are gone. It is worked out beside readers and the writer, and takes effect in
// an instant.
type queueTrim struct {
	q      *queue
	blocks int   // that go
	min    int64 // first offset kept
	first  int64 // position of its record; 0 when none is kept
}

// planTrim works out what deleting all records before a position leaves of the
// queue. It reads a few blocks when some of the queue's go.
func (q *queue) planTrim(x *extents, before int64) (queueTrim, error) {
	v := q.view()
	t := queueTrim{q: q, min: v.min, first: v.first}
	if v.min == v.max() || v.first >= before {
		return t, nil
	}
	var units []byte // of the block, or the tail, of the first kept one
	var failed error
	if len(v.tail) > 0 && unitAt(v.tail, 0).position < before {
		t.blocks = len(v.blocks)
	} else {
		t.blocks = sort.Search(len(v.blocks), func(i int) bool {
			if failed != nil || i < int((v.min-v.base)/blockUnits) {
				return false
			}
			b, err := x.read(v.blocks[i], v.id, v.base+int64(i)*blockUnits)
			if err != nil {
				failed = err
				return false
			}
			return unitAt(b, blockUnits-1).position >= before
		})
	}
	if failed == nil && t.blocks < len(v.blocks) {
		units, failed = x.read(v.blocks[t.blocks], v.id, v.base+int64(t.blocks)*blockUnits)
	} else {
		units = v.tail
	}
	if failed != nil {
		return t, fmt.Errorf("topic %q queue %d: %w", q.key.Topic, q.key.ID, failed)
	}
	n := unitsUpTo(units, before-1)
	t.min, t.first = v.base+int64(t.blocks)*blockUnits+int64(n), 0
	if n < len(units)/unitSize {
		t.first = unitAt(units, n).position
	}
	return t, nil
}

// apply makes the trim take effect. It is false, and does nothing, when nothing
// of the queue would have been kept but something has arrived since: the trim
// must be planned anew. One goroutine at a time trims.
func (t queueTrim) apply() bool {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	end := q.maxLocked()
	if t.first == 0 && t.min != end {
		return false
	}
	q.min, q.first = t.min, t.first
	if t.min == end {
		q.base, q.blocks, q.tail = end, nil, nil
		return true
	}
	q.base += int64(t.blocks) * blockUnits
	q.blocks = q.blocks[t.blocks:]
	if t.blocks > len(q.blocks) {
		q.blocks = slices.Clone(q.blocks) // let the longer part go
	}
	return true
}

// trim forgets all units of records before a position.
func (q *queue) trim(x *extents, before int64) error {
	for {
		t, err := q.planTrim(x, before)
		if err != nil || t.apply() {
			return err
		}
	}
}

// lowestBlock is the lowest number of a block that a queue refers to, or next
// when none does. Blocks are numbered in the order of their making, so none with
// a lower number is ever referred to again.
func (t *queueTable) lowestBlock(next uint32) uint32 {
	for _, q := range t.all() {
		if v := q.view(); len(v.blocks) > 0 {
			next = min(next, v.blocks[0])
		}
	}
	return next
}
