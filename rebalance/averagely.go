package rebalance

import (
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// Averagely gives each member one contiguous block of the sorted queues; the
// first members of the sorted list get one queue more when the numbers do not
// divide: 8 queues among 3 members are 3, 3 and 2. It is the default.
//
// A member that joins or leaves moves the blocks of all members after it.
// Members beyond the number of queues hold none. Name is "AVG".
// Java: AllocateMessageQueueAveragely.
var Averagely Strategy = averagely{}

type averagely struct{}

func (averagely) Name() string { return "AVG" }

func (averagely) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if err := check(group, self, queues, members); err != nil {
		return nil, err
	}
	i := slices.Index(members, self)
	if i < 0 {
		return nil, nil
	}
	size, extra := len(queues)/len(members), len(queues)%len(members)
	start := i*size + min(i, extra)
	if i < extra {
		size++
	}
	return slices.Clone(queues[start : start+size : start+size]), nil
}
