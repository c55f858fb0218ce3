package pocketmq_test

import (
	"fmt"
	"strconv"
	"strings"
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

func TestOffsetsAreAnsweredByTheRulesOfOfficialClients(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		query := func(group string, queue int, more ...any) *remoting.Frame {
			return c.call(14, append(ext("consumerGroup", group, "topic", "T", "queueId", queue), ext(more...)...), "")
		}
		commit := func(group, topic string, queue, offset any) *remoting.Frame {
			return c.call(15, ext("consumerGroup", group, "topic", topic, "queueId", queue, "commitOffset", offset), "")
		}
		assert.Equal(t, "0", get(query("g", 0), "offset"), "whoever begins at the end of an empty queue misses nothing that comes")
		assert.EqualValues(t, protocol.QueryNotFound, query("g", 7).Code, "there is no such queue")
		start := time.Now()
		for range 3 {
			c.ok(310, javaSend("T", 0, ""), "x")
			time.Sleep(time.Second)
		}
		got := query("g", 0)
		assert.Zero(t, got.Code)
		assert.Equal(t, "0", get(got, "offset"), "a young queue is read from its beginning")
		assert.EqualValues(t, protocol.QueryNotFound, query("g", 0, "setZeroIfNotFound", false).Code)
		assert.EqualValues(t, protocol.QueryNotFound, query("g", 1, "setZeroIfNotFound", false).Code)

		assert.EqualValues(t, protocol.SubscriptionGroupNotExist, commit("g", "T", 0, 2).Code, "a commit makes no group")
		c.ok(34, nil, javaHeartbeat("j@1", "g", "CLUSTERING", "T", 0, false))
		assert.Zero(t, commit("g", "T", 0, 2).Code)
		assert.Equal(t, "2", get(query("g", 0), "offset"))
		assert.Equal(t, "2", get(query("g", 0, "setZeroIfNotFound", false), "offset"))
		assert.Zero(t, commit("g", "T", 0, 1).Code)
		assert.Equal(t, "1", get(query("g", 0), "offset"), "lower ones are taken, too")
		assert.EqualValues(t, protocol.TopicNotExist, commit("g", "U", 0, 1).Code)
		assert.EqualValues(t, protocol.InvalidParameter, commit("g", "T", 7, 1).Code)
		for _, fields := range []remoting.Fields{ext("queueId", 0), ext("commitOffset", 1), ext("queueId", "", "commitOffset", ""), nil} {
			got := c.call(15, append(ext("consumerGroup", "g", "topic", "T"), fields...), "")
			assert.EqualValues(t, protocol.InvalidParameter, got.Code)
			assert.Equal(t, "QueueId and offset can't be null, topic=T", got.Remark)
		}
		assert.EqualValues(t, protocol.SystemError, commit("g", "T", "x", 1).Code)

		ask := func(code int32, name string, fields ...any) string {
			t.Helper()
			return get(c.ok(code, ext(fields...), ""), name)
		}
		assert.Equal(t, "3", ask(30, "offset", "topic", "T", "queueId", 0, "committed", true))
		assert.Equal(t, "0", ask(30, "offset", "topic", "T", "queueId", 9))
		assert.Equal(t, "0", ask(30, "offset", "topic", "nobody's", "queueId", 0))
		assert.Equal(t, "0", ask(31, "offset", "topic", "T", "queueId", 0))
		ms := start.UnixMilli()
		for _, row := range []struct {
			at       int64
			boundary string
			want     string
		}{
			{ms - 1, "", "0"}, {ms, "", "0"}, {ms + 1, "", "1"}, {ms + 2000, "lower", "2"}, {ms + 2001, "LOWER", "3"},
			{ms - 1, "UPPER", "0"}, {ms + 999, "upper", "0"}, {ms + 1000, "UPPER", "1"}, {ms + 9999, "UPPER", "2"},
		} {
			fields := ext("topic", "T", "queueId", 0, "timestamp", row.at)
			if row.boundary != "" {
				fields = append(fields, ext("boundaryType", row.boundary)...)
			}
			assert.Equal(t, row.want, get(c.ok(29, fields, ""), "offset"), "%d %s", row.at-ms, row.boundary)
		}
		assert.Equal(t, "0", ask(29, "offset", "topic", "T", "queueId", 9, "timestamp", ms))
		assert.Equal(t, strconv.FormatInt(ms, 10), ask(32, "timestamp", "topic", "T", "queueId", 0))
		assert.Equal(t, "-1", ask(32, "timestamp", "topic", "T", "queueId", 1))

		// A pull commits, where its flag says so; a lite pull is one like others.
		pull := goPull("g", "T", 0, 3, 32, 1|4)
		pull[6].Value = "3"
		assert.EqualValues(t, protocol.PullNotFound, c.call(11, pull, "").Code)
		assert.Equal(t, "3", get(query("g", 0), "offset"))
		lite := goPull("lite", "T", 0, 1, 10, 2|4|16)
		lite[8].Value = "*"
		assert.Len(t, splitAll(t, c.ok(361, lite, "").Body), 2)
	})
}

