package remoting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// example is a request and a response of one command with nothing left out.
type example struct {
	name          string
	q             any    // a pointer to the request
	frame, answer *Frame // the request, and what may answer it
	both          func(t *testing.T, form Serialize)
	// request and response decode a frame and, when it has a meaning, write and
	// read it once more.
	request, response func(t *testing.T, f *Frame)
}

func examplesOf() []example {
	at := time.UnixMilli(1700000000123)
	offset, max := int64(42), int32(16)
	sub := protocol.Subscription{Topic: "T", Expression: "TagA || B", ExpressionType: "TAG", Tags: []string{"TagA", "B"}, Codes: []int32{2598919, 66}, Version: 7}
	queues := []message.Queue{{Topic: "T", BrokerName: "broker-a", QueueID: 1}, {Topic: "T", BrokerName: "broker-a", QueueID: 2}}
	records := [][]byte{{0, 0, 0, 5, 1}, {0, 0, 0, 6, 2, 3}}
	brokers := []protocol.BrokerData{{Cluster: "c", BrokerName: "a", Addrs: map[int64]string{0: "127.0.0.1:1", 1: "[::1]:2"}, Zone: "z"}, {Cluster: "c", BrokerName: "b", Addrs: map[int64]string{2: "127.0.0.1:3"}}}
	version := protocol.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}
	running := protocol.GetConsumerRunningInfoResponse{
		Orderly: true, Passive: true, Start: at, Concurrency: 20, Subscriptions: []protocol.Subscription{sub},
		Queues: []protocol.ProcessQueueInfo{{Topic: "T", BrokerName: "broker-a", QueueID: 1, CommitOffset: 2, CachedMin: 3, CachedMax: 4, CachedCount: 5, CachedBytes: 6, Locked: true, Dropped: true, LastLock: at, LastPull: at, LastConsume: at}},
	}
	directly := protocol.ConsumeMessageDirectlyRequest{Group: "G", ClientID: "id", MsgID: "0A", Topic: "T", BrokerName: "b", TopicSysFlag: 1, GroupSysFlag: 2, Record: records[0]}
	running.Verbatim = bodyOf(getConsumerRunningInfo(), running)
	consumed := protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeException, Remark: "broken", Orderly: true, AutoCommit: true, Spent: 3 * time.Millisecond}
	consumed.Verbatim = bodyOf(consumeMessageDirectly(), consumed)
	topic := protocol.TopicConfig{
		Name: "T", ReadQueues: 1, WriteQueues: 2, Perm: 6, Order: true, SysFlag: 1, MultiTag: true, Attributes: protocol.AttributesOf(map[string]string{"message.type": "FIFO", "a": `"b"`}),
	}
	changed := topic
	changed.Attributes = protocol.AttributesOf(map[string]string{"+message.type": "FIFO", "-x": ""})
	places := map[message.Queue]int64{queues[0]: 5, queues[1]: 6}
	page := &protocol.Page{First: 1, Most: 2, Version: version}
	group := protocol.DefaultGroupConfig("G")
	group.ConsumeMessageOrderly, group.BrokerID, group.GroupSysFlag, group.Attributes = true, 1, 2, map[string]string{"a": "b"}
	return []example{
		exchange(sendMessage(), protocol.SendMessageRequest{
			ProducerGroup: "P", Topic: "主题", DefaultTopic: "TBW102", DefaultTopicQueues: 4, QueueID: 1, SysFlag: 4, BornTime: at, Flag: 9,
			Properties: "TAGS\x01A\x02", ReconsumeTimes: 2, MaxReconsumeTimes: &max, Batch: true, Body: []byte("body"), Oneway: true,
		}, protocol.SendMessageResponse{MsgID: "C0A8", QueueID: 1, QueueOffset: 2, TransactionID: "X", Region: "R", TraceOn: true}),
		exchange(pullMessage(), protocol.PullMessageRequest{
			Group: "G", Topic: "T", QueueID: 1, Offset: 2, MaxMessages: 3, Commit: true, CommitOffset: 4, Suspend: 15 * time.Second,
			HasExpression: true, Expression: "A || B", ExpressionType: "TAG", SubVersion: 5,
		}, protocol.PullMessageResponse{Code: protocol.PullRetryImmediately, NextBeginOffset: 1, MinOffset: 2, MaxOffset: 3, SuggestBrokerID: 4, Records: records}),
		exchange(heartbeat(), protocol.HeartbeatRequest{
			ClientID: "id", Language: "CPP", Version: 317, Producers: []string{"P", "Q"}, Fingerprint: -7, WithoutSubscriptions: true,
			Consumers: []protocol.ConsumerData{{Group: "G", Model: protocol.Broadcasting, From: protocol.ConsumeFromTime, Passive: true, UnitMode: true, Subscriptions: []protocol.Subscription{sub}}},
		}, protocol.HeartbeatResponse{SubscriptionsWanted: true}),
		exchange(unregisterClient(), protocol.UnregisterClientRequest{ClientID: "id", ProducerGroup: "P", ConsumerGroup: "G"}, protocol.UnregisterClientResponse{}),
		exchange(getConsumerList(), protocol.GetConsumerListRequest{Group: "G"}, protocol.GetConsumerListResponse{ClientIDs: []string{"b", "a"}}),
		exchange(queryConsumerOffset(), protocol.QueryConsumerOffsetRequest{Group: "G", Topic: "T", QueueID: 1, CommittedOnly: true}, protocol.QueryConsumerOffsetResponse{Offset: 7}),
		exchange(updateConsumerOffset(), protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", QueueID: 1, Offset: 12345678901, Oneway: true}, protocol.UpdateConsumerOffsetResponse{Ignored: true}),
		exchange(getMaxOffset(), protocol.GetMaxOffsetRequest{Topic: "T", QueueID: 1}, protocol.GetMaxOffsetResponse{Offset: 7}),
		exchange(getMinOffset(), protocol.GetMinOffsetRequest{Topic: "T", QueueID: 1}, protocol.GetMinOffsetResponse{Offset: 7}),
		exchange(searchOffset(), protocol.SearchOffsetRequest{Topic: "T", QueueID: 1, Time: at, Boundary: protocol.BoundaryUpper}, protocol.SearchOffsetResponse{Offset: 7}),
		exchange(getEarliestStoreTime(), protocol.GetEarliestStoreTimeRequest{Topic: "T", QueueID: 1}, protocol.GetEarliestStoreTimeResponse{Time: at}),
		exchange(queryMessage(), protocol.QueryMessageRequest{Topic: "T", Key: "k", MaxMessages: 3, From: at, To: at.Add(time.Hour), Unique: true, Below: 9},
			protocol.QueryMessageResponse{Records: records, More: true, IndexTime: at, IndexPosition: 5}),
		exchange(viewMessage(), protocol.ViewMessageRequest{Position: 5}, protocol.ViewMessageResponse{Record: records[0]}),
		exchange(getTopicStats(), protocol.GetTopicStatsRequest{Topic: "T"}, protocol.GetTopicStatsResponse{Queues: []protocol.QueueStats{{MinOffset: 1, MaxOffset: 2, LastStoreTime: at}, {MinOffset: 3, MaxOffset: 3}}}),
		exchange(createTopic(), protocol.CreateTopicRequest{Config: changed}, protocol.CreateTopicResponse{}),
		exchange(consumerSendMsgBack(), protocol.ConsumerSendMsgBackRequest{Group: "G", Position: 1024, DelayLevel: -1, MsgID: "M", Topic: "T", MaxReconsumeTimes: &max, UnitMode: true}, protocol.ConsumerSendMsgBackResponse{}),
		exchange(lockQueues(), protocol.LockQueuesRequest{Group: "G", ClientID: "id", Queues: queues}, protocol.LockQueuesResponse{Locked: queues[:1]}),
		exchange(unlockQueues(), protocol.UnlockQueuesRequest{Group: "G", ClientID: "id", Queues: queues, Oneway: true}, protocol.UnlockQueuesResponse{}),
		exchange(resetOffset(), protocol.ResetOffsetRequest{Group: "G", Topic: "T", QueueID: 1, Time: at, Offset: &offset}, protocol.ResetOffsetResponse{Offsets: map[int]int64{0: 5, 3: 6}}),
		exchange(updateGroup(), protocol.UpdateGroupRequest{Config: group}, protocol.UpdateGroupResponse{}),
		exchange(deleteGroup(), protocol.DeleteGroupRequest{Group: "G", CleanOffsets: true}, protocol.DeleteGroupResponse{}),
		exchange(deleteTopic(), protocol.DeleteTopicRequest{Topic: "T"}, protocol.DeleteTopicResponse{}),
		exchange(getConsumeStats(), protocol.GetConsumeStatsRequest{Group: "G", Topic: "T"},
			protocol.GetConsumeStatsResponse{Queues: []protocol.ConsumeStats{{Topic: "A", QueueID: 2, BrokerOffset: 9, ConsumerOffset: -1}, {Topic: "T", QueueID: 1, BrokerOffset: 9, ConsumerOffset: 8, LastTime: at}}}),
		exchange(getConsumerConnection(), protocol.GetConsumerConnectionRequest{Group: "G"}, protocol.GetConsumerConnectionResponse{
			Model: protocol.Broadcasting, From: protocol.ConsumeFromFirst, Passive: true, Members: []protocol.Connection{{ClientID: "id", Addr: "1.2.3.4:5", Language: "JAVA", Version: 317}}, Subscriptions: []protocol.Subscription{sub},
		}),
		exchange(cloneGroupOffset(), protocol.CloneGroupOffsetRequest{From: "G", To: "H", Topic: "T"}, protocol.CloneGroupOffsetResponse{}),
		exchange(getConsumerStatus(), protocol.GetConsumerStatusRequest{Group: "G", Topic: "T", ClientID: "id"}, protocol.GetConsumerStatusResponse{Offsets: map[string]map[message.Queue]int64{"id": places, "other": {}}}),
		exchange(consumeMessageDirectly(), directly, consumed),
		exchange(checkClientConfig(), protocol.CheckClientConfigRequest{ClientID: "id", Group: "G", Namespace: "N", Subscription: sub}, protocol.CheckClientConfigResponse{}),
		exchange(createTopicList(), protocol.CreateTopicListRequest{Configs: []protocol.TopicConfig{topic, {Name: "U"}}}, protocol.CreateTopicListResponse{}),
		exchange(getTopicConfig(), protocol.GetTopicConfigRequest{Topic: "T"}, protocol.GetTopicConfigResponse{Config: topic}),
		exchange(getAllTopicConfig(), protocol.GetAllTopicConfigRequest{Page: page}, protocol.GetAllTopicConfigResponse{Topics: []protocol.TopicConfig{topic, {Name: "U"}}, Version: version, Total: 7}),
		exchange(updateGroupList(), protocol.UpdateGroupListRequest{Configs: []protocol.GroupConfig{group, protocol.DefaultGroupConfig("H")}}, protocol.UpdateGroupListResponse{}),
		exchange(getAllGroupConfig(), protocol.GetAllGroupConfigRequest{Page: page}, protocol.GetAllGroupConfigResponse{Groups: []protocol.GroupConfig{group, protocol.DefaultGroupConfig("H")}, Version: version, Total: 7}),
		exchange(getAllConsumerOffset(), protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{{GroupOffset: protocol.GroupOffset{Group: "G", Topic: "T", QueueID: 1, Offset: 12345678901}, Moved: 3}, {GroupOffset: protocol.GroupOffset{Group: "G", Topic: "T", QueueID: 2}}}},
			protocol.GetAllConsumerOffsetResponse{OffsetTable: exampleOffsets(version), Position: 9}),
		exchange(notifyMinBrokerID(), protocol.NotifyMinBrokerIDRequest{BrokerName: "b", MinBrokerID: 1, MinBrokerAddr: "127.0.0.1:1", OfflineAddr: "127.0.0.1:2", HAAddr: "127.0.0.1:3", Oneway: true}, protocol.NotifyMinBrokerIDResponse{}),
		exchange(getHAStatus(), protocol.GetHAStatusRequest{}, protocol.GetHAStatusResponse{
			Master: true, End: 9, InSync: 1, Slaves: []protocol.HASlave{{Addr: "127.0.0.1:1", Acked: 7, Lag: 2, InSync: true, BytesPerSecond: 5, Sent: 8}, {Addr: "127.0.0.1:3"}},
			Client: protocol.HAClient{MasterAddr: "127.0.0.1:2", BytesPerSecond: 3, End: 4, MasterEnd: 5, Active: true},
		}),
		exchange(getEpochCache(), protocol.GetEpochCacheRequest{}, protocol.GetEpochCacheResponse{
			Cluster: "c", BrokerName: "b", BrokerID: 1, Epochs: []protocol.EpochEntry{{Epoch: 1, First: 1, End: 7}, {Epoch: 3, First: 8, End: 9}}, End: 9,
		}),
		exchange(getAllDelayOffset(), protocol.GetAllDelayOffsetRequest{}, protocol.GetAllDelayOffsetResponse{
			DelayProgress: protocol.DelayProgress{Version: version, Offsets: map[int]int64{1: 5, 18: 6}, Deleted: map[string]map[int]int64{"T": {1: 7, 3: 8}}}, Position: 9,
		}),
		exchange(getConsumerRunningInfo(), protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id", Stacks: true}, running),

		exchange(registerBroker(), protocol.RegisterBrokerRequest{
			Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1", HAAddr: "127.0.0.1:2", HeartbeatTimeout: time.Minute, Version: version,
			Topics: []protocol.TopicConfig{{Name: "T", ReadQueues: 1, WriteQueues: 2, Perm: 6, Order: true, SysFlag: 1}}, FilterServers: []string{"f"}, Zone: "z",
		}, protocol.RegisterBrokerResponse{MasterAddr: "127.0.0.1:3", HAAddr: "127.0.0.1:4", OrderTopics: map[string]string{"T": "a:4;b:4"}}),
		exchange(unregisterBroker(), protocol.UnregisterBrokerRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1"}, protocol.UnregisterBrokerResponse{}),
		exchange(brokerHeartbeat(), protocol.BrokerHeartbeatRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1"}, protocol.BrokerHeartbeatResponse{}),
		exchange(queryDataVersion(), protocol.QueryDataVersionRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1", Version: version}, protocol.QueryDataVersionResponse{Changed: true, Version: version}),
		exchange(getRoute(), protocol.GetRouteRequest{Topic: "T", Zone: "z"}, protocol.GetRouteResponse{Route: protocol.TopicRoute{
			OrderConf: "a:2", Queues: []protocol.QueueData{{BrokerName: "a", ReadQueues: 1, WriteQueues: 2, Perm: 6, SysFlag: 3}}, Brokers: brokers, FilterServers: map[string][]string{"127.0.0.1:1": {"f"}},
		}}),
		exchange(getClusterInfo(), protocol.GetClusterInfoRequest{}, protocol.GetClusterInfoResponse{Brokers: brokers}),
		exchange(getAllTopics(), protocol.GetAllTopicsRequest{}, protocol.GetAllTopicsResponse{Topics: []string{"A", "B"}}),
		exchange(getTopicsByCluster(), protocol.GetTopicsByClusterRequest{Cluster: "c"}, protocol.GetTopicsByClusterResponse{Topics: []string{"A", "B"}}),
		exchange(getSystemTopics(), protocol.GetSystemTopicsRequest{}, protocol.GetSystemTopicsResponse{Topics: []string{"a", "c"}, BrokerAddr: "127.0.0.1:1"}),
		exchange(getUnitTopics(), protocol.GetUnitTopicsRequest{Which: protocol.UnitTopicsForeign}, protocol.GetUnitTopicsResponse{Topics: []string{"A", "B"}}),
		exchange(getBrokerMemberGroup(), protocol.GetBrokerMemberGroupRequest{Cluster: "c", BrokerName: "a"}, protocol.GetBrokerMemberGroupResponse{Cluster: "c", BrokerName: "a", Addrs: brokers[0].Addrs}),
		exchange(registerTopic(), protocol.RegisterTopicRequest{Topic: "T", Queues: []protocol.QueueData{{BrokerName: "a", ReadQueues: 1, WriteQueues: 2, Perm: 6, SysFlag: 3}}}, protocol.RegisterTopicResponse{}),
		exchange(deleteTopicInNameServer(), protocol.DeleteTopicRouteRequest{Topic: "T", Cluster: "c"}, protocol.DeleteTopicRouteResponse{}),
		exchange(wipeWritePerm(), protocol.WipeWritePermRequest{BrokerName: "a"}, protocol.WipeWritePermResponse{Topics: 3}),
		exchange(addWritePerm(), protocol.AddWritePermRequest{BrokerName: "a"}, protocol.AddWritePermResponse{Topics: 3}),
		exchange(putKVConfig(), protocol.PutKVConfigRequest{Namespace: "N", Key: "主题", Value: "a:4;b:4"}, protocol.PutKVConfigResponse{}),
		exchange(getKVConfig(), protocol.GetKVConfigRequest{Namespace: "N", Key: "k"}, protocol.GetKVConfigResponse{Value: "a:4;b:4"}),
		exchange(deleteKVConfig(), protocol.DeleteKVConfigRequest{Namespace: "N", Key: "k"}, protocol.DeleteKVConfigResponse{}),
		exchange(listKVConfig(), protocol.ListKVConfigRequest{Namespace: "N"}, protocol.ListKVConfigResponse{Table: map[string]string{"k": "v", "主题": `"x"`}}),
		exchange(updateNameServerConfig(), protocol.UpdateNameServerConfigRequest{}, protocol.UpdateNameServerConfigResponse{}),
		exchange(getNameServerConfig(), protocol.GetNameServerConfigRequest{}, protocol.GetNameServerConfigResponse{Settings: map[string]string{"orderMessageEnable": "true", "x": "a=b"}}),

		exchange(notifyConsumerIDsChanged(), protocol.NotifyConsumerIDsChangedRequest{Group: "G"}, nothing{}),
		exchange(resetConsumerOffset(), protocol.ResetConsumerOffsetRequest{Group: "G", Topic: "T", Time: at, Offsets: places}, nothing{}),
		exchange(peerGetConsumerStatus(), protocol.PeerConsumerStatusRequest{Group: "G", Topic: "T"}, protocol.PeerConsumerStatusResponse{Offsets: places}),
		exchange(peerConsumeMessageDirectly(), directly, consumed),
		exchange(peerGetConsumerRunningInfo(), protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id", Stacks: true}, running),
	}
}

// bodyOf is how a response is written.
func bodyOf[S, Q, R any](c *command[S, Q, R], r R) []byte { return responseOf(c, new(Q), &r).Body }

// wire sends a frame over the wire.
func wire(t *testing.T, f *Frame) *Frame {
	t.Helper()
	b, err := f.Append(nil)
	require.NoError(t, err)
	back, err := Read(bytes.NewReader(b))
	require.NoError(t, err)
	return back
}

func exchange[S, Q, R any](c *command[S, Q, R], q Q, r R) example {
	answer := answerTo(&Frame{})
	if c.encodeResponse != nil {
		c.encodeResponse(site{broker: "broker-a"}, &q, &r, answer)
	}
	return example{
		name:  reflect.TypeFor[S]().Name() + "." + c.name,
		q:     &q,
		frame: c.request(&q), answer: answer,
		both: func(t *testing.T, form Serialize) {
			require.Empty(t, zeroFields(reflect.ValueOf(q)), "an example leaves nothing out")
			require.Empty(t, zeroFields(reflect.ValueOf(r)), "an example leaves nothing out")
			f := c.request(&q)
			f.Serialize = form
			back, err := c.decodeRequest(wire(t, f))
			require.NoError(t, err)
			assert.Equal(t, q, *back)

			answer := answerTo(f)
			if c.encodeResponse != nil {
				c.encodeResponse(site{broker: "broker-a"}, &q, &r, answer)
			}
			assert.Equal(t, form, answer.Serialize, "answered in the request's form")
			got, err := c.read(wire(t, answer))
			require.NoError(t, err)
			assert.Equal(t, r, *got)
		},
		request: func(t *testing.T, f *Frame) {
			q, err := c.decodeRequest(f)
			if err != nil {
				require.True(t, errors.Is(err, errBadHeader) || errors.Is(err, errBadBody) || errors.As(err, new(*protocol.Error)), "%v", err)
				return
			}
			again := c.request(q)
			b, err := again.Append(nil)
			if err != nil {
				return // larger than a frame may be
			}
			read, err := Read(bytes.NewReader(b))
			require.NoError(t, err)
			_, err = c.decodeRequest(read)
			require.NoError(t, err)
		},
		response: func(t *testing.T, f *Frame) {
			r, err := c.read(f)
			if err != nil || c.encodeResponse == nil {
				return
			}
			answer := answerTo(&Frame{})
			c.encodeResponse(site{broker: "broker-a"}, new(Q), r, answer)
			_, err = answer.Append(nil)
			require.NoError(t, err)
		},
	}
}

// zeroFields lists the fields of a struct that have no value. An element of a
// list counts as told by the first one.
func zeroFields(v reflect.Value) (names []string) {
	if _, isTime := v.Interface().(time.Time); v.Kind() != reflect.Struct || isTime {
		return nil
	}
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			names = append(names, v.Type().Field(i).Name)
			continue
		}
		names = append(names, zeroFields(f)...)
	}
	return names
}

func TestEveryCommandSurvivesTheWire(t *testing.T) {
	for _, e := range examplesOf() {
		for form, name := range map[Serialize]string{JSON: "JSON", Binary: "binary"} {
			t.Run(e.name+" "+name, func(t *testing.T) { e.both(t, form) })
		}
	}
}

// methodsOf lists the methods of a service.
func methodsOf[S any]() (names []string) {
	s := reflect.TypeFor[S]()
	for i := range s.NumMethod() {
		if name := s.Method(i).Name; name != "Close" {
			names = append(names, name)
		}
	}
	return names
}

// served has every row of a service serve a request of nothing but fields, and
// returns which methods were called.
func served[S any](t *testing.T, rows []row[S], srv S, r *recorder) []string {
	frames := make(map[string]*Frame)
	for _, e := range examplesOf() {
		frames[e.name] = e.frame
	}
	codes := make(map[protocol.Code]string)
	for _, row := range rows {
		name := reflect.TypeFor[S]().Name() + "." + row.title()
		require.NotNil(t, frames[name], name)
		before := len(r.called)
		row.serve(t.Context(), srv, site{}, frames[name])
		require.Len(t, r.called, before+1, name)
		assert.Equal(t, row.title(), r.called[before])
		for _, code := range row.wire() {
			assert.Empty(t, codes[code], "%d", code)
			codes[code] = name
		}
	}
	assert.Len(t, tableOf(rows), len(codes))
	return r.called
}

func TestEveryMethodHasOneCommand(t *testing.T) {
	r := &recorder{}
	b := served[protocol.BrokerConn](t, brokerRows(), recordedBroker{r}, r)
	slices.Sort(b)
	assert.Equal(t, methodsOf[protocol.BrokerConn](), b)

	r = &recorder{}
	n := served[protocol.NameServerConn](t, nameServerRows(), recordedNameServer{r}, r)
	slices.Sort(n)
	assert.Equal(t, methodsOf[protocol.NameServerConn](), n)

	r = &recorder{}
	p := served[protocol.Peer](t, peerRows(), recordedPeer{r}, r)
	slices.Sort(p)
	assert.Equal(t, methodsOf[protocol.Peer](), p)
}

func TestFieldsThatAreMissingOrWrongAreNamed(t *testing.T) {
	for _, c := range []struct {
		fields Fields
		want   string
	}{
		{Fields{{"a", "P"}}, "the field b is missing"},
		{Fields{{"a", "P"}, {"b", "T"}, {"e", "x"}}, `the field e is "x", no number of 32 bits`},
		{Fields{{"a", "P"}, {"b", "T"}, {"e", "4294967296"}}, `the field e is "4294967296", no number of 32 bits`},
		{Fields{{"a", strings.Repeat("P", 1000)}, {"b", "T"}, {"e", strings.Repeat("9", 1000)}}, "..."},
	} {
		f := &Frame{Code: codeSendMessageV2, Ext: c.fields}
		answer := sendMessage().serve(t.Context(), nil, site{}, f)
		require.NotNil(t, answer)
		assert.EqualValues(t, protocol.SystemError, answer.Code)
		assert.Contains(t, answer.Remark, c.want)
		assert.Contains(t, answer.Remark, "SendMessage: ")
		assert.Less(t, len(answer.Remark), 200)
	}
}

func TestAnErrorKeepsItsCodeRemarkAndServer(t *testing.T) {
	want := &protocol.Error{Code: protocol.TopicNotExist, Remark: "no such topic", Broker: "broker-a"}
	c := getMaxOffset()
	c.method = func(protocol.BrokerConn, context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
		return nil, fmt.Errorf("wrapped: %w", want)
	}
	f := c.request(&protocol.GetMaxOffsetRequest{Topic: "T"})
	_, err := c.read(wire(t, c.serve(t.Context(), nil, site{}, wire(t, f))))
	assert.Equal(t, want, err)

	c.method = func(protocol.BrokerConn, context.Context, *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
		return nil, errors.New("broken")
	}
	_, err = c.read(wire(t, c.serve(t.Context(), nil, site{}, f)))
	assert.Equal(t, &protocol.Error{Code: protocol.SystemError, Remark: "broken"}, err)

	ctx, cancel := context.WithCancel(t.Context())
	c.method = func(_ protocol.BrokerConn, ctx context.Context, _ *protocol.GetMaxOffsetRequest) (*protocol.GetMaxOffsetResponse, error) {
		cancel()
		return nil, ctx.Err()
	}
	assert.Nil(t, c.serve(ctx, nil, site{}, f), "a handler that gave up answers nothing")
}

func TestAStoredMessageComesBesideItsError(t *testing.T) {
	for _, code := range []protocol.Code{protocol.FlushDiskTimeout, protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout} {
		c := sendMessage()
		want := &protocol.SendMessageResponse{MsgID: "id", QueueID: 1, QueueOffset: 2}
		c.method = func(protocol.BrokerConn, context.Context, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			return want, &protocol.Error{Code: code, Remark: "late", Broker: "b"}
		}
		f := c.request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1)})
		r, err := c.read(wire(t, c.serve(t.Context(), nil, site{}, f)))
		assert.Equal(t, &protocol.Error{Code: code, Remark: "late", Broker: "b"}, err)
		assert.Equal(t, want, r)
	}
}

