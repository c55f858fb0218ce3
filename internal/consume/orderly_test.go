package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func offsetsOf(list []taken) []int64 {
	var out []int64
	for _, t := range list {
		out = append(out, t.offset)
	}
	return out
}

func TestAProcessQueuePutsFailedMessagesBackInPlace(t *testing.T) {
	p := newProcessQueue(0)
	p.put([]record{{0, []byte("a")}, {1, []byte("b")}, {3, []byte("c")}, {4, []byte("d")}}, 5)
	got := p.take(nil, 3, 0)
	require.Equal(t, []int64{0, 1, 3}, offsetsOf(got))
	_, ok := p.ack(got[0])
	require.True(t, ok)
	_, ok = p.ack(got[2]) // passed over: it does not decode
	require.True(t, ok)
	again, ok := p.failed(got[1], false)
	require.True(t, ok)
	assert.Equal(t, int32(1), again.attempts)
	p.back()
	require.NoError(t, p.check())
	assert.Equal(t, int64(1), p.commit())

	got = p.take(nil, 3, 0)
	assert.Equal(t, []int64{1, 4}, offsetsOf(got), "the failed one first, what is done is left out")
	assert.Equal(t, int32(1), got[0].attempts)
	_, ok = p.ack(got[0])
	require.True(t, ok)
	assert.Equal(t, int64(4), p.commit())
}

func TestAProcessQueuePassesOverWhatAnotherMemberHasFinished(t *testing.T) {
	p := newProcessQueue(0)
	p.put([]record{{0, []byte("a")}, {1, []byte("b")}, {3, []byte("c")}}, 4)
	got := p.take(nil, 1, 0)
	assert.Equal(t, int64(2), p.pass(2))
	require.NoError(t, p.check())
	_, ok := p.ack(got[0])
	assert.False(t, ok)
	assert.Equal(t, int64(3), p.commit())
	assert.Equal(t, []int64{3}, offsetsOf(p.take(nil, 5, 0)))
	assert.Equal(t, int64(1), p.pass(9), "beyond the end")
	assert.Equal(t, int64(9), p.commit())
	assert.Equal(t, 1, p.put([]record{{7, []byte("x")}, {8, []byte("x")}, {9, []byte("y")}}, 10), "a pull that was under way")
	assert.Equal(t, []int64{9}, offsetsOf(p.take(nil, 5, 0)))
}

// TestAProcessQueueInOrderIsTheModel drives a queue as an orderly engine does
// and compares it with a plain list.
func TestAProcessQueueInOrderIsTheModel(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	p := newProcessQueue(0)
	type entry struct {
		offset   int64
		attempts int32
	}
	var model []entry // unfinished, in order
	end := int64(0)
	for range 1_000 {
		switch rnd.IntN(8) {
		case 0, 1:
			var batch []record
			for range rnd.IntN(5) {
				batch = append(batch, record{end, []byte{1}})
				model = append(model, entry{offset: end})
				end += 1 + rnd.Int64N(2)
			}
			p.put(batch, end)
		case 2:
			if to := p.commit() + rnd.Int64N(4); rnd.IntN(8) == 0 {
				p.pass(to)
				for len(model) > 0 && model[0].offset < to {
					model = model[1:]
				}
				end = max(end, to)
			}
		default:
			n := 1 + rnd.IntN(3)
			got := p.take(nil, n, 0)
			want := model[:min(n, len(model))]
			require.Len(t, got, len(want), "seed %d", seed)
			for i, x := range got {
				require.Equal(t, want[i], entry{x.offset, x.attempts}, "seed %d", seed)
			}
			done := len(got)
			if rnd.IntN(2) == 0 {
				done = rnd.IntN(len(got) + 1)
			}
			for _, x := range got[:done] {
				_, ok := p.ack(x)
				require.True(t, ok, "seed %d", seed)
			}
			for i, x := range got[done:] {
				_, ok := p.failed(x, false)
				require.True(t, ok, "seed %d", seed)
				model[done+i].attempts++
			}
			model = model[done:]
			p.back()
		}
		require.NoError(t, p.check(), "seed %d", seed)
		require.Equal(t, len(model), p.count, "seed %d", seed)
		commit := end
		if len(model) > 0 {
			commit = model[0].offset
		}
		require.Equal(t, commit, p.commit(), "seed %d", seed)
	}
}

func TestLocksAreAskedForOncePerBrokerAndRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 4)
		w.topic(testTopic, "b", 4)
		var in inbox
		e, _ := w.member("m", &in, func(c *Config) { c.Orderly = true })
		start(t, e)
		for _, broker := range []string{"a", "b"} {
			assert.Equal(t, 4, w.calls(broker, "LockQueues"), "one for each queue that is taken, but the retry queue")
		}
		time.Sleep(61 * time.Second)
		for _, broker := range []string{"a", "b"} {
			assert.Equal(t, 7, w.calls(broker, "LockQueues"), "three renewals")
		}
	})
}

func TestASilentBrokerDelaysOnlyItsOwnLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		in := inbox{work: time.Second}
		log := new(lines)
		e, _ := w.member("m", &in, func(c *Config) { c.Orderly = true; c.Logger = log.logger() })
		start(t, e)
		begin := time.Now()
		w.send(queueOf("a", 0), numbered(0, 100)...)
		w.send(queueOf("b", 0), numbered(100, 200)...)
		time.Sleep(5500 * time.Millisecond)
		w.change(func() { w.brokers["b"].silent = true })
		time.Sleep(80 * time.Second)
		perQueue := make(map[string][]delivery)
		for _, d := range in.all() {
			perQueue[d.queue.BrokerName] = append(perQueue[d.queue.BrokerName], d)
		}
		assert.Len(t, perQueue["a"], 85)
		last := perQueue["b"][len(perQueue["b"])-1]
		assert.Equal(t, begin.Add(30*time.Second), last.at, "the last handler starts when its lock is 30 s old, not later")
		w.change(func() { w.brokers["b"].silent = false })
		time.Sleep(60 * time.Second)
		assert.Equal(t, 1, countLines(log, "locks not renewed"), "a series of failures is one warning")
		assert.Equal(t, 1, countLines(log, "locks are renewed again"))
		for i, d := range perQueue["b"] {
			assert.Equal(t, fmt.Sprint("m", 100+i), d.body)
		}
	})
}

func TestAStartThatFailsLeavesNoLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 2)
		w.topic(testTopic, "b", 2)
		w.change(func() { w.brokers["b"].down = true })
		e, _ := w.member("m", nil, func(c *Config) { c.Orderly = true })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.Error(t, e.Start(ctx))
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.Empty(t, w.brokers["a"].locks)
		assert.Positive(t, w.brokers["a"].calls["LockQueues"])
	})
}
