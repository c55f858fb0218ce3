package client

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
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
	GoPublish struct{ Queues []string } `json:"go_publish"`
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

// goldenPerm is a row of section "perm": what Java's PermName says.
type goldenPerm struct {
	Perm                                                        int
	Readable, Writeable, Inherited, Priority, Accessible, Valid bool
	String                                                      string
}

// Every row of publishinfo.json, with the numbers passed and skipped at the end.
func TestGoldenRowsOfPublishInfo(t *testing.T) {
	data, err := os.ReadFile("testdata/publishinfo.json")
	require.NoError(t, err)
	var golden struct {
		Cases       []goldenCase
		Perm        []json.RawMessage
		WriteQueues []struct {
			Broker string
			Number int `json:"getWriteQueueNumsByBroker"`
		} `json:"write_queue_nums"`
	}
	require.NoError(t, json.Unmarshal(data, &golden))
	var table []string
	section := func(name string, rows int, run func(t *testing.T, i int) (ran bool), why string) {
		passed, skipped := 0, 0
		t.Run(name, func(t *testing.T) {
			for i := range rows {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					switch ran := run(t, i); {
					case !ran:
						skipped++
					case !t.Failed():
						passed++
					}
				})
			}
		})
		table = append(table, fmt.Sprintf("%-32s %3d passed, %d failed, %d skipped %s", "publishinfo.json "+name, passed, rows-passed-skipped, skipped, why))
	}
	section("cases", len(golden.Cases), func(t *testing.T, i int) bool {
		c := golden.Cases[i]
		r, err := newRoute(c.Topic, c.route())
		if c.Publish.Error != "" {
			require.Error(t, err, c.Name)
			assert.ErrorContains(t, err, c.Route.OrderTopicConf)
			return true
		}
		require.NoError(t, err, c.Name)
		assert.Equal(t, c.Topic, r.Topic)
		for _, q := range append(slices.Clone(r.Publish), r.Subscribe...) {
			assert.Equal(t, c.Topic, q.Topic)
		}
		if c.Route.TopicQueueMappingByBroker != nil {
			assert.Equal(t, c.GoPublish.Queues, names(r.Publish), c.Name)
			return false
		}
		assert.Equal(t, c.Publish.Queues, names(r.Publish), c.Name)
		assert.Equal(t, c.Subscribe, names(r.Subscribe), c.Name)
		return true
	}, "(static topics: as the Go client)")
	section("perm", len(golden.Perm), func(t *testing.T, i int) bool {
		var want goldenPerm
		require.NoError(t, json.Unmarshal(golden.Perm[i], &want))
		p := protocol.Perm(want.Perm)
		got := goldenPerm{
			Perm:       want.Perm,
			Readable:   len(readable("T", []protocol.QueueData{{BrokerName: "a", ReadQueues: 1, Perm: p}})) == 1,
			Writeable:  len(writable("T", routeWithPerm(p))) == 1,
			Inherited:  p&protocol.PermInherit != 0,
			Priority:   want.Priority, // nobody looks at that bit
			Accessible: p&(protocol.PermRead|protocol.PermWrite) != 0,
			Valid:      p.Valid(),
			String:     p.String(),
		}
		if want.Perm < 0 {
			got.Inherited, got.Accessible = false, false // not in that row
		}
		assert.Equal(t, want, got)
		return true
	}, "")
	section("write_queue_nums", len(golden.WriteQueues), func(t *testing.T, i int) bool {
		// Java's -1 for a broker that is not in the route is no queue here.
		row := golden.WriteQueues[i]
		n := 0
		for _, c := range golden.Cases {
			if c.Name != "two brokers, unsorted" {
				continue
			}
			r, err := newRoute(c.Topic, c.route())
			require.NoError(t, err)
			for _, q := range r.Publish {
				if q.BrokerName == row.Broker {
					n++
				}
			}
		}
		assert.Equal(t, max(row.Number, 0), n, row.Broker)
		return true
	}, "")
	t.Log("rows\n" + strings.Join(table, "\n"))
}

func routeWithPerm(p protocol.Perm) protocol.TopicRoute {
	r := routeOf([2]string{"a", "x:1"})
	r.Queues[0].Perm, r.Queues[0].WriteQueues = p, 1
	return r
}

// Java's split drops empty ends; the official Go client panics.
func TestSemicolonsAtTheEndOfAnOrderConfMeanNothing(t *testing.T) {
	for conf, want := range map[string]string{"a:2;": "a:0 a:1", "a:2;;;": "a:0 a:1", ";": "", ";;": ""} {
		r, err := newRoute("t", protocol.TopicRoute{OrderConf: conf})
		require.NoError(t, err, conf)
		assert.Equal(t, want, strings.Join(names(r.Publish), " "), conf)
	}
	for _, conf := range []string{";a:2", "a:2;;b:1", "a", ":", "a:1.0"} {
		_, err := newRoute("t", protocol.TopicRoute{OrderConf: conf})
		assert.ErrorContains(t, err, conf)
	}
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
