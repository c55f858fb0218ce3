package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/pocketmq/pocketmq/protocol"
)

// Versions from which a registration has parts of its body. Java: MQVersion,
// RegisterBrokerBody.
const (
	versionRegisterBody = 37 // before, the body is the table of topics alone
	maxRegisterBody     = MaxFrame
	// maxRegisteredTopics is as many as a name server keeps of all brokers together.
	maxRegisteredTopics = 1 << 18
)

// putBroker writes the fields that name a broker.
func (f *Frame) putBroker(cluster, name string, id int64, addr string) {
	f.put("brokerName", name)
	f.put("brokerAddr", addr)
	f.put("clusterName", cluster)
	f.putLong("brokerId", id)
}

// registerBroker announces a broker and its topics. Java:
// RegisterBrokerRequestHeader, RegisterBrokerBody.
func registerBroker() *command[protocol.NameServerConn, protocol.RegisterBrokerRequest, protocol.RegisterBrokerResponse] {
	return &command[protocol.NameServerConn, protocol.RegisterBrokerRequest, protocol.RegisterBrokerResponse]{
		name:          "RegisterBroker",
		bound:         true,
		codes:         []protocol.Code{protocol.CodeRegisterBroker},
		method:        protocol.NameServerConn.RegisterBroker,
		encodeRequest: encodeRegistration,
		decodeRequest: decodeRegistration,
		body:          bodyTable,
		encodeResponse: func(_ site, _ *protocol.RegisterBrokerRequest, r *protocol.RegisterBrokerResponse, f *Frame) {
			f.putIfAny("haServerAddr", r.HAAddr)
			f.putIfAny("masterAddr", r.MasterAddr)
			if r.OrderTopics != nil {
				f.putTable(r.OrderTopics)
			}
		},
		decodeResponse: func(f *Frame) (*protocol.RegisterBrokerResponse, error) {
			h := f.header()
			r := &protocol.RegisterBrokerResponse{MasterAddr: h.text("masterAddr"), HAAddr: h.text("haServerAddr")}
			v, err := f.body()
			if err == nil {
				r.OrderTopics, err = kvTableOf(v)
			}
			return r, err
		},
	}
}

func encodeRegistration(q *protocol.RegisterBrokerRequest, f *Frame) {
	f.putBroker(q.Cluster, q.BrokerName, q.BrokerID, q.Addr)
	f.put("haServerAddr", q.HAAddr)
	if q.HeartbeatTimeout > 0 {
		f.putLong("heartbeatTimeoutMillis", q.HeartbeatTimeout.Milliseconds())
	}
	f.putIfAny(fieldZone, q.Zone)
	var w writer
	w.open('{')
	w.texts("filterServerList", q.FilterServers)
	w.object("topicConfigSerializeWrapper")
	w.name("dataVersion")
	w.dataVersion(q.Version)
	w.object("topicConfigTable")
	for i := range q.Topics {
		t := &q.Topics[i]
		w.name(t.Name)
		w.topic(t)
	}
	w.shut('}')
	w.object("topicQueueMappingDetailMap")
	w.shut('}')
	w.object("topicQueueMappingInfoMap")
	w.shut('}')
	w.shut('}')
	w.shut('}')
	f.Body = w.b
	f.put("compressed", "false")
	f.putLong("bodyCrc32", int64(bodyCRC(f.Body)))
}

// bodyCRC is the checksum of a registration's body. Java: UtilAll.crc32.
func bodyCRC(b []byte) uint32 { return crc32.ChecksumIEEE(b) & 0x7FFFFFFF }

func decodeRegistration(f *Frame) (*protocol.RegisterBrokerRequest, error) {
	h := f.header()
	q := &protocol.RegisterBrokerRequest{
		Cluster: h.must("clusterName"), BrokerName: h.must("brokerName"), BrokerID: h.long("brokerId"), Addr: h.must("brokerAddr"),
		HAAddr: h.text("haServerAddr"), HeartbeatTimeout: duration(h.longOr("heartbeatTimeoutMillis", 0)),
		Zone: h.text(fieldZone),
	}
	crc := h.longOr("bodyCrc32", 0)
	if h.err == nil && crc != 0 && crc != int64(bodyCRC(f.Body)) {
		h.fail("crc32 not match: %d in the header, the body has %d", crc, bodyCRC(f.Body))
	}
	switch {
	case h.err != nil:
		return nil, h.err
	case h.bool("compressed"):
		return q, readCompressedTopics(q, f.Body)
	}
	v, err := f.body()
	if err != nil {
		return nil, err
	}
	table := v
	if f.Version >= versionRegisterBody {
		table = v.Get("topicConfigSerializeWrapper")
		q.FilterServers = textsOf(v.Get("filterServerList"))
	}
	var m members
	q.Version = m.dataVersion(table.Get("dataVersion"))
	table.Get("topicConfigTable").Each(func(name, t Value) {
		q.Topics = append(q.Topics, m.topic(name, t))
	})
	return q, m.err
}

