package offsets

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/protocol"
)

func placeOf(o protocol.GroupOffset) place { return place{o.Group, o.Topic, o.QueueID} }

func (at place) with(n int64) protocol.GroupOffset {
	return protocol.GroupOffset{Group: at.group, Topic: at.topic, QueueID: at.queue, Offset: n}
}

func compare(a, b protocol.GroupOffset) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.QueueID, b.QueueID))
}

// list makes a sorted list of a map.
func list(m map[place]int64) []protocol.GroupOffset {
	all := make([]protocol.GroupOffset, 0, len(m))
	for at, n := range m {
		all = append(all, at.with(n))
	}
	slices.SortFunc(all, compare)
	return all
}

// Export returns the table for a slave. It is of one moment, but for commits, which
// go on meanwhile. The position that it presumes has to be read afterwards: offsets
// that are newer would lead the log. The version counts moves, as commits are not
// counted.
//
// The moves in it are in the file before it returns, and it blocks for that: a number
// that a slave has seen is not given out again after a crash. The error is that of
// Persist.
func (t *Table) Export() (protocol.OffsetTable, error) {
	all, _ := t.snapshot()
	if all.Moved > t.saved.Load() {
		if err := t.Persist(); err != nil {
			return protocol.OffsetTable{}, err
		}
	}
	return all, nil
}

// snapshot returns the table, and what is a slave's own with the last move it knew.
func (t *Table) snapshot() (all protocol.OffsetTable, own []protocol.GroupOffset) {
	t.mu.RLock()
	all = protocol.OffsetTable{
		Version: protocol.DataVersion{StateVersion: t.state, Counter: t.moves.count},
		Offsets: make([]protocol.GroupOffset, 0, len(t.cells)), Moved: t.moves.count, MovedBefore: t.moves.floor,
	}
	for at, cell := range t.cells {
		if offset := cell.Load(); offset != none {
			all.Offsets = append(all.Offsets, at.with(offset))
		}
	}
	resets, moved, mine := maps.Clone(t.resets), maps.Clone(t.moves.last), maps.Clone(t.own)
	t.mu.RUnlock()
	slices.SortFunc(all.Offsets, compare)
	all.Resets, all.Moves = list(resets), list(moved)
	return all, list(mine)
}

// Replace makes the table what a slave's master has, but for the own offsets that
// count by the rule in own.go: those are higher than the master's, and the master has
// not moved their queue. It is for a table that follows, and only once the slave's
// log has, for good, what the table presumes: what it says is consumed must not be
// lost. Nobody sees a part of it. The next Persist saves it.
//
// The error is a protocol.ErrStaleVersion for a table of a former master; nothing has
// changed then.
func (t *Table) Replace(all protocol.OffsetTable) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := protocol.DataVersion{StateVersion: t.state}
	if err := all.Version.Follows(have, "consumer offsets"); err != nil {
		return err
	}
	t.state = all.Version.StateVersion
	t.moves = moves{last: make(map[place]int64, len(all.Moves)), count: all.Moved, floor: all.MovedBefore}
	t.saved.Store(0)
	for _, m := range all.Moves {
		t.moves.last[placeOf(m)] = m.Offset
	}
	theirs := make(map[place]int64, len(all.Offsets))
	for _, o := range all.Offsets {
		if o.QueueID >= 0 && o.Offset >= 0 {
			theirs[placeOf(o)] = o.Offset
		}
	}
	waits := make(map[place]int64, len(all.Resets))
	for _, r := range all.Resets {
		if r.QueueID >= 0 && r.Offset >= restart {
			waits[placeOf(r)] = r.Offset
		}
	}
	for at, known := range t.own {
		_, untold := waits[at]
		cell, their := t.cells[at], int64(none)
		if offset, ok := theirs[at]; ok {
			their = offset
		}
		if cell == nil || t.moves.since(at, known) || their >= cell.Load() && !untold {
			delete(t.own, at)
			continue
		}
		// A master that has begun anew counts from the beginning.
		t.own[at] = min(known, t.moves.count)
	}
	for at := range t.cells {
		if _, own := t.own[at]; own {
			continue
		}
		if _, ok := theirs[at]; !ok {
			delete(t.cells, at)
		}
	}
	for at, offset := range theirs {
		if _, own := t.own[at]; own {
			continue
		}
		if cell := t.cells[at]; cell != nil {
			cell.Store(offset)
			continue
		}
		cell := new(atomic.Int64)
		cell.Store(offset)
		t.cells[at] = cell
	}
	maps.DeleteFunc(waits, func(at place, _ int64) bool {
		_, own := t.own[at]
		return own // whoever committed it has been told
	})
	t.resets = waits
	t.changedLocked()
	return nil
}
