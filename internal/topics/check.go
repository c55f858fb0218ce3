package topics

import (
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// MaxQueues bounds a topic's queues on one broker: what a client makes of a
// route grows with them.
const MaxQueues = 65535

// check refuses what may not be created or updated from outside.
func (t *Table) check(c protocol.TopicConfig) error {
	if err := checkName(c.Name); err != nil {
		return err
	}
	if err := message.CheckNotSystem(c.Name, t.o.Cluster, t.o.Broker); err != nil {
		return protocol.BadName(err)
	}
	return checkSize(c)
}

// checkSize refuses numbers that no topic may have.
func checkSize(c protocol.TopicConfig) error {
	if c.ReadQueues < 0 || c.WriteQueues < 0 || c.ReadQueues > MaxQueues || c.WriteQueues > MaxQueues || c.ReadQueues+c.WriteQueues == 0 {
		return protocol.Errorf(protocol.InvalidParameter,
			"topic[%s]: %d read and %d write queues; each must be 0 to %d and not both 0", c.Name, c.ReadQueues, c.WriteQueues, MaxQueues)
	}
	if !c.Perm.Valid() || c.Perm == 0 {
		return protocol.Errorf(protocol.InvalidParameter,
			"topic[%s]: permission %d; it is a sum of 4 (read), 2 (write) and 1 (inherit)", c.Name, c.Perm)
	}
	return nil
}

func checkName(name string) error {
	if err := message.ValidateTopic(name); err != nil {
		return protocol.BadName(err)
	}
	return nil
}
