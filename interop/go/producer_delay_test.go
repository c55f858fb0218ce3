package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
)

var timeZero time.Time

func TestProducerDelay(t *testing.T) {
	t.Parallel()
	timings := mqtest.Fast() // levels are at 1/100
	c := start(t, pocketmq.ClusterConfig{Timings: timings})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	p := rmqtest.Producer(t, c)
	const n = 60
	begun := time.Now()
	sent := sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.WithDelayTimeLevel(1 + i%4) })
	messages := byID(box.wait(t, n))
	slowest := time.Duration(0)
	for i, r := range sent {
		m := messages[r.MsgID]
		level := 1 + i%4
		assert.Equal(t, fmt.Sprint(level), m.property("DELAY"))
		assert.Equal(t, topic, m.topic)
		late := m.at.Sub(begun) - timings.DelayLevels[level-1]
		assert.GreaterOrEqual(t, late, time.Duration(0), "level %d is %v", level, timings.DelayLevels[level-1])
		slowest = max(slowest, late)
	}
	report(t, "producer/delay", n, box.distinct(), fmt.Sprintf("none early, the last one %v after the first send and its level", slowest.Round(time.Millisecond)))
}

// TestProducerDelayMs: a delay of any length is refused by name, and not
// delivered at once.
func TestProducerDelayMs(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	p := rmqtest.Producer(t, c, producer.WithRetry(0))
	m := primitive.NewMessage(topic, []byte("later")).WithDelayTimestamp(time.Now().Add(time.Second))
	_, err := p.SendSync(t.Context(), m)
	require.ErrorContains(t, err, "TIMER_DELIVER_MS")
	stats, err := c.Admin().TopicStats(t.Context(), topic)
	require.NoError(t, err)
	for q, s := range stats {
		assert.Zero(t, s.MaxOffset, q)
	}
	done("producer/delayms", "refused, nothing stored")
}
