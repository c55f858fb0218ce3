package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Check is what is wrong with a history, one sentence each, at most a few of a kind;
// nil when nothing is.
//
// Why it is sound. A complaint is always a broken promise, because each rests on facts
// that cannot be otherwise:
//
//   - Bodies are unique per attempt to send, and who sends notes the body, the queue and
//     the place that the answer named. So "the record at this place has another body"
//     is no matter of interpretation, whatever was lost or sent twice.
//   - Times are taken by one clock, outside of the cluster: At before a request goes
//     out, Until after its answer has come. The append lies between them. If one
//     attempt ends before another one begins, the first one's append came first, and a
//     log that contains both has it at the lower position. Attempts that overlap are
//     not compared.
//   - The logs are read from the folders of members that have ended, after all was
//     quiet and all had the same end. Nothing that runs has a say in it.
//   - The epoch of an answer is that of its record: a master appends under its own
//     epoch only, and the log keeps where epochs begin. Only answers whose record is
//     there are judged by it; one whose record is not there is a loss already.
//   - An election is noted when the elected begins to serve, which is after the lease of
//     the master before it: whoever answers what was sent later does so without one.
//   - What a group that consumes in order has got of a queue is noted before its handler
//     returns, and it is given the next message after that: the order of the notes is that
//     of the deliveries. A queue begins at 0 and is dense, so the first message of a queue
//     that it gets is at 0, and each that is new is at the next offset.
//   - The broker that has answered is told by the address in the message id of the
//     answer, and the one that appended the record by the address in it.
//
// And what it finds of a loss, or of two masters. Each acknowledgement is looked up in each log, so a loss that
// lasts until the end is found in whatever way it came about. One that does not last
// would need a record that was away and came back at its place: nobody can have written
// it again but from a log that has it, so it was not lost. Two masters that answer in
// one epoch, or for one place, are found by the answers alone, since of two different
// records at a place at most one can be in the log; if neither answer was an
// acknowledgement, nothing was promised. What is not found: a loss among messages whose
// attempts failed (promised is nothing), and wrong orders among attempts that overlap.
//
// It does not judge how often something is delivered, so no committed offset that goes
// back, nor the order in which a group gets messages that does not consume in order; and delayed messages, retries and dead letters are in no
// history. Tests of their own look at those.
func Check(h History) []string {
	c := newChecker(h)
	c.own()
	c.same()
	if c.promise.Kept {
		c.kept()
		c.masters()
		c.order()
	}
	c.former()
	c.consumed()
	c.ordered()
	c.quiet()
	return c.done()
}

// place is where a message is in its queue.
type place struct {
	queue  int
	offset int64
}

func (e *Entry) place() place { return place{e.Queue, e.Offset} }

// checker is one judgement.
type checker struct {
	h       History
	promise Promise
	wrong   []string
	said    map[string]int // complaints by kind

	members  []*Entry                   // by id
	logs     map[int64]map[int64]*Entry // member -> position -> record
	places   map[int64]map[place]*Entry // member -> place -> record
	answered []*Entry                   // attempts that were acknowledged as promised
}

// complaints is how many of a kind are told.
const complaints = 5

func newChecker(h History) *checker {
	c := &checker{h: h, said: make(map[string]int), logs: make(map[int64]map[int64]*Entry), places: make(map[int64]map[place]*Entry)}
	for i := range h {
		switch e := &h[i]; {
		case e.Kind == Run && e.Promise != nil:
			c.promise = *e.Promise
		case e.Kind == Member:
			c.members = append(c.members, e)
		case e.Kind == Send && e.Outcome == Acknowledged && !e.NoWait:
			c.answered = append(c.answered, e)
		case e.Kind == Record:
			if c.logs[e.Broker] == nil {
				c.logs[e.Broker], c.places[e.Broker] = make(map[int64]*Entry), make(map[place]*Entry)
			}
			if old := c.places[e.Broker][e.place()]; old != nil {
				c.complain("two records at one place", "member %d: queue %d offset %d is at %d and at %d", e.Broker, e.Queue, e.Offset, old.Position, e.Position)
			}
			c.logs[e.Broker][e.Position], c.places[e.Broker][e.place()] = e, e
		}
	}
	slices.SortFunc(c.members, func(a, b *Entry) int { return cmp.Compare(a.Broker, b.Broker) })
	return c
}

func (c *checker) complain(kind, format string, args ...any) {
	c.said[kind]++
	if c.said[kind] <= complaints {
		c.wrong = append(c.wrong, kind+": "+fmt.Sprintf(format, args...))
	}
}

