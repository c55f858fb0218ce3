package pocketmq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// rawQueue reads the records of a queue from its start.
func rawQueue(t testing.TB, c *pocketmq.Cluster, q pocketmq.MessageQueue) []*pocketmq.MessageExt {
	t.Helper()
	conn := dial(t, c, q.BrokerName)
	codec := message.NewCodec()
	defer codec.Close()
	var out []*pocketmq.MessageExt
	for next := int64(0); ; {
		resp, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{
			Group: "probe", Topic: q.Topic, QueueID: q.QueueID, Offset: next, MaxMessages: 32, HasExpression: true, Expression: "*",
		})
		require.NoError(t, err, "pull %v at %d", q, next)
		if resp.Code != protocol.Success {
			return out
		}
		for _, rec := range resp.Records {
			m, err := codec.DecodeExt(rec, q.BrokerName, q.Topic)
			require.NoError(t, err)
			out = append(out, m)
		}
		next = resp.NextBeginOffset
	}
}

func TestEveryDelayLevelIsDeliveredAtItsExactMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("wanted")}, Handler: in.handler("1")})
		p := producer(t, c, pocketmq.ProducerConfig{})
		time.Sleep(1234567 * time.Nanosecond)
		levels := pocketmq.DefaultTimings().DelayLevels
		want := make(map[string]time.Time)
		for level := 1; level <= len(levels)+1; level++ { // one above the highest means the highest
			m := text("T", "%d", level)
			m.DelayLevel, m.Tag, m.Keys = level, "wanted", []string{"k"}
			m.Properties = map[string]string{"mine": "yes"}
			res, err := p.Send(t.Context(), m)
			require.NoError(t, err)
			assert.Equal(t, "T", res.Queue.Topic)
			m.Tag = "other"
			_, err = p.Send(t.Context(), m)
			require.NoError(t, err)
			want[fmt.Sprint(level)] = time.Now().Truncate(time.Millisecond).Add(levels[min(level, len(levels))-1])
			time.Sleep(time.Millisecond)
		}
		sleepUntil(time.Now().Add(3 * time.Hour))
		got := make(map[string]time.Time)
		for _, a := range in.arrivals() {
			m := a.msg
			got[string(m.Body)] = a.at
			assert.Equal(t, a.at, m.StoreTime, "stored when it is due")
			assert.Equal(t, []any{"T", "T", "wanted", []string{"k"}, map[string]string{"mine": "yes"}, 0, 0},
				[]any{m.Topic, m.Queue.Topic, m.Tag, m.Keys, m.Properties, m.ReconsumeTimes, m.DelayLevel})
			assert.Equal(t, fmt.Sprint(min(len(levels), atoi(string(m.Body)))), m.Property(message.PropDelay), "the stored text tells")
		}
		assert.Equal(t, want, got)
	})
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

func TestADelayedMessageIsNotSeenBeforeItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		m := text("T", "later")
		m.DelayLevel = 3
		res, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
		require.NoError(t, err)
		assert.Equal(t, int64(0), res.QueueOffset)
		sleepUntil(time.Now().Add(10*time.Second - time.Millisecond))
		assert.Empty(t, queueContent(t, c, queue("T", "broker-a", 0)))
		waiting := rawQueue(t, c, queue("SCHEDULE_TOPIC_XXXX", "broker-a", 2))
		require.Len(t, waiting, 1)
		assert.Equal(t, res.OffsetMsgID, waiting[0].OffsetMsgID, "the answer names the record that waits")
		assert.Equal(t, "T", waiting[0].Property(message.PropRealTopic))
		assert.Equal(t, "0", waiting[0].Property(message.PropRealQueueID))
		sleepUntil(time.Now().Add(time.Millisecond))
		assert.Equal(t, []string{"later"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))

		found, err := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
		require.NoError(t, err)
		assert.Equal(t, "later", string(found.Body))

		// Nobody else's topic.
		_, err = p.Send(t.Context(), text("SCHEDULE_TOPIC_XXXX", "x"))
		assert.ErrorIs(t, err, pocketmq.ErrNoPermission)
		sleepUntil(time.Now().Add(30 * time.Second)) // BrokerRegister
		topic, err := c.Admin().TopicStats(t.Context(), "SCHEDULE_TOPIC_XXXX")
		require.NoError(t, err)
		assert.Len(t, topic, 18)
	})
}

func TestALevelKeepsItsOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2, "U": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 1000 {
			m := text([]string{"T", "U"}[i%7%2], "%d", i)
			m.DelayLevel = 1
			_, err := p.SendTo(t.Context(), queue(m.Topic, "broker-a", 0), m)
			require.NoError(t, err)
		}
		sleepUntil(time.Now().Add(time.Second))
		n := 0
		for _, topic := range []string{"T", "U"} {
			last := -1
			for _, body := range bodiesOf(queueContent(t, c, queue(topic, "broker-a", 0))) {
				assert.Less(t, last, atoi(body))
				last = atoi(body)
				n++
			}
		}
		assert.Equal(t, 1000, n)
	})
}

// full is a disk that is full while it is told to be.
type full struct{ yes atomic.Bool }

func (f *full) free(string) (int64, error) {
	if f.yes.Load() {
		return 0, nil
	}
	return 1 << 40, nil
}

func TestDR01_AFailedDeliveryOfADelayedMessageIsRepeated(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash %v", crash), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var disk full
				dir := t.TempDir()
				c := run(t, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1},
					Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{FreeBytes: disk.free}}}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				begin := time.Now()
				for i := 1; i <= 3; i++ {
					m := text("T", "%d", i)
					m.DelayLevel = 4 // 30 s
					_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
					require.NoError(t, err)
					time.Sleep(time.Millisecond)
				}
				sleepUntil(begin.Add(15 * time.Second))
				disk.yes.Store(true)
				sleepUntil(begin.Add(45 * time.Second)) // they are due, and no append succeeds
				assert.Empty(t, queueContent(t, c, queue("T", "broker-a", 0)))
				disk.yes.Store(false)
				if crash {
					require.NoError(t, c.Kill("broker-a", 0))
					require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				}
				sleepUntil(begin.Add(70 * time.Second))
				assert.Equal(t, []string{"1", "2", "3"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
			})
		})
	}
}

func delayOffsets(dir string) string {
	return filepath.Join(dir, "broker-a-0", "config", "delayOffset.json")
}

func TestDR02_AWrongStoredDelayPositionIsCorrected(t *testing.T) {
	for _, wrong := range []int64{1000, -5} {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir := t.TempDir()
				cfg := pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}}
				send := func(c *pocketmq.Cluster, level int, body string) {
					p := producer(t, c, pocketmq.ProducerConfig{})
					m := text("T", "%s", body)
					m.DelayLevel = level
					_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
					require.NoError(t, err)
				}
				c := run(t, cfg)
				for i := 1; i <= 3; i++ {
					send(c, 2, fmt.Sprint(i))
				}
				send(c, 1, "other")
				sleepUntil(time.Now().Add(10 * time.Second))
				stop(t, c)
				saved := func() string {
					data, found, err := statefile.New(delayOffsets(dir), true).Load()
					require.NoError(t, err)
					require.True(t, found)
					_, offsets, _ := strings.Cut(string(data), `"offsetTable":`)
					return offsets
				}
				require.Equal(t, `{"1":1,"2":3}}`, saved())
				require.NoError(t, statefile.New(delayOffsets(dir), true).Save(fmt.Appendf(nil, `{"offsetTable":{"1":1,"2":%d}}`, wrong)))

				c = run(t, cfg)
				sleepUntil(time.Now().Add(5 * time.Second))
				assert.Equal(t, `{"1":1,"2":3}}`, saved(), "the correction is saved")
				sent := time.Now()
				send(c, 2, "4")
				sleepUntil(sent.Add(5 * time.Second))
				bodies := bodiesOf(queueContent(t, c, queue("T", "broker-a", 0)))
				assert.Equal(t, []string{"other", "1", "2", "3"}, bodies[:4])
				assert.Equal(t, "4", bodies[len(bodies)-1], "on time")
				if wrong < 0 {
					assert.Equal(t, []string{"1", "2", "3", "4"}, bodies[4:], "what was done may come again")
				} else {
					assert.Len(t, bodies, 5)
				}
				sleepUntil(sent.Add(11 * time.Second))
				assert.Equal(t, `{"1":1,"2":4}}`, saved())
			})
		})
	}
}

