package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestMessagesReachTheHandlerInTheInstantTheyAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		start(t, e)
		q := queueOf("a", 0)
		sent := time.Now()
		w.send(q, numbered(0, 100)...)
		synctest.Wait()
		require.Len(t, in.all(), 100)
		for _, d := range in.all() {
			assert.Equal(t, sent, d.at)
			assert.Equal(t, q, d.queue)
			assert.Zero(t, d.times)
		}
		assert.Equal(t, Status{Received: 100, Consumed: 100}, e.Status())
	})
}

func TestPullCarriesTheRequestThatBrokersExpect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		started := time.Now()
		start(t, e)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 3)...)
		synctest.Wait()
		time.Sleep(15 * time.Second) // one held pull ends
		synctest.Wait()
		pulls := w.pulls(q)
		require.Len(t, pulls, 3)
		first := protocol.PullMessageRequest{Group: testGroup, Topic: testTopic, MaxMessages: 32, Suspend: 15 * time.Second,
			ExpressionType: "TAG", SubVersion: started.UnixMilli()}
		assert.Equal(t, first, pulls[0].req, "nothing to commit at offset 0")
		assert.Equal(t, int64(3), pulls[1].req.Offset)
		assert.Equal(t, int64(3), pulls[2].req.Offset)
		assert.True(t, pulls[2].req.Commit)
		assert.Equal(t, int64(3), pulls[2].req.CommitOffset)
		assert.Equal(t, 15*time.Second, pulls[2].at.Sub(pulls[1].at))
	})
}

func TestPullWaitsWhileTheQueueIsFull(t *testing.T) {
	limits := map[string]struct {
		edit func(*Config)
		held int // messages that may be cached before pulls stop
	}{
		"messages":                     {func(c *Config) { c.MaxCached = 100 }, 96},
		"a cache smaller than a batch": {func(c *Config) { c.MaxCached = 5 }, 5},
		"bytes":                        {func(c *Config) { c.MaxCachedBytes = 1 }, 32},
		"total":                        {func(c *Config) { c.MaxCachedTotal = 1 }, 32},
		"span":                         {func(c *Config) { c.MaxSpan = 40 }, 64},
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.send(q, numbered(0, 500)...)
				release := make(chan struct{})
				e, _ := w.member("c1", nil, func(c *Config) {
					c.Concurrency = 1
					c.Handler = func(ctx context.Context, _ []*message.Ext) error {
						select {
						case <-release:
						case <-ctx.Done():
						}
						return ctx.Err()
					}
					limit.edit(c)
				})
				start(t, e)
				synctest.Wait()
				require.EqualValues(t, limit.held, e.Status().Received)
				before := len(w.pulls(q))
				time.Sleep(time.Hour)
				assert.Len(t, w.pulls(q), before, "a waiting pull loop does nothing")

				for e.Status().Received == int64(limit.held) { // the first acknowledgement that makes room
					release <- struct{}{}
					synctest.Wait()
				}
				at := w.pulls(q)[before].at
				assert.Equal(t, time.Now(), at, "woken by the acknowledgement")
				close(release)
				synctest.Wait()
				assert.EqualValues(t, 500, e.Status().Consumed)
			})
		})
	}
}

func TestPullsOfOtherQueuesWakeWhenTheTotalHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		w.send(queueOf("a", 0), numbered(0, 32)...)
		in := &inbox{work: time.Second}
		e, _ := w.member("c1", in, func(c *Config) { c.MaxCachedTotal = 1; c.PullSuspend = 100 * time.Millisecond })
		start(t, e)
		synctest.Wait()
		for id := 1; id < 4; id++ {
			w.send(queueOf("a", id), numbered(id*100, id*100+40)...)
		}
		time.Sleep(time.Minute)
		assert.EqualValues(t, 32+3*40, e.Status().Consumed)
	})
}

func TestPullFailureIsTriedAgainAfterPullErrorDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.noRetry = true
		w.topic(testTopic, "a", 1)
		log := new(lines)
		in := new(inbox)
		e, c := w.member("c1", in, func(c *Config) { c.Logger = log.logger() })
		start(t, e)
		q := queueOf("a", 0)
		synctest.Wait()
		w.change(func() { w.brokers["a"].down = true; w.brokers["a"].epoch++ })
		synctest.Wait()
		assert.EqualValues(t, 1, c.lost.Load())
		time.Sleep(7 * time.Second)
		w.change(func() { w.brokers["a"].down = false })
		w.send(q, "x")
		time.Sleep(2*time.Second - 1)
		synctest.Wait()
		assert.Empty(t, in.all())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies(), "the third attempt, 9 s after the first failure")
		assert.Equal(t, 1, countLines(log, "pull failed"), "a series of failures is one warning")
		assert.Equal(t, 1, countLines(log, "pulls work again"))
	})
}

