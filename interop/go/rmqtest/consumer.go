package rmqtest

import (
	"context"
	"errors"
	"fmt"
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
// group's retry topic. When it fails, whatever of, it may be called again, after
// other subscriptions say. Its Shutdown, which may be called at any time, waits up
// to 10 s for handlers that run, and lets none begin afterwards.
//
// A group without a committed offset starts at the beginning of its queues
// (consumer.ConsumeFromFirstOffset), unless opts say otherwise: with the official
// default, ConsumeFromLastOffset, a broadcasting consumer misses what is sent between
// its Start and its first look at the queues, half a second later.
//
// What a handler panics with goes to t.Log, and on: the official client makes
// nothing of it, the message is neither consumed nor does it come again.
func Consumer(t testing.TB, c *pocketmq.Cluster, group string, opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	p := &pushConsumer{member: newMember(t, c, group, opts)}
	p.wrap = alwaysWrapped
	p.create = func(all []consumer.Option) (official, error) {
		made, err := rocketmq.NewPushConsumer(all...)
		if err == nil {
			p.PushConsumer = made
		}
		return made, err
	}
	if err := p.renew(); err != nil {
		t.Fatalf("rmqtest: make a consumer of group %s: %v", group, err)
	}
	p.endsWith(t)
	return p
}

// PullConsumer makes an official pull consumer of a group for t, which ends with
// it. Subscribe it or Assign queues, then Start it. All else is as for Consumer.
func PullConsumer(t testing.TB, c *pocketmq.Cluster, group string, opts ...consumer.Option) rocketmq.PullConsumer {
	t.Helper()
	p := &pullConsumer{member: newMember(t, c, group, opts)}
	p.wrap = wrappedOnce
	p.create = func(all []consumer.Option) (official, error) {
		made, err := rocketmq.NewPullConsumer(all...)
		if err == nil {
			p.PullConsumer = made
		}
		return made, err
	}
	if err := p.renew(); err != nil {
		t.Fatalf("rmqtest: make a pull consumer of group %s: %v", group, err)
	}
	p.endsWith(t)
	return p
}

// official is what both kinds of official consumers can do.
type official interface {
	Start() error
	Shutdown() error
	Unsubscribe(topic string) error
}

// member is what both kinds of consumers have in common.
//
// An official consumer that failed to start is of no use any more: its next Start
// panics, and its Shutdown too, for what they look at was never made. So it is left
// as it is, and another one takes its place, with the same options, the same client
// id and the same subscriptions. What it leaves behind is its traces' goroutine,
// which is ended here; it has registered nothing, or has shut itself down.
type member struct {
	t       testing.TB
	cluster *pocketmq.Cluster
	opts    []consumer.Option
	set     settings
	wrap    func(namespace, name string) string // what the official one makes of names
	create  func([]consumer.Option) (official, error)
	wait    time.Duration // for handlers

	turn    chan struct{} // one at a time starts, shuts down and subscribes; it guards the fields below
	current official
	stale   bool // current failed, or knows a topic that is unsubscribed
	calls   []call
	started bool

	mu       sync.Mutex    // guards the fields below; leaf
	closed   bool          // set with the turn
	running  int           // handlers
	finished chan struct{} // closed by the last handler that ends after closed; nil before that, or without any
}

// call is what was asked of an official consumer before it started, for the next one
// that takes its place.
type call struct {
	subscription bool
	topic        string // of a subscription, without the namespace
	do           func() error
}

func newMember(t testing.TB, c *pocketmq.Cluster, group string, opts []consumer.Option) *member {
	t.Helper()
	ready(t, c)
	m := &member{t: t, cluster: c, wait: handlersWithin, turn: make(chan struct{}, 1)}
	m.opts = slices.Concat([]consumer.Option{
		ownConnections[consumer.Option](),
		consumer.WithNsResolver(resolver{c}),
		consumer.WithInstance(instanceName(t)),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, opts, []consumer.Option{readSettings[consumer.Option](&m.set)})
	return m
}

// take waits for the turn of its caller, who calls what it returns afterwards.
func (m *member) take() (release func()) {
	m.turn <- struct{}{}
	return func() { <-m.turn }
}

// renew puts an official consumer into the place of the one that is there, if any.
// The caller has the turn, or is alone.
func (m *member) renew() error {
	if m.current != nil {
		m.set.endTraces()
	}
	var made official
	var err error
	tracing.during(m.cluster, func() { made, err = m.create(m.opts) })
	if err != nil {
		return err
	}
	m.current = made
	for _, c := range m.calls {
		if err := c.do(); err != nil {
			return err
		}
	}
	m.stale = false
	return nil
}

// ask does something with the official consumer, and again with each that takes its
// place.
func (m *member) ask(c call) error {
	defer m.take()()
	if err := m.usable(); err != nil {
		return err
	}
	if err := c.do(); err != nil {
		return err
	}
	if c.subscription {
		m.forget(c.topic) // the new one has replaced it
	} else if m.started {
		return nil
	}
	m.calls = append(m.calls, c)
	return nil
}

// usable renews the official consumer if it is of no use any more.
func (m *member) usable() error {
	if !m.stale || m.isClosed() {
		return nil
	}
	if err := m.renew(); err != nil {
		return fmt.Errorf("rmqtest: make a consumer of group %s, in the place of one that did not start: %w", m.set.group, err)
	}
	return nil
}

// forget drops the subscription of a topic.
func (m *member) forget(topic string) {
	m.calls = slices.DeleteFunc(m.calls, func(c call) bool { return c.subscription && c.topic == topic })
}

// unsubscribe forgets a topic. An official consumer that has not started yet would
// look for it all the same, and would not start.
func (m *member) unsubscribe(topic string) error {
	defer m.take()()
	if err := m.current.Unsubscribe(topic); err != nil {
		return err
	}
	m.forget(topic)
	m.stale = m.stale || !m.started && !m.isClosed()
	return nil
}

func (m *member) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Start starts the official consumer, when it can start.
func (m *member) Start() error {
	defer m.take()()
	if m.isClosed() {
		return fmt.Errorf("rmqtest: the consumer of group %s has been shut down, and official consumers don't start again: make another one", m.set.group)
	}
	if err := m.usable(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), prepareWithin)
	defer cancel()
	if err := m.findTopics(ctx); err != nil {
		return err
	}
	if !m.set.broadcasting {
		if err := m.createRetryTopic(ctx); err != nil {
			return fmt.Errorf("rmqtest: group %s, create its retry topic: %w", m.set.group, err)
		}
	}
	err := m.current.Start()
	m.started, m.stale = err == nil, err != nil
	return err
}

// findTopics looks for the routes of the subscribed topics.
func (m *member) findTopics(ctx context.Context) error {
	for _, c := range m.calls {
		if !c.subscription {
			continue
		}
		full := m.wrap(m.set.namespace, c.topic)
		_, err := m.cluster.Admin().Route(ctx, full)
		bare, wrapped := strings.CutPrefix(c.topic, m.set.namespace+"%")
		switch {
		case err == nil:
		case errors.Is(err, pocketmq.ErrNoRoute) && wrapped && full != c.topic:
			return fmt.Errorf("rmqtest: group %s subscribes to topic %q, which does not exist: the official push consumer puts its namespace %s before every name, so unsubscribe from %q and subscribe to %q: %w",
				m.set.group, full, m.set.namespace, c.topic, bare, err)
		case errors.Is(err, pocketmq.ErrNoRoute):
			return fmt.Errorf("rmqtest: group %s subscribes to topic %q, which does not exist: create it before the consumer starts, with rmqtest.Topic, Admin.CreateTopic or ClusterConfig.Topics: %w", m.set.group, full, err)
		default:
			return fmt.Errorf("rmqtest: group %s, look for topic %q: %w", m.set.group, full, err)
		}
	}
	return nil
}

// createRetryTopic makes the topic that the broker would make with the group's
// first heartbeat, which is too late for the route look-up of the start.
func (m *member) createRetryTopic(ctx context.Context) error {
	topic := message.RetryTopic(m.fullGroup())
	_, err := m.cluster.Admin().Route(ctx, topic)
	if errors.Is(err, pocketmq.ErrNoRoute) {
		err = m.cluster.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: topic, ReadQueues: 1})
	}
	return err
}

