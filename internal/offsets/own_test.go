package offsets

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

var (
	ownSeed  = flag.Uint64("own.seed", 0, "first seed of TestHA04_RandomHistories; 0 = random")
	ownCount = flag.Int("own.count", 20, "how many seeds TestHA04_RandomHistories tries")
)

func endless(string, int) int64 { return math.MaxInt64 }

func offset(group, topic string, queue int, n int64) protocol.GroupOffset {
	return protocol.GroupOffset{Group: group, Topic: topic, QueueID: queue, Offset: n}
}

// exchange is what a slave and its master do every few seconds.
func exchange(t *testing.T, master, slave *Table) {
	t.Helper()
	own := slave.Own(0)
	_, err := master.Merge(own, endless)
	require.NoError(t, err)
	all, err := master.Export()
	require.NoError(t, err)
	slave.Given(own)
	require.NoError(t, slave.Replace(all))
}

func TestHA04_ProgressMadeAtASlaveSurvivesItsMastersReturn(t *testing.T) {
	dir := t.TempDir()
	o := func(name string) Options { return Options{File: filepath.Join(dir, name), NoSync: true} }
	master, slave := open(t, o("master.json")), open(t, o("slave.json"))
	slave.Follow()
	master.Commit("g", "t", 0, 35)
	require.NoError(t, master.Persist())
	master.Commit("g", "t", 0, 40)
	exchange(t, master, slave)
	requireOffset(t, slave, 40, "g", "t", 0)
	assert.Empty(t, slave.Own(0), "it is the master's")

	// The master is gone; the slave is started again in between.
	assert.True(t, slave.Commit("g", "t", 0, 70))
	require.NoError(t, slave.Persist())
	slave = open(t, o("slave.json"))
	slave.Follow()
	assert.True(t, slave.Advance("g", "t", 0, 100))
	assert.False(t, slave.Advance("g", "t", 0, 90))
	assert.True(t, slave.Commit("h", "t", 1, 5))
	assert.Equal(t, []protocol.OwnOffset{{GroupOffset: offset("g", "t", 0, 100)}, {GroupOffset: offset("h", "t", 1, 5)}}, slave.Own(0))
	assert.Len(t, slave.Own(1), 1)

	// It was killed, and comes back with what it had saved.
	master = open(t, o("master.json"))
	requireOffset(t, master, 35, "g", "t", 0)
	all, err := master.Export()
	require.NoError(t, err)
	require.NoError(t, slave.Replace(all))
	requireOffset(t, slave, 100, "g", "t", 0)
	require.NoError(t, slave.Persist())
	slave = open(t, o("slave.json"))
	slave.Follow()
	exchange(t, master, slave)
	requireOffset(t, master, 100, "g", "t", 0)
	requireOffset(t, slave, 100, "g", "t", 0)
	requireOffset(t, master, 5, "h", "t", 1)
	assert.Empty(t, slave.Own(0))
	master.Commit("g", "t", 0, 99) // that of a member there
	exchange(t, master, slave)
	requireOffset(t, slave, 99, "g", "t", 0)
}

func TestHA04_AResetAtTheMasterWinsOverWhatWasCommittedBefore(t *testing.T) {
	for name, move := range map[string]func(*Table){
		"reset":            func(m *Table) { m.Reset("g", "t", 0, 60) },
		"reset, taken":     func(m *Table) { m.Reset("g", "t", 0, 60); m.TakeReset("g", "t", 0); m.Commit("g", "t", 0, 60) },
		"set":              func(m *Table) { m.Set("g", "t", 0, 60) },
		"topic made anew":  func(m *Table) { m.DeleteTopic("t"); m.Commit("g", "t", 0, 60) },
		"group made anew":  func(m *Table) { m.DeleteGroup("g"); m.Commit("g", "t", 0, 60) },
		"restart, started": func(m *Table) { m.Restart("g", "t", 0); m.Started("g", "t", 0); m.Commit("g", "t", 0, 60) },
	} {
		t.Run(name, func(t *testing.T) {
			master, slave := open(t, Options{}), open(t, Options{})
			slave.Follow()
			master.Commit("g", "t", 0, 40)
			exchange(t, master, slave)
			slave.Commit("g", "t", 0, 100)
			move(master)
			own := slave.Own(0)
			taken, err := master.Merge(own, endless)
			require.NoError(t, err)
			assert.Empty(t, taken)
			requireOffset(t, master, 60, "g", "t", 0)
			all, err := master.Export()
			require.NoError(t, err)
			require.NoError(t, slave.Replace(all), "without Given: the slave finds it out itself")
			requireOffset(t, slave, 60, "g", "t", 0)
			assert.Empty(t, slave.Own(0))
			assert.Equal(t, master.ResetWaits("g", "t", 0), slave.ResetWaits("g", "t", 0))
		})
	}
}

