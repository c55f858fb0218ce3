package pocketmq_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// unled is a group of so many slaves that does not elect yet.
func unled(t *testing.T, slaves int, mode pocketmq.ReplicationMode) pocketmq.ClusterConfig {
	return pocketmq.ClusterConfig{Groups: pair(slaves, pocketmq.BrokerConfig{Replication: mode}), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
}

// elects is the same group with elections.
func elects(cfg pocketmq.ClusterConfig) pocketmq.ClusterConfig {
	groups := trio()
	if n := cfg.Groups[0].Slaves; n > 0 {
		groups[0].Slaves = n
	}
	cfg.Groups = groups
	return cfg
}

// unledLife runs a group without elections, which sends n messages, from from on. live,
// when not nil, goes on before it ends.
func unledLife(t *testing.T, cfg pocketmq.ClusterConfig, from, n int, live func(*pocketmq.Cluster, *pocketmq.Producer)) {
	t.Helper()
	c := run(t, cfg)
	p := producer(t, c, pocketmq.ProducerConfig{})
	replicated(t, p, from, n)
	time.Sleep(10 * time.Second)
	if live != nil {
		live(c, p)
	}
	require.NoError(t, c.Close())
}

// folder is that of a member.
func folder(cfg pocketmq.ClusterConfig, id int) string {
	return filepath.Join(cfg.Dir, "broker-a-"+strconv.Itoa(id))
}

// electsNow starts a group that has not elected before, and wants n messages in it, at
// each member, and one more to be taken.
func electsNow(t *testing.T, cfg pocketmq.ClusterConfig, n int) *pocketmq.Cluster {
	t.Helper()
	c := run(t, cfg)
	assert.Equal(t, int64(0), masterOf(c))
	p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
	inSync(t, c, cfg.Groups[0].Slaves)
	replicated(t, p, n, 1)
	assert.Equal(t, counted(n+1), logsAgree(t, c, 10*time.Second))
	return c
}

func TestFailoverIsTurnedOnOverWhatWasReplicatedWithoutIt(t *testing.T) {
	for _, row := range []struct {
		name   string
		slaves int
		mode   pocketmq.ReplicationMode
	}{{"one master", 0, pocketmq.AsyncReplication}, {"async", 2, pocketmq.AsyncReplication}, {"sync", 2, pocketmq.SyncReplication}} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := unled(t, row.slaves, row.mode)
				unledLife(t, cfg, 0, 20, nil)
				unledLife(t, cfg, 20, 20, nil)
				with := elects(cfg)
				c := electsNow(t, with, 40)
				epoch := c.Broker("broker-a", 0).Epoch()
				assert.Positive(t, epoch)
				// It is a group that elects from here on.
				require.NoError(t, c.Kill("broker-a", 0))
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
				replicated(t, p, 41, 1)
				assert.Greater(t, c.Broker("broker-a", masterOf(c)).Epoch(), epoch)
				require.NoError(t, c.Close())
				for n := 42; n < 44; n++ { // and stays one
					c = run(t, with)
					p = producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
					inSync(t, c, 2)
					replicated(t, p, n, 1)
					assert.Equal(t, counted(n+1), logsAgree(t, c, 10*time.Second))
					require.NoError(t, c.Close())
				}
			})
		})
	}
}

func TestFailoverIsTurnedOnWhileSlavesAreBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := unled(t, 2, pocketmq.AsyncReplication)
		unledLife(t, cfg, 0, 10, func(c *pocketmq.Cluster, p *pocketmq.Producer) {
			require.NoError(t, c.Kill("broker-a", 1))
			replicated(t, p, 10, 10)
			require.NoError(t, c.Kill("broker-a", 2))
			replicated(t, p, 20, 10) // only the master has them
		})
		electsNow(t, elects(cfg), 30)
	})
}

// A slave has what the master lost with its power, and has come back without; both have
// gone on, and the slave did not see that.
func TestFailoverIsTurnedOnAndASlaveHasATailOfAnOldEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := unled(t, 2, pocketmq.AsyncReplication)
		lostTail(t, cfg)
		require.NoError(t, os.Rename(folder(cfg, 1), folder(cfg, 1)+"-away"))
		unledLife(t, cfg, 10, 10, nil)
		require.NoError(t, os.RemoveAll(folder(cfg, 1)))
		require.NoError(t, os.Rename(folder(cfg, 1)+"-away", folder(cfg, 1)))
		var events eventLog
		with := elects(cfg)
		with.OnEvent = events.add
		electsNow(t, with, 20)
		cut := eventsOf[pocketmq.Truncated](&events)
		require.Len(t, cut, 1)
		assert.Equal(t, "broker-a/1", cut[0].Node)
	})
}

