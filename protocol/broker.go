package protocol

import (
	"context"
	"time"
)

// Broker is what a broker offers to a Transport: one BrokerConn per session.
type Broker interface {
	// Connect opens a session for peer. It does not block. The returned
	// BrokerConn's Close ends the session: the broker forgets the peer's
	// registrations at once.
	Connect(s Session) BrokerConn
}

// BrokerConn is a session with a broker, implemented by the broker itself and
// by every transport's client side. Safe for concurrent use.
type BrokerConn interface {
	SendMessage(context.Context, *SendMessageRequest) (*SendMessageResponse, error)
	PullMessage(context.Context, *PullMessageRequest) (*PullMessageResponse, error)
	Heartbeat(context.Context, *HeartbeatRequest) (*HeartbeatResponse, error)
	UnregisterClient(context.Context, *UnregisterClientRequest) (*UnregisterClientResponse, error)
	GetConsumerList(context.Context, *GetConsumerListRequest) (*GetConsumerListResponse, error)
	QueryConsumerOffset(context.Context, *QueryConsumerOffsetRequest) (*QueryConsumerOffsetResponse, error)
	UpdateConsumerOffset(context.Context, *UpdateConsumerOffsetRequest) (*UpdateConsumerOffsetResponse, error)
	GetMaxOffset(context.Context, *GetMaxOffsetRequest) (*GetMaxOffsetResponse, error)
	GetMinOffset(context.Context, *GetMinOffsetRequest) (*GetMinOffsetResponse, error)
	SearchOffset(context.Context, *SearchOffsetRequest) (*SearchOffsetResponse, error)
	GetEarliestStoreTime(context.Context, *GetEarliestStoreTimeRequest) (*GetEarliestStoreTimeResponse, error)
	QueryMessage(context.Context, *QueryMessageRequest) (*QueryMessageResponse, error)
	ViewMessage(context.Context, *ViewMessageRequest) (*ViewMessageResponse, error)
	GetTopicStats(context.Context, *GetTopicStatsRequest) (*GetTopicStatsResponse, error)
	CreateTopic(context.Context, *CreateTopicRequest) (*CreateTopicResponse, error)
	ConsumerSendMsgBack(context.Context, *ConsumerSendMsgBackRequest) (*ConsumerSendMsgBackResponse, error)
	LockQueues(context.Context, *LockQueuesRequest) (*LockQueuesResponse, error)
	UnlockQueues(context.Context, *UnlockQueuesRequest) (*UnlockQueuesResponse, error)
	ResetOffset(context.Context, *ResetOffsetRequest) (*ResetOffsetResponse, error)
	UpdateGroup(context.Context, *UpdateGroupRequest) (*UpdateGroupResponse, error)
	DeleteGroup(context.Context, *DeleteGroupRequest) (*DeleteGroupResponse, error)
	DeleteTopic(context.Context, *DeleteTopicRequest) (*DeleteTopicResponse, error)
	GetConsumeStats(context.Context, *GetConsumeStatsRequest) (*GetConsumeStatsResponse, error)
	GetConsumerConnection(context.Context, *GetConsumerConnectionRequest) (*GetConsumerConnectionResponse, error)
	CloneGroupOffset(context.Context, *CloneGroupOffsetRequest) (*CloneGroupOffsetResponse, error)
	GetConsumerRunningInfo(context.Context, *GetConsumerRunningInfoRequest) (*GetConsumerRunningInfoResponse, error)
	GetConsumerStatus(context.Context, *GetConsumerStatusRequest) (*GetConsumerStatusResponse, error)
	ConsumeMessageDirectly(context.Context, *ConsumeMessageDirectlyRequest) (*ConsumeMessageDirectlyResponse, error)
	CheckClientConfig(context.Context, *CheckClientConfigRequest) (*CheckClientConfigResponse, error)
	CreateTopicList(context.Context, *CreateTopicListRequest) (*CreateTopicListResponse, error)
	GetTopicConfig(context.Context, *GetTopicConfigRequest) (*GetTopicConfigResponse, error)
	GetAllTopicConfig(context.Context, *GetAllTopicConfigRequest) (*GetAllTopicConfigResponse, error)
	UpdateGroupList(context.Context, *UpdateGroupListRequest) (*UpdateGroupListResponse, error)
	GetAllGroupConfig(context.Context, *GetAllGroupConfigRequest) (*GetAllGroupConfigResponse, error)
	GetAllConsumerOffset(context.Context, *GetAllConsumerOffsetRequest) (*GetAllConsumerOffsetResponse, error)
	GetAllDelayOffset(context.Context, *GetAllDelayOffsetRequest) (*GetAllDelayOffsetResponse, error)
	NotifyMinBrokerID(context.Context, *NotifyMinBrokerIDRequest) (*NotifyMinBrokerIDResponse, error)
	GetHAStatus(context.Context, *GetHAStatusRequest) (*GetHAStatusResponse, error)
	GetEpochCache(context.Context, *GetEpochCacheRequest) (*GetEpochCacheResponse, error)
	Close() error
}

