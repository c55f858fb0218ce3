package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Offsets returns what a group has committed in a topic, by queue; queues without a
// commit are left out, and an unknown group has none. When only some masters fail,
// the map tells what the others said, beside the error that names those. The map is
// the caller's.
//
// Errors: ErrNoRoute, ErrIllegalName, ErrUnreachable, ErrTimeout. Java:
// examineConsumeStats.
func (a *Admin) Offsets(ctx context.Context, group, topic string) (map[MessageQueue]int64, error) {
	if err := a.checkGroup(group); err != nil {
		return nil, err
	}
	committed := make(map[MessageQueue]int64)
	err := a.bounded(ctx, fmt.Sprintf("offsets of group %s in topic %s", group, topic), func(ctx context.Context) error {
		answers, err := askMasters(ctx, a, topic, func(ctx context.Context, m master) (map[int]int64, error) {
			return a.committedAt(ctx, m, group, topic)
		})
		for _, answer := range answers {
			offsetsByQueue(committed, topic, answer.from, answer.value)
		}
		return err
	})
	return committed, err
}

// committedAt is what a group has committed in a topic on one broker.
func (a *Admin) committedAt(ctx context.Context, m master, group, topic string) (map[int]int64, error) {
	stats, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetConsumeStats, &protocol.GetConsumeStatsRequest{Group: group, Topic: topic})
	if err != nil {
		return nil, err
	}
	offsets := make(map[int]int64, len(stats.Queues))
	for _, q := range stats.Queues {
		at, err := a.exact(ctx, m, group, q)
		if err != nil {
			return offsets, err
		}
		if at >= 0 {
			offsets[q.QueueID] = at
		}
	}
	return offsets, nil
}

// exact is the committed offset in statistics, -1 for none: RocketMQ's do not tell
// 0 from none.
func (a *Admin) exact(ctx context.Context, m master, group string, q protocol.ConsumeStats) (int64, error) {
	if q.ConsumerOffset != 0 {
		return q.ConsumerOffset, nil
	}
	resp, err := ask(ctx, a, m.addr, protocol.BrokerConn.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{Group: group, Topic: q.Topic, QueueID: q.QueueID, CommittedOnly: true})
	var answered *protocol.Error
	if errors.As(err, &answered) && answered.Code == protocol.QueryNotFound {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	return resp.Offset, nil
}

// Lag tells how far a group has come in every queue that it subscribes to or has
// committed in, on every master, sorted, those of its %RETRY% topic last. An
// unknown group has none. The members of a broadcasting group keep their offsets
// themselves: no broker can tell how far they have come, and all that its queues
// hold shows as lag, with Committed -1 (mqadmin shows the same). When only some
// masters fail, it returns what the others said, beside the error that names those. Java: examineConsumeStats.
func (a *Admin) Lag(ctx context.Context, group string) ([]QueueLag, error) {
	if err := a.checkGroup(group); err != nil {
		return nil, err
	}
	var lags []QueueLag
	err := a.bounded(ctx, "lag of group "+group, func(ctx context.Context) error {
		found, err := a.connections(ctx, group)
		all, lagErr := a.lag(ctx, group, found.subscriptions)
		lags = all
		if lagErr != nil { // those that failed before fail again
			return lagErr
		}
		return err
	})
	return lags, err
}

// lag asks every master about a group that has these subscriptions.
func (a *Admin) lag(ctx context.Context, group string, subs []protocol.Subscription) ([]QueueLag, error) {
	topics := []string{message.RetryTopic(group)}
	for _, sub := range subs {
		topics = append(topics, sub.Topic)
	}
	known, err := askAll(ctx, a, func(ctx context.Context, m master) (*protocol.GetConsumeStatsResponse, error) {
		return ask(ctx, a, m.addr, protocol.BrokerConn.GetConsumeStats, &protocol.GetConsumeStatsRequest{Group: group})
	})
	if err != nil && len(known) == 0 {
		return nil, err // nobody can be asked
	}
	for _, answer := range known { // a master that failed fails again
		if answer.value != nil {
			for _, q := range answer.value.Queues {
				topics = append(topics, q.Topic)
			}
		}
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	answers, err := askAll(ctx, a, func(ctx context.Context, m master) ([]QueueLag, error) { return a.lagAt(ctx, m, group, topics) })
	var lags []QueueLag
	for _, answer := range answers {
		lags = append(lags, answer.value...)
	}
	slices.SortFunc(lags, compareLags)
	return lags, err
}

// lagAt asks one master about topics.
func (a *Admin) lagAt(ctx context.Context, m master, group string, topics []string) ([]QueueLag, error) {
	var lags []QueueLag
	for _, topic := range topics {
		stats, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetConsumeStats, &protocol.GetConsumeStatsRequest{Group: group, Topic: topic})
		if errors.Is(err, ErrNoRoute) {
			continue // not on this broker
		}
		if err != nil {
			return lags, err
		}
		if len(stats.Queues) == 0 {
			continue
		}
		bounds, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetTopicStats, &protocol.GetTopicStatsRequest{Topic: topic})
		if errors.Is(err, ErrNoRoute) {
			continue // deleted meanwhile
		}
		if err != nil {
			return lags, err
		}
		for _, q := range stats.Queues {
			if q.QueueID >= len(bounds.Queues) || q.BrokerOffset == 0 && message.IsRetryTopic(topic) {
				continue
			}
			at, err := a.exact(ctx, m, group, q)
			if err != nil {
				return lags, err
			}
			lag := QueueLag{Queue: MessageQueue{Topic: q.Topic, BrokerName: m.name, QueueID: q.QueueID}, Committed: at, Max: q.BrokerOffset, LastConsumed: q.LastTime}
			lag.fill(bounds.Queues[q.QueueID].MinOffset)
			lags = append(lags, lag)
		}
	}
	return lags, nil
}

