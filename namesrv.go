package pocketmq

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/internal/kvconfig"
	"github.com/pocketmq/pocketmq/internal/routetable"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"
)

// NameServerConfig configures a NameServer. It is copied by NewNameServer.
type NameServerConfig struct {
	Name string // node name; "" = "ns-0"
	Addr string // host:port to listen on; "" = chosen by the Transport

	// Dir is the folder of the KV configuration, which is all that a name server
	// keeps: in the file kvConfig.json, with the version before it beside it, each
	// change synced before it is acknowledged. It is made by the first change, and
	// belongs to one name server at a time. "" = memory only. RocketMQ:
	// kvConfigPath.
	Dir string

	// NotifyMinBrokerID tells the members of a broker group when the smallest id among
	// them changes, as when their master is there again: a slave without failover then
	// follows at once, in place of within Timings.HARedial. RocketMQ's brokers with an
	// acting master understand it, too. The name servers of a Cluster do it
	// (notifyMinBrokerIdChanged).
	NotifyMinBrokerID bool

	Transport Transport
	Timings   Timings
	Logger    *slog.Logger // nil = silent
	OnEvent   func(Event)  // nil = none
}

// NameServer holds the routes of a cluster: which brokers there are and which
// topics they serve. It knows no other name server, and forgets brokers that fall
// silent. Beside the routes it holds a KV configuration, in which tools note the
// ordered topics; that is all it keeps on disk, see NameServerConfig.Dir. Safe for
// concurrent use. Java: NamesrvController, RouteInfoManager, KVConfigManager.
//
// Differs: its settings cannot be changed from outside. Routes always carry the
// order configuration of their topic (orderMessageEnable, which RocketMQ has off
// by default).
type NameServer struct {
	cfg    NameServerConfig
	nosync bool // the folder of its cluster is thrown away
	wire   wiring
	log    *slog.Logger
	life   life
	gate   gate

	run atomic.Pointer[nameServerRun] // nil before Start
}

// wiring is what a Cluster shares with its members; a member on its own makes
// its own.
type wiring struct {
	events     *emitter // nil = no OnEvent, or not made yet
	faults     *faults
	watch      *groupWatch   // nil = nobody can
	shared     bool          // events belongs to the cluster
	alone      bool          // the broker has no slaves, and never gets any
	controller func() string // where the controller of the broker's group is; nil without failover
	disk       *store.Disk   // of a broker that the cluster can pause and harm; nil = nobody can
}

// nameServerRun is what lives from Start to Close.
type nameServerRun struct {
	*NameServer
	table    *routetable.Table
	kv       *kvconfig.Table
	listener protocol.Listener
	events   *emitter
	conns    atomic.Uint64 // last connection id
	requests atomic.Int64
	changes  atomic.Int64
	minIDs   minIDNotices
	stopping atomic.Bool     // sessions that end now say nothing about their brokers
	ctx      context.Context // of the loop
	cancel   context.CancelFunc
	loop     sync.WaitGroup
}

// NewNameServer checks cfg and starts nothing. An unusable config is
// ErrInvalidConfig, with all violations listed.
func NewNameServer(cfg NameServerConfig) (*NameServer, error) {
	return newNameServer(cfg, wiring{faults: &faults{}}, false)
}

