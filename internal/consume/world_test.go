package consume

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/internal/client"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

const (
	testGroup = "g"
	testTopic = "orders"
)

// world is a name server and its brokers, as far as an engine can see them.
type world struct {
	t  *testing.T
	mu sync.Mutex

	brokers map[string]*fakeBroker
	topics  map[string]map[string]int // topic -> broker -> queues
	clients []*fakeClient
	mute    bool // notices to members are lost
	noNames bool // no name server answers
	noRetry bool // heartbeats make no retry topic
	slaves  bool // the members that are left of all broker groups are slaves
}

type fakeBroker struct {
	w       *world
	name    string
	down    bool  // refuses dials, breaks connections
	silent  bool  // never answers
	refuse  error // answer to commits; nil: taken
	queues  map[message.Queue]*fakeQueue
	commits map[message.Queue]int64 // of testGroup
	resets  map[message.Queue]int64 // pending: the next pull gets them, and commits do not count until then
	members map[string]bool         // of testGroup
	locks   map[message.Queue]lock  // of testGroup
	epoch   int                     // of its connections
	changed chan struct{}           // closed when something changed
	pulls   []pullSeen
	updates []update
	back    func(context.Context, *protocol.ConsumerSendMsgBackRequest) error // nil: taken back
	backs   []backSeen
	send    func(*protocol.SendMessageRequest) error // nil: taken
	sends   []sendSeen
	again   map[message.Queue]map[int64]bool                                          // what was taken back
	answer  func(*protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) // nil: not overridden
	calls   map[string]int
}

// lock is the lock of one queue: no lock is older than a minute.
type lock struct {
	client string
	at     time.Time
}

type fakeQueue struct {
	min     int64
	records [][]byte // of min and the following offsets
}

type pullSeen struct {
	at     time.Time
	client string
	req    protocol.PullMessageRequest
}

type backSeen struct {
	at  time.Time
	req protocol.ConsumerSendMsgBackRequest
}

type sendSeen struct {
	at  time.Time
	req protocol.SendMessageRequest
}

type update struct {
	at     time.Time
	queue  message.Queue
	offset int64
}

func newWorld(t *testing.T, brokers ...string) *world {
	w := &world{t: t, brokers: make(map[string]*fakeBroker), topics: make(map[string]map[string]int)}
	for _, name := range brokers {
		w.addBroker(name)
	}
	return w
}

func (w *world) addBroker(name string) *fakeBroker {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &fakeBroker{w: w, name: name, queues: make(map[message.Queue]*fakeQueue), commits: make(map[message.Queue]int64), resets: make(map[message.Queue]int64),
		members: make(map[string]bool), locks: make(map[message.Queue]lock), changed: make(chan struct{}), calls: make(map[string]int),
		again: make(map[message.Queue]map[int64]bool)}
	w.brokers[name] = b
	return b
}

// topic makes or grows a topic on a broker.
func (w *world) topic(topic, broker string, queues int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.topics[topic] == nil {
		w.topics[topic] = make(map[string]int)
	}
	w.topics[topic][broker] = queues
	for i := range queues {
		q := message.Queue{Topic: topic, BrokerName: broker, QueueID: i}
		if w.brokers[broker].queues[q] == nil {
			w.brokers[broker].queues[q] = new(fakeQueue)
		}
	}
}

func queueOf(broker string, id int) message.Queue {
	return message.Queue{Topic: testTopic, BrokerName: broker, QueueID: id}
}

// send appends messages to a queue.
func (w *world) send(q message.Queue, bodies ...string) { w.sendTagged(q, "", bodies...) }

func (w *world) sendTagged(q message.Queue, tag string, bodies ...string) {
	w.mu.Lock()
	b := w.brokers[q.BrokerName]
	f := b.queues[q]
	for _, body := range bodies {
		f.records = append(f.records, storedRecord(w.t, q, f.min+int64(len(f.records)), tag, body))
	}
	b.changedLocked()
	w.mu.Unlock()
}

