package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/internal/delay"
	"github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/internal/longpoll"
	"github.com/pocketmq/pocketmq/internal/offsets"
	"github.com/pocketmq/pocketmq/internal/queuelock"
	"github.com/pocketmq/pocketmq/internal/topics"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/store"

	"golang.org/x/sync/singleflight"
)

// Defaults of BrokerConfig.
const (
	defaultMaxMessageSize = 4 << 20
	defaultFileSize       = 4 << 20
	minFileSize           = 4 << 10
)

// BrokerConfig configures a Broker. It is copied by NewBroker.
type BrokerConfig struct {
	Cluster string // "" = "DefaultCluster"
	Name    string // name of the broker group, required
	Addr    string // IP literal and port to listen on; port 0 = a free one; "" = chosen by the Transport (listenPort, bindAddress)
	// AdvertiseAddr is what clients dial and message ids hold in place of Addr: an
	// IP literal with a port, or without one for the port that is listened on. ""
	// = Addr. A broker that listens on a wildcard address, 0.0.0.0 or [::], needs
	// one (brokerIP1).
	AdvertiseAddr string
	Dir           string   // data folder, required; made when missing
	NameServers   []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport     Transport

	// Topics are made before the first registration: topic -> queues. Counts grow
	// and never shrink. Of RocketMQ's own topics it may name RMQ_SYS_TRACE_TOPIC,
	// which has one queue otherwise: traced official clients need it.
	Topics map[string]int
	Flush  FlushMode

	DisableAutoCreateTopic bool  // refuse sends to unknown topics (autoCreateTopicEnable)
	DefaultTopicQueues     int   // most queues of an auto-created topic [8] (defaultTopicQueueNums)
	MaxMessageSize         int   // bytes of a body as it arrives, of a batch in all [4 MiB] (maxMessageSize)
	CommitLogFileSize      int64 // bytes; a soft limit of each commit-log file [4 MiB], at least 4 KiB (mappedFileSizeCommitLog)
	CacheBytes             int64 // bytes of the cache for random reads of older messages, made by the first [32 MiB], 1 MiB to 1 TiB; -1 = none

	// What is kept. Whole commit-log files go, oldest first, with all that
	// refers to them; consumers go on at what is left.
	Retention      time.Duration // a file goes when all its messages are older [72 h]; -1 = never (fileReservedTime)
	RetentionBytes int64         // the oldest file goes while the commit log is larger [no bound]; -1 = no bound
	// MinFreeBytes refuses sends with ErrDiskFull while less of the disk is free
	// [256 MiB]; -1 = no such guard. Below four times that the oldest files go,
	// consumed or not (MessagesDeleted): as many as it takes, and none when all of
	// them would not suffice. Reads go on, and so do sends once there is space again.
	// A throwaway cluster has no guard.
	MinFreeBytes int64
	// FreeBytes tells how much may still be written to the disk of a folder; nil
	// asks the operating system. It is called on a goroutine of its own, one call at
	// a time. While it fails, panics or does not return, the space counts as unknown
	// and nothing is refused; Close waits 10 s for it, then says ErrHandlersRunning.
	// It needs a Dir: ClusterConfig{Dir: dir, Groups: []BrokerGroup{{Name:
	// "broker-a", Config: BrokerConfig{FreeBytes: f}}}}.
	FreeBytes func(dir string) (int64, error)

	Timings Timings
	Logger  *slog.Logger // nil = silent
	OnEvent func(Event)  // nil = none
}

// Broker stores messages and serves them. Safe for concurrent use.
// Java: BrokerController.
type Broker struct {
	cfg       BrokerConfig
	node      string // "broker-a/0"
	throwaway bool   // nothing has to survive the cluster
	wire      wiring
	log       *slog.Logger
	life      life

	run atomic.Pointer[brokerRun] // nil before the first successful Start
}

