package groups

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
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
	kind          kind                    // of Subscriptions; the zero one is not known
}

// Registry is the groups of one broker. Safe for concurrent use; no method
// blocks. Slices in results belong to the caller, except Member.Subscriptions and
// those within a protocol.Subscription, which are for reading. Known, Broadcasts,
// Subscription, Topics and Subscribers, of which the first three are asked with
// every pull, take no lock.
type Registry struct {
	views  sync.Map // group -> *view; written under mu
	limits limits

	mu        sync.RWMutex // guards everything below; a leaf, no callback runs under it
	consumers map[string]*group
	sessions  map[uint64]*session
	order     uint64 // of the last session that came in
	charged   int    // bytes of all sessions beyond limits.own of each
}

// session is a connection that has sent a heartbeat.
type session struct {
	order uint64 // later ones are newer
	peer  protocol.Peer
	last  time.Time
	bytes int // of what it is registered in
	// What it is registered in; with both empty the session is forgotten.
	consumers map[string]struct{}
	producers map[string]string // group -> client id
}

// group is a consumer group. It has at least one registration.
// Java: ConsumerGroupInfo.
type group struct {
	from          protocol.ConsumeFrom
	passive       bool
	registrations map[uint64]*registration // by session
	clients       map[string]int           // client id -> its registrations, at least 1
	told          int                      // bytes of the subscriptions of all registrations
	view          *view                    // never nil
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
	subscriptions []protocol.Subscription // sorted by topic; never changed
	kind          kind                    // of those
	bytes         int                     // of those
	told          bool                    // the client has told its subscriptions
	fingerprint   int32                   // of the last heartbeat
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{
		limits:    defaultLimits(),
		consumers: make(map[string]*group),
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
// skipped is how many groups have not been registered because the session, or all
// sessions together, would hold too much; a client that was a member before is one
// with the subscriptions that it had.
//
// Java: ClientManageProcessor.heartBeat, ConsumerGroupInfo.updateSubscription:
// of the broker's own view of a group's subscriptions the last heartbeat
// decides which topics there are, and the largest version what a topic's
// filter is. Differs: there a fingerprint is the group's, so that members which
// differ in something else, and those that a restarted broker does not know, are
// never told the right thing; and what a client may register is not bounded.
func (g *Registry) Heartbeat(now time.Time, sessionID uint64, peer protocol.Peer, remote netip.AddrPort, r *protocol.HeartbeatRequest) (changes []Change, wanted bool, skipped int) {
	told := make([]told, len(r.Consumers)) // not under the lock
	if !r.WithoutSubscriptions {
		for i := range r.Consumers {
			told[i] = g.limits.tell(&r.Consumers[i])
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[sessionID]
	if s != nil {
		s.peer, s.last = peer, now
	} else if len(r.Consumers)+len(r.Producers) > 0 {
		s = &session{order: g.order + 1, peer: peer, last: now, consumers: make(map[string]struct{}), producers: make(map[string]string)}
	} else {
		return nil, false, 0
	}
	clientID := strings.Clone(r.ClientID)
	for _, name := range r.Producers {
		old, known := s.producers[name]
		more := producerBytes(name, clientID)
		if known {
			more -= producerBytes(name, old)
		}
		if !g.chargeLocked(s, more) {
			skipped++
			continue
		}
		if !known {
			name = strings.Clone(name)
		}
		s.producers[name] = clientID
	}
	for i := range r.Consumers {
		c, what := g.joinLocked(now, sessionID, s, clientID, remote, r, &r.Consumers[i], &told[i])
		if what&joinChanged != 0 {
			changes = append(changes, c)
		}
		wanted = wanted || what&joinWanted != 0
		if what&joinSkipped != 0 {
			skipped++
		}
	}
	if g.sessions[sessionID] == nil && len(s.consumers)+len(s.producers) > 0 {
		g.order++
		g.sessions[sessionID] = s
	}
	return changes, wanted, skipped
}

// joined is what has become of a group in a heartbeat.
type joined byte

const (
	joinChanged joined = 1 << iota // there is a change to announce
	joinWanted                     // its subscriptions are asked for
	joinSkipped                    // there was no room
)

func (g *Registry) joinLocked(now time.Time, sessionID uint64, s *session, clientID string, remote netip.AddrPort, r *protocol.HeartbeatRequest, c *protocol.ConsumerData, t *told) (change Change, what joined) {
	gr := g.consumers[c.Group]
	var reg *registration
	if gr != nil {
		reg = gr.registrations[sessionID]
	}
	other := reg != nil && reg.clientID != clientID // the session speaks for another client now
	more := memberBytes(c.Group, clientID)
	if reg != nil {
		more -= memberBytes(c.Group, reg.clientID)
	}
	switch {
	case !r.WithoutSubscriptions:
		more += 2 * t.bytes
		if reg != nil {
			more -= 2 * reg.bytes
		}
	case other:
		more -= 2 * reg.bytes
	}
	if t.tooMuch || !g.chargeLocked(s, more) {
		if reg != nil && !other {
			reg.last = now
		}
		return Change{}, joinSkipped
	}
	name := strings.Clone(c.Group)
	if gr == nil {
		gr = &group{registrations: make(map[uint64]*registration), clients: make(map[string]int), view: &view{model: c.Model}}
		g.consumers[name] = gr
		g.views.Store(name, gr.view)
	}
	change.Group = name
	gr.from, gr.passive = c.From, c.Passive
	if gr.view.model != c.Model {
		g.showLocked(name, gr, gr.view.as(c.Model))
	}
	if other {
		if gr.remove(sessionID) {
			change.Left, change.Reason = []string{reg.clientID}, Unregistered
		}
		reg = nil
	}
	changed := reg == nil
	if reg == nil {
		if gr.clients[clientID] > 0 {
			change.Replaced = []string{clientID}
		} else {
			change.Joined = []string{clientID}
		}
		reg = &registration{clientID: clientID, order: s.order}
		gr.registrations[sessionID] = reg
		gr.clients[clientID]++
		s.consumers[name] = struct{}{}
	}
	known := len(change.Joined)+len(change.Replaced) == 0
	different := known && reg.model != c.Model
	reg.peer, reg.remote, reg.language, reg.version, reg.model, reg.last = s.peer, remote, r.Language, r.Version, c.Model, now
	if reg.fingerprint != 0 && reg.fingerprint != r.Fingerprint {
		what |= joinWanted
	}
	reg.fingerprint = r.Fingerprint
	if r.WithoutSubscriptions {
		if !reg.told {
			what |= joinWanted
		}
	} else {
		if !reg.told || !slices.EqualFunc(reg.subscriptions, t.subscriptions, sameSubscription) {
			different = different || known && !(reg.told && slices.EqualFunc(reg.subscriptions, t.subscriptions, sameFilter))
			gr.told += t.bytes - reg.bytes
			reg.subscriptions, reg.kind, reg.bytes, reg.told = t.subscriptions, t.kind, t.bytes, true
		}
		next, moved := gr.view.subscribe(reg.subscriptions)
		g.showLocked(name, gr, next)
		changed = changed || moved
	}
	g.trimLocked(name, gr)
	if changed {
		change.Notify = gr.peers()
	}
	if different {
		change.Resubscribed = []string{clientID}
	}
	if changed || different {
		what |= joinChanged
	}
	return change, what
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
	g.leaveProducerLocked(s, r.ProducerGroup)
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
		g.leaveProducerLocked(s, name)
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
				g.leaveProducerLocked(s, name)
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
	g.chargeLocked(s, -memberBytes(name, reg.clientID)-2*reg.bytes)
	if len(gr.registrations) == 0 {
		delete(g.consumers, name)
		g.views.Delete(name)
	} else {
		g.trimLocked(name, gr)
	}
	return gr, reg.clientID, left
}

func (g *Registry) leaveProducerLocked(s *session, name string) {
	if clientID, ok := s.producers[name]; ok {
		delete(s.producers, name)
		g.chargeLocked(s, -producerBytes(name, clientID))
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

// Producers lists the client ids of a producer group, each once, sorted. It looks at
// every session.
func (g *Registry) Producers(name string) []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var ids []string
	for _, s := range g.sessions {
		if id, ok := s.producers[name]; ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Snapshot returns a consumer group, false when it has no members.
func (g *Registry) Snapshot(name string) (Group, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return Group{}, false
	}
	snap := Group{Name: name, Model: gr.view.model, From: gr.from, Passive: gr.passive}
	members := gr.members()
	for _, id := range slices.Sorted(maps.Keys(members)) {
		at := members[id]
		reg := gr.registrations[at]
		snap.Members = append(snap.Members, Member{
			ClientID: id, Session: at, Remote: reg.remote, Language: reg.language, Version: reg.version, Model: reg.model,
			LastHeartbeat: reg.last, Subscriptions: reg.subscriptions, Untold: !reg.told, kind: reg.kind,
		})
	}
	view := gr.view
	for _, topic := range slices.Sorted(maps.Keys(view.subscriptions)) {
		snap.Subscriptions = append(snap.Subscriptions, view.subscriptions[topic])
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
	reg := gr.registrations[sessionID]
	clientID := reg.clientID
	gr.told -= reg.bytes
	delete(gr.registrations, sessionID)
	if gr.clients[clientID]--; gr.clients[clientID] > 0 {
		return false
	}
	delete(gr.clients, clientID)
	return true
}

// peers is everybody to notify, in the order of their sessions.
func (gr *group) peers() []protocol.Peer {
	if gr.view.model == protocol.Broadcasting {
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
