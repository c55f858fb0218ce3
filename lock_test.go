package pocketmq_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// Locks here are asked for by typed requests, as any client could.

// lock asks a broker for queues in the name of a client.
func lock(t testing.TB, conn protocol.BrokerConn, group, client string, queues ...pocketmq.MessageQueue) []pocketmq.MessageQueue {
	t.Helper()
	resp, err := conn.LockQueues(t.Context(), &protocol.LockQueuesRequest{Group: group, ClientID: client, Queues: queues})
	require.NoError(t, err)
	require.NotNil(t, resp.Locked, "nothing locked is an empty list")
	return resp.Locked
}

func unlock(t testing.TB, conn protocol.BrokerConn, group, client string, queues ...pocketmq.MessageQueue) {
	t.Helper()
	_, err := conn.UnlockQueues(t.Context(), &protocol.UnlockQueuesRequest{Group: group, ClientID: client, Queues: queues})
	require.NoError(t, err)
}

func TestABrokerLocksItsOwnQueuesForOneClientEach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
		conn := dial(t, c, "broker-a")
		q0, q1 := queue("T", "broker-a", 0), queue("T", "broker-a", 1)

		assert.Equal(t, []pocketmq.MessageQueue{q0}, lock(t, conn, "g", "c1", q0))
		assert.Equal(t, []pocketmq.MessageQueue{q1}, lock(t, conn, "g", "c2", q0, q1))
		assert.Empty(t, lock(t, conn, "g", "c1", queue("T", "broker-b", 0), queue("T", "broker-a", 2), queue("T", "broker-a", -1), queue("U", "broker-a", 0)),
			"queues that the broker does not have")
		g, ok := c.Broker("broker-a", 0).Group("g")
		assert.False(t, ok, "locks alone make no group: %v", g)

		time.Sleep(60 * time.Second)
		assert.Empty(t, lock(t, conn, "g", "c2", q0), "60 s old is not older than 60 s")
		time.Sleep(time.Nanosecond)
		assert.Equal(t, []pocketmq.MessageQueue{q0}, lock(t, conn, "g", "c2", q0))
		unlock(t, conn, "g", "c1", q0)
		assert.Empty(t, lock(t, conn, "g", "c1", q0), "only its holder unlocks it")
		unlock(t, conn, "g", "c2", q0, q1)
		assert.Equal(t, []pocketmq.MessageQueue{q0, q1}, lock(t, conn, "g", "c1", q0, q1))
	})
}

func TestLocksOutliveTheConnectionButNotTheBroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		q := queue("T", "broker-a", 0)
		conn := dial(t, c, "broker-a")
		require.Len(t, lock(t, conn, "g", "c1", q), 1)
		require.NoError(t, conn.Close())
		assert.Empty(t, lock(t, dial(t, c, "broker-a"), "g", "c2", q))

		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Len(t, lock(t, dial(t, c, "broker-a"), "g", "c2", q), 1)
	})
}

func TestIllegalLocksAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		q := []pocketmq.MessageQueue{queue("T", "broker-a", 0)}
		for name, as := range map[string][2]string{"group": {"no/group", "c"}, "no group": {"", "c"}, "client": {"g", ""}} {
			var answered *pocketmq.Error
			_, err := conn.LockQueues(t.Context(), &protocol.LockQueuesRequest{Group: as[0], ClientID: as[1], Queues: q})
			assert.ErrorAs(t, err, &answered, name)
			_, err = conn.UnlockQueues(t.Context(), &protocol.UnlockQueuesRequest{Group: as[0], ClientID: as[1], Queues: q})
			assert.ErrorAs(t, err, &answered, name)
		}
	})
}

func TestFaultsActOnLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		q := queue("T", "broker-a", 0)
		refused := c.Inject(pocketmq.Fault{Code: protocol.CodeLockQueues, Topic: "T", Group: "g", Times: 1, Err: pocketmq.ErrBrokerBusy})
		_, err := conn.LockQueues(t.Context(), &protocol.LockQueuesRequest{Group: "g", ClientID: "c1", Queues: []pocketmq.MessageQueue{q}})
		assert.Error(t, err)
		assert.Equal(t, 1, refused.Hits())
		require.Len(t, lock(t, conn, "g", "c1", q), 1)

		late := c.Inject(pocketmq.Fault{Code: protocol.CodeUnlockQueues, Times: 1, Delay: time.Second})
		queues := []pocketmq.MessageQueue{q}
		_, err = conn.UnlockQueues(t.Context(), &protocol.UnlockQueuesRequest{Group: "g", ClientID: "c1", Queues: queues, Oneway: true})
		require.NoError(t, err)
		synctest.Wait()
		queues[0] = queue("U", "broker-a", 9) // the caller's again
		assert.Equal(t, 1, late.Hits())
		assert.Empty(t, lock(t, conn, "g", "c2", q), "a oneway request does not wait for what delays it")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, lock(t, conn, "g", "c2", q), 1)
	})
}

// A request for a lock whose answer is late is followed by another one. What the
// member has sent in between must not take away what that is granted.
func TestALockThatAMemberCountsOnIsAtItsBroker(t *testing.T) {
	for healed := time.Duration(0); healed < 10*time.Second; healed += 250 * time.Millisecond {
		t.Run(healed.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
				var in inbox
				start := func(name string) *pocketmq.Consumer {
					return consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: name, Subscriptions: all("T"), Orderly: true, Handler: in.handler(name)})
				}
				other, co := start("other"), start("m")
				links(t, c).Delay(co.ClientID(), "broker-a/0", 1200*time.Millisecond)
				require.NoError(t, other.Shutdown(t.Context()))
				time.Sleep(healed)
				links(t, c).HealAll()
				for range 200 {
					time.Sleep(50 * time.Millisecond)
					synctest.Wait()
					g, _ := c.Broker("broker-a", 0).Group("g")
					for _, q := range co.Queues() {
						if q.Locked {
							require.Equal(t, co.ClientID(), g.Locks[q.Queue], "%v", q.Queue)
						}
					}
				}
			})
		})
	}
}
