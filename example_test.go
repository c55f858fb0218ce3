package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/mqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

// A whole cluster in a few lines: a name server, two broker groups, a topic.
func ExampleCluster() {
	ctx := context.Background()
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}},
		Topics: map[string]int{"orders": 2},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	route, err := c.Admin().Route(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for _, q := range route.Queues {
		fmt.Println(q.BrokerName, "has", q.WriteQueues, "queues")
	}
	// Output:
	// broker-a has 2 queues
	// broker-b has 2 queues
}

// With a folder, what was acknowledged outlives the cluster, and the crash of a
// broker.
func ExampleCluster_Kill() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("survives")}); err != nil {
		log.Fatal(err)
	}

	if err := c.Kill("broker-a", 0); err != nil {
		log.Fatal(err)
	}
	_, err = p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("refused")})
	fmt.Println("unreachable:", errors.Is(err, pocketmq.ErrUnreachable))
	if err := c.Restart(ctx, "broker-a", 0); err != nil {
		log.Fatal(err)
	}

	got := make(chan string, 1)
	_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group: "billing", Subscriptions: map[string]pocketmq.Filter{"orders": {}}, From: pocketmq.FromFirstOffset,
		Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			got <- string(msgs[0].Body)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-got)
	// Output:
	// unreachable: true
	// survives
}

// exampleCluster is a cluster with one queue of "orders".
func exampleCluster() *pocketmq.Cluster {
	c, err := pocketmq.StartCluster(context.Background(), pocketmq.ClusterConfig{Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func ExampleProducer() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{Group: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	res, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Tag: "paid", Keys: []string{"4711"}, Body: []byte("1 x tea")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, res.Queue, res.QueueOffset)
	// Output: SEND_OK orders@broker-a:0 0
}

func ExampleProducer_SendAsync() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan *pocketmq.SendResult)
	err = p.SendAsync(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}, func(res *pocketmq.SendResult, err error) {
		if err != nil {
			log.Print(err)
		}
		done <- res
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println((<-done).Status)
	// Output: SEND_OK
}

// The messages of a batch lie in one queue, without a gap and in their order.
func ExampleProducer_SendBatch() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	res, err := p.SendBatch(ctx, []*pocketmq.Message{
		{Topic: "orders", Body: []byte("1 x tea")},
		{Topic: "orders", Body: []byte("2 x rusk")},
		{Topic: "orders", Body: []byte("1 x jam")},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(res.MsgIDs), "messages from offset", res.QueueOffset)
	// Output: 3 messages from offset 0
}

// A selector chooses among the topic's queues, which are the same, in the same
// order, for every producer.
func ExampleProducer_SendSelect() {
	ctx := context.Background()
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{Topics: map[string]int{"orders": 4}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	customer := 10
	byCustomer := func(_ *pocketmq.Message, queues []pocketmq.MessageQueue) (pocketmq.MessageQueue, error) {
		return queues[customer%len(queues)], nil
	}
	for range 2 {
		res, err := p.SendSelect(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}, byCustomer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Queue, res.QueueOffset)
	}
	// Output:
	// orders@broker-a:2 0
	// orders@broker-a:2 1
}

// The members of a group share the queues of their topics.
func ExampleConsumer() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	got := make(chan *pocketmq.MessageExt)
	consumer, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group:         "billing",
		Subscriptions: map[string]pocketmq.Filter{"orders": {}},
		Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
			got <- msgs[0]
			return nil // consumed; an error means later again
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}); err != nil {
		log.Fatal(err)
	}
	m := <-got
	fmt.Printf("%s from %v at %d\n", m.Body, m.Queue, m.QueueOffset)
	fmt.Println("holds", consumer.Assignment())
	if err := consumer.Shutdown(ctx); err != nil { // lets handlers end, commits
		log.Fatal(err)
	}
	// Output:
	// 1 x tea from orders@broker-a:0 at 0
	// holds [orders@broker-a:0]
}

func ExampleTags() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	got := make(chan string)
	_, err := c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group:         "shipping",
		Subscriptions: map[string]pocketmq.Filter{"orders": pocketmq.Tags("paid", "gift")},
		Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			got <- msgs[0].Tag
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, tag := range []string{"new", "paid", "cancelled", "gift"} {
		if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Tag: tag, Body: []byte("1 x tea")}); err != nil {
			log.Fatal(err)
		}
	}
	two := []string{<-got, <-got} // handlers run side by side
	slices.Sort(two)
	fmt.Println(two)
	// Output: [gift paid]
}

