package mqtest

import (
	"context"

	"github.com/pocketmq/pocketmq/protocol"
)

// stubBrokerConn is a stub's side of a session with a broker.
type stubBrokerConn struct {
	protocol.BrokerConn // nil: methods that are not below, of which a test of the suite tells
	session             *stubSession
}

// Close ends the session.
func (c *stubBrokerConn) Close() error { return c.session.close() }

// SendMessage is served by the stub.
func (c *stubBrokerConn) SendMessage(ctx context.Context, q *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return stubbed[protocol.SendMessageResponse](c.session, ctx, "SendMessage", q)
}

// PullMessage is served by the stub.
func (c *stubBrokerConn) PullMessage(ctx context.Context, q *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return stubbed[protocol.PullMessageResponse](c.session, ctx, "PullMessage", q)
}

// Heartbeat is served by the stub.
func (c *stubBrokerConn) Heartbeat(ctx context.Context, q *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	return stubbed[protocol.HeartbeatResponse](c.session, ctx, "Heartbeat", q)
}

// UnregisterClient is served by the stub.
func (c *stubBrokerConn) UnregisterClient(ctx context.Context, q *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	return stubbed[protocol.UnregisterClientResponse](c.session, ctx, "UnregisterClient", q)
}

// GetConsumerList is served by the stub.
func (c *stubBrokerConn) GetConsumerList(ctx context.Context, q *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return stubbed[protocol.GetConsumerListResponse](c.session, ctx, "GetConsumerList", q)
}

// QueryConsumerOffset is served by the stub.
func (c *stubBrokerConn) QueryConsumerOffset(ctx context.Context, q *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return stubbed[protocol.QueryConsumerOffsetResponse](c.session, ctx, "QueryConsumerOffset", q)
}

// UpdateConsumerOffset is served by the stub.
func (c *stubBrokerConn) UpdateConsumerOffset(ctx context.Context, q *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return stubbed[protocol.UpdateConsumerOffsetResponse](c.session, ctx, "UpdateConsumerOffset", q)
}

// GetMaxOffset is served by the stub.
func (c *stubBrokerConn) GetMaxOffset(ctx context.Context, q *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	return stubbed[protocol.GetMaxOffsetResponse](c.session, ctx, "GetMaxOffset", q)
}

// GetMinOffset is served by the stub.
func (c *stubBrokerConn) GetMinOffset(ctx context.Context, q *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	return stubbed[protocol.GetMinOffsetResponse](c.session, ctx, "GetMinOffset", q)
}

// SearchOffset is served by the stub.
func (c *stubBrokerConn) SearchOffset(ctx context.Context, q *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	return stubbed[protocol.SearchOffsetResponse](c.session, ctx, "SearchOffset", q)
}

// GetEarliestStoreTime is served by the stub.
func (c *stubBrokerConn) GetEarliestStoreTime(ctx context.Context, q *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
	return stubbed[protocol.GetEarliestStoreTimeResponse](c.session, ctx, "GetEarliestStoreTime", q)
}

// QueryMessage is served by the stub.
func (c *stubBrokerConn) QueryMessage(ctx context.Context, q *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	return stubbed[protocol.QueryMessageResponse](c.session, ctx, "QueryMessage", q)
}

// ViewMessage is served by the stub.
func (c *stubBrokerConn) ViewMessage(ctx context.Context, q *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
	return stubbed[protocol.ViewMessageResponse](c.session, ctx, "ViewMessage", q)
}

// GetTopicStats is served by the stub.
func (c *stubBrokerConn) GetTopicStats(ctx context.Context, q *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	return stubbed[protocol.GetTopicStatsResponse](c.session, ctx, "GetTopicStats", q)
}

// CreateTopic is served by the stub.
func (c *stubBrokerConn) CreateTopic(ctx context.Context, q *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return stubbed[protocol.CreateTopicResponse](c.session, ctx, "CreateTopic", q)
}

// ConsumerSendMsgBack is served by the stub.
func (c *stubBrokerConn) ConsumerSendMsgBack(ctx context.Context, q *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	return stubbed[protocol.ConsumerSendMsgBackResponse](c.session, ctx, "ConsumerSendMsgBack", q)
}

// LockQueues is served by the stub.
func (c *stubBrokerConn) LockQueues(ctx context.Context, q *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	return stubbed[protocol.LockQueuesResponse](c.session, ctx, "LockQueues", q)
}

// UnlockQueues is served by the stub.
func (c *stubBrokerConn) UnlockQueues(ctx context.Context, q *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	return stubbed[protocol.UnlockQueuesResponse](c.session, ctx, "UnlockQueues", q)
}

// ResetOffset is served by the stub.
func (c *stubBrokerConn) ResetOffset(ctx context.Context, q *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return stubbed[protocol.ResetOffsetResponse](c.session, ctx, "ResetOffset", q)
}

// UpdateGroup is served by the stub.
func (c *stubBrokerConn) UpdateGroup(ctx context.Context, q *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return stubbed[protocol.UpdateGroupResponse](c.session, ctx, "UpdateGroup", q)
}

