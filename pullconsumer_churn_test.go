package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
)

// ledger is what pull consumers of a group were given, and what they may commit:
// by queue, the offset behind the last message that any Poll has returned.
type ledger struct {
	mu     sync.Mutex
	bodies map[string]int
	behind map[pocketmq.MessageQueue]int64
}

func newLedger() *ledger {
	return &ledger{bodies: make(map[string]int), behind: make(map[pocketmq.MessageQueue]int64)}
}

func (l *ledger) note(msgs []*pocketmq.MessageExt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range msgs {
		l.bodies[string(m.Body)]++
		l.behind[m.Queue] = max(l.behind[m.Queue], m.QueueOffset+1)
	}
}

func (l *ledger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.bodies)
}

// work polls until the consumer ends, by Poll or Messages.
func (l *ledger) work(co *pocketmq.PullConsumer, iterate bool) error {
	ctx := context.Background()
	if iterate {
		for m, err := range co.Messages(ctx) {
			if err != nil {
				return err
			}
			l.note([]*pocketmq.MessageExt{m})
		}
	}
	for {
		msgs, err := co.Poll(ctx)
		if err != nil {
			return err
		}
		l.note(msgs)
	}
}

// check tells whether every number came, and no offset was committed that nobody
// had got to.
func (l *ledger) check(t *testing.T, c *pocketmq.Cluster, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var missing []int
	for i := range n {
		if l.bodies[fmt.Sprint(i)] == 0 {
			missing = append(missing, i)
		}
	}
	assert.Empty(t, missing, "nobody got these")
	for b := range c.Brokers() {
		g, ok := b.Group("g")
		if !ok {
			continue
		}
		for _, q := range g.Queues {
			if q.Queue.Topic == "T" {
				assert.LessOrEqual(t, q.Committed, l.behind[q.Queue], "%v", q.Queue)
			}
		}
	}
}

// The case as it was reported: one consumer on 4 queues, another one comes and
// goes 20 times.
func TestRB07_PullConsumersLoseNothingWhileMembersChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		l := newLedger()
		var working sync.WaitGroup
		a := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		working.Go(func() { assert.ErrorIs(t, l.work(a, false), pocketmq.ErrClosed) })
		sent := 0
		for round := range 20 {
			b := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
			working.Go(func() { assert.ErrorIs(t, l.work(b, round%2 == 0), pocketmq.ErrClosed) })
			for range 100 {
				_, err := p.Send(t.Context(), text("T", "%d", sent))
				require.NoError(t, err)
				sent++
				if sent%7 == 0 {
					time.Sleep(17 * time.Millisecond)
				}
			}
			require.NoError(t, b.Close())
		}
		time.Sleep(time.Minute)
		l.check(t, c, sent)
		require.NoError(t, a.Close())
		working.Wait()
	})
}

// Members join, leave, and die silently, in an order that a seed decides; some
// commit by hand, some leave their last messages, links come and go.
func TestRB07_PullConsumersLoseNothingWhenMembersDie(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, rand.Uint64()} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 7))
				c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				l := newLedger()
				var working sync.WaitGroup
				var members []*pocketmq.PullConsumer
				join := func() {
					manual := rng.IntN(3) == 0
					co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: manual, PullBatchSize: 1 + rng.IntN(20)})
					members = append(members, co)
					iterate := rng.IntN(2) == 0
					working.Go(func() {
						if !manual {
							assert.ErrorIs(t, l.work(co, iterate), pocketmq.ErrClosed)
							return
						}
						for {
							msgs, err := co.Poll(context.Background())
							if err != nil {
								assert.ErrorIs(t, err, pocketmq.ErrClosed)
								return
							}
							l.note(msgs)
							_ = co.Commit(context.Background()) // fails while links are cut
						}
					})
				}
				join()
				sent := 0
				for range 60 {
					for range 20 + rng.IntN(30) {
						_, err := p.Send(t.Context(), text("T", "%d", sent))
						require.NoError(t, err)
						sent++
					}
					time.Sleep(time.Duration(rng.IntN(10_000)) * time.Millisecond)
					at := rng.IntN(len(members))
					switch co := members[at]; {
					case len(members) < 2 || rng.IntN(3) == 0:
						join()
					case rng.IntN(2) == 0:
						members = slices.Delete(members, at, at+1)
						assert.NoError(t, co.Close())
					default: // it falls silent, and polls on what it has
						members = slices.Delete(members, at, at+1)
						links(t, c).Drop(co.ClientID(), "*")
						links(t, c).Drop("*", co.ClientID())
						time.Sleep(time.Duration(rng.IntN(200)) * time.Second)
						assert.NoError(t, co.Close())
						links(t, c).HealAll()
					}
				}
				if len(members) == 0 {
					join()
				}
				time.Sleep(5 * time.Minute)
				l.check(t, c, sent)
				var held []pocketmq.MessageQueue
				for _, co := range members {
					held = append(held, co.Assignment()...)
				}
				for _, co := range members {
					require.NoError(t, co.Close())
				}
				assert.ElementsMatch(t, queuesOf(4, "broker-a", "broker-b"), held, "each queue has one owner")
				working.Wait()
			})
		})
	}
}

