package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

func TestUnitsSayWhatTheQueueSays(t *testing.T) {
	s := mustOpen(t, testConfig(t))
	const n = 3*blockUnits + 7
	for i := range n {
		put(t, s, "T", 0, fmt.Sprint("m", i))
	}
	for offset := int64(0); offset < n; {
		units, err := s.Units("T", 0, offset, 100)
		require.NoError(t, err)
		require.NotEmpty(t, units)
		require.LessOrEqual(t, len(units), 100)
		for _, u := range units {
			require.Equal(t, offset, u.Offset)
			require.Equal(t, offset+1, u.Position)
			require.Positive(t, u.Size)
			offset++
		}
	}
	for _, row := range []struct {
		topic  string
		queue  int
		offset int64
	}{{"U", 0, 0}, {"T", 1, 0}, {"T", 0, -1}, {"T", 0, n}, {"T", 0, n + 1}} {
		units, err := s.Units(row.topic, row.queue, row.offset, 9)
		assert.NoError(t, err)
		assert.Empty(t, units, "%+v", row)
	}
	one, err := s.Units("T", 0, 5, 0)
	require.NoError(t, err)
	assert.Len(t, one, 1)
	mustClose(t, s)
	_, err = s.Units("T", 0, 0, 1)
	assert.ErrorIs(t, err, ErrClosed)
}

func dueTimes(t *testing.T, s *Store, queue int) (due []int64) {
	t.Helper()
	units, err := s.Units(message.ScheduleTopic, queue, 0, 100)
	require.NoError(t, err)
	for _, u := range units {
		due = append(due, u.TagsCode)
	}
	return due
}

// What waits for a level says in its unit when it is due, at once and when it is
// rebuilt; other topics say their tag.
func TestUnitsOfTheScheduleTopicSayWhenTheyAreDue(t *testing.T) {
	cfg := testConfig(t)
	cfg.DelayLevels = []time.Duration{time.Second, 1500*time.Millisecond + time.Microsecond}
	arrived := make(map[string]int64)
	cfg.Arrived = func(topic string, queueID int, offset, tagsCode int64) {
		arrived[fmt.Sprint(topic, queueID, offset)] = tagsCode
	}
	s := mustOpen(t, cfg)
	var want [3]int64
	for queue, delay := range []int64{1000, 1501, 1000} { // an unknown level: a second
		b := s.NewBatch()
		require.NoError(t, b.Add(record(message.ScheduleTopic, queue, "x", "tag")))
		got, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
		want[queue] = got.StoreTime.UnixMilli() + delay
		assert.Equal(t, want[queue], arrived[fmt.Sprint(message.ScheduleTopic, queue, 0)])
	}
	put(t, s, "T", 0, "x")
	compare := func(s *Store) {
		t.Helper()
		for queue := range want {
			assert.Equal(t, []int64{want[queue]}, dueTimes(t, s, queue))
		}
		require.NoError(t, s.Check(t.Context()))
	}
	compare(s)
	mustKill(t, s)
	s = mustOpen(t, cfg) // replayed
	compare(s)
	mustClose(t, s)

	// Other levels: what is in its queue keeps its time.
	cfg.DelayLevels = []time.Duration{time.Hour}
	s = mustOpen(t, cfg)
	compare(s)
	mustClose(t, s)
	require.NoError(t, os.RemoveAll(filepath.Join(cfg.Dir, queuesName)))
	require.NoError(t, os.Remove(filepath.Join(cfg.Dir, "checkpoint")))
	s = mustOpen(t, cfg)
	assert.Equal(t, []int64{want[0] - 1000 + time.Hour.Milliseconds()}, dueTimes(t, s, 0), "a rebuilt one follows the levels of now")
	require.NoError(t, s.Check(t.Context()))
}
