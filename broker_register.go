package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/protocol"
)

// registerTimeout bounds a registration with one name server. A silent name
// server delays a topic's creation by this much; then it is in back-off.
const registerTimeout = 500 * time.Millisecond

// registrar keeps a broker registered with every name server. Name servers
// know nothing of each other: each gets the whole topic table, again and again,
// and in between, when topics have changed, those. Java: BrokerOuterAPI.
type registrar struct {
	r *brokerRun

	turn   chan struct{} // 1 slot: registrations go out one after the other, so a newer table is never overtaken
	links  []*nameServerLink
	closed bool  // no sessions are opened any more; guarded by turn
	known  int64 // counter of the newest table that every name server has; guarded by turn

	master atomic.Pointer[masterAt] // of a slave: its master, as the name servers know it; nil when none does
}

// masterAt says where the master of a group serves its clients and its slaves.
type masterAt struct{ addr, ha string }

// nameServerLink is guarded by registrar.turn.
type nameServerLink struct {
	addr    string
	conn    protocol.NameServerConn // nil: dial first
	backoff client.Backoff          // before it is dialled again

	// has is the counter of the newest table that it has acknowledged, hasNothing when
	// that is not certain: then it gets all of it. A registration with what has
	// changed only leaves other topics as they are there, also those whose write
	// permission was wiped.
	has     int64
	ordered map[string]string // what its last answer called ordered topics
	master  masterAt          // where its last answer said the master of the group is
}

// hasNothing is nameServerLink.has of a name server that may have nothing.
const hasNothing = -1

func newLink(addr string) *nameServerLink { return &nameServerLink{addr: addr, has: hasNothing} }

func newRegistrar(r *brokerRun) *registrar {
	g := &registrar{r: r, turn: make(chan struct{}, 1)}
	for _, addr := range r.cfg.NameServers {
		g.links = append(g.links, newLink(addr))
	}
	return g
}

func (g *registrar) lock(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *registrar) unlock() { <-g.turn }

// add makes addr one of the broker's name servers and registers there.
func (g *registrar) add(ctx context.Context, addr string) error {
	if err := g.lock(ctx); err != nil {
		return err
	}
	defer g.unlock()
	for _, l := range g.links {
		if l.addr == addr {
			return nil
		}
	}
	l := newLink(addr)
	g.links = append(g.links, l)
	return g.send(ctx, []*nameServerLink{l}, registerTimeout)
}

// remove ends the session with addr for good.
func (g *registrar) remove(addr string) {
	g.turn <- struct{}{} // a registration that runs is bounded by registerTimeout
	defer g.unlock()
	g.links = slices.DeleteFunc(g.links, func(l *nameServerLink) bool {
		if l.addr == addr && l.conn != nil {
			_ = l.conn.Close() // nothing to do about a session that ends badly
		}
		return l.addr == addr
	})
}

// forget makes the next registrations carry all topics: their versions were counted by
// another broker.
func (g *registrar) forget(ctx context.Context) {
	if g.lock(ctx) != nil {
		return
	}
	defer g.unlock()
	g.known = -1
	for _, l := range g.links {
		l.has = hasNothing
	}
}

// register sends the topic table to every name server, each within timeout.
// The error joins those that failed.
func (g *registrar) register(ctx context.Context, timeout time.Duration) error {
	if err := g.lock(ctx); err != nil {
		return err
	}
	defer g.unlock()
	return g.registerLocked(ctx, timeout)
}

// announce is register for a change of the topic table that has just been made.
// Of many at the same time the first announces them all.
func (g *registrar) announce(ctx context.Context, timeout time.Duration) error {
	if err := g.lock(ctx); err != nil {
		return err
	}
	defer g.unlock()
	if _, version := g.r.topics.Snapshot(); version.Counter <= g.known {
		return nil
	}
	return g.registerLocked(ctx, timeout)
}

func (g *registrar) registerLocked(ctx context.Context, timeout time.Duration) error {
	if g.r.draining.Load() {
		return nil // it has said goodbye
	}
	if g.r.standing.Load().id < 0 {
		return nil // it has never had a role: nobody is to ask it anything
	}
	_, version := g.r.topics.Snapshot()
	err := g.send(ctx, g.links, timeout)
	if err == nil {
		g.known = version.Counter
	}
	return err
}

// send registers with the given name servers and notes what they say about
// ordered topics. That changes the topic table, but no route. The caller holds
// turn.
func (g *registrar) send(ctx context.Context, links []*nameServerLink, timeout time.Duration) error {
	err := g.each(ctx, links, timeout, g.registerAt)
	for _, l := range links {
		if g.r.standing.Load().role != RoleMaster {
			break // it copies the master's topics, marks included
		}
		marked, merr := g.r.topics.MarkOrdered(time.Now(), maps.Keys(l.ordered))
		switch {
		case merr != nil:
			g.r.log.Warn("ordered topics not noted", "err", merr)
		case len(marked) > 0:
			g.r.log.Info("topics are ordered", "topics", marked, "by", l.addr)
		}
		l.ordered = nil
	}
	g.noteMaster()
	return err
}

