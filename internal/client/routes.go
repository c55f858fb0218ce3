package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/pocketmq/pocketmq/protocol"
)

// cachedRoute is a route and which lookup it came from: of two that overlap
// the one begun later counts.
type cachedRoute struct {
	route *Route
	seq   atomic.Uint64 // only grows
}

func (e *cachedRoute) advance(seq uint64) {
	for {
		if old := e.seq.Load(); old >= seq || e.seq.CompareAndSwap(old, seq) {
			return
		}
	}
}

// Route returns the route of topic: the cached one, otherwise that of a
// lookup that concurrent callers share. The loop keeps it fresh from then on.
// ctx bounds only this caller's wait.
//
// A lookup asks the chosen name server, then each other once, on an error and
// also when one does not know the topic. If every name server that could be
// asked says so, the error matches protocol.ErrNoRoute; if none answers,
// protocol.ErrUnreachable. One that failed is not asked again for 100 ms,
// doubling to 5 s; when that goes for all, Route waits for the first of them if
// ctx leaves the time.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	if r := c.Cached(topic); r != nil {
		return r, nil
	}
	route, err := c.lookups.do(c, ctx, topic, 0, func(ctx context.Context) (*Route, error) {
		if r := c.Cached(topic); r != nil {
			return r, nil // by a lookup that ended just before
		}
		route, _, err := c.lookup(ctx, topic, lookupHow{patient: true, suggest: true})
		return route, err
	})
	if err != nil && err == ctx.Err() {
		return nil, unreachable(err, "waiting for the route of topic %q: %v", topic, err)
	}
	return route, err
}

// Refresh asks for the route of topic now, on the caller's goroutine, and
// tells whether it has changed; a first route has. If so, RoutesChanged is
// called before Refresh returns. On an error, that of Route, the cached route
// stays. It does not wait for name servers that are in back-off.
// Java: updateTopicRouteInfoFromNameServer.
func (c *Client) Refresh(ctx context.Context, topic string) (route *Route, changed bool, err error) {
	if c.life.Err() != nil {
		return nil, false, c.errClosed()
	}
	route, changed, err = c.lookup(ctx, topic, lookupHow{suggest: true})
	if changed && c.cfg.RoutesChanged != nil {
		c.cfg.RoutesChanged([]string{topic})
	}
	return route, changed, err
}

// Renew asks for the route of topic now because the known one seems to be wrong, once
// for all who call it at the same time, and tells whether it has changed. When it has
// not, or a broker group has no master, the next name server is asked from then on, as
// by the loop: one that brokers cannot reach answers, but does not know. RoutesChanged
// is called as by Refresh. The error is that of Route, and the cached route stays; name
// servers in back-off are not waited for. ctx bounds only this caller's wait.
func (c *Client) Renew(ctx context.Context, topic string) (changed bool, err error) {
	return c.renewals.do(c, ctx, topic, 0, func(ctx context.Context) (bool, error) {
		route, changed, err := c.lookup(ctx, topic, lookupHow{})
		if err == nil && (!changed || route.MissesMaster()) {
			c.names.turn()
		}
		if changed && c.cfg.RoutesChanged != nil {
			c.cfg.RoutesChanged([]string{topic})
		}
		return changed, err
	})
}

// Cached returns the route of topic if one is known, otherwise nil. It does
// not block.
func (c *Client) Cached(topic string) *Route {
	if e, ok := c.routes.get(topic); ok {
		return e.route
	}
	return nil
}

// Watch makes the loop ask for topic although it may have no route yet.
func (c *Client) Watch(topic string) {
	c.watched.change(func(m map[string]struct{}) bool {
		_, was := m[topic]
		m[topic] = struct{}{}
		return !was
	})
}

// Unwatch undoes Watch and forgets the route of topic, so that the loop asks
// for it no more.
func (c *Client) Unwatch(topic string) {
	c.watched.remove(topic)
	c.routes.remove(topic)
}

