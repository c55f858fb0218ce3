package store

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"sort"
)

// Which record of which queue was at a lost position? Two things tell. The
// consume queues of the checkpoint, as far as they reach, do exactly. Beyond,
// the offsets of the readable records do: where those of a queue jump from 6 to
// 9, its records 7 and 8 were between the two, and lie in as many of the lost
// positions there. An assignment that fits always exists, because the true one
// does, and it is found by taking the lost positions in their order, each for
// the gap that has to be filled first.

// queueTracker follows the offsets of all queues through a log.
type queueTracker struct {
	trimmed  bool // the log does not begin at 1: a queue may begin at any offset
	queues   map[QueueID]*trackedQueue
	order    []QueueID        // in the order in which they were first seen
	dropped  map[string]int64 // topic -> where it was dropped
	seen     int64            // position of the last entry
	gone     int64            // last position before it that cannot be read, or whose queue is not known
	gaps     []gap
	conflict error // the first contradiction among readable records
}

// trackedQueue is what the readable records say about a queue.
type trackedQueue struct {
	min, next int64 // offsets [min, next)
	last      int64 // position of its last entry
	records   int64
	voids     int64 // lost entries
	missing   int64 // offsets in gaps
}

// gap is a number of records of a queue that are missing: offsets [from, to),
// somewhere between two positions, neither included.
type gap struct {
	key           QueueID
	from, to      int64
	after, before int64
}

// start tells of queues that begin behind the records there are.
func (t *queueTracker) start(starts []queueStart) {
	for _, st := range starts {
		t.add(st.key, &trackedQueue{min: st.next, next: st.next})
	}
}

func (t *queueTracker) add(key QueueID, q *trackedQueue) {
	if t.queues == nil {
		t.queues = make(map[QueueID]*trackedQueue)
	}
	t.queues[key] = q
	t.order = append(t.order, key)
}

func (t *queueTracker) see(position int64, s slot) {
	if position > t.seen+1 {
		t.gone = position - 1
	}
	t.seen = position
	switch {
	case s.drop:
		t.drop(s.key.Topic, position)
		return
	case s.silent:
		if s.lost {
			t.gone = position
		}
		return
	}
	q := t.queues[s.key]
	if q != nil && s.offset == 0 && q.next > 0 && q.last < t.gone {
		// The entry between that dropped the topic is lost.
		t.drop(s.key.Topic, t.gone)
		q = nil
	}
	if q == nil {
		q = &trackedQueue{}
		if at, ok := t.dropped[s.key.Topic]; ok {
			q.last = at // and it begins at 0
		} else if t.trimmed {
			q.min, q.next = s.offset, s.offset
		}
		t.add(s.key, q)
	}
	switch {
	case s.offset < q.next:
		if t.conflict == nil {
			t.conflict = fmt.Errorf("%w: topic %q queue %d: the record at position %d has queue offset %d, but offsets up to %d were given out before it",
				ErrDamaged, s.key.Topic, s.key.ID, position, s.offset, q.next-1)
		}
		return
	case s.offset > q.next:
		t.gaps = append(t.gaps, gap{key: s.key, from: q.next, to: s.offset, after: q.last, before: position})
		q.missing += s.offset - q.next
	}
	q.next, q.last = s.offset+1, position
	if s.lost {
		q.voids++
	} else {
		q.records++
	}
}

// drop forgets the queues of a topic. What was missing in them stays missing.
func (t *queueTracker) drop(topic string, position int64) {
	for key := range t.queues {
		if key.Topic == topic {
			delete(t.queues, key)
		}
	}
	t.order = slices.DeleteFunc(t.order, func(key QueueID) bool { return key.Topic == topic })
	if t.dropped == nil {
		t.dropped = make(map[string]int64)
	}
	t.dropped[topic] = position
}

// span is a range of positions or offsets, both ends included.
type span struct{ first, last int64 }

// hint is what the consume queues of a checkpoint say about a lost position.
type hint struct {
	position int64
	key      QueueID
	offset   int64
}

// place is where a lost record was.
type place struct {
	key    QueueID
	offset int64
}

