package pocketmq_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/pipenet"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTCPCarriesAWholeCluster(t *testing.T) { carries(t, pocketmq.TCP("127.0.0.1")) }

// TestFramesCarryAWholeClusterInVirtualTime: the same over pipes, in a bubble.
func TestFramesCarryAWholeClusterInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { carries(t, remoting.NewTransport("127.0.0.1", pipenet.New())) })
}

func carries(t *testing.T, over pocketmq.Transport) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 4}})
	assert.Nil(t, c.Network())
	var mu sync.Mutex // guards got
	got := make(map[string]int)
	all := make(chan struct{})
	const total = 100
	_, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group: "G", Subscriptions: map[string]pocketmq.Filter{"T": {}}, From: pocketmq.FromFirstOffset,
		Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				if got[string(m.Body)]++; len(got) == total && got[string(m.Body)] == 1 {
					close(all)
				}
			}
			return nil
		},
	})
	require.NoError(t, err)
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	for i := range total {
		r, err := p.Send(ctx, &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, i)})
		require.NoError(t, err)
		require.NotEmpty(t, r.OffsetMsgID)
	}
	select {
	case <-all:
	case <-ctx.Done():
		require.NoError(t, ctx.Err())
	}
	admin, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: c.NameServerAddrs(), Transport: c.Transport()})
	require.NoError(t, err)
	require.NoError(t, admin.Start(ctx))
	defer func() { assert.NoError(t, admin.Close()) }()
	route, err := admin.Route(ctx, "T")
	require.NoError(t, err)
	require.Len(t, route.Queues, 1)
	stats, err := admin.TopicStats(ctx, "T")
	require.NoError(t, err)
	sum := int64(0)
	for _, s := range stats {
		sum += s.MaxOffset
	}
	assert.EqualValues(t, total, sum)
	members, err := admin.Members(ctx, "G")
	require.NoError(t, err)
	assert.Len(t, members, 1)

	addr := c.Broker("broker-a", 0).Addr()
	require.NoError(t, c.Kill("broker-a", 0))
	require.NoError(t, c.Restart(ctx, "broker-a", 0))
	assert.Equal(t, addr, c.Broker("broker-a", 0).Addr())
	_, err = p.Send(ctx, &pocketmq.Message{Topic: "T", Body: []byte("after")})
	require.NoError(t, err)
}

func TestAMemberWhoseConnectionEndsIsGoneInTheSameInstant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		pipes := pipenet.New()
		c := run(t, pocketmq.ClusterConfig{Transport: remoting.NewTransport("127.0.0.1", pipes), Topics: map[string]int{"T": 4}})
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil }})
		synctest.Wait()
		require.Len(t, co.Assignment(), 4)
		time.Sleep(7 * time.Second) // not when a rebalance is due
		start := time.Now()
		stranger, err := pipes.Dial(t.Context(), c.Broker("broker-a", 0).Addr())
		require.NoError(t, err)
		_, err = stranger.Write(frame(t, &remoting.Frame{Code: int32(protocol.CodeHeartbeat), Body: []byte(`{"clientID":"zz","consumerDataSet":[{"groupName":"g",` +
			`"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[` +
			`{"topic":"T","subString":"*","tagsSet":[],"codeSet":[],"subVersion":1,"expressionType":"TAG"}]}],"producerDataSet":[]}`)}))
		require.NoError(t, err)
		_, err = remoting.Read(stranger)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, co.Assignment(), 2)
		require.NoError(t, stranger.Close())
		synctest.Wait()
		assert.Len(t, co.Assignment(), 4)
		assert.Zero(t, time.Since(start))
	})
}