// lostTail leaves a master with 10 messages, and slaves with 5 more, which it had
// acknowledged and lost with its power.
func lostTail(t *testing.T, cfg pocketmq.ClusterConfig) {
	t.Helper()
	unledLife(t, cfg, 0, 10, func(c *pocketmq.Cluster, p *pocketmq.Producer) {
		replicated(t, p, 100, 5)
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, c.PowerOff("broker-a", 0))
	})
}

// Without elections these would be lost at the next start. With them nobody decides that.
func TestFailoverIsNotTurnedOnWhenTheMasterLacksWhatASlaveHas(t *testing.T) {
	for _, row := range []struct {
		name string
		mode pocketmq.ReplicationMode
		live func(*testing.T, pocketmq.ClusterConfig)
		kept int
	}{
		{"it lost power", pocketmq.AsyncReplication, lostTail, 15},
		{"it lost power, and slaves had acknowledged", pocketmq.SyncReplication, lostTail, 15},
		{"its folder is gone", pocketmq.AsyncReplication, func(t *testing.T, cfg pocketmq.ClusterConfig) {
			unledLife(t, cfg, 0, 15, nil)
			require.NoError(t, os.RemoveAll(folder(cfg, 0)))
		}, 15},
		{"its folder is an older one", pocketmq.AsyncReplication, func(t *testing.T, cfg pocketmq.ClusterConfig) {
			unledLife(t, cfg, 0, 10, nil)
			require.NoError(t, os.CopyFS(folder(cfg, 0)+"-old", os.DirFS(folder(cfg, 0))))
			unledLife(t, cfg, 10, 5, nil)
			require.NoError(t, os.RemoveAll(folder(cfg, 0)))
			require.NoError(t, os.Rename(folder(cfg, 0)+"-old", folder(cfg, 0)))
		}, 15},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := unled(t, 2, row.mode)
				row.live(t, cfg)
				with := elects(cfg)
				var events eventLog
				with.OnEvent = events.add
				for range 2 {
					_, err := startCluster(context.Background(), t, with)
					require.ErrorIs(t, err, pocketmq.ErrNotMaster)
					assert.ErrorContains(t, err, "broker-a/0 is its master until somebody was elected")
					assert.ErrorContains(t, err, "ElectUncleanMaster")
				}
				assert.Empty(t, eventsOf[pocketmq.Elected](&events))
				with.Groups[0].Config.ElectUncleanMaster = true
				c := run(t, with)
				inSync(t, c, 2)
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
				replicated(t, p, 200, 1)
				assert.Len(t, logsAgree(t, c, 10*time.Second), row.kept+1, "the longest log")
				assert.Len(t, eventsOf[pocketmq.UncleanElection](&events), 1)
			})
		})
	}
}

// Nothing was elected by the starts that failed: the group may go on as it was.
func TestAStartThatCouldNotTurnFailoverOnLeavesTheGroupAsItWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := unled(t, 2, pocketmq.AsyncReplication)
		lostTail(t, cfg)
		_, err := startCluster(context.Background(), t, elects(cfg))
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		unledLife(t, cfg, 10, 10, nil)
		electsNow(t, elects(cfg), 20)
	})
}

func TestFailoverIsTurnedOnByAStartThatIsKilledOnItsWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := unled(t, 2, pocketmq.AsyncReplication)
		unledLife(t, cfg, 0, 10, func(c *pocketmq.Cluster, p *pocketmq.Producer) {
			require.NoError(t, c.Kill("broker-a", 1))
			replicated(t, p, 10, 10)
		})
		with := elects(cfg)
		for range 2 {
			c := run(t, with)
			for id := range int64(3) { // the master is elected, and the slaves have not all
				require.NoError(t, c.Kill("broker-a", id))
			}
			require.NoError(t, c.Close())
		}
		c := run(t, with)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		inSync(t, c, 2)
		replicated(t, p, 20, 1)
		assert.Equal(t, counted(21), logsAgree(t, c, 10*time.Second))
	})
}

// Without elections broker 0 would be the master again, who lacks what was acknowledged.
func TestFailoverIsNotTurnedOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		replicated(t, p, 0, 10)
		require.NoError(t, c.Kill("broker-a", 0))
		replicated(t, p, 10, 10)
		require.NoError(t, c.Close())

		without := cfg
		for _, slaves := range []int{2, 0} {
			without.Groups = pair(slaves, pocketmq.BrokerConfig{})
			_, err := startCluster(context.Background(), t, without)
			require.ErrorIs(t, err, pocketmq.ErrNotMaster)
			assert.ErrorContains(t, err, "broker-a/0: cannot start without Failover: its group has elected masters")
		}

		c = run(t, cfg)
		inSync(t, c, 2)
		p = producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		replicated(t, p, 20, 1)
		assert.Equal(t, counted(21), logsAgree(t, c, 10*time.Second))
	})
}
