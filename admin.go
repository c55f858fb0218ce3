package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/internal/topics"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// AdminConfig configures an Admin. It is copied by NewAdmin.
type AdminConfig struct {
	NameServers []string // host:port each, host a name or an IP literal; "a:9876;b:9876" in one text, too (namesrvAddr)
	Transport   Transport
	Timeout     time.Duration // of one call [5 s]
	Logger      *slog.Logger  // nil = silent
}

// Admin looks after the topics and consumer groups of a cluster and looks messages
// up. What it changes is asked of the next master of a group, within AdminConfig.Timeout,
// when one says that it is none any more (ErrNotMaster). Safe for concurrent use. Java:
// DefaultMQAdminExt.
type Admin struct {
	cfg    AdminConfig
	id     identity
	log    *slog.Logger
	life   life
	client *client.Client
	codec  *message.Codec
}

// NewAdmin checks cfg and starts nothing. An unusable config is
// ErrInvalidConfig, with all violations listed.
func NewAdmin(cfg AdminConfig) (*Admin, error) {
	p := problems{what: "AdminConfig"}
	cfg.NameServers = checkNameServers(&p, cfg.NameServers)
	if cfg.Transport == nil {
		p.add("Transport is nil: use pocketmq.InMemory() or pocketmq.TCP(host)")
	}
	positive(&p, "Timeout", &cfg.Timeout, 5*time.Second)
	if err := p.err(); err != nil {
		return nil, err
	}
	id := newIdentity("")
	a := &Admin{cfg: cfg, id: id, log: loggerOf(cfg.Logger, "client", id.clientID)}
	a.life.what = "admin"
	return a, nil
}

// Start makes the Admin usable. It calls nobody.
func (a *Admin) Start(ctx context.Context) error {
	return a.life.start(ctx, func(context.Context) error {
		def := DefaultTimings()
		a.client = client.New(client.Config{
			Node: a.id.clientID, NameServers: a.cfg.NameServers, Transport: a.cfg.Transport,
			RouteRefresh: def.RouteRefresh, Heartbeat: def.ClientHeartbeat, Logger: a.log,
		})
		a.client.Start()
		a.codec = message.NewCodec()
		return nil
	})
}

// Close ends the sessions.
func (a *Admin) Close() error {
	return a.life.close(func() error {
		err := a.client.Close()
		a.codec.Close() // what a call still decodes, it decodes all the same
		return err
	}, func() error { return nil })
}

// TopicConfig describes a topic for CreateTopic.
type TopicConfig struct {
	Name        string
	ReadQueues  int  // per broker [8]
	WriteQueues int  // per broker [as ReadQueues]
	Perm        Perm // [PermRead | PermWrite]

	// Order fixes the queues that the topic's messages are sent to: all write queues
	// of all its brokers, also of one that is down, or that must not be written. So
	// a sharding key means the same queue whatever happens, and what belongs to a
	// broker that is down fails instead of going elsewhere. A broker that is added
	// later gets nothing before the topic is created anew. RocketMQ: updateTopic -o.
	Order bool

	Brokers []string // broker groups; nil = every master
}

// TopicRoute tells where a topic lies.
type TopicRoute struct {
	OrderConf string       // of an ordered topic: the queues to send to, "broker-a:4;broker-b:4"; "" = not ordered
	Queues    []QueueData  // sorted by broker name
	Brokers   []BrokerData // sorted by broker name
}

// QueueData is a topic's share on one broker group.
type QueueData struct {
	BrokerName              string
	ReadQueues, WriteQueues int
	Perm                    Perm
}

// BrokerData is a broker group and the addresses of its members by id.
type BrokerData struct {
	Cluster, BrokerName string
	Addrs               map[int64]string
}

