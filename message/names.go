package message

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Topics with a meaning of their own, and the starts of a group's own topics.
const (
	// AutoCreateTopic is the template for topics made by a first send.
	AutoCreateTopic = "TBW102"

	RetryPrefix = "%RETRY%" // + group: its messages to be tried again
	DLQPrefix   = "%DLQ%"   // + group: its messages given up

	// SystemTopicPrefix starts the names of topics that only the system makes.
	// Java: TopicValidator.SYSTEM_TOPIC_PREFIX.
	SystemTopicPrefix = "rmq_sys_"

	// ScheduleTopic holds delayed messages until they are due, one queue per
	// level: level n waits in queue n - 1.
	ScheduleTopic = "SCHEDULE_TOPIC_XXXX"

	// TraceTopic holds the traces that official clients make of what they send and
	// consume. Java: TopicValidator.RMQ_SYS_TRACE_TOPIC.
	TraceTopic = "RMQ_SYS_TRACE_TOPIC"

	halfTopic         = "RMQ_SYS_TRANS_HALF_TOPIC"
	opHalfTopic       = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	maxCheckTopic     = "TRANS_CHECK_MAX_TIME_TOPIC"
	selfTestTopic     = "SELF_TEST_TOPIC"
	offsetMovedTopic  = "OFFSET_MOVED_EVENT"
	benchmarkTopic    = "BenchmarkTest"
	checkpointTopic   = "CHECKPOINT_TOPIC"
	replyTopicSuffix  = "_REPLY_TOPIC"
	systemGroupPrefix = "CID_RMQ_SYS_"
)

// Limits of names, in bytes.
const (
	MaxTopicLength = 127
	MaxGroupLength = 120
	// MaxPrefixedTopicLength is the limit of a %RETRY% or %DLQ% topic.
	MaxPrefixedTopicLength = 255
)

const allowedInNames = "^[%|a-zA-Z0-9_-]+$"

// RetryTopic returns the topic of a group's messages to be tried again.
// Java: MixAll.getRetryTopic.
func RetryTopic(group string) string { return RetryPrefix + group }

// DLQTopic returns the topic of a group's messages given up.
// Java: MixAll.getDLQTopic.
func DLQTopic(group string) string { return DLQPrefix + group }

// IsRetryTopic reports whether topic is some group's retry topic.
func IsRetryTopic(topic string) bool { return strings.HasPrefix(topic, RetryPrefix) }

// IsDLQTopic reports whether topic is some group's dead-letter topic.
func IsDLQTopic(topic string) bool { return strings.HasPrefix(topic, DLQPrefix) }

// ValidateTopic reports why a broker refuses name for a topic: it is blank,
// has characters other than % | a-z A-Z 0-9 _ -, or is longer than
// MaxTopicLength (a %RETRY% or %DLQ% topic: MaxPrefixedTopicLength). The error is of
// kind ErrIllegalName; its text is the reference's.
// Java: TopicValidator.validateTopic.
func ValidateTopic(name string) error {
	switch {
	case isBlank(name):
		return badName("The specified topic is blank.")
	case hasIllegalByte(name):
		return badName("The specified topic: %s, contains illegal characters, allowing only %s", name, allowedInNames)
	case IsRetryTopic(name) || IsDLQTopic(name):
		if len(name) > MaxPrefixedTopicLength {
			return badName("The specified topic is DLQ or Retry topic: %s, and it's longer than topic max length: %d", name, MaxPrefixedTopicLength)
		}
	case len(name) > MaxTopicLength:
		return badName("The specified topic: %s, is longer than topic max length: %d", name, MaxTopicLength)
	}
	return nil
}

// ValidateGroup reports why a broker refuses name for a consumer group: as
// for topics, but the limit is MaxGroupLength. The error is of kind
// ErrIllegalName; its text is the reference's.
// Java: TopicValidator.validateGroup.
func ValidateGroup(name string) error {
	switch {
	case isBlank(name):
		return badName("The specified group is blank.")
	case hasIllegalByte(name):
		return badName("The specified group: %s, contains illegal characters, allowing only %s", name, allowedInNames)
	case len(name) > MaxGroupLength:
		return badName("The specified group: %s, is longer than group max length: %d", name, MaxGroupLength)
	}
	return nil
}

// CheckTopic reports why a client refuses name for a topic. It differs from
// ValidateTopic in its texts and in one rule: no topic may be longer than
// MaxTopicLength, not even a %RETRY% or %DLQ% one. The error is of kind
// ErrIllegalName. Java: Validators.checkTopic.
func CheckTopic(name string) error {
	switch {
	case isBlank(name):
		return badName("The specified topic is blank")
	case utf16Len(name) > MaxTopicLength:
		return badName("The specified topic is longer than topic max length %d.", MaxTopicLength)
	case hasIllegalByte(name):
		return badName("The specified topic[%s] contains illegal characters, allowing only %s", name, allowedInNames)
	}
	return nil
}

// IsSystemTopic reports whether name belongs to the system of the given
// cluster and broker (a group's name; either may be ""): it may not be
// created, changed or deleted. Java: TopicValidator.isSystemTopic with the
// topics that a broker adds to it at start.
func IsSystemTopic(name, cluster, broker string) bool {
	switch name {
	case AutoCreateTopic, benchmarkTopic, TraceTopic, checkpointTopic:
		return true
	case "":
		return false
	case cluster, broker:
		return true
	}
	return IsNotSendable(name) || strings.HasPrefix(name, SystemTopicPrefix) ||
		cluster != "" && strings.HasSuffix(name, replyTopicSuffix) && name[:len(name)-len(replyTopicSuffix)] == cluster
}

// IsNotSendable reports whether clients may not send to topic name.
// Java: TopicValidator.isNotAllowedSendTopic.
func IsNotSendable(name string) bool {
	switch name {
	case ScheduleTopic, halfTopic, opHalfTopic, maxCheckTopic, selfTestTopic, offsetMovedTopic:
		return true
	}
	return false
}

// IsSystemGroup reports whether name is a consumer group of the system, which
// exists without being created. Java: MixAll.isSysConsumerGroup.
func IsSystemGroup(name string) bool { return strings.HasPrefix(name, systemGroupPrefix) }

// CheckNotSystem refuses a system topic with ErrIllegalName and the
// reference's text. Java: TopicValidator.isSystemTopic(topic, response).
func CheckNotSystem(name, cluster, broker string) error {
	if IsSystemTopic(name, cluster, broker) {
		return badName("The topic[%s] is conflict with system topic.", name)
	}
	return nil
}

func badName(format string, args ...any) error {
	return &refusal{fmt.Sprintf(format, args...), ErrIllegalName}
}

func hasIllegalByte(name string) bool {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '%', c == '|':
		default:
			return true
		}
	}
	return false
}

// isBlank is Java's UtilAll.isBlank: empty, or white space by
// Character.isWhitespace, which does not count no-break spaces.
func isBlank(s string) bool {
	for _, r := range s {
		switch {
		case r >= '\t' && r <= '\r', r >= 0x1C && r <= ' ':
		case r == 0xA0, r == 0x2007, r == 0x202F:
			return false
		case unicode.Is(unicode.Z, r):
		default:
			return false
		}
	}
	return true
}

// utf16Len is the length that Java sees. Clients look at it before they look
// at the characters, so it decides which of two faults is named.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}
