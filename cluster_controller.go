package pocketmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// controllerFolder is in ClusterConfig.Dir and holds a file for each group that elects
// its master.
const controllerFolder = "controller"

// controllerNode names a group's controller at the transport and in events.
func controllerNode(group string) string { return "controller/" + group }

// controller is the controller of one group, over all its lives. Java:
// ControllerManager.
type controller struct {
	group     string
	transport Transport
	config    ha.ControllerConfig
	path      string // of the file
	file      *statefile.File
	disk      *store.Disk // that the file is on: it holds still while the controller is paused
	throwaway bool
	events    *emitter
	watch     *groupWatch
	log       *slog.Logger

	mu   sync.Mutex // guards what follows
	addr string     // where it listens, or did
	run  *controllerRun

	losses int // unclean elections that were told; of the goroutine of the run
}

// controllerRun is one life of a controller.
type controllerRun struct {
	gate   gate
	server *ha.ControllerServer
	cancel context.CancelFunc
	loop   sync.WaitGroup
}

func (c *Cluster) newController(g BrokerGroup, t Timings) *controller {
	path := filepath.Join(c.dir, controllerFolder, g.Name+".json")
	config := ha.ControllerConfig{Lease: t.LeaseExpire, Renew: t.LeaseRenew, First: protocol.MasterID}
	for id := range int64(1 + g.Slaves) {
		config.Members = append(config.Members, id)
	}
	ctl := &controller{
		group: g.Name, transport: c.transport, config: config,
		file: statefile.New(path, c.throwaway), path: path, disk: new(store.Disk), throwaway: c.throwaway,
		events: c.wire.events, watch: c.wire.watch, log: c.log.With("node", controllerNode(g.Name)),
	}
	ctl.file.On(ctl.disk)
	return ctl
}

// start begins a life, at the address of the one before.
func (c *controller) start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil {
		return fmt.Errorf("the controller of %s is running: KillController first", c.group)
	}
	server, err := ha.NewControllerServer(ha.ControllerServerConfig{Controller: c.config, Store: controllerStore{c.file, c.path}, OnEvent: c.happened})
	if err != nil {
		return fmt.Errorf("controller of %s: %w", c.group, err)
	}
	c.disk.Release() // the last life may have ended paused
	run := &controllerRun{gate: gate{disk: c.disk}, server: server}
	l, err := pausable{c.transport, &run.gate}.ListenStream(ctx, protocol.Listen{Node: controllerNode(c.group), Addr: c.addr})
	if err != nil {
		return fmt.Errorf("controller of %s: %w", c.group, err)
	}
	c.addr = l.Addr().String()
	c.losses = len(server.State().Losses)
	ctx, run.cancel = context.WithCancel(context.WithoutCancel(ctx))
	run.loop.Go(func() {
		if err := server.Serve(ctx, l); err != nil {
			c.log.Error("the controller serves no more", "err", err)
		}
	})
	c.run = run
	c.log.Info("controller serves", "addr", c.addr)
	return nil
}

// stop ends a life; false: there was none.
func (c *controller) stop() bool {
	c.mu.Lock()
	run := c.run
	c.run = nil
	c.mu.Unlock()
	if run == nil {
		return false
	}
	run.gate.end()
	run.cancel()
	run.loop.Wait()
	c.watch.changed(rolesChanged)
	return true
}

// running is the present life; nil between two lives.
func (c *controller) running() *controllerRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.run
}

// server is what serves in the present life; nil between two lives.
func (c *controller) server() *ha.ControllerServer {
	if run := c.running(); run != nil {
		return run.server
	}
	return nil
}

// where is the controller's address.
func (c *controller) where() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addr
}

// happened tells of what the controller has done.
func (c *controller) happened(e ha.ControllerEvent) {
	if e.Err != nil {
		c.log.Error("the controller cannot store its state: nobody is elected meanwhile", "err", e.Err)
		return
	}
	defer c.watch.changed(rolesChanged)
	for _, l := range e.State.Losses[min(c.losses, len(e.State.Losses)):] {
		c.log.Error("a broker was elected that may lack what was acknowledged", "broker", nodeName(c.group, l.ID), "epoch", l.Epoch)
		c.events.emit(controllerNode(c.group), func(b EventBase) Event { return UncleanElection{b, c.group, l.ID, l.Epoch} })
	}
	c.losses = len(e.State.Losses)
	if e.Lost > 0 {
		if e.Stuck != "" {
			c.log.Error("nobody is elected before an operator chooses the master (Cluster.ElectUnclean): a broker knows of epochs or messages of which the controller or the first master does not", "epoch", e.Lost, "why", e.Stuck)
		}
		return
	}
	s := e.State
	c.log.Info("controller has stored", "epoch", s.Epoch, "master", s.Master, "masterEpoch", s.MasterEpoch, "pending", s.Pending, "set", s.Set, "setEpoch", s.SetEpoch)
}

