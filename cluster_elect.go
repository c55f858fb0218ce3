package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
)

// Elect makes a member the master of its group, if the rules allow it: it has to be one
// that has everything that was acknowledged. The present master refuses writes meanwhile,
// and leaves what it has answered beside its log, such as topics and offsets, to the new
// one, which takes two LeaseRenew at most. It returns when it is master and every name
// server that can be reached knows that; when ctx ends before, the error says what is
// missing. Sends wait until it has as many slaves in sync as they need. Errors:
// ErrNotMaster with the reason when it cannot be, or when another one was elected
// because it did not answer; ErrUnreachable when it is not connected to its controller, or
// that one is not running; ErrNotFound for a group or an id that the cluster does not
// have; that of ctx, when it may become master still. Java: ELECT_MASTER with
// designateElect.
func (c *Cluster) Elect(ctx context.Context, group string, id int64) error {
	if err := c.life.use(); err != nil {
		return err
	}
	return c.elect(ctx, group, id, false)
}

// ElectUnclean makes a member the master of its group although messages that were
// acknowledged may be lost by it: for when those who have them will not come back. One
// that has them all is elected as by Elect. Otherwise the event UncleanElection and an
// error in the log tell of it once it has happened. When the controller has come back
// without its state, all members have to be connected to it. Errors: those of Elect; after one,
// that of ctx too, nothing of the order is in force. For that it waits, even beyond ctx, for a
// controller that was paused, or whose disk hangs, after it was given the order. Java: enableElectUncleanMaster.
func (c *Cluster) ElectUnclean(ctx context.Context, group string, id int64) error {
	if err := c.life.use(); err != nil {
		return err
	}
	return c.elect(ctx, group, id, true)
}

func (c *Cluster) elect(ctx context.Context, group string, id int64, unclean bool) error {
	ctl := c.controllerOf(group)
	if ctl == nil {
		return fmt.Errorf("group %s has no controller (BrokerConfig.Failover): %w", group, ErrNotFound)
	}
	if c.Broker(group, id) == nil {
		return fmt.Errorf("group %s has no broker %d: %w", group, id, ErrNotFound)
	}
	run := ctl.running()
	if run == nil {
		return fmt.Errorf("the controller of %s is not running: %w", group, ErrUnreachable)
	}
	if err := run.gate.pass(ctx); err != nil {
		return protocol.Tagged(fmt.Sprintf("the controller of %s is paused, and was not asked: %v", group, err), ErrUnreachable, err)
	}
	server := run.server
	goOn := c.retireMaster(ctx, group, id)
	epoch, err := server.Designate(ctx, id, unclean)
	if err != nil {
		goOn()
		return cannotElect(group, id, err)
	}
	err = c.awaitElected(ctx, server, group, id, epoch, unclean)
	if !unclean || err == nil || errors.Is(err, ErrNotMaster) {
		return err
	}
	// What was ordered is not to happen when nobody expects it any more.
	taken, err2 := server.Withdraw(context.WithoutCancel(ctx), id, epoch)
	switch {
	case taken:
		return nil // it has just become master
	case err2 != nil && !errors.Is(err2, ha.ErrStopped): // else the order ended with the controller
		return errors.Join(err, fmt.Errorf("controller of %s: %w", group, err2))
	}
	return fmt.Errorf("broker %s has not become master, and the order is withdrawn: %w", nodeName(group, id), err)
}

// retireMaster prepares the master of a group for the election of another member. goOn
// is for when there is none.
func (c *Cluster) retireMaster(ctx context.Context, group string, id int64) (goOn func()) {
	var master *brokerRun // there may be a former one, too, that does not know it yet
	var epoch int64
	for r := range c.runsOf(group) {
		if at := r.standing.Load(); at.role == RoleMaster && at.epoch > epoch {
			master, epoch = r, at.epoch
		}
	}
	if master == nil || master.cfg.ID == id {
		return func() {}
	}
	return master.retire(ctx)
}

