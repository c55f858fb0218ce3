package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestFailedMessageComesAgainAfterTheDelayOfItsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		failures := 5
		in := &inbox{fail: func(m *message.Ext) error {
			if string(m.Body) == "bad" && m.ReconsumeTimes < failures {
				return errors.New("not yet")
			}
			return nil
		}}
		e, _ := w.member("c1", in, nil)
		start(t, e)
		sent := time.Now()
		w.send(q, "good", "bad", "also good")
		time.Sleep(5 * time.Minute)
		var got []delivery
		for _, d := range in.all() {
			if d.body == "bad" {
				got = append(got, d)
			}
		}
		// Level 3 is 10 s, 4 is 30 s, 5 is 1 min and the last one.
		want := []time.Duration{0, 10 * time.Second, 40 * time.Second, 100 * time.Second, 160 * time.Second, 220 * time.Second}
		require.Len(t, got, len(want))
		for i, d := range got {
			assert.Equal(t, want[i], d.at.Sub(sent), "delivery %d", i)
			assert.Equal(t, i, d.times)
		}
		assert.Len(t, in.all(), len(want)+2, "the others came once")
		assert.Equal(t, int64(3), w.committed(q), "the offset passes what the broker has taken back")
		retry, copies := w.retries("a")
		assert.Equal(t, 5, copies)
		assert.EqualValues(t, 5, w.committed(retry))
		assert.Equal(t, Status{Received: 8, Consumed: 3, Failed: 5, SentBack: 5}, e.Status())
	})
}

func TestEachMessageOfAFailedBatchGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), numbered(0, 10)...)
		var got [][]string
		var mu sync.Mutex
		e, _ := w.member("c1", nil, func(c *Config) {
			c.BatchSize, c.Concurrency = 4, 1
			c.Handler = func(_ context.Context, msgs []*message.Ext) error {
				mu.Lock()
				defer mu.Unlock()
				var bodies []string
				for _, m := range msgs {
					bodies = append(bodies, string(m.Body))
				}
				got = append(got, bodies)
				if msgs[0].ReconsumeTimes == 0 && msgs[0].QueueOffset == 4 {
					return Done(1, errors.New("the rest of the batch"))
				}
				return nil
			}
		})
		start(t, e)
		synctest.Wait()
		assert.Equal(t, [][]string{numbered(0, 4), numbered(4, 8), numbered(8, 10)}, got)
		assert.Equal(t, Status{Received: 10, Consumed: 7, Failed: 3, SentBack: 3}, e.Status())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		var again []string
		for _, bodies := range got[3:] {
			again = append(again, bodies...)
		}
		assert.ElementsMatch(t, numbered(5, 8), again)
		assert.Equal(t, Status{Received: 13, Consumed: 10, Failed: 3, SentBack: 3}, e.Status())
	})
}

func TestRedeliveredMessageIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), "original")
		var kept []*message.Ext
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Handler = func(_ context.Context, msgs []*message.Ext) error {
				m := msgs[0]
				if string(m.Body) != "original" || m.Topic != testTopic || m.ReconsumeTimes != len(kept) || m.MsgID != "K0" {
					t.Errorf("delivery %d: %+v", len(kept), m)
				}
				kept = append(kept, m)
				copy(m.Body, "CHANGED!")
				m.Topic, m.ReconsumeTimes, m.MsgID, msgs[0] = "", 99, "", nil
				if len(kept) < 3 {
					return errors.New("again")
				}
				return nil
			}
		})
		start(t, e)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, kept, 3)
	})
}

func TestPanickingHandlerIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		log := new(lines)
		in := &inbox{fail: func(m *message.Ext) error {
			if m.ReconsumeTimes == 0 {
				panic("handler bug")
			}
			return nil
		}}
		e, _ := w.member("c1", in, func(c *Config) { c.Logger = log.logger(); c.Concurrency = 1 })
		start(t, e)
		w.send(queueOf("a", 0), "x", "y")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"x", "x", "y", "y"}, in.bodies())
		assert.Equal(t, 2, countLines(log, "consumer handler panicked"))
		assert.Contains(t, log.String(), "handler bug")
		assert.Contains(t, log.String(), "workers_test.go", "with the stack")
		assert.Equal(t, Status{Received: 4, Consumed: 2, Failed: 2, SentBack: 2}, e.Status())
	})
}

func TestHandlerThatEndsItsGoroutineIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := &inbox{fail: func(m *message.Ext) error {
			if m.ReconsumeTimes == 0 {
				runtime.Goexit()
			}
			return nil
		}}
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency = 1 })
		start(t, e)
		w.send(queueOf("a", 0), numbered(0, 5)...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, Status{Received: 10, Consumed: 5, Failed: 5, SentBack: 5}, e.Status(), "the worker was replaced")
	})
}

func TestNoMessageWaitsBehindASlowOneWhileWorkersAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), numbered(0, 32)...)
		in := new(inbox)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Concurrency = 2
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				if msgs[0].QueueOffset == 0 {
					pause(ctx, time.Hour)
				}
				return in.handle(ctx, msgs)
			}
		})
		began := time.Now()
		start(t, e)
		synctest.Wait()
		require.Len(t, in.all(), 31)
		for _, d := range in.all() {
			assert.Equal(t, began, d.at)
		}
		assert.Equal(t, 1, e.Status().Running)
	})
}

func TestEveryWorkerTakesPartInABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := &inbox{work: time.Second}
		e, _ := w.member("c1", in, nil)
		start(t, e)
		synctest.Wait()
		sent := time.Now()
		w.send(queueOf("a", 0), numbered(0, 45)...)
		synctest.Wait()
		assert.Equal(t, 20, e.Status().Running)
		time.Sleep(time.Minute)
		perRound := make(map[time.Duration]int)
		for _, d := range in.all() {
			perRound[d.at.Sub(sent)]++
		}
		assert.Equal(t, map[time.Duration]int{0: 20, time.Second: 20, 2 * time.Second: 5}, perRound)
	})
}

func TestQueuesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		w.send(queueOf("a", 0), numbered(0, 900)...)
		w.send(queueOf("a", 1), "rare")
		in := &inbox{work: time.Millisecond}
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency = 1 })
		start(t, e)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		i := slices.IndexFunc(in.all(), func(d delivery) bool { return d.body == "rare" })
		assert.GreaterOrEqual(t, i, 0)
		assert.Less(t, i, 5)
	})
}

func TestMessagesOfADroppedQueueAreNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), numbered(0, 20)...)
		in := &inbox{work: time.Second}
		e, _ := w.member("c2", in, func(c *Config) { c.Concurrency = 1 })
		start(t, e)
		time.Sleep(2500 * time.Millisecond)
		other, _ := w.member("c1", new(inbox), nil) // sorts first: it gets the only queue
		start(t, other)
		synctest.Wait()
		assert.Empty(t, e.Assignment())
		assert.Equal(t, 1, e.Status().Running)
		time.Sleep(time.Minute)
		assert.Len(t, in.all(), 3, "two done, one was running")
		assert.Equal(t, int64(20), w.committed(queueOf("a", 0)))
		assert.GreaterOrEqual(t, other.Status().Consumed, int64(18), "what was not finished comes again, to the new owner")
	})
}

func TestCommittedOffsetNeverPassesAnUnfinishedMessage(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { commitModel(t, seed) })
		})
	}
}

