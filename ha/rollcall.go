package ha

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A roll call is what a controller does as long as it knows of no epoch, or of fewer than
// its replicas do: it elects nobody, and waits for the registrations of all Members.
//
// What must hold: what a registration says of Seen is the highest epoch its replica has
// promised, and stays so. So only those count that name this Life, which a replica learns
// from its first answer: what a former life has told it came before that.
//
// When all are there, either nobody was ever elected, and First, whose log is the longest,
// begins; or only an operator can go on.

// rollCall takes in a message.
func (c *Controller) rollCall(now time.Time, m Message, out *Output) {
	c.lost = max(c.lost, c.lostBy(m))
	switch was, came := c.roll[m.From]; {
	case m.Kind != MessageRegister && came && was.Incarnation == m.Incarnation:
		c.heard[m.From] = now
		c.answer(out, m, cmp.Or(c.Stuck(), RefusedEarly))
		return
	case m.Kind != MessageRegister || m.Life != c.cfg.Life && !c.lacks(guardLife):
		c.answer(out, m, RefusedUnknown).Life = c.cfg.Life
		return
	}
	if e := c.entry(m.From); e != nil && slices.Contains(e.Former, m.Incarnation) {
		c.answer(out, m, RefusedFormer)
		return
	}
	c.heard[m.From] = now
	c.roll[m.From] = m
	if c.lost == 0 && c.allCame() {
		c.begin(now, out)
	}
	if c.lost > 0 || c.state.Epoch == 0 {
		c.answer(out, m, cmp.Or(c.Stuck(), RefusedEarly))
	}
}

// lostBy is the epoch by which a message shows that the state is lost; 0: it does not.
// Epochs that a replica has not promised may be of a time without elections.
func (c *Controller) lostBy(m Message) int64 {
	known := m.known()
	if known <= c.state.Epoch || c.state.Epoch == 0 && c.lost == 0 && m.Seen == 0 {
		return 0
	}
	return known
}

// begin makes First the first master, if it has all that was answered.
//
// Without elections First was master, and what it answered is in its log, unless that is
// not the log that it had. Others copy it: each of theirs is a part of what it once was,
// so a log that is older than another one, or shorter in the same epoch, has lost
// something, or lies in another folder.
func (c *Controller) begin(now time.Time, out *Output) {
	first, known := c.roll[c.cfg.First], int64(0)
	for _, m := range c.roll {
		known = max(known, m.known())
		c.behind = c.behind || cmp.Or(cmp.Compare(first.LastEpoch, m.LastEpoch), cmp.Compare(first.End, m.End)) < 0
	}
	c.behind = (c.behind || first.known() < known) && !c.lacks(guardBehind)
	if c.behind {
		c.lost = max(known, 1)
		return
	}
	c.state.Epoch = known
	for _, m := range c.takeRoll() {
		c.enrol(m)
		c.answer(out, m, "")
	}
	c.state.Set, c.state.SetEpoch = []int64{c.cfg.First}, 1
	c.leaseOver = true // nobody ever had one
	c.elect(now, out)
	c.goOn(now, out)
}

// epochsForgotten are left out after a state that was lost: those that only a disk knew
// of that was lost, too, or a member that the group had once.
const epochsForgotten = 1000

// adopt goes on, as an operator has ordered, without the state that is lost. Each replica
// may lack what was answered. The epochs from here on are above all that any has promised.
func (c *Controller) adopt(now time.Time, m Message, out *Output) {
	_, came := c.roll[m.ID]
	switch {
	case !came || !c.lives(now, m.ID):
		c.answer(out, m, RefusedAbsent)
		return
	case c.lost == 0 || !c.allCame():
		c.answer(out, m, RefusedEarly)
		return
	case !m.Unclean:
		c.answer(out, m, c.Stuck())
		return
	}
	for _, r := range c.roll {
		c.lost = max(c.lost, r.known())
	}
	c.lost += epochsForgotten
	if c.lacks(guardAdopt) {
		c.lost = c.state.Epoch
	}
	c.state.Epoch, c.lost, c.behind = max(c.state.Epoch, c.lost), 0, false
	c.state.Set = nil
	for _, r := range c.takeRoll() {
		if e := c.entry(r.From); e == nil || e.Incarnation != r.Incarnation {
			c.enrol(r)
		}
		c.entry(r.From).Unclean = true
		c.state.Set = append(c.state.Set, r.From)
	}
	c.state.SetEpoch++
	c.leaseFrom, c.leaseOver = now, false // of whoever is master by the state that is lost
	c.elect(now, out)
	c.wanted, c.unclean = m.ID, true
	c.answer(out, m, "")
	c.goOn(now, out)
}

// takeRoll ends the roll call: who has come, by id.
func (c *Controller) takeRoll() []Message {
	list := slices.SortedFunc(maps.Values(c.roll), func(a, b Message) int { return cmp.Compare(a.From, b.From) })
	clear(c.roll)
	return list
}

func (c *Controller) allCame() bool {
	if c.lacks(guardRollCall) {
		_, ok := c.roll[c.cfg.First]
		return ok
	}
	return !slices.ContainsFunc(c.cfg.Members, func(id int64) bool { _, ok := c.roll[id]; return !ok })
}

// Stuck says why nobody is elected before an operator designates a replica as unclean,
// once all Members have registered: [RefusedLost] or [RefusedBehind]. "": it is not so, or
// not known yet.
func (c *Controller) Stuck() Refusal {
	switch {
	case c.lost == 0 || !c.allCame():
		return ""
	case c.behind:
		return RefusedBehind
	}
	return RefusedLost
}

// known is the highest epoch of which the sender of a message has told.
func (m *Message) known() int64 { return max(m.Seen, m.LastEpoch, m.Unelected) }