func storedRecord(t testing.TB, q message.Queue, offset int64, tag, body string) []byte {
	m := message.Message{Topic: q.Topic, Body: []byte(body), Tag: tag}
	rec, err := message.AppendRecord(nil, &message.Record{
		QueueID: int32(q.QueueID), QueueOffset: offset, Position: int64(q.QueueID)<<20 + offset + 1,
		BornTime: time.Now().UnixMilli(), StoreTime: time.Now().UnixMilli(),
		BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: netip.MustParseAddrPort("127.0.0.1:2"),
		Body: m.Body, Topic: q.Topic, Properties: string(m.AppendProperties(nil, fmt.Sprintf("K%d", offset))),
	})
	require.NoError(t, err)
	return rec
}

func (b *fakeBroker) changedLocked() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// numbered returns the bodies "m<from>" to "m<to-1>".
func numbered(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("m%d", i))
	}
	return out
}

func (w *world) committed(q message.Queue) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if off, ok := w.brokers[q.BrokerName].commits[q]; ok {
		return off
	}
	return -1
}

// reset moves the group to an offset of a queue, as a broker does it.
func (w *world) reset(q message.Queue, offset int64) {
	w.change(func() { w.brokers[q.BrokerName].commits[q], w.brokers[q.BrokerName].resets[q] = offset, offset })
}

// change edits the world under its lock and wakes held pulls.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	for _, b := range w.brokers {
		b.changedLocked()
	}
}

// pulls returns the pulls that a broker saw for one queue.
func (w *world) pulls(q message.Queue) []pullSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []pullSeen
	for _, p := range w.brokers[q.BrokerName].pulls {
		if p.req.Topic == q.Topic && p.req.QueueID == q.QueueID {
			out = append(out, p)
		}
	}
	return out
}

func (w *world) updates(q message.Queue) []update {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []update
	for _, u := range w.brokers[q.BrokerName].updates {
		if u.queue == q {
			out = append(out, u)
		}
	}
	return out
}

func (w *world) members(broker string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.brokers[broker].members))
}

func (w *world) calls(broker, method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.brokers[broker].calls[method]
}

// register adds or removes a member and returns whom to notify.
func (b *fakeBroker) registerLocked(id string, member bool) (notify []*fakeClient) {
	if b.members[id] == member {
		return nil
	}
	if member {
		b.members[id] = true
	} else {
		delete(b.members, id)
	}
	if b.w.mute {
		return nil
	}
	for _, c := range b.w.clients {
		if b.members[c.id] {
			notify = append(notify, c)
		}
	}
	return notify
}

func tell(clients []*fakeClient) {
	for _, c := range clients {
		if c.engine != nil {
			c.engine.MembersChanged()
		}
	}
}

// fakeClient is one client's view of the world.
type fakeClient struct {
	w      *world
	id     string
	engine *Engine

	mu      sync.Mutex
	routes  map[string]*client.Route
	watched map[string]int
	lost    atomic.Int64
}

func (w *world) client(id string) *fakeClient {
	c := &fakeClient{w: w, id: id, routes: make(map[string]*client.Route), watched: make(map[string]int)}
	w.mu.Lock()
	w.clients = append(w.clients, c)
	w.mu.Unlock()
	return c
}

func (c *fakeClient) Route(ctx context.Context, topic string) (*client.Route, error) {
	if r := c.Cached(topic); r != nil {
		return r, nil
	}
	r, _, err := c.lookup(topic)
	return r, err
}

func (c *fakeClient) Refresh(ctx context.Context, topic string) (*client.Route, bool, error) {
	r, changed, err := c.lookup(topic)
	if changed {
		c.engine.RoutesChanged([]string{topic})
	}
	return r, changed, err
}

