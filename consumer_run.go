package pocketmq

import (
	"context"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/consume"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Subscribe adds a topic, or changes the filter of one that is subscribed. It
// works before Start, which then does the work, and at run time, when it returns
// as Start does: the brokers know the subscription, this consumer's share of the
// queues is taken and start offsets are resolved, so that what is sent after
// Subscribe returned is never skipped. From counts for the queues that the route
// shows then. A topic without a route is no error; it is consumed once it has
// one. Java: DefaultMQPushConsumer.subscribe.
//
// All members of a group must subscribe to the same: change them one right after
// the other. Until the last one has followed, brokers may leave out messages for
// those that differ, and a topic's queues that fall to members without it wait; the
// event SubscriptionsDiffer tells.
//
// A new filter applies to messages that no handler has got yet, those that wait
// here included; what the old one has left out stays left out.
//
// While a broker fails Subscribe tries again as long as ctx lasts; then the error
// matches ctx's, and the subscription goes on in the background: Unsubscribe
// undoes it. An illegal topic is ErrIllegalName, a bad filter ErrInvalidConfig.
// ErrClosed after Close. It may be called by a Handler, not by a Strategy.
func (c *Consumer) Subscribe(ctx context.Context, topic string, f Filter) error {
	if err := message.CheckTopic(topic); err != nil {
		return err
	}
	if f.err != nil {
		return protocol.Tagged(fmt.Sprintf("subscription to topic %q: %v", topic, f.err), ErrInvalidConfig)
	}
	engine, err := c.change(func(subs map[string]filter.Tags) { subs[topic] = f.tags })
	if engine == nil || err != nil {
		return err
	}
	return engine.Subscribe(ctx, topic, f.tags)
}

// Unsubscribe gives a topic up. No handler starts for it from the call on. It
// returns when the handlers that run have returned, what is finished is committed,
// the brokers know, and the topic's queues are let go. A topic that is not
// subscribed is no error. It works before Start, too. Java:
// DefaultMQPushConsumer.unsubscribe, which waits for nothing.
//
// When ctx ends while handlers run the topic is given up without them: their
// messages are delivered again to whoever consumes the topic for the group, and
// the error matches ErrHandlersRunning and ctx's. An error that names queues says
// that their last offsets are not known to be stored. A Handler of the topic that
// calls it waits for itself until ctx ends. ErrClosed after Close.
func (c *Consumer) Unsubscribe(ctx context.Context, topic string) error {
	engine, err := c.change(func(subs map[string]filter.Tags) { delete(subs, topic) })
	if engine == nil || err != nil {
		return err
	}
	return engine.Unsubscribe(ctx, topic)
}

// change changes what the next engine is made of, and returns the one that is
// there already.
func (c *Consumer) change(f func(map[string]filter.Tags)) (*consume.Engine, error) {
	switch c.life.state.Load() {
	case lifeClosing, lifeClosed:
		return nil, c.life.use()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.subs)
	return c.engine.Load(), nil
}

// Pause stops pulling queues and handing out their messages; none given: all,
// also queues that the consumer takes later. Handlers that run go on. The queues
// stay this consumer's: nobody else gets their messages meanwhile. It works before
// Start, too, and does not block. Java: suspend.
func (c *Consumer) Pause(queues ...MessageQueue) {
	c.pauses.Pause(queues...)
	c.pausesChanged()
}

// Resume undoes Pause for queues; none given: for all. It does not block. Java:
// resume.
func (c *Consumer) Resume(queues ...MessageQueue) {
	c.pauses.Resume(queues...)
	c.pausesChanged()
}

func (c *Consumer) pausesChanged() {
	if engine := c.engine.Load(); engine != nil {
		engine.PausesChanged()
	}
}

// Queues returns a snapshot of each queue that the consumer holds now, in the
// order of Assignment; nil before Start and after Close. Java:
// ConsumerRunningInfo.mqTable.
func (c *Consumer) Queues() []QueueStatus {
	if c.life.use() != nil {
		return nil
	}
	var list []QueueStatus
	for _, q := range c.engine.Load().Queues() {
		list = append(list, QueueStatus(q))
	}
	return list
}

// consumerPeer is the way back from brokers.
type consumerPeer struct {
	group  string
	engine func() *consume.Engine
}

// NotifyConsumerIDsChanged means a rebalance, whatever has changed.
func (p *consumerPeer) NotifyConsumerIDsChanged(*protocol.NotifyConsumerIDsChangedRequest) {
	p.engine().MembersChanged()
}

// ResetConsumerOffset moves the consumer, if it is of the group.
func (p *consumerPeer) ResetConsumerOffset(q *protocol.ResetConsumerOffsetRequest) {
	if q.Group == p.group {
		p.engine().Reset(q.Topic, q.Offsets)
	}
}

// GetConsumerRunningInfo tells what the consumer is doing.
func (p *consumerPeer) GetConsumerRunningInfo(_ context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	if q.Group != p.group {
		return nil, p.stranger(q.Group)
	}
	return p.engine().RunningInfo(), nil
}

// GetConsumerStatus tells how far the consumer has come.
func (p *consumerPeer) GetConsumerStatus(_ context.Context, q *protocol.PeerConsumerStatusRequest) (*protocol.PeerConsumerStatusResponse, error) {
	if q.Group != p.group {
		return nil, p.stranger(q.Group)
	}
	return &protocol.PeerConsumerStatusResponse{Offsets: p.engine().Offsets(q.Topic)}, nil
}

// ConsumeMessageDirectly hands a message to the consumer's handler, and waits for
// that a little longer than brokers wait for an answer.
func (p *consumerPeer) ConsumeMessageDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	if q.Group != p.group {
		return nil, p.stranger(q.Group)
	}
	ctx, cancel := context.WithTimeout(ctx, relayTimeout+time.Second)
	defer cancel()
	return p.engine().ConsumeDirectly(ctx, q.Record, q.BrokerName)
}

// stranger is the answer to what is meant for another group's consumer.
func (p *consumerPeer) stranger(group string) error {
	return protocol.Errorf(protocol.SystemError, "this client is no member of group %s, but of %s", clip(group), p.group)
}
