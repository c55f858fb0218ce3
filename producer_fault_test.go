package pocketmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/protocol"
)

var busy = &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}

// sendUntil sends to topic T, one message after the other, until cond holds.
func sendUntil(t *testing.T, p *pocketmq.Producer, cond func() bool) {
	t.Helper()
	for range 100 {
		if cond() {
			return
		}
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
	}
	t.Fatal("a hundred sends did not do")
}

// brokersOf are the brokers that n sends to topic T went to.
func brokersOf(t *testing.T, p *pocketmq.Producer, n int) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for range n {
		res, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		out[res.Queue.BrokerName]++
	}
	return out
}

// rowOf is a broker's row of the table.
func rowOf(t *testing.T, p *pocketmq.Producer, broker string) fault.Item {
	t.Helper()
	for _, item := range p.FaultTable() {
		if item.Broker == broker {
			return item
		}
	}
	t.Fatalf("%s is not in the table %+v", broker, p.FaultTable())
	return fault.Item{}
}

// Who is avoided, from when until when, under each of the presets: broker-a
// takes 600 ms a message, broker-b answers with an error.
func TestSlowAndFailingBrokersAreAvoidedExactlyAsLongAsTheSettingsSay(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg          fault.Config
		slow, failed time.Duration // avoided for this long; 0 = not at all
	}{
		"off":     {fault.Config{}, 0, 0},
		"V5":      {fault.V5(), 2 * time.Second, 10 * time.Second},
		"V4":      {fault.V4(), 30 * time.Second, 30 * time.Second},
		"Breaker": {fault.Breaker(), time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 2}, OnEvent: events.add})
				for broker, avoided := range map[string]time.Duration{"broker-a": tc.slow, "broker-b": tc.failed} {
					f := pocketmq.Fault{Node: broker + "/0", Code: protocol.CodeSendMessage, Err: busy}
					if broker == "broker-a" {
						f.Err, f.Delay = nil, 600*time.Millisecond
					}
					h := c.Inject(f)
					p := producer(t, c, pocketmq.ProducerConfig{Fault: tc.cfg})
					sendUntil(t, p, func() bool { return h.Hits() == 1 })
					seen := time.Now()
					if avoided == 0 {
						sendUntil(t, p, func() bool { return h.Hits() == 2 })
						assert.Empty(t, p.FaultTable())
						h.Remove()
						continue
					}
					row := rowOf(t, p, broker)
					assert.Equal(t, avoided, row.AvailableFrom.Sub(seen), broker)
					assert.Equal(t, broker == "broker-a", row.Reachable, broker)
					synctest.Wait()
					all := eventsOf[pocketmq.BrokerAvoided](&events)
					last := all[len(all)-1]
					assert.Equal(t, broker, last.Broker)
					assert.Equal(t, p.ClientID(), last.Node)
					assert.True(t, seen.Equal(last.Time))
					assert.True(t, row.AvailableFrom.Equal(last.Until))
					assert.Equal(t, row.Latency, last.Latency)
					if broker == "broker-a" {
						assert.Equal(t, 600*time.Millisecond, row.Latency)
					}

					sleepUntil(row.AvailableFrom.Add(-1))
					assert.Len(t, brokersOf(t, p, 60), 2)
					assert.Equal(t, 1, h.Hits(), "%s is avoided to the last instant", broker)
					sleepUntil(row.AvailableFrom)
					sendUntil(t, p, func() bool { return h.Hits() == 2 })
					synctest.Wait()
					assert.Len(t, eventsOf[pocketmq.BrokerAvoided](&events), len(all)+1, "again")
					h.Remove()
				}
			})
		})
	}
}

