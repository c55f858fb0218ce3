package remoting

import (
	"context"
	"sync"

	"github.com/pocketmq/pocketmq/protocol"
)

// recorder notes which methods of a server or a client are called.
type recorder struct {
	mu     sync.Mutex // guards called
	called []string
}

func note[R any](r *recorder, name string) (*R, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called = append(r.called, name)
	return new(R), nil
}

type recordedBroker struct{ r *recorder }

func (s recordedBroker) Close() error { return nil }

func (s recordedBroker) SendMessage(context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return note[protocol.SendMessageResponse](s.r, "SendMessage")
}

func (s recordedBroker) PullMessage(context.Context, *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return note[protocol.PullMessageResponse](s.r, "PullMessage")
}

func (s recordedBroker) Heartbeat(context.Context, *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	return note[protocol.HeartbeatResponse](s.r, "Heartbeat")
}

func (s recordedBroker) UnregisterClient(context.Context, *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	return note[protocol.UnregisterClientResponse](s.r, "UnregisterClient")
}

func (s recordedBroker) GetConsumerList(context.Context, *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return note[protocol.GetConsumerListResponse](s.r, "GetConsumerList")
}

func (s recordedBroker) QueryConsumerOffset(context.Context, *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return note[protocol.QueryConsumerOffsetResponse](s.r, "QueryConsumerOffset")
}

func (s recordedBroker) UpdateConsumerOffset(context.Context, *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return note[protocol.UpdateConsumerOffsetResponse](s.r, "UpdateConsumerOffset")
}

func (s recordedBroker) GetMaxOffset(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	return note[protocol.GetMaxOffsetResponse](s.r, "GetMaxOffset")
}

func (s recordedBroker) GetMinOffset(context.Context, *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	return note[protocol.GetMinOffsetResponse](s.r, "GetMinOffset")
}

func (s recordedBroker) SearchOffset(context.Context, *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	return note[protocol.SearchOffsetResponse](s.r, "SearchOffset")
}

func (s recordedBroker) GetEarliestStoreTime(context.Context, *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
	return note[protocol.GetEarliestStoreTimeResponse](s.r, "GetEarliestStoreTime")
}

func (s recordedBroker) QueryMessage(context.Context, *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	return note[protocol.QueryMessageResponse](s.r, "QueryMessage")
}

func (s recordedBroker) ViewMessage(context.Context, *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
	return note[protocol.ViewMessageResponse](s.r, "ViewMessage")
}

func (s recordedBroker) GetTopicStats(context.Context, *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	return note[protocol.GetTopicStatsResponse](s.r, "GetTopicStats")
}

func (s recordedBroker) CreateTopic(context.Context, *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return note[protocol.CreateTopicResponse](s.r, "CreateTopic")
}

func (s recordedBroker) ConsumerSendMsgBack(context.Context, *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	return note[protocol.ConsumerSendMsgBackResponse](s.r, "ConsumerSendMsgBack")
}

func (s recordedBroker) LockQueues(context.Context, *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	return note[protocol.LockQueuesResponse](s.r, "LockQueues")
}

func (s recordedBroker) UnlockQueues(context.Context, *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	return note[protocol.UnlockQueuesResponse](s.r, "UnlockQueues")
}

func (s recordedBroker) ResetOffset(context.Context, *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return note[protocol.ResetOffsetResponse](s.r, "ResetOffset")
}

func (s recordedBroker) UpdateGroup(context.Context, *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return note[protocol.UpdateGroupResponse](s.r, "UpdateGroup")
}

func (s recordedBroker) DeleteGroup(context.Context, *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return note[protocol.DeleteGroupResponse](s.r, "DeleteGroup")
}

func (s recordedBroker) DeleteTopic(context.Context, *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return note[protocol.DeleteTopicResponse](s.r, "DeleteTopic")
}

func (s recordedBroker) GetConsumeStats(context.Context, *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return note[protocol.GetConsumeStatsResponse](s.r, "GetConsumeStats")
}

func (s recordedBroker) GetConsumerConnection(context.Context, *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return note[protocol.GetConsumerConnectionResponse](s.r, "GetConsumerConnection")
}

func (s recordedBroker) CloneGroupOffset(context.Context, *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return note[protocol.CloneGroupOffsetResponse](s.r, "CloneGroupOffset")
}

func (s recordedBroker) GetConsumerRunningInfo(context.Context, *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return note[protocol.GetConsumerRunningInfoResponse](s.r, "GetConsumerRunningInfo")
}

func (s recordedBroker) GetConsumerStatus(context.Context, *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	return note[protocol.GetConsumerStatusResponse](s.r, "GetConsumerStatus")
}

func (s recordedBroker) ConsumeMessageDirectly(context.Context, *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return note[protocol.ConsumeMessageDirectlyResponse](s.r, "ConsumeMessageDirectly")
}

func (s recordedBroker) CheckClientConfig(context.Context, *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
	return note[protocol.CheckClientConfigResponse](s.r, "CheckClientConfig")
}

func (s recordedBroker) CreateTopicList(context.Context, *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
	return note[protocol.CreateTopicListResponse](s.r, "CreateTopicList")
}

func (s recordedBroker) GetTopicConfig(context.Context, *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
	return note[protocol.GetTopicConfigResponse](s.r, "GetTopicConfig")
}

func (s recordedBroker) GetAllTopicConfig(context.Context, *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return note[protocol.GetAllTopicConfigResponse](s.r, "GetAllTopicConfig")
}

func (s recordedBroker) UpdateGroupList(context.Context, *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
	return note[protocol.UpdateGroupListResponse](s.r, "UpdateGroupList")
}

