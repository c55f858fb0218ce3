package pocketmq

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/longpoll"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// Most that one pull returns. Java: maxTransferCountOnMessageInMemory,
// maxTransferBytesOnMessageInMemory.
const (
	maxPullMessages = 32
	maxPullBytes    = 256 << 10

	maxPropertiesRoom = 64 << 10 // more than what a record has beside its body
)

// PullMessage reads from a queue; a pull that finds nothing new may be held.
// Java: PullMessageProcessor, PullRequestHoldService.
func (s *brokerSession) PullMessage(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return serveBroker(ctx, s, protocol.CodePullMessage, q.Topic, q.Group, q, (*brokerSession).pullMessage)
}

func (s *brokerSession) pullMessage(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	match, err := s.checkPull(q)
	if err != nil {
		return nil, err
	}
	s.pulls(q)
	if resp := s.moved(q); resp != nil {
		return resp, nil
	}
	was := s.standing.Load()
	if q.Commit && was.role == RoleMaster { // Java: a slave takes none with a pull
		if err := s.advance(q.Group, q.Topic, q.QueueID, q.CommitOffset); err != nil {
			return nil, err
		}
	}
	resp, err := s.read(ctx, q, match)
	if err != nil || resp.Code != protocol.PullNotFound || q.Suspend <= 0 {
		return resp, err
	}
	now := time.Now()
	deadline := now.Add(q.Suspend)
	ready := func() bool {
		if s.store().MaxOffset(q.Topic, q.QueueID) > q.Offset || s.offsets.ResetWaits(q.Group, q.Topic, q.QueueID) {
			return true
		}
		_, ok := s.topics.Get(q.Topic)
		return !ok
	}
	looked := now.UnixNano()-s.found.Load() < int64(hotFor) && spin(ready)
	for { // never an empty answer before the time is up
		out := longpoll.Arrived
		until := s.holdsUntil(deadline)
		if !looked {
			out = s.waiters.Wait(ctx, q.Topic, q.QueueID, q.Offset, match, time.Until(until), ready)
		}
		looked = false
		if err := s.mayServe(protocol.CodePullMessage, was); err != nil {
			return nil, err
		}
		switch out {
		case longpoll.Canceled:
			if s.pullers.Forget(q.Group, q.Topic, q.QueueID, s.id) {
				s.wire.watch.changed(q.Group)
			}
			return nil, ctx.Err()
		case longpoll.Closed: // never reached by a caller: its session ended before
			return nil, protocol.Errorf(protocol.ServiceNotAvailable, "%s is closed", s.cfg.Name)
		}
		if _, ok := s.topics.Get(q.Topic); !ok || out == longpoll.Roused {
			// Topic or group are not what they were.
			if match, err = s.checkPull(q); err != nil {
				return nil, err
			}
		}
		if resp := s.moved(q); resp != nil {
			return resp, nil
		}
		resp, err = s.read(ctx, q, match)
		if err != nil || resp.Code != protocol.PullNotFound || out == longpoll.Timeout && until.Equal(deadline) {
			return resp, err
		}
	}
}

// advance is commit for an offset that comes with a pull. It never goes back:
// such a pull may be served after a commit that the same client sent later, or
// after those of the queue's next owner.
//
// Differs: RocketMQ takes whatever comes last.
func (r *brokerRun) advance(group, topic string, queue int, offset int64) error {
	taken := r.offsets.Advance(group, topic, queue, offset)
	if _, ok := r.topics.Get(topic); !ok {
		r.offsets.Drop(group, topic, queue)
		return noTopic(topic)
	}
	if taken {
		r.wire.watch.changed(group)
	}
	return nil
}

// pulls notes who pulls a queue.
func (s *brokerSession) pulls(q *protocol.PullMessageRequest) {
	if s.pullers.Note(q.Group, q.Topic, q.QueueID, s.id, s.groups.Broadcasts(q.Group)) {
		s.wire.watch.changed(q.Group)
	}
}

// A client that was given messages a moment ago is likely to be given more in
// the next moment. To park its pull and wake it again costs the sender of the
// next message a wake-up of an idle processor, which is many times the price of
// a send; so such a pull looks a few times more, between other goroutines'
// turns, before it parks. It does so only for as long as an idle processor would
// have kept looking for work anyway.
const (
	hotFor = time.Millisecond
	spins  = 200
)

