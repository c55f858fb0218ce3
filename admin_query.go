package pocketmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// defaultQueryMessages is how many messages MessagesByKey returns unless it is
// told: as many as a broker gives at once.
const defaultQueryMessages = maxQueryMessages

// QueueStats are the bounds of a queue. Java: TopicOffset.
type QueueStats struct {
	MinOffset     int64     // of the first message kept
	MaxOffset     int64     // after the last one
	LastStoreTime time.Time // when the last one was stored; the zero time when none is kept
}

// TopicStats returns the bounds of every queue of a topic, readable or
// writable, from the masters of all its broker groups. The map is the caller's.
//
// Errors: ErrNoRoute, ErrIllegalName, ErrUnreachable when no master is known or
// answers, ErrTimeout. When only some masters fail, the map tells what the
// others said, beside the error that names those that failed.
// Java: examineTopicStats.
func (a *Admin) TopicStats(ctx context.Context, topic string) (map[MessageQueue]QueueStats, error) {
	var stats map[MessageQueue]QueueStats
	err := a.bounded(ctx, "statistics of topic "+topic, func(ctx context.Context) error {
		answers, err := askMasters(ctx, a, topic, func(ctx context.Context, m master) (*protocol.GetTopicStatsResponse, error) {
			return ask(ctx, a, m.addr, protocol.BrokerConn.GetTopicStats, &protocol.GetTopicStatsRequest{Topic: topic})
		})
		for _, answer := range answers {
			if answer.value == nil {
				continue
			}
			if stats == nil {
				stats = make(map[MessageQueue]QueueStats)
			}
			for id, q := range answer.value.Queues {
				stats[MessageQueue{Topic: topic, BrokerName: answer.from.name, QueueID: id}] = QueueStats(q)
			}
		}
		return err
	})
	return stats, err
}

// MessageByID returns the message that an offset message id names
// (SendResult.OffsetMsgID, MessageExt.OffsetMsgID), be it visible to consumers
// or not. It asks the broker whose address is in the id; Queue.BrokerName is
// empty if no name server knows a broker of that address. The message is the
// caller's.
//
// An id names a place. When what lies there was stored under another address,
// it is not what was asked for: ErrNotFound. A place is filled anew after a power
// cut took the end of a log away: MessageByUniqueKey cannot be deceived by that.
//
// Errors: ErrNotFound for what is not kept any more or never was;
// ErrInvalidConfig, too, for a text that is no such id; ErrUnreachable when
// nobody listens at the address; ErrTimeout. Java: MQAdminImpl.viewMessage.
func (a *Admin) MessageByID(ctx context.Context, offsetMsgID string) (*MessageExt, error) {
	host, position, err := message.ParseOffsetMsgID(offsetMsgID)
	if err != nil {
		if err := a.life.use(); err != nil {
			return nil, err
		}
		return nil, protocol.Tagged(err.Error()+"; a message id made by a producer is looked up with Admin.MessageByUniqueKey",
			ErrInvalidConfig, ErrNotFound, err)
	}
	var m *MessageExt
	err = a.bounded(ctx, "message id "+offsetMsgID, func(ctx context.Context) error {
		addr := netip.AddrPortFrom(host.Addr().Unmap(), host.Port())
		resp, err := ask(ctx, a, addr.String(), protocol.BrokerConn.ViewMessage, &protocol.ViewMessageRequest{Position: position})
		switch {
		case errors.Is(err, ErrNotFound):
			return fmt.Errorf("%w; it is not kept any more, or was never stored there", err)
		case err != nil:
			return err
		}
		found, err := a.codec.DecodeExt(resp.Record, "", "")
		switch {
		case err != nil:
			return err
		case found.CommitLogOffset != position || found.StoreHost != addr:
			return fmt.Errorf("what the broker at %v has there was stored as %s: %w", addr, found.OffsetMsgID, ErrNotFound)
		}
		m = found
		m.Queue.BrokerName = a.brokerAt(ctx, addr.String())
		return nil
	})
	return m, err
}

