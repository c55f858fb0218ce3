package pocketmq

import (
	"hash/maphash"
	"sync"

	"github.com/pocketmq/pocketmq/internal/groups"
)

// differing keeps which groups have members that subscribe differently, so that
// each is reported once, until it changes.
type differing struct {
	mu     sync.Mutex // guards what follows
	seed   maphash.Seed
	groups map[string]uint64 // group -> a hash of how
}

// look asks the registry about a group. It returns how its members differ, "" when
// they do not, and whether that is new.
func (d *differing) look(registry *groups.Registry, group string) (how string, changed bool) {
	d.mu.Lock() // over the look: the newest counts
	defer d.mu.Unlock()
	_, how = registry.Differ(group)
	old, known := d.groups[group]
	if how == "" {
		delete(d.groups, group)
		return how, known
	}
	if d.groups == nil {
		d.groups, d.seed = make(map[string]uint64), maphash.MakeSeed()
	}
	now := maphash.String(d.seed, how)
	d.groups[group] = now
	return how, !known || old != now
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
