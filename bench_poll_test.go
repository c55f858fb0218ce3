package pocketmq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// BenchmarkPollBesideConsumer compares one goroutine that polls with the handlers
// of a push consumer, over the same messages in 4 queues: msgs/s of the pull
// consumer, raw_msgs/s of the other.
func BenchmarkPollBesideConsumer(b *testing.B) {
	for _, batch := range []int{1, 10, 32} {
		b.Run(fmt.Sprint("batches of ", batch), func(b *testing.B) {
			const messages = 200 * benchBatch
			c := run(b, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, Dir: b.TempDir()})
			p := producer(b, c, pocketmq.ProducerConfig{})
			ms := benchMessages(benchBody(128))
			for range messages / benchBatch {
				_, err := p.SendBatch(b.Context(), ms)
				require.NoError(b, err)
			}
			round := 0
			poll := func() (int, time.Duration) {
				round++
				begin := time.Now()
				co := puller(b, c, pocketmq.PullConsumerConfig{Group: fmt.Sprint("g", round), Subscriptions: all("T"), PullBatchSize: batch, From: pocketmq.FromFirstOffset})
				for got := 0; got < messages; {
					msgs, err := co.Poll(b.Context())
					require.NoError(b, err)
					got += len(msgs)
				}
				took := time.Since(begin)
				require.NoError(b, co.Close())
				return messages, took
			}
			push := func() (int, time.Duration) {
				round++
				got := newCounter()
				begin := time.Now()
				co := consumer(b, c, pocketmq.ConsumerConfig{
					Group: fmt.Sprint("g", round), Subscriptions: all("T"), BatchSize: batch, PullBatchSize: batch, From: pocketmq.FromFirstOffset,
					Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error { got.add(len(msgs)); return nil },
				})
				got.wait(messages)
				took := time.Since(begin)
				require.NoError(b, co.Close())
				return messages, took
			}
			beside(b, poll, push)
		})
	}
}
