package pocketmq

import (
	"context"
	"errors"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"

	"golang.org/x/sync/errgroup"
)

// How long a member may take to answer what the broker asks it. Java:
// Broker2Client.callClient, getConsumeStatus.
const (
	relayTimeout  = 10 * time.Second
	statusTimeout = 5 * time.Second
)

// askMember passes a request on to a member of a group, and its answer back. Java:
// AdminBrokerProcessor.callConsumer.
func askMember[Q, R any](ctx context.Context, s *brokerSession, group, clientID string, timeout time.Duration, q *Q,
	method func(protocol.Peer, context.Context, *Q) (*R, error)) (*R, error) {
	peer, ok := s.groups.Peer(group, clientID)
	if !ok {
		return nil, notOnline(group, clientID)
	}
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := method(peer, asked, q)
	if err != nil && asked.Err() != nil && ctx.Err() == nil {
		return nil, protocol.Errorf(protocol.ConsumeMsgTimeout, "consumer <%s> <%s> did not answer within %v", clip(group), clip(clientID), timeout)
	}
	return resp, err
}

// notOnline is the answer to a request for a client that is no member of its group.
func notOnline(group, clientID string) *protocol.Error {
	return protocol.Errorf(protocol.SystemError, "The Consumer <%s> <%s> not online", clip(group), clip(clientID))
}

// GetConsumerRunningInfo asks a member of a group what it is doing. Java:
// AdminBrokerProcessor.getConsumerRunningInfo.
func (s *brokerSession) GetConsumerRunningInfo(ctx context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetConsumerRunningInfo, "", q.Group, q, func(s *brokerSession, ctx context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
		return askMember(ctx, s, q.Group, q.ClientID, relayTimeout, q, protocol.Peer.GetConsumerRunningInfo)
	})
}

// ConsumeMessageDirectly hands a stored message to a member of a group, and answers
// what its handler made of it. Java: AdminBrokerProcessor.consumeMessageDirectly.
func (s *brokerSession) ConsumeMessageDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return serveBroker(ctx, s, protocol.CodeConsumeMessageDirectly, q.Topic, q.Group, q, (*brokerSession).consumeDirectly)
}

func (s *brokerSession) consumeDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	if _, ok := s.groups.Peer(q.Group, q.ClientID); !ok {
		return nil, notOnline(q.Group, q.ClientID)
	}
	_, position, err := message.ParseOffsetMsgID(q.MsgID)
	if err != nil {
		return nil, protocol.Errorf(protocol.SystemError, "message %q: %v; the id is the one that names where the message is stored", clip(q.MsgID), err)
	}
	record, err := s.store().Record(position)
	switch {
	case errors.Is(err, store.ErrNoRecord):
		return nil, protocol.Errorf(protocol.SystemError, "%s %d", protocol.RemarkNoMessage, position)
	case err != nil:
		return nil, s.storeError(err)
	}
	told := *q
	told.BrokerName, told.Record = s.cfg.Name, record
	if topic, ok := s.topics.Get(q.Topic); ok {
		told.TopicSysFlag = topic.SysFlag
	}
	if group, ok := s.settings.Get(q.Group); ok {
		told.GroupSysFlag = group.GroupSysFlag
	}
	return askMember(ctx, s, q.Group, q.ClientID, relayTimeout, &told, protocol.Peer.ConsumeMessageDirectly)
}

// GetConsumerStatus asks members of a group how far they have come in a topic,
// one beside the other. One that does not tell is left out, unless nobody else was
// asked. Java: AdminBrokerProcessor.getConsumerStatus, Broker2Client.getConsumeStatus.
func (s *brokerSession) GetConsumerStatus(ctx context.Context, q *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetConsumerStatus, q.Topic, q.Group, q, (*brokerSession).consumerStatus)
}

func (s *brokerSession) consumerStatus(ctx context.Context, q *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	ids := []string{q.ClientID}
	if q.ClientID == "" {
		if ids = s.groups.Members(q.Group); len(ids) == 0 {
			return nil, protocol.Errorf(protocol.SystemError, "No Any Consumer online in the consumer group: [%s]", clip(q.Group))
		}
	}
	answers := make([]*protocol.PeerConsumerStatusResponse, len(ids))
	errs := make([]error, len(ids))
	var asks errgroup.Group
	asks.SetLimit(maxStatusAsks)
	for i, id := range ids {
		asks.Go(func() error {
			answers[i], errs[i] = askMember(ctx, s, q.Group, id, statusTimeout, &protocol.PeerConsumerStatusRequest{Group: q.Group, Topic: q.Topic}, protocol.Peer.GetConsumerStatus)
			return nil
		})
	}
	if err := asks.Wait(); err != nil {
		return nil, err
	}
	resp := &protocol.GetConsumerStatusResponse{Offsets: make(map[string]map[MessageQueue]int64, len(ids))}
	for i, answer := range answers {
		switch {
		case errs[i] == nil:
			resp.Offsets[ids[i]] = answer.Offsets
		case len(ids) == 1:
			return nil, errs[i]
		default:
			s.log.Warn("a member did not tell how far it has come", "group", q.Group, "client", ids[i], "err", errs[i])
		}
	}
	return resp, nil
}

// maxStatusAsks bounds how many members are asked at a time.
const maxStatusAsks = 64
