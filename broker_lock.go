package pocketmq

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// LockQueues gives a member of a group the right to consume queues in order, or
// renews it. Queues that another member holds, and such as this broker does not
// have, are left out of the answer. Java: AdminBrokerProcessor.lockBatchMQ.
//
// Differs: RocketMQ locks queues that do not exist, too; here the queues of a
// broker bound what is remembered.
func (s *brokerSession) LockQueues(ctx context.Context, q *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	return serveBroker(ctx, s, protocol.CodeLockQueues, topicOf(q.Queues), q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
		if err := s.checkLock(q.Group, q.ClientID); err != nil {
			return nil, err
		}
		ours := make([]MessageQueue, 0, len(q.Queues))
		for _, mq := range q.Queues {
			topic, ok := s.topics.Get(mq.Topic)
			if ok && mq.BrokerName == s.cfg.Name && mq.QueueID >= 0 && mq.QueueID < topic.ReadQueues {
				ours = append(ours, mq)
			}
		}
		locked := s.locks.Lock(q.Group, q.ClientID, ours, time.Now())
		s.wire.watch.changed(q.Group)
		return &protocol.LockQueuesResponse{Locked: locked}, nil
	})
}

// UnlockQueues takes queues back that the client holds. Java:
// AdminBrokerProcessor.unlockBatchMQ.
func (s *brokerSession) UnlockQueues(ctx context.Context, q *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	return serveBroker(ctx, s, protocol.CodeUnlockQueues, topicOf(q.Queues), q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
		if err := s.checkLock(q.Group, q.ClientID); err != nil {
			return nil, err
		}
		s.locks.Unlock(q.Group, q.ClientID, q.Queues)
		s.wire.watch.changed(q.Group)
		return &protocol.UnlockQueuesResponse{}, nil
	})
}

// checkLock refuses locks that nobody could hold.
func (s *brokerSession) checkLock(group, clientID string) error {
	if clientID == "" {
		return protocol.Errorf(protocol.InvalidParameter, "queue locks of group %s: the client id is empty", clip(group))
	}
	return s.checkGroup(group)
}

// topicOf is the topic that faults match a request about queues by: that of all
// of them, "" when they differ.
func topicOf(queues []MessageQueue) string {
	topic := ""
	for i, q := range queues {
		if i > 0 && q.Topic != topic {
			return ""
		}
		topic = q.Topic
	}
	return topic
}
