package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnitIsReadBack(t *testing.T) {
	u := unit{position: 1<<40 + 3, size: 77, tags: -5}
	b := u.appendTo(unit{position: 1}.appendTo(nil))
	require.Len(t, b, 2*unitSize)
	assert.Equal(t, u, unitAt(b, 1))
	assert.Equal(t, 0, unitsUpTo(b, 0))
	assert.Equal(t, 1, unitsUpTo(b, 1))
	assert.Equal(t, 2, unitsUpTo(b, 1<<41))
}

func TestQueueTakesOnlyItsNextOffset(t *testing.T) {
	x := testExtents(t)
	q := &queue{key: QueueID{"T", 4}}
	require.NoError(t, q.place(x, 0, unit{position: 10}, false))
	for _, offset := range []int64{0, 2, -1} {
		err := q.place(x, offset, unit{position: 11}, true)
		require.ErrorIs(t, err, ErrDamaged)
		assert.Contains(t, err.Error(), fmt.Sprintf(`topic "T" queue 4: the record at position 11 has queue offset %d, expected 1`, offset))
	}
	assert.Equal(t, Range{0, 1}, q.bounds())

	late := &queue{}
	require.ErrorIs(t, late.place(x, 1000, unit{}, false), ErrDamaged)
	require.NoError(t, late.place(x, 1000, unit{}, true), "of a log whose beginning is gone")
	assert.Equal(t, Range{1000, 1001}, late.bounds())
}

func TestQueueIsReadFromBlocksAndTailBesideItsWriter(t *testing.T) {
	t.Parallel()
	x := testExtents(t)
	q := &queue{id: 1}
	const n = 5*blockUnits + 50
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for seen := int64(0); seen < n; {
				v := q.view()
				seen = v.max()
				for offset := int64(0); offset < seen; {
					units, err := v.units(x, offset)
					if err != nil {
						t.Error(err)
						return
					}
					for i := range len(units) / unitSize {
						if u := unitAt(units, i); u.position != offset+1 {
							t.Errorf("offset %d: position %d", offset, u.position)
						}
						offset++
					}
				}
			}
		})
	}
	for i := range int64(n) {
		require.NoError(t, q.place(x, i, unit{position: i + 1}, false))
	}
	wg.Wait()
}

func TestThousandsOfQueuesAreKeptAndCheckpointed(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.FileSize = 1 << 20
	s := mustOpen(t, cfg)
	const topics, queues = 50, 40
	for i := range topics * queues {
		put(t, s, fmt.Sprintf("topic-%d", i%topics), i/topics, "x")
	}
	mustClose(t, s)
	s = mustOpen(t, cfg)
	count := 0
	for id, r := range s.Queues() {
		require.Equal(t, Range{0, 1}, r, "%v", id)
		count++
	}
	assert.Equal(t, topics*queues, count)
}
