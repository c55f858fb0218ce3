package pocketmq

import (
	"time"

	"github.com/pocketmq/pocketmq/protocol"
)

// Of a group that elects, one member at a time answers for the group: the master while
// its lease runs. A slave answers from what it has, which it says by being one; a master
// whose lease is over may have a successor already, so what it would say or do in the
// group's name is refused: reads, commits, locks, questions, pulls that it holds. Whoever
// asked goes on elsewhere.

// ofMember names the requests that are about this member and its connections, not about
// what the group has: they are answered in each role, and without a lease.
func ofMember(code Code) bool {
	switch code {
	case protocol.CodeHeartbeat, protocol.CodeUnregisterClient, protocol.CodeGetConsumerList, protocol.CodeGetConsumerConnection,
		protocol.CodeGetConsumerRunningInfo, protocol.CodeGetConsumerStatus, protocol.CodeCheckClientConfig,
		protocol.CodeNotifyMinBrokerID, protocol.CodeGetHAStatus, protocol.CodeGetEpochCache:
		return true
	}
	return false
}

// mayAnswer tells, right before an answer, whether the broker is master still, under
// the epoch that it had before, and has heard from its controller not too long ago.
func (r *brokerRun) mayAnswer(epoch int64) error {
	if r.elections == nil {
		return nil
	}
	if err := r.elections.MayAnswer(epoch); err != nil {
		return protocol.Errorf(protocol.ServiceNotAvailable, "%s is not the master any more, or cannot be sure of it: %v", r.node, err)
	}
	return nil
}

// mayServe refuses what is a master's business, of a broker that was a master when the
// request came, or is one now, and has no lease. It is asked before something is done,
// and right before it is answered. was is what the broker was when the request came.
func (r *brokerRun) mayServe(code Code, was *standing) error {
	if r.elections == nil || ofMember(code) {
		return nil
	}
	if was.role != RoleMaster {
		if was = r.standing.Load(); was.role != RoleMaster {
			return nil
		}
	}
	return r.mayAnswer(was.epoch)
}

// holdsUntil is when a pull that is held has to be looked at again: at its deadline, or
// when the lease of a master ends, unless that is renewed meanwhile.
func (r *brokerRun) holdsUntil(deadline time.Time) time.Time {
	if r.elections == nil {
		return deadline
	}
	at := r.standing.Load()
	if at.role != RoleMaster {
		return deadline
	}
	if end := r.elections.LeaseEnd(at.epoch); end.Before(deadline) {
		return end
	}
	return deadline
}
