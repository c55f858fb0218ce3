package delay

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func record(props string) message.Record {
	return message.Record{
		Topic: "T", QueueID: 3, Flag: 7, SysFlag: message.FlagCompressed, BornTime: 99, BornHost: netip.MustParseAddrPort("1.2.3.4:5"),
		ReconsumeTimes: 4, PreparedTransactionOffset: 11, Body: []byte("body"), Properties: props,
	}
}

func deferred(t *testing.T, r message.Record, level int) message.View {
	t.Helper()
	Defer(&r, level, 18)
	rec, err := message.AppendRecord(nil, &r)
	require.NoError(t, err)
	v, err := message.ParseView(rec)
	require.NoError(t, err)
	return v
}

func TestARestoredRecordIsTheOneThatWasDeferred(t *testing.T) {
	want := record("TAGS\x01a\x02DELAY\x019\x02TIMER_DELAY_MS\x015\x02WAIT\x01false")
	v := deferred(t, want, 3)
	assert.Equal(t, message.ScheduleTopic, string(v.Topic()))
	assert.Equal(t, int32(2), v.QueueID())
	got, err := Restore(v)
	require.NoError(t, err)
	want.Properties = "TAGS\x01a\x02WAIT\x01false\x02DELAY\x013\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"
	want.Accepted = true
	assert.Equal(t, want, got)

	assert.Equal(t, int32(17), deferred(t, record(""), 99).QueueID(), "above the highest")
}

func TestATextThatBecomesTooLongForJavaGoesBackToWhatItWas(t *testing.T) {
	text := "k\x01" + strings.Repeat("v", message.MaxPropertiesLength-3) + "\x02"
	got, err := Restore(deferred(t, record(text), 1))
	require.NoError(t, err)
	assert.Equal(t, text, got.Properties)
}

func TestARecordThatDoesNotSayWhereToGoIsNotRestored(t *testing.T) {
	for _, text := range []string{"", "REAL_TOPIC\x01T\x02", "REAL_QID\x011\x02", "REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02", "REAL_TOPIC\x01T\x02REAL_QID\x01x\x02"} {
		rec, err := message.AppendRecord(nil, &message.Record{Topic: message.ScheduleTopic, Properties: text})
		require.NoError(t, err)
		_, err = Restore(rec)
		assert.ErrorIs(t, err, errNoDestination, "%q", text)
	}
}
