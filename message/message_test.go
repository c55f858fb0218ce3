package message

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAppendPropertiesWritesUserPropertiesSortedThenFields(t *testing.T) {
	m := &Message{
		Tag: "TagA", Keys: []string{"k1", "k2"}, ShardingKey: "s", NoWait: true, DelayLevel: 3,
		Properties: map[string]string{"b": "2", "a": "1", "c": "3"},
	}
	want := "head" + "a\x011\x02b\x012\x02c\x013\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02__SHARDINGKEY\x01s\x02WAIT\x01false\x02DELAY\x013\x02UNIQ_KEY\x01U\x02"
	assert.Equal(t, want, string(m.AppendProperties([]byte("head"), "U")))
}

func TestAppendPropertiesSortsAnyNumber(t *testing.T) {
	m := &Message{Properties: map[string]string{}}
	want := ""
	for i := range 40 {
		name := fmt.Sprintf("p%02d", i)
		m.Properties[name] = "v"
		want += name + "\x01v\x02"
	}
	assert.Equal(t, want, string(m.AppendProperties(nil, "")))
}

func TestAnEmptyMessageHasNoProperties(t *testing.T) {
	assert.Empty(t, (&Message{}).AppendProperties(nil, ""))
}

func TestDelaysRoundUpToMilliseconds(t *testing.T) {
	text := func(m Message) string { return string(m.AppendProperties(nil, "")) }
	assert.Equal(t, "TIMER_DELAY_MS\x011\x02", text(Message{Delay: 1}))
	assert.Equal(t, "TIMER_DELAY_MS\x011000\x02", text(Message{Delay: time.Second}))
	assert.Equal(t, "TIMER_DELAY_MS\x011001\x02", text(Message{Delay: time.Second + 1}))
	assert.Equal(t, "TIMER_DELIVER_MS\x011700000000123\x02", text(Message{DeliverAt: time.UnixMilli(1700000000123)}))
	assert.Equal(t, "TIMER_DELIVER_MS\x011700000000124\x02", text(Message{DeliverAt: time.UnixMilli(1700000000123).Add(1)}))
}

func TestFieldsSizeIsWhatTheFieldsTake(t *testing.T) {
	for _, m := range []Message{
		{}, {Tag: "a"}, {Keys: []string{"a"}}, {Keys: []string{"a", "bc"}, ShardingKey: "x", NoWait: true},
		{DelayLevel: 18}, {Delay: time.Hour}, {DeliverAt: time.UnixMilli(-5)},
	} {
		assert.Equal(t, len(m.AppendProperties(nil, "")), m.fieldsSize(), "%+v", m)
	}
}

func TestAppendPropertiesDoesNotAllocate(t *testing.T) {
	m := &Message{Tag: "TagA", Keys: []string{"k1", "k2"}, Properties: map[string]string{"b": "2", "a": "1"}}
	dst := make([]byte, 0, 256)
	assert.Zero(t, testing.AllocsPerRun(100, func() { dst = m.AppendProperties(dst[:0], "U") }))
}
