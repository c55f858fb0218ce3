package rebalance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// queuesOf makes n queues of each broker, sorted.
func queuesOf(n int, brokers ...string) []message.Queue {
	var queues []message.Queue
	for _, b := range brokers {
		for i := range n {
			queues = append(queues, message.Queue{Topic: "T", BrokerName: b, QueueID: i})
		}
	}
	return queues
}

func membersOf(n int) []string {
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf("10.0.0.1@4711#%04x", i))
	}
	return members
}

func allocate(t *testing.T, self string, queues []message.Queue, members []string) []message.Queue {
	t.Helper()
	share, err := Averagely.Allocate("G", self, queues, members)
	require.NoError(t, err)
	return share
}

// checkShares states what all members' shares together must be.
func checkShares(t *testing.T, queues []message.Queue, members []string) {
	t.Helper()
	var all []message.Queue
	sizes := make([]int, len(members))
	for i, m := range members {
		share := allocate(t, m, queues, members)
		sizes[i] = len(share)
		if len(share) > 0 { // contiguous
			at := slices.Index(queues, share[0])
			require.Equal(t, queues[at:at+len(share)], share)
		}
		all = append(all, share...)
	}
	// One after the other they are the queues: disjoint, complete, in order.
	require.Equal(t, queues, all)
	require.LessOrEqual(t, slices.Max(sizes)-slices.Min(sizes), 1)
	require.True(t, slices.IsSortedFunc(sizes, func(a, b int) int { return b - a }), "the first ones get more: %v", sizes)
}

func TestRB01_EveryPairOfQueuesAndMembersIsSharedWhole(t *testing.T) {
	for q := 1; q <= 20; q++ {
		for c := 1; c <= 20; c++ {
			checkShares(t, queuesOf(q, "broker-a"), membersOf(c))
			if q%2 == 0 {
				checkShares(t, queuesOf(q/2, "broker-a", "broker-b"), membersOf(c))
			}
		}
	}
}

func TestRB01_EightQueuesOfTwoBrokersAmongThree(t *testing.T) {
	queues, members := queuesOf(4, "broker-a", "broker-b"), membersOf(3)
	assert.Equal(t, queues[0:3], allocate(t, members[0], queues, members))
	assert.Equal(t, queues[3:6], allocate(t, members[1], queues, members))
	assert.Equal(t, queues[6:8], allocate(t, members[2], queues, members))
}

func TestRB01_QueueTenComesAfterQueueTwo(t *testing.T) {
	queues, members := queuesOf(11, "broker-a"), []string{"c1", "c2"}
	var ids []int
	for _, q := range allocate(t, "c1", queues, members) {
		ids = append(ids, q.QueueID)
	}
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, ids)
	checkShares(t, queues, members)
}

func TestRB01_SharesFitTogetherInAnyOrderAndArgumentsStay(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		queues := queuesOf(1+rng.IntN(12), []string{"a", "b", "c"}[:1+rng.IntN(3)]...)
		members := membersOf(1 + rng.IntN(9))
		rng.Shuffle(len(queues), func(i, j int) { queues[i], queues[j] = queues[j], queues[i] })
		rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		givenQ, givenM := slices.Clone(queues), slices.Clone(members)
		checkShares(t, queues, members)
		require.Equal(t, givenQ, queues)
		require.Equal(t, givenM, members)
	}
}

func TestMembersBeyondTheQueuesHoldNone(t *testing.T) {
	queues, members := queuesOf(4, "a"), membersOf(6)
	for i, m := range members {
		assert.Len(t, allocate(t, m, queues, members), map[bool]int{true: 1, false: 0}[i < 4])
	}
}
