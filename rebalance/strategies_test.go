package rebalance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// atRooms resolves the text before the first "@" of brokers and members.
type atRooms struct{}

func (atRooms) BrokerRoom(q message.Queue) string { return atRooms{}.ConsumerRoom(q.BrokerName) }
func (atRooms) ConsumerRoom(name string) string {
	room, _, _ := strings.Cut(name, "@")
	return room
}

// promise is a strategy and what its shares cover.
type promise struct {
	name     string
	strategy func() Strategy
	covers   func(q message.Queue) bool // nil = every queue
	even     bool                       // sizes differ by at most one
}

func promises() []promise {
	inRoom1 := func(q message.Queue) bool { return strings.HasPrefix(q.BrokerName, "r1@") }
	return []promise{
		{name: "AVG", strategy: func() Strategy { return Averagely }, even: true},
		{name: "AVG_BY_CIRCLE", strategy: func() Strategy { return AveragelyByCircle }, even: true},
		{name: "CONSISTENT_HASH", strategy: func() Strategy { return ConsistentHash(DefaultVirtualNodes) }},
		{name: "CONSISTENT_HASH with 1", strategy: func() Strategy { return ConsistentHash(1) }},
		{name: "MACHINE_ROOM", strategy: func() Strategy { return MachineRoom("r1", "r9") }, covers: inRoom1, even: true},
		{name: "MACHINE_ROOM_NEARBY-AVG", strategy: func() Strategy { return MachineRoomNearby(Averagely, atRooms{}) }},
		{name: "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE", strategy: func() Strategy { return MachineRoomNearby(AveragelyByCircle, atRooms{}) }},
		{name: "MACHINE_ROOM_NEARBY-CONSISTENT_HASH", strategy: func() Strategy { return MachineRoomNearby(ConsistentHash(3), atRooms{}) }},
		{name: "MACHINE_ROOM_NEARBY-MACHINE_ROOM", strategy: func() Strategy { return MachineRoomNearby(MachineRoom("r1"), atRooms{}) }, covers: inRoom1},
	}
}

// roomed makes a sorted world of queues and members in rooms.
func roomed(queues, members int, rng *rand.Rand) ([]message.Queue, []string) {
	rooms := []string{"r1", "r2", "r3", "r4"}
	var qs []message.Queue
	for i := range queues {
		qs = append(qs, message.Queue{Topic: "T", BrokerName: rooms[rng.IntN(4)] + "@b", QueueID: i})
	}
	var ms []string
	for i := range members {
		ms = append(ms, fmt.Sprintf("%s@%d#%04x", rooms[rng.IntN(3)], i%3, i))
	}
	slices.SortFunc(qs, message.Queue.Compare)
	SortMembers(ms)
	return qs, ms
}

// checkPromise computes every member's share and checks all that is promised.
func checkPromise(t *testing.T, p promise, queues []message.Queue, members []string) map[string][]message.Queue {
	t.Helper()
	s := p.strategy()
	givenQueues, givenMembers := slices.Clone(queues), slices.Clone(members)
	shares := make(map[string][]message.Queue, len(members))
	var all, want []message.Queue
	sizes := make([]int, 0, len(members))
	for _, m := range members {
		share, err := s.Allocate("G", m, queues, members)
		require.NoError(t, err)
		again, err := s.Allocate("G", m, queues, members)
		require.NoError(t, err)
		require.True(t, slices.Equal(share, again), "the same arguments, the same share")
		for i := range again { // the share is the caller's
			again[i] = message.Queue{Topic: "scribbled"}
		}
		_ = append(again, message.Queue{Topic: "scribbled"})
		require.True(t, slices.Equal(givenQueues, queues), "arguments are unchanged")
		require.True(t, slices.Equal(givenMembers, members), "arguments are unchanged")
		shares[m] = share
		all = append(all, share...)
		sizes = append(sizes, len(share))
	}
	for _, q := range queues {
		if p.covers == nil || p.covers(q) {
			want = append(want, q)
		}
	}
	slices.SortFunc(want, message.Queue.Compare)
	slices.SortFunc(all, message.Queue.Compare)
	require.True(t, slices.Equal(want, all), "disjoint and complete: want %v, got %v", want, all)
	if p.even {
		require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), 1, "even")
	}
	return shares
}

