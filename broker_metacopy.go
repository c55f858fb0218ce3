package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// metadataCopy copies what is not in the log from a slave's master, round by round.
// One goroutine uses it, for one connection. Java: SlaveSynchronize.
type metadataCopy struct {
	r    *brokerRun
	conn protocol.BrokerConn // to the master

	// What waits until the slave's log has what it presumes; nil = nothing. It is not
	// replaced by something newer, or a slave that is always a little behind would never
	// have any of it.
	offsets *protocol.GetAllConsumerOffsetResponse
	delays  *protocol.GetAllDelayOffsetResponse
}

// round copies once: topics and groups at once, offsets and progress as soon as the
// log has come so far that they do not lead it, which may be in a later round. What is
// committed at the slave goes to the master. The error joins what failed; the rest is
// done.
func (c *metadataCopy) round(ctx context.Context) error {
	applied := c.apply(ctx)
	return errors.Join(c.copyTopics(ctx), c.copyGroups(ctx), applied, c.ask(ctx), c.apply(ctx))
}

func (c *metadataCopy) copyTopics(ctx context.Context) error {
	var at int64
	if f := c.r.receiver.Load(); f != nil {
		at = f.Status().MasterEnd // before the question: what the answer knows
	}
	resp, err := c.conn.GetAllTopicConfig(ctx, &protocol.GetAllTopicConfigRequest{})
	if err != nil {
		return fmt.Errorf("topics of the master: %w", err)
	}
	changed, gone, err := c.r.topics.Replace(resp.Topics, resp.Version)
	if err != nil {
		return err
	}
	raise(&c.r.topicsAt, at)
	for _, topic := range append(changed, gone...) {
		for id := range topic.ReadQueues { // who waits for it may be refused now
			c.r.waiters.Rouse(topic.Name, id)
		}
	}
	if len(changed)+len(gone) == 0 {
		return nil
	}
	c.r.log.Info("topics are those of the master", "changed", len(changed), "gone", len(gone))
	if err := c.r.reg.register(ctx, registerTimeout); err != nil {
		c.r.log.Warn("topics of the master not registered everywhere", "err", err)
	}
	return nil
}

func (c *metadataCopy) copyGroups(ctx context.Context) error {
	resp, err := c.conn.GetAllGroupConfig(ctx, &protocol.GetAllGroupConfigRequest{})
	if err != nil {
		return fmt.Errorf("groups of the master: %w", err)
	}
	changed, err := c.r.settings.Replace(resp.Groups, resp.Version)
	for _, group := range changed {
		c.r.rouseGroup(group)
		c.r.wire.watch.changed(group)
	}
	return err
}

// ask asks for offsets and progress, unless some wait.
func (c *metadataCopy) ask(ctx context.Context) (err error) {
	if c.offsets == nil {
		own := c.r.offsets.Own(protocol.MaxPage)
		resp, aerr := c.conn.GetAllConsumerOffset(ctx, &protocol.GetAllConsumerOffsetRequest{Own: own})
		if aerr != nil {
			err = fmt.Errorf("offsets of the master: %w", aerr)
		} else {
			c.r.offsets.Given(own)
			c.offsets = resp
		}
	}
	if c.delays == nil {
		resp, aerr := c.conn.GetAllDelayOffset(ctx, &protocol.GetAllDelayOffsetRequest{})
		if aerr != nil {
			return errors.Join(err, fmt.Errorf("delay offsets of the master: %w", aerr))
		}
		c.delays = resp
	}
	return err
}

