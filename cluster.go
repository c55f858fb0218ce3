package pocketmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

const (
	defaultCluster = "DefaultCluster"
	defaultGroup   = "broker-a"

	// nameServerFolder is in ClusterConfig.Dir and holds the folders of name
	// servers. No broker's folder has such a name: they end in a number.
	nameServerFolder = "namesrv"

	// maxSlaves bounds the members of a group.
	maxSlaves = 15
)

// ClusterConfig configures a Cluster. Its zero value is one name server and
// one broker in memory, in a throwaway folder. It is copied by StartCluster.
type ClusterConfig struct {
	Name            string         // "" = "DefaultCluster"
	NameServers     int            // how many [1]
	NameServerAddrs []string       // their addresses; nil = chosen by the Transport
	Groups          []BrokerGroup  // nil = one group "broker-a"
	Topics          map[string]int // topic -> queues on each group; made before StartCluster returns. On reopening, missing ones are made and counts grow, never shrink. See BrokerConfig.Topics

	// Dir is the data root; each broker has the folder <Dir>/<group>-<id>, each
	// name server that keeps something <Dir>/namesrv/ns-<number>. "" = throwaway: a
	// temporary folder that Close removes, written without any fsync, directory
	// sync or metadata sync.
	Dir string

	Transport Transport    // nil = a new InMemory(); one that is given is not closed
	Timings   Timings      // of every member, and of every client started through the cluster
	Logger    *slog.Logger // nil = silent
	OnEvent   func(Event)  // events of all members and of clients started through the cluster, in order, from one goroutine
}

// BrokerGroup describes a broker group: a master, with id 0, and its slaves.
type BrokerGroup struct {
	Name   string
	Slaves int      // how many [0]; their ids count from 1
	Addrs  []string // by broker id; those that are missing are chosen by the Transport
	// Config is what every member shares. Name, ID, Cluster, Addr, HAAddr, Dir,
	// NameServers, Transport and OnEvent belong to the cluster and are refused. Fields of
	// Timings and Logger, when set, replace the cluster's. Topics are added to the
	// cluster's. AdvertiseAddr is a host without a port: each member has its own.
	Config BrokerConfig
}

// Cluster is a whole cluster in one process. Safe for concurrent use.
type Cluster struct {
	cfg       ClusterConfig
	transport Transport
	dir       string
	throwaway bool
	wire      wiring
	log       *slog.Logger
	label     string // pprof label of all its goroutines
	admin     *Admin
	life      life
	ctx       context.Context // ends when Close begins
	cancel    context.CancelFunc

	turn chan struct{} // 1 slot: one change of membership at a time

	mu          sync.Mutex // guards the fields below; leaf
	servers     []*NameServer
	controllers map[string]*controller // of groups that elect
	members     []*member
	clients     []clusterClient
}

// member is one broker, over all its lives.
type member struct {
	group  string
	id     int64
	alone  bool // the only one of its group
	cfg    BrokerConfig
	disk   store.Disk // what is done to its disk
	broker *Broker    // the latest instance
}

// clusterClient is a client that was started through the cluster.
type clusterClient struct {
	life          *life
	consumer      bool
	close         func() error
	shutdown      func(context.Context) error
	addNameServer func(addr string)
}

// clusterLabel is the pprof label that all goroutines of a cluster, and of
// clients started through it, carry.
const clusterLabel = "pocketmq-cluster"

// StartCluster starts a cluster and returns when every broker is routable at
// every name server, and slaves that have nothing to catch up on are in sync. On an error nothing is left running. ctx bounds the start
// only. In memory it takes no virtual time as long as no slave has to catch up.
func StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start cluster %s: %w", cfg.Name, err)
	}
	c := &Cluster{controllers: make(map[string]*controller), cfg: cfg, transport: cfg.Transport, dir: cfg.Dir, log: loggerOf(cfg.Logger), turn: make(chan struct{}, 1)}
	c.life.what = "cluster " + cfg.Name
	if l, ok := pprof.Label(ctx, clusterLabel); ok {
		c.label = l
	} else {
		c.label = rand.Text()
	}
	if err := c.life.start(ctx, c.open); err != nil {
		return nil, err
	}
	return c, nil
}

