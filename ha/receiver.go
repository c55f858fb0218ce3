package ha

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// DefaultRedial is the longest time between two attempts to reach the master.
const DefaultRedial = 5 * time.Second

// firstRedial is the shortest; it doubles with each attempt that fails.
const firstRedial = 100 * time.Millisecond

// ReceiverConfig is what a slave tells of itself. Zero values are the defaults.
type ReceiverConfig struct {
	Cluster, Group  string // as the master's; up to 255 bytes each
	ID, Incarnation int64  // of this replica
	Log             SlaveLog
	Promises        Promises
	// Dial connects to the master, wherever it is now. Its ctx ends when Dial has
	// returned, or after Redial.
	Dial func(ctx context.Context) (net.Conn, error)
	// FromLastFile: an empty log begins with the master's last file, not with the
	// oldest one (Java: isSyncFromLastFile).
	FromLastFile bool
	// KeepOld: a log that is too far behind is kept as it is, and the slave refuses to
	// follow, instead of beginning anew where the master's log begins.
	KeepOld bool
	// LossEpoch is the epoch of the last election by which an operator gave up what the
	// elected did not have, as the group's controller says; 0: there was none. What is
	// older may be cut off although it was confirmed, see [GivenUp].
	LossEpoch int64

	Heartbeat     time.Duration // DefaultHeartbeat; Java: haSendHeartbeatInterval
	Housekeeping  time.Duration // DefaultHousekeeping; Java: haHousekeepingInterval
	Redial        time.Duration // DefaultRedial: the longest time between two attempts, and for one
	MaxFrameBytes int           // DefaultMaxFrameBytes

	// OnEvent, when not nil, is told what happens, by the goroutine of Run and without
	// any lock; it delays it, and must not wait for its end.
	OnEvent func(Event)
}

func (c *ReceiverConfig) withDefaults() {
	c.Heartbeat = defaultTo(c.Heartbeat, DefaultHeartbeat)
	c.Housekeeping = defaultTo(c.Housekeeping, DefaultHousekeeping)
	c.Redial = defaultTo(c.Redial, DefaultRedial)
	c.MaxFrameBytes = defaultTo(c.MaxFrameBytes, DefaultMaxFrameBytes)
	if c.OnEvent == nil {
		c.OnEvent = func(Event) {}
	}
}

func (c *ReceiverConfig) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("ha: "+format, args...))
		}
	}
	check(len(c.Cluster) <= maxNameBytes && len(c.Group) <= maxNameBytes, "Cluster and Group have up to %d bytes, not %d and %d", maxNameBytes, len(c.Cluster), len(c.Group))
	check(c.ID >= 0, "a replica's id is 0 or more, not %d", c.ID)
	check(c.Log != nil && c.Promises != nil && c.Dial != nil, "Log, Promises or Dial is missing")
	check(c.Heartbeat > 0 && c.Redial > 0, "Heartbeat and Redial are longer than nothing, not %v and %v", c.Heartbeat, c.Redial)
	check(c.Housekeeping > c.Heartbeat, "Housekeeping (%v) is longer than Heartbeat (%v)", c.Housekeeping, c.Heartbeat)
	check(c.MaxFrameBytes > 0, "MaxFrameBytes is more than nothing, not %d", c.MaxFrameBytes)
	return errors.Join(errs...)
}

// Receiver is a slave's side of replication: it follows its master, whoever that is,
// and whenever it can be reached. Safe for concurrent use. Java: HAClient.
type Receiver struct {
	guards
	cfg   ReceiverConfig
	rate  rate
	hurry chan struct{} // capacity 1: the master may be reached now

	mu     sync.Mutex // guards what follows
	status ReceiverStatus
}

// ReceiverStatus is how far a slave is.
type ReceiverStatus struct {
	Connected bool
	Addr      string    // of the master, or of the last one there was
	MasterID  int64     // -1 before the first connection
	Epoch     int64     // of the master
	Since     time.Time // of the connection, or of its end
	Position  int64     // end of the log
	MasterEnd int64     // of the master's log, as it last said
	Confirmed int64     // as the master last said, at most Position
	// BytesPerSecond came in the last second or two.
	BytesPerSecond float64
	Err            error // why it does not follow
}

