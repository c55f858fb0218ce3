package pocketmq_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/protocol"
)

// detecting is V5 with the reachability detector.
func detecting() fault.Config {
	cfg := fault.V5()
	cfg.Detect = true
	return cfg
}

func TestTheDetectorAsksEveryThreeSecondsAndFindsOutWhoIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: detecting()})
		begin := time.Now()
		asked := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeGetMaxOffset, From: p.ClientID(), Topic: "T"})
		sleepUntil(begin.Add(9 * time.Second))
		assert.Zero(t, asked.Hits(), "nothing was sent: nothing to watch")

		links(t, c).Cut(p.ClientID(), "broker-a/0")
		sendUntil(t, p, func() bool { return p.Status().Retried == 1 })
		assert.False(t, rowOf(t, p, "broker-a").Reachable)
		links(t, c).HealAll()
		for at := 12 * time.Second; at <= 21*time.Second; at += 3 * time.Second {
			sleepUntil(begin.Add(at - 1))
			n := asked.Hits()
			assert.Equal(t, at > 12*time.Second, rowOf(t, p, "broker-a").Reachable, "%v", at)
			sleepUntil(begin.Add(at))
			assert.Equal(t, n+1, asked.Hits(), "%v", at)
			assert.True(t, rowOf(t, p, "broker-a").Reachable, "%v", at)
		}
		assert.Equal(t, begin.Add(19*time.Second), rowOf(t, p, "broker-a").AvailableFrom, "only time ends the isolation")

		// A round takes at most 200 ms, and a broker that fails it stays what it was.
		c.Inject(pocketmq.Fault{Node: "broker-b/0", Code: protocol.CodeGetMaxOffset, Err: busy})
		links(t, c).Drop(p.ClientID(), "broker-a/0")
		sleepUntil(begin.Add(24*time.Second + 200*time.Millisecond))
		assert.True(t, rowOf(t, p, "broker-a").Reachable)
		assert.True(t, rowOf(t, p, "broker-b").Reachable)
		links(t, c).HealAll()
	})
}

func TestASilentBrokerIsAskedWithoutHoldingUpTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: detecting(), AttemptTimeout: 100 * time.Millisecond})
		begin := time.Now()
		brokersOf(t, p, 3) // sessions with all
		links(t, c).Drop(p.ClientID(), "broker-a/0")
		links(t, c).Drop(p.ClientID(), "broker-b/0")
		sendUntil(t, p, func() bool { return p.Status().Retried == 2 })
		links(t, c).Heal(p.ClientID(), "broker-b/0")
		sleepUntil(begin.Add(3 * time.Second))
		assert.True(t, rowOf(t, p, "broker-b").Reachable, "in the instant of the round")
		sleepUntil(begin.Add(3*time.Second + 200*time.Millisecond))
		assert.False(t, rowOf(t, p, "broker-a").Reachable)
		links(t, c).HealAll()
		sleepUntil(begin.Add(6 * time.Second))
		assert.True(t, rowOf(t, p, "broker-a").Reachable)
	})
}

func TestTheDetectorForgetsABrokerThatIsGoneFromTheRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: detecting()})
		begin := time.Now()
		brokersOf(t, p, 2)
		assert.Len(t, p.FaultTable(), 2)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		sleepUntil(begin.Add(30*time.Second - 1))
		assert.Len(t, p.FaultTable(), 2)
		sleepUntil(begin.Add(33 * time.Second)) // the routes are refreshed at 30 s
		assert.Equal(t, []string{"broker-b"}, []string{p.FaultTable()[0].Broker})
		assert.Len(t, p.FaultTable(), 1)
	})
}

func TestSetFaultStartsAndStopsTheDetector(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.V5()})
		asked := c.Inject(pocketmq.Fault{Code: protocol.CodeGetMaxOffset, From: p.ClientID()})
		sleep := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		brokersOf(t, p, 1)
		sleep(time.Minute)
		assert.Zero(t, asked.Hits())

		require.NoError(t, p.SetFault(detecting()))
		brokersOf(t, p, 1)
		sleep(3*time.Second - 1)
		assert.Zero(t, asked.Hits())
		sleep(1)
		assert.Equal(t, 1, asked.Hits())
		sleep(2 * time.Second)
		require.NoError(t, p.SetFault(detecting()))
		brokersOf(t, p, 1)
		sleep(3 * time.Second)
		assert.Equal(t, 2, asked.Hits(), "counted anew")

		off := detecting()
		off.Enabled = false
		for _, cfg := range []fault.Config{fault.V5(), off, {}} {
			require.NoError(t, p.SetFault(cfg))
			brokersOf(t, p, 1)
			sleep(time.Minute)
			assert.Equal(t, 2, asked.Hits())
		}

		// Close in the middle of a question.
		require.NoError(t, p.SetFault(detecting()))
		brokersOf(t, p, 1)
		links(t, c).Drop(p.ClientID(), "broker-a/0")
		sleep(3*time.Second + 100*time.Millisecond)
		begin := time.Now()
		require.NoError(t, p.Close())
		assert.Zero(t, time.Since(begin))
		links(t, c).HealAll()
	})
}
