package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
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

func TestCP09_ShutdownWaitsForRunningHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 4 {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "good %d", i))
			require.NoError(t, err)
		}
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 1), text("T", "bad"))
		require.NoError(t, err)
		var in inbox
		cfg := pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset,
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs)
				time.Sleep(300 * time.Millisecond)
				assert.NoError(t, ctx.Err(), "Shutdown does not cancel a handler that has time")
				if string(msgs[0].Body) == "bad" {
					return errors.New("bad")
				}
				return nil
			},
		}
		for range 5 {
			co := consumer(t, c, cfg)
			begin := time.Now()
			time.Sleep(100 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			require.NoError(t, co.Shutdown(ctx))
			cancel()
			assert.Equal(t, 300*time.Millisecond, time.Since(begin), "exactly as long as the handlers take")
			assert.Zero(t, co.Status().Running)
			time.Sleep(time.Hour) // the broker has put its copy of the bad one into the retry queue
		}
		n := make(map[string]int)
		for _, body := range in.bodies() {
			n[body]++
		}
		assert.Equal(t, map[string]int{"good 0": 1, "good 1": 1, "good 2": 1, "good 3": 1, "bad": 5}, n,
			"what is finished does not come back; what failed has one copy per cycle")
	})
}

func TestCP09_ShutdownThatIsTooShortSaysWhatWasLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 4 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		var in inbox
		cfg := pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Concurrency: 2,
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs)
				select {
				case <-time.After(300 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		}
		co := consumer(t, c, cfg)
		synctest.Wait() // two handlers run
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := co.Shutdown(ctx)
		assert.Equal(t, 50*time.Millisecond, time.Since(begin))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "2 handlers")
		assert.ErrorContains(t, err, "4 messages")
		synctest.Wait()
		assert.NoError(t, co.Close(), "the handlers have returned meanwhile")

		co = consumer(t, c, cfg)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"0", "0", "1", "1", "2", "3"}, in.bodies(), "unfinished ones come again")
		require.NoError(t, co.Shutdown(t.Context()))
	})
}

// slowConsumer starts a consumer of two queues of "T" whose handler is busy for
// a second with the one message that it has got, of queue 0.
func slowConsumer(t *testing.T, c *pocketmq.Cluster, in *inbox) *pocketmq.Consumer {
	t.Helper()
	co := consumer(t, c, pocketmq.ConsumerConfig{
		Group: "g", Subscriptions: all("T"),
		Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			in.put("c", msgs)
			time.Sleep(time.Second)
			return nil
		},
	})
	_, err := producer(t, c, pocketmq.ProducerConfig{}).SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
	require.NoError(t, err)
	synctest.Wait()
	return co
}

func TestCP09_ShutdownSaysWhichOffsetsItCouldNotStore(t *testing.T) {
	silent := func(n *pocketmq.MemoryNetwork, client string) { n.Drop(client, "broker-a/0") }
	for name, tc := range map[string]struct {
		fault func(n *pocketmq.MemoryNetwork, client string)
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		takes time.Duration // from the start of the handler
		is    []error
	}{
		"silent broker, ctx has a deadline": {silent, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 1500*time.Millisecond)
		}, 1500 * time.Millisecond, []error{pocketmq.ErrUnknownOutcome, context.DeadlineExceeded}},
		"silent broker, ctx is cancelled": {silent, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(1200*time.Millisecond, cancel)
			return ctx, cancel
		}, 1200 * time.Millisecond, []error{pocketmq.ErrUnknownOutcome, context.Canceled}},
		"silent broker, ctx without end": {silent, context.WithCancel,
			4 * time.Second, []error{pocketmq.ErrUnknownOutcome, context.DeadlineExceeded}},
		"no broker": {func(n *pocketmq.MemoryNetwork, client string) { n.Cut(client, "broker-a/0") }, context.WithCancel,
			time.Second, []error{pocketmq.ErrUnreachable}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
				var in inbox
				co := slowConsumer(t, c, &in)
				tc.fault(links(t, c), co.ClientID())
				begin := time.Now()
				ctx, cancel := tc.ctx(t.Context())
				defer cancel()
				err := co.Shutdown(ctx)
				assert.Equal(t, tc.takes, time.Since(begin))
				for _, want := range tc.is {
					assert.ErrorIs(t, err, want)
				}
				assert.NotErrorIs(t, err, pocketmq.ErrHandlersRunning)
				assert.ErrorContains(t, err, "T@broker-a:0: broker-a")
				assert.NotContains(t, fmt.Sprint(err), "T@broker-a:1", "nothing was finished there")
				assert.ErrorContains(t, err, "again")
				assert.NoError(t, co.Close())
				assert.Equal(t, tc.takes, time.Since(begin), "nothing is left to close")

				links(t, c).HealAll()
				time.Sleep(3 * time.Minute) // the broker forgets the silent member
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("next")})
				synctest.Wait()
				assert.Equal(t, []string{"x", "x"}, in.bodies(), "delivered again")
			})
		})
	}
}

