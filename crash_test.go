package pocketmq_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

var (
	crashRounds = flag.Int("crash.rounds", 3, "how often TestCrash kills a process, for each way to flush")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of TestCrash; 0 = a new one")
)

// crashEnv holds what a child process of TestCrash does: flush mode and folder.
const crashEnv = "POCKETMQ_TEST_CRASH"

const crashQueues = 3

func crashConfig(dir string, flush pocketmq.FlushMode) pocketmq.ClusterConfig {
	return pocketmq.ClusterConfig{
		Dir: dir, Topics: map[string]int{"T": crashQueues},
		Timings: pocketmq.Timings{FlushInterval: 20 * time.Millisecond},
		Groups:  []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: flush, CommitLogFileSize: 16 << 10}}},
	}
}

// A process that sends to a cluster in a real folder is killed at a random
// moment, again and again: what was acknowledged is there, whatever the moment.
func TestCrash(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, flush := range []pocketmq.FlushMode{pocketmq.AsyncFlush, pocketmq.SyncFlush} {
		t.Run(flush.String(), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, uint64(flush)))
			dir := t.TempDir()
			acked := make(map[pocketmq.MessageQueue]map[int64]string) // queue -> offset -> message id
			n := 0
			for round := range *crashRounds {
				what := fmt.Sprintf("round %d, -crash.seed %d", round, seed)
				late := n == 0 && round == *crashRounds-1 // or the whole test has seen nothing
				n += crashOnce(t, rnd, dir, flush, acked, late, what)
				verifyCrash(t, dir, flush, acked, what)
				if t.Failed() {
					t.FailNow()
				}
			}
			assert.Positive(t, n, "messages acknowledged, -crash.seed %d", seed)
			t.Logf("%d messages acknowledged, %d kills, -crash.seed %d", n, *crashRounds, seed)
		})
	}
}

// crashOnce runs a child, kills it, and notes what it said was acknowledged:
// at least one message when the kill is to be late.
func crashOnce(t *testing.T, rnd *rand.Rand, dir string, flush pocketmq.FlushMode, acked map[pocketmq.MessageQueue]map[int64]string, late bool, what string) (n int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashChild$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", crashEnv, flush, dir))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }() // it was killed

	// The moment: before it is ready in one of ten, else some time or some lines
	// later.
	delay := time.Duration(rnd.IntN(150_000)) * time.Microsecond
	lines, early := rnd.IntN(3000), rnd.IntN(10) == 0 && !late
	kill := func() { _ = cmd.Process.Kill() } // it may have gone already
	if early {
		time.AfterFunc(delay/5, kill)
	}
	in := bufio.NewReader(stdout)
	ready := false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break // a torn last line was not read as acknowledged either
		}
		if line = strings.TrimSpace(line); line == "ready" {
			ready = true
			if !early && !late {
				time.AfterFunc(delay, kill)
			}
			continue
		}
		var q int
		var offset int64
		var id string
		_, err = fmt.Sscanf(line, "acked %d %d %s", &q, &offset, &id)
		if err != nil { // a line of its testing package: it has failed
			rest, _ := io.ReadAll(in)
			t.Fatalf("%s: child says %q\n%s\n%s", what, line, rest, stderr.String())
		}
		mq := queue("T", "broker-a", q)
		if acked[mq] == nil {
			acked[mq] = make(map[int64]string)
		}
		if before, taken := acked[mq][offset]; taken {
			t.Fatalf("%s: offset %d of queue %d was acknowledged before, to %s", what, offset, q, before)
		}
		acked[mq][offset] = id
		if n++; n == lines {
			kill()
		}
		if n == 1 && late {
			time.AfterFunc(delay, kill)
		}
	}
	if !ready && !early {
		t.Errorf("%s: the child did not get ready: %s", what, stderr.String())
	}
	return n
}

func verifyCrash(t *testing.T, dir string, flush pocketmq.FlushMode, acked map[pocketmq.MessageQueue]map[int64]string, what string) {
	t.Helper()
	c, err := startCluster(t.Context(), t, crashConfig(dir, flush))
	require.NoError(t, err, what)
	assert.NoError(t, c.Broker("broker-a", 0).Check(t.Context()), what)
	for q, offsets := range acked {
		content := queueContent(t, c, q) // demands dense offsets
		for offset, id := range offsets {
			switch {
			case offset >= int64(len(content)):
				t.Fatalf("%s: acknowledged message %s of %v is lost: offset %d of %d", what, id, q, offset, len(content))
			case content[offset].id != id:
				t.Fatalf("%s: %v has message %s at offset %d, acknowledged was %s", what, q, content[offset].id, offset, id)
			}
		}
	}
	assert.NoError(t, c.Close(), what)
}

// TestCrashChild is the process that TestCrash kills: it sends without end and
// prints what is acknowledged.
func TestCrashChild(t *testing.T) {
	var flush pocketmq.FlushMode
	var dir string
	if _, err := fmt.Sscanf(os.Getenv(crashEnv), "%d %s", &flush, &dir); err != nil {
		return // not in a child
	}
	ctx := context.Background()
	c, err := startCluster(ctx, t, crashConfig(dir, flush))
	require.NoError(t, err)
	p, err := c.StartProducer(ctx, pocketmq.ProducerConfig{})
	require.NoError(t, err)
	fmt.Println("ready")
	failed := make(chan error)
	for i := range 4 {
		go func() {
			for n := 0; ; n++ {
				var res *pocketmq.SendResult
				var err error
				if i == 0 { // batches
					batch := make([]*pocketmq.Message, 1+n%20)
					for j := range batch {
						batch[j] = text("T", "%d %d %d %s", i, n, j, strings.Repeat("x", n%50))
					}
					res, err = p.SendBatch(ctx, batch)
				} else {
					res, err = p.Send(ctx, text("T", "%d %d %s", i, n, strings.Repeat("x", n%500)))
				}
				if err != nil {
					failed <- err
					return
				}
				ids := res.MsgIDs
				if ids == nil {
					ids = []string{res.MsgID}
				}
				var b strings.Builder
				for j, id := range ids {
					fmt.Fprintf(&b, "acked %d %d %s\n", res.Queue.QueueID, res.QueueOffset+int64(j), id)
				}
				fmt.Print(b.String())
			}
		}()
	}
	require.NoError(t, <-failed)
}
