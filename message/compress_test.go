package message

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var allCompressions = []Compression{Zlib, LZ4, Zstd}

// mixed is text of n bytes that compresses somewhat.
func mixed(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = "abcdefgh"[x>>29]
	}
	return b
}

func TestInflateUndoesCompressAtAnySize(t *testing.T) {
	codec := NewCodec()
	defer codec.Close()
	for _, kind := range allCompressions {
		for _, n := range []int{0, 1, 511, 4096, 1<<17 + 1} {
			body := mixed(n)
			out, flag, err := codec.Compress([]byte("head"), body, kind)
			require.NoError(t, err)
			require.True(t, bytes.HasPrefix(out, []byte("head")))
			got, err := codec.Inflate(out[4:], flag, 0)
			require.NoError(t, err, "%v %d", kind, n)
			assert.True(t, bytes.Equal(body, got), "%v %d", kind, n)
			again, err := CompressionOf(flag)
			require.NoError(t, err)
			assert.Equal(t, kind, again)
		}
	}
}

func TestAPlainBodyIsReturnedAsItIs(t *testing.T) {
	codec := NewCodec()
	body := []byte("plain")
	got, err := codec.Inflate(body, 0x300, 1)
	require.NoError(t, err)
	assert.Same(t, &body[0], &got[0])
	got, err = codec.Inflate(nil, FlagCompressed, 0)
	require.NoError(t, err)
	assert.Empty(t, got)
}

func TestTheLimitIsExact(t *testing.T) {
	codec := NewCodec()
	for _, kind := range allCompressions {
		for _, n := range []int{1, 600, 40_000} {
			packed, flag, err := codec.Compress(nil, mixed(n), kind)
			require.NoError(t, err)
			got, err := codec.Inflate(packed, flag, n)
			require.NoError(t, err, "%v %d", kind, n)
			assert.Len(t, got, n)
			if n > 1 {
				_, err = codec.Inflate(packed, flag, n-1)
				assert.ErrorIs(t, err, ErrBadRecord, "%v %d", kind, n)
				assert.ErrorContains(t, err, "inflates to more than")
			}
		}
	}
}

// zstdZeros is a frame of n blocks of 128 KiB zeros, four bytes each. It does
// not state its size.
func zstdZeros(n int) []byte {
	frame := []byte{0x28, 0xB5, 0x2F, 0xFD, 0, 0x38}
	for i := range n {
		header := uint32(128<<10)<<3 | 1<<1 // run of one byte
		if i == n-1 {
			header |= 1 // last
		}
		frame = append(frame, byte(header), byte(header>>8), byte(header>>16), 0)
	}
	return frame
}

func TestABombIsRefusedWithoutTakingItsMemory(t *testing.T) {
	codec := NewCodec()
	defer codec.Close()
	const limit = 1 << 20
	bombs := map[string][]byte{
		"ZSTD": zstdZeros(512),
		// A row of frames, each within the limit and none stating its size.
		"row of ZSTD": bytes.Repeat(zstdZeros(4), 128),
	}
	for _, kind := range []Compression{Zlib, LZ4} {
		packed, _, err := codec.Compress(nil, make([]byte, 8<<20), kind)
		require.NoError(t, err)
		bombs[kind.String()] = packed
	}

	for name, flag := range map[string]int32{"ZLIB": 0x301, "LZ4": 0x101, "ZSTD": 0x201, "row of ZSTD": 0x201} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := codec.Inflate(bombs[name], flag, limit)
		runtime.ReadMemStats(&after)
		assert.ErrorIs(t, err, ErrBadRecord, name)
		assert.ErrorContains(t, err, "inflates to more than 1048576 bytes", name)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(7<<20), name)
	}
}

func TestACodecIsAsGoodAsNewAfterGarbage(t *testing.T) {
	codec := NewCodec()
	defer codec.Close()
	for _, kind := range allCompressions {
		body := mixed(20_000)
		packed, flag, err := codec.Compress(nil, body, kind)
		require.NoError(t, err)
		for _, garbage := range [][]byte{packed[:len(packed)/2], packed[:3], []byte("garbage that is no frame"), append([]byte{packed[0] ^ 1}, packed[1:]...)} {
			_, err = codec.Inflate(garbage, flag, 0)
			assert.ErrorIs(t, err, ErrBadRecord, "%v: %d bytes", kind, len(garbage))
			got, err := codec.Inflate(packed, flag, 0)
			require.NoError(t, err, "%v after %d bytes of garbage", kind, len(garbage))
			require.True(t, bytes.Equal(body, got))
		}
	}
}

func TestUnknownKindsAreRefused(t *testing.T) {
	codec := NewCodec()
	_, _, err := codec.Compress(nil, []byte("x"), Compression(3))
	assert.EqualError(t, err, "message: Compression(3) is no way to compress: use Zlib, LZ4 or Zstd")
	_, err = codec.Inflate([]byte("x"), FlagCompressed|0x400, 0)
	assert.EqualError(t, err, "Unknown compress type value: 4")
	assert.ErrorIs(t, err, ErrBadRecord)
	_, err = ParseCompression("gzip")
	assert.Error(t, err)
}

func TestACodecMayBeUsedByManyAndAfterClose(t *testing.T) {
	codec := NewCodec()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			kind := allCompressions[i%3]
			body := mixed(10_000 + i)
			for range 4 {
				packed, flag, err := codec.Compress(nil, body, kind)
				assert.NoError(t, err)
				got, err := codec.Inflate(packed, flag, 0)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(body, got))
			}
		})
	}
	wg.Wait()
	codec.Close()
	packed, flag, err := codec.Compress(nil, []byte("again"), Zstd)
	require.NoError(t, err)
	got, err := codec.Inflate(packed, flag, 0)
	require.NoError(t, err)
	assert.Equal(t, "again", string(got))
}

// useAll runs everything that a Codec pools, twice so that pooled values are
// used again.
func useAll(t *testing.T, codec *Codec) {
	for range 2 {
		for _, kind := range allCompressions {
			packed, flag, err := codec.Compress(nil, mixed(140_000), kind)
			require.NoError(t, err)
			_, err = codec.Inflate(packed, flag, 0)
			require.NoError(t, err)
		}
	}
}

func TestACodecStartsNoGoroutine(t *testing.T) {
	// A bubble does not end before its goroutines do.
	synctest.Test(t, func(t *testing.T) {
		useAll(t, NewCodec())
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for _, library := range []string{"klauspost", "pierrec"} {
			assert.NotContains(t, string(stacks), "created by github.com/"+library)
		}
	})
}

func TestCodecsOfTwoBubblesDoNotMeet(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			codec := NewCodec()
			defer codec.Close()
			useAll(t, codec)
		})
	}
}

func TestCompressionNames(t *testing.T) {
	var names []string
	for _, kind := range allCompressions {
		names = append(names, kind.String())
	}
	assert.Equal(t, "ZLIB LZ4 ZSTD", strings.Join(names, " "))
}