func TestRB01_SharesOfEveryStrategyAreDisjointAndComplete(t *testing.T) {
	for _, p := range promises() {
		t.Run(p.name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			for q := 1; q <= 20; q++ {
				for c := 1; c <= 20; c++ {
					queues, members := roomed(q, c, rng)
					checkPromise(t, p, queues, members)
				}
			}
		})
	}
}

// Whoever lists them first: once sorted, lists give the same shares.
func TestRB01_SharesDoNotDependOnTheOrderOfWhatBrokersAnswer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, p := range promises() {
		t.Run(p.name, func(t *testing.T) {
			for range 30 {
				queues, members := roomed(1+rng.IntN(30), 1+rng.IntN(9), rng)
				want := checkPromise(t, p, queues, members)
				rng.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
				rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
				unsorted := checkPromise(t, p, queues, members) // still fit together
				if strings.Contains(p.name, "HASH") {
					for m, share := range unsorted {
						assert.ElementsMatch(t, want[m], share, "no order matters on a ring")
					}
				}
				slices.SortFunc(queues, message.Queue.Compare)
				SortMembers(members)
				require.Equal(t, want, checkPromise(t, p, queues, members))
			}
		})
	}
}

func TestRB02_MembersBeyondTheQueuesHoldNoneUnderEveryStrategy(t *testing.T) {
	for _, p := range promises() {
		t.Run(p.name, func(t *testing.T) {
			var queues []message.Queue
			for i := range 4 {
				queues = append(queues, message.Queue{Topic: "T", BrokerName: "r1@b", QueueID: i})
			}
			members := []string{"r1@a", "r1@b", "r1@c", "r1@d", "r1@e", "r1@f"}
			shares := checkPromise(t, p, queues, members)
			if !strings.Contains(p.name, "HASH") {
				for i, m := range members {
					assert.Len(t, shares[m], map[bool]int{true: 1, false: 0}[i < 4])
				}
			}
			shares = checkPromise(t, p, queues, append(members[:2:2], members[3:]...)) // a holder stops
			assert.Len(t, shares, 5)
		})
	}
}

// Two clients with one id are one member to everybody: both compute the same.
func TestRB03_AnIDListedTwiceIsOneMemberThatHoldsTheFirstShare(t *testing.T) {
	queues := queuesOf(6, "r1@b")
	for _, p := range promises() {
		t.Run(p.name, func(t *testing.T) {
			s := p.strategy()
			members := []string{"r1@1", "r1@1", "r1@2"}
			a, err := s.Allocate("G", "r1@1", queues, members)
			require.NoError(t, err)
			b, err := s.Allocate("G", "r1@2", queues, members)
			require.NoError(t, err)
			for _, q := range a {
				assert.NotContains(t, b, q)
			}
			if p.even {
				assert.Len(t, a, 2)
				assert.Len(t, b, 2, "the share of the second of the two goes to nobody")
			}
		})
	}
}

func TestRB04_MachineRoomSharesQueuesOfItsRoomsOnly(t *testing.T) {
	queues, members := queuesOf(4, "r1@a", "r2@b"), membersOf(3)
	s := MachineRoom("r1")
	var all []message.Queue
	for i, m := range members {
		share, err := s.Allocate("G", m, queues, members)
		require.NoError(t, err)
		for _, q := range share {
			assert.Equal(t, "r1@a", q.BrokerName)
		}
		assert.Len(t, share, []int{2, 1, 1}[i], "the remainder is shared, too")
		all = append(all, share...)
	}
	assert.ElementsMatch(t, queues[:4], all)

	for name, f := range map[string]func() ([]message.Queue, error){
		"empty client id": func() ([]message.Queue, error) { return s.Allocate("G", "", queues, members) },
		"no queues":       func() ([]message.Queue, error) { return s.Allocate("G", members[0], nil, members) },
		"no members":      func() ([]message.Queue, error) { return s.Allocate("G", members[0], queues, nil) },
	} {
		share, err := f()
		assert.ErrorIs(t, err, ErrInvalidArguments, name)
		assert.Empty(t, share, name)
	}
	share, err := s.Allocate("G", "stranger", queues, members)
	assert.NoError(t, err)
	assert.Empty(t, share)
}

