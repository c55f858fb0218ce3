package pocketmq_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// Everything here runs with RocketMQ's intervals, in virtual time, and is
// asserted at the tick that the rules give.

func TestStartAndCloseTakeNoVirtualTime(t *testing.T) {
	ofMemory(t, "connections have timers of a millisecond")
	for name, dir := range map[string]bool{"throwaway": false, "real folder": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				begin := time.Now()
				cfg := pocketmq.ClusterConfig{NameServers: 2, Groups: groups("a", "b", "c"), Topics: map[string]int{"T": 4}}
				if dir {
					cfg.Dir = t.TempDir()
				}
				c, err := startCluster(t.Context(), t, cfg)
				require.NoError(t, err)
				assert.Zero(t, time.Since(begin), "StartCluster")

				var in inbox
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
				p := producer(t, c, pocketmq.ProducerConfig{})
				for range 24 {
					_, err := p.Send(t.Context(), text("T", "x"))
					require.NoError(t, err)
				}
				synctest.Wait()
				assert.Len(t, in.arrivals(), 24, "consumed in the instant of sending")
				check(t, c)
				require.NoError(t, c.Close())
				assert.Zero(t, time.Since(begin), "all of it")
			})
		})
	}
}

func TestTwoBubblesInOneTestBinary(t *testing.T) {
	bodies := map[pocketmq.Compression]string{}
	for _, kind := range []pocketmq.Compression{pocketmq.Zlib, pocketmq.LZ4, pocketmq.Zstd} {
		bodies[kind] = strings.Repeat("compress me ", 1000) + string(rune('a'+kind))
	}
	for range 2 { // pools that outlive the first bubble would break the second
		synctest.Test(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
			var in inbox
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
			var want []string
			for kind, body := range bodies {
				p := producer(t, c, pocketmq.ProducerConfig{Compression: kind})
				for range 4 {
					_, err := p.Send(t.Context(), text("T", "%s", body))
					require.NoError(t, err)
					want = append(want, body)
				}
			}
			time.Sleep(time.Minute)
			assert.ElementsMatch(t, want, in.bodies())
		})
	}
}

func TestSilentBrokerExpiresAtTheFirstScanLaterThan120s(t *testing.T) {
	for name, tc := range map[string]struct {
		timings pocketmq.Timings
		want    time.Duration // after the start of the name server
	}{
		// The last registration is that of second 30. Scans at 5, 15, ... 145, 155.
		"defaults": {pocketmq.Timings{}, 155 * time.Second},
		// Scans at 10, 20, ... 150: exactly 120 s is not later than 120 s.
		"a scan at exactly 120 s": {pocketmq.Timings{BrokerScanDelay: 10 * time.Second}, 160 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				start := time.Now()
				c := run(t, pocketmq.ClusterConfig{
					NameServers: 2, Topics: map[string]int{"T": 1}, Timings: tc.timings, OnEvent: events.add,
				})
				sleepUntil(start.Add(45 * time.Second))
				links(t, c).Drop("broker-a/0", "ns-0")

				sleepUntil(start.Add(tc.want - 1))
				assert.Len(t, c.NameServer(0).Status().Brokers, 1, "just before the scan")
				assert.Empty(t, eventsOf[pocketmq.BrokerExpired](&events))

				sleepUntil(start.Add(tc.want))
				assert.Empty(t, c.NameServer(0).Status().Brokers)
				assert.Len(t, c.NameServer(1).Status().Brokers, 1, "the other name server still hears the broker")
				gone := eventsOf[pocketmq.BrokerExpired](&events)
				require.Len(t, gone, 1)
				assert.Equal(t, pocketmq.BrokerExpired{
					EventBase: pocketmq.EventBase{Time: start.Add(tc.want), Node: "ns-0"},
					Broker:    "broker-a", ID: 0, Addr: c.Broker("broker-a", 0).Addr(), Reason: "silent",
				}, gone[0])

				admin := newAdmin(t, c, c.NameServer(0).Addr())
				_, err := admin.Route(t.Context(), "T")
				assert.ErrorIs(t, err, pocketmq.ErrNoRoute)

				// It is back with its next registration.
				links(t, c).HealAll()
				sleepUntil(start.Add(180*time.Second - 1))
				_, err = admin.Route(t.Context(), "T")
				assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
				sleepUntil(start.Add(180 * time.Second))
				_, err = admin.Route(t.Context(), "T")
				assert.NoError(t, err)
				back := eventsOf[pocketmq.BrokerRegistered](&events)
				assert.Equal(t, start.Add(180*time.Second), back[len(back)-1].Time)
			})
		})
	}
}

