package consume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// reasons is a set of reasons for a round.
type reasons uint8

const (
	membersChanged reasons = 1 << iota
	routeChanged
	retried
	periodic
	starting
	subscribed
)

// String names the most telling reason.
func (s reasons) String() string {
	switch {
	case s&starting != 0:
		return "start"
	case s&subscribed != 0:
		return "subscriptions changed"
	case s&membersChanged != 0:
		return "members changed"
	case s&routeChanged != 0:
		return "route changed"
	case s&retried != 0:
		return "retry"
	}
	return "periodic"
}

// trigger asks for a round. It does not block.
func (r *run) trigger(why reasons) {
	r.mu.Lock()
	r.reasons |= why
	r.mu.Unlock()
	signal(r.poke)
}

// outcome tells what a round left undone.
type outcome struct {
	missing bool             // some topic has no route
	refused bool             // some queue is locked by another member still
	err     error            // what failed; nil = settled
	topics  map[string]error // what failed, by topic. No route is no failure
	lost    map[string]error // offsets of topics no longer subscribed that are not known to be stored
}

// round is the state of one round.
type round struct {
	start   bool                // Start runs
	asked   map[string]bool     // topics that a caller waits for
	changed bool                // of what is held; brokers were told anew
	names   error               // no name server answered: none is asked again in this round
	down    map[string]error    // broker groups that did not answer: not asked again in this round
	members map[string][]string // by the broker group that listed them
	refused bool                // another member has the lock of a queue that is ours now
}

// join registers with the brokers and takes this member's share of every topic
// that has a route. It tries again while something fails and ctx lasts. Nothing
// is pulled yet.
func (r *run) join(ctx context.Context) (outcome, error) {
	if r.cfg.Model == protocol.Broadcasting {
		local, err := openLocalOffsets(r.cfg.OffsetFile)
		if err != nil {
			return outcome{}, fmt.Errorf("consume: start of group %q: %w", r.cfg.Group, err)
		}
		r.local = local
	}
	r.watch()
	for first := true; ; first = false {
		for _, sub := range r.subs.all() {
			if sub.internal { // the first heartbeat makes it
				continue
			}
			if _, err := r.route(ctx, sub.topic, !first, nil); err != nil && !errors.Is(err, protocol.ErrNoRoute) {
				return outcome{}, fmt.Errorf("consume: start of group %q: %w", r.cfg.Group, err)
			}
		}
		if first {
			r.announce(ctx)
		}
		out := r.round(ctx, &round{start: true})
		if out.err == nil && ctx.Err() == nil {
			return out, nil
		}
		if ctx.Err() == nil {
			if final(out.err) {
				return out, fmt.Errorf("consume: start of group %q: %w", r.cfg.Group, out.err)
			}
			r.log.Warn("start: not settled, trying again", "delay", r.cfg.RebalanceRetry, "error", out.err)
		}
		if !pause(ctx, r.cfg.RebalanceRetry) {
			return out, startError(ctx, r.cfg.Group, out.err)
		}
	}
}

// errOffsetFile marks that a broadcasting member's file could not be written.
var errOffsetFile = errors.New("offset file")

// final reports whether trying again cannot help a Start.
func final(err error) bool {
	switch code(err) {
	case protocol.NoPermission, protocol.RequestCodeNotSupported, protocol.InvalidParameter, protocol.MessageIllegal, protocol.IllegalOperation:
		return true
	}
	return errors.Is(err, errStrategy) || errors.Is(err, errOffsetFile)
}

// startError tells why a join ended with its context.
func startError(ctx context.Context, group string, last error) error {
	errs := []error{ctx.Err(), last}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		errs = append([]error{protocol.ErrTimeout}, errs...)
	}
	return fmt.Errorf("consume: start of group %q did not settle before its context ended: %w", group, joined(errs))
}

