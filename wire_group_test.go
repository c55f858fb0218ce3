package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// javaHeartbeat is a heartbeat of a Java client; fingerprint 0 is one that makes
// none.
func javaHeartbeat(id, group, model, topic string, fingerprint int32, withoutSub bool) string {
	subs := fmt.Sprintf(`{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1700000000000,"tagsSet":[],"topic":"%s"}`, topic)
	if withoutSub {
		subs = ""
	}
	return fmt.Sprintf(`{"clientID":"%s","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"%s","messageModel":"%s",`+
		`"subscriptionDataSet":[%s],"unitMode":false}],"heartbeatFingerprint":%d,"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"}],"withoutSub":%t}`, id, group, model, subs, fingerprint, withoutSub)
}

func TestAHeartbeatWithoutSubscriptionsLeavesThemAsTheyAre(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		beat := func(c *rawClient, fingerprint int32, without bool) string {
			t.Helper()
			got := c.ok(34, nil, javaHeartbeat("j@1", "g", "CLUSTERING", "T", fingerprint, without))
			assert.Equal(t, "true", get(got, "IS_SUPPORT_HEART_BEAT_V2"))
			return get(got, "IS_SUB_CHANGE")
		}
		pull := func(c *rawClient) protocol.Code {
			t.Helper()
			return protocol.Code(c.call(11, goPull("g", "T", 0, 0, 32, 0), "").Code)
		}
		assert.Equal(t, "false", beat(c, 5, false), "the broker has them")
		assert.Equal(t, "false", beat(c, 5, true))
		assert.Equal(t, protocol.PullNotFound, pull(c), "still subscribed")
		assert.Equal(t, "true", beat(c, 6, true), "they have changed")
		assert.Equal(t, "false", beat(c, 6, false))
		assert.Equal(t, "true", beat(c, 0, false), "a client that does not know of it is told to go on as it does")

		// A new connection, as after a restart of either side: nothing is known.
		require.NoError(t, c.conn.Close())
		synctest.Wait()
		c = w.broker(t).java()
		assert.Equal(t, "true", beat(c, 6, true))
		assert.Equal(t, `{"consumerIdList":["j@1"]}`, string(c.ok(38, ext("consumerGroup", "g"), "").Body), "a member all the same")
		assert.Equal(t, protocol.SubscriptionNotExist, pull(c))
		st, ok := w.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		assert.Empty(t, st.Differ, "it is not known what it subscribes to")
		assert.Equal(t, "false", beat(c, 6, false))
		assert.Equal(t, protocol.PullNotFound, pull(c))
	})
}

func TestAClientMayAskWhetherItsFilterIsServed(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		check := func(kind, expression string) *remoting.Frame {
			return c.call(46, nil, fmt.Sprintf(`{"clientId":"j@1","group":"g","namespace":"","subscriptionData":{"classFilterMode":false,"codeSet":[],"expressionType":"%s","subString":"%s","subVersion":1,"tagsSet":[],"topic":"T"}}`, kind, expression))
		}
		assert.Zero(t, check("TAG", "a || b").Code)
		got := check("SQL92", "a > 5")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Equal(t, "The broker does not support consumer to filter message by SQL92", got.Remark)

		// Who does not ask is told by its pulls, and does not get everything instead.
		c.ok(34, nil, strings.Replace(javaHeartbeat("j@1", "g", "CLUSTERING", "T", 0, false), `"expressionType":"TAG","subString":"*"`, `"expressionType":"SQL92","subString":"a > 5"`, 1))
		c.ok(310, javaSend("T", 0, ""), "x")
		got = c.call(11, goPull("g", "T", 0, 0, 32, 2), "")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Equal(t, "The broker does not support consumer to filter message by SQL92", got.Remark)
	})
}

