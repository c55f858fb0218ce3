package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Defaults of ProducerConfig.
const (
	defaultProducerGroup = "DEFAULT_PRODUCER"
	defaultSendTimeout   = 3 * time.Second
	defaultRetries       = 2
	defaultCompressOver  = 4096
	defaultClientQueues  = 4
	defaultMaxInFlight   = 1000
	maxRetries           = 100
)

// ProducerConfig configures a Producer. It is copied by NewProducer. The names
// in brackets are those of Java's DefaultMQProducer.
type ProducerConfig struct {
	Group        string   // "" = "DEFAULT_PRODUCER" (producerGroup)
	InstanceName string   // part of the client id; "" = unique (instanceName)
	NameServers  []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport    Transport

	SendTimeout        time.Duration // of a send with all its attempts [3 s] (sendMsgTimeout)
	AttemptTimeout     time.Duration // of one attempt; 0 = what is left of SendTimeout / attempts left (sendMsgMaxTimeoutPerRequest)
	Retries            int           // attempts after the first [2], at most 100; NoRetries = none (retryTimesWhenSendFailed). Waiting for a group's next master is none of them, see Send
	CompressOver       int           // bodies of at least this many bytes are compressed [4096]; -1 = never (compressMsgBodyOverHowmuch)
	Compression        Compression   // [Zlib] (compressType)
	MaxMessageSize     int           // bytes of the user's body, of a batch in all [4 MiB] (maxMessageSize)
	DefaultTopicQueues int           // queues wished for an auto-created topic [4] (defaultTopicQueueNums)
	MaxInFlight        int           // asynchronous sends running at once [1000]

	// Fault says when brokers that are slow or fail are avoided. The zero value
	// avoids only the broker that an attempt failed at, in the next attempt;
	// fault.V5() is RocketMQ's latency fault tolerance (sendLatencyFaultEnable,
	// startDetectorEnable). See SetFault.
	Fault fault.Config

	Timings Timings
	Logger  *slog.Logger // nil = silent
}

// Producer sends messages. Safe for concurrent use. Java: DefaultMQProducer.
//
// Messages with a ShardingKey, and those sent by SendTo and SendSelect, retry
// the same queue only; others go to another broker when one fails. A send
// whose outcome is unknown is retried too, so a message may be stored twice:
// both copies carry the same MsgID.
type Producer struct {
	cfg  ProducerConfig
	id   identity
	keys *message.UniqKeys
	log  *slog.Logger
	life life

	events *emitter // of the cluster that started it; nil otherwise

	client  *client.Client
	codec   *message.Codec
	release func() // of the claimed client id

	sick     sickness
	cursors  sync.Map        // topic -> *fault.Counter
	slots    chan struct{}   // one per asynchronous send
	ctx      context.Context // of asynchronous sends and of Close
	cancel   context.CancelFunc
	sends    inflight    // sends, and asynchronous ones until their callback has returned
	draining atomic.Bool // Shutdown: new sends are refused

	sent, failed, retried, inFlight atomic.Int64
}

// NewProducer checks cfg and starts nothing. An unusable config is
// ErrInvalidConfig, with all violations listed; an illegal group is also
// ErrIllegalName.
func NewProducer(cfg ProducerConfig) (*Producer, error) { return newProducer(cfg, nil) }

func newProducer(cfg ProducerConfig, events *emitter) (*Producer, error) {
	p := problems{what: "ProducerConfig"}
	if cfg.Group == "" {
		cfg.Group = defaultProducerGroup
	}
	p.check("Group", message.ValidateGroup(cfg.Group))
	checkInstance(&p, cfg.InstanceName)
	cfg.NameServers = checkNameServers(&p, cfg.NameServers)
	if cfg.Transport == nil {
		p.add("Transport is nil: use pocketmq.InMemory() or pocketmq.TCP(host)")
	}
	positive(&p, "SendTimeout", &cfg.SendTimeout, defaultSendTimeout)
	nonNegative(&p, "AttemptTimeout", cfg.AttemptTimeout)
	orNone(&p, "Retries", &cfg.Retries, defaultRetries)
	if cfg.Retries > maxRetries {
		p.add("Retries is %d, at most %d are possible", cfg.Retries, maxRetries)
	}
	orNone(&p, "CompressOver", &cfg.CompressOver, defaultCompressOver)
	if cfg.Compression < Zlib || cfg.Compression > Zstd {
		p.add("Compression is %d: use Zlib, LZ4 or Zstd", cfg.Compression)
	}
	positive(&p, "MaxMessageSize", &cfg.MaxMessageSize, defaultMaxMessageSize)
	positive(&p, "DefaultTopicQueues", &cfg.DefaultTopicQueues, defaultClientQueues)
	positive(&p, "MaxInFlight", &cfg.MaxInFlight, defaultMaxInFlight)
	p.check("Fault", cfg.Fault.Validate())
	cfg.Timings.validate(&p)
	if err := p.err(); err != nil {
		return nil, err
	}
	cfg.Timings = cfg.Timings.withDefaults()
	id := newIdentity(cfg.InstanceName)
	pr := &Producer{cfg: cfg, id: id, keys: id.uniqKeys(), events: events, log: loggerOf(cfg.Logger, "client", id.clientID, "group", cfg.Group)}
	pr.life.what = "producer " + id.clientID
	pr.sick.set(cfg.Fault)
	return pr, nil
}