// spin lets other goroutines run until ready, or until it has looked often
// enough.
func spin(ready func() bool) bool {
	for range spins {
		runtime.Gosched()
		if ready() {
			return true
		}
	}
	return false
}

// checkPull refuses what can't be read and returns the broker's test of a
// message's tags code; nil takes everything.
func (s *brokerSession) checkPull(q *protocol.PullMessageRequest) (func(int64) bool, error) {
	if err := s.checkGroup(q.Group); err != nil {
		return nil, err
	}
	topic, ok := s.topics.Get(q.Topic)
	if !ok && message.ValidateTopic(q.Topic) != nil {
		return nil, noTopic(q.Topic) // before a group is made for it
	}
	group, err := s.useGroup(q.Group)
	if err != nil {
		return nil, err
	}
	if !group.ConsumeEnable {
		return nil, protocol.Errorf(protocol.NoPermission, "subscription group no permission, %s: its consumption is disabled on %s", q.Group, s.cfg.Name)
	}
	if !group.ConsumeBroadcastEnable && s.groups.Broadcasts(q.Group) {
		return nil, protocol.Errorf(protocol.NoPermission, "the consumer group[%s] can not consume by broadcast way on %s", q.Group, s.cfg.Name)
	}
	switch {
	case !ok:
		return nil, noTopic(q.Topic)
	case topic.Perm&PermRead == 0:
		return nil, protocol.Errorf(protocol.NoPermission, "topic %s is not readable on %s", q.Topic, s.cfg.Name)
	case q.QueueID < 0 || q.QueueID >= topic.ReadQueues:
		return nil, s.noQueue(q.QueueID, topic)
	}
	if q.HasExpression {
		if !filter.IsTagType(q.ExpressionType) {
			return nil, noFilter(q.ExpressionType)
		}
		tags, err := filter.ParseTags(q.Expression)
		if err != nil {
			return nil, protocol.Errorf(protocol.SubscriptionParseFailed, "parse the consumer's subscription failed: %v", err)
		}
		if tags.All() {
			return nil, nil
		}
		return tags.MatchCode, nil
	}
	if !s.groups.Known(q.Group) {
		return nil, protocol.Errorf(protocol.SubscriptionNotExist, "group %s has no members at %s: send a heartbeat first", q.Group, s.cfg.Name)
	}
	sub, ok := s.groups.Subscription(q.Group, q.Topic)
	if !ok {
		return nil, protocol.Errorf(protocol.SubscriptionNotExist, "group %s does not subscribe to %s", q.Group, q.Topic)
	}
	if sub.Version < q.SubVersion {
		return nil, protocol.Errorf(protocol.SubscriptionNotLatest, "the subscription of group %s to %s is not the latest", q.Group, q.Topic)
	}
	if !filter.IsTagType(sub.ExpressionType) {
		return nil, noFilter(sub.ExpressionType)
	}
	if len(sub.Codes) == 0 {
		return nil, nil
	}
	return func(code int64) bool { return slices.Contains(sub.Codes, int32(code)) }, nil
}

// maxRecord is about how large a stored message may be.
func (r *brokerRun) maxRecord() int { return r.cfg.MaxMessageSize + maxPropertiesRoom }

// read is one look into the store.
func (s *brokerSession) read(ctx context.Context, q *protocol.PullMessageRequest, match func(int64) bool) (*protocol.PullMessageResponse, error) {
	if err := protocol.ReserveAnswer(ctx, maxPullBytes+s.maxRecord()); err != nil {
		return nil, err
	}
	got, err := s.store().Get(store.GetRequest{
		Topic: q.Topic, QueueID: q.QueueID, Offset: q.Offset,
		MaxMessages: min(q.MaxMessages, maxPullMessages), MaxBytes: maxPullBytes, Match: match,
	})
	if err != nil {
		return nil, s.storeError(err)
	}
	if len(got.Records) > 0 {
		s.gets.count.Add(int64(len(got.Records)))
		s.found.Store(time.Now().UnixNano())
	} else {
		protocol.ReleaseAnswer(ctx)
	}
	code := pullCode(got.Status, q.Offset)
	if code == protocol.PullOffsetMoved && q.Offset > got.Max && q.Offset <= s.store().NextOffset(q.Topic, q.QueueID) {
		// A slave was faster: what is there before it is written, or replicated, and not
		// to be read here yet.
		got.Next, code = q.Offset, protocol.PullNotFound
	}
	if code == protocol.PullOffsetMoved && s.standing.Load().role != RoleMaster {
		// A slave moves nobody: it may not have come that far yet, and may have begun
		// later than its master, who has what is missing here. Java:
		// offsetCheckInSlave, which is off.
		got.Next = q.Offset
		if code = protocol.PullRetryImmediately; q.Offset > got.Max {
			code = protocol.PullNotFound // is held, until it has come that far
		}
	}
	return &protocol.PullMessageResponse{
		Code:            code,
		NextBeginOffset: got.Next,
		SuggestBrokerID: s.suggest(q.Group, got.Records),
		MinOffset:       got.Min,
		MaxOffset:       got.Max,
		Records:         got.Records,
	}, nil
}

