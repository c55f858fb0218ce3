package pocketmq_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/mqtest"
)

var (
	churnSeed     = flag.Uint64("churn.seed", 0, "seed of TestChurn; 0 = a new one")
	churnMessages = flag.Int("churn.messages", 2000, "messages of each TestChurn, a fifth of them with -race")
)

// Members of a group join, leave and die, and links fail, while messages are sent
// and handlers fail now and then. Promised is:
//
//   - Nothing is lost: each acknowledged message was consumed by a handler, or is a
//     dead letter because one said so.
//   - After quiet each queue has exactly one owner within two rebalance periods,
//     and the group has no lag. It is quiet when all links work, all brokers list
//     exactly the members that live, and locks of no others, and no handler runs
//     that ran before.
//
// and of an orderly group:
//
//   - Per queue first deliveries are in order and leave nothing out; so they are
//     per sharding key while no route changes.
//   - What comes again after a failure begins at the first message that is not
//     finished. After a hand-over it begins at the committed offset; a member that
//     gets back the lock of a queue that it has never let go goes on where it was,
//     or at the committed offset if that is further.
//   - Whoever begins has the queue's lock at its broker. Another handler may run
//     then only if it ran already when its member lost that broker, or before the
//     member could notice, and has had the time since in which locks expire.
//
// In a bubble time is virtual, the timings are RocketMQ's, and periods are exact.
func TestChurn(t *testing.T) {
	for _, kind := range []churnKind{{name: "concurrent"}, {name: "orderly", orderly: true}, {name: "concurrent, brokers crash", crashes: true}, {name: "orderly, brokers crash", orderly: true, crashes: true}} {
		seed := *churnSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		t.Run(kind.name+" in a bubble", func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				newChurn(t, seed, kind, true).run()
			})
		})
		if kind.crashes {
			continue
		}
		t.Run(kind.name+" in real time", func(t *testing.T) {
			t.Parallel()
			newChurn(t, seed, kind, false).run()
		})
	}
}

const (
	churnTopic   = "T"
	churnGroup   = "g"
	churnMembers = 8
	churnQueues  = 4 // per broker
	churnSenders = 4
	churnKeys    = 64     // sharding keys, a part for each sender
	churnLarge   = 10_000 // messages from which a run takes many seconds
)

var churnBrokers = []string{"broker-a", "broker-b", "broker-c"}

type churnKind struct {
	name    string
	orderly bool
	crashes bool // brokers are killed and started again
}

// churn is one run.
type churn struct {
	churnKind
	t        *testing.T
	rnd      *rand.Rand // of the steps; what senders and handlers do is drawn from the seed and the message
	seed     uint64
	virtual  bool
	messages int
	steps    int
	period   time.Duration // between two steps, on average
	tm       pocketmq.Timings
	cluster  *pocketmq.Cluster
	begin    time.Time
	joined   int
	alive    []*pocketmq.Consumer
	senders  []*pocketmq.Producer
	leaving  sync.WaitGroup // shutdowns and heals under way
	gone     chan struct{}  // closed when the churn is over: links heal at once
	acked    atomic.Int64

	mu     sync.Mutex // guards everything below
	story  []string
	faults map[churnLink][]*churnFault
	queues map[pocketmq.MessageQueue]*churnQueue
	keys   [churnKeys]churnKey
	done   int // messages finished for the first time
	again  int // finished once more
	wrong  []string
	rest   time.Duration // real time: the longest that a goroutine was late
}

// churnLink is a link, or with the client "*" a broker.
type churnLink struct{ client, broker string }

// churnFault is a time in which a member does not reach a broker.
type churnFault struct {
	kind     string
	from, to time.Time // to is zero while it lasts
}

// churnQueue is what handlers have done with a queue of an orderly group.
type churnQueue struct {
	running []*churnCall
	members map[string]churnPlace // where they go on
	next    int64                 // everything below is finished, or given up
}

// churnPlace is where a member goes on in a queue: at onward, or behind it, up to
// beyond, when what it gave up between them are dead letters already.
type churnPlace struct{ onward, beyond int64 }

type churnCall struct {
	who   string
	begin time.Time
	first int64
}

