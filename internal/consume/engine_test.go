package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

// stubborn returns a handler that ignores its context until release is closed.
func stubborn(release <-chan struct{}) func(context.Context, []*message.Ext) error {
	return func(context.Context, []*message.Ext) error {
		<-release
		return nil
	}
}

func TestCP09ShutdownWaitsForRunningHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, "bad", "good 1", "good 2", "good 3")
		in := &inbox{work: 300 * time.Millisecond, fail: func(m *message.Ext) error {
			if string(m.Body) == "bad" {
				return errors.New("always")
			}
			return nil
		}}
		perCycle := make([]int, 0, 5)
		for cycle := range 5 {
			e, _ := w.member("c1", in, nil)
			require.NoError(t, e.Start(t.Context()))
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			require.NoError(t, e.Shutdown(t.Context()))
			assert.Equal(t, 200*time.Millisecond, time.Since(began))
			assert.Zero(t, e.Status().Running)
			assert.Empty(t, w.members("a"))
			require.NoError(t, e.Close())
			perCycle = append(perCycle, len(in.all()))
			time.Sleep(time.Hour)
			retry, copies := w.retries("a")
			assert.Equal(t, cycle+1, copies, "one copy for each failure")
			assert.EqualValues(t, cycle, max(w.committed(retry), 0), "one of them is pending")
			assert.EqualValues(t, 4, w.committed(q))
		}
		assert.Equal(t, []int{4, 5, 6, 7, 8}, perCycle, "each cycle delivers what is not committed, once")
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 4)...)
		in := &inbox{work: 300 * time.Millisecond}
		for range 5 {
			e, _ := w.member("c1", in, nil)
			require.NoError(t, e.Start(t.Context()))
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, e.Shutdown(t.Context()))
		}
		assert.Equal(t, numbered(0, 4), in.bodies(), "finished messages do not come back")
		assert.Equal(t, int64(4), w.committed(q))
	})
}

func TestCP09ShutdownReturnsAtItsDeadlineAndSaysWhatWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 6)...)
		in := new(inbox)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Concurrency = 4
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				if msgs[0].QueueOffset >= 2 {
					pause(ctx, 300*time.Millisecond)
				}
				return in.handle(ctx, msgs)
			}
		})
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := e.Shutdown(ctx)
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "4 handlers cancelled while they ran, 4 messages pulled but unfinished")
		assert.Equal(t, int64(2), w.committed(q), "what was finished is committed")
		assert.Empty(t, w.members("a"))
		require.NoError(t, e.Close(), "the handlers obeyed their context")
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Equal(t, int64(2), w.committed(q), "an error after the cancellation leaves messages unfinished")
		assert.EqualValues(t, 0, e.Status().Failed)
	})
}

func TestShutdownWithoutTimeStoresNothing(t *testing.T) {
	for name, c := range map[string]struct {
		idle time.Duration // OffsetPersist is 5 s, PullSuspend 15 s
		lost bool
	}{
		"finished a moment ago": {0, true},
		"stored long ago":       {time.Minute + time.Second, false}, // between two rounds
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				e, _ := w.member("c1", new(inbox), func(c *Config) { c.PullErrorDelay = time.Hour })
				require.NoError(t, e.Start(t.Context()))
				w.send(queueOf("a", 0), numbered(0, 6)...)
				synctest.Wait()
				if c.idle > 0 { // no pull that carries a commit is under way
					w.change(func() { w.brokers["a"].answer = refusePulls })
					time.Sleep(c.idle)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := e.Shutdown(ctx)
				if !c.lost {
					assert.NoError(t, err)
					assert.Equal(t, int64(6), w.committed(queueOf("a", 0)))
					return
				}
				assert.ErrorIs(t, err, context.Canceled)
				assert.ErrorIs(t, err, protocol.ErrUnreachable)
				assert.ErrorContains(t, err, "1 queues")
				assert.ErrorContains(t, err, "orders@a:0")
				assert.Empty(t, w.updates(queueOf("a", 0)))
			})
		})
	}
}

func refusePulls(*protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
	return nil, protocol.Errorf(protocol.SystemError, "not now")
}

// finishedAtShutdown starts a member of 8 queues on each of 5 brokers whose
// handler is busy for a second with a message of each, so that nothing is
// committed yet.
func finishedAtShutdown(t *testing.T, edit func(*Config)) (*world, *Engine) {
	t.Helper()
	w := newWorld(t, "a", "b", "c", "d", "e")
	e, _ := w.member("c1", &inbox{work: time.Second}, func(c *Config) {
		c.Concurrency = 40
		if edit != nil {
			edit(c)
		}
	})
	for name := range w.brokers {
		w.topic(testTopic, name, 8)
	}
	require.NoError(t, e.Start(t.Context()))
	for name := range w.brokers {
		for i := range 8 {
			w.send(queueOf(name, i), "x")
		}
	}
	synctest.Wait()
	return w, e
}

