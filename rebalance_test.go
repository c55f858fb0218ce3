package pocketmq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/rebalance"
)

// holdings tells what each consumer holds, by client id.
func holdings(cs []*pocketmq.Consumer) map[string][]pocketmq.MessageQueue {
	held := make(map[string][]pocketmq.MessageQueue)
	for _, co := range cs {
		held[co.ClientID()] = co.Assignment()
	}
	return held
}

// sizes are the numbers of queues held, largest first.
func sizes(cs []*pocketmq.Consumer) []int {
	var out []int
	for _, co := range cs {
		out = append(out, len(co.Assignment()))
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

// expected is what Averagely gives each of these consumers of a topic.
func expected(t testing.TB, cs []*pocketmq.Consumer, queues []pocketmq.MessageQueue) map[string][]pocketmq.MessageQueue {
	t.Helper()
	return expectedOf(t, rebalance.Averagely, cs, queues)
}

// expectedOf is what a strategy gives each of these consumers of a topic.
func expectedOf(t testing.TB, s rebalance.Strategy, cs []*pocketmq.Consumer, queues []pocketmq.MessageQueue) map[string][]pocketmq.MessageQueue {
	t.Helper()
	var members []string
	for _, co := range cs {
		members = append(members, co.ClientID())
	}
	rebalance.SortMembers(members)
	want := make(map[string][]pocketmq.MessageQueue)
	for _, self := range members {
		share, err := s.Allocate("g", self, queues, members)
		require.NoError(t, err)
		want[self] = slices.Clone(share)
		slices.SortFunc(want[self], pocketmq.MessageQueue.Compare)
	}
	return want
}

// queuesOf lists n queues of T on each broker, sorted.
func queuesOf(n int, brokers ...string) []pocketmq.MessageQueue {
	var out []pocketmq.MessageQueue
	for _, b := range brokers {
		for id := range n {
			out = append(out, queue("T", b, id))
		}
	}
	slices.SortFunc(out, pocketmq.MessageQueue.Compare)
	return out
}

func TestRB01_LiveAssignmentsAreThoseOfTheReferenceAlgorithm(t *testing.T) {
	for name, tc := range map[string]struct {
		brokers   []string
		queues    int
		consumers int
		sizes     []int
	}{
		"3 consumers on 2 brokers x 4": {[]string{"broker-a", "broker-b"}, 4, 3, []int{3, 3, 2}},
		"11 queues on one broker":      {[]string{"broker-a"}, 11, 3, []int{4, 4, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups(tc.brokers...), Topics: map[string]int{"T": tc.queues}})
				var in inbox
				var cs []*pocketmq.Consumer
				for i := range tc.consumers {
					cs = append(cs, consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler(fmt.Sprint(i))}))
				}
				synctest.Wait()
				queues := queuesOf(tc.queues, tc.brokers...)
				assert.Equal(t, expected(t, cs, queues), holdings(cs))
				assert.Equal(t, tc.sizes, sizes(cs))

				// By the rule itself: contiguous blocks of the sorted queues to the
				// sorted members, the first ones get one more.
				slices.SortFunc(cs, func(a, b *pocketmq.Consumer) int { return len(a.ClientID()) - len(b.ClientID()) })
				var union []pocketmq.MessageQueue
				for _, held := range holdings(cs) {
					at := slices.Index(queues, held[0])
					assert.Equal(t, queues[at:at+len(held)], held, "contiguous")
					union = append(union, held...)
				}
				assert.ElementsMatch(t, queues, union, "disjoint and complete")
			})
		})
	}
}

func TestRB02_MoreConsumersThanQueues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		var cs []*pocketmq.Consumer
		for i := range 6 {
			cs = append(cs, consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler(fmt.Sprint(i))}))
		}
		synctest.Wait()
		assert.Equal(t, []int{1, 1, 1, 1, 0, 0}, sizes(cs))
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 40 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, numbers(40), in.bodies())

		holder := slices.IndexFunc(cs, func(co *pocketmq.Consumer) bool { return len(co.Assignment()) == 1 })
		require.NoError(t, cs[holder].Shutdown(t.Context()))
		cs = slices.Delete(cs, holder, holder+1)
		synctest.Wait()
		assert.Equal(t, []int{1, 1, 1, 1, 0}, sizes(cs), "a spare takes the queue at once")
		var held []pocketmq.MessageQueue
		for _, co := range cs {
			held = append(held, co.Assignment()...)
		}
		assert.ElementsMatch(t, queuesOf(4, "broker-a"), held)
	})
}

