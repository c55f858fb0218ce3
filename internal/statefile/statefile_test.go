package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func save(t *testing.T, path string, versions ...string) {
	t.Helper()
	f := New(path, true)
	for _, v := range versions {
		require.NoError(t, f.Save([]byte(v)))
	}
}

// load opens path as a new process would.
func load(t *testing.T, path string) (content string, found bool, damaged error) {
	t.Helper()
	f := New(path, true)
	data, found, err := f.Load()
	require.NoError(t, err)
	return string(data), found, f.Damaged()
}

func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, e.Name()), data, 0o644))
	}
	return to
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestNothingSavedIsNotFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	content, found, damaged := load(t, path)
	assert.Empty(t, content)
	assert.False(t, found)
	assert.NoError(t, damaged)
}

func TestSavedContentComesBack(t *testing.T) {
	for _, nosync := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "made", "config", "state.json")
		f := New(path, nosync)
		for _, v := range []string{"{}", "", "two\nlines\n", strings.Repeat("long ", 10_000), "#crc32c 00000000\n", "\x00\x00"} {
			require.NoError(t, f.Save([]byte(v)))
			content, found, damaged := load(t, path)
			assert.Equal(t, v, content)
			assert.True(t, found)
			assert.NoError(t, damaged)
		}
		assert.Equal(t, []string{"state.json", "state.json.bak"}, names(t, filepath.Dir(path)))
	}
}

func TestFileIsReadableByPeople(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	save(t, path, `{"a":1}`)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "{\"a\":1}\n#crc32c cff7d56a\n", string(raw))
}

func TestST07_StateFileSurvivesDamage(t *testing.T) {
	old, now := `{"offsetTable":{"orders@g":{"0":11}}}`, `{"offsetTable":{"orders@g":{"0":12}}}`
	cut := func(raw []byte) []byte { return raw[:len(raw)/2] }
	zero := func(raw []byte) []byte { return make([]byte, len(raw)) }
	empty := func([]byte) []byte { return nil }
	flip := func(raw []byte) []byte { raw = bytes.Clone(raw); raw[3] ^= 1; return raw }
	long := func(raw []byte) []byte { // leftover bytes of an older, longer version
		older := fmt.Appendf(nil, trailerFormat, checksum(raw))
		return append(bytes.Clone(raw), append([]byte(`"g99":{"0":1}}}`), older...)...)
	}
	noTrailer := func(raw []byte) []byte { return raw[:len(raw)-trailerSize] }
	half := func(raw []byte) []byte { return raw[:len(raw)-trailerSize/2] }
	kinds := []struct {
		name   string
		damage func([]byte) []byte
		text   string
	}{
		{"cut in half", cut, "no checksum line at the end"},
		{"filled with zeros", zero, "no checksum line at the end"},
		{"empty", empty, "the file is empty"},
		{"a flipped bit", flip, "the checksum line at its end does not fit the content"},
		{"leftover of an older longer version", long, "the checksum line at its end does not fit the content"},
		{"checksum line missing", noTrailer, "no checksum line at the end"},
		{"checksum line cut", half, "no checksum line at the end"},
		{"missing", nil, "missing"},
	}
	hurt := func(t *testing.T, path string, damage func([]byte) []byte) {
		t.Helper()
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		if damage == nil {
			require.NoError(t, os.Remove(path))
			return
		}
		require.NoError(t, os.WriteFile(path, damage(raw), 0o644))
	}
	for _, main := range kinds {
		t.Run("main "+main.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "offsets.json")
			save(t, path, old, now)
			hurt(t, path, main.damage)

			f := New(path, true)
			data, found, err := f.Load()
			require.NoError(t, err)
			assert.True(t, found)
			assert.Equal(t, old, string(data), "the last but one version")
			require.Error(t, f.Damaged())
			assert.ErrorContains(t, f.Damaged(), path)

			// The next save must not put the damaged file over the good backup.
			require.NoError(t, f.Save([]byte("third")))
			hurt(t, path, cut)
			content, _, _ := load(t, path)
			assert.Equal(t, old, content)
		})
		t.Run("save without load over main "+main.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "offsets.json")
			save(t, path, old, now)
			hurt(t, path, main.damage)
			save(t, path, "third")
			hurt(t, path, cut)
			content, _, _ := load(t, path)
			assert.Equal(t, old, content)
		})
		for _, backup := range kinds {
			if main.damage == nil && backup.damage == nil {
				continue
			}
			t.Run("main "+main.name+", backup "+backup.name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "offsets.json")
				save(t, path, old, now)
				hurt(t, path, main.damage)
				hurt(t, path+".bak", backup.damage)
				_, found, err := New(path, true).Load()
				assert.False(t, found)
				require.ErrorIs(t, err, ErrDamaged)
				assert.ErrorContains(t, err, path+": "+main.text)
				assert.ErrorContains(t, err, path+".bak: "+backup.text)
				assert.ErrorContains(t, err, "move both away")
			})
		}
	}
}