// MasterAddr returns the address of the master of a broker group, as the
// latest route that mentions the group has it. It does not block.
func (c *Client) MasterAddr(brokerName string) (addr string, ok bool) {
	b, ok := c.addresses.get(brokerName)
	if !ok {
		return "", false
	}
	addr, ok = b.Addrs[protocol.MasterID]
	return addr, ok
}

// TopicOn returns a topic that a known route has on a broker group, the first by
// name; false when there is none. It does not block.
func (c *Client) TopicOn(brokerName string) (topic string, ok bool) {
	for name, e := range c.routes.all() {
		if ok && name >= topic {
			continue
		}
		if slices.ContainsFunc(e.route.Queues, func(q protocol.QueueData) bool { return q.BrokerName == brokerName }) {
			topic, ok = name, true
		}
	}
	return topic, ok
}

// MemberAddr returns the member of a broker group that has an id, else its master, else
// the slave with the lowest id. Java: MQClientInstance.findBrokerAddressInSubscribe.
func (c *Client) MemberAddr(brokerName string, want int64) (addr string, id int64, ok bool) {
	b, ok := c.addresses.get(brokerName)
	if !ok || len(b.Addrs) == 0 {
		return "", 0, false
	}
	if addr, ok := b.Addrs[want]; ok {
		return addr, want, true
	}
	id = slices.Min(slices.Collect(maps.Keys(b.Addrs)))
	return b.Addrs[id], id, true
}

// lookupHow tells what a lookup may do beside asking once: wait for a name
// server that is in back-off, and look for what an unknown topic may be a slip
// of.
type lookupHow struct{ patient, suggest bool }

// lookup asks the name servers for a route and keeps what they say.
func (c *Client) lookup(ctx context.Context, topic string, how lookupHow) (*Route, bool, error) {
	seq := c.lookupSeq.Add(1)
	answer, attempts, err := ask(ctx, c.names, how.patient, func(ctx context.Context, conn protocol.NameServerConn) (*protocol.GetRouteResponse, error) {
		return conn.GetRoute(ctx, &protocol.GetRouteRequest{Topic: topic})
	})
	switch {
	case err == errAllFailed:
		return nil, false, c.routeError(ctx, topic, attempts, how.suggest)
	case err != nil:
		return nil, false, err
	}
	route, err := newRoute(topic, answer.Route)
	if err != nil {
		return nil, false, err
	}
	route, changed := c.keepRoute(route, seq)
	if changed && route.MissesMaster() {
		c.Suspect()
	}
	return route, changed, nil
}

// keepRoute caches what lookup seq found, unless a later one has been faster.
// It returns the route that counts and whether this call has changed it.
func (c *Client) keepRoute(route *Route, seq uint64) (_ *Route, changed bool) {
	if old, ok := c.routes.get(route.Topic); ok && old.route.equal(route) {
		if old.seq.Load() < seq && !c.knowsAddresses(route) { // that of another topic was older, or wrong
			c.keepAddresses(route)
		}
		old.advance(seq)
		return old.route, false
	}
	c.routes.change(func(m map[string]*cachedRoute) bool {
		if old := m[route.Topic]; old != nil && (old.seq.Load() > seq || old.route.equal(route)) {
			old.advance(seq)
			route = old.route
			return false
		}
		c.keepAddresses(route) // first: whoever sees the route may ask for them
		next := &cachedRoute{route: route}
		next.seq.Store(seq)
		m[route.Topic] = next
		changed = true
		return true
	})
	return route, changed
}

// knowsAddresses tells whether the brokers of a route are where they are known to be.
func (c *Client) knowsAddresses(r *Route) bool {
	return !slices.ContainsFunc(r.Brokers, func(b protocol.BrokerData) bool {
		known, ok := c.addresses.get(b.BrokerName)
		return !ok || !sameBroker(known, b)
	})
}

