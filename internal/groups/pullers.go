package groups

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// Pullers knows which session pulls which queue for a group. In a group that
// shares messages that is the one whose pull came last, in a broadcasting one
// everybody. A session that has closed pulls nothing; of one that pulls more than
// maxPlaces the rest is not known. Safe for concurrent use; no method blocks.
// RocketMQ's brokers do not know it.
type Pullers struct {
	mu       sync.RWMutex // guards what follows; a leaf
	places   map[pulled]map[uint64]struct{}
	sessions map[uint64]map[pulled]struct{} // the same the other way round
}

// maxPlaces bounds the queues of a session that are known, all its groups together.
// A client pulls as many as it has queues, tens or hundreds; a stranger may pull any.
const maxPlaces = 4096

// pulled is a queue of this broker, for a group.
type pulled struct {
	group, topic string
	queue        int
}

// Pulled names a queue.
type Pulled struct {
	Topic string
	Queue int
}

// NewPullers returns an empty Pullers.
func NewPullers() *Pullers {
	return &Pullers{places: make(map[pulled]map[uint64]struct{}), sessions: make(map[uint64]map[pulled]struct{})}
}

// Note takes down a pull, and reports whether that is news. It does not allocate
// when it is not.
func (p *Pullers) Note(group, topic string, queue int, session uint64, broadcasting bool) bool {
	at := pulled{group, topic, queue}
	p.mu.RLock()
	sessions := p.places[at]
	_, known := sessions[session]
	known = known && (broadcasting || len(sessions) == 1)
	p.mu.RUnlock()
	if known {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known = p.places[at][session]; !known && len(p.sessions[session]) >= maxPlaces {
		return false
	}
	at.group, at.topic = strings.Clone(group), strings.Clone(topic) // they may be parts of the request
	if !broadcasting {
		for other := range p.places[at] {
			p.removeLocked(at, other)
		}
	}
	if p.places[at] == nil {
		p.places[at] = make(map[uint64]struct{}, 1)
	}
	if p.sessions[session] == nil {
		p.sessions[session] = make(map[pulled]struct{})
	}
	p.places[at][session] = struct{}{}
	p.sessions[session][at] = struct{}{}
	return true
}

// Forget takes back what Note took down: the client has given up its pull. It
// reports whether that is news.
func (p *Pullers) Forget(group, topic string, queue int, session uint64) bool {
	at := pulled{group, topic, queue}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removeLocked(at, session)
}

func (p *Pullers) removeLocked(at pulled, session uint64) bool {
	sessions := p.places[at]
	if _, ok := sessions[session]; !ok {
		return false
	}
	delete(sessions, session)
	if len(sessions) == 0 {
		delete(p.places, at)
	}
	delete(p.sessions[session], at)
	if len(p.sessions[session]) == 0 {
		delete(p.sessions, session)
	}
	return true
}

// Closed forgets a session.
func (p *Pullers) Closed(session uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.sessions[session] {
		p.removeLocked(at, session)
	}
}

// DeleteTopic forgets who pulled a topic.
func (p *Pullers) DeleteTopic(topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, sessions := range p.places {
		if at.topic == topic {
			for s := range sessions {
				p.removeLocked(at, s)
			}
		}
	}
}

// Of lists the queues that each session pulls for a group, sorted.
func (p *Pullers) Of(group string) map[uint64][]Pulled {
	p.mu.RLock()
	defer p.mu.RUnlock()
	list := make(map[uint64][]Pulled)
	for at, sessions := range p.places {
		if at.group != group {
			continue
		}
		for s := range sessions {
			list[s] = append(list[s], Pulled{at.topic, at.queue})
		}
	}
	for _, l := range list {
		slices.SortFunc(l, func(a, b Pulled) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Queue, b.Queue)) })
	}
	return list
}
