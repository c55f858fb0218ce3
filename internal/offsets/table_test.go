package offsets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
)

func open(t *testing.T, o Options) *Table {
	t.Helper()
	table, err := Open(o)
	require.NoError(t, err)
	return table
}

// content is the file without its checksum line.
func content(t *testing.T, path string) string {
	t.Helper()
	data, found, err := statefile.New(path, true).Load()
	require.NoError(t, err)
	require.True(t, found)
	return string(data)
}

func TestCommittedOffsetIsQueried(t *testing.T) {
	table := open(t, Options{})
	_, ok := table.Query("g", "orders", 0)
	assert.False(t, ok)
	table.Commit("g", "orders", 0, 0)
	table.Commit("g", "orders", 1, 12)
	table.Commit("g", "orders", 1, 7) // lower ones count too
	table.Commit("h", "orders", 1, 3)
	table.Commit("g", "payments", 1, 4)
	for _, c := range []struct {
		group, topic string
		queue        int
		want         int64
	}{{"g", "orders", 0, 0}, {"g", "orders", 1, 7}, {"h", "orders", 1, 3}, {"g", "payments", 1, 4}} {
		got, ok := table.Query(c.group, c.topic, c.queue)
		assert.True(t, ok)
		assert.Equal(t, c.want, got)
	}
	assert.Equal(t, map[Key]int64{{"orders", 0}: 0, {"orders", 1}: 7, {"payments", 1}: 4}, table.Group("g"))
	assert.Equal(t, map[Key]int64{}, table.Group("unknown"))
	table.Group("g")[Key{"orders", 0}] = 99
	got, _ := table.Query("g", "orders", 0)
	assert.Zero(t, got, "Group is a copy")
}

func TestNegativeCommitIsIgnored(t *testing.T) {
	table := open(t, Options{})
	table.Commit("g", "orders", 0, -1)
	table.Commit("g", "orders", -1, 5)
	assert.Empty(t, table.Group("g"))
}

func TestAdvanceOnlyGoesForward(t *testing.T) {
	table := open(t, Options{})
	for _, c := range []struct {
		offset int64
		taken  bool
		want   int64
	}{{5, true, 5}, {4, false, 5}, {5, true, 5}, {9, true, 9}, {-1, false, 9}, {0, false, 9}} {
		assert.Equal(t, c.taken, table.Advance("g", "orders", 0, c.offset), "to %d", c.offset)
		got, _ := table.Query("g", "orders", 0)
		assert.Equal(t, c.want, got, "to %d", c.offset)
	}
	table.Commit("g", "orders", 0, 3)
	assert.True(t, table.Advance("g", "orders", 0, 4))
	table.Reset("g", "orders", 0, 1)
	assert.False(t, table.Advance("g", "orders", 0, 8), "a reset waits")

	var wg sync.WaitGroup
	for i := range int64(64) {
		wg.Go(func() { table.Advance("g", "payments", 0, i*7%64) })
	}
	wg.Wait()
	got, _ := table.Query("g", "payments", 0)
	assert.EqualValues(t, 63, got)
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.Advance("g", "payments", 0, 63) }))
}

func TestMemoryOnlyTablePersistsNothing(t *testing.T) {
	table := open(t, Options{})
	table.Commit("g", "orders", 0, 1)
	assert.NoError(t, table.Persist())
}

func TestPersistWritesTheReferencesShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	table.Commit("g", "orders", 10, 5)
	table.Commit("g", "orders", 2, 12)
	table.Commit("g", "%RETRY%g", 0, 1)
	require.NoError(t, table.Persist())
	assert.Equal(t, "{\"offsetTable\":{\n\"%RETRY%g@g\":{\"0\":1},\n\"orders@g\":{\"2\":12,\"10\":5}\n}}", content(t, path))

	again := open(t, Options{File: path, NoSync: true})
	assert.Equal(t, table.Group("g"), again.Group("g"))
}

func TestEmptyTableIsWrittenOnlyWhenChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	require.NoError(t, table.Persist())
	assert.NoFileExists(t, path)
	assert.True(t, json.Valid(encode(table.snapshot())))
}

func TestPersistWritesOnlyWhenDirty(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	table.Commit("g", "orders", 0, 1)
	require.NoError(t, table.Persist())
	require.NoError(t, os.Remove(path))
	table.Commit("g", "orders", 0, 1) // the same
	require.NoError(t, table.Persist())
	assert.NoFileExists(t, path)
	again := open(t, Options{File: path, NoSync: true})
	require.NoError(t, again.Persist(), "reading makes nothing dirty")
	assert.NoFileExists(t, path)
	table.Commit("g", "orders", 0, 2)
	require.NoError(t, table.Persist())
	assert.FileExists(t, path)
}

func TestFailedPersistIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	table.Commit("g", "orders", 0, 1)
	inTheWay := path + ".tmp"
	require.NoError(t, os.MkdirAll(filepath.Join(inTheWay, "x"), 0o755))
	err := table.Persist()
	require.Error(t, err)
	assert.ErrorContains(t, err, path)
	require.NoError(t, os.RemoveAll(inTheWay))
	require.NoError(t, table.Persist())
	assert.Contains(t, content(t, path), `"0":1`)
}

func TestClampLowersOnlyWhatIsBeyondTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	table.Commit("g", "orders", 0, 100)
	table.Commit("h", "orders", 0, 95)
	table.Commit("g", "orders", 1, 90)
	table.Commit("g", "gone", 0, 5)
	require.NoError(t, table.Persist())
	asked := make(map[Key]int)
	n := table.Clamp(func(topic string, queue int) int64 {
		asked[Key{topic, queue}]++
		_, _ = table.Query("g", topic, queue) // no lock is held
		if topic == "gone" {
			return -1
		}
		return 90
	})
	assert.Equal(t, 3, n)
	assert.Equal(t, map[Key]int{{"orders", 0}: 1, {"orders", 1}: 1, {"gone", 0}: 1}, asked)
	assert.Equal(t, map[Key]int64{{"orders", 0}: 90, {"orders", 1}: 90, {"gone", 0}: 0}, table.Group("g"))
	assert.Equal(t, map[Key]int64{{"orders", 0}: 90}, table.Group("h"))
	require.NoError(t, table.Persist())
	assert.Equal(t, table.Group("g"), open(t, Options{File: path}).Group("g"))
	assert.Zero(t, table.Clamp(func(string, int) int64 { return 1 << 40 }))
}

func TestST07_OffsetsSurviveDamagedFiles(t *testing.T) {
	cut := func(raw []byte) []byte { return raw[:len(raw)/2] }
	zero := func(raw []byte) []byte { return make([]byte, len(raw)) }
	hurt := func(t *testing.T, path string, damage func([]byte) []byte) {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, damage(raw), 0o644))
	}
	persisted := func(t *testing.T) string {
		path := filepath.Join(t.TempDir(), "consumerOffset.json")
		table := open(t, Options{File: path, NoSync: true})
		for i := range 100 {
			table.Commit(fmt.Sprintf("group-%d", i), "orders", 0, int64(i))
		}
		table.Commit("g", "orders", 0, 11)
		require.NoError(t, table.Persist())
		table.Commit("g", "orders", 0, 12)
		require.NoError(t, table.Persist())
		return path
	}
	for name, damage := range map[string]func([]byte) []byte{"cut in half": cut, "filled with zeros": zero} {
		t.Run("main "+name, func(t *testing.T) {
			path := persisted(t)
			hurt(t, path, damage)
			var log bytes.Buffer
			table := open(t, Options{File: path, NoSync: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			got, ok := table.Query("g", "orders", 0)
			assert.True(t, ok)
			assert.EqualValues(t, 11, got, "the last but one persisted")
			assert.Contains(t, log.String(), "restored from the backup")
			assert.Contains(t, log.String(), "consumerOffset.json")
			open(t, Options{File: path, NoSync: true}) // silent without a logger
		})
		t.Run("both "+name, func(t *testing.T) {
			path := persisted(t)
			hurt(t, path, damage)
			hurt(t, path+".bak", damage)
			_, err := Open(Options{File: path})
			require.ErrorIs(t, err, statefile.ErrDamaged)
			assert.ErrorContains(t, err, path)
			assert.ErrorContains(t, err, "move both away")
		})
	}
	t.Run("one group after a hundred", func(t *testing.T) {
		path := persisted(t)
		fewer, err := Open(Options{})
		require.NoError(t, err)
		fewer.Commit("g", "orders", 0, 13)
		require.NoError(t, statefile.New(path, true).Save(encode(fewer.snapshot())))
		assert.JSONEq(t, `{"offsetTable":{"orders@g":{"0":13}}}`, content(t, path), "no leftover of the longer version")
	})
}

func TestForeignContentIsAnErrorThatNamesTheFile(t *testing.T) {
	for _, text := range []string{"[]", `{"offsetTable":{"nogroup":{"0":1}}}`, `{"offsetTable":{"t@g":{"x":1}}}`, "not json"} {
		path := filepath.Join(t.TempDir(), "consumerOffset.json")
		require.NoError(t, statefile.New(path, true).Save([]byte(text)))
		_, err := Open(Options{File: path})
		require.Error(t, err, text)
		assert.ErrorContains(t, err, path)
	}
}

func TestRandomTablesComeBackWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	table, model := open(t, Options{File: path, NoSync: true}), make(map[string]map[Key]int64)
	for round := range 30 {
		for range rng.IntN(40) {
			group, k, offset := fmt.Sprintf("g-%d%%|", rng.IntN(4)), Key{fmt.Sprintf("t_%d", rng.IntN(5)), rng.IntN(12)}, rng.Int64N(1<<40)
			table.Commit(group, k.Topic, k.Queue, offset)
			if model[group] == nil {
				model[group] = make(map[Key]int64)
			}
			model[group][k] = offset
		}
		if round%3 == 0 {
			n := 0
			for _, queues := range model {
				for k, at := range queues {
					if at > 1<<39 {
						queues[k] = 1 << 39
						n++
					}
				}
			}
			assert.Equal(t, n, table.Clamp(func(string, int) int64 { return 1 << 39 }))
		}
		require.NoError(t, table.Persist())
		table = open(t, Options{File: path, NoSync: true})
		for group := range maps.Keys(model) {
			require.Equal(t, model[group], table.Group(group))
		}
	}
}