// newAdmin starts an Admin that knows only these name servers.
func newAdmin(t testing.TB, c *pocketmq.Cluster, nameServers ...string) *pocketmq.Admin {
	t.Helper()
	a, err := pocketmq.NewAdmin(pocketmq.AdminConfig{NameServers: nameServers, Transport: c.Transport()})
	require.NoError(t, err)
	require.NoError(t, a.Start(context.Background()))
	t.Cleanup(func() { assert.NoError(t, a.Close()) })
	return a
}

func TestBrokerWhoseConnectionBreaksIsDroppedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		start := time.Now()
		c := run(t, pocketmq.ClusterConfig{OnEvent: events.add})
		sleepUntil(start.Add(45 * time.Second))
		links(t, c).Cut("broker-a/0", "ns-0")
		synctest.Wait()
		gone := eventsOf[pocketmq.BrokerExpired](&events)
		require.Len(t, gone, 1)
		assert.Equal(t, start.Add(45*time.Second), gone[0].Time)
		assert.Equal(t, "connection closed", gone[0].Reason)

		links(t, c).HealAll()
		sleepUntil(start.Add(60*time.Second - 1))
		assert.Empty(t, c.NameServer(0).Status().Brokers)
		sleepUntil(start.Add(60 * time.Second))
		assert.Len(t, c.NameServer(0).Status().Brokers, 1, "the next registration")
	})
}

func TestSilentMemberLeavesAtTheFirstScanLaterThan120s(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		start := time.Now()
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: events.add})
		var in inbox
		sleepUntil(start.Add(3 * time.Second))
		silent := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("silent"), CloseTimeout: time.Second})
		other := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("other")})
		synctest.Wait()
		require.Len(t, other.Assignment(), 2)

		sleepUntil(start.Add(45 * time.Second))
		links(t, c).Drop(silent.ClientID(), "broker-a/0")
		// Its last heartbeat is that of second 33; the broker scans at 10, 20, ...
		// 150, 160.
		left := start.Add(160 * time.Second)
		sleepUntil(left.Add(-1))
		assert.Len(t, other.Assignment(), 2)
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		for _, m := range g.Members {
			if m.ClientID == silent.ClientID() {
				assert.Equal(t, start.Add(33*time.Second), m.LastHeartbeat)
			}
		}
		assert.Len(t, g.Members, 2)
		assert.Empty(t, eventsOf[pocketmq.MemberLeft](&events))

		sleepUntil(left)
		assert.Equal(t, []pocketmq.MemberLeft{{
			EventBase: pocketmq.EventBase{Time: left, Node: "broker-a/0"},
			Group:     "g", Client: silent.ClientID(), Reason: "silent",
		}}, eventsOf[pocketmq.MemberLeft](&events))
		assert.Len(t, other.Assignment(), 4, "the other one takes over in the same instant")
		re := eventsOf[pocketmq.Rebalanced](&events)
		assert.Equal(t, left, re[len(re)-1].Time)
		assert.Equal(t, "members changed", re[len(re)-1].Reason)
		links(t, c).HealAll()
	})
}

