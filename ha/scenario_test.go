package ha

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is a simulator in which nothing goes wrong but what the script does.
func script(t *testing.T, replicas int, syncAcks bool, g guard) *sim {
	t.Helper()
	s := newSim(1, simConfig{
		replicas: replicas, minInSync: 2, syncAcks: syncAcks, guard: g, calm: true,
		lease: 5 * time.Second, renew: time.Second, maxLag: 15 * time.Second, maxGone: 100 * time.Millisecond,
		trace: func(format string, args ...any) { t.Logf(format, args...) },
	})
	t.Cleanup(func() {
		if g == guardNone {
			assert.NoError(t, s.violated)
		}
	})
	require.True(t, s.until(time.Second, func() bool { return s.inSync(replicas) }), "everybody is in sync")
	require.Equal(t, s.nodes[0], s.master())
	return s
}

// inSync tells whether the set has so many members, and everybody knows.
func (s *sim) inSync(n int) bool {
	m := s.master()
	if m == nil {
		return false
	}
	set, _ := m.in.Set()
	return len(set) == n && len(m.in.Required()) == n
}

// sends makes n appends that wait, and tells how many were answered.
func (s *sim) sends(n *simNode, count int) int {
	before := s.oks
	for range count {
		s.write(n, true)
	}
	s.runFor(time.Second)
	return s.oks - before
}

// takesOver waits for a master other than that one, and tells how long it took.
func (s *sim) takesOver(t *testing.T, was *simNode) (*simNode, time.Duration) {
	t.Helper()
	from := s.now
	require.True(t, s.until(20*time.Second, func() bool { m := s.master(); return m != nil && m != was }), "another one takes over")
	return s.master(), time.Duration(s.now - from)
}

// isolate cuts a node off from everybody.
func (s *sim) isolate(n *simNode) {
	for _, m := range append([]*simNode{s.ctl}, s.nodes...) {
		s.cut[[2]int64{n.id, m.id}], s.cut[[2]int64{m.id, n.id}] = true, true
	}
}

// Rows of the table in docs/replication.md: FO01 is its row 1, and so on. FO10 needs whole
// brokers, and is with the tests of clusters. Each has the rule that keeps it.

func TestFO01_SlaveAcksThenLosesPowerAndIsNotElected(t *testing.T) { // rule 3
	s := script(t, 3, false, guardNone)
	require.Equal(t, 5, s.sends(s.nodes[0], 5))
	require.Equal(t, int64(5), s.nodes[1].disk.end())
	s.nodes[1].disk.synced = 0 // nothing of it has reached the disk
	s.powerOff(s.nodes[1])
	s.kill(s.nodes[0])
	s.kill(s.nodes[2])
	s.start(s.nodes[1])
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master(), "who may have lost something serves nobody")
	s.start(s.nodes[2])
	m, _ := s.takesOver(t, nil)
	assert.Equal(t, s.nodes[2], m)
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(2) }), "the other one joins anew")
	assert.NoError(t, s.violated)
}

func TestFO02_MasterThatLosesPowerAndComesRightBackEndsItsTime(t *testing.T) { // rule 3
	s := script(t, 3, true, guardNone)
	require.Equal(t, 5, s.sends(s.nodes[0], 5))
	s.nodes[0].slow = int64(time.Hour)
	for range 5 {
		s.write(s.nodes[0], true) // on the slaves' disks, not on the master's
	}
	s.runFor(100 * time.Millisecond)
	require.Equal(t, int64(10), s.nodes[1].disk.end())
	s.nodes[0].disk.cut(5, false)
	s.powerOff(s.nodes[0])
	s.start(s.nodes[0])
	m, took := s.takesOver(t, s.nodes[0])
	assert.Less(t, took, time.Second, "nobody waits for a lease of one that is gone")
	assert.Equal(t, int64(10), m.disk.end(), "the longest log wins: what was not answered stays, too")
	assert.Equal(t, int64(2), m.epoch)
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	assert.Equal(t, m.disk.log, s.nodes[0].disk.log)
}

