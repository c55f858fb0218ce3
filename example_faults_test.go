package pocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pocketmq/pocketmq"
)

// A paused broker is a stopped process: its connections stay, and nobody gets an
// answer. What somebody still waits for is served when it goes on.
func ExampleCluster_Pause() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries, SendTimeout: 250 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	send := func() error {
		_, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")})
		return err
	}
	fmt.Println("before:", send())
	if err := c.Pause("broker-a", 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println("no answer:", errors.Is(send(), pocketmq.ErrUnknownOutcome))
	fmt.Println("status:", c.Broker("broker-a", 0).Status().Reason)
	if err := c.Resume("broker-a", 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println("goes on:", send())
	// Output:
	// before: <nil>
	// no answer: true
	// status: paused; Cluster.Resume lets it go on
	// goes on: <nil>
}

// On a slow disk each write takes longer, and so does each send.
func ExampleCluster_SlowDisk() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.SlowDisk("broker-a", 0, 30*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	begin := time.Now()
	if _, err := p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Since(begin) >= 30*time.Millisecond)
	// Output: true
}

// A broker on a full disk refuses sends and serves reads.
func ExampleCluster_FullDisk() {
	ctx := context.Background()
	c := exampleCluster()
	defer c.Close()
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.FullDisk("broker-a", 0, true); err != nil {
		log.Fatal(err)
	}
	_, err = p.Send(ctx, &pocketmq.Message{Topic: "orders", Body: []byte("1 x tea")})
	fmt.Println("refused:", errors.Is(err, pocketmq.ErrDiskFull))
	fmt.Println("writable:", c.Broker("broker-a", 0).Status().Writable)
	// Output:
	// refused: true
	// writable: false
}
