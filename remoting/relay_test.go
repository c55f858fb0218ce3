package remoting

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documented are bodies as RocketMQ's protocol has them, by what they are of. Each
// is what we write, and means to us what it says.
func documented() map[string]struct {
	body  string
	ours  func(*testing.T) *Frame
	again func(*testing.T, *Frame) *Frame // reads a body and writes it
} {
	queues := []message.Queue{{Topic: "t", BrokerName: "b"}, {Topic: "t", BrokerName: "b", QueueID: 1}}
	offsets := map[message.Queue]int64{queues[0]: 5, queues[1]: 6}
	sub := protocol.Subscription{Topic: "T", Expression: "TagA", ExpressionType: "TAG", Tags: []string{"TagA"}, Codes: []int32{2598919}, Version: 7}
	topic := protocol.TopicConfig{Name: "T", ReadQueues: 8, WriteQueues: 8, Perm: 6}
	group := protocol.DefaultGroupConfig("G")
	version := protocol.DataVersion{Timestamp: 1700000000000, Counter: 3}
	const (
		topicText   = `{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":8}`
		groupText   = `{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"G","groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}`
		versionText = `{"counter":3,"stateVersion":0,"timestamp":1700000000000}`
		mqText      = `{{"brokerName":"b","queueId":0,"topic":"t"}:5,{"brokerName":"b","queueId":1,"topic":"t"}:6}`
	)
	type row = struct {
		body  string
		ours  func(*testing.T) *Frame
		again func(*testing.T, *Frame) *Frame
	}
	reset := protocol.ResetConsumerOffsetRequest{Group: "g", Topic: "t", Offsets: offsets}
	return map[string]row{
		"220 RESET_CONSUMER_CLIENT_OFFSET": {`{"offsetTable":` + mqText + `}`,
			func(*testing.T) *Frame { return resetConsumerOffset().request(&reset) }, requestAgain(resetConsumerOffset())},
		"220 RESET_CONSUMER_CLIENT_OFFSET, C++": {`{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"t"},{"brokerName":"b","offset":6,"queueId":1,"topic":"t"}]}`,
			func(*testing.T) *Frame { return listedReset(&reset) }, func(t *testing.T, f *Frame) *Frame {
				q, err := resetConsumerOffset().decodeRequest(f)
				require.NoError(t, err)
				return listedReset(q)
			}},
		"221 GET_CONSUMER_STATUS_FROM_CLIENT": {`{"consumerTable":{},"messageQueueTable":` + mqText + `}`,
			func(*testing.T) *Frame {
				return responseOf(peerGetConsumerStatus(), nil, &protocol.PeerConsumerStatusResponse{Offsets: offsets})
			}, responseAgain(peerGetConsumerStatus())},
		"223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS": {`{"consumerTable":{"c@1":` + mqText + `},"messageQueueTable":{}}`,
			func(*testing.T) *Frame {
				return responseOf(getConsumerStatus(), nil, &protocol.GetConsumerStatusResponse{Offsets: map[string]map[message.Queue]int64{"c@1": offsets}})
			}, responseAgain(getConsumerStatus())},
		"309 CONSUME_MESSAGE_DIRECTLY": {`{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"r","spentTimeMills":3}`,
			func(*testing.T) *Frame {
				return responseOf(consumeMessageDirectly(), nil, &protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeLater, AutoCommit: true, Remark: "r", Spent: 3 * time.Millisecond})
			}, responseAgain(consumeMessageDirectly())},
		"46 CHECK_CLIENT_CONFIG": {`{"clientId":"c@1","group":"G","namespace":"","subscriptionData":{"classFilterMode":false,"codeSet":[2598919],"expressionType":"TAG","subString":"TagA","subVersion":7,"tagsSet":["TagA"],"topic":"T"}}`,
			func(*testing.T) *Frame {
				return checkClientConfig().request(&protocol.CheckClientConfigRequest{ClientID: "c@1", Group: "G", Subscription: sub})
			}, requestAgain(checkClientConfig())},
		"18 UPDATE_AND_CREATE_TOPIC_LIST": {`{"topicConfigList":[` + topicText + `]}`,
			func(*testing.T) *Frame {
				return createTopicList().request(&protocol.CreateTopicListRequest{Configs: []protocol.TopicConfig{topic}})
			}, requestAgain(createTopicList())},
		"351 GET_TOPIC_CONFIG": {topicText,
			func(*testing.T) *Frame {
				return responseOf(getTopicConfig(), nil, &protocol.GetTopicConfigResponse{Config: topic})
			}, responseAgain(getTopicConfig())},
		"21 GET_ALL_TOPIC_CONFIG": {`{"dataVersion":` + versionText + `,"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"topicConfigTable":{"T":` + topicText + `},"topicQueueMappingDetailMap":{}}`,
			func(*testing.T) *Frame {
				return responseOf(getAllTopicConfig(), nil, &protocol.GetAllTopicConfigResponse{Topics: []protocol.TopicConfig{topic}, Version: version, Total: 1})
			}, responseAgain(getAllTopicConfig())},
		"43 GET_ALL_CONSUMER_OFFSET": {`{"dataVersion":` + versionText + `,"offsetTable":{"%RETRY%G@G":{"0":1},"T@G":{"2":7,"10":12345678901},"T@H":{"0":0}},"resetOffsetTable":{"T@G":{"2":7,"3":-1}},"movedTable":{"@G":{"-1":2},"T@":{"-1":3},"T@G":{"2":4}},"moved":5,"movedBefore":1}`,
			func(*testing.T) *Frame {
				return responseOf(getAllConsumerOffset(), nil, &protocol.GetAllConsumerOffsetResponse{OffsetTable: exampleOffsets(version)})
			}, responseAgain(getAllConsumerOffset())},
		"43 GET_ALL_CONSUMER_OFFSET, of a broker where nothing was moved": {`{"dataVersion":` + versionText + `,"offsetTable":{}}`,
			func(*testing.T) *Frame {
				return responseOf(getAllConsumerOffset(), nil, &protocol.GetAllConsumerOffsetResponse{OffsetTable: protocol.OffsetTable{Version: version}})
			}, responseAgain(getAllConsumerOffset())},
		"43 GET_ALL_CONSUMER_OFFSET, with a slave's own": {`{"ownOffsets":[{"group":"G","moved":3,"offset":7,"queueId":1,"topic":"T"}]}`,
			func(*testing.T) *Frame {
				return getAllConsumerOffset().request(&protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{{GroupOffset: protocol.GroupOffset{Group: "G", Topic: "T", QueueID: 1, Offset: 7}, Moved: 3}}})
			}, requestAgain(getAllConsumerOffset())},
		"45 GET_ALL_DELAY_OFFSET": {`{"dataVersion":` + versionText + `,"offsetTable":{"1":120,"18":2},"deletedTopics":{"T":{"3":8}}}`,
			func(*testing.T) *Frame {
				return responseOf(getAllDelayOffset(), nil, &protocol.GetAllDelayOffsetResponse{DelayProgress: protocol.DelayProgress{Version: version, Offsets: map[int]int64{1: 120, 18: 2}, Deleted: map[string]map[int]int64{"T": {3: 8}}}})
			}, responseAgain(getAllDelayOffset())},
		"200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": {groupText,
			func(*testing.T) *Frame { return updateGroup().request(&protocol.UpdateGroupRequest{Config: group}) }, requestAgain(updateGroup())},
		"225 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST": {`{"groupConfigList":[` + groupText + `]}`,
			func(*testing.T) *Frame {
				return updateGroupList().request(&protocol.UpdateGroupListRequest{Configs: []protocol.GroupConfig{group}})
			}, requestAgain(updateGroupList())},
		"201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG": {`{"dataVersion":` + versionText + `,"forbiddenTable":{},"subscriptionGroupTable":{"G":` + groupText + `}}`,
			func(*testing.T) *Frame {
				return responseOf(getAllGroupConfig(), nil, &protocol.GetAllGroupConfigResponse{Groups: []protocol.GroupConfig{group}, Version: version, Total: 1})
			}, responseAgain(getAllGroupConfig())},
	}
}

