package pocketmq_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// A number that is none must not become queue 0, or a group's default.
func TestAMalformedMemberOfABodyIsRefusedByName(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		refused := func(c *rawClient, code int32, body, remark string) {
			t.Helper()
			got := c.call(code, nil, body)
			assert.EqualValues(t, protocol.SystemError, got.Code, body)
			assert.Equal(t, remark, got.Remark, body)
		}
		lock := func(queue string) string {
			return `{"clientId":"me","consumerGroup":"g","mqSet":[{"brokerName":"broker-a","topic":"T"` + queue + `}]}`
		}
		for _, bad := range []string{"1.5", `"abc"`, "4294967296", "-2147483649", "true", "1e99"} {
			text := bad
			if bad == `"abc"` {
				text = "abc"
			}
			for code, name := range map[int32]string{41: "LockQueues", 42: "UnlockQueues"} {
				refused(c, code, lock(`,"queueId":`+bad), name+`: bad body: queueId is "`+text+`", no number of 32 bits`)
			}
		}
		refused(c, 41, lock(`,"queueId":[1]`), `LockQueues: bad body: queueId is "[...]", no number of 32 bits`)
		refused(c, 41, `{"clientId":"me","consumerGroup":"g","mqSet":[null]}`, "LockQueues: bad body: item 0 of mqSet is no object")
		refused(c, 41, `{"clientId":"me","consumerGroup":"g","mqSet":7}`, "LockQueues: bad body: mqSet is no list")
		none := `{"lockOKMQSet":[]}`
		assert.Equal(t, none, string(c.ok(41, nil, lock(`,"queueId":-1`)).Body))
		first := `{"lockOKMQSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}`
		for _, queue := range []string{"", `,"queueId":null`, `,"queueId":""`, `,"queueId":"0"`, `,"queueId":0.0`} {
			assert.Equal(t, first, string(c.ok(41, nil, lock(queue)).Body), "an int that is absent is 0 in Java")
		}

		refused(c, 200, `{"groupName":"bad","retryMaxTimes":1e99}`, `UpdateGroup: bad body: retryMaxTimes is "1e99", no number of 32 bits`)
		refused(c, 200, `{"groupName":"bad","retryMaxTimes":1.9}`, `UpdateGroup: bad body: retryMaxTimes is "1.9", no number of 32 bits`)
		refused(c, 200, `{"groupName":"bad","brokerId":"x"}`, `UpdateGroup: bad body: brokerId is "x", no number of 64 bits`)
		refused(c, 225, `{"groupConfigList":[{"groupName":"bad"},{"groupName":"bad","retryQueueNums":"two"}]}`, `UpdateGroupList: bad body: retryQueueNums is "two", no number of 32 bits`)
		refused(c, 18, `{"topicConfigList":[{"topicName":"bad","perm":6,"readQueueNums":1.5,"writeQueueNums":2}]}`, `CreateTopicList: bad body: readQueueNums is "1.5", no number of 32 bits`)
		_, ok := w.Broker("broker-a", 0).Group("bad")
		assert.False(t, ok)
		c.ok(200, nil, `{"groupName":"defaults","retryMaxTimes":null,"retryQueueNums":"2"}`)
		assert.Contains(t, string(c.ok(201, nil, "").Body), `"groupName":"defaults","groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":2,`)

		refused(c, 34, "[]", "Heartbeat: bad body: it is no JSON object")
		refused(c, 34, "{{{{", "Heartbeat: bad body: JSON: no } at byte 4")

		ns := w.nameServer(t).java()
		got := ns.call(103, ext("brokerName", "b", "brokerAddr", "127.0.0.1:1", "clusterName", "c", "haServerAddr", "", "brokerId", -1), "{}")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Equal(t, "broker b registers with id -1: ids are 0 for a master, 1 and more for slaves", got.Remark)
		assert.Empty(t, get(got, "bname"), "a name server is no broker")
		got = ns.call(103, ext("brokerName", "b", "brokerAddr", "127.0.0.1:1", "clusterName", "c", "haServerAddr", "", "brokerId", 0),
			`{"topicConfigSerializeWrapper":{"dataVersion":{"counter":"many"},"topicConfigTable":{}}}`)
		assert.Equal(t, `RegisterBroker: bad body: counter is "many", no number of 64 bits`, got.Remark)
		got = ns.call(103, ext("brokerName", "b", "brokerAddr", "127.0.0.1:1", "clusterName", "c", "haServerAddr", "", "brokerId", 0),
			`{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"rw"}}}}`)
		assert.Equal(t, `RegisterBroker: bad body: perm is "rw", no number of 32 bits`, got.Remark)
	})
}
