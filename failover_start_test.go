package pocketmq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// powerless is a cluster of one group that elects, all of whose members lose power a
// minute after the last of 20 messages.
func powerless(t *testing.T, cfg pocketmq.ClusterConfig) {
	c := run(t, cfg)
	p := producer(t, c, pocketmq.ProducerConfig{})
	inSync(t, c, 2)
	replicated(t, p, 0, 20)
	time.Sleep(time.Minute)
	for id := range int64(3) {
		require.NoError(t, c.PowerOff("broker-a", id))
	}
	require.NoError(t, c.Close())
}

// With AsyncFlush a member that lost power cannot know whether it has what it
// acknowledged. When that is true of all, somebody has to decide.
func TestAGroupThatLostPowerStartsWhenItIsToldTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir(), OnEvent: events.add}
		powerless(t, cfg)

		begun := time.Now()
		_, err := startCluster(context.Background(), t, cfg)
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		assert.Less(t, time.Since(begun), time.Second)
		assert.ErrorContains(t, err, "nobody of broker-a can be elected: broker-a/")
		assert.ErrorContains(t, err, "ElectUncleanMaster")
		assert.Empty(t, eventsOf[pocketmq.UncleanElection](&events))

		cfg.Groups[0].Config.ElectUncleanMaster = true
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{})
		inSync(t, c, 2)
		replicated(t, p, 20, 1)
		assert.Equal(t, counted(21), logsAgree(t, c, time.Second), "everything was synced long before")
		assert.Len(t, eventsOf[pocketmq.UncleanElection](&events), 1)
	})
}

func TestAGroupThatSyncsStartsAfterALossOfPower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		cfg.Groups[0].Config.Flush = pocketmq.SyncFlush
		powerless(t, cfg)
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{})
		inSync(t, c, 2)
		replicated(t, p, 20, 1)
		assert.Equal(t, counted(21), logsAgree(t, c, time.Second))
	})
}

// What counts is how the life before flushed, which may have lost something.
func TestAnotherFlushModeAfterALossOfPowerChangesNothing(t *testing.T) {
	for name, modes := range map[string][2]pocketmq.FlushMode{
		"it synced":       {pocketmq.SyncFlush, pocketmq.AsyncFlush},
		"it did not sync": {pocketmq.AsyncFlush, pocketmq.SyncFlush},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
				cfg.Groups[0].Config.Flush = modes[0]
				powerless(t, cfg)
				cfg.Groups[0].Config.Flush = modes[1]
				if modes[0] == pocketmq.AsyncFlush {
					_, err := startCluster(context.Background(), t, cfg)
					require.ErrorIs(t, err, pocketmq.ErrNotMaster)
					assert.ErrorContains(t, err, "may lack what was acknowledged")
					return
				}
				c := run(t, cfg)
				inSync(t, c, 2)
				assert.Equal(t, counted(20), logsAgree(t, c, 10*time.Second))
			})
		})
	}
}

// A cluster that has started loses its master without losing its service.
func TestAGroupThatHasStartedSurvivesItsMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range rounds(50) {
			c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
			require.NoError(t, c.Kill("broker-a", masterOf(c)))
			replicated(t, producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second}), 0, 1)
			require.NoError(t, c.Close())
		}
	})
}

// A slave that has something to catch up on delays no start.
func TestASlaveThatIsBehindDelaysNoStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		c := run(t, cfg)
		require.NoError(t, c.Broker("broker-a", 2).Close())
		replicated(t, producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second}), 0, 1000)
		require.NoError(t, c.Close())
		begin := time.Now()
		c = run(t, cfg)
		assert.Less(t, time.Since(begin), time.Second)
		inSync(t, c, 2)
	})
}