// churnKey is what became of the messages of a sharding key.
type churnKey struct {
	sent     int    // numbered from 0
	first    int    // orderly: the highest number delivered, and one
	finished []bool // by number
	failures []int  // by number: deliveries that failed
	dead     []bool // by number: a handler wanted it to be a dead letter
}

func newChurn(t *testing.T, seed uint64, kind churnKind, virtual bool) *churn {
	c := &churn{
		churnKind: kind, t: t, seed: seed, virtual: virtual, messages: *churnMessages,
		rnd: rand.New(rand.NewPCG(seed, 1)), gone: make(chan struct{}),
		faults: make(map[churnLink][]*churnFault), queues: make(map[pocketmq.MessageQueue]*churnQueue),
	}
	if raceDetector {
		c.messages /= 5
	}
	c.steps = 60 + c.messages/1000
	c.tm = pocketmq.DefaultTimings()
	c.period = c.tm.Rebalance / 2
	if !virtual {
		length := min(max(time.Second, time.Duration(c.messages)*time.Millisecond/2), 15*time.Second)
		c.period = length / time.Duration(c.steps)

		// What decides that somebody is dead is shortened, too. A lock of a member
		// that still lives is safe as long as no goroutine rests for a second.
		c.tm = mqtest.Fast()
		c.tm.ClientExpire = time.Second
		c.tm.LockExpire, c.tm.LockClientLife = 2*time.Second, time.Second
	}
	return c
}

func (c *churn) run() {
	c.begin = time.Now()
	c.cluster = run(c.t, pocketmq.ClusterConfig{Groups: groups(churnBrokers...), Topics: map[string]int{churnTopic: churnQueues}, Timings: c.tm})
	links(c.t, c.cluster) // it is about them
	defer func() {
		if c.t.Failed() {
			c.t.Logf("steps:\n%s", strings.Join(c.story, "\n"))
		}
	}()
	if !c.virtual {
		c.watch()
	}
	var sending sync.WaitGroup
	c.join()
	for i := range churnSenders {
		p := producer(c.t, c.cluster, pocketmq.ProducerConfig{InstanceName: fmt.Sprint("sender-", i)})
		c.senders = append(c.senders, p)
		sending.Go(func() { c.send(i, p) })
	}
	for range c.steps {
		c.step()
		time.Sleep(c.upTo(2 * c.period))
	}
	sending.Wait()
	c.calm()
	c.verify()
}

// watch measures by how much a goroutine is late on this machine. Locks expire, and
// are counted on, by the clock: what rests longer than the time between may find
// that its lock is another member's.
func (c *churn) watch() {
	end := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		const every = 10 * time.Millisecond
		for {
			begin := time.Now()
			select {
			case <-end:
				return
			case <-time.After(every):
			}
			c.mu.Lock()
			c.rest = max(c.rest, time.Since(begin)-every)
			c.mu.Unlock()
		}
	})
	c.t.Cleanup(func() { close(end); watching.Wait() })
}

// complainOfLocksLocked is complainLocked, unless the machine was so busy that it
// may be why.
func (c *churn) complainOfLocksLocked(format string, args ...any) {
	if c.rest > (c.tm.LockExpire-c.tm.LockClientLife)/4 {
		c.story = append(c.story, c.now()+"on a busy machine: "+fmt.Sprintf(format, args...))
		return
	}
	c.complainLocked(format, args...)
}

// upTo draws a time.
func (c *churn) upTo(d time.Duration) time.Duration { return time.Duration(c.rnd.Int64N(int64(d))) }

func (c *churn) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.story = append(c.story, c.now()+fmt.Sprintf(format, args...))
}

func (c *churn) now() string { return fmt.Sprintf("%10.3f ", time.Since(c.begin).Seconds()) }

func (c *churn) complainLocked(format string, args ...any) {
	c.wrong = append(c.wrong, c.now()+fmt.Sprintf(format, args...))
}

func (c *churn) what() string { return fmt.Sprintf("-churn.seed %d", c.seed) }

