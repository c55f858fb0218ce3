package pocketmq

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// copied is a broker, another one that copies from it what is not in the log, and a
// session with each.
type copied struct {
	*testing.T
	master, slave *brokerRun
	conns         [2]protocol.BrokerConn
	copy          *metadataCopy
}

func copying(t *testing.T, f func(c *copied)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &copied{T: t}
		for i := range 2 {
			cluster, err := StartCluster(t.Context(), ClusterConfig{Topics: map[string]int{"T": 1}})
			require.NoError(t, err)
			defer func() { assert.NoError(t, cluster.Close()) }()
			b := cluster.Broker("broker-a", 0)
			c.conns[i], err = cluster.Transport().DialBroker(t.Context(), protocol.Dial{Node: "probe", Addr: b.Addr()})
			require.NoError(t, err)
			if c.slave = b.run.Load(); i == 0 {
				c.master = b.run.Load()
			}
		}
		c.slave.followMetadata()
		c.copy = &metadataCopy{r: c.slave, conn: c.conns[0]}
		f(c)
	})
}

// send stores n messages at one of the two, as replication would at the slave.
func (c *copied) send(at, n int, topic, properties string) {
	c.Helper()
	for i := range n {
		_, err := c.conns[at].SendMessage(c.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: topic, DefaultTopic: "TBW102", DefaultTopicQueues: 1, BornTime: time.Now(), Properties: properties, Body: fmt.Append(nil, i)})
		require.NoError(c, err)
	}
}

func (c *copied) commit(at int, offset int64) {
	c.Helper()
	_, err := c.conns[at].Heartbeat(c.Context(), &protocol.HeartbeatRequest{ClientID: "probe", Consumers: []protocol.ConsumerData{{Group: "g", Subscriptions: []protocol.Subscription{{Topic: "T", Expression: "*"}}}}})
	require.NoError(c, err)
	_, err = c.conns[at].UpdateConsumerOffset(c.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: offset})
	require.NoError(c, err)
}

func (c *copied) offset(r *brokerRun) int64 {
	at, ok := r.offsets.Query("g", "T", 0)
	if !ok {
		return -1
	}
	return at
}

func TestHA03_CopiedOffsetsNeverLeadTheLog(t *testing.T) {
	copying(t, func(c *copied) {
		c.send(0, 10, "T", "")
		c.commit(0, 8)
		c.send(1, 7, "T", "")
		require.NoError(c, c.copy.round(c.Context()))
		assert.EqualValues(c, -1, c.offset(c.slave), "8 presumes a log of 10")
		c.commit(0, 9)
		c.send(0, 100, "T", "") // the slave is always a little behind
		c.send(1, 3, "T", "")
		require.NoError(c, c.copy.round(c.Context()))
		assert.EqualValues(c, 8, c.offset(c.slave), "what waited is not replaced by something newer")
		c.send(1, 100, "T", "")
		require.NoError(c, c.copy.round(c.Context()))
		assert.EqualValues(c, 9, c.offset(c.slave))
	})
}

func TestHA04_WhatIsCommittedAtASlaveGoesToTheMaster(t *testing.T) {
	copying(t, func(c *copied) {
		c.send(0, 100, "T", "")
		c.send(1, 100, "T", "")
		c.commit(0, 40)
		require.NoError(c, c.copy.round(c.Context()))
		assert.EqualValues(c, 40, c.offset(c.slave))
		c.commit(1, 100)
		require.NoError(c, c.copy.round(c.Context()))
		assert.EqualValues(c, 100, c.offset(c.master))
		assert.EqualValues(c, 100, c.offset(c.slave))
		assert.Empty(c, c.slave.offsets.Own(0))
	})
}