func TestRB04_RoomsOfBrokersAreReadAsInTheReference(t *testing.T) {
	for broker, holds := range map[string]bool{
		"r1@a": true, "r1@a@": true, "r1@a@@": true,
		"r1@a@b": false, "r1@": false, "r1@@": false, "r1": false, "r1a@b": false, "@r1": false, "@": false, "": false, "r1@@a": false,
	} {
		share, err := MachineRoom("r0", "r1").Allocate("G", "c", queuesOf(1, broker), []string{"c"})
		require.NoError(t, err)
		assert.Equal(t, holds, len(share) == 1, broker)
	}
	share, err := MachineRoom().Allocate("G", "c", queuesOf(1, "r1@a"), []string{"c"})
	require.NoError(t, err)
	assert.Empty(t, share)
}

func TestNearbyQueuesOfARoomWithoutMembersGoToAll(t *testing.T) {
	queues := queuesOf(3, "r1@a", "r2@a")
	s := MachineRoomNearby(Averagely, atRooms{})
	share := func(self string, members ...string) []message.Queue {
		got, err := s.Allocate("G", self, queues, members)
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, queues[:3], share("r1@1", "r1@1", "r2@1"))
	assert.Equal(t, queues[3:], share("r2@1", "r1@1", "r2@1"))
	assert.Equal(t, queues, share("r1@1", "r1@1"), "the other room's last member has gone")
	assert.Empty(t, share("r9@1", "r1@1", "r2@1", "r9@1"), "a member far from everything")
}

func TestNearbyNamesWhatHasNoRoom(t *testing.T) {
	s := MachineRoomNearby(Averagely, atRooms{})
	_, err := s.Allocate("G", "r1@c", queuesOf(1, "@b"), []string{"r1@c"})
	require.ErrorIs(t, err, ErrInvalidArguments)
	assert.ErrorContains(t, err, "T@@b:0")
	_, err = s.Allocate("G", "r1@c", queuesOf(1, "r1@b"), []string{"@x", "r1@c"})
	require.ErrorIs(t, err, ErrInvalidArguments)
	assert.ErrorContains(t, err, `"@x"`)
	for _, s := range []Strategy{MachineRoomNearby(nil, atRooms{}), MachineRoomNearby(Averagely, nil)} {
		_, err := s.Allocate("G", "c", queuesOf(1, "b"), []string{"c"})
		assert.ErrorIs(t, err, ErrInvalidArguments)
		assert.Contains(t, s.Name(), "MACHINE_ROOM_NEARBY-")
	}
	_, err = MachineRoomNearby(ConsistentHash(-1), atRooms{}).Allocate("G", "r1@c", queuesOf(1, "r1@b", "r2@b"), []string{"r1@c"})
	assert.ErrorIs(t, err, ErrInvalidArguments, "inner's error")
	_, err = MachineRoomNearby(ConsistentHash(-1), atRooms{}).Allocate("G", "r1@c", queuesOf(1, "r2@b"), []string{"r1@c"})
	assert.ErrorIs(t, err, ErrInvalidArguments, "inner's error")
}

func TestByConfigIsItsOwnListWhateverItIsAsked(t *testing.T) {
	list := queuesOf(2, "a")
	s := ByConfig(list...)
	list[0].Topic = "changed later"
	for range 2 {
		got, err := s.Allocate("", "", nil, nil)
		require.NoError(t, err)
		assert.Equal(t, queuesOf(2, "a"), got)
		got[0].Topic = "changed by the caller"
	}
	got, err := ByConfig().Allocate("G", "c", queuesOf(1, "a"), []string{"c"})
	require.NoError(t, err)
	assert.Nil(t, got)
}