// CreateTopic creates the topic, or changes it, on every master or on the
// groups named in t.Brokers. It is routable when CreateTopic returns: fewer
// read queues than before make the messages of the others unreadable until
// they are raised again.
//
// The order of an ordered topic is noted at every name server, after the brokers;
// that of one that is not ordered any more is taken from them first. With
// t.Brokers that goes for those broker groups only, the others stay as they are.
//
// Errors: ErrIllegalName for a bad or reserved name, ErrInvalidConfig for bad
// numbers or an unknown broker, ErrUnreachable; brokers and name servers that
// took the topic before another failed keep it.
func (a *Admin) CreateTopic(ctx context.Context, t TopicConfig) error {
	if err := a.life.use(); err != nil {
		return err
	}
	p := problems{what: "TopicConfig"}
	p.check("Name", message.ValidateTopic(t.Name))
	if t.ReadQueues == 0 {
		t.ReadQueues = topics.DefaultQueues
	}
	if t.WriteQueues == 0 {
		t.WriteQueues = t.ReadQueues
	}
	if t.ReadQueues < 0 || t.WriteQueues < 0 || t.ReadQueues > topics.MaxQueues || t.WriteQueues > topics.MaxQueues {
		p.add("%d read and %d write queues, must be 1 to %d (0 = %d, and as many)", t.ReadQueues, t.WriteQueues, topics.MaxQueues, topics.DefaultQueues)
	}
	if t.Perm == 0 {
		t.Perm = PermRead | PermWrite
	}
	if t.Perm&^(PermRead|PermWrite) != 0 {
		p.add("Perm is %d, must be made of PermRead and PermWrite", t.Perm)
	}
	if err := p.err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	brokers, err := a.masters(ctx, t.Brokers)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	config := protocol.TopicConfig{Name: t.Name, ReadQueues: t.ReadQueues, WriteQueues: t.WriteQueues, Perm: t.Perm, Order: t.Order}
	if !t.Order {
		// First: a broker that hears of the order from a name server marks the topic.
		if err := a.unorder(ctx, t.Name, t.Brokers); err != nil {
			return fmt.Errorf("create topic %s: %w", t.Name, err)
		}
	}
	var errs []error
	for _, b := range brokers {
		if _, err := change(ctx, a, b, protocol.BrokerConn.CreateTopic, &protocol.CreateTopicRequest{Config: config}); err != nil {
			errs = append(errs, fmt.Errorf("create topic %s on %s: %w", t.Name, b.name, err))
		}
	}
	if len(errs) == 0 && t.Order {
		// Last: its queues are there when producers hear of them.
		if err := a.order(ctx, t.Name, t.WriteQueues, brokers, len(t.Brokers) == 0); err != nil {
			errs = append(errs, fmt.Errorf("create topic %s: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// DeleteTopic deletes a topic: its messages can be consumed no longer, every group's
// offsets and locks of it are gone, and a topic of that name that is created later
// starts at offset 0, for running consumers too. It is gone from the routes of every
// name server when DeleteTopic returns. A topic that does not exist is no error.
//
// Delayed messages that wait for it are dropped when they are due, and so is one
// whose queue the topic does not have by then.
//
// Until the files that hold them are deleted, its messages are still found by id and
// by key, as in RocketMQ. A send that runs at the same time may be stored behind the
// deletion, and come first in a topic created later; one from a producer that goes on
// creates it anew, unless brokers do not create topics by themselves. So does the
// restart of a broker whose BrokerConfig.Topics or ClusterConfig.Topics has it, and
// the return of one that is down now.
//
// Errors: ErrIllegalName for a bad name or one of RocketMQ's own topics;
// ErrUnreachable, ErrTimeout, ErrFenced, ErrDiskFull. Brokers that deleted it before
// another failed have done so; name servers are asked only when all brokers did. Call
// it again then. Java: deleteTopic.
func (a *Admin) DeleteTopic(ctx context.Context, topic string) error {
	if err := a.life.use(); err != nil {
		return err
	}
	if err := checkTopicName(topic); err != nil {
		return err
	}
	return a.bounded(ctx, "delete topic "+topic, func(ctx context.Context) error { return a.deleteTopic(ctx, topic) })
}

func (a *Admin) deleteTopic(ctx context.Context, topic string) error {
	q := &protocol.DeleteTopicRequest{Topic: topic}
	if _, err := askAll(ctx, a, func(ctx context.Context, m master) (*protocol.DeleteTopicResponse, error) {
		return change(ctx, a, m, protocol.BrokerConn.DeleteTopic, q)
	}); err != nil {
		return err
	}
	return a.client.EachNameServer(ctx, func(ctx context.Context, conn protocol.NameServerConn) error {
		if _, err := conn.DeleteTopic(ctx, &protocol.DeleteTopicRouteRequest{Topic: topic}); err != nil {
			return err
		}
		_, err := conn.DeleteKVConfig(ctx, &protocol.DeleteKVConfigRequest{Namespace: protocol.NamespaceOrderTopic, Key: topic})
		return err
	})
}

// ask calls the broker at addr. A session that broke is given up; one whose
// answer is only late is kept, others may be waiting on it.
func ask[Q, R any](ctx context.Context, a *Admin, addr string, method func(protocol.BrokerConn, context.Context, *Q) (*R, error), q *Q) (*R, error) {
	conn, err := a.client.Broker(ctx, addr)
	if err != nil {
		return nil, err
	}
	resp, err := method(conn, ctx, q)
	var answered *protocol.Error
	if err != nil && !errors.As(err, &answered) && ctx.Err() == nil {
		a.client.Lost(addr, conn)
	}
	return resp, err
}

type master struct{ name, addr string }

// change is ask for what only a master does. One that is none any more has done nothing of
// it that may not be done again: the next master of its group is asked, as soon as there is
// one, until ctx ends.
func change[Q, R any](ctx context.Context, a *Admin, m master, method func(protocol.BrokerConn, context.Context, *Q) (*R, error), q *Q) (*R, error) {
	for wait := firstMasterPause; ; wait = min(2*wait, maxMasterPause) {
		resp, err := ask(ctx, a, m.addr, method, q)
		if !errors.Is(err, ErrNotMaster) || pause(ctx, wait) != nil {
			return resp, err
		}
		if next, merr := a.masters(ctx, []string{m.name}); merr == nil {
			m = next[0]
		}
	}
}

// masters lists the masters of the groups named, or of all.
func (a *Admin) masters(ctx context.Context, names []string) ([]master, error) {
	brokers, err := a.client.ClusterInfo(ctx)
	if err != nil {
		return nil, err
	}
	var out []master
	var known []string
	for _, b := range brokers {
		addr, ok := b.Addrs[protocol.MasterID]
		if !ok {
			continue
		}
		known = append(known, b.BrokerName)
		if len(names) == 0 || slices.Contains(names, b.BrokerName) {
			out = append(out, master{b.BrokerName, addr})
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("%w: no master of broker group %q is registered, there are: %s", ErrInvalidConfig, n, strings.Join(known, ", "))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no master is registered at the name servers: %w", ErrUnreachable)
	}
	return out, nil
}

// Topics lists all topics that the name servers know, sorted, RocketMQ's own
// ones included.
func (a *Admin) Topics(ctx context.Context) ([]string, error) {
	if err := a.life.use(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	return a.client.AllTopics(ctx)
}

// Route tells where a topic lies, asked anew; it is the caller's. A topic that
// no name server knows is ErrNoRoute.
func (a *Admin) Route(ctx context.Context, topic string) (*TopicRoute, error) {
	if err := a.life.use(); err != nil {
		return nil, err
	}
	if err := checkTopicName(topic); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	r, _, err := a.client.Refresh(ctx, topic)
	a.client.Unwatch(topic) // asked once, not kept
	if err != nil {
		return nil, err
	}
	out := &TopicRoute{OrderConf: r.OrderConf}
	for _, q := range r.Queues {
		out.Queues = append(out.Queues, QueueData{q.BrokerName, q.ReadQueues, q.WriteQueues, q.Perm})
	}
	for _, b := range r.Brokers {
		out.Brokers = append(out.Brokers, BrokerData{b.Cluster, b.BrokerName, maps.Clone(b.Addrs)})
	}
	return out, nil
}
