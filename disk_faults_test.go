package pocketmq_test

import (
	"context"
	"path/filepath"
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
				assert.ErrorIs(t, st.Err, pocketmq.ErrDiskFull)
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

// A broker's state files lie on the disk that is slow, too. Who changes one waits for
// it; nobody else does.
func TestASlowDiskMakesStateFilesSlowAndHoldsUpNobodyElse(t *testing.T) {
	const slow = 800 * time.Millisecond // six of it are less than AdminConfig.Timeout
	for name, x := range map[string]struct {
		dir  func(*testing.T) string
		want time.Duration // of a save: a write, and syncs of the file and of its folder
	}{
		"throwaway": {func(*testing.T) string { return "" }, slow},
		"kept":      {func(t *testing.T) string { return t.TempDir() }, 3 * slow},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: x.dir(t), Topics: map[string]int{"T": 1}})
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second})
				_, err := p.Send(t.Context(), text("T", "a"))
				require.NoError(t, err)
				in := &inbox{}
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
				time.Sleep(10 * time.Second)
				require.Equal(t, []string{"a"}, in.bodies())
				require.NoError(t, c.SlowDisk("broker-a", 0, slow))
				begin := time.Now()
				took := func(do func() error) chan time.Duration {
					done := make(chan time.Duration, 1)
					go func() {
						begin := time.Now()
						assert.NoError(t, do())
						done <- time.Since(begin)
					}()
					return done
				}
				create := func(topic string) func() error {
					return func() error { return c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: topic}) }
				}
				one, two := took(create("U")), took(create("V"))
				group := took(func() error {
					return c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "h"})
				})
				time.Sleep(time.Second / 10)
				assert.Equal(t, slow, <-took(func() error { _, err := p.Send(t.Context(), text("T", "b")); return err }), "its own write")
				assert.Equal(t, []string{"a", "b"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))), "read at once")
				assert.LessOrEqual(t, time.Since(begin), slow+200*time.Millisecond)
				first, second := <-one, <-two
				assert.ElementsMatch(t, []time.Duration{x.want, 2 * x.want}, []time.Duration{first, second}, "one file, one save after the other")
				assert.Equal(t, x.want, <-group, "another file")

				// Commits and first uses of groups are in memory, whatever the disk does.
				consumer(t, c, pocketmq.ConsumerConfig{Group: "i", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
				time.Sleep(30 * time.Second)
				for _, group := range []string{"g", "i"} {
					st, ok := c.Broker("broker-a", 0).Group(group)
					require.True(t, ok, group)
					for _, q := range st.Queues {
						assert.Zero(t, q.Lag, "%s: %v", group, q.Queue)
					}
				}

				// It does not hold up the end.
				told := make(chan error, 1)
				go func() { told <- create("W")() }()
				time.Sleep(time.Second / 2)
				begin = time.Now()
				require.NoError(t, c.Kill("broker-a", 0))
				assert.Zero(t, time.Since(begin))
				<-told // it was told, or not
			})
		})
	}
}

// What is committed while there is no space is in memory, and stored once there is.
func TestOffsetsThatAreCommittedOnAFullDiskAreStoredLater(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *pocketmq.Cluster){
		"kill":      func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.Kill("broker-a", 0)) },
		"power off": func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.PowerOff("broker-a", 0)) },
		"close":     func(t *testing.T, c *pocketmq.Cluster) { require.NoError(t, c.Broker("broker-a", 0).Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Groups: syncFlush()})
				p := producer(t, c, pocketmq.ProducerConfig{})
				for i := range 3 {
					_, err := p.Send(t.Context(), text("T", "%d", i))
					require.NoError(t, err)
				}
				m := text("T", "delayed")
				m.DelayLevel = 3 // 10 s
				_, err := p.Send(t.Context(), m)
				require.NoError(t, err)
				time.Sleep(9 * time.Second)
				in, full := &inbox{}, make(chan struct{})
				take := in.handler("c")
				consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error {
					<-full
					return take(ctx, msgs)
				}})
				folder := filepath.Join(c.Broker("broker-a", 0).Dir(), "config")
				require.NoError(t, c.FullDisk("broker-a", 0, true))
				before := tree(t, folder)
				close(full)
				time.Sleep(time.Minute)
				committed := func() (at int64, known bool) {
					st, _ := c.Broker("broker-a", 0).Group("g")
					for _, q := range st.Queues {
						if q.Queue.Topic == "T" {
							return q.Committed, true
						}
					}
					return 0, false
				}
				at, _ := committed()
				assert.Equal(t, int64(3), at)
				assert.Equal(t, before, tree(t, folder), "nothing can be written")
				require.ErrorContains(t, c.Admin().CreateGroup(t.Context(), pocketmq.GroupConfig{Name: "h"}), "no space left on device")

				require.NoError(t, c.FullDisk("broker-a", 0, false))
				time.Sleep(time.Minute)
				assert.Equal(t, []string{"0", "1", "2", "delayed"}, in.bodies())
				end(t, c)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				at, known := committed()
				assert.True(t, known)
				assert.Equal(t, int64(4), at)
				time.Sleep(2 * time.Minute)
				assert.Equal(t, []string{"0", "1", "2", "delayed"}, in.bodies(), "each once")
			})
		})
	}
}

// What was written has its space: a full disk syncs it, and a loss of power leaves it.
func TestAFullDiskSyncsWhatIsWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, oneTry)
		_, err := p.Send(t.Context(), text("T", "written"))
		require.NoError(t, err)
		require.NoError(t, c.FullDisk("broker-a", 0, true))
		time.Sleep(5 * time.Second)
		assert.Equal(t, int64(1), c.Broker("broker-a", 0).Status().SyncedPosition)
		require.NoError(t, c.PowerOff("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, []string{"written"}, bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
	})
}