func countLines(l *lines, text string) int { return strings.Count(l.String(), text) }

func TestSilentBrokerEndsAPullAfterSuspendAndSlack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.noRetry = true
		w.topic(testTopic, "a", 1)
		e, c := w.member("c1", new(inbox), nil)
		start(t, e)
		synctest.Wait()
		w.change(func() { w.brokers["a"].silent = true })
		time.Sleep(45*time.Second - 1) // the held pull ends after 15 s, the next one is never answered
		synctest.Wait()
		assert.Zero(t, c.lost.Load())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.EqualValues(t, 1, c.lost.Load())
		w.change(func() { w.brokers["a"].silent = false })
	})
}

func TestSlaveIsPulledWithoutACommitWhenTheMasterIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		start(t, e)
		w.send(q, "x")
		time.Sleep(5 * time.Second)
		w.change(func() { w.slaves = true; w.brokers["a"].epoch++ })
		time.Sleep(5 * time.Second)
		w.send(q, "y")
		synctest.Wait()
		assert.Equal(t, []string{"x", "y"}, in.bodies())
		pulls := w.pulls(q)
		require.Len(t, pulls, 4)
		assert.Equal(t, []int64{0, 1, 1, 2}, []int64{pulls[0].req.Offset, pulls[1].req.Offset, pulls[2].req.Offset, pulls[3].req.Offset})
		assert.False(t, pulls[2].req.Commit)
		assert.False(t, pulls[3].req.Commit)
	})
}

func TestBrokerWithoutAnAddressIsLookedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		in := new(inbox)
		e, _ := w.member("c1", in, nil)
		start(t, e)
		synctest.Wait()
		var gone *fakeBroker
		w.change(func() { gone = w.brokers["a"]; gone.epoch++; gone.changedLocked(); delete(w.brokers, "a") })
		time.Sleep(10 * time.Second)
		w.change(func() { w.brokers["a"] = gone })
		w.send(queueOf("a", 0), "x")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"x"}, in.bodies())
	})
}

func TestBrokerThatForgotTheSubscriptionGetsAHeartbeat(t *testing.T) {
	for _, forgot := range []protocol.Code{protocol.SubscriptionNotExist, protocol.SubscriptionNotLatest, protocol.SubscriptionGroupNotExist} {
		t.Run(fmt.Sprint(forgot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				in := new(inbox)
				e, _ := w.member("c1", in, nil)
				start(t, e)
				synctest.Wait()
				before := w.calls("a", "Heartbeat")
				w.change(func() {
					w.brokers["a"].answer = func(*protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
						w.change(func() { w.brokers["a"].answer = nil })
						return nil, protocol.Errorf(forgot, "unknown")
					}
				})
				w.send(queueOf("a", 0), "x") // ends the held pull; the next one is refused
				synctest.Wait()
				w.send(queueOf("a", 0), "y")
				synctest.Wait()
				assert.Equal(t, []string{"x"}, in.bodies())
				assert.Equal(t, before+1, w.calls("a", "Heartbeat"))
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Equal(t, []string{"x", "y"}, in.bodies(), "after RebalanceRetry")
			})
		})
	}
}

func TestMovedOffsetIsAdoptedInPlace(t *testing.T) {
	for name, next := range map[string]int64{"forwards": 70, "backwards": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.noRetry = true // and so no send: a failed message waits here
				w.brokers["a"].back = func(context.Context, *protocol.ConsumerSendMsgBackRequest) error { return errors.New("no") }
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.change(func() { w.brokers["a"].queues[q].min = 10 })
				w.send(q, numbered(10, 50)...)
				w.change(func() { w.brokers["a"].commits[q] = 30 })
				in := &inbox{fail: func(m *message.Ext) error {
					if m.QueueOffset == 35 && m.ReconsumeTimes == 0 {
						return errors.New("no")
					}
					return nil
				}}
				e, _ := w.member("c1", in, nil)
				start(t, e)
				synctest.Wait()
				require.Len(t, in.all(), 20)
				w.change(func() {
					k := w.brokers["a"].queues[q]
					if next == 70 { // everything was deleted
						k.min, k.records = 70, nil
					} else { // the tail was lost
						k.records = k.records[:10]
					}
				})
				synctest.Wait()
				assert.Equal(t, min(next, 35), w.committed(q), "at once; the failed message is not done")
				w.send(q, "new")
				synctest.Wait()
				last := in.all()[len(in.all())-1]
				assert.Equal(t, delivery{at: time.Now(), body: "new", queue: q, offset: next}, last)
				time.Sleep(time.Minute)
				if next > 35 {
					assert.Len(t, in.all(), 22, "what was deleted at the broker is here still")
				} else {
					assert.Len(t, in.all(), 21, "the failed message is none of the queue any more")
				}
				assert.Equal(t, next+1, w.committed(q))
				assert.Equal(t, []message.Queue{q}, e.Assignment())
			})
		})
	}
}

