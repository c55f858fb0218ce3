package ha

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The simulator runs a controller and some replicas on virtual time; one seed decides
// everything. Cores are the real ones; logs, disks, the network and the shells are
// models of what may happen to them:
//
//	disk      written and synced; a kill keeps what is written, a loss of power what
//	          is synced and some of the rest, a wipe nothing
//	network   each message takes its own time, comes late, twice or never; the
//	          messages of one replication connection keep their order or end; links are
//	          cut in one direction
//	clocks    run at different rates, within the controller's drift
//	pause     nothing runs and nothing is received, the clock goes on
//	controller  its state is stored, or not, or the write fails and it is not known
//
// After each step of a replica the invariants are checked (see sim.violation).

const ms = int64(time.Millisecond)

type simConfig struct {
	replicas  int
	minInSync int
	leaseless bool // answers that rest on acks do not look at the lease: they need not
	syncAcks  bool // acks stand for synced records, else for written ones
	guard     guard
	lease     time.Duration
	renew     time.Duration
	maxLag    time.Duration
	maxGone   time.Duration
	calm      bool       // no random trouble in the network: for scripts
	unled     bool       // the group has replicated without elections before
	disks     func(*sim) // what the disks hold at the beginning, for scripts
	trace     func(string, ...any)
}

func (c simConfig) controller(life int) ControllerConfig {
	cfg := ControllerConfig{Lease: c.lease, Renew: c.renew, Life: int64(life)}
	for id := range c.replicas {
		cfg.Members = append(cfg.Members, int64(id))
	}
	return cfg
}

// record is one record of a log; replicas share it.
type simRecord struct {
	id    int64
	epoch int64
	ever  uint16 // replicas that had it as durable as an ack means
}

// disk is what outlives a process.
type simDisk struct {
	log       []*simRecord
	synced    int
	epochs    []Epoch
	state     *ReplicaState
	confirmed int64 // told by masters, within the log
	unelected int64 // the highest epoch of masters that nobody elected
}

func (d *simDisk) end() int64 { return int64(len(d.log)) }

func (d *simDisk) lastEpoch() int64 {
	if len(d.epochs) == 0 {
		return 0
	}
	return d.epochs[len(d.epochs)-1].Number
}

// history is the disk's epochs for Diverge: a log without any has number 0.
func (d *simDisk) history() []Epoch {
	if len(d.epochs) == 0 {
		return []Epoch{{0, 1}}
	}
	if d.epochs[0].First > 1 {
		return append([]Epoch{{0, 1}}, d.epochs...)
	}
	return slices.Clone(d.epochs)
}

// cut keeps the log up to a position. Epochs that begin after it go.
func (d *simDisk) cut(keep int64, join bool) {
	d.log = d.log[:keep:keep]
	d.synced = min(d.synced, int(keep))
	d.confirmed = min(d.confirmed, keep)
	for len(d.epochs) > 0 {
		first := d.epochs[len(d.epochs)-1].First
		if first <= keep || first == keep+1 && !join {
			break
		}
		d.epochs = d.epochs[:len(d.epochs)-1]
	}
}

type simEvent struct {
	to   *simNode // nil: the world
	life int      // of to; -1: whichever
	do   func()
}

// simTime is when an event happens. Without pointers, so that the heap is cheap.
type simTime struct {
	at, seq int64
	slot    int // of the event
}

// eventHeap has the next event at 0.
type eventHeap []simTime

func (h eventHeap) before(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].seq < h[b].seq
}

func (h *eventHeap) push(e simTime) {
	*h = append(*h, e)
	l := *h
	for k := len(l) - 1; k > 0; {
		up := (k - 1) / 2
		if !l.before(k, up) {
			break
		}
		l[k], l[up] = l[up], l[k]
		k = up
	}
}

func (h *eventHeap) pop() simTime {
	l := *h
	first, n := l[0], len(l)-1
	l[0] = l[n]
	l = l[:n]
	for k := 0; ; {
		low := 2*k + 1
		if low >= n {
			break
		}
		if low+1 < n && l.before(low+1, low) {
			low++
		}
		if !l.before(low, k) {
			break
		}
		l[k], l[low] = l[low], l[k]
		k = low
	}
	*h = l
	return first
}

