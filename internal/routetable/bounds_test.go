package routetable

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestWhatStrangersMayRegisterIsBounded(t *testing.T) {
	at := func(i int) string { return fmt.Sprintf("127.1.0.%d:1", i) }
	try := func(table *Table, r *protocol.RegisterBrokerRequest) string {
		before := table.ClusterInfo()
		_, c, err := table.Register(t0, 1, r)
		checkInvariants(t, table)
		if err == nil {
			return ""
		}
		var e *protocol.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, protocol.SystemError, e.Code)
		assert.True(t, strings.HasPrefix(e.Remark, "register broker failed: "))
		assert.Less(t, len(e.Remark), 200)
		assert.Equal(t, Change{}, c)
		assert.Equal(t, before, table.ClusterInfo(), "nothing has changed")
		return e.Remark
	}
	long := strings.Repeat("x", 256)
	for _, f := range []func(*protocol.RegisterBrokerRequest){
		func(r *protocol.RegisterBrokerRequest) { r.Cluster = long }, func(r *protocol.RegisterBrokerRequest) { r.BrokerName = long },
		func(r *protocol.RegisterBrokerRequest) { r.Addr = long }, func(r *protocol.RegisterBrokerRequest) { r.HAAddr = long },
		func(r *protocol.RegisterBrokerRequest) { r.FilterServers = []string{long} }, with(topic("a", 1), topic(long, 1)), inZone(long),
	} {
		assert.Contains(t, try(New(), registration(f)), "a name or address has 256 bytes, at most 255 are allowed")
	}
	assert.Empty(t, try(New(), registration(with(topic(long[:255], 1), topic("a", 1)))))
	assert.Contains(t, try(New(), registration(func(r *protocol.RegisterBrokerRequest) { r.FilterServers = make([]string, 65) })), "65 filter servers, at most 64 are allowed")

	table := New()
	table.limits = limits{groups: 3, live: 5, shares: 10, filters: 1, text: 255}
	for i := range 3 {
		assert.Empty(t, try(table, registration(as(fmt.Sprint("b", i), 0, at(i)))))
	}
	assert.Contains(t, try(table, registration(as("b3", 0, at(3)))), "there are 3 broker groups, at most 3 are allowed")
	assert.Empty(t, try(table, registration(as("b0", 1, at(4)), with())))
	assert.Empty(t, try(table, registration(as("b0", 2, at(5)), with())))
	assert.Contains(t, try(table, registration(as("b0", 3, at(6)), with())), "there are 5 brokers, at most 5 are allowed")
	assert.Empty(t, try(table, registration(as("b0", 2, at(5)), with())), "one that is there goes on")
	many := with(topic("orders", 1), topic("TBW102", 1), topic("1", 1), topic("2", 1), topic("3", 1), topic("4", 1))
	assert.Empty(t, try(table, registration(as("b0", 0, at(0)), many)), "10 of all brokers")
	assert.Contains(t, try(table, registration(as("b1", 0, at(1)), many)), "the topics of all brokers are 10, 4 more would be more than the 10 that are allowed")
	assert.Equal(t, Change{}, table.RegisterTopic("5", []protocol.QueueData{{BrokerName: "b0"}}))
	assert.True(t, table.DeleteTopic("4", ""))
	assert.Equal(t, Change{Topics: []string{"5"}}, table.RegisterTopic("5", []protocol.QueueData{{BrokerName: "b0"}}))
	table.ConnClosed(1)
	checkInvariants(t, table)
	assert.Zero(t, table.shares)

	// Groups without an address, which nobody takes out, make room for others.
	for i := range 10 {
		_, _, err := table.Register(t0, 2, registration(as(fmt.Sprint("refused ", i), 0, at(i)), with(topic("one", 1))))
		require.Error(t, err)
		assert.LessOrEqual(t, len(table.brokers), 3)
		checkInvariants(t, table)
	}
	assert.Empty(t, try(table, registration()))
}
