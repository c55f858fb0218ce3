package protocol

import (
	"context"
	"time"
)

// NameServer is what a name server offers to a Transport.
type NameServer interface {
	// Connect opens a session; see Broker.Connect.
	Connect(s Session) NameServerConn
}

// NameServerConn is a session with a name server. Safe for concurrent use.
type NameServerConn interface {
	RegisterBroker(context.Context, *RegisterBrokerRequest) (*RegisterBrokerResponse, error)
	UnregisterBroker(context.Context, *UnregisterBrokerRequest) (*UnregisterBrokerResponse, error)
	BrokerHeartbeat(context.Context, *BrokerHeartbeatRequest) (*BrokerHeartbeatResponse, error)
	QueryDataVersion(context.Context, *QueryDataVersionRequest) (*QueryDataVersionResponse, error)
	GetRoute(context.Context, *GetRouteRequest) (*GetRouteResponse, error)
	GetClusterInfo(context.Context, *GetClusterInfoRequest) (*GetClusterInfoResponse, error)
	GetAllTopics(context.Context, *GetAllTopicsRequest) (*GetAllTopicsResponse, error)
	DeleteTopic(context.Context, *DeleteTopicRequest) (*DeleteTopicResponse, error)
	Close() error
}

// Perm is a set of queue permissions. Java: PermName.
type Perm int

const (
	PermInherit Perm = 1 // topics may be made after this one
	PermWrite   Perm = 2
	PermRead    Perm = 4
)

// String returns the permissions as Java's tools print them: "RW-" is readable,
// writable, not inherited. Java: PermName.perm2String.
func (p Perm) String() string {
	text := []byte("---")
	for i, bit := range []Perm{PermRead, PermWrite, PermInherit} {
		if p&bit != 0 {
			text[i] = "RWX"[i]
		}
	}
	return string(text)
}

// Valid reports whether p is made of the permissions that exist, or of none.
// Java: PermName.isValid.
func (p Perm) Valid() bool { return p&^(PermRead|PermWrite|PermInherit) == 0 }

// MasterID is the broker id of a group's master; slaves have higher ones.
// Java: MixAll.MASTER_ID.
const MasterID = 0

// TopicConfig is a topic as one broker holds it. Java: TopicConfig.
type TopicConfig struct {
	Name        string `json:"topicName"`
	ReadQueues  int    `json:"readQueueNums"`
	WriteQueues int    `json:"writeQueueNums"`
	Perm        Perm   `json:"perm"`
	Order       bool   `json:"order"`
	SysFlag     int    `json:"topicSysFlag"`
}

// DataVersion orders the states of a broker's topic table. Java: DataVersion.
type DataVersion struct {
	StateVersion int64 `json:"stateVersion"`
	Timestamp    int64 `json:"timestamp"` // ms
	Counter      int64 `json:"counter"`
}

// RegisterBrokerRequest announces a broker and its topics.
type RegisterBrokerRequest struct {
	Cluster          string
	BrokerName       string
	BrokerID         int64
	Addr             string
	HAAddr           string
	HeartbeatTimeout time.Duration // silence after which the broker is dropped; 0 = 120 s
	Version          DataVersion
	Topics           []TopicConfig // all of them, or only the changed ones
	FilterServers    []string
}

// RegisterBrokerResponse tells a slave its master; empty for a master.
type RegisterBrokerResponse struct {
	MasterAddr string
	HAAddr     string
}

// UnregisterBrokerRequest takes a broker out of the routes.
type UnregisterBrokerRequest struct {
	Cluster    string
	BrokerName string
	BrokerID   int64
	Addr       string
}

// UnregisterBrokerResponse acknowledges an UnregisterBrokerRequest.
type UnregisterBrokerResponse struct{}

// BrokerHeartbeatRequest keeps a registered broker alive.
type BrokerHeartbeatRequest struct {
	Cluster    string
	BrokerName string
	BrokerID   int64
	Addr       string
}

// BrokerHeartbeatResponse acknowledges a BrokerHeartbeatRequest.
type BrokerHeartbeatResponse struct{}

// QueryDataVersionRequest asks whether the name server has this version of a
// broker's topics; it also keeps the broker alive.
type QueryDataVersionRequest struct {
	Cluster    string
	BrokerName string
	BrokerID   int64
	Addr       string
	Version    DataVersion
}

// QueryDataVersionResponse carries the answer.
type QueryDataVersionResponse struct {
	Changed bool
	Version DataVersion // the name server's; zero when it knows none
}

// GetRouteRequest asks where a topic lies.
type GetRouteRequest struct{ Topic string }

// GetRouteResponse carries a route that the receiver owns. An unknown topic is
// an *Error of code TopicNotExist.
type GetRouteResponse struct{ Route TopicRoute }

// TopicRoute is where a topic lies. Both slices are sorted by broker name.
// Java: TopicRouteData.
type TopicRoute struct {
	OrderConf     string
	Queues        []QueueData
	Brokers       []BrokerData
	FilterServers map[string][]string // broker address -> filter servers
}

// QueueData is a topic's share on one broker group.
type QueueData struct {
	BrokerName  string
	ReadQueues  int
	WriteQueues int
	Perm        Perm
	SysFlag     int
}

// BrokerData is a broker group and the addresses of its members.
type BrokerData struct {
	Cluster    string
	BrokerName string
	Addrs      map[int64]string // broker id -> address
}

// GetClusterInfoRequest asks for all brokers.
type GetClusterInfoRequest struct{}

// GetClusterInfoResponse lists all brokers, sorted by name.
type GetClusterInfoResponse struct{ Brokers []BrokerData }

// GetAllTopicsRequest asks for the names of all topics.
type GetAllTopicsRequest struct{}

// GetAllTopicsResponse lists all topics, sorted, system topics included.
type GetAllTopicsResponse struct{ Topics []string }
