package ha

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultHeartbeat is how long a side writes nothing at most (Java:
	// haSendHeartbeatInterval).
	DefaultHeartbeat = 5 * time.Second
	// DefaultHousekeeping is how long nothing comes before a connection is closed
	// (Java: haHousekeepingInterval).
	DefaultHousekeeping = 20 * time.Second
	// DefaultTransferBytes is what is sent at a time (Java: haTransferBatchSize).
	DefaultTransferBytes = 32 << 10
	// DefaultMaxFrameBytes bounds a frame, and with it a record.
	DefaultMaxFrameBytes = 64 << 20
	// DefaultConfirmDelay is how late a slave without new records learns what is
	// confirmed.
	DefaultConfirmDelay = 10 * time.Millisecond

	// maxConns is how many connections a master has at a time: hellos are read before
	// it is known who speaks.
	maxConns = 256
)

// SlavesConfig is what a master tells of itself. Zero values are the defaults.
type SlavesConfig struct {
	Cluster, Group string // slaves of others are refused; up to 255 bytes each
	// InSync is the beginning of the in-sync set; its ID and Epoch are the master's, and
	// its End is where the log ends: Written is told of all that comes after.
	InSync InSyncConfig
	Log    MasterLog
	// SyncFlush: what the master itself has counts as Durable tells it, not as Written
	// does.
	SyncFlush bool

	Heartbeat     time.Duration // DefaultHeartbeat; Java: haSendHeartbeatInterval
	Housekeeping  time.Duration // DefaultHousekeeping; Java: haHousekeepingInterval
	ConfirmDelay  time.Duration // DefaultConfirmDelay
	TransferBytes int           // DefaultTransferBytes; Java: haTransferBatchSize
	MaxFrameBytes int           // DefaultMaxFrameBytes

	// OnEvent, when not nil, is told what happens, by the goroutine of a connection
	// and without any lock. It delays that connection only, and must not wait for the
	// end of Serve.
	OnEvent func(Event)
	// OnConfirmed, when not nil, is told what is confirmed, as it grows: not each
	// value, but the last one always. It is called by one goroutine and may block.
	OnConfirmed func(position int64)
	// OnAsk, when not nil, is given each change of the set that the controller is to
	// be asked for, once; see Asked. It is called by one goroutine and must not block
	// for long.
	OnAsk func(Change)
}

func (c *SlavesConfig) withDefaults() {
	c.Heartbeat = defaultTo(c.Heartbeat, DefaultHeartbeat)
	c.Housekeeping = defaultTo(c.Housekeeping, DefaultHousekeeping)
	c.ConfirmDelay = defaultTo(c.ConfirmDelay, DefaultConfirmDelay)
	c.TransferBytes = defaultTo(c.TransferBytes, DefaultTransferBytes)
	c.MaxFrameBytes = defaultTo(c.MaxFrameBytes, DefaultMaxFrameBytes)
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
}

func defaultTo[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func (c *SlavesConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("ha: "+format, args...))
		}
	}
	check(len(c.Cluster) <= maxNameBytes && len(c.Group) <= maxNameBytes, "Cluster and Group have up to %d bytes, not %d and %d", maxNameBytes, len(c.Cluster), len(c.Group))
	check(c.InSync.ID >= 0, "a replica's id is 0 or more, not %d", c.InSync.ID)
	check(c.InSync.Epoch >= 0, "an epoch is 0 or more, not %d", c.InSync.Epoch)
	check(c.Log != nil, "Log is missing")
	check(c.Heartbeat > 0 && c.ConfirmDelay > 0, "Heartbeat and ConfirmDelay are longer than nothing, not %v and %v", c.Heartbeat, c.ConfirmDelay)
	check(c.Housekeeping > c.Heartbeat, "Housekeeping (%v) is longer than Heartbeat (%v)", c.Housekeeping, c.Heartbeat)
	check(c.TransferBytes > 0, "TransferBytes is more than nothing, not %d", c.TransferBytes)
	check(c.MaxFrameBytes >= c.TransferBytes, "MaxFrameBytes (%d) is no less than TransferBytes (%d)", c.MaxFrameBytes, c.TransferBytes)
	return errors.Join(errs...)
}