// attribute finds the place of each lost position. lost is ascending; hints are
// about some of its positions, and exact up to position exact: those that they
// leave out were in no queue. Positions that are in no queue, or not known to
// be, are not in the result. It fails when the gaps cannot be filled, or when
// the hints contradict the records.
func (t *queueTracker) attribute(lost []span, hints []hint, exact int64) (map[int64]place, error) {
	places := make(map[int64]place)
	gaps, err := t.applyHints(hints, places)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(gaps, func(a, b gap) int { return cmp.Compare(a.after, b.after) })
	var open gapHeap
	for _, s := range lost {
		for p := s.first; p <= s.last; p++ {
			for len(gaps) > 0 && gaps[0].after < p {
				heap.Push(&open, gaps[0])
				gaps = gaps[1:]
			}
			if len(open) == 0 {
				if len(gaps) == 0 || gaps[0].after >= s.last {
					break // nothing begins within this span
				}
				p = gaps[0].after // the next one does
				continue
			}
			if open[0].before <= p {
				return nil, open[0].unfilled()
			}
			if _, known := places[p]; known || p <= exact {
				continue
			}
			g := &open[0]
			places[p] = place{key: g.key, offset: g.from}
			if g.from++; g.from == g.to {
				heap.Pop(&open)
			}
		}
	}
	if len(open) > 0 {
		return nil, open[0].unfilled()
	}
	if len(gaps) > 0 {
		return nil, gaps[0].unfilled()
	}
	return places, nil
}

func (g gap) unfilled() error {
	return fmt.Errorf("%w: topic %q queue %d: offsets %d to %d are missing between the positions %d and %d, but nothing is lost there that they could have been",
		ErrDamaged, g.key.Topic, g.key.ID, g.from, g.to-1, g.after, g.before)
}

// applyHints puts the hints into places, and returns what they leave of the
// gaps.
func (t *queueTracker) applyHints(hints []hint, places map[int64]place) ([]gap, error) {
	byKey := make(map[QueueID][]hint)
	for _, h := range hints {
		byKey[h.key] = append(byKey[h.key], h)
	}
	gapsOf := make(map[QueueID][]gap)
	var rest []gap
	for _, g := range t.gaps {
		if _, hinted := byKey[g.key]; hinted {
			gapsOf[g.key] = append(gapsOf[g.key], g)
		} else {
			rest = append(rest, g)
		}
	}
	for key, list := range byKey {
		sort.Slice(list, func(i, j int) bool { return list[i].position < list[j].position })
		q := t.queues[key]
		if q == nil { // nothing of it can be read
			q = &trackedQueue{}
			if at, ok := t.dropped[key.Topic]; ok {
				q.last = at
			} else if t.trimmed {
				q.min, q.next = list[0].offset, list[0].offset
			}
		}
		next, last := q.next, q.last
		gaps := gapsOf[key]
		for _, h := range list {
			for len(gaps) > 0 && h.offset >= gaps[0].to {
				rest, gaps = append(rest, gaps[0]), gaps[1:]
			}
			switch {
			case h.offset < q.min: // what nothing readable is before needs no place
				continue
			case len(gaps) > 0 && h.offset >= gaps[0].from && h.position > gaps[0].after && h.position < gaps[0].before:
				g := &gaps[0]
				if h.offset > g.from {
					rest = append(rest, gap{key: key, from: g.from, to: h.offset, after: g.after, before: h.position})
				}
				if g.from, g.after = h.offset+1, h.position; g.from == g.to {
					gaps = gaps[1:]
				}
			case h.offset == next && h.position > last: // behind all that can be read
				next, last = h.offset+1, h.position
			default:
				return nil, fmt.Errorf("%w: the checkpoint says that position %d is offset %d of topic %q queue %d, which its records contradict",
					errQueueDamaged, h.position, h.offset, key.Topic, key.ID)
			}
			places[h.position] = place{key: key, offset: h.offset}
		}
		rest = append(rest, gaps...)
	}
	return rest, nil
}

// gapHeap has the gap on top that must be filled first.
type gapHeap []gap

func (h gapHeap) Len() int           { return len(h) }
func (h gapHeap) Less(i, j int) bool { return h[i].before < h[j].before }
func (h gapHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *gapHeap) Push(x any) { *h = append(*h, x.(gap)) }

// Pop is for package heap.
func (h *gapHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
