package rebalance

import (
	"errors"
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// Strategy computes a member's share of a topic's queues. All members of a
// group must use the same one. Implementations are pure functions of their
// arguments, safe for concurrent use, and do not block.
// Java: AllocateMessageQueueStrategy.
type Strategy interface {
	// Name is what the strategy is called in configurations and events, the
	// reference's name for those of this package.
	Name() string

	// Allocate returns the share of member self, in a slice that belongs to
	// the caller. The lists are taken in the order given, as in the reference:
	// the caller sorts queues by message.Queue.Compare and members by
	// SortMembers, so that every member computes from the same. The arguments
	// are unchanged. A self that is not among members gets none, without an
	// error.
	Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error)
}

// ErrInvalidArguments is what Allocate returns for an empty self, no queues or
// no members: the caller asked before it knew enough. Java:
// AbstractAllocateMessageQueueStrategy.check throws IllegalArgumentException.
var ErrInvalidArguments = errors.New("rebalance: invalid arguments")

// Diff compares what a member holds with what it is assigned: revoked is what
// it has to give up, in the order of held, added is what it has to take, in
// the order of assigned. Repeated queues count once. The arguments are
// unchanged, the results belong to the caller.
func Diff(held, assigned []message.Queue) (revoked, added []message.Queue) {
	return without(held, assigned), without(assigned, held)
}

// without returns the queues of a that are not in b, each once.
func without(a, b []message.Queue) []message.Queue {
	if slices.Equal(a, b) {
		return nil
	}
	skip := make(map[message.Queue]struct{}, len(a)+len(b))
	for _, q := range b {
		skip[q] = struct{}{}
	}
	var rest []message.Queue
	for _, q := range a {
		if _, ok := skip[q]; !ok {
			skip[q] = struct{}{}
			rest = append(rest, q)
		}
	}
	return rest
}

// SortMembers sorts client ids in place, in the order that every client of a
// group uses. Java: Collections.sort of the ids.
func SortMembers(members []string) { slices.SortFunc(members, compareMembers) }

// compareMembers orders client ids as Java's String.compareTo does, by UTF-16
// code units, so that a group that mixes clients agrees on the order. UTF-8
// orders the same way except that characters beyond the basic plane, lead
// bytes 0xF0 and up, come before U+E000 to U+FFFF, lead bytes 0xEE and 0xEF.
func compareMembers(a, b string) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}