type sim struct {
	cfg    simConfig
	rng    *rand.Rand
	now    int64
	seq    int64
	events eventHeap
	slots  []simEvent
	free   []int

	nodes []*simNode // replicas, by id
	ctl   *simNode
	cut   map[[2]int64]bool // from, to

	nextRecord, nextLife int64
	registered           map[int64]int64 // the latest incarnation of each that has come

	served                            map[int64]*simTerm   // epoch -> who
	topEpoch                          int64                // the highest that was served
	answered                          map[int64]*simRecord // position -> what a sender was told is there
	confirmed                         []*simRecord         // what consumers may have read, by position - 1
	oks, oksAsync, unknown, elections int
	violated                          error
	lastOK                            int64
	quiet                             bool

	orders     map[int64]int64 // of operators, by epoch: who may lack what was answered
	lossEpochs []int64         // of unclean elections, as they were stored
	forgiven   int64           // the last of lossEpochs for which losses were given up
	ahead      bool            // a slave had more than the first master, before the first election
}

type simTerm struct {
	node *simNode
	life int
}

// simNode is a replica, or the controller, with its shell.
type simNode struct {
	s       *sim
	id      int64
	up      bool
	paused  bool
	backlog []func()
	life    int
	rate    float64 // of its clock
	slow    int64   // its disk takes that much longer

	// Of the controller.
	stored   *ControllerState
	c        *Controller
	failNext bool    // the next write fails
	crashes  bool    // the write after which it crashes before anything is sent
	told     Message // what it has told an operator last

	// Of a replica.
	heard   int // the latest life of the controller from which something has come
	disk    simDisk
	r       *Replica
	actions []Action
	acting  bool
	heirOf  string // whom it has inherited from at its last promotion
	syncing bool
	clean   bool // of the last end of its process

	in      *InSync
	epoch   int64
	out     map[int64]*simOut // by slave
	waiting []*simWait
	asked   Change // the change that was asked for last
	askedAt int64

	rcv *simIn
}

// outgoing is the master's side of a connection.
type simOut struct {
	conn  ConnID
	slave int64
	next  int64
	heard int64
	lane  *simLane
}

// receiving is a slave's side.
type simIn struct {
	master, epoch int64
	lossEpoch     int64
	addr          string
	conn          ConnID // 0: not yet
	heard         int64
	asked         int64
	lane, dial    *simLane // dial: of the connection that is being made, or is there
}

// lane keeps the messages of one direction of a connection in order: one lost, and
// nothing more comes.
type simLane struct {
	last   int64
	broken bool
}

type simWait struct {
	position int64
	record   *simRecord
	until    int64
}

func newSim(seed uint64, cfg simConfig) *sim {
	s := &sim{
		cfg: cfg, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)),
		cut: make(map[[2]int64]bool), served: make(map[int64]*simTerm), registered: make(map[int64]int64), answered: make(map[int64]*simRecord),
		orders: make(map[int64]int64),
	}
	for id := range cfg.replicas {
		n := &simNode{s: s, id: int64(id), rate: 1 + (s.rng.Float64()-0.5)*0.04, clean: true}
		if cfg.calm {
			n.rate = 1
		}
		s.nodes = append(s.nodes, n)
	}
	switch {
	case cfg.disks != nil:
		cfg.disks(s)
	case cfg.unled:
		s.unled()
	}
	s.ctl = &simNode{s: s, id: NoReplica, rate: 1}
	s.startController()
	for _, n := range s.nodes {
		s.start(n)
	}
	return s
}

func (s *sim) trace(format string, args ...any) {
	if s.cfg.trace != nil {
		s.cfg.trace("%9.3f "+format, append([]any{float64(s.now) / 1e9}, args...)...)
	}
}

func (s *sim) fail(format string, args ...any) {
	if s.violated == nil {
		s.violated = fmt.Errorf("at %v: "+format, append([]any{time.Duration(s.now)}, args...)...)
		s.trace("VIOLATION %v", s.violated)
	}
}

func (s *sim) at(delay int64, to *simNode, life int, do func()) {
	s.seq++
	slot := len(s.slots)
	if n := len(s.free); n > 0 {
		slot, s.free = s.free[n-1], s.free[:n-1]
		s.slots[slot] = simEvent{to, life, do}
	} else {
		s.slots = append(s.slots, simEvent{to, life, do})
	}
	s.events.push(simTime{s.now + max(delay, 0), s.seq, slot})
}

// runFor runs what happens within a time, or until something is violated.
func (s *sim) runFor(d time.Duration) {
	end := s.now + int64(d)
	for s.violated == nil && len(s.events) > 0 && s.events[0].at <= end {
		next := s.events.pop()
		s.now = next.at
		e := s.slots[next.slot]
		s.slots[next.slot] = simEvent{}
		s.free = append(s.free, next.slot)
		if n := e.to; n != nil {
			if !n.up || e.life >= 0 && e.life != n.life {
				continue
			}
			if n.paused {
				n.backlog = append(n.backlog, e.do)
				continue
			}
		}
		e.do()
	}
	s.now = max(s.now, end)
}

