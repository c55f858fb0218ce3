package topics

import (
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// DefaultQueues is how many queues the template of auto-created topics has.
// Java: BrokerConfig.defaultTopicQueueNums.
const DefaultQueues = 8

// readWrite is the permission of a topic that nothing else is said of.
const readWrite = protocol.PermRead | protocol.PermWrite

// Options says whose topics a Table holds, and where.
type Options struct {
	File          string         // state file; "" = memory only
	NoSync        bool           // survive a kill of the process but not a loss of power
	Disk          statefile.Disk // that the file is on, in a test of bad disks; nil = a good one
	Cluster       string         // has a topic of its name
	Broker        string         // the group's name; has a topic of its name
	AutoCreate    bool           // a first send may make a topic
	DefaultQueues int            // queues of the template; 0 = 8
	Logger        *slog.Logger
}

// Table is the topics of one broker. Safe for concurrent use. Get and Snapshot
// never wait for a change.
type Table struct {
	o    Options
	file *statefile.File // nil = memory only

	byName sync.Map              // name -> *topic; written under turn
	state  atomic.Pointer[state] // written under turn

	turn statefile.Turn // one change at a time; held over the file calls of its save, which no read waits for
}

// state is all topics at one version. Once published it is never changed.
type state struct {
	version protocol.DataVersion
	topics  []*topic // sorted by name
}

// topic is a config and its line in the file. Once published it is never
// changed.
type topic struct {
	config  protocol.TopicConfig
	line    []byte
	changed int64 // counter of the data version that it came with; 0 = before the table was opened
}

// Open reads the table and adds the system's own topics. A damaged file is
// replaced by the version before it, which is logged: the last change is lost.
// With both versions damaged it is an error that names the files
// (statefile.ErrDamaged). Open writes nothing. An illegal cluster or broker name
// is an error.
func Open(now time.Time, o Options) (*Table, error) {
	if o.DefaultQueues == 0 {
		o.DefaultQueues = DefaultQueues
	}
	for _, name := range []string{o.Cluster, o.Broker} {
		if name == "" {
			continue
		}
		if err := checkName(name); err != nil { // both have a topic of their name
			return nil, fmt.Errorf("topics: cluster %q, broker %q: %w", o.Cluster, o.Broker, err)
		}
	}
	t := &Table{o: o, turn: statefile.NewTurn()}
	// A table without history starts at a version of its own: a name server
	// that remembers another life of this broker must look again.
	s := &state{version: protocol.DataVersion{Timestamp: now.UnixMilli()}}
	if o.File != "" {
		t.file = statefile.New(o.File, o.NoSync)
		t.file.On(o.Disk)
		data, found, err := t.file.Load()
		if err != nil {
			return nil, fmt.Errorf("topics: %w", err)
		}
		if err := t.file.Damaged(); err != nil && o.Logger != nil {
			o.Logger.Warn("topics restored from the backup: the last change of a topic is lost", "err", err)
		}
		if found {
			if s, err = decode(data); err != nil {
				return nil, fmt.Errorf("topics: %s: %w; put a good copy in its place, or move it away to start without topics", o.File, err)
			}
		}
	}
	// Differs: in the reference a template that was once written stays.
	changed := !o.AutoCreate && s.remove(message.AutoCreateTopic)
	for _, c := range t.bootTopics() {
		old := s.find(c.Name)
		if old != nil && (old.config == c || c.Name == message.TraceTopic) { // a configuration may have asked for more of that
			continue
		}
		s.put(c)
		changed = true
	}
	if changed && s.version.Counter > 0 {
		s.version = next(s.version, now)
	}
	t.publish(s, s.topics...)
	return t, nil
}

// bootTopics are there from the start. They follow the options, not the file.
// Java: TopicConfigManager's constructor. The topics of features that do not
// exist here are left out; their names are protected all the same. Queues cost
// nothing before they are used.
//
// Differs: the topic of message traces is always there, as if traceTopicEnable was
// set: clients that trace send to it without asking.
func (t *Table) bootTopics() []protocol.TopicConfig {
	topic := func(name string, queues int, perm protocol.Perm) protocol.TopicConfig {
		return protocol.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: perm}
	}
	boot := []protocol.TopicConfig{
		topic("SELF_TEST_TOPIC", 1, readWrite),
		topic("BenchmarkTest", 1024, readWrite),
		topic("OFFSET_MOVED_EVENT", 1, readWrite),
		topic(message.TraceTopic, 1, readWrite),
	}
	if t.o.Cluster != "" {
		boot = append(boot, topic(t.o.Cluster, 16, readWrite|protocol.PermInherit))
	}
	if t.o.Broker != "" && t.o.Broker != t.o.Cluster {
		boot = append(boot, topic(t.o.Broker, 1, readWrite|protocol.PermInherit))
	}
	if t.o.AutoCreate {
		boot = append(boot, topic(message.AutoCreateTopic, t.o.DefaultQueues, readWrite|protocol.PermInherit))
	}
	return boot
}

