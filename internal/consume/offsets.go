package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// startOffset decides where a queue is consumed from. Java:
// RebalancePushImpl.computePullFromWhereWithException.
//
// A committed offset always counts. Without one, From decides for queues that
// were in the topic's route while Start ran: the end of the queue, or its
// minimum. Any other queue starts at its minimum. What was decided is committed
// at once unless it is 0, so that a member which takes the queue over decides
// the same (a broker answers 0 for an uncommitted queue that holds message 0).
//
// The committed offset is asked for again after the end: another member may have
// decided in between, and messages sent after its Start lie below our end.
//
// It returns the offset and what the broker has committed, -1 when that is
// nothing, or 0: the broker answers 0 for both.
func (r *run) startOffset(ctx context.Context, q message.Queue) (start, committed int64, err error) {
	err = r.call(ctx, q.BrokerName, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		committed = -1
		found := false
		if start, found, err = r.committedOffset(ctx, conn, q); err != nil {
			return err
		}
		switch {
		case found:
		case r.cfg.From == protocol.ConsumeFromLast && r.first[q.Topic][q]:
			resp, err := conn.GetMaxOffset(ctx, &protocol.GetMaxOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
			if err != nil {
				return fmt.Errorf("end of the queue: %w", err)
			}
			if start, found, err = r.committedOffset(ctx, conn, q); err != nil {
				return err
			}
			if !found {
				start = resp.Offset
			}
		default:
			resp, err := conn.GetMinOffset(ctx, &protocol.GetMinOffsetRequest{Topic: q.Topic, QueueID: q.QueueID})
			if err != nil {
				return fmt.Errorf("minimum of the queue: %w", err)
			}
			start = resp.Offset
		}
		if start <= 0 {
			start = 0
			return nil
		}
		if !found {
			if _, err := conn.UpdateConsumerOffset(ctx, r.commitRequest(q, start)); err != nil {
				return fmt.Errorf("commit of the start offset: %w", err)
			}
		}
		committed = start
		return nil
	})
	if err != nil {
		return 0, -1, fmt.Errorf("start offset of %v: %w", q, err)
	}
	return start, committed, nil
}

// committedOffset asks for the group's committed offset.
func (r *run) committedOffset(ctx context.Context, conn protocol.BrokerConn, q message.Queue) (offset int64, found bool, err error) {
	resp, err := conn.QueryConsumerOffset(ctx, &protocol.QueryConsumerOffsetRequest{Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID})
	switch {
	case code(err) == protocol.QueryNotFound:
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("committed offset: %w", err)
	}
	return resp.Offset, true, nil
}

func (r *run) commitRequest(q message.Queue, offset int64) *protocol.UpdateConsumerOffsetRequest {
	return &protocol.UpdateConsumerOffsetRequest{Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, Offset: offset}
}

// commitLoop commits the offsets that changed, every OffsetPersist from the
// start on. Java: MQClientInstance's persistAllConsumerOffset, whose first run
// is later.
func (r *run) commitLoop() {
	ticker := time.NewTicker(r.cfg.OffsetPersist)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		var queues []*heldQueue
		for _, h := range r.held {
			if h.pq.commit() != h.committed {
				queues = append(queues, h)
			}
		}
		r.mu.Unlock()
		r.commitAll(r.ctx, queues)
	}
}

// commitAll commits the offsets of queues, one broker beside the other, so that
// a silent one delays its own queues only. What fails is reported and left for
// the next time.
func (r *run) commitAll(ctx context.Context, queues []*heldQueue) {
	byBroker := make(map[string][]*heldQueue)
	for _, h := range queues {
		byBroker[h.queue.BrokerName] = append(byBroker[h.queue.BrokerName], h)
	}
	var wg sync.WaitGroup
	for broker, queues := range byBroker {
		wg.Go(func() {
			for i, h := range queues {
				err := r.commit(ctx, h)
				if err == nil {
					continue
				}
				if errors.Is(ctx.Err(), context.Canceled) {
					return // the run halts; leave commits
				}
				r.log.Warn("offset not committed", "queue", h.queue, "error", err)
				if !answered(err) {
					if rest := len(queues) - i - 1; rest > 0 {
						r.log.Warn("broker does not answer, its other offsets are not committed either", "broker", broker, "queues", rest)
					}
					return
				}
			}
		})
	}
	wg.Wait()
}

// commit tells the broker a queue's commit offset unless it has it. One call at
// a time per queue, each with the newest offset: the last one wins at the broker.
func (r *run) commit(ctx context.Context, h *heldQueue) error {
	select {
	case h.committing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-h.committing }()

	r.mu.Lock()
	offset := h.pq.commit()
	known := offset == h.committed
	r.mu.Unlock()
	if !known {
		err := r.call(ctx, h.queue.BrokerName, offsetTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
			_, err := conn.UpdateConsumerOffset(ctx, r.commitRequest(h.queue, offset))
			return err
		})
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	h.committed = offset
	delete(r.leaving, h)
	r.mu.Unlock()
	return nil
}
