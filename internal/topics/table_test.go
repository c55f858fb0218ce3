package topics

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t *testing.T, change ...func(*Options)) *Table {
	t.Helper()
	o := Options{NoSync: true, Cluster: "c", Broker: "broker-a", AutoCreate: true}
	for _, f := range change {
		f(&o)
	}
	table, err := Open(t0, o)
	require.NoError(t, err)
	return table
}

func file(path string) func(*Options) { return func(o *Options) { o.File = path } }
func noAutoCreate(o *Options)         { o.AutoCreate = false }

func config(name string, queues int) protocol.TopicConfig {
	return protocol.TopicConfig{Name: name, ReadQueues: queues, WriteQueues: queues, Perm: readWrite}
}

func requireCode(t *testing.T, code protocol.Code, err error) *protocol.Error {
	t.Helper()
	var e *protocol.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, code, e.Code, "%v", err)
	return e
}

func versionOf(table *Table) protocol.DataVersion {
	_, v := table.Snapshot()
	return v
}

func TestBootTopics(t *testing.T) {
	want := []protocol.TopicConfig{
		{Name: "BenchmarkTest", ReadQueues: 1024, WriteQueues: 1024, Perm: 6},
		{Name: "OFFSET_MOVED_EVENT", ReadQueues: 1, WriteQueues: 1, Perm: 6},
		{Name: "RMQ_SYS_TRACE_TOPIC", ReadQueues: 1, WriteQueues: 1, Perm: 6},
		{Name: "SELF_TEST_TOPIC", ReadQueues: 1, WriteQueues: 1, Perm: 6},
		{Name: "TBW102", ReadQueues: 8, WriteQueues: 8, Perm: 7},
		{Name: "broker-a", ReadQueues: 1, WriteQueues: 1, Perm: 7},
		{Name: "c", ReadQueues: 16, WriteQueues: 16, Perm: 7},
	}
	got, version := open(t).Snapshot()
	assert.Equal(t, want, got)
	assert.Zero(t, version.Counter)
	assert.NotZero(t, version.Timestamp)

	got, _ = open(t, noAutoCreate).Snapshot()
	assert.Equal(t, slices.Delete(want, 4, 5), got)
	template, ok := open(t, func(o *Options) { o.DefaultQueues = 3 }).Get("TBW102")
	assert.True(t, ok)
	assert.Equal(t, 3, template.WriteQueues)
	for _, absent := range []string{"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c", "SCHEDULE_TOPIC_XXXX", "c_REPLY_TOPIC"} {
		_, ok := open(t).Get(absent)
		assert.False(t, ok, absent)
	}
	one, _ := open(t, func(o *Options) { o.Broker = "c" }).Snapshot()
	assert.Len(t, one, 6, "cluster and broker of one name")
}

func TestIllegalClusterOrBrokerNameIsRefused(t *testing.T) {
	for _, o := range []Options{{Cluster: "my.cluster"}, {Broker: "a b"}} {
		_, err := Open(t0, o)
		assert.ErrorIs(t, err, protocol.ErrIllegalName)
	}
}

func TestAConfigurationMayAskForMoreRoomForTraces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	changed, err := open(t, file(path)).Ensure(t0, config(message.TraceTopic, 3))
	require.NoError(t, err)
	assert.True(t, changed)
	table := open(t, file(path))
	c, ok := table.Get(message.TraceTopic)
	assert.True(t, ok)
	assert.Equal(t, config(message.TraceTopic, 3), c, "it keeps its queues")
	_, err = table.Ensure(t0, config(message.TraceTopic, MaxQueues+1))
	require.Error(t, err)
	_, err = table.Put(t0, config(message.TraceTopic, 2))
	require.ErrorIs(t, err, message.ErrIllegalName, "nobody changes it from outside")
	_, _, err = table.Delete(t0, message.TraceTopic)
	require.Error(t, err)
}

