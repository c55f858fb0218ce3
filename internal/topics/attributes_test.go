package topics

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/protocol"
)

func TestAttributesOfATopicAreChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	table := open(t, file(path))
	put := func(changes map[string]string) (bool, error) {
		c := config("T", 4)
		c.Attributes = protocol.AttributesOf(changes)
		return table.Put(t0, c)
	}
	have := func(want map[string]string) {
		t.Helper()
		for _, table := range []*Table{table, open(t, file(path))} { // and after a restart
			c, ok := table.Get("T")
			require.True(t, ok)
			assert.Equal(t, protocol.AttributesOf(want), c.Attributes)
		}
	}
	for code, changes := range map[protocol.Code][]map[string]string{
		protocol.SystemError: {
			{"-message.type": ""}, {"message.type": "FIFO"}, {"+unknown": "1"}, {"+message.type": "fifo"}, {"+queue.type": "BatchCQ"},
			{"+cleanup.policy": "COMPACTION"}, {"+reserve.time": "5"}, {"++message.type": "FIFO"}, {"+": ""},
		},
		protocol.InvalidParameter: {{"+message.type": "MIXED"}},
	} {
		for _, c := range changes {
			_, err := put(c)
			requireCode(t, code, err)
			_, ok := table.Get("T")
			assert.False(t, ok, "all or nothing")
		}
	}
	changed, err := put(map[string]string{"+message.type": "FIFO", "+queue.type": "SimpleCQ", "+cleanup.policy": "DELETE", "+reserve.time": "-1"})
	require.NoError(t, err)
	assert.True(t, changed)
	all := map[string]string{"message.type": "FIFO", "queue.type": "SimpleCQ", "cleanup.policy": "DELETE", "reserve.time": "-1"}
	have(all)
	changed, err = put(nil)
	require.NoError(t, err)
	assert.False(t, changed, "what is not named stays")
	changed, err = put(map[string]string{"+message.type": "FIFO"})
	require.NoError(t, err)
	assert.False(t, changed)
	changed, err = put(map[string]string{"+message.type": "DELAY", "-queue.type": ""})
	require.NoError(t, err)
	assert.True(t, changed)
	delete(all, "queue.type")
	all["message.type"] = "DELAY"
	have(all)
	_, err = put(map[string]string{"-queue.type": ""})
	requireCode(t, protocol.SystemError, err)
	_, err = table.Ensure(t0, config("T", 9))
	require.NoError(t, err)
	have(all)
}

func TestATopicOfSeveralTagsStaysOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	c := config("T", 4)
	c.MultiTag = true
	_, err := open(t, file(path)).Put(t0, c)
	require.NoError(t, err)
	got, _ := open(t, file(path)).Get("T")
	assert.Equal(t, c, got)
}
