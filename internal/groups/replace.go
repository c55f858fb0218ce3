package groups

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Replace makes the settings those of a slave's master, its version included, all at
// once or, on an error, none, and returns the names of groups that are new, different
// or gone, sorted. A group that only the slave knew of is there again after its next
// use. Nothing of configs is kept. Java:
// SlaveSynchronize.syncSubscriptionGroupConfig.
//
// Errors: protocol.ErrStaleVersion for settings of a former master; *protocol.Error of
// code InvalidParameter for an illegal name or number of retry queues; what the save
// returned.
func (s *Settings) Replace(configs []protocol.GroupConfig, version protocol.DataVersion) (changed []string, err error) {
	want := make(map[string]protocol.GroupConfig, len(configs))
	for _, c := range configs {
		if err := checkConfig(c); err != nil {
			return nil, err
		}
		want[c.Name] = own(c)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	var stale error
	err = s.save(func() *change {
		if stale = version.Follows(s.version, "group settings"); stale != nil {
			return nil
		}
		changed = s.differing(want)
		if len(changed) == 0 && version == s.version && !s.dirty {
			return nil
		}
		all := make([]protocol.GroupConfig, 0, len(want))
		for _, name := range slices.Sorted(maps.Keys(want)) {
			all = append(all, want[name])
		}
		return &change{version, all, func() {
			for _, name := range changed {
				if c, ok := want[name]; ok {
					s.byName.Store(name, c)
				} else {
					s.byName.Delete(name)
				}
			}
		}}
	})
	if err = cmp.Or(stale, err); err != nil {
		return nil, err
	}
	return changed, nil
}

// differing are the names of groups that are in one of the tables only, or not the same
// in both, sorted.
func (s *Settings) differing(want map[string]protocol.GroupConfig) (names []string) {
	have := make(map[string]bool)
	for _, old := range s.Snapshot() {
		have[old.Name] = true
		if c, ok := want[old.Name]; !ok || !reflect.DeepEqual(old, c) {
			names = append(names, old.Name)
		}
	}
	for name := range want {
		if !have[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SetStateVersion makes versions from now on those of a later state of the broker
// group, its epoch; the present one too, which is saved. An earlier state is ignored.
// The error is that of the save.
func (s *Settings) SetStateVersion(now time.Time, state int64) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.save(func() *change {
		if state <= s.version.StateVersion {
			return nil
		}
		version := next(s.version, now)
		version.StateVersion = state
		return &change{version, s.Snapshot(), func() {}}
	})
}

// checkConfig refuses settings that no group may have.
func checkConfig(c protocol.GroupConfig) error {
	if err := message.ValidateGroup(c.Name); err != nil {
		return protocol.BadName(err)
	}
	if c.RetryQueues < 0 || c.RetryQueues > MaxRetryQueues {
		return protocol.Errorf(protocol.InvalidParameter,
			"group %s: %d retry queues; must be 0 (failed messages are dropped) to %d", c.Name, c.RetryQueues, MaxRetryQueues)
	}
	return nil
}
