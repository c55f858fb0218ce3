package ha

import (
	"fmt"
	"slices"
	"time"
)

// ReplicaConfig is what a [Replica] begins with.
type ReplicaConfig struct {
	ID   int64
	Addr string // where slaves reach its log while it is master
	// ClientAddr is where clients reach it, and who is elected after it what it has
	// beside its log: see DoInherit.
	ClientAddr string
	// Lease and Renew are as in [ControllerConfig].
	Lease, Renew time.Duration
	// Unelected is the highest epoch that it knows of from before its group elected.
	Unelected int64
}

// ReplicaState is what a replica knows for good, beside its log.
type ReplicaState struct {
	// Seen is the highest epoch it knows of: it follows nobody of a lower one.
	Seen int64 `json:"seen"`
	// Incarnation names this life of its process: no other replica, and no other life,
	// has ever had it. Not 0.
	Incarnation int64 `json:"incarnation"`
	// Before are its lives since the last one whose registration is known to have come,
	// which is the first of them. Of many the first and the latest are kept: see NextLife.
	Before []int64 `json:"before,omitempty"`
	// Clean: in none of these has it lost anything that it had acknowledged.
	Clean bool `json:"clean"`
}

// NextLife is the state of a replica for a new life of its process: former is what it
// has stored, nil when there is nothing. Clean says whether everything is there that
// was acknowledged in the life before: after a kill that is so if acknowledged records
// had been handed to the system, after a loss of power if they had been synced. It is
// to be stored before anything that the [Replica] says is sent or done.
//
// What must hold: a life goes on from the one that the controller knows only if nothing
// was lost since. Clean is about all lives since the first of Before, whether they are
// listed or not, so a list that leaves some out cannot make a replica clean that is not.
// The first is never left out: it is what the controller knows, however many lives have
// gone by without it. If it knows one of those between, whose registration came while the
// answer was lost, and that one is left out, the replica counts as unclean, which is safe.
func NextLife(former *ReplicaState, incarnation int64, clean bool) ReplicaState {
	if former == nil {
		return ReplicaState{Incarnation: incarnation, Clean: true}
	}
	before := append(slices.Clone(former.Before), former.Incarnation)
	if n := len(before); n > maxBefore {
		before = append(before[:1], before[n-maxBefore+1:]...)
	}
	return ReplicaState{Seen: former.Seen, Incarnation: incarnation, Before: before, Clean: former.Clean && clean}
}

// Role is what a replica is.
type Role int

// What a replica can be.
const (
	// RoleNone: fenced. It serves nobody, follows nobody, and acknowledges nothing.
	RoleNone Role = iota
	// RoleSlave: it follows a master.
	RoleSlave
	// RolePromoting: it is elected, and not ready. It serves nobody.
	RolePromoting
	// RoleMaster: it serves, while it has a lease.
	RoleMaster
)

// String is the name of the role.
func (r Role) String() string {
	switch r {
	case RoleNone:
		return "none"
	case RoleSlave:
		return "slave"
	case RolePromoting:
		return "promoting"
	case RoleMaster:
		return "master"
	}
	return fmt.Sprintf("role %d", int(r))
}

// Do says what an [Action] is.
type Do int

// What a replica's shell does for it, one after the other, in the order given.
const (
	// DoFence: stop serving, stop the receiver, close the connections of slaves. When
	// it returns nothing of it goes on: no record is written, none acknowledged.
	DoFence Do = iota
	// DoReport: read the last epoch and the end of the log, and call [Replica.Reported].
	DoReport
	// DoFollow: be the slave of Master at Addr, under Epoch; LossEpoch is as in
	// [ReceiverConfig].
	DoFollow
	// DoInherit: the first step of a promotion that the former master, at Addr, has made
	// room for: copy what it has beside its log, which does not change any more. It is
	// given up soon, within about Renew, and never a reason not to become master. It is
	// followed by [Replica.Done].
	DoInherit
	// DoCutTail, DoBeginEpoch, DoDispatch, DoClamp: the steps of a promotion, each
	// durable, each followed by [Replica.Done]: cut an incomplete record off the end
	// of the log; make Epoch begin at its end; dispatch to its end; move positions
	// that lie outside of their queues into them. The last two may wait for DoServe: a
	// replica that is not confirmed in the end has to take back what they did.
	DoCutTail
	DoBeginEpoch
	DoDispatch
	DoClamp
	// DoServe: begin an [InSync] with Set and SetEpoch, take slaves in, register at
	// the name servers, serve.
	DoServe
	// DoSet: tell the InSync that Set of SetEpoch is stored.
	DoSet
	// DoRefused: tell the InSync that the change of SetEpoch was refused.
	DoRefused
)

