package pocketmq

import (
	"context"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// ResetOffset moves a group within a topic. Its committed offset changes at once;
// held pulls of the group are answered at once, others at their next turn, with
// the offset to go on at; until then nothing that members commit counts.
// Java: AdminBrokerProcessor.resetOffset with useServerSideResetOffset.
//
// The members of a broadcasting group keep their offsets themselves: each that is
// connected is told (RESET_CONSUMER_CLIENT_OFFSET), and nothing waits for others.
// Java does so without useServerSideResetOffset, and with it tells the member that
// pulls next.
//
// Differs: RocketMQ leaves held pulls held, forgets what no pull has taken when the
// broker restarts, takes an offset one behind the end, and lets the commit that
// comes with the pull it answers put the old offset back.
func (s *brokerSession) ResetOffset(ctx context.Context, q *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeResetOffset, q.Topic, q.Group, q, (*brokerSession).resetOffset)
}

func (s *brokerSession) resetOffset(ctx context.Context, q *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	if err := s.checkGroup(q.Group); err != nil {
		return nil, err
	}
	topic, ok := s.topics.Get(q.Topic)
	if !ok {
		return nil, noTopic(q.Topic)
	}
	if _, ok := s.settings.Get(q.Group); !ok {
		return nil, s.noGroup(q.Group)
	}
	first, last := 0, topic.ReadQueues-1
	switch {
	case q.QueueID > last:
		return nil, s.noQueue(q.QueueID, topic)
	case q.QueueID >= 0:
		first, last = q.QueueID, q.QueueID
	case q.Offset != nil:
		return nil, protocol.Errorf(protocol.InvalidParameter, "reset of group %s in topic %s to offset %d: no queue is named; an offset is of one queue", q.Group, q.Topic, *q.Offset)
	}
	targets := make(map[int]int64, last-first+1)
	for id := first; id <= last; id++ {
		if err := ctx.Err(); err != nil {
			return nil, err // nothing has changed yet
		}
		at, err := s.resetTarget(q, id)
		if err != nil {
			return nil, err
		}
		targets[id] = at
	}
	if s.groups.Broadcasts(q.Group) {
		s.tellReset(q, targets)
		return &protocol.ResetOffsetResponse{Offsets: targets}, nil
	}
	for id, at := range targets {
		s.offsets.Reset(q.Group, q.Topic, id, at)
		s.waiters.Rouse(q.Topic, id)
	}
	s.log.Info("consumer group reset", "group", q.Group, "topic", q.Topic, "offsets", targets)
	s.offsetsChanged(q.Group)
	return &protocol.ResetOffsetResponse{Offsets: targets}, nil
}

// tellReset tells each member of a broadcasting group where to go on.
func (s *brokerSession) tellReset(q *protocol.ResetOffsetRequest, targets map[int]int64) {
	notice := &protocol.ResetConsumerOffsetRequest{Group: q.Group, Topic: q.Topic, Time: q.Time, Offsets: make(map[MessageQueue]int64, len(targets))}
	for id, at := range targets {
		notice.Offsets[MessageQueue{Topic: q.Topic, BrokerName: s.cfg.Name, QueueID: id}] = at
	}
	members := s.groups.Peers(q.Group)
	for _, member := range members {
		member.ResetConsumerOffset(notice)
	}
	s.log.Info("members of a broadcasting group told of a reset", "group", q.Group, "topic", q.Topic, "members", len(members), "offsets", targets)
}

// resetTarget is where a reset leads to in one queue.
func (r *brokerRun) resetTarget(q *protocol.ResetOffsetRequest, id int) (int64, error) {
	switch {
	case q.Offset != nil:
		low, high := r.store().MinOffset(q.Topic, id), r.store().MaxOffset(q.Topic, id)
		if at := *q.Offset; at < low || at > high {
			return 0, protocol.Errorf(protocol.SystemError, "offset %d is outside of topic %s queue %d, which goes from %d to %d", at, q.Topic, id, low, high)
		}
		return *q.Offset, nil
	case q.Time.IsZero():
		return r.store().MaxOffset(q.Topic, id), nil
	}
	at, err := r.store().OffsetByTime(q.Topic, id, wholeMillis(q.Time), store.LowerBoundary)
	if err != nil {
		return 0, r.storeError(err)
	}
	return at, nil
}

