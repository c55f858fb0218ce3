package remoting

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestGoldenRoutesAreReadAsJavaReadsThem: and where Java reads nothing, or
// fails, we fail.
//
// Differs: the Go client's name of topicSysFlag is known to us, to Java it is
// not.
func TestGoldenRoutesAreReadAsJavaReadsThem(t *testing.T) {
	passed := 0
	for _, row := range goldenRoutes(t) {
		ok := t.Run(row.Name, func(t *testing.T) {
			want, means := row.javaMeaning(t)
			got, err := getRoute().read(&Frame{Body: []byte(row.Body)})
			if !means {
				assert.Error(t, err)
				return
			}
			require.NoError(t, err)
			if strings.Contains(row.Body, "topicSynFlag") {
				want.Queues[0].SysFlag = 3
			}
			slices.SortStableFunc(want.Queues, func(a, b protocol.QueueData) int { return cmp.Compare(a.BrokerName, b.BrokerName) })
			sortBrokers(want.Brokers)
			got.Route.FilterServers = nil // the rows do not tell of filter servers and zones
			for i := range got.Route.Brokers {
				got.Route.Brokers[i].Zone = ""
			}
			assert.Equal(t, want, got.Route)
		})
		if ok {
			passed++
		}
	}
	t.Logf("route_json: %d of %d passed, 0 skipped", passed, len(goldenRoutes(t)))
}

// TestRoutesAreWrittenAsTheGoClientReadsThem writes every golden route that has
// a meaning, and reads it by the Go client's rules.
func TestRoutesAreWrittenAsTheGoClientReadsThem(t *testing.T) {
	passed, skipped := 0, 0
	for _, row := range goldenRoutes(t) {
		route, means := row.javaMeaning(t)
		if !means || strings.Contains(row.Name, "address with comma") {
			skipped++ // no name server of ours takes an address that is no IP literal
			continue
		}
		got, err := readAsGo(string(encodeRoute(&route)))
		require.NoError(t, err, row.Name)
		want := route
		for i := range want.Queues {
			want.Queues[i].SysFlag = 0 // the Go client looks for another name
		}
		assert.Equal(t, want, got, row.Name)
		passed++
	}
	t.Logf("route_json, written: %d passed, %d skipped", passed, skipped)
	assert.Greater(t, passed, 40)
}

// readAsGo reads a route as the Go client does: a JSON reader for most of it,
// but broker addresses cut out of the text, without unescaping. It panics where
// that does.
func readAsGo(body string) (r protocol.TopicRoute, err error) {
	var g struct {
		OrderTopicConf string
		QueueDatas     []struct {
			BrokerName                          string
			ReadQueueNums, WriteQueueNums, Perm int
			TopicSynFlag                        int
		}
		BrokerDatas []struct {
			Cluster, BrokerName string
			BrokerAddrs         json.RawMessage
		}
	}
	if err = json.Unmarshal([]byte(body), &g); err != nil {
		return r, err
	}
	if g.QueueDatas == nil {
		return r, assert.AnError
	}
	r.OrderConf = g.OrderTopicConf
	for _, q := range g.QueueDatas {
		r.Queues = append(r.Queues, protocol.QueueData{BrokerName: q.BrokerName, ReadQueues: q.ReadQueueNums, WriteQueues: q.WriteQueueNums, Perm: protocol.Perm(q.Perm)})
	}
	for _, b := range g.BrokerDatas {
		data := protocol.BrokerData{Cluster: b.Cluster, BrokerName: b.BrokerName, Addrs: map[int64]string{}}
		addrs := string(b.BrokerAddrs)
		for _, part := range strings.Split(addrs[1:len(addrs)-1], ",") {
			colon := strings.Index(part, ":")
			if colon < 0 {
				continue
			}
			id, _ := strconv.ParseInt(strings.ReplaceAll(part[:colon], `"`, ""), 10, 64)
			data.Addrs[id] = strings.ReplaceAll(part[colon+1:], `"`, "")
		}
		r.Brokers = append(r.Brokers, data)
	}
	return r, nil
}

func TestClusterInfoAsJavaWritesIt(t *testing.T) {
	r, err := getClusterInfo().read(&Frame{Body: []byte(`{"brokerAddrTable":{"b":{"brokerAddrs":{1:"h:1",0:"h:0"},"brokerName":"b","cluster":"c","enableActingMaster":false},"a":{"brokerAddrs":{},"brokerName":"a","cluster":"c"}},"clusterAddrTable":{"c":["b","a"]}}`)})
	require.NoError(t, err)
	assert.Equal(t, []protocol.BrokerData{{Cluster: "c", BrokerName: "a", Addrs: map[int64]string{}}, {Cluster: "c", BrokerName: "b", Addrs: map[int64]string{0: "h:0", 1: "h:1"}}}, r.Brokers)
	_, err = getClusterInfo().read(&Frame{Body: []byte(`{"brokerAddrTable":{"b":{"brokerAddrs":{x:"h:1"}}}}`)})
	assert.ErrorIs(t, err, errBadHeader)
}
