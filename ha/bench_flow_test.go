package ha

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// The log of a benchmark: one buffer of records, over and over.
type ringLog struct {
	records [][]byte
	end     atomic.Int64
	reached chan struct{}
	batches int
}

func newRingLog(size int) *ringLog {
	l := &ringLog{reached: make(chan struct{}, 1)}
	buf := make([]byte, 4<<20)
	for len(buf) >= size {
		l.records = append(l.records, buf[:size:size])
		buf = buf[size:]
	}
	return l
}

func (l *ringLog) Bounds() (first, end int64) { return 1, l.end.Load() }
func (l *ringLog) Epochs() []Epoch            { return []Epoch{{1, 1}} }
func (l *ringLog) Read(from int64, maxBytes int) (Batch, error) {
	b := Batch{First: from, Epoch: 1}
	end := l.end.Load()
	for n := 0; b.Last() < end && n < maxBytes; {
		rec := l.records[int(b.Last()+1)%len(l.records)]
		b.Records = append(b.Records, rec)
		n += len(rec)
	}
	return b, nil
}
func (l *ringLog) Beginning(bool) (int64, []byte, error)      { return 1, nil, nil }
func (l *ringLog) BytesBetween(int64, int64) int64            { return 0 }
func (l *ringLog) Confirmed() int64                           { return 0 }
func (l *ringLog) Confirm(int64) error                        { return nil }
func (l *ringLog) Cut(context.Context, int64) error           { return nil }
func (l *ringLog) Begin(context.Context, int64, []byte) error { return nil }
func (l *ringLog) Append(_ context.Context, b Batch) error {
	l.batches++
	l.end.Store(b.Last())
	return nil
}

// benchPair is a master and a slave over TCP.
func benchPair(b *testing.B, master, slave *ringLog, acks Acks) *Slaves {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	connected := make(chan struct{}, 1)
	s, err := NewSlaves(SlavesConfig{
		Log:    master,
		InSync: InSyncConfig{Epoch: 1, End: master.end.Load(), MaxLag: time.Minute, Acks: acks, InSyncReplicas: 2},
		OnEvent: func(e Event) {
			if _, ok := e.(SlaveConnected); ok {
				connected <- struct{}{}
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewReceiver(ReceiverConfig{
		ID: 1, Log: slave, Promises: &memPromises{high: 1},
		Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, ran := make(chan error, 1), make(chan struct{})
	go func() { served <- s.Serve(ctx, l) }()
	go func() { r.Run(ctx); close(ran) }()
	b.Cleanup(func() {
		cancel()
		<-served
		<-ran
	})
	<-connected
	return s
}

// How many bytes a second go to a slave that has everything to catch up with, beside a
// raw copy over the same kind of connection.
func BenchmarkCatchUp(b *testing.B) {
	for _, size := range []int{128, 1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("records of %d", size), func(b *testing.B) {
			master, slave := newRingLog(size), newRingLog(size)
			s := benchPair(b, master, slave, AckCount)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			master.end.Store(int64(b.N))
			s.Written(int64(b.N))
			if err := s.Wait(context.Background(), int64(b.N)); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/float64(max(slave.batches, 1)), "records/append")
		})
	}
	b.Run("raw copy", func(b *testing.B) {
		const piece = 32 << 10
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		done := make(chan int64)
		go func() {
			c, err := l.Accept()
			if err != nil {
				done <- 0
				return
			}
			buf := make([]byte, 256<<10)
			n := int64(0)
			for {
				k, err := c.Read(buf)
				if n += int64(k); err == io.EOF {
					break
				}
			}
			done <- n
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		buf := make([]byte, piece)
		b.SetBytes(piece)
		b.ResetTimer()
		for range b.N {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		_ = c.Close()
		<-done
	})
}

// How long one record takes to a slave and its ack back, beside a byte that is echoed.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("record of 128", func(b *testing.B) {
		master, slave := newRingLog(128), newRingLog(128)
		s := benchPair(b, master, slave, AckCount)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range int64(b.N) {
			master.end.Store(i + 1)
			s.Written(i + 1)
			if err := s.Wait(context.Background(), i+1); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("echo", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 256))
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		buf := make([]byte, 128)
		b.ResetTimer()
		for range b.N {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What a write to the log costs the master when nobody waits for anything.
func BenchmarkWritten(b *testing.B) {
	s, err := NewSlaves(SlavesConfig{Log: newRingLog(128), InSync: InSyncConfig{Epoch: 1}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range int64(b.N) {
		s.Written(i + 1)
	}
}
