package pocketmq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
)

var abc = []string{"broker-a", "broker-b", "broker-c"}

func TestFT04_OneSilentBrokerDoesNotSpendTheBudget(t *testing.T) {
	for name, silence := range map[string]func(n *pocketmq.MemoryNetwork, client string){
		"silent":              func(n *pocketmq.MemoryNetwork, client string) { n.Drop(client, "broker-a/0") },
		"swallows the answer": func(n *pocketmq.MemoryNetwork, client string) { n.CutOneWay("broker-a/0", client) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 2, "warm": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				for range 3 { // sessions with all three
					_, err := p.Send(t.Context(), text("warm", "x"))
					require.NoError(t, err)
				}
				silence(links(t, c), p.ClientID())
				const n = 30
				retried := 0
				for i := range n {
					m := text("T", "%d", i)
					m.Keys = []string{fmt.Sprint("k", i)}
					begin := time.Now()
					res, err := p.Send(t.Context(), m)
					require.NoError(t, err)
					assert.NotEqual(t, "broker-a", res.Queue.BrokerName)
					assert.Less(t, time.Since(begin), 3*time.Second)
					if time.Since(begin) > 0 {
						retried++
						assert.Equal(t, time.Second, time.Since(begin), "the share of the first of three attempts")
					}
				}
				assert.Positive(t, retried)
				assert.Equal(t, int64(retried), p.Status().Retried)
				links(t, c).HealAll()

				good := keysStored(t, c, "T", 2, "broker-b", "broker-c")
				assert.Len(t, good, n)
				for key, copies := range good {
					assert.Equal(t, 1, copies, "copies of %s on b and c", key)
				}
				copies := keysStored(t, c, "T", 2, "broker-a")
				if name == "silent" {
					assert.Empty(t, copies)
				} else {
					assert.NotEmpty(t, copies, "stored, but nobody was told: allowed duplicates")
				}
			})
		})
	}
}

func TestFT05_ALostConnectionWakesTheSenderAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		n := links(t, c)
		fault := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, From: p.ClientID(), Times: 1, DropReply: true})
		go func() {
			assert.NoError(t, fault.Wait(context.Background(), 1))
			time.Sleep(50 * time.Millisecond)
			n.Cut(p.ClientID(), "broker-a/0")
		}()
		for fault.Hits() == 0 {
			begin := time.Now()
			res, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			if fault.Hits() == 1 {
				assert.Equal(t, 50*time.Millisecond, time.Since(begin))
				assert.Equal(t, "broker-b", res.Queue.BrokerName)
			}
		}
		assert.Equal(t, int64(1), p.Status().Retried)
		assert.Zero(t, p.Status().InFlight)
		links(t, c).HealAll()
	})
}

func TestFT06_AsyncSendsWithoutABroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "the route is known"))
		require.NoError(t, err)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))

		var mu sync.Mutex
		runs := make([]int, 100)
		for i := range runs {
			err := p.SendAsync(t.Context(), text("T", "%d", i), func(res *pocketmq.SendResult, err error) {
				mu.Lock()
				defer mu.Unlock()
				runs[i]++
				assert.Nil(t, res)
				assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
				_ = fmt.Sprintf("%v %+v %v", res, res, err) // safe to print
			})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, n := range runs {
			assert.Equal(t, 1, n, "callbacks of send %d", i)
		}
		assert.Equal(t, int64(100), p.Status().Failed)
	})
}