func TestFO03_ChangeThatIsStoredAndNotAnsweredCounts(t *testing.T) { // rule 2
	s := script(t, 3, true, guardNone)
	s.kill(s.nodes[2])
	require.True(t, s.until(20*time.Second, func() bool { return s.inSync(2) }))
	s.ctl.crashes = true // stores the set with replica 2, and says nothing
	s.start(s.nodes[2])
	require.True(t, s.until(5*time.Second, func() bool { return !s.ctl.up }))
	for s.ctl.stored.Set[len(s.ctl.stored.Set)-1] != 2 { // its registration was the first to be stored
		s.startController()
		s.ctl.crashes = true
		require.True(t, s.until(5*time.Second, func() bool { return !s.ctl.up }))
	}
	s.kill(s.nodes[2]) // and the member dies
	before := s.oks
	s.write(s.nodes[0], true)
	s.runFor(700 * time.Millisecond)
	assert.Equal(t, before, s.oks, "it is in the stored set: it could be elected")
	s.startController()
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(2) }))
	assert.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.kill(s.nodes[0])
	s.kill(s.nodes[1])
	s.start(s.nodes[2])
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master(), "replica 2 has left the set")
}

func TestFO04_JoinerHasWhatIsAnsweredWhileItJoins(t *testing.T) { // rule 2
	for delay := range 40 {
		s := script(t, 3, true, guardNone)
		s.kill(s.nodes[2])
		require.True(t, s.until(20*time.Second, func() bool { return s.inSync(2) }))
		s.start(s.nodes[2])
		// Appends are answered all the time; the master dies at any moment of it.
		for range delay {
			s.write(s.nodes[0], true)
			s.runFor(time.Millisecond)
		}
		s.kill(s.nodes[0])
		s.kill(s.nodes[1])
		s.runFor(10 * time.Second) // only replica 2 is left: it serves if it had joined
		require.NoError(t, s.violated, "after %d ms", delay)
	}
}

func TestFO05_SlaveWithTwoConnectionsIsOne(t *testing.T) { // rule 1
	s := script(t, 3, true, guardNone)
	s.isolate(s.nodes[2])
	m := s.nodes[0]
	// Replica 1 dials once more, and the old connection speaks on.
	old := m.out[1].conn
	s.nodes[1].rcv.conn = 0
	s.nodes[1].hello()
	s.runFor(100 * time.Millisecond)
	require.Greater(t, m.out[1].conn, old)
	s.write(m, true)
	s.runFor(50 * time.Millisecond)
	require.ErrorIs(t, m.in.Ack(m.clock(), old, m.epoch, 1), ErrStaleConnection)
	assert.Zero(t, s.oks, "replica 2 has not acknowledged")
}

func TestFO06_SetThatShrinksDuringAWaitIsTooSmallForAnAnswer(t *testing.T) { // rule 1
	s := script(t, 2, false, guardNone)
	s.isolate(s.nodes[1])
	require.NotNil(t, s.write(s.nodes[0], true), "two are in sync when it is appended")
	s.powerOff(s.nodes[1])
	s.nodes[1].clean = false
	clear(s.cut)
	s.cut[[2]int64{0, 1}] = true // it registers as unclean: the controller takes it out
	s.start(s.nodes[1])
	require.True(t, s.until(3*time.Second, func() bool { return s.inSync(1) }))
	s.runFor(time.Second)
	assert.Zero(t, s.oks)
}

func TestFO07_MasterThatPausesBeforeItsAnswerIsSafe(t *testing.T) { // rule 6
	s := script(t, 3, true, guardNone)
	old := s.nodes[0]
	s.write(old, true)
	// The lease is tested, the record is on its way: now nothing runs here any more.
	s.pause(old)
	m, _ := s.takesOver(t, old)
	s.runFor(time.Second)
	s.sends(m, 3)
	s.resume(old)
	s.runFor(time.Second)
	assert.NoError(t, s.violated, "what it answers rests on who was elected")
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	role, _ := old.r.Role()
	assert.Equal(t, RoleSlave, role)
}