func TestOnewayRequestsAreNeverAnswered(t *testing.T) {
	r := &recorder{}
	f := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1), Oneway: true})
	assert.True(t, wire(t, f).Oneway())
	assert.Nil(t, sendMessage().serve(t.Context(), recordedBroker{r}, site{}, f))
	assert.Len(t, r.called, 1)
	assert.Nil(t, sendMessage().serve(t.Context(), recordedBroker{r}, site{}, &Frame{Code: 310, Flag: FlagOneway}), "not even with an error")
}

func exampleOffsets(version protocol.DataVersion) protocol.OffsetTable {
	return protocol.OffsetTable{
		Version: version,
		Offsets: []protocol.GroupOffset{{Group: "G", Topic: "%RETRY%G", Offset: 1}, {Group: "G", Topic: "T", QueueID: 2, Offset: 7}, {Group: "G", Topic: "T", QueueID: 10, Offset: 12345678901}, {Group: "H", Topic: "T"}},
		Resets:  []protocol.GroupOffset{{Group: "G", Topic: "T", QueueID: 2, Offset: 7}, {Group: "G", Topic: "T", QueueID: 3, Offset: -1}},
		Moves:   []protocol.GroupOffset{{Group: "G", QueueID: -1, Offset: 2}, {Topic: "T", QueueID: -1, Offset: 3}, {Group: "G", Topic: "T", QueueID: 2, Offset: 4}},
		Moved:   5, MovedBefore: 1,
	}
}

