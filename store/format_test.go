package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestH14_FolderIsLockedWhileOpen(t *testing.T) {
	cfg := testConfig(t)
	s := mustOpen(t, cfg)
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrInUse)
	assert.Contains(t, err.Error(), cfg.Dir)
	put(t, s, "T", 0, "still works")
	mustClose(t, s)
	mustKill(t, mustOpen(t, cfg))
	mustOpen(t, cfg)
}

func TestFolderOfAnotherBrokerIsRefused(t *testing.T) {
	cfg := testConfig(t)
	mustClose(t, mustOpen(t, cfg))
	for _, change := range []func(*Config){
		func(c *Config) { c.Cluster = "other" },
		func(c *Config) { c.Broker = "broker-b" },
		func(c *Config) { c.ID = 1 },
	} {
		other := cfg
		change(&other)
		_, err := Open(other)
		require.ErrorIs(t, err, ErrForeign)
		assert.Contains(t, err.Error(), cfg.Dir)
		assert.Contains(t, err.Error(), `"broker-a"`)
	}
	mustOpen(t, cfg)
}

func TestNewerFormatIsRefused(t *testing.T) {
	cfg := testConfig(t)
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, formatName), []byte(`{"format":2,"cluster":"c","broker":"broker-a","id":0}`), 0o640))
	_, err := Open(cfg)
	require.ErrorIs(t, err, ErrNewerFormat)
	assert.Contains(t, err.Error(), "folder "+cfg.Dir+" has format 2, this build reads 1; upgrade pocketmq")
}

func TestFolderThatIsNotAStoreIsRefusedAndLeftAlone(t *testing.T) {
	for name, content := range map[string]string{"letter.txt": "dear all", formatName: "not json", commitLogName: "x"} {
		cfg := testConfig(t)
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, name), []byte(content), 0o640))
		_, err := Open(cfg)
		require.ErrorIs(t, err, ErrNotAStore, name)
		assert.Contains(t, err.Error(), cfg.Dir)
		entries, err := os.ReadDir(cfg.Dir)
		require.NoError(t, err)
		require.Len(t, entries, 1)
		kept, err := os.ReadFile(filepath.Join(cfg.Dir, name))
		require.NoError(t, err)
		assert.Equal(t, content, string(kept))
	}
}

func TestNewFolderMayHoldWhatABrokerOrACrashLeft(t *testing.T) {
	cfg := testConfig(t)
	require.NoError(t, os.Mkdir(filepath.Join(cfg.Dir, configName), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, formatName+tempSuffix), []byte(`{"fo`), 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.Dir, lockName), nil, 0o640))
	mustOpen(t, cfg)
}

func TestFolderIsMadeWithItsParents(t *testing.T) {
	cfg := testConfig(t)
	cfg.Dir = filepath.Join(cfg.Dir, "a", "b")
	put(t, mustOpen(t, cfg), "T", 0, "x")
}

func TestConfigViolationsAreListedAtOnce(t *testing.T) {
	_, err := Open(Config{FileSize: 100, ID: -1, CacheBytes: 100, FlushInterval: -1})
	require.Error(t, err)
	for _, part := range []string{"Config.Dir", "Config.Broker", "Config.ID", "Config.FileSize is 100", "Config.CacheBytes is 100", "Config.FlushInterval"} {
		assert.Contains(t, err.Error(), part)
	}
}

func TestEveryFolderThatOpenMakesIsMadeDurable(t *testing.T) {
	root := quickDir(t)
	synced := map[string]bool{}
	disk := durable()
	disk.dir = func(path string) error {
		synced[path] = true
		return syncDir(path)
	}
	cfg := testConfig(t)
	cfg.Dir = filepath.Join(root, "a", "b", "broker")
	mustClose(t, mustOpenOn(t, cfg, disk))
	for _, dir := range []string{root, filepath.Join(root, "a"), filepath.Join(root, "a", "b"), cfg.Dir} {
		assert.True(t, synced[dir], dir)
	}
	assert.False(t, synced[filepath.Dir(root)], "what was there before is not ours")
}

func TestADamagedFORMATIsToldApartFromAnother(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	mustClose(t, mustOpen(t, cfg))
	path := filepath.Join(cfg.Dir, formatName)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "broker-a", "broker-b", 1)), 0o640))
	_, err = Open(cfg)
	require.ErrorIs(t, err, ErrNotAStore)
	assert.ErrorContains(t, err, "is damaged")
	assert.ErrorContains(t, err, "restore it")

	// One without a checksum is of before there was one.
	require.NoError(t, os.WriteFile(path, []byte(`{"format":1,"cluster":"c","broker":"broker-a","id":0}`+"\n"), 0o640))
	mustClose(t, mustOpen(t, cfg))
}

func TestAFolderMayHoldWhatOthersPutThere(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	require.NoError(t, os.Mkdir(filepath.Join(cfg.Dir, "lost+found"), 0o700))
	s := mustOpen(t, cfg)
	put(t, s, "T", 0, "m")
	mustClose(t, s)
	for _, dir := range []string{cfg.Dir, filepath.Join(cfg.Dir, commitLogName), filepath.Dir(lastSegment(t, cfg.Dir))} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".DS_Store"), []byte("x"), 0o640))
	}
	in, err := Inspect(t.Context(), cfg.Dir)
	require.NoError(t, err)
	assert.Equal(t, OpensClean, in.Opens)
	s = mustOpen(t, cfg)
	assertBodies(t, s, "T", 0, []string{"m"})
	put(t, s, "T", 0, "n")
	mustClose(t, s)
}
