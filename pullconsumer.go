package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/internal/consume"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// Limits of what a pull consumer fetches ahead. Java: pullThresholdForAll and,
// with the values of a push consumer, pullThresholdForQueue,
// pullThresholdSizeForQueue and consumeMaxSpan.
const (
	defaultPollBatchSize = 10
	maxFetchedAhead      = 10000
)

// PullConsumerConfig configures a PullConsumer. It is copied by NewPullConsumer.
// The names in brackets are those of Java's DefaultLitePullConsumer.
type PullConsumerConfig struct {
	Group        string   // required (consumerGroup)
	InstanceName string   // part of the client id; "" = unique (instanceName)
	NameServers  []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport    Transport

	// Subscriptions makes the consumer a member of its group, which shares the
	// topics' queues with the others: topic -> filter; all members must have the
	// same. More by Subscribe. None is legal: Assign names the queues then, or
	// there is nothing but Pull.
	Subscriptions map[string]Filter

	Model MessageModel // Clustering, or Broadcasting: every member holds every queue (messageModel)
	From  ConsumeFrom  // where a group without a committed offset starts (consumeFromWhere, consumeTimestamp)
	// Strategy shares the queues, as ConsumerConfig.Strategy
	// [rebalance.Averagely] (allocateMessageQueueStrategy).
	Strategy rebalance.Strategy

	PullBatchSize int // most messages that one Poll returns, and, up to 32, one fetch brings [10] (pullBatchSize)

	// ManualCommit leaves it to Commit what is committed. Otherwise what Poll
	// returned before the last Poll is committed every Timings.OffsetPersist, when
	// a queue goes to another member, and on Close (autoCommit, the opposite).
	ManualCommit bool

	// OffsetDir is where a Broadcasting consumer keeps its offsets, as
	// ConsumerConfig.OffsetDir; "" = in memory only.
	OffsetDir string

	Timings Timings
	Logger  *slog.Logger // nil = silent
}

// PullConsumer gives out messages when it is asked, by Poll or Messages, of queues
// that it shares with the members of its group (Subscriptions, Subscribe) or that
// it is told (Assign); and it reads any queue at any place, by Pull. It fetches
// ahead, in the background, up to 1,000 messages or 100 MiB of a queue, and 10,000
// messages or 256 MiB altogether. Safe for concurrent use. Java:
// DefaultLitePullConsumer.
//
// Delivery is at least once: a committed offset never passes what Poll returned
// before the last Poll, or, with ManualCommit, what it had returned when Commit was
// called. What was returned later, or fetched and not returned, comes again: to
// this consumer after a restart, or to the member that a queue goes to. Failed
// messages are the caller's: nothing is retried, and there is no dead-letter topic.
//
// Differs from RocketMQ: who Assigns is no member of the group, so that others who
// share queues do not leave it some that it never reads. Timings.PullSuspend and
// PullErrorDelay count, where Java's lite pull consumer has 20 s and 1 s of its
// own. Nothing is dropped when an offset has left the queue: see OffsetJumped.
type PullConsumer struct {
	cfg    PullConsumerConfig
	id     identity
	log    *slog.Logger
	life   life
	events *emitter // of the cluster that started it; nil otherwise
	pauses consume.Pauses

	mu       sync.Mutex // guards what follows, and that engine is made of all of it
	subs     map[string]filter.Tags
	assigned []MessageQueue // sorted; not nil once Assign was called

	client  *client.Client
	engine  atomic.Pointer[consume.Engine] // nil before Start
	codec   *message.Codec
	release func()
}

// member is the part of cfg that every client of a group has.
func (cfg *PullConsumerConfig) member() *groupMember {
	return &groupMember{cfg.Group, cfg.InstanceName, cfg.NameServers, cfg.Transport, cfg.Subscriptions, cfg.Model, cfg.OffsetDir}
}

// NewPullConsumer checks cfg and starts nothing. An unusable config, a bad filter
// included, is ErrInvalidConfig with all violations listed; an illegal group or
// topic is also ErrIllegalName.
func NewPullConsumer(cfg PullConsumerConfig) (*PullConsumer, error) {
	return newPullConsumer(cfg, nil)
}