// brokerRun is what lives from Start to Close. Its request methods are in
// broker_send.go, broker_pull.go, broker_group.go, broker_lock.go and
// broker_topic.go.
type brokerRun struct {
	*Broker
	addr     netip.AddrPort // store host
	store    *store.Store
	topics   *topics.Table
	offsets  *offsets.Table
	groups   *groups.Registry
	locks    *queuelock.Table
	settings *groups.Settings
	pullers  *groups.Pullers
	waiters  *longpoll.Waiters
	uniqKeys *message.UniqKeys  // for messages that come without a unique key
	creating singleflight.Group // auto-creation, by topic
	unrouted atomic.Int64       // topics that are being created by a send and may not be routable yet
	reg      *registrar
	listener protocol.Listener
	events   *emitter
	delays   atomic.Pointer[delay.Service] // nil before Start delivers, and for a read-only store
	differs  differing                     // groups whose members do not all subscribe to the same

	serving  atomic.Bool   // set once addr is known: before it, requests are refused
	draining atomic.Bool   // Shutdown: sends are refused
	sessions atomic.Uint64 // last session id
	conns    atomic.Int64  // open sessions
	sends    inflight      // what Shutdown waits for
	puts     rate
	gets     rate

	ctx    context.Context // of the loops
	cancel context.CancelFunc
	loops  sync.WaitGroup
}

// NewBroker checks cfg and starts nothing. An unusable config is
// ErrInvalidConfig, with all violations listed; an illegal topic or broker
// name is also ErrIllegalName.
func NewBroker(cfg BrokerConfig) (*Broker, error) {
	return newBroker(cfg, wiring{faults: &faults{}}, false)
}

func newBroker(cfg BrokerConfig, w wiring, throwaway bool) (*Broker, error) {
	p := problems{what: "BrokerConfig"}
	cfg = cfg.withDefaults(&p)
	cfg.NameServers = checkNameServers(&p, cfg.NameServers)
	if cfg.Transport == nil {
		p.add("Transport is nil: use pocketmq.InMemory() or pocketmq.TCP(host)")
	}
	if cfg.Dir == "" {
		p.add("Dir is empty: a broker needs a data folder")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, node: nodeName(cfg.Name, protocol.MasterID), throwaway: throwaway, wire: w}
	b.log = loggerOf(cfg.Logger, "node", b.node)
	b.life.what = "broker " + cfg.Name
	return b, nil
}

// withDefaults copies cfg, fills it in and reports what does not depend on
// where the broker runs.
func (cfg BrokerConfig) withDefaults(p *problems) BrokerConfig {
	if cfg.Cluster == "" {
		cfg.Cluster = defaultCluster
	}
	checkName(p, "Cluster", cfg.Cluster)
	checkName(p, "Name", cfg.Name)
	checkAddr(p, "Addr", cfg.Addr)
	cfg.AdvertiseAddr = checkAdvertised(p, "AdvertiseAddr", cfg.AdvertiseAddr)
	if cfg.AdvertiseAddr == "" && isWildcard(cfg.Addr) {
		p.add("Addr %s is a wildcard, which clients can't dial: set AdvertiseAddr to an address of this machine", cfg.Addr)
	}
	if cfg.Flush != AsyncFlush && cfg.Flush != SyncFlush {
		p.add("Flush is %d: use AsyncFlush or SyncFlush", cfg.Flush)
	}
	positive(p, "DefaultTopicQueues", &cfg.DefaultTopicQueues, topics.DefaultQueues)
	positive(p, "MaxMessageSize", &cfg.MaxMessageSize, defaultMaxMessageSize)
	positive(p, "CommitLogFileSize", &cfg.CommitLogFileSize, defaultFileSize)
	if cfg.CommitLogFileSize > 0 && cfg.CommitLogFileSize < minFileSize {
		p.add("CommitLogFileSize is %d bytes, at least %d are needed", cfg.CommitLogFileSize, minFileSize)
	}
	defaultOrNone(p, "Retention", cfg.Retention)
	defaultOrNone(p, "MinFreeBytes", cfg.MinFreeBytes)
	defaultOrNone(p, "RetentionBytes", cfg.RetentionBytes)
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = store.DefaultCacheBytes
	}
	if cfg.CacheBytes != -1 && cfg.CacheBytes < store.MinCacheBytes {
		p.add("CacheBytes is %d, at least %d are needed (0 = %d, -1 = no cache)", cfg.CacheBytes, store.MinCacheBytes, store.DefaultCacheBytes)
	}
	if cfg.CacheBytes > store.MaxCacheBytes {
		p.add("CacheBytes is %d, at most %d are allowed", cfg.CacheBytes, int64(store.MaxCacheBytes))
	}
	cfg.Topics = checkTopics(p, cfg.Topics, cfg.Cluster, cfg.Name)
	cfg.Timings.validate(p)
	cfg.Timings = cfg.Timings.withDefaults()
	return cfg
}

