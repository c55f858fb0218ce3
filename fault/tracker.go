package fault

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// detectInterval is how long a broker that was due for a check is not due
// again. Java: LatencyFaultToleranceImpl.detectInterval.
const detectInterval = 2 * time.Second

// Tracker is the latency fault table of one producer: for each broker how long
// the last attempt took, until when it is avoided, and whether it can be
// reached. Safe for concurrent use; no method blocks. Whoever calls it says
// what time it is. Java: LatencyFaultToleranceImpl with MQFaultStrategy.
type Tracker struct {
	cfg   Config
	table atomic.Pointer[map[string]*record] // never written again: changes copy it
	calm  atomic.Pointer[time.Time]          // from then on nobody is isolated; nil = nobody ever was
	turn  atomic.Uint32                      // of PickAtLeastOne

	mu sync.Mutex // serialises changes of table, and guards record.check; a leaf
}

// record is what is known of one broker.
type record struct {
	broker      string
	latency     atomic.Int64
	unreachable atomic.Bool
	isolated    atomic.Pointer[window] // nil = never
	check       time.Time              // not due before; guarded by Tracker.mu
}

// window is one isolation. It is never written again.
type window struct{ since, until time.Time }

// Item is a row of the table.
type Item struct {
	Broker        string
	Latency       time.Duration // of the last attempt, also of one that failed
	AvailableFrom time.Time     // the broker is avoided before; zero = it never was
	Reachable     bool          // false: used only when nothing else is left
}

// NewTracker returns a Tracker with an empty table. cfg is copied; of one that
// Validate refuses it uses what can be used.
func NewTracker(cfg Config) *Tracker {
	t := &Tracker{cfg: cfg.withDefaults()}
	t.table.Store(new(map[string]*record))
	return t
}

// Report notes how an attempt to send to broker went. latency is how long it
// took; isolate says that it failed, and isolates the broker for as long as
// Config.IsolationLatency does, whatever latency is; reachable whether the
// broker can be reached. It is ignored unless Config.Enabled.
// Java: MQFaultStrategy.updateFaultItem.
func (t *Tracker) Report(broker string, latency time.Duration, isolate, reachable bool, now time.Time) {
	t.Observe(broker, latency, isolate, reachable, now)
}

// Observe is Report, and tells whether it began an isolation, which is over at
// until; one that it only made longer is none. Of concurrent reports one begins
// it.
func (t *Tracker) Observe(broker string, latency time.Duration, isolate, reachable bool, now time.Time) (until time.Time, began bool) {
	if !t.cfg.Enabled {
		return time.Time{}, false
	}
	r := t.record(broker)
	r.latency.Store(int64(latency))
	if r.unreachable.Load() == reachable { // most reports change nothing
		r.unreachable.Store(!reachable)
	}
	if isolate {
		latency = t.cfg.IsolationLatency
	}
	d := t.cfg.isolation(latency)
	if d == 0 {
		return time.Time{}, false
	}
	until = now.Add(d)
	t.busyUntil(until)
	w := &window{since: now, until: until}
	for {
		old := r.isolated.Load()
		if old != nil && !until.After(old.until) {
			return time.Time{}, false
		}
		if r.isolated.CompareAndSwap(old, w) {
			return until, old == nil || !now.Before(old.until)
		}
	}
}

// busyUntil notes that somebody is isolated until then.
func (t *Tracker) busyUntil(until time.Time) {
	for {
		old := t.calm.Load()
		if old != nil && !until.After(*old) || t.calm.CompareAndSwap(old, &until) {
			return
		}
	}
}

// record returns the broker's row, made if there is none.
func (t *Tracker) record(broker string) *record {
	if r := (*t.table.Load())[broker]; r != nil {
		return r
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	table := *t.table.Load()
	if r := table[broker]; r != nil {
		return r
	}
	next := make(map[string]*record, len(table)+1)
	maps.Copy(next, table)
	r := &record{broker: broker}
	next[broker] = r
	t.table.Store(&next)
	return r
}

// SetReachable notes whether broker can be reached; how long it is isolated
// does not change. It is ignored unless Config.Enabled.
func (t *Tracker) SetReachable(broker string, reachable bool) {
	if t.cfg.Enabled {
		t.record(broker).unreachable.Store(!reachable)
	}
}

// Remove forgets broker: it is available and reachable, as one of which nothing
// was ever reported.
func (t *Tracker) Remove(broker string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := *t.table.Load()
	if table[broker] == nil {
		return
	}
	next := maps.Clone(table)
	delete(next, broker)
	t.table.Store(&next)
}

// Available tells whether broker is not isolated at now. The limit of
// Config.MaxIsolated is no matter: that takes a route.
func (t *Tracker) Available(broker string, now time.Time) bool {
	return (*t.table.Load())[broker].available(now)
}

// Reachable tells whether broker can be reached, as far as is known.
func (t *Tracker) Reachable(broker string) bool {
	return (*t.table.Load())[broker].reachable()
}

// available and reachable of no record: nothing is known against the broker.
func (r *record) available(now time.Time) bool {
	if r == nil {
		return true
	}
	w := r.isolated.Load()
	return w == nil || !now.Before(w.until)
}

func (r *record) reachable() bool { return r == nil || !r.unreachable.Load() }

// PickAtLeastOne returns a broker of the table that can be reached, isolated or
// not; false when there is none. Calls go round all of them, in the order of
// who is best at now: those that are available, of these the fastest.
//
// Java: LatencyFaultToleranceImpl.pickOneAtLeast. Differs: there it is any of
// them, at random.
func (t *Tracker) PickAtLeastOne(now time.Time) (string, bool) {
	items := slices.DeleteFunc(t.Items(), func(i Item) bool { return !i.Reachable })
	if len(items) == 0 {
		return "", false
	}
	slices.SortStableFunc(items, func(a, b Item) int { return a.compare(b, now) })
	return items[int(t.turn.Add(1)-1)%len(items)].Broker, true
}

// compare orders items by who is better at now: available ones first, then by
// latency, then those that are available sooner.
// Java: LatencyFaultToleranceImpl.FaultItem.compareTo.
func (i Item) compare(o Item, now time.Time) int {
	if a, b := now.Before(i.AvailableFrom), now.Before(o.AvailableFrom); a != b {
		if b {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(i.Latency, o.Latency), i.AvailableFrom.Compare(o.AvailableFrom))
}

// Items returns the table, sorted by broker. It is the caller's.
func (t *Tracker) Items() []Item {
	table := *t.table.Load()
	items := make([]Item, 0, len(table))
	for _, r := range table {
		item := Item{Broker: r.broker, Latency: time.Duration(r.latency.Load()), Reachable: r.reachable()}
		if w := r.isolated.Load(); w != nil {
			item.AvailableFrom = w.until
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Broker, b.Broker) })
	return items
}

// Due returns the brokers whose reachability is to be checked at now, sorted:
// all of the table, but none again before 2 s have passed. Whoever asks then
// says what came out with SetReachable, or Remove for a broker that is gone.
// Java: LatencyFaultToleranceImpl.detectByOneRound.
func (t *Tracker) Due(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []string
	for _, r := range *t.table.Load() {
		if !now.Before(r.check) {
			r.check = now.Add(detectInterval)
			due = append(due, r.broker)
		}
	}
	slices.Sort(due)
	return due
}
