package pocketmq_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// sendOne stores a message in queue 0 of topic T and returns it as it lies there.
func sendOne(t testing.TB, c *pocketmq.Cluster, m *pocketmq.Message) *pocketmq.MessageExt {
	t.Helper()
	m.Topic = "T"
	_, err := producer(t, c, pocketmq.ProducerConfig{}).SendTo(t.Context(), queue("T", "broker-a", 0), m)
	require.NoError(t, err)
	all := rawQueue(t, c, queue("T", "broker-a", 0))
	return all[len(all)-1]
}

// back asks for one more delivery of m.
func back(t testing.TB, conn protocol.BrokerConn, m *pocketmq.MessageExt, change func(*protocol.ConsumerSendMsgBackRequest)) error {
	t.Helper()
	q := &protocol.ConsumerSendMsgBackRequest{Group: "g", Position: m.CommitLogOffset, MsgID: m.MsgID, Topic: m.Topic}
	if change != nil {
		change(q)
	}
	_, err := conn.ConsumerSendMsgBack(t.Context(), q)
	return err
}

var (
	retryQueue = queue("%RETRY%g", "broker-a", 0)
	deadQueue  = queue("%DLQ%g", "broker-a", 0)
)

func TestASentBackMessageGoesUpTheLevelsAndThenToTheDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		born := time.Now()
		first := sendOne(t, c, &pocketmq.Message{Body: []byte("x"), Tag: "a", Keys: []string{"k1", "k2"}, Flag: 7, NoWait: true, Properties: map[string]string{"mine": "yes"}})
		levels := pocketmq.DefaultTimings().DelayLevels
		m := first
		for n := 1; n <= 16; n++ {
			require.NoError(t, back(t, dial(t, c, "broker-a"), m, nil))
			wait := levels[min(2+n, len(levels))-1]
			sleepUntil(time.Now().Add(wait - time.Millisecond))
			require.Len(t, rawQueue(t, c, retryQueue), n-1)
			sleepUntil(time.Now().Add(time.Millisecond))
			all := rawQueue(t, c, retryQueue)
			require.Len(t, all, n)
			m = all[n-1]
			assert.Equal(t, n, m.ReconsumeTimes)
			assert.Equal(t, time.Now(), m.StoreTime)
			assert.Equal(t, []any{"T", retryQueue, "x", "a", []string{"k1", "k2"}, int32(7), map[string]string{"mine": "yes"}, first.MsgID, born, first.BornHost, false},
				[]any{m.Topic, m.Queue, string(m.Body), m.Tag, m.Keys, m.Flag, m.Properties, m.MsgID, m.BornTime, m.BornHost, m.NoWait})
			assert.Equal(t, first.OffsetMsgID, m.Property(message.PropOriginMessageID))
			assert.Equal(t, "T", m.Property(message.PropRetryTopic))
			assert.Empty(t, m.Property(message.PropWait), "what the producer did not wait for, the consumer does")
		}
		require.NoError(t, back(t, dial(t, c, "broker-a"), m, nil))
		dead := rawQueue(t, c, deadQueue)
		require.Len(t, dead, 1)
		assert.Equal(t, 17, dead[0].ReconsumeTimes)
		assert.Equal(t, time.Now(), dead[0].StoreTime)
		assert.Equal(t, "%DLQ%g", dead[0].Topic)
		assert.Equal(t, first.MsgID, dead[0].MsgID)
		assert.Len(t, rawQueue(t, c, retryQueue), 16)
		route, err := c.Admin().Route(t.Context(), "%DLQ%g")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.QueueData{{BrokerName: "broker-a", ReadQueues: 1, WriteQueues: 1, Perm: pocketmq.PermRead | pocketmq.PermWrite}}, route.Queues)
	})
}

