package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// fill appends records of four queues in turn and returns how many each got.
// Every file but the last is synced and so read from disk.
func fill(t testing.TB, s *Store, each int) {
	for i := range each {
		for queue := range 4 {
			put(t, s, "T", queue, fmt.Sprintf("%d:%d:%s", queue, i, strings.Repeat("x", i%97)))
		}
	}
	require.NoError(t, s.Sync(t.Context()))
}

func checkFilled(rec []byte, queue int, offset int64) error {
	v := message.View(rec)
	want := fmt.Sprintf("%d:%d:", queue, offset)
	if !strings.HasPrefix(string(v.Body()), want) || v.CheckBody() != nil || v.QueueOffset() != offset {
		return fmt.Errorf("queue %d offset %d: read %.20q of offset %d", queue, offset, v.Body(), v.QueueOffset())
	}
	return nil
}

func TestH1_SealedFilesAreReadAtAnyOffsetByManyAtOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FileSize = 8 << 10
	s := mustOpen(t, cfg)
	const each = 400
	fill(t, s, each)
	require.Greater(t, len(segments(t, cfg.Dir)), maxHandles+1)
	for range 2 { // with the index kept from writing, and with one made by readers
		var wg sync.WaitGroup
		for reader := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(reader), 9))
				for range 150 {
					queue, offset := rng.IntN(4), rng.Int64N(each)
					res, err := s.Get(GetRequest{Topic: "T", QueueID: queue, Offset: offset, MaxMessages: 1 + rng.IntN(40)})
					if err != nil || res.Status != GetFound {
						t.Errorf("get: %v %v", res.Status, err)
						return
					}
					for i, rec := range res.Records {
						if err := checkFilled(rec, queue, offset+int64(i)); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Go(func() { // beside a writer
			for range 100 {
				put(t, s, "U", 0, "beside")
			}
		})
		wg.Wait()
		mustClose(t, s)
		s = mustOpen(t, cfg)
	}
}

func TestEveryStartAndLengthOfASealedReadIsRight(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FileSize = 32 << 10
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, numbered("m", 300)...)
	put(t, s, "T", 0, "roll")
	require.NoError(t, s.Sync(t.Context()))
	for offset := range int64(300) {
		for _, n := range []int{1, 2, 63, 64, 65, 200} {
			res, err := s.Get(GetRequest{Topic: "T", Offset: offset, MaxMessages: n})
			require.NoError(t, err)
			require.Len(t, res.Records, min(n, int(301-offset)))
			for i, rec := range res.Records {
				require.Equal(t, offset+int64(i), message.View(rec).QueueOffset())
			}
		}
	}
}

func TestH16_RecordsStayValidAndCannotBeGrownIntoTheLog(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "a", "b")
	memory, err := s.Get(GetRequest{Topic: "T", MaxMessages: 2})
	require.NoError(t, err)
	want := string(memory.Records[0]) + string(memory.Records[1])
	_ = append(memory.Records[0], "written behind the first record"...)
	fill(t, s, 50)
	disk, err := s.Get(GetRequest{Topic: "T", MaxMessages: 2})
	require.NoError(t, err)
	_ = append(disk.Records[0], "written behind the first record"...)
	mustClose(t, s)
	for _, res := range []GetResult{memory, disk} {
		assert.Equal(t, want, string(res.Records[0])+string(res.Records[1]))
		for _, rec := range res.Records {
			assert.Equal(t, len(rec), cap(rec))
		}
	}
}

func TestH6_DamageInASealedFileIsReportedByNameAndNotServed(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	want := numbered("m", 100)
	for _, text := range want {
		put(t, s, "T", 0, text)
	}
	require.NoError(t, s.Sync(t.Context()))
	path := segments(t, cfg.Dir)[1]
	base := baseOf(t, path)
	_, to := lastEntry(t, path)
	flip(t, path, to-1)
	bad := baseOf(t, segments(t, cfg.Dir)[2]) - 2 // offset of the last record of the file
	_, err := s.Get(GetRequest{Topic: "T", Offset: bad})
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), path)
	assert.Contains(t, err.Error(), fmt.Sprintf("position %d", bad+1))
	res, err := s.Get(GetRequest{Topic: "T", Offset: base - 1})
	require.NoError(t, err, "others of that file are served")
	assert.Equal(t, want[base-1], string(message.View(res.Records[0]).Body()))
	err = s.Check(t.Context())
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), path)
	require.NoError(t, s.Close())
}
