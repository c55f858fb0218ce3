package consume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// ask is a caller that waits until a round has settled a topic.
type ask struct {
	topic string
	done  chan struct{} // closed when settled

	// Guarded by run.mu, for reading free once done is closed.
	settled bool
	err     error // of the last round that tried
}

// Subscribe adds a topic, or changes the filter of one. While the engine runs it
// returns after a rebalance that has settled the topic: brokers know the
// subscription, this member's share is taken, start offsets are resolved, so that
// what is sent after Subscribe returned is never skipped. For the queues that the
// route shows then From counts, as at Start. A topic without a route is no error;
// it is looked for every RouteRetry. Before Start it only takes a note.
//
// With another filter the messages that wait here are fetched again and seen by
// the new one; handlers that run, and messages that failed and wait for their
// next delivery, are not affected. What was passed over before stays passed over.
//
// While something fails it tries again, as long as ctx lasts, and then returns an
// error that matches ctx's and names the last failure; the subscription is there
// all the same and is settled in the background: Unsubscribe undoes it.
// protocol.ErrClosed after or during Close. Not to be called by a strategy, which
// it would wait for.
func (e *Engine) Subscribe(ctx context.Context, topic string, tags filter.Tags) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("consume: subscription of group %q to topic %q: %w", e.cfg.Group, topic, err)
	}
	e.subs.set(topic, tags, time.Now())
	r, err := e.running(ctx)
	if r == nil || err != nil {
		return err
	}
	a := r.ask(topic)
	defer r.unask(a)
	select {
	case <-a.done:
		if a.err != nil {
			return fmt.Errorf("consume: subscription of group %q: %w", e.cfg.Group, a.err)
		}
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		err := a.err
		r.mu.Unlock()
		return fmt.Errorf("consume: subscription of group %q to topic %q did not settle before its context ended, it goes on in the background: %w",
			e.cfg.Group, topic, joined([]error{ctx.Err(), err}))
	case <-r.ctx.Done():
		return fmt.Errorf("consume: subscription of group %q to topic %q: %w", e.cfg.Group, topic, protocol.ErrClosed)
	}
}

// Unsubscribe gives a topic up. From the call on no handler starts for it. It
// returns when the handlers that run have returned, what is finished is committed
// and the brokers know. A topic that is not subscribed is no error. Before Start
// it only takes a note.
//
// When ctx ends while handlers run, the queues are let go without them: what they
// finish does not count, and the error matches protocol.ErrHandlersRunning and
// ctx's. An error that names queues tells that their last offsets are not known
// to be stored. The topic is given up in either case. protocol.ErrClosed after or
// during Close. Not to be called by a strategy, nor without a deadline by a
// handler of the topic: it would wait for itself.
func (e *Engine) Unsubscribe(ctx context.Context, topic string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("consume: end of the subscription of group %q to topic %q: %w", e.cfg.Group, topic, err)
	}
	if sub, known := e.subs.get(topic); known && sub.internal {
		return nil
	}
	// First: a round that comes between must not let go without waiting.
	r := e.current()
	if r != nil {
		r.retire(topic, 1)
	}
	e.subs.remove(topic, time.Now())
	now, err := e.running(ctx)
	if now != r && now != nil { // started meanwhile
		now.retire(topic, 1)
	}
	if now == nil || err != nil {
		if r != nil {
			r.retire(topic, -1)
		}
		return err
	}
	r = now
	left := r.rest(ctx, topic)
	r.retire(topic, -1)
	a := r.ask(topic)
	defer r.unask(a)
	if left > 0 {
		return fmt.Errorf("consume: end of the subscription of group %q to topic %q: %d handlers still run, the group gets their messages again: %w: %w",
			e.cfg.Group, topic, left, protocol.ErrHandlersRunning, ctx.Err())
	}
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return fmt.Errorf("consume: end of the subscription of group %q to topic %q: its offsets are not known to be stored: %w", e.cfg.Group, topic, ctx.Err())
	case <-r.ctx.Done():
		return fmt.Errorf("consume: end of the subscription of group %q to topic %q: %w", e.cfg.Group, topic, protocol.ErrClosed)
	}
}

// running returns the run once a Start under way is over; nil without one. It
// waits as long as ctx lasts.
func (e *Engine) running(ctx context.Context) (*run, error) {
	for {
		e.mu.Lock()
		state, r, started := e.mu.state, e.mu.run, e.mu.started
		e.mu.Unlock()
		switch state {
		case stateNew:
			return nil, nil
		case stateRunning:
			return r, nil
		case stateStopped:
			return nil, fmt.Errorf("consume: group %q: %w", e.cfg.Group, protocol.ErrClosed)
		}
		select {
		case <-started:
		case <-ctx.Done():
			return nil, fmt.Errorf("consume: group %q has not started yet: %w", e.cfg.Group, ctx.Err())
		}
	}
}

// ask has a round settle a topic.
func (r *run) ask(topic string) *ask {
	a := &ask{topic: topic, done: make(chan struct{})}
	r.mu.Lock()
	r.asks = append(r.asks, a)
	r.mu.Unlock()
	r.trigger(subscribed)
	return a
}

// unask forgets a caller that does not wait any more.
func (r *run) unask(a *ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks = slices.DeleteFunc(r.asks, func(other *ask) bool { return other == a })
}

// openAsks returns who waits: what they ask for is known to a round that begins
// afterwards.
func (r *run) openAsks() []*ask {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.asks), func(a *ask) bool { return a.settled })
}

func topicsOf(asks []*ask) map[string]bool {
	topics := make(map[string]bool, len(asks))
	for _, a := range asks {
		topics[a.topic] = true
	}
	return topics
}