// noteMaster notes where the master is. The caller holds turn.
func (g *registrar) noteMaster() {
	for _, l := range g.links {
		if l.conn != nil && l.master.ha != "" {
			at := l.master
			g.master.Store(&at)
			return
		}
	}
	g.master.Store(nil)
}

// unregister says goodbye to every name server that can be reached.
func (g *registrar) unregister(ctx context.Context) {
	if g.lock(ctx) != nil {
		return
	}
	defer g.unlock()
	err := g.each(ctx, g.links, registerTimeout, func(ctx context.Context, l *nameServerLink) error {
		_, err := l.conn.UnregisterBroker(ctx, &protocol.UnregisterBrokerRequest{
			Cluster: g.r.cfg.Cluster, BrokerName: g.r.cfg.Name, BrokerID: g.r.standing.Load().id, Addr: g.r.addr.String(),
		})
		return err
	})
	if err != nil {
		g.r.log.Warn("not unregistered everywhere", "err", err)
	}
}

// registerAt sends what has changed since the table that the name server has.
// When nothing has, or what it has is not certain, that is all of it: it may
// have lost some.
func (g *registrar) registerAt(ctx context.Context, l *nameServerLink) error {
	topics, version := g.r.topics.ChangedSince(l.has)
	if version.Counter <= l.has {
		topics, version = g.r.topics.Snapshot()
	}
	l.has = hasNothing
	resp, err := l.conn.RegisterBroker(ctx, &protocol.RegisterBrokerRequest{
		Cluster: g.r.cfg.Cluster, BrokerName: g.r.cfg.Name, BrokerID: g.r.standing.Load().id, Addr: g.r.addr.String(), HAAddr: g.r.haAddr(),
		HeartbeatTimeout: g.r.cfg.Timings.BrokerExpire, Version: version, Topics: topics,
	})
	if err != nil {
		return err
	}
	l.has, l.ordered, l.master = version.Counter, resp.OrderTopics, masterAt{resp.MasterAddr, resp.HAAddr}
	return nil
}

// each calls f for the links at the same time. The caller holds turn.
func (g *registrar) each(ctx context.Context, links []*nameServerLink, timeout time.Duration, f func(context.Context, *nameServerLink) error) error {
	return each(links, func(l *nameServerLink) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := g.call(ctx, l, f); err != nil {
			return fmt.Errorf("name server %s: %w", l.addr, err)
		}
		return nil
	})
}

func (g *registrar) call(ctx context.Context, l *nameServerLink, f func(context.Context, *nameServerLink) error) error {
	for {
		fresh := l.conn == nil
		if fresh && g.closed {
			return fmt.Errorf("%s: %w", g.r.life.what, ErrClosed)
		}
		if time.Now().Before(l.backoff.Until) {
			return fmt.Errorf("not tried again before %s: %w", l.backoff.Until.Format(time.TimeOnly), ErrUnreachable)
		}
		if fresh {
			conn, err := g.r.cfg.Transport.DialNameServer(ctx, protocol.Dial{Node: g.r.node, Addr: l.addr})
			if err != nil {
				if !errors.Is(ctx.Err(), context.Canceled) { // a duty that ends says nothing of the name server
					l.backoff.Failed(time.Now())
				}
				return err
			}
			l.conn, l.has = conn, hasNothing
		}
		err := f(ctx, l)
		var answered *protocol.Error
		if err == nil || errors.As(err, &answered) {
			l.backoff = client.Backoff{}
			return err
		}
		if ctx.Err() != nil {
			// Slow, or no longer waited for: to end the session would take the
			// broker's topics out of every route.
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				l.backoff.Failed(time.Now())
			}
			return err
		}
		_ = l.conn.Close() // the session is dead: what its Close says does not matter
		l.conn = nil
		if fresh || !errors.Is(err, ErrUnreachable) {
			l.backoff.Failed(time.Now())
			return err
		}
		// The old session had died unnoticed and nothing was sent: a restarted
		// name server gets one new session at once.
	}
}

// close ends the sessions. A name server then drops the broker at once.
func (g *registrar) close() {
	g.turn <- struct{}{} // a registration that runs is bounded by registerTimeout
	defer g.unlock()
	g.closed = true
	for _, l := range g.links {
		if l.conn != nil {
			_ = l.conn.Close() // nothing to do about a session that ends badly
			l.conn = nil
		}
	}
}
