package ha

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrImpossibleAck means that a slave has acknowledged, or claims to keep, what it
// cannot have: its connection is to be closed.
var ErrImpossibleAck = errors.New("impossible acknowledgement")

// ErrStaleConnection means that a connection is not the newest one of its slave: it
// is to be closed, and what it says does not count.
var ErrStaleConnection = errors.New("stale connection")

// ErrOldEpoch means that something belongs to an epoch that is over, or not to this
// one.
var ErrOldEpoch = errors.New("not of this epoch")

// ErrNotAcknowledged means that not all whom an answer waits for have the record.
// Whether it stays is unknown.
var ErrNotAcknowledged = errors.New("not acknowledged by those who are waited for")

// ErrNoLease means that a master has not heard from the controller for too long:
// another one may have been elected.
var ErrNoLease = errors.New("the lease has ended")

// ErrTooFewReplicas means that fewer replicas are in sync than an answer has to rest
// on.
var ErrTooFewReplicas = errors.New("too few replicas are in sync")

// TooFewError tells how many replicas, the master counted, are in sync and connected,
// and how many an answer has to rest on. It matches [ErrTooFewReplicas].
type TooFewError struct {
	There, Need int
	// Enough: they are no fewer than InSyncConfig.MinInSync.
	Enough bool
}

// Error implements error.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("%d of the %d replicas that an answer needs are in sync and connected", e.There, e.Need)
}

// Is implements errors.Is.
func (e *TooFewError) Is(target error) bool { return target == ErrTooFewReplicas }

// Acks says what the answer to an append rests on.
type Acks int

// What an answer can rest on.
const (
	// AckNone: on the master alone. Java: ASYNC_MASTER.
	AckNone Acks = iota
	// AckCount: on InSyncReplicas different replicas, the master one of them. Java:
	// SYNC_MASTER with inSyncReplicas. Differs: two connections of a slave are one
	// replica. Not safe with failover, where each member of the set may be elected.
	AckCount
	// AckAll: on every replica that is in sync. Java: allAckInSyncStateSet. Differs:
	// what is asked of the controller counts as well, until its answer is known.
	AckAll
)

// InSyncConfig is what an [InSync] begins with.
type InSyncConfig struct {
	ID    int64 // of this replica, the master
	Epoch int64 // under which it is master; 0 without failover
	End   int64 // of its log when the epoch began
	// Set is the stored in-sync set, and SetEpoch its version: what the controller
	// answered to the confirmation. No set means this replica alone.
	Set      []Member
	SetEpoch int64
	// Controlled: the set is stored by a controller, who is asked for each change.
	// Otherwise it changes here, at once.
	Controlled bool
	Acks       Acks
	// InSyncReplicas is how many replicas AckCount waits for, this one counted: 1 or
	// more (Java: inSyncReplicas).
	InSyncReplicas int
	// MinInSync is how many replicas have to be in sync for an answer, this one
	// counted; 2 or more with failover, or the loss of this replica loses what it has
	// answered (Java: minInSyncReplicas). With a controller no smaller set is asked
	// for: nobody could be answered on it, and its former member, who has all that
	// was answered, could not be elected any more.
	MinInSync int
	// MaxLag is for how long a member may lack something before it leaves the set
	// (Java: haMaxTimeSlaveNotCatchup, 15 s).
	MaxLag time.Duration
	// MaxGone is the same for a member that has lost its connection, and has not had
	// everything since; 0: it leaves at once.
	MaxGone time.Duration
	// JoinWithin is how far behind a slave may be, as time, to begin to join, and how
	// long that may take: answers wait for a slave that joins. 0 means 500 ms.
	JoinWithin time.Duration
}

// Member is a replica in an in-sync set.
type Member struct {
	ID int64
	// Incarnation is the life of its process whose log is meant.
	Incarnation int64
}

// Change is a set that is asked of the controller.
type Change struct {
	Base int64 // version of the stored set that it replaces
	Set  []Member
}

// ConnID names one connection of a slave for as long as there is an [InSync].
type ConnID int64