func TestEnsureCreatesAndGrowsButNeverShrinks(t *testing.T) {
	table := open(t)
	changed, err := table.Ensure(t0, config("orders", 4), config("payments", 2))
	require.NoError(t, err)
	assert.True(t, changed)
	got, _ := table.Get("orders")
	assert.Equal(t, config("orders", 4), got)
	assert.Equal(t, protocol.DataVersion{Timestamp: t0.UnixMilli(), Counter: 1}, versionOf(table), "one change for all")

	for _, smaller := range []int{1, 3, 4} {
		changed, err = table.Ensure(t0, config("orders", smaller))
		require.NoError(t, err)
		assert.False(t, changed)
	}
	changed, err = table.Ensure(t0)
	require.NoError(t, err)
	assert.False(t, changed)
	assert.EqualValues(t, 1, versionOf(table).Counter)

	changed, err = table.Ensure(t0, protocol.TopicConfig{Name: "orders", ReadQueues: 9, WriteQueues: 1, Perm: protocol.PermRead})
	require.NoError(t, err)
	assert.True(t, changed)
	got, _ = table.Get("orders")
	assert.Equal(t, protocol.TopicConfig{Name: "orders", ReadQueues: 9, WriteQueues: 4, Perm: readWrite}, got)

	changed, err = table.Ensure(t0, config("new", 1), config("bad name", 1))
	requireCode(t, protocol.InvalidParameter, err)
	assert.False(t, changed)
	_, ok := table.Get("new")
	assert.False(t, ok, "all or none")

	changed, err = table.Ensure(t0, config("twice", 1), config("twice", 5), config("twice", 2))
	require.NoError(t, err)
	assert.True(t, changed)
	got, _ = table.Get("twice")
	assert.Equal(t, config("twice", 5), got)
}

func TestPutCreatesAndReplaces(t *testing.T) {
	table := open(t)
	changed, err := table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	assert.True(t, changed)
	changed, err = table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	assert.False(t, changed, "identical")
	assert.EqualValues(t, 1, versionOf(table).Counter)
	smaller := protocol.TopicConfig{Name: "orders", ReadQueues: 2, WriteQueues: 1, Perm: protocol.PermRead, Order: true, SysFlag: 1}
	changed, err = table.Put(t0.Add(time.Second), smaller)
	require.NoError(t, err)
	assert.True(t, changed)
	got, _ := table.Get("orders")
	assert.Equal(t, smaller, got)
	assert.Equal(t, protocol.DataVersion{Timestamp: t0.Add(time.Second).UnixMilli(), Counter: 2}, versionOf(table))
}

func TestOutsidersMayNotTouchIllegalOrSystemTopics(t *testing.T) {
	table := open(t)
	before, version := table.Snapshot()
	for _, name := range []string{"", "a b", strings.Repeat("x", 128), "TBW102", "c", "broker-a", "SELF_TEST_TOPIC", "rmq_sys_x", "RMQ_SYS_TRANS_HALF_TOPIC", "c_REPLY_TOPIC"} {
		_, err := table.Put(t0, config(name, 1))
		e := requireCode(t, protocol.InvalidParameter, err)
		assert.True(t, strings.HasPrefix(e.Remark, protocol.RemarkBadName), e.Remark)
		assert.ErrorIs(t, err, protocol.ErrIllegalName)
		_, err = table.Ensure(t0, config(name, 1))
		assert.ErrorIs(t, err, protocol.ErrIllegalName)
	}
	_, err := table.Put(t0, config("TBW102", 1))
	assert.ErrorContains(t, err, "The topic[TBW102] is conflict with system topic.")
	for _, c := range []protocol.TopicConfig{
		{Name: "orders", ReadQueues: -1, WriteQueues: 1, Perm: 6},
		{Name: "orders", ReadQueues: 1, WriteQueues: MaxQueues + 1, Perm: 6},
		{Name: "orders", Perm: 6},
		{Name: "orders", ReadQueues: 1, WriteQueues: 1},
		{Name: "orders", ReadQueues: 1, WriteQueues: 1, Perm: 8},
		{Name: "orders", ReadQueues: 1, WriteQueues: 1, Perm: -1},
	} {
		_, err := table.Put(t0, c)
		requireCode(t, protocol.InvalidParameter, err)
		assert.ErrorContains(t, err, "topic[orders]")
	}
	after, version2 := table.Snapshot()
	assert.Equal(t, before, after)
	assert.Equal(t, version, version2)
}

