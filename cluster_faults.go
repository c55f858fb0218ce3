package pocketmq

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// Kill stops a broker as a crash of its process would: what was written stays,
// nothing more is flushed or said, its sessions are reset, callers in flight
// get ErrUnknownOutcome, locks and files are let go.
func (c *Cluster) Kill(group string, id int64) error {
	return c.change(context.Background(), func(context.Context) error {
		b, err := c.running(group, id)
		if err != nil {
			return err
		}
		return b.kill()
	})
}

// PowerOff stops a broker as a loss of power would: as Kill, and then every byte
// of its folder that no fsync had covered is gone, and files whose names no sync
// of their folder had covered vanish. What SyncFlush acknowledged is there at the
// next Restart, of the rest what was written until Timings.FlushInterval before.
//
// A cluster without ClusterConfig.Dir never syncs: ErrNotSupported, and the
// broker serves on.
func (c *Cluster) PowerOff(group string, id int64) error {
	return c.change(context.Background(), func(context.Context) error {
		if c.throwaway {
			return fmt.Errorf("power off broker %s: a throwaway cluster never syncs, so nothing would be left; give ClusterConfig.Dir a folder: %w", nodeName(group, id), ErrNotSupported)
		}
		b, err := c.running(group, id)
		if err != nil {
			return err
		}
		return b.powerOff()
	})
}

// Pause stops a broker as a signal stops its process (kill -STOP), or as a machine
// that hangs does: its connections stay, but it answers nothing, asks nothing, sends
// its slaves nothing, and neither writes nor syncs; callers run into their deadlines.
// Resume lets it go on. A broker that is paused already stays so.
//
// Its timers run on, as a process that is let go on finds them run out. What its
// clients send meanwhile is served afterwards, unless they have given up by then:
// that is not served, or its answer is lost. Close, Kill, PowerOff and Shutdown of a
// paused broker work at once. What it says of itself can be asked: Broker.Status says
// that it is paused.
func (c *Cluster) Pause(group string, id int64) error {
	return c.change(context.Background(), func(context.Context) error {
		b, err := c.running(group, id)
		if err == nil {
			b.pause()
		}
		return err
	})
}

// Resume lets a broker that was paused go on (kill -CONT): as one that has slept, it
// finds what was sent to it, and that it is late.
func (c *Cluster) Resume(group string, id int64) error {
	return c.change(context.Background(), func(context.Context) error {
		b, err := c.running(group, id)
		if err == nil {
			b.resume()
		}
		return err
	})
}

// SlowDisk makes each write to a broker's commit log and to its state files (topics,
// groups, offsets, delays, what it has promised in elections), and each fsync of them,
// take that much longer, from now on and after a Restart. 0 ends it, for what is under
// way, too. One write carries what many senders had to say, as always; a send to a broker
// with SyncFlush needs a write and an fsync, a change of a topic or a group a write and
// two fsyncs. A cluster without ClusterConfig.Dir never syncs. Less than 0 is
// ErrInvalidConfig.
func (c *Cluster) SlowDisk(group string, id int64, perOperation time.Duration) error {
	if perOperation < 0 {
		return protocol.Tagged(fmt.Sprintf("slow disk of %s: perOperation is %v, must be 0 (no longer slow) or more", nodeName(group, id), perOperation), ErrInvalidConfig)
	}
	return c.harm(group, id, func(d *store.Disk) { d.Slow(perOperation) })
}

// FullDisk makes the disk of a broker full, from now on and after a Restart: what
// needs space fails as on a real one (ENOSPC). Sends are refused with ErrDiskFull,
// topics and groups can't be changed, and commits are kept in memory and stored once
// there is space; reads go on, and what was written is synced. A broker in a folder that
// is kept sees it within 10 s, before anything fails (BrokerConfig.MinFreeBytes);
// without, or if a send is faster, a write fails, and the broker repairs itself within
// 10 s after there is space again: the event StoreFenced, then StoreRepaired.
//
// With false there is space again. A broker that is closed while its disk is full
// reports what it could not write. The end of the cluster ends it first.
func (c *Cluster) FullDisk(group string, id int64, full bool) error {
	return c.harm(group, id, func(d *store.Disk) { d.Full(full) })
}

// harm does something to the disk of a member, whether it runs or not.
func (c *Cluster) harm(group string, id int64, do func(*store.Disk)) error {
	if err := c.life.use(); err != nil {
		return err
	}
	m := c.member(group, id)
	if m == nil {
		return c.noMember(group, id)
	}
	do(&m.disk)
	return nil
}

// running returns a member that serves.
func (c *Cluster) running(group string, id int64) (*Broker, error) {
	b := c.Broker(group, id)
	if b == nil {
		return nil, c.noMember(group, id)
	}
	if b.life.use() != nil {
		return nil, fmt.Errorf("broker %s is not running", nodeName(group, id))
	}
	return b, nil
}

func (c *Cluster) noMember(group string, id int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, m := range c.members {
		names = append(names, nodeName(m.group, m.id))
	}
	return fmt.Errorf("the cluster has no broker %s, it has %s: %w", nodeName(group, id), strings.Join(names, ", "), ErrNotFound)
}

