package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// told is what one call of the program did.
type told struct {
	code     int
	out, err string
}

// call runs the program. Somebody sits at the terminal when there is an answer.
func call(t *testing.T, answer string, args ...string) told {
	t.Helper()
	var out, errs bytes.Buffer
	env := &environment{in: strings.NewReader(answer), out: &out, err: &errs, terminal: answer != ""}
	code := run(t.Context(), env, args)
	return told{code: code, out: out.String(), err: errs.String()}
}

// golden compares what a call told with a file. The folder has another name each
// time.
func golden(t *testing.T, name, dir string, got told) {
	t.Helper()
	text := fmt.Sprintf("%s-- standard error\n%s-- exit code %d\n", got.out, got.err, got.code)
	if dir != "" {
		text = strings.ReplaceAll(text, dir, "/data/broker-a")
	}
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, "go test -update writes it anew")
}

// folder writes 120 records to three queues, in a bubble: its times are always
// the same.
func folder(t *testing.T, end func(*store.Store) error) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "broker-a")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Config{Dir: dir, Cluster: "DefaultCluster", Broker: "broker-a", FileSize: store.MinFileSize})
		require.NoError(t, err)
		for n := range 120 {
			b := s.NewBatch()
			require.NoError(t, b.Add(&message.Record{
				Topic: "orders", QueueID: int32(n % 3), Body: fmt.Appendf(nil, "order %d", n),
				Properties: string(message.AppendProperty(nil, message.PropKeys, fmt.Sprintf("order-%03d", n))),
			}))
			_, err := s.Append(t.Context(), b, store.AppendOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, end(s))
	})
	return dir
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "commitlog", "0*", "0*"))
	require.NoError(t, err)
	return paths
}

// spoil overwrites bytes of a file.
func spoil(t *testing.T, path string, at, n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := range n {
		data[at+i] ^= 0x5A
	}
	require.NoError(t, os.WriteFile(path, data, 0o640))
}

func TestInspectOfAWholeFolder(t *testing.T) {
	dir := folder(t, (*store.Store).Close)
	golden(t, "clean", dir, call(t, "", "inspect", dir))
	golden(t, "clean-salvage", dir, call(t, "", "inspect", "--salvage", dir))
}

func TestInspectOfATornEnd(t *testing.T) {
	dir := folder(t, (*store.Store).Kill)
	paths := segments(t, dir)
	info, err := os.Stat(paths[len(paths)-1])
	require.NoError(t, err)
	spoil(t, paths[len(paths)-1], int(info.Size())-10, 5)
	golden(t, "torn", dir, call(t, "", "inspect", dir))
}

func TestInspectAndSalvageOfDamage(t *testing.T) {
	dir := folder(t, (*store.Store).Close)
	paths := segments(t, dir)
	require.Len(t, paths, 4)
	spoil(t, paths[0], 1200, 300)
	spoil(t, paths[1], 10, 10)
	require.NoError(t, os.RemoveAll(filepath.Dir(paths[2])))
	golden(t, "damage", dir, call(t, "", "inspect", dir))
	golden(t, "salvage-nobody", dir, call(t, "", "inspect", dir, "--salvage"))
	golden(t, "salvage-refused", dir, call(t, "n\n", "inspect", dir, "--salvage"))
	var got told
	synctest.Test(t, func(t *testing.T) { got = call(t, "yes\n", "inspect", "--salvage", dir) })
	golden(t, "salvage", dir, got)
	golden(t, "salvaged", dir, call(t, "", "inspect", dir))

	report, err := os.ReadFile(filepath.Join(dir, "salvage-20000101T000000Z", "REPORT.json"))
	require.NoError(t, err)
	golden(t, "report", dir, told{out: string(report)})
}

