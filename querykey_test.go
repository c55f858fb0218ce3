package pocketmq_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// keyed is a message with keys.
func keyed(topic, body string, keys ...string) *pocketmq.Message {
	return &pocketmq.Message{Topic: topic, Keys: keys, Body: []byte(body)}
}

// found are the bodies of messages in their order.
func found(ms []*pocketmq.MessageExt) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = string(m.Body)
	}
	return out
}

// byKey asks for all messages with a key, whenever they were stored.
func byKey(t testing.TB, c *pocketmq.Cluster, topic, key string, max int) []*pocketmq.MessageExt {
	t.Helper()
	ms, err := c.Admin().MessagesByKey(context.Background(), topic, key, time.Time{}, time.Time{}, max)
	require.NoError(t, err)
	return ms
}

func TestMessagesByKeyComeFromAllMastersNewestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func(q pocketmq.MessageQueue, body string, keys ...string) *pocketmq.SendResult {
			res, err := p.SendTo(t.Context(), q, keyed(q.Topic, body, keys...))
			require.NoError(t, err)
			return res
		}
		queues := []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-b", 0), queue("T", "broker-a", 1), queue("T", "broker-b", 1)}
		var want []string // oldest first
		for i := range 20 {
			body := fmt.Sprint(i)
			send(queues[i%4], body, "order", "customer-"+fmt.Sprint(i%3))
			want = append(want, body)
			time.Sleep(time.Millisecond)
		}
		send(queue("U", "broker-a", 0), "of another topic", "order")
		send(queues[0], "of another key", "orders", "orde", "ORDER")
		slices.Reverse(want)

		ask := func(when string) {
			ms := byKey(t, c, "T", "order", 0)
			assert.Equal(t, want, found(ms), when)
			for _, m := range ms {
				assert.Equal(t, "T", m.Topic)
				assert.Contains(t, m.Keys, "order")
				assert.Contains(t, queues, m.Queue, when)
			}
			assert.Equal(t, []string{"19", "16", "13", "10", "7", "4", "1"}, found(byKey(t, c, "T", "customer-1", 0)), when)
			assert.Equal(t, want[:3], found(byKey(t, c, "T", "order", 3)), "%s: at most", when)
			assert.Equal(t, want, found(byKey(t, c, "T", "order", -1)), "%s: all", when)
			assert.Equal(t, []string{"of another topic"}, found(byKey(t, c, "U", "order", 0)), when)
			assert.Equal(t, []string{"of another key"}, found(byKey(t, c, "T", "ORDER", 0)), "%s: upper case", when)
			assert.Empty(t, byKey(t, c, "T", "nobody's", 0), when)
			assert.Empty(t, byKey(t, c, "T", ms[0].MsgID, 0), "%s: a unique key is none of the Keys", when)
		}
		ask("at once")
		for _, b := range []string{"broker-a", "broker-b"} {
			require.NoError(t, c.Kill(b, 0))
			require.NoError(t, c.Restart(t.Context(), b, 0))
		}
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
		ask("after a crash")
		check(t, c)
		for _, b := range []string{"broker-a", "broker-b"} {
			require.NoError(t, c.Broker(b, 0).Close())
			require.NoError(t, c.Restart(t.Context(), b, 0))
		}
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
		ask("after a close")

		_, err := c.Admin().MessagesByKey(t.Context(), "nothing", "order", time.Time{}, time.Time{}, 0)
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
	})
}