// SetOffset moves a group to an offset of one queue, at once: a member that reads
// the queue goes on there, whatever it has under way does not count any more, and
// without members the next one starts there.
//
// The members of a broadcasting group keep their offsets themselves: a reset tells
// each that is connected, and is nothing to those that come later. RocketMQ 5 tells
// the one that pulls next.
//
// Errors: ErrOffsetOutOfRange for an offset before the queue's first message or
// beyond its end; ErrNotFound for a group that the broker does not know, create it
// first; ErrNoRoute for a topic that it does not have; ErrInvalidConfig for a broker
// that is not registered or a queue that does not exist; ErrIllegalName,
// ErrUnreachable, ErrTimeout. Java: resetOffsetByQueueId.
func (a *Admin) SetOffset(ctx context.Context, group string, q MessageQueue, offset int64) error {
	if err := a.checkGroup(group); err != nil {
		return err
	}
	if err := checkTopicName(q.Topic); err != nil {
		return err
	}
	if q.QueueID < 0 {
		return fmt.Errorf("%w: queue id %d of %v is negative", ErrInvalidConfig, q.QueueID, q)
	}
	what := fmt.Sprintf("offset %d of group %s in %v", offset, group, q)
	if offset < 0 { // to a broker -1 would be no offset, but a reset by time
		return fmt.Errorf("%w: %s is negative", ErrOffsetOutOfRange, what)
	}
	return a.bounded(ctx, what, func(ctx context.Context) error {
		masters, err := a.masters(ctx, []string{q.BrokerName})
		if err != nil {
			return err
		}
		m := masters[0]
		_, err = change(ctx, a, m, protocol.BrokerConn.ResetOffset, &protocol.ResetOffsetRequest{Group: group, Topic: q.Topic, QueueID: q.QueueID, Offset: &offset})
		var answered *protocol.Error
		switch {
		case !errors.As(err, &answered):
			return err
		case answered.Code == protocol.InvalidParameter:
			return protocol.Tagged(err.Error(), ErrInvalidConfig, err)
		case answered.Code == protocol.SystemError && a.outside(ctx, m, q, offset):
			return protocol.Tagged(err.Error(), ErrOffsetOutOfRange, err)
		}
		return err
	})
}