func requestAgain[S, Q, R any](c *command[S, Q, R]) func(*testing.T, *Frame) *Frame {
	return func(t *testing.T, f *Frame) *Frame {
		t.Helper()
		q, err := c.decodeRequest(f)
		require.NoError(t, err)
		return c.request(q)
	}
}

func responseAgain[S, Q, R any](c *command[S, Q, R]) func(*testing.T, *Frame) *Frame {
	return func(t *testing.T, f *Frame) *Frame {
		t.Helper()
		r, err := c.read(f)
		require.NoError(t, err)
		return responseOf(c, nil, r)
	}
}

func TestBodiesAreWrittenAsTheProtocolHasThem(t *testing.T) {
	passed := 0
	for name, row := range documented() {
		for form, formName := range map[Serialize]string{JSON: "JSON", Binary: "binary"} {
			ok := t.Run(name+" "+formName, func(t *testing.T) {
				ours := row.ours(t)
				ours.Serialize = form
				assert.Equal(t, row.body, string(ours.Body))
				assert.Equal(t, row.body, string(row.again(t, wire(t, ours)).Body))
			})
			if ok {
				passed++
			}
		}
	}
	t.Logf("bodies of the protocol pages: %d of %d passed, 0 skipped", passed, 2*len(documented()))
}

