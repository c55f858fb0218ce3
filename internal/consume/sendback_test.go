package consume

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

var errBoom = errors.New("boom")

// failing fails the messages with these bodies.
func failing(bodies ...string) func(*message.Ext) error {
	return func(m *message.Ext) error {
		for _, b := range bodies {
			if string(m.Body) == b {
				return errBoom
			}
		}
		return nil
	}
}

func refuseBack(context.Context, *protocol.ConsumerSendMsgBackRequest) error {
	return protocol.Errorf(protocol.SystemError, "no send-back")
}

func refuseSend(*protocol.SendMessageRequest) error {
	return protocol.Errorf(protocol.SystemError, "no send")
}

func TestCP01OffsetPassesAFailedMessageOnlyWhenABrokerHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		b := w.brokers["a"]
		b.back, b.send = refuseBack, refuseSend
		in := &inbox{fail: failing("m3")}
		e, _ := w.member("c1", in, nil)
		require.NoError(t, e.Start(t.Context()))
		w.send(q, numbered(0, 10)...)
		time.Sleep(21 * time.Second)
		assert.Equal(t, int64(3), w.committed(q))
		times := 0
		for _, d := range in.all() {
			if d.body == "m3" {
				assert.Equal(t, times, d.times, "each attempt here counts")
				times++
			}
		}
		assert.Equal(t, 5, times, "again every 5 s")
		assert.Equal(t, Status{Received: 10, Consumed: 9, Failed: 5}, e.Status())
		require.NoError(t, e.Close())
		assert.Equal(t, int64(3), w.committed(q))

		w.change(func() { b.back, b.send = nil, nil })
		again := &inbox{fail: failing("m3")}
		e, _ = w.member("c2", again, nil)
		start(t, e)
		synctest.Wait()
		assert.Contains(t, again.bodies(), "m3")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(10), w.committed(q), "the broker has a copy now")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		retry, copies := w.retries("a")
		assert.Equal(t, 1, copies)
		last := again.all()[len(again.all())-1]
		assert.Equal(t, delivery{at: time.Now(), body: "m3", queue: retry, offset: 0, times: 1}, last)
	})
}

func TestWhatASendBackSays(t *testing.T) {
	most := func(n int32) *int32 { return &n }
	for name, tc := range map[string]struct {
		err  error
		max  int
		want protocol.ConsumerSendMsgBackRequest
	}{
		"an error":      {errBoom, GroupMaximum, protocol.ConsumerSendMsgBackRequest{}},
		"a maximum":     {errBoom, 7, protocol.ConsumerSendMsgBackRequest{MaxReconsumeTimes: most(7)}},
		"no retries":    {errBoom, 0, protocol.ConsumerSendMsgBackRequest{MaxReconsumeTimes: most(0)}},
		"a level":       {RetryAfter(errBoom, 2), GroupMaximum, protocol.ConsumerSendMsgBackRequest{DelayLevel: 2}},
		"a dead letter": {DeadLetter(errBoom), 7, protocol.ConsumerSendMsgBackRequest{DelayLevel: -1, MaxReconsumeTimes: most(7)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				var second atomic.Bool
				in := &inbox{fail: func(m *message.Ext) error {
					if m.ReconsumeTimes < 2 {
						second.Store(m.ReconsumeTimes == 1)
						m.Topic, m.MsgID, m.CommitLogOffset = "changed", "by the handler", 99
						return tc.err
					}
					return nil
				}}
				e, _ := w.member("c1", in, func(c *Config) { c.MaxReconsume = tc.max })
				start(t, e)
				w.send(queueOf("a", 0), "x", "y")
				time.Sleep(time.Minute)
				want := tc.want
				want.Group, want.Position, want.MsgID, want.Topic = testGroup, 2, "K1", testTopic
				var of []protocol.ConsumerSendMsgBackRequest
				for _, b := range w.backs("a") {
					if b.req.MsgID == "K1" {
						of = append(of, b.req)
					}
				}
				require.NotEmpty(t, of)
				assert.Equal(t, want, of[0])
				if want.DelayLevel >= 0 {
					require.Len(t, of, 2)
					assert.NotEqual(t, want.Position, of[1].Position, "the retried copy is another record")
					want.Position = of[1].Position
					assert.Equal(t, want, of[1], "of the original topic all the same")
				} else {
					assert.False(t, second.Load(), "no further attempt")
				}
			})
		})
	}
}

