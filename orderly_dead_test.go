package pocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

func deadLetters(t testing.TB, c *pocketmq.Cluster, group string) []string {
	t.Helper()
	if _, err := c.Admin().Route(t.Context(), "%DLQ%"+group); err != nil {
		return nil
	}
	return bodiesOf(queueContent(t, c, queue("%DLQ%"+group, "broker-a", 0)))
}

func TestAnOrderlyMessageIsADeadLetterAfterItsLastAttemptThenComesTheNext(t *testing.T) {
	for _, tc := range []struct {
		max, attempts, batch int
	}{{pocketmq.NoRetries, 1, 1}, {1, 2, 1}, {3, 4, 1}, {2, 3, 3}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				q := queue("T", "broker-a", 0)
				sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "A", "B", "C")
				s := sequence{fail: failing("A", 100)}
				begin := time.Now()
				co := consumer(t, c, pocketmq.ConsumerConfig{
					Group: "g", Subscriptions: all("T"), Orderly: true, BatchSize: tc.batch, MaxReconsume: tc.max,
					From: pocketmq.FromFirstOffset, Handler: s.handler("1"),
				})
				time.Sleep(30 * time.Second)
				calls := s.all()
				require.GreaterOrEqual(t, len(calls), tc.attempts)
				for i, call := range calls[:tc.attempts] {
					assert.Equal(t, begin.Add(time.Duration(i)*time.Second), call.at)
					assert.Equal(t, "A", call.bodies[0])
					assert.Equal(t, i, call.times)
				}
				if tc.batch == 1 {
					assert.Equal(t, []string{"A"}, deadLetters(t, c, "g"))
					require.Len(t, calls, tc.attempts+2)
					assert.Equal(t, calls[tc.attempts-1].at, calls[tc.attempts].at, "the next one at once")
					assert.Equal(t, int64(1), co.Status().SentBack)
				} else { // the whole batch failed as often
					assert.Equal(t, []string{"A", "B", "C"}, deadLetters(t, c, "g"))
					assert.Len(t, calls, tc.attempts)
				}
				assert.Equal(t, int64(3), committed(t, c, "g", q))
			})
		})
	}
}

func TestOrderlyHandlersSayWhatIsDoneAndWhatIsDead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		q := queue("T", "broker-a", 0)
		sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "0", "1", "2", "3", "4", "5")
		var mu sync.Mutex // guards calls
		var calls [][]string
		seen := func() [][]string { mu.Lock(); defer mu.Unlock(); return slices.Clone(calls) }
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), Orderly: true, BatchSize: 3, From: pocketmq.FromFirstOffset,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				var bodies []string
				for _, m := range msgs {
					bodies = append(bodies, string(m.Body))
				}
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, bodies)
				switch len(calls) {
				case 1:
					return pocketmq.Done(2, errFailed)
				case 2:
					return pocketmq.Done(1, pocketmq.DeadLetter(errFailed))
				case 3:
					return pocketmq.RetryAfter(errFailed, 9)
				}
				return nil
			},
		})
		begin := time.Now()
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, [][]string{{"0", "1", "2"}}, seen())
		sleepUntil(begin.Add(time.Second))
		assert.Equal(t, [][]string{{"0", "1", "2"}, {"2", "3", "4"}, {"5"}}, seen(), "2 was consumed, 3 and 4 are dead, 5 follows at once")
		assert.Equal(t, []string{"3", "4"}, deadLetters(t, c, "g"))
		sleepUntil(begin.Add(2 * time.Second))
		assert.Len(t, seen(), 4, "the level of RetryAfter does not count")
		assert.Equal(t, int64(6), committedSoon(t, c, "g", q))
	})
}

func TestADeadLetterThatNoBrokerTakesStaysAndHoldsItsQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		q := queue("T", "broker-a", 0)
		sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "A", "B")
		refuse := []*pocketmq.FaultHandle{
			c.Inject(pocketmq.Fault{Code: protocol.CodeConsumerSendMsgBack, Err: pocketmq.ErrBrokerBusy}),
			c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage, Err: pocketmq.ErrBrokerBusy}),
		}
		s := sequence{fail: failing("A", 100)}
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), Orderly: true, MaxReconsume: 1, From: pocketmq.FromFirstOffset, Handler: s.handler("1"),
		})
		time.Sleep(10500 * time.Millisecond)
		assert.Equal(t, []string{"A", "A"}, s.bodies(), "no handler gets it a third time, nothing passes it")
		assert.Equal(t, 10, refuse[0].Hits(), "at 1 s, then every second")
		assert.LessOrEqual(t, committed(t, c, "g", q), int64(0))
		for _, h := range refuse {
			h.Remove()
		}
		time.Sleep(time.Second)
		assert.Equal(t, []string{"A", "A", "B"}, s.bodies())
		assert.Equal(t, []string{"A"}, deadLetters(t, c, "g"))
		assert.Equal(t, int64(2), committedSoon(t, c, "g", q))
	})
}
