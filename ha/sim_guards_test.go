package ha

import (
	"errors"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// guardNames are the rules that can be taken away, as docs/replication.md has them.
func guardNames() map[guard]string {
	return map[guard]string{
		guardAckBound: "an ack beyond what was sent is refused", guardAckEpoch: "an ack under another epoch is refused",
		guardDistinct: "two connections of a replica are one replica", guardUnion: "a leaving member counts until the smaller set is stored",
		guardUnknown: "a request with an unknown outcome counts", guardJoinOrder: "a joiner counts before the last answer is read",
		guardSecondMin: "the smallest set is checked again at the answer", guardFence: "who has promised an epoch acknowledges under no lower one",
		guardPersist: "a promise is durable before it is given", guardReport: "the log is reported after the receiver has stopped",
		guardIncarnation: "what a former life says does not count", guardClean: "who may have lost records cannot be elected",
		guardResume: "a restart ends mastership", guardMembers: "only members of the set can be elected",
		guardLongest: "the longest log is elected", guardPending: "the set stays the old one until the elected confirms",
		guardStored: "nothing is said before it is stored", guardAlterEpoch: "a former master changes no set",
		guardSetEpoch: "a change stands on the stored set", guardLease: "the lease is tested right before an answer",
		guardLeaseSent: "a lease counts from before its renewal is sent", guardLeaseWait: "nobody is elected while a lease may run",
		guardRestartWait: "a restarted controller waits for leases", guardConfirmFirst: "who is elected serves after its confirmation",
		guardRollCall: "without a state all are heard before one is elected", guardLife: "a registration counts for the life that asked for it",
		guardBehind: "the first master has what the others have", guardAdopt: "epochs after a lost state are above all that was promised",
	}
}

// guardScripts judge rules that are hard to miss by chance, or whose loss costs no
// answered record: each returns what is wrong without the guard.
func guardScripts() map[guard]func(guard) error {
	return map[guard]func(guard) error{
		guardAckEpoch: scriptAckEpoch, guardPersist: scriptPersist, guardReport: scriptReport, guardLongest: scriptLongest,
		guardPending: scriptPending, guardAlterEpoch: scriptAlterEpoch, guardLife: scriptLife,
	}
}

func scriptAckEpoch(g guard) error {
	s := NewInSync(start, InSyncConfig{ID: 1, Epoch: 7, End: 10, Controlled: true, Acks: AckAll, MinInSync: 2})
	s.guards = guardsWithout(g)
	conn, err := s.Connect(start, 2, 102, 10)
	if err != nil {
		return err
	}
	s.Appended(start, 20)
	s.Durable(start, 20)
	s.Sent(conn, 20)
	// What it had of another log, whose last record had this position too.
	if s.Ack(start, conn, 6, 20) == nil && s.Answer(20) == nil {
		return errors.New("an ack of another log counts")
	}
	return nil
}

func scriptPersist(g guard) error {
	stored := ReplicaState{Incarnation: 1, Clean: true}
	r := NewReplica(start, ReplicaConfig{ID: 1}, stored, 4, 9)
	r.guards = guardsWithout(g)
	if out := r.Step(start, Message{Kind: MessagePromise, From: NoReplica, To: 1, Incarnation: 1, Epoch: 5}); out.State != nil {
		stored = *out.State
	}
	r = NewReplica(start, ReplicaConfig{ID: 1}, NextLife(&stored, 2, true), 4, 9)
	r.Step(start, Message{Kind: MessageState, From: NoReplica, To: 1, Epoch: 4, Master: 0, MasterEpoch: 4})
	if role, epoch := r.Role(); role == RoleSlave {
		return fmt.Errorf("it follows a master of epoch %d after it has promised 5", epoch)
	}
	return nil
}

func scriptReport(g guard) error {
	r := NewReplica(start, ReplicaConfig{ID: 1}, ReplicaState{Incarnation: 1}, 4, 9)
	r.guards = guardsWithout(g)
	out := r.Step(start, Message{Kind: MessagePromise, From: NoReplica, To: 1, Incarnation: 1, Epoch: 5})
	if out.Do[0].Do != DoFence {
		return errors.New("it reports its log before it has stopped to follow")
	}
	return nil
}

// calmWorld is a world in which everybody is in sync and nothing happens.
func calmWorld(g guard) *sim {
	s := newSim(1, simConfig{
		replicas: 3, minInSync: 2, syncAcks: true, guard: g, calm: true, leaseless: true,
		lease: 5 * time.Second, renew: time.Second, maxLag: 15 * time.Second, maxGone: time.Minute,
	})
	s.until(time.Second, func() bool { return s.inSync(3) })
	return s
}

func scriptLongest(g guard) error {
	s := calmWorld(g)
	s.cut[[2]int64{0, 1}] = true
	for range 5 {
		s.write(s.nodes[0], true) // replica 2 has them, replica 1 does not
	}
	s.runFor(100 * time.Millisecond)
	s.kill(s.nodes[0])
	s.until(10*time.Second, func() bool { return s.master() != nil })
	if m := s.master(); m == nil || m.disk.end() != 5 {
		return errors.New("the elected has not the longest log")
	}
	return s.violated
}

func scriptPending(g guard) error {
	s := calmWorld(g)
	s.kill(s.nodes[0])
	s.until(10*time.Second, func() bool { return s.ctl.stored.Pending != NoReplica })
	s.kill(s.nodes[s.ctl.stored.Pending])
	if !s.until(20*time.Second, func() bool { return s.master() != nil }) {
		return errors.New("nobody takes the place of the elected that died")
	}
	return s.violated
}

func scriptAlterEpoch(g guard) error {
	s := calmWorld(g)
	// Neither the master nor replica 1 hear the controller, which elects replica 2.
	s.cut[[2]int64{NoReplica, 0}], s.cut[[2]int64{NoReplica, 1}] = true, true
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 2}))
	s.until(10*time.Second, func() bool { return s.ctl.stored.Pending == 2 })
	// The master does not know, and wants to go on without replica 2, who is silent.
	m := s.nodes[0]
	s.write(m, true)
	m.in.Stored(m.clock(), []Member{{0, 1}, {1, 2}, {2, 3}}, s.ctl.stored.SetEpoch)
	change := Change{s.ctl.stored.SetEpoch, []Member{{0, 1}, {1, 2}}}
	alter, ok := m.r.Alter(change)
	if !ok {
		return errors.New("the old master has heard of the election")
	}
	out := s.ctl.c.Step(s.ctl.clock(), alter)
	if out.Send[0].Refusal != "" {
		return s.violated
	}
	s.ctl.output(out)
	m.in.Stored(m.clock(), change.Set, change.Base+1) // by a way that the cut left open
	s.runFor(2 * time.Second)
	return s.violated
}

