package remoting

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"testing"
	"time"

	"github.com/pocketmq/pocketmq/protocol"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func deflate(t testing.TB, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zlib.NewWriterLevel(&b, 9)
	require.NoError(t, err)
	_, err = z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func compressedRegistration(body []byte) *Frame {
	f := &Frame{Code: 103, Version: Version, Body: body, Ext: Fields{
		{"brokerName", "b"}, {"brokerAddr", "127.0.0.1:1"}, {"clusterName", "c"}, {"brokerId", "0"}, {"haServerAddr", ""}, {"compressed", "true"},
	}}
	f.putLong("bodyCrc32", int64(bodyCRC(body)))
	return f
}

// lengthsBefore writes texts with their lengths, and numbers.
func lengthsBefore(parts ...any) (b []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
			b = append(b, p...)
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		}
	}
	return b
}

func TestCompressedRegistrations(t *testing.T) {
	body := deflate(t, lengthsBefore(`{"counter":3,"stateVersion":0,"timestamp":1700000000000}`, 2, "T 8 4 6 SINGLE_TAG {}", "U 1 1 4 MULTI_TAG", `["f"]`, 1, "{}"))
	q, err := registerBroker().decodeRequest(compressedRegistration(body))
	require.NoError(t, err)
	assert.Equal(t, &protocol.RegisterBrokerRequest{
		Cluster: "c", BrokerName: "b", Addr: "127.0.0.1:1", Version: protocol.DataVersion{Counter: 3, Timestamp: 1700000000000},
		Topics:        []protocol.TopicConfig{{Name: "T", ReadQueues: 8, WriteQueues: 4, Perm: 6}, {Name: "U", ReadQueues: 1, WriteQueues: 1, Perm: 4}},
		FilterServers: []string{"f"},
	}, q)

	for _, plain := range [][]byte{
		nil, lengthsBefore("{}"), lengthsBefore("{}", 1), lengthsBefore("{}", 1, "T"), lengthsBefore("{}", 1, "T x 1 6 S"), lengthsBefore("{}", -1, "T 1 1 6 S", "[]"),
		lengthsBefore("{", 0, "[]"), lengthsBefore("{}", 0, "["), lengthsBefore("{}", 0, -1), make([]byte, maxRegisterBody+1),
	} {
		_, err := registerBroker().decodeRequest(compressedRegistration(deflate(t, plain)))
		assert.Error(t, err, "%.40q", plain)
	}
	_, err = registerBroker().decodeRequest(compressedRegistration(deflate(t, lengthsBefore("{}", maxRegisteredTopics+1))))
	assert.ErrorContains(t, err, "262145 topics, at most 262144 are allowed")
	_, err = registerBroker().decodeRequest(compressedRegistration([]byte("no zlib")))
	assert.ErrorIs(t, err, errBadHeader)
	_, err = registerBroker().decodeRequest(compressedRegistration(body[:len(body)-5]))
	assert.ErrorIs(t, err, errBadHeader)
}

func TestARegistrationProvesItsBody(t *testing.T) {
	f := registerBroker().request(&protocol.RegisterBrokerRequest{Cluster: "c", BrokerName: "b", Addr: "127.0.0.1:1", Topics: []protocol.TopicConfig{{Name: "T"}}})
	f.Body = bytes.Replace(f.Body, []byte(`"T"`), []byte(`"U"`), 1)
	answer := registerBroker().serve(t.Context(), nil, site{}, f)
	assert.EqualValues(t, protocol.SystemError, answer.Code)
	assert.Contains(t, answer.Remark, "crc32 not match")
}

func TestRegistrationsOfOlderBrokers(t *testing.T) {
	table := `{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"order":true,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":1,"writeQueueNums":4}}}`
	fields := Fields{{"brokerName", "b"}, {"brokerAddr", "127.0.0.1:1"}, {"clusterName", "c"}, {"brokerId", "0"}, {"heartbeatTimeoutMillis", "60000"}}
	want := &protocol.RegisterBrokerRequest{
		Cluster: "c", BrokerName: "b", Addr: "127.0.0.1:1", HeartbeatTimeout: time.Minute, Version: protocol.DataVersion{Counter: 3, Timestamp: 5},
		Topics: []protocol.TopicConfig{{Name: "T", ReadQueues: 8, WriteQueues: 4, Perm: 6, Order: true, SysFlag: 1}},
	}
	q, err := registerBroker().decodeRequest(&Frame{Version: 36, Ext: fields, Body: []byte(table)})
	require.NoError(t, err)
	assert.Equal(t, want, q)
	q, err = registerBroker().decodeRequest(&Frame{Version: 37, Ext: fields, Body: []byte(`{"topicConfigSerializeWrapper":` + table + `}`)})
	require.NoError(t, err)
	assert.Equal(t, want, q)

	want.Topics, want.Version = nil, protocol.DataVersion{}
	q, err = registerBroker().decodeRequest(&Frame{Version: Version, Ext: fields})
	require.NoError(t, err)
	assert.Equal(t, want, q, "no body: no topics")
}