// The same on the real scheduler, for the race detector.
func TestRB07_PullConsumersLoseNothingOnTheRealScheduler(t *testing.T) {
	t.Parallel()
	c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}, Timings: mqtest.Fast()})
	p := producer(t, c, pocketmq.ProducerConfig{})
	l := newLedger()
	var working sync.WaitGroup
	var members []*pocketmq.PullConsumer
	join := func(i int) {
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		members = append(members, co)
		for range 2 { // two goroutines poll one consumer
			working.Go(func() { assert.ErrorIs(t, l.work(co, i%2 == 0), pocketmq.ErrClosed) })
		}
	}
	join(0)
	sent := 0
	for i := range 12 {
		join(i)
		for range 100 {
			_, err := p.Send(t.Context(), text("T", "%d", sent))
			require.NoError(t, err)
			sent++
		}
		if i%3 != 0 {
			require.NoError(t, members[0].Close())
			members = members[1:]
		}
	}
	require.Eventually(t, func() bool { return l.distinct() == sent }, 20*time.Second, 10*time.Millisecond, "%d of %d", l.distinct(), sent)
	for _, co := range members {
		require.NoError(t, co.Close())
	}
	working.Wait()
	l.check(t, c, sent)
}

func TestLK03_UsingAPullConsumerWhileItCloses(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for round := range rounds(30) {
			cfg := pocketmq.PullConsumerConfig{Group: fmt.Sprint("g", round)}
			if round%2 == 0 {
				cfg.Subscriptions = all("T")
			}
			co := puller(t, c, cfg)
			q := queue("T", "broker-a", 0)
			calls := []func(ctx context.Context) error{
				func(ctx context.Context) error { _, err := co.Poll(ctx); return err },
				func(ctx context.Context) error {
					for _, err := range co.Messages(ctx) {
						if err != nil {
							return err
						}
					}
					return nil
				},
				func(ctx context.Context) error { return co.Seek(ctx, q, 0) },
				func(ctx context.Context) error { return co.SeekTime(ctx, q, time.Now()) },
				func(ctx context.Context) error { return co.Commit(ctx) },
				func(ctx context.Context) error { _, err := co.Committed(ctx, q); return err },
				func(ctx context.Context) error { _, err := co.Pull(ctx, q, 0, 1); return err },
				func(ctx context.Context) error { _, err := co.Queues(ctx, "T"); return err },
				func(ctx context.Context) error {
					if round%2 == 0 {
						return co.Subscribe(ctx, "T", pocketmq.Filter{})
					}
					return co.Assign(ctx, q, queue("T", "broker-a", 1))
				},
				func(context.Context) error { co.Pause(q); co.Resume(); return co.Assign(context.Background()) },
			}
			var running sync.WaitGroup
			for _, call := range calls {
				running.Go(func() {
					for {
						err := call(t.Context())
						if errors.Is(err, pocketmq.ErrClosed) {
							return
						}
						if err != nil {
							assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig) // not held, or the other mode
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			sendNumbers(t, p, q, 0, 5)
			time.Sleep(time.Duration(round) * time.Millisecond)
			begin := time.Now()
			assert.NoError(t, co.Close())
			running.Wait()
			assert.Less(t, time.Since(begin), time.Second)
		}
	})
}

func TestAPullConsumerEndsWithItsPolls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, p, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		for _, stop := range []func(*pocketmq.PullConsumer) error{
			(*pocketmq.PullConsumer).Close,
			func(co *pocketmq.PullConsumer) error { return co.Shutdown(context.Background()) },
			func(*pocketmq.PullConsumer) error { return c.Close() },
		} {
			co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
			var waiting sync.WaitGroup
			for range 3 {
				waiting.Go(func() {
					msgs, err := co.Poll(context.Background())
					assert.Nil(t, msgs)
					assert.ErrorIs(t, err, pocketmq.ErrClosed)
				})
			}
			synctest.Wait()
			begin := time.Now()
			require.NoError(t, stop(co))
			waiting.Wait()
			assert.Zero(t, time.Since(begin))
			_, err := co.Poll(t.Context())
			assert.ErrorIs(t, err, pocketmq.ErrClosed)
			for name, err := range map[string]error{
				"Start": co.Start(t.Context()), "Commit": co.Commit(t.Context()), "Seek": co.Seek(t.Context(), q, 0),
				"Assign": co.Assign(t.Context(), q), "Subscribe": co.Subscribe(t.Context(), "T", pocketmq.Filter{}),
			} {
				assert.ErrorIs(t, err, pocketmq.ErrClosed, name)
			}
			assert.Nil(t, co.Assignment())
			assert.NoError(t, co.Close())
		}
		_ = p
	})
}

func TestAPullConsumerThatHasNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 0, pocketmq.ClusterConfig{})
		co, err := pocketmq.NewPullConsumer(pocketmq.PullConsumerConfig{Group: "g", InstanceName: "one", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T")})
		require.NoError(t, err)
		_, err = co.Poll(t.Context())
		assert.ErrorIs(t, err, pocketmq.ErrNotStarted)
		for _, err := range co.Messages(t.Context()) {
			assert.ErrorIs(t, err, pocketmq.ErrNotStarted)
		}
		assert.ErrorIs(t, co.Commit(t.Context()), pocketmq.ErrNotStarted)
		assert.ErrorIs(t, co.Seek(t.Context(), q, 0), pocketmq.ErrNotStarted)
		assert.Nil(t, co.Assignment())
		co.Pause()
		require.NoError(t, co.Start(t.Context()))
		_, err = c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "g", InstanceName: "one"})
		assert.ErrorIs(t, err, pocketmq.ErrDuplicateClient)
		require.NoError(t, co.Close())

		fresh, err := pocketmq.NewPullConsumer(pocketmq.PullConsumerConfig{Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport()})
		require.NoError(t, err)
		require.NoError(t, fresh.Close(), "nothing to close")
	})
}

func TestAPullConsumersCloseDoesNotWaitForSilentBrokers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _, q := queueOf(t, 30, pocketmq.ClusterConfig{})
		co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		polled(t, co)
		polled(t, co)
		links(t, c).Drop(co.ClientID(), "broker-a/0")
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := co.Shutdown(ctx)
		assert.Equal(t, time.Second, time.Since(begin))
		assert.ErrorIs(t, err, pocketmq.ErrUnknownOutcome)
		assert.ErrorContains(t, err, q.String())
		links(t, c).HealAll()

		co = puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T")})
		polled(t, co)
		polled(t, co)
		links(t, c).Drop(co.ClientID(), "broker-a/0")
		begin = time.Now()
		assert.NoError(t, co.Close())
		assert.LessOrEqual(t, time.Since(begin), 3*time.Second)
		links(t, c).HealAll()
	})
}

// A reset is news for whoever polls: it takes effect at once, and what was fetched
// before does not count.
func TestAResetReachesAPullConsumer(t *testing.T) {
	for _, manual := range []bool{false, true} {
		t.Run(fmt.Sprint("manual commit ", manual), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				c, p, q := queueOf(t, 100, pocketmq.ClusterConfig{OnEvent: events.add})
				co := puller(t, c, pocketmq.PullConsumerConfig{Subscriptions: all("T"), ManualCommit: manual})
				assert.Equal(t, between(0, 100), drained(t, co))
				require.NoError(t, co.Commit(t.Context()))
				sendNumbers(t, p, q, 100, 110)
				synctest.Wait() // they are fetched
				require.NoError(t, c.Admin().SetOffset(t.Context(), "g", q, 95))
				synctest.Wait()
				assert.Equal(t, int64(95), committedBy(t, co, q))
				assert.Equal(t, between(95, 110), drained(t, co))
				require.NoError(t, c.Admin().SkipBacklog(t.Context(), "g", "T"))
				assert.Empty(t, drained(t, co))
				require.NoError(t, co.Commit(t.Context()))
				assert.Equal(t, int64(110), committedBy(t, co, q))
				assert.NotEmpty(t, eventsOf[pocketmq.OffsetJumped](&events))
			})
		})
	}
}
