package ha

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Duties are what a replica does in its roles. One goroutine, that of
// [Participant.Run], calls the functions, one after the other.
type Duties interface {
	// Save stores a state, durably, before it returns.
	Save(s ReplicaState) error
	// Fence ends what the replica does, whatever that is: see DoFence.
	Fence()
	// Report is the last epoch and the end of the log.
	Report() (lastEpoch, end int64)
	// Follow makes it a slave, of the master at addr. Whatever is in the way is tried
	// again by itself. lossEpoch is as in ReceiverConfig.
	Follow(epoch, master int64, addr string, lossEpoch int64)
	// Inherit copies, at the first step of a promotion, what the former master has beside
	// its log, from where it serves clients. It gives up within about ReplicaConfig.Renew,
	// so that the controller goes on hearing of the replica.
	Inherit(ctx context.Context, epoch int64, addr string)
	// Prepare carries out a step of a promotion: see DoCutTail and the following.
	Prepare(ctx context.Context, step Do, epoch int64) error
	// Serve makes it master.
	Serve(epoch int64, set []Member, setEpoch int64) error
	// Stored and Refused tell the in-sync set of a master what became of it.
	Stored(set []Member, setEpoch int64)
	Refused(base int64)
	// Asked is the change of the set that a master wants, until it is told that it was
	// stored or refused.
	Asked() (Change, bool)
}

// ParticipantConfig is what a [Participant] begins with.
type ParticipantConfig struct {
	Replica        ReplicaConfig
	State          ReplicaState // see NextLife
	Unstored       bool         // State could not be stored: nothing is said or done before it is
	LastEpoch, End int64        // of the log
	Duties         Duties
	// Dial connects to the controller, wherever it is now. Its ctx ends when Dial has
	// returned, or after a lease.
	Dial func(ctx context.Context) (net.Conn, error)
	// Connected, when not nil, is told when the controller is reached, and when it is
	// not any more, with the reason. It must not block.
	Connected func(err error)
	// Unsaved, when not nil, is told when the state cannot be stored: the replica has no
	// role until it can. It must not block.
	Unsaved func(err error)
}

// Participant is a replica's part in the elections of its group: the shell of a
// [Replica]. Safe for concurrent use.
type Participant struct {
	cfg   ParticipantConfig
	inbox chan Message
	wake  chan struct{} // capacity 1: there is something in todo, or asked
	out   chan Message  // to the controller; what does not fit is lost, as on any network

	tenure atomic.Pointer[tenure] // of core, as of its last step; nil: it is not master

	mu   sync.Mutex // guards what follows
	core *Replica
	todo []Ready // of calls from outside
	ask  bool    // a change of the set is wanted

	unsaved bool // the state could not be stored; of the goroutine of Run
}

// tenure is the time of a master, as its answers need it. Immutable.
type tenure struct {
	epoch int64
	lease time.Time
}

// outbox is how many messages wait while the controller cannot be reached.
const outbox = 64

// NewParticipant starts nothing: Run does.
func NewParticipant(cfg ParticipantConfig) *Participant {
	return &Participant{
		cfg: cfg, inbox: make(chan Message), wake: make(chan struct{}, 1), out: make(chan Message, outbox),
		core: NewReplica(time.Now(), cfg.Replica, cfg.State, cfg.LastEpoch, cfg.End),
	}
}

// Role is what the replica is now, and under which epoch.
func (p *Participant) Role() (Role, int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Role()
}

// Seen is the highest epoch that the replica knows of.
func (p *Participant) Seen() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Seen()
}

// Registered tells whether the controller knows of this life.
func (p *Participant) Registered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.Registered()
}

// MayAnswer tells, right before an answer, whether the replica is master under an epoch
// and its lease runs: nil, [ErrOldEpoch] or [ErrNoLease]. See [Replica.MayAnswer]. It
// takes no lock to say yes, and does not allocate then.
func (p *Participant) MayAnswer(epoch int64) error {
	now := time.Now()
	if at := p.tenure.Load(); at != nil && at.epoch == epoch && runs(at.lease, now) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.MayAnswer(now, epoch)
}