// cannotElect says of which member, and what can be done, when an election has not begun.
func cannotElect(group string, id int64, err error) error {
	var why *ha.NotDesignatedError
	switch {
	case errors.Is(err, ha.ErrStopped):
		return fmt.Errorf("the controller of %s is not running: %w", group, ErrUnreachable)
	case !errors.As(err, &why):
		return err
	case why.Why == ha.RefusedEarly:
		return fmt.Errorf("broker %s %s: are all of them running, and not cut off? %w", nodeName(group, id), why.Why.Reason(), ErrUnreachable)
	case why.Why == ha.RefusedAbsent:
		return fmt.Errorf("broker %s %s: is it running, and not cut off? %w", nodeName(group, id), why.Why.Reason(), ErrUnreachable)
	}
	return fmt.Errorf("broker %s %s (Cluster.ElectUnclean elects it nevertheless): %w", nodeName(group, id), why.Why.Reason(), ErrNotMaster)
}

// awaitElected waits for what becomes of an election that was begun under an epoch.
func (c *Cluster) awaitElected(ctx context.Context, server *ha.ControllerServer, group string, id, epoch int64, unclean bool) error {
	var failed error
	var missing string
	err := c.awaitRole(ctx, func() bool {
		b := c.Broker(group, id)
		switch {
		case b == nil || b.life.use() != nil:
			missing = "run"
		case b.Role() != RoleMaster || b.Epoch() < epoch:
			missing = "become master"
		case !b.run.Load().announced.Load():
			missing = "register as master with the name servers"
		default:
			return true
		}
		select {
		case <-server.Stopped():
			failed = fmt.Errorf("the controller of %s has stopped: %w", group, ErrUnreachable)
			return true
		default:
		}
		switch s := server.State(); {
		case s.MasterEpoch >= epoch && s.Master != id:
			failed = fmt.Errorf("broker %s did not answer in time, and another one was elected, under epoch %d: %w", nodeName(group, id), s.MasterEpoch, ErrNotMaster)
		case unclean && s.Epoch > epoch && s.MasterEpoch != epoch:
			failed = fmt.Errorf("broker %s did not become master under epoch %d, and the order is over: it was lost, or could not (see its log): %w", nodeName(group, id), epoch, ErrNotMaster)
		}
		return failed != nil
	})
	if err != nil {
		return fmt.Errorf("elected under epoch %d, but %s has yet to %s: %w", epoch, nodeName(group, id), missing, err)
	}
	return failed
}

