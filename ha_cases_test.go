package pocketmq_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// duo is a group of a master and a slave that elects, asynchronous or not.
func duo(cfg pocketmq.BrokerConfig) []pocketmq.BrokerGroup {
	cfg.Failover = true
	return pair(1, cfg)
}

// counted are the bodies "0" to n-1 in order.
func counted(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = strconv.Itoa(i)
	}
	return out
}

// killAndElect kills the master, and waits until another one is master.
func killAndElect(t *testing.T, c *pocketmq.Cluster) int64 {
	t.Helper()
	old := masterOf(c)
	require.NoError(t, c.Kill("broker-a", old))
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if m := masterOf(c); m >= 0 && m != old {
			return m
		}
		require.Less(t, time.Since(begin), 7*time.Second, "LeaseExpire + 2 x LeaseRenew")
	}
}

func TestHA01_BytesAtThePortOfSlavesCountForNothing(t *testing.T) {
	offset := func(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	for name, bytes := range map[string][]byte{
		"an offset beyond the end": offset(1 << 20), "-1": offset(-1), "the largest offset": offset(math.MaxInt64),
		"three bytes, then silence": {0, 0, 1}, "nothing": {}, "a text": []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication}), Topics: map[string]int{"T": 1}})
				synctest.Wait()
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second})
				replicated(t, p, 0, 1)
				at := c.Broker("broker-a", 1).Status().Master.Addr
				require.NoError(t, c.Kill("broker-a", 1))
				conn, err := c.Transport().DialStream(t.Context(), protocol.Dial{Node: "stranger", Addr: at})
				require.NoError(t, err)
				begun := time.Now()
				_, err = conn.Write(bytes)
				require.NoError(t, err)
				synctest.Wait()
				for range 2 {
					r, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "x"))
					require.Error(t, err)
					require.NotNil(t, r)
					assert.NotEqual(t, pocketmq.SendOK, r.Status)
				}
				_, err = io.Copy(io.Discard, conn)
				assert.True(t, err == nil || !errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
				assert.LessOrEqual(t, time.Since(begun), 25*time.Second, "the housekeeping time, and what the sends have taken")
				require.NoError(t, conn.Close())

				require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
				time.Sleep(time.Second)
				replicated(t, p, 3, 1)
				assert.Equal(t, []string{"0", "x", "x", "3"}, logsAgree(t, c, time.Second))
			})
		})
	}
}

func TestHA02_ASlaveThatWasAwayForTooLongBeginsAnew(t *testing.T) {
	for _, failover := range []bool{false, true} {
		t.Run(strconv.FormatBool(failover), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var events eventLog
				cfg := pocketmq.BrokerConfig{Failover: failover, CommitLogFileSize: 4 << 10, RetentionBytes: 16 << 10}
				c := run(t, pocketmq.ClusterConfig{Groups: pair(2, cfg), Topics: map[string]int{"T": 1}, OnEvent: events.add})
				p := producer(t, c, pocketmq.ProducerConfig{})
				time.Sleep(time.Second)
				replicated(t, p, 0, 10)
				time.Sleep(time.Second)
				require.NoError(t, c.Kill("broker-a", 2))
				for i := range 40 {
					replicated(t, p, 10+10*i, 10)
					time.Sleep(time.Second) // what is too old goes
				}
				require.Greater(t, c.Broker("broker-a", 0).Status().MinPosition, int64(11))
				require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
				time.Sleep(10 * time.Second)
				replicated(t, p, 410, 1)
				time.Sleep(2 * time.Second)
				master, slave := c.Broker("broker-a", 0).Status(), c.Broker("broker-a", 2).Status()
				assert.Equal(t, master.WrittenPosition, slave.WrittenPosition, "%+v", slave)
				assert.Equal(t, master.WrittenPosition, slave.DispatchedPosition)
				require.Len(t, eventsOf[pocketmq.LogRestarted](&events), 1)
				assert.Equal(t, int64(10), eventsOf[pocketmq.LogRestarted](&events)[0].From)

				// From its first message on the slave has what the master has.
				first := slave.MinPosition - 1
				conn := dialMember(t, c, "broker-a", 2)
				for next := first; next <= 410; next++ {
					r, err := pull(t.Context(), conn, next, "*")
					require.NoError(t, err)
					require.NotEmpty(t, r.Records, "at %d", next)
				}
				if failover { // it may be elected again
					for begin := time.Now(); !inSyncAt(c, 0, 2); time.Sleep(100 * time.Millisecond) {
						require.Less(t, time.Since(begin), 30*time.Second)
					}
				}
			})
		})
	}
}