func TestRB03_TwoDefaultConsumersOfOneProcessAreTwoMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		a := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("a")})
		b := consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("b")})
		synctest.Wait()
		assert.NotEqual(t, a.ClientID(), b.ClientID())
		assert.Len(t, a.Assignment(), 2)
		assert.Len(t, b.Assignment(), 2)
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 100 {
			_, err := p.Send(t.Context(), text("T", "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, numbers(100), in.bodies(), "once each")
	})
}

func TestRB03_EqualInstanceNamesOfOneGroupAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4}})
		var in inbox
		cfg := pocketmq.ConsumerConfig{Group: "g", InstanceName: "one", Subscriptions: all("T"), Handler: in.handler("a")}
		first := consumer(t, c, cfg)
		assert.Equal(t, "127.0.0.1@one", first.ClientID())

		_, err := c.StartConsumer(t.Context(), cfg)
		assert.ErrorIs(t, err, pocketmq.ErrDuplicateClient)
		assert.ErrorContains(t, err, "InstanceName", "it says what to do")
		synctest.Wait()
		assert.Len(t, first.Assignment(), 4, "the first one is not disturbed")

		other := cfg
		other.Group = "h"
		consumer(t, c, other) // another group may have the name

		require.NoError(t, first.Close())
		again := consumer(t, c, cfg) // and the group again once it is free
		assert.Len(t, again.Assignment(), 4)

		_, err = c.StartProducer(t.Context(), pocketmq.ProducerConfig{Group: "p", InstanceName: "one"})
		require.NoError(t, err)
		_, err = c.StartProducer(t.Context(), pocketmq.ProducerConfig{Group: "p", InstanceName: "one"})
		assert.ErrorIs(t, err, pocketmq.ErrDuplicateClient)
	})
}

// firstLetters takes the first letter of a broker and of an instance for its room.
type firstLetters struct{}

func (firstLetters) BrokerRoom(q pocketmq.MessageQueue) string { return q.BrokerName[:1] }
func (firstLetters) ConsumerRoom(clientID string) string {
	_, name, _ := strings.Cut(clientID, "@")
	return name[:1]
}

func TestRB01_EveryStrategySharesALiveTopicAsItsPureResultSays(t *testing.T) {
	for _, s := range []rebalance.Strategy{
		rebalance.AveragelyByCircle,
		rebalance.ConsistentHash(rebalance.DefaultVirtualNodes),
		rebalance.MachineRoomNearby(rebalance.Averagely, firstLetters{}),
	} {
		t.Run(s.Name(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: groups("r-a", "s-a", "t-a"), Topics: map[string]int{"T": 5}})
				var in inbox
				var cs []*pocketmq.Consumer
				for _, name := range []string{"r1", "r2", "s1"} {
					cs = append(cs, consumer(t, c, pocketmq.ConsumerConfig{
						Group: "g", InstanceName: name, Subscriptions: all("T"), Strategy: s, Handler: in.handler(name),
					}))
				}
				synctest.Wait()
				queues := queuesOf(5, "r-a", "s-a", "t-a")
				assert.Equal(t, expectedOf(t, s, cs, queues), holdings(cs))

				p := producer(t, c, pocketmq.ProducerConfig{})
				for i := range 60 {
					_, err := p.SendTo(t.Context(), queues[i%len(queues)], text("T", "%d", i))
					require.NoError(t, err)
				}
				synctest.Wait()
				assert.Equal(t, numbers(60), in.bodies(), "once each")

				require.NoError(t, cs[2].Shutdown(t.Context()))
				cs = cs[:2]
				synctest.Wait()
				assert.Equal(t, expectedOf(t, s, cs, queues), holdings(cs))
			})
		})
	}
}