// Get returns a topic, false when the broker does not have it. It takes no
// lock. Java: TopicConfigManager.selectTopicConfig.
func (t *Table) Get(name string) (protocol.TopicConfig, bool) {
	v, ok := t.byName.Load(name)
	if !ok {
		return protocol.TopicConfig{}, false
	}
	return v.(*topic).config, true
}

// Snapshot returns all topics, sorted by name, and their data version. The
// slice belongs to the caller.
func (t *Table) Snapshot() ([]protocol.TopicConfig, protocol.DataVersion) {
	s := t.state.Load()
	configs := make([]protocol.TopicConfig, len(s.topics))
	for i, topic := range s.topics {
		configs[i] = topic.config
	}
	return configs, s.version
}

// ChangedSince is Snapshot without the topics that a data version with the given
// counter had already, as they are now. The counter is of a version that this
// Table has had: what was changed before it was opened counts as one change.
func (t *Table) ChangedSince(counter int64) ([]protocol.TopicConfig, protocol.DataVersion) {
	s := t.state.Load()
	var configs []protocol.TopicConfig
	for _, topic := range s.topics {
		if topic.changed > counter {
			configs = append(configs, topic.config)
		}
	}
	return configs, s.version
}

// MarkOrdered notes of those of the given topics that the broker has, and that
// are not marked yet, that they are ordered, all in one change, and returns them,
// sorted. On an error, what the save returned, none is marked.
// Java: TopicConfigManager.updateOrderTopicConfig.
func (t *Table) MarkOrdered(now time.Time, names iter.Seq[string]) (marked []string, err error) {
	unmarked := func(c protocol.TopicConfig, ok bool) bool { return ok && !c.Order }
	for name := range names {
		if unmarked(t.Get(name)) {
			marked = append(marked, name)
		}
	}
	if len(marked) == 0 {
		return nil, nil
	}
	slices.Sort(marked)
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load().clone()
	var put []*topic
	marked = slices.DeleteFunc(slices.Compact(marked), func(name string) bool {
		old := s.find(name)
		if old == nil || old.config.Order {
			return true
		}
		c := old.config
		c.Order = true
		put = append(put, s.put(c))
		return false
	})
	if len(put) == 0 {
		return nil, nil
	}
	if err := t.commitLocked(now, s, put...); err != nil {
		return nil, err
	}
	return marked, nil
}

