package consume

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// poller is a member of a world that is polled.
func (w *world) poller(id string, edit func(*Config)) (*Engine, *fakeClient) {
	return w.member(id, nil, func(c *Config) {
		c.Polled, c.Concurrency, c.Handler = true, 0, nil
		if edit != nil {
			edit(c)
		}
	})
}

// pollAll returns the offsets that Poll returns until there is nothing for a
// second.
func pollAll(t *testing.T, e *Engine, most int) (offsets []int64) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		msgs, err := e.Poll(ctx, most)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return offsets
		}
		for _, m := range msgs {
			offsets = append(offsets, m.QueueOffset)
		}
	}
}

func offsetsBetween(from, to int64) (offsets []int64) {
	for ; from < to; from++ {
		offsets = append(offsets, from)
	}
	return offsets
}

func TestAPolledPullSaysItselfWhatItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		tags, err := filter.ParseTags("x || y")
		require.NoError(t, err)
		e, _ := w.poller("c1", func(c *Config) { c.Subscriptions = map[string]filter.Tags{testTopic: tags} })
		start(t, e)
		q := queueOf("a", 0)
		w.sendTagged(q, "x", numbered(0, 5)...)
		assert.Len(t, pollAll(t, e, 10), 5)
		synctest.Wait()
		for _, p := range w.pulls(q) {
			assert.True(t, p.req.HasExpression)
			assert.Equal(t, "x || y", p.req.Expression)
			assert.False(t, p.req.Commit, "commits go by themselves")
		}
		assert.False(t, e.ConsumerData().Passive, "CONSUME_ACTIVELY")
		assert.True(t, e.Member())
	})
}

func TestAllQueuesTogetherAreFetchedAheadUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 5)
		for id := range 5 {
			w.send(queueOf("a", id), numbered(0, 300)...)
		}
		e, _ := w.poller("c1", func(c *Config) { c.PullBatchSize, c.MaxCached, c.MaxCachedAll = 10, 100, 250 })
		start(t, e)
		synctest.Wait()
		received := e.Status().Received
		assert.LessOrEqual(t, received, int64(250+4*10), "the pulls under way come on top")
		assert.Greater(t, received, int64(200))
		time.Sleep(time.Hour)
		assert.Equal(t, received, e.Status().Received)
		assert.Len(t, pollAll(t, e, 10), 1500, "each Poll makes room")
	})
}

func TestWhatWasFetchedOutlivesAnOffsetThatHasLeftTheQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		min, max, next int64
		want           []int64
	}{
		"the queue begins later": {200, 300, 200, slices.Concat(offsetsBetween(0, 40), offsetsBetween(200, 300))},
		"the queue ends earlier": {0, 30, 30, offsetsBetween(0, 30)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.send(q, numbered(0, 40)...)
				var jumps []Jumped
				e, _ := w.poller("c1", func(c *Config) { c.OnJumped = func(j Jumped) { jumps = append(jumps, j) } })
				start(t, e)
				synctest.Wait() // all is fetched, the next pull is held
				moved := false
				w.change(func() {
					w.brokers["a"].answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
						if r.Offset < tc.min || r.Offset > tc.max {
							moved = true
							return &protocol.PullMessageResponse{Code: protocol.PullOffsetMoved, NextBeginOffset: tc.next, MinOffset: tc.min, MaxOffset: tc.max}, nil
						}
						resp := &protocol.PullMessageResponse{Code: protocol.PullNotFound, NextBeginOffset: r.Offset, MinOffset: tc.min, MaxOffset: tc.max}
						for o := r.Offset; o < min(tc.max, r.Offset+10); o++ {
							resp.Code, resp.NextBeginOffset = protocol.Success, o+1
							resp.Records = append(resp.Records, storedRecord(t, q, o, "", "x"))
						}
						return resp, nil
					}
				})
				time.Sleep(20 * time.Second)
				synctest.Wait()
				require.True(t, moved)
				assert.Equal(t, []Jumped{{Queue: q, From: 40, To: tc.next}}, jumps)
				assert.Equal(t, tc.want, pollAll(t, e, 7))
			})
		})
	}
}

func TestAResetOfTheGroupCountsForAPolledEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 100)...)
		e, _ := w.poller("c1", func(c *Config) { c.ManualCommit = true })
		start(t, e)
		assert.Equal(t, offsetsBetween(0, 100), pollAll(t, e, 10))
		w.send(q, numbered(100, 110)...)
		synctest.Wait()
		w.reset(q, 95)
		time.Sleep(20 * time.Second)
		assert.Equal(t, offsetsBetween(95, 110), pollAll(t, e, 100), "what was fetched before is forgotten")
		assert.EqualValues(t, 95, w.committed(q))
	})
}

func TestASeekEndsThePauseAfterAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 10)...)
		e, _ := w.poller("c1", nil)
		start(t, e)
		synctest.Wait()
		fails := true
		w.change(func() {
			w.brokers["a"].answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				if fails {
					fails = false
					return nil, protocol.Errorf(protocol.SystemError, "not now")
				}
				return &protocol.PullMessageResponse{Code: protocol.Success, NextBeginOffset: r.Offset + 1, MaxOffset: 10, Records: [][]byte{storedRecord(t, q, r.Offset, "", "x")}}, nil
			}
		})
		require.NoError(t, e.Seek(q, 4))
		synctest.Wait() // the pull failed, and 3 s have to pass
		begin := time.Now()
		require.NoError(t, e.Seek(q, 5))
		msgs, err := e.Poll(t.Context(), 1)
		require.NoError(t, err)
		assert.Zero(t, time.Since(begin))
		assert.EqualValues(t, 5, msgs[0].QueueOffset)
	})
}

// Every caller that waits gets its turn, and one that gives up takes no message
// with it.
func TestPollsThatWaitAreWokenOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		e, _ := w.poller("c1", nil)
		start(t, e)
		got := make(chan *message.Ext, 20)
		for i := range 20 {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+i)*time.Second)
				defer cancel()
				if msgs, err := e.Poll(ctx, 1); err == nil {
					got <- msgs[0]
				}
			}()
		}
		time.Sleep(10*time.Second + time.Millisecond) // ten have given up
		w.send(queueOf("a", 0), numbered(0, 5)...)
		w.send(queueOf("a", 1), numbered(5, 10)...)
		synctest.Wait()
		assert.Len(t, got, 10)
	})
}

func TestProcessQueueJumps(t *testing.T) {
	records := func(from, to int64) (list []record) {
		for ; from < to; from++ {
			list = append(list, record{from, []byte("ab")})
		}
		return list
	}
	take := func(p *processQueue, n int) (offsets []int64) {
		for _, x := range p.take(nil, n, 0) {
			_, _ = p.ack(x)
			offsets = append(offsets, x.offset)
		}
		return offsets
	}
	p := newProcessQueue(0)
	p.put(records(0, 10), 10)
	assert.Equal(t, offsetsBetween(0, 3), take(&p, 3))
	assert.Zero(t, p.jump(20), "forwards nothing is lost")
	p.put(records(20, 22), 22)
	assert.Equal(t, int64(4), p.jump(20))
	assert.Equal(t, int64(2), p.jump(9))
	assert.Equal(t, 6, p.count)
	assert.Equal(t, int64(12), p.bytes)
	assert.Equal(t, offsetsBetween(3, 9), take(&p, 100))
	assert.Equal(t, 1, p.put(records(9, 10), 10))
	assert.Equal(t, int64(2), p.jump(0), "behind all that was taken")
	assert.Zero(t, p.count)
	assert.Zero(t, p.ready())
	p.put(records(0, 2), 2)
	assert.Equal(t, offsetsBetween(0, 2), take(&p, 100))
	assert.Equal(t, int64(2), p.commit())
}
