package memnet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// outcome is what one exchange over a link came to, and when.
type outcome struct {
	result string
	after  time.Duration
}

func verdict(start time.Time, err error) outcome {
	o := outcome{"ok", time.Since(start)}
	switch {
	case err == nil:
	case !leftOrNot(err):
		o.result = "bad error: " + err.Error()
	case isContextError(err):
		o.result = "timeout"
	default:
		o.result = "failed"
	}
	return o
}

// leftOrNot tells whether err says either that nothing left or that the
// outcome is unknown.
func leftOrNot(err error) bool {
	return errors.Is(err, protocol.ErrUnreachable) != errors.Is(err, protocol.ErrUnknownOutcome)
}

// TestFaultRules looks at every kind of exchange under every kind of rule, the
// two nodes named in every way.
func TestFaultRules(t *testing.T) {
	const d = 100 * time.Millisecond
	ok := outcome{"ok", 0}
	timeout := outcome{"timeout", time.Second}
	failed := outcome{"failed", 0}
	for _, c := range []struct {
		name         string
		rule         func(n *Network, client, broker string)
		call         outcome
		served       bool
		dial         outcome
		oneway       outcome
		onewayServed bool
		noticed      bool
		later        time.Duration // when a delayed oneway call and notice arrive
		closes       int           // of the first session at the server, by the rule alone
	}{
		{name: "none", rule: func(*Network, string, string) {},
			call: ok, served: true, dial: ok, oneway: ok, onewayServed: true, noticed: true},
		{name: "Cut", rule: func(n *Network, c, b string) { n.Cut(c, b) },
			call: failed, dial: failed, oneway: failed, closes: 1},
		{name: "Cut the other way round", rule: func(n *Network, c, b string) { n.Cut(b, c) },
			call: failed, dial: failed, oneway: failed, closes: 1},
		{name: "CutOneWay to the broker", rule: func(n *Network, c, b string) { n.CutOneWay(c, b) },
			call: timeout, dial: timeout, oneway: ok, noticed: true},
		{name: "CutOneWay to the client", rule: func(n *Network, c, b string) { n.CutOneWay(b, c) },
			call: timeout, served: true, dial: timeout, oneway: ok, onewayServed: true},
		{name: "Drop", rule: func(n *Network, c, b string) { n.Drop(c, b) },
			call: timeout, dial: timeout, oneway: ok},
		{name: "Delay", rule: func(n *Network, c, b string) { n.Delay(c, b, d) },
			call: outcome{"ok", 2 * d}, served: true, dial: outcome{"ok", 2 * d}, oneway: ok, onewayServed: true, noticed: true, later: d},
		{name: "Delay, replaced", rule: func(n *Network, c, b string) { n.Delay(b, c, time.Minute); n.Delay(c, b, d) },
			call: outcome{"ok", 2 * d}, served: true, dial: outcome{"ok", 2 * d}, oneway: ok, onewayServed: true, noticed: true, later: d},
		{name: "Delay too long", rule: func(n *Network, c, b string) { n.Delay(c, b, 600*time.Millisecond) },
			call: timeout, served: true, dial: timeout, oneway: ok, onewayServed: true, noticed: true, later: 600 * time.Millisecond},
		{name: "Delay removed", rule: func(n *Network, c, b string) { n.Delay(c, b, d); n.Delay(b, c, 0) },
			call: ok, served: true, dial: ok, oneway: ok, onewayServed: true, noticed: true},
		{name: "Drop, healed", rule: func(n *Network, c, b string) { n.Drop(c, b); n.CutOneWay(c, b); n.Heal(b, c) },
			call: ok, served: true, dial: ok, oneway: ok, onewayServed: true, noticed: true},
		{name: "Drop, all healed", rule: func(n *Network, c, b string) { n.Drop(c, b); n.Drop("x", "y"); n.HealAll() },
			call: ok, served: true, dial: ok, oneway: ok, onewayServed: true, noticed: true},
		{name: "another link", rule: func(n *Network, _, b string) { n.Cut("x", b); n.Cut("x", "*"); n.Drop("x", "y") },
			call: ok, served: true, dial: ok, oneway: ok, onewayServed: true, noticed: true},
	} {
		for _, names := range [][2]string{
			{"c", "broker-a/0"}, {"c", "ADDR"}, {"BORN", "broker-a/0"}, {"BORN", "ADDR"},
			{"*", "broker-a/0"}, {"*", "ADDR"}, {"c", "*"}, {"*", "*"},
		} {
			if strings.HasPrefix(c.name, "CutOneWay") && names == [2]string{"*", "*"} {
				continue // that is both ways
			}
			t.Run(fmt.Sprint(c.name, "/", names), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					resolve := func(name string) string {
						switch name {
						case "ADDR":
							return w.listener.Addr()
						case "BORN":
							return w.broker.session(0).Remote.String()
						}
						return name
					}
					c.rule(w.Network, resolve(names[0]), resolve(names[1]))
					assert.Equal(t, []int{c.closes}, w.broker.closes(), "closed by the rule")

					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					r, err := send(ctx, w.conn, "call")
					assert.Equal(t, c.call, verdict(start, err))
					assert.Equal(t, err == nil, r != nil)
					assert.Equal(t, c.served, len(w.broker.handled()) == 1, "served")

					if names[0] != "BORN" { // a new dial comes from another port
						dialled, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						start = time.Now()
						conn, err := w.dial(dialled)
						assert.Equal(t, c.dial, verdict(start, err))
						if err == nil {
							require.NoError(t, conn.Close())
						} else {
							assert.ErrorIs(t, err, protocol.ErrUnreachable)
						}
					}

					before := len(w.broker.handled())
					start = time.Now()
					req := &protocol.SendMessageRequest{Oneway: true, Body: []byte("oneway")}
					r, err = w.conn.SendMessage(t.Context(), req)
					assert.Equal(t, c.oneway, verdict(start, err))
					assert.Nil(t, r)
					copy(req.Body, "reused")
					w.broker.session(0).Peer.NotifyConsumerIDsChanged(&protocol.NotifyConsumerIDsChangedRequest{Group: "g"})
					if c.later > 0 {
						time.Sleep(c.later - 1)
						synctest.Wait()
						assert.Len(t, w.broker.handled(), before)
						assert.Empty(t, w.peer.told())
						time.Sleep(time.Nanosecond)
						synctest.Wait()
					}
					if c.onewayServed {
						require.Len(t, w.broker.handled(), before+1)
						assert.Equal(t, "oneway", w.broker.handled()[before])
					} else {
						assert.Len(t, w.broker.handled(), before)
					}
					assert.Equal(t, c.noticed, len(w.peer.told()) == 1, "noticed")
					time.Sleep(time.Hour)
					synctest.Wait()
					assert.Equal(t, c.onewayServed, len(w.broker.handled()) == before+1, "nothing arrives later")
				})
			})
		}
	}
}

