package groups_test

import (
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestEveryBroadcastingMemberGetsEverything, also beside a member of ours, and an
// official one that comes back goes on where it was.
func TestEveryBroadcastingMemberGetsEverything(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2}, "broker-a", "broker-b")
	broadcast := consumer.WithConsumerModel(consumer.BroadCasting)
	a, b, ours := newInbox(), newInbox(), newInbox()
	instance := consumer.WithInstance("broadcaster" + t.TempDir()[len(t.TempDir())-3:])
	first := push(t, c, "G", "T", everything, a.official("a", nil), broadcast, instance)
	push(t, c, "G", "T", everything, b.official("b", nil), broadcast)
	_, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
		Group: "G", Model: pocketmq.Broadcasting, Subscriptions: map[string]pocketmq.Filter{"T": {}}, From: pocketmq.FromFirstOffset,
		Handler: ours.ours("ours", nil),
	})
	require.NoError(t, err)
	p := rmqtest.Producer(t, c)
	before := numbered("before", 60)
	sendAll(t, p, "T", before)
	for _, in := range []*inbox{a, b, ours} {
		in.waitBodies(t, before)
	}
	require.NoError(t, first.Shutdown())
	after := numbered("after", 60)
	sendAll(t, p, "T", after)
	push(t, c, "G", "T", everything, a.official("a", nil), broadcast, instance)
	for _, in := range []*inbox{a, b, ours} {
		in.waitBodies(t, after)
		assert.Zero(t, in.repeats())
	}
	summary(t, "consumer/broadcast", "%d consumed by each of 2 official members and one of ours, one of them anew in between, lost 0, none twice", len(before)+len(after))
}
