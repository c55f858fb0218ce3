package remoting

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenMeaning is what a golden request or response of Java means to us.
type goldenMeaning struct {
	// decoded reads the frame, and encoded writes what it means.
	decoded func(f *Frame) (any, error)
	encoded func() *Frame
	want    any
	// left names the fields that Java writes and we do not, because nobody reads
	// them.
	left []string
}

func requestMeans[S, Q, R any](c *command[S, Q, R], want Q, left ...string) goldenMeaning {
	return goldenMeaning{
		decoded: func(f *Frame) (any, error) {
			q, err := c.decodeRequest(f)
			if err != nil {
				return nil, err
			}
			return *q, nil
		},
		encoded: func() *Frame { return c.request(&want) },
		want:    want,
		left:    left,
	}
}

func responseMeans[S, Q, R any](c *command[S, Q, R], want R) goldenMeaning {
	return goldenMeaning{
		decoded: func(f *Frame) (any, error) {
			r, err := c.read(f)
			if err != nil {
				return nil, err
			}
			return *r, nil
		},
		encoded: func() *Frame {
			f := answerTo(&Frame{})
			c.encodeResponse(site{}, nil, &want, f)
			return f
		},
		want: want,
	}
}

// errorMeans is an answer without a response; its remark is the row's.
func errorMeans(code protocol.Code) goldenMeaning {
	want := protocol.Error{Code: code}
	return goldenMeaning{
		decoded: func(f *Frame) (any, error) {
			_, err := getMaxOffset().read(f)
			return *err.(*protocol.Error), nil
		},
		encoded: func() *Frame {
			f := answerTo(&Frame{})
			f.Code, f.Remark = int32(want.Code), want.Remark
			return f
		},
		want: want,
	}
}

