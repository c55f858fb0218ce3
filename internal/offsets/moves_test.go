package offsets

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestAMoveCountsForAllThatItIsOf(t *testing.T) {
	m := newMoves()
	m.add(place{"g", "t", 1})
	m.add(allOf("", "u"))
	m.add(allOf("h", ""))
	for _, row := range []struct {
		at   place
		last int64
	}{{place{"g", "t", 1}, 1}, {place{"g", "t", 2}, 0}, {place{"g", "u", 7}, 2}, {place{"h", "u", 7}, 3}, {place{"h", "t", 1}, 3}, {place{"i", "t", 1}, 0}} {
		for known := range int64(4) {
			assert.Equal(t, known < row.last, m.since(row.at, known), "%v at %d", row.at, known)
		}
	}
}

func TestOldMovesAreForgottenAndCountForAll(t *testing.T) {
	m := newMoves()
	for i := range maxMoves + 1 {
		m.add(allOf("", fmt.Sprint(i)))
	}
	assert.LessOrEqual(t, len(m.last), maxMoves/2)
	assert.EqualValues(t, maxMoves+1, m.count)
	assert.True(t, m.since(place{"g", "never moved", 0}, m.floor-1))
	assert.False(t, m.since(place{"g", "never moved", 0}, m.floor))
	assert.False(t, m.since(place{"g", "0", 0}, m.floor))
	assert.True(t, m.since(place{"g", fmt.Sprint(maxMoves), 0}, m.floor))
}

func TestMovesAndOwnOffsetsSurviveInTheFile(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "offsets.json"), NoSync: true}
	table := open(t, o)
	table.Lead(3)
	table.Set("g", "t", 0, 60)
	table.DeleteTopic("u")
	table.Follow()
	table.Commit("g", "t", 0, 70)
	require.NoError(t, table.Persist())
	first := int64(3) << stateShift
	assert.Equal(t, fmt.Sprintf(`{"offsetTable":{
"t@g":{"0":70}
},"movedTable":{
"t@g":{"0":%d},
"u@":{"-1":%d}
},"moved":%d,"movedBefore":0,"ownTable":{
"t@g":{"0":%d}
},"stateVersion":3}`, first+1, first+2, first+2, first+2), content(t, o.File))
	again := open(t, o)
	want, own := table.snapshot()
	got, same := again.snapshot()
	assert.Equal(t, want, got)
	assert.Equal(t, own, same)
}

// A number that a slave has seen is not given out again.
func TestExportSavesMovesFirst(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "offsets.json"), NoSync: true}
	table := open(t, o)
	table.Commit("g", "t", 0, 5)
	all, err := table.Export()
	require.NoError(t, err)
	assert.Equal(t, []protocol.GroupOffset{offset("g", "t", 0, 5)}, all.Offsets)
	assert.NoFileExists(t, o.File, "commits wait for their time")
	table.Reset("g", "t", 0, 3)
	all, err = table.Export()
	require.NoError(t, err)
	assert.EqualValues(t, 1, all.Moved)
	again, err := open(t, o).Export()
	require.NoError(t, err)
	assert.Equal(t, all, again)

	table.file = nil
	table.Reset("g", "t", 0, 4)
	_, err = table.Export()
	require.NoError(t, err, "memory only")
}