func TestALiveResetAnswersThePullThatIsHeld(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		c, admin := w.broker(t), w.broker(t).java()
		c.ok(34, nil, goHeartbeat("10.0.0.1@5", "g", "T", "*", 1))
		for range 5 {
			c.ok(10, goSend("T", 0, ""), "x")
		}
		commit := func(queue, offset int) *remoting.Frame {
			return c.ok(15, ext("consumerGroup", "g", "topic", "T", "queueId", queue, "commitOffset", offset), "")
		}
		committed := func() string {
			return get(c.ok(14, ext("consumerGroup", "g", "topic", "T", "queueId", 0), ""), "offset")
		}
		assert.Empty(t, commit(0, 5).Remark)
		held := c.send(11, goPull("g", "T", 0, 5, 32, 2), "")
		synctest.Wait()
		reset := ext("topic", "T", "group", "g", "timestamp", 0, "isForce", true, "queueId", 0, "offset", 2)
		began := time.Now()
		assert.Equal(t, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:2}}`, string(admin.ok(222, reset, "").Body))
		got := <-c.answers
		assert.Zero(t, time.Since(began), "at once")
		assert.Equal(t, held, got.Opaque)
		assert.EqualValues(t, protocol.PullOffsetMoved, got.Code)
		assert.Equal(t, []int64{2, 0, 5, 0}, []int64{number(t, got, "nextBeginOffset"), number(t, got, "minOffset"), number(t, got, "maxOffset"), number(t, got, "suggestWhichBrokerId")})

		// The Go client drops the queue, waits 10 s, commits the offset it was told,
		// and takes the queue anew where the broker says.
		assert.Equal(t, "2", committed())
		time.Sleep(10 * time.Second)
		assert.Empty(t, commit(0, 2).Remark, "it was told, so it counts")
		assert.Equal(t, "2", committed())
		assert.Len(t, splitAll(t, c.ok(11, goPull("g", "T", 0, 2, 32, 2), "").Body), 3, "it is told once")

		// Without a pull that is held the commits of before do not count, not even
		// the one that comes with the pull.
		reset[5].Value = "1"
		admin.ok(222, reset, "")
		assert.Equal(t, "Offset has been previously reset", commit(0, 5).Remark)
		assert.Equal(t, "1", committed())
		pull := goPull("g", "T", 0, 5, 32, 1|2)
		pull[6].Value = "5"
		got = c.call(11, pull, "")
		assert.EqualValues(t, protocol.PullOffsetMoved, got.Code)
		assert.EqualValues(t, 1, number(t, got, "nextBeginOffset"))
		assert.Equal(t, "1", committed())

		// All queues, to the end; what goes wrong.
		toEnd := ext("topic", "T", "group", "g", "timestamp", -1, "isForce", true)
		assert.Equal(t, `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:5,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}`, string(admin.ok(222, toEnd, "").Body))
		for what, fields := range map[string]remoting.Fields{
			"17": ext("topic", "U", "group", "g", "timestamp", -1), "26": ext("topic", "T", "group", "h", "timestamp", -1),
			"1": ext("topic", "T", "group", "g", "timestamp", 0, "queueId", 0, "offset", 7),
		} {
			assert.Equal(t, what, fmt.Sprint(admin.call(222, fields, "").Code))
		}
	})
}

func TestAResetOfABroadcastingGroupTellsEachMember(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		java, cpp, admin := w.broker(t).java(), w.broker(t), w.broker(t)
		cpp.language = remoting.LanguageCPP
		var in inbox
		ours := consumer(t, w.Cluster, pocketmq.ConsumerConfig{
			Group: "g", Model: pocketmq.Broadcasting, Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("ours"),
		})
		java.ok(34, nil, javaHeartbeat("j@1", "g", "BROADCASTING", "T", 0, false))
		cpp.ok(34, nil, javaHeartbeat("c@1", "g", "BROADCASTING", "T", 0, false))
		for i := range 4 {
			java.ok(310, javaSend("T", i%2, ""), fmt.Sprint(i))
		}
		synctest.Wait()
		require.Len(t, in.arrivals(), 4)
		admin.ok(222, ext("topic", "T", "group", "g", "timestamp", 0, "isForce", true), "")
		synctest.Wait()
		assert.Len(t, in.arrivals(), 8, "all of it again, at once")
		want := map[*rawClient]string{
			java: `{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:0,{"brokerName":"broker-a","queueId":1,"topic":"T"}:0}}`,
			cpp:  `{"offsetTable":[{"brokerName":"broker-a","offset":0,"queueId":0,"topic":"T"},{"brokerName":"broker-a","offset":0,"queueId":1,"topic":"T"}]}`,
		}
		for c, body := range want {
			f := <-c.requests
			assert.EqualValues(t, protocol.CodeResetConsumerOffset, f.Code)
			assert.EqualValues(t, remoting.FlagOneway, f.Flag)
			assert.Equal(t, []string{"T", "g", "0", "true"}, []string{get(f, "topic"), get(f, "group"), get(f, "timestamp"), get(f, "isForce")})
			assert.Equal(t, body, string(f.Body))
		}
		// Nothing waits for whoever pulls next.
		got := java.call(11, goPull("g", "T", 0, 2, 32, 0), "")
		assert.EqualValues(t, protocol.PullNotFound, got.Code)
		require.NoError(t, ours.Close())
	})
}

func TestAMemberIsAskedThroughTheBroker(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		member, admin := w.broker(t).java(), w.broker(t).java()
		member.ok(34, nil, javaHeartbeat("j@1", "g", "CLUSTERING", "T", 0, false))
		<-member.requests
		sent := member.ok(310, javaSend("T", 0, "UNIQ_KEY\x01K\x02"), "body")
		info := ext("consumerGroup", "g", "clientId", "j@1", "jstackEnable", true)
		direct := ext("consumerGroup", "g", "clientId", "j@1", "msgId", get(sent, "msgId"), "topic", "T")

		// The answer comes back as it is, with what we do not know.
		const running = `{"jstack":"Thread 1","mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"commitOffset":3,"dropped":true}},"properties":{"PROP_X":"y"},"statusTable":{"T":{"pullRT":0.5}},"subscriptionSet":[],"userConsumerInfo":{"a":"b"}}`
		id := admin.send(307, info, "")
		asked := <-member.requests
		assert.EqualValues(t, 307, asked.Code)
		assert.Zero(t, asked.Flag)
		assert.Equal(t, []string{"g", "j@1", "true"}, []string{get(asked, "consumerGroup"), get(asked, "clientId"), get(asked, "jstackEnable")})
		member.answer(asked, 0, "", running)
		got := <-admin.answers
		assert.Equal(t, id, got.Opaque)
		assert.Equal(t, running, string(got.Body))

		admin.send(309, direct, "")
		asked = <-member.requests
		assert.EqualValues(t, 309, asked.Code)
		assert.Equal(t, []string{"g", "j@1", get(sent, "msgId"), "T", "broker-a", "0", "0"}, []string{get(asked, "consumerGroup"), get(asked, "clientId"), get(asked, "msgId"),
			get(asked, "topic"), get(asked, "brokerName"), get(asked, "topicSysFlag"), get(asked, "groupSysFlag")})
		records := splitAll(t, asked.Body)
		require.Len(t, records, 1)
		assert.Equal(t, "body", string(records[0].Body()))
		const consumed = `{"autoCommit":true,"consumeResult":4,"order":false,"remark":"npe","spentTimeMills":3,"more":1}`
		member.answer(asked, 0, "", consumed)
		assert.Equal(t, consumed, string((<-admin.answers).Body))

		admin.send(223, ext("topic", "T", "group", "g", "clientAddr", "j@1"), "")
		asked = <-member.requests
		assert.EqualValues(t, 221, asked.Code)
		assert.Equal(t, []string{"T", "g"}, []string{get(asked, "topic"), get(asked, "group")})
		member.answer(asked, 0, "", `{"messageQueueTable":{{"topic":"T","brokerName":"broker-a","queueId":0}:7}}`)
		assert.Equal(t, `{"consumerTable":{"j@1":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:7}},"messageQueueTable":{}}`, string((<-admin.answers).Body))

		// What a member answers instead of an answer is passed on, too.
		admin.send(307, info, "")
		member.answer(<-member.requests, 1, "Can't find specified client instance of: j@1", "")
		got = <-admin.answers
		assert.EqualValues(t, 1, got.Code)
		assert.Equal(t, "Can't find specified client instance of: j@1", got.Remark)

		for code, after := range map[int32]time.Duration{307: 10 * time.Second, 309: 10 * time.Second, 223: 5 * time.Second} {
			began := time.Now()
			fields := map[int32]remoting.Fields{307: info, 309: direct, 223: ext("topic", "T", "group", "g", "clientAddr", "j@1")}[code]
			got = admin.call(code, fields, "")
			assert.EqualValues(t, protocol.ConsumeMsgTimeout, got.Code)
			assert.Equal(t, after, time.Since(began), code)
			late := <-member.requests
			member.answer(late, 0, "", "{}") // it is dropped
			for i := range fields {
				if fields[i].Value == "j@1" {
					fields[i].Value = "nobody"
				}
			}
			got = admin.call(code, fields, "")
			assert.EqualValues(t, protocol.SystemError, got.Code)
			assert.Equal(t, "The Consumer <g> <nobody> not online", got.Remark)
		}
		got = admin.call(309, ext("consumerGroup", "g", "clientId", "j@1", "msgId", strings.Repeat("0", 31)+"9"), "")
		assert.EqualValues(t, protocol.SystemError, got.Code, "no message is there")
		got = admin.call(309, ext("consumerGroup", "g", "clientId", "j@1", "msgId", "K"), "")
		assert.EqualValues(t, protocol.SystemError, got.Code, "no such id")

		// One that goes while it is asked is not online.
		admin.send(307, ext("consumerGroup", "g", "clientId", "j@1"), "")
		<-member.requests
		require.NoError(t, member.conn.Close())
		got = <-admin.answers
		assert.EqualValues(t, protocol.SystemError, got.Code)
	})
}