// DeleteGroup is served by the stub.
func (c *stubBrokerConn) DeleteGroup(ctx context.Context, q *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return stubbed[protocol.DeleteGroupResponse](c.session, ctx, "DeleteGroup", q)
}

// DeleteTopic is served by the stub.
func (c *stubBrokerConn) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return stubbed[protocol.DeleteTopicResponse](c.session, ctx, "DeleteTopic", q)
}

// GetConsumeStats is served by the stub.
func (c *stubBrokerConn) GetConsumeStats(ctx context.Context, q *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return stubbed[protocol.GetConsumeStatsResponse](c.session, ctx, "GetConsumeStats", q)
}

// GetConsumerConnection is served by the stub.
func (c *stubBrokerConn) GetConsumerConnection(ctx context.Context, q *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return stubbed[protocol.GetConsumerConnectionResponse](c.session, ctx, "GetConsumerConnection", q)
}

// CloneGroupOffset is served by the stub.
func (c *stubBrokerConn) CloneGroupOffset(ctx context.Context, q *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return stubbed[protocol.CloneGroupOffsetResponse](c.session, ctx, "CloneGroupOffset", q)
}

// GetConsumerRunningInfo is served by the stub.
func (c *stubBrokerConn) GetConsumerRunningInfo(ctx context.Context, q *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return stubbed[protocol.GetConsumerRunningInfoResponse](c.session, ctx, "GetConsumerRunningInfo", q)
}

// GetConsumerStatus is served by the stub.
func (c *stubBrokerConn) GetConsumerStatus(ctx context.Context, q *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	return stubbed[protocol.GetConsumerStatusResponse](c.session, ctx, "GetConsumerStatus", q)
}

// ConsumeMessageDirectly is served by the stub.
func (c *stubBrokerConn) ConsumeMessageDirectly(ctx context.Context, q *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return stubbed[protocol.ConsumeMessageDirectlyResponse](c.session, ctx, "ConsumeMessageDirectly", q)
}

// CheckClientConfig is served by the stub.
func (c *stubBrokerConn) CheckClientConfig(ctx context.Context, q *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
	return stubbed[protocol.CheckClientConfigResponse](c.session, ctx, "CheckClientConfig", q)
}

// CreateTopicList is served by the stub.
func (c *stubBrokerConn) CreateTopicList(ctx context.Context, q *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
	return stubbed[protocol.CreateTopicListResponse](c.session, ctx, "CreateTopicList", q)
}

// GetTopicConfig is served by the stub.
func (c *stubBrokerConn) GetTopicConfig(ctx context.Context, q *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
	return stubbed[protocol.GetTopicConfigResponse](c.session, ctx, "GetTopicConfig", q)
}

// GetAllTopicConfig is served by the stub.
func (c *stubBrokerConn) GetAllTopicConfig(ctx context.Context, q *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return stubbed[protocol.GetAllTopicConfigResponse](c.session, ctx, "GetAllTopicConfig", q)
}

// UpdateGroupList is served by the stub.
func (c *stubBrokerConn) UpdateGroupList(ctx context.Context, q *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
	return stubbed[protocol.UpdateGroupListResponse](c.session, ctx, "UpdateGroupList", q)
}

// GetAllGroupConfig is served by the stub.
func (c *stubBrokerConn) GetAllGroupConfig(ctx context.Context, q *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return stubbed[protocol.GetAllGroupConfigResponse](c.session, ctx, "GetAllGroupConfig", q)
}

// GetAllConsumerOffset is served by the stub.
func (c *stubBrokerConn) GetAllConsumerOffset(ctx context.Context, q *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return stubbed[protocol.GetAllConsumerOffsetResponse](c.session, ctx, "GetAllConsumerOffset", q)
}

// GetAllDelayOffset is served by the stub.
func (c *stubBrokerConn) GetAllDelayOffset(ctx context.Context, q *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return stubbed[protocol.GetAllDelayOffsetResponse](c.session, ctx, "GetAllDelayOffset", q)
}

// NotifyMinBrokerID is served by the stub.
func (c *stubBrokerConn) NotifyMinBrokerID(ctx context.Context, q *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
	return stubbed[protocol.NotifyMinBrokerIDResponse](c.session, ctx, "NotifyMinBrokerID", q)
}

// GetHAStatus is served by the stub.
func (c *stubBrokerConn) GetHAStatus(ctx context.Context, q *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
	return stubbed[protocol.GetHAStatusResponse](c.session, ctx, "GetHAStatus", q)
}

// GetEpochCache is served by the stub.
func (c *stubBrokerConn) GetEpochCache(ctx context.Context, q *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
	return stubbed[protocol.GetEpochCacheResponse](c.session, ctx, "GetEpochCache", q)
}

// stubNameServerConn is a stub's side of a session with a name server.
type stubNameServerConn struct {
	protocol.NameServerConn // nil, as that of stubBrokerConn
	session                 *stubSession
}

// Close ends the session.
func (c *stubNameServerConn) Close() error { return c.session.close() }

