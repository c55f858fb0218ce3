package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// Appending is a group commit. The problem: one write costs far more than the
// record in it, and one fsync a hundred times more, so those who arrive while
// one is under way should share the next.
//
//	Append:  lock: assign offsets and position
//	         nobody writes  -> lead: write the own batch at once
//	         somebody does  -> join the last pending group, or open one
//	         unlock; the opener of a group waits for its turn to lead it,
//	         the others for the group to be done
//	lead:    seal the entries, one WriteBatch, units into the queues,
//	         publish, pass the turn to the opener of the next group, wake
//	         everybody in the own group
//
// A lone appender never meets a channel or another goroutine. A leader serves
// its own group only, so nobody writes for others for ever. Positions are
// given out under the lock in the order of joining, and groups are led in the
// order of their opening, so the log is dense whatever the scheduler does.
//
// Rejected: one writer goroutine fed by a channel (a hand-off costs a lone
// appender more than the write), a done channel per appender (three
// allocations), syncing in the leader (the next group could not be written
// meanwhile, and an fsync that hangs would hang everybody).
const (
	// Nobody joins a group that has reached either limit. A batch that is
	// larger by itself still goes into one group, and one file.
	maxGroupBytes   = 1 << 20
	maxGroupEntries = 4096
	// maxGather bounds how often a leader lets others run so that they join;
	// gatherPatience, how often in vain. Once is not enough: an idle processor
	// may bring the leader back before anybody else has run.
	maxGather = 16
	// soonTurns bounds how often a waiting caller lets others run before it parks.
	soonTurns      = 64
	gatherPatience = 3
	// flushPatience bounds how long the leader of a group that waits for fsync
	// anyway leaves it open because the flusher is busy with the one before.
	flushPatience = 20 * time.Millisecond
	// maxReturn bounds how long it then waits for those whom that one released,
	// and maxSkip, for how many groups it does not after that was in vain.
	maxReturn = time.Millisecond
	maxSkip   = 63
)

// group is a number of batches that are written together.
type group struct {
	batches []*Batch
	bytes   int
	entries int
	callers int
	waiters int // callers that wait for the sync

	// done is closed when the group is written or has failed: made when the
	// first caller needs it. synced is closed when it is synced or has failed.
	done, synced chan struct{}
	// turn tells the opener that it is to lead. Capacity 1: the one before
	// does not wait for it. nil for a group without an opener.
	turn chan struct{}
	// hurry tells a leader that leaves the group open not to. Capacity 1: one
	// is enough. nil while it does not.
	hurry chan struct{}
	// Guarded by Store.mu: the turn has been given; the opener has left.
	given, orphan bool
	// awaited is how many callers there will be when all have come that are
	// known: those that were here when the lead was passed on, and those whom
	// the group before released then. Guarded by Store.mu.
	awaited int
	// expected is how many callers the leader leaves the group open for; 0
	// while it does not know. Guarded by Store.mu.
	expected int

	// act is done in place of writing batches: see Store.alone.
	act func() error

	err      error // of the write; set before done is closed
	flushErr error // of the sync; set before synced is closed
}

func (g *group) complete() bool { return g.expected > 0 && g.callers >= g.expected }

func (g *group) full() bool {
	return g.act != nil || g.bytes >= maxGroupBytes || g.entries >= maxGroupEntries
}

// AppendOptions are the choices of one append.
type AppendOptions struct {
	// NoWait acknowledges after the write even when the store has SyncFlush.
	// Java: Message.isWaitStoreMsgOK.
	NoWait bool
}

// Appended says where the first record of a batch lies. The others follow
// without a gap.
type Appended struct {
	QueueOffset int64 // 0 when the record takes no queue offset
	Position    int64
	StoreTime   time.Time // of all records of the batch; milliseconds, never before that of an earlier append
}

// Append writes a batch to the end of the log and of its queue, all of it or,
// after a crash, a prefix. It takes b, which must not be used again. When it
// returns nil the records can be read, and are synced if the store has
// SyncFlush and opt does not say NoWait.
//
// Errors: [ErrBadBatch] for an empty one; [ErrFenced], [ErrReadOnly], [ErrNoEpoch],
// [ErrClosed]; [ErrFlushTimeout]: the records are stored, Appended is valid, but
// they may not be synced yet; [ErrBehind]: they are not, since so much waits to be
// synced that for Config.FlushTimeout there was no room for more; the error of ctx.
// An append that was under way
// when it got the error of ctx, ErrFenced or ErrClosed may still be stored.
//
// It blocks for a write, and for an fsync as above. Safe for concurrent use;
// records of appends that do not overlap in time are in their order.
func (s *Store) Append(ctx context.Context, b *Batch, opt AppendOptions) (Appended, error) {
	if len(b.records) == 0 {
		b.recycle()
		return Appended{}, fmt.Errorf("store: append of a batch without records: %w", ErrBadBatch)
	}
	if err := ctx.Err(); err != nil {
		b.recycle()
		return Appended{}, err
	}
	return s.appendBatch(ctx, b, s.cfg.SyncFlush && !opt.NoWait && !s.cfg.Throwaway)
}

