package pocketmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Fault describes requests and what to do to them. All selectors that are not
// zero must match; a Fault without an action only counts. It acts in the
// handlers of a cluster's servers, so it is the same on every transport.
// Where several injected faults match a request, the first one injected acts
// and the others do not count it.
type Fault struct {
	Code  Code   // request code: protocol.CodeSendMessage ...; 0 = any
	Node  string // the server asked: "ns-0", "broker-a/0"
	From  string // the caller: a client id, or a broker's node name; official clients have none over TCP
	Topic string
	Group string // producer or consumer group; of a heartbeat the first one it names
	Times int    // acts this often, then stops; 0 = until removed

	// Actions: first the Delay, then at most one of the others, in this order.
	Err       error         // answered instead of being served; an *Error goes out as it is, another error as code 1
	Drop      bool          // never served, never answered: the caller runs into its deadline
	DropReply bool          // served, but the answer is lost
	Delay     time.Duration // served after this long
}

// FaultHandle watches and removes one injected Fault. Safe for concurrent use.
type FaultHandle struct {
	fault Fault
	set   *faults

	mu      sync.Mutex // guards the rest
	hits    int
	removed bool
	changed chan struct{} // closed and replaced at every hit and at Remove
}

// Hits tells how many requests the fault has matched.
func (h *FaultHandle) Hits() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hits
}

// Wait blocks until the fault has matched at least hits requests. It returns
// ctx's error when ctx ends first, and an error once the fault is removed.
func (h *FaultHandle) Wait(ctx context.Context, hits int) error {
	for {
		h.mu.Lock()
		have, removed, changed := h.hits, h.removed, h.changed
		h.mu.Unlock()
		switch {
		case removed:
			return fmt.Errorf("fault removed after %d hits, %d were waited for", have, hits)
		case have >= hits:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for hit %d of a fault, %d so far: %w", hits, have, ctx.Err())
		}
	}
}

// Remove ends the fault. Requests it has delayed or dropped already stay so.
func (h *FaultHandle) Remove() {
	h.set.remove(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.removed {
		h.removed = true
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// claim counts a matching request. It is false once Times are used up.
func (h *FaultHandle) claim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed || h.fault.Times > 0 && h.hits >= h.fault.Times {
		return false
	}
	h.hits++
	close(h.changed)
	h.changed = make(chan struct{})
	return true
}

// faults are the injected faults of one cluster, shared by its servers. A nil
// *faults has none.
type faults struct {
	list atomic.Pointer[[]*FaultHandle] // nil when empty: the hot path is one load

	mu sync.Mutex // serialises changes of list
}

func (s *faults) inject(f Fault) *FaultHandle {
	h := &FaultHandle{fault: f, set: s, changed: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []*FaultHandle
	if old := s.list.Load(); old != nil {
		next = append(next, *old...)
	}
	next = append(next, h)
	s.list.Store(&next)
	return h
}

func (s *faults) remove(h *FaultHandle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.list.Load()
	if old == nil {
		return
	}
	var next []*FaultHandle
	for _, o := range *old {
		if o != h {
			next = append(next, o)
		}
	}
	if len(next) == 0 {
		s.list.Store(nil)
		return
	}
	s.list.Store(&next)
}

// request is what faults are matched against.
type request struct {
	code         Code
	node, from   string
	topic, group string
}

func (f *Fault) matches(r *request) bool {
	return (f.Code == 0 || f.Code == r.code) &&
		(f.Node == "" || f.Node == r.node) &&
		(f.From == "" || f.From == r.from) &&
		(f.Topic == "" || f.Topic == r.topic) &&
		(f.Group == "" || f.Group == r.group)
}

// match returns the fault that acts on r, nil when none does.
func (s *faults) match(r *request) *Fault {
	list := s.list.Load()
	if list == nil {
		return nil
	}
	for _, h := range *list {
		if h.fault.matches(r) && h.claim() {
			return &h.fault
		}
	}
	return nil
}

// handled serves one request through the faults: the one path of every
// request to a broker or a name server. A oneway request never keeps its
// caller waiting: what is delayed of it goes to later, which joins it.
func handled[Q, R any](ctx context.Context, fs *faults, r request, q *Q, later func(func(context.Context)), serve func(context.Context, *Q) (*R, error)) (*R, error) {
	f := fs.match(&r)
	if f == nil {
		return serve(ctx, q)
	}
	oneway := isOneway(q)
	if f.Delay > 0 {
		if oneway {
			own := protocol.Detached(q)
			rest := *f
			rest.Delay = 0
			later(func(ctx context.Context) {
				if pause(ctx, f.Delay) == nil {
					_, _ = act(&rest, ctx, true, func() (*R, error) { return serve(ctx, own) })
				}
			})
			return nil, nil
		}
		if err := pause(ctx, f.Delay); err != nil {
			return nil, err
		}
	}
	return act(f, ctx, oneway, func() (*R, error) { return serve(ctx, q) })
}

// act does what f says to a request that serve would serve.
func act[R any](f *Fault, ctx context.Context, oneway bool, serve func() (*R, error)) (*R, error) {
	switch {
	case f.Err != nil:
		var e *protocol.Error
		if errors.As(f.Err, &e) && e != nil {
			return nil, &protocol.Error{Code: e.Code, Remark: e.Remark}
		}
		return nil, protocol.Errorf(protocol.SystemError, "%v", f.Err)
	case f.Drop:
	case f.DropReply:
		_, _ = serve() // the answer is what gets lost
	default:
		return serve()
	}
	if oneway {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func isOneway(q any) bool {
	switch q := q.(type) {
	case *protocol.SendMessageRequest:
		return q.Oneway
	case *protocol.UpdateConsumerOffsetRequest:
		return q.Oneway
	case *protocol.UnlockQueuesRequest:
		return q.Oneway
	}
	return false
}

// pause waits for d; ctx's error when it ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer makes err what a caller may see: an *Error with the server's name, or
// the ctx error of a caller that is gone.
func answer(ctx context.Context, server string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	e := protocol.AsError(err)
	if e.Broker == server {
		return e
	}
	return &protocol.Error{Code: e.Code, Remark: e.Remark, Broker: server}
}
