package client

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// goldenCase is a row of section "cases" of publishinfo.json.
type goldenCase struct {
	Name, Topic string
	Route       struct {
		OrderTopicConf string
		QueueDatas     []struct {
			BrokerName                                        string
			ReadQueueNums, WriteQueueNums, Perm, TopicSysFlag int
		}
		BrokerDatas []struct {
			Cluster, BrokerName string
			BrokerAddrs         map[int64]string
		}
		TopicQueueMappingByBroker json.RawMessage
	}
	Subscribe []string
	Publish   struct {
		Queues []string
		Error  string
	}
}

func (c *goldenCase) route() protocol.TopicRoute {
	r := protocol.TopicRoute{OrderConf: c.Route.OrderTopicConf}
	for _, q := range c.Route.QueueDatas {
		r.Queues = append(r.Queues, protocol.QueueData{
			BrokerName: q.BrokerName, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums,
			Perm: protocol.Perm(q.Perm), SysFlag: q.TopicSysFlag,
		})
	}
	for _, b := range c.Route.BrokerDatas {
		r.Brokers = append(r.Brokers, protocol.BrokerData{Cluster: b.Cluster, BrokerName: b.BrokerName, Addrs: b.BrokerAddrs})
	}
	return r
}

func names(queues []message.Queue) []string {
	texts := make([]string, len(queues))
	for i, q := range queues {
		texts[i] = fmt.Sprint(q.BrokerName, ":", q.QueueID)
	}
	return texts
}

func TestGoldenQueuesOfRoutes(t *testing.T) {
	data, err := os.ReadFile("testdata/publishinfo.json")
	require.NoError(t, err)
	var golden struct{ Cases []goldenCase }
	require.NoError(t, json.Unmarshal(data, &golden))
	passed, skipped := 0, 0
	for _, c := range golden.Cases {
		if c.Route.TopicQueueMappingByBroker != nil {
			skipped++ // static topics: TopicRoute has no mapping
			continue
		}
		passed++
		t.Run(c.Name, func(t *testing.T) {
			r, err := newRoute(c.Topic, c.route())
			if c.Publish.Error != "" {
				require.Error(t, err)
				assert.ErrorContains(t, err, c.Route.OrderTopicConf)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.Topic, r.Topic)
			assert.Equal(t, c.Publish.Queues, names(r.Publish))
			assert.Equal(t, c.Subscribe, names(r.Subscribe))
			for _, q := range append(r.Publish, r.Subscribe...) {
				assert.Equal(t, c.Topic, q.Topic)
			}
		})
	}
	t.Logf("publishinfo.json cases: %d passed, %d skipped (static topic mapping); perm and write_queue_nums: of other packages", passed, skipped)
	assert.GreaterOrEqual(t, passed, 28)
}

func TestQueuesAreSortedWhateverTheOrderOfTheRoute(t *testing.T) {
	conf := protocol.TopicRoute{OrderConf: "b:1;a:2"}
	r, err := newRoute("t", conf)
	require.NoError(t, err)
	assert.Equal(t, "a:0 a:1 b:0", strings.Join(names(r.Publish), " "))

	route := routeOf([2]string{"b", "x:1"}, [2]string{"a", "y:1"})
	route.Queues[0].ReadQueues = 11
	r, err = newRoute("t", route)
	require.NoError(t, err)
	assert.Equal(t, "a:0 b:0", strings.Join(names(r.Publish), " "))
	assert.Equal(t, "a:0 b:0 b:1 b:2 b:3 b:4 b:5 b:6 b:7 b:8 b:9 b:10", strings.Join(names(r.Subscribe), " "))
	assert.Equal(t, "a", r.Brokers[0].BrokerName)
}

func TestRoutesAreEqualWhenAClientSeesNoDifference(t *testing.T) {
	make := func(change func(r *protocol.TopicRoute)) *Route {
		p := routeOf([2]string{"a", "x:1"}, [2]string{"b", "y:1"})
		change(&p)
		r, err := newRoute("t", p)
		require.NoError(t, err)
		return r
	}
	same := make(func(*protocol.TopicRoute) {})
	for name, c := range map[string]struct {
		change func(r *protocol.TopicRoute)
		want   bool
	}{
		"nothing":        {func(*protocol.TopicRoute) {}, true},
		"order":          {func(r *protocol.TopicRoute) { r.Queues[0], r.Queues[1] = r.Queues[1], r.Queues[0] }, true},
		"filter servers": {func(r *protocol.TopicRoute) { r.FilterServers = map[string][]string{"x:1": {"f"}} }, true},
		"address":        {func(r *protocol.TopicRoute) { r.Brokers[1].Addrs[0] = "z:1" }, false},
		"slave":          {func(r *protocol.TopicRoute) { r.Brokers[1].Addrs[1] = "z:1" }, false},
		"cluster":        {func(r *protocol.TopicRoute) { r.Brokers[1].Cluster = "d" }, false},
		"broker gone":    {func(r *protocol.TopicRoute) { r.Brokers = r.Brokers[:1] }, false},
		"queues":         {func(r *protocol.TopicRoute) { r.Queues[1].ReadQueues++ }, false},
		"permission":     {func(r *protocol.TopicRoute) { r.Queues[1].Perm = 0 }, false},
		"order conf":     {func(r *protocol.TopicRoute) { r.OrderConf = "a:1" }, false},
	} {
		assert.Equal(t, c.want, same.equal(make(c.change)), name)
	}
}