func goldenMeanings() map[string]goldenMeaning {
	sixteen := int32(16)
	pulled := protocol.PullMessageResponse{Code: protocol.PullNotFound, NextBeginOffset: 100, MaxOffset: 100}
	return map[string]goldenMeaning{
		"SEND_MESSAGE_V2": requestMeans(sendMessage(), protocol.SendMessageRequest{
			ProducerGroup: "ProducerGroup", Topic: "TopicTest", DefaultTopic: "TBW102", DefaultTopicQueues: 4, QueueID: 2, BornTime: time.UnixMilli(1700000000123),
			Properties: "TAGS\x01TagA\x02KEYS\x01k1\x02WAIT\x01true\x02", Body: []byte("Hello RocketMQ"),
		}, "n"),
		"SEND_MESSAGE (v1 header)": requestMeans(sendMessage(), protocol.SendMessageRequest{
			ProducerGroup: "ProducerGroup", Topic: "主题", DefaultTopic: "TBW102", DefaultTopicQueues: 4, SysFlag: 4, BornTime: time.UnixMilli(1700000000123),
			Flag: 1, Properties: "TRAN_MSG\x01true\x02", Body: []byte("消息体"),
		}),
		"SEND_BATCH_MESSAGE oneway": requestMeans(sendMessage(), protocol.SendMessageRequest{
			ProducerGroup: "PG", Topic: "T", DefaultTopic: "TBW102", DefaultTopicQueues: 4, BornTime: time.UnixMilli(1), Batch: true, Oneway: true,
			Body: []byte("\x00\x00\x00\x17\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x17\x00"),
		}, "n"),
		"PULL_MESSAGE": requestMeans(pullMessage(), protocol.PullMessageRequest{
			Group: "GroupA", Topic: "TopicTest", QueueID: 1, Offset: 100, MaxMessages: 32, Commit: true, CommitOffset: 99, Suspend: 15 * time.Second,
			HasExpression: true, Expression: "TagA || TagB", ExpressionType: "TAG", SubVersion: 1700000000000,
		}, "bname"),
		"GET_ROUTEINFO_BY_TOPIC": requestMeans(getRoute(), protocol.GetRouteRequest{Topic: "TopicTest"}),
		// We write what strict readers can read, whoever asks.
		"GET_ROUTEINFO_BY_TOPIC acceptStandardJsonOnly": requestMeans(getRoute(), protocol.GetRouteRequest{Topic: "TopicTest"}, "acceptStandardJsonOnly"),
		"HEART_BEAT": requestMeans(heartbeat(), protocol.HeartbeatRequest{
			ClientID: "192.168.0.1@1234", Language: "JAVA", Version: 479, Producers: []string{"PG"},
			Consumers: []protocol.ConsumerData{{Group: "GroupA", Passive: true, Subscriptions: []protocol.Subscription{{
				Topic: "TopicTest", Expression: "TagA", ExpressionType: "TAG", Tags: []string{"TagA"}, Codes: []int32{2598919}, Version: 1700000000000,
			}}}},
		}),
		"QUERY_CONSUMER_OFFSET": requestMeans(queryConsumerOffset(), protocol.QueryConsumerOffsetRequest{Group: "GroupA", Topic: "TopicTest"}),
		"UPDATE_CONSUMER_OFFSET oneway": requestMeans(updateConsumerOffset(), protocol.UpdateConsumerOffsetRequest{
			Group: "GroupA", Topic: "TopicTest", Offset: 12345678901, Oneway: true,
		}),
		"CONSUMER_SEND_MSG_BACK": requestMeans(consumerSendMsgBack(), protocol.ConsumerSendMsgBackRequest{
			Group: "GroupA", Position: 1024, DelayLevel: 3, MsgID: "C0A8000900002A9F0000000000000400", Topic: "TopicTest", MaxReconsumeTimes: &sixteen,
		}),
		"UNREGISTER_CLIENT": requestMeans(unregisterClient(), protocol.UnregisterClientRequest{ClientID: "192.168.0.1@1234", ProducerGroup: "PG", ConsumerGroup: "GroupA"}),
		"LOCK_BATCH_MQ": requestMeans(lockQueues(), protocol.LockQueuesRequest{
			Group: "GroupA", ClientID: "cid", Queues: []message.Queue{{Topic: "T", BrokerName: "broker-a"}},
		}),
		"response SUCCESS send":                 responseMeans(sendMessage(), protocol.SendMessageResponse{MsgID: "C0A8000900002A9F0000000000000400", QueueID: 2, QueueOffset: 7}),
		"response PULL_NOT_FOUND":               responseMeans(pullMessage(), pulled),
		"response TOPIC_NOT_EXIST":              errorMeans(protocol.TopicNotExist),
		"response SYSTEM_ERROR remark":          errorMeans(protocol.SystemError),
		"response SYSTEM_BUSY":                  errorMeans(protocol.SystemBusy),
		"response REQUEST_CODE_NOT_SUPPORTED":   errorMeans(protocol.RequestCodeNotSupported),
		"response non-ASCII remark with quotes": errorMeans(protocol.SystemError),
	}
}

// leftAlone are golden rows that no command of ours has a meaning for.
func leftAlone() map[string]string {
	return map[string]string{
		"END_TRANSACTION":                            "no command of ours yet",
		"POP_MESSAGE":                                "no command of ours",
		"ACK_MESSAGE":                                "no command of ours",
		"response POP":                               "no command of ours",
		"no header, no body, max opaque":             "a frame without a command",
		"negative opaque and version":                "a frame without a command",
		"ext fields with empty and non-ASCII values": "a frame without a command",
		"language GO":                                "a frame without a command",
		"language CPP, body only":                    "a frame without a command",
		"response empty remark":                      "a frame without a command",
		"response PULL FOUND":                        "its body is no record: TestGoldenPullFound",
	}
}