// send sends the share of one sender, key by key in order: a message that may not
// have been stored is sent again before the next one.
func (c *churn) send(sender int, p *pocketmq.Producer) {
	rnd := rand.New(rand.NewPCG(c.seed, uint64(100+sender)))
	const keys = churnKeys / churnSenders
	share := c.messages / churnSenders
	length := time.Duration(c.steps) * c.period
	for sent := 0; sent < share; {
		burst := min(1+rnd.IntN(40), share-sent)
		for range burst {
			key := sender*keys + rnd.IntN(keys)
			c.mu.Lock()
			k := &c.keys[key]
			n := k.sent
			k.sent++
			k.finished, k.failures, k.dead = append(k.finished, false), append(k.failures, 0), append(k.dead, false)
			c.mu.Unlock()
			m := text(churnTopic, "%d %d", key, n)
			if c.orderly {
				m.ShardingKey = fmt.Sprint("key-", key)
			}
			for {
				_, err := p.Send(context.Background(), m)
				if err == nil {
					break
				}
				if errors.Is(err, pocketmq.ErrInvalidConfig) || errors.Is(err, pocketmq.ErrClosed) {
					c.t.Errorf("%s: send: %v", c.what(), err)
					return
				}
				time.Sleep(c.tm.RebalanceRetry)
			}
			c.acked.Add(1)
		}
		sent += burst
		time.Sleep(time.Duration(rnd.Int64N(2 * int64(length) * int64(burst) / int64(share))))
	}
}

// step does something to the group or to its links.
func (c *churn) step() {
	some := len(c.alive) > 0
	switch op := c.rnd.IntN(20); {
	case op < 6 && len(c.alive) < churnMembers, len(c.alive) == 0:
		c.join()
	case op < 8 && some:
		co := c.take()
		c.note("%s shuts down", co.ClientID())
		c.leaving.Go(func() {
			if err := co.Shutdown(context.Background()); err != nil && !errors.Is(err, pocketmq.ErrUnreachable) && !errors.Is(err, pocketmq.ErrUnknownOutcome) {
				c.note("%s: shutdown: %v", co.ClientID(), err)
			}
		})
	case op < 9 && some:
		co := c.take()
		c.note("%s closes", co.ClientID())
		c.leaving.Go(func() { assert.NoError(c.t, co.Close(), c.what()) })
	case op < 11 && some:
		c.die(c.take())
	case op < 18 && some:
		c.disturb(c.alive[c.rnd.IntN(len(c.alive))].ClientID())
	case c.crashes:
		c.crash()
	default:
		c.unhook()
	}
}

func (c *churn) join() {
	c.joined++
	name := fmt.Sprint("m", c.joined)
	cfg := pocketmq.ConsumerConfig{
		Group: churnGroup, InstanceName: name, Subscriptions: all(churnTopic), From: pocketmq.FromFirstOffset,
		Orderly: c.orderly, ConsumeTimeout: c.tm.LockExpire / 2, BatchSize: 1 + c.rnd.IntN(4), Concurrency: 2 + c.rnd.IntN(10), PullBatchSize: 1 + c.rnd.IntN(40),
	}
	id := make(chan string, 1)
	who := sync.OnceValue(func() string { return <-id })
	cfg.Handler = func(ctx context.Context, msgs []*pocketmq.MessageExt) error { return c.handle(ctx, who(), msgs) }
	co, err := c.cluster.StartConsumer(context.Background(), cfg)
	if !c.virtual && errors.Is(err, pocketmq.ErrTimeout) { // a busy machine
		c.note("%s does not join: %v", name, err)
		return
	}
	require.NoError(c.t, err, c.what())
	id <- co.ClientID()
	c.note("%s joins", co.ClientID())
	c.alive = append(c.alive, co)
}

// take picks a member that is to go.
func (c *churn) take() *pocketmq.Consumer {
	i := c.rnd.IntN(len(c.alive))
	co := c.alive[i]
	c.alive = slices.Delete(c.alive, i, i+1)
	return co
}

// silence reports whether links may become silent: what they swallow costs real
// seconds, the time limits of requests.
func (c *churn) silence() bool { return c.virtual || c.messages >= churnLarge && c.rnd.IntN(4) == 0 }

