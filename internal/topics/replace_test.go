package topics

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func replace(t *testing.T, slave, master *Table) (changed, gone []string) {
	t.Helper()
	all, version := master.Snapshot()
	c, g, err := slave.Replace(all, version)
	require.NoError(t, err)
	names := func(configs []protocol.TopicConfig) (out []string) {
		for _, c := range configs {
			out = append(out, c.Name)
		}
		return out
	}
	return names(c), names(g)
}

func TestASlaveHasItsMastersTopics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	master, slave := open(t), open(t, file(path))
	a := config("a", 4)
	a.Order, a.Attributes = true, protocol.AttributesOf(map[string]string{"+message.type": "FIFO"})
	_, err := master.Put(t0, a, config("b", 2))
	require.NoError(t, err)
	_, err = master.Make(t0, config(message.ScheduleTopic, 18), config("%RETRY%g", 1))
	require.NoError(t, err)
	_, err = slave.Put(t0, config("b", 1), config("old", 3))
	require.NoError(t, err)

	changed, gone := replace(t, slave, master)
	assert.Equal(t, []string{"%RETRY%g", message.ScheduleTopic, "a", "b"}, changed)
	assert.Equal(t, []string{"old"}, gone)
	_, ok := slave.Get("old")
	assert.False(t, ok)
	for _, table := range []*Table{slave, open(t, file(path))} {
		want, version := master.Snapshot()
		got, have := table.Snapshot()
		assert.Equal(t, want, got)
		assert.Equal(t, version, have)
		c, _ := table.Get("a")
		assert.True(t, c.Order)
	}

	require.NoError(t, os.Remove(path))
	changed, gone = replace(t, slave, master)
	assert.Empty(t, append(changed, gone...))
	assert.NoFileExists(t, path, "what has not changed is not saved")

	_, _, err = master.Delete(t0, "b")
	require.NoError(t, err)
	_, gone = replace(t, slave, master)
	assert.Equal(t, []string{"b"}, gone)
	next, version := slave.ChangedSince(2)
	assert.Empty(t, next)
	assert.Equal(t, versionOf(master), version)
}

func TestASlavesOwnTopicsFollowItsOptions(t *testing.T) {
	master := open(t)
	_, err := master.Ensure(t0, config(message.TraceTopic, 8))
	require.NoError(t, err)
	slave := open(t, noAutoCreate)
	changed, gone := replace(t, slave, master)
	assert.Equal(t, []string{message.TraceTopic}, changed)
	assert.Empty(t, gone)
	_, ok := slave.Get(message.AutoCreateTopic)
	assert.False(t, ok)

	slave = open(t, func(o *Options) { o.DefaultQueues = 3 })
	_, _, err = slave.Replace(nil, protocol.DataVersion{})
	require.NoError(t, err)
	c, _ := slave.Get(message.AutoCreateTopic)
	assert.Equal(t, 3, c.WriteQueues)
	_, ok = slave.Get("broker-a")
	assert.True(t, ok)
}

func TestTopicsOfAFormerMasterAreRefused(t *testing.T) {
	former, next := open(t), open(t)
	_, err := former.Put(t0, config("a", 1))
	require.NoError(t, err)
	replace(t, next, former)
	_, err = former.Put(t0, config("lost", 1)) // has not reached the next one
	require.NoError(t, err)
	later := t0.Add(time.Second)
	require.NoError(t, next.SetStateVersion(later, 2))
	require.NoError(t, next.SetStateVersion(later, 1))
	assert.Equal(t, protocol.DataVersion{StateVersion: 2, Timestamp: later.UnixMilli(), Counter: 2}, versionOf(next))

	all, version := former.Snapshot()
	_, _, err = next.Replace(all, version)
	require.ErrorIs(t, err, protocol.ErrStaleVersion)
	_, ok := next.Get("lost")
	assert.False(t, ok)
	_, err = next.Put(later, config("x", 1))
	require.NoError(t, err)
	assert.EqualValues(t, 2, versionOf(next).StateVersion)
	changed, gone := replace(t, former, next)
	assert.Equal(t, []string{"x"}, changed)
	assert.Equal(t, []string{"lost"}, gone)
}

// What another master counted says nothing about what has changed since.
func TestChangesAreCountedAsTheMasterDoes(t *testing.T) {
	slave, master := open(t), open(t)
	for _, name := range []string{"a", "b", "x"} {
		_, err := slave.Put(t0, config(name, 1))
		require.NoError(t, err)
	}
	_, err := master.Ensure(t0, config("a", 1), config("x", 1))
	require.NoError(t, err)
	replace(t, slave, master)
	changed, version := slave.ChangedSince(1)
	assert.Empty(t, changed)
	assert.EqualValues(t, 1, version.Counter)
	_, err = master.Put(t0, config("x", 2))
	require.NoError(t, err)
	replace(t, slave, master)
	changed, _ = slave.ChangedSince(1)
	assert.Equal(t, []protocol.TopicConfig{config("x", 2)}, changed)
	x, _ := slave.Get("x")
	assert.Equal(t, 2, x.ReadQueues)
}

