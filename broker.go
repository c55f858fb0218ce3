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
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/ha"
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
	// ID is the broker's id in its group: 0 is the master, slaves have ids of their
	// own from 1 on (brokerId).
	ID   int64
	Addr string // IP literal and port to listen on for clients; port 0 = a free one; "" = chosen by the Transport (listenPort, bindAddress)
	// AdvertiseAddr is what clients dial and message ids hold in place of Addr: an
	// IP literal with a port, or without one for the port that is listened on. ""
	// = Addr. A broker that listens on a wildcard address, 0.0.0.0 or [::], needs
	// one (brokerIP1).
	AdvertiseAddr string
	// HAAddr is where a master gives its log to its slaves: an IP literal and port;
	// port 0 = a free one; "" = chosen by the Transport (haListenPort). AdvertiseAddr
	// counts for its host, too.
	HAAddr      string
	Dir         string   // data folder, required; made when missing
	NameServers []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport   Transport

	// Topics are made before the first registration: topic -> queues. Counts grow
	// and never shrink. Of RocketMQ's own topics it may name RMQ_SYS_TRACE_TOPIC,
	// which has one queue otherwise: traced official clients need it.
	Topics map[string]int
	Flush  FlushMode

	// Replication tells what an answer to a send rests on. All members of a group
	// should say the same.
	Replication ReplicationMode
	// Failover lets the members of the group elect their master: when one is lost,
	// another that has all that was acknowledged takes its place, and the lost one
	// comes back as a slave. It needs a Cluster, whose controller sees to it, and
	// slaves. A folder that was used without it goes on with it: the broker with id 0 is
	// elected first, unless it lacks what another one has, which is an error of
	// StartCluster. It is not turned off again. See docs/replication.md
	// (enableControllerMode).
	Failover bool
	// ElectUncleanMaster, with Failover, lets StartCluster and Cluster.AddGroup elect the
	// member with the longest log when the rules let nobody be: each one that may have
	// everything has lost power since it acknowledged messages that may not have been
	// synced; the state of the controller is lost; or Failover is new, and the first master
	// lacks what another one has. Some of what was acknowledged may be gone then, and the
	// event UncleanElection and an ERROR in the log tell of it. Without it they return an
	// error, which names the members. (enableElectUncleanMaster).
	ElectUncleanMaster bool
	// InSyncReplicas is how many members, the master counted, have to have a message
	// before it is acknowledged, with SyncReplication [2] (inSyncReplicas). It is at most
	// as many as there are, 1 only with MinInSyncReplicas of 2 or more, and 0 with Failover and with AsyncReplication. With fewer
	// slaves it is stored all the same: ErrSlaveNotAvailable comes with the result;
	// when they do not acknowledge it within Timings.ReplicationTimeout,
	// ErrFlushSlaveTimeout does. Messages with NoWait, and those that brokers make, such
	// as retries, do not wait; with Failover those that consumers send back do.
	InSyncReplicas int
	// MinInSyncReplicas refuses sends, with SyncReplication, while fewer members, the
	// master counted, are connected [1, with Failover 2]; nothing is stored then:
	// ErrNotEnoughReplicas. It is at most as many as there are, and 0 with
	// AsyncReplication (minInSyncReplicas).
	MinInSyncReplicas int
	HATransferBytes   int // bytes of the log that a slave is sent at a time [32 KiB], 1 KiB to 64 MiB (haTransferBatchSize)
	// SyncFromLastFile makes a new slave begin with the last file of the master's log,
	// as RocketMQ's do (syncFromLastFile). Otherwise it begins with the oldest one.
	SyncFromLastFile bool
	// SlaveReadBytes is how many bytes of the log a consumer may be behind before the
	// master advises it to read from a slave, until it has caught up [never]
	// (slaveReadEnable, accessMessageInMemoryMaxRatio).
	//
	// Differs: RocketMQ compares with a part of the machine's memory.
	SlaveReadBytes int64

	DisableAutoCreateTopic bool  // refuse sends to unknown topics (autoCreateTopicEnable)
	DefaultTopicQueues     int   // most queues of an auto-created topic [8] (defaultTopicQueueNums)
	MaxMessageSize         int   // bytes of a body as it arrives, of a batch in all [4 MiB]; at most 128 KiB below 64 MiB, but for a group of a Cluster without Slaves; a request over TCP has 16 MiB at most (maxMessageSize)
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
	gate      gate

	run atomic.Pointer[brokerRun] // nil before the first successful Start
}

