package pocketmq

import (
	"context"
	"net"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
)

// serveAsSlave begins the duty of a slave without failover: it follows the log of its master, and
// copies what is not in the log.
func (r *brokerRun) serveAsSlave() error {
	f, err := ha.NewReceiver(ha.ReceiverConfig{
		Cluster: r.cfg.Cluster, Group: r.cfg.Name, ID: r.cfg.ID, Incarnation: newIncarnation(),
		Log: replicaLog{r}, Promises: ownPromises{r.replica}, Dial: r.dialMaster, FromLastFile: r.cfg.SyncFromLastFile,
		Heartbeat: r.cfg.Timings.HAHeartbeat, Housekeeping: r.cfg.Timings.HAHousekeeping, Redial: r.cfg.Timings.HARedial,
		OnEvent: r.replicated,
	})
	if err != nil {
		return err
	}
	r.standing.Store(&standing{role: RoleSlave, epoch: r.lastEpoch(), id: r.cfg.ID})
	r.receiver.Store(f)
	r.followMetadata()
	d := r.newDuty()
	r.duty = d
	d.loops.Go(func() { f.Run(d.ctx) })
	d.loops.Go(func() { r.copyLoop(d.ctx) })
	return nil
}

// dialMaster connects to the master's log, where the name servers say that it is. One
// that they do not know yet, or that has moved, may have registered meanwhile.
func (r *brokerRun) dialMaster(ctx context.Context) (net.Conn, error) {
	if at := r.reg.master.Load(); at != nil {
		conn, err := r.cfg.Transport.DialStream(ctx, protocol.Dial{Node: r.node, Addr: at.ha})
		if err == nil {
			return conn, nil
		}
	}
	r.reg.master.Store(nil)
	at, err := r.findMaster(ctx)
	if err != nil {
		return nil, err
	}
	return r.cfg.Transport.DialStream(ctx, protocol.Dial{Node: r.node, Addr: at.ha})
}

// following is called when the slave has begun to follow: what is not in the log is
// copied at once.
func (r *brokerRun) following() {
	select {
	case r.copyNow <- struct{}{}:
	default:
	}
}
