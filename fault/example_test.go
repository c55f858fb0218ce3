package fault_test

import (
	"fmt"
	"time"

	"github.com/pocketmq/pocketmq/fault"
	"github.com/pocketmq/pocketmq/message"
)

// A broker that was slow gets nothing for a while, and then its share again.
func ExampleTracker() {
	queues := []message.Queue{
		{Topic: "orders", BrokerName: "broker-a"},
		{Topic: "orders", BrokerName: "broker-b"},
	}
	table, next := fault.NewTracker(fault.V5()), fault.NewCounter(0)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	table.Report("broker-a", 600*time.Millisecond, false, true, now)
	for _, item := range table.Items() {
		fmt.Println(item.Broker, "took", item.Latency, "and is avoided until", item.AvailableFrom.Format(time.TimeOnly))
	}
	for range 3 {
		q, _ := table.Select(queues, "", next, now)
		fmt.Println(now.Format(time.TimeOnly), q.BrokerName)
		now = now.Add(time.Second)
	}
	// Output:
	// broker-a took 600ms and is avoided until 12:00:02
	// 12:00:00 broker-b
	// 12:00:01 broker-b
	// 12:00:02 broker-a
}