func TestAutoCreateFollowsTheTemplate(t *testing.T) {
	table := open(t)
	c, created, err := table.AutoCreate(t0, "orders", message.AutoCreateTopic, 4)
	require.NoError(t, err)
	assert.True(t, created)
	assert.Equal(t, config("orders", 4), c)
	c, created, err = table.AutoCreate(t0, "orders", message.AutoCreateTopic, 1)
	require.NoError(t, err)
	assert.False(t, created, "it is there")
	assert.Equal(t, config("orders", 4), c)
	assert.EqualValues(t, 1, versionOf(table).Counter)

	c, _, err = table.AutoCreate(t0, "many", message.AutoCreateTopic, 100)
	require.NoError(t, err)
	assert.Equal(t, config("many", 8), c)
	for _, queues := range []int{0, -3} { // nobody could send to such a topic
		_, created, err := table.AutoCreate(t0, "none", message.AutoCreateTopic, queues)
		requireCode(t, protocol.InvalidParameter, err)
		assert.False(t, created)
		_, there := table.Get("none")
		assert.False(t, there)
	}
	c, _, err = table.AutoCreate(t0, "of-the-cluster", "c", 100)
	require.NoError(t, err)
	assert.Equal(t, config("of-the-cluster", 16), c)

	_, err = table.Put(t0, protocol.TopicConfig{Name: "template", ReadQueues: 9, WriteQueues: 2, Perm: protocol.PermWrite | protocol.PermInherit, SysFlag: 1})
	require.NoError(t, err)
	c, _, err = table.AutoCreate(t0, "own", "template", 100)
	require.NoError(t, err)
	assert.Equal(t, protocol.TopicConfig{Name: "own", ReadQueues: 2, WriteQueues: 2, Perm: protocol.PermWrite, SysFlag: 1}, c)
	c, created, err = table.AutoCreate(t0, "RMQ_SYS_TRACE_TOPIC", message.AutoCreateTopic, 4)
	require.NoError(t, err, "tracing producers rely on it")
	assert.False(t, created)
	assert.Equal(t, 1, c.WriteQueues)
}

func TestAutoCreateWithoutATemplate(t *testing.T) {
	for name, table := range map[string]*Table{"off": open(t, noAutoCreate), "on": open(t)} {
		t.Run(name, func(t *testing.T) {
			_, version := table.Snapshot()
			for _, template := range []string{"unknown", "BenchmarkTest", "", "TBW102"} {
				if template == "TBW102" && name == "on" {
					continue
				}
				_, created, err := table.AutoCreate(t0, "ordrs", template, 4)
				assert.False(t, created)
				requireCode(t, protocol.TopicNotExist, err)
				assert.ErrorContains(t, err, "topic[ordrs] not exist, apply first please!")
				assert.ErrorContains(t, err, "Admin.CreateTopic")
				assert.ErrorIs(t, err, protocol.ErrNoRoute)
			}
			assert.Equal(t, version, versionOf(table))
			c, created, err := table.AutoCreate(t0, "%RETRY%g", "unknown", 4)
			require.NoError(t, err)
			assert.True(t, created)
			assert.Equal(t, config("%RETRY%g", 1), c)
		})
	}
}

func TestAutoCreateRefusesIllegalAndReservedNames(t *testing.T) {
	table := open(t)
	_, _, err := table.AutoCreate(t0, "a b", message.AutoCreateTopic, 4)
	assert.ErrorIs(t, err, protocol.ErrIllegalName)
	requireCode(t, protocol.InvalidParameter, err)
	for _, name := range []string{"rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_c", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} {
		_, _, err := table.AutoCreate(t0, name, message.AutoCreateTopic, 4)
		requireCode(t, protocol.NoPermission, err)
		_, ok := table.Get(name)
		assert.False(t, ok)
	}
}

func TestSnapshotIsSortedAndACopy(t *testing.T) {
	table := open(t)
	for _, name := range []string{"z", "a", "m", "%RETRY%g"} {
		_, err := table.Put(t0, config(name, 1))
		require.NoError(t, err)
	}
	got, _ := table.Snapshot()
	assert.True(t, slices.IsSortedFunc(got, func(a, b protocol.TopicConfig) int { return strings.Compare(a.Name, b.Name) }))
	got[0].Name = "elsewhere"
	again, _ := table.Snapshot()
	assert.NotEqual(t, got, again)
}

func TestTopicsAndVersionSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "topics.json")
	table := open(t, file(path))
	assert.NoFileExists(t, path, "opening writes nothing")
	_, err := table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	_, _, err = table.AutoCreate(t0, "auto", message.AutoCreateTopic, 2)
	require.NoError(t, err)
	want, version := table.Snapshot()

	again := open(t, file(path))
	got, version2 := again.Snapshot()
	assert.Equal(t, want, got)
	assert.Equal(t, version, version2)
	c, ok := again.Get("orders")
	assert.True(t, ok)
	assert.Equal(t, config("orders", 4), c)

	changed, err := again.Ensure(t0, config("orders", 4))
	require.NoError(t, err)
	assert.False(t, changed)
}

func TestBootTopicsFollowTheOptionsNotTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	_, err := table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	version := versionOf(table)

	off := open(t, file(path), noAutoCreate)
	_, ok := off.Get("TBW102")
	assert.False(t, ok)
	assert.Equal(t, version.Counter+1, versionOf(off).Counter, "name servers must look again")
	_, _, err = off.AutoCreate(t0, "ordrs", "TBW102", 4)
	requireCode(t, protocol.TopicNotExist, err)

	more, err := Open(t0.Add(time.Second), Options{File: path, NoSync: true, Cluster: "c", Broker: "broker-a", AutoCreate: true, DefaultQueues: 12})
	require.NoError(t, err)
	template, _ := more.Get("TBW102")
	assert.Equal(t, 12, template.ReadQueues)
	assert.Greater(t, versionOf(more).Timestamp, version.Timestamp)
	assert.Equal(t, version, versionOf(open(t, file(path))), "as it was")
}

func TestFileIsReadableByPeopleAndInTheReferencesShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	_, err := table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Contains(t, string(raw), "\n"+`"orders":{"topicName":"orders","readQueueNums":4,"writeQueueNums":4,"perm":6,"order":false,"topicSysFlag":0}`)
	data, _, err := statefile.New(path, true).Load()
	require.NoError(t, err)
	var shape struct {
		DataVersion      map[string]int64
		TopicConfigTable map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &shape))
	assert.Equal(t, map[string]int64{"counter": 1, "stateVersion": 0, "timestamp": t0.UnixMilli()}, shape.DataVersion)
	assert.Len(t, shape.TopicConfigTable, 8)
}

func TestFailedSaveChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	_, err := table.Put(t0, config("orders", 4))
	require.NoError(t, err)
	before, version := table.Snapshot()
	require.NoError(t, os.MkdirAll(filepath.Join(path+".tmp", "in the way"), 0o755))

	changed, err := table.Put(t0, config("orders", 5))
	assert.False(t, changed)
	assert.ErrorContains(t, err, path)
	changed, err = table.Ensure(t0, config("new", 1))
	assert.False(t, changed)
	assert.Error(t, err)
	_, created, err := table.AutoCreate(t0, "auto", message.AutoCreateTopic, 1)
	assert.False(t, created)
	assert.Error(t, err)
	after, version2 := table.Snapshot()
	assert.Equal(t, before, after)
	assert.Equal(t, version, version2)
	_, ok := table.Get("new")
	assert.False(t, ok)

	require.NoError(t, os.RemoveAll(path+".tmp"))
	changed, err = table.Put(t0, config("orders", 5))
	require.NoError(t, err)
	assert.True(t, changed)
}

func TestST07_TopicsSurviveDamagedFiles(t *testing.T) {
	cut := func(raw []byte) []byte { return raw[:len(raw)/2] }
	zero := func(raw []byte) []byte { return make([]byte, len(raw)) }
	hurt := func(t *testing.T, path string, damage func([]byte) []byte) {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, damage(raw), 0o644))
	}
	for name, damage := range map[string]func([]byte) []byte{"cut in half": cut, "filled with zeros": zero} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "topics.json")
			table := open(t, file(path))
			for _, topic := range []string{"first", "second", "third"} {
				_, err := table.Put(t0, config(topic, 1))
				require.NoError(t, err)
			}
			hurt(t, path, damage)
			var log bytes.Buffer
			again := open(t, file(path), func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			_, ok := again.Get("second")
			assert.True(t, ok)
			_, ok = again.Get("third")
			assert.False(t, ok, "the last but one version")
			assert.Contains(t, log.String(), "restored from the backup")
			assert.Contains(t, log.String(), "topics.json")

			hurt(t, path+".bak", damage)
			_, err := Open(t0, Options{File: path})
			require.ErrorIs(t, err, statefile.ErrDamaged)
			assert.ErrorContains(t, err, path)
			assert.ErrorContains(t, err, "move both away")
		})
	}
}

