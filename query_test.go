package pocketmq_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

// sendEach sends one message to each queue in turn, n times, d apart, and
// returns what was acknowledged with the instants.
func sendEach(t testing.TB, p *pocketmq.Producer, n int, d time.Duration, queues ...pocketmq.MessageQueue) (results []*pocketmq.SendResult, at []time.Time) {
	t.Helper()
	for i := range n {
		for _, q := range queues {
			m := text(q.Topic, "%d", i)
			m.Keys = []string{fmt.Sprintf("key-%d", i)}
			res, err := p.SendTo(context.Background(), q, m)
			require.NoError(t, err)
			results, at = append(results, res), append(at, time.Now())
		}
		time.Sleep(d)
	}
	return results, at
}

func TestMessageByIDFindsEveryMessageOnEveryBroker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2, "U": 1},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		queues := []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-a", 1), queue("T", "broker-b", 1), queue("U", "broker-b", 0)}
		results, at := sendEach(t, p, 50, 7*time.Millisecond, queues...)
		ask := func(when string) {
			for i, res := range results {
				m, err := c.Admin().MessageByID(t.Context(), res.OffsetMsgID)
				require.NoError(t, err, "%s: %v", when, res)
				assert.Equal(t, res.OffsetMsgID, m.OffsetMsgID)
				assert.Equal(t, res.MsgID, m.MsgID)
				assert.Equal(t, res.Queue, m.Queue)
				assert.Equal(t, res.Queue.Topic, m.Topic)
				assert.Equal(t, res.QueueOffset, m.QueueOffset)
				assert.Equal(t, fmt.Sprint(i/len(queues)), string(m.Body))
				assert.Equal(t, []string{fmt.Sprintf("key-%d", i/len(queues))}, m.Keys)
				assert.Equal(t, at[i].UnixMilli(), m.StoreTime.UnixMilli())
				assert.Equal(t, c.Broker(res.Queue.BrokerName, 0).Addr(), m.StoreHost.String())
			}
		}
		ask("at once")
		for _, b := range []string{"broker-a", "broker-b"} {
			require.NoError(t, c.Kill(b, 0))
			require.NoError(t, c.Restart(t.Context(), b, 0))
		}
		sleepUntil(time.Now().Add(10 * time.Millisecond)) // clients have seen that connections have ended
		ask("after a crash")

		lower, err := c.Admin().MessageByID(t.Context(), strings.ToLower(results[3].OffsetMsgID))
		require.NoError(t, err, "hex digits in lower case")
		assert.Equal(t, results[3].OffsetMsgID, lower.OffsetMsgID)
	})
}

func TestMessageByIDFindsEachMessageOfABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		var batch []*pocketmq.Message
		for i := range 10 {
			batch = append(batch, text("T", "%d", i))
		}
		res, err := p.SendBatch(t.Context(), batch)
		require.NoError(t, err)
		ids := strings.Split(res.OffsetMsgID, ",")
		require.Len(t, ids, len(batch))
		for i, id := range ids {
			m, err := c.Admin().MessageByID(t.Context(), id)
			require.NoError(t, err)
			assert.Equal(t, res.MsgIDs[i], m.MsgID)
			assert.Equal(t, int64(i), m.QueueOffset)
			assert.Equal(t, fmt.Sprint(i), string(m.Body))
		}
	})
}

func TestMessageByIDOfACompressedMessageIsInflated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		body := strings.Repeat("tea ", 10_000)
		for _, how := range []pocketmq.Compression{pocketmq.Zlib, pocketmq.LZ4, pocketmq.Zstd} {
			p := producer(t, c, pocketmq.ProducerConfig{Compression: how})
			res, err := p.Send(t.Context(), text("T", "%s", body))
			require.NoError(t, err)
			m, err := c.Admin().MessageByID(t.Context(), res.OffsetMsgID)
			require.NoError(t, err)
			assert.Equal(t, body, string(m.Body))
			assert.Less(t, m.StoreSize, len(body)/2)
		}
	})
}

