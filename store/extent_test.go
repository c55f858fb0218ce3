package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testExtents(t *testing.T) *extents {
	x := &extents{dir: filepath.Join(t.TempDir(), queuesName), disk: durable(), handles: &handles{}}
	t.Cleanup(func() {
		assert.NoError(t, x.close())
		x.handles.close()
	})
	return x
}

func block(fill byte) []byte { return bytes.Repeat([]byte{fill}, unitBytes) }

func TestBlocksAreReadBackBeforeAndAfterTheyAreWritten(t *testing.T) {
	x := testExtents(t)
	for i := range 40 { // two chunks and a half
		n, err := x.add(uint32(i%3), int64(i)*blockUnits, block(byte(i)))
		require.NoError(t, err)
		assert.Equal(t, uint32(i+1), n, "block 0 is the stamp")
		for j := range i + 1 {
			got, err := x.read(uint32(j+1), uint32(j%3), int64(j)*blockUnits)
			require.NoError(t, err)
			require.Equal(t, block(byte(j)), got)
		}
	}
	_, err := x.read(5, 2, 4*blockUnits)
	require.ErrorIs(t, err, ErrDamaged, "of another queue")
	_, err = x.read(5, 1, 5*blockUnits)
	require.ErrorIs(t, err, ErrDamaged, "of another offset")
	_, err = x.read(extentBlocks*3, 1, 0)
	require.Error(t, err)
}

func TestExtentsGoOnInTheNextFileAndAreLoadedAgain(t *testing.T) {
	x := testExtents(t)
	x.next = extentBlocks - 5 // as if the first file were nearly full
	type placed struct {
		n    uint32
		fill byte
	}
	var all []placed
	for i := range 12 {
		n, err := x.add(7, int64(i), block(byte(i)))
		require.NoError(t, err)
		require.NotZero(t, n%extentBlocks)
		all = append(all, placed{n, byte(i)})
	}
	check := func(x *extents) {
		for _, p := range all {
			got, err := x.read(p.n, 7, int64(p.fill))
			require.NoError(t, err)
			require.Equal(t, block(p.fill), got)
		}
	}
	check(x)
	states, next, err := x.sync()
	require.NoError(t, err)
	require.Len(t, states, 2)
	assert.Equal(t, uint32(extentBlocks), states[0].blocks)
	assert.Equal(t, uint32(extentBlocks+8), next)
	assert.Nil(t, x.files[0].file, "full and synced")
	check(x)

	// What is appended behind the checkpoint is cut when it is loaded.
	_, err = x.add(7, 99, block(99))
	require.NoError(t, err)
	_, _, err = x.sync()
	require.NoError(t, err)
	y := &extents{dir: x.dir, disk: durable(), handles: &handles{}}
	defer y.close()
	stray := filepath.Join(x.dir, numberedName(2))
	require.NoError(t, os.WriteFile(stray, nil, 0o640))
	ok, err := y.load(states, next)
	require.NoError(t, err)
	require.True(t, ok)
	assert.NoFileExists(t, stray)
	check(y)
	info, err := os.Stat(y.files[1].path)
	require.NoError(t, err)
	assert.Equal(t, int64(8*blockSize), info.Size())
	n, err := y.add(7, 12, block(12))
	require.NoError(t, err)
	assert.Equal(t, next, n)
}

func TestExtentsThatDoNotFitTheCheckpointAreNotLoaded(t *testing.T) {
	x := testExtents(t)
	for i := range 20 {
		_, err := x.add(0, int64(i), block(1))
		require.NoError(t, err)
	}
	states, next, err := x.sync()
	require.NoError(t, err)
	for name, change := range map[string]func(st *extentState, next *uint32){
		"stamp":    func(st *extentState, _ *uint32) { st.stamp[3]++ },
		"length":   func(st *extentState, next *uint32) { st.blocks++; *next++ },
		"next":     func(_ *extentState, next *uint32) { *next++ },
		"number":   func(st *extentState, _ *uint32) { st.number++ },
		"too long": func(st *extentState, _ *uint32) { st.blocks = extentBlocks + 1 },
		"nothing":  func(st *extentState, _ *uint32) { st.blocks = 0 },
	} {
		st, n := states[0], next
		change(&st, &n)
		y := &extents{dir: x.dir, disk: durable(), handles: &handles{}}
		ok, err := y.load([]extentState{st}, n)
		require.NoError(t, err, name)
		assert.False(t, ok, name)
	}
	y := &extents{dir: x.dir, disk: durable(), handles: &handles{}}
	require.NoError(t, y.reset())
	assert.Empty(t, extentFiles(t, filepath.Dir(x.dir)))
}

func TestFailedSyncOfExtentsStaysAFailure(t *testing.T) {
	x := testExtents(t)
	var disk faultyDisk
	x.disk = disk.syncer()
	_, err := x.add(0, 0, block(1))
	require.NoError(t, err)
	cause := errors.New("no medium found")
	disk.fail.Store(&cause)
	_, _, err = x.sync()
	require.ErrorIs(t, err, cause)
	disk.fail.Store(nil)
	_, _, err = x.sync()
	require.ErrorIs(t, err, cause, "the kernel may have dropped the block")
}

func TestFailedWriteOfExtentsIsTriedAgain(t *testing.T) {
	x := testExtents(t)
	require.NoError(t, os.WriteFile(x.dir, nil, 0o640)) // a file where the folder should be
	x.next = extentBlocks - 8
	failed := 0
	for i := range 20 {
		n, err := x.add(0, int64(i), block(byte(i)))
		if err != nil {
			failed++
		}
		got, err := x.read(n, 0, int64(i))
		require.NoError(t, err, "it can be read all the same")
		require.Equal(t, block(byte(i)), got)
	}
	require.Positive(t, failed)
	require.NoError(t, os.Remove(x.dir))
	_, err := x.add(0, 20, block(20))
	require.NoError(t, err)
	for i := range 21 {
		n := uint32(extentBlocks - 8 + i)
		if n >= extentBlocks {
			n++
		}
		got, err := x.read(n, 0, int64(i))
		require.NoError(t, err)
		require.Equal(t, block(byte(i)), got)
	}
}
