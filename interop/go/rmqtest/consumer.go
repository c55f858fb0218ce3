package rmqtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
)

// handlersWithin is how long Shutdown waits for handlers that run.
const handlersWithin = 10 * time.Second

// Consumer makes an official push consumer of a group for t, which ends with it.
// Subscribe it, then Start it. opts come after those that the package sets (name
// servers, an instance name, the group), so they win. What goes wrong in here ends
// the test.
//
// Beyond the official one's doing, its Start first looks for the routes of the
// subscribed topics, with an error that says which is missing, and creates the
// group's retry topic; its Shutdown, which may be called at any time, waits up to
// 10 s for handlers that run, and lets none begin afterwards.
//
// The official default is kept, with its surprise: a group without a committed
// offset starts at the end of a queue, but at its beginning when the queue still
// holds its first message, or is empty yet. Pass
// consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset) to be sure.
//
// What a handler panics with goes to t.Log, and on: the official client makes
// nothing of it, the message is neither consumed nor does it come again.
func Consumer(t testing.TB, c *pocketmq.Cluster, group string, opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	m := &member{t: t, cluster: c, wait: handlersWithin}
	p := &pushConsumer{member: m}
	all := m.options(group, opts)
	var err error
	tracing.during(c, func() { p.PushConsumer, err = rocketmq.NewPushConsumer(all...) })
	if err != nil {
		t.Fatalf("rmqtest: make a consumer of group %s: %v", group, err)
	}
	m.shutdown = p.PushConsumer.Shutdown
	t.Cleanup(func() { m.end(p.Shutdown) })
	return p
}

// PullConsumer makes an official pull consumer of a group for t, which ends with
// it. Subscribe it or Assign queues, then Start it. All else is as for Consumer.
func PullConsumer(t testing.TB, c *pocketmq.Cluster, group string, opts ...consumer.Option) rocketmq.PullConsumer {
	t.Helper()
	m := &member{t: t, cluster: c, wait: handlersWithin}
	p := &pullConsumer{member: m}
	all := m.options(group, opts)
	var err error
	tracing.during(c, func() { p.PullConsumer, err = rocketmq.NewPullConsumer(all...) })
	if err != nil {
		t.Fatalf("rmqtest: make a pull consumer of group %s: %v", group, err)
	}
	m.shutdown = p.PullConsumer.Shutdown
	t.Cleanup(func() { m.end(p.Shutdown) })
	return p
}

// member is what both kinds of consumers have in common.
type member struct {
	t        testing.TB
	cluster  *pocketmq.Cluster
	set      settings
	shutdown func() error  // the official one
	wait     time.Duration // for handlers

	mu       sync.Mutex // guards the fields below; leaf
	topics   []string   // subscribed, without the namespace
	started  bool
	closed   bool
	running  int           // handlers
	finished chan struct{} // closed by the last handler that ends after closed; nil before that, or without any
}

func (m *member) options(group string, opts []consumer.Option) []consumer.Option {
	m.t.Helper()
	ready(m.t, m.cluster)
	return slices.Concat([]consumer.Option{
		ownConnections[consumer.Option](),
		consumer.WithNsResolver(resolver{m.cluster}),
		consumer.WithInstance(instanceName(m.t)),
		consumer.WithGroupName(group),
	}, opts, []consumer.Option{readSettings[consumer.Option](&m.set)})
}

// subscribed remembers a topic, unsubscribed forgets it.
func (m *member) subscribed(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.topics, topic) {
		m.topics = append(m.topics, topic)
	}
}

func (m *member) unsubscribed(topic string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.topics = slices.DeleteFunc(m.topics, func(s string) bool { return s == topic })
}

// start makes sure that the official start, which has no way back, succeeds.
func (m *member) start(start func() error) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), prepareWithin)
	defer cancel()
	m.mu.Lock()
	topics, closed := slices.Clone(m.topics), m.closed
	m.mu.Unlock()
	if closed {
		return fmt.Errorf("rmqtest: the consumer of group %s has been shut down, and official consumers don't start again: make another one", m.set.group)
	}
	for _, topic := range topics {
		full := m.inNamespace(topic)
		if _, err := m.cluster.Admin().Route(ctx, full); errors.Is(err, pocketmq.ErrNoRoute) {
			return fmt.Errorf("rmqtest: group %s subscribes to topic %q, which does not exist: create it before the consumer starts, with rmqtest.Topic, Admin.CreateTopic or ClusterConfig.Topics: %w", m.set.group, full, err)
		} else if err != nil {
			return fmt.Errorf("rmqtest: group %s, look for topic %q: %w", m.set.group, full, err)
		}
	}
	if !m.set.broadcasting {
		if err := m.createRetryTopic(ctx); err != nil {
			return fmt.Errorf("rmqtest: group %s, create its retry topic: %w", m.set.group, err)
		}
	}
	m.mu.Lock()
	m.started = true
	m.mu.Unlock()
	return start()
}