// Slaves is a master's side of replication for one epoch: it sends its log to all
// slaves that connect, and knows what they have. Its end is the end of Serve. Safe for
// concurrent use. Java: HAService, HAConnection.
type Slaves struct {
	cfg SlavesConfig
	id  int64

	end       atomic.Int64              // of the log, up to which records are sent; written under mu
	confirmed atomic.Int64              // written under mu
	senders   atomic.Pointer[[]*sender] // replaced under mu, never changed
	look      chan struct{}             // capacity 1: something new for the loop of the set
	tell      chan struct{}             // capacity 1: something new for OnConfirmed

	mu      sync.Mutex // guards what follows
	core    *InSync
	waiters waiters
	asked   Change    // given to OnAsk last
	ask     bool      // asked is still what is asked
	lookAt  time.Time // when the loop looks again; zero: never
	conns   int
	closed  bool
}

// NewSlaves checks a config and starts nothing: connections are taken by Serve.
func NewSlaves(cfg SlavesConfig) (*Slaves, error) {
	cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Slaves{
		cfg: cfg, id: cfg.InSync.ID, core: NewInSync(time.Now(), cfg.InSync),
		look: make(chan struct{}, 1), tell: make(chan struct{}, 1),
	}
	s.end.Store(s.core.End())
	s.confirmed.Store(s.core.Confirmed())
	s.senders.Store(&[]*sender{})
	return s, nil
}

// Serve takes the connections of slaves until ctx ends, or the listener fails, which it
// returns. It closes the listener, and returns when all connections have ended and
// nobody waits any more: whoever waits, or would, gets [ErrStopped]. Slaves are told of
// the end, which may take a second, unless ctx ends with a cause of its own: then their
// connections break off, as in a crash.
func (s *Slaves) Serve(ctx context.Context, l net.Listener) error {
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	closeListener := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept returns its error
	defer closeListener()
	all.Go(func() { s.watch(ctx) })
	all.Go(func() { s.tellConfirmed(ctx) })
	err := s.accept(ctx, l, &all)
	cancel()
	_ = l.Close() // it has failed, or is closed already
	s.close()
	all.Wait()
	if asked.Err() != nil {
		return nil
	}
	return err
}

func (s *Slaves) accept(ctx context.Context, l net.Listener, all *sync.WaitGroup) error {
	pause := time.Duration(0)
	for {
		conn, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = 0
			if !s.admit() {
				_ = conn.Close() // nothing was said on it
				continue
			}
			all.Go(func() { s.serve(ctx, conn) })
		case ctx.Err() != nil:
			return net.ErrClosed
		case errors.As(err, &passing) && passing.Temporary(): // too many open files
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			if !sleep(ctx, pause) {
				return net.ErrClosed
			}
		default:
			return fmt.Errorf("ha: accepting slaves at %v: %w", l.Addr(), err)
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (s *Slaves) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == maxConns || s.closed {
		return false
	}
	s.conns++
	return true
}

// close ends all waiting.
func (s *Slaves) close() {
	s.mu.Lock()
	s.closed = true
	rest := s.waiters
	s.waiters = nil
	s.mu.Unlock()
	for _, w := range rest {
		w.done <- fmt.Errorf("ha: waiting for %d to be acknowledged: %w", w.position, ErrStopped)
	}
}

// Written tells that the log has been written up to a position: it can be read, and is
// sent from now on. To be called after each write, in order; it does not block. It fits
// the store's Config.Written.
func (s *Slaves) Written(position int64) {
	now := time.Now()
	s.mu.Lock()
	s.core.Appended(now, position)
	if !s.cfg.SyncFlush {
		s.core.Durable(now, position)
	}
	s.end.Store(max(s.end.Load(), position))
	n := s.reviewLocked()
	s.mu.Unlock()
	s.notify(n)
	for _, p := range *s.senders.Load() {
		p.wakeUp(&p.idle)
	}
}

// Durable tells that the master itself has the log up to a position on its disk. It
// counts with SyncFlush, and does not block.
func (s *Slaves) Durable(position int64) {
	if !s.cfg.SyncFlush {
		return
	}
	now := time.Now()
	s.mu.Lock()
	s.core.Durable(now, position)
	n := s.reviewLocked()
	s.mu.Unlock()
	s.notify(n)
}

// MayAppend tells before an append whether enough replicas follow to answer it. Errors:
// [ErrTooFewReplicas], [ErrStopped].
func (s *Slaves) MayAppend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStopped
	}
	return s.core.MayAppend()
}

// Wait returns nil when an append up to a position may be answered with success.
// Otherwise the record may survive or not: [ErrNotAcknowledged] or
// [ErrTooFewReplicas] when ctx ends before, with its cause; [ErrStopped]. Java:
// GroupTransferService.
func (s *Slaves) Wait(ctx context.Context, position int64) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrStopped
	}
	if position <= s.core.Answerable() {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{position: position, done: make(chan error, 1)} // one answer
	heap.Push(&s.waiters, w)
	s.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	if w.index < 0 || s.closed { // it was answered meanwhile
		s.mu.Unlock()
		return <-w.done
	}
	heap.Remove(&s.waiters, w.index)
	err := s.core.Answer(position)
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return nil
}

