package store

import (
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process that is being started holds copies of all open files for a moment.
// The lock of a store that was closed must not live on in them.
func TestClosedStoreCanBeOpenedWhileProcessesStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("handles are not inherited")
	}
	dir := t.TempDir()
	stop := make(chan struct{})
	var starters sync.WaitGroup
	for range 2 {
		starters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, exec.Command("true").Run())
				}
			}
		})
	}
	for range 100 {
		s, err := Open(Config{Dir: dir, Cluster: "c", Broker: "b"})
		require.NoError(t, err)
		require.NoError(t, s.Kill())
	}
	close(stop)
	starters.Wait()
}
