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
	GetBrokerMemberGroup(context.Context, *GetBrokerMemberGroupRequest) (*GetBrokerMemberGroupResponse, error)
	GetAllTopics(context.Context, *GetAllTopicsRequest) (*GetAllTopicsResponse, error)
	GetTopicsByCluster(context.Context, *GetTopicsByClusterRequest) (*GetTopicsByClusterResponse, error)
	GetSystemTopics(context.Context, *GetSystemTopicsRequest) (*GetSystemTopicsResponse, error)
	GetUnitTopics(context.Context, *GetUnitTopicsRequest) (*GetUnitTopicsResponse, error)
	RegisterTopic(context.Context, *RegisterTopicRequest) (*RegisterTopicResponse, error)
	DeleteTopic(context.Context, *DeleteTopicRouteRequest) (*DeleteTopicRouteResponse, error)
	WipeWritePerm(context.Context, *WipeWritePermRequest) (*WipeWritePermResponse, error)
	AddWritePerm(context.Context, *AddWritePermRequest) (*AddWritePermResponse, error)
	PutKVConfig(context.Context, *PutKVConfigRequest) (*PutKVConfigResponse, error)
	GetKVConfig(context.Context, *GetKVConfigRequest) (*GetKVConfigResponse, error)
	DeleteKVConfig(context.Context, *DeleteKVConfigRequest) (*DeleteKVConfigResponse, error)
	ListKVConfig(context.Context, *ListKVConfigRequest) (*ListKVConfigResponse, error)
	UpdateNameServerConfig(context.Context, *UpdateNameServerConfigRequest) (*UpdateNameServerConfigResponse, error)
	GetNameServerConfig(context.Context, *GetNameServerConfigRequest) (*GetNameServerConfigResponse, error)
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
	MultiTag    bool   `json:"multiTag,omitempty"` // its messages have several tags (topicFilterType MULTI_TAG)

	// Attributes are settings beyond those. In a request that creates or updates a
	// topic they are changes: "+name" sets one, "-name" removes one, and what is
	// not named stays.
	Attributes Attributes `json:"attributes,omitempty"`
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
	Zone             string // where the broker stands; "" = nowhere in particular
}

