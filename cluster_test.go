package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestTheZeroClusterIsOneNameServerAndOneBroker(t *testing.T) {
	ofMemory(t, "the zero cluster is in memory")
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		b := c.Broker("broker-a", 0)
		require.NotNil(t, b)
		assert.Equal(t, "broker-a", b.Name())
		assert.Zero(t, b.ID())
		assert.Equal(t, "ns-0", c.NameServer(0).Name())
		assert.Equal(t, []string{c.NameServer(0).Addr()}, c.NameServerAddrs())
		assert.Nil(t, c.NameServer(1))
		assert.Nil(t, c.NameServer(-1))
		assert.Nil(t, c.Broker("broker-a", 1))
		assert.Nil(t, c.Broker("broker-b", 0))
		assert.Equal(t, []*pocketmq.Broker{b}, slices.Collect(c.Brokers()))
		assert.Same(t, c.Transport(), c.Network())

		st := c.NameServer(0).Status()
		assert.Equal(t, []pocketmq.BrokerLive{{Name: "broker-a", Addr: b.Addr()}}, st.Brokers)
		assert.Positive(t, st.Topics)
		assert.Positive(t, st.Requests)
		bs := b.Status()
		assert.True(t, bs.Writable)
		assert.Empty(t, bs.Reason)
		assert.NoError(t, bs.Err)
		assert.Zero(t, bs.WrittenPosition)
		route, err := c.Admin().Route(t.Context(), "TBW102")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.BrokerData{{Cluster: "DefaultCluster", BrokerName: "broker-a", Addrs: map[int64]string{0: b.Addr()}}}, route.Brokers)
		assert.DirExists(t, b.Dir())
		assert.Equal(t, "broker-a-0", filepath.Base(b.Dir()))

		dir := b.Dir()
		stop(t, c)
		assert.NoDirExists(t, filepath.Dir(dir), "a throwaway folder is removed")
	})
}

func TestAClusterMayHaveTheTopicForTraces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"RMQ_SYS_TRACE_TOPIC": 2}})
		route, err := c.Admin().Route(t.Context(), "RMQ_SYS_TRACE_TOPIC")
		require.NoError(t, err)
		assert.Equal(t, 2, route.Queues[0].WriteQueues)
		_, err = startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"SELF_TEST_TOPIC": 1}})
		require.ErrorIs(t, err, pocketmq.ErrIllegalName)
	})
}

func TestTopicsOnReopening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		queues := func(c *pocketmq.Cluster) map[string]int {
			n := make(map[string]int)
			for _, topic := range []string{"grows", "shrinks", "stays", "new"} {
				route, err := c.Admin().Route(t.Context(), topic)
				if errors.Is(err, pocketmq.ErrNoRoute) {
					continue
				}
				require.NoError(t, err)
				for _, q := range route.Queues {
					assert.Equal(t, q.ReadQueues, q.WriteQueues)
					assert.Equal(t, pocketmq.PermRead|pocketmq.PermWrite, q.Perm)
					n[topic] += q.WriteQueues
				}
			}
			return n
		}
		c := run(t, pocketmq.ClusterConfig{Dir: dir, Groups: groups("a", "b"), Topics: map[string]int{"grows": 2, "shrinks": 4, "stays": 3}})
		assert.Equal(t, map[string]int{"grows": 4, "shrinks": 8, "stays": 6}, queues(c))
		stop(t, c)
		c = run(t, pocketmq.ClusterConfig{
			Dir: dir, Topics: map[string]int{"grows": 5, "shrinks": 1, "new": 2},
			Groups: []pocketmq.BrokerGroup{{Name: "a", Config: pocketmq.BrokerConfig{Topics: map[string]int{"new": 7}}}, {Name: "b"}},
		})
		assert.Equal(t, map[string]int{"grows": 10, "shrinks": 8, "stays": 6, "new": 9}, queues(c), "missing ones are made, counts grow and never shrink")
		stop(t, c)
		for _, name := range []string{"a-0", "b-0"} {
			assert.FileExists(t, filepath.Join(dir, name, "FORMAT"))
		}
	})
}

func TestDataOutlivesTheCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}}
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 10, 0)
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})
		synctest.Wait()
		require.Len(t, in.arrivals(), 10, "a new group starts at 0 of a queue that holds its first message")
		sendNumbered(t, p, 10, 1, 10)
		stop(t, c)

		c = run(t, cfg)
		p = producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 11, 5, 11)
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("2")})
		synctest.Wait()
		var got []string
		for _, a := range in.arrivals() {
			got = append(got, string(a.msg.Body))
		}
		seen := slices.Clone(got)
		slices.Sort(seen)
		assert.Equal(t, numbered(0, 16), slices.Compact(seen))
		assert.LessOrEqual(t, len(got), 17, "at most what was in flight at Close comes again")
	})
}

func TestKillAndRestartKeepTheAddressAndWhatWasAcknowledged(t *testing.T) {
	for _, real := range []bool{true, false} {
		t.Run(fmt.Sprint("real folder ", real), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				cfg := pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}, OnEvent: events.add}
				if real {
					cfg.Dir = t.TempDir()
				}
				c := run(t, cfg)
				p := producer(t, c, pocketmq.ProducerConfig{})
				sendNumbered(t, p, 0, 25, 0)
				old := c.Broker("broker-a", 0)
				addr, dir := old.Addr(), old.Dir()
				check(t, c)
				require.NoError(t, c.Kill("broker-a", 0))
				assert.Same(t, old, c.Broker("broker-a", 0), "the last instance")
				assert.False(t, old.Status().Writable)
				synctest.Wait()
				gone := eventsOf[pocketmq.BrokerExpired](&events)
				require.Len(t, gone, 1, "its connection was reset")
				assert.Equal(t, "connection closed", gone[0].Reason)
				assert.Error(t, c.Kill("broker-a", 0), "it does not run")
				assert.ErrorIs(t, c.Kill("broker-x", 0), pocketmq.ErrNotFound)
				assert.ErrorIs(t, c.Restart(t.Context(), "broker-x", 0), pocketmq.ErrNotFound)
				assert.Error(t, c.Restart(t.Context(), "broker-b", 0), "it runs")
				route, err := c.Admin().Route(t.Context(), "T")
				require.NoError(t, err)
				require.Len(t, route.Queues, 1)
				assert.Equal(t, "broker-b", route.Queues[0].BrokerName)

				begin := time.Now()
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				assert.Equal(t, begin, time.Now())
				b := c.Broker("broker-a", 0)
				assert.NotSame(t, old, b)
				assert.Equal(t, addr, b.Addr())
				assert.Equal(t, dir, b.Dir())
				assert.Zero(t, b.Status().Cut)
				assert.Equal(t, numbered(0, 25), bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
				route, err = c.Admin().Route(t.Context(), "T")
				require.NoError(t, err)
				assert.Len(t, route.Queues, 2, "routable when Restart returns")
				sendNumbered(t, p, 25, 1, 25) // with the producer of before

				// A broker that was closed can be restarted as well.
				check(t, c)
				require.NoError(t, b.Close())
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				sendNumbered(t, p, 26, 1, 26)
			})
		})
	}
}

func TestConsumersGoOnAfterKillAndRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}, Dir: t.TempDir()})
		var in inbox
		cs := []*pocketmq.Consumer{
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")}),
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("2")}),
		}
		p := producer(t, c, pocketmq.ProducerConfig{})
		sent := 0
		send := func(n int) {
			t.Helper()
			for range n {
				_, err := p.Send(t.Context(), text("T", "%d", sent))
				require.NoError(t, err)
				sent++
			}
		}
		for round := range 3 {
			send(20)
			time.Sleep(time.Duration(round) * 7 * time.Second)
			check(t, c)
			require.NoError(t, c.Kill("broker-a", 0))
			send(20)
			time.Sleep(10 * time.Second)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			send(20)
			time.Sleep(time.Minute)
			synctest.Wait()
			got := in.bodies()
			assert.Equal(t, numbers(sent), slices.Compact(got), "round %d", round)
			assert.Equal(t, []int{2, 2}, sizes(cs))
		}
	})
}

