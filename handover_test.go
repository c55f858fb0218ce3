package pocketmq_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// seldom are timings of a group that copies and saves what is not in the log so seldom
// that nothing of it comes about by itself for a minute.
func seldom() pocketmq.Timings {
	return pocketmq.Timings{SlaveSync: time.Minute, OffsetPersist: time.Hour}
}

// planned are the ways to change the master of a group on purpose: from 0 to 1, or to
// whoever is elected.
var planned = map[string]func(context.Context, *pocketmq.Cluster) error{
	"Elect":    func(ctx context.Context, c *pocketmq.Cluster) error { return c.Elect(ctx, "broker-a", 1) },
	"Shutdown": func(ctx context.Context, c *pocketmq.Cluster) error { return c.Broker("broker-a", 0).Shutdown(ctx) },
}

// besideTheLog has broker 0, the master, answer for what its slaves have not copied: topic U, the
// settings of group s, which has committed 2 of queue 0 of T, and progress.
func besideTheLog(t *testing.T, c *pocketmq.Cluster) {
	t.Helper()
	conn := dialMember(t, c, "broker-a", 0)
	_, err := conn.CreateTopic(t.Context(), &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: "U", ReadQueues: 3, WriteQueues: 3, Perm: pocketmq.PermRead | pocketmq.PermWrite}})
	require.NoError(t, err)
	s := protocol.DefaultGroupConfig("s")
	s.RetryMaxTimes = 3
	_, err = conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: s})
	require.NoError(t, err)
	commit(t, conn, "s", 0, 2)
}

// isThere looks for that at a member.
func isThere(t *testing.T, c *pocketmq.Cluster, id int64) {
	t.Helper()
	conn := dialMember(t, c, "broker-a", id)
	topic, err := conn.GetTopicConfig(t.Context(), &protocol.GetTopicConfigRequest{Topic: "U"})
	require.NoError(t, err)
	assert.Equal(t, 3, topic.Config.ReadQueues)
	groups, err := conn.GetAllGroupConfig(t.Context(), &protocol.GetAllGroupConfigRequest{})
	require.NoError(t, err)
	i := slices.IndexFunc(groups.Groups, func(g protocol.GroupConfig) bool { return g.Name == "s" })
	require.GreaterOrEqual(t, i, 0, "the settings of group s")
	assert.Equal(t, 3, groups.Groups[i].RetryMaxTimes)
	at, err := conn.QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "s", Topic: "T", CommittedOnly: true})
	require.NoError(t, err)
	assert.EqualValues(t, 2, at.Offset)
}

func TestElectAndShutdownTakeOverWhatIsBesideTheLog(t *testing.T) {
	for how, change := range planned {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Timings: seldom()})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
				inSync(t, c, 2)
				replicated(t, p, 0, 3)
				for _, level := range []int{1, 2} {
					m := text("T", "level %d", level)
					m.DelayLevel = level
					_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
					require.NoError(t, err)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				require.Equal(t, []string{"0", "1", "2", "level 1"}, contentAt(t, c, 0))
				besideTheLog(t, c)

				begun := time.Now()
				require.NoError(t, change(t.Context(), c))
				assert.Less(t, time.Since(begun), time.Second)
				synctest.Wait()
				m := masterOf(c)
				require.Positive(t, m)
				isThere(t, c, m)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				assert.Equal(t, []string{"0", "1", "2", "level 1", "level 2"}, contentAt(t, c, m), "each once")
				isThere(t, c, m)
				isThere(t, c, 3-m) // it copies from the new master
			})
		})
	}
}

// A master may come back and hand over again: what it has then is of the present.
func TestElectTakesOverWhatIsBesideTheLogEachTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Timings: seldom()})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		var want []string
		for i, id := range []int64{1, 0, 2, 2, 1, 0} {
			inSync(t, c, 2)
			replicated(t, p, i, 1)
			m := text("T", "delayed %d", i)
			m.DelayLevel = 1
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
			require.NoError(t, err)
			time.Sleep(time.Second)
			synctest.Wait()
			conn := dialMember(t, c, "broker-a", masterOf(c))
			heartbeat(t, conn, "g", protocol.Clustering)
			commit(t, conn, "g", 0, int64(i))
			want = append(want, string(text("T", "%d", i).Body), string(m.Body))
			require.NoError(t, c.Elect(t.Context(), "broker-a", id))
			at, err := dialMember(t, c, "broker-a", id).QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "g", Topic: "T", CommittedOnly: true})
			require.NoError(t, err)
			assert.EqualValues(t, i, at.Offset, "of election %d", i)
		}
		time.Sleep(time.Minute)
		assert.Equal(t, want, logsAgree(t, c, time.Second))
	})
}

