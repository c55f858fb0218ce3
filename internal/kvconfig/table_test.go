package kvconfig

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
)

func open(t testing.TB, file string) *Table {
	t.Helper()
	table, err := Open(Options{File: file, NoSync: true})
	require.NoError(t, err)
	return table
}

func put(t testing.TB, table *Table, namespace, key, value string) {
	t.Helper()
	changed, err := table.Put(namespace, key, value)
	require.NoError(t, err)
	require.True(t, changed)
}

func TestValuesLieUnderKeysInNamespaces(t *testing.T) {
	table := open(t, "")
	_, ok := table.Get("N", "k")
	assert.False(t, ok)
	_, ok = table.List("N")
	assert.False(t, ok, "nothing was ever put")

	put(t, table, "N", "k", "v")
	put(t, table, "N", "empty", "")
	put(t, table, "M", "k", "other")
	value, ok := table.Get("N", "k")
	assert.True(t, ok)
	assert.Equal(t, "v", value)
	value, ok = table.Get("N", "empty")
	assert.True(t, ok, "an empty value is one")
	assert.Empty(t, value)
	list, ok := table.List("N")
	assert.True(t, ok)
	assert.Equal(t, map[string]string{"k": "v", "empty": ""}, list)

	changed, err := table.Put("N", "k", "v")
	require.NoError(t, err)
	assert.False(t, changed, "the same value")
	put(t, table, "N", "k", "w")

	for _, key := range []string{"k", "empty"} {
		deleted, err := table.Delete("N", key)
		require.NoError(t, err)
		assert.True(t, deleted)
		deleted, err = table.Delete("N", key)
		require.NoError(t, err)
		assert.False(t, deleted)
	}
	deleted, err := table.Delete("never", "k")
	require.NoError(t, err)
	assert.False(t, deleted)
	list, ok = table.List("N")
	assert.True(t, ok, "the namespace stays, as in the reference")
	assert.Empty(t, list)
	value, _ = table.Get("M", "k")
	assert.Equal(t, "other", value)
}

func TestAListBelongsToItsCaller(t *testing.T) {
	table := open(t, "")
	put(t, table, "N", "k", "v")
	list, _ := table.List("N")
	list["k"] = "x"
	delete(list, "k")
	value, ok := table.Get("N", "k")
	assert.True(t, ok)
	assert.Equal(t, "v", value)
}

func TestTheFileOutlivesTheTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ns-0", "kvConfig.json")
	table := open(t, file)
	assert.NoFileExists(t, file, "Open writes nothing")
	_, err := table.Delete("N", "k")
	require.NoError(t, err)
	assert.NoFileExists(t, file, "nor does a change that is none")

	put(t, table, "ORDER_TOPIC_CONFIG", "主题", "a:4;b:4")
	put(t, table, "N", "k", "<\"\n>")
	put(t, table, "M", "gone", "")
	_, err = table.Delete("M", "gone")
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Regexp(t, "^"+`\{
 "configTable": \{
  "M": \{\},
  "N": \{
   "k": "<\\"\\n>"
  \},
  "ORDER_TOPIC_CONFIG": \{
   "主题": "a:4;b:4"
  \}
 \}
\}
#crc32c [0-9a-f]{8}
$`, string(text))

	table = open(t, file)
	value, _ := table.Get("N", "k")
	assert.Equal(t, "<\"\n>", value)
	value, _ = table.Get("ORDER_TOPIC_CONFIG", "主题")
	assert.Equal(t, "a:4;b:4", value)
	_, ok := table.List("M")
	assert.True(t, ok)
	changed, err := table.Put("N", "k", "<\"\n>")
	require.NoError(t, err)
	assert.False(t, changed)
}

