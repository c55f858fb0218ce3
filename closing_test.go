package pocketmq_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestProducerShutdownLetsASendInFlightEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Delay: 500 * time.Millisecond})
		ctx := t.Context()
		sends := map[string]func() error{
			"Send":   func() error { _, err := p.Send(ctx, text("T", "one")); return err },
			"SendTo": func() error { _, err := p.SendTo(ctx, queue("T", "broker-a", 0), text("T", "to")); return err },
			"SendBatch": func() error {
				_, err := p.SendBatch(ctx, []*pocketmq.Message{text("T", "a"), text("T", "b")})
				return err
			},
		}
		begin := time.Now()
		var running sync.WaitGroup
		for name, send := range sends {
			running.Go(func() { assert.NoError(t, send(), name) })
		}
		synctest.Wait()
		refused := make(chan error, 1)
		go func() {
			time.Sleep(100 * time.Millisecond)
			_, err := p.Send(ctx, text("T", "late"))
			refused <- err
		}()
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		assert.NoError(t, p.Shutdown(limited))
		assert.Equal(t, 500*time.Millisecond, time.Since(begin), "as long as the sends take")
		running.Wait()
		assert.ErrorIs(t, <-refused, pocketmq.ErrClosed, "new sends are refused at once")
		assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 4)
		assert.Zero(t, p.Status().InFlight)
	})
}

func TestProducerShutdownWaitsForASendNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Drop: true})
		sent := make(chan error, 1)
		go func() {
			_, err := p.Send(context.Background(), text("T", "x"))
			sent <- err
		}()
		synctest.Wait()
		begin := time.Now()
		limited, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_ = p.Shutdown(limited) // whether it tells that sends were left is not this test's
		assert.ErrorIs(t, <-sent, pocketmq.ErrUnknownOutcome)
		assert.Equal(t, 200*time.Millisecond, time.Since(begin))
	})
}

// blockedCallback makes a producer of c whose SendAsync callback runs until
// release is called.
func blockedCallback(t *testing.T, c *pocketmq.Cluster) (p *pocketmq.Producer, release func()) {
	t.Helper()
	p = producer(t, c, pocketmq.ProducerConfig{})
	block := make(chan struct{})
	require.NoError(t, p.SendAsync(t.Context(), text("T", "x"), func(*pocketmq.SendResult, error) { <-block }))
	synctest.Wait()
	return p, func() {
		close(block)
		synctest.Wait()
	}
}

// within is what f returns; a test error when that takes longer than d.
func within(t *testing.T, d time.Duration, what string, f func() error) error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-time.After(d + time.Nanosecond): // after d itself is late
		t.Errorf("%s has not returned after %v", what, d)
		return nil
	}
}

func TestProducerCloseCutsAShutdownShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		p, release := blockedCallback(t, c)
		shut := make(chan error, 1)
		go func() { shut <- p.Shutdown(context.Background()) }()
		synctest.Wait()
		err = within(t, 10*time.Second, "Close", p.Close)
		assert.ErrorIs(t, err, pocketmq.ErrHandlersRunning)
		if !t.Failed() {
			assert.ErrorIs(t, within(t, 10*time.Second, "a later Close", p.Close), pocketmq.ErrHandlersRunning, "it still runs")
		}
		release()
		<-shut
		assert.NoError(t, p.Close(), "nil once the callback has returned")
		check(t, c)
		assert.NoError(t, c.Close())
	})
}

func TestCloseIsNilOnceABlockedCallbackHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		p, release := blockedCallback(t, c)
		check(t, c)
		assert.ErrorIs(t, c.Close(), pocketmq.ErrHandlersRunning)
		assert.ErrorIs(t, c.Close(), pocketmq.ErrHandlersRunning, "it still runs")
		release()
		assert.NoError(t, p.Close(), "the producer")
		assert.NoError(t, c.Close(), "the cluster")
	})
}

func TestConsumerCloseCutsAShutdownShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		for i := range 200 {
			co := consumer(t, c, pocketmq.ConsumerConfig{
				Group: fmt.Sprint("g", i), Subscriptions: all("T"), From: pocketmq.FromFirstOffset,
				Handler: func(ctx context.Context, _ []*pocketmq.MessageExt) error {
					<-ctx.Done()
					return ctx.Err()
				},
			})
			synctest.Wait() // the handler runs
			begin := time.Now()
			ctx, cancel := context.WithCancel(context.Background())
			shut := make(chan struct{})
			go func() {
				defer close(shut)
				_ = co.Shutdown(ctx) // what it says of the handler that was cancelled is not this test's
			}()
			if i%2 == 0 {
				synctest.Wait() // it waits for the handler; otherwise both begin at the same time
			}
			_ = within(t, time.Second, "Close", co.Close)
			if !t.Failed() {
				<-shut
			}
			assert.Zero(t, time.Since(begin), "round %d: both return as soon as the handler has", i)
			cancel()
			<-shut
			if t.Failed() {
				return
			}
		}
	})
}