func TestEmptyListsAreWritten(t *testing.T) {
	for want, f := range map[string]*Frame{
		`{"consumerIdList":[]}`: responseOf(getConsumerList(), &protocol.GetConsumerListRequest{}, &protocol.GetConsumerListResponse{}),
		`{"lockOKMQSet":[]}`:    responseOf(lockQueues(), &protocol.LockQueuesRequest{}, &protocol.LockQueuesResponse{}),
		`{"topicList":[]}`:      responseOf(getAllTopics(), &protocol.GetAllTopicsRequest{}, &protocol.GetAllTopicsResponse{}),
		`{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","cluster":"","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[]}`: responseOf(getRoute(), &protocol.GetRouteRequest{}, &protocol.GetRouteResponse{Route: protocol.TopicRoute{Brokers: []protocol.BrokerData{{BrokerName: "b"}}}}),
		`{"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"T"}:5,{"brokerName":"broker-a","queueId":2,"topic":"T"}:6}}`:            responseOf(resetOffset(), &protocol.ResetOffsetRequest{Topic: "T"}, &protocol.ResetOffsetResponse{Offsets: map[int]int64{2: 6, 1: 5}}),
	} {
		assert.Equal(t, want, string(f.Body))
	}
}

func responseOf[S, Q, R any](c *command[S, Q, R], q *Q, r *R) *Frame {
	f := answerTo(&Frame{})
	c.encodeResponse(site{broker: "broker-a"}, q, r, f)
	return f
}