func inSyncAt(c *pocketmq.Cluster, master, id int64) bool {
	for _, s := range c.Broker("broker-a", master).Status().Slaves {
		if s.ID == id {
			return s.InSync
		}
	}
	return false
}

// The second variant: the slave's log is the longer one, since the master lost power.
func TestHA02_ASlaveThatIsAheadGivesUpWhatItsMasterLost(t *testing.T) {
	for name, full := range map[string]bool{"at once": false, "once its disk has space": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { aheadOfItsMaster(t, full) })
		})
	}
}

// And the master was full when it started, so that its epoch began later: no message comes
// before that.
func TestHA02_AMasterThatStartsOnAFullDiskAppendsNothingBeforeItsEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for wait := range 20 {
			c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, Dir: t.TempDir()})
			p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
			replicated(t, p, 0, 5)
			time.Sleep(1100 * time.Millisecond)
			replicated(t, p, 5, 5)
			synctest.Wait()
			require.NoError(t, c.PowerOff("broker-a", 0))
			require.NoError(t, c.Kill("broker-a", 1))
			require.NoError(t, c.FullDisk("broker-a", 0, true))
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			time.Sleep(time.Duration(wait) * 100 * time.Millisecond)
			require.NoError(t, c.FullDisk("broker-a", 0, false))
			end := c.Broker("broker-a", 0).Status().WrittenPosition
			require.Less(t, end, int64(10))
			for err := errors.New("not sent"); err != nil; time.Sleep(10 * time.Millisecond) {
				_, err = p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "10"))
			}
			assert.Equal(t, end+1, c.Broker("broker-a", 0).Status().WrittenPosition)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 1))
			assert.Equal(t, append(counted(int(end)), "10"), logsAgree(t, c, 10*time.Second))
			require.NoError(t, c.Close())
		}
	})
}

func aheadOfItsMaster(t *testing.T, full bool) {
	var events eventLog
	c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}, Dir: t.TempDir(), OnEvent: events.add})
	p := producer(t, c, pocketmq.ProducerConfig{Retries: pocketmq.NoRetries})
	replicated(t, p, 0, 5)
	time.Sleep(1100 * time.Millisecond) // the log is synced each 500 ms, and not just when what follows is written
	replicated(t, p, 5, 5)
	synctest.Wait()
	require.Equal(t, int64(10), c.Broker("broker-a", 1).Status().WrittenPosition)
	require.NoError(t, c.PowerOff("broker-a", 0))
	require.NoError(t, c.FullDisk("broker-a", 1, full))
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	time.Sleep(6 * time.Second)
	require.NoError(t, c.FullDisk("broker-a", 1, false))
	time.Sleep(11 * time.Second)
	lost := 10 - c.Broker("broker-a", 0).Status().WrittenPosition
	require.Positive(t, lost)
	time.Sleep(31 * time.Second) // routes have been refreshed
	replicated(t, p, 10, 1)
	want := append(counted(int(10-lost)), "10")
	assert.Equal(t, want, logsAgree(t, c, 2*time.Second))
	require.Len(t, eventsOf[pocketmq.Truncated](&events), 1)
	assert.Equal(t, int64(10), eventsOf[pocketmq.Truncated](&events)[0].From)
}

