package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// copyLoop copies what is not in the log of the master, until ctx ends: at once when the
// slave begins to follow, then every SlaveSync; what has failed sooner,
// from 50 ms on up to RouteRetry. Java: SlaveSynchronize.
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
	t := time.NewTimer(r.cfg.Timings.SlaveSync)
	defer t.Stop()
	said := ""
	again := time.Duration(0)
	for {
		round, whole := c.round, true
		select {
		case <-ctx.Done():
			return
		case <-r.moved:
			if c.offsets == nil && c.delays == nil {
				continue
			}
			round, whole = c.apply, false
		case <-r.copyNow:
		case <-t.C:
		}
		at, err := r.findMaster(ctx)
		if err == nil && (c.conn == nil || addr != at.addr) {
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
		if whole && !r.copied.Swap(true) {
			r.wire.watch.changed(rolesChanged)
		}
		switch {
		case err != nil:
			again = min(max(2*again, 50*time.Millisecond), r.cfg.Timings.RouteRetry, r.cfg.Timings.SlaveSync)
			t.Reset(again)
		case whole:
			again = 0
			t.Reset(r.cfg.Timings.SlaveSync)
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
// have learned of it since the broker's last registration; and of a group that elects
// they may know a former one only.
func (r *brokerRun) findMaster(ctx context.Context) (*masterAt, error) {
	want := r.standing.Load().ha
	known := func() *masterAt {
		if at := r.reg.master.Load(); at != nil && (want == "" || at.ha == want) {
			return at
		}
		return nil
	}
	if at := known(); at != nil {
		return at, nil
	}
	err := r.reg.register(ctx, registerTimeout)
	if at := known(); at != nil {
		return at, nil
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("where the master of %s is, nobody says: %w", r.cfg.Name, err)
	case r.reg.master.Load() != nil:
		return nil, fmt.Errorf("the name servers know a former master of %s only: %w", r.cfg.Name, ErrNoRoute)
	}
	return nil, fmt.Errorf("no name server knows a master of %s: %w", r.cfg.Name, ErrNoRoute)
}

// noteMoved tells copyLoop that the log of the slave has grown, and delayLog.Sync that
// more of the master's is confirmed. Of the two only one is there.
func (r *brokerRun) noteMoved() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}