// settle tells those who asked before a round how it ended. Who can be helped by
// another round waits on.
func (r *run) settle(asks []*ask, out outcome) {
	var done []*ask
	r.mu.Lock()
	for _, a := range asks {
		if a.err = out.topics[a.topic]; a.err != nil && !final(a.err) {
			continue
		}
		if lost := out.lost[a.topic]; lost != nil {
			a.err = lost
		}
		a.settled = true
		done = append(done, a)
	}
	r.mu.Unlock()
	for _, a := range done {
		close(a.done)
	}
}

// watch has the client keep the routes of the subscribed topics fresh, and of no
// others.
func (r *run) watch() {
	topics := r.subs.topics()
	var more, less []string
	r.mu.Lock()
	if r.watched != nil { // otherwise the run has left
		for _, topic := range topics {
			if !r.watched[topic] {
				r.watched[topic] = true
				more = append(more, topic)
			}
		}
		for topic := range r.watched {
			if !slices.Contains(topics, topic) && r.retiring[topic] == 0 {
				delete(r.watched, topic)
				less = append(less, topic)
			}
		}
	}
	r.mu.Unlock()
	for _, topic := range more {
		r.cfg.Client.Watch(topic)
	}
	for _, topic := range less {
		r.cfg.Client.Unwatch(topic)
	}
}

// retire counts who waits for the last handler of a topic to end: meanwhile its
// queues rest, and no round takes them away.
func (r *run) retire(topic string, by int) {
	r.mu.Lock()
	r.retiring[topic] += by
	if r.retiring[topic] == 0 {
		delete(r.retiring, topic)
	}
	r.mu.Unlock()
	r.unblock(topic)
}

// rest waits until no handler of a topic that retires runs, as long as ctx and the
// run last. It returns how many run then.
func (r *run) rest(ctx context.Context, topic string) (running int) {
	for {
		var rested chan struct{}
		running = 0
		r.mu.Lock()
		for q, h := range r.held {
			if q.Topic != topic || h.running == 0 {
				continue
			}
			running += h.running
			if h.rested == nil {
				h.rested = make(chan struct{})
			}
			rested = h.rested
		}
		r.mu.Unlock()
		if running == 0 {
			return 0
		}
		select {
		case <-rested:
		case <-ctx.Done():
			return running
		case <-r.ctx.Done():
			return 0
		}
	}
}

// heldByTopic returns the queues held, by topic, sorted.
func (r *run) heldByTopic() map[string][]message.Queue {
	byTopic := make(map[string][]message.Queue)
	r.mu.Lock()
	for q := range r.held {
		byTopic[q.Topic] = append(byTopic[q.Topic], q)
	}
	r.mu.Unlock()
	for _, queues := range byTopic {
		slices.SortFunc(queues, message.Queue.Compare)
	}
	return byTopic
}

// dropUnsubscribed lets go of the queues of topics that are not subscribed any
// more. It returns the offsets that were not stored, by topic. Java:
// RebalanceImpl.truncateMessageQueueNotMyTopic.
func (r *run) dropUnsubscribed() (lost map[string]error) {
	topics := r.subs.topics()
	subscribed := func(topic string) bool {
		_, found := slices.BinarySearch(topics, topic)
		return found
	}
	var queues []message.Queue
	r.mu.Lock()
	for q := range r.held {
		if !subscribed(q.Topic) && r.retiring[q.Topic] == 0 {
			queues = append(queues, q)
		}
	}
	maps.DeleteFunc(r.spare, func(topic string, _ bool) bool { return !subscribed(topic) })
	r.mu.Unlock()
	maps.DeleteFunc(r.first, func(topic string, _ map[message.Queue]bool) bool { return !subscribed(topic) })
	maps.DeleteFunc(r.checked, func(topic string, _ checkedShares) bool { return !subscribed(topic) })
	maps.DeleteFunc(r.unknown, func(topic string, _ bool) bool { return !subscribed(topic) })
	if len(queues) == 0 {
		return nil
	}
	failed := r.drop(queues, false)
	r.warn(failed)
	lost = make(map[string]error)
	for _, u := range failed {
		for _, h := range u.queues {
			topic := h.queue.Topic
			lost[topic] = joined([]error{lost[topic], fmt.Errorf("consume: the last offset of %v is not known to be stored, the group gets again what was finished there since the commit before: %w", h.queue, u.err)})
		}
	}
	return lost
}

// refilter has the queues of a topic whose filter has changed go on by the new
// one: messages that nobody has taken are fetched again. The brokers have to know
// of the change first.
func (r *run) refilter(ctx context.Context, rd *round, sub subscription) error {
	var stale []*heldQueue
	r.mu.Lock()
	for q, h := range r.held {
		if q.Topic == sub.topic && !slices.Equal(h.filter.List(), sub.filter.List()) {
			stale = append(stale, h)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(stale, func(a, b *heldQueue) int { return a.queue.Compare(b.queue) })
	var errs []error
	for _, h := range stale {
		broker := h.queue.BrokerName
		err := rd.down[broker]
		if err == nil {
			err = r.greet(ctx, broker)
		}
		if err != nil {
			if !answered(err) {
				rd.down[broker] = err
			}
			errs = append(errs, fmt.Errorf("%v keeps its filter: %w", h.queue, err))
			continue
		}
		if h.stop != nil {
			h.stop()
			<-h.stopped
		}
		r.mu.Lock()
		r.cached -= h.pq.rewind()
		h.filter, h.version = sub.filter, sub.version
		pulling := h.stop != nil && !h.pq.gone && !r.halted
		wake := r.totalRoomLocked(nil)
		r.mu.Unlock()
		for _, other := range wake {
			signal(other.room)
		}
		if pulling {
			r.startPull(h)
		}
	}
	return joined(errs)
}
