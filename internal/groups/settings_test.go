package groups

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/protocol"
)

var settingsTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func openSettings(t *testing.T, file string) *Settings {
	t.Helper()
	s, err := OpenSettings(SettingsOptions{File: file, NoSync: true})
	require.NoError(t, err)
	return s
}

func TestAGroupGetsDefaultSettingsAtItsFirstUse(t *testing.T) {
	s := openSettings(t, "")
	_, ok := s.Get("g")
	assert.False(t, ok)
	c, created, err := s.Ensure(settingsTime, "g")
	require.NoError(t, err)
	assert.True(t, created)
	assert.Equal(t, protocol.DefaultGroupConfig("g"), c)
	again, created, err := s.Ensure(settingsTime, "g")
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, c, again)

	_, _, err = s.Ensure(settingsTime, strings.Repeat("x", 121))
	assert.ErrorIs(t, err, &protocol.Error{Code: protocol.SubscriptionGroupNotExist})
	_, _, err = s.Ensure(settingsTime, "../g")
	assert.ErrorIs(t, err, &protocol.Error{Code: protocol.SubscriptionGroupNotExist})
}

func TestRocketMQsOwnGroupsAreThere(t *testing.T) {
	s := openSettings(t, "")
	assert.Len(t, s.Snapshot(), len(bootGroups()))
	for _, name := range bootGroups() {
		c, ok := s.Get(name)
		assert.True(t, ok, name)
		assert.True(t, c.ConsumeBroadcastEnable, name)
	}
}

func TestSettingsAreReplacedAndDeleted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config", "subscriptionGroup.json")
	s := openSettings(t, file)
	want := protocol.DefaultGroupConfig("g")
	want.ConsumeEnable, want.RetryMaxTimes, want.RetryQueues = false, 3, 2
	want.Attributes = map[string]string{"a": "b"}
	changed, err := s.Put(settingsTime, want)
	require.NoError(t, err)
	assert.True(t, changed)
	want.Attributes["a"] = "the caller's map"
	got, _ := s.Get("g")
	assert.Equal(t, map[string]string{"a": "b"}, got.Attributes)
	want.Attributes["a"] = "b"
	changed, err = s.Put(settingsTime, want)
	require.NoError(t, err)
	assert.False(t, changed, "the same again")

	// Saved at once.
	got, ok := openSettings(t, file).Get("g")
	require.True(t, ok)
	assert.Equal(t, want, got)

	for _, bad := range []protocol.GroupConfig{{}, {Name: "a/b"}, {Name: "g", RetryQueues: -1}, {Name: "g", RetryQueues: MaxRetryQueues + 1}} {
		_, err := s.Put(settingsTime, bad)
		assert.ErrorIs(t, err, &protocol.Error{Code: protocol.InvalidParameter}, "%+v", bad)
	}

	deleted, err := s.Delete(settingsTime, "g")
	require.NoError(t, err)
	assert.True(t, deleted)
	_, ok = s.Get("g")
	assert.False(t, ok)
	_, ok = openSettings(t, file).Get("g")
	assert.False(t, ok)
	deleted, err = s.Delete(settingsTime, "g")
	require.NoError(t, err)
	assert.False(t, deleted)
}

func TestNewGroupsAreSavedByPersist(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	s := openSettings(t, file)
	require.NoError(t, s.Persist())
	assert.NoFileExists(t, file, "nothing to say")
	_, _, err := s.Ensure(settingsTime, "g")
	require.NoError(t, err)
	assert.NoFileExists(t, file)
	require.NoError(t, s.Persist())
	reopened := openSettings(t, file)
	assert.Equal(t, s.Snapshot(), reopened.Snapshot())
	assert.Equal(t, int64(1), reopened.version.Counter)
	assert.Equal(t, settingsTime.UnixMilli(), reopened.version.Timestamp)
}

