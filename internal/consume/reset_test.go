package consume

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestCP03AResetActsAtOnceAndABatchInFlightDoesNotUndoIt(t *testing.T) {
	for name, to := range map[string]int64{"back": 60, "to the end": 100} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				in := new(inbox)
				release := make(chan struct{})
				var hold atomic.Bool
				hold.Store(true)
				log := new(lines)
				e, _ := w.member("c1", nil, func(c *Config) {
					c.Logger = log.logger()
					c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
						if hold.Load() && msgs[0].QueueOffset >= 90 {
							<-release // ten are in flight during the reset
						}
						return in.handle(ctx, msgs)
					}
				})
				start(t, e)
				w.send(q, numbered(0, 100)...)
				time.Sleep(20 * time.Second)
				require.EqualValues(t, 90, w.committed(q))
				require.Len(t, in.all(), 90)
				hold.Store(false)
				w.reset(q, to)
				synctest.Wait()
				again := in.all()[90:]
				require.Len(t, again, 100-int(to), "at once, while the others are in flight")
				assert.False(t, slices.ContainsFunc(again, func(d delivery) bool { return d.offset < to }))
				after := len(w.updates(q))
				close(release)
				time.Sleep(time.Minute)
				assert.Len(t, in.all(), 200-int(to), "what was in flight ends, nothing else comes")
				for _, u := range w.updates(q)[after:] {
					assert.LessOrEqual(t, u.offset, int64(100))
				}
				assert.EqualValues(t, 100, w.committed(q))
				w.send(q, "next")
				synctest.Wait()
				assert.Equal(t, "next", in.all()[len(in.all())-1].body)
				assert.Equal(t, 1, countLines(log, "the group was reset, going on"))
				assert.Zero(t, countLines(log, "level=WARN"))
			})
		})
	}
}

func TestCP03TheResetPositionIsCommittedUntilItIsConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		release := make(chan struct{})
		var stuck atomic.Bool
		stuck.Store(true)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Concurrency = 10
			c.Handler = func(context.Context, []*message.Ext) error {
				if stuck.Load() {
					<-release
				}
				return nil
			}
		})
		w.send(q, numbered(0, 100)...)
		w.change(func() { w.brokers["a"].commits[q] = 90 })
		start(t, e)
		synctest.Wait() // ten handlers have 90 to 99; nobody is left to consume anything
		w.reset(q, 60)
		seen := func(step string) {
			for _, u := range w.updates(q) {
				assert.EqualValues(t, 60, u.offset, fmt.Sprint(step, ": no commit passes the reset position"))
			}
			assert.EqualValues(t, 60, w.committed(q), step)
			assert.EqualValues(t, 60, e.Queues()[0].CommitOffset, step)
		}
		time.Sleep(time.Minute)
		seen("while the batch is in flight")
		e.cfg.Pauses.Pause() // nothing is consumed again
		e.PausesChanged()
		close(release)
		time.Sleep(time.Minute)
		seen("after it")
		stuck.Store(false)
		e.cfg.Pauses.Resume()
		e.PausesChanged()
		time.Sleep(time.Minute)
		assert.EqualValues(t, 100, w.committed(q))
	})
}
