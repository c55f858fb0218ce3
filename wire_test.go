package pocketmq_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// What official clients put on the wire, frame by frame, and what they need to
// find in the answers. Each rule holds for both forms of headers.

// onWire runs f for a cluster over pipes, in a bubble, once with JSON headers and
// once with binary ones.
func onWire(t *testing.T, cfg pocketmq.ClusterConfig, f func(t *testing.T, w *wire)) {
	t.Helper()
	t.Parallel()
	for form, name := range map[remoting.Serialize]string{remoting.JSON: "JSON", remoting.Binary: "binary"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := pipenet.New()
				cfg := cfg
				cfg.Transport = remoting.NewTransport("127.0.0.1", n)
				w := &wire{Cluster: run(t, cfg), net: n, form: form}
				f(t, w)
			})
		})
	}
}

type wire struct {
	*pocketmq.Cluster
	net  *pipenet.Network
	form remoting.Serialize
}

// rawClient is a connection that a test writes frames to.
type rawClient struct {
	t        *testing.T
	conn     net.Conn
	form     remoting.Serialize
	language remoting.Language
	version  int32
	opaque   int32
	answers  chan *remoting.Frame
	requests chan *remoting.Frame // of the server
}

func (w *wire) client(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn, err := w.net.Dial(t.Context(), addr)
	require.NoError(t, err)
	c := &rawClient{
		t: t, conn: conn, form: w.form, language: remoting.LanguageGo, version: 317,
		answers: make(chan *remoting.Frame, 100), requests: make(chan *remoting.Frame, 100),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f, err := remoting.Read(conn)
			if err != nil {
				return
			}
			if f.Response() {
				c.answers <- f
			} else {
				c.requests <- f
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close() // a test may have closed it
		<-ended
	})
	return c
}

func (w *wire) broker(t *testing.T) *rawClient {
	t.Helper()
	return w.client(t, w.Broker("broker-a", 0).Addr())
}

func (w *wire) nameServer(t *testing.T) *rawClient {
	t.Helper()
	return w.client(t, w.NameServerAddrs()[0])
}

// java makes it a connection of a Java client.
func (c *rawClient) java() *rawClient {
	c.language, c.version = remoting.LanguageJava, 479
	return c
}

// ext is the fields of a request: names and values, alternating.
func ext(pairs ...any) (fields remoting.Fields) {
	for i := 0; i < len(pairs); i += 2 {
		fields = append(fields, remoting.Field{Name: pairs[i].(string), Value: fmt.Sprint(pairs[i+1])})
	}
	return fields
}

func (c *rawClient) write(f *remoting.Frame) {
	c.t.Helper()
	f.Serialize, f.Language, f.Version = c.form, c.language, c.version
	b, err := f.Append(nil)
	require.NoError(c.t, err)
	_, err = c.conn.Write(b)
	require.NoError(c.t, err)
}

// send sends a request and returns its id.
func (c *rawClient) send(code int32, fields remoting.Fields, body string) int32 {
	c.t.Helper()
	c.opaque++
	c.write(&remoting.Frame{Code: code, Opaque: c.opaque, Ext: fields, Body: []byte(body)})
	return c.opaque
}

// call sends a request and returns its answer, as every answer has to be.
func (c *rawClient) call(code int32, fields remoting.Fields, body string) *remoting.Frame {
	c.t.Helper()
	id := c.send(code, fields, body)
	f := <-c.answers
	require.Equal(c.t, id, f.Opaque)
	assert.Equal(c.t, c.form, f.Serialize, "in the form of the request")
	assert.EqualValues(c.t, remoting.FlagResponse, f.Flag)
	assert.EqualValues(c.t, 479, f.Version, "clients take it for the broker's")
	return f
}

// ok is call for what has to succeed.
func (c *rawClient) ok(code int32, fields remoting.Fields, body string) *remoting.Frame {
	c.t.Helper()
	f := c.call(code, fields, body)
	require.Zero(c.t, f.Code, f.Remark)
	return f
}

// answer answers a request of the server.
func (c *rawClient) answer(req *remoting.Frame, code int32, remark, body string) {
	c.t.Helper()
	c.write(&remoting.Frame{Flag: remoting.FlagResponse, Opaque: req.Opaque, Code: code, Remark: remark, Body: []byte(body)})
}

func get(f *remoting.Frame, name string) string {
	value, _ := f.Ext.Get(name)
	return value
}

