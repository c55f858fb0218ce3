package offsets

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func requireOffset(t *testing.T, table *Table, want int64, group, topic string, queue int) {
	t.Helper()
	got, ok := table.Query(group, topic, queue)
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestCP03_ResetHoldsUntilTheNextPullTakesIt(t *testing.T) {
	table := open(t, Options{})
	table.Commit("g", "t", 0, 100)
	table.Reset("g", "t", 0, 60)
	requireOffset(t, table, 60, "g", "t", 0)
	assert.False(t, table.Commit("g", "t", 0, 100), "what belongs to the old position")
	assert.True(t, table.Commit("g", "t", 1, 3), "another queue")
	assert.True(t, table.Commit("h", "t", 0, 3), "another group")
	requireOffset(t, table, 60, "g", "t", 0)
	table.Started("g", "t", 0) // is about restarts
	assert.True(t, table.ResetWaits("g", "t", 0))

	at, first, ok := table.TakeReset("g", "t", 0)
	assert.Equal(t, []any{int64(60), false, true}, []any{at, first, ok})
	_, _, ok = table.TakeReset("g", "t", 0)
	assert.False(t, ok, "once")
	assert.False(t, table.ResetWaits("g", "t", 0))
	assert.True(t, table.Commit("g", "t", 0, 61))
	requireOffset(t, table, 61, "g", "t", 0)

	table.Reset("new", "t", 2, 7) // nothing was committed before
	requireOffset(t, table, 7, "new", "t", 2)
	table.Reset("g", "t", -1, 1)
	table.Reset("g", "t", 0, -1)
	requireOffset(t, table, 61, "g", "t", 0)
}

func TestRestartLeavesNoOffsetAndIsOverWhenAMemberAsks(t *testing.T) {
	table := open(t, Options{})
	table.Commit("g", "t", 0, 100)
	for range 2 {
		table.Restart("g", "t", 0)
		_, ok := table.Query("g", "t", 0)
		assert.False(t, ok)
		assert.False(t, table.Commit("g", "t", 0, 100))
		table.Started("g", "t", 1)
		assert.True(t, table.ResetWaits("g", "t", 0))
		table.Started("g", "t", 0)
		assert.False(t, table.ResetWaits("g", "t", 0))
		assert.True(t, table.Commit("g", "t", 0, 1))
	}
	table.Restart("g", "t", 0)
	at, first, ok := table.TakeReset("g", "t", 0)
	assert.Equal(t, []any{int64(0), true, true}, []any{at, first, ok})
}

func TestDeletedTopicsAndGroupsLeaveNothing(t *testing.T) {
	table := open(t, Options{})
	for _, group := range []string{"g", "h"} {
		for _, topic := range []string{"t", "u"} {
			table.Commit(group, topic, 0, 5)
			table.Reset(group, topic, 1, 6)
		}
	}
	table.DeleteTopic("t")
	table.DeleteGroup("h")
	assert.Equal(t, map[Key]int64{{"u", 0}: 5, {"u", 1}: 6}, table.Group("g"))
	assert.Empty(t, table.Group("h"))
	assert.False(t, table.ResetWaits("g", "t", 1))
	assert.True(t, table.ResetWaits("g", "u", 1))
	assert.True(t, table.Commit("h", "t", 1, 9))
}

func TestResetsSurviveInTheFileAndAreClamped(t *testing.T) {
	o := Options{File: filepath.Join(t.TempDir(), "offsets.json")}
	table := open(t, o)
	table.Commit("g", "t", 0, 100)
	table.Reset("g", "t", 0, 60)
	table.Reset("g", "t", 1, 30)
	table.Restart("h", "u", 2)
	require.NoError(t, table.Persist())
	assert.Equal(t, `{"offsetTable":{
"t@g":{"0":60,"1":30}
},"resetOffsetTable":{
"t@g":{"0":60,"1":30},
"u@h":{"2":-1}
},"movedTable":{
"t@g":{"0":1,"1":2},
"u@h":{"2":3}
},"moved":3,"movedBefore":0}`, content(t, o.File))

	table = open(t, o)
	assert.Equal(t, 2, table.Clamp(func(_ string, queue int) int64 { return 40 }), "the offset and what waits")
	assert.False(t, table.Commit("g", "t", 0, 100))
	at, _, ok := table.TakeReset("g", "t", 0)
	assert.True(t, ok)
	assert.EqualValues(t, 40, at)
	_, first, ok := table.TakeReset("h", "u", 2)
	assert.True(t, ok && first)
	table.DeleteGroup("g")
	require.NoError(t, table.Persist())
	assert.Equal(t, `{"offsetTable":{},"movedTable":{
"@g":{"-1":4},
"u@h":{"2":3}
},"moved":4,"movedBefore":0}`, content(t, o.File), "what is gone must not come back from a slave")
}

func TestNoCommitPassesAReset(t *testing.T) {
	for range 200 {
		table := open(t, Options{})
		table.Commit("g", "t", 0, 1)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { table.Commit("g", "t", 0, int64(100+i)) })
		}
		wg.Go(func() { table.Reset("g", "t", 0, 7) })
		wg.Wait()
		requireOffset(t, table, 7, "g", "t", 0)
	}
}