// until runs until a condition holds, at most for a time.
func (s *sim) until(d time.Duration, cond func() bool) bool {
	for end := s.now + int64(d); !cond() && s.now < end && s.violated == nil; {
		s.runFor(time.Millisecond)
	}
	return cond()
}

func (n *simNode) clock() time.Time {
	return start.Add(time.Duration(float64(n.s.now) * n.rate))
}

// after is a delay of the world for one of the node's clock.
func (n *simNode) after(t time.Time) int64 {
	return int64(float64(t.Sub(start))/n.rate) - n.s.now + 1
}

func (s *sim) delay() int64 {
	if s.cfg.calm {
		return 2 * ms
	}
	switch s.rng.IntN(50) {
	case 0:
		if !s.quiet {
			return int64(s.rng.IntN(1200)) * ms
		}
	case 1, 2:
		return int64(s.rng.IntN(30)) * ms
	}
	return ms/2 + int64(s.rng.IntN(4))*ms
}

// --- the controller

func (s *sim) startController() {
	n := s.ctl
	n.life++
	n.up, n.paused, n.backlog = true, false, nil
	c, err := NewController(n.clock(), s.cfg.controller(n.life), n.stored)
	if err != nil {
		s.fail("controller: %v", err)
		return
	}
	c.guards = guardsWithout(s.cfg.guard)
	state := c.State()
	n.c, n.stored = c, &state
	s.trace("controller begins life %d", n.life)
	n.wake()
}

// wake runs Tick when it is due.
func (n *simNode) wake() {
	if n.c != nil {
		if at := n.c.Deadline(); !at.IsZero() {
			n.s.at(max(n.after(at), ms), n, n.life, func() {
				if !n.c.Deadline().After(n.clock()) {
					n.output(n.c.Tick(n.clock()))
				}
				n.wake()
			})
		} else {
			n.s.at(50*ms, n, n.life, n.wake)
		}
	}
}

func (n *simNode) output(o Output) {
	s := n.s
	if o.State != nil {
		switch {
		case n.failNext:
			n.failNext = false
			if s.rng.IntN(2) == 0 {
				n.stored = o.State
				s.checkLosses(o.State)
			}
			s.trace("controller fails to store")
			s.kill(n)
			s.at(int64(s.rng.IntN(300))*ms, nil, -1, func() {
				if !n.up {
					s.startController()
				}
			})
			return
		case guardsWithout(s.cfg.guard).lacks(guardStored):
			state := o.State
			s.at(30*ms, n, n.life, func() { n.stored = state })
		default:
			n.stored = o.State
		}
		s.checkLosses(o.State)
		s.trace("stored epoch %d masterEpoch %d master %d pending %d set %v/%d", o.State.Epoch, o.State.MasterEpoch, o.State.Master, o.State.Pending, o.State.Set, o.State.SetEpoch)
		if n.crashes {
			n.crashes = false
			s.trace("controller crashes before it says so")
			s.kill(n)
			return
		}
	}
	for _, m := range o.Send {
		if m.To == NoReplica {
			n.told = m // it is for the operator
		} else {
			s.send(n, s.nodes[m.To], m)
		}
	}
}

// send is a message between a replica and the controller.
func (s *sim) send(from, to *simNode, m Message) {
	copies := 1
	if !s.cfg.calm && !s.quiet {
		switch s.rng.IntN(40) {
		case 0:
			copies = 2
		case 1:
			copies = 0
		}
		if m.Kind == MessageAlter && s.rng.IntN(8) == 0 {
			s.at(int64(s.rng.IntN(2500))*ms, to, -1, func() { to.output(to.c.Step(to.clock(), m)) }) // a late copy
		}
	}
	if s.cut[[2]int64{from.id, to.id}] {
		return
	}
	life := from.life
	for range copies {
		s.at(s.delay(), to, -1, func() {
			if s.cfg.unled && from == s.ctl {
				// A replica has one connection at a time, and reads it to its end.
				if life < to.heard {
					return
				}
				to.heard = life
			}
			if s.cut[[2]int64{from.id, to.id}] && (s.cfg.calm || s.rng.IntN(2) == 0) {
				return // else it was through already
			}
			if to == s.ctl {
				// The newest connection of a replica replaces the others: who registers
				// late has no connection any more. Other messages do come late here.
				if m.Kind == MessageRegister && m.Incarnation < s.registered[m.From] {
					return
				}
				s.registered[m.From] = max(s.registered[m.From], m.Incarnation)
				to.output(to.c.Step(to.clock(), m))
			} else {
				to.ready(to.r.Step(to.clock(), m))
				to.settle()
			}
		})
	}
}

