package groups_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/rebalance"
)

func TestOfficialConsumersThatJoinAndLeaveLoseNothing(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4}, "broker-a", "broker-b")
	in := newInbox()
	s := sending(t, c, "T")
	ids := make(map[string]string)
	join := func(who string) func() error {
		co := push(t, c, "G", "T", everything, in.official(who, nil))
		ids[who] = joined(t, c, "G", ids)
		return co.Shutdown
	}
	a := join("a")
	waitShared(t, c, "G", "T", 1, rebalance.Averagely)
	in.more(t, 200)
	b := join("b")
	waitShared(t, c, "G", "T", 2, rebalance.Averagely)
	in.more(t, 200)
	join("c")
	owners := waitShared(t, c, "G", "T", 3, rebalance.Averagely)
	in.more(t, 200)
	first := s.end(t)
	in.waitBodies(t, first)
	onlyOwners(t, in, rmqtest.Producer(t, c), "T", owners, ids)

	s = sendingFrom(t, c, "T", len(first))
	in.more(t, 200)
	require.NoError(t, a())
	waitShared(t, c, "G", "T", 2, rebalance.Averagely)
	in.more(t, 200)
	require.NoError(t, b())
	waitShared(t, c, "G", "T", 1, rebalance.Averagely)
	in.more(t, 200)
	second := s.end(t)
	in.waitBodies(t, second)
	summary(t, "consumer/simple", "%d sent while 3 members joined and 2 left, lost 0, each queue owned once after quiet; %d delivered again", len(first)+len(second), in.repeats())
}

// TestOfficialStrategiesShareAsTheySay: the broker sees each member pull what the
// official strategy gives it.
func TestOfficialStrategiesShareAsTheySay(t *testing.T) {
	t.Parallel()
	config := []*primitive.MessageQueue{{Topic: "T", BrokerName: "broker-a", QueueId: 1}, {Topic: "T", BrokerName: "broker-b", QueueId: 2}}
	for _, strategy := range []struct {
		name  string
		share consumer.AllocateStrategy
	}{
		{"averagely", consumer.AllocateByAveragely},
		{"circle", consumer.AllocateByAveragelyCircle},
		{"nearby", consumer.AllocateByMachineNearby},
		{"config", consumer.AllocateByConfig(config)},
		{"consistent hash", consumer.AllocateByConsistentHash(10)},
	} {
		t.Run(strategy.name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, map[string]int{"T": 3}, "broker-a", "broker-b")
			in := newInbox()
			const members = 2
			for i := range members {
				push(t, c, "G", "T", everything, in.official(fmt.Sprint(i), nil), consumer.WithStrategy(strategy.share))
			}
			all := queuesOf(t, c, "T")
			s := sending(t, c, "T") // the broker goes by who pulls, and pulls end with messages
			waitGroup(t, c, "G", "a share as the strategy says", func(st pocketmq.GroupStatus) bool {
				if len(st.Members) != members {
					return false
				}
				taken := make(map[pocketmq.MessageQueue]bool)
				for _, m := range st.Members {
					want := officialShare(strategy.share, st, m.ClientID, all)
					if strategy.name == "config" { // both have it: the last pull counts
						want = m.Assigned
					}
					if !slices.Equal(m.Assigned, want) {
						return false
					}
					for _, q := range want {
						taken[q] = true
					}
				}
				if strategy.name == "config" {
					return len(taken) == len(config)
				}
				return len(taken) == len(all)
			})
			s.end(t)
		})
	}
	t.Cleanup(func() {
		summary(t, "consumer/strategy", "averagely, circle, nearby, config, consistent hash: every member pulls its share")
	})
}

