package store

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pocketmq/pocketmq/message"
)

// The rows were made by RocketMQ's IndexFile.indexKeyHashMethod.
func TestKeyHashIsRocketMQs(t *testing.T) {
	for _, row := range []struct {
		topic, key string
		hash       uint32
	}{
		{"T", "k1", 2539445},
		{"TopicTest", "k1", 2746024},
		{"TopicTest", "0A010203123418B4AAC20123456789AB", 893093879},
		{"", "", 35},
		{"T", "polygenelubricants", 1620724593},
		{"T", "Aa", 2538191},
		{"T", "BB", 2538191},
		{"T", "订单😀", 770612379},
	} {
		assert.Equal(t, row.hash, keyHash(topicHash(row.topic), row.key), "%s#%s", row.topic, row.key)
	}
	for text, hash := range map[string]uint32{"": 0, "#": 35, "polygenelubricants": 0, "DESIGNING WORKHOUSES": 0} {
		assert.Equal(t, hash, keyHash(0, text), text)
	}
}

func TestKeyHashGoesOnFromAnyPrefix(t *testing.T) {
	rng := newSeed(t)
	letters := []rune("abcdefgh0123456789-_é订😀\u0000\uffff")
	for range 2000 {
		text := make([]rune, rng.IntN(40))
		for i := range text {
			text[i] = letters[rng.IntN(len(letters))]
		}
		cut := rng.IntN(len(text) + 1)
		a, b := string(text[:cut]), string(text[cut:])
		require.Equal(t, uint32(message.TagHash(a+b)), hashOn(hashOn(0, a), b), "%q and %q", a, b)
	}
	assert.Equal(t, uint32(message.TagHash("abcd\xffe")), hashOn(0, "abcd\xffe"), "no UTF-8")
}

func TestKeysOfARecordAreThoseOfItsProperties(t *testing.T) {
	text := func(pairs ...string) string {
		var b []byte
		for i := 0; i < len(pairs); i += 2 {
			b = message.AppendProperty(b, pairs[i], pairs[i+1])
		}
		return string(b)
	}
	for _, properties := range []string{
		"", text("a", "b"), text("TAGS", "t", "KEYS", "a b", "UNIQ_KEY", "u"), text("KEYS", "a", "KEYS", "b c"),
		text("UNIQ_KEY", "u", "UNIQ_KEY", "", "TAGS", "x", "TAGS", "y"), "KEYS\x01unfinished", "\x02\x02KEYS\x02\x01\x02",
	} {
		x := indexedOf(properties)
		rec, err := message.AppendRecord(nil, &message.Record{Properties: properties, BornHost: testHost, StoreHost: testHost})
		require.NoError(t, err)
		assert.Equal(t, message.View(rec).TagsCode(), x.tags, "%q", properties)
		uniq, _ := message.Property(properties, message.PropUniqKey)
		keys, _ := message.Property(properties, message.PropKeys)
		assert.Equal(t, uniq, x.uniq, "%q", properties)
		assert.Equal(t, keys, x.keys, "%q", properties)
	}
	prefix := topicHash("T")
	assert.Equal(t, []uint32{keyHash(prefix, "u"), keyHash(prefix, "a"), keyHash(prefix, "b")},
		indexed{uniq: "u", keys: " a  b "}.appendHashes(nil, prefix))
}

func TestSortByHashKeepsTheOrderOfEqualHashes(t *testing.T) {
	rng := newSeed(t)
	for _, n := range []int{0, 1, 2, 340, 5000} {
		for _, distinct := range []uint32{3, 1 << 12, 1<<31 - 1} {
			entries := make([]keyEntry, n)
			for i := range entries {
				entries[i] = keyEntry{hash: rng.Uint32N(distinct), position: uint32(i), time: rand.Uint32()}
			}
			want := slices.Clone(entries)
			slices.SortStableFunc(want, func(a, b keyEntry) int { return int(int64(a.hash) - int64(b.hash)) })
			assert.Equal(t, want, sortByHash(entries, make([]keyEntry, n)))
		}
	}
}