func TestBeyondTheLimitOfTheBreakerTheBrokerAvoidedLongestIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.Breaker()})
		for _, broker := range []string{"broker-a", "broker-b"} {
			h := c.Inject(pocketmq.Fault{Node: broker + "/0", Code: protocol.CodeSendMessage, Times: 1, Err: busy})
			_, err := p.SendTo(t.Context(), queue("T", broker, 0), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, 1, h.Hits())
			time.Sleep(time.Second)
		}
		got := brokersOf(t, p, 60)
		assert.Zero(t, got["broker-b"], "one of three may be avoided")
		assert.GreaterOrEqual(t, got["broker-a"], 20, "its share")
		assert.True(t, time.Now().Before(rowOf(t, p, "broker-a").AvailableFrom), "although the table has it as isolated")
	})
}

func TestFT01_ARetryGoesToAnotherBroker(t *testing.T) {
	looksFine := fault.Config{Enabled: true, LatencyMax: []time.Duration{time.Hour}, NotAvailable: []time.Duration{time.Second}}
	for name, cfg := range map[string]fault.Config{"off": {}, "V5": fault.V5(), "never isolated": looksFine} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
				p := producer(t, c, pocketmq.ProducerConfig{Fault: cfg})
				h := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Err: busy})
				for i := range 100 {
					before := p.Status().Retried
					res, err := p.Send(t.Context(), text("T", "%d", i))
					require.NoError(t, err)
					assert.Equal(t, "broker-b", res.Queue.BrokerName)
					assert.LessOrEqual(t, p.Status().Retried-before, int64(1), "attempts of message %d beyond the first", i)
				}
				assert.Equal(t, p.Status().Retried, int64(h.Hits()), "never a then a")
				if name == "V5" {
					assert.Equal(t, 1, h.Hits(), "avoided after its first answer")
				} else {
					assert.GreaterOrEqual(t, h.Hits(), 20)
				}
			})
		})
	}
}

func TestFT02_TheRouteStaysWhatItIsAndSendsSpreadAfterRecovery(t *testing.T) {
	for name, cfg := range map[string]fault.Config{"V5": fault.V5(), "Breaker": fault.Breaker()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
				p := producer(t, c, pocketmq.ProducerConfig{Fault: cfg})
				before, err := p.Queues(t.Context(), "T")
				require.NoError(t, err)
				require.Equal(t, queuesOf(2, "broker-a", "broker-b"), before)
				for _, broker := range []string{"broker-a", "broker-b"} {
					c.Inject(pocketmq.Fault{Node: broker + "/0", Code: protocol.CodeSendMessage, Times: 1, Err: busy})
					_, err := p.SendTo(t.Context(), queue("T", broker, 0), text("T", "x"))
					require.NoError(t, err)
				}
				spread := func(total int) map[pocketmq.MessageQueue]int {
					var mu sync.Mutex
					n := make(map[pocketmq.MessageQueue]int)
					var wg sync.WaitGroup
					for range 8 {
						wg.Go(func() {
							for range total / 8 {
								res, err := p.Send(context.Background(), text("T", "x"))
								if !assert.NoError(t, err) {
									return
								}
								mu.Lock()
								n[res.Queue]++
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					return n
				}
				spread(48) // with both isolated
				after, err := p.Queues(t.Context(), "T")
				require.NoError(t, err)
				assert.Equal(t, before, after)

				time.Sleep(time.Minute)
				for q, n := range spread(400) {
					assert.InDelta(t, 100, n, 20, "%v", q)
				}
				after, err = p.Queues(t.Context(), "T")
				require.NoError(t, err)
				assert.Equal(t, before, after)
			})
		})
	}
}

func TestFT04_ASilentBrokerCostsOneAttemptOnceItIsAvoided(t *testing.T) {
	for name, tc := range map[string]struct {
		attempt, first time.Duration
	}{
		"a share of the budget": {0, time.Second},
		"AttemptTimeout":        {200 * time.Millisecond, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 2}})
				p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.V5(), AttemptTimeout: tc.attempt})
				c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Drop: true})
				begin := time.Now()
				for range 30 {
					res, err := p.Send(t.Context(), text("T", "x"))
					require.NoError(t, err)
					assert.NotEqual(t, "broker-a", res.Queue.BrokerName)
				}
				assert.Equal(t, tc.first, time.Since(begin), "thirty sends together")
				assert.Equal(t, int64(1), p.Status().Retried)
				row := rowOf(t, p, "broker-a")
				assert.Equal(t, tc.first, row.Latency)
				assert.Equal(t, 10*time.Second, time.Until(row.AvailableFrom))
				assert.True(t, row.Reachable, "nobody would find out that it is again")
			})
		})
	}
}

