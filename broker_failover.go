package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// A broker of a group with failover has its roles from the group's controller. What
// package ha decides is carried out here, by one goroutine, step by step:
//
//	any    -> fenced    a promise was given, or the role was lost
//	fenced -> slave     a master was named
//	fenced -> master    it was elected, prepared itself, and the controller has stored that

// takePart begins the broker's part in the elections of its group. It has no role
// before the controller has told it one.
func (r *brokerRun) takePart(fresh bool) error {
	lastEpoch, end := r.report()
	life, stored, err := r.replica.nextLife(r.cfg.Flush == SyncFlush && !r.throwaway, fresh, end)
	if err != nil {
		if store.IsDiskFull(err) {
			return fmt.Errorf("%s has made its log anew, and stores each of its lives before it takes part in elections: make space and start it again: %w", r.node, err)
		}
		return err
	}
	r.standing.Store(&standing{role: RoleSlave, epoch: lastEpoch, id: -1, fenced: true})
	r.elections = ha.NewParticipant(ha.ParticipantConfig{
		Replica: ha.ReplicaConfig{ID: r.cfg.ID, Addr: r.haAddr(), ClientAddr: r.addr.String(), Lease: r.cfg.Timings.LeaseExpire, Renew: r.cfg.Timings.LeaseRenew, Unelected: ownPromises{r.replica}.Highest()},
		State:   life, Unstored: !stored, LastEpoch: lastEpoch, End: end, Duties: elector{r},
		Dial: func(ctx context.Context) (net.Conn, error) {
			return r.cfg.Transport.DialStream(ctx, protocol.Dial{Node: r.node, Addr: r.wire.controller()})
		},
		Unsaved: func(err error) {
			r.log.Error("takes no part in elections for now", "err", err)
			r.unsaved.Store(&err)
			r.events.emit(r.node, func(b EventBase) Event { return StoreFenced{b, protocol.Tagged(err.Error(), ErrFenced, err)} })
		},
		Connected: func(err error) {
			if err != nil {
				r.log.Warn("the controller of the group is not reached", "err", err)
			}
		},
	})
	r.loops.Go(func() { r.elections.Run(r.ctx) })
	return nil
}

// slaveID is the id under which a slave is registered: the master is 0, and its own id
// is free for the slave whose id is 0.
func (r *brokerRun) slaveID(master int64) int64 {
	if r.cfg.ID == protocol.MasterID {
		return master
	}
	return r.cfg.ID
}

// takesMessages tells whether the broker is a master with as many slaves in sync as it
// needs.
func (r *brokerRun) takesMessages() bool {
	at := r.standing.Load()
	if at.role != RoleMaster || r.mayAnswer(at.epoch) != nil {
		return false
	}
	_, lonely, err := r.mayAppend()
	return !lonely && err == nil
}

// leftBehind looks at why a slave does not follow: one whose log the master cannot
// continue gives it up, and begins anew as one that has to be taken in again first.
func (r *brokerRun) leftBehind(err error) {
	if r.elections != nil && errors.Is(err, ha.ErrTooFarBehind) {
		r.log.Warn("the log is too far behind and is given up", "err", err)
		r.renounced.Store(true)
		r.elections.Renounce(newIncarnation())
	}
}

// elector is a broker's duties in the elections of its group.
type elector struct{ r *brokerRun }

var _ ha.Duties = elector{}

// Save implements ha.Duties.
func (e elector) Save(s ha.ReplicaState) error {
	err := e.r.replica.saveLife(s)
	if err == nil {
		e.r.unsaved.Store(nil)
	}
	return err
}

// Fence implements ha.Duties.
func (e elector) Fence() { e.r.fence() }

// Report implements ha.Duties.
func (e elector) Report() (lastEpoch, end int64) { return e.r.report() }

// Follow implements ha.Duties.
func (e elector) Follow(epoch, master int64, addr string, lossEpoch int64) {
	if err := e.r.follow(epoch, master, addr, lossEpoch); err != nil {
		e.r.log.Error("cannot follow the master", "err", err)
	}
}

// Inherit implements ha.Duties.
func (e elector) Inherit(ctx context.Context, _ int64, addr string) { e.r.inherit(ctx, addr) }

// Prepare implements ha.Duties.
func (e elector) Prepare(ctx context.Context, step ha.Do, epoch int64) error {
	err := e.r.prepare(ctx, step, epoch)
	if err != nil {
		e.r.log.Error("cannot become master", "epoch", epoch, "err", err)
	}
	return err
}

// Serve implements ha.Duties.
func (e elector) Serve(epoch int64, set []ha.Member, setEpoch int64) error {
	err := e.r.serve(epoch, set, setEpoch)
	if err != nil {
		e.r.log.Error("cannot serve as master", "epoch", epoch, "err", err)
	}
	return err
}

// Stored implements ha.Duties.
func (e elector) Stored(set []ha.Member, setEpoch int64) {
	if m := e.r.master.Load(); m != nil {
		m.slaves.Stored(set, setEpoch)
		e.r.wire.watch.changed(rolesChanged)
	}
}

// Refused implements ha.Duties.
func (e elector) Refused(base int64) {
	if m := e.r.master.Load(); m != nil {
		m.slaves.Refused(base)
	}
}

// Asked implements ha.Duties.
func (e elector) Asked() (ha.Change, bool) {
	if m := e.r.master.Load(); m != nil {
		return m.slaves.Asked()
	}
	return ha.Change{}, false
}

// errFencing is the end of a duty that another one follows. There is no time for
// goodbyes: the election waits for it.
var errFencing = errors.New("it has no role for now")

