package queuelock

import (
	"maps"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// Table is the locks of one broker. Safe for concurrent use; no method blocks.
type Table struct {
	expire time.Duration

	mu     sync.Mutex // guards everything below; a leaf
	groups map[string]map[message.Queue]lock
	size   int // locks, expired ones included
	sweep  int // size at which expired ones are looked for
}

// lock is one queue of one group. Java: LockEntry.
type lock struct {
	client  string
	updated time.Time
}

// minSweep is the size below which nobody minds expired locks.
const minSweep = 1024

// New makes an empty table. A lock that was not renewed for longer than expire
// is free. Java: REBALANCE_LOCK_MAX_LIVE_TIME.
func New(expire time.Duration) *Table {
	return &Table{expire: expire, groups: make(map[string]map[message.Queue]lock), sweep: minSweep}
}

// Lock gives client the queues that no other client of the group holds, and
// renews those it has. It returns the ones that client holds now, in the order
// of queues; the slice is the caller's. Java: tryLockBatch.
func (t *Table) Lock(group, client string, queues []message.Queue, now time.Time) []message.Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	locked := make([]message.Queue, 0, len(queues))
	for _, q := range queues {
		held, ok := t.groups[group][q]
		if ok && held.client != client && t.aliveLocked(held, now) {
			continue
		}
		if t.groups[group] == nil {
			t.groups[group] = make(map[message.Queue]lock)
		}
		if !ok {
			t.size++
		}
		t.groups[group][q] = lock{client, now}
		locked = append(locked, q)
	}
	if t.size > t.sweep {
		t.sweepLocked(now)
	}
	return locked
}

// Unlock frees the queues that client holds and leaves others alone.
// Java: unlockBatch.
func (t *Table) Unlock(group, client string, queues []message.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if held, ok := t.groups[group][q]; ok && held.client == client {
			t.removeLocked(group, q)
		}
	}
}

// Clear frees all queues.
func (t *Table) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.groups)
	t.size = 0
}

// Holds reports whether the group has a lock that has not expired: whether its
// members consume in order. Java: isLockAllExpired, negated.
func (t *Table) Holds(group string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, held := range t.groups[group] {
		if t.aliveLocked(held, now) {
			return true
		}
	}
	return false
}

// Locks returns who holds which queue of the group; expired locks are left out.
// nil when there is none; the map is the caller's.
func (t *Table) Locks(group string, now time.Time) map[message.Queue]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out map[message.Queue]string
	for q, held := range t.groups[group] {
		if !t.aliveLocked(held, now) {
			continue
		}
		if out == nil {
			out = make(map[message.Queue]string)
		}
		out[q] = held.client
	}
	return out
}

// DropTopic forgets the locks of a topic that is deleted, of all groups.
func (t *Table) DropTopic(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for group, locks := range t.groups {
		for q := range locks {
			if q.Topic == topic {
				t.removeLocked(group, q)
			}
		}
	}
}

// aliveLocked reports whether a lock keeps others out: later than expire is
// strict, as RocketMQ's is.
func (t *Table) aliveLocked(l lock, now time.Time) bool { return now.Sub(l.updated) <= t.expire }

// sweepLocked forgets expired locks. The next sweep comes when the table has
// doubled, so that it holds at most twice what is alive and a Lock costs no
// more for it.
func (t *Table) sweepLocked(now time.Time) {
	for group, locks := range t.groups {
		before := len(locks)
		maps.DeleteFunc(locks, func(_ message.Queue, l lock) bool { return !t.aliveLocked(l, now) })
		t.size -= before - len(locks)
		if len(locks) == 0 {
			delete(t.groups, group)
		}
	}
	t.sweep = max(minSweep, 2*t.size)
}

func (t *Table) removeLocked(group string, q message.Queue) {
	delete(t.groups[group], q)
	t.size--
	if len(t.groups[group]) == 0 {
		delete(t.groups, group)
	}
}
