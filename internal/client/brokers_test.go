package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func producing(cfg *Config) {
	cfg.HeartbeatData = func() *protocol.HeartbeatRequest {
		return &protocol.HeartbeatRequest{ClientID: "c", Producers: []string{"p"}}
	}
}

func consuming(cfg *Config) {
	cfg.HeartbeatData = func() *protocol.HeartbeatRequest {
		return &protocol.HeartbeatRequest{ClientID: "c", Consumers: []protocol.ConsumerData{{Group: "g"}}}
	}
}

func use(conn protocol.BrokerConn) error {
	_, err := conn.GetMaxOffset(context.Background(), &protocol.GetMaxOffsetRequest{})
	return err
}

func TestSessionIsSharedUntilItIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		b, l := w.broker("broker-a/0")
		c := w.client(0)
		w.Delay("c", "broker-a/0", time.Second)
		conns := make([]protocol.BrokerConn, 5)
		var wg sync.WaitGroup
		for i := range conns {
			wg.Go(func() {
				var err error
				conns[i], err = c.Broker(t.Context(), l.Addr())
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		w.HealAll()
		first := conns[0]
		for _, conn := range conns {
			assert.Same(t, first, conn)
		}
		assert.Equal(t, []string{"1s connect c"}, b.seen())

		c.Lost(l.Addr(), first)
		second, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		assert.NotSame(t, first, second)
		assert.Equal(t, []string{"2s close", "2s connect c"}, b.seen())
		assert.ErrorIs(t, use(first), protocol.ErrUnreachable, "given up")

		c.Lost(l.Addr(), first) // a late report, and one of nothing
		c.Lost(l.Addr(), nil)
		same, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		assert.Same(t, second, same)
		assert.Empty(t, b.seen())
	})
}

func TestDeadSessionIsReplacedOnTheNextUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		_, l := w.broker("broker-a/0")
		c := w.client(0, producing)
		_, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, err = c.Broker(t.Context(), l.Addr())
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		b, _ := w.broker("broker-a/0")
		conn, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		require.NoError(t, use(conn))
		assert.Equal(t, []string{"0s connect c", "0s heartbeat c", "0s call"}, b.seen(), "a restarted broker knows its members at once")
	})
}

func TestFirstHeartbeatOfASession(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context) error
		calls  []string
		is     []error
		text   string
	}{
		{"accepted", nil, []string{"0s connect c", "0s heartbeat c"}, nil, ""},
		{"refused", func(context.Context) error { return protocol.Errorf(protocol.SystemError, "no") },
			[]string{"0s connect c", "0s heartbeat c"}, nil, ""},
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			[]string{"0s connect c", "0s heartbeat c", "3s close"}, []error{protocol.ErrUnreachable, context.DeadlineExceeded},
			"127.1.0.2:10911: first heartbeat: no answer from broker-a/0 (127.1.0.2:10911) within 3s: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				b, l := w.broker("broker-a/0")
				b.answerHeartbeat(c.answer)
				conn, err := w.client(0, consuming).Broker(t.Context(), l.Addr())
				synctest.Wait()
				assert.Equal(t, c.calls, b.seen())
				if c.is == nil {
					require.NoError(t, err)
					assert.NoError(t, use(conn))
					return
				}
				assert.EqualError(t, err, c.text)
				for _, e := range c.is {
					assert.ErrorIs(t, err, e)
				}
				assert.NotErrorIs(t, err, protocol.ErrUnknownOutcome, "nothing of the caller's has left")
			})
		})
	}
}

func TestNoHeartbeatWithoutData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		b, l := w.broker("broker-a/0")
		w.ns[0].set("t", routeOf([2]string{"broker-a", l.Addr()}))
		for _, c := range []*Client{w.client(0), w.client(0, func(cfg *Config) {
			cfg.HeartbeatData = func() *protocol.HeartbeatRequest { return nil }
		})} {
			_, err := c.Route(t.Context(), "t")
			require.NoError(t, err)
			_, err = c.Broker(t.Context(), l.Addr())
			require.NoError(t, err)
			assert.NoError(t, c.HeartbeatAll(t.Context()))
			assert.NoError(t, c.HeartbeatTo(t.Context(), l.Addr()))
			assert.Equal(t, []string{"0s connect c"}, b.seen())
		}
	})
}

func TestDialIsBoundedByTheWaitersContextAndThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		_, l := w.broker("broker-a/0")
		c := w.client(0)
		w.Drop("c", "broker-a/0")
		_, err := c.Broker(withTimeout(t, time.Second), l.Addr())
		assert.Equal(t, time.Second, time.Since(w.start))
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		_, err = c.Broker(t.Context(), l.Addr())
		assert.Equal(t, 4*time.Second, time.Since(w.start))
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.EqualError(t, err, "broker-a/0 (127.1.0.2:10911): no connection within 3s: context deadline exceeded")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = c.Broker(ctx, l.Addr())
		assert.Equal(t, 5*time.Second, time.Since(w.start))
		assert.EqualError(t, err, "127.1.0.2:10911: no session: context canceled")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

func TestLoopHeartbeatsTheBrokersOfRoutes(t *testing.T) {
	for _, c := range []struct {
		name   string
		kind   func(*Config)
		slaves bool
	}{{"producer", producing, false}, {"consumer", consuming, true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				a, la := w.broker("broker-a/0")
				s, ls := w.broker("broker-a/1")
				other, _ := w.broker("broker-b/0")
				r := routeOf([2]string{"broker-a", la.Addr()})
				r.Brokers[0].Addrs[1] = ls.Addr()
				w.ns[0].set("t", r)
				client := w.client(0, c.kind, func(cfg *Config) { cfg.Heartbeat = 10 * time.Second })
				_, err := client.Route(t.Context(), "t")
				require.NoError(t, err)
				client.Start()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				want := []string{"10s connect c", "10s heartbeat c", "20s heartbeat c"}
				assert.Equal(t, want, a.seen())
				if !c.slaves {
					want = nil
				}
				assert.Equal(t, want, s.seen())
				assert.Empty(t, other.seen())

				require.NoError(t, la.Close())
				a, _ = w.broker("broker-a/0")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				assert.Equal(t, []string{"30s connect c", "30s heartbeat c"}, a.seen(), "a dead session is dialled anew")
			})
		})
	}
}

func TestHeartbeatsGoOutTogetherAndNameWhoFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var brokers []*fakeBroker
		var named [][2]string
		for _, name := range []string{"broker-a", "broker-b", "broker-d", "broker-e"} {
			b, l := w.broker(name + "/0")
			brokers = append(brokers, b)
			named = append(named, [2]string{name, l.Addr()})
		}
		w.ns[0].set("t", routeOf(named...))
		c := w.client(0, producing)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		require.NoError(t, c.HeartbeatAll(t.Context()))
		held, err := c.Broker(t.Context(), named[0][1])
		require.NoError(t, err)
		brokers[0].answerHeartbeat(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		brokers[1].answerHeartbeat(func(context.Context) error { return &protocol.Error{Code: 1, Remark: "no", Broker: "broker-b"} })
		w.Cut("c", "broker-d/0")
		for _, b := range brokers {
			b.seen()
		}
		err = c.HeartbeatAll(t.Context())
		assert.Equal(t, 3*time.Second, time.Since(w.start))
		assert.EqualError(t, err, "heartbeat to 127.1.0.2:10911: no answer from broker-a/0 (127.1.0.2:10911) within 3s: context deadline exceeded\n"+
			"heartbeat to 127.1.0.3:10911: broker-b: no (code 1)\n"+
			"heartbeat to 127.1.0.4:10911: broker-d/0 (127.1.0.4:10911): connection refused")
		synctest.Wait()
		assert.Equal(t, []string{"0s heartbeat c", "3s close"}, brokers[0].seen())
		assert.Equal(t, []string{"0s heartbeat c"}, brokers[1].seen(), "who answers keeps its session")
		assert.Equal(t, []string{"0s heartbeat c"}, brokers[3].seen())
		assert.ErrorIs(t, use(held), protocol.ErrUnreachable)

		brokers[0].answerHeartbeat(nil)
		require.NoError(t, c.HeartbeatTo(t.Context(), named[0][1]))
		require.NoError(t, c.HeartbeatTo(t.Context(), named[0][1]))
		assert.Equal(t, []string{"3s connect c", "3s heartbeat c", "3s heartbeat c"}, brokers[0].seen())
	})
}