// readCompressedTopics reads a body that a broker has compressed: texts with
// their lengths. What comes after the filter servers is not for us. Java:
// RegisterBrokerBody.decode.
func readCompressedTopics(q *protocol.RegisterBrokerRequest, body []byte) error {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: compressed body: %w", errBadHeader, err)
	}
	defer z.Close() //nolint:errcheck // it reports what Read has
	plain, err := io.ReadAll(io.LimitReader(z, maxRegisterBody+1))
	if err != nil {
		return fmt.Errorf("%w: compressed body: %w", errBadHeader, err)
	}
	if len(plain) > maxRegisterBody {
		return fmt.Errorf("%w: the body has more than %d bytes when it is inflated", errBadHeader, maxRegisterBody)
	}
	p := lengthed{b: plain}
	version, err := ParseBody(p.text())
	if err != nil {
		return err
	}
	var m members
	if q.Version = m.dataVersion(version); m.err != nil {
		return m.err
	}
	n := p.uint32()
	if n > maxRegisteredTopics {
		return fmt.Errorf("%w: %d topics, at most %d are allowed", errBadHeader, n, maxRegisteredTopics)
	}
	for ; n > 0 && p.err == nil; n-- {
		t, err := topicOf(string(p.text()))
		if p.err == nil && err != nil {
			return err
		}
		q.Topics = append(q.Topics, t)
	}
	servers, err := ParseBody(p.text())
	if p.err != nil {
		return p.err
	}
	q.FilterServers = textsOf(servers)
	return err
}

// topicOf reads a topic as TopicConfig.encode writes it: name, read queues,
// write queues, permissions, kind of filter, and attributes that may be absent.
func topicOf(text string) (t protocol.TopicConfig, err error) {
	part := strings.SplitN(text, " ", 6)
	if len(part) < 5 {
		return t, fmt.Errorf("%w: a topic is written %q", errBadHeader, clip(text))
	}
	t.Name = part[0]
	var perm int
	for i, to := range []*int{&t.ReadQueues, &t.WriteQueues, &perm} {
		n, err := strconv.ParseInt(part[i+1], 10, 32)
		if err != nil {
			return t, fmt.Errorf("%w: a topic is written %q", errBadHeader, clip(text))
		}
		*to = int(n)
	}
	t.Perm = protocol.Perm(perm)
	return t, nil
}

// lengthed reads numbers, and texts behind their lengths. Beyond the end
// everything is empty, and err is set.
type lengthed struct {
	b   []byte
	err error
}

