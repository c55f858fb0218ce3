package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// mastery is what a broker has as the master of its group. Java: HAService.
type mastery struct {
	epoch  int64 // of its log
	slaves *ha.Slaves
}

// noteWritten is told of each write, in order. It must not block.
func (r *brokerRun) noteWritten(position int64) {
	if m := r.master.Load(); m != nil {
		m.slaves.Written(position)
	}
}

// noteSynced is told of each sync of the log. It must not block.
func (r *brokerRun) noteSynced(position int64) {
	if m := r.master.Load(); m != nil {
		m.slaves.Durable(position)
	}
}

// serveAsMaster begins the duty of a master without failover: it delivers delayed
// messages, and gives its log to slaves.
func (r *brokerRun) serveAsMaster(ctx context.Context) error {
	r.standing.Store(&standing{role: RoleMaster, epoch: r.lastEpoch(), id: protocol.MasterID})
	d := r.newDuty()
	r.duty = d
	r.deliver(d)
	if r.wire.alone {
		return nil
	}
	way := r.door.open()
	way.closeWith(d.ctx) // whoever serves it, or nobody: the door must not wait for ever
	var m *mastery
	if r.owesEpoch() {
		var err error
		if m, err = r.nextEpoch(ctx); err != nil {
			if !passes(err) {
				return err
			}
			r.store().AwaitEpoch() // a slave may have what this log has lost, in the same epoch
			r.notServed(err)
		}
	}
	d.loops.Go(func() { r.giveLog(d.ctx, m, way) })
	return nil
}

// owesEpoch tells whether a master without failover has to begin an epoch before anything is
// appended: somebody has followed this log, or is waited for.
func (r *brokerRun) owesEpoch() bool {
	return r.lastEpoch() > 0 || r.cfg.Replication == SyncReplication
}

// giveLog serves slaves. m is nil when no epoch has begun yet: nobody has followed so far,
// and an epoch, which begins a file, is for when somebody does; or the disk had no space
// for it, and no message is taken before there is. Then it is tried each second, and when
// a slave connects: slaves come again.
func (r *brokerRun) giveLog(ctx context.Context, m *mastery, way *doorway) {
	if m != nil {
		r.serveSlaves(ctx, m, way)
		return
	}
	var again <-chan time.Time
	if r.owesEpoch() {
		t := time.NewTicker(time.Second)
		defer t.Stop()
		again = t.C
	}
	for failed := ""; ; {
		var first net.Conn
		select {
		case first = <-way.conns:
		case <-again:
		case <-way.closed:
			return
		}
		m, err := r.nextEpoch(ctx)
		if err == nil {
			r.serveSlaves(ctx, m, &resumedListener{Listener: way, first: first})
			return
		}
		if first != nil {
			_ = first.Close() // nothing was said on it
		}
		if ctx.Err() == nil && err.Error() != failed {
			failed = err.Error()
			r.notServed(err)
		}
	}
}

func (r *brokerRun) notServed(err error) {
	r.log.Error("no epoch of the log could begin: slaves are not served until this is over", "err", err)
}

// passes tells whether what a broker could not write may be written later, when there is
// space on its disk, or its store is repaired: no reason not to serve reads.
func passes(err error) bool {
	return store.IsDiskFull(err) || errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrReadOnly)
}

// deliver delivers delayed messages for as long as a duty lasts.
func (r *brokerRun) deliver(d *duty) {
	if s := r.openDelays(r.progress); s != nil {
		d.loops.Go(func() { s.Run(d.ctx) })
	}
}

// nextEpoch begins an epoch: what the log holds until now, and what it will hold, can be
// told apart by every slave, whatever either of them has lost.
func (r *brokerRun) nextEpoch(ctx context.Context) (*mastery, error) {
	epoch := max(r.lastEpoch(), ownPromises{r.replica}.Highest()) + 1
	if err := (ownPromises{r.replica}).Promise(ctx, epoch); err != nil {
		return nil, err
	}
	if err := r.store().BeginEpoch(ctx, epoch); err != nil {
		return nil, err
	}
	r.standing.Store(&standing{role: RoleMaster, epoch: epoch, id: protocol.MasterID})
	in := ha.InSyncConfig{InSyncReplicas: r.cfg.InSyncReplicas, MinInSync: r.cfg.MinInSyncReplicas}
	if r.cfg.Replication == SyncReplication {
		in.Acks = ha.AckCount
	}
	return r.newMastery(epoch, in)
}

