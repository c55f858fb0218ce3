package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree lists the paths in a folder with the lengths of files.
func tree(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	list := make(map[string]int64)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		list[filepath.ToSlash(name)] = -1
		if !e.IsDir() {
			info, err := e.Info()
			if err != nil {
				return err
			}
			list[filepath.ToSlash(name)] = info.Size()
		}
		return nil
	}))
	return list
}

func TestPowerOffLeavesWhatSyncsCovered(t *testing.T) {
	t.Parallel()
	dir := quickDir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("before"), make([]byte, 10))
	disk := durable().recorded()
	make3 := func(name string) *os.File {
		f, err := disk.create(at(name))
		require.NoError(t, err)
		_, err = f.WriteString("abc")
		require.NoError(t, err)
		return f
	}
	grow := func(f *os.File) {
		_, err := f.WriteAt([]byte("def"), 3)
		require.NoError(t, err)
	}

	whole, part, unnamed, done := make3("whole"), make3("part"), make3("unnamed"), make3("done")
	unsynced := make3("unsynced")
	for _, f := range []*os.File{whole, part, unnamed, done} {
		require.NoError(t, disk.file(f))
	}
	grow(part)
	require.NoError(t, disk.makeDir(at("dir")))
	inDir := make3("dir/file")
	require.NoError(t, disk.file(inDir))
	require.NoError(t, disk.rename(at("unnamed"), at("late")))
	require.NoError(t, disk.rename(at("late"), at("unnamed")))
	require.NoError(t, disk.remove(at("unnamed")))
	require.NoError(t, disk.dir(dir))
	require.NoError(t, disk.makeDir(at("dir")), "is there")
	disk.finished(at("done"))

	unnamed2 := make3("unnamed")
	require.NoError(t, disk.file(unnamed2), "its folder is not synced")
	require.NoError(t, disk.makeDir(at("newdir")))
	require.NoError(t, disk.dir(at("newdir")))
	moved := make3("tmp")
	require.NoError(t, disk.file(moved))
	grow(moved)
	require.NoError(t, disk.rename(at("tmp"), at("whole")), "either may be left, but no byte of it that was not synced")
	found, err := disk.open(at("before"))
	require.NoError(t, err)
	_, err = found.WriteAt(make([]byte, 10), 10)
	require.NoError(t, err)
	require.NoError(t, disk.truncate(found, 7))
	_, err = found.WriteAt(make([]byte, 10), 7)
	require.NoError(t, err)
	for _, f := range []*os.File{whole, part, unnamed, done, unsynced, inDir, unnamed2, moved, found} {
		require.NoError(t, f.Close())
	}

	require.NoError(t, disk.ledger.cut())
	assert.Equal(t, map[string]int64{
		"before": 7, "whole": 3, "part": 3, "done": 3, "unsynced": 0, "dir": -1,
	}, tree(t, dir))
}

func TestLedgerFollowsRenamedFolders(t *testing.T) {
	t.Parallel()
	dir := quickDir(t)
	disk := durable().recorded()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, disk.makeDir(from))
	f, err := disk.create(filepath.Join(from, "file"))
	require.NoError(t, err)
	require.NoError(t, disk.file(f))
	require.NoError(t, disk.dir(from))
	_, err = f.WriteString("lost")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	g, err := disk.create(filepath.Join(from, "unnamed"))
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, disk.rename(from, to))
	require.NoError(t, disk.dir(dir))
	require.NoError(t, disk.ledger.cut())
	assert.Equal(t, map[string]int64{"b": -1, "b/file": 0}, tree(t, dir))
	require.NoError(t, disk.remove(to))
	assert.Empty(t, disk.ledger.bytes)
	assert.Empty(t, disk.ledger.names)
}

func TestFailedSyncCoversNothing(t *testing.T) {
	t.Parallel()
	var broken faultyDisk
	cause := os.ErrInvalid
	dir := quickDir(t)
	disk := broken.syncer().recorded()
	f, err := disk.create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	require.NoError(t, disk.file(f))
	require.NoError(t, disk.dir(dir))
	_, err = f.WriteString("abc")
	require.NoError(t, err)
	broken.fail.Store(&cause)
	require.ErrorIs(t, disk.file(f), cause)
	require.NoError(t, f.Close())
	require.NoError(t, disk.ledger.cut())
	assert.Equal(t, map[string]int64{"file": 0}, tree(t, dir))
}

// The ledger is right only about what it is told of.
func TestFilesAreMadeMovedAndRemovedThroughTheSyncerOnly(t *testing.T) {
	t.Parallel()
	allowed := map[string]bool{
		"syncer.go": true, "ledger.go": true,
		"lock_unix.go OpenFile": true, "lock_windows.go OpenFile": true, // the lock holds nothing
		"format.go MkdirAll": true, // told to the syncer, folder by folder
		"recover.go Mkdir":   true, // so is this one
		"store.go RemoveAll": true, // of a throwaway store
		"salvage.go Link":    true, // of a file that cannot be copied; told to the syncer
	}
	calls := map[string]bool{
		"OpenFile": true, "Create": true, "CreateTemp": true, "WriteFile": true, "Mkdir": true, "MkdirAll": true, "MkdirTemp": true,
		"Rename": true, "Remove": true, "RemoveAll": true, "Truncate": true, "Link": true, "Symlink": true, "CopyFS": true,
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || allowed[name] {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !calls[s.Sel.Name] {
				return true
			}
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "os" && !allowed[name+" "+s.Sel.Name] {
				t.Errorf("%v: os.%s: use the method of syncer that does it, so that PowerOff knows of it", fset.Position(n.Pos()), s.Sel.Name)
			}
			return true
		})
	}
}