// Action is something that a replica's shell does for it.
type Action struct {
	Do       Do
	Epoch    int64
	Master   int64
	Addr     string
	Set      []Member
	SetEpoch int64
	// LossEpoch is not above Epoch.
	LossEpoch int64
}

// Ready is what has to be done after a step of a [Replica], in this order.
type Ready struct {
	// State, if there is one, has to be durable before anything else is done. When
	// that fails nothing else is done, see [Replica.Halt], and the state is stored later.
	State *ReplicaState
	Do    []Action
	Send  []Message
}

// Replica is what one replica of a group knows of its own role. It is a state machine
// without goroutines and clocks; its caller serialises the calls. Nothing blocks.
//
//	        promise              elected             confirmed
//	any  ------------>  none  ------------> promoting ---------> master
//	                     |  a master of an epoch not below Seen
//	                     +------------> slave
//
// What must hold: after a promise under an epoch nothing is acknowledged and nothing
// answered under a lower one, by this life and all that follow; and what is reported is
// what the log holds then. So: Seen is durable first, then the shell stops all that
// goes on, then the log is read, then the promise is sent.
type Replica struct {
	guards
	cfg   ReplicaConfig
	state ReplicaState
	begun time.Time

	registered bool
	life       int64 // of the controller that has asked for a registration last
	role       Role
	epoch      int64  // of the role; that of the last promise for RoleNone
	master     int64  // whom a slave follows
	addr       string // where
	reported   bool   // under epoch, as RoleNone
	resigned   int64  // the epoch that was given up last
	step       Do     // of a promotion; DoServe: it waits for the confirmation
	former     string // of a promotion: where the former master is, if it has left by itself
	lease      time.Time
	last       Message // what was reported last: for the registration
	sent       time.Time
}

// NewReplica begins a life, with a state of [NextLife] and a log whose last epoch and end
// are given. It has no role before the controller has told it one.
func NewReplica(now time.Time, cfg ReplicaConfig, state ReplicaState, lastEpoch, end int64) *Replica {
	if cfg.Lease <= 0 {
		cfg.Lease = 5 * time.Second
	}
	if cfg.Renew <= 0 {
		cfg.Renew = time.Second
	}
	return &Replica{
		cfg: cfg, state: state, begun: now, master: NoReplica,
		last: Message{LastEpoch: lastEpoch, End: end},
	}
}

// Role is what the replica is now, and under which epoch.
func (r *Replica) Role() (Role, int64) { return r.role, r.epoch }

// Master is whom a slave follows, or the replica itself as a master; else NoReplica.
func (r *Replica) Master() int64 {
	switch r.role {
	case RoleMaster:
		return r.cfg.ID
	case RoleSlave:
		return r.master
	}
	return NoReplica
}

// Seen is the highest epoch the replica knows of. What belongs to a lower one is to be
// refused, and its connection closed.
func (r *Replica) Seen() int64 { return r.state.Seen }

// State is what is stored. It is not to be changed.
func (r *Replica) State() ReplicaState { return r.state }

// MayAnswer tells, right before an answer, whether the replica is master under an epoch
// and its lease runs. Answers that rest on acknowledgements are safe without the lease,
// others are not: reads, appends that nobody waits for, locks, progress. Rule 6: what
// was done before the lease was tested is not answered when it has ended meanwhile.
func (r *Replica) MayAnswer(now time.Time, epoch int64) error {
	switch {
	case r.role != RoleMaster || r.epoch != epoch:
		return fmt.Errorf("ha: replica %d is %v of epoch %d, not master of epoch %d: %w", r.cfg.ID, r.role, r.epoch, epoch, ErrOldEpoch)
	case !r.leased(now) && !r.lacks(guardLease):
		return fmt.Errorf("ha: replica %d has not heard from the controller for longer than its lease of %v: %w", r.cfg.ID, r.cfg.Lease, ErrNoLease)
	}
	return nil
}

// LeaseEnd is when the lease of a master ends if it is not renewed; the zero time: it
// has none.
func (r *Replica) LeaseEnd() time.Time { return r.lease }

