package message

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPropertyOfAHandMadeExtAnswersFromTheFields(t *testing.T) {
	e := &Ext{Message: Message{Tag: "TagA", Keys: []string{"a", "b"}, ShardingKey: "s", NoWait: true, DelayLevel: 3, Properties: map[string]string{"p": "v"}}}
	for name, want := range map[string]string{
		PropTags: "TagA", PropKeys: "a b", PropShardingKey: "s", PropWait: "false", PropDelay: "3", "p": "v", "q": "", "": "",
	} {
		assert.Equal(t, want, e.Property(name), name)
	}
	none := new(Ext)
	for _, name := range []string{PropTags, PropKeys, PropWait, PropDelay, "p"} {
		assert.Empty(t, none.Property(name), name)
	}
}