// InSync is a master's view of who has what, for one epoch: what its answers rest on,
// and whom it wants in the set. It is a value without goroutines and clocks: its
// caller guards it with one mutex, and tells it what happens. Nothing blocks.
//
//	required  = the stored set + the set being asked for + who is joining
//	confirmed = what every one of required has acknowledged; it never goes back
//
// What must hold: an answer given stands on every replica that can be elected next.
// Who is elected is in the stored set. So required must contain the stored set at
// each moment, though the controller's answers come late, twice, or not at all:
//
//   - it changes only by what InSync has asked for, or gets smaller;
//   - what was asked for counts from before it is sent, until a set of a higher
//     version is known, which proves that the request was carried out or never will
//     be. A refusal proves nothing: another copy of the request may be on its way;
//   - a joiner has all that was answered before it counted, and is waited for in all
//     that is answered after, from before the set that contains it is asked for.
type InSync struct {
	guards
	cfg InSyncConfig

	set      []Member // as stored, sorted by id
	setEpoch int64
	asked    *Change // sent, or about to be; its outcome is not known
	refused  bool    // the controller has refused it
	joining  *join
	required []int64 // of set, asked and joining, sorted by id

	end       int64 // of the log
	own       int64 // what this replica has, as durable as an ack means
	confirmed int64
	slaves    []*slave  // sorted by id
	looked    time.Time // the last time there was
	conns     ConnID
}

// join is a slave on its way into the set, before the set is asked for.
type join struct {
	member Member
	// has is what it has to have: all that was answered before it counted.
	has   int64
	since time.Time
}

// slave is what is known of a replica that is, or was, connected.
type slave struct {
	id, incarnation int64
	conn            ConnID // 0: none now
	since           time.Time
	kept            int64 // of its log, when it connected
	sent, acked     int64
	// mark is an end that the log had at a time: who acknowledges it had everything
	// then.
	mark     int64
	markAt   time.Time
	caughtUp time.Time // when it last had everything
	// goneAt is when its connection was lost, until it has everything again that the
	// log had when it came back. A slave that comes again and again and cannot write
	// is gone all the while.
	goneAt time.Time
	left   bool // it has said that it goes, and has not come back
	near   bool // following, so that a join will not take long
	// notBefore is when it may be asked for again after a refusal.
	notBefore time.Time
}

// SlaveState is what is known of one slave.
type SlaveState struct {
	ID, Incarnation int64
	Connected       bool
	Since           time.Time // of the connection; or without one, since when it has been away
	Sent, Acked     int64     // positions; Acked is 0 before the first ack of a connection
	Kept            int64     // what it kept of its log when it connected
	CaughtUp        time.Time // when it last had everything
	InSync          bool      // a member of the stored set
}

// maxKnown is how many slaves are remembered that are neither connected nor count.
const maxKnown = 64

// NewInSync begins an epoch, or the life of a master without failover.
func NewInSync(now time.Time, cfg InSyncConfig) *InSync {
	if len(cfg.Set) == 0 {
		cfg.Set = []Member{{ID: cfg.ID}}
	}
	if cfg.JoinWithin <= 0 {
		cfg.JoinWithin = 500 * time.Millisecond
	}
	s := &InSync{cfg: cfg, set: sorted(cfg.Set), setEpoch: cfg.SetEpoch, end: cfg.End, own: cfg.End}
	for _, m := range s.set {
		if m.ID != cfg.ID {
			s.slaves = append(s.slaves, &slave{id: m.ID, incarnation: m.Incarnation, goneAt: now, caughtUp: now})
		}
	}
	s.recount()
	s.note()
	return s
}