func TestDR03_DeadLettersShowAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		first := sendOne(t, c, &pocketmq.Message{Body: []byte("x"), Keys: []string{"key"}})
		once := int32(1)
		long := func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel, q.MaxReconsumeTimes = 18, &once }
		require.NoError(t, back(t, dial(t, c, "broker-a"), first, long))
		sleepUntil(time.Now().Add(2 * time.Hour))
		retried := rawQueue(t, c, retryQueue)
		require.Len(t, retried, 1)
		require.NoError(t, back(t, dial(t, c, "broker-a"), retried[0], long))
		dead := rawQueue(t, c, deadQueue)
		require.Len(t, dead, 1)
		assert.Equal(t, []any{"x", []string{"key"}, first.MsgID, first.OffsetMsgID, "T", "", ""},
			[]any{string(dead[0].Body), dead[0].Keys, dead[0].MsgID, dead[0].Property(message.PropOriginMessageID), dead[0].Property(message.PropRetryTopic),
				dead[0].Property(message.PropDelay), dead[0].Property(message.PropRealTopic)})
		sleepUntil(time.Now().Add(3 * time.Hour))
		assert.Len(t, rawQueue(t, c, deadQueue), 1)
		assert.Len(t, rawQueue(t, c, queue("SCHEDULE_TOPIC_XXXX", "broker-a", 17)), 1, "only the retry has waited")
	})
}

func TestWhereASentBackMessageGoes(t *testing.T) {
	two, none := int32(2), int32(0)
	for _, row := range []struct {
		name   string
		change func(*protocol.ConsumerSendMsgBackRequest)
		config func(*protocol.GroupConfig)
		dead   bool
		wait   time.Duration // -1: it goes nowhere
	}{
		{name: "the first failure waits for level 3", wait: 10 * time.Second},
		{name: "a level", change: func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel = 1 }, wait: time.Second},
		{name: "a level above the highest", change: func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel = 99 }, wait: 2 * time.Hour},
		{name: "below 0", change: func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel = -1 }, dead: true},
		{name: "the group allows no retry", config: func(c *protocol.GroupConfig) { c.RetryMaxTimes = 0 }, dead: true},
		{name: "the consumer allows no retry", change: func(q *protocol.ConsumerSendMsgBackRequest) { q.MaxReconsumeTimes = &none }, dead: true},
		{name: "the consumer's maximum wins", config: func(c *protocol.GroupConfig) { c.RetryMaxTimes = 0 }, change: func(q *protocol.ConsumerSendMsgBackRequest) { q.MaxReconsumeTimes = &two }, wait: 10 * time.Second},
		{name: "a group without retry queues drops it", config: func(c *protocol.GroupConfig) { c.RetryQueues = 0 }, wait: -1},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir := t.TempDir()
				if row.config != nil {
					configureGroup(t, dir, "g", row.config)
				}
				c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
				conn := dial(t, c, "broker-a")
				m := sendOne(t, c, &pocketmq.Message{Body: []byte("x")})
				require.NoError(t, back(t, conn, m, row.change))
				written := c.Broker("broker-a", 0).Status().WrittenPosition
				switch {
				case row.wait < 0:
					assert.Equal(t, int64(1), written)
				case row.dead:
					assert.Equal(t, int64(2), written)
					assert.Len(t, rawQueue(t, c, deadQueue), 1)
				default:
					sleepUntil(time.Now().Add(row.wait - time.Millisecond))
					assert.Empty(t, rawQueue(t, c, retryQueue))
					sleepUntil(time.Now().Add(time.Millisecond))
					assert.Len(t, rawQueue(t, c, retryQueue), 1)
				}
			})
		})
	}
}

