// Quickstart is a shop with a message queue: a name server, two brokers that
// write to disk, a producer, and a group of consumers, all in this process.
//
//	go run ./examples/quickstart
//
// It sends what happened to some orders, shares the work among two consumers
// and then three, and kills a broker in the middle of it. At the end it counts:
// nothing that was acknowledged may be lost. It exits with 1 if something was.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pocketmq/pocketmq"
)

// One line per thing that happened to an order, in the order of time:
// order,step,customer,item,pieces,total.
//
//go:embed orders.csv
var ordersCSV string

const topic = "orders"

func main() {
	// Everything here takes about two seconds. Half a minute means that
	// something hangs.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	_, rest, _ := strings.Cut(strings.TrimSpace(ordersCSV), "\n") // without the head line
	lines := strings.Split(rest, "\n")

	// A cluster with a Dir is still there when it is started again. Without one
	// it would be a throwaway.
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	// What happens in the cluster is reported as events: this program waits for
	// them where others would sleep.
	events := make(chan pocketmq.Event, 1000)
	cluster, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Dir:     dir,
		Groups:  []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}},
		Topics:  map[string]int{topic: 4}, // queues on each group: 8 in all
		OnEvent: func(e pocketmq.Event) { events <- e },
		// RocketMQ's intervals, but for those that a crash makes one wait for.
		Timings: pocketmq.Timings{
			PullErrorDelay: 100 * time.Millisecond, // a consumer asks a broker that is gone again; 3 s by default
			RouteRefresh:   100 * time.Millisecond, // clients learn what has come and gone; 30 s
			OffsetPersist:  100 * time.Millisecond, // how far the group has come is saved; 5 s
		},
	})
	if err != nil {
		return err
	}
	defer cluster.Close() // a second Close, as after the one below, does nothing
	fmt.Printf("1. A cluster runs: 1 name server, 2 brokers, topic %q with 4 queues on each broker.\n", topic)

	book := newBook()
	team := &team{cluster: cluster, book: book}
	for _, name := range []string{"anna", "bert"} {
		if err := team.hire(ctx, name); err != nil {
			return err
		}
	}
	if err := team.settle(ctx, events); err != nil {
		return err
	}
	before := team.queues()
	fmt.Println("2. Two consumers of one group share the 8 queues: each message goes to one of them.")

	producer, err := cluster.StartProducer(ctx, pocketmq.ProducerConfig{Group: "shop", SendTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	half := len(lines) / 2
	if err := send(ctx, producer, book, lines[:half], nil); err != nil {
		return err
	}
	fmt.Printf("3. Half of %d messages is sent, each with its order's id as sharding key:\n", len(lines))
	fmt.Println("   all that happens to one order goes to one queue, as long as the queues stay the same.")

	if err := team.hire(ctx, "carla"); err != nil {
		return err
	}
	if err := team.settle(ctx, events); err != nil {
		return err
	}
	fmt.Println("4. A third consumer joins, and the group shares the queues anew:")
	fmt.Println()
	printShares(before, team.queues())

	sending := make(chan error, 1)
	underway := make(chan struct{})
	go func() { sending <- send(ctx, producer, book, lines[half:], underway) }()
	<-underway
	if err := cluster.Kill("broker-b", 0); err != nil {
		return err
	}
	err = await(ctx, events, func(e pocketmq.Event) bool {
		expired, ok := e.(pocketmq.BrokerExpired)
		return ok && expired.Broker == "broker-b"
	})
	if err != nil {
		return err
	}
	fmt.Println("5. broker-b is killed while sending goes on. The name server has noticed.")
	if err := cluster.Restart(ctx, "broker-b", 0); err != nil {
		return err
	}
	fmt.Println("6. broker-b is back, with everything it had acknowledged. Senders and consumers try again.")

	if err := <-sending; err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	book.wait(patience)
	for broker := range cluster.Brokers() {
		if err := broker.Check(ctx); err != nil {
			return err
		}
	}
	if err := cluster.Close(); err != nil {
		return err
	}
	fmt.Println("7. Sending and consuming have ended, the brokers' files are checked, the cluster is closed.")
	fmt.Println()
	return book.settle(len(lines))
}

// send sends lines, one after the other: a line that follows another of the
// same order must not overtake it. It closes underway, unless nil, when it has
// begun.
func send(ctx context.Context, p *pocketmq.Producer, book *book, lines []string, underway chan struct{}) error {
	pace := time.NewTicker(2 * time.Millisecond) // a busy shop
	defer pace.Stop()
	for i, line := range lines {
		<-pace.C
		order, _, _ := strings.Cut(line, ",")
		result, err := p.Send(ctx, &pocketmq.Message{
			Topic:       topic,
			Keys:        []string{order},
			ShardingKey: order,
			Body:        []byte(line),
		})
		// The producer tries again by itself. What it gives up on may be stored
		// or not; here it is left to the shop, and not counted as acknowledged.
		if err != nil {
			fmt.Printf("   not acknowledged: %s: %v\n", order, err)
		} else {
			book.acknowledge(result.MsgID)
		}
		if underway != nil && i == len(lines)/4 {
			close(underway)
		}
	}
	return ctx.Err()
}

// team is the consumer group.
type team struct {
	cluster *pocketmq.Cluster
	book    *book
	members []member
}

type member struct {
	name     string
	consumer *pocketmq.Consumer
}

// hire starts another consumer of the group.
func (t *team) hire(ctx context.Context, name string) error {
	consumer, err := t.cluster.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group:         "billing",
		InstanceName:  name,
		Subscriptions: map[string]pocketmq.Filter{topic: {}}, // everything
		Handler: func(_ context.Context, messages []*pocketmq.MessageExt) error {
			for _, m := range messages {
				t.book.consume(m.MsgID)
			}
			return nil // consumed; an error would mean: again later
		},
	})
	if err != nil {
		return err
	}
	t.members = append(t.members, member{name, consumer})
	return nil
}