func (c *fakeClient) lookup(topic string) (*client.Route, bool, error) {
	c.w.mu.Lock()
	if c.w.noNames {
		c.w.mu.Unlock()
		return nil, false, fmt.Errorf("ns-0: %w", protocol.ErrUnreachable)
	}
	shares := c.w.topics[topic]
	if len(shares) == 0 {
		c.w.mu.Unlock()
		return nil, false, fmt.Errorf("no route for topic %q: %w", topic, protocol.ErrNoRoute)
	}
	r := &client.Route{Topic: topic}
	for name, n := range shares {
		r.TopicRoute.Brokers = append(r.TopicRoute.Brokers, protocol.BrokerData{BrokerName: name, Addrs: map[int64]string{0: name}})
		for i := range n {
			r.Subscribe = append(r.Subscribe, message.Queue{Topic: topic, BrokerName: name, QueueID: i})
		}
	}
	r.Publish = r.Subscribe
	c.w.mu.Unlock()
	slices.SortFunc(r.TopicRoute.Brokers, func(a, b protocol.BrokerData) int { return strings.Compare(a.BrokerName, b.BrokerName) })
	slices.SortFunc(r.Subscribe, message.Queue.Compare) // and Publish
	c.mu.Lock()
	old := c.routes[topic]
	c.routes[topic] = r
	c.mu.Unlock()
	return r, old == nil || !slices.Equal(old.Subscribe, r.Subscribe), nil
}

func (c *fakeClient) Cached(topic string) *client.Route {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.routes[topic]
}

func (c *fakeClient) Watch(topic string)   { c.mu.Lock(); c.watched[topic]++; c.mu.Unlock() }
func (c *fakeClient) Unwatch(topic string) { c.mu.Lock(); c.watched[topic]--; c.mu.Unlock() }

func (c *fakeClient) watching(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched[topic]
}

func (c *fakeClient) MasterAddr(broker string) (string, bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return broker, c.w.brokers[broker] != nil && !c.w.slaves
}

func (c *fakeClient) MemberAddr(broker string, want int64) (string, int64, bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	b := c.w.brokers[broker]
	if b != nil && want == protocol.MasterID && !c.w.slaves {
		return broker, want, true
	}
	return broker, 1, b != nil
}

func (c *fakeClient) Broker(ctx context.Context, addr string) (protocol.BrokerConn, error) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	b := c.w.brokers[addr]
	if b == nil || b.down {
		return nil, fmt.Errorf("dial %s: %w", addr, protocol.ErrUnreachable)
	}
	return &fakeConn{b: b, c: c, epoch: b.epoch}, nil
}

func (c *fakeClient) Current(addr string, conn protocol.BrokerConn) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	b := c.w.brokers[addr]
	return b != nil && !b.down && conn.(*fakeConn).epoch == b.epoch
}

func (c *fakeClient) Lost(string, protocol.BrokerConn) { c.lost.Add(1) }

func (c *fakeClient) HeartbeatAll(ctx context.Context) error {
	names := make(map[string]bool)
	c.mu.Lock()
	for _, r := range c.routes {
		for _, b := range r.TopicRoute.Brokers {
			names[b.BrokerName] = true
		}
	}
	c.mu.Unlock()
	var err error
	for name := range names {
		if e := c.HeartbeatTo(ctx, name); e != nil {
			err = e
		}
	}
	return err
}

func (c *fakeClient) HeartbeatTo(ctx context.Context, addr string) error {
	conn, err := c.Broker(ctx, addr)
	if err != nil {
		return err
	}
	_, err = conn.Heartbeat(ctx, &protocol.HeartbeatRequest{ClientID: c.id})
	return err
}

func (c *fakeClient) Unregister(ctx context.Context, _, group string) {
	c.w.mu.Lock()
	var notify []*fakeClient
	for _, b := range c.w.brokers {
		if !b.down && !b.silent && group == testGroup {
			notify = append(notify, b.registerLocked(c.id, false)...)
		}
	}
	c.w.mu.Unlock()
	tell(notify)
}

// fakeConn is a session of one client with one broker.
type fakeConn struct {
	protocol.BrokerConn // what is not faked
	b                   *fakeBroker
	c                   *fakeClient
	epoch               int
}

// enter begins a call; it returns with the world locked, or an error.
func (f *fakeConn) enter(ctx context.Context, method string) error {
	b := f.b
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: not sent: %w: %w", b.name, protocol.ErrUnreachable, err)
	}
	b.w.mu.Lock()
	b.calls[method]++
	if b.silent {
		b.w.mu.Unlock()
		<-ctx.Done()
		return fmt.Errorf("%s: %w: %w", b.name, protocol.ErrUnknownOutcome, ctx.Err())
	}
	if err := f.brokenLocked(); err != nil {
		b.w.mu.Unlock()
		return err
	}
	return nil
}

