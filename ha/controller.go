package ha

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrBadState means that stored state of a controller or of a replica is none.
var ErrBadState = errors.New("not the state of a controller or of a replica")

// ControllerConfig is what a [Controller] begins with. All replicas of the group need
// the same Lease.
type ControllerConfig struct {
	Lease time.Duration // how long a master may serve after it has sent a renewal [5 s]
	Renew time.Duration // how often replicas renew [1 s]
	// Drift is how much longer the controller waits than a lease is long: more than
	// two clocks can differ over one [Lease / 10].
	Drift time.Duration
	// First is the replica that becomes the first master of a group [0]: if the group has
	// replicated without elections, the one that was its master.
	First int64
	// Members are all replicas that the group has [First]. Before the first election, and
	// when the state is lost, all of them are waited for.
	Members []int64
	// Life names this life of the controller: no other one of the group has the same.
	Life int64
}

func (c ControllerConfig) withDefaults() ControllerConfig {
	if c.Lease <= 0 {
		c.Lease = 5 * time.Second
	}
	if c.Renew <= 0 {
		c.Renew = time.Second
	}
	if c.Drift <= 0 {
		c.Drift = c.Lease / 10
	}
	if len(c.Members) == 0 {
		c.Members = []int64{c.First}
	}
	return c
}

// ControllerState is what a controller knows of one group for good. Phases:
//
//	Epoch == 0                       nobody was ever elected
//	Epoch == MasterEpoch             Master is master
//	Epoch > MasterEpoch, no Pending  an election: replicas are asked for promises
//	Epoch > MasterEpoch, Pending     Pending is elected and has not confirmed
type ControllerState struct {
	Epoch       int64 `json:"epoch"`       // the highest that any replica was ever told
	MasterEpoch int64 `json:"masterEpoch"` // of the last confirmation
	Master      int64 `json:"master"`      // who has confirmed last; its lease may run still
	Pending     int64 `json:"pending"`
	// PendingUnclean: Pending may lack what was answered; an operator wants it so.
	PendingUnclean bool `json:"pendingUnclean,omitempty"`
	// Set is the in-sync set: all that was ever answered is on each of its members,
	// but those that are unclean.
	Set      []int64        `json:"set"`
	SetEpoch int64          `json:"setEpoch"` // grows with each change of Set
	Replicas []ReplicaEntry `json:"replicas"` // sorted by id
	// Losses are the elections by which an operator gave up answered messages: those
	// that were confirmed.
	Losses []Loss `json:"losses,omitempty"`
}

// ReplicaEntry is what a controller knows of one replica for good.
type ReplicaEntry struct {
	ID          int64   `json:"id"`
	Incarnation int64   `json:"incarnation"`
	Former      []int64 `json:"former,omitempty"` // earlier lives, the latest last
	// Unclean: it may have lost what it acknowledged, and has not joined the set since.
	Unclean bool   `json:"unclean,omitempty"`
	Addr    string `json:"addr,omitempty"`
	// ClientAddr is where it serves clients.
	ClientAddr string `json:"clientAddr,omitempty"`
}

// Loss is an election outside of the rules.
type Loss struct {
	Epoch int64 `json:"epoch"`
	ID    int64 `json:"id"`
}

// maxFormer is how many earlier lives of a replica are remembered, to tell what they
// have sent from what its present one sends.
const maxFormer = maxBefore + 8

// Output is what has to be done after a step of a [Controller], in this order.
type Output struct {
	// State, if there is one, has to be durable before anything is sent. When that
	// fails the controller is of no use any more: whoever runs it makes a new one of
	// what is stored, and stores that again first, for it may be the failed one.
	State *ControllerState
	Send  []Message
}

