package ha

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ack is an ack in the epoch of cfg, of a slave that was sent what it says.
func ack(t *testing.T, s *InSync, now time.Time, conn ConnID, position int64) {
	t.Helper()
	s.Sent(conn, position)
	require.NoError(t, s.Ack(now, conn, s.cfg.Epoch, position))
}

func connect(t *testing.T, s *InSync, now time.Time, id, keep int64) ConnID {
	t.Helper()
	conn, err := s.Connect(now, id, 100+id, keep)
	require.NoError(t, err)
	return conn
}

func write(s *InSync, now time.Time, end int64) {
	s.Appended(now, end)
	s.Durable(now, end)
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

func controlled(set ...Member) InSyncConfig {
	return InSyncConfig{
		ID: 1, Epoch: 7, End: 10, Set: set, SetEpoch: 3, Controlled: true,
		Acks: AckAll, MinInSync: 2, MaxLag: 15 * time.Second, MaxGone: time.Second,
	}
}

func TestHA01_ImpossibleAcksAreRefusedAndChangeNothing(t *testing.T) {
	s := NewInSync(start, controlled())
	write(s, start, 20)
	conn := connect(t, s, start, 2, 10)
	s.Sent(conn, 15)
	ack(t, s, start, conn, 12)
	before := s.Slaves()
	for _, position := range []int64{16, 20, 21, 11, 0, -1, math.MaxInt64, math.MinInt64} {
		require.ErrorIs(t, s.Ack(start, conn, 7, position), ErrImpossibleAck, position)
	}
	require.ErrorIs(t, s.Ack(start, conn, 6, 13), ErrOldEpoch)
	require.ErrorIs(t, s.Ack(start, conn, 8, 13), ErrOldEpoch)
	require.ErrorIs(t, s.Ack(start, conn+1, 7, 13), ErrStaleConnection)
	require.ErrorIs(t, s.Ack(start, 0, 7, 13), ErrStaleConnection)
	assert.Equal(t, before, s.Slaves())
	_, err := s.Connect(start, 1, 5, 10)
	require.ErrorIs(t, err, ErrImpossibleAck, "the master's own id")
	_, err = s.Connect(start, 3, 5, 21)
	require.ErrorIs(t, err, ErrImpossibleAck, "beyond the log")

	s.Disconnect(start, conn)
	conn = connect(t, s, start, 2, 12)
	ack(t, s, start, conn, 20)
	assert.NoError(t, s.Answer(20), "a real slave replicates as if nothing had been")
}

func TestOneSlaveWithTwoConnectionsIsOneReplica(t *testing.T) {
	cfg := controlled()
	cfg.Controlled, cfg.Acks, cfg.InSyncReplicas = false, AckCount, 3
	s := NewInSync(start, cfg)
	write(s, start, 20)
	first := connect(t, s, start, 2, 10)
	ack(t, s, start, first, 20)
	second := connect(t, s, start, 2, 10)
	require.ErrorIs(t, s.Ack(start, first, 7, 20), ErrStaleConnection)
	ack(t, s, start, second, 20)
	assert.ErrorIs(t, s.Answer(20), ErrNotAcknowledged)
	assert.EqualError(t, s.Answer(20), "ha: 3 replicas, the master counted, have up to 0, not up to 20: not acknowledged by those who are waited for")
	ack(t, s, start, connect(t, s, start, 3, 10), 20)
	assert.NoError(t, s.Answer(20))
}

func TestALeavingMemberIsRequiredUntilTheSmallerSetIsStored(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	ack(t, s, start, two, 10)
	ack(t, s, start, three, 10)
	write(s, start, 20)
	ack(t, s, start, two, 20)
	s.Disconnect(start, three)
	require.Equal(t, after(time.Second), s.Deadline())
	s.Tick(after(time.Second))
	change, ok := s.Asked()
	require.True(t, ok)
	assert.Equal(t, Change{3, []Member{{1, 101}, {2, 102}}}, change)
	assert.Equal(t, []int64{1, 2, 3}, s.Required())
	require.ErrorIs(t, s.Answer(20), ErrNotAcknowledged)
	require.EqualError(t, s.Answer(20), "ha: all 3 that are in sync have up to 10, not up to 20: not acknowledged by those who are waited for")
	s.Stored(start, []Member{{1, 101}, {2, 102}, {3, 103}}, 3)
	require.ErrorIs(t, s.Answer(20), ErrNotAcknowledged, "what was stored before proves nothing")
	s.Stored(start, change.Set, 4)
	assert.NoError(t, s.Answer(20))
	assert.Equal(t, int64(20), s.Confirmed())
}

func TestARefusedChangeCountsUntilItCannotBeStoredAnyMore(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}))
	two := connect(t, s, start, 2, 10)
	ack(t, s, start, two, 10)
	change, ok := s.Asked()
	require.True(t, ok)
	assert.Equal(t, Change{3, []Member{{1, 101}, {2, 102}}}, change)
	s.Refused(2)
	again, _ := s.Asked()
	assert.Equal(t, change, again, "the refusal of another change")
	s.Refused(3)
	again, ok = s.Asked()
	require.True(t, ok)
	assert.Equal(t, Change{3, []Member{{1, 101}}}, again, "the stored set, to use up its version")
	assert.Equal(t, []int64{1, 2}, s.Required(), "a copy of the request may be on its way")
	s.Disconnect(start, two)
	s.Stored(start, []Member{{1, 101}}, 4)
	assert.Equal(t, []int64{1}, s.Required())
	_, ok = s.Asked()
	assert.False(t, ok)
}

