package store

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// rotten is a store of 100 records with one key, of which the one at offset bad is
// damaged, and lies in a sealed file.
func rotten(t *testing.T, cfg Config, bad int64) *Store {
	t.Helper()
	s := mustOpen(t, cfg)
	for _, text := range numbered("m", 100) {
		b := s.NewBatch()
		require.NoError(t, b.Add(keyedRecord("T", text, "u"+text, "all")))
		_, err := s.Append(t.Context(), b, AppendOptions{})
		require.NoError(t, err)
	}
	mustClose(t, s)
	for i, path := range segments(t, cfg.Dir) {
		if next := segments(t, cfg.Dir)[i+1]; baseOf(t, next) > bad+1 {
			flip(t, path, entriesOf(t, path)[bad+2-baseOf(t, path)]+40)
			break
		}
	}
	s = mustOpen(t, cfg)
	require.NoError(t, s.Err())
	return s
}

func TestADamagedRecordDoesNotHideOthersFromAQuery(t *testing.T) {
	t.Parallel()
	s := rotten(t, testConfig(t), 20)
	found, err := s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: "all", Max: 1000})
	require.ErrorIs(t, err, ErrDamaged)
	assert.ErrorContains(t, err, "position 21")
	require.Len(t, found, 99)
	for _, rec := range found {
		assert.NotEqual(t, int64(20), message.View(rec).QueueOffset())
	}
	require.NoError(t, s.Close())
}

func TestDamageThatAReadMeetsIsToldOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	var told atomic.Int64
	cfg.Damaged = func(err error) {
		assert.ErrorIs(t, err, ErrDamaged)
		assert.ErrorContains(t, err, "position 21")
		told.Add(1)
	}
	s := rotten(t, cfg, 20)
	require.NoError(t, s.Damage())
	for range 3 {
		_, err := s.Get(GetRequest{Topic: "T", Offset: 20, MaxMessages: 1})
		require.ErrorIs(t, err, ErrDamaged)
		_, err = s.Record(21)
		require.ErrorIs(t, err, ErrDamaged)
		_, err = s.QueryKey(t.Context(), KeyQuery{Topic: "T", Key: "um20"})
		require.ErrorIs(t, err, ErrDamaged)
	}
	assert.Equal(t, int64(1), told.Load())
	require.ErrorIs(t, s.Damage(), ErrDamaged)
	require.NoError(t, s.Err(), "it can be written")
	require.NoError(t, s.Close())
}
