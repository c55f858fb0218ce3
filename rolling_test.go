package pocketmq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// A group that elects is restarted member by member, its master among them, while it is
// used: no send fails or waits for long, and every message is consumed, in order where
// that was asked for.
func TestARollingRestartIsNoticedByNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		var mu sync.Mutex
		got := make(map[string][]string) // by group
		for _, group := range []string{"shared", "ordered"} {
			consumer(t, c, pocketmq.ConsumerConfig{
				Group: group, Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Orderly: group == "ordered",
				Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
					mu.Lock()
					defer mu.Unlock()
					for _, m := range msgs {
						got[group] = append(got[group], string(m.Body))
					}
					return nil
				},
			})
		}
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, Retries: 10})
		stop := make(chan struct{})
		ended := make(chan int)
		var longest time.Duration
		go func() {
			n := 0
			for ; ; n++ {
				select {
				case <-stop:
					ended <- n
					return
				case <-time.After(10 * time.Millisecond):
				}
				begun := time.Now()
				_, err := p.SendTo(context.Background(), queue("T", "broker-a", 0), text("T", "%d", n))
				if !assert.NoError(t, err) {
					ended <- n
					return
				}
				longest = max(longest, time.Since(begun))
			}
		}()
		for range 2 {
			for id := range int64(3) {
				time.Sleep(5 * time.Second)
				require.NoError(t, c.Broker("broker-a", id).Shutdown(t.Context()))
				time.Sleep(time.Second)
				require.NoError(t, c.Restart(t.Context(), "broker-a", id))
				inSync(t, c, 2)
			}
		}
		close(stop)
		n := <-ended
		time.Sleep(time.Minute)
		t.Logf("%d sends, the longest took %v", n, longest)
		assert.Less(t, longest, time.Second)
		want := counted(n)
		mu.Lock()
		defer mu.Unlock()
		for group, list := range got {
			var first []string // deliveries for the first time
			seen := make(map[string]bool)
			for _, body := range list {
				if !seen[body] {
					seen[body] = true
					first = append(first, body)
				}
			}
			t.Logf("%s: %d deliveries of %d messages", group, len(list), len(first))
			assert.ElementsMatch(t, want, first, group)
			if group == "ordered" {
				assert.Equal(t, want, first)
			}
		}
	})
}