func TestAJoinerHasAllThatWasAnsweredBeforeItIsAskedFor(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}))
	two := connect(t, s, start, 2, 10)
	write(s, start, 30)
	ack(t, s, start, two, 30)
	require.NoError(t, s.Answer(30))
	three := connect(t, s, start, 3, 10)
	ack(t, s, after(time.Second), three, 29) // of 30 that are answered, and not soon after it came
	_, ok := s.Asked()
	require.False(t, ok)
	assert.Equal(t, []int64{1, 2}, s.Required(), "it does not follow closely: nobody waits for it")
	write(s, after(time.Second), 40)
	ack(t, s, after(time.Second), two, 40)
	ack(t, s, after(2*time.Second), three, 30) // all there was when it acknowledged 29, 1 s ago
	assert.Equal(t, []int64{1, 2}, s.Required())
	ack(t, s, after(2*time.Second), three, 40)
	change, ok := s.Asked()
	require.True(t, ok)
	assert.Equal(t, []Member{{1, 101}, {2, 102}, {3, 103}}, change.Set)
	write(s, after(2*time.Second), 41)
	ack(t, s, after(2*time.Second), two, 41)
	assert.ErrorIs(t, s.Answer(41), ErrNotAcknowledged, "it counts from before it is asked for")
	assert.NoError(t, s.Answer(40))
}

func TestAJoinThatTakesTooLongStopsHoldingAnswers(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}))
	two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	write(s, start, 50)
	ack(t, s, start, two, 50)
	ack(t, s, after(100*time.Millisecond), three, 20) // more than there was when it came, and quickly
	assert.Equal(t, []int64{1, 2, 3}, s.Required())
	_, ok := s.Asked()
	require.False(t, ok, "it lacks what was answered")
	assert.Equal(t, int64(50), s.Confirmed(), "never goes back")
	at := s.Deadline()
	assert.Equal(t, after(1100*time.Millisecond), at)
	s.Tick(at)
	assert.Equal(t, []int64{1, 2}, s.Required())
}

func TestAMemberThatLagsForTooLongLeaves(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	ack(t, s, start, two, 10)
	ack(t, s, start, three, 10)
	write(s, after(time.Hour), 20)
	ack(t, s, after(time.Hour), two, 20)
	require.Equal(t, after(time.Hour+15*time.Second+1), s.Deadline(), "it had everything until the append")
	s.Tick(after(time.Hour + 15*time.Second))
	_, ok := s.Asked()
	require.False(t, ok)
	s.Tick(s.Deadline())
	change, ok := s.Asked()
	require.True(t, ok)
	assert.Equal(t, []Member{{1, 101}, {2, 102}}, change.Set)
}

// A slave whose disk is full comes again and again, and gets no further.
func TestAMemberThatComesAndGoesAndGetsNothingLeaves(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	ack(t, s, start, two, 10)
	ack(t, s, start, three, 10)
	write(s, start, 20)
	ack(t, s, start, two, 20)
	s.Disconnect(after(100*time.Millisecond), three)
	for i := range 3 {
		at := after(time.Duration(200+200*i) * time.Millisecond)
		three = connect(t, s, at, 3, 10)
		ack(t, s, at, three, 10)
		_, asked := s.Asked()
		require.False(t, asked)
		assert.Equal(t, after(1100*time.Millisecond), s.Deadline())
		s.Disconnect(at.Add(100*time.Millisecond), three)
	}
	connect(t, s, after(time.Second), 3, 10)
	s.Tick(after(1100 * time.Millisecond))
	change, asked := s.Asked()
	require.True(t, asked)
	assert.Equal(t, []Member{{1, 101}, {2, 102}}, change.Set)

	// One that catches up has been away for nothing.
	s = NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three = connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	ack(t, s, start, two, 10)
	ack(t, s, start, three, 10)
	write(s, start, 20)
	s.Disconnect(after(100*time.Millisecond), three)
	three = connect(t, s, after(200*time.Millisecond), 3, 10)
	ack(t, s, after(300*time.Millisecond), three, 20)
	ack(t, s, after(300*time.Millisecond), two, 20)
	write(s, after(400*time.Millisecond), 30)
	s.Tick(after(2 * time.Second))
	_, asked = s.Asked()
	assert.False(t, asked)
}

