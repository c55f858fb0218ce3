package memnet

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// ended is the bit of session.state that says that the server's side is over.
// The bits below count the server code that runs for the session.
const ended = int64(1) << 62

// session is one connection. Its two sides end separately, since the news may
// not get through: done and dead are what the caller knows, state what the
// server knows.
type session struct {
	net    *Network
	id     uint64 // in the order of dialling
	client end
	server end
	born   netip.AddrPort
	peer   protocol.Peer // may be nil
	stream *stream       // nil but for a stream

	state atomic.Int64 // handlers running, and ended
	dead  atomic.Bool  // the caller's side is over; set before done is closed
	link  atomic.Pointer[link]

	done    chan struct{} // closed with dead
	drained chan struct{} // closed when the server's side is over and its last handler has returned

	// Guarded by Network.mu.
	lis                    *listener // nil until the dial has arrived
	clientGone, serverGone bool      // this side has hung up, whether or not the other knows
	reset                  bool      // of a stream: what is under way is lost
	forgotten              bool      // both sides are over: out of Network.sessions

	toServer, toClient mailbox // what a rule delays: oneway requests, notices

	// mu guards what follows. It is never held while other code runs.
	mu          sync.Mutex
	closeServer func() error       // ends the server's side; nil until Connect has returned, and once it is called
	waiting     map[*callCtx]*wait // calls whose handler has asked to be told of their end
}

// ending is what hanging up means for each side of a session.
type ending struct {
	s              *session
	client, server bool
	reset          bool
}

// hangUp ends the given sides of s; the other side follows unless the way
// there is silent.
func (n *Network) hangUp(s *session, client, server bool) {
	n.mu.Lock()
	s.clientGone = s.clientGone || client
	s.serverGone = s.serverGone || server
	e := n.verdictLocked(s)
	n.mu.Unlock()
	finish([]ending{e})
}

// verdictLocked tells which sides of s know by now that it is over.
func (n *Network) verdictLocked(s *session) ending {
	l := n.linkLocked(s)
	e := ending{
		s:      s,
		client: s.clientGone || s.serverGone && !l.silentBack,
		server: s.serverGone || s.clientGone && !l.silentTo,
		reset:  s.reset,
	}
	if e.client && e.server && !s.forgotten {
		s.forgotten = true
		delete(n.sessions, s)
		s.client.node.callers--
		n.book.forget(s.client.node)
	}
	return e
}

// finish carries out endings, outside of Network.mu and in the order in which
// the sessions were dialled, so that runs repeat. The callers' sides come
// first: a call that the server's end interrupts finds its session dead, and a
// server that goes away with all its sessions cannot send notices about one to
// the others.
func finish(ends []ending) {
	slices.SortFunc(ends, func(a, b ending) int { return cmp.Compare(a.s.id, b.s.id) })
	for _, e := range ends {
		if e.s.stream != nil {
			e.s.stream.move()
		}
		if e.client {
			e.s.endClient(e.reset)
		}
	}
	for _, e := range ends {
		if e.server {
			e.s.endServer(e.reset)
		}
	}
}

func (s *session) endClient(reset bool) {
	if s.dead.Swap(true) {
		return
	}
	close(s.done)
	if s.stream != nil {
		s.stream.client.end(reset)
	}
	s.toServer.close()
	s.toClient.close()
	s.cancelCalls()
}

func (s *session) endServer(reset bool) {
	s.state.Add(1) // closing the server's side counts as running server code
	defer s.exit()
	if s.state.Or(ended)&ended != 0 {
		return
	}
	if s.stream != nil {
		s.stream.server.end(reset)
	}
	s.toServer.close()
	s.toClient.close()
	s.cancelCalls()
	s.mu.Lock()
	closeServer := s.closeServer
	s.closeServer = nil
	s.mu.Unlock()
	if closeServer != nil {
		_ = closeServer() // The session is over: nobody is left who could be told.
	}
}

// attach says how to end the server's side. It is false when that is over
// already; the caller then ends it.
func (s *session) attach(closeServer func() error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over() {
		return false
	}
	s.closeServer = closeServer
	return true
}

// enter counts server code that is about to run. It is false when the
// server's side is over.
func (s *session) enter() bool {
	if s.state.Add(1)&ended != 0 {
		s.exit()
		return false
	}
	return true
}

// exit undoes enter. The last one after the end tells who waits for that.
func (s *session) exit() {
	if s.state.Add(-1) == ended {
		s.drain()
	}
}

func (s *session) drain() {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	select {
	case <-s.drained: // a late enter has come and gone
	default:
		close(s.drained)
		if s.lis != nil {
			delete(s.lis.sessions, s)
		}
	}
}

// over tells whether the server's side is over.
func (s *session) over() bool { return s.state.Load()&ended != 0 }

// rules returns the link as the present rules have it.
func (s *session) rules() *link {
	if l := s.link.Load(); l != nil && l.set == s.net.rules.Load() {
		return l
	}
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	return s.net.linkLocked(s)
}

// travel waits until something has crossed the link, d after it left. It
// returns ctx's error when that ends first, the only end for what is lost in
// silence, and errDead when the caller's side ends.
func (s *session) travel(ctx context.Context, silent bool, d time.Duration) error {
	switch {
	case silent:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return errDead
		}
	case d == 0:
		return nil
	}
	due := time.Now().Add(d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.done:
		return errDead
	case <-ctx.Done():
		if time.Now().Before(due) {
			return ctx.Err()
		}
		// Arrived in the very instant in which ctx ended: it counts.
	}
	return nil
}

// dialError turns an error of travel into one of a dial.
func (s *session) dialError(err error) error {
	if err == errDead {
		return errRefused(&s.server)
	}
	return err
}
