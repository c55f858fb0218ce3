package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// lockTimeout bounds one request for locks. Java: 1 s.
const lockTimeout = time.Second

// errLockHeld says that another member of the group has a queue's lock.
var errLockHeld = errors.New("another member of the group holds the lock of the queue")

// errNotLocked says that this member has no lock of a queue that counts.
var errNotLocked = errors.New("the lock of the queue is lost")

// queueLock is a broker's word that a queue is this member's, the zero value is
// none. It counts for LockClientLife, and only as long as the session that
// brought it lives and leads to the group's master: what another broker, or the
// same one after a restart, has granted since is not known.
type queueLock struct {
	conn protocol.BrokerConn
	addr string
	at   time.Time // when it was asked for: the broker counts from then or later
}

// locks reports whether a queue may only be consumed with a lock. The group's
// retry queues need none: nothing in them is in an order.
//
// Differs: Java locks them, too.
func (r *run) locks(q message.Queue) bool {
	return r.locking && q.Topic != r.retryTopic
}

// hasLockLocked reports whether h has a lock that counts. The calls of Client
// take no lock and do not block.
func (r *run) hasLockLocked(h *heldQueue, now time.Time) bool {
	l := &h.lock
	if l.conn == nil || now.Sub(l.at) > r.cfg.LockClientLife {
		return false
	}
	addr, ok := r.cfg.Client.MasterAddr(h.queue.BrokerName)
	return ok && addr == l.addr && r.cfg.Client.Current(addr, l.conn)
}

// ownsLocked reports whether this member may consume h: it has the lock, or
// needs none.
func (r *run) ownsLocked(h *heldQueue, now time.Time) bool {
	return !r.locks(h.queue) || h.lock.conn != nil && r.hasLockLocked(h, now)
}

// owns is ownsLocked, now.
func (r *run) owns(h *heldQueue) bool {
	if !r.locks(h.queue) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasLockLocked(h, time.Now())
}

// lockLoop renews the locks of all queues every LockRenew, and asks for what is
// missing at once, then every RebalanceRetry. It goes on after halt while
// handlers run: their queues stay locked. Java: ConsumeMessageOrderlyService's
// lockMQPeriodically and tryLockLaterAndReconsume, which waits 3 s.
func (r *run) lockLoop() {
	ticker := time.NewTicker(r.cfg.LockRenew)
	defer ticker.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	missing := true // what the start has left
	for {
		if missing {
			retry.Reset(r.cfg.RebalanceRetry)
		} else {
			retry.Stop()
		}
		every := false
		select {
		case <-r.lockCtx.Done():
			return
		case <-ticker.C:
			every = true
		case <-retry.C:
		case <-r.unlocked:
		}
		missing = r.lockAll(r.lockCtx, every)
	}
}

// lockAll asks for the locks that are missing or due, or every one. It reports
// whether something is missing still.
func (r *run) lockAll(ctx context.Context, every bool) (missing bool) {
	if !r.enterLocks(ctx) {
		return true
	}
	defer r.exitLocks()
	var queues []*heldQueue
	now := time.Now()
	add := func(h *heldQueue) {
		if !r.locks(h.queue) {
			return
		}
		if every || now.Sub(h.lock.at) >= r.cfg.LockRenew || !r.hasLockLocked(h, now) {
			queues = append(queues, h)
		}
	}
	r.mu.Lock()
	for _, h := range r.held {
		add(h)
	}
	for _, h := range r.draining { // a handler runs
		add(h)
	}
	if every { // of brokers without queues here nothing is known any more
		maps.DeleteFunc(r.lockless, func(broker string, _ bool) bool {
			return !slices.ContainsFunc(queues, func(h *heldQueue) bool { return h.queue.BrokerName == broker })
		})
	}
	r.mu.Unlock()
	return r.lockEach(ctx, queues)
}