// --- lives

// start begins a life of a replica.
func (s *sim) start(n *simNode) {
	n.life++
	n.up, n.paused, n.backlog = true, false, nil
	n.actions, n.acting, n.syncing, n.rcv, n.slow = nil, false, false, nil, 0
	n.leave()
	s.nextLife++
	state := NextLife(n.disk.state, s.nextLife, n.clean)
	n.clean = true
	n.disk.state = &state
	n.r = NewReplica(n.clock(), ReplicaConfig{ID: n.id, Addr: fmt.Sprint("node", n.id), ClientAddr: fmt.Sprint("client", n.id), Lease: s.cfg.lease, Renew: s.cfg.renew, Unelected: n.disk.unelected}, state, n.disk.lastEpoch(), n.disk.end())
	n.r.guards = guardsWithout(s.cfg.guard)
	s.trace("node %d begins life %d (incarnation %d, before %v, clean %v, seen %d, end %d, last epoch %d)", n.id, n.life, state.Incarnation, state.Before, state.Clean, state.Seen, n.disk.end(), n.disk.lastEpoch())
	n.beat()
}

// beat is the timer of a replica's shell.
func (n *simNode) beat() {
	n.ready(n.r.Tick(n.clock()))
	n.housekeeping()
	n.s.at(int64(n.s.cfg.renew)/4, n, n.life, n.beat)
}

// kill ends a process: what is written stays.
func (s *sim) kill(n *simNode) {
	if !n.up {
		return
	}
	s.trace("node %d is killed", n.id)
	n.up, n.paused, n.backlog = false, false, nil
	if n != s.ctl {
		n.leave()
		n.rcv = nil
	}
}

// powerOff ends a machine.
func (s *sim) powerOff(n *simNode) {
	if n.up {
		s.kill(n)
	}
	keep := n.disk.synced
	if tail := len(n.disk.log) - keep; tail > 0 {
		keep += s.rng.IntN(tail + 1)
	}
	s.trace("node %d loses power: keeps %d of %d, synced %d", n.id, keep, len(n.disk.log), n.disk.synced)
	n.disk.cut(int64(keep), false)
	n.disk.synced = keep // what is there after that is durable
	n.markDurable(0)
	n.clean = n.clean && s.cfg.syncAcks
}

// wipe replaces the disk.
func (s *sim) wipe(n *simNode) {
	if n.up {
		s.kill(n)
	}
	s.trace("node %d loses its disk", n.id)
	n.disk = simDisk{}
	n.clean = true // nothing is known of a life before
}

func (s *sim) pause(n *simNode) {
	if n.up && !n.paused {
		s.trace("node %d pauses", n.id)
		n.paused = true
	}
}

func (s *sim) resume(n *simNode) {
	if n.up && n.paused {
		s.trace("node %d goes on", n.id)
		n.paused = false
		backlog, life := n.backlog, n.life
		n.backlog = nil
		for _, do := range backlog { // before anything else: connections keep their order
			if n.up && n.life == life {
				do()
			}
		}
	}
}

// --- the shell of a replica

func (n *simNode) ready(r Ready) {
	if r.State != nil {
		n.disk.state = r.State
	}
	n.actions = append(n.actions, r.Do...)
	n.act()
	for _, m := range r.Send {
		n.s.send(n, n.s.ctl, m)
	}
}

// act carries out actions, one at a time; each takes its time.
func (n *simNode) act() {
	for !n.acting && len(n.actions) > 0 {
		a := n.actions[0]
		n.actions = n.actions[1:]
		var d int64
		switch a.Do {
		case DoFence, DoSet, DoRefused:
		default:
			if d = int64(n.s.rng.IntN(4)) * ms; !n.s.cfg.calm && !n.s.quiet && n.s.rng.IntN(20) == 0 {
				d = int64(n.s.rng.IntN(300)) * ms
			}
		}
		if d == 0 {
			n.perform(a)
			continue
		}
		n.acting = true
		n.s.at(d, n, n.life, func() {
			n.acting = false
			n.perform(a)
			n.act()
		})
	}
}