// Controller elects the master of one group. It is a state machine without goroutines
// and clocks; its caller serialises the calls. Nothing blocks.
//
// What must hold: (1) no epoch is given to two; (2) who is elected has all that was
// answered; (3) nobody is master while the lease of another one runs.
//
//   - (1) Epoch is stored before it is told to anyone, and grows by each election.
//   - (2) Only members of Set are elected, of which a master has answered nothing that
//     they do not have. The promises come first: who has promised acknowledges nothing
//     to a former master any more, and Set does not change once Epoch is above the
//     former master's. So there is nothing that a former master could answer between
//     the reports and the confirmation that the elected, a member, does not have. Set
//     becomes {elected} only then.
//   - (3) A master counts its lease from before it sends a renewal, the controller from
//     when it has come, and longer.
type Controller struct {
	guards
	cfg   ControllerConfig
	state ControllerState

	// leaseFrom is when the last renewal of Master has come, or when the controller
	// began: it does not know what it granted in a former life.
	leaseFrom time.Time
	leaseOver bool // Master has said so itself
	serving   bool // the present life of Master is the one that is, or was, master
	left      bool // it is alive and has given up a lease that ran: what it has beside its log stays as it is

	heard    map[int64]time.Time // when a replica was last heard of in its present life
	promised map[int64]Message   // under Epoch
	since    time.Time           // of the phase
	asked    time.Time           // when promises were last asked for, or Pending told
	wanted   int64               // whom an operator wants elected under Epoch
	unclean  bool                // even if it lacks what was answered
	failed   map[int64]bool      // who resigned, or could not be promoted, in its present life
	begun    time.Time
	lost     int64             // the highest epoch above Epoch that a replica knows of; 0: none
	behind   bool              // lost, but nobody was ever elected: First lacks what another one has
	roll     map[int64]Message // of a roll call: registrations that have answered it
}

// NewController begins a life of a controller; the state is what it has stored, and
// nil if it never has. The state is to be stored again before anything else is done.
// Error: [ErrBadState].
func NewController(now time.Time, cfg ControllerConfig, state *ControllerState) (*Controller, error) {
	c := &Controller{
		cfg: cfg.withDefaults(), state: ControllerState{Master: NoReplica, Pending: NoReplica},
		leaseFrom: now, since: now, begun: now, wanted: NoReplica,
		heard: make(map[int64]time.Time), promised: make(map[int64]Message), failed: make(map[int64]bool),
		roll: make(map[int64]Message),
	}
	if state != nil {
		if err := state.check(); err != nil {
			return nil, err
		}
		c.state = state.clone()
		if c.state.PendingUnclean {
			// Who ordered that asked a former life, and cannot withdraw it any more.
			c.state.Epoch++
			c.state.Pending, c.state.PendingUnclean = NoReplica, false
		}
	}
	return c, nil
}

// State is what the controller knows for good. It is the caller's.
func (c *Controller) State() ControllerState { return c.state.clone() }

// Lost is the epoch that a replica knows of and the controller does not: its state was
// lost, or is an old copy, or was never made and the first master lacks what another
// replica has. It does nothing until an operator designates a master. 0: it is not so.
func (c *Controller) Lost() int64 { return c.lost }

// Step takes in a message.
func (c *Controller) Step(now time.Time, m Message) Output {
	var out Output
	switch m.Kind {
	case MessageDesignate:
		c.designate(now, m, &out)
		return out
	case MessageWithdraw:
		c.withdraw(now, m, &out)
		return out
	case MessageRegister, MessageRenew, MessageAlter, MessagePromised, MessageConfirmed, MessageResigned:
	default:
		return out
	}
	// Rule 8: a replica that knows more than the controller: its state was lost.
	if known := m.known(); c.state.Epoch > 0 && known > c.state.Epoch {
		c.lost = max(c.lost, known)
	}
	if c.lost > 0 || c.state.Epoch == 0 {
		c.rollCall(now, m, &out)
		return out
	}
	if m.Kind == MessageRegister {
		c.register(now, m, &out)
		c.goOn(now, &out)
		return out
	}
	if e := c.entry(m.From); e == nil || e.Incarnation != m.Incarnation && !c.lacks(guardIncarnation) {
		why := RefusedUnknown
		if e != nil && slices.Contains(e.Former, m.Incarnation) {
			why = RefusedFormer
		}
		c.answer(&out, m, why)
		return out
	}
	c.heard[m.From] = now
	switch m.Kind {
	case MessageRenew:
		c.renew(now, m, &out)
	case MessageAlter:
		c.alter(m, &out)
	case MessagePromised:
		if m.Epoch == c.state.Epoch && c.voting() {
			c.promised[m.From] = m
			// Who has promised does not serve under a lower epoch any more.
			c.leaving(now, m)
			c.leaseOver = c.leaseOver || m.From == c.state.Master
		}
	case MessageConfirmed:
		c.confirmed(now, m, &out)
	case MessageResigned:
		c.resigned(now, m, &out)
	}
	c.goOn(now, &out)
	return out
}

