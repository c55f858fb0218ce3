package fault

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func queuesOf(n int, brokers ...string) []message.Queue {
	var queues []message.Queue
	for _, b := range brokers {
		for i := range n {
			queues = append(queues, message.Queue{Topic: "T", BrokerName: b, QueueID: i})
		}
	}
	return queues
}

func TestNoQueuesNoPick(t *testing.T) {
	_, ok := NewCounter(0).Pick(nil, "")
	assert.False(t, ok)
	_, ok = new(Counter).Pick([]message.Queue{}, "a")
	assert.False(t, ok)
}

func TestQueuesArePickedInTurn(t *testing.T) {
	queues, c := queuesOf(2, "a", "b"), NewCounter(3)
	for i := range 12 {
		q, ok := c.Pick(queues, "")
		require.True(t, ok)
		assert.Equal(t, queues[i%4], q)
	}
}

// Every pick is right whatever the counter's value, around the wraps too.
func TestPickAvoidsTheLastBrokerWheneverItCan(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	starts := []int32{math.MaxInt32, math.MinInt32, -1, 0}
	for range 20_000 {
		brokers := []string{"a", "b", "c"}[:1+rng.IntN(3)]
		queues := queuesOf(1+rng.IntN(4), brokers...)
		if rng.IntN(2) == 0 { // one queue of another broker among many
			queues = append(queuesOf(1+rng.IntN(9), "a"), message.Queue{BrokerName: "b"})
			brokers = []string{"a", "b"}
		}
		given := slices.Clone(queues)
		c := NewCounter(starts[rng.IntN(len(starts))] + int32(rng.IntN(60)) - 30)
		last := []string{"", "a", "b", "unknown"}[rng.IntN(4)]
		q, ok := c.Pick(queues, last)
		require.True(t, ok)
		require.Contains(t, queues, q)
		require.Equal(t, given, queues)
		if slices.ContainsFunc(brokers, func(b string) bool { return b != last }) {
			require.NotEqual(t, last, q.BrokerName, "start %d", c.n.Load())
		}
	}
}

func TestConcurrentPicksAvoidTheLastBroker(t *testing.T) {
	queues, c := queuesOf(1, "a", "b"), NewCounter(math.MaxInt32-500)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1_000 {
				q, _ := c.Pick(queues, "a")
				assert.Equal(t, "b", q.BrokerName)
			}
		})
	}
	wg.Wait()
}

func TestConcurrentPicksShareOneTurn(t *testing.T) {
	queues, c := queuesOf(4, "a"), NewCounter(-1_000)
	var counts [4]atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1_000 {
				q, _ := c.Pick(queues, "")
				counts[q.QueueID].Add(1)
			}
		})
	}
	wg.Wait()
	for i := range counts {
		assert.EqualValues(t, 1_000, counts[i].Load(), "queue %d", i)
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	queues, c := queuesOf(4, "a", "b"), NewCounter(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() { c.Pick(queues, "a") }))
}

func BenchmarkPick(b *testing.B) {
	queues, c := queuesOf(8, "a", "b"), NewCounter(0)
	for name, last := range map[string]string{"any": "", "not the last broker": "a"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Pick(queues, last)
			}
		})
	}
}