func TestOurConsumersAnswerWhatTheyAreAskedThroughTheBroker(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		admin := w.broker(t).java()
		sent := admin.ok(310, javaSend("T", 0, "UNIQ_KEY\x01K\x02"), "first")
		var order atomic.Value // an error; what the handler is told to do
		var in inbox
		record := in.handler("x")
		co := consumer(t, w.Cluster, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset,
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				fail, _ := order.Load().(error)
				switch fail {
				case errPanic:
					panic("boom")
				case errSlow:
					time.Sleep(15 * time.Second)
					return nil
				}
				return errors.Join(record(ctx, msgs), fail)
			}})
		synctest.Wait()
		require.Len(t, in.arrivals(), 1)
		direct := func() string {
			return string(admin.ok(309, ext("consumerGroup", "g", "clientId", co.ClientID(), "msgId", get(sent, "msgId"), "topic", "T"), "").Body)
		}
		assert.Equal(t, `{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":0}`, direct())
		require.Len(t, in.arrivals(), 2)
		m := in.arrivals()[1].msg
		assert.Equal(t, []any{"T", "first", "K", queue("T", "broker-a", 0), int64(0), get(sent, "msgId")}, []any{m.Topic, string(m.Body), m.MsgID, m.Queue, m.QueueOffset, m.OffsetMsgID})
		order.Store(errors.New("no stock"))
		assert.Equal(t, `{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"no stock","spentTimeMills":0}`, direct())
		order.Store(errPanic)
		assert.Equal(t, `{"autoCommit":true,"consumeResult":"CR_THROW_EXCEPTION","order":false,"remark":"the handler panicked: boom","spentTimeMills":0}`, direct())
		order.Store(errSlow)
		began := time.Now()
		slow := admin.call(309, ext("consumerGroup", "g", "clientId", co.ClientID(), "msgId", get(sent, "msgId"), "topic", "T"), "")
		assert.EqualValues(t, protocol.ConsumeMsgTimeout, slow.Code)
		assert.Equal(t, 10*time.Second, time.Since(began))
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, 1, co.Status().Consumed, "none of it counts")
		assert.Zero(t, co.Status().Failed)

		got := admin.ok(223, ext("topic", "T", "group", "g"), "")
		assert.Equal(t, fmt.Sprintf(`{"consumerTable":{"%s":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:1}},"messageQueueTable":{}}`, co.ClientID()), string(got.Body))
		got = admin.ok(307, ext("consumerGroup", "g", "clientId", co.ClientID()), "")
		assert.Contains(t, string(got.Body), `"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"%RETRY%g"}:{`)
		got = admin.ok(203, ext("consumerGroup", "g"), "")
		assert.Contains(t, string(got.Body), `"language":"GO","version":479`)

		puller, err := w.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "p", Subscriptions: all("T")})
		require.NoError(t, err)
		got = admin.call(309, ext("consumerGroup", "p", "clientId", puller.ClientID(), "msgId", get(sent, "msgId"), "topic", "T"), "")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Contains(t, got.Remark, "has no handler")
		require.NoError(t, errors.Join(co.Close(), puller.Close()))
		got = admin.call(223, ext("topic", "T", "group", "g"), "")
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Equal(t, "No Any Consumer online in the consumer group: [g]", got.Remark)
	})
}

