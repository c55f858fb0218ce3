package pocketmq_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// unsynced keeps a broker from syncing while a test runs, so that nothing at the
// end of its log is proven to be synced.
var unsynced = pocketmq.Timings{FlushInterval: 24 * time.Hour}

// send sends numbered messages from first on to T's queue 0 of broker-a and
// demands dense offsets from at on.
func sendNumbered(t testing.TB, p *pocketmq.Producer, first, n int, at int64) {
	t.Helper()
	for i := range n {
		res, err := p.SendTo(context.Background(), queue("T", "broker-a", 0), text("T", "message %03d", first+i))
		require.NoError(t, err)
		require.Equal(t, at+int64(i), res.QueueOffset)
	}
}

// numbered are the bodies that sendNumbered sends.
func numbered(first, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("message %03d", first+i)
	}
	return out
}

// damage changes a file in place.
func damage(t testing.TB, path string, change func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, change(data), 0o600))
}

// flip changes one bit of the only occurrence of text in a broker's log.
func flip(t testing.TB, dir, text string) (file string) {
	t.Helper()
	for _, f := range logFiles(t, dir) {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		if i := bytes.Index(data, []byte(text)); i >= 0 {
			require.Empty(t, file, "%q is there once", text)
			data[i+len(text)-1] ^= 1
			require.NoError(t, os.WriteFile(f, data, 0o600))
			file = f
		}
	}
	require.NotEmpty(t, file, "%q is in the log", text)
	return file
}

func TestST01_ADamagedUnsyncedLastRecordIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Timings: unsynced})
		q := queue("T", "broker-a", 0)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 20, 0)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		flip(t, c.Broker("broker-a", 0).Dir(), "message 019")

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, 1, c.Broker("broker-a", 0).Status().Cut)
		assert.Equal(t, numbered(0, 19), bodiesOf(queueContent(t, c, q)))
		sendNumbered(t, p, 20, 5, 19)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Zero(t, c.Broker("broker-a", 0).Status().Cut)
		assert.Equal(t, append(numbered(0, 19), numbered(20, 5)...), bodiesOf(queueContent(t, c, q)))
		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
		synctest.Wait()
		assert.Len(t, in.arrivals(), 24)
	})
}

func TestST01_ADamagedSyncedRecordOpensReadOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var events eventLog
		c, err := startCluster(t.Context(), t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Topics: map[string]int{"T": 1}, OnEvent: events.add,
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{Flush: pocketmq.SyncFlush}}},
		})
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 20, 0)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		file := flip(t, c.Broker("broker-a", 0).Dir(), "message 009")
		before, err := os.ReadFile(file)
		require.NoError(t, err)

		require.NoError(t, c.Restart(t.Context(), "broker-a", 0), "it opens")
		b := c.Broker("broker-a", 0)
		st := b.Status()
		assert.False(t, st.Writable)
		assert.Zero(t, st.Cut)
		assert.ErrorIs(t, st.Err, pocketmq.ErrFenced)
		for _, text := range []string{st.Reason, st.Err.Error()} {
			assert.Contains(t, text, file, "the file")
			assert.Contains(t, text, "10", "the position")
		}
		_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "refused"))
		assert.ErrorIs(t, err, pocketmq.ErrFenced)
		assert.ErrorContains(t, err, file)
		assert.Error(t, b.Check(t.Context()), "Check tells")

		// What lies before the damage is served.
		conn := dial(t, c, "broker-a")
		resp, err := conn.PullMessage(t.Context(), &protocol.PullMessageRequest{
			Group: "probe", Topic: "T", MaxMessages: 9, HasExpression: true, Expression: "*",
		})
		require.NoError(t, err)
		assert.Equal(t, protocol.Success, resp.Code)
		assert.Len(t, resp.Records, 9)

		require.NoError(t, c.Close())
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, before, after, "nothing is changed or cut")
	})
}

func TestST02_ACutLogTakesItsQueueEntriesWithIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Timings: unsynced,
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{CommitLogFileSize: 4096}}},
		})
		dir := c.Broker("broker-a", 0).Dir()
		q := queue("T", "broker-a", 0)
		p := producer(t, c, pocketmq.ProducerConfig{})
		var want []string
		send := func(n int) {
			t.Helper()
			sendNumbered(t, p, len(want), n, int64(len(want)))
			want = append(want, numbered(len(want), n)...)
		}
		// cut kills the broker and takes the last records from its log.
		cut := func() {
			t.Helper()
			check(t, c)
			require.NoError(t, c.Kill("broker-a", 0))
			files := logFiles(t, dir)
			require.Greater(t, len(files), 3, "the log has rolled")
			n := 0
			damage(t, files[len(files)-1], func(data []byte) []byte {
				all := entries(t, data)
				n = min(3, len(all)-1) // the header stays
				return data[:all[len(all)-n].start]
			})
			require.Positive(t, n)
			want = want[:len(want)-n]
		}
		send(200)
		cut()
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, want, bodiesOf(queueContent(t, c, q)))
		send(100)
		cut()
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Equal(t, want, bodiesOf(queueContent(t, c, q)), "no gap, no duplicate")
		check(t, c)
		send(10)
		assert.Equal(t, want, bodiesOf(queueContent(t, c, q)))
	})
}