// officialShare is what an official strategy gives to a member, sorted.
func officialShare(share consumer.AllocateStrategy, st pocketmq.GroupStatus, self string, queues []pocketmq.MessageQueue) []pocketmq.MessageQueue {
	ids := make([]string, len(st.Members))
	for i, m := range st.Members {
		ids[i] = m.ClientID
	}
	theirs := make([]*primitive.MessageQueue, len(queues))
	for i, q := range queues {
		theirs[i] = &primitive.MessageQueue{Topic: q.Topic, BrokerName: q.BrokerName, QueueId: q.QueueID}
	}
	var out []pocketmq.MessageQueue
	for _, q := range share(st.Name, self, theirs, ids) {
		out = append(out, pocketmq.MessageQueue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueId})
	}
	slices.SortFunc(out, pocketmq.MessageQueue.Compare)
	return out
}

func TestOfficialConsumersGetTheirTagsOnly(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in := newInbox()
	// The official client hashes the bytes of a tag, brokers its characters.
	push(t, c, "G", "T", consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || 标签"}, in.official("a", nil))
	p := rmqtest.Producer(t, c)
	want := 0
	for i := range 300 {
		tag := []string{"TagA", "TagB", "标签", "AaAa", "BBBB"}[i%5]
		body := fmt.Sprintf("%s %d", tag, i)
		if tag == "TagA" || tag == "标签" {
			want++
		}
		_, err := p.SendSync(t.Context(), primitive.NewMessage("T", []byte(body)).WithTag(tag))
		require.NoError(t, err)
	}
	in.wait(t, "the tagged messages", func(_ []arrival, counts map[string]int) bool { return len(counts) == want })
	waitGroup(t, c, "G", "everything looked at", func(st pocketmq.GroupStatus) bool { return len(st.Queues) > 0 })
	for _, a := range in.arrivals() {
		assert.Contains(t, []string{"TagA", "标签"}, a.official.GetTags())
	}
	summary(t, "consumer/tag", "%d of 300 messages had a wanted tag, %d consumed, lost 0", want, want)
}

// TestOfficialConsumersWithAndWithoutTLSShareAGroup, on one port.
func TestOfficialConsumersWithAndWithoutTLSShareAGroup(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4})
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("with TLS", nil), consumer.WithTls(true))
	push(t, c, "G", "T", everything, in.official("without", nil))
	s := sending(t, c, "T")
	waitShared(t, c, "G", "T", 2, rebalance.Averagely)
	in.wait(t, "messages at both", func(list []arrival, _ map[string]int) bool {
		return slices.ContainsFunc(list, func(a arrival) bool { return a.who == "with TLS" }) &&
			slices.ContainsFunc(list, func(a arrival) bool { return a.who == "without" })
	})
	in.more(t, 100)
	bodies := s.end(t)
	in.waitBodies(t, bodies)
	summary(t, "consumer/tls", "%d consumed by two members, one with TLS, lost 0", len(bodies))
}

// TestAnOfficialSQLFilterIsRefused: its consumers get nothing, rather than
// everything.
func TestAnOfficialSQLFilterIsRefused(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 1})
	p := rmqtest.Producer(t, c)
	sendAll(t, p, "T", numbered("m", 10))
	sql := consumer.MessageSelector{Type: consumer.SQL92, Expression: "a > 3"}

	in := newInbox()
	pulls := c.Inject(pocketmq.Fault{Code: protocol.CodePullMessage, Group: "G", Topic: "T"})
	push(t, c, "G", "T", sql, in.official("a", nil))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, pulls.Wait(ctx, 2), "it asks again and again")
	assert.Empty(t, in.arrivals())

	byHand := rmqtest.PullConsumer(t, c, "H", consumer.WithPullBatchSize(1))
	require.NoError(t, byHand.Subscribe("T", sql))
	require.NoError(t, byHand.Start())
	queues, err := byHand.GetTopicRouteInfo("T")
	require.NoError(t, err)
	_, err = byHand.PullFrom(ctx, queues[0], 0, 1)
	require.ErrorContains(t, err, "does not support consumer to filter message by SQL92")
	summary(t, "consumer with a SQL filter", "refused, 0 of 10 delivered")
}