// enterLocks and exitLocks enclose requests about locks: one that locks must not
// overtake one that unlocks. false when ctx has ended.
func (r *run) enterLocks(ctx context.Context) bool {
	select {
	case r.lockTurn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (r *run) exitLocks() { <-r.lockTurn }

// lockEach asks for the locks of queues: one request per broker, one broker
// beside the other. It reports whether something is missing still.
func (r *run) lockEach(ctx context.Context, queues []*heldQueue) (missing bool) {
	byBroker := make(map[string][]*heldQueue)
	for _, h := range queues {
		byBroker[h.queue.BrokerName] = append(byBroker[h.queue.BrokerName], h)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards missing
	for broker, queues := range byBroker {
		wg.Go(func() {
			err := r.lock(ctx, broker, queues)
			if ctx.Err() == nil {
				r.noteLocks(broker, len(queues), err)
			}
			if err != nil {
				mu.Lock()
				missing = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return missing
}

// noteLocks reports a broker that did not answer for queues' locks, the first of a
// series as a warning, and one that does again.
func (r *run) noteLocks(broker string, queues int, err error) {
	failed := err != nil && !errors.Is(err, errLockHeld)
	r.mu.Lock()
	was := r.lockless[broker]
	if failed {
		r.lockless[broker] = true
	} else {
		delete(r.lockless, broker)
	}
	r.mu.Unlock()
	switch {
	case failed && !was:
		r.log.Warn("locks not renewed, trying again", "broker", broker, "queues", queues, "delay", r.cfg.RebalanceRetry, "error", err)
	case failed:
		r.log.Debug("locks not renewed, trying again", "broker", broker, "queues", queues, "delay", r.cfg.RebalanceRetry, "error", err)
	case was:
		r.log.Info("locks are renewed again", "broker", broker, "queues", queues)
	}
}

// lock asks a broker for the locks of queues of its own, and starts those that
// got one. errLockHeld when one did not.
//
// Between the end of the last lock and this one the queue may have been another
// member's. So a lock that is no renewal counts once the committed offset is
// known, and what that member has finished is passed over.
func (r *run) lock(ctx context.Context, broker string, queues []*heldQueue) error {
	list := make([]message.Queue, len(queues))
	for i, h := range queues {
		list[i] = h.queue
	}
	got, locked, err := r.askLocks(ctx, broker, list)
	if err != nil {
		return err
	}
	var failed error
	for _, h := range queues {
		if !locked[h.queue] {
			r.lockRefused(h)
			failed = errLockHeld
			continue
		}
		r.mu.Lock()
		renewal := h.lock.conn == got.conn && got.at.Sub(h.lock.at) <= r.cfg.LockClientLife
		r.mu.Unlock()
		committed := int64(-1)
		if !renewal {
			if committed, err = r.committedNow(ctx, h.queue, got); err != nil {
				failed = err
				continue
			}
		}
		r.lockGranted(h, got, committed)
	}
	return failed
}

// askLocks sends one request for locks to the master of a broker group.
func (r *run) askLocks(ctx context.Context, broker string, queues []message.Queue) (got queueLock, locked map[message.Queue]bool, err error) {
	addr, ok := r.cfg.Client.MasterAddr(broker)
	if !ok {
		return got, nil, fmt.Errorf("broker %q has no master in any route: %w", broker, protocol.ErrUnreachable)
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	conn, err := r.cfg.Client.Broker(ctx, addr)
	if err != nil {
		return got, nil, fmt.Errorf("%s at %s: %w", broker, addr, err)
	}
	at := time.Now()
	resp, err := conn.LockQueues(ctx, &protocol.LockQueuesRequest{Group: r.cfg.Group, ClientID: r.cfg.ClientID, Queues: queues})
	if err != nil {
		if !answered(err) && ctx.Err() == nil {
			r.cfg.Client.Lost(addr, conn)
		}
		return got, nil, fmt.Errorf("lock at %s: %w", broker, err)
	}
	locked = make(map[message.Queue]bool, len(resp.Locked))
	for _, q := range resp.Locked {
		locked[q] = true
	}
	return queueLock{conn, addr, at}, locked, nil
}

// committedNow returns what the group has committed at the broker that granted a
// lock, -1 when that is nothing.
func (r *run) committedNow(ctx context.Context, q message.Queue, l queueLock) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, offsetTimeout)
	defer cancel()
	resp, err := l.conn.QueryConsumerOffset(ctx, &protocol.QueryConsumerOffsetRequest{
		Group: r.cfg.Group, Topic: q.Topic, QueueID: q.QueueID, CommittedOnly: true,
	})
	switch {
	case code(err) == protocol.QueryNotFound:
		return -1, nil
	case err != nil:
		return -1, fmt.Errorf("committed offset of %v: %w", q, err)
	}
	return resp.Offset, nil
}

// lockGranted gives h a lock. What the group has committed beyond h is passed
// over.
func (r *run) lockGranted(h *heldQueue, l queueLock, committed int64) {
	r.mu.Lock()
	if committed > h.pq.commit() && !h.pq.gone && !h.revoked {
		r.log.Info("another member has had the queue meanwhile, going on where it was", "queue", h.queue, "from", h.pq.commit(), "to", committed)
		r.cached -= h.pq.pass(committed)
		h.committed = committed
	}
	if h.refused {
		h.refused = false
		r.log.Info("the queue is locked again and goes on", "queue", h.queue)
	}
	h.lock = l
	r.nextLocked(h)
	wake := r.roomLocked(nil, h)
	r.mu.Unlock()
	signal(h.room)
	for _, f := range wake {
		signal(f.room)
	}
}

// lockRefused takes the lock from h: no handler starts until it has one again.
func (r *run) lockRefused(h *heldQueue) {
	r.mu.Lock()
	first := !h.refused
	h.refused = true
	h.lock = queueLock{}
	r.mu.Unlock()
	if first {
		r.log.Warn("the lock of a queue was refused, another member has it; the queue waits", "queue", h.queue, "delay", r.cfg.RebalanceRetry)
	}
}

// acquire gets the lock of a queue that is about to be taken. errLockHeld when
// another member has it.
func (r *run) acquire(ctx context.Context, q message.Queue) (queueLock, error) {
	if !r.locks(q) {
		return queueLock{}, nil
	}
	if !r.enterLocks(ctx) {
		return queueLock{}, fmt.Errorf("%v not taken: %w", q, ctx.Err())
	}
	defer r.exitLocks()
	if r.unlocking(q, time.Now()) {
		return queueLock{}, fmt.Errorf("%v: its last unlock may be under way still: %w", q, errLockHeld)
	}
	l, locked, err := r.askLocks(ctx, q.BrokerName, []message.Queue{q})
	if err == nil {
		r.mu.Lock()
		delete(r.asked, q)
		r.mu.Unlock()
	}
	switch {
	case err != nil:
		switch {
		case answered(err):
		case ctx.Err() != nil: // granted, for all we know
			r.sendUnlock(q)
		default: // asked for again, or unlocked when it is wanted no more
			r.mu.Lock()
			r.asked[q] = true
			r.mu.Unlock()
		}
		return queueLock{}, fmt.Errorf("%v not taken: %w", q, err)
	case !locked[q]:
		return queueLock{}, fmt.Errorf("%v: %w", q, errLockHeld)
	}
	return l, nil
}

// regain asks once for the locks of queues that have lost theirs, so that their
// last offsets may be committed.
func (r *run) regain(ctx context.Context, queues []*heldQueue) {
	if !r.locking || !r.enterLocks(ctx) {
		return
	}
	defer r.exitLocks()
	var without []*heldQueue
	now := time.Now()
	r.mu.Lock()
	for _, h := range queues {
		if r.locks(h.queue) && !r.hasLockLocked(h, now) && h.losesLocked() {
			without = append(without, h)
		}
	}
	r.mu.Unlock()
	r.lockEach(ctx, without)
}

// disown undoes acquire for a queue that is not taken after all.
func (r *run) disown(q message.Queue, l queueLock) {
	if l.conn == nil || !r.enterLocks(r.base) {
		return
	}
	defer r.exitLocks()
	r.sendUnlock(q)
}

// unlocking reports whether a broker may still get an unlock of q that was sent
// before: a lock granted until then would be lost without a word. What took
// longer than LockClientLife is over.
func (r *run) unlocking(q message.Queue, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent, ok := r.unlocks[q]
	if ok && now.Sub(sent) > r.cfg.LockClientLife {
		delete(r.unlocks, q)
		return false
	}
	return ok
}

// unlockUnwanted gives back the queues of a topic that were asked for without an
// answer and are not of this member's share any more.
func (r *run) unlockUnwanted(ctx context.Context, topic string, share []message.Queue) {
	var unwanted []message.Queue
	r.mu.Lock()
	for q := range r.asked {
		if q.Topic == topic && !slices.Contains(share, q) {
			unwanted = append(unwanted, q)
			delete(r.asked, q)
		}
	}
	r.mu.Unlock()
	r.unlock(ctx, unwanted)
}

// unlock gives queues back that no handler has any more. Best effort: what fails
// is logged, since locks expire. Java: RebalanceImpl.unlock, unlockAll.
//
// Differs: it waits for the answers. One that is not waited for may be overtaken
// by a later lock, which it then takes away.
func (r *run) unlock(ctx context.Context, queues []message.Queue) {
	if !r.locking || len(queues) == 0 || !r.enterLocks(ctx) {
		return
	}
	defer r.exitLocks()
	byBroker := make(map[string][]message.Queue)
	for _, q := range queues {
		if r.locks(q) {
			byBroker[q.BrokerName] = append(byBroker[q.BrokerName], q)
		}
	}
	var wg sync.WaitGroup
	for broker, queues := range byBroker {
		wg.Go(func() { r.unlockAt(ctx, broker, queues, false) })
	}
	wg.Wait()
}

// sendUnlock unlocks one queue, whether the run halts or not, and waits for
// nothing.
func (r *run) sendUnlock(q message.Queue) {
	r.unlockAt(r.base, q.BrokerName, []message.Queue{q}, true)
}

// unlockAt sends one request. While no broker has answered it, acquire leaves its
// queues alone.
func (r *run) unlockAt(ctx context.Context, broker string, queues []message.Queue, oneway bool) {
	now := time.Now()
	before := make(map[message.Queue]time.Time)
	r.mu.Lock()
	for _, q := range queues {
		if sent, ok := r.unlocks[q]; ok && now.Sub(sent) <= r.cfg.LockClientLife {
			before[q] = sent
		}
		r.unlocks[q] = now
	}
	r.mu.Unlock()
	err := r.call(ctx, broker, lockTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		_, err := conn.UnlockQueues(ctx, &protocol.UnlockQueuesRequest{Group: r.cfg.Group, ClientID: r.cfg.ClientID, Queues: queues, Oneway: oneway})
		return err
	})
	if err == nil && !oneway || answered(err) || errors.Is(err, protocol.ErrUnreachable) {
		r.mu.Lock()
		for _, q := range queues {
			delete(r.unlocks, q)
		}
		maps.Copy(r.unlocks, before) // those may be under way still
		r.mu.Unlock()
	}
	if err != nil {
		r.log.Warn("queues not unlocked, their locks expire", "broker", broker, "queues", len(queues), "error", err)
	}
}