// Connect takes in a slave that keeps its log up to a position, and has nothing
// acknowledged yet. It replaces another connection of the same id. Errors:
// [ErrImpossibleAck] for the master's own id, or a position outside of its log.
func (s *InSync) Connect(now time.Time, id, incarnation, keep int64) (ConnID, error) {
	switch {
	case id == s.cfg.ID:
		return 0, fmt.Errorf("ha: a slave connects as replica %d, which is the master; give each member of a group an id of its own: %w", id, ErrImpossibleAck)
	case keep < 0 || keep > s.end:
		return 0, fmt.Errorf("ha: replica %d keeps its log up to %d, that of the master ends at %d: %w", id, keep, s.end, ErrImpossibleAck)
	}
	f := s.slave(id)
	if f == nil || s.lacks(guardDistinct) {
		f = &slave{id: id}
		s.slaves = slices.Insert(s.slaves, 0, f)
		slices.SortStableFunc(s.slaves, func(a, b *slave) int { return cmp.Compare(a.id, b.id) })
		s.forget(f)
	}
	s.conns++
	gone := f.goneAt
	if f.conn != 0 && gone.IsZero() {
		gone = now // the other connection is lost
	}
	// Of a former connection nothing counts: the slave may have lost since what it
	// acknowledged there.
	*f = slave{
		id: id, incarnation: incarnation, conn: s.conns, since: now, sent: keep, kept: keep,
		mark: s.end, markAt: now, caughtUp: f.caughtUp, goneAt: gone,
	}
	if f.caughtUp.IsZero() {
		f.caughtUp = now // MaxLag from here on
	}
	s.review(now)
	return f.conn, nil
}

// Disconnect tells that a connection has ended. One that was replaced has ended
// before.
func (s *InSync) Disconnect(now time.Time, conn ConnID) {
	if f := s.connected(conn); f != nil {
		f.conn, f.near = 0, false
		if f.goneAt.IsZero() {
			f.goneAt = now
		}
		if s.lacks(guardUnknown) && s.asked != nil && has(s.asked.Set, f.id) && !has(s.set, f.id) {
			s.asked = nil // it is gone: as if the request were
			s.recount()
		}
		s.review(now)
	}
}

// Leave tells that a connection has ended because the slave stops: it leaves the set at
// once, if enough stay.
func (s *InSync) Leave(now time.Time, conn ConnID) {
	if f := s.connected(conn); f != nil {
		f.left = true
		s.Disconnect(now, conn)
	}
}

// Sent tells, before it is written to a connection, up to which position a slave will
// have been sent the log.
func (s *InSync) Sent(conn ConnID, position int64) {
	if f := s.connected(conn); f != nil {
		f.sent = max(f.sent, position)
	}
}

// Ack takes in that a slave has everything up to a position, under an epoch. An error
// means that its connection has to be closed: [ErrStaleConnection]; [ErrOldEpoch];
// [ErrImpossibleAck] for a position that was never sent, is below 0, or goes back.
func (s *InSync) Ack(now time.Time, conn ConnID, epoch, position int64) error {
	f := s.connected(conn)
	switch {
	case f == nil:
		return fmt.Errorf("ha: an ack of %d on connection %d: %w", position, conn, ErrStaleConnection)
	case epoch != s.cfg.Epoch && !s.lacks(guardAckEpoch):
		return fmt.Errorf("ha: replica %d acknowledges %d under epoch %d, this is epoch %d: %w", f.id, position, epoch, s.cfg.Epoch, ErrOldEpoch)
	case (position < 0 || position > f.sent || position > s.end) && !s.lacks(guardAckBound):
		return fmt.Errorf("ha: replica %d acknowledges %d, it was sent the log up to %d: %w", f.id, position, f.sent, ErrImpossibleAck)
	case position < f.acked && !s.lacks(guardAckBound):
		return fmt.Errorf("ha: replica %d acknowledges %d after %d: %w", f.id, position, f.acked, ErrImpossibleAck)
	}
	f.acked = position
	if position >= f.mark {
		f.near = f.near || position >= s.confirmed || now.Sub(f.markAt) <= s.cfg.JoinWithin
		f.caughtUp, f.mark, f.markAt = f.markAt, s.end, now
		f.goneAt = time.Time{}
	}
	if position >= s.end {
		f.near, f.caughtUp = true, now
	}
	s.review(now)
	return nil
}

// Appended tells how far the log of the master reaches, whether durable or not.
func (s *InSync) Appended(now time.Time, end int64) {
	if end <= s.end {
		return
	}
	for _, f := range s.slaves {
		if f.acked >= s.end && f.conn != 0 {
			f.caughtUp = now
			f.mark, f.markAt = end, now
		}
	}
	s.end = end
}

// Durable tells up to which position the master itself has the log, as durable as an
// ack means: written, or synced.
func (s *InSync) Durable(now time.Time, position int64) {
	s.own = max(s.own, position)
	s.review(now)
}

