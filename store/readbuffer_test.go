package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestABufferHoldsTheRecordsOfOneGetAndGoesOn(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	cfg := testConfig(t)
	cfg.FileSize = 256 << 10
	s := mustOpen(t, cfg)
	var texts []string
	for i := range 1500 {
		size := rng.IntN(2000)
		if rng.IntN(100) == 0 {
			size = rng.IntN(2 * scanBytes)
		}
		texts = append(texts, fmt.Sprint(i, strings.Repeat("x", size)))
		put(t, s, "T", 0, texts[i])
		if rng.IntN(3) == 0 {
			put(t, s, "U", 0, strings.Repeat("between", rng.IntN(300)))
		}
	}
	require.NoError(t, s.Sync(t.Context()))
	require.Greater(t, len(segments(t, cfg.Dir)), 5)
	var b ReadBuffer
	for range 20 {
		offset := rng.Int64N(1500)
		for n := 0; offset < 1500 && n < 20; n++ {
			res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: 1 + rng.IntN(200), Buffer: &b})
			require.NoError(t, err)
			for i, rec := range res.Records { // all of them at the end of the Get
				v, err := message.ParseView(rec)
				require.NoError(t, err)
				require.Equal(t, len(rec), cap(rec))
				require.Equal(t, texts[int(offset)+i], string(v.Body()))
			}
			require.Equal(t, offset+int64(len(res.Records)), res.Next)
			offset = res.Next
			assert.LessOrEqual(t, len(b.spare), maxSpare)
		}
	}
	assert.Nil(t, s.log.blocks.cache, "it needs no cache")
}

func TestReadingOnIntoABufferMakesNoMemoryPerRecord(t *testing.T) {
	s := coldStore(t, 8000, func(c *Config) { c.FileSize = 1 << 20 })
	var b ReadBuffer
	offset := int64(0)
	read := func() {
		res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: 32, Buffer: &b})
		require.NoError(t, err)
		require.Len(t, res.Records, 32)
		offset = res.Next
	}
	read()
	assert.LessOrEqual(t, testing.AllocsPerRun(50, read), 4.0, "for a file and a block of the queue")
}

func TestABufferSurvivesDamage(t *testing.T) {
	t.Parallel()
	s := coldStore(t, 600, nil)
	path := segments(t, s.cfg.Dir)[0]
	bad := baseOf(t, segments(t, s.cfg.Dir)[1]) - 1
	_, to := lastEntry(t, path)
	flip(t, path, to-1)
	var b ReadBuffer
	for range 2 {
		_, err := s.Get(GetRequest{Topic: "T", Offset: bad - 20, MaxMessages: 40, Buffer: &b})
		require.ErrorIs(t, err, ErrDamaged)
		assert.Contains(t, err.Error(), fmt.Sprintf("position %d", bad))
		res, err := s.Get(GetRequest{Topic: "T", Offset: bad - 20, MaxMessages: 19, Buffer: &b})
		require.NoError(t, err)
		for i, rec := range res.Records {
			checkColdRecord(t, rec, bad-19+int64(i))
		}
	}
	require.NoError(t, s.Close())
}