// newMastery begins to give the log to slaves, under an epoch that has begun.
func (r *brokerRun) newMastery(epoch int64, in ha.InSyncConfig) (*mastery, error) {
	in.ID, in.Epoch, in.End, in.MaxLag = r.cfg.ID, epoch, r.store().Positions().Written, maxSlaveLag
	m := &mastery{epoch: epoch}
	var err error
	m.slaves, err = ha.NewSlaves(ha.SlavesConfig{
		Cluster: r.cfg.Cluster, Group: r.cfg.Name, Log: replicaLog{r}, InSync: in, SyncFlush: r.cfg.Flush == SyncFlush && !r.throwaway,
		Heartbeat: r.cfg.Timings.HAHeartbeat, Housekeeping: r.cfg.Timings.HAHousekeeping, TransferBytes: r.cfg.HATransferBytes,
		OnEvent: r.replicated, OnConfirmed: r.confirmed, OnAsk: func(ha.Change) { r.elections.Ask() },
	})
	if err != nil {
		return nil, err
	}
	r.master.Store(m)
	m.slaves.Written(r.store().Positions().Written) // what was written before anybody was told
	return m, nil
}

// maxSlaveLag is for how long a slave may lack something and still count as in sync.
// Java: haMaxTimeSlaveNotCatchup.
const maxSlaveLag = 15 * time.Second

func (r *brokerRun) serveSlaves(ctx context.Context, m *mastery, l net.Listener) {
	if err := m.slaves.Serve(ctx, l); err != nil {
		r.log.Error("slaves are served no more", "err", err)
	}
}

// lastEpoch is the last one of the log.
func (r *brokerRun) lastEpoch() int64 {
	epochs := r.store().Epochs()
	return epochs[len(epochs)-1].Number
}

// resumedListener is a listener that has accepted a connection already.
type resumedListener struct {
	net.Listener
	first net.Conn // handed out next; of the one goroutine that accepts
}

// Accept implements net.Listener.
func (l *resumedListener) Accept() (net.Conn, error) {
	if c := l.first; c != nil {
		l.first = nil
		return c, nil
	}
	return l.Listener.Accept()
}

// readable is the id of a slave from which a consumer can go on behind a position: the
// one that is wanted, else another one; that of the master when none has come that far.
func (m *mastery) readable(wanted, position int64) int64 {
	found := int64(protocol.MasterID)
	for _, s := range m.slaves.Status().Slaves {
		if s.Connected && s.Acked > position && (found == protocol.MasterID || s.ID == wanted) {
			found = s.ID
		}
	}
	return found
}

// slaveStatus is what the master knows of its slaves.
func (r *brokerRun) slaveStatus() (confirmed int64, list []SlaveStatus) {
	m := r.master.Load()
	if m == nil {
		return 0, nil
	}
	st := m.slaves.Status()
	for _, s := range st.Slaves {
		lag := s.Lag
		if s.LagRecords > 0 {
			if at, ok := r.store().LoggedAt(s.Lacks); ok {
				lag = max(0, time.Since(at))
			}
		}
		list = append(list, SlaveStatus{
			ID: s.ID, Connected: s.Connected, Addr: s.Addr, Acked: s.Acked, LagMessages: s.LagRecords, LagBytes: s.LagBytes, Lag: lag, InSync: s.InSync,
		})
	}
	return st.Confirmed, list
}

// confirmed makes what all of the in-sync set have readable, in a group with failover.
func (r *brokerRun) confirmed(position int64) {
	if !r.cfg.Failover {
		return
	}
	if err := r.store().SetConfirmed(position); err != nil && r.ctx.Err() == nil {
		r.log.Error("what is confirmed is not readable", "position", position, "err", err)
		r.elections.Resign()
	}
	r.noteMoved()
}