// NewReceiver checks a config and starts nothing: Run follows.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Receiver{cfg: cfg, hurry: make(chan struct{}, 1)}
	r.status.MasterID = -1
	return r, nil
}

// Status is how far the slave is.
func (r *Receiver) Status() ReceiverStatus {
	_, end := r.cfg.Log.Bounds()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Position = end
	s.Confirmed = min(s.Confirmed, end)
	s.BytesPerSecond = r.rate.perSecond(time.Now())
	return s
}

// Run follows the master until ctx ends, and returns when the log is not used any more.
// It dials again whatever went wrong, at longer and longer intervals: what it was
// refused for may be repaired on the other side. The master is told of the end, unless
// ctx ends with a cause of its own: then the connection breaks off, as in a crash.
func (r *Receiver) Run(ctx context.Context) {
	pause := time.Duration(0)
	said := ""
	for ctx.Err() == nil {
		begun := time.Now()
		followed, addr, err := r.connect(ctx)
		if followed {
			said = ""
		}
		if followed && time.Since(begun) >= r.cfg.Redial {
			pause = 0
		}
		pause = min(max(2*pause, min(firstRedial, r.cfg.Redial)), r.cfg.Redial)
		if ctx.Err() != nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			r.cfg.OnEvent(MasterDisconnected{Addr: addr, Err: err, Retry: pause})
		}
		if r.pause(ctx, pause) {
			pause = 0
		}
	}
}

// pause waits before the next attempt. It is true when there is a reason to hurry.
func (r *Receiver) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.hurry:
		return true
	}
	return false
}

// Hurry makes a slave that does not follow try at once: there is a reason to believe that
// its master can be reached. It does not block.
func (r *Receiver) Hurry() {
	r.mu.Lock()
	following := r.status.Connected
	r.mu.Unlock()
	if following {
		return
	}
	select {
	case r.hurry <- struct{}{}:
	default:
	}
}

// connect follows on one connection to its end, which is always an error.
func (r *Receiver) connect(ctx context.Context) (followed bool, addr string, err error) {
	dialling, cancel := context.WithTimeout(ctx, r.cfg.Redial)
	conn, err := r.cfg.Dial(dialling)
	cancel()
	if err != nil {
		err = fmt.Errorf("ha: the master cannot be reached: %w", err)
		r.lost(err)
		return false, "", err
	}
	w := newWire(conn, readBytes, r.cfg.Housekeeping, func(k frameKind) int {
		switch k {
		case kindMasterHello:
			return maxHelloBytes
		case kindGoodbye:
			return maxGoodbyeBytes
		}
		return 0
	})
	detach := context.AfterFunc(ctx, func() { w.stop(endOf(ctx)) })
	f := &follower{r: r, wire: w}
	err = f.run(ctx)
	detach()
	if ctx.Err() != nil {
		err = endOf(ctx) // whatever found it first: the log, or the connection
	}
	r.lost(err)
	w.close(err)
	return f.followed, w.peer(), err
}

// lost notes that, and why, the slave does not follow.
func (r *Receiver) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.Connected {
		r.status.Connected, r.status.Since = false, time.Now()
	}
	r.status.Err = err
}

// follower is the slave's side of one connection. One goroutine does it all: while it
// writes to the log, what comes next waits in the buffers of the connection, and is
// written at once afterwards.
type follower struct {
	r        *Receiver
	wire     *wire
	master   *masterHello
	first    int64 // of the own log
	end      int64 // of the own log
	known    int64 // confirmed, as told to the log
	followed bool
	records  [][]byte
	out      []byte
}

func (f *follower) run(ctx context.Context) error {
	mine, err := f.greet()
	if err != nil {
		return err
	}
	if err := f.agree(ctx, mine); err != nil {
		return err
	}
	f.wire.limit = func(k frameKind) int {
		switch k {
		case kindData:
			return f.r.cfg.MaxFrameBytes
		case kindGoodbye:
			return maxGoodbyeBytes
		}
		return 0
	}
	if err := f.ack(); err != nil {
		return err
	}
	f.followed = true
	r := f.r
	r.mu.Lock()
	r.status.Connected, r.status.Addr, r.status.MasterID, r.status.Epoch = true, f.wire.peer(), f.master.id, f.master.epoch
	r.status.Since, r.status.MasterEnd, r.status.Confirmed, r.status.Err = time.Now(), f.master.end, f.master.confirmed, nil
	r.mu.Unlock()
	r.cfg.OnEvent(MasterConnected{ID: f.master.id, Addr: f.wire.peer(), Epoch: f.master.epoch, Position: f.end})
	for {
		if err := f.receive(ctx); err != nil {
			return err
		}
	}
}

