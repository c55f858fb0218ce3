package pocketmq_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestTheMasterKnowsHowFarBehindItsSlavesAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 10)
		synctest.Wait()
		links(t, c).Drop("broker-a/0", "broker-a/1")
		replicated(t, p, 10, 5)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		slaves := func() (one, two pocketmq.SlaveStatus) {
			st := c.Broker("broker-a", 0).Status()
			require.Len(t, st.Slaves, 2)
			return st.Slaves[0], st.Slaves[1]
		}
		one, two := slaves()
		assert.Equal(t, int64(10), one.Acked)
		assert.Equal(t, int64(5), one.LagMessages)
		assert.InDelta(t, 5*150, one.LagBytes, 5*60, "about")
		assert.Equal(t, 2*time.Second, one.Lag)
		assert.True(t, one.InSync)
		assert.Equal(t, pocketmq.SlaveStatus{ID: 2, Connected: true, Addr: two.Addr, Acked: 15, InSync: true}, two)

		time.Sleep(13 * time.Second)
		one, _ = slaves()
		assert.Equal(t, 15*time.Second, one.Lag)
		time.Sleep(time.Second)
		one, _ = slaves()
		assert.False(t, one.InSync, "it has lacked something for more than 15 s")

		links(t, c).HealAll()
		time.Sleep(30 * time.Second)
		one, _ = slaves()
		assert.Equal(t, pocketmq.SlaveStatus{ID: 1, Connected: true, Addr: one.Addr, Acked: 15, InSync: true}, one)
	})
}

func TestEventsOfReplication(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		synctest.Wait()
		connected, followed := eventsOf[pocketmq.SlaveConnected](&events), eventsOf[pocketmq.MasterFollowed](&events)
		require.Len(t, connected, 1)
		require.Len(t, followed, 1)
		assert.Equal(t, pocketmq.SlaveConnected{EventBase: pocketmq.EventBase{Time: connected[0].Time, Node: "broker-a/0"}, ID: 1, Addr: connected[0].Addr}, connected[0])
		assert.Equal(t, pocketmq.MasterFollowed{EventBase: pocketmq.EventBase{Time: followed[0].Time, Node: "broker-a/1"}, ID: 0, Addr: followed[0].Addr, Epoch: 1}, followed[0])
		replicated(t, p, 0, 10)
		synctest.Wait()

		require.NoError(t, c.Kill("broker-a", 0))
		synctest.Wait()
		lost := eventsOf[pocketmq.MasterLost](&events)
		require.Len(t, lost, 1)
		assert.Equal(t, "broker-a/1", lost[0].Node)
		assert.Equal(t, followed[0].Addr, lost[0].Addr)
		assert.Error(t, lost[0].Err)
		assert.Equal(t, time.Now(), lost[0].Time)
		time.Sleep(time.Minute)
		assert.Len(t, eventsOf[pocketmq.MasterLost](&events), 2, "once more, that it is not found")
		st := c.Broker("broker-a", 1).Status()
		assert.False(t, st.Master.Connected)
		assert.ErrorIs(t, st.Master.Err, pocketmq.ErrNoRoute)

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		back := time.Now()
		time.Sleep(6 * time.Second)
		connected = eventsOf[pocketmq.SlaveConnected](&events)
		require.Len(t, connected, 2)
		assert.Equal(t, int64(10), connected[1].Position)
		assert.LessOrEqual(t, connected[1].Time.Sub(back), 5*time.Second)
		followed = eventsOf[pocketmq.MasterFollowed](&events)
		require.Len(t, followed, 2)
		assert.Equal(t, int64(2), followed[1].Epoch, "a master without failover begins an epoch when it starts")
		st = c.Broker("broker-a", 1).Status()
		assert.Equal(t, pocketmq.MasterStatus{Connected: true, Addr: followed[1].Addr, Epoch: 2, End: 10}, st.Master)

		require.NoError(t, c.Kill("broker-a", 1))
		synctest.Wait()
		gone := eventsOf[pocketmq.SlaveDisconnected](&events)
		require.Len(t, gone, 2) // the first one as the master ended
		assert.Equal(t, int64(1), gone[1].ID)
		assert.Equal(t, connected[1].Addr, gone[1].Addr)
		assert.Error(t, gone[1].Err)
	})
}

func TestEventsOfAFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, OnEvent: events.add})
		synctest.Wait()
		elected := eventsOf[pocketmq.Elected](&events)
		require.Len(t, elected, 1)
		assert.Equal(t, pocketmq.Elected{EventBase: pocketmq.EventBase{Time: elected[0].Time, Node: "broker-a/0"}, Epoch: 1}, elected[0])
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		replicated(t, p, 0, 10)
		synctest.Wait()

		// The master writes what nobody else gets, and is lost.
		links(t, c).Cut("broker-a/0", "broker-a/1")
		links(t, c).Cut("broker-a/0", "broker-a/2")
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("unconfirmed"), NoWait: true})
		require.NoError(t, err)
		require.NoError(t, c.Kill("broker-a", 0))
		links(t, c).HealAll()
		inTheEnd(t, p, 10)
		elected = eventsOf[pocketmq.Elected](&events)
		require.Len(t, elected, 2)
		m := masterOf(c)
		assert.Equal(t, c.Broker("broker-a", m).Epoch(), elected[1].Epoch)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(10 * time.Second)
		cut := eventsOf[pocketmq.Truncated](&events)
		require.Len(t, cut, 1)
		assert.Equal(t, pocketmq.Truncated{EventBase: pocketmq.EventBase{Time: cut[0].Time, Node: "broker-a/0"}, From: 11, To: 10, Epoch: elected[1].Epoch}, cut[0])
		st := c.Broker("broker-a", m).Status()
		assert.Equal(t, st.WrittenPosition, st.ConfirmedPosition)
		require.Len(t, st.Slaves, 2)
		for _, s := range st.Slaves {
			assert.True(t, s.InSync, "%+v", s)
			assert.Equal(t, st.WrittenPosition, s.Acked)
		}
		slave := c.Broker("broker-a", 0).Status()
		assert.Equal(t, st.WrittenPosition, slave.ConfirmedPosition)
		assert.Equal(t, elected[1].Epoch, slave.Epoch)
	})
}

func TestElectHandsOverAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		time.Sleep(2 * time.Second) // all are in sync
		n := 0
		for _, id := range []int64{1, 2, 0, 0} {
			replicated(t, p, n, 10)
			n += 10
			begun := time.Now()
			require.NoError(t, c.Elect(t.Context(), "broker-a", id))
			assert.Zero(t, time.Since(begun), "nobody's lease, and no goodbye, is waited for")
			require.Equal(t, pocketmq.RoleMaster, c.Broker("broker-a", id).Role())
			time.Sleep(2 * time.Second) // the others follow, and clients know
			inTheEnd(t, p, n)
			n++
		}
		time.Sleep(5 * time.Second)
		got := queueContent(t, c, queue("T", "broker-a", 0))
		require.Len(t, got, n)
		for i, s := range got {
			require.Equal(t, text("T", "%d", i).Body, []byte(s.body))
		}
	})
}