// outside reports whether an offset is certainly none of a queue.
func (a *Admin) outside(ctx context.Context, m master, q MessageQueue, offset int64) bool {
	low, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetMinOffset, &protocol.GetMinOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
	if err != nil {
		return false
	}
	high, err := ask(ctx, a, m.addr, protocol.BrokerConn.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
	return err == nil && (offset < low.Offset || offset > high.Offset)
}

// ResetOffsets moves a group in all queues of a topic to the first message that
// was stored at a time or later, at once, as SetOffset does; where none is, to the
// end. The zero time is before every message. The map tells where the group stands
// now.
//
// When only some masters fail, the map tells what the others did, beside the error
// that names those; call it again. Errors: as SetOffset's. Java:
// resetOffsetByTimestamp.
func (a *Admin) ResetOffsets(ctx context.Context, group, topic string, to time.Time) (map[MessageQueue]int64, error) {
	if to.Before(time.UnixMilli(0)) {
		to = time.UnixMilli(0) // the zero time would mean the end
	}
	return a.reset(ctx, group, topic, to)
}

// SkipBacklog moves a group to the end of all queues of a topic, at once; see
// ResetOffsets. Java: mqadmin skipAccumulatedMessage.
func (a *Admin) SkipBacklog(ctx context.Context, group, topic string) error {
	_, err := a.reset(ctx, group, topic, time.Time{})
	return err
}

func (a *Admin) reset(ctx context.Context, group, topic string, to time.Time) (map[MessageQueue]int64, error) {
	if err := a.checkGroup(group); err != nil {
		return nil, err
	}
	offsets := make(map[MessageQueue]int64)
	err := a.bounded(ctx, fmt.Sprintf("reset of group %s in topic %s", group, topic), func(ctx context.Context) error {
		answers, err := askMasters(ctx, a, topic, func(ctx context.Context, m master) (*protocol.ResetOffsetResponse, error) {
			return change(ctx, a, m, protocol.BrokerConn.ResetOffset, &protocol.ResetOffsetRequest{Group: group, Topic: topic, QueueID: -1, Time: to})
		})
		for _, answer := range answers {
			if answer.value != nil {
				offsetsByQueue(offsets, topic, answer.from, answer.value.Offsets)
			}
		}
		return err
	})
	return offsets, err
}

// CloneOffsets gives group to all offsets that group from has committed in a topic,
// or in every topic for "", on every broker; retried messages stay where they are.
// Members of to that are connected move at once. Queues in which from has committed
// nothing are left alone.
//
// Errors: ErrNotFound when from is unknown, ErrNoRoute for an unknown topic,
// ErrIllegalName, ErrUnreachable, ErrTimeout. Brokers that did it before another
// failed have done it; call it again. Java: cloneGroupOffset.
func (a *Admin) CloneOffsets(ctx context.Context, from, to, topic string) error {
	for _, group := range []string{from, to} {
		if err := a.checkGroup(group); err != nil {
			return err
		}
	}
	return a.bounded(ctx, fmt.Sprintf("offsets of group %s for group %s", from, to), func(ctx context.Context) error {
		clone := func(ctx context.Context, m master) (*protocol.CloneGroupOffsetResponse, error) {
			return change(ctx, a, m, protocol.BrokerConn.CloneGroupOffset, &protocol.CloneGroupOffsetRequest{From: from, To: to, Topic: topic})
		}
		masters := askAll[*protocol.CloneGroupOffsetResponse]
		if topic != "" {
			masters = func(ctx context.Context, a *Admin, clone func(context.Context, master) (*protocol.CloneGroupOffsetResponse, error)) ([]answerFrom[*protocol.CloneGroupOffsetResponse], error) {
				return askMasters(ctx, a, topic, clone)
			}
		}
		known := false
		var unknown error
		var mu sync.Mutex // guards both; masters answer at the same time
		_, err := masters(ctx, a, func(ctx context.Context, m master) (*protocol.CloneGroupOffsetResponse, error) {
			resp, err := clone(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, ErrNotFound) { // the group may have been elsewhere only
				unknown = err
				return nil, nil
			}
			known = known || err == nil
			return resp, err
		})
		if err == nil && !known {
			return unknown
		}
		return err
	})
}
