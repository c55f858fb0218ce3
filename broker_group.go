package pocketmq

import (
	"context"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Heartbeat registers a client's groups. Members learn of every change before
// it is answered. Java: ClientManageProcessor.heartBeat.
func (s *brokerSession) Heartbeat(ctx context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	group := ""
	switch {
	case len(q.Consumers) > 0:
		group = q.Consumers[0].Group
	case len(q.Producers) > 0:
		group = q.Producers[0]
	}
	return serveBroker(ctx, s, protocol.CodeHeartbeat, "", group, q, (*brokerSession).heartbeat)
}

func (s *brokerSession) heartbeat(_ context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	if q.ClientID == "" {
		return nil, protocol.Errorf(protocol.InvalidParameter, "heartbeat without a client id")
	}
	q = s.acceptable(q)
	if err := s.useGroups(q.Consumers); err != nil {
		return nil, err
	}
	var changes []groups.Change
	var wanted bool
	var skipped int
	if err := s.open.register(func() { changes, wanted, skipped = s.groups.Heartbeat(time.Now(), s.id, s.peer.Peer, s.peer.Remote, q) }); err != nil {
		return nil, err
	}
	if skipped > 0 {
		s.skipOne(q.ClientID, "groups", "", fmt.Errorf("%d groups have no room: a connection may register %d KiB, and all together %d MiB beyond %d KiB each",
			skipped, groups.SessionBytes>>10, groups.SharedBytes>>20, groups.OwnBytes>>10))
	}
	s.membersChanged(changes)
	return &protocol.HeartbeatResponse{SubscriptionsWanted: wanted || q.Fingerprint == 0}, nil
}

// UnregisterClient takes a client out of its groups.
func (s *brokerSession) UnregisterClient(ctx context.Context, q *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	return serveBroker(ctx, s, protocol.CodeUnregisterClient, "", q.ConsumerGroup, q, func(s *brokerSession, _ context.Context, q *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
		s.membersChanged(s.groups.Unregister(s.id, q))
		return &protocol.UnregisterClientResponse{}, nil
	})
}

// membersChanged tells the members and whoever listens for events.
// Java: DefaultConsumerIdsChangeListener.
func (r *brokerRun) membersChanged(changes []groups.Change) {
	for _, c := range changes {
		r.wire.watch.changed(c.Group)
		for _, id := range c.Joined {
			r.events.emit(r.node, func(b EventBase) Event { return MemberJoined{b, c.Group, id} })
		}
		for _, id := range c.Left {
			r.events.emit(r.node, func(b EventBase) Event { return MemberLeft{b, c.Group, id, c.Reason} })
		}
		r.reportDiffering(c.Group)
		if !r.notifies(c.Group) {
			continue
		}
		for _, p := range c.Notify {
			p.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: c.Group})
		}
	}
}

// GetConsumerList answers the members of a group.
func (s *brokerSession) GetConsumerList(ctx context.Context, q *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetConsumerList, "", q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
		ids := s.groups.Members(q.Group)
		if len(ids) == 0 {
			return nil, protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", q.Group)
		}
		return &protocol.GetConsumerListResponse{ClientIDs: ids}, nil
	})
}

// QueryConsumerOffset answers a committed offset. A group without one starts
// at 0 of a queue whose first message is not gone, unless it wants to know.
// Java: ConsumerManageProcessor.queryConsumerOffset.
//
// Differs: there a queue that is empty has no answer. Clients that begin at its end
// then ask for that, and pass over what is sent between the two questions.
func (s *brokerSession) QueryConsumerOffset(ctx context.Context, q *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeQueryConsumerOffset, q.Topic, q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
		if s.groups.IsMember(q.Group, s.id) {
			s.offsets.Started(q.Group, q.Topic, q.QueueID)
		}
		if at, ok := s.offsets.Query(q.Group, q.Topic, q.QueueID); ok {
			return &protocol.QueryConsumerOffsetResponse{Offset: at}, nil
		}
		if topic, ok := s.topics.Get(q.Topic); ok && q.QueueID < topic.ReadQueues && !q.CommittedOnly && s.store().MinOffset(q.Topic, q.QueueID) == 0 {
			return &protocol.QueryConsumerOffsetResponse{Offset: 0}, nil
		}
		return nil, protocol.Errorf(protocol.QueryNotFound, "group %s has no offset of topic %s queue %d", q.Group, q.Topic, q.QueueID)
	})
}

// UpdateConsumerOffset commits an offset.
func (s *brokerSession) UpdateConsumerOffset(ctx context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeUpdateConsumerOffset, q.Topic, q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
		if err := s.checkGroup(q.Group); err != nil {
			return nil, err
		}
		topic, ok := s.topics.Get(q.Topic)
		if !ok && message.ValidateTopic(q.Topic) != nil {
			return nil, noTopic(q.Topic)
		}
		if _, known := s.settings.Get(q.Group); !known {
			return nil, s.noGroup(q.Group)
		}
		if !ok {
			return nil, noTopic(q.Topic)
		}
		switch {
		case q.QueueID < 0 || q.QueueID >= topic.ReadQueues:
			return nil, s.noQueue(q.QueueID, topic)
		case q.Offset < 0:
			return nil, protocol.Errorf(protocol.InvalidParameter, "offset %d of topic %s queue %d is negative", q.Offset, q.Topic, q.QueueID)
		}
		taken, err := s.commit(q.Group, q.Topic, q.QueueID, q.Offset)
		if err != nil {
			return nil, err
		}
		return &protocol.UpdateConsumerOffsetResponse{Ignored: !taken}, nil
	})
}