// Ensure makes the given topics exist with at least the given queue counts, all
// in one change or, on an error, none. Counts grow and never shrink; the rest
// of an existing topic stays as it is. It is meant for the topics of a
// configuration.
//
// Errors: *protocol.Error of code InvalidParameter for an illegal name, a
// system topic other than the one for traces, or a config out of range; what the
// save returned.
func (t *Table) Ensure(now time.Time, configs ...protocol.TopicConfig) (changed bool, err error) {
	for _, c := range configs {
		check := t.check
		if c.Name == message.TraceTopic { // whose configuration asks for traces gets them
			check = checkSize
		}
		if err := check(c); err != nil {
			return false, err
		}
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load().clone()
	var put []*topic
	for _, c := range configs {
		if old := s.find(c.Name); old != nil {
			grown := old.config
			grown.ReadQueues = max(grown.ReadQueues, c.ReadQueues)
			grown.WriteQueues = max(grown.WriteQueues, c.WriteQueues)
			if grown == old.config {
				continue
			}
			c = grown
		}
		put = append(put, s.put(c))
	}
	if len(put) == 0 {
		return false, nil
	}
	if err := t.commitLocked(now, s, put...); err != nil {
		return false, err
	}
	return true, nil
}

// Put creates topics or replaces their configs whole, all in one change or, on an
// error, none; but for attributes, which are changes of those that a topic has.
// Identical ones change nothing. Of two with one name the last counts. Java:
// TopicConfigManager.updateTopicConfig, updateTopicConfigList.
//
// Errors: *protocol.Error of code InvalidParameter for an illegal name, a
// system topic or a config out of range, of SystemError for attributes that cannot
// be; what the save returned.
func (t *Table) Put(now time.Time, configs ...protocol.TopicConfig) (changed bool, err error) {
	for _, c := range configs {
		if err := t.check(c); err != nil {
			return false, err
		}
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load().clone()
	var put []*topic
	for _, c := range configs {
		old := s.find(c.Name)
		var have protocol.Attributes
		if old != nil {
			have = old.config.Attributes
		}
		if c.Attributes, err = alter(c.Name, have, c.Attributes, old == nil); err != nil {
			return false, err
		}
		if old == nil || old.config != c {
			put = append(put, s.put(c))
		}
	}
	if len(put) == 0 {
		return false, nil
	}
	if err := t.commitLocked(now, s, put...); err != nil {
		return false, err
	}
	return true, nil
}

// AutoCreate returns the topic that a send names, made after the template
// defaultTopic when the broker does not have it: with the smaller of
// clientQueues and the template's write queues, and its permission without
// inherit. A %RETRY% topic that has no template gets one queue. created tells
// whether this call made it.
// Java: TopicConfigManager.createTopicInSendMessageMethod. Differs: there a client
// that asks for no queues makes a topic to which nobody can ever send.
//
// Errors (*protocol.Error): TopicNotExist without a template; InvalidParameter
// for an illegal name, or when no queue would be left; NoPermission for the name of a topic of the system that
// only the system itself may make; what the save returned.
func (t *Table) AutoCreate(now time.Time, name, defaultTopic string, clientQueues int) (config protocol.TopicConfig, created bool, err error) {
	if c, ok := t.Get(name); ok {
		return c, false, nil
	}
	if err := checkName(name); err != nil {
		return protocol.TopicConfig{}, false, err
	}
	if strings.HasPrefix(name, message.SystemTopicPrefix) || message.IsNotSendable(name) {
		return protocol.TopicConfig{}, false, protocol.Errorf(protocol.NoPermission,
			"topic[%s] is reserved for the system, sends do not make it; send to another topic", name)
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load()
	if old := s.find(name); old != nil {
		return old.config, false, nil
	}
	c := protocol.TopicConfig{Name: name, ReadQueues: 1, WriteQueues: 1, Perm: readWrite}
	if template := s.find(defaultTopic); template != nil && template.config.Perm&protocol.PermInherit != 0 {
		n := min(clientQueues, template.config.WriteQueues)
		if n <= 0 {
			return protocol.TopicConfig{}, false, protocol.Errorf(protocol.InvalidParameter,
				"topic[%s] cannot be made with %d queues, of %d in its template %q: ask for one at least, or create it with Admin.CreateTopic",
				name, clientQueues, template.config.WriteQueues, defaultTopic)
		}
		c = protocol.TopicConfig{
			Name: name, ReadQueues: n, WriteQueues: n,
			Perm: template.config.Perm &^ protocol.PermInherit, SysFlag: template.config.SysFlag, MultiTag: template.config.MultiTag,
		}
	} else if !message.IsRetryTopic(name) {
		why := fmt.Sprintf("its template %q is not one", defaultTopic)
		if !t.o.AutoCreate {
			why = "topics are not made by sends here"
		}
		return protocol.TopicConfig{}, false, protocol.Errorf(protocol.TopicNotExist,
			"topic[%s] not exist, apply first please! %s: create it with Admin.CreateTopic or ClusterConfig.Topics", name, why)
	}
	s = s.clone()
	if err := t.commitLocked(now, s, s.put(c)); err != nil {
		return protocol.TopicConfig{}, false, err
	}
	return c, true, nil
}

// Make makes those of the given topics that are missing, all in one change or,
// on an error, none, and leaves the others as they are. It is meant for topics
// that the broker itself needs, so it makes system topics too. created tells the
// caller that made one. Java: TopicConfigManager.createTopicInSendMessageBackMethod.
//
// Errors: *protocol.Error of code InvalidParameter for an illegal name; what the
// save returned.
func (t *Table) Make(now time.Time, configs ...protocol.TopicConfig) (created bool, err error) {
	missing := false
	for _, c := range configs {
		if _, ok := t.Get(c.Name); ok {
			continue
		}
		if err := checkName(c.Name); err != nil {
			return false, err
		}
		missing = true
	}
	if !missing {
		return false, nil
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load().clone()
	var put []*topic
	for _, c := range configs {
		if s.find(c.Name) == nil {
			put = append(put, s.put(c))
		}
	}
	if len(put) == 0 {
		return false, nil
	}
	if err := t.commitLocked(now, s, put...); err != nil {
		return false, err
	}
	return true, nil
}

// Delete takes a topic out and returns what it was; false when the broker does not
// have it. Java: TopicConfigManager.deleteTopicConfig.
//
// Errors: *protocol.Error of code InvalidParameter for an illegal name or a system
// topic; what the save returned, and the topic is still there then.
func (t *Table) Delete(now time.Time, name string) (config protocol.TopicConfig, deleted bool, err error) {
	if err := checkName(name); err != nil {
		return protocol.TopicConfig{}, false, err
	}
	if err := message.CheckNotSystem(name, t.o.Cluster, t.o.Broker); err != nil {
		return protocol.TopicConfig{}, false, protocol.BadName(err)
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	s := t.state.Load()
	old := s.find(name)
	if old == nil {
		return protocol.TopicConfig{}, false, nil
	}
	s = s.clone()
	s.remove(name)
	if err := t.commitLocked(now, s); err != nil {
		return protocol.TopicConfig{}, false, err
	}
	t.byName.Delete(name)
	return old.config, true, nil
}

// commitLocked gives s a new version, saves it, and only then lets it be seen.
func (t *Table) commitLocked(now time.Time, s *state, put ...*topic) error {
	s.version = next(t.state.Load().version, now)
	for _, topic := range put {
		topic.changed = s.version.Counter
	}
	return t.saveLocked(s, put...)
}

// saveLocked saves s and only then lets it be seen.
func (t *Table) saveLocked(s *state, put ...*topic) error {
	if t.file != nil {
		if err := t.file.Save(s.encode()); err != nil {
			return fmt.Errorf("topics: %w", err)
		}
	}
	t.publish(s, put...)
	return nil
}

func (t *Table) publish(s *state, put ...*topic) {
	t.state.Store(s)
	for _, topic := range put {
		t.byName.Store(topic.config.Name, topic)
	}
}

// next is the version after v. Java: DataVersion.nextVersion.
func next(v protocol.DataVersion, now time.Time) protocol.DataVersion {
	return protocol.DataVersion{StateVersion: v.StateVersion, Timestamp: now.UnixMilli(), Counter: v.Counter + 1}
}
