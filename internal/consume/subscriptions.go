package consume

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// subscription is one topic that an engine consumes.
type subscription struct {
	topic    string
	filter   filter.Tags
	version  int64                  // ms, by which brokers tell the newer of two; see subscriptions.tell
	since    time.Time              // when the topic came in: its Subscribe, or the last Start if that is later
	internal bool                   // of the engine's own making: no user sees its queues
	queues   map[message.Queue]bool // those that the user has assigned; nil = the members share them
}

// subscriptions is what an engine consumes: the topics that its user subscribes
// to, and internal ones. It may change at any time, is safe for concurrent use,
// and never blocks. Java: RebalanceImpl.subscriptionInner.
type subscriptions struct {
	mu       sync.Mutex // guards everything below; a leaf
	byTopic  map[string]subscription
	version  int64 // ms; the latest change. 0 before the first Start
	polled   bool  // of the engine; never changes
	assigned bool  // the user assigns queues
}

// newSubscriptions takes what the config subscribes to, and adds the internal
// topics.
func newSubscriptions(cfg *Config) *subscriptions {
	s := &subscriptions{polled: cfg.Polled, byTopic: make(map[string]subscription, len(cfg.Subscriptions))}
	for topic, tags := range cfg.Subscriptions {
		s.byTopic[topic] = subscription{topic: topic, filter: tags}
	}
	for topic, tags := range cfg.internalTopics() {
		s.byTopic[topic] = subscription{topic: topic, filter: tags, internal: true}
	}
	return s
}

// internalTopics returns the topics that an engine consumes beside those that
// its user subscribes to. Assignments and notices do not show them.
// Java: DefaultMQPushConsumerImpl.copySubscription.
func (c *Config) internalTopics() map[string]filter.Tags {
	if c.Polled || c.Model == protocol.Broadcasting { // they give nothing back
		return nil
	}
	return map[string]filter.Tags{message.RetryTopic(c.Group): {}}
}

// start gives every topic a new version, at the begin of a run.
func (s *subscriptions) start(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.nextLocked(now)
	for topic, sub := range s.byTopic {
		sub.version, sub.since = version, now
		s.byTopic[topic] = sub
	}
}

// set subscribes to a topic, or changes its filter. It reports whether that
// changed anything.
func (s *subscriptions) set(topic string, tags filter.Tags, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, known := s.byTopic[topic]
	if known && (sub.internal || slices.Equal(sub.filter.List(), tags.List())) {
		return false
	}
	if !known {
		sub = subscription{topic: topic, since: now}
	}
	sub.filter, sub.version = tags, s.nextLocked(now)
	s.byTopic[topic] = sub
	return true
}

// renew gives every subscription a newer version.
func (s *subscriptions) renew(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.nextLocked(now)
	for topic, sub := range s.byTopic {
		sub.version = version
		s.byTopic[topic] = sub
	}
}

// remove ends a subscription of the user's. It reports whether there was one.
func (s *subscriptions) remove(topic string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, known := s.byTopic[topic]
	if !known || sub.internal {
		return false
	}
	delete(s.byTopic, topic)
	s.nextLocked(now)
	return true
}

// nextLocked returns a version that is larger than all before.
func (s *subscriptions) nextLocked(now time.Time) int64 {
	s.version = max(now.UnixMilli(), s.version+1)
	return s.version
}

// get returns the subscription of a topic.
func (s *subscriptions) get(topic string) (subscription, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, known := s.byTopic[topic]
	return sub, known
}

// all returns every subscription, sorted by topic, internal ones last: what users
// asked for is settled and reported first. The caller owns the result.
func (s *subscriptions) all() []subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.byTopic), func(a, b subscription) int {
		switch {
		case a.internal == b.internal:
			return cmp.Compare(a.topic, b.topic)
		case b.internal:
			return -1
		}
		return 1
	})
}

// topics returns the topics of every subscription, sorted.
func (s *subscriptions) topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.byTopic))
}

// hidden returns the internal topics.
func (s *subscriptions) hidden() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	hidden := make(map[string]bool)
	for topic, sub := range s.byTopic {
		if sub.internal {
			hidden[topic] = true
		}
	}
	return hidden
}

// latest returns the version of the latest change, also of one that took a topic
// out.
func (s *subscriptions) latest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// tell returns what heartbeats say: every subscription, in the order of all. Of two
// that brokers get from members of one group the one with the larger version
// counts.
func (s *subscriptions) tell() []protocol.Subscription {
	all := s.all()
	subs := make([]protocol.Subscription, len(all))
	for i, sub := range all {
		subs[i] = protocol.SubscriptionOf(sub.topic, expressionOf(sub.filter), sub.filter.List(), sub.filter.Codes(), sub.version)
	}
	return subs
}

// expressionOf returns a filter as brokers read it.
func expressionOf(tags filter.Tags) string {
	if tags.All() {
		return "*"
	}
	return strings.Join(tags.List(), " || ")
}
