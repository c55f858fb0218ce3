package pocketmq_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
	"github.com/pocketmq/pocketmq/remoting"
)

// attacks are what strangers do to a server until stop is closed.
func attacks(tb testing.TB) map[string]func(addr string, stop <-chan struct{}) {
	// crowd opens n connections, writes to each, and again every pause, until stop.
	crowd := func(n int, first []byte, pause time.Duration, more []byte) func(string, <-chan struct{}) {
		return func(addr string, stop <-chan struct{}) {
			var conns []net.Conn
			for range n {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					tb.Error(err)
					break
				}
				_, _ = conn.Write(first) // it may be closed already
				conns = append(conns, conn)
			}
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					for _, conn := range conns {
						_, _ = conn.Write(more)
					}
				case <-stop:
					for _, conn := range conns {
						_ = conn.Close()
					}
					return
				}
			}
		}
	}
	// again dials, does something and leaves, until stop.
	again := func(do func(conn net.Conn)) func(string, <-chan struct{}) {
		return func(addr string, stop <-chan struct{}) {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					tb.Error(err)
					return
				}
				do(conn)
				_ = conn.(*net.TCPConn).SetLinger(0) // or this machine would run out of ports
				_ = conn.Close()
			}
		}
	}
	beat := frame(tb, &remoting.Frame{Code: int32(protocol.CodeHeartbeat), Body: []byte(`{"clientID":"x","consumerDataSet":[` + strings.Repeat("{},", 300_000) + "]}")})
	pull := frame(tb, &remoting.Frame{Code: int32(protocol.CodePullMessage), Ext: remoting.Fields{
		{Name: "consumerGroup", Value: "h"}, {Name: "topic", Value: "T"}, {Name: "queueId", Value: "0"}, {Name: "queueOffset", Value: "0"}, {Name: "maxMsgNums", Value: "32"},
		{Name: "sysFlag", Value: "4"}, {Name: "subscription", Value: "*"}, {Name: "commitOffset", Value: "0"}, {Name: "suspendTimeoutMillis", Value: "0"}, {Name: "subVersion", Value: "0"},
	}})
	answer := make([]byte, 1<<10)
	return map[string]func(string, <-chan struct{}){
		"500 silent":            crowd(500, []byte{0, 0}, time.Minute, nil),
		"100 slow headers":      crowd(100, raw(0, strings.Repeat(" ", 60_000), "")[:9], 10*time.Millisecond, []byte(" ")),
		"100 claims of 16 MiB":  crowd(100, append([]byte{0, 0xff, 0xff, 0xfc, 0, 0, 0, 0x10}, make([]byte, 4<<10)...), 10*time.Millisecond, []byte(" ")),
		"20 large and slow":     crowd(20, append([]byte{0, 0xff, 0xff, 0xfc, 0, 0, 0, 0x10}, make([]byte, 70<<10)...), 10*time.Millisecond, []byte(" ")),
		"20 that never read":    crowd(20, bytes.Repeat(pull, 1000), time.Minute, nil),
		"connect and leave":     again(func(net.Conn) {}),
		"web client":            again(func(conn net.Conn) { _, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); _, _ = conn.Read(answer) }),
		"ask and leave":         again(func(conn net.Conn) { _, _ = conn.Write(bytes.Repeat(pull, 20)) }),
		"TLS hellos":            again(func(conn net.Conn) { _ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake() }),
		"heartbeats of 900 KiB": again(func(conn net.Conn) { _, _ = conn.Write(beat); _, _ = conn.Read(answer) }),
	}
}

// BenchmarkBesideHostile is how long a Send over TCP takes alone and beside an
// attack, in microseconds: rounds alternate, x_p50 and x_p99 are the medians of
// the ratios of neighbouring rounds. Attackers run in this process, two at a
// time where they are busy, so they take processors, too.
//
//	go test -run '^$' -bench BesideHostile .
func BenchmarkBesideHostile(b *testing.B) {
	all := attacks(b)
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			c := run(b, pocketmq.ClusterConfig{Transport: overTCP(), Topics: map[string]int{"T": 4}, Dir: b.TempDir()})
			p := producer(b, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
			msg := &pocketmq.Message{Topic: "T", Body: benchBody(128)}
			latencies := func(d time.Duration) (p50, p99 float64) {
				var all []float64
				for begin := time.Now(); time.Since(begin) < d; {
					at := time.Now()
					if _, err := p.Send(context.Background(), msg); err != nil {
						b.Fatal(err)
					}
					all = append(all, float64(time.Since(at).Nanoseconds())/1e3)
				}
				slices.Sort(all)
				return all[len(all)/2], all[len(all)*99/100]
			}
			latencies(benchRound / 4)
			var alone50, alone99, beside50, beside99, x50, x99 []float64
			for range benchRounds {
				a50, a99 := latencies(benchRound)
				stop := make(chan struct{})
				var attackers sync.WaitGroup
				for range 2 {
					attackers.Go(func() { all[name](c.Broker("broker-a", 0).Addr(), stop) })
				}
				b50, b99 := latencies(benchRound)
				close(stop)
				attackers.Wait()
				alone50, alone99 = append(alone50, a50), append(alone99, a99)
				beside50, beside99 = append(beside50, b50), append(beside99, b99)
				x50, x99 = append(x50, b50/a50), append(x99, b99/a99)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(alone50), "p50-µs")
			b.ReportMetric(median(alone99), "p99-µs")
			b.ReportMetric(median(beside50), "beside-p50-µs")
			b.ReportMetric(median(beside99), "beside-p99-µs")
			b.ReportMetric(median(x50), "x_p50")
			b.ReportMetric(median(x99), "x_p99")
			require.NoError(b, p.Close())
		})
	}
}