func TestElectRefusesWhoLacksSomething(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var x eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, OnEvent: x.add})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		replicated(t, p, 0, 10)
		synctest.Wait()
		require.NoError(t, c.Kill("broker-a", 2))
		inTheEnd(t, p, 10)
		time.Sleep(20 * time.Second) // it is out of the set
		inTheEnd(t, p, 11)
		err := c.Elect(t.Context(), "broker-a", 2)
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		t.Log(err)
		assert.ErrorIs(t, c.Elect(t.Context(), "broker-a", 7), pocketmq.ErrNotFound)
		assert.ErrorIs(t, c.Elect(t.Context(), "broker-x", 0), pocketmq.ErrNotFound)
		assert.Equal(t, int64(0), masterOf(c), "it goes on")

		// Those who have everything are gone, and will not come back.
		require.NoError(t, c.Kill("broker-a", 1))
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
		time.Sleep(time.Minute)
		require.Equal(t, int64(-1), masterOf(c), "nobody rather than somebody without it")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, c.Elect(ctx, "broker-a", 2), pocketmq.ErrNotMaster)
		require.NoError(t, c.ElectUnclean(ctx, "broker-a", 2))
		assert.Equal(t, pocketmq.RoleMaster, c.Broker("broker-a", 2).Role())
		time.Sleep(time.Second)
		unclean := eventsOf[pocketmq.UncleanElection](&x)
		require.Len(t, unclean, 1)
		assert.Equal(t, "controller/broker-a", unclean[0].Node)
		assert.Equal(t, "broker-a", unclean[0].Broker)
		assert.Equal(t, int64(2), unclean[0].ID)
		assert.Equal(t, c.Broker("broker-a", 2).Epoch(), unclean[0].Epoch)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
		time.Sleep(10 * time.Second)
		inTheEnd(t, p, 12)
	})
}

func TestAControllerMayBeAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		replicated(t, p, 0, 10)
		synctest.Wait()
		require.NoError(t, c.KillController("broker-a"))
		assert.ErrorIs(t, c.Elect(t.Context(), "broker-a", 1), pocketmq.ErrUnreachable)
		assert.ErrorContains(t, c.KillController("broker-a"), "not running")
		assert.ErrorIs(t, c.KillController("broker-x"), pocketmq.ErrNotFound)
		time.Sleep(4 * time.Second)
		replicated(t, p, 10, 1) // its lease runs
		time.Sleep(2 * time.Second)
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		require.ErrorIs(t, err, pocketmq.ErrNotMaster, "its lease is over")
		require.NoError(t, c.RestartController(t.Context(), "broker-a"))
		assert.ErrorContains(t, c.RestartController(t.Context(), "broker-a"), "running")
		begun := time.Now()
		inTheEnd(t, p, 11)
		t.Log("served again after", time.Since(begun))
		assert.LessOrEqual(t, time.Since(begun), 8*time.Second)
	})
}

// fill sends messages of 1 KiB.
func fill(t testing.TB, p *pocketmq.Producer, n int) {
	t.Helper()
	for range n {
		inTheEndSend(t, p, strings.Repeat("x", 1000))
	}
}

func inTheEndSend(t testing.TB, p *pocketmq.Producer, body string) {
	t.Helper()
	for range 1000 {
		if _, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte(body)}); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("nobody takes messages")
}

func TestHA02_ASlaveWhoseLogTheMasterCannotContinueBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, failover := range map[string]bool{"failover": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				cfg := pocketmq.BrokerConfig{CommitLogFileSize: 16 << 10, RetentionBytes: 64 << 10}
				groups := pair(1, cfg)
				if failover {
					cfg.Failover, cfg.Replication = true, pocketmq.SyncReplication
					groups = pair(2, cfg)
				}
				c := run(t, pocketmq.ClusterConfig{Groups: groups, Topics: map[string]int{"T": 1}, OnEvent: events.add})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
				fill(t, p, 20)
				caughtUp(t, c, 1)
				require.NoError(t, c.Kill("broker-a", 1))
				fill(t, p, 1)
				time.Sleep(30 * time.Second)
				fill(t, p, 200)
				time.Sleep(30 * time.Second) // old files went
				master := c.Broker("broker-a", 0).Status()
				require.Greater(t, master.MinPosition, int64(21))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				time.Sleep(10 * time.Second)
				caughtUp(t, c, 1)
				anew := eventsOf[pocketmq.LogRestarted](&events)
				require.Len(t, anew, 1)
				assert.Equal(t, pocketmq.LogRestarted{
					EventBase: pocketmq.EventBase{Time: anew[0].Time, Node: "broker-a/1"}, From: 20, Position: master.MinPosition, Epoch: 1, Err: anew[0].Err,
				}, anew[0])
				assert.ErrorContains(t, anew[0].Err, "20")
				check(t, c)
				fill(t, p, 10)
				caughtUp(t, c, 1)
				slave := c.Broker("broker-a", 1).Status()
				assert.True(t, slave.Master.Connected)
				st := c.Broker("broker-a", 0).Status()
				assert.True(t, st.Slaves[0].InSync, "%+v", st.Slaves)
				if failover {
					require.NoError(t, c.Elect(t.Context(), "broker-a", 1))
					fill(t, p, 1)
				}
			})
		})
	}
}