// brokerRun is what lives from Start to Close. Its request methods are in
// broker_send.go, broker_pull.go, broker_group.go, broker_lock.go and
// broker_topic.go.
type brokerRun struct {
	*Broker
	addr      netip.AddrPort                // store host
	door      *door                         // where slaves connect; nil when none can
	stored    atomic.Pointer[store.Store]   // see store
	changing  atomic.Pointer[chan struct{}] // closed when the reopen that began last has ended; nil before the first
	topics    *topics.Table
	offsets   *offsets.Table
	groups    *groups.Registry
	locks     *queuelock.Table
	settings  *groups.Settings
	pullers   *groups.Pullers
	waiters   *longpoll.Waiters
	uniqKeys  *message.UniqKeys  // for messages that come without a unique key
	creating  singleflight.Group // auto-creation, by topic
	unrouted  atomic.Int64       // topics that are being created by a send and may not be routable yet
	reg       *registrar
	listener  protocol.Listener
	events    *emitter
	replica   *replica
	progress  *delay.Progress // of delayed messages
	standing  atomic.Pointer[standing]
	duty      *duty                         // of who begins and ends duties
	master    atomic.Pointer[mastery]       // nil before slaves are served
	receiver  atomic.Pointer[ha.Receiver]   // nil unless it is a slave
	elections *ha.Participant               // nil without failover
	announced atomic.Bool                   // it has registered in its role
	early     *doorway                      // of one that is being promoted; of who begins and ends duties
	heritage  *heritage                     // the same; nil unless a former master has left it
	retiring  atomic.Int64                  // the epoch that the master gives up, see retire; 0: none
	copied    atomic.Bool                   // a slave has copied once, or tried, what its master has beside its log
	unsaved   atomic.Pointer[error]         // in a group with failover: why it takes no part, while it cannot store its state
	renounced atomic.Bool                   // in a group with failover: the log may be dropped
	writes    inflight                      // requests that only a master serves
	moved     chan struct{}                 // capacity 1: the log of a slave has grown
	copyNow   chan struct{}                 // capacity 1: metadata is to be copied at once
	topicsAt  atomic.Int64                  // of a slave: up to this position of its master's log, and maybe beyond, its topics know what became of them
	delays    atomic.Pointer[delay.Service] // nil before Start delivers, and for a read-only store
	differs   differing                     // groups whose members do not all subscribe to the same
	skipped   skippedNames                  // of heartbeats

	serving  atomic.Bool   // set once addr is known: before it, requests are refused
	draining atomic.Bool   // Shutdown: sends are refused
	sessions atomic.Uint64 // last session id
	conns    atomic.Int64  // open sessions
	sends    inflight      // what Shutdown waits for
	puts     rate
	gets     rate

	ctx    context.Context // of the loops
	cancel context.CancelCauseFunc
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
	if !w.alone {
		cfg.checkReplicable(&p, "MaxMessageSize")
	}
	if cfg.Failover && w.controller == nil {
		p.add("Failover needs a controller: start the group with StartCluster or Cluster.AddGroup")
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, node: nodeName(cfg.Name, cfg.ID), throwaway: throwaway, wire: w}
	b.log = loggerOf(cfg.Logger, "node", b.node)
	b.life.what = "broker " + cfg.Name
	if cfg.ID != protocol.MasterID {
		b.life.what = "broker " + b.node
	}
	if b.gate.disk = w.disk; w.disk != nil {
		b.cfg.Transport = pausable{cfg.Transport, &b.gate}
	}
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
	if cfg.ID < 0 || cfg.ID > maxBrokerID {
		p.add("ID is %d, must be 0 for a master, or 1 to %d for a slave", cfg.ID, int64(maxBrokerID))
	}
	checkAddr(p, "Addr", cfg.Addr)
	checkAddr(p, "HAAddr", cfg.HAAddr)
	cfg.AdvertiseAddr = checkAdvertised(p, "AdvertiseAddr", cfg.AdvertiseAddr)
	if cfg.AdvertiseAddr == "" && isWildcard(cfg.Addr) {
		p.add("Addr %s is a wildcard, which clients can't dial: set AdvertiseAddr to an address of this machine", cfg.Addr)
	}
	if cfg.Flush != AsyncFlush && cfg.Flush != SyncFlush {
		p.add("Flush is %d: use AsyncFlush or SyncFlush", cfg.Flush)
	}
	cfg.checkReplication(p)
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
	r.moved = make(chan struct{}, 1)
	r.copyNow = make(chan struct{}, 1)
	r.puts.start, r.gets.start = time.Now(), time.Now()
	if !b.wire.shared {
		r.events = newEmitter(b.cfg.OnEvent)
		u.add(func() { _ = r.events.close() })
	}

	_, serr := os.Stat(filepath.Join(b.cfg.Dir, "commitlog"))
	fresh := os.IsNotExist(serr)
	replica, rerr := b.openReplica()
	if rerr == nil {
		if err = replica.mayBegin(b.cfg.Failover); err != nil { // before the store dispatches what is not confirmed
			return fmt.Errorf("%s: %w", b.node, err)
		}
	}
	r.replica = replica
	if err = r.openStore(); err != nil { // it says more of what is wrong with the folder
		return err
	}
	u.add(func() { _ = r.store().Kill() }) // a start that failed says nothing more to the folder
	if rerr != nil {
		return rerr
	}

	config := func(name string) string { return filepath.Join(b.cfg.Dir, "config", name) }
	if r.topics, err = topics.Open(time.Now(), topics.Options{
		File: config("topics.json"), NoSync: b.throwaway, Disk: b.wire.disk, Cluster: b.cfg.Cluster, Broker: b.cfg.Name,
		AutoCreate: !b.cfg.DisableAutoCreateTopic, DefaultQueues: b.cfg.DefaultTopicQueues, Logger: b.log,
	}); err != nil {
		return err
	}
	if err = r.ensureTopics(); err != nil {
		return err
	}
	if r.offsets, err = offsets.Open(offsets.Options{File: config("consumerOffset.json"), NoSync: b.throwaway, Disk: b.wire.disk, Logger: b.log}); err != nil {
		return err
	}
	if r.settings, err = groups.OpenSettings(groups.SettingsOptions{File: config("subscriptionGroup.json"), NoSync: b.throwaway, Disk: b.wire.disk, Logger: b.log}); err != nil {
		return err
	}
	if r.progress, err = delay.OpenProgress(config("delayOffset.json"), b.throwaway, b.log); err != nil {
		return err
	}
	r.progress.On(b.wire.disk)
	// A damaged store ends, for now, where its damage begins: progress beyond is
	// kept for the time when it is repaired.
	if err := r.store().Err(); errors.Is(err, store.ErrReadOnly) {
		b.log.Error("store opened read-only", "err", err)
		r.events.emit(b.node, func(e EventBase) Event { return StoreFenced{e, fenced(err)} })
	} else if n := r.offsets.Clamp(r.store().MaxOffset); n > 0 {
		b.log.Warn("committed offsets lay beyond their queues and were lowered", "offsets", n)
	}
	r.ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	u.add(func() { r.cancel(nil); r.loops.Wait() })
	if r.listener, err = b.cfg.Transport.ListenBroker(ctx, protocol.Listen{Node: b.node, Addr: b.cfg.Addr, Advertise: b.cfg.AdvertiseAddr}, r); err != nil {
		return err
	}
	u.add(func() { _ = r.listener.Close() })
	if (b.cfg.ID == protocol.MasterID || b.cfg.Failover) && !b.wire.alone {
		if err = r.openDoor(ctx); err != nil {
			return err
		}
		u.add(func() { _ = r.door.listener.Close() })
	}
	if r.addr, err = netip.ParseAddrPort(r.listener.Addr()); err != nil {
		return fmt.Errorf("transport listens on %q: %w", r.listener.Addr(), err)
	}
	r.uniqKeys = message.NewUniqKeys(r.addr.Addr(), uint16(os.Getpid()), rand.Uint32())
	r.reg = newRegistrar(r)
	u.add(r.reg.close)
	u.add(func() {
		r.cancel(nil)
		if r.door != nil {
			_ = r.door.listener.Close() // one of the loops takes its connections
		}
		r.loops.Wait()
		r.duty.end(nil)
	})
	switch {
	case b.cfg.Failover:
		err = r.takePart(fresh)
	case b.cfg.ID == protocol.MasterID:
		err = r.serveAsMaster(ctx)
	default:
		err = r.serveAsSlave()
	}
	if err != nil {
		return err
	}
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
	b.run.Store(r)
	b.wire.watch.changed("")
	b.log.Info("broker serves", "addr", r.addr, "dir", b.cfg.Dir)
	return nil
}