// controllerStore keeps the state of a controller in a file.
type controllerStore struct {
	file *statefile.File
	path string // of the file
}

var _ ha.ControllerStore = controllerStore{}

// Load implements ha.ControllerStore. The version before the last one is no state of a
// controller: what it has promised since would be forgotten.
func (s controllerStore) Load() (*ha.ControllerState, error) {
	data, found, err := s.file.Load()
	if errors.Is(err, statefile.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w; without one, %s", ha.ErrBadState, err, startsWithoutState)
	}
	if err != nil || !found {
		return nil, err
	}
	if s.file.Damaged() != nil {
		return nil, fmt.Errorf("%w: %s is missing or damaged, and the version before it, beside it with .bak, is not used: what was promised since would be forgotten; put the newest copy of the file back; without one, %s", ha.ErrBadState, s.path, startsWithoutState)
	}
	state := new(ha.ControllerState)
	if err := json.Unmarshal(data, state); err != nil {
		return nil, fmt.Errorf("%w: %w", ha.ErrBadState, err)
	}
	return state, nil
}

// startsWithoutState is the remedy when the state of a controller is lost.
const startsWithoutState = "BrokerConfig.ElectUncleanMaster (pocketmq serve -elect-unclean) elects the member with the longest log, under an epoch that none of them has promised"

// setAside takes files that hold no state out of the way, so that the controller begins
// without one. The next life of it may need neither; somebody may want to look at them.
func (c *controller) setAside() error {
	_, err := controllerStore{c.file, c.path}.Load()
	if !errors.Is(err, ha.ErrBadState) {
		return nil // it is good, or absent, or start says what is wrong
	}
	for _, path := range []string{c.path, c.path + ".bak"} {
		to := path + ".damaged"
		switch err := os.Rename(path, to); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("controller of %s: %w", c.group, err)
		default:
			c.log.Error("the controller begins without a state, which is damaged", "file", path, "kept", to)
		}
	}
	c.file = statefile.New(c.path, c.throwaway)
	c.file.On(c.disk)
	return nil
}

// Save implements ha.ControllerStore.
func (s controllerStore) Save(state ha.ControllerState) error {
	data, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return s.file.Save(data)
}

// controllerOf is the controller of a group, nil when it has none.
func (c *Cluster) controllerOf(group string) *controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.controllers[group]
}

// startController starts the controller of a group that elects its master.
func (c *Cluster) startController(ctx context.Context, g BrokerGroup) error {
	if !g.Config.Failover {
		return nil
	}
	ctl := c.newController(g, g.Config.Timings.over(c.cfg.Timings))
	if g.Config.ElectUncleanMaster {
		if err := ctl.setAside(); err != nil {
			return err
		}
	}
	if err := ctl.start(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.controllers[g.Name] = ctl
	c.mu.Unlock()
	return nil
}

// awaitRole waits until done: it looks again whenever a broker of the cluster has got
// another role.
func (c *Cluster) awaitRole(ctx context.Context, done func() bool) error {
	w := c.wire.watch.watch(rolesChanged)
	defer c.wire.watch.end(w)
	for {
		if done() {
			return nil
		}
		select {
		case <-w.woken:
		case <-c.ctx.Done():
			return fmt.Errorf("%s: %w", c.life.what, ErrClosed)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rolesChanged is what watchers of roles watch: no group of consumers has such a name.
const rolesChanged = "/roles"

// awaitFollowers waits until the slaves of a group follow its master and know its topics,
// or know why they cannot: a send would find fewer than it wants, and a consumer that goes
// to a slave nothing.
func (c *Cluster) awaitFollowers(ctx context.Context, g BrokerGroup) error {
	err := c.awaitRole(ctx, func() bool {
		_, follow := c.Broker(g.Name, protocol.MasterID).run.Load().slaveStatus()
		for id := range int64(g.Slaves) {
			connected := slices.ContainsFunc(follow, func(s SlaveStatus) bool { return s.ID == id+1 && s.Addr != "" })
			if r := c.Broker(g.Name, id+1).run.Load(); !(connected && r.copied.Load()) && r.receiver.Load().Status().Err == nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("the slaves of %s do not follow their master: %w", g.Name, err)
	}
	return nil
}

// stopControllers ends all controllers.
func (c *Cluster) stopControllers() {
	c.mu.Lock()
	list := make([]*controller, 0, len(c.controllers))
	for _, ctl := range c.controllers {
		list = append(list, ctl)
	}
	c.mu.Unlock()
	for _, ctl := range list {
		ctl.stop()
	}
}