func TestASlaveHasTopicsAndGroupsOfItsMaster(t *testing.T) {
	copying(t, func(c *copied) {
		ctx := c.Context()
		perm := PermRead | PermWrite
		_, err := c.conns[0].CreateTopic(ctx, &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: "U", ReadQueues: 3, WriteQueues: 3, Perm: perm}})
		require.NoError(c, err)
		group := protocol.DefaultGroupConfig("g")
		group.RetryMaxTimes = 3
		_, err = c.conns[0].UpdateGroup(ctx, &protocol.UpdateGroupRequest{Config: group})
		require.NoError(c, err)
		require.NoError(c, c.copy.round(ctx))
		_, ok := c.slave.topics.Get("U")
		assert.True(c, ok)
		got, _ := c.slave.settings.Get("g")
		assert.Equal(c, group, got)

		// A pull that waits at the slave learns that its topic is gone.
		_, err = c.conns[0].DeleteTopic(ctx, &protocol.DeleteTopicRequest{Topic: "U"})
		require.NoError(c, err)
		ended := make(chan error)
		go func() {
			_, err := c.conns[1].PullMessage(ctx, &protocol.PullMessageRequest{Group: "g", Topic: "U", MaxMessages: 1, Suspend: time.Hour, HasExpression: true, Expression: "*"})
			ended <- err
		}()
		synctest.Wait()
		begin := time.Now()
		c.send(1, 1, "T", "") // the deletion is a record of the log
		require.NoError(c, c.copy.round(ctx))
		var e *Error
		require.ErrorAs(c, <-ended, &e)
		assert.Equal(c, protocol.TopicNotExist, e.Code)
		assert.Equal(c, begin, time.Now())
	})
}

func TestHA03_ANewMasterBeginsWithinItsLog(t *testing.T) {
	copying(t, func(c *copied) {
		ctx := c.Context()
		c.send(0, 100, "T", "")
		c.send(1, 90, "T", "")
		c.commit(0, 100)
		all, err := c.master.offsets.Export()
		require.NoError(c, err)
		require.NoError(c, c.slave.offsets.Replace(all)) // as if it had not waited
		require.NoError(c, c.slave.progress.Replace(protocol.DelayProgress{Offsets: map[int]int64{1: 7}}))
		c.send(1, 1, "new", "")
		c.send(1, 1, "%DLQ%g", "")
		_, version := c.slave.topics.Snapshot()
		_, _, err = c.slave.topics.Replace(nil, version) // and its topics come too late
		require.NoError(c, err)

		for range 2 {
			require.NoError(c, c.slave.leadMetadata(3))
			assert.EqualValues(c, 90, c.offset(c.slave))
			assert.Zero(c, c.slave.progress.Offset(0))
			for _, name := range []string{"T", "new", "%DLQ%g"} {
				topic, ok := c.slave.topics.Get(name)
				assert.True(c, ok, name)
				assert.Equal(c, ownTopic(name, 1), topic)
			}
			_, version = c.slave.topics.Snapshot()
			_, groups := c.slave.settings.Table()
			offsets, err := c.slave.offsets.Export()
			require.NoError(c, err)
			assert.Equal(c, []int64{3, 3, 3, 3}, []int64{version.StateVersion, groups.StateVersion, offsets.Version.StateVersion, c.slave.progress.Snapshot().Version.StateVersion})
		}
		c.send(1, 20, "T", "")
		assert.EqualValues(c, 90, c.offset(c.slave), "all 20 are to come")

		// The former master's tables are older now, and it follows.
		err = c.copy.round(ctx)
		assert.ErrorIs(c, err, protocol.ErrStaleVersion)
		c.master.followMetadata()
		c.send(0, 50, "T", "")
		back := &metadataCopy{r: c.master, conn: c.conns[1]}
		require.NoError(c, back.round(ctx))
		assert.EqualValues(c, 90, c.offset(c.master))
	})
}

func TestACopyThatFailsInOnePartGoesOnWithTheOthers(t *testing.T) {
	copying(t, func(c *copied) {
		c.commit(0, 0)
		c.copy.conn = withoutTopics{c.conns[0]}
		assert.ErrorContains(c, c.copy.round(c.Context()), "topics of the master")
		assert.Zero(c, c.offset(c.slave))
	})
}

type withoutTopics struct{ protocol.BrokerConn }

func (withoutTopics) GetAllTopicConfig(context.Context, *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return nil, ErrUnreachable
}
