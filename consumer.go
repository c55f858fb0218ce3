package pocketmq

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/internal/consume"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/rebalance"
)

// Defaults of ConsumerConfig.
const (
	defaultConcurrency    = 20
	defaultBatchSize      = 1
	defaultPullBatchSize  = 32
	defaultMaxCached      = 1000
	defaultMaxCachedBytes = 100 << 20
	defaultMaxCachedTotal = 256 << 20
	defaultMaxSpan        = 2000
	defaultConsumeTimeout = 15 * time.Minute
)

// ConsumerConfig configures a Consumer. It is copied by NewConsumer. Defaults
// stand in square brackets, the names of Java's DefaultMQPushConsumer in round
// ones; where its default is another one it is given too. Its intervals, such as
// persistConsumerOffsetInterval, are in Timings.
//
// What Java has and this has not, with its default, and why:
//
//   - consumeThreadMin (20), adjustThreadPoolNumsThreshold (100000): Concurrency
//     is the number of handlers, workers without one wait.
//   - pullInterval (0): the next pull goes out at once.
//   - pullThresholdForTopic (-1), pullThresholdSizeForTopic (-1): off there;
//     MaxCachedTotal bounds all topics together.
//   - pullBatchSizeInBytes (256 KiB), postSubscriptionWhenPull (false): brokers
//     bound a pull to 256 KiB, and filter by what heartbeats told.
//   - consumerPullTimeoutMillis (30 s), mqClientApiTimeout (3 s): a pull fails
//     15 s after PullSuspend, the calls of a rebalance after 3 s, those for
//     offsets after 5 s.
//   - awaitTerminationMillisWhenShutdown (0): Shutdown waits as long as its
//     context lasts, Close for CloseTimeout.
type ConsumerConfig struct {
	Group        string   // required (consumerGroup; DEFAULT_CONSUMER, which it refuses at start)
	InstanceName string   // part of the client id; "" = unique (instanceName; DEFAULT, which becomes pid#nanoTime)
	NameServers  []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport    Transport

	Subscriptions map[string]Filter // topic -> filter; all members of a group must have the same. More by Subscribe

	// Model says who gets a message: one member of the group (Clustering, the
	// default), or every member (Broadcasting). A broadcasting consumer holds
	// every queue, keeps its offsets itself, and gets nothing a second time: a
	// message whose Handler failed is logged and passed over, as in RocketMQ. What
	// it has not finished when it stops it gets again if it has an OffsetDir
	// (messageModel; CLUSTERING).
	Model MessageModel
	// OffsetDir is where a Broadcasting consumer keeps how far it has come, in
	// <OffsetDir>/<client id>/<Group>/offsets.json; "" = in memory only, so that
	// the next Start begins where From says. The file is found again by a consumer
	// with the same InstanceName: without one every client id is new
	// (rocketmq.client.localOffsetStoreDir; $HOME/.rocketmq_offsets). Files of
	// RocketMQ's clients can be read.
	OffsetDir string

	// Handler consumes 1 to BatchSize messages of one queue. nil: consumed. An
	// error, or a panic: all of them failed and go back to their broker, which
	// delivers them again after a delay that grows with each attempt, level
	// 3 + ReconsumeTimes of its Timings.DelayLevels, to any member of the group, and
	// makes them dead letters in %DLQ%group after MaxReconsume attempts more.
	// RetryAfter, DeadLetter and Done say more than a plain error. The committed
	// offset passes a failed message only when a broker has acknowledged it; until
	// then it is handed out again here, every 5 s. A message that is retried has its
	// own Topic, while Queue is one of %RETRY%group, and ReconsumeTimes counts its
	// failures.
	//
	// It runs on up to Concurrency goroutines at once and keeps no lock of the
	// consumer. ctx is cancelled by Close; what is an error then stays unfinished:
	// it is neither committed nor sent back. The messages are the handler's.
	// Java: MessageListenerConcurrently.
	Handler func(ctx context.Context, msgs []*MessageExt) error

	// Orderly hands out the messages of each queue in the order of their offsets,
	// one Handler call per queue at a time, on up to Concurrency goroutines over
	// all queues (MessageListenerOrderly). Messages with the same ShardingKey are
	// in one queue.
	//
	// What fails stays in place: the same messages come again, first, after
	// Timings.OrderlySuspend, as often as it takes, and the later ones of the
	// queue wait. Done(n, err) consumes the first n and keeps the rest; DeadLetter,
	// and MaxReconsume if it is set, end the attempts: the message goes to
	// %DLQ%group, then the next one is handed out. The level of RetryAfter does not
	// count.
	//
	// In a clustering group the queue is locked at its broker (see
	// Timings.LockExpire), so that no other member handles it meanwhile: a handler
	// may overlap with that of another member only if it runs already when its
	// broker is lost, or if it was left behind: after a Close or Shutdown that gave
	// up on it (ErrHandlersRunning) nobody renews its lock, which ends after
	// Timings.LockExpire.
	Orderly bool

	// From says where a group without a committed offset starts, for the queues
	// that the route shows while Start, or the topic's Subscribe, runs
	// [FromLastOffset] (consumeFromWhere; consumeTimestamp is 30 min before the
	// start). A queue that appears later is read from its beginning.
	From ConsumeFrom

	// Strategy shares the queues of each topic among the members of the group:
	// rebalance.Averagely [nil], AveragelyByCircle, ConsistentHash, MachineRoom,
	// MachineRoomNearby, ByConfig, or your own; all members must have the same.
	// One of your own is also asked for the other members' shares whenever queues
	// or members changed, and the log warns of queues that nobody gets, or more
	// than one member, by name; they are shared as it says all the same. What
	// names a queue twice, or one that is not there, is refused: the consumer
	// keeps what it holds, and Start fails. Of a ByConfig's list the queues that
	// exist count. It is called by one goroutine at a time.
	// (allocateMessageQueueStrategy)
	Strategy rebalance.Strategy

	Concurrency    int   // handlers running at once [20] (consumeThreadMax)
	BatchSize      int   // most messages of one Handler call [1] (consumeMessageBatchMaxSize)
	PullBatchSize  int   // most messages of one pull [32], at most 32 are served (pullBatchSize)
	MaxCached      int   // messages waiting or being handled, per queue [1000] (pullThresholdForQueue)
	MaxCachedBytes int64 // the same in bytes, per queue [100 MiB] (pullThresholdSizeForQueue)
	MaxCachedTotal int64 // the same in bytes, per consumer [256 MiB] (none)
	MaxSpan        int64 // most offsets between a queue's oldest unfinished and newest message [2000] (consumeConcurrentlyMaxSpan)

	// MaxReconsume is how many attempts a failed message gets after the first one,
	// before it is a dead letter; NoRetries = none. 0 = what the settings of the
	// group at the brokers say, 16 unless they were changed (maxReconsumeTimes).
	// Differs: RocketMQ's clients send their own default of 16 with every message,
	// so that the group's setting never counts. Orderly: 0 = without limit, as in
	// RocketMQ; attempts are counted per consumer life.
	MaxReconsume int

	ConsumeTimeout time.Duration // a message that a handler of a concurrent group has had for this long is sent back, level 3, and its result does not count any more [15 min] (consumeTimeout)
	CloseTimeout   time.Duration // Close waits this long for handlers [10 s] (awaitTerminationMillisWhenShutdown; 0)

	Timings Timings
	Logger  *slog.Logger // nil = silent
}

