package pocketmq_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// trio is a group of three that elects.
func trio() []pocketmq.BrokerGroup {
	return pair(2, pocketmq.BrokerConfig{Failover: true, Replication: pocketmq.SyncReplication})
}

// masterOf is the id of the broker that is master, -1 for none.
func masterOf(c *pocketmq.Cluster) int64 {
	for b := range c.Brokers() {
		if st := b.Status(); st.Role == pocketmq.RoleMaster && st.Writable {
			return b.ID()
		}
	}
	return -1
}

func TestAGroupElectsANewMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		assert.Zero(t, time.Since(begin), "the start takes no time")
		assert.Equal(t, int64(0), masterOf(c))
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		replicated(t, p, 0, 10)
		synctest.Wait()
		require.NoError(t, c.Kill("broker-a", 0))
		killed := time.Now()
		replicated(t, p, 10, 10)
		took := time.Since(killed)
		t.Log("the next send was acknowledged after", took)
		assert.LessOrEqual(t, took, 7*time.Second)
		m := masterOf(c)
		assert.Positive(t, m)
		assert.Equal(t, int64(2), c.Broker("broker-a", m).Epoch())

		// The old one comes back as a slave.
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(10 * time.Second)
		assert.Equal(t, pocketmq.RoleSlave, c.Broker("broker-a", 0).Role())
		var bodies []string
		for _, s := range queueContent(t, c, queue("T", "broker-a", 0)) {
			bodies = append(bodies, s.body)
		}
		var want []string
		for i := range 20 {
			want = append(want, strconv.Itoa(i))
		}
		assert.Equal(t, want, bodies)
	})
}

// inTheEnd sends a number to T until that succeeds.
func inTheEnd(t testing.TB, p *pocketmq.Producer, n int) {
	t.Helper()
	for range 1000 {
		if _, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "%d", n)); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("nobody takes messages")
}

func TestALinkToTheControllerThatWasSilentIsMadeAnew(t *testing.T) {
	for _, silent := range []time.Duration{2 * time.Second, 7 * time.Second, time.Minute} {
		t.Run(silent.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
				replicated(t, p, 0, 10)
				for id := range 3 {
					links(t, c).Drop("controller/broker-a", fmt.Sprint("broker-a/", id))
				}
				for id := range int64(3) { // they dial into nothing
					require.NoError(t, c.Kill("broker-a", id))
					require.NoError(t, c.Restart(t.Context(), "broker-a", id))
				}
				time.Sleep(silent)
				links(t, c).HealAll()
				healed := time.Now()
				inTheEnd(t, p, 10)
				assert.LessOrEqual(t, time.Since(healed), 15*time.Second)
				time.Sleep(20 * time.Second)
				m := masterOf(c)
				require.NotEqual(t, int64(-1), m)
				require.NoError(t, c.Kill("broker-a", m))
				killed := time.Now()
				inTheEnd(t, p, 11)
				t.Log("served again after", time.Since(killed))
				assert.LessOrEqual(t, time.Since(killed), 7*time.Second)
			})
		})
	}
}

// A send that may go anywhere finds the new master as soon as one that may not.
func TestSendsFindTheNewMasterSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		groups := trio()
		c := run(t, pocketmq.ClusterConfig{Groups: append(groups, pocketmq.BrokerGroup{Name: "broker-b"}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		time.Sleep(time.Second)
		require.NoError(t, c.Kill("broker-a", 0))
		killed := time.Now()
		for {
			r, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err, "broker-b is there")
			if r.Queue.BrokerName == "broker-a" {
				break
			}
			require.Less(t, time.Since(killed), time.Minute)
			time.Sleep(100 * time.Millisecond)
		}
		t.Log("broker-a took a send after", time.Since(killed))
		assert.LessOrEqual(t, time.Since(killed), 9*time.Second, "elected within 7 s, found within a quarter of that")
	})
}

// A master that is cut off learns of nothing, but it knows that its lease is over.
func TestAMasterThatIsCutOffSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		time.Sleep(time.Second)
		for _, other := range []string{"broker-a/1", "broker-a/2", "controller/broker-a"} {
			links(t, c).Drop("broker-a/0", other)
		}
		time.Sleep(10 * time.Second)
		st := c.Broker("broker-a", 0).Status()
		assert.Equal(t, pocketmq.RoleMaster, st.Role)
		assert.False(t, st.Writable)
		assert.Contains(t, st.Reason, "not the master any more, or cannot be sure of it")
		assert.Positive(t, masterOf(c))
		links(t, c).HealAll()
		time.Sleep(20 * time.Second)
		assert.Equal(t, pocketmq.RoleSlave, c.Broker("broker-a", 0).Role())
	})
}

func TestAMasterWithTooFewSlavesSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, MinInSyncReplicas: 2})})
		synctest.Wait()
		assert.True(t, c.Broker("broker-a", 0).Status().Writable)
		require.NoError(t, c.Kill("broker-a", 1))
		synctest.Wait()
		st := c.Broker("broker-a", 0).Status()
		assert.False(t, st.Writable)
		assert.Contains(t, st.Reason, "the in-sync replicas are not enough")
	})
}
