package pocketmq_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// sendAsync sends a message to queue 0 of T and returns where its error will be.
func sendAsync(t *testing.T, p *pocketmq.Producer, m *pocketmq.Message) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
		done <- err
	}()
	return done
}

// inSync waits, in a bubble, until the master has so many slaves in sync.
func inSync(t *testing.T, c *pocketmq.Cluster, slaves int) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		n := 0
		if m := masterOf(c); m >= 0 {
			for _, s := range c.Broker("broker-a", m).Status().Slaves {
				if s.InSync {
					n++
				}
			}
		}
		if n == slaves {
			return
		}
		require.Less(t, time.Since(begin), time.Minute, "%d slaves in sync, not %d", n, slaves)
	}
}

// logsAgree waits, in a bubble, until the logs of all members have the same end, and
// returns what queue 0 of T holds at each of them.
func logsAgree(t *testing.T, c *pocketmq.Cluster, within time.Duration) []string {
	t.Helper()
	agree := func() bool {
		end := int64(-1)
		for b := range c.Brokers() {
			st := b.Status()
			if end < 0 {
				end = st.WrittenPosition
			}
			if st.WrittenPosition != end || st.DispatchedPosition != end {
				return false
			}
		}
		return true
	}
	for begin := time.Now(); !agree(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > within {
			for b := range c.Brokers() {
				t.Logf("%d: %+v", b.ID(), b.Status())
			}
			t.Fatalf("the logs do not agree after %v", within)
		}
	}
	for b := range c.Brokers() { // a slave may have a record before it knows of the topic
		for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			_, err := dialMember(t, c, "broker-a", b.ID()).GetTopicConfig(t.Context(), &protocol.GetTopicConfigRequest{Topic: "T"})
			if err == nil {
				break
			}
			require.Less(t, time.Since(begin), 5*time.Second, "member %d: %v", b.ID(), err)
		}
	}
	want := contentAt(t, c, 0)
	for b := range c.Brokers() {
		require.Equal(t, want, contentAt(t, c, b.ID()), "member %d", b.ID())
	}
	return want
}

func TestAMasterThatIsFencedWhileItWritesAnswersAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, Retries: pocketmq.NoRetries})
		replicated(t, p, 0, 1)
		inSync(t, c, 2)
		require.NoError(t, c.SlowDisk("broker-a", 0, 3*time.Second)) // longer than a hand-over waits
		done := sendAsync(t, p, text("T", "late"))
		synctest.Wait()
		require.NoError(t, c.Elect(t.Context(), "broker-a", 1))
		require.Error(t, <-done)
		require.NoError(t, c.SlowDisk("broker-a", 0, 0))
		logsAgree(t, c, 10*time.Second)
	})
}

// The elected dies to the controller before its confirmation is there. Nobody was told
// that a record stays which only it has, so it goes.
func TestWhoWasElectedInVainGivesUpWhatOnlyItHad(t *testing.T) {
	for _, lonely := range []bool{true, false} {
		t.Run(strconv.FormatBool(lonely), func(t *testing.T) {
			bubble(t, func(t *testing.T) { electedInVain(t, lonely) })
		})
	}
}

