package rebalance

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// Strategy computes a member's share of a topic's queues. All members of a
// group must use the same one. Implementations are functions of their
// arguments, safe for concurrent use, and do not block. A consumer asks its
// strategy for its own share in every rebalance, and one that is not of this
// package also for the shares of the other members whenever queues or members
// changed, to Verify it. Java: AllocateMessageQueueStrategy.
type Strategy interface {
	// Name is what the strategy is called in configurations and reports, the
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
// no members: the caller asked before it knew enough. A strategy that was made
// with unusable arguments returns it, too. Java:
// AbstractAllocateMessageQueueStrategy.check throws IllegalArgumentException.
var ErrInvalidArguments = errors.New("rebalance: invalid arguments")

// check refuses arguments that no share can be computed from.
func check(group, self string, queues []message.Queue, members []string) error {
	switch {
	case self == "":
		return fmt.Errorf("%w: group %q: the member's own client id is empty", ErrInvalidArguments, group)
	case len(queues) == 0:
		return fmt.Errorf("%w: group %q: no queues to share; ask when the topic has a route", ErrInvalidArguments, group)
	case len(members) == 0:
		return fmt.Errorf("%w: group %q: no members; ask when a broker has answered the member list", ErrInvalidArguments, group)
	}
	return nil
}

// BuiltIn tells whether s is a strategy of this package, with an inner strategy
// of this package if it has one: it needs no Verify. A nil s is not.
func BuiltIn(s Strategy) bool {
	switch s := s.(type) {
	case averagely, averagelyByCircle, *consistentHash, machineRoom, byConfig:
		return true
	case machineRoomNearby:
		return BuiltIn(s.inner)
	}
	return false
}

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
func SortMembers(members []string) { slices.SortFunc(members, compareNames) }

// compareNames orders ids and rooms as names of topics and brokers are ordered:
// there is one order of names, which a group that mixes clients agrees on.
func compareNames(a, b string) int {
	return message.Queue{Topic: a}.Compare(message.Queue{Topic: b})
}