// An id names a place: a record that was stored under another address is not
// what was asked for, whatever its position.
func TestMessageByIDReturnsNoOtherMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		start := func(addr string) *pocketmq.Cluster {
			return run(t, pocketmq.ClusterConfig{
				Dir: dir, Topics: map[string]int{"T": 1}, Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Addrs: []string{addr}}},
			})
		}
		c := start("127.1.0.50:10911")
		old, err := producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "old"))
		require.NoError(t, err)
		stop(t, c)

		c = start("127.1.0.60:10911")
		_, err = c.Admin().MessageByID(t.Context(), old.OffsetMsgID)
		assert.ErrorIs(t, err, pocketmq.ErrUnreachable, "nobody is at the old address")
		_, position, err := message.ParseOffsetMsgID(old.OffsetMsgID)
		require.NoError(t, err)
		host := storeHost(t, c, "broker-a")
		_, err = c.Admin().MessageByID(t.Context(), message.OffsetMsgID(host, position))
		assert.ErrorIs(t, err, pocketmq.ErrNotFound, "the place holds a message with another id")
		assert.ErrorContains(t, err, old.OffsetMsgID)

		fresh, err := producer(t, c, pocketmq.ProducerConfig{}).Send(t.Context(), text("T", "new"))
		require.NoError(t, err)
		for _, position := range []int64{0, -1, 1 << 40, -1 << 63} {
			_, err = c.Admin().MessageByID(t.Context(), message.OffsetMsgID(host, position))
			assert.ErrorIs(t, err, pocketmq.ErrNotFound, "position %d", position)
			var answered *pocketmq.Error
			if assert.ErrorAs(t, err, &answered) {
				assert.Equal(t, protocol.SystemError, answered.Code)
				assert.Equal(t, "broker-a", answered.Broker)
			}
		}
		for _, bad := range []string{"", "x", fresh.MsgID, fresh.OffsetMsgID[1:], fresh.OffsetMsgID + "00", strings.Repeat("Z", 32)} {
			_, err = c.Admin().MessageByID(t.Context(), bad)
			assert.ErrorIs(t, err, pocketmq.ErrNotFound, "%q", bad)
			assert.ErrorIs(t, err, pocketmq.ErrInvalidConfig, "%q", bad)
		}
	})
}

func TestTopicStatsCountEveryQueueOfEveryMaster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Groups: groups("broker-a", "broker-b")})
		require.NoError(t, c.Admin().CreateTopic(t.Context(), pocketmq.TopicConfig{Name: "T", ReadQueues: 2, WriteQueues: 3}))
		p := producer(t, c, pocketmq.ProducerConfig{})
		want := make(map[pocketmq.MessageQueue]pocketmq.QueueStats)
		for _, b := range []string{"broker-a", "broker-b"} {
			for id := range 3 { // the third can be written, not read
				want[queue("T", b, id)] = pocketmq.QueueStats{}
			}
		}
		stats, err := c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, want, stats, "an empty topic")

		for i, q := range []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-a", 2), queue("T", "broker-b", 1)} {
			_, at := sendEach(t, p, i+3, 1500*time.Microsecond, q)
			want[q] = pocketmq.QueueStats{MaxOffset: int64(i + 3), LastStoreTime: time.UnixMilli(at[len(at)-1].UnixMilli())}
		}
		stats, err = c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, want, stats)

		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		stats, err = c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err)
		assert.Equal(t, want, stats, "after a crash")

		_, err = c.Admin().TopicStats(t.Context(), "U")
		assert.ErrorIs(t, err, pocketmq.ErrNoRoute)
	})
}

func TestTopicStatsOfSomeMastersComeWithTheErrorOfTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 1}})
		_, _ = sendEach(t, producer(t, c, pocketmq.ProducerConfig{}), 3, 0, queue("T", "broker-a", 0))
		known := func(stats map[pocketmq.MessageQueue]pocketmq.QueueStats) {
			t.Helper()
			require.Len(t, stats, 1)
			assert.Equal(t, int64(3), stats[queue("T", "broker-a", 0)].MaxOffset)
		}

		h := c.Inject(pocketmq.Fault{Code: protocol.CodeGetTopicStats, Node: "broker-b/0", Topic: "T", Err: &pocketmq.Error{Code: protocol.SystemBusy, Remark: "busy"}})
		stats, err := c.Admin().TopicStats(t.Context(), "T")
		assert.ErrorIs(t, err, pocketmq.ErrBrokerBusy)
		assert.ErrorContains(t, err, "broker-b")
		known(stats)
		assert.Equal(t, 1, h.Hits())
		h.Remove()

		h = c.Inject(pocketmq.Fault{Code: protocol.CodeGetTopicStats, Node: "broker-b/0", Drop: true})
		began := time.Now()
		stats, err = c.Admin().TopicStats(t.Context(), "T")
		assert.Equal(t, 5*time.Second, time.Since(began), "AdminConfig.Timeout")
		assert.ErrorIs(t, err, pocketmq.ErrTimeout)
		known(stats)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stats, err = c.Admin().TopicStats(ctx, "T")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, pocketmq.ErrTimeout)
		known(stats)
		h.Remove()
		stats, err = c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err, "the session was kept")
		assert.Len(t, stats, 2)
	})
}

