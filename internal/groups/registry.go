package groups

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Why a member left, the values of Change.Reason.
const (
	Unregistered     = "unregistered"
	ConnectionClosed = "connection closed"
	Silent           = "silent"
)

// Change is what happened to one consumer group.
type Change struct {
	Group    string
	Joined   []string // client ids of new members, sorted
	Left     []string // client ids of former members, sorted
	Replaced []string // client ids that go on through a newer session, sorted
	// Resubscribed are client ids of members that subscribe to something else
	// than before, or by another model; a newer version alone does not count.
	Resubscribed []string
	Reason       string // why those in Left have left; "" when nobody has
	// Notify is every live session of the group, newcomers too, when its
	// members have to share out the queues anew: a join, a leave, a new
	// session, another set of topics. It is empty in a broadcasting group.
	Notify []protocol.Peer
}

// Group is a consumer group at one moment.
type Group struct {
	Name          string
	Model         protocol.MessageModel // this and the next two as the last heartbeat told
	From          protocol.ConsumeFrom
	Passive       bool
	Members       []Member                // sorted by client id
	Subscriptions []protocol.Subscription // what the broker filters by, sorted by topic
}

// Member is one client of a group.
type Member struct {
	ClientID      string
	Session       uint64 // the one that speaks for it
	Remote        netip.AddrPort
	Language      string // as the client says; "" when it does not
	Version       int    // of RocketMQ that it is up to
	Model         protocol.MessageModel
	LastHeartbeat time.Time
	Subscriptions []protocol.Subscription // its own, sorted by topic
	Untold        bool                    // it has left them out so far, and is asked for them
}

// Registry is the groups of one broker. Safe for concurrent use; no method
// blocks. Slices in results belong to the caller, except those within a
// protocol.Subscription, which are for reading.
type Registry struct {
	mu        sync.RWMutex // guards everything below; a leaf, no callback runs under it
	consumers map[string]*group
	producers map[string]map[uint64]string // group -> session -> client id; no empty inner maps
	sessions  map[uint64]*session
	order     uint64 // of the last session that came in
}

// session is a connection that has sent a heartbeat.
type session struct {
	order uint64 // later ones are newer
	peer  protocol.Peer
	last  time.Time
	// What it is registered in; with both empty the session is forgotten.
	consumers map[string]struct{}
	producers map[string]struct{}
}

// group is a consumer group. It has at least one registration.
// Java: ConsumerGroupInfo.
type group struct {
	model         protocol.MessageModel
	from          protocol.ConsumeFrom
	passive       bool
	registrations map[uint64]*registration // by session
	clients       map[string]int           // client id -> its registrations, at least 1
	subscriptions map[string]protocol.Subscription
}

// registration is a session's part in a group. Java: ClientChannelInfo.
type registration struct {
	clientID      string
	order         uint64
	peer          protocol.Peer
	remote        netip.AddrPort
	language      string
	version       int
	model         protocol.MessageModel
	last          time.Time
	subscriptions []protocol.Subscription // sorted by topic
	told          bool                    // the client has told its subscriptions
	fingerprint   int32                   // of the last heartbeat
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		consumers: make(map[string]*group),
		producers: make(map[string]map[uint64]string),
		sessions:  make(map[uint64]*session),
	}
}

// Heartbeat takes in what a client tells at now through a session: it is a
// member of the groups that r lists, with these subscriptions. Groups that r
// leaves out are left alone. peer is the way back to the client, remote its
// address. Nothing of r is kept. A session is newer than all whose first
// heartbeat came before its own.
//
// A heartbeat without subscriptions leaves those that the client has told before
// as they are. wanted asks for them: it has told none through this session, or
// its fingerprint is another than it was.
//
// Java: ClientManageProcessor.heartBeat, ConsumerGroupInfo.updateSubscription:
// of the broker's own view of a group's subscriptions the last heartbeat
// decides which topics there are, and the largest version what a topic's
// filter is. Differs: there a fingerprint is the group's, so that members which
// differ in something else, and those that a restarted broker does not know, are
// never told the right thing.
func (g *Registry) Heartbeat(now time.Time, sessionID uint64, peer protocol.Peer, remote netip.AddrPort, r *protocol.HeartbeatRequest) (changes []Change, wanted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(r.Consumers) == 0 && len(r.Producers) == 0 {
		if s := g.sessions[sessionID]; s != nil {
			s.last = now
		}
		return nil, false
	}
	s := g.sessions[sessionID]
	if s == nil {
		g.order++
		s = &session{order: g.order, consumers: make(map[string]struct{}), producers: make(map[string]struct{})}
		g.sessions[sessionID] = s
	}
	s.peer, s.last = peer, now
	for _, name := range r.Producers {
		if g.producers[name] == nil {
			g.producers[name] = make(map[uint64]string)
		}
		g.producers[name][sessionID] = r.ClientID
		s.producers[name] = struct{}{}
	}
	for i := range r.Consumers {
		c, changed, outdated := g.joinLocked(now, sessionID, s, remote, r, &r.Consumers[i])
		if changed {
			changes = append(changes, c)
		}
		wanted = wanted || outdated
	}
	return changes, wanted
}