// keepAddresses notes where the brokers of a route are.
func (c *Client) keepAddresses(r *Route) {
	c.addresses.change(func(m map[string]protocol.BrokerData) bool {
		for _, b := range r.Brokers {
			m[b.BrokerName] = b
		}
		return true
	})
}

// refreshRoutes asks for every topic that somebody uses, one after the other,
// tells of those that have changed, and returns whether there were any. It stops when
// no name server answers: for the others that would be the same.
func (c *Client) refreshRoutes(ctx context.Context) (changed bool) {
	topics := slices.Collect(maps.Keys(c.routes.all()))
	topics = slices.AppendSeq(topics, maps.Keys(c.watched.all()))
	slices.Sort(topics)
	var changes []string
	for _, topic := range slices.Compact(topics) {
		_, news, err := c.lookup(ctx, topic, lookupHow{})
		if news {
			changes = append(changes, topic)
		}
		switch {
		case ctx.Err() != nil:
			return len(changes) > 0
		case errors.Is(err, protocol.ErrNoRoute):
			c.cfg.Logger.Debug("route refresh failed, the known route stays", "topic", topic, "err", err)
		case err != nil:
			c.cfg.Logger.Warn("route refresh failed, the known route stays", "topic", topic, "err", err)
		}
		if errors.Is(err, protocol.ErrUnreachable) {
			break
		}
	}
	c.forgetBrokers()
	if len(changes) > 0 && c.cfg.RoutesChanged != nil {
		c.cfg.RoutesChanged(changes)
	}
	return len(changes) > 0
}

// forgetBrokers drops the addresses that no route mentions any more.
// Java: MQClientInstance.cleanOfflineBroker.
func (c *Client) forgetBrokers() {
	// As a change of the routes, so that none comes between.
	c.routes.change(func(routes map[string]*cachedRoute) bool {
		mentioned := make(map[string]bool)
		for _, e := range routes {
			for _, b := range e.route.Brokers {
				mentioned[b.BrokerName] = true
			}
		}
		c.addresses.change(func(m map[string]protocol.BrokerData) bool {
			before := len(m)
			maps.DeleteFunc(m, func(name string, _ protocol.BrokerData) bool { return !mentioned[name] })
			return len(m) != before
		})
		return false
	})
}

// routeError says why no name server gave a route.
func (c *Client) routeError(ctx context.Context, topic string, attempts []attempt, suggest bool) error {
	var unknown *protocol.Error // the first "not found"
	var at string
	for _, a := range attempts {
		var answer *protocol.Error
		if !errors.As(a.err, &answer) {
			continue
		}
		if answer.Code != protocol.TopicNotExist {
			return failure(attempts, "", fmt.Sprintf("route of topic %q not known", topic))
		}
		if unknown == nil {
			unknown, at = answer, a.addr
		}
	}
	if unknown == nil {
		return failure(attempts, fmt.Sprintf("no name server answered for the route of topic %q", topic), "")
	}
	create := "; create it with Admin.CreateTopic or ClusterConfig.Topics"
	if suggest {
		if similar := c.similarTopic(ctx, topic, at); similar != "" {
			create = fmt.Sprintf("; did you mean %q? Create it with Admin.CreateTopic or ClusterConfig.Topics", similar)
		}
	}
	return protocol.Tagged(fmt.Sprintf("no route for topic %q: %s%s", topic, describe(attempts), create), protocol.ErrNoRoute, unknown)
}

// similarTopic returns a topic that addr, a name server that has just
// answered, or the cache knows and that topic may be a slip of; "" if there is
// none.
func (c *Client) similarTopic(ctx context.Context, topic, addr string) string {
	known := slices.Collect(maps.Keys(c.routes.all()))
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if conn, ok := c.names.pool.held(addr); ok && ctx.Err() == nil {
		// Without an answer there is only less to suggest.
		if r, err := conn.GetAllTopics(ctx, &protocol.GetAllTopicsRequest{}); err == nil {
			known = append(known, r.Topics...)
		}
	}
	return similar(topic, known)
}