func (cfg ClusterConfig) withDefaults() (ClusterConfig, error) {
	p := problems{what: "ClusterConfig"}
	if cfg.Name == "" {
		cfg.Name = defaultCluster
	}
	checkName(&p, "Name", cfg.Name)
	if cfg.NameServers == 0 {
		cfg.NameServers = max(len(cfg.NameServerAddrs), 1)
	}
	nonNegative(&p, "NameServers", cfg.NameServers)
	if n := len(cfg.NameServerAddrs); n > 0 && n != cfg.NameServers {
		p.add("NameServers is %d, but NameServerAddrs has %d addresses", cfg.NameServers, n)
	}
	for i, a := range cfg.NameServerAddrs {
		checkAddr(&p, fmt.Sprintf("NameServerAddrs[%d]", i), a)
	}
	cfg.NameServerAddrs = slices.Clone(cfg.NameServerAddrs)
	cfg.Topics = checkTopics(&p, cfg.Topics, cfg.Name, "")
	cfg.Timings.validate(&p)
	cfg.Timings = cfg.Timings.withDefaults()
	if cfg.Transport == nil {
		cfg.Transport = InMemory()
	}
	if len(cfg.Groups) == 0 {
		cfg.Groups = []BrokerGroup{{Name: defaultGroup}}
	}
	cfg.Groups = slices.Clone(cfg.Groups)
	seen := make(map[string]bool)
	for i, g := range cfg.Groups {
		if seen[g.Name] {
			p.add("Groups: two groups are named %q", g.Name)
		}
		seen[g.Name] = true
		cfg.Groups[i].Addrs = slices.Clone(g.Addrs)
		cfg.checkGroup(&p, g)
	}
	return cfg, p.err()
}

// checkGroup reports what is wrong with one group.
func (cfg ClusterConfig) checkGroup(p *problems, g BrokerGroup) {
	own := problems{}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Name", g.Config.Name != ""}, {"ID", g.Config.ID != 0}, {"HAAddr", g.Config.HAAddr != ""}, {"Cluster", g.Config.Cluster != ""}, {"Addr", g.Config.Addr != ""},
		{"Dir", g.Config.Dir != ""}, {"NameServers", g.Config.NameServers != nil}, {"Transport", g.Config.Transport != nil},
		{"OnEvent", g.Config.OnEvent != nil},
	} {
		if f.set {
			own.add("Config.%s belongs to the cluster, leave it empty", f.name)
		}
	}
	if g.Config.Failover && g.Slaves == 0 {
		own.add("Config.Failover needs Slaves: who else is to become master")
	}
	if cfg.Dir == "" && g.Config.FreeBytes != nil {
		own.add("Config.FreeBytes is for clusters with a Dir: a throwaway one has no guard of the disk")
	}
	if g.Slaves < 0 || g.Slaves > maxSlaves {
		own.add("Slaves is %d, must be 0 to %d", g.Slaves, maxSlaves)
	} else {
		if len(g.Addrs) > 1+g.Slaves {
			own.add("Addrs has %d addresses for 1 master and %d slaves", len(g.Addrs), g.Slaves)
		}
		if !g.Config.Failover || g.Slaves > 0 { // or it is said already
			g.Config.checkMembers(&own, 1+g.Slaves)
		}
	}
	for _, a := range g.Addrs {
		checkAddr(&own, "Addrs", a)
		if isWildcard(a) && g.Config.AdvertiseAddr == "" {
			own.add("Addrs %s is a wildcard, which clients can't dial: set Config.AdvertiseAddr to an address of this machine", a)
		}
	}
	if at, err := netip.ParseAddrPort(g.Config.AdvertiseAddr); err == nil && at.Port() != 0 {
		own.add("Config.AdvertiseAddr %s has a port: members share the host and listen on ports of their own, leave it out", at)
	}
	if len(own.list) == 0 {
		c := g.Config
		c.Name = g.Name // the cluster's own name is checked once
		c.withDefaults(&own)
	}
	for _, text := range own.list {
		p.add("Groups[%q]: %s", g.Name, text)
	}
	p.kinds = append(p.kinds, own.kinds...)
}

