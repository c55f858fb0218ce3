package pocketmq_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// pair is one group of a master and so many slaves.
func pair(slaves int, cfg pocketmq.BrokerConfig) []pocketmq.BrokerGroup {
	return []pocketmq.BrokerGroup{{Name: "broker-a", Slaves: slaves, Config: cfg}}
}

// replicated sends n messages to queue 0 of T at broker-a, whose bodies are the numbers
// from from on.
func replicated(t testing.TB, p *pocketmq.Producer, from, n int) {
	t.Helper()
	for i := range n {
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "%d", from+i))
		require.NoError(t, err)
	}
}

// caughtUp waits, in a bubble, until slaves have all that their master has written.
func caughtUp(t testing.TB, c *pocketmq.Cluster, ids ...int64) {
	t.Helper()
	synctest.Wait()
	master := c.Broker("broker-a", 0).Status()
	for _, id := range ids {
		slave := c.Broker("broker-a", id).Status()
		require.Equal(t, master.WrittenPosition, slave.WrittenPosition, "slave %d: %+v; master: %+v", id, slave, master)
	}
}

func TestASlaveHasTheLogOfItsMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 100)
		caughtUp(t, c, 1, 2)
		connected := eventsOf[pocketmq.SlaveConnected](&events)
		assert.Len(t, connected, 2)
		st := c.Broker("broker-a", 0).Status()
		assert.Equal(t, pocketmq.RoleMaster, st.Role)
		assert.True(t, st.Writable)
		assert.Equal(t, int64(1), st.Epoch)
		require.Len(t, st.Slaves, 2)
		for i, s := range st.Slaves {
			assert.NotEmpty(t, s.Addr)
			assert.Equal(t, pocketmq.SlaveStatus{ID: int64(i + 1), Connected: true, Addr: s.Addr, Acked: 100, InSync: true}, s)
		}
		slave := c.Broker("broker-a", 1).Status()
		assert.Equal(t, pocketmq.RoleSlave, slave.Role)
		assert.False(t, slave.Writable)
		assert.Equal(t, "a slave takes no messages", slave.Reason)
		assert.True(t, slave.Master.Connected)
		assert.Equal(t, int64(100), slave.Master.End)
	})
}

func TestABrokerWithoutSlavesKnowsNothingOfReplication(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		replicated(t, producer(t, c, pocketmq.ProducerConfig{}), 0, 1)
		st := c.Broker("broker-a", 0).Status()
		assert.Zero(t, st.Epoch)
		assert.Empty(t, st.Slaves)
		assert.True(t, st.Writable)
	})
}

func TestSyncReplicationWaitsForASlave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}})
		synctest.Wait()
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second})
		send := func() (*pocketmq.SendResult, time.Duration, error) {
			begun := time.Now()
			r, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
			return r, time.Since(begun), err
		}
		r, took, err := send()
		require.NoError(t, err)
		assert.Equal(t, pocketmq.SendOK, r.Status)
		assert.Zero(t, took)

		// One of two slaves is enough.
		links(t, c).Drop("broker-a/0", "broker-a/1")
		_, took, err = send()
		require.NoError(t, err)
		assert.Zero(t, took)

		// Nobody answers: stored, and the result comes with the error.
		links(t, c).Drop("broker-a/0", "broker-a/2")
		r, took, err = send()
		require.ErrorIs(t, err, pocketmq.ErrFlushSlaveTimeout)
		require.NotNil(t, r)
		assert.Equal(t, pocketmq.SendFlushSlaveTimeout, r.Status)
		assert.Equal(t, int64(2), r.QueueOffset)
		assert.Equal(t, 3*time.Second, took)

		// The answer comes before its caller gives up, who would send again.
		hasty := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 3 * time.Second})
		begun := time.Now()
		r, err = hasty.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
		require.ErrorIs(t, err, pocketmq.ErrFlushSlaveTimeout)
		assert.Equal(t, int64(3), r.QueueOffset)
		assert.Equal(t, 900*time.Millisecond, time.Since(begun))

		// Who does not want to wait does not.
		begun = time.Now()
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("x"), NoWait: true})
		require.NoError(t, err)
		assert.Zero(t, time.Since(begun))

		// Nobody follows any more: the master knows, and nobody has to wait for that.
		require.NoError(t, c.Kill("broker-a", 1))
		require.NoError(t, c.Kill("broker-a", 2))
		links(t, c).HealAll()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		r, took, err = send()
		require.ErrorIs(t, err, pocketmq.ErrSlaveNotAvailable)
		assert.Equal(t, pocketmq.SendSlaveNotAvailable, r.Status)
		assert.Equal(t, int64(5), r.QueueOffset)
		assert.Zero(t, took)

		// One that comes back catches up.
		require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
		time.Sleep(time.Second)
		caughtUp(t, c, 2)
		_, _, err = send()
		require.NoError(t, err)
	})
}