func TestAResetThatASlaveHasToldIsOverAtTheMaster(t *testing.T) {
	master, slave := open(t, Options{}), open(t, Options{})
	slave.Follow()
	master.Commit("g", "t", 0, 100)
	master.Reset("g", "t", 0, 60)
	exchange(t, master, slave)
	assert.False(t, slave.Commit("g", "t", 0, 101), "it waits here, too")
	at, first, ok := slave.TakeReset("g", "t", 0)
	assert.Equal(t, []any{int64(60), false, true}, []any{at, first, ok})
	assert.True(t, master.ResetWaits("g", "t", 0))
	all, err := master.Export()
	require.NoError(t, err)
	require.NoError(t, slave.Replace(all))
	assert.False(t, slave.ResetWaits("g", "t", 0), "nobody is told twice")

	taken, err := master.Merge(slave.Own(0), endless)
	require.NoError(t, err)
	assert.Equal(t, []protocol.GroupOffset{offset("g", "t", 0, 60)}, taken)
	assert.False(t, master.ResetWaits("g", "t", 0))
	assert.True(t, master.Commit("g", "t", 0, 61))

	master.Restart("g", "t", 1)
	exchange(t, master, slave)
	_, first, ok = slave.TakeReset("g", "t", 1)
	assert.True(t, ok && first)
	assert.True(t, slave.Commit("g", "t", 1, 3))
	exchange(t, master, slave)
	requireOffset(t, master, 3, "g", "t", 1)
	assert.False(t, master.ResetWaits("g", "t", 1))
}

func TestMergeTakesNothingBeyondTheLogAndNothingTwice(t *testing.T) {
	master := open(t, Options{})
	own := []protocol.OwnOffset{
		{GroupOffset: offset("g", "t", 0, 100)}, {GroupOffset: offset("g", "gone", 0, 100)},
		{GroupOffset: offset("g", "t", -1, 1)}, {GroupOffset: offset("g", "t", 2, -1)},
	}
	end := func(topic string, _ int) int64 {
		_, _ = master.Query("g", topic, 0) // no lock is held
		if topic == "gone" {
			return -1
		}
		return 90
	}
	taken, err := master.Merge(own, end)
	require.NoError(t, err)
	assert.Equal(t, []protocol.GroupOffset{offset("g", "t", 0, 90)}, taken)
	assert.Equal(t, map[Key]int64{{"t", 0}: 90}, master.Group("g"))
	taken, err = master.Merge(own, end)
	require.NoError(t, err)
	assert.Empty(t, taken)

	master.Follow()
	_, err = master.Merge(own, end)
	assert.ErrorIs(t, err, ErrFollowing)
}

func TestGivenLeavesWhatWasCommittedSince(t *testing.T) {
	slave := open(t, Options{})
	slave.Follow()
	for q := range 3 {
		slave.Commit("g", "t", q, 10)
	}
	own := slave.Own(0)
	slave.Commit("g", "t", 1, 11)
	slave.Drop("g", "t", 2)
	slave.Given(own)
	assert.Equal(t, []protocol.OwnOffset{{GroupOffset: offset("g", "t", 1, 11)}}, slave.Own(0))
}

func TestHA03_WhatIsASlavesOwnIsClampedAtItsPromotion(t *testing.T) {
	master, slave := open(t, Options{}), open(t, Options{})
	slave.Follow()
	master.Commit("g", "t", 0, 100)
	master.Reset("h", "t", 0, 100)
	exchange(t, master, slave)
	slave.Commit("g", "t", 1, 100)
	assert.Equal(t, 4, slave.Clamp(func(string, int) int64 { return 90 }), "a reset has an offset and what waits")
	assert.Equal(t, []protocol.OwnOffset{{GroupOffset: offset("g", "t", 1, 90), Moved: 1}}, slave.Own(0))
	slave.Lead(2)
	assert.Empty(t, slave.Own(0))
	assert.Equal(t, map[Key]int64{{"t", 0}: 90, {"t", 1}: 90}, slave.Group("g"))
	at, _, ok := slave.TakeReset("h", "t", 0)
	assert.True(t, ok)
	assert.EqualValues(t, 90, at)
	assert.Empty(t, slave.Own(0), "a master has nothing of its own")
}

