package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// sequence records what handlers get, in order, and that no queue has two at
// once.
type sequence struct {
	mu      sync.Mutex
	calls   []call
	running map[pocketmq.MessageQueue]string
	overlap []string
	fail    func(m *pocketmq.MessageExt) error // nil: nothing fails
	work    time.Duration
}

type call struct {
	at, end time.Time
	who     string
	queue   pocketmq.MessageQueue
	bodies  []string
	times   int // ReconsumeTimes of the first message
}

func (s *sequence) handler(who string) func(context.Context, []*pocketmq.MessageExt) error {
	return func(ctx context.Context, msgs []*pocketmq.MessageExt) (err error) {
		q := msgs[0].Queue
		c := call{at: time.Now(), who: who, queue: q, times: msgs[0].ReconsumeTimes}
		for _, m := range msgs {
			c.bodies = append(c.bodies, string(m.Body))
		}
		s.mu.Lock()
		if s.running == nil {
			s.running = make(map[pocketmq.MessageQueue]string)
		}
		if other, ok := s.running[q]; ok {
			s.overlap = append(s.overlap, fmt.Sprintf("%v at %v: %s while %s", q, time.Now(), who, other))
		}
		s.running[q] = who
		i := len(s.calls)
		s.calls = append(s.calls, c)
		work, fail := s.work, s.fail
		s.mu.Unlock()
		if work > 0 {
			select {
			case <-time.After(work):
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[q] == who {
			delete(s.running, q)
		}
		s.calls[i].end = time.Now()
		for _, m := range msgs {
			if fail != nil && err == nil {
				err = fail(m)
			}
		}
		return err
	}
}

func (s *sequence) all() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// bodies are the bodies delivered, in order.
func (s *sequence) bodies() []string {
	var out []string
	for _, c := range s.all() {
		out = append(out, c.bodies...)
	}
	return out
}

func (s *sequence) overlaps() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.overlap...)
}

var errFailed = errors.New("not yet")

// failing fails the first n deliveries of a body.
func failing(body string, n int) func(*pocketmq.MessageExt) error {
	return func(m *pocketmq.MessageExt) error {
		if string(m.Body) == body && n > 0 {
			n--
			return errFailed
		}
		return nil
	}
}

func sendAll(t testing.TB, p *pocketmq.Producer, q pocketmq.MessageQueue, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		_, err := p.SendTo(t.Context(), q, text(q.Topic, "%s", body))
		require.NoError(t, err)
	}
}

func committed(t testing.TB, c *pocketmq.Cluster, group string, q pocketmq.MessageQueue) int64 {
	t.Helper()
	g, ok := c.Broker(q.BrokerName, 0).Group(group)
	require.True(t, ok)
	for _, lag := range g.Queues {
		if lag.Queue == q {
			return lag.Committed
		}
	}
	return -1
}

func TestOL01_AFailedMessageStaysInPlaceUntilItSucceeds(t *testing.T) {
	for _, batch := range []int{1, 3} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				q := queue("T", "broker-a", 0)
				sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "A", "B", "C")
				s := sequence{fail: failing("A", 3)}
				begin := time.Now()
				consumer(t, c, pocketmq.ConsumerConfig{
					Group: "g", Subscriptions: all("T"), Orderly: true, BatchSize: batch, From: pocketmq.FromFirstOffset, Handler: s.handler("1"),
				})
				for attempt := range 4 {
					sleepUntil(begin.Add(time.Duration(attempt) * time.Second))
					if attempt < 3 {
						assert.LessOrEqual(t, committed(t, c, "g", q), int64(0), "the committed offset stays at A")
						calls := s.all()
						require.Len(t, calls, attempt+1)
						assert.Equal(t, attempt, calls[attempt].times)
						assert.Equal(t, begin.Add(time.Duration(attempt)*time.Second), calls[attempt].at)
					}
				}
				if batch == 1 {
					assert.Equal(t, []string{"A", "A", "A", "A", "B", "C"}, s.bodies())
				} else {
					assert.Equal(t, []string{"A", "B", "C", "A", "B", "C", "A", "B", "C", "A", "B", "C"}, s.bodies())
				}
				sleepUntil(begin.Add(6 * time.Second))
				assert.Equal(t, int64(3), committed(t, c, "g", q))
				assert.Empty(t, s.overlaps())
			})
		})
	}
}

func TestOL02_AStoppedOrderlyConsumerGivesItsQueuesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var s sequence
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset}
		cfg.Handler = s.handler("1")
		first := consumer(t, c, cfg)
		for id := range 4 {
			sendAll(t, p, queue("T", "broker-a", id), "x", "y")
		}
		synctest.Wait()
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.True(t, g.Orderly)
		require.Len(t, g.Locks, 4)
		assert.Equal(t, first.ClientID(), g.Locks[queue("T", "broker-a", 3)])

		require.NoError(t, first.Shutdown(t.Context()))
		g, _ = c.Broker("broker-a", 0).Group("g")
		assert.Empty(t, g.Locks)
		assert.False(t, g.Orderly)

		begin := time.Now()
		cfg.Handler = s.handler("2")
		consumer(t, c, cfg)
		for id := range 4 {
			sendAll(t, p, queue("T", "broker-a", id), "z")
		}
		synctest.Wait()
		assert.Equal(t, begin, time.Now())
		calls := s.all()
		assert.Len(t, calls, 12)
		for _, call := range calls[8:] {
			assert.Equal(t, "2", call.who)
			assert.Equal(t, []string{"z"}, call.bodies)
		}
	})
}
