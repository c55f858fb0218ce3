package remoting

import (
	"fmt"
	"slices"

	"github.com/pocketmq/pocketmq/protocol"
)

// putTopics writes a list of topics, and the address of a broker if there is
// one. Java: TopicList.
func (f *Frame) putTopics(topics []string, broker string) {
	var w writer
	w.open('{')
	if broker != "" {
		w.text("brokerAddr", broker)
	}
	w.texts("topicList", topics)
	w.shut('}')
	f.Body = w.b
}

// topics reads what putTopics writes, sorted.
func (f *Frame) topics() (topics []string, broker string, err error) {
	v, err := f.object()
	topics = textsOf(v.Get("topicList"))
	slices.Sort(topics)
	return topics, v.Get("brokerAddr").Text(), err
}

// getAllTopics asks a name server for the names of all topics.
func getAllTopics() *command[protocol.NameServerConn, protocol.GetAllTopicsRequest, protocol.GetAllTopicsResponse] {
	return &command[protocol.NameServerConn, protocol.GetAllTopicsRequest, protocol.GetAllTopicsResponse]{
		name:          "GetAllTopics",
		codes:         []protocol.Code{protocol.CodeGetAllTopics},
		method:        protocol.NameServerConn.GetAllTopics,
		decodeRequest: empty[protocol.GetAllTopicsRequest],
		encodeResponse: func(_ site, _ *protocol.GetAllTopicsRequest, r *protocol.GetAllTopicsResponse, f *Frame) {
			f.putTopics(r.Topics, "")
		},
		decodeResponse: func(f *Frame) (*protocol.GetAllTopicsResponse, error) {
			topics, _, err := f.topics()
			return &protocol.GetAllTopicsResponse{Topics: topics}, err
		},
	}
}

// getTopicsByCluster asks a name server for the topics of a cluster.
func getTopicsByCluster() *command[protocol.NameServerConn, protocol.GetTopicsByClusterRequest, protocol.GetTopicsByClusterResponse] {
	return &command[protocol.NameServerConn, protocol.GetTopicsByClusterRequest, protocol.GetTopicsByClusterResponse]{
		name:          "GetTopicsByCluster",
		codes:         []protocol.Code{protocol.CodeGetTopicsByCluster},
		method:        protocol.NameServerConn.GetTopicsByCluster,
		encodeRequest: func(q *protocol.GetTopicsByClusterRequest, f *Frame) { f.put("cluster", q.Cluster) },
		decodeRequest: func(f *Frame) (*protocol.GetTopicsByClusterRequest, error) {
			h := f.header()
			return &protocol.GetTopicsByClusterRequest{Cluster: h.must("cluster")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetTopicsByClusterRequest, r *protocol.GetTopicsByClusterResponse, f *Frame) {
			f.putTopics(r.Topics, "")
		},
		decodeResponse: func(f *Frame) (*protocol.GetTopicsByClusterResponse, error) {
			topics, _, err := f.topics()
			return &protocol.GetTopicsByClusterResponse{Topics: topics}, err
		},
	}
}

// getSystemTopics asks a name server for the topics that are the system's own.
func getSystemTopics() *command[protocol.NameServerConn, protocol.GetSystemTopicsRequest, protocol.GetSystemTopicsResponse] {
	return &command[protocol.NameServerConn, protocol.GetSystemTopicsRequest, protocol.GetSystemTopicsResponse]{
		name:          "GetSystemTopics",
		codes:         []protocol.Code{protocol.CodeGetSystemTopics},
		method:        protocol.NameServerConn.GetSystemTopics,
		decodeRequest: empty[protocol.GetSystemTopicsRequest],
		encodeResponse: func(_ site, _ *protocol.GetSystemTopicsRequest, r *protocol.GetSystemTopicsResponse, f *Frame) {
			f.putTopics(r.Topics, r.BrokerAddr)
		},
		decodeResponse: func(f *Frame) (*protocol.GetSystemTopicsResponse, error) {
			topics, broker, err := f.topics()
			return &protocol.GetSystemTopicsResponse{Topics: topics, BrokerAddr: broker}, err
		},
	}
}

// The codes that stand for GetUnitTopics beside its own.
const (
	codeUnitSubscribed protocol.Code = 312
	codeUnitForeign    protocol.Code = 313
)

// getUnitTopics asks a name server for topics by their marks of units.
func getUnitTopics() *command[protocol.NameServerConn, protocol.GetUnitTopicsRequest, protocol.GetUnitTopicsResponse] {
	return &command[protocol.NameServerConn, protocol.GetUnitTopicsRequest, protocol.GetUnitTopicsResponse]{
		name:   "GetUnitTopics",
		codes:  []protocol.Code{protocol.CodeGetUnitTopics, codeUnitSubscribed, codeUnitForeign},
		method: protocol.NameServerConn.GetUnitTopics,
		encodeRequest: func(q *protocol.GetUnitTopicsRequest, f *Frame) {
			switch q.Which {
			case protocol.UnitTopicsSubscribed:
				f.Code = int32(codeUnitSubscribed)
			case protocol.UnitTopicsForeign:
				f.Code = int32(codeUnitForeign)
			}
		},
		decodeRequest: func(f *Frame) (*protocol.GetUnitTopicsRequest, error) {
			switch protocol.Code(f.Code) {
			case protocol.CodeGetUnitTopics:
				return &protocol.GetUnitTopicsRequest{Which: protocol.UnitTopicsOwn}, nil
			case codeUnitSubscribed:
				return &protocol.GetUnitTopicsRequest{Which: protocol.UnitTopicsSubscribed}, nil
			case codeUnitForeign:
				return &protocol.GetUnitTopicsRequest{Which: protocol.UnitTopicsForeign}, nil
			}
			return nil, fmt.Errorf("%w: the code %d asks for no topics of units", errBadHeader, f.Code)
		},
		encodeResponse: func(_ site, _ *protocol.GetUnitTopicsRequest, r *protocol.GetUnitTopicsResponse, f *Frame) {
			f.putTopics(r.Topics, "")
		},
		decodeResponse: func(f *Frame) (*protocol.GetUnitTopicsResponse, error) {
			topics, _, err := f.topics()
			return &protocol.GetUnitTopicsResponse{Topics: topics}, err
		},
	}
}