// What each end of an attempt means for the broker.
func TestHowAttemptsAreReported(t *testing.T) {
	type sender func(*testing.T, *pocketmq.Producer)
	sync := func(t *testing.T, p *pocketmq.Producer) { _, _ = p.Send(t.Context(), text("T", "x")) }
	async := func(t *testing.T, p *pocketmq.Producer) {
		require.NoError(t, p.SendAsync(t.Context(), text("T", "x"), func(*pocketmq.SendResult, error) {}))
	}
	oneway := func(t *testing.T, p *pocketmq.Producer) { assert.Error(t, p.SendOneway(t.Context(), text("T", "x"))) }
	within := func(d time.Duration, cancelled bool) sender {
		return func(t *testing.T, p *pocketmq.Producer) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			if cancelled {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(d, cancel)
			}
			_, err := p.Send(ctx, text("T", "x"))
			assert.Error(t, err)
		}
	}
	bad := &pocketmq.Error{Code: protocol.MessageIllegal, Remark: "bad"}
	for name, tc := range map[string]struct {
		cfg      fault.Config
		fault    pocketmq.Fault
		cut      bool
		send     sender
		latency  time.Duration
		isolated time.Duration
		reach    bool
	}{
		"stored":                          {fault.V5(), pocketmq.Fault{}, false, sync, 0, 0, true},
		"stored slowly":                   {fault.V5(), pocketmq.Fault{Delay: 2 * time.Second}, false, sync, 2 * time.Second, 5 * time.Second, true},
		"stored, but not flushed":         {fault.V5(), pocketmq.Fault{Err: &pocketmq.Error{Code: protocol.FlushDiskTimeout, Remark: "late"}}, false, sync, 0, 0, true},
		"an answer":                       {fault.V5(), pocketmq.Fault{Err: busy}, false, sync, 0, 10 * time.Second, false},
		"an answer to an async send":      {fault.V5(), pocketmq.Fault{Err: busy}, false, async, 0, 10 * time.Second, true},
		"an answer about the message":     {fault.V5(), pocketmq.Fault{Err: bad}, false, sync, 0, 0, true},
		"silence":                         {fault.V5(), pocketmq.Fault{Drop: true}, false, sync, 2500 * time.Millisecond, 10 * time.Second, true},
		"silence, with a detector":        {detecting(), pocketmq.Fault{Drop: true}, false, sync, 2500 * time.Millisecond, 10 * time.Second, false},
		"a cut link":                      {fault.V5(), pocketmq.Fault{}, true, sync, 0, 10 * time.Second, true},
		"a cut link, with a detector":     {detecting(), pocketmq.Fault{}, true, sync, 0, 10 * time.Second, false},
		"a cut link of an async send":     {detecting(), pocketmq.Fault{}, true, async, 0, 10 * time.Second, false},
		"a caller whose time is up":       {detecting(), pocketmq.Fault{Drop: true}, false, within(100*time.Millisecond, false), 100 * time.Millisecond, 0, true},
		"a caller that gives up":          {detecting(), pocketmq.Fault{Drop: true}, false, within(100*time.Millisecond, true), 100 * time.Millisecond, 0, true},
		"a caller that gives up late":     {detecting(), pocketmq.Fault{Drop: true}, false, within(600*time.Millisecond, true), 600 * time.Millisecond, 2 * time.Second, true},
		"a oneway send that cannot leave": {fault.V5(), pocketmq.Fault{}, true, oneway, 0, 10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
				p := producer(t, c, pocketmq.ProducerConfig{
					Fault: tc.cfg, Retries: pocketmq.NoRetries, SendTimeout: 2500 * time.Millisecond, // between two rounds of the detector
				})
				_, err := p.Queues(t.Context(), "T")
				require.NoError(t, err)
				if tc.cut {
					links(t, c).Cut(p.ClientID(), "broker-a/0")
				}
				tc.fault.Code = protocol.CodeSendMessage
				c.Inject(tc.fault)
				begin := time.Now()
				tc.send(t, p)
				synctest.Wait()
				want := fault.Item{Broker: "broker-a", Latency: tc.latency, Reachable: tc.reach}
				if tc.isolated > 0 {
					want.AvailableFrom = begin.Add(tc.latency + tc.isolated)
				}
				assert.Equal(t, []fault.Item{want}, p.FaultTable())
			})
		})
	}
}