func (s recordedBroker) GetAllGroupConfig(context.Context, *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return note[protocol.GetAllGroupConfigResponse](s.r, "GetAllGroupConfig")
}

func (s recordedBroker) GetAllConsumerOffset(context.Context, *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return note[protocol.GetAllConsumerOffsetResponse](s.r, "GetAllConsumerOffset")
}

func (s recordedBroker) GetAllDelayOffset(context.Context, *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return note[protocol.GetAllDelayOffsetResponse](s.r, "GetAllDelayOffset")
}

func (s recordedBroker) NotifyMinBrokerID(context.Context, *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
	return note[protocol.NotifyMinBrokerIDResponse](s.r, "NotifyMinBrokerID")
}

func (s recordedBroker) GetHAStatus(context.Context, *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
	return note[protocol.GetHAStatusResponse](s.r, "GetHAStatus")
}

func (s recordedBroker) GetEpochCache(context.Context, *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
	return note[protocol.GetEpochCacheResponse](s.r, "GetEpochCache")
}

type recordedNameServer struct{ r *recorder }

func (s recordedNameServer) Close() error { return nil }

func (s recordedNameServer) RegisterBroker(context.Context, *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return note[protocol.RegisterBrokerResponse](s.r, "RegisterBroker")
}

func (s recordedNameServer) UnregisterBroker(context.Context, *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return note[protocol.UnregisterBrokerResponse](s.r, "UnregisterBroker")
}

func (s recordedNameServer) BrokerHeartbeat(context.Context, *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return note[protocol.BrokerHeartbeatResponse](s.r, "BrokerHeartbeat")
}

func (s recordedNameServer) QueryDataVersion(context.Context, *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return note[protocol.QueryDataVersionResponse](s.r, "QueryDataVersion")
}

func (s recordedNameServer) GetRoute(context.Context, *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return note[protocol.GetRouteResponse](s.r, "GetRoute")
}

func (s recordedNameServer) GetClusterInfo(context.Context, *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	return note[protocol.GetClusterInfoResponse](s.r, "GetClusterInfo")
}

func (s recordedNameServer) GetAllTopics(context.Context, *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	return note[protocol.GetAllTopicsResponse](s.r, "GetAllTopics")
}

func (s recordedNameServer) GetBrokerMemberGroup(context.Context, *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return note[protocol.GetBrokerMemberGroupResponse](s.r, "GetBrokerMemberGroup")
}

func (s recordedNameServer) GetTopicsByCluster(context.Context, *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
	return note[protocol.GetTopicsByClusterResponse](s.r, "GetTopicsByCluster")
}

func (s recordedNameServer) GetSystemTopics(context.Context, *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
	return note[protocol.GetSystemTopicsResponse](s.r, "GetSystemTopics")
}

func (s recordedNameServer) GetUnitTopics(context.Context, *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
	return note[protocol.GetUnitTopicsResponse](s.r, "GetUnitTopics")
}

func (s recordedNameServer) RegisterTopic(context.Context, *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	return note[protocol.RegisterTopicResponse](s.r, "RegisterTopic")
}

func (s recordedNameServer) DeleteTopic(context.Context, *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
	return note[protocol.DeleteTopicRouteResponse](s.r, "DeleteTopic")
}

func (s recordedNameServer) WipeWritePerm(context.Context, *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
	return note[protocol.WipeWritePermResponse](s.r, "WipeWritePerm")
}

func (s recordedNameServer) AddWritePerm(context.Context, *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
	return note[protocol.AddWritePermResponse](s.r, "AddWritePerm")
}

func (s recordedNameServer) PutKVConfig(context.Context, *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
	return note[protocol.PutKVConfigResponse](s.r, "PutKVConfig")
}

func (s recordedNameServer) GetKVConfig(context.Context, *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	return note[protocol.GetKVConfigResponse](s.r, "GetKVConfig")
}

func (s recordedNameServer) DeleteKVConfig(context.Context, *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
	return note[protocol.DeleteKVConfigResponse](s.r, "DeleteKVConfig")
}

func (s recordedNameServer) ListKVConfig(context.Context, *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
	return note[protocol.ListKVConfigResponse](s.r, "ListKVConfig")
}

func (s recordedNameServer) UpdateNameServerConfig(context.Context, *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
	return note[protocol.UpdateNameServerConfigResponse](s.r, "UpdateNameServerConfig")
}

func (s recordedNameServer) GetNameServerConfig(context.Context, *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
	return note[protocol.GetNameServerConfigResponse](s.r, "GetNameServerConfig")
}

type recordedPeer struct{ r *recorder }

func (s recordedPeer) NotifyConsumerIDsChanged(*protocol.NotifyConsumerIDsChangedRequest) {
	_, _ = note[nothing](s.r, "NotifyConsumerIDsChanged")
}

func (s recordedPeer) GetConsumerRunningInfo(context.Context, *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return note[protocol.GetConsumerRunningInfoResponse](s.r, "GetConsumerRunningInfo")
}

func (s recordedPeer) ResetConsumerOffset(*protocol.ResetConsumerOffsetRequest) {
	_, _ = note[nothing](s.r, "ResetConsumerOffset")
}

func (s recordedPeer) GetConsumerStatus(context.Context, *protocol.PeerConsumerStatusRequest) (*protocol.PeerConsumerStatusResponse, error) {
	return note[protocol.PeerConsumerStatusResponse](s.r, "GetConsumerStatus")
}

func (s recordedPeer) ConsumeMessageDirectly(context.Context, *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return note[protocol.ConsumeMessageDirectlyResponse](s.r, "ConsumeMessageDirectly")
}
