package pocketmq_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// nameServersSay is what each of three name servers has of broker-a: id -> address, and
// where T lies.
func nameServersSay(t testing.TB, c *pocketmq.Cluster) (members [3]map[int64]string, routes [3]bool) {
	t.Helper()
	for i := range members {
		s := c.NameServer(i)
		members[i] = make(map[int64]string)
		for _, b := range s.Status().Brokers {
			members[i][b.ID] = b.Addr
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		conn, err := c.Transport().DialNameServer(ctx, protocol.Dial{Node: "x", Addr: s.Addr()})
		if err == nil {
			_, err = conn.GetRoute(ctx, &protocol.GetRouteRequest{Topic: "T"})
			_ = conn.Close()
		}
		routes[i] = err == nil
		cancel()
	}
	return members, routes
}

// roles is what they should have.
func roles(c *pocketmq.Cluster) map[int64]string {
	want := make(map[int64]string)
	master := masterOf(c)
	for b := range c.Brokers() {
		switch {
		case b.ID() == master:
			want[0] = b.Addr()
		case b.ID() == 0:
			want[master] = b.Addr()
		default:
			want[b.ID()] = b.Addr()
		}
	}
	return want
}

// Whatever becomes of a name server, and of all of them one after the other, sends and
// consumption go on, and what they know is the same one registration later.
func TestNameServersMayBeLostInAnyWay(t *testing.T) {
	t.Parallel()
	type trouble struct {
		begin, end func(t *testing.T, c *pocketmq.Cluster, i int)
	}
	node := func(i int) string { return fmt.Sprint("ns-", i) }
	troubles := map[string]trouble{
		"killed": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { require.NoError(t, c.KillNameServer(i)) },
			func(t *testing.T, c *pocketmq.Cluster, i int) {
				require.NoError(t, c.RestartNameServer(t.Context(), i))
			},
		},
		"cut off": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { links(t, c).Cut(node(i), "*") },
			func(t *testing.T, c *pocketmq.Cluster, _ int) { links(t, c).HealAll() },
		},
		"black hole": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { links(t, c).Drop(node(i), "*") },
			func(t *testing.T, c *pocketmq.Cluster, _ int) { links(t, c).HealAll() },
		},
		"hears nothing": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { links(t, c).CutOneWay("*", node(i)) },
			func(t *testing.T, c *pocketmq.Cluster, _ int) { links(t, c).HealAll() },
		},
		"says nothing": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { links(t, c).CutOneWay(node(i), "*") },
			func(t *testing.T, c *pocketmq.Cluster, _ int) { links(t, c).HealAll() },
		},
		"paused": {
			func(t *testing.T, c *pocketmq.Cluster, i int) { require.NoError(t, c.PauseNameServer(i)) },
			func(t *testing.T, c *pocketmq.Cluster, i int) { require.NoError(t, c.ResumeNameServer(i)) },
		},
		"restarted empty": {
			func(t *testing.T, c *pocketmq.Cluster, i int) {
				require.NoError(t, c.KillNameServer(i))
				require.NoError(t, c.RestartNameServer(t.Context(), i))
			},
			func(*testing.T, *pocketmq.Cluster, int) {},
		},
	}
	for name, x := range troubles {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/failover=%v", name, failover), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					groups := pair(2, pocketmq.BrokerConfig{})
					if failover {
						groups = trio()
					}
					c := run(t, pocketmq.ClusterConfig{NameServers: 3, Groups: groups, Topics: map[string]int{"T": 1}})
					p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 20 * time.Second, Retries: 20})
					var in inbox
					consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("g")})
					sent := 0
					for i := range 3 {
						x.begin(t, c, i)
						for range 5 {
							begun := time.Now()
							replicated(t, p, sent, 1)
							assert.LessOrEqual(t, time.Since(begun), 3*time.Second, "a lookup goes on to the next one after that; name server %d is in trouble", i)
							sent++
							time.Sleep(10 * time.Second)
						}
						x.end(t, c, i)
						time.Sleep(31 * time.Second)
						members, routes := nameServersSay(t, c)
						want := roles(c)
						assert.Equal(t, [3]map[int64]string{want, want, want}, members)
						assert.Equal(t, [3]bool{true, true, true}, routes)
					}
					time.Sleep(5 * time.Second)
					assert.True(t, once(t, &in, sent))
				})
			})
		}
	}
}

