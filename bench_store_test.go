package pocketmq_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"

	"github.com/pocketmq/pocketmq"
)

// W5, W6, W8 and W9: what the store decides. See bench_test.go.

const benchGroups = 5

// readers are goroutines that tail a log, each on its own. The wal is not safe
// for readers of full segments beside each other, so they take turns.
type readers struct {
	log  *wal.Log
	last atomic.Uint64
	more []chan struct{} // by reader, 1 slot: last has grown
	read *counter

	turn sync.Mutex // one reads at a time
	wg   sync.WaitGroup
}

func startReaders(b *testing.B, log *wal.Log, n int) *readers {
	r := &readers{log: log, read: newCounter()}
	for range n {
		more := make(chan struct{}, 1)
		r.more = append(r.more, more)
		r.wg.Go(func() {
			for next := uint64(1); ; {
				for next <= r.last.Load() {
					n, err := r.readSome(next)
					if err != nil {
						b.Error(err)
						return
					}
					next += uint64(n)
					r.read.add(n)
				}
				if _, open := <-more; !open {
					return
				}
			}
		})
	}
	b.Cleanup(func() {
		for _, more := range r.more {
			close(more)
		}
		r.wg.Wait()
	})
	return r
}

func (r *readers) readSome(next uint64) (n int, err error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	for last := r.last.Load(); next <= last && n < benchBatch; next++ {
		if _, err := r.log.Read(next); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// written tells the readers how far the log goes.
func (r *readers) written(last uint64) {
	r.last.Store(last)
	for _, more := range r.more {
		select {
		case more <- struct{}{}:
		default:
		}
	}
}

// W5: one goroutine sends batches of 256, the push consumers of five groups get
// all of them: deliveries a second from the first send to the last delivery. The
// floor is five readers that tail the log, with eight segments cached.
func BenchmarkW5(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		c, p := benchCluster(b)
		body := benchBody(size)
		ms := benchMessages(body)
		got := newCounter()
		for i := range benchGroups {
			consumer(b, c, pocketmq.ConsumerConfig{
				Group: fmt.Sprint("g", i), Subscriptions: all("T"), BatchSize: 32,
				Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
					got.add(len(msgs))
					return nil
				},
			})
		}
		sent := int64(0)
		raw := newRawLogOf(b, b.TempDir(), wal.Options{SegmentCacheSize: 8})
		tails := startReaders(b, raw.log, benchGroups)
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
				got.wait(benchGroups * sent)
				return benchGroups * n, time.Since(begin)
			},
			func() (int, time.Duration) {
				begin := time.Now()
				n, _ := timed(func() int {
					raw.writeBatch(b, &batch, body)
					tails.written(raw.next - 1)
					return benchBatch
				})
				tails.read.wait(benchGroups * int64(raw.next-1))
				return benchGroups * n, time.Since(begin)
			})
	})
}

// W6: as W2, acknowledged after fsync. The floor is W2's with an fsync after each
// WriteBatch.
func BenchmarkW6(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		_, p := benchClusterOf(b, pocketmq.ClusterConfig{
			Dir: b.TempDir(), Topics: map[string]int{"T": 4},
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: pocketmq.SyncFlush}}},
		})
		raw := newWalGroup(newRawLog(b).log)
		raw.sync = true
		body := benchBody(size)
		var ours, bare durations
		beside(b,
			func() (int, time.Duration) {
				return inParallel(b, ours.timed(func() error {
					_, err := p.Send(context.Background(), &pocketmq.Message{Topic: "T", Body: body})
					return err
				}))
			},
			func() (int, time.Duration) {
				return inParallel(b, bare.timed(func() error { return raw.write(body) }))
			})
		b.ReportMetric(us(ours.part(0.99)), "p99_us")
		b.ReportMetric(us(bare.part(0.99)), "raw_p99_us")
		b.ReportMetric(us(ours.part(0.99))/us(bare.part(0.99)), "p99_x_raw")
	})
}

// durations collects how long calls took.
type durations struct {
	mu   sync.Mutex // guards list
	list []time.Duration
}

