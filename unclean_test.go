package pocketmq_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// twoKnowMore is a group of which members 0 and 1 know messages as confirmed that member
// 2, which was away, does not have.
func twoKnowMore(t *testing.T, x *eventLog) (*pocketmq.Cluster, *pocketmq.Producer) {
	c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, OnEvent: x.add})
	p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 5 * time.Second, Retries: 2})
	replicated(t, p, 0, 10)
	time.Sleep(10 * time.Second)
	require.NoError(t, c.Kill("broker-a", 2))
	inTheEnd(t, p, 10)
	time.Sleep(10 * time.Second) // it is out of the set
	replicated(t, p, 11, 20)
	return c, p
}

// backAndBehind starts member 2 again, which reaches the controller and cannot catch up.
func backAndBehind(t *testing.T, c *pocketmq.Cluster) {
	links(t, c).Cut("broker-a/2", "broker-a/0")
	require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
	time.Sleep(time.Second)
}

func TestAnOrderForOneThatIsNotThereIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var x eventLog
		c, p := twoKnowMore(t, &x)
		begun := time.Now()
		err := c.ElectUnclean(t.Context(), "broker-a", 2)
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		assert.ErrorContains(t, err, "broker broker-a/2 is not connected to the controller")
		err = c.Elect(t.Context(), "broker-a", 2)
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		for _, elect := range []func(context.Context, string, int64) error{c.Elect, c.ElectUnclean} {
			err = elect(t.Context(), "broker-a", 7)
			require.ErrorIs(t, err, pocketmq.ErrNotFound)
			assert.ErrorContains(t, err, "group broker-a has no broker 7")
		}
		assert.Zero(t, time.Since(begun))
		replicated(t, p, 20, 30) // nothing has changed
		assert.Empty(t, eventsOf[pocketmq.UncleanElection](&x))
	})
}

func TestAnOrderThatWasGivenUpTakesNoEffectLater(t *testing.T) {
	for _, controller := range []string{"stays", "dies"} {
		t.Run(controller, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var x eventLog
				c, p := twoKnowMore(t, &x)
				backAndBehind(t, c)
				require.NoError(t, c.Pause("broker-a", 2)) // it is there, and does not answer
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if controller == "dies" {
					time.AfterFunc(500*time.Millisecond, func() { _ = c.KillController("broker-a") })
				}
				err := c.ElectUnclean(ctx, "broker-a", 2)
				require.Error(t, err)
				t.Log(err)
				if controller == "dies" {
					require.ErrorIs(t, err, pocketmq.ErrUnreachable)
					require.NoError(t, c.RestartController(t.Context(), "broker-a"))
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.ErrorContains(t, err, "the order is withdrawn")
				}
				inTheEnd(t, p, 20)
				require.NoError(t, c.Resume("broker-a", 2))
				time.Sleep(time.Minute)
				inTheEnd(t, p, 21)
				assert.Empty(t, eventsOf[pocketmq.UncleanElection](&x))
				assert.NotEqual(t, int64(2), masterOf(c))
			})
		})
	}
}

func TestAfterAnUncleanElectionTheOthersFollow(t *testing.T) {
	for _, others := range []string{"living", "restarted"} {
		t.Run(others, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var x eventLog
				c, p := twoKnowMore(t, &x)
				backAndBehind(t, c)
				require.NoError(t, c.ElectUnclean(t.Context(), "broker-a", 2))
				require.Len(t, eventsOf[pocketmq.UncleanElection](&x), 1)
				if others == "restarted" {
					for _, id := range []int64{0, 1} {
						require.NoError(t, c.Kill("broker-a", id))
					}
				}
				links(t, c).HealAll()
				if others == "restarted" {
					for _, id := range []int64{0, 1} {
						require.NoError(t, c.Restart(t.Context(), "broker-a", id))
					}
				}
				time.Sleep(10 * time.Second)
				inTheEnd(t, p, 20)
				assert.Len(t, eventsOf[pocketmq.Truncated](&x), 2)
				assert.Equal(t, int64(2), masterOf(c))
				st := c.Broker("broker-a", 2).Status()
				require.Len(t, st.Slaves, 2)
				for _, s := range st.Slaves {
					assert.True(t, s.InSync, "broker %d", s.ID)
				}
			})
		})
	}
}

func TestAControllerWhoseFileIsGoneSaysThatItsBackupIsNotUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		c, err := pocketmq.StartCluster(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		path := filepath.Join(cfg.Dir, "controller", "broker-a.json")
		require.FileExists(t, path+".bak")
		require.NoError(t, os.Remove(path))
		_, err = pocketmq.StartCluster(t.Context(), cfg)
		require.ErrorContains(t, err, path+" is missing or damaged, and the version before it, beside it with .bak, is not used")
		assert.NotContains(t, err.Error(), "was used")
	})
}