// rebalanceLoop runs the rounds, one at a time: every Rebalance; at once when
// asked; again after RebalanceRetry when one left something undone, after
// RouteRetry when a topic has no route. Java: RebalanceService.
func (r *run) rebalanceLoop(last outcome) {
	ended := false
	defer func() {
		if !ended { // a strategy took the goroutine with it (runtime.Goexit)
			r.log.Error("allocation strategy ended its goroutine, going on with a new one", "strategy", fmt.Sprintf("%T", r.cfg.Strategy))
			r.spawn(func() { r.rebalanceLoop(outcome{err: errStrategy}) })
		}
	}()
	defer func() { ended = r.ctx.Err() != nil }()
	ticker := time.NewTicker(r.cfg.Rebalance)
	defer ticker.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		if wait, any := r.retryAfter(last); any {
			retry.Reset(wait)
		} else {
			retry.Stop()
		}
		why := periodic
		select {
		case <-r.ctx.Done():
			return
		case <-r.poke:
			r.mu.Lock()
			why, r.reasons = r.reasons, 0
			r.mu.Unlock()
			if why == 0 { // the round before has seen to it
				continue
			}
		case <-retry.C:
			why = retried
		case <-ticker.C:
		}
		before := r.heldByTopic()
		asks := r.openAsks()
		next := r.round(r.ctx, &round{asked: topicsOf(asks)})
		if r.ctx.Err() != nil {
			return
		}
		if next.err != nil && (last.err == nil || next.err.Error() != last.err.Error()) {
			r.log.Warn("rebalance not settled, trying again", "delay", r.cfg.RebalanceRetry, "error", next.err)
		}
		last = next
		after := r.heldByTopic()
		for topic := range before {
			if _, held := after[topic]; !held {
				after[topic] = nil
			}
		}
		for _, topic := range slices.Sorted(maps.Keys(after)) {
			r.report(topic, before[topic], why)
		}
		r.settle(asks, next)
	}
}

// retryAfter returns how long to wait before what a round left undone is tried
// again.
func (r *run) retryAfter(out outcome) (wait time.Duration, any bool) {
	switch {
	case (out.err != nil || out.refused) && out.missing:
		return min(r.cfg.RebalanceRetry, r.cfg.RouteRetry), true
	case out.err != nil || out.refused:
		return r.cfg.RebalanceRetry, true
	case out.missing:
		return r.cfg.RouteRetry, true
	}
	return 0, false
}

// report tells OnRebalanced if the queues held of a topic that users see changed.
func (r *run) report(topic string, before []message.Queue, why reasons) {
	after := r.assignment(topic)
	if slices.Equal(before, after) {
		return
	}
	r.log.Info("rebalanced", "topic", topic, "before", len(before), "after", len(after), "reason", why.String())
	if sub, _ := r.subs.get(topic); sub.internal || !r.subs.member() {
		return
	}
	if r.cfg.OnRebalanced != nil && r.enter() {
		defer r.exit()
		r.cfg.OnRebalanced(Rebalanced{Topic: topic, Before: before, After: after, Reason: why.String()})
	}
}

