package consume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// An engine may be told its queues in place of sharing them with the members of
// its group. It is no member then: brokers hear nothing of it in heartbeats, so
// that those who share queues do not leave some to it. Differs: RocketMQ's lite
// pull consumer sends heartbeats all the same, and whoever subscribes in the same
// group loses its share of the queues to it.

// assign replaces what the user has assigned, by topic. It returns the topics
// concerned, sorted.
func (s *subscriptions) assign(queues []message.Queue, now time.Time) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned = true
	touched := make(map[string]bool)
	for topic := range s.byTopic {
		touched[topic] = true
	}
	version := s.nextLocked(now)
	byTopic := make(map[string]subscription)
	for _, q := range queues {
		touched[q.Topic] = true
		sub, known := byTopic[q.Topic]
		if !known {
			sub = subscription{topic: q.Topic, version: version, since: now, queues: make(map[message.Queue]bool)}
			if old, known := s.byTopic[q.Topic]; known {
				sub.since = old.since
			}
			byTopic[q.Topic] = sub
		}
		sub.queues[q] = true
	}
	s.byTopic = byTopic
	return slices.Sorted(maps.Keys(touched))
}

// member reports whether the engine is a member of its group: not when it is told
// its queues, and a polled one that subscribes to nothing is none either.
func (s *subscriptions) member() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.assigned && (!s.polled || len(s.byTopic) > 0)
}

// Member reports whether brokers are to know the engine as a member of its group:
// whether heartbeats tell ConsumerData.
func (e *Engine) Member() bool { return e.subs.member() }

// Assign replaces the queues of a polled engine that has no Subscriptions, and
// never Subscribes: it consumes these, whatever other members do. A queue of the
// former set goes on where it is; those that go are committed as far as Poll has
// finished them. It returns when the start offsets of new queues are resolved. A
// queue that no route shows is no error; it is consumed once one does, and then
// kept, whatever routes say. Before Start it only takes a note.
//
// While something fails it tries again, as long as ctx lasts, and goes on in the
// background afterwards. protocol.ErrClosed after or during Close. Java: assign.
func (e *Engine) Assign(ctx context.Context, queues []message.Queue) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("consume: assignment of group %q: %w", e.cfg.Group, err)
	}
	topics := e.subs.assign(queues, time.Now())
	r, err := e.running(ctx)
	if r == nil || err != nil {
		return err
	}
	asks := make([]*ask, len(topics))
	for i, topic := range topics {
		asks[i] = r.ask(topic)
		defer r.unask(asks[i])
	}
	var errs []error
	for _, a := range asks {
		select {
		case <-a.done:
			if a.err != nil {
				errs = append(errs, a.err)
			}
		case <-ctx.Done():
			r.mu.Lock()
			err := a.err
			r.mu.Unlock()
			return fmt.Errorf("consume: assignment of group %q did not settle before its context ended, it goes on in the background: %w", e.cfg.Group, joined([]error{ctx.Err(), err}))
		case <-r.ctx.Done():
			return fmt.Errorf("consume: assignment of group %q: %w", e.cfg.Group, protocol.ErrClosed)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("consume: assignment of group %q: %w", e.cfg.Group, joined(errs))
	}
	return nil
}

// assignedShare returns the assigned queues of a topic that its route shows, or
// that are held already.
func (r *run) assignedShare(route *client.Route, sub subscription) []message.Queue {
	shown := setOf(route.Subscribe)
	var share, absent []message.Queue
	r.mu.Lock()
	for q := range sub.queues {
		if shown[q] || r.held[q] != nil {
			share = append(share, q)
		} else {
			absent = append(absent, q)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(share, message.Queue.Compare)
	slices.SortFunc(absent, message.Queue.Compare)
	if text := fmt.Sprint(absent); len(absent) == 0 {
		delete(r.absent, sub.topic)
	} else if r.absent[sub.topic] != text {
		r.absent[sub.topic] = text
		r.log.Warn("assigned queues are in no route, they are consumed once they are", "queues", absent)
	}
	return share
}