func ExampleAdmin() {
	ctx := context.Background()
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	admin := c.Admin()
	if err := admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "orders", ReadQueues: 4}); err != nil {
		log.Fatal(err)
	}
	if err := admin.CreateTopic(ctx, pocketmq.TopicConfig{Name: "orders", ReadQueues: 8}); err != nil { // more of them
		log.Fatal(err)
	}
	route, err := admin.Route(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(route.Queues[0].ReadQueues, "queues")
	_, err = admin.Route(ctx, "ordesr")
	fmt.Println(err)
	// Output:
	// 8 queues
	// no route for topic "ordesr": ns-0: not found; did you mean "orders"? Create it with Admin.CreateTopic or ClusterConfig.Topics
}

// Messages are found by the keys that their senders gave them, newest first.
func ExampleAdmin_MessagesByKey() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range []string{"ordered", "paid", "shipped"} {
		m := &pocketmq.Message{Topic: "orders", Keys: []string{"order-4711", "customer-7"}, Body: []byte(step)}
		if _, err := p.Send(ctx, m); err != nil {
			log.Fatal(err)
		}
	}
	found, err := c.Admin().MessagesByKey(ctx, "orders", "order-4711", time.Time{}, time.Time{}, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range found {
		fmt.Printf("%s %v\n", m.Body, m.Keys)
	}
	// Output:
	// shipped [order-4711 customer-7]
	// paid [order-4711 customer-7]
	// ordered [order-4711 customer-7]
}

// A message is found by the id that its producer made, which logs show, and by
// the id of its place, which brokers' tools show.
func ExampleAdmin_MessageByUniqueKey() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	res, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")})
	if err != nil {
		log.Fatal(err)
	}
	m, err := c.Admin().MessageByUniqueKey(ctx, "orders", res.MsgID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s at %v %d\n", m.Body, m.Queue, m.QueueOffset)
	same, err := c.Admin().MessageByID(ctx, res.OffsetMsgID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same:", same.MsgID == m.MsgID)
	_, err = c.Admin().MessageByUniqueKey(ctx, "orders", "no such id")
	fmt.Println("not found:", errors.Is(err, pocketmq.ErrNotFound))
	// Output:
	// 1 x tea at orders@broker-a:0 0
	// the same: true
	// not found: true
}

func ExampleAdmin_TopicStats() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}); err != nil {
			log.Fatal(err)
		}
	}
	stats, err := c.Admin().TopicStats(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for q, s := range stats {
		fmt.Println(q, "holds", s.MinOffset, "to", s.MaxOffset-1)
	}
	// Output: orders@broker-a:0 holds 0 to 2
}

// A new group starts with what was stored from an instant on.
func ExampleFromTime() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	var second time.Time // when the second one was stored
	for _, body := range []string{"first", "second", "third"} {
		res, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte(body)})
		if err != nil {
			log.Fatal(err)
		}
		m, err := c.Admin().MessageByID(ctx, res.OffsetMsgID)
		if err != nil {
			log.Fatal(err)
		}
		if body == "second" {
			second = m.StoreTime
		}
		time.Sleep(2 * time.Millisecond)
	}
	got := make(chan string, 3)
	_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group:         "audit",
		Subscriptions: map[string]pocketmq.Filter{"orders": {}},
		From:          pocketmq.FromTime(second),
		Concurrency:   1,
		Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			got <- string(msgs[0].Body)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-got, <-got)
	// Output: second third
}