// appendBatch is Append; wait means until the batch is synced.
func (s *Store) appendBatch(ctx context.Context, b *Batch, wait bool) (Appended, error) {
	if s.brake.on.Load() {
		if err := s.awaitRoom(ctx); err != nil {
			b.recycle()
			return Appended{}, err
		}
	}
	millis := nowMillis()
	q := s.queues.get(QueueID{b.topic, int(b.queueID)})

	s.mu.Lock()
	if err := s.mu.refuse; err != nil {
		s.mu.Unlock()
		b.recycle()
		if errors.Is(err, ErrDiskFull) {
			s.wakeJanitor() // there may be space again
		}
		return Appended{}, err
	}
	result := s.assignLocked(b, q, millis)
	position := result.Position + int64(len(b.records)) - 1
	g, role := s.joinLocked(b, wait)
	hurry, now := g.hurry, !wait || g.full() || g.complete()
	s.mu.Unlock() // b is the leader's from here on
	if hurry != nil && now {
		select {
		case hurry <- struct{}{}:
		default:
		}
	}

	err := s.awaitWrite(ctx, g, role, wait)
	if wait && err == nil {
		err = s.awaitSync(ctx, g, position)
	}
	if err != nil && !errors.Is(err, ErrFlushTimeout) {
		return Appended{}, err
	}
	return result, err
}

// awaitWrite does what the role of an appender asks, until its group is written or
// ctx is done. A follower that waits for the sync of the group, too, needs not wait
// for the write.
func (s *Store) awaitWrite(ctx context.Context, g *group, r role, sync bool) error {
	switch r {
	case leader:
		return s.leadWhile(ctx, func(context.Context) error { return s.lead(g) })
	case gatherer:
		return s.leadWhile(ctx, func(ctx context.Context) error { return s.leadPending(ctx, g) })
	case opener:
		if err := await(ctx, g.turn); err != nil {
			if s.leave(g) {
				return err
			}
			<-g.turn // given already: the group waits for us
		}
		s.turns.Put(g.turn)
		return s.leadWhile(ctx, func(ctx context.Context) error { return s.leadPending(ctx, g) })
	}
	if sync {
		return nil
	}
	if err := await(ctx, g.done); err != nil {
		return err
	}
	return g.err
}

