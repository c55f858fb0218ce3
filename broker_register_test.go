package pocketmq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// knows tells which of the topics a name server has a route for.
func knows(t testing.TB, c *pocketmq.Cluster, i int, topics ...string) (known []string) {
	t.Helper()
	conn := dialNameServer(t, c, i)
	for _, topic := range topics {
		_, err := conn.GetRoute(t.Context(), &protocol.GetRouteRequest{Topic: topic})
		if err == nil {
			known = append(known, topic)
		} else {
			require.ErrorIs(t, err, pocketmq.ErrNoRoute)
		}
	}
	return known
}

// Between full registrations a broker sends what has changed. A name server that
// may have missed something gets everything with the next one.
func TestANameServerThatMissedSomethingGetsEverything(t *testing.T) {
	create := func(t *testing.T, c *pocketmq.Cluster, topic string) {
		t.Helper()
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: topic, ReadQueues: 1}))
	}
	all := []string{"T", "U", "during", "after"}
	for name, miss := range map[string]func(t *testing.T, c *pocketmq.Cluster) (end func()){
		"it was restarted": func(t *testing.T, c *pocketmq.Cluster) func() {
			require.NoError(t, c.KillNameServer(1))
			return func() { require.NoError(t, c.RestartNameServer(t.Context(), 1)) }
		},
		"silence": func(t *testing.T, c *pocketmq.Cluster) func() {
			links(t, c).Drop("broker-a/0", "ns-1")
			return func() { links(t, c).HealAll() }
		},
		"the answer was lost": func(_ *testing.T, c *pocketmq.Cluster) func() {
			return c.Inject(pocketmq.Fault{Code: protocol.CodeRegisterBroker, Node: "ns-1", DropReply: true}).Remove
		},
		"it refused": func(_ *testing.T, c *pocketmq.Cluster) func() {
			return c.Inject(pocketmq.Fault{Code: protocol.CodeRegisterBroker, Node: "ns-1", Err: &pocketmq.Error{Code: protocol.SystemError, Remark: "busy"}}).Remove
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{NameServers: 2, Topics: map[string]int{"T": 1, "U": 1}})
				time.Sleep(10 * time.Second) // no periodic registration comes to help
				end := miss(t, c)
				create(t, c, "during")
				end()
				time.Sleep(6 * time.Second) // the end of any back-off
				create(t, c, "after")
				assert.Equal(t, all, knows(t, c, 0, all...))
				assert.Equal(t, all, knows(t, c, 1, all...))
			})
		})
	}
}

func TestARegistrationAfterAChangeCarriesTheChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1, "U": 1}})
		conn := dialNameServer(t, c, 0)
		// What the name server alone has lost comes with the next full registration,
		// and not with one after a change.
		_, err := conn.DeleteTopic(t.Context(), &protocol.DeleteTopicRouteRequest{Topic: "T"})
		require.NoError(t, err)
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "new", ReadQueues: 1}))
		assert.Equal(t, []string{"U", "new"}, knows(t, c, 0, "T", "U", "new"))
		require.NoError(t, c.Admin().DeleteTopic(t.Context(), "new"))
		assert.Equal(t, []string{"U"}, knows(t, c, 0, "T", "U", "new"))
		sleepUntil(start.Add(30 * time.Second))
		assert.Equal(t, []string{"T", "U"}, knows(t, c, 0, "T", "U", "new"), "the periodic registration")
		// A topic that has not changed is registered as well: with everything else.
		_, err = conn.DeleteTopic(t.Context(), &protocol.DeleteTopicRouteRequest{Topic: "T"})
		require.NoError(t, err)
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 1}))
		assert.Equal(t, []string{"T", "U"}, knows(t, c, 0, "T", "U", "new"))
	})
}