func TestAMemberThatSaysThatItGoesLeavesAtOnce(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	ack(t, s, start, two, 10)
	ack(t, s, start, three, 10)
	write(s, start, 20)
	ack(t, s, start, two, 20)
	s.Leave(start, three)
	change, asked := s.Asked()
	require.True(t, asked)
	assert.Equal(t, Change{Base: 3, Set: []Member{{1, 101}, {2, 102}}}, change)
	assert.Error(t, s.Answer(20), "it may be elected until the smaller set is stored")
	s.Stored(start, change.Set, 4)
	assert.NoError(t, s.Answer(20))

	s.Leave(start, two)
	_, asked = s.Asked()
	assert.False(t, asked, "the set would be too small")

	// Who has come back stays.
	s = NewInSync(start, controlled(Member{1, 101}, Member{2, 102}, Member{3, 103}))
	two, three = connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
	s.Leave(start, two)
	s.Leave(start, three) // not yet: one change at a time, and this one would leave too few
	three = connect(t, s, start, 3, 10)
	ack(t, s, start, three, 10)
	s.Stored(start, []Member{{1, 101}, {3, 103}}, 4)
	_, asked = s.Asked()
	assert.False(t, asked)
	s.Leave(start, two) // of a connection that has ended
	_, asked = s.Asked()
	assert.False(t, asked)
}

func TestASetTooSmallToAnswerIsNotAskedFor(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}))
	two := connect(t, s, start, 2, 10)
	ack(t, s, start, two, 10)
	require.NoError(t, s.MayAppend())
	s.Disconnect(start, two)
	require.ErrorIs(t, s.MayAppend(), ErrTooFewReplicas)
	s.Tick(after(time.Hour))
	_, ok := s.Asked()
	assert.False(t, ok, "replica 2 has all that was answered: it stays one that can be elected")
	assert.True(t, s.Deadline().IsZero())
}

func TestASetThatShrinksToTheMasterDuringAWaitAnswersNothing(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}))
	two := connect(t, s, start, 2, 10)
	ack(t, s, start, two, 10)
	require.NoError(t, s.MayAppend())
	write(s, start, 20)
	s.Disconnect(start, two)
	s.Stored(start, []Member{{1, 101}}, 4) // the controller has taken replica 2 out: it came back having lost records
	assert.ErrorIs(t, s.Answer(20), ErrTooFewReplicas)
	assert.Equal(t, int64(20), s.Confirmed(), "all of the set has it")
}

func TestAnAnswerRestsOnWhatTheModeSays(t *testing.T) {
	for name, c := range map[string]struct {
		acks       Acks
		count, min int
		want       int64
	}{
		"the master alone": {AckNone, 1, 2, 30},
		"one":              {AckCount, 1, 1, 20},
		"two":              {AckCount, 2, 1, 18},
		"three":            {AckCount, 3, 1, 15},
		"four":             {AckCount, 4, 1, 0},
		"all":              {AckAll, 1, 1, 15},
	} {
		s := NewInSync(start, InSyncConfig{ID: 1, End: 10, Acks: c.acks, InSyncReplicas: c.count, MinInSync: c.min, MaxLag: time.Hour})
		two, three := connect(t, s, start, 2, 10), connect(t, s, start, 3, 10)
		ack(t, s, start, two, 10)
		ack(t, s, start, three, 10)
		s.Appended(start, 30)
		s.Durable(start, 20)
		ack(t, s, start, two, 18)
		ack(t, s, start, three, 15)
		assert.Equal(t, c.want, s.Answerable(), name)
	}
}

func TestSlavesThatAreGoneAreRememberedUpToABound(t *testing.T) {
	s := NewInSync(start, controlled(Member{1, 101}, Member{2, 102}))
	for i := range int64(3 * maxKnown) {
		conn := connect(t, s, after(time.Duration(i)*time.Second), 10+i, 10)
		s.Disconnect(after(time.Duration(i)*time.Second), conn)
	}
	known := s.Slaves()
	require.Len(t, known, 1+maxKnown+1, "the member of the set, those that were gone when the last one came, and that one")
	assert.Equal(t, int64(2), known[0].ID, "a member counts, however long it has been away")
	assert.Equal(t, int64(10+3*maxKnown-1), known[len(known)-1].ID)
}
