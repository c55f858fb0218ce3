package consume

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestABrokersWordMovesAConsumerAtOnceWhateverItDoes(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"concurrent": nil, "orderly": func(c *Config) { c.Orderly = true },
		"broadcasting": func(c *Config) { c.Model = protocol.Broadcasting },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				w.topic("other", "a", 1)
				q, r := queueOf("a", 0), queueOf("a", 1)
				in := new(inbox)
				var jumps []Jumped
				e, _ := w.member("c1", in, func(c *Config) {
					c.From = protocol.ConsumeFromFirst
					c.OnJumped = func(j Jumped) { jumps = append(jumps, j) }
					if edit != nil {
						edit(c)
					}
				})
				start(t, e)
				w.send(q, numbered(0, 10)...)
				w.send(r, numbered(10, 15)...)
				synctest.Wait()
				require.Len(t, in.all(), 15)
				assert.Equal(t, map[message.Queue]int64{q: 10, r: 5}, e.Offsets(testTopic))
				assert.Empty(t, e.Offsets("other"))
				began, before := time.Now(), len(w.pulls(r))

				// A pull is held now; nobody has to answer it first.
				e.Reset(testTopic, map[message.Queue]int64{q: 4, {Topic: "other", BrokerName: "a"}: 0, {Topic: testTopic, BrokerName: "b"}: 0})
				synctest.Wait()
				assert.Zero(t, time.Since(began))
				assert.Len(t, in.all(), 21, "4 to 9 once more")
				assert.Equal(t, []Jumped{{Queue: q, From: 10, To: 4}}, jumps)
				assert.Len(t, w.pulls(r), before, "other queues are left alone")
				time.Sleep(e.cfg.OffsetPersist)
				synctest.Wait()
				if e.cfg.Model == protocol.Clustering {
					assert.EqualValues(t, 10, w.committed(q))
				}

				e.Reset(testTopic, map[message.Queue]int64{q: 10})
				w.send(q, "next")
				synctest.Wait()
				assert.Equal(t, "next", in.all()[len(in.all())-1].body)
				assert.Len(t, in.all(), 22)
			})
		})
	}
}

func TestWhatAPullBringsAfterAResetDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		in := new(inbox)
		e, _ := w.member("c1", in, func(c *Config) { c.From = protocol.ConsumeFromFirst })
		w.send(q, numbered(0, 10)...)
		start(t, e)
		synctest.Wait()
		require.Len(t, in.all(), 10)

		// The next pull is answered late, and by a broker that does not know better.
		asked, release := make(chan struct{}), make(chan struct{})
		w.change(func() {
			w.brokers["a"].answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
				if r.Offset != 11 {
					return nil, protocol.Errorf(protocol.SystemBusy, "not now")
				}
				close(asked)
				<-release
				return &protocol.PullMessageResponse{Records: [][]byte{storedRecord(t, q, 11, "", "late")}, NextBeginOffset: 12, MaxOffset: 12}, nil
			}
		})
		w.send(q, "m10")
		<-asked
		synctest.Wait()
		require.Len(t, in.all(), 11)
		w.change(func() { w.brokers["a"].answer = nil })
		e.Reset(testTopic, map[message.Queue]int64{q: 8})
		close(release)
		synctest.Wait()
		require.Len(t, in.all(), 14, "8 to 10 once more")
		assert.NotContains(t, in.bodies(), "late")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 11, w.committed(q))
	})
}

func TestAResetDoesNotWaitForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		release := make(chan struct{})
		var hold atomic.Bool
		hold.Store(true)
		in := new(inbox)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.From = protocol.ConsumeFromFirst
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				if hold.Load() {
					<-release
					return errors.New("too late to count")
				}
				return in.handle(ctx, msgs)
			}
		})
		w.send(q, numbered(0, 5)...)
		start(t, e)
		synctest.Wait()
		hold.Store(false)
		e.Reset(testTopic, map[message.Queue]int64{q: 3})
		synctest.Wait()
		assert.Equal(t, []string{"m3", "m4"}, in.bodies())
		close(release)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 5, w.committed(q))
		assert.Empty(t, w.brokers["a"].backs, "what handlers had before is nobody's any more")
	})
}

