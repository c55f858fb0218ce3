package mqtest

import (
	"context"
	"reflect"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// exchange is a method of a service with a request and a response in which
// nothing is left out.
type exchange struct {
	method string
	q, r   any // pointers
}

// brokerExchanges has every method of protocol.BrokerConn.
func brokerExchanges() []exchange {
	at := time.UnixMilli(1700000000123)
	offset, most := int64(42), int32(16)
	sub := exampleSubscription()
	queues := []message.Queue{{Topic: "T", BrokerName: "broker-a", QueueID: 1}, {Topic: "T", BrokerName: "broker-a", QueueID: 2}}
	records := [][]byte{{0, 0, 0, 5, 1}, {0, 0, 0, 6, 2, 3}}
	topic := protocol.TopicConfig{Name: "T", ReadQueues: 1, WriteQueues: 2, Perm: 6, Order: true, SysFlag: 1}
	page := &protocol.Page{First: 1, Most: 2, Version: protocol.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}}
	group := protocol.DefaultGroupConfig("G")
	group.ConsumeMessageOrderly, group.BrokerID, group.GroupSysFlag, group.Attributes = true, 1, 2, map[string]string{"a": "b"}
	return []exchange{
		{"SendMessage", &protocol.SendMessageRequest{
			ProducerGroup: "P", Topic: "主题", DefaultTopic: "TBW102", DefaultTopicQueues: 4, QueueID: 1, SysFlag: 4, BornTime: at, Flag: 9,
			Properties: "TAGS\x01A\x02", ReconsumeTimes: 2, MaxReconsumeTimes: &most, Batch: true, Body: []byte("body"),
		}, &protocol.SendMessageResponse{MsgID: "C0A8", QueueID: 1, QueueOffset: 2, TransactionID: "X", Region: "R", TraceOn: true}},
		{"PullMessage", &protocol.PullMessageRequest{
			Group: "G", Topic: "T", QueueID: 1, Offset: 2, MaxMessages: 3, Commit: true, CommitOffset: 4, Suspend: 15 * time.Second,
			HasExpression: true, Expression: "A || B", ExpressionType: "TAG", SubVersion: 5,
		}, &protocol.PullMessageResponse{Code: protocol.PullRetryImmediately, NextBeginOffset: 1, MinOffset: 2, MaxOffset: 3, SuggestBrokerID: 4, Records: records}},
		{"Heartbeat", &protocol.HeartbeatRequest{
			ClientID: "id", Language: "CPP", Version: 317, Producers: []string{"P", "Q"}, Fingerprint: -7, WithoutSubscriptions: true,
			Consumers: []protocol.ConsumerData{{Group: "G", Model: protocol.Broadcasting, From: protocol.ConsumeFromTime, Passive: true, UnitMode: true, Subscriptions: []protocol.Subscription{sub}}},
		}, &protocol.HeartbeatResponse{SubscriptionsWanted: true}},
		{"UnregisterClient", &protocol.UnregisterClientRequest{ClientID: "id", ProducerGroup: "P", ConsumerGroup: "G"}, &protocol.UnregisterClientResponse{}},
		{"GetConsumerList", &protocol.GetConsumerListRequest{Group: "G"}, &protocol.GetConsumerListResponse{ClientIDs: []string{"b", "a"}}},
		{"QueryConsumerOffset", &protocol.QueryConsumerOffsetRequest{Group: "G", Topic: "T", QueueID: 1, CommittedOnly: true}, &protocol.QueryConsumerOffsetResponse{Offset: 7}},
		{"UpdateConsumerOffset", &protocol.UpdateConsumerOffsetRequest{Group: "G", Topic: "T", QueueID: 1, Offset: 12345678901}, &protocol.UpdateConsumerOffsetResponse{Ignored: true}},
		{"GetMaxOffset", &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: 1}, &protocol.GetMaxOffsetResponse{Offset: 7}},
		{"GetMinOffset", &protocol.GetMinOffsetRequest{Topic: "T", QueueID: 1}, &protocol.GetMinOffsetResponse{Offset: 7}},
		{"SearchOffset", &protocol.SearchOffsetRequest{Topic: "T", QueueID: 1, Time: at, Boundary: protocol.BoundaryUpper}, &protocol.SearchOffsetResponse{Offset: 7}},
		{"GetEarliestStoreTime", &protocol.GetEarliestStoreTimeRequest{Topic: "T", QueueID: 1}, &protocol.GetEarliestStoreTimeResponse{Time: at}},
		{"QueryMessage", &protocol.QueryMessageRequest{Topic: "T", Key: "k", MaxMessages: 3, From: at, To: at.Add(time.Hour), Unique: true, Below: 9},
			&protocol.QueryMessageResponse{Records: records, More: true, IndexTime: at, IndexPosition: 5}},
		{"ViewMessage", &protocol.ViewMessageRequest{Position: 5}, &protocol.ViewMessageResponse{Record: records[0]}},
		{"GetTopicStats", &protocol.GetTopicStatsRequest{Topic: "T"}, &protocol.GetTopicStatsResponse{Queues: []protocol.QueueStats{{MinOffset: 1, MaxOffset: 2, LastStoreTime: at}, {MinOffset: 3, MaxOffset: 3}}}},
		{"CreateTopic", &protocol.CreateTopicRequest{Config: topic}, &protocol.CreateTopicResponse{}},
		{"ConsumerSendMsgBack", &protocol.ConsumerSendMsgBackRequest{Group: "G", Position: 1024, DelayLevel: -1, MsgID: "M", Topic: "T", MaxReconsumeTimes: &most, UnitMode: true}, &protocol.ConsumerSendMsgBackResponse{}},
		{"LockQueues", &protocol.LockQueuesRequest{Group: "G", ClientID: "id", Queues: queues}, &protocol.LockQueuesResponse{Locked: queues[:1]}},
		{"UnlockQueues", &protocol.UnlockQueuesRequest{Group: "G", ClientID: "id", Queues: queues}, &protocol.UnlockQueuesResponse{}},
		{"ResetOffset", &protocol.ResetOffsetRequest{Group: "G", Topic: "T", QueueID: 1, Time: at, Offset: &offset}, &protocol.ResetOffsetResponse{Offsets: map[int]int64{0: 5, 3: 6}}},
		{"UpdateGroup", &protocol.UpdateGroupRequest{Config: group}, &protocol.UpdateGroupResponse{}},
		{"DeleteGroup", &protocol.DeleteGroupRequest{Group: "G", CleanOffsets: true}, &protocol.DeleteGroupResponse{}},
		{"DeleteTopic", &protocol.DeleteTopicRequest{Topic: "T"}, &protocol.DeleteTopicResponse{}},
		{"GetConsumeStats", &protocol.GetConsumeStatsRequest{Group: "G", Topic: "T"},
			&protocol.GetConsumeStatsResponse{Queues: []protocol.ConsumeStats{{Topic: "A", QueueID: 2, BrokerOffset: 9, ConsumerOffset: -1}, {Topic: "T", QueueID: 1, BrokerOffset: 9, ConsumerOffset: 8, LastTime: at}}}},
		{"GetConsumerConnection", &protocol.GetConsumerConnectionRequest{Group: "G"}, &protocol.GetConsumerConnectionResponse{
			Model: protocol.Broadcasting, From: protocol.ConsumeFromFirst, Passive: true, Members: []protocol.Connection{{ClientID: "id", Addr: "1.2.3.4:5", Language: "JAVA", Version: 317}}, Subscriptions: []protocol.Subscription{sub},
		}},
		{"CloneGroupOffset", &protocol.CloneGroupOffsetRequest{From: "G", To: "H", Topic: "T"}, &protocol.CloneGroupOffsetResponse{}},
		{"GetConsumerRunningInfo", &protocol.GetConsumerRunningInfoRequest{Group: "G", ClientID: "id", Stacks: true}, exampleRunningInfo()},
		{"GetConsumerStatus", &protocol.GetConsumerStatusRequest{Group: "G", Topic: "T", ClientID: "id"},
			&protocol.GetConsumerStatusResponse{Offsets: map[string]map[message.Queue]int64{"id": {queues[0]: 5, queues[1]: 6}, "other": {}}}},
		{"ConsumeMessageDirectly", &protocol.ConsumeMessageDirectlyRequest{Group: "G", ClientID: "id", MsgID: "0A", Topic: "T", BrokerName: "b", TopicSysFlag: 1, GroupSysFlag: 2, Record: records[0]},
			&protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeException, Remark: "broken", Orderly: true, AutoCommit: true, Spent: 3 * time.Millisecond}},
		{"CheckClientConfig", &protocol.CheckClientConfigRequest{ClientID: "id", Group: "G", Namespace: "N", Subscription: sub}, &protocol.CheckClientConfigResponse{}},
		{"CreateTopicList", &protocol.CreateTopicListRequest{Configs: []protocol.TopicConfig{topic, {Name: "U"}}}, &protocol.CreateTopicListResponse{}},
		{"GetTopicConfig", &protocol.GetTopicConfigRequest{Topic: "T"}, &protocol.GetTopicConfigResponse{Config: topic}},
		{"GetAllTopicConfig", &protocol.GetAllTopicConfigRequest{Page: page}, &protocol.GetAllTopicConfigResponse{Topics: []protocol.TopicConfig{topic, {Name: "U"}}, Version: page.Version, Total: 7}},
		{"UpdateGroupList", &protocol.UpdateGroupListRequest{Configs: []protocol.GroupConfig{group, protocol.DefaultGroupConfig("H")}}, &protocol.UpdateGroupListResponse{}},
		{"GetAllGroupConfig", &protocol.GetAllGroupConfigRequest{Page: page}, &protocol.GetAllGroupConfigResponse{Groups: []protocol.GroupConfig{group, protocol.DefaultGroupConfig("H")}, Version: page.Version, Total: 7}},
		{"GetAllConsumerOffset", &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{{GroupOffset: protocol.GroupOffset{Group: "G", Topic: "T", QueueID: 1, Offset: 12345678901}, Moved: 3}, {GroupOffset: protocol.GroupOffset{Group: "G", Topic: "T", QueueID: 2}}}},
			&protocol.GetAllConsumerOffsetResponse{OffsetTable: exampleOffsets(page.Version), Position: 9}},
		{"GetAllDelayOffset", &protocol.GetAllDelayOffsetRequest{}, &protocol.GetAllDelayOffsetResponse{
			DelayProgress: protocol.DelayProgress{Version: page.Version, Offsets: map[int]int64{1: 5, 18: 6}, Deleted: map[string]map[int]int64{"T": {1: 7, 3: 8}}}, Position: 9,
		}},
		{"NotifyMinBrokerID", &protocol.NotifyMinBrokerIDRequest{BrokerName: "b", MinBrokerID: 1, MinBrokerAddr: "127.0.0.1:1", OfflineAddr: "127.0.0.1:2", HAAddr: "127.0.0.1:3"}, &protocol.NotifyMinBrokerIDResponse{}},
		{"GetHAStatus", &protocol.GetHAStatusRequest{}, &protocol.GetHAStatusResponse{
			Master: true, End: 9, InSync: 1, Slaves: []protocol.HASlave{{Addr: "127.0.0.1:1", Acked: 7, Lag: 2, InSync: true, BytesPerSecond: 5, Sent: 8}},
			Client: protocol.HAClient{MasterAddr: "127.0.0.1:2", BytesPerSecond: 3, End: 4, MasterEnd: 5, Active: true},
		}},
		{"GetEpochCache", &protocol.GetEpochCacheRequest{}, &protocol.GetEpochCacheResponse{
			Cluster: "c", BrokerName: "b", BrokerID: 1, Epochs: []protocol.EpochEntry{{Epoch: 1, First: 1, End: 7}, {Epoch: 3, First: 8, End: 9}}, End: 9,
		}},
	}
}