func TestFO08_DelayedFrameOfTheOldMasterIsRefused(t *testing.T) { // rule 6
	s := script(t, 3, true, guardNone)
	old, slave := s.nodes[0], s.nodes[1]
	require.Equal(t, 3, s.sends(old, 3))
	conn, epoch := slave.rcv.conn, old.epoch
	late := []*simRecord{{id: 1000, epoch: epoch}}
	s.isolate(old)
	m, _ := s.takesOver(t, old)
	s.runFor(2 * time.Second)
	for _, n := range s.nodes[1:] {
		end := n.disk.end()
		n.data(old.id, epoch, conn, end+1, late, end)
		assert.Equal(t, end, n.disk.end())
	}
	assert.Equal(t, 2, s.sends(m, 2))
}

func TestFO09_OldMasterReturnsWithAnExtraTail(t *testing.T) { // rule 7
	s := script(t, 3, true, guardNone)
	old := s.nodes[0]
	require.Equal(t, 3, s.sends(old, 3))
	s.isolate(old)
	for range 4 {
		s.write(old, true) // nobody else has them
	}
	m, _ := s.takesOver(t, old)
	require.True(t, s.until(20*time.Second, func() bool { return s.inSync(2) }))
	require.Equal(t, 2, s.sends(m, 2))
	require.Equal(t, int64(7), old.disk.end())
	clear(s.cut)
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(3) }))
	assert.Equal(t, m.disk.log, old.disk.log)
	assert.Equal(t, m.disk.epochs[len(m.disk.epochs)-1], old.disk.epochs[len(old.disk.epochs)-1])
}

func TestFO11_ElectedNodeThatDiesBeforeItKnowsIsReplaced(t *testing.T) { // rule 4
	s := script(t, 3, true, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.kill(s.nodes[0])
	require.True(t, s.until(20*time.Second, func() bool { return s.ctl.stored.Pending != NoReplica }))
	elected := s.nodes[s.ctl.stored.Pending]
	s.kill(elected)
	assert.Equal(t, []int64{0, 1, 2}, s.ctl.stored.Set, "it has confirmed nothing")
	m, _ := s.takesOver(t, elected)
	assert.NotEqual(t, elected, m)
	assert.Equal(t, int64(3), m.epoch, "under a further epoch")
}

func TestFO12_ControllerThatRestartsInsideALeaseWaits(t *testing.T) { // rule 6
	s := script(t, 3, true, guardNone)
	old := s.nodes[0]
	s.runFor(10 * time.Second)
	s.cut[[2]int64{0, NoReplica}], s.cut[[2]int64{NoReplica, 0}] = true, true
	s.kill(s.ctl)
	s.startController()
	restarted := s.now
	for s.master() == old || s.master() == nil {
		s.write(old, false) // answered while the lease runs
		s.runFor(50 * time.Millisecond)
		require.NoError(t, s.violated)
		require.Less(t, s.now-restarted, int64(20*time.Second))
	}
	assert.GreaterOrEqual(t, time.Duration(s.now-restarted), 5500*time.Millisecond, "lease and drift")
	assert.Positive(t, s.oksAsync)
}

func TestMasterThatIsCutOffIsReplacedInTime(t *testing.T) { // rule 6
	s := script(t, 3, true, guardNone)
	old := s.nodes[0]
	require.Equal(t, 3, s.sends(old, 3))
	s.isolate(old)
	m, took := s.takesOver(t, old)
	assert.LessOrEqual(t, took, 7*time.Second, "LeaseExpire + 2 x LeaseRenew")
	assert.Zero(t, s.sends(old, 3), "the old master answers nothing")
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(2) }))
	assert.Equal(t, 3, s.sends(m, 3))
}

func TestHandOverOfALivingMasterTakesNoLease(t *testing.T) { // rule 4
	s := script(t, 3, true, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 2}))
	m, took := s.takesOver(t, s.nodes[0])
	assert.Equal(t, s.nodes[2], m)
	assert.Less(t, took, time.Second)

	m2, took := s.resign(t, m)
	assert.NotEqual(t, m, m2)
	assert.Less(t, took, 2*time.Second)
}