func TestANameServerThatWasKilledHasItsRoutesBackWithinBrokerRegister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		sleepUntil(start.Add(7 * time.Second))
		old := c.NameServer(0)
		require.NoError(t, c.KillNameServer(0))
		assert.Error(t, c.KillNameServer(0), "it does not run")
		assert.ErrorIs(t, c.KillNameServer(1), pocketmq.ErrNotFound)
		assert.ErrorIs(t, c.RestartNameServer(t.Context(), 1), pocketmq.ErrNotFound)
		require.NoError(t, c.RestartNameServer(t.Context(), 0))
		assert.Error(t, c.RestartNameServer(t.Context(), 0), "it runs")
		assert.Equal(t, old.Addr(), c.NameServer(0).Addr())
		sleepUntil(start.Add(30*time.Second - 1))
		assert.Empty(t, c.NameServer(0).Status().Brokers, "its tables were empty")
		_, err := c.Admin().Route(t.Context(), "T")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
		sleepUntil(start.Add(30 * time.Second))
		assert.Len(t, c.NameServer(0).Status().Brokers, 2)
		_, err = c.Admin().Route(t.Context(), "T")
		assert.NoError(t, err)
	})
}

func TestBrokersCanBeRestartedWhileANameServerIsDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 1, 0)
		require.NoError(t, c.KillNameServer(0))
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		sendNumbered(t, p, 1, 1, 1)
		require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-b"}))
	})
}

func TestAddGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Topics: map[string]int{"T": 2}})
		begin := time.Now()
		require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-b", Config: pocketmq.BrokerConfig{Topics: map[string]int{"U": 3}}}))
		assert.Equal(t, begin, time.Now())
		for i := range 2 {
			assert.Len(t, c.NameServer(i).Status().Brokers, 2, "routable at every name server")
		}
		route, err := c.Admin().Route(t.Context(), "T")
		require.NoError(t, err)
		assert.Len(t, route.Queues, 2, "the cluster's topics are there too")
		route, err = c.Admin().Route(t.Context(), "U")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.QueueData{{BrokerName: "broker-b", ReadQueues: 3, WriteQueues: 3, Perm: 6}}, route.Queues)
		err = c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-b"})
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		err = c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "a/b", Config: pocketmq.BrokerConfig{Dir: "x"}})
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, c.AddGroup(ctx, pocketmq.BrokerGroup{Name: "broker-c"}), context.Canceled)
		assert.Nil(t, c.Broker("broker-c", 0))
		require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-c"}), "a failed one may be repeated")
		check(t, c)
		require.NoError(t, c.Kill("broker-b", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-b", 0))
	})
}

func TestStartClusterThatFailsLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		root := t.TempDir()
		used := run(t, pocketmq.ClusterConfig{Dir: filepath.Join(root, "used")})
		file := filepath.Join(root, "file")
		require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
		net := pocketmq.InMemory()
		taken := run(t, pocketmq.ClusterConfig{Transport: net})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		temps := func() int {
			entries, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			n := 0
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), "pocketmq-") && strings.Contains(e.Name(), "fails") {
					n++
				}
			}
			return n
		}
		before := temps()
		for name, tc := range map[string]struct {
			ctx   context.Context
			cfg   pocketmq.ClusterConfig
			names string
		}{
			"a cancelled context":     {cancelled, pocketmq.ClusterConfig{Name: "mine"}, "mine"},
			"a folder in use":         {t.Context(), pocketmq.ClusterConfig{Dir: filepath.Join(root, "used")}, used.Broker("broker-a", 0).Dir()},
			"a folder that is a file": {t.Context(), pocketmq.ClusterConfig{Dir: file}, file},
			"an address in use":       {t.Context(), pocketmq.ClusterConfig{Transport: net, NameServerAddrs: taken.NameServerAddrs()}, taken.NameServerAddrs()[0]},
			"a broker's address in use": {
				t.Context(),
				pocketmq.ClusterConfig{
					Transport: net, NameServerAddrs: []string{"127.9.0.1:9876"},
					Groups: []pocketmq.BrokerGroup{{Name: "x", Addrs: []string{taken.Broker("broker-a", 0).Addr()}}},
				},
				taken.Broker("broker-a", 0).Addr(),
			},
		} {
			c, err := startCluster(tc.ctx, t, tc.cfg)
			assert.Nil(t, c, name)
			require.Error(t, err, name)
			assert.ErrorContains(t, err, tc.names, name)
			var answered *pocketmq.Error
			assert.False(t, errors.As(err, &answered), name)
		}
		assert.Equal(t, before, temps())
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "x", string(data))
		_, err = startCluster(cancelled, t, pocketmq.ClusterConfig{})
		assert.ErrorIs(t, err, context.Canceled)
		require.NoError(t, used.Broker("broker-a", 0).Check(t.Context()), "those that ran are not disturbed")
	})
}

func TestSeveralClustersOnOneNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := pocketmq.InMemory()
		one := run(t, pocketmq.ClusterConfig{Transport: net, Topics: map[string]int{"T": 1}})
		two := run(t, pocketmq.ClusterConfig{Transport: net, Topics: map[string]int{"T": 1}})
		for i, c := range []*pocketmq.Cluster{one, two} {
			p := producer(t, c, pocketmq.ProducerConfig{})
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		for i, c := range []*pocketmq.Cluster{one, two} {
			assert.Equal(t, []string{fmt.Sprint(i)}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
			assert.Len(t, c.NameServer(0).Status().Brokers, 1)
		}
		stop(t, one)
		p := producer(t, two, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		assert.NoError(t, err, "a transport that was given is not closed")
	})
}

// lifer is what all servers and clients have in common.
type lifer interface {
	Start(context.Context) error
	Close() error
}

func TestOneLifeForEverything(t *testing.T) {
	makers := map[string]func(t *testing.T, c *pocketmq.Cluster) lifer{
		"name server": func(t *testing.T, c *pocketmq.Cluster) lifer {
			s, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Name: "ns-x", Transport: c.Transport()})
			require.NoError(t, err)
			assert.Empty(t, s.Addr(), "New starts nothing")
			return s
		},
		"broker": func(t *testing.T, c *pocketmq.Cluster) lifer {
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "broker-x", Dir: filepath.Join(t.TempDir(), "b"), NameServers: c.NameServerAddrs(), Transport: c.Transport(),
			})
			require.NoError(t, err)
			assert.NoDirExists(t, b.Dir(), "New starts nothing")
			return b
		},
		"producer": func(t *testing.T, c *pocketmq.Cluster) lifer {
			p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
			require.NoError(t, err)
			_, err = p.Send(t.Context(), text("T", "x"))
			assert.ErrorIs(t, err, pocketmq.ErrNotStarted)
			return p
		},
		"consumer": func(t *testing.T, c *pocketmq.Cluster) lifer {
			co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
				Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"),
				Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
			})
			require.NoError(t, err)
			assert.Nil(t, co.Assignment())
			assert.Zero(t, co.Status())
			return co
		},
		"admin": func(t *testing.T, c *pocketmq.Cluster) lifer {
			a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
			require.NoError(t, err)
			_, err = a.Topics(t.Context())
			assert.ErrorIs(t, err, pocketmq.ErrNotStarted)
			return a
		},
	}
	for name, newOne := range makers {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				x := newOne(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				assert.ErrorIs(t, x.Start(ctx), context.Canceled)
				require.NoError(t, x.Start(t.Context()), "a failed Start may be repeated")
				assert.Error(t, x.Start(t.Context()), "twice")
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() { assert.NoError(t, x.Close(), "concurrently") })
				}
				wg.Wait()
				assert.NoError(t, x.Close(), "again")
				assert.ErrorIs(t, x.Start(t.Context()), pocketmq.ErrClosed, "Start after Close")

				early := newOne(t, c)
				assert.NoError(t, early.Close(), "before Start")
				assert.ErrorIs(t, early.Start(t.Context()), pocketmq.ErrClosed)

				// Close during Start: either was first, and nothing is left.
				for i := range 20 {
					x := newOne(t, c)
					started := make(chan error, 1)
					go func() { started <- x.Start(context.Background()) }()
					if i%2 == 0 {
						synctest.Wait()
					}
					assert.NoError(t, x.Close())
					if err := <-started; err != nil {
						assert.ErrorIs(t, err, pocketmq.ErrClosed)
					}
					assert.ErrorIs(t, x.Start(t.Context()), pocketmq.ErrClosed)
				}
			})
		})
	}
}

func TestCloseDuringASlowStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		links(t, c).Delay("*", "*", 10*time.Second)
		co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
			Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"),
			Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
		})
		require.NoError(t, err)
		b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
			Name: "broker-x", Dir: filepath.Join(t.TempDir(), "b"), NameServers: c.NameServerAddrs(), Transport: c.Transport(),
		})
		require.NoError(t, err)
		for name, x := range map[string]lifer{"consumer": co, "broker": b} {
			begin := time.Now()
			started := make(chan error, 1)
			go func() { started <- x.Start(context.Background()) }()
			synctest.Wait()
			assert.NoError(t, x.Close(), name)
			assert.ErrorIs(t, <-started, pocketmq.ErrClosed, name)
			assert.LessOrEqual(t, time.Since(begin), time.Second, "%s: Close does not wait for the link", name)
		}
		links(t, c).HealAll()
	})
}

func TestClosingAClusterTwiceOrConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if i%2 == 0 {
					assert.NoError(t, c.Close())
					return
				}
				// Beside Close these work or say why not.
				_, err := c.StartProducer(context.Background(), pocketmq.ProducerConfig{})
				if err != nil {
					assert.ErrorIs(t, err, pocketmq.ErrClosed)
				}
				if err := c.AddGroup(context.Background(), pocketmq.BrokerGroup{Name: fmt.Sprint("group-", i)}); err != nil {
					assert.ErrorIs(t, err, pocketmq.ErrClosed)
				}
			})
		}
		wg.Wait()
		assert.NoError(t, c.Close())
		for b := range c.Brokers() {
			assert.ErrorIs(t, b.Check(context.Background()), pocketmq.ErrClosed, b.Name())
		}
	})
}

func TestCloseIsNilForMembersThatWereKilled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b"), Dir: t.TempDir()})
		check(t, c)
		require.NoError(t, c.Kill("a", 0))
		require.NoError(t, c.Broker("b", 0).Close())
		require.NoError(t, c.KillNameServer(1))
		assert.NoError(t, c.Close())
	})
}

func TestABrokersShutdownLeavesTheRoutesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		check(t, c)
		require.NoError(t, c.Broker("broker-a", 0).Shutdown(t.Context()))
		synctest.Wait()
		assert.Empty(t, eventsOf[pocketmq.BrokerExpired](&events), "it said goodbye")
		route, err := c.Admin().Route(t.Context(), "T")
		require.NoError(t, err)
		assert.Len(t, route.Queues, 1)
		for range 4 {
			res, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, "broker-b", res.Queue.BrokerName)
		}
	})
}

// Push consumers always hold pulls: a broker that waited for those to end would
// never shut down.
func TestABrokersShutdownDoesNotWaitForIdleConsumers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})
		synctest.Wait()
		check(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		require.NoError(t, c.Broker("broker-a", 0).Shutdown(ctx))
		assert.Less(t, time.Since(begin), 15*time.Second)
		assert.NoError(t, ctx.Err())
	})
}

func TestEventsComeInOrderAndAreComplete(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}, OnEvent: events.add})
		var in inbox
		time.Sleep(time.Second)
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})
		time.Sleep(time.Second)
		require.NoError(t, co.Close())
		synctest.Wait()
		var kinds []string
		var last time.Time
		for _, e := range events.all() {
			base := e.Base()
			assert.False(t, base.Time.Before(last), "in order")
			last = base.Time
			assert.Zero(t, base.Dropped)
			kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", e), "pocketmq.")+" at "+strings.Replace(base.Node, co.ClientID(), "client", 1))
		}
		assert.Equal(t, []string{
			"BrokerRegistered at ns-0", "RouteChanged at ns-0",
			"RouteChanged at ns-0", // %RETRY%g
			"MemberJoined at broker-a/0", "Rebalanced at client", "MemberLeft at broker-a/0",
		}, kinds)
		re := eventsOf[pocketmq.Rebalanced](&events)
		assert.Equal(t, pocketmq.Rebalanced{
			EventBase: re[0].EventBase, Group: "g", Client: co.ClientID(), Topic: "T",
			Before: re[0].Before, After: queuesOf(2, "broker-a"), Reason: "start",
		}, re[0])
		assert.Empty(t, re[0].Before)
		left := eventsOf[pocketmq.MemberLeft](&events)
		assert.Equal(t, "unregistered", left[0].Reason)
	})
}