// What a handler is told to do.
var (
	errPanic = errors.New("panic")
	errSlow  = errors.New("take 15 s")
)

func TestTopicsAndGroupsAreReadAndWrittenInLists(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"A": 1}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		config := func(name string, queues int) string {
			return fmt.Sprintf(`{"attributes":{},"order":false,"perm":6,"readQueueNums":%d,"topicFilterType":"SINGLE_TAG","topicName":"%s","topicSysFlag":0,"writeQueueNums":%d}`, queues, name, queues)
		}
		c.ok(18, nil, `{"topicConfigList":[`+config("L1", 2)+","+config("L2", 3)+`]}`)
		assert.Equal(t, 3, w.nameServer(t).route("L2").QueueDatas[0].ReadQueueNums, "routable before the answer")
		got := c.call(18, nil, `{"topicConfigList":[`+config("L3", 2)+","+config("TBW102", 3)+`]}`)
		assert.EqualValues(t, protocol.InvalidParameter, got.Code)
		assert.Contains(t, got.Remark, "The topic[TBW102] is conflict with system topic.")
		assert.EqualValues(t, protocol.TopicNotExist, c.call(351, ext("topic", "L3"), "").Code, "all or none")
		c.ok(17, ext("topic", "L1", "defaultTopic", "defaultTopic", "readQueueNums", 8, "writeQueueNums", 8, "perm", 6, "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", false), "")
		assert.Equal(t, config("L1", 8), string(c.ok(351, ext("topic", "L1"), "").Body))
		assert.EqualValues(t, protocol.SystemError, c.call(17, ext("topic", "L1", "defaultTopic", "x", "readQueueNums", 8, "writeQueueNums", 8, "perm", 6, "topicFilterType", "FOO"), "").Code)

		attributed := ext("topic", "L4", "defaultTopic", "x", "readQueueNums", 1, "writeQueueNums", 1, "perm", 6, "topicFilterType", "MULTI_TAG", "attributes", "+message.type=FIFO")
		c.ok(17, attributed, "")
		assert.Equal(t, strings.NewReplacer(`{}`, `{"message.type":"FIFO"}`, "SINGLE", "MULTI").Replace(config("L4", 1)), string(c.ok(351, ext("topic", "L4"), "").Body))
		attributed[6].Value = "+message.type=MIXED"
		assert.EqualValues(t, protocol.InvalidParameter, c.call(17, attributed, "").Code)
		attributed[6].Value = "-message.type"
		c.ok(17, attributed, "")
		c.ok(310, javaSend("L4", 0, "TAGS\x01a\x02"), "x")
		assert.EqualValues(t, message.FlagMultiTags, splitAll(t, c.ok(11, goPull("TOOLS_CONSUMER", "L4", 0, 0, 1, 4), "").Body)[0].SysFlag()&message.FlagMultiTags)
		c.ok(215, ext("topic", "L4"), "")

		all := c.ok(21, nil, "")
		assert.Equal(t, "10", get(all, "totalTopicNum"))
		assert.True(t, strings.HasPrefix(string(all.Body), `{"dataVersion":{"counter":`), string(all.Body))
		assert.Contains(t, string(all.Body), `"topicConfigTable":{"A":`+config("A", 1)+`,"BenchmarkTest":`)
		assert.True(t, strings.HasSuffix(string(all.Body), `},"topicQueueMappingDetailMap":{}}`))
		first := c.ok(21, ext("topicSeq", 0, "maxTopicNum", 1), "")
		assert.Equal(t, "10", get(first, "totalTopicNum"))
		version, rest, _ := strings.Cut(strings.TrimPrefix(string(first.Body), `{"dataVersion":`), `,"mappingDataVersion":`)
		assert.Contains(t, rest, `"topicConfigTable":{"A":`+config("A", 1)+`}`)
		second := c.ok(21, ext("topicSeq", 1, "maxTopicNum", 1, "dataVersion", version), "")
		assert.Contains(t, string(second.Body), `"topicConfigTable":{"BenchmarkTest":`)
		stale := c.ok(21, ext("topicSeq", 1, "maxTopicNum", 1, "dataVersion", `{"counter":0,"stateVersion":0,"timestamp":1}`), "")
		assert.Contains(t, string(stale.Body), `"topicConfigTable":{"A":`, "from the start when the table is another one")
		assert.Contains(t, string(c.ok(21, ext("topicSeq", 99, "dataVersion", version), "").Body), `"topicConfigTable":{}`)

		group := func(name string, retries int) string {
			return fmt.Sprintf(`{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"%s",`+
				`"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":%d,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}`, name, retries)
		}
		c.ok(225, nil, `{"groupConfigList":[`+group("g1", 3)+","+group("g2", 4)+`]}`)
		assert.EqualValues(t, protocol.InvalidParameter, c.call(225, nil, `{"groupConfigList":[`+group("g3", 3)+","+group("a b", 4)+`]}`).Code)
		c.ok(200, nil, group("g2", 5))
		got = c.ok(201, nil, "")
		assert.Contains(t, string(got.Body), `"forbiddenTable":{},"subscriptionGroupTable":{`)
		assert.Contains(t, string(got.Body), `"g1":`+group("g1", 3)+`,"g2":`+group("g2", 5)+`}}`)
		assert.NotContains(t, string(got.Body), `"g3"`)
		for _, boot := range []string{"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS"} {
			assert.Contains(t, string(got.Body), `"`+boot+`":{`)
		}
		assert.Equal(t, "10", get(got, "totalGroupNum"))
		got = c.ok(201, ext("groupSeq", 0, "maxGroupNum", 2), "")
		assert.Equal(t, 2, strings.Count(string(got.Body), `"groupName"`))
		c.ok(207, ext("groupName", "g1", "cleanOffset", true), "")
		assert.NotContains(t, string(c.ok(201, nil, "").Body), `"g1"`)
	})
}

