package remoting

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// Fields of zones, in registrations and in requests for routes. Java: MixAll.
const (
	fieldZone     = "__ZONE_NAME"
	fieldZoneMode = "__ZONE_MODE"
)

// getRoute asks where a topic lies. Java: ClientRequestProcessor,
// TopicRouteData.
//
// Differs: the ids of brokers are always texts; RocketMQ's name servers write
// them without quotes for clients before 4.9.4.
func getRoute() *command[protocol.NameServerConn, protocol.GetRouteRequest, protocol.GetRouteResponse] {
	return &command[protocol.NameServerConn, protocol.GetRouteRequest, protocol.GetRouteResponse]{
		name:   "GetRoute",
		codes:  []protocol.Code{protocol.CodeGetRoute},
		method: protocol.NameServerConn.GetRoute,
		encodeRequest: func(q *protocol.GetRouteRequest, f *Frame) {
			f.put("topic", q.Topic)
			if q.Zone != "" {
				f.putBool(fieldZoneMode, true)
				f.put(fieldZone, q.Zone)
			}
		},
		decodeRequest: func(f *Frame) (*protocol.GetRouteRequest, error) {
			h := f.header()
			q := &protocol.GetRouteRequest{Topic: h.must("topic")}
			if zone := h.text(fieldZone); h.bool(fieldZoneMode) && strings.TrimSpace(zone) != "" {
				q.Zone = zone
			}
			return q, h.err
		},
		encodeResponse: func(_ site, _ *protocol.GetRouteRequest, r *protocol.GetRouteResponse, f *Frame) {
			f.Body = encodeRoute(&r.Route)
		},
		decodeResponse: func(f *Frame) (*protocol.GetRouteResponse, error) {
			route, err := decodeRoute(f)
			return &protocol.GetRouteResponse{Route: route}, err
		},
	}
}

// encodeRoute writes a route. The Go client cuts brokerAddrs out of it by
// string operations: it has to be there, without blanks, and addresses without
// escapes.
func encodeRoute(r *protocol.TopicRoute) []byte {
	var w writer
	w.open('{')
	w.list("brokerDatas")
	for i := range r.Brokers {
		w.broker(&r.Brokers[i])
	}
	w.shut(']')
	w.object("filterServerTable")
	for _, addr := range sortedKeys(r.FilterServers) {
		w.texts(addr, r.FilterServers[addr])
	}
	w.shut('}')
	if r.OrderConf != "" {
		w.text("orderTopicConf", r.OrderConf)
	}
	w.list("queueDatas")
	for _, q := range r.Queues {
		w.open('{')
		w.text("brokerName", q.BrokerName)
		w.int("perm", int64(q.Perm))
		w.int("readQueueNums", int64(q.ReadQueues))
		w.int("topicSysFlag", int64(q.SysFlag))
		w.int("writeQueueNums", int64(q.WriteQueues))
		w.shut('}')
	}
	w.shut(']')
	w.shut('}')
	return w.b
}

// broker writes a broker group. Java: BrokerData.
func (w *writer) broker(b *protocol.BrokerData) {
	w.open('{')
	w.brokerAddrs(b.Addrs)
	w.text("brokerName", b.BrokerName)
	w.text("cluster", b.Cluster)
	w.bool("enableActingMaster", false)
	if b.Zone != "" {
		w.text("zoneName", b.Zone)
	}
	w.shut('}')
}

// brokerAddrs writes the addresses of a broker group, {} for none.
func (w *writer) brokerAddrs(addrs map[int64]string) {
	w.object("brokerAddrs")
	for _, id := range sortedKeys(addrs) {
		w.text(strconv.FormatInt(id, 10), addrs[id])
	}
	w.shut('}')
}

