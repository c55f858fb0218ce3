package topics

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Replace makes the topics those of a slave's master, marks of order and the version
// included, all at once or, on an error, none. It returns those that are new or
// different, as they are now, and those that are gone, as they were, both sorted. The
// broker's own topics, which follow its options, stay, but for the one of traces.
// Java: SlaveSynchronize.syncTopicConfig.
//
// The counter of the version may be lower than before, when the slave was a master
// itself: what a name server has acknowledged by ChangedSince means nothing then.
//
// Errors: protocol.ErrStaleVersion for topics of a former master; *protocol.Error of
// code InvalidParameter for an illegal name or number of queues; what the save
// returned.
func (t *Table) Replace(configs []protocol.TopicConfig, version protocol.DataVersion) (changed, gone []protocol.TopicConfig, err error) {
	want := make(map[string]protocol.TopicConfig, len(configs))
	for _, c := range configs {
		if err := checkName(c.Name); err != nil {
			return nil, nil, err
		}
		if c.ReadQueues < 0 || c.WriteQueues < 0 || c.ReadQueues > MaxQueues || c.WriteQueues > MaxQueues {
			return nil, nil, protocol.Errorf(protocol.InvalidParameter, "topic[%s]: %d read and %d write queues; each must be 0 to %d", c.Name, c.ReadQueues, c.WriteQueues, MaxQueues)
		}
		want[c.Name] = c
	}
	delete(want, message.AutoCreateTopic) // whether there is one says an option
	t.turn.Lock()
	defer t.turn.Unlock()
	old := t.state.Load()
	if err := version.Follows(old.version, "topics"); err != nil {
		return nil, nil, err
	}
	s := old.clone()
	for _, c := range t.bootTopics() {
		if have := s.find(c.Name); have != nil {
			c = have.config
		}
		if _, ok := want[c.Name]; !ok || c.Name != message.TraceTopic {
			want[c.Name] = c
		}
	}
	for i, topic := range s.topics {
		if topic.changed > version.Counter { // counted by another master
			same := *topic
			same.changed = version.Counter
			s.topics[i] = &same
		}
	}
	for _, topic := range old.topics {
		if _, ok := want[topic.config.Name]; !ok {
			s.remove(topic.config.Name)
			gone = append(gone, topic.config)
		}
	}
	var put []*topic
	for name, c := range want {
		if have := s.find(name); have == nil || have.config != c {
			topic := s.put(c)
			topic.changed = version.Counter
			put = append(put, topic)
			changed = append(changed, c)
		}
	}
	if len(put) == 0 && len(gone) == 0 && version == old.version {
		return nil, nil, nil
	}
	s.version = version
	if err := t.saveLocked(s, put...); err != nil {
		return nil, nil, err
	}
	for _, c := range gone {
		t.byName.Delete(c.Name)
	}
	slices.SortFunc(changed, func(a, b protocol.TopicConfig) int { return strings.Compare(a.Name, b.Name) })
	return changed, gone, nil
}

// SetStateVersion makes versions from now on those of a later state of the broker
// group, its epoch; the present one too, which is saved, so that the table is newer
// than all that a former master can have. An earlier state is ignored. The error is
// that of the save.
func (t *Table) SetStateVersion(now time.Time, state int64) error {
	t.turn.Lock()
	defer t.turn.Unlock()
	old := t.state.Load()
	if state <= old.version.StateVersion {
		return nil
	}
	s := old.clone()
	s.version = next(old.version, now)
	s.version.StateVersion = state
	return t.saveLocked(s)
}

// EnsureQueues makes the topics that the given queues, by topic and id, need, all in
// one change or, on an error, none, and returns what is new or different, sorted. It
// is meant for a broker that becomes a master: a topic may have been made so shortly
// before that only its messages have arrived. shape says what a missing topic with at
// least n queues looks like; it is called under the lock of the table. Of a topic that
// has fewer queues, for reading and for writing, more are to be read; what the topic
// takes stays as it is. Names and ids that no topic may have are passed over.
//
// The error is that of the save.
func (t *Table) EnsureQueues(now time.Time, queues iter.Seq2[string, int], shape func(topic string, n int) protocol.TopicConfig) (made []protocol.TopicConfig, err error) {
	need := make(map[string]int)
	for name, id := range queues {
		if id >= 0 && id < MaxQueues && checkName(name) == nil {
			need[name] = max(need[name], id+1)
		}
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load().clone()
	var put []*topic
	for name, n := range need {
		var c protocol.TopicConfig
		switch old := s.find(name); {
		case old == nil:
			c = shape(name, n)
			if c.Name != name {
				panic(fmt.Sprintf("topics: the shape of %q is that of %q", name, c.Name))
			}
		case n > max(old.config.ReadQueues, old.config.WriteQueues):
			c = old.config
			c.ReadQueues = n
		default:
			continue
		}
		put = append(put, s.put(c))
		made = append(made, c)
	}
	if len(put) == 0 {
		return nil, nil
	}
	if err := t.commitLocked(now, s, put...); err != nil {
		return nil, err
	}
	slices.SortFunc(made, func(a, b protocol.TopicConfig) int { return strings.Compare(a.Name, b.Name) })
	return made, nil
}
