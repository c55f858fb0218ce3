package interop_test

import (
	"testing"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

func TestAdminTopic(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	ctx := t.Context()
	a := rmqtest.Admin(t, c, admin.WithCredentials(primitive.Credentials{AccessKey: "RocketMQ", SecretKey: "12345678"}))
	addr := c.Broker("broker-b", 0).Addr()
	require.NoError(t, a.CreateTopic(ctx, admin.WithTopicCreate("created"), admin.WithBrokerAddrCreate(addr),
		admin.WithReadQueueNums(3), admin.WithWriteQueueNums(2)))

	list, err := a.FetchAllTopicList(ctx)
	require.NoError(t, err)
	assert.Contains(t, list.TopicList, "created")
	ours, err := c.Admin().Topics(ctx)
	require.NoError(t, err)
	assert.ElementsMatch(t, ours, list.TopicList)
	route, err := c.Admin().Route(ctx, "created")
	require.NoError(t, err)
	assert.Equal(t, []pocketmq.QueueData{{BrokerName: "broker-b", ReadQueues: 3, WriteQueues: 2, Perm: pocketmq.PermRead | pocketmq.PermWrite}}, route.Queues)
	queues, err := a.FetchPublishMessageQueues(ctx, "created")
	require.NoError(t, err)
	assert.Len(t, queues, 2)
	clusters, err := a.FetchClusterList("created")
	require.NoError(t, err)
	assert.Equal(t, []string{"DefaultCluster"}, clusters)

	require.NoError(t, a.CreateTopic(ctx, admin.WithTopicCreate("created"), admin.WithBrokerAddrCreate(addr),
		admin.WithReadQueueNums(4), admin.WithWriteQueueNums(4), admin.WithPerm(4)))
	route, err = c.Admin().Route(ctx, "created")
	require.NoError(t, err)
	assert.Equal(t, []pocketmq.QueueData{{BrokerName: "broker-b", ReadQueues: 4, WriteQueues: 4, Perm: pocketmq.PermRead}}, route.Queues)

	require.NoError(t, a.DeleteTopic(ctx, admin.WithTopicDelete("created"), admin.WithBrokerAddrDelete(addr), admin.WithNameSrvAddr(c.NameServerAddrs())))
	_, err = c.Admin().Route(ctx, "created")
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
	list, err = a.FetchAllTopicList(ctx)
	require.NoError(t, err)
	assert.NotContains(t, list.TopicList, "created")

	// As the example does: where the topic lies is found out by the client.
	require.NoError(t, a.CreateTopic(ctx, admin.WithTopicCreate("newOne"), admin.WithBrokerAddrCreate(addr)))
	require.NoError(t, a.DeleteTopic(ctx, admin.WithTopicDelete("newOne")))
	_, err = c.Admin().Route(ctx, "newOne")
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
	done("admin/topic", "created, changed, listed, deleted")
}
