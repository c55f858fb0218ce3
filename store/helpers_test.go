package store

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// testConfig is a store in a folder of its own, with the smallest files. It keeps
// everything: what a bubble writes is a quarter of a century old outside of it.
// How full the disk of the tests is does not matter.
func testConfig(t testing.TB) Config {
	return Config{Dir: quickDir(t), Cluster: "c", Broker: "broker-a", FileSize: MinFileSize, Retention: -1, MinFreeBytes: -1}
}

// quickDir is a folder in memory where the system has one: the tests make very
// many files, and what they show does not depend on a real disk.
func quickDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "store-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// mustOpen opens a store that is checked and closed when the test ends, unless
// the test has ended it before.
func mustOpen(t testing.TB, cfg Config) *Store {
	t.Helper()
	return mustOpenOn(t, cfg, durable())
}

func mustOpenOn(t testing.TB, cfg Config, disk syncer) *Store {
	t.Helper()
	s, err := open(cfg, disk)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !s.closed.Load() {
			mustClose(t, s)
		}
	})
	return s
}

// mustClose checks a store, unless it is read-only, and closes it.
func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if s.damage == nil {
		require.NoError(t, s.Check(context.Background()))
	}
	require.NoError(t, s.Close())
}

func mustKill(t testing.TB, s *Store) {
	t.Helper()
	require.NoError(t, s.Kill())
}

var testHost = netip.MustParseAddrPort("127.1.0.1:10911")

func record(topic string, queue int, body string, tags string) *message.Record {
	r := &message.Record{
		QueueID: int32(queue), Topic: topic, Body: []byte(body), BornTime: 1, BornHost: testHost, StoreHost: testHost,
	}
	p := message.AppendProperty(nil, message.PropKeys, keyOf(body))
	if tags != "" {
		p = message.AppendProperty(p, message.PropTags, tags)
	}
	r.Properties = string(p)
	return r
}

// keyOf is the key of a record with the given body.
func keyOf(body string) string { return "k" + body[:min(len(body), 8)] }

// batchOf makes a batch with one record per body.
func batchOf(t testing.TB, s *Store, topic string, queue int, bodies ...string) *Batch {
	b := s.NewBatch()
	for _, body := range bodies {
		require.NoError(t, b.Add(record(topic, queue, body, "")))
	}
	return b
}

// put appends one batch with one record per body.
func put(t testing.TB, s *Store, topic string, queue int, bodies ...string) Appended {
	t.Helper()
	a, err := s.Append(context.Background(), batchOf(t, s, topic, queue, bodies...), AppendOptions{})
	require.NoError(t, err)
	return a
}

// bodies reads a whole queue from its first offset and checks that each record
// says where it is.
func bodies(t testing.TB, s *Store, topic string, queue int) []string {
	t.Helper()
	var all []string
	for offset := s.MinOffset(topic, queue); ; {
		res, err := s.Get(GetRequest{Topic: topic, QueueID: queue, Offset: offset, MaxMessages: 32})
		require.NoError(t, err)
		if res.Status != GetFound {
			return all
		}
		for i, rec := range res.Records {
			v, err := message.ParseView(rec)
			if err != nil {
				require.NoError(t, err)
			}
			// Not each with require: the sweeps read millions of records.
			if v.QueueOffset() != offset+int64(i) || string(v.Topic()) != topic || v.CheckBody() != nil {
				require.FailNow(t, "not the record that was asked for", "%q queue %d offset %d: the record says topic %q offset %d, body: %v",
					topic, queue, offset+int64(i), v.Topic(), v.QueueOffset(), v.CheckBody())
			}
			all = append(all, string(v.Body()))
		}
		require.Equal(t, offset+int64(len(res.Records)), res.Next)
		offset = res.Next
	}
}

// numbered is the list prefix0, prefix1, ... of n texts.
func numbered(prefix string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%s%d", prefix, i))
	}
	return list
}

// copyDir makes a copy of a data folder, without its lock.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(quickDir(t), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// segments lists the segment files of a data folder in the order of the log.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, commitLogName, "0*", segmentName))
	require.NoError(t, err)
	return paths
}

func lastSegment(t testing.TB, dir string) string {
	paths := segments(t, dir)
	require.NotEmpty(t, paths)
	return paths[len(paths)-1]
}

func assertBodies(t testing.TB, s *Store, topic string, queue int, want []string) {
	t.Helper()
	assert.Equal(t, want, bodies(t, s, topic, queue))
}

// fileCount is the number of log files.
func (c *commitLog) fileCount() int { return len(*c.files.Load()) }

// rounds is how often a test does what it repeats: a fifth of n with -race.
func rounds(n int) int {
	if raceDetector {
		return max(1, n/5)
	}
	return n
}

// sweep goes over the places in data, in order: with -race every fifth.
func sweep(data []byte) iter.Seq[int] {
	at, step := 0, 1
	if raceDetector {
		step = 5
		at = rand.IntN(step)
	}
	return func(yield func(int) bool) {
		for ; at < len(data); at += step {
			if !yield(at) {
				return
			}
		}
	}
}
