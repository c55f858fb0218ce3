package pocketmq_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"

	"github.com/pocketmq/pocketmq"
)

// The benchmarks W1 to W9 measure the library beside bare tidwall/wal, which
// writes bodies of the same size, in the same run: rounds alternate, so that
// what else the machine does hits both. They report messages a second (median
// of the rounds), and x_raw, the median of the ratios of neighbouring rounds.
//
//	go test -run '^$' -bench 'W[1-9]' .
//
// Brokers write to a real folder with AsyncFlush, but for W6. The wal does not
// sync either, but when it rolls, every 20 MB. W7 is BenchmarkClusterLife.

const (
	benchRounds = 5
	benchRound  = 400 * time.Millisecond
	benchBatch  = 256
)

// sizes128and1K runs f for the two body sizes.
func sizes128and1K(b *testing.B, f func(b *testing.B, size int)) {
	for _, size := range []int{128, 1024} {
		b.Run(fmt.Sprint(size, "B"), func(b *testing.B) { f(b, size) })
	}
}

// beside alternates rounds of ours and raw, each of which returns how many
// messages it did in how long. It does not depend on b.N: one call takes longer
// than the benchmark's time.
func beside(b *testing.B, ours, raw func() (int, time.Duration)) {
	b.Helper()
	ours() // both warm
	raw()
	var rates, rawRates, ratios []float64
	for range benchRounds {
		n, d := ours()
		rates = append(rates, float64(n)/d.Seconds())
		n, d = raw()
		rawRates = append(rawRates, float64(n)/d.Seconds())
		ratios = append(ratios, rates[len(rates)-1]/rawRates[len(rawRates)-1])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates), "msgs/s")
	b.ReportMetric(median(rawRates), "raw_msgs/s")
	b.ReportMetric(median(ratios), "x_raw")
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// timed calls f, which does some messages, until the round is over.
func timed(f func() int) (n int, d time.Duration) {
	begin := time.Now()
	for d < benchRound {
		n += f()
		d = time.Since(begin)
	}
	return n, d
}

// mallocs counts the allocations of f, those of goroutines beside it included.
func mallocs(f func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

func benchBody(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	return body
}

// benchCluster is a cluster of one broker in a real folder.
func benchCluster(b *testing.B) (*pocketmq.Cluster, *pocketmq.Producer) {
	b.Helper()
	return benchClusterOf(b, pocketmq.ClusterConfig{Dir: b.TempDir(), Topics: map[string]int{"T": 4}})
}

func benchClusterOf(b *testing.B, cfg pocketmq.ClusterConfig) (*pocketmq.Cluster, *pocketmq.Producer) {
	b.Helper()
	c, err := startCluster(b.Context(), b, cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	p, err := c.StartProducer(b.Context(), pocketmq.ProducerConfig{})
	require.NoError(b, err)
	return c, p
}

// rawLog is a bare wal.
type rawLog struct {
	log  *wal.Log
	next uint64
}

func newRawLog(b *testing.B) *rawLog {
	b.Helper()
	return newRawLogOf(b, b.TempDir(), wal.Options{})
}

func newRawLogOf(b *testing.B, dir string, o wal.Options) *rawLog {
	b.Helper()
	o.NoSync, o.NoCopy = true, true
	log, err := wal.Open(dir, &o)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, log.Close()) })
	return &rawLog{log: log, next: 1}
}

func (r *rawLog) write(b *testing.B, body []byte) {
	if err := r.log.Write(r.next, body); err != nil {
		b.Fatal(err)
	}
	r.next++
}

func (r *rawLog) writeBatch(b *testing.B, batch *wal.Batch, body []byte) {
	batch.Clear()
	for range benchBatch {
		batch.Write(r.next, body)
		r.next++
	}
	if err := r.log.WriteBatch(batch); err != nil {
		b.Fatal(err)
	}
}

// W1: one goroutine sends and waits for the acknowledgement.
func BenchmarkW1(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		_, p := benchCluster(b)
		raw := newRawLog(b)
		body := benchBody(size)
		m := &pocketmq.Message{Topic: "T", Body: body}
		send := func() int {
			for range 64 {
				if _, err := p.Send(b.Context(), m); err != nil {
					b.Fatal(err)
				}
			}
			return 64
		}
		beside(b,
			func() (int, time.Duration) { return timed(send) },
			func() (int, time.Duration) {
				return timed(func() int {
					for range 64 {
						raw.write(b, body)
					}
					return 64
				})
			})
		const n = 200
		b.ReportMetric(mallocs(func() {
			for range n {
				send()
			}
		})/(64*n), "allocs/send")
	})
}

// walGroup is the floor of W2: goroutines that wait share one WriteBatch. The
// first one writes, after it has let others run once so that they join, and goes
// on until nobody waits; batches and channels are used again. With sync it is
// the floor of W6: an fsync follows each WriteBatch.
type walGroup struct {
	log  *wal.Log
	sync bool

	mu       sync.Mutex
	next     uint64
	writing  bool
	batch    *wal.Batch // that callers join
	spare    *wal.Batch
	waiting  []chan error
	released []chan error
	chans    sync.Pool
}

