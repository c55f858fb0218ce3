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
	"github.com/pocketmq/pocketmq/protocol"
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

// vanish ends a consumer as a crash of its process would: brokers see its
// connections break, and hear no more of it.
func vanish(t testing.TB, c *pocketmq.Cluster, co *pocketmq.Consumer) {
	t.Helper()
	links(t, c).Cut(co.ClientID(), "*")
	assert.NoError(t, co.Close())
	links(t, c).HealAll()
}

func TestOL01_AfterACrashTheFailedMessageIsFirstAgain(t *testing.T) {
	for _, batch := range []int{1, 3} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
				q := queue("T", "broker-a", 0)
				sendAll(t, producer(t, c, pocketmq.ProducerConfig{}), q, "A", "B", "C")
				s := sequence{fail: failing("A", 3)}
				cfg := pocketmq.ConsumerConfig{
					Group: "g", InstanceName: "one", Subscriptions: all("T"), Orderly: true, BatchSize: batch,
					From: pocketmq.FromFirstOffset, Handler: s.handler("1"),
				}
				first := consumer(t, c, cfg)
				time.Sleep(1500 * time.Millisecond)
				require.Len(t, s.all(), 2)
				vanish(t, c, first)
				time.Sleep(10 * time.Second)
				require.Len(t, s.all(), 2)

				cfg.Handler = s.handler("2")
				consumer(t, c, cfg) // the same client: its lock is there still
				time.Sleep(10 * time.Second)
				calls := s.all()
				assert.Equal(t, "A", calls[2].bodies[0])
				assert.Zero(t, calls[2].times, "attempts are counted per consumer life")
				bodies := s.bodies()
				assert.Equal(t, []string{"A", "B", "C"}, bodies[len(bodies)-3:])
				assert.Equal(t, int64(3), committed(t, c, "g", q))
				assert.Empty(t, s.overlaps())
			})
		})
	}
}

func TestOL02_TheLocksOfADeadMemberExpire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var s sequence
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset}
		cfg.Handler = s.handler("1")
		first := consumer(t, c, cfg)
		begin := time.Now()
		cfg.Handler = s.handler("2")
		sleepUntil(begin.Add(45 * time.Second)) // the last renewal was at 40
		vanish(t, c, first)
		second := consumer(t, c, cfg)
		assert.Equal(t, begin.Add(45*time.Second), time.Now(), "Start does not wait for locks")
		for id := range 4 {
			sendAll(t, p, queue("T", "broker-a", id), "x")
		}
		sleepUntil(begin.Add(100 * time.Second))
		assert.Empty(t, s.all(), "60 s old is not older than 60 s")
		assert.Empty(t, second.Assignment())
		sleepUntil(begin.Add(101 * time.Second))
		assert.Len(t, s.all(), 4)
		assert.Len(t, second.Assignment(), 4)
	})
}

func TestOL02_ARevokedQueueIsUnlockedWhenItsHandlerHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		s := sequence{work: 30 * time.Second}
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset}
		cfg.Handler = s.handler("1")
		first := consumer(t, c, cfg)
		for id := range 2 {
			sendAll(t, p, queue("T", "broker-a", id), "x", "y")
		}
		begin := time.Now()
		time.Sleep(5 * time.Second)
		cfg.Handler = s.handler("2")
		second := consumer(t, c, cfg)
		synctest.Wait()
		assert.Len(t, first.Assignment(), 1)
		assert.Empty(t, second.Assignment(), "the handler of the other member runs")
		moved := queue("T", "broker-a", 0)
		if first.Assignment()[0] == moved {
			moved = queue("T", "broker-a", 1)
		}
		sleepUntil(begin.Add(30*time.Second - 1))
		assert.Len(t, s.all(), 2)
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Equal(t, first.ClientID(), g.Locks[moved], "renewed while the handler runs")

		sleepUntil(begin.Add(31 * time.Second))
		assert.Equal(t, []pocketmq.MessageQueue{moved}, second.Assignment(), "one RebalanceRetry later at most")
		assert.Equal(t, int64(1), committed(t, c, "g", moved), "what the handler finished counts")
		time.Sleep(2 * time.Minute)
		var of []string
		for _, call := range s.all() {
			if call.queue == moved {
				of = append(of, call.who+call.bodies[0])
			}
		}
		assert.Equal(t, []string{"1x", "2y"}, of, "nothing twice, nothing skipped")
		assert.Empty(t, s.overlaps())
	})
}