// logText is a log that a test looks into.
type logText struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// Clients put everything that shares an instance into one heartbeat, and look at no
// name of a producer group.
func TestANameThatIsNoneTakesNothingElseOfAHeartbeatAlong(t *testing.T) {
	var log logText
	cfg := pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	onWire(t, cfg, func(t *testing.T, w *wire) {
		c := w.broker(t)
		id := "10.0.0.1@5#" + fmt.Sprint(c.form)
		consumers := func(body string) string {
			_, list, _ := strings.Cut(strings.TrimSuffix(body, "]}"), `"consumerDataSet":[`)
			return list
		}
		body := `{"clientID":"` + id + `","producerDataSet":[{"groupName":"order.producer"},{"groupName":" "},{"groupName":"` + strings.Repeat("p", 256) + `"},{"groupName":"P"}],"consumerDataSet":[` +
			consumers(goHeartbeat(id, "a/b", "T", "*", 1)) + "," + consumers(goHeartbeat(id, "", "T", "*", 1)) + "," +
			consumers(goHeartbeat(id, "good", "T", "*", 1)) + "," + consumers(goHeartbeat(id, "other", "no topic", "*", 1)) + "," + consumers(goHeartbeat(id, strings.Repeat("g", 121), "T", "*", 1)) + `]}`
		c.ok(10, goSend("T", 0, ""), "x")
		for range 3 {
			c.ok(34, nil, body)
		}
		for _, group := range []string{"good", "other"} {
			assert.Equal(t, `{"consumerIdList":["`+id+`"]}`, string(c.ok(38, ext("consumerGroup", group), "").Body), group)
		}
		c.ok(11, goPull("good", "T", 0, 0, 32, 0), "")
		got := c.call(11, goPull("other", "T", 0, 0, 32, 0), "")
		assert.EqualValues(t, protocol.SubscriptionNotExist, got.Code)
		for _, group := range []string{"a/b", "order.producer"} {
			assert.EqualValues(t, protocol.SystemError, c.call(38, ext("consumerGroup", group), "").Code, group)
			_, ok := w.Broker("broker-a", 0).Group(group)
			assert.False(t, ok, group)
		}
		assert.Equal(t, 6, log.count("client="+id+" "), "one line for each name, however many heartbeats there are")
		assert.Equal(t, 1, log.count("client="+id+` kind="consumer group" name=a/b `))
		assert.Zero(t, log.count("order.producer"), "producer groups are noted, never created")
		c.ok(34, nil, strings.ReplaceAll(body, id, id+"b"))
		assert.Equal(t, 6, log.count("client="+id+"b "), "of another client")
	})
}