func TestRebalanceInTheInstantAMemberJoinsOrLeaves(t *testing.T) {
	leave := map[string]func(*testing.T, *pocketmq.Cluster, *pocketmq.Consumer) error{
		"close": func(_ *testing.T, _ *pocketmq.Cluster, co *pocketmq.Consumer) error { return co.Close() },
		"shutdown": func(_ *testing.T, _ *pocketmq.Cluster, co *pocketmq.Consumer) error {
			return co.Shutdown(context.Background())
		},
		"connection lost": func(t *testing.T, c *pocketmq.Cluster, co *pocketmq.Consumer) error {
			n := links(t, c)
			n.Cut(co.ClientID(), "broker-a/0")
			t.Cleanup(n.HealAll)
			return nil
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: events.add})
				var in inbox
				first := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})
				assert.Len(t, first.Assignment(), 4, "Start means consuming")
				time.Sleep(7 * time.Second)

				joined := time.Now()
				second := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("2")})
				assert.Len(t, second.Assignment(), 2, "Start means consuming")
				synctest.Wait()
				assert.Len(t, first.Assignment(), 2)
				assert.Equal(t, joined, time.Now())

				time.Sleep(4 * time.Second)
				left := time.Now()
				require.NoError(t, leave(t, c, second))
				synctest.Wait()
				assert.Len(t, first.Assignment(), 4)
				assert.Equal(t, left, time.Now())

				var times []time.Time
				for _, e := range eventsOf[pocketmq.Rebalanced](&events) {
					if e.Client == first.ClientID() {
						times = append(times, e.Time)
					}
				}
				assert.Equal(t, []time.Time{joined.Add(-7 * time.Second), joined, left}, times)
				joins, leaves := eventsOf[pocketmq.MemberJoined](&events), eventsOf[pocketmq.MemberLeft](&events)
				assert.Len(t, joins, 2)
				require.Len(t, leaves, 1)
				assert.Equal(t, left, leaves[0].Time)
				assert.Equal(t, second.ClientID(), leaves[0].Client)
			})
		})
	}
}

func TestLostNoticeIsRepairedAtTheNextRebalanceTick(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: events.add})
		var in inbox
		time.Sleep(3 * time.Second)
		start := time.Now()
		first := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})

		sleepUntil(start.Add(5 * time.Second))
		links(t, c).CutOneWay("broker-a/0", first.ClientID())
		second := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("2")})
		synctest.Wait()
		links(t, c).HealAll()
		assert.Len(t, second.Assignment(), 2)

		sleepUntil(start.Add(20*time.Second - 1))
		assert.Len(t, first.Assignment(), 4, "it has not heard of the other one")
		sleepUntil(start.Add(20 * time.Second))
		assert.Len(t, first.Assignment(), 2)
		re := eventsOf[pocketmq.Rebalanced](&events)
		last := re[len(re)-1]
		assert.Equal(t, start.Add(20*time.Second), last.Time)
		assert.Equal(t, first.ClientID(), last.Client)
		assert.Equal(t, "periodic", last.Reason)
		assert.Len(t, last.Before, 4)
		assert.Len(t, last.After, 2)
	})
}

func TestRouteChangeIsSeenAtTheNextRouteRefresh(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: events.add})
		time.Sleep(3 * time.Second)
		start := time.Now()
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")})
		sleepUntil(start.Add(11 * time.Second))
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 8}))
		assert.Equal(t, start.Add(11*time.Second), time.Now(), "creating takes no time")

		sleepUntil(start.Add(30*time.Second - 1))
		assert.Len(t, co.Assignment(), 4)
		sleepUntil(start.Add(30 * time.Second))
		assert.Len(t, co.Assignment(), 8, "in the instant of the refresh")
		re := eventsOf[pocketmq.Rebalanced](&events)
		assert.Equal(t, start.Add(30*time.Second), re[len(re)-1].Time)
		assert.Equal(t, "route changed", re[len(re)-1].Reason)
	})
}

