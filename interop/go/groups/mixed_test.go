package groups_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/rebalance"
)

// ourMember starts a consumer of ours in the group G of the topic T.
func ourMember(t *testing.T, c *pocketmq.Cluster, cfg pocketmq.ConsumerConfig) *pocketmq.Consumer {
	t.Helper()
	cfg.Group, cfg.From = "G", pocketmq.FromFirstOffset
	cfg.Subscriptions = map[string]pocketmq.Filter{"T": {}}
	co, err := c.StartConsumer(t.Context(), cfg)
	require.NoError(t, err)
	return co
}

// TestAMixedGroupSharesTheQueues without gap or overlap, whoever comes and goes.
func TestAMixedGroupSharesTheQueues(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name   string
		ours   rebalance.Strategy
		theirs consumer.AllocateStrategy
	}{
		{"averagely", rebalance.Averagely, consumer.AllocateByAveragely},
		{"circle", rebalance.AveragelyByCircle, consumer.AllocateByAveragelyCircle},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, map[string]int{"T": 4}, "broker-a", "broker-b")
			in, ids := newInbox(), make(map[string]string)
			official := func(who string) rocketmq.PushConsumer {
				co := push(t, c, "G", "T", everything, in.official(who, nil), consumer.WithStrategy(s.theirs))
				ids[who] = joined(t, c, "G", ids)
				return co
			}
			ours := func(who string) *pocketmq.Consumer {
				co := ourMember(t, c, pocketmq.ConsumerConfig{Strategy: s.ours, Handler: in.ours(who, nil)})
				ids[who] = co.ClientID()
				return co
			}
			p := rmqtest.Producer(t, c)
			stream := sending(t, c, "T")
			theirs := official("theirs")
			waitShared(t, c, "G", "T", 1, s.ours)
			in.more(t, 200)
			mine := ours("ours")
			waitShared(t, c, "G", "T", 2, s.ours)
			in.more(t, 200)
			third := official("theirs too")
			owners := waitShared(t, c, "G", "T", 3, s.ours)
			in.more(t, 200)
			sent := stream.end(t)
			in.waitBodies(t, sent)
			onlyOwners(t, in, p, "T", owners, ids)
			seenByAdmin(t, c, owners)

			stream = sendingFrom(t, c, "T", len(sent))
			in.more(t, 200)
			require.NoError(t, mine.Close())
			waitShared(t, c, "G", "T", 2, s.ours)
			ours("ours again")
			waitShared(t, c, "G", "T", 3, s.ours)
			in.more(t, 200)
			require.NoError(t, theirs.Shutdown())
			waitShared(t, c, "G", "T", 2, s.ours)
			in.more(t, 200)
			require.NoError(t, third.Shutdown())
			waitShared(t, c, "G", "T", 1, s.ours)
			more := stream.end(t)
			in.waitBodies(t, more)
			summary(t, "mixed group/"+s.name, "%d consumed while members of both kinds joined and left, lost 0, each queue owned once after quiet; %d delivered again",
				len(sent)+len(more), in.repeats())
		})
	}
}

// seenByAdmin asserts that the members say themselves what they have, to an
// Admin of ours. An official one cannot from 10 to 20 s after its start, when it
// has one sample of its statistics and divides by zero.
func seenByAdmin(t *testing.T, c *pocketmq.Cluster, owners map[string]string) {
	t.Helper()
	var st pocketmq.GroupStatus
	require.Eventually(t, func() bool {
		var err error
		st, err = c.Admin().Group(t.Context(), "G")
		return err == nil
	}, patience, 100*time.Millisecond)
	assert.Empty(t, st.Differ)
	said := make(map[string]string)
	for _, m := range st.Members {
		for _, q := range m.Assigned {
			said[nameOf(q)] = m.ClientID
		}
	}
	assert.Equal(t, owners, said)
}

// orderlyMix is a group of orderly consumers of both kinds.
type orderlyMix struct {
	c   *pocketmq.Cluster
	in  *inbox
	o   *order
	ids map[string]string
	p   rocketmq.Producer
}