// RegisterBrokerResponse tells a slave its master, and every broker which topics
// are ordered.
type RegisterBrokerResponse struct {
	MasterAddr string // of a slave's master; "" for a master
	HAAddr     string

	// OrderTopics is what the name server has in the namespace
	// NamespaceOrderTopic: topic -> order configuration. nil when it has none.
	// It belongs to the receiver.
	OrderTopics map[string]string
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
type GetRouteRequest struct {
	Topic string

	// Zone leaves out the broker groups that have a master and stand elsewhere, with
	// their queues. Upper and lower case are the same. "" = all. On the wire:
	// __ZONE_MODE and __ZONE_NAME. Java: ZoneRouteRPCHook.
	Zone string
}

// GetRouteResponse carries a route that the receiver owns. An unknown topic is
// an *Error of code TopicNotExist.
type GetRouteResponse struct{ Route TopicRoute }

// TopicRoute is where a topic lies. Both slices are sorted by broker name.
// Java: TopicRouteData.
type TopicRoute struct {
	OrderConf     string // of an ordered topic: "broker-a:4;broker-b:4", the queues to send to whatever happens; "" = not ordered
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
	Zone       string           // where it stands; "" = nowhere in particular
}

// GetClusterInfoRequest asks for all brokers.
type GetClusterInfoRequest struct{}

// GetClusterInfoResponse lists all brokers, sorted by name.
type GetClusterInfoResponse struct{ Brokers []BrokerData }

// GetBrokerMemberGroupRequest asks for the members of one broker group.
// Java: GetBrokerMemberGroupRequestHeader.
type GetBrokerMemberGroupRequest struct {
	Cluster    string // is echoed, and looked at no further
	BrokerName string
}

// GetBrokerMemberGroupResponse carries the group, for the receiver to keep;
// without addresses when the name server does not know it.
type GetBrokerMemberGroupResponse struct {
	Cluster    string
	BrokerName string
	Addrs      map[int64]string // broker id -> address
}

// GetAllTopicsRequest asks for the names of all topics.
type GetAllTopicsRequest struct{}

// GetAllTopicsResponse lists all topics, sorted, system topics included.
type GetAllTopicsResponse struct{ Topics []string }

// GetTopicsByClusterRequest asks for the topics of one cluster.
// Java: GetTopicsByClusterRequestHeader.
type GetTopicsByClusterRequest struct{ Cluster string }

// GetTopicsByClusterResponse lists the topics that have a share on a broker of
// the cluster, each once, sorted; none for a cluster that is not known.
type GetTopicsByClusterResponse struct{ Topics []string }

// GetSystemTopicsRequest asks for the topics that name servers know to be the
// system's own.
type GetSystemTopicsRequest struct{}

// GetSystemTopicsResponse lists the names of clusters and brokers, which are
// topics too, sorted. BrokerAddr is the address of a broker that knows the
// system's other topics, "" when no broker is registered.
type GetSystemTopicsResponse struct {
	Topics     []string
	BrokerAddr string
}

// UnitTopics says which topics of a unit are asked for. A unit is an
// installation among several; topics are marked by QueueData.SysFlag.
// Java: TopicSysFlag.
type UnitTopics int

const (
	UnitTopicsOwn        UnitTopics = iota // topics of a unit
	UnitTopicsSubscribed                   // topics that units subscribe to
	UnitTopicsForeign                      // those that units subscribe to, and that are of none
)

// Bits of QueueData.SysFlag and TopicConfig.SysFlag. Java: TopicSysFlag.
const (
	SysFlagUnit           = 1 // the topic is of a unit
	SysFlagUnitSubscribed = 2 // units subscribe to the topic
)

// GetUnitTopicsRequest asks for topics by their marks of units.
type GetUnitTopicsRequest struct{ Which UnitTopics }

// GetUnitTopicsResponse lists the topics whose share on the first broker, by
// name, is marked so; sorted.
type GetUnitTopicsResponse struct{ Topics []string }

// RegisterTopicRequest makes a topic routable that no broker has brought. A topic
// that is known stays as it is; nothing happens either when Queues is empty or
// names a broker that is not registered. Java: RouteInfoManager.registerTopic.
type RegisterTopicRequest struct {
	Topic  string
	Queues []QueueData
}

// RegisterTopicResponse acknowledges a RegisterTopicRequest.
type RegisterTopicResponse struct{}

// DeleteTopicRouteRequest takes a topic out of the routes of a name server: of
// all brokers, or of those of one cluster. A broker that still has it brings it
// back. Java: DeleteTopicFromNamesrvRequestHeader.
type DeleteTopicRouteRequest struct {
	Topic   string
	Cluster string // "" = all
}

// DeleteTopicRouteResponse acknowledges a DeleteTopicRouteRequest.
type DeleteTopicRouteResponse struct{}

// WipeWritePermRequest takes the write permission from all topics of a broker
// group in the routes of a name server, so that producers leave it alone. The
// broker itself accepts sends as before. It lasts until the broker registers a
// topic with a new data version, which then has its own permission again.
// Java: WipeWritePermOfBrokerRequestHeader.
type WipeWritePermRequest struct{ BrokerName string }

// WipeWritePermResponse tells how many topics the broker group has, 0 for one
// that is not known.
type WipeWritePermResponse struct{ Topics int }

// AddWritePermRequest makes all topics of a broker group readable and writable
// in the routes of a name server, whatever they were.
// Java: AddWritePermOfBrokerRequestHeader.
type AddWritePermRequest struct{ BrokerName string }

// AddWritePermResponse tells how many topics the broker group has, 0 for one
// that is not known.
type AddWritePermResponse struct{ Topics int }

// UpdateNameServerConfigRequest asks for other settings; which ones is not even
// looked at. It is always refused with NoPermission: what a server does is
// decided by the program that it is part of.
type UpdateNameServerConfigRequest struct{}

// UpdateNameServerConfigResponse acknowledges nothing, ever.
type UpdateNameServerConfigResponse struct{}

// GetNameServerConfigRequest asks for the settings of a name server.
type GetNameServerConfigRequest struct{}

// GetNameServerConfigResponse carries settings under their names in RocketMQ.
// Java: NamesrvConfig.
type GetNameServerConfigResponse struct{ Settings map[string]string }
