package pocketmq_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/remoting"
)

// The benchmarks TCP... measure calls over loopback TCP beside the same calls in
// memory, and beside a raw connection over which the same bytes go (see echo).
//
//	go test -run '^$' -bench TCP .
//
// Rounds of the three alternate; ratios are medians of those of neighbouring
// rounds. tcp/raw is ours over TCP to one write for each request and answer,
// tcp/combined to a raw connection that combines writes as we do, tcp/mem to
// ours in memory. Beside them: bytes each way, writes and reads of both sides
// per call, and allocations of client and broker together.

// lane is one of those that are compared.
type lane struct {
	name string
	run  func() (int, time.Duration)
}

// lanes alternates rounds; the first lane is compared with the others.
func lanes(b *testing.B, all ...lane) {
	b.Helper()
	rates, ratios := make([][]float64, len(all)), make([][]float64, len(all))
	for round := range benchRounds + 1 {
		for i, l := range all {
			n, d := l.run()
			if round > 0 { // the first one makes warm
				rates[i] = append(rates[i], float64(n)/d.Seconds())
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, l := range all {
		b.ReportMetric(median(rates[i]), l.name+"/s")
		for round := range rates[i] {
			ratios[i] = append(ratios[i], rates[0][round]/rates[i][round])
		}
		if i > 0 {
			b.ReportMetric(median(ratios[i]), all[0].name+"/"+l.name)
		}
	}
}

// tcpCluster is benchCluster over TCP.
func tcpCluster(b *testing.B, over pocketmq.Transport) (*pocketmq.Cluster, *pocketmq.Producer) {
	b.Helper()
	return benchClusterOf(b, pocketmq.ClusterConfig{Dir: b.TempDir(), Topics: map[string]int{"T": 4}, Transport: over})
}

// measured is what one call is on the wire.
type measured struct{ request, answer int }

// measure does n calls over connections that are counted and reports what each
// of them costs.
func measure(b *testing.B, t *traffic, n int, calls func()) measured {
	b.Helper()
	t.reset()
	allocs := mallocs(calls)
	per := func(total int64) float64 { return float64(total) / float64(n) }
	m := measured{int(per(t.dialled.out.Load())), int(per(t.dialled.in.Load()))}
	b.ReportMetric(allocs/float64(n), "allocs/call")
	b.ReportMetric(float64(m.request), "B_out/call")
	b.ReportMetric(float64(m.answer), "B_in/call")
	b.ReportMetric(per(t.dialled.writes.Load()+t.accepted.writes.Load()), "writes/call")
	b.ReportMetric(per(t.dialled.reads.Load()+t.accepted.reads.Load()), "reads/call")
	return m
}

func mustSend(b *testing.B, p *pocketmq.Producer, m *pocketmq.Message) {
	if _, err := p.Send(context.Background(), m); err != nil {
		b.Error(err)
	}
}

// One goroutine sends and waits for the acknowledgement: W1 over TCP. The raw
// connection is a round trip on one goroutine.
func BenchmarkTCPSend(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		m := &pocketmq.Message{Topic: "T", Body: benchBody(size)}
		var t traffic
		_, counted := tcpCluster(b, remoting.NewTransport("127.0.0.1", &t))
		_, overTCP := tcpCluster(b, pocketmq.TCP("127.0.0.1"))
		_, inMemory := tcpCluster(b, nil)
		send := func(p *pocketmq.Producer, n int) int {
			for range n {
				mustSend(b, p, m)
			}
			return n
		}
		const n = 2000
		send(counted, n/10)
		wire := measure(b, &t, n, func() { send(counted, n) })
		raw := newEcho(b, wire.request, wire.answer, false)
		lanes(b,
			lane{"tcp", func() (int, time.Duration) { return timed(func() int { return send(overTCP, 64) }) }},
			lane{"mem", func() (int, time.Duration) { return timed(func() int { return send(inMemory, 64) }) }},
			lane{"raw", func() (int, time.Duration) {
				return timed(func() int {
					for range 64 {
						require.NoError(b, raw.alone())
					}
					return 64
				})
			}})
	})
}

// 64 goroutines send over one connection and wait: W2 over TCP.
func BenchmarkTCPSend64(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		body := benchBody(size)
		var t traffic
		_, counted := tcpCluster(b, remoting.NewTransport("127.0.0.1", &t))
		_, overTCP := tcpCluster(b, pocketmq.TCP("127.0.0.1"))
		_, inMemory := tcpCluster(b, nil)
		inFlight := func(n int, p *pocketmq.Producer) {
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for range n / 64 {
						mustSend(b, p, &pocketmq.Message{Topic: "T", Body: body})
					}
				})
			}
			wg.Wait()
		}
		const n = 64 * 200
		inFlight(n/10, counted)
		wire := measure(b, &t, n, func() { inFlight(n, counted) })
		send := func(p *pocketmq.Producer) func() (int, time.Duration) {
			return func() (int, time.Duration) {
				return inParallel(b, func() error {
					_, err := p.Send(context.Background(), &pocketmq.Message{Topic: "T", Body: body})
					return err
				})
			}
		}
		lanes(b,
			lane{"tcp", send(overTCP)},
			lane{"mem", send(inMemory)},
			lane{"raw", sharedEcho(b, newEcho(b, wire.request, wire.answer, false))},
			lane{"combined", sharedEcho(b, newEcho(b, wire.request, wire.answer, true))})
	})
}

