package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestTopicsAreSubscribedAndUnsubscribedAtRunTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2, "U": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		var cs []*pocketmq.Consumer
		for i := range 2 {
			cs = append(cs, consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler(fmt.Sprint(i))}))
		}
		synctest.Wait()
		assert.Equal(t, []int{2, 2}, sizes(cs))
		began := time.Now()
		for _, co := range cs {
			require.NoError(t, co.Subscribe(t.Context(), "U", pocketmq.Tags("yes")))
		}
		assert.Zero(t, time.Since(began))
		assert.Equal(t, []int{4, 4}, sizes(cs))
		send := func(topic, tag, body string) {
			m := text(topic, "%s", body)
			m.Tag = tag
			_, err := p.Send(t.Context(), m)
			require.NoError(t, err)
		}
		for i := range 20 { // in the instant in which Subscribe has returned
			send("U", "yes", fmt.Sprint(i))
			send("U", "no", "unwanted")
		}
		synctest.Wait()
		assert.Equal(t, numbers(20), in.bodies())
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Empty(t, g.Differ)
		assert.Equal(t, "yes", g.Members[0].Subscriptions["U"])

		for _, co := range cs {
			require.NoError(t, co.Unsubscribe(t.Context(), "U"))
		}
		assert.Equal(t, []int{2, 2}, sizes(cs))
		send("U", "yes", "nobody's")
		send("T", "", "20")
		time.Sleep(time.Minute)
		assert.Equal(t, numbers(21), in.bodies())

		require.NoError(t, cs[0].Subscribe(t.Context(), "later", pocketmq.Filter{}), "no route is no error")
		require.NoError(t, cs[1].Subscribe(t.Context(), "later", pocketmq.Filter{}))
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "later", ReadQueues: 1}))
		send("later", "", "21")
		time.Sleep(2 * time.Second)
		assert.Equal(t, numbers(22), in.bodies())
	})
}

func TestSubscribeBeforeStartAndWhatItRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1, "U": 1}})
		var in inbox
		co, err := pocketmq.NewConsumer(pocketmq.ConsumerConfig{
			Group: "g", NameServers: c.NameServerAddrs(), Transport: c.Transport(), Subscriptions: all("T"), Handler: in.handler("c"),
		})
		require.NoError(t, err)
		co.Pause()
		require.NoError(t, co.Subscribe(t.Context(), "U", pocketmq.Filter{}))
		require.NoError(t, co.Unsubscribe(t.Context(), "T"))
		assert.Nil(t, co.Queues())
		require.NoError(t, co.Start(t.Context()))
		assert.Equal(t, []pocketmq.MessageQueue{queue("U", "broker-a", 0)}, co.Assignment())
		assert.True(t, co.Queues()[0].Paused, "a pause from before Start counts")

		assert.ErrorIs(t, co.Subscribe(t.Context(), "a b", pocketmq.Filter{}), pocketmq.ErrIllegalName)
		assert.ErrorIs(t, co.Subscribe(t.Context(), "T", pocketmq.Tags("a||b")), pocketmq.ErrInvalidConfig)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.ErrorIs(t, co.Subscribe(ctx, "T", pocketmq.Filter{}), context.Canceled)
		require.NoError(t, co.Close())
		assert.ErrorIs(t, co.Subscribe(t.Context(), "T", pocketmq.Filter{}), pocketmq.ErrClosed)
		assert.ErrorIs(t, co.Unsubscribe(t.Context(), "U"), pocketmq.ErrClosed)
	})
}

func TestUnsubscribeCommitsWhatRunningHandlersFinish(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Concurrency: 1,
			Handler: func(ctx context.Context, ms []*pocketmq.MessageExt) error {
				time.Sleep(time.Second)
				in.put("c", ms)
				return nil
			}})
		for i := range 3 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, co.Unsubscribe(t.Context(), "T"))
		assert.Equal(t, []string{"0"}, in.bodies())
		g, _ := c.Broker("broker-a", 0).Group("g")
		require.Len(t, g.Queues, 1)
		assert.Equal(t, []int64{1, 3, 2}, []int64{g.Queues[0].Committed, g.Queues[0].Max, g.Queues[0].Lag})
	})
}

