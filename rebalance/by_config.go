package rebalance

import (
	"slices"

	"github.com/pocketmq/pocketmq/message"
)

// ByConfig gives the member that uses it exactly these queues, whoever else is
// there: every member is made with its own list, and that the lists fit together
// is the business of who writes them. When a member dies, nobody takes its
// queues.
//
// Allocate looks at none of its arguments and always returns the whole list, in
// the order given, nil for an empty one, never an error. A consumer with several
// topics lists the queues of all; it takes those of the topic in question that
// exist. Name is "CONFIG". Java: AllocateMessageQueueByConfig.
func ByConfig(queues ...message.Queue) Strategy {
	return byConfig{slices.Clone(queues)}
}

type byConfig struct {
	queues []message.Queue // never changed
}

func (byConfig) Name() string { return "CONFIG" }

func (s byConfig) Allocate(string, string, []message.Queue, []string) ([]message.Queue, error) {
	return slices.Clone(s.queues), nil
}
