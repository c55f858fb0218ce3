package consume

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// run is one life of an engine, from a Start to the end.
//
// Its goroutines are the rebalance loop, the commit loop, the redelivery loop,
// the loop that ends late deliveries, one pull loop per queue held, the workers,
// and, while failed messages are given back, up to as many again. The loops end
// with ctx, which halt cancels; the pull loop of a dropped queue ends with the
// queue; a worker ends after halt, when its handler has returned; giving back ends
// with the list, or with backCtx.
type run struct {
	cfg        *Config
	log        *slog.Logger
	subs       *subscriptions  // the engine's
	retryTopic string          // the group's
	began      time.Time       // when Start was called
	local      *localOffsets   // of a broadcasting member; nil when brokers keep the offsets
	base       context.Context // Start's ctx without its end: for what is done after ctx

	ctx            context.Context // of the loops
	cancel         context.CancelFunc
	handlerCtx     context.Context // of the handlers
	cancelHandlers context.CancelCauseFunc
	backCtx        context.Context // of giving failed messages back
	cancelBacks    context.CancelFunc

	poke   chan struct{} // one slot: reasons is not empty
	sooner chan struct{} // one slot: the redelivery loop has to look at its heap

	locking  bool            // orderly in a group: queues are locked at their brokers
	unlocked chan struct{}   // one slot: a queue has no lock that counts
	lockTurn chan struct{}   // one slot, held during requests about locks
	lockCtx  context.Context // of the lock loop: it ends with the last handler, or with leave
	endLocks context.CancelFunc
	quiet    chan struct{} // closed when no goroutine of the run is left
	work     *sync.Cond    // on mu: workers wait for ready messages, or for halt

	// Only the goroutine that rebalances uses these: Start's, then the loop's.
	first   map[string]map[message.Queue]bool // the queues of each topic for which From counts
	greeted map[string]int64                  // broker group -> the latest change of the subscriptions that it was told
	told    int64                             // the latest change that all were told, those that failed aside
	lister  string                            // the broker group that listed the members last
	unknown map[string]bool                   // topics without a route, reported
	checked map[string]checkedShares          // by topic: the latest look at a strategy's shares
	absent  map[string]string                 // by topic: assigned queues that no route shows, reported

	mu         sync.Mutex                   // guards everything below
	active     bool                         // Start is done: queues are pulled as soon as they are taken
	halted     bool                         // nothing new is started
	inside     int                          // calls of the strategy and of OnRebalanced that have not returned
	ended      []chan struct{}              // one slot each: a goroutine has ended since halt. For commitFinished
	goroutines int                          // of this run
	reasons    reasons                      // for the next round
	asks       []*ask                       // callers that wait for a round to settle a topic
	watched    map[string]bool              // topics whose routes the client keeps fresh for this run
	retiring   map[string]int               // topics whose queues rest until their last handler ends: callers that wait for that
	spare      map[string]bool              // topics of which this member got no queue
	lockless   map[string]bool              // broker groups that did not answer for locks; reported
	held       map[message.Queue]*heldQueue // what is consumed
	leaving    map[*heldQueue]bool          // dropped, last offset not committed yet, or still locked
	draining   map[message.Queue]*heldQueue // dropped, handlers still run
	asked      map[message.Queue]bool       // wanted locks of which no answer tells whether they are granted
	unlocks    map[message.Queue]time.Time  // when unlocks were sent that no answer has ended
	ready      readyList                    // held queues with ready messages
	idle       int                          // workers that wait
	waking     bool                         // a worker was woken and has not looked yet
	full       map[*heldQueue]bool          // pull loops that wait until MaxCachedTotal is met
	cached     int64                        // bytes of all process queues
	returned   []*heldQueue                 // polled: of which a Poll has returned messages since the last began
	backs      map[string]*backList         // failed messages to be given back, by broker group
	retries    retryHeap                    // messages that could not be given back, by due time
	counters   Status
}