func TestASlowOnEventLosesEventsAndHoldsUpNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		block := make(chan struct{})
		var once sync.Once
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, OnEvent: func(e pocketmq.Event) {
			once.Do(func() { <-block })
			events.add(e)
		}})
		var conn protocol.BrokerConn
		begin := time.Now()
		for i := range 3000 {
			if i%1000 == 0 { // one connection may not register so many groups
				conn = dial(t, c, "broker-a")
			}
			_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: fmt.Sprint("c", i/1000), Consumers: []protocol.ConsumerData{{Group: fmt.Sprint("g", i), Model: protocol.Broadcasting}}})
			require.NoError(t, err)
		}
		assert.Equal(t, begin, time.Now())
		close(block)
		synctest.Wait()
		// The next event tells how many were lost.
		_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "c2", Consumers: []protocol.ConsumerData{{Group: "last", Model: protocol.Broadcasting}}})
		require.NoError(t, err)
		synctest.Wait()
		dropped := int64(0)
		for _, e := range events.all() {
			dropped += e.Base().Dropped
		}
		joined := eventsOf[pocketmq.MemberJoined](&events)
		assert.Positive(t, dropped)
		assert.Equal(t, int64(3001), dropped+int64(len(joined)), "delivered or counted")
	})
}

func TestStatusAndGroupValues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2, "U": 1}})
		b := c.Broker("broker-a", 0)
		_, ok := b.Group("g")
		assert.False(t, ok, "unknown")
		var in inbox
		fail := errors.New("fail")
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}, "U": pocketmq.Tags("b", "a")}, From: pocketmq.FromFirstOffset,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				in.put("c", msgs)
				switch string(msgs[0].Body) {
				case "slow":
					time.Sleep(10 * time.Minute)
				case "fail":
					return fail
				}
				return nil
			},
		})
		started := time.Now()
		p := producer(t, c, pocketmq.ProducerConfig{})
		for _, m := range []*pocketmq.Message{text("T", "ok"), text("T", "slow"), text("T", "fail")} {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
			require.NoError(t, err)
		}
		// A held pull is not woken by what it leaves out: that comes first.
		for _, tag := range []string{"c", "", "a", "b"} {
			m := text("U", "tagged")
			m.Tag = tag
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		_, err := p.Send(t.Context(), text("T", ""))
		require.Error(t, err)
		time.Sleep(6 * time.Second)
		synctest.Wait()

		assert.Equal(t, pocketmq.ConsumerStatus{Received: 5, Consumed: 3, Failed: 1, SentBack: 1, Running: 1}, co.Status())
		assert.Equal(t, pocketmq.ProducerStatus{Sent: 7, Failed: 1}, p.Status())
		st := b.Status()
		assert.Equal(t, int64(8), st.WrittenPosition, "the failed one twice")
		assert.Equal(t, int64(8), st.DispatchedPosition)
		assert.Equal(t, int64(1), st.MinPosition)
		assert.Equal(t, 4, st.HeldPulls, "one per queue, that of the retry topic included")
		assert.GreaterOrEqual(t, st.Connections, 2)
		assert.InDelta(t, 8.0/6, st.PutRate, 0.01)
		assert.Positive(t, st.GetRate)
		g, ok := b.Group("g")
		require.True(t, ok)
		require.Len(t, g.Members, 1)
		m := g.Members[0]
		assert.Equal(t, co.ClientID(), m.ClientID)
		assert.Equal(t, map[string]string{"T": "*", "U": "a || b"}, m.Subscriptions)
		assert.Equal(t, started, m.LastHeartbeat)
		assert.NotEmpty(t, m.Addr)
		assert.Equal(t, []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-a", 1), queue("U", "broker-a", 0)}, m.Assigned)
		assert.Equal(t, []pocketmq.QueueLag{
			{Queue: queue("T", "broker-a", 0), Committed: 1, Max: 3, Lag: 2, LastConsumed: time.UnixMilli(started.UnixMilli())},
			{Queue: queue("T", "broker-a", 1), Committed: 0, Max: 0, Lag: 0},
			{Queue: queue("U", "broker-a", 0), Committed: 4, Max: 4, Lag: 0, LastConsumed: time.UnixMilli(started.UnixMilli())},
		}, g.Queues, "what a filter leaves out counts as consumed")
		g.Members[0].Subscriptions["T"] = "changed" // a snapshot
		g, _ = b.Group("g")
		assert.Equal(t, "*", g.Members[0].Subscriptions["T"])

		time.Sleep(2 * time.Hour)
		synctest.Wait()
		assert.Zero(t, co.Status().Running)
	})
}
