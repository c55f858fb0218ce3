package rmqtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	official "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestAConsumerThatTheOfficialClientRefusesToStartHarmsNothing: with the official
// client alone the second Start panics, and so does Shutdown.
func TestAConsumerThatTheOfficialClientRefusesToStartHarmsNothing(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	for _, tc := range []struct {
		name, group string
		pull        bool
		opts        []consumer.Option
		want        string
	}{
		{name: "reserved group", group: "DEFAULT_CONSUMER", want: "DEFAULT_CONSUMER"},
		{name: "no group", want: "DEFAULT_CONSUMER"},
		{name: "pull batch", group: "G", opts: []consumer.Option{consumer.WithPullBatchSize(5000)}, want: "PullBatchSize"},
		{name: "handler batch", group: "G", opts: []consumer.Option{consumer.WithConsumeMessageBatchMaxSize(5000)}, want: "ConsumeMessageBatchMaxSize"},
		{name: "orderly", group: "G", opts: []consumer.Option{consumer.WithConsumerOrder(true), consumer.WithPullBatchSize(5000)}, want: "PullBatchSize"},
		{name: "traced", group: "G", opts: []consumer.Option{consumer.WithTrace(rmqtest.Trace()), consumer.WithPullBatchSize(5000)}, want: "PullBatchSize"},
		{name: "pull, reserved group", group: "DEFAULT_CONSUMER", pull: true, want: "DEFAULT_CONSUMER"},
		{name: "pull, no group", pull: true, want: "DEFAULT_CONSUMER"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inner := fake(t, func(t *fakeT) {
				var co interface {
					Start() error
					Shutdown() error
				}
				if tc.pull {
					pull := rmqtest.PullConsumer(t, c, tc.group, tc.opts...)
					assert.NoError(t.TB, pull.Subscribe("T", all))
					co = pull
				} else {
					push := rmqtest.Consumer(t, c, tc.group, tc.opts...)
					assert.NoError(t.TB, push.Subscribe("T", all, accept))
					co = push
				}
				assert.ErrorContains(t.TB, co.Start(), tc.want)
				assert.ErrorContains(t.TB, co.Start(), tc.want, "again")
				assert.NoError(t.TB, co.Shutdown())
				assert.ErrorContains(t.TB, co.Start(), "make another one")
			})
			assert.False(t, inner.failed, "%q", inner.logs)
		})
	}
}

func TestAPullConsumerWithoutASubscriptionStartsOnceItHasOne(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage("T", []byte("x")))
	require.NoError(t, err)
	pull := rmqtest.PullConsumer(t, c, "P", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.ErrorContains(t, pull.Start(), official.ErrBlankSubType.Error())
	require.NoError(t, pull.Subscribe("T", all))
	require.NoError(t, pull.Start())
	polled(t, pull)
}

// polled fails unless pull is given a message within 30 s.
func polled(t *testing.T, pull rocketmq.PullConsumer) *primitive.MessageExt {
	t.Helper()
	request, err := pull.Poll(t.Context(), 30*time.Second)
	require.NoError(t, err)
	require.NotEmpty(t, request.GetMsgList())
	return request.GetMsgList()[0]
}

// TestAClientWhosePlaceIsTakenLeavesTheOtherOneAlone: clients that are given the same
// instance name share what is below, and a group of it has one consumer.
func TestAClientWhosePlaceIsTakenLeavesTheOtherOneAlone(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	got := make(chan struct{}, 10)
	join := func(t testing.TB) rocketmq.PushConsumer {
		co := rmqtest.Consumer(t, c, "G", consumer.WithInstance("same"), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
		assert.NoError(t, co.Subscribe("T", all, func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			got <- struct{}{}
			return consumer.ConsumeSuccess, nil
		}))
		return co
	}
	first := join(t)
	require.NoError(t, first.Start())
	fake(t, func(t *fakeT) { assert.ErrorIs(t.TB, join(t).Start(), official.ErrCreated) })
	p := rmqtest.Producer(t, c, producer.WithInstanceName("producers"))
	inner := fake(t, func(t *fakeT) { rmqtest.Producer(t, c, producer.WithInstanceName("producers")) })
	assert.Contains(t, inner.fatal, official.ErrProducerCreated.Error())
	send := func() {
		_, err := p.SendSync(t.Context(), primitive.NewMessage("T", []byte("x")))
		require.NoError(t, err)
		<-got
	}
	send()

	second := join(t)
	require.ErrorIs(t, second.Start(), official.ErrCreated)
	require.NoError(t, first.Shutdown())
	require.NoError(t, second.Start(), "its place is free")
	send()
}

