package groups_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/rebalance"
)

// everything subscribes to all messages of a topic.
var everything = consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}

// cluster starts a cluster on loopback with these topics, on one broker unless
// others are named.
func cluster(t *testing.T, topics map[string]int, brokers ...string) *pocketmq.Cluster {
	t.Helper()
	return clusterWith(t, mqtest.Fast(), topics, brokers...)
}

func clusterWith(t *testing.T, timings pocketmq.Timings, topics map[string]int, brokers ...string) *pocketmq.Cluster {
	t.Helper()
	cfg := pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1"), Timings: timings, Topics: topics}
	for _, name := range brokers {
		cfg.Groups = append(cfg.Groups, pocketmq.BrokerGroup{Name: name})
	}
	return mqtest.Run(t, cfg)
}

// push starts an official push consumer of one topic.
func push(t *testing.T, c *pocketmq.Cluster, group, topic string, selector consumer.MessageSelector,
	handler func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error), opts ...consumer.Option,
) rocketmq.PushConsumer {
	t.Helper()
	co := rmqtest.Consumer(t, c, group, append([]consumer.Option{consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}, opts...)...)
	require.NoError(t, co.Subscribe(topic, selector, handler))
	require.NoError(t, co.Start())
	return co
}

// sent is a running official producer of numbered messages.
type sent struct {
	stop chan struct{}
	done chan struct{} // closed when it has ended

	mu     sync.Mutex // guards the rest
	bodies []string
	err    error
}

// sending starts an official producer that sends about a message each
// millisecond until end is called.
func sending(t *testing.T, c *pocketmq.Cluster, topic string) *sent {
	t.Helper()
	return sendingFrom(t, c, topic, 0)
}

// sendingFrom is sending, with numbers from first on.
func sendingFrom(t *testing.T, c *pocketmq.Cluster, topic string, first int) *sent {
	t.Helper()
	p := rmqtest.Producer(t, c)
	s := &sent{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := first; ; i++ {
			body := fmt.Sprint("m", i)
			_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
			s.mu.Lock()
			if err == nil {
				s.bodies = append(s.bodies, body)
			} else {
				s.err = err
			}
			s.mu.Unlock()
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { s.halt() })
	return s
}

func (s *sent) halt() {
	s.mu.Lock()
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.mu.Unlock()
	<-s.done
}

// end stops the producer and returns what it has sent.
func (s *sent) end(t *testing.T) []string {
	t.Helper()
	s.halt()
	require.NoError(t, s.err)
	return s.bodies
}

// sendAll sends bodies with an official producer, one after the other.
func sendAll(t *testing.T, p rocketmq.Producer, topic string, bodies []string) {
	t.Helper()
	for _, body := range bodies {
		_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte(body)))
		require.NoError(t, err)
	}
}

// waitGroup is Cluster.WaitGroup with a deadline.
func waitGroup(t *testing.T, c *pocketmq.Cluster, group, what string, pred func(pocketmq.GroupStatus) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, c.WaitGroup(ctx, group, pred), what)
}

// waitShared returns when the group has as many members as said and each queue
// of the topic is pulled by the member that the strategy gives it, and by no
// other. It returns who has which, by the name of the queue.
func waitShared(t *testing.T, c *pocketmq.Cluster, group, topic string, members int, by rebalance.Strategy) map[string]string {
	t.Helper()
	queues := queuesOf(t, c, topic)
	var owners map[string]string
	waitGroup(t, c, group, fmt.Sprintf("%d members with a share of %d queues each", members, len(queues)), func(st pocketmq.GroupStatus) bool {
		owners = shares(st, topic, queues, members, by)
		return owners != nil
	})
	return owners
}

// shares returns who has which queue, nil unless everybody has exactly what the
// strategy gives.
func shares(st pocketmq.GroupStatus, topic string, queues []pocketmq.MessageQueue, members int, by rebalance.Strategy) map[string]string {
	if len(st.Members) != members {
		return nil
	}
	ids := make([]string, members)
	for i, m := range st.Members {
		ids[i] = m.ClientID
	}
	owners := make(map[string]string)
	for _, m := range st.Members {
		want, err := by.Allocate(st.Name, m.ClientID, queues, ids)
		if err != nil {
			return nil
		}
		has := slices.DeleteFunc(slices.Clone(m.Assigned), func(q pocketmq.MessageQueue) bool { return q.Topic != topic })
		slices.SortFunc(want, pocketmq.MessageQueue.Compare)
		if !slices.Equal(has, want) {
			return nil
		}
		for _, q := range has {
			owners[nameOf(q)] = m.ClientID
		}
	}
	return owners
}

func nameOf(q pocketmq.MessageQueue) string {
	return fmt.Sprintf("%s/%s/%d", q.Topic, q.BrokerName, q.QueueID)
}

// queuesOf lists the queues of a topic, sorted.
func queuesOf(t *testing.T, c *pocketmq.Cluster, topic string) []pocketmq.MessageQueue {
	t.Helper()
	stats, err := c.Admin().TopicStats(t.Context(), topic)
	require.NoError(t, err)
	queues := make([]pocketmq.MessageQueue, 0, len(stats))
	for q := range stats {
		queues = append(queues, q)
	}
	slices.SortFunc(queues, pocketmq.MessageQueue.Compare)
	return queues
}

// onlyOwners sends messages to a group that is quiet and asserts that each comes
// exactly once, to the member that has its queue. clientIDs maps the names of
// consumers in the test to client ids.
func onlyOwners(t *testing.T, b *inbox, p rocketmq.Producer, topic string, owners, clientIDs map[string]string) {
	t.Helper()
	bodies := numbered("quiet", 8*len(owners))
	sendAll(t, p, topic, bodies)
	b.waitBodies(t, bodies)
	for _, a := range b.arrivals() {
		if slices.Contains(bodies, a.body) {
			assert.Equal(t, owners[a.queue], clientIDs[a.who], "message %s of queue %s was delivered to %s", a.body, a.queue, a.who)
		}
	}
	for _, body := range bodies {
		assert.Equal(t, 1, b.count(body), "deliveries of %s", body)
	}
}

// lagless reports whether a group has consumed and committed all.
func lagless(st pocketmq.GroupStatus) bool {
	return len(st.Queues) > 0 && !slices.ContainsFunc(st.Queues, func(q pocketmq.QueueLag) bool { return q.Lag > 0 })
}

// summary prints the line of a scenario that has succeeded.
func summary(t *testing.T, scenario, format string, args ...any) {
	t.Helper()
	if !t.Failed() {
		fmt.Printf("interop: %s: %s\n", scenario, fmt.Sprintf(format, args...))
	}
}

// joined returns the client id of the member that has come into the group last:
// the one that known does not have.
func joined(t *testing.T, c *pocketmq.Cluster, group string, known map[string]string) string {
	t.Helper()
	seen := make(map[string]bool, len(known))
	for _, id := range known {
		seen[id] = true
	}
	id := ""
	waitGroup(t, c, group, "a new member", func(st pocketmq.GroupStatus) bool {
		for _, m := range st.Members {
			if !seen[m.ClientID] {
				id = m.ClientID
			}
		}
		return id != ""
	})
	return id
}
