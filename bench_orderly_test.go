package pocketmq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// A new group consumes what lies in eight queues of one broker, in order and
// concurrently: messages a second from its start to the last delivery. Rounds
// alternate; "raw" in the figures is the concurrent one.
func BenchmarkOrderlyBesideConcurrent(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint("batches of ", batch), func(b *testing.B) {
			const queues, messages = 8, 200 * benchBatch
			c := run(b, pocketmq.ClusterConfig{Topics: map[string]int{"T": queues}, Dir: b.TempDir()})
			p := producer(b, c, pocketmq.ProducerConfig{})
			ms := benchMessages(benchBody(128))
			for range messages / benchBatch {
				_, err := p.SendBatch(b.Context(), ms)
				require.NoError(b, err)
			}
			round := 0
			consume := func(orderly bool) func() (int, time.Duration) {
				return func() (int, time.Duration) {
					round++
					got := newCounter()
					begin := time.Now()
					co := consumer(b, c, pocketmq.ConsumerConfig{
						Group: fmt.Sprint("g", round), Subscriptions: all("T"), BatchSize: batch, Orderly: orderly, From: pocketmq.FromFirstOffset,
						Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error { got.add(len(msgs)); return nil },
					})
					got.wait(messages)
					took := time.Since(begin)
					require.NoError(b, co.Close())
					return messages, took
				}
			}
			beside(b, consume(true), consume(false))
		})
	}
}
