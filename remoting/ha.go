package remoting

import "github.com/pocketmq/pocketmq/protocol"

// notifyMinBrokerID tells a broker that the smallest id of its group is another one's.
// Java: NotifyMinBrokerIdChangeRequestHeader, whose fields may all be missing.
func notifyMinBrokerID() *command[protocol.BrokerConn, protocol.NotifyMinBrokerIDRequest, protocol.NotifyMinBrokerIDResponse] {
	return &command[protocol.BrokerConn, protocol.NotifyMinBrokerIDRequest, protocol.NotifyMinBrokerIDResponse]{
		name:   "NotifyMinBrokerID",
		codes:  []protocol.Code{protocol.CodeNotifyMinBrokerID},
		method: protocol.BrokerConn.NotifyMinBrokerID,
		oneway: func(q *protocol.NotifyMinBrokerIDRequest) bool { return q.Oneway },
		encodeRequest: func(q *protocol.NotifyMinBrokerIDRequest, f *Frame) {
			f.putLong("minBrokerId", q.MinBrokerID)
			f.put("brokerName", q.BrokerName)
			f.putIfAny("minBrokerAddr", q.MinBrokerAddr)
			f.putIfAny("offlineBrokerAddr", q.OfflineAddr)
			f.putIfAny("haBrokerAddr", q.HAAddr)
		},
		decodeRequest: func(f *Frame) (*protocol.NotifyMinBrokerIDRequest, error) {
			h := f.header()
			q := &protocol.NotifyMinBrokerIDRequest{
				MinBrokerID: h.longOr("minBrokerId", 0), BrokerName: h.text("brokerName"), MinBrokerAddr: h.text("minBrokerAddr"),
				OfflineAddr: h.text("offlineBrokerAddr"), HAAddr: h.text("haBrokerAddr"), Oneway: f.Oneway(),
			}
			return q, h.err
		},
	}
}

// getHAStatus asks a broker how far replication has come. Java: HARuntimeInfo.
func getHAStatus() *command[protocol.BrokerConn, protocol.GetHAStatusRequest, protocol.GetHAStatusResponse] {
	return &command[protocol.BrokerConn, protocol.GetHAStatusRequest, protocol.GetHAStatusResponse]{
		name:          "GetHAStatus",
		codes:         []protocol.Code{protocol.CodeGetHAStatus},
		method:        protocol.BrokerConn.GetHAStatus,
		decodeRequest: empty[protocol.GetHAStatusRequest],
		encodeResponse: func(_ site, _ *protocol.GetHAStatusRequest, r *protocol.GetHAStatusResponse, f *Frame) {
			var w writer
			w.open('{')
			w.object("haClientRuntimeInfo")
			w.bool("activated", r.Client.Active)
			w.int("lastReadTimestamp", 0)
			w.int("lastWriteTimestamp", 0)
			w.text("masterAddr", r.Client.MasterAddr)
			w.int("masterFlushOffset", r.Client.MasterEnd)
			w.int("maxOffset", r.Client.End)
			w.int("transferredByteInSecond", r.Client.BytesPerSecond)
			w.shut('}')
			w.list("haConnectionInfo")
			for _, s := range r.Slaves {
				w.open('{')
				w.text("addr", s.Addr)
				w.int("diff", s.Lag)
				w.bool("inSync", s.InSync)
				w.int("slaveAckOffset", s.Acked)
				w.int("transferFromWhere", s.Sent)
				w.int("transferredByteInSecond", s.BytesPerSecond)
				w.shut('}')
			}
			w.shut(']')
			w.int("inSyncSlaveNums", int64(r.InSync))
			w.bool("master", r.Master)
			w.int("masterCommitLogMaxOffset", r.End)
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetHAStatusResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			c := v.Get("haClientRuntimeInfo")
			r := &protocol.GetHAStatusResponse{
				Master: v.Get("master").Bool(false), End: v.Get("masterCommitLogMaxOffset").Int(0), InSync: v.Get("inSyncSlaveNums").int32(0),
				Client: protocol.HAClient{
					MasterAddr: c.Get("masterAddr").Text(), BytesPerSecond: c.Get("transferredByteInSecond").Int(0),
					End: c.Get("maxOffset").Int(0), MasterEnd: c.Get("masterFlushOffset").Int(0), Active: c.Get("activated").Bool(false),
				},
			}
			for _, s := range v.Get("haConnectionInfo").List() {
				r.Slaves = append(r.Slaves, protocol.HASlave{
					Addr: s.Get("addr").Text(), Acked: s.Get("slaveAckOffset").Int(0), Lag: s.Get("diff").Int(0), InSync: s.Get("inSync").Bool(false),
					BytesPerSecond: s.Get("transferredByteInSecond").Int(0), Sent: s.Get("transferFromWhere").Int(0),
				})
			}
			return r, nil
		},
	}
}

// getEpochCache asks a broker for the epochs of its log. Java: EpochEntryCache, where an
// entry ends in front of its endOffset.
func getEpochCache() *command[protocol.BrokerConn, protocol.GetEpochCacheRequest, protocol.GetEpochCacheResponse] {
	return &command[protocol.BrokerConn, protocol.GetEpochCacheRequest, protocol.GetEpochCacheResponse]{
		name:          "GetEpochCache",
		codes:         []protocol.Code{protocol.CodeGetEpochCache},
		method:        protocol.BrokerConn.GetEpochCache,
		decodeRequest: empty[protocol.GetEpochCacheRequest],
		encodeResponse: func(_ site, _ *protocol.GetEpochCacheRequest, r *protocol.GetEpochCacheResponse, f *Frame) {
			var w writer
			w.open('{')
			w.int("brokerId", r.BrokerID)
			w.text("brokerName", r.BrokerName)
			w.text("clusterName", r.Cluster)
			w.list("epochList")
			for _, e := range r.Epochs {
				w.open('{')
				w.int("endOffset", e.End+1)
				w.int("epoch", e.Epoch)
				w.int("startOffset", e.First)
				w.shut('}')
			}
			w.shut(']')
			w.int("maxOffset", r.End)
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetEpochCacheResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			r := &protocol.GetEpochCacheResponse{
				Cluster: v.Get("clusterName").Text(), BrokerName: v.Get("brokerName").Text(), BrokerID: v.Get("brokerId").Int(0), End: v.Get("maxOffset").Int(0),
			}
			for _, e := range v.Get("epochList").List() {
				r.Epochs = append(r.Epochs, protocol.EpochEntry{Epoch: e.Get("epoch").Int(0), First: e.Get("startOffset").Int(0), End: e.Get("endOffset").Int(0) - 1})
			}
			return r, nil
		},
	}
}