// checkName wants a legal broker or cluster name: they become topics, and
// parts of paths.
func checkName(p *problems, field, name string) {
	switch {
	case name == "":
		p.add("%s is empty", field)
	case message.ValidateTopic(name) != nil:
		p.add("%s %q must be at most %d characters of a-z A-Z 0-9 _ - %% |", field, clip(name), message.MaxTopicLength)
		p.kinds = append(p.kinds, ErrIllegalName)
	}
}

func checkTopics(p *problems, in map[string]int, cluster, broker string) map[string]int {
	out := make(map[string]int, len(in))
	for _, name := range slices.Sorted(maps.Keys(in)) {
		p.check("Topics", message.ValidateTopic(name))
		if name != message.TraceTopic && message.IsSystemTopic(name, cluster, broker) {
			p.add("Topics: %q is RocketMQ's own, choose another name", name)
			p.kinds = append(p.kinds, ErrIllegalName)
		}
		if in[name] <= 0 || in[name] > topics.MaxQueues {
			p.add("Topics[%q] is %d queues, must be 1 to %d", name, in[name], topics.MaxQueues)
		}
		out[name] = in[name]
	}
	return out
}

// nodeName names a broker at the transport and in events.
func nodeName(group string, id int64) string { return fmt.Sprintf("%s/%d", group, id) }

// Start opens the store, repairs what a crash left, listens, registers with
// every name server, and returns when the broker serves. A name server that
// can't be reached does not fail the start: the broker registers again every
// Timings.BrokerRegister. ctx bounds the start only.
//
// Besides the errors of the Transport: a folder in use by another broker, of
// another broker, of a newer format, or not ours is refused with an error that
// names it and the remedy.
func (b *Broker) Start(ctx context.Context) error { return b.life.start(ctx, b.open) }

