package pocketmq_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// ledTwice is a group that has elected twice, and has 20 messages.
func ledTwice(t *testing.T) pocketmq.ClusterConfig {
	t.Helper()
	cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
	c := run(t, cfg)
	p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
	replicated(t, p, 0, 10)
	require.NoError(t, c.Kill("broker-a", 0))
	replicated(t, p, 10, 10)
	require.NoError(t, c.Close())
	return cfg
}

// tear makes a file one that nobody has written.
func tear(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
}

func TestAGroupWithoutItsControllersStateGoesOnWhenItIsToldTo(t *testing.T) {
	for _, row := range []struct {
		name string
		lose func(t *testing.T, path string)
		text string
	}{
		{"it is gone", func(t *testing.T, path string) {
			require.NoError(t, os.RemoveAll(filepath.Dir(path)))
		}, "the state of its controller is lost"},
		{"both versions are damaged", func(t *testing.T, path string) {
			tear(t, path)
			tear(t, path+".bak")
		}, "state file damaged"},
		{"only the version before is there", func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
		}, "is missing or damaged"},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := ledTwice(t)
				path := filepath.Join(cfg.Dir, "controller", "broker-a.json")
				row.lose(t, path)
				for range 2 {
					_, err := startCluster(context.Background(), t, cfg)
					require.Error(t, err)
					assert.ErrorContains(t, err, row.text)
					assert.ErrorContains(t, err, path)
					assert.ErrorContains(t, err, "ElectUncleanMaster")
				}
				var events eventLog
				cfg.OnEvent = events.add
				cfg.Groups[0].Config.ElectUncleanMaster = true
				c := run(t, cfg)
				inSync(t, c, 2)
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
				replicated(t, p, 20, 1)
				assert.Equal(t, counted(21), logsAgree(t, c, 10*time.Second), "the longest log had everything")
				assert.Len(t, eventsOf[pocketmq.UncleanElection](&events), 1)
				epoch := c.Broker("broker-a", masterOf(c)).Epoch()
				assert.Greater(t, epoch, int64(1000))
				require.NoError(t, c.Close())

				cfg.Groups[0].Config.ElectUncleanMaster = false // it is a group like others now
				c = run(t, cfg)
				inSync(t, c, 2)
				p = producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
				replicated(t, p, 21, 1)
				assert.Equal(t, counted(22), logsAgree(t, c, 10*time.Second))
				assert.Equal(t, epoch+1, c.Broker("broker-a", masterOf(c)).Epoch())
			})
		})
	}
}

// While the group runs an operator names the member.
func TestAControllerThatComesBackWithoutItsStateElectsWhomAnOperatorNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir(), OnEvent: events.add}
		c := run(t, cfg)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		inSync(t, c, 2)
		replicated(t, p, 0, 10)
		require.NoError(t, c.KillController("broker-a"))
		require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, "controller")))
		require.NoError(t, c.Kill("broker-a", 2))
		require.NoError(t, c.RestartController(t.Context(), "broker-a"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, int64(-1), masterOf(c), "nobody has a lease")
		err := c.ElectUnclean(t.Context(), "broker-a", 1)
		require.ErrorIs(t, err, pocketmq.ErrUnreachable, "member 2 may have promised a later epoch")
		assert.ErrorContains(t, err, "has not heard of all members")
		require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
		time.Sleep(2 * time.Second)
		err = c.Elect(t.Context(), "broker-a", 1)
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		assert.ErrorContains(t, err, "the controller's state is lost")
		assert.Empty(t, eventsOf[pocketmq.UncleanElection](&events))

		require.NoError(t, c.ElectUnclean(t.Context(), "broker-a", 1))
		assert.Equal(t, pocketmq.RoleMaster, c.Broker("broker-a", 1).Role())
		assert.Len(t, eventsOf[pocketmq.UncleanElection](&events), 1)
		inSync(t, c, 2)
		replicated(t, p, 10, 1)
		assert.Equal(t, counted(11), logsAgree(t, c, 10*time.Second))
	})
}

func TestAnOldCopyOfAControllersStateSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		c := run(t, cfg)
		inSync(t, c, 2)
		require.NoError(t, c.Close())
		path := filepath.Join(cfg.Dir, "controller", "broker-a.json")
		old, err := os.ReadFile(path)
		require.NoError(t, err)
		for range 3 {
			c = run(t, cfg)
			p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
			inSync(t, c, 2)
			replicated(t, p, 0, 1)
			require.NoError(t, c.Close())
		}
		require.NoError(t, os.WriteFile(path, old, 0o600))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = startCluster(ctx, t, cfg)
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		assert.ErrorContains(t, err, "the state of its controller is lost, or an old one")
	})
}

func electErrors(t *testing.T, e *errorTexts) {
	never := func(name string, cfg pocketmq.ClusterConfig) {
		e.replace = append(e.replace, cfg.Dir, "$DIR")
		_, err := startCluster(t.Context(), t, cfg)
		require.Error(t, err)
		e.add(name, err)
	}
	cfg := unled(t, 2, pocketmq.SyncReplication)
	unledLife(t, cfg, 0, 5, nil)
	require.NoError(t, os.RemoveAll(folder(cfg, 0)))
	never("elect: failover is new and the master's folder is gone", elects(cfg))

	cfg = ledTwice(t)
	without := cfg
	without.Groups = pair(0, pocketmq.BrokerConfig{})
	never("elect: failover is turned off", without)
	path := filepath.Join(cfg.Dir, "controller", "broker-a.json")
	require.NoError(t, os.Remove(path))
	never("elect: the controller's state is missing", cfg)
	tear(t, path)
	tear(t, path+".bak")
	never("elect: the controller's state is damaged", cfg)
	require.NoError(t, os.RemoveAll(filepath.Dir(path)))
	never("elect: the controller's state is lost", cfg)
}