func TestFallbackIsAnOrdinarySendToTheRetryTopic(t *testing.T) {
	hosts := netip.MustParseAddrPort("127.0.0.1:10911")
	record := func(edit func(*message.Record), props map[string]string) message.View {
		rec := message.Record{
			QueueID: 1, QueueOffset: 5, Position: 77, Flag: 3, SysFlag: message.FlagCompressed | 0x200 | message.FlagTransactionCommit,
			BornTime: 1234, StoreTime: 5678, BornHost: hosts, StoreHost: hosts, Body: []byte("packed"), Topic: testTopic,
			Properties: message.EncodeProperties(props),
		}
		if edit != nil {
			edit(&rec)
		}
		data, err := message.AppendRecord(nil, &rec)
		require.NoError(t, err)
		view, err := message.ParseView(data)
		require.NoError(t, err)
		return view
	}
	cfg := &Config{Group: testGroup, MaxReconsume: GroupMaximum}
	want := protocol.SendMessageRequest{
		ProducerGroup: "CLIENT_INNER_PRODUCER", Topic: "%RETRY%g", DefaultTopic: "TBW102", DefaultTopicQueues: 1, QueueID: -1,
		SysFlag: message.FlagCompressed | 0x200, BornTime: time.UnixMilli(1234), Flag: 3, ReconsumeTimes: 1, Body: []byte("packed"),
	}
	check := func(name string, want protocol.SendMessageRequest, props map[string]string, got *protocol.SendMessageRequest) {
		t.Helper()
		assert.Equal(t, props, message.DecodeProperties(got.Properties), name)
		want.Properties = got.Properties
		assert.Equal(t, want, *got, name)
	}

	first := map[string]string{"UNIQ_KEY": "K", "TAGS": "t", "KEYS": "a b", "user": "v", "TRAN_MSG": "true", "WAIT": "false", "DELAY": "9",
		"REAL_TOPIC": "x", "REAL_QID": "1", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "6", "TIMER_DELAY_SEC": "7", "__CRC32#": "8"}
	check("first failure", want, map[string]string{"UNIQ_KEY": "K", "TAGS": "t", "KEYS": "a b", "user": "v",
		"RETRY_TOPIC": testTopic, "ORIGIN_MESSAGE_ID": "K", "DELAY": "3"}, fallback(cfg, record(nil, first), 0, 0))

	again := map[string]string{"UNIQ_KEY": "K", "RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "O", "DELAY": "4"}
	retried := record(func(r *message.Record) { r.ReconsumeTimes, r.Topic = 2, "%RETRY%g" }, again)
	want.ReconsumeTimes = 5
	check("after two failures there and two here", want,
		map[string]string{"UNIQ_KEY": "K", "RETRY_TOPIC": "first", "ORIGIN_MESSAGE_ID": "O", "DELAY": "7"}, fallback(cfg, retried, 2, 0))

	want.ReconsumeTimes = 1
	foreign := record(nil, nil)
	check("without a unique key", want,
		map[string]string{"RETRY_TOPIC": testTopic, "ORIGIN_MESSAGE_ID": message.OffsetMsgID(hosts, 77), "DELAY": "3"}, fallback(cfg, foreign, 0, 0))
	props := map[string]string{"RETRY_TOPIC": testTopic, "ORIGIN_MESSAGE_ID": message.OffsetMsgID(hosts, 77), "DELAY": "12"}
	check("a wish for a level", want, props, fallback(cfg, foreign, 0, 12))
	delete(props, "DELAY")
	most := [2]int32{0, 4}
	want.MaxReconsumeTimes = &most[0] // it has failed once already
	check("a dead letter", want, props, fallback(cfg, foreign, 0, -1))
	props["DELAY"] = "3"
	check("no retries", want, props, fallback(&Config{Group: testGroup}, foreign, 0, 0))
	want.MaxReconsumeTimes = &most[1]
	check("a maximum", want, props, fallback(&Config{Group: testGroup, MaxReconsume: 4}, foreign, 0, 0))
}

func TestAMessageThatItsBrokerDoesNotTakeBackGoesToAnother(t *testing.T) {
	for name, fault := range map[string]func(b *fakeBroker){
		"refused":     func(b *fakeBroker) { b.back = refuseBack },
		"unreachable": func(b *fakeBroker) { b.down = true; b.epoch++ },
		"silent":      func(b *fakeBroker) { b.silent = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.topic(testTopic, "a", 1)
				w.topic(testTopic, "b", 1)
				release := make(chan struct{})
				in := new(inbox)
				e, _ := w.member("c1", nil, func(c *Config) {
					c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
						if msgs[0].ReconsumeTimes == 0 {
							<-release
							return errBoom
						}
						return in.handle(ctx, msgs)
					}
				})
				start(t, e)
				w.send(queueOf("a", 0), "x")
				synctest.Wait()
				w.change(func() { fault(w.brokers["a"]) })
				close(release)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				assert.Empty(t, w.sends("a"))
				assert.Len(t, w.sends("b"), 1)
				assert.EqualValues(t, 1, e.Status().SentBack)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Len(t, in.all(), 1)
				got := in.all()[0]
				assert.Equal(t, message.Queue{Topic: "%RETRY%g", BrokerName: "b"}, got.queue)
				assert.Equal(t, 1, got.times)
				w.change(func() { w.brokers["a"].down, w.brokers["a"].silent = false, false })
				time.Sleep(10 * time.Second)
				assert.Equal(t, int64(1), w.committed(queueOf("a", 0)))
			})
		})
	}
}

func TestASilentBrokerKeepsNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		in := &inbox{fail: failing("bad", "bad too")}
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency = 1 })
		start(t, e)
		synctest.Wait()
		never := make(chan struct{})
		w.change(func() {
			w.brokers["a"].back = func(context.Context, *protocol.ConsumerSendMsgBackRequest) error { <-never; return nil }
		})
		w.send(queueOf("a", 0), "bad")
		w.send(queueOf("b", 0), numbered(0, 50)...)
		w.send(queueOf("b", 0), "bad too")
		synctest.Wait()
		assert.Len(t, in.all(), 52)
		assert.Zero(t, e.Status().Running)
		assert.EqualValues(t, 1, e.Status().SentBack, "nor what belongs to another broker")
		close(never)
	})
}

func TestNothingIsGivenBackAfterTheHandlersWereCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.BatchSize, c.PullBatchSize = 4, 4
			c.Handler = func(ctx context.Context, _ []*message.Ext) error {
				<-ctx.Done()
				return Done(2, ctx.Err())
			}
		})
		w.send(queueOf("a", 0), numbered(0, 4)...)
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		require.NoError(t, e.Close())
		assert.Equal(t, int64(2), w.committed(queueOf("a", 0)), "what the handler says it has done is done")
		assert.Zero(t, w.calls("a", "ConsumerSendMsgBack"))
		assert.Equal(t, Status{Received: 4, Consumed: 2}, e.Status())
	})
}

func TestWhatIsBeingGivenBackIsWaitedForAtTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		stop func(t *testing.T, e *Engine) error
		want time.Duration // until it has returned
		kept bool          // the message was not given back
	}{
		"Shutdown": {func(t *testing.T, e *Engine) error { return e.Shutdown(t.Context()) }, 2 * time.Second, false},
		"Shutdown with a deadline": {func(t *testing.T, e *Engine) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return e.Shutdown(ctx)
		}, time.Second, true},
		"Close": {func(_ *testing.T, e *Engine) error { return e.Close() }, 2 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				w.brokers["a"].back = func(ctx context.Context, _ *protocol.ConsumerSendMsgBackRequest) error {
					pause(ctx, 2*time.Second)
					return ctx.Err()
				}
				e, _ := w.member("c1", &inbox{fail: failing("bad")}, nil)
				require.NoError(t, e.Start(t.Context()))
				w.send(queueOf("a", 0), "bad")
				synctest.Wait()
				began := time.Now()
				err := tc.stop(t, e)
				if tc.kept {
					assert.Equal(t, int64(-1), w.committed(queueOf("a", 0)), "%v", err)
				} else {
					assert.NoError(t, err)
					assert.Equal(t, int64(1), w.committed(queueOf("a", 0)))
				}
				assert.Equal(t, tc.want, time.Since(began))
				require.NoError(t, e.Close())
			})
		})
	}
	t.Run("Close with a silent broker", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.topic(testTopic, "a", 1)
			e, _ := w.member("c1", &inbox{fail: failing("bad")}, func(c *Config) { c.CloseTimeout = time.Second })
			require.NoError(t, e.Start(t.Context()))
			synctest.Wait()
			w.send(queueOf("a", 0), "bad")
			w.change(func() { w.brokers["a"].silent = true })
			synctest.Wait()
			began := time.Now()
			require.NoError(t, e.Close())
			assert.LessOrEqual(t, time.Since(began), time.Second/2+leaveTimeout)
			w.change(func() { w.brokers["a"].silent = false })
		})
	})
}