// round lets go of topics that are not subscribed any more, tells brokers of
// subscriptions that have changed, and rebalances every topic once.
func (r *run) round(ctx context.Context, rd *round) outcome {
	rd.down, rd.members = make(map[string]error), make(map[string][]string)
	out := outcome{topics: make(map[string]error)}
	var errs []error
	r.release(ctx)
	out.lost = r.dropUnsubscribed()
	r.watch()
	r.announce(ctx)
	for _, sub := range r.subs.all() {
		topic := sub.topic
		if rd.asked[topic] { // its queues may rest since an Unsubscribe
			r.unblock(topic)
		}
		route, err := r.route(ctx, topic, false, rd.names)
		switch {
		case errors.Is(err, protocol.ErrNoRoute):
			// An internal topic is made by the first heartbeat that a broker gets.
			out.missing = out.missing || !sub.internal || len(r.greeted) > 0
			if !r.unknown[topic] {
				r.unknown[topic] = true
				log := r.log.Warn
				if sub.internal {
					log = r.log.Debug
				}
				log("a subscribed topic has no route, it is consumed once it has one", "topic", topic, "delay", r.cfg.RouteRetry)
			}
			continue
		case err != nil:
			rd.names = err
			out.topics[topic] = err
			errs = append(errs, err)
			continue
		}
		delete(r.unknown, topic)
		if rd.start || rd.asked[topic] && r.first[topic] == nil {
			r.first[topic] = make(map[message.Queue]bool, len(route.Subscribe))
			for _, q := range route.Subscribe {
				r.first[topic][q] = true
			}
		}
		if err := r.rebalance(ctx, rd, route, sub); err != nil {
			out.topics[topic] = err
			errs = append(errs, fmt.Errorf("topic %q: %w", topic, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if r.local != nil {
		if err := r.local.save(); err != nil { // start offsets that this round decided
			errs = append(errs, fmt.Errorf("%w: %w", errOffsetFile, err))
		}
	}
	out.err, out.refused = joined(errs), rd.refused
	return out
}

// route returns the cached route, or looks it up unless that is known to fail;
// fresh looks it up anyway.
func (r *run) route(ctx context.Context, topic string, fresh bool, fails error) (*client.Route, error) {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	if fresh {
		if route, _, err := r.cfg.Client.Refresh(ctx, topic); err == nil {
			return route, nil
		}
	}
	if route := r.cfg.Client.Cached(topic); route != nil {
		return route, nil
	}
	if fails != nil {
		return nil, fails
	}
	return r.cfg.Client.Route(ctx, topic)
}

// rebalance computes this member's share of a topic and takes it. On an error
// what is held stays, as far as the error concerns it.
//
// A change of what is held is told to the brokers before it is relied on, as a
// newer version of the subscriptions: after a member with another filter
// has left, brokers would go on with that filter. Java: messageQueueChanged.
func (r *run) rebalance(ctx context.Context, rd *round, route *client.Route, sub subscription) error {
	share, err := r.share(ctx, rd, route, sub)
	if err != nil {
		return err
	}
	r.unlockUnwanted(ctx, route.Topic, share)
	var errs []error
	if err := r.refilter(ctx, rd, sub); err != nil {
		errs = append(errs, err)
	}
	if stuck := r.expired(route.Topic, time.Now()); len(stuck) > 0 {
		r.log.Warn("queues whose pulls got no answer are taken anew", "queues", stuck, "limit", r.cfg.PullExpire)
		r.warn(r.drop(stuck, true))
	}
	revoked, added := rebalance.Diff(r.assignment(route.Topic), share)
	if len(revoked) > 0 {
		r.warn(r.drop(revoked, false))
	}
	if len(revoked)+len(added) > 0 && !rd.start {
		if !rd.changed {
			rd.changed = true
			r.subs.renew(time.Now())
			r.announce(ctx)
		}
		now, subscribed := r.subs.get(route.Topic)
		if !subscribed || !slices.Equal(now.filter.List(), sub.filter.List()) {
			return joined(errs) // changed meanwhile: there is another round
		}
		sub = now
	}
	for _, q := range added {
		if err := r.take(ctx, rd, q, sub); err != nil {
			errs = append(errs, err)
		}
	}
	return joined(errs)
}

// share computes this member's share of a topic: everything in a broadcasting
// group.
func (r *run) share(ctx context.Context, rd *round, route *client.Route, sub subscription) ([]message.Queue, error) {
	if sub.queues != nil {
		return r.assignedShare(route, sub), nil
	}
	if r.cfg.Model == protocol.Broadcasting || len(route.Subscribe) == 0 { // strategies refuse to share nothing
		return route.Subscribe, nil
	}
	members, err := r.memberList(ctx, rd, route)
	if err != nil {
		return nil, err
	}
	// Differs: Java asks every strategy about the retry topic. One of the user's
	// that does not expect it would leave failed messages to nobody.
	if sub.internal && !rebalance.BuiltIn(r.cfg.Strategy) {
		return rebalance.Averagely.Allocate(r.cfg.Group, r.cfg.ClientID, route.Subscribe, members)
	}
	share, err := r.allocate(route.Subscribe, members)
	if err != nil {
		return nil, err
	}
	if !sub.internal {
		r.noteSpare(Idle{Topic: sub.topic, Members: len(members), Queues: len(route.Subscribe), Strategy: r.cfg.Strategy.Name()}, len(share) == 0)
	}
	return share, nil
}

// noteSpare notes whether this member got no queue of a topic, and tells of it
// when that is new. The strategy is to blame when there was a queue for everybody.
func (r *run) noteSpare(idle Idle, spare bool) {
	r.mu.Lock()
	was := r.spare[idle.Topic]
	if spare {
		r.spare[idle.Topic] = true
	} else {
		delete(r.spare, idle.Topic)
	}
	r.mu.Unlock()
	if !spare || was {
		return
	}
	if idle.Members > idle.Queues {
		r.log.Warn("this member holds no queue of a topic, others got them all: give the topic as many queues as the group has members, or more",
			"topic", idle.Topic, "members", idle.Members, "queues", idle.Queues)
	} else {
		r.log.Warn("this member holds no queue of a topic though there are enough: the allocation strategy gives it none",
			"strategy", idle.Strategy, "topic", idle.Topic, "members", idle.Members, "queues", idle.Queues)
	}
	if r.cfg.OnIdle != nil && r.enter() {
		defer r.exit()
		r.cfg.OnIdle(idle)
	}
}

// expired returns the queues of a topic whose pull has had no answer for longer
// than PullExpire, sorted. One that may not pull, because it is full or rests, is
// none. Java: ProcessQueue.isPullExpired.
func (r *run) expired(topic string, now time.Time) []message.Queue {
	var queues []message.Queue
	r.mu.Lock()
	for q, h := range r.held {
		if q.Topic == topic && h.pulling && now.Sub(h.lastPull) > r.cfg.PullExpire {
			queues = append(queues, q)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(queues, message.Queue.Compare)
	return queues
}

// memberList asks a broker of the topic who is in the group, sorted. The broker
// that answered last is asked first, then the others by name. A list without
// this member comes from a broker that restarted, or that missed the heartbeat:
// it gets one, and another broker's list is better. If there is none, all get a
// heartbeat and are asked again. Differs: Java draws one broker at random and
// takes what it says.
func (r *run) memberList(ctx context.Context, rd *round, route *client.Route) ([]string, error) {
	var brokers []string
	for _, b := range route.TopicRoute.Brokers {
		if b.BrokerName == r.lister {
			brokers = append([]string{b.BrokerName}, brokers...)
		} else {
			brokers = append(brokers, b.BrokerName)
		}
	}
	if len(brokers) == 0 {
		return nil, fmt.Errorf("no broker in the route: %w", protocol.ErrNoRoute)
	}
	for range 2 {
		var forgot []string
		for _, broker := range brokers {
			if rd.down[broker] != nil {
				continue
			}
			members, err := r.askMembers(ctx, rd, broker)
			if err != nil {
				rd.down[broker] = err
				continue
			}
			if slices.Contains(members, r.cfg.ClientID) {
				r.lister = broker
				r.remind(ctx, rd, forgot)
				return members, nil
			}
			forgot = append(forgot, broker)
		}
		r.remind(ctx, rd, forgot)
	}
	errs := make([]error, 0, len(brokers))
	for _, broker := range brokers {
		if err := rd.down[broker]; err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, fmt.Errorf("%s does not list %q as a member", broker, r.cfg.ClientID))
		}
	}
	return nil, fmt.Errorf("members of group %q: %w", r.cfg.Group, joined(errs))
}

// remind sends a heartbeat to brokers that do not list this member. What they
// listed in this round does not count any more.
func (r *run) remind(ctx context.Context, rd *round, brokers []string) {
	for _, broker := range brokers {
		delete(rd.members, broker)
		if err := r.heartbeat(ctx, broker); err != nil {
			rd.down[broker] = err
		}
	}
}

// askMembers returns the members that a broker lists, sorted, each once. A
// broker that answers with an error, as RocketMQ does for an unknown group, lists
// nobody.
func (r *run) askMembers(ctx context.Context, rd *round, broker string) ([]string, error) {
	if members, ok := rd.members[broker]; ok {
		return members, nil
	}
	var members []string
	err := r.call(ctx, broker, membersTimeout, func(ctx context.Context, conn protocol.BrokerConn) error {
		resp, err := conn.GetConsumerList(ctx, &protocol.GetConsumerListRequest{Group: r.cfg.Group})
		if err != nil {
			return err
		}
		members = slices.Clone(resp.ClientIDs)
		return nil
	})
	if err != nil && !answered(err) {
		return nil, err
	}
	rebalance.SortMembers(members)
	members = slices.Compact(members)
	rd.members[broker] = members
	return members, nil
}

// take starts to consume a queue.
func (r *run) take(ctx context.Context, rd *round, q message.Queue, sub subscription) error {
	if err := rd.down[q.BrokerName]; err != nil {
		return fmt.Errorf("%v not taken: %w", q, err)
	}
	r.mu.Lock()
	old := r.draining[q]
	if old != nil {
		old.wanted = true // the last handler asks for another round
	}
	r.mu.Unlock()
	if old != nil {
		return nil
	}

	err := r.greet(ctx, q.BrokerName)
	var lock queueLock
	if err == nil {
		lock, err = r.acquire(ctx, q)
	}
	refused := errors.Is(err, errLockHeld)
	var start, committed int64
	if err == nil || refused && (rd.start || rd.asked[q.Topic]) {
		// Also without the lock: what is sent after Start, or Subscribe, is not skipped.
		start, committed, err = r.startOffset(ctx, q, sub)
	}
	if err != nil && !refused {
		if !answered(err) {
			rd.down[q.BrokerName] = err
		}
		r.disown(q, lock)
		return err
	}
	if refused {
		rd.refused = true
		r.log.Debug("queue not taken, another member has its lock", "queue", q, "delay", r.cfg.RebalanceRetry)
		return nil
	}
	h := &heldQueue{
		queue:      q,
		filter:     sub.filter,
		version:    sub.version,
		start:      start,
		room:       make(chan struct{}, 1),
		committing: make(chan struct{}, 1),
		pq:         newProcessQueue(start),
		committed:  committed,
		lastPull:   time.Now(),
		lock:       lock,
		poll:       newPolling(r.cfg.Polled, committed),
	}
	r.mu.Lock()
	h.blocked = r.blockedLocked(q)
	halted := r.halted
	pulling := r.active && !halted
	if !halted {
		r.held[q] = h
	}
	r.mu.Unlock()
	if halted {
		r.disown(q, lock)
	}
	if pulling {
		r.startPull(h)
	}
	return nil
}

// drop stops consuming queues: no handler starts any more, what runs finishes
// without counting, the commit offset goes to the broker. It waits for the pulls
// to end, unless they are stuck. It returns the commits that failed.
func (r *run) drop(queues []message.Queue, stuck bool) []unstored {
	var dropped []*heldQueue
	r.mu.Lock()
	for _, q := range queues {
		h := r.held[q]
		if h == nil { // the run has left already
			continue
		}
		delete(r.held, q)
		delete(r.full, h)
		r.leaving[h] = true
		dropped = append(dropped, h)
		if h.running > 0 && r.locking {
			r.revokeLocked(h)
			continue
		}
		r.cached -= h.pq.drop()
		r.retries.forget(h)
		if h.running > 0 {
			r.draining[q] = h
		}
	}
	wake := r.totalRoomLocked(nil)
	r.mu.Unlock()
	for _, f := range wake {
		signal(f.room)
	}

	// A pull under way carries an older commit: it has to be over before the
	// last one is sent.
	for _, h := range dropped {
		if h.stop != nil {
			h.stop()
			if !stuck {
				<-h.stopped
			}
		}
	}
	return r.letGo(r.ctx, slices.DeleteFunc(dropped, func(h *heldQueue) bool { return h.revoked }))
}

// greet registers with a broker group that has not been told the latest
// subscriptions yet, such as one that joined the cluster a moment ago.
func (r *run) greet(ctx context.Context, broker string) error {
	latest := r.subs.latest()
	if r.greeted[broker] >= latest {
		return nil
	}
	if err := r.heartbeat(ctx, broker); err != nil {
		return err
	}
	r.greeted[broker] = latest
	return nil
}

// announce tells every broker the latest subscriptions, once for each change. One
// that fails hears of them before one of its queues is taken, or with the next
// heartbeat.
func (r *run) announce(ctx context.Context) {
	latest := r.subs.latest()
	if r.told >= latest {
		return
	}
	r.told = latest
	if err := r.cfg.Client.HeartbeatAll(ctx); err != nil {
		if ctx.Err() == nil {
			r.log.Warn("not every broker took the heartbeat", "error", err)
		}
		return
	}
	for _, topic := range r.subs.topics() {
		if route := r.cfg.Client.Cached(topic); route != nil {
			for _, b := range route.TopicRoute.Brokers {
				r.greeted[b.BrokerName] = latest
			}
		}
	}
}

// joined joins errors in one line; nil for none.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	err := errs[0]
	for _, next := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, next)
	}
	return err
}