func number(t *testing.T, f *remoting.Frame, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(get(f, name), 10, 64)
	require.NoError(t, err, name)
	return n
}

// goSend is a send as the Go client writes it: long names, and fields that it
// always has.
func goSend(topic string, queue int, properties string) remoting.Fields {
	return ext("producerGroup", "P", "topic", topic, "queueId", queue, "sysFlag", 0, "bornTimestamp", 1700000000123, "flag", 0, "properties", properties,
		"reconsumeTimes", 0, "unitMode", false, "maxReconsumeTimes", 0, "defaultTopic", "TBW102", "defaultTopicQueueNums", 4, "batch", false, "bname", "broker-a")
}

// javaSend is one as the Java client writes it: SEND_MESSAGE_V2.
func javaSend(topic string, queue int, properties string) remoting.Fields {
	return ext("a", "P", "b", topic, "c", "TBW102", "d", 4, "e", queue, "f", 0, "g", 1700000000123, "h", 0, "i", properties, "j", 0, "k", false, "m", false, "n", "broker-a")
}

func TestASendIsAnsweredAsOfficialClientsNeedIt(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		got := c.ok(10, goSend("T", 2, "UNIQ_KEY\x01K0\x02TAGS\x01a\x02"), "body")
		host, position, err := message.ParseOffsetMsgID(get(got, "msgId"))
		require.NoError(t, err)
		assert.Equal(t, w.Broker("broker-a", 0).Addr(), host.String(), "tools dial what the id names")
		assert.Positive(t, position)
		assert.Equal(t, "2", get(got, "queueId"))
		assert.Equal(t, "0", get(got, "queueOffset"))
		assert.Equal(t, "K0", get(got, "transactionId"))
		assert.Equal(t, "DefaultRegion", get(got, "MSG_REGION"))
		assert.Equal(t, "true", get(got, "TRACE_ON"))

		got = c.java().ok(310, javaSend("T", 2, ""), "body")
		assert.Equal(t, "1", get(got, "queueOffset"))
		assert.NotEmpty(t, get(got, "transactionId"), "a unique key is made where there is none")

		batch := message.AppendBatch(message.AppendBatch(nil, 0, []byte("one"), "TAGS\x01x\x02"), 0, []byte("two"), "")
		fields := javaSend("T", 2, "")
		fields[11].Value = "true"
		got = c.ok(320, fields, string(batch))
		ids := strings.Split(get(got, "msgId"), ",")
		require.Len(t, ids, 2)
		assert.Equal(t, "2", get(got, "queueOffset"), "of the first message")
		assert.Len(t, c.ok(33, ext("offset", mustPosition(t, ids[1]), "topic", "T"), "").Body, len(rawRecord(t, w, ids[1])))

		// A oneway send has no answer, whatever becomes of it.
		c.opaque++
		c.write(&remoting.Frame{Code: 10, Opaque: c.opaque, Flag: remoting.FlagOneway, Ext: goSend("T", 2, ""), Body: []byte("oneway")})
		c.opaque++
		c.write(&remoting.Frame{Code: 10, Opaque: c.opaque, Flag: remoting.FlagOneway, Ext: goSend("T", 99, ""), Body: []byte("nowhere")})
		assert.Equal(t, "5", get(c.ok(30, ext("topic", "T", "queueId", 2), ""), "offset"))
	})
}

func mustPosition(t *testing.T, id string) int64 {
	t.Helper()
	_, position, err := message.ParseOffsetMsgID(id)
	require.NoError(t, err)
	return position
}

func rawRecord(t *testing.T, w *wire, id string) []byte {
	t.Helper()
	m, err := w.Admin().MessageByID(t.Context(), id)
	require.NoError(t, err)
	return make([]byte, m.StoreSize)
}

