package pocketmq

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/internal/offsets"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// GetConsumeStats answers how far a group has come. Without a topic that is in
// every topic that it has committed in and, while it has members, still
// subscribes to. A topic that the broker does not have is an empty answer. Java:
// AdminBrokerProcessor.getConsumeStats.
func (s *brokerSession) GetConsumeStats(ctx context.Context, q *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetConsumeStats, q.Topic, q.Group, q, (*brokerSession).consumeStats)
}

func (s *brokerSession) consumeStats(ctx context.Context, q *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	if err := s.checkGroup(q.Group); err != nil {
		return nil, err
	}
	committed := s.offsets.Group(q.Group)
	names := []string{q.Topic}
	if q.Topic == "" {
		names = committedTopics(committed)
		if s.groups.Known(q.Group) {
			subscribed := s.groups.Topics(q.Group)
			names = slices.DeleteFunc(names, func(name string) bool {
				return !slices.Contains(subscribed, name) && name != message.RetryTopic(q.Group)
			})
		}
	}
	resp := &protocol.GetConsumeStatsResponse{}
	for _, name := range names {
		topic, _ := s.topics.Get(name)
		for id := range topic.ReadQueues {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			at := protocol.ConsumeStats{Topic: name, QueueID: id, ConsumerOffset: -1}
			if offset, ok := committed[offsets.Key{Topic: name, Queue: id}]; ok {
				at.ConsumerOffset = offset
				stored, err := s.lastConsumed(name, id, offset)
				if err != nil {
					return nil, err
				}
				at.LastTime = stored
			}
			at.BrokerOffset = s.store().MaxOffset(name, id) // after the commit: it never lies beyond
			resp.Queues = append(resp.Queues, at)
		}
	}
	return resp, nil
}

// lastConsumed is the store time of the message before an offset; zero when there
// is none.
func (r *brokerRun) lastConsumed(topic string, id int, offset int64) (time.Time, error) {
	if offset == 0 {
		return time.Time{}, nil
	}
	stored, err := r.store().StoreTime(topic, id, offset-1)
	if errors.Is(err, store.ErrNoRecord) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, r.storeError(err)
	}
	return stored, nil
}

// committedTopics lists the topics of committed offsets, sorted.
func committedTopics(committed map[offsets.Key]int64) []string {
	var names []string
	for k := range committed {
		names = append(names, k.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// members are those of a group as its registry has them; none for a broker that is
// not running.
func (b *Broker) members(group string) []groups.Member {
	if b.life.use() != nil {
		return nil
	}
	snap, _ := b.run.Load().groups.Snapshot(group)
	return snap.Members
}

// groupStatus is Broker.Group.
func (r *brokerRun) groupStatus(name string) (GroupStatus, bool) {
	g, live := r.groups.Snapshot(name)
	committed := r.offsets.Group(name)
	_, known := r.settings.Get(name)
	if !live && !known && len(committed) == 0 {
		return GroupStatus{}, false
	}
	st := GroupStatus{Name: name, Model: g.Model, Locks: r.locks.Locks(name, time.Now())}
	st.Orderly = len(st.Locks) > 0
	_, st.Differ = r.groups.Differ(name)
	wanted := make(map[offsets.Key]bool)
	want := func(topic string) {
		config, _ := r.topics.Get(topic)
		for q := range config.ReadQueues {
			wanted[offsets.Key{Topic: topic, Queue: q}] = true
		}
	}
	for k := range committed {
		wanted[k] = true
	}
	want(message.RetryTopic(name))
	pulled := r.pullers.Of(name)
	for _, m := range g.Members {
		for _, sub := range m.Subscriptions {
			want(sub.Topic)
		}
		st.Members = append(st.Members, r.memberStatus(name, m, pulled[m.Session]))
	}
	for k := range wanted {
		lag := QueueLag{Queue: MessageQueue{Topic: k.Topic, BrokerName: r.cfg.Name, QueueID: k.Queue}, Committed: -1}
		if at, ok := committed[k]; ok {
			lag.Committed = at
			lag.LastConsumed, _ = r.lastConsumed(k.Topic, k.Queue, at) // what cannot be read has no time
		}
		// The end after the commit, the start last: neither passes the one before.
		lag.Max = r.store().MaxOffset(k.Topic, k.Queue)
		if lag.Max == 0 && message.IsRetryTopic(k.Topic) {
			continue // nothing has failed yet
		}
		lag.fill(r.store().MinOffset(k.Topic, k.Queue))
		st.Queues = append(st.Queues, lag)
	}
	slices.SortFunc(st.Queues, compareLags)
	return st, true
}

// compareLags orders the queues of a group, those of %RETRY% last.
func compareLags(a, b QueueLag) int {
	if retry := message.IsRetryTopic(a.Queue.Topic); retry != message.IsRetryTopic(b.Queue.Topic) {
		if retry {
			return 1
		}
		return -1
	}
	return a.Queue.Compare(b.Queue)
}

// fill works out the lag when the queue's first message is at low.
func (l *QueueLag) fill(low int64) { l.Lag = max(l.Max-max(l.Committed, low), 0) }

// memberStatus describes a member that pulls the given queues.
func (r *brokerRun) memberStatus(group string, m groups.Member, pulled []groups.Pulled) MemberStatus {
	st := MemberStatus{
		ClientID: m.ClientID, Addr: m.Remote.String(), LastHeartbeat: m.LastHeartbeat,
		Subscriptions: make(map[string]string, len(m.Subscriptions)),
	}
	for _, sub := range m.Subscriptions {
		if sub.Topic != message.RetryTopic(group) {
			st.Subscriptions[sub.Topic] = sub.Expression
		}
	}
	for _, q := range pulled {
		if q.Topic != message.RetryTopic(group) {
			st.Assigned = append(st.Assigned, MessageQueue{Topic: q.Topic, BrokerName: r.cfg.Name, QueueID: q.Queue})
		}
	}
	return st
}

// GetConsumerConnection answers who is in a group. Java:
// AdminBrokerProcessor.getConsumerConnectionList.
func (s *brokerSession) GetConsumerConnection(ctx context.Context, q *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetConsumerConnection, "", q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
		g, ok := s.groups.Snapshot(q.Group)
		if !ok {
			return nil, protocol.Errorf(protocol.ConsumerNotOnline, "the consumer group[%s] not online", clip(q.Group))
		}
		resp := &protocol.GetConsumerConnectionResponse{Model: g.Model, From: g.From, Passive: g.Passive, Subscriptions: g.Subscriptions}
		for _, m := range g.Members {
			resp.Members = append(resp.Members, protocol.Connection{ClientID: m.ClientID, Addr: m.Remote.String(), Language: m.Language, Version: m.Version})
		}
		return resp, nil
	})
}
