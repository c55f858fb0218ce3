package fault

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// Select returns the queue to send to, false only when there are no queues:
//
//  1. the next one on a broker that is available and not lastBroker, the one
//     that the send has just failed at ("" = none);
//  2. else the next one on a broker that can be reached and is not lastBroker;
//  3. else the next one.
//
// next is the turn of the topic. queues, the topic's route, is neither changed
// nor kept, whatever its order is. Where more of its brokers are isolated than
// Config.MaxIsolated allows, those isolated longest count as available. Without
// Config.Enabled it is next.Pick. Select does not allocate, for routes of up to
// 32 brokers.
//
// Java: MQFaultStrategy.selectOneMessageQueue. Differs: there a retry continues
// from an index drawn at random, which is its thread's own; here the turn is
// shared and goes on.
func (t *Tracker) Select(queues []message.Queue, lastBroker string, next *Counter, now time.Time) (message.Queue, bool) {
	if !t.cfg.Enabled {
		return next.Pick(queues, lastBroker)
	}
	table := *t.table.Load()
	q, ok := t.firstChoice(queues, lastBroker, next, table, now)
	if ok {
		return q, true
	}
	q, ok = next.next(queues, func(broker string) bool {
		return broker != lastBroker && table[broker].reachable()
	})
	if ok {
		return q, true
	}
	return next.any(queues)
}

// firstChoice is step 1 of Select.
func (t *Tracker) firstChoice(queues []message.Queue, lastBroker string, next *Counter, table map[string]*record, now time.Time) (message.Queue, bool) {
	if from := t.calm.Load(); from == nil || !now.Before(*from) { // nobody is isolated
		return next.next(queues, func(broker string) bool { return broker != lastBroker })
	}
	if t.cfg.MaxIsolated > 0 {
		var room [roomFor]isolation
		spared := t.beyondLimit(room[:0], table, queues, now)
		return next.next(queues, func(broker string) bool {
			return broker != lastBroker && (table[broker].available(now) || slices.ContainsFunc(spared, func(i isolation) bool { return i.broker == broker }))
		})
	}
	return next.next(queues, func(broker string) bool { return broker != lastBroker && table[broker].available(now) })
}

// roomFor is how many brokers of a route are looked at without an allocation.
const roomFor = 32

// isolation is a broker that is isolated, and since when.
type isolation struct {
	broker string
	since  time.Time
}

// beyondLimit appends to room the isolated brokers of queues and returns those
// that Config.MaxIsolated does not let be avoided: the ones isolated longest.
func (t *Tracker) beyondLimit(room []isolation, table map[string]*record, queues []message.Queue, now time.Time) []isolation {
	var names [roomFor]string
	brokers := names[:0]
	for i := range queues {
		b := queues[i].BrokerName
		if i > 0 && b == queues[i-1].BrokerName || slices.Contains(brokers, b) {
			continue // routes are sorted: mostly the first test is enough
		}
		brokers = append(brokers, b)
		if r := table[b]; r != nil {
			if w := r.isolated.Load(); w != nil && now.Before(w.until) {
				room = append(room, isolation{b, w.since})
			}
		}
	}
	over := len(room) - t.cfg.limit(len(brokers))
	if over <= 0 {
		return nil
	}
	slices.SortFunc(room, func(a, b isolation) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.broker, b.broker))
	})
	return room[:over]
}