func TestAFilterChangedAtRunTimeLosesAndRepeatsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func(tag string, n int) {
			for i := range n {
				m := text("T", "%s%d", tag, i)
				m.Tag = tag
				_, err := p.Send(t.Context(), m)
				require.NoError(t, err)
			}
		}
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: map[string]pocketmq.Filter{"T": pocketmq.Tags("a")}, Handler: in.handler("c")})
		send("a", 10)
		synctest.Wait()
		require.NoError(t, co.Subscribe(t.Context(), "T", pocketmq.Tags("a", "b")))
		send("b", 10) // pulls that brokers hold must not pass these over by the old filter
		send("a", 10)
		synctest.Wait()
		require.NoError(t, co.Subscribe(t.Context(), "T", pocketmq.Tags("b")))
		send("a", 5)
		time.Sleep(time.Minute)
		assert.Len(t, in.bodies(), 30)
	})
}

func TestAPausedConsumerKeepsItsQueuesAndGoesOnWhenResumed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		co := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		synctest.Wait() // both are pulled, and the pulls are held
		co.Pause(queue("T", "broker-a", 0))
		for i := range 2 {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", i), text("T", "%d", i))
			require.NoError(t, err)
		}
		time.Sleep(10 * time.Minute)
		assert.Equal(t, []string{"1"}, in.bodies())
		held := co.Queues()
		require.Len(t, held, 2)
		assert.Equal(t, pocketmq.QueueStatus{Queue: queue("T", "broker-a", 0), Cached: 1, CachedBytes: held[0].CachedBytes, NextPullOffset: 1, Paused: true, LastPull: held[0].LastPull}, held[0],
			"the pull that was held when it was paused brought one message")
		assert.Equal(t, pocketmq.QueueStatus{Queue: queue("T", "broker-a", 1), CommitOffset: 1, NextPullOffset: 1, Pulling: true, LastPull: held[1].LastPull}, held[1])
		assert.LessOrEqual(t, time.Since(held[1].LastPull), 15*time.Second)
		co.Resume()
		synctest.Wait()
		assert.Equal(t, []string{"0", "1"}, in.bodies())
	})
}

func TestMembersThatSubscribeDifferentlyAreReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}, OnEvent: log.add})
		var in inbox
		one := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "one", Subscriptions: all("T"), Handler: in.handler("1")})
		two := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: "two", Subscriptions: all("T"), Handler: in.handler("2")})
		time.Sleep(time.Minute)
		assert.Empty(t, eventsOf[pocketmq.SubscriptionsDiffer](&log))
		require.NoError(t, two.Subscribe(t.Context(), "T", pocketmq.Tags("a")))
		time.Sleep(5 * time.Minute)
		reports := eventsOf[pocketmq.SubscriptionsDiffer](&log)
		require.Len(t, reports, 1)
		assert.Equal(t, "g", reports[0].Group)
		assert.Contains(t, reports[0].How, one.ClientID())
		assert.Contains(t, reports[0].How, "T(a)")
		g, _ := c.Broker("broker-a", 0).Group("g")
		assert.Equal(t, reports[0].How, g.Differ)
		g, err := c.Admin().Group(t.Context(), "g")
		require.NoError(t, err)
		assert.Equal(t, reports[0].How, g.Differ, "asked the members")
		require.NoError(t, c.WaitGroup(t.Context(), "g", func(g pocketmq.GroupStatus) bool { return g.Differ == reports[0].How }))
		require.NoError(t, one.Subscribe(t.Context(), "T", pocketmq.Tags("a")))
		g, _ = c.Broker("broker-a", 0).Group("g")
		assert.Empty(t, g.Differ)
		require.NoError(t, c.WaitGroup(t.Context(), "g", func(g pocketmq.GroupStatus) bool { return g.Differ == "" }))
		g, err = c.Admin().Group(t.Context(), "g")
		require.NoError(t, err)
		assert.Empty(t, g.Differ)
		assert.ErrorIs(t, c.WaitGroup(t.Context(), "g", nil), pocketmq.ErrInvalidConfig)
	})
}

