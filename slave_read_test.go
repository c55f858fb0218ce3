package pocketmq_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// committedOn is what a group has committed in queue 0 of T, as a member of broker-a sees
// it; -1 for nothing.
func committedOn(c *pocketmq.Cluster, id int64, group string) int64 {
	st, _ := c.Broker("broker-a", id).Group(group)
	for _, q := range st.Queues {
		if q.Queue == queue("T", "broker-a", 0) {
			return q.Committed
		}
	}
	return -1
}

// once tells whether the numbers below n have come, each of them once.
func once(t testing.TB, in *inbox, n int) bool {
	counts := make([]int, n)
	sound := true
	for _, a := range in.arrivals() {
		i, err := strconv.Atoi(string(a.msg.Body))
		if err != nil || i >= n {
			t.Logf("%s has come, too", a.msg.Body)
			sound = false
			continue
		}
		counts[i]++
	}
	for from := 0; from < n; {
		to := from
		for to < n && counts[to] == counts[from] {
			to++
		}
		if counts[from] != 1 {
			t.Logf("%d to %d have come %d times", from, to-1, counts[from])
			sound = false
		}
		from = to
	}
	return sound
}

// waysToRead are the ways to consume all of T as group g; each returns a client id.
var waysToRead = map[string]func(t *testing.T, c *pocketmq.Cluster, in *inbox) string{
	"push": func(t *testing.T, c *pocketmq.Cluster, in *inbox) string {
		return consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("g")}).ClientID()
	},
	"poll": func(t *testing.T, c *pocketmq.Cluster, in *inbox) string {
		return polling(t, c, in, pocketmq.PullConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset}).ClientID()
	},
	"assigned": func(t *testing.T, c *pocketmq.Cluster, in *inbox) string {
		co := polling(t, c, in, pocketmq.PullConsumerConfig{Group: "g", From: pocketmq.FromFirstOffset})
		require.NoError(t, co.Assign(t.Context(), queue("T", "broker-a", 0)))
		return co.ClientID()
	},
}

// polling polls into an inbox until the cluster is closed.
func polling(t *testing.T, c *pocketmq.Cluster, in *inbox, cfg pocketmq.PullConsumerConfig) *pocketmq.PullConsumer {
	t.Helper()
	co, err := c.StartPullConsumer(t.Context(), cfg)
	require.NoError(t, err)
	go func() {
		for {
			msgs, err := co.Poll(t.Context())
			if err != nil {
				return
			}
			in.put("g", msgs)
		}
	}()
	return co
}

func TestHA04_WhatWasConsumedAtASlaveIsNotConsumedAgainWhenTheMasterIsBack(t *testing.T) {
	t.Parallel()
	for name, read := range waysToRead {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var in inbox
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				replicated(t, p, 0, 40)
				id := read(t, c, &in)
				synctest.Wait()
				require.True(t, once(t, &in, 40))
				time.Sleep(6 * time.Second)
				require.Equal(t, int64(40), committedOn(c, 0, "g"))

				// 60 more, which the consumer does not get before the master is gone.
				links(t, c).Cut(id, "broker-a/0")
				replicated(t, p, 40, 60)
				caughtUp(t, c, 1)
				require.NoError(t, c.Kill("broker-a", 0))
				links(t, c).HealAll()
				time.Sleep(7 * time.Second) // a pull that fails looks for a newer route, the next one uses it
				synctest.Wait()
				require.True(t, once(t, &in, 100), "consumed from the slave")
				time.Sleep(6 * time.Second)
				assert.Equal(t, int64(100), committedOn(c, 1, "g"), "at the slave")

				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				time.Sleep(5*time.Second + 3*3*time.Second) // the slave follows again, and copies three times
				synctest.Wait()
				assert.Equal(t, int64(100), committedOn(c, 0, "g"), "at the master")
				assert.Equal(t, int64(100), committedOn(c, 1, "g"), "at the slave")
				time.Sleep(31 * time.Second) // the consumer knows of the master again
				replicated(t, p, 100, 1)
				synctest.Wait()
				assert.True(t, once(t, &in, 101), "nothing came again")
			})
		})
	}
}

