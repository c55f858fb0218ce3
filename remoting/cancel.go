package remoting

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq/internal/deadline"
	"github.com/pocketmq/pocketmq/protocol"
)

// Commands between members of this library, both oneway; see the package's
// documentation. RocketMQ has no commands of these numbers, and is not sent any.
const (
	// codeOurs is said by a server to a client that has named itself: the server
	// knows codeCancel.
	codeOurs protocol.Code = 31_001
	// codeCancel is said by either side: nobody waits for the answer to the request
	// of the same side whose id is in fieldOpaque.
	codeCancel protocol.Code = 31_002
)

const fieldOpaque = "pmq.opaque"

func ownCommand(code protocol.Code) *Frame {
	return &Frame{Code: int32(code), Flag: FlagOneway, Serialize: Binary, Language: LanguageGo, Version: Version}
}

// serving are the requests of a connection that the other side may cancel. They are
// found by their ids, in lists of those whose ids end with the same bits: a map costs
// three times as much, and every request would pay for it.
type serving struct {
	mu    sync.Mutex // guards lists and what is in them; leaf
	lists *[64]*cancellable
}

// cancellable is the ctx of a request.
type cancellable struct {
	deadline.Context
	opaque int32
	next   *cancellable
}

func (s *serving) listLocked(opaque int32) **cancellable {
	return &s.lists[uint32(opaque)%uint32(len(s.lists))]
}

// begin makes the ctx of a request, which ends when its caller cancels, or at until
// unless that is zero, or with the given one. It has to be given to end.
func (s *serving) begin(ctx context.Context, opaque int32, until time.Time) *cancellable {
	c := &cancellable{opaque: opaque}
	c.SetCancellable(ctx, until)
	s.mu.Lock()
	if s.lists == nil {
		s.lists = new([64]*cancellable)
	}
	list := s.listLocked(opaque)
	c.next, *list = *list, c
	s.mu.Unlock()
	return c
}

func (s *serving) end(c *cancellable) {
	c.End()
	s.mu.Lock()
	at := s.listLocked(c.opaque)
	for *at != c {
		at = &(*at).next
	}
	*at = c.next
	s.mu.Unlock()
}

// cancel ends the ctx of the request that f names, if that is still served.
func (s *serving) cancel(f *Frame) {
	text, _ := f.Ext.Get(fieldOpaque)
	opaque, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return // it names none
	}
	s.mu.Lock()
	var c *cancellable
	if s.lists != nil {
		for c = *s.listLocked(int32(opaque)); c != nil && c.opaque != int32(opaque); c = c.next {
		}
	}
	s.mu.Unlock()
	if c != nil {
		c.Cancel()
	}
}

// cancels tells the server of a client which calls were cancelled, once it is known
// to understand that.
type cancels struct {
	link *link

	mu    sync.Mutex // guards what follows; before the link's
	ours  bool
	early []int32 // what was cancelled before
}

// maxEarly is how many cancelled calls are remembered for a server of which it is not
// known yet what it is; of one that is not ours that remains so.
const maxEarly = 64

// known is told that the server is ours.
func (c *cancels) known() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, opaque := range c.early {
		c.link.sayCancelled(opaque)
	}
	c.ours, c.early = true, nil
}

func (c *cancels) cancel(opaque int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ours:
		c.link.sayCancelled(opaque)
	case len(c.early) < maxEarly:
		c.early = append(c.early, opaque)
	}
}

// sayCancelled tells the other side that nobody waits for the answer to a request any
// more. It waits for no room: these are few bytes, and no more often than requests for
// which there was room. They are lost with the connection only.
func (l *link) sayCancelled(opaque int32) {
	f := ownCommand(codeCancel)
	f.Ext = Fields{{fieldOpaque, strconv.Itoa(int(opaque))}}
	l.mu.Lock()
	_ = l.addLocked(f, f.size(), true)
	l.awake() // the caller has a lock: others write
}