func TestADamagedFileIsReplacedByTheVersionBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kvConfig.json")
	table := open(t, file)
	put(t, table, "N", "k", "1")
	put(t, table, "N", "k", "2")
	require.NoError(t, os.Truncate(file, 10))
	var log bytes.Buffer
	table, err := Open(Options{File: file, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	value, _ := table.Get("N", "k")
	assert.Equal(t, "1", value)
	assert.Contains(t, log.String(), "the last change of it is lost")
	assert.Contains(t, log.String(), file)
}

func TestAFileThatIsNotOursIsAnErrorThatNamesIt(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kvConfig.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"configTable":{}}`), 0o644))
	_, err := Open(Options{File: file})
	require.ErrorIs(t, err, statefile.ErrDamaged)
	assert.ErrorContains(t, err, file)
	assert.ErrorContains(t, err, "move both away")

	for _, text := range []string{`{"configTable":[]}`, `{"configTable":{"N":{"k":1}}}`, `{}`, `null`, `[]`, `{"configTable":null}`} {
		require.NoError(t, statefile.New(file, true).Save([]byte(text)))
		_, err = Open(Options{File: file})
		require.Error(t, err, text)
		assert.ErrorContains(t, err, file)
		assert.ErrorContains(t, err, "move it away")
	}
	require.NoError(t, statefile.New(file, true).Save([]byte(`{"configTable":{"N":null}}`)))
	put(t, open(t, file), "N", "k", "v")

	_, err = Open(Options{File: filepath.Join(file, "kvConfig.json")})
	assert.ErrorContains(t, err, file, "its folder is a file")
}

func TestAChangeThatCannotBeSavedDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	table := open(t, filepath.Join(dir, "sub", "kvConfig.json"))
	put(t, table, "N", "k", "v")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub"), nil, 0o644))
	changed, err := table.Put("N", "k", "w")
	assert.ErrorContains(t, err, "KV configuration: state file ")
	assert.False(t, changed)
	deleted, err := table.Delete("N", "k")
	assert.Error(t, err)
	assert.False(t, deleted)
	value, ok := table.Get("N", "k")
	assert.True(t, ok)
	assert.Equal(t, "v", value)
}

func TestWhatStrangersMayPutIsBounded(t *testing.T) {
	table := open(t, "")
	for _, bad := range [][3]string{{"", "k", "v"}, {"N", "", "v"}} {
		_, err := table.Put(bad[0], bad[1], bad[2])
		assert.ErrorContains(t, err, "namespace or key is empty")
	}
	for _, bad := range [][3]string{{"\xff", "k", "v"}, {"N", "\xff", "v"}, {"N", "k", "\xff"}} {
		_, err := table.Put(bad[0], bad[1], bad[2])
		assert.ErrorContains(t, err, "not UTF-8")
	}
	_, err := table.Put("N", "k", strings.Repeat("v", MaxBytes))
	require.Error(t, err)
	assert.ErrorContains(t, err, "at most 2097152 are allowed")
	assert.Less(t, len(err.Error()), 300)
	_, ok := table.List("N")
	assert.False(t, ok, "nothing has changed")

	put(t, table, "N", "k", strings.Repeat("v", MaxBytes-2*entryBytes-2))
	_, err = table.Put("N", "l", "")
	assert.Error(t, err, "full")
	_, err = table.Put("N", "k", strings.Repeat("v", MaxBytes-2*entryBytes-1))
	assert.Error(t, err)
	put(t, table, "N", "k", "short")
	put(t, table, "N", "l", "v")

	// Small entries count too: each is memory.
	many := open(t, "")
	n := 0
	for ; n < 100_000; n++ {
		if _, err := many.Put(fmt.Sprint("namespace ", n), "k", ""); err != nil {
			break
		}
		if n == 100 { // the rest at once: a change costs as much as there is
			s := make(spaces)
			for i := range 14_000 {
				s[fmt.Sprint("namespace ", i)] = map[string]string{"k": ""}
			}
			many.spaces.Store(&s)
			n = 14_000
		}
	}
	assert.Less(t, n, MaxBytes/entryBytes)
	assert.Greater(t, n, 14_000)
}

// Run with -race.
func TestReadersAndWritersSideBySide(t *testing.T) {
	table := open(t, filepath.Join(t.TempDir(), "kvConfig.json"))
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 25 {
				_, err := table.Put("N", fmt.Sprint(w, "/", i), "v")
				assert.NoError(t, err)
				_, ok := table.Get("N", fmt.Sprint(w, "/", i))
				assert.True(t, ok, "a change is seen when it is acknowledged")
				if i%2 == 0 {
					_, err := table.Delete("N", fmt.Sprint(w, "/", i))
					assert.NoError(t, err)
				}
			}
		})
	}
	all.Wait()
	list, _ := table.List("N")
	assert.Len(t, list, 4*12)
}

// FuzzDecode: what is understood is written and read as the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"configTable":{"N":{"k":"v"},"M":{}}}`))
	f.Add([]byte(`{"configTable":{"N":null}}`))
	f.Add([]byte(`{"configTable":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(s.encode())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}
