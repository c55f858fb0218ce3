package pocketmq

import (
	"context"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// GetAllTopics lists all topics.
func (s *nameServerSession) GetAllTopics(ctx context.Context, q *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetAllTopics, "", q, func(context.Context, *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
		return &protocol.GetAllTopicsResponse{Topics: s.table.Topics()}, nil
	})
}

// GetTopicsByCluster lists the topics of one cluster.
func (s *nameServerSession) GetTopicsByCluster(ctx context.Context, q *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetTopicsByCluster, "", q, func(_ context.Context, q *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
		return &protocol.GetTopicsByClusterResponse{Topics: s.table.TopicsOf(q.Cluster)}, nil
	})
}

// GetSystemTopics lists the topics that are known here to be the system's own.
func (s *nameServerSession) GetSystemTopics(ctx context.Context, q *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetSystemTopics, "", q, func(context.Context, *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
		topics, broker := s.table.SystemTopics()
		return &protocol.GetSystemTopicsResponse{Topics: topics, BrokerAddr: broker}, nil
	})
}

// GetUnitTopics lists topics by their marks of units.
func (s *nameServerSession) GetUnitTopics(ctx context.Context, q *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetUnitTopics, "", q, func(_ context.Context, q *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
		return &protocol.GetUnitTopicsResponse{Topics: s.table.UnitTopics(q.Which)}, nil
	})
}

// RegisterTopic makes a topic routable that no broker has brought.
//
// Differs: an illegal name is refused.
func (s *nameServerSession) RegisterTopic(ctx context.Context, q *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	return serveNS(ctx, s, protocol.CodeRegisterTopic, q.Topic, q, func(_ context.Context, q *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
		if err := message.ValidateTopic(q.Topic); err != nil {
			return nil, protocol.BadName(err)
		}
		s.routesChanged(s.table.RegisterTopic(q.Topic, q.Queues).Topics)
		return &protocol.RegisterTopicResponse{}, nil
	})
}

// DeleteTopic takes a topic out of the routes.
func (s *nameServerSession) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
	return serveNS(ctx, s, protocol.CodeDeleteTopicInNameServer, q.Topic, q, func(_ context.Context, q *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
		if s.table.DeleteTopic(q.Topic, q.Cluster) {
			s.log.Info("topic deleted", "topic", q.Topic, "cluster", q.Cluster)
			s.routesChanged([]string{q.Topic})
		}
		return &protocol.DeleteTopicRouteResponse{}, nil
	})
}

// WipeWritePerm takes the write permission from all topics of a broker.
func (s *nameServerSession) WipeWritePerm(ctx context.Context, q *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
	return serveNS(ctx, s, protocol.CodeWipeWritePerm, "", q, func(_ context.Context, q *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
		topics, change := s.table.WipeWritePerm(q.BrokerName)
		s.log.Info("write permission wiped", "broker", q.BrokerName, "topics", topics)
		s.routesChanged(change.Topics)
		return &protocol.WipeWritePermResponse{Topics: topics}, nil
	})
}

// AddWritePerm makes all topics of a broker readable and writable.
func (s *nameServerSession) AddWritePerm(ctx context.Context, q *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
	return serveNS(ctx, s, protocol.CodeAddWritePerm, "", q, func(_ context.Context, q *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
		topics, change := s.table.AddWritePerm(q.BrokerName)
		s.log.Info("write permission added", "broker", q.BrokerName, "topics", topics)
		s.routesChanged(change.Topics)
		return &protocol.AddWritePermResponse{Topics: topics}, nil
	})
}