// SendMessageRequest stores one message, or a batch of one topic and queue.
// Java: SendMessageRequestHeader.
type SendMessageRequest struct {
	ProducerGroup      string
	Topic              string
	DefaultTopic       string // template for auto-creation: message.AutoCreateTopic
	DefaultTopicQueues int    // the client's wish; the template's count caps it
	QueueID            int    // below 0: the broker draws one
	SysFlag            int32
	BornTime           time.Time
	Flag               int32
	Properties         string // message.AppendProperty encoding
	ReconsumeTimes     int32
	MaxReconsumeTimes  *int32 // of a send to %RETRY%, in place of the group's unless it is nil
	Batch              bool   // Body is a batch body (message.AppendBatch)
	Body               []byte
	Oneway             bool // no answer is wanted: (nil, nil) as soon as the request has left
}

// DefaultRegion is what brokers call themselves in the answers to sends. Java:
// MixAll.DEFAULT_TRACE_REGION_ID.
const DefaultRegion = "DefaultRegion"

// SendMessageResponse tells where a message lies. A stored message whose
// flush or replication was not confirmed in time comes as a response together
// with an *Error of code FlushDiskTimeout, FlushSlaveTimeout or
// SlaveNotAvailable.
type SendMessageResponse struct {
	MsgID         string // offsetMsgId; of a batch: comma separated
	QueueID       int
	QueueOffset   int64 // of a batch: its first message's
	TransactionID string
	Region        string // MSG_REGION
	TraceOn       bool   // TRACE_ON
}

// PullMessageRequest reads from one queue. Java: PullMessageRequestHeader.
type PullMessageRequest struct {
	Group          string
	Topic          string
	QueueID        int
	Offset         int64
	MaxMessages    int
	Commit         bool          // CommitOffset counts (sysFlag 1)
	CommitOffset   int64         // everything below is consumed
	Suspend        time.Duration // how long the broker may hold the pull; 0 = not at all
	HasExpression  bool          // Expression counts (sysFlag 4); otherwise the heartbeat's subscription
	Expression     string        // tag expression
	ExpressionType string        // "TAG" or "" = TAG
	SubVersion     int64         // version of the subscription the client has in mind; 0 = any
}

// PullMessageResponse is the answer to a pull, whatever it found.
type PullMessageResponse struct {
	Code            Code // Success, PullNotFound, PullRetryImmediately or PullOffsetMoved
	NextBeginOffset int64
	MinOffset       int64
	MaxOffset       int64
	SuggestBrokerID int64
	Records         [][]byte // stored records, read-only
}

// HeartbeatRequest registers a client's groups with a broker.
// Java: HeartbeatData.
type HeartbeatRequest struct {
	ClientID  string
	Language  string   // of the client: "GO", "JAVA", ...; "" when it does not tell
	Version   int      // of RocketMQ that the client is up to: ClientVersion for our own
	Producers []string // producer groups
	Consumers []ConsumerData

	// Fingerprint tells one set of groups and subscriptions from another; 0 of a
	// client that makes none. With one a client may leave its subscriptions out,
	// WithoutSubscriptions, and those that the broker has stay. Java: heartbeat V2.
	Fingerprint          int32
	WithoutSubscriptions bool
}

// What our own clients say of themselves.
const (
	ClientLanguage = "GO"
	// ClientVersion is that of RocketMQ 5.3.3. Java: MQVersion.
	ClientVersion = 479
)

// ConsumerData is one consumer group as a member sees it.
type ConsumerData struct {
	Group         string
	Model         MessageModel
	From          ConsumeFrom
	Passive       bool // CONSUME_PASSIVELY: a push consumer
	UnitMode      bool
	Subscriptions []Subscription
}

// MessageModel tells how a group shares messages. Java: MessageModel.
type MessageModel int

const (
	Clustering MessageModel = iota
	Broadcasting
)

func (m MessageModel) String() string {
	if m == Broadcasting {
		return "BROADCASTING"
	}
	return "CLUSTERING"
}

// ConsumeFrom tells where a group without a committed offset starts.
// Java: ConsumeFromWhere.
type ConsumeFrom int

const (
	ConsumeFromLast ConsumeFrom = iota
	ConsumeFromFirst
	ConsumeFromTime // CONSUME_FROM_TIMESTAMP; the time itself stays with the client
)

