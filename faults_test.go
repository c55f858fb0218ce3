package pocketmq_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func dialTo(addr string) protocol.Dial { return protocol.Dial{Node: "probe", Addr: addr} }

// oneTry makes one attempt of at most a second.
var oneTry = pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: time.Second}

func TestFaultActions(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  pocketmq.Fault
		err    error // nil = the send works
		took   time.Duration
		stored int
	}{
		"none":                      {pocketmq.Fault{}, nil, 0, 1},
		"an *Error":                 {pocketmq.Fault{Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}}, pocketmq.ErrBrokerBusy, 0, 0},
		"another error":             {pocketmq.Fault{Err: errors.New("mine")}, &pocketmq.Error{Code: protocol.SystemError}, 0, 0},
		"drop":                      {pocketmq.Fault{Drop: true}, pocketmq.ErrUnknownOutcome, time.Second, 0},
		"drop reply":                {pocketmq.Fault{DropReply: true}, pocketmq.ErrUnknownOutcome, time.Second, 1},
		"delay":                     {pocketmq.Fault{Delay: 300 * time.Millisecond}, nil, 300 * time.Millisecond, 1},
		"delay and error":           {pocketmq.Fault{Delay: 300 * time.Millisecond, Err: &pocketmq.Error{Code: protocol.SystemBusy}}, pocketmq.ErrBrokerBusy, 300 * time.Millisecond, 0},
		"delay beyond the deadline": {pocketmq.Fault{Delay: 3 * time.Second}, pocketmq.ErrUnknownOutcome, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				p := producer(t, c, oneTry)
				tc.fault.Code = protocol.CodeSendMessage
				h := c.Inject(tc.fault)
				begin := time.Now()
				res, err := p.Send(t.Context(), text("T", "x"))
				assert.Equal(t, tc.took, time.Since(begin))
				var answered *pocketmq.Error
				if tc.err == nil {
					require.NoError(t, err)
					assert.NotNil(t, res)
				} else {
					require.ErrorIs(t, err, tc.err)
					assert.Nil(t, res)
					served := tc.fault.Err != nil
					require.Equal(t, served, errors.As(err, &answered), "exactly the errors that a server answered carry an *Error")
					if served {
						assert.Equal(t, "broker-a", answered.Broker)
					}
				}
				assert.Equal(t, 1, h.Hits())
				h.Remove()
				time.Sleep(time.Minute)
				assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), tc.stored)
				_, err = p.Send(t.Context(), text("T", "x"))
				assert.NoError(t, err, "removed")
				assert.Equal(t, 1, h.Hits())
			})
		})
	}
}

func TestFaultSelectors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{Group: "pg"})
		other := producer(t, c, pocketmq.ProducerConfig{Group: "other"})
		send := protocol.CodeSendMessage
		faults := map[string]*pocketmq.FaultHandle{}
		// A fault without an action counts what it matches; where several match,
		// only the first one does. So one cluster of faults per selector.
		count := func(f pocketmq.Fault, what string, want int) {
			t.Helper()
			h := c.Inject(f)
			defer h.Remove()
			faults[what] = h
			for range 2 {
				for _, topic := range []string{"T", "U"} {
					for _, broker := range []string{"broker-a", "broker-b"} {
						_, err := p.SendTo(t.Context(), queue(topic, broker, 0), text(topic, "x"))
						require.NoError(t, err)
					}
				}
			}
			_, err := other.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, want, h.Hits(), what)
		}
		count(pocketmq.Fault{Code: send}, "code", 9)
		count(pocketmq.Fault{Code: protocol.CodePullMessage}, "another code", 0)
		count(pocketmq.Fault{Node: "broker-a/0"}, "node", 5)
		count(pocketmq.Fault{Node: "broker-a"}, "not a node", 0)
		count(pocketmq.Fault{From: p.ClientID()}, "from", 8)
		count(pocketmq.Fault{Topic: "U"}, "topic", 4)
		count(pocketmq.Fault{Group: "other"}, "group", 1)
		count(pocketmq.Fault{Code: send, Node: "broker-b/0", From: p.ClientID(), Topic: "U", Group: "pg"}, "all of them", 2)
		count(pocketmq.Fault{Code: send, Node: "broker-b/0", From: p.ClientID(), Topic: "U", Group: "other"}, "all but one", 0)
		count(pocketmq.Fault{Topic: "T", Times: 3}, "times", 3)
		assert.Equal(t, 9, faults["code"].Hits(), "nothing is counted after Remove")
	})
}

func TestFaultsReachNameServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		h := c.Inject(pocketmq.Fault{Node: "ns-0", Code: protocol.CodeGetRoute, Topic: "T", Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "later"}})
		_, err := c.Admin().Route(t.Context(), "T")
		assert.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		var answered *pocketmq.Error
		require.ErrorAs(t, err, &answered)
		assert.Equal(t, "ns-0", answered.Broker)
		assert.Positive(t, h.Hits())
		h.Remove()
		reg := c.Inject(pocketmq.Fault{Node: "ns-0", From: "broker-a/0", Code: protocol.CodeRegisterBroker})
		begin := time.Now()
		require.NoError(t, reg.Wait(t.Context(), 2))
		assert.Equal(t, 60*time.Second, time.Since(begin), "a broker registers every 30 s")
	})
}

func TestTheFirstFaultThatMatchesActs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, oneTry)
		busy := &pocketmq.Error{Code: protocol.SystemBusy, Remark: "first"}
		full := &pocketmq.Error{Code: protocol.ServiceNotAvailable, Remark: "[DISK_FULL] second"}
		first := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Times: 2, Err: busy})
		second := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: full})
		for i, want := range []error{pocketmq.ErrBrokerBusy, pocketmq.ErrBrokerBusy, pocketmq.ErrDiskFull, pocketmq.ErrDiskFull} {
			_, err := p.Send(t.Context(), text("T", "x"))
			assert.ErrorIs(t, err, want, "send %d", i)
		}
		assert.Equal(t, 2, first.Hits(), "used up after Times")
		assert.Equal(t, 2, second.Hits(), "those that did not act do not count")
		first.Remove()
		second.Remove()
		second.Remove() // again
		_, err := p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err)
	})
}

func TestFaultWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		h := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage})
		require.NoError(t, h.Wait(t.Context(), 0))
		go func() {
			for range 3 {
				time.Sleep(time.Second)
				_, err := p.Send(context.Background(), text("T", "x"))
				assert.NoError(t, err)
			}
		}()
		begin := time.Now()
		require.NoError(t, h.Wait(t.Context(), 3))
		assert.Equal(t, 3*time.Second, time.Since(begin))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, h.Wait(ctx, 4), context.DeadlineExceeded)

		waiting := make(chan error, 1)
		go func() { waiting <- h.Wait(context.Background(), 4) }()
		synctest.Wait()
		h.Remove()
		assert.Error(t, <-waiting, "removed while somebody waits")
		assert.Error(t, h.Wait(t.Context(), 4), "Wait after Remove is an error")
	})
}

func TestACutLinkAsTheCallerSeesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		n, b := links(t, c), c.Broker("broker-a", 0)
		conn := dial(t, c, "broker-a")
		held := make(chan error, 1)
		begin := time.Now()
		go func() {
			_, err := pull(context.Background(), conn, 0, "*")
			held <- err
		}()
		sleepUntil(begin.Add(2 * time.Second))
		n.Cut("probe", b.Addr()) // by address
		err := <-held
		assert.Equal(t, 2*time.Second, time.Since(begin))
		assert.ErrorIs(t, err, pocketmq.ErrUnknownOutcome, "a call in flight")
		assert.NotErrorIs(t, err, pocketmq.ErrUnreachable)
		_, err = c.Transport().DialBroker(t.Context(), dialTo(b.Addr()))
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable, "a dial")
		assert.NotErrorIs(t, err, pocketmq.ErrUnknownOutcome)
		var answered *pocketmq.Error
		assert.False(t, errors.As(err, &answered))
		assert.Equal(t, begin.Add(2*time.Second), time.Now(), "both at once")
		assert.Zero(t, b.Status().HeldPulls, "a closed session cancels what it held")

		p := producer(t, c, oneTry)
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err, "other links are whole")
		n.Cut(p.ClientID(), "broker-a/0")
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
		n.Heal("broker-a/0", p.ClientID()) // either way round
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err, "healed, redialled")
		n.Cut("*", "broker-a/0")
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
		n.HealAll()
		_, err = p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err)
	})
}