// Tick looks at the time. It is to be called when [Controller.Deadline] has come, and
// may be called whenever.
func (c *Controller) Tick(now time.Time) Output {
	var out Output
	c.goOn(now, &out)
	return out
}

// Deadline is when Tick has something to do if nothing else happens. The zero time:
// never.
func (c *Controller) Deadline() time.Time {
	switch {
	case c.lost > 0 || c.state.Epoch == 0:
		return time.Time{}
	case c.state.Epoch == c.state.MasterEpoch:
		return c.leaseEnd()
	case c.asked.IsZero():
		return c.since
	}
	return c.asked.Add(c.cfg.Renew / 4)
}

// register begins a life of a replica.
func (c *Controller) register(now time.Time, m Message, out *Output) {
	e := c.entry(m.From)
	switch {
	case e != nil && e.Incarnation == m.Incarnation: // a copy
		c.heard[m.From] = now
		if e.Addr != m.Addr || e.ClientAddr != m.ClientAddr {
			e.Addr, e.ClientAddr = m.Addr, m.ClientAddr
			c.store(out)
		}
		c.answer(out, m, "")
		return
	case e != nil && slices.Contains(e.Former, m.Incarnation):
		c.answer(out, m, RefusedFormer)
		return
	}
	c.enrol(m)
	c.heard[m.From] = now
	if c.state.Master == m.From {
		c.serving, c.left = false, false // its files may be older than what others have copied
	}
	delete(c.promised, m.From)
	delete(c.failed, m.From)
	c.store(out)
	switch {
	case c.state.Pending == m.From:
		c.elect(now, out) // rule 4: it has answered nothing, another one can be chosen
	case c.state.Master == m.From && c.state.Epoch == c.state.MasterEpoch:
		// Rule 3: a restart ends mastership. Its folder is locked by its process: the
		// former one is gone, and its lease with it.
		if c.lacks(guardResume) {
			break
		}
		c.leaseOver = true
		c.elect(now, out)
	case c.state.Master == m.From:
		c.leaseOver = true
	}
	c.answer(out, m, "")
}

// enrol notes a new life of a replica, and what it has kept of the one before.
func (c *Controller) enrol(m Message) {
	switch e := c.entry(m.From); {
	case e == nil:
		c.state.Replicas = append(c.state.Replicas, ReplicaEntry{ID: m.From, Incarnation: m.Incarnation, Addr: m.Addr, ClientAddr: m.ClientAddr})
		slices.SortFunc(c.state.Replicas, func(a, b ReplicaEntry) int { return cmp.Compare(a.ID, b.ID) })
	default:
		// Rule 3: it has what it acknowledged only if it says so, and goes on from the
		// very life that is known here: not from an empty folder, or an old copy.
		if !m.Clean || !slices.Contains(m.Before, e.Incarnation) {
			e.Unclean = !c.lacks(guardClean)
		}
		// Lives that never got to register are former ones, too: what they have sent
		// may still come.
		for _, life := range append([]int64{e.Incarnation}, m.Before...) {
			if !slices.Contains(e.Former, life) {
				e.Former = append(e.Former, life)
			}
		}
		e.Former = e.Former[max(0, len(e.Former)-maxFormer):]
		e.Incarnation, e.Addr, e.ClientAddr = m.Incarnation, m.Addr, m.ClientAddr
		if e.Unclean && len(c.state.Set) > 1 && slices.Contains(c.state.Set, m.From) {
			// A smaller set is always safe; the master will take it in again. It is
			// kept when it is the last one: an operator will want to know.
			c.state.Set = without(c.state.Set, m.From)
			c.state.SetEpoch++
		}
	}
}

// renew grants a lease if the sender is the master, and tells everybody how things are.
func (c *Controller) renew(now time.Time, m Message, out *Output) {
	a := c.answer(out, m, "")
	if c.isMaster(m.From, m.MasterEpoch) {
		c.leaseFrom, c.leaseOver, c.serving = now, false, true
		a.Leased = true
	}
}

