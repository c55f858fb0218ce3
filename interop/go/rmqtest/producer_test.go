package rmqtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
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