// MessageByUniqueKey returns the message of a topic with the MsgID that its
// producer made; of several copies, which a send with an unknown outcome may
// leave, the oldest. All masters of the topic are asked. The message is the
// caller's.
//
// Errors: ErrNotFound when all masters say so; ErrNoRoute, ErrIllegalName,
// ErrInvalidConfig for an empty id, ErrUnreachable, ErrTimeout.
// Java: MQAdminImpl.queryMessageByUniqKey.
func (a *Admin) MessageByUniqueKey(ctx context.Context, topic, msgID string) (*MessageExt, error) {
	var m *MessageExt
	p := problems{what: "query of topic " + topic}
	if msgID == "" {
		p.add("the message id is empty")
	}
	err := a.bounded(ctx, fmt.Sprintf("message %s of topic %s", msgID, topic), func(ctx context.Context) error {
		if err := p.err(); err != nil {
			return err
		}
		q := protocol.QueryMessageRequest{Topic: topic, Key: msgID, Unique: true}
		found, absent, err := a.query(ctx, q, math.MaxInt, func(m *MessageExt) bool { return m.Property(message.PropUniqKey) == msgID })
		switch {
		case len(found) > 0:
			m = found[len(found)-1]
			return nil
		case err != nil:
			return err
		}
		return absent
	})
	return m, err
}

// MessagesByKey returns messages of a topic that hold key among their Keys, and
// that were stored from from to to, both included to the millisecond; the zero
// time is no bound. They come from all masters of the topic, newest first, at
// most max of them: 0 = 64, -1 = all there are. Nothing found is no error. The
// messages are the caller's.
//
// Errors: ErrNoRoute, ErrIllegalName, ErrInvalidConfig for an impossible key,
// range or max, ErrUnreachable, ErrTimeout. When only some masters fail, what
// the others have is returned beside the error that names those that failed.
// Java: MQAdminImpl.queryMessage.
//
// Differs: RocketMQ returns at most 64 messages of each broker, whatever max is.
func (a *Admin) MessagesByKey(ctx context.Context, topic, key string, from, to time.Time, max int) ([]*MessageExt, error) {
	p := problems{what: "query of topic " + topic}
	switch {
	case max == 0:
		max = defaultQueryMessages
	case max == -1:
		max = math.MaxInt
	case max < 0:
		p.add("max is %d, must be positive, 0 (= %d) or -1 (all)", max, defaultQueryMessages)
	}
	checkKey(&p, key)
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		p.add("from %v is after to %v", from, to)
	}
	var found []*MessageExt
	err := a.bounded(ctx, fmt.Sprintf("messages with key %s of topic %s", key, topic), func(ctx context.Context) (err error) {
		if err := p.err(); err != nil {
			return err
		}
		q := protocol.QueryMessageRequest{Topic: topic, Key: key, From: from, To: to}
		found, _, err = a.query(ctx, q, max, func(m *MessageExt) bool { return slices.Contains(m.Keys, key) })
		return err
	})
	return found, err
}

// checkKey refuses what no message can have as a key.
func checkKey(p *problems, key string) {
	switch {
	case key == "":
		p.add("the key is empty")
	case strings.Contains(key, " "):
		p.add("key %q contains a blank, which separates keys: ask for each on its own", key)
	}
}

// query asks all masters of a topic for messages by key, newest first, at most
// most. absent is what to tell when there are none although all were asked.
func (a *Admin) query(ctx context.Context, q protocol.QueryMessageRequest, most int, match func(*MessageExt) bool) (found []*MessageExt, absent, err error) {
	type part struct {
		found  []*MessageExt
		absent error
	}
	answers, err := askMasters(ctx, a, q.Topic, func(ctx context.Context, m master) (part, error) {
		found, absent, err := a.queryOne(ctx, m, q, most, match)
		return part{found, absent}, err
	})
	var names []string
	none := []error{ErrNotFound}
	for _, answer := range answers {
		found = append(found, answer.value.found...)
		names = append(names, answer.from.name)
		if answer.value.absent != nil {
			none = append(none, answer.value.absent)
		}
	}
	absent = protocol.Tagged("not found on "+strings.Join(names, ", ")+"; it is not kept any more, or was never stored there", none...)
	slices.SortFunc(found, newestFirst)
	return found[:min(len(found), most)], absent, err
}

