package pocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
)

func TestAPausedMasterIsReplacedAndFollowsAfterwards(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: trio(), Topics: map[string]int{"T": 1}})
		synctest.Wait()
		p := producer(t, c, oneTry)
		old := c.Broker("broker-a", 0)
		var want []string
		send := func(n int) { // each until it is acknowledged
			for range n {
				want = append(want, fmt.Sprint(len(want)))
				for patientSend(p, want[len(want)-1]) != nil {
					time.Sleep(time.Second / 10)
				}
			}
		}
		send(10)
		require.NoError(t, c.Pause("broker-a", 0))
		begin := time.Now()
		send(1)
		took := time.Since(begin)
		t.Log("the next send was acknowledged after", took)
		assert.LessOrEqual(t, took, 32*time.Second, "nothing tells the producer before it refreshes its route")
		send(9)
		assert.Positive(t, masterOf(c))
		require.NoError(t, c.Resume("broker-a", 0))
		time.Sleep(20 * time.Second)
		assert.Equal(t, pocketmq.RoleSlave, old.Role(), "it has learnt that it is late")
		send(5)
		time.Sleep(10 * time.Second) // what is confirmed is told with the next heartbeat
		for b := range c.Brokers() {
			got := slices.Compact(bodiesAt(t, c, b)) // one of unknown outcome may be there twice
			assert.Equal(t, want, got, "at %d", b.ID())
		}
	})
}

func TestAPausedSlaveIsWaitedForAndCatchesUp(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: pocketmq.NoRetries})
		synctest.Wait()
		replicated(t, p, 0, 3)
		require.NoError(t, c.Pause("broker-a", 1))
		sent := make(chan error, 1)
		begin := time.Now()
		go func() { sent <- patientSend(p, "3") }()
		time.Sleep(time.Second)
		require.NoError(t, c.Resume("broker-a", 1))
		require.NoError(t, <-sent)
		assert.Equal(t, time.Second, time.Since(begin))

		require.NoError(t, c.Pause("broker-a", 1))
		require.ErrorIs(t, patientSend(p, "4"), pocketmq.ErrFlushSlaveTimeout)
		time.Sleep(5 * time.Minute)
		require.ErrorIs(t, patientSend(p, "5"), pocketmq.ErrSlaveNotAvailable, "its master has given it up")
		require.NoError(t, c.Resume("broker-a", 1))
		time.Sleep(10 * time.Second)
		caughtUp(t, c, 0, 1)
		require.NoError(t, patientSend(p, "6"))
	})
}

func TestASlaveWithASlowDiskMakesSendsSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: pocketmq.NoRetries})
		synctest.Wait()
		replicated(t, p, 0, 3)
		require.NoError(t, c.SlowDisk("broker-a", 1, time.Second))
		begin := time.Now()
		require.NoError(t, patientSend(p, "slow"))
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestAMasterWithAFullDiskRefusesAndASlaveOneFallsBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, oneTry)
		replicated(t, p, 0, 3)
		caughtUp(t, c, 0, 1)
		require.NoError(t, c.FullDisk("broker-a", 0, true))
		require.ErrorIs(t, patientSend(p, "refused"), pocketmq.ErrDiskFull)
		require.NoError(t, c.FullDisk("broker-a", 0, false))
		time.Sleep(30 * time.Second)
		require.NoError(t, patientSend(p, "3"))
		caughtUp(t, c, 0, 1)

		require.NoError(t, c.FullDisk("broker-a", 1, true))
		require.NoError(t, patientSend(p, "4"))
		time.Sleep(time.Minute)
		assert.Equal(t, int64(4), c.Broker("broker-a", 1).Status().WrittenPosition)
		require.NoError(t, c.FullDisk("broker-a", 1, false))
		time.Sleep(time.Minute)
		caughtUp(t, c, 0, 1)
	})
}

// bodiesAt is what one broker gives of queue 0 of T.
func bodiesAt(t *testing.T, c *pocketmq.Cluster, b *pocketmq.Broker) []string {
	t.Helper()
	conn, err := c.Transport().DialBroker(context.Background(), dialTo(b.Addr()))
	require.NoError(t, err)
	defer conn.Close()
	var all []string
	for {
		r, err := pull(t.Context(), conn, int64(len(all)), "*")
		require.NoError(t, err)
		if len(r.Records) == 0 {
			return all
		}
		for _, rec := range r.Records {
			v, err := message.ParseView(rec)
			require.NoError(t, err)
			all = append(all, string(v.Body()))
		}
	}
}

// A slave whose attempt to connect falls into a black hole makes another one in time.
func TestASlaveIsBackSoonAfterABlackHole(t *testing.T) {
	for _, gone := range []time.Duration{30 * time.Second, 47 * time.Second, 61 * time.Second, 75 * time.Second} {
		t.Run(gone.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				replicated(t, p, 0, 1)
				links(t, c).Drop("broker-a/0", "broker-a/1")
				time.Sleep(gone)
				links(t, c).HealAll()
				healed := time.Now()
				require.Eventually(t, func() bool { return c.Broker("broker-a", 1).Status().Master.Connected }, time.Minute, 10*time.Millisecond)
				assert.LessOrEqual(t, time.Since(healed), 2*pocketmq.DefaultTimings().HARedial, "one attempt that was lost, and the pause after it")
			})
		})
	}
}
