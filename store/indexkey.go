package store

import (
	"strings"
	"unicode/utf8"

	"github.com/pocketmq/pocketmq/message"
)

// A key is indexed by the hash of "topic#key". Hashes only choose what is looked
// at: who asks for a key compares the record itself.

// keySeparator stands between the keys in the KEYS property of a record.
const keySeparator = " "

// topicHash is the hash of "topic#", with which the hash of each key begins.
func topicHash(topic string) uint32 { return hashOn(hashOn(0, topic), "#") }

// keyHash goes on from a topicHash and returns what a key is indexed by, which
// is never negative as a signed number. Java: IndexService.buildKey and
// IndexFile.indexKeyHashMethod.
func keyHash(topic uint32, key string) uint32 {
	h := int32(hashOn(topic, key))
	if h < 0 {
		h = -h
	}
	return uint32(max(h, 0)) // the smallest number has no absolute value
}

// hashOn goes on with Java's String.hashCode over a text: 31-based over its
// UTF-16 code units.
func hashOn(h uint32, s string) uint32 {
	// Four at a time: one multiplication would have to wait for the other.
	for len(s) >= 4 && (s[0]|s[1]|s[2]|s[3]) < utf8.RuneSelf {
		h = h*(31*31*31*31) + uint32(s[0])*(31*31*31) + uint32(s[1])*(31*31) + uint32(s[2])*31 + uint32(s[3])
		s = s[4:]
	}
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return hashRunes(h, s[i:])
		}
		h = 31*h + uint32(s[i])
	}
	return h
}

func hashRunes(h uint32, s string) uint32 {
	for _, r := range s {
		if r > 0xFFFF {
			r -= 0x10000
			h = 31*h + uint32(0xD800+r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + uint32(r)
	}
	return h
}

// indexed is what a dispatcher takes from the properties of a record.
type indexed struct {
	tags       int64  // hash of the tag; see message.View.TagsCode
	uniq, keys string // UNIQ_KEY and KEYS
}

// indexedOf reads the properties in one pass. The last of two properties of one
// name counts.
func indexedOf(properties string) (x indexed) {
	for name, value := range message.Properties(properties) {
		switch name {
		case message.PropTags:
			x.tags = int64(message.TagHash(value))
		case message.PropUniqKey:
			x.uniq = value
		case message.PropKeys:
			x.keys = value
		}
	}
	return x
}

// appendHashes appends the hash of each key. topic is a topicHash. Java:
// IndexService.buildIndex.
func (x indexed) appendHashes(dst []uint32, topic uint32) []uint32 {
	if x.uniq != "" {
		dst = append(dst, keyHash(topic, x.uniq))
	}
	for rest := x.keys; rest != ""; {
		var key string
		key, rest, _ = strings.Cut(rest, keySeparator)
		if key != "" {
			dst = append(dst, keyHash(topic, key))
		}
	}
	return dst
}

// has reports whether key is one of the keys.
func (x indexed) has(key string) bool {
	if key == "" {
		return false
	}
	if x.uniq == key {
		return true
	}
	for one := range strings.SplitSeq(x.keys, keySeparator) {
		if one == key {
			return true
		}
	}
	return false
}

// sortByHash sorts entries by hash and keeps the order of those of one hash. It
// uses spare, which is as long, and returns the one of both that holds the
// result.
func sortByHash(entries, spare []keyEntry) []keyEntry {
	const digit = 11 // bits; a hash has 31
	for shift := 0; shift < 32; shift += digit {
		var counts [1 << digit]int32
		for i := range entries {
			counts[entries[i].hash>>shift&(1<<digit-1)]++
		}
		sum := int32(0)
		for i, n := range counts {
			counts[i] = sum
			sum += n
		}
		for i := range entries {
			d := entries[i].hash >> shift & (1<<digit - 1)
			spare[counts[d]] = entries[i]
			counts[d]++
		}
		entries, spare = spare, entries
	}
	return entries
}
