package message

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSystemTopicsOfABrokerAreItsNameItsClustersAndTheReplyTopic(t *testing.T) {
	for _, name := range []string{
		"TBW102", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC",
		"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
		"rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_East", "East", "broker-a", "East_REPLY_TOPIC",
	} {
		assert.True(t, IsSystemTopic(name, "East", "broker-a"), name)
	}
	for _, name := range []string{"", "orders", "West", "broker-b", "West_REPLY_TOPIC", "_REPLY_TOPIC", "%RETRY%East"} {
		assert.False(t, IsSystemTopic(name, "East", "broker-a"), name)
		assert.False(t, IsSystemTopic(name, "", ""), name)
	}
}

func TestTopicsOfAGroup(t *testing.T) {
	assert.Equal(t, "%RETRY%g", RetryTopic("g"))
	assert.Equal(t, "%DLQ%g", DLQTopic("g"))
	assert.True(t, IsRetryTopic(RetryTopic("g")))
	assert.True(t, IsDLQTopic(DLQTopic("g")))
	assert.False(t, IsRetryTopic("orders"))
	assert.False(t, IsDLQTopic("%RETRY%g"))

	// The longest group's own topics are legal, and so short that the record
	// stays version 1, which the official Go client needs.
	longest := strings.Repeat("g", MaxGroupLength)
	assert.NoError(t, ValidateGroup(longest))
	for _, topic := range []string{RetryTopic(longest), DLQTopic(longest)} {
		assert.NoError(t, ValidateTopic(topic))
		assert.LessOrEqual(t, len(topic), MaxTopicLength)
	}
}

func TestBlankIsJavasBlank(t *testing.T) {
	for _, name := range []string{"", " ", "\t\n\v\f\r", "\x1c\x1d\x1e\x1f", "\u3000", "\u2028\u2029\u1680"} {
		assert.EqualError(t, ValidateTopic(name), "The specified topic is blank.", "%q", name)
	}
	for _, name := range []string{"\u00a0", "\u2007", "\u202f", "\x00", "\x1b", "\u200b", " a"} {
		assert.ErrorContains(t, ValidateTopic(name), "contains illegal characters", "%q", name)
	}
}

func TestSystemGroups(t *testing.T) {
	assert.True(t, IsSystemGroup("CID_RMQ_SYS_TRANS"))
	assert.False(t, IsSystemGroup("TOOLS_CONSUMER"))
}
