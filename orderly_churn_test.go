package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// orderBook watches the handlers of an orderly group: what it demands of every
// call it says in begin.
type orderBook struct {
	mu     sync.Mutex
	queues map[pocketmq.MessageQueue]*orderOf
	wrong  []string
	rnd    *rand.Rand
	total  int // messages finished for the first time
	clean  bool
}

type orderOf struct {
	running string
	last    string // who was here before
	next    int64  // everything below is finished
	at      int64  // the first message of the call before
}

func newOrderBook(seed uint64, clean bool) *orderBook {
	return &orderBook{queues: make(map[pocketmq.MessageQueue]*orderOf), rnd: rand.New(rand.NewPCG(seed, 7)), clean: clean}
}

func (b *orderBook) complain(format string, args ...any) {
	b.wrong = append(b.wrong, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (b *orderBook) begin(who string, msgs []*pocketmq.MessageExt) (fail bool, work time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q, first := msgs[0].Queue, msgs[0].QueueOffset
	o := b.queues[q]
	if o == nil {
		o = &orderOf{}
		b.queues[q] = o
	}
	if o.running != "" {
		b.complain("%v: %s begins at %d while %s runs at %d", q, who, first, o.running, o.at)
	}
	if first > o.next {
		b.complain("%v: %s got %d, and %d is not finished", q, who, first, o.next)
	}
	if first < o.next && b.clean {
		b.complain("%v: %s got %d again, after %s finished up to %d", q, who, first, o.last, o.next)
	}
	for i, m := range msgs {
		if m.QueueOffset != first+int64(i) {
			b.complain("%v: a batch has %d at place %d, it begins at %d", q, m.QueueOffset, i, first)
		}
	}
	o.running, o.last, o.at = who, who, first
	return b.rnd.IntN(10) == 0, time.Duration(b.rnd.IntN(20)) * time.Millisecond
}

func (b *orderBook) end(who string, msgs []*pocketmq.MessageExt, done int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.queues[msgs[0].Queue]
	o.running = ""
	if done > 0 {
		if upTo := msgs[done-1].QueueOffset + 1; upTo > o.next {
			b.total += int(upTo - o.next)
			o.next = upTo
		}
	}
}

var errChurn = errors.New("fails now and then")

func (b *orderBook) handler(who string) func(context.Context, []*pocketmq.MessageExt) error {
	return func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
		fail, work := b.begin(who, msgs)
		select {
		case <-time.After(work):
		case <-ctx.Done():
			b.end(who, msgs, 0)
			return ctx.Err()
		}
		if fail {
			b.end(who, msgs, 0)
			return errChurn
		}
		b.end(who, msgs, len(msgs))
		return nil
	}
}

func (b *orderBook) finished() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

func (b *orderBook) check(t *testing.T, seed uint64) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) > 0 {
		t.Errorf("seed %d: %d complaints, the first ones: %q", seed, len(b.wrong), b.wrong[:min(5, len(b.wrong))])
	}
}

func TestOrderlyMembersJoinLeaveAndDieAndQueuesStayInOrder(t *testing.T) {
	for i := range rounds(3) {
		seed := rand.Uint64()
		t.Run(fmt.Sprint("run ", i), func(t *testing.T) {
			bubble(t, func(t *testing.T) { orderlyChurn(t, seed) })
		})
	}
}

// orderlyChurn has members join, leave, lose links and die for ten minutes, in
// virtual time. Locks outlive all of that, so that there is no moment at which
// two handlers may run.
func orderlyChurn(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	brokers := []string{"broker-a", "broker-b", "broker-c"}
	c := run(t, pocketmq.ClusterConfig{Groups: groups(brokers...), Topics: map[string]int{"T": 4}})
	p := producer(t, c, pocketmq.ProducerConfig{})
	book := newOrderBook(seed, false)
	queues := queuesOf(4, brokers...)
	names := 0
	var members []*pocketmq.Consumer
	join := func() {
		names++
		co, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
			Group: "g", InstanceName: fmt.Sprint("m", names), Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset,
			BatchSize: 1 + rnd.IntN(3), Concurrency: 4, Handler: book.handler(fmt.Sprint("m", names)),
		})
		require.NoError(t, err, "seed %d", seed)
		members = append(members, co)
	}
	pick := func() *pocketmq.Consumer {
		i := rnd.IntN(len(members))
		co := members[i]
		members = append(members[:i], members[i+1:]...)
		return co
	}
	sent := 0
	send := func(n int) {
		for range n {
			_, err := p.SendTo(t.Context(), queues[rnd.IntN(len(queues))], text("T", "%d", sent))
			require.NoError(t, err)
			sent++
		}
	}
	join()
	for range 60 {
		send(rnd.IntN(60))
		switch op := rnd.IntN(10); {
		case op < 4 && len(members) < 6:
			join()
		case op < 6 && len(members) > 1:
			require.NoError(t, pick().Shutdown(t.Context()))
		case op < 7 && len(members) > 1:
			assert.NoError(t, pick().Close())
		case op < 8 && len(members) > 1:
			vanish(t, c, pick())
		case op < 9 && len(members) > 0:
			co := members[rnd.IntN(len(members))]
			broker := brokers[rnd.IntN(3)] + "/0"
			if rnd.IntN(2) == 0 {
				links(t, c).Cut(co.ClientID(), broker)
			} else {
				links(t, c).Drop(co.ClientID(), broker)
			}
			time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
			links(t, c).HealAll()
		}
		time.Sleep(time.Duration(rnd.IntN(15_000)) * time.Millisecond)
	}
	time.Sleep(3 * time.Minute) // what the dead ones held expires
	assert.Equal(t, sent, book.finished(), "seed %d", seed)
	book.check(t, seed)
	locks := make(map[pocketmq.MessageQueue]string)
	for _, name := range brokers {
		g, _ := c.Broker(name, 0).Group("g")
		for q, who := range g.Locks {
			locks[q] = who
		}
	}
	for _, co := range members {
		for _, q := range co.Assignment() {
			assert.Equal(t, co.ClientID(), locks[q], "seed %d: owner and lock of %v", seed, q)
			delete(locks, q)
		}
	}
	assert.Empty(t, locks, "seed %d: locks of nobody", seed)
}

// On the real scheduler members come and go cleanly: then nothing is handled
// twice, and never by two at once.
func TestOrderlyHandOversLoseNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
	p := producer(t, c, pocketmq.ProducerConfig{})
	book := newOrderBook(seed, true)
	queues := queuesOf(4, "broker-a", "broker-b")
	const messages = 600
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range messages {
			_, err := p.SendTo(context.Background(), queues[i%len(queues)], text("T", "%d", i))
			assert.NoError(t, err)
		}
	})
	var members []*pocketmq.Consumer
	for i := range 16 {
		if len(members) > 1 && rnd.IntN(3) == 0 || len(members) == 5 {
			at := rnd.IntN(len(members))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			require.NoError(t, members[at].Shutdown(ctx), "seed %d", seed)
			cancel()
			members = append(members[:at], members[at+1:]...)
			continue
		}
		co, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), Orderly: true, From: pocketmq.FromFirstOffset,
			BatchSize: 1 + rnd.IntN(3), Concurrency: 4, Handler: book.handler(fmt.Sprint("m", i)),
		})
		require.NoError(t, err, "seed %d", seed)
		members = append(members, co)
	}
	sending.Wait()
	assert.Eventually(t, func() bool { return book.finished() == messages }, 30*time.Second, 10*time.Millisecond, "seed %d", seed)
	book.check(t, seed)
}