// What a former master has moved, and nobody else knows of, must not look like a
// move of the new one.
func TestMovesOfALaterStateAreLaterThanThoseThatWereLost(t *testing.T) {
	former, next, third := open(t, Options{}), open(t, Options{}), open(t, Options{})
	former.Lead(1)
	next.Follow()
	third.Follow()
	former.Commit("g", "t", 0, 40)
	exchange(t, former, next)
	former.Reset("x", "y", 0, 0) // only third has heard of it
	exchange(t, former, third)
	third.Commit("g", "t", 0, 100)
	next.Lead(2)
	next.Reset("g", "t", 0, 20)
	exchange(t, next, third)
	requireOffset(t, next, 20, "g", "t", 0)
	requireOffset(t, third, 20, "g", "t", 0)

	all, err := former.Export()
	require.NoError(t, err)
	err = third.Replace(all)
	require.ErrorIs(t, err, protocol.ErrStaleVersion)
	assert.ErrorContains(t, err, "state 1")
	requireOffset(t, third, 20, "g", "t", 0)
	former.Follow()
	exchange(t, next, former)
	assert.Equal(t, next.Group("g"), former.Group("g"))
	next.Lead(1)
	all, err = next.Export()
	require.NoError(t, err)
	assert.EqualValues(t, 2, all.Version.StateVersion, "never lower")
}

func TestOwnOffsetsOutliveAMasterThatBeginsAnew(t *testing.T) {
	master, slave := open(t, Options{}), open(t, Options{})
	slave.Follow()
	master.Reset("x", "y", 0, 0)
	exchange(t, master, slave)
	slave.Commit("g", "t", 0, 100)
	master = open(t, Options{})
	all, err := master.Export()
	require.NoError(t, err)
	require.NoError(t, slave.Replace(all))
	master.Reset("g", "t", 0, 7)
	exchange(t, master, slave)
	requireOffset(t, slave, 7, "g", "t", 0)
}

func TestCommitOfAKnownQueueAtASlaveDoesNotAllocate(t *testing.T) {
	table := open(t, Options{})
	table.Follow()
	n := int64(0)
	table.Commit("g", "t", 0, n)
	assert.Zero(t, testing.AllocsPerRun(100, func() { n++; table.Commit("g", "t", 0, n) }))
}

func TestHA04_CommitsWhileTheTableIsReplacedAreNotLost(t *testing.T) {
	master, slave := open(t, Options{}), open(t, Options{})
	slave.Follow()
	var wg sync.WaitGroup
	for q := range 4 {
		wg.Go(func() {
			for n := range int64(300) {
				assert.True(t, slave.Commit("g", "t", q, n))
			}
		})
	}
	for range 100 {
		exchange(t, master, slave)
	}
	wg.Wait()
	for range 2 {
		exchange(t, master, slave)
	}
	for q := range 4 {
		requireOffset(t, slave, 299, "g", "t", q)
		requireOffset(t, master, 299, "g", "t", q)
	}
}

// pair is a master and a slave whose commits are told apart by their numbers.
type pair struct {
	*testing.T
	rng           *rand.Rand
	dir           string
	master, slave *Table

	moved map[place]int          // of each queue, the last move, as they happened
	count int                    // moves
	knows int                    // the last one that is in what the slave has applied
	born  map[int64]int          // commit -> moves that were known where it was made
	queue map[int64]place        // commit -> its queue
	way   []protocol.OffsetTable // tables on their way to the slave
	knew  []int                  // of each, the last move in it
	given [][]protocol.OwnOffset // of each, what was given for it
}

func TestHA04_RandomHistories(t *testing.T) {
	seed := *ownSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	dir := t.TempDir()
	for i := range uint64(*ownCount) {
		t.Logf("-own.seed %d", seed+i)
		p := &pair{T: t, rng: rand.New(rand.NewPCG(seed+i, 0)), dir: filepath.Join(dir, fmt.Sprint(i)),
			moved: make(map[place]int), born: make(map[int64]int), queue: make(map[int64]place)}
		p.master, p.slave = p.open("master"), p.open("slave")
		p.slave.Follow()
		for range 60 {
			p.step()
			p.check()
		}
		p.way, p.knew, p.given = nil, nil, nil
		exchange(t, p.master, p.slave)
		theirs, _ := p.master.snapshot()
		ours, own := p.slave.snapshot()
		require.Equal(t, theirs, ours)
		require.Empty(t, own)
		if t.Failed() {
			return
		}
	}
}