// Who cannot reach the old master goes on with what it has.
func TestElectAndShutdownDoNotWaitForWhatIsBesideTheLog(t *testing.T) {
	for how, change := range planned {
		for _, hole := range []bool{false, true} {
			if how == "Shutdown" && !hole {
				continue // a master that sees its slaves gone hands over to nobody
			}
			t.Run(how+map[bool]string{false: " cut", true: " black hole"}[hole], func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					x := &trouble{t: t}
					c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Timings: seldom(), Logger: x.logger()})
					p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
					inSync(t, c, 2)
					replicated(t, p, 0, 3)
					for _, heir := range []string{"broker-a/1", "broker-a/2"} {
						if hole {
							links(t, c).Drop("broker-a/0", heir)
						} else {
							links(t, c).Cut("broker-a/0", heir)
						}
					}
					besideTheLog(t, c)
					begun := time.Now()
					require.NoError(t, change(t.Context(), c))
					assert.LessOrEqual(t, time.Since(begun), 2*time.Second+100*time.Millisecond, "two LeaseRenew")
					synctest.Wait()
					assert.Positive(t, masterOf(c))
					x.mu.Lock()
					log := x.log.String()
					x.mu.Unlock()
					assert.Equal(t, 1, strings.Count(log, "what the former master has beside its log was not copied"), log)
					links(t, c).HealAll()
					replicated(t, p, 3, 1)
				})
			})
		}
	}
}

// What comes while a master hands over is refused, so that it can be done at the next one,
// and what is answered is there.
func TestElectRefusesChangesWhileItHandsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Timings: seldom()})
		inSync(t, c, 2)
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: pocketmq.NoRetries})
		replicated(t, p, 0, 3)
		synctest.Wait()
		besideTheLog(t, c)
		// The old master waits for a slave, which does not answer.
		links(t, c).Drop("broker-a/0", "broker-a/2")
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), &pocketmq.Message{Topic: "T", Body: []byte("3"), NoWait: true})
		require.NoError(t, err)
		conn := dialMember(t, c, "broker-a", 0)
		elected := make(chan error, 1)
		go func() { elected <- c.Elect(t.Context(), "broker-a", 1) }()
		synctest.Wait()
		require.Zero(t, masterOf(c), "it is on its way")

		create := &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: "V", ReadQueues: 1, WriteQueues: 1, Perm: pocketmq.PermRead | pocketmq.PermWrite}}
		_, err = conn.CreateTopic(t.Context(), create)
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		_, err = conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: protocol.DefaultGroupConfig("s")})
		require.ErrorIs(t, err, pocketmq.ErrNotMaster)
		// Clients ask again.
		created := make(chan error, 2)
		go func() { created <- c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "W"}) }()
		go func() { created <- c.Admin().SetOffset(t.Context(), "s", queue("T", "broker-a", 0), 1) }()
		synctest.Wait()
		require.Empty(t, created)
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "4"))
		require.NoError(t, err)
		require.NoError(t, <-created)
		require.NoError(t, <-created)
		_, err = dialMember(t, c, "broker-a", 1).GetTopicConfig(t.Context(), &protocol.GetTopicConfigRequest{Topic: "W"})
		require.NoError(t, err)
		at, err := dialMember(t, c, "broker-a", 1).QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "s", Topic: "T", CommittedOnly: true})
		require.NoError(t, err)
		assert.EqualValues(t, 1, at.Offset)
		require.NoError(t, <-elected)
		require.Equal(t, pocketmq.RoleMaster, c.Broker("broker-a", 1).Role())
		_, err = dialMember(t, c, "broker-a", 1).CreateTopic(t.Context(), create)
		require.NoError(t, err)

		links(t, c).HealAll()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"0", "1", "2", "3", "4"}, in.bodies())
		require.NoError(t, co.Close())
		at, err = dialMember(t, c, "broker-a", 1).QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "g", Topic: "T", CommittedOnly: true})
		require.NoError(t, err)
		assert.EqualValues(t, 5, at.Offset)
	})
}