func (g *Registry) joinLocked(now time.Time, sessionID uint64, s *session, remote netip.AddrPort, r *protocol.HeartbeatRequest, c *protocol.ConsumerData) (_ Change, changed, wanted bool) {
	clientID := r.ClientID
	gr := g.consumers[c.Group]
	if gr == nil {
		gr = &group{
			registrations: make(map[uint64]*registration),
			clients:       make(map[string]int),
			subscriptions: make(map[string]protocol.Subscription),
		}
		g.consumers[c.Group] = gr
	}
	change := Change{Group: c.Group}
	gr.model, gr.from, gr.passive = c.Model, c.From, c.Passive
	reg := gr.registrations[sessionID]
	if reg != nil && reg.clientID != clientID {
		// The session speaks for another client now.
		if gr.remove(sessionID) {
			change.Left, change.Reason = []string{reg.clientID}, Unregistered
		}
		reg = nil
	}
	if reg == nil {
		if gr.clients[clientID] > 0 {
			change.Replaced = []string{clientID}
		} else {
			change.Joined = []string{clientID}
		}
		changed = true
		reg = &registration{clientID: clientID, order: s.order}
		gr.registrations[sessionID] = reg
		gr.clients[clientID]++
		s.consumers[c.Group] = struct{}{}
	}
	known := len(change.Joined)+len(change.Replaced) == 0
	different := known && reg.model != c.Model
	reg.peer, reg.remote, reg.language, reg.version, reg.model, reg.last = s.peer, remote, r.Language, r.Version, c.Model, now
	wanted = reg.fingerprint != 0 && reg.fingerprint != r.Fingerprint
	reg.fingerprint = r.Fingerprint
	if r.WithoutSubscriptions {
		wanted = wanted || !reg.told
	} else {
		if !reg.told || !sameSubscriptions(reg.subscriptions, c.Subscriptions) {
			subs := cloneSubscriptions(c.Subscriptions)
			different = different || known && !(reg.told && slices.EqualFunc(reg.subscriptions, subs, sameFilter))
			reg.subscriptions, reg.told = subs, true
		}
		changed = gr.subscribe(reg.subscriptions) || changed
	}
	if changed {
		change.Notify = gr.peers()
	}
	if different {
		change.Resubscribed = []string{clientID}
	}
	return change, changed || different, wanted
}

// Unregister takes the session out of the groups that r names, either or both.
// A session that is not in them changes nothing.
// Java: ClientManageProcessor.unregisterClient.
func (g *Registry) Unregister(sessionID uint64, r *protocol.UnregisterClientRequest) []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sessionID]
	if s == nil {
		return nil
	}
	g.leaveProducerLocked(sessionID, s, r.ProducerGroup)
	var changes []Change
	if gr, id, left := g.leaveLocked(sessionID, s, r.ConsumerGroup); left {
		changes = append(changes, Change{Group: r.ConsumerGroup, Left: []string{id}, Reason: Unregistered, Notify: gr.peers()})
	}
	g.forgetLocked(sessionID, s)
	return changes
}

// ConnClosed takes a session out of all its groups. A client that has a newer
// session stays. Sorted by group.
// Java: ConsumerManager.doChannelCloseEvent, ProducerManager.doChannelCloseEvent.
func (g *Registry) ConnClosed(sessionID uint64) []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sessionID]
	if s == nil {
		return nil
	}
	for name := range s.producers {
		g.leaveProducerLocked(sessionID, s, name)
	}
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(s.consumers)) {
		if gr, id, left := g.leaveLocked(sessionID, s, name); left {
			changes = append(changes, Change{Group: name, Left: []string{id}, Reason: ConnectionClosed, Notify: gr.peers()})
		}
	}
	g.forgetLocked(sessionID, s)
	return changes
}

// Expire takes out, at now, what was last heard of longer than after ago;
// strictly longer, so what is exactly that old stays. Sorted by group. Java: ConsumerManager.scanNotActiveChannel. Differs: there a connection is
// closed as soon as one of its groups is silent.
func (g *Registry) Expire(now time.Time, after time.Duration) []Change {
	g.mu.Lock()
	defer g.mu.Unlock()
	silent := func(last time.Time) bool { return now.Sub(last) > after }
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(g.consumers)) {
		gr := g.consumers[name]
		var left []string
		for id, reg := range gr.registrations {
			if !silent(reg.last) {
				continue
			}
			if _, client, gone := g.leaveLocked(id, g.sessions[id], name); gone {
				left = append(left, client)
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			changes = append(changes, Change{Group: name, Left: left, Reason: Silent, Notify: gr.peers()})
		}
	}
	for id, s := range g.sessions {
		if silent(s.last) {
			for name := range s.producers {
				g.leaveProducerLocked(id, s, name)
			}
		}
		g.forgetLocked(id, s)
	}
	return changes
}

