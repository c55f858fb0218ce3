package groups

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// What the groups of clients may take, in bytes.
const (
	// SessionBytes is the most that one session registers: some 5000 subscriptions,
	// or ten thousand producer groups. Real clients have tens or hundreds.
	SessionBytes = 2 << 20
	// OwnBytes is what each session has for itself: some 80 subscriptions.
	OwnBytes = 32 << 10
	// SharedBytes is the most of all sessions together, beyond their own.
	SharedBytes = 256 << 20
)

// limits are these.
type limits struct{ session, own, shared int }

func defaultLimits() limits { return limits{session: SessionBytes, own: OwnBytes, shared: SharedBytes} }

// About what one of each takes beside its texts, and in all for one subscription of
// a member; a view of the group takes as much once more, for which each member pays.
const (
	producerRest     = 128
	memberRest       = 1 << 10
	subscriptionRest = 160
	tagRest          = 32
)

func producerBytes(name, clientID string) int { return producerRest + len(name) + len(clientID) }

func memberBytes(name, clientID string) int { return memberRest + len(name) + len(clientID) }

func subscriptionBytes(s *protocol.Subscription) int {
	n := subscriptionRest + len(s.Topic) + len(s.Expression) + len(s.ExpressionType) + 4*len(s.Codes)
	for _, tag := range s.Tags {
		n += tagRest + len(tag)
	}
	return n
}

// chargeLocked counts more bytes, or fewer, for a session. It is false, and counts
// nothing, when those would be too many.
func (g *Registry) chargeLocked(s *session, more int) bool {
	beyond := func(bytes int) int { return max(0, bytes-g.limits.own) }
	charge := beyond(s.bytes+more) - beyond(s.bytes)
	if more > 0 && (s.bytes+more > g.limits.session || charge > 0 && g.charged+charge > g.limits.shared) {
		return false
	}
	s.bytes += more
	g.charged += charge
	return true
}

// told is what a heartbeat says of a group, made ready.
type told struct {
	subscriptions []protocol.Subscription // sorted by topic
	kind          kind                    // of those
	bytes         int                     // of those
	tooMuch       bool                    // nobody may register so much; then there are none
}

// tell copies subscriptions out of a request; of a topic that is listed twice the
// last one counts.
func (l limits) tell(c *protocol.ConsumerData) told {
	byTopic := make(map[string]*protocol.Subscription, min(len(c.Subscriptions), l.session/subscriptionRest))
	t := told{}
	for i := range c.Subscriptions {
		s := &c.Subscriptions[i]
		if old, ok := byTopic[s.Topic]; ok {
			t.bytes -= subscriptionBytes(old)
		}
		byTopic[s.Topic] = s
		if t.bytes += subscriptionBytes(s); 2*t.bytes > l.session {
			return told{tooMuch: true}
		}
	}
	t.subscriptions = make([]protocol.Subscription, 0, len(byTopic))
	for _, s := range byTopic {
		t.subscriptions = append(t.subscriptions, ownSubscription(*s))
	}
	slices.SortFunc(t.subscriptions, func(a, b protocol.Subscription) int { return cmp.Compare(a.Topic, b.Topic) })
	t.kind = kindOf(t.subscriptions, c.Group, c.Model)
	return t
}

// ownSubscription is a subscription that holds nothing of the request that it is from: its texts
// may be parts of a larger one.
func ownSubscription(s protocol.Subscription) protocol.Subscription {
	s.Topic, s.Expression = strings.Clone(s.Topic), strings.Clone(s.Expression)
	if s.ExpressionType == protocol.ExpressionTag {
		s.ExpressionType = protocol.ExpressionTag // the constant
	} else {
		s.ExpressionType = strings.Clone(s.ExpressionType)
	}
	s.Codes = slices.Clone(s.Codes)
	tags := make([]string, len(s.Tags))
	for i, tag := range s.Tags {
		tags[i] = strings.Clone(tag)
	}
	if s.Tags != nil {
		s.Tags = tags
	}
	return s
}
