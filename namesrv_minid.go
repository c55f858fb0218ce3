package pocketmq

import (
	"context"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/routetable"
	"github.com/pocketmq/pocketmq/protocol"
)

// minIDTimeout bounds a notice. Java: 300 ms in RouteInfoManager.notifyMinBrokerIdChanged.
const minIDTimeout = 300 * time.Millisecond

// minIDNotices tells the members of broker groups when the smallest id among them
// changes. One goroutine does it, for as long as there is something to tell: Close joins
// it.
type minIDNotices struct {
	mu      sync.Mutex                   // guards what follows
	waiting map[string]*routetable.MinID // by group: what came last counts
	running bool
	stopped bool // nobody is told any more
}

// stop makes what is noted from here on count for nothing. Who is being told ends with
// the context and the loop of the run.
func (n *minIDNotices) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped = true
}

// minIDChanged notes what is to be told. It does not block.
func (r *nameServerRun) minIDChanged(m *routetable.MinID) {
	if m == nil || !r.cfg.NotifyMinBrokerID {
		return
	}
	n := &r.minIDs
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		return
	}
	if n.waiting == nil {
		n.waiting = make(map[string]*routetable.MinID)
	}
	n.waiting[m.BrokerName] = m
	if !n.running {
		n.running = true
		r.loop.Go(r.tellMinIDs)
	}
}

// tellMinIDs tells all that is noted. Whoever cannot be reached learns it with its next
// registration.
func (r *nameServerRun) tellMinIDs() {
	n := &r.minIDs
	for {
		n.mu.Lock()
		list := n.waiting
		n.waiting = nil
		n.running = len(list) > 0
		n.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, m := range list {
			_ = r.gate.pass(r.ctx) // the calls look at ctx
			q := &protocol.NotifyMinBrokerIDRequest{BrokerName: m.BrokerName, MinBrokerID: m.ID, MinBrokerAddr: m.Addr, OfflineAddr: m.Offline, HAAddr: m.HAAddr, Oneway: true}
			err := each(m.Tell, func(addr string) error {
				ctx, cancel := context.WithTimeout(r.ctx, minIDTimeout)
				defer cancel()
				conn, err := r.cfg.Transport.DialBroker(ctx, protocol.Dial{Node: r.cfg.Name, Addr: addr})
				if err != nil {
					return err
				}
				_, err = conn.NotifyMinBrokerID(ctx, q)
				_ = conn.Close() // what was said oneway before arrives
				return err
			})
			if err != nil {
				r.log.Debug("a broker was not told of its group's smallest id", "broker", m.BrokerName, "id", m.ID, "err", err)
			}
		}
	}
}
