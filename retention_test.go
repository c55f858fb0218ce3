package pocketmq_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// oneQueue is a cluster of one broker with one queue and a folder of its own.
func oneQueue(t *testing.T, broker pocketmq.BrokerConfig) pocketmq.ClusterConfig {
	return pocketmq.ClusterConfig{
		Dir: t.TempDir(), Topics: map[string]int{"T": 1},
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: broker}},
	}
}

// cleaned is long enough for a broker to delete what is too old by an hour.
const cleaned = time.Hour + 30*time.Second

func TestCP02_AGroupWhoseMessagesWereAllDeletedIsNotStuck(t *testing.T) {
	for _, dir := range []bool{true, false} {
		for name, from := range map[string]int64{"none": -1, "0": 0, "below": 7, "end": 50, "above": 60} {
			t.Run(fmt.Sprintf("dir %t, committed %s", dir, name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					cfg := oneQueue(t, pocketmq.BrokerConfig{Retention: time.Hour, CommitLogFileSize: 4 << 10})
					if !dir {
						cfg.Dir = ""
					}
					c := run(t, cfg)
					p := producer(t, c, pocketmq.ProducerConfig{})
					sendNumbered(t, p, 0, 50, 0)
					b := c.Broker("broker-a", 0)
					if from >= 0 {
						conn := dial(t, c, "broker-a")
						_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "raw", Consumers: []protocol.ConsumerData{{Group: "g"}}})
						require.NoError(t, err)
						_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: from})
						require.NoError(t, err)
						require.NoError(t, conn.Close())
					}
					time.Sleep(cleaned)
					synctest.Wait()
					require.Equal(t, int64(51), b.Status().MinPosition)

					var in inbox
					consumer(t, c, pocketmq.ConsumerConfig{
						Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), From: pocketmq.FromFirstOffset,
					})
					time.Sleep(2 * pocketmq.DefaultTimings().OffsetPersist)
					synctest.Wait()
					st, ok := b.Group("g")
					require.True(t, ok)
					require.NotEmpty(t, st.Queues)
					for _, q := range st.Queues {
						if q.Queue.Topic == "T" {
							assert.Equal(t, pocketmq.QueueLag{Queue: q.Queue, Committed: 50, Max: 50, Lag: 0}, q)
						}
					}
					sendNumbered(t, p, 50, 1, 50)
					synctest.Wait()
					require.Len(t, in.arrivals(), 1)
					assert.Equal(t, "message 050", string(in.arrivals()[0].msg.Body))
					check(t, c)
				})
			})
		}
	}
}

// A slow consumer is overtaken by retention: it goes on at the first message
// that is left.
func TestAConsumerBehindTheMinimumGoesOnAtIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, oneQueue(t, pocketmq.BrokerConfig{RetentionBytes: 16 << 10, CommitLogFileSize: 4 << 10}))
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 1000, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		b := c.Broker("broker-a", 0)
		min := b.Status().MinPosition
		require.Greater(t, min, int64(500))
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), From: pocketmq.FromFirstOffset})
		synctest.Wait()
		got := in.arrivals()
		require.Len(t, got, int(1000-min+1))
		require.NoError(t, b.Close())
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, min, c.Broker("broker-a", 0).Status().MinPosition)
		sendNumbered(t, p, 1000, 1, 1000)
		time.Sleep(time.Minute)
		assert.Len(t, in.arrivals(), len(got)+1)
		check(t, c)
	})
}

func TestST09_SendsGoOnWhenTheDiskHasSpaceAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(1 << 40)
		c := run(t, oneQueue(t, pocketmq.BrokerConfig{
			FreeBytes: func(string) (int64, error) { return free.Load(), nil },
		}))
		p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
		b := c.Broker("broker-a", 0)
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), From: pocketmq.FromFirstOffset})
		sendNumbered(t, p, 0, 10, 0)
		free.Store(201 << 20)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, err := p.Send(t.Context(), text("T", "refused"))
		require.ErrorIs(t, err, pocketmq.ErrDiskFull)
		want := "broker-a refuses sends: 201 MiB free on " + b.Dir() + ", minimum 256 MiB (BrokerConfig.MinFreeBytes); reads go on"
		assert.ErrorContains(t, err, "[DISK_FULL] "+want)
		var answer *pocketmq.Error
		require.ErrorAs(t, err, &answer)
		assert.Equal(t, protocol.ServiceNotAvailable, answer.Code)
		st := b.Status()
		assert.False(t, st.Writable)
		assert.Equal(t, want, st.Reason)
		assert.ErrorIs(t, st.Err, pocketmq.ErrDiskFull)
		assert.NotErrorIs(t, st.Err, pocketmq.ErrFenced)
		assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), 10, "reads go on")

		// It starts as well.
		require.NoError(t, b.Close())
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		b = c.Broker("broker-a", 0)
		assert.Contains(t, b.Status().Reason, "201 MiB free")

		free.Store(1 << 40)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		st = b.Status()
		assert.True(t, st.Writable)
		assert.Empty(t, st.Reason)
		require.NoError(t, st.Err)
		sendNumbered(t, p, 10, 10, 10)
		time.Sleep(time.Minute)
		var bodies []string
		for _, a := range in.arrivals() {
			bodies = append(bodies, string(a.msg.Body))
		}
		assert.ElementsMatch(t, numbered(0, 20), bodies)
		check(t, c)
	})
}
