package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"
)

func TestWalKeepsItsHandleWhereWeLookForIt(t *testing.T) {
	dir := t.TempDir()
	log, err := wal.Open(dir, walOptions())
	require.NoError(t, err)
	f := walFile(log)
	require.NotNil(t, f, "this version of the wal is another one: see walFile, and whether Close still fsyncs")
	assert.Equal(t, filepath.Join(dir, segmentName), (*f).Name())
	require.NoError(t, log.Write(1, []byte("entry")))

	require.NoError(t, closeWalUnsynced(log))
	_, err = (*f).Stat()
	require.ErrorIs(t, err, os.ErrClosed)
	entry, err := log.Read(1)
	require.NoError(t, err, "memory stays readable")
	assert.Equal(t, "entry", string(entry))
}
