package groups

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// SettingsOptions says where the Settings of a broker live.
type SettingsOptions struct {
	File   string         // state file; "" = memory only
	NoSync bool           // survive a kill of the process but not a loss of power
	Disk   statefile.Disk // that the file is on, in a test of bad disks; nil = a good one
	Logger *slog.Logger   // nil = silent
}

// Settings is the configuration of the consumer groups of one broker. A group
// is there from the first time that somebody uses it. Safe for concurrent use;
// Get takes no lock. Java: SubscriptionGroupManager.
type Settings struct {
	file *statefile.File // nil = memory only

	byName sync.Map // name -> protocol.GroupConfig; written under mu

	turn statefile.Turn // one save at a time; held over its file calls, taken before mu

	mu      sync.Mutex           // guards the rest; a leaf: the first use of a group waits for no file
	version protocol.DataVersion // of the table
	dirty   bool                 // groups were made since the last save began
}

// settingsFile is the file's content.
type settingsFile struct {
	DataVersion            protocol.DataVersion       `json:"dataVersion"`
	SubscriptionGroupTable map[string]json.RawMessage `json:"subscriptionGroupTable"`
}

// bootGroups exist from the start, with the settings of a group that nobody
// configured. Java: SubscriptionGroupManager.init.
func bootGroups() []string {
	return []string{
		"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
		"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
	}
}

// OpenSettings reads the settings and adds RocketMQ's own groups. A damaged file
// is replaced by the version before it, which is logged: the last change is lost.
// With both versions damaged it is an error that names the files
// (statefile.ErrDamaged). It writes nothing.
func OpenSettings(o SettingsOptions) (*Settings, error) {
	s := &Settings{turn: statefile.NewTurn()}
	for _, name := range bootGroups() {
		s.byName.Store(name, protocol.DefaultGroupConfig(name))
	}
	if o.File == "" {
		return s, nil
	}
	s.file = statefile.New(o.File, o.NoSync)
	s.file.On(o.Disk)
	data, found, err := s.file.Load()
	if err != nil {
		return nil, fmt.Errorf("group settings: %w", err)
	}
	if err := s.file.Damaged(); err != nil && o.Logger != nil {
		o.Logger.Warn("group settings restored from the backup: the last change of a group is lost", "err", err)
	}
	if !found {
		return s, nil
	}
	if err := s.decode(data); err != nil {
		return nil, fmt.Errorf("group settings: %s: %w; put a good copy in its place, or move it away to start with default settings", o.File, err)
	}
	return s, nil
}

// decode reads what encode wrote, or RocketMQ: a field that is not there has
// its default, and one that is unknown is passed over.
func (s *Settings) decode(data []byte) error {
	var f settingsFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	s.version = f.DataVersion
	for name, text := range f.SubscriptionGroupTable {
		c := protocol.DefaultGroupConfig(name)
		if err := json.Unmarshal(text, &c); err != nil {
			return fmt.Errorf("entry %q: %w", name, err)
		}
		if c.Name != name {
			return fmt.Errorf("entry %q describes group %q", name, c.Name)
		}
		if err := message.ValidateGroup(name); err != nil {
			return err
		}
		s.byName.Store(name, own(c))
	}
	return nil
}

// own returns c with a map that nobody else has.
func own(c protocol.GroupConfig) protocol.GroupConfig {
	c.Attributes = maps.Clone(c.Attributes)
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return c
}

// Get returns a group's settings, false for a group that was never used. The
// map in them is for reading. It takes no lock and does not allocate.
func (s *Settings) Get(name string) (protocol.GroupConfig, bool) {
	v, ok := s.byName.Load(name)
	if !ok {
		return protocol.GroupConfig{}, false
	}
	return v.(protocol.GroupConfig), true
}

