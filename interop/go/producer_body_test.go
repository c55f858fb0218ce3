package interop_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
)

// TestCompressedBodies: what the official client compresses both kinds of
// consumers inflate, and what ours compresses the official one does.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	const n, size = 50, 20_000
	body := func(i int) []byte { return []byte(strings.Repeat(fmt.Sprint("line ", i, "\n"), size)[:size]) }
	senders := map[string]func(topic string){
		"by official": func(topic string) {
			p := rmqtest.Producer(t, c, producer.WithCompressMsgBodyOverHowmuch(100), producer.WithCompressLevel(9))
			sendSync(t, p, topic, n, func(i int, m *primitive.Message) { m.Body = body(i) })
		},
		"by ours": func(topic string) {
			p, err := c.StartProducer(t.Context(), pocketmq.ProducerConfig{CompressOver: 100})
			require.NoError(t, err)
			for i := range n {
				_, err := p.Send(t.Context(), &pocketmq.Message{Topic: topic, Body: body(i)})
				require.NoError(t, err)
			}
		},
	}
	for name, send := range senders {
		topic := rmqtest.Topic(t, c, 4)
		box, ours := consume(t, c, topic, everything), consumeOurs(t, c, topic, pocketmq.Filter{})
		send(topic)
		for reader, got := range map[string][]received{"official": box.wait(t, n), "ours": ours.wait(t, n)} {
			bodies := make(map[string]bool)
			for _, m := range got {
				bodies[m.body] = true
				assert.Less(t, m.storeSize, size/10, "%s %s: stored compressed", name, reader)
			}
			for i := range n {
				assert.True(t, bodies[string(body(i))], "%s %s: body %d", name, reader, i)
			}
		}
		report(t, "producer/compressed "+name, n, box.distinct(), "ours consumed "+fmt.Sprint(ours.distinct()))
	}
}

func TestLargeBodies(t *testing.T) {
	t.Parallel()
	c := start(t, pocketmq.ClusterConfig{})
	topic := rmqtest.Topic(t, c, 2)
	box, ours := consume(t, c, topic, everything), consumeOurs(t, c, topic, pocketmq.Filter{})
	p := rmqtest.Producer(t, c, producer.WithCompressMsgBodyOverHowmuch(64<<20), producer.WithRetry(0))
	noise := make([]byte, 17<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(noise) // never fails
	const limit = 4 << 20
	sizes := []int{1, 1 << 20, 3 << 20, limit - 1, limit}
	sendSync(t, p, topic, len(sizes), func(i int, m *primitive.Message) { m.Body = noise[:sizes[i]] })
	for name, got := range map[string][]received{"official": box.wait(t, len(sizes)), "ours": ours.wait(t, len(sizes))} {
		for _, m := range got {
			assert.True(t, bytes.Equal(noise[:len(m.body)], []byte(m.body)), "%s: body of %d bytes", name, len(m.body))
			assert.Contains(t, sizes, len(m.body), name)
		}
	}
	report(t, "producer/large bodies", len(sizes), box.distinct(), "up to 4 MiB")

	// Too large for the broker: it says so, and stores nothing.
	_, err := p.SendSync(t.Context(), primitive.NewMessage(topic, noise[:limit+1]))
	require.ErrorContains(t, err, "CODE: 13")
	require.ErrorContains(t, err, fmt.Sprint(limit))
	// Too large for a frame: the connection goes.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = p.SendSync(ctx, primitive.NewMessage(topic, noise))
	require.Error(t, err)
	// Both are forgotten.
	again := rmqtest.Producer(t, c)
	sendSync(t, again, topic, 1, nil)
	box.wait(t, len(sizes)+1)
	assert.Equal(t, len(sizes)+1, len(box.all()))
	done("producer/too large bodies", "refused, the next send goes through")
}