func newNameServer(cfg NameServerConfig, w wiring, throwaway bool) (*NameServer, error) {
	if cfg.Name == "" {
		cfg.Name = "ns-0"
	}
	p := problems{what: "NameServerConfig"}
	cfg.Timings.validate(&p)
	checkAddr(&p, "Addr", cfg.Addr)
	if cfg.Transport == nil {
		p.add("Transport is nil: use pocketmq.InMemory() or pocketmq.TCP(host)")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	cfg.Timings = cfg.Timings.withDefaults()
	s := &NameServer{cfg: cfg, nosync: throwaway, wire: w, log: loggerOf(cfg.Logger, "node", cfg.Name)}
	s.life.what = "name server " + cfg.Name
	return s, nil
}

// Start reads the KV configuration, listens, and returns when the name server
// serves. ctx bounds the start only.
//
// Besides the errors of the Transport: a KV configuration that cannot be read, as
// when neither kvConfig.json nor the version before it is what was saved, is
// refused with an error that names the files and the remedy.
func (s *NameServer) Start(ctx context.Context) error { return s.life.start(ctx, s.open) }

func (s *NameServer) open(ctx context.Context) error {
	kv, err := s.openKV()
	if err != nil {
		return err
	}
	r := &nameServerRun{NameServer: s, table: routetable.New(), kv: kv, events: s.wire.events}
	if !s.wire.shared {
		r.events = newEmitter(s.cfg.OnEvent)
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l, err := s.cfg.Transport.ListenNameServer(ctx, protocol.Listen{Node: s.cfg.Name, Addr: s.cfg.Addr}, r)
	if err != nil {
		r.cancel()
		if !s.wire.shared {
			_ = r.events.close() // the error that stopped the start says more
		}
		return err
	}
	r.listener = l
	s.run.Store(r)
	r.loop.Go(func() { r.scan(r.ctx) })
	s.log.Info("name server serves", "addr", l.Addr())
	return nil
}

// Close ends all sessions and returns when nothing runs any more.
func (s *NameServer) Close() error {
	return s.life.close(func() error {
		s.gate.end()
		r := s.run.Load()
		r.stopping.Store(true)
		r.minIDs.stop()
		r.cancel()
		err := r.listener.Close()
		r.loop.Wait()
		if !s.wire.shared {
			err = errors.Join(err, r.events.close())
		}
		s.log.Info("name server closed")
		return err
	}, func() error { return s.run.Load().events.close() })
}

// Name returns the node name.
func (s *NameServer) Name() string { return s.cfg.Name }

// Addr returns the address that brokers and clients dial, "" before Start.
func (s *NameServer) Addr() string {
	if r := s.run.Load(); r != nil {
		return r.listener.Addr()
	}
	return ""
}

// Status returns a snapshot; the zero value before Start.
func (s *NameServer) Status() NameServerStatus {
	r := s.run.Load()
	if r == nil {
		return NameServerStatus{}
	}
	st := NameServerStatus{
		Topics:       len(r.table.Topics()),
		RouteChanges: r.changes.Load(),
		Requests:     r.requests.Load(),
	}
	for _, l := range r.table.Live(time.Now()) {
		st.Brokers = append(st.Brokers, BrokerLive{Name: l.Name, ID: l.ID, Addr: l.Addr, Age: l.Age})
	}
	return st
}

// scan drops silent brokers, first after BrokerScanDelay, then every
// BrokerScan. Java: RouteInfoManager.scanNotActiveBroker.
func (r *nameServerRun) scan(ctx context.Context) {
	t := time.NewTimer(r.cfg.Timings.BrokerScanDelay)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			t.Reset(r.cfg.Timings.BrokerScan)
			if r.gate.isShut() {
				_ = r.gate.pass(ctx) // what brokers have said meanwhile is heard before the next scan
				continue
			}
			r.expired(r.table.Expire(now), "silent")
		}
	}
}

func (r *nameServerRun) expired(gone []routetable.Expired, reason string) {
	for _, e := range gone {
		r.log.Warn("broker dropped", "broker", e.BrokerName, "id", e.ID, "addr", e.Addr, "reason", reason)
		r.events.emit(r.cfg.Name, func(b EventBase) Event {
			return BrokerExpired{b, e.BrokerName, e.ID, e.Addr, reason}
		})
		r.routesChanged(e.Topics)
		r.minIDChanged(e.Min)
	}
}

func (r *nameServerRun) routesChanged(topics []string) {
	if len(topics) == 0 {
		return
	}
	r.changes.Add(int64(len(topics)))
	r.events.emit(r.cfg.Name, func(b EventBase) Event { return RouteChanged{b, topics} })
}

// Connect opens a session; transports call it.
func (r *nameServerRun) Connect(s protocol.Session) protocol.NameServerConn {
	return &nameServerSession{nameServerRun: r, conn: r.conns.Add(1), peer: s}
}

// nameServerSession is a connection of a broker or a client.
type nameServerSession struct {
	*nameServerRun
	conn uint64
	peer protocol.Session
	open openSession
}

// openSession keeps what a session registers and its end apart: what comes
// after the end must not be registered any more, nobody would take it out.
type openSession struct {
	mu    sync.Mutex // guards ended; held while something is registered
	ended bool
}

// register runs f unless the session has ended.
func (o *openSession) register(f func()) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return protocol.Errorf(protocol.SystemError, "the session has ended")
	}
	f()
	return nil
}

// end lets nothing be registered any more.
func (o *openSession) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
}

func serveNS[Q, R any](ctx context.Context, s *nameServerSession, code Code, topic string, q *Q, serve func(context.Context, *Q) (*R, error)) (*R, error) {
	if err := s.gate.hold(ctx); err != nil {
		return nil, err
	}
	s.requests.Add(1)
	resp, err := handled(ctx, s.wire.faults, request{code: code, node: s.cfg.Name, from: s.peer.Node, topic: topic}, q, nil, serve)
	if held := s.gate.hold(ctx); held != nil {
		return nil, held
	}
	return resp, answer(ctx, s.cfg.Name, err)
}