func TestASlaveThatIsBehindMakesNobodyGoBack(t *testing.T) {
	t.Parallel()
	for name, read := range waysToRead {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var in inbox
				var events eventLog
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, OnEvent: events.add})
				p := producer(t, c, pocketmq.ProducerConfig{})
				replicated(t, p, 0, 90)
				time.Sleep(4 * time.Second) // topics were copied
				caughtUp(t, c, 1)
				links(t, c).Drop("broker-a/0", "broker-a/1")
				replicated(t, p, 90, 10)
				read(t, c, &in)
				synctest.Wait()
				require.True(t, once(t, &in, 100))
				require.NoError(t, c.Kill("broker-a", 0))
				time.Sleep(2 * time.Minute) // it waits at the slave, for what that does not have
				assert.True(t, once(t, &in, 100))

				links(t, c).HealAll()
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				time.Sleep(40 * time.Second)
				replicated(t, p, 100, 10)
				time.Sleep(20 * time.Second)
				assert.True(t, once(t, &in, 110))
				assert.Empty(t, eventsOf[pocketmq.OffsetJumped](&events))
			})
		})
	}
}

// A slave that began with the last file of its master does not have the older ones.
func TestASlaveWithoutTheOlderFilesMakesNobodySkipThem(t *testing.T) {
	t.Parallel()
	for name, read := range waysToRead {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var in inbox
				var events eventLog
				c := run(t, pocketmq.ClusterConfig{
					Groups: pair(1, pocketmq.BrokerConfig{SyncFromLastFile: true, CommitLogFileSize: 4 << 10}), Topics: map[string]int{"T": 1}, OnEvent: events.add,
				})
				p := producer(t, c, pocketmq.ProducerConfig{})
				require.NoError(t, c.Kill("broker-a", 1))
				replicated(t, p, 0, 100)
				conn := dial(t, c, "broker-a") // the group has come to 20
				_, err := conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: protocol.DefaultGroupConfig("g")})
				require.NoError(t, err)
				_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 20})
				require.NoError(t, err)
				require.NoError(t, os.RemoveAll(c.Broker("broker-a", 1).Dir()))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				time.Sleep(4 * time.Second)
				caughtUp(t, c, 1)
				require.Greater(t, c.Broker("broker-a", 1).Status().MinPosition, int64(1))
				require.NoError(t, c.Kill("broker-a", 0))
				time.Sleep(time.Minute)
				read(t, c, &in)
				time.Sleep(time.Minute)
				assert.Empty(t, in.bodies(), "the master has them, and is not there")
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				time.Sleep(40 * time.Second)
				assert.Len(t, in.bodies(), 80)
				assert.Contains(t, in.bodies(), "20")
				assert.Empty(t, eventsOf[pocketmq.OffsetJumped](&events))
			})
		})
	}
}