func TestAOnewaySendThatHasLeftIsNotReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.V5()})
		require.NoError(t, p.SendOneway(t.Context(), text("T", "x")))
		assert.Empty(t, p.FaultTable(), "nobody has answered")
	})
}

func TestSetFaultAtRunTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
		p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
		require.NoError(t, err)
		assert.Empty(t, p.FaultTable())
		require.NoError(t, p.SetFault(fault.V5()), "before Start")
		require.NoError(t, p.Start(t.Context()))
		h := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Err: busy})
		sendUntil(t, p, func() bool { return h.Hits() == 1 })
		assert.Equal(t, 10*time.Second, time.Until(rowOf(t, p, "broker-a").AvailableFrom))

		wrong := fault.V5()
		wrong.MaxIsolated = 2
		err = p.SetFault(wrong)
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		assert.ErrorContains(t, err, "MaxIsolated is 2")
		assert.NotEmpty(t, p.FaultTable(), "nothing has changed")
		brokersOf(t, p, 20)
		assert.Equal(t, 1, h.Hits())

		require.NoError(t, p.SetFault(fault.V4()), "another table, and the broker has its chance again")
		assert.Empty(t, p.FaultTable())
		sendUntil(t, p, func() bool { return h.Hits() == 2 })
		assert.Equal(t, 30*time.Second, time.Until(rowOf(t, p, "broker-a").AvailableFrom))

		require.NoError(t, p.SetFault(fault.Config{}))
		sendUntil(t, p, func() bool { return h.Hits() == 5 })
		assert.Empty(t, p.FaultTable())

		require.NoError(t, p.Close())
		assert.ErrorIs(t, p.SetFault(fault.V5()), pocketmq.ErrClosed)
		assert.Empty(t, p.FaultTable())

		_, err = pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport(), Fault: wrong})
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		assert.ErrorContains(t, err, "Fault: MaxIsolated is 2")
	})
}

func TestSetFaultWhileMessagesAreSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Err: busy})
		breaker := fault.Breaker()
		breaker.Detect = true
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 100 {
					_, err := p.Send(context.Background(), text("T", "x"))
					assert.NoError(t, err)
					p.FaultTable()
				}
			})
		}
		for i := range 50 {
			cfg := []fault.Config{{}, fault.V5(), breaker}[i%3]
			assert.NoError(t, p.SetFault(cfg))
			time.Sleep(time.Second)
		}
		wg.Wait()
	})
}

func TestASendThatFailedNamesTheBrokersItKeptAwayFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups(abc...), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.V5(), Retries: 1})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: busy})
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "avoided", "a chosen queue is used, whatever the table says")
		until := time.Now().Add(10 * time.Second).Format(time.TimeOnly)
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		first, second := "broker-b", "broker-c"
		if strings.HasPrefix(err.Error(), "send failed after 2 attempts in 0s: broker-c") {
			first, second = second, first
		}
		assert.EqualError(t, err, fmt.Sprintf("send failed after 2 attempts in 0s: %s: busy (code 2); %s: busy (code 2); "+
			"broker-a: not tried, avoided until %s; %s: not retried, avoided until %s", first, second, until, first, until))
	})
}