func TestConcurrentCommitsAndPersists(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	table := open(t, Options{File: path, NoSync: true})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			group := fmt.Sprintf("g%d", g)
			for i := range int64(500) {
				table.Commit(group, "orders", int(i%5), i)
				table.Query(group, "orders", int(i%5))
				if i%50 == 0 {
					assert.NoError(t, table.Persist())
					table.Group(group)
					table.Clamp(func(string, int) int64 { return 1 << 40 })
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, table.Persist())
	again := open(t, Options{File: path, NoSync: true})
	for g := range 4 {
		want := map[Key]int64{{"orders", 0}: 495, {"orders", 1}: 496, {"orders", 2}: 497, {"orders", 3}: 498, {"orders", 4}: 499}
		assert.Equal(t, want, again.Group(fmt.Sprintf("g%d", g)))
	}
}

func TestCommitOfAKnownQueueDoesNotAllocate(t *testing.T) {
	table := open(t, Options{})
	table.Commit("g", "orders", 0, 0)
	offset := int64(0)
	assert.Zero(t, testing.AllocsPerRun(100, func() { offset++; table.Commit("g", "orders", 0, offset) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.Query("g", "orders", 0) }))
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"offsetTable":{"orders@g":{"0":12}}}`))
	f.Add([]byte(`{"offsetTable":{"@":{"-1":-1}}}`))
	f.Add([]byte(`{"offsetTable":{"t@g":{"0":60}},"resetOffsetTable":{"t@g":{"0":60}},"movedTable":{"t@g":{"0":2},"t@":{"-1":1}},"moved":3,"movedBefore":1,"ownTable":{"t@g":{"0":2}},"stateVersion":4}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := Open(Options{})
		require.NoError(t, err)
		if table.decode(data) != nil {
			return
		}
		again, err := Open(Options{})
		require.NoError(t, err)
		require.NoError(t, again.decode(encode(table.snapshot())))
		for at := range table.cells {
			if !strings.Contains(at.group, separator) && utf8.ValidString(at.group) {
				require.Equal(t, table.Group(at.group), again.Group(at.group))
			}
		}
		if all, own := table.snapshot(); all.Moved > 0 && all.Version.StateVersion >= 0 {
			more, same := again.snapshot()
			require.Equal(t, all, more)
			require.Equal(t, own, same)
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	table, err := Open(Options{})
	require.NoError(b, err)
	for g := range 100 {
		for q := range 100 {
			table.Commit(fmt.Sprintf("group-%d", g), "orders", q, 0)
		}
	}
	b.ReportAllocs()
	offset := int64(0)
	for b.Loop() {
		offset++
		table.Commit("group-50", "orders", 50, offset)
	}
}

func BenchmarkPersistEncode(b *testing.B) {
	table, err := Open(Options{})
	require.NoError(b, err)
	for g := range 100 {
		for q := range 100 {
			table.Commit(fmt.Sprintf("group-%d", g), "orders", q, int64(q))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		encode(table.snapshot())
	}
}