// offsetsChanged persists offsets that somebody set on purpose, and tells those
// who watch the group. A failed save is tried again by the persist loop.
func (r *brokerRun) offsetsChanged(group string) {
	if err := r.offsets.Persist(); err != nil {
		r.log.Error("consumer offsets not persisted", "err", err)
	}
	r.wire.watch.changed(group)
}

// moved answers a pull that comes while a reset waits for it; nil otherwise. The
// member starts where the answer says, so what the pull commits does not count.
func (s *brokerSession) moved(q *protocol.PullMessageRequest) *protocol.PullMessageResponse {
	at, first, ok := s.offsets.TakeReset(q.Group, q.Topic, q.QueueID)
	if !ok {
		return nil
	}
	resp := &protocol.PullMessageResponse{
		Code: protocol.PullOffsetMoved, NextBeginOffset: at,
		MinOffset: s.store().MinOffset(q.Topic, q.QueueID), MaxOffset: s.store().MaxOffset(q.Topic, q.QueueID),
	}
	if first {
		resp.NextBeginOffset = resp.MinOffset
		if q.Offset == resp.MinOffset {
			return nil // it has begun anew by itself
		}
	}
	return resp
}

// commit takes a group's offset of a queue, unless a reset waits. What comes for a
// topic that is being deleted leaves no trace.
func (r *brokerRun) commit(group, topic string, queue int, offset int64) (taken bool, err error) {
	taken = r.offsets.Commit(group, topic, queue, offset)
	if _, ok := r.topics.Get(topic); !ok {
		r.offsets.Drop(group, topic, queue)
		return false, noTopic(topic)
	}
	if taken {
		r.wire.watch.changed(group)
	}
	return taken, nil
}

// CloneGroupOffset gives a group the offsets of another one. Members of the
// former that are connected move at once. Java:
// AdminBrokerProcessor.cloneGroupOffset.
//
// Differs: there members that are connected go on where they were, and commit
// that.
func (s *brokerSession) CloneGroupOffset(ctx context.Context, q *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeCloneGroupOffset, q.Topic, q.To, q, (*brokerSession).cloneGroupOffset)
}

func (s *brokerSession) cloneGroupOffset(_ context.Context, q *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	if err := s.checkGroup(q.From); err != nil {
		return nil, err
	}
	if _, ok := s.settings.Get(q.From); !ok {
		return nil, s.noGroup(q.From)
	}
	if q.Topic != "" {
		if _, ok := s.topics.Get(q.Topic); !ok {
			return nil, noTopic(q.Topic)
		}
	}
	if err := s.checkGroup(q.To); err != nil {
		return nil, err
	}
	if _, err := s.useGroup(q.To); err != nil {
		return nil, err
	}
	for k, at := range s.offsets.Group(q.From) {
		if q.Topic != "" && k.Topic != q.Topic || q.From == q.To || k.Topic == message.RetryTopic(q.From) {
			continue
		}
		if s.groups.Known(q.To) {
			s.offsets.Reset(q.To, k.Topic, k.Queue, at)
			s.waiters.Rouse(k.Topic, k.Queue)
		} else { // nobody has to be told
			s.offsets.Set(q.To, k.Topic, k.Queue, at)
		}
	}
	s.log.Info("offsets of a consumer group cloned", "from", q.From, "to", q.To, "topic", q.Topic)
	s.offsetsChanged(q.To)
	return &protocol.CloneGroupOffsetResponse{}, nil
}
