package routetable

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// A registration may bring tens of thousands of topics, again and again.
func TestLookUpsWaitForNoRegistration(t *testing.T) {
	table := New()
	_, _, err := table.Register(time.Unix(1, 0), 1, &protocol.RegisterBrokerRequest{
		Cluster: "c", BrokerName: "a", Addr: "127.0.0.1:1", FilterServers: []string{"f"},
		Topics: []protocol.TopicConfig{{Name: "t", ReadQueues: 1, WriteQueues: 1}, {Name: "u", ReadQueues: 1, WriteQueues: 1}},
	})
	require.NoError(t, err)
	table.mu.Lock()
	defer table.mu.Unlock()
	route, ok := table.Route("t")
	require.True(t, ok)
	assert.Equal(t, "a", route.Queues[0].BrokerName)
	assert.Equal(t, map[int64]string{0: "127.0.0.1:1"}, route.Brokers[0].Addrs)
	assert.Equal(t, map[string][]string{"127.0.0.1:1": {"f"}}, route.FilterServers)
	_, ok = table.Route("x")
	assert.False(t, ok)
}