func TestOnlyTheMessageThatIsMeantIsSentBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1, "U": 1}})
		conn := dial(t, c, "broker-a")
		_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "U", BornTime: time.Now(), Body: []byte("y")})
		require.NoError(t, err)
		other := sendOne(t, c, &pocketmq.Message{Body: []byte("z")})
		m := sendOne(t, c, &pocketmq.Message{Body: []byte("x")})
		elsewhere := netip.MustParseAddrPort("127.9.9.9:10911")
		for name, row := range map[string]struct {
			change func(*protocol.ConsumerSendMsgBackRequest)
			code   protocol.Code
		}{
			"as it is":                 {nil, 0},
			"without id and topic":     {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID, q.Topic = "", "" }, 0},
			"a topic with an instance": {func(q *protocol.ConsumerSendMsgBackRequest) { q.Topic = "MQ_INST_1%T" }, 0},
			"another position":         {func(q *protocol.ConsumerSendMsgBackRequest) { q.Position-- }, protocol.SystemError},
			"another topic":            {func(q *protocol.ConsumerSendMsgBackRequest) { q.Topic = "U" }, protocol.SystemError},
			"an id of no kind":         {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID = "x" }, 0},
			"in lower case":            {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID = strings.ToLower(m.MsgID) }, 0},
			"the other id":             {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID = m.OffsetMsgID }, 0},
			"that in lower case":       {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID = strings.ToLower(m.OffsetMsgID) }, 0},
			"one of another position": {func(q *protocol.ConsumerSendMsgBackRequest) {
				q.MsgID = message.OffsetMsgID(m.StoreHost, m.CommitLogOffset+1)
			}, 0},
			"one of another broker": {func(q *protocol.ConsumerSendMsgBackRequest) {
				q.MsgID = message.OffsetMsgID(elsewhere, m.CommitLogOffset)
			}, protocol.SystemError},
			"another unique key":           {func(q *protocol.ConsumerSendMsgBackRequest) { q.MsgID = other.MsgID }, protocol.SystemError},
			"a position that is not there": {func(q *protocol.ConsumerSendMsgBackRequest) { q.Position = 1 << 40 }, protocol.SystemError},
			"position 0":                   {func(q *protocol.ConsumerSendMsgBackRequest) { q.Position = 0 }, protocol.SystemError},
			"no group":                     {func(q *protocol.ConsumerSendMsgBackRequest) { q.Group = "" }, protocol.SubscriptionGroupNotExist},
			"a name that no group has":     {func(q *protocol.ConsumerSendMsgBackRequest) { q.Group = strings.Repeat("g", 121) }, protocol.SubscriptionGroupNotExist},
		} {
			before := c.Broker("broker-a", 0).Status().WrittenPosition
			err := back(t, conn, m, row.change)
			after := c.Broker("broker-a", 0).Status().WrittenPosition
			if row.code == 0 {
				assert.NoError(t, err, name)
				assert.Equal(t, before+1, after, name)
				continue
			}
			assert.ErrorIs(t, err, &pocketmq.Error{Code: row.code}, name)
			assert.Equal(t, before, after, name)
		}

		// A retried one is still of its first topic.
		sleepUntil(time.Now().Add(10 * time.Second))
		again := rawQueue(t, c, retryQueue)[0]
		assert.NoError(t, back(t, conn, again, nil), "by RETRY_TOPIC")
		assert.NoError(t, back(t, conn, again, func(q *protocol.ConsumerSendMsgBackRequest) { q.Topic = "%RETRY%g" }))
	})
}

func TestCP01_ABrokerThatCannotStoreASentBackMessageSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var disk full
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1},
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{FreeBytes: disk.free}}}})
		conn := dial(t, c, "broker-a")
		m := sendOne(t, c, &pocketmq.Message{Body: []byte("x")})
		disk.yes.Store(true)
		sleepUntil(time.Now().Add(time.Minute))
		err := back(t, conn, m, nil)
		require.ErrorIs(t, err, &pocketmq.Error{Code: protocol.SystemError})
		assert.ErrorContains(t, err, "SERVICE_NOT_AVAILABLE")
		disk.yes.Store(false)
		sleepUntil(time.Now().Add(time.Minute))
		require.NoError(t, back(t, conn, m, nil))
		sleepUntil(time.Now().Add(10 * time.Second))
		assert.Len(t, rawQueue(t, c, retryQueue), 1)
	})
}

func TestASentBackMessageIsAnsweredWhenItIsAsSafeAsAProducers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush()})
		m := sendOne(t, c, &pocketmq.Message{Body: []byte("x"), NoWait: true})
		require.NoError(t, back(t, dial(t, c, "broker-a"), m, nil))
		st := c.Broker("broker-a", 0).Status()
		assert.Equal(t, st.WrittenPosition, st.SyncedPosition)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		sleepUntil(time.Now().Add(10 * time.Second))
		assert.Len(t, rawQueue(t, c, retryQueue), 1)
	})
}

func TestAnOrdinarySendToARetryTopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		configureGroup(t, dir, "g", func(c *protocol.GroupConfig) { c.RetryMaxTimes = 3 })
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
		const groups = -1 // the maximum is the group's
		send := func(group, body string, reconsume, limit int32, level int) error {
			most := &limit
			if limit == groups {
				most = nil
			}
			props := message.EncodeProperties(map[string]string{message.PropDelay: fmt.Sprint(level), message.PropRetryTopic: "T", message.PropUniqKey: "id-" + body})
			_, err := dial(t, c, "broker-a").SendMessage(t.Context(), &protocol.SendMessageRequest{
				ProducerGroup: "CLIENT_INNER_PRODUCER", Topic: "%RETRY%" + group, DefaultTopic: "TBW102", DefaultTopicQueues: 4, QueueID: -1, BornTime: time.Now(),
				Properties: props, ReconsumeTimes: reconsume, MaxReconsumeTimes: most, Body: []byte(body),
			})
			return err
		}
		require.NoError(t, send("g", "again", 3, groups, 6)) // the maximum itself is allowed here
		require.NoError(t, send("g", "too often", 4, groups, 6))
		require.NoError(t, send("g", "the client's maximum", 5, 5, 6))
		require.NoError(t, send("g", "above the client's maximum", 6, 5, 6))
		require.NoError(t, send("g", "given up", 1, 0, 6))
		assert.Equal(t, []string{"too often", "above the client's maximum", "given up"}, bodiesOf(queueContent(t, c, deadQueue)), "at once")
		assert.Empty(t, queueContent(t, c, retryQueue))
		sleepUntil(time.Now().Add(2 * time.Minute))
		got := rawQueue(t, c, retryQueue)
		require.Len(t, got, 2)
		assert.Equal(t, []any{"T", 3, "id-again"}, []any{got[0].Topic, got[0].ReconsumeTimes, got[0].MsgID})
		assert.Empty(t, rawQueue(t, c, deadQueue)[0].Property(message.PropDelay))
		route, err := c.Admin().Route(t.Context(), "%RETRY%g")
		require.NoError(t, err)
		assert.Equal(t, 1, route.Queues[0].WriteQueues, "as the group has it, not as the client wants it")

		// Members of an orderly group try again on their own.
		locked, err := dial(t, c, "broker-a").LockQueues(t.Context(), &protocol.LockQueuesRequest{Group: "g", ClientID: "c", Queues: []message.Queue{queue("T", "broker-a", 0)}})
		require.NoError(t, err)
		require.Len(t, locked.Locked, 1)
		require.NoError(t, send("g", "orderly", 1, groups, 6))
		assert.Contains(t, bodiesOf(queueContent(t, c, deadQueue)), "orderly")
		sleepUntil(time.Now().Add(61 * time.Second))
		require.NoError(t, send("g", "no longer", 1, groups, 0))
		assert.Contains(t, bodiesOf(queueContent(t, c, retryQueue)), "no longer")

		assert.ErrorIs(t, send(strings.Repeat("g", 121), "x", 0, groups, 0), &pocketmq.Error{Code: protocol.SubscriptionGroupNotExist})
		_, err = dial(t, c, "broker-a").SendMessage(t.Context(), &protocol.SendMessageRequest{
			ProducerGroup: "p", Topic: "%RETRY%g", BornTime: time.Now(), Body: message.AppendBatch(nil, 0, []byte("x"), ""), Batch: true,
		})
		assert.ErrorIs(t, err, &pocketmq.Error{Code: protocol.MessageIllegal})
	})
}