func TestMissingArgumentsAreErrorsThatNameTheGroup(t *testing.T) {
	for _, p := range promises() {
		s := p.strategy()
		for _, f := range []func() ([]message.Queue, error){
			func() ([]message.Queue, error) { return s.Allocate("G", "", queuesOf(1, "r1@a"), []string{"r1@c"}) },
			func() ([]message.Queue, error) { return s.Allocate("G", "r1@c", nil, []string{"r1@c"}) },
			func() ([]message.Queue, error) { return s.Allocate("G", "r1@c", queuesOf(1, "r1@a"), nil) },
		} {
			share, err := f()
			assert.Empty(t, share)
			require.ErrorIs(t, err, ErrInvalidArguments, p.name)
			assert.ErrorContains(t, err, `"G"`, p.name)
		}
		share, err := s.Allocate("G", "stranger", queuesOf(4, "r1@a"), []string{"r1@c"})
		assert.NoError(t, err, p.name)
		assert.Empty(t, share, p.name)
	}
}

func TestConsistentHashMovesOnlyWhatItMust(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := ConsistentHash(DefaultVirtualNodes)
	owners := func(queues []message.Queue, members []string) map[message.Queue]string {
		owner := make(map[message.Queue]string)
		for _, m := range members {
			share, err := s.Allocate("G", m, queues, members)
			require.NoError(t, err)
			for _, q := range share {
				owner[q] = m
			}
		}
		return owner
	}
	for range 30 {
		queues, members := roomed(64, 2+rng.IntN(8), rng)
		before := owners(queues, members)
		i := rng.IntN(len(members))
		gone := members[i]
		after := owners(queues, slices.Delete(slices.Clone(members), i, i+1))
		for q, m := range before {
			if m != gone {
				assert.Equal(t, m, after[q], "a queue of a member that stays stays")
			}
		}
	}
}

func TestConsistentHashWithoutVirtualNodes(t *testing.T) {
	share, err := ConsistentHash(0).Allocate("G", "c", queuesOf(4, "a"), []string{"c"})
	require.NoError(t, err)
	assert.Empty(t, share)
	_, err = ConsistentHash(-1).Allocate("G", "c", queuesOf(4, "a"), []string{"c"})
	require.ErrorIs(t, err, ErrInvalidArguments)
	assert.ErrorContains(t, err, "-1")
}

// Of two virtual nodes with one hash the later counts, and a member that is
// listed again goes on numbering from the places that it has.
func TestRingOfMembersListedTwiceAndOfCollisions(t *testing.T) {
	nodes := settle([]virtualNode{{7, 0}, {3, 1}, {7, 2}, {3, 0}, {9, 1}})
	assert.Equal(t, []virtualNode{{3, 0}, {7, 2}, {9, 1}}, nodes)

	assert.Equal(t, newRing([]string{"a"}, 6).hashes, newRing([]string{"a", "a"}, 3).hashes)
	assert.Len(t, newRing([]string{"a", "b", "a"}, 10).hashes, 30)
}

func TestConsistentHashRemembersAFewRings(t *testing.T) {
	s := ConsistentHash(DefaultVirtualNodes).(*consistentHash)
	lists := make([][]string, keptRings)
	rings := make([]*ring, keptRings)
	for i := range lists {
		lists[i] = []string{"a", fmt.Sprint(i)}
		rings[i] = s.ring(lists[i])
	}
	for i := range lists {
		assert.Same(t, rings[i], s.ring(slices.Clone(lists[i])))
	}
	mine := []string{"c", "d"}
	r := s.ring(mine)
	mine[0] = "changed by the caller"
	assert.Same(t, r, s.ring([]string{"c", "d"}))
	assert.NotSame(t, rings[0], s.ring(lists[0]), "the oldest has gone")
}