// What a master has beside its log is copied from it when it has left by itself, and only
// then: one that is gone would be waited for, and files may be older than copies.
func TestWhoIsElectedInheritsFromAMasterThatHasLeft(t *testing.T) {
	s := script(t, 3, true, guardNone)
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 2}))
	m, _ := s.takesOver(t, s.nodes[0])
	assert.Equal(t, "client0", m.heirOf)
	was := m.id
	m, _ = s.resign(t, m)
	assert.Equal(t, fmt.Sprint("client", was), m.heirOf)

	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	dead := m
	s.kill(dead)
	m, _ = s.takesOver(t, dead)
	assert.Empty(t, m.heirOf, "it is gone")
	s.start(dead)

	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	s.kill(m)
	s.start(m)
	m, _ = s.takesOver(t, nil)
	assert.Empty(t, m.heirOf, "it has begun anew")

	// The lease of who cannot be heard runs out before it promises.
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	s.cut[[2]int64{m.id, NoReplica}] = true
	require.True(t, s.until(10*time.Second, func() bool { return s.ctl.stored.Epoch > s.ctl.stored.MasterEpoch }))
	s.cut[[2]int64{m.id, NoReplica}] = false
	m, _ = s.takesOver(t, nil)
	assert.Empty(t, m.heirOf, "its lease had run out")
}

// When who was elected is lost, the next one is told, too.
func TestWhoIsElectedNextInheritsToo(t *testing.T) {
	s := script(t, 3, true, guardNone)
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 2}))
	require.True(t, s.until(time.Second, func() bool { return s.ctl.stored.Pending == 2 }))
	s.kill(s.nodes[2])
	m, _ := s.takesOver(t, nil)
	require.NotEqual(t, s.nodes[2], m)
	if m.id == 0 {
		assert.Empty(t, m.heirOf, "it has it")
	} else {
		assert.Equal(t, "client0", m.heirOf)
	}
}

func (s *sim) resign(t *testing.T, m *simNode) (*simNode, time.Duration) {
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	m.ready(m.r.Resign(m.clock()))
	return s.takesOver(t, m)
}

func TestControllerThatLostItsStateDoesNothing(t *testing.T) { // rule 8
	s := script(t, 3, true, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.kill(s.ctl)
	s.ctl.stored = nil
	s.startController()
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master(), "nobody renews a lease by a state that is lost")
	assert.Equal(t, int64(1), s.ctl.c.Lost())
	s.ctl.output(s.ctl.c.Step(s.ctl.clock(), Message{Kind: MessageDesignate, From: NoReplica, To: NoReplica, ID: 1}))
	s.runFor(10 * time.Second)
	assert.Nil(t, s.master(), "an operator has to say that answers may be lost")
}

func TestUncleanElectionIsAnOperatorsAndStaysOnRecord(t *testing.T) { // rule 4
	s := script(t, 3, false, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.isolate(s.nodes[1])
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(2) }))
	s.kill(s.nodes[0])
	s.kill(s.nodes[2])
	clear(s.cut)
	s.runFor(20 * time.Second)
	require.Nil(t, s.master(), "who is left is not in the set")
	require.Positive(t, s.designate(1, true))
	require.True(t, s.until(10*time.Second, func() bool { return s.master() == s.nodes[1] }))
	epoch := s.nodes[1].epoch
	assert.Equal(t, []Loss{{Epoch: epoch, ID: 1}}, s.ctl.stored.Losses)
}