// RegisterBroker takes in a broker and its topics.
func (s *nameServerSession) RegisterBroker(ctx context.Context, q *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return serveNS(ctx, s, protocol.CodeRegisterBroker, "", q, func(_ context.Context, q *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
		if _, err := netip.ParseAddrPort(q.Addr); err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "broker %s registers with address %q, which is no host:port with an IP literal", q.BrokerName, q.Addr)
		}
		if q.BrokerID < 0 {
			return nil, protocol.Errorf(protocol.SystemError, "broker %s registers with id %d: ids are 0 for a master, 1 and more for slaves", q.BrokerName, q.BrokerID)
		}
		var resp *protocol.RegisterBrokerResponse
		var change routetable.Change
		var err error
		if ended := s.open.register(func() { resp, change, err = s.table.Register(time.Now(), s.conn, q) }); ended != nil {
			return nil, ended
		}
		if err != nil {
			s.routesChanged(change.Topics) // who is refused may have left another id
			return nil, err
		}
		if change.Registered {
			s.log.Info("broker registered", "broker", q.BrokerName, "id", q.BrokerID, "addr", q.Addr, "topics", len(q.Topics))
			s.events.emit(s.cfg.Name, func(b EventBase) Event {
				return BrokerRegistered{b, q.BrokerName, q.BrokerID, q.Addr}
			})
		}
		s.routesChanged(change.Topics)
		s.minIDChanged(change.Min)
		resp.OrderTopics, _ = s.kv.List(protocol.NamespaceOrderTopic)
		return resp, nil
	})
}

// UnregisterBroker takes a broker out of the routes.
func (s *nameServerSession) UnregisterBroker(ctx context.Context, q *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return serveNS(ctx, s, protocol.CodeUnregisterBroker, "", q, func(_ context.Context, q *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
		change := s.table.Unregister(q)
		s.routesChanged(change.Topics)
		s.minIDChanged(change.Min)
		return &protocol.UnregisterBrokerResponse{}, nil
	})
}

// BrokerHeartbeat keeps a broker alive.
func (s *nameServerSession) BrokerHeartbeat(ctx context.Context, q *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return serveNS(ctx, s, protocol.CodeBrokerHeartbeat, "", q, func(_ context.Context, q *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
		s.table.Heartbeat(time.Now(), q)
		return &protocol.BrokerHeartbeatResponse{}, nil
	})
}

// QueryDataVersion tells whether a broker's topics are known in this version.
func (s *nameServerSession) QueryDataVersion(ctx context.Context, q *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return serveNS(ctx, s, protocol.CodeQueryDataVersion, "", q, func(_ context.Context, q *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
		resp := s.table.DataVersion(time.Now(), q)
		return &resp, nil
	})
}

// GetRoute answers where a topic lies.
func (s *nameServerSession) GetRoute(ctx context.Context, q *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetRoute, q.Topic, q, func(_ context.Context, q *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
		route, ok := s.table.Route(q.Topic)
		if !ok {
			return nil, protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s", q.Topic)
		}
		if q.Zone != "" {
			route = routetable.InZone(route, q.Zone)
		}
		route.OrderConf, _ = s.kv.Get(protocol.NamespaceOrderTopic, q.Topic)
		return &protocol.GetRouteResponse{Route: route}, nil
	})
}

// GetClusterInfo lists all brokers.
func (s *nameServerSession) GetClusterInfo(ctx context.Context, q *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetClusterInfo, "", q, func(context.Context, *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
		return &protocol.GetClusterInfoResponse{Brokers: s.table.ClusterInfo()}, nil
	})
}

// GetBrokerMemberGroup lists the members of one broker group.
func (s *nameServerSession) GetBrokerMemberGroup(ctx context.Context, q *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetBrokerMemberGroup, "", q, func(_ context.Context, q *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
		return &protocol.GetBrokerMemberGroupResponse{Cluster: q.Cluster, BrokerName: q.BrokerName, Addrs: s.table.Members(q.BrokerName)}, nil
	})
}

// Close ends the session: a broker that registered through it is dropped at
// once. Java: BrokerHousekeepingService.
func (s *nameServerSession) Close() error {
	if s.gate.isShut() && !s.stopping.Load() {
		s.loop.Go(func() { // Close of the name server ends sessions before it waits for the loop
			_ = s.gate.pass(s.ctx) // leave looks at stopping
			s.leave()
		})
		return nil
	}
	s.leave()
	return nil
}

func (s *nameServerSession) leave() {
	s.open.end()
	if !s.stopping.Load() {
		s.expired(s.table.ConnClosed(s.conn), "connection closed")
	}
}