func TestARefusedSendTellsRegionAndTracingToo(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		noTemplate := goSend("unknown", 0, "")
		noTemplate[10].Value = "no template"
		for what, send := range map[string]struct {
			fields remoting.Fields
			body   string
			code   protocol.Code
		}{
			"a queue that is not there":    {goSend("T", 4, ""), "x", protocol.InvalidParameter},
			"no legal name":                {goSend("a b", 0, ""), "x", protocol.InvalidParameter},
			"a topic that takes no sends":  {goSend("SELF_TEST_TOPIC", 0, ""), "x", protocol.NoPermission},
			"a topic without a template":   {noTemplate, "x", protocol.TopicNotExist},
			"a batch to a retry topic":     {append(goSend("%RETRY%g", 0, "")[:12], ext("batch", true)...), "x", protocol.MessageIllegal},
			"a field that is missing":      {goSend("T", 0, "")[1:], "x", protocol.SystemError},
			"a message without a body":     {goSend("T", 0, ""), "", protocol.MessageIllegal},
			"a body that is larger than 4": {goSend("T", 0, ""), strings.Repeat("x", 4<<20+1), protocol.MessageIllegal},
		} {
			got := c.call(10, send.fields, send.body)
			assert.EqualValues(t, send.code, got.Code, what)
			assert.NotEmpty(t, got.Remark, what)
			assert.Equal(t, "DefaultRegion", get(got, "MSG_REGION"), what)
			assert.Equal(t, "true", get(got, "TRACE_ON"), what)
			assert.Empty(t, get(got, "msgId"), what)
		}
		half := goSend("T", 0, "")
		half[3].Value = "-1"
		assert.Equal(t, "transactional messages (sysFlag 0xffffffff) are not supported", c.call(10, half, "x").Remark)
		assert.Zero(t, c.ok(10, goSend("TBW102", 0, ""), "x").Code, "neither this nor")
		assert.Zero(t, c.ok(10, goSend("BenchmarkTest", 1023, ""), "x").Code, "the benchmark's topic is protected from sends")
	})
}

// routeBody is a route as the Go client has to find it.
type routeBody struct {
	QueueDatas []struct {
		BrokerName                          string
		ReadQueueNums, WriteQueueNums, Perm int
	}
	BrokerDatas []struct {
		BrokerAddrs map[string]string
	}
}

func (c *rawClient) route(topic string) (r routeBody) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal(c.ok(105, ext("topic", topic), "").Body, &r), "standard JSON")
	return r
}

func TestATopicOfAFirstSendIsRoutableBeforeTheAnswer(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{NameServers: 2}, func(t *testing.T, w *wire) {
		template := w.nameServer(t).route("TBW102")
		require.Len(t, template.QueueDatas, 1)
		assert.Equal(t, []int{8, 8, 7}, []int{template.QueueDatas[0].ReadQueueNums, template.QueueDatas[0].WriteQueueNums, template.QueueDatas[0].Perm})
		assert.Equal(t, w.Broker("broker-a", 0).Addr(), template.BrokerDatas[0].BrokerAddrs["0"])

		c := w.broker(t)
		for topic, queues := range map[string]int{"usual": 4, "few": 2, "many": 8} {
			fields := goSend(topic, 1, "")
			for i := range fields {
				if fields[i].Name == "defaultTopicQueueNums" {
					fields[i].Value = map[string]string{"usual": "4", "few": "2", "many": "16"}[topic]
				}
			}
			c.ok(10, fields, "x")
			for _, addr := range w.NameServerAddrs() {
				r := w.client(t, addr).route(topic)
				require.Len(t, r.QueueDatas, 1)
				assert.Equal(t, []int{queues, queues, 6}, []int{r.QueueDatas[0].ReadQueueNums, r.QueueDatas[0].WriteQueueNums, r.QueueDatas[0].Perm}, topic)
			}
		}
		got := w.nameServer(t).call(105, ext("topic", "nobody's"), "")
		assert.EqualValues(t, protocol.TopicNotExist, got.Code)
	})
}

func TestTopicsThatExistFromTheStart(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		for topic, want := range map[string]struct{ queues, perm int }{
			"TBW102": {8, 7}, "SELF_TEST_TOPIC": {1, 6}, "BenchmarkTest": {1024, 6}, "OFFSET_MOVED_EVENT": {1, 6},
			"DefaultCluster": {16, 7}, "broker-a": {1, 7}, "RMQ_SYS_TRACE_TOPIC": {1, 6},
		} {
			assert.Equal(t, fmt.Sprintf(`{"attributes":{},"order":false,"perm":%d,"readQueueNums":%d,"topicFilterType":"SINGLE_TAG","topicName":"%s","topicSysFlag":0,"writeQueueNums":%d}`,
				want.perm, want.queues, topic, want.queues), string(c.ok(351, ext("topic", topic), "").Body))
			r := w.nameServer(t).route(topic)
			require.Len(t, r.QueueDatas, 1)
			assert.Equal(t, want.perm, r.QueueDatas[0].Perm)
			assert.EqualValues(t, protocol.InvalidParameter, c.call(215, ext("topic", topic), "").Code, "nobody may delete it")
		}
		assert.EqualValues(t, protocol.TopicNotExist, c.call(351, ext("topic", "DefaultCluster_REPLY_TOPIC"), "").Code)
		c.ok(10, goSend("RMQ_SYS_TRACE_TOPIC", 0, ""), "Pub\x01")
	})
}