func TestAHeartbeatTellsWhatHoldsWhenItsTurnHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		b, l := w.broker("broker-a/0")
		var group atomic.Pointer[string]
		tell := func(s string) { group.Store(&s) }
		tell("none")
		c := w.client(0, func(cfg *Config) {
			cfg.HeartbeatData = func() *protocol.HeartbeatRequest { return &protocol.HeartbeatRequest{ClientID: *group.Load()} }
		})
		_, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		b.answerHeartbeat(func(context.Context) error { time.Sleep(time.Second); return nil })
		done := make(chan error, 3)
		beat := func() {
			go func() { done <- c.HeartbeatTo(t.Context(), l.Addr()) }()
			synctest.Wait()
		}
		tell("old")
		beat()
		beat()
		tell("new")
		beat()
		for range 3 {
			require.NoError(t, <-done)
		}
		assert.Equal(t, []string{"0s connect c", "0s heartbeat none", "0s heartbeat old", "1s heartbeat new", "2s heartbeat new"}, b.seen())

		// Nobody waits longer than for a call, and each wait ends with its caller.
		b.answerHeartbeat(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		begin := time.Now()
		beat()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.HeartbeatTo(ctx, l.Addr()), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begin))
		require.Error(t, <-done)
		assert.Equal(t, 3*time.Second, time.Since(begin))
		assert.Empty(t, c.beats.m)
	})
}

// blindBroker has sessions that do not know when they are dead.
type blindBroker struct{ *world }

func (b blindBroker) DialBroker(ctx context.Context, d protocol.Dial) (protocol.BrokerConn, error) {
	c, err := b.world.DialBroker(ctx, d)
	if err != nil {
		return nil, err
	}
	return &blindBrokerConn{c}, nil
}

type blindBrokerConn struct{ protocol.BrokerConn }

func TestHeartbeatThatFindsASessionDeadDialsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		_, l := w.broker("broker-a/0")
		c := w.client(0, producing, func(cfg *Config) { cfg.Transport = blindBroker{w} })
		_, err := c.Broker(t.Context(), l.Addr())
		require.NoError(t, err)
		require.NoError(t, l.Close())
		b, _ := w.broker("broker-a/0")
		require.NoError(t, c.HeartbeatTo(t.Context(), l.Addr()))
		assert.Equal(t, []string{"0s connect c", "0s heartbeat c"}, b.seen())
	})
}

func TestUnregisterTellsEveryBrokerWithASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a, la := w.broker("broker-a/0")
		b, lb := w.broker("broker-b/0")
		silent, ls := w.broker("broker-d/0")
		other, _ := w.broker("broker-e/0")
		c := w.client(0)
		for _, l := range []protocol.Listener{la, lb, ls} {
			_, err := c.Broker(t.Context(), l.Addr())
			require.NoError(t, err)
		}
		w.Drop("c", "broker-d/0")
		c.Unregister(t.Context(), "p", "g")
		assert.Equal(t, 3*time.Second, time.Since(w.start))
		want := []string{"0s connect c", "0s unregister c p g"}
		assert.Equal(t, want, a.seen())
		assert.Equal(t, want, b.seen())
		assert.Equal(t, want[:1], silent.seen())
		assert.Empty(t, other.seen())
	})
}

func TestNoticesReachThePeer(t *testing.T) {
	w := newWorld(t, 1)
	told := make(chan string, 1)
	b := &noticing{}
	l, err := w.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	c := w.client(0, func(cfg *Config) { cfg.Peer = noticed{notify: func(g string) { told <- g }} })
	_, err = c.Broker(t.Context(), l.Addr())
	require.NoError(t, err)
	b.peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
	assert.Equal(t, "g", <-told)
}

type noticing struct{ peer protocol.Peer }

func (b *noticing) Connect(s protocol.Session) protocol.BrokerConn {
	b.peer = s.Peer
	return &fakeBrokerConn{b: &fakeBroker{}}
}

// noticed is a client of which only notices are of interest.
type noticed struct {
	protocol.Peer
	notify func(group string)
}

func (n noticed) NotifyConsumerIDsChanged(r *protocol.NotifyConsumerIDsChangedRequest) {
	n.notify(r.Group)
}

func TestEachJoinsErrorsInOrder(t *testing.T) {
	assert.NoError(t, each(nil, func(string) error { return errors.New("x") }))
	err := each([]string{"a", "b", "d"}, func(a string) error {
		if a == "b" {
			return nil
		}
		return errors.New(a)
	})
	assert.EqualError(t, err, "a\nd")
}
