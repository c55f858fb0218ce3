//go:build linux || darwin

package store

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inChild runs the calling test once more in a process of its own and returns
// false there. In the parent it returns true when the child is done.
func inChild(t *testing.T, env ...string) (parent bool) {
	if os.Getenv("STORE_TEST_CHILD") == t.Name() {
		return false
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), "STORE_TEST_CHILD="+t.Name(), "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return true
}

// limitFileSize makes writes beyond n bytes of any file fail in this process.
func limitFileSize(t *testing.T, n uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	limit.Cur = n
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
}

func TestH8_FailedWriteFencesAndLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	for _, sync := range []bool{false, true} {
		cfg := testConfig(t)
		cfg.FileSize, cfg.SyncFlush = 1<<20, sync
		reported := make(chan error, 1)
		cfg.Fenced = func(err error) { reported <- err }
		s := mustOpen(t, cfg)
		var want []string
		var failure error
		limitFileSize(t, 40_000)
		for failure == nil {
			b := s.NewBatch()
			var texts []string
			for i := range 7 { // a failed write leaves whole entries and a piece of one
				texts = append(texts, fmt.Sprintf("m%d", len(want)+i))
				require.NoError(t, b.Add(record("T", 0, texts[i], "")))
			}
			if _, failure = s.Append(t.Context(), b, AppendOptions{}); failure == nil {
				want = append(want, texts...)
			}
		}
		require.ErrorIs(t, failure, ErrFenced)
		require.ErrorIs(t, failure, syscall.EFBIG)
		require.ErrorIs(t, <-reported, syscall.EFBIG)
		limitFileSize(t, 1<<40)

		_, err := s.Append(t.Context(), batchOf(t, s, "T", 0, "late"), AppendOptions{})
		require.ErrorIs(t, err, ErrFenced)
		assertBodies(t, s, "T", 0, want)
		require.NoError(t, s.Check(t.Context()))
		crashed := cfg
		crashed.Dir = copyDir(t, cfg.Dir)
		mustClose(t, s)

		for _, cfg := range []Config{crashed, cfg} {
			s = mustOpen(t, cfg)
			require.NoError(t, s.Err())
			assert.Zero(t, s.Cut(), "the failed write was cut off already")
			assertBodies(t, s, "T", 0, want)
			assert.Equal(t, int64(len(want)), put(t, s, "T", 0, "next").QueueOffset)
			mustClose(t, s)
		}
	}
}

func TestFailedWriteOfQueueFilesFencesAndLosesNothing(t *testing.T) {
	t.Parallel()
	if inChild(t) {
		return
	}
	cfg := testConfig(t) // small log files, so that only the extent is too large
	s := mustOpen(t, cfg)
	texts := numbered("m", 17)
	var want []string
	limitFileSize(t, 20_000)
	for s.Err() == nil {
		put(t, s, "T", 0, texts...) // the append that meets the error is stored
		want = append(want, texts...)
	}
	limitFileSize(t, 1<<40)
	assertBodies(t, s, "T", 0, want)
	mustClose(t, s)
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, want)
}

func TestFilesAreNotLeaked(t *testing.T) {
	t.Parallel()
	if inChild(t) { // where no other test opens or closes files
		return
	}
	entries := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(list)
	}
	cfg := testConfig(t)
	use := func(end func(*Store) error, cfg Config, disk syncer) {
		s, err := open(cfg, disk)
		require.NoError(t, err)
		for range 3 {
			b := s.NewBatch()
			for range 500 {
				require.NoError(t, b.Add(record("T", 0, "some text", "")))
			}
			_, _ = s.Append(t.Context(), b, AppendOptions{}) // fails when fenced
		}
		bodies(t, s, "T", 0)
		_ = end(s)
	}
	throwaway := cfg
	throwaway.Throwaway = true
	throwaway.Dir = t.TempDir() + "/throwaway"
	var broken faultyDisk
	cause := error(syscall.EIO)
	use((*Store).Close, cfg, durable())
	before := entries()
	for range 3 {
		use((*Store).Close, cfg, durable())
		use((*Store).Kill, cfg, durable())
		use((*Store).Close, throwaway, durable())
		use((*Store).Kill, throwaway, durable())
		use((*Store).Discard, throwaway, durable())
		require.NoDirExists(t, throwaway.Dir)

		s, err := open(cfg, broken.syncer())
		require.NoError(t, err)
		put(t, s, "T", 0, "x")
		broken.fail.Store(&cause)
		require.Error(t, s.Sync(t.Context()))
		require.NoError(t, s.Close())
		_, err = open(Config{Dir: cfg.Dir, Cluster: "c", Broker: "broker-a"}, broken.syncer())
		require.ErrorIs(t, err, syscall.EIO, "settling the tail needs a disk that works")
		broken.fail.Store(nil)
	}
	assert.Equal(t, before, entries())
}

// The child appends until it is killed and prints what was acknowledged.
func TestKilledProcessKeepsEveryAcknowledgedRecord(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		appendUntilKilled(t, dir)
		return
	}
	rounds := crashRounds(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	cfg := testConfig(t)
	cfg.Dir = t.TempDir() // on a real disk
	cfg.FileSize = 64 << 10
	acknowledged := map[int]int64{} // by queue
	for round := range rounds {
		seed := newSeed(t)
		cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+cfg.Dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		readAcknowledged(t, out, seed.IntN(3000), cmd.Process, acknowledged)
		_ = cmd.Wait() // "signal: killed"

		s := mustOpen(t, cfg)
		require.NoError(t, s.Err(), "round %d", round)
		for queue, last := range acknowledged {
			texts := bodies(t, s, "T", queue)
			require.Greater(t, int64(len(texts)), last, "round %d queue %d", round, queue)
			for i, text := range texts {
				require.Equal(t, strconv.Itoa(i), text)
			}
		}
		mustClose(t, s)
	}
}