func TestFT06_BadArgumentsOfSendAsyncAreReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		never := func(*pocketmq.SendResult, error) { t.Error("the callback ran") }
		assert.ErrorIs(t, p.SendAsync(t.Context(), nil, never), pocketmq.ErrIllegalMessage)
		assert.ErrorIs(t, p.SendAsync(t.Context(), text("T", "x"), nil), pocketmq.ErrIllegalMessage)
		assert.ErrorIs(t, p.SendAsync(t.Context(), text("T", ""), never), pocketmq.ErrIllegalMessage)
		assert.ErrorIs(t, p.SendAsync(t.Context(), text("no good", "x"), never), pocketmq.ErrIllegalName)
		_, err := p.Send(t.Context(), nil)
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		assert.ErrorIs(t, p.SendOneway(t.Context(), nil), pocketmq.ErrIllegalMessage)
		_, err = p.SendBatch(t.Context(), []*pocketmq.Message{text("T", "x"), nil})
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), nil)
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		_, err = p.SendSelect(t.Context(), text("T", "x"), nil)
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		synctest.Wait()
		assert.Zero(t, p.Status().Sent)
		assert.Empty(t, queueContent(t, c, queue("T", "broker-a", 0)))
	})
}

// What the reference refuses to send, and with which code.
func TestTheReferencesVerdictsOnMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		file, err := os.ReadFile("message/testdata/message_codec.json")
		require.NoError(t, err)
		var golden struct {
			Check []struct {
				Name, Topic string
				BodyLength  *int
				Result      json.RawMessage
			} `json:"check_message"`
			Batch []struct {
				Name   string
				Topics []string
				Result struct{ Error string }
			} `json:"batch_rules"`
		}
		require.NoError(t, json.Unmarshal(file, &golden))
		require.NotEmpty(t, golden.Check)
		require.NotEmpty(t, golden.Batch)
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for _, row := range golden.Check {
			m := &pocketmq.Message{Topic: row.Topic}
			if row.BodyLength != nil {
				m.Body = make([]byte, *row.BodyLength)
			}
			switch row.Name {
			case "null message":
				m = nil
			case "lmq with slash":
				m.Properties = map[string]string{message.PropInnerMultiDispatch: "%LMQ%a/b"}
			}
			_, err := p.Send(t.Context(), m)
			var want struct{ ResponseCode int }
			if string(row.Result) == `"ok"` {
				assert.NoError(t, err, row.Name)
				continue
			}
			require.NoError(t, json.Unmarshal(row.Result, &want), row.Name)
			is13 := errors.Is(err, pocketmq.ErrIllegalMessage) || errors.Is(err, pocketmq.ErrMessageTooLarge)
			assert.Error(t, err, row.Name)
			assert.Equal(t, want.ResponseCode == 13, is13, "%s: %v", row.Name, err)
		}
		for _, row := range golden.Batch {
			var ms []*pocketmq.Message
			for _, topic := range row.Topics {
				ms = append(ms, text(topic, "x"))
			}
			refused := row.Result.Error != ""
			switch row.Name {
			case "delay level":
				ms[0].DelayLevel = 1
			case "different waitStoreMsgOK":
				ms[1].NoWait = true
			case "timer property":
				ms[0].Delay = time.Second
				refused = true // Differs: nothing is delayed here.
			}
			_, err := p.SendBatch(t.Context(), ms)
			assert.Equal(t, refused, err != nil, "%s: %v", row.Name, err)
		}
	})
}

func TestFT06_ABrokerThatStopsHalfWayThroughAsyncSends(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}, Dir: t.TempDir()})
		p := producer(t, c, pocketmq.ProducerConfig{MaxInFlight: 8})
		var ok, failed atomic.Int64
		for i := range 100 {
			if i == 50 {
				check(t, c)
				require.NoError(t, c.Kill("broker-a", 0))
			}
			err := p.SendAsync(t.Context(), text("T", "%d", i), func(res *pocketmq.SendResult, err error) {
				_ = fmt.Sprintf("%+v %v", res, err)
				if err == nil {
					ok.Add(1)
					return
				}
				assert.Nil(t, res)
				failed.Add(1)
				panic("a callback that panics does no harm")
			})
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, int64(100), ok.Load()+failed.Load(), "callbacks")
		assert.Positive(t, ok.Load())
		assert.GreaterOrEqual(t, failed.Load(), int64(50))
		assert.Zero(t, p.Status().InFlight)

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		n := 0
		for id := range 2 {
			n += len(queueContent(t, c, queue("T", "broker-a", id)))
		}
		assert.GreaterOrEqual(t, n, int(ok.Load()), "what was acknowledged is there")
	})
}