func TestOL02_ShutdownKeepsAQueueLockedWhileItsHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		s := sequence{work: 3 * time.Minute}
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset}
		cfg.Handler = s.handler("1")
		first := consumer(t, c, cfg)
		sendAll(t, p, queue("T", "broker-a", 0), "x", "y")
		cfg.Handler = s.handler("2")
		begin := time.Now()
		time.Sleep(time.Second)
		second := consumer(t, c, cfg)
		assert.Empty(t, second.Assignment())
		done := make(chan error)
		go func() { done <- first.Shutdown(context.Background()) }()
		sleepUntil(begin.Add(3*time.Minute - 1))
		assert.Len(t, s.all(), 1, "the other one does not get it, 60 s or not")
		assert.NoError(t, <-done)
		sleepUntil(begin.Add(3*time.Minute + time.Second))
		calls := s.all()
		require.Len(t, calls, 2)
		assert.Equal(t, []string{"y"}, calls[1].bodies)
		assert.Equal(t, "2", calls[1].who)
		assert.Empty(t, s.overlaps())
	})
}

func TestOL02_CloseDoesNotUnlockAQueueWhoseHandlerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		stuck := make(chan struct{})
		first := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset, CloseTimeout: time.Second,
			Handler: func(context.Context, []*pocketmq.MessageExt) error { <-stuck; return nil },
		})
		q := queue("T", "broker-a", 1)
		sendAll(t, p, q, "x")
		synctest.Wait()
		assert.ErrorIs(t, first.Close(), pocketmq.ErrHandlersRunning)
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Equal(t, map[pocketmq.MessageQueue]string{q: first.ClientID()}, g.Locks)
		close(stuck)
		assert.NoError(t, first.Close())
	})
}

func TestOL03_RenewedLocksNeverPauseAndARefusedOneStopsBeforeTheNextMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Timings: pocketmq.Timings{
			LockExpire: time.Second, LockClientLife: 300 * time.Millisecond, LockRenew: 100 * time.Millisecond,
		}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		s := sequence{work: 50 * time.Millisecond}
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset, Handler: s.handler("1")})
		begin := time.Now()
		for i := range 50 {
			sendAll(t, p, q, fmt.Sprint(i))
		}
		sleepUntil(begin.Add(1500*time.Millisecond - 1))
		calls := s.all()
		require.Len(t, calls, 30)
		for i := 1; i < len(calls); i++ {
			assert.Less(t, calls[i].at.Sub(calls[i-1].at), 2*50*time.Millisecond, "a pause before message %d", i)
		}

		// Somebody takes the lock away. The renewals come at multiples of 100 ms.
		conn := dial(t, c, "broker-a")
		unlock(t, conn, "g", co.ClientID(), q)
		require.Len(t, lock(t, conn, "g", "thief", q), 1)
		sleepUntil(begin.Add(1500 * time.Millisecond))
		stolen := len(s.all())
		assert.LessOrEqual(t, stolen, 31)
		for range 20 { // the thief renews it
			time.Sleep(100 * time.Millisecond)
			require.Len(t, lock(t, conn, "g", "thief", q), 1)
		}
		assert.Len(t, s.all(), stolen, "nothing starts without the lock")

		// The thief commits what it has done, as a member would, and lets go.
		commitAt(t, conn, "g", q, 40)
		unlock(t, conn, "g", "thief", q)
		time.Sleep(3 * time.Second)
		bodies := s.bodies()
		assert.Equal(t, []string{"40", "41"}, bodies[stolen:stolen+2], "it goes on where the other one ended")
		assert.Equal(t, "49", bodies[len(bodies)-1])
		assert.Equal(t, int64(50), committedSoon(t, c, "g", q))
	})
}

func commitAt(t testing.TB, conn protocol.BrokerConn, group string, q pocketmq.MessageQueue, offset int64) {
	t.Helper()
	_, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: group, Topic: q.Topic, QueueID: q.QueueID, Offset: offset})
	require.NoError(t, err)
}

// committedSoon is committed after the next commits.
func committedSoon(t testing.TB, c *pocketmq.Cluster, group string, q pocketmq.MessageQueue) int64 {
	t.Helper()
	time.Sleep(5 * time.Second)
	synctest.Wait()
	return committed(t, c, group, q)
}

func TestOrderlyStartsNoHandlerOnALockOfALostBroker(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *pocketmq.Cluster, *pocketmq.Consumer){
		"broker restarted": func(t *testing.T, c *pocketmq.Cluster, _ *pocketmq.Consumer) {
			require.NoError(t, c.Kill("broker-a", 0))
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		},
		"connection lost": func(t *testing.T, c *pocketmq.Cluster, co *pocketmq.Consumer) {
			links(t, c).Cut("broker-a/0", co.ClientID())
			links(t, c).HealAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
				p := producer(t, c, pocketmq.ProducerConfig{})
				q := queue("T", "broker-a", 0)
				s := sequence{work: time.Second}
				co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset, Handler: s.handler("1")})
				begin := time.Now()
				sendAll(t, p, q, "0", "1", "2", "3", "4")
				sleepUntil(begin.Add(2500 * time.Millisecond))
				require.Len(t, s.all(), 3)

				lose(t, c, co)
				// Another member is faster.
				conn := dial(t, c, "broker-a")
				got := lock(t, conn, "g", co.ClientID(), q) // whoever has it now
				unlock(t, conn, "g", co.ClientID(), got...)
				require.Len(t, lock(t, conn, "g", "other", q), 1)
				sleepUntil(begin.Add(30 * time.Second))
				assert.Len(t, s.all(), 3, "only the handler that ran already went on")
				unlock(t, conn, "g", "other", q)
				time.Sleep(10 * time.Second)
				assert.Equal(t, []string{"0", "1", "2", "3", "4"}, s.bodies(), "what the handler finished meanwhile counts")
				assert.Equal(t, int64(5), committedSoon(t, c, "g", q))
			})
		})
	}
}

