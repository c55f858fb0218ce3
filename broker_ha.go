package pocketmq

import (
	"context"

	"github.com/pocketmq/pocketmq/protocol"
)

// NotifyMinBrokerID is told by name servers when the smallest id of a group changes. A
// slave that does not follow then asks them for its master, and tries at once. Java:
// AdminBrokerProcessor.notifyMinBrokerIdChange.
//
// Differs: what the notice says is not believed, since anybody may send one; name
// servers are asked. A group with failover learns of its master from its controller.
func (s *brokerSession) NotifyMinBrokerID(ctx context.Context, q *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
	return serveBroker(ctx, s, protocol.CodeNotifyMinBrokerID, "", "", q, func(s *brokerSession, _ context.Context, q *protocol.NotifyMinBrokerIDRequest) (*protocol.NotifyMinBrokerIDResponse, error) {
		f := s.receiver.Load()
		if f != nil && s.elections == nil && q.BrokerName == s.cfg.Name && q.MinBrokerID == protocol.MasterID && !f.Status().Connected {
			s.reg.master.Store(nil)
			f.Hurry()
		}
		return &protocol.NotifyMinBrokerIDResponse{}, nil
	})
}

// GetHAStatus answers how far replication has come. Java:
// AdminBrokerProcessor.getBrokerHaStatus.
func (s *brokerSession) GetHAStatus(ctx context.Context, q *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetHAStatus, "", "", q, func(s *brokerSession, _ context.Context, _ *protocol.GetHAStatusRequest) (*protocol.GetHAStatusResponse, error) {
		r := &protocol.GetHAStatusResponse{Master: s.standing.Load().role == RoleMaster, End: s.written()}
		if m := s.master.Load(); m != nil {
			for _, one := range m.slaves.Status().Slaves {
				if one.InSync && one.ID != s.cfg.ID {
					r.InSync++
				}
				if one.Connected {
					r.Slaves = append(r.Slaves, protocol.HASlave{
						Addr: one.Addr, Acked: one.Acked, Lag: one.LagRecords, InSync: one.InSync, BytesPerSecond: int64(one.BytesPerSecond), Sent: one.Sent,
					})
				}
			}
		}
		if f := s.receiver.Load(); f != nil {
			at := f.Status()
			r.Client = protocol.HAClient{MasterAddr: at.Addr, BytesPerSecond: int64(at.BytesPerSecond), End: at.Position, MasterEnd: at.MasterEnd, Active: at.Connected}
		}
		return r, nil
	})
}

// GetEpochCache answers the epochs of the log. Java:
// AdminBrokerProcessor.getBrokerEpochCache.
func (s *brokerSession) GetEpochCache(ctx context.Context, q *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
	return serveBroker(ctx, s, protocol.CodeGetEpochCache, "", "", q, func(s *brokerSession, _ context.Context, _ *protocol.GetEpochCacheRequest) (*protocol.GetEpochCacheResponse, error) {
		r := &protocol.GetEpochCacheResponse{Cluster: s.cfg.Cluster, BrokerName: s.cfg.Name, BrokerID: s.standing.Load().id, End: s.written()}
		epochs := s.store().Epochs()
		for i, e := range epochs {
			entry := protocol.EpochEntry{Epoch: e.Number, First: e.First, End: max(r.End, e.First-1)}
			if i+1 < len(epochs) {
				entry.End = epochs[i+1].First - 1
			}
			r.Epochs = append(r.Epochs, entry)
		}
		return r, nil
	})
}
