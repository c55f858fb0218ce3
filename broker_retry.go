package pocketmq

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// firstRetryLevel is the delay level of the first retry; each further one waits
// one level longer. Java: AbstractSendMessageProcessor.consumerSendMsgBack.
const firstRetryLevel = 3

// ConsumerSendMsgBack stores a message that a consumer failed at once more: in its
// group's %RETRY% topic after a delay, or in its %DLQ% topic after the last retry.
// Java: AbstractSendMessageProcessor.consumerSendMsgBack.
//
// Differs: it is answered when the copy is as safe as a producer's message; the
// message must be the one that the consumer means.
func (s *brokerSession) ConsumerSendMsgBack(ctx context.Context, q *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	return serveBroker(ctx, s, protocol.CodeConsumerSendMsgBack, q.Topic, q.Group, q, (*brokerSession).sendMsgBack)
}

func (s *brokerSession) sendMsgBack(ctx context.Context, q *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	s.sends.enter()
	defer s.sends.leave()
	if s.draining.Load() {
		return nil, protocol.Errorf(protocol.ServiceNotAvailable, "%s is shutting down", s.cfg.Name)
	}
	group, err := s.useGroup(q.Group)
	if err != nil {
		return nil, err
	}
	if dropsFailed(group) {
		return &protocol.ConsumerSendMsgBackResponse{}, nil
	}
	retry, err := s.retryTopic(group, q.UnitMode)
	if err != nil {
		return nil, err
	}
	v, err := s.failedMessage(q)
	if err != nil {
		return nil, err
	}
	limit := group.RetryMaxTimes
	if q.MaxReconsumeTimes != nil {
		limit = int(*q.MaxReconsumeTimes)
	}
	rec := s.retryRecord(v)
	level := q.DelayLevel
	if level < 0 || int(v.ReconsumeTimes()) >= limit {
		topic, err := s.deadLetterTopic(q.Group)
		if err != nil {
			return nil, err
		}
		rec.Topic, rec.QueueID = topic.Name, 0
	} else {
		if level == 0 {
			level = firstRetryLevel + int(v.ReconsumeTimes())
		}
		rec.Topic, rec.QueueID = retry.Name, int32(rand.IntN(max(retry.WriteQueues, 1)))
		if err := s.deferRecord(&rec, level); err != nil {
			return nil, err
		}
	}
	batch := s.store().NewBatch()
	if err := batch.Add(&rec); err != nil {
		return nil, illegal(err)
	}
	m, _, err := s.mayAppend()
	if err != nil {
		return nil, notStored(err)
	}
	at, err := s.store().Append(ctx, batch, store.AppendOptions{})
	switch {
	case errors.Is(err, store.ErrFlushTimeout):
		return nil, protocol.Errorf(protocol.SystemError, "FLUSH_DISK_TIMEOUT: stored, but not flushed within %v", s.cfg.Timings.FlushTimeout)
	case err != nil:
		return nil, notStored(s.appendError(err))
	}
	if s.cfg.Failover && s.cfg.Replication == SyncReplication {
		// Differs: RocketMQ's brokers do not wait for slaves here. The offset of what is
		// taken back is committed next, so it has to outlive the master.
		if err := s.awaitSlaves(ctx, m, at.Position, false); err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "FLUSH_SLAVE_TIMEOUT: %v", err)
		}
	}
	s.puts.count.Add(1)
	return &protocol.ConsumerSendMsgBackResponse{}, nil
}

// notStored is what a consumer learns of a store that did not take its message:
// code 1 with the name of the status, whatever the reason.
func notStored(err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return err
	}
	return protocol.Errorf(protocol.SystemError, "SERVICE_NOT_AVAILABLE: %s", e.Remark)
}

// failedMessage reads the record that a consumer gives back, and makes sure that
// it is the one, as far as the request tells: after a power cut another message may
// lie where the one that is meant was. A consumer then sends its own copy to the
// retry topic.
//
// Differs: RocketMQ reads what lies at the offset, whatever the id is.
func (s *brokerSession) failedMessage(q *protocol.ConsumerSendMsgBackRequest) (message.View, error) {
	raw, err := s.store().Record(q.Position)
	if err != nil {
		return nil, protocol.Errorf(protocol.SystemError, "look message by offset failed, %d: %v", q.Position, err)
	}
	v, err := message.ParseView(raw)
	if err != nil {
		return nil, protocol.Errorf(protocol.SystemError, "look message by offset failed, %d: %v", q.Position, err)
	}
	if id, other := otherMessage(v, q.MsgID); other {
		return nil, protocol.Errorf(protocol.SystemError, "look message by offset failed, %d: message %s is there, not %s: the end of the log was lost since", q.Position, id, q.MsgID)
	}
	if q.Topic != "" {
		first, _ := message.PropertyBytes(v.Properties(), message.PropRetryTopic)
		want := withoutNamespace(q.Topic)
		if withoutNamespace(string(v.Topic())) != want && withoutNamespace(string(first)) != want {
			return nil, protocol.Errorf(protocol.SystemError, "look message by offset failed, %d: a message of topic %s is there, not of %s: the end of the log was lost since", q.Position, v.Topic(), q.Topic)
		}
	}
	return v, nil
}