func newPullConsumer(cfg PullConsumerConfig, events *emitter) (*PullConsumer, error) {
	p := problems{what: "PullConsumerConfig"}
	m := cfg.member()
	subs := m.check(&p)
	if cfg.Strategy == nil {
		cfg.Strategy = rebalance.Averagely
	}
	positive(&p, "PullBatchSize", &cfg.PullBatchSize, defaultPollBatchSize)
	cfg.Timings.validate(&p)
	if err := p.err(); err != nil {
		return nil, err
	}
	cfg.Timings = cfg.Timings.withDefaults()
	cfg.NameServers = m.nameServers
	id := newIdentity(cfg.InstanceName)
	c := &PullConsumer{cfg: cfg, id: id, subs: subs, events: events, log: loggerOf(cfg.Logger, "client", id.clientID)}
	c.life.what = "pull consumer " + id.clientID
	return c, nil
}

// Start joins the group, if there are Subscriptions, and returns after the first
// rebalance of every subscribed topic that has a route; or it takes the assigned
// queues. Start offsets are resolved then: what is sent after Start returned is
// never skipped. A topic without a route is no error; it is consumed once it has
// one. ctx bounds the start only.
//
// Another running client of the same group and InstanceName on this Transport is
// ErrDuplicateClient; no name server that answers is ErrUnreachable.
func (c *PullConsumer) Start(ctx context.Context) error {
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
		engine = c.newEngine(offsetFile)
		if c.assigned != nil {
			err = engine.Assign(ctx, c.assigned) // takes a note only: the engine has not started
		}
		c.engine.Store(engine)
		c.mu.Unlock()
		c.client.Start()
		u.add(func() { _ = c.client.Close() })
		if err == nil {
			err = engine.Start(ctx)
		}
		started = err == nil
		return err
	})
}

// newEngine makes the engine of one start.
func (c *PullConsumer) newEngine(offsetFile string) *consume.Engine {
	t := &c.cfg.Timings
	cfg := consume.Config{
		Group: c.cfg.Group, ClientID: c.id.clientID, Model: c.cfg.Model, OffsetFile: offsetFile, Client: c.client, Codec: c.codec,
		Subscriptions: c.subs, Pauses: &c.pauses, Polled: true, ManualCommit: c.cfg.ManualCommit,
		From: c.cfg.From.from, FromTime: c.cfg.From.at, Strategy: c.cfg.Strategy,
		PullBatchSize: min(c.cfg.PullBatchSize, maxPullMessages), MaxCached: defaultMaxCached, MaxCachedBytes: defaultMaxCachedBytes,
		MaxCachedTotal: defaultMaxCachedTotal, MaxCachedAll: maxFetchedAhead, MaxSpan: defaultMaxSpan,
		CloseTimeout: closeTimeout,
		Rebalance:    t.Rebalance, RebalanceRetry: t.RebalanceRetry, RouteRetry: t.RouteRetry, OffsetPersist: t.OffsetPersist,
		PullSuspend: t.PullSuspend, PullErrorDelay: t.PullErrorDelay, PullExpire: t.PullExpire, Logger: c.log,
	}
	c.cfg.member().tell(&cfg, c.id.clientID, c.events)
	return consume.New(cfg)
}

// Shutdown commits what is due, as Close does, and leaves the group. A Poll that
// waits returns ErrClosed. What Poll returned last is not committed, unless Commit
// was called.
//
// It returns as soon as ctx ends, whatever brokers do; when ctx has no deadline,
// silent brokers get 3 s. When an offset could not be stored, or it is open whether
// it was, the error names the queue and matches the cause: what was finished there
// since the commit before comes again. A Close meanwhile turns it into a Close.
func (c *PullConsumer) Shutdown(ctx context.Context) error {
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
			return err // a Strategy hangs, and no time is left to wait for it
		}
		return engine.Close()
	})
	if err == nil {
		err = cerr
	}
	return err
}

// Close is Shutdown without being told of offsets that could not be stored: they
// are logged. Silent brokers get 3 s. ErrHandlersRunning when a Strategy does not
// return within 10 s, nil once it has.
func (c *PullConsumer) Close() error {
	return c.close(func() error { return c.engine.Load().Close() })
}

