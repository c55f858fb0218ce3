//go:build linux || darwin

package pocketmq_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestABrokerWithoutHandlesSaysSoAndIsRepairedByARestart(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	limit := func() func() {
		var l syscall.Rlimit
		require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
		was := l.Cur
		l.Cur = 0 // those that are open stay open
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l))
		return func() {
			l.Cur = was
			require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l))
		}
	}
	fenced := make(chan pocketmq.StoreFenced, 10)
	c := run(t, pocketmq.ClusterConfig{
		Dir: t.TempDir(), Topics: map[string]int{"T": 1},
		Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{CommitLogFileSize: 4096}}},
		OnEvent: func(e pocketmq.Event) {
			if e, ok := e.(pocketmq.StoreFenced); ok {
				fenced <- e
			}
		},
	})
	b := c.Broker("broker-a", 0)
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	acked := 0
	send := func() (err error) {
		if _, err = p.Send(ctx, text("T", "%s", strings.Repeat("x", 300))); err == nil {
			acked++
		}
		return err
	}
	require.NoError(t, send())
	restore := limit()
	var err error
	for err == nil {
		err = send()
	}
	st := b.Status()
	restore()
	require.ErrorIs(t, err, pocketmq.ErrFenced)
	assert.ErrorContains(t, err, syscall.EMFILE.Error())
	assert.ErrorIs(t, st.Err, pocketmq.ErrFenced)
	assert.ErrorIs(t, st.Err, syscall.EMFILE)
	assert.False(t, st.Writable)
	assert.Contains(t, st.Reason, b.Dir())
	select {
	case e := <-fenced:
		assert.ErrorIs(t, e.Err, syscall.EMFILE)
	case <-ctx.Done():
		t.Error("no StoreFenced event")
	}
	assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), acked, "reads go on")
	check(t, c)
	require.NoError(t, b.Close())
	require.NoError(t, c.Restart(ctx, "broker-a", 0))
	assert.NoError(t, c.Broker("broker-a", 0).Status().Err)
	for range 30 {
		require.NoError(t, send())
	}
	assert.Len(t, queueContent(t, c, queue("T", "broker-a", 0)), acked)
}