func (b *Broker) open(ctx context.Context) (err error) {
	var u undo
	defer func() {
		if err != nil {
			u.run()
		}
	}()
	r := &brokerRun{Broker: b, groups: groups.New(), pullers: groups.NewPullers(), locks: queuelock.New(b.cfg.Timings.LockExpire), waiters: longpoll.New(), events: b.wire.events}
	r.puts.start, r.gets.start = time.Now(), time.Now()
	if !b.wire.shared {
		r.events = newEmitter(b.cfg.OnEvent)
		u.add(func() { _ = r.events.close() })
	}

	if r.store, err = store.Open(store.Config{
		Dir: b.cfg.Dir, Cluster: b.cfg.Cluster, Broker: b.cfg.Name, ID: protocol.MasterID,
		FileSize: b.cfg.CommitLogFileSize, CacheBytes: b.cfg.CacheBytes, SyncFlush: b.cfg.Flush == SyncFlush,
		FlushInterval: b.cfg.Timings.FlushInterval, FlushTimeout: b.cfg.Timings.FlushTimeout,
		Throwaway: b.throwaway, Logger: b.log,
		Arrived: r.arrived, DelayLevels: b.cfg.Timings.DelayLevels,
		Fenced: func(err error) {
			b.log.Error("store fenced", "err", err)
			r.events.emit(b.node, func(e EventBase) Event { return StoreFenced{e, fenced(err)} })
		},
		Repaired: func(cut int) {
			b.log.Info("store repaired", "refused", cut)
			if d := r.delays.Load(); d != nil {
				d.Hurry(time.Now())
			}
			r.events.emit(b.node, func(e EventBase) Event { return StoreRepaired{e, cut} })
		},
		Full: func(full *store.DiskFullError) {
			r.events.emit(b.node, func(e EventBase) Event {
				if full == nil {
					return StoreRepaired{EventBase: e}
				}
				return StoreFenced{e, fenced(full)}
			})
		},
		Deleted: func(d store.Deletion) {
			r.events.emit(b.node, func(e EventBase) Event { return MessagesDeleted{e, string(d.Reason), d.Files, d.First, d.Last} })
		},
		Damaged: func(err error) {
			r.events.emit(b.node, func(e EventBase) Event { return DamageFound{e, err} })
		},
		Retention: b.cfg.Retention, RetentionBytes: b.cfg.RetentionBytes,
		MinFreeBytes: b.cfg.MinFreeBytes, FreeBytes: b.cfg.FreeBytes,
	}); err != nil {
		return err
	}
	if n := r.store.Cut(); n > 0 {
		r.events.emit(b.node, func(e EventBase) Event { return StoreRepaired{e, n} })
	}
	u.add(func() { _ = r.store.Kill() }) // a start that failed says nothing more to the folder

	config := func(name string) string { return filepath.Join(b.cfg.Dir, "config", name) }
	if r.topics, err = topics.Open(time.Now(), topics.Options{
		File: config("topics.json"), NoSync: b.throwaway, Cluster: b.cfg.Cluster, Broker: b.cfg.Name,
		AutoCreate: !b.cfg.DisableAutoCreateTopic, DefaultQueues: b.cfg.DefaultTopicQueues, Logger: b.log,
	}); err != nil {
		return err
	}
	var configured []protocol.TopicConfig
	for _, name := range slices.Sorted(maps.Keys(b.cfg.Topics)) {
		n := b.cfg.Topics[name]
		configured = append(configured, protocol.TopicConfig{Name: name, ReadQueues: n, WriteQueues: n, Perm: PermRead | PermWrite})
	}
	if _, err = r.topics.Ensure(time.Now(), configured...); err != nil {
		return err
	}
	if r.offsets, err = offsets.Open(offsets.Options{File: config("consumerOffset.json"), NoSync: b.throwaway, Logger: b.log}); err != nil {
		return err
	}
	if r.settings, err = groups.OpenSettings(groups.SettingsOptions{File: config("subscriptionGroup.json"), NoSync: b.throwaway, Logger: b.log}); err != nil {
		return err
	}
	progress, err := delay.OpenProgress(config("delayOffset.json"), b.throwaway, b.log)
	if err != nil {
		return err
	}
	// A damaged store ends, for now, where its damage begins: progress beyond is
	// kept for the time when it is repaired.
	if err := r.store.Err(); errors.Is(err, store.ErrReadOnly) {
		b.log.Error("store opened read-only", "err", err)
		r.events.emit(b.node, func(e EventBase) Event { return StoreFenced{e, fenced(err)} })
	} else if n := r.offsets.Clamp(r.store.MaxOffset); n > 0 {
		b.log.Warn("committed offsets lay beyond their queues and were lowered", "offsets", n)
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	u.add(func() { r.cancel(); r.loops.Wait() })
	if r.listener, err = b.cfg.Transport.ListenBroker(ctx, protocol.Listen{Node: b.node, Addr: b.cfg.Addr, Advertise: b.cfg.AdvertiseAddr}, r); err != nil {
		return err
	}
	u.add(func() { _ = r.listener.Close() })
	if r.addr, err = netip.ParseAddrPort(r.listener.Addr()); err != nil {
		return fmt.Errorf("transport listens on %q: %w", r.listener.Addr(), err)
	}
	r.uniqKeys = message.NewUniqKeys(r.addr.Addr(), uint16(os.Getpid()), rand.Uint32())
	r.reg = newRegistrar(r)
	u.add(r.reg.close)
	r.serving.Store(true)
	if rerr := r.reg.register(ctx, registerTimeout); rerr != nil {
		if err = ctx.Err(); err != nil {
			return err
		}
		b.log.Warn("not registered everywhere", "err", rerr) // no reason not to serve
	}
	r.loops.Go(func() { r.registerLoop(r.ctx) })
	r.loops.Go(func() { r.persistLoop(r.ctx) })
	r.loops.Go(func() { r.memberLoop(r.ctx) })
	if d := r.openDelays(progress); d != nil {
		r.loops.Go(func() { d.Run(r.ctx) })
	}
	b.run.Store(r)
	b.wire.watch.changed("")
	b.log.Info("broker serves", "addr", r.addr, "dir", b.cfg.Dir)
	return nil
}

// Shutdown takes the broker out of the routes, refuses new sends, waits for
// those in flight until ctx ends, and closes.
func (b *Broker) Shutdown(ctx context.Context) error {
	if b.life.use() == nil {
		r := b.run.Load()
		r.draining.Store(true)
		r.reg.unregister(ctx)
		r.sends.wait(ctx)
		if d, ok := r.listener.(protocol.Drainer); ok {
			d.Drain(ctx)
		}
	}
	return b.Close()
}

// Close ends all sessions at once, flushes the store and returns when nothing
// runs any more. Requests in flight fail with ErrUnknownOutcome at their
// callers.
func (b *Broker) Close() error { return b.stop((*store.Store).Close, true) }

// kill leaves what a crash of the process leaves: nothing is flushed,
// persisted or said, but what was written stays.
func (b *Broker) kill() error { return b.stop((*store.Store).Kill, false) }

// powerOff leaves what a loss of power leaves: nothing that was not synced.
func (b *Broker) powerOff() error { return b.stop((*store.Store).PowerOff, false) }

// discard closes a broker whose data nobody wants.
func (b *Broker) discard() error { return b.stop((*store.Store).Discard, false) }

func (b *Broker) stop(closeStore func(*store.Store) error, persist bool) error {
	return b.life.close(func() error {
		r := b.run.Load()
		r.cancel()
		errs := []error{r.listener.Close()}
		r.waiters.Close()
		r.loops.Wait()
		r.reg.close()
		if persist {
			errs = append(errs, r.offsets.Persist(), r.settings.Persist(), r.closeDelays())
		}
		errs = append(errs, hooked(closeStore(r.store)))
		if !b.wire.shared {
			errs = append(errs, r.events.close())
		}
		b.log.Info("broker closed")
		return errors.Join(errs...)
	}, func() error {
		r := b.run.Load()
		if err := hooked(r.store.Close()); errors.Is(err, ErrHandlersRunning) {
			return err
		}
		return r.events.close()
	})
}

// hooked makes an error of a store whose FreeBytes does not return one that says
// that user code runs.
func hooked(err error) error {
	if errors.Is(err, store.ErrHookRunning) {
		return errors.Join(err, ErrHandlersRunning)
	}
	return err
}

// Name returns the name of the broker's group.
func (b *Broker) Name() string { return b.cfg.Name }

// ID returns the broker id within its group; 0 is a master.
func (b *Broker) ID() int64 { return protocol.MasterID }

// Addr returns the address that clients dial, "" before Start.
func (b *Broker) Addr() string {
	if r := b.run.Load(); r != nil {
		return r.addr.String()
	}
	return ""
}

// Dir returns the data folder. FORMAT, commitlog/ and config/ in it are the
// truth; everything else is derived from them and may be deleted, or replaced
// by older copies, while the broker is down.
func (b *Broker) Dir() string { return b.cfg.Dir }

// Check verifies the whole store: checksums, dense offsets, and that queues
// and log say the same. It reads everything and may run beside traffic.
func (b *Broker) Check(ctx context.Context) error {
	if err := b.life.use(); err != nil {
		return err
	}
	return b.run.Load().store.Check(ctx)
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
	pos := r.store.Positions()
	now := time.Now()
	st := BrokerStatus{
		MinPosition: pos.Min, WrittenPosition: pos.Written, SyncedPosition: pos.Synced, DispatchedPosition: pos.Dispatched,
		Cut: r.store.Cut(), HeldPulls: r.waiters.Held(), Connections: int(r.conns.Load()),
		PutRate: r.puts.perSecond(now), GetRate: r.gets.perSecond(now),
		Err: fenced(r.store.Err()), Damage: r.store.Damage(),
	}
	switch err := b.life.use(); {
	case err != nil:
		st.Reason = err.Error()
	case st.Err != nil:
		st.Reason = b.refusal(st.Err)
	case r.draining.Load():
		st.Reason = "shutting down"
	default:
		if err := r.store.Behind(); err != nil {
			st.Reason = err.Error() + "; reads go on"
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

// registerLoop registers every BrokerRegister. Java: BrokerController.start.
func (r *brokerRun) registerLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.BrokerRegister, func(time.Time) {
		if err := r.reg.register(ctx, registerTimeout); err != nil && ctx.Err() == nil {
			r.log.Warn("registration failed", "err", err)
		}
	})
}

// persistLoop persists consumer offsets, the settings of new groups, and the
// progress of delayed messages, every OffsetPersist.
func (r *brokerRun) persistLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.OffsetPersist, func(time.Time) {
		if err := r.offsets.Persist(); err != nil {
			r.log.Error("consumer offsets not persisted", "err", err)
		}
		if err := r.settings.Persist(); err != nil {
			r.log.Error("group settings not persisted", "err", err)
		}
		if err := r.persistDelays(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("progress of delayed messages not persisted", "err", err)
		}
	})
}