func TestTopicThatComesLaterIsConsumedWithinRouteRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		var in inbox
		start := time.Now()
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("later"), Handler: in.handler("1")})
		assert.Equal(t, start, time.Now(), "a topic without a route does not delay Start")
		sleepUntil(start.Add(1500 * time.Millisecond))
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "later", ReadQueues: 2}))
		p := producer(t, c, pocketmq.ProducerConfig{})
		for range 4 {
			_, err := p.Send(t.Context(), text("later", "x"))
			require.NoError(t, err)
		}
		sleepUntil(start.Add(2 * time.Second))
		assert.Len(t, co.Assignment(), 2)
		assert.Len(t, in.arrivals(), 4, "what was sent before it was seen is not skipped")
	})
}

// pull asks for messages of T's queue 0 with a suspend of 15 s.
func pull(ctx context.Context, conn protocol.BrokerConn, offset int64, tags string) (*protocol.PullMessageResponse, error) {
	return conn.PullMessage(ctx, &protocol.PullMessageRequest{
		Group: "probe", Topic: "T", QueueID: 0, Offset: offset, MaxMessages: 32,
		Suspend: 15 * time.Second, HasExpression: true, Expression: tags,
	})
}

func TestPullOnAnEmptyQueueIsAnsweredAfterExactly15s(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		start := time.Now()
		done := make(chan *protocol.PullMessageResponse, 1)
		go func() {
			resp, err := pull(context.Background(), conn, 0, "*")
			assert.NoError(t, err)
			assert.Equal(t, 15*time.Second, time.Since(start))
			done <- resp
		}()
		sleepUntil(start.Add(14 * time.Second))
		assert.Equal(t, 1, c.Broker("broker-a", 0).Status().HeldPulls)
		resp := <-done
		assert.Equal(t, protocol.PullNotFound, resp.Code)
		assert.Empty(t, resp.Records)
		assert.Zero(t, resp.NextBeginOffset)
		assert.Zero(t, c.Broker("broker-a", 0).Status().HeldPulls)
	})
}

func TestMessageWakesAHeldPullAtTheSendingInstant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		p := producer(t, c, pocketmq.ProducerConfig{})
		start := time.Now()
		for i := range 3 { // at 4 s, 8 s and 12 s
			woken := make(chan time.Time, 1)
			go func() {
				resp, err := pull(context.Background(), conn, int64(i), "*")
				assert.NoError(t, err)
				assert.Equal(t, protocol.Success, resp.Code)
				assert.Len(t, resp.Records, 1)
				assert.Equal(t, int64(i+1), resp.NextBeginOffset)
				woken <- time.Now()
			}()
			sent := start.Add(time.Duration(i+1) * 4 * time.Second)
			sleepUntil(sent)
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, sent, <-woken)
		}
	})
}

func TestHeldPullIsNotAnsweredForAForeignTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		p := producer(t, c, pocketmq.ProducerConfig{})
		start := time.Now()
		done := make(chan *protocol.PullMessageResponse, 1)
		go func() {
			resp, err := pull(context.Background(), conn, 0, "A")
			assert.NoError(t, err)
			assert.Equal(t, 7*time.Second, time.Since(start), "only the matching message answers it")
			done <- resp
		}()
		for at, tag := range map[time.Duration]string{4 * time.Second: "B", 7 * time.Second: "A"} {
			go func() {
				time.Sleep(at)
				m := text("T", "%s", tag)
				m.Tag = tag
				_, err := p.Send(context.Background(), m)
				assert.NoError(t, err)
			}()
		}
		resp := <-done
		require.NotNil(t, resp)
		assert.Equal(t, protocol.Success, resp.Code)
		assert.Len(t, resp.Records, 1)
		assert.Equal(t, int64(2), resp.NextBeginOffset)
	})
}

