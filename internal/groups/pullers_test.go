package groups

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheLastPullOwnsAQueueUnlessTheGroupBroadcasts(t *testing.T) {
	p := NewPullers()
	assert.True(t, p.Note("g", "t", 1, 7, false))
	assert.False(t, p.Note("g", "t", 1, 7, false))
	assert.True(t, p.Note("g", "t", 0, 7, false))
	assert.True(t, p.Note("g", "a", 3, 7, false))
	assert.True(t, p.Note("g", "t", 1, 8, false))
	assert.True(t, p.Note("h", "t", 1, 7, true))
	assert.True(t, p.Note("h", "t", 1, 8, true))
	assert.False(t, p.Note("h", "t", 1, 7, true))
	assert.Equal(t, map[uint64][]Pulled{7: {{"a", 3}, {"t", 0}}, 8: {{"t", 1}}}, p.Of("g"))
	assert.Equal(t, map[uint64][]Pulled{7: {{"t", 1}}, 8: {{"t", 1}}}, p.Of("h"))

	assert.False(t, p.Forget("g", "t", 1, 7), "another one's by now")
	assert.True(t, p.Forget("g", "a", 3, 7))
	p.Closed(8)
	assert.Equal(t, map[uint64][]Pulled{7: {{"t", 0}}}, p.Of("g"))
	assert.Equal(t, map[uint64][]Pulled{7: {{"t", 1}}}, p.Of("h"))
	p.DeleteTopic("t")
	assert.Empty(t, p.Of("g"))
	assert.Empty(t, p.places)
	assert.Empty(t, p.sessions)
	assert.Zero(t, testing.AllocsPerRun(100, func() { p.Note("h", "t", 1, 7, true) }))
}

func TestASessionIsKnownToPullSoMuchAndNoMore(t *testing.T) {
	p := NewPullers()
	for i := range maxPlaces {
		assert.True(t, p.Note("g", "t", i, 7, false))
	}
	assert.False(t, p.Note("g", "t", maxPlaces, 7, false))
	assert.True(t, p.Note("g", "t", maxPlaces, 8, false))
	assert.True(t, p.Note("g", "t", 0, 8, false))
	assert.True(t, p.Note("g", "t", maxPlaces, 7, false), "one was taken over")
	assert.Len(t, p.places, maxPlaces+1)
	p.Closed(7)
	assert.Equal(t, map[uint64][]Pulled{8: {{"t", 0}}}, p.Of("g"))
	assert.Len(t, p.sessions, 1)
}
