//go:build linux || darwin

package pocketmq_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

// inOwnProcess runs the test in a process of its own, because it changes limits
// that all of a process share. It is true in there.
func inOwnProcess(t *testing.T) bool {
	const env = "POCKETMQ_TEST_OWN_PROCESS"
	if os.Getenv(env) == t.Name() {
		return true
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.Name(), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return false
}

// limitFiles sets the size beyond which no file of this process grows.
func limitFiles(t *testing.T, bytes uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = bytes
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

func TestAFailedWriteIsToldToEverybodyWhoAsks(t *testing.T) {
	if !inOwnProcess(t) {
		return
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
	limitFiles(t, 100_000)
	var err error
	acked := 0
	for err == nil {
		if _, err = p.Send(ctx, text("T", "%s", strings.Repeat("x", 1000))); err == nil {
			acked++
		}
	}
	limitFiles(t, 1<<40)
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

func TestST09_AFencedBrokerGoesOnByItselfWhenThereIsSpace(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	for _, flush := range []pocketmq.FlushMode{pocketmq.AsyncFlush, pocketmq.SyncFlush} {
		synctest.Test(t, func(t *testing.T) {
			events := make(chan pocketmq.Event, 10)
			cfg := oneQueue(t, pocketmq.BrokerConfig{Flush: flush})
			cfg.OnEvent = func(e pocketmq.Event) {
				switch e.(type) {
				case pocketmq.StoreFenced, pocketmq.StoreRepaired:
					events <- e
				}
			}
			c := run(t, cfg)
			p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
			var in inbox
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c"), From: pocketmq.FromFirstOffset})
			acked := map[string]bool{}
			send := func(n int) {
				for range n {
					body := fmt.Sprint(len(acked), strings.Repeat("x", 1000))
					if _, err := p.Send(t.Context(), text("T", "%s", body)); err == nil {
						acked[body] = true
					}
				}
			}
			send(10)
			limitFiles(t, 50_000)
			send(100) // during the episode
			require.Less(t, len(acked), 60)
			assert.False(t, c.Broker("broker-a", 0).Status().Writable)
			time.Sleep(time.Minute)
			limitFiles(t, 1<<40)
			time.Sleep(10 * time.Second) // one look at the disk
			synctest.Wait()
			st := c.Broker("broker-a", 0).Status()
			assert.True(t, st.Writable, st.Reason)
			before := len(acked)
			send(100)
			assert.Len(t, acked, before+100)
			time.Sleep(time.Minute)
			got := map[string]int{}
			for _, a := range in.arrivals() {
				got[string(a.msg.Body)]++
			}
			for body := range acked {
				assert.Equal(t, 1, got[body], body[:4])
			}
			require.Len(t, events, 2)
			require.IsType(t, pocketmq.StoreFenced{}, <-events)
			require.IsType(t, pocketmq.StoreRepaired{}, <-events)
			stop(t, c)
		})
	}
}
