package remoting

import (
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// getBrokerMemberGroup asks a name server for one broker group. Java:
// GetBrokerMemberGroupRequestHeader, GetBrokerMemberGroupResponseBody.
//
// Differs: the ids of brokers are texts, as everywhere.
func getBrokerMemberGroup() *command[protocol.NameServerConn, protocol.GetBrokerMemberGroupRequest, protocol.GetBrokerMemberGroupResponse] {
	return &command[protocol.NameServerConn, protocol.GetBrokerMemberGroupRequest, protocol.GetBrokerMemberGroupResponse]{
		name:   "GetBrokerMemberGroup",
		codes:  []protocol.Code{protocol.CodeGetBrokerMemberGroup},
		method: protocol.NameServerConn.GetBrokerMemberGroup,
		encodeRequest: func(q *protocol.GetBrokerMemberGroupRequest, f *Frame) {
			f.put("clusterName", q.Cluster)
			f.put("brokerName", q.BrokerName)
		},
		decodeRequest: func(f *Frame) (*protocol.GetBrokerMemberGroupRequest, error) {
			h := f.header()
			return &protocol.GetBrokerMemberGroupRequest{Cluster: h.must("clusterName"), BrokerName: h.must("brokerName")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetBrokerMemberGroupRequest, r *protocol.GetBrokerMemberGroupResponse, f *Frame) {
			var w writer
			w.open('{')
			w.object("brokerMemberGroup")
			w.brokerAddrs(r.Addrs)
			w.text("brokerName", r.BrokerName)
			w.text("cluster", r.Cluster)
			w.shut('}')
			w.shut('}')
			f.Body = w.b
		},
		decodeResponse: func(f *Frame) (*protocol.GetBrokerMemberGroupResponse, error) {
			v, err := f.object()
			if err != nil {
				return nil, err
			}
			group, err := brokerOf(v.Get("brokerMemberGroup"))
			return &protocol.GetBrokerMemberGroupResponse{Cluster: group.Cluster, BrokerName: group.BrokerName, Addrs: group.Addrs}, err
		},
	}
}

// registerTopic makes a topic routable that no broker has brought. Java:
// RegisterTopicRequestHeader; of the route in the body the queues count.
func registerTopic() *command[protocol.NameServerConn, protocol.RegisterTopicRequest, protocol.RegisterTopicResponse] {
	return &command[protocol.NameServerConn, protocol.RegisterTopicRequest, protocol.RegisterTopicResponse]{
		name:   "RegisterTopic",
		codes:  []protocol.Code{protocol.CodeRegisterTopic},
		method: protocol.NameServerConn.RegisterTopic,
		encodeRequest: func(q *protocol.RegisterTopicRequest, f *Frame) {
			f.put("topic", q.Topic)
			f.Body = encodeRoute(&protocol.TopicRoute{Queues: q.Queues})
		},
		decodeRequest: func(f *Frame) (*protocol.RegisterTopicRequest, error) {
			h := f.header()
			q := &protocol.RegisterTopicRequest{Topic: h.must("topic")}
			if h.err != nil {
				return nil, h.err
			}
			v, err := f.body()
			q.Queues = queueDatasOf(v.Get("queueDatas"))
			return q, err
		},
	}
}

// deleteTopicInNameServer removes a topic's route. Java:
// DeleteTopicFromNamesrvRequestHeader.
func deleteTopicInNameServer() *command[protocol.NameServerConn, protocol.DeleteTopicRouteRequest, protocol.DeleteTopicRouteResponse] {
	return &command[protocol.NameServerConn, protocol.DeleteTopicRouteRequest, protocol.DeleteTopicRouteResponse]{
		name:   "DeleteTopic",
		codes:  []protocol.Code{protocol.CodeDeleteTopicInNameServer},
		method: protocol.NameServerConn.DeleteTopic,
		encodeRequest: func(q *protocol.DeleteTopicRouteRequest, f *Frame) {
			f.put("topic", q.Topic)
			f.putIfAny("clusterName", q.Cluster)
		},
		decodeRequest: func(f *Frame) (*protocol.DeleteTopicRouteRequest, error) {
			h := f.header()
			return &protocol.DeleteTopicRouteRequest{Topic: h.must("topic"), Cluster: h.text("clusterName")}, h.err
		},
	}
}

// wipeWritePerm takes the write permission from a broker's topics. Java:
// WipeWritePermOfBrokerRequestHeader, WipeWritePermOfBrokerResponseHeader.
func wipeWritePerm() *command[protocol.NameServerConn, protocol.WipeWritePermRequest, protocol.WipeWritePermResponse] {
	return &command[protocol.NameServerConn, protocol.WipeWritePermRequest, protocol.WipeWritePermResponse]{
		name:          "WipeWritePerm",
		codes:         []protocol.Code{protocol.CodeWipeWritePerm},
		method:        protocol.NameServerConn.WipeWritePerm,
		encodeRequest: func(q *protocol.WipeWritePermRequest, f *Frame) { f.put("brokerName", q.BrokerName) },
		decodeRequest: func(f *Frame) (*protocol.WipeWritePermRequest, error) {
			h := f.header()
			return &protocol.WipeWritePermRequest{BrokerName: h.must("brokerName")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.WipeWritePermRequest, r *protocol.WipeWritePermResponse, f *Frame) {
			f.putInt("wipeTopicCount", r.Topics)
		},
		decodeResponse: func(f *Frame) (*protocol.WipeWritePermResponse, error) {
			h := f.header()
			return &protocol.WipeWritePermResponse{Topics: h.int("wipeTopicCount")}, h.err
		},
	}
}

// addWritePerm gives the write permission to a broker's topics. Java:
// AddWritePermOfBrokerRequestHeader, AddWritePermOfBrokerResponseHeader.
func addWritePerm() *command[protocol.NameServerConn, protocol.AddWritePermRequest, protocol.AddWritePermResponse] {
	return &command[protocol.NameServerConn, protocol.AddWritePermRequest, protocol.AddWritePermResponse]{
		name:          "AddWritePerm",
		codes:         []protocol.Code{protocol.CodeAddWritePerm},
		method:        protocol.NameServerConn.AddWritePerm,
		encodeRequest: func(q *protocol.AddWritePermRequest, f *Frame) { f.put("brokerName", q.BrokerName) },
		decodeRequest: func(f *Frame) (*protocol.AddWritePermRequest, error) {
			h := f.header()
			return &protocol.AddWritePermRequest{BrokerName: h.must("brokerName")}, h.err
		},
		encodeResponse: func(_ site, _ *protocol.AddWritePermRequest, r *protocol.AddWritePermResponse, f *Frame) {
			f.putInt("addTopicCount", r.Topics)
		},
		decodeResponse: func(f *Frame) (*protocol.AddWritePermResponse, error) {
			h := f.header()
			return &protocol.AddWritePermResponse{Topics: h.int("addTopicCount")}, h.err
		},
	}
}

// updateNameServerConfig asks for other settings. What the body says is of no
// interest: it is refused.
func updateNameServerConfig() *command[protocol.NameServerConn, protocol.UpdateNameServerConfigRequest, protocol.UpdateNameServerConfigResponse] {
	return &command[protocol.NameServerConn, protocol.UpdateNameServerConfigRequest, protocol.UpdateNameServerConfigResponse]{
		name:          "UpdateNameServerConfig",
		codes:         []protocol.Code{protocol.CodeUpdateNameServerConfig},
		method:        protocol.NameServerConn.UpdateNameServerConfig,
		decodeRequest: empty[protocol.UpdateNameServerConfigRequest],
	}
}

// getNameServerConfig asks for the settings of a name server, which come as a
// text of lines "name=value". Java: MixAll.properties2String.
func getNameServerConfig() *command[protocol.NameServerConn, protocol.GetNameServerConfigRequest, protocol.GetNameServerConfigResponse] {
	return &command[protocol.NameServerConn, protocol.GetNameServerConfigRequest, protocol.GetNameServerConfigResponse]{
		name:          "GetNameServerConfig",
		codes:         []protocol.Code{protocol.CodeGetNameServerConfig},
		method:        protocol.NameServerConn.GetNameServerConfig,
		decodeRequest: empty[protocol.GetNameServerConfigRequest],
		encodeResponse: func(_ site, _ *protocol.GetNameServerConfigRequest, r *protocol.GetNameServerConfigResponse, f *Frame) {
			var b strings.Builder
			for _, name := range sortedKeys(r.Settings) {
				b.WriteString(name + "=" + r.Settings[name] + "\n")
			}
			f.Body = []byte(b.String())
		},
		decodeResponse: func(f *Frame) (*protocol.GetNameServerConfigResponse, error) {
			r := &protocol.GetNameServerConfigResponse{Settings: make(map[string]string)}
			for line := range strings.Lines(string(f.Body)) {
				line = strings.TrimSpace(line)
				if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
					r.Settings[strings.TrimSpace(name)] = strings.TrimSpace(value)
				}
			}
			return r, nil
		},
	}
}
