package ha

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
)

// guardNames are the rules that can be taken away, as docs/replication.md has them.
var guardNames = map[guard]string{
	guardAckBound: "an ack beyond what was sent is refused", guardAckEpoch: "an ack under another epoch is refused",
	guardDistinct: "two connections of a replica are one replica", guardUnion: "a leaving member counts until the smaller set is stored",
	guardUnknown: "a request with an unknown outcome counts", guardJoinOrder: "a joiner counts before the last answer is read",
	guardSecondMin: "the smallest set is checked again at the answer", guardFence: "who has promised an epoch acknowledges under no lower one",
	guardPersist: "a promise is durable before it is given", guardReport: "the log is reported after the receiver has stopped",
	guardIncarnation: "what a former life says does not count", guardClean: "who may have lost records cannot be elected",
	guardResume: "a restart ends mastership", guardMembers: "only members of the set can be elected",
	guardLongest: "the longest log is elected", guardPending: "the set stays the old one until the elected confirms",
	guardStored: "nothing is said before it is stored", guardAlterEpoch: "a former master changes no set",
	guardSetEpoch: "a change stands on the stored set", guardLease: "the lease is tested before each answer",
	guardLeaseSent: "a lease counts from before its renewal is sent", guardLeaseWait: "nobody is elected while a lease may run",
	guardRestartWait: "a restarted controller waits", guardConfirmFirst: "who is elected serves after the confirmation",
}

// TestEachGuardIsMissed takes one rule away at a time. Run it with
//
//	go test -tags mutate ./ha -run TestEachGuardIsMissed -v -ha.count 3000
func TestEachGuardIsMissed(t *testing.T) {
	if !mutating {
		t.Skip("needs the build tag mutate")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	for g := guardNone + 1; g < guardCount; g++ {
		found := 0
		var why string
		for k := 1; k <= *simCount && found == 0; k++ {
			seed := *simSeed + uint64(k) - 1
			if s := runSeed(seed, simFor(seed, g)); s.violated != nil {
				found, why = k, s.violated.Error()
			}
		}
		row := fmt.Sprintf("%2d %-58s", g, guardNames[g])
		if found == 0 {
			t.Errorf("%s not missed in %d seeds", row, *simCount)
			continue
		}
		t.Logf("%s %5d seeds: %s", row, found, strings.TrimSpace(why))
	}
}
