package ha

import (
	"errors"
	"fmt"
	"time"
)

// ErrNotDesignated means that a replica was not made master as an operator has asked.
var ErrNotDesignated = errors.New("not designated")

// A NotDesignatedError says why a replica was not made master. It is [ErrNotDesignated].
type NotDesignatedError struct {
	ID  int64
	Why Refusal
}

func (e *NotDesignatedError) Error() string {
	return fmt.Sprintf("ha: replica %d %s: %v", e.ID, e.Why.Reason(), ErrNotDesignated)
}

// Unwrap returns ErrNotDesignated.
func (e *NotDesignatedError) Unwrap() error { return ErrNotDesignated }

// Reason says why a replica cannot become master, with the replica as the subject.
func (r Refusal) Reason() string {
	switch r {
	case RefusedAbsent:
		return "is not connected to the controller"
	case RefusedUnclean:
		return "may have lost what it had acknowledged: it lost power since, or its folder is another or an older one"
	case RefusedOutside:
		return "is not in the in-sync set: it may lack what was acknowledged"
	case RefusedLost:
		return "cannot be judged: the controller's state is lost"
	case RefusedBehind:
		return "cannot be judged: nobody was ever elected, and the first master lacks what another one has"
	case RefusedEarly:
		return "cannot be elected yet: the controller knows nothing of epochs, and has not heard of all members"
	}
	return "cannot be elected: " + string(r)
}

// designate begins an election for an operator. Nothing of the order is stored before
// the replica is elected, so that it can be withdrawn.
func (c *Controller) designate(now time.Time, m Message, out *Output) {
	clean := c.canBeElected(m.ID)
	switch e := c.entry(m.ID); {
	case c.lost > 0 || c.state.Epoch == 0:
		c.adopt(now, m, out)
		return
	case e == nil || !c.lives(now, m.ID):
		c.answer(out, m, RefusedAbsent)
		return
	case !clean && !m.Unclean && e.Unclean:
		c.answer(out, m, RefusedUnclean)
		return
	case !clean && !m.Unclean:
		c.answer(out, m, RefusedOutside)
		return
	}
	if m.ID == c.state.Master && c.state.Epoch == c.state.MasterEpoch {
		c.answer(out, m, "")
		return
	}
	c.elect(now, out)
	c.wanted, c.unclean = m.ID, !clean
	c.answer(out, m, "")
	c.goOn(now, out)
}

// withdraw ends an order. Once the replica has confirmed it is too late; before, it has
// answered nothing.
func (c *Controller) withdraw(now time.Time, m Message, out *Output) {
	switch {
	case c.state.Master == m.ID && c.state.MasterEpoch == m.Epoch:
		c.answer(out, m, RefusedTaken)
		return
	case c.state.Epoch != m.Epoch: // it is over
	case c.state.PendingUnclean && c.state.Pending == m.ID:
		c.elect(now, out)
	case c.wanted == m.ID:
		c.wanted, c.unclean = NoReplica, false
	}
	c.answer(out, m, "")
	c.goOn(now, out)
}

// knows tells whether a replica was heard of in this life of the controller.
func (c *Controller) knows(id int64) bool {
	_, ok := c.heard[id]
	return ok
}