// leadWhile leads. A disk that a test has made bad may keep a write for long: then a
// caller that has to go does, and another goroutine leads in its place.
func (s *Store) leadWhile(ctx context.Context, lead func(context.Context) error) error {
	if s.cfg.Disk.load() == nil {
		return lead(ctx)
	}
	led := make(chan error, 1) // the caller may have left
	s.background.Go(func() { led <- lead(context.Background()) })
	select {
	case err := <-led:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await receives from c, or returns the error of ctx.
func await(ctx context.Context, c <-chan struct{}) error {
	if soon(c) {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// soon lets other goroutines run for a few turns, as long as c has nothing to
// receive. A write takes about as long as that, and a caller that does not park
// needs neither to be woken nor the Done of its context, which may be dear to
// make.
func soon(c <-chan struct{}) bool {
	for range soonTurns {
		select {
		case <-c:
			return true
		default:
			runtime.Gosched()
		}
	}
	return false
}

// assignLocked gives the batch its place in the log and in its queue; q is nil
// when that was not known before.
func (s *Store) assignLocked(b *Batch, q *queue, millis int64) Appended {
	s.mu.storeTime = max(s.mu.storeTime, millis)
	b.position, b.storeTime = s.mu.next, s.mu.storeTime
	s.mu.next += int64(len(b.records))
	if b.drop {
		s.dropLocked(b.topic, b.position)
		return Appended{Position: b.position, StoreTime: time.UnixMilli(b.storeTime)}
	}
	if q == nil || q.dropped {
		q = s.queues.ensure(b.topic, int(b.queueID))
	}
	b.queue, b.offset = q, q.next
	q.next += int64(len(b.records) - b.silent)
	result := Appended{QueueOffset: b.offset, Position: b.position, StoreTime: time.UnixMilli(b.storeTime)}
	if b.records[0].silent {
		result.QueueOffset = 0
	}
	return result
}

// role is what an appender has to do for its group.
type role int

const (
	follower role = iota // wait
	leader               // write: the group is its own batch
	gatherer             // let others join, then write
	opener               // wait for the turn, then as a gatherer
)

// joinLocked puts the batch into a group.
func (s *Store) joinLocked(b *Batch, wait bool) (*group, role) {
	var g *group
	var r role
	n := len(s.mu.pending)
	alone := s.mu.crowd <= 1
	switch {
	case !s.mu.writing && alone && !wait:
		g, r = &s.solo, leader
		*g = group{batches: g.batches[:0]}
	case !s.mu.writing && alone && s.flusher.busy.Load() == nil:
		g, r = &group{}, leader // the flusher will hold it
	case !s.mu.writing:
		g, r = &group{given: true, awaited: s.mu.crowd}, gatherer // which may be one of the crowd
		s.mu.pending = append(s.mu.pending, g)
	case n > 0 && !s.mu.pending[n-1].full():
		g, r = s.mu.pending[n-1], follower
	default:
		g, r = &group{turn: s.newTurn()}, opener
		s.mu.pending = append(s.mu.pending, g)
	}
	s.mu.writing = true
	g.batches = append(g.batches, b)
	g.bytes += b.bytes
	g.entries += len(b.records)
	g.callers++
	if wait {
		g.waiters++
		if g.synced == nil {
			g.synced = make(chan struct{})
		}
	} else if r == follower && g.done == nil {
		g.done = make(chan struct{})
	}
	return g, r
}

func (s *Store) newTurn() chan struct{} {
	if c, ok := s.turns.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

// leave gives up the role of an opener. It is false when the turn has been
// given already.
func (s *Store) leave(g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.orphan = !g.given
	return g.orphan
}

// leadPending leads the first pending group, which is g.
func (s *Store) leadPending(ctx context.Context, g *group) error {
	s.awaitFlusher(ctx, g)
	s.gather(g)
	s.mu.Lock()
	n := copy(s.mu.pending, s.mu.pending[1:])
	s.mu.pending[n] = nil
	s.mu.pending = s.mu.pending[:n]
	s.mu.Unlock()
	return s.lead(g)
}

// gather lets other goroutines run, as long as that makes more of them join and
// not all have come that are known to be about. Those whom the last group released
// would otherwise miss this one, and small groups would take turns. A leader that
// nobody was with before does not wait. Those who wait for fsync are not released
// by the write, so for them there is no telling how many will come.
func (s *Store) gather(g *group) {
	callers, idle := 0, 0
	for range maxGather {
		s.mu.Lock()
		now, enough := g.callers, s.mu.crowd <= 1 || g.full() || g.waiters == 0 && g.callers >= g.awaited
		s.mu.Unlock()
		if now == callers {
			idle++
		} else {
			callers, idle = now, 0
		}
		if enough || idle == gatherPatience {
			return
		}
		runtime.Gosched()
	}
}

// awaitFlusher leaves the group open, if all its callers wait for fsync, until
// the one under way is over and those whom it releases have come back: they
// lose nothing by it, and one fsync serves them all. Otherwise each fsync would
// serve a part of them, and the parts would take turns.
//
// It ends early when the group is full, when somebody joins who does not wait,
// when an fsync takes unusually long, and when the others do not come back in
// half the time that the last fsync took; how often that was in vain decides
// how often it is tried.
func (s *Store) awaitFlusher(ctx context.Context, g *group) {
	if !s.cfg.SyncFlush {
		return
	}
	f := &s.flusher
	s.mu.Lock()
	open := g.waiters == g.callers && !g.full()
	if open {
		g.hurry = make(chan struct{}, 1)
	}
	s.mu.Unlock()
	if !open {
		return
	}
	here := 0
	if busy := f.busy.Load(); busy != nil {
		if !s.leaveOpen(ctx, g, *busy, flushPatience) {
			return
		}
		s.mu.Lock()
		here = g.callers
		s.mu.Unlock()
	}
	released := int(f.served.Load())
	patience := min(time.Duration(f.took.Load())/2, maxReturn)
	if released <= 1 || patience <= 0 {
		return
	}
	if s.skip > 0 {
		s.skip--
		return
	}
	s.mu.Lock()
	g.expected = here + released
	complete := g.complete()
	s.mu.Unlock()
	if complete {
		return
	}
	s.leaveOpen(ctx, g, nil, patience)
	s.mu.Lock()
	complete = g.complete()
	s.mu.Unlock()
	if complete {
		s.missed = 0
		return
	}
	s.missed = min(2*s.missed+1, maxSkip)
	s.skip = s.missed
}

// leaveOpen waits until c is closed, for a time at most, and reports whether it
// was. It ends early when the leader is told to hurry, and with its context.
func (s *Store) leaveOpen(ctx context.Context, g *group, c <-chan struct{}, patience time.Duration) bool {
	timer := s.newTimer(patience)
	defer s.putTimer(timer)
	select {
	case <-c:
		return true
	case <-g.hurry:
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// lead writes the group, passes the lead on and wakes the callers.
func (s *Store) lead(g *group) error {
	s.cfg.Disk.admit()
	err := s.write(g)
	g.err = err
	done, synced := g.done, g.synced

	s.mu.Lock()
	s.mu.crowd = g.callers
	var next *group
	var idle chan struct{}
	orphan := false
	if len(s.mu.pending) > 0 {
		next = s.mu.pending[0]
		next.given, next.awaited = true, next.callers+g.callers
		orphan = next.orphan
	} else {
		s.mu.writing = false
		idle, s.mu.idle = s.mu.idle, nil
	}
	s.mu.Unlock()

	// From here on another leader may be at work; s.solo is its.
	if done != nil {
		close(done)
	}
	if synced != nil {
		if err != nil {
			close(synced)
		} else {
			s.enqueueSync(g)
		}
	}
	switch {
	case idle != nil:
		close(idle)
	case orphan:
		s.background.Go(func() { _ = s.leadPending(context.Background(), next) }) // its callers get the error
	case next != nil:
		next.turn <- struct{}{}
	}
	return err
}

// write puts the group into the log and its units into the queues. After an
// error the store is fenced.
func (s *Store) write(g *group) error {
	defer func() {
		for i, b := range g.batches {
			b.recycle()
			g.batches[i] = nil
		}
	}()
	if err := s.fenced.Load(); err != nil {
		return *err
	}
	if g.act != nil {
		return s.actFor(g)
	}
	before := s.log.active
	if err := s.log.begin(g.batches[0].storeTime); err != nil {
		return s.fence(fmt.Errorf("start a file: %w", err))
	}
	synced := s.log.proven.Load()
	for _, b := range g.batches {
		offset, position := b.offset, b.position
		for i := range b.records {
			r := &b.records[i]
			queueOffset := int64(0)
			if !r.silent {
				queueOffset = offset
				offset++
			}
			if b.drop {
				patchDrop(b.buf[r.at:r.at+r.size], position, b.storeTime)
			} else {
				message.PatchRecord(b.buf[r.at:r.at+r.size], queueOffset, position, b.storeTime)
			}
			s.log.add(b.buf, r.at, r.size, position, synced)
			position++
		}
	}
	if err := s.log.commit(); err != nil {
		return s.fence(fmt.Errorf("write: %w", err))
	}
	s.log.active.newest.Store(g.batches[len(g.batches)-1].storeTime)
	for _, b := range g.batches {
		if s.cfg.Confirming {
			break // SetConfirmed does it
		}
		if b.drop {
			s.dropWritten(b.position)
		}
		if err := s.dispatchBatch(b); err != nil {
			// The units are in memory and the records in the log: this group
			// is good, but nothing may follow.
			_ = s.fence(err) // reported by Err and Config.Fenced
		}
	}
	s.wrote(s.log.active != before)
	return nil
}

// wrote tells of a write. rolled means that it began a file.
func (s *Store) wrote(rolled bool) {
	written := s.log.written.Load()
	if !s.cfg.Confirming {
		s.dispatched.Store(written)
	}
	s.noteWritten(rolled)
	s.noteUse()
	if s.cfg.Written != nil {
		s.cfg.Written(written)
	}
}

// alone runs act while nobody writes, after all appends that have come before and
// before all that come after. before runs first, under the lock under which those
// get their positions; act does not run when it fails, nor when ctx is over before
// its turn comes.
func (s *Store) alone(ctx context.Context, before, act func() error) error {
	s.mu.Lock()
	err := s.mu.refuse
	if errors.Is(err, ErrNoEpoch) {
		err = nil // that is for appends
	}
	if err == nil && before != nil {
		err = before()
	}
	if err != nil {
		s.mu.Unlock()
		return err
	}
	g, r := &group{act: act, callers: 1}, leader
	if s.mu.writing {
		g.turn, r = s.newTurn(), opener
		s.mu.pending = append(s.mu.pending, g)
	}
	s.mu.writing = true
	s.mu.Unlock()
	return s.awaitWrite(ctx, g, r, false)
}

// actFor does what a group is for that writes no batches, unless its caller has
// left.
func (s *Store) actFor(g *group) error {
	s.mu.Lock()
	orphan := g.orphan
	s.mu.Unlock()
	if orphan {
		return nil
	}
	return g.act()
}