// done is what was complained of.
func (c *checker) done() []string {
	for kind, n := range c.said {
		if n > complaints {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: %d times in all", kind, n))
		}
	}
	return c.wrong
}

// own judges each log alone: what its member says, epochs that grow, queues that are
// dense from 0.
func (c *checker) own() {
	if len(c.members) == 0 {
		c.complain("no logs", "the history has no members")
	}
	for _, m := range c.members {
		if m.Text != "" {
			c.complain("unsound log", "member %d: %s", m.Broker, m.Text)
		}
		next, epoch := make(map[int]int64), int64(0)
		for p := m.Offset; p <= m.Position; p++ {
			r := c.logs[m.Broker][p]
			if r == nil {
				continue // an entry without a message
			}
			if r.Epoch < epoch {
				c.complain("epochs go back", "member %d: position %d is of epoch %d, after one of epoch %d", m.Broker, p, r.Epoch, epoch)
			}
			epoch = r.Epoch
			if r.Offset != next[r.Queue] {
				c.complain("queue not dense", "member %d: queue %d goes on at %d, its next offset is %d (position %d)", m.Broker, r.Queue, r.Offset, next[r.Queue], p)
			}
			next[r.Queue] = r.Offset + 1
		}
	}
}

// same demands that all logs are the same.
func (c *checker) same() {
	if len(c.members) < 2 {
		return
	}
	first := c.members[0]
	for _, m := range c.members[1:] {
		if m.Offset != first.Offset || m.Position != first.Position {
			c.complain("logs differ", "member %d has %d to %d, member %d has %d to %d", first.Broker, first.Offset, first.Position, m.Broker, m.Offset, m.Position)
		}
		for p := first.Offset; p <= max(first.Position, m.Position); p++ {
			a, b := c.logs[first.Broker][p], c.logs[m.Broker][p]
			if a == nil && b == nil {
				continue
			}
			if a == nil || b == nil || a.Body != b.Body || a.place() != b.place() || a.Epoch != b.Epoch || a.From != b.From {
				c.complain("logs differ", "at %d member %d has %s, member %d has %s", p, first.Broker, describe(a), m.Broker, describe(b))
			}
		}
	}
}

func describe(r *Entry) string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%q in queue %d at %d, of epoch %d by %d", r.Body, r.Queue, r.Offset, r.Epoch, r.From)
}

// kept demands each acknowledged message at its place in each log, and that no two were
// acknowledged for one place.
func (c *checker) kept() {
	places, positions := make(map[place]*Entry), make(map[int64]*Entry)
	for _, a := range c.answered {
		if old := places[a.place()]; old != nil {
			c.complain("acknowledged twice", "queue %d offset %d: %q by %d and %q by %d", a.Queue, a.Offset, old.Body, old.Broker, a.Body, a.Broker)
		}
		if old := positions[a.Position]; old != nil {
			c.complain("acknowledged twice", "position %d: %q by %d and %q by %d", a.Position, old.Body, old.Broker, a.Body, a.Broker)
		}
		places[a.place()], positions[a.Position] = a, a
		for _, m := range c.members {
			switch r := c.places[m.Broker][a.place()]; {
			case r == nil || r.Body != a.Body:
				c.complain("lost", "%q was acknowledged by %d at %v, in queue %d at %d (position %d): member %d has %s there", a.Body, a.Broker, a.Until, a.Queue, a.Offset, a.Position, m.Broker, describe(r))
			case r.Position != a.Position:
				c.complain("moved", "%q was acknowledged at position %d, member %d has it at %d", a.Body, a.Position, m.Broker, r.Position)
			}
		}
	}
}

// found is the record of an answer in the log of the first member; nil: it is not there.
func (c *checker) found(a *Entry) *Entry {
	if len(c.members) == 0 {
		return nil
	}
	r := c.logs[c.members[0].Broker][a.Position]
	if r == nil || r.Body != a.Body {
		return nil
	}
	return r
}

// masters demands one master per epoch: who has answered, who has appended, who says
// that it was elected.
func (c *checker) masters() {
	by := make(map[int64]int64)
	is := func(epoch, id int64, how string) {
		if known, ok := by[epoch]; ok && known != id {
			c.complain("two masters", "epoch %d is of %d, and %d %s", epoch, known, id, how)
		}
		by[epoch] = id
	}
	for i := range c.h {
		switch e := &c.h[i]; e.Kind {
		case Elected:
			is(e.Epoch, e.Broker, fmt.Sprintf("was elected at %v", e.At))
		case Record:
			is(e.Epoch, e.From, fmt.Sprintf("has appended %q", e.Body))
		case Send:
			if r := c.found(e); r != nil && e.Outcome == Acknowledged {
				is(r.Epoch, e.Broker, fmt.Sprintf("has acknowledged %q", e.Body))
			}
		}
	}
}