// A name server and a broker of one's own, wired by hand: what Cluster does.
func ExampleBroker() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	net := pocketmq.InMemory()

	names, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Transport: net})
	if err != nil {
		log.Fatal(err)
	}
	if err := names.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer names.Close()

	broker, err := pocketmq.NewBroker(pocketmq.BrokerConfig{
		Name: "broker-a", Dir: dir, NameServers: []string{names.Addr()}, Transport: net,
		Topics: map[string]int{"orders": 1}, Flush: pocketmq.SyncFlush,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := broker.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	p, err := pocketmq.NewProducer(pocketmq.ProducerConfig{NameServers: []string{names.Addr()}, Transport: net})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("synced:", broker.Status().SyncedPosition)
	fmt.Println("check:", broker.Check(ctx))
	// Output:
	// synced: 1
	// check: <nil>
}

func ExampleNameServer() {
	ctx := context.Background()
	names, err := pocketmq.NewNameServer(pocketmq.NameServerConfig{Name: "ns-0", Addr: "127.0.0.1:9876", Transport: pocketmq.InMemory()})
	if err != nil {
		log.Fatal(err)
	}
	if err := names.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer names.Close()
	fmt.Println(names.Name(), names.Addr(), len(names.Status().Brokers), "brokers")
	// Output: ns-0 127.0.0.1:9876 0 brokers
}

// Links break and heal on request. Nodes are named by name or address.
func ExampleMemoryNetwork() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	if err != nil {
		log.Fatal(err)
	}
	send := func() error {
		_, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")})
		return err
	}
	c.Network().Cut(p.ClientID(), "broker-a/0")
	fmt.Println("cut:", errors.Is(send(), pocketmq.ErrUnreachable))
	c.Network().Heal(p.ClientID(), "broker-a/0")
	fmt.Println("healed:", send())
	// Output:
	// cut: true
	// healed: <nil>
}

// A Fault acts on the requests that it matches, and counts them.
func ExampleFault() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	busy := c.Inject(pocketmq.Fault{
		Code: protocol.CodeSendMessage, Topic: "orders", Times: 2,
		Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"},
	})
	res, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Status, "after", busy.Hits(), "refusals")
	// Output: SEND_OK after 2 refusals
}

// Every interval of a cluster is in Timings; package mqtest has short ones for
// tests in real time.
func ExampleTimings() {
	t := pocketmq.DefaultTimings()
	fmt.Println(t.Rebalance, t.DelayLevels[2])
	fast := pocketmq.Timings{}.Scaled(0.01)
	fmt.Println(fast.Rebalance, fast.DelayLevels[2])
	fmt.Println(mqtest.Fast().Rebalance)
	fmt.Println(pocketmq.Timings{Rebalance: time.Minute}.Scaled(2).Rebalance)
	// Output:
	// 20s 10s
	// 200ms 100ms
	// 200ms
	// 2m0s
}

// Events tell what happens in a cluster.
func ExamplePullConsumer() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range []string{"tea", "milk", "sugar"} {
		if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte(body)}); err != nil {
			log.Fatal(err)
		}
	}
	co, err := c.StartPullConsumer(ctx, pocketmq.PullConsumerConfig{
		Group: "billing", Subscriptions: map[string]pocketmq.Filter{"orders": {}}, From: pocketmq.FromFirstOffset,
	})
	if err != nil {
		log.Fatal(err)
	}
	for m, err := range co.Messages(ctx) { // asking for the next one finishes this one
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(m.Body))
		if string(m.Body) == "sugar" {
			break
		}
	}
	if err := co.Commit(ctx); err != nil { // the last one too
		log.Fatal(err)
	}

	q := co.Assignment()[0]
	committed, err := co.Committed(ctx, q)
	if err != nil {
		log.Fatal(err)
	}
	res, err := co.Pull(ctx, q, 1, 1) // any place, at any time
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("committed:", committed, "at 1:", string(res.Messages[0].Body))
	// Output:
	// tea
	// milk
	// sugar
	// committed: 3 at 1: milk
}

func ExampleEvent() {
	ctx := context.Background()
	var mu sync.Mutex
	var seen []string
	c, err := pocketmq.StartCluster(ctx, pocketmq.ClusterConfig{
		Topics: map[string]int{"orders": 2},
		OnEvent: func(e pocketmq.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e := e.(type) {
			case pocketmq.BrokerRegistered:
				seen = append(seen, e.Broker+" registered at "+e.Node)
			case pocketmq.MemberJoined:
				seen = append(seen, "a member joined "+e.Group)
			case pocketmq.Rebalanced:
				seen = append(seen, fmt.Sprintf("%s: %d queues before, %d after", e.Topic, len(e.Before), len(e.After)))
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.StartConsumer(ctx, pocketmq.ConsumerConfig{
		Group: "billing", Subscriptions: map[string]pocketmq.Filter{"orders": {}},
		Handler: func(context.Context, []*pocketmq.MessageExt) error { return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Close(); err != nil { // delivers what has happened
		log.Fatal(err)
	}
	for _, s := range seen {
		fmt.Println(s)
	}
	// Output:
	// broker-a registered at ns-0
	// a member joined billing
	// orders: 0 queues before, 2 after
}