func (n *simNode) perform(a Action) {
	s := n.s
	switch a.Do {
	case DoFence:
		n.leave()
		n.rcv, n.heirOf = nil, ""
	case DoReport:
		if n.r.lacks(guardReport) || n.r.lacks(guardFence) {
			// The receiver may go on between the read and the answer.
			last, end, epoch := n.disk.lastEpoch(), n.disk.end(), a.Epoch
			s.at(5*ms, n, n.life, func() { n.ready(n.r.Reported(epoch, last, end)) })
			return
		}
		n.ready(n.r.Reported(a.Epoch, n.disk.lastEpoch(), n.disk.end()))
	case DoFollow:
		if role, epoch := n.r.Role(); role != RoleSlave || epoch != a.Epoch {
			return // more has happened since
		}
		s.trace("node %d follows %d under epoch %d", n.id, a.Master, a.Epoch)
		n.rcv = &simIn{master: a.Master, epoch: a.Epoch, lossEpoch: a.LossEpoch, addr: a.Addr, asked: -1}
		n.housekeeping()
	case DoInherit:
		n.heirOf = a.Addr
		n.ready(n.r.Done(n.clock(), a.Epoch, a.Do, nil))
	case DoCutTail, DoDispatch, DoClamp:
		n.ready(n.r.Done(n.clock(), a.Epoch, a.Do, nil))
	case DoBeginEpoch:
		if _, epoch := n.r.Role(); epoch != a.Epoch {
			return
		}
		if a.Epoch <= n.disk.lastEpoch() {
			s.fail("node %d begins epoch %d after %d", n.id, a.Epoch, n.disk.lastEpoch())
		}
		n.disk.synced = len(n.disk.log)
		n.markDurable(0)
		n.disk.epochs = append(n.disk.epochs, Epoch{a.Epoch, n.disk.end() + 1})
		s.trace("node %d begins epoch %d at %d", n.id, a.Epoch, n.disk.end()+1)
		n.ready(n.r.Done(n.clock(), a.Epoch, a.Do, nil))
	case DoServe:
		if role, epoch := n.r.Role(); role != RoleMaster || epoch != a.Epoch {
			return
		}
		n.serve(a)
	case DoSet:
		if n.in != nil {
			n.in.Stored(n.clock(), a.Set, a.SetEpoch)
			n.settle()
		}
	case DoRefused:
		if n.in != nil {
			n.in.Refused(a.SetEpoch)
		}
	}
}

func (n *simNode) serve(a Action) {
	s := n.s
	if n.in != nil && n.epoch == a.Epoch {
		n.in.Stored(n.clock(), a.Set, a.SetEpoch) // the shell of a broken replica
		return
	}
	s.elections++
	s.trace("node %d serves under epoch %d from %d, set %v/%d", n.id, a.Epoch, n.disk.end(), a.Set, a.SetEpoch)
	if was := s.served[a.Epoch]; was != nil && (was.node != n || was.life != n.life) {
		s.fail("epoch %d has two masters: %d and %d", a.Epoch, was.node.id, n.id)
	}
	s.served[a.Epoch] = &simTerm{n, n.life}
	s.topEpoch = max(s.topEpoch, a.Epoch)
	s.forgive(n, a.Epoch)
	if a.Epoch == s.topEpoch { // else it was paused, and what it answers is judged, see lateOK and okAlone
		s.checkElected(n)
	}
	n.rcv = nil
	n.epoch = a.Epoch
	n.out = make(map[int64]*simOut)
	n.in = NewInSync(n.clock(), InSyncConfig{
		ID: n.id, Epoch: a.Epoch, End: n.disk.end(), Set: a.Set, SetEpoch: a.SetEpoch, Controlled: true,
		Acks: AckAll, MinInSync: s.cfg.minInSync, MaxLag: s.cfg.maxLag, MaxGone: s.cfg.maxGone, JoinWithin: 100 * time.Millisecond,
	})
	n.in.guards = guardsWithout(s.cfg.guard)
	n.settle()
}

// leave ends serving.
func (n *simNode) leave() {
	n.in, n.out = nil, nil
	n.s.unknown += len(n.waiting)
	n.waiting = nil
}

// housekeeping redials, sends heartbeats, and drops silent connections.
func (n *simNode) housekeeping() {
	s := n.s
	silent := 4 * int64(s.cfg.renew)
	if rcv := n.rcv; rcv != nil {
		if rcv.conn != 0 && s.now-rcv.heard > silent {
			rcv.conn, rcv.asked = 0, -1
		}
		switch {
		case rcv.conn != 0:
			n.acknowledge()
		case rcv.asked < 0 || s.now-rcv.asked > int64(s.cfg.renew):
			rcv.asked = s.now
			n.hello()
		}
	}
	if n.in == nil {
		return
	}
	for _, id := range sortedKeys(n.out) {
		o := n.out[id]
		if s.now-o.heard > silent {
			if s.rng.IntN(4) == 0 {
				n.in.Leave(n.clock(), o.conn) // its last words have come
			} else {
				n.in.Disconnect(n.clock(), o.conn)
			}
			delete(n.out, id)
			continue
		}
		n.stream(o, true)
	}
	n.in.Tick(n.clock())
	n.settle()
}

