package message_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/pocketmq/pocketmq/message"
)

// A message's way into a stored record and out again.
func Example() {
	m := &message.Message{Topic: "orders", Tag: "created", Keys: []string{"order-1"}, Body: []byte("2 apples")}
	if err := m.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 1, 0, 0, 1, 0, time.UTC)
	ids := message.NewUniqKeys(netip.MustParseAddr("10.0.0.7"), 4711, 1)
	record, err := message.AppendRecord(nil, &message.Record{
		Topic: m.Topic, QueueID: 2, Position: 1, Body: m.Body,
		BornTime: now.UnixMilli(), StoreTime: now.UnixMilli(),
		Properties: string(m.AppendProperties(nil, ids.Next(now))),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	codec := message.NewCodec()
	defer codec.Close()
	got, err := codec.DecodeExt(record, "broker-a", "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Queue, got.MsgID, got.Tag, got.Keys, string(got.Body))
	// Output: orders@broker-a:2 0A000007126700000001000003E80000 created [order-1] 2 apples
}

func ExampleMessage_Validate() {
	m := &message.Message{Topic: "orders", Properties: map[string]string{"TAGS": "created"}}
	fmt.Println(m.Validate())
	// Output: illegal message: property "TAGS" is reserved; use Message.Tag
}

func ExampleBatchItems() {
	body := message.AppendBatch(nil, 0, []byte("one"), "")
	body = message.AppendBatch(body, 0, []byte("two"), message.EncodeProperties(map[string]string{"region": "eu"}))
	for item, err := range message.BatchItems(body) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(item.Body), message.DecodeProperties(string(item.Properties)))
	}
	// Output:
	// one map[]
	// two map[region:eu]
}

func ExampleTagHash() {
	fmt.Println(message.TagHash("TagA"))
	// Output: 2598919
}