// A failover of which a name server learns nothing, because it is cut off from the new
// master, from all, or was away.
func TestRolesConvergeAtNameServersThatMissedAFailover(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		begin func(t *testing.T, c *pocketmq.Cluster)
		end   func(t *testing.T, c *pocketmq.Cluster)
	}{
		"black hole": {
			func(t *testing.T, c *pocketmq.Cluster) { links(t, c).Drop("ns-2", "*") },
			func(t *testing.T, c *pocketmq.Cluster) { links(t, c).HealAll() },
		},
		"cut off": {
			func(t *testing.T, c *pocketmq.Cluster) { links(t, c).Cut("ns-2", "*") },
			func(t *testing.T, c *pocketmq.Cluster) { links(t, c).HealAll() },
		},
		"paused": {
			func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.PauseNameServer(2)) },
			func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.ResumeNameServer(2)) },
		},
		"away": {
			func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.KillNameServer(2)) },
			func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.RestartNameServer(t.Context(), 2)) },
		},
		"does not hear the two that stay": {
			func(t *testing.T, c *pocketmq.Cluster) {
				links(t, c).CutOneWay("broker-a/1", "ns-2")
				links(t, c).CutOneWay("broker-a/2", "ns-2")
			},
			func(t *testing.T, c *pocketmq.Cluster) { links(t, c).HealAll() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{NameServers: 3, Groups: trio(), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
				replicated(t, p, 0, 1)
				synctest.Wait()
				x.begin(t, c)
				require.NoError(t, c.Kill("broker-a", 0))
				inTheEnd(t, p, 1)
				time.Sleep(5 * time.Second)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				time.Sleep(5 * time.Second)
				m := masterOf(c)
				require.Positive(t, m)
				members, _ := nameServersSay(t, c)
				want := roles(c)
				assert.Equal(t, want, members[0])
				assert.Equal(t, want, members[1])
				x.end(t, c)
				time.Sleep(31 * time.Second)
				members, routes := nameServersSay(t, c)
				assert.Equal(t, [3]map[int64]string{want, want, want}, members)
				assert.Equal(t, [3]bool{true, true, true}, routes)

				// Twice, so that all ids have moved.
				require.NoError(t, c.Elect(t.Context(), "broker-a", 0))
				time.Sleep(31 * time.Second)
				members, _ = nameServersSay(t, c)
				want = roles(c)
				assert.Equal(t, c.Broker("broker-a", 0).Addr(), want[0])
				assert.Equal(t, [3]map[int64]string{want, want, want}, members)
			})
		})
	}
}

// A topic that was made while a name server was not reached is there when it is, though
// others were announced in between.
func TestWhatANameServerMissedIsThereOneRegistrationLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 3, Topics: map[string]int{"S": 1}})
		links(t, c).Drop("ns-1", "broker-a/0")
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 1}))
		links(t, c).HealAll()
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 1}))
		time.Sleep(31 * time.Second)
		_, routes := nameServersSay(t, c)
		assert.Equal(t, [3]bool{true, true, true}, routes)
	})
}