// What a heartbeat costs is paid by every other client of the broker: it is bounded.
func TestAHeartbeatOfMoreThanAnybodyNeedsIsNotTakenIn(t *testing.T) {
	var log logText
	cfg := pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	onWire(t, cfg, func(t *testing.T, w *wire) {
		c := w.broker(t)
		id := "10.0.0.1@6#" + fmt.Sprint(c.form)
		many := func(n int, format string) string {
			list := make([]string, n)
			for i := range list {
				list[i] = fmt.Sprintf(format, i)
			}
			return strings.Join(list, ",")
		}
		large := `{"clientID":"` + id + `","producerDataSet":[{"groupName":"P"}],"consumerDataSet":[` +
			`{"groupName":"large","messageModel":"CLUSTERING","subscriptionDataSet":[` + many(20_000, `{"topic":"x%d","subString":"*"}`) + `]},` +
			`{"groupName":"good","messageModel":"CLUSTERING","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}`
		for range 3 {
			c.ok(34, nil, large)
		}
		assert.EqualValues(t, protocol.SystemError, c.call(38, ext("consumerGroup", "large"), "").Code)
		assert.EqualValues(t, protocol.PullNotFound, c.call(11, goPull("good", "T", 0, 0, 32, 0), "").Code)
		assert.Equal(t, 1, log.count("client="+id+" "))
		assert.NotZero(t, log.count("1 groups have no room: a connection may register 2048 KiB, and all together 256 MiB beyond 32 KiB each"))

		groups := `{"clientID":"` + id + `g","producerDataSet":[],"consumerDataSet":[` + many(1200, `{"groupName":"g%d","messageModel":"BROADCASTING","subscriptionDataSet":[]}`) + `]}`
		for range 3 {
			c.ok(34, nil, groups)
		}
		_, ok := w.Broker("broker-a", 0).Group("g999")
		assert.True(t, ok)
		_, ok = w.Broker("broker-a", 0).Group("g1000")
		assert.False(t, ok)
		assert.Equal(t, 1, log.count("client="+id+"g "))
	})
}

// Clients are anybody's: what they name must not fill the log, nor what is kept of it.
func TestWhatIsLoggedOfNamesThatAreNoneHasABound(t *testing.T) {
	var lines lineCounter
	cfg := pocketmq.ClusterConfig{Logger: slog.New(slog.NewTextHandler(&lines, nil))}
	onWire(t, cfg, func(t *testing.T, w *wire) {
		c := w.broker(t)
		before := lines.n.Load()
		for i := range 30 {
			var list []string
			for j := range 100 {
				list = append(list, fmt.Sprintf(`{"groupName":"%d/%d","subscriptionDataSet":[]}`, i, j))
			}
			c.ok(34, nil, `{"clientID":"many","consumerDataSet":[`+strings.Join(list, ",")+`]}`)
		}
		assert.LessOrEqual(t, lines.n.Load()-before, int64(1001+20))
	})
}
