package store

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// coldStore is a store with n records in one queue, of which all but the last
// few are read from disk.
func coldStore(t testing.TB, n int, change func(*Config)) *Store {
	t.Helper()
	cfg := testConfig(t)
	cfg.FileSize = 64 << 10
	if change != nil {
		change(&cfg)
	}
	s := mustOpen(t, cfg)
	for i := range n {
		put(t, s, "T", 0, fmt.Sprint(i+1, strings.Repeat("x", i%97)))
	}
	require.NoError(t, s.Sync(t.Context()))
	return s
}

func checkCold(t testing.TB, s *Store, position int64) {
	t.Helper()
	rec, err := s.Record(position)
	require.NoError(t, err)
	checkColdRecord(t, rec, position)
}

func checkColdRecord(t testing.TB, rec []byte, position int64) {
	t.Helper()
	v, err := message.ParseView(rec)
	require.NoError(t, err)
	require.Equal(t, position, v.Position())
	require.Equal(t, fmt.Sprint(position, strings.Repeat("x", int(position-1)%97)), string(v.Body()))
	require.Equal(t, len(rec), cap(rec))
}

func TestABlockIsReadOnceForManyRecords(t *testing.T) {
	t.Parallel()
	for _, bytes := range []int64{0, -1} {
		s := coldStore(t, 600, func(c *Config) { c.CacheBytes = bytes })
		checkCold(t, s, 70)
		checkCold(t, s, 75) // the second time makes it worth it
		if bytes == 0 {
			s.log.blocks.cache.Wait()
		} else {
			assert.Nil(t, s.log.blocks.cache)
		}
		path := segments(t, s.cfg.Dir)[0]
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		clear(data[len(data)/20:])
		require.NoError(t, os.WriteFile(path, data, 0o640))
		for position := int64(128); position > 64; position-- {
			_, err := s.Record(position)
			res, err2 := s.Get(GetRequest{Topic: "T", Offset: position - 1})
			if bytes == 0 {
				require.NoError(t, err)
				require.NoError(t, err2)
				checkColdRecord(t, res.Records[0], position)
			} else {
				require.ErrorIs(t, err, ErrDamaged)
			}
		}
		_, err = s.Record(200)
		require.ErrorIs(t, err, ErrDamaged)
		require.NoError(t, s.Close())
	}
}

func TestTheCacheIsMadeByTheFirstRandomReadOnly(t *testing.T) {
	t.Parallel()
	s := coldStore(t, 900, nil)
	checkCold(t, s, 900) // from memory
	for offset := int64(0); offset < 900; offset += 32 {
		res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: 32})
		require.NoError(t, err)
		for i, rec := range res.Records {
			checkColdRecord(t, rec, offset+int64(i)+1)
		}
	}
	assert.Nil(t, s.log.blocks.cache, "a scan does without")
	res, err := s.Get(GetRequest{Topic: "T", Offset: 500})
	require.NoError(t, err)
	checkColdRecord(t, res.Records[0], 501)
	assert.NotNil(t, s.log.blocks.cache)
}

func TestTheCacheIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	s := coldStore(t, 20_000, func(c *Config) { c.CacheBytes = MinCacheBytes })
	c := &s.log.blocks
	for i := range 2000 {
		checkCold(t, s, 1+rng.Int64N(19_000))
		if i%100 == 0 {
			c.cache.Wait()
			assert.Zero(t, c.waiting.Load())
			used := c.cache.MaxCost() - c.cache.RemainingCost()
			assert.LessOrEqual(t, used+c.maxWaiting(), int64(MinCacheBytes))
			assert.True(t, used > 0 || i == 0)
		}
	}
	held := int64(0)
	c.cache.Wait()
	c.cache.IterValues(func(b *recordBlock) bool { held += b.cost(); return false })
	assert.LessOrEqual(t, held, int64(MinCacheBytes))
}

func TestABlockWithADamagedRecordIsNotKeptAndItsOthersAreServed(t *testing.T) {
	t.Parallel()
	s := coldStore(t, 600, nil)
	path := segments(t, s.cfg.Dir)[0]
	bad := baseOf(t, segments(t, s.cfg.Dir)[1]) - 1
	_, to := lastEntry(t, path)
	flip(t, path, to-1)
	for range 2 {
		_, err := s.Record(bad)
		require.ErrorIs(t, err, ErrDamaged)
		assert.Contains(t, err.Error(), path)
		assert.Contains(t, err.Error(), fmt.Sprintf("position %d", bad))
		checkCold(t, s, bad-1)
		_, err = s.Get(GetRequest{Topic: "T", Offset: bad - 1})
		require.ErrorIs(t, err, ErrDamaged)
		res, err := s.Get(GetRequest{Topic: "T", Offset: bad - 2})
		require.NoError(t, err)
		checkColdRecord(t, res.Records[0], bad-1)
	}
	require.NoError(t, s.Close())
}