func TestOthersFollowTheOneThatWasElectedUnclean(t *testing.T) { // rules 4 and 7
	s := script(t, 3, true, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.isolate(s.nodes[2])
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(2) }))
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	require.Equal(t, int64(6), s.nodes[1].disk.confirmed)
	clear(s.cut)
	s.cut[[2]int64{2, 0}] = true // it does not catch up
	s.runFor(2 * time.Second)
	epoch := s.designate(2, true)
	require.Positive(t, epoch)
	require.True(t, s.until(10*time.Second, func() bool { return s.master() == s.nodes[2] }))
	assert.Equal(t, []Loss{{Epoch: epoch, ID: 2}}, s.ctl.stored.Losses)
	s.runFor(2 * time.Second)
	clear(s.cut)
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(3) }), "they give up what they know to be confirmed")
	assert.Equal(t, int64(3), s.nodes[0].disk.end())

	assert.True(t, GivenUp([]Epoch{{1, 1}}, 6, epoch, epoch))
	assert.True(t, GivenUp([]Epoch{{1, 1}}, 6, epoch, epoch+3), "by a later master, too")
	assert.False(t, GivenUp([]Epoch{{1, 1}, {epoch, 4}}, 6, epoch, epoch+3), "what was confirmed since has to be there")
	assert.False(t, GivenUp([]Epoch{{1, 1}}, 6, epoch, epoch-1), "the master is of a time before")
	assert.False(t, GivenUp([]Epoch{{1, 1}}, 6, 0, epoch), "nobody was elected unclean")
}

func TestOrderThatIsWithdrawnIsNeverCarriedOut(t *testing.T) { // rule 4
	for _, when := range []string{"asked", "pending", "restarted"} {
		s := script(t, 3, true, guardNone)
		s.isolate(s.nodes[2])
		require.True(t, s.until(10*time.Second, func() bool { return s.inSync(2) }))
		require.Equal(t, 3, s.sends(s.nodes[0], 3))
		clear(s.cut)
		s.cut[[2]int64{2, 0}] = true
		s.runFor(2 * time.Second)
		switch when {
		case "asked":
			s.cut[[2]int64{NoReplica, 2}] = true
			epoch := s.designate(2, true)
			require.Positive(t, epoch)
			s.runFor(time.Second)
			s.withdraw(2, epoch)
		default:
			epoch := s.designate(2, true)
			require.True(t, s.until(10*time.Second, func() bool { return s.ctl.stored.Pending == 2 }))
			if when == "pending" {
				s.withdraw(2, epoch)
			} else {
				s.kill(s.ctl) // nobody can withdraw it any more
				delete(s.orders, epoch)
				s.startController()
			}
		}
		assert.Empty(t, s.ctl.told.Refusal)
		clear(s.cut)
		m, _ := s.takesOver(t, s.nodes[2])
		assert.NotEqual(t, s.nodes[2], m, when)
		assert.Empty(t, s.ctl.stored.Losses)
		require.True(t, s.until(20*time.Second, func() bool { return s.inSync(3) }), when)
	}
}

func TestOrderForOneThatIsGoneIsRefused(t *testing.T) {
	s := script(t, 3, true, guardNone)
	s.kill(s.nodes[2])
	s.runFor(10 * time.Second)
	for _, unclean := range []bool{true, false} {
		for _, id := range []int64{2, 7} {
			assert.Zero(t, s.designate(id, unclean))
			assert.Equal(t, RefusedAbsent, s.ctl.told.Refusal)
		}
	}
	assert.Equal(t, s.nodes[0], s.master())
	s.start(s.nodes[2])
	s.cut[[2]int64{2, 0}] = true
	s.runFor(2 * time.Second)
	assert.Zero(t, s.designate(2, false))
	assert.Equal(t, RefusedOutside, s.ctl.told.Refusal)
}

// asUnled is a world of a group that was replicated without elections: the first node has
// so many records, the others fewer, all of epoch 1.
func asUnled(t *testing.T, records ...int) *sim {
	t.Helper()
	s := newSim(1, simConfig{
		replicas: len(records), minInSync: 2, syncAcks: true, calm: true,
		lease: 5 * time.Second, renew: time.Second, maxLag: 15 * time.Second, maxGone: 100 * time.Millisecond,
		disks: func(s *sim) {
			log := make([]*simRecord, slices.Max(records))
			for k := range log {
				log[k] = &simRecord{id: -1 - int64(k), epoch: 1}
				s.answered[int64(k)+1] = log[k]
			}
			for k, n := range s.nodes {
				n.disk = simDisk{log: slices.Clone(log[:records[k]]), epochs: []Epoch{{1, 1}}, unelected: 1, synced: records[k]}
			}
		},
		trace: func(format string, args ...any) { t.Logf(format, args...) },
	})
	t.Cleanup(func() { assert.NoError(t, s.violated) })
	return s
}

