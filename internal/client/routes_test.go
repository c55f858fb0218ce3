package client

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestRouteIsAskedForOnceAndCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", someRoute)
		hold := make(chan struct{})
		w.ns[0].holdWith(hold)
		c := w.client(0)
		assert.Nil(t, c.Cached("t"))
		var wg sync.WaitGroup
		routes := make([]*Route, 10)
		for i := range routes {
			wg.Go(func() {
				var err error
				routes[i], err = c.Route(t.Context(), "t")
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		assert.Equal(t, []string{"t"}, w.ns[0].lookups())
		for _, r := range routes {
			assert.Same(t, c.Cached("t"), r)
		}
		_, err := c.Route(t.Context(), "t")
		assert.NoError(t, err)
		assert.Empty(t, w.ns[0].lookups())
	})
}

func TestWaitersContextBoundsOnlyItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", someRoute)
		hold := make(chan struct{})
		w.ns[0].holdWith(hold)
		c := w.client(0)
		var wg sync.WaitGroup
		first, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := c.Route(first, "t")
			assert.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, protocol.ErrUnreachable)
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := c.Route(withTimeout(t, time.Second), "t")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.EqualError(t, err, `waiting for the route of topic "t": context deadline exceeded`)
			assert.Equal(t, time.Second, time.Since(w.start))
		})
		wg.Go(func() {
			_, err := c.Route(t.Context(), "t")
			assert.NoError(t, err)
			assert.Equal(t, 2*time.Second, time.Since(w.start))
		})
		synctest.Wait()
		cancel() // the caller who began the lookup leaves first
		time.AfterFunc(2*time.Second, func() { close(hold) })
		wg.Wait()
		assert.Len(t, w.ns[0].lookups(), 1)
	})
}

func TestWaiterWithMoreTimeThanTheFirstAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.ns[0].set("t", someRoute)
		w.ns[0].holdWith(make(chan struct{}))
		c := w.client(0)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Route(withTimeout(t, 50*time.Millisecond), "t")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		wg.Go(func() {
			_, err := c.Route(withTimeout(t, time.Second), "t")
			assert.NoError(t, err)
			assert.Equal(t, 50*time.Millisecond, time.Since(w.start))
		})
		synctest.Wait()
		w.ns[0].holdWith(nil)
		wg.Wait()
		assert.Len(t, w.ns[0].lookups(), 2)
	})
}

// changes collects what RoutesChanged is told, each with its time.
type changes struct {
	start time.Time
	mu    sync.Mutex // guards got
	got   []string
}

func (ch *changes) note(topics []string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.got = append(ch.got, fmt.Sprint(time.Since(ch.start), topics))
}

func (ch *changes) take() []string {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	got := ch.got
	ch.got = nil
	return got
}

func (ch *changes) watch(cfg *Config) { cfg.RoutesChanged = ch.note }

func TestRefreshTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		ch := &changes{start: w.start}
		w.ns[0].set("t", someRoute)
		c := w.client(0, ch.watch)
		r, changed, err := c.Refresh(t.Context(), "t")
		require.NoError(t, err)
		assert.True(t, changed, "a first route")
		assert.Equal(t, []string{"0s [t]"}, ch.take())
		again, changed, err := c.Refresh(t.Context(), "t")
		require.NoError(t, err)
		assert.False(t, changed)
		assert.Same(t, r, again)

		w.ns[0].set("t", routeOf([2]string{"broker-a", "127.0.0.1:1"}, [2]string{"broker-b", "127.0.0.1:2"}))
		r, changed, err = c.Refresh(t.Context(), "t")
		require.NoError(t, err)
		assert.True(t, changed)
		assert.Len(t, r.Publish, 2)
		assert.Equal(t, []string{"0s [t]"}, ch.take())
		addr, ok := c.MasterAddr("broker-a")
		assert.True(t, ok)
		assert.Equal(t, "127.0.0.1:1", addr)

		w.kill(0)
		_, changed, err = c.Refresh(t.Context(), "t")
		assert.ErrorIs(t, err, protocol.ErrUnreachable)
		assert.False(t, changed)
		assert.Same(t, r, c.Cached("t"), "the known route stays")
		assert.Empty(t, ch.take())
	})
}

func TestLoopRefreshesWhatIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		ch := &changes{start: w.start}
		w.ns[0].set("t", someRoute)
		w.ns[0].set("u", someRoute)
		c := w.client(0, ch.watch)
		c.Start()
		c.Start()
		c.Watch("v")
		c.Watch("v")
		_, err := c.Route(t.Context(), "u")
		require.NoError(t, err)
		_, err = c.Route(t.Context(), "t")
		require.NoError(t, err)
		assert.Empty(t, ch.take(), "Route tells its caller only")
		assert.Equal(t, []string{"u", "t"}, w.ns[0].lookups())

		time.Sleep(30*time.Second - 1)
		synctest.Wait()
		assert.Empty(t, w.ns[0].lookups())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []string{"t", "u", "v"}, w.ns[0].lookups())
		assert.Empty(t, ch.take())

		w.ns[0].set("v", someRoute) // a watched topic gets its first route
		moved := routeOf([2]string{"broker-b", "127.0.0.1:2"})
		w.ns[0].set("u", moved)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"1m0s [u v]"}, ch.take(), "one call for the round")
		assert.NotNil(t, c.Cached("v"))

		c.Unwatch("v")
		c.Unwatch("t")
		assert.Nil(t, c.Cached("v"))
		w.ns[0].lookups()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"u"}, w.ns[0].lookups())
		_, ok := c.MasterAddr("broker-a")
		assert.False(t, ok, "no route mentions it any more")
		_, ok = c.MasterAddr("broker-b")
		assert.True(t, ok)
	})
}

func TestLoopKeepsWhatItCannotRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		ch := &changes{start: w.start}
		for i := range 5 {
			w.ns[0].set(fmt.Sprint("t", i), someRoute)
			w.ns[1].set(fmt.Sprint("t", i), someRoute)
		}
		c := w.client(0, ch.watch, func(cfg *Config) { cfg.RouteRefresh = time.Minute })
		for i := range 5 {
			_, err := c.Route(t.Context(), fmt.Sprint("t", i))
			require.NoError(t, err)
		}
		c.Start()
		w.Drop("*", "*")
		w.ns[0].lookups()
		time.Sleep(time.Minute + 6*time.Second) // 3 s for each name server, then it stops
		synctest.Wait()
		c.names.mu.Lock()
		assert.Equal(t, firstBackoff, c.names.list[0].backoff.last, "one failure")
		assert.Equal(t, firstBackoff, c.names.list[1].backoff.last, "one failure")
		c.names.mu.Unlock()
		assert.NotNil(t, c.Cached("t4"))

		w.HealAll()
		w.ns[0].mu.Lock()
		w.ns[0].routes = nil // a restarted name server that nobody has registered with yet
		w.ns[0].mu.Unlock()
		w.ns[1].mu.Lock()
		w.ns[1].routes = nil
		w.ns[1].mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, w.ns[0].lookups(), 5)
		for i := range 5 {
			assert.NotNil(t, c.Cached(fmt.Sprint("t", i)))
		}
		assert.Empty(t, ch.take())
	})
}

func TestLaterLookupCountsWhicheverEndsFirst(t *testing.T) {
	w := newWorld(t, 0)
	c := w.client(0)
	route := func(addr string) *Route {
		r, err := newRoute("t", routeOf([2]string{"broker-a", addr}))
		require.NoError(t, err)
		return r
	}
	two := route("2:2")
	got, changed := c.keepRoute(two, 2)
	assert.True(t, changed)
	assert.Same(t, two, got)
	got, changed = c.keepRoute(route("1:1"), 1)
	assert.False(t, changed)
	assert.Same(t, two, got)
	got, changed = c.keepRoute(route("2:2"), 4)
	assert.False(t, changed)
	assert.Same(t, two, got)
	_, changed = c.keepRoute(route("3:3"), 3)
	assert.False(t, changed, "lookup 4 has confirmed the old one")
	_, changed = c.keepRoute(route("3:3"), 5)
	assert.True(t, changed)
	addr, _ := c.MasterAddr("broker-a")
	assert.Equal(t, "3:3", addr)
}

func TestAddressesOfBrokers(t *testing.T) {
	w := newWorld(t, 1)
	r := routeOf([2]string{"a", "1:1"}, [2]string{"b", "2:2"}, [2]string{"d", "4:4"})
	r.Brokers[0].Addrs[1] = "1:2"
	r.Brokers[1].Addrs = map[int64]string{3: "2:4", 2: "2:3"}
	r.Brokers[2].Addrs = nil
	w.ns[0].set("t", r)
	c := w.client(0)
	_, err := c.Route(t.Context(), "t")
	require.NoError(t, err)
	for _, want := range []struct {
		name, master, any string
		id                int64
	}{
		{"a", "1:1", "1:1", 0}, {"b", "", "2:3", 2}, {"d", "", "", 0}, {"x", "", "", 0},
	} {
		addr, ok := c.MasterAddr(want.name)
		assert.Equal(t, want.master, addr, want.name)
		assert.Equal(t, want.master != "", ok, want.name)
		addr, id, ok := c.MemberAddr(want.name, 0)
		assert.Equal(t, want.any, addr, want.name)
		assert.Equal(t, want.id, id, want.name)
		assert.Equal(t, want.any != "", ok, want.name)
	}
	addr, id, ok := c.MemberAddr("b", 2)
	assert.Equal(t, "2:3", addr)
	assert.Equal(t, int64(2), id)
	assert.True(t, ok)
}

func TestTopicOnIsTheFirstTopicOfABroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		c := w.client(0)
		_, ok := c.TopicOn("broker-a")
		assert.False(t, ok)
		w.ns[0].set("a", routeOf([2]string{"broker-b", "127.1.0.3:10911"}))
		w.ns[0].set("b", routeOf([2]string{"broker-a", "127.1.0.2:10911"}, [2]string{"broker-b", "127.1.0.3:10911"}))
		w.ns[0].set("c", routeOf([2]string{"broker-a", "127.1.0.2:10911"}))
		for _, topic := range []string{"c", "b", "a"} {
			_, err := c.Route(t.Context(), topic)
			require.NoError(t, err)
		}
		for broker, want := range map[string]string{"broker-a": "b", "broker-b": "a", "broker-c": ""} {
			topic, ok := c.TopicOn(broker)
			assert.Equal(t, want, topic)
			assert.Equal(t, want != "", ok)
		}
	})
}
