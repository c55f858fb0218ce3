package pocketmq_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestGroupsAreCreatedUpdatedAndDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoBrokers(t)
		admin := c.Admin()
		for _, g := range []pocketmq.GroupConfig{{}, {Name: "a b"}} {
			require.ErrorIs(t, admin.CreateGroup(t.Context(), g), pocketmq.ErrIllegalName)
		}
		err := admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g", RetryQueues: -2, MaxReconsume: -2})
		require.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		assert.ErrorContains(t, err, "RetryQueues")
		assert.ErrorContains(t, err, "MaxReconsume", "all at once")

		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c")})
		sendTo(t, p, "T", 0, 4)
		synctest.Wait()
		require.Len(t, in.arrivals(), 4)
		require.NoError(t, admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g", ConsumeDisabled: true}))
		synctest.Wait()
		sendTo(t, p, "T", 4, 4)
		time.Sleep(time.Minute)
		assert.Len(t, in.arrivals(), 4, "held pulls were refused too")
		require.NoError(t, admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g", MaxReconsume: pocketmq.NoRetries, RetryQueues: 3}))
		time.Sleep(time.Minute)
		assert.Len(t, in.arrivals(), 8)
		route, err := admin.Route(t.Context(), "%RETRY%g")
		require.NoError(t, err)
		assert.Equal(t, []int{3, 3}, []int{route.Queues[0].ReadQueues, route.Queues[1].ReadQueues})
	})
}

func TestADeletedGroupBeginsAsANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoBrokers(t)
		admin, p := c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		sendTo(t, p, "T", 0, 10)
		var in inbox
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c"), From: pocketmq.FromFirstOffset}
		co := consumer(t, c, cfg)
		time.Sleep(6 * time.Second)
		require.NoError(t, co.Close())
		require.Len(t, in.arrivals(), 10)
		require.NoError(t, admin.DeleteGroup(t.Context(), "g"))
		_, known := c.Broker("broker-a", 0).Group("g")
		assert.False(t, known)
		_, err := admin.Route(t.Context(), "%RETRY%g")
		require.ErrorIs(t, err, pocketmq.ErrNoRoute)
		require.ErrorIs(t, admin.SkipBacklog(t.Context(), "g", "T"), pocketmq.ErrNotFound)
		require.NoError(t, admin.DeleteGroup(t.Context(), "g"), "it is gone: no error")
		require.ErrorIs(t, admin.DeleteGroup(t.Context(), ""), pocketmq.ErrIllegalName)
		consumer(t, c, cfg)
		time.Sleep(6 * time.Second)
		assert.Len(t, in.arrivals(), 20)
		assert.Equal(t, 20, len(in.bodies()))
	})
}

func TestAdminSeesAGroupAsItsMembersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}, Topics: map[string]int{"T": 3},
		})
		admin, p := c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		sendTo(t, p, "T", 0, 12)
		var in inbox
		var members []*pocketmq.Consumer
		for i := range 2 {
			members = append(members, consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", InstanceName: fmt.Sprint("m", i), Orderly: true, Handler: in.handler("c"),
				Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("a", "b")},
			}))
		}
		time.Sleep(time.Minute)
		st, err := admin.Group(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, pocketmq.Clustering, st.Model)
		assert.True(t, st.Orderly)
		require.Len(t, st.Members, 2)
		require.Len(t, st.Queues, 6)
		seen := c.Broker("broker-a", 0)
		at, ok := seen.Group("g")
		require.True(t, ok)
		locks, err := admin.Locks(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, locks, st.Locks)
		for i, m := range members {
			assert.Equal(t, m.ClientID(), st.Members[i].ClientID)
			assert.Equal(t, map[string]string{"T": "a || b"}, st.Members[i].Subscriptions)
			assert.Equal(t, m.Assignment(), st.Members[i].Assigned)
			for _, q := range m.Assignment() {
				assert.Equal(t, m.ClientID(), locks[q])
				if q.BrokerName == "broker-a" {
					assert.Contains(t, at.Members[i].Assigned, q, "the broker knows who pulls")
				}
			}
		}
		list, err := admin.Members(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.Member{
			{ClientID: members[0].ClientID(), Addr: st.Members[0].Addr}, {ClientID: members[1].ClientID(), Addr: st.Members[1].Addr},
		}, list)

		// A member that does not answer is named, and the rest is told.
		c.Inject(pocketmq.Fault{Code: protocol.CodeGetConsumerRunningInfo, Group: "g", Times: 1, Err: &protocol.Error{Code: protocol.ConsumeMsgTimeout, Remark: "silent"}})
		st, err = admin.Group(t.Context(), "g")
		require.ErrorContains(t, err, "silent")
		require.Len(t, st.Members, 2)
		assert.Len(t, st.Queues, 6)
		conn := dial(t, c, "broker-a")
		_, err = conn.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: "g", ClientID: "nobody"})
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.SystemError})
		_, err = conn.GetConsumerConnection(t.Context(), &protocol.GetConsumerConnectionRequest{Group: "nobody"})
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.ConsumerNotOnline})
		time.Sleep(time.Second) // a heartbeat that is under way would end the session after 3 s
		links(t, c).CutOneWay("broker-a/0", members[0].ClientID())
		begin := time.Now()
		_, err = conn.GetConsumerRunningInfo(t.Context(), &protocol.GetConsumerRunningInfoRequest{Group: "g", ClientID: members[0].ClientID()})
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.ConsumeMsgTimeout})
		assert.Equal(t, 10*time.Second, time.Since(begin))
	})
}

func TestWaitGroupWaitsForMembersSharesAndLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}, Topics: map[string]int{"T": 2},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		shares := func(want ...int) func(pocketmq.GroupStatus) bool {
			return func(g pocketmq.GroupStatus) bool {
				if len(g.Members) != len(want) {
					return false
				}
				for i, m := range g.Members {
					if len(m.Assigned) != want[i] {
						return false
					}
				}
				return true
			}
		}
		var in inbox
		start := func(i int) *pocketmq.Consumer {
			return consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", InstanceName: fmt.Sprint("m", i), Handler: in.handler("c"), Subscriptions: map[string]pocketmq.Filter{"T": {}},
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		require.NoError(t, c.WaitGroup(ctx, "g", func(g pocketmq.GroupStatus) bool { return g.Name == "g" && len(g.Members) == 0 }))
		go func() { // while it waits
			time.Sleep(time.Second)
			start(0)
		}()
		require.NoError(t, c.WaitGroup(ctx, "g", shares(4)))
		assert.Equal(t, time.Second, time.Since(begin), "in the instant in which it happens")
		second := start(1)
		require.NoError(t, c.WaitGroup(ctx, "g", shares(2, 2)))
		sendTo(t, p, "T", 0, 20)
		require.NoError(t, c.WaitGroup(ctx, "g", func(g pocketmq.GroupStatus) bool {
			sum := int64(0)
			for _, q := range g.Queues {
				sum += q.Committed
			}
			return len(g.Queues) == 4 && sum == 20
		}))
		assert.LessOrEqual(t, time.Since(begin), 16*time.Second+time.Second, "commits come with a pull")
		require.NoError(t, second.Close())
		require.NoError(t, c.WaitGroup(ctx, "g", shares(4)))

		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		err := c.WaitGroup(short, "g", func(pocketmq.GroupStatus) bool { return false })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "with 4 queues; 4 queues, lag 0")
		require.ErrorIs(t, c.WaitGroup(ctx, "a b", shares()), pocketmq.ErrIllegalName)
		done := make(chan error, 1)
		go func() { done <- c.WaitGroup(context.Background(), "g", shares(9)) }()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-done, pocketmq.ErrClosed)
	})
}
