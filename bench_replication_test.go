package pocketmq_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// What replication costs, and how fast it is, in ratios of one run:
//
//	go test -run '^$' -bench Replic .
//
// Brokers write to a real folder with AsyncFlush. All members are in one process and
// share its processors, so a slave's work counts against its master's: with machines of
// their own both are better.

// replicatedCluster is a group with so many slaves, which follow.
func replicatedCluster(b *testing.B, slaves int, mode pocketmq.ReplicationMode) (*pocketmq.Cluster, *pocketmq.Producer) {
	b.Helper()
	c, p := benchClusterOf(b, pocketmq.ClusterConfig{
		Dir: b.TempDir(), Topics: map[string]int{"T": 4},
		Groups: pair(slaves, pocketmq.BrokerConfig{Replication: mode, CommitLogFileSize: 64 << 20}),
	})
	benchSend(b, p, benchBody(128))
	slavesHaveAll(b, c, slaves)
	return c, p
}

func benchSend(b *testing.B, p *pocketmq.Producer, body []byte) {
	if _, err := p.Send(b.Context(), &pocketmq.Message{Topic: "T", Body: body}); err != nil {
		b.Fatal(err)
	}
}

// slavesHaveAll waits until so many slaves have acknowledged all that the master wrote.
func slavesHaveAll(b *testing.B, c *pocketmq.Cluster, slaves int) {
	b.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		st := c.Broker("broker-a", 0).Status()
		have := 0
		for _, s := range st.Slaves {
			if s.Acked == st.WrittenPosition {
				have++
			}
		}
		if have == slaves {
			return
		}
		if time.Now().After(until) {
			b.Fatalf("%d of %d slaves have everything: %+v", have, slaves, st)
		}
	}
}

// Throughput of 64 senders, from the first send until every slave has the last one:
// without slaves, with one that copies behind, and with one that is waited for.
func BenchmarkReplicationThroughput(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		body := benchBody(size)
		names := []string{"none", "async", "sync"}
		rates := make([][]float64, len(names))
		round := make([]func() float64, len(names))
		for i, slaves := range []int{0, 1, 1} {
			mode := pocketmq.AsyncReplication
			if names[i] == "sync" {
				mode = pocketmq.SyncReplication
			}
			c, p := replicatedCluster(b, slaves, mode)
			round[i] = func() float64 {
				begin := time.Now()
				n, _ := inParallel(b, func() error {
					_, err := p.Send(context.Background(), &pocketmq.Message{Topic: "T", Body: body})
					return err
				})
				slavesHaveAll(b, c, slaves)
				return float64(n) / time.Since(begin).Seconds()
			}
		}
		for n := range 1 + benchRounds {
			for i := range names {
				if rate := round[i](); n > 0 { // the first one warms
					rates[i] = append(rates[i], rate)
				}
			}
		}
		b.ReportMetric(0, "ns/op")
		for i, name := range names {
			b.ReportMetric(median(rates[i]), name+"_msgs/s")
			if i == 0 {
				continue
			}
			var ratios []float64
			for j := range rates[i] {
				ratios = append(ratios, rates[i][j]/rates[0][j])
			}
			b.ReportMetric(median(ratios), name+"_x_none")
		}
	})
}

// Latency of a send of one goroutine: with a slave that is waited for, beside one that
// copies behind (raw).
func BenchmarkReplicationLatency(b *testing.B) {
	sizes128and1K(b, func(b *testing.B, size int) {
		body := benchBody(size)
		measure := func(mode pocketmq.ReplicationMode) func() (p50, p99 time.Duration) {
			_, p := replicatedCluster(b, 1, mode)
			return func() (p50, p99 time.Duration) {
				list := make([]time.Duration, 3000)
				for i := range list {
					begin := time.Now()
					benchSend(b, p, body)
					list[i] = time.Since(begin)
				}
				slices.Sort(list)
				return list[len(list)/2], list[len(list)*99/100]
			}
		}
		compareLatencies(b, measure(pocketmq.SyncReplication), measure(pocketmq.AsyncReplication))
	})
}

// From the kill of a master to the next send that its group acknowledges, with intervals
// a tenth of the default ones: LeaseExpire is 500 ms. x_limit sets it beside what is
// promised of the election, LeaseExpire and twice LeaseRenew. In virtual time, with the
// default ones, TestSendsFindTheNewMasterSoon tells it.
func BenchmarkReplicationFailover(b *testing.B) {
	timings := pocketmq.DefaultTimings().Scaled(0.1)
	limit := timings.LeaseExpire + 2*timings.LeaseRenew
	var took []float64
	for range benchRounds {
		c, p := benchClusterOf(b, pocketmq.ClusterConfig{
			Dir: b.TempDir(), Topics: map[string]int{"T": 4}, Timings: timings,
			Groups: pair(2, pocketmq.BrokerConfig{Failover: true, Replication: pocketmq.SyncReplication}),
		})
		benchSend(b, p, benchBody(128))
		require.NoError(b, c.Kill("broker-a", masterOf(c)))
		killed := time.Now()
		for {
			_, err := p.Send(b.Context(), text("T", "x"))
			if err == nil {
				break
			}
			if time.Since(killed) > time.Minute {
				b.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, float64(time.Since(killed))/float64(time.Millisecond))
		require.NoError(b, c.Close())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(took), "ms")
	b.ReportMetric(slices.Max(took), "max_ms")
	b.ReportMetric(median(took)/(float64(limit)/float64(time.Millisecond)), "x_limit")
}

// A slave without a folder copies a log of 128 MB, beside a copy of the same files (raw).
func BenchmarkReplicationCatchUp(b *testing.B) {
	dir := b.TempDir()
	c, p := benchClusterOf(b, pocketmq.ClusterConfig{
		Dir: dir, Topics: map[string]int{"T": 4}, Groups: pair(1, pocketmq.BrokerConfig{CommitLogFileSize: 16 << 20}),
	})
	batch := benchMessages(benchBody(1024))
	for range 128 << 20 / (1024 * benchBatch) {
		if _, err := p.SendBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
	slavesHaveAll(b, c, 1)
	var rates, raw, ratios []float64
	for range benchRounds {
		require.NoError(b, c.Kill("broker-a", 1))
		require.NoError(b, os.RemoveAll(filepath.Join(dir, "broker-a-1")))
		begin := time.Now()
		require.NoError(b, c.Restart(b.Context(), "broker-a", 1))
		slavesHaveAll(b, c, 1)
		took := time.Since(begin)

		begin = time.Now()
		size, err := copyFiles(filepath.Join(b.TempDir(), "copy"), filepath.Join(dir, "broker-a-0"))
		require.NoError(b, err)
		bare := time.Since(begin)
		mb := float64(size) / 1e6
		rates, raw = append(rates, mb/took.Seconds()), append(raw, mb/bare.Seconds())
		ratios = append(ratios, bare.Seconds()/took.Seconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(rates), "MB/s")
	b.ReportMetric(median(raw), "raw_MB/s")
	b.ReportMetric(median(ratios), "x_raw")
}

// copyFiles copies a folder with all that is in it, and returns how many bytes it read.
// A file that is being replaced meanwhile may be gone.
func copyFiles(to, from string) (size int64, err error) {
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		r, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer r.Close() // only read
		w, err := os.Create(filepath.Join(to, name))
		if err != nil {
			return err
		}
		n, err := io.Copy(w, struct{ io.Reader }{r}) // through memory, as records go
		size += n
		return errors.Join(err, w.Close())
	})
	return size, err
}