// suggest is the id of the member to read from next: the master, or, for who is so far
// behind that he would read from the master's disk, a slave that follows. Java:
// GetMessageResult.suggestPullingFromSlave.
func (s *brokerSession) suggest(group string, records [][]byte) int64 {
	m := s.master.Load()
	if s.cfg.SlaveReadBytes <= 0 || m == nil || len(records) == 0 {
		return protocol.MasterID
	}
	st := s.store()
	last := message.View(records[len(records)-1]).Position()
	if st.BytesBetween(last, st.Positions().Written) <= s.cfg.SlaveReadBytes {
		return protocol.MasterID
	}
	wanted := int64(1)
	if g, ok := s.settings.Get(group); ok {
		wanted = g.WhichBrokerWhenConsumeSlowly
	}
	return m.readable(wanted, last)
}

func pullCode(st store.GetStatus, offset int64) protocol.Code {
	switch st {
	case store.GetFound:
		return protocol.Success
	case store.GetNoQueue, store.GetEmptyQueue:
		if offset == 0 {
			return protocol.PullNotFound
		}
		return protocol.PullOffsetMoved
	case store.GetTooSmall, store.GetOverflowBadly:
		return protocol.PullOffsetMoved
	case store.GetOverflowOne:
		return protocol.PullNotFound
	}
	return protocol.PullRetryImmediately
}

// GetMaxOffset answers the end of a queue.
func (s *brokerSession) GetMaxOffset(ctx context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetMaxOffset, q.Topic, "", q, func(s *brokerSession, _ context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
		return &protocol.GetMaxOffsetResponse{Offset: s.store().MaxOffset(q.Topic, q.QueueID)}, nil
	})
}

// GetMinOffset answers the start of a queue.
func (s *brokerSession) GetMinOffset(ctx context.Context, q *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetMinOffset, q.Topic, "", q, func(s *brokerSession, _ context.Context, q *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
		return &protocol.GetMinOffsetResponse{Offset: s.store().MinOffset(q.Topic, q.QueueID)}, nil
	})
}

// checkGroup refuses names that no group may have.
func (s *brokerSession) checkGroup(group string) error {
	if _, ok := s.settings.Get(group); ok {
		return nil // was checked when it was made
	}
	if err := message.ValidateGroup(group); err != nil {
		return protocol.BadName(err)
	}
	return nil
}

// noQueue is the answer to a request about a queue that a topic does not have.
func (r *brokerRun) noQueue(id int, topic protocol.TopicConfig) *protocol.Error {
	return protocol.Errorf(protocol.InvalidParameter, "queue %d of topic %s does not exist on %s, it has queues 0 to %d", id, topic.Name, r.cfg.Name, topic.ReadQueues-1)
}

// noFilter is the answer to a subscription by anything but tags.
func noFilter(kind string) *protocol.Error {
	return protocol.Errorf(protocol.SystemError, "The broker does not support consumer to filter message by %s", clip(kind))
}

// noGroup is the answer of a broker that has never heard of a group.
func (r *brokerRun) noGroup(group string) *protocol.Error {
	return protocol.Errorf(protocol.SubscriptionGroupNotExist, "subscription group [%s] does not exist on %s: start a consumer of it, or create it with Admin.CreateGroup", group, r.cfg.Name)
}

// noTopic is the answer of a broker that does not have a topic.
func noTopic(topic string) *protocol.Error {
	if err := message.ValidateTopic(topic); err != nil {
		return protocol.BadName(err)
	}
	return protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist, apply first please! Create it with Admin.CreateTopic or ClusterConfig.Topics", topic)
}