// LeaseEnd is when the lease of the master of an epoch ends if it is not renewed; the
// zero time: it is not master under that epoch, or never had one.
func (p *Participant) LeaseEnd(epoch int64) time.Time {
	if at := p.tenure.Load(); at != nil && at.epoch == epoch {
		return at.lease
	}
	return time.Time{}
}

// publishLocked makes what the core knows of its lease that of MayAnswer. It follows each
// step of the core, before anything that comes of the step is done.
func (p *Participant) publishLocked() {
	at := tenure{lease: p.core.LeaseEnd()}
	var role Role
	if role, at.epoch = p.core.Role(); role != RoleMaster {
		p.tenure.Store(nil)
		return
	}
	if old := p.tenure.Load(); old == nil || *old != at {
		p.tenure.Store(&at)
	}
}

// Observe takes in an epoch that a peer knows of. It does not block.
func (p *Participant) Observe(epoch int64) {
	p.step(func(r *Replica) Ready { return r.Observe(epoch) })
}

// Resign gives up being master, or being elected. It does not block.
func (p *Participant) Resign() {
	p.step(func(r *Replica) Ready { return r.Resign(time.Now()) })
}

// Renounce begins a new life without the log; see [Replica.Renounce]. It does not
// block.
func (p *Participant) Renounce(incarnation int64) {
	p.step(func(r *Replica) Ready { return r.Renounce(incarnation) })
}

// Ask tells that Duties.Asked has something new. It does not block.
func (p *Participant) Ask() {
	p.mu.Lock()
	p.ask = true
	p.mu.Unlock()
	signal(p.wake)
}

// step does something to the core. What comes of it is carried out in the order of the
// steps.
func (p *Participant) step(f func(*Replica) Ready) {
	p.mu.Lock()
	p.todo = append(p.todo, f(p.core))
	p.publishLocked()
	p.mu.Unlock()
	signal(p.wake)
}

// Run takes part until ctx ends.
func (p *Participant) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	if p.cfg.Unstored {
		p.step(func(r *Replica) Ready { state := r.State(); return Ready{State: &state} })
		p.carryOut(ctx)
	}
	var link sync.WaitGroup
	link.Go(func() { p.link(ctx) })
	defer link.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-p.inbox:
			p.step(func(r *Replica) Ready { return r.Step(time.Now(), m) })
		case <-p.wake:
		case <-timer.C:
			p.tick()
		}
		p.carryOut(ctx)
		p.mu.Lock()
		at := p.core.Deadline()
		p.mu.Unlock()
		timer.Reset(max(0, time.Until(at)))
	}
}

// tick sends what is due; a change of the set is asked for until its outcome is known.
func (p *Participant) tick() {
	p.step(func(r *Replica) Ready {
		ready := r.Tick(time.Now())
		p.ask = p.ask || len(ready.Send) > 0
		return ready
	})
}

// carryOut does what has to be done, and what comes of that.
func (p *Participant) carryOut(ctx context.Context) {
	for ctx.Err() == nil {
		p.mu.Lock()
		ask := p.ask
		if len(p.todo) == 0 {
			p.ask = false
			p.mu.Unlock()
			if ask {
				p.askFor()
			}
			return
		}
		ready := p.todo[0]
		p.todo = p.todo[1:]
		p.mu.Unlock()
		if ready.State != nil {
			if err := p.cfg.Duties.Save(*ready.State); err != nil {
				p.halt(ctx, err)
				continue
			}
			p.unsaved = false
		}
		for _, a := range ready.Do {
			p.do(ctx, a)
		}
		for _, m := range ready.Send {
			p.send(m)
		}
	}
}