func TestOverdueMessagesAreDeliveredAtOnceAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i, level := range []int{3, 3, 5} {
			m := text("T", "%d", i)
			m.DelayLevel = level
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		begin := time.Now()
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(20 * time.Second)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		synctest.Wait()
		assert.Equal(t, []string{"0", "1"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
		sleepUntil(begin.Add(time.Minute - time.Millisecond))
		assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 2)
		sleepUntil(begin.Add(time.Minute))
		assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 3)
	})
}

// A shorter table of levels makes nobody wait longer, and forgets no level.
func TestOtherDelayLevelsAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		cfg := pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}}
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{})
		begin := time.Now()
		for _, level := range []int{2, 18} {
			m := text("T", "%d", level)
			m.DelayLevel = level
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		stop(t, c)
		cfg.Timings.DelayLevels = []time.Duration{time.Second, 2 * time.Second}
		c = run(t, cfg)
		sleepUntil(begin.Add(2 * time.Second))
		got := bodiesOf(queueContent(t, c, queue("T", "broker-a", 0)))
		slices.Sort(got)
		assert.Equal(t, []string{"18", "2"}, got, "1 s for a level that is not there any more")
	})
}

// A message whose properties fill their text is delayed, and comes as it was sent.
func TestTheLargestPropertiesTextCanBeDelayed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		m := text("T", "x")
		m.DelayLevel = 1
		m.Properties = map[string]string{"k": strings.Repeat("v", 32000)}
		for m.Validate() == nil {
			m.Properties["k"] += "v"
		}
		m.Properties["k"] = m.Properties["k"][1:]
		require.NoError(t, m.Validate())
		_, err := p.Send(t.Context(), m)
		require.NoError(t, err)
		m.Properties["k"] += "v"
		_, err = p.Send(t.Context(), m)
		require.ErrorIs(t, err, pocketmq.ErrIllegalMessage)
		m.Properties["k"] = m.Properties["k"][1:]
		sleepUntil(time.Now().Add(time.Second))
		got := rawQueue(t, c, queue("T", "broker-a", 0))
		require.Len(t, got, 1)
		assert.Equal(t, m.Properties, got[0].Properties)
	})
}

// At random moments the broker is killed or loses power: what was acknowledged is
// delivered, whatever the moment, and not before its time.
func TestDelayedMessagesSurviveCrashes(t *testing.T) {
	for _, flush := range []pocketmq.FlushMode{pocketmq.AsyncFlush, pocketmq.SyncFlush} {
		t.Run(flush.String(), func(t *testing.T) {
			seed := rand.Uint64()
			bubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				levels := []time.Duration{500 * time.Millisecond, 2 * time.Second, 20 * time.Second}
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 2},
					Timings: pocketmq.Timings{DelayLevels: levels, OffsetPersist: 300 * time.Millisecond},
					Groups:  []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: flush, CommitLogFileSize: 16 << 10}}}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				due := make(map[string]time.Time)
				for range 30 {
					for range rnd.IntN(20) {
						level := 1 + rnd.IntN(3)
						m := text("T", "%d", len(due))
						m.DelayLevel = level
						_, err := p.Send(t.Context(), m)
						require.NoError(t, err, "seed %d", seed)
						due[string(m.Body)] = time.Now().Truncate(time.Millisecond).Add(levels[level-1])
						time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
					}
					if flush == pocketmq.SyncFlush && rnd.IntN(2) == 0 {
						require.NoError(t, c.PowerOff("broker-a", 0))
					} else {
						require.NoError(t, c.Kill("broker-a", 0))
					}
					time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
					require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				}
				sleepUntil(time.Now().Add(21 * time.Second))
				got := make(map[string]bool)
				for id := range 2 {
					for _, m := range rawQueue(t, c, queue("T", "broker-a", id)) {
						got[string(m.Body)] = true
						assert.False(t, m.StoreTime.Before(due[string(m.Body)]), "seed %d: %s came too early", seed, m.Body)
					}
				}
				assert.Len(t, got, len(due), "seed %d", seed)
			})
		})
	}
}