func TestOneRecordIsConsumedDirectly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		rec := storedRecord(t, q, 7, "tag", "body")
		var got []*message.Ext
		var result func() error
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Orderly = true
			c.Handler = func(_ context.Context, msgs []*message.Ext) error {
				got = append(got, msgs...)
				return result()
			}
		})
		refused := func(err error) {
			t.Helper()
			var answer *protocol.Error
			require.ErrorAs(t, err, &answer)
			assert.Equal(t, protocol.SystemError, answer.Code)
		}
		_, err := e.ConsumeDirectly(t.Context(), rec, "a")
		refused(err)
		require.NoError(t, e.Start(t.Context()))
		_, err = e.ConsumeDirectly(t.Context(), rec[:50], "a")
		refused(err)

		for name, row := range map[string]struct {
			result func() error
			want   protocol.ConsumeMessageDirectlyResponse
		}{
			"consumed":      {func() error { return nil }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeSuccess}},
			"done":          {func() error { return Done(1, errBoom) }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeSuccess}},
			"failed":        {func() error { return DeadLetter(errBoom) }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeLater, Remark: DeadLetter(errBoom).Error()}},
			"a panic":       {func() error { panic("boom") }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeException, Remark: "the handler panicked: boom"}},
			"a lost thread": {func() error { runtime.Goexit(); return nil }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeException, Remark: errGoexit.Error()}},
			"slow":          {func() error { time.Sleep(time.Second); return nil }, protocol.ConsumeMessageDirectlyResponse{Result: protocol.ConsumeSuccess, Spent: time.Second}},
		} {
			result, got = row.result, nil
			row.want.Orderly, row.want.AutoCommit = true, true
			resp, err := e.ConsumeDirectly(t.Context(), rec, "a")
			require.NoError(t, err, name)
			assert.Equal(t, row.want, *resp, name)
			require.Len(t, got, 1, name)
			assert.Equal(t, []any{q, int64(7), "body", "tag"}, []any{got[0].Queue, got[0].QueueOffset, string(got[0].Body), got[0].Tag}, name)
		}
		synctest.Wait() // the last handler's goroutine has ended
		assert.Equal(t, Status{}, e.Status(), "none of the counters' messages")
		assert.EqualValues(t, -1, w.committed(q))

		// Nobody waits longer than he likes, but Close waits for the handler.
		release := make(chan struct{})
		result = func() error { <-release; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = e.ConsumeDirectly(ctx, rec, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 1, e.Status().Running)
		began := time.Now()
		require.ErrorIs(t, e.Close(), protocol.ErrHandlersRunning)
		assert.Equal(t, e.cfg.CloseTimeout, time.Since(began))
		_, err = e.ConsumeDirectly(t.Context(), rec, "a")
		refused(err)
		close(release)
		require.NoError(t, e.Close())
	})
}

func TestAPolledEngineHasNoHandlerToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		e, _ := w.member("c1", nil, func(c *Config) { c.Polled, c.Concurrency, c.From = true, 0, protocol.ConsumeFromFirst })
		start(t, e)
		_, err := e.ConsumeDirectly(t.Context(), storedRecord(t, q, 7, "", "body"), "a")
		var answer *protocol.Error
		require.ErrorAs(t, err, &answer)
		w.send(q, numbered(0, 5)...)
		poll := func(want string) {
			t.Helper()
			msgs, err := e.Poll(t.Context(), 1)
			require.NoError(t, err)
			assert.Equal(t, want, string(msgs[0].Body))
		}
		poll("m0")
		poll("m1")
		assert.Equal(t, map[message.Queue]int64{q: 1}, e.Offsets(testTopic), "what is finished")
		e.Reset(testTopic, map[message.Queue]int64{q: 4})
		poll("m4")
	})
}