func TestRB02_AConsumerWithoutQueuesIsReportedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log eventLog
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}, OnEvent: log.add})
		var in inbox
		var cs []*pocketmq.Consumer
		for i := range 3 {
			cs = append(cs, consumer(t, c, pocketmq.ConsumerConfig{Group: "g", InstanceName: fmt.Sprint("c", i), Subscriptions: all("T"), Handler: in.handler("")}))
		}
		time.Sleep(5 * time.Minute)
		idle := eventsOf[pocketmq.ConsumerIdle](&log)
		require.Len(t, idle, 1)
		idle[0].EventBase = pocketmq.EventBase{}
		assert.Equal(t, pocketmq.ConsumerIdle{Group: "g", Client: cs[2].ClientID(), Topic: "T", Members: 3, Queues: 2, Strategy: "AVG"}, idle[0])
		assert.Equal(t, []string{"T"}, cs[2].Status().Idle)
		assert.Nil(t, cs[0].Status().Idle)
		require.NoError(t, cs[0].Close())
		synctest.Wait()
		assert.Nil(t, cs[2].Status().Idle)
		assert.Len(t, cs[2].Assignment(), 1)
	})
}

func TestABroadcastingConsumerPassesFailedMessagesOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var ok, bad inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Model: pocketmq.Broadcasting, Subscriptions: all("T"), Handler: ok.handler("ok")})
		failing := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Model: pocketmq.Broadcasting, Subscriptions: all("T"),
			Handler: func(_ context.Context, ms []*pocketmq.MessageExt) error {
				bad.put("bad", ms)
				return errors.New("always")
			}})
		for i := range 10 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, numbers(10), ok.bodies())
		assert.Equal(t, numbers(10), bad.bodies(), "every member gets every message, once, whatever its handler says")
		assert.EqualValues(t, 10, failing.Status().Failed)
		g, _ := c.Broker("broker-a", 0).Group("g")
		for _, q := range g.Queues {
			assert.EqualValues(t, -1, q.Committed, "brokers keep no offsets of a broadcasting group")
		}
		topics, err := c.Admin().Topics(t.Context())
		require.NoError(t, err)
		assert.NotContains(t, topics, "%RETRY%g")
	})
}

func TestCP05_ABroadcasterKeepsTheOffsetsOfABrokerThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
		p := producer(t, c, pocketmq.ProducerConfig{})
		send := func(broker, body string) {
			_, err := p.SendTo(t.Context(), queue("T", broker, 0), text("T", "%s", body))
			require.NoError(t, err)
		}
		var in inbox
		cfg := pocketmq.ConsumerConfig{Group: "g", InstanceName: "screen", Model: pocketmq.Broadcasting, OffsetDir: t.TempDir(), Subscriptions: all("T"), Handler: in.handler("")}
		co := consumer(t, c, cfg)
		send("broker-a", "a1")
		send("broker-b", "b1")
		time.Sleep(10 * time.Second)
		require.NoError(t, c.Kill("broker-b", 0))
		time.Sleep(5 * time.Minute)
		require.Equal(t, []pocketmq.MessageQueue{queue("T", "broker-a", 0)}, co.Assignment(), "its queues have left the assignment")
		require.NoError(t, c.Restart(t.Context(), "broker-b", 0))
		send("broker-b", "b2") // before the consumer takes its queue again
		require.NotContains(t, in.bodies(), "b2")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"a1", "b1", "b2"}, in.bodies(), "delivered once")

		require.NoError(t, co.Close())
		send("broker-a", "a2")
		consumer(t, c, cfg)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"a1", "a2", "b1", "b2"}, in.bodies(), "the next consumer of that name goes on there")
	})
}

func TestWhatConsumerConfigRefusesOfBroadcasting(t *testing.T) {
	base := pocketmq.ConsumerConfig{Group: "g", NameServers: []string{"127.0.0.1:1"}, Transport: pocketmq.InMemory(), Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil }}
	for want, edit := range map[string]func(*pocketmq.ConsumerConfig){
		"Model is 7, must be Clustering or Broadcasting": func(c *pocketmq.ConsumerConfig) { c.Model = 7 },
		"OffsetDir is for a Broadcasting consumer":       func(c *pocketmq.ConsumerConfig) { c.OffsetDir = "x" },
		"must not hold a slash": func(c *pocketmq.ConsumerConfig) {
			c.Model, c.OffsetDir, c.InstanceName = pocketmq.Broadcasting, "x", "../../y"
		},
	} {
		cfg := base
		edit(&cfg)
		_, err := pocketmq.NewConsumer(cfg)
		assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig)
		assert.ErrorContains(t, err, want)
	}
}