func TestCP09ShutdownNamesTheOffsetsThatWereNotStored(t *testing.T) {
	t.Run("broker after broker, within ctx", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, e := finishedAtShutdown(t, nil)
			w.change(func() { w.brokers["b"].silent, w.brokers["d"].down = true, true })
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			err := e.Shutdown(ctx)
			assert.Equal(t, 1500*time.Millisecond, time.Since(began))
			// The last commit of b may wait for the answer to the one before.
			text := strings.Replace(fmt.Sprint(err), "b: no answer to the commit before: ", "b at b: b: ", 1)
			assert.Equal(t, `consume: shutdown of group "g": the last offsets of 16 queues are not known to be stored, the group gets again what was finished there since the commit before, `+
				`give Shutdown more time if the broker is only slow: `+
				`orders@b:0, orders@b:1, orders@b:2 and 5 more: b at b: b: unknown outcome: context deadline exceeded; `+
				`orders@d:0, orders@d:1, orders@d:2 and 5 more: d at d: dial d: unreachable`, text)
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
			assert.ErrorIs(t, err, protocol.ErrUnreachable)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, protocol.ErrHandlersRunning)
			for name := range w.brokers {
				want := int64(1)
				if name == "b" || name == "d" {
					want = -1
				}
				for i := range 8 {
					assert.Equal(t, want, w.committed(queueOf(name, i)), "%s %d: silent brokers delay their own queues only", name, i)
				}
			}
			assert.NoError(t, e.Close())
			assert.Equal(t, 1500*time.Millisecond, time.Since(began))
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			assert.NotContains(t, string(stacks[:runtime.Stack(stacks, true)]), "(*run).", "nothing outlives Close")
		})
	})
	t.Run("the text is bounded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, e := finishedAtShutdown(t, nil)
			w.change(func() {
				for _, b := range w.brokers {
					b.down = true
				}
				w.brokers["e"].down, w.brokers["e"].silent = false, true
			})
			err := e.Shutdown(context.WithoutCancel(t.Context()))
			assert.ErrorContains(t, err, "40 queues")
			assert.ErrorContains(t, err, "orders@c:2 and 5 more")
			assert.ErrorContains(t, err, "; and 2 more brokers")
			assert.NotContains(t, err.Error(), "orders@e")
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome, "also the causes that are not in the text")
		})
	})
	t.Run("a broker that refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, e := finishedAtShutdown(t, nil)
			w.change(func() { w.brokers["a"].refuse = protocol.Errorf(protocol.NoPermission, "no") })
			began := time.Now()
			err := e.Shutdown(t.Context())
			assert.Equal(t, time.Second, time.Since(began))
			assert.ErrorIs(t, err, protocol.ErrNoPermission)
			assert.ErrorContains(t, err, "8 queues")
		})
	})
	t.Run("beside handlers that were cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, e := finishedAtShutdown(t, func(c *Config) {
				c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
					if msgs[0].Queue == queueOf("a", 7) {
						<-ctx.Done()
					}
					pause(ctx, time.Second)
					return ctx.Err()
				}
			})
			w.change(func() { w.brokers["a"].silent = true })
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := e.Shutdown(ctx)
			assert.Equal(t, 2*time.Second, time.Since(began))
			assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
			assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
			assert.ErrorContains(t, err, "1 handlers")
			assert.ErrorContains(t, err, "7 queues")
			for _, name := range []string{"b", "c", "d", "e"} {
				assert.Equal(t, int64(1), w.committed(queueOf(name, 7)))
			}
			assert.NoError(t, e.Close())
		})
	})
}

func TestCP09WhatIsFinishedWhileShutdownWaitsIsStoredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				pause(ctx, time.Duration(1+msgs[0].Queue.QueueID)*time.Second)
				return ctx.Err()
			}
		})
		require.NoError(t, e.Start(t.Context()))
		for i := range 4 {
			w.send(queueOf("a", i), "x")
		}
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		err := e.Shutdown(ctx)
		assert.Equal(t, 3500*time.Millisecond, time.Since(began))
		assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
		assert.NotContains(t, err.Error(), "offsets")
		for i := range 3 {
			q := queueOf("a", i)
			assert.Equal(t, []update{{began.Add(time.Duration(1+i) * time.Second), q, 1}}, w.updates(q))
		}
		assert.Empty(t, w.updates(queueOf("a", 3)))
		assert.NoError(t, e.Close())
	})
}