// nameServerExchanges has every method of protocol.NameServerConn.
func nameServerExchanges() []exchange {
	brokers := []protocol.BrokerData{{Cluster: "c", BrokerName: "a", Addrs: map[int64]string{0: "127.0.0.1:1", 1: "[::1]:2"}, Zone: "z"}, {Cluster: "c", BrokerName: "b", Addrs: map[int64]string{2: "127.0.0.1:3"}}}
	version := protocol.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}
	return []exchange{
		{"RegisterBroker", &protocol.RegisterBrokerRequest{
			Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1", HAAddr: "127.0.0.1:2", HeartbeatTimeout: time.Minute, Version: version,
			Topics: []protocol.TopicConfig{{Name: "T", ReadQueues: 1, WriteQueues: 2, Perm: 6, Order: true, SysFlag: 1}}, FilterServers: []string{"f"}, Zone: "z",
		}, &protocol.RegisterBrokerResponse{MasterAddr: "127.0.0.1:3", HAAddr: "127.0.0.1:4", OrderTopics: map[string]string{"T": "a:4;b:4"}}},
		{"UnregisterBroker", &protocol.UnregisterBrokerRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1"}, &protocol.UnregisterBrokerResponse{}},
		{"BrokerHeartbeat", &protocol.BrokerHeartbeatRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1"}, &protocol.BrokerHeartbeatResponse{}},
		{"QueryDataVersion", &protocol.QueryDataVersionRequest{Cluster: "c", BrokerName: "b", BrokerID: 1, Addr: "127.0.0.1:1", Version: version}, &protocol.QueryDataVersionResponse{Changed: true, Version: version}},
		{"GetRoute", &protocol.GetRouteRequest{Topic: "T", Zone: "z"}, &protocol.GetRouteResponse{Route: protocol.TopicRoute{
			OrderConf: "a:2", Queues: []protocol.QueueData{{BrokerName: "a", ReadQueues: 1, WriteQueues: 2, Perm: 6, SysFlag: 3}}, Brokers: brokers, FilterServers: map[string][]string{"127.0.0.1:1": {"f"}},
		}}},
		{"GetClusterInfo", &protocol.GetClusterInfoRequest{}, &protocol.GetClusterInfoResponse{Brokers: brokers}},
		{"GetBrokerMemberGroup", &protocol.GetBrokerMemberGroupRequest{Cluster: "c", BrokerName: "a"}, &protocol.GetBrokerMemberGroupResponse{Cluster: "c", BrokerName: "a", Addrs: brokers[0].Addrs}},
		{"GetAllTopics", &protocol.GetAllTopicsRequest{}, &protocol.GetAllTopicsResponse{Topics: []string{"A", "B"}}},
		{"GetTopicsByCluster", &protocol.GetTopicsByClusterRequest{Cluster: "c"}, &protocol.GetTopicsByClusterResponse{Topics: []string{"A", "B"}}},
		{"GetSystemTopics", &protocol.GetSystemTopicsRequest{}, &protocol.GetSystemTopicsResponse{Topics: []string{"a", "c"}, BrokerAddr: "127.0.0.1:1"}},
		{"GetUnitTopics", &protocol.GetUnitTopicsRequest{Which: protocol.UnitTopicsForeign}, &protocol.GetUnitTopicsResponse{Topics: []string{"A", "B"}}},
		{"RegisterTopic", &protocol.RegisterTopicRequest{Topic: "T", Queues: []protocol.QueueData{{BrokerName: "a", ReadQueues: 1, WriteQueues: 2, Perm: 6, SysFlag: 3}}}, &protocol.RegisterTopicResponse{}},
		{"DeleteTopic", &protocol.DeleteTopicRouteRequest{Topic: "T", Cluster: "c"}, &protocol.DeleteTopicRouteResponse{}},
		{"WipeWritePerm", &protocol.WipeWritePermRequest{BrokerName: "a"}, &protocol.WipeWritePermResponse{Topics: 3}},
		{"AddWritePerm", &protocol.AddWritePermRequest{BrokerName: "a"}, &protocol.AddWritePermResponse{Topics: 3}},
		{"PutKVConfig", &protocol.PutKVConfigRequest{Namespace: "N", Key: "主题", Value: "a:4;b:4"}, &protocol.PutKVConfigResponse{}},
		{"GetKVConfig", &protocol.GetKVConfigRequest{Namespace: "N", Key: "k"}, &protocol.GetKVConfigResponse{Value: "a:4;b:4"}},
		{"DeleteKVConfig", &protocol.DeleteKVConfigRequest{Namespace: "N", Key: "k"}, &protocol.DeleteKVConfigResponse{}},
		{"ListKVConfig", &protocol.ListKVConfigRequest{Namespace: "N"}, &protocol.ListKVConfigResponse{Table: map[string]string{"k": "v", "主题": `"x"`}}},
		{"UpdateNameServerConfig", &protocol.UpdateNameServerConfigRequest{}, &protocol.UpdateNameServerConfigResponse{}},
		{"GetNameServerConfig", &protocol.GetNameServerConfigRequest{}, &protocol.GetNameServerConfigResponse{Settings: map[string]string{"orderMessageEnable": "true", "x": "a=b"}}},
	}
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

func exampleSubscription() protocol.Subscription {
	return protocol.Subscription{Topic: "T", Expression: "TagA || B", ExpressionType: "TAG", Tags: []string{"TagA", "B"}, Codes: []int32{2598919, 66}, Version: 7}
}

func exampleRunningInfo() *protocol.GetConsumerRunningInfoResponse {
	at := time.UnixMilli(1700000000123)
	return &protocol.GetConsumerRunningInfoResponse{
		Orderly: true, Passive: true, Start: at, Concurrency: 20, Subscriptions: []protocol.Subscription{exampleSubscription()},
		Queues: []protocol.ProcessQueueInfo{{
			Topic: "T", BrokerName: "broker-a", QueueID: 1, CommitOffset: 2, CachedMin: 3, CachedMax: 4, CachedCount: 5, CachedBytes: 6,
			Locked: true, Dropped: true, LastLock: at, LastPull: at, LastConsume: at,
		}},
	}
}

func methodCases() []transportCase {
	return []transportCase{
		{"every request to a broker arrives as it was made, and so does its answer", func(t *transportTest) {
			w := t.stubWorld()
			w.exchange(brokerExchanges, w.conn)
		}},
		{"every request to a name server arrives as it was made, and so does its answer", func(t *transportTest) {
			s := newStub()
			l, err := t.ListenNameServer(t.Context(), protocol.Listen{Node: "ns-0"}, stubNameServer{s})
			t.ok(err, "listen")
			conn, err := t.DialNameServer(t.Context(), protocol.Dial{Node: "client", Addr: l.Addr()})
			t.ok(err, "dial")
			w := &stubWorld{stub: s, transportTest: t}
			w.exchange(nameServerExchanges, conn)
			t.ok(conn.Close(), "close of the connection")
			t.ok(l.Close(), "close of the listener")
		}},
	}
}

// exchange calls every method on conn. Two times: what a server may keep of a
// connection, or a client, must not make a difference.
func (w *stubWorld) exchange(all func() []exchange, conn any) {
	w.Helper()
	var answer any
	got := make(chan any, 1)
	w.serve = func(_ context.Context, _ *stubSession, method string, q any) (any, error) {
		got <- q
		return answer, nil
	}
	for range 2 {
		for i, e := range all() {
			answer = e.r
			out := reflect.ValueOf(conn).MethodByName(e.method).Call([]reflect.Value{reflect.ValueOf(w.Context()), reflect.ValueOf(e.q)})
			if err, _ := out[1].Interface().(error); err != nil {
				w.Fatalf("%s: %v", e.method, err)
			}
			w.equal(e.method+": the request", e.q, await(w.transportTest, got, e.method))
			w.equal(e.method+": the answer", e.r, out[0].Interface())
			w.equal(e.method+": the caller's request, afterwards", all()[i].q, e.q)
		}
	}
}