// Step takes in a message of the controller.
func (r *Replica) Step(now time.Time, m Message) Ready {
	var out Ready
	if m.Incarnation != 0 && m.Incarnation != r.state.Incarnation && !r.lacks(guardIncarnation) {
		return out // for a former life, or for a later one
	}
	switch m.Kind {
	case MessageState:
		r.told(now, m, &out)
	case MessagePromise:
		r.promise(m, &out)
	case MessageElected:
		r.elected(now, m, &out)
	}
	return out
}

// Tick sends what is due. It is to be called when [Replica.Deadline] has come.
func (r *Replica) Tick(now time.Time) Ready {
	var out Ready
	if now.Before(r.Deadline()) {
		return out
	}
	r.sent = now
	switch {
	case !r.registered:
		out.Send = append(out.Send, r.registration())
	case r.role == RolePromoting && r.step == DoServe:
		out.Send = append(out.Send, r.confirmation(now))
	default:
		if r.role == RoleNone && r.resigned > 0 && r.resigned == r.epoch {
			out.Send = append(out.Send, r.resignation()) // the first one may be lost
		}
		out.Send = append(out.Send, r.renewal(now))
	}
	return out
}

// Deadline is when Tick has something to send.
func (r *Replica) Deadline() time.Time {
	if r.sent.IsZero() {
		return r.begun
	}
	return r.sent.Add(r.cfg.Renew)
}

// Reported takes in what DoReport has found.
func (r *Replica) Reported(epoch, lastEpoch, end int64) Ready {
	var out Ready
	if r.role != RoleNone || r.epoch != epoch {
		return out // a later promise has come
	}
	r.reported = true
	r.last = Message{LastEpoch: lastEpoch, End: end}
	m := r.message(MessagePromised)
	m.Epoch, m.LastEpoch, m.End = epoch, lastEpoch, end
	out.Send = append(out.Send, m)
	return out
}

// Done takes in that a step of a promotion was carried out, or was not: then the
// replica gives up being elected.
func (r *Replica) Done(now time.Time, epoch int64, step Do, err error) Ready {
	var out Ready
	if r.role != RolePromoting || r.epoch != epoch || r.step != step {
		return out
	}
	if err != nil {
		return r.Resign(now)
	}
	r.goOnPromoting(now, &out)
	return out
}

// Resign gives up being master, or being elected: because the log fails, or to hand
// over before the process ends. Nothing is answered from here on.
func (r *Replica) Resign(time.Time) Ready {
	var out Ready
	if r.role != RoleMaster && r.role != RolePromoting {
		return out
	}
	r.drop(&out)
	r.resigned = r.epoch
	out.Send = append(out.Send, r.resignation())
	return out
}

// Halt gives up every role: the shell could not do what it was told, so what it does is
// not what is known here. What it had still to do and to send is void. The next answer
// of the controller gives a role again, and a promise that was asked for is given when it
// is asked for again.
func (r *Replica) Halt() Ready {
	var out Ready
	if r.role == RoleMaster || r.role == RolePromoting {
		r.resigned = r.epoch
		out.Send = append(out.Send, r.resignation())
	}
	r.drop(&out)
	r.epoch = 0
	return out
}

// Observe takes in an epoch that a peer knows of. One that is above a master's own
// shows that it is none any more, or will not be for long.
func (r *Replica) Observe(epoch int64) Ready {
	var out Ready
	if r.role == RoleMaster && epoch > r.epoch {
		r.drop(&out)
	}
	return out
}

// Renounce begins a new life without the log: its present end may be cut off or
// cleared once the replica is registered again, as one that may have lost what it had
// acknowledged, and that nobody elects before it has joined the set anew. It is what a
// slave does that has to begin its log where its master's begins now. The incarnation
// must be new, as for [NextLife].
func (r *Replica) Renounce(incarnation int64) Ready {
	var out Ready
	r.drop(&out)
	r.state = NextLife(&r.state, incarnation, false)
	r.registered, r.epoch, r.sent = false, 0, time.Time{}
	r.last = Message{}
	r.store(&out)
	return out
}

// Registered tells whether the controller knows of this life.
func (r *Replica) Registered() bool { return r.registered }