func TestARevokedQueueIsNotGivenBackByItsOldOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		turn := make(chan struct{})
		w.brokers["a"].back = func(context.Context, *protocol.ConsumerSendMsgBackRequest) error { <-turn; return nil }
		e, _ := w.member("c2", &inbox{fail: failing("x", "y")}, func(c *Config) { c.Concurrency = 1 })
		start(t, e)
		w.send(queueOf("a", 1), "x")
		synctest.Wait()
		w.send(queueOf("a", 0), "y") // behind the first
		synctest.Wait()
		other := new(inbox)
		e1, _ := w.member("c1", other, nil) // takes queue 0
		start(t, e1)
		synctest.Wait()
		assert.Equal(t, []string{"y"}, other.bodies())
		close(turn)
		synctest.Wait()
		assert.Equal(t, 1, w.calls("a", "ConsumerSendMsgBack"), "the new owner has got it from the queue")
	})
}

func TestARetryTopicThatIsMadeLateIsFoundAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.noRetry = true
		w.topic(testTopic, "a", 1)
		w.brokers["a"].back = func(_ context.Context, r *protocol.ConsumerSendMsgBackRequest) error {
			w.topic(message.RetryTopic(r.Group), "a", 1)
			return nil
		}
		log := new(lines)
		in := &inbox{fail: func(m *message.Ext) error {
			if m.ReconsumeTimes == 0 {
				return RetryAfter(errBoom, 1)
			}
			return nil
		}}
		e, _ := w.member("c1", in, func(c *Config) { c.Logger = log.logger(); c.RouteRetry = time.Hour })
		start(t, e)
		w.send(queueOf("a", 0), "x")
		sent := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, in.all(), 2)
		assert.Equal(t, time.Second, in.all()[1].at.Sub(sent))
		assert.Equal(t, []message.Queue{queueOf("a", 0)}, e.Assignment(), "no user sees its queues")
		assert.False(t, strings.Contains(log.String(), "no route"), "it is nobody's mistake")
	})
}

func TestOverdueMessagesAreGivenBackWhenTheirTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		release := make(chan struct{})
		in := new(inbox)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.ConsumeTimeout = 15 * time.Minute
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				if string(msgs[0].Body) == "slow" && msgs[0].ReconsumeTimes == 0 {
					<-release
				}
				return in.handle(ctx, msgs)
			}
		})
		start(t, e)
		time.Sleep(7 * time.Minute)
		q := queueOf("a", 0)
		w.send(q, "slow", "quick")
		began := time.Now()
		time.Sleep(15*time.Minute - 1)
		synctest.Wait()
		assert.Equal(t, []string{"quick"}, in.bodies())
		assert.Zero(t, w.calls("a", "ConsumerSendMsgBack"))
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Len(t, w.backs("a"), 1)
		assert.Equal(t, lateLevel, w.backs("a")[0].req.DelayLevel)
		assert.Equal(t, Status{Received: 2, Consumed: 1, Failed: 1, SentBack: 1, Running: 1}, e.Status())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, in.all(), 2)
		assert.Equal(t, 15*time.Minute+10*time.Second, in.all()[1].at.Sub(began))
		assert.Equal(t, 1, in.all()[1].times)
		assert.Equal(t, int64(2), w.committed(q))
		close(release)
		synctest.Wait()
		assert.Equal(t, Status{Received: 3, Consumed: 2, Failed: 1, SentBack: 1}, e.Status(), "a late result does not count")
	})
}

func TestALateResultDoesNotFinishTheNextDelivery(t *testing.T) {
	for name, late := range map[string]error{"consumed": nil, "failed": errBoom} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				w.brokers["a"].back, w.brokers["a"].send = refuseBack, refuseSend
				first, second := make(chan struct{}), make(chan struct{})
				e, _ := w.member("c1", nil, func(c *Config) {
					c.ConsumeTimeout = time.Minute
					c.Handler = func(_ context.Context, msgs []*message.Ext) error {
						if msgs[0].ReconsumeTimes == 0 {
							<-first
							return late
						}
						<-second
						return nil
					}
				})
				start(t, e)
				q := queueOf("a", 0)
				w.send(q, "x")
				time.Sleep(time.Minute + keepDelay)
				synctest.Wait()
				require.Equal(t, 2, e.Status().Running)
				calls := w.calls("a", "ConsumerSendMsgBack")
				close(first)
				time.Sleep(10 * time.Second)
				assert.Equal(t, calls, w.calls("a", "ConsumerSendMsgBack"))
				assert.LessOrEqual(t, w.committed(q), int64(0))
				assert.Equal(t, Status{Received: 1, Failed: 1, Running: 1}, e.Status())
				close(second)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				assert.Equal(t, int64(1), w.committed(q))
			})
		})
	}
}
