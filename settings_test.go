package pocketmq_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	groupsettings "github.com/pocketmq/pocketmq/internal/groups"
	"github.com/pocketmq/pocketmq/protocol"
)

// configureGroup writes settings of a group into the folder of a stopped broker.
func configureGroup(t testing.TB, dir, name string, change func(*protocol.GroupConfig)) {
	t.Helper()
	s, err := groupsettings.OpenSettings(groupsettings.SettingsOptions{File: filepath.Join(dir, "broker-a-0", "config", "subscriptionGroup.json"), NoSync: true})
	require.NoError(t, err)
	c := protocol.DefaultGroupConfig(name)
	change(&c)
	_, err = s.Put(time.Now(), c)
	require.NoError(t, err)
}

func heartbeat(t testing.TB, conn protocol.BrokerConn, group string, model protocol.MessageModel) {
	t.Helper()
	_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "probe", Consumers: []protocol.ConsumerData{{
		Group: group, Model: model, Subscriptions: []protocol.Subscription{{Topic: "T", Expression: "*"}},
	}}})
	require.NoError(t, err)
}

func TestAGroupsRetryTopicIsRoutableOnceItsFirstHeartbeatIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		configureGroup(t, dir, "wide", func(c *protocol.GroupConfig) { c.RetryQueues = 3 })
		configureGroup(t, dir, "none", func(c *protocol.GroupConfig) { c.RetryQueues = 0 })
		c := run(t, pocketmq.ClusterConfig{Dir: dir, NameServers: 2, Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		begin := time.Now()
		for _, g := range []string{"plain", "wide", "none"} {
			heartbeat(t, conn, g, protocol.Clustering)
		}
		heartbeat(t, conn, "broad", protocol.Broadcasting)
		assert.Equal(t, begin, time.Now())
		for g, queues := range map[string]int{"plain": 1, "wide": 3, "none": 0, "broad": 0} {
			route, err := c.Admin().Route(t.Context(), "%RETRY%"+g)
			if queues == 0 {
				assert.ErrorIs(t, err, pocketmq.ErrNoRoute, g)
				continue
			}
			require.NoError(t, err, g)
			assert.Equal(t, []pocketmq.QueueData{{BrokerName: "broker-a", ReadQueues: queues, WriteQueues: queues, Perm: pocketmq.PermRead | pocketmq.PermWrite}}, route.Queues, g)
		}
	})
}

func TestSettingsOfAGroupDecideWhoMayPull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		configureGroup(t, dir, "disabled", func(c *protocol.GroupConfig) { c.ConsumeEnable = false })
		configureGroup(t, dir, "shared", func(c *protocol.GroupConfig) { c.ConsumeBroadcastEnable = false })
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		pull := func(group string) error {
			_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: group, Topic: "T", MaxMessages: 1})
			return err
		}
		for _, g := range []string{"disabled", "shared"} {
			heartbeat(t, conn, g, protocol.Clustering)
		}
		assert.ErrorIs(t, pull("disabled"), pocketmq.ErrNoPermission)
		assert.NoError(t, pull("shared"))
		heartbeat(t, conn, "shared", protocol.Broadcasting)
		assert.ErrorIs(t, pull("shared"), pocketmq.ErrNoPermission)
	})
}

func TestAGroupExistsFromItsFirstHeartbeatOrPullAlsoAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		commit := func(conn protocol.BrokerConn, group string) error {
			_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: group, Topic: "T", Offset: 0})
			return err
		}
		assert.ErrorIs(t, commit(conn, "beats"), &pocketmq.Error{Code: protocol.SubscriptionGroupNotExist})
		assert.ErrorIs(t, commit(conn, "beats"), pocketmq.ErrNotFound, "a commit makes no group")
		heartbeat(t, conn, "beats", protocol.Clustering)
		assert.NoError(t, commit(conn, "beats"))
		_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "pulls", Topic: "T", MaxMessages: 1, HasExpression: true, Expression: "*"})
		require.NoError(t, err)
		assert.NoError(t, commit(conn, "pulls"))
		sleepUntil(time.Now().Add(5 * time.Second)) // OffsetPersist
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		conn = dial(t, c, "broker-a")
		assert.NoError(t, commit(conn, "beats"))
		assert.NoError(t, commit(conn, "pulls"))
		assert.Error(t, commit(conn, "other"))
	})
}

func TestAGroupThatWantsNoNoticesRebalancesAtItsTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		configureGroup(t, dir, "g", func(c *protocol.GroupConfig) { c.NotifyConsumerIDsChangedEnable = false })
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 4}})
		var in inbox
		first := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "1", Subscriptions: all("T"), Handler: in.handler("1")})
		synctest.Wait()
		require.Len(t, first.Assignment(), 4)
		sleepUntil(time.Now().Add(time.Second))
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "2", Subscriptions: all("T"), Handler: in.handler("2")})
		synctest.Wait()
		assert.Len(t, first.Assignment(), 4, "it was not told")
		sleepUntil(time.Now().Add(20 * time.Second))
		assert.Len(t, first.Assignment(), 2)
	})
}