func scriptLife(g guard) error {
	c, err := NewController(start, ControllerConfig{Members: []int64{0, 1}, Life: 2}, nil)
	if err != nil {
		return err
	}
	c.guards = guardsWithout(g)
	for id := range int64(2) {
		c.Step(start, Message{Kind: MessageRegister, From: id, To: NoReplica, Incarnation: 1 + id, Life: 1})
	}
	if c.State().Epoch > 0 {
		return errors.New("registrations for a former life, after which much may have been promised, begin an election")
	}
	return nil
}

func TestScriptsOfGuardsFindNothing(t *testing.T) {
	if mutating {
		t.Skip("guards are taken away in this build")
	}
	for g, run := range guardScripts() {
		assert.NoError(t, run(g), guardNames()[g])
	}
}

// TestEachGuardIsMissed takes one rule away at a time, and makes the table of
// docs/replication.md:
//
//	go test -tags mutate ./ha -run TestEachGuardIsMissed -v -ha.count 3000
func TestEachGuardIsMissed(t *testing.T) {
	if !mutating {
		t.Skip("needs the build tag mutate")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	for g := guardNone + 1; g < guardCount; g++ {
		if *simGuard > 0 && g != guard(*simGuard) {
			continue
		}
		noticed, found := "", 0
		if run := guardScripts()[g]; run != nil { // chance is not asked then
			if err := run(g); err != nil {
				noticed = "script: " + err.Error()
			}
		}
		for k := 1; k <= *simCount && noticed == ""; k++ {
			seed := *simSeed + uint64(k) - 1
			run := runSeed
			if g >= guardRollCall { // what happens at the beginning, and without a state
				run = runUnled
			}
			if s := run(seed, simFor(seed, g)); s.violated != nil {
				found, noticed = k, s.violated.Error()
			}
		}
		if noticed == "" {
			t.Errorf("| %s | not missed in %d seeds |", guardNames()[g], *simCount)
			continue
		}
		t.Logf("| %s | %d | %s |", guardNames()[g], found, noticed)
	}
}
