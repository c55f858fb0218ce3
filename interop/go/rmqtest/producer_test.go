package rmqtest_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	official "github.com/apache/rocketmq-client-go/v2/errors"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestWhatWasSentOnewayBeforeShutdownArrives: without the package some of it is
// lost, nearly always when it is as much as here.
func TestWhatWasSentOnewayBeforeShutdownArrives(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	topic := rmqtest.Topic(t, c, 2)
	p := rmqtest.Producer(t, c)
	const n = 5000
	body := make([]byte, 2000)
	for range n {
		require.NoError(t, p.SendOneWay(t.Context(), primitive.NewMessage(topic, body)))
	}
	require.NoError(t, p.Shutdown())
	stored := func() (sum int64) {
		stats, err := c.Admin().TopicStats(t.Context(), topic)
		assert.NoError(t, err)
		for _, s := range stats {
			sum += s.MaxOffset
		}
		return sum
	}
	assert.Eventually(t, func() bool { return stored() == n }, 10*time.Second, 5*time.Millisecond)
	fmt.Printf("interop: kit/oneway: %d sent right before Shutdown, %d stored\n", n, stored())
}

func TestShutdownOfAProducerDoesNotMindBrokersThatAreGone(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 1)
	var p interface{ Shutdown() error }
	inner := fake(t, func(t *fakeT) {
		official := rmqtest.Producer(t, c)
		assert.NoError(t.TB, official.SendOneWay(t.Context(), primitive.NewMessage(topic, []byte("x"))))
		assert.NoError(t.TB, c.Kill("broker-a", 0))
		p = official
		assert.NoError(t.TB, p.Shutdown())
	})
	assert.False(t, inner.failed)
	require.NotEmpty(t, inner.logs)
	assert.Contains(t, inner.logs[0], "oneway to broker broker-a may be lost")
	assert.NoError(t, p.Shutdown(), "again")
}

// TestTheCallbacksOfAsynchronousSendsHaveReturnedWhenTheTestEnds: without the package
// most of them are called with an error of the connection, and some never.
func TestTheCallbacksOfAsynchronousSendsHaveReturnedWhenTheTestEnds(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	const n = 1000
	var sent, failed atomic.Int64
	inner := fake(t, func(t *fakeT) {
		topic := rmqtest.Topic(t, c, 1)
		p := rmqtest.Producer(t, c)
		for range n {
			assert.NoError(t.TB, p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
				if err != nil {
					failed.Add(1)
				} else {
					sent.Add(1)
				}
			}, primitive.NewMessage(topic, []byte("x"))))
		}
	})
	assert.EqualValues(t, n, sent.Load())
	assert.Zero(t, failed.Load())
	assert.False(t, inner.failed, "%q", inner.logs)
	fmt.Printf("interop: kit/asynchronous: %d sent right before the end of the test, %d answered\n", n, sent.Load())
}

func TestSendsThatAreRefusedAreNotWaitedFor(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	p := rmqtest.Producer(t, c)
	never := func(context.Context, *primitive.SendResult, error) { assert.Fail(t, "called") }
	require.Error(t, p.SendAsync(t.Context(), never), "no message")
	require.Error(t, p.SendAsync(t.Context(), never, primitive.NewMessage("", []byte("x"))))
	require.NoError(t, p.Shutdown())
	require.ErrorIs(t, p.SendAsync(t.Context(), never, primitive.NewMessage("T", []byte("x"))), official.ErrNotRunning)
}

func TestShutdownTellsOfCallbacksThatDoNotReturnAndLetsNoneBeginAfterwards(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 1)
	release, called := make(chan struct{}), make(chan struct{}, 10)
	var down error
	inner := fake(t, func(t *fakeT) {
		p := rmqtest.Producer(t, c)
		rmqtest.WaitForCallbacks(p, time.Millisecond)
		running := make(chan struct{})
		assert.NoError(t.TB, p.SendAsync(t.Context(), func(context.Context, *primitive.SendResult, error) {
			close(running)
			<-release
		}, primitive.NewMessage(topic, []byte("x"))))
		<-running
		assert.NoError(t.TB, c.Pause("broker-a", 0))
		assert.NoError(t.TB, p.SendAsync(t.Context(), func(context.Context, *primitive.SendResult, error) {
			called <- struct{}{}
		}, primitive.NewMessage(topic, []byte("x"))))
		down = p.Shutdown()
		assert.NoError(t.TB, c.Resume("broker-a", 0))
	})
	close(release)
	require.ErrorContains(t, down, "1 asynchronous sends have no answer and 1 callbacks have not returned")
	assert.True(t, inner.failed, "its clean-up says so too")
	require.NoError(t, rmqtest.Producer(t, c).Shutdown()) // a round trip, at least
	assert.Empty(t, called)
}

func TestACallbackIsToldWhatItsSendCameTo(t *testing.T) {
	c := run(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 1)
	told := make(chan error, 1)
	inner := fake(t, func(t *fakeT) {
		p := rmqtest.Producer(t, c, producer.WithSendMsgTimeout(100*time.Millisecond))
		_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("x")))
		assert.NoError(t.TB, err)
		assert.NoError(t.TB, c.Pause("broker-a", 0))
		assert.NoError(t.TB, p.SendAsync(t.Context(), func(_ context.Context, _ *primitive.SendResult, err error) {
			told <- err
		}, primitive.NewMessage(topic, []byte("x"))))
	})
	require.ErrorIs(t, <-told, official.ErrRequestTimeout)
	assert.False(t, inner.failed, "%q: the test knows", inner.logs)
	require.NoError(t, c.Resume("broker-a", 0))
}
