package offsets

import (
	"errors"
	"slices"

	"github.com/pocketmq/pocketmq/protocol"
)

// The table of a slave is its master's, as it was a moment ago. Consumers commit at
// a slave only while they do not see its master; what they commit then is the
// slave's own, until the master has it.
//
// The rule, for an own offset that is compared with what the master has of its
// queue, at either of the two:
//
//   - The master has moved the queue since (moves.since): a reset, or the deletion
//     of its topic or group. What the master has counts, and the own offset is
//     dropped.
//   - Otherwise the higher one counts. Neither's clock says which one is newer, so
//     nothing goes back, and at worst a commit that a member made on purpose below
//     its former one is forgotten.
//   - A reset that waits at the master is over then: the own offset was committed by
//     somebody who has been told of it, because while it waits a slave takes no
//     commits either.
//
// At the slave this is Replace, at the master Merge.

// ErrFollowing is of what a table does only at a master.
var ErrFollowing = errors.New("the table follows that of a master")

// stateShift makes the numbers of moves of a later state of a broker group higher
// than all of an earlier one: some may have been lost with the former master, and
// must not be given out again.
const stateShift = 32

// Follow makes the table that of a slave: what is committed from now on is its own,
// and Replace gives it what its master has. Safe to call again. Resets and deletions
// belong to the master; what is done to the table nevertheless the next Replace
// undoes.
func (t *Table) Follow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.following = true
}

// Lead makes the table that of a master, as it is after Open: what was its own
// counts like everything else. state is the version of the broker group's state, its
// epoch, from 0 to 2^30; a lower one than before is ignored. Safe to call again.
func (t *Table) Lead(state int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.following = false
	if len(t.own) > 0 {
		clear(t.own)
		t.dirty.Store(true)
	}
	if state > t.state {
		t.state, t.moves.count = state, max(t.moves.count, state<<stateShift)
		t.dirty.Store(true)
	}
}

// ownLocked notes that the offset of a queue is a slave's own.
func (t *Table) ownLocked(at place) {
	if !t.following {
		return
	}
	if known, own := t.own[at]; !own || known != t.moves.count {
		t.own[at] = t.moves.count
		t.dirty.Store(true)
	}
}

// Own lists a slave's own offsets, at most limit, sorted; 0 = all. The slice belongs
// to the caller. They are for Merge at the master, and for Given here once it has
// answered.
func (t *Table) Own(limit int) []protocol.OwnOffset {
	t.mu.RLock()
	own := make([]protocol.OwnOffset, 0, len(t.own))
	for at, known := range t.own {
		if cell := t.cells[at]; cell != nil {
			own = append(own, protocol.OwnOffset{GroupOffset: at.with(cell.Load()), Moved: known})
		}
	}
	t.mu.RUnlock()
	slices.SortFunc(own, func(a, b protocol.OwnOffset) int { return compare(a.GroupOffset, b.GroupOffset) })
	if limit > 0 && limit < len(own) {
		own = slices.Clip(own[:limit])
	}
	return own
}

// Given notes that the master has taken, or refused, what Own has listed: it is not
// the slave's own any more. What was committed since still is.
func (t *Table) Given(own []protocol.OwnOffset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range own {
		at := placeOf(o.GroupOffset)
		known, ok := t.own[at]
		if cell := t.cells[at]; ok && known == o.Moved && cell != nil && cell.Load() == o.Offset {
			delete(t.own, at)
			t.dirty.Store(true)
		}
	}
}

// Merge takes in the own offsets of a slave by the rule above, and returns where
// groups are further now, or have been told of a reset that still waited. limit is
// the end of a queue, below 0 for one that there is not, whose offset is passed over:
// a slave may have had more of the log. It is called without a lock. The result is the
// same in whichever order offsets come, and however often.
//
// Persist before the slave learns that they were taken: it forgets them then.
// The error is ErrFollowing at a slave.
func (t *Table) Merge(own []protocol.OwnOffset, limit func(topic string, queue int) int64) (taken []protocol.GroupOffset, err error) {
	ends := make([]int64, len(own))
	for i, o := range own {
		ends[i] = limit(o.Topic, o.QueueID)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.following {
		return nil, ErrFollowing
	}
	for i, o := range own {
		at := placeOf(o.GroupOffset)
		if at.queue < 0 || o.Offset < 0 || ends[i] < 0 || t.moves.since(at, o.Moved) {
			continue
		}
		_, waits := t.resets[at]
		cell := t.cellLocked(at)
		before := cell.Load()
		t.raiseLocked(cell, min(o.Offset, ends[i]))
		if waits {
			delete(t.resets, at)
			t.changedLocked()
		}
		if now := cell.Load(); waits || now != before {
			taken = append(taken, at.with(now))
		}
	}
	return taken, nil
}
