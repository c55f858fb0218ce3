package pocketmq_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// sentTo sends n messages and returns which brokers took them.
func sentTo(t testing.TB, p *pocketmq.Producer, topic string, n int) []string {
	t.Helper()
	brokers := make(map[string]bool)
	for range n {
		res, err := p.Send(context.Background(), text(topic, "x"))
		require.NoError(t, err)
		brokers[res.Queue.BrokerName] = true
	}
	return slices.Sorted(maps.Keys(brokers))
}

func permsOf(t testing.TB, c *pocketmq.Cluster, topic string) map[string]pocketmq.Perm {
	t.Helper()
	route, err := c.Admin().Route(context.Background(), topic)
	require.NoError(t, err)
	perms := make(map[string]pocketmq.Perm)
	for _, q := range route.Queues {
		perms[q.BrokerName] = q.Perm
	}
	return perms
}

func TestProducersLeaveABrokerWithoutWritePermissionAtTheNextRouteRefresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b"), Topics: map[string]int{"T": 2}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		start := time.Now()
		require.Equal(t, []string{"a", "b"}, sentTo(t, p, "T", 8))
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("1")})

		sleepUntil(start.Add(12 * time.Second))
		changes := []int64{c.NameServer(0).Status().RouteChanges, c.NameServer(1).Status().RouteChanges}
		require.NoError(t, c.Admin().WipeWritePerm(t.Context(), "a"))
		assert.Equal(t, start.Add(12*time.Second), time.Now())
		assert.Equal(t, map[string]pocketmq.Perm{"a": 4, "b": 6}, permsOf(t, c, "T"))
		for i := range 2 {
			assert.Greater(t, c.NameServer(i).Status().RouteChanges, changes[i], "every name server")
		}
		synctest.Wait()
		last := eventsOf[pocketmq.RouteChanged](&events)
		assert.Contains(t, last[len(last)-1].Topics, "T")

		sleepUntil(start.Add(30*time.Second - 1))
		assert.Equal(t, []string{"a", "b"}, sentTo(t, p, "T", 8), "the broker takes what it is sent")
		sleepUntil(start.Add(30 * time.Second))
		assert.Equal(t, []string{"b"}, sentTo(t, p, "T", 8), "in the instant of the refresh")
		queues, err := p.Queues(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.MessageQueue{queue("T", "b", 0), queue("T", "b", 1)}, queues)
		synctest.Wait()
		assert.Len(t, in.arrivals(), 24, "what it holds is consumed")

		// Periodic registrations, topics and groups that come meanwhile change nothing.
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "new", ReadQueues: 1}))
		consumer(t, c, pocketmq.ConsumerConfig{Group: "h", Subscriptions: all("T"), Handler: in.handler("2")})
		sleepUntil(start.Add(100 * time.Second))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 4, "b": 6}, permsOf(t, c, "T"))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 6, "b": 6}, permsOf(t, c, "new"))

		require.NoError(t, c.Admin().AddWritePerm(t.Context(), "a"))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 6, "b": 6}, permsOf(t, c, "T"))
		sleepUntil(start.Add(120 * time.Second))
		assert.Equal(t, []string{"a", "b"}, sentTo(t, p, "T", 8))
	})
}

func TestAWipedPermissionEndsWithTheBrokersNextLife(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("a", "b"), Topics: map[string]int{"T": 2, "U": 2}})
		require.NoError(t, c.Admin().WipeWritePerm(t.Context(), "a"))
		// A change of the topic itself brings back its permission, and its only.
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 3}))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 4, "b": 6}, permsOf(t, c, "T"))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 6, "b": 6}, permsOf(t, c, "U"))
		require.NoError(t, c.Kill("a", 0))
		require.NoError(t, c.Restart(t.Context(), "a", 0))
		assert.Equal(t, map[string]pocketmq.Perm{"a": 6, "b": 6}, permsOf(t, c, "T"))
	})
}

func TestWritePermissionOfAnUnknownBroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2})
		for what, f := range map[string]func(context.Context, string) error{
			"wipe write permission of brokr-a": c.Admin().WipeWritePerm, "add write permission of brokr-a": c.Admin().AddWritePerm,
		} {
			err := f(t.Context(), "brokr-a")
			require.ErrorIs(t, err, pocketmq.ErrNotFound)
			assert.ErrorContains(t, err, what+`: no name server knows a topic of a broker group "brokr-a"`)
		}
		require.NoError(t, c.KillNameServer(1))
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
		err := c.Admin().WipeWritePerm(t.Context(), "broker-a")
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		assert.ErrorContains(t, err, c.NameServerAddrs()[1])
		assert.Equal(t, pocketmq.Perm(5), permsOf(t, c, "TBW102")["broker-a"], "those that were reached have done it")
		require.NoError(t, c.RestartNameServer(t.Context(), 1))

		a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
		require.NoError(t, err)
		assert.ErrorIs(t, a.WipeWritePerm(t.Context(), "broker-a"), pocketmq.ErrNotStarted)
		require.NoError(t, a.Close())
	})
}

// flagged tells whether a broker's folder says that a topic is ordered.
func flagged(t testing.TB, c *pocketmq.Cluster, broker, topic string) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.Broker(broker, 0).Dir(), "config", "topics.json"))
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, fmt.Sprintf("%q:", topic)) {
			return strings.Contains(line, `"order":true`)
		}
	}
	return false
}

func TestAnOrderedTopicKeepsItsQueuesWhateverHappens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b")})
		ctx := t.Context()
		require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 4, WriteQueues: 2, Order: true}))
		route, err := c.Admin().Route(ctx, "T")
		require.NoError(t, err)
		assert.Equal(t, "a:2;b:2", route.OrderConf)
		for i := range 2 {
			value, err := getKV(dialNameServer(t, c, i), protocol.NamespaceOrderTopic, "T")
			require.NoError(t, err)
			assert.Equal(t, "a:2;b:2", value, "at every name server")
		}
		assert.True(t, flagged(t, c, "a", "T"))
		assert.True(t, flagged(t, c, "b", "T"))

		p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: time.Second})
		want := []pocketmq.MessageQueue{queue("T", "a", 0), queue("T", "a", 1), queue("T", "b", 0), queue("T", "b", 1)}
		queues, err := p.Queues(ctx, "T")
		require.NoError(t, err)
		assert.Equal(t, want, queues)
		keys := make(map[string]pocketmq.MessageQueue)
		for i := range 20 {
			m := text("T", "x")
			m.ShardingKey = fmt.Sprint("key ", i)
			res, err := p.Send(ctx, m)
			require.NoError(t, err)
			keys[m.ShardingKey] = res.Queue
		}
		same := func(what string) {
			queues, err := p.Queues(ctx, "T")
			require.NoError(t, err)
			assert.Equal(t, want, queues, what)
			for key, q := range keys {
				m := text("T", "x")
				m.ShardingKey = key
				res, err := p.Send(ctx, m)
				if q.BrokerName == "b" && what == "a broker is down" {
					assert.Error(t, err, "not elsewhere")
					continue
				}
				require.NoError(t, err)
				assert.Equal(t, q, res.Queue)
			}
		}
		require.NoError(t, c.Admin().WipeWritePerm(ctx, "a"))
		time.Sleep(31 * time.Second)
		same("without write permission")
		require.NoError(t, c.Kill("b", 0))
		time.Sleep(31 * time.Second)
		same("a broker is down")
		require.NoError(t, c.Restart(ctx, "b", 0))
		require.NoError(t, c.AddGroup(ctx, pocketmq.BrokerGroup{Name: "c"}))
		time.Sleep(31 * time.Second)
		same("a broker was added")

		// Created anew, it has them all.
		require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 4, WriteQueues: 1, Order: true}))
		route, err = c.Admin().Route(ctx, "T")
		require.NoError(t, err)
		assert.Equal(t, "a:1;b:1;c:1", route.OrderConf)
	})
}

