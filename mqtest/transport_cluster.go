package mqtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
)

// cluster runs a cluster over the transport of the case.
func (t *transportTest) cluster(cfg pocketmq.ClusterConfig) *pocketmq.Cluster {
	t.Helper()
	cfg.Transport = t.Transport
	return Run(t.T, cfg)
}

// twoGroups is a cluster of two broker groups and two name servers with the topic
// "T", which has 4 queues.
func (t *transportTest) twoGroups() *pocketmq.Cluster {
	t.Helper()
	return t.cluster(pocketmq.ClusterConfig{
		NameServers: 2, Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}, Topics: map[string]int{"T": 2},
	})
}

func (t *transportTest) producer(c *pocketmq.Cluster, cfg pocketmq.ProducerConfig) *pocketmq.Producer {
	t.Helper()
	p, err := c.StartProducer(t.Context(), cfg)
	t.ok(err, "start of a producer")
	return p
}

func (t *transportTest) consumer(c *pocketmq.Cluster, cfg pocketmq.ConsumerConfig) *pocketmq.Consumer {
	t.Helper()
	if cfg.Subscriptions == nil {
		cfg.Subscriptions = map[string]pocketmq.Filter{"T": {}}
	}
	co, err := c.StartConsumer(t.Context(), cfg)
	t.ok(err, "start of a consumer")
	return co
}

// send sends messages with the bodies from to below to, to topic "T".
func (t *transportTest) send(p *pocketmq.Producer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: fmt.Append(nil, i)})
		t.ok(err, fmt.Sprintf("send %d", i))
	}
}

// group waits until a group is as it should be.
func (t *transportTest) group(c *pocketmq.Cluster, group, what string, pred func(pocketmq.GroupStatus) bool) {
	t.Helper()
	ctx, cancel := t.within(t.patience())
	defer cancel()
	t.ok(c.WaitGroup(ctx, group, pred), what)
}

// shared tells whether n members have all of some queues, each one owner.
func shared(members, queues int) func(pocketmq.GroupStatus) bool {
	return func(st pocketmq.GroupStatus) bool {
		owned := make(map[pocketmq.MessageQueue]int)
		for _, m := range st.Members {
			for _, q := range m.Assigned {
				owned[q]++
			}
		}
		for _, n := range owned {
			if n != 1 {
				return false
			}
		}
		return len(st.Members) == members && len(owned) == queues
	}
}

// settled waits until members have some queues among them, each one owner, as they
// see it themselves: while two of them hold a queue, messages may come twice.
func (t *transportTest) settled(queues int, members ...*pocketmq.Consumer) {
	t.Helper()
	t.poll(fmt.Sprintf("%d members share %d queues", len(members), queues), func() bool {
		owned, all := make(map[pocketmq.MessageQueue]bool), 0
		for _, co := range members {
			for _, q := range co.Assignment() {
				owned[q] = true
				all++
			}
		}
		return len(owned) == queues && all == queues
	})
}

// consumed tells whether a group has committed all that there is of a topic.
func consumed(topic string, most int64) func(pocketmq.GroupStatus) bool {
	return func(st pocketmq.GroupStatus) bool {
		sum := int64(0)
		for _, q := range st.Queues {
			if q.Queue.Topic == topic && q.Committed > 0 {
				sum += q.Committed
			}
		}
		return sum == most
	}
}

// inbox collects what handlers get.
type inbox struct {
	mu      sync.Mutex // guards what follows
	list    []got
	changed chan struct{} // closed and replaced with each message
}

// got is a message that a handler got.
type got struct {
	who string
	msg *pocketmq.MessageExt
}

func (b *inbox) handler(who string) func(context.Context, []*pocketmq.MessageExt) error {
	return func(_ context.Context, msgs []*pocketmq.MessageExt) error {
		b.put(who, msgs...)
		return nil
	}
}

