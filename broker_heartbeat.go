package pocketmq

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// maxProducerGroup is the limit of a producer group's name, in bytes. Java:
// Validators.CHARACTER_MAX_LENGTH.
const maxProducerGroup = 255

// acceptable returns what of a heartbeat can be registered: whoever shares a
// client with a group whose name is none gets what he would get alone. Java:
// ClientManageProcessor.heartBeat, which passes over groups that cannot be made.
//
// Names of producer groups are noted and never created, so most are good.
func (r *brokerRun) acceptable(q *protocol.HeartbeatRequest) *protocol.HeartbeatRequest {
	good := *q // q is the client's
	good.Producers, good.Consumers = nil, nil
	skip := func(kind, name string, err error) { r.skipOne(q.ClientID, kind, name, err) }
	for _, name := range q.Producers {
		switch {
		case strings.TrimSpace(name) == "":
			skip("producer group", name, errBlankGroup)
		case len(name) > maxProducerGroup:
			skip("producer group", name, errLongGroup)
		default:
			good.Producers = append(good.Producers, name)
		}
	}
	consumers := q.Consumers
	if len(consumers) > maxHeartbeatGroups {
		skip("consumer groups", "", fmt.Errorf("a heartbeat names %d consumer groups: those behind the first %d are skipped", len(consumers), maxHeartbeatGroups))
		consumers = consumers[:maxHeartbeatGroups]
	}
	for _, c := range consumers {
		if err := message.ValidateGroup(c.Group); err != nil {
			skip("consumer group", c.Group, err)
			continue
		}
		all := c.Subscriptions
		c.Subscriptions = nil
		for _, sub := range all {
			if err := message.ValidateTopic(sub.Topic); err != nil {
				skip("topic", sub.Topic, err)
				continue
			}
			c.Subscriptions = append(c.Subscriptions, sub)
		}
		good.Consumers = append(good.Consumers, c)
	}
	return &good
}

// maxHeartbeatGroups bounds the consumer groups of a heartbeat: each is created that is
// not there yet. Real clients have tens.
const maxHeartbeatGroups = 1000

// skipOne logs what of a client's heartbeat was skipped, once.
func (r *brokerRun) skipOne(client, kind, name string, err error) {
	log, last := r.skipped.first(client, kind, name)
	if !log {
		return
	}
	r.log.Warn("a heartbeat names what this broker cannot have: skipped, the rest of it counts", "client", clip(client), "kind", kind, "name", clip(name), "bytes", len(name), "reason", clip(err.Error()))
	if last {
		r.log.Warn("too many names in heartbeats have been skipped: no more of them are logged")
	}
}

var (
	errBlankGroup = errors.New("the group is blank")
	errLongGroup  = fmt.Errorf("the group is longer than %d", maxProducerGroup)
)

// maxSkipped bounds the names that are logged as skipped.
const maxSkipped = 1000

// skippedNames keeps which names of which clients have been logged as skipped.
type skippedNames struct {
	mu    sync.Mutex // guards names
	names map[skippedName]struct{}
}

type skippedName struct{ client, kind, name string }

// first reports whether a name is to be logged, and whether it is the last one.
func (s *skippedNames) first(client, kind, name string) (log, last bool) {
	key := skippedName{strings.Clone(clip(client)), kind, strings.Clone(clip(name))}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.names[key]; ok || len(s.names) == maxSkipped {
		return false, false
	}
	if s.names == nil {
		s.names = make(map[skippedName]struct{})
	}
	s.names[key] = struct{}{}
	return true, len(s.names) == maxSkipped
}