// otherMessage reports whether id is for certain that of another message than v,
// and returns v's id of the same kind. Official clients send a unique key, or the
// offset message id of a message without one. An id of the other kind, or of none,
// tells nothing.
func otherMessage(v message.View, id string) (have string, other bool) {
	if host, position, err := message.ParseOffsetMsgID(id); err == nil {
		return message.OffsetMsgID(v.StoreHost(), v.Position()), position == v.Position() && host != v.StoreHost()
	}
	key, _ := message.PropertyBytes(v.Properties(), message.PropUniqKey)
	if _, err := message.ParseUniqKey(id); err != nil {
		return "", false
	}
	if _, err := message.ParseUniqKey(string(key)); err != nil {
		return "", false
	}
	return string(key), !strings.EqualFold(id, string(key))
}

// withoutNamespace takes the instance off a topic's name. Java:
// NamespaceUtil.withoutNamespace.
func withoutNamespace(topic string) string {
	prefix := ""
	for _, p := range []string{message.RetryPrefix, message.DLQPrefix} {
		if strings.HasPrefix(topic, p) {
			prefix = p
		}
	}
	rest := topic[len(prefix):]
	if i := strings.IndexByte(rest, '%'); i > 0 {
		rest = rest[i+1:]
	}
	return prefix + rest
}

// retryRecord is one more copy of a message, without a place yet.
func (r *brokerRun) retryRecord(v message.View) message.Record {
	old := string(v.Properties())
	text := make([]byte, 0, len(old)+len(v.Topic())+128)
	text = message.AppendWithout(text, old, message.PropDelay, message.PropWait, message.PropRealTopic, message.PropRealQueueID, message.PropPopCK)
	if _, ok := message.Property(old, message.PropRetryTopic); !ok {
		text = message.AppendProperty(text, message.PropRetryTopic, string(v.Topic()))
	}
	if _, ok := message.Property(old, message.PropOriginMessageID); !ok {
		text = message.AppendProperty(text, message.PropOriginMessageID, message.OffsetMsgID(v.StoreHost(), v.Position()))
	}
	return message.Record{
		Flag: v.Flag(), SysFlag: v.SysFlag(), BornTime: v.BornTime(), BornHost: v.BornHost(), StoreHost: r.addr,
		ReconsumeTimes: v.ReconsumeTimes() + 1, Body: v.Body(), Properties: string(text), Accepted: true,
	}
}

// errDropped says that a message is acknowledged and not stored.
var errDropped = errors.New("the group drops what fails")

// dropsFailed reports whether a group's failed messages are neither delivered
// again nor kept. Java: retryQueueNums <= 0.
func dropsFailed(group protocol.GroupConfig) bool { return group.RetryQueues <= 0 }

// retryTopic returns a group's %RETRY% topic, made if need be.
func (r *brokerRun) retryTopic(group protocol.GroupConfig, unit bool) (protocol.TopicConfig, error) {
	c := ownTopic(message.RetryTopic(group.Name), max(group.RetryQueues, 1))
	if unit {
		c.SysFlag = sysFlagUnitSub
	}
	return r.ownWritable(c)
}

// deadLetterTopic returns a group's %DLQ% topic, made if need be: people read it.
func (r *brokerRun) deadLetterTopic(group string) (protocol.TopicConfig, error) {
	return r.ownWritable(ownTopic(message.DLQTopic(group), 1))
}

func (r *brokerRun) ownWritable(c protocol.TopicConfig) (protocol.TopicConfig, error) {
	topic, ok := r.topics.Get(c.Name)
	if !ok {
		if err := r.makeTopics(c); err != nil {
			return topic, err
		}
		if topic, ok = r.topics.Get(c.Name); !ok {
			return topic, protocol.Errorf(protocol.SystemError, "topic[%s] not exist", c.Name)
		}
	}
	if topic.Perm&PermWrite == 0 {
		return topic, protocol.Errorf(protocol.NoPermission, "the topic[%s] is not writable on %s", c.Name, r.cfg.Name)
	}
	return topic, nil
}

// redirect sends to a group's dead letters what a client sends to its %RETRY%
// topic once too often, or while its members consume in
// order: they try again on their own, and send only what they give up. Java:
// SendMessageProcessor.handleRetryAndDLQ.
//
// Differs: what has failed already is dropped (errDropped) in a group without
// retry queues, as ConsumerSendMsgBack does, for which such a send stands in. Java
// stores it.
func (s *brokerSession) redirect(q *protocol.SendMessageRequest) (topic protocol.TopicConfig, dead bool, err error) {
	group, err := s.useGroup(strings.TrimPrefix(q.Topic, message.RetryPrefix))
	if err != nil {
		return topic, false, err
	}
	if dropsFailed(group) && q.ReconsumeTimes > 0 {
		return topic, false, errDropped
	}
	limit := group.RetryMaxTimes
	if q.MaxReconsumeTimes != nil {
		limit = int(*q.MaxReconsumeTimes)
	}
	if int(q.ReconsumeTimes) > limit || s.locks.Holds(group.Name, time.Now()) {
		topic, err = s.deadLetterTopic(group.Name)
		return topic, true, err
	}
	topic, err = s.retryTopic(group, false)
	return topic, false, err
}
