package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// copyLoop copies what is not in the log of the master, until ctx ends: at once when the
// slave begins to follow, then every SlaveSync. Java: SlaveSynchronize.
func (r *brokerRun) copyLoop(ctx context.Context) {
	c := &metadataCopy{r: r}
	addr := ""
	hangUp := func() {
		if c.conn != nil {
			_ = c.conn.Close() // there is nothing to be lost
		}
		c.conn, c.offsets, c.delays = nil, nil, nil // what waits is of another session
	}
	defer hangUp()
	t := time.NewTicker(r.cfg.Timings.SlaveSync)
	defer t.Stop()
	said := ""
	for {
		round := c.round
		select {
		case <-ctx.Done():
			return
		case <-r.moved:
			if c.offsets == nil && c.delays == nil {
				continue
			}
			round = c.apply
		case <-r.copyNow:
		case <-t.C:
		}
		err := r.findMaster(ctx)
		if at := r.reg.master.Load(); err == nil && (c.conn == nil || addr != at.addr) {
			hangUp()
			addr = at.addr
			err = r.bounded(ctx, func(ctx context.Context) (err error) {
				c.conn, err = r.cfg.Transport.DialBroker(ctx, protocol.Dial{Node: r.node, Addr: addr})
				return err
			})
		}
		if err == nil {
			err = r.bounded(ctx, round)
		}
		var answered *protocol.Error
		if err != nil && !errors.As(err, &answered) {
			hangUp()
			r.reg.master.Store(nil) // it may be somewhere else by now
		}
		switch {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said: // once, until it works again
			said = err.Error()
			r.log.Warn("what the master has beside its log was not copied", "err", err)
		}
	}
}

func (r *brokerRun) bounded(ctx context.Context, round func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.Timings.SlaveSync, time.Second))
	defer cancel()
	return round(ctx)
}

// findMaster asks the name servers where the master is, unless that is known. They may
// have learned of it since the broker's last registration.
func (r *brokerRun) findMaster(ctx context.Context) error {
	if r.reg.master.Load() != nil {
		return nil
	}
	err := r.reg.register(ctx, registerTimeout)
	switch {
	case r.reg.master.Load() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("where the master of %s is, nobody says: %w", r.cfg.Name, err)
	}
	return fmt.Errorf("no name server knows a master of %s: %w", r.cfg.Name, ErrNoRoute)
}

// noteMoved tells copyLoop that the log of the slave has grown, and delayLog.Sync that
// more of the master's is confirmed. Of the two only one is there.
func (r *brokerRun) noteMoved() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}