func TestInspectAsJSON(t *testing.T) {
	dir := folder(t, (*store.Store).Close)
	paths := segments(t, dir)
	spoil(t, paths[0], 1200, 300)
	golden(t, "damage-json", dir, call(t, "", "inspect", "--json", dir))
	var got told
	synctest.Test(t, func(t *testing.T) { got = call(t, "", "inspect", dir, "--json", "--salvage", "--yes") })
	golden(t, "salvage-json", dir, got)
	var parsed map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.out), &parsed))
	assert.Contains(t, parsed, "applied")
}

func TestInspectOfDamagedQueues(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker-a")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(store.Config{Dir: dir, Cluster: "DefaultCluster", Broker: "broker-a"})
		require.NoError(t, err)
		b := s.NewBatch()
		for range 300 {
			require.NoError(t, b.Add(&message.Record{Topic: "orders", Body: []byte("order")}))
		}
		_, err = s.Append(t.Context(), b, store.AppendOptions{})
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
	spoil(t, filepath.Join(dir, "consumequeue", "0000000000"), 5000, 1)
	golden(t, "queues", dir, call(t, "", "inspect", dir))
}

func TestInspectRefusesAFolderInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker-a")
	s, err := store.Open(store.Config{Dir: dir, Cluster: "DefaultCluster", Broker: "broker-a"})
	require.NoError(t, err)
	golden(t, "in-use", dir, call(t, "", "inspect", dir))
	require.NoError(t, s.Close())
	assert.Equal(t, exitClean, call(t, "", "inspect", dir).code)
}

func TestInspectOfNoFolder(t *testing.T) {
	dir := t.TempDir()
	golden(t, "no-folder", dir, call(t, "", "inspect", filepath.Join(dir, "none")))
	golden(t, "empty-folder", dir, call(t, "", "inspect", dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o640))
	golden(t, "other-folder", dir, call(t, "", "inspect", dir))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"help"}, {"help", "serve"}, {"serve", "-h"}, {"help", "inspect"}, {"inspect", "-h"}, {"inspekt"}, {"inspect"}, {"inspect", "a", "b"},
		{"inspect", "--yes", "a"}, {"inspect", "--json", "--salvage", "a"}, {"inspect", "--colour", "a"},
		{"help", "version"}, {"version", "-h"}, {"version", "a"}, {"version", "-v"},
	} {
		got := call(t, "", args...)
		golden(t, "usage-"+strings.Join(args, "_"), "", got)
	}
}

func TestInspectEndsWithItsContext(t *testing.T) {
	dir := folder(t, (*store.Store).Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	assert.Equal(t, exitError, run(ctx, &environment{out: &out, err: &errs}, []string{"inspect", dir}))
	assert.Contains(t, errs.String(), context.Canceled.Error())
}

// full is a disk that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWrittenIsAnError(t *testing.T) {
	dir := folder(t, (*store.Store).Close)
	var errs bytes.Buffer
	assert.Equal(t, exitError, run(t.Context(), &environment{out: full{}, err: &errs}, []string{"inspect", dir}))
	assert.Contains(t, errs.String(), "no space left")
}

// Names come from whoever sent: what inspect prints of them is nothing that a
// terminal acts upon, and no line of its own.
func TestNamesCannotForgeWhatInspectPrints(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "broker-a")
	s, err := store.Open(store.Config{Dir: dir, Cluster: "c", Broker: "b"})
	require.NoError(t, err)
	b := s.NewBatch()
	require.NoError(t, b.Add(&message.Record{Topic: "evil\x1b[2J\nfound        nothing wrong", Body: []byte("x")}))
	_, err = s.Append(t.Context(), b, store.AppendOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	got := call(t, "", "inspect", dir)
	assert.Contains(t, got.out, `"evil\x1b[2J\nfound        nothing wrong"`)
	assert.NotContains(t, got.out, "\x1b")
	assert.Equal(t, 1, strings.Count(got.out, "\nfound        nothing wrong"), "its own")
	assert.Equal(t, "name-1%|", printable("name-1%|"))
	assert.Equal(t, "a\ufffd\nb", plain("a\x1b\nb"))
}