func TestForeignContentIsAnErrorThatNamesTheFile(t *testing.T) {
	for _, text := range []string{"[]", "no json", `{"topicConfigTable":{"a":{"topicName":"b"}}}`, `{"topicConfigTable":{"a b":{"topicName":"a b"}}}`} {
		path := filepath.Join(t.TempDir(), "topics.json")
		require.NoError(t, statefile.New(path, true).Save([]byte(text)))
		_, err := Open(t0, Options{File: path})
		assert.ErrorContains(t, err, path, text)
	}
}

// Random changes against a map; every other reopening.
func TestRandomChangesAreWhatIsReadBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "topics.json")
	table, model := open(t, file(path)), make(map[string]protocol.TopicConfig)
	configs, _ := table.Snapshot()
	for _, c := range configs {
		model[c.Name] = c
	}
	counter := int64(0)
	for i := range 300 {
		c := config(fmt.Sprintf("t%d", rng.IntN(20)), 1+rng.IntN(4))
		old, known := model[c.Name]
		var changed, want bool
		var err error
		switch rng.IntN(3) {
		case 0:
			want = !known || old != c
			changed, err = table.Put(t0, c)
		case 1:
			c.ReadQueues, c.WriteQueues = max(c.ReadQueues, old.ReadQueues), max(c.WriteQueues, old.WriteQueues)
			want = !known || old != c
			changed, err = table.Ensure(t0, c)
		case 2:
			if known {
				c = old
			}
			want = !known
			_, changed, err = table.AutoCreate(t0, c.Name, message.AutoCreateTopic, c.WriteQueues)
		}
		require.NoError(t, err)
		require.Equal(t, want, changed)
		if changed {
			counter++
		}
		model[c.Name] = c
		if i%7 == 0 && counter > 0 {
			table = open(t, file(path))
		}
		configs, version := table.Snapshot()
		require.Equal(t, counter, version.Counter)
		require.Len(t, configs, len(model))
		for _, c := range configs {
			require.Equal(t, model[c.Name], c)
			got, ok := table.Get(c.Name)
			require.True(t, ok)
			require.Equal(t, c, got)
		}
	}
}