func (f *fakeConn) brokenLocked() error {
	if f.b.down || f.epoch != f.b.epoch {
		return fmt.Errorf("%s: connection lost: %w", f.b.name, protocol.ErrUnknownOutcome)
	}
	return nil
}

func (f *fakeConn) Heartbeat(ctx context.Context, _ *protocol.HeartbeatRequest) (*protocol.HeartbeatResponse, error) {
	if err := f.enter(ctx, "Heartbeat"); err != nil {
		return nil, err
	}
	retry := message.Queue{Topic: message.RetryTopic(testGroup), BrokerName: f.b.name}
	if f.b.queues[retry] == nil && !f.b.w.noRetry {
		f.b.queues[retry] = new(fakeQueue)
		if f.b.w.topics[retry.Topic] == nil {
			f.b.w.topics[retry.Topic] = make(map[string]int)
		}
		f.b.w.topics[retry.Topic][f.b.name] = 1
	}
	notify := f.b.registerLocked(f.c.id, true)
	f.b.w.mu.Unlock()
	tell(notify)
	return &protocol.HeartbeatResponse{}, nil
}

// ConsumerSendMsgBack stores the message again: in the retry queue after the delay
// of its level, or at once as a dead letter.
func (f *fakeConn) ConsumerSendMsgBack(ctx context.Context, r *protocol.ConsumerSendMsgBackRequest) (*protocol.ConsumerSendMsgBackResponse, error) {
	if err := f.enter(ctx, "ConsumerSendMsgBack"); err != nil {
		return nil, err
	}
	f.b.backs = append(f.b.backs, backSeen{time.Now(), *r})
	back := f.b.back
	f.b.w.mu.Unlock()
	if back != nil {
		if err := back(ctx, r); err != nil {
			return nil, err
		}
	}
	return &protocol.ConsumerSendMsgBackResponse{}, f.b.storeAgain(r)
}

func (f *fakeConn) SendMessage(ctx context.Context, r *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
	if err := f.enter(ctx, "SendMessage"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	f.b.sends = append(f.b.sends, sendSeen{time.Now(), *r})
	if f.b.send != nil {
		if err := f.b.send(r); err != nil {
			return nil, err
		}
	}
	props := message.DecodeProperties(r.Properties)
	level, err := strconv.Atoi(props[message.PropDelay])
	if err != nil {
		return nil, protocol.Errorf(protocol.MessageIllegal, "level %q", props[message.PropDelay])
	}
	delete(props, message.PropDelay)
	host := netip.MustParseAddrPort("127.0.0.1:3")
	f.b.putAfterLocked(level, message.Record{
		BornTime: r.BornTime.UnixMilli(), BornHost: host, StoreHost: host, Flag: r.Flag, SysFlag: r.SysFlag,
		ReconsumeTimes: r.ReconsumeTimes, Body: bytes.Clone(r.Body), Properties: message.EncodeProperties(props),
	})
	return &protocol.SendMessageResponse{}, nil
}

// putAfterLocked puts a record into the group's retry queue after the delay of a
// level.
func (b *fakeBroker) putAfterLocked(level int, rec message.Record) {
	levels := []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}
	time.AfterFunc(levels[min(level, len(levels))-1], func() {
		b.w.mu.Lock()
		defer b.w.mu.Unlock()
		b.putLocked(message.Queue{Topic: message.RetryTopic(testGroup), BrokerName: b.name}, rec)
		b.changedLocked()
	})
}

