package rebalance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
)

// Verify asks s for the share of every member, one after the other, and tells
// whether the shares fit together: every queue goes to exactly one member. nil
// means that they do. Otherwise the error is a *VerifyError that names every gap
// and every overlap; an empty list of queues or members is ErrInvalidArguments.
//
// It judges what s does, not what is meant: a strategy that leaves queues out on
// purpose, as MachineRoom does with those of other rooms, has gaps. ByConfig
// answers every member with the same list, so all its queues overlap as soon as
// there are two members, and what the other members' lists say cannot be known
// here. Consumers therefore verify only strategies that are not BuiltIn, warn
// about what is found, and go on.
//
// The arguments are unchanged, even if s changes what it is given. A panic of s
// is passed on. It takes as long as len(members) calls of Allocate.
func Verify(s Strategy, group string, queues []message.Queue, members []string) error {
	if len(queues) == 0 || len(members) == 0 {
		return fmt.Errorf("%w: group %q: nothing to verify with %d queues and %d members", ErrInvalidArguments, group, len(queues), len(members))
	}
	found := &VerifyError{Strategy: s.Name(), Group: group}
	owners := make(map[message.Queue][]string, len(queues))
	for _, q := range queues {
		owners[q] = nil
	}
	var foreign []message.Queue
	asked := make(map[string]bool, len(members))
	givenQueues, givenMembers := slices.Clone(queues), slices.Clone(members)
	for _, m := range members {
		if asked[m] {
			continue
		}
		asked[m] = true
		share, err := s.Allocate(group, m, givenQueues, givenMembers)
		if err != nil {
			found.Failures = append(found.Failures, fmt.Errorf("member %s: %w", m, err))
			share = nil
		}
		for _, q := range share {
			held, known := owners[q]
			if !known && len(held) == 0 && !slices.Contains(foreign, q) {
				foreign = append(foreign, q)
			}
			owners[q] = append(held, m)
		}
		if !slices.Equal(givenQueues, queues) || !slices.Equal(givenMembers, members) {
			found.Failures = append(found.Failures, fmt.Errorf("member %s: Allocate changed its arguments, work on a copy", m))
			givenQueues, givenMembers = slices.Clone(queues), slices.Clone(members)
		}
	}
	for _, q := range foreign {
		found.Foreign = append(found.Foreign, Claim{q, owners[q]})
	}
	seen := make(map[message.Queue]bool, len(queues))
	for _, q := range queues {
		switch held := owners[q]; {
		case seen[q]:
		case len(held) == 0:
			found.Gaps = append(found.Gaps, q)
		case len(held) > 1:
			found.Overlaps = append(found.Overlaps, Claim{q, held})
		}
		seen[q] = true
	}
	if len(found.Gaps)+len(found.Overlaps)+len(found.Foreign)+len(found.Failures) == 0 {
		return nil
	}
	return found
}

// Claim is a queue and the members whose shares have it, in the order in which
// they were asked. A member whose share has it twice is there twice.
type Claim struct {
	Queue   message.Queue
	Members []string
}

// VerifyError says how the shares of a group do not fit together. All lists are
// in the order of the queues and members given; they are the receiver's.
type VerifyError struct {
	Strategy string // its Name
	Group    string
	Gaps     []message.Queue // in nobody's share
	Overlaps []Claim         // in more than one share
	Foreign  []Claim         // in a share, but not among the queues to share
	Failures []error         // what Allocate returned, or did wrong, for a member
}

// Error names every finding.
func (e *VerifyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rebalance: strategy %s, group %q: ", e.Strategy, e.Group)
	sep := ""
	section := func(title string, n int, item func(i int)) {
		if n == 0 {
			return
		}
		b.WriteString(sep + title)
		sep = "; "
		for i := range n {
			if i > 0 {
				b.WriteString(", ")
			}
			item(i)
		}
	}
	claims := func(claims []Claim) func(i int) {
		return func(i int) {
			fmt.Fprintf(&b, "%v (%s)", claims[i].Queue, strings.Join(claims[i].Members, " "))
		}
	}
	section("gaps, queues that nobody gets: ", len(e.Gaps), func(i int) { b.WriteString(e.Gaps[i].String()) })
	section("overlaps, queues that more than one gets: ", len(e.Overlaps), claims(e.Overlaps))
	section("queues that are not to be shared: ", len(e.Foreign), claims(e.Foreign))
	section("", len(e.Failures), func(i int) { b.WriteString(e.Failures[i].Error()) })
	return b.String()
}

// Unwrap returns Failures, so that errors.Is finds what Allocate returned.
func (e *VerifyError) Unwrap() []error { return e.Failures }
