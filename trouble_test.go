package pocketmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/protocol"
)

// Each test here provokes what an entry of docs/troubleshooting.md is about, looks
// for the texts that it quotes, runs what it says, and sees that it helps.

const troublePage = "docs/troubleshooting.md"

// trouble is an entry of the page, and the log of the cluster that is in it.
type trouble struct {
	t      testing.TB
	title  string
	quotes string // its text blocks, each run of blanks a blank

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

func inTrouble(t testing.TB, title string) *trouble {
	t.Helper()
	page, err := os.ReadFile(troublePage)
	require.NoError(t, err)
	_, entry, found := strings.Cut(string(page), "\n## "+title+"\n")
	require.True(t, found, "%s has no entry %q", troublePage, title)
	entry, _, _ = strings.Cut(entry, "\n## ")
	x := &trouble{t: t, title: title}
	for _, block := range regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(entry, -1) {
		x.quotes += oneLine(block[1]) + "\n"
	}
	return x
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Write takes lines of the log.
func (x *trouble) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.log.Write(p)
}

// logger logs without times.
func (x *trouble) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(x, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// quoted demands that the entry quotes a text that has appeared.
func (x *trouble) quoted(text string) {
	x.t.Helper()
	assert.Contains(x.t, x.quotes, oneLine(text), "%s, %s", troublePage, x.title)
}

// logged demands that a line of the log begins with msg at this level, and that
// the entry quotes it. It returns how many there are.
func (x *trouble) logged(level slog.Level, msg string) int {
	x.t.Helper()
	x.mu.Lock()
	lines := strings.Split(x.log.String(), "\n")
	x.mu.Unlock()
	n := 0
	for _, line := range lines {
		if strings.HasPrefix(line, fmt.Sprintf("level=%v msg=%q", level, msg)) {
			if n++; n == 1 {
				x.quoted(line)
			}
		}
	}
	assert.NotZero(x.t, n, "the log has no %v %q", level, msg)
	return n
}

// happened demands that the entry quotes an event.
func (x *trouble) happened(e pocketmq.Event) {
	x.t.Helper()
	text := fmt.Sprintf("%+v", e)
	base := fmt.Sprintf("EventBase:%+v ", e.Base())
	x.quoted(strings.TrimPrefix(fmt.Sprintf("%T", e), "pocketmq.") + strings.Replace(text, base, "", 1))
}

// handled is a handler that finishes everything.
func handled(context.Context, []*pocketmq.MessageExt) error { return nil }

func TestTroubleNoRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "No route")
		c := run(t, pocketmq.ClusterConfig{
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{DisableAutoCreateTopic: true}}},
			Topics: map[string]int{"orders": 4}, Logger: x.logger(),
		})
		ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(ctx, text("order", "x"))
		require.ErrorIs(t, err, pocketmq.ErrNoRoute)
		x.quoted(err.Error())
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "billing", InstanceName: "one", Subscriptions: all("order"), Handler: in.handler("one")})
		synctest.Wait()
		x.logged(slog.LevelWarn, "a subscribed topic has no route, it is consumed once it has one")

		topics, err := admin.Topics(ctx)
		require.NoError(t, err)
		assert.Contains(t, topics, "orders")
		assert.NotContains(t, topics, "order")
		_, err = admin.Route(ctx, "order")
		require.ErrorIs(t, err, pocketmq.ErrNoRoute)

		err = admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "order", ReadQueues: 4})
		require.NoError(t, err)
		_, err = p.Send(ctx, text("order", "x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Len(t, in.arrivals(), 1)
	})
}

