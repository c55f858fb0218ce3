package message

import "strings"

// Names of the properties that RocketMQ gives a meaning. A sender sets those
// of the first group through the fields of Message. Java: MessageConst.
const (
	PropKeys           = "KEYS"             // Message.Keys
	PropTags           = "TAGS"             // Message.Tag
	PropShardingKey    = "__SHARDINGKEY"    // Message.ShardingKey
	PropShardingKeyGo  = "SHARDING_KEY"     // the official Go client's name of PropShardingKey
	PropWait           = "WAIT"             // "false": Message.NoWait
	PropDelay          = "DELAY"            // Message.DelayLevel
	PropTimerDelaySec  = "TIMER_DELAY_SEC"  // seconds from the broker's now
	PropTimerDelayMs   = "TIMER_DELAY_MS"   // Message.Delay
	PropTimerDeliverMs = "TIMER_DELIVER_MS" // Message.DeliverAt, milliseconds since 1970

	PropUniqKey           = "UNIQ_KEY" // the producer's id of the message, Ext.MsgID
	PropExtendUniqInfo    = "EXTEND_UNIQ_INFO"
	PropDupInfo           = "DUP_INFO"
	PropOriginMessageID   = "ORIGIN_MESSAGE_ID" // first id of a retried message
	PropRetryTopic        = "RETRY_TOPIC"       // original topic of a retried message
	PropRealTopic         = "REAL_TOPIC"        // original topic of a delayed or half message
	PropRealQueueID       = "REAL_QID"
	PropReconsumeTime     = "RECONSUME_TIME"
	PropMaxReconsumeTimes = "MAX_RECONSUME_TIMES"
	PropDLQOriginTopic    = "DLQ_ORIGIN_TOPIC"
	PropDLQOriginMessage  = "DLQ_ORIGIN_MESSAGE_ID"

	PropTransactionPrepared            = "TRAN_MSG" // "true": a half message
	PropProducerGroup                  = "PGROUP"
	PropTransactionID                  = "__transactionId__"
	PropTransactionPreparedQueueOffset = "TRAN_PREPARED_QUEUE_OFFSET"
	PropTransactionCheckTimes          = "TRANSACTION_CHECK_TIMES"
	PropCheckImmunityTime              = "CHECK_IMMUNITY_TIME_IN_SECONDS"

	PropTimerOutMs      = "TIMER_OUT_MS"
	PropTimerEnqueueMs  = "TIMER_ENQUEUE_MS"
	PropTimerDequeueMs  = "TIMER_DEQUEUE_MS"
	PropTimerRollTimes  = "TIMER_ROLL_TIMES"
	PropTimerDelUniqKey = "TIMER_DEL_UNIQKEY"
	PropTimerDelayLevel = "TIMER_DELAY_LEVEL"

	PropMinOffset        = "MIN_OFFSET" // of the queue, added by clients after a pull
	PropMaxOffset        = "MAX_OFFSET"
	PropConsumeStartTime = "CONSUME_START_TIME"
	PropMsgRegion        = "MSG_REGION"
	PropTraceOn          = "TRACE_ON"
	PropTraceContext     = "TRACE_CONTEXT"
	PropCluster          = "CLUSTER"
	PropInstanceID       = "INSTANCE_ID"

	PropCorrelationID = "CORRELATION_ID"
	PropReplyToClient = "REPLY_TO_CLIENT"
	PropTTL           = "TTL"
	PropMsgType       = "MSG_TYPE"
	PropArriveTime    = "ARRIVE_TIME"
	PropPushReplyTime = "PUSH_REPLY_TIME"

	PropInnerNum              = "INNER_NUM"
	PropInnerBase             = "INNER_BASE"
	PropInnerMultiDispatch    = "INNER_MULTI_DISPATCH"
	PropInnerMultiQueueOffset = "INNER_MULTI_QUEUE_OFFSET"

	PropPopCK          = "POP_CK"
	PropPopCKOffset    = "POP_CK_OFFSET"
	PropFirstPopTime   = "1ST_POP_TIME"
	PropForwardQueueID = "PROPERTY_FORWARD_QUEUE_ID"
	PropRedirect       = "REDIRECT"
	PropBornHost       = "__BORNHOST"
	PropBornTimestamp  = "BORN_TIMESTAMP"
	PropCRC32          = "__CRC32#"

	PropBuyerID        = "BUYER_ID"
	PropTransferFlag   = "TRANSFER_FLAG"
	PropCorrectionFlag = "CORRECTION_FLAG"
	PropMQ2Flag        = "MQ2_FLAG"

	// PropTransientPrefix starts the names of properties that a proxy adds
	// and that are never stored.
	PropTransientPrefix = "__RMQ.TRANSIENT."
)

// IsReserved reports whether name has a meaning of its own, so that a user's
// property may not bear it: every Prop constant, and every name that starts
// with PropTransientPrefix.
//
// Differs: Java's MessageConst.STRING_HASH_SET leaves out about a third of
// them; a user's property of such a name would change what a broker does.
func IsReserved(name string) bool {
	switch name {
	case PropKeys, PropTags, PropShardingKey, PropShardingKeyGo, PropWait, PropDelay,
		PropTimerDelaySec, PropTimerDelayMs, PropTimerDeliverMs,
		PropUniqKey, PropExtendUniqInfo, PropDupInfo, PropOriginMessageID, PropRetryTopic,
		PropRealTopic, PropRealQueueID, PropReconsumeTime, PropMaxReconsumeTimes,
		PropDLQOriginTopic, PropDLQOriginMessage,
		PropTransactionPrepared, PropProducerGroup, PropTransactionID,
		PropTransactionPreparedQueueOffset, PropTransactionCheckTimes, PropCheckImmunityTime,
		PropTimerOutMs, PropTimerEnqueueMs, PropTimerDequeueMs, PropTimerRollTimes,
		PropTimerDelUniqKey, PropTimerDelayLevel,
		PropMinOffset, PropMaxOffset, PropConsumeStartTime, PropMsgRegion, PropTraceOn,
		PropTraceContext, PropCluster, PropInstanceID,
		PropCorrelationID, PropReplyToClient, PropTTL, PropMsgType, PropArriveTime, PropPushReplyTime,
		PropInnerNum, PropInnerBase, PropInnerMultiDispatch, PropInnerMultiQueueOffset,
		PropPopCK, PropPopCKOffset, PropFirstPopTime, PropForwardQueueID, PropRedirect,
		PropBornHost, PropBornTimestamp, PropCRC32,
		PropBuyerID, PropTransferFlag, PropCorrectionFlag, PropMQ2Flag:
		return true
	}
	return strings.HasPrefix(name, PropTransientPrefix)
}

// reservedRemedy tells a user who set the reserved property name what to use
// instead.
func reservedRemedy(name string) string {
	switch name {
	case PropKeys:
		return "use Message.Keys"
	case PropTags:
		return "use Message.Tag"
	case PropShardingKey, PropShardingKeyGo:
		return "use Message.ShardingKey"
	case PropWait:
		return "use Message.NoWait"
	case PropDelay:
		return "use Message.DelayLevel"
	case PropTimerDelayMs, PropTimerDelaySec:
		return "use Message.Delay"
	case PropTimerDeliverMs:
		return "use Message.DeliverAt"
	}
	return "choose another name"
}