func TestHA03_OffsetsBeyondTheLogOfTheNewMasterAreLowered(t *testing.T) {
	for _, live := range []bool{false, true} {
		name := "between two lives of the consumer"
		if live {
			name = "under a consumer that runs"
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var before, after inbox
				now := &before
				c := run(t, pocketmq.ClusterConfig{Groups: duo(pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
				start := func() *pocketmq.Consumer {
					return consumer(t, c, pocketmq.ConsumerConfig{
						Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset,
						Handler: func(ctx context.Context, msgs []*pocketmq.MessageExt) error { return now.handler("c")(ctx, msgs) },
					})
				}
				inSync(t, c, 1)
				co := start()
				p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
				replicated(t, p, 0, 90)
				time.Sleep(20 * time.Second) // offsets are committed and copied
				links(t, c).Drop("broker-a/0", "broker-a/1")
				replicated(t, p, 90, 10)
				time.Sleep(30 * time.Second) // the slave is not in sync any more
				require.Len(t, before.bodies(), 100)
				if !live {
					require.NoError(t, co.Close())
				}
				committed, err := c.Broker("broker-a", 0).Group("g")
				require.True(t, err)
				require.Equal(t, int64(100), committed.Queues[0].Committed)
				require.NoError(t, c.Kill("broker-a", 0))
				links(t, c).HealAll()
				time.Sleep(10 * time.Second)
				require.Equal(t, int64(-1), masterOf(c), "nobody is elected who lacks what was in sync")
				now = &after
				synctest.Wait()
				require.NoError(t, c.ElectUnclean(t.Context(), "broker-a", 1))
				g, _ := c.Broker("broker-a", 1).Group("g")
				assert.LessOrEqual(t, g.Queues[0].Committed, int64(90))
				assert.Equal(t, int64(90), g.Queues[0].Max)
				time.Sleep(31 * time.Second)
				replicated(t, p, 100, 20)
				if !live {
					start()
				}
				time.Sleep(time.Minute)
				var want []string
				for i := range 20 {
					want = append(want, strconv.Itoa(100+i))
				}
				assert.ElementsMatch(t, want, after.bodies(), "each of them once")
				g, _ = c.Broker("broker-a", 1).Group("g")
				assert.Equal(t, int64(110), g.Queues[0].Committed)
			})
		})
	}
}

func TestHA04_ProgressMadeAtASlaveSurvivesTheReturnOfItsMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		start := func() *pocketmq.Consumer {
			return consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
		}
		replicated(t, p, 0, 40)
		co := start()
		time.Sleep(10 * time.Second)
		require.NoError(t, co.Close())
		require.Len(t, in.bodies(), 40)
		replicated(t, p, 40, 60)
		time.Sleep(10 * time.Second) // the slave has the log and the offsets
		require.NoError(t, c.Kill("broker-a", 0))
		start()
		time.Sleep(time.Minute)
		require.Len(t, in.bodies(), 100, "40 from the master, 60 from the slave")
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		time.Sleep(time.Minute)
		assert.Len(t, in.bodies(), 100, "nothing comes again")
		for id := range int64(2) {
			g, ok := c.Broker("broker-a", id).Group("g")
			require.True(t, ok)
			assert.Equal(t, int64(100), g.Queues[0].Committed, "at %d", id)
		}
	})
}

// errorCount counts what is logged as an error.
type errorCount struct {
	slog.Handler
	n *atomic.Int64
}

func (h errorCount) Enabled(context.Context, slog.Level) bool { return true }
func (h errorCount) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h errorCount) WithGroup(string) slog.Handler            { return h }
func (h errorCount) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.n.Add(1)
	}
	return nil
}

func TestHA06_OnlyWholeRecordsAreReadFromASlave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		count := errorCount{n: new(atomic.Int64)}
		cfg := pocketmq.BrokerConfig{Replication: pocketmq.SyncReplication, HATransferBytes: 1 << 10, MinInSyncReplicas: 1}
		c := run(t, pocketmq.ClusterConfig{Groups: duo(cfg), Topics: map[string]int{"T": 1}, Logger: slog.New(count), Timings: pocketmq.Timings{HARedial: 200 * time.Millisecond}})
		inSync(t, c, 1)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 10 * time.Second, CompressOver: -1, Retries: pocketmq.NoRetries})
		body := func(i int) string {
			size := 700
			if i%2 == 1 {
				size = 10 << 10
			}
			return strings.Repeat(string(rune('a'+i%26)), size)
		}
		whole := func(bodies []string) {
			for i, b := range bodies {
				require.Equal(t, body(i), b, "message %d", i)
			}
		}
		time.Sleep(4 * time.Second) // topics have been copied
		links(t, c).Delay("broker-a/0", "broker-a/1", 20*time.Millisecond)
		for i := range 20 {
			_, err := p.SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "%s", body(i)))
			require.NoError(t, err)
			whole(contentAt(t, c, 1))
		}
		// The link is cut while records are on their way, and comes back.
		for i := 20; i < 30; i++ {
			done := sendAsync(t, p, text("T", "%s", body(i)))
			time.Sleep(time.Duration(5*i-90) * time.Millisecond)
			links(t, c).Cut("broker-a/0", "broker-a/1")
			whole(contentAt(t, c, 1))
			time.Sleep(100 * time.Millisecond)
			links(t, c).Heal("broker-a/0", "broker-a/1")
			links(t, c).Delay("broker-a/0", "broker-a/1", 20*time.Millisecond)
			require.NoError(t, <-done)
		}
		synctest.Wait() // what is confirmed becomes readable a moment after the answer
		assert.Len(t, contentAt(t, c, 0), 30)
		assert.Zero(t, count.n.Load(), "errors were logged")

		// The master dies while a record is on its way.
		done := sendAsync(t, p, text("T", "%s", body(30)))
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, int64(1), killAndElect(t, c))
		require.Error(t, <-done)
		got := contentAt(t, c, 1)
		whole(got)
		assert.GreaterOrEqual(t, len(got), 30, "all that was acknowledged")
	})
}