func TestTroubleNoNameServer(t *testing.T) {
	ofMemory(t, "the page shows errors in memory, which name nodes besides their addresses")
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "No name server answers")
		c := run(t, pocketmq.ClusterConfig{NameServerAddrs: []string{"127.0.0.1:9876"}, Topics: map[string]int{"orders": 4}, Logger: x.logger()})
		ctx := t.Context()
		old := producer(t, c, pocketmq.ProducerConfig{})
		_, err := old.Send(ctx, text("orders", "x"))
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		require.NoError(t, c.KillNameServer(0))
		_, err = p.Send(ctx, text("orders", "x"))
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		require.NotErrorIs(t, err, pocketmq.ErrNoRoute)
		x.quoted(err.Error())
		_, err = old.Send(ctx, text("orders", "x"))
		require.NoError(t, err, "who has the route goes on")

		require.NoError(t, c.RestartNameServer(ctx, 0))
		ns := c.NameServer(0).Status()
		assert.Empty(t, ns.Brokers)
		time.Sleep(pocketmq.DefaultTimings().BrokerRegister)
		synctest.Wait()
		assert.Len(t, c.NameServer(0).Status().Brokers, 1)
		_, err = p.Send(ctx, text("orders", "x"))
		require.NoError(t, err)
	})
}

func TestTroubleFlappingBroker(t *testing.T) {
	const title = "Flapping broker"
	flapping := func(t *testing.T, x *trouble, timings pocketmq.Timings) (*pocketmq.Cluster, func() (gone, moves int)) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b", Addrs: []string{"127.0.0.1:10911"}, Config: pocketmq.BrokerConfig{Timings: timings}}},
			Topics: map[string]int{"orders": 4}, OnEvent: events.add, Logger: x.logger(),
		})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "billing", Subscriptions: all("orders"), Handler: handled})
		return c, func() (gone, moves int) {
			synctest.Wait()
			all := eventsOf[pocketmq.BrokerExpired](&events)
			if len(all) > 0 {
				x.happened(all[0])
				x.logged(slog.LevelWarn, "broker dropped")
			}
			return len(all), len(eventsOf[pocketmq.Rebalanced](&events)) - 1
		}
	}
	t.Run("registers too seldom", func(t *testing.T) {
		ofMemory(t, "a connection that is idle for as long ends, and the broker's registration with it")
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c, count := flapping(t, x, pocketmq.Timings{BrokerRegister: 3 * time.Minute})
			time.Sleep(2 * time.Minute)
			brokers := c.NameServer(0).Status().Brokers
			require.Len(t, brokers, 2)
			assert.Equal(t, 2*time.Minute, brokers[1].Age)
			time.Sleep(30 * time.Minute)
			gone, moves := count()
			assert.GreaterOrEqual(t, gone, 9)
			assert.GreaterOrEqual(t, moves, gone, "the group shares anew each time")

			_, count = flapping(t, x, pocketmq.Timings{BrokerRegister: 30 * time.Second})
			time.Sleep(30 * time.Minute)
			gone, moves = count()
			assert.Zero(t, gone)
			assert.Zero(t, moves)
		})
	})
	t.Run("its link breaks", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c, count := flapping(t, x, pocketmq.Timings{})
			for range 10 {
				links(t, c).Cut("broker-b/0", "ns-0")
				links(t, c).Heal("broker-b/0", "ns-0")
				time.Sleep(time.Minute)
			}
			gone, _ := count()
			assert.Equal(t, 10, gone)
			time.Sleep(30 * time.Minute)
			gone, _ = count()
			assert.Equal(t, 10, gone, "the link holds")
		})
	})
}

func TestTroubleBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Backlog")
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
		ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		cfg := pocketmq.ConsumerConfig{
			Group: "billing", InstanceName: "one", Subscriptions: all("orders"), Concurrency: 1,
			Handler: func(context.Context, []*pocketmq.MessageExt) error { time.Sleep(1100 * time.Millisecond); return nil },
		}
		co := consumer(t, c, cfg)
		send := func() {
			for i := range 200 {
				_, err := p.Send(ctx, text("orders", "%d", i))
				require.NoError(t, err)
			}
		}
		send()
		caughtUp := func(g pocketmq.GroupStatus) bool {
			return !slices.ContainsFunc(g.Queues, func(q pocketmq.QueueLag) bool { return q.Lag > 0 })
		}
		soon, cancel := context.WithTimeout(ctx, 62*time.Second)
		defer cancel()
		err := c.WaitGroup(soon, "billing", caughtUp)
		require.Error(t, err)
		x.quoted(err.Error())

		lags, err := admin.Lag(ctx, "billing")
		require.NoError(t, err)
		require.Len(t, lags, 4)
		assert.Less(t, lags[0].LastConsumed, time.Now().Add(-30*time.Second), "old")
		st := co.Status()
		assert.Equal(t, cfg.Concurrency, st.Running)
		queues := co.Queues()
		assert.Positive(t, queues[0].Cached)

		require.NoError(t, co.Shutdown(ctx))
		cfg.Concurrency = 20
		consumer(t, c, cfg)
		begin := time.Now()
		require.NoError(t, c.WaitGroup(ctx, "billing", caughtUp))
		assert.Less(t, time.Since(begin), 15*time.Second)

		send()
		err = admin.SkipBacklog(ctx, "billing", "orders")
		require.NoError(t, err)
		assert.True(t, caughtUp(groupOf(t, c, "billing")), "at once")
	})
}

// groupOf is the group as the one broker of c sees it.
func groupOf(t testing.TB, c *pocketmq.Cluster, name string) pocketmq.GroupStatus {
	t.Helper()
	g, ok := c.Broker("broker-a", 0).Group(name)
	require.True(t, ok)
	return g
}

func TestTroubleSlavesAreMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Slaves are missing")
		c := run(t, pocketmq.ClusterConfig{
			Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"orders": 1}, Logger: x.logger(),
		})
		ctx, p := t.Context(), producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.Send(ctx, text("orders", "x"))
		require.NoError(t, err)
		links(t, c).Drop("broker-a/0", "broker-a/1")
		result, err := p.Send(ctx, text("orders", "x"))
		require.ErrorIs(t, err, pocketmq.ErrFlushSlaveTimeout)
		require.NotNil(t, result)
		x.quoted(err.Error())
		require.NoError(t, c.Kill("broker-a", 1))
		links(t, c).HealAll()
		time.Sleep(20 * time.Second)
		_, err = p.Send(ctx, text("orders", "x"))
		require.ErrorIs(t, err, pocketmq.ErrSlaveNotAvailable)
		x.quoted(err.Error())

		links(t, c).Cut("broker-a/0", "broker-a/1")
		err = c.Restart(ctx, "broker-a", 1)
		require.NoError(t, err)
		time.Sleep(time.Second)
		x.mu.Lock()
		assert.Contains(t, x.log.String(), `level=WARN msg="does not follow the master" node=broker-a/1`)
		x.mu.Unlock()
		x.quoted(`level=WARN msg="does not follow the master" node=broker-a/1`)
		master := c.Broker("broker-a", 0).Status()
		require.Len(t, master.Slaves, 1)
		assert.False(t, master.Slaves[0].Connected)
		behind := c.Broker("broker-a", 1).Status().Master.Err
		assert.Error(t, behind)
		links(t, c).HealAll()
		time.Sleep(6 * time.Second)
		_, err = p.Send(ctx, text("orders", "x"))
		require.NoError(t, err)

		cfg := ledTwice(t)
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, "controller")))
		_, err = startCluster(ctx, t, cfg)
		require.Error(t, err)
		_, said, _ := strings.Cut(err.Error(), "start: ")
		said, _, _ = strings.Cut(said, ":")
		x.quoted(said)
	})
}

