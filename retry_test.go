package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

var errFails = errors.New("the handler fails")

// failing records every message under the name who, and fails those for which
// verdict has an error.
func (b *inbox) failing(who string, verdict func(m *pocketmq.MessageExt) error) func(context.Context, []*pocketmq.MessageExt) error {
	return func(_ context.Context, msgs []*pocketmq.MessageExt) error {
		b.put(who, msgs)
		for _, m := range msgs {
			if err := verdict(m); err != nil {
				return err
			}
		}
		return nil
	}
}

// of returns the arrivals of one body.
func (b *inbox) of(body string) []arrival {
	var out []arrival
	for _, a := range b.arrivals() {
		if string(a.msg.Body) == body {
			out = append(out, a)
		}
	}
	return out
}

// sendNow sends a message and returns its id.
func sendNow(t testing.TB, p *pocketmq.Producer, m *pocketmq.Message) string {
	t.Helper()
	res, err := p.Send(t.Context(), m)
	require.NoError(t, err)
	return res.MsgID
}

func TestAFailedMessageComesAgainAfterEachLevelAndIsADeadLetterAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.failing("c", func(m *pocketmq.MessageExt) error {
			switch {
			case string(m.Body) != "bad":
				return nil
			case m.ReconsumeTimes%2 == 1:
				panic("a panic is a failure")
			}
			return errFails
		})})
		m := text("T", "bad")
		m.Tag, m.Keys, m.Flag, m.Properties = "tag", []string{"k1", "k2"}, 7, map[string]string{"p": "v"}
		id := sendNow(t, p, m)
		sendNow(t, p, text("T", "good"))
		sent := time.Now()
		time.Sleep(6 * time.Hour) // all levels together are 4 h 46 min
		synctest.Wait()

		var want []time.Duration
		at := time.Duration(0)
		want = append(want, at)
		for _, level := range pocketmq.DefaultTimings().DelayLevels[2:] { // 10 s, 30 s, 1 min ... 2 h
			at += level
			want = append(want, at)
		}
		var got []time.Duration
		for i, a := range in.of("bad") {
			got = append(got, a.at.Sub(sent))
			assert.Equal(t, i, a.msg.ReconsumeTimes)
			assert.Equal(t, "T", a.msg.Topic)
			assert.Equal(t, id, a.msg.MsgID)
			assert.Equal(t, "tag", a.msg.Tag)
			assert.Equal(t, []string{"k1", "k2"}, a.msg.Keys)
			assert.Equal(t, int32(7), a.msg.Flag)
			assert.Equal(t, map[string]string{"p": "v"}, a.msg.Properties)
			assert.Zero(t, a.msg.DelayLevel)
			if i > 0 {
				assert.Equal(t, "%RETRY%g", a.msg.Queue.Topic)
			}
		}
		assert.Equal(t, want, got, "1 + 16 attempts")
		assert.Len(t, in.of("good"), 1)
		assert.Equal(t, pocketmq.ConsumerStatus{Received: 18, Consumed: 1, Failed: 17, SentBack: 17}, co.Status())

		letters := queueContent(t, c, queue("%DLQ%g", "broker-a", 0))
		require.Len(t, letters, 1, "exactly one copy")
		assert.Equal(t, stored{body: "bad", key: "k1", id: id}, letters[0])
		g, _ := c.Broker("broker-a", 0).Group("g")
		for _, l := range g.Queues {
			assert.Zero(t, l.Lag, "%v", l.Queue)
		}
		for _, q := range co.Assignment() {
			assert.Equal(t, "T", q.Topic)
		}
	})
}

func TestDR03_ADeadLetterIsReadableAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), MaxReconsume: 1,
			Handler: in.failing("c", func(*pocketmq.MessageExt) error { return pocketmq.RetryAfter(errFails, 18) })})
		m := text("T", "x")
		m.Keys = []string{"k"}
		id := sendNow(t, p, m)
		time.Sleep(2*time.Hour - 1)
		synctest.Wait()
		assert.Len(t, in.arrivals(), 1, "2 h are level 18")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Len(t, in.arrivals(), 2)
		assert.Equal(t, []stored{{body: "x", key: "k", id: id}}, queueContent(t, c, queue("%DLQ%g", "broker-a", 0)))
		time.Sleep(3 * time.Hour) // the last level is 2 h
		assert.Len(t, in.arrivals(), 2)
		assert.Len(t, queueContent(t, c, queue("%DLQ%g", "broker-a", 0)), 1)
	})
}

func TestWhatAHandlerMaySayOfAFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		max   int
		again []time.Duration // after the first attempt
		dead  bool
	}{
		"a level":                     {pocketmq.RetryAfter(errFails, 2), 0, []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second}, false},
		"a level above the last":      {pocketmq.RetryAfter(errFails, 99), 1, []time.Duration{2 * time.Hour}, true},
		"a level of 0":                {pocketmq.RetryAfter(errFails, 0), 1, []time.Duration{10 * time.Second}, true},
		"a dead letter":               {pocketmq.DeadLetter(errFails), 0, nil, true},
		"no retries":                  {errFails, pocketmq.NoRetries, nil, true},
		"all of the batch is done":    {pocketmq.Done(1, errFails), 0, nil, false},
		"none done, a dead letter":    {pocketmq.Done(0, pocketmq.DeadLetter(errFails)), 0, nil, true},
		"none done, no error at all":  {pocketmq.Done(0, nil), 1, []time.Duration{10 * time.Second}, true},
		"two retries, then a letter":  {errFails, 2, []time.Duration{10 * time.Second, 40 * time.Second}, true},
		"a panic is an error":         {nil, 1, []time.Duration{10 * time.Second}, true},
		"a letter outweighs a level":  {pocketmq.RetryAfter(pocketmq.DeadLetter(errFails), 1), 0, nil, true},
		"wrapped by the user's error": {fmt.Errorf("order 7: %w", pocketmq.RetryAfter(errFails, 1)), 1, []time.Duration{time.Second}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				var in inbox
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), MaxReconsume: tc.max,
					Handler: in.failing("c", func(*pocketmq.MessageExt) error {
						if tc.err == nil {
							panic("a bug")
						}
						return tc.err
					})})
				sendNow(t, p, text("T", "x"))
				sent := time.Now()
				last := time.Duration(0)
				if n := len(tc.again); n > 0 {
					last = tc.again[n-1]
				}
				time.Sleep(last)
				synctest.Wait()
				var got []time.Duration
				for _, a := range in.arrivals()[1:] {
					got = append(got, a.at.Sub(sent))
				}
				assert.Equal(t, tc.again, got)
				want := 0
				if tc.dead {
					want = 1
				}
				g, err := c.Admin().TopicStats(t.Context(), "%DLQ%g")
				if err != nil {
					assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
				}
				assert.EqualValues(t, want, g[queue("%DLQ%g", "broker-a", 0)].MaxOffset)
				if tc.dead || len(tc.again) == 0 {
					time.Sleep(3 * time.Hour) // the last level is 2 h
					assert.Len(t, in.arrivals(), 1+len(tc.again), "nothing comes again")
				}
			})
		})
	}
}

func TestTheFirstMessagesOfABatchMayBeDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 8 {
			sendNow(t, p, text("T", "%d", i))
		}
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), BatchSize: 8, From: pocketmq.FromFirstOffset,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs)
				if msgs[0].ReconsumeTimes == 0 {
					return pocketmq.Done(5, errFails)
				}
				return nil
			}})
		time.Sleep(time.Minute)
		for i := range 8 {
			want := 1
			if i >= 5 {
				want = 2
			}
			assert.Len(t, in.of(fmt.Sprint(i)), want, "message %d", i)
		}
		assert.Equal(t, pocketmq.ConsumerStatus{Received: 11, Consumed: 8, Failed: 3, SentBack: 3}, co.Status())
	})
}

