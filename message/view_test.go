package message

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// touch calls every method of a View.
func touch(v View) {
	_ = recordOf(v)
	_ = v.CheckBody()
	_ = v.TagsCode()
	_ = v.BodyCRC()
	_ = v.Size()
}

func TestARecordCutAnywhereIsRefused(t *testing.T) {
	rec, err := AppendRecord(nil, sampleRecord())
	require.NoError(t, err)
	for n := range rec {
		_, err := ParseView(rec[:n])
		assert.ErrorIs(t, err, ErrBadRecord, "%d of %d bytes", n, len(rec))

		// Also when the size says that this is all.
		short := append([]byte(nil), rec[:n]...)
		if n >= 4 {
			binary.BigEndian.PutUint32(short, uint32(n))
			_, err = ParseView(short)
			assert.ErrorIs(t, err, ErrBadRecord, "%d of %d bytes", n, len(rec))
		}
	}
}

func TestAFlippedBitIsRefusedOrReadableNeverAPanic(t *testing.T) {
	for _, r := range []*Record{sampleRecord(), {Topic: "T", BornHost: host6, StoreHost: host6}} {
		rec, err := AppendRecord(nil, r)
		require.NoError(t, err)
		for bit := range 8 * len(rec) {
			b := append([]byte(nil), rec...)
			b[bit/8] ^= 1 << (bit % 8)
			if v, err := ParseView(b); err == nil {
				touch(v)
			} else {
				assert.ErrorIs(t, err, ErrBadRecord)
			}
		}
	}
}

func TestParseViewSaysWhatIsWrong(t *testing.T) {
	good, err := AppendRecord(nil, sampleRecord()) // 91 + 5 + 6 + 10 bytes
	require.NoError(t, err)
	be := binary.BigEndian
	for _, c := range []struct {
		want   string
		damage func(b []byte)
	}{
		{"it claims 4660 bytes, 112 are there", func(b []byte) { be.PutUint32(b, 0x1234) }},
		{"it claims -1 bytes, 112 are there", func(b []byte) { be.PutUint32(b, 0xFFFFFFFF) }},
		{"it starts with the mark 0xcbd43194", func(b []byte) { be.PutUint32(b[atMagic:], 0xCBD43194) }},
		{"a body of -1 bytes does not fit its 112 bytes", func(b []byte) { be.PutUint32(b[84:], 0xFFFFFFFF) }},
		{"a body of 2147483647 bytes does not fit its 112 bytes", func(b []byte) { be.PutUint32(b[84:], 0x7FFFFFFF) }},
		{"112 bytes end before its topic", func(b []byte) { be.PutUint32(b[84:], 24) }},
		{"a topic of -128 bytes does not fit its 112 bytes", func(b []byte) { b[93] = 0x80 }},
		{"a topic of 127 bytes does not fit its 112 bytes", func(b []byte) { b[93] = 127 }},
		{"112 bytes end before its properties", func(b []byte) { b[93] = 17 }},
		{"properties of 65535 bytes, 10 are left of its 112 bytes", func(b []byte) { be.PutUint16(b[100:], 0xFFFF) }},
		{"properties of 9 bytes, 10 are left of its 112 bytes", func(b []byte) { be.PutUint16(b[100:], 9) }},
		{"a host has a port over 65535", func(b []byte) { b[52] = 1 }},
		{"a host has a port over 65535", func(b []byte) { b[68] = 0x80 }},
	} {
		b := append([]byte(nil), good...)
		c.damage(b)
		_, err := ParseView(b)
		assert.EqualError(t, err, "bad record: "+c.want)
	}
	_, err = ParseView(nil)
	assert.EqualError(t, err, "bad record: 0 bytes, the smallest record takes 91")
}

func TestCheckBodyNamesThePosition(t *testing.T) {
	rec, err := AppendRecord(nil, sampleRecord())
	require.NoError(t, err)
	rec[88] ^= 1
	v, err := ParseView(rec)
	require.NoError(t, err)
	err = v.CheckBody()
	assert.ErrorIs(t, err, ErrBadRecord)
	assert.ErrorContains(t, err, "the body of position 1024 has CRC")
}

func TestPartsOfAViewCannotGrowIntoTheRecord(t *testing.T) {
	rec, err := AppendRecord(nil, sampleRecord())
	require.NoError(t, err)
	before := string(rec)
	v, err := ParseView(rec)
	require.NoError(t, err)
	_ = append(v.Body(), "XX"...)
	_ = append(v.Topic(), "XX"...)
	_ = append(v.Properties(), "XX"...)
	assert.Equal(t, before, string(rec))
}
