package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestGetStatusesAndNextOffsets(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	put(t, s, "T", 0, numbered("m", 5)...)
	r := record("T", 1, "prepared only", "")
	r.SysFlag = message.FlagTransactionPrepared
	b := s.NewBatch()
	require.NoError(t, b.Add(r))
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	none := func(int64) bool { return false }
	for _, row := range []struct {
		name    string
		request GetRequest
		want    GetResult
	}{
		{"unknown topic", GetRequest{Topic: "U", Offset: 3}, GetResult{Status: GetNoQueue}},
		{"unknown queue", GetRequest{Topic: "T", QueueID: 7}, GetResult{Status: GetNoQueue}},
		{"empty queue", GetRequest{Topic: "T", QueueID: 1, Offset: 9}, GetResult{Status: GetEmptyQueue}},
		{"below", GetRequest{Topic: "T", Offset: -1}, GetResult{Status: GetTooSmall, Next: 0, Max: 5}},
		{"at the end", GetRequest{Topic: "T", Offset: 5}, GetResult{Status: GetOverflowOne, Next: 5, Max: 5}},
		{"beyond", GetRequest{Topic: "T", Offset: 6}, GetResult{Status: GetOverflowBadly, Next: 5, Max: 5}},
		{"no match", GetRequest{Topic: "T", Offset: 1, Match: none}, GetResult{Status: GetNoMatch, Next: 5, Max: 5}},
	} {
		got, err := s.Get(row.request)
		require.NoError(t, err, row.name)
		assert.Equal(t, row.want, got, row.name)
	}
	assert.Equal(t, int64(0), s.MaxOffset("U", 0))
	assert.Equal(t, int64(5), s.MaxOffset("T", 0))
	assert.Equal(t, int64(0), s.MinOffset("T", 0))
	queues := map[QueueID]Range{}
	for id, r := range s.Queues() {
		queues[id] = r
	}
	assert.Equal(t, map[QueueID]Range{{"T", 0}: {0, 5}, {"T", 1}: {0, 0}}, queues)
}

func TestGetIsBoundedByMessagesAndBytes(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	texts := numbered(strings.Repeat("x", 500), 10)
	put(t, s, "T", 0, texts...)
	size := message.RecordSize(record("T", 0, texts[0], ""))
	for _, row := range []struct{ messages, bytes, want int }{
		{0, 0, 1}, {-3, 0, 1}, {1, 0, 1}, {4, 0, 4}, {100, 0, 10}, {100, 3 * size, 3}, {100, 3*size - 1, 2}, {100, 1, 1}, {0, 1, 1},
	} {
		res, err := s.Get(GetRequest{Topic: "T", MaxMessages: row.messages, MaxBytes: row.bytes})
		require.NoError(t, err)
		assert.Equal(t, GetFound, res.Status)
		assert.Len(t, res.Records, row.want, "%+v", row)
		assert.Equal(t, int64(row.want), res.Next)
		assert.Equal(t, int64(10), res.Max)
	}
}

func TestGetMatchesByTagAndScansABoundedWindow(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	b := s.NewBatch()
	for i := range 2000 {
		tag := "common"
		if i == 0 || i == 5 || i == 1500 {
			tag = "rare"
		}
		require.NoError(t, b.Add(record("T", 0, fmt.Sprint(i), tag)))
	}
	_, err := s.Append(t.Context(), b, AppendOptions{})
	require.NoError(t, err)
	rare := func(tags int64) bool { return tags == int64(message.TagHash("rare")) }

	get := func(offset int64, messages int) GetResult {
		res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: messages, Match: rare})
		require.NoError(t, err)
		return res
	}
	res := get(0, 2)
	assert.Equal(t, GetFound, res.Status)
	assert.Len(t, res.Records, 2)
	assert.Equal(t, int64(6), res.Next, "behind the last one looked at")
	res = get(0, 32)
	assert.Len(t, res.Records, 2)
	assert.Equal(t, int64(800), res.Next, "16000 bytes of units")
	res = get(6, 32)
	assert.Equal(t, GetNoMatch, res.Status)
	assert.Equal(t, int64(806), res.Next)
	res = get(6, 1000)
	assert.Equal(t, int64(1006), res.Next, "or as many as messages are wanted")
	res = get(1000, 32)
	require.Len(t, res.Records, 1)
	assert.Equal(t, "1500", string(message.View(res.Records[0]).Body()))
	assert.Equal(t, int64(1800), res.Next)
	assert.Equal(t, int64(2000), get(1501, 32).Next, "the window ends with the queue")
}

func TestStatusesHaveRocketMQsNames(t *testing.T) {
	assert.Equal(t, "FOUND", GetFound.String())
	assert.Equal(t, "NO_MATCHED_LOGIC_QUEUE", GetNoQueue.String())
	assert.Equal(t, "NO_MESSAGE_IN_QUEUE", GetEmptyQueue.String())
	assert.Equal(t, "OFFSET_TOO_SMALL", GetTooSmall.String())
	assert.Equal(t, "OFFSET_OVERFLOW_ONE", GetOverflowOne.String())
	assert.Equal(t, "OFFSET_OVERFLOW_BADLY", GetOverflowBadly.String())
	assert.Equal(t, "NO_MATCHED_MESSAGE", GetNoMatch.String())
}