// goHeartbeat is a heartbeat as the Go client writes it: an order of its own, no
// fingerprint, codes as texts, and versions in nanoseconds.
func goHeartbeat(id, group, topic, sub string, version int64) string {
	sets := `"tagsSet":[],"codeSet":[]`
	if sub != "*" {
		sets = fmt.Sprintf(`"tagsSet":["%s"],"codeSet":["%d"]`, sub, message.TagHash(sub))
	}
	return fmt.Sprintf(`{"clientID":"%s","producerDataSet":[],"consumerDataSet":[{"groupName":"%s","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",`+
		`"subscriptionDataSet":[{"classFilterMode":false,"topic":"%s","subString":"%s",%s,"subVersion":%d,"expressionType":"TAG"},`+
		`{"classFilterMode":false,"topic":"%%RETRY%%%s","subString":"*","tagsSet":[],"codeSet":[],"subVersion":%d,"expressionType":"TAG"}],"unitMode":false}]}`, id, group, topic, sub, sets, version, group, version)
}

// goPull is a pull of a push consumer as the Go client writes it.
func goPull(group, topic string, queue, offset, most, flag int) remoting.Fields {
	return ext("consumerGroup", group, "topic", topic, "queueId", queue, "queueOffset", offset, "maxMsgNums", most, "sysFlag", flag, "commitOffset", 0,
		"suspendTimeoutMillis", 20000, "subscription", "", "subVersion", 0, "expressionType", "TAG", "bname", "broker-a")
}

func TestAPullOfTheGoClient(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		four := func(f *remoting.Frame, next, low, high int64) {
			t.Helper()
			assert.Equal(t, []int64{next, low, high, 0}, []int64{number(t, f, "nextBeginOffset"), number(t, f, "minOffset"), number(t, f, "maxOffset"), number(t, f, "suggestWhichBrokerId")})
		}
		const suspend, subscription = 2, 4
		got := c.call(11, goPull("g", "T", 0, 0, 32, suspend), "")
		assert.EqualValues(t, protocol.SubscriptionNotExist, got.Code, "no heartbeat has told of the group")

		hb := c.ok(34, nil, goHeartbeat("10.0.0.1@5", "g", "T", "a", 1700000000000000000))
		assert.Equal(t, "true", get(hb, "IS_SUPPORT_HEART_BEAT_V2"))
		assert.Equal(t, "true", get(hb, "IS_SUB_CHANGE"))
		assert.Equal(t, 1, w.nameServer(t).route("%RETRY%g").QueueDatas[0].ReadQueueNums, "routable before the answer")
		assert.Equal(t, `{"consumerIdList":["10.0.0.1@5"]}`, string(c.ok(38, ext("consumerGroup", "g"), "").Body), "who asks is among them")

		got = c.call(11, goPull("g", "U", 0, 0, 32, suspend), "")
		assert.EqualValues(t, protocol.TopicNotExist, got.Code)
		c.ok(10, goSend("other", 0, ""), "x")
		got = c.call(11, goPull("g", "other", 0, 0, 32, suspend), "")
		assert.EqualValues(t, protocol.SubscriptionNotExist, got.Code, "the group does not subscribe to it")
		newer := goPull("g", "T", 0, 0, 32, suspend)
		newer[9].Value = "1700000000000000001"
		got = c.call(11, newer, "")
		assert.EqualValues(t, protocol.SubscriptionNotLatest, got.Code, "only what is newer is too new, and 0 never is")
		got = c.call(11, goPull("g", "T", 2, 0, 32, suspend), "")
		assert.EqualValues(t, protocol.InvalidParameter, got.Code)

		four(c.call(11, goPull("g", "T", 0, 7, 32, suspend), ""), 0, 0, 0) // 21: an empty queue
		for i := range 3 {
			c.ok(10, goSend("T", 0, "TAGS\x01"+[]string{"a", "b", "a"}[i]+"\x02"), fmt.Sprint(i))
		}
		got = c.ok(11, goPull("g", "T", 0, 0, 32, suspend), "")
		four(got, 3, 0, 3)
		assert.Len(t, splitAll(t, got.Body), 2, "the heartbeat's filter counts")
		got = c.ok(11, goPull("g", "T", 0, 0, 0, suspend), "")
		four(got, 1, 0, 3)
		assert.Len(t, splitAll(t, got.Body), 1, "none would make its Poll spin")
		got = c.call(11, goPull("g", "T", 0, 9, 32, suspend), "")
		assert.EqualValues(t, protocol.PullOffsetMoved, got.Code)
		four(got, 3, 0, 3)

		// A pull that brings its own filter needs no heartbeat: the Go pull consumer's.
		poll := goPull("pollers", "T", 0, 1, 0, suspend|subscription)
		got = c.ok(11, poll, "")
		four(got, 2, 0, 3)
		poll[8].Value = "b"
		got = c.call(11, append(poll[:3:3], append(ext("queueOffset", 2), poll[4:]...)...), "")
		assert.EqualValues(t, protocol.PullRetryImmediately, got.Code)
		four(got, 3, 0, 3)

		// At the end it is held for as long as the client says, and not an instant less.
		began := time.Now()
		got = c.call(11, goPull("g", "T", 0, 3, 32, suspend), "")
		assert.EqualValues(t, protocol.PullNotFound, got.Code)
		four(got, 3, 0, 3)
		assert.Equal(t, 20*time.Second, time.Since(began))
		got = c.call(11, goPull("g", "T", 0, 3, 32, 0), "")
		assert.EqualValues(t, protocol.PullNotFound, got.Code)
		assert.Equal(t, 20*time.Second, time.Since(began), "not held")
		held := c.send(11, goPull("g", "T", 0, 3, 32, suspend), "")
		synctest.Wait()
		w.broker(t).ok(10, goSend("T", 0, "TAGS\x01a\x02"), "next")
		got = <-c.answers
		assert.Equal(t, held, got.Opaque)
		assert.Zero(t, got.Code)
		four(got, 4, 0, 4)
	})
}