// alter changes the set as the master asks for.
func (c *Controller) alter(m Message, out *Output) {
	refuse := func(why Refusal) {
		a := c.answer(out, m, why)
		a.Base = m.SetEpoch
	}
	switch {
	// Rules 4 and 6: once promises are asked for, the set stays.
	case !c.isMaster(m.From, m.Epoch) && !(c.lacks(guardAlterEpoch) && m.From == c.state.Master):
		refuse(RefusedEpoch)
		return
	case m.SetEpoch != c.state.SetEpoch && !c.lacks(guardSetEpoch): // rule 2
		refuse(RefusedSetEpoch)
		return
	case !has(m.Set, m.From):
		refuse(RefusedMember)
		return
	}
	for _, one := range m.Set {
		e := c.entry(one.ID)
		joins := !slices.Contains(c.state.Set, one.ID)
		// Rule 3: what a joiner has acknowledged counts for the life in which it did.
		if e == nil || joins && e.Incarnation != one.Incarnation && !c.lacks(guardIncarnation) {
			refuse(RefusedMember)
			return
		}
	}
	var set []int64
	for _, one := range m.Set {
		if !slices.Contains(c.state.Set, one.ID) {
			c.entry(one.ID).Unclean = false // it has joined by rule 2
		}
		set = append(set, one.ID)
	}
	c.state.Set = set
	c.state.SetEpoch++
	c.store(out)
	c.answer(out, m, "")
}

// confirmed makes the elected replica the master.
func (c *Controller) confirmed(now time.Time, m Message, out *Output) {
	switch {
	case c.isMaster(m.From, m.Epoch): // a copy
	case m.Epoch == c.state.Epoch && m.From == c.state.Pending:
		if c.state.PendingUnclean {
			// The operator's word against rule 4. That it happened stays for good.
			c.state.Losses = append(c.state.Losses, Loss{Epoch: m.Epoch, ID: m.From})
			c.state.PendingUnclean = false
			c.entry(m.From).Unclean = false
		}
		// Rule 4: only now the set is the new master alone.
		c.state.Master, c.state.MasterEpoch, c.state.Pending = m.From, m.Epoch, NoReplica
		c.state.Set = []int64{m.From}
		c.state.SetEpoch++
		c.since, c.left = now, false
		c.store(out)
		for _, e := range c.state.Replicas {
			if e.ID != m.From {
				out.Send = append(out.Send, c.view(e.ID))
			}
		}
	default:
		c.answer(out, m, RefusedEpoch)
		return
	}
	c.leaseFrom, c.leaseOver, c.serving = now, false, true
	c.answer(out, m, "").Leased = true
}

// resigned ends the time of a master, or of one that was elected.
func (c *Controller) resigned(now time.Time, m Message, out *Output) {
	if m.Epoch != c.state.Epoch || m.From != c.state.Pending && !c.isMaster(m.From, m.Epoch) {
		return
	}
	c.leaving(now, m)
	c.leaseOver = c.leaseOver || m.From == c.state.Master
	c.failed[m.From] = true
	c.elect(now, out)
}

// leaving takes in that the sender serves no more: whether that is the master, which had
// a lease still.
func (c *Controller) leaving(now time.Time, m Message) {
	c.left = c.left || m.From == c.state.Master && c.serving && !c.isLeaseOver(now)
}

// elect begins an election under a new epoch, which is stored before anyone is told.
func (c *Controller) elect(now time.Time, out *Output) {
	c.state.Epoch++
	c.state.Pending = NoReplica
	clear(c.promised)
	c.state.PendingUnclean = false
	c.wanted, c.unclean = NoReplica, false
	c.since, c.asked = now, time.Time{}
	c.store(out)
}

// goOn does what is due in the phase.
func (c *Controller) goOn(now time.Time, out *Output) {
	switch {
	case c.state.Epoch == 0 || c.lost > 0:
	case c.state.Epoch == c.state.MasterEpoch:
		if c.isLeaseOver(now) {
			c.elect(now, out)
			c.vote(now, out)
		}
	case c.state.Pending == NoReplica:
		c.vote(now, out)
	default:
		c.await(now, out)
	}
}