func (d *durations) timed(f func() error) func() error {
	return func() error {
		begin := time.Now()
		err := f()
		took := time.Since(begin)
		d.mu.Lock()
		d.list = append(d.list, took)
		d.mu.Unlock()
		return err
	}
}

// part is what a part of the calls did not exceed.
func (d *durations) part(of float64) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.list)
	return d.list[min(len(d.list)-1, int(of*float64(len(d.list))))]
}

// heapInUse is the memory in use after everything superfluous has been given back.
func heapInUse() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

// W8: memory and disk after a million messages, when nothing is left to do.
func BenchmarkW8(b *testing.B) {
	const messages = 1 << 20
	body := benchBody(128)
	dir, rawDir := b.TempDir(), b.TempDir()

	base := heapInUse()
	raw := newRawLogOf(b, rawDir, wal.Options{})
	var batch wal.Batch
	for range messages / benchBatch {
		raw.writeBatch(b, &batch, body)
	}
	rawHeap := heapInUse() - base

	base = heapInUse()
	_, p := benchClusterOf(b, pocketmq.ClusterConfig{Dir: dir, Topics: map[string]int{"T": 4}})
	ms := benchMessages(body)
	for range messages / benchBatch {
		_, err := p.SendBatch(b.Context(), ms)
		require.NoError(b, err)
	}
	time.Sleep(2 * time.Second) // the flusher syncs and closes full files after 500 ms
	heap := heapInUse() - base

	const mib = 1 << 20
	disk, rawDisk := bytesBelow(b, dir), bytesBelow(b, rawDir)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(heap/mib, "heap_MiB")
	b.ReportMetric(rawHeap/mib, "raw_heap_MiB")
	b.ReportMetric(heap/rawHeap, "heap_x_raw")
	b.ReportMetric(disk/mib, "disk_MiB")
	b.ReportMetric(rawDisk/mib, "raw_disk_MiB")
	b.ReportMetric(disk/rawDisk, "disk_x_raw")
}

func bytesBelow(b *testing.B, dir string) float64 {
	sum := int64(0)
	for _, size := range tree(b, dir) {
		sum += size
	}
	return float64(sum)
}

// W8 idle: 1,000 topics of 8 queues.
func BenchmarkW8Idle(b *testing.B) {
	topics := map[string]int{}
	for i := range 1000 {
		topics[fmt.Sprint("topic-", i)] = 8
	}
	base, before := heapInUse(), runtime.NumGoroutine()
	begin := time.Now()
	benchClusterOf(b, pocketmq.ClusterConfig{Dir: b.TempDir(), Topics: topics})
	setup := time.Since(begin)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(setup)/float64(time.Millisecond), "setup_ms")
	b.ReportMetric(float64(runtime.NumGoroutine()-before), "goroutines")
	b.ReportMetric((heapInUse()-base)/(1<<20), "heap_MiB")
}

// W9: a new group reads half a million stored messages from the start. The floor
// reads as many entries of the wal.
func BenchmarkW9(b *testing.B) {
	const messages = 1 << 19
	c, p := benchCluster(b)
	raw := newRawLog(b)
	body := benchBody(128)
	ms := benchMessages(body)
	var batch wal.Batch
	for range messages / benchBatch {
		_, err := p.SendBatch(b.Context(), ms)
		require.NoError(b, err)
		raw.writeBatch(b, &batch, body)
	}
	group := 0
	beside(b,
		func() (int, time.Duration) {
			got := newCounter()
			group++
			begin := time.Now()
			catchUp := consumer(b, c, pocketmq.ConsumerConfig{
				Group: fmt.Sprint("g", group), Subscriptions: all("T"), BatchSize: 32, From: pocketmq.FromFirstOffset,
				Handler: func(_ context.Context, msgs []*pocketmq.MessageExt) error {
					got.add(len(msgs))
					return nil
				},
			})
			got.wait(messages)
			took := time.Since(begin)
			require.NoError(b, catchUp.Close())
			return messages, took
		},
		func() (int, time.Duration) {
			begin := time.Now()
			for i := range uint64(messages) {
				if _, err := raw.log.Read(i + 1); err != nil {
					b.Fatal(err)
				}
			}
			return messages, time.Since(begin)
		})
}