// Consumer gets the messages of its group's topics pushed to a Handler: it
// shares the topics' queues with the other members of the group, pulls from
// its own, and commits how far it has come. Safe for concurrent use.
// Java: DefaultMQPushConsumer.
//
// Delivery is at least once: a message may come again after a crash, when a
// queue changes hands, and after a failure, twice when it is open whether a broker
// took it back. A committed offset never passes a message that is neither consumed
// nor safe with a broker, in %RETRY%group or %DLQ%group.
type Consumer struct {
	cfg    ConsumerConfig
	id     identity
	log    *slog.Logger
	life   life
	events *emitter // of the cluster that started it; nil otherwise
	pauses consume.Pauses

	mu   sync.Mutex // guards subs, and that engine is made of all of them
	subs map[string]filter.Tags

	client  *client.Client
	engine  atomic.Pointer[consume.Engine] // nil before Start
	codec   *message.Codec
	release func()
}

// member is the part of cfg that every client of a group has.
func (cfg *ConsumerConfig) member() *groupMember {
	return &groupMember{cfg.Group, cfg.InstanceName, cfg.NameServers, cfg.Transport, cfg.Subscriptions, cfg.Model, cfg.OffsetDir}
}

// NewConsumer checks cfg and starts nothing. An unusable config, a bad filter
// included, is ErrInvalidConfig with all violations listed; an illegal group or
// topic is also ErrIllegalName.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) { return newConsumer(cfg, nil) }