func TestASendToARetryTopicOfAGroupWithoutRetryQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		configureGroup(t, dir, "g", func(c *protocol.GroupConfig) { c.RetryQueues = 0 })
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		five, zero := int32(5), int32(0)
		for _, limit := range []*int32{nil, &five, &zero} {
			resp, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "%RETRY%g", QueueID: -1, BornTime: time.Now(), ReconsumeTimes: 1, MaxReconsumeTimes: limit, Body: []byte("failed")})
			require.NoError(t, err)
			assert.Equal(t, &protocol.SendMessageResponse{QueueOffset: -1}, resp)
		}
		assert.Zero(t, c.Broker("broker-a", 0).Status().WrittenPosition, "dropped, as a send-back is")
		_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "%RETRY%g", QueueID: -1, BornTime: time.Now(), Body: []byte("new")})
		require.NoError(t, err)
		assert.Equal(t, []string{"new"}, bodiesOf(queueContent(t, c, retryQueue)), "it has not failed yet")
	})
}

func TestTheLargestPropertiesTextCanBeRetriedAndGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		m := &pocketmq.Message{Body: []byte("x"), Topic: "T", Properties: map[string]string{"k": strings.Repeat("v", 32000)}}
		for m.Validate() == nil {
			m.Properties["k"] += "v"
		}
		m.Properties["k"] = m.Properties["k"][1:]
		got := sendOne(t, c, m)
		for range 3 {
			require.NoError(t, back(t, conn, got, func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel = 1 }))
			sleepUntil(time.Now().Add(time.Second))
			all := rawQueue(t, c, retryQueue)
			got = all[len(all)-1]
			require.Equal(t, m.Properties, got.Properties)
			require.Equal(t, "T", got.Topic)
		}
		require.NoError(t, back(t, conn, got, func(q *protocol.ConsumerSendMsgBackRequest) { q.DelayLevel = -1 }))
		dead := rawQueue(t, c, deadQueue)
		require.Len(t, dead, 1)
		assert.Equal(t, m.Properties, dead[0].Properties)
	})
}

// A text without its last end mark is not extended by what the broker adds.
func TestFI02_ABatchKeepsItsPropertiesApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("wanted")}, Handler: in.handler("1")})
		send := func(batch bool, body []byte, props string) {
			_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "T", BornTime: time.Now(), Body: body, Properties: props, Batch: batch})
			require.NoError(t, err)
		}
		whole := "mine\x01yes\x02KEYS\x01k1 k2\x02TAGS\x01wanted\x02"
		for _, props := range []string{whole, strings.TrimSuffix(whole, "\x02")} {
			var body []byte
			for i := range 3 {
				body = message.AppendBatch(body, 0, fmt.Append(nil, i), props)
			}
			send(true, body, "")
			send(false, []byte("single"), props)
			send(false, []byte("delayed"), "DELAY\x011\x02"+props)
		}
		sleepUntil(time.Now().Add(time.Second))
		arrivals := in.arrivals()
		require.Len(t, arrivals, 2*5)
		for _, a := range arrivals {
			assert.Equal(t, []any{"wanted", []string{"k1", "k2"}, map[string]string{"mine": "yes"}}, []any{a.msg.Tag, a.msg.Keys, a.msg.Properties}, "%s", a.msg.Body)
			assert.Equal(t, "wanted", a.msg.Property(message.PropTags))
		}
	})
}

// Held pulls of the retry topic are woken, and what is sent back at the same time
// comes at the same time.
func TestManyMessagesSentBackComeTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		heartbeat(t, conn, "g", protocol.Clustering)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 1000, 0)
		for _, m := range rawQueue(t, c, queue("T", "broker-a", 0)) {
			require.NoError(t, back(t, conn, m, nil))
		}
		answered := make(chan time.Time, 1)
		go func() {
			resp, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{
				Group: "g", Topic: "%RETRY%g", MaxMessages: 32, Suspend: 15 * time.Second, HasExpression: true, Expression: "*",
			})
			assert.NoError(t, err)
			assert.NotEmpty(t, resp.Records)
			answered <- time.Now()
		}()
		due := time.Now().Add(10 * time.Second)
		assert.Equal(t, due, <-answered)
		synctest.Wait()
		got := bodiesOf(queueContent(t, c, retryQueue))
		slices.Sort(got)
		want := numbered(0, 1000)
		slices.Sort(want)
		assert.Equal(t, want, got)
	})
}