// awaitGroup waits until a group that elects has a master that takes messages, and all of
// its members, which have started, have registered in their roles; or until it is clear
// that nobody can be elected. Then it waits for slaves that are about to be in sync,
// LeaseExpire at most.
func (c *Cluster) awaitGroup(ctx context.Context, g BrokerGroup) error {
	var why error
	order := false
	serves := func() bool { return c.serves(g.Name) }
	err := c.awaitRole(ctx, func() bool {
		if serves() {
			return true
		}
		nobody, known := c.nobodyCan(g.Name), true
		if nobody == nil {
			nobody, known = c.nobodyIsClean(g.Name), c.allRegistered(g.Name)
		}
		if g.Config.ElectUncleanMaster {
			order = nobody != nil && known
			return order
		}
		why = nobody
		return why != nil
	})
	if order {
		if err = c.elect(ctx, g.Name, c.longestLog(g.Name), true); err == nil {
			err = c.awaitRole(ctx, serves)
		}
	}
	if why != nil {
		return why
	}
	if err != nil {
		return fmt.Errorf("no broker of %s has become a master that takes messages: %w", g.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timings.LeaseExpire)
	defer cancel()
	_ = c.awaitRole(ctx, func() bool { return c.joined(g.Name) }) // who takes longer is not waited for
	return nil
}

// joined tells whether who runs of a group is in sync with its master, and so survives
// it; or will not be soon, because it has to catch up, or cannot follow.
func (c *Cluster) joined(group string) bool {
	var slaves []SlaveStatus
	for r := range c.runsOf(group) {
		if r.master.Load() != nil {
			_, slaves = r.slaveStatus()
		}
	}
	for r := range c.runsOf(group) {
		f := r.receiver.Load()
		if f == nil || f.Status().Err != nil {
			continue
		}
		if !r.copied.Load() {
			return false
		}
		if !slices.ContainsFunc(slaves, func(s SlaveStatus) bool { return s.ID == r.cfg.ID && (s.InSync || s.LagMessages > 0) }) {
			return false
		}
	}
	return true
}

// runsOf are the runs of the brokers of a group that run.
func (c *Cluster) runsOf(group string) iter.Seq[*brokerRun] {
	return func(yield func(*brokerRun) bool) {
		for b := range c.Brokers() {
			if b.Name() == group && b.life.use() == nil && !yield(b.run.Load()) {
				return
			}
		}
	}
}

// serves tells whether a group has a master that takes messages, and who runs of it has
// registered in its role.
func (c *Cluster) serves(group string) (master bool) {
	for r := range c.runsOf(group) {
		if !r.announced.Load() {
			return false
		}
		master = master || r.takesMessages()
	}
	return master
}

// nobodyCan says why an operator has to decide before the controller of a group elects at
// all: its state is lost, or was never made and the first master has not everything. nil:
// it is not so, or not known before all members have registered.
func (c *Cluster) nobodyCan(group string) error {
	ctl := c.controllerOf(group)
	server := ctl.server()
	if server == nil || server.Stuck() == "" {
		return nil
	}
	best := c.longestLog(group)
	epoch, end := c.Broker(group, best).run.Load().report()
	if server.Stuck() == ha.RefusedBehind {
		master := c.Broker(group, protocol.MasterID).run.Load()
		hasEpoch, has := master.report()
		return fmt.Errorf("nobody of %s can be elected: %s is its master until somebody was elected, but its log, at %d of epoch %d, lacks what %s has, whose log is at %d of epoch %d: its folder is gone, empty, or an older one, or its end was lost with power. Put it back; without it, %s: %w",
			group, master.node, has, hasEpoch, nodeName(group, best), end, epoch, startsWithoutState, ErrNotMaster)
	}
	return fmt.Errorf("nobody of %s can be elected: the state of its controller is lost, or an old one: the members know of epochs of which it does not, %s has a log of epoch %d. Put the newest copy of %s back; without one, %s: %w",
		group, nodeName(group, best), epoch, ctl.path, startsWithoutState, ErrNotMaster)
}

// nobodyIsClean says which members of a group can be elected by an operator only, when
// there are no others; nil: there are.
func (c *Cluster) nobodyIsClean(group string) error {
	server := c.controllerOf(group).server()
	if server == nil {
		return nil
	}
	var unclean []string
	s := server.State()
	for _, e := range s.Replicas {
		switch {
		case !slices.Contains(s.Set, e.ID):
		case !e.Unclean:
			return nil
		default:
			unclean = append(unclean, nodeName(group, e.ID))
		}
	}
	if len(unclean) == 0 {
		return nil
	}
	return fmt.Errorf("nobody of %s can be elected: %s may lack what was acknowledged, since power was lost, or its folder replaced, before that was synced, or the controller's state was; the others were behind, or lost theirs, too. BrokerConfig.ElectUncleanMaster (pocketmq serve -elect-unclean) elects the one with the longest log; groups that have SyncFlush from the beginning do not come to this: %w",
		group, strings.Join(unclean, ", "), ErrNotMaster)
}

// allRegistered tells whether the controller of a group has heard of all of its members
// that run, in their present lives.
func (c *Cluster) allRegistered(group string) bool {
	server := c.controllerOf(group).server()
	if server == nil {
		return false
	}
	s := server.State()
	for r := range c.runsOf(group) {
		if !slices.ContainsFunc(s.Replicas, func(e ha.ReplicaEntry) bool { return e.ID == r.cfg.ID && e.Incarnation == r.replica.incarnation() }) {
			return false
		}
	}
	return true
}

// longestLog is the running member of a group whose log has the latest epoch, and of
// those with the same one the most records.
func (c *Cluster) longestLog(group string) (id int64) {
	var epoch, end int64 = -1, -1
	for r := range c.runsOf(group) {
		if e, n := r.report(); e > epoch || e == epoch && n > end {
			id, epoch, end = r.cfg.ID, e, n
		}
	}
	return id
}