func TestSlavesFollowWhenAClusterHasStarted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			begin := time.Now()
			c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, MinInSyncReplicas: 3}), Topics: map[string]int{"T": 1}})
			_, err := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries}).Send(t.Context(), text("T", "x"))
			require.NoError(t, err)
			assert.Zero(t, time.Since(begin))
		}
	})
}

func TestMinInSyncReplicasRefusesBeforeAnythingIsStored(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, MinInSyncReplicas: 2}), Topics: map[string]int{"T": 1},
			Transport: over,
		})
		synctest.Wait()
		p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
		replicated(t, p, 0, 1)
		require.NoError(t, c.Kill("broker-a", 1))
		synctest.Wait()
		_, err := p.Send(t.Context(), text("T", "x"))
		require.ErrorIs(t, err, pocketmq.ErrNotEnoughReplicas)
		assert.Equal(t, 1, strings.Count(err.Error(), "the in-sync replicas are not enough"), "%v", err)
		assert.Equal(t, 1, strings.Count(err.Error(), "in sync and connected"), "%v", err)
		t.Log(err)
		assert.Equal(t, int64(1), c.Broker("broker-a", 0).Status().WrittenPosition)

		// One that comes back in time is waited for.
		time.AfterFunc(time.Second, func() { _ = c.Restart(t.Context(), "broker-a", 1) })
		begun := time.Now()
		_, err = p.Send(t.Context(), text("T", "x"))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(begun), 1600*time.Millisecond)
		assert.Zero(t, p.Status().Retried)
	})
}

// Four members, a minimum of two, and three that have to have each message: between the
// minimum and what is wanted a send is stored, below the minimum it is not.
func TestASendIsStoredWithFewerCopiesThanWantedAndNotWithFewerThanTheMinimum(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{
			Groups: pair(3, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, InSyncReplicas: 3, MinInSyncReplicas: 2}), Topics: map[string]int{"T": 1},
			Transport: over,
		})
		synctest.Wait()
		p := producer(t, c, oneTry)
		master := c.Broker("broker-a", 0)
		replicated(t, p, 0, 1)
		require.NoError(t, c.Kill("broker-a", 3))
		synctest.Wait()
		replicated(t, p, 1, 1)
		for n, kill := range []int64{2, 1} {
			require.NoError(t, c.Kill("broker-a", kill))
			synctest.Wait()
			res, err := p.Send(t.Context(), text("T", "%d", 2+n))
			if kill == 2 {
				require.ErrorIs(t, err, pocketmq.ErrSlaveNotAvailable)
				require.NotErrorIs(t, err, pocketmq.ErrNotEnoughReplicas)
				assert.Contains(t, err.Error(), "InSyncReplicas is 3")
				assert.Equal(t, int64(2), res.QueueOffset)
				assert.True(t, master.Status().Writable)
			} else {
				require.ErrorIs(t, err, pocketmq.ErrNotEnoughReplicas)
				assert.Contains(t, err.Error(), "1 of the 2 replicas that an answer needs")
				assert.False(t, master.Status().Writable)
			}
			assert.Equal(t, int64(3), master.Status().WrittenPosition)
		}
	})
}

func TestASlaveServesReadsAndRefusesWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 10)
		time.Sleep(4 * time.Second) // topics have been copied
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(31 * time.Second) // routes have been refreshed
		_, err := p.Send(t.Context(), text("T", "x"))
		require.Error(t, err)
		co, err := c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "g"})
		require.NoError(t, err)
		got, err := co.Pull(t.Context(), queue("T", "broker-a", 0), 0, 32)
		require.NoError(t, err)
		assert.Len(t, got.Messages, 10)
	})
}

// A new slave's log begins anew, in place of the empty one that it has.
func TestASlaveIsCheckedWhileItsLogBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for range 20 {
			c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
			for b := range c.Brokers() {
				require.NoError(t, b.Check(t.Context()), b.Name())
			}
			require.NoError(t, c.Close())
		}
	})
}

