package remoting

import (
	"context"

	"github.com/pocketmq/pocketmq/protocol"
)

// brokerClient is a caller's side of a session with a broker.
type brokerClient struct{ *client }

var _ protocol.BrokerConn = brokerClient{}

func (c brokerClient) SendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return call(c.client, ctx, c.send, q)
}

func (c brokerClient) PullMessage(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return call(c.client, ctx, c.pull, q)
}

func (c brokerClient) Heartbeat(ctx context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	return call(c.client, ctx, heartbeat(), q)
}

func (c brokerClient) UnregisterClient(ctx context.Context, q *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	return call(c.client, ctx, unregisterClient(), q)
}

func (c brokerClient) GetConsumerList(ctx context.Context, q *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return call(c.client, ctx, getConsumerList(), q)
}

func (c brokerClient) QueryConsumerOffset(ctx context.Context, q *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return call(c.client, ctx, queryConsumerOffset(), q)
}

func (c brokerClient) UpdateConsumerOffset(ctx context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return call(c.client, ctx, updateConsumerOffset(), q)
}

func (c brokerClient) GetMaxOffset(ctx context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	return call(c.client, ctx, getMaxOffset(), q)
}

func (c brokerClient) GetMinOffset(ctx context.Context, q *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	return call(c.client, ctx, getMinOffset(), q)
}

func (c brokerClient) SearchOffset(ctx context.Context, q *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	return call(c.client, ctx, searchOffset(), q)
}

func (c brokerClient) GetEarliestStoreTime(ctx context.Context, q *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
	return call(c.client, ctx, getEarliestStoreTime(), q)
}

func (c brokerClient) QueryMessage(ctx context.Context, q *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	return call(c.client, ctx, queryMessage(), q)
}

func (c brokerClient) ViewMessage(ctx context.Context, q *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
	return call(c.client, ctx, viewMessage(), q)
}

func (c brokerClient) GetTopicStats(ctx context.Context, q *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	return call(c.client, ctx, getTopicStats(), q)
}

func (c brokerClient) CreateTopic(ctx context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return call(c.client, ctx, createTopic(), q)
}

func (c brokerClient) ConsumerSendMsgBack(ctx context.Context, q *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	return call(c.client, ctx, consumerSendMsgBack(), q)
}

func (c brokerClient) LockQueues(ctx context.Context, q *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	return call(c.client, ctx, lockQueues(), q)
}

func (c brokerClient) UnlockQueues(ctx context.Context, q *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	return call(c.client, ctx, unlockQueues(), q)
}

func (c brokerClient) ResetOffset(ctx context.Context, q *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return call(c.client, ctx, resetOffset(), q)
}

func (c brokerClient) UpdateGroup(ctx context.Context, q *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return call(c.client, ctx, updateGroup(), q)
}

func (c brokerClient) DeleteGroup(ctx context.Context, q *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return call(c.client, ctx, deleteGroup(), q)
}

func (c brokerClient) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return call(c.client, ctx, deleteTopic(), q)
}

func (c brokerClient) GetConsumeStats(ctx context.Context, q *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return call(c.client, ctx, getConsumeStats(), q)
}

func (c brokerClient) GetConsumerConnection(ctx context.Context, q *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return call(c.client, ctx, getConsumerConnection(), q)
}

func (c brokerClient) CloneGroupOffset(ctx context.Context, q *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return call(c.client, ctx, cloneGroupOffset(), q)
}

func (c brokerClient) GetConsumerRunningInfo(ctx context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return call(c.client, ctx, getConsumerRunningInfo(), q)
}

func (c brokerClient) GetConsumerStatus(ctx context.Context, q *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	return call(c.client, ctx, getConsumerStatus(), q)
}

func (c brokerClient) ConsumeMessageDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return call(c.client, ctx, consumeMessageDirectly(), q)
}

func (c brokerClient) CheckClientConfig(ctx context.Context, q *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
	return call(c.client, ctx, checkClientConfig(), q)
}

func (c brokerClient) CreateTopicList(ctx context.Context, q *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
	return call(c.client, ctx, createTopicList(), q)
}

func (c brokerClient) GetTopicConfig(ctx context.Context, q *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
	return call(c.client, ctx, getTopicConfig(), q)
}