func TestCP09_WhatIsFinishedWhileShutdownWaitsIsStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"),
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				select {
				case <-time.After(time.Duration(1+msgs[0].Queue.QueueID) * time.Second):
				case <-ctx.Done():
				}
				return ctx.Err()
			},
		})
		for id := range 2 {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", id), text("T", "%d", id))
			require.NoError(t, err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		err := co.Shutdown(ctx)
		assert.ErrorIs(t, err, pocketmq.ErrHandlersRunning)
		assert.ErrorContains(t, err, "1 handlers")
		assert.NotContains(t, fmt.Sprint(err), "T@broker-a", "no finished message is lost")
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		assert.Empty(t, g.Members)
		for _, q := range g.Queues {
			assert.Equal(t, int64(1-q.Queue.QueueID), max(q.Committed, 0), "%v", q.Queue)
		}
	})
}

func TestCP09_ShutdownEndsWithItsContextWhateverHandlersDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		release := make(chan struct{})
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), CloseTimeout: 2 * time.Second,
			Handler: func(context.Context, []*pocketmq.MessageExt) error { <-release; return nil },
		})
		_, err := producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		synctest.Wait()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, co.Shutdown(ctx), pocketmq.ErrHandlersRunning)
		assert.Equal(t, time.Second, time.Since(begin))
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Empty(t, g.Members, "it has left the group")
		assert.ErrorIs(t, co.Close(), pocketmq.ErrHandlersRunning)
		assert.Equal(t, 3*time.Second, time.Since(begin), "Close waits for them")
		close(release)
		assert.NoError(t, co.Close())
		assert.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestCP09_AShorterShutdownLeavesTheOtherItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		var in inbox
		co := slowConsumer(t, c, &in)
		begin := time.Now()
		var long sync.WaitGroup
		long.Go(func() {
			assert.NoError(t, co.Shutdown(context.Background()))
			assert.Equal(t, time.Second, time.Since(begin))
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		assert.ErrorIs(t, co.Shutdown(ctx), context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(begin))
		long.Wait()
		assert.NoError(t, co.Close())
	})
}

func TestCloseDoesNotFailForOffsetsItCouldNotStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		require.NoError(t, err)
		var in inbox
		co := slowConsumer(t, c, &in)
		links(t, c).Drop(co.ClientID(), "broker-a/0")
		begin := time.Now()
		check(t, c)
		assert.NoError(t, c.Close())
		assert.Equal(t, 4*time.Second, time.Since(begin), "the handler's second and three for the silent broker")
	})
}

func TestCloseOfAConsumerWithAStuckHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		release := make(chan struct{})
		var cancelled atomic.Bool
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), CloseTimeout: 2 * time.Second,
			Handler: func(ctx context.Context, _ []*pocketmq.MessageExt) error {
				<-ctx.Done()
				cancelled.Store(true)
				<-release // does not care
				return nil
			},
		})
		_, err = p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		synctest.Wait()
		begin := time.Now()
		assert.ErrorIs(t, co.Close(), pocketmq.ErrHandlersRunning)
		assert.Equal(t, 2*time.Second, time.Since(begin))
		assert.True(t, cancelled.Load(), "the handler's context was cancelled")
		assert.ErrorIs(t, co.Close(), pocketmq.ErrHandlersRunning, "it still runs")
		check(t, c)
		assert.ErrorIs(t, c.Close(), pocketmq.ErrHandlersRunning, "the cluster joins its clients' errors")
		close(release)
		synctest.Wait()
		assert.NoError(t, co.Close(), "nil once it has returned")
	})
}