func (c *Cluster) open(ctx context.Context) (err error) {
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = c.closeAll() // the error that stopped the start says more
		}
	}()
	if c.dir == "" {
		c.throwaway = true
		if c.dir, err = os.MkdirTemp("", "pocketmq-"); err != nil {
			return err
		}
	}
	if info, serr := os.Stat(c.dir); serr == nil && !info.IsDir() {
		return fmt.Errorf("%s is a file; ClusterConfig.Dir needs a folder, or a name to make one of", c.dir)
	}
	return c.do(ctx, func(ctx context.Context) error {
		c.wire = wiring{events: newEmitter(c.cfg.OnEvent), faults: &faults{}, watch: &groupWatch{}, shared: true}
		for i := range c.cfg.NameServers {
			addr := ""
			if len(c.cfg.NameServerAddrs) > 0 {
				addr = c.cfg.NameServerAddrs[i]
			}
			if _, err := c.startNameServer(ctx, i, addr); err != nil {
				return err
			}
		}
		if err := c.startGroups(ctx, c.cfg.Groups); err != nil {
			return err
		}
		admin, err := NewAdmin(AdminConfig{NameServers: c.NameServerAddrs(), Transport: c.transport, Logger: c.cfg.Logger})
		if err != nil {
			return err
		}
		c.admin = admin
		return admin.Start(ctx)
	})
}

// do runs f with the cluster's label on every goroutine that it starts.
func (c *Cluster) do(ctx context.Context, f func(context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels(clusterLabel, c.label), func(ctx context.Context) { err = f(ctx) })
	return err
}

// change runs f as the one change of membership, unless the cluster closes.
func (c *Cluster) change(ctx context.Context, f func(context.Context) error) error {
	if err := c.life.use(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return c.closedOr(ctx.Err())
	}
	defer func() { <-c.turn }()
	if err := c.life.use(); err != nil {
		return err
	}
	return c.closedOr(c.do(ctx, f))
}

// closedOr is err, or ErrClosed when the cluster closed meanwhile.
func (c *Cluster) closedOr(err error) error {
	if err != nil && c.ctx.Err() != nil {
		return fmt.Errorf("%s: %w", c.life.what, ErrClosed)
	}
	return err
}

func (c *Cluster) startNameServer(ctx context.Context, i int, addr string) (*NameServer, error) {
	name := fmt.Sprintf("ns-%d", i)
	s, err := newNameServer(NameServerConfig{
		Name: name, Addr: addr, Dir: filepath.Join(c.dir, nameServerFolder, name), NotifyMinBrokerID: true,
		Transport: c.transport, Timings: c.cfg.Timings, Logger: c.cfg.Logger,
	}, c.wire, c.throwaway)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i < len(c.servers) {
		c.servers[i] = s
	} else {
		c.servers = append(c.servers, s)
	}
	return s, nil
}

// startGroups starts gs at the same time, of each group the master first: then its
// slaves know at once whom to follow.
func (c *Cluster) startGroups(ctx context.Context, gs []BrokerGroup) error {
	eg, ctx := errgroup.WithContext(ctx)
	for _, g := range gs {
		members := make([]*member, 0, 1+g.Slaves)
		for id := range int64(1 + g.Slaves) {
			members = append(members, &member{group: g.Name, id: id, alone: g.Slaves == 0, cfg: c.memberConfig(g, id)})
		}
		c.mu.Lock()
		c.members = append(c.members, members...)
		c.mu.Unlock()
		eg.Go(func() error {
			start := func(m *member) error { return c.startMember(ctx, m, true) }
			if g.Config.Failover {
				if err := c.startController(ctx, g); err != nil {
					return err
				}
				if err := each(members, start); err != nil {
					return err
				}
				return c.awaitGroup(ctx, g)
			}
			if err := start(members[0]); err != nil {
				return err
			}
			if err := each(members[1:], start); err != nil {
				return err
			}
			return c.awaitFollowers(ctx, g)
		})
	}
	return eg.Wait()
}

