package store

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// sealed is a record as an entry of a position, in a buffer of its own.
func sealed(t testing.TB, body string, pos, synced int64) []byte {
	buf, err := message.AppendRecord(make([]byte, headroom), record("T", 0, body, ""))
	require.NoError(t, err)
	return sealEntry(buf, headroom, len(buf)-headroom, pos, synced)
}

// appendEntry appends an entry as the wal stores it.
func appendEntry(segment, entry []byte) []byte {
	return append(binary.AppendUvarint(segment, uint64(len(entry))), entry...)
}

func TestEntryOpensOnlyAtItsPosition(t *testing.T) {
	for _, pos := range []int64{1, 127, 128, math.MaxUint32, math.MaxUint32 + 1, 1 << 40, math.MaxInt64} {
		for _, distance := range []int64{0, 1, 127, 128, 1 << 20} {
			if distance > pos {
				continue
			}
			entry := sealed(t, "body", pos, pos-distance)
			rec, d, ok := openEntry(entry, pos)
			require.True(t, ok, "position %d distance %d", pos, distance)
			assert.Equal(t, distance, d)
			assert.Equal(t, rec, recordOf(entry))
			_, _, ok = openEntry(entry, pos-1)
			assert.False(t, ok)
		}
	}
}

func TestEveryFlippedBitOfAnEntryIsSeen(t *testing.T) {
	entry := sealed(t, "some body", 1000, 300)
	for i := range entry {
		for bit := range 8 {
			entry[i] ^= 1 << bit
			_, _, ok := openEntry(entry, 1000)
			assert.False(t, ok, "byte %d bit %d", i, bit)
			entry[i] ^= 1 << bit
		}
	}
}

func TestStoredSizeIsWhatTheWalTakes(t *testing.T) {
	for _, n := range []int{1, 127, 128, 16383, 16384, 1 << 21} {
		assert.Equal(t, int64(len(appendEntry(nil, make([]byte, n)))), storedSize(n))
	}
}

func TestHeaderIsReadBack(t *testing.T) {
	h := fileHeader{format: 1, base: 12345, bytes: 1 << 33, epoch: 7, created: 1700000000000}
	segment := appendEntry(nil, h.entry(12000))
	require.Equal(t, storedSize(len(h.entry(12000))), int64(len(segment)))
	got, n, synced, ok := parseHeader(append(segment, 1, 2, 3), 12345)
	require.True(t, ok)
	assert.Equal(t, h, got)
	assert.Equal(t, len(segment), n)
	assert.Equal(t, int64(12000), synced)

	_, _, _, ok = parseHeader(segment, 12346)
	assert.False(t, ok, "the header of another file")
	for k := range segment {
		_, _, _, ok = parseHeader(segment[:k], 12345)
		assert.False(t, ok, "cut to %d bytes", k)
	}
}

func hits(data []byte, from int, first int64) (list []hit) {
	searchEntries(data, from, first, func(h hit) bool {
		entry, n, ok := cutEntry(data[h.from:])
		if rec, _, valid := openEntry(entry, h.position); !ok || !valid || n != h.to-h.from || string(rec) != string(h.record) {
			panic("the hit is not where it says")
		}
		list = append(list, hit{position: h.position, distance: h.distance})
		return true
	})
	return list
}

func TestSearchFindsEveryEntryBehindGarbage(t *testing.T) {
	garbage := []byte{0x05, 0xDA, 0xA3, 0x20, 0xA7, 0xDA, 0xA3, 0x20, 0xFF, 0xFF, 0xFF}
	garbage = append(garbage, make([]byte, 100)...)
	data := bytes.Clone(garbage) // where the entry of position 110 was
	var want []hit
	for pos := int64(111); pos <= 120; pos++ {
		data = appendEntry(data, sealed(t, "body", pos, 5))
		want = append(want, hit{position: pos, distance: pos - 5})
	}
	assert.Equal(t, want, hits(data, 0, 110))
	assert.Equal(t, want[1:], hits(data, len(garbage)+1, 110), "an entry that begins before the start does not count")
	assert.Equal(t, want[4:], hits(data, 0, 115), "nor do positions before the first")
	assert.Equal(t, want[5:], hits(data, 1, 115), "nor that of an entry known to be before the start")
	assert.Empty(t, hits(data, 0, 1), "nor those of which there cannot be so many in the bytes before")
	assert.Equal(t, want, hits(data[len(garbage):], 0, 111))
}

func TestSearchStopsWhenToldTo(t *testing.T) {
	data := appendEntry(appendEntry(nil, sealed(t, "a", 2, 1)), sealed(t, "b", 3, 1))
	n := 0
	searchEntries(data, 0, 2, func(hit) bool { n++; return false })
	assert.Equal(t, 1, n)
}

// TestSumOfALongRangeReadsItsEndsOnly is why the last kind takes no longer.
func TestSearchFindsNothingInBytesThatAreNoEntries(t *testing.T) {
	const size = 4 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, size)
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	ones := bytes.Repeat([]byte{0xFF}, size)
	magic := bytes.Repeat([]byte{0, 0, 1, 0, 0xDA, 0xA3, 0x20, 0xA7}, size/32)
	hostile := make([]byte, 0, size/4) // every 15 bytes or so begins an entry that reaches to the end
	for {
		rest := cap(hostile) - len(hostile)
		k := uvarintLen(uint64(rest))
		if rest < 1000 {
			break
		}
		hostile = binary.AppendUvarint(hostile, uint64(rest-k))
		hostile = append(hostile, 1, 2, 3, 4, 0)
		hostile = binary.BigEndian.AppendUint32(hostile, uint32(rest-k-5))
		hostile = binary.BigEndian.AppendUint32(hostile, magicV1)
	}
	hostile = hostile[:size/4]
	for name, data := range map[string][]byte{"zeros": make([]byte, size), "0xFF": ones, "random": random, "magic": magic, "hostile": hostile} {
		assert.Empty(t, hits(data, 0, 100), name)
	}
}

func FuzzSearchAndOpenNeverPanic(f *testing.F) {
	entry := sealed(f, "body", 7, 3)
	f.Add(appendEntry(nil, entry), int64(6))
	f.Add(appendEntry([]byte{0xFF}, entry[:20]), int64(0))
	f.Add(appendEntry(nil, fileHeader{base: 7}.entry(0)), int64(5))
	f.Fuzz(func(t *testing.T, data []byte, after int64) {
		after &= math.MaxInt64 >> 1
		for _, h := range hits(data, 0, after) {
			assert.GreaterOrEqual(t, h.position, after)
			assert.GreaterOrEqual(t, h.synced(), int64(0))
		}
		parseHeader(data, after+1)
		if entry, n, ok := cutEntry(data); ok {
			assert.LessOrEqual(t, n, len(data))
			openEntry(entry, after)
			recordOf(entry)
		}
	})
}