func TestCP01_OffsetPassesAFailedMessageOnlyWhenABrokerHasIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		back := c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, Group: "g", Err: errFails})
		send := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Topic: "%RETRY%g", Err: errFails})
		fails := func(m *pocketmq.MessageExt) error {
			if string(m.Body) == "3" {
				return errFails
			}
			return nil
		}
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.failing("1", fails)})
		for i := range 10 {
			_, err := p.SendTo(t.Context(), q, text("T", "%d", i))
			require.NoError(t, err)
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		require.Len(t, in.of("3"), 5, "here again, every 5 s")
		for i, a := range in.of("3") {
			assert.Equal(t, i, a.msg.ReconsumeTimes)
		}
		assert.Len(t, in.of("9"), 1, "the others go on")
		assert.Equal(t, 5, back.Hits())
		assert.Equal(t, 10, send.Hits(), "both brokers each time")
		assert.Equal(t, int64(3), committed(t, c, "g", q))
		require.NoError(t, co.Close())
		assert.Equal(t, int64(3), committed(t, c, "g", q))

		in2 := inbox{}
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in2.failing("2", fails)})
		time.Sleep(10 * time.Second)
		assert.NotEmpty(t, in2.of("3"), "after the restart it is there")
		assert.Equal(t, int64(3), committed(t, c, "g", q))
		n := len(in2.of("3"))
		time.Sleep(time.Second) // between two attempts, so that none meets only one of the faults
		back.Remove()
		send.Remove()
		time.Sleep(16 * time.Second) // the next attempt here, and 10 s for the broker's
		synctest.Wait()
		assert.Equal(t, int64(10), committed(t, c, "g", q))
		got := in2.of("3")
		require.Greater(t, len(got), n)
		assert.Equal(t, "%RETRY%g", got[len(got)-1].msg.Queue.Topic)
	})
}

func TestCP01_ASendStandsInForASendBack(t *testing.T) {
	for name, fault := range map[string]pocketmq.Fault{
		"refused":     {Err: errFails},
		"never asked": {Drop: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				fault.Code = protocol.CodeConsumerSendMsgBack
				back := c.Inject(fault)
				var in inbox
				co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), MaxReconsume: 2,
					Handler: in.failing("c", func(*pocketmq.MessageExt) error { return errFails })})
				send := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, From: co.ClientID()})
				m := text("T", "x")
				m.Keys = []string{"k"}
				id := sendNow(t, p, m)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Len(t, in.arrivals(), 3)
				for i, a := range in.arrivals() {
					assert.Equal(t, i, a.msg.ReconsumeTimes)
					assert.Equal(t, "T", a.msg.Topic)
					assert.Equal(t, id, a.msg.MsgID)
					assert.Equal(t, []string{"k"}, a.msg.Keys)
				}
				assert.Equal(t, []stored{{body: "x", key: "k", id: id}}, queueContent(t, c, queue("%DLQ%g", "broker-a", 0)))
				assert.Equal(t, 3, back.Hits())
				assert.Equal(t, 3, send.Hits(), "over the consumer's own connection")
				assert.Equal(t, int64(1), committed(t, c, "g", queue("T", "broker-a", 0)))
			})
		})
	}
}

func TestCP01_ASendThatStandsInForASendBackMakesADeadLetterAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		err error
		max int
	}{
		"DeadLetter":                {pocketmq.DeadLetter(errFails), 0},
		"DeadLetter with a maximum": {pocketmq.DeadLetter(errFails), 5},
		"NoRetries":                 {errFails, pocketmq.NoRetries},
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s killed=%v", name, killed), func(t *testing.T) {
				if killed {
					ofMemory(t, "over frames the queue may be given up first: its message comes again when the broker is back")
				}
				bubble(t, func(t *testing.T) {
					c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
					p := producer(t, c, pocketmq.ProducerConfig{})
					if !killed {
						c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, Err: errFails})
					}
					var in inbox
					consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), MaxReconsume: tc.max,
						Handler: in.failing("c", func(m *pocketmq.MessageExt) error {
							if killed && m.ReconsumeTimes == 0 {
								if err := c.Kill("broker-a", 0); err != nil {
									return err
								}
							}
							return tc.err
						})})
					res, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
					require.NoError(t, err)
					time.Sleep(3 * time.Hour) // the last level is 2 h
					synctest.Wait()
					assert.Len(t, in.arrivals(), 1, "no further attempt")
					var letters []stored
					for _, broker := range []string{"broker-a", "broker-b"} {
						if !killed || broker == "broker-b" {
							letters = append(letters, lettersAt(t, c, broker)...)
						}
					}
					assert.Equal(t, []stored{{body: "x", id: res.MsgID}}, letters, "exactly one copy")
				})
			})
		}
	}
}