// settle waits until every queue is held by one member, and every member holds
// its share: 8 queues for 3 are 3, 3 and 2.
func (t *team) settle(ctx context.Context, events <-chan pocketmq.Event) error {
	settled := func() bool {
		holders := make(map[pocketmq.MessageQueue]int)
		for _, m := range t.members {
			queues := m.consumer.Assignment()
			if n := len(t.members); len(queues) < 8/n || len(queues) > (8+n-1)/n {
				return false
			}
			for _, q := range queues {
				holders[q]++
			}
		}
		for _, n := range holders {
			if n != 1 {
				return false
			}
		}
		return len(holders) == 8
	}
	if settled() {
		return nil
	}
	return await(ctx, events, func(e pocketmq.Event) bool {
		_, ok := e.(pocketmq.Rebalanced)
		return ok && settled()
	})
}

// queues tells what each member holds: "broker-a 0 1 2  broker-b 0".
func (t *team) queues() map[string]string {
	out := make(map[string]string)
	for _, m := range t.members {
		text, broker := "", ""
		for _, q := range m.consumer.Assignment() { // sorted
			if q.BrokerName != broker {
				broker = q.BrokerName
				text += "  " + broker
			}
			text += fmt.Sprintf(" %d", q.QueueID)
		}
		out[m.name] = strings.TrimSpace(text)
	}
	return out
}

func printShares(before, after map[string]string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 4, ' ', 0)
	fmt.Fprintln(w, "   consumer\tqueues before\tqueues after")
	for _, name := range []string{"anna", "bert", "carla"} {
		held, ok := before[name]
		if !ok {
			held = "-"
		}
		fmt.Fprintf(w, "   %s\t%s\t%s\n", name, held, after[name])
	}
	w.Flush()
	fmt.Println()
}

// await reads events until one is what we wait for.
func await(ctx context.Context, events <-chan pocketmq.Event, wanted func(pocketmq.Event) bool) error {
	for {
		select {
		case e := <-events:
			if wanted(e) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
