package pocketmq_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// storeEvents are the events of a cluster that are about its stores.
func storeEvents(list []pocketmq.Event) (some []pocketmq.Event) {
	for _, e := range list {
		switch e.(type) {
		case pocketmq.StoreFenced, pocketmq.StoreRepaired, pocketmq.MessagesDeleted, pocketmq.DamageFound:
			some = append(some, e)
		}
	}
	return some
}

func TestEventsTellOfAFullDiskAndOfWhatIsDeletedForSpace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(1 << 40)
		var log eventLog
		cfg := oneQueue(t, pocketmq.BrokerConfig{
			CommitLogFileSize: 4 << 10, MinFreeBytes: 10 << 10,
			FreeBytes: func(string) (int64, error) { return free.Load(), nil },
		})
		cfg.OnEvent = log.add
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 100, 0)
		time.Sleep(5 * time.Second) // between two looks at the disk
		free.Store(40<<10 - 5000)
		time.Sleep(10 * time.Second)
		free.Store(1) // nothing that could be deleted would be enough
		time.Sleep(10 * time.Second)
		free.Store(1 << 40)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		min := c.Broker("broker-a", 0).Status().MinPosition
		require.Greater(t, min, int64(1))
		events := storeEvents(log.all())
		require.NotEmpty(t, events)
		deleted, ok := events[0].(pocketmq.MessagesDeleted)
		require.True(t, ok, "%#v", events)
		assert.Equal(t, "space", deleted.Reason)
		assert.Equal(t, "broker-a/0", deleted.Node)
		assert.Equal(t, int64(1), deleted.From)
		assert.Positive(t, deleted.Files)
		fenced, ok := events[len(events)-2].(pocketmq.StoreFenced)
		require.True(t, ok, "%#v", events)
		require.ErrorIs(t, fenced.Err, pocketmq.ErrDiskFull)
		assert.NotErrorIs(t, fenced.Err, pocketmq.ErrFenced)
		repaired, ok := events[len(events)-1].(pocketmq.StoreRepaired)
		require.True(t, ok, "%#v", events)
		assert.Zero(t, repaired.Cut)
		check(t, c)
	})
}

func TestEventsTellOfDamage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log eventLog
		cfg := oneQueue(t, pocketmq.BrokerConfig{CommitLogFileSize: 4 << 10})
		cfg.OnEvent = log.add
		c, err := startCluster(t.Context(), t, cfg) // mqtest would report the damage
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{})
		require.NoError(t, err)
		sendNumbered(t, p, 0, 100, 0)
		b := c.Broker("broker-a", 0)
		require.NoError(t, b.Close())
		segments, err := filepath.Glob(filepath.Join(b.Dir(), "commitlog", "0*", "0*"))
		require.NoError(t, err)
		require.Greater(t, len(segments), 3)
		spoil := func(path string, at int) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[(at+len(data))%len(data)] ^= 0x10
			require.NoError(t, os.WriteFile(path, data, 0o640))
		}
		spoil(segments[1], 1000)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		b = c.Broker("broker-a", 0)
		require.NoError(t, b.Status().Damage)
		require.Empty(t, storeEvents(log.all()))
		base, err := strconv.ParseInt(filepath.Base(filepath.Dir(segments[1])), 10, 64)
		require.NoError(t, err)
		conn := dial(t, c, "broker-a")
		for range 3 {
			_, err = pull(t.Context(), conn, base-1, "*")
			require.Error(t, err)
		}
		synctest.Wait()
		st := b.Status()
		assert.True(t, st.Writable)
		_ = conn.Close()
		if assert.Error(t, st.Damage) {
			assert.ErrorContains(t, st.Damage, segments[1])
		}
		events := storeEvents(log.all())
		require.Len(t, events, 1)
		found, ok := events[0].(pocketmq.DamageFound)
		require.True(t, ok, "%#v", events)
		assert.Equal(t, st.Damage, found.Err)

		require.NoError(t, b.Close())
		spoil(segments[len(segments)-1], -5)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		synctest.Wait()
		events = storeEvents(log.all())
		require.Len(t, events, 2)
		fenced, ok := events[1].(pocketmq.StoreFenced)
		require.True(t, ok, "%#v", events)
		require.ErrorIs(t, fenced.Err, pocketmq.ErrFenced)
		assert.ErrorContains(t, fenced.Err, segments[len(segments)-1])
		assert.Equal(t, fenced.Err.Error(), c.Broker("broker-a", 0).Status().Err.Error())
	})
}

func TestABrokerWhoseFreeBytesHangsCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		var hang atomic.Bool
		cfg := oneQueue(t, pocketmq.BrokerConfig{FreeBytes: func(string) (int64, error) {
			if hang.Load() {
				<-release
			}
			return 1 << 40, nil
		}})
		c := run(t, cfg)
		b := c.Broker("broker-a", 0)
		hang.Store(true)
		time.Sleep(20 * time.Second)
		begin := time.Now()
		require.ErrorIs(t, b.Close(), pocketmq.ErrHandlersRunning)
		assert.Equal(t, 10*time.Second, time.Since(begin))
		require.ErrorIs(t, b.Close(), pocketmq.ErrHandlersRunning)
		close(release)
		require.NoError(t, b.Close())
	})
}

func TestFreeBytesNeedsAFolderThatIsKept(t *testing.T) {
	_, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{
		Name: "broker-a", Config: pocketmq.BrokerConfig{FreeBytes: func(string) (int64, error) { return 0, errors.New("x") }},
	}}})
	require.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
	assert.ErrorContains(t, err, "Config.FreeBytes is for clusters with a Dir")
}
