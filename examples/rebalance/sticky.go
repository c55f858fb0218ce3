package main

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq"
)

// sticky moves few queues when members come and go, and still gives everybody
// the same number of them: each queue likes each member more or less, the pairs
// that like each other most come together first, and a member that has its share
// takes no more. The liking is a hash of the two names, so it does not depend on
// who else is there, and most pairs stay together whoever comes and goes.
//
// Strategies are functions of their arguments, since every member computes for
// itself and all have to come to results that fit together. So a sticky one may
// know the queues and the members of now. It cannot know who holds a queue, who
// came first, or what it said the last time: what one member remembers, another
// that joined later does not, and the queue would have two owners, or none.
// (Kafka's sticky assignor asks everybody what they hold: there one member
// computes for all of them.)
type sticky struct{}

func (sticky) Name() string { return "STICKY" }

func (sticky) Allocate(_, self string, queues []pocketmq.MessageQueue, members []string) ([]pocketmq.MessageQueue, error) {
	type pair struct {
		queue  pocketmq.MessageQueue
		member string
	}
	liking := make(map[pair]string)
	for _, q := range queues {
		for _, m := range members {
			sum := sha256.Sum256([]byte(q.String() + m))
			liking[pair{q, m}] = string(sum[:])
		}
	}
	pairs := slices.SortedFunc(maps.Keys(liking), func(a, b pair) int { return strings.Compare(liking[b], liking[a]) })
	owner, held := make(map[pocketmq.MessageQueue]string), make(map[string]int)
	size, extra := len(queues)/len(members), len(queues)%len(members) // extra members have one more
	for _, p := range pairs {
		full := held[p.member] > size || held[p.member] == size && extra == 0
		if full || owner[p.queue] != "" {
			continue
		}
		if held[p.member] == size {
			extra--
		}
		held[p.member]++
		owner[p.queue] = p.member
	}
	return slices.DeleteFunc(slices.Clone(queues), func(q pocketmq.MessageQueue) bool { return owner[q] != self }), nil
}
