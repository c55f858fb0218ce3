package groups

import "github.com/pocketmq/pocketmq/protocol"

// IsMember reports whether a session has registered in a consumer group.
func (g *Registry) IsMember(name string, sessionID uint64) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	return gr != nil && gr.registrations[sessionID] != nil
}

// Peer is the way back to a member of a consumer group, by its newest session;
// false when it has none. Java: ConsumerManager.findChannel.
func (g *Registry) Peer(name, clientID string) (protocol.Peer, bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return nil, false
	}
	at, ok := gr.members()[clientID]
	if !ok {
		return nil, false
	}
	peer := gr.registrations[at].peer
	return peer, peer != nil
}

// Peers maps the members of a consumer group to the way back to each, by its
// newest session.
func (g *Registry) Peers(name string) map[string]protocol.Peer {
	g.mu.RLock()
	defer g.mu.RUnlock()
	gr := g.consumers[name]
	if gr == nil {
		return nil
	}
	peers := make(map[string]protocol.Peer, len(gr.clients))
	for id, at := range gr.members() {
		if peer := gr.registrations[at].peer; peer != nil {
			peers[id] = peer
		}
	}
	return peers
}