func sortedKeys(m map[int64]*simOut) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// hello dials the master.
func (n *simNode) hello() {
	s, rcv := n.s, n.rcv
	to := s.nodes[rcv.master]
	rcv.lane = &simLane{}
	lane := rcv.lane
	history, end, seen, incarnation := n.disk.history(), n.disk.end(), n.r.Seen(), n.disk.state.Incarnation
	rcv.dial = lane
	s.carry(n, to, lane, func() { to.welcome(n, rcv, lane, history, end, seen, incarnation) })
}

// carry is a message on one direction of a replication connection.
func (s *sim) carry(from, to *simNode, l *simLane, do func()) {
	if s.cut[[2]int64{from.id, to.id}] || !s.cfg.calm && !s.quiet && s.rng.IntN(500) == 0 {
		l.broken = true
	}
	if l.broken {
		return
	}
	at := max(s.now+s.delay(), l.last)
	l.last = at
	s.at(at-s.now, to, -1, func() {
		if l.broken = l.broken || s.cut[[2]int64{from.id, to.id}]; !l.broken {
			do()
		}
	})
}

// welcome is the master's answer to a slave.
func (n *simNode) welcome(slave *simNode, rcv *simIn, back *simLane, history []Epoch, end, seen, incarnation int64) {
	s := n.s
	n.ready(n.r.Observe(seen))
	if n.in == nil {
		return
	}
	if rcv.epoch != n.epoch {
		return
	}
	keep, err := Diverge(n.disk.history(), 1, n.disk.end(), history, end)
	if err != nil {
		s.fail("node %d refuses %d: %v", n.id, slave.id, err)
		return
	}
	conn, err := n.in.Connect(n.clock(), slave.id, incarnation, keep)
	if err != nil {
		s.fail("node %d: %v", n.id, err)
		return
	}
	o := &simOut{conn: conn, slave: slave.id, next: keep + 1, heard: s.now, lane: &simLane{}}
	n.out[slave.id] = o
	epoch, confirmed := n.epoch, n.in.Confirmed()
	s.trace("node %d takes in %d, which keeps %d, conn %d", n.id, slave.id, keep, conn)
	s.carry(n, slave, o.lane, func() { slave.welcomed(rcv, back, epoch, conn, keep, confirmed) })
	n.settle()
	n.stream(o, false)
}

// welcomed is the slave's view of that.
func (n *simNode) welcomed(rcv *simIn, dial *simLane, epoch int64, conn ConnID, keep, confirmed int64) {
	s := n.s
	if n.rcv != rcv || rcv.dial != dial || rcv.epoch != epoch {
		return
	}
	if keep > n.disk.end() {
		return // the log of another life
	}
	if keep < n.disk.confirmed && !GivenUp(n.disk.history(), n.disk.confirmed, rcv.lossEpoch, epoch) {
		s.fail("node %d would cut to %d what is confirmed up to %d", n.id, keep, n.disk.confirmed)
		return
	}
	if keep < n.disk.end() {
		s.trace("node %d cuts %d to %d", n.id, n.disk.end(), keep)
	}
	n.disk.cut(keep, true)
	rcv.conn, rcv.heard = conn, s.now
	rcv.lane = &simLane{}
	n.disk.confirmed = max(n.disk.confirmed, min(confirmed, keep))
	n.acknowledge()
	n.sync()
}

// stream sends what a slave has not been sent.
func (n *simNode) stream(o *simOut, heartbeat bool) {
	s := n.s
	slave := s.nodes[o.slave]
	for o.next <= n.disk.end() || heartbeat {
		heartbeat = false
		first := o.next
		batch := n.disk.log[first-1 : min(n.disk.end(), first+15)]
		batch = batch[:len(batch):len(batch)]
		o.next += int64(len(batch))
		n.in.Sent(o.conn, o.next-1)
		epoch, confirmed, conn, from := n.epoch, n.in.Confirmed(), o.conn, n.id
		s.carry(n, slave, o.lane, func() { slave.data(from, epoch, conn, first, batch, confirmed) })
	}
}

