// Layouts starts the ways in which RocketMQ clusters are laid out, one after the other,
// and prints for each who is what, where a topic lies, and what becomes of sends and
// reads when a master is gone.
//
//	go run ./examples/layouts
//	go run ./examples/layouts 2m-2s-sync
//
// It exits with 1 if something did not happen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/pocketmq/pocketmq"
)

const topic = "orders"

// layout is a way to lay out a cluster.
type layout struct {
	name, about string
	groups      []pocketmq.BrokerGroup

	answered string // what an answer to a send rests on
	without  string // what becomes of sends to a group without its master
	elects   bool
}

// layouts are RocketMQ's: conf/2m-2s-async, conf/2m-2s-sync, and one group that elects.
func layouts() []layout {
	group := func(name string, slaves int, cfg pocketmq.BrokerConfig) pocketmq.BrokerGroup {
		return pocketmq.BrokerGroup{Name: name, Slaves: slaves, Config: cfg}
	}
	sync := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}
	electing := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, Failover: true}
	return []layout{
		{
			name: "2m-2s-async", about: "two masters, each with a slave that copies behind it",
			groups:   []pocketmq.BrokerGroup{group("broker-a", 1, pocketmq.BrokerConfig{}), group("broker-b", 1, pocketmq.BrokerConfig{})},
			answered: "the master has it", without: "go to the other group",
		},
		{
			name: "2m-2s-sync", about: "two masters, each with a slave that is waited for",
			groups:   []pocketmq.BrokerGroup{group("broker-a", 1, sync), group("broker-b", 1, sync)},
			answered: "the master and a slave have it", without: "go to the other group",
		},
		{
			name: "1m-2s-failover", about: "one master and two slaves, of which one takes its place",
			groups:   []pocketmq.BrokerGroup{group("broker-a", 2, electing)},
			answered: "all that are in sync have it, two at least", without: "fail until another one is elected", elects: true,
		},
	}
}

func main() {
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "Layouts starts the ways in which clusters are laid out, and shows what becomes of\nsends and reads when a master is gone.\n\nUsage: go run ./examples/layouts [name ...]\n\n")
		for _, l := range layouts() {
			fmt.Fprintf(flag.CommandLine.Output(), "  %-16s %s\n", l.name, l.about)
		}
	}
	flag.Parse()
	if err := run(context.Background(), flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "layouts:", err)
		os.Exit(1)
	}
}