func newOrderlyMix(t *testing.T) *orderlyMix {
	t.Helper()
	c := clusterWith(t, quickLocks(), map[string]int{"T": 4})
	p := rmqtest.Producer(t, c, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	return &orderlyMix{c: c, in: newInbox(), o: newOrder(), ids: make(map[string]string), p: p}
}

func (m *orderlyMix) theirs(t *testing.T) rocketmq.PushConsumer {
	t.Helper()
	co := officialOrderly(t, m.c, m.o.official(m.in, "theirs"))
	m.ids["theirs"] = joined(t, m.c, "G", m.ids)
	return co
}

func (m *orderlyMix) ours(t *testing.T) *pocketmq.Consumer {
	t.Helper()
	co := ourMember(t, m.c, pocketmq.ConsumerConfig{Orderly: true, Handler: m.o.ours(m.in, "ours")})
	m.ids["ours"] = co.ClientID()
	return co
}

// locked waits until they hold the locks of that many queues.
func (m *orderlyMix) locked(t *testing.T, theirs, ours int) {
	t.Helper()
	want := make(map[string]int)
	if theirs > 0 {
		want[m.ids["theirs"]] = theirs
	}
	if ours > 0 {
		want[m.ids["ours"]] = ours
	}
	locked(t, m.c, want)
}

// orders sends the next messages of each key and waits until all are consumed.
func (m *orderlyMix) orders(t *testing.T, from, to int) {
	t.Helper()
	m.in.waitBodies(t, orders(t, m.p, "T", from, to))
}

// TestOursTakesOverFromAnOfficialOrderlyConsumer, which gives no lock back when it
// loses a queue, so that ours waits until they expire, and gives them back when it
// goes.
func TestOursTakesOverFromAnOfficialOrderlyConsumer(t *testing.T) {
	t.Parallel()
	m := newOrderlyMix(t)
	theirs := m.theirs(t)
	m.orders(t, 1, 11)
	m.locked(t, 4, 0)
	m.ours(t)
	m.orders(t, 11, 21)
	m.locked(t, 2, 2)
	require.NoError(t, theirs.Shutdown())
	m.orders(t, 21, 26)
	m.locked(t, 0, 4)
	m.o.check(t, 25*keys)
	summary(t, "mixed group/orderly, official first", "%d consumed in order per key, lost 0; %d delivered again", m.o.seen, m.o.again)
}

// TestAnOfficialOrderlyConsumerTakesOverFromOurs. Ours gives the queues back that
// it loses, but an official one that finds them locked when it joins asks again at
// its next rebalance, 20 s later.
func TestAnOfficialOrderlyConsumerTakesOverFromOurs(t *testing.T) {
	t.Parallel()
	m := newOrderlyMix(t)
	ours := m.ours(t)
	m.orders(t, 1, 11)
	m.locked(t, 0, 4)
	m.theirs(t)
	m.orders(t, 11, 21)
	m.locked(t, 2, 2)
	require.NoError(t, ours.Close())
	m.orders(t, 21, 26)
	m.locked(t, 4, 0)
	m.o.check(t, 25*keys)
	summary(t, "mixed group/orderly, ours first", "%d consumed in order per key, lost 0; %d delivered again", m.o.seen, m.o.again)
}

// TestWhatOneKindFailsTheGroupGetsAgain: from %RETRY%, whoever has its queue.
func TestWhatOneKindFailsTheGroupGetsAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4}, "broker-a", "broker-b")
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("theirs", func(_ context.Context, a arrival) consumer.ConsumeResult {
		if a.tries == 0 {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}), consumer.WithStrategy(consumer.AllocateByAveragelyCircle)) // both have queues of both brokers, and one retry queue
	ourMember(t, c, pocketmq.ConsumerConfig{Strategy: rebalance.AveragelyByCircle, Handler: in.ours("ours", func(a arrival) error {
		if a.tries == 0 {
			return errors.New("the first time all fail")
		}
		return nil
	})})
	waitShared(t, c, "G", "T", 2, rebalance.AveragelyByCircle)
	bodies := numbered("m", 80)
	sendAll(t, rmqtest.Producer(t, c), "T", bodies)
	in.wait(t, "every message twice", func(_ []arrival, counts map[string]int) bool {
		for _, body := range bodies {
			if counts[body] < 2 {
				return false
			}
		}
		return true
	})
	passed := map[string]int{}
	first := make(map[string]string)
	for _, a := range in.arrivals() {
		if a.tries == 0 {
			first[a.body] = a.who
			continue
		}
		assert.Equal(t, 1, a.tries)
		assert.True(t, strings.HasPrefix(a.queue, "%RETRY%G/"), a.queue)
		if a.ours != nil {
			assert.Equal(t, "T", a.ours.Topic)
		} else {
			assert.Equal(t, "T", a.official.Topic)
		}
		passed[first[a.body]+" to "+a.who]++
	}
	for _, way := range []string{"ours to ours", "ours to theirs", "theirs to ours", "theirs to theirs"} {
		assert.NotZero(t, passed[way], way)
	}
	assert.Len(t, in.arrivals(), 2*len(bodies))
	summary(t, "mixed group/retry", "%d failed once, %d by ours and got again by an official consumer, %d the other way, lost 0",
		len(bodies), passed["ours to theirs"], passed["theirs to ours"])
}