// close stops the engine with stop, unless that has been done, then the rest.
func (c *PullConsumer) close(stop func() error) error {
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
func (c *PullConsumer) ClientID() string { return c.id.clientID }

// Poll returns the next messages as soon as there are some: 1 to PullBatchSize, of
// one queue, in the order of their offsets. Queues take turns. The messages are the
// caller's. It returns nil and ctx.Err() when ctx ends first. Java: poll, which
// returns nothing after 5 s.
//
// To call Poll is to say that what earlier calls have returned is finished: unless
// ManualCommit is set, it will be committed. Several goroutines may Poll; one that
// does speaks for all of them, so let them Commit by themselves if they take
// different times. A message that was returned comes again when the consumer ends,
// or loses the queue, before it is committed.
//
// ErrNotStarted before Start, ErrClosed after Close and as soon as it is called.
func (c *PullConsumer) Poll(ctx context.Context) ([]*MessageExt, error) {
	return c.poll(ctx, c.cfg.PullBatchSize)
}

func (c *PullConsumer) poll(ctx context.Context, most int) ([]*MessageExt, error) {
	if err := c.life.use(); err != nil {
		return nil, err
	}
	return c.engine.Load().Poll(ctx, most)
}

// Messages polls for one message after the other, without end: the loop's next
// round says that the message of the one before is finished, as Poll does. A loop
// that is left leaves its last message unfinished until the next Poll or Messages.
// When ctx or the consumer ends the loop gets nil and ctx's error, or ErrClosed, and
// is over.
//
//	for m, err := range c.Messages(ctx) {
//		if err != nil {
//			return err
//		}
//		handle(m)
//	}
func (c *PullConsumer) Messages(ctx context.Context) iter.Seq2[*MessageExt, error] {
	return func(yield func(*MessageExt, error) bool) {
		for {
			msgs, err := c.poll(ctx, 1)
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(msgs[0], nil) {
				return
			}
		}
	}
}

// Subscribe adds a topic, or changes the filter of one, as Consumer.Subscribe does:
// at run time it returns once brokers know, this consumer's share of the queues is
// taken and start offsets are resolved. It works before Start, too. A changed filter
// applies to what Poll has not returned yet. ErrInvalidConfig for a bad filter, and
// for a consumer whose queues were Assigned. Java: subscribe.
func (c *PullConsumer) Subscribe(ctx context.Context, topic string, f Filter) error {
	if err := checkTopicName(topic); err != nil {
		return err
	}
	if f.err != nil {
		return protocol.Tagged(fmt.Sprintf("subscription to topic %q: %v", topic, f.err), ErrInvalidConfig)
	}
	if err := c.open(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.assigned != nil {
		c.mu.Unlock()
		return protocol.Tagged(fmt.Sprintf("%s: subscription to topic %q: queues were assigned to it, and it can't share queues with its group too: use another PullConsumer", c.life.what, topic), ErrInvalidConfig)
	}
	c.subs[topic] = f.tags
	engine := c.engine.Load()
	c.mu.Unlock()
	if engine == nil {
		return nil
	}
	return engine.Subscribe(ctx, topic, f.tags)
}

// Assign says which queues Poll reads, in place of those of an Assign before; none
// given: none. It works before Start, and at run time, when it returns once the
// start offsets of new queues are resolved: the group's committed ones, else where
// From says. Queues that stay go on where they are. The consumer is no member of
// its group then, and takes no part in a rebalance. A queue that no route shows is
// no error; it is read once one does. Java: assign.
//
// ErrInvalidConfig for a consumer that subscribes, ErrIllegalName for an illegal
// topic, ErrClosed after Close. While a broker fails Assign tries again as long as
// ctx lasts; then the error matches ctx's, and it goes on in the background.
func (c *PullConsumer) Assign(ctx context.Context, queues ...MessageQueue) error {
	for _, q := range queues {
		if err := checkTopicName(q.Topic); err != nil {
			return err
		}
		if q.BrokerName == "" || q.QueueID < 0 {
			return protocol.Tagged(fmt.Sprintf("assignment of %v: a queue has the name of its broker and an id from 0 on", q), ErrInvalidConfig)
		}
	}
	if err := c.open(); err != nil {
		return err
	}
	c.mu.Lock()
	if len(c.subs) > 0 {
		c.mu.Unlock()
		return protocol.Tagged(fmt.Sprintf("%s: assignment of queues: it shares those of its Subscriptions with its group, and can't be assigned others too: use another PullConsumer", c.life.what), ErrInvalidConfig)
	}
	c.assigned = append(make([]MessageQueue, 0, len(queues)), queues...)
	slices.SortFunc(c.assigned, MessageQueue.Compare)
	c.assigned = slices.Compact(c.assigned)
	assigned, engine := c.assigned, c.engine.Load()
	c.mu.Unlock()
	if engine == nil {
		return nil
	}
	return engine.Assign(ctx, assigned)
}

// open is nil until a Close begins.
func (c *PullConsumer) open() error {
	switch c.life.state.Load() {
	case lifeClosing, lifeClosed:
		return c.life.use()
	}
	return nil
}

// Assignment returns the queues that were assigned, or else those that the consumer
// holds now, sorted; they are the caller's. nil after Close. Java: assignment.
func (c *PullConsumer) Assignment() []MessageQueue {
	if c.open() != nil {
		return nil
	}
	c.mu.Lock()
	assigned := slices.Clone(c.assigned)
	c.mu.Unlock()
	if assigned != nil {
		return assigned
	}
	if c.life.use() != nil {
		return nil
	}
	return c.engine.Load().Assignment()
}

// Seek has the next Poll go on at offset in a queue of Assignment, whatever is
// there: one outside the queue leads back into it when it is read, with the event
// OffsetJumped. What was fetched and not returned is forgotten; a Poll under way may
// still return what it has. The offset is committed as if Poll had come there. A
// queue that the consumer does not hold is ErrInvalidConfig. Java: seek.
func (c *PullConsumer) Seek(ctx context.Context, q MessageQueue, offset int64) error {
	if err := c.life.use(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: seek in %v: %w", c.life.what, q, err)
	}
	return notHeld(c.engine.Load().Seek(q, offset))
}

// SeekTime is Seek to the first message that was stored at t or later, or to the
// end. Brokers look at whole milliseconds. Errors as of Seek, and of a call to the
// queue's broker. Java: offsetForTimestamp, seek.
func (c *PullConsumer) SeekTime(ctx context.Context, q MessageQueue, t time.Time) error {
	if err := c.life.use(); err != nil {
		return err
	}
	engine := c.engine.Load()
	if err := engine.Holds(q); err != nil {
		return notHeld(err)
	}
	offset, err := engine.OffsetAt(ctx, q, t)
	if err != nil {
		return err
	}
	return notHeld(engine.Seek(q, offset))
}

// notHeld gives the error of a queue that is not held a public face.
func notHeld(err error) error {
	if errors.Is(err, consume.ErrNotHeld) {
		return protocol.Tagged(err.Error()+", see Assignment", ErrInvalidConfig)
	}
	return err
}

// Commit commits, for each queue of Assignment, the offset behind the last message
// that Poll returned or that Seek set; a queue where neither has happened is left
// alone. It returns when brokers have them. An error names the queues whose offsets
// are not known to be stored; they are tried again every Timings.OffsetPersist.
// Java: commit.
func (c *PullConsumer) Commit(ctx context.Context) error {
	if err := c.life.use(); err != nil {
		return err
	}
	return c.engine.Load().Commit(ctx)
}

// Committed returns the committed offset of the group in any queue, -1 when there
// is none. A Broadcasting consumer has its own, see OffsetDir. A topic that no name
// server knows is ErrNoRoute. Java: committed.
func (c *PullConsumer) Committed(ctx context.Context, q MessageQueue) (int64, error) {
	if err := c.life.use(); err != nil {
		return -1, err
	}
	if err := checkTopicName(q.Topic); err != nil {
		return -1, err
	}
	return c.engine.Load().Committed(ctx, q)
}

// Pause stops fetching queues, and Poll does not return their messages; none
// given: all, also queues that come later. The queues stay this consumer's: nobody
// else gets their messages meanwhile. It works before Start, too, and does not
// block. Java: pause.
func (c *PullConsumer) Pause(queues ...MessageQueue) {
	c.pauses.Pause(queues...)
	c.pausesChanged()
}

// Resume undoes Pause for queues; none given: for all. It does not block. Java:
// resume.
func (c *PullConsumer) Resume(queues ...MessageQueue) {
	c.pauses.Resume(queues...)
	c.pausesChanged()
}

func (c *PullConsumer) pausesChanged() {
	if engine := c.engine.Load(); engine != nil {
		engine.PausesChanged()
	}
}

// Queues returns the topic's readable queues, sorted by broker name and queue id;
// they are the caller's. A topic that no name server knows is ErrNoRoute. Java:
// fetchMessageQueues.
func (c *PullConsumer) Queues(ctx context.Context, topic string) ([]MessageQueue, error) {
	if err := c.life.use(); err != nil {
		return nil, err
	}
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	route, err := c.client.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	return append([]MessageQueue(nil), route.Subscribe...), nil
}

// PullStatus says what a Pull found. Java: PullStatus.
type PullStatus int

const (
	PullFound            PullStatus = iota // messages
	PullNoNewMessage                       // the offset is the end of the queue
	PullNoMatchedMessage                   // messages, but none that the topic's filter lets through: go on at NextOffset
	PullOffsetIllegal                      // the offset is before the queue's start or behind its end: NextOffset is the nearest that is not
)

// String returns RocketMQ's name, such as "FOUND".
func (s PullStatus) String() string {
	switch s {
	case PullFound:
		return "FOUND"
	case PullNoNewMessage:
		return "NO_NEW_MSG"
	case PullNoMatchedMessage:
		return "NO_MATCHED_MSG"
	case PullOffsetIllegal:
		return "OFFSET_ILLEGAL"
	}
	return fmt.Sprintf("PullStatus(%d)", int(s))
}

// PullResult is what a Pull found. Java: PullResult.
type PullResult struct {
	Status     PullStatus
	Messages   []*MessageExt // the caller's; not empty exactly with PullFound
	NextOffset int64         // where to go on
	MinOffset  int64         // of the queue: its first message
	MaxOffset  int64         // of the queue: behind its last message
}

// Pull reads up to max messages of any queue, from offset on. It does not wait,
// commits nothing, needs no Assign and does not change what Poll returns. At most 32
// messages, or 256 KiB and one message, come at once; max 0 means PullBatchSize. A
// master is asked, or, when it is gone, a slave. Of a topic that the consumer
// subscribes to with a filter it returns what that lets through.
//
// An offset before the queue's start, negative ones included, or behind its end is
// no error but PullOffsetIllegal. A topic that no name server knows is ErrNoRoute, a
// negative max ErrInvalidConfig. Java: DefaultMQPullConsumer.pull.
func (c *PullConsumer) Pull(ctx context.Context, q MessageQueue, offset int64, max int) (*PullResult, error) {
	if err := c.life.use(); err != nil {
		return nil, err
	}
	if err := checkTopicName(q.Topic); err != nil {
		return nil, err
	}
	switch {
	case max < 0:
		return nil, protocol.Tagged(fmt.Sprintf("pull of %v: max is %d, must not be negative", q, max), ErrInvalidConfig)
	case max == 0:
		max = c.cfg.PullBatchSize
	}
	read, err := c.engine.Load().Pull(ctx, q, offset, max)
	if err != nil {
		return nil, err
	}
	res := &PullResult{Messages: read.Messages, NextOffset: read.Next, MinOffset: read.Min, MaxOffset: read.Max}
	switch {
	case read.OutsideQueue:
		res.Status = PullOffsetIllegal
	case len(read.Messages) > 0:
		res.Status = PullFound
	case read.Code == protocol.PullNotFound:
		res.Status = PullNoNewMessage
	default:
		res.Status = PullNoMatchedMessage
	}
	return res, nil
}
