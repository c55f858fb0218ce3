package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	"github.com/stretchr/testify/require"
)

// TestServe: `pocketmq serve` as a process of its own is all that the official
// client needs.
func TestServe(t *testing.T) {
	took := serveOneMessage(t, buildServe(t), "serve-test")
	report(t, "serve", 1, 1, fmt.Sprintf("the first message after %v", took.consumed.Round(time.Millisecond)))
}

// BenchmarkServe measures, 20 times, what a test suite waits for when it starts
// `pocketmq serve` for itself: until everything serves, until an official
// producer has sent its first message, and until an official push consumer has
// got that. Each time is from the start of the process; the medians are
// reported, and the longest for the last.
//
//	go test -run '^$' -bench Serve -benchtime 1x .
func BenchmarkServe(b *testing.B) {
	const rounds = 20
	program := buildServe(b)
	var ready, sent, consumed []time.Duration
	for i := range rounds {
		took := serveOneMessage(b, program, fmt.Sprint("serve-bench-", i))
		ready, sent, consumed = append(ready, took.ready), append(sent, took.sent), append(consumed, took.consumed)
	}
	median := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2]) / float64(time.Millisecond)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ready), "ms_ready")
	b.ReportMetric(median(sent), "ms_sent")
	b.ReportMetric(median(consumed), "ms_consumed")
	b.ReportMetric(float64(consumed[rounds-1])/float64(time.Millisecond), "ms_longest")
}

// buildServe builds the command.
func buildServe(t testing.TB) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "pocketmq.exe") // Windows wants the ending, others do not mind
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/pocketmq/pocketmq/cmd/pocketmq").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// times are from the start of the process.
type times struct{ ready, sent, consumed time.Duration }

// serveOneMessage starts a process, sends a message through it and gets it back.
// name keeps its clients apart from others of this process.
func serveOneMessage(t testing.TB, program, name string) (took times) {
	t.Helper()
	rlog.SetLogLevel("fatal") // no cluster, so nothing of rmqtest, keeps its log
	begin := time.Now()
	cmd := exec.CommandContext(t.Context(), program, "serve", "-namesrv", "127.0.0.1:0", "-group", "broker-a", "-topic", "T:4")
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out := bufio.NewReader(pipe)
	defer func() {
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_, err := io.Copy(io.Discard, out)
		require.NoError(t, err)
		require.NoError(t, cmd.Wait())
	}()
	var nameServer, broker string
	_, err = fmt.Fscanf(out, "namesrv %s ready\n", &nameServer)
	require.NoError(t, err)
	_, err = fmt.Fscanf(out, "broker broker-a 0 %s ready\n", &broker)
	require.NoError(t, err)
	took.ready = time.Since(begin)

	resolver := primitive.NewPassthroughResolver([]string{nameServer})
	p, err := rocketmq.NewProducer(producer.WithNsResolver(resolver), producer.WithInstanceName(name))
	require.NoError(t, err)
	require.NoError(t, p.Start())
	defer func() { require.NoError(t, p.Shutdown()) }()
	_, err = p.SendSync(t.Context(), primitive.NewMessage("T", []byte(name)))
	require.NoError(t, err)
	took.sent = time.Since(begin)

	got := make(chan string, 1) // one message comes; a second one would be in the way of nobody
	co, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(resolver), consumer.WithInstance(name+"-consumer"),
		consumer.WithGroupName("g"), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	require.NoError(t, err)
	require.NoError(t, co.Subscribe("T", everything, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			select {
			case got <- string(m.Body):
			default:
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	require.NoError(t, co.Start())
	defer func() { require.NoError(t, co.Shutdown()) }()
	select {
	case body := <-got:
		took.consumed = time.Since(begin)
		require.Equal(t, name, body)
	case <-time.After(patience):
		require.Fail(t, "nothing was consumed", "within %v", patience)
	}
	return took
}