func TestDerivedFoldersMayBeDeletedOrStale(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir, old string){
		"deleted": func(t *testing.T, dir, _ string) {
			for _, name := range []string{"consumequeue", "checkpoint", "LOCK"} {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
			}
		},
		"older copies": func(t *testing.T, dir, old string) {
			for _, name := range []string{"consumequeue", "checkpoint"} {
				require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
				if _, err := os.Stat(filepath.Join(old, name)); err == nil {
					copyTree(t, filepath.Join(old, name), filepath.Join(dir, name))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1, "U": 2}})
				b := c.Broker("broker-a", 0)
				p := producer(t, c, pocketmq.ProducerConfig{})
				sendNumbered(t, p, 0, 50, 0)
				time.Sleep(time.Minute) // checkpoints
				check(t, c)
				require.NoError(t, b.Close())
				old := filepath.Join(t.TempDir(), "old")
				copyTree(t, b.Dir(), old)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				sendNumbered(t, p, 50, 50, 50)
				check(t, c)
				require.NoError(t, c.Kill("broker-a", 0))
				change(t, b.Dir(), old)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				assert.Equal(t, numbered(0, 100), bodiesOf(queueContent(t, c, queue("T", "broker-a", 0))))
				sendNumbered(t, p, 100, 1, 100)
			})
		})
	}
}

// copyTree copies a file or a folder.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	require.NoError(t, err)
	if info.IsDir() {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, data, 0o600))
}

func TestST07_TornStateFilesFallBackToTheLastGoodOnes(t *testing.T) {
	tear := map[string]func(data []byte) []byte{
		"cut in half":       func(data []byte) []byte { return data[:len(data)/2] },
		"zeroed":            func(data []byte) []byte { return make([]byte, len(data)) },
		"empty":             func([]byte) []byte { return nil },
		"with a stale tail": func(data []byte) []byte { return append(data, data[len(data)/2:]...) },
	}
	for name, tear := range tear {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
				dir := c.Broker("broker-a", 0).Dir()
				q := queue("T", "broker-a", 0)
				p := producer(t, c, pocketmq.ProducerConfig{})
				conn := dial(t, c, "broker-a")
				commit := func(group string, offset int64) {
					_, err := conn.Heartbeat(t.Context(), &protocol.HeartbeatRequest{ClientID: group, Consumers: []protocol.ConsumerData{{Group: group}}})
					require.NoError(t, err)
					_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: group, Topic: "T", Offset: offset})
					require.NoError(t, err)
				}
				committed := func(group string) int64 {
					g, ok := c.Broker("broker-a", 0).Group(group)
					require.True(t, ok)
					return g.Queues[0].Committed
				}
				sendNumbered(t, p, 0, 20, 0)
				for i := range 100 {
					commit(fmt.Sprint("group-", i), 10)
				}
				time.Sleep(6 * time.Second)
				commit("group-0", 15)
				time.Sleep(6 * time.Second)
				require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "U", ReadQueues: 3}))
				require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "V", ReadQueues: 3}))
				check(t, c)
				require.NoError(t, c.Kill("broker-a", 0))

				offsets, topics := filepath.Join(dir, "config", "consumerOffset.json"), filepath.Join(dir, "config", "topics.json")
				damage(t, offsets, tear)
				damage(t, topics, tear)
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				assert.Contains(t, []int64{10, 15}, committed("group-0"), "the last or the last but one")
				for i := 1; i < 100; i++ {
					assert.Equal(t, int64(10), committed(fmt.Sprint("group-", i)))
				}
				route, err := c.Admin().Route(t.Context(), "U")
				require.NoError(t, err)
				assert.Equal(t, 3, route.Queues[0].ReadQueues)
				assert.Equal(t, numbered(0, 20), bodiesOf(queueContent(t, c, q)))

				// It works on: the next state is persisted whole.
				conn = dial(t, c, "broker-a")
				commit("group-0", 20)
				time.Sleep(6 * time.Second)
				check(t, c)
				require.NoError(t, c.Kill("broker-a", 0))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				assert.Equal(t, int64(20), committed("group-0"))
				check(t, c)

				// With the backup damaged too it says so, and what to do.
				for _, file := range []string{offsets, topics} {
					require.NoError(t, c.Kill("broker-a", 0))
					var saved [][]byte
					for _, f := range []string{file, file + ".bak"} {
						data, err := os.ReadFile(f)
						require.NoError(t, err)
						saved = append(saved, data)
						damage(t, f, tear)
					}
					err = c.Restart(t.Context(), "broker-a", 0)
					require.Error(t, err)
					assert.ErrorContains(t, err, file)
					for i, f := range []string{file, file + ".bak"} {
						require.NoError(t, os.WriteFile(f, saved[i], 0o600))
					}
					require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
				}
			})
		})
	}
}