// vote asks for promises, and decides when there are enough.
func (c *Controller) vote(now time.Time, out *Output) {
	if c.unclean && !c.lives(now, c.wanted) {
		c.elect(now, out) // the order is over: by the rules again
	}
	best, waiting := c.best(now)
	over := now.Sub(c.since) >= c.cfg.Renew
	switch {
	case best == NoReplica, waiting && !over, !c.isLeaseOver(now):
	case c.failed[best] && now.Sub(c.since) < c.cfg.Lease: // nobody else; not at once again
	default:
		c.state.Pending, c.state.PendingUnclean = best, c.unclean
		c.since, c.asked = now, time.Time{}
		if c.lacks(guardPending) {
			c.state.Set = []int64{best}
		}
		c.store(out)
		c.await(now, out)
		return
	}
	if now.Sub(c.asked) < c.cfg.Renew/4 {
		return
	}
	c.asked = now
	for _, e := range c.state.Replicas {
		if _, done := c.promised[e.ID]; !done && (c.canBeElected(e.ID) || c.unclean && e.ID == c.wanted) {
			out.Send = append(out.Send, Message{Kind: MessagePromise, From: NoReplica, To: e.ID, Incarnation: e.Incarnation, Epoch: c.state.Epoch})
		}
	}
}

// best is the candidate to elect among those that have promised, and whether another
// one that lives is waited for.
func (c *Controller) best(now time.Time) (best int64, waiting bool) {
	best = NoReplica
	if c.unclean {
		if _, done := c.promised[c.wanted]; !done {
			return NoReplica, true
		}
		return c.wanted, false
	}
	for _, e := range c.state.Replicas {
		if !c.canBeElected(e.ID) {
			continue
		}
		m, done := c.promised[e.ID]
		switch {
		case !done:
			waiting = waiting || !c.failed[e.ID] && c.lives(now, e.ID)
		case best == NoReplica || c.better(m, c.promised[best]):
			best = e.ID
		}
	}
	if _, done := c.promised[c.wanted]; done && c.canBeElected(c.wanted) {
		return c.wanted, false
	}
	return best, waiting
}

// better orders by the log, as it was after the promise (rule 4): what was known
// before may have grown since.
func (c *Controller) better(a, b Message) bool {
	if c.failed[a.From] != c.failed[b.From] {
		return !c.failed[a.From]
	}
	if c.lacks(guardLongest) {
		return false
	}
	return cmp.Or(cmp.Compare(a.LastEpoch, b.LastEpoch), cmp.Compare(a.End, b.End)) > 0
}

// await tells the elected replica, again and again, and gives up on one that is not
// heard of any more.
func (c *Controller) await(now time.Time, out *Output) {
	e := c.entry(c.state.Pending)
	if now.Sub(c.since) > c.cfg.Renew && now.Sub(c.lastHeard(e.ID)) > c.silence() {
		c.elect(now, out)
		c.vote(now, out)
		return
	}
	if now.Sub(c.asked) >= c.cfg.Renew/4 {
		c.asked = now
		m := Message{Kind: MessageElected, From: NoReplica, To: e.ID, Incarnation: e.Incarnation, Epoch: c.state.Epoch}
		if c.left && c.state.Master != e.ID {
			m.ClientAddr = c.entry(c.state.Master).ClientAddr
		}
		out.Send = append(out.Send, m)
	}
}

// canBeElected: rules 3 and 4, a clean member of the set.
func (c *Controller) canBeElected(id int64) bool {
	e := c.entry(id)
	return e != nil && !e.Unclean && (slices.Contains(c.state.Set, id) || c.lacks(guardMembers))
}

// isMaster tells whether a replica is master under an epoch, and no election has begun.
func (c *Controller) isMaster(id, epoch int64) bool {
	return id == c.state.Master && epoch == c.state.MasterEpoch && c.state.Epoch == c.state.MasterEpoch && epoch > 0
}

func (c *Controller) voting() bool {
	return c.state.Epoch > c.state.MasterEpoch && c.state.Pending == NoReplica
}

// leaseEnd is when no lease runs any more, whatever was granted.
func (c *Controller) leaseEnd() time.Time {
	if c.lacks(guardLeaseWait) {
		return c.leaseFrom.Add(c.silence()) // it is silent: as if it were dead
	}
	return c.leaseFrom.Add(c.cfg.Lease + c.cfg.Drift)
}

