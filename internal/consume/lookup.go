package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// at runs f on a connection to the broker of q, which may be any: the route of
// the topic is looked up if need be.
func (r *run) at(ctx context.Context, q message.Queue, timeout time.Duration, f func(context.Context, protocol.BrokerConn) error) error {
	if _, err := r.route(ctx, q.Topic, false, nil); err != nil {
		return err
	}
	return r.call(ctx, q.BrokerName, timeout, f)
}

// Committed returns the group's committed offset of a queue, -1 when there is
// none. The queue need not be held. Of a broadcasting member it is its own.
// Java: committed.
func (e *Engine) Committed(ctx context.Context, q message.Queue) (offset int64, err error) {
	r := e.current()
	if r == nil {
		return -1, fmt.Errorf("consume: group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	if r.local != nil {
		if offset, found := r.local.get(q); found {
			return offset, nil
		}
		return -1, nil
	}
	ctx, cancel := r.within(ctx)
	defer cancel()
	err = r.at(ctx, q, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		resp, err := conn.QueryConsumerOffset(ctx, &protocol.QueryConsumerOffsetRequest{Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, CommittedOnly: true})
		if code(err) == protocol.QueryNotFound {
			offset = -1
			return nil
		}
		if err == nil {
			offset = resp.Offset
		}
		return err
	})
	if err != nil {
		return -1, r.cut(fmt.Sprintf("look at the committed offset of %v", q), err)
	}
	return offset, nil
}

// OffsetAt returns the offset of the first message of a queue that was stored at t
// or later, its end without one. Java: offsetForTimestamp.
func (e *Engine) OffsetAt(ctx context.Context, q message.Queue, t time.Time) (offset int64, err error) {
	r := e.current()
	if r == nil {
		return 0, fmt.Errorf("consume: group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	ctx, cancel := r.within(ctx)
	defer cancel()
	err = r.at(ctx, q, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) (err error) {
		offset, err = r.offsetBy(ctx, conn, q, startPoint{policy: protocol.ConsumeFromTime, time: t})
		return err
	})
	if err != nil {
		return 0, r.cut(fmt.Sprintf("search in %v", q), err)
	}
	return offset, nil
}

// Read is what one Pull found.
type Read struct {
	Code         protocol.Code // as of a pull
	Messages     []*message.Ext
	Next         int64
	Min, Max     int64
	OutsideQueue bool // the offset is none of the queue's; Next is the nearest that is
}

// pullReadTimeout bounds one read. Java: consumerPullTimeoutMillis.
const pullReadTimeout = 10 * time.Second

// Pull reads a queue once, at its master, or a slave when there is none. It does
// not wait for messages, commits nothing, and changes nothing here. The filter of
// the topic's subscription applies, if there is one.
// Java: DefaultMQPullConsumer.pull.
func (e *Engine) Pull(ctx context.Context, q message.Queue, offset int64, most int) (*Read, error) {
	r := e.current()
	if r == nil {
		return nil, fmt.Errorf("consume: group %q: %w", e.cfg.Group, protocol.ErrClosed)
	}
	ctx, cancel := r.within(ctx)
	defer cancel()
	sub, _ := r.subs.get(q.Topic)
	var resp *protocol.PullMessageResponse
	read := func(ctx context.Context, conn protocol.BrokerConn) (err error) {
		resp, err = conn.PullMessage(ctx, &protocol.PullMessageRequest{
			Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, Offset: offset, MaxMessages: most,
			HasExpression: true, Expression: expressionOf(sub.filter), ExpressionType: protocol.ExpressionTag,
		})
		return err
	}
	err := r.at(ctx, q, pullReadTimeout, read)
	if err != nil && !answered(err) && ctx.Err() == nil && !errors.Is(err, protocol.ErrNoRoute) {
		// Routes may know of another member by now.
		r.refresh(ctx, q.Topic)
		err = r.at(ctx, q, pullReadTimeout, read)
	}
	if err == nil && resp.Code == protocol.PullOffsetMoved && offset >= resp.MinOffset && offset <= resp.MaxOffset {
		// News of a reset, which is not this reader's; a broker tells it once.
		if e.Holds(q) == nil {
			r.resetTo(q, resp.NextBeginOffset)
		}
		err = r.at(ctx, q, pullReadTimeout, read)
	}
	if err != nil {
		return nil, r.cut(fmt.Sprintf("pull of %v at %d", q, offset), err)
	}
	if !r.begin() {
		return nil, fmt.Errorf("consume: pull of %v: %w", q, protocol.ErrClosed)
	}
	defer r.gone()
	out := &Read{Code: resp.Code, Next: resp.NextBeginOffset, Min: resp.MinOffset, Max: resp.MaxOffset}
	if resp.Code == protocol.PullOffsetMoved {
		out.OutsideQueue = true
		if offset < out.Min || offset > out.Max {
			out.Next = min(max(offset, out.Min), out.Max)
		}
	}
	for _, rec := range r.accept(q, sub.filter, resp.Records) {
		m, err := r.cfg.Codec.DecodeExt(rec.data, q.BrokerName, q.Topic)
		if err != nil {
			r.log.Error("a stored record does not decode and is passed over", "queue", q, "offset", rec.offset, "error", err)
			continue
		}
		out.Messages = append(out.Messages, m)
	}
	return out, nil
}

// resetTo has a queue that is held go on where a reset of the group says.
func (r *run) resetTo(q message.Queue, offset int64) {
	if r.seek(q, offset, true) {
		r.log.Warn("the group was reset, going on where the broker says", "queue", q, "next", offset)
	}
}

// begin counts the caller as a goroutine of the run; false when that has halted.
func (r *run) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted {
		return false
	}
	r.goroutines++
	return true
}
