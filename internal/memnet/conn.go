package memnet

import (
	"context"

	"github.com/pocketmq/pocketmq/protocol"
)

// brokerConn is a caller's side of a session with a broker.
type brokerConn struct{ conn[protocol.BrokerConn] }

var _ protocol.BrokerConn = (*brokerConn)(nil)

func (b *brokerConn) SendMessage(ctx context.Context, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	return call(&b.conn, ctx, r.Oneway, r, protocol.BrokerConn.SendMessage)
}

func (b *brokerConn) PullMessage(ctx context.Context, r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.PullMessage)
}

func (b *brokerConn) Heartbeat(ctx context.Context, r *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.Heartbeat)
}

func (b *brokerConn) UnregisterClient(ctx context.Context, r *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.UnregisterClient)
}

func (b *brokerConn) GetConsumerList(ctx context.Context, r *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetConsumerList)
}

func (b *brokerConn) QueryConsumerOffset(ctx context.Context, r *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.QueryConsumerOffset)
}

func (b *brokerConn) UpdateConsumerOffset(ctx context.Context, r *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	return call(&b.conn, ctx, r.Oneway, r, protocol.BrokerConn.UpdateConsumerOffset)
}

func (b *brokerConn) GetMaxOffset(ctx context.Context, r *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetMaxOffset)
}

func (b *brokerConn) GetMinOffset(ctx context.Context, r *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetMinOffset)
}

func (b *brokerConn) SearchOffset(ctx context.Context, r *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.SearchOffset)
}

func (b *brokerConn) GetEarliestStoreTime(ctx context.Context, r *protocol.GetEarliestStoreTimeRequest) (*protocol.GetEarliestStoreTimeResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetEarliestStoreTime)
}

func (b *brokerConn) QueryMessage(ctx context.Context, r *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.QueryMessage)
}

func (b *brokerConn) ViewMessage(ctx context.Context, r *protocol.ViewMessageRequest) (*protocol.ViewMessageResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.ViewMessage)
}

func (b *brokerConn) GetTopicStats(ctx context.Context, r *protocol.GetTopicStatsRequest) (*protocol.GetTopicStatsResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetTopicStats)
}

func (b *brokerConn) CreateTopic(ctx context.Context, r *protocol.CreateTopicRequest) (*protocol.CreateTopicResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.CreateTopic)
}

func (b *brokerConn) ConsumerSendMsgBack(ctx context.Context, r *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.ConsumerSendMsgBack)
}

func (b *brokerConn) LockQueues(ctx context.Context, r *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.LockQueues)
}

func (b *brokerConn) UnlockQueues(ctx context.Context, r *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	return call(&b.conn, ctx, r.Oneway, r, protocol.BrokerConn.UnlockQueues)
}

func (b *brokerConn) ResetOffset(ctx context.Context, r *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.ResetOffset)
}

func (b *brokerConn) UpdateGroup(ctx context.Context, r *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.UpdateGroup)
}

func (b *brokerConn) DeleteGroup(ctx context.Context, r *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.DeleteGroup)
}

func (b *brokerConn) DeleteTopic(ctx context.Context, r *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.DeleteTopic)
}

func (b *brokerConn) GetConsumeStats(ctx context.Context, r *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetConsumeStats)
}

func (b *brokerConn) GetConsumerConnection(ctx context.Context, r *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetConsumerConnection)
}

func (b *brokerConn) CloneGroupOffset(ctx context.Context, r *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.CloneGroupOffset)
}

func (b *brokerConn) GetConsumerRunningInfo(ctx context.Context, r *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetConsumerRunningInfo)
}

func (b *brokerConn) GetConsumerStatus(ctx context.Context, r *protocol.GetConsumerStatusRequest) (*protocol.GetConsumerStatusResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetConsumerStatus)
}

func (b *brokerConn) ConsumeMessageDirectly(ctx context.Context, r *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.ConsumeMessageDirectly)
}

func (b *brokerConn) CheckClientConfig(ctx context.Context, r *protocol.CheckClientConfigRequest) (*protocol.CheckClientConfigResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.CheckClientConfig)
}

func (b *brokerConn) CreateTopicList(ctx context.Context, r *protocol.CreateTopicListRequest) (*protocol.CreateTopicListResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.CreateTopicList)
}

func (b *brokerConn) GetTopicConfig(ctx context.Context, r *protocol.GetTopicConfigRequest) (*protocol.GetTopicConfigResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetTopicConfig)
}

func (b *brokerConn) GetAllTopicConfig(ctx context.Context, r *protocol.GetAllTopicConfigRequest) (*protocol.GetAllTopicConfigResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetAllTopicConfig)
}

func (b *brokerConn) UpdateGroupList(ctx context.Context, r *protocol.UpdateGroupListRequest) (*protocol.UpdateGroupListResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.UpdateGroupList)
}

func (b *brokerConn) GetAllGroupConfig(ctx context.Context, r *protocol.GetAllGroupConfigRequest) (*protocol.GetAllGroupConfigResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetAllGroupConfig)
}

func (b *brokerConn) GetAllConsumerOffset(ctx context.Context, r *protocol.GetAllConsumerOffsetRequest) (*protocol.GetAllConsumerOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetAllConsumerOffset)
}

