package interop_test

import (
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

func TestAdminGroup(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	a := rmqtest.Admin(t, c)
	require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "billing", BroadcastDisabled: true, RetryQueues: 3, MaxReconsume: 5}))
	table, err := a.GetAllSubscriptionGroup(t.Context(), c.Broker("broker-a", 0).Addr(), 3*time.Second)
	require.NoError(t, err)
	got, ok := table.SubscriptionGroupTable["billing"]
	require.True(t, ok)
	assert.Equal(t, admin.SubscriptionGroupConfig{
		GroupName: "billing", ConsumeEnable: true, ConsumeFromMinEnable: true, RetryMaxTimes: 5, RetryQueueNums: 3,
		WhichBrokerWhenConsumeSlowly: 1, NotifyConsumerIdsChangedEnable: true,
	}, got)
	done("admin/group", "listed")
}
