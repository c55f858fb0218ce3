package protocol

import "time"

// GroupConfig are the settings of a consumer group on one broker, as its file
// has them. Java: SubscriptionGroupConfig.
type GroupConfig struct {
	Name                           string            `json:"groupName"`
	ConsumeEnable                  bool              `json:"consumeEnable"`
	ConsumeFromMinEnable           bool              `json:"consumeFromMinEnable"`
	ConsumeBroadcastEnable         bool              `json:"consumeBroadcastEnable"`
	ConsumeMessageOrderly          bool              `json:"consumeMessageOrderly"`
	RetryQueues                    int               `json:"retryQueueNums"`
	RetryMaxTimes                  int               `json:"retryMaxTimes"`
	BrokerID                       int64             `json:"brokerId"`
	WhichBrokerWhenConsumeSlowly   int64             `json:"whichBrokerWhenConsumeSlowly"`
	NotifyConsumerIDsChangedEnable bool              `json:"notifyConsumerIdsChangedEnable"`
	GroupSysFlag                   int               `json:"groupSysFlag"`
	ConsumeTimeoutMinute           int               `json:"consumeTimeoutMinute"`
	Attributes                     map[string]string `json:"attributes"`
}

// DefaultGroupConfig returns the settings of a group that nobody configured.
func DefaultGroupConfig(name string) GroupConfig {
	return GroupConfig{
		Name: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueues: 1, RetryMaxTimes: 16, WhichBrokerWhenConsumeSlowly: 1,
		NotifyConsumerIDsChangedEnable: true, ConsumeTimeoutMinute: 15, Attributes: map[string]string{},
	}
}

// UpdateGroupRequest creates a consumer group on the broker asked, or replaces
// its settings. Java: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP.
type UpdateGroupRequest struct{ Config GroupConfig }

// UpdateGroupResponse acknowledges an UpdateGroupRequest.
type UpdateGroupResponse struct{}

// DeleteGroupRequest removes a group's settings. Java:
// DeleteSubscriptionGroupRequestHeader.
type DeleteGroupRequest struct {
	Group        string
	CleanOffsets bool // its committed offsets too
}

// DeleteGroupResponse acknowledges a DeleteGroupRequest.
type DeleteGroupResponse struct{}

// DeleteTopicRequest removes a topic from a broker, with its queues, offsets and
// locks. A topic that is not there is no error. Java: DeleteTopicRequestHeader.
type DeleteTopicRequest struct{ Topic string }

// DeleteTopicResponse acknowledges a DeleteTopicRequest.
type DeleteTopicResponse struct{}

// GetConsumeStatsRequest asks how far a group has come on the broker asked.
// Java: GetConsumeStatsRequestHeader.
type GetConsumeStatsRequest struct {
	Group string
	Topic string // "" = every topic that the group has offsets of
}

// GetConsumeStatsResponse has one entry per readable queue, sorted. An unknown
// group has none. Java: ConsumeStats.
type GetConsumeStatsResponse struct{ Queues []ConsumeStats }

// ConsumeStats tell how far a group has come in one queue. Java: OffsetWrapper.
type ConsumeStats struct {
	Topic          string
	QueueID        int
	BrokerOffset   int64     // the queue's end
	ConsumerOffset int64     // committed; -1 = nothing is (on the wire: 0)
	LastTime       time.Time // when the last message below ConsumerOffset was stored; the zero time = not known
}

// GetConsumerConnectionRequest asks who is in a group.
type GetConsumerConnectionRequest struct{ Group string }

// GetConsumerConnectionResponse describes the live members as the broker asked
// sees them. A group without any is an *Error of code ConsumerNotOnline.
// Java: ConsumerConnection.
type GetConsumerConnectionResponse struct {
	Model         MessageModel
	From          ConsumeFrom
	Passive       bool
	Members       []Connection   // sorted by client id
	Subscriptions []Subscription // sorted by topic
}

// Connection is a live member of a group. Java: Connection.
type Connection struct {
	ClientID string
	Addr     string // the client's end, ip:port
	Language string // "GO", "JAVA", ...; "" when it is not known
	Version  int
}

// CloneGroupOffsetRequest gives a group the offsets that another one has
// committed, on the broker asked. Java: CloneGroupOffsetRequestHeader.
type CloneGroupOffsetRequest struct {
	From, To string
	Topic    string // "" = every topic
}

// CloneGroupOffsetResponse acknowledges a CloneGroupOffsetRequest.
type CloneGroupOffsetResponse struct{}
