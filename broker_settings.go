package pocketmq

import (
	"context"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// useGroup returns the settings of a group, made at its first use.
func (r *brokerRun) useGroup(name string) (protocol.GroupConfig, error) {
	c, created, err := r.settings.Ensure(time.Now(), name)
	switch {
	case !created:
	case r.standing.Load().role == RoleMaster:
		r.log.Info("consumer group created by its first use", "group", name)
	default: // until its next copy of the master's
		r.log.Debug("consumer group created by its first use at a slave", "group", name)
	}
	return c, err
}

// useGroups makes the settings and the %RETRY% topics of the groups that a
// client consumes for. New topics are routable when it returns.
// Java: ClientManageProcessor.heartBeat.
//
// Differs: a broadcasting group has no %RETRY% topic, because it retries
// nothing.
func (r *brokerRun) useGroups(consumers []protocol.ConsumerData) error {
	var retry []protocol.TopicConfig
	for i := range consumers {
		c, err := r.useGroup(consumers[i].Group)
		if err != nil {
			return err
		}
		if name := message.RetryTopic(c.Name); consumers[i].Model == protocol.Clustering && c.RetryQueues > 0 {
			if _, ok := r.topics.Get(name); !ok {
				topic := ownTopic(name, c.RetryQueues)
				topic.Order = slices.ContainsFunc(consumers[i].Subscriptions, r.inOrder)
				if consumers[i].UnitMode {
					topic.SysFlag = sysFlagUnitSub
				}
				retry = append(retry, topic)
			}
		}
	}
	return r.makeTopics(retry...)
}

// sysFlagUnitSub marks the %RETRY% topic of a group that consumes in unit mode.
// Java: TopicSysFlag.buildSysFlag(false, true).
const sysFlagUnitSub = 2

// inOrder reports whether a subscription is to a topic that is to be consumed in
// order.
func (r *brokerRun) inOrder(sub protocol.Subscription) bool {
	topic, _ := r.topics.Get(sub.Topic)
	return topic.Order
}

// ownTopic is a topic that the broker makes for its own use.
func ownTopic(name string, queues int) protocol.TopicConfig {
	return protocol.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: PermRead | PermWrite}
}

// makeTopics makes the missing ones of the broker's own topics, and announces
// them, all at once.
func (r *brokerRun) makeTopics(configs ...protocol.TopicConfig) error {
	if len(configs) == 0 {
		return nil
	}
	created, err := r.topics.Make(time.Now(), configs...)
	if err != nil || !created {
		return err
	}
	for _, c := range configs {
		r.log.Info("topic created", "topic", c.Name, "queues", c.WriteQueues)
	}
	// Not with the caller's ctx: others need the topic too.
	if err := r.reg.announce(r.ctx, registerTimeout); err != nil {
		r.log.Warn("new topics not registered everywhere", "first", configs[0].Name, "err", err)
	}
	return nil
}

// notifies reports whether members of a group are told of changes.
func (r *brokerRun) notifies(group string) bool {
	c, ok := r.settings.Get(group)
	return !ok || c.NotifyConsumerIDsChangedEnable
}

// UpdateGroup creates a consumer group, or replaces its settings. More retry
// queues than before are there at once; fewer take nothing away. Java:
// AdminBrokerProcessor.updateAndCreateSubscriptionGroup.
func (s *brokerSession) UpdateGroup(ctx context.Context, q *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return serveBroker(ctx, s, protocol.CodeUpdateGroup, "", q.Config.Name, q, func(s *brokerSession, _ context.Context, q *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
		if err := s.putGroup(q.Config); err != nil {
			return nil, err
		}
		return &protocol.UpdateGroupResponse{}, nil
	})
}

func (r *brokerRun) putGroup(c protocol.GroupConfig) error {
	changed, err := r.settings.Put(time.Now(), c)
	if err != nil {
		return err
	}
	if changed {
		r.log.Info("consumer group created or updated", "group", c.Name, "enabled", c.ConsumeEnable, "retries", c.RetryMaxTimes, "retry queues", c.RetryQueues)
	}
	if retry, ok := r.topics.Get(message.RetryTopic(c.Name)); ok && retry.ReadQueues < c.RetryQueues {
		if _, err := r.topics.Ensure(time.Now(), ownTopic(retry.Name, c.RetryQueues)); err != nil {
			return err
		}
		if err := r.reg.announce(r.ctx, registerTimeout); err != nil {
			r.log.Warn("more retry queues not registered everywhere", "topic", retry.Name, "err", err)
		}
	}
	r.rouseGroup(c.Name) // what it may do can have changed
	r.wire.watch.changed(c.Name)
	return nil
}

// DeleteGroup forgets a group's settings and, if that is asked for, its offsets. A
// group that is used afterwards is there again, with default settings. Java:
// AdminBrokerProcessor.deleteSubscriptionGroup.
func (s *brokerSession) DeleteGroup(ctx context.Context, q *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return serveBroker(ctx, s, protocol.CodeDeleteGroup, "", q.Group, q, func(s *brokerSession, _ context.Context, q *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
		if err := s.checkGroup(q.Group); err != nil {
			return nil, err
		}
		deleted, err := s.settings.Delete(time.Now(), q.Group)
		if err != nil {
			return nil, err
		}
		if q.CleanOffsets {
			s.offsets.DeleteGroup(q.Group)
		}
		if deleted {
			s.log.Info("consumer group deleted", "group", q.Group, "offsets too", q.CleanOffsets)
		}
		s.offsetsChanged(q.Group)
		return &protocol.DeleteGroupResponse{}, nil
	})
}

// rouseGroup lets a group's held pulls look again whether they may go on.
func (r *brokerRun) rouseGroup(group string) {
	for _, name := range r.groups.Topics(group) {
		topic, _ := r.topics.Get(name)
		for id := range topic.ReadQueues {
			r.waiters.Rouse(name, id)
		}
	}
}