func TestAnswerThatNeitherMovesNorWasHeldIsNotRepeatedAtOnce(t *testing.T) {
	answers := map[string]protocol.PullMessageResponse{
		"a slave that has not come this far": {Code: protocol.PullRetryImmediately},
		"nothing at once":                    {Code: protocol.PullNotFound},
		"found, but nothing in it":           {Code: protocol.Success},
		"moved to where it is":               {Code: protocol.PullOffsetMoved},
		"a code of another call":             {Code: protocol.QueryNotFound},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				w.brokers["a"].answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
					a := answer
					a.NextBeginOffset = r.Offset
					return &a, nil
				}
				e, _ := w.member("c1", new(inbox), nil)
				start(t, e)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				want := 4
				if answer.Code == protocol.PullOffsetMoved {
					want = 5 // told once, it may be a reset
				}
				assert.Len(t, w.pulls(queueOf("a", 0)), want, "at 0, 3, 6 and 9 s")
			})
		})
	}
}

// A broker that has less than was pulled says nothing about what it has.
func TestMessagesBeforeTheEndOfAQueueThatIsShorterAreConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		in := new(inbox)
		release := make(chan struct{})
		e, _ := w.member("c1", nil, func(c *Config) {
			c.Concurrency = 1
			c.Handler = func(ctx context.Context, msgs []*message.Ext) error {
				<-release // the first one; the others are cached
				return in.handle(ctx, msgs)
			}
		})
		start(t, e)
		w.send(q, numbered(0, 10)...)
		synctest.Wait()
		w.change(func() { // its end is lost, and others come to be there
			k := w.brokers["a"].queues[q]
			k.records = k.records[:7]
		})
		synctest.Wait()
		w.send(q, "m10", "m11")
		time.Sleep(time.Minute)
		assert.Zero(t, w.committed(q), "nothing is done")
		close(release)
		time.Sleep(time.Minute)
		want := append(numbered(0, 7), "m10", "m11")
		slices.Sort(want)
		assert.Equal(t, want, in.bodies())
		assert.EqualValues(t, 9, w.committed(q))
	})
}

func TestFI01EqualHashesAreToldApartAndTheOffsetGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		tags, err := filter.ParseTags("Aa")
		require.NoError(t, err)
		in := new(inbox)
		e, _ := w.member("c1", in, func(c *Config) { c.Subscriptions = map[string]filter.Tags{testTopic: tags} })
		start(t, e)
		q := queueOf("a", 0)
		w.sendTagged(q, "BB", numbered(0, 100)...)
		w.sendTagged(q, "Aa", "wanted")
		w.sendTagged(q, "BB", numbered(100, 110)...)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"wanted"}, in.bodies())
		assert.Equal(t, int64(111), w.committed(q), "two commits later, without further traffic")
		assert.EqualValues(t, 1, e.Status().Received)
	})
}

func TestEmptyAnswersMoveTheCommitOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.brokers["a"].answer = func(r *protocol.PullMessageRequest) (*protocol.PullMessageResponse, error) {
			w.change(func() { w.brokers["a"].answer = nil })
			return &protocol.PullMessageResponse{Code: protocol.PullRetryImmediately, NextBeginOffset: 50}, nil
		}
		w.send(queueOf("a", 0), numbered(0, 50)...) // scanned without a match, says the answer
		e, _ := w.member("c1", new(inbox), nil)
		start(t, e)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, int64(50), w.committed(queueOf("a", 0)))
	})
}

func TestUndecodableRecordIsReportedAndPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		q := queueOf("a", 0)
		w.send(q, numbered(0, 6)...)
		compressed, err := message.AppendRecord(nil, &message.Record{QueueOffset: 3, Topic: testTopic, Body: []byte("not zlib"), SysFlag: message.FlagCompressed})
		require.NoError(t, err)
		w.change(func() {
			w.brokers["a"].queues[q].records[1] = []byte("no record at all")
			w.brokers["a"].queues[q].records[3] = compressed
		})
		log := new(lines)
		in := new(inbox)
		e, _ := w.member("c1", in, func(c *Config) { c.Logger = log.logger(); c.BatchSize = 10 })
		start(t, e)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"m0", "m2", "m4", "m5"}, in.bodies())
		assert.Equal(t, int64(6), w.committed(q))
		assert.Equal(t, Status{Received: 5, Consumed: 4, Undecodable: 2}, e.Status())
		assert.Equal(t, 2, countLines(log, "level=ERROR"))
	})
}