func TestOffsetsByQueueAreReadInEveryFormThereIs(t *testing.T) {
	want := map[message.Queue]int64{{Topic: "t", BrokerName: "b", QueueID: 1}: 5, {Topic: "t", BrokerName: "b", QueueID: 2}: 0}
	for _, table := range []string{
		`{{"brokerName":"b","queueId":1,"topic":"t"}:5,{"brokerName":"b","queueId":2,"topic":"t"}:0}`,                   // Java
		`{{"topic":"t","brokerName":"b","queueId":1}:"5" , {"topic":"t","brokerName":"b","queueId":2}:0}`,               // Go
		`[[{"topic":"t","brokerName":"b","queueId":1},5],[{"topic":"t","brokerName":"b","queueId":2},0]]`,               // gson
		`[{"topic":"t","brokerName":"b","queueId":1,"offset":5},{"topic":"t","brokerName":"b","queueId":2,"offset":0}]`, // C++
		`[{"topic":"t","brokerName":"b","queueId":1,"offset":5},{"topic":"t","brokerName":"b","queueId":2,"offset":0},{"topic":"t","queueId":3},{"offset":3},7,[1,2],[],null,{"topic":"t","queueId":-1,"offset":3},{"topic":"t","queueId":3,"offset":-1}]`,
	} {
		f := resetConsumerOffset().request(&protocol.ResetConsumerOffsetRequest{Group: "g", Topic: "t"})
		f.Body = []byte(`{"offsetTable":` + table + `}`)
		q, err := resetConsumerOffset().decodeRequest(f)
		require.NoError(t, err, table)
		assert.Equal(t, want, q.Offsets, table)
		assert.True(t, q.Time.IsZero(), "-1 is none")
	}
}

func TestResultsOfOneMessageAreReadAsJavaAndGoWriteThem(t *testing.T) {
	for text, want := range map[string]protocol.ConsumeResult{
		`"CR_SUCCESS"`: protocol.ConsumeSuccess, `"CR_LATER"`: protocol.ConsumeLater, `"CR_ROLLBACK"`: protocol.ConsumeRollback, `"CR_COMMIT"`: protocol.ConsumeCommit,
		`"CR_THROW_EXCEPTION"`: protocol.ConsumeException, `"CR_RETURN_NULL"`: protocol.ConsumeReturnNull,
		"0": protocol.ConsumeSuccess, "1": protocol.ConsumeLater, "5": protocol.ConsumeReturnNull, "6": protocol.ConsumeException, `"new"`: protocol.ConsumeException, "null": protocol.ConsumeException,
	} {
		r, err := consumeMessageDirectly().read(&Frame{Body: []byte(`{"order":true,"autoCommit":false,"consumeResult":` + text + `,"remark":"x","spentTimeMills":7}`)})
		require.NoError(t, err)
		assert.Equal(t, []any{want, true, false, "x", 7 * time.Millisecond}, []any{r.Result, r.Orderly, r.AutoCommit, r.Remark, r.Spent}, text)
	}
	assert.Equal(t, "consume result 9", protocol.ConsumeResult(9).String())
}

func TestOldClientsDoNotSayHowOftenAMessageIsConsumed(t *testing.T) {
	four := int32(4)
	send := sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "%RETRY%g", BornTime: time.UnixMilli(1), MaxReconsumeTimes: &four})
	back := consumerSendMsgBack().request(&protocol.ConsumerSendMsgBackRequest{Group: "g", MaxReconsumeTimes: &four})
	for version, want := range map[int32]*int32{120: nil, 121: &four, 479: &four, 0: nil} {
		send.Version, back.Version = version, version
		s, err := sendMessage().decodeRequest(send)
		require.NoError(t, err)
		assert.Equal(t, want, s.MaxReconsumeTimes)
		b, err := consumerSendMsgBack().decodeRequest(back)
		require.NoError(t, err)
		assert.Equal(t, want, b.MaxReconsumeTimes)
	}
	zero := new(int32)
	send = sendMessage().request(&protocol.SendMessageRequest{ProducerGroup: "P", Topic: "T", BornTime: time.UnixMilli(1), MaxReconsumeTimes: zero})
	s, err := sendMessage().decodeRequest(wire(t, send))
	require.NoError(t, err)
	assert.Equal(t, zero, s.MaxReconsumeTimes, "0 is none, and not absent")
}