func TestHealRemovesOnlyWhatItNames(t *testing.T) {
	w := newWorld(t)
	count := func() int {
		if set := w.Network.rules.Load(); set != nil {
			return len(set.rules)
		}
		return 0
	}
	w.Drop("c", "broker-a/0")
	w.Drop("broker-a/0", "c") // the same rule
	w.CutOneWay("c", w.listener.Addr())
	w.Delay("c", "broker-a/0", time.Second)
	w.Delay("*", "broker-a/0", time.Second)
	w.Drop("c", "broker-b/0")
	require.Equal(t, 5, count())
	w.Heal("c", "x")
	assert.Equal(t, 5, count())
	w.Heal(w.listener.Addr(), "c")
	assert.Equal(t, 2, count(), "by address heals what was made by name")
	w.Heal("broker-b/0", "*")
	assert.Equal(t, 2, count())
	w.Heal("broker-a/0", "*")
	assert.Equal(t, 1, count())
	w.Heal("c", "broker-b/0")
	assert.Nil(t, w.Network.rules.Load(), "the fast path is back")
}

func TestRulesHoldForNodesToCome(t *testing.T) {
	n := New()
	n.Cut("c", "127.1.0.1:10911")
	n.Cut("x", "broker-a/0")
	n.Cut("127.1.0.1:10911", "ns-0")
	b := &fakeBroker{}
	l, err := n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	ns, err := n.ListenNameServer(t.Context(), protocol.Listen{Node: "ns-0"}, &fakeNameServer{})
	require.NoError(t, err)
	for _, node := range []string{"c", "x"} {
		_, err = n.DialBroker(t.Context(), protocol.Dial{Node: node, Addr: l.Addr()})
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
	}
	_, err = n.DialNameServer(t.Context(), protocol.Dial{Node: "broker-a/0", Addr: ns.Addr()})
	assert.ErrorIs(t, err, protocol.ErrUnreachable, "a caller is known by the address it serves on")
	_, err = n.DialBroker(t.Context(), protocol.Dial{Node: "y", Addr: l.Addr()})
	assert.NoError(t, err)
}

func TestRuleReachesTheSessionOfANodeThatFindsItsAddressLater(t *testing.T) {
	n := New()
	ns, err := n.ListenNameServer(t.Context(), protocol.Listen{Node: "ns-0"}, &fakeNameServer{})
	require.NoError(t, err)
	c, err := n.DialNameServer(t.Context(), protocol.Dial{Node: "broker-a/0", Addr: ns.Addr()})
	require.NoError(t, err)
	n.Cut("10.0.0.1:10911", "ns-0")
	_, err = c.GetRoute(t.Context(), &protocol.GetRouteRequest{})
	require.NoError(t, err)
	_, err = n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0", Addr: "10.0.0.1:10911"}, &fakeBroker{})
	require.NoError(t, err)
	_, err = c.GetRoute(t.Context(), &protocol.GetRouteRequest{})
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
}

