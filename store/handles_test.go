package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHandlesKeepTheLastUsedFilesOpen(t *testing.T) {
	dir := t.TempDir()
	var h handles
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	for i := range maxHandles + 5 {
		require.NoError(t, os.WriteFile(path(i), []byte{byte(i)}, 0o640))
	}
	first, err := h.acquire(path(0))
	require.NoError(t, err)
	for i := 1; i < maxHandles+5; i++ {
		f, err := h.acquire(path(i))
		require.NoError(t, err)
		h.release(f)
	}
	assert.Len(t, h.open, maxHandles)
	b := make([]byte, 1)
	_, err = first.ReadAt(b, 0)
	require.NoError(t, err, "in use, so not closed")
	h.release(first)
	_, err = first.ReadAt(b, 0)
	require.ErrorIs(t, err, os.ErrClosed, "the last user closes it")

	again, err := h.acquire(path(maxHandles))
	require.NoError(t, err)
	h.close()
	_, err = again.ReadAt(b, 0)
	require.NoError(t, err)
	h.release(again)
	_, err = again.ReadAt(b, 0)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = h.acquire(path(1))
	require.ErrorIs(t, err, ErrClosed)
}