func TestPagesAreAskedForOnlyByWhoKnowsOfThem(t *testing.T) {
	decode := func(fields ...Field) (*protocol.Page, error) {
		q, err := getAllTopicConfig().decodeRequest(&Frame{Ext: fields})
		if err != nil {
			return nil, err
		}
		return q.Page, nil
	}
	p, err := decode()
	require.NoError(t, err)
	assert.Nil(t, p)
	p, err = decode(Field{"topicSeq", "5"})
	require.NoError(t, err)
	assert.Equal(t, &protocol.Page{First: 5}, p)
	p, err = decode(Field{"dataVersion", `{"counter":3,"stateVersion":1,"timestamp":2}`}, Field{"maxTopicNum", "9"})
	require.NoError(t, err)
	assert.Equal(t, &protocol.Page{Most: 9, Version: protocol.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}}, p)
	for _, bad := range []Field{{"topicSeq", "x"}, {"maxTopicNum", "x"}, {"dataVersion", "{"}} {
		_, err = decode(bad)
		assert.ErrorIs(t, err, errBadHeader, bad.Name)
	}
}

func TestAHeartbeatKeepsLanguageAndVersionOfItsClient(t *testing.T) {
	for language, want := range map[Language]string{LanguageJava: "JAVA", LanguageCPP: "CPP", LanguageGo: "GO", LanguageUnknown: ""} {
		q, err := heartbeat().decodeRequest(&Frame{Language: language, Version: 400, Body: []byte(`{"clientID":"c","heartbeatFingerprint":-5,"withoutSub":true}`)})
		require.NoError(t, err)
		assert.Equal(t, &protocol.HeartbeatRequest{ClientID: "c", Language: want, Version: 400, Fingerprint: -5, WithoutSubscriptions: true}, q)
	}
	f := heartbeat().request(&protocol.HeartbeatRequest{ClientID: "c"})
	assert.Equal(t, []any{LanguageGo, int32(Version)}, []any{f.Language, f.Version}, "of the frame where the client does not say")
}

func TestAResetReachesEachClientInItsForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, &fakeBroker{}, nil)
		for language, valid := range map[Language]bool{LanguageJava: false, LanguageGo: false, LanguageCPP: true} {
			conn := p.raw(t)
			f := getMaxOffset().request(&protocol.GetMaxOffsetRequest{Topic: "T"})
			f.Language = language
			write(t, conn, f)
			_, err := Read(conn)
			require.NoError(t, err)
			p.broker.session.Peer.ResetConsumerOffset(&protocol.ResetConsumerOffsetRequest{Group: "g", Topic: "t", Offsets: map[message.Queue]int64{{Topic: "t", BrokerName: "b"}: 1}})
			got, err := Read(conn)
			require.NoError(t, err)
			assert.True(t, got.Oneway())
			assert.Equal(t, valid, json.Valid(got.Body), "%v: %s", language, got.Body)
			require.NoError(t, conn.Close())
		}
		p.close(t)
	})
}

func TestChangesOfAttributesAreReadAsJavaReadsThem(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                              nil,
		"+message.type=FIFO":            {"+message.type": "FIFO"},
		"+a=b=c,-d,+e=":                 {"+a": "b=c", "-d": "", "+e": ""},
		"-message.type,+reserve.time=1": {"-message.type": "", "+reserve.time": "1"},
	} {
		h := header{fields: Fields{{"attributes", text}}}
		got := h.changesOf("attributes")
		require.NoError(t, h.err, text)
		assert.Equal(t, protocol.AttributesOf(want), got, text)
		again := header{fields: Fields{{"attributes", appendChanges(got)}}}
		assert.Equal(t, got, again.changesOf("attributes"))
	}
	for _, bad := range []string{"a=b", "+a", "-a=b", "+=b", "+", "-", ",", "+a=b,", "+a=b,+a=c"} {
		h := header{fields: Fields{{"attributes", bad}}}
		h.changesOf("attributes")
		assert.ErrorIs(t, h.err, errBadHeader, bad)
	}
}
