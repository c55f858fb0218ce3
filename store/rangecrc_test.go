package store

import (
	"bytes"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSumOfAnyRangeIsItsCRC(t *testing.T) {
	rng := newSeed(t)
	data := make([]byte, 300_001)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	r := rangeCRC{data: data}
	check := func(from, to int) {
		require.Equal(t, crc32.Checksum(data[from:to], castagnoli), r.sum(from, to), "[%d:%d]", from, to)
	}
	for range 500 {
		from := rng.IntN(len(data))
		check(from, from+rng.IntN(len(data)-from+1))
	}
	for _, n := range []int{0, 1, rangeStep - 1, rangeStep, rangeStep + 1, rangeSmall - 1, rangeSmall, 64 << 10, len(data)} {
		check(0, n)
		check(len(data)-n, len(data))
		check((len(data)-n)/2, (len(data)-n)/2+n)
	}
	empty := rangeCRC{}
	require.Equal(t, uint32(0), empty.sum(0, 0))
}

// What a sum costs does not grow with its range: of a long one only the ends are read.
func TestSumOfALongRangeReadsItsEndsOnly(t *testing.T) {
	data := bytes.Repeat([]byte("range"), 100_000)
	r := rangeCRC{data: data}
	const from, to = 12_345, 456_789
	want := r.sum(from, to)
	clear(data[from+rangeStep : to-rangeStep])
	require.Equal(t, want, r.sum(from, to))
}
