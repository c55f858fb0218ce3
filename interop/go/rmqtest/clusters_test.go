package rmqtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// leftBehind are the functions of the official client whose goroutines may stay
// for a while, with why.
var leftBehind = map[string]string{
	"internal.(*rmqClient).Start.func1":            "sleep 10 s before they look whether the client has ended",
	"consumer.(*pushConsumer).Start":               "share the queues once more, and wait up to 3 s for answers on a connection that is closed",
	"consumer.(*pushConsumer).Start.func1":         "sleeps ConsumeTimeout, 15 min, before it looks",
	"consumer.(*pushConsumer).Start.func1.1":       "wait up to 30 s for the answer to a pull, on a connection that is closed",
	"consumer.(*statsItemSet).init":                "sleep until the next minute, hour and month",
	"internal/remote.(*remotingClient).processCMD": "share the queues, as a broker asked for, and wait up to 3 s for answers on a connection that is closed",
}

// TestTwentyClustersOneAfterAnother: each has an official producer and an
// official consumer, and none is bothered by those before it.
func TestTwentyClustersOneAfterAnother(t *testing.T) {
	const clusters, n = 20, 10
	before := officialGoroutines(t)
	begun := time.Now()
	for i := range clusters {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{})
			topic := rmqtest.Topic(t, c, 2)
			got := make(chan string, n)
			co := rmqtest.Consumer(t, c, "G", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
			require.NoError(t, co.Subscribe(topic, all, func(_ context.Context, m ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				got <- string(m[0].Body)
				return consumer.ConsumeSuccess, nil
			}))
			require.NoError(t, co.Start())
			p := rmqtest.Producer(t, c)
			for k := range n {
				_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, fmt.Append(nil, k)))
				require.NoError(t, err)
			}
			bodies := make(map[string]bool)
			for len(bodies) < n {
				bodies[<-got] = true
			}
		})
	}
	took := time.Since(begun)
	// Connections end with their servers: no goroutine that reads one stays.
	const reader = "internal/remote.(*remotingClient).connect"
	require.Eventually(t, func() bool { return officialGoroutines(t)[reader] <= before[reader] }, 10*time.Second, 10*time.Millisecond, "goroutines that read from connections")
	left := officialGoroutines(t)
	sum := 0
	for _, starter := range slices.Sorted(maps.Keys(left)) {
		count := left[starter] - before[starter]
		if count <= 0 {
			continue
		}
		why, known := leftBehind[starter]
		assert.True(t, known, "%d goroutines started by %s are left", count, starter)
		t.Logf("%4d left, started by %s: %s", count, starter, why)
		sum += count
	}
	fmt.Printf("interop: kit/20 clusters: %d sent, %d consumed, lost 0, %v each, %d goroutines of the official client still asleep, no connection left\n",
		clusters*n, clusters*n, (took / clusters).Round(time.Millisecond), sum)
}

// TestAClusterClosesAtOnceWhileOfficialPullsAreHeld: brokers hold a pull that
// finds nothing for up to 20 s; they do not wait for that when they close. 100 ms
// are promised, of which a few are needed.
//
// The median of several counts: a file system that is busy with something else
// takes its time to remove a throwaway folder, few as the files in it are. On a
// machine where that is the rule, how long Close takes while nothing is held is the
// measure: the promise is then ten times that, below any wait for a pull, which each
// Close would have.
func TestAClusterClosesAtOnceWhileOfficialPullsAreHeld(t *testing.T) {
	const promised, rounds = 100 * time.Millisecond, 11
	closing := func(consume bool) (took time.Duration, pulls int) {
		c := run(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
		topic := rmqtest.Topic(t, c, 8)
		if consume {
			co := rmqtest.Consumer(t, c, "G")
			require.NoError(t, co.Subscribe(topic, all, accept))
			require.NoError(t, co.Start())
			require.Eventually(t, func() bool {
				pulls = 0
				for b := range c.Brokers() {
					pulls += b.Status().HeldPulls
				}
				return pulls >= 16
			}, 20*time.Second, 5*time.Millisecond, "all queues of both brokers are pulled")
		}
		begun := time.Now()
		require.NoError(t, c.Close())
		return time.Since(begun), pulls
	}
	var took, bare []time.Duration
	pulls := 0
	for range rounds {
		without, _ := closing(false)
		with, held := closing(true)
		took, bare, pulls = append(took, with), append(bare, without), held
	}
	slices.Sort(took)
	slices.Sort(bare)
	median, floor := took[rounds/2], bare[rounds/2]
	fmt.Printf("interop: kit/close: a cluster of 2 brokers with %d held official pulls closed in %v, one without in %v, medians of %d\n",
		pulls, median.Round(10*time.Microsecond), floor.Round(10*time.Microsecond), rounds)
	assert.Less(t, median, min(max(promised, 10*floor), 5*time.Second))
}
