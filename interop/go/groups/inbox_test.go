package groups_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// patience is how long a condition may take: some of the official client's
// intervals are 10 and 20 s, and nothing shortens them.
const patience = 45 * time.Second

// arrival is a message that a handler got, whichever client handed it over.
type arrival struct {
	who   string // the consumer's name in the test
	body  string
	queue string // where it lay
	at    int64  // its offset there
	tries int    // failed deliveries before this one

	official *primitive.MessageExt // nil from a consumer of ours
	ours     *pocketmq.MessageExt  // nil from an official one
}

// inbox collects what handlers get, and wakes who waits for it.
type inbox struct {
	mu     sync.Mutex // guards the rest
	list   []arrival
	counts map[string]int // by body
	woken  chan struct{}  // closed and replaced by each arrival
}

func newInbox() *inbox { return &inbox{counts: make(map[string]int), woken: make(chan struct{})} }

func (b *inbox) put(a arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, a)
	b.counts[a.body]++
	close(b.woken)
	b.woken = make(chan struct{})
}

// official returns a handler of an official consumer that files what it gets and
// answers what verdict says; nil = success.
func (b *inbox) official(who string, verdict func(context.Context, arrival) consumer.ConsumeResult) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, m := range msgs {
			a := officialArrival(who, m)
			if verdict != nil {
				result = verdict(ctx, a)
			}
			b.put(a)
		}
		return result, nil
	}
}

func officialArrival(who string, m *primitive.MessageExt) arrival {
	return arrival{who: who, body: string(m.Body), queue: fmt.Sprintf("%s/%s/%d", m.Queue.Topic, m.Queue.BrokerName, m.Queue.QueueId), at: m.QueueOffset, tries: int(m.ReconsumeTimes), official: m}
}

// ours returns a handler of a consumer of ours, as official does.
func (b *inbox) ours(who string, verdict func(arrival) error) func(context.Context, []*pocketmq.MessageExt) error {
	return func(_ context.Context, msgs []*pocketmq.MessageExt) error {
		var err error
		for _, m := range msgs {
			a := ourArrival(who, m)
			if verdict != nil {
				err = verdict(a)
			}
			b.put(a)
		}
		return err
	}
}

func ourArrival(who string, m *pocketmq.MessageExt) arrival {
	return arrival{who: who, body: string(m.Body), queue: fmt.Sprintf("%s/%s/%d", m.Queue.Topic, m.Queue.BrokerName, m.Queue.QueueID), at: m.QueueOffset, tries: m.ReconsumeTimes, ours: m}
}

// wait returns when ok holds for what has arrived, which it must not change.
func (b *inbox) wait(t *testing.T, what string, ok func(list []arrival, counts map[string]int) bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		done, woken := ok(b.list, b.counts), b.woken
		n, distinct := len(b.list), len(b.counts)
		b.mu.Unlock()
		if done {
			return
		}
		select {
		case <-woken:
		case <-late.C:
			require.Failf(t, "waited too long", "for %s; %d deliveries of %d messages so far", what, n, distinct)
		}
	}
}

// waitBodies returns when each of these bodies has arrived.
func (b *inbox) waitBodies(t *testing.T, bodies []string) {
	t.Helper()
	next := 0 // all before have arrived
	b.wait(t, fmt.Sprintf("%d messages", len(bodies)), func(_ []arrival, counts map[string]int) bool {
		for next < len(bodies) && counts[bodies[next]] > 0 {
			next++
		}
		return next == len(bodies)
	})
}

// arrivals returns a copy of what has arrived.
func (b *inbox) arrivals() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.list)
}

// count returns how often a body has arrived.
func (b *inbox) count(body string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[body]
}

// repeats is how many deliveries there were beyond one per message.
func (b *inbox) repeats() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list) - len(b.counts)
}

// numbered are the bodies prefix0 to prefix(n-1).
func numbered(prefix string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(prefix, i)
	}
	return bodies
}

// distinct is how many messages have arrived.
func (b *inbox) distinct() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.counts)
}

// more returns when n more messages have arrived.
func (b *inbox) more(t *testing.T, n int) {
	t.Helper()
	n += b.distinct()
	b.wait(t, fmt.Sprintf("message number %d", n), func(_ []arrival, counts map[string]int) bool { return len(counts) >= n })
}