func TestTopicsThatCannotBeAreNotReplaced(t *testing.T) {
	table := open(t)
	before, version := table.Snapshot()
	for _, c := range []protocol.TopicConfig{{Name: ""}, {Name: "../x"}, {Name: "a", ReadQueues: -1}, {Name: "a", WriteQueues: MaxQueues + 1}} {
		_, _, err := table.Replace([]protocol.TopicConfig{config("fine", 1), c}, protocol.DataVersion{Counter: 9})
		requireCode(t, protocol.InvalidParameter, err)
	}
	after, same := table.Snapshot()
	assert.Equal(t, before, after)
	assert.Equal(t, version, same)

	path := filepath.Join(t.TempDir(), "topics.json")
	table = open(t, file(path))
	require.NoError(t, os.MkdirAll(filepath.Join(path+".tmp", "x"), 0o755))
	_, _, err := table.Replace([]protocol.TopicConfig{config("a", 1)}, protocol.DataVersion{Counter: 9})
	require.ErrorContains(t, err, path)
	assert.Error(t, table.SetStateVersion(t0, 1))
	_, ok := table.Get("a")
	assert.False(t, ok)
	assert.Equal(t, version, versionOf(table))
}

func TestTopicsOfWhichOnlyMessagesHaveArrivedAreMadeAnew(t *testing.T) {
	table := open(t)
	shrunk := protocol.TopicConfig{Name: "shrunk", ReadQueues: 8, WriteQueues: 4, Perm: readWrite}
	_, err := table.Put(t0, config("known", 4), config("grown", 2), shrunk)
	require.NoError(t, err)
	before := versionOf(table)
	queues := func(yield func(string, int) bool) {
		for _, q := range []struct {
			topic string
			id    int
		}{{"new", 0}, {"new", 5}, {"known", 3}, {"grown", 6}, {"shrunk", 7}, {"%RETRY%g", 0}, {"%DLQ%g", 0}, {"../x", 0}, {"bad", -1}, {"bad", MaxQueues}} {
			if !yield(q.topic, q.id) {
				return
			}
		}
	}
	shape := func(topic string, n int) protocol.TopicConfig {
		if message.IsRetryTopic(topic) {
			n = max(n, 3)
		}
		return config(topic, n)
	}
	made, err := table.EnsureQueues(t0, queues, shape)
	require.NoError(t, err)
	grown := protocol.TopicConfig{Name: "grown", ReadQueues: 7, WriteQueues: 2, Perm: readWrite}
	assert.Equal(t, []protocol.TopicConfig{config("%DLQ%g", 1), config("%RETRY%g", 3), grown, config("new", 6)}, made)
	for _, want := range append(made, config("known", 4), shrunk) {
		got, ok := table.Get(want.Name)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	_, ok := table.Get("bad")
	assert.False(t, ok)
	assert.Equal(t, before.Counter+1, versionOf(table).Counter)
	made, err = table.EnsureQueues(t0, queues, shape)
	require.NoError(t, err)
	assert.Empty(t, made)
}

func TestRandomTablesAreReplacedWhole(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	master, slave := open(t), open(t)
	for range 300 {
		for range 1 + rng.IntN(5) {
			table := master
			if rng.IntN(4) == 0 {
				table = slave
			}
			name := string(rune('d' + rng.IntN(8)))
			if rng.IntN(3) == 0 {
				_, _, err := table.Delete(t0, name)
				require.NoError(t, err)
				continue
			}
			_, err := table.Put(t0, config(name, 1+rng.IntN(3)))
			require.NoError(t, err)
		}
		before := make(map[string]protocol.TopicConfig)
		all, _ := slave.Snapshot()
		for _, c := range all {
			before[c.Name] = c
		}
		want, version := master.Snapshot()
		changed, gone, err := slave.Replace(want, version)
		require.NoError(t, err)
		got, have := slave.Snapshot()
		require.Equal(t, want, got)
		require.Equal(t, version, have)
		for _, c := range gone {
			require.Equal(t, before[c.Name], c)
			delete(before, c.Name)
			_, ok := slave.Get(c.Name)
			require.False(t, ok)
		}
		for _, c := range changed {
			require.NotEqual(t, before[c.Name], c)
			before[c.Name] = c
		}
		for _, c := range want {
			have, ok := slave.Get(c.Name)
			require.True(t, ok)
			require.Equal(t, c, have)
			require.Equal(t, c, before[c.Name], "what has changed is told")
		}
		require.Len(t, before, len(want))
		require.True(t, slices.IsSortedFunc(changed, func(a, b protocol.TopicConfig) int { return strings.Compare(a.Name, b.Name) }))
		require.Equal(t, len(want), len(slices.Collect(maps.Keys(before))))
	}
}