// apply takes over what waits, as far as the log has what it presumes, for good:
// what can be read through its queue stays.
func (c *metadataCopy) apply(ctx context.Context) (err error) {
	end := c.r.store().Positions().Dispatched
	if c.offsets != nil && c.offsets.Position <= end {
		err = c.r.offsets.Replace(c.offsets.OffsetTable)
		c.offsets = nil
		c.r.wire.watch.changed("")
	}
	if c.delays != nil && c.delays.Position <= end {
		// It stands for copies of messages, which have to outlive it.
		if serr := c.r.store().Sync(ctx); serr != nil {
			return errors.Join(err, fmt.Errorf("delay offsets: not copied, because the messages delivered before are not durable: %w", serr))
		}
		err = errors.Join(err, c.r.progress.Replace(c.delays.DelayProgress))
		c.delays = nil
	}
	return err
}

// followMetadata makes what is not in the log a slave's.
func (r *brokerRun) followMetadata() {
	r.copied.Store(false)
	r.topicsAt.Store(0) // another master's log may have other positions
	r.offsets.Follow()
}

// topicDropped deletes at a slave what belongs to a topic whose deletion has come with
// the log: it would come back, empty, if the slave became master before it has copied
// that. The store calls it in the order of the log.
func (r *brokerRun) topicDropped(topic string, position int64) {
	if r.standing.Load().role == RoleMaster {
		return // deleteTopic does it
	}
	r.offsets.DeleteTopic(topic) // those that were copied presume less than this position
	r.locks.DropTopic(topic)
	r.pullers.DeleteTopic(topic)
	if position > r.topicsAt.Load() { // or it was made anew, and that was copied
		config, deleted, err := r.topics.Delete(time.Now(), topic)
		if err != nil {
			r.log.Warn("a deleted topic is there until topics are copied", "topic", topic, "err", err)
		}
		if deleted {
			r.log.Info("topic deleted by the master", "topic", topic)
		}
		for id := range config.ReadQueues { // who waits for it is refused now
			r.waiters.Rouse(topic, id)
		}
	}
	r.wire.watch.changed("")
}

// leadMetadata makes what is not in the log fit the log of a broker that becomes
// master under an epoch, 0 without failover: nothing lies beyond its queue, every
// queue with messages has its topic, and all of it is newer than what a former master
// can have. It is done before the first write, or progress beyond an end would stand
// for new messages. An error leaves a part of it done; it can be done again.
func (r *brokerRun) leadMetadata(epoch int64) error {
	st, now := r.store(), time.Now()
	if n := r.offsets.Clamp(st.MaxOffset); n > 0 {
		r.log.Warn("committed offsets lay beyond their queues and were lowered", "offsets", n)
	}
	r.offsets.Lead(epoch)
	n, err := r.progress.Clamp(now, func(level int) int64 { return st.MaxOffset(message.ScheduleTopic, level) })
	if n > 0 {
		r.log.Warn("the progress of delayed messages lay beyond its queues and was lowered", "offsets", n)
	}
	made, terr := r.topics.EnsureQueues(now, filledQueues(st), r.shapeOf)
	for _, topic := range made {
		r.log.Warn("a topic that was not copied in time is there because its messages are", "topic", topic.Name, "read", topic.ReadQueues, "write", topic.WriteQueues)
	}
	return errors.Join(err, terr, r.offsets.Persist(),
		r.progress.SetStateVersion(now, epoch), r.topics.SetStateVersion(now, epoch), r.settings.SetStateVersion(now, epoch))
}

// filledQueues iterates over the queues that hold messages.
func filledQueues(st *store.Store) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for q, held := range st.Queues() {
			if held.Min < held.Max && !yield(q.Topic, q.ID) {
				return
			}
		}
	}
}

// shapeOf is what a topic with at least n queues looks like of which nothing else is
// known.
func (r *brokerRun) shapeOf(topic string, n int) protocol.TopicConfig {
	switch {
	case topic == message.ScheduleTopic:
		n = max(n, len(r.cfg.Timings.DelayLevels))
	case message.IsRetryTopic(topic):
		if c, ok := r.settings.Get(strings.TrimPrefix(topic, message.RetryPrefix)); ok {
			n = max(n, c.RetryQueues)
		}
	}
	return ownTopic(topic, n)
}