// die ends a member as a crash of its process, or of its machine, would: brokers
// see its connections break, or see nothing.
func (c *churn) die(co *pocketmq.Consumer) {
	n := links(c.t, c.cluster)
	kind := "cut"
	if c.rnd.IntN(2) == 0 && c.silence() {
		kind = "drop"
	}
	c.note("%s dies (%s)", co.ClientID(), kind)
	for _, b := range churnBrokers {
		c.fault(co.ClientID(), b, kind)
	}
	if kind == "cut" {
		n.Cut(co.ClientID(), "*")
	} else {
		n.Drop(co.ClientID(), "*")
	}
	c.leaving.Go(func() { assert.NoError(c.t, co.Close(), c.what()) })
}

func (c *churn) fault(client, broker, kind string) *churnFault {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &churnFault{kind: kind, from: time.Now()}
	link := churnLink{client, broker}
	c.faults[link] = append(c.faults[link], f)
	return f
}

// disturb takes the link between a member and a broker away, or makes it slow, for
// a while.
func (c *churn) disturb(client string) {
	n := links(c.t, c.cluster)
	broker := churnBrokers[c.rnd.IntN(len(churnBrokers))]
	node := broker + "/0"
	lasts := c.upTo(4 * c.period)
	if c.rnd.IntN(4) == 0 {
		lasts = c.upTo(2 * c.tm.LockExpire)
	}
	rule := c.rnd.IntN(8)
	if rule > 1 && rule < 6 && !c.silence() {
		rule = 0
	}
	kind := []string{"cut", "cut", "drop", "drop", "one way to the broker", "one way to the member", "slow", "slow"}[rule]
	c.note("%s and %s: %s for %v", client, node, kind, lasts)
	f := c.fault(client, broker, kind)
	switch rule {
	case 0, 1:
		n.Cut(client, node)
	case 2, 3:
		n.Drop(client, node)
	case 4:
		n.CutOneWay(client, node)
	case 5:
		n.CutOneWay(node, client)
	default:
		n.Delay(client, node, c.upTo(c.tm.LockClientLife/6))
	}
	c.later(lasts, func() {
		n.Heal(client, node)
		c.mu.Lock()
		f.to = time.Now()
		c.mu.Unlock()
	})
}

// unhook takes the link between a sender and a broker away for a while; of a
// concurrent group that between a broker and the name server, too: then a route
// loses the broker.
func (c *churn) unhook() {
	n := links(c.t, c.cluster)
	node := churnBrokers[c.rnd.IntN(len(churnBrokers))] + "/0"
	to := ""
	if !c.orderly && c.rnd.IntN(2) == 0 {
		to = "ns-0"
	} else {
		to = c.senders[c.rnd.IntN(len(c.senders))].ClientID()
	}
	lasts := c.upTo(c.period)
	c.note("%s and %s: cut for %v", to, node, lasts)
	n.Cut(to, node)
	c.later(lasts, func() { n.Heal(to, node) })
}

// crash kills a broker and starts it again after a while. Its queue locks are
// gone, and the offsets that were committed since it last saved them.
func (c *churn) crash() {
	broker := churnBrokers[c.rnd.IntN(len(churnBrokers))]
	lasts := c.upTo(4 * c.period)
	c.fault("*", broker, "crash")
	if err := c.cluster.Kill(broker, 0); err != nil {
		return // it is down
	}
	c.note("%s is killed for %v", broker, lasts)
	c.later(lasts, func() { assert.NoError(c.t, c.cluster.Restart(context.Background(), broker, 0), c.what()) })
}

// later does f after a while, or when the churn is over.
func (c *churn) later(d time.Duration, f func()) {
	c.leaving.Go(func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.gone:
		}
		f()
	})
}

// dice draws what happens to a message, independent of who has it.
func (c *churn) dice(what string, key, n, attempt int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what, key, n, attempt)
	return rand.New(rand.NewPCG(c.seed, h.Sum64()))
}

var (
	errChurned = errors.New("fails now and then")
	errPoison  = errors.New("fails always")
)

