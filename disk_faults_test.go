package pocketmq_test

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
)

func TestASlowDiskMakesSendsSlow(t *testing.T) {
	for flush, want := range map[pocketmq.FlushMode]time.Duration{pocketmq.SyncFlush: 2 * time.Second, pocketmq.AsyncFlush: time.Second} {
		t.Run(map[bool]string{true: "sync", false: "async"}[flush == pocketmq.SyncFlush], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: []pocketmq.BrokerGroup{
					{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: flush}},
				}})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second})
				send := func() time.Duration {
					begin := time.Now()
					_, err := p.Send(t.Context(), text("T", "x"))
					require.NoError(t, err)
					return time.Since(begin)
				}
				assert.Zero(t, send())
				require.NoError(t, c.SlowDisk("broker-a", 0, time.Second))
				time.Sleep(time.Second)
				assert.Equal(t, want, send())
				time.Sleep(10 * time.Second)
				require.NoError(t, c.Kill("broker-a", 0))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				time.Sleep(10 * time.Second)
				assert.GreaterOrEqual(t, send(), want, "the same disk; a file that is begun takes longer")
				require.NoError(t, c.SlowDisk("broker-a", 0, 0))
				time.Sleep(time.Second)
				assert.Zero(t, send())
			})
		})
	}
}

func TestABrokerOnAFullDiskServesReadsAndRecovers(t *testing.T) {
	for name, dir := range map[string]func(*testing.T) string{
		"throwaway": func(*testing.T) string { return "" },
		"kept":      func(t *testing.T) string { return t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var log eventLog
				c := run(t, pocketmq.ClusterConfig{Dir: dir(t), Topics: map[string]int{"T": 1}, OnEvent: log.add})
				p := producer(t, c, oneTry)
				q := queue("T", "broker-a", 0)
				_, err := p.Send(t.Context(), text("T", "a"))
				require.NoError(t, err)
				require.NoError(t, c.FullDisk("broker-a", 0, true))
				_, err = p.Send(t.Context(), text("T", "refused"))
				require.ErrorIs(t, err, pocketmq.ErrDiskFull)
				st := c.Broker("broker-a", 0).Status()
				assert.False(t, st.Writable)
				assert.ErrorIs(t, st.Err, syscall.ENOSPC)
				assert.Equal(t, []string{"a"}, bodiesOf(queueContent(t, c, q)))
				err = c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U"})
				require.ErrorContains(t, err, "no space left on device")
				time.Sleep(time.Minute)
				_, err = p.Send(t.Context(), text("T", "refused"))
				require.ErrorIs(t, err, pocketmq.ErrDiskFull)

				require.NoError(t, c.FullDisk("broker-a", 0, false))
				time.Sleep(30 * time.Second)
				synctest.Wait()
				_, err = p.Send(t.Context(), text("T", "b"))
				require.NoError(t, err)
				require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U"}))
				assert.Equal(t, []string{"a", "b"}, bodiesOf(queueContent(t, c, q)))
				require.NotEmpty(t, eventsOf[pocketmq.StoreFenced](&log))
				assert.ErrorIs(t, eventsOf[pocketmq.StoreFenced](&log)[0].Err, pocketmq.ErrDiskFull)
				assert.NotEmpty(t, eventsOf[pocketmq.StoreRepaired](&log))
			})
		})
	}
}

func TestAFullDiskIsSeenBeforeAnythingFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, oneTry)
		require.NoError(t, c.FullDisk("broker-a", 0, true))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, err := p.Send(t.Context(), text("T", "refused"))
		require.ErrorIs(t, err, pocketmq.ErrDiskFull)
		assert.NotErrorIs(t, err, pocketmq.ErrFenced)

		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0), "it opens, and serves reads")
		_, err = p.Send(t.Context(), text("T", "refused"))
		require.ErrorIs(t, err, pocketmq.ErrDiskFull)
		require.NoError(t, c.Close(), "which ends the fault first")
	})
}
