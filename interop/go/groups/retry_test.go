package groups_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestFailedMessagesComeAgain, at the delay levels that handlers ask for, until
// they succeed.
func TestFailedMessagesComeAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in := newInbox()
	const times = 5
	fails := func(ctx context.Context, a arrival) consumer.ConsumeResult {
		concurrent, ok := primitive.GetConcurrentlyCtx(ctx)
		assert.True(t, ok)
		concurrent.DelayLevelWhenNextConsume = 1
		if a.tries < times {
			return consumer.ConsumeRetryLater
		}
		return consumer.ConsumeSuccess
	}
	push(t, c, "G", "T", everything, in.official("a", fails))
	bodies := numbered("m", 20)
	ids := make(map[string]string)
	p := rmqtest.Producer(t, c)
	for _, body := range bodies {
		m := primitive.NewMessage("T", []byte(body)).WithTag("tag").WithKeys([]string{"key-" + body})
		m.WithProperty("colour", "blau und grün")
		r, err := p.SendSync(t.Context(), m)
		require.NoError(t, err)
		ids[body] = r.MsgID
	}
	in.wait(t, "every delivery", func(list []arrival, _ map[string]int) bool { return len(list) >= len(bodies)*(times+1) })
	tries := make(map[string]int)
	for _, a := range in.arrivals() {
		assert.Equal(t, tries[a.body], a.tries, "failed deliveries of %s so far", a.body)
		tries[a.body]++
		assert.Equal(t, "T", a.official.Topic)
		assert.Equal(t, "tag", a.official.GetTags())
		assert.Equal(t, "key-"+a.body, a.official.GetKeys())
		assert.Equal(t, "blau und grün", a.official.GetProperty("colour"))
		assert.Equal(t, ids[a.body], a.official.MsgId)
	}
	waitGroup(t, c, "G", "nothing left of the retry topic", func(st pocketmq.GroupStatus) bool { return true })
	summary(t, "consumer/retry/concurrent", "%d messages failed %d times each and succeeded then, lost 0", len(bodies), times)
}

// TestDeadLettersAreSeenByEverybody: by a consumer of ours, and by an Admin.
func TestDeadLettersAreSeenByEverybody(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2}, "broker-a", "broker-b")
	in, dead := newInbox(), newInbox()
	const max = 2
	fails := func(_ context.Context, a arrival) consumer.ConsumeResult {
		if a.official.GetTags() == "bad" {
			return consumer.ConsumeRetryLater // levels 3 and 4
		}
		return consumer.ConsumeSuccess
	}
	push(t, c, "G", "T", everything, in.official("a", fails), consumer.WithMaxReconsumeTimes(max))
	deadLetters(t, c, "G", dead)
	p := rmqtest.Producer(t, c)
	ids := make(map[string]string)
	bad := numbered("bad", 8)
	for i, body := range bad {
		r, err := p.SendSync(t.Context(), primitive.NewMessage("T", []byte(body)).WithTag("bad"))
		require.NoError(t, err)
		ids[body] = r.MsgID
		sendAll(t, p, "T", []string{fmt.Sprint("good", i)})
	}
	dead.waitBodies(t, bad)
	in.waitBodies(t, numbered("good", len(bad)))
	for _, a := range dead.arrivals() {
		assert.Equal(t, ids[a.body], a.ours.MsgID)
		assert.Equal(t, max+1, a.tries)
		assert.Equal(t, "T", a.ours.Property("RETRY_TOPIC"), "where it was sent to")
		assert.Equal(t, max+1, in.count(a.body), "attempts of %s", a.body)
	}
	assert.Len(t, dead.arrivals(), len(bad))
	topics, err := c.Admin().Topics(t.Context())
	require.NoError(t, err)
	assert.Contains(t, topics, "%DLQ%G")
	found := 0
	stats, err := c.Admin().TopicStats(t.Context(), "%DLQ%G")
	require.NoError(t, err)
	for _, q := range stats {
		found += int(q.MaxOffset - q.MinOffset)
	}
	assert.Equal(t, len(bad), found)
	for body, id := range ids {
		m, err := c.Admin().MessageByUniqueKey(t.Context(), "%DLQ%G", id)
		if assert.NoError(t, err) {
			assert.Equal(t, body, string(m.Body))
		}
	}
	summary(t, "consumer/retry and dead letters", "%d of %d failed %d times, %d dead letters, lost 0", len(bad), 2*len(bad), max+1, found)
}

// TestDelayedMessagesComeLater: the levels are the cluster's, a hundredth of the
// usual ones here.
func TestDelayedMessagesComeLater(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in := newInbox()
	early := make(chan string, 100)
	push(t, c, "G", "T", everything, in.official("a", func(_ context.Context, a arrival) consumer.ConsumeResult {
		if level := 100 * time.Millisecond; time.Since(time.UnixMilli(a.official.BornTimestamp)) < level-time.Millisecond {
			early <- a.body
		}
		return consumer.ConsumeSuccess
	}))
	p := rmqtest.Producer(t, c)
	bodies := numbered("m", 20)
	for _, body := range bodies {
		_, err := p.SendSync(t.Context(), primitive.NewMessage("T", []byte(body)).WithDelayTimeLevel(3))
		require.NoError(t, err)
	}
	in.waitBodies(t, bodies)
	assert.Empty(t, early)
	assert.Zero(t, in.repeats())
	summary(t, "consumer/delay", "%d delivered at level 3, lost 0, none too early", len(bodies))
}
