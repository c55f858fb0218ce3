package interop_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

// dial opens a session of ours with the one broker of c, as tools have one.
func dial(t *testing.T, c *pocketmq.Cluster) protocol.BrokerConn {
	t.Helper()
	conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "tool", Addr: c.Broker("broker-a", 0).Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn
}

// TestRelayReachesTheOfficialConsumer: what a tool asks the broker about a member
// goes to the official client and back.
func TestRelayReachesTheOfficialConsumer(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Topics: map[string]int{"relay": 2}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	box := consume(t, c, "relay", everything)
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	sent, err := p.Send(ctx, &pocketmq.Message{Topic: "relay", Body: []byte("asked for")})
	require.NoError(t, err)
	box.wait(t, 1)
	members, err := c.Admin().Members(ctx, "g-relay")
	require.NoError(t, err)
	require.Len(t, members, 1)
	id := members[0].ClientID

	tool := dial(t, c)
	info, err := tool.GetConsumerRunningInfo(ctx, &protocol.GetConsumerRunningInfoRequest{Group: "g-relay", ClientID: id, Stacks: true})
	require.NoError(t, err)
	var topics []string
	for _, q := range info.Queues {
		if !strings.HasPrefix(q.Topic, "%RETRY%") { // it may come last
			topics = append(topics, q.Topic)
		}
	}
	assert.Contains(t, topics, "relay")
	assert.NotEmpty(t, info.Verbatim)
	require.NotEmpty(t, info.Subscriptions)

	require.Eventually(t, func() bool { // the client counts a message a moment after its handler
		status, err := tool.GetConsumerStatus(ctx, &protocol.GetConsumerStatusRequest{Group: "g-relay", Topic: "relay"})
		return assert.NoError(t, err) && assert.Contains(t, status.Offsets, id) && status.Offsets[id][sent.Queue] == sent.QueueOffset+1
	}, patience, 5*time.Millisecond)

	result, err := tool.ConsumeMessageDirectly(ctx, &protocol.ConsumeMessageDirectlyRequest{Group: "g-relay", ClientID: id, MsgID: sent.OffsetMsgID, Topic: "relay"})
	require.NoError(t, err)
	assert.Equal(t, protocol.ConsumeSuccess, result.Result)
	got := box.all()
	require.Len(t, got, 2)
	assert.Equal(t, []any{"asked for", sent.MsgID}, []any{got[1].body, got[1].msgID})
	_, err = tool.ConsumeMessageDirectly(ctx, &protocol.ConsumeMessageDirectlyRequest{Group: "g-relay", ClientID: "nobody", MsgID: sent.OffsetMsgID, Topic: "relay"})
	require.ErrorContains(t, err, "not online")
	done("relays to the official consumer", "running info, status, one message consumed directly")
}

// TestRelayResetsOfficialBroadcastingConsumers: each is told, drops what it has and
// begins again 10 s later, as that client does.
func TestRelayResetsOfficialBroadcastingConsumers(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Topics: map[string]int{"again": 1}})
	boxes := []*inbox{newInbox(), newInbox()}
	for _, box := range boxes {
		p := rmqtest.Consumer(t, c, "g-again", consumer.WithConsumerModel(consumer.BroadCasting), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		require.NoError(t, p.Subscribe("again", everything, box.official))
		require.NoError(t, p.Start())
	}
	p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
	require.NoError(t, err)
	const n = 5
	for range n {
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "again", Body: []byte("x")})
		require.NoError(t, err)
	}
	for _, box := range boxes {
		box.wait(t, n)
	}
	_, err = c.Admin().ResetOffsets(t.Context(), "g-again", "again", time.Unix(0, 0))
	require.NoError(t, err)
	for _, box := range boxes {
		late := time.NewTimer(2 * patience)
		for len(box.all()) < 2*n {
			box.mu.Lock()
			changed := box.changed
			box.mu.Unlock()
			if len(box.all()) >= 2*n {
				break
			}
			select {
			case <-changed:
			case <-late.C:
				require.GreaterOrEqual(t, len(box.all()), 2*n, "messages consumed within %v of the reset", 2*patience)
			}
		}
		late.Stop()
	}
	report(t, "reset of official broadcasting consumers", 4*n, len(boxes[0].all())+len(boxes[1].all()))
}