func TestRecordsLargerThanBuffersAndBlocksAreReadAlone(t *testing.T) {
	t.Parallel()
	rng := newSeed(t)
	cfg := testConfig(t)
	cfg.FileSize = 1 << 20
	s := mustOpen(t, cfg)
	var texts []string
	for i := range 200 {
		size := rng.IntN(200)
		switch {
		case i > 150: // steps that fit into a block again
		case i%3 == 0:
			size = rng.IntN(3 * scanBytes)
		case i%5 == 0:
			size = scanBytes - 200 + rng.IntN(400)
		}
		texts = append(texts, strings.Repeat(string(rune('a'+i%26)), size))
		put(t, s, "T", i%2, texts[i])
	}
	put(t, s, "T", 0, strings.Repeat("end", 1<<20))
	put(t, s, "T", 0, "in memory")
	require.NoError(t, s.Sync(t.Context()))
	require.Nil(t, (*s.log.files.Load())[0].log.Load())
	check := func(rec []byte, position int64) {
		v, err := message.ParseView(rec)
		require.NoError(t, err)
		require.Equal(t, position, v.Position())
		require.Equal(t, len(texts[position-1]), len(v.Body()))
		require.Equal(t, texts[position-1], string(v.Body()))
		require.Equal(t, len(rec), cap(rec))
	}
	for range rounds(500) {
		position := 1 + rng.Int64N(200)
		rec, err := s.Record(position)
		require.NoError(t, err)
		check(rec, position)
		queue := rng.IntN(2)
		offset := rng.Int64N(100)
		res, err := s.Get(GetRequest{Topic: "T", QueueID: queue, Offset: offset, MaxMessages: 1 + rng.IntN(90)})
		require.NoError(t, err)
		for i, rec := range res.Records {
			if at := 2*(int(offset)+i) + queue + 1; at <= len(texts) {
				check(rec, int64(at))
			}
		}
	}
}

func TestABlockIsMadeWhenItsPlaceIsReadAgain(t *testing.T) {
	t.Parallel()
	s := coldStore(t, 2000, nil)
	blocks := func() (n int) {
		s.log.blocks.cache.Wait()
		s.log.blocks.cache.IterValues(func(*recordBlock) bool { n++; return false })
		return n
	}
	for position := int64(1); position < 1500; position += indexStep {
		checkCold(t, s, position)
	}
	assert.Zero(t, blocks())
	checkCold(t, s, 70)
	checkCold(t, s, 90)
	assert.Equal(t, 1, blocks())
}

func TestABlockIsOfItsFileNotOfItsNumber(t *testing.T) {
	t.Parallel()
	c := blockCache{budget: 1 << 20}
	require.NoError(t, c.ensure())
	defer c.close()
	one, other := &logFile{base: 1}, &logFile{base: 1}
	c.put(&recordBlock{file: one, first: 1, data: make([]byte, 10)})
	c.cache.Wait()
	assert.NotNil(t, c.get(one, 1))
	assert.Nil(t, c.get(other, 1))
	assert.Nil(t, c.get(one, 65))
	c.put(&recordBlock{file: other, first: 1, data: make([]byte, 10)})
	c.cache.Wait()
	assert.NotNil(t, c.get(other, 1), "the later one replaces it")
	assert.Zero(t, c.waiting.Load())
}

func TestTheCacheMayBeClosedWhileItIsUsed(t *testing.T) {
	t.Parallel()
	for range 20 {
		c := blockCache{budget: 1 << 20}
		f := &logFile{base: 1}
		var users sync.WaitGroup
		begun := make(chan struct{}, 4)
		for i := range 4 {
			users.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for n := range 2000 {
					if !assert.NoError(t, c.ensure()) {
						return
					}
					first := 1 + indexStep*rng.Int64N(100)
					if b := c.get(f, first); b != nil {
						assert.Equal(t, first, b.first)
					} else {
						c.put(&recordBlock{file: f, first: first, data: make([]byte, 100)})
					}
					if n == 100 {
						begun <- struct{}{}
					}
				}
			})
		}
		<-begun
		c.close()
		c.close()
		users.Wait()
		assert.Nil(t, c.cache)
	}
}

// The cache has goroutines and a ticker: a bubble fails when one is left.
func TestTheCacheLivesAndEndsInsideABubble(t *testing.T) {
	t.Parallel()
	for _, end := range []func(*Store) error{(*Store).Close, (*Store).Kill, (*Store).Discard} {
		synctest.Test(t, func(t *testing.T) {
			s := coldStore(t, 600, func(c *Config) { c.Throwaway = true })
			synctest.Wait() // until the flusher has closed what is full
			require.Nil(t, (*s.log.files.Load())[0].log.Load())
			var readers sync.WaitGroup
			for i := range 8 { // several want the same blocks
				readers.Go(func() {
					for position := int64(1); position <= 500; position += int64(1 + i/4) {
						rec, err := s.Record(position)
						if assert.NoError(t, err) {
							assert.Equal(t, position, message.View(rec).Position())
						}
					}
				})
			}
			readers.Wait()
			require.NotNil(t, s.log.blocks.cache)
			time.Sleep(72 * time.Hour)
			checkCold(t, s, 300)
			require.NoError(t, end(s))
		})
	}
}

func TestAFastScanDoesNotPushOutASlowOne(t *testing.T) {
	t.Parallel()
	s := coldStore(t, 2000, nil)
	read := func(offset int64) {
		res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: 40})
		require.NoError(t, err)
		for i, rec := range res.Records {
			checkColdRecord(t, rec, offset+int64(i)+1)
		}
	}
	held := func(position int64) bool {
		for i := range s.log.cursors.scanning.slots {
			if cur := s.log.cursors.scanning.slots[i].Load(); cur != nil && cur.position == position {
				return true
			}
		}
		return false
	}
	read(0)
	read(40)
	require.True(t, held(81))
	for offset := int64(400); offset < 1800; offset += 40 {
		read(offset)
	}
	assert.True(t, held(81))
}