// A send that is under way is waited for.
func TestElectLetsSendsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, Retries: pocketmq.NoRetries})
		replicated(t, p, 0, 1)
		inSync(t, c, 2)
		require.NoError(t, c.SlowDisk("broker-a", 0, 500*time.Millisecond))
		done := sendAsync(t, p, text("T", "1"))
		synctest.Wait()
		require.NoError(t, c.Elect(t.Context(), "broker-a", 1))
		require.NoError(t, <-done)
		require.NoError(t, c.SlowDisk("broker-a", 0, 0))
		assert.Equal(t, []string{"0", "1"}, logsAgree(t, c, 10*time.Second))
	})
}

// Consumers that still see the old master commit there. What it takes when it is none any
// more is for the next one.
func TestElectKeepsWhatIsCommittedBetweenTwoMasters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		inSync(t, c, 2)
		replicated(t, p, 0, 100)
		besideTheLog(t, c)
		links(t, c).Delay("controller/broker-a", "broker-a/1", 100*time.Millisecond)
		conn := dialMember(t, c, "broker-a", 0)
		elected := make(chan error, 1)
		go func() { elected <- c.Elect(t.Context(), "broker-a", 1) }()
		last, between := int64(2), 0
		for c.Broker("broker-a", 0).Epoch() == 1 { // until it follows the next one
			q := &protocol.UpdateConsumerOffsetRequest{Group: "s", Topic: "T", Offset: last + 1}
			if _, err := conn.UpdateConsumerOffset(t.Context(), q); err == nil {
				last++
			}
			if c.Broker("broker-a", 0).Role() != pocketmq.RoleMaster {
				between++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Greater(t, between, 10)
		require.NoError(t, <-elected)
		time.Sleep(10 * time.Second) // the old master has handed it on
		at, err := dialMember(t, c, "broker-a", 1).QueryConsumerOffset(t.Context(), &protocol.QueryConsumerOffsetRequest{Group: "s", Topic: "T", CommittedOnly: true})
		require.NoError(t, err)
		assert.Equal(t, last, at.Offset)
	})
}

// An election that is refused leaves the master as it was.
func TestElectThatIsRefusedLetsTheMasterGoOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}, Timings: seldom()})
		p := producer(t, c, pocketmq.ProducerConfig{})
		inSync(t, c, 2)
		require.NoError(t, c.Kill("broker-a", 2))
		synctest.Wait()
		require.ErrorIs(t, c.Elect(t.Context(), "broker-a", 2), pocketmq.ErrUnreachable)
		time.Sleep(10 * time.Second) // the dead one is out of the set
		m := text("T", "delayed")
		m.DelayLevel = 1
		_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), m)
		require.NoError(t, err)
		besideTheLog(t, c)
		time.Sleep(10 * time.Second)
		require.Zero(t, masterOf(c))
		assert.Equal(t, []string{"delayed"}, contentAt(t, c, 0))
	})
}

// The controller has the order already when it is paused, before it could store it.
func TestElectEndsWithItsContextWhenTheControllerIsPausedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: trio(), Topics: map[string]int{"T": 1}})
		inSync(t, c, 2)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: time.Minute, Retries: 100})
		replicated(t, p, 0, 1)
		require.NoError(t, c.SlowDisk("broker-a", 2, 2*time.Second))
		sent := make(chan error, 1)
		go func() { sent <- patientSend(p, "1") }()
		time.Sleep(100 * time.Millisecond)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun, elected := time.Now(), make(chan error, 1)
		go func() { elected <- c.Elect(ctx, "broker-a", 1) }() // the master lets the send end first
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, c.PauseController("broker-a"))
		time.Sleep(time.Minute)
		select {
		case err := <-elected:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		default:
			t.Errorf("Elect waits %v after its call, for 10s", time.Since(begun))
		}
		require.NoError(t, c.ResumeController("broker-a"))
		require.NoError(t, c.SlowDisk("broker-a", 2, 0))
		inSync(t, c, 2)
		<-sent // it may have run into its time
		replicated(t, p, 2, 1)
	})
}