// createRetryTopic makes the topic that the broker would make with the group's
// first heartbeat, which is too late for the route look-up of the start.
func (m *member) createRetryTopic(ctx context.Context) error {
	topic := message.RetryTopic(m.inNamespace(m.set.group))
	_, err := m.cluster.Admin().Route(ctx, topic)
	if errors.Is(err, pocketmq.ErrNoRoute) {
		err = m.cluster.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: topic, ReadQueues: 1})
	}
	return err
}

func (m *member) inNamespace(name string) string {
	if m.set.namespace == "" || strings.HasPrefix(name, m.set.namespace+"%") {
		return name
	}
	return m.set.namespace + "%" + name
}

// enter begins a handler, unless the consumer has been shut down; leave ends it.
func (m *member) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.running++
	return true
}

func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running--
	if m.running == 0 && m.finished != nil {
		close(m.finished)
		m.finished = nil
	}
}

// stop shuts the consumer down, if it has started, and waits for its handlers.
func (m *member) stop() error {
	m.mu.Lock()
	started := m.started
	m.mu.Unlock()
	var err error
	if started { // the official one panics otherwise
		err = m.shutdown()
	}
	m.mu.Lock()
	m.closed = true
	if m.running > 0 && m.finished == nil {
		m.finished = make(chan struct{})
	}
	finished := m.finished
	m.mu.Unlock()
	if finished == nil {
		return err
	}
	late := time.NewTimer(m.wait)
	defer late.Stop()
	select {
	case <-finished:
		return err
	case <-late.C:
		return errors.Join(err, fmt.Errorf("handlers of group %s still run %v after Shutdown: let them end with the test", m.set.group, m.wait))
	}
}

// end is the end of the test.
func (m *member) end(stop func() error) {
	if err := stop(); err != nil {
		m.t.Errorf("rmqtest: shut a consumer down: %v", err)
	}
	m.removeOffsets()
}

// removeOffsets removes the file that a broadcasting consumer keeps, and the
// folders above it that are empty then.
func (m *member) removeOffsets() {
	if !m.set.broadcasting {
		return
	}
	root := os.Getenv("rocketmq.client.localOffsetStoreDir") // as the official client finds it
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".rocketmq_client_go")
	}
	group := filepath.Join(root, m.inNamespace(m.set.group))
	if err := os.RemoveAll(filepath.Join(group, m.set.clientID())); err != nil {
		m.t.Errorf("rmqtest: remove the offsets of a broadcasting consumer: %v", err)
	}
	_ = os.Remove(group) // fails when others use it, which is right
	_ = os.Remove(root)
}

// pushConsumer is an official push consumer that starts and ends safely.
type pushConsumer struct {
	rocketmq.PushConsumer
	*member
}

func (p *pushConsumer) Subscribe(topic string, selector consumer.MessageSelector, handler func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)) error {
	p.subscribed(topic)
	return p.PushConsumer.Subscribe(topic, selector, func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if !p.enter() {
			return consumer.ConsumeRetryLater, nil // nobody looks at it: the queue is dropped
		}
		defer p.leave()
		defer func() {
			if v := recover(); v != nil {
				p.t.Logf("rmqtest: the handler of group %s panicked: %v\n%s", p.set.group, v, debug.Stack())
				panic(v)
			}
		}()
		return handler(ctx, msgs...)
	})
}

func (p *pushConsumer) Unsubscribe(topic string) error {
	p.unsubscribed(topic)
	return p.PushConsumer.Unsubscribe(topic)
}

func (p *pushConsumer) Start() error    { return p.start(p.PushConsumer.Start) }
func (p *pushConsumer) Shutdown() error { return p.stop() }

// pullConsumer is an official pull consumer that starts and ends safely.
type pullConsumer struct {
	rocketmq.PullConsumer
	*member
}

func (p *pullConsumer) Subscribe(topic string, selector consumer.MessageSelector) error {
	p.subscribed(topic)
	return p.PullConsumer.Subscribe(topic, selector)
}

func (p *pullConsumer) Unsubscribe(topic string) error {
	p.unsubscribed(topic)
	return p.PullConsumer.Unsubscribe(topic)
}

func (p *pullConsumer) Assign(topic string, queues []*primitive.MessageQueue) error {
	p.subscribed(topic)
	return p.PullConsumer.Assign(topic, queues)
}

func (p *pullConsumer) Start() error    { return p.start(p.PullConsumer.Start) }
func (p *pullConsumer) Shutdown() error { return p.stop() }
