package message

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func decode(t *testing.T, r *Record, hint string) *Ext {
	t.Helper()
	rec, err := AppendRecord(nil, r)
	require.NoError(t, err)
	e, err := NewCodec().DecodeExt(rec, "broker-a", hint)
	require.NoError(t, err)
	for i := range rec { // whoever gave the record may use its memory again
		rec[i] = 0xEE
	}
	return e
}

func TestDecodeExtGivesBackTheMessage(t *testing.T) {
	m := Message{
		Topic: "orders", Tag: "TagA", Keys: []string{"k1", "k2"}, ShardingKey: "s", Flag: -7, Body: []byte("hello"),
		Properties: map[string]string{"region": "eu", "line": "a\nb"}, DelayLevel: 3, NoWait: true,
	}
	r := sampleRecord()
	r.Properties = string(m.AppendProperties(nil, "0A01"))
	e := decode(t, r, "orders")

	want := m
	want.DelayLevel, want.NoWait = 0, false // the sender's wishes
	assert.Equal(t, &Ext{
		Message:     want,
		Queue:       Queue{Topic: "orders", BrokerName: "broker-a", QueueID: 3},
		QueueOffset: 11, CommitLogOffset: 1024, MsgID: "0A01", OffsetMsgID: OffsetMsgID(hostB, 1024),
		PreparedTransactionOffset: 99, ReconsumeTimes: 2,
		BornTime: time.UnixMilli(1700000000123), StoreTime: time.UnixMilli(1700000000456), BornHost: hostA, StoreHost: hostB,
		SysFlag: FlagMultiTags, StoreSize: RecordSize(r), BodyCRC: BodyCRC([]byte("hello")),
		properties: r.Properties,
	}, e)
	for name, value := range map[string]string{
		"region": "eu", PropKeys: "k1 k2", PropTags: "TagA", PropWait: "false", PropDelay: "3", PropUniqKey: "0A01", "absent": "",
	} {
		assert.Equal(t, value, e.Property(name), name)
	}
}

func TestAMessageWithoutPropertiesHasNone(t *testing.T) {
	r := sampleRecord()
	r.Properties, r.Body = "", nil
	e := decode(t, r, "")
	assert.Nil(t, e.Properties)
	assert.Nil(t, e.Keys)
	assert.Nil(t, e.Body)
	assert.Equal(t, e.OffsetMsgID, e.MsgID)
	assert.Empty(t, e.Property(PropTags))
}

func TestOnlyARetriedMessageTakesItsOriginalTopic(t *testing.T) {
	for topic, want := range map[string]string{"%RETRY%g": "orders", "%DLQ%g": "%DLQ%g", "other": "other"} {
		r := sampleRecord()
		r.Topic, r.Properties = topic, "RETRY_TOPIC\x01orders\x02"
		e := decode(t, r, topic)
		assert.Equal(t, want, e.Topic)
		assert.Equal(t, topic, e.Queue.Topic)
	}
	r := sampleRecord()
	r.Topic, r.Properties = "%RETRY%g", ""
	assert.Equal(t, "%RETRY%g", decode(t, r, "").Topic)
}

func TestTransactionIDIsTheUniqueKeyOfAHalfMessage(t *testing.T) {
	for props, want := range map[string]string{
		"UNIQ_KEY\x01U\x02":                                               "",
		"UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02":                           "U",
		"TRAN_MSG\x01true\x02UNIQ_KEY\x01U\x02":                           "U",
		"UNIQ_KEY\x01U\x02TRAN_MSG\x01false\x02":                          "",
		"TRAN_MSG\x01true\x02":                                            "",
		"UNIQ_KEY\x01U\x02__transactionId__\x01X\x02":                     "X",
		"UNIQ_KEY\x01U\x02__transactionId__\x01X\x02TRAN_MSG\x01true\x02": "U",
	} {
		r := sampleRecord()
		r.Properties = props
		assert.Equal(t, want, decode(t, r, "").TransactionID, "%q", props)
	}
}

func TestKeysAreSplitAtBlanks(t *testing.T) {
	for value, want := range map[string][]string{"a": {"a"}, "a b": {"a", "b"}, " a  b ": {"a", "b"}, "  ": nil} {
		r := sampleRecord()
		r.Properties = "KEYS\x01" + value + "\x02"
		assert.Equal(t, want, decode(t, r, "").Keys, "%q", value)
	}
}

func TestTheGoClientsShardingKeyIsUnderstood(t *testing.T) {
	r := sampleRecord()
	r.Properties = "SHARDING_KEY\x01g\x02"
	e := decode(t, r, "")
	assert.Equal(t, "g", e.ShardingKey)
	assert.Nil(t, e.Properties)
	r.Properties = "__SHARDINGKEY\x01j\x02SHARDING_KEY\x01g\x02"
	assert.Equal(t, "j", decode(t, r, "").ShardingKey)
}

func TestTheTopicHintIsUsedOnlyIfItIsTheTopic(t *testing.T) {
	hint := string([]byte("orders"))
	e := decode(t, sampleRecord(), hint)
	assert.Equal(t, unsafe.StringData(hint), unsafe.StringData(e.Topic))
	assert.Equal(t, "orders", decode(t, sampleRecord(), "payments").Topic)
}

func TestDecodeExtAllocatesLittle(t *testing.T) {
	rec, err := AppendRecord(nil, benchRecord(128))
	require.NoError(t, err)
	codec := NewCodec()
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := codec.DecodeExt(rec, "broker-a", "orders"); err != nil {
			t.Fatal(err)
		}
	})
	assert.Equal(t, 3.0, allocs, "the message, its body, its texts")
}

func TestDecodeExtRefusesWhatIsNoRecord(t *testing.T) {
	codec := NewCodec()
	_, err := codec.DecodeExt([]byte("no record"), "broker-a", "")
	assert.ErrorIs(t, err, ErrBadRecord)

	r := sampleRecord()
	r.SysFlag = FlagCompressed
	rec, err := AppendRecord(nil, r)
	require.NoError(t, err)
	_, err = codec.DecodeExt(rec, "broker-a", "")
	assert.ErrorIs(t, err, ErrBadRecord)
	assert.ErrorContains(t, err, `position 1024, topic "orders": bad record: inflate a body of 5 bytes by ZLIB: `)
}

func TestDecodeExtInflatesUpToItsLimit(t *testing.T) {
	codec := NewCodec()
	r := sampleRecord()
	var err error
	r.Body, r.SysFlag, err = codec.Compress(nil, make([]byte, 5000), Zlib)
	require.NoError(t, err)
	rec, err := AppendRecord(nil, r)
	require.NoError(t, err)
	e, err := codec.DecodeExt(rec, "broker-a", "")
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 5000), e.Body)
	assert.Equal(t, int32(0x300), e.SysFlag, "the bit for compressed is cleared, the type stays")
	assert.Equal(t, BodyCRC(r.Body), e.BodyCRC)

	small := &Codec{InflateLimit: 4999}
	_, err = small.DecodeExt(rec, "broker-a", "")
	assert.ErrorIs(t, err, ErrBadRecord)
	assert.ErrorContains(t, err, "inflates to more than 4999 bytes, the limit of this reader")
}
