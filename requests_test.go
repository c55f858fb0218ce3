package pocketmq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// Requests here come from a session that no client of ours has checked.

// A message that asks for what the broker does not do is refused, whichever
// way it comes: stored as an ordinary one it would be delivered at once.
func TestWhatTheBrokerCannotDelayOrPrepareIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		send := func(q protocol.SendMessageRequest) error {
			q.ProducerGroup, q.Topic, q.BornTime = "p", "T", time.Now()
			_, err := conn.SendMessage(t.Context(), &q)
			return err
		}
		refused := func(what string, err error) {
			t.Helper()
			var answered *pocketmq.Error
			if assert.ErrorAs(t, err, &answered, what) {
				assert.Contains(t, []protocol.Code{protocol.RequestCodeNotSupported, protocol.MessageIllegal}, answered.Code, "%s: %v", what, err)
			}
		}
		plain := message.EncodeProperties(map[string]string{"k": "v"})
		for name, value := range map[string]string{
			message.PropDelay:               "3",
			message.PropTimerDelaySec:       "10",
			message.PropTimerDelayMs:        "10000",
			message.PropTimerDeliverMs:      "4000000000000",
			message.PropTransactionPrepared: "true",
		} {
			props := message.EncodeProperties(map[string]string{"k": "v", name: value})
			if name != message.PropDelay {
				refused("single with "+name, send(protocol.SendMessageRequest{Body: []byte("x"), Properties: props}))
			}
			first := message.AppendBatch(message.AppendBatch(nil, 0, []byte("bad"), props), 0, []byte("good"), plain)
			refused("batch that begins with "+name, send(protocol.SendMessageRequest{Body: first, Batch: true}))
			last := message.AppendBatch(message.AppendBatch(nil, 0, []byte("good"), plain), 0, []byte("bad"), props)
			refused("batch that ends with "+name, send(protocol.SendMessageRequest{Body: last, Batch: true}))
		}
		refused("a level that is no number", send(protocol.SendMessageRequest{Body: []byte("x"), Properties: "DELAY\x01soon\x02"}))
		batch := message.AppendBatch(nil, 0, []byte("x"), plain)
		for name, flag := range map[string]int32{
			"prepared": message.FlagTransactionPrepared,
			"commit":   message.FlagTransactionCommit,
			"rollback": message.FlagTransactionRollback,
		} {
			refused("single, "+name, send(protocol.SendMessageRequest{Body: []byte("x"), SysFlag: flag}))
			refused("batch, "+name, send(protocol.SendMessageRequest{Body: batch, Batch: true, SysFlag: flag}))
		}
		assert.Empty(t, queueContent(t, c, queue("T", "broker-a", 0)), "nothing was stored")

		require.NoError(t, send(protocol.SendMessageRequest{Body: []byte("x"), Properties: plain}))
		require.NoError(t, send(protocol.SendMessageRequest{Body: batch, Batch: true}))
		assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 2)
	})
}

func TestOffsetsOfAGroupThatNobodyHasSeenAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for range 3 {
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
		}
		conn := dial(t, c, "broker-a")
		commit := func(group string, offset int64) error {
			_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: group, Topic: "T", Offset: offset})
			return err
		}
		committed := func(group string) (int64, error) {
			resp, err := conn.QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: group, Topic: "T"})
			if err != nil {
				return 0, err
			}
			return resp.Offset, nil
		}
		err := commit("stranger", 1)
		assert.ErrorIs(t, err, pocketmq.ErrNotFound)
		var answered *pocketmq.Error
		if assert.ErrorAs(t, err, &answered) {
			assert.Equal(t, protocol.SubscriptionGroupNotExist, answered.Code)
		}
		g, ok := c.Broker("broker-a", 0).Group("stranger")
		assert.False(t, ok, "%+v", g)

		_, err = conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "probe", Consumers: []protocol.ConsumerData{{
			Group: "member", Subscriptions: []protocol.Subscription{{Topic: "T", Expression: "*"}},
		}}})
		require.NoError(t, err)
		require.NoError(t, commit("member", 1), "a group with members")
		_, err = conn.UnregisterClient(t.Context(), &protocol.UnregisterClientRequest{ClientID: "probe", ConsumerGroup: "member"})
		require.NoError(t, err)
		require.NoError(t, commit("member", 2), "a group that has committed before")
		at, err := committed("member")
		require.NoError(t, err)
		assert.Equal(t, int64(2), at)

		check(t, c)
		require.NoError(t, c.Broker("broker-a", 0).Close())
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		conn = dial(t, c, "broker-a")
		require.NoError(t, commit("member", 3), "its offsets outlive the broker")
		assert.ErrorIs(t, commit("stranger", 1), pocketmq.ErrNotFound)
	})
}

// What comes with a pull may be older than what was committed by itself: the two
// are served side by side.
func TestACommitThatComesWithAPullNeverGoesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for range 5 {
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
		}
		conn, q := dial(t, c, "broker-a"), queue("T", "broker-a", 0)
		pull := func(commit int64) {
			t.Helper()
			_, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{Group: "g", Topic: "T", MaxMessages: 1, Commit: true, CommitOffset: commit, HasExpression: true, Expression: "*"})
			require.NoError(t, err)
		}
		commit := func(offset int64) {
			t.Helper()
			_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: offset})
			require.NoError(t, err)
		}
		pull(2)
		assert.EqualValues(t, 2, committedOf(t, c, "g", q))
		commit(4)
		pull(3)
		assert.EqualValues(t, 4, committedOf(t, c, "g", q))
		commit(1) // by itself it may go back
		assert.EqualValues(t, 1, committedOf(t, c, "g", q))
		pull(5)
		assert.EqualValues(t, 5, committedOf(t, c, "g", q))
	})
}