func TestAQueryThatRunsWhenTheAdminClosesEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		a := newAdmin(t, c, c.NameServerAddrs()...)
		c.Inject(pocketmq.Fault{Code: protocol.CodeGetTopicStats, Drop: true})
		done := make(chan error)
		go func() {
			_, err := a.TopicStats(context.Background(), "T")
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, a.Close())
		assert.ErrorIs(t, <-done, pocketmq.ErrClosed)
		assert.Zero(t, time.Since(began))
		_, err := a.TopicStats(t.Context(), "T")
		assert.ErrorIs(t, err, pocketmq.ErrClosed)
	})
}

// The rules of a search, to the millisecond: lower is the first message stored
// at or after an instant, upper the last one at or before it.
func TestSearchByTimeIsExactToTheMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Topics: map[string]int{"T": 2},
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{CommitLogFileSize: 4 << 10}}},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		const n = 100
		_, at := sendEach(t, p, n, 10*time.Millisecond, queue("T", "broker-a", 0))
		same, _ := sendEach(t, p, 3, 0, queue("T", "broker-a", 0)) // three of one instant
		oneInstant := time.Now()
		require.Equal(t, int64(n), same[0].QueueOffset)

		check := func(conn protocol.BrokerConn, when string) {
			search := func(b protocol.Boundary, queue int, at time.Time) int64 {
				resp, err := conn.SearchOffset(t.Context(), &protocol.SearchOffsetRequest{Topic: "T", QueueID: queue, Time: at, Boundary: b})
				require.NoError(t, err, when)
				return resp.Offset
			}
			lower := func(at time.Time) int64 { return search(protocol.BoundaryLower, 0, at) }
			upper := func(at time.Time) int64 { return search(protocol.BoundaryUpper, 0, at) }
			for i, at := range at {
				at = time.UnixMilli(at.UnixMilli())
				assert.Equal(t, int64(i), lower(at), "%s: lower, at %d", when, i)
				assert.Equal(t, int64(i), upper(at), "%s: upper, at %d", when, i)
				assert.Equal(t, int64(i), lower(at.Add(-time.Millisecond)), "%s: lower, before %d", when, i)
				assert.Equal(t, int64(i+1), lower(at.Add(time.Millisecond)), "%s: lower, after %d", when, i)
				assert.Equal(t, max(int64(i-1), 0), upper(at.Add(-time.Millisecond)), "%s: upper, before %d", when, i)
				assert.Equal(t, int64(i), upper(at.Add(time.Millisecond)), "%s: upper, after %d", when, i)
				assert.Equal(t, int64(i), lower(at.Add(time.Millisecond-1)), "%s: what is finer does not count", when)
			}
			assert.Equal(t, int64(n), lower(oneInstant), "%s: the first of one instant", when)
			assert.Equal(t, int64(n+2), upper(oneInstant), "%s: the last of one instant", when)
			assert.Equal(t, int64(n+3), lower(oneInstant.Add(time.Hour)), "%s: later than all", when)
			assert.Equal(t, int64(n+2), upper(oneInstant.Add(time.Hour)), "%s: later than all", when)
			for _, at := range []time.Time{{}, time.UnixMilli(0), time.UnixMilli(-1 << 62)} {
				assert.Zero(t, lower(at), "%s: earlier than all", when)
				assert.Zero(t, upper(at), "%s: earlier than all", when)
			}
			for _, b := range []protocol.Boundary{protocol.BoundaryLower, protocol.BoundaryUpper} {
				assert.Zero(t, search(b, 1, oneInstant), "%s: an empty queue", when)
				assert.Zero(t, search(b, 9, oneInstant), "%s: an unknown queue", when)
			}

			earliest := func(queue int) time.Time {
				resp, err := conn.GetEarliestStoreTime(t.Context(), &protocol.GetEarliestStoreTimeRequest{Topic: "T", QueueID: queue})
				require.NoError(t, err, when)
				return resp.Time
			}
			assert.Equal(t, at[0].UnixMilli(), earliest(0).UnixMilli(), when)
			assert.Zero(t, earliest(1), "%s: an empty queue", when)
			assert.Zero(t, earliest(9), "%s: an unknown queue", when)
		}
		check(dial(t, c, "broker-a"), "at once")
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		check(dial(t, c, "broker-a"), "after a crash")
	})
}