// RegisterBroker is served by the stub.
func (c *stubNameServerConn) RegisterBroker(ctx context.Context, q *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return stubbed[protocol.RegisterBrokerResponse](c.session, ctx, "RegisterBroker", q)
}

// UnregisterBroker is served by the stub.
func (c *stubNameServerConn) UnregisterBroker(ctx context.Context, q *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return stubbed[protocol.UnregisterBrokerResponse](c.session, ctx, "UnregisterBroker", q)
}

// BrokerHeartbeat is served by the stub.
func (c *stubNameServerConn) BrokerHeartbeat(ctx context.Context, q *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return stubbed[protocol.BrokerHeartbeatResponse](c.session, ctx, "BrokerHeartbeat", q)
}

// QueryDataVersion is served by the stub.
func (c *stubNameServerConn) QueryDataVersion(ctx context.Context, q *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return stubbed[protocol.QueryDataVersionResponse](c.session, ctx, "QueryDataVersion", q)
}

// GetRoute is served by the stub.
func (c *stubNameServerConn) GetRoute(ctx context.Context, q *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return stubbed[protocol.GetRouteResponse](c.session, ctx, "GetRoute", q)
}

// GetClusterInfo is served by the stub.
func (c *stubNameServerConn) GetClusterInfo(ctx context.Context, q *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	return stubbed[protocol.GetClusterInfoResponse](c.session, ctx, "GetClusterInfo", q)
}

// GetBrokerMemberGroup is served by the stub.
func (c *stubNameServerConn) GetBrokerMemberGroup(ctx context.Context, q *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return stubbed[protocol.GetBrokerMemberGroupResponse](c.session, ctx, "GetBrokerMemberGroup", q)
}

// GetAllTopics is served by the stub.
func (c *stubNameServerConn) GetAllTopics(ctx context.Context, q *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	return stubbed[protocol.GetAllTopicsResponse](c.session, ctx, "GetAllTopics", q)
}

// GetTopicsByCluster is served by the stub.
func (c *stubNameServerConn) GetTopicsByCluster(ctx context.Context, q *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
	return stubbed[protocol.GetTopicsByClusterResponse](c.session, ctx, "GetTopicsByCluster", q)
}

// GetSystemTopics is served by the stub.
func (c *stubNameServerConn) GetSystemTopics(ctx context.Context, q *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
	return stubbed[protocol.GetSystemTopicsResponse](c.session, ctx, "GetSystemTopics", q)
}

// GetUnitTopics is served by the stub.
func (c *stubNameServerConn) GetUnitTopics(ctx context.Context, q *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
	return stubbed[protocol.GetUnitTopicsResponse](c.session, ctx, "GetUnitTopics", q)
}

// RegisterTopic is served by the stub.
func (c *stubNameServerConn) RegisterTopic(ctx context.Context, q *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	return stubbed[protocol.RegisterTopicResponse](c.session, ctx, "RegisterTopic", q)
}

// DeleteTopic is served by the stub.
func (c *stubNameServerConn) DeleteTopic(ctx context.Context, q *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
	return stubbed[protocol.DeleteTopicRouteResponse](c.session, ctx, "DeleteTopic", q)
}

// WipeWritePerm is served by the stub.
func (c *stubNameServerConn) WipeWritePerm(ctx context.Context, q *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
	return stubbed[protocol.WipeWritePermResponse](c.session, ctx, "WipeWritePerm", q)
}

// AddWritePerm is served by the stub.
func (c *stubNameServerConn) AddWritePerm(ctx context.Context, q *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
	return stubbed[protocol.AddWritePermResponse](c.session, ctx, "AddWritePerm", q)
}

// PutKVConfig is served by the stub.
func (c *stubNameServerConn) PutKVConfig(ctx context.Context, q *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
	return stubbed[protocol.PutKVConfigResponse](c.session, ctx, "PutKVConfig", q)
}

// GetKVConfig is served by the stub.
func (c *stubNameServerConn) GetKVConfig(ctx context.Context, q *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	return stubbed[protocol.GetKVConfigResponse](c.session, ctx, "GetKVConfig", q)
}

// DeleteKVConfig is served by the stub.
func (c *stubNameServerConn) DeleteKVConfig(ctx context.Context, q *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
	return stubbed[protocol.DeleteKVConfigResponse](c.session, ctx, "DeleteKVConfig", q)
}

// ListKVConfig is served by the stub.
func (c *stubNameServerConn) ListKVConfig(ctx context.Context, q *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
	return stubbed[protocol.ListKVConfigResponse](c.session, ctx, "ListKVConfig", q)
}

// UpdateNameServerConfig is served by the stub.
func (c *stubNameServerConn) UpdateNameServerConfig(ctx context.Context, q *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
	return stubbed[protocol.UpdateNameServerConfigResponse](c.session, ctx, "UpdateNameServerConfig", q)
}

// GetNameServerConfig is served by the stub.
func (c *stubNameServerConn) GetNameServerConfig(ctx context.Context, q *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
	return stubbed[protocol.GetNameServerConfigResponse](c.session, ctx, "GetNameServerConfig", q)
}