func TestFT07_AShardingKeyMeansTheSameQueueForEveryProducer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const keys = 200
		queues := func(t *testing.T, p *pocketmq.Producer) [keys]pocketmq.MessageQueue {
			var out [keys]pocketmq.MessageQueue
			for i := range out {
				m := text("T", "x")
				m.ShardingKey = fmt.Sprint("order-", i)
				res, err := p.Send(t.Context(), m)
				require.NoError(t, err)
				out[i] = res.Queue
			}
			return out
		}
		var want [keys]pocketmq.MessageQueue
		for _, order := range [][]string{{"broker-c", "broker-a", "broker-b"}, {"broker-b", "broker-c", "broker-a"}} {
			c := run(t, pocketmq.ClusterConfig{Groups: groups(order[0]), Topics: map[string]int{"T": 8}})
			early := producer(t, c, pocketmq.ProducerConfig{})
			got, err := early.Queues(t.Context(), "T")
			require.NoError(t, err)
			require.Len(t, got, 8)
			for _, name := range order[1:] {
				require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: name}))
			}
			time.Sleep(30 * time.Second) // early refreshes its routes
			synctest.Wait()
			got, err = early.Queues(t.Context(), "T")
			require.NoError(t, err)
			require.Equal(t, queuesOf(8, abc...), got, "sorted by broker name and queue id")

			first := queues(t, early)
			if want != [keys]pocketmq.MessageQueue{} {
				assert.Equal(t, want, first, "in another order of registration")
			}
			want = first
			for range 20 {
				late := producer(t, c, pocketmq.ProducerConfig{})
				assert.Equal(t, want, queues(t, late))
				require.NoError(t, late.Close())
			}
		}
		used := make(map[pocketmq.MessageQueue]bool)
		for _, q := range want {
			used[q] = true
		}
		assert.Greater(t, len(used), 20, "keys spread over the 24 queues")
	})
}

func TestRetriesAvoidTheBrokerThatFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		fault := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}})
		for i := range 100 {
			res, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
			assert.Equal(t, "broker-b", res.Queue.BrokerName)
		}
		assert.Equal(t, p.Status().Retried, int64(fault.Hits()), "never a then a: one retry per failure")
		assert.Positive(t, fault.Hits())
	})
}

func TestSendsGoRoundAllQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		n := make(map[pocketmq.MessageQueue]int)
		ids := make(map[string]bool)
		for range 8 {
			wg.Go(func() {
				for range 100 {
					res, err := p.Send(context.Background(), text("T", "x"))
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					n[res.Queue]++
					ids[res.MsgID] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for _, q := range queuesOf(4, "broker-a", "broker-b") {
			assert.Equal(t, 100, n[q], "%v", q)
		}
		assert.Len(t, ids, 800, "message ids are unique, also within one millisecond")
	})
}

func TestWhatIsSentIsWhatIsDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), BatchSize: 32})
		p := producer(t, c, pocketmq.ProducerConfig{})
		sentAt := time.Now()
		m := &pocketmq.Message{
			Topic: "T", Tag: "paid", Keys: []string{"k1", "k2"}, ShardingKey: "s", Flag: 7, NoWait: true,
			Properties: map[string]string{"colour": "red", "größe": "42"}, Body: []byte("body"),
		}
		res, err := p.Send(t.Context(), m)
		require.NoError(t, err)
		batch, err := p.SendBatch(t.Context(), []*pocketmq.Message{m, text("T", "second"), text("T", "third")})
		require.Error(t, err, "a batch goes to one queue")
		require.Nil(t, batch)
		m.ShardingKey, m.NoWait = "", false
		batch, err = p.SendBatch(t.Context(), []*pocketmq.Message{m, text("T", "second"), text("T", "third")})
		require.NoError(t, err)
		require.Len(t, batch.MsgIDs, 3)
		assert.Equal(t, batch.MsgIDs[0], batch.MsgID)
		assert.Len(t, strings.Split(batch.OffsetMsgID, ","), 3)
		assert.Equal(t, int64(1), batch.QueueOffset)
		synctest.Wait()

		got := in.arrivals()
		require.Len(t, got, 4)
		e := got[0].msg
		want := *m
		want.ShardingKey = "s"
		assert.Equal(t, want, e.Message, "NoWait is zero in what is delivered")
		assert.Equal(t, queue("T", "broker-a", 0), e.Queue)
		assert.Equal(t, res.Queue, e.Queue)
		assert.Equal(t, res.MsgID, e.MsgID)
		assert.Equal(t, res.OffsetMsgID, e.OffsetMsgID)
		assert.Equal(t, sentAt.UnixMilli(), e.BornTime.UnixMilli())
		assert.Equal(t, sentAt.UnixMilli(), e.StoreTime.UnixMilli())
		assert.Equal(t, c.Broker("broker-a", 0).Addr(), e.StoreHost.String())
		assert.NotZero(t, e.BornHost)
		assert.Zero(t, e.ReconsumeTimes)
		assert.Equal(t, message.BodyCRC(e.Body), e.BodyCRC)
		assert.Equal(t, "paid", e.Property("TAGS"))
		assert.Equal(t, "false", e.Property("WAIT"))
		assert.Equal(t, "s", e.Property("__SHARDINGKEY"))
		assert.Equal(t, res.MsgID, e.Property("UNIQ_KEY"))
		assert.Equal(t, "red", e.Property("colour"))
		for i, a := range got[1:] {
			assert.Equal(t, batch.MsgIDs[i], a.msg.MsgID)
			assert.Equal(t, batch.QueueOffset+int64(i), a.msg.QueueOffset)
		}
		want.ShardingKey = ""
		assert.Equal(t, want, got[1].msg.Message, "a message of a batch is the message sent alone")
	})
}

func TestTheCallersMessageMayBeReusedAfterASend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		links(t, c).Delay(p.ClientID(), "broker-a/0", 10*time.Millisecond) // it has not left yet
		m := text("T", "aaaa")
		var wg sync.WaitGroup
		for _, body := range []string{"aaaa", "bbbb", "cccc"} {
			copy(m.Body, body)
			wg.Add(1)
			require.NoError(t, p.SendAsync(t.Context(), m, func(_ *pocketmq.SendResult, err error) {
				assert.NoError(t, err)
				wg.Done()
			}))
		}
		copy(m.Body, "dddd")
		require.NoError(t, p.SendOneway(t.Context(), m))
		copy(m.Body, "xxxx")
		wg.Wait()
		time.Sleep(time.Second)
		links(t, c).HealAll()
		assert.ElementsMatch(t, []string{"aaaa", "bbbb", "cccc", "dddd"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
	})
}

func TestSelectors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-b", "broker-a"), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		m := text("T", "x")
		res, err := p.SendSelect(t.Context(), m, func(got *pocketmq.Message, queues []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
			assert.Same(t, m, got)
			assert.Equal(t, queuesOf(2, "broker-a", "broker-b"), queues)
			last := queues[3]
			clear(queues) // they are the caller's
			return last, nil
		})
		require.NoError(t, err)
		assert.Equal(t, queue("T", "broker-b", 1), res.Queue)

		_, err = p.SendSelect(t.Context(), m, func(*pocketmq.Message, []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
			return queue("T", "broker-b", 2), nil
		})
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage, "a foreign queue")
		mine := errors.New("mine")
		_, err = p.SendSelect(t.Context(), m, func(*pocketmq.Message, []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
			return pocketmq.MessageQueue{}, mine
		})
		assert.ErrorIs(t, err, mine)
		_, err = p.SendSelect(t.Context(), m, func(*pocketmq.Message, []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
			panic("selector")
		})
		assert.ErrorContains(t, err, "selector")

		res, err = p.SendTo(t.Context(), queue("T", "broker-a", 1), m)
		require.NoError(t, err)
		assert.Equal(t, queue("T", "broker-a", 1), res.Queue)
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 2), m)
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		_, err = p.SendTo(t.Context(), queue("U", "broker-a", 0), m)
		assert.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
	})
}

