package protocol

// NotifyMinBrokerIDRequest tells a member of a broker group that the smallest id among
// its members is another one's now, or that of another address. Java:
// NotifyMinBrokerIdChangeRequestHeader.
type NotifyMinBrokerIDRequest struct {
	BrokerName    string
	MinBrokerID   int64
	MinBrokerAddr string
	OfflineAddr   string // of the member that is gone; "" when one has come
	HAAddr        string // where the member with the smallest id gives its log to slaves
	Oneway        bool   // no answer is wanted: (nil, nil) as soon as the request has left; so RocketMQ's name servers
}

// NotifyMinBrokerIDResponse says that it was heard.
type NotifyMinBrokerIDResponse struct{}

// GetHAStatusRequest asks a broker how far replication has come. Java:
// GET_BROKER_HA_STATUS.
type GetHAStatusRequest struct{}

// GetHAStatusResponse carries that. Offsets are positions of log records. Java:
// HARuntimeInfo.
type GetHAStatusResponse struct {
	Master bool
	End    int64     // of a master's log
	InSync int       // slaves that count as in sync
	Slaves []HASlave // of a master
	Client HAClient  // of a slave
}

// HASlave is a slave as its master sees it. Java: HAConnectionRuntimeInfo.
type HASlave struct {
	Addr           string
	Acked          int64
	Lag            int64
	InSync         bool
	BytesPerSecond int64
	Sent           int64 // up to this position
}

// HAClient is the link of a slave to its master. Java: HAClientRuntimeInfo.
type HAClient struct {
	MasterAddr     string
	BytesPerSecond int64
	End            int64 // of the slave's log
	MasterEnd      int64 // of the master's, as it said last
	Active         bool
}

// GetEpochCacheRequest asks a broker for the epochs of its log. Java:
// GET_BROKER_EPOCH_CACHE.
type GetEpochCacheRequest struct{}

// GetEpochCacheResponse carries them. Java: EpochEntryCache.
type GetEpochCacheResponse struct {
	Cluster, BrokerName string
	BrokerID            int64
	Epochs              []EpochEntry
	End                 int64 // of the log
}

// EpochEntry is a part of a log that was written under one epoch: records First to
// End, both included; End is below First for an epoch without any. Java: EpochEntry.
type EpochEntry struct{ Epoch, First, End int64 }