// All name servers at the same time: what clients know is enough.
func TestAllNameServersMayBeAwayForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{NameServers: 3, Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("g")})
		replicated(t, p, 0, 1)
		for i := range 3 {
			require.NoError(t, c.KillNameServer(i))
		}
		for n := range 10 {
			replicated(t, p, 1+n, 1)
			time.Sleep(30 * time.Second)
		}
		for i := range 3 {
			require.NoError(t, c.RestartNameServer(t.Context(), i))
		}
		time.Sleep(31 * time.Second)
		members, routes := nameServersSay(t, c)
		want := map[int64]string{0: c.Broker("broker-a", 0).Addr(), 1: c.Broker("broker-a", 1).Addr()}
		assert.Equal(t, [3]map[int64]string{want, want, want}, members)
		assert.Equal(t, [3]bool{true, true, true}, routes)
		replicated(t, p, 11, 1)
		synctest.Wait()
		assert.True(t, once(t, &in, 12))
		caughtUp(t, c, 1)
	})
}

// A slave learns of its master's return from the name servers, in the same moment.
func TestASlaveFollowsAMasterThatIsBackAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c := run(t, pocketmq.ClusterConfig{NameServers: 3, Groups: pair(2, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, OnEvent: events.add})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 1)
		caughtUp(t, c, 1, 2)
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(time.Minute)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		back := time.Now()
		synctest.Wait()
		followed := eventsOf[pocketmq.MasterFollowed](&events)
		require.Len(t, followed, 4)
		assert.Equal(t, back, followed[2].Time)
		assert.Equal(t, back, followed[3].Time)
		for id := range int64(2) {
			assert.Zero(t, c.Broker("broker-a", id+1).Status().Connections, "nobody stays")
		}
	})
}

// Notices from strangers move nobody.
func TestANoticeIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 1)
		tell := func() {
			conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "x", Addr: c.Broker("broker-a", 1).Addr()})
			require.NoError(t, err)
			_, err = conn.NotifyMinBrokerID(t.Context(), &protocol.NotifyMinBrokerIDRequest{BrokerName: "broker-a", MinBrokerAddr: "127.9.9.9:1", HAAddr: "127.9.9.9:2"})
			require.NoError(t, err)
			synctest.Wait()
			require.NoError(t, conn.Close())
		}
		tell()
		replicated(t, p, 1, 1)
		caughtUp(t, c, 1)
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(time.Minute)
		tell()
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		synctest.Wait()
		caughtUp(t, c, 1)
	})
}

func TestToolsLearnHowFarReplicationIs(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		synctest.Wait() // its slave follows, so an epoch has begun
		replicated(t, p, 0, 10)
		synctest.Wait()
		ask := func(id int64) (*protocol.GetHAStatusResponse, *protocol.GetEpochCacheResponse) {
			conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "x", Addr: c.Broker("broker-a", id).Addr()})
			require.NoError(t, err)
			defer conn.Close()
			st, err := conn.GetHAStatus(t.Context(), &protocol.GetHAStatusRequest{})
			require.NoError(t, err)
			epochs, err := conn.GetEpochCache(t.Context(), &protocol.GetEpochCacheRequest{})
			require.NoError(t, err)
			return st, epochs
		}
		st, epochs := ask(0)
		assert.True(t, st.Master)
		assert.Equal(t, int64(10), st.End)
		assert.Equal(t, 1, st.InSync)
		require.Len(t, st.Slaves, 1)
		assert.Equal(t, protocol.HASlave{Addr: st.Slaves[0].Addr, Acked: 10, InSync: true, BytesPerSecond: st.Slaves[0].BytesPerSecond, Sent: 10}, st.Slaves[0])
		assert.Equal(t, &protocol.GetEpochCacheResponse{
			Cluster: "DefaultCluster", BrokerName: "broker-a", End: 10, Epochs: []protocol.EpochEntry{{Epoch: 1, First: 1, End: 10}},
		}, epochs)
		st, epochs = ask(1)
		assert.False(t, st.Master)
		assert.Empty(t, st.Slaves)
		assert.Equal(t, int64(10), st.Client.End)
		assert.Equal(t, int64(10), st.Client.MasterEnd)
		assert.True(t, st.Client.Active)
		assert.Equal(t, int64(1), epochs.BrokerID)
	})
}