// heldQueue is a queue that this member consumes.
type heldQueue struct {
	queue   message.Queue
	filter  filter.Tags
	version int64 // of the subscription: its broker has this or a newer one
	start   int64 // where this member began

	// Of the pull loop; set when it is started.
	stop    context.CancelFunc
	stopped chan struct{}
	failing bool // the last pull failed: only the first of a series is a warning
	stayed  bool // the last pull was told to go on where it was
	// elsewhere: a master without a lease was asked since a pull brought something or was held.
	elsewhere bool
	from      int64 // the id of the member that the last answer advised to pull from

	room       chan struct{} // one slot: the pull loop has to look whether it may pull
	committing chan struct{} // one slot, held while an offset is committed: the last call carries the newest one

	// Guarded by run.mu.
	pq        processQueue
	blocked   bool          // neither pulled nor handed out: paused, or retiring
	lastPull  time.Time     // when the last pull was sent, or the queue taken
	lastGiven time.Time     // when a handler got the last messages; zero = none yet
	pulling   bool          // a pull is under way
	committed int64         // what the broker has, as far as known; -1 = unknown
	waiting   bool          // the pull loop waits for room
	running   int           // handler calls
	rested    chan struct{} // closed when running gets 0; nil: nobody waits for that
	wanted    bool          // refused while draining: rebalance when drained
	noTopic   bool          // the last commit was refused: the broker has no such topic
	noted     bool          // noTopic is reported
	lock      queueLock     // orderly in a group
	refused   bool          // the broker gives the lock to another member; reported
	suspended bool          // orderly: failed messages wait in place, the redelivery loop wakes them
	revoked   bool          // orderly: dropped while its handler runs, whose result counts
	poll      polling       // of a polled engine
	listed    bool          // in run.ready
	next      *heldQueue    // in run.ready
}

func newRun(cfg *Config, subs *subscriptions, base context.Context, now time.Time) *run {
	r := &run{
		cfg:        cfg,
		log:        cfg.Logger.With("group", cfg.Group),
		subs:       subs,
		began:      now,
		base:       base,
		poke:       make(chan struct{}, 1),
		sooner:     make(chan struct{}, 1),
		locking:    cfg.Orderly && cfg.Model == protocol.Clustering,
		unlocked:   make(chan struct{}, 1),
		lockTurn:   make(chan struct{}, 1),
		quiet:      make(chan struct{}),
		first:      make(map[string]map[message.Queue]bool),
		greeted:    make(map[string]int64),
		watched:    make(map[string]bool),
		retiring:   make(map[string]int),
		spare:      make(map[string]bool),
		lockless:   make(map[string]bool),
		unknown:    make(map[string]bool),
		checked:    make(map[string]checkedShares),
		absent:     make(map[string]string),
		held:       make(map[message.Queue]*heldQueue),
		leaving:    make(map[*heldQueue]bool),
		draining:   make(map[message.Queue]*heldQueue),
		asked:      make(map[message.Queue]bool),
		unlocks:    make(map[message.Queue]time.Time),
		full:       make(map[*heldQueue]bool),
		backs:      make(map[string]*backList),
		retryTopic: message.RetryTopic(cfg.Group),

		goroutines: 1, // Start's own, until activate is done
	}
	r.work = sync.NewCond(&r.mu)
	r.ctx, r.cancel = context.WithCancel(base)
	r.lockCtx, r.endLocks = context.WithCancel(base)
	r.handlerCtx, r.cancelHandlers = context.WithCancelCause(base)
	r.backCtx, r.cancelBacks = context.WithCancel(base)
	return r
}

// activate starts everything after a successful join.
func (r *run) activate(joined outcome) {
	defer r.gone()
	r.mu.Lock()
	r.active = true
	queues := make([]*heldQueue, 0, len(r.held))
	for _, h := range r.held {
		queues = append(queues, h)
	}
	r.mu.Unlock()
	for _, topic := range r.subs.topics() {
		r.report(topic, nil, starting)
	}
	for range r.cfg.Concurrency {
		r.spawn(r.consume)
	}
	r.spawn(r.redeliver)
	if !r.cfg.Orderly && !r.cfg.Polled && r.cfg.Model == protocol.Clustering {
		r.spawn(r.overdueLoop)
	}
	r.spawn(r.commitLoop)
	if r.locking {
		r.spawn(r.lockLoop)
	}
	for _, h := range queues {
		r.startPull(h)
	}
	r.spawn(func() { r.rebalanceLoop(joined) })
}

// spawn starts a goroutine that ends with the run.
func (r *run) spawn(f func()) {
	r.mu.Lock()
	r.goroutines++
	r.mu.Unlock()
	go func() {
		defer r.gone()
		f()
	}()
}