// sharedEcho does round trips in 64 goroutines.
func sharedEcho(b *testing.B, e *echo) func() (int, time.Duration) {
	e.share(e.wake)
	waits := sync.Pool{New: func() any { return make(chan struct{}, 1) }}
	return func() (int, time.Duration) {
		return inParallel(b, func() error {
			c := waits.Get().(chan struct{})
			defer waits.Put(c)
			return e.call(c)
		})
	}
}

// One goroutine pulls 32 messages at a time.
func BenchmarkTCPPull32(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		const pulls = 100
		body := benchBody(size)
		q := queue("T", "broker-a", 0)
		filled := func(over pocketmq.Transport) *pocketmq.PullConsumer {
			c, p := tcpCluster(b, over)
			for range pulls * 32 {
				_, err := p.SendTo(b.Context(), q, &pocketmq.Message{Topic: "T", Body: body})
				require.NoError(b, err)
			}
			co, err := c.StartPullConsumer(b.Context(), pocketmq.PullConsumerConfig{Group: "g"})
			require.NoError(b, err)
			return co
		}
		pull := func(co *pocketmq.PullConsumer) int {
			for n := range pulls {
				r, err := co.Pull(b.Context(), q, int64(32*n), 32)
				if err != nil {
					b.Fatal(err)
				}
				if len(r.Messages) != 32 {
					b.Fatalf("%d messages came", len(r.Messages))
				}
			}
			return pulls
		}
		var t traffic
		counted := filled(remoting.NewTransport("127.0.0.1", &t))
		overTCP, inMemory := filled(pocketmq.TCP("127.0.0.1")), filled(nil)
		pull(counted)
		wire := measure(b, &t, 10*pulls, func() {
			for range 10 {
				pull(counted)
			}
		})
		raw := newEcho(b, wire.request, wire.answer, false)
		lanes(b,
			lane{"tcp", func() (int, time.Duration) { return timed(func() int { return pull(overTCP) }) }},
			lane{"mem", func() (int, time.Duration) { return timed(func() int { return pull(inMemory) }) }},
			lane{"raw", func() (int, time.Duration) {
				return timed(func() int {
					for range pulls {
						require.NoError(b, raw.alone())
					}
					return pulls
				})
			}})
	})
}

// The time from a send's begin to the handler of a push consumer, at 20,000
// messages a second: W4lat over TCP. The raw connection carries requests of the
// size of a send at the same rate, and the time is that until the echo is back:
// two ways, as those of the message to the broker and on to the consumer.
func BenchmarkTCPLatency(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		const rate, length = 20_000, time.Second
		c, p := tcpCluster(b, pocketmq.TCP("127.0.0.1"))
		begin := time.Now()
		var mu sync.Mutex // guards list
		var list []time.Duration
		arrived := newCounter()
		// arrive takes the time since the one that stamp tells.
		arrive := func(stamp []byte) {
			d := time.Since(begin) - time.Duration(binary.BigEndian.Uint64(stamp))
			mu.Lock()
			list = append(list, d)
			mu.Unlock()
			arrived.add(1)
		}
		consumer(b, c, pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), BatchSize: 32,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				for _, m := range msgs {
					arrive(m.Body)
				}
				return nil
			},
		})
		var t traffic
		_, counted := tcpCluster(b, remoting.NewTransport("127.0.0.1", &t))
		mustSend(b, counted, &pocketmq.Message{Topic: "T", Body: benchBody(size)})
		wire := measure(b, &t, 100, func() {
			for range 100 {
				mustSend(b, counted, &pocketmq.Message{Topic: "T", Body: benchBody(size)})
			}
		})
		raw := newEcho(b, wire.request, wire.request, false)
		var stamps sync.Mutex // guards sentAt
		var sentAt []time.Duration
		raw.share(func([]byte) {
			stamps.Lock()
			stamp := binary.BigEndian.AppendUint64(nil, uint64(sentAt[0]))
			sentAt = sentAt[1:]
			stamps.Unlock()
			arrive(stamp)
		})

		sent := int64(0)
		// paced sends each message when it is due, as far as the machine's timers
		// allow, and returns the latencies.
		paced := func(one func()) (p50, p99 time.Duration) {
			list = list[:0]
			start := time.Now()
			for n := range rate * int(length/time.Second) {
				time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / rate)))
				one()
				sent++
			}
			arrived.wait(sent)
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(list)
			return list[len(list)/2], list[len(list)*99/100]
		}
		ours := func() {
			body := make([]byte, size)
			binary.BigEndian.PutUint64(body, uint64(time.Since(begin)))
			err := p.SendAsync(b.Context(), &pocketmq.Message{Topic: "T", Body: body}, func(_ *pocketmq.SendResult, err error) {
				if err != nil {
					b.Error(err)
				}
			})
			require.NoError(b, err)
		}
		bare := func() {
			stamps.Lock()
			sentAt = append(sentAt, time.Since(begin))
			stamps.Unlock()
			require.NoError(b, raw.send(nil))
		}
		compareLatencies(b, func() (p50, p99 time.Duration) { return paced(ours) }, func() (p50, p99 time.Duration) { return paced(bare) })
	})
}
