package message

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestValidateNamesEachFaultAndItsRemedy(t *testing.T) {
	props := func(name, value string) Message { return Message{Properties: map[string]string{name: value}} }
	for _, c := range []struct {
		m    Message
		want string
	}{
		{props("KEYS", "k"), `illegal message: property "KEYS" is reserved; use Message.Keys`},
		{props("TAGS", "k"), `illegal message: property "TAGS" is reserved; use Message.Tag`},
		{props("DELAY", "3"), `illegal message: property "DELAY" is reserved; use Message.DelayLevel`},
		{props("WAIT", "false"), `illegal message: property "WAIT" is reserved; use Message.NoWait`},
		{props("__SHARDINGKEY", "s"), `illegal message: property "__SHARDINGKEY" is reserved; use Message.ShardingKey`},
		{props("TIMER_DELAY_MS", "5"), `illegal message: property "TIMER_DELAY_MS" is reserved; use Message.Delay`},
		{props("TIMER_DELIVER_MS", "5"), `illegal message: property "TIMER_DELIVER_MS" is reserved; use Message.DeliverAt`},
		{props("POP_CK", "5"), `illegal message: property "POP_CK" is reserved; choose another name`},
		{props("", "v"), `illegal message: a property without a name; give it one`},
		{props("region", ""), `illegal message: property "region" is empty; leave it out`},
		{props("a\x01b", "v"), `illegal message: the name of property "a\x01b" contains the control character 0x01, which separates properties; encode it`},
		{props("a", "v\x02"), `illegal message: the value of property "a" contains the control character 0x02, which separates properties; encode it`},
		{props("a", "\xff"), `illegal message: the value of property "a" is not UTF-8; encode binary values, for example as base64`},
		{Message{Keys: []string{"ok", "a b"}}, `illegal message: key 1, "a b", contains a blank, which separates keys; make it two keys or use another character`},
		{Message{Keys: []string{""}}, `illegal message: key 0 is empty; leave it out`},
		{Message{Keys: []string{"\x01"}}, `illegal message: key 0, "\x01", contains the control character 0x01, which separates properties; encode it`},
		{Message{Tag: "a\x02"}, `illegal message: tag "a\x02" contains the control character 0x02, which separates properties; encode it`},
		{Message{ShardingKey: "\x01"}, `illegal message: sharding key "\x01" contains the control character 0x01, which separates properties; encode it`},
		{Message{DelayLevel: 1, Delay: time.Second}, `illegal message: more than one of DelayLevel, Delay and DeliverAt is set; set one`},
		{Message{DelayLevel: 1, DeliverAt: time.Unix(1, 0)}, `illegal message: more than one of DelayLevel, Delay and DeliverAt is set; set one`},
		{Message{DelayLevel: -1}, `illegal message: DelayLevel is -1; levels start at 1, 0 means no delay`},
		{Message{Delay: -time.Second}, `illegal message: Delay is -1s; it must not be negative, 0 means no delay`},
	} {
		err := c.m.Validate()
		assert.EqualError(t, err, c.want)
		assert.ErrorIs(t, err, ErrIllegalMessage)
	}
}

func TestValidateListsFaultsInAFixedOrderUpToALimit(t *testing.T) {
	m := Message{Properties: map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": ""}}
	for range 5 {
		assert.EqualError(t, m.Validate(), `illegal message: property "a" is empty; leave it out; property "b" is empty; leave it out; `+
			`property "c" is empty; leave it out; property "d" is empty; leave it out; property "e" is empty; leave it out; and 2 more`)
	}
}

func TestPropertiesMayFillTheTextToTheLastByte(t *testing.T) {
	id := strings.Repeat("F", 32)
	fill := func(n int) *Message { return &Message{Properties: map[string]string{"p": strings.Repeat("v", n)}} }
	room := MaxPropertiesLength - len(fill(0).AppendProperties(nil, id))

	m := fill(room)
	require.NoError(t, m.Validate())
	_, err := AppendRecord(nil, &Record{Topic: "T", Properties: string(m.AppendProperties(nil, id))})
	require.NoError(t, err)

	m = fill(room + 1)
	assert.EqualError(t, m.Validate(), "illegal message: properties, keys and tag take 32768 bytes as text, maximum 32767; move content to the body")
	_, err = AppendRecord(nil, &Record{Topic: "T", Properties: string(m.AppendProperties(nil, id))})
	assert.ErrorIs(t, err, ErrIllegalMessage)
}

func TestAValidMessageCostsNoAllocation(t *testing.T) {
	m := &Message{
		Topic: "orders", Tag: "标签", Keys: []string{"a", "b"}, ShardingKey: "s", DelayLevel: 30,
		Properties: map[string]string{"line": "one\ntwo\ttab", "blank": " "},
	}
	require.NoError(t, m.Validate())
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = m.Validate() }))
}
