package groups

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestASlaveHasItsMastersGroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	master, slave := openSettings(t, ""), openSettings(t, file)
	g := protocol.DefaultGroupConfig("g")
	g.RetryMaxTimes, g.Attributes = 3, map[string]string{"a": "b"}
	_, err := master.Put(settingsTime, g)
	require.NoError(t, err)
	_, _, err = master.Ensure(settingsTime, "h")
	require.NoError(t, err)
	for _, name := range []string{"g", "old"} {
		_, _, err = slave.Ensure(settingsTime, name)
		require.NoError(t, err)
	}
	all, version := master.Table()
	changed, err := slave.Replace(all, version)
	require.NoError(t, err)
	assert.Equal(t, []string{"g", "h", "old"}, changed)
	all[0].Attributes["x"] = "y" // nothing is shared
	for _, s := range []*Settings{slave, openSettings(t, file)} {
		_, ok := s.Get("old")
		assert.False(t, ok)
		got, have := s.Table()
		want, _ := master.Table()
		for i := range want {
			delete(want[i].Attributes, "x")
		}
		assert.Equal(t, want, got)
		assert.Equal(t, version, have)
	}
	require.NoError(t, os.Remove(file))
	all, version = master.Table()
	changed, err = slave.Replace(all, version)
	require.NoError(t, err)
	assert.Empty(t, changed)
	assert.NoFileExists(t, file, "what has not changed is not saved")
	_, err = master.Delete(settingsTime, "h")
	require.NoError(t, err)
	all, version = master.Table()
	changed, err = slave.Replace(all, version)
	require.NoError(t, err)
	assert.Equal(t, []string{"h"}, changed)
}

func TestGroupsOfAFormerMasterAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	s := openSettings(t, file)
	former, version := s.Table()
	require.NoError(t, s.SetStateVersion(settingsTime, 2))
	require.NoError(t, s.SetStateVersion(settingsTime, 1))
	_, err := s.Replace(former, version)
	assert.ErrorIs(t, err, protocol.ErrStaleVersion)
	_, err = s.Put(settingsTime, protocol.DefaultGroupConfig("g"))
	require.NoError(t, err)
	_, version = openSettings(t, file).Table()
	assert.Equal(t, protocol.DataVersion{StateVersion: 2, Timestamp: settingsTime.UnixMilli(), Counter: 2}, version)
}

func TestGroupsThatCannotBeAreNotReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	s := openSettings(t, file)
	before, version := s.Table()
	wide := protocol.DefaultGroupConfig("wide")
	wide.RetryQueues = MaxRetryQueues + 1
	for _, c := range []protocol.GroupConfig{{Name: "../g"}, {}, wide} {
		_, err := s.Replace([]protocol.GroupConfig{protocol.DefaultGroupConfig("fine"), c}, protocol.DataVersion{Counter: 9})
		assert.ErrorIs(t, err, &protocol.Error{Code: protocol.InvalidParameter})
	}
	require.NoError(t, os.MkdirAll(filepath.Join(file+".tmp", "x"), 0o755))
	_, err := s.Replace([]protocol.GroupConfig{protocol.DefaultGroupConfig("g")}, protocol.DataVersion{Counter: 9})
	assert.ErrorContains(t, err, file)
	assert.Error(t, s.SetStateVersion(settingsTime, 1))
	after, same := s.Table()
	assert.Equal(t, before, after)
	assert.Equal(t, version, same)
}