func TestFromTimeStartsAtTheFirstMessageOfThatMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 2}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		queues := []pocketmq.MessageQueue{queue("T", "broker-a", 0), queue("T", "broker-a", 1), queue("T", "broker-b", 0)} // the fourth stays empty
		_, at := sendEach(t, p, 20, time.Millisecond, queues...)
		for name, tc := range map[string]struct {
			from time.Time
			want int // the first message, by its body
		}{
			"long before":          {at[0].Add(-24 * time.Hour), 0},
			"the zero time":        {time.Time{}, 0},
			"at the first":         {at[0], 0},
			"at one":               {at[7*len(queues)], 7},
			"within a millisecond": {at[7*len(queues)].Add(999 * time.Microsecond), 7},
			"after one":            {at[7*len(queues)].Add(time.Millisecond), 8},
			"at the last":          {at[19*len(queues)], 19},
			"after the last":       {at[19*len(queues)].Add(time.Millisecond), 20},
			"in the future":        {at[19*len(queues)].Add(24 * time.Hour), 20},
		} {
			in := new(inbox)
			group := "g-" + strings.ReplaceAll(name, " ", "-")
			co := consumer(t, c, pocketmq.ConsumerConfig{Group: group, Subscriptions: all("T"), From: pocketmq.FromTime(tc.from), Handler: in.handler("")})
			synctest.Wait()
			first := make(map[pocketmq.MessageQueue]int)
			for _, a := range in.arrivals() {
				var n int
				_, err := fmt.Sscan(string(a.msg.Body), &n)
				require.NoError(t, err)
				if old, ok := first[a.msg.Queue]; !ok || n < old {
					first[a.msg.Queue] = n
				}
			}
			assert.Len(t, in.arrivals(), len(queues)*(20-tc.want), name)
			if tc.want < 20 {
				for _, q := range queues {
					assert.Equal(t, tc.want, first[q], "%s: %v", name, q)
				}
			}
			require.NoError(t, co.Close())
		}
	})
}

func TestFromTimeCountsForAGroupThatHasCommittedNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 1}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		_, at := sendEach(t, p, 10, time.Second, queue("T", "broker-a", 0))
		in := new(inbox)
		start := func(who string, from time.Time) *pocketmq.Consumer {
			return consumer(t, c, pocketmq.ConsumerConfig{
				Group: "g", Subscriptions: all("T"), From: pocketmq.FromTime(from), Handler: in.handler(who),
			})
		}
		co := start("first", at[6])
		synctest.Wait()
		assert.Equal(t, []string{"6", "7", "8", "9"}, in.bodies())
		require.NoError(t, co.Close())
		co = start("second", at[2])
		_, _ = sendEach(t, p, 1, 0, queue("T", "broker-a", 0))
		synctest.Wait()
		assert.Equal(t, []string{"0", "6", "7", "8", "9"}, in.bodies(), "the committed offset counts")
		require.NoError(t, co.Close())

		// What From decided outlives a crash of everybody, although nothing was
		// consumed and the time is still to come.
		started, err := c.StartConsumer(t.Context(), pocketmq.ConsumerConfig{
			Group: "later", Subscriptions: all("T"), From: pocketmq.FromTime(time.Now().Add(time.Hour)), Handler: in.handler("later"),
		})
		require.NoError(t, err)
		time.Sleep(6 * time.Second) // the broker persists
		links(t, c).Cut(started.ClientID(), "*")
		_, _ = sendEach(t, p, 3, 0, queue("T", "broker-a", 0))
		in = new(inbox)
		consumer(t, c, pocketmq.ConsumerConfig{
			Group: "later", Subscriptions: all("T"), From: pocketmq.FromTime(time.Now().Add(time.Hour)), Handler: in.handler("heir"),
		})
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"0", "1", "2"}, in.bodies())
	})
}

// Members that join while messages are sent miss none, wherever the time lies.
func TestMembersWithFromTimeSkipNothingSentAfterTheirStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Groups: groups("broker-a", "broker-b"), Topics: map[string]int{"T": 4}})
		p := producer(t, c, pocketmq.ProducerConfig{})
		in := new(inbox)
		from := pocketmq.FromTime(time.Now().Add(time.Hour))
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: from, Handler: in.handler("0")})
		const n = 200
		var sending sync.WaitGroup
		sending.Go(func() {
			for i := range n {
				_, err := p.Send(t.Context(), text("T", "%d", i))
				assert.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
			}
		})
		for i := range 3 {
			time.Sleep(5 * time.Second)
			consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: from, Handler: in.handler(fmt.Sprint(i + 1))})
		}
		sending.Wait()
		time.Sleep(time.Minute)
		got := in.bodies()
		for _, want := range numbers(n) {
			assert.Contains(t, got, want)
		}
	})
}