// next is the next frame of a kind; a goodbye is an error.
func (f *follower) next(want frameKind, until time.Time) ([]byte, error) {
	kind, body, err := f.wire.next(until)
	switch {
	case err != nil:
		return nil, err
	case kind == want:
		return body, nil
	case kind != kindGoodbye:
		return nil, fmt.Errorf("ha: from %s: %w: a %v is due, it is a %v", f.wire.peer(), ErrBadFrame, want, kind)
	}
	g, err := parseGoodbye(body)
	if err == nil {
		err = refusedBy(f.wire.peer(), g)
	}
	return nil, err
}

// greet says who this is, and reads what the master says.
func (f *follower) greet() (mine *slaveHello, err error) {
	cfg := &f.r.cfg
	mine = &slaveHello{
		cluster: cfg.Cluster, group: cfg.Group, id: cfg.ID, incarnation: cfg.Incarnation,
		highest: cfg.Promises.Highest(), fromLast: cfg.FromLastFile,
	}
	// Older files may be deleted at any time: the epochs tell where the log begins.
	mine.epochs = cfg.Log.Epochs()
	mine.first, mine.end = cfg.Log.Bounds()
	if len(mine.epochs) > 0 {
		mine.first = mine.epochs[0].First
	}
	if err := f.wire.write(appendSlaveHello(nil, mine), cfg.Housekeeping); err != nil {
		return nil, err
	}
	body, err := f.next(kindMasterHello, time.Time{})
	if err != nil {
		return nil, err
	}
	f.master, err = parseMasterHello(body)
	return mine, err
}

// agree makes the log a part of the master's. It relies on nothing but the epochs that
// the master has named.
func (f *follower) agree(ctx context.Context, mine *slaveHello) error {
	cfg, m := &f.r.cfg, f.master
	if m.id == cfg.ID || m.id < 0 {
		return fmt.Errorf("ha: the master at %s has the id %d, this slave %d; each replica has one of its own, 0 or more: %w", f.wire.peer(), m.id, cfg.ID, ErrWrongGroup)
	}
	if m.epoch < cfg.Promises.Highest() {
		return f.oldEpoch()
	}
	if len(m.epochs) > 0 && m.epochs[len(m.epochs)-1].Number > m.epoch {
		return fmt.Errorf("ha: master of epoch %d: %w: its log has epoch %d", m.epoch, ErrBadEpochs, m.epochs[len(m.epochs)-1].Number)
	}
	keep, parted := Diverge(m.epochs, m.first, m.end, mine.epochs, mine.end)
	confirmed := cfg.Log.Confirmed()
	givenUp := GivenUp(mine.epochs, confirmed, cfg.LossEpoch, m.epoch)
	switch {
	case errors.Is(parted, ErrTooFarBehind) && !cfg.KeepOld && m.begin > mine.first && (confirmed < m.begin || givenUp):
		keep = 0
	case parted != nil:
		return parted
	case keep != m.keep || keep == 0 && m.begin == 0 && (mine.end > 0 || mine.first > 1) || keep > 0 && m.begin > 0:
		return fmt.Errorf("ha: the master at %s lets this log end at %d and begin at %d, by its epochs it ends at %d: %w", f.wire.peer(), m.keep, m.begin, keep, ErrBadEpochs)
	}
	if keep > 0 {
		common, err := f.compare(keep)
		if err != nil {
			return err
		}
		if common < keep && (m.epoch > 0 || common < mine.first) {
			return fmt.Errorf("ha: by their epochs the logs of this slave (%s) and of the master at %s (%s) agree up to %d, but their records there differ; if one of them is of another group, or was salvaged, clear it: %w",
				epochsText(mine.epochs), f.wire.peer(), epochsText(m.epochs), keep, ErrDiverged)
		}
		keep = common
	}
	lost := int64(0)
	if parted == nil && (keep < confirmed && keep > 0 || keep == 0 && confirmed >= max(mine.first, 1)) {
		lost = confirmed - keep
	}
	if lost > 0 && !givenUp {
		return fmt.Errorf("ha: the log of the master at %s, of epoch %d, has records up to %d in common with this one, whose first %d are confirmed; find out which of the replicas has them, and make it master: %w", f.wire.peer(), m.epoch, keep, confirmed, ErrConfirmedMissing)
	}
	// Before the first ack under it. From here on no other master is followed.
	if m.epoch > cfg.Promises.Highest() {
		if err := cfg.Promises.Promise(ctx, m.epoch); err != nil {
			return fmt.Errorf("ha: promising epoch %d: %w", m.epoch, err)
		}
	}
	f.first, f.end, f.known = mine.first, mine.end, confirmed
	switch {
	case keep == 0 && m.begin > 0:
		return f.beginAnew(ctx, mine, parted)
	case keep < mine.end || begunInVain(mine.epochs, m.epochs, keep):
		if err := cfg.Log.Cut(ctx, keep); err != nil {
			return fmt.Errorf("ha: cutting the log behind %d: %w", keep, err)
		}
		f.end = keep
		if keep < mine.end {
			cfg.OnEvent(Truncated{From: mine.end, To: keep, Epoch: m.epoch, Confirmed: lost})
		}
	}
	return f.checkEnd()
}

