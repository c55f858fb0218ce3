package groups_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/interop/go/rmqtest"
	"github.com/pocketmq/pocketmq/protocol"
)

// TestWhereOfficialConsumersStart. A broadcasting one knows no offset of the
// broker; for a clustering one RocketMQ answers 0 for a queue that still holds
// its first message, whatever it wants.
func TestWhereOfficialConsumersStart(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2, "EMPTY": 1})
	p := rmqtest.Producer(t, c)
	old := numbered("old", 10)
	sendAll(t, p, "T", old)
	// The official client can say whole seconds only.
	second := time.Now().Truncate(time.Second).Add(time.Second)
	<-time.After(time.Until(second))
	recent := numbered("recent", 10)
	sendAll(t, p, "T", recent)
	stamp := second.UTC().Format("20060102150405")

	broadcast := consumer.WithConsumerModel(consumer.BroadCasting)
	for _, s := range []struct {
		name  string
		want  int // of the 20 messages
		where []consumer.Option
	}{
		{"first", 20, []consumer.Option{consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}},
		{"last-of-a-young-queue", 20, []consumer.Option{consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset)}},
		{"time-of-a-young-queue", 20, []consumer.Option{consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp), consumer.WithConsumeTimestamp(stamp)}},
		{"broadcast-first", 20, []consumer.Option{broadcast, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)}},
		{"broadcast-time", 10, []consumer.Option{broadcast, consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp), consumer.WithConsumeTimestamp(stamp)}},
		{"broadcast-last", 0, []consumer.Option{broadcast, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset)}},
	} {
		t.Run(s.name, func(t *testing.T) {
			in := newInbox()
			// One handler at a time: what comes last in each queue is behind everything
			// that comes at all.
			push(t, c, s.name, "T", everything, in.official("a", nil), append(s.where, consumer.WithConsumeGoroutineNums(1))...)
			waitGroup(t, c, s.name, "both queues pulled", func(st pocketmq.GroupStatus) bool {
				return len(st.Members) == 1 && len(st.Members[0].Assigned) == 2
			})
			last := []string{s.name + " 0", s.name + " 1"}
			sendAll(t, p, "T", last)
			in.waitBodies(t, last)
			got := 0
			for _, body := range append(append([]string(nil), old...), recent...) {
				got += in.count(body)
			}
			assert.Equal(t, s.want, got)
			if s.want == len(recent) {
				assert.Equal(t, 1, in.count(recent[0]))
			}
		})
	}
	summary(t, "consumer start", "from the first, the last and a time: 6 groups begin where they should")
}

// TestOffsetsOutliveConsumersAndServers: what was consumed is not consumed again
// after the consumer, the broker and the name server were replaced.
func TestOffsetsOutliveConsumersAndServers(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4})
	p := rmqtest.Producer(t, c)
	total := 0
	round := func(what string) {
		in := newInbox()
		bodies := numbered(what+" ", 50)
		sendAll(t, p, "T", bodies)
		co := push(t, c, "G", "T", everything, in.official("a", nil))
		in.waitBodies(t, bodies)
		// What handlers have returned for is consumed a moment later.
		require.Eventually(t, func() bool { return co.GetOffsetDiffMap()["T"] == 0 }, patience, time.Millisecond)
		require.NoError(t, co.Shutdown())
		assert.Len(t, in.arrivals(), len(bodies), "%s: what is new, and only that", what)
		total += len(bodies)
		waitGroup(t, c, "G", what+": everything committed", lagless)
	}
	round("first")
	round("new consumer")
	waitSaved(t, c, "G", "T")
	require.NoError(t, c.Kill("broker-a", 0))
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	round("new broker")
	require.NoError(t, c.KillNameServer(0))
	require.NoError(t, c.RestartNameServer(t.Context(), 0))
	waitRoute(t, c, "T")
	round("new name server")
	summary(t, "consumer offsets", "%d consumed once each over restarts of consumer, broker and name server, lost 0", total)
}

// waitSaved returns when the broker has the group's offsets on disk, where a kill
// finds them.
func waitSaved(t *testing.T, c *pocketmq.Cluster, group, topic string) {
	t.Helper()
	offsets, err := c.Admin().Offsets(t.Context(), group, topic)
	require.NoError(t, err)
	want := make(map[string]int64)
	for q, at := range offsets {
		want[strconv.Itoa(q.QueueID)] = at
	}
	file := filepath.Join(c.Broker("broker-a", 0).Dir(), "config", "consumerOffset.json")
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		var saved struct {
			OffsetTable map[string]map[string]int64 `json:"offsetTable"`
		}
		_, body, _ := strings.Cut(string(data), "{") // behind the checksum, if that is first
		err = json.NewDecoder(strings.NewReader("{" + body)).Decode(&saved)
		return err == nil && maps.Equal(want, saved.OffsetTable[topic+"@"+group])
	}, patience, 5*time.Millisecond, "offsets %v in %s", want, file)
}