// storeAgain puts a copy of a record into the group's retry topic when its delay
// is over.
func (b *fakeBroker) storeAgain(r *protocol.ConsumerSendMsgBackRequest) error {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	for q, k := range b.queues {
		for _, rec := range k.records {
			v := message.View(rec)
			if id, _ := message.Property(string(v.Properties()), message.PropUniqKey); v.Position() != r.Position || id != r.MsgID {
				continue
			}
			again, err := b.w.retried(v, q)
			if err != nil {
				return err
			}
			level := r.DelayLevel
			if level == 0 {
				level = 3 + int(v.ReconsumeTimes())
			}
			if level < 0 {
				b.putLocked(message.Queue{Topic: message.DLQTopic(r.Group), BrokerName: b.name}, again)
				return nil
			}
			if b.again[q] == nil {
				b.again[q] = make(map[int64]bool)
			}
			b.again[q][v.QueueOffset()] = true
			b.putAfterLocked(level, again)
			return nil
		}
	}
	return protocol.Errorf(protocol.SystemError, "look message by offset failed, %d", r.Position)
}

// retried returns the record of a message that goes back.
func (w *world) retried(v message.View, q message.Queue) (message.Record, error) {
	props := message.DecodeProperties(string(v.Properties()))
	if props[message.PropRetryTopic] == "" {
		props[message.PropRetryTopic] = q.Topic
	}
	return message.Record{
		BornTime: v.BornTime(), BornHost: v.BornHost(), StoreHost: v.StoreHost(), Flag: v.Flag(), SysFlag: v.SysFlag(),
		ReconsumeTimes: v.ReconsumeTimes() + 1, Body: v.Body(), Properties: message.EncodeProperties(props),
	}, nil
}

// putLocked appends a record to a queue.
func (b *fakeBroker) putLocked(q message.Queue, rec message.Record) {
	k := b.queues[q]
	if k == nil {
		k = new(fakeQueue)
		b.queues[q] = k
	}
	rec.Topic, rec.QueueID, rec.QueueOffset = q.Topic, int32(q.QueueID), k.min+int64(len(k.records))
	rec.Position, rec.StoreTime = int64(len(k.records)+1)<<32, time.Now().UnixMilli()
	data, err := message.AppendRecord(nil, &rec)
	if err != nil {
		panic(err)
	}
	k.records = append(k.records, data)
}