func TestMessagesByKeyOfARangeIncludeBothMilliseconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var at []time.Time
		for i := range 10 {
			_, err := p.Send(t.Context(), keyed("T", fmt.Sprint(i), "k"))
			require.NoError(t, err)
			at = append(at, time.Now())
			time.Sleep(5 * time.Millisecond)
		}
		ask := func(from, to time.Time) string {
			ms, err := c.Admin().MessagesByKey(t.Context(), "T", "k", from, to, 0)
			require.NoError(t, err)
			return strings.Join(found(ms), " ")
		}
		ms := time.Millisecond
		assert.Equal(t, "6 5 4 3", ask(at[3], at[6]))
		assert.Equal(t, "6 5 4", ask(at[3].Add(ms), at[6].Add(ms)))
		assert.Equal(t, "5 4 3", ask(at[3].Add(-ms), at[6].Add(-ms)))
		assert.Equal(t, "6 5 4 3", ask(at[3].Add(ms-1), at[6].Add(1)), "what is finer does not count")
		assert.Equal(t, "3", ask(at[3], at[3]))
		assert.Equal(t, "", ask(at[3].Add(ms), at[3].Add(ms)))
		assert.Equal(t, "9 8", ask(at[8], time.Time{}), "no end")
		assert.Equal(t, "1 0", ask(time.Time{}, at[1]), "no start")
		assert.Equal(t, "9 8 7 6 5 4 3 2 1 0", ask(time.UnixMilli(0), time.UnixMilli(1<<63-1)), "RocketMQ's way to say everything")
	})
}

// A broker gives 64 messages at once, and some MiB: what max allows comes all
// the same, also when one millisecond or one answer holds more.
func TestMessagesByKeyAreNotEndedByTheLimitsOfOneAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{CompressOver: -1})
		var want []string // newest first; time stands still: brokers in their order, and each from its end
		for _, b := range []string{"broker-a", "broker-b"} {
			var bodies []string
			for i := range 150 {
				bodies = append(bodies, fmt.Sprintf("%s %d", b, i))
				_, err := p.SendTo(t.Context(), queue("T", b, 0), keyed("T", bodies[i], "many"))
				require.NoError(t, err)
			}
			slices.Reverse(bodies)
			want = append(want, bodies...)
		}
		queries := c.Inject(pocketmq.Fault{Code: protocol.CodeQueryMessage, Node: "broker-a/0"})
		assert.Equal(t, want, found(byKey(t, c, "T", "many", -1)))
		assert.Equal(t, 3, queries.Hits(), "64, 64 and 22")
		assert.Equal(t, want[:200], found(byKey(t, c, "T", "many", 200)))
		assert.Equal(t, want[:100], found(byKey(t, c, "T", "many", 100)))
		assert.Equal(t, want[:64], found(byKey(t, c, "T", "many", 0)), "64 unless told")
		assert.Equal(t, want[:1], found(byKey(t, c, "T", "many", 1)))

		large := make([]byte, 3<<20)
		_, _ = rand.Read(large)
		for i := range 7 {
			m := keyed("T", "", "large")
			m.Body = append([]byte{byte(i)}, large...)
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
			require.NoError(t, err)
		}
		resp, err := dial(t, c, "broker-a").QueryMessage(t.Context(), &protocol.QueryMessageRequest{Topic: "T", Key: "large", MaxMessages: 64})
		require.NoError(t, err)
		assert.Len(t, resp.Records, 3, "of one answer")
		assert.True(t, resp.More)
		ms := byKey(t, c, "T", "large", 0)
		require.Len(t, ms, 7)
		for i, m := range ms {
			assert.Equal(t, byte(6-i), m.Body[0])
		}
	})
}

// A broker that does not know Below, as RocketMQ's, answers by time only.
func TestMessagesByKeyOfABrokerWithoutBelowEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, NameServers: 1})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 200 {
			_, err := p.Send(t.Context(), keyed("T", fmt.Sprint(i), "k"))
			require.NoError(t, err)
			if i%10 == 9 {
				time.Sleep(time.Millisecond)
			}
		}
		old := forgetBelow{c.Transport()}
		a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: c.NameServerAddrs(), Transport: old})
		require.NoError(t, err)
		require.NoError(t, a.Start(t.Context()))
		t.Cleanup(func() { assert.NoError(t, a.Close()) })
		ms, err := a.MessagesByKey(t.Context(), "T", "k", time.Time{}, time.Time{}, -1)
		require.NoError(t, err)
		require.Len(t, ms, 200, "each once")
		for i, m := range ms {
			assert.Equal(t, fmt.Sprint(199-i), string(m.Body))
		}

		for i := range 100 { // more than one answer holds, in one millisecond
			_, err := p.Send(t.Context(), keyed("T", fmt.Sprint(i), "instant"))
			require.NoError(t, err)
		}
		ms, err = a.MessagesByKey(t.Context(), "T", "instant", time.Time{}, time.Time{}, -1)
		require.NoError(t, err)
		assert.Len(t, ms, 64, "it ends")
	})
}

