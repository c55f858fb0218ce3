package pocketmq_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

// strategy runs user code inside a rebalance, then shares as Averagely does.
type strategy func()

func (s strategy) Name() string { return "TEST" }

func (s strategy) Allocate(group, self string, queues []pocketmq.MessageQueue, members []string) ([]pocketmq.MessageQueue, error) {
	s()
	return rebalance.Averagely.Allocate(group, self, queues, members)
}

func nothing(context.Context, []*pocketmq.MessageExt) error { return nil }

func TestCloseFromAStrategyInStartDoesNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		var co *pocketmq.Consumer
		var closed error
		co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
			Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"), Handler: nothing,
			Strategy: strategy(func() { closed = co.Close() }),
		})
		require.NoError(t, err)
		assert.ErrorIs(t, co.Start(t.Context()), pocketmq.ErrClosed)
		assert.ErrorIs(t, closed, pocketmq.ErrHandlersRunning, "the strategy itself was running")
		assert.NoError(t, co.Close(), "it has returned")
		synctest.Wait()
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Empty(t, g.Members)
	})
}

func TestAStrategyThatEndsItsGoroutineInStartIsAFailedStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		var once atomic.Bool
		co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
			Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"), Handler: nothing,
			Strategy: strategy(func() {
				if once.CompareAndSwap(false, true) {
					runtime.Goexit()
				}
			}),
		})
		require.NoError(t, err)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = co.Start(context.Background())
		}()
		<-gone
		require.NoError(t, co.Start(t.Context()), "a failed Start may be repeated")
		assert.Len(t, co.Assignment(), 1)
		require.NoError(t, co.Close())
	})
}

func TestAStrategyThatEndsItsGoroutineLaterStopsNoRebalance(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var calls atomic.Int64
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing, Strategy: strategy(func() {
			if calls.Add(1) == 2 {
				runtime.Goexit()
			}
		})}
		a := consumer(t, c, cfg)
		b := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, a.Assignment(), 2)
		assert.Len(t, b.Assignment(), 2)
	})
}

func TestOnEventThatPanicsOrEndsItsGoroutineGetsTheNextEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []pocketmq.Event
		n := 0
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, OnEvent: func(e pocketmq.Event) {
			n++
			switch n {
			case 1:
				panic("oops")
			case 2:
				runtime.Goexit()
			}
			seen = append(seen, e)
		}})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing})
		synctest.Wait()
		require.NotEmpty(t, seen)
		assert.Positive(t, seen[0].Base().Dropped)
	})
}

func TestACallbackMaySendTheNextMessageAtMaxInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{MaxInFlight: 2})
		var done atomic.Int64
		var again func(*pocketmq.SendResult, error)
		again = func(_ *pocketmq.SendResult, err error) {
			assert.NoError(t, err)
			if done.Add(1) < 100 {
				assert.NoError(t, p.SendAsync(context.Background(), text("T", "x"), again))
			}
		}
		for range 2 {
			require.NoError(t, p.SendAsync(t.Context(), text("T", "x"), again))
		}
		synctest.Wait()
		assert.GreaterOrEqual(t, done.Load(), int64(100))
	})
}

func TestAFailedStartClusterLeavesNoFolderOfABroker(t *testing.T) {
	dir := t.TempDir()
	n := pocketmq.InMemory()
	other, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Transport: n})
	require.NoError(t, err)
	defer other.Close()
	taken := other.Broker("broker-a", 0).Addr()
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Name: "A", Dir: dir, Transport: n, Groups: []pocketmq.BrokerGroup{{Name: "broker-b", Addrs: []string{taken}}}})
	require.ErrorContains(t, err, taken)
	_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Name: "A", Dir: dir, Topics: map[string]int{"TBW102": 1}})
	require.ErrorIs(t, err, pocketmq.ErrIllegalName)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Name: "B", Dir: dir, Groups: []pocketmq.BrokerGroup{{Name: "broker-b"}}})
	require.NoError(t, err, "the folder is nobody's")
	assert.DirExists(t, filepath.Join(dir, "broker-b-0"))
	require.NoError(t, c.Close())
}

func TestANameServerThatABrokerCannotReachIsNotAdded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		links(t, c).Cut("broker-a/0", "ns-1")
		assert.ErrorIs(t, c.AddNameServer(t.Context()), pocketmq.ErrUnreachable)
		assert.Len(t, c.NameServerAddrs(), 1)
		links(t, c).HealAll()
		require.NoError(t, c.AddNameServer(t.Context()))
		assert.Len(t, c.NameServerAddrs(), 2)
		assert.Len(t, c.NameServer(1).Status().Brokers, 1)
	})
}

func TestASlowNameServerDoesNotStarveHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T) {
		topics, subs := map[string]int{}, map[string]pocketmq.Filter{}
		for i := range 70 {
			name := "T" + string(rune('a'+i/26)) + string(rune('a'+i%26))
			topics[name], subs[name] = 1, pocketmq.Filter{}
		}
		c := run(t, pocketmq.ClusterConfig{Topics: topics})
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: subs, Handler: nothing})
		links(t, c).Delay(co.ClientID(), "ns-0", time.Second)
		for range 60 {
			time.Sleep(10 * time.Second)
			g, ok := c.Broker("broker-a", 0).Group("g")
			require.True(t, ok)
			require.Len(t, g.Members, 1)
		}
	})
}

func TestOneTimingOfAClientLeavesTheOthersToTheCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Timings: pocketmq.Timings{OffsetPersist: 50 * time.Millisecond}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing, Timings: pocketmq.Timings{Rebalance: time.Second}})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		time.Sleep(200 * time.Millisecond)
		g, _ := c.Broker("broker-a", 0).Group("g")
		require.NotEmpty(t, g.Queues)
		assert.Equal(t, int64(1), g.Queues[0].Committed)
	})
}

func TestTheLongestTimingsStillDeliver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1"), Timings: pocketmq.DefaultTimings().Scaled(1e300)})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies())
	})
}

func TestFaultsMatchTheGroupOfAHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		h := c.Inject(pocketmq.Fault{Code: protocol.CodeHeartbeat, Group: "g"})
		other := c.Inject(pocketmq.Fault{Code: protocol.CodeHeartbeat, Group: "h"})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing})
		assert.Positive(t, h.Hits())
		assert.Zero(t, other.Hits())
		h.Remove()
		assert.Error(t, h.Wait(t.Context(), 1), "Wait after Remove")

		p := producer(t, c, pocketmq.ProducerConfig{})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Times: 3, Err: (*pocketmq.Error)(nil)})
		_, err := p.Send(t.Context(), text("T", "x"))
		assert.Error(t, err)
	})
}