// Alter is the message that asks for a change of the set; nothing while the replica is
// not master.
func (r *Replica) Alter(c Change) (Message, bool) {
	if r.role != RoleMaster {
		return Message{}, false
	}
	m := r.message(MessageAlter)
	m.Epoch, m.SetEpoch, m.Set = r.epoch, c.Base, c.Set
	return m, true
}

// promise is given once per epoch: again only by another life, which reports anew.
func (r *Replica) promise(m Message, out *Ready) {
	switch {
	case m.Epoch < r.state.Seen:
		return // rule 6
	case m.Epoch > r.state.Seen, r.role != RoleNone && r.epoch < m.Epoch:
	case r.role != RoleNone:
		return // it is promised, and more has happened since
	case r.epoch == m.Epoch && r.reported:
		// A copy: the answer may have been lost.
		out.Do = append(out.Do, Action{Do: DoReport, Epoch: m.Epoch})
		return
	case r.epoch == m.Epoch:
		return // it is being reported
	}
	r.see(m.Epoch, out)
	if r.lacks(guardReport) {
		// The log is read first, then what goes on is stopped.
		out.Do = append(out.Do, Action{Do: DoReport, Epoch: m.Epoch})
		r.role, r.epoch, r.reported, r.lease = RoleNone, m.Epoch, false, time.Time{}
		out.Do = append(out.Do, Action{Do: DoFence})
		return
	}
	if r.lacks(guardFence) {
		out.Do = append(out.Do, Action{Do: DoReport, Epoch: m.Epoch})
		r.role, r.epoch, r.reported = RoleNone, m.Epoch, false
		return
	}
	r.drop(out)
	r.epoch, r.reported = m.Epoch, false
	out.Do = append(out.Do, Action{Do: DoReport, Epoch: m.Epoch})
}

// elected begins a promotion, if it is for what this life has promised.
func (r *Replica) elected(now time.Time, m Message, out *Ready) {
	if r.role != RoleNone || !r.reported || m.Epoch != r.epoch || m.Epoch != r.state.Seen {
		return
	}
	r.role, r.step, r.former = RolePromoting, DoFence, m.ClientAddr
	r.goOnPromoting(now, out)
}

// goOnPromoting: rule 5. The epoch is durable since the promise, the receiver has
// stopped; what is left happens in this order, each step when the one before is done.
func (r *Replica) goOnPromoting(now time.Time, out *Ready) {
	switch r.step {
	case DoFence:
		r.step = DoCutTail
		if r.former != "" {
			r.step = DoInherit
		}
	case DoInherit:
		r.step = DoCutTail
	case DoCutTail:
		r.step = DoBeginEpoch
	case DoBeginEpoch:
		r.step = DoDispatch
	case DoDispatch:
		r.step = DoClamp
	case DoClamp:
		r.step = DoServe
		r.sent = now
		out.Send = append(out.Send, r.confirmation(now))
		if r.lacks(guardConfirmFirst) {
			r.serve(out, []Member{{r.cfg.ID, r.state.Incarnation}}, 0)
			r.lease = now.Add(r.cfg.Lease)
		}
		return
	}
	out.Do = append(out.Do, Action{Do: r.step, Epoch: r.epoch, Addr: r.former})
}

// told takes in what the controller has stored, and what it answers.
func (r *Replica) told(now time.Time, m Message, out *Ready) {
	switch m.Refusal {
	case RefusedUnknown:
		r.registered = false
		r.sent = time.Time{}
		if m.Life != 0 {
			r.life = m.Life
		}
		return
	case RefusedFormer:
		if r.role != RoleNone {
			r.drop(out) // another process has taken the name
		}
		return
	case RefusedLost, RefusedBehind, RefusedEarly:
		return // no lease; it registers again, and maybe an operator has to look after it
	}
	if m.Answers == MessageRegister && !r.registered {
		r.registered = true
		r.state.Before, r.state.Clean = nil, true // what was to be said is stored there
		r.store(out)
	}
	mine := m.Master == r.cfg.ID && m.MasterEpoch > 0 && m.MasterEpoch == r.epoch
	switch {
	case mine && r.role == RolePromoting && r.step == DoServe:
		// The confirmation is stored: this replica is the set.
		r.serve(out, m.Set, m.SetEpoch)
	case r.lacks(guardResume) && r.role == RoleNone && r.epoch == 0 && m.Master == r.cfg.ID && m.MasterEpoch == r.state.Seen:
		r.epoch = m.MasterEpoch // it was master before it was killed
		r.serve(out, m.Set, m.SetEpoch)
		mine = true
	case mine && r.role == RoleMaster:
		out.Do = append(out.Do, Action{Do: DoSet, Set: m.Set, SetEpoch: m.SetEpoch})
		if m.Answers == MessageAlter && m.Refusal != "" {
			out.Do = append(out.Do, Action{Do: DoRefused, SetEpoch: m.Base})
		}
	case m.Master != NoReplica && m.Master != r.cfg.ID:
		r.follow(m, out)
	}
	if mine && r.role == RoleMaster && m.Leased {
		// Rule 6: from before the renewal was sent, whenever its answer comes.
		from := r.begun.Add(m.Stamp)
		if r.lacks(guardLeaseSent) {
			from = now
		}
		if end := from.Add(r.cfg.Lease); end.After(r.lease) && !from.After(now) {
			r.lease = end
		}
	}
}