// waitRoute returns when the name server knows a topic.
func waitRoute(t *testing.T, c *pocketmq.Cluster, topic string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := c.Admin().Route(t.Context(), topic)
		return err == nil
	}, patience, 5*time.Millisecond, "a route of %s", topic)
}

// TestAnOfficialConsumerFollowsItsBroker through a crash. It does not notice that
// it has lost the connection of a pull. If it rebalances before its next heartbeat
// the broker does not know it: it lets all queues go and takes them anew. If not,
// its pulls end after 30 s, and it pulls again 3 s later.
func TestAnOfficialConsumerFollowsItsBroker(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 4})
	in := newInbox()
	beats := c.Inject(pocketmq.Fault{Code: protocol.CodeHeartbeat, Group: "G"})
	push(t, c, "G", "T", everything, in.official("a", nil))
	p := rmqtest.Producer(t, c)
	first := numbered("first", 100)
	sendAll(t, p, "T", first)
	in.waitBodies(t, first)
	// One at the start, one with the queues of each of the two topics, and one 1 s
	// after the start; the next comes 30 s later.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, beats.Wait(ctx, 4))
	beats.Remove()
	require.NoError(t, c.Kill("broker-a", 0))
	require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
	lost := time.Now()
	second := numbered("second", 100)
	sendAll(t, p, "T", second)
	in.waitBodies(t, second)
	summary(t, "consumer and a broker's crash", "%d consumed, lost 0; followed after %.0f s, %d delivered again", len(first)+len(second), time.Since(lost).Seconds(), in.repeats())
}

// TestANameServerMayGo while official clients work, and come back.
func TestANameServerMayGo(t *testing.T) {
	t.Parallel()
	c := cluster(t, map[string]int{"T": 2})
	in := newInbox()
	push(t, c, "G", "T", everything, in.official("a", nil))
	p := rmqtest.Producer(t, c)
	first := numbered("first", 20)
	sendAll(t, p, "T", first)
	in.waitBodies(t, first)
	require.NoError(t, c.KillNameServer(0))
	second := numbered("second", 20)
	sendAll(t, p, "T", second)
	in.waitBodies(t, second)
	require.NoError(t, c.RestartNameServer(t.Context(), 0))
	waitRoute(t, c, "T")
	other := newInbox()
	push(t, c, "H", "T", everything, other.official("b", nil))
	other.waitBodies(t, append(first, second...))
	summary(t, "consumer without a name server", "%d consumed while it was gone, a new group begins after its return, lost 0", len(second))
}

// TestALiveResetReachesAnOfficialConsumer. In a clustering group it rests 10 s
// over an offset that was moved, and takes the queue up again at its next
// rebalance; in a broadcasting one it is told, rests 10 s, and goes on.
func TestALiveResetReachesAnOfficialConsumer(t *testing.T) {
	t.Parallel()
	for _, model := range []consumer.MessageModel{consumer.Clustering, consumer.BroadCasting} {
		t.Run(model.String(), func(t *testing.T) {
			t.Parallel()
			c := cluster(t, map[string]int{"T": 4})
			in := newInbox()
			push(t, c, "G", "T", everything, in.official("a", nil), consumer.WithConsumerModel(model))
			p := rmqtest.Producer(t, c)
			before, after := numbered("before", 40), numbered("after", 40)
			sendAll(t, p, "T", before)
			<-time.After(2 * time.Millisecond) // store times are whole milliseconds
			moment := time.Now()
			<-time.After(2 * time.Millisecond)
			sendAll(t, p, "T", after)
			in.waitBodies(t, slices.Concat(before, after))
			reset := time.Now()
			moved, err := c.Admin().ResetOffsets(t.Context(), "G", "T", moment)
			require.NoError(t, err)
			assert.Len(t, moved, 4)
			in.wait(t, "everything since the moment, again", func(_ []arrival, counts map[string]int) bool {
				return !slices.ContainsFunc(after, func(body string) bool { return counts[body] < 2 })
			})
			took := time.Since(reset)
			for _, body := range before {
				assert.Equal(t, 1, in.count(body), body)
			}
			for _, body := range after {
				assert.Equal(t, 2, in.count(body), body)
			}
			next := numbered("next", 20)
			sendAll(t, p, "T", next)
			in.waitBodies(t, next)
			summary(t, "consumer reset by time, "+model.String(), "%d of %d consumed again, %.0f s after the reset, lost 0", len(after), len(before)+len(after), took.Seconds())
		})
	}
}