// TestOfficialConsumersReadWhatOursSend, whatever way it was sent.
func TestOfficialConsumersReadWhatOursSend(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("a", nil))
	p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{CompressOver: 4096})
	require.NoError(t, err)
	ctx := t.Context()
	want := make(map[string]*pocketmq.Message) // by message id
	send := func(m *pocketmq.Message) {
		m.Topic = "T"
		r, err := p.Send(ctx, m)
		require.NoError(t, err)
		want[r.MsgID] = m
	}
	send(&pocketmq.Message{Body: []byte("plain")})
	send(&pocketmq.Message{Body: bytes.Repeat([]byte("compressed "), 10_000)})
	send(&pocketmq.Message{Body: []byte{0, 1, 2, 255}, Flag: 7})
	send(&pocketmq.Message{Body: []byte("tagged"), Tag: "标签", Keys: []string{"k1", "ключ"}})
	send(&pocketmq.Message{Body: []byte("über"), Properties: map[string]string{"colour": "grün", "価格": "１０円", "emoji": "🚀", "a": "b=c"}})
	send(&pocketmq.Message{Body: []byte("late"), DelayLevel: 3, Keys: []string{"delayed"}})
	send(&pocketmq.Message{Body: []byte("sharded"), ShardingKey: "order-17"})
	batch := make([]*pocketmq.Message, 10)
	for i := range batch {
		batch[i] = &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, "batch ", i), Tag: "batched", Keys: []string{fmt.Sprint("b", i)}}
	}
	r, err := p.SendBatch(ctx, batch)
	require.NoError(t, err)
	for i, id := range r.MsgIDs {
		want[id] = batch[i]
	}
	done := make(chan error, 1)
	async := &pocketmq.Message{Topic: "T", Body: []byte("async")}
	require.NoError(t, p.SendAsync(ctx, async, func(r *pocketmq.SendResult, err error) {
		if err == nil {
			want[r.MsgID] = async
		}
		done <- err
	}))
	require.NoError(t, <-done)
	require.NoError(t, p.SendOneway(ctx, &pocketmq.Message{Topic: "T", Body: []byte("oneway")}))

	in.wait(t, "every message", func(_ []arrival, counts map[string]int) bool { return len(counts) == len(want)+1 })
	assert.Zero(t, in.repeats())
	for _, a := range in.arrivals() {
		m, o := want[a.official.MsgId], a.official
		if a.body == "oneway" {
			continue
		}
		if !assert.NotNil(t, m, "message id %s of %q", o.MsgId, a.body) {
			continue
		}
		assert.Equal(t, string(m.Body), a.body)
		assert.Equal(t, "T", o.Topic)
		assert.Equal(t, m.Tag, o.GetTags())
		assert.Equal(t, strings.Join(m.Keys, " "), o.GetKeys())
		assert.Equal(t, m.ShardingKey, o.GetProperty("__SHARDINGKEY"), "the official Go client has another name for it")
		assert.Equal(t, m.Flag, o.Flag)
		for name, value := range m.Properties {
			assert.Equal(t, value, o.GetProperty(name), name)
		}
		assert.Less(t, time.Since(time.UnixMilli(o.StoreTimestamp)), time.Minute)
		assert.NotEmpty(t, o.OffsetMsgId)
	}
	summary(t, "consumer of ours", "%d messages of 9 kinds sent by ours, lost 0", len(want)+1)
}
