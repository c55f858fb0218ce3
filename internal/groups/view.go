package groups

import (
	"maps"
	"slices"

	"github.com/pocketmq/pocketmq/protocol"
)

// view is what the broker filters by for a group that has members. It is never
// changed, so that pulls read it without waiting for heartbeats.
type view struct {
	model         protocol.MessageModel
	subscriptions map[string]protocol.Subscription // by topic
	bytes         int                              // of those
}

// as is the same of another model.
func (v *view) as(model protocol.MessageModel) *view {
	return &view{model: model, subscriptions: v.subscriptions, bytes: v.bytes}
}

// subscribe makes a member's subscriptions, sorted by topic, the group's: new topics
// come in, topics that it does not list go, a larger version replaces. It returns
// the view behind that, v itself where nothing is new, and whether a topic came or
// went. Java: ConsumerGroupInfo.updateSubscription.
func (v *view) subscribe(subs []protocol.Subscription) (next *view, moved bool) {
	kept, newer := 0, false
	for i := range subs {
		old, known := v.subscriptions[subs[i].Topic]
		if known {
			kept++
			newer = newer || subs[i].Version > old.Version
		}
	}
	moved = kept != len(subs) || kept != len(v.subscriptions)
	if !moved && !newer {
		return v, false
	}
	next = &view{model: v.model, subscriptions: make(map[string]protocol.Subscription, len(subs))}
	for i := range subs {
		next.put(&subs[i])
		if old, known := v.subscriptions[subs[i].Topic]; known && old.Version >= subs[i].Version {
			next.put(&old)
		}
	}
	return next, moved
}

// put sets a topic's subscription.
func (v *view) put(s *protocol.Subscription) {
	if old, ok := v.subscriptions[s.Topic]; ok {
		v.bytes -= subscriptionBytes(&old)
		delete(v.subscriptions, s.Topic) // the name is another string, of somebody else perhaps
	}
	v.subscriptions[s.Topic] = *s
	v.bytes += subscriptionBytes(s)
}

// showLocked makes v the view of a group.
func (g *Registry) showLocked(name string, gr *group, v *view) {
	if gr.view != v {
		gr.view = v
		g.views.Store(name, v)
	}
}

// trimLocked makes the view of a group anew, of what its members have told, when it
// holds more than that: who left would leave it behind for as long as others stay.
// Otherwise a view is left as it is when a member leaves. The work is less than that of the
// heartbeat which made the view.
func (g *Registry) trimLocked(name string, gr *group) {
	if gr.view.bytes <= gr.told {
		return
	}
	next := &view{model: gr.view.model, subscriptions: make(map[string]protocol.Subscription)}
	for _, reg := range gr.registrations {
		for i := range reg.subscriptions {
			s := &reg.subscriptions[i]
			if old, ok := next.subscriptions[s.Topic]; !ok || s.Version > old.Version {
				next.put(s)
			}
		}
	}
	g.showLocked(name, gr, next)
}

// viewOf is nil for a group without members.
func (g *Registry) viewOf(name string) *view {
	v, ok := g.views.Load(name)
	if !ok {
		return nil
	}
	return v.(*view)
}

// Subscription returns what the broker filters a topic by for a group, false
// when the group is unknown or does not subscribe to it. Its slices are for
// reading. Java: ConsumerManager.findSubscriptionData.
func (g *Registry) Subscription(name, topic string) (protocol.Subscription, bool) {
	v := g.viewOf(name)
	if v == nil {
		return protocol.Subscription{}, false
	}
	s, ok := v.subscriptions[topic]
	return s, ok
}

// Known reports whether a consumer group has members.
func (g *Registry) Known(name string) bool { return g.viewOf(name) != nil }

// Broadcasts reports whether a consumer group has members and each of them gets
// every message.
func (g *Registry) Broadcasts(name string) bool {
	v := g.viewOf(name)
	return v != nil && v.model == protocol.Broadcasting
}

// Topics lists what a consumer group subscribes to, sorted.
func (g *Registry) Topics(name string) []string {
	v := g.viewOf(name)
	if v == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(v.subscriptions))
}

// Subscribers lists the groups with members that subscribe to a topic and share
// its messages, sorted; broadcasting groups are left out.
func (g *Registry) Subscribers(topic string) []string {
	var names []string
	g.views.Range(func(name, v any) bool {
		if _, ok := v.(*view).subscriptions[topic]; ok && v.(*view).model != protocol.Broadcasting {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}