// Shutdown takes the broker out of the routes, refuses new sends, waits for
// those in flight until ctx ends, and closes. The master of a group with failover
// hands over to a slave that is in sync before it closes, with all that it has answered,
// and waits for that until ctx ends, for LeaseExpire and LeaseRenew at most: sends go on
// within a second, or two LeaseRenew later when links or disks are slow. After Close they
// wait for its lease to run out.
func (b *Broker) Shutdown(ctx context.Context) error {
	if b.life.use() == nil {
		b.gate.open()
		r := b.run.Load()
		r.draining.Store(true)
		r.reg.unregister(ctx)
		r.sends.wait(ctx)
		r.handOver(ctx)
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
func (b *Broker) powerOff() error {
	return b.stop(func(s *store.Store) error {
		return errors.Join(s.PowerOff(), b.run.Load().replica.losePower())
	}, false)
}

// errKilled is the end of a broker that nobody is told of.
var errKilled = errors.New("killed")

// discard closes a broker whose data nobody wants.
func (b *Broker) discard() error { return b.stop((*store.Store).Discard, false) }

func (b *Broker) stop(closeStore func(*store.Store) error, persist bool) error {
	return b.life.close(func() error {
		r := b.run.Load()
		b.gate.end()
		if persist {
			r.cancel(nil)
		} else {
			r.cancel(errKilled) // it says nothing to anybody
		}
		errs := []error{r.listener.Close()}
		if r.door != nil {
			_ = r.door.listener.Close()
		}
		r.waiters.Close()
		r.loops.Wait()
		r.duty.end(nil) // nobody begins another one
		r.reg.close()
		if persist {
			errs = append(errs, r.offsets.Persist(), r.settings.Persist(), r.closeDelays(), r.replica.persist(r.neverCut()))
		}
		err := hooked(closeStore(r.store()))
		if err == nil && persist {
			err = r.replica.close()
		}
		errs = append(errs, err)
		if !b.wire.shared {
			errs = append(errs, r.events.close())
		}
		b.log.Info("broker closed")
		return errors.Join(errs...)
	}, func() error {
		r := b.run.Load()
		if err := hooked(r.store().Close()); errors.Is(err, ErrHandlersRunning) {
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

// ID returns the broker's configured id within its group.
func (b *Broker) ID() int64 { return b.cfg.ID }

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

// registerLoop registers every BrokerRegister. Java: BrokerController.start.
func (r *brokerRun) registerLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.BrokerRegister, func(time.Time) {
		_ = r.gate.pass(ctx) // register looks at ctx
		if err := r.reg.register(ctx, registerTimeout); err != nil && ctx.Err() == nil {
			r.log.Warn("registration failed", "err", err)
		}
	})
}

// persistLoop persists consumer offsets, the settings of new groups, and the
// progress of delayed messages, every OffsetPersist.
func (r *brokerRun) persistLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.OffsetPersist, func(time.Time) {
		if r.gate.pass(ctx) != nil {
			return // a killed broker saves nothing
		}
		if err := r.offsets.Persist(); err != nil {
			r.log.Error("consumer offsets not persisted", "err", err)
		}
		if err := r.settings.Persist(); err != nil {
			r.log.Error("group settings not persisted", "err", err)
		}
		if err := r.replica.persist(r.neverCut()); err != nil {
			r.log.Error("what is confirmed was not persisted", "err", err)
		}
		if err := r.persistDelays(ctx); err != nil && ctx.Err() == nil {
			r.log.Error("progress of delayed messages not persisted", "err", err)
		}
	})
}

// memberLoop drops clients that fell silent. Java: ClientHousekeepingService.
func (r *brokerRun) memberLoop(ctx context.Context) {
	every(ctx, r.cfg.Timings.ClientScan, func(now time.Time) {
		if r.gate.isShut() {
			_ = r.gate.pass(ctx) // what clients have said meanwhile is heard before the next scan
			return
		}
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

	paused  atomic.Bool // something of it has met a pause
	oneways oneways
}

// Close ends the session: its client leaves its groups at once.
func (s *brokerSession) Close() error {
	if s.gate.isShut() || s.paused.Load() && s.oneways.pending() {
		s.paused.Store(true)
		s.postpone(func(context.Context) { s.leave() })
		return nil
	}
	s.leave()
	return nil
}

func (s *brokerSession) leave() {
	s.conns.Add(-1)
	s.open.end()
	s.pullers.Closed(s.id)
	s.membersChanged(s.groups.ConnClosed(s.id))
}

// serveOpen serves a request to a broker that is not paused.
func serveOpen[Q, R any](ctx context.Context, s *brokerSession, code Code, topic, group string, q *Q, serve func(*brokerSession, context.Context, *Q) (*R, error)) (*R, error) {
	if !s.serving.Load() {
		return nil, &protocol.Error{Code: protocol.SystemError, Remark: "the broker is starting, try again", Broker: s.cfg.Name}
	}
	guarded := needsMaster(code) || code == protocol.CodeUpdateConsumerOffset && s.elections != nil && s.draining.Load()
	if guarded {
		s.writes.enter() // before its role is looked at: see fence
		defer s.writes.leave()
	}
	role := s.standing.Load()
	if guarded && role.role != RoleMaster {
		return nil, answer(ctx, s.cfg.Name, s.notMaster(code))
	}
	if guarded {
		if err := s.retires(code, role); err != nil {
			return nil, answer(ctx, s.cfg.Name, err)
		}
	}
	var resp *R
	var err error
	if s.wire.faults.list.Load() == nil {
		resp, err = serveLeased(ctx, s, code, role, q, serve)
	} else {
		resp, err = handled(ctx, s.wire.faults, request{code, s.node, s.peer.Node, topic, group}, q, s.later,
			func(ctx context.Context, q *Q) (*R, error) { return serveLeased(ctx, s, code, role, q, serve) })
	}
	if err == nil {
		if err = s.mayServe(code, role); err != nil {
			resp = nil
		}
	}
	if err != nil {
		return resp, answer(ctx, s.cfg.Name, err)
	}
	return resp, nil
}

// serveLeased serves a request unless that takes a lease which is over: then certainly
// nothing of it was done.
func serveLeased[Q, R any](ctx context.Context, s *brokerSession, code Code, role *standing, q *Q, serve func(*brokerSession, context.Context, *Q) (*R, error)) (*R, error) {
	if err := s.mayServe(code, role); err != nil {
		return nil, protocol.Errorf(protocol.ServiceNotAvailable, "%s %s", protocol.RemarkRole, protocol.AsError(err).Remark)
	}
	return serve(s, ctx, q)
}

// later runs f in the background; Close joins it. Only handlers call it, and
// those have all returned before the loops are waited for.
func (r *brokerRun) later(f func(context.Context)) { r.loops.Go(func() { f(r.ctx) }) }
