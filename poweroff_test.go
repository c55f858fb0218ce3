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

func syncFlush() []pocketmq.BrokerGroup {
	return []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: pocketmq.SyncFlush}}}
}

func TestWhatSyncFlushAcknowledgedSurvivesALossOfPower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush()})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		n := 0
		for round := range 5 {
			sendNumbered(t, p, n, 7, int64(n))
			n += 7
			if round%2 == 0 {
				time.Sleep(6 * time.Second) // a checkpoint
			}
			check(t, c)
			require.NoError(t, c.PowerOff("broker-a", 0))
			_, err := p.SendTo(t.Context(), q, text("T", "nobody is there"))
			require.Error(t, err)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			st := c.Broker("broker-a", 0).Status()
			assert.NoError(t, st.Err)
			assert.True(t, st.Writable)
			assert.Zero(t, st.Cut)
			assert.Equal(t, numbered(0, n), bodiesOf(queueContent(t, c, q)))
		}
	})
}

func TestAsyncFlushLosesNoMoreThanTheLastFlushInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q := queue("T", "broker-a", 0)
		sendNumbered(t, p, 0, 10, 0)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		sendNumbered(t, p, 10, 5, 10)
		assert.Len(t, queueContent(t, c, q), 15)
		check(t, c)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		st := c.Broker("broker-a", 0).Status()
		assert.NoError(t, st.Err, "it opens clean")
		assert.Zero(t, st.Cut)
		assert.Equal(t, numbered(0, 10), bodiesOf(queueContent(t, c, q)))
		sendNumbered(t, p, 50, 5, 10)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		check(t, c)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, append(numbered(0, 10), numbered(50, 5)...), bodiesOf(queueContent(t, c, q)))
	})
}

// The tables of a broker are synced at each change.
func TestTopicsAndOffsetsSurviveALossOfPower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush()})
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 20, 0)
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 3}))
		conn := dial(t, c, "broker-a")
		_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: "me", Consumers: []protocol.ConsumerData{{Group: "g"}}})
		require.NoError(t, err)
		_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 15})
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		route, err := c.Admin().Route(t.Context(), "U")
		require.NoError(t, err)
		assert.Equal(t, 3, route.Queues[0].ReadQueues)
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		assert.Equal(t, int64(15), g.Queues[0].Committed)
	})
}

func TestSendsInFlightAtALossOfPowerAreToldTheTruth(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 4}, Groups: syncFlush()})
		p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
		type result struct {
			at  int64
			err error
		}
		var done []chan result
		var off atomic.Bool
		for i := range 4 {
			ch := make(chan result, 1000)
			done = append(done, ch)
			go func() { // ends with the broker; or, if that was away between two sends, behind that
				defer close(ch)
				for n := 0; !off.Load(); n++ {
					res, err := p.SendTo(t.Context(), queue("T", "broker-a", i), text("T", "%d", n))
					if err != nil {
						ch <- result{err: err}
						return
					}
					ch <- result{at: res.QueueOffset}
				}
			}()
		}
		before := int64(-1)
		for range 20 {
			before = (<-done[0]).at
		}
		require.NoError(t, c.PowerOff("broker-a", 0))
		off.Store(true)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		for i, ch := range done {
			last := int64(-1)
			if i == 0 {
				last = before
			}
			for r := range ch {
				if r.err == nil {
					last = r.at
				}
			}
			content := bodiesOf(queueContent(t, c, queue("T", "broker-a", i)))
			require.Greater(t, int64(len(content)), last, "queue %d", i)
			require.LessOrEqual(t, int64(len(content)), last+2, "at most the one without an answer")
			for n, body := range content {
				require.Equal(t, fmt.Sprint(n), body)
			}
		}
	})
}

func TestPowerOffIsRefusedWhereNothingIsSynced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		err := c.PowerOff("broker-a", 0)
		require.ErrorIs(t, err, pocketmq.ErrNotSupported)
		assert.ErrorContains(t, err, "ClusterConfig.Dir")
		sendNumbered(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 1, 0)

		c = run(t, pocketmq.ClusterConfig{Dir: t.TempDir()})
		require.ErrorIs(t, c.PowerOff("broker-b", 0), pocketmq.ErrNotFound)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.ErrorContains(t, c.PowerOff("broker-a", 0), "not running")
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.PowerOff("broker-a", 0), pocketmq.ErrClosed)
	})
}

// An fsync that takes longer than FlushTimeout is no failure: the message is
// stored, once, and the producer is told that it may not be durable yet. It is
// not in virtual time, in which an fsync takes none.
func TestASlowFsyncIsToldApartFromAFailedOne(t *testing.T) {
	t.Parallel()
	c := run(t, pocketmq.ClusterConfig{
		Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush(), Timings: pocketmq.Timings{FlushTimeout: time.Nanosecond},
	})
	p := producer(t, c, pocketmq.ProducerConfig{})
	q := queue("T", "broker-a", 0)
	slow, n := 0, 0
	for ; slow < 3 && n < 5000; n++ {
		res, err := p.SendTo(t.Context(), q, text("T", "message %03d", n))
		require.NotNil(t, res)
		require.Equal(t, int64(n), res.QueueOffset)
		if err != nil {
			require.ErrorIs(t, err, pocketmq.ErrFlushDiskTimeout)
			require.Equal(t, pocketmq.SendFlushDiskTimeout, res.Status)
			slow++
		}
	}
	if slow == 0 {
		t.Skip("a disk whose fsync takes no time")
	}
	st := c.Broker("broker-a", 0).Status()
	assert.NoError(t, st.Err)
	assert.True(t, st.Writable)
	want := numbered(0, n)
	assert.Equal(t, want, bodiesOf(queueContent(t, c, q)))
	check(t, c)
	require.NoError(t, c.PowerOff("broker-a", 0))
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	left := bodiesOf(queueContent(t, c, q))
	assert.Equal(t, want[:len(left)], left)
}