func (c *Cluster) memberConfig(g BrokerGroup, id int64) BrokerConfig {
	cfg := g.Config
	cfg.Cluster, cfg.Name, cfg.ID = c.cfg.Name, g.Name, id
	if id < int64(len(g.Addrs)) {
		cfg.Addr = g.Addrs[id]
	}
	cfg.Dir = filepath.Join(c.dir, fmt.Sprintf("%s-%d", g.Name, id))
	cfg.NameServers = c.NameServerAddrs()
	cfg.Transport = c.transport
	cfg.Timings = cfg.Timings.over(c.cfg.Timings)
	if cfg.Logger == nil {
		cfg.Logger = c.cfg.Logger
	}
	topics := make(map[string]int, len(c.cfg.Topics)+len(cfg.Topics))
	for _, m := range []map[string]int{c.cfg.Topics, cfg.Topics} {
		for name, n := range m {
			topics[name] = max(topics[name], n)
		}
	}
	cfg.Topics = topics
	return cfg
}

// startMember starts a new instance of m. It has to be routable at every name
// server that runs, or, when the network may be broken on purpose, at one.
func (c *Cluster) startMember(ctx context.Context, m *member, everywhere bool) error {
	m.disk.Release() // the last life may have ended paused
	w := c.wire
	w.alone, w.disk = m.alone, &m.disk
	if ctl := c.controllerOf(m.group); ctl != nil {
		w.controller = ctl.where
	}
	b, err := newBroker(m.cfg, w, c.throwaway)
	if err != nil {
		return err
	}
	_, err = os.Stat(m.cfg.Dir)
	fresh := os.IsNotExist(err)
	if err := b.Start(ctx); err != nil {
		if fresh { // what a start that failed has made would be in the way of the next one
			err = errors.Join(err, os.RemoveAll(m.cfg.Dir))
		}
		return err
	}
	missing, running := c.notRoutable(b)
	if !m.cfg.Failover && len(missing) > 0 && (everywhere || len(missing) == running) {
		_ = b.Close() // the start has failed: say why
		return fmt.Errorf("%s did not get through to %s: %w", b.life.what, strings.Join(missing, ", "), ErrUnreachable)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.broker = b
	m.cfg.Addr = restartAddr(m.cfg, b.Addr())
	return nil
}

// restartAddr is where a member listens when it starts again: where it listens
// now. What it advertises has the same port, but may be the address of somebody
// else; then a Transport that was not told where to listen remembers it.
func restartAddr(cfg BrokerConfig, addr string) string {
	if cfg.AdvertiseAddr == "" {
		return addr
	}
	told, err := netip.ParseAddrPort(addr)
	bind, bad := netip.ParseAddrPort(cfg.Addr)
	if err != nil || bad != nil {
		return cfg.Addr
	}
	return netip.AddrPortFrom(bind.Addr(), told.Port()).String()
}

// notRoutable names the running name servers that do not know b.
func (c *Cluster) notRoutable(b *Broker) (missing []string, running int) {
	c.mu.Lock()
	servers := slices.Clone(c.servers)
	c.mu.Unlock()
	for _, s := range servers {
		if s.life.use() != nil {
			continue
		}
		running++
		if !slices.ContainsFunc(s.Status().Brokers, func(l BrokerLive) bool { return l.Addr == b.Addr() && l.Name == b.Name() }) {
			missing = append(missing, s.Name())
		}
	}
	return missing, running
}

// NameServerAddrs returns the addresses of the name servers.
func (c *Cluster) NameServerAddrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	addrs := make([]string, len(c.servers))
	for i, s := range c.servers {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Transport returns the Transport that the members use.
func (c *Cluster) Transport() Transport { return c.transport }

// Network returns the in-memory network, nil when the cluster has another
// Transport.
func (c *Cluster) Network() *MemoryNetwork {
	n, _ := c.transport.(*MemoryNetwork)
	return n
}

// NameServer returns name server i, counted from 0; nil when there is none.
// After a restart it is the new instance.
func (c *Cluster) NameServer(i int) *NameServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i < 0 || i >= len(c.servers) {
		return nil
	}
	return c.servers[i]
}

// Broker returns a member by group and id, nil when there is none. After a
// restart it is the new instance.
func (c *Cluster) Broker(group string, id int64) *Broker {
	if m := c.member(group, id); m != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		return m.broker
	}
	return nil
}

