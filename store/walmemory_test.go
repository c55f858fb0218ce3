package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"
)

func TestWalWritesIntoReservedMemory(t *testing.T) {
	log, err := wal.Open(t.TempDir(), walOptions())
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	require.True(t, reserveWal(log, 1<<20, 1000), "this version of the wal is another one: see reserveWal")
	var batch wal.Batch
	next := uint64(1)
	write := func() {
		batch.Clear()
		for range 10 {
			batch.Write(next, fmt.Appendf(nil, "entry %d", next))
			next++
		}
		require.NoError(t, log.WriteBatch(&batch))
	}
	write()
	first, err := log.Read(1)
	require.NoError(t, err)
	for range 50 {
		write()
	}
	again, err := log.Read(1)
	require.NoError(t, err)
	assert.Same(t, &first[0], &again[0], "the buffer has not moved")
	for i := uint64(1); i < next; i++ {
		entry, err := log.Read(i)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("entry %d", i), string(entry))
	}
	assert.False(t, reserveWal(log, 1, 1), "a wal with entries is left alone")
}

// Without it the memory of the file being written is copied again and again.
func TestALogFileIsWrittenWithoutGrowing(t *testing.T) {
	cfg := testConfig(t)
	cfg.FileSize = 64 << 10
	s := mustOpen(t, cfg)
	defer mustClose(t, s)
	body := strings.Repeat("x", 1000)
	for range 2 {
		for first := s.log.active; s.log.active == first; {
			put(t, s, "T", 0, body)
		}
	}
	f := s.log.active
	before, err := f.log.Load().Read(1)
	require.NoError(t, err)
	for s.log.active == f && f.size.Load() < 60<<10 {
		put(t, s, "T", 0, body)
	}
	after, err := f.log.Load().Read(1)
	require.NoError(t, err)
	assert.Same(t, &before[0], &after[0], "the buffer has not moved")
}