// handle is the handler of all members.
func (c *churn) handle(ctx context.Context, who string, msgs []*pocketmq.MessageExt) error {
	ids := make([][2]int, len(msgs))
	for i, m := range msgs {
		key, n, ok := strings.Cut(string(m.Body), " ")
		if !ok {
			return fmt.Errorf("body %q", m.Body)
		}
		ids[i][0], _ = strconv.Atoi(key)
		ids[i][1], _ = strconv.Atoi(n)
	}
	rnd, end := c.enter(who, msgs, ids)
	work := time.Duration(rnd.Int64N(int64(20 * time.Millisecond)))
	if !c.virtual {
		work /= 20
	}
	switch {
	case rnd.IntN(c.messages) < 10: // so long that its lock may expire
		work = time.Duration(rnd.Int64N(int64(2 * c.tm.LockExpire)))
		if !c.virtual {
			work /= 8
		}
	case rnd.IntN(200) == 0:
		work *= 100
	}
	timer := time.NewTimer(work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		end(0, false)
		return ctx.Err()
	}
	done, err := c.judge(rnd, ids)
	end(done, err != nil && errors.Is(err, errPoison))
	return err
}

// judge decides what a handler returns, and how many messages that consumes.
func (c *churn) judge(rnd *rand.Rand, ids [][2]int) (done int, err error) {
	for i, id := range ids {
		if c.dice("poison", id[0], id[1], 0).IntN(300) == 0 {
			return i, pocketmq.Done(i, pocketmq.DeadLetter(errPoison))
		}
	}
	switch rnd.IntN(40) {
	case 0, 1:
		return 0, errChurned
	case 2:
		done = rnd.IntN(len(ids))
		return done, pocketmq.Done(done, errChurned)
	case 3:
		return 0, pocketmq.RetryAfter(errChurned, 1+rnd.IntN(4))
	}
	return len(ids), nil
}