func TestWhoIsFarBehindReadsFromASlaveAndComesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(2, pocketmq.BrokerConfig{SlaveReadBytes: 10 << 10}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 200)
		time.Sleep(4 * time.Second)
		caughtUp(t, c, 1, 2)
		ask := func(id int64, group string, offset int64) *protocol.PullMessageResponse {
			conn, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "x", Addr: c.Broker("broker-a", id).Addr()})
			require.NoError(t, err)
			defer conn.Close()
			resp, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{
				Group: group, Topic: "T", Offset: offset, MaxMessages: 8, HasExpression: true, Expression: "*",
			})
			require.NoError(t, err)
			require.Equal(t, protocol.Success, resp.Code)
			return resp
		}
		near := int64(0) // the first one from which on the master wants to be asked
		for offset := range int64(193) {
			if ask(0, "g", offset).SuggestBrokerID == 0 {
				near = offset
				break
			}
		}
		size := int64(len(ask(0, "g", 0).Records[0])) // and something around it
		assert.InDelta(t, 200-(10<<10)/size, near+8, 25, "the last one of a pull that has come near enough")
		for offset := near; offset <= 192; offset++ {
			require.Zero(t, ask(0, "g", offset).SuggestBrokerID, "at %d", offset)
		}
		assert.Zero(t, ask(1, "g", 0).SuggestBrokerID, "a slave has no advice but to come back")

		// The group may want another one.
		group := protocol.DefaultGroupConfig("slow")
		group.WhichBrokerWhenConsumeSlowly = 2
		conn := dial(t, c, "broker-a")
		_, err := conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: group})
		require.NoError(t, err)
		assert.Equal(t, int64(2), ask(0, "slow", 0).SuggestBrokerID)
		require.NoError(t, c.Kill("broker-a", 2))
		synctest.Wait()
		assert.Equal(t, int64(1), ask(0, "slow", 0).SuggestBrokerID, "whoever has it")
		require.NoError(t, c.Kill("broker-a", 1))
		synctest.Wait()
		assert.Zero(t, ask(0, "slow", 0).SuggestBrokerID, "nobody else has it")
	})
}

func TestConsumersFollowTheAdviceAndLoseNothing(t *testing.T) {
	t.Parallel()
	for name, read := range waysToRead {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var in inbox
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{SlaveReadBytes: 10 << 10}), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{})
				replicated(t, p, 0, 1000)
				time.Sleep(4 * time.Second)
				begun := time.Now()
				read(t, c, &in)
				synctest.Wait()
				time.Sleep(time.Second)
				assert.True(t, once(t, &in, 1000))
				assert.Equal(t, time.Second, time.Since(begun), "at once")
				assert.Greater(t, c.Broker("broker-a", 1).Status().GetRate, 0.0, "the slave was asked")
				master := c.Broker("broker-a", 0).Status().GetRate
				replicated(t, p, 1000, 10)
				time.Sleep(2 * time.Second)
				assert.True(t, once(t, &in, 1010))
				assert.Greater(t, c.Broker("broker-a", 0).Status().GetRate+master, 0.0, "and the master again")
				time.Sleep(6 * time.Second)
				assert.Equal(t, int64(1010), committedOn(c, 0, "g"))
			})
		})
	}
}

func TestBroadcastGoesOnAtASlave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 40)
		ids := make([]string, 2)
		for i := range ids {
			ids[i] = consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", InstanceName: fmt.Sprint("i", i), Model: pocketmq.Broadcasting, OffsetDir: t.TempDir(), Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler(fmt.Sprint(i)),
			}).ClientID()
		}
		time.Sleep(6 * time.Second)
		for _, id := range ids {
			links(t, c).Cut(id, "broker-a/0")
		}
		replicated(t, p, 40, 60)
		caughtUp(t, c, 1)
		require.NoError(t, c.Kill("broker-a", 0))
		links(t, c).HealAll()
		time.Sleep(7 * time.Second)
		require.Len(t, in.bodies(), 200)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(31 * time.Second)
		replicated(t, p, 100, 1)
		synctest.Wait()
		assert.Len(t, in.bodies(), 202)
		assert.Equal(t, int64(-1), committedOn(c, 0, "g"))
	})
}

// Who consumes in order needs its lock, which the master gives: as in RocketMQ it waits.
func TestWhoConsumesInOrderWaitsForTheMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		replicated(t, p, 0, 40)
		id := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Orderly: true, Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("g")}).ClientID()
		time.Sleep(6 * time.Second)
		links(t, c).Cut(id, "broker-a/0")
		replicated(t, p, 40, 60)
		caughtUp(t, c, 1)
		require.NoError(t, c.Kill("broker-a", 0))
		links(t, c).HealAll()
		time.Sleep(31 * time.Second) // its lock is too old
		seen := len(in.bodies())
		time.Sleep(2 * time.Minute)
		assert.Len(t, in.bodies(), seen)
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(time.Minute)
		var bodies []string
		for _, a := range in.arrivals() {
			bodies = append(bodies, string(a.msg.Body))
		}
		want := make([]string, 100)
		for i := range want {
			want[i] = fmt.Sprint(i)
		}
		assert.Equal(t, want, bodies, "once each, in order")
	})
}

