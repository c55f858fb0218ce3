package client

import "time"

// Suspect tells the loop that routes may have changed: a broker could not be reached,
// or is not the master any more. It asks within RouteRetry, once for all who suspect
// meanwhile. It does not block.
//
// Differs: Java's clients wait for their next regular refresh, up to 30 s.
func (c *Client) Suspect() {
	select {
	case c.suspect <- struct{}{}:
	default:
	}
}

// routeLoop asks for the routes in use every RouteRefresh, and sooner when somebody
// suspects that they have changed, or while a group has no master: one that elects has
// another soon. When that brings nothing the next name server is asked from then on: one
// that brokers cannot reach answers, but does not know. It runs until Close.
func (c *Client) routeLoop() {
	ticker := time.NewTicker(c.cfg.RouteRefresh)
	defer ticker.Stop()
	early := time.NewTimer(c.cfg.RouteRefresh)
	defer early.Stop()
	early.Stop()
	var last, missed time.Time // the last refresh; the first after which a master was missing, zero: none is
	for {
		suspected := true
		select {
		case <-c.life.Done():
			return
		case <-c.suspect:
			if wait := c.cfg.RouteRetry - time.Since(last); !last.IsZero() && wait > 0 {
				early.Reset(wait)
				continue
			}
		case <-early.C:
		case <-ticker.C:
			suspected = false
		}
		changed := c.refreshRoutes(c.life)
		last = time.Now()
		early.Stop()
		misses := c.missesMaster()
		if misses || suspected && !changed {
			c.names.turn() // it may be the name server that brokers do not reach
		}
		if !misses {
			missed = time.Time{}
			continue
		}
		if missed.IsZero() {
			missed = last
		}
		// Rarer and rarer, for one that does not come.
		if wait := max(c.cfg.RouteRetry, last.Sub(missed)/4); wait < c.cfg.RouteRefresh {
			early.Reset(wait)
		}
	}
}

// missesMaster tells whether a known route does.
func (c *Client) missesMaster() bool {
	for _, e := range c.routes.all() {
		if e.route.MissesMaster() {
			return true
		}
	}
	return false
}
