package protocol

// Code is a RocketMQ request or response code. Request and response codes are
// two separate spaces that share this type, as on the wire.
// Java: RequestCode, ResponseCode.
type Code int32

// Request codes. CodeSendMessage stands for the wire codes 10, 310 and 320,
// CodeGetUnitTopics for 311, 312 and 313.
const (
	CodeSendMessage              Code = 10
	CodePullMessage              Code = 11
	CodeQueryMessage             Code = 12
	CodeQueryConsumerOffset      Code = 14
	CodeUpdateConsumerOffset     Code = 15
	CodeCreateTopic              Code = 17
	CodeCreateTopicList          Code = 18
	CodeGetAllTopicConfig        Code = 21
	CodeSearchOffset             Code = 29
	CodeGetMaxOffset             Code = 30
	CodeGetMinOffset             Code = 31
	CodeGetEarliestStoreTime     Code = 32
	CodeViewMessage              Code = 33
	CodeHeartbeat                Code = 34
	CodeUnregisterClient         Code = 35
	CodeConsumerSendMsgBack      Code = 36
	CodeGetConsumerList          Code = 38
	CodeNotifyConsumerIDsChanged Code = 40
	CodeLockQueues               Code = 41
	CodeUnlockQueues             Code = 42
	CodeGetAllConsumerOffset     Code = 43
	CodeGetAllDelayOffset        Code = 45
	CodeCheckClientConfig        Code = 46
	CodePutKVConfig              Code = 100
	CodeGetKVConfig              Code = 101
	CodeDeleteKVConfig           Code = 102
	CodeRegisterBroker           Code = 103
	CodeUnregisterBroker         Code = 104
	CodeGetRoute                 Code = 105
	CodeGetClusterInfo           Code = 106
	CodeUpdateGroup              Code = 200
	CodeGetAllGroupConfig        Code = 201
	CodeGetTopicStats            Code = 202
	CodeGetConsumerConnection    Code = 203
	CodeWipeWritePerm            Code = 205
	CodeGetAllTopics             Code = 206
	CodeDeleteGroup              Code = 207
	CodeGetConsumeStats          Code = 208
	CodeDeleteTopic              Code = 215 // of a broker
	CodeDeleteTopicInNameServer  Code = 216
	CodeRegisterTopic            Code = 217
	CodeListKVConfig             Code = 219
	CodeResetConsumerOffset      Code = 220 // of a client
	CodePeerConsumerStatus       Code = 221 // of a client
	CodeResetOffset              Code = 222
	CodeGetConsumerStatus        Code = 223
	CodeGetTopicsByCluster       Code = 224
	CodeUpdateGroupList          Code = 225
	CodeGetSystemTopics          Code = 304
	CodeGetConsumerRunningInfo   Code = 307
	CodeConsumeMessageDirectly   Code = 309
	CodeGetUnitTopics            Code = 311
	CodeCloneGroupOffset         Code = 314
	CodeUpdateNameServerConfig   Code = 318
	CodeGetNameServerConfig      Code = 319
	CodeQueryDataVersion         Code = 322
	CodeAddWritePerm             Code = 327
	CodeGetTopicConfig           Code = 351
	CodeGetBrokerMemberGroup     Code = 901
	CodeBrokerHeartbeat          Code = 904
	CodeNotifyMinBrokerID        Code = 905 // of a broker
	CodeGetHAStatus              Code = 907
	CodeGetEpochCache            Code = 1007
)

// Response codes.
const (
	Success                   Code = 0
	SystemError               Code = 1
	SystemBusy                Code = 2
	RequestCodeNotSupported   Code = 3
	FlushDiskTimeout          Code = 10
	SlaveNotAvailable         Code = 11
	FlushSlaveTimeout         Code = 12
	MessageIllegal            Code = 13
	ServiceNotAvailable       Code = 14
	NoPermission              Code = 16
	TopicNotExist             Code = 17
	PullNotFound              Code = 19
	PullRetryImmediately      Code = 20
	PullOffsetMoved           Code = 21
	QueryNotFound             Code = 22
	SubscriptionParseFailed   Code = 23
	SubscriptionNotExist      Code = 24
	SubscriptionNotLatest     Code = 25
	SubscriptionGroupNotExist Code = 26
	InvalidParameter          Code = 29
	ConsumerNotOnline         Code = 206
	ConsumeMsgTimeout         Code = 207
	IllegalOperation          Code = 604
)