// order demands that what was acknowledged before something else was sent comes before
// it in the log.
func (c *checker) order() {
	list := slices.Clone(c.answered)
	list = slices.DeleteFunc(list, func(a *Entry) bool { return c.found(a) == nil })
	slices.SortFunc(list, func(a, b *Entry) int { return cmp.Compare(a.At, b.At) })
	ends := slices.Clone(list)
	slices.SortFunc(ends, func(a, b *Entry) int { return cmp.Compare(a.Until, b.Until) })
	var top *Entry // the highest position of those that ended before
	for _, a := range list {
		for len(ends) > 0 && ends[0].Until < a.At {
			if top == nil || ends[0].Position > top.Position {
				top = ends[0]
			}
			ends = ends[1:]
		}
		if top != nil && a.Position < top.Position {
			c.complain("goes back", "%q, sent at %v, is at position %d; %q, acknowledged at %v, at %d", a.Body, a.At, a.Position, top.Body, top.Until, top.Position)
		}
	}
}

// former demands that who is not master any more acknowledges nothing, not even what
// nobody waits for: an attempt that began after another member had been elected was
// served after that.
func (c *checker) former() {
	var elected []*Entry
	for i := range c.h {
		if c.h[i].Kind == Elected {
			elected = append(elected, &c.h[i])
		}
	}
	slices.SortFunc(elected, func(a, b *Entry) int { return cmp.Compare(a.At, b.At) })
	for i := range c.h {
		e := &c.h[i]
		if e.Kind != Send || e.Outcome != Acknowledged {
			continue
		}
		var last *Entry // elected before e began
		again := false
		for _, m := range elected {
			switch {
			case m.At < e.At:
				last = m
			case m.At <= e.Until && m.Broker == e.Broker:
				again = true
			}
		}
		if last != nil && last.Broker != e.Broker && !again {
			c.complain("former master", "%q, sent at %v, was acknowledged by %d at %v: %d is master of epoch %d since %v", e.Body, e.At, e.Broker, e.Until, last.Broker, last.Epoch, last.At)
		}
	}
}

// consumed demands that consumers got what is in the log: all of it, and nothing that
// is not.
func (c *checker) consumed() {
	if len(c.members) == 0 {
		return
	}
	log := c.places[c.members[0].Broker]
	had := make(map[string]map[place]bool)
	for i := range c.h {
		e := &c.h[i]
		if e.Kind != Got {
			continue
		}
		r := log[e.place()]
		if c.promise.Firm && (r == nil || r.Body != e.Body) {
			c.complain("taken back", "%s got %q at %v, in queue %d at %d, where the log has %s", e.Who, e.Body, e.At, e.Queue, e.Offset, describe(r))
		}
		if r != nil && r.Body == e.Body {
			if had[e.Who] == nil {
				had[e.Who] = make(map[place]bool)
			}
			had[e.Who][e.place()] = true
		}
	}
	for _, group := range c.promise.Consumed {
		for at, r := range log {
			if !had[group][at] {
				c.complain("not consumed", "%s never got %s", group, describe(r))
			}
		}
	}
}

// ordered demands that groups that consume in order got no message before the one in
// front of it.
func (c *checker) ordered() {
	type queue struct {
		group string
		id    int
	}
	next := make(map[queue]int64)
	for i := range c.h {
		e := &c.h[i]
		if e.Kind != Got || !slices.Contains(c.promise.Ordered, e.Who) {
			continue
		}
		q := queue{e.Who, e.Queue}
		if e.Offset > next[q] {
			c.complain("out of order", "%s got %q, queue %d offset %d, at %v, and not yet offset %d", e.Who, e.Body, e.Queue, e.Offset, e.At, next[q])
		}
		next[q] = max(next[q], e.Offset+1)
	}
}

// quiet demands a master in time.
func (c *checker) quiet() {
	for i := range c.h {
		e := &c.h[i]
		if e.Kind != Quiet || c.promise.Master == 0 {
			continue
		}
		if took := e.Until - e.At; took > c.promise.Master || e.Until == 0 {
			c.complain("no master", "quiet at %v, the first acknowledgement after %v, %v are allowed", e.At, took, c.promise.Master)
		}
	}
}