func TestSnapshotsAnswerBeforeStartAndAfterAnEarlyClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := pocketmq.InMemory()
		nobody := []string{"127.1.0.200:9876"}
		ctx := t.Context()
		type thing struct {
			lifer
			ask func()
		}
		things := map[string]func() thing{
			"producer": func() thing {
				p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: nobody, Transport: net})
				require.NoError(t, err)
				return thing{p, func() {
					_ = fmt.Sprint(p.ClientID(), p.Status())
					_, err := p.Queues(ctx, "T")
					assert.Error(t, err)
					_, err = p.Send(ctx, text("T", "x"))
					assert.Error(t, err)
				}}
			},
			"consumer": func() thing {
				co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
					Group: "g", NameServers: nobody, Transport: net, Subscriptions: all("T"),
					Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
				})
				require.NoError(t, err)
				return thing{co, func() {
					_ = co.ClientID()
					assert.Zero(t, co.Status())
					assert.Nil(t, co.Assignment())
				}}
			},
			"admin": func() thing {
				a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: nobody, Transport: net})
				require.NoError(t, err)
				return thing{a, func() {
					_, err := a.Topics(ctx)
					assert.Error(t, err)
					_, err = a.Route(ctx, "T")
					assert.Error(t, err)
					_, err = a.TopicStats(ctx, "T")
					assert.Error(t, err)
					_, err = a.MessageByID(ctx, "7F01000200002A9F0000000000000001")
					assert.Error(t, err)
					_, err = a.MessageByID(ctx, "")
					assert.Error(t, err)
					_, err = a.MessageByUniqueKey(ctx, "T", "k")
					assert.Error(t, err)
					_, err = a.MessagesByKey(ctx, "T", "k", time.Time{}, time.Time{}, 0)
					assert.Error(t, err)
					assert.Error(t, a.CreateTopic(ctx, pocketmq.TopicConfig{Name: "T"}))
				}}
			},
			"broker": func() thing {
				b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{Name: "b", Dir: filepath.Join(t.TempDir(), "b"), NameServers: nobody, Transport: net})
				require.NoError(t, err)
				return thing{b, func() {
					_ = fmt.Sprint(b.Name(), b.ID(), b.Dir(), b.Addr())
					assert.False(t, b.Status().Writable)
					_, ok := b.Group("g")
					assert.False(t, ok)
				}}
			},
			"name server": func() thing {
				s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Transport: net})
				require.NoError(t, err)
				return thing{s, func() { _ = fmt.Sprint(s.Name(), s.Addr(), s.Status()) }}
			},
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		for name, newOne := range things {
			x := newOne()
			assert.NotPanics(t, x.ask, "%s before Start", name)
			assert.NoError(t, x.Close())
			assert.NotPanics(t, x.ask, "%s after an early Close", name)

			x = newOne()
			assert.ErrorIs(t, x.Start(cancelled), context.Canceled)
			assert.NotPanics(t, x.ask, "%s after a failed Start", name)
			assert.NoError(t, x.Close())
			assert.NotPanics(t, x.ask, "%s after a failed Start and Close", name)

			x = newOne()
			if s, ok := x.lifer.(interface{ Shutdown(context.Context) error }); ok {
				assert.NoError(t, s.Shutdown(ctx))
				assert.NotPanics(t, x.ask, "%s after an early Shutdown", name)
			}
		}

		// A Start that fails late, and one that is under way.
		x := things["consumer"]()
		require.ErrorIs(t, x.Start(ctx), pocketmq.ErrUnreachable)
		assert.NotPanics(t, x.ask, "after a Start that reached nobody")
		assert.NoError(t, x.Close())
		assert.NotPanics(t, x.ask, "closed after a Start that reached nobody")
		net.Drop("*", "*")
		x = things["consumer"]()
		started := make(chan error, 1)
		go func() { started <- x.Start(context.Background()) }()
		synctest.Wait()
		assert.NotPanics(t, x.ask, "during Start")
		assert.NoError(t, x.Close())
		<-started
		assert.NotPanics(t, x.ask, "closed during Start")
		net.HealAll()
	})
}

func TestAHeartbeatAtTheInstantOfCloseLeavesNoMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		b := c.Broker("broker-a", 0)
		const consumers = 8
		for i := range rounds(100) {
			start := time.Now()
			var closed sync.WaitGroup
			for j := range consumers {
				co := consumer(t, c, pocketmq.ConsumerConfig{Group: fmt.Sprintf("g%d-%d", i, j), Subscriptions: all("T"), Handler: (&inbox{}).handler("")})
				closed.Go(func() {
					time.Sleep(time.Until(start.Add(30 * time.Second))) // its heartbeat tick
					for range (i + j) % 16 {
						runtime.Gosched()
					}
					assert.NoError(t, co.Close())
				})
			}
			closed.Wait()
			synctest.Wait()
			for j := range consumers {
				g, _ := b.Group(fmt.Sprintf("g%d-%d", i, j))
				require.Empty(t, g.Members, "round %d, consumer %d", i, j)
			}
		}
	})
}