func TestHA08_EachQueueOffsetNamesOneMessage(t *testing.T) {
	t.Run("the master comes back", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Groups: pair(1, pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
			p := producer(t, c, pocketmq.ProducerConfig{})
			replicated(t, p, 0, 8)
			synctest.Wait()
			links(t, c).Drop("broker-a/0", "broker-a/1")
			replicated(t, p, 8, 2)
			require.NoError(t, c.Kill("broker-a", 0))
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			r, err := producer(t, c, pocketmq.ProducerConfig{}).SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "10"))
			require.NoError(t, err)
			assert.Equal(t, int64(10), r.QueueOffset, "a crash of the process takes nothing back")
			links(t, c).HealAll()
			assert.Equal(t, counted(11), logsAgree(t, c, 30*time.Second))
		})
	})
	t.Run("the slave becomes master", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := run(t, pocketmq.ClusterConfig{Groups: duo(pocketmq.BrokerConfig{}), Topics: map[string]int{"T": 1}})
			inSync(t, c, 1)
			p := producer(t, c, pocketmq.ProducerConfig{})
			replicated(t, p, 0, 8)
			synctest.Wait()
			links(t, c).Drop("broker-a/0", "broker-a/1")
			replicated(t, p, 8, 2) // asynchronous: that is no promise
			require.Equal(t, int64(1), killAndElect(t, c))
			links(t, c).HealAll()
			r, err := producer(t, c, pocketmq.ProducerConfig{}).SendTo(t.Context(), queue("T", "broker-a", 0), text("T", "new"))
			require.NoError(t, err)
			assert.Equal(t, int64(8), r.QueueOffset)
			require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
			assert.Equal(t, append(counted(8), "new"), logsAgree(t, c, 30*time.Second))
		})
	})
}

// lossyStreams is a network in which what is said on streams to one address, back to
// those who dialled it, can be lost: it never arrives, and they break off afterwards.
type lossyStreams struct {
	pocketmq.Transport
	to atomic.Pointer[string] // nil: nothing is lost
}

func (n *lossyStreams) DialStream(ctx context.Context, d protocol.Dial) (net.Conn, error) {
	conn, err := n.Transport.DialStream(ctx, d)
	if err != nil {
		return nil, err
	}
	return &lossyStream{Conn: conn, net: n, addr: d.Addr}, nil
}

type lossyStream struct {
	net.Conn
	net  *lossyStreams
	addr string
	lost bool // something was: of the one who reads
}

func (c *lossyStream) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil {
			return 0, err
		}
		to := c.net.to.Load()
		switch losing := to != nil && *to == c.addr; {
		case losing:
			c.lost = true
		case c.lost:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
}