func TestByConfigConsumersHoldTheirListsAndConsumeThem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 4, "U": 1}})
		var in inbox
		lists := [][]pocketmq.MessageQueue{
			{queue("T", "broker-a", 0), queue("T", "broker-a", 3), queue("U", "broker-a", 0)},
			{queue("T", "broker-a", 1), queue("T", "broker-a", 2)},
		}
		for i, list := range lists {
			co := consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", Subscriptions: all("T", "U"), Strategy: rebalance.ByConfig(list...), Handler: in.handler(fmt.Sprint(i)),
			})
			assert.Equal(t, list, co.Assignment())
		}
		p := producer(t, c, pocketmq.ProducerConfig{})
		for i := range 40 {
			_, err := p.Send(t.Context(), text([]string{"T", "T", "T", "U"}[i%4], "%d", i))
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Equal(t, numbers(40), in.bodies())
	})
}

func TestRB05_QueuesAndBrokersAddedAtRunTimeAreConsumed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a")})
		admin := c.Admin()
		require.NoError(t, admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 4}))
		var in inbox
		cs := []*pocketmq.Consumer{
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("1")}),
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("2")}),
		}
		var want []string
		sendToEach := func(step string) {
			t.Helper()
			p := producer(t, c, pocketmq.ProducerConfig{}) // with a fresh route
			queues, err := p.Queues(t.Context(), "T")
			require.NoError(t, err)
			for _, q := range queues {
				body := step + " " + q.String()
				_, err := p.SendTo(t.Context(), q, text("T", "%s", body))
				require.NoError(t, err)
				want = append(want, body)
			}
			require.NoError(t, p.Close())
		}
		consumed := func() {
			t.Helper()
			slices.Sort(want)
			assert.Equal(t, want, in.bodies())
		}
		synctest.Wait() // the first one has given up its half
		sendToEach("4 queues")
		synctest.Wait()
		consumed()

		time.Sleep(7 * time.Second)
		require.NoError(t, admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 8}))
		sendToEach("8 queues") // before any consumer knows
		time.Sleep(30*time.Second + 20*time.Second)
		synctest.Wait()
		consumed()
		assert.Equal(t, expected(t, cs, queuesOf(8, "broker-a")), holdings(cs))

		time.Sleep(7 * time.Second)
		require.NoError(t, c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-b"}))
		require.NoError(t, admin.CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 8, Brokers: []string{"broker-b"}}))
		sendToEach("16 queues")
		time.Sleep(30*time.Second + 20*time.Second)
		synctest.Wait()
		consumed()
		assert.Equal(t, expected(t, cs, queuesOf(8, "broker-a", "broker-b")), holdings(cs))
		assert.Equal(t, []int{8, 8}, sizes(cs))
	})
}

// Churn must not lose anything, and after quiet each queue has one owner.
func TestNothingIsLostWhileMembersComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
		var in inbox
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("x")}
		cs := []*pocketmq.Consumer{consumer(t, c, cfg), consumer(t, c, cfg)}
		p := producer(t, c, pocketmq.ProducerConfig{})
		const n = 2000
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := range n {
				_, err := p.Send(context.Background(), text("T", "%d", i))
				assert.NoError(t, err)
				time.Sleep(time.Millisecond)
			}
		}()
		for i := range 20 {
			time.Sleep(50 * time.Millisecond)
			extra := consumer(t, c, cfg)
			time.Sleep(50 * time.Millisecond)
			if i%2 == 0 {
				require.NoError(t, extra.Close())
			} else {
				require.NoError(t, extra.Shutdown(t.Context()))
			}
		}
		<-sent
		time.Sleep(time.Minute)
		synctest.Wait()
		got := in.bodies()
		assert.Equal(t, numbers(n), slices.Compact(got), "duplicates are allowed, gaps are not")
		assert.Equal(t, expected(t, cs, queuesOf(4, "broker-a", "broker-b")), holdings(cs))
		for b := range c.Brokers() {
			g, ok := b.Group("g")
			require.True(t, ok)
			for _, q := range g.Queues {
				assert.Equal(t, q.Max, q.Committed, "%v", q.Queue)
				assert.Zero(t, q.Lag)
			}
		}
	})
}
