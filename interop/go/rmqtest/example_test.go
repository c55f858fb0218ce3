package rmqtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/mqtest"
)

// A test of a program that uses the official client.
func Example() {
	testBilling := func(t *testing.T) {
		c := mqtest.Run(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("127.0.0.1")})
		topic := rmqtest.Topic(t, c, 4)

		paid := make(chan string, 1)
		co := rmqtest.Consumer(t, c, "billing")
		err := co.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "paid"},
			func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
				paid <- string(msgs[0].Body)
				return consumer.ConsumeSuccess, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		if err := co.Start(); err != nil {
			t.Fatal(err)
		}

		p := rmqtest.Producer(t, c)
		if _, err := p.SendSync(t.Context(), primitive.NewMessage(topic, []byte("order 17")).WithTag("paid")); err != nil {
			t.Fatal(err)
		}
		fmt.Println(<-paid)
	} // consumer, producer and cluster end with the test, in the right order

	runTest("TestBilling", testBilling) // go test does that
	// Output: order 17
}
