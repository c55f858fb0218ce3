package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

var someRoute = routeOf([2]string{"broker-a", "127.0.0.1:10911"})

func TestFirstNameServerIsDrawnAtRandom(t *testing.T) {
	w := newWorld(t, 3)
	seen := make(map[int]bool)
	for range 200 { // the odds of missing one are 3 * (2/3)^200
		c := New(Config{NameServers: w.addrs(), Transport: w})
		seen[c.names.chosen] = true
		require.NoError(t, c.Close())
	}
	assert.Len(t, seen, 3)
}

func TestChosenNameServerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, s := range w.ns {
			for i := range 20 {
				s.set(fmt.Sprint("t", i), someRoute)
			}
		}
		c := w.client(1)
		for i := range 20 {
			_, err := c.Route(t.Context(), fmt.Sprint("t", i))
			require.NoError(t, err)
		}
		assert.Equal(t, []string{"0s " + w.ns[1].addr}, w.dialled(), "one session")
		assert.Empty(t, w.ns[0].lookups())
		assert.Len(t, w.ns[1].lookups(), 20)
		assert.Empty(t, w.ns[2].lookups())
	})
}

func TestNextNameServerIsTakenAfterAFailureAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for _, s := range w.ns {
			s.set("t", someRoute)
		}
		c := w.client(2)
		refresh := func() {
			t.Helper()
			_, _, err := c.Refresh(t.Context(), "t")
			require.NoError(t, err)
		}
		refresh()
		w.kill(2)
		refresh()
		assert.Len(t, w.ns[0].lookups(), 1, "asked within the same call")
		w.listen(2)
		time.Sleep(time.Minute)
		refresh()
		assert.Len(t, w.ns[0].lookups(), 1, "not back to the one that failed")
		assert.Len(t, w.ns[2].lookups(), 1)
		w.kill(0)
		w.kill(1)
		refresh()
		assert.Len(t, w.ns[2].lookups(), 1)
	})
}

// Of two that have failed, the one that works again first becomes the chosen
// one, although it was the other one's turn.
func TestChosenNameServerInBackOffLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[0].set("t", someRoute)
		w.ns[1].set("t", someRoute)
		w.kill(1)
		c := w.client(1)
		refresh := func() error {
			_, _, err := c.Refresh(t.Context(), "t")
			return err
		}
		require.NoError(t, refresh())
		w.kill(0)
		for range 20 { // ns-1 is in a long back-off now
			time.Sleep(50 * time.Millisecond)
			require.Error(t, refresh())
		}
		w.listen(0)
		time.Sleep(600 * time.Millisecond)
		require.NoError(t, refresh())
		w.kill(0)
		require.Error(t, refresh())
		assert.Equal(t, 1, c.names.chosen)
		w.listen(0)
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, refresh())
		assert.Equal(t, 0, c.names.chosen)
	})
}

// 100 ms, doubling to 5 s, reset on success. The client asks every 50 ms.
func TestDeadNameServerIsRedialledInGrowingSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", someRoute)
		w.kill(0)
		c := w.client(0)
		ask := func(n int) (ok bool) {
			for range n {
				_, _, err := c.Refresh(t.Context(), "t")
				if ok = err == nil; !ok {
					require.ErrorIs(t, err, protocol.ErrUnreachable)
					require.NotErrorIs(t, err, protocol.ErrNoRoute)
				}
				time.Sleep(50 * time.Millisecond)
			}
			return ok
		}
		ask(20 * 22)
		var want []string
		for _, at := range []string{"0s", "100ms", "300ms", "700ms", "1.5s", "3.1s", "6.3s", "11.3s", "16.3s", "21.3s"} {
			want = append(want, at+" "+w.ns[0].addr)
		}
		assert.Equal(t, want, w.dialled())

		w.listen(0)
		require.True(t, ask(20*5), "asked again within 5 s")
		assert.Equal(t, []string{"26.3s " + w.ns[0].addr}, w.dialled())
		w.kill(0)
		require.False(t, ask(5)) // 27 s: success has reset the back-off
		assert.Equal(t, []string{"27s " + w.ns[0].addr, "27.1s " + w.ns[0].addr}, w.dialled())
	})
}

func TestNameServerInBackOffIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[1].set("orders", someRoute)
		w.kill(0)
		w.kill(1)
		c := w.client(0)
		_, err := c.Route(t.Context(), "orders")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.EqualError(t, err, `no name server answered for the route of topic "orders": `+
			`ns-0 (127.1.0.1:9876): connection refused; ns-1 (127.1.0.2:9876): connection refused`)
		time.Sleep(40 * time.Millisecond)
		_, _, err = c.Refresh(t.Context(), "orders")
		until := w.start.Add(100 * time.Millisecond).Format("15:04:05.000")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.EqualError(t, err, `no name server answered for the route of topic "orders": `+
			`127.1.0.1:9876: not retried until `+until+` after: ns-0 (127.1.0.1:9876): connection refused; `+
			`127.1.0.2:9876: not retried until `+until+` after: ns-1 (127.1.0.2:9876): connection refused`)
		assert.Len(t, w.dialled(), 2)
	})
}

// A first route, unlike a refresh, waits for the first of the name servers
// when all are in back-off.
func TestRouteWaitsForTheEndOfABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[0].set("t", someRoute)
		w.kill(0)
		w.kill(1)
		c := w.client(0)
		_, err := c.Route(t.Context(), "t")
		require.ErrorIs(t, err, protocol.ErrUnreachable)
		w.listen(0)
		start := time.Now()
		_, err = c.Route(withTimeout(t, 99*time.Millisecond), "t")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(start), "no time to wait: at once")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err = c.Route(ctx, "t")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))

		_, err = c.Route(withTimeout(t, 3*time.Second), "t")
		assert.NoError(t, err)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))

		w.kill(0)
		_, err = c.AllTopics(t.Context())
		require.ErrorIs(t, err, protocol.ErrUnreachable)
		start = time.Now()
		time.AfterFunc(time.Millisecond, func() { _ = c.Close() })
		_, err = c.AllTopics(t.Context())
		assert.ErrorIs(t, err, protocol.ErrClosed)
		assert.Equal(t, time.Millisecond, time.Since(start), "Close ends the wait")
	})
}

// A session that died unnoticed says nothing about the server.
func TestRestartedNameServerIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", someRoute)
		for _, c := range []*Client{w.client(0), w.client(0, func(cfg *Config) { cfg.Transport = blindTransport{w} })} {
			for range 2 {
				_, _, err := c.Refresh(t.Context(), "t")
				assert.NoError(t, err)
				w.kill(0)
				w.listen(0)
			}
			assert.Len(t, w.dialled(), 2)
		}
	})
}

// blindTransport has sessions that do not know when they are dead.
type blindTransport struct{ *world }

func (b blindTransport) DialNameServer(ctx context.Context, d protocol.Dial) (protocol.NameServerConn, error) {
	c, err := b.world.DialNameServer(ctx, d)
	if err != nil {
		return nil, err
	}
	return &blindConn{c}, nil
}

type blindConn struct{ protocol.NameServerConn }

func TestSilentNameServerLeavesTimeForTheOthers(t *testing.T) {
	for _, c := range []struct {
		name          string
		limit, within time.Duration
	}{
		{"no deadline", 0, 3 * time.Second},
		{"a late deadline", time.Minute, 3 * time.Second},
		{"an early deadline", 3 * time.Second, time.Second},
		{"a very early deadline", 150 * time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				for _, s := range w.ns {
					s.set("t", someRoute)
				}
				client := w.client(1)
				w.Drop("c", "ns-1")
				ctx := t.Context()
				if c.limit > 0 {
					ctx = withTimeout(t, c.limit)
				}
				_, err := client.Route(ctx, "t")
				assert.NoError(t, err)
				assert.Equal(t, c.within, time.Since(w.start))
				assert.Len(t, w.ns[2].lookups(), 1)
				_, _, err = client.Refresh(t.Context(), "t")
				assert.NoError(t, err)
				if c.within < fairTimeout {
					assert.Empty(t, w.ns[2].lookups()[1:], "so short a silence is held against nobody")
					return
				}
				assert.Equal(t, c.within, time.Since(w.start), "the next lookup does not ask it")
			})
		})
	}
}

func TestAllNameServersSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		c := w.client(0)
		w.Drop("*", "*")
		_, err := c.Route(withTimeout(t, 4*time.Second), "t")
		assert.Equal(t, 4*time.Second, time.Since(w.start))
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, protocol.ErrUnknownOutcome, "a lookup changes nothing")
		_, err = c.AllTopics(withTimeout(t, 4*time.Second))
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
	})
}

func TestCallerThatGivesUpIsNoFailureOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[0].set("t", someRoute)
		c := w.client(0)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		w.ns[0].holdWith(make(chan struct{}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, _, err = c.Refresh(ctx, "t")
		assert.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, time.Second, time.Since(w.start))
		w.ns[0].holdWith(nil)
		_, _, err = c.Refresh(t.Context(), "t")
		assert.NoError(t, err)
		assert.Len(t, w.dialled(), 1)
		assert.Empty(t, w.ns[1].lookups())

		_, _, err = c.Refresh(ctx, "t")
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
	})
}

func TestSeveralFailuresAtOnceAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.client(0)
		w.Drop("*", "*")
		for i := range 10 {
			go func() { _, _ = c.Route(withTimeout(t, time.Second), fmt.Sprint("t", i)) }()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.names.mu.Lock()
		defer c.names.mu.Unlock()
		assert.Equal(t, Backoff{Until: w.start.Add(1100 * time.Millisecond), last: firstBackoff}, c.names.list[0].backoff)
	})
}

func TestUnknownTopicIsAskedForEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.ns[2].set("t", someRoute)
		c := w.client(0)
		_, err := c.Route(t.Context(), "t")
		assert.NoError(t, err)
		assert.Zero(t, c.names.chosen, "an answer is no failure: the chosen one stays")
		for _, s := range w.ns {
			assert.Equal(t, []string{"t"}, s.lookups())
		}
	})
}

func TestErrorsOfLookups(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(w *world)
		topic  string
		text   string
		is     []error
		isNot  []error
		answer bool // an *Error is found in it
	}{
		{
			name: "unknown", topic: "ordrs", set: func(*world) {},
			text:   `no route for topic "ordrs": ns-0: not found; ns-1: not found; create it with Admin.CreateTopic or ClusterConfig.Topics`,
			is:     []error{protocol.ErrNoRoute},
			isNot:  []error{protocol.ErrUnreachable, protocol.ErrUnknownOutcome},
			answer: true,
		},
		{
			name: "a slip", topic: "ordrs",
			set: func(w *world) {
				w.ns[0].set("orders", someRoute)
				w.kill(1)
			},
			text:   `no route for topic "ordrs": ns-0: not found; ns-1 (127.1.0.2:9876): connection refused; did you mean "orders"? Create it with Admin.CreateTopic or ClusterConfig.Topics`,
			is:     []error{protocol.ErrNoRoute},
			isNot:  []error{protocol.ErrUnreachable},
			answer: true,
		},
		{
			name: "one errs", topic: "t",
			set: func(w *world) {
				w.ns[1].fail(&protocol.Error{Code: protocol.SystemError, Remark: "broken", Broker: "ns-1"})
			},
			text:   `route of topic "t" not known: ns-0: not found; ns-1: broken (code 1)`,
			isNot:  []error{protocol.ErrUnreachable, protocol.ErrNoRoute},
			answer: true,
		},
		{
			name: "all err", topic: "t",
			set: func(w *world) {
				w.ns[0].fail(&protocol.Error{Code: protocol.SystemBusy, Remark: "busy"})
				w.ns[1].fail(&protocol.Error{Code: protocol.SystemError, Remark: "broken", Broker: "ns-1"})
			},
			text:   `route of topic "t" not known: 127.1.0.1:9876: busy (code 2); ns-1: broken (code 1)`,
			is:     []error{protocol.ErrBrokerBusy},
			isNot:  []error{protocol.ErrUnreachable, protocol.ErrNoRoute},
			answer: true,
		},
		{
			name: "none answers", topic: "t",
			set:   func(w *world) { w.Cut("*", "*") },
			text:  `no name server answered for the route of topic "t": ns-0 (127.1.0.1:9876): connection refused; ns-1 (127.1.0.2:9876): connection refused`,
			is:    []error{protocol.ErrUnreachable},
			isNot: []error{protocol.ErrNoRoute},
		},
		{
			name: "bad order configuration", topic: "t",
			set:   func(w *world) { w.ns[0].set("t", protocol.TopicRoute{OrderConf: "a:1;;b:1"}) },
			text:  `route of topic "t": order configuration "a:1;;b:1": "" is not of the form broker:queues`,
			isNot: []error{protocol.ErrNoRoute},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				c.set(w)
				_, err := w.client(0).Route(t.Context(), c.topic)
				require.EqualError(t, err, c.text)
				for _, e := range c.is {
					assert.ErrorIs(t, err, e)
				}
				for _, e := range c.isNot {
					assert.NotErrorIs(t, err, e)
				}
				var answer *protocol.Error
				assert.Equal(t, c.answer, errors.As(err, &answer))
				_, _, err = w.client(0).Refresh(t.Context(), c.topic)
				assert.EqualError(t, err, c.text)
			})
		})
	}
}