func (f *fakeConn) GetConsumerList(ctx context.Context, _ *protocol.GetConsumerListRequest) (*protocol.GetConsumerListResponse, error) {
	if err := f.enter(ctx, "GetConsumerList"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	if len(f.b.members) == 0 {
		return nil, protocol.Errorf(protocol.SystemError, "no consumer for this group")
	}
	resp := new(protocol.GetConsumerListResponse)
	for id := range f.b.members {
		resp.ClientIDs = append(resp.ClientIDs, id)
	}
	return resp, nil
}

func (f *fakeConn) QueryConsumerOffset(ctx context.Context, r *protocol.QueryConsumerOffsetRequest) (*protocol.QueryConsumerOffsetResponse, error) {
	if err := f.enter(ctx, "QueryConsumerOffset"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	q := message.Queue{Topic: r.Topic, BrokerName: f.b.name, QueueID: r.QueueID}
	if off, ok := f.b.commits[q]; ok {
		return &protocol.QueryConsumerOffsetResponse{Offset: off}, nil
	}
	if k := f.b.queues[q]; !r.CommittedOnly && k != nil && k.min == 0 && len(k.records) > 0 {
		return &protocol.QueryConsumerOffsetResponse{}, nil
	}
	return nil, protocol.Errorf(protocol.QueryNotFound, "no offset")
}

func (f *fakeConn) UpdateConsumerOffset(ctx context.Context, r *protocol.UpdateConsumerOffsetRequest) (*protocol.UpdateConsumerOffsetResponse, error) {
	if err := f.enter(ctx, "UpdateConsumerOffset"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	if f.b.refuse != nil {
		return nil, f.b.refuse
	}
	q := message.Queue{Topic: r.Topic, BrokerName: f.b.name, QueueID: r.QueueID}
	if _, pending := f.b.resets[q]; pending {
		return &protocol.UpdateConsumerOffsetResponse{}, nil
	}
	f.b.commits[q] = r.Offset
	f.b.updates = append(f.b.updates, update{time.Now(), q, r.Offset})
	return &protocol.UpdateConsumerOffsetResponse{}, nil
}

func (f *fakeConn) GetMaxOffset(ctx context.Context, r *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
	if err := f.enter(ctx, "GetMaxOffset"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	k := f.b.queues[message.Queue{Topic: r.Topic, BrokerName: f.b.name, QueueID: r.QueueID}]
	return &protocol.GetMaxOffsetResponse{Offset: k.min + int64(len(k.records))}, nil
}

func (f *fakeConn) SearchOffset(ctx context.Context, r *protocol.SearchOffsetRequest) (*protocol.SearchOffsetResponse, error) {
	if err := f.enter(ctx, "SearchOffset"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	k := f.b.queues[message.Queue{Topic: r.Topic, BrokerName: f.b.name, QueueID: r.QueueID}]
	at := slices.IndexFunc(k.records, func(rec []byte) bool { return message.View(rec).StoreTime() >= r.Time.UnixMilli() })
	if at < 0 {
		at = len(k.records)
	}
	return &protocol.SearchOffsetResponse{Offset: k.min + int64(at)}, nil
}

func (f *fakeConn) GetMinOffset(ctx context.Context, r *protocol.GetMinOffsetRequest) (*protocol.GetMinOffsetResponse, error) {
	if err := f.enter(ctx, "GetMinOffset"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	k := f.b.queues[message.Queue{Topic: r.Topic, BrokerName: f.b.name, QueueID: r.QueueID}]
	return &protocol.GetMinOffsetResponse{Offset: k.min}, nil
}

func (f *fakeConn) LockQueues(ctx context.Context, r *protocol.LockQueuesRequest) (*protocol.LockQueuesResponse, error) {
	if err := f.enter(ctx, "LockQueues"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	resp := new(protocol.LockQueuesResponse)
	for _, q := range r.Queues {
		held, ok := f.b.locks[q]
		if ok && held.client != r.ClientID && time.Since(held.at) <= time.Minute {
			continue
		}
		f.b.locks[q] = lock{r.ClientID, time.Now()}
		resp.Locked = append(resp.Locked, q)
	}
	return resp, nil
}

func (f *fakeConn) UnlockQueues(ctx context.Context, r *protocol.UnlockQueuesRequest) (*protocol.UnlockQueuesResponse, error) {
	if err := f.enter(ctx, "UnlockQueues"); err != nil {
		return nil, err
	}
	defer f.b.w.mu.Unlock()
	for _, q := range r.Queues {
		if f.b.locks[q].client == r.ClientID {
			delete(f.b.locks, q)
		}
	}
	return &protocol.UnlockQueuesResponse{}, nil
}

func (f *fakeConn) PullMessage(ctx context.Context, r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	if err := f.enter(ctx, "PullMessage"); err != nil {
		return nil, err
	}
	b := f.b
	q := message.Queue{Topic: r.Topic, BrokerName: b.name, QueueID: r.QueueID}
	b.pulls = append(b.pulls, pullSeen{time.Now(), f.c.id, *r})
	if b.answer != nil {
		answer := b.answer
		b.w.mu.Unlock()
		return answer(r)
	}
	defer b.w.mu.Unlock()
	if !b.members[f.c.id] {
		return nil, protocol.Errorf(protocol.SubscriptionNotExist, "the consumer's subscription does not exist")
	}
	if _, pending := b.resets[q]; r.Commit && !pending {
		b.commits[q] = r.CommitOffset
	}
	k := b.queues[q]
	if k == nil {
		return nil, protocol.Errorf(protocol.TopicNotExist, "no such queue")
	}
	timer := time.NewTimer(r.Suspend)
	defer timer.Stop()
	for {
		if err := f.brokenLocked(); err != nil {
			return nil, err
		}
		end := k.min + int64(len(k.records))
		resp := &protocol.PullMessageResponse{Code: protocol.PullOffsetMoved, MinOffset: k.min, MaxOffset: end}
		reset, pending := b.resets[q]
		delete(b.resets, q)
		switch {
		case pending:
			resp.NextBeginOffset = reset
			return resp, nil
		case r.Offset < k.min:
			resp.NextBeginOffset = k.min
			return resp, nil
		case r.Offset > end:
			resp.NextBeginOffset = end
			return resp, nil
		case r.Offset < end:
			from := r.Offset - k.min
			resp.Code = protocol.Success
			resp.Records = slices.Clone(k.records[from:min(from+int64(r.MaxMessages), int64(len(k.records)))])
			resp.NextBeginOffset = r.Offset + int64(len(resp.Records))
			return resp, nil
		}
		changed := b.changed
		b.w.mu.Unlock()
		expired := false
		select {
		case <-changed:
		case <-timer.C:
			expired = true
		case <-ctx.Done():
		}
		b.w.mu.Lock()
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", b.name, protocol.ErrUnknownOutcome, err)
		}
		if expired {
			resp.Code, resp.NextBeginOffset = protocol.PullNotFound, r.Offset
			return resp, nil
		}
	}
}

// retries returns the retry queue of testGroup on a broker, and how many messages
// lie in it.
func (w *world) retries(broker string) (q message.Queue, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q = message.Queue{Topic: message.RetryTopic(testGroup), BrokerName: broker}
	return q, len(w.brokers[broker].queues[q].records)
}

// takenBack tells whether a message's broker has stored it again.
func (w *world) takenBack(q message.Queue, offset int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.brokers[q.BrokerName].again[q][offset]
}

// backs returns the send-backs that a broker saw.
func (w *world) backs(broker string) []backSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.brokers[broker].backs)
}

// sends returns the sends that a broker saw.
func (w *world) sends(broker string) []sendSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.brokers[broker].sends)
}

// inbox records what a handler got.
type inbox struct {
	mu   sync.Mutex
	got  []delivery
	fail func(m *message.Ext) error // nil: consumes all
	work time.Duration              // how long a call takes
}

type delivery struct {
	at     time.Time
	body   string
	queue  message.Queue
	offset int64
	times  int // ReconsumeTimes
}

func (in *inbox) handle(ctx context.Context, msgs []*message.Ext) error {
	now := time.Now()
	if in.work > 0 {
		pause(ctx, in.work)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, m := range msgs {
		in.got = append(in.got, delivery{now, string(m.Body), m.Queue, m.QueueOffset, m.ReconsumeTimes})
	}
	for _, m := range msgs {
		if in.fail != nil {
			if err := in.fail(m); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (in *inbox) all() []delivery {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.got)
}

// bodies returns the bodies delivered so far, sorted.
func (in *inbox) bodies() []string {
	var out []string
	for _, d := range in.all() {
		out = append(out, d.body)
	}
	slices.Sort(out)
	return out
}

// lines is a log that a test can read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// member makes an engine with RocketMQ's defaults, but for ConsumeTimeout.
func (w *world) member(id string, in *inbox, edit func(*Config)) (*Engine, *fakeClient) {
	c := w.client(id)
	cfg := Config{
		Group: testGroup, ClientID: id, Client: c, Codec: message.NewCodec(),
		Subscriptions: map[string]filter.Tags{testTopic: {}},
		Strategy:      rebalance.Averagely,
		Concurrency:   20, BatchSize: 1, PullBatchSize: 32,
		MaxCached: 1000, MaxCachedBytes: 100 << 20, MaxCachedTotal: 256 << 20, MaxSpan: 2000,
		CloseTimeout: 10 * time.Second,
		Rebalance:    20 * time.Second, RebalanceRetry: time.Second, RouteRetry: time.Second,
		LockRenew: 20 * time.Second, LockClientLife: 30 * time.Second, OrderlySuspend: time.Second,
		OffsetPersist: 5 * time.Second, PullSuspend: 15 * time.Second, PullErrorDelay: 3 * time.Second, PullExpire: 120 * time.Second,
		MaxReconsume: GroupMaximum, ConsumeTimeout: 24 * time.Hour,
		Logger: slog.New(slog.DiscardHandler),
	}
	if in != nil {
		cfg.Handler = in.handle
	}
	if edit != nil {
		edit(&cfg)
	}
	e := New(cfg)
	w.mu.Lock()
	c.engine = e
	w.mu.Unlock()
	return e, c
}

// start starts an engine and closes it when the test ends.
func start(t *testing.T, e *Engine) {
	t.Helper()
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Close()) })
}
