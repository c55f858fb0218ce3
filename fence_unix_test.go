//go:build linux || darwin

package pocketmq_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestAFailedWriteIsToldToEverybodyWhoAsks(t *testing.T) {
	const env = "POCKETMQ_TEST_FENCE"
	if os.Getenv(env) == "" { // the limit below is one of a process
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	limitFiles := func(bytes uint64) {
		var limit syscall.Rlimit
		require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
		limit.Cur = bytes
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	}
	fenced := make(chan pocketmq.StoreFenced, 10)
	c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, OnEvent: func(e pocketmq.Event) {
		if e, ok := e.(pocketmq.StoreFenced); ok {
			fenced <- e
		}
	}})
	b := c.Broker("broker-a", 0)
	require.NoError(t, b.Status().Err)
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	limitFiles(100_000)
	var err error
	acked := 0
	for err == nil {
		if _, err = p.Send(ctx, text("T", "%s", strings.Repeat("x", 1000))); err == nil {
			acked++
		}
	}
	limitFiles(1 << 40)
	require.ErrorIs(t, err, pocketmq.ErrFenced)
	select {
	case e := <-fenced:
		assert.Equal(t, "broker-a/0", e.Node)
		assert.ErrorIs(t, e.Err, pocketmq.ErrFenced)
		assert.ErrorIs(t, e.Err, syscall.EFBIG)
	case <-ctx.Done():
		t.Error("no StoreFenced event")
	}
	st := b.Status()
	assert.ErrorIs(t, st.Err, pocketmq.ErrFenced)
	assert.ErrorIs(t, st.Err, syscall.EFBIG)
	assert.False(t, st.Writable)
	assert.NotEmpty(t, st.Reason)
	_, err = p.Send(ctx, text("T", "late"))
	assert.ErrorIs(t, err, pocketmq.ErrFenced, "it stays so")
	assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), acked, "reads go on")

	check(t, c)
	require.NoError(t, b.Close())
	require.NoError(t, c.Restart(ctx, "broker-a", 0))
	assert.NoError(t, c.Broker("broker-a", 0).Status().Err)
	assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), acked)
	_, err = p.Send(ctx, text("T", "again"))
	assert.NoError(t, err)
	assert.Empty(t, fenced, "one event")
}