// lettersAt returns the dead letters of group g at one broker, none when it has no
// such topic.
func lettersAt(t testing.TB, c *pocketmq.Cluster, broker string) []stored {
	t.Helper()
	route, err := c.Admin().Route(t.Context(), "%DLQ%g")
	require.NoError(t, err)
	for _, q := range route.Queues {
		if q.BrokerName == broker {
			return queueContent(t, c, queue("%DLQ%g", broker, 0))
		}
	}
	return nil
}

func TestAFailedMessageMayComeTwiceWhenTheAnswerIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, DropReply: true, Times: 1})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.failing("c", func(m *pocketmq.MessageExt) error {
			if m.ReconsumeTimes == 0 {
				return errFails
			}
			return nil
		})})
		id := sendNow(t, p, text("T", "x"))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, in.arrivals(), 3, "one copy by the send-back, one by the send after it")
		for _, a := range in.arrivals() {
			assert.Equal(t, id, a.msg.MsgID, "handlers can tell")
		}
	})
}

func TestRetriesSurviveTheirBrokerAndTheirConsumer(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *pocketmq.Cluster, co *pocketmq.Consumer){
		"the broker is killed": func(t *testing.T, c *pocketmq.Cluster, _ *pocketmq.Consumer) {
			require.NoError(t, c.Kill("broker-a", 0))
			time.Sleep(3 * time.Second)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		},
		"the broker is restarted after its time": func(t *testing.T, c *pocketmq.Cluster, _ *pocketmq.Consumer) {
			require.NoError(t, c.Kill("broker-a", 0))
			time.Sleep(time.Minute)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		},
		"the consumer vanishes": func(t *testing.T, c *pocketmq.Cluster, co *pocketmq.Consumer) {
			links(t, c).Drop(co.ClientID(), "*")
		},
		"the consumer is closed": func(t *testing.T, _ *pocketmq.Cluster, co *pocketmq.Consumer) {
			require.NoError(t, co.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
				p := producer(t, c, pocketmq.ProducerConfig{})
				var in inbox
				handler := func(who string) func(context.Context, []*pocketmq.MessageExt) error {
					return in.failing(who, func(m *pocketmq.MessageExt) error {
						if m.ReconsumeTimes == 0 {
							return errFails
						}
						return nil
					})
				}
				co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: handler("first")})
				for i := range 20 {
					sendNow(t, p, text("T", "%d", i))
				}
				synctest.Wait()
				require.EqualValues(t, 20, co.Status().SentBack)
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: handler("second")})
				time.Sleep(6 * time.Second) // the offsets are committed
				end(t, c, co)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				again := make(map[string]bool)
				for _, a := range in.arrivals() {
					if a.msg.ReconsumeTimes > 0 {
						again[string(a.msg.Body)] = true
					}
				}
				assert.Len(t, again, 20, "none is lost")
				links(t, c).HealAll()
			})
		})
	}
}

func TestAMessageIsSentBackWhenItsHandlerTakesTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		release := make(chan struct{})
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			in.put("c", msgs)
			if msgs[0].ReconsumeTimes == 0 {
				<-release
			}
			return nil
		}})
		sendNow(t, p, text("T", "x"))
		sent := time.Now()
		time.Sleep(15*time.Minute + 10*time.Second)
		synctest.Wait()
		require.Len(t, in.arrivals(), 2)
		assert.Equal(t, 15*time.Minute+10*time.Second, in.arrivals()[1].at.Sub(sent))
		assert.Equal(t, 1, in.arrivals()[1].msg.ReconsumeTimes)
		assert.Equal(t, int64(1), committed(t, c, "g", queue("T", "broker-a", 0)))
		close(release)
		time.Sleep(time.Hour)
		assert.Len(t, in.arrivals(), 2)
		assert.Equal(t, pocketmq.ConsumerStatus{Received: 2, Consumed: 1, Failed: 1, SentBack: 1}, co.Status())
	})
}