// forgetBelow is a Transport to brokers that do not know QueryMessage's Below.
type forgetBelow struct{ pocketmq.Transport }

func (f forgetBelow) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	conn, err := f.Transport.DialBroker(ctx, d)
	if err != nil {
		return nil, err
	}
	return &forgetfulConn{conn}, nil
}

type forgetfulConn struct{ protocol.BrokerConn }

func (c *forgetfulConn) QueryMessage(ctx context.Context, q *protocol.QueryMessageRequest) (*protocol.QueryMessageResponse, error) {
	old := *q
	old.Below = 0
	return c.BrokerConn.QueryMessage(ctx, &old)
}

func TestKeysOfOneHashAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for _, key := range []string{"AaAa", "BBBB", "AaBB", "BBAa"} { // Java's hashCode of all is the same
			_, err := p.Send(t.Context(), keyed("T", key, key, "all"))
			require.NoError(t, err)
		}
		for _, key := range []string{"AaAa", "BBBB", "AaBB", "BBAa"} {
			assert.Equal(t, []string{key}, found(byKey(t, c, "T", key, 0)))
		}
		assert.Len(t, byKey(t, c, "T", "all", 0), 4)
	})
}

func TestMessageByUniqueKeyFindsEveryMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		want := make(map[string]*pocketmq.SendResult) // by message id
		queues := []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-b", 0)}
		results, _ := sendEach(t, p, 20, time.Millisecond, queues...)
		for _, res := range results {
			want[res.MsgID] = res
		}
		batch, err := p.SendBatch(t.Context(), []*pocketmq.Message{text("T", "0"), text("T", "1"), text("T", "2")})
		require.NoError(t, err)

		ask := func(when string) {
			for id, res := range want {
				m, err := c.Admin().MessageByUniqueKey(t.Context(), "T", id)
				require.NoError(t, err, when)
				assert.Equal(t, id, m.MsgID)
				assert.Equal(t, res.Queue, m.Queue, when)
				assert.Equal(t, res.QueueOffset, m.QueueOffset, when)
				assert.Equal(t, res.OffsetMsgID, m.OffsetMsgID, when)
			}
			for i, id := range batch.MsgIDs {
				m, err := c.Admin().MessageByUniqueKey(t.Context(), "T", id)
				require.NoError(t, err, "%s: member %d of a batch", when, i)
				assert.Equal(t, fmt.Sprint(i), string(m.Body))
				assert.Equal(t, batch.QueueOffset+int64(i), m.QueueOffset)
			}
		}
		ask("at once")
		for _, b := range []string{"broker-a", "broker-b"} {
			require.NoError(t, c.Kill(b, 0))
			require.NoError(t, c.Restart(t.Context(), b, 0))
		}
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
		ask("after a crash")

		id := results[0].MsgID
		for _, other := range []string{strings.ToLower(id), id[:31], id + "0", "key-0", "x y"} {
			_, err := c.Admin().MessageByUniqueKey(t.Context(), "T", other)
			assert.ErrorIs(t, err, pocketmq.ErrNotFound, other)
			assert.ErrorContains(t, err, "broker-a, broker-b")
			var answered *pocketmq.Error
			if other == "key-0" {
				continue // the brokers answer with a message that has it among its Keys
			}
			if assert.ErrorAs(t, err, &answered, other) {
				assert.Equal(t, protocol.QueryNotFound, answered.Code)
			}
		}
		_, err = c.Admin().MessageByUniqueKey(t.Context(), "U", id)
		assert.ErrorIs(t, err, pocketmq.ErrNotFound, "of another topic")
		_, err = c.Admin().MessageByUniqueKey(t.Context(), "nothing", id)
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
	})
}

