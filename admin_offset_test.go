package pocketmq_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// twoBrokers is a cluster with topic T of one queue on each of two brokers.
func twoBrokers(t *testing.T) *pocketmq.Cluster {
	t.Helper()
	return run(t, pocketmq.ClusterConfig{
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}, Topics: map[string]int{"T": 1},
	})
}

func TestResetByTimeSkipAndCloneWithMembersAndWithout(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := twoBrokers(t)
			admin, p := c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
			a, b := queue("T", "broker-a", 0), queue("T", "broker-b", 0)
			both := func(q int64, r int64) map[pocketmq.MessageQueue]int64 {
				return map[pocketmq.MessageQueue]int64{a: q, b: r}
			}
			for _, n := range []int{10, 4} { // ten on each, a minute later four more
				for i := range n {
					for _, q := range []pocketmq.MessageQueue{a, b} {
						_, err := p.SendTo(t.Context(), q, text("T", "%d", i))
						require.NoError(t, err)
					}
				}
				time.Sleep(time.Minute)
			}
			second := time.Now().Add(-time.Minute)
			var in inbox
			co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("g"), From: pocketmq.FromFirstOffset})
			time.Sleep(6 * time.Second)
			if !live {
				require.NoError(t, co.Close())
			}
			offsets := func(group string) map[pocketmq.MessageQueue]int64 {
				all, err := admin.Offsets(t.Context(), group, "T")
				require.NoError(t, err)
				return all
			}
			require.Equal(t, both(14, 14), offsets("g"))
			step := func(more int, want map[pocketmq.MessageQueue]int64) {
				t.Helper()
				synctest.Wait()
				if live {
					time.Sleep(6 * time.Second)
					want = both(14, 14)
					assert.Len(t, in.arrivals(), more)
				}
				assert.Equal(t, want, offsets("g"))
			}

			got, err := admin.ResetOffsets(t.Context(), "g", "T", second)
			require.NoError(t, err)
			assert.Equal(t, both(10, 10), got)
			step(28+8, both(10, 10))
			got, err = admin.ResetOffsets(t.Context(), "g", "T", time.Time{})
			require.NoError(t, err)
			assert.Equal(t, both(0, 0), got, "before everything")
			step(28+8+28, both(0, 0))
			got, err = admin.ResetOffsets(t.Context(), "g", "T", time.Now().Add(time.Hour))
			require.NoError(t, err)
			assert.Equal(t, both(14, 14), got, "after everything")
			require.NoError(t, admin.SetOffset(t.Context(), "g", a, 3))
			step(28+8+28+11, both(3, 14))
			require.NoError(t, admin.SkipBacklog(t.Context(), "g", "T"))
			step(28+8+28+11, both(14, 14))

			// What g has, h gets; then g itself is moved and h is not.
			require.NoError(t, admin.SetOffset(t.Context(), "g", b, 12))
			require.NoError(t, admin.CloneOffsets(t.Context(), "g", "h", ""))
			want := offsets("g")
			assert.Equal(t, want, offsets("h"))
			require.NoError(t, admin.SkipBacklog(t.Context(), "g", "T"))
			assert.Equal(t, want, offsets("h"))
			if live {
				require.NoError(t, co.Close())
			}
			var late inbox
			consumer(t, c, pocketmq.ConsumerConfig{Group: "h", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: late.handler("h")})
			time.Sleep(6 * time.Second)
			assert.Len(t, late.arrivals(), int(28-want[a]-want[b]))
			require.NoError(t, admin.SetOffset(t.Context(), "g", a, 2))
			require.NoError(t, admin.CloneOffsets(t.Context(), "g", "h", "T"))
			synctest.Wait()
			assert.Len(t, late.arrivals(), int(28-want[a]-want[b])+12, "a live one moves at once")
		})
	}
}

func TestOffsetsThatCannotBeSetSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoBrokers(t)
		admin, q := c.Admin(), queue("T", "broker-a", 0)
		require.NoError(t, admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g"}))
		sendNumbered(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 5, 0)
		err := admin.SetOffset(t.Context(), "g", q, 6)
		require.ErrorIs(t, err, pocketmq.ErrOffsetOutOfRange)
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.SystemError})
		assert.ErrorContains(t, err, "from 0 to 5")
		for _, at := range []int64{-1, -2, math.MinInt64} {
			err := admin.SetOffset(t.Context(), "g", q, at)
			require.ErrorIs(t, err, pocketmq.ErrOffsetOutOfRange)
			assert.ErrorContains(t, err, fmt.Sprintf("offset %d of group g in T@broker-a:0 is negative", at))
		}
		for _, at := range []int64{5, 0} {
			require.NoError(t, admin.SetOffset(t.Context(), "g", q, at))
			assert.EqualValues(t, at, committedOf(t, c, "g", q))
		}
		require.ErrorIs(t, admin.SetOffset(t.Context(), "unknown", q, 1), pocketmq.ErrNotFound)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "g", queue("T", "broker-x", 0), 1), pocketmq.ErrInvalidConfig)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "g", queue("T", "broker-a", 7), 0), pocketmq.ErrInvalidConfig)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "g", queue("T", "broker-a", -1), 0), pocketmq.ErrInvalidConfig)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "g", queue("U", "broker-a", 0), 0), pocketmq.ErrNoRoute)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "a b", q, 0), pocketmq.ErrIllegalName)
		require.ErrorIs(t, admin.SkipBacklog(t.Context(), "g", "U"), pocketmq.ErrNoRoute)
		require.ErrorIs(t, admin.CloneOffsets(t.Context(), "unknown", "h", "T"), pocketmq.ErrNotFound)
		require.ErrorIs(t, admin.CloneOffsets(t.Context(), "g", "h", "U"), pocketmq.ErrNoRoute)

		// A group that nobody knows has nothing, and that is no error.
		offsets, err := admin.Offsets(t.Context(), "unknown", "T")
		require.NoError(t, err)
		assert.Empty(t, offsets)
		lag, err := admin.Lag(t.Context(), "unknown")
		require.NoError(t, err)
		assert.Empty(t, lag)
		st, err := admin.Group(t.Context(), "unknown")
		require.NoError(t, err)
		assert.Equal(t, pocketmq.GroupStatus{Name: "unknown"}, st)
		members, err := admin.Members(t.Context(), "unknown")
		require.NoError(t, err)
		assert.Empty(t, members)

		// At the broker itself: an offset needs a queue, and -1 means all of them.
		conn := dial(t, c, "broker-a")
		one := int64(1)
		_, err = conn.ResetOffset(t.Context(), &protocol.ResetOffsetRequest{Group: "g", Topic: "T", QueueID: -1, Offset: &one})
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.InvalidParameter})
		before := int64(-2)
		_, err = conn.ResetOffset(t.Context(), &protocol.ResetOffsetRequest{Group: "g", Topic: "T", Offset: &before})
		require.ErrorIs(t, err, &protocol.Error{Code: protocol.SystemError})
		resp, err := conn.ResetOffset(t.Context(), &protocol.ResetOffsetRequest{Group: "g", Topic: "T", QueueID: -1})
		require.NoError(t, err)
		assert.Equal(t, map[int]int64{0: 5}, resp.Offsets)
		pull := &protocol.PullMessageRequest{Group: "g", Topic: "T", Offset: 1, MaxMessages: 1, Commit: true, CommitOffset: 1, HasExpression: true, Expression: "*"}
		_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 1})
		require.NoError(t, err, "answered, and ignored")
		moved, err := conn.PullMessage(t.Context(), pull)
		require.NoError(t, err)
		assert.Equal(t, protocol.PullMessageResponse{Code: protocol.PullOffsetMoved, NextBeginOffset: 5, MaxOffset: 5}, *moved)
		assert.EqualValues(t, 5, committedOf(t, c, "g", q), "nor does the commit count that this pull carried")
		again, err := conn.PullMessage(t.Context(), pull)
		require.NoError(t, err)
		assert.Equal(t, protocol.Success, again.Code, "once")
		assert.EqualValues(t, 5, committedOf(t, c, "g", q), "a pull takes no group back")
	})
}

func TestLagOfAllBrokersAndOfOneThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := twoBrokers(t)
		admin, p := c.Admin(), producer(t, c, pocketmq.ProducerConfig{})
		a, b := queue("T", "broker-a", 0), queue("T", "broker-b", 0)
		stored := time.UnixMilli(time.Now().UnixMilli())
		for _, q := range []pocketmq.MessageQueue{a, a, a, b} {
			_, err := p.SendTo(t.Context(), q, text("T", "x"))
			require.NoError(t, err)
		}
		require.NoError(t, admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g"}))
		require.NoError(t, admin.SetOffset(t.Context(), "g", a, 1))
		lag, err := admin.Lag(t.Context(), "g")
		require.NoError(t, err)
		ofA, ofB := pocketmq.QueueLag{Queue: a, Committed: 1, Max: 3, Lag: 2, LastConsumed: stored}, pocketmq.QueueLag{Queue: b, Committed: -1, Max: 1, Lag: 1}
		assert.Equal(t, []pocketmq.QueueLag{ofA, ofB}, lag, "b belongs to a topic in which the group has committed elsewhere")
		g, err := admin.Group(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, pocketmq.GroupStatus{Name: "g", Queues: lag}, g)

		fails := c.Inject(pocketmq.Fault{Code: protocol.CodeGetConsumeStats, Node: "broker-b/0", Err: &protocol.Error{Code: protocol.SystemBusy, Remark: "busy"}})
		lag, err = admin.Lag(t.Context(), "g")
		require.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		assert.ErrorContains(t, err, "broker-b")
		assert.NotContains(t, err.Error(), "broker-a")
		assert.Equal(t, []pocketmq.QueueLag{ofA}, lag, "what the other said")
		offsets, err := admin.Offsets(t.Context(), "g", "T")
		require.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		assert.Equal(t, map[pocketmq.MessageQueue]int64{a: 1}, offsets)
		fails.Remove()
		c.Inject(pocketmq.Fault{Code: protocol.CodeResetOffset, Node: "broker-b/0", Err: &protocol.Error{Code: protocol.SystemBusy, Remark: "busy"}, Times: 1})
		offsets, err = admin.ResetOffsets(t.Context(), "g", "T", time.Now().Add(time.Hour))
		require.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		assert.Equal(t, map[pocketmq.MessageQueue]int64{a: 3}, offsets)
		offsets, err = admin.ResetOffsets(t.Context(), "g", "T", time.Now().Add(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, map[pocketmq.MessageQueue]int64{a: 3, b: 1}, offsets)

		require.NoError(t, c.Kill("broker-b", 0))
		synctest.Wait() // nobody knows of it then
		lag, err = admin.Lag(t.Context(), "g")
		require.NoError(t, err)
		assert.Len(t, lag, 1)
		require.ErrorIs(t, admin.SetOffset(t.Context(), "g", b, 0), pocketmq.ErrInvalidConfig)
		require.NoError(t, c.Kill("broker-a", 0))
		_, err = admin.Lag(t.Context(), "g")
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		require.ErrorIs(t, admin.CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g"}), pocketmq.ErrUnreachable)
	})
}

func TestExpiredMessagesAreNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Topics: map[string]int{"T": 1}, Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Retention: time.Hour}}},
		})
		p, q := producer(t, c, pocketmq.ProducerConfig{}), queue("T", "broker-a", 0)
		sendNumbered(t, p, 0, 50, 0)
		require.NoError(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "g"}))
		require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 10))
		time.Sleep(2 * time.Hour)
		lag, err := c.Admin().Lag(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, []pocketmq.QueueLag{{Queue: q, Committed: 10, Max: 50, Lag: 0}}, lag)
		require.ErrorIs(t, c.Admin().SetOffset(t.Context(), "g", q, 10), pocketmq.ErrOffsetOutOfRange)
	})
}