// run shows those layouts that are named, or all.
func run(ctx context.Context, names []string, w io.Writer) error {
	for _, name := range names {
		if !slices.ContainsFunc(layouts(), func(l layout) bool { return l.name == name }) {
			return fmt.Errorf("no layout is named %s: there are 2m-2s-async, 2m-2s-sync, 1m-2s-failover", name)
		}
	}
	for _, l := range layouts() {
		if len(names) > 0 && !slices.Contains(names, l.name) {
			continue
		}
		if err := l.show(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// show starts a layout and looks at it.
func (l layout) show(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	news := make(chan struct{}, 1) // something has happened
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Groups: l.groups, Topics: map[string]int{topic: 4}, Timings: pocketmq.DefaultTimings().Scaled(0.1),
		OnEvent: func(pocketmq.Event) {
			select {
			case news <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return err
	}
	defer c.Close() // a second Close, as after the one below, does nothing
	fmt.Fprintf(w, "%s: %s\n", l.name, l.about)
	fmt.Fprintf(w, "  a send is answered when %s\n", l.answered)

	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	for _, g := range l.groups {
		for i := range 8 {
			if _, err := p.SendTo(ctx, pocketmq.MessageQueue{Topic: topic, BrokerName: g.Name, QueueID: i % 4}, message(i)); err != nil {
				return err
			}
		}
	}
	if err := await(ctx, news, func() bool { return l.caughtUp(c) }); err != nil {
		return fmt.Errorf("the slaves do not have everything: %w", err)
	}
	if err := l.print(ctx, w, c); err != nil {
		return err
	}
	if err := l.withoutMaster(ctx, w, c, p); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return c.Close()
}

func message(i int) *pocketmq.Message {
	return &pocketmq.Message{Topic: topic, Body: fmt.Appendf(nil, "order %d", i)}
}

// await returns once done says so; it asks after every event, and every 10 ms, since not
// everything is one.
func await(ctx context.Context, news <-chan struct{}, done func() bool) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-news:
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// master returns who takes messages for a group.
func master(c *pocketmq.Cluster, group string) *pocketmq.Broker {
	for b := range c.Brokers() {
		if st := b.Status(); b.Name() == group && st.Role == pocketmq.RoleMaster && st.Writable {
			return b
		}
	}
	return nil
}

// caughtUp tells whether everybody has what his master has.
func (l layout) caughtUp(c *pocketmq.Cluster) bool {
	for _, g := range l.groups {
		m := master(c, g.Name)
		if m == nil {
			return false
		}
		st := m.Status()
		if len(st.Slaves) != g.Slaves || slices.ContainsFunc(st.Slaves, func(s pocketmq.SlaveStatus) bool { return s.Acked != st.WrittenPosition }) {
			return false
		}
	}
	return true
}

// print prints roles and routes.
func (l layout) print(ctx context.Context, w io.Writer, c *pocketmq.Cluster) error {
	for b := range c.Brokers() {
		st := b.Status()
		fmt.Fprintf(w, "  %s/%d  %-6s  %d messages", b.Name(), b.ID(), st.Role, st.WrittenPosition)
		for _, s := range st.Slaves {
			fmt.Fprintf(w, "; slave %d has %d", s.ID, s.Acked)
		}
		fmt.Fprintln(w)
	}
	route, err := c.Admin().Route(ctx, topic)
	if err != nil {
		return err
	}
	for i, q := range route.Queues {
		fmt.Fprintf(w, "  route of %s: %d queues on %s, members %v\n", topic, q.WriteQueues, q.BrokerName, ids(route.Brokers[i]))
	}
	return nil
}

func ids(b pocketmq.BrokerData) (list []int64) {
	for id := range b.Addrs {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// withoutMaster kills the master of the first group, sends, and reads what that group
// had.
func (l layout) withoutMaster(ctx context.Context, w io.Writer, c *pocketmq.Cluster, p *pocketmq.Producer) error {
	group := l.groups[0].Name
	old := master(c, group).ID()
	if err := c.Kill(group, old); err != nil {
		return err
	}
	result, err := p.Send(ctx, message(8))
	for err != nil && l.elects { // the group refuses until it has
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
		result, err = p.Send(ctx, message(8))
	}
	if err != nil {
		return fmt.Errorf("a send without the master of %s: %w", group, err)
	}
	fmt.Fprintf(w, "  without %s/%d sends %s: the next one went to %s", group, old, l.without, result.Queue.BrokerName)
	if l.elects {
		m := master(c, group)
		if m == nil || m.ID() == old {
			return fmt.Errorf("%s has elected nobody", group)
		}
		fmt.Fprintf(w, ", epoch %d", m.Epoch())
	}
	fmt.Fprintln(w)

	reader, err := c.StartPullConsumer(ctx, pocketmq.PullConsumerConfig{Group: "audit"})
	if err != nil {
		return err
	}
	n := 0
	for id := range 4 {
		got, err := reader.Pull(ctx, pocketmq.MessageQueue{Topic: topic, BrokerName: group, QueueID: id}, 0, 32)
		if err != nil {
			return err
		}
		n += len(got.Messages)
	}
	if n < 8 {
		return fmt.Errorf("%d of 8 messages of %s can be read", n, group)
	}
	fmt.Fprintf(w, "  what %s had is read all the same\n", group)
	return nil
}