// A send whose answer was lost is stored twice under one id.
func TestMessageByUniqueKeyOfSeveralCopiesIsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, AttemptTimeout: time.Second})
		lost := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Times: 1, DropReply: true})
		began := time.Now()
		res, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		require.Equal(t, 1, lost.Hits())
		m, err := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
		require.NoError(t, err)
		assert.NotEqual(t, res.Queue, m.Queue, "the other copy is the one that was acknowledged")
		assert.Equal(t, began.UnixMilli(), m.StoreTime.UnixMilli())

		// Other messages may have the id among their Keys, more of them than an
		// answer holds: none of them is the message.
		for range 70 {
			_, err := p.SendTo(t.Context(), m.Queue, keyed("T", "refers to it", res.MsgID))
			require.NoError(t, err)
		}
		again, err := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
		require.NoError(t, err)
		assert.Equal(t, m.OffsetMsgID, again.OffsetMsgID)
	})
}

func TestQueriesByKeyWithABrokerThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		onA, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), keyed("T", "a", "k"))
		require.NoError(t, err)
		onB, err := p.SendTo(t.Context(), queue("T", "broker-b", 0), keyed("T", "b", "k"))
		require.NoError(t, err)
		for name, fault := range map[string]struct {
			f  pocketmq.Fault
			is error
		}{
			"silent": {pocketmq.Fault{Drop: true}, pocketmq.ErrTimeout},
			"busy":   {pocketmq.Fault{Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}}, pocketmq.ErrBrokerBusy},
		} {
			fault.f.Code, fault.f.Node = protocol.CodeQueryMessage, "broker-b/0"
			h := c.Inject(fault.f)
			ms, err := c.Admin().MessagesByKey(t.Context(), "T", "k", time.Time{}, time.Time{}, 0)
			assert.Equal(t, []string{"a"}, found(ms), "%s: what the others have", name)
			assert.ErrorIs(t, err, fault.is, name)
			assert.ErrorContains(t, err, "broker-b", name)
			m, err := c.Admin().MessageByUniqueKey(t.Context(), "T", onA.MsgID)
			require.NoError(t, err, "%s: the other one has it", name)
			assert.Equal(t, "a", string(m.Body))
			_, err = c.Admin().MessageByUniqueKey(t.Context(), "T", onB.MsgID)
			assert.ErrorIs(t, err, fault.is, name)
			assert.NotErrorIs(t, err, pocketmq.ErrNotFound, "%s: it may be there", name)
			h.Remove()
		}
		assert.Equal(t, []string{"a", "b"}, found(byKey(t, c, "T", "k", 0)))
	})
}

func TestImpossibleQueriesAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		now := time.Now()
		for what, ask := range map[string]func() ([]*pocketmq.MessageExt, error){
			"an empty key": func() ([]*pocketmq.MessageExt, error) {
				return c.Admin().MessagesByKey(t.Context(), "T", "", now, now, 0)
			},
			"a key of two": func() ([]*pocketmq.MessageExt, error) {
				return c.Admin().MessagesByKey(t.Context(), "T", "a b", now, now, 0)
			},
			"a turned range": func() ([]*pocketmq.MessageExt, error) {
				return c.Admin().MessagesByKey(t.Context(), "T", "k", now, now.Add(-1), 0)
			},
			"a negative limit": func() ([]*pocketmq.MessageExt, error) {
				return c.Admin().MessagesByKey(t.Context(), "T", "k", now, now, -2)
			},
		} {
			_, err := ask()
			assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig, what)
		}
		_, err := c.Admin().MessageByUniqueKey(t.Context(), "T", "")
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
	})
}