func TestShutdownEndsWithItsContextWhileUserCodeHangs(t *testing.T) {
	for _, where := range []string{"strategy", "OnRebalanced"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				release := make(chan struct{})
				var started atomic.Bool
				e, _ := w.member("c1", new(inbox), func(c *Config) {
					hang := func(here string) {
						if started.Load() && here == where {
							<-release
						}
					}
					c.Strategy = strategyFunc(func(q []message.Queue, members []string) ([]message.Queue, error) {
						hang("strategy")
						return q[:3-min(len(members), 2)], nil
					})
					c.OnRebalanced = func(Rebalanced) { hang("OnRebalanced") }
				})
				require.NoError(t, e.Start(t.Context()))
				synctest.Wait()
				started.Store(true)
				w.send(queueOf("a", 0), "x")
				synctest.Wait()
				w.change(func() { w.brokers["a"].members["c0"] = true })
				w.topic(testTopic, "a", 3)
				e.RoutesChanged([]string{testTopic})
				synctest.Wait()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := e.Shutdown(ctx)
				assert.Equal(t, time.Second, time.Since(began))
				assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
				assert.ErrorContains(t, err, "strategy or OnRebalanced")
				close(release)
				assert.NoError(t, e.Close())
				assert.Equal(t, time.Second, time.Since(began))
			})
		})
	}
}

func TestShutdownThatBecomesACloseStillTellsWhatWasNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e := finishedAtShutdown(t, nil)
		w.change(func() { w.brokers["a"].silent = true })
		began := time.Now()
		time.AfterFunc(1500*time.Millisecond, func() { assert.NoError(t, e.Close()) })
		err := e.Shutdown(context.WithoutCancel(t.Context()))
		assert.Equal(t, 4*time.Second, time.Since(began), "3 s after the handlers")
		assert.ErrorIs(t, err, protocol.ErrUnknownOutcome)
		assert.ErrorContains(t, err, "8 queues")
		synctest.Wait()
	})
}

func TestShutdownLeavesWhatWasNotStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 100)...)
		in := &inbox{work: time.Second}
		e, _ := w.member("c1", in, func(c *Config) { c.Concurrency = 5 })
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(1500 * time.Millisecond)
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Len(t, in.all(), 10)
		assert.Equal(t, int64(10), w.committed(q))
	})
}

func TestCloseCancelsHandlersAndCommitsWhatIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 3)...)
		var causes []error
		var mu sync.Mutex
		e, c := w.member("c1", nil, func(c *Config) {
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				if msgs[0].QueueOffset == 0 {
					return nil
				}
				<-ctx.Done()
				mu.Lock()
				causes = append(causes, context.Cause(ctx))
				mu.Unlock()
				if msgs[0].QueueOffset == 1 {
					return nil // finished in spite of the cancellation
				}
				return ctx.Err()
			}
		})
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		began := time.Now()
		require.NoError(t, e.Close())
		assert.Equal(t, began, time.Now(), "also the held pull ends at once")
		assert.Equal(t, int64(2), w.committed(q))
		assert.Equal(t, []error{protocol.ErrClosed, protocol.ErrClosed}, causes)
		assert.Equal(t, Status{Received: 3, Consumed: 2}, e.Status())
		assert.Empty(t, w.members("a"))
		assert.Zero(t, c.watching(testTopic))
		require.NoError(t, e.Close())
		assert.ErrorIs(t, e.Start(t.Context()), protocol.ErrClosed)
	})
}

func TestCloseGivesUpOnHandlersThatIgnoreTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 2)...)
		release := make(chan struct{})
		e, _ := w.member("c1", nil, func(c *Config) { c.Handler = stubborn(release) })
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()

		began := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				err := e.Close()
				assert.ErrorIs(t, err, protocol.ErrHandlersRunning)
				assert.ErrorContains(t, err, "2 handlers")
				assert.Equal(t, 10*time.Second, time.Since(began), "concurrent calls share one wait")
			})
		}
		wg.Wait()
		assert.Equal(t, int64(0), w.committed(q))
		assert.Empty(t, w.members("a"), "it left the group all the same")
		assert.ErrorIs(t, e.Close(), protocol.ErrHandlersRunning)
		assert.Equal(t, 20*time.Second, time.Since(began))
		assert.Equal(t, 2, e.Status().Running)

		time.AfterFunc(3*time.Second, func() { close(release) })
		require.NoError(t, e.Close())
		assert.Equal(t, 23*time.Second, time.Since(began))
		require.NoError(t, e.Close())
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Equal(t, int64(0), w.committed(q), "what finished too late does not count")
	})
}

func TestCloseFromInsideAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), "x")
		var e *Engine
		result := make(chan error, 1)
		e, _ = w.member("c1", nil, func(c *Config) {
			c.Handler = func(context.Context, []*message.Ext) error {
				result <- e.Close()
				return nil
			}
		})
		began := time.Now()
		require.NoError(t, e.Start(t.Context()))
		assert.ErrorIs(t, <-result, protocol.ErrHandlersRunning)
		assert.Equal(t, 10*time.Second, time.Since(began))
		require.NoError(t, e.Close())
	})
}

func TestCloseFromOnRebalancedAndFromAStrategyDoesNotDeadlock(t *testing.T) {
	for _, from := range []string{"start", "members changed"} {
		t.Run("OnRebalanced "+from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 2)
				var e *Engine
				result := make(chan error, 1)
				e, _ = w.member("c1", new(inbox), func(c *Config) {
					c.OnRebalanced = func(r Rebalanced) {
						if r.Reason == from {
							result <- e.Close()
						}
					}
				})
				require.NoError(t, e.Start(t.Context()))
				other, _ := w.member("c2", new(inbox), nil)
				require.NoError(t, other.Start(t.Context()))
				assert.ErrorIs(t, <-result, protocol.ErrHandlersRunning)
				require.NoError(t, e.Close())
				require.NoError(t, other.Close())
			})
		})
	}
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.topic(testTopic, "a", 2)
			var e *Engine
			result := make(chan error, 10)
			rounds := 0
			e, _ = w.member("c1", new(inbox), func(c *Config) {
				c.Strategy = strategyFunc(func(q []message.Queue, _ []string) ([]message.Queue, error) {
					rounds++
					if (rounds == 1) == first {
						result <- e.Close()
						return q[1:], nil
					}
					return q, nil
				})
			})
			err := e.Start(t.Context())
			if first {
				assert.ErrorIs(t, err, protocol.ErrClosed)
			} else {
				require.NoError(t, err)
			}
			e.MembersChanged()
			assert.ErrorIs(t, <-result, protocol.ErrHandlersRunning)
			synctest.Wait()
			assert.Empty(t, e.Assignment())
			require.NoError(t, e.Close())
		})
	}
}

func TestCloseTurnsAShutdownIntoAClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), "x")
		e, _ := w.member("c1", &inbox{work: time.Hour}, nil)
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		began := time.Now()
		time.AfterFunc(time.Minute, func() { assert.NoError(t, e.Close()) })
		assert.NoError(t, e.Shutdown(context.WithoutCancel(t.Context())))
		assert.Equal(t, time.Minute, time.Since(began))
	})
}

func TestSecondShutdownWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), "x")
		e, _ := w.member("c1", &inbox{work: 10 * time.Second}, nil)
		require.NoError(t, e.Start(t.Context()))
		synctest.Wait()
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, e.Shutdown(t.Context())) })
		wg.Go(func() {
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := e.Shutdown(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, ErrUnderWay)
			assert.Equal(t, 2*time.Second, time.Since(began))
			assert.NoError(t, e.Shutdown(t.Context()))
			assert.Equal(t, 10*time.Second, time.Since(began))
		})
		wg.Wait()
	})
}

func TestLifeBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e, _ := w.member("c1", new(inbox), nil)
		e.MembersChanged()
		e.RoutesChanged([]string{testTopic})
		assert.Empty(t, e.Assignment())
		assert.Equal(t, Status{}, e.Status())
		assert.Len(t, e.ConsumerData().Subscriptions, 2, "the group's retry topic is one of them")
		require.NoError(t, e.Close())
		require.NoError(t, e.Shutdown(t.Context()))
		assert.ErrorIs(t, e.Start(t.Context()), protocol.ErrClosed)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e, _ := w.member("c1", new(inbox), nil)
		start(t, e)
		assert.ErrorContains(t, e.Start(t.Context()), "started already")
	})
}