func TestAHeartbeatThatRacesWithTheEndOfItsSessionLeavesNoMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		b := c.Broker("broker-a", 0)
		for i := range rounds(1000) {
			group := fmt.Sprint("g", i)
			conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: fmt.Sprint("c", i), Addr: b.Addr()})
			require.NoError(t, err)
			var race sync.WaitGroup
			for range 3 {
				race.Go(func() {
					for range 3 { // refused once the session has ended
						_, _ = conn.Heartbeat(context.Background(), &protocol.HeartbeatRequest{ClientID: "x", Consumers: []protocol.ConsumerData{{
							Group: group, Subscriptions: []protocol.Subscription{{Topic: "T", Expression: "*"}},
						}}})
					}
				})
			}
			race.Go(func() {
				for range i % 4 {
					runtime.Gosched()
				}
				assert.NoError(t, conn.Close())
			})
			race.Wait()
			synctest.Wait()
			g, _ := b.Group(group)
			require.Empty(t, g.Members, "round %d", i)
		}
	})
}

func TestARegistrationThatRacesWithTheEndOfItsSessionLeavesNoRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		ns := c.NameServer(0)
		real := ns.Status().Brokers
		require.Len(t, real, 1)
		for i := range rounds(1000) {
			name := fmt.Sprint("ghost-", i)
			conn, err := c.Transport().DialNameServer(t.Context(), protocol.Dial{Node: name, Addr: ns.Addr()})
			require.NoError(t, err)
			var race sync.WaitGroup
			for range 3 {
				race.Go(func() {
					for range 3 { // refused once the session has ended
						_, _ = conn.RegisterBroker(context.Background(), &protocol.RegisterBrokerRequest{
							Cluster: "c", BrokerName: name, Addr: fmt.Sprintf("10.0.%d.%d:1", i/250, i%250+1),
							Topics: []protocol.TopicConfig{{Name: "ghost", ReadQueues: 1, WriteQueues: 1, Perm: pocketmq.PermRead | pocketmq.PermWrite}},
						})
					}
				})
			}
			race.Go(func() {
				for range i % 4 {
					runtime.Gosched()
				}
				assert.NoError(t, conn.Close())
			})
			race.Wait()
			synctest.Wait()
			brokers := ns.Status().Brokers
			require.Len(t, brokers, 1, "round %d", i)
			require.Equal(t, real[0].Name, brokers[0].Name)
			if i%100 == 0 {
				_, err = c.Admin().Route(t.Context(), "ghost")
				require.ErrorIs(t, err, pocketmq.ErrNoRoute)
			}
		}
		_, err := c.Admin().Route(t.Context(), "ghost")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
	})
}

func TestAClientThatDidNotStartIsNil(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		handler := (&inbox{}).handler("")
		producer(t, c, pocketmq.ProducerConfig{Group: "g", InstanceName: "one"})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "other", Subscriptions: all("T"), Handler: handler})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		fails := func(what string, ctx context.Context, pc pocketmq.ProducerConfig, cc pocketmq.ConsumerConfig, want error) {
			t.Helper()
			p, err := c.StartProducer(ctx, pc)
			assert.ErrorIs(t, err, want, what)
			assert.Nil(t, p, "%s: producer", what)
			cc.Handler = handler
			co, err := c.StartConsumer(ctx, cc)
			assert.ErrorIs(t, err, want, what)
			assert.Nil(t, co, "%s: consumer", what)
		}
		good := pocketmq.ConsumerConfig{Group: "h"}
		fails("bad config", t.Context(), pocketmq.ProducerConfig{Group: "a b"}, pocketmq.ConsumerConfig{Group: "a b"}, pocketmq.ErrInvalidConfig)
		fails("cancelled", cancelled, pocketmq.ProducerConfig{}, good, context.Canceled)
		fails("duplicate", t.Context(), pocketmq.ProducerConfig{Group: "g", InstanceName: "one"}, pocketmq.ConsumerConfig{Group: "g", InstanceName: "other"}, pocketmq.ErrDuplicateClient)
		co, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{Group: "h", NameServers: []string{"127.1.0.200:9876"}, Subscriptions: all("T"), Handler: handler})
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
		assert.Nil(t, co, "unreachable")
		check(t, c)
		require.NoError(t, c.Close())
		fails("closed", t.Context(), pocketmq.ProducerConfig{}, good, pocketmq.ErrClosed)
	})
}