func electedInVain(t *testing.T, lonely bool) {
	var in inbox
	c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
	consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
	p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 20 * time.Second, Retries: 30})
	inSync(t, c, 2)
	replicated(t, p, 0, 3)
	links(t, c).Cut("broker-a/0", "broker-a/2") // what Drop has held back would come later
	if lonely {
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("lonely"), NoWait: true})
		require.NoError(t, err)
	}
	synctest.Wait()
	before := logFolders(c, 1)
	require.NoError(t, c.Kill("broker-a", 0))
	links(t, c).HealAll()
	links(t, c).Delay("controller/broker-a", "broker-a/1", 100*time.Millisecond)
	if !lonely {
		links(t, c).Drop("controller/broker-a", "broker-a/2") // it does not promise in time
	}
	soon := func(what string, f func() bool) {
		for begun := time.Now(); !f(); time.Sleep(10 * time.Millisecond) {
			require.Less(t, time.Since(begun), 20*time.Second, what)
		}
	}
	soon("1 is elected, and on the way of being told so", func() bool {
		state, err := os.ReadFile(filepath.Join(filepath.Dir(c.Broker("broker-a", 1).Dir()), "controller", "broker-a.json"))
		return err == nil && strings.Contains(string(state), `"pending":1`)
	})
	links(t, c).CutOneWay("broker-a/1", "controller/broker-a")
	soon("its epoch begins", func() bool { return logFolders(c, 1) > before })
	links(t, c).Drop("controller/broker-a", "broker-a/1")
	links(t, c).Heal("controller/broker-a", "broker-a/2")
	soon("another one is elected", func() bool { return c.Broker("broker-a", 2).Role() == pocketmq.RoleMaster })
	links(t, c).HealAll()
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	inSync(t, c, 2)
	replicated(t, p, 3, 1)
	assert.Equal(t, []string{"0", "1", "2", "3"}, logsAgree(t, c, 30*time.Second))
	time.Sleep(time.Minute)
	assert.NotContains(t, in.bodies(), "lonely")
}

// logFolders is how many files a member's log has: an epoch begins a new one.
func logFolders(c *pocketmq.Cluster, id int64) int {
	files, _ := filepath.Glob(filepath.Join(c.Broker("broker-a", id).Dir(), "commitlog", "[0-9]*")) // the pattern is good
	return len(files)
}

// Nothing says that a controller has died while no packet came through.
func TestAReplicaFindsItsControllerAgainAfterABlackHole(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(strconv.FormatBool(killed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
				inSync(t, c, 2)
				if !killed {
					require.NoError(t, c.KillController("broker-a")) // they dial
				}
				for id := range 3 {
					links(t, c).Drop("controller/broker-a", "broker-a/"+strconv.Itoa(id))
				}
				if killed {
					require.NoError(t, c.KillController("broker-a"))
				}
				time.Sleep(2 * time.Second)
				require.NoError(t, c.RestartController(t.Context(), "broker-a"))
				time.Sleep(10 * time.Second)
				links(t, c).HealAll()
				time.Sleep(7 * time.Second) // LeaseExpire and two LeaseRenew
				replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 1)
				inSync(t, c, 2)
			})
		})
	}
}

// Nobody waits for the disk: the message can be read once it is synced all the same.
func TestWhatNobodyWaitsForIsConfirmedWithSyncFlush(t *testing.T) {
	for _, dir := range []bool{false, true} {
		t.Run(strconv.FormatBool(dir), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cfg := pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}}
				cfg.Groups[0].Config.Flush = pocketmq.SyncFlush
				if dir {
					cfg.Dir = t.TempDir()
				}
				c := run(t, cfg)
				p := producer(t, c, pocketmq.ProducerConfig{})
				_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("x"), NoWait: true})
				require.NoError(t, err)
				assert.Equal(t, []string{"x"}, logsAgree(t, c, 2*time.Second))
			})
		})
	}
}

// A member whose disk is full can promise nothing. It takes part again once it can.
func TestAMemberThatCannotSaveItsPromisesTakesPartAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		inSync(t, c, 2)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: time.Minute, Retries: 100})
		replicated(t, p, 0, 1)
		require.NoError(t, c.FullDisk("broker-a", 2, true))
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(20 * time.Second)
		assert.Equal(t, pocketmq.RoleMaster, c.Broker("broker-a", 1).Role())
		require.NoError(t, c.FullDisk("broker-a", 2, false))
		time.Sleep(15 * time.Second) // its store notices at the next time it looks
		inSync(t, c, 1)
		replicated(t, p, 1, 1)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, []string{"0", "1"}, logsAgree(t, c, 10*time.Second))
	})
}

