package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// Check verifies the whole store: checksums, dense offsets, and that queues
// and log say the same. It reads everything and may run beside traffic. At a slave
// whose log begins anew, or is cut, it waits for that.
func (b *Broker) Check(ctx context.Context) error {
	for {
		if err := b.life.use(); err != nil {
			return err
		}
		r := b.run.Load()
		s := r.store()
		err := s.Check(ctx)
		changing := r.changing.Load()
		if !errors.Is(err, store.ErrClosed) || changing == nil {
			return err
		}
		select {
		case <-*changing:
		case <-ctx.Done():
			return ctx.Err()
		}
		if r.store() == s { // it could not be changed, or the broker ends
			if ended := b.life.use(); ended != nil {
				return ended
			}
			return err
		}
	}
}

// fenced gives what stopped a store the public sentinel: a failed write or
// sync, damage found when it was opened, or a full disk.
func fenced(err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrDiskFull):
		return protocol.Tagged(err.Error(), ErrFenced, err)
	case !errors.Is(err, store.ErrFenced):
		return protocol.Tagged(strings.Replace(err.Error(), "(Config.", "(BrokerConfig.", 1), ErrDiskFull, err)
	}
	return protocol.Tagged(err.Error(), ErrDiskFull, ErrFenced, err)
}

// refusal says why the store takes no messages, for senders and in Status.
func (b *Broker) refusal(err error) string {
	var full *store.DiskFullError
	if errors.As(err, &full) {
		return fmt.Sprintf("%s refuses sends: %d MiB free on %s, minimum %d MiB (BrokerConfig.MinFreeBytes); reads go on",
			b.cfg.Name, full.Free>>20, full.Dir, full.Min>>20)
	}
	return err.Error() + "; reads go on"
}

// Status returns a snapshot; before Start it says that the broker is not
// started.
func (b *Broker) Status() BrokerStatus {
	r := b.run.Load()
	if r == nil {
		return BrokerStatus{Reason: ErrNotStarted.Error()}
	}
	pos := r.store().Positions()
	now := time.Now()
	st := BrokerStatus{
		MinPosition: pos.Min, WrittenPosition: pos.Written, SyncedPosition: pos.Synced, DispatchedPosition: pos.Dispatched,
		Cut: r.store().Cut(), HeldPulls: r.waiters.Held(), Connections: int(r.conns.Load()),
		PutRate: r.puts.perSecond(now), GetRate: r.gets.perSecond(now),
		Err: fenced(r.store().Err()), Damage: r.store().Damage(),
		Role: b.Role(), Epoch: r.standing.Load().epoch,
	}
	st.ConfirmedPosition, st.Slaves = r.slaveStatus()
	if f := r.receiver.Load(); f != nil {
		at := f.Status()
		st.ConfirmedPosition = at.Confirmed
		st.Master = MasterStatus{Connected: at.Connected, Addr: at.Addr, Epoch: at.Epoch, End: at.MasterEnd, Err: at.Err}
	}
	unsaved := r.unsaved.Load()
	switch err := b.life.use(); {
	case err != nil:
		st.Reason = err.Error()
	case b.gate.isShut():
		st.Reason = "paused; Cluster.Resume lets it go on"
	case unsaved != nil:
		st.Reason = (*unsaved).Error()
	case st.Err != nil:
		st.Reason = b.refusal(st.Err)
	case r.standing.Load().fenced:
		st.Reason = "the controller of the group has not told it a role"
	case st.Role != RoleMaster:
		st.Reason = "a slave takes no messages"
	case r.draining.Load():
		st.Reason = "shutting down"
	default:
		if err := r.store().Behind(); err != nil {
			st.Reason = err.Error() + "; reads go on"
			break
		}
		if err := r.mayAnswer(st.Epoch); err != nil {
			st.Reason = err.Error()
			break
		}
		if _, _, err := r.mayAppend(); err != nil {
			st.Reason = err.Error()
			break
		}
		st.Writable = true
	}
	return st
}

// Group returns a snapshot of a consumer group as this broker sees it, without
// asking anybody; false when the broker has never heard of it. Cluster.WaitGroup
// waits for one, Admin.Group asks all brokers and the members.
func (b *Broker) Group(name string) (GroupStatus, bool) {
	if b.life.use() != nil {
		return GroupStatus{}, false
	}
	return b.run.Load().groupStatus(name)
}