// replicated tells of what happens in replication.
func (r *brokerRun) replicated(e ha.Event) {
	switch e := e.(type) {
	case ha.SlaveConnected:
		r.log.Info("a slave follows", "slave", e.ID, "addr", e.Addr, "position", e.Position, "anew", e.Anew)
		r.events.emit(r.node, func(b EventBase) Event { return SlaveConnected{b, e.ID, e.Addr, e.Position} })
		r.wire.watch.changed(rolesChanged)
	case ha.SlaveDisconnected:
		level := slog.LevelWarn
		if r.ctx.Err() != nil || r.master.Load() == nil {
			level = slog.LevelInfo // it is the master that ends
		}
		r.log.Log(r.ctx, level, "a slave does not follow any more", "slave", e.ID, "addr", e.Addr, "err", e.Err)
		r.events.emit(r.node, func(b EventBase) Event { return SlaveDisconnected{b, e.ID, e.Addr, e.Err} })
	case ha.HigherEpoch:
		r.log.Warn("a slave knows of a later epoch", "slave", e.ID, "epoch", e.Epoch)
		if r.elections != nil {
			r.elections.Observe(e.Epoch)
		}
	case ha.MasterConnected:
		if r.elections == nil { // else the controller has said so
			at := r.standing.Load()
			r.standing.Store(&standing{role: at.role, epoch: e.Epoch, id: at.id})
		}
		r.log.Info("follows the master", "master", e.ID, "addr", e.Addr, "epoch", e.Epoch, "position", e.Position)
		r.events.emit(r.node, func(b EventBase) Event { return MasterFollowed{b, e.ID, e.Addr, e.Epoch, e.Position} })
		r.following()
	case ha.MasterDisconnected:
		r.leftBehind(e.Err)
		r.log.Warn("does not follow the master", "addr", e.Addr, "err", e.Err, "retry", e.Retry)
		r.events.emit(r.node, func(b EventBase) Event { return MasterLost{b, e.Addr, e.Err} })
		r.wire.watch.changed(rolesChanged)
	case ha.Truncated:
		if e.Confirmed > 0 {
			r.log.Warn("confirmed messages were cut off, which the master does not have: an operator had it elected without them", "from", e.From, "to", e.To, "epoch", e.Epoch, "confirmed", e.Confirmed)
		} else {
			r.log.Warn("the end of the log was cut off, which the master does not have", "from", e.From, "to", e.To, "epoch", e.Epoch)
		}
		r.events.emit(r.node, func(b EventBase) Event { return Truncated{b, e.From, e.To, e.Epoch} })
	case ha.Restarted:
		r.renounced.Store(false)
		r.log.Warn("the log begins anew", "from", e.From, "position", e.Position, "epoch", e.Epoch, "err", e.Err)
		r.events.emit(r.node, func(b EventBase) Event { return LogRestarted{b, e.From, e.Position, e.Epoch, e.Err} })
	}
}

// mayAppend refuses what could not be acknowledged as it has to be: nil, or a refusal
// that stores nothing. m is who waits for the acknowledgements: the broker may be fenced
// before it has written. lonely tells that it is to be stored but will not have the
// acknowledgements that it wants.
func (r *brokerRun) mayAppend() (m *mastery, lonely bool, err error) {
	if r.cfg.Replication != SyncReplication {
		return nil, false, nil
	}
	m = r.master.Load()
	switch {
	case m == nil && r.cfg.Failover:
		return nil, false, r.notMaster(protocol.CodeSendMessage)
	case m == nil && r.cfg.MinInSyncReplicas > 1:
		return nil, false, protocol.Errorf(protocol.SystemError, "%s: slaves are not served, see the log (BrokerConfig.MinInSyncReplicas is %d); nothing is stored", protocol.RemarkInSync, r.cfg.MinInSyncReplicas)
	case m == nil:
		return nil, true, nil
	}
	err = m.slaves.MayAppend()
	var few *ha.TooFewError
	if err != nil && r.cfg.MinInSyncReplicas > 1 && !(errors.As(err, &few) && few.Enough) {
		// Java: IN_SYNC_REPLICAS_NOT_ENOUGH
		return m, false, protocol.Errorf(protocol.SystemError, "%s: %v (BrokerConfig.MinInSyncReplicas is %d); nothing is stored, look after the slaves", protocol.RemarkInSync, err, r.cfg.MinInSyncReplicas)
	}
	return m, err != nil, nil
}

// awaitSlaves waits until what ends at a position is acknowledged by as many members as
// are wanted.
func (r *brokerRun) awaitSlaves(ctx context.Context, m *mastery, position int64, lonely bool) error {
	if lonely {
		return protocol.Errorf(protocol.SlaveNotAvailable, "stored at %s, but fewer slaves follow than have to have it (BrokerConfig.InSyncReplicas is %d, the master counts)", r.cfg.Name, r.cfg.InSyncReplicas)
	}
	limit := r.cfg.Timings.ReplicationTimeout
	if until, ok := ctx.Deadline(); ok {
		// The answer is to come while its caller still waits for it: who hears nothing
		// sends again, and the message is there twice.
		limit = min(limit, time.Until(until)*9/10)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := m.slaves.Wait(ctx, position)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ha.ErrStopped):
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s is not the master of %s any more, or is closed; whether the message stays is open", r.node, r.cfg.Name)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return protocol.Errorf(protocol.FlushSlaveTimeout, "stored at %s, but not acknowledged by its slaves within %v: %v", r.cfg.Name, limit.Round(time.Millisecond), err)
}

// haAddr is where slaves connect, "" when none do.
func (r *brokerRun) haAddr() string {
	if r.door == nil {
		return ""
	}
	return r.door.listener.Addr().String()
}

// openDoor listens for slaves.
func (r *brokerRun) openDoor(ctx context.Context) error {
	l, err := r.cfg.Transport.ListenStream(ctx, protocol.Listen{Node: r.node, Addr: r.cfg.HAAddr, Advertise: r.cfg.AdvertiseAddr})
	if err != nil {
		return fmt.Errorf("listen for slaves: %w", err)
	}
	r.door = &door{listener: l}
	r.loops.Go(r.door.run)
	return nil
}
