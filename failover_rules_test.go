package pocketmq_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
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
	want := bodiesAt(t, c, 0)
	for b := range c.Brokers() {
		require.Equal(t, want, bodiesAt(t, c, b.ID()), "member %d", b.ID())
	}
	return want
}

func TestAMasterThatIsFencedWhileItWritesAnswersAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, Retries: pocketmq.NoRetries})
		replicated(t, p, 0, 1)
		inSync(t, c, 2)
		require.NoError(t, c.SlowDisk("broker-a", 0, time.Second))
		done := sendAsync(t, p, text("T", "late"))
		synctest.Wait()
		require.NoError(t, c.Elect(t.Context(), "broker-a", 1))
		require.Error(t, <-done)
		require.NoError(t, c.SlowDisk("broker-a", 0, 0))
		logsAgree(t, c, 10*time.Second)
	})
}

// The elected has a record that nobody else has, and dies to the controller before its
// confirmation is there: nobody was told that the record stays, so it goes.
func TestWhoWasElectedInVainGivesUpWhatOnlyItHad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 20 * time.Second, Retries: 30})
		replicated(t, p, 0, 3)
		inSync(t, c, 2)
		c.Network().Drop("broker-a/0", "broker-a/2")
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("lonely"), NoWait: true})
		require.NoError(t, err)
		synctest.Wait()
		c.Network().Delay("controller/broker-a", "broker-a/1", 100*time.Millisecond)
		require.NoError(t, c.Kill("broker-a", 0))
		// Its promotion is told to 1, and its confirmation is under way.
		for c.Broker("broker-a", 1).Epoch() != 1 || c.Broker("broker-a", 1).Status().Reason != "the controller of the group has not told it a role" {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(350 * time.Millisecond)
		c.Network().Drop("controller/broker-a", "broker-a/1")
		for masterOf(c) != 2 {
			time.Sleep(100 * time.Millisecond)
		}
		c.Network().HealAll()
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(time.Second)
		replicated(t, p, 3, 1)
		assert.Equal(t, []string{"0", "1", "2", "3"}, logsAgree(t, c, 30*time.Second))
		time.Sleep(time.Minute)
		assert.NotContains(t, in.bodies(), "lonely")
	})
}