// leaveLocked takes a session out of a consumer group. It returns the group,
// which may be empty and forgotten now, the client, and whether that has left;
// one that has another session in the group has not.
func (g *Registry) leaveLocked(sessionID uint64, s *session, name string) (gr *group, clientID string, left bool) {
	gr = g.consumers[name]
	if gr == nil {
		return nil, "", false
	}
	reg := gr.registrations[sessionID]
	if reg == nil {
		return nil, "", false
	}
	left = gr.remove(sessionID)
	delete(s.consumers, name)
	if len(gr.registrations) == 0 {
		delete(g.consumers, name)
	}
	return gr, reg.clientID, left
}

func (g *Registry) leaveProducerLocked(sessionID uint64, s *session, name string) {
	members := g.producers[name]
	delete(members, sessionID)
	delete(s.producers, name)
	if members != nil && len(members) == 0 {
		delete(g.producers, name)
	}
}

// forgetLocked drops a session that is in no group any more.
func (g *Registry) forgetLocked(sessionID uint64, s *session) {
	if len(s.consumers) == 0 && len(s.producers) == 0 {
		delete(g.sessions, sessionID)
	}
}

// Members lists the client ids of a consumer group, each once, sorted; none for
// an unknown group. Java: ConsumerGroupInfo.getAllClientId. Differs: there a
// client with two connections is listed twice, which shifts every share.
func (g *Registry) Members(name string) []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(gr.clients))
}

// Producers lists the client ids of a producer group, each once, sorted.
func (g *Registry) Producers(name string) []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	ids := slices.Sorted(maps.Values(g.producers[name]))
	return slices.Compact(ids)
}

// Subscription returns what the broker filters a topic by for a group, false
// when the group is unknown or does not subscribe to it. Its slices are for
// reading. Java: ConsumerManager.findSubscriptionData.
func (g *Registry) Subscription(name, topic string) (protocol.Subscription, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return protocol.Subscription{}, false
	}
	s, ok := gr.subscriptions[topic]
	return s, ok
}

// Known reports whether a consumer group has members.
func (g *Registry) Known(name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.consumers[name] != nil
}

// Broadcasts reports whether a consumer group has members and each of them gets
// every message.
func (g *Registry) Broadcasts(name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	return gr != nil && gr.model == protocol.Broadcasting
}

// Snapshot returns a consumer group, false when it has no members.
func (g *Registry) Snapshot(name string) (Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return Group{}, false
	}
	snap := Group{Name: name, Model: gr.model, From: gr.from, Passive: gr.passive}
	members := gr.members()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		at := members[id]
		reg := gr.registrations[at]
		snap.Members = append(snap.Members, Member{
			ClientID: id, Session: at, Remote: reg.remote, Language: reg.language, Version: reg.version, Model: reg.model,
			LastHeartbeat: reg.last, Subscriptions: slices.Clone(reg.subscriptions), Untold: !reg.told,
		})
	}
	for _, topic := range slices.Sorted(maps.Keys(gr.subscriptions)) {
		snap.Subscriptions = append(snap.Subscriptions, gr.subscriptions[topic])
	}
	return snap, true
}

// members maps each client id to the newest of its sessions.
func (gr *group) members() map[string]uint64 {
	members := make(map[string]uint64, len(gr.clients))
	for id, reg := range gr.registrations {
		if other, ok := members[reg.clientID]; !ok || gr.registrations[other].order < reg.order {
			members[reg.clientID] = id
		}
	}
	return members
}

// remove takes a session's registration away and reports whether it was the
// last of its client.
func (gr *group) remove(sessionID uint64) bool {
	clientID := gr.registrations[sessionID].clientID
	delete(gr.registrations, sessionID)
	if gr.clients[clientID]--; gr.clients[clientID] > 0 {
		return false
	}
	delete(gr.clients, clientID)
	return true
}

// peers is everybody to notify, in the order of their sessions.
func (gr *group) peers() []protocol.Peer {
	if gr.model == protocol.Broadcasting {
		return nil
	}
	regs := slices.Collect(maps.Values(gr.registrations))
	slices.SortFunc(regs, func(a, b *registration) int { return cmp.Compare(a.order, b.order) })
	peers := make([]protocol.Peer, 0, len(regs))
	for _, reg := range regs {
		if reg.peer != nil {
			peers = append(peers, reg.peer)
		}
	}
	return peers
}