// halt is what follows a state that could not be stored: nothing goes on until it is.
// The disk may be full, and have space again later.
func (p *Participant) halt(ctx context.Context, err error) {
	p.cfg.Duties.Fence()
	if !p.unsaved && p.cfg.Unsaved != nil {
		p.cfg.Unsaved(fmt.Errorf("ha: replica %d takes no part in elections until it can store its state: %w", p.cfg.Replica.ID, err))
	}
	p.unsaved = true
	sleep(ctx, p.cfg.Replica.Renew)
	p.mu.Lock()
	defer p.mu.Unlock()
	void := p.core.Halt()
	p.publishLocked()
	state := p.core.State()
	p.todo = []Ready{{State: &state, Send: void.Send}}
}

// do carries out one action.
func (p *Participant) do(ctx context.Context, a Action) {
	d := p.cfg.Duties
	switch a.Do {
	case DoFence:
		d.Fence()
	case DoReport:
		lastEpoch, end := d.Report()
		p.step(func(r *Replica) Ready { return r.Reported(a.Epoch, lastEpoch, end) })
	case DoFollow:
		d.Follow(a.Epoch, a.Master, a.Addr, a.LossEpoch)
	case DoInherit:
		d.Inherit(ctx, a.Epoch, a.Addr)
		p.step(func(r *Replica) Ready { return r.Done(time.Now(), a.Epoch, a.Do, nil) })
	case DoCutTail, DoBeginEpoch, DoDispatch, DoClamp:
		err := d.Prepare(ctx, a.Do, a.Epoch)
		p.step(func(r *Replica) Ready { return r.Done(time.Now(), a.Epoch, a.Do, err) })
	case DoServe:
		if err := d.Serve(a.Epoch, a.Set, a.SetEpoch); err != nil {
			p.Resign()
		}
	case DoSet:
		d.Stored(a.Set, a.SetEpoch)
	case DoRefused:
		d.Refused(a.SetEpoch)
	}
}

// askFor asks the controller for the change of the set that is wanted.
func (p *Participant) askFor() {
	change, ok := p.cfg.Duties.Asked()
	if !ok {
		return
	}
	p.mu.Lock()
	m, ok := p.core.Alter(change)
	p.mu.Unlock()
	if ok {
		p.send(m)
	}
}

// send puts a message into the outbox, in place of the oldest one when it is full.
func (p *Participant) send(m Message) {
	for {
		select {
		case p.out <- m:
			return
		default:
		}
		select {
		case <-p.out:
		default:
		}
	}
}

// link keeps a connection to the controller until ctx ends.
func (p *Participant) link(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		dialling, cancel := context.WithTimeout(ctx, p.cfg.Replica.Lease) // what was said longer ago is worth nothing
		conn, err := p.cfg.Dial(dialling)
		cancel()
		if err == nil {
			p.connected(nil)
			pause = 0
			err = p.talk(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		p.connected(err)
		pause = min(max(2*pause, 20*time.Millisecond), p.cfg.Replica.Renew)
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (p *Participant) connected(err error) {
	if p.cfg.Connected != nil {
		p.cfg.Connected(err)
	}
}

// talk sends and receives on one connection to its end.
func (p *Participant) talk(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the reason is in ctx
	defer stop()
	var reader sync.WaitGroup
	reader.Go(func() {
		in := bufio.NewReader(conn)
		for {
			// Each renewal is answered: who is silent for this long is gone.
			err := conn.SetReadDeadline(time.Now().Add(2 * p.cfg.Replica.Lease))
			var m Message
			if err == nil {
				m, err = ReadMessage(in)
			}
			if err != nil {
				cancel(err)
				return
			}
			select {
			case p.inbox <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	var buf []byte
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case m := <-p.out:
			var err error
			if buf, err = AppendMessage(buf[:0], m); err == nil {
				err = writeMessage(conn, buf, p.cfg.Replica.Lease)
			}
			if err != nil {
				cancel(err)
			}
		}
	}
	_ = conn.Close() // the reason is in ctx
	reader.Wait()
	return context.Cause(ctx)
}

// writeMessage writes within a time: a message that took longer is worth nothing.
func writeMessage(conn net.Conn, b []byte, limit time.Duration) error {
	err := conn.SetWriteDeadline(time.Now().Add(limit))
	if err == nil {
		_, err = conn.Write(b)
	}
	return err
}
