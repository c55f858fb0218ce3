package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestIntervalsDefaultTo30Seconds(t *testing.T) {
	c := New(Config{})
	assert.Equal(t, 30*time.Second, c.cfg.RouteRefresh)
	assert.Equal(t, 30*time.Second, c.cfg.Heartbeat)
}

func TestNewStartsNothingAndCopiesItsConfig(t *testing.T) {
	before := runtime.NumGoroutine()
	addrs := []string{"127.0.0.1:1"}
	c := New(Config{NameServers: addrs})
	addrs[0] = "changed"
	assert.Equal(t, before, runtime.NumGoroutine())
	assert.Equal(t, "127.0.0.1:1", c.names.list[0].addr)
	require.NoError(t, c.Close())
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // ends only when all its goroutines have
		w := newWorld(t, 1)
		b, l := w.broker("broker-a/0")
		w.ns[0].set("t", routeOf([2]string{"broker-a", l.Addr()}))
		c := w.client(0, producing)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		require.NoError(t, c.HeartbeatAll(t.Context()))
		c.Start()
		b.answerHeartbeat(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		w.ns[0].holdWith(make(chan struct{}))
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Route(t.Context(), "x")
			assert.ErrorIs(t, err, protocol.ErrClosed)
		})
		wg.Go(func() {
			_, _, err := c.Refresh(t.Context(), "y")
			assert.ErrorIs(t, err, protocol.ErrClosed)
		})
		_, silent := w.broker("broker-b/0")
		w.Drop("c", "broker-b/0")
		wg.Go(func() {
			_, err := c.Broker(t.Context(), silent.Addr())
			assert.ErrorIs(t, err, protocol.ErrUnreachable)
		})
		time.Sleep(time.Second)
		start := time.Now()
		for range 3 {
			wg.Go(func() { assert.NoError(t, c.Close()) })
		}
		wg.Wait()
		assert.Equal(t, start, time.Now(), "at once")
		assert.Contains(t, b.seen(), "1s close")

		c.Start()
		require.NoError(t, c.Close())
		_, err = c.Route(t.Context(), "x")
		assert.ErrorIs(t, err, protocol.ErrClosed)
		_, _, err = c.Refresh(t.Context(), "t")
		assert.ErrorIs(t, err, protocol.ErrClosed)
		assert.EqualError(t, err, "client c: closed")
		_, err = c.Broker(t.Context(), l.Addr())
		assert.ErrorIs(t, err, protocol.ErrClosed)
		_, err = c.AllTopics(t.Context())
		assert.ErrorIs(t, err, protocol.ErrClosed)
		assert.ErrorIs(t, c.HeartbeatAll(t.Context()), protocol.ErrClosed)
		c.Unregister(t.Context(), "p", "")
	})
}

func TestCloseDuringALoopHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		b, l := w.broker("broker-a/0")
		w.ns[0].set("t", routeOf([2]string{"broker-a", l.Addr()}))
		c := w.client(0, producing)
		_, err := c.Route(t.Context(), "t")
		require.NoError(t, err)
		c.Start()
		b.answerHeartbeat(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		time.Sleep(31 * time.Second)
		synctest.Wait()
		require.Contains(t, b.seen(), "30s heartbeat c")
		require.NoError(t, c.Close())
		assert.Equal(t, 31*time.Second, time.Since(w.start))
	})
}

// LK-03: all methods while Close runs.
func TestLK03_UseDuringClose(t *testing.T) {
	for round := range 15 {
		w := newWorld(t, 2)
		_, l := w.broker("broker-a/0")
		for _, s := range w.ns {
			s.set("t", routeOf([2]string{"broker-a", l.Addr()}))
		}
		c := w.client(0, consuming, func(cfg *Config) { cfg.RouteRefresh, cfg.Heartbeat = time.Millisecond, time.Millisecond })
		c.Start()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := useOnce(c, i, n, l.Addr()); err != nil &&
						!errors.Is(err, protocol.ErrClosed) && !errors.Is(err, protocol.ErrUnreachable) &&
						!errors.Is(err, protocol.ErrUnknownOutcome) && !errors.Is(err, protocol.ErrNoRoute) {
						t.Errorf("round %d: %v", round, err)
					}
				}
			})
		}
		if round%3 == 0 {
			w.kill(0)
		}
		for range 4 * (round % 5) {
			runtime.Gosched()
		}
		require.NoError(t, c.Close())
		close(stop)
		wg.Wait()
		require.NoError(t, l.Close())
	}
}

func useOnce(c *Client, i, n int, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	switch i % 6 {
	case 0:
		_, err := c.Route(ctx, fmt.Sprint("t", n%2*n))
		return err
	case 1:
		_, _, err := c.Refresh(ctx, "t")
		return err
	case 2:
		conn, err := c.Broker(ctx, addr)
		if err == nil && n%3 == 0 {
			c.Lost(addr, conn)
		}
		return err
	case 3:
		return c.HeartbeatAll(ctx)
	case 4:
		c.Watch("w")
		c.Unwatch("w")
		c.Unregister(ctx, "p", "g")
		_, err := c.AllTopics(ctx)
		return err
	default:
		c.AddNameServer("127.1.0.2:9876")
		_, _ = c.MasterAddr("broker-a")
		_, _, _ = c.MemberAddr("broker-a", 1)
		_, err := c.ClusterInfo(ctx)
		return err
	}
}

// What a send asks of the client.
func BenchmarkRouteAddressSession(b *testing.B) {
	w := newWorld(b, 1)
	_, l := w.broker("broker-a/0")
	w.ns[0].set("t", routeOf([2]string{"broker-a", l.Addr()}))
	c := w.client(0)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		r, err := c.Route(ctx, "t")
		if err != nil {
			b.Fatal(err)
		}
		addr, _ := c.MasterAddr(r.Publish[0].BrokerName)
		if _, err = c.Broker(ctx, addr); err != nil {
			b.Fatal(err)
		}
	}
}