func TestNodeIsNotCutOffFromItself(t *testing.T) {
	n := New()
	b := &fakeBroker{}
	l, err := n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, b)
	require.NoError(t, err)
	c, err := n.DialBroker(t.Context(), protocol.Dial{Node: "broker-a/0", Addr: l.Addr()})
	require.NoError(t, err)
	n.Cut("broker-a/0", "*")
	n.Cut("*", "*")
	_, err = send(t.Context(), c, "m")
	assert.NoError(t, err)
	n.Cut("broker-a/0", "broker-a/0")
	_, err = send(t.Context(), c, "m")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
}

func TestTwoServersOfOneNameAreToldApartByAddress(t *testing.T) {
	n := New()
	var conns []protocol.BrokerConn
	var addrs []string
	for range 2 {
		l, err := n.ListenBroker(t.Context(), protocol.Listen{Node: "broker-a/0"}, &fakeBroker{})
		require.NoError(t, err)
		c, err := n.DialBroker(t.Context(), protocol.Dial{Node: "c", Addr: l.Addr()})
		require.NoError(t, err)
		conns, addrs = append(conns, c), append(addrs, l.Addr())
	}
	n.Cut("*", addrs[0])
	_, err := send(t.Context(), conns[0], "m")
	assert.ErrorIs(t, err, protocol.ErrUnreachable)
	_, err = send(t.Context(), conns[1], "m")
	assert.NoError(t, err)
}

// The rules are looked at when the request leaves and again when the reply
// leaves.
func TestReplyMeetsTheRulesOfItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			w.Delay("c", "*", 50*time.Millisecond)
			return &protocol.SendMessageResponse{}, nil
		}
		start := time.Now()
		_, err := send(t.Context(), w.conn, "m")
		assert.Equal(t, outcome{"ok", 50 * time.Millisecond}, verdict(start, err))

		w.HealAll()
		w.broker.send = func(context.Context, protocol.Session, *protocol.SendMessageRequest) (*protocol.SendMessageResponse, error) {
			w.CutOneWay("broker-a/0", "c")
			return &protocol.SendMessageResponse{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = send(ctx, w.conn, "m")
		assert.Equal(t, outcome{"timeout", time.Second}, verdict(start, err))
		assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
	})
}

func TestWaitingCallIsWokenByACut(t *testing.T) {
	for _, c := range []struct {
		name string
		rule func(n *Network)
	}{
		{"request lost", func(n *Network) { n.CutOneWay("c", "broker-a/0") }},
		{"reply lost", func(n *Network) { n.CutOneWay("broker-a/0", "c") }},
		{"request under way", func(n *Network) { n.Delay("c", "broker-a/0", time.Minute) }},
		{"reply under way", func(n *Network) { n.Delay("c", "broker-a/0", 800*time.Millisecond) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.rule(w.Network)
				time.AfterFunc(time.Second, func() { w.Cut("c", "*") })
				start := time.Now()
				_, err := send(t.Context(), w.conn, "m")
				assert.Equal(t, outcome{"failed", time.Second}, verdict(start, err))
				assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
				assert.EqualError(t, err, "connection to broker-a/0 (127.1.0.1:10911) lost")
			})
		})
	}
}

func TestWaitingDialIsRefusedByACut(t *testing.T) {
	for _, c := range []struct {
		name string
		rule func(n *Network)
		kept int // sessions the broker has accepted, of which all are closed
	}{
		{"dropped", func(n *Network) { n.Drop("c", "broker-a/0") }, 0},
		{"under way", func(n *Network) { n.Delay("c", "broker-a/0", time.Minute) }, 0},
		{"accept under way", func(n *Network) { n.Delay("c", "broker-a/0", 800*time.Millisecond) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				c.rule(w.Network)
				time.AfterFunc(time.Second, func() { w.Cut("c", "*") })
				start := time.Now()
				_, err := w.dial(t.Context())
				assert.Equal(t, outcome{"failed", time.Second}, verdict(start, err))
				assert.EqualError(t, err, "broker-a/0 (127.1.0.1:10911): connection refused")
				synctest.Wait() // the cut ends one session after the other
				assert.Equal(t, []int{1, 1}[:1+c.kept], w.broker.closes())
				assert.Empty(t, w.sessions)
			})
		})
	}
}

func TestDelayedDialFindsWhoListensWhenItArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Delay("c", "*", time.Second)
		require.NoError(t, w.listener.Close())
		start := time.Now()
		_, err := w.dial(t.Context())
		assert.Equal(t, outcome{"failed", 2 * time.Second}, verdict(start, err))
		time.AfterFunc(500*time.Millisecond, func() { w.listen(t) })
		start = time.Now()
		_, err = w.dial(t.Context())
		assert.Equal(t, outcome{"ok", 2 * time.Second}, verdict(start, err))
	})
}

func TestArrivalInTheInstantOfTheDeadlineCounts(t *testing.T) {
	for range 20 { // which of two timers of one instant is first is not fixed
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.Delay("c", "*", 500*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := send(ctx, w.conn, "m")
			assert.NoError(t, err)
		})
	}
}