func TestST10_ATornLastWriteIsCutAtAnyByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One folder with 3 messages, as a crash leaves it.
		root := t.TempDir()
		cfg := pocketmq.ClusterConfig{Dir: root, Topics: map[string]int{"T": 1}, Timings: unsynced}
		c, err := startCluster(t.Context(), t, cfg)
		require.NoError(t, err)
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 3, 0)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Close())

		files := logFiles(t, filepath.Join(root, "broker-a-0"))
		require.Len(t, files, 1)
		segment, err := filepath.Rel(root, files[0])
		require.NoError(t, err)
		data, err := os.ReadFile(files[0])
		require.NoError(t, err)
		all := entries(t, data)
		require.Len(t, all, 4, "the header and 3 records")
		last := all[3]
		size := last.end - last.start
		var lengths []int
		for k := 1; k <= size; k += 5 { // package store tries every byte
			lengths = append(lengths, k)
		}
		lengths = append(lengths, 2, size-1, size)
		slices.Sort(lengths)
		for _, k := range slices.Compact(lengths) {
			for name, tear := range map[string]func([]byte) []byte{
				"cut":    func(data []byte) []byte { return data[:len(data)-k] },
				"zeroed": func(data []byte) []byte { clear(data[len(data)-k:]); return data },
			} {
				what := fmt.Sprintf("the last %d of %d bytes %s", k, size, name)
				cfg.Dir = filepath.Join(t.TempDir(), "copy")
				copyTree(t, root, cfg.Dir)
				damage(t, filepath.Join(cfg.Dir, segment), tear)
				for _, want := range []int{2, 3} { // torn, then with one message more
					c, err := startCluster(t.Context(), t, cfg)
					require.NoError(t, err, what)
					assert.Equal(t, want, len(queueContent(t, c, queue("T", "broker-a", 0))), what)
					if want == 2 {
						p := producer(t, c, pocketmq.ProducerConfig{})
						sendNumbered(t, p, 2, 1, 2)
					}
					check(t, c)
					require.NoError(t, c.Close(), what)
				}
				require.NoError(t, os.RemoveAll(cfg.Dir))
			}
		}
	})
}

func TestST10_AnEmptyLastFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Timings: unsynced})
		p := producer(t, c, pocketmq.ProducerConfig{})
		sendNumbered(t, p, 0, 3, 0)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		damage(t, logFiles(t, c.Broker("broker-a", 0).Dir())[0], func([]byte) []byte { return nil })
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		assert.Empty(t, queueContent(t, c, queue("T", "broker-a", 0)), "nothing was synced")
		sendNumbered(t, p, 0, 3, 0)
	})
}

// A committed offset beyond the end of a log that was cut would skip messages.
func TestCommittedOffsetsAreLoweredToTheEndOfACutLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}, Timings: unsynced})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var in inbox
		cfg := pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")}
		co := consumer(t, c, cfg)
		sendNumbered(t, p, 0, 10, 0)
		time.Sleep(11 * time.Second)
		require.NoError(t, co.Close())
		time.Sleep(6 * time.Second)
		check(t, c)
		require.NoError(t, c.Kill("broker-a", 0))
		damage(t, logFiles(t, c.Broker("broker-a", 0).Dir())[0], func(data []byte) []byte {
			all := entries(t, data)
			return data[:all[len(all)-4].start]
		})
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		g, ok := c.Broker("broker-a", 0).Group("g")
		require.True(t, ok)
		assert.Equal(t, int64(6), g.Queues[0].Committed)
		sendNumbered(t, p, 100, 4, 6)
		consumer(t, c, cfg)
		synctest.Wait()
		var got []string
		for _, a := range in.arrivals()[10:] {
			got = append(got, string(a.msg.Body))
		}
		slices.Sort(got)
		assert.Equal(t, numbered(100, 4), got, "exactly the new ones")
	})
}