// What tools of others see: the newest that match, the oldest of them first.
func TestTheBrokersAnswerToAQueryByKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		const n = 100
		for i := range n {
			_, err := p.Send(t.Context(), keyed("T", fmt.Sprint(i), "k"))
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		last, err := p.Send(t.Context(), text("T", "last"))
		require.NoError(t, err)
		_, end, err := message.ParseOffsetMsgID(last.OffsetMsgID)
		require.NoError(t, err)
		conn := dial(t, c, "broker-a")
		ask := func(most int, unique bool) []int64 {
			resp, err := conn.QueryMessage(t.Context(), &protocol.QueryMessageRequest{Topic: "T", Key: "k", MaxMessages: most, Unique: unique})
			require.NoError(t, err)
			var offsets []int64
			for _, rec := range resp.Records {
				offsets = append(offsets, message.View(rec).QueueOffset())
			}
			assert.Equal(t, len(resp.Records) < n, resp.More)
			assert.Equal(t, end, resp.IndexPosition)
			assert.Equal(t, time.Now().UnixMilli(), resp.IndexTime.UnixMilli())
			return offsets
		}
		upTo := func(count int) (out []int64) {
			for i := n - count; i < n; i++ {
				out = append(out, int64(i))
			}
			return out
		}
		assert.Equal(t, upTo(10), ask(10, false))
		assert.Equal(t, upTo(64), ask(64, false))
		assert.Equal(t, upTo(64), ask(1<<30, false), "64 at most")
		assert.Equal(t, upTo(32), ask(1, true), "32 of a unique key, whatever was asked for")
		for _, q := range []protocol.QueryMessageRequest{
			{Topic: "T", Key: "k", MaxMessages: 0}, {Topic: "T", Key: "k", MaxMessages: -1}, {Topic: "T", Key: "", MaxMessages: 1},
			{Topic: "T", Key: "other", MaxMessages: 1}, {Topic: "other", Key: "k", MaxMessages: 1},
			{Topic: "T", Key: "k", MaxMessages: 1, From: time.Now().Add(time.Second)}, {Topic: "T", Key: "k", MaxMessages: 1, Below: 1},
		} {
			_, err := conn.QueryMessage(t.Context(), &q)
			assert.ErrorIs(t, err, &pocketmq.Error{Code: protocol.QueryNotFound}, "%+v", q)
		}
	})
}

// What a power cut took is not found any more, by whatever was told of it; what
// is stored in its place is found by its own names.
func TestQueriesAfterAPowerCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		kept, _ := sendEach(t, p, 10, time.Millisecond, q)
		time.Sleep(2 * time.Second) // synced
		lost, _ := sendEach(t, p, 5, time.Millisecond, q)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))

		gone := func(when string) {
			for _, res := range lost {
				_, err := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
				assert.ErrorIs(t, err, pocketmq.ErrNotFound, when)
			}
		}
		gone("after the cut")
		for _, res := range lost {
			_, err := c.Admin().MessageByID(t.Context(), res.OffsetMsgID)
			assert.ErrorIs(t, err, pocketmq.ErrNotFound)
		}
		stats, err := c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err)
		last, err := c.Admin().MessageByID(t.Context(), kept[9].OffsetMsgID)
		require.NoError(t, err)
		assert.Equal(t, pocketmq.QueueStats{MaxOffset: 10, LastStoreTime: last.StoreTime}, stats[q])

		fresh, _ := sendEach(t, p, 5, time.Millisecond, q)
		gone("when their places are filled")
		for i, res := range append(kept, fresh...) {
			m, err := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
			require.NoError(t, err)
			assert.Equal(t, res.OffsetMsgID, m.OffsetMsgID)
			assert.Equal(t, int64(i), m.QueueOffset)
		}
		for i := range 5 {
			ms := byKey(t, c, "T", fmt.Sprintf("key-%d", i), 0)
			require.Len(t, ms, 2, "of the first and of the last")
			assert.Equal(t, fresh[i].MsgID, ms[0].MsgID)
			assert.Equal(t, kept[i].MsgID, ms[1].MsgID)
		}
	})
}
