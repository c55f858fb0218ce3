package consume

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/filter"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/rebalance"
)

// selfish is a strategy that knows whom it is asked for.
type selfish func(self string, queues []message.Queue, members []string) []message.Queue

func (selfish) Name() string { return "SELFISH" }
func (f selfish) Allocate(_, self string, queues []message.Queue, members []string) ([]message.Queue, error) {
	return f(self, queues, members), nil
}

// join makes members that nothing is known of but that they are there.
func (w *world) join(broker string, ids ...string) {
	w.change(func() {
		for _, id := range ids {
			w.brokers[broker].members[id] = true
		}
	})
}

func TestAStrategyThatLeavesGapsOrOverlapsIsReportedByNameOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		w.join("a", "c2", "c3")
		log := new(lines)
		var others atomic.Int64
		var good atomic.Bool
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Logger = log.logger()
			c.Strategy = selfish(func(self string, q []message.Queue, members []string) []message.Queue {
				if self != "c1" {
					others.Add(1)
				}
				if good.Load() {
					share, _ := rebalance.Averagely.Allocate("g", self, q, members)
					return share
				}
				return map[string][]message.Queue{"c1": q[:2], "c2": q[1:2]}[self]
			})
		})
		start(t, e)
		synctest.Wait()
		assert.Equal(t, []message.Queue{queueOf("a", 0), queueOf("a", 1)}, e.Assignment(), "what it shares out is held")
		said := log.String()
		assert.Contains(t, said, "level=WARN")
		assert.Contains(t, said, "strategy=SELFISH")
		assert.Contains(t, said, fmt.Sprintf("nobody gets: %v, %v", queueOf("a", 2), queueOf("a", 3)))
		assert.Contains(t, said, fmt.Sprintf("more than one gets: %v (c1 c2)", queueOf("a", 1)))
		assert.EqualValues(t, 2, others.Load(), "once for each other member")

		time.Sleep(time.Minute) // 3 periodic rounds
		assert.EqualValues(t, 2, others.Load(), "nothing has changed: only this member's share is computed")

		w.topic(testTopic, "a", 4)
		w.join("a", "c4")
		e.MembersChanged()
		synctest.Wait()
		assert.EqualValues(t, 5, others.Load(), "the new list is looked at")
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "the same findings are not said again")

		good.Store(true)
		w.join("a", "c5")
		e.MembersChanged()
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
		assert.Equal(t, 1, strings.Count(log.String(), "shares out queues well again"))
	})
}

func TestAStrategyThatPanicsForAnotherMemberIsReportedAndItsShareTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 2)
		w.join("a", "c2")
		log := new(lines)
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Logger = log.logger()
			c.Strategy = selfish(func(self string, q []message.Queue, members []string) []message.Queue {
				if self != "c1" {
					panic("I know nobody else")
				}
				return q
			})
		})
		start(t, e)
		assert.Len(t, e.Assignment(), 2)
		assert.Contains(t, log.String(), "I know nobody else")
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	})
}

// oneRoom counts what it is asked.
type oneRoom struct{ asked *atomic.Int64 }

func (r oneRoom) BrokerRoom(message.Queue) string { return "r" }
func (r oneRoom) ConsumerRoom(string) string {
	r.asked.Add(1)
	return "r"
}

func TestStrategiesOfOursAreNotAskedForOtherMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		w.join("a", "c2", "c3", "c4")
		log := new(lines)
		var asked atomic.Int64
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Logger = log.logger()
			c.Strategy = rebalance.MachineRoomNearby(rebalance.Averagely, oneRoom{&asked})
		})
		start(t, e)
		synctest.Wait()
		before := asked.Load()
		w.join("a", "c5")
		e.MembersChanged()
		synctest.Wait()
		assert.EqualValues(t, 2*5, asked.Load()-before, "the rooms of the members, for a share of the topic and one of the retry topic")
		assert.NotContains(t, log.String(), "level=WARN")
	})
	synctest.Test(t, func(t *testing.T) { // gaps that are meant
		w := newWorld(t, "r1@a")
		w.addBroker("r2@a")
		w.topic(testTopic, "r1@a", 2)
		w.topic(testTopic, "r2@a", 2)
		log := new(lines)
		e, _ := w.member("c1", new(inbox), func(c *Config) {
			c.Logger = log.logger()
			c.Strategy = rebalance.MachineRoom("r1")
		})
		start(t, e)
		assert.Equal(t, []message.Queue{queueOf("r1@a", 0), queueOf("r1@a", 1)}, e.Assignment())
		assert.NotContains(t, log.String(), "level=WARN")
	})
}

func TestByConfigHoldsWhatItsListSaysOfEachTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 4)
		w.topic("other", "a", 2)
		w.join("a", "c2")
		other := message.Queue{Topic: "other", BrokerName: "a", QueueID: 1}
		log := new(lines)
		in := new(inbox)
		e, c := w.member("c1", in, func(c *Config) {
			c.Logger = log.logger()
			c.Subscriptions = map[string]filter.Tags{testTopic: {}, "other": {}}
			c.Strategy = rebalance.ByConfig(queueOf("a", 3), other, queueOf("a", 1), queueOf("a", 5))
		})
		start(t, e)
		synctest.Wait()
		want := []message.Queue{queueOf("a", 1), queueOf("a", 3), other}
		slices.SortFunc(want, message.Queue.Compare)
		assert.Equal(t, want, e.Assignment())
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
		assert.Contains(t, log.String(), queueOf("a", 5).String(), "a queue that is not there is named")

		w.topic(testTopic, "a", 6)
		_, _, err := c.Refresh(t.Context(), testTopic)
		require.NoError(t, err)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Contains(t, e.Assignment(), queueOf("a", 5), "and held once it is")
		assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	})
}

func TestByConfigSharesRetryQueuesThatNoListNames(t *testing.T) {
	retry := message.RetryTopic(testGroup)
	q := []message.Queue{{Topic: retry, BrokerName: "a"}, {Topic: retry, BrokerName: "b"}}
	share := func(id string, list ...message.Queue) []message.Queue {
		cfg := Config{Group: testGroup, ClientID: id, Strategy: rebalance.ByConfig(list...), Logger: new(lines).logger()}
		r := newRun(&cfg, newSubscriptions(&cfg), t.Context(), time.Now())
		got, err := r.allocate(q, []string{"c1", "c2"})
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, q[:1], share("c1", queueOf("a", 0)))
	assert.Equal(t, q[1:], share("c2", queueOf("a", 1)))
	assert.Equal(t, q[1:], share("c1", queueOf("a", 0), q[1]), "unless this member's does")
}
