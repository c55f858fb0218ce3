package consume

import (
	"time"
)

// lateLevel is the delay level of messages whose handler took too long.
// Java: ProcessQueue.cleanExpiredMsg.
const lateLevel = 3

// overdueLoop gives messages back that a handler has had for ConsumeTimeout. It
// may consume them still, but its result does not count any more. Java:
// ConsumeMessageConcurrentlyService.cleanExpireMsg.
//
// Differs: a message is given back when its time is up. Java looks every
// ConsumeTimeout, so a message may have twice that time, and at the 16 oldest
// messages of a queue only.
func (r *run) overdueLoop() {
	timer := time.NewTimer(r.cfg.ConsumeTimeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
		now := time.Now()
		next := r.endOverdue(now)
		timer.Reset(next.Sub(now))
	}
}

// endOverdue gives back what is overdue and returns when to look again: no
// delivery can be overdue before.
func (r *run) endOverdue(now time.Time) (next time.Time) {
	limit := now.Add(-r.cfg.ConsumeTimeout)
	earliest := now
	type overdue struct {
		h     *heldQueue
		first taken
		n     int
	}
	var found []overdue
	givers := make(map[string]int) // by broker

	r.mu.Lock()
	for _, h := range r.held {
		late, other := h.pq.overdue(limit.UnixNano())
		for _, t := range late {
			h.pq.giveBack(t)
			r.backLocked(back{h: h, t: t, level: lateLevel})
		}
		if len(late) > 0 {
			r.counters.Failed += int64(len(late))
			found = append(found, overdue{h, late[0], len(late)})
			givers[h.queue.BrokerName] += r.startBacksLocked(h.queue.BrokerName)
		}
		if other != 0 {
			if at := time.Unix(0, other); at.Before(earliest) {
				earliest = at
			}
		}
	}
	r.mu.Unlock()

	for broker, n := range givers {
		r.spawnBacks(broker, n)
	}
	for _, o := range found {
		r.log.Warn("a handler has had messages for ConsumeTimeout, they go back to their broker", "queue", o.h.queue, "offset", o.first.offset, "messages", o.n, "timeout", r.cfg.ConsumeTimeout)
	}
	return earliest.Add(r.cfg.ConsumeTimeout)
}