func TestTroubleSendFailed(t *testing.T) {
	ofMemory(t, "the page shows errors in memory, which name nodes besides their addresses")
	const title = "Send failed"
	addrs := func(cfg ...pocketmq.BrokerConfig) []pocketmq.BrokerGroup {
		gs := []pocketmq.BrokerGroup{{Name: "broker-a", Addrs: []string{"127.0.0.1:10911"}}, {Name: "broker-b", Addrs: []string{"127.0.0.1:10912"}}}
		for i := range cfg {
			gs[i].Config = cfg[i]
		}
		return gs
	}
	// ordered lets a text begin with broker-a: who is tried first is chance.
	ordered := func(err error) string {
		text := err.Error()
		if a, b := strings.Index(text, "broker-a"), strings.Index(text, "broker-b"); a < b {
			return text
		}
		return strings.NewReplacer("broker-a", "broker-b", "broker-b", "broker-a", "10911", "10912", "10912", "10911").Replace(text)
	}
	t.Run("brokers are gone", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Groups: addrs(), Topics: map[string]int{"orders": 4}})
			ctx, p := t.Context(), producer(t, c, pocketmq.ProducerConfig{})
			_, err := p.Send(ctx, text("orders", "x"))
			require.NoError(t, err)
			require.NoError(t, c.Kill("broker-a", 0))
			require.NoError(t, c.Kill("broker-b", 0))
			_, err = p.Send(ctx, text("orders", "x"))
			require.ErrorIs(t, err, pocketmq.ErrUnreachable)
			x.quoted(ordered(err))
			require.NoError(t, c.Restart(ctx, "broker-a", 0))
			_, err = p.Send(ctx, text("orders", "x"))
			require.NoError(t, err, "one is enough")
		})
	})
	t.Run("a broker is avoided", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Groups: addrs(), Topics: map[string]int{"orders": 4}})
			p := producer(t, c, pocketmq.ProducerConfig{Fault: fault.V5()})
			h := c.Inject(pocketmq.Fault{Node: "broker-a/0", Code: protocol.CodeSendMessage, Delay: 600 * time.Millisecond})
			brokersOfTopic(t, p, "orders", 8) // each of the queues at least once, or its broker is avoided
			table := p.FaultTable()
			require.Len(t, table, 2)
			assert.Equal(t, 600*time.Millisecond, table[0].Latency)
			assert.Equal(t, map[string]int{"broker-b": 8}, brokersOfTopic(t, p, "orders", 8))
			h.Remove()
			time.Sleep(2 * time.Second)
			assert.Len(t, brokersOfTopic(t, p, "orders", 8), 2)
		})
	})
	t.Run("brokers are silent", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Groups: addrs(), Topics: map[string]int{"orders": 4}})
			ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
			brokersOfTopic(t, p, "orders", 8) // there are sessions with both
			lost := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, DropReply: true})
			m := text("orders", "x")
			m.Keys = []string{"order-17"}
			_, err := p.Send(ctx, m)
			require.ErrorIs(t, err, pocketmq.ErrTimeout)
			require.ErrorIs(t, err, pocketmq.ErrUnknownOutcome)
			x.quoted(ordered(err))
			found, err := admin.MessagesByKey(ctx, "orders", "order-17", time.Time{}, time.Time{}, 0)
			require.NoError(t, err)
			assert.Len(t, found, lost.Hits(), "each attempt stored it")
			lost.Remove()
			_, err = p.Send(ctx, m)
			require.NoError(t, err)
		})
	})
	t.Run("disk is full", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			var free atomic.Int64
			free.Store(201 << 20)
			c := run(t, pocketmq.ClusterConfig{
				Dir: t.TempDir(), Topics: map[string]int{"orders": 4},
				Groups: addrs(pocketmq.BrokerConfig{FreeBytes: func(string) (int64, error) { return free.Load(), nil }})[:1],
			})
			ctx, p := t.Context(), producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
			_, err := p.Send(ctx, text("orders", "x"))
			require.ErrorIs(t, err, pocketmq.ErrDiskFull)
			b := c.Broker("broker-a", 0)
			x.quoted(strings.ReplaceAll(err.Error(), b.Dir(), "/data/broker-a-0"))
			st := b.Status()
			assert.False(t, st.Writable)
			x.quoted(strings.ReplaceAll(st.Reason, b.Dir(), "/data/broker-a-0"))
			free.Store(1 << 40)
			time.Sleep(11 * time.Second) // the guard looks every 10 s
			_, err = p.Send(ctx, text("orders", "x"))
			require.NoError(t, err)
		})
	})
	t.Run("brokers are busy", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Groups: addrs(), Topics: map[string]int{"orders": 4}})
			ctx, p := t.Context(), producer(t, c, pocketmq.ProducerConfig{Retries: 1})
			h := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "too many requests"}})
			_, err := p.SendTo(ctx, queue("orders", "broker-b", 0), text("orders", "x"))
			require.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
			x.quoted(err.Error())
			h.Remove()
			_, err = p.Send(ctx, text("orders", "x"))
			require.NoError(t, err)
		})
	})
}

