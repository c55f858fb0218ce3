package interop_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestProducerTLS: official clients with and without TLS share one port, and one
// process, and a consumer of ours gets what either sends.
func TestProducerTLS(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 4)
	boxes := map[string]*inbox{
		"with TLS":    consume(t, c, topic, everything, consumer.WithTls(true), consumer.WithGroupName("tls")),
		"without TLS": consume(t, c, topic, everything),
		"ours":        consumeOurs(t, c, topic, pocketmq.Filter{}),
	}
	const n = 50
	sendSync(t, rmqtest.Producer(t, c, producer.WithTls(true)), topic, n, nil)
	sendSync(t, rmqtest.Producer(t, c), topic, n, nil)
	for name, box := range boxes {
		assert.Len(t, byID(box.wait(t, 2*n)), 2*n, name)
	}
	list, err := rmqtest.Admin(t, c, admin.WithTls(true)).FetchAllTopicList(t.Context())
	require.NoError(t, err)
	assert.Contains(t, list.TopicList, topic)
	report(t, "producer/tls", 2*n, boxes["with TLS"].distinct(), fmt.Sprintf("half of them without TLS, to the same port, ours consumed %d", boxes["ours"].distinct()))
}

// TestTLSEnforced: a cluster that talks TLS only has no use for other clients.
func TestTLSEnforced(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{Transport: pocketmq.TCPWith(pocketmq.TCPConfig{Host: "127.0.0.1", TLS: pocketmq.TLSEnforcing})})
	topic := rmqtest.Topic(t, c, 4)
	box := consume(t, c, topic, everything, consumer.WithTls(true))
	const n = 20
	sendSync(t, rmqtest.Producer(t, c, producer.WithTls(true)), topic, n, nil)
	box.wait(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := rmqtest.Producer(t, c, producer.WithRetry(0)).SendSync(ctx, primitive.NewMessage(topic, []byte("in clear")))
	require.Error(t, err)
	assert.Len(t, box.all(), n)
	report(t, "producer/tls enforced", n, box.distinct(), "a client without TLS is refused")
}