func newWalGroup(log *wal.Log) *walGroup {
	return &walGroup{log: log, next: 1, batch: new(wal.Batch), spare: new(wal.Batch)}
}

func (g *walGroup) write(body []byte) error {
	g.mu.Lock()
	g.batch.Write(g.next, body)
	g.next++
	if g.writing {
		c, _ := g.chans.Get().(chan error)
		if c == nil {
			c = make(chan error, 1)
		}
		g.waiting = append(g.waiting, c)
		g.mu.Unlock()
		err := <-c
		g.chans.Put(c)
		return err
	}
	g.writing = true
	g.mu.Unlock()
	var own error
	for first := true; ; first = false {
		runtime.Gosched()
		g.mu.Lock()
		batch, waiting := g.batch, g.waiting
		if len(waiting) == 0 && !first {
			g.writing = false
			g.mu.Unlock()
			return own
		}
		g.batch, g.waiting = g.spare, g.released[:0]
		g.mu.Unlock()
		err := g.log.WriteBatch(batch)
		if err == nil && g.sync {
			err = g.log.Sync()
		}
		batch.Clear()
		if first {
			own = err
		}
		for _, c := range waiting {
			c <- err
		}
		g.mu.Lock()
		g.spare, g.released = batch, waiting
		g.mu.Unlock()
	}
}

// inParallel calls one in 64 goroutines until the round is over.
func inParallel(b *testing.B, one func() error) (int, time.Duration) {
	var n atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	begin := time.Now()
	for range 64 {
		wg.Go(func() {
			mine := int64(0)
			for !over.Load() {
				if err := one(); err != nil {
					b.Error(err)
					return
				}
				mine++
			}
			n.Add(mine)
		})
	}
	time.Sleep(benchRound)
	over.Store(true)
	wg.Wait()
	return int(n.Load()), time.Since(begin)
}

// W2: 64 goroutines send and wait.
func BenchmarkW2(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		_, p := benchCluster(b)
		raw := newWalGroup(newRawLog(b).log)
		body := benchBody(size)
		beside(b,
			func() (int, time.Duration) {
				return inParallel(b, func() error {
					_, err := p.Send(context.Background(), &pocketmq.Message{Topic: "T", Body: body})
					return err
				})
			},
			func() (int, time.Duration) { return inParallel(b, func() error { return raw.write(body) }) })
	})
}

func benchMessages(body []byte) []*pocketmq.Message {
	ms := make([]*pocketmq.Message, benchBatch)
	for i := range ms {
		ms[i] = &pocketmq.Message{Topic: "T", Body: body}
	}
	return ms
}

// W3: one goroutine sends batches of 256.
func BenchmarkW3(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		_, p := benchCluster(b)
		raw := newRawLog(b)
		body := benchBody(size)
		ms := benchMessages(body)
		send := func() int {
			if _, err := p.SendBatch(b.Context(), ms); err != nil {
				b.Fatal(err)
			}
			return benchBatch
		}
		var batch wal.Batch
		beside(b,
			func() (int, time.Duration) { return timed(send) },
			func() (int, time.Duration) {
				return timed(func() int {
					raw.writeBatch(b, &batch, body)
					return benchBatch
				})
			})
		const n = 50
		b.ReportMetric(mallocs(func() {
			for range n {
				send()
			}
		})/(benchBatch*n), "allocs/send")
	})
}

// counter counts deliveries and tells when there are enough.
type counter struct {
	n    atomic.Int64
	want atomic.Int64
	done chan struct{} // 1 slot: n has reached want
}

func newCounter() *counter {
	c := &counter{done: make(chan struct{}, 1)}
	c.want.Store(-1)
	return c
}

func (c *counter) add(n int) {
	if c.n.Add(int64(n)) == c.want.Load() {
		select {
		case c.done <- struct{}{}:
		default:
		}
	}
}

// wait returns when n messages have been counted in all.
func (c *counter) wait(n int64) {
	c.want.Store(n)
	if c.n.Load() < n {
		<-c.done
	}
	c.want.Store(-1)
	select {
	case <-c.done:
	default:
	}
}

