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

// Epoch returns the epoch of the master that the broker is, or whose log it follows: a
// slave that has not found its master since Start has that of its log, one without a
// role the last one that it had. It is 0 as long as nobody has replicated the log, and
// before Start.
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
	if cfg.Replication == AsyncReplication {
		for _, f := range []struct {
			name string
			n    int
		}{{"InSyncReplicas", cfg.InSyncReplicas}, {"MinInSyncReplicas", cfg.MinInSyncReplicas}} {
			if f.n > 0 {
				p.add("%s is %d with AsyncReplication, where sends wait for nobody: leave it 0, or set Replication to SyncReplication", f.name, f.n)
			}
		}
	} else if cfg.Failover && cfg.InSyncReplicas > 0 {
		p.add("InSyncReplicas is %d with Failover, where all that are in sync have to have a message: leave it 0; MinInSyncReplicas says how many are enough", cfg.InSyncReplicas)
	}
	if cfg.ElectUncleanMaster && !cfg.Failover {
		p.add("ElectUncleanMaster is set without Failover: nobody is elected")
	}
	positive(p, "InSyncReplicas", &cfg.InSyncReplicas, 2)
	least := 1
	if cfg.Failover && cfg.Replication == SyncReplication {
		least = 2
	}
	positive(p, "MinInSyncReplicas", &cfg.MinInSyncReplicas, least)
	nonNegative(p, "SlaveReadBytes", cfg.SlaveReadBytes)
	if n := cfg.HATransferBytes; n > 0 && n < minTransferBytes {
		p.add("HATransferBytes is %d, must be %d or more, or 0 (= %d)", n, minTransferBytes, ha.DefaultTransferBytes)
	}
	if n := cfg.HATransferBytes; n > ha.DefaultMaxFrameBytes {
		p.add("HATransferBytes is %d, must be %d or less, which is what one frame carries, or 0 (= %d)", n, ha.DefaultMaxFrameBytes, ha.DefaultTransferBytes)
	}
	positive(p, "HATransferBytes", &cfg.HATransferBytes, ha.DefaultTransferBytes)
	if cfg.Replication == SyncReplication && !cfg.Failover && cfg.InSyncReplicas == 1 && cfg.MinInSyncReplicas == 1 {
		p.add("InSyncReplicas is 1 with SyncReplication: the master counts, so sends wait for nobody; leave it 0 (= 2), or set Replication to AsyncReplication")
	}
}

// minTransferBytes is the least BrokerConfig.HATransferBytes: with less, headers and
// acknowledgements are more than what is copied.
const minTransferBytes = 1 << 10

// maxReplicatedBytes is the most BrokerConfig.MaxMessageSize where there are slaves: a
// record goes into one frame, with topic, properties, keys of the broker's own and headers.
const maxReplicatedBytes = ha.DefaultMaxFrameBytes - 128<<10

// checkReplicable reports messages that no slave could be sent. field is its name.
func (cfg *BrokerConfig) checkReplicable(p *problems, field string) {
	if cfg.MaxMessageSize > maxReplicatedBytes {
		p.add("%s is %d bytes, slaves are sent messages of up to %d: set it to that at most", field, cfg.MaxMessageSize, maxReplicatedBytes)
	}
}

// checkMembers reports what the members of a group, which are fewer, could never do.
func (cfg *BrokerConfig) checkMembers(p *problems, members int) {
	if members > 1 {
		cfg.checkReplicable(p, "Config.MaxMessageSize")
	} else {
		for _, f := range []struct {
			name string
			set  bool
		}{{"HATransferBytes", cfg.HATransferBytes != 0}, {"SyncFromLastFile", cfg.SyncFromLastFile}, {"SlaveReadBytes", cfg.SlaveReadBytes != 0}} {
			if f.set {
				p.add("Config.%s is set, but the group has no slaves: set Slaves, or leave it", f.name)
			}
		}
	}
	if cfg.Replication != SyncReplication {
		return
	}
	if members == 1 {
		p.add("Config.Replication is SyncReplication, but there is no slave that a send could wait for: set Slaves, or leave it AsyncReplication")
		return
	}
	for _, f := range []struct {
		name string
		n    int
	}{{"InSyncReplicas", cfg.InSyncReplicas}, {"MinInSyncReplicas", cfg.MinInSyncReplicas}} {
		if f.n > members {
			p.add("Config.%s is %d, but the group has %d members, the master counted: set it to %d at most, or have more Slaves", f.name, f.n, members, members)
		}
	}
}

// ensureTopics makes the topics of the config. A slave gets those of its master. Queues
// are never taken away: a topic that has more of them keeps them.
func (r *brokerRun) ensureTopics() error {
	if r.cfg.ID != protocol.MasterID {
		return nil
	}
	configured := make([]protocol.TopicConfig, 0, len(r.cfg.Topics))
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Topics)) {
		n := r.cfg.Topics[name]
		if had, ok := r.topics.Get(name); ok && max(had.ReadQueues, had.WriteQueues) > n {
			r.log.Warn("a topic keeps the queues that it has, more than are configured: Admin.CreateTopic makes them fewer",
				"topic", name, "readQueues", had.ReadQueues, "writeQueues", had.WriteQueues, "configured", n)
		}
		configured = append(configured, protocol.TopicConfig{Name: name, ReadQueues: n, WriteQueues: n, Perm: PermRead | PermWrite})
	}
	_, err := r.topics.Ensure(time.Now(), configured...)
	return err
}