// Subscription is one topic of a group with its filter.
// Java: SubscriptionData.
type Subscription struct {
	Topic          string
	Expression     string // "*", "A || B"
	ExpressionType string // "TAG"
	Tags           []string
	Codes          []int32
	Version        int64 // the newest wins
}

// HeartbeatResponse acknowledges a heartbeat.
type HeartbeatResponse struct {
	// SubscriptionsWanted asks a client that has left its subscriptions out to
	// send them: the broker has none of it, or others. It is always true for
	// a client without a fingerprint, which sends them anyway. Java: IS_SUB_CHANGE.
	SubscriptionsWanted bool
}

// UnregisterClientRequest takes a client out of its groups at once.
type UnregisterClientRequest struct {
	ClientID      string
	ProducerGroup string
	ConsumerGroup string
}

// UnregisterClientResponse acknowledges an UnregisterClientRequest.
type UnregisterClientResponse struct{}

// GetConsumerListRequest asks for the members of a consumer group.
type GetConsumerListRequest struct{ Group string }

// GetConsumerListResponse lists each member's client id once, in no order.
type GetConsumerListResponse struct{ ClientIDs []string }

// QueryConsumerOffsetRequest asks for a group's committed offset of a queue.
type QueryConsumerOffsetRequest struct {
	Group   string
	Topic   string
	QueueID int

	// CommittedOnly asks for what was committed and nothing else. Without it a
	// group that has no offset is answered 0 until the queue has lost its
	// first message. On the wire: setZeroIfNotFound = false.
	CommittedOnly bool
}

// QueryConsumerOffsetResponse carries the committed offset. A group without
// one gets an *Error of code QueryNotFound instead.
type QueryConsumerOffsetResponse struct{ Offset int64 }

// UpdateConsumerOffsetRequest commits an offset; lower ones are accepted.
type UpdateConsumerOffsetRequest struct {
	Group   string
	Topic   string
	QueueID int
	Offset  int64
	Oneway  bool
}

// UpdateConsumerOffsetResponse acknowledges an UpdateConsumerOffsetRequest.
type UpdateConsumerOffsetResponse struct {
	// Ignored: the group was reset and has not been told yet, so this offset is one
	// of before.
	Ignored bool
}

// GetMaxOffsetRequest asks for the end of a queue.
type GetMaxOffsetRequest struct {
	Topic   string
	QueueID int
}

// GetMaxOffsetResponse carries the offset after the last message, 0 for an
// unknown queue.
type GetMaxOffsetResponse struct{ Offset int64 }

// GetMinOffsetRequest asks for the start of a queue.
type GetMinOffsetRequest struct {
	Topic   string
	QueueID int
}

// GetMinOffsetResponse carries the offset of the first message kept.
type GetMinOffsetResponse struct{ Offset int64 }

// CreateTopicRequest creates or updates a topic on one broker. The topic is
// routable at every reachable name server when it is answered.
type CreateTopicRequest struct{ Config TopicConfig }

// CreateTopicResponse acknowledges a CreateTopicRequest.
type CreateTopicResponse struct{}

// Peer is the way back from a broker to a client. An implementation never calls
// back into the broker from these methods. Notices are oneway and do not block.
type Peer interface {
	// NotifyConsumerIDsChanged tells a member that its group's membership
	// changed.
	NotifyConsumerIDsChanged(*NotifyConsumerIDsChangedRequest)
	// ResetConsumerOffset moves a consumer at once, whatever it is doing.
	ResetConsumerOffset(*ResetConsumerOffsetRequest)
	// GetConsumerRunningInfo asks the client what it is doing. This and the
	// following may block as long as ctx lasts.
	GetConsumerRunningInfo(context.Context, *GetConsumerRunningInfoRequest) (*GetConsumerRunningInfoResponse, error)
	// GetConsumerStatus asks a consumer how far it has come.
	GetConsumerStatus(context.Context, *PeerConsumerStatusRequest) (*PeerConsumerStatusResponse, error)
	// ConsumeMessageDirectly has a consumer consume one message now.
	ConsumeMessageDirectly(context.Context, *ConsumeMessageDirectlyRequest) (*ConsumeMessageDirectlyResponse, error)
}

// NotifyConsumerIDsChangedRequest names the group that changed.
type NotifyConsumerIDsChangedRequest struct{ Group string }

// SubscriptionOf makes a tag subscription.
func SubscriptionOf(topic, expression string, tags []string, codes []int32, version int64) Subscription {
	return Subscription{Topic: topic, Expression: expression, ExpressionType: ExpressionTag, Tags: tags, Codes: codes, Version: version}
}

// ExpressionTag is the expression type of tag filters.
const ExpressionTag = "TAG"
