package rmqtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"github.com/pocketmq/pocketmq"
)

// arriveWithin bounds how long Shutdown of a producer waits for the brokers to have
// read what was sent oneway.
const arriveWithin = 3 * time.Second

// Producer starts an official producer for t, which ends with it. opts come
// after those that the package sets (name servers, an instance name), so they
// win. Whatever goes wrong ends the test.
//
// It retries three times unless told otherwise, with producer.WithRetry, and
// creates topics where brokers let it. Close it earlier with its Shutdown, which
// beyond the official one's doing waits, up to 3 s, until the brokers have read
// what was sent oneway.
func Producer(t testing.TB, c *pocketmq.Cluster, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	ready(t, c)
	p := &onewayProducer{t: t, cluster: c}
	var set settings
	all := []producer.Option{
		ownConnections[producer.Option](),
		producer.WithNsResolver(resolver{c}),
		producer.WithInstanceName(instanceName(t)),
	}
	all = append(all, opts...)
	all = append(all, readSettings[producer.Option](&set))
	var err error
	tracing.during(c, func() { p.Producer, err = rocketmq.NewProducer(all...) })
	if err != nil {
		t.Fatalf("rmqtest: make a producer: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Shutdown(); err != nil {
			t.Errorf("rmqtest: shut a producer down: %v", err)
		}
	})
	// Before the producer starts: it reads without a lock what this writes.
	p.asks, err = admin.NewAdmin(ownConnections[admin.AdminOption](), sameClient[admin.AdminOption](&set))
	if err != nil {
		t.Fatalf("rmqtest: make a producer: %v", err)
	}
	if err := p.Start(); err != nil {
		t.Fatalf("rmqtest: start a producer: %v", err)
	}
	return p
}

// onewayProducer is an official producer whose Shutdown loses nothing.
//
// The official one closes its connections as soon as it has handed everything to the
// system. What a broker has not read then is thrown away by the system when answers
// lie unread, and they do: brokers answer oneway sends, which the client does not
// mark. An answer that comes after them on the same connection says that they
// have been read; what was read is done, whatever becomes of the connection.
//
// Consumers need none of this: all they say right before they end are a few commits,
// which fit into what a system takes at once, and is not thrown away.
type onewayProducer struct {
	rocketmq.Producer
	t       testing.TB
	cluster *pocketmq.Cluster
	asks    admin.Admin // of the same client, and so on the same connections; never closed, which would count as an end of the client
	oneway  atomic.Bool // something was sent oneway
	once    sync.Once
	err     error
}

func (p *onewayProducer) SendOneWay(ctx context.Context, msgs ...*primitive.Message) error {
	p.oneway.Store(true)
	return p.Producer.SendOneWay(ctx, msgs...)
}

func (p *onewayProducer) Shutdown() error {
	p.once.Do(func() {
		if p.oneway.Load() {
			p.arrived()
		}
		p.err = p.Producer.Shutdown()
	})
	return p.err
}

// arrived returns when all brokers have read what was sent to them. A broker that
// does not answer has ended, or a fault of the test keeps it from answering: what
// was sent to it is as lost as it would be to any client.
func (p *onewayProducer) arrived() {
	var asked sync.WaitGroup
	for b := range p.cluster.Brokers() {
		asked.Go(func() {
			// Any question will do that changes nothing.
			if _, err := p.asks.GetAllSubscriptionGroup(context.Background(), b.Addr(), arriveWithin); err != nil {
				p.t.Logf("rmqtest: messages that were sent oneway to broker %s may be lost: %v", b.Name(), err)
			}
		})
	}
	asked.Wait()
}
