package consume

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/internal/statefile"
	"github.com/pocketmq/pocketmq/message"
	"github.com/pocketmq/pocketmq/protocol"
)

func TestOffsetsAreReadInEachOfRocketMQsForms(t *testing.T) {
	want := map[message.Queue]int64{queueOf("a", 0): 12, queueOf("b", 3): 0}
	for name, text := range map[string]string{
		"ours":         string(encodeOffsets(want)),
		"Java":         `{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:12,{"brokerName":"b","queueId":3,"topic":"orders"}:0}}`,
		"Java, pretty": "{\n\t\"offsetTable\":{{\n\t\t\t\"brokerName\":\"a\",\n\t\t\t\"queueId\":0,\n\t\t\t\"topic\":\"orders\"\n\t\t}:12,{\"topic\":\"orders\",\"brokerName\":\"b\",\"queueId\":3}:0\n\t}\n}",
		"Go":           `{"offsetTable":{"{\"topic\":\"orders\",\"brokerName\":\"a\",\"queueId\":0}":12,"{\"topic\":\"orders\",\"brokerName\":\"b\",\"queueId\":3}":0}}`,
	} {
		got, err := decodeOffsets([]byte(text))
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	empty, err := decodeOffsets(encodeOffsets(nil))
	require.NoError(t, err)
	assert.Empty(t, empty)
	for _, bad := range []string{"", "{}", `{"offsetTable":{}`, `{"offsetTable":{}}x`, `{"offsetTable":{{"brokerName":"a"}:1}}`, `{"offsetTable":{"x":1}}`,
		`{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:-1}}`, `{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:1 {"brokerName":"a","queueId":1,"topic":"t"}:1}}`} {
		_, err := decodeOffsets([]byte(bad))
		assert.Error(t, err, bad)
	}
}

func FuzzDecodeOffsets(f *testing.F) {
	f.Add(encodeOffsets(map[message.Queue]int64{{Topic: "t", BrokerName: "b", QueueID: 1}: 7}))
	f.Add([]byte(`{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:12}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		offsets, err := decodeOffsets(data)
		if err != nil {
			return
		}
		again, err := decodeOffsets(encodeOffsets(offsets))
		require.NoError(t, err)
		assert.Equal(t, offsets, again)
	})
}

func TestLocalOffsetsSurviveAndADamagedFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c1", "g", "offsets.json")
	l, err := openLocalOffsets(path)
	require.NoError(t, err)
	require.NoError(t, l.save())
	assert.NoFileExists(t, path, "nothing to save")
	l.put(queueOf("a", 0), 5)
	require.NoError(t, l.save())
	l, err = openLocalOffsets(path)
	require.NoError(t, err)
	offset, found := l.get(queueOf("a", 0))
	assert.True(t, found)
	assert.EqualValues(t, 5, offset)

	require.NoError(t, os.WriteFile(path, []byte(`{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"orders"}:9}}`), 0o644))
	l, err = openLocalOffsets(path)
	require.NoError(t, err)
	offset, _ = l.get(queueOf("a", 0))
	assert.EqualValues(t, 9, offset, "RocketMQ's own file")

	require.NoError(t, os.WriteFile(path, []byte(`{"offsetTable":{{"broker`), 0o644))
	_, err = openLocalOffsets(path)
	assert.ErrorIs(t, err, statefile.ErrDamaged)
	assert.ErrorContains(t, err, path)
}

func broadcasting(path string) func(*Config) {
	return func(c *Config) { c.Model, c.OffsetFile = protocol.Broadcasting, path }
}

func TestABroadcastingMemberGetsEveryQueueAndKeepsItsOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 3)
		w.send(queueOf("a", 0), "before")
		dir := t.TempDir()
		in := map[string]*inbox{"c1": {}, "c2": {fail: func(m *message.Ext) error { return errors.New("always") }}}
		engines := make(map[string]*Engine)
		for id := range in {
			e, _ := w.member(id, in[id], broadcasting(filepath.Join(dir, id)))
			engines[id] = e
			require.NoError(t, e.Start(t.Context()))
		}
		for i := range 3 {
			w.send(queueOf("a", i), "x")
		}
		time.Sleep(time.Hour)
		for id, e := range engines {
			assert.Len(t, e.Assignment(), 3, id)
			assert.Equal(t, []string{"x", "x", "x"}, in[id].bodies(), "%s: once each, also those that failed; what was before is not of the group", id)
			assert.Equal(t, protocol.Broadcasting, e.ConsumerData().Model)
			assert.Empty(t, e.Status().Idle)
		}
		assert.EqualValues(t, 3, engines["c2"].Status().Failed)
		assert.Zero(t, w.calls("a", "GetConsumerList"))
		assert.Zero(t, w.calls("a", "UpdateConsumerOffset"))
		assert.EqualValues(t, -1, w.committed(queueOf("a", 0)), "brokers keep nothing")
		for _, e := range engines {
			require.NoError(t, e.Shutdown(t.Context()))
		}

		w.send(queueOf("a", 1), "meanwhile")
		e, _ := w.member("c1", in["c1"], broadcasting(filepath.Join(dir, "c1")))
		start(t, e)
		synctest.Wait()
		assert.Equal(t, []string{"meanwhile", "x", "x", "x"}, in["c1"].bodies(), "the file tells where to go on")
		forgetful, _ := w.member("c1", in["c2"], broadcasting(""))
		start(t, forgetful)
		synctest.Wait()
		assert.Len(t, in["c2"].bodies(), 3, "without a file From counts")
	})
}

func TestABroadcastersStartOffsetSurvivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		w.send(queueOf("a", 0), "before")
		path := filepath.Join(t.TempDir(), "offsets.json")
		e, _ := w.member("c1", new(inbox), broadcasting(path))
		require.NoError(t, e.Start(t.Context()))
		l, err := openLocalOffsets(path) // as after a crash
		require.NoError(t, err)
		offset, found := l.get(queueOf("a", 0))
		assert.True(t, found)
		assert.EqualValues(t, 1, offset)
		require.NoError(t, e.Close())
	})
}

func TestABroadcasterWhoseFileCannotBeWrittenDoesNotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.topic(testTopic, "a", 1)
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, nil, 0o644))
		e, _ := w.member("c1", new(inbox), broadcasting(filepath.Join(file, "offsets.json")))
		err := e.Start(t.Context())
		assert.ErrorContains(t, err, file)
		require.NoError(t, e.Close())
	})
}

// The table of computePullFromWhere for a broadcasting member: its own offset
// counts, also 0; otherwise From decides, without the broker's 0.
func TestWhereABroadcasterBegins(t *testing.T) {
	for name, c := range map[string]struct {
		from  protocol.ConsumeFrom
		local int64 // -1 = none
		want  int64
	}{
		"last, none":   {protocol.ConsumeFromLast, -1, 12},
		"first, none":  {protocol.ConsumeFromFirst, -1, 4},
		"time, none":   {protocol.ConsumeFromTime, -1, 8},
		"last, known":  {protocol.ConsumeFromLast, 9, 9},
		"first, known": {protocol.ConsumeFromFirst, 9, 9},
		"time, known":  {protocol.ConsumeFromTime, 9, 9},
		"last, 0":      {protocol.ConsumeFromLast, 0, 4}, // out of range: the broker's minimum
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.topic(testTopic, "a", 1)
				q := queueOf("a", 0)
				w.change(func() { w.brokers["a"].queues[q].min = 4 })
				w.send(q, numbered(4, 8)...)
				time.Sleep(time.Second)
				since := time.Now()
				w.send(q, numbered(8, 12)...)
				path := filepath.Join(t.TempDir(), "offsets.json")
				if c.local >= 0 {
					l, err := openLocalOffsets(path)
					require.NoError(t, err)
					l.put(q, c.local)
					require.NoError(t, l.save())
				}
				in := new(inbox)
				e, _ := w.member("c1", in, func(cfg *Config) {
					broadcasting(path)(cfg)
					cfg.From, cfg.FromTime = c.from, since
				})
				w.change(func() { w.brokers["a"].down = true })
				time.AfterFunc(1500*time.Millisecond, func() { w.change(func() { w.brokers["a"].down = false }) })
				start(t, e) // tries again until the broker answers
				w.send(q, "m12")
				synctest.Wait()
				got := in.all()
				require.NotEmpty(t, got)
				first := got[0].offset
				for _, d := range got {
					first = min(first, d.offset)
				}
				assert.Equal(t, c.want, first)
				assert.Len(t, got, 13-int(c.want))
			})
		})
	}
}

func TestCP05ABroadcasterKeepsTheOffsetsOfABrokerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.topic(testTopic, "a", 1)
		w.topic(testTopic, "b", 1)
		away := queueOf("b", 0)
		w.send(away, "before")
		in := new(inbox)
		path := filepath.Join(t.TempDir(), "offsets.json")
		e, c := w.member("c1", in, broadcasting(path))
		start(t, e)
		w.send(away, "first")
		time.Sleep(10 * time.Second)
		gone := func(down bool) {
			w.change(func() {
				w.brokers["b"].down = down
				if down {
					delete(w.topics[testTopic], "b")
				} else {
					w.topics[testTopic]["b"] = 1
				}
			})
			_, _, err := c.Refresh(t.Context(), testTopic)
			require.NoError(t, err)
			synctest.Wait()
		}
		gone(true)
		assert.Equal(t, []message.Queue{queueOf("a", 0)}, e.Assignment())
		l, err := openLocalOffsets(path)
		require.NoError(t, err)
		offset, found := l.get(away)
		assert.True(t, found)
		assert.EqualValues(t, 2, offset, "kept while its broker is away")
		time.Sleep(time.Hour)
		w.send(away, "second") // before the queue is taken again
		gone(false)
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"first", "second"}, in.bodies(), "delivered once")
	})
}
