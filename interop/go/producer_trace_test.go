package interop_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestProducerTrace: each synchronous send leaves a record of itself in the topic
// for traces.
func TestProducerTrace(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything)
	traces := consumeOurs(t, c, rmqtest.TraceTopic, pocketmq.Filter{})
	p := rmqtest.Producer(t, c, producer.WithTrace(rmqtest.Trace()))
	const n = 20
	sent := sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.WithKeys([]string{fmt.Sprint("order-", i)}) })
	box.wait(t, n)

	// A trace message holds several records, and its keys are their ids.
	records := func() (all []string) {
		for _, m := range traces.all() {
			all = append(all, strings.Split(strings.TrimSuffix(m.body, "\x02"), "\x02")...)
		}
		return all
	}
	for k := 1; len(records()) < n; k++ {
		traces.wait(t, k)
	}
	assert.Len(t, records(), n)
	fields := make(map[string][]string)
	for _, r := range records() {
		f := strings.Split(r, "\x01")
		fields[f[5]] = f
	}
	for i, r := range sent {
		f := fields[r.MsgID]
		if assert.NotNil(t, f, "a trace of %s", r.MsgID) {
			assert.Equal(t, "Pub", f[0])
			assert.Equal(t, topic, f[4])
			assert.Equal(t, fmt.Sprint("order-", i), f[7])
			assert.Equal(t, r.OffsetMsgID, f[12])
		}
	}
	found, err := c.Admin().MessagesByKey(t.Context(), rmqtest.TraceTopic, sent[3].MsgID, timeZero, timeZero, 10)
	assert.NoError(t, err)
	assert.NotEmpty(t, found, "a trace is found by the id of its message")
	report(t, "producer/trace", n, box.distinct(), fmt.Sprintf("%d traces", len(records())))
}
