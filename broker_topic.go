package pocketmq

import (
	"context"
	"errors"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// CreateTopic creates or updates a topic. It is routable at every reachable
// name server when it is answered. Java: AdminBrokerProcessor.updateAndCreateTopic.
func (s *brokerSession) CreateTopic(ctx context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return serveBroker(ctx, s, protocol.CodeCreateTopic, q.Config.Name, "", q, (*brokerSession).createTopic)
}

func (s *brokerSession) createTopic(_ context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	if err := s.putTopics([]protocol.TopicConfig{q.Config}); err != nil {
		return nil, err
	}
	return &protocol.CreateTopicResponse{}, nil
}

// DeleteTopic deletes a topic of this broker: its config, its queues, what waits to be delivered to it, all groups'
// offsets and locks of it, and the way back for members that still hold its queues.
// A topic that is not there has nothing left either when it is answered: whatever
// an earlier call left undone is done now. Java: AdminBrokerProcessor.deleteTopic.
//
// A send that runs at the same time may come behind the deletion; then its message
// is the first of the topic's queue when the topic is made anew.
func (s *brokerSession) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return serveBroker(ctx, s, protocol.CodeDeleteTopic, q.Topic, "", q, (*brokerSession).deleteTopic)
}

func (s *brokerSession) deleteTopic(_ context.Context, q *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	if err := s.store().Err(); err != nil { // before anything is half done
		return nil, s.appendError(err)
	}
	delays := s.delays.Load()
	if delays == nil { // it has to know, too
		return nil, protocol.Errorf(protocol.ServiceNotAvailable, "%s is starting", s.cfg.Name)
	}
	// The config goes first: from here on sends and pulls are refused. A crash in
	// the next moment leaves queues and offsets that still fit each other.
	config, deleted, err := s.topics.Delete(time.Now(), q.Topic)
	if err != nil {
		return nil, err
	}
	if err := delays.Delete(s.ctx, q.Topic); err != nil {
		s.log.Error("topic not deleted as a whole, it has to be deleted again", "topic", q.Topic, "err", err)
		return nil, s.appendError(err)
	}
	queues := max(config.ReadQueues, config.WriteQueues)
	for key := range s.store().Queues() {
		if key.Topic == q.Topic {
			queues = max(queues, key.ID+1)
		}
	}
	// Not with the caller's ctx: it is done as a whole.
	err = s.store().DropTopic(s.ctx, q.Topic)
	if err != nil && !errors.Is(err, store.ErrFlushTimeout) {
		s.log.Error("topic not deleted as a whole, it has to be deleted again", "topic", q.Topic, "err", err)
		return nil, s.appendError(err)
	}
	if err != nil {
		s.log.Warn("the deletion of a topic is not synced yet", "topic", q.Topic, "err", err)
	}
	s.offsets.DeleteTopic(q.Topic)
	s.locks.DropTopic(q.Topic)
	s.pullers.DeleteTopic(q.Topic)
	for _, group := range s.groups.Subscribers(q.Topic) {
		for id := range queues {
			s.offsets.Restart(group, q.Topic, id)
		}
	}
	for id := range queues {
		s.waiters.Rouse(q.Topic, id)
	}
	s.offsetsChanged("")
	if deleted {
		s.log.Info("topic deleted", "topic", q.Topic)
	}
	// No registration that still has the topic is under way afterwards.
	if err := s.reg.register(s.ctx, registerTimeout); err != nil {
		s.log.Warn("the topics that are left are not registered everywhere", "deleted", q.Topic, "err", err)
	}
	return &protocol.DeleteTopicResponse{}, nil
}
