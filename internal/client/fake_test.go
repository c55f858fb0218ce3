package client

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/memnet"
	"github.com/pocketmq/pocketmq/protocol"
)

// fakeNameServer knows the routes it is given and who asked for what.
type fakeNameServer struct {
	name     string
	addr     string
	listener protocol.Listener

	mu     sync.Mutex // guards what follows
	routes map[string]protocol.TopicRoute
	err    error         // answered instead of a route
	hold   chan struct{} // lookups wait for it to be closed; nil: they do not wait
	asked  []string      // topics, in order
	kv     map[string]string
}

type fakeNameServerConn struct {
	protocol.NameServerConn
	s *fakeNameServer
}

func (s *fakeNameServer) Connect(protocol.Session) protocol.NameServerConn {
	return &fakeNameServerConn{s: s}
}

func (s *fakeNameServer) set(topic string, r protocol.TopicRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes == nil {
		s.routes = make(map[string]protocol.TopicRoute)
	}
	s.routes[topic] = r
}

func (s *fakeNameServer) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeNameServer) holdWith(hold chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = hold
}

// lookups returns the topics asked for since the last call.
func (s *fakeNameServer) lookups() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func (c *fakeNameServerConn) Close() error { return nil }

func (c *fakeNameServerConn) GetRoute(ctx context.Context, r *protocol.GetRouteRequest) (*protocol.GetRouteResponse, error) {
	c.s.mu.Lock()
	c.s.asked = append(c.s.asked, r.Topic)
	route, ok := c.s.routes[r.Topic]
	err, hold := c.s.err, c.s.hold
	c.s.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, &protocol.Error{Code: protocol.TopicNotExist, Remark: "No topic route info", Broker: c.s.name}
	}
	route.Queues, route.Brokers = slices.Clone(route.Queues), slices.Clone(route.Brokers)
	return &protocol.GetRouteResponse{Route: route}, nil
}

func (c *fakeNameServerConn) GetKVConfig(_ context.Context, q *protocol.GetKVConfigRequest) (*protocol.GetKVConfigResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.asked = append(c.s.asked, q.Namespace+"/"+q.Key)
	value, ok := c.s.kv[q.Namespace+"/"+q.Key]
	switch {
	case c.s.err != nil:
		return nil, c.s.err
	case !ok:
		return nil, &protocol.Error{Code: protocol.QueryNotFound, Remark: "No config item", Broker: c.s.name}
	}
	return &protocol.GetKVConfigResponse{Value: value}, nil
}

func (c *fakeNameServerConn) GetAllTopics(context.Context, *protocol.GetAllTopicsRequest) (*protocol.GetAllTopicsResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.asked = append(c.s.asked, "all topics")
	if c.s.err != nil {
		return nil, c.s.err
	}
	return &protocol.GetAllTopicsResponse{Topics: slices.Sorted(maps.Keys(c.s.routes))}, nil
}

func (c *fakeNameServerConn) GetClusterInfo(context.Context, *protocol.GetClusterInfoRequest) (*protocol.GetClusterInfoResponse, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.err != nil {
		return nil, c.s.err
	}
	return &protocol.GetClusterInfoResponse{Brokers: []protocol.BrokerData{{BrokerName: "of " + c.s.name}}}, nil
}

// fakeBroker remembers the calls it got, each with its time.
type fakeBroker struct {
	start time.Time

	mu        sync.Mutex // guards what follows
	calls     []string
	heartbeat func(ctx context.Context) error
}

type fakeBrokerConn struct {
	protocol.BrokerConn
	b *fakeBroker
}

func (b *fakeBroker) Connect(s protocol.Session) protocol.BrokerConn {
	b.note("connect " + s.Node)
	return &fakeBrokerConn{b: b}
}

func (b *fakeBroker) note(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, fmt.Sprintf("%v %s", time.Since(b.start), what))
}

// seen returns the calls since the last seen.
func (b *fakeBroker) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *fakeBroker) answerHeartbeat(f func(ctx context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heartbeat = f
}

func (c *fakeBrokerConn) Close() error { c.b.note("close"); return nil }

func (c *fakeBrokerConn) Heartbeat(ctx context.Context, r *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	c.b.note("heartbeat " + r.ClientID)
	c.b.mu.Lock()
	answer := c.b.heartbeat
	c.b.mu.Unlock()
	if answer != nil {
		if err := answer(ctx); err != nil {
			return nil, err
		}
	}
	return &protocol.HeartbeatResponse{}, nil
}

func (c *fakeBrokerConn) UnregisterClient(_ context.Context, r *protocol.UnregisterClientRequest) (*protocol.UnregisterClientResponse, error) {
	c.b.note(fmt.Sprintf("unregister %s %s %s", r.ClientID, r.ProducerGroup, r.ConsumerGroup))
	return &protocol.UnregisterClientResponse{}, nil
}

func (c *fakeBrokerConn) GetMaxOffset(context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	c.b.note("call")
	return &protocol.GetMaxOffsetResponse{}, nil
}

// world is a network with name servers ns-0, ns-1 ... and the dials to them.
type world struct {
	*memnet.Network
	t     testing.TB
	start time.Time
	ns    []*fakeNameServer

	mu    sync.Mutex // guards dials
	dials []string   // of name servers: time and address
}

func newWorld(t testing.TB, nameServers int) *world {
	w := &world{Network: memnet.New(), t: t, start: time.Now()}
	for i := range nameServers {
		w.ns = append(w.ns, &fakeNameServer{name: fmt.Sprint("ns-", i)})
		w.listen(i)
	}
	return w
}

// DialNameServer implements protocol.Transport.
func (w *world) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, fmt.Sprintf("%v %s", time.Since(w.start), d.Addr))
	w.mu.Unlock()
	return w.Network.DialNameServer(ctx, d)
}

// dialled returns the dials since the last call.
func (w *world) dialled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	dials := w.dials
	w.dials = nil
	return dials
}

func (w *world) listen(i int) {
	s := w.ns[i]
	l, err := w.ListenNameServer(context.Background(), protocol.Listen{Node: s.name, Addr: s.addr}, s)
	require.NoError(w.t, err)
	s.listener, s.addr = l, l.Addr()
	w.t.Cleanup(func() { _ = l.Close() })
}

func (w *world) kill(i int) { require.NoError(w.t, w.ns[i].listener.Close()) }

func (w *world) addrs() []string {
	var addrs []string
	for _, s := range w.ns {
		addrs = append(addrs, s.addr)
	}
	return addrs
}

// client makes a client that has chosen name server first.
func (w *world) client(first int, change ...func(*Config)) *Client {
	cfg := Config{Node: "c", NameServers: w.addrs(), Transport: w, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	c := New(cfg)
	c.names.chosen = first
	w.t.Cleanup(func() { require.NoError(w.t, c.Close()) })
	return c
}

func (w *world) broker(node string) (*fakeBroker, protocol.Listener) {
	b := &fakeBroker{start: w.start}
	l, err := w.ListenBroker(context.Background(), protocol.Listen{Node: node}, b)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	return b, l
}

// routeOf is a route of one queue on each of the brokers given as name=address,
// all masters.
func routeOf(brokers ...[2]string) protocol.TopicRoute {
	var r protocol.TopicRoute
	for _, b := range brokers {
		r.Queues = append(r.Queues, protocol.QueueData{BrokerName: b[0], ReadQueues: 1, WriteQueues: 1, Perm: protocol.PermRead | protocol.PermWrite})
		r.Brokers = append(r.Brokers, protocol.BrokerData{Cluster: "c", BrokerName: b[0], Addrs: map[int64]string{0: b[1]}})
	}
	return r
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
