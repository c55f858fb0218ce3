package pocketmq

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pocketmq/pocketmq/internal/kvconfig"
	"github.com/pocketmq/pocketmq/protocol"
)

// openKV reads the KV configuration.
func (s *NameServer) openKV() (*kvconfig.Table, error) {
	file := ""
	if s.cfg.Dir != "" {
		if info, err := os.Stat(s.cfg.Dir); err == nil && !info.IsDir() {
			return nil, fmt.Errorf("%s is a file; NameServerConfig.Dir needs a folder, or a name to make one of", s.cfg.Dir)
		}
		file = filepath.Join(s.cfg.Dir, "kvConfig.json")
	}
	return kvconfig.Open(kvconfig.Options{File: file, NoSync: s.nosync, Logger: s.log})
}

// PutKVConfig sets one value.
func (s *nameServerSession) PutKVConfig(ctx context.Context, q *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodePutKVConfig, "", q, func(_ context.Context, q *protocol.PutKVConfigRequest) (*protocol.PutKVConfigResponse, error) {
		changed, err := s.kv.Put(q.Namespace, q.Key, q.Value)
		if err != nil {
			return nil, err
		}
		if changed {
			s.log.Info("KV configuration changed", "namespace", clip(q.Namespace), "key", clip(q.Key), "value", clip(q.Value))
			s.orderChanged(q.Namespace, q.Key)
		}
		return &protocol.PutKVConfigResponse{}, nil
	})
}

// GetKVConfig answers one value.
func (s *nameServerSession) GetKVConfig(ctx context.Context, q *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetKVConfig, "", q, func(_ context.Context, q *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
		value, ok := s.kv.Get(q.Namespace, q.Key)
		if !ok {
			return nil, protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s Key: %s", clip(q.Namespace), clip(q.Key))
		}
		return &protocol.GetKVConfigResponse{Value: value}, nil
	})
}

// DeleteKVConfig removes one value.
func (s *nameServerSession) DeleteKVConfig(ctx context.Context, q *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodeDeleteKVConfig, "", q, func(_ context.Context, q *protocol.DeleteKVConfigRequest) (*protocol.DeleteKVConfigResponse, error) {
		deleted, err := s.kv.Delete(q.Namespace, q.Key)
		if err != nil {
			return nil, err
		}
		if deleted {
			s.log.Info("KV configuration deleted", "namespace", clip(q.Namespace), "key", clip(q.Key))
			s.orderChanged(q.Namespace, q.Key)
		}
		return &protocol.DeleteKVConfigResponse{}, nil
	})
}

// ListKVConfig answers a whole namespace.
func (s *nameServerSession) ListKVConfig(ctx context.Context, q *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodeListKVConfig, "", q, func(_ context.Context, q *protocol.ListKVConfigRequest) (*protocol.ListKVConfigResponse, error) {
		table, ok := s.kv.List(q.Namespace)
		if !ok {
			return nil, protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s", clip(q.Namespace))
		}
		return &protocol.ListKVConfigResponse{Table: table}, nil
	})
}

// orderChanged announces that a topic's route has changed, if an entry is about
// that.
func (r *nameServerRun) orderChanged(namespace, topic string) {
	if namespace == protocol.NamespaceOrderTopic && r.table.HasTopic(topic) {
		r.routesChanged([]string{topic})
	}
}

// UpdateNameServerConfig refuses: whoever embeds a name server decides what it
// does, not who can reach its port.
func (s *nameServerSession) UpdateNameServerConfig(ctx context.Context, q *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodeUpdateNameServerConfig, "", q, func(context.Context, *protocol.UpdateNameServerConfigRequest) (*protocol.UpdateNameServerConfigResponse, error) {
		s.log.Warn("a change of the settings from outside was refused", "by", s.peer.Remote)
		return nil, protocol.Errorf(protocol.NoPermission,
			"the settings of %s cannot be changed from outside, nothing was changed; set them where the name server is started (NameServerConfig)", s.cfg.Name)
	})
}

// GetNameServerConfig answers the settings that RocketMQ has a name for. Paths are
// nobody's business.
func (s *nameServerSession) GetNameServerConfig(ctx context.Context, q *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
	return serveNS(ctx, s, protocol.CodeGetNameServerConfig, "", q, func(context.Context, *protocol.GetNameServerConfigRequest) (*protocol.GetNameServerConfigResponse, error) {
		settings := map[string]string{
			"deleteTopicWithBrokerRegistration": "false",
			"enableAllTopicList":                "true",
			"enableTopicList":                   "true",
			"needWaitForService":                "false",
			"notifyMinBrokerIdChanged":          strconv.FormatBool(s.cfg.NotifyMinBrokerID),
			"orderMessageEnable":                "true",
			"returnOrderTopicConfigToBroker":    "true",
			"scanNotActiveBrokerInterval":       strconv.FormatInt(s.cfg.Timings.BrokerScan.Milliseconds(), 10),
			"supportActingMaster":               "false",
		}
		return &protocol.GetNameServerConfigResponse{Settings: settings}, nil
	})
}