func TestAChosenQueueIsRetriedAtItsOwnBrokerOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		busy := &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}
		fault := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Times: 2, Err: busy})
		res, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		require.NoError(t, err, "the third attempt")
		assert.Equal(t, "broker-a", res.Queue.BrokerName)
		assert.Equal(t, 2, fault.Hits())
		fault.Remove()
		c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Err: busy})
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		assert.Empty(t, queueContent(t, c, queue("T", "broker-b", 0)))
	})
}

func TestAnAutoCreatedTopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b", Config: pocketmq.BrokerConfig{DefaultTopicQueues: 3}}},
		})
		p := producer(t, c, pocketmq.ProducerConfig{DefaultTopicQueues: 6})
		res, err := p.Send(t.Context(), text("fresh", "x"))
		require.NoError(t, err)
		route, err := c.Admin().Route(t.Context(), "fresh")
		require.NoError(t, err)
		require.Len(t, route.Queues, 1, "it lives on the broker that took the first message")
		assert.Equal(t, res.Queue.BrokerName, route.Queues[0].BrokerName)
		assert.Equal(t, map[string]int{"broker-a": 6, "broker-b": 3}[res.Queue.BrokerName], route.Queues[0].WriteQueues, "min of what client and broker wish")
		for range 10 {
			again, err := p.Send(t.Context(), text("fresh", "x"))
			require.NoError(t, err)
			assert.Equal(t, res.Queue.BrokerName, again.Queue.BrokerName)
		}
		topics, err := c.Admin().Topics(t.Context())
		require.NoError(t, err)
		assert.Contains(t, topics, "fresh")

		// Eight at once make it once.
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := p.Send(context.Background(), text("many", "x"))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
	})
}

func TestSendAsyncBlocksAtMaxInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{MaxInFlight: 2})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Delay: 500 * time.Millisecond})
		begin := time.Now()
		var done atomic.Int64
		send := func(ctx context.Context) error {
			return p.SendAsync(ctx, text("T", "x"), func(_ *pocketmq.SendResult, err error) {
				assert.NoError(t, err)
				done.Add(1)
			})
		}
		require.NoError(t, send(t.Context()))
		require.NoError(t, send(t.Context()))
		synctest.Wait()
		assert.Equal(t, 2, p.Status().InFlight)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := send(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "MaxInFlight")
		assert.Equal(t, 300*time.Millisecond, time.Since(begin))
		require.NoError(t, send(t.Context()))
		assert.Equal(t, 500*time.Millisecond, time.Since(begin), "as soon as one of them has ended")
		require.NoError(t, p.Shutdown(t.Context()))
		assert.Equal(t, int64(3), done.Load(), "Shutdown lets them end")
		assert.Equal(t, time.Second, time.Since(begin))
	})
}

func TestSendTimeoutsAreThoseOfTheConfig(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Drop: true})
		for name, tc := range map[string]struct {
			cfg   pocketmq.ProducerConfig
			ctx   time.Duration
			took  time.Duration
			tries int64
		}{
			"defaults":              {pocketmq.ProducerConfig{}, time.Hour, 3 * time.Second, 3},
			"no retries":            {pocketmq.ProducerConfig{Retries: pocketmq.NoRetries}, time.Hour, 3 * time.Second, 1},
			"attempt timeout":       {pocketmq.ProducerConfig{AttemptTimeout: 100 * time.Millisecond}, time.Hour, 300 * time.Millisecond, 3},
			"send timeout":          {pocketmq.ProducerConfig{SendTimeout: 400 * time.Millisecond, Retries: 1}, time.Hour, 400 * time.Millisecond, 2},
			"the caller's deadline": {pocketmq.ProducerConfig{}, 600 * time.Millisecond, 600 * time.Millisecond, 3},
		} {
			p := producer(t, c, tc.cfg)
			ctx, cancel := context.WithTimeout(t.Context(), tc.ctx)
			begin := time.Now()
			_, err := p.Send(ctx, text("T", "x"))
			cancel()
			assert.ErrorIs(t, err, pocketmq.ErrUnknownOutcome, name)
			if name != "attempt timeout" {
				assert.ErrorIs(t, err, pocketmq.ErrTimeout, name)
			}
			assert.Equal(t, tc.took, time.Since(begin), name)
			assert.Equal(t, tc.tries-1, p.Status().Retried, name)
		}
	})
}