func TestOrderlyGoesOnAtOnceAfterABrokersRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}, Dir: t.TempDir()})
		p := producer(t, c, pocketmq.ProducerConfig{})
		s := sequence{work: 100 * time.Millisecond}
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset, Handler: s.handler("1")})
		for i := range 60 {
			sendAll(t, p, queue("T", "broker-a", i%2), fmt.Sprint(i))
		}
		time.Sleep(time.Second)
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		at := time.Now()
		time.Sleep(10 * time.Second)
		next := map[pocketmq.MessageQueue]int{queue("T", "broker-a", 0): 0, queue("T", "broker-a", 1): 1}
		for _, call := range s.all() {
			require.Equal(t, []string{fmt.Sprint(next[call.queue])}, call.bodies, "in order, each once")
			next[call.queue] += 2
			if call.at.After(at) {
				assert.Less(t, call.at.Sub(at), 3*time.Second)
			}
		}
		assert.Len(t, s.all(), 60)
	})
}

func TestOL02_UnsubscribeGivesTheQueuesBackAfterTheRunningHandler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		s := sequence{work: 10 * time.Second}
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T", "U"), Orderly: true, From: pocketmq.FromFirstOffset}
		cfg.Handler = s.handler("1")
		first := consumer(t, c, cfg)
		for id := range 4 {
			sendAll(t, p, queue("T", "broker-a", id), "x", "y")
		}
		begin := time.Now()
		time.Sleep(time.Second)
		require.NoError(t, first.Unsubscribe(t.Context(), "T"))
		assert.Equal(t, begin.Add(10*time.Second), time.Now(), "when the handlers have returned")
		assert.Equal(t, []pocketmq.MessageQueue{queue("U", "broker-a", 0)}, first.Assignment())
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Equal(t, map[pocketmq.MessageQueue]string{queue("U", "broker-a", 0): first.ClientID()}, g.Locks)

		// Another process takes over, as in a deployment that splits topics.
		conn := dial(t, c, "broker-a")
		for id := range 4 {
			assert.Len(t, lock(t, conn, "g", "other", queue("T", "broker-a", id)), 1)
			assert.Equal(t, int64(1), committed(t, c, "g", queue("T", "broker-a", id)))
		}
		assert.Len(t, s.all(), 4)
	})
}

func TestOrderlyBroadcastTakesNoLocksAndKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		locks := c.Inject(pocketmq.Fault{Code: protocol.CodeLockQueues})
		seen := [2]sequence{{fail: failing("1", 2), work: time.Millisecond}, {work: time.Millisecond}}
		for i := range seen {
			consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", Subscriptions: all("T"), Model: pocketmq.Broadcasting, Orderly: true, From: pocketmq.FromFirstOffset, Handler: seen[i].handler(fmt.Sprint(i)),
			})
		}
		q := queue("T", "broker-a", 0)
		sendAll(t, p, q, "0", "1", "2")
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"0", "1", "1", "1", "2"}, seen[0].bodies())
		assert.Equal(t, []string{"0", "1", "2"}, seen[1].bodies())
		assert.Zero(t, locks.Hits())
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.False(t, g.Orderly)
		assert.Empty(t, g.Locks)
	})
}

func TestOrderlyConcurrencyBoundsHandlersOverAllQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 8}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		s := sequence{work: time.Second}
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Orderly: true, Concurrency: 3, BatchSize: 4, Handler: s.handler("1")})
		begin := time.Now()
		for id := range 8 {
			sendAll(t, p, queue("T", "broker-a", id), "a", "b", "c", "d", "e", "f")
		}
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, 3, co.Status().Running)
		time.Sleep(time.Minute)
		running := map[time.Time]int{}
		for _, call := range s.all() {
			running[call.at]++
			assert.LessOrEqual(t, len(call.bodies), 4)
		}
		for at, n := range running {
			assert.LessOrEqual(t, n, 3, "at %v", at.Sub(begin))
		}
		assert.Len(t, s.bodies(), 48)
		assert.Empty(t, s.overlaps())
		for _, st := range co.Queues() {
			assert.True(t, st.Locked)
		}
	})
}
