package pocketmq

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// CreateTopic creates or updates a topic. It is routable at every reachable
// name server when it is answered. Java: AdminBrokerProcessor.updateAndCreateTopic.
func (s *brokerSession) CreateTopic(ctx context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return serveBroker(ctx, s, protocol.CodeCreateTopic, q.Config.Name, "", q, (*brokerSession).createTopic)
}

func (s *brokerSession) createTopic(ctx context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	c := q.Config
	if c.ReadQueues < 0 || c.WriteQueues < 0 || c.ReadQueues > maxQueues || c.WriteQueues > maxQueues || c.ReadQueues+c.WriteQueues == 0 {
		return nil, protocol.Errorf(protocol.InvalidParameter, "topic %s: %d read and %d write queues, must be 0 to %d and not both 0", c.Name, c.ReadQueues, c.WriteQueues, maxQueues)
	}
	if c.Perm&^(PermRead|PermWrite|protocol.PermInherit) != 0 || c.Perm == 0 {
		return nil, protocol.Errorf(protocol.InvalidParameter, "topic %s: permission %d is not made of 2 (write) and 4 (read)", c.Name, c.Perm)
	}
	changed, err := s.topics.Put(time.Now(), c)
	if err != nil {
		return nil, err
	}
	if changed {
		s.log.Info("topic created or updated", "topic", c.Name, "read", c.ReadQueues, "write", c.WriteQueues, "perm", c.Perm)
	}
	// An unchanged topic is registered too: the last registration may have failed.
	if err := s.reg.register(ctx, registerTimeout); err != nil {
		s.log.Warn("topic not registered everywhere", "topic", c.Name, "err", err)
	}
	return &protocol.CreateTopicResponse{}, nil
}