func newConsumer(cfg ConsumerConfig, events *emitter) (*Consumer, error) {
	p := problems{what: "ConsumerConfig"}
	m := cfg.member()
	subs := m.check(&p)
	if cfg.Handler == nil {
		p.add("Handler is nil")
	}
	if cfg.Strategy == nil {
		cfg.Strategy = rebalance.Averagely
	}
	positive(&p, "Concurrency", &cfg.Concurrency, defaultConcurrency)
	positive(&p, "BatchSize", &cfg.BatchSize, defaultBatchSize)
	positive(&p, "PullBatchSize", &cfg.PullBatchSize, defaultPullBatchSize)
	positive(&p, "MaxCached", &cfg.MaxCached, defaultMaxCached)
	positive(&p, "MaxCachedBytes", &cfg.MaxCachedBytes, defaultMaxCachedBytes)
	positive(&p, "MaxCachedTotal", &cfg.MaxCachedTotal, defaultMaxCachedTotal)
	positive(&p, "MaxSpan", &cfg.MaxSpan, defaultMaxSpan)
	defaultOrNone(&p, "MaxReconsume", cfg.MaxReconsume)
	if cfg.MaxReconsume > math.MaxInt32 {
		p.add("MaxReconsume is %d, must be at most %d", cfg.MaxReconsume, math.MaxInt32)
	}
	positive(&p, "ConsumeTimeout", &cfg.ConsumeTimeout, defaultConsumeTimeout)
	positive(&p, "CloseTimeout", &cfg.CloseTimeout, closeTimeout)
	cfg.Timings.validate(&p)
	if err := p.err(); err != nil {
		return nil, err
	}
	cfg.Timings = cfg.Timings.withDefaults()
	cfg.NameServers = m.nameServers
	id := newIdentity(cfg.InstanceName)
	c := &Consumer{cfg: cfg, id: id, subs: subs, events: events, log: loggerOf(cfg.Logger, "client", id.clientID)}
	c.life.what = "consumer " + id.clientID
	return c, nil
}

// Start joins the group and returns after the first rebalance of every
// subscribed topic that has a route, with start offsets resolved: what is sent
// after Start returned is never skipped. A topic without a route is no error;
// it is consumed once it has one. ctx bounds the start only.
//
// Another running client of the same group and InstanceName on this Transport
// is ErrDuplicateClient; no name server that answers is ErrUnreachable.
func (c *Consumer) Start(ctx context.Context) error {
	return c.life.start(ctx, func(ctx context.Context) (err error) {
		var u undo
		started := false
		defer func() {
			if !started { // failed, or a Strategy took the goroutine with it
				u.run()
			}
		}()
		if c.release, err = c.cfg.Transport.Claim(c.cfg.Group, c.id.clientID); err != nil {
			return err
		}
		u.add(c.release)
		c.codec = message.NewCodec()
		u.add(c.codec.Close)
		var engine *consume.Engine
		m := c.cfg.member()
		c.client = m.client(c.id.clientID, &c.cfg.Timings, c.log, func() *consume.Engine { return engine })
		offsetFile := m.offsetFile(c.id.clientID, c.log)
		c.mu.Lock()
		cfg := consume.Config{
			Group: c.cfg.Group, ClientID: c.id.clientID, Model: c.cfg.Model, OffsetFile: offsetFile, Client: c.client, Codec: c.codec,
			Subscriptions: c.subs, Pauses: &c.pauses, Handler: c.cfg.Handler, From: c.cfg.From.from, FromTime: c.cfg.From.at, Strategy: c.cfg.Strategy,
			Concurrency: c.cfg.Concurrency, BatchSize: c.cfg.BatchSize, PullBatchSize: c.cfg.PullBatchSize, MaxCached: c.cfg.MaxCached,
			MaxCachedBytes: c.cfg.MaxCachedBytes, MaxCachedTotal: c.cfg.MaxCachedTotal, MaxSpan: c.cfg.MaxSpan,
			MaxReconsume: maxReconsume(c.cfg.MaxReconsume), ConsumeTimeout: c.cfg.ConsumeTimeout, CloseTimeout: c.cfg.CloseTimeout,
			Rebalance: c.cfg.Timings.Rebalance, RebalanceRetry: c.cfg.Timings.RebalanceRetry, RouteRetry: c.cfg.Timings.RouteRetry,
			LockRenew: c.cfg.Timings.LockRenew, LockClientLife: c.cfg.Timings.LockClientLife, OrderlySuspend: c.cfg.Timings.OrderlySuspend,
			Orderly:       c.cfg.Orderly,
			OffsetPersist: c.cfg.Timings.OffsetPersist, PullSuspend: c.cfg.Timings.PullSuspend, PullErrorDelay: c.cfg.Timings.PullErrorDelay, PullExpire: c.cfg.Timings.PullExpire,
			Logger: c.log,
		}
		m.tell(&cfg, c.id.clientID, c.events)
		engine = consume.New(cfg)
		c.engine.Store(engine)
		c.mu.Unlock()
		c.client.Start()
		u.add(func() { _ = c.client.Close() })
		err = engine.Start(ctx)
		started = err == nil
		return err
	})
}

