package store

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// smallDisk runs the calling test once more in a process of its own, in which a
// folder is a file system of the given size. In the parent it returns "".
func smallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	dir = os.Getenv("STORE_TEST_DISK")
	if dir == "" || os.Getenv("STORE_TEST_CHILD") != t.Name() {
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+t.Name(), "STORE_TEST_DISK="+t.TempDir(), "GORACE=atexit_sleep_ms=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if cmd.Process == nil {
			t.Skipf("no user namespaces here: %v", err)
		}
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP: "+t.Name()) {
			t.Skipf("%s", out)
		}
		require.Contains(t, string(out), "--- PASS: "+t.Name())
		return ""
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	return dir
}

func TestAFullDiskLosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 1<<20)
	if disk == "" {
		return
	}
	ballast := filepath.Join(disk, "ballast")
	for round, sync := range []bool{false, true, false, true} {
		cfg := testConfig(t)
		cfg.Dir = filepath.Join(disk, fmt.Sprint("store", round))
		cfg.SyncFlush = sync
		cfg.FileSize = []int64{MinFileSize, 64 << 10}[round/2]
		writeFile(t, ballast, make([]byte, 256<<10+round*1234))
		s := mustOpen(t, cfg)
		var want []string
		var failure error
		for failure == nil {
			b := s.NewBatch()
			var texts []string
			for i := range 7 {
				texts = append(texts, fmt.Sprintf("m%d %0300d", len(want)+i, 0))
				require.NoError(t, b.Add(record("T", 0, texts[i], "")))
			}
			if _, failure = s.Append(t.Context(), b, AppendOptions{}); failure == nil {
				want = append(want, texts...)
			}
		}
		require.Greater(t, len(want), 100)
		require.ErrorIs(t, failure, ErrFenced)
		require.ErrorIs(t, failure, syscall.ENOSPC)
		require.ErrorIs(t, s.Err(), syscall.ENOSPC)
		assertBodies(t, s, "T", 0, want)
		require.NoError(t, s.Check(t.Context()))
		_ = s.Close() // says that there was no space for a checkpoint

		// Without space it may not open; it never takes anything away.
		if s, err := Open(cfg); err == nil {
			assertBodies(t, s, "T", 0, want)
			_ = s.Close()
		} else {
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.ErrorContains(t, err, cfg.Dir)
		}
		require.NoError(t, os.Remove(ballast))
		s = mustOpen(t, cfg)
		require.NoError(t, s.Err())
		assert.Zero(t, s.Cut())
		assertBodies(t, s, "T", 0, want)
		assert.Equal(t, int64(len(want)), put(t, s, "T", 0, "next").QueueOffset)
		mustClose(t, s)
		require.NoError(t, os.RemoveAll(cfg.Dir))
	}
}