func TestStartFailsWhenABrokerDoesNotAnswerAndMayBeRepeated(t *testing.T) {
	silences := map[string]func(b *fakeBroker, on bool){
		"silent": func(b *fakeBroker, on bool) { b.silent = on },
		"down":   func(b *fakeBroker, on bool) { b.down = on },
	}
	for name, silence := range silences {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.topic(testTopic, "a", 1)
				w.topic(testTopic, "b", 1)
				in := new(inbox)
				e, c := w.member("c1", in, nil)
				w.change(func() { silence(w.brokers["b"], true) })
				w.send(queueOf("a", 0), "x")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				err := e.Start(ctx)
				assert.Equal(t, 10*time.Second, time.Since(began))
				assert.ErrorIs(t, err, protocol.ErrTimeout)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.ErrorContains(t, err, "b at b")
				assert.Empty(t, in.all(), "nothing is handled by a start that fails")
				assert.Empty(t, w.members("a"), "nothing is left in the group")
				assert.Empty(t, e.Assignment())
				assert.Zero(t, c.watching(testTopic))

				w.change(func() { silence(w.brokers["b"], false) })
				start(t, e)
				assert.Len(t, e.Assignment(), 2)
				synctest.Wait()
				assert.Equal(t, []string{"x"}, in.bodies())
			})
		})
	}
}

func TestStartGoesOnWhenTheBrokerComesBackInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		e, _ := w.member("c1", new(inbox), nil)
		w.change(func() { w.brokers["a"].down = true })
		time.AfterFunc(2500*time.Millisecond, func() { w.change(func() { w.brokers["a"].down = false }) })
		began := time.Now()
		start(t, e)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Len(t, e.Assignment(), 1)
	})
}

func TestStartFailsAtOnceWhenTryingAgainCannotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.noNames = true
		e, _ := w.member("c1", new(inbox), nil)
		began := time.Now()
		assert.ErrorIs(t, e.Start(t.Context()), protocol.ErrUnreachable)
		assert.Equal(t, began, time.Now())
	})
}

func TestCloseDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.change(func() { w.brokers["a"].down = true })
		e, _ := w.member("c1", new(inbox), nil)
		began := time.Now()
		time.AfterFunc(1700*time.Millisecond, func() { assert.NoError(t, e.Close()) })
		assert.ErrorIs(t, e.Start(t.Context()), protocol.ErrClosed)
		assert.Equal(t, 1700*time.Millisecond, time.Since(began))
		synctest.Wait()
		assert.ErrorIs(t, e.Start(t.Context()), protocol.ErrClosed)
	})
}

func TestLK03EveryCallIsSafeWhileTheEngineCloses(t *testing.T) {
	for round := range 30 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "a")
			w.topic(testTopic, "a", 4)
			e, _ := w.member("c1", new(inbox), nil)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						w.send(queueOf("a", i%4), "x")
						e.MembersChanged()
						e.RoutesChanged([]string{testTopic})
						e.Assignment()
						e.Status()
						e.ConsumerData()
						time.Sleep(time.Millisecond)
					}
				})
			}
			if round%3 > 0 {
				require.NoError(t, e.Start(t.Context()))
			} else {
				wg.Go(func() { _ = e.Start(t.Context()) }) // Close may come before, during or after
			}
			time.Sleep(time.Duration(round) * 100 * time.Microsecond)
			for i := range 3 {
				wg.Go(func() {
					if i == round%2 {
						assert.NoError(t, e.Shutdown(t.Context()))
					} else {
						assert.NoError(t, e.Close())
					}
				})
			}
			time.Sleep(10 * time.Millisecond)
			close(stop)
			wg.Wait()
			assert.Empty(t, e.Assignment())
			require.NoError(t, e.Close())
		})
	}
}

func TestCloseIsBoundedWhenBrokersAreSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 8)
		w.topic(testTopic, "b", 8)
		log := new(lines)
		e, _ := w.member("c1", new(inbox), func(c *Config) { c.Logger = log.logger() })
		require.NoError(t, e.Start(t.Context()))
		for i := range 8 {
			w.send(queueOf("a", i), "x")
			w.send(queueOf("b", i), "x")
		}
		synctest.Wait()
		w.change(func() { w.brokers["a"].silent = true })
		began := time.Now()
		require.NoError(t, e.Close())
		assert.LessOrEqual(t, time.Since(began), leaveTimeout)
		assert.Equal(t, 1, countLines(log, "offsets not committed"), "once for the broker")
		assert.Contains(t, log.String(), "orders@a:0, orders@a:1, orders@a:2 and 5 more")
		for i := range 8 {
			assert.Equal(t, int64(1), w.committed(queueOf("b", i)))
		}
		w.change(func() { w.brokers["a"].silent = false })
	})
}
