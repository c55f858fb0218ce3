package pocketmq

import (
	"sync"

	"github.com/pocketmq/pocketmq/internal/groups"
)

// differing keeps which groups have members that subscribe differently, so that
// each is reported once, until it changes.
type differing struct {
	mu     sync.Mutex        // guards groups
	groups map[string]string // group -> how
}

// look asks the registry about a group. It returns how its members differ, "" when
// they do not, and whether that is new.
func (d *differing) look(registry *groups.Registry, group string) (how string, changed bool) {
	d.mu.Lock() // over the look: the newest counts
	defer d.mu.Unlock()
	_, how = registry.Differ(group)
	if how == d.groups[group] {
		return how, false
	}
	if how == "" {
		delete(d.groups, group)
		return how, true
	}
	if d.groups == nil {
		d.groups = make(map[string]string)
	}
	d.groups[group] = how
	return how, true
}

// reportDiffering reports a group whose members have begun to subscribe
// differently, do so in another way, or agree again.
func (r *brokerRun) reportDiffering(group string) {
	how, changed := r.differs.look(r.groups, group)
	switch {
	case !changed:
	case how == "":
		r.log.Info("the members of the group subscribe to the same again", "group", group)
	default:
		r.log.Warn("messages of this group may be lost to members that do not want them", "reason", how)
		r.events.emit(r.node, func(b EventBase) Event { return SubscriptionsDiffer{b, group, how} })
	}
}