// Confirmed is the position up to which every replica of the in-sync set has the log.
func (s *Slaves) Confirmed() int64 { return s.confirmed.Load() }

// Asked is the change of the set that the controller is to be asked for, until its
// answer was given to Stored.
func (s *Slaves) Asked() (Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Asked()
}

// Stored takes in the set that the controller has stored, and its version, as any of
// its answers tells them.
func (s *Slaves) Stored(set []Member, setEpoch int64) {
	s.change(func(now time.Time) { s.core.Stored(now, set, setEpoch) })
}

// Refused takes in that the controller has refused the change with this base.
func (s *Slaves) Refused(base int64) {
	s.change(func(time.Time) { s.core.Refused(base) })
}

// change does something to the core and looks at what comes of it.
func (s *Slaves) change(do func(now time.Time)) {
	now := time.Now()
	s.mu.Lock()
	do(now)
	n := s.reviewLocked()
	s.mu.Unlock()
	s.notify(n)
}

// notice is whom to wake when the mutex is free again.
type notice struct {
	answered        []*waiter
	confirmed, look bool
}

// reviewLocked looks at what has become of the core. It holds mu.
func (s *Slaves) reviewLocked() notice {
	var n notice
	if c := s.core.Confirmed(); c > s.confirmed.Load() {
		s.confirmed.Store(c)
		n.confirmed = true
	}
	if len(s.waiters) > 0 {
		for may := s.core.Answerable(); len(s.waiters) > 0 && s.waiters[0].position <= may; {
			n.answered = append(n.answered, heap.Pop(&s.waiters).(*waiter))
		}
	}
	if at := s.core.Deadline(); !at.IsZero() && (s.lookAt.IsZero() || at.Before(s.lookAt)) {
		s.lookAt, n.look = at, true
	}
	if change, ok := s.core.Asked(); ok != s.ask || ok && !change.same(s.asked) {
		n.look = true
	}
	return n
}

func (c Change) same(as Change) bool {
	if c.Base != as.Base || len(c.Set) != len(as.Set) {
		return false
	}
	for i := range c.Set {
		if c.Set[i] != as.Set[i] {
			return false
		}
	}
	return true
}

func (s *Slaves) notify(n notice) {
	for _, w := range n.answered {
		w.done <- nil
	}
	if n.look {
		signal(s.look)
	}
	if n.confirmed {
		if s.cfg.OnConfirmed != nil {
			signal(s.tell)
		}
		for _, p := range *s.senders.Load() {
			p.wakeUp(&p.wants)
		}
	}
}

// signal fills a channel of capacity 1.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one signal says it all
	}
}

// watch looks after the set: at the time, and at what is to be asked for.
func (s *Slaves) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		s.mu.Lock()
		if at := s.core.Deadline(); !at.IsZero() && !now.Before(at) {
			s.core.Tick(now)
		}
		s.lookAt = time.Time{}
		n := s.reviewLocked()
		change, ok := s.core.Asked()
		fresh := ok && !(s.ask && change.same(s.asked))
		s.asked, s.ask = change, ok
		at := s.lookAt
		s.mu.Unlock()
		n.look = false
		s.notify(n)
		if fresh && s.cfg.OnAsk != nil {
			s.cfg.OnAsk(change)
		}
		var due <-chan time.Time
		if !at.IsZero() {
			timer.Reset(max(time.Until(at), time.Millisecond))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-s.look:
		case <-due:
		}
	}
}

func (s *Slaves) tellConfirmed(ctx context.Context) {
	if s.cfg.OnConfirmed == nil {
		return
	}
	for told := int64(0); ; {
		if c := s.confirmed.Load(); c > told {
			s.cfg.OnConfirmed(c)
			told = c
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.tell:
		}
	}
}

// waiter waits for a position to be answerable.
type waiter struct {
	position int64
	done     chan error // capacity 1: its one answer
	index    int        // in the heap; -1: it is out of it
}

// waiters is a heap by position.
type waiters []*waiter

func (h waiters) Len() int           { return len(h) }
func (h waiters) Less(i, j int) bool { return h[i].position < h[j].position }
func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *waiters) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h, w.index = old[:len(old)-1], -1
	return w
}