func (p *lengthed) take(n uint32) []byte {
	if p.err != nil || uint64(n) > uint64(len(p.b)) {
		p.err, p.b = fmt.Errorf("%w: the compressed body ends early", errBadHeader), nil
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

func (p *lengthed) uint32() uint32 {
	if word := p.take(4); word != nil {
		return binary.BigEndian.Uint32(word)
	}
	return 0
}

func (p *lengthed) text() []byte { return p.take(p.uint32()) }

// dataVersion writes a version of a topic table. Java: DataVersion.
func (w *writer) dataVersion(v protocol.DataVersion) {
	w.open('{')
	w.int("counter", v.Counter)
	w.int("stateVersion", v.StateVersion)
	w.int("timestamp", v.Timestamp)
	w.shut('}')
}

func dataVersionOf(v Value) protocol.DataVersion {
	return protocol.DataVersion{StateVersion: v.Get("stateVersion").Int(0), Timestamp: v.Get("timestamp").Int(0), Counter: v.Get("counter").Int(0)}
}

// unregisterBroker takes a broker out of the routes. Java:
// UnRegisterBrokerRequestHeader.
func unregisterBroker() *command[protocol.NameServerConn, protocol.UnregisterBrokerRequest, protocol.UnregisterBrokerResponse] {
	return &command[protocol.NameServerConn, protocol.UnregisterBrokerRequest, protocol.UnregisterBrokerResponse]{
		name:   "UnregisterBroker",
		codes:  []protocol.Code{protocol.CodeUnregisterBroker},
		method: protocol.NameServerConn.UnregisterBroker,
		encodeRequest: func(q *protocol.UnregisterBrokerRequest, f *Frame) {
			f.putBroker(q.Cluster, q.BrokerName, q.BrokerID, q.Addr)
		},
		decodeRequest: func(f *Frame) (*protocol.UnregisterBrokerRequest, error) {
			h := f.header()
			q := &protocol.UnregisterBrokerRequest{
				Cluster: h.must("clusterName"), BrokerName: h.must("brokerName"), BrokerID: h.long("brokerId"), Addr: h.must("brokerAddr"),
			}
			return q, h.err
		},
	}
}

// brokerHeartbeat keeps a broker alive. Java: BrokerHeartbeatRequestHeader.
func brokerHeartbeat() *command[protocol.NameServerConn, protocol.BrokerHeartbeatRequest, protocol.BrokerHeartbeatResponse] {
	return &command[protocol.NameServerConn, protocol.BrokerHeartbeatRequest, protocol.BrokerHeartbeatResponse]{
		name:   "BrokerHeartbeat",
		codes:  []protocol.Code{protocol.CodeBrokerHeartbeat},
		method: protocol.NameServerConn.BrokerHeartbeat,
		encodeRequest: func(q *protocol.BrokerHeartbeatRequest, f *Frame) {
			f.putBroker(q.Cluster, q.BrokerName, q.BrokerID, q.Addr)
		},
		decodeRequest: func(f *Frame) (*protocol.BrokerHeartbeatRequest, error) {
			h := f.header()
			q := &protocol.BrokerHeartbeatRequest{
				Cluster: h.must("clusterName"), BrokerName: h.must("brokerName"), BrokerID: h.longOr("brokerId", 0), Addr: h.must("brokerAddr"),
			}
			return q, h.err
		},
	}
}

// queryDataVersion asks whether a name server has a version of a broker's
// topics. Java: QueryDataVersionRequestHeader.
func queryDataVersion() *command[protocol.NameServerConn, protocol.QueryDataVersionRequest, protocol.QueryDataVersionResponse] {
	return &command[protocol.NameServerConn, protocol.QueryDataVersionRequest, protocol.QueryDataVersionResponse]{
		name:   "QueryDataVersion",
		codes:  []protocol.Code{protocol.CodeQueryDataVersion},
		method: protocol.NameServerConn.QueryDataVersion,
		encodeRequest: func(q *protocol.QueryDataVersionRequest, f *Frame) {
			f.putBroker(q.Cluster, q.BrokerName, q.BrokerID, q.Addr)
			var w writer
			w.dataVersion(q.Version)
			f.Body = w.b
		},
		decodeRequest: func(f *Frame) (*protocol.QueryDataVersionRequest, error) {
			h := f.header()
			q := &protocol.QueryDataVersionRequest{
				Cluster: h.must("clusterName"), BrokerName: h.must("brokerName"), BrokerID: h.long("brokerId"), Addr: h.must("brokerAddr"),
			}
			v, err := f.object()
			switch {
			case h.err != nil:
				return nil, h.err
			case err != nil:
				return nil, err
			}
			var m members
			q.Version = m.dataVersion(v)
			return q, m.err
		},
		encodeResponse: func(_ site, _ *protocol.QueryDataVersionRequest, r *protocol.QueryDataVersionResponse, f *Frame) {
			f.putBool("changed", r.Changed)
			if r.Version != (protocol.DataVersion{}) {
				var w writer
				w.dataVersion(r.Version)
				f.Body = w.b
			}
		},
		decodeResponse: func(f *Frame) (*protocol.QueryDataVersionResponse, error) {
			h := f.header()
			v, err := f.body()
			return &protocol.QueryDataVersionResponse{Changed: h.bool("changed"), Version: dataVersionOf(v)}, err
		},
	}
}