// commitModel consumes with random failures, delays and moves of queues between
// members, and checks every commit that a broker sees against what had been
// consumed by then.
func commitModel(t *testing.T, seed uint64) {
	rnd := newRand(seed)
	w := newWorld(t, "a", "b")
	w.topic(testTopic, "a", 2)
	w.topic(testTopic, "b", 2)
	var queues []message.Queue
	for _, b := range []string{"a", "b"} {
		queues = append(queues, queueOf(b, 0), queueOf(b, 1))
	}
	var mu sync.Mutex
	done := make(map[string]bool) // by body
	for i, b := range []string{"a", "b"} {
		refuse := newRand(seed ^ uint64(1000+i))
		w.brokers[b].back = func(context.Context, *protocol.ConsumerSendMsgBackRequest) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse.IntN(3) == 0 {
				return protocol.Errorf(protocol.SystemError, "seeded refusal")
			}
			return nil
		}
		w.brokers[b].send = func(*protocol.SendMessageRequest) error {
			return protocol.Errorf(protocol.SystemError, "no send either: the message waits here")
		}
	}
	var handlers atomic.Int64
	handle := func(ctx context.Context, msgs []*message.Ext) error {
		handlers.Add(1)
		m := msgs[0]
		fate := newRand(seed ^ uint64(m.QueueOffset*64+int64(m.ReconsumeTimes))<<8 ^ uint64(m.Queue.QueueID)) // of this delivery
		bad := fate.IntN(10) == 0
		pause(ctx, time.Duration(fate.IntN(50))*time.Millisecond)
		if bad {
			return errors.New("seeded failure")
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			done[string(m.Body)] = true
		}
		return nil
	}
	check := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, q := range queues {
			commit := w.committed(q)
			for offset := range commit {
				if !done[bodyAt(q, offset)] && !w.takenBack(q, offset) {
					require.Failf(t, "committed too far", "seed %d: %v committed at %d, but %d was neither consumed nor taken back", seed, q, commit, offset)
				}
			}
		}
	}
	edit := func(c *Config) {
		c.Handler = handle
		c.BatchSize = 1 + rnd.IntN(4)
		c.Concurrency = 1 + rnd.IntN(8)
		c.MaxCached = 50 + rnd.IntN(200)
		c.MaxCachedTotal = 1000 + rnd.Int64N(30_000) // some 200 B a message
		c.MaxCachedBytes = 1000 + rnd.Int64N(30_000)
		c.MaxSpan = 20 + rnd.Int64N(200)
	}
	first, _ := w.member("c1", nil, edit)
	start(t, first)
	total := make(map[message.Queue]int)
	var second *Engine
	for step := range 60 {
		q := queues[rnd.IntN(len(queues))]
		n := rnd.IntN(30)
		for range n {
			w.send(q, bodyAt(q, int64(total[q])))
			total[q]++
		}
		if step%15 == 7 {
			if second == nil {
				second, _ = w.member(fmt.Sprintf("c%d", 2+step), nil, edit)
				require.NoError(t, second.Start(t.Context()))
			} else if rnd.IntN(2) == 0 {
				require.NoError(t, second.Close())
				second = nil
			} else {
				require.NoError(t, second.Shutdown(t.Context()))
				second = nil
			}
		}
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		synctest.Wait()
		check()
		for _, e := range []*Engine{first, second} {
			if e == nil {
				continue
			}
			r := e.current()
			r.mu.Lock()
			cached := int64(0)
			for _, h := range r.held {
				require.NoError(t, h.pq.check(), "seed %d", seed)
				cached += h.pq.bytes
			}
			require.Equal(t, cached, r.cached, "seed %d: bytes in all", seed)
			r.mu.Unlock()
		}
	}
	if second != nil {
		require.NoError(t, second.Shutdown(t.Context()))
	}
	time.Sleep(time.Hour)
	check()
	for _, q := range queues {
		assert.EqualValues(t, total[q], w.committed(q), "seed %d: the offset comes to the end of %v", seed, q)
		for offset := range total[q] {
			assert.True(t, done[bodyAt(q, int64(offset))], "seed %d: everything is consumed in the end: %v at %d", seed, q, offset)
		}
	}
	for _, b := range []string{"a", "b"} {
		retry, copies := w.retries(b)
		assert.EqualValues(t, copies, w.committed(retry), "seed %d", seed)
	}
	require.NotZero(t, handlers.Load())
}

// bodyAt is the body of a message in the model, unique over all queues.
func bodyAt(q message.Queue, offset int64) string { return fmt.Sprint(q, " ", offset) }
