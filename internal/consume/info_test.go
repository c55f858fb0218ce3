package consume

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestAnEngineTellsWhatItDoesWithEachQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.noRetry = true // it would be one of the queues
		w.topic(testTopic, "a", 2)
		busy, quiet := queueOf("a", 0), queueOf("a", 1)
		release := make(chan struct{})
		e, _ := w.member("c1", nil, func(c *Config) { c.Concurrency, c.Handler = 2, stubborn(release) })
		assert.Nil(t, e.Queues())
		assert.Equal(t, &protocol.GetConsumerRunningInfoResponse{Passive: true, Concurrency: 2, Subscriptions: e.ConsumerData().Subscriptions}, e.RunningInfo())

		w.change(func() { w.brokers["a"].commits[busy] = 3 })
		w.send(busy, numbered(0, 10)...)
		began := time.Now()
		start(t, e)
		time.Sleep(time.Minute - 1)
		list := e.Queues()
		require.Len(t, list, 2)
		assert.Equal(t, QueueStatus{Queue: busy, Cached: 7, CachedBytes: list[0].CachedBytes, CommitOffset: 3, NextPullOffset: 10, Pulling: true, LastPull: list[0].LastPull}, list[0])
		assert.Positive(t, list[0].CachedBytes)
		assert.Equal(t, QueueStatus{Queue: quiet, Pulling: true, LastPull: list[1].LastPull}, list[1])
		assert.LessOrEqual(t, time.Since(list[1].LastPull), e.cfg.PullSuspend)

		assert.Equal(t, &protocol.GetConsumerRunningInfoResponse{
			Passive: true, Start: began, Concurrency: 2, Subscriptions: e.ConsumerData().Subscriptions,
			Queues: []protocol.ProcessQueueInfo{
				{Topic: testTopic, BrokerName: "a", CommitOffset: 3, CachedMin: 3, CachedMax: 9, CachedCount: 7, CachedBytes: list[0].CachedBytes, LastPull: list[0].LastPull, LastConsume: began},
				{Topic: testTopic, BrokerName: "a", QueueID: 1, LastPull: list[1].LastPull},
			},
		}, e.RunningInfo())
		close(release)
	})
}

func TestAMemberWithoutQueuesIsToldOnceUntilItGetsSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		var told []Idle
		e1, _ := w.member("c1", new(inbox), nil)
		e2, _ := w.member("c2", new(inbox), func(c *Config) { c.OnIdle = func(i Idle) { told = append(told, i) } })
		start(t, e1)
		start(t, e2)
		time.Sleep(time.Hour)
		want := []Idle{{Topic: testTopic, Members: 2, Queues: 1, Strategy: "AVG"}}
		assert.Equal(t, want, told)
		assert.Equal(t, []string{testTopic}, e2.Status().Idle)
		require.NoError(t, e1.Close())
		synctest.Wait()
		assert.Nil(t, e2.Status().Idle)
		e3, _ := w.member("c0", new(inbox), nil)
		start(t, e3)
		synctest.Wait()
		assert.Equal(t, append(want, want...), told)
		w.topic("other", "a", 1)
		require.NoError(t, e2.Unsubscribe(t.Context(), testTopic))
		assert.Nil(t, e2.Status().Idle, "of a topic that is not subscribed nobody is idle")
	})
}

// nobody is a strategy that gives nothing to anybody.
type nobody struct{}

func (nobody) Name() string { return "NOBODY" }
func (nobody) Allocate(string, string, []message.Queue, []string) ([]message.Queue, error) {
	return nil, nil
}

func TestTheStrategyIsBlamedWhenThereAreQueuesEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		log := new(lines)
		var told []Idle
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Strategy, c.Logger, c.OnIdle = nobody{}, log.logger(), func(i Idle) { told = append(told, i) }
		})
		start(t, e)
		time.Sleep(time.Hour)
		assert.Equal(t, []Idle{{Topic: testTopic, Members: 1, Queues: 2, Strategy: "NOBODY"}}, told)
		assert.Equal(t, 1, countLines(log, "the allocation strategy gives it none"))
		assert.Zero(t, countLines(log, "others got them all"))
	})
}

func TestACommitWhoseOutcomeIsOpenIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		e, _ := w.member("c1", new(inbox), func(c *Config) { c.PullErrorDelay = time.Hour })
		start(t, e)
		w.send(q, numbered(0, 4)...)
		synctest.Wait()
		w.change(func() {
			w.brokers["a"].answer = func(*protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				return nil, errors.New("lost")
			}
		})
		time.Sleep(time.Minute)
		assert.EqualValues(t, 4, w.committed(q))
		w.change(func() { w.brokers["a"].silent = true })
		r := e.current()
		r.mu.Lock()
		h := r.held[q]
		h.committed = 3 // something to commit
		r.mu.Unlock()
		time.Sleep(e.cfg.OffsetPersist + offsetTimeout)
		synctest.Wait()
		r.mu.Lock()
		committed := h.committed
		r.mu.Unlock()
		assert.EqualValues(t, -1, committed, "the broker may have taken it, or not")
		w.change(func() { w.brokers["a"].silent = false; w.brokers["a"].commits[q] = 1 }) // an older request came last
		time.Sleep(2 * e.cfg.OffsetPersist)
		assert.EqualValues(t, 4, w.committed(q))
	})
}

func TestRewindForgetsWhatWasNeverTaken(t *testing.T) {
	records := func(offsets ...int64) []record {
		var list []record
		for _, o := range offsets {
			list = append(list, record{offset: o, data: []byte("12345")})
		}
		return list
	}
	p := newProcessQueue(10)
	assert.Zero(t, p.rewind())
	assert.EqualValues(t, 10, p.end)
	p.put(records(10, 12, 15, 18), 25)
	got := p.take(nil, 2, 0)
	first, last := p.bounds()
	assert.Equal(t, [2]int64{10, 18}, [2]int64{first, last})
	assert.EqualValues(t, 10, p.rewind())
	assert.EqualValues(t, 15, p.end, "12 was taken: what follows is fetched again")
	first, last = p.bounds()
	assert.Equal(t, [2]int64{10, 12}, [2]int64{first, last})
	assert.Equal(t, 2, p.count)
	assert.EqualValues(t, 10, p.bytes)
	p.ack(got[1])
	first, last = p.bounds()
	assert.Equal(t, [2]int64{10, 10}, [2]int64{first, last})
	p.put(records(15, 18), 25)
	got = append(got, p.take(nil, 9, 0)...)
	require.Len(t, got, 4)
	assert.Equal(t, []int64{10, 12, 15, 18}, []int64{got[0].offset, got[1].offset, got[2].offset, got[3].offset})
	p.failed(got[2], false)
	p.back()
	assert.EqualValues(t, 5, p.rewind(), "what failed stays, and what lies before it")
	assert.EqualValues(t, 18, p.end)
	assert.Equal(t, 2, p.count)
	p.drop()
	assert.Zero(t, p.rewind())
	first, last = p.bounds()
	assert.Equal(t, [2]int64{0, 0}, [2]int64{first, last})
}