func (c *Controller) isLeaseOver(now time.Time) bool {
	return c.leaseOver || !now.Before(c.leaseEnd()) || c.leaseFrom.Equal(c.begun) && c.lacks(guardRestartWait)
}

// silence is how long a replica that lives is not heard of at most.
func (c *Controller) silence() time.Duration { return 2*c.cfg.Renew + c.cfg.Renew/2 }

func (c *Controller) lives(now time.Time, id int64) bool {
	return now.Sub(c.lastHeard(id)) <= c.silence()
}

func (c *Controller) lastHeard(id int64) time.Time {
	if t, ok := c.heard[id]; ok {
		return t
	}
	return c.begun
}

// answer appends the answer to a message.
func (c *Controller) answer(out *Output, m Message, why Refusal) *Message {
	a := c.view(m.From)
	a.Answers, a.Refusal, a.Incarnation, a.Stamp = m.Kind, why, m.Incarnation, m.Stamp
	out.Send = append(out.Send, a)
	return &out.Send[len(out.Send)-1]
}

// view is what is stored, for a replica.
func (c *Controller) view(to int64) Message {
	v := Message{
		Kind: MessageState, From: NoReplica, To: to, Epoch: c.state.Epoch,
		Master: NoReplica, SetEpoch: c.state.SetEpoch,
	}
	for _, id := range c.state.Set {
		v.Set = append(v.Set, Member{id, c.entry(id).Incarnation})
	}
	if c.state.Epoch == c.state.MasterEpoch && c.state.Epoch > 0 {
		v.Master, v.MasterEpoch, v.Addr = c.state.Master, c.state.MasterEpoch, c.entry(c.state.Master).Addr
		if n := len(c.state.Losses); n > 0 {
			v.LossEpoch = c.state.Losses[n-1].Epoch
		}
	}
	return v
}

// store makes the state part of the output.
func (c *Controller) store(out *Output) {
	s := c.state.clone()
	out.State = &s
}

func (c *Controller) entry(id int64) *ReplicaEntry {
	for k := range c.state.Replicas {
		if c.state.Replicas[k].ID == id {
			return &c.state.Replicas[k]
		}
	}
	return nil
}

func (s ControllerState) clone() ControllerState {
	s.Set, s.Replicas, s.Losses = slices.Clone(s.Set), slices.Clone(s.Replicas), slices.Clone(s.Losses)
	for k := range s.Replicas {
		s.Replicas[k].Former = slices.Clone(s.Replicas[k].Former)
	}
	return s
}

// check refuses a state that no controller has stored.
func (s *ControllerState) check() error {
	known := func(id int64) bool {
		return slices.ContainsFunc(s.Replicas, func(e ReplicaEntry) bool { return e.ID == id })
	}
	fail := func(what string) error {
		return fmt.Errorf("ha: epoch %d, master %d since epoch %d, set %v: %s: %w", s.Epoch, s.Master, s.MasterEpoch, s.Set, what, ErrBadState)
	}
	switch {
	case s.Epoch < 0 || s.MasterEpoch < 0 || s.MasterEpoch > s.Epoch || s.SetEpoch < 0:
		return fail("epochs that do not grow")
	case s.Pending != NoReplica && (!known(s.Pending) || s.Epoch == s.MasterEpoch):
		return fail("an elected replica without an election")
	case s.PendingUnclean && s.Pending == NoReplica:
		return fail("an unclean election of nobody")
	case s.MasterEpoch > 0 != (s.Master != NoReplica) || s.Master != NoReplica && !known(s.Master):
		return fail("a master nobody knows")
	case s.Epoch > 0 && len(s.Set) == 0:
		return fail("nobody is in the set")
	}
	for k, id := range s.Set {
		if !known(id) || k > 0 && id <= s.Set[k-1] {
			return fail("a set of unknown replicas, or not sorted")
		}
	}
	for k, e := range s.Replicas {
		if e.ID < 0 || k > 0 && e.ID <= s.Replicas[k-1].ID {
			return fail("replicas are not sorted")
		}
	}
	return nil
}

func without(ids []int64, id int64) []int64 {
	return slices.DeleteFunc(slices.Clone(ids), func(one int64) bool { return one == id })
}
