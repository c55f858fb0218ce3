package pocketmq

import (
	"context"

	"github.com/pocketmq/pocketmq/protocol"
)

// Requests that this broker does not serve are refused by name.

func notServed(name string) error {
	return protocol.Errorf(protocol.RequestCodeNotSupported, "%s is not supported", name)
}

func (s *brokerSession) ResetOffset(context.Context, *protocol.ResetOffsetRequest) (*protocol.ResetOffsetResponse, error) {
	return nil, notServed("ResetOffset")
}

func (s *brokerSession) UpdateGroup(context.Context, *protocol.UpdateGroupRequest) (*protocol.UpdateGroupResponse, error) {
	return nil, notServed("UpdateGroup")
}

func (s *brokerSession) DeleteGroup(context.Context, *protocol.DeleteGroupRequest) (*protocol.DeleteGroupResponse, error) {
	return nil, notServed("DeleteGroup")
}

func (s *brokerSession) DeleteTopic(context.Context, *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return nil, notServed("DeleteTopic")
}

func (s *brokerSession) GetConsumeStats(context.Context, *protocol.GetConsumeStatsRequest) (*protocol.GetConsumeStatsResponse, error) {
	return nil, notServed("GetConsumeStats")
}

func (s *brokerSession) GetConsumerConnection(context.Context, *protocol.GetConsumerConnectionRequest) (*protocol.GetConsumerConnectionResponse, error) {
	return nil, notServed("GetConsumerConnection")
}

func (s *brokerSession) CloneGroupOffset(context.Context, *protocol.CloneGroupOffsetRequest) (*protocol.CloneGroupOffsetResponse, error) {
	return nil, notServed("CloneGroupOffset")
}

func (s *brokerSession) GetConsumerRunningInfo(context.Context, *protocol.GetConsumerRunningInfoRequest) (*protocol.GetConsumerRunningInfoResponse, error) {
	return nil, notServed("GetConsumerRunningInfo")
}

func (s *nameServerSession) DeleteTopic(context.Context, *protocol.DeleteTopicRequest) (*protocol.DeleteTopicResponse, error) {
	return nil, notServed("DeleteTopic")
}