// fullGroup is the group with its namespace.
func (m *member) fullGroup() string { return m.wrap(m.set.namespace, m.set.group) }

// alwaysWrapped is what the official push consumer does with the names of topics and
// its group, and wrappedOnce what the pull consumer does.
func alwaysWrapped(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "%" + name
}

func wrappedOnce(namespace, name string) string {
	if namespace == "" || name == "" || strings.Contains(name, namespace+"%") {
		return name
	}
	return namespace + "%" + name
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

// Shutdown shuts the consumer down, if it has started, and waits for its handlers.
func (m *member) Shutdown() error {
	err := m.close()
	m.mu.Lock()
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

// close ends the official consumer, and lets no handler begin afterwards.
func (m *member) close() error {
	defer m.take()()
	var err error
	if m.started { // else it panics
		err = m.current.Shutdown()
	} else {
		m.set.endTraces()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return err
}

// endsWith lets the consumer end with t.
func (m *member) endsWith(t testing.TB) {
	forget := func() error { return nil }
	if m.set.broadcasting {
		forget = offsets.use(filepath.Join(offsets.root, m.fullGroup(), m.set.clientID()))
	}
	t.Cleanup(func() {
		if err := m.Shutdown(); err != nil {
			t.Errorf("rmqtest: shut a consumer down: %v", err)
		}
		if err := forget(); err != nil {
			t.Errorf("rmqtest: remove the offsets of a broadcasting consumer: %v", err)
		}
	})
}

// pushConsumer is an official push consumer that starts and ends safely. Its embedded
// one changes with member.current.
type pushConsumer struct {
	rocketmq.PushConsumer
	*member
}

func (p *pushConsumer) Subscribe(topic string, selector consumer.MessageSelector, handler func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)) error {
	return p.ask(call{subscription: true, topic: topic, do: func() error {
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
	}})
}

func (p *pushConsumer) Unsubscribe(topic string) error { return p.unsubscribe(topic) }
func (p *pushConsumer) Start() error                   { return p.member.Start() }
func (p *pushConsumer) Shutdown() error                { return p.member.Shutdown() }

// pullConsumer is an official pull consumer that starts and ends safely. Its embedded
// one changes with member.current.
type pullConsumer struct {
	rocketmq.PullConsumer
	*member
}

func (p *pullConsumer) Subscribe(topic string, selector consumer.MessageSelector) error {
	return p.ask(call{subscription: true, topic: topic, do: func() error { return p.PullConsumer.Subscribe(topic, selector) }})
}

func (p *pullConsumer) Assign(topic string, queues []*primitive.MessageQueue) error {
	return p.ask(call{subscription: true, topic: topic, do: func() error { return p.PullConsumer.Assign(topic, queues) }})
}

func (p *pullConsumer) SeekOffset(queue *primitive.MessageQueue, offset int64) {
	if err := p.ask(call{do: func() error { p.PullConsumer.SeekOffset(queue, offset); return nil }}); err != nil {
		p.t.Errorf("%v", err) // the official one has no error to give
	}
}

func (p *pullConsumer) Unsubscribe(topic string) error { return p.unsubscribe(topic) }
func (p *pullConsumer) Start() error                   { return p.member.Start() }
func (p *pullConsumer) Shutdown() error                { return p.member.Shutdown() }
