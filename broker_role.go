package pocketmq

import (
	"maps"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq/ha"
	"github.com/pocketmq/pocketmq/protocol"
)

// maxBrokerID bounds the ids in a group: they are small numbers that people write.
const maxBrokerID = 1 << 20

// Role returns what the broker does in its group now. Before Start it is what it
// will begin as.
func (b *Broker) Role() Role {
	if r := b.run.Load(); r != nil {
		return r.standing.Load().role
	}
	if b.cfg.ID != protocol.MasterID {
		return RoleSlave
	}
	return RoleMaster
}

// Epoch returns under which epoch the broker has its role: 0 as long as nobody has
// replicated its log, and before Start.
func (b *Broker) Epoch() int64 {
	if r := b.run.Load(); r != nil {
		return r.standing.Load().epoch
	}
	return 0
}

// needsMaster names the requests that a slave refuses: those that write the log, or
// what the master gives its slaves. Everything else it serves from what it has.
func needsMaster(code Code) bool {
	switch code {
	case protocol.CodeSendMessage, protocol.CodeConsumerSendMsgBack,
		protocol.CodeCreateTopic, protocol.CodeCreateTopicList, protocol.CodeDeleteTopic,
		protocol.CodeUpdateGroup, protocol.CodeUpdateGroupList, protocol.CodeDeleteGroup,
		protocol.CodeLockQueues, protocol.CodeUnlockQueues,
		protocol.CodeResetOffset, protocol.CodeCloneGroupOffset:
		return true
	}
	return false
}

// notMaster refuses what only a master serves. Java: SLAVE_NOT_AVAILABLE of
// AbstractSendMessageProcessor, the rejections of AdminBrokerProcessor.
func (r *brokerRun) notMaster(code Code) error {
	return protocol.Errorf(protocol.ServiceNotAvailable, "%s %s is a slave and does not serve %v: ask the master of %s", protocol.RemarkRole, r.node, code, r.cfg.Name)
}

// checkReplication checks and fills in what concerns the members of a group.
func (cfg *BrokerConfig) checkReplication(p *problems) {
	if cfg.Replication != AsyncReplication && cfg.Replication != SyncReplication {
		p.add("Replication is %d: use AsyncReplication or SyncReplication", cfg.Replication)
	}
	positive(p, "InSyncReplicas", &cfg.InSyncReplicas, 2)
	least := 1
	if cfg.Failover && cfg.Replication == SyncReplication {
		least = 2
	}
	positive(p, "MinInSyncReplicas", &cfg.MinInSyncReplicas, least)
	nonNegative(p, "SlaveReadBytes", cfg.SlaveReadBytes)
	positive(p, "HATransferBytes", &cfg.HATransferBytes, ha.DefaultTransferBytes)
}

// ensureTopics makes the topics of the config. A slave gets those of its master.
func (r *brokerRun) ensureTopics() error {
	if r.cfg.ID != protocol.MasterID {
		return nil
	}
	configured := make([]protocol.TopicConfig, 0, len(r.cfg.Topics))
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Topics)) {
		n := r.cfg.Topics[name]
		configured = append(configured, protocol.TopicConfig{Name: name, ReadQueues: n, WriteQueues: n, Perm: PermRead | PermWrite})
	}
	_, err := r.topics.Ensure(time.Now(), configured...)
	return err
}