func TestConcurrentFirstSendsMakeATopicOnce(t *testing.T) {
	table := open(t, file(filepath.Join(t.TempDir(), "topics.json")))
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := make(map[string]int)
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				name := fmt.Sprintf("t%d", i)
				c, created, err := table.AutoCreate(t0, name, message.AutoCreateTopic, 1+g%4)
				assert.NoError(t, err)
				got, ok := table.Get(name)
				assert.True(t, ok)
				assert.Equal(t, got, c)
				table.Snapshot()
				if created {
					mu.Lock()
					made[name]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	assert.Len(t, made, 20)
	for name, n := range made {
		assert.Equal(t, 1, n, name)
	}
	assert.EqualValues(t, 20, versionOf(table).Counter)
}

func TestGetDoesNotAllocate(t *testing.T) {
	table := open(t)
	assert.Zero(t, testing.AllocsPerRun(100, func() { table.Get("TBW102") }))
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"dataVersion":{"counter":1},"topicConfigTable":{"orders":{"topicName":"orders","perm":6}}}`))
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

func BenchmarkGet(b *testing.B) {
	table, err := Open(t0, Options{AutoCreate: true})
	require.NoError(b, err)
	var configs []protocol.TopicConfig
	for i := range 1_000 {
		configs = append(configs, config(fmt.Sprintf("topic-%d", i), 4))
	}
	_, err = table.Ensure(t0, configs...)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		table.Get("topic-500")
	}
}

// One topic more among ten thousand.
func BenchmarkPut(b *testing.B) {
	table, err := Open(t0, Options{File: filepath.Join(b.TempDir(), "topics.json"), NoSync: true})
	require.NoError(b, err)
	var configs []protocol.TopicConfig
	for i := range 10_000 {
		configs = append(configs, config(fmt.Sprintf("topic-%d", i), 4))
	}
	_, err = table.Ensure(t0, configs...)
	require.NoError(b, err)
	queues := 4
	for b.Loop() {
		queues = 5 - queues%2
		_, err := table.Put(t0, config("topic-500", queues))
		require.NoError(b, err)
	}
}

func TestMakeAddsWhatIsMissingAndChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	created, err := table.Make(t0, config("%RETRY%g", 1), config("SCHEDULE_TOPIC_XXXX", 18))
	require.NoError(t, err)
	assert.True(t, created)
	before := versionOf(table)
	created, err = table.Make(t0, config("%RETRY%g", 5), config("SCHEDULE_TOPIC_XXXX", 18))
	require.NoError(t, err)
	assert.False(t, created)
	assert.Equal(t, before, versionOf(table))
	got, _ := open(t, file(path)).Get("%RETRY%g")
	assert.Equal(t, config("%RETRY%g", 1), got)

	created, err = table.Make(t0, config("fine", 1), config("not/fine", 1))
	requireCode(t, protocol.InvalidParameter, err)
	assert.False(t, created)
	_, ok := table.Get("fine")
	assert.False(t, ok, "all or none")
}

func TestChangedSinceTellsWhatCameWithLaterVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	all, version := table.Snapshot()
	changed, v := table.ChangedSince(-1)
	assert.Equal(t, all, changed, "everything")
	assert.Equal(t, version, v)
	changed, v = table.ChangedSince(version.Counter)
	assert.Empty(t, changed)
	assert.Equal(t, version, v)

	_, err := table.Ensure(t0, config("a", 1), config("b", 1))
	require.NoError(t, err)
	_, err = table.Put(t0, config("x", 1))
	require.NoError(t, err)
	_, err = table.Put(t0, config("a", 2))
	require.NoError(t, err)
	_, _, err = table.Delete(t0, "b")
	require.NoError(t, err)
	_, version = table.Snapshot()
	require.EqualValues(t, 4, version.Counter)
	for since, want := range [][]protocol.TopicConfig{
		{config("a", 2), config("x", 1)}, {config("a", 2), config("x", 1)}, {config("a", 2)}, nil, nil,
	} {
		changed, v = table.ChangedSince(int64(since))
		assert.Equal(t, want, changed, "since %d", since)
		assert.Equal(t, version, v, "a deletion moves the version, and brings nothing")
	}

	// A table that was opened again: what it has is what it had.
	table = open(t, file(path))
	changed, v = table.ChangedSince(v.Counter)
	assert.Empty(t, changed)
	_, err = table.Put(t0, config("d", 1))
	require.NoError(t, err)
	changed, _ = table.ChangedSince(v.Counter)
	assert.Equal(t, []protocol.TopicConfig{config("d", 1)}, changed)
}

func TestOrderedTopicsAreMarkedInOneChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	_, err := table.Ensure(t0, config("a", 1), config("b", 1), config("x", 1))
	require.NoError(t, err)
	before := versionOf(table)

	marked, err := table.MarkOrdered(t0, slices.Values([]string{"unknown"}))
	require.NoError(t, err)
	assert.Empty(t, marked)
	assert.Equal(t, before, versionOf(table), "nothing to mark")

	marked, err = table.MarkOrdered(t0, slices.Values([]string{"x", "unknown", "a", "x"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "x"}, marked)
	assert.Equal(t, before.Counter+1, versionOf(table).Counter, "one change")
	for name, want := range map[string]bool{"a": true, "b": false, "x": true} {
		c, _ := table.Get(name)
		assert.Equal(t, want, c.Order, name)
		assert.Equal(t, 1, c.WriteQueues, "the rest stays")
	}
	changed, _ := table.ChangedSince(before.Counter)
	assert.Len(t, changed, 2)
	marked, err = table.MarkOrdered(t0, slices.Values([]string{"a", "x"}))
	require.NoError(t, err)
	assert.Empty(t, marked, "marked already")
	c, _ := open(t, file(path)).Get("a")
	assert.True(t, c.Order, "it is kept")
}

func TestOrderThatCannotBeSavedIsNotMarked(t *testing.T) {
	dir := t.TempDir()
	table := open(t, file(filepath.Join(dir, "sub", "topics.json")))
	_, err := table.Put(t0, config("a", 1))
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub"), nil, 0o644))
	marked, err := table.MarkOrdered(t0, slices.Values([]string{"a"}))
	assert.Error(t, err)
	assert.Empty(t, marked)
	c, _ := table.Get("a")
	assert.False(t, c.Order)
}
