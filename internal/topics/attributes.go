package topics

import (
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// Attributes that a topic may have. Java: TopicAttributes.
const (
	attrMessageType = "message.type"
	attrQueueType   = "queue.type"
	attrCleanup     = "cleanup.policy"
	attrReserve     = "reserve.time"
)

// legal reports whether a topic may have an attribute with a value. All that has no
// meaning here may have its default only: queues are of one type, and messages go
// when their files go. The type of messages is for those who send to ask: as in
// RocketMQ, this kind of broker does not look at it.
func legal(name, value string) (known, ok bool) {
	switch name {
	case attrMessageType:
		switch value {
		case "NORMAL", "FIFO", "DELAY", "TRANSACTION", "UNSPECIFIED":
			return true, true
		}
		return true, false
	case attrQueueType:
		return true, value == "SimpleCQ"
	case attrCleanup:
		return true, value == "DELETE"
	case attrReserve:
		return true, value == "-1"
	}
	return false, false
}

// alter applies changes to the attributes of a topic, all of them or, on an error,
// none. Java: AttributeUtil.alterCurrentAttributes.
//
// Errors (*protocol.Error): InvalidParameter for topics of mixed messages,
// SystemError for everything else that cannot be.
func alter(topic string, have, changes protocol.Attributes, create bool) (protocol.Attributes, error) {
	if changes == "" {
		return have, nil
	}
	all := have.Map()
	for change, value := range changes.Map() {
		name := strings.TrimLeft(change, "+-")
		known, ok := legal(name, value)
		switch {
		case !known || len(change) != len(name)+1:
			return "", protocol.Errorf(protocol.SystemError, "topic[%s]: unsupported key: %s", topic, name)
		case change[0] == '-':
			if _, there := all[name]; create || !there {
				return "", protocol.Errorf(protocol.SystemError, "topic[%s]: attempt to delete a nonexistent key: %s", topic, name)
			}
			delete(all, name)
			continue
		case name == attrMessageType && value == "MIXED":
			return "", protocol.Errorf(protocol.InvalidParameter, "MIXED message type is not supported.")
		case !ok:
			return "", protocol.Errorf(protocol.SystemError, "topic[%s]: value %q of attribute %s is not supported", topic, value, name)
		}
		all[name] = value
	}
	return protocol.AttributesOf(all), nil
}