func TestLinkFaultsAsProducersSeeThem(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  func(n *pocketmq.MemoryNetwork, client string)
		err    error
		took   time.Duration
		stored int
	}{
		"delay":             {func(n *pocketmq.MemoryNetwork, c string) { n.Delay(c, "broker-a/0", 200*time.Millisecond) }, nil, 400 * time.Millisecond, 1},
		"too much delay":    {func(n *pocketmq.MemoryNetwork, c string) { n.Delay(c, "broker-a/0", 700*time.Millisecond) }, pocketmq.ErrUnknownOutcome, time.Second, 1},
		"drop":              {func(n *pocketmq.MemoryNetwork, c string) { n.Drop("broker-a/0", c) }, pocketmq.ErrUnknownOutcome, time.Second, 0},
		"requests are lost": {func(n *pocketmq.MemoryNetwork, c string) { n.CutOneWay(c, "broker-a/0") }, pocketmq.ErrUnknownOutcome, time.Second, 0},
		"answers are lost":  {func(n *pocketmq.MemoryNetwork, c string) { n.CutOneWay("broker-a/0", c) }, pocketmq.ErrUnknownOutcome, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1, "warm": 1}})
				p := producer(t, c, oneTry)
				_, err := p.Send(t.Context(), text("warm", "x")) // the session is there
				require.NoError(t, err)
				_, err = p.Queues(t.Context(), "T") // the route too
				require.NoError(t, err)
				tc.fault(links(t, c), p.ClientID())
				begin := time.Now()
				_, err = p.Send(t.Context(), text("T", "x"))
				assert.Equal(t, tc.took, time.Since(begin))
				if tc.err == nil {
					assert.NoError(t, err)
				} else {
					assert.ErrorIs(t, err, tc.err)
				}
				time.Sleep(65 * time.Second) // past the next heartbeat and its attempt to dial
				links(t, c).HealAll()
				assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), tc.stored)
				_, err = p.Send(t.Context(), text("T", "x"))
				assert.NoError(t, err, "healed")
			})
		})
	}
}

func TestConsumersSurviveLinkFaults(t *testing.T) {
	for name, fault := range map[string]func(n *pocketmq.MemoryNetwork, client string){
		"cut":               func(n *pocketmq.MemoryNetwork, c string) { n.Cut(c, "broker-a/0") },
		"drop":              func(n *pocketmq.MemoryNetwork, c string) { n.Drop(c, "broker-a/0") },
		"requests are lost": func(n *pocketmq.MemoryNetwork, c string) { n.CutOneWay(c, "broker-a/0") },
		"answers are lost":  func(n *pocketmq.MemoryNetwork, c string) { n.CutOneWay("broker-a/0", c) },
		"slow":              func(n *pocketmq.MemoryNetwork, c string) { n.Delay(c, "broker-a/0", time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
				var in inbox
				co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
				p := producer(t, c, pocketmq.ProducerConfig{})
				sent := 0
				send := func(n int) {
					for range n {
						_, err := p.Send(t.Context(), text("T", "%d", sent))
						require.NoError(t, err)
						sent++
					}
				}
				send(20)
				time.Sleep(10 * time.Second)
				fault(links(t, c), co.ClientID())
				send(20)
				synctest.Wait()
				from := make(map[string]int)
				for _, a := range in.arrivals()[20:] {
					from[a.msg.Queue.BrokerName]++
				}
				assert.Equal(t, 10, from["broker-b"], "the other link does not suffer")
				if name != "requests are lost" { // pulls held by the broker are still answered
					assert.Zero(t, from["broker-a"])
				}
				time.Sleep(5 * time.Minute) // it is silent for so long that it leaves the group
				send(20)
				links(t, c).HealAll()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				got := in.bodies()
				seen := make(map[string]bool)
				for _, b := range got {
					seen[b] = true
				}
				assert.Len(t, seen, sent, "nothing is lost")
				assert.Len(t, co.Assignment(), 4)
				for b := range c.Brokers() {
					g, _ := b.Group("g")
					assert.Len(t, g.Members, 1)
					for _, q := range g.Queues {
						assert.Zero(t, q.Lag, "%v", q.Queue)
					}
				}
			})
		})
	}
}

func TestNameServersStandInForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 3, Topics: map[string]int{"T": 1}})
		// Each is asked: kill two of three, whichever they are, and lookups of new
		// topics still work for clients old and new.
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		for i := range 3 {
			for j := range 3 {
				if j != i {
					require.NoError(t, c.KillNameServer(j))
				}
			}
			name := string(rune('a' + i))
			require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: name, ReadQueues: 1}), "with ns-%d alone", i)
			_, err := p.Send(t.Context(), text(name, "x"))
			assert.NoError(t, err, "with ns-%d alone", i)
			fresh := producer(t, c, pocketmq.ProducerConfig{})
			_, err = fresh.Send(t.Context(), text(name, "x"))
			assert.NoError(t, err, "a new client with ns-%d alone", i)
			require.NoError(t, fresh.Close())
			for j := range 3 {
				if j != i {
					addr := c.NameServer(j).Addr()
					require.NoError(t, c.RestartNameServer(t.Context(), j))
					assert.Equal(t, addr, c.NameServer(j).Addr(), "the same address")
					assert.Empty(t, c.NameServer(j).Status().Brokers, "with empty tables")
				}
			}
			time.Sleep(31 * time.Second)
			for j := range 3 {
				assert.Len(t, c.NameServer(j).Status().Brokers, 1, "the broker has registered again with ns-%d", j)
			}
		}
	})
}

func TestANameServerWithoutRoutesYetDoesNotHideThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Topics: map[string]int{"T": 1}})
		require.NoError(t, c.KillNameServer(0))
		require.NoError(t, c.RestartNameServer(t.Context(), 0))
		for range 20 { // each picks a name server at random
			p := producer(t, c, pocketmq.ProducerConfig{})
			_, err := p.Send(t.Context(), text("T", "x"))
			assert.NoError(t, err, "17 only when every one said so")
			require.NoError(t, p.Close())
		}
	})
}

func TestKnownRoutesOutliveAllNameServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Topics: map[string]int{"T": 2}})
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "before"))
		require.NoError(t, err)
		require.NoError(t, c.KillNameServer(0))
		require.NoError(t, c.KillNameServer(1))
		time.Sleep(10 * time.Minute)
		_, err = p.Send(t.Context(), text("T", "without"))
		require.NoError(t, err)
		_, err = p.Send(t.Context(), text("unknown", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
		assert.NotErrorIs(t, err, pocketmq.ErrNoRoute, "nobody said that there is none")
		_, err = c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
		assert.NoError(t, err, "a producer needs no route to start")
		synctest.Wait()
		assert.Equal(t, []string{"before", "without"}, in.bodies())
		require.NoError(t, c.RestartNameServer(t.Context(), 0))
		time.Sleep(31 * time.Second)
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U"}))
		assert.Len(t, co.Assignment(), 2)
	})
}

func TestAddNameServer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		begin := time.Now()
		require.NoError(t, c.AddNameServer(t.Context()))
		assert.Equal(t, begin, time.Now())
		require.NotNil(t, c.NameServer(1))
		assert.Equal(t, "ns-1", c.NameServer(1).Name())
		assert.Len(t, c.NameServerAddrs(), 2)
		assert.Len(t, c.NameServer(1).Status().Brokers, 2, "every broker has registered")

		require.NoError(t, c.KillNameServer(0))
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 1}), "the admin knows it")
		_, err := p.Send(t.Context(), text("U", "x"))
		assert.NoError(t, err, "so do clients that ran before")
		require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-c"}), "and new brokers")
		require.Error(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-c"}))
		time.Sleep(time.Minute)
		assert.Len(t, co.Assignment(), 3)

		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0), "restarted brokers know it too")
		assert.Len(t, c.NameServer(1).Status().Brokers, 3)
	})
}