func TestWhatCannotBeSavedIsNotSeen(t *testing.T) {
	dir := t.TempDir()
	s := openSettings(t, filepath.Join(dir, "config", "subscriptionGroup.json"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config"), nil, 0o644)) // no folder can be made here
	c := protocol.DefaultGroupConfig("g")
	_, err := s.Put(settingsTime, c)
	require.Error(t, err)
	_, ok := s.Get("g")
	assert.False(t, ok)
	_, _, err = s.Ensure(settingsTime, "h")
	require.NoError(t, err)
	require.Error(t, s.Persist())
	_, err = s.Delete(settingsTime, "h")
	require.Error(t, err)
	_, ok = s.Get("h")
	assert.True(t, ok)
	require.NoError(t, os.Remove(filepath.Join(dir, "config")))
	require.NoError(t, s.Persist(), "tried again")
}

// RocketMQ knows more fields than we, and an older file has fewer.
func TestSettingsOfAnotherVersionAreRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	save := func(text string) { require.NoError(t, statefile.New(file, true).Save([]byte(text))) }
	save(`{"dataVersion":{"counter":7},"forbiddenTable":{"g":{"T":4}},"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":2,"groupRetryPolicy":{"type":"CUSTOMIZED"},"subscriptionDataSet":null}}}`)
	s := openSettings(t, file)
	want := protocol.DefaultGroupConfig("g")
	want.RetryMaxTimes = 2
	got, _ := s.Get("g")
	assert.Equal(t, want, got)
	assert.Equal(t, int64(7), s.version.Counter)

	for _, bad := range []string{
		`{"subscriptionGroupTable":{"g":{"groupName":"h"}}}`,
		`{"subscriptionGroupTable":{"../g":{"groupName":"../g"}}}`,
		`{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":"x"}}}`,
		`[]`,
	} {
		save(bad)
		_, err := OpenSettings(SettingsOptions{File: file})
		assert.ErrorContains(t, err, "move it away", "%s", bad)
	}
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	require.NoError(t, os.Remove(file+".bak"))
	_, err := OpenSettings(SettingsOptions{File: file})
	assert.ErrorIs(t, err, statefile.ErrDamaged)
}

func TestSettingsFromManyGoroutines(t *testing.T) {
	s := openSettings(t, filepath.Join(t.TempDir(), "subscriptionGroup.json"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 8 {
		wg.Go(func() {
			for _, g := range []string{"a", "b", "c"} {
				_, created, err := s.Ensure(settingsTime, g)
				assert.NoError(t, err)
				assert.NoError(t, s.Persist())
				mu.Lock()
				if created {
					made++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 3, made)
}

// slowDisk keeps writes until they may go on.
type slowDisk chan error

func (d slowDisk) BeforeWrite(string) error { return <-d }
func (d slowDisk) BeforeSync()              {}

func TestTheFirstUseOfAGroupWaitsForNoSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, disk := time.Now(), make(slowDisk)
		o := SettingsOptions{File: filepath.Join(t.TempDir(), "groups.json"), NoSync: true, Disk: disk}
		s, err := OpenSettings(o)
		require.NoError(t, err)
		put := func(name string) chan error {
			done := make(chan error, 1)
			go func() {
				_, err := s.Put(now, protocol.DefaultGroupConfig(name))
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := put("put")
		_, created, err := s.Ensure(now, "used")
		require.NoError(t, err)
		assert.True(t, created)
		_, seen := s.Get("put")
		assert.False(t, seen, "it is not saved yet")
		_, meanwhile := s.Table()
		disk <- nil
		require.NoError(t, <-first)
		_, after := s.Table()
		assert.Greater(t, after.Counter, meanwhile.Counter)

		// A save that fails takes nothing from the next one.
		failed := put("full")
		disk <- errors.New("full")
		require.ErrorContains(t, <-failed, "full")
		saved := make(chan error, 1)
		go func() { saved <- s.Persist() }()
		disk <- nil
		require.NoError(t, <-saved)
		require.NoError(t, s.Persist(), "nothing is left to be saved")
		o.Disk = nil
		again, err := OpenSettings(o)
		require.NoError(t, err)
		for name, want := range map[string]bool{"put": true, "used": true, "full": false} {
			_, ok := again.Get(name)
			assert.Equal(t, want, ok, name)
		}
	})
}
