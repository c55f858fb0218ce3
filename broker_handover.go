package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
)

// A planned change of master, by Cluster.Elect or the Shutdown of the master, loses
// nothing of what the old one has answered, also of what is not in the log:
//
//	old master   retire: refuses writes, ends deliveries of delayed messages, waits until
//	             its slaves have its log, and saves the progress
//	old master   is fenced: what it has beside its log does not change any more
//	new master   inherit: copies that, before it confirms
//	new master   serve: makes it its own, before its first write
//
// retire and inherit take LeaseRenew each at most. What did not come about by then is as
// after the loss of a master, and a warning says so.

// retire prepares a master for being one no more: sends and changes of topics and groups
// are refused from now on, under its epoch, and its slaves have what it has written when
// it returns. goOn undoes it, for a master that stays.
func (r *brokerRun) retire(ctx context.Context) (goOn func()) {
	at := r.standing.Load()
	if r.elections == nil || at.role != RoleMaster || r.gate.isShut() {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timings.LeaseRenew)
	defer cancel()
	r.retiring.Store(at.epoch)
	r.writes.wait(ctx)
	thaw, err := func() {}, ctx.Err()
	if d := r.delays.Load(); d != nil && err == nil {
		thaw, err = d.Freeze(ctx)
	}
	if err != nil && r.ctx.Err() == nil {
		r.log.Warn("hands over although its slaves may lack the end of its log: delayed messages that were delivered last may come twice", "err", err)
	}
	return func() {
		r.retiring.CompareAndSwap(at.epoch, 0)
		thaw()
	}
}

// retires refuses a write of a master that hands over.
func (r *brokerRun) retires(code Code, at *standing) error {
	if at.epoch == 0 || r.retiring.Load() != at.epoch {
		return nil
	}
	return protocol.Errorf(protocol.ServiceNotAvailable, "%s %s hands over to another master and does not serve %v: ask the next master of %s", protocol.RemarkRole, r.node, code, r.cfg.Name)
}

// handOver gives up being master, and waits until another one is. It does nothing when
// there is nobody: a group without a master keeps its set.
func (r *brokerRun) handOver(ctx context.Context) {
	m := r.master.Load()
	if m == nil || r.elections == nil || ctx.Err() != nil {
		return
	}
	if !slices.ContainsFunc(m.slaves.Status().Slaves, func(s ha.SlaveStatus) bool { return s.InSync && s.Connected && s.ID != r.cfg.ID }) {
		return
	}
	old := r.standing.Load().epoch
	r.retire(ctx) // it does not go on
	w := r.wire.watch.watch(rolesChanged)
	defer r.wire.watch.end(w)
	t := time.NewTimer(r.cfg.Timings.LeaseExpire) // nobody is waited for who comes no sooner than after a crash
	defer t.Stop()
	r.elections.Resign()
	for {
		if at := r.standing.Load(); at.epoch > old && !at.fenced {
			return
		}
		select {
		case <-w.woken:
		case <-t.C:
			r.log.Warn("no other member has become master in time")
			return
		case <-ctx.Done():
			return
		case <-r.ctx.Done():
			return
		}
	}
}

// heritage is what a former master has beside its log, as it was when it served no more.
// What could not be copied is nil.
type heritage struct {
	topics  *protocol.GetAllTopicConfigResponse
	groups  *protocol.GetAllGroupConfigResponse
	offsets *protocol.GetAllConsumerOffsetResponse
	delays  *protocol.GetAllDelayOffsetResponse
}

// inherit copies what the former master has beside its log, as far as that goes within
// LeaseRenew. It is for serve: until then another one may be elected.
func (r *brokerRun) inherit(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timings.LeaseRenew)
	defer cancel()
	h := &heritage{}
	err := h.copy(ctx, func(ctx context.Context) (protocol.BrokerConn, error) {
		return r.cfg.Transport.DialBroker(ctx, protocol.Dial{Node: r.node, Addr: addr})
	})
	r.heritage = h
	if err != nil && r.ctx.Err() == nil {
		r.log.Warn("what the former master has beside its log was not copied: what it was told last is lost", "addr", addr, "err", err)
	}
}

func (h *heritage) copy(ctx context.Context, dial func(context.Context) (protocol.BrokerConn, error)) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all answers are there
	var terr, gerr, oerr, derr error
	h.topics, terr = conn.GetAllTopicConfig(ctx, &protocol.GetAllTopicConfigRequest{})
	h.groups, gerr = conn.GetAllGroupConfig(ctx, &protocol.GetAllGroupConfigRequest{})
	h.offsets, oerr = conn.GetAllConsumerOffset(ctx, &protocol.GetAllConsumerOffsetRequest{})
	h.delays, derr = conn.GetAllDelayOffset(ctx, &protocol.GetAllDelayOffsetRequest{})
	return errors.Join(terr, gerr, oerr, derr)
}

// takeHeritage makes what was inherited the broker's own, before it leads. Offsets may be
// beyond what its log has, and are lowered then. Progress is not: what it says is
// delivered would be lost.
func (r *brokerRun) takeHeritage() error {
	h := r.heritage
	r.heritage = nil
	if h == nil {
		return nil
	}
	var errs []error
	if h.topics != nil {
		_, _, err := r.topics.Replace(h.topics.Topics, h.topics.Version)
		errs = append(errs, err)
	}
	if h.groups != nil {
		_, err := r.settings.Replace(h.groups.Groups, h.groups.Version)
		errs = append(errs, err)
	}
	if h.offsets != nil {
		errs = append(errs, r.offsets.Replace(h.offsets.OffsetTable))
	}
	if h.delays != nil {
		errs = append(errs, r.takeProgress(h.delays))
	}
	return errors.Join(errs...)
}

func (r *brokerRun) takeProgress(p *protocol.GetAllDelayOffsetResponse) error {
	if end := r.written(); p.Position > end {
		return fmt.Errorf("delay offsets presume a log up to %d, which ends at %d: delayed messages that were delivered last may come twice", p.Position, end)
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.cfg.Timings.LeaseRenew)
	defer cancel()
	if err := r.store().Sync(ctx); err != nil { // it stands for copies of messages, which have to outlive it
		return fmt.Errorf("delay offsets: not taken over, because the messages delivered before are not durable: %w", err)
	}
	return r.progress.Replace(p.DelayProgress)
}