func TestQueuesAreLockedForOfficialClients(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		body := func(client string, queues ...int) string {
			set := ""
			for i, q := range queues {
				if i > 0 {
					set += ","
				}
				set += fmt.Sprintf(`{"topic":"T","brokerName":"broker-a","queueId":%d}`, q)
			}
			return fmt.Sprintf(`{"consumerGroup":"g","clientId":"%s","mqSet":[%s]}`, client, set)
		}
		lock := func(client string, queues ...int) string {
			t.Helper()
			return string(c.ok(41, nil, body(client, queues...)).Body)
		}
		const zero, one = `{"brokerName":"broker-a","queueId":0,"topic":"T"}`, `{"brokerName":"broker-a","queueId":1,"topic":"T"}`
		assert.Equal(t, `{"lockOKMQSet":[`+zero+`]}`, lock("a", 0))
		assert.Equal(t, `{"lockOKMQSet":[`+one+`]}`, lock("b", 0, 1))
		assert.Equal(t, `{"lockOKMQSet":[]}`, lock("b", 0), "and not without the list")
		c.ok(42, nil, body("b", 0))
		assert.Equal(t, `{"lockOKMQSet":[]}`, lock("b", 0), "who does not hold it cannot give it back")
		time.Sleep(40 * time.Second)
		assert.Equal(t, `{"lockOKMQSet":[`+zero+`]}`, lock("a", 0), "renewed")
		require.NoError(t, c.conn.Close())
		c = w.broker(t)
		time.Sleep(60 * time.Second)
		assert.Equal(t, `{"lockOKMQSet":[]}`, lock("b", 0), "a broken connection does not set it free")
		time.Sleep(time.Millisecond)
		assert.Equal(t, `{"lockOKMQSet":[`+zero+`]}`, lock("b", 0), "60 s do")
		c.ok(42, nil, body("b", 0))
		assert.Equal(t, `{"lockOKMQSet":[`+zero+`]}`, lock("a", 0))
	})
}

func TestOfficialClientsGiveFailedMessagesBack(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		c := w.broker(t)
		sent := c.ok(10, goSend("T", 0, "UNIQ_KEY\x01K0\x02TAGS\x01a\x02KEYS\x01one two\x02"), "body")
		position := mustPosition(t, get(sent, "msgId"))
		// As the Go client writes it; its unit mode is empty.
		back := func(position int64, level, most int) *remoting.Frame {
			return c.call(36, ext("group", "g", "offset", position, "delayLevel", level, "originMsgId", "K0", "originTopic", "T", "unitMode", "", "maxReconsumeTimes", most, "bname", "broker-a"), "")
		}
		read := func(topic string) []message.View {
			t.Helper()
			pull := goPull("reader", topic, 0, 0, 32, 4)
			got := c.call(11, pull, "")
			if got.Code != 0 {
				return nil
			}
			return splitAll(t, got.Body)
		}
		assert.Zero(t, back(position, 0, 16).Code)
		assert.Equal(t, 1, w.nameServer(t).route("%RETRY%g").QueueDatas[0].ReadQueueNums)
		assert.Empty(t, read("%RETRY%g"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		again := read("%RETRY%g")
		require.Len(t, again, 1)
		props := message.DecodeProperties(string(again[0].Properties()))
		assert.Equal(t, []string{"T", get(sent, "msgId"), "K0", "a", "3"}, []string{props["RETRY_TOPIC"], props["ORIGIN_MESSAGE_ID"], props["UNIQ_KEY"], props["TAGS"], props["DELAY"]})
		assert.EqualValues(t, 1, again[0].ReconsumeTimes())

		assert.Zero(t, back(again[0].Position(), 0, 1).Code, "the client's maximum is reached")
		dead := read("%DLQ%g")
		require.Len(t, dead, 1, "at once")
		assert.EqualValues(t, 2, dead[0].ReconsumeTimes())
		assert.Zero(t, back(position, -1, 16).Code)
		assert.Len(t, read("%DLQ%g"), 2, "a level below 0 is no wish to see it again")
		// It is the offset that counts: brokers of RocketMQ look at no id.
		for _, id := range []string{"", "x", "k0", get(sent, "msgId"), strings.ToLower(get(sent, "msgId"))} {
			c.ok(36, ext("group", "g", "offset", position, "delayLevel", 1, "originMsgId", id, "originTopic", "T"), "")
		}
		got := back(1<<40, 0, 16)
		assert.EqualValues(t, protocol.SystemError, got.Code)
		assert.Contains(t, got.Remark, fmt.Sprintf("look message by offset failed, %d", int64(1)<<40))

		// What stands in when the broker takes nothing back: a send to the retry topic.
		send := func(reconsumed, most int) {
			fields := goSend("%RETRY%g", 0, "DELAY\x013\x02RETRY_TOPIC\x01T\x02")
			fields[7].Value, fields[9].Value = fmt.Sprint(reconsumed), fmt.Sprint(most)
			c.ok(10, fields, "stands in")
		}
		send(16, 16)
		assert.Len(t, read("%DLQ%g"), 2, "the maximum itself is allowed here")
		send(17, 16)
		assert.Len(t, read("%DLQ%g"), 3)
		send(1, 0)
		assert.Len(t, read("%DLQ%g"), 4, "0 is none, and not the group's")

		query := func(key string, more ...any) *remoting.Frame {
			return c.java().call(12, append(ext("topic", "T", "key", key, "maxNum", 9, "beginTimestamp", 0, "endTimestamp", int64(1)<<62), ext(more...)...), "")
		}
		for _, found := range []*remoting.Frame{query("two"), query("K0", "_UNIQUE_KEY_QUERY", true)} {
			require.Zero(t, found.Code)
			records := splitAll(t, found.Body)
			require.NotEmpty(t, records)
			assert.Equal(t, position, records[0].Position())
			assert.Positive(t, number(t, found, "indexLastUpdatePhyoffset"))
			assert.Positive(t, number(t, found, "indexLastUpdateTimestamp"))
		}
		got = query("three")
		assert.EqualValues(t, protocol.QueryNotFound, got.Code)
		assert.Equal(t, "can not find message, maybe time range not correct", got.Remark)
	})
}