// memberLoop drops clients that fell silent. Java: ClientHousekeepingService.
func (r *brokerRun) memberLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.ClientScan, func(now time.Time) {
		r.membersChanged(r.groups.Expire(now, r.cfg.Timings.ClientExpire))
	})
}

// every calls f at each multiple of d until ctx ends.
func every(ctx context.Context, d time.Duration, f func(now time.Time)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			f(now)
		}
	}
}

// Connect opens a session; transports call it.
func (r *brokerRun) Connect(s protocol.Session) protocol.BrokerConn {
	r.conns.Add(1)
	return &brokerSession{brokerRun: r, id: r.sessions.Add(1), peer: s}
}

// brokerSession is a connection of a client.
type brokerSession struct {
	*brokerRun
	id    uint64
	peer  protocol.Session
	found atomic.Int64 // when a pull last found messages; Unix ns
	open  openSession
}

// Close ends the session: its client leaves its groups at once.
func (s *brokerSession) Close() error {
	s.conns.Add(-1)
	s.open.end()
	s.pullers.Closed(s.id)
	s.membersChanged(s.groups.ConnClosed(s.id))
	return nil
}

// serveBroker is the one path of every request to a broker.
func serveBroker[Q, R any](ctx context.Context, s *brokerSession, code Code, topic, group string, q *Q, serve func(*brokerSession, context.Context, *Q) (*R, error)) (*R, error) {
	if !s.serving.Load() {
		return nil, &protocol.Error{Code: protocol.SystemError, Remark: "the broker is starting, try again", Broker: s.cfg.Name}
	}
	var resp *R
	var err error
	if s.wire.faults.list.Load() == nil {
		resp, err = serve(s, ctx, q)
	} else {
		resp, err = handled(ctx, s.wire.faults, request{code, s.node, s.peer.Node, topic, group}, q, s.later,
			func(ctx context.Context, q *Q) (*R, error) { return serve(s, ctx, q) })
	}
	if err != nil {
		return resp, answer(ctx, s.cfg.Name, err)
	}
	return resp, nil
}

// later runs f in the background; Close joins it. Only handlers call it, and
// those have all returned before the loops are waited for.
func (r *brokerRun) later(f func(context.Context)) { r.loops.Go(func() { f(r.ctx) }) }

// rate turns a count into messages a second between two readings.
type rate struct {
	count atomic.Int64

	mu    sync.Mutex // guards the rest
	start time.Time  // of the window
	base  int64      // count at start
	value float64    // of the last whole window
	known bool
}

func (r *rate) perSecond(now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, d := r.count.Load(), now.Sub(r.start)
	if d < time.Second {
		if r.known || d <= 0 {
			return r.value
		}
		return float64(n-r.base) / d.Seconds()
	}
	r.value, r.known = float64(n-r.base)/d.Seconds(), true
	r.start, r.base = now, n
	return r.value
}