func TestWhatAGroupCouldNeverDoIsRefused(t *testing.T) {
	sync, electing := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, Failover: true}
	with := func(cfg pocketmq.BrokerConfig, change func(*pocketmq.BrokerConfig)) pocketmq.BrokerConfig {
		change(&cfg)
		return cfg
	}
	for name, c := range map[string]struct {
		slaves int
		cfg    pocketmq.BrokerConfig
		says   []string
	}{
		"a minimum above the members":  {1, with(sync, func(c *pocketmq.BrokerConfig) { c.MinInSyncReplicas = 3 }), []string{"MinInSyncReplicas is 3", "2 members"}},
		"the same with failover":       {2, with(electing, func(c *pocketmq.BrokerConfig) { c.MinInSyncReplicas = 4 }), []string{"MinInSyncReplicas is 4", "3 members"}},
		"copies above the members":     {1, with(sync, func(c *pocketmq.BrokerConfig) { c.InSyncReplicas = 5 }), []string{"InSyncReplicas is 5", "2 members"}},
		"sync without a slave":         {0, sync, []string{"SyncReplication", "no slave"}},
		"a minimum that nobody asks":   {1, pocketmq.BrokerConfig{MinInSyncReplicas: 2}, []string{"MinInSyncReplicas is 2", "AsyncReplication"}},
		"copies that nobody waits for": {1, pocketmq.BrokerConfig{InSyncReplicas: 2}, []string{"InSyncReplicas is 2", "AsyncReplication"}},
		"async with failover":          {2, pocketmq.BrokerConfig{Failover: true, MinInSyncReplicas: 2}, []string{"MinInSyncReplicas is 2", "AsyncReplication"}},
		"copies with failover":         {2, with(electing, func(c *pocketmq.BrokerConfig) { c.InSyncReplicas = 2 }), []string{"InSyncReplicas is 2", "Failover", "MinInSyncReplicas"}},
		"a log that is sent in crumbs": {1, with(sync, func(c *pocketmq.BrokerConfig) { c.HATransferBytes = 1023 }), []string{"HATransferBytes is 1023", "1024"}},
		"more than a frame at a time":  {1, pocketmq.BrokerConfig{HATransferBytes: 64<<20 + 1}, []string{"HATransferBytes is 67108865", "67108864"}},
		"messages of more than that":   {1, pocketmq.BrokerConfig{MaxMessageSize: 64<<20 - 128<<10 + 1}, []string{"MaxMessageSize is 66977793", "66977792"}},
		"the same when it elects":      {2, with(electing, func(c *pocketmq.BrokerConfig) { c.MaxMessageSize = 80 << 20 }), []string{"MaxMessageSize is 83886080", "66977792"}},
		"only the master is to have":   {1, with(sync, func(c *pocketmq.BrokerConfig) { c.InSyncReplicas = 1 }), []string{"InSyncReplicas is 1", "wait for nobody"}},
		"pieces for nobody":            {0, pocketmq.BrokerConfig{HATransferBytes: 1 << 20}, []string{"HATransferBytes", "no slaves"}},
		"a beginning for nobody":       {0, pocketmq.BrokerConfig{SyncFromLastFile: true}, []string{"SyncFromLastFile", "no slaves"}},
		"reads of nobody":              {0, pocketmq.BrokerConfig{SlaveReadBytes: 1 << 20}, []string{"SlaveReadBytes", "no slaves"}},
		"a lease of one renewal": {2, with(electing, func(c *pocketmq.BrokerConfig) {
			c.Timings.LeaseRenew, c.Timings.LeaseExpire = time.Second, 1999*time.Millisecond
		}), []string{"LeaseExpire is 1.999s", "two"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pocketmq.StartCluster(t.Context(), pocketmq.ClusterConfig{Groups: pair(c.slaves, c.cfg)})
			require.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
			for _, s := range c.says {
				assert.ErrorContains(t, err, s)
			}
			t.Log(err)
		})
	}
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{})
		assert.ErrorIs(t, c.SlowDisk("broker-a", 0, -1), pocketmq.ErrInvalidConfig)
	})
}

// A message goes to slaves in one frame: the largest that a broker takes has to fit, with
// the most properties, and in a batch.
func TestTheLargestMessageReachesSlaves(t *testing.T) {
	ofMemory(t, "a request has 16 MiB at most over frames")
	const largest = 64<<20 - 128<<10
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}, Groups: pair(1, pocketmq.BrokerConfig{
			MaxMessageSize: largest, HATransferBytes: 64 << 20, Replication: pocketmq.SyncReplication, CommitLogFileSize: 128 << 20,
		})})
		p := producer(t, c, pocketmq.ProducerConfig{MaxMessageSize: largest, CompressOver: -1, SendTimeout: time.Minute})
		m := &pocketmq.Message{Topic: "T", Body: make([]byte, largest)}
		m.Properties = map[string]string{"filler": strings.Repeat("x", 32000)}
		_, err := p.Send(t.Context(), m)
		require.NoError(t, err)
		_, err = p.SendBatch(t.Context(), []*pocketmq.Message{{Topic: "T", Body: make([]byte, largest/2)}, {Topic: "T", Body: make([]byte, largest/2-1000)}})
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, int64(3), c.Broker("broker-a", 1).Status().WrittenPosition)
	})
}