// Restart starts a broker that was killed or closed again, with the same
// address, folder and config. It returns when the broker is routable at every
// name server that runs and can be reached; when some run and none can be
// reached it fails.
func (c *Cluster) Restart(ctx context.Context, group string, id int64) error {
	return c.change(ctx, func(ctx context.Context) error {
		m := c.member(group, id)
		if m == nil {
			return c.noMember(group, id)
		}
		if b := c.Broker(group, id); b != nil && b.life.use() == nil {
			return fmt.Errorf("broker %s is running: Kill or Close it first", nodeName(group, id))
		}
		return c.startMember(ctx, m, false)
	})
}

// KillNameServer stops name server i as a crash would: sessions are reset.
func (c *Cluster) KillNameServer(i int) error {
	return c.change(context.Background(), func(context.Context) error {
		s := c.NameServer(i)
		switch {
		case s == nil:
			return fmt.Errorf("the cluster has no name server %d: %w", i, ErrNotFound)
		case s.life.use() != nil:
			return fmt.Errorf("name server %d is not running", i)
		}
		return s.Close()
	})
}

// RestartNameServer starts name server i again at the same address, with its KV
// configuration and without routes: brokers are there again once they register
// next, within Timings.BrokerRegister.
func (c *Cluster) RestartNameServer(ctx context.Context, i int) error {
	return c.change(ctx, func(ctx context.Context) error {
		s := c.NameServer(i)
		switch {
		case s == nil:
			return fmt.Errorf("the cluster has no name server %d: %w", i, ErrNotFound)
		case s.life.use() == nil:
			return fmt.Errorf("name server %d is running: KillNameServer first", i)
		}
		_, err := c.startNameServer(ctx, i, s.Addr())
		return err
	})
}

// PauseNameServer stops name server i as Pause stops a broker: its connections stay, and
// it answers nothing. Brokers and clients that ask it run into their deadlines, and go on
// with another one. ResumeNameServer lets it go on; what nobody waits for any more by
// then is not served. KillNameServer and the end of the cluster work at once. Errors:
// ErrNotFound for one that the cluster does not have.
func (c *Cluster) PauseNameServer(i int) error {
	return c.withNameServer(i, func(s *NameServer) {
		s.gate.shut()
		s.log.Info("name server paused")
	})
}

// ResumeNameServer lets a name server that was paused go on. It has the routes that it
// had; brokers have registered anew within Timings.BrokerRegister.
func (c *Cluster) ResumeNameServer(i int) error {
	return c.withNameServer(i, func(s *NameServer) {
		s.gate.open()
		s.log.Info("name server goes on")
	})
}

// withNameServer does something to a name server that runs.
func (c *Cluster) withNameServer(i int, do func(*NameServer)) error {
	return c.change(context.Background(), func(context.Context) error {
		s := c.NameServer(i)
		switch {
		case s == nil:
			return fmt.Errorf("the cluster has no name server %d: %w", i, ErrNotFound)
		case s.life.use() != nil:
			return fmt.Errorf("name server %d is not running", i)
		}
		do(s)
		return nil
	})
}

// KillController stops the controller of a group as a crash would. A master serves on
// for as long as its lease runs. Errors: ErrNotFound for a group without one.
func (c *Cluster) KillController(group string) error {
	return c.change(context.Background(), func(context.Context) error {
		ctl := c.controllerOf(group)
		switch {
		case ctl == nil:
			return fmt.Errorf("group %s has no controller (BrokerConfig.Failover): %w", group, ErrNotFound)
		case !ctl.stop():
			return fmt.Errorf("the controller of %s is not running", group)
		}
		return nil
	})
}

// RestartController starts the controller of a group again, at the same address, with
// what it has stored.
func (c *Cluster) RestartController(ctx context.Context, group string) error {
	return c.change(ctx, func(ctx context.Context) error {
		ctl := c.controllerOf(group)
		if ctl == nil {
			return fmt.Errorf("group %s has no controller (BrokerConfig.Failover): %w", group, ErrNotFound)
		}
		return ctl.start(ctx)
	})
}

// PauseController stops the controller of a group as Pause stops a broker: its
// connections stay, it says nothing and stores nothing, so that nobody is elected. A
// master serves on for as long as its lease runs. ResumeController lets it go on;
// KillController and the end of the cluster work at once. Errors: ErrNotFound for a group
// without one.
func (c *Cluster) PauseController(group string) error {
	return c.withController(group, func(ctl *controller, run *controllerRun) {
		run.gate.shut()
		ctl.log.Info("controller paused")
	})
}

// ResumeController lets a controller that was paused go on, with what it knew. When the
// lease of the master has run out meanwhile there may be an election.
func (c *Cluster) ResumeController(group string) error {
	return c.withController(group, func(ctl *controller, run *controllerRun) {
		run.gate.open()
		ctl.log.Info("controller goes on")
	})
}

// withController does something to the controller of a group that runs.
func (c *Cluster) withController(group string, do func(*controller, *controllerRun)) error {
	return c.change(context.Background(), func(context.Context) error {
		ctl := c.controllerOf(group)
		if ctl == nil {
			return fmt.Errorf("group %s has no controller (BrokerConfig.Failover): %w", group, ErrNotFound)
		}
		run := ctl.running()
		if run == nil {
			return fmt.Errorf("the controller of %s is not running", group)
		}
		do(ctl, run)
		return nil
	})
}

// Inject puts a Fault before the handlers of all name servers and brokers.
func (c *Cluster) Inject(f Fault) *FaultHandle { return c.wire.faults.inject(f) }