// enter notes that a handler begins; end notes that it returns.
func (c *churn) enter(who string, msgs []*pocketmq.MessageExt, ids [][2]int) (rnd *rand.Rand, end func(done int, dead bool)) {
	now := time.Now()
	q, first := msgs[0].Queue, msgs[0].QueueOffset
	var committed int64
	var holder string
	inOrder := c.orderly && !strings.HasPrefix(q.Topic, message.RetryPrefix) // what could not become a dead letter at once comes that way
	if inOrder {
		committed, holder = c.atBroker(q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	call := &churnCall{who: who, begin: now, first: first}
	if inOrder {
		c.beginInOrderLocked(call, msgs, ids, committed, holder)
	}
	rnd = c.dice("handler", ids[0][0], ids[0][1], c.keys[ids[0][0]].failures[ids[0][1]])
	return rnd, func(done int, dead bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if inOrder {
			o := c.queues[q]
			o.running = slices.DeleteFunc(o.running, func(x *churnCall) bool { return x == call })
			onward := call.first + int64(done)
			beyond := onward
			if dead {
				beyond = call.first + int64(len(ids))
			}
			o.next = max(o.next, beyond)
			o.members[who] = churnPlace{onward, beyond}
		}
		for i, id := range ids {
			k := &c.keys[id[0]]
			switch {
			case i >= done:
				k.failures[id[1]]++
				k.dead[id[1]] = k.dead[id[1]] || dead
			case k.finished[id[1]]:
				c.again++
			default:
				k.finished[id[1]] = true
				c.done++
			}
		}
	}
}

// atBroker asks a queue's broker for the group's committed offset and lock.
func (c *churn) atBroker(q pocketmq.MessageQueue) (committed int64, holder string) {
	g, _ := c.cluster.Broker(q.BrokerName, 0).Group(churnGroup)
	for _, lag := range g.Queues {
		if lag.Queue == q {
			committed = lag.Committed
		}
	}
	return max(committed, 0), g.Locks[q]
}

func (c *churn) beginInOrderLocked(call *churnCall, msgs []*pocketmq.MessageExt, ids [][2]int, committed int64, holder string) {
	q := msgs[0].Queue
	o := c.queues[q]
	if o == nil {
		o = &churnQueue{members: make(map[string]churnPlace)}
		c.queues[q] = o
	}
	for _, r := range o.running {
		if !c.mayOverlapLocked(r, call, q.BrokerName) {
			c.complainOfLocksLocked("%v: %s begins at %d while %s runs at %d since %v", q, call.who, call.first, r.who, r.first, call.begin.Sub(r.begin))
		}
	}
	if holder != call.who {
		c.complainOfLocksLocked("%v: %s begins at %d while its broker has given the lock to %q", q, call.who, call.first, holder)
	}
	if call.first > o.next && len(o.running) == 0 {
		c.complainLocked("%v: %s begins at %d, and %d is not finished", q, call.who, call.first, o.next)
	}
	mine := o.members[call.who]
	if call.first != committed && (call.first < mine.onward || call.first > mine.beyond) {
		c.complainLocked("%v: %s begins at %d, committed is %d, and it has come to %d", q, call.who, call.first, committed, mine.onward)
	}
	o.running, o.members[call.who] = append(o.running, call), churnPlace{call.first, call.first}
	for i, m := range msgs {
		if m.QueueOffset != call.first+int64(i) {
			c.complainLocked("%v: a batch has %d at place %d, it begins at %d", q, m.QueueOffset, i, call.first)
		}
		k := &c.keys[ids[i][0]]
		if ids[i][1] > k.first && !c.crashes {
			c.complainLocked("%v: %s gets message %d of key %d, and %d was not delivered", q, call.who, ids[i][1], ids[i][0], k.first)
		}
		k.first = max(k.first, ids[i][1]+1)
	}
}

// mayOverlapLocked reports whether next may begin while r runs. A cut is noticed
// at once, silence when the lock is too old. A broker that crashes takes its locks
// with it.
func (c *churn) mayOverlapLocked(r, next *churnCall, broker string) bool {
	for _, f := range c.faults[churnLink{"*", broker}] {
		if !r.begin.After(f.from) && next.begin.After(f.from) {
			return true
		}
	}
	for _, f := range c.faults[churnLink{r.who, broker}] {
		notice := f.from
		if f.kind != "cut" {
			notice = notice.Add(c.tm.LockClientLife)
		}
		if !r.begin.After(notice) && !next.begin.Before(f.from.Add(c.tm.LockExpire-c.tm.LockRenew-time.Second)) && (f.to.IsZero() || !f.to.Before(r.begin)) {
			return true
		}
	}
	return false
}

// calm heals the links and waits until the brokers know who lives.
func (c *churn) calm() {
	close(c.gone)
	c.leaving.Wait()
	if len(c.alive) == 0 {
		c.join()
	}
	if !c.orderly || c.crashes {
		time.Sleep(c.tm.BrokerRegister + c.tm.RouteRefresh) // routes may have lost brokers
	}
	if len(c.alive) > 1 {
		c.die(c.take())
		c.leaving.Wait()
	}
	c.note("calm")
	healed := time.Now()
	limit := max(c.tm.ClientExpire+c.tm.ClientScan+c.tm.ClientHeartbeat, 2*c.tm.LockExpire) // handlers take as long
	for why := c.restless(healed); why != ""; why = c.restless(healed) {
		require.LessOrEqual(c.t, time.Since(healed), c.slack(limit), "%s: brokers know who lives: %s", c.what(), why)
		time.Sleep(c.tm.RebalanceRetry)
	}
	c.note("quiet")
}

// slack is d in a bubble. In real time what a link has swallowed may hold a
// request up for its time limit, and the machine may have other things to do.
func (c *churn) slack(d time.Duration) time.Duration {
	if c.virtual {
		return d
	}
	return d + 30*time.Second
}

// restless tells what brokers do not know of the members, or which handler has run
// since before, "" for nothing.
func (c *churn) restless(before time.Time) string {
	c.mu.Lock()
	for q, o := range c.queues {
		for _, r := range o.running {
			if r.begin.Before(before) {
				c.mu.Unlock()
				return fmt.Sprintf("%v: %s runs at %d since %v", q, r.who, r.first, r.begin)
			}
		}
	}
	c.mu.Unlock()
	var alive []string
	for _, co := range c.alive {
		alive = append(alive, co.ClientID())
	}
	slices.Sort(alive)
	for _, name := range churnBrokers {
		g, _ := c.cluster.Broker(name, 0).Group(churnGroup)
		var members []string
		for _, m := range g.Members {
			members = append(members, m.ClientID)
		}
		if !slices.Equal(alive, members) {
			return fmt.Sprintf("%s lists %v, alive are %v", name, members, alive)
		}
		for q, who := range g.Locks {
			if !slices.Contains(alive, who) {
				return fmt.Sprintf("%v is locked by %s", q, who)
			}
		}
	}
	return ""
}

func (c *churn) verify() {
	quiet := time.Now()
	if c.virtual {
		time.Sleep(2 * c.tm.Rebalance)
	}
	for why := c.unowned(); why != ""; why = c.unowned() {
		if !assert.LessOrEqual(c.t, time.Since(quiet), c.slack(2*c.tm.Rebalance), "%s: one owner for each queue: %s", c.what(), why) {
			break
		}
		time.Sleep(c.tm.RebalanceRetry)
	}
	// In real time a slow machine may have much left to do, so it is progress that
	// counts: the first message that is not finished.
	limit, since, former := c.slack(6*time.Hour), quiet, ""
	for why := c.unfinished(); why != ""; why = c.unfinished() {
		if !c.virtual && why != former {
			limit, since, former = time.Minute, time.Now(), why
		}
		if !assert.LessOrEqual(c.t, time.Since(since), limit, "%s: everything is consumed: %s", c.what(), why) {
			break
		}
		time.Sleep(c.tm.RebalanceRetry)
	}
	letters := len(c.letters())
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) > 0 {
		c.t.Errorf("%s: %d complaints, the first ones:\n%s", c.what(), len(c.wrong), strings.Join(c.wrong[:min(8, len(c.wrong))], "\n"))
	}
	c.t.Logf("%s: %d messages acknowledged, %d finished more than once, %d dead letters, %d members, %v, %v", c.what(), c.acked.Load(), c.again, letters, c.joined, quiet.Sub(c.begin).Round(time.Millisecond), time.Since(c.begin).Round(time.Millisecond))
}

// letters are the bodies of all dead letters.
func (c *churn) letters() map[string]bool {
	const topic = "%DLQ%" + churnGroup
	out := make(map[string]bool)
	stats, err := c.cluster.Admin().TopicStats(context.Background(), topic)
	if errors.Is(err, pocketmq.ErrNoRoute) {
		return out
	}
	require.NoError(c.t, err, c.what())
	for q := range stats {
		for _, m := range queueContent(c.t, c.cluster, q) {
			out[m.body] = true
		}
	}
	return out
}

// unowned tells which queue has not exactly one owner, "" for none. The owner in
// an orderly group has the lock.
func (c *churn) unowned() string {
	owners := make(map[pocketmq.MessageQueue][]string)
	for _, co := range c.alive {
		for _, q := range co.Assignment() {
			owners[q] = append(owners[q], co.ClientID())
		}
	}
	for _, q := range queuesOf(churnQueues, churnBrokers...) {
		if len(owners[q]) != 1 {
			return fmt.Sprintf("%v belongs to %v", q, owners[q])
		}
		if _, holder := c.atBroker(q); c.orderly && holder != owners[q][0] {
			return fmt.Sprintf("%v belongs to %v and is locked by %q", q, owners[q], holder)
		}
	}
	return ""
}

// unfinished tells which message has not been finished, or which queue has a lag.
func (c *churn) unfinished() string {
	var dead []string
	c.mu.Lock()
	for i, k := range c.keys {
		for n, ok := range k.finished {
			switch {
			case ok:
			case k.dead[n]:
				dead = append(dead, fmt.Sprintf("%d %d", i, n))
			default:
				c.mu.Unlock()
				return fmt.Sprintf("message %d of key %d is not finished", n, i)
			}
		}
	}
	c.mu.Unlock()
	for _, name := range churnBrokers {
		g, _ := c.cluster.Broker(name, 0).Group(churnGroup)
		for _, lag := range g.Queues { // those of the retry topic, too
			if lag.Lag != 0 {
				return fmt.Sprintf("%v: %d of %d committed", lag.Queue, lag.Committed, lag.Max)
			}
		}
	}
	letters := c.letters()
	for _, body := range dead {
		if !letters[body] { // on its way through a delay, perhaps
			return fmt.Sprintf("message %q was given up and is no dead letter", body)
		}
	}
	return ""
}
