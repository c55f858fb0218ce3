package ha

import "time"

// SlavesStatus is how far a master's slaves are.
type SlavesStatus struct {
	Epoch     int64
	End       int64    // of the log
	Confirmed int64    // what every replica of the in-sync set has
	Set       []Member // the stored in-sync set, by id
	SetEpoch  int64    // its version
	Slaves    []SlaveStatus
}

// SlaveStatus is how far one slave is: one that is or was connected, or is in the in-sync
// set.
// Java: HAConnectionRuntimeInfo.
type SlaveStatus struct {
	ID, Incarnation int64
	Addr            string // "" when it is not connected
	Connected       bool
	Since           time.Time // of the connection, or of its end
	Sent, Acked     int64     // positions
	Lacks           int64     // the first position that it is not known to have
	LagRecords      int64     // from there on
	LagBytes        int64     // about
	// Lag is for how long it has not had everything, at most: what MaxLag is compared
	// with. 0: it has.
	Lag    time.Duration
	InSync bool // a member of the stored set

	SentRecords, SentBytes int64 // on this connection
	// BytesPerSecond went to it in the last second or two.
	BytesPerSecond float64
}

// Status is how far the slaves are.
func (s *Slaves) Status() SlavesStatus {
	now := time.Now()
	st := SlavesStatus{Epoch: s.cfg.InSync.Epoch}
	s.mu.Lock()
	states := s.core.Slaves()
	set, setEpoch := s.core.Set()
	st.End, st.Confirmed = s.core.End(), s.core.Confirmed()
	senders := *s.senders.Load()
	s.mu.Unlock()
	st.Set, st.SetEpoch = append(st.Set, set...), setEpoch
	for _, f := range states {
		one := SlaveStatus{
			ID: f.ID, Incarnation: f.Incarnation, Connected: f.Connected, Since: f.Since,
			Sent: f.Sent, Acked: f.Acked, InSync: f.InSync, Lacks: max(f.Acked, f.Kept) + 1,
		}
		one.LagRecords = st.End - one.Lacks + 1
		if one.LagRecords > 0 {
			one.LagBytes = s.cfg.Log.BytesBetween(one.Lacks-1, st.End)
			one.Lag = max(0, now.Sub(f.CaughtUp))
		}
		for _, p := range senders {
			if f.Connected && p.hello.id == f.ID {
				one.Addr, one.SentRecords, one.SentBytes = p.wire.peer(), p.records.Load(), p.bytes.Load()
				one.BytesPerSecond = p.rate.perSecond(now)
			}
		}
		st.Slaves = append(st.Slaves, one)
	}
	return st
}
