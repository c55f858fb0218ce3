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

// topicAt asks a member of broker-a for topic T.
func topicAt(t testing.TB, c *pocketmq.Cluster, id int64) error {
	t.Helper()
	conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "x", Addr: c.Broker("broker-a", id).Addr()})
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.GetTopicConfig(t.Context(), &protocol.GetTopicConfigRequest{Topic: "T"})
	return err
}

func TestATopicThatWasDeletedRightBeforeAFailoverStaysDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio()})
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 1}))
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		replicated(t, p, 0, 10)
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: new(inbox).handler("g")})
		time.Sleep(10 * time.Second)
		for id := range int64(3) {
			require.NoError(t, topicAt(t, c, id))
			require.Equal(t, int64(10), committedOn(c, id, "g"), "at %d", id)
		}
		require.NoError(t, c.Admin().DeleteTopic(t.Context(), "T"))
		synctest.Wait()
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(10 * time.Second)
		m := masterOf(c)
		require.Positive(t, m)
		assert.ErrorIs(t, topicAt(t, c, m), pocketmq.ErrNoRoute)
		assert.Equal(t, int64(-1), committedOn(c, m, "g"))
	})
}

func TestATopicThatWasMadeAnewIsThereAtSlaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{})})
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 1}))
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 10)
		time.Sleep(4 * time.Second)
		// What is in the log comes late, and after what became of the topic was copied.
		links(t, c).Drop("broker-a/0", "broker-a/1")
		time.Sleep(25 * time.Second)
		require.NoError(t, c.Admin().DeleteTopic(t.Context(), "T"))
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 1}))
		replicated(t, p, 10, 1)
		links(t, c).HealAll()
		time.Sleep(30 * time.Second)
		caughtUp(t, c, 1)
		require.NoError(t, topicAt(t, c, 1))
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(31 * time.Second)
		co, err := c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "h"})
		require.NoError(t, err)
		got, err := co.Pull(t.Context(), queue("T", "broker-a", 0), 0, 32)
		require.NoError(t, err)
		require.Len(t, got.Messages, 1)
		assert.Equal(t, "10", string(got.Messages[0].Body))
	})
}
