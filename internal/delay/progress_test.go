package delay

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func openFile(t *testing.T, file string) *Progress {
	t.Helper()
	p, err := OpenProgress(file, true, nil)
	require.NoError(t, err)
	return p
}

func TestASlaveHasItsMastersProgress(t *testing.T) {
	now := time.UnixMilli(1700000000000)
	master := memory(t)
	require.NoError(t, master.Save(now, []int64{7, 0, 3}, deletions{"T": {2: 9}}))
	all := master.Snapshot()
	assert.Equal(t, protocol.DelayProgress{
		Version: protocol.DataVersion{Timestamp: 1700000000000, Counter: 1},
		Offsets: map[int]int64{1: 7, 3: 3}, Deleted: map[string]map[int]int64{"T": {3: 9}},
	}, all)

	file := filepath.Join(t.TempDir(), "delayOffset.json")
	slave := openFile(t, file)
	require.NoError(t, slave.Save(now, []int64{1, 2, 3, 4}, nil))
	require.NoError(t, slave.Replace(all))
	for _, p := range []*Progress{slave, openFile(t, file)} {
		assert.Equal(t, []int64{7, 0, 3, 0}, []int64{p.Offset(0), p.Offset(1), p.Offset(2), p.Offset(3)})
		assert.Equal(t, deletions{"T": {2: 9}}, p.Deleted())
		assert.Equal(t, all.Version, p.Snapshot().Version)
	}
	all.Deleted["T"][3] = 1
	all.Offsets[1] = 1
	assert.Equal(t, deletions{"T": {2: 9}}, slave.Deleted(), "nothing is shared")
	assert.EqualValues(t, 7, slave.Offset(0))

	require.NoError(t, os.Remove(file))
	require.NoError(t, slave.Replace(master.Snapshot()))
	assert.NoFileExists(t, file, "what has not changed is not saved")
}

func TestLevelsThatCannotBeArePassedOver(t *testing.T) {
	p := memory(t)
	require.NoError(t, p.Replace(protocol.DelayProgress{Offsets: map[int]int64{0: 1, -1: 2, math.MaxInt: 3, math.MinInt: 4, 1: 5}}))
	assert.Equal(t, map[int]int64{1: 5}, p.Snapshot().Offsets)
}

func TestProgressOfAFormerMasterIsRefused(t *testing.T) {
	p := memory(t)
	now := time.UnixMilli(5)
	require.NoError(t, p.Save(now, []int64{7}, nil))
	former := p.Snapshot()
	require.NoError(t, p.SetStateVersion(now, 3))
	require.NoError(t, p.SetStateVersion(now, 2))
	assert.Equal(t, protocol.DataVersion{StateVersion: 3, Timestamp: 5, Counter: 2}, p.Snapshot().Version)
	assert.ErrorIs(t, p.Replace(former), protocol.ErrStaleVersion)
	require.NoError(t, p.Save(now, []int64{8}, nil))
	assert.Equal(t, protocol.DataVersion{StateVersion: 3, Timestamp: 5, Counter: 3}, p.Snapshot().Version)
	require.NoError(t, p.Replace(protocol.DelayProgress{Version: protocol.DataVersion{StateVersion: 4}}))
	assert.Zero(t, p.Offset(0))
}

func TestHA03_ProgressIsClampedAtAPromotion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "delayOffset.json")
	p := openFile(t, file)
	require.NoError(t, p.Save(time.UnixMilli(1), []int64{7, 100, 90}, deletions{"T": {1: 100, 2: 5}}))
	n, err := p.Clamp(time.UnixMilli(2), func(level int) int64 { return 90 })
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	for _, p := range []*Progress{p, openFile(t, file)} {
		assert.Equal(t, protocol.DelayProgress{
			Version: protocol.DataVersion{Timestamp: 2, Counter: 2}, Offsets: map[int]int64{1: 7, 2: 90, 3: 90}, Deleted: map[string]map[int]int64{"T": {2: 90, 3: 5}},
		}, p.Snapshot())
	}
	n, err = p.Clamp(time.UnixMilli(3), func(int) int64 { return 90 })
	require.NoError(t, err)
	assert.Zero(t, n)
	n, err = p.Clamp(time.UnixMilli(3), func(int) int64 { return -1 })
	require.NoError(t, err)
	assert.Equal(t, 5, n, "a queue that there is not")
	assert.Zero(t, p.Offset(1))
}

func TestAFailedSaveChangesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "delayOffset.json")
	p := openFile(t, file)
	require.NoError(t, p.Save(time.UnixMilli(1), []int64{7}, nil))
	require.NoError(t, os.MkdirAll(filepath.Join(file+".tmp", "x"), 0o755))
	before := p.Snapshot()
	_, err := p.Clamp(time.UnixMilli(2), func(int) int64 { return 1 })
	assert.ErrorContains(t, err, file)
	assert.Error(t, p.SetStateVersion(time.UnixMilli(2), 1))
	assert.Error(t, p.Replace(protocol.DelayProgress{Offsets: map[int]int64{1: 8}}))
	assert.Equal(t, before, p.Snapshot())
}
