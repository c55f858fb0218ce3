package ha

import "time"

// Event is something that happened in replication: one of the types below.
type Event interface{ event() }

// SlaveConnected: a slave follows this master.
type SlaveConnected struct {
	ID       int64
	Addr     string
	Position int64 // that its log has in common with the master's
	Anew     bool  // its log begins anew
}

// SlaveDisconnected: a slave follows no more, or was refused.
type SlaveDisconnected struct {
	ID   int64 // -1: it has not said who it is
	Addr string
	Err  error
}

// HigherEpoch: a slave says that it knows of an epoch after this master's, so another
// master was elected, or is about to be. It is no more than what a peer says: ask the
// controller.
type HigherEpoch struct {
	Epoch int64 // the higher one
	ID    int64 // of the slave
}

// MasterConnected: this slave follows a master.
type MasterConnected struct {
	ID       int64
	Addr     string
	Epoch    int64
	Position int64 // that its log has in common with the master's
}

// MasterDisconnected: this slave follows no more, or was refused. It is told once, until
// the slave follows again or the reason is another one.
type MasterDisconnected struct {
	Addr  string // "" when no connection was made
	Err   error
	Retry time.Duration // until the next attempt
}

// Truncated: this slave has cut off the end of its log, which its master does not have.
type Truncated struct {
	From, To int64 // last position before, and after
	Epoch    int64 // of the master
	// Confirmed is how many of the records were confirmed: an operator has given them up.
	Confirmed int64
}

// Restarted: this slave's log was dropped and begins anew at a position.
type Restarted struct {
	From     int64 // last position before
	Position int64 // first position after
	Epoch    int64 // of the master
	Err      error // why nothing could be kept; nil: it held nothing
}

func (SlaveConnected) event()     {}
func (SlaveDisconnected) event()  {}
func (HigherEpoch) event()        {}
func (MasterConnected) event()    {}
func (MasterDisconnected) event() {}
func (Truncated) event()          {}
func (Restarted) event()          {}
