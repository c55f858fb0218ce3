package message

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBatchItemsAreWhatWasAppended(t *testing.T) {
	body := AppendBatch(nil, 1, []byte("one"), "a\x011\x02")
	body = AppendBatch(body, -2, nil, "")
	body = AppendBatch(body, 3, []byte("three"), strings.Repeat("p", MaxPropertiesLength))

	var got []BatchItem
	for item, err := range BatchItems(body) {
		require.NoError(t, err)
		got = append(got, item)
	}
	require.Len(t, got, 3)
	assert.Equal(t, BatchItem{1, []byte("one"), []byte("a\x011\x02")}, got[0])
	assert.Equal(t, int32(-2), got[1].Flag)
	assert.Empty(t, got[1].Body)
	assert.Empty(t, got[1].Properties)
	assert.Len(t, got[2].Properties, MaxPropertiesLength)

	before := string(body)
	_ = append(got[0].Body, "XXXX"...)
	_ = append(got[0].Properties, "XXXX"...)
	assert.Equal(t, before, string(body), "an item cannot grow into the batch")
}

func TestABatchLoopMayStopEarly(t *testing.T) {
	body := AppendBatch(AppendBatch(nil, 1, nil, ""), 2, nil, "")
	for item, err := range BatchItems(body) {
		require.NoError(t, err)
		assert.Equal(t, int32(1), item.Flag)
		break
	}
}

func TestABatchCutAnywhereIsRefusedUnlessBetweenItems(t *testing.T) {
	body := AppendBatch(nil, 1, []byte("one"), "a\x011\x02")
	first := len(body)
	body = AppendBatch(body, 2, []byte("two"), "")
	for n := range body {
		count, err := CountBatch(body[:n])
		switch n {
		case 0:
			assert.NoError(t, err)
			assert.Zero(t, count)
		case first:
			assert.NoError(t, err)
			assert.Equal(t, 1, count)
		default:
			assert.ErrorIs(t, err, ErrIllegalMessage, "cut at %d", n)
		}
	}
}

func TestABadBatchItemIsNamed(t *testing.T) {
	body := AppendBatch(nil, 1, []byte("one"), "")
	second := len(body)
	body = AppendBatch(body, 2, []byte("two"), "abc")
	be := binary.BigEndian
	for _, c := range []struct {
		want   string
		damage func(b []byte)
	}{
		{"it claims 29 bytes, 28 are left", func(b []byte) { be.PutUint32(b, 29) }},
		{"it claims -1 bytes, 28 are left", func(b []byte) { be.PutUint32(b, 0xFFFFFFFF) }},
		{"a body of -1 bytes does not fit its 28 bytes", func(b []byte) { be.PutUint32(b[16:], 0xFFFFFFFF) }},
		{"a body of 7 bytes does not fit its 28 bytes", func(b []byte) { be.PutUint32(b[16:], 7) }},
		{"properties of -1 bytes do not end with its 28 bytes", func(b []byte) { be.PutUint16(b[23:], 0xFFFF) }},
		{"properties of 2 bytes do not end with its 28 bytes", func(b []byte) { be.PutUint16(b[23:], 2) }},
	} {
		b := append([]byte(nil), body...)
		c.damage(b[second:])
		n, err := CountBatch(b)
		assert.EqualError(t, err, "illegal message: message 1 of the batch: "+c.want)
		assert.Equal(t, 1, n)
	}
	_, err := CountBatch(append(body, 0))
	assert.EqualError(t, err, "illegal message: message 2 of the batch: 1 bytes left, the smallest takes 22")
}

func TestPropertiesTooLongForABatchMakeItRefused(t *testing.T) {
	for _, n := range []int{MaxPropertiesLength + 1, 65535, 65536, 65536 + 10} {
		_, err := CountBatch(AppendBatch(nil, 0, nil, strings.Repeat("p", n)))
		assert.ErrorIs(t, err, ErrIllegalMessage, "%d bytes", n)
	}
}