// Ensure is Get for the first use of a group, which gets default settings.
// created tells the caller that made it. The next Persist saves it: what a crash
// takes is made again by the next use. The error is a *protocol.Error of code
// SubscriptionGroupNotExist, for a name that no group may have.
// Java: SubscriptionGroupManager.findSubscriptionGroupConfig with
// autoCreateSubscriptionGroup.
//
// Differs: there each new group writes the whole file at once.
func (s *Settings) Ensure(now time.Time, name string) (c protocol.GroupConfig, created bool, err error) {
	if c, ok := s.Get(name); ok {
		return c, false, nil
	}
	if err := message.ValidateGroup(name); err != nil {
		return protocol.GroupConfig{}, false, protocol.Errorf(protocol.SubscriptionGroupNotExist,
			"subscription group [%.*s] does not exist and cannot be made: %v", message.MaxGroupLength, name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.Get(name); ok {
		return c, false, nil
	}
	c = protocol.DefaultGroupConfig(name)
	s.version = next(s.version, now)
	s.byName.Store(name, c)
	s.dirty = true
	return c, true, nil
}

// Persist saves the groups that were made since the last save. After an error
// the next one tries again. It blocks for the file calls.
func (s *Settings) Persist() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.save(func() *change {
		if !s.dirty {
			return nil
		}
		return &change{s.version, s.Snapshot(), func() {}}
	})
}

// Put creates a group or replaces its settings as a whole, and reports whether
// that changed anything. Nothing of c is kept. Java:
// SubscriptionGroupManager.updateSubscriptionGroupConfig.
//
// Errors: *protocol.Error of code InvalidParameter for an illegal name, for
// retry queues below 0 or above limit; what the save returned, and nothing has
// changed then. RetryMaxTimes below 0 sends every failed message to the dead
// letters at once, as 0 does.
func (s *Settings) Put(now time.Time, c protocol.GroupConfig) (changed bool, err error) {
	if err := checkConfig(c); err != nil {
		return false, err
	}
	c = own(c)
	s.turn.Lock()
	defer s.turn.Unlock()
	err = s.save(func() *change {
		if old, ok := s.Get(c.Name); ok && reflect.DeepEqual(old, c) {
			return nil
		}
		changed = true
		all := slices.DeleteFunc(s.Snapshot(), func(x protocol.GroupConfig) bool { return x.Name == c.Name })
		i, _ := slices.BinarySearchFunc(all, c.Name, func(x protocol.GroupConfig, name string) int { return strings.Compare(x.Name, name) })
		return &change{next(s.version, now), slices.Insert(all, i, c), func() { s.byName.Store(c.Name, c) }}
	})
	return changed && err == nil, err
}

// MaxRetryQueues bounds the queues of a group's %RETRY% topic.
const MaxRetryQueues = 65535

// Delete forgets a group's settings and reports whether there were any. One of
// RocketMQ's own groups is there again after the next OpenSettings, and any
// group after its next use. Java:
// SubscriptionGroupManager.deleteSubscriptionGroupConfig.
//
// An error is that of the save; the group is still there then.
func (s *Settings) Delete(now time.Time, name string) (deleted bool, err error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	err = s.save(func() *change {
		if _, deleted = s.Get(name); !deleted {
			return nil
		}
		all := slices.DeleteFunc(s.Snapshot(), func(x protocol.GroupConfig) bool { return x.Name == name })
		return &change{next(s.version, now), all, func() { s.byName.Delete(name) }}
	})
	return deleted && err == nil, err
}

// Snapshot returns all groups, sorted by name. The slice belongs to the caller,
// the maps in it are for reading.
func (s *Settings) Snapshot() []protocol.GroupConfig {
	var all []protocol.GroupConfig
	s.byName.Range(func(_, v any) bool {
		all = append(all, v.(protocol.GroupConfig))
		return true
	})
	slices.SortFunc(all, func(a, b protocol.GroupConfig) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Table is Snapshot with the version of what it returns.
func (s *Settings) Table() ([]protocol.GroupConfig, protocol.DataVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Snapshot(), s.version
}

// change is a table that is to be saved, under its version, and how it is then to be
// seen.
type change struct {
	version protocol.DataVersion
	all     []protocol.GroupConfig
	show    func()
}

// save saves what plan says, unless that is nil, and only then lets it be seen. plan and
// show are called under mu, which is not held over the file calls: groups that are made
// meanwhile are there at once, and in the next save. The caller holds the turn.
func (s *Settings) save(plan func() *change) error {
	s.mu.Lock()
	c := plan()
	if c == nil {
		s.mu.Unlock()
		return nil
	}
	base, dirty := s.version, s.dirty
	s.dirty = false
	s.mu.Unlock()
	var err error
	if s.file != nil {
		err = s.file.Save(encodeSettings(c.version, c.all))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dirty = s.dirty || dirty
		return fmt.Errorf("group settings: %w", err)
	}
	if s.version != base { // what was saved is not all that there is
		c.version.Counter = max(c.version.Counter, s.version.Counter) + 1
	}
	s.version = c.version
	c.show()
	return nil
}

// next is the version after v. Java: DataVersion.nextVersion.
func next(v protocol.DataVersion, now time.Time) protocol.DataVersion {
	return protocol.DataVersion{StateVersion: v.StateVersion, Timestamp: now.UnixMilli(), Counter: v.Counter + 1}
}

// encodeSettings writes one line per group, sorted, so that people can read and
// compare files.
func encodeSettings(version protocol.DataVersion, all []protocol.GroupConfig) []byte {
	line := func(v any) []byte {
		text, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("group settings: %+v does not encode: %v", v, err)) // strings, numbers and a map of strings
		}
		return text
	}
	out := append([]byte("{\n\"dataVersion\":"), line(version)...)
	out = append(out, ",\n\"forbiddenTable\":{},\n\"subscriptionGroupTable\":{"...)
	for i, c := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, "\n\""...)
		out = append(out, c.Name...) // a legal name needs no escape
		out = append(out, "\":"...)
		out = append(out, line(c)...)
	}
	return append(out, "\n}}\n"...)
}
