package offsets

import "maps"

// A reset moves a group from outside while its members go on. What they commit
// meanwhile belongs to the old position, so from a reset on commits of that queue
// are ignored, until the member that reads it has been told: by its next pull,
// whose answer names the new offset. Then it starts there, and what it commits
// counts again. Java: ConsumerOffsetManager.resetOffsetTable.
//
// A restart is the reset of a queue that has been deleted: there is no offset to
// go on with, the queue's first one is where to start. A member that asks for the
// group's offset before it pulls learns that there is none, and needs no more
// telling.
//
// Differs: RocketMQ forgets resets that are waiting when the broker restarts.

// restart is in place of the offset of a reset.
const restart = -1

// Reset sets a group's offset of a queue at once, and ignores commits until it is
// taken by TakeReset. A negative queue or offset is ignored.
func (t *Table) Reset(group, topic string, queue int, offset int64) {
	if queue < 0 || offset < 0 {
		return
	}
	at := place{group, topic, queue}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cellLocked(at).Store(offset)
	t.resetLocked(at, offset)
}

// Set is Reset for a group without members: nobody has to be told, and commits
// count at once.
func (t *Table) Set(group, topic string, queue int, offset int64) {
	if queue < 0 || offset < 0 {
		return
	}
	at := place{group, topic, queue}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cellLocked(at).Store(offset)
	delete(t.resets, at)
	t.movedLocked(at)
}

// Restart forgets a group's offset of a queue, and ignores commits until
// TakeReset or Started.
func (t *Table) Restart(group, topic string, queue int) {
	at := place{group, topic, queue}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.cells, at)
	delete(t.own, at)
	t.resetLocked(at, restart)
}

func (t *Table) resetLocked(at place, offset int64) {
	t.resets[at] = offset
	t.movedLocked(at)
}

// lowerReset moves what waits, unless it has changed.
func (t *Table) lowerReset(at place, from, to int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset, waits := t.resets[at]; !waits || offset != from {
		return false
	}
	t.resets[at] = to
	t.changedLocked()
	return true
}

// changedLocked notes a change of resets.
func (t *Table) changedLocked() {
	t.waiting.Store(int64(len(t.resets)))
	t.dirty.Store(true)
}

// ResetWaits reports whether the next TakeReset will find something. It is cheap
// while nothing waits.
func (t *Table) ResetWaits(group, topic string, queue int) bool {
	if t.waiting.Load() == 0 {
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.resets[place{group, topic, queue}]
	return ok
}

// TakeReset takes what waits for the next pull of a group from a queue, if
// anything does: the offset to go on at, or first, which means the queue's first
// one. From then on commits count again. It is cheap while nothing waits.
func (t *Table) TakeReset(group, topic string, queue int) (offset int64, first, ok bool) {
	if t.waiting.Load() == 0 {
		return 0, false, false
	}
	at := place{group, topic, queue}
	t.mu.Lock()
	defer t.mu.Unlock()
	offset, ok = t.resets[at]
	if !ok {
		return 0, false, false
	}
	delete(t.resets, at)
	if offset != restart {
		t.ownLocked(at) // the master need not tell it again
	}
	t.changedLocked()
	return max(offset, 0), offset == restart, true
}

// Started ends a Restart: a member has asked where the group stands, so it will
// not go on where it was. A Reset is left alone.
func (t *Table) Started(group, topic string, queue int) {
	if t.waiting.Load() == 0 {
		return
	}
	at := place{group, topic, queue}
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset, ok := t.resets[at]; ok && offset == restart {
		delete(t.resets, at)
		t.changedLocked()
	}
}

// Drop forgets a group's offset of a queue, and leaves what waits alone.
func (t *Table) Drop(group, topic string, queue int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := place{group, topic, queue}
	delete(t.cells, at)
	delete(t.own, at)
	t.dirty.Store(true)
}

// DeleteTopic forgets all offsets of a topic and all that waits for it. Java:
// ConsumerOffsetManager.cleanOffsetByTopic.
func (t *Table) DeleteTopic(topic string) {
	t.delete(allOf("", topic), func(at place) bool { return at.topic == topic })
}

// DeleteGroup forgets all offsets of a group and all that waits for it. Java:
// ConsumerOffsetManager.removeOffset.
func (t *Table) DeleteGroup(group string) {
	t.delete(allOf(group, ""), func(at place) bool { return at.group == group })
}

func (t *Table) delete(what place, gone func(place) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range t.cells {
		if gone(at) {
			delete(t.cells, at)
		}
	}
	of := func(at place, _ int64) bool { return gone(at) }
	maps.DeleteFunc(t.resets, of)
	maps.DeleteFunc(t.own, of)
	if !t.following { // there its master has counted it
		maps.DeleteFunc(t.moves.last, of) // what follows covers them
	}
	t.movedLocked(what)
}