// Tick looks at the time: who has been away or behind for too long, and who can join.
func (s *InSync) Tick(now time.Time) { s.review(now) }

// Deadline is when Tick has something to do at the earliest if nothing else happens;
// the zero time: never.
func (s *InSync) Deadline() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if s.joining != nil {
		sooner(s.joining.since.Add(2 * s.cfg.JoinWithin))
	}
	if s.asked != nil {
		return at
	}
	for _, f := range s.slaves {
		if f.conn != 0 && f.near && !f.notBefore.IsZero() && s.joining == nil && !has(s.set, f.id) {
			sooner(f.notBefore)
		}
	}
	for _, m := range s.set {
		f := s.slave(m.ID)
		switch {
		case f == nil || !s.canShrink(1):
		case f.conn == 0:
			sooner(f.goneAt.Add(s.cfg.MaxGone))
		case f.acked < s.end:
			sooner(f.caughtUp.Add(s.cfg.MaxLag + 1))
			if !f.goneAt.IsZero() {
				sooner(f.goneAt.Add(s.cfg.MaxGone))
			}
		}
	}
	return at
}

// Asked is the change to be asked of the controller, again and again until
// [InSync.Stored] has told its outcome. The set is the caller's to keep, not to
// change.
func (s *InSync) Asked() (Change, bool) {
	if s.asked == nil || !s.cfg.Controlled {
		return Change{}, false
	}
	if s.refused {
		// What is stored, once more, makes its version grow: then the request that
		// was refused can never be carried out, whoever still carries a copy of it.
		return Change{Base: s.asked.Base, Set: s.set}, true
	}
	return *s.asked, true
}

// Stored takes in the set that the controller has stored, with its version, as any of
// its answers tells it. It may come late, or twice.
func (s *InSync) Stored(now time.Time, set []Member, setEpoch int64) {
	if setEpoch <= s.setEpoch {
		// Rule 2: an answer of an older version, or the same, says nothing about what
		// is still under way.
		return
	}
	s.set, s.setEpoch = sorted(set), setEpoch
	// A version above its base: the request has been carried out, or never will be.
	s.asked, s.refused = nil, false
	s.recount()
	s.review(now)
}

// Refused takes in that the controller has refused the change with this base. Who was
// to join by it is not asked for again at once.
func (s *InSync) Refused(base int64) {
	if s.asked == nil || s.asked.Base != base || s.refused {
		return
	}
	s.refused = true
	for _, m := range s.asked.Set {
		if f := s.slave(m.ID); f != nil && !has(s.set, m.ID) {
			f.notBefore = s.looked.Add(2 * s.cfg.JoinWithin)
		}
	}
}

// Required are the ids that an answer of AckAll rests on, sorted, this one among them.
// It is not to be changed.
func (s *InSync) Required() []int64 { return s.required }

// Set is the stored in-sync set, sorted by id, and its version. It is not to be
// changed.
func (s *InSync) Set() ([]Member, int64) { return s.set, s.setEpoch }

// Confirmed is the position up to which every one of the in-sync set has the log: no
// election takes it back.
func (s *InSync) Confirmed() int64 { return s.confirmed }

// End is the end of the master's log, as told by [InSync.Appended].
func (s *InSync) End() int64 { return s.end }

// MayAppend tells before an append whether its answer could be a good one:
// [ErrTooFewReplicas] when too few are connected to acknowledge it. A [TooFewError] that
// is Enough tells of one that may be stored and not be answered well.
func (s *InSync) MayAppend() error {
	need, there := s.cfg.MinInSync, 1
	switch s.cfg.Acks {
	case AckNone:
		return nil
	case AckCount:
		for _, f := range s.slaves {
			if f.conn != 0 {
				there++
			}
		}
		if there >= need && there < s.cfg.InSyncReplicas {
			return &TooFewError{There: there, Need: s.cfg.InSyncReplicas, Enough: true}
		}
	case AckAll:
		for _, id := range s.required {
			if f := s.slave(id); f != nil && f.conn != 0 {
				there++
			}
		}
	}
	if there < need {
		return &TooFewError{There: there, Need: need}
	}
	return nil
}

