package rebalance

import (
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// AveragelyByCircle deals the sorted queues out to the sorted members one by
// one, as cards: 8 queues among 3 members are 0 3 6, 1 4 7 and 2 5. The numbers
// are those of Averagely; each member's queues are spread over the brokers.
//
// A member that joins or leaves changes nearly everybody's share. Members
// beyond the number of queues hold none. Name is "AVG_BY_CIRCLE".
// Java: AllocateMessageQueueAveragelyByCircle.
var AveragelyByCircle Strategy = averagelyByCircle{}

type averagelyByCircle struct{}

func (averagelyByCircle) Name() string { return "AVG_BY_CIRCLE" }

func (averagelyByCircle) Allocate(group, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	if err := check(group, self, queues, members); err != nil {
		return nil, err
	}
	i := slices.Index(members, self)
	if i < 0 || i >= len(queues) {
		return nil, nil
	}
	share := make([]message.Queue, 0, (len(queues)-i-1)/len(members)+1)
	for ; i < len(queues); i += len(members) {
		share = append(share, queues[i])
	}
	return share, nil
}