func (c brokerClient) GetAllTopicConfig(ctx context.Context, q *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return call(c.client, ctx, getAllTopicConfig(), q)
}

func (c brokerClient) UpdateGroupList(ctx context.Context, q *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
	return call(c.client, ctx, updateGroupList(), q)
}

func (c brokerClient) GetAllGroupConfig(ctx context.Context, q *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return call(c.client, ctx, getAllGroupConfig(), q)
}

func (c brokerClient) GetAllConsumerOffset(ctx context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return call(c.client, ctx, getAllConsumerOffset(), q)
}

func (c brokerClient) GetAllDelayOffset(ctx context.Context, q *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return call(c.client, ctx, getAllDelayOffset(), q)
}

func (c brokerClient) NotifyMinBrokerID(ctx context.Context, q *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
	return call(c.client, ctx, notifyMinBrokerID(), q)
}

func (c brokerClient) GetHAStatus(ctx context.Context, q *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
	return call(c.client, ctx, getHAStatus(), q)
}

func (c brokerClient) GetEpochCache(ctx context.Context, q *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
	return call(c.client, ctx, getEpochCache(), q)
}

// nameServerClient is a caller's side of a session with a name server.
type nameServerClient struct{ *client }

var _ protocol.NameServerConn = nameServerClient{}

func (c nameServerClient) RegisterBroker(ctx context.Context, q *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return call(c.client, ctx, registerBroker(), q)
}

func (c nameServerClient) UnregisterBroker(ctx context.Context, q *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return call(c.client, ctx, unregisterBroker(), q)
}

func (c nameServerClient) BrokerHeartbeat(ctx context.Context, q *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return call(c.client, ctx, brokerHeartbeat(), q)
}

func (c nameServerClient) QueryDataVersion(ctx context.Context, q *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return call(c.client, ctx, queryDataVersion(), q)
}

func (c nameServerClient) GetRoute(ctx context.Context, q *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return call(c.client, ctx, getRoute(), q)
}

func (c nameServerClient) GetClusterInfo(ctx context.Context, q *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	return call(c.client, ctx, getClusterInfo(), q)
}

func (c nameServerClient) GetAllTopics(ctx context.Context, q *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	return call(c.client, ctx, getAllTopics(), q)
}

func (c nameServerClient) GetBrokerMemberGroup(ctx context.Context, q *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return call(c.client, ctx, getBrokerMemberGroup(), q)
}

func (c nameServerClient) GetTopicsByCluster(ctx context.Context, q *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
	return call(c.client, ctx, getTopicsByCluster(), q)
}

func (c nameServerClient) GetSystemTopics(ctx context.Context, q *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
	return call(c.client, ctx, getSystemTopics(), q)
}

func (c nameServerClient) GetUnitTopics(ctx context.Context, q *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
	return call(c.client, ctx, getUnitTopics(), q)
}

func (c nameServerClient) RegisterTopic(ctx context.Context, q *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	return call(c.client, ctx, registerTopic(), q)
}

func (c nameServerClient) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
	return call(c.client, ctx, deleteTopicInNameServer(), q)
}

func (c nameServerClient) WipeWritePerm(ctx context.Context, q *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
	return call(c.client, ctx, wipeWritePerm(), q)
}

func (c nameServerClient) AddWritePerm(ctx context.Context, q *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
	return call(c.client, ctx, addWritePerm(), q)
}

func (c nameServerClient) PutKVConfig(ctx context.Context, q *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
	return call(c.client, ctx, putKVConfig(), q)
}

func (c nameServerClient) GetKVConfig(ctx context.Context, q *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	return call(c.client, ctx, getKVConfig(), q)
}

func (c nameServerClient) DeleteKVConfig(ctx context.Context, q *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
	return call(c.client, ctx, deleteKVConfig(), q)
}

func (c nameServerClient) ListKVConfig(ctx context.Context, q *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
	return call(c.client, ctx, listKVConfig(), q)
}

func (c nameServerClient) UpdateNameServerConfig(ctx context.Context, q *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
	return call(c.client, ctx, updateNameServerConfig(), q)
}

func (c nameServerClient) GetNameServerConfig(ctx context.Context, q *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
	return call(c.client, ctx, getNameServerConfig(), q)
}
