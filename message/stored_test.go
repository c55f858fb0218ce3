package message

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	hostA = netip.MustParseAddrPort("10.1.2.3:52000")
	hostB = netip.MustParseAddrPort("192.168.0.9:10911")
	host6 = netip.MustParseAddrPort("[2001:db8::1]:40000")
)

func sampleRecord() *Record {
	return &Record{
		QueueID: 3, Flag: -7, QueueOffset: 11, Position: 1024, SysFlag: FlagMultiTags,
		BornTime: 1700000000123, StoreTime: 1700000000456, BornHost: hostA, StoreHost: hostB,
		ReconsumeTimes: 2, PreparedTransactionOffset: 99,
		Body: []byte("hello"), Topic: "orders", Properties: "TAGS\x01TagA\x02",
	}
}

// recordOf is the inverse of AppendRecord.
func recordOf(v View) *Record {
	return &Record{
		QueueID: v.QueueID(), Flag: v.Flag(), QueueOffset: v.QueueOffset(), Position: v.Position(), SysFlag: v.SysFlag(),
		BornTime: v.BornTime(), StoreTime: v.StoreTime(), BornHost: v.BornHost(), StoreHost: v.StoreHost(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedTransactionOffset: v.PreparedTransactionOffset(),
		Body: v.Body(), Topic: string(v.Topic()), Properties: string(v.Properties()),
	}
}

func TestViewReadsWhatAppendRecordWrote(t *testing.T) {
	for _, born := range []netip.AddrPort{hostA, host6} {
		for _, store := range []netip.AddrPort{hostB, host6} {
			for _, topicLen := range []int{1, MaxTopicLength, MaxTopicLength + 1, MaxPrefixedTopicLength} {
				r := sampleRecord()
				r.BornHost, r.StoreHost, r.Topic = born, store, strings.Repeat("t", topicLen)
				rec, err := AppendRecord(nil, r)
				require.NoError(t, err)
				assert.Len(t, rec, RecordSize(r))
				v, err := ParseView(append(rec, "the next record"...))
				require.NoError(t, err)

				assert.Equal(t, len(rec), v.Size())
				assert.Equal(t, len(rec), cap(v))
				assert.Equal(t, topicLen > MaxTopicLength, v.Magic() == MagicV2)
				assert.NoError(t, v.CheckBody())
				assert.Equal(t, int64(2598919), v.TagsCode())
				want := *r
				if born == host6 {
					want.SysFlag |= FlagBornHostV6
				}
				if store == host6 {
					want.SysFlag |= FlagStoreHostV6
				}
				assert.Equal(t, &want, recordOf(v))
			}
		}
	}
}

func TestHostsDecideTheV6Bits(t *testing.T) {
	r := sampleRecord()
	r.SysFlag = FlagBornHostV6 | FlagStoreHostV6 | FlagTransactionCommit
	rec, err := AppendRecord(nil, r)
	require.NoError(t, err)
	assert.Equal(t, FlagTransactionCommit, View(rec).SysFlag())
}

func TestAMappedHostCountsAsIPv4AndNoneAsZero(t *testing.T) {
	r := sampleRecord()
	r.BornHost = netip.MustParseAddrPort("[::ffff:10.1.2.3]:52000")
	r.StoreHost = netip.AddrPort{}
	rec, err := AppendRecord([]byte{1, 2, 3}[:0], r)
	require.NoError(t, err)
	v, err := ParseView(rec)
	require.NoError(t, err)
	assert.Equal(t, hostA, v.BornHost())
	assert.Equal(t, netip.MustParseAddrPort("0.0.0.0:0"), v.StoreHost())
}

func TestAReusedBufferLeavesNothingInTheRecord(t *testing.T) {
	r := sampleRecord()
	r.StoreHost = netip.AddrPort{}
	clean, err := AppendRecord(nil, r)
	require.NoError(t, err)
	dirty := make([]byte, 4096)
	for i := range dirty {
		dirty[i] = 0xEE
	}
	again, err := AppendRecord(dirty[:0], r)
	require.NoError(t, err)
	assert.Equal(t, clean, again)
}

func TestAppendRecordRefusesWhatDoesNotFitAndLeavesDstAlone(t *testing.T) {
	dst := []byte("kept")
	r := sampleRecord()
	r.Topic = strings.Repeat("t", MaxPrefixedTopicLength+1)
	got, err := AppendRecord(dst, r)
	assert.EqualError(t, err, `illegal message: topic "tttttttttttttttttttttttttttttttt"... takes 256 bytes, maximum 255; use a shorter name`)
	assert.ErrorIs(t, err, ErrIllegalMessage)
	assert.Equal(t, dst, got)

	r = sampleRecord()
	r.Properties = strings.Repeat("p", MaxPropertiesLength+1)
	got, err = AppendRecord(dst, r)
	assert.EqualError(t, err, `illegal message: the properties text of a message to topic "orders" takes 32768 bytes, maximum 32767; send fewer or shorter properties`)
	assert.Equal(t, dst, got)
}

func TestPatchRecordChangesExactlyItsThreeFields(t *testing.T) {
	for _, born := range []netip.AddrPort{hostA, host6} {
		r := sampleRecord()
		r.BornHost = born
		patched, err := AppendRecord(nil, r)
		require.NoError(t, err)
		PatchRecord(patched, math.MaxInt64, 7, 1800000000000)

		r.QueueOffset, r.Position, r.StoreTime = math.MaxInt64, 7, 1800000000000
		want, err := AppendRecord(nil, r)
		require.NoError(t, err)
		assert.Equal(t, want, patched)
	}
}

func TestEncodingDoesNotAllocate(t *testing.T) {
	r := sampleRecord()
	dst := make([]byte, 0, 1024)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		dst, _ = AppendRecord(dst[:0], r)
		PatchRecord(dst, 1, 2, 3)
		v, _ := ParseView(dst)
		v.TagsCode()
		_ = v.BornHost()
		_ = v.CheckBody()
	}))
}

// A broker's copy may have more properties than a sender, up to what the record's
// length can say, and everything reads it.
func TestAnAcceptedMessageMayHaveLongerProperties(t *testing.T) {
	text := func(n int) string { return "k\x01" + strings.Repeat("v", n-3) + "\x02" }
	for _, row := range []struct {
		size     int
		accepted bool
		ok       bool
	}{
		{MaxPropertiesLength, false, true}, {MaxPropertiesLength + 1, false, false},
		{MaxPropertiesLength + 1, true, true}, {MaxStoredPropertiesLength, true, true}, {MaxStoredPropertiesLength + 1, true, false},
	} {
		rec, err := AppendRecord(nil, &Record{Topic: "T", Body: []byte("x"), Properties: text(row.size), Accepted: row.accepted})
		if !row.ok {
			assert.ErrorIs(t, err, ErrIllegalMessage, "%+v", row)
			continue
		}
		require.NoError(t, err, "%+v", row)
		v, err := ParseView(rec)
		require.NoError(t, err, "%+v", row)
		assert.Equal(t, text(row.size), string(v.Properties()))
		codec := NewCodec()
		e, err := codec.DecodeExt(rec, "b", "T")
		require.NoError(t, err)
		assert.Len(t, e.Properties["k"], row.size-3)
		codec.Close()
	}
}