// begunInVain tells whether a log that ends at a position has begun an epoch behind it
// that its master does not have: it was elected, and then another one was. What follows
// may be of an older epoch.
func begunInVain(mine, masters []Epoch, end int64) bool {
	for _, e := range mine {
		if e.First > end && !slices.Contains(masters, e) {
			return true
		}
	}
	return false
}

// compare is the last position up to keep at which the records of both logs are known to
// be the same; 0: they differ everywhere; keep itself when the master told of none.
func (f *follower) compare(keep int64) (int64, error) {
	common := keep
	for _, s := range f.master.sums {
		if s.position > common || s.position < 1 {
			return 0, fmt.Errorf("ha: from %s: %w: the sum of a record at %d, after %d", f.wire.peer(), ErrBadFrame, s.position, common)
		}
		sum, ok, err := sumOf(f.r.cfg.Log, s.position)
		if err != nil {
			return 0, err
		}
		if !ok || sum == s.sum {
			return s.position, nil
		}
		common = s.position - 1
	}
	if common < keep {
		return 0, nil
	}
	return keep, nil
}

// beginAnew drops the log and makes it begin where the master says.
func (f *follower) beginAnew(ctx context.Context, mine *slaveHello, parted error) error {
	cfg, m := &f.r.cfg, f.master
	f.wire.limit = func(k frameKind) int {
		switch k {
		case kindState:
			return cfg.MaxFrameBytes
		case kindGoodbye:
			return maxGoodbyeBytes
		}
		return 0
	}
	state, err := f.next(kindState, time.Time{})
	if err != nil {
		return err
	}
	if err := cfg.Log.Begin(ctx, m.begin, state); err != nil {
		return fmt.Errorf("ha: beginning the log at %d: %w", m.begin, err)
	}
	f.first, f.end, f.known = m.begin, m.begin-1, 0
	cfg.OnEvent(Restarted{From: mine.end, Position: m.begin, Epoch: m.epoch, Err: parted})
	return f.checkEnd()
}

// checkEnd finds out whether the log ends where it was made to.
func (f *follower) checkEnd() error {
	if _, end := f.r.cfg.Log.Bounds(); end != f.end {
		return fmt.Errorf("ha: the log ends at %d, it was to end at %d", end, f.end)
	}
	return nil
}

// oldEpoch is the error of one who was promised away; nil: the master is followed.
func (f *follower) oldEpoch() error {
	if highest := f.r.cfg.Promises.Highest(); highest > f.master.epoch && !f.r.lacks(guardFence) {
		return fmt.Errorf("ha: the master at %s is of epoch %d, this replica has promised epoch %d: %w", f.wire.peer(), f.master.epoch, highest, ErrOldEpoch)
	}
	return nil
}