func TestGoldenCommandsOfJavaMeanWhatWeWrite(t *testing.T) {
	meanings, passed, skipped := goldenMeanings(), 0, 0
	for _, row := range golden(t).Java {
		if leftAlone()[row.Name] != "" {
			skipped++
			continue
		}
		ok := t.Run(row.Name+" "+row.Serialize, func(t *testing.T) {
			m, known := meanings[row.Name]
			require.True(t, known)
			for _, text := range []string{row.Frame, row.Fast} {
				if text == "" {
					continue
				}
				b, err := hex.DecodeString(text)
				require.NoError(t, err)
				f, err := Read(bytes.NewReader(b))
				require.NoError(t, err)
				got, err := m.decoded(f)
				require.NoError(t, err)
				if e, isError := m.want.(protocol.Error); isError {
					e.Remark = *row.Decoded.Remark
					m.want = e
				}
				assert.Equal(t, m.want, got)

				// What we write means the same, and has the fields that Java writes.
				ours := m.encoded()
				ours.Serialize = f.Serialize
				again, err := m.decoded(wire(t, ours))
				require.NoError(t, err)
				if _, isError := m.want.(protocol.Error); !isError {
					assert.Equal(t, m.want, again)
				}
				if f.Code == codeSendMessage {
					return // we send the short names
				}
				assert.Equal(t, f.Flag, ours.Flag)
				assert.Equal(t, f.Code, ours.Code)
				have := make(map[string]string)
				for _, x := range ours.Ext {
					have[x.Name] = x.Value
				}
				for _, x := range f.Ext {
					if slices.Contains(m.left, x.Name) {
						continue
					}
					assert.Equal(t, x.Value, have[x.Name], x.Name)
				}
				if len(f.Body) > 0 && f.Body[0] == '{' {
					assert.JSONEq(t, string(f.Body), string(ours.Body))
				} else {
					assert.Equal(t, f.Body, ours.Body)
				}
			}
		})
		if ok {
			passed++
		}
	}
	t.Logf("java, as commands: %d passed, %d skipped", passed, skipped)
	assert.Equal(t, 38, passed)
}

func TestGoldenPullFound(t *testing.T) {
	n := 0
	for _, row := range golden(t).Java {
		if row.Name != "response PULL FOUND" {
			continue
		}
		b, err := hex.DecodeString(row.Frame)
		require.NoError(t, err)
		f, err := Read(bytes.NewReader(b))
		require.NoError(t, err)
		_, err = pullMessage().read(f)
		assert.ErrorIs(t, err, errBadHeader, "three bytes are no record")
		f.Body = []byte{0, 0, 0, 5, 9}
		r, err := pullMessage().read(f)
		require.NoError(t, err)
		assert.Equal(t, &protocol.PullMessageResponse{NextBeginOffset: 101, MaxOffset: 200, Records: [][]byte{f.Body}}, r)
		n++
	}
	assert.Equal(t, 2, n)
}

func TestGoldenBodies(t *testing.T) {
	for _, row := range golden(t).Bodies {
		f := &Frame{Body: []byte(row.JSON)}
		var ours []byte
		switch row.Name {
		case "HeartbeatData":
			q, err := heartbeat().decodeRequest(f)
			require.NoError(t, err)
			ours = heartbeat().request(q).Body
		case "LockBatchRequestBody":
			q, err := lockQueues().decodeRequest(f)
			require.NoError(t, err)
			ours = lockQueues().request(q).Body
			u, err := unlockQueues().decodeRequest(f)
			require.NoError(t, err)
			assert.JSONEq(t, row.JSON, string(unlockQueues().request(u).Body))
		case "LockBatchResponseBody":
			r, err := lockQueues().read(f)
			require.NoError(t, err)
			ours = responseOf(lockQueues(), nil, r).Body
		case "GetConsumerListByGroupResponseBody":
			r, err := getConsumerList().read(f)
			require.NoError(t, err)
			ours = responseOf(getConsumerList(), nil, r).Body
		default:
			t.Errorf("no command for the body %s", row.Name)
		}
		assert.JSONEq(t, row.JSON, string(ours))
		assert.Len(t, ours, len(row.JSON), "without blanks")
	}
	t.Logf("json_bodies: %d passed, 0 skipped", len(golden(t).Bodies))
}

