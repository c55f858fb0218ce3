package pocketmq_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq"
	"github.com/pocketmq/pocketmq/protocol"
)

// storeMessages stores n messages in topic T's queue 0 of broker-a.
func storeMessages(t testing.TB, conn protocol.BrokerConn, n int, properties string) {
	t.Helper()
	for i := range n {
		_, err := conn.SendMessage(t.Context(), &protocol.SendMessageRequest{ProducerGroup: "p", Topic: "T", BornTime: time.Now(), Properties: properties, Body: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
}

func commit(t testing.TB, conn protocol.BrokerConn, group string, queue int, offset int64) {
	t.Helper()
	r, err := conn.UpdateConsumerOffset(t.Context(), &protocol.UpdateConsumerOffsetRequest{Group: group, Topic: "T", QueueID: queue, Offset: offset})
	require.NoError(t, err)
	require.False(t, r.Ignored)
}

func groupOffset(group, topic string, queue int, n int64) protocol.GroupOffset {
	return protocol.GroupOffset{Group: group, Topic: topic, QueueID: queue, Offset: n}
}

func TestASlaveIsGivenTheOffsetsOfAllGroups(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 2}})
		conn := dial(t, c, "broker-a")
		got, err := conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{})
		require.NoError(t, err)
		assert.Empty(t, got.Offsets)
		assert.Zero(t, got.Position)

		storeMessages(t, conn, 7, "")
		for _, g := range []string{"g", "h"} {
			heartbeat(t, conn, g, protocol.Clustering)
		}
		commit(t, conn, "g", 0, 5)
		commit(t, conn, "h", 1, 0)
		three := int64(3)
		_, err = conn.ResetOffset(t.Context(), &protocol.ResetOffsetRequest{Group: "g", Topic: "T", QueueID: 0, Offset: &three})
		require.NoError(t, err)
		got, err = conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{})
		require.NoError(t, err)
		assert.Equal(t, &protocol.GetAllConsumerOffsetResponse{
			OffsetTable: protocol.OffsetTable{
				Version: protocol.DataVersion{Counter: 1},
				Offsets: []protocol.GroupOffset{groupOffset("g", "T", 0, 3), groupOffset("h", "T", 1, 0)},
				Resets:  []protocol.GroupOffset{groupOffset("g", "T", 0, 3)},
				Moves:   []protocol.GroupOffset{groupOffset("g", "T", 0, 1)}, Moved: 1,
			},
			Position: 7,
		}, got)
	})
}

func TestHA04_AMasterKeepsWhatWasCommittedAtItsSlave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Dir: t.TempDir(), Topics: map[string]int{"T": 2}})
		conn := dial(t, c, "broker-a")
		storeMessages(t, conn, 100, "")
		heartbeat(t, conn, "g", protocol.Clustering)
		commit(t, conn, "g", 0, 40)
		end, err := conn.GetMaxOffset(t.Context(), &protocol.GetMaxOffsetRequest{Topic: "T", QueueID: 1})
		require.NoError(t, err)
		own := func(queue int, topic string, n, moved int64) protocol.OwnOffset {
			return protocol.OwnOffset{GroupOffset: groupOffset("g", topic, queue, n), Moved: moved}
		}
		got, err := conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{
			own(0, "T", 42, 0), own(1, "T", 1000, 0), own(2, "T", 1, 0), own(0, "unknown", 1, 0), own(-1, "T", 1, 0),
		}})
		require.NoError(t, err)
		want := []protocol.GroupOffset{groupOffset("g", "T", 0, 42), groupOffset("g", "T", 1, end.Offset)}
		assert.Equal(t, want, got.Offsets, "none lies beyond its queue, and none is of a queue that there is not")

		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		conn = dial(t, c, "broker-a")
		got, err = conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{})
		require.NoError(t, err)
		assert.Equal(t, want, got.Offsets, "they were saved before the slave was told")

		// A topic made anew, and what was committed before.
		_, err = conn.DeleteTopic(t.Context(), &protocol.DeleteTopicRequest{Topic: "T"})
		require.NoError(t, err)
		_, err = conn.CreateTopic(t.Context(), &protocol.CreateTopicRequest{Config: protocol.TopicConfig{Name: "T", ReadQueues: 1, WriteQueues: 1, Perm: pocketmq.PermRead | pocketmq.PermWrite}})
		require.NoError(t, err)
		storeMessages(t, conn, 50, "")
		got, err = conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{own(0, "T", 45, 0)}})
		require.NoError(t, err)
		assert.Empty(t, got.Offsets)
		require.NoError(t, c.Kill("broker-a", 0))
		require.NoError(t, c.Restart(t.Context(), "broker-a", 0))
		conn = dial(t, c, "broker-a")
		got, err = conn.GetAllConsumerOffset(t.Context(), &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{own(0, "T", 45, 0)}})
		require.NoError(t, err)
		assert.Empty(t, got.Offsets, "it is still known")
	})
}

func TestASlaveIsGivenTheProgressOfDelayedMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := run(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}})
		conn := dial(t, c, "broker-a")
		storeMessages(t, conn, 3, "DELAY\x011\x02")
		got, err := conn.GetAllDelayOffset(t.Context(), &protocol.GetAllDelayOffsetRequest{})
		require.NoError(t, err)
		assert.Empty(t, got.Offsets)
		assert.EqualValues(t, 3, got.Position)
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err = conn.GetAllDelayOffset(t.Context(), &protocol.GetAllDelayOffsetRequest{})
		require.NoError(t, err)
		assert.EqualValues(t, 3, got.Offsets[1])
		assert.EqualValues(t, 6, got.Position, "the copies lie at or before it")
		assert.EqualValues(t, 1, got.Version.Counter)
	})
}

// What Java's slaves and mqadmin ask for, and read.
func TestMetadataOfSlavesIsAnsweredAsOfficialOnesNeedIt(t *testing.T) {
	onWire(t, pocketmq.ClusterConfig{Topics: map[string]int{"T": 1}}, func(t *testing.T, w *wire) {
		c := w.broker(t).java()
		assert.Equal(t, `{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{}}`, string(c.ok(43, nil, "").Body))
		for range 3 {
			c.ok(310, javaSend("T", 0, ""), "x")
		}
		c.ok(34, nil, javaHeartbeat("j@1", "g", "CLUSTERING", "T", 0, false))
		c.ok(15, ext("consumerGroup", "g", "topic", "T", "queueId", 0, "commitOffset", 2), "")
		got := c.ok(43, nil, "")
		assert.Equal(t, `{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{"T@g":{"0":2}}}`, string(got.Body))
		assert.Equal(t, "3", get(got, "pmq.position"))

		c.ok(310, javaSend("T", 0, "DELAY\x011\x02"), "x")
		time.Sleep(time.Minute)
		synctest.Wait()
		got = c.ok(45, nil, "")
		body := string(got.Body)
		assert.True(t, strings.HasPrefix(body, `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":`), body)
		assert.Contains(t, body, `},"offsetTable":{"1":1}}`)
		assert.Equal(t, "5", get(got, "pmq.position"))
	})
}