func (b *inbox) put(who string, msgs ...*pocketmq.MessageExt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range msgs {
		b.list = append(b.list, got{who, m})
	}
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// all lists what has come so far, and a channel that is closed with more.
func (b *inbox) all() ([]got, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return slices.Clone(b.list), b.changed
}

// of counts what a handler got, by body; of all handlers for "".
func (b *inbox) of(who string) map[string]int {
	list, _ := b.all()
	n := make(map[string]int)
	for _, g := range list {
		if who == "" || g.who == who {
			n[string(g.msg.Body)]++
		}
	}
	return n
}

// until waits until the messages that came are as they should be.
func (b *inbox) until(t *transportTest, what string, pred func([]got) bool) []got {
	t.Helper()
	timer := time.NewTimer(t.patience())
	defer timer.Stop()
	for {
		list, changed := b.all()
		if pred(list) {
			return list
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("%s: not within %v; %d messages came", what, t.patience(), len(list))
		}
	}
}

// bodies waits until handlers have got the bodies from to below to.
func (b *inbox) bodies(t *transportTest, from, to int) []got {
	t.Helper()
	return b.until(t, fmt.Sprintf("messages %d to %d", from, to-1), func(list []got) bool {
		seen := make(map[string]bool)
		for _, g := range list {
			seen[string(g.msg.Body)] = true
		}
		for i := from; i < to; i++ {
			if !seen[fmt.Sprint(i)] {
				return false
			}
		}
		return true
	})
}

// onceEach demands that the bodies from to below to came once and nothing else.
func (t *transportTest) onceEach(counts map[string]int, from, to int) {
	t.Helper()
	want := make(map[string]int)
	for i := from; i < to; i++ {
		want[fmt.Sprint(i)] = 1
	}
	t.equal("how often each message came", want, counts)
}

func startCases() []transportCase {
	return []transportCase{
		{"a cluster starts, and everybody can be dialled", func(t *transportTest) {
			c := t.twoGroups()
			for _, addr := range c.NameServerAddrs() {
				if _, err := netip.ParseAddrPort(addr); err != nil {
					t.Errorf("name server at %q", addr)
				}
			}
			for i := range 2 {
				live := c.NameServer(i).Status().Brokers
				t.equal("live brokers", 2, len(live))
				for _, b := range live {
					t.equal("the address of "+b.Name, c.Broker(b.Name, 0).Addr(), b.Addr)
				}
			}
			route, err := c.Admin().Route(t.Context(), "T")
			t.ok(err, "route")
			t.equal("brokers in the route", 2, len(route.Brokers))
			for _, b := range route.Brokers {
				t.equal("addresses of "+b.BrokerName, map[int64]string{0: c.Broker(b.BrokerName, 0).Addr()}, b.Addrs)
			}
			t.ok(c.AddNameServer(t.Context()), "one more name server")
			t.ok(c.AddGroup(t.Context(), pocketmq.BrokerGroup{Name: "broker-c"}), "one more group")
			t.equal("live brokers at the new name server", 3, len(c.NameServer(2).Status().Brokers))
		}},
		{"an advertised address is in routes and messages", func(t *transportTest) {
			// An address that nobody can dial: what the broker says of itself is all.
			ns := &pocketmq.NameServerConfig{Name: "ns-0", Transport: t.Transport}
			names, err := pocketmq.NewNameServer(*ns)
			t.ok(err, "name server")
			t.ok(names.Start(t.Context()), "start of the name server")
			b, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
				Name: "broker-a", AdvertiseAddr: "192.0.2.7", Dir: t.TempDir(), NameServers: []string{names.Addr()}, Transport: t.Transport, Topics: map[string]int{"T": 1},
			})
			t.ok(err, "broker")
			t.ok(b.Start(t.Context()), "start of the broker")
			at, err := netip.ParseAddrPort(b.Addr())
			if err != nil || at.Addr().String() != "192.0.2.7" || at.Port() == 0 {
				t.Errorf("the broker's address is %q", b.Addr())
			}
			live := names.Status().Brokers
			if len(live) != 1 || live[0].Addr != b.Addr() {
				t.Errorf("registered is %+v, the address is %s", live, b.Addr())
			}
			t.ok(errors.Join(b.Close(), names.Close()), "close")
		}},
		{"two clients of a group with one name are one too many", func(t *transportTest) {
			c := t.cluster(pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
			var in inbox
			cfg := pocketmq.ConsumerConfig{Group: "G", InstanceName: "one", Subscriptions: map[string]pocketmq.Filter{"T": {}}, Handler: in.handler("c")}
			first := t.consumer(c, cfg)
			_, err := c.StartConsumer(t.Context(), cfg)
			t.is(err, "a second consumer", pocketmq.ErrDuplicateClient)
			t.ok(first.Close(), "close")
			t.consumer(c, cfg)
		}},
		{"a cluster closes at once, whatever is held", func(t *transportTest) {
			c := t.twoGroups()
			var in inbox
			for i := range 4 {
				t.consumer(c, pocketmq.ConsumerConfig{Group: fmt.Sprintf("G%d", i), Handler: in.handler("c")})
			}
			for i := range 4 {
				t.group(c, fmt.Sprintf("G%d", i), "the consumer pulls", shared(1, 4))
			}
			closed := beside(func() (time.Duration, error) { start := time.Now(); err := c.Close(); return time.Since(start), err })
			r := await(t, closed, "the end of Close")
			t.ok(r.err, "close")
			if r.v > 5*time.Second {
				t.Errorf("Close took %v", r.v)
			}
		}},
		{"a cluster on a folder is there again", func(t *transportTest) {
			cfg := pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 2}}
			c := t.cluster(cfg)
			addr, names := c.Broker("broker-a", 0).Addr(), c.NameServerAddrs()
			t.send(t.producer(c, pocketmq.ProducerConfig{}), 0, 10)
			t.ok(c.Close(), "close")
			c = t.cluster(cfg)
			t.equal("the broker's address, over the same transport", addr, c.Broker("broker-a", 0).Addr())
			t.equal("the name servers' addresses", names, c.NameServerAddrs())
			var in inbox
			t.consumer(c, pocketmq.ConsumerConfig{Group: "G", From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
			in.bodies(t, 0, 10)
		}},
	}
}