// Answer tells whether an append up to a position may be answered now: nil,
// [ErrNotAcknowledged] or [ErrTooFewReplicas]. The lease is another matter.
func (s *InSync) Answer(position int64) error {
	if position <= s.Answerable() {
		return nil
	}
	// Rule 1: the set may have shrunk since the append.
	if s.tooFew() {
		return fmt.Errorf("ha: %d is acknowledged by the set, which has %d replicas, and an answer needs %d: %w", position, len(s.required), s.cfg.MinInSync, ErrTooFewReplicas)
	}
	who := fmt.Sprintf("all %d that are in sync", len(s.required))
	if s.cfg.Acks == AckCount {
		who = fmt.Sprintf("%d replicas, the master counted,", max(s.cfg.InSyncReplicas, 1))
	}
	return fmt.Errorf("ha: %s have up to %d, not up to %d: %w", who, s.Answerable(), position, ErrNotAcknowledged)
}

// Answerable is the highest position that may be answered now. It goes back when a
// slave joins or connects anew: what was answered stays answered.
func (s *InSync) Answerable() int64 {
	switch {
	case s.cfg.Acks == AckNone:
		return s.end
	case s.tooFew():
		return 0
	case s.cfg.Acks == AckAll && !s.lacks(guardDistinct):
		return s.allHave()
	}
	acked := []int64{s.own}
	for _, f := range s.slaves {
		acked = append(acked, f.acked)
	}
	need := max(s.cfg.InSyncReplicas, 1)
	if s.cfg.Acks == AckAll {
		need = len(s.required)
	}
	if len(acked) < need {
		return 0
	}
	slices.SortFunc(acked, func(a, b int64) int { return cmp.Compare(b, a) })
	return acked[need-1]
}

// forget drops the slave that has been away for longest, when too many have; not one that
// counts, or has just come.
func (s *InSync) forget(fresh *slave) {
	gone, at := 0, -1
	for i, f := range s.slaves {
		if f == fresh || f.conn != 0 || slices.Contains(s.required, f.id) {
			continue
		}
		gone++
		if at < 0 || f.goneAt.Before(s.slaves[at].goneAt) {
			at = i
		}
	}
	if gone > maxKnown {
		s.slaves = slices.Delete(s.slaves, at, at+1)
	}
}

// Slaves is what is known of each slave that is, or was, connected, or is in the set, by
// id. Of those that are neither, the last 64.
func (s *InSync) Slaves() []SlaveState {
	out := make([]SlaveState, 0, len(s.slaves))
	for _, f := range s.slaves {
		in := has(s.set, f.id)
		since := f.since
		if f.conn == 0 {
			since = f.goneAt
		}
		out = append(out, SlaveState{
			ID: f.id, Incarnation: f.incarnation, Connected: f.conn != 0, Since: since,
			Sent: f.sent, Acked: f.acked, Kept: f.kept, CaughtUp: f.caughtUp, InSync: in,
		})
	}
	return out
}

// review is done after everything that happens: who is to leave, who can join, and
// what is confirmed by it.
func (s *InSync) review(now time.Time) {
	s.looked = now
	s.note()
	if s.joining != nil {
		s.goOnJoining(now)
	}
	for {
		// Rule 2: at most one change at a time.
		if s.asked == nil {
			s.shrink(now)
		}
		if s.asked == nil && s.joining == nil {
			s.beginJoin(now)
		}
		if s.asked == nil || s.cfg.Controlled {
			break
		}
		s.set, s.setEpoch, s.asked = s.asked.Set, s.setEpoch+1, nil
		s.recount()
	}
	s.note()
}

// recount is done after each change of whom an answer rests on.
func (s *InSync) recount() {
	ids := make([]int64, 0, len(s.set)+2)
	add := func(id int64) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	add(s.cfg.ID)
	for _, m := range s.set {
		if s.asked == nil || has(s.asked.Set, m.ID) || !s.lacks(guardUnion) {
			add(m.ID)
		}
	}
	if s.asked != nil && !s.lacks(guardJoinOrder) {
		for _, m := range s.asked.Set {
			add(m.ID)
		}
	}
	if s.joining != nil && !s.lacks(guardJoinOrder) {
		add(s.joining.member.ID)
	}
	slices.Sort(ids)
	s.required = ids
}