// data comes from a master.
func (n *simNode) data(from, epoch int64, conn ConnID, first int64, batch []*simRecord, confirmed int64) {
	s, rcv := n.s, n.rcv
	if rcv == nil || rcv.master != from || rcv.conn != conn || rcv.epoch != epoch {
		return
	}
	if epoch < n.r.Seen() && !n.r.lacks(guardFence) {
		return // rule 6
	}
	rcv.heard = s.now
	if first != n.disk.end()+1 {
		s.fail("node %d has %d records and is sent %d", n.id, n.disk.end(), first)
		return
	}
	for _, rec := range batch {
		if rec.epoch != n.disk.lastEpoch() {
			n.disk.epochs = append(n.disk.epochs, Epoch{rec.epoch, n.disk.end() + 1})
		}
		n.disk.log = append(n.disk.log, rec)
	}
	if !s.cfg.syncAcks {
		n.markDurable(int(first) - 1)
	}
	n.disk.confirmed = max(n.disk.confirmed, min(confirmed, n.disk.end()))
	n.sync()
	if !s.cfg.syncAcks && len(batch) > 0 {
		n.acknowledge()
	}
}

// acknowledge tells the master what is as durable as it has to be.
func (n *simNode) acknowledge() {
	rcv := n.rcv
	if rcv == nil || rcv.conn == 0 {
		return
	}
	position := n.disk.end()
	if n.s.cfg.syncAcks {
		position = int64(n.disk.synced)
	}
	master, conn, epoch, from := n.s.nodes[rcv.master], rcv.conn, rcv.epoch, n.id
	n.s.carry(n, master, rcv.lane, func() { master.acked(from, conn, epoch, position) })
	if !n.s.cfg.calm && !n.s.quiet && n.s.rng.IntN(10) == 0 {
		// What a connection of a former epoch still carries, under a number that has
		// been given out again.
		n.s.at(int64(n.s.rng.IntN(3000))*ms, master, -1, func() {
			if o := master.out[from]; o != nil && master.epoch != epoch {
				master.acked(from, o.conn, epoch, position)
			}
		})
	}
}

func (n *simNode) acked(from int64, conn ConnID, epoch, position int64) {
	if n.in == nil {
		return
	}
	if err := n.in.Ack(n.clock(), conn, epoch, position); err != nil {
		if o := n.out[from]; errors.Is(err, ErrImpossibleAck) && o != nil && o.conn == conn {
			n.in.Disconnect(n.clock(), conn) // the connection is closed
			delete(n.out, from)
			n.settle()
		}
		return
	}
	if o := n.out[from]; o != nil && o.conn == conn {
		o.heard = n.s.now
		n.settle()
		n.stream(o, false)
		return
	}
	n.settle()
}

// sync makes what is written durable, in its time.
func (n *simNode) sync() {
	if n.syncing || n.disk.synced == len(n.disk.log) {
		return
	}
	n.syncing = true
	d := n.slow + int64(n.s.rng.IntN(3))*ms
	if !n.s.cfg.syncAcks {
		d += 100 * ms
	}
	target := len(n.disk.log)
	n.s.at(d, n, n.life, func() {
		n.syncing = false
		was := n.disk.synced
		if target = min(target, len(n.disk.log)); target > was {
			n.disk.synced = target
			if n.s.cfg.syncAcks {
				n.markDurable(was)
				if n.in != nil {
					n.in.Durable(n.clock(), int64(target))
					n.settle()
				} else {
					n.acknowledge()
				}
			}
		}
		n.sync()
	})
}

func (n *simNode) markDurable(from int) {
	to := len(n.disk.log)
	if n.s.cfg.syncAcks {
		to = n.disk.synced
	}
	for k := from; k < to; k++ {
		n.disk.log[k].ever |= 1 << n.id
	}
}

// settle answers whoever can be answered, and asks for the set that is wanted.
func (n *simNode) settle() {
	s := n.s
	if n.in == nil {
		return
	}
	s.noteConfirmed(n)
	if len(n.waiting) > 0 {
		upTo := n.in.Answerable()
		for len(n.waiting) > 0 {
			w := n.waiting[0]
			if s.now > w.until {
				s.unknown++
				n.waiting = n.waiting[1:]
				continue
			}
			if w.position > upTo {
				break
			}
			if !s.cfg.leaseless && n.r.MayAnswer(n.clock(), n.epoch) != nil {
				break
			}
			n.waiting = n.waiting[1:]
			s.ok(n, w)
		}
	}
	n.alter()
}

// alter asks the controller for the set that is wanted, and again.
func (n *simNode) alter() {
	change, ok := n.in.Asked()
	if !ok {
		return
	}
	m, ok := n.r.Alter(change)
	if !ok {
		return
	}
	if n.asked.Base == change.Base && slices.Equal(n.asked.Set, change.Set) && n.s.now-n.askedAt < int64(n.s.cfg.renew) {
		return
	}
	n.asked, n.askedAt = change, n.s.now
	n.s.trace("node %d asks for %v", n.id, change)
	n.s.send(n, n.s.ctl, m)
}

