package remoting

import (
	"context"
	"testing"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBodiesOfNameServersAreCompactAndAsJavaWritesThem(t *testing.T) {
	for _, c := range []struct {
		want string
		f    *Frame
	}{
		{`{"topicList":["A","B"]}`, responseOf(getAllTopics(), nil, &protocol.GetAllTopicsResponse{Topics: []string{"A", "B"}})},
		{`{"topicList":[]}`, responseOf(getTopicsByCluster(), nil, &protocol.GetTopicsByClusterResponse{})},
		{`{"topicList":["A"]}`, responseOf(getTopicsByCluster(), nil, &protocol.GetTopicsByClusterResponse{Topics: []string{"A"}})},
		{`{"brokerAddr":"h:0","topicList":["b","c"]}`, responseOf(getSystemTopics(), nil, &protocol.GetSystemTopicsResponse{Topics: []string{"b", "c"}, BrokerAddr: "h:0"})},
		{`{"topicList":[]}`, responseOf(getSystemTopics(), nil, &protocol.GetSystemTopicsResponse{})},
		{`{"topicList":[]}`, responseOf(getUnitTopics(), nil, &protocol.GetUnitTopicsResponse{})},
		{`{"brokerMemberGroup":{"brokerAddrs":{"0":"h:0","1":"h:1"},"brokerName":"b","cluster":"c"}}`, responseOf(getBrokerMemberGroup(), nil, &protocol.GetBrokerMemberGroupResponse{Cluster: "c", BrokerName: "b", Addrs: map[int64]string{1: "h:1", 0: "h:0"}})},
		{`{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"c"}}`, responseOf(getBrokerMemberGroup(), nil, &protocol.GetBrokerMemberGroupResponse{Cluster: "c", BrokerName: "x"})},
		{`{"table":{"a":"1","b":"\"2\n"}}`, responseOf(listKVConfig(), nil, &protocol.ListKVConfigResponse{Table: map[string]string{"b": "\"2\n", "a": "1"}})},
		{`{"table":{}}`, responseOf(listKVConfig(), nil, &protocol.ListKVConfigResponse{})},
		{`{"table":{"T":"a:4"}}`, responseOf(registerBroker(), nil, &protocol.RegisterBrokerResponse{OrderTopics: map[string]string{"T": "a:4"}})},
		{`{"table":{}}`, responseOf(registerBroker(), nil, &protocol.RegisterBrokerResponse{OrderTopics: map[string]string{}})},
		{``, responseOf(registerBroker(), nil, &protocol.RegisterBrokerResponse{})},
		{"a=1\nb=2\n", responseOf(getNameServerConfig(), nil, &protocol.GetNameServerConfigResponse{Settings: map[string]string{"b": "2", "a": "1"}})},
		{`{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"topicSysFlag":3,"writeQueueNums":2}]}`,
			registerTopic().request(&protocol.RegisterTopicRequest{Topic: "T", Queues: []protocol.QueueData{{BrokerName: "b", ReadQueues: 1, WriteQueues: 2, Perm: 6, SysFlag: 3}}})},
	} {
		assert.Equal(t, c.want, string(c.f.Body))
	}
}

// TestAnswersOfJavaNameServersAreRead: they write numbers as names without
// quotes, and leave out what is null.
func TestAnswersOfJavaNameServersAreRead(t *testing.T) {
	g, err := getBrokerMemberGroup().read(&Frame{Body: []byte(`{"brokerMemberGroup":{"brokerAddrs":{0:"h:0",1:"h:1"},"brokerName":"b","cluster":"c"}}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetBrokerMemberGroupResponse{Cluster: "c", BrokerName: "b", Addrs: map[int64]string{0: "h:0", 1: "h:1"}}, g)
	_, err = getBrokerMemberGroup().read(&Frame{Body: []byte(`{"brokerMemberGroup":{"brokerAddrs":{x:"h:0"}}}`)})
	assert.ErrorIs(t, err, errBadHeader)
	_, err = getBrokerMemberGroup().read(&Frame{})
	assert.ErrorIs(t, err, errBadBody)

	topics, err := getSystemTopics().read(&Frame{Body: []byte(`{"brokerAddr":"h:0","topicList":["c","b"]}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetSystemTopicsResponse{Topics: []string{"b", "c"}, BrokerAddr: "h:0"}, topics)
	_, err = getSystemTopics().read(&Frame{})
	assert.ErrorIs(t, err, errBadBody)

	for body, want := range map[string]map[string]string{
		`{"table":{"T":"a:4;b:4"}}`: {"T": "a:4;b:4"}, `{"table":{}}`: {}, `{}`: nil, `{"table":null}`: nil,
	} {
		r, err := registerBroker().read(&Frame{Body: []byte(body)})
		require.NoError(t, err, body)
		assert.Equal(t, want, r.OrderTopics, body)
		l, err := listKVConfig().read(&Frame{Body: []byte(body)})
		require.NoError(t, err, body)
		assert.Equal(t, want, l.Table, body)
	}
	r, err := registerBroker().read(&Frame{})
	require.NoError(t, err)
	assert.Nil(t, r.OrderTopics, "a name server without ordered topics")
	for _, body := range []string{`{"table":[]}`, `{"table":"x"}`, `{`} {
		_, err := registerBroker().read(&Frame{Body: []byte(body)})
		assert.ErrorIs(t, err, errBadBody, body)
	}

	s, err := getNameServerConfig().read(&Frame{Body: []byte("# a comment\r\n\norderMessageEnable = true\r\nx=a=b\nnonsense\n")})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"orderMessageEnable": "true", "x": "a=b"}, s.Settings)

	w, err := wipeWritePerm().read(&Frame{Ext: Fields{{"wipeTopicCount", "7"}}})
	require.NoError(t, err)
	assert.Equal(t, 7, w.Topics)
	_, err = addWritePerm().read(&Frame{Ext: Fields{{"wipeTopicCount", "7"}}})
	assert.ErrorContains(t, err, "the field addTopicCount is missing")
}

func TestUnitTopicsHaveACodeForEachQuestion(t *testing.T) {
	for code, which := range map[int32]protocol.UnitTopics{311: protocol.UnitTopicsOwn, 312: protocol.UnitTopicsSubscribed, 313: protocol.UnitTopicsForeign} {
		f := getUnitTopics().request(&protocol.GetUnitTopicsRequest{Which: which})
		assert.Equal(t, code, f.Code)
		q, err := getUnitTopics().decodeRequest(f)
		require.NoError(t, err)
		assert.Equal(t, which, q.Which)
		assert.NotNil(t, tableOf(nameServerRows())[protocol.Code(code)])
	}
	_, err := getUnitTopics().decodeRequest(&Frame{Code: 206})
	assert.ErrorIs(t, err, errBadHeader)
}

// TestWhatNameServersCannotDoWithoutIsNamed: in both header forms, where the
// binary one tells an empty field from an absent one for us, though not for Java.
func TestWhatNameServersCannotDoWithoutIsNamed(t *testing.T) {
	rows := tableOf(nameServerRows())
	for code, fields := range map[protocol.Code][]string{
		100: {"namespace", "key", "value"}, 101: {"namespace", "key"}, 102: {"namespace", "key"}, 219: {"namespace"},
		205: {"brokerName"}, 327: {"brokerName"}, 216: {"topic"}, 217: {"topic"}, 224: {"cluster"}, 901: {"clusterName", "brokerName"},
	} {
		for _, form := range []Serialize{JSON, Binary} {
			for missing := range fields {
				f := &Frame{Code: int32(code), Serialize: form}
				for i, name := range fields {
					if i != missing {
						f.put(name, "x")
					}
				}
				answer := rows[code].serve(t.Context(), nil, site{}, wire(t, f))
				assert.EqualValues(t, protocol.SystemError, answer.Code)
				assert.Contains(t, answer.Remark, "the field "+fields[missing]+" is missing", "%d", code)
			}
		}
	}
}

// registered answers registrations of topics with what was asked.
type registered struct {
	recordedNameServer
	got *protocol.RegisterTopicRequest
}

func (s *registered) RegisterTopic(_ context.Context, q *protocol.RegisterTopicRequest) (*protocol.RegisterTopicResponse, error) {
	s.got = q
	return &protocol.RegisterTopicResponse{}, nil
}

func TestTheQueuesOfATopicThatIsRegisteredComeInABody(t *testing.T) {
	want := []protocol.QueueData{{BrokerName: "b", ReadQueues: 8, WriteQueues: 4, Perm: 6}}
	for body, queues := range map[string][]protocol.QueueData{
		`{"brokerDatas":[],"filterServerTable":{},"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}`: want,
		`{"queueDatas":[{"writeQueueNums":4,"readQueueNums":8,"perm":6,"brokerName":"b"}]}`:                                                          want,
		`{"queueDatas":null}`: nil, `{}`: nil, ``: nil,
	} {
		srv := &registered{}
		answer := registerTopic().serve(t.Context(), srv, site{}, &Frame{Code: 217, Ext: Fields{{"topic", "T"}}, Body: []byte(body)})
		require.EqualValues(t, protocol.Success, answer.Code, body)
		assert.Equal(t, &protocol.RegisterTopicRequest{Topic: "T", Queues: queues}, srv.got, body)
	}
	answer := registerTopic().serve(t.Context(), &registered{}, site{}, &Frame{Code: 217, Ext: Fields{{"topic", "T"}}, Body: []byte(`{`)})
	assert.EqualValues(t, protocol.SystemError, answer.Code)
}

func TestZonesAreInTheFieldsOfRequestsAndInRoutes(t *testing.T) {
	for _, c := range []struct {
		fields Fields
		want   string
	}{
		{nil, ""}, {Fields{{"__ZONE_NAME", "z"}}, ""}, {Fields{{"__ZONE_MODE", "true"}}, ""}, {Fields{{"__ZONE_MODE", "true"}, {"__ZONE_NAME", "  "}}, ""},
		{Fields{{"__ZONE_MODE", "false"}, {"__ZONE_NAME", "z"}}, ""}, {Fields{{"__ZONE_MODE", "TRUE"}, {"__ZONE_NAME", "z"}}, "z"},
	} {
		q, err := getRoute().decodeRequest(&Frame{Ext: append(Fields{{"topic", "T"}}, c.fields...)})
		require.NoError(t, err)
		assert.Equal(t, c.want, q.Zone, "%v", c.fields)
	}
	f := responseOf(getRoute(), nil, &protocol.GetRouteResponse{Route: protocol.TopicRoute{Brokers: []protocol.BrokerData{{BrokerName: "b", Zone: "z"}}}})
	assert.Equal(t, `{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","cluster":"","enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},"queueDatas":[]}`, string(f.Body))
}
