package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLostRecordIsReadBackWhateverItsLength(t *testing.T) {
	for _, want := range []lostRecord{
		{position: 1},
		{position: 1 << 40, storeTime: 1700000000000, salvaged: 1700000000001},
		{position: 7, storeTime: 5, salvaged: 6, known: true, key: QueueID{"orders", 3}, offset: 1 << 33},
		{position: 7, known: true, key: QueueID{"", 0}},
	} {
		for more := range 200 {
			rec := want.appendTo([]byte("before"), want.size()+more)[6:]
			require.Len(t, rec, want.size()+more)
			require.True(t, plausible(rec))
			require.True(t, isLost(rec))
			got, ok := parseLost(rec)
			require.True(t, ok)
			require.Equal(t, want, got)
			time, err := storeTimeOfEntry(rec)
			require.NoError(t, err)
			require.Equal(t, want.storeTime, time)
		}
	}
}

func TestLostEntryInAnotherPlaceIsDamage(t *testing.T) {
	l := lostRecord{position: 7, known: true, key: QueueID{"T", 1}, offset: 3}
	rec := l.appendTo(nil, l.size())
	s, err := slotOf("path", 7, rec)
	require.NoError(t, err)
	assert.Equal(t, slot{key: QueueID{"T", 1}, offset: 3, unit: unit{position: 7}, lost: true}, s)
	_, err = slotOf("path", 8, rec)
	require.ErrorIs(t, err, ErrDamaged)
}

func FuzzParseLost(f *testing.F) {
	l := lostRecord{position: 7, known: true, key: QueueID{"T", 1}, offset: 3}
	f.Add(l.appendTo(nil, l.size()))
	f.Add((&lostRecord{position: 1}).appendTo(nil, 60))
	f.Fuzz(func(t *testing.T, rec []byte) {
		if !plausible(rec) || !isLost(rec) {
			return
		}
		l, ok := parseLost(rec)
		if !ok {
			return
		}
		again, ok := parseLost(l.appendTo(nil, len(rec)))
		require.True(t, ok)
		require.Equal(t, l, again)
	})
}
