package store

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A random log loses random positions. Whatever is known about the queues, the
// places found must be possible ones, and the true ones where a checkpoint tells.
func TestLostPositionsFindPlacesThatFit(t *testing.T) {
	t.Parallel()
	for range 200 {
		rng := newSeed(t)
		var log []slot // by position - 1
		ends := make(map[QueueID]int64)
		for range 1 + rng.IntN(60) {
			key := QueueID{ID: rng.IntN(4)}
			s := slot{key: key, offset: ends[key], silent: rng.IntN(6) == 0}
			if !s.silent {
				ends[key]++
			}
			log = append(log, s)
		}
		known := int64(rng.IntN(len(log) + 1)) // the checkpoint reaches up to here
		var tracker queueTracker
		var lost []span
		var hints []hint
		for i, s := range log {
			p := int64(i) + 1
			if rng.IntN(3) > 0 {
				tracker.see(p, s)
				continue
			}
			if n := len(lost); n > 0 && lost[n-1].last == p-1 {
				lost[n-1].last = p
			} else {
				lost = append(lost, span{p, p})
			}
			if p <= known && !s.silent {
				hints = append(hints, hint{position: p, key: s.key, offset: s.offset})
			}
		}
		require.NoError(t, tracker.conflict)
		places, err := tracker.attribute(lost, hints, known)
		require.NoError(t, err)
		for _, h := range hints {
			require.Equal(t, place{h.key, h.offset}, places[h.position])
		}
		// With the places filled in, every queue is dense.
		var filled queueTracker
		for i, s := range log {
			p := int64(i) + 1
			if at, ok := places[p]; ok {
				s = slot{key: at.key, offset: at.offset, lost: true}
			} else if isIn(lost, p) {
				require.True(t, s.silent || p > known)
				continue
			}
			filled.see(p, s)
		}
		require.NoError(t, filled.conflict)
		require.Empty(t, filled.gaps)
	}
}

func isIn(spans []span, p int64) bool {
	for _, s := range spans {
		if p >= s.first && p <= s.last {
			return true
		}
	}
	return false
}

func TestGapThatNothingLostCanFillIsAContradiction(t *testing.T) {
	var tracker queueTracker
	tracker.see(1, slot{key: QueueID{Topic: "T"}, offset: 0})
	tracker.see(5, slot{key: QueueID{Topic: "T"}, offset: 3})
	require.NoError(t, tracker.conflict)
	_, err := tracker.attribute([]span{{2, 2}, {6, 9}}, nil, 0)
	require.ErrorIs(t, err, ErrDamaged)
	assert.Contains(t, err.Error(), `topic "T" queue 0: offsets`)
	places, err := tracker.attribute([]span{{2, 2}, {4, 4}}, nil, 0)
	require.NoError(t, err)
	assert.Equal(t, map[int64]place{2: {QueueID{Topic: "T"}, 1}, 4: {QueueID{Topic: "T"}, 2}}, places)
}

func TestHintsThatContradictTheRecordsAreRefused(t *testing.T) {
	var tracker queueTracker
	key := QueueID{Topic: "T"}
	tracker.see(1, slot{key: key, offset: 0})
	tracker.see(5, slot{key: key, offset: 2})
	for name, h := range map[string]hint{
		"offset of a readable record": {2, key, 2},
		"outside of its gap":          {6, key, 1},
		"not dense behind the end":    {6, key, 4},
		"no beginning":                {6, QueueID{Topic: "U"}, 1},
	} {
		_, err := tracker.attribute([]span{{2, 2}, {6, 6}}, []hint{h}, 9)
		require.ErrorIs(t, err, errQueueDamaged, name)
	}
}

func TestQueueThatGoesBackIsAConflict(t *testing.T) {
	var tracker queueTracker
	tracker.see(1, slot{key: QueueID{Topic: "T"}, offset: 0})
	tracker.see(2, slot{key: QueueID{Topic: "T"}, offset: 0})
	require.ErrorIs(t, tracker.conflict, ErrDamaged)
	assert.Contains(t, tracker.conflict.Error(), "position 2 has queue offset 0")
}