func (p *pair) open(name string) *Table {
	table, err := Open(Options{File: filepath.Join(p.dir, name), NoSync: true})
	require.NoError(p, err)
	return table
}

func (p *pair) any() place {
	return place{fmt.Sprint("g", p.rng.IntN(2)), fmt.Sprint("t", p.rng.IntN(2)), p.rng.IntN(2)}
}

// fresh is an offset that was never used before.
func (p *pair) fresh(at place, known int) int64 {
	for {
		n := p.rng.Int64N(1 << 40)
		if _, used := p.born[n]; !used {
			p.born[n], p.queue[n] = known, at
			return n
		}
	}
}

func (p *pair) move(gone func(place) bool) {
	p.count++
	for g := range 2 {
		for t := range 2 {
			for q := range 2 {
				if at := (place{fmt.Sprint("g", g), fmt.Sprint("t", t), q}); gone(at) {
					p.moved[at] = p.count
				}
			}
		}
	}
}

func (p *pair) step() {
	at := p.any()
	is := func(o place) bool { return o == at }
	switch p.rng.IntN(14) {
	case 0, 1:
		p.master.Commit(at.group, at.topic, at.queue, p.fresh(at, p.count))
	case 2, 3, 4:
		p.slave.Commit(at.group, at.topic, at.queue, p.fresh(at, p.knows))
	case 5:
		p.move(is)
		p.master.Reset(at.group, at.topic, at.queue, p.fresh(at, p.count))
		require.NoError(p, p.master.Persist())
	case 6:
		p.master.TakeReset(at.group, at.topic, at.queue)
	case 7:
		p.slave.TakeReset(at.group, at.topic, at.queue)
	case 8:
		if p.rng.IntN(2) == 0 {
			p.move(func(o place) bool { return o.topic == at.topic })
			p.master.DeleteTopic(at.topic)
		} else {
			p.move(func(o place) bool { return o.group == at.group })
			p.master.DeleteGroup(at.group)
		}
		require.NoError(p, p.master.Persist())
	case 9, 10: // asks, and may get no answer
		own := p.slave.Own(p.rng.IntN(4))
		before := p.all(p.master)
		_, err := p.master.Merge(own, endless)
		require.NoError(p, err)
		for at, was := range before {
			now, ok := p.master.Query(at.group, at.topic, at.queue)
			require.True(p, ok && now >= was, "a merge never goes back")
		}
		once := p.all(p.master)
		p.rng.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
		taken, err := p.master.Merge(own, endless)
		require.NoError(p, err)
		require.Empty(p, taken)
		require.Equal(p, once, p.all(p.master))
		require.NoError(p, p.master.Persist())
		all, err := p.master.Export()
		require.NoError(p, err)
		if p.rng.IntN(4) > 0 && len(p.way) == 0 {
			p.way, p.knew, p.given = append(p.way, all), append(p.knew, p.count), append(p.given, own)
		}
	case 11: // the log has come that far
		if len(p.way) > 0 {
			own := p.slave.Own(0)
			p.slave.Given(p.given[0])
			require.NoError(p, p.slave.Replace(p.way[0]))
			p.knows = p.knew[0]
			p.way, p.knew, p.given = p.way[1:], p.knew[1:], p.given[1:]
			for _, o := range own {
				now, ok := p.slave.Query(o.Group, o.Topic, o.QueueID)
				switch moved := p.moved[placeOf(o.GroupOffset)]; {
				case moved <= p.born[o.Offset]:
					require.True(p, ok && now >= o.Offset, "what was committed here is not replaced by less")
				case moved <= p.knows:
					require.NotEqual(p, o.Offset, now, "what was committed before a move is gone")
				}
			}
		}
	case 12:
		require.NoError(p, p.slave.Persist())
		p.slave = p.open("slave")
		p.slave.Follow()
	case 13: // killed: what was committed since the last save is gone
		if p.rng.IntN(2) == 0 {
			require.NoError(p, p.master.Persist())
		}
		p.master = p.open("master")
	}
}

func (p *pair) all(t *Table) map[place]int64 {
	all := make(map[place]int64)
	maps.Insert(all, t.all())
	return all
}

// check: what counts at the master was committed by somebody who knew of the
// queue's last move, or is that move.
func (p *pair) check() {
	for at, n := range p.all(p.master) {
		require.Equal(p, at, p.queue[n])
		require.GreaterOrEqual(p, p.born[n], p.moved[at], "%v: %d was committed before the move", at, n)
	}
	for _, o := range p.slave.Own(0) {
		require.Equal(p, p.queue[o.Offset], placeOf(o.GroupOffset))
	}
}
