package remoting

import (
	"testing"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goRunningInfo is what an official Go client answers: queues are keys, as in
// Java's, but "dropped" has another spelling.
const goRunningInfo = `{"properties":{"PROP_CLIENT_VERSION":"v2.1.1","PROP_CONSUMEORDERLY":"true","PROP_CONSUMER_START_TIMESTAMP":"1796040821997","PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","PROP_NAMESERVER_ADDR":"127.0.0.1:9876;","PROP_THREADPOOL_CORE_SIZE":"-1"},` +
	`"statusTable":{"T":{"pullRT":0,"pullTPS":0,"consumeRT":0,"consumeOKTPS":0,"consumeFailedTPS":0,"consumeFailedMsgs":0}},` +
	`"subscriptionSet":[{"classFilterMode":false,"topic":"T","subString":"*","tagsSet":[],"codeSet":[],"subVersion":1796040822017412507,"expressionType":"TAG"}],` +
	`"mqTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:{"commitOffset":5,"cachedMsgMinOffset":5,"cachedMsgMaxOffset":7,"cachedMsgCount":3,"cachedMsgSizeInMiB":0,"transactionMsgMinOffset":0,"transactionMsgMaxOffset":0,"transactionMsgCount":0,"locked":true,"tryUnlockTimes":0,"lastLockTimestamp":1796040822000,"dropped":false,"lastPullTimestamp":1796040822001,"lastConsumeTimestamp":1796040822002},` +
	`{"topic":"T","brokerName":"broker-a","queueId":1}:{"commitOffset":0,"locked":false,"dropped":true}}, "jstack":"" }`

func TestTheRunningInfoOfAnOfficialGoClientIsUnderstood(t *testing.T) {
	r, err := getConsumerRunningInfo().read(&Frame{Flag: FlagResponse, Body: []byte(goRunningInfo)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetConsumerRunningInfoResponse{
		Orderly: true, Passive: true, Concurrency: -1, Start: time.UnixMilli(1796040821997),
		Subscriptions: []protocol.Subscription{{Topic: "T", Expression: "*", ExpressionType: "TAG", Version: 1796040822017412507}},
		Queues: []protocol.ProcessQueueInfo{
			{Topic: "T", BrokerName: "broker-a", QueueID: 0, CommitOffset: 5, CachedMin: 5, CachedMax: 7, CachedCount: 3, Locked: true,
				LastLock: time.UnixMilli(1796040822000), LastPull: time.UnixMilli(1796040822001), LastConsume: time.UnixMilli(1796040822002)},
			{Topic: "T", BrokerName: "broker-a", QueueID: 1, Dropped: true},
		},
		Verbatim: []byte(goRunningInfo),
	}, r)
}

// TestAMemberThatCannotTellSaysWhy: an official Go client divides by zero while it
// has one sample of its statistics, and answers with a success without a body.
func TestAMemberThatCannotTellSaysWhy(t *testing.T) {
	_, err := getConsumerRunningInfo().read(&Frame{Flag: FlagResponse, Remark: "json marshal error: json: unsupported value: NaN"})
	require.ErrorContains(t, err, "unsupported value: NaN")
}