// members starts consumers of these names.
func members(t testing.TB, c *pocketmq.Cluster, cfg pocketmq.ConsumerConfig, names ...string) []*pocketmq.Consumer {
	t.Helper()
	var out []*pocketmq.Consumer
	for _, name := range names {
		cfg.InstanceName = name
		out = append(out, consumer(t, c, cfg))
	}
	synctest.Wait()
	return out
}

func TestTroubleUnevenConsumption(t *testing.T) {
	const title = "Uneven consumption"
	even := func(g pocketmq.GroupStatus) bool {
		for _, m := range g.Members {
			if len(m.Assigned) != len(g.Members[0].Assigned) {
				return false
			}
		}
		return len(g.Members) > 0
	}
	cfg := pocketmq.ConsumerConfig{Group: "billing", Subscriptions: all("orders"), Handler: handled}
	t.Run("queues are no multiple of members", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
			ctx, admin := t.Context(), c.Admin()
			cs := members(t, c, cfg, "one", "three", "two")
			soon, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			err := c.WaitGroup(soon, "billing", even)
			require.Error(t, err)
			x.quoted(err.Error())
			g, err := admin.Group(ctx, "billing")
			require.NoError(t, err)
			assert.Len(t, g.Members[0].Assigned, 2)
			assert.Len(t, g.Members[1].Assigned, 1)
			err = admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "orders", ReadQueues: 6})
			require.NoError(t, err)
			time.Sleep(pocketmq.DefaultTimings().RouteRefresh)
			synctest.Wait()
			assert.Equal(t, []int{2, 2, 2}, sizes(cs))
		})
	})
	t.Run("one broker has the topic", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b")})
			ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
			_, err := p.Send(ctx, text("orders", "x"))
			require.NoError(t, err)
			time.Sleep(time.Minute)
			assert.Len(t, brokersOfTopic(t, p, "orders", 16), 1)
			route, err := admin.Route(ctx, "orders")
			require.NoError(t, err)
			require.Len(t, route.Brokers, 1)
			err = admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "orders", ReadQueues: 4})
			require.NoError(t, err)
			time.Sleep(pocketmq.DefaultTimings().RouteRefresh)
			synctest.Wait()
			assert.Equal(t, map[string]int{"broker-a": 8, "broker-b": 8}, brokersOfTopic(t, p, "orders", 16))
		})
	})
	t.Run("one key has most messages", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
			ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
			used := func(key func(i int) string) (n int) {
				before, err := admin.TopicStats(ctx, "orders")
				require.NoError(t, err)
				for i := range 100 {
					m := text("orders", "x")
					m.ShardingKey = key(i)
					_, err := p.Send(ctx, m)
					require.NoError(t, err)
				}
				stats, err := admin.TopicStats(ctx, "orders")
				require.NoError(t, err)
				for q, s := range stats {
					if s.MaxOffset > before[q].MaxOffset {
						n++
					}
				}
				return n
			}
			assert.Equal(t, 1, used(func(int) string { return "shop-1" }))
			assert.Equal(t, 4, used(func(i int) string { return fmt.Sprint("order-", i) }))
		})
	})
}

// brokersOfTopic counts where n sends go.
func brokersOfTopic(t *testing.T, p *pocketmq.Producer, topic string, n int) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for range n {
		res, err := p.Send(t.Context(), text(topic, "x"))
		require.NoError(t, err)
		out[res.Queue.BrokerName]++
	}
	return out
}

func TestTroubleConsumerIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Consumer idle")
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 2}, OnEvent: events.add, Logger: x.logger()})
		ctx, admin := t.Context(), c.Admin()
		cs := members(t, c, pocketmq.ConsumerConfig{Group: "billing", Subscriptions: all("orders"), Handler: handled}, "one", "three", "two")
		co := cs[2]
		time.Sleep(time.Minute)
		idle := eventsOf[pocketmq.ConsumerIdle](&events)
		require.Len(t, idle, 1)
		x.happened(idle[0])
		x.logged(slog.LevelWarn, "this member holds no queue of a topic, others got them all: give the topic as many queues as the group has members, or more")

		st := co.Status()
		assert.Equal(t, []string{"orders"}, st.Idle)
		err := admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "orders", ReadQueues: 3})
		require.NoError(t, err)
		time.Sleep(pocketmq.DefaultTimings().RouteRefresh)
		synctest.Wait()
		assert.Equal(t, []int{1, 1, 1}, sizes(cs))
		assert.Empty(t, co.Status().Idle)
	})
}

func TestTroubleMembersSubscribeDifferently(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Members subscribe differently")
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 2, "refunds": 2}, OnEvent: events.add, Logger: x.logger()})
		ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		one := consumer(t, c, pocketmq.ConsumerConfig{Group: "billing", InstanceName: "one", Subscriptions: all("orders"), Handler: in.handler("one")})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "billing", InstanceName: "two", Subscriptions: all("orders", "refunds"), Handler: in.handler("two")})
		time.Sleep(time.Minute)
		reports := eventsOf[pocketmq.SubscriptionsDiffer](&events)
		require.NotEmpty(t, reports)
		x.happened(reports[0])
		x.logged(slog.LevelWarn, "messages of this group may be lost to members that do not want them")
		for i := range 20 {
			_, err := p.Send(ctx, text("refunds", "%d", i))
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		assert.Less(t, len(in.arrivals()), 20, "some queues of refunds fell to a member that does not want them")

		g, err := admin.Group(ctx, "billing")
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"orders": "*"}, g.Members[0].Subscriptions)
		assert.Equal(t, map[string]string{"orders": "*", "refunds": "*"}, g.Members[1].Subscriptions)
		atBroker, _ := c.Broker("broker-a", 0).Group("billing")
		assert.Equal(t, reports[0].How, atBroker.Differ)
		err = one.Subscribe(ctx, "refunds", pocketmq.Filter{})
		require.NoError(t, err)
		assert.Empty(t, groupOf(t, c, "billing").Differ)
		time.Sleep(time.Minute)
		assert.Equal(t, numbers(20), in.bodies())
	})
}

func TestTroubleFailingMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Messages fail again and again")
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}, Logger: x.logger()})
		ctx, admin, p := t.Context(), c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		var broken atomic.Bool
		broken.Store(true)
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "billing", InstanceName: "one", Subscriptions: all("orders"), MaxReconsume: 2,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				if broken.Load() {
					return errors.New("no such order")
				}
				in.put("one", msgs)
				return nil
			},
		})
		_, err := p.Send(ctx, text("orders", "x"))
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		x.logged(slog.LevelWarn, "messages failed and go back to their broker")
		lags, err := admin.Lag(ctx, "billing")
		require.NoError(t, err)
		assert.Equal(t, int64(1), lags[0].Committed, "the queue goes on")
		time.Sleep(time.Minute)
		st := co.Status()
		assert.EqualValues(t, 3, st.Failed)
		assert.EqualValues(t, 3, st.SentBack)
		stats, err := admin.TopicStats(ctx, "%DLQ%billing")
		require.NoError(t, err)
		assert.EqualValues(t, 1, stats[queue("%DLQ%billing", "broker-a", 0)].MaxOffset)

		broken.Store(false)
		again := func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
			_, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Keys: msgs[0].Keys, Body: msgs[0].Body})
			return err
		}
		_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{
			Group: "billing-again", Subscriptions: map[string]pocketmq.Filter{"%DLQ%billing": {}},
			From: pocketmq.FromFirstOffset, Handler: again,
		})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"x"}, in.bodies())
	})
}