// Brokers yields all members, killed ones too, in the order of their groups.
func (c *Cluster) Brokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		c.mu.Lock()
		var all []*Broker
		for _, m := range c.members {
			if m.broker != nil {
				all = append(all, m.broker)
			}
		}
		c.mu.Unlock()
		for _, b := range all {
			if !yield(b) {
				return
			}
		}
	}
}

func (c *Cluster) member(group string, id int64) *member {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		if m.group == group && m.id == id {
			return m
		}
	}
	return nil
}

func (c *Cluster) hasGroup(name string) bool { return c.member(name, protocol.MasterID) != nil }

// Admin returns the cluster's Admin; it is closed with the cluster.
func (c *Cluster) Admin() *Admin { return c.admin }

// StartProducer starts a producer of this cluster; it is closed with the
// cluster. NameServers, Transport, Timings and Logger are filled in where they
// are not set.
func (c *Cluster) StartProducer(ctx context.Context, cfg ProducerConfig) (*Producer, error) {
	c.fillIn(&cfg.NameServers, &cfg.Transport, &cfg.Timings, &cfg.Logger)
	p, err := newProducer(cfg, c.wire.events)
	if err != nil {
		return nil, err
	}
	if err := c.startClient(ctx, p.Start, clusterClient{
		life: &p.life, close: p.Close, shutdown: p.Shutdown, addNameServer: func(a string) { p.client.AddNameServer(a) },
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// StartConsumer starts a consumer of this cluster; see StartProducer.
func (c *Cluster) StartConsumer(ctx context.Context, cfg ConsumerConfig) (*Consumer, error) {
	c.fillIn(&cfg.NameServers, &cfg.Transport, &cfg.Timings, &cfg.Logger)
	co, err := newConsumer(cfg, c.wire.events)
	if err != nil {
		return nil, err
	}
	if err := c.startClient(ctx, co.Start, clusterClient{
		life: &co.life, consumer: true, close: co.Close, shutdown: co.Shutdown, addNameServer: func(a string) { co.client.AddNameServer(a) },
	}); err != nil {
		return nil, err
	}
	return co, nil
}

// StartPullConsumer starts a pull consumer of this cluster; see StartProducer.
func (c *Cluster) StartPullConsumer(ctx context.Context, cfg PullConsumerConfig) (*PullConsumer, error) {
	c.fillIn(&cfg.NameServers, &cfg.Transport, &cfg.Timings, &cfg.Logger)
	co, err := newPullConsumer(cfg, c.wire.events)
	if err != nil {
		return nil, err
	}
	if err := c.startClient(ctx, co.Start, clusterClient{
		life: &co.life, consumer: true, close: co.Close, shutdown: co.Shutdown, addNameServer: func(a string) { co.client.AddNameServer(a) },
	}); err != nil {
		return nil, err
	}
	return co, nil
}

func (c *Cluster) fillIn(servers *[]string, tr *Transport, t *Timings, l **slog.Logger) {
	if len(*servers) == 0 {
		*servers = c.NameServerAddrs()
	}
	if *tr == nil {
		*tr = c.transport
	}
	*t = t.over(c.cfg.Timings)
	if *l == nil {
		*l = c.cfg.Logger
	}
}

func (c *Cluster) startClient(ctx context.Context, start func(context.Context) error, cl clusterClient) error {
	if err := c.life.use(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	if err := c.do(ctx, start); err != nil {
		return c.closedOr(err)
	}
	c.mu.Lock()
	if c.ctx.Err() == nil { // or Close has its list of clients already
		c.clients = slices.DeleteFunc(c.clients, func(o clusterClient) bool { return o.life.state.Load() == lifeClosed })
		c.clients = append(c.clients, cl)
		c.mu.Unlock()
		for _, addr := range c.NameServerAddrs() { // those added while it started
			cl.addNameServer(addr)
		}
		return nil
	}
	c.mu.Unlock()
	_ = cl.close() // it never was the caller's
	return fmt.Errorf("%s: %w", c.life.what, ErrClosed)
}

// AddGroup starts another broker group. It returns when the group is routable
// at every name server. A name that is taken is ErrInvalidConfig.
func (c *Cluster) AddGroup(ctx context.Context, g BrokerGroup) error {
	p := problems{what: "BrokerGroup"}
	c.cfg.checkGroup(&p, g)
	if c.hasGroup(g.Name) {
		p.add("the cluster has a group %q already", g.Name)
	}
	if err := p.err(); err != nil {
		return err
	}
	return c.change(ctx, func(ctx context.Context) error {
		if c.hasGroup(g.Name) {
			return fmt.Errorf("%w: the cluster has a group %q already", ErrInvalidConfig, g.Name)
		}
		err := c.startGroups(ctx, []BrokerGroup{g})
		if err != nil {
			c.mu.Lock()
			c.members = slices.DeleteFunc(c.members, func(m *member) bool { return m.group == g.Name })
			ctl := c.controllers[g.Name]
			delete(c.controllers, g.Name)
			c.mu.Unlock()
			if ctl != nil {
				ctl.stop()
			}
		}
		return err
	})
}

// AddNameServer starts another name server. It returns when every running
// broker has registered there and every client of the cluster knows it; when a
// broker can't, nothing is added.
func (c *Cluster) AddNameServer(ctx context.Context) error {
	return c.change(ctx, func(ctx context.Context) error {
		c.mu.Lock()
		i := len(c.servers)
		c.mu.Unlock()
		s, err := c.startNameServer(ctx, i, "")
		if err != nil {
			return err
		}
		c.mu.Lock()
		members := slices.Clone(c.members)
		for _, m := range members {
			m.cfg.NameServers = append(slices.Clone(m.cfg.NameServers), s.Addr())
		}
		c.mu.Unlock()
		var errs []error
		for _, m := range members {
			if b := c.Broker(m.group, m.id); b != nil && b.life.use() == nil {
				errs = append(errs, b.run.Load().reg.add(ctx, s.Addr()))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return errors.Join(err, c.dropNameServer(s, members))
		}
		c.mu.Lock()
		clients := slices.Clone(c.clients)
		c.mu.Unlock()
		for _, cl := range clients {
			if cl.life.use() == nil {
				cl.addNameServer(s.Addr())
			}
		}
		c.admin.client.AddNameServer(s.Addr())
		return nil
	})
}

// dropNameServer takes back a name server that was not added everywhere.
func (c *Cluster) dropNameServer(s *NameServer, members []*member) error {
	c.mu.Lock()
	c.servers = slices.DeleteFunc(c.servers, func(o *NameServer) bool { return o == s })
	for _, m := range members {
		m.cfg.NameServers = slices.DeleteFunc(slices.Clone(m.cfg.NameServers), func(a string) bool { return a == s.Addr() })
	}
	c.mu.Unlock()
	for _, m := range members {
		if b := c.Broker(m.group, m.id); b != nil && b.life.use() == nil {
			b.run.Load().reg.remove(s.Addr())
		}
	}
	return s.Close()
}
