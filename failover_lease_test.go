package pocketmq_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// cutOff takes the member 0 of broker-a out of the network, but for who asks it.
func cutOff(t *testing.T, c *pocketmq.Cluster) {
	t.Helper()
	for _, other := range []string{"broker-a/1", "broker-a/2", "controller/broker-a", "ns-0"} {
		links(t, c).Drop("broker-a/0", other)
	}
}

// ofAMaster are questions and orders of which a master without a lease answers none.
var ofAMaster = map[string]func(t *testing.T, conn protocol.BrokerConn) error{
	"pull": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "g", Topic: "T", MaxMessages: 32, HasExpression: true, Expression: "*"})
		return err
	},
	"pull with a commit": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "g", Topic: "T", MaxMessages: 32, Commit: true, CommitOffset: 7, HasExpression: true, Expression: "*"})
		return err
	},
	"pull that is held": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "g", Topic: "T", Offset: 10, Suspend: 15 * time.Second, MaxMessages: 32, HasExpression: true, Expression: "*"})
		return err
	},
	"committed offset": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "g", Topic: "T"})
		return err
	},
	"commit": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 9})
		return err
	},
	"end of a queue": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		return err
	},
	"lock": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.LockQueues(t.Context(), &protocol.LockQueuesRequest{Group: "g", ClientID: "me", Queues: []pocketmq.MessageQueue{queue("T", "broker-a", 0)}})
		return err
	},
	"topic": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.GetTopicConfig(t.Context(), &protocol.GetTopicConfigRequest{Topic: "T"})
		return err
	},
	"offsets for a slave": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{{GroupOffset: protocol.GroupOffset{Group: "g", Topic: "T", Offset: 8}}}})
		return err
	},
	"statistics": func(t *testing.T, conn protocol.BrokerConn) error {
		_, err := conn.GetConsumeStats(t.Context(), &protocol.GetConsumeStatsRequest{Group: "g", Topic: "T"})
		return err
	},
}

// (L): what rests on no acknowledgement is answered by one member at a time.
func TestAMasterWhoseLeaseIsOverAnswersNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 10)
		synctest.Wait() // they are readable
		require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g"}))
		require.NoError(t, c.Admin().SetOffset(t.Context(), "g", queue("T", "broker-a", 0), 3))
		cutOff(t, c)
		time.Sleep(30 * time.Second)
		require.Positive(t, masterOf(c))
		old := dialMember(t, c, "broker-a", 0)
		for name, ask := range ofAMaster {
			assert.ErrorIs(t, ask(t, old), pocketmq.ErrNotMaster, name)
		}
		assert.Equal(t, int64(3), committedOn(c, 0, "g"), "nothing of it was carried out")

		// What it says of itself and of its connections is not the group's.
		_, err := old.GetHAStatus(t.Context(), &protocol.GetHAStatusRequest{})
		assert.NoError(t, err)
		_, err = old.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "me", Consumers: []protocol.ConsumerData{{Group: "g"}}})
		assert.NoError(t, err)
		_, err = old.GetConsumerList(t.Context(), &protocol.GetConsumerListRequest{Group: "g"})
		assert.NoError(t, err)

		for _, id := range []int64{1, 2} { // a slave has no lease and needs none
			assert.NoError(t, ofAMaster["pull"](t, dialMember(t, c, "broker-a", id)))
			assert.NoError(t, ofAMaster["committed offset"](t, dialMember(t, c, "broker-a", id)))
		}
	})
}

// A pull that is held ends with the lease, not with its time, and when its master
// becomes a slave.
func TestAHeldPullEndsWithTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 10)
		synctest.Wait() // they are readable
		old := dialMember(t, c, "broker-a", 0)
		held := func() time.Duration {
			begun := time.Now()
			assert.ErrorIs(t, ofAMaster["pull that is held"](t, old), pocketmq.ErrNotMaster)
			return time.Since(begun)
		}
		cutOff(t, c)
		assert.LessOrEqual(t, held(), 5*time.Second)
		assert.Zero(t, held())
		links(t, c).HealAll()
		time.Sleep(30 * time.Second)
		require.NoError(t, c.Elect(t.Context(), "broker-a", 0))

		ended := make(chan time.Duration, 1)
		go func() { ended <- held() }()
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, c.Elect(t.Context(), "broker-a", 1))
		assert.Less(t, <-ended, 2*time.Second)
	})
}

// What was to be answered when a master was stopped is answered when it goes on: by what
// it is then.
func TestAnAnswerThatAPauseHeldUpNeedsALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 10)
		synctest.Wait() // they are readable
		old := dialMember(t, c, "broker-a", 0)
		done := make(chan error, 1)
		go func() {
			_, err := old.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "g", Topic: "T", Offset: 10, Suspend: time.Second, MaxMessages: 32, HasExpression: true, Expression: "*"})
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Pause("broker-a", 0))
		time.Sleep(30 * time.Second)
		require.NoError(t, c.Resume("broker-a", 0))
		require.ErrorIs(t, <-done, pocketmq.ErrNotMaster)
	})
}

// While the lease is renewed nothing of it shows.
func TestAHeldPullOutlivesManyLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 10)
		synctest.Wait() // they are readable
		begun := time.Now()
		require.NoError(t, ofAMaster["pull that is held"](t, dialMember(t, c, "broker-a", 0)))
		assert.Equal(t, 15*time.Second, time.Since(begun))
	})
}

// A group that cannot elect anybody, without its controller, still serves reads: at its
// slaves.
func TestConsumersGoToASlaveWhenNobodyHasALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 10)
		synctest.Wait() // they are readable
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, MaxCached: 2, Handler: func(ctx context.Context, m []*pocketmq.MessageExt) error {
			time.Sleep(2 * time.Second)
			return in.handler("g")(ctx, m)
		}})
		time.Sleep(time.Second)
		require.NoError(t, c.KillController("broker-a"))
		time.Sleep(time.Minute)
		assert.True(t, once(t, &in, 10))
	})
}
