package groups

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// subscribe makes a member's subscriptions the group's: new topics come in,
// topics it does not list go, a larger version replaces. It reports whether a
// topic came or went. Java: ConsumerGroupInfo.updateSubscription.
func (gr *group) subscribe(subs []protocol.Subscription) (changed bool) {
	for _, s := range subs {
		old, known := gr.subscriptions[s.Topic]
		if !known || s.Version > old.Version {
			gr.subscriptions[s.Topic] = s
		}
		changed = changed || !known
	}
	for topic := range gr.subscriptions {
		if !slices.ContainsFunc(subs, func(s protocol.Subscription) bool { return s.Topic == topic }) {
			delete(gr.subscriptions, topic)
			changed = true
		}
	}
	return changed
}

// sameSubscriptions compares stored subscriptions with those of a heartbeat,
// which come in any order.
func sameSubscriptions(stored, given []protocol.Subscription) bool {
	if len(stored) != len(given) {
		return false
	}
	for _, s := range given {
		i, ok := slices.BinarySearchFunc(stored, s.Topic, compareTopic)
		if !ok || !sameSubscription(stored[i], s) {
			return false
		}
	}
	return true
}

func sameSubscription(a, b protocol.Subscription) bool {
	return a.Version == b.Version && sameFilter(a, b)
}

// sameFilter is sameSubscription for any versions.
func sameFilter(a, b protocol.Subscription) bool {
	return a.Topic == b.Topic && a.Expression == b.Expression && a.ExpressionType == b.ExpressionType &&
		slices.Equal(a.Tags, b.Tags) && slices.Equal(a.Codes, b.Codes)
}

// cloneSubscriptions copies subscriptions out of a request, sorted by topic; of
// a topic that is listed twice the last one counts.
func cloneSubscriptions(subs []protocol.Subscription) []protocol.Subscription {
	byTopic := make(map[string]protocol.Subscription, len(subs))
	for _, s := range subs {
		s.Tags, s.Codes = slices.Clone(s.Tags), slices.Clone(s.Codes)
		byTopic[s.Topic] = s
	}
	sorted := slices.Collect(maps.Values(byTopic))
	slices.SortFunc(sorted, func(a, b protocol.Subscription) int { return strings.Compare(a.Topic, b.Topic) })
	return sorted
}

func compareTopic(s protocol.Subscription, topic string) int { return strings.Compare(s.Topic, topic) }

// Differ reports whether the members of a group do not all subscribe to the
// same with the same model. They must: the broker has one view of a group, and
// each heartbeat of one kind of members takes the topics of the other away. The
// text names an example of each kind; it is "" when they agree.
func (g *Registry) Differ(name string) (bool, string) {
	snap, _ := g.Snapshot(name)
	how := Differ(name, snap.Members)
	return how != "", how
}

// Differ is Registry.Differ for members of a group that were collected elsewhere;
// "" when they agree. Whoever has not told its subscriptions agrees with everybody.
func Differ(name string, members []Member) string {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Untold })
	type kind struct {
		first string
		more  int
		what  string
	}
	own := message.RetryTopic(name) // of interest only if somebody is without
	if slices.ContainsFunc(members, func(m Member) bool {
		return !slices.ContainsFunc(m.Subscriptions, func(s protocol.Subscription) bool { return s.Topic == own })
	}) {
		own = ""
	}
	var kinds []kind
	for _, m := range members {
		what := describe(m, own)
		if i := slices.IndexFunc(kinds, func(k kind) bool { return k.what == what }); i >= 0 {
			kinds[i].more++
		} else {
			kinds = append(kinds, kind{first: m.ClientID, what: what})
		}
	}
	if len(kinds) < 2 {
		return ""
	}
	texts := make([]string, len(kinds))
	for i, k := range kinds {
		who := k.first
		if k.more > 0 {
			who = fmt.Sprintf("%s and %d more", who, k.more)
		}
		texts[i] = who + ": " + k.what
	}
	return fmt.Sprintf("members of group %q subscribe differently: %s; give all of them the same subscriptions, or use another group",
		name, strings.Join(texts, "; "))
}

// describe is a member's model and subscriptions, but for one topic; members that
// agree have the same text, whatever the order of their tags.
func describe(m Member, without string) string {
	var b strings.Builder
	b.WriteString(m.Model.String())
	for _, s := range m.Subscriptions {
		if s.Topic == without {
			continue
		}
		expression := strings.TrimSpace(s.Expression)
		if len(s.Tags) > 0 {
			tags := slices.Clone(s.Tags)
			slices.Sort(tags)
			expression = strings.Join(slices.Compact(tags), " || ")
		}
		if expression == "" {
			expression = "*"
		}
		fmt.Fprintf(&b, " %s(%s)", s.Topic, expression)
		if s.ExpressionType != "" && s.ExpressionType != protocol.ExpressionTag {
			b.WriteString(s.ExpressionType)
		}
	}
	return b.String()
}
