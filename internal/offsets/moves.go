package offsets

import (
	"maps"
	"slices"
)

// maxMoves bounds the numbers that are kept of moves: topics and groups that were
// deleted leave one each.
const maxMoves = 1 << 14

// moves numbers the changes that somebody made on purpose: resets, and deletions of
// topics and groups. An offset that was committed at a slave says up to which move
// the slave knew them; a later one of the same queue proves that the offset is
// older. Commits are not counted: which of two is the newer one nobody can tell, so
// the higher one counts.
type moves struct {
	last  map[place]int64 // number of the last one of a queue, or of what allOf names
	count int64           // number of the last one
	floor int64           // up to this number last is not complete
}

func newMoves() moves { return moves{last: make(map[place]int64)} }

// allOf names all queues of a topic, or of a group; the other one is "".
func allOf(group, topic string) place { return place{group, topic, -1} }

// add counts a move.
func (m *moves) add(at place) {
	m.count++
	m.last[at] = m.count
	if len(m.last) <= maxMoves {
		return
	}
	numbers := slices.Sorted(maps.Values(m.last))
	m.floor = max(m.floor, numbers[len(numbers)/2])
	maps.DeleteFunc(m.last, func(_ place, number int64) bool { return number <= m.floor })
}

// since reports whether a queue may have been moved by one that a slave did not
// know of which knew those up to a number.
func (m *moves) since(at place, known int64) bool {
	return known < m.floor || known < max(m.last[at], m.last[allOf("", at.topic)], m.last[allOf(at.group, "")])
}

// movedLocked counts a move that was made here.
func (t *Table) movedLocked(at place) {
	if !t.following {
		t.moves.add(at)
	}
	t.changedLocked()
}
