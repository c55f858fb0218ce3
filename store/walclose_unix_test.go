//go:build linux || darwin

package store

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/wal"
)

// unsyncable makes every fsync of the wal's own handle fail from now on: it
// becomes a pipe. The channel is closed when the wal has let the handle go.
// What is written meanwhile is lost to the file.
func unsyncable(t *testing.T, log *wal.Log) (released <-chan struct{}) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.Error(t, w.Sync())
	f := walFile(log)
	require.NoError(t, (*f).Close())
	*f = w
	done := make(chan struct{})
	go func() { // ends with the pipe
		defer close(done)
		_, _ = io.Copy(io.Discard, r)
		_ = r.Close()
	}()
	return done
}

func TestWalWhoseFsyncFailsKeepsNoHandle(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill} {
		cfg := testConfig(t)
		s := mustOpen(t, cfg)
		put(t, s, "T", 0, "m")
		require.NoError(t, s.Sync(t.Context()))
		released := unsyncable(t, s.log.active.log.Load())
		require.Error(t, end(s), name)
		<-released
		s = mustOpen(t, cfg)
		assertBodies(t, s, "T", 0, []string{"m"})
	}
}

func TestThrowawayStoreClosesItsFilesWithoutAnFsync(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store) error{"close": (*Store).Close, "kill": (*Store).Kill, "discard": (*Store).Discard} {
		s := mustOpen(t, throwawayConfig(t))
		put(t, s, "T", 0, "m")
		full := unsyncable(t, s.log.active.log.Load())
		for s.log.fileCount() == 1 {
			put(t, s, "T", 0, numbered("m", 20)...)
		}
		<-full // closed by the flusher
		last := unsyncable(t, s.log.active.log.Load())
		require.NoError(t, end(s), name)
		<-last
		assert.NoError(t, s.Err(), name)
	}
}