// --- senders

// write is a sender's call at a node: it waits for the answer, or does not want one to
// rest on more than the node.
func (s *sim) write(n *simNode, wait bool) *simRecord {
	if !n.up || n.paused || n.in == nil {
		return nil
	}
	if (!wait || !s.cfg.leaseless) && n.r.MayAnswer(n.clock(), n.epoch) != nil {
		return nil
	}
	if wait && n.in.MayAppend() != nil {
		return nil
	}
	s.nextRecord++
	rec := &simRecord{id: s.nextRecord, epoch: n.epoch}
	n.disk.log = append(n.disk.log, rec)
	n.in.Appended(n.clock(), n.disk.end())
	if !s.cfg.syncAcks {
		n.markDurable(len(n.disk.log) - 1)
		n.in.Durable(n.clock(), n.disk.end())
	}
	n.sync()
	for _, id := range sortedKeys(n.out) {
		n.stream(n.out[id], false)
	}
	if wait {
		n.waiting = append(n.waiting, &simWait{n.disk.end(), rec, s.now + 800*ms})
	} else {
		s.okAlone(n)
	}
	n.settle()
	return rec
}

// ok is an answer that rests on acknowledgements.
func (s *sim) ok(n *simNode, w *simWait) {
	s.oks++
	s.lastOK = s.now
	if was := s.answered[w.position]; was != nil && was != w.record {
		s.fail("D: position %d was answered for record %d of epoch %d, node %d answers it for %d of epoch %d", w.position, was.id, was.epoch, n.id, w.record.id, w.record.epoch)
	}
	s.answered[w.position] = w.record
	copies := 0
	for k := range s.nodes {
		copies += int(w.record.ever >> k & 1)
	}
	if copies < s.cfg.minInSync {
		s.fail("C: node %d answers position %d, which %d replicas ever had, want %d", n.id, w.position, copies, s.cfg.minInSync)
	}
	if s.topEpoch > n.epoch {
		s.lateOK(n, w)
	}
}

// lateOK is an answer of a master after another one has begun to serve: it has to be
// in the log of that one; or, when its disk may be lost since, of the next (checkElected).
func (s *sim) lateOK(n *simNode, w *simWait) {
	now := s.served[s.topEpoch].node
	if !now.up || now.life != s.served[s.topEpoch].life {
		return
	}
	if w.position > now.disk.end() || now.disk.log[w.position-1] != w.record {
		s.fail("N: node %d answers position %d under epoch %d, node %d serves under %d without it", n.id, w.position, n.epoch, now.id, s.topEpoch)
	}
}

// okAlone is an answer that rests on the lease.
func (s *sim) okAlone(n *simNode) {
	s.oksAsync++
	if s.topEpoch > n.epoch {
		s.fail("L: node %d answers alone under epoch %d, epoch %d is served", n.id, n.epoch, s.topEpoch)
	}
}

// noteConfirmed: consumers may read all that a master calls confirmed.
func (s *sim) noteConfirmed(n *simNode) {
	c := min(n.in.Confirmed(), n.disk.end())
	n.disk.confirmed = max(n.disk.confirmed, c)
	if n.epoch < s.topLoss() {
		return // nobody reads there any more: its lease has ended
	}
	for k := int64(len(s.confirmed)); k < c; k++ {
		s.confirmed = append(s.confirmed, n.disk.log[k])
	}
}

// checkElected wants all that was answered, and all that was read, in the log of who
// is elected.
func (s *sim) checkElected(n *simNode) {
	for position, rec := range s.answered {
		if position > n.disk.end() || n.disk.log[position-1] != rec {
			s.fail("N: node %d serves under epoch %d without record %d at position %d, which was answered", n.id, s.topEpoch, rec.id, position)
			return
		}
	}
	for k, rec := range s.confirmed {
		if int64(k) >= n.disk.end() || n.disk.log[k] != rec {
			s.fail("R: node %d serves without record %d at position %d, which was confirmed", n.id, rec.id, k+1)
			return
		}
	}
}

// master is who serves with a lease, if anybody does.
func (s *sim) master() *simNode {
	var found *simNode
	for _, n := range s.nodes {
		if n.up && !n.paused && n.in != nil && n.r.MayAnswer(n.clock(), n.epoch) == nil && (found == nil || n.epoch > found.epoch) {
			found = n
		}
	}
	return found
}

// electable tells whether the rules allow for a master at all.
func (s *sim) electable() bool {
	for _, e := range s.ctl.c.State().Replicas {
		if s.ctl.c.canBeElected(e.ID) {
			return true
		}
	}
	return false
}