func TestStrategiesAreSafeForConcurrentUse(t *testing.T) {
	for _, p := range promises() {
		s := p.strategy()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for n := range 50 {
					members := []string{"r1@1", fmt.Sprintf("r1@2%d", n%(keptRings+2))}
					all := 0
					for _, m := range members {
						share, err := s.Allocate("G", m, queuesOf(4, "r1@a"), members)
						assert.NoError(t, err)
						all += len(share)
					}
					assert.Equal(t, 4, all, "goroutine %d", i)
				}
			})
		}
		wg.Wait()
	}
}

type custom struct{ Strategy }

func TestBuiltInKnowsOurOwn(t *testing.T) {
	for _, p := range promises() {
		assert.True(t, BuiltIn(p.strategy()), p.name)
	}
	assert.True(t, BuiltIn(ByConfig()))
	assert.False(t, BuiltIn(nil))
	assert.False(t, BuiltIn(custom{Averagely}), "what wraps ours may do what it likes")
	assert.False(t, BuiltIn(MachineRoomNearby(custom{Averagely}, atRooms{})))
	assert.False(t, BuiltIn(MachineRoomNearby(nil, atRooms{})))
}

// FuzzStrategies looks for lists that some strategy does not share whole, and
// for panics. Lists may be unsorted; names are arbitrary.
func FuzzStrategies(f *testing.F) {
	f.Add("b", "c", uint8(8), uint8(3), int8(10))
	f.Add("r1@", "@", uint8(1), uint8(9), int8(1))
	f.Add("", "\xff", uint8(0), uint8(0), int8(-1))
	f.Fuzz(func(t *testing.T, broker, member string, queues, members uint8, nodes int8) {
		var qs []message.Queue
		for i := range int(queues % 64) {
			qs = append(qs, message.Queue{Topic: "T", BrokerName: "r1@" + broker + fmt.Sprint(i%3), QueueID: i})
		}
		var ms []string
		for i := range int(members % 32) {
			ms = append(ms, fmt.Sprintf("r%d@%s%d", i%3, member, i))
		}
		strategies := []Strategy{
			Averagely, AveragelyByCircle, ConsistentHash(int(nodes)), MachineRoom("r1"),
			MachineRoomNearby(AveragelyByCircle, atRooms{}), MachineRoomNearby(ConsistentHash(int(nodes)), atRooms{}),
		}
		for i, s := range strategies {
			err := Verify(s, "G", qs, ms)
			var found *VerifyError
			switch {
			case len(qs) == 0 || len(ms) == 0 || (i == 2 || i == 5) && nodes < 0:
				require.ErrorIs(t, err, ErrInvalidArguments, s.Name())
			case (i == 2 || i == 5) && nodes == 0, i == 3 && strings.Contains(broker, "@"):
				require.ErrorAs(t, err, &found)
				require.Empty(t, found.Overlaps)
			default:
				require.NoError(t, err, s.Name())
			}
		}
	})
}

func BenchmarkAllocate(b *testing.B) {
	queues, members := queuesOf(250, "r1@a", "r1@b", "r2@a", "r3@a"), membersOf(100)
	for i := range members {
		members[i] = fmt.Sprintf("r%d@%s", 1+i%2, members[i])
	}
	SortMembers(members)
	for _, p := range append(promises(), promise{name: "CONFIG", strategy: func() Strategy { return ByConfig(queues[:10]...) }}) {
		b.Run(p.name, func(b *testing.B) {
			s := p.strategy()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Allocate("G", members[50], queues, members); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("CONSISTENT_HASH with changing members", func(b *testing.B) {
		s := ConsistentHash(DefaultVirtualNodes)
		lists := make([][]string, keptRings+1) // more than are kept
		for i := range lists {
			lists[i] = slices.Delete(slices.Clone(members), i, i+1)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := s.Allocate("G", members[50], queues, lists[i%len(lists)]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	queues, members := queuesOf(250, "a", "b", "c", "d"), membersOf(100)
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(custom{Averagely}, "G", queues, members); err != nil {
			b.Fatal(err)
		}
	}
}