// splitAll parts the records of a body.
func splitAll(t *testing.T, b []byte) (records []message.View) {
	t.Helper()
	for len(b) > 0 {
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		v, err := message.ParseView(b[:n])
		require.NoError(t, err)
		records = append(records, v)
		b = b[n:]
	}
	return records
}

func TestEveryMemberIsToldOfAChange(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		first, second := w.broker(t), w.broker(t)
		told := func(who string, clients ...*rawClient) {
			t.Helper()
			for _, c := range clients {
				f := <-c.requests
				assert.EqualValues(t, protocol.CodeNotifyConsumerIDsChanged, f.Code, who)
				assert.EqualValues(t, remoting.FlagOneway, f.Flag, who)
				assert.Equal(t, "g", get(f, "consumerGroup"), who)
			}
			synctest.Wait()
			assert.Empty(t, first.requests, who)
			assert.Empty(t, second.requests, who)
		}
		first.ok(34, nil, goHeartbeat("a@1", "g", "T", "*", 1))
		told("the newcomer itself", first)
		second.ok(34, nil, goHeartbeat("b@1", "g", "T", "*", 1))
		told("both", first, second)
		second.ok(34, nil, goHeartbeat("b@1", "g", "T", "*", 1))
		told("nothing has changed")
		second.ok(34, nil, goHeartbeat("b@1", "g", "U", "*", 1))
		told("other topics", first, second)
		second.ok(35, ext("clientID", "b@1", "consumerGroup", "g"), "")
		told("who stays", first)
		second.ok(34, nil, goHeartbeat("b@1", "g", "T", "*", 1))
		told("again", first, second)
		require.NoError(t, second.conn.Close())
		told("the Go client never unregisters", first)
		assert.Equal(t, `{"consumerIdList":["a@1"]}`, string(first.ok(38, ext("consumerGroup", "g"), "").Body))
		got := first.call(38, ext("consumerGroup", "nobody's"), "")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Equal(t, "no consumer for this group, nobody's", got.Remark)
	})
}

func TestUnknownRequestsAreAnsweredWithThree(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{}, func(t *testing.T, w *wire) {
		for _, c := range []*rawClient{w.broker(t), w.nameServer(t)} {
			got := c.call(999, nil, "")
			assert.EqualValues(t, protocol.RequestCodeNotSupported, got.Code)
			assert.Equal(t, " request type 999 not supported", got.Remark)
		}
		assert.True(t, netip.MustParseAddrPort(w.Broker("broker-a", 0).Addr()).IsValid())
	})
}
