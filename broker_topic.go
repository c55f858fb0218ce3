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

func (s *brokerSession) createTopic(_ context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	c := q.Config
	changed, err := s.topics.Put(time.Now(), c)
	if err != nil {
		return nil, err
	}
	if changed {
		s.log.Info("topic created or updated", "topic", c.Name, "read", c.ReadQueues, "write", c.WriteQueues, "perm", c.Perm)
	}
	// An unchanged topic is registered too: the last registration may have failed.
	// It does not end with its caller, who may have come for others.
	if err := s.reg.register(s.ctx, registerTimeout); err != nil {
		s.log.Warn("topic not registered everywhere", "topic", c.Name, "err", err)
	}
	return &protocol.CreateTopicResponse{}, nil
}
