package pocketmq

import (
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// useGroup returns the settings of a group, made at its first use.
func (r *brokerRun) useGroup(name string) (protocol.GroupConfig, error) {
	c, created, err := r.settings.Ensure(time.Now(), name)
	if created {
		r.log.Info("consumer group created by its first use", "group", name)
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
				retry = append(retry, ownTopic(name, c.RetryQueues))
			}
		}
	}
	return r.makeTopics(retry...)
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