func TestATopicThatTheConsumerHasNotIsNotAskedFor(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	_, err := rmqtest.Producer(t, c).SendSync(t.Context(), primitive.NewMessage("T", []byte("x")))
	require.NoError(t, err)
	pull := rmqtest.PullConsumer(t, c, "P", consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, pull.Subscribe("T", all))
	require.ErrorIs(t, pull.Assign("missing", nil), official.ErrSubscriptionType)
	require.NoError(t, pull.Start())
	polled(t, pull)

	assigned := rmqtest.PullConsumer(t, c, "A")
	require.NoError(t, assigned.Assign("missing", nil))
	require.ErrorIs(t, assigned.Subscribe("T", all), official.ErrSubscriptionType)
	require.ErrorIs(t, assigned.Unsubscribe("missing"), official.ErrSubscriptionType)
	require.ErrorIs(t, assigned.Start(), pocketmq.ErrNoRoute)

	co := rmqtest.Consumer(t, c, "G")
	require.NoError(t, co.Subscribe("T", all, accept))
	require.NoError(t, co.Subscribe("missing", all, accept))
	require.NoError(t, co.Unsubscribe("missing"))
	require.NoError(t, co.Start())
	require.NoError(t, co.Shutdown())
	require.ErrorIs(t, co.Subscribe("T", all, accept), official.ErrStartTopic)
}

func TestSeeksBeforeTheStartAreKeptUntilAStartThatWorks(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	p := rmqtest.Producer(t, c)
	var queue *primitive.MessageQueue
	for _, body := range []string{"a", "b", "c"} {
		sent, err := p.SendSync(t.Context(), primitive.NewMessage("T", []byte(body)))
		require.NoError(t, err)
		queue = sent.MessageQueue
	}
	pull := rmqtest.PullConsumer(t, c, "P")
	pull.SeekOffset(queue, 1)
	require.ErrorContains(t, pull.Start(), official.ErrBlankSubType.Error())
	require.NoError(t, pull.Assign("T", []*primitive.MessageQueue{queue}))
	require.NoError(t, pull.Start())
	assert.Equal(t, "b", string(polled(t, pull).Body))
}

// TestNamespacesAreTheOfficialOnes: a push consumer puts its namespace before
// whatever it is told, a pull consumer before what lacks it.
func TestNamespacesAreTheOfficialOnes(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"ns1%orders": 1}})
	co := rmqtest.Consumer(t, c, "G", consumer.WithNamespace("ns1"))
	require.NoError(t, co.Subscribe("ns1%orders", all, accept))
	err := co.Start()
	require.ErrorIs(t, err, pocketmq.ErrNoRoute)
	assert.ErrorContains(t, err, `"ns1%ns1%orders"`)
	assert.ErrorContains(t, err, `subscribe to "orders"`)
	require.NoError(t, co.Unsubscribe("ns1%orders"))
	require.NoError(t, co.Subscribe("orders", all, accept))
	require.NoError(t, co.Start())

	pull := rmqtest.PullConsumer(t, c, "ns1%P", consumer.WithNamespace("ns1"))
	require.NoError(t, pull.Subscribe("ns1%orders", all))
	require.NoError(t, pull.Start())
	for _, group := range []string{"ns1%G", "ns1%P"} {
		members, err := c.Admin().Members(t.Context(), group)
		require.NoError(t, err)
		assert.Len(t, members, 1, group)
	}
}

func TestShutdownMayBeCalledWhileAConsumerStarts(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
	for range 20 {
		co := rmqtest.Consumer(t, c, "G")
		require.NoError(t, co.Subscribe("T", all, accept))
		begins, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			close(begins)
			_ = co.Start() // either of them is first
		}()
		<-begins
		assert.NoError(t, co.Shutdown())
		<-ended
		require.ErrorContains(t, co.Start(), "make another one")
	}
}