func TestFirstMasterHasWhatWasAnsweredWithoutElections(t *testing.T) { // rule 8
	s := asUnled(t, 9, 4, 0)
	require.True(t, s.until(5*time.Second, func() bool { return s.inSync(3) }))
	assert.Equal(t, s.nodes[0], s.master())
	assert.Equal(t, int64(2), s.nodes[0].epoch, "above what there was")
	assert.Equal(t, s.nodes[0].disk.log, s.nodes[2].disk.log)

	s = asUnled(t, 4, 9, 0)
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master(), "node 1 has what node 0 has lost")
	assert.Equal(t, RefusedBehind, s.ctl.c.Stuck())
	assert.Zero(t, s.ctl.stored.Epoch)
	require.Zero(t, s.designate(1, false))
	assert.Equal(t, RefusedBehind, s.ctl.told.Refusal)
	epoch := s.designate(1, true)
	require.Positive(t, epoch)
	require.True(t, s.until(20*time.Second, func() bool { return s.inSync(3) }))
	assert.Equal(t, []Loss{{Epoch: epoch, ID: 1}}, s.ctl.stored.Losses)
	assert.Equal(t, s.nodes[1].disk.log, s.nodes[0].disk.log)

	s = asUnled(t, 9, 4, 9)
	s.nodes[2].disk.unelected = 2
	s.kill(s.nodes[2])
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master(), "not all have been heard")
	s.start(s.nodes[2])
	s.runFor(20 * time.Second)
	assert.Equal(t, RefusedBehind, s.ctl.c.Stuck(), "node 2 has followed a later master than node 0 was")
}

func TestStateThatIsLostIsReplacedByAnOrder(t *testing.T) { // rule 8
	s := script(t, 3, true, guardNone)
	require.Equal(t, 3, s.sends(s.nodes[0], 3))
	s.kill(s.nodes[0])
	s.takesOver(t, s.nodes[0])
	was := s.master()
	s.kill(s.ctl)
	s.ctl.stored = nil
	s.startController()
	s.runFor(10 * time.Second)
	require.Zero(t, s.designate(was.id, true), "node 0 may have promised more")
	assert.Equal(t, RefusedEarly, s.ctl.told.Refusal)
	s.start(s.nodes[0])
	s.runFor(2 * time.Second)
	assert.Nil(t, s.master())
	epoch := s.designate(was.id, true)
	assert.Greater(t, epoch, was.r.Seen()+epochsForgotten)
	assert.Greater(t, epoch, s.nodes[0].r.Seen()+epochsForgotten)
	require.True(t, s.until(10*time.Second, func() bool { return s.inSync(3) }))
	assert.Equal(t, was, s.master())
	assert.Equal(t, []Loss{{Epoch: epoch, ID: was.id}}, s.ctl.stored.Losses)
	assert.Len(t, was.disk.log, 3)

	// An order that nobody waits for any more leaves nobody clean, and no way back to the
	// time before.
	s.kill(s.ctl)
	s.ctl.stored = nil
	s.startController()
	s.runFor(3 * time.Second)
	epoch = s.designate(1, true)
	require.Positive(t, epoch)
	s.withdraw(1, epoch)
	s.kill(s.ctl)
	s.startController()
	s.runFor(20 * time.Second)
	assert.Nil(t, s.master())
	assert.False(t, s.electable())
	require.Positive(t, s.designate(2, true))
	require.True(t, s.until(10*time.Second, func() bool { return s.master() == s.nodes[2] }))
}