func TestOffsetsReachTheBrokerAndTheDiskAtTheirTicks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		broker := c.Broker("broker-a", 0)
		file := filepath.Join(broker.Dir(), "config", "consumerOffset.json")
		onDisk := func() string {
			data, err := os.ReadFile(file)
			if !errors.Is(err, os.ErrNotExist) {
				require.NoError(t, err)
			}
			return string(data)
		}
		committed := func() int64 {
			g, ok := broker.Group("billing")
			require.True(t, ok)
			require.Len(t, g.Queues, 1)
			assert.Equal(t, int64(3), g.Queues[0].Max)
			assert.Equal(t, g.Queues[0].Max-max(g.Queues[0].Committed, 0), g.Queues[0].Lag)
			return g.Queues[0].Committed
		}
		sleepUntil(begin.Add(2 * time.Second))
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "billing", Subscriptions: all("T"),
			Handler: func(context.Context, []*pocketmq.MessageExt) error {
				time.Sleep(100 * time.Millisecond) // the next pull is under way before anything can be committed
				return nil
			},
		})
		start := time.Now()
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, err := p.SendBatch(t.Context(), []*pocketmq.Message{text("T", "0"), text("T", "1"), text("T", "2")})
		require.NoError(t, err)

		sleepUntil(start.Add(5*time.Second - 1))
		assert.Equal(t, int64(-1), committed(), "consumed, but not committed yet")
		sleepUntil(start.Add(5 * time.Second))
		assert.Equal(t, int64(3), committed(), "5 s after the consumer's start")

		sleepUntil(begin.Add(10*time.Second - 1))
		assert.NotContains(t, onDisk(), "billing")
		sleepUntil(begin.Add(10 * time.Second))
		assert.Contains(t, onDisk(), "billing", "the broker's next tick of 5 s")
	})
}

func TestOffsetIsCommittedByPullsAndByClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Timings: pocketmq.Timings{OffsetPersist: time.Hour}})
		committed := func() int64 {
			g, ok := c.Broker("broker-a", 0).Group("g")
			require.True(t, ok)
			return g.Queues[0].Committed
		}
		co := consumer(t, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"),
			Handler: func(context.Context, []*pocketmq.MessageExt) error { time.Sleep(time.Second); return nil },
		})
		start := time.Now()
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func() {
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
		}
		send() // answers the held pull; the next one leaves with nothing to commit
		sleepUntil(start.Add(15*time.Second - 1))
		assert.Equal(t, int64(-1), committed())
		sleepUntil(start.Add(15 * time.Second)) // that one is answered, the one after it carries the commit
		assert.Equal(t, int64(1), committed())
		send()
		sleepUntil(start.Add(17 * time.Second))
		assert.Equal(t, int64(1), committed())
		require.NoError(t, co.Close())
		assert.Equal(t, int64(2), committed())
	})
}

func TestAsyncFlushSyncsWithinFlushInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		b := c.Broker("broker-a", 0)
		p := producer(t, c, pocketmq.ProducerConfig{})
		time.Sleep(10*time.Second + 123*time.Millisecond)
		for range 3 {
			sent := time.Now()
			_, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, sent, time.Now(), "acknowledged after the write")
			st := b.Status()
			assert.Equal(t, st.SyncedPosition+1, st.WrittenPosition)
			sleepUntil(sent.Add(500 * time.Millisecond))
			st = b.Status()
			assert.Equal(t, st.WrittenPosition, st.SyncedPosition)
		}
	})
}

func TestSyncFlushAcknowledgesWhatIsSynced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Topics: map[string]int{"T": 1}, Dir: t.TempDir(),
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: pocketmq.SyncFlush}}},
		})
		b := c.Broker("broker-a", 0)
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 5 {
			begin := time.Now()
			res, err := p.Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Equal(t, pocketmq.SendOK, res.Status)
			assert.Equal(t, int64(i+1), b.Status().SyncedPosition)
			assert.Equal(t, begin, time.Now(), "a flush takes no virtual time")
		}
		// WAIT=false: acknowledged after the write.
		m := text("T", "x")
		m.NoWait = true
		_, err := p.Send(t.Context(), m)
		require.NoError(t, err)
		assert.Equal(t, int64(6), b.Status().WrittenPosition)
	})
}
