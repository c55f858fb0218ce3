package main

import (
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/rebalance"
)

// canary gives the last queue of a topic, and no other, to the member of this
// name, which tries out a new version. The others share the rest as inner says.
// When the canary is gone they share all.
//
// It can be written because a member's name is in its client id, which every
// member sees. What a strategy has to know about members has to be in there.
type canary struct {
	member string // its InstanceName
	inner  rebalance.Strategy
}

func (canary) Name() string { return "CANARY" }

func (c canary) Allocate(group, self string, queues []pocketmq.MessageQueue, members []string) ([]pocketmq.MessageQueue, error) {
	isCanary := func(id string) bool { return strings.HasSuffix(id, "@"+c.member) }
	others := slices.DeleteFunc(slices.Clone(members), isCanary) // a copy: arguments are not changed
	if len(others) == len(members) || len(others) == 0 || len(queues) < 2 {
		return c.inner.Allocate(group, self, queues, members)
	}
	last := len(queues) - 1
	if isCanary(self) {
		return slices.Clone(queues[last:]), nil
	}
	return c.inner.Allocate(group, self, queues[:last], others)
}