func decodeRoute(f *Frame) (r protocol.TopicRoute, err error) {
	v, err := f.object()
	if err != nil {
		return r, err
	}
	r.OrderConf = v.Get("orderTopicConf").Text()
	r.Queues = queueDatasOf(v.Get("queueDatas"))
	for _, b := range v.Get("brokerDatas").List() {
		data, err := brokerOf(b)
		if err != nil {
			return r, err
		}
		r.Brokers = append(r.Brokers, data)
	}
	v.Get("filterServerTable").Each(func(addr, servers Value) {
		if r.FilterServers == nil {
			r.FilterServers = make(map[string][]string)
		}
		r.FilterServers[addr.Text()] = textsOf(servers)
	})
	slices.SortStableFunc(r.Queues, func(a, b protocol.QueueData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
	sortBrokers(r.Brokers)
	return r, nil
}

// queueDatasOf reads shares of brokers, in the order of the text. Java:
// QueueData.
func queueDatasOf(v Value) (queues []protocol.QueueData) {
	for _, q := range v.List() {
		sysFlag := q.Get("topicSysFlag")
		if sysFlag.Null() {
			sysFlag = q.Get("topicSynFlag") // RocketMQ 4
		}
		queues = append(queues, protocol.QueueData{
			BrokerName: q.Get("brokerName").Text(), ReadQueues: q.Get("readQueueNums").int32(0), WriteQueues: q.Get("writeQueueNums").int32(0),
			Perm: protocol.Perm(q.Get("perm").int32(0)), SysFlag: sysFlag.int32(0),
		})
	}
	return queues
}

func sortBrokers(b []protocol.BrokerData) {
	slices.SortStableFunc(b, func(a, b protocol.BrokerData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
}

func brokerOf(v Value) (protocol.BrokerData, error) {
	b := protocol.BrokerData{
		Cluster: v.Get("cluster").Text(), BrokerName: v.Get("brokerName").Text(), Addrs: make(map[int64]string), Zone: v.Get("zoneName").Text(),
	}
	var err error
	v.Get("brokerAddrs").Each(func(id, addr Value) {
		n, bad := strconv.ParseInt(id.Text(), 10, 64)
		if bad != nil {
			err = fmt.Errorf("%w: broker %q has an address for the id %q", errBadHeader, clip(b.BrokerName), clip(id.Text()))
		}
		b.Addrs[n] = addr.Text()
	})
	return b, err
}

// getClusterInfo asks for all brokers. Java: ClusterInfo.
func getClusterInfo() *command[protocol.NameServerConn, protocol.GetClusterInfoRequest, protocol.GetClusterInfoResponse] {
	return &command[protocol.NameServerConn, protocol.GetClusterInfoRequest, protocol.GetClusterInfoResponse]{
		name:           "GetClusterInfo",
		codes:          []protocol.Code{protocol.CodeGetClusterInfo},
		method:         protocol.NameServerConn.GetClusterInfo,
		decodeRequest:  empty[protocol.GetClusterInfoRequest],
		encodeResponse: encodeClusterInfo,
		decodeResponse: decodeClusterInfo,
	}
}

func encodeClusterInfo(_ site, _ *protocol.GetClusterInfoRequest, r *protocol.GetClusterInfoResponse, f *Frame) {
	clusters := make(map[string][]string)
	var w writer
	w.open('{')
	w.object("brokerAddrTable")
	for i := range r.Brokers {
		b := &r.Brokers[i]
		w.name(b.BrokerName)
		w.broker(b)
		clusters[b.Cluster] = append(clusters[b.Cluster], b.BrokerName)
	}
	w.shut('}')
	w.object("clusterAddrTable")
	for _, cluster := range sortedKeys(clusters) {
		w.texts(cluster, clusters[cluster])
	}
	w.shut('}')
	w.shut('}')
	f.Body = w.b
}

func decodeClusterInfo(f *Frame) (*protocol.GetClusterInfoResponse, error) {
	v, err := f.object()
	r := &protocol.GetClusterInfoResponse{}
	v.Get("brokerAddrTable").Each(func(name, value Value) {
		b, bad := brokerOf(value)
		if bad != nil {
			err = bad
		}
		b.BrokerName = name.Text()
		r.Brokers = append(r.Brokers, b)
	})
	sortBrokers(r.Brokers)
	return r, err
}