// BenchmarkRetry is how many failed messages a second a broker takes back and
// delivers again.
func BenchmarkRetry(b *testing.B) {
	for _, flush := range []pocketmq.FlushMode{pocketmq.AsyncFlush, pocketmq.SyncFlush} {
		b.Run(flush.String(), func(b *testing.B) {
			cfg := pocketmq.ClusterConfig{Dir: b.TempDir(), Topics: map[string]int{"T": 1},
				Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: flush}}}}
			cfg.Timings.DelayLevels = []time.Duration{time.Millisecond}
			c := run(b, cfg)
			conn := dial(b, c, "broker-a")
			heartbeat(b, conn, "g", protocol.Clustering)
			m := sendOne(b, c, &pocketmq.Message{Body: benchBody(128)})
			count := newCounter()
			consumer(b, c, pocketmq.ConsumerConfig{Group: "h", From: pocketmq.FromFirstOffset, Subscriptions: all("%RETRY%g"), Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				count.add(len(msgs))
				return nil
			}})
			left := atomic.Int64{}
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						assert.NoError(b, back(b, conn, m, nil))
					}
				})
			}
			wg.Wait()
			count.wait(int64(b.N))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// A topic or group that was deleted is gone with what was delayed for it, also when
// it comes into being again; what is sent afterwards is delivered.
func TestDelayedMessagesOfADeletedTopicAreDropped(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"other": 1}})
				a := c.Admin()
				for _, name := range []string{"T", "U"} {
					require.NoError(t, a.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: name, ReadQueues: 4}))
				}
				p := producer(t, c, pocketmq.ProducerConfig{})
				late := func(topic string, id int, body string) {
					m := text(topic, "%s", body)
					m.DelayLevel = 3
					_, err := p.SendTo(t.Context(), queue(topic, "broker-a", id), m)
					require.NoError(t, err)
				}
				for id := range 4 {
					late("T", id, "old")
					late("U", id, "old")
				}
				late("other", 0, "kept")
				require.NoError(t, a.DeleteTopic(t.Context(), "T"))
				require.NoError(t, a.DeleteTopic(t.Context(), "U"))
				require.NoError(t, a.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 1}))
				sleepUntil(time.Now().Add(5 * time.Second))
				late("U", 0, "new")
				if restart {
					require.NoError(t, c.Kill("broker-a", 0))
					require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				}
				sleepUntil(time.Now().Add(20 * time.Second))
				require.NoError(t, a.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 4}))
				stats, err := a.TopicStats(t.Context(), "T")
				require.NoError(t, err)
				for q, s := range stats {
					assert.Zero(t, s.MaxOffset, "%v", q)
				}
				assert.Equal(t, []string{"new"}, bodiesOf(queueContent(t, c, queue("U", "broker-a", 0))))
				assert.Equal(t, []string{"kept"}, bodiesOf(queueContent(t, c, queue("other", "broker-a", 0))))
			})
		})
	}
}

func TestDelayedRetriesOfADeletedGroupAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var calls atomic.Int32
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: func(context.Context, []*pocketmq.MessageExt) error {
			if calls.Add(1) == 1 {
				return fmt.Errorf("no")
			}
			return nil
		}})
		sendNumbered(t, p, 0, 1, 0)
		sleepUntil(time.Now().Add(time.Second))
		require.NoError(t, c.Admin().DeleteGroup(t.Context(), "g"))
		sleepUntil(time.Now().Add(time.Minute)) // heartbeats make the group anew
		assert.EqualValues(t, 1, calls.Load())
		sendNumbered(t, p, 1, 1, 1)
		synctest.Wait()
		assert.EqualValues(t, 2, calls.Load())
	})
}