func TestABrokerWithAFullDiskCanLosePower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		inSync(t, c, 2)
		require.NoError(t, c.FullDisk("broker-a", 1, true))
		require.NoError(t, c.PowerOff("broker-a", 1))
		require.NoError(t, c.FullDisk("broker-a", 1, false))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
		time.Sleep(time.Second)
		inSync(t, c, 2)
	})
}

// A slave that is closed or shut down says that it goes: answers do not wait until it is
// given up for lost, as they do for one that was killed.
func TestASlaveThatIsStoppedHoldsUpNoSend(t *testing.T) {
	for name, x := range map[string]struct {
		end  func(*pocketmq.Cluster) error
		wait time.Duration
	}{
		"shutdown": {func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 1).Shutdown(context.Background()) }, 0},
		"close":    {func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 1).Close() }, 0},
		"kill":     {func(c *pocketmq.Cluster) error { return c.Kill("broker-a", 1) }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{
					Groups: trio(), Topics: map[string]int{"T": 1}, Timings: pocketmq.Timings{ReplicationTimeout: 10 * time.Second},
				})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: pocketmq.NoRetries})
				inSync(t, c, 2)
				require.NoError(t, x.end(c))
				begun := time.Now()
				replicated(t, p, 0, 1)
				assert.Equal(t, x.wait, time.Since(begun))
				inSync(t, c, 1)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				inSync(t, c, 2)
				replicated(t, p, 1, 1)
				assert.Equal(t, counted(2), logsAgree(t, c, time.Second))
			})
		})
	}
}

// A master that is shut down hands over before it goes; one that is closed does not.
func TestAMasterThatIsShutDownHandsOver(t *testing.T) {
	for name, end := range map[string]func(*pocketmq.Cluster) error{
		"shutdown": func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Shutdown(context.Background()) },
		"close":    func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 100})
				inSync(t, c, 2)
				replicated(t, p, 0, 5)
				begun := time.Now()
				ended := make(chan error, 1)
				go func() { ended <- end(c) }()
				synctest.Wait()
				replicated(t, p, 5, 1)
				took := time.Since(begun)
				if name == "shutdown" {
					assert.Less(t, took, time.Second)
				} else {
					assert.Greater(t, took, 4*time.Second, "a lease")
				}
				require.NoError(t, <-ended)
				require.Positive(t, masterOf(c))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				inSync(t, c, 2)
				assert.Equal(t, counted(6), logsAgree(t, c, time.Second))
			})
		})
	}
}

// Nobody may be there to hand over to, or the controller is away: Shutdown ends.
func TestAShutdownDoesNotWaitForASuccessorForEver(t *testing.T) {
	for name, without := range map[string]func(c *pocketmq.Cluster) error{
		"slaves":         func(c *pocketmq.Cluster) error { return errors.Join(c.Kill("broker-a", 1), c.Kill("broker-a", 2)) },
		"its controller": func(c *pocketmq.Cluster) error { return c.KillController("broker-a") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
				inSync(t, c, 2)
				require.NoError(t, without(c))
				begun := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				require.NoError(t, c.Broker("broker-a", 0).Shutdown(ctx))
				assert.LessOrEqual(t, time.Since(begun), 3*time.Second)
			})
		})
	}
}

func TestAMasterThatStopsDoesNotWarnOfItsSlaves(t *testing.T) {
	for name, stop := range map[string]func(c *pocketmq.Cluster) error{
		"closed":    func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Close() },
		"shut down": func(c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				x := &trouble{t: t}
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Logger: x.logger()})
				inSync(t, c, 2)
				require.NoError(t, stop(c))
				synctest.Wait()
				x.mu.Lock()
				log := x.log.String()
				x.mu.Unlock()
				// Its successor may see it as a slave that goes away: that is another line.
				assert.NotContains(t, log, `level=WARN msg="a slave does not follow any more" node=broker-a/0`)
			})
		})
	}
}