// fence ends the present duty. When it returns nothing of it goes on: no record is
// written, none acknowledged, and no answer given that rests on it.
func (r *brokerRun) fence() {
	old := r.standing.Load()
	r.standing.Store(&standing{role: RoleSlave, epoch: old.epoch, id: old.id, fenced: true})
	m := r.master.Swap(nil)
	r.duty.end(errFencing) // those who wait for slaves wait no more
	if r.early != nil {
		_ = r.early.Close() // it is never an error
		r.early = nil
	}
	r.announced.Store(false)
	r.duty = nil
	r.delays.Store(nil)
	r.receiver.Store(nil)
	r.heritage = nil
	if m != nil || old.role == RoleMaster {
		r.offsets.Follow()   // what is committed from now on is for the next master
		r.waiters.RouseAll() // pulls that are held find that it is master no more
		r.writes.wait(r.ctx) // they end: nobody is left whom they could wait for
		r.locks.Clear()
	}
}

// report is what the log holds, of a broker that has no role.
func (r *brokerRun) report() (lastEpoch, end int64) {
	return r.lastEpoch(), r.store().Positions().Written
}

// follow begins the duty of a slave, under an epoch that the broker has promised.
func (r *brokerRun) follow(epoch, master int64, addr string, lossEpoch int64) error {
	first, end := replicaLog{r}.Bounds()
	f, err := ha.NewReceiver(ha.ReceiverConfig{
		Cluster: r.cfg.Cluster, Group: r.cfg.Name, ID: r.cfg.ID, Incarnation: r.replica.incarnation(),
		Log: replicaLog{r}, Promises: toldPromises{r.elections}, FromLastFile: r.cfg.SyncFromLastFile,
		// A log that was acknowledged is given up only by a life that does not have it.
		KeepOld: end >= first && !r.renounced.Load(), LossEpoch: lossEpoch,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return r.cfg.Transport.DialStream(ctx, protocol.Dial{Node: r.node, Addr: addr})
		},
		Heartbeat: r.cfg.Timings.HAHeartbeat, Housekeeping: r.cfg.Timings.HAHousekeeping, Redial: r.cfg.Timings.HARedial,
		OnEvent: r.replicated,
	})
	if err != nil {
		return err
	}
	r.standing.Store(&standing{role: RoleSlave, epoch: epoch, id: r.slaveID(master), ha: addr})
	r.receiver.Store(f)
	r.followMetadata()
	d := r.newDuty()
	r.duty = d
	d.loops.Go(func() { r.announceRole(d.ctx) })
	d.loops.Go(func() { f.Run(d.ctx) })
	d.loops.Go(func() { r.copyLoop(d.ctx) })
	return nil
}

// prepare carries out a step of a promotion.
func (r *brokerRun) prepare(ctx context.Context, step ha.Do, epoch int64) error {
	switch step {
	case ha.DoCutTail:
		// Only whole records are ever written. The others may hear of the confirmation
		// before this one does: who connects then waits for serve.
		r.early = r.door.open()
		r.early.closeWith(r.ctx)
		return nil
	case ha.DoBeginEpoch:
		return r.store().BeginEpoch(ctx, epoch)
	case ha.DoDispatch, ha.DoClamp:
		// These wait for the confirmation, see serve: until then another one may be
		// elected, who does not have all of this log. What was dispatched could be read,
		// and counts as never to be cut.
		return nil
	}
	return fmt.Errorf("a promotion has no step %d", step)
}

// serve begins the duty of a master, which the controller has stored.
func (r *brokerRun) serve(epoch int64, set []ha.Member, setEpoch int64) error {
	// All that it holds is the group's log from here on.
	r.replica.led()
	st := r.store()
	if err := st.SetConfirmed(st.Positions().Written); err != nil {
		return err
	}
	if err := r.takeHeritage(); err != nil {
		r.log.Warn("what the former master had beside its log was not taken over", "err", err)
	}
	if err := errors.Join(r.leadMetadata(epoch), r.ensureTopics()); err != nil {
		return err
	}
	in := ha.InSyncConfig{
		Set: set, SetEpoch: setEpoch, Controlled: true, MinInSync: r.cfg.MinInSyncReplicas, InSyncReplicas: r.cfg.InSyncReplicas,
		MaxGone: r.cfg.Timings.LeaseExpire,
	}
	if r.cfg.Replication == SyncReplication {
		in.Acks = ha.AckAll
	}
	m, err := r.newMastery(epoch, in)
	if err != nil {
		return err
	}
	r.standing.Store(&standing{role: RoleMaster, epoch: epoch, id: protocol.MasterID})
	r.waiters.RouseAll() // pulls that a slave holds are the master's now, and end with its lease
	d := r.newDuty()
	r.duty = d
	way := r.early
	r.early = nil
	d.loops.Go(func() { r.serveSlaves(d.ctx, m, way) })
	d.loops.Go(func() { r.announceRole(d.ctx) })
	r.deliver(d)
	r.log.Info("is master", "epoch", epoch)
	r.events.emit(r.node, func(b EventBase) Event { return Elected{b, epoch} })
	return nil
}

// announceRole registers the broker under the id of its role, until every name server
// that can be reached has it.
func (r *brokerRun) announceRole(ctx context.Context) {
	r.reg.forget(ctx)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, r.cfg.Timings.LeaseRenew) {
		err := r.reg.register(ctx, registerTimeout)
		if ctx.Err() != nil {
			return
		}
		r.announced.Store(true) // as far as it can be: the next registrations do the rest
		r.wire.watch.changed(rolesChanged)
		if err == nil {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}