// The log of another group is never taken for one's own.
func TestASlaveWithTheFolderOfAnotherGroupIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		c, err := pocketmq.StartCluster(t.Context(), pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 1}, Groups: []pocketmq.BrokerGroup{
			{Name: "broker-a", Slaves: 1}, {Name: "broker-b", Slaves: 1},
		}})
		require.NoError(t, err)
		defer c.Close()
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 10)
		synctest.Wait()
		require.NoError(t, c.Kill("broker-a", 1))
		require.NoError(t, c.Kill("broker-b", 1))
		a, b := c.Broker("broker-a", 1).Dir(), c.Broker("broker-b", 1).Dir()
		require.NoError(t, os.RemoveAll(b))
		require.NoError(t, os.Rename(a, b))
		err = c.Restart(t.Context(), "broker-b", 1)
		require.Error(t, err)
		assert.ErrorContains(t, err, "broker-a")
		assert.ErrorContains(t, err, "broker-b")
		assert.False(t, errors.Is(err, pocketmq.ErrUnreachable))
	})
}

// Without failover a slave has the epoch of the master that it follows, also before
// the master writes anything under it.
func TestASlaveHasTheEpochOfItsMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}, Dir: t.TempDir()}
		for range 3 {
			c := run(t, cfg)
			p := producer(t, c, pocketmq.ProducerConfig{})
			synctest.Wait()
			epoch := c.Broker("broker-a", 0).Epoch()
			assert.Positive(t, epoch)
			for i := range 2 {
				for _, id := range []int64{1, 2} {
					assert.Equal(t, epoch, c.Broker("broker-a", id).Epoch(), "%d", i)
					assert.Equal(t, epoch, c.Broker("broker-a", id).Status().Epoch, "%d", i)
				}
				replicated(t, p, 0, 5)
				time.Sleep(time.Minute)
			}
			require.NoError(t, c.Close())
		}
	})
}

func TestASlaveThatIsGoneStaysKnownWithTheAgeOfWhatItLacks(t *testing.T) {
	for name, cfg := range map[string]pocketmq.BrokerConfig{
		"without failover": {}, "with failover": {Failover: true, Replication: pocketmq.SyncReplication},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, cfg), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				replicated(t, p, 0, 3)
				synctest.Wait()
				slave := func() pocketmq.SlaveStatus {
					st := c.Broker("broker-a", 0).Status()
					require.Len(t, st.Slaves, 1)
					return st.Slaves[0]
				}
				require.NoError(t, c.Kill("broker-a", 1))
				time.Sleep(time.Hour)
				s := slave()
				assert.False(t, s.Connected)
				assert.Equal(t, int64(3), s.Acked)
				assert.Zero(t, s.Lag, "it has all")
				assert.Equal(t, cfg.Failover, s.InSync, "no smaller set would be enough for answers")
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("x"), NoWait: true})
				require.NoError(t, err)
				assert.Zero(t, slave().Lag)
				assert.Equal(t, int64(1), slave().LagMessages)
				time.Sleep(time.Minute)
				assert.Equal(t, time.Minute, slave().Lag)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				time.Sleep(10 * time.Second)
				s = slave()
				assert.Equal(t, pocketmq.SlaveStatus{ID: 1, Connected: true, Addr: s.Addr, Acked: 4, InSync: true}, s)
			})
		})
	}
}