// follow makes the replica the slave of a master whose epoch is not below any that it
// knows of.
func (r *Replica) follow(m Message, out *Ready) {
	switch {
	case m.MasterEpoch < r.state.Seen: // rule 6
		return
	case r.role == RoleSlave && r.epoch == m.MasterEpoch && r.addr == m.Addr:
		return
	case r.role != RoleNone && r.epoch >= m.MasterEpoch && r.role != RoleSlave:
		return
	}
	r.see(m.MasterEpoch, out) // before the first ack under it
	r.drop(out)
	r.role, r.epoch, r.master, r.addr = RoleSlave, m.MasterEpoch, m.Master, m.Addr
	out.Do = append(out.Do, Action{Do: DoFollow, Epoch: m.MasterEpoch, Master: m.Master, Addr: m.Addr, LossEpoch: m.LossEpoch})
}

func (r *Replica) serve(out *Ready, set []Member, setEpoch int64) {
	r.role = RoleMaster
	out.Do = append(out.Do, Action{Do: DoServe, Epoch: r.epoch, Set: set, SetEpoch: setEpoch})
}

// drop takes the role away.
func (r *Replica) drop(out *Ready) {
	r.role, r.master, r.addr, r.reported, r.lease = RoleNone, NoReplica, "", false, time.Time{}
	out.Do = append(out.Do, Action{Do: DoFence})
}

// see makes an epoch the highest that is known.
func (r *Replica) see(epoch int64, out *Ready) {
	if epoch > r.state.Seen {
		r.state.Seen = epoch
		if !r.lacks(guardPersist) {
			r.store(out)
		}
	}
}

func (r *Replica) store(out *Ready) {
	s := r.state
	s.Before = slices.Clone(s.Before)
	out.State = &s
}

// leased tells whether the lease runs.
func (r *Replica) leased(now time.Time) bool { return runs(r.lease, now) }

// runs tells whether a lease that ends at end runs, by the monotonic clock and by the
// other one: a machine that was asleep has stopped one of them.
func runs(end, now time.Time) bool {
	return !end.IsZero() && now.Before(end) && now.Round(0).Before(end.Round(0))
}

func (r *Replica) stamp(now time.Time) time.Duration { return max(0, now.Sub(r.begun)) }

func (r *Replica) message(kind MessageKind) Message {
	return Message{Kind: kind, From: r.cfg.ID, To: NoReplica, Incarnation: r.state.Incarnation, Seen: r.state.Seen}
}

func (r *Replica) registration() Message {
	m := r.message(MessageRegister)
	m.Before, m.Clean, m.Addr, m.ClientAddr = r.state.Before, r.state.Clean, r.cfg.Addr, r.cfg.ClientAddr
	m.LastEpoch, m.End = r.last.LastEpoch, r.last.End
	m.Unelected, m.Life = r.cfg.Unelected, r.life
	return m
}

func (r *Replica) resignation() Message {
	m := r.message(MessageResigned)
	m.Epoch = r.resigned
	return m
}

func (r *Replica) renewal(now time.Time) Message {
	m := r.message(MessageRenew)
	m.Stamp = r.stamp(now)
	if r.role == RoleMaster {
		m.MasterEpoch = r.epoch
	}
	return m
}

func (r *Replica) confirmation(now time.Time) Message {
	m := r.message(MessageConfirmed)
	m.Epoch, m.Stamp = r.epoch, r.stamp(now)
	return m
}