// A kill is simulated by looking at a copy of the folder before and after each
// step of a save, with every possible torn length of the file being written.
func TestST07_KillAtAnyStepOfASaveLeavesAFileThatLoads(t *testing.T) {
	for _, existing := range [][]string{nil, {"first"}, {"zeroth, and longer than the others", "first"}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "state.json")
		save(t, path, existing...)
		var want string
		if len(existing) > 0 {
			want = existing[len(existing)-1]
		}
		f := New(path, true)
		inspect := func(what string, allowed ...string) {
			folder := copyFolder(t, dir)
			at := filepath.Join(folder, "state.json")
			content, found, damaged := load(t, at)
			assert.NoError(t, damaged, what)
			assert.Equal(t, len(existing) > 0 || content != "", found, what)
			assert.Contains(t, allowed, content, what)
			// The survivor goes on as if nothing had happened.
			save(t, at, "after the crash")
			again, _, _ := load(t, at)
			assert.Equal(t, "after the crash", again, what)
			assert.NotContains(t, names(t, folder), "state.json.tmp", what)
		}
		steps := f.stepsLocked([]byte("second"))
		for i, s := range steps {
			inspect("before: "+s.what, want, "second")
			require.NoError(t, s.do())
			inspect("after: "+s.what, want, "second")
			if i > 0 {
				continue
			}
			raw, err := os.ReadFile(path + ".tmp")
			require.NoError(t, err)
			for n := range raw {
				require.NoError(t, os.WriteFile(path+".tmp", raw[:n], 0o644))
				inspect(fmt.Sprintf("%d bytes of: %s", n, s.what), want)
			}
			require.NoError(t, os.WriteFile(path+".tmp", raw, 0o644))
		}
		content, _, _ := load(t, path)
		assert.Equal(t, "second", content)
	}
}

func TestSaveAfterACrashBetweenTheRenamesKeepsTheBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	save(t, path, "first")
	f := New(path, true)
	steps := f.stepsLocked([]byte("lost"))
	for _, s := range steps[:3] { // backup and main are now two names of one file
		require.NoError(t, s.do())
	}
	save(t, path, "second")
	require.NoError(t, os.Truncate(path, 3))
	content, _, _ := load(t, path)
	assert.Equal(t, "first", content)
	assert.NotContains(t, names(t, filepath.Dir(path)), "state.json.bak.tmp")
}

func TestSaveGoesOnWhenTheFileWasTakenAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	f := New(path, true)
	require.NoError(t, f.Save([]byte("first")))
	require.NoError(t, os.Remove(path))
	require.NoError(t, f.Save([]byte("second")))
	content, _, damaged := load(t, path)
	assert.Equal(t, "second", content)
	assert.NoError(t, damaged)
}

func TestSaveErrorNamesTheFileAndKeepsTheContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	save(t, path, "first")
	require.NoError(t, os.MkdirAll(filepath.Join(path+".tmp", "in the way"), 0o755))
	err := New(path, true).Save([]byte("second"))
	require.Error(t, err)
	assert.ErrorContains(t, err, path)
	assert.ErrorContains(t, err, "write the new version")
	content, _, _ := load(t, path)
	assert.Equal(t, "first", content)
}

func TestUnreadableFileIsAnErrorNotDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, os.Mkdir(path, 0o755))
	_, _, err := New(path, true).Load()
	require.Error(t, err)
	assert.False(t, errors.Is(err, ErrDamaged))
	assert.ErrorContains(t, err, path)
}

func TestConcurrentSavesAndLoadsSeeWholeVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	f := New(path, true)
	require.NoError(t, f.Save([]byte("start")))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 20 {
				assert.NoError(t, f.Save(bytes.Repeat([]byte{byte('a' + g)}, 1+i*37)))
				data, found, err := f.Load()
				assert.NoError(t, err)
				assert.True(t, found)
				assert.Equal(t, bytes.Repeat(data[:1], len(data)), data)
			}
		})
	}
	wg.Wait()
}

func TestRandomDamageIsNeverReturnedAsContent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	good := fmt.Appendf([]byte("some state of a broker"), trailerFormat, checksum([]byte("some state of a broker")))
	for range 5_000 {
		raw := bytes.Clone(good)
		for range 1 + rng.IntN(3) {
			switch rng.IntN(4) {
			case 0:
				raw = raw[:rng.IntN(len(raw)+1)]
			case 1:
				raw = append(raw, good[:rng.IntN(len(good))]...)
			case 2:
				clear(raw[rng.IntN(len(raw)+1):])
			case 3:
				if len(raw) > 0 {
					raw[rng.IntN(len(raw))] ^= 1 << rng.IntN(8)
				}
			}
		}
		if bytes.Equal(raw, good) {
			continue
		}
		_, err := decode(raw)
		assert.Error(t, err, "%q", raw)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("{}\n#crc32c 00000000\n"))
	f.Add(fmt.Appendf([]byte("{}"), trailerFormat, checksum([]byte("{}"))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		data, err := decode(raw)
		if err != nil {
			return
		}
		assert.Equal(t, raw, fmt.Appendf(bytes.Clone(data), trailerFormat, checksum(data)))
	})
}

func TestASaveThatFindsNoSpaceLeavesWhatThereWas(t *testing.T) {
	f := New(filepath.Join(t.TempDir(), "state.json"), true)
	full := false
	noSpace := errors.New("no space")
	f.On(testDisk{write: func(path string) error {
		assert.Equal(t, f.path+".tmp", path)
		if full {
			return noSpace
		}
		return nil
	}})
	require.NoError(t, f.Save([]byte("1")))
	full = true
	require.ErrorIs(t, f.Save([]byte("2")), noSpace)
	data, _, err := f.Load()
	require.NoError(t, err)
	assert.Equal(t, "1", string(data))
	full = false
	require.NoError(t, f.Save([]byte("3")))
}

// testDisk is a Disk made of functions.
type testDisk struct {
	write func(path string) error
	sync  func()
}

func (d testDisk) BeforeWrite(path string) error {
	if d.write == nil {
		return nil
	}
	return d.write(path)
}

func (d testDisk) BeforeSync() {
	if d.sync != nil {
		d.sync()
	}
}

// On a slow disk a save takes one write and two syncs, of the file and of its folder, and
// who waits for it waits in the time of the bubble.
func TestASlowDiskMakesSavesSlowInTheTimeOfABubble(t *testing.T) {
	for nosync, want := range map[bool]time.Duration{false: 3 * time.Second, true: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := New(filepath.Join(t.TempDir(), "state.json"), nosync)
			slow := func() { time.Sleep(time.Second) }
			f.On(testDisk{write: func(string) error { slow(); return nil }, sync: slow})
			begin := time.Now()
			var saves sync.WaitGroup
			for range 3 {
				saves.Go(func() { assert.NoError(t, f.Save([]byte("{}"))) })
			}
			saves.Wait()
			assert.Equal(t, 3*want, time.Since(begin))
			begin = time.Now()
			_, found, err := f.Load()
			require.NoError(t, err)
			assert.True(t, found)
			assert.Zero(t, time.Since(begin))
			f.On(nil)
			require.NoError(t, f.Save([]byte("1")))
			assert.Zero(t, time.Since(begin))
		})
	}
}
