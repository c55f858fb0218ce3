package message

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEncodePropertiesIsSortedAndComesBack(t *testing.T) {
	m := map[string]string{"b": "2", "a": "1", "TAGS": "x y"}
	text := EncodeProperties(m)
	assert.Equal(t, "TAGS\x01x y\x02a\x011\x02b\x012\x02", text)
	assert.Equal(t, m, DecodeProperties(text))
	assert.Equal(t, "", EncodeProperties(nil))
	assert.Nil(t, DecodeProperties(""))
}

func TestTheLastOfEqualNamesCounts(t *testing.T) {
	const text = "a\x011\x02b\x01x\x02a\x012\x02a\x01\x02" // the empty one does not count
	value, ok := Property(text, "a")
	assert.True(t, ok)
	assert.Equal(t, "2", value)
	raw, _ := PropertyBytes([]byte(text), "a")
	assert.Equal(t, "2", string(raw))
	assert.Equal(t, map[string]string{"a": "2", "b": "x"}, DecodeProperties(text))
}

func TestPropertiesStopsWhenTheLoopDoes(t *testing.T) {
	for name := range Properties("a\x011\x02b\x012\x02") {
		assert.Equal(t, "a", name)
		break
	}
	assert.Equal(t, map[string]string{"a": "1", "b": "2"}, maps.Collect(Properties("a\x011\x02b\x012")))
}

func TestLookingUpAPropertyDoesNotAllocate(t *testing.T) {
	text := "KEYS\x01k\x02TAGS\x01TagA\x02UNIQ_KEY\x01U\x02"
	raw := []byte(text)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		Property(text, PropUniqKey)
		PropertyBytes(raw, PropUniqKey)
	}))
}

func TestAFoundValueCannotGrowIntoTheText(t *testing.T) {
	raw := []byte("a\x011\x02b\x012\x02")
	value, _ := PropertyBytes(raw, "a")
	_ = append(value, "XXXX"...)
	assert.Equal(t, "a\x011\x02b\x012\x02", string(raw))
}

func TestAppendWithout(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"a\x011\x02b\x012\x02", "b\x012\x02"},
		{"b\x012\x02a\x011", "b\x012\x02"},
		{"b\x012", "b\x012\x02"},
		{"a\x011\x02a\x012\x02", ""},
		{"aa\x011\x02\x02a\x02c\x01a\x02", "aa\x011\x02c\x01a\x02"},
	} {
		assert.Equal(t, row.want, string(AppendWithout(nil, row.text, "a", "x")), "%q", row.text)
	}
	assert.Equal(t, "kept\x01\x02b\x012\x02", string(AppendWithout([]byte("kept\x01\x02"), "b\x012\x02")))
}