func TestOrderOfSomeBrokersIsMergedIntoThatOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b", "c")})
		ctx := t.Context()
		for _, step := range []struct {
			order   bool
			queues  int
			brokers []string
			want    string
		}{
			{true, 2, []string{"b"}, "b:2"},
			{true, 3, []string{"a", "c"}, "a:3;b:2;c:3"},
			{true, 4, []string{"b"}, "a:3;b:4;c:3"},
			{false, 4, []string{"c"}, "a:3;b:4"},
			{false, 4, []string{"c"}, "a:3;b:4"},
			{false, 4, []string{"a", "b"}, ""},
			{true, 1, nil, "a:1;b:1;c:1"},
			{false, 1, nil, ""},
			{false, 1, nil, ""},
		} {
			require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: step.queues, Brokers: step.brokers, Order: step.order}))
			route, err := c.Admin().Route(ctx, "T")
			require.NoError(t, err)
			assert.Equal(t, step.want, route.OrderConf, "%+v", step)
			for i := range 2 {
				value, err := getKV(dialNameServer(t, c, i), protocol.NamespaceOrderTopic, "T")
				if step.want == "" {
					assert.ErrorIs(t, err, pocketmq.ErrNotFound)
				} else {
					assert.NoError(t, err)
				}
				assert.Equal(t, step.want, value)
			}
			for _, b := range step.brokers {
				// As in the reference a broker marks a topic that is ordered anywhere.
				assert.Equal(t, step.want != "", flagged(t, c, b, "T"), "%s %+v", b, step)
			}
		}
		for _, b := range []string{"a", "b", "c"} {
			assert.False(t, flagged(t, c, b, "T"))
		}
	})
}

func TestADeletedTopicIsOrderedNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2})
		ctx := t.Context()
		require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 2, Order: true}))
		require.NoError(t, c.Admin().DeleteTopic(ctx, "T"))
		for i := range 2 {
			_, err := getKV(dialNameServer(t, c, i), protocol.NamespaceOrderTopic, "T")
			assert.ErrorIs(t, err, pocketmq.ErrNotFound)
		}
		_, err := producer(t, c, pocketmq.ProducerConfig{}).Send(ctx, text("T", "made anew by a send"))
		require.NoError(t, err)
		route, err := c.Admin().Route(ctx, "T")
		require.NoError(t, err)
		assert.Empty(t, route.OrderConf)
		assert.False(t, flagged(t, c, "broker-a", "T"))
	})
}

// What another tool notes at a name server is in the routes at once, and reaches
// brokers with the answer to their next registration.
func TestBrokersLearnOfOrderedTopicsWhenTheyRegister(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		start := time.Now()
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2, "U": 2}, OnEvent: events.add})
		sleepUntil(start.Add(10 * time.Second))
		conn := dialNameServer(t, c, 0)
		putKV(t, conn, protocol.NamespaceOrderTopic, "T", "broker-a:2")
		putKV(t, conn, protocol.NamespaceOrderTopic, "unknown", "broker-a:2")
		putKV(t, conn, "OTHER", "U", "broker-a:2")
		synctest.Wait()
		changed := eventsOf[pocketmq.RouteChanged](&events)
		assert.Equal(t, []string{"T"}, changed[len(changed)-1].Topics)
		n := len(changed)
		putKV(t, conn, protocol.NamespaceOrderTopic, "T", "broker-a:2")
		synctest.Wait()
		assert.Len(t, eventsOf[pocketmq.RouteChanged](&events), n, "the same value changes nothing")
		route, err := c.Admin().Route(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, "broker-a:2", route.OrderConf)

		assert.False(t, flagged(t, c, "broker-a", "T"))
		sleepUntil(start.Add(30 * time.Second))
		assert.True(t, flagged(t, c, "broker-a", "T"), "the next registration")
		assert.False(t, flagged(t, c, "broker-a", "U"))
		n = len(eventsOf[pocketmq.RouteChanged](&events))
		sleepUntil(start.Add(100 * time.Second))
		assert.Len(t, eventsOf[pocketmq.RouteChanged](&events), n, "the mark changes no route")
		_, err = conn.DeleteKVConfig(t.Context(), &protocol.DeleteKVConfigRequest{Namespace: protocol.NamespaceOrderTopic, Key: "T"})
		require.NoError(t, err)
		synctest.Wait()
		assert.Len(t, eventsOf[pocketmq.RouteChanged](&events), n+1)
	})
}

func TestAnOrderThatNoNameServerTookIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 2})
		ctx := t.Context()
		require.NoError(t, c.KillNameServer(1))
		require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "plain", ReadQueues: 1}), "needs one name server only")
		err := c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 1, Order: true})
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		assert.ErrorContains(t, err, "create topic T: order configuration: ")
		assert.ErrorContains(t, err, c.NameServerAddrs()[1])
		require.NoError(t, c.RestartNameServer(ctx, 1))
		require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 1, Order: true}))

		h := c.Inject(pocketmq.Fault{Code: protocol.CodePutKVConfig, Node: "ns-0", Err: &pocketmq.Error{Code: protocol.SystemError, Remark: "disk full"}})
		err = c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 2, Order: true})
		h.Remove()
		assert.ErrorContains(t, err, "ns-0: disk full")
	})
}

func TestTCPCarriesOrderAndWritePermissions(t *testing.T) {
	cfg := pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), NameServers: 2, Groups: groups("a", "b"), Timings: mqtest.Fast()}
	carriesPermissions(t, cfg)
}

func TestFramesCarryOrderAndWritePermissionsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		carriesPermissions(t, pocketmq.ClusterConfig{Transport: remoting.NewTransport("127.0.0.1", pipenet.New()), NameServers: 2, Groups: groups("a", "b")})
	})
}

func carriesPermissions(t *testing.T, cfg pocketmq.ClusterConfig) {
	t.Helper()
	refresh := pocketmq.DefaultTimings().RouteRefresh
	if cfg.Timings.RouteRefresh > 0 {
		refresh = cfg.Timings.RouteRefresh
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*refresh+10*time.Second)
	defer cancel()
	c := run(t, cfg)
	require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "T", ReadQueues: 2}))
	require.NoError(t, c.Admin().CreateTopic(ctx, pocketmq.TopicConfig{Name: "O", ReadQueues: 2, Order: true}))
	route, err := c.Admin().Route(ctx, "O")
	require.NoError(t, err)
	assert.Equal(t, "a:2;b:2", route.OrderConf)
	assert.True(t, flagged(t, c, "b", "O"))
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, sentTo(t, p, "T", 8))

	eventually := func(want ...string) {
		t.Helper()
		tick := time.NewTicker(refresh / 4)
		defer tick.Stop()
		for !slices.Equal(want, sentTo(t, p, "T", 8)) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				require.NoError(t, ctx.Err(), "sends never went to %v only", want)
			}
		}
	}
	require.NoError(t, c.Admin().WipeWritePerm(ctx, "a"))
	eventually("b")
	assert.Equal(t, []string{"a", "b"}, sentTo(t, p, "O", 8), "an ordered topic keeps its queues")
	require.NoError(t, c.Admin().AddWritePerm(ctx, "a"))
	eventually("a", "b")
	require.ErrorIs(t, c.Admin().WipeWritePerm(ctx, "x"), pocketmq.ErrNotFound)

	require.NoError(t, c.KillNameServer(0))
	require.NoError(t, c.RestartNameServer(ctx, 0))
	conn := dialNameServer(t, c, 0)
	value, err := getKV(conn, protocol.NamespaceOrderTopic, "O")
	require.NoError(t, err)
	assert.Equal(t, "a:2;b:2", value)
	_, err = conn.UpdateNameServerConfig(ctx, &protocol.UpdateNameServerConfigRequest{})
	assert.ErrorIs(t, err, pocketmq.ErrNoPermission)
}
