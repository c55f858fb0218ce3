package delay

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/pocketmq/pocketmq/message"
)

// Defer turns a record into one that waits for a level, from 1 to levels; a
// higher one means the highest. Properties keep what they say, but for other kinds
// of delay. Java: HookUtils.transformDelayLevelMessage.
func Defer(r *message.Record, level, levels int) {
	level = min(level, levels)
	text := make([]byte, 0, len(r.Properties)+len(r.Topic)+64)
	text = message.AppendWithout(text, r.Properties, message.PropDelay, message.PropRealTopic, message.PropRealQueueID,
		message.PropTimerDelaySec, message.PropTimerDelayMs, message.PropTimerDeliverMs)
	text = message.AppendProperty(text, message.PropDelay, strconv.Itoa(level))
	text = message.AppendProperty(text, message.PropRealTopic, r.Topic)
	text = message.AppendProperty(text, message.PropRealQueueID, strconv.Itoa(int(r.QueueID)))
	r.Properties = string(text)
	r.Topic, r.QueueID = message.ScheduleTopic, int32(level-1)
	r.Accepted = true
}

// errNoDestination is a record of the schedule topic that Defer did not make.
var errNoDestination = errors.New("it does not say where to deliver it")

// Restore turns a record that Defer made into the one to deliver. Its properties
// still show the level, and where it was to go, as in the reference, unless they
// are too long for Java to read. Java:
// ScheduleMessageService.messageTimeUp.
func Restore(v message.View) (message.Record, error) {
	r := message.Record{
		Flag: v.Flag(), SysFlag: v.SysFlag(), BornTime: v.BornTime(), BornHost: v.BornHost(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedTransactionOffset: v.PreparedTransactionOffset(),
		Body: v.Body(), Properties: string(v.Properties()), Accepted: true,
	}
	topic, _ := message.Property(r.Properties, message.PropRealTopic)
	queue, _ := message.Property(r.Properties, message.PropRealQueueID)
	id, err := strconv.ParseInt(queue, 10, 32)
	if topic == "" || err != nil || id < 0 {
		return message.Record{}, fmt.Errorf("position %d, %s %q, %s %q: %w",
			v.Position(), message.PropRealTopic, topic, message.PropRealQueueID, queue, errNoDestination)
	}
	r.Topic, r.QueueID = topic, int32(id)
	if len(r.Properties) > message.MaxPropertiesLength {
		r.Properties = string(message.AppendWithout(nil, r.Properties, message.PropDelay, message.PropRealTopic, message.PropRealQueueID))
	}
	return r, nil
}
