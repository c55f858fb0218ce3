package memnet

import (
	"net/netip"
	"slices"
	"time"
)

type ruleKind int

const (
	ruleCut ruleKind = iota
	ruleCutOneWay
	ruleDrop
	ruleDelay
)

// rule is one fault between two nodes, each given by name, address or "*".
// Only ruleCutOneWay has a direction: from a to b.
type rule struct {
	kind ruleKind
	a, b string
	d    time.Duration // of ruleDelay
}

// ruleSet is one version of the rules. Immutable; never empty.
type ruleSet struct{ rules []rule }

// link is what one version of the rules means for one session. Immutable.
type link struct {
	set                  *ruleSet
	cut                  bool
	silentTo, silentBack bool // to the server, back to the caller
	delayTo, delayBack   time.Duration
}

// Cut severs all links between a and b: their sessions end on both sides at
// once, calls in flight fail with protocol.ErrUnknownOutcome, and dials are
// refused with protocol.ErrUnreachable until Heal. Sessions that were cut stay
// dead after Heal.
//
// A node is named by its name ("ns-0", "broker-a/0", a client id) or by its
// address; "*" is everybody but the other side itself. Rules hold for
// sessions that exist and for later ones, for nodes that are up and for those
// still to come. They are independent: each is removed by Heal with the two
// names it was made with. All rule methods are safe for concurrent use; they
// return when the rule acts.
func (n *Network) Cut(a, b string) { n.add(rule{kind: ruleCut, a: a, b: b}) }

// CutOneWay silently loses everything that from sends to to: requests and
// dials of from, and the answers and notices of from when it is the server.
// A server whose answers are lost still serves the requests. See Cut for the
// names.
func (n *Network) CutOneWay(from, to string) { n.add(rule{kind: ruleCutOneWay, a: from, b: to}) }

// Drop silently loses everything between a and b, dials and the end of
// connections included: nothing is reset, callers run into their deadlines.
// See Cut for the names.
func (n *Network) Drop(a, b string) { n.add(rule{kind: ruleDrop, a: a, b: b}) }

// Delay makes everything between a and b take d each way, dials 2d. A later
// Delay of the same two names replaces d; 0 or less removes the rule. Where
// several rules delay a link, the longest counts. See Cut for the names.
func (n *Network) Delay(a, b string, d time.Duration) {
	if d > 0 {
		n.add(rule{kind: ruleDelay, a: a, b: b, d: d})
		return
	}
	a, b = canonicalName(a), canonicalName(b)
	n.edit(func(rules []rule) []rule {
		return slices.DeleteFunc(rules, func(r rule) bool { return r.kind == ruleDelay && n.betweenLocked(r, a, b) })
	})
}

// Heal removes all rules between a and b, whichever way round and whether the
// two were named by name or by address. A rule with "*" is removed only by
// naming "*".
func (n *Network) Heal(a, b string) {
	a, b = canonicalName(a), canonicalName(b)
	n.edit(func(rules []rule) []rule {
		return slices.DeleteFunc(rules, func(r rule) bool { return n.betweenLocked(r, a, b) })
	})
}

// HealAll removes all rules.
func (n *Network) HealAll() { n.edit(func([]rule) []rule { return nil }) }

func (n *Network) add(r rule) {
	r.a, r.b = canonicalName(r.a), canonicalName(r.b)
	n.edit(func(rules []rule) []rule {
		i := slices.IndexFunc(rules, func(o rule) bool {
			same := o.a == r.a && o.b == r.b || r.kind != ruleCutOneWay && o.a == r.b && o.b == r.a
			return same && o.kind == r.kind
		})
		if i >= 0 {
			rules[i] = r
			return rules
		}
		return append(rules, r)
	})
}

// edit replaces the rules by what change makes of a copy of them and acts on
// the sessions that this concerns.
func (n *Network) edit(change func([]rule) []rule) {
	n.mu.Lock()
	var rules []rule
	if old := n.rules.Load(); old != nil {
		rules = slices.Clone(old.rules)
	}
	n.publishLocked(change(rules))
	ends := n.reviewLocked()
	n.mu.Unlock()
	finish(ends)
}

func (n *Network) publishLocked(rules []rule) {
	if len(rules) == 0 {
		n.rules.Store(nil)
		return
	}
	n.rules.Store(&ruleSet{rules: rules})
}

// reviewLocked looks at all sessions after the rules, or the addresses they
// are matched against, have changed: a link may be cut now, or one side may
// now learn that the other is gone, or get what a stream has held back.
func (n *Network) reviewLocked() []ending {
	var ends []ending
	for s := range n.sessions {
		if n.linkLocked(s).cut {
			s.clientGone, s.serverGone, s.reset = true, true, true
		}
		if s.clientGone || s.serverGone || s.stream != nil {
			ends = append(ends, n.verdictLocked(s))
		}
	}
	return ends
}

// linkLocked resolves the present rules for s.
func (n *Network) linkLocked(s *session) *link {
	set := n.rules.Load()
	if l := s.link.Load(); l != nil && l.set == set {
		return l
	}
	l := &link{set: set}
	if set != nil {
		for _, r := range set.rules {
			l.apply(r, s)
		}
	}
	s.link.Store(l)
	return l
}

func (l *link) apply(r rule, s *session) {
	to, back := s.between(r.a, r.b), s.between(r.b, r.a)
	if !to && !back {
		return
	}
	switch r.kind {
	case ruleCut:
		l.cut = true
	case ruleCutOneWay:
		l.silentTo = l.silentTo || to
		l.silentBack = l.silentBack || back
	case ruleDrop:
		l.silentTo, l.silentBack = true, true
	case ruleDelay:
		l.delayTo, l.delayBack = max(l.delayTo, r.d), max(l.delayBack, r.d)
	}
}

// between tells whether from names s's caller and to names its server.
func (s *session) between(from, to string) bool {
	if s.client.node == s.server.node && (from == "*" || to == "*") {
		return false // a node is not cut off from itself by what it is cut off from
	}
	caller := from == "*" || s.client.addr == from || s.client.node.has(from)
	// Addresses of servers are exact: two of one name can be told apart.
	server := to == "*" || s.server.addr == to || s.server.node != nil && s.server.node.name == to ||
		s.lis != nil && slices.Contains(s.lis.bound, to)
	return caller && server
}

// betweenLocked tells whether r was made for a and b.
func (n *Network) betweenLocked(r rule, a, b string) bool {
	return n.sameLocked(r.a, a) && n.sameLocked(r.b, b) || n.sameLocked(r.a, b) && n.sameLocked(r.b, a)
}

// sameLocked tells whether two names mean one node.
func (n *Network) sameLocked(x, y string) bool {
	if x == y {
		return true
	}
	if x == "*" || y == "*" {
		return false
	}
	nx, ny := n.book.byAddr[x], n.book.byAddr[y]
	return nx.has(y) || ny.has(x)
}

// canonicalName writes an address the one way that addresses are compared in.
func canonicalName(name string) string {
	if ap, err := netip.ParseAddrPort(name); err == nil {
		return ap.String()
	}
	return name
}