// "Not found" of one name server beside another error is not "no route", also
// for errors.Is.
func TestUnknownBesideAnotherErrorIsNotNoRoute(t *testing.T) {
	err := failure([]attempt{
		{"a:1", &protocol.Error{Code: protocol.TopicNotExist}},
		{"b:1", &protocol.Error{Code: protocol.SystemBusy}},
	}, "silent", "refused")
	assert.NotErrorIs(t, err, protocol.ErrNoRoute)
	assert.ErrorIs(t, err, protocol.ErrBrokerBusy)
}

func TestSlipIsFoundAmongCachedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("payments", someRoute)
		c := w.client(0)
		_, err := c.Route(t.Context(), "payments")
		require.NoError(t, err)
		w.ns[0].mu.Lock()
		w.ns[0].routes = nil
		w.ns[0].mu.Unlock()
		_, err = c.Route(t.Context(), "payment")
		assert.ErrorContains(t, err, `did you mean "payments"?`)
	})
}

func TestListsComeFromTheChosenNameServerOrTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[0].set("a", someRoute)
		w.ns[1].set("b", someRoute)
		c := w.client(0)
		brokers, err := c.ClusterInfo(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []protocol.BrokerData{{BrokerName: "of ns-0"}}, brokers)
		topics, err := c.AllTopics(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, topics)

		w.ns[0].fail(&protocol.Error{Code: protocol.SystemError, Remark: "broken", Broker: "ns-0"})
		topics, err = c.AllTopics(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, topics)
		w.kill(0)
		brokers, err = c.ClusterInfo(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []protocol.BrokerData{{BrokerName: "of ns-1"}}, brokers)
		w.kill(1)
		time.Sleep(time.Minute)
		_, err = c.ClusterInfo(t.Context())
		assert.EqualError(t, err, "no name server answered for the list of brokers: ns-1 (127.1.0.2:9876): connection refused; ns-0 (127.1.0.1:9876): connection refused")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		w.listen(0)
		time.Sleep(time.Minute)
		_, err = c.AllTopics(t.Context())
		assert.ErrorContains(t, err, "the list of topics not known: ")
		assert.ErrorContains(t, err, "ns-0: broken (code 1)")
	})
}

func TestAddedNameServerIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.ns[1].set("t", someRoute)
		c := w.client(0, func(cfg *Config) { cfg.NameServers = cfg.NameServers[:1] })
		_, err := c.Route(t.Context(), "t")
		assert.ErrorIs(t, err, protocol.ErrNoRoute)
		c.AddNameServer(w.ns[1].addr)
		c.AddNameServer(w.ns[1].addr)
		assert.Len(t, c.names.list, 2)
		_, err = c.Route(t.Context(), "t")
		assert.NoError(t, err)
	})
}

func TestAKVConfigIsThatOfTheFirstNameServerThatHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		c := w.client(0)
		_, found, err := c.KVConfig(t.Context(), "N", "k")
		require.NoError(t, err)
		assert.False(t, found, "nobody has it")
		for _, s := range w.ns {
			assert.Equal(t, []string{"N/k"}, s.lookups())
		}

		w.ns[1].kv = map[string]string{"N/k": "v", "N/empty": ""}
		value, found, err := c.KVConfig(t.Context(), "N", "k")
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, "v", value)
		assert.Empty(t, w.ns[2].lookups(), "not asked any more")
		value, found, err = c.KVConfig(t.Context(), "N", "empty")
		require.NoError(t, err)
		assert.True(t, found, "an empty value is one")
		assert.Empty(t, value)

		w.kill(1)
		_, found, err = c.KVConfig(t.Context(), "N", "k")
		require.NoError(t, err, "those that answer have none")
		assert.False(t, found)
		w.ns[0].fail(&protocol.Error{Code: protocol.SystemError, Remark: "broken", Broker: "ns-0"})
		w.ns[2].fail(&protocol.Error{Code: protocol.SystemError, Remark: "broken", Broker: "ns-2"})
		_, _, err = c.KVConfig(t.Context(), "N", "k")
		assert.ErrorContains(t, err, `the KV configuration of "k" in N not known: `)
		assert.ErrorIs(t, err, &protocol.Error{Code: protocol.SystemError})
		w.kill(0)
		w.kill(2)
		_, _, err = c.KVConfig(t.Context(), "N", "k")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorContains(t, err, `no name server answered for the KV configuration of "k" in N`)
		require.NoError(t, c.Close())
		_, _, err = c.KVConfig(t.Context(), "N", "k")
		assert.ErrorIs(t, err, protocol.ErrClosed)
	})
}
