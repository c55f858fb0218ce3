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

func TestAPausedNameServerHoldsUpNobodyAndServesNewRoutesAfterwards(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, NameServers: 2, Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 20 * time.Second})
		require.NoError(t, patientSend(p, "before"))
		require.NoError(t, c.PauseNameServer(0))
		require.NoError(t, c.PauseNameServer(0), "it is paused already")

		// Brokers: a registration waits for it once in a back-off, not each time.
		begin := time.Now()
		conn := dial(t, c, "broker-a")
		for i := range 10 {
			_, err := conn.CreateTopic(t.Context(), &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: fmt.Sprint("U", i), ReadQueues: 1, WriteQueues: 1, Perm: pocketmq.PermRead | pocketmq.PermWrite}})
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, time.Since(begin), 1500*time.Millisecond)
		// Clients: a lookup that gets no answer goes on to the next name server.
		q := pocketmq.MessageQueue{Topic: "U9", BrokerName: "broker-a"}
		begin = time.Now()
		_, err := p.SendTo(t.Context(), q, text("U9", "x"))
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(begin), 4*time.Second)

		require.NoError(t, c.Kill("broker-b", 0))
		time.Sleep(5 * time.Minute)
		for _, b := range c.NameServer(0).Status().Brokers {
			assert.Contains(t, []string{"broker-a", "broker-b"}, b.Name, "it has noticed nothing")
		}
		for i := range 4 {
			res, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
			assert.Equal(t, "broker-a", res.Queue.BrokerName)
		}

		// Afterwards it has what has changed, and forgets nobody who is there.
		require.NoError(t, c.ResumeNameServer(0))
		require.NoError(t, c.ResumeNameServer(0), "it goes on already")
		time.Sleep(time.Second)
		live := c.NameServer(0).Status().Brokers
		require.Len(t, live, 1)
		assert.Equal(t, "broker-a", live[0].Name)
		time.Sleep(pocketmq.DefaultTimings().BrokerRegister)
		require.NoError(t, c.KillNameServer(1))
		fresh := producer(t, c, pocketmq.ProducerConfig{Group: "fresh", SendTimeout: 20 * time.Second})
		_, err = fresh.SendTo(t.Context(), q, text("U9", "y"))
		require.NoError(t, err)
	})
}

func TestAPausedControllerElectsNobodyAndTheGroupGoesOnAfterwards(t *testing.T) {
	inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: trio(), Topics: map[string]int{"T": 1}})
		synctest.Wait()
		p := producer(t, c, oneTry)
		patient := producer(t, c, pocketmq.ProducerConfig{Group: "patient", SendTimeout: time.Minute})
		lease := pocketmq.DefaultTimings().LeaseExpire
		epoch := func() (at int64) {
			for b := range c.Brokers() {
				at = max(at, b.Epoch())
			}
			return at
		}
		require.NoError(t, patientSend(p, "0"))
		time.Sleep(time.Second / 2)

		// Shorter than a lease: nobody notices.
		require.NoError(t, c.PauseController("broker-a"))
		require.NoError(t, c.PauseController("broker-a"), "it is paused already")
		time.Sleep(lease / 2)
		require.NoError(t, patientSend(p, "1"))
		require.NoError(t, c.ResumeController("broker-a"))
		require.NoError(t, c.ResumeController("broker-a"), "it goes on already")
		time.Sleep(2 * lease)
		assert.Equal(t, int64(1), epoch())
		require.NoError(t, patientSend(p, "2"))

		// Longer: the master gives up when its lease is over, and nobody takes its place.
		require.NoError(t, c.PauseController("broker-a"))
		before := tree(t, c.Broker("broker-a", 0).Dir()+"/../controller")
		time.Sleep(lease + time.Second)
		require.ErrorIs(t, patientSend(p, "refused"), pocketmq.ErrNotMaster)
		assert.False(t, c.Broker("broker-a", 0).Status().Writable)
		require.NoError(t, c.Kill("broker-a", 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := c.Elect(ctx, "broker-a", 1)
		cancel()
		require.ErrorIs(t, err, pocketmq.ErrUnreachable)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, int64(1), epoch())
		assert.Equal(t, int64(-1), masterOf(c))
		assert.Equal(t, before, tree(t, c.Broker("broker-a", 0).Dir()+"/../controller"), "it stores nothing")

		// Afterwards somebody is elected who has everything.
		require.NoError(t, c.ResumeController("broker-a"))
		begin := time.Now()
		require.NoError(t, patientSend(patient, "3"))
		assert.LessOrEqual(t, time.Since(begin), lease+2*pocketmq.DefaultTimings().LeaseRenew, "what was said on connections that were given up meanwhile does not count")
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(10 * time.Second)
		for b := range c.Brokers() {
			assert.Equal(t, []string{"0", "1", "2", "3"}, bodiesAt(t, c, b), "at %d", b.ID())
		}
	})
}

func TestNodesThatArePausedEndAtOnce(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *pocketmq.Cluster) error{
		"close": func(_ *testing.T, c *pocketmq.Cluster) error { return c.Close() },
		"shutdown": func(t *testing.T, c *pocketmq.Cluster) error {
			_ = c.Shutdown(t.Context()) // a group without a master may miss a consumer's last commit
			return nil
		},
		"kill": func(t *testing.T, c *pocketmq.Cluster) error {
			for i := range 2 {
				require.NoError(t, c.KillNameServer(i))
			}
			require.NoError(t, c.KillController("broker-a"))
			for i := range 2 {
				require.NoError(t, c.RestartNameServer(t.Context(), i))
			}
			require.NoError(t, c.RestartController(t.Context(), "broker-a"), "and are not paused in their next lives")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, over pocketmq.Transport) {
				c := run(t, pocketmq.ClusterConfig{Transport: over, NameServers: 2, Groups: trio(), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				in := &inbox{}
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
				require.NoError(t, patientSend(p, "a"))
				for i := range 2 {
					require.NoError(t, c.PauseNameServer(i))
				}
				require.NoError(t, c.PauseController("broker-a"))
				time.Sleep(time.Minute) // registrations, lookups, renewals and the state of an election wait
				begin := time.Now()
				require.NoError(t, end(t, c))
				assert.LessOrEqual(t, time.Since(begin), 500*time.Millisecond)
				if name != "kill" {
					return
				}
				time.Sleep(time.Minute)
				require.NoError(t, patientSend(p, "b"))
				time.Sleep(10 * time.Second)
				assert.Equal(t, []string{"a", "b"}, in.bodies())
			})
		})
	}
}
