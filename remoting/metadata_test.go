package remoting

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

// What Java's brokers write: numbers as names, and nothing of ours.
func TestTablesOfJavasBrokersAreRead(t *testing.T) {
	version := protocol.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}
	r, err := getAllConsumerOffset().read(&Frame{Flag: FlagResponse, Body: []byte(
		`{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":2},"offsetTable":{"t@g":{1:"7", 0:5,"x":1,2:null,-2:4,4294967296:1},"nobody":{0:1},"t@h":{},"t@G":{0:1},"T@g":{3:9,3:8}},"groupTopicMap":{"g":["t"]}}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetAllConsumerOffsetResponse{OffsetTable: protocol.OffsetTable{
		Version: version,
		Offsets: []protocol.GroupOffset{{Group: "g", Topic: "T", QueueID: 3, Offset: 8}, {Group: "G", Topic: "t", Offset: 1}, {Group: "g", Topic: "t", Offset: 5}, {Group: "g", Topic: "t", QueueID: 1, Offset: 7}},
	}}, r)

	d, err := getAllDelayOffset().read(&Frame{Flag: FlagResponse, Body: []byte(`{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":2},"offsetTable":{1:120,2:0}}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetAllDelayOffsetResponse{DelayProgress: protocol.DelayProgress{Version: version, Offsets: map[int]int64{1: 120, 2: 0}}}, d)

	d, err = getAllDelayOffset().read(&Frame{Flag: FlagResponse, Body: []byte(`{}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetAllDelayOffsetResponse{}, d)
}

func TestTablesWithoutABodyAreRefused(t *testing.T) {
	for _, body := range []string{"", "[]", `"x"`, "{"} {
		_, err := getAllConsumerOffset().read(&Frame{Flag: FlagResponse, Body: []byte(body)})
		assert.Error(t, err, "%q", body)
		_, err = getAllDelayOffset().read(&Frame{Flag: FlagResponse, Body: []byte(body)})
		assert.Error(t, err, "%q", body)
	}
	for _, position := range []string{"-5", "0"} {
		r, err := getAllDelayOffset().read(&Frame{Flag: FlagResponse, Body: []byte("{}"), Ext: Fields{{fieldPosition, position}}})
		require.NoError(t, err)
		assert.Zero(t, r.Position)
	}
	_, err := getAllDelayOffset().read(&Frame{Flag: FlagResponse, Body: []byte("{}"), Ext: Fields{{fieldPosition, "x"}}})
	assert.ErrorIs(t, err, errBadHeader)
}

func TestAnOwnOffsetWithoutAQueueOrNumberIsNone(t *testing.T) {
	q, err := getAllConsumerOffset().decodeRequest(&Frame{Body: []byte(`{"ownOffsets":[{"group":"g","topic":"t"},{"group":"g","topic":"t","queueId":1,"offset":2,"moved":3}]}`)})
	require.NoError(t, err)
	assert.Equal(t, &protocol.GetAllConsumerOffsetRequest{Own: []protocol.OwnOffset{
		{GroupOffset: protocol.GroupOffset{Group: "g", Topic: "t", QueueID: -1, Offset: -1}},
		{GroupOffset: protocol.GroupOffset{Group: "g", Topic: "t", QueueID: 1, Offset: 2}, Moved: 3},
	}}, q)
	_, err = getAllConsumerOffset().decodeRequest(&Frame{Body: []byte(`[]`)})
	assert.Error(t, err)
}