func TestQuestionsAboutQueuesAreAnsweredBySlaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		begin := time.Now()
		for i := range 10 {
			m := text("T", "%d", i)
			m.Keys = []string{fmt.Sprint("k", i)}
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
			time.Sleep(time.Second)
		}
		conn := dial(t, c, "broker-a")
		_, err := conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: protocol.DefaultGroupConfig("g")})
		require.NoError(t, err)
		_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 4})
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		require.NoError(t, c.Kill("broker-a", 0))
		time.Sleep(31 * time.Second)
		q := queue("T", "broker-a", 0)
		at, err := c.Transport().DialBroker(t.Context(), protocol.Dial{Node: "x", Addr: c.Broker("broker-a", 1).Addr()})
		require.NoError(t, err)
		defer at.Close()
		most, err := at.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		assert.Equal(t, int64(10), most.Offset)
		least, err := at.GetMinOffset(t.Context(), &protocol.GetMinOffsetRequest{Topic: "T"})
		require.NoError(t, err)
		assert.Zero(t, least.Offset)
		searched, err := at.SearchOffset(t.Context(), &protocol.SearchOffsetRequest{Topic: "T", Time: begin.Add(5 * time.Second)})
		require.NoError(t, err)
		assert.Equal(t, int64(5), searched.Offset)
		first, err := at.GetEarliestStoreTime(t.Context(), &protocol.GetEarliestStoreTimeRequest{Topic: "T"})
		require.NoError(t, err)
		assert.Equal(t, begin, first.Time)
		keyed, err := at.QueryMessage(t.Context(), &protocol.QueryMessageRequest{Topic: "T", Key: "k7", MaxMessages: 3, From: begin, To: time.Now()})
		require.NoError(t, err)
		assert.Len(t, keyed.Records, 1)
		slave, err := c.StartPullConsumer(t.Context(), pocketmq.PullConsumerConfig{Group: "g"})
		require.NoError(t, err)
		done, err := slave.Committed(t.Context(), q)
		require.NoError(t, err)
		assert.Equal(t, int64(4), done)
		got, err := slave.Pull(t.Context(), q, 10, 5)
		require.NoError(t, err)
		assert.Equal(t, pocketmq.PullNoNewMessage, got.Status)
	})
}

// A slave may be a moment ahead of its master in what can be read. Who comes from there
// is not told that the master's queue is shorter.
func TestAMasterIsNotBehindWhatItHasWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		groups := trio()
		groups[0].Config.Replication = pocketmq.AsyncReplication
		c := run(t, pocketmq.ClusterConfig{Groups: groups, Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		inSync(t, c, 2)
		replicated(t, p, 0, 3)
		synctest.Wait()
		for _, slave := range []string{"broker-a/1", "broker-a/2"} {
			links(t, c).Drop("broker-a/0", slave)
		}
		replicated(t, p, 3, 2) // not confirmed, so nobody can read them
		pull := func(offset int64) *protocol.PullMessageResponse {
			resp, err := dialMember(t, c, "broker-a", 0).PullMessage(t.Context(), &protocol.PullMessageRequest{
				Group: "g", Topic: "T", Offset: offset, MaxMessages: 32, HasExpression: true, Expression: "*", ExpressionType: protocol.ExpressionTag,
			})
			require.NoError(t, err)
			assert.EqualValues(t, 3, resp.MaxOffset)
			return resp
		}
		for _, offset := range []int64{4, 5} {
			resp := pull(offset)
			assert.Equal(t, protocol.PullNotFound, resp.Code, offset)
			assert.Equal(t, offset, resp.NextBeginOffset)
		}
		resp := pull(6)
		assert.Equal(t, protocol.PullOffsetMoved, resp.Code, "that is nowhere")
		assert.EqualValues(t, 3, resp.NextBeginOffset)
	})
}