// maxReconsume is the engine's word for ConsumerConfig.MaxReconsume.
func maxReconsume(n int) int {
	switch n {
	case 0:
		return consume.GroupMaximum
	case NoRetries:
		return 0
	}
	return n
}

// Shutdown stops pulling, lets the running handlers end, commits, and leaves the
// group. What handlers finish meanwhile is committed at once.
//
// It returns as soon as ctx ends, whatever brokers and handlers do; when ctx has
// no deadline, silent brokers get 3 s. When handlers run at the end of ctx,
// their context is cancelled, and the error matches ErrHandlersRunning and says
// what was left; a later Close waits for them. When the last offset of a queue
// could not be stored, or it is open whether it was, the error names the queue
// and matches the cause (ErrUnreachable, ErrUnknownOutcome, ctx's error): what
// was finished there since the commit before is delivered again. Nothing is
// stored with a ctx that has ended already.
//
// A Close meanwhile turns it into a Close, with the bounds of that. Of two
// Shutdowns the first counts: the other waits for it as long as its own ctx
// lasts.
func (c *Consumer) Shutdown(ctx context.Context) error {
	if c.life.use() != nil {
		return c.Close()
	}
	engine := c.engine.Load()
	err := engine.Shutdown(ctx)
	if errors.Is(err, consume.ErrUnderWay) {
		return err // the other call closes
	}
	cerr := c.close(func() error {
		if errors.Is(err, ErrHandlersRunning) {
			return err // no time is left to wait for them
		}
		return engine.Close()
	})
	if err == nil {
		err = cerr
	}
	return err
}

// Close cancels the handlers' context, waits at most CloseTimeout for them,
// commits what is finished, giving silent brokers 3 s, and leaves the group. It
// returns ErrHandlersRunning while handlers have not returned, nil once they
// have. What a handler returns after its context was cancelled stays unfinished
// if it is an error. Offsets that could not be stored are logged as warnings and
// no error, since brokers may have gone before: what they cover is delivered
// again. Use Shutdown to be told.
func (c *Consumer) Close() error {
	return c.close(func() error { return c.engine.Load().Close() })
}

// close stops the engine with stop, unless that has been done, then the rest.
func (c *Consumer) close(stop func() error) error {
	return c.life.close(func() error {
		err := errors.Join(stop(), c.client.Close())
		c.release()
		if err == nil {
			c.codec.Close()
		}
		return err
	}, func() error {
		err := c.engine.Load().Close()
		if err == nil {
			c.codec.Close()
		}
		return err
	})
}

// ClientID returns the consumer's client id, which is its node name too.
func (c *Consumer) ClientID() string { return c.id.clientID }

// Assignment returns the queues that the consumer holds now, sorted; they are
// the caller's.
func (c *Consumer) Assignment() []MessageQueue {
	if c.life.use() != nil {
		return nil
	}
	return c.engine.Load().Assignment()
}

// Status returns a snapshot; the zero value before Start.
func (c *Consumer) Status() ConsumerStatus {
	engine := c.engine.Load()
	if engine == nil {
		return ConsumerStatus{}
	}
	s := engine.Status()
	return ConsumerStatus{Received: s.Received, Consumed: s.Consumed, Failed: s.Failed, SentBack: s.SentBack, Running: s.Running, Idle: s.Idle, Undecodable: s.Undecodable}
}