// TestGoldenHeaderChecks: what RocketMQ refuses we refuse. Where it goes on with
// a field that is null, and fails a little later, we refuse at once.
func TestGoldenHeaderChecks(t *testing.T) {
	decode := func(code int32, fields map[string]string) error {
		f := &Frame{Code: code}
		for name, value := range fields {
			f.put(name, value)
		}
		var err error
		switch code {
		case 310:
			_, err = sendMessage().decodeRequest(f)
		case 11:
			_, err = pullMessage().decodeRequest(f)
		case 105:
			_, err = getRoute().decodeRequest(f)
		case 14:
			_, err = queryConsumerOffset().decodeRequest(f)
		case 35:
			_, err = unregisterClient().decodeRequest(f)
		case 36:
			var q *protocol.ConsumerSendMsgBackRequest
			q, err = consumerSendMsgBack().decodeRequest(f)
			assert.False(t, q.UnitMode)
		}
		return err
	}
	refused := map[string]string{
		"SendMessageRequestHeaderV2 missing b":             "the field b is missing",
		"SendMessageRequestHeaderV2 bad int":               `the field d is "x"`,
		"PullMessageRequestHeader missing queueOffset":     "the field queueOffset is missing",
		"GetRouteInfoRequestHeader missing topic":          "the field topic is missing",
		"QueryConsumerOffsetRequestHeader missing queueId": "the field queueId is missing",
		"UnregisterClientRequestHeader missing clientID":   "the field clientID is missing",
		"SendMessageRequestHeaderV2":                       "",
		"GetRouteInfoRequestHeader":                        "",
		"UnregisterClientRequestHeader":                    "",
		"ConsumerSendMsgBackRequestHeader unitMode yes":    "",
	}
	codes := map[string]int32{
		"SendMessageRequestHeaderV2": 310, "PullMessageRequestHeader": 11, "GetRouteInfoRequestHeader": 105,
		"QueryConsumerOffsetRequestHeader": 14, "UnregisterClientRequestHeader": 35, "ConsumerSendMsgBackRequestHeader": 36,
	}
	rows := golden(t).Headers
	for _, row := range rows {
		want, known := refused[row.Header]
		require.True(t, known, row.Header)
		header, _, _ := bytes.Cut([]byte(row.Header), []byte(" "))
		err := decode(codes[string(header)], row.ExtFields)
		if want == "" {
			assert.NoError(t, err, row.Header)
		} else {
			assert.ErrorContains(t, err, want, row.Header)
		}
		if row.Result.Error != "" {
			assert.Error(t, err, row.Header)
		}
	}
	t.Logf("header_check: %d passed, 0 skipped", len(rows))
}

// goldenRoute is a body of a route and what RocketMQ's clients read in it.
type goldenRoute struct {
	Name, Body string
	Go, Java   json.RawMessage
}

type javaRoute struct {
	Error          string
	OrderTopicConf *string
	QueueDatas     []struct {
		BrokerName                                        string
		ReadQueueNums, WriteQueueNums, Perm, TopicSysFlag int
	}
	BrokerDatas []struct {
		Cluster, BrokerName string
		BrokerAddrs         map[string]string
	}
}

func goldenRoutes(t testing.TB) []goldenRoute {
	var g struct{ Cases []goldenRoute }
	readGolden(t, "testdata/route_json.json", &g)
	return g.Cases
}

// javaMeaning is a golden row as our type; ok is false where Java has none.
func (g goldenRoute) javaMeaning(t *testing.T) (r protocol.TopicRoute, ok bool) {
	var j *javaRoute
	require.NoError(t, json.Unmarshal(g.Java, &j))
	if j == nil || j.Error != "" {
		return r, false
	}
	if j.OrderTopicConf != nil {
		r.OrderConf = *j.OrderTopicConf
	}
	for _, q := range j.QueueDatas {
		r.Queues = append(r.Queues, protocol.QueueData{
			BrokerName: q.BrokerName, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums, Perm: protocol.Perm(q.Perm), SysFlag: q.TopicSysFlag,
		})
	}
	for _, b := range j.BrokerDatas {
		data := protocol.BrokerData{Cluster: b.Cluster, BrokerName: b.BrokerName, Addrs: map[int64]string{}}
		for id, addr := range b.BrokerAddrs {
			n, err := strconv.ParseInt(id, 10, 64)
			require.NoError(t, err)
			data.Addrs[n] = addr
		}
		r.Brokers = append(r.Brokers, data)
	}
	return r, true
}