func TestTroubleOrderlyQueueStuck(t *testing.T) {
	const title = "Orderly queue stuck"
	t.Run("a message always fails", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}, Logger: x.logger()})
			ctx, admin, q := t.Context(), c.Admin(), queue("orders", "broker-a", 0)
			sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "good", "bad", "later")
			s := sequence{fail: func(m *pocketmq.MessageExt) error {
				if string(m.Body) == "bad" {
					return errors.New("no such order")
				}
				return nil
			}}
			co := consumer(t, c, pocketmq.ConsumerConfig{
				Group: "billing", InstanceName: "one", Subscriptions: all("orders"), Orderly: true, From: pocketmq.FromFirstOffset, Handler: s.handler("one"),
			})
			time.Sleep(time.Minute)
			x.logged(slog.LevelWarn, "messages failed, their queue waits for them")
			assert.NotContains(t, s.bodies(), "later")
			stuck := co.Queues()[0]
			assert.Equal(t, int64(1), stuck.CommitOffset)
			assert.True(t, stuck.Locked)
			err := admin.SetOffset(ctx, "billing", stuck.Queue, stuck.CommitOffset+1)
			require.NoError(t, err)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Contains(t, s.bodies(), "later")
		})
	})
	t.Run("a message may fail three times", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}})
			q := queue("orders", "broker-a", 0)
			sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "good", "bad", "later")
			s := sequence{fail: failing("bad", 100)}
			consumer(t, c, pocketmq.ConsumerConfig{
				Group: "billing", Subscriptions: all("orders"), Orderly: true, MaxReconsume: 2, From: pocketmq.FromFirstOffset, Handler: s.handler("one"),
			})
			time.Sleep(time.Minute)
			assert.Equal(t, []string{"good", "bad", "bad", "bad", "later"}, s.bodies())
			stats, err := c.Admin().TopicStats(t.Context(), "%DLQ%billing")
			require.NoError(t, err)
			assert.EqualValues(t, 1, stats[queue("%DLQ%billing", "broker-a", 0)].MaxOffset)
		})
	})
	t.Run("a dead member has the lock", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			x := inTrouble(t, title)
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}, Logger: x.logger()})
			q := queue("orders", "broker-a", 0)
			var s sequence
			cfg := pocketmq.ConsumerConfig{Group: "billing", InstanceName: "one", Subscriptions: all("orders"), Orderly: true, From: pocketmq.FromFirstOffset, Handler: s.handler("")}
			vanish(t, c, consumer(t, c, cfg))
			sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "x")
			cfg.InstanceName = "two"
			two := consumer(t, c, cfg)
			time.Sleep(30 * time.Second)
			assert.Empty(t, two.Assignment())
			assert.Empty(t, s.bodies())
			atBroker, _ := c.Broker("broker-a", 0).Group("billing")
			assert.Equal(t, map[pocketmq.MessageQueue]string{q: "127.0.0.1@one"}, atBroker.Locks)
			x.quoted(fmt.Sprint(atBroker.Locks))
			require.NoError(t, two.Shutdown(t.Context()))
			cfg.InstanceName = "one" // the lock is its own
			one := consumer(t, c, cfg)
			synctest.Wait()
			assert.Equal(t, []string{"x"}, s.bodies(), "at once")
			vanish(t, c, one)
			cfg.InstanceName = "two"
			two = consumer(t, c, cfg)
			time.Sleep(pocketmq.DefaultTimings().LockExpire + time.Second)
			synctest.Wait()
			assert.Len(t, two.Assignment(), 1)
		})
	})
}

func TestTroubleDuplicateClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		x := inTrouble(t, "Duplicate client")
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 2}})
		cfg := pocketmq.ConsumerConfig{Group: "billing", InstanceName: "one", Subscriptions: all("orders"), Handler: handled}
		consumer(t, c, cfg)
		_, err := c.StartConsumer(t.Context(), cfg)
		require.ErrorIs(t, err, pocketmq.ErrDuplicateClient)
		x.quoted(err.Error())
		cfg.InstanceName = ""
		_, err = c.StartConsumer(t.Context(), cfg)
		require.NoError(t, err)
	})
}