func TestWhatFailsAfterCloseCancelledItStaysUnfinished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for id := range 2 {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", id), text("T", "%d", id))
			require.NoError(t, err)
		}
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"),
			Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
				<-ctx.Done()
				if string(msgs[0].Body) == "0" {
					return ctx.Err()
				}
				return nil
			},
		})
		synctest.Wait()
		require.NoError(t, co.Close())
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		require.NotEmpty(t, g.Queues)
		committed := map[int]int64{0: -1, 1: -1}
		for _, q := range g.Queues {
			committed[q.Queue.QueueID] = q.Committed
		}
		assert.LessOrEqual(t, committed[0], int64(0), "failed: not committed")
		assert.Equal(t, int64(1), committed[1], "consumed: committed")
	})
}

func TestCloseFromAHandlerDoesNotDeadlock(t *testing.T) {
	for _, who := range []string{"consumer", "cluster"} {
		t.Run(who, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				require.NoError(t, err)
				p := producer(t, c, pocketmq.ProducerConfig{})
				var co *pocketmq.Consumer
				closed := make(chan error, 1)
				acknowledged := make(chan struct{}) // a Close before would take the answer away
				co = consumer(t, c, pocketmq.ConsumerConfig{
					Group: "g", Subscriptions: all("T"), CloseTimeout: time.Second,
					Handler: func(context.Context, []*pocketmq.MessageExt) error {
						<-acknowledged
						if who == "consumer" {
							closed <- co.Close()
						} else {
							closed <- c.Close()
						}
						return nil
					},
				})
				begin := time.Now()
				_, err = p.Send(t.Context(), text("T", "x"))
				require.NoError(t, err)
				close(acknowledged)
				assert.ErrorIs(t, <-closed, pocketmq.ErrHandlersRunning)
				assert.Equal(t, time.Second, time.Since(begin), "after CloseTimeout")
				synctest.Wait()
				assert.NoError(t, co.Close(), "the handler has returned")
				if who == "consumer" {
					check(t, c)
					assert.NoError(t, c.Close())
				} else {
					assert.NoError(t, c.Close(), "the handler has returned")
				}
			})
		})
	}
}

func TestCloseFromOnEventDoesNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ready := make(chan *pocketmq.Cluster, 1)
		closed := make(chan error, 1)
		var once sync.Once
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{
			Topics: map[string]int{"T": 1},
			OnEvent: func(e pocketmq.Event) {
				if _, ok := e.(pocketmq.MemberJoined); ok {
					once.Do(func() { closed <- (<-ready).Close() })
				}
			},
		})
		require.NoError(t, err)
		ready <- c
		_, err = c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"),
			Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
		})
		if err != nil {
			assert.ErrorIs(t, err, pocketmq.ErrClosed)
		}
		err = <-closed
		assert.ErrorIs(t, err, pocketmq.ErrHandlersRunning, "OnEvent itself still runs")
		assert.NoError(t, c.Close(), "OnEvent has returned")
	})
}

func TestCloseFromASendAsyncCallbackDoesNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		closed := make(chan error, 1)
		require.NoError(t, p.SendAsync(t.Context(), text("T", "x"), func(*pocketmq.SendResult, error) { closed <- p.Close() }))
		assert.ErrorIs(t, <-closed, pocketmq.ErrHandlersRunning)
		check(t, c)
		_ = c.Close() // joins what the producer's Close returned
	})
}

func TestClusterShutdownDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, Dir: t.TempDir()})
		require.NoError(t, err)
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"),
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				time.Sleep(time.Second)
				in.put("c", msgs)
				return nil
			},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 10 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait() // all ten are being handled
		c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Delay: 100 * time.Millisecond})
		var acked atomic.Int64
		require.NoError(t, p.SendAsync(t.Context(), text("T", "late"), func(_ *pocketmq.SendResult, err error) {
			assert.NoError(t, err)
			acked.Add(1)
		}))
		check(t, c)
		require.NoError(t, c.Shutdown(t.Context()))
		assert.Equal(t, numbers(10), in.bodies(), "running handlers end")
		assert.Equal(t, int64(1), acked.Load(), "so do sends")
		assert.NoError(t, c.Close())
	})
}

