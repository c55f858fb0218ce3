package store_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/store"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(store.Config{Dir: dir + "/broker-a", Cluster: "c", Broker: "broker-a", Throwaway: true})
	if err != nil {
		log.Fatal(err)
	}

	b := s.NewBatch()
	for _, body := range []string{"one", "two"} {
		if err := b.Add(&message.Record{Topic: "orders", QueueID: 3, Body: []byte(body)}); err != nil {
			log.Fatal(err)
		}
	}
	a, err := s.Append(context.Background(), b, store.AppendOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("offset", a.QueueOffset, "position", a.Position)

	res, err := s.Get(store.GetRequest{Topic: "orders", QueueID: 3, Offset: 0, MaxMessages: 32})
	if err != nil {
		log.Fatal(err)
	}
	for _, rec := range res.Records {
		v := message.View(rec)
		fmt.Printf("%d: %s\n", v.QueueOffset(), v.Body())
	}
	fmt.Println(res.Status, "next", res.Next)

	if err := s.Discard(); err != nil {
		log.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		log.Fatal(err)
	}
	// Output:
	// offset 0 position 1
	// 0: one
	// 1: two
	// FOUND next 2
}