// newestFirst orders messages of several brokers. Store times tell, and where
// they are equal, the place.
func newestFirst(a, b *MessageExt) int {
	return cmp.Or(b.StoreTime.Compare(a.StoreTime), cmp.Compare(a.Queue.BrokerName, b.Queue.BrokerName), cmp.Compare(b.CommitLogOffset, a.CommitLogOffset))
}

// queryOne asks one master until it has no more, or most messages match. absent
// is its answer that it has nothing. What was found before an error is returned
// beside it.
func (a *Admin) queryOne(ctx context.Context, from master, q protocol.QueryMessageRequest, most int, match func(*MessageExt) bool) (found []*MessageExt, absent, err error) {
	for len(found) < most {
		q.MaxMessages = min(most-len(found), maxQueryMessages)
		resp, err := ask(ctx, a, from.addr, protocol.BrokerConn.QueryMessage, &q)
		var answered *protocol.Error
		switch {
		case errors.As(err, &answered) && answered.Code == protocol.QueryNotFound:
			return found, answered, nil
		case err != nil:
			return found, nil, err
		}
		below, oldest := q.Below, time.Time{}
		for _, rec := range slices.Backward(resp.Records) {
			m, err := a.codec.DecodeExt(rec, from.name, q.Topic)
			if err != nil {
				return found, nil, err
			}
			if below > 0 && m.CommitLogOffset >= below { // one of a broker that does not know Below, seen before
				continue
			}
			below, oldest = m.CommitLogOffset, m.StoreTime
			if m.Queue.Topic == q.Topic && match(m) { // brokers may match by hash only
				found = append(found, m)
			}
		}
		if !resp.More || below == q.Below {
			break
		}
		q.Below, q.To = below, oldest
	}
	return found[:min(len(found), most)], nil, nil
}

// brokerAt returns the name of the broker group that has a member at addr, ""
// when no name server tells.
func (a *Admin) brokerAt(ctx context.Context, addr string) string {
	brokers, err := a.client.ClusterInfo(ctx)
	if err != nil {
		a.log.Debug("the broker at an address has no name", "addr", addr, "err", err)
		return ""
	}
	for _, b := range brokers {
		for _, member := range b.Addrs {
			if member == addr {
				return b.BrokerName
			}
		}
	}
	return ""
}

// answerFrom is what a master said.
type answerFrom[T any] struct {
	from  master
	value T
}

// askMasters asks the masters of all broker groups that have a topic, at the
// same time. It returns what was said, in the order of the groups' names, and
// an error that names those that failed. A value may count although it comes
// with an error.
func askMasters[T any](ctx context.Context, a *Admin, topic string, question func(context.Context, master) (T, error)) ([]answerFrom[T], error) {
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	route, _, err := a.client.Refresh(ctx, topic)
	a.client.Unwatch(topic) // asked once, not kept
	if err != nil {
		return nil, err
	}
	var masters []master
	var missing []error
	for _, b := range route.Brokers { // sorted by name
		if addr, ok := b.Addrs[protocol.MasterID]; ok {
			masters = append(masters, master{b.BrokerName, addr})
		} else {
			missing = append(missing, fmt.Errorf("%s has no master now: %w", b.BrokerName, ErrUnreachable))
		}
	}
	answers, err := askEach(ctx, masters, question)
	return answers, errors.Join(append(missing, err)...)
}

// bounded runs a call within Timeout and says what failed, and why, when it is
// used up or the Admin was closed meanwhile.
func (a *Admin) bounded(ctx context.Context, what string, f func(context.Context) error) error {
	if err := a.life.use(); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	err := f(within)
	if err == nil || errors.Is(err, ErrInvalidConfig) || errors.Is(err, ErrIllegalName) || errors.Is(err, ErrNoRoute) {
		return err // says what was asked
	}
	text, kinds := what+": "+err.Error(), []error{err}
	switch {
	case a.life.use() != nil:
		text += "; " + a.life.what + " was closed meanwhile"
		kinds = append(kinds, ErrClosed)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		kinds = append(kinds, ErrTimeout)
	case ctx.Err() == nil && within.Err() != nil:
		text += fmt.Sprintf(" (AdminConfig.Timeout is %v)", a.cfg.Timeout)
		kinds = append(kinds, ErrTimeout)
	}
	return protocol.Tagged(text, kinds...)
}