func TestRetryQueuesAreNobodysAssignment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		var calls sync.Map
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}, OnEvent: events.add})
		var consumers []*pocketmq.Consumer
		for range 3 {
			consumers = append(consumers, consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: nothing,
				Strategy: queueWatcher(func(q pocketmq.MessageQueue) { calls.Store(q.Topic, true) })}))
		}
		time.Sleep(time.Minute)
		n := 0
		for _, co := range consumers {
			for _, q := range co.Assignment() {
				assert.Equal(t, "T", q.Topic)
				n++
			}
		}
		assert.Equal(t, 4, n)
		for _, e := range eventsOf[pocketmq.Rebalanced](&events) {
			assert.Equal(t, "T", e.Topic)
		}
		calls.Range(func(topic, _ any) bool {
			assert.Equal(t, "T", topic, "strategies share what was subscribed to")
			return true
		})
	})
}

// queueWatcher shares as strategy does and shows the queues it was asked about.
type queueWatcher func(q pocketmq.MessageQueue)

func (w queueWatcher) Name() string { return "WATCHER" }

func (w queueWatcher) Allocate(group, self string, queues []pocketmq.MessageQueue, members []string) ([]pocketmq.MessageQueue, error) {
	for _, q := range queues {
		w(q)
	}
	return strategy(func() {}).Allocate(group, self, queues, members)
}

func TestCP09_AFailingMessageHasOnePendingCopyAfterEachShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		var fails atomic.Int64
		for i := range 4 {
			sendNow(t, p, text("T", "%d", i))
		}
		q, retry := queue("T", "broker-a", 0), queue("%RETRY%g", "broker-a", 0)
		for cycle := range 5 {
			co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset,
				Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
					in.put("c", msgs)
					time.Sleep(300 * time.Millisecond)
					if string(msgs[0].Body) == "0" {
						fails.Add(1)
						return errFails
					}
					return nil
				}})
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, co.Shutdown(t.Context()))
			time.Sleep(time.Hour)
			assert.EqualValues(t, cycle+1, fails.Load())
			assert.EqualValues(t, 4, committed(t, c, "g", q))
			assert.Len(t, queueContent(t, c, retry), cycle+1)
			assert.EqualValues(t, cycle, max(committed(t, c, "g", retry), 0), "one is pending")
		}
		for i := 1; i < 4; i++ {
			assert.Len(t, in.of(fmt.Sprint(i)), 1, "finished messages do not come back")
		}
	})
}

func TestTheSettingsOfAGroupSayHowOftenItTries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "two", MaxReconsume: 2}))
		require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "own", MaxReconsume: 2}))
		var two, own inbox
		fails := func(*pocketmq.MessageExt) error { return errFails }
		consumer(t, c, pocketmq.ConsumerConfig{Group: "two", Subscriptions: all("T"), Handler: two.failing("c", fails)})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "own", Subscriptions: all("T"), Handler: own.failing("c", fails), MaxReconsume: 4})
		sendNow(t, p, text("T", "x"))
		time.Sleep(3 * time.Hour) // the last level is 2 h
		synctest.Wait()
		assert.Len(t, two.arrivals(), 3)
		assert.Len(t, own.arrivals(), 5, "a consumer's own maximum outweighs that of the group")
	})
}

