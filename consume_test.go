package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestFI01_TagsWithEqualHashAreToldApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func(n int, tag string) {
			for range n {
				m := text("T", "%s", tag)
				m.Tag = tag
				_, err := p.Send(t.Context(), m)
				require.NoError(t, err)
			}
		}
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("Aa")}, Handler: in.handler("c")})
		send(100, "BB") // the same hash
		send(1, "Aa")
		send(10, "BB")
		time.Sleep(11 * time.Second)
		assert.Equal(t, []string{"Aa"}, in.bodies())
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		require.Len(t, g.Queues, 1)
		assert.Equal(t, []int64{111, 111, 0}, []int64{g.Queues[0].Committed, g.Queues[0].Max, g.Queues[0].Lag}, "what is filtered out is done with")
		require.NoError(t, co.Close())
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("Aa")}, Handler: in.handler("c")})
		time.Sleep(time.Minute)
		assert.Len(t, in.arrivals(), 1, "nothing comes again")
	})
}

func TestWhereAGroupStarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"old": 1, "empty": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func(topic, body string) {
			_, err := p.Send(t.Context(), text(topic, "%s", body))
			require.NoError(t, err)
		}
		send("old", "before")
		inboxes := map[string]*inbox{}
		for group, from := range map[string]pocketmq.ConsumeFrom{"default": {}, "last": pocketmq.FromLastOffset, "first": pocketmq.FromFirstOffset} {
			inboxes[group] = &inbox{}
			consumer(t, c, pocketmq.ConsumerConfig{Group: group, From: from, Subscriptions: all("old", "empty"), Handler: inboxes[group].handler("")})
			send("empty", "after start of "+group) // in the instant in which Start has returned
		}
		synctest.Wait()
		for group, in := range inboxes {
			assert.Contains(t, in.bodies(), "before", "%s: a queue that holds its first message is read from 0, whatever From says", group)
			assert.Contains(t, in.bodies(), "after start of "+group, "what is sent after Start is never skipped")
		}
	})
}

func TestEachGroupGetsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 3}})
		var inboxes [3]inbox
		for i := range inboxes {
			for range i + 1 {
				consumer(t, c, pocketmq.ConsumerConfig{Group: fmt.Sprint("g", i), Subscriptions: all("T"), Handler: inboxes[i].handler("")})
			}
		}
		synctest.Wait()
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 300 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait()
		for i := range inboxes {
			assert.Equal(t, numbers(300), inboxes[i].bodies(), "group %d", i)
		}
	})
}

func TestOneWorkerKeepsTheOrderOfAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), Concurrency: 1, BatchSize: 7})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 400 {
			m := text("T", "%d", i)
			m.ShardingKey = fmt.Sprint(i % 10)
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		synctest.Wait()
		next := make(map[pocketmq.MessageQueue]int64)
		for _, a := range in.arrivals() {
			assert.Equal(t, next[a.msg.Queue], a.msg.QueueOffset)
			next[a.msg.Queue]++
		}
		assert.Len(t, in.arrivals(), 400)
	})
}

func TestBatchesOfOneQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 200 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		var mu sync.Mutex
		var sizes []int
		var in inbox
		var failed atomic.Bool
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), BatchSize: 10, From: pocketmq.FromFirstOffset,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				mu.Lock()
				sizes = append(sizes, len(msgs))
				mu.Unlock()
				for _, m := range msgs {
					assert.Equal(t, msgs[0].Queue, m.Queue)
				}
				in.put("c", msgs)
				if failed.CompareAndSwap(false, true) {
					return errors.New("the whole batch once more")
				}
				return nil
			},
		})
		synctest.Wait()
		mu.Lock()
		largest, first := slices.Max(sizes), sizes[0]
		mu.Unlock()
		assert.Equal(t, 10, largest)
		assert.Len(t, in.arrivals(), 200)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		got := in.bodies()
		assert.Len(t, got, 200+first, "every message of the failed call comes again")
		assert.Equal(t, numbers(200), slices.Compact(got))
	})
}

// A handler may use everything: it holds no lock of the library.
func TestHandlersMayUseTheLibrary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"in": 2, "out": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		var co *pocketmq.Consumer
		started := make(chan struct{})
		co = consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("in"),
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				<-started
				assert.Len(t, co.Assignment(), 2)
				assert.Positive(t, co.Status().Running)
				_, ok := c.Broker("broker-a", 0).Group("g")
				assert.True(t, ok)
				_, err := c.Admin().Topics(ctx)
				assert.NoError(t, err)
				_, err = p.Send(ctx, text("out", "%s", msgs[0].Body))
				return err
			},
		})
		close(started)
		consumer(t, c, pocketmq.ConsumerConfig{Group: "h", Subscriptions: all("out"), Handler: in.handler("h")})
		for i := range 50 {
			_, err := p.Send(t.Context(), text("in", "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, numbers(50), in.bodies())
	})
}

func TestLargeAndCompressedMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		var want []string
		for _, cfg := range []pocketmq.ProducerConfig{{CompressOver: -1}, {Compression: pocketmq.Zlib}, {Compression: pocketmq.LZ4}, {Compression: pocketmq.Zstd}} {
			p := producer(t, c, cfg)
			for _, size := range []int{1, 4095, 4096, 4097, 300_000, 4 << 20} {
				body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
				_, err := p.Send(t.Context(), text("T", "%s", body))
				require.NoError(t, err, "%d bytes, %+v", size, cfg)
				want = append(want, body)
			}
			_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: make([]byte, 4<<20+1)})
			assert.ErrorIs(t, err, pocketmq.ErrMessageTooLarge)
		}
		time.Sleep(time.Minute)
		got := in.bodies()
		slices.Sort(want)
		require.Len(t, got, len(want))
		for i := range want {
			assert.True(t, want[i] == got[i], "body %d of %d bytes", i, len(want[i]))
		}
	})
}

// What a producer was told is stored reaches its consumers, also when they
// would have to inflate more than they accept.
func TestNoBodyIsAcknowledgedThatConsumersDoNotInflate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		p := producer(t, c, pocketmq.ProducerConfig{MaxMessageSize: 64 << 20})
		const size = 20 << 20
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: make([]byte, size)})
		_, after := p.Send(t.Context(), text("T", "after"))
		require.NoError(t, after)
		time.Sleep(time.Minute)
		var sizes []int
		for _, a := range in.arrivals() {
			sizes = append(sizes, len(a.msg.Body))
		}
		if err != nil {
			assert.ErrorIs(t, err, pocketmq.ErrMessageTooLarge)
			assert.Equal(t, []int{len("after")}, sizes)
			return
		}
		assert.ElementsMatch(t, []int{size, len("after")}, sizes, "acknowledged, so delivered")
	})
}

func TestAConsumerWithoutSubscriptionsIsLegal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Handler: (&inbox{}).handler("")})
		time.Sleep(time.Minute)
		assert.Empty(t, co.Assignment())
		_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{Group: "g"})
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig, "without a handler it is not")
	})
}
