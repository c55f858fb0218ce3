package ha

import (
	"errors"
	"fmt"
	"strings"
)

// ErrDiverged means that what a slave holds is not a part of its master's log, and
// not such that cutting its end makes it one.
var ErrDiverged = errors.New("the logs have diverged")

// ErrTooFarBehind means that a slave needs positions that its master does not keep
// any more. It can only begin anew, where the master's log begins now.
var ErrTooFarBehind = errors.New("too far behind")

// ErrBadEpochs means that a history of epochs is none: its numbers do not grow, its
// positions descend, or lie outside of the log.
var ErrBadEpochs = errors.New("no history of epochs")

// Epoch is a part of a log that was written under one master. It ends before the next
// one's First, the last one at the end of the log.
type Epoch struct {
	Number int64 // grows by one per election, from 1; 0: nobody was ever elected
	// First is the first position written under it, or that will be. That of the
	// oldest epoch of a log is where the log begins now: older records of it may have
	// been deleted.
	First int64
}

// Diverge tells the position up to which a slave keeps its log: all up to there is in
// its master's log too, and what follows is to be cut off, and to be replaced by what
// the master has. 0 means that it keeps nothing: its log begins anew where that of the
// master does. The epochs are those of both logs, oldest first; masterFirst is the
// first position that the master keeps.
//
// The histories are walked from the newest epoch to the oldest: the first that both
// have, begun at the same position, is common to both up to where it ends first. The
// oldest epoch of a log may have lost its beginning to retention: it is the same as
// another one of its number that began no later. Logs that begin at position 1 have
// nothing before it in common.
//
// Errors: [ErrTooFarBehind] when the position to go on at is older than the master's
// log; [ErrDiverged] when nothing shows that the logs have a part in common, and when
// without any election nothing would be left of the slave's; [ErrBadEpochs]. Their
// texts name both sides' numbers. Java: AutoSwitchHAClient.doTruncate,
// EpochFileCache.findConsistentPoint. Differs: a slave that has records but no epoch
// is refused; there nothing of it is cut.
func Diverge(master []Epoch, masterFirst, masterEnd int64, slave []Epoch, slaveEnd int64) (keep int64, err error) {
	if err := checkEpochs(master, masterFirst, masterEnd); err != nil {
		return 0, fmt.Errorf("ha: master: %w", err)
	}
	slaveFirst := int64(1)
	if len(slave) > 0 {
		slaveFirst = slave[0].First
	}
	if slaveEnd == 0 || slaveEnd < slaveFirst {
		return 0, nil // it has no records
	}
	refuse := func(reason error, why string) (int64, error) {
		return 0, fmt.Errorf("ha: slave at %d..%d (epochs %s), master at %d..%d (epochs %s): %s: %w",
			slaveFirst, slaveEnd, epochsText(slave), masterFirst, masterEnd, epochsText(master), why, reason)
	}
	if len(slave) == 0 {
		return refuse(ErrDiverged, "the slave's records have no epoch")
	}
	if err := checkEpochs(slave, slaveFirst, slaveEnd); err != nil {
		return 0, fmt.Errorf("ha: slave: %w", err)
	}
	keep, common := commonEnd(master, masterEnd, slave, slaveEnd)
	newestMaster, newestSlave := master[len(master)-1].Number, slave[len(slave)-1].Number
	switch {
	case common && keep < slaveFirst && newestMaster == 0:
		return refuse(ErrDiverged, "nothing of the slave's log would be left")
	case common && keep < slaveFirst:
		return 0, nil
	case common && keep < masterFirst-1:
		return refuse(ErrTooFarBehind, fmt.Sprintf("the slave goes on at %d, the master's oldest is %d", keep+1, masterFirst))
	case common:
		return keep, nil
	case newestSlave < master[0].Number && masterFirst > 1:
		return refuse(ErrTooFarBehind, "the master does not keep the epochs of the slave any more")
	case masterFirst == 1 && slaveFirst == 1 && newestSlave < newestMaster:
		return 0, nil // both have their beginnings: the first record is another one
	}
	return refuse(ErrDiverged, "they have no epoch in common")
}

// commonEnd is the end of the newest part that two histories have in common.
func commonEnd(master []Epoch, masterEnd int64, slave []Epoch, slaveEnd int64) (keep int64, found bool) {
	i, j := len(master)-1, len(slave)-1
	for i >= 0 && j >= 0 {
		m, s := master[i], slave[j]
		switch {
		case m.Number > s.Number:
			masterEnd = m.First - 1
			i--
		case m.Number < s.Number:
			slaveEnd = s.First - 1
			j--
		case sameBeginning(m.First, i == 0, s.First, j == 0):
			return min(masterEnd, slaveEnd), true
		default:
			masterEnd, slaveEnd = m.First-1, s.First-1
			i--
			j--
		}
	}
	return 0, false
}

// sameBeginning tells whether an epoch can have begun at one position for two logs;
// one that is the oldest of its log may have begun earlier than it says.
func sameBeginning(a int64, aOldest bool, b int64, bOldest bool) bool {
	switch {
	case a == b:
		return true
	case a > b:
		return aOldest
	}
	return bOldest
}

// checkEpochs refuses what is no history of a log from first to end.
func checkEpochs(list []Epoch, first, end int64) error {
	if len(list) == 0 {
		return fmt.Errorf("%w: it is empty", ErrBadEpochs)
	}
	if first < 1 || end < first-1 {
		return fmt.Errorf("%w: the log begins at %d and ends at %d", ErrBadEpochs, first, end)
	}
	for k, e := range list {
		switch {
		case e.Number < 0 || k > 0 && e.Number <= list[k-1].Number:
			return fmt.Errorf("%w: epoch %d is number %d of %s", ErrBadEpochs, e.Number, k+1, epochsText(list))
		case k == 0 && e.First != first || k > 0 && e.First < list[k-1].First || e.First > end+1:
			return fmt.Errorf("%w: epoch %d begins at %d in a log from %d to %d", ErrBadEpochs, e.Number, e.First, first, end)
		}
	}
	return nil
}

// epochsText is the history of a log for an error: its ends, when it is long.
func epochsText(list []Epoch) string {
	const most = 8
	var b strings.Builder
	for k, e := range list {
		if len(list) > most && k == most/2 {
			fmt.Fprintf(&b, " ... (%d more)", len(list)-most)
		}
		if len(list) > most && k >= most/2 && k < len(list)-most/2 {
			continue
		}
		if k > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d@%d", e.Number, e.First)
	}
	if len(list) == 0 {
		return "none"
	}
	return b.String()
}

// GivenUp tells whether a slave may cut off records that were confirmed to it, the last
// of them at a position: whether they are older than the last election by which an
// operator gave up what the elected did not have, of epoch lossEpoch, and that one is not
// later than its master's epoch. What was confirmed since then has to be there.
func GivenUp(mine []Epoch, confirmed, lossEpoch, masterEpoch int64) bool {
	of := int64(0)
	for _, e := range mine {
		if e.First <= confirmed {
			of = e.Number
		}
	}
	return of < lossEpoch && lossEpoch <= masterEpoch
}
