package interop_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestUnknownTopicIsCreatedByTheFirstSend(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	p := rmqtest.Producer(t, c, producer.WithDefaultTopicQueueNums(3))
	const n = 50
	sendSync(t, p, "new", n, nil)
	_, err := p.SendSync(t.Context(), primitive.NewMessage("new-batch", []byte("1")), primitive.NewMessage("new-batch", []byte("2")))
	require.NoError(t, err)
	// The official client says 4 for a single message, whatever its option says.
	for topic, queues := range map[string]int{"new": 4, "new-batch": 3} {
		route, err := c.Admin().Route(t.Context(), topic)
		require.NoError(t, err)
		require.Len(t, route.Queues, 1)
		assert.Equal(t, queues, route.Queues[0].WriteQueues, topic)
	}
	box, batched := consume(t, c, "new", everything), consume(t, c, "new-batch", everything)
	box.wait(t, n)
	batched.wait(t, 2)
	report(t, "producer/unknown topic", n+2, box.distinct()+batched.distinct(), "created by the first send")
}

func TestUnknownTopicIsAnErrorWhereBrokersCreateNone(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{DisableAutoCreateTopic: true}}}})
	p := rmqtest.Producer(t, c)
	_, err := p.SendSync(t.Context(), primitive.NewMessage("unknown", []byte("x")))
	require.Error(t, err)
	topics, err := c.Admin().Topics(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, topics, "unknown")

	topic := rmqtest.Topic(t, c, 4) // the same producer sends to topics that exist
	sendSync(t, p, topic, 1, nil)
	done("producer/unknown topic", "an error where brokers create none")
}

// TestRetryOnAnotherBroker: a broker refuses, another one is killed, and comes
// back. What was acknowledged is there, once.
func TestRetryOnAnotherBroker(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	topic := rmqtest.Topic(t, c, 4)
	p := rmqtest.Producer(t, c, producer.WithRetry(2))
	const n = 60
	acked := make(map[string]bool)
	send := func(what string) (brokers map[string]int) {
		brokers = make(map[string]int)
		for _, r := range sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.Body = fmt.Append(nil, what, i) }) {
			acked[r.MsgID] = true
			brokers[r.MessageQueue.BrokerName]++
		}
		return brokers
	}

	refusal := c.Inject(pocketmq.Fault{
		Code: protocol.CodeSendMessage, Node: "broker-a/0", Times: 5,
		Err: &protocol.Error{Code: protocol.ServiceNotAvailable, Remark: "not now"},
	})
	assert.Len(t, send("refused "), 2)
	require.NoError(t, refusal.Wait(t.Context(), 5))

	require.NoError(t, c.Kill("broker-a", 0))
	assert.Equal(t, map[string]int{"broker-b": n}, send("killed "))

	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	// The official client may have asked for routes, which it does every 30 s and cannot be
	// told to, while the broker was away.
	for round := 0; len(send(fmt.Sprintf("back %d ", round))) < 2; round++ {
		require.Less(t, round, 80, "the broker is in the routes again")
		time.Sleep(500 * time.Millisecond)
	}

	box := consume(t, c, topic, everything)
	report(t, "producer/retry", len(acked), box.waitFor(acked), "5 refused by a broker, one broker killed and restarted")
}

// TestProducersWhileABrokerCrashes: four producers go on sending while one of two
// brokers is killed and comes back. What was acknowledged is there.
func TestProducersWhileABrokerCrashes(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Groups: []pocketmq.BrokerGroup{{Name: "broker-a"}, {Name: "broker-b"}}})
	topic := rmqtest.Topic(t, c, 4)
	var mu sync.Mutex // guards the two below
	acked, failed := make(map[string]bool), 0
	var senders sync.WaitGroup
	stop := make(chan struct{})
	for s := range 4 {
		p := rmqtest.Producer(t, c, producer.WithRetry(2), producer.WithSendMsgTimeout(500*time.Millisecond))
		senders.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				r, err := p.SendSync(t.Context(), primitive.NewMessage(topic, fmt.Append(nil, s, "/", i)))
				mu.Lock()
				if err != nil || r.Status != primitive.SendOK {
					failed++
				} else {
					acked[r.MsgID] = true
				}
				mu.Unlock()
			}
		})
	}
	some := c.Inject(pocketmq.Fault{Code: protocol.CodeSendMessage}) // counts only
	more := func() { require.NoError(t, some.Wait(t.Context(), some.Hits()+100)) }
	for range 3 {
		more()
		require.NoError(t, c.Kill("broker-a", 0))
		more()
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	}
	more()
	close(stop)
	senders.Wait()
	box := consume(t, c, topic, everything)
	report(t, "producer/crash", len(acked), box.waitFor(acked), fmt.Sprintf("%d sends failed at their producer, 3 crashes", failed))
}

// TestOneNameServerOfThreeIsEnough: the client goes round its name servers.
func TestOneNameServerOfThreeIsEnough(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{NameServers: 3})
	p := rmqtest.Producer(t, c)
	first := rmqtest.Topic(t, c, 4)
	sent := len(sendSync(t, p, first, 20, nil))
	box := consume(t, c, first, everything)
	box.wait(t, sent)
	require.NoError(t, c.KillNameServer(0))
	second := rmqtest.Topic(t, c, 4)
	sent += len(sendSync(t, p, second, 20, nil))
	require.NoError(t, c.KillNameServer(2))
	third := rmqtest.Topic(t, c, 4)
	sent += len(sendSync(t, p, third, 20, nil))
	boxes := consume(t, c, second, everything).wait(t, 20)
	boxes = append(boxes, consume(t, c, third, everything).wait(t, 20)...)
	report(t, "producer/name servers", sent, box.distinct()+len(byID(boxes)), "2 of 3 name servers killed")
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	require.NoError(t, l.Close())
	c := start(t, pocketmq.ClusterConfig{Transport: pocketmq.TCP("::1")})
	topic := rmqtest.Topic(t, c, 2)
	box := consume(t, c, topic, everything)
	const n = 20
	sent := sendSync(t, rmqtest.Producer(t, c), topic, n, nil)
	box.wait(t, n)
	m, err := c.Admin().MessageByID(t.Context(), sent[3].OffsetMsgID)
	require.NoError(t, err)
	assert.Equal(t, sent[3].MsgID, m.MsgID)
	report(t, "producer/ipv6", n, box.distinct())
}
