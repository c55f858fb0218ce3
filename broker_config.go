package pocketmq

import (
	"context"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// CheckClientConfig answers whether this broker filters by what a client wants to
// subscribe to. Java: ClientManageProcessor.checkClientConfig.
func (s *brokerSession) CheckClientConfig(ctx context.Context, q *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
	return serveBroker(ctx, s, protocol.CodeCheckClientConfig, q.Subscription.Topic, q.Group, q, func(_ *brokerSession, _ context.Context, q *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
		if kind := q.Subscription.ExpressionType; !filter.IsTagType(kind) {
			return nil, noFilter(kind)
		}
		return &protocol.CheckClientConfigResponse{}, nil
	})
}

// CreateTopicList is CreateTopic for several topics, which are announced all at
// once. Java: AdminBrokerProcessor.updateAndCreateTopicList.
func (s *brokerSession) CreateTopicList(ctx context.Context, q *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
	return serveBroker(ctx, s, protocol.CodeCreateTopicList, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
		if err := s.putTopics(q.Configs); err != nil {
			return nil, err
		}
		return &protocol.CreateTopicListResponse{}, nil
	})
}

// putTopics creates or changes topics and makes them routable.
func (r *brokerRun) putTopics(configs []protocol.TopicConfig) error {
	changed, err := r.topics.Put(time.Now(), configs...)
	if err != nil {
		return err
	}
	if changed {
		for _, c := range configs {
			r.log.Info("topic created or updated", "topic", c.Name, "read", c.ReadQueues, "write", c.WriteQueues, "perm", c.Perm)
		}
	}
	// Unchanged topics are registered too: the last registration may have failed.
	// It does not end with its caller, who may have come for others.
	if err := r.reg.register(r.ctx, registerTimeout); err != nil {
		r.log.Warn("topics not registered everywhere", "topics", len(configs), "err", err)
	}
	return nil
}

// GetTopicConfig answers a topic as it is. Java: AdminBrokerProcessor.getTopicConfig.
func (s *brokerSession) GetTopicConfig(ctx context.Context, q *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetTopicConfig, q.Topic, "", q, func(s *brokerSession, _ context.Context, q *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
		config, ok := s.topics.Get(q.Topic)
		if !ok {
			return nil, noTopic(q.Topic)
		}
		return &protocol.GetTopicConfigResponse{Config: config}, nil
	})
}

// GetAllTopicConfig answers all topics, or a page of them. Java:
// AdminBrokerProcessor.getAllTopicConfig.
func (s *brokerSession) GetAllTopicConfig(ctx context.Context, q *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetAllTopicConfig, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
		all, version := s.topics.Snapshot()
		first, end := q.Page.Of(len(all), version)
		return &protocol.GetAllTopicConfigResponse{Topics: all[first:end], Version: version, Total: len(all)}, nil
	})
}

// UpdateGroupList is UpdateGroup for several groups. Java:
// AdminBrokerProcessor.updateAndCreateSubscriptionGroupList.
func (s *brokerSession) UpdateGroupList(ctx context.Context, q *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
	return serveBroker(ctx, s, protocol.CodeUpdateGroupList, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
		for i := range q.Configs {
			if err := message.ValidateGroup(q.Configs[i].Name); err != nil {
				return nil, protocol.BadName(err)
			}
		}
		for i := range q.Configs {
			if err := s.putGroup(q.Configs[i]); err != nil {
				return nil, err
			}
		}
		return &protocol.UpdateGroupListResponse{}, nil
	})
}

// GetAllGroupConfig answers the settings of all groups, or of a page of them. Java:
// AdminBrokerProcessor.getAllSubscriptionGroup.
func (s *brokerSession) GetAllGroupConfig(ctx context.Context, q *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetAllGroupConfig, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
		all, version := s.settings.Table()
		first, end := q.Page.Of(len(all), version)
		return &protocol.GetAllGroupConfigResponse{Groups: all[first:end], Version: version, Total: len(all)}, nil
	})
}