// A delayed message was delivered, and the slaves have not got it when the master dies:
// they hear of the progress no sooner than of the message. The master says nothing of it
// before the message is confirmed, and slaves take over nothing that their log lacks.
func TestFO10_ProgressThatTravelsFasterThanTheLogLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var in inbox
		over := &lossyStreams{Transport: pocketmq.InMemory()}
		c := run(t, pocketmq.ClusterConfig{Transport: over, Groups: trio(), Topics: map[string]int{"T": 1}})
		inSync(t, c, 2)
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromFirstOffset, Handler: in.handler("c")})
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		progress := func(id int64) int64 {
			conn := dialMember(t, c, "broker-a", id)
			resp, err := conn.GetAllDelayOffset(t.Context(), &protocol.GetAllDelayOffsetRequest{})
			require.NoError(t, err)
			return resp.Offsets[2]
		}
		time.Sleep(5 * time.Second)
		_, err := p.Send(t.Context(), &pocketmq.Message{Topic: "T", Body: []byte("delayed"), DelayLevel: 2}) // 5 s
		require.NoError(t, err)
		written := c.Broker("broker-a", 0).Status().WrittenPosition
		at := c.Broker("broker-a", 1).Status().Master.Addr
		over.to.Store(&at)
		time.Sleep(14 * time.Second) // delivered, and the progress asked for some times; still in sync
		require.Equal(t, written+1, c.Broker("broker-a", 0).Status().WrittenPosition)
		for id := int64(1); id <= 2; id++ {
			require.True(t, inSyncAt(c, 0, id))
			assert.Equal(t, written, c.Broker("broker-a", id).Status().WrittenPosition)
			assert.Zero(t, progress(id), "it stands for a message that is not there")
		}
		assert.Empty(t, in.bodies(), "it is not confirmed")
		require.NoError(t, c.Kill("broker-a", 0))
		over.to.Store(nil)
		time.Sleep(time.Minute)
		require.Positive(t, masterOf(c))
		assert.Equal(t, []string{"delayed"}, in.bodies())
		assert.Equal(t, int64(1), progress(masterOf(c)))
	})
}

// A slave that began with the last file of its master is a whole member: it may be
// elected, and what is older is gone with the others.
func TestASlaveFromTheLastFileMayBeElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cfg := pocketmq.BrokerConfig{Failover: true, Replication: pocketmq.SyncReplication, SyncFromLastFile: true, CommitLogFileSize: 4 << 10}
		c := run(t, pocketmq.ClusterConfig{Groups: pair(2, cfg), Topics: map[string]int{"T": 1}})
		inSync(t, c, 2)
		p := producer(t, c, pocketmq.ProducerConfig{SendTimeout: 30 * time.Second, Retries: 30})
		require.NoError(t, c.Kill("broker-a", 2))
		inSync(t, c, 1)
		replicated(t, p, 0, 100)
		conn := dialMember(t, c, "broker-a", 0)
		_, err := conn.UpdateGroup(t.Context(), &protocol.UpdateGroupRequest{Config: protocol.DefaultGroupConfig("g")})
		require.NoError(t, err)
		_, err = conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: "g", Topic: "T", Offset: 20})
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(c.Broker("broker-a", 2).Dir()))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 2))
		inSync(t, c, 2)
		time.Sleep(4 * time.Second) // offsets are copied
		st := c.Broker("broker-a", 2).Status()
		first := st.MinPosition - 1 // offset of its first message
		require.Greater(t, first, int64(50), "it begins with the last file")
		assert.Less(t, first, int64(100))
		assert.Equal(t, int64(100), st.WrittenPosition)
		assert.Equal(t, int64(1), c.Broker("broker-a", 0).Status().MinPosition)
		assert.True(t, st.Master.Connected)
		require.NoError(t, c.Broker("broker-a", 2).Check(t.Context()))

		require.NoError(t, c.Elect(t.Context(), "broker-a", 2))
		replicated(t, p, 100, 5)
		inSync(t, c, 2)
		time.Sleep(6 * time.Second) // slaves hear what is confirmed
		assert.Equal(t, counted(105), contentAt(t, c, 1), "those that have more keep it")
		conn = dialMember(t, c, "broker-a", 2)
		r, err := pull(t.Context(), conn, 20, "*")
		require.NoError(t, err)
		assert.Equal(t, protocol.PullOffsetMoved, r.Code)
		assert.Equal(t, first, r.NextBeginOffset)
		assert.Equal(t, first, r.MinOffset)
		assert.Equal(t, int64(105), r.MaxOffset)

		var in inbox
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), Handler: in.handler("c")})
		time.Sleep(time.Minute)
		assert.ElementsMatch(t, counted(105)[first:], in.bodies(), "all that is there, each once")
		require.NoError(t, c.Kill("broker-a", 2))
		time.Sleep(8 * time.Second)
		replicated(t, p, 105, 1) // and on with those that have all
		require.GreaterOrEqual(t, masterOf(c), int64(0))
	})
}