// orNone replaces 0 by def and accepts -1 = none.
func orNone(p *problems, field string, n *int, def int) {
	switch {
	case *n == 0:
		*n = def
	case *n < -1:
		p.add("%s is %d, must be positive, 0 (= %d) or -1 (none)", field, *n, def)
	}
}

// Start claims the client id and starts the background work; routes are looked
// up by the first send. Another running client of the same group and
// InstanceName on this Transport is ErrDuplicateClient.
func (p *Producer) Start(ctx context.Context) error {
	return p.life.start(ctx, func(context.Context) error {
		release, err := p.cfg.Transport.Claim(p.cfg.Group, p.id.clientID)
		if err != nil {
			return err
		}
		p.release = release
		p.codec = message.NewCodec()
		p.slots = make(chan struct{}, p.cfg.MaxInFlight)
		p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
		beat := &protocol.HeartbeatRequest{ClientID: p.id.clientID, Producers: []string{p.cfg.Group}}
		p.client = client.New(client.Config{
			Node: p.id.clientID, NameServers: p.cfg.NameServers, Transport: p.cfg.Transport,
			RouteRefresh: p.cfg.Timings.RouteRefresh, RouteRetry: p.cfg.Timings.RouteRetry, Heartbeat: p.cfg.Timings.ClientHeartbeat,
			Logger: p.log, HeartbeatData: func() *protocol.HeartbeatRequest { return beat },
		})
		p.client.Start()
		p.sick.start(p.ctx, p.detect)
		return nil
	})
}

// Shutdown lets the sends in flight end, until ctx ends, then closes. New
// sends are refused at once. A Close meanwhile ends it.
func (p *Producer) Shutdown(ctx context.Context) error {
	if p.life.use() == nil {
		p.draining.Store(true)
		select {
		case <-p.sends.idle():
			p.client.Unregister(ctx, p.cfg.Group, "")
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
	return p.Close()
}

// Close ends the sends in flight with ErrClosed or ErrUnknownOutcome and
// returns when nothing runs any more. It waits at most 10 s for callbacks: then
// it returns ErrHandlersRunning, and a later Close nil once they have returned.
func (p *Producer) Close() error {
	callbacks := func() error { return waitOr(p.sends.idle(), closeTimeout) }
	return p.life.close(func() error {
		p.cancel()
		p.sick.close()
		err := errors.Join(p.client.Close(), callbacks())
		p.release()
		if err == nil {
			p.codec.Close()
		}
		return err
	}, callbacks)
}

// begin counts a send in, unless the producer does not take any.
func (p *Producer) begin() error {
	p.sends.enter()
	err := p.life.use()
	if err == nil && p.draining.Load() {
		err = fmt.Errorf("%s: %w", p.life.what, ErrClosed)
	}
	if err != nil {
		p.sends.leave()
	}
	return err
}

// ClientID returns the producer's client id, which is its node name too.
func (p *Producer) ClientID() string { return p.id.clientID }

// Status returns a snapshot.
func (p *Producer) Status() ProducerStatus {
	return ProducerStatus{Sent: p.sent.Load(), Failed: p.failed.Load(), Retried: p.retried.Load(), InFlight: int(p.inFlight.Load())}
}

// Queues returns the topic's writable queues, sorted by broker name and queue
// id; they are the caller's. A topic that no name server knows is ErrNoRoute.
func (p *Producer) Queues(ctx context.Context, topic string) ([]MessageQueue, error) {
	if err := p.life.use(); err != nil {
		return nil, err
	}
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	route, err := p.client.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	return append([]MessageQueue(nil), route.Publish...), nil
}

// checkTopicName is the client's test of a topic's name.
func checkTopicName(topic string) error {
	if err := message.CheckTopic(topic); err != nil {
		return fmt.Errorf("topic %q: %w", clip(topic), err)
	}
	return nil
}

// clip shortens what goes into an error text.
func clip(s string) string {
	if len(s) > 150 {
		return s[:150] + "..."
	}
	return s
}

// cursor is the topic's round-robin position, shared by all senders.
func (p *Producer) cursor(topic string) *fault.Counter {
	if c, ok := p.cursors.Load(topic); ok {
		return c.(*fault.Counter)
	}
	c, _ := p.cursors.LoadOrStore(topic, fault.NewCounter(int32(rand.Uint32())))
	return c.(*fault.Counter)
}