func TestBordersOfTimes(t *testing.T) {
	q, err := queryMessage().decodeRequest(wire(t, queryMessage().request(&protocol.QueryMessageRequest{Topic: "T", Key: "k"})))
	require.NoError(t, err)
	assert.True(t, q.From.IsZero() && q.To.IsZero(), "no bound")

	reset, err := resetOffset().decodeRequest(wire(t, resetOffset().request(&protocol.ResetOffsetRequest{Topic: "T", Group: "G", QueueID: -3})))
	require.NoError(t, err)
	assert.Equal(t, &protocol.ResetOffsetRequest{Topic: "T", Group: "G", QueueID: -1}, reset, "to the end, all queues")

	e, err := getEarliestStoreTime().read(wire(t, responseOf(getEarliestStoreTime(), &protocol.GetEarliestStoreTimeRequest{}, &protocol.GetEarliestStoreTimeResponse{})))
	require.NoError(t, err)
	assert.True(t, e.Time.IsZero())

	pull := protocol.PullMessageRequest{Group: "G", Topic: "T", Suspend: time.Nanosecond}
	p, err := pullMessage().decodeRequest(pullMessage().request(&pull))
	require.NoError(t, err)
	assert.Equal(t, time.Millisecond, p.Suspend, "what is held is held")
	f := pullMessage().request(&pull)
	for i, x := range f.Ext {
		if x.Name == "suspendTimeoutMillis" {
			f.Ext[i].Value = "9223372036854775807"
		}
	}
	p, err = pullMessage().decodeRequest(f)
	require.NoError(t, err)
	assert.Positive(t, p.Suspend)
}