// Members join, leave and vanish, links and brokers fail, handlers fail, and so
// do send-backs: each message is consumed in the end, or is a dead letter.
func TestNoFailedMessageIsLostInChurn(t *testing.T) {
	for round := range rounds(3) {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			seed := rand.Uint64()
			bubble(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("seed %d", seed)
					}
				}()
				rnd := rand.New(rand.NewPCG(seed, 0))
				var timings pocketmq.Timings
				timings.DelayLevels = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second}
				c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b", "broker-c"), Topics: map[string]int{"T": 4}, Dir: t.TempDir(), Timings: timings})
				p := producer(t, c, pocketmq.ProducerConfig{})
				var mu sync.Mutex
				consumed := make(map[string]int)
				handler := func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
					mu.Lock()
					defer mu.Unlock()
					for i, m := range msgs {
						switch fate := rnd.IntN(100); {
						case fate < 20:
							return pocketmq.Done(i, errFails)
						case fate < 22:
							return pocketmq.Done(i, pocketmq.DeadLetter(errFails))
						case fate < 25:
							return pocketmq.Done(i, pocketmq.RetryAfter(errFails, 1))
						}
						consumed[string(m.Body)]++
					}
					return nil
				}
				join := func() *pocketmq.Consumer {
					mu.Lock()
					batch := 1 + rnd.IntN(4)
					mu.Unlock()
					return consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: handler, BatchSize: batch, MaxReconsume: 3})
				}
				members := []*pocketmq.Consumer{join(), join()}
				total := 0
				for range 40 {
					for range 25 {
						if _, err := p.Send(t.Context(), text("T", "%d", total)); err == nil {
							total++
						}
					}
					mu.Lock()
					what, who, broker := rnd.IntN(8), rnd.IntN(len(members)), []string{"broker-a", "broker-b", "broker-c"}[rnd.IntN(3)]
					wait := time.Duration(rnd.IntN(4000)) * time.Millisecond
					mu.Unlock()
					switch what {
					case 0:
						if len(members) < 5 {
							members = append(members, join())
						}
					case 1:
						if len(members) > 1 {
							assert.NoError(t, members[who].Close())
							members = append(members[:who], members[who+1:]...)
						}
					case 2:
						if len(members) > 1 {
							assert.NoError(t, members[who].Shutdown(t.Context()))
							members = append(members[:who], members[who+1:]...)
						}
					case 3:
						c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, Times: 20, Err: errFails})
					case 4:
						c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, Times: 3, DropReply: true})
						c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Topic: "%RETRY%g", Times: 20, Err: errFails})
					case 5:
						require.NoError(t, c.Kill(broker, 0))
						time.Sleep(wait)
						require.NoError(t, c.Restart(t.Context(), broker, 0))
					case 6:
						links(t, c).Cut(members[who].ClientID(), broker+"/0")
						time.Sleep(wait)
						links(t, c).HealAll()
					}
					time.Sleep(wait)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				dead := make(map[string]bool)
				for _, g := range []string{"broker-a", "broker-b", "broker-c"} {
					stats, err := c.Admin().TopicStats(t.Context(), "%DLQ%g")
					require.NoError(t, err)
					if _, ok := stats[queue("%DLQ%g", g, 0)]; !ok {
						continue
					}
					for _, s := range queueContent(t, c, queue("%DLQ%g", g, 0)) {
						dead[s.body] = true
					}
				}
				mu.Lock()
				defer mu.Unlock()
				require.Positive(t, total)
				assert.NotEmpty(t, dead)
				for n := range total {
					body := fmt.Sprint(n)
					assert.True(t, consumed[body] > 0 || dead[body], "message %s of %d is lost", body, total)
				}
				lags, err := c.Admin().Lag(t.Context(), "g")
				require.NoError(t, err)
				for _, l := range lags {
					assert.Zero(t, l.Lag, "%v", l.Queue)
				}
			})
		})
	}
}

// BenchmarkFailing is how many messages a second a consumer fails once, gives
// back, and gets again.
func BenchmarkFailing(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			cfg := pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}}
			cfg.Timings.DelayLevels = []time.Duration{time.Millisecond}
			c := run(b, cfg)
			p := producer(b, c, pocketmq.ProducerConfig{})
			for i := 0; i < b.N; i += 100 {
				ms := make([]*pocketmq.Message, min(100, b.N-i))
				for j := range ms {
					ms[j] = &pocketmq.Message{Topic: "T", Body: benchBody(128)}
				}
				_, err := p.SendBatch(context.Background(), ms)
				require.NoError(b, err)
			}
			count := newCounter()
			b.ReportAllocs()
			b.ResetTimer()
			consumer(b, c, pocketmq.ConsumerConfig{Group: "g", From: pocketmq.FromFirstOffset, Subscriptions: all("T"), BatchSize: batch, Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				if msgs[0].ReconsumeTimes == 0 {
					return errFails
				}
				count.add(len(msgs))
				return nil
			}})
			count.wait(int64(b.N))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}