func TestConsumeFromHasItsNameAndTime(t *testing.T) {
	at := time.Date(2024, 2, 29, 12, 0, 0, 5e6, time.UTC)
	assert.Equal(t, "CONSUME_FROM_TIMESTAMP 2024-02-29T12:00:00.005Z", pocketmq.FromTime(at).String())
	assert.Equal(t, pocketmq.FromTime(at), pocketmq.FromTime(at))
	assert.NotEqual(t, pocketmq.FromTime(at), pocketmq.FromTime(at.Add(1)))
	assert.NotEqual(t, pocketmq.FromTime(time.Time{}), pocketmq.ConsumeFrom{}, "the zero value is FromLastOffset")
}

// What retention has deleted is not found any more, and nothing that is asked
// about it fails otherwise.
func TestQueriesOfWhatRetentionDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{
			Dir: t.TempDir(), Topics: map[string]int{"T": 2},
			Groups: []pocketmq.BrokerGroup{{Name: "broker-a", Config: pocketmq.BrokerConfig{CommitLogFileSize: 4 << 10}}},
		})
		p := producer(t, c, pocketmq.ProducerConfig{})
		q, idle := queue("T", "broker-a", 0), queue("T", "broker-a", 1)
		_, _ = sendEach(t, p, 5, time.Millisecond, idle)
		old, at := sendEach(t, p, 100, time.Millisecond, q)
		time.Sleep(40 * time.Hour)
		young, _ := sendEach(t, p, 10, time.Millisecond, q)
		time.Sleep(40 * time.Hour) // 72 h have passed for the old ones

		stats, err := c.Admin().TopicStats(t.Context(), "T")
		require.NoError(t, err)
		first := stats[q].MinOffset
		require.Greater(t, first, int64(50), "most are gone")
		require.LessOrEqual(t, first, int64(100))
		assert.Equal(t, int64(110), stats[q].MaxOffset)
		assert.Equal(t, pocketmq.QueueStats{MinOffset: 5, MaxOffset: 5}, stats[idle], "nothing is kept of it")

		for i, res := range append(old, young...) {
			byID, errID := c.Admin().MessageByID(t.Context(), res.OffsetMsgID)
			byKey, errKey := c.Admin().MessageByUniqueKey(t.Context(), "T", res.MsgID)
			if int64(i) < first {
				assert.ErrorIs(t, errID, pocketmq.ErrNotFound, "%d", i)
				assert.ErrorIs(t, errKey, pocketmq.ErrNotFound, "%d", i)
				continue
			}
			require.NoError(t, errID, "%d", i)
			require.NoError(t, errKey, "%d", i)
			assert.Equal(t, int64(i), byID.QueueOffset)
			assert.Equal(t, int64(i), byKey.QueueOffset)
		}
		assert.Len(t, byKey(t, c, "T", "key-3", 0), 1, "of the three that had it")

		conn := dial(t, c, "broker-a")
		for _, b := range []protocol.Boundary{protocol.BoundaryLower, protocol.BoundaryUpper} {
			for _, tm := range []time.Time{{}, at[0], at[first-1]} {
				resp, err := conn.SearchOffset(t.Context(), &protocol.SearchOffsetRequest{Topic: "T", Time: tm, Boundary: b})
				require.NoError(t, err)
				assert.Equal(t, first, resp.Offset, "boundary %d of %v", b, tm)
			}
			resp, err := conn.SearchOffset(t.Context(), &protocol.SearchOffsetRequest{Topic: "T", QueueID: 1, Time: at[0], Boundary: b})
			require.NoError(t, err)
			assert.Equal(t, int64(5), resp.Offset, "boundary %d of a queue of which nothing is kept", b)
		}
		earliest, err := conn.GetEarliestStoreTime(t.Context(), &protocol.GetEarliestStoreTimeRequest{Topic: "T"})
		require.NoError(t, err)
		kept, err := c.Admin().MessageByID(t.Context(), append(old, young...)[first].OffsetMsgID)
		require.NoError(t, err)
		assert.Equal(t, kept.StoreTime, earliest.Time)
		none, err := conn.GetEarliestStoreTime(t.Context(), &protocol.GetEarliestStoreTimeRequest{Topic: "T", QueueID: 1})
		require.NoError(t, err)
		assert.Zero(t, none.Time)

		in := new(inbox)
		consumer(t, c, pocketmq.ConsumerConfig{Group: "g", Subscriptions: all("T"), From: pocketmq.FromTime(at[0]), Handler: in.handler("")})
		synctest.Wait()
		assert.Len(t, in.arrivals(), int(110-first), "everything that is kept")
	})
}