func TestAPullNeedsAllItsOffsets(t *testing.T) {
	f := responseOf(pullMessage(), nil, &protocol.PullMessageResponse{Code: protocol.PullOffsetMoved, NextBeginOffset: 7})
	for i := range f.Ext {
		less := *f
		less.Ext = slices.Delete(slices.Clone(f.Ext), i, i+1)
		_, err := pullMessage().read(&less)
		assert.ErrorIs(t, err, errBadHeader)
	}
	for _, body := range []string{"\x00", "\x00\x00\x00\x03", "\x00\x00\x00\x00", "\x00\x00\x00\x05", "\xff\xff\xff\xff", "\x00\x00\x00\x05a\x00"} {
		bad := *f
		bad.Body = []byte(body)
		_, err := pullMessage().read(&bad)
		assert.ErrorIs(t, err, errBadHeader, "%q", body)
	}
}

func TestAnErrorBesideNothingIsTheError(t *testing.T) {
	r, err := sendMessage().read(&Frame{Flag: FlagResponse, Code: int32(protocol.FlushDiskTimeout), Remark: "late"})
	assert.Nil(t, r)
	assert.ErrorIs(t, err, &protocol.Error{Code: protocol.FlushDiskTimeout, Remark: "late"})
	_, err = sendMessage().read(&Frame{Flag: FlagResponse, Code: int32(protocol.Success)})
	require.Error(t, err)
	var e *protocol.Error
	assert.False(t, errors.As(err, &e), "an answer that is none")
}