func (b *brokerConn) GetAllDelayOffset(ctx context.Context, r *protocol.GetAllDelayOffsetRequest) (*protocol.GetAllDelayOffsetResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetAllDelayOffset)
}

func (b *brokerConn) NotifyMinBrokerID(ctx context.Context, r *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
	return call(&b.conn, ctx, r.Oneway, r, protocol.BrokerConn.NotifyMinBrokerID)
}

func (b *brokerConn) GetHAStatus(ctx context.Context, r *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetHAStatus)
}

func (b *brokerConn) GetEpochCache(ctx context.Context, r *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
	return call(&b.conn, ctx, false, r, protocol.BrokerConn.GetEpochCache)
}

// nameServerConn is a caller's side of a session with a name server.
type nameServerConn struct{ conn[protocol.NameServerConn] }

var _ protocol.NameServerConn = (*nameServerConn)(nil)

func (c *nameServerConn) RegisterBroker(ctx context.Context, r *protocol.RegisterBrokerRequest) (*protocol.RegisterBrokerResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.RegisterBroker)
}

func (c *nameServerConn) UnregisterBroker(ctx context.Context, r *protocol.UnregisterBrokerRequest) (*protocol.UnregisterBrokerResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.UnregisterBroker)
}

func (c *nameServerConn) BrokerHeartbeat(ctx context.Context, r *protocol.BrokerHeartbeatRequest) (*protocol.BrokerHeartbeatResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.BrokerHeartbeat)
}

func (c *nameServerConn) QueryDataVersion(ctx context.Context, r *protocol.QueryDataVersionRequest) (*protocol.QueryDataVersionResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.QueryDataVersion)
}

func (c *nameServerConn) GetRoute(ctx context.Context, r *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetRoute)
}

func (c *nameServerConn) GetClusterInfo(ctx context.Context, r *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetClusterInfo)
}

func (c *nameServerConn) GetAllTopics(ctx context.Context, r *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetAllTopics)
}

func (c *nameServerConn) GetBrokerMemberGroup(ctx context.Context, r *protocol.GetBrokerMemberGroupRequest) (*protocol.GetBrokerMemberGroupResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetBrokerMemberGroup)
}

func (c *nameServerConn) GetTopicsByCluster(ctx context.Context, r *protocol.GetTopicsByClusterRequest) (*protocol.GetTopicsByClusterResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetTopicsByCluster)
}

func (c *nameServerConn) GetSystemTopics(ctx context.Context, r *protocol.GetSystemTopicsRequest) (*protocol.GetSystemTopicsResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetSystemTopics)
}

func (c *nameServerConn) GetUnitTopics(ctx context.Context, r *protocol.GetUnitTopicsRequest) (*protocol.GetUnitTopicsResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetUnitTopics)
}

func (c *nameServerConn) RegisterTopic(ctx context.Context, r *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.RegisterTopic)
}

func (c *nameServerConn) DeleteTopic(ctx context.Context, r *protocol.DeleteTopicRouteRequest) (*protocol.DeleteTopicRouteResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.DeleteTopic)
}

func (c *nameServerConn) WipeWritePerm(ctx context.Context, r *protocol.WipeWritePermRequest) (*protocol.WipeWritePermResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.WipeWritePerm)
}

func (c *nameServerConn) AddWritePerm(ctx context.Context, r *protocol.AddWritePermRequest) (*protocol.AddWritePermResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.AddWritePerm)
}

func (c *nameServerConn) PutKVConfig(ctx context.Context, r *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.PutKVConfig)
}

func (c *nameServerConn) GetKVConfig(ctx context.Context, r *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetKVConfig)
}

func (c *nameServerConn) DeleteKVConfig(ctx context.Context, r *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.DeleteKVConfig)
}

func (c *nameServerConn) ListKVConfig(ctx context.Context, r *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.ListKVConfig)
}

func (c *nameServerConn) UpdateNameServerConfig(ctx context.Context, r *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.UpdateNameServerConfig)
}

func (c *nameServerConn) GetNameServerConfig(ctx context.Context, r *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
	return call(&c.conn, ctx, false, r, protocol.NameServerConn.GetNameServerConfig)
}

// peer is a server's way back to the caller of one session.
type peer struct{ s *session }

var _ protocol.Peer = (*peer)(nil)

func (p *peer) NotifyConsumerIDsChanged(r *protocol.NotifyConsumerIDsChangedRequest) {
	notify(p.s, r, protocol.Peer.NotifyConsumerIDsChanged)
}

func (p *peer) GetConsumerRunningInfo(ctx context.Context, r *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return ask(p.s, ctx, r, protocol.Peer.GetConsumerRunningInfo)
}

func (p *peer) ResetConsumerOffset(r *protocol.ResetConsumerOffsetRequest) {
	notify(p.s, r, protocol.Peer.ResetConsumerOffset)
}

func (p *peer) GetConsumerStatus(ctx context.Context, r *protocol.PeerConsumerStatusRequest) (*protocol.PeerConsumerStatusResponse, error) {
	return ask(p.s, ctx, r, protocol.Peer.GetConsumerStatus)
}

func (p *peer) ConsumeMessageDirectly(ctx context.Context, r *protocol.ConsumeMessageDirectlyRequest) (*protocol.ConsumeMessageDirectlyResponse, error) {
	return ask(p.s, ctx, r, protocol.Peer.ConsumeMessageDirectly)
}