func TestLK03_EverythingRefusesToWorkAfterClose(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 1}})
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		handler := func(context.Context, []*pocketmq.MessageExt) error { return nil }
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: handler})
		b, ns, admin := c.Broker("broker-a", 0), c.NameServer(0), c.Admin()
		addr := b.Addr()
		check(t, c)
		require.NoError(t, c.Close())
		ctx := t.Context()
		for name, do := range map[string]func() error{
			"Producer.Send":  func() error { _, err := p.Send(ctx, text("T", "x")); return err },
			"SendTo":         func() error { _, err := p.SendTo(ctx, queue("T", "broker-a", 0), text("T", "x")); return err },
			"SendBatch":      func() error { _, err := p.SendBatch(ctx, []*pocketmq.Message{text("T", "x")}); return err },
			"SendOneway":     func() error { return p.SendOneway(ctx, text("T", "x")) },
			"SendAsync":      func() error { return p.SendAsync(ctx, text("T", "x"), func(*pocketmq.SendResult, error) {}) },
			"Queues":         func() error { _, err := p.Queues(ctx, "T"); return err },
			"Producer.Start": func() error { return p.Start(ctx) },
			"SendSelect": func() error {
				_, err := p.SendSelect(ctx, text("T", "x"), func(_ *pocketmq.Message, qs []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
					return qs[0], nil
				})
				return err
			},
			"Consumer.Start":    func() error { return co.Start(ctx) },
			"Admin.CreateTopic": func() error { return admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "X"}) },
			"Admin.Topics":      func() error { _, err := admin.Topics(ctx); return err },
			"Admin.Route":       func() error { _, err := admin.Route(ctx, "T"); return err },
			"Admin.Start":       func() error { return admin.Start(ctx) },
			"Broker.Start":      func() error { return b.Start(ctx) },
			"Broker.Check":      func() error { return b.Check(ctx) },
			"NameServer.Start":  func() error { return ns.Start(ctx) },
			"StartProducer":     func() error { _, err := c.StartProducer(ctx, pocketmq.ProducerConfig{}); return err },
			"StartConsumer": func() error {
				_, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{Group: "g", Handler: handler})
				return err
			},
			"StartPullConsumer": func() error {
				_, err := c.StartPullConsumer(ctx, pocketmq.PullConsumerConfig{Group: "g"})
				return err
			},
			"AddGroup":          func() error { return c.AddGroup(ctx, pocketmq.BrokerGroup{Name: "b"}) },
			"AddNameServer":     func() error { return c.AddNameServer(ctx) },
			"Kill":              func() error { return c.Kill("broker-a", 0) },
			"Restart":           func() error { return c.Restart(ctx, "broker-a", 0) },
			"KillNameServer":    func() error { return c.KillNameServer(0) },
			"RestartNameServer": func() error { return c.RestartNameServer(ctx, 0) },
		} {
			assert.ErrorIs(t, do(), pocketmq.ErrClosed, name)
		}
		for name, do := range map[string]func() error{
			"producer": p.Close, "consumer": co.Close, "admin": admin.Close, "broker": b.Close, "name server": ns.Close, "cluster": c.Close,
			"cluster shutdown":  func() error { return c.Shutdown(ctx) },
			"producer shutdown": func() error { return p.Shutdown(ctx) },
			"consumer shutdown": func() error { return co.Shutdown(ctx) },
			"broker shutdown":   func() error { return b.Shutdown(ctx) },
		} {
			assert.NoError(t, do(), "closing the %s again", name)
		}
		// Snapshots still answer.
		assert.Equal(t, addr, b.Addr())
		assert.False(t, b.Status().Writable)
		assert.Nil(t, co.Assignment())
		_, ok := b.Group("g")
		assert.False(t, ok)
		_ = fmt.Sprint(ns.Status(), p.Status(), co.Status(), c.NameServerAddrs())
		h := c.Inject(pocketmq.Fault{})
		h.Remove()
		_, err = c.Transport().DialBroker(ctx, dialTo(addr))
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable)
	})
}

// Answers are still under way on a connection when their handlers have returned.
func TestAShutdownOfABrokerOverTCPAnswersWhatIsInFlight(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Transport: overTCP(), Topics: map[string]int{"T": 1}})
	const senders = 32
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	hold := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Delay: 200 * time.Millisecond})
	var sending sync.WaitGroup
	for range senders {
		sending.Go(func() {
			_, err := p.Send(t.Context(), text("T", "one"))
			assert.NotErrorIs(t, err, pocketmq.ErrUnknownOutcome, "stored or refused")
		})
	}
	require.NoError(t, hold.Wait(t.Context(), senders))
	require.NoError(t, c.Broker("broker-a", 0).Shutdown(t.Context()))
	sending.Wait()
}