// W4: one goroutine sends batches of 256, a push consumer gets them: messages a
// second from the first send to the last delivery.
func BenchmarkW4(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		c, p := benchCluster(b)
		body := benchBody(size)
		ms := benchMessages(body)
		got := newCounter()
		consumerConfig := pocketmq.ConsumerConfig{
			Group: "g", Subscriptions: all("T"), BatchSize: 32,
			Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
				got.add(len(msgs))
				return nil
			},
		}
		consumer(b, c, consumerConfig)
		sent := int64(0)

		raw := newRawLog(b)
		read := newCounter()
		last := atomic.Uint64{}
		more, stopReader := make(chan struct{}, 1), make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() { // tails the log
			for next := uint64(1); ; {
				from := next
				for ; next <= last.Load(); next++ {
					if _, err := raw.log.Read(next); err != nil {
						b.Error(err)
						return
					}
				}
				if n := int(next - from); n > 0 {
					read.add(n)
					continue
				}
				select {
				case <-more:
				case <-stopReader:
					return
				}
			}
		})
		defer reader.Wait()
		defer close(stopReader)
		var batch wal.Batch

		beside(b,
			func() (int, time.Duration) {
				begin := time.Now()
				n, _ := timed(func() int {
					if _, err := p.SendBatch(b.Context(), ms); err != nil {
						b.Fatal(err)
					}
					return benchBatch
				})
				sent += int64(n)
				got.wait(sent)
				return n, time.Since(begin)
			},
			func() (int, time.Duration) {
				begin := time.Now()
				n, _ := timed(func() int {
					raw.writeBatch(b, &batch, body)
					last.Store(raw.next - 1)
					select {
					case more <- struct{}{}:
					default:
					}
					return benchBatch
				})
				read.wait(int64(raw.next - 1))
				return n, time.Since(begin)
			})

		// What a consumed message allocates: a group that catches up.
		const n = 100
		base := got.n.Load()
		for range n {
			_, err := p.SendBatch(b.Context(), ms)
			require.NoError(b, err)
		}
		got.wait(base + n*benchBatch)
		total := got.n.Load()
		catchUp := newCounter()
		consumerConfig.Group, consumerConfig.From = "catch-up", pocketmq.FromFirstOffset
		consumerConfig.Handler = func(_ context.Context, msgs []*pocketmq.MessageExt) error {
			catchUp.add(len(msgs))
			return nil
		}
		b.ReportMetric(mallocs(func() {
			consumer(b, c, consumerConfig)
			catchUp.wait(total)
		})/float64(total), "allocs/consumed")
	})
}

// W4 at 20,000 messages a second: the time from a send's begin to the handler.
func BenchmarkW4Latency(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		const rate, length = 20_000, time.Second
		c, p := benchCluster(b)
		body := benchBody(size)
		begin := time.Now()
		var mu sync.Mutex
		var list []time.Duration
		arrived := newCounter()
		// arrive takes the time since the one that the body tells.
		arrive := func(body []byte) {
			d := time.Since(begin) - time.Duration(binary.BigEndian.Uint64(body))
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
		raw := newRawLog(b)
		last := atomic.Uint64{}
		more, stopReader := make(chan struct{}, 1), make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() {
			for next := uint64(1); ; {
				for ; next <= last.Load(); next++ {
					data, err := raw.log.Read(next)
					if err != nil {
						b.Error(err)
						return
					}
					arrive(data)
				}
				select {
				case <-more:
				case <-stopReader:
					return
				}
			}
		})
		defer reader.Wait()
		defer close(stopReader)

		sent := int64(0)
		// paced sends each message when it is due, as far as the machine's timers
		// allow, and returns the latencies.
		paced := func(one func()) (p50, p99 time.Duration) {
			list = list[:0]
			start := time.Now()
			for n := range rate * int(length/time.Second) {
				time.Sleep(time.Until(start.Add(time.Duration(n) * time.Second / rate)))
				binary.BigEndian.PutUint64(body, uint64(time.Since(begin)))
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
			if _, err := p.Send(b.Context(), &pocketmq.Message{Topic: "T", Body: body}); err != nil {
				b.Fatal(err)
			}
		}
		bare := func() {
			raw.write(b, body)
			last.Store(raw.next - 1)
			select {
			case more <- struct{}{}:
			default:
			}
		}
		compareLatencies(b, func() (p50, p99 time.Duration) { return paced(ours) }, func() (p50, p99 time.Duration) { return paced(bare) })
	})
}

// compareLatencies measures both in turn, and reports the medians.
func compareLatencies(b *testing.B, ours, bare func() (p50, p99 time.Duration)) {
	var p50, p99, raw50, raw99, x50, x99 []float64
	for round := range 4 {
		o50, o99 := ours()
		r50, r99 := bare()
		if round == 0 {
			continue // warm
		}
		p50, p99 = append(p50, us(o50)), append(p99, us(o99))
		raw50, raw99 = append(raw50, us(r50)), append(raw99, us(r99))
		x50, x99 = append(x50, us(o50)/us(r50)), append(x99, us(o99)/us(r99))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(p50), "p50_us")
	b.ReportMetric(median(p99), "p99_us")
	b.ReportMetric(median(raw50), "raw_p50_us")
	b.ReportMetric(median(raw99), "raw_p99_us")
	b.ReportMetric(median(x50), "p50_x_raw")
	b.ReportMetric(median(x99), "p99_x_raw")
}

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