// shrink asks for a set without those that are away or behind for too long. They stay
// required until it is stored.
func (s *InSync) shrink(now time.Time) {
	var stay, leave []Member
	for _, m := range s.set {
		f := s.slave(m.ID)
		switch {
		case m.ID == s.cfg.ID:
			stay = append(stay, m)
		case f.left,
			(f.conn == 0 || f.acked < s.end && !f.goneAt.IsZero()) && now.Sub(f.goneAt) >= s.cfg.MaxGone,
			f.conn != 0 && f.acked < s.end && now.Sub(f.caughtUp) > s.cfg.MaxLag:
			leave = append(leave, m)
			f.near = false // or it would join again at once
		default:
			stay = append(stay, m)
		}
	}
	for len(leave) > 0 && !s.canShrink(len(leave)) {
		stay, leave = append(stay, leave[0]), leave[1:]
	}
	if len(leave) > 0 {
		s.asked = &Change{Base: s.setEpoch, Set: sorted(stay)}
		s.recount()
	}
}

func (s *InSync) canShrink(by int) bool {
	return !s.cfg.Controlled || len(s.set)-by >= s.cfg.MinInSync
}

// beginJoin makes a slave count that is not in the set, and follows closely.
func (s *InSync) beginJoin(now time.Time) {
	for _, f := range s.slaves {
		if f.conn == 0 || !f.near || now.Before(f.notBefore) || has(s.set, f.id) {
			continue
		}
		// Rule 2: (a) it counts from here on, (b) then the last answer is read. What
		// is confirmed is no less than what was answered.
		s.joining = &join{member: Member{f.id, f.incarnation}, has: max(s.confirmed, s.cfg.End), since: now}
		s.recount()
		s.goOnJoining(now)
		return
	}
}

// goOnJoining asks for the set with the joiner once it has all that was answered.
func (s *InSync) goOnJoining(now time.Time) {
	j := s.joining
	f := s.slave(j.member.ID)
	switch {
	case f == nil || f.conn == 0 || f.incarnation != j.member.Incarnation || now.Sub(j.since) >= 2*s.cfg.JoinWithin:
		// Nobody was asked yet: nobody can have stored it, it need not count.
		s.joining = nil
		s.recount()
		if f != nil {
			f.near = false
		}
	case f.acked >= j.has && s.asked == nil: // rule 2 (c), and one change at a time
		s.asked = &Change{Base: s.setEpoch, Set: sorted(append(slices.Clone(s.set), j.member))} // (d)
		s.joining = nil
		s.recount()
	}
}

// note raises what is confirmed.
func (s *InSync) note() { s.confirmed = max(s.confirmed, s.allHave()) }

// allHave is what every one of required has.
func (s *InSync) allHave() int64 {
	low := min(s.own, s.end)
	for _, id := range s.required {
		if id == s.cfg.ID {
			continue
		}
		if f := s.slave(id); f == nil {
			low = 0
		} else {
			low = min(low, f.acked)
		}
	}
	return low
}

// tooFew tells whether fewer replicas are in sync than an answer has to rest on.
func (s *InSync) tooFew() bool {
	return s.cfg.Acks != AckNone && len(s.required) < s.cfg.MinInSync && !s.lacks(guardSecondMin)
}

// slave is what is known of a replica; nil: nothing.
func (s *InSync) slave(id int64) *slave {
	for _, f := range s.slaves {
		if f.id == id {
			return f
		}
	}
	return nil
}

// connected is the slave of a connection that is its newest; nil: there is none.
func (s *InSync) connected(conn ConnID) *slave {
	for _, f := range s.slaves {
		if f.conn == conn && conn != 0 {
			return f
		}
	}
	return nil
}

func has(set []Member, id int64) bool {
	return slices.ContainsFunc(set, func(m Member) bool { return m.ID == id })
}

// sorted is a copy of a set, by id.
func sorted(set []Member) []Member {
	set = slices.Clone(set)
	slices.SortFunc(set, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return set
}