// ack tells what the log has. An epoch promised meanwhile was promised with less: who
// made the promise reads the end of the log after it.
func (f *follower) ack() error {
	if err := f.oldEpoch(); err != nil {
		return err
	}
	f.out = appendAck(f.out[:0], ackBody{position: f.end, epoch: f.master.epoch})
	// A master that has been silent is not waited for longer because it takes no acks.
	return f.wire.write(f.out, f.wire.silence-f.wire.quiet)
}

// receive takes in what there is, all at once, or says that it is alive.
func (f *follower) receive(ctx context.Context) error {
	r := f.r
	body, err := f.next(kindData, f.wire.lastWrite.Add(r.cfg.Heartbeat))
	if errors.Is(err, errIdle) {
		if cap(f.records) > 4096 {
			f.records = nil
		}
		return f.ack()
	}
	if err != nil {
		return err
	}
	var b Batch
	var head dataHead
	bytes := 0
	f.records = f.records[:0]
	for {
		had := len(f.records)
		if head, f.records, err = parseData(body, f.records); err == nil {
			err = f.check(head, f.end+1+int64(had))
		}
		if err != nil {
			return fmt.Errorf("ha: from %s: %w", f.wire.peer(), err)
		}
		bytes += headerBytes + len(body)
		if head.count > 0 && had > 0 && head.epoch != b.Epoch {
			// What came before is of another epoch, and is written first.
			b.Records = f.records[:had]
			if err := f.append(ctx, b); err != nil {
				return err
			}
			f.records = f.records[:copy(f.records, f.records[had:])]
			had = 0
		}
		if had == 0 {
			b = Batch{First: head.first, Epoch: head.epoch}
		}
		if !f.wire.ready(kindData) {
			break
		}
		if body, err = f.next(kindData, time.Time{}); err != nil {
			return err
		}
	}
	if b.Records = f.records; len(b.Records) > 0 {
		if err := f.append(ctx, b); err != nil {
			return err
		}
		if err := f.ack(); err != nil {
			return err
		}
	}
	r.rate.add(time.Now(), int64(bytes))
	r.mu.Lock()
	r.status.MasterEnd, r.status.Confirmed = head.end, max(r.status.Confirmed, head.confirmed)
	r.mu.Unlock()
	if up := min(head.confirmed, f.end); up > f.known {
		if err := r.cfg.Log.Confirm(up); err != nil {
			return fmt.Errorf("ha: confirming up to %d: %w", up, err)
		}
		f.known = up
	}
	return nil
}

// check refuses data that does not follow what came before, or is not of the epochs
// that the master has named.
func (f *follower) check(h dataHead, next int64) error {
	m := f.master
	if h.first != next {
		return fmt.Errorf("%w: the records go on at %d, this log at %d", ErrBadFrame, h.first, next)
	}
	if h.confirmed > h.end || h.end < m.end {
		return fmt.Errorf("%w: confirmed up to %d in a log that ends at %d, and at %d before", ErrBadFrame, h.confirmed, h.end, m.end)
	}
	m.end = h.end
	if h.count == 0 {
		if h.epoch != m.epoch {
			return fmt.Errorf("%w: a heartbeat of epoch %d from the master of epoch %d", ErrBadFrame, h.epoch, m.epoch)
		}
		return nil
	}
	last := h.first + int64(h.count) - 1
	for k, e := range m.epochs {
		if e.Number == h.epoch && h.first >= e.First && (k+1 == len(m.epochs) || last < m.epochs[k+1].First) {
			return nil
		}
	}
	return fmt.Errorf("%w: records %d..%d of epoch %d, the master's epochs are %s", ErrBadFrame, h.first, last, h.epoch, epochsText(m.epochs))
}

// append writes records to the log.
func (f *follower) append(ctx context.Context, b Batch) error {
	if err := f.oldEpoch(); err != nil {
		return err
	}
	if err := f.r.cfg.Log.Append(ctx, b); err != nil {
		return fmt.Errorf("ha: writing %d..%d to the log: %w", b.First, b.Last(), err)
	}
	f.end = b.Last()
	return nil
}