// spawnHandler is spawn for a call of the handler that is no worker's; false when
// the run has not begun to call handlers, or does not any more.
func (r *run) spawnHandler(f func()) bool {
	r.mu.Lock()
	ok := r.active && !r.halted
	if ok {
		r.goroutines++
		r.counters.Running++
	}
	r.mu.Unlock()
	if !ok {
		return false
	}
	go func() {
		defer r.gone()
		defer func() {
			r.mu.Lock()
			r.counters.Running--
			r.mu.Unlock()
		}()
		f()
	}()
	return true
}

// gone notes the end of a goroutine.
func (r *run) gone() {
	r.mu.Lock()
	r.goroutines--
	last := r.halted && r.goroutines == 0
	idle := r.halted && r.counters.Running == 0
	ended := r.ended
	r.mu.Unlock()
	if idle {
		r.endLocks()
	}
	for _, c := range ended {
		signal(c)
	}
	if last {
		close(r.quiet)
	}
}

// enter begins a call of the strategy or of OnRebalanced; false when the run has
// halted and the call must not be made.
func (r *run) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.halted {
		return false
	}
	r.inside++
	return true
}

// exit ends what enter began.
func (r *run) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
}

// halt stops the loops and lets workers end. It does not wait. From then on user
// code only returns: no call begins.
func (r *run) halt() {
	r.cancel()
	r.mu.Lock()
	r.halted = true
	none := r.goroutines == 0
	r.work.Broadcast()
	r.mu.Unlock()
	if none {
		close(r.quiet)
	}
}

// abandon undoes a join that failed. Nothing was pulled and nothing runs.
func (r *run) abandon() {
	r.cancel()
	r.cancelHandlers(protocol.ErrClosed)
	r.endLocks()
	r.cancelBacks()
	ctx, cancel := context.WithTimeout(r.base, startLeaveTimeout)
	defer cancel()
	r.mu.Lock()
	queues := slices.AppendSeq(slices.Collect(maps.Keys(r.held)), maps.Keys(r.asked))
	r.mu.Unlock()
	r.unlock(ctx, queues)
	r.farewell(ctx)
}

// leave commits what is finished and takes the member out of the group, as long
// as ctx lasts, and when ctx has no deadline for leaveTimeout at most. What
// handlers that still run return does not count any more. It returns the commits
// that failed.
func (r *run) leave(ctx context.Context) []unstored {
	r.endLocks()
	r.mu.Lock()
	queues := make([]*heldQueue, 0, len(r.held)+len(r.leaving))
	var free []message.Queue // no handler runs: they may be unlocked
	for h := range r.leaving {
		r.cached -= h.pq.drop()
		queues = append(queues, h)
	}
	for q, h := range r.held {
		r.cached -= h.pq.drop()
		delete(r.held, q)
		queues = append(queues, h)
	}
	for _, h := range queues {
		if h.running == 0 {
			free = append(free, h.queue)
		}
	}
	free = slices.AppendSeq(free, maps.Keys(r.asked))
	r.retries = nil
	r.mu.Unlock()

	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
	}
	r.regain(ctx, queues)
	failed := r.commitAll(ctx, queues)
	r.unlock(ctx, free)
	r.farewell(ctx)
	return failed
}

func (r *run) farewell(ctx context.Context) {
	if r.subs.member() {
		r.cfg.Client.Unregister(ctx, "", r.cfg.Group)
	}
	r.mu.Lock()
	watched := r.watched
	r.watched = nil // a round that user code holds up adds none
	r.mu.Unlock()
	for topic := range watched {
		r.cfg.Client.Unwatch(topic)
	}
}

// left returns the handler calls, the calls of other user code and the messages
// that are not finished.
func (r *run) left() (running, inside, unfinished int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.held {
		unfinished += h.pq.count
	}
	return r.counters.Running, r.inside, unfinished
}

// assignment returns the queues held of a topic, "" = of all that users see,
// sorted.
func (r *run) assignment(topic string) []message.Queue {
	var hidden map[string]bool
	if topic == "" {
		hidden = r.subs.hidden()
	}
	r.mu.Lock()
	queues := make([]message.Queue, 0, len(r.held))
	for q := range r.held {
		if topic == "" && !hidden[q.Topic] || q.Topic == topic {
			queues = append(queues, q)
		}
	}
	r.mu.Unlock()
	slices.SortFunc(queues, message.Queue.Compare)
	return queues
}

func (r *run) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.counters
	if len(r.spare) > 0 {
		status.Idle = slices.Sorted(maps.Keys(r.spare))
	}
	return status
}

// signal fills a one-slot channel without waiting.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
