package pocketmq_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestASlaveThatFirstConnectsToAFullDiskIsServedOnceThereIsSpace(t *testing.T) {
	for name, healed := range map[string]bool{"and it is closed after that": true, "and it is closed before": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log strings.Builder
				mem := pocketmq.InMemory()
				mem.Cut("broker-a/1", "broker-a/0")
				c, err := pocketmq.StartCluster(t.Context(), pocketmq.ClusterConfig{
					Transport: mem, Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1},
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError})),
				})
				require.NoError(t, err)
				replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 3)
				require.NoError(t, c.FullDisk("broker-a", 0, true))
				mem.HealAll()
				time.Sleep(time.Minute)
				assert.False(t, c.Broker("broker-a", 1).Status().Master.Connected)
				if healed {
					require.NoError(t, c.FullDisk("broker-a", 0, false))
					time.Sleep(10 * time.Second)
					synctest.Wait()
					st := c.Broker("broker-a", 1).Status()
					assert.True(t, st.Master.Connected, "%v", st.Master.Err)
					assert.Equal(t, int64(3), st.WrittenPosition)
				}
				require.NoError(t, c.Close())
				assert.Equal(t, 1, strings.Count(log.String(), "slaves are not served"), "%s", &log)
				assert.Contains(t, log.String(), "no space left on device")
			})
		})
	}
}

func TestAMasterThatStartsOnAFullDiskServesReadsAndLaterItsSlaves(t *testing.T) {
	for name, cfg := range map[string]pocketmq.BrokerConfig{
		"async":               {},
		"sync":                {Replication: pocketmq.SyncReplication},
		"sync with a minimum": {Replication: pocketmq.SyncReplication, MinInSyncReplicas: 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, cfg), Topics: map[string]int{"T": 1}})
				p := producer(t, c, oneTry)
				replicated(t, p, 0, 3)
				require.NoError(t, c.FullDisk("broker-a", 0, true))
				require.NoError(t, c.Kill("broker-a", 0))
				require.NoError(t, c.Kill("broker-a", 1))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				assert.Equal(t, []string{"0", "1", "2"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
				_, err := p.Send(t.Context(), text("T", "x"))
				require.Error(t, err)
				assert.Equal(t, int64(3), c.Broker("broker-a", 0).Status().WrittenPosition)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				time.Sleep(time.Minute)
				assert.False(t, c.Broker("broker-a", 1).Status().Master.Connected)

				require.NoError(t, c.FullDisk("broker-a", 0, false))
				time.Sleep(20 * time.Second)
				synctest.Wait()
				replicated(t, p, 3, 3)
				synctest.Wait()
				st := c.Broker("broker-a", 1).Status()
				assert.True(t, st.Master.Connected, "%v", st.Master.Err)
				assert.Equal(t, int64(6), st.WrittenPosition)
			})
		})
	}
}
