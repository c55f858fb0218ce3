package groups

import (
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func sameSubscription(a, b protocol.Subscription) bool {
	return a.Version == b.Version && sameFilter(a, b)
}

// sameFilter is sameSubscription for any versions.
func sameFilter(a, b protocol.Subscription) bool {
	return a.Topic == b.Topic && a.Expression == b.Expression && a.ExpressionType == b.ExpressionType &&
		slices.Equal(a.Tags, b.Tags) && slices.Equal(a.Codes, b.Codes)
}

// Differ reports whether the members of a group do not all subscribe to the
// same with the same model. They must: the broker has one view of a group, and
// each heartbeat of one kind of members takes the topics of the other away. The
// text names an example of each kind; it is "" when they agree.
func (g *Registry) Differ(name string) (bool, string) {
	snap, _ := g.Snapshot(name)
	how := Differ(name, snap.Members)
	return how != "", how
}

// What the text of Differ shows, of whatever members have told.
const (
	shownKinds = 3
	shownBytes = 256 // of the subscriptions of one kind
	shownID    = 100
)

// Differ is Registry.Differ for members of a group that were collected elsewhere;
// "" when they agree. Whoever has not told its subscriptions agrees with everybody.
// The text has less than 2 KiB, whatever they subscribe to.
func Differ(name string, members []Member) string {
	members = slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Untold })
	retry := true // all have the group's own topic, of no interest then
	for i := range members {
		m := &members[i]
		if !m.kind.known {
			m.kind = kindOf(m.Subscriptions, name, m.Model)
		}
		retry = retry && m.kind.retry
	}
	type like struct {
		first *Member
		more  int
	}
	var likes []*like
	byKind := make(map[kind]*like)
	for i := range members {
		m := &members[i]
		if l := byKind[m.kind]; l != nil {
			l.more++
			continue
		}
		l := &like{first: m}
		byKind[m.kind] = l
		likes = append(likes, l)
	}
	if len(likes) < 2 {
		return ""
	}
	own := ""
	if retry {
		own = message.RetryTopic(name)
	}
	shown := likes[:min(len(likes), shownKinds)]
	described := make([][]string, len(shown))
	long, in := false, make(map[string]int)
	for i, l := range shown {
		bytes := 0
		for s := range describe(l.first.Subscriptions, own) {
			described[i] = append(described[i], s)
			bytes += len(s)
			in[s]++
		}
		long = long || bytes > shownBytes
	}
	texts := make([]string, 0, len(shown)+1)
	for i, l := range shown {
		who := clip(l.first.ClientID, shownID)
		if l.more > 0 {
			who = fmt.Sprintf("%s and %d more", who, l.more)
		}
		same := 0
		what := described[i]
		if long { // what they have in common is not what differs
			what = slices.DeleteFunc(what, func(s string) bool { return in[s] == len(shown) })
			same = len(described[i]) - len(what)
		}
		text := who + ": " + l.first.Model.String() + clip(strings.Join(what, ""), shownBytes)
		if same > 0 {
			text += fmt.Sprintf(" and %d that all of these have", same)
		}
		texts = append(texts, text)
	}
	if rest := len(likes) - len(shown); rest > 0 {
		texts = append(texts, fmt.Sprintf("%d more kinds", rest))
	}
	return fmt.Sprintf("members of group %q subscribe differently: %s; give all of them the same subscriptions, or use another group",
		clip(name, shownID), strings.Join(texts, "; "))
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// kind is the same for members that agree, but for the group's own topic.
type kind struct {
	sum   [sha256.Size]byte
	retry bool // they have that
	known bool
}

func kindOf(subs []protocol.Subscription, group string, model protocol.MessageModel) kind {
	own := message.RetryTopic(group)
	h := sha256.New()
	io.WriteString(h, model.String())
	for s := range describe(subs, own) {
		io.WriteString(h, s)
	}
	k := kind{retry: slices.ContainsFunc(subs, func(s protocol.Subscription) bool { return s.Topic == own }), known: true}
	h.Sum(k.sum[:0])
	return k
}

// describe is each of a member's subscriptions, but for one topic; members that
// agree have the same texts, whatever the order of their tags.
func describe(subs []protocol.Subscription, without string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range subs {
			s := &subs[i]
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
			text := " " + s.Topic + "(" + expression + ")"
			if s.ExpressionType != "" && s.ExpressionType != protocol.ExpressionTag {
				text += s.ExpressionType
			}
			if !yield(text) {
				return
			}
		}
	}
}