func TestATopicMadeByASenderThatLeftIsRoutable(t *testing.T) {
	for name, wait := range map[string]time.Duration{"beside it": 0, "after it": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
				c := run(t, pocketmq.ClusterConfig{Transport: over})
				p := producer(t, c, pocketmq.ProducerConfig{})
				_, err := p.Send(t.Context(), text("warm", "x"))
				require.NoError(t, err)
				c.Inject(pocketmq.Fault{Code: protocol.CodeRegisterBroker, From: "broker-a/0", Delay: 200 * time.Millisecond})
				left := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
					defer cancel()
					_, err := p.Send(ctx, text("fresh", "impatient"))
					left <- err
				}()
				synctest.Wait()
				time.Sleep(wait)
				_, err = p.Send(t.Context(), text("fresh", "patient"))
				require.NoError(t, err)
				assert.ErrorIs(t, <-left, context.DeadlineExceeded)
				if wait > 0 {
					time.Sleep(200 * time.Millisecond) // the registration ends without the first sender
				}
				route, err := c.Admin().Route(t.Context(), "fresh")
				require.NoError(t, err)
				require.Len(t, route.Queues, 1)
				assert.Equal(t, "broker-a", route.Queues[0].BrokerName)
			})
		})
	}
}

// A name server that answers late, or a caller that does not wait for it, must
// not cost the broker its session: its topics would leave every route.
func TestSlowNameServersKeepTheBroker(t *testing.T) {
	for name, delay := range map[string]time.Duration{"the caller leaves": 100 * time.Millisecond, "every registration times out": time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				links(t, c).Delay("broker-a/0", "ns-0", delay)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_ = c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "late"}) // may or may not have heard
				for range 60 {
					time.Sleep(time.Second)
					_, err := c.Admin().Route(t.Context(), "T")
					require.NoError(t, err)
				}
				links(t, c).HealAll()
				time.Sleep(30 * time.Second)
				_, err := c.Admin().Route(t.Context(), "late")
				assert.NoError(t, err)
			})
		})
	}
}

func TestASlowRouteLookupIsNotPartOfTheFirstAttempt(t *testing.T) {
	for name, cfg := range map[string]pocketmq.ProducerConfig{
		"defaults":        {},
		"attempt timeout": {AttemptTimeout: 500 * time.Millisecond, Retries: pocketmq.NoRetries},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				p := producer(t, c, cfg)
				c.Inject(pocketmq.Fault{Code: protocol.CodeGetRoute, From: p.ClientID(), Delay: 1200 * time.Millisecond})
				begin := time.Now()
				_, err := p.Send(t.Context(), text("T", "x"))
				require.NoError(t, err)
				assert.Equal(t, 1200*time.Millisecond, time.Since(begin))
				assert.Zero(t, p.Status().Retried)
				assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 1)
			})
		})
	}
}

// Senders that find a route in the cache find the addresses of its brokers too,
// also at the instant when the first lookup ends.
func TestFirstSendsOfManyFindTheBroker(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
	for range 200 {
		p := producer(t, c, pocketmq.ProducerConfig{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := p.Send(context.Background(), text("T", "x"))
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		require.NoError(t, p.Close())
	}
}
