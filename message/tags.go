package message

import "unicode/utf8"

// TagHash returns the hash by which a broker filters tags: Java's
// String.hashCode, 31-based over UTF-16 code units, wrapping at 32 bits. The
// hash of "" is 0, as is the code of a message without a tag. A byte that is
// not UTF-8 counts as U+FFFD. It does not allocate.
func TagHash(tag string) int32 {
	var h uint32
	for i := 0; i < len(tag); i++ {
		if tag[i] >= utf8.RuneSelf {
			return int32(hashRunes(h, tag[i:]))
		}
		h = 31*h + uint32(tag[i])
	}
	return int32(h)
}

// hashRunes goes on with the hash h over a text that is not all ASCII.
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

// tagHashBytes is TagHash on bytes.
func tagHashBytes(tag []byte) int32 {
	var h uint32
	for i, c := range tag {
		if c >= utf8.RuneSelf {
			return int32(hashRunes(h, string(tag[i:])))
		}
		h = 31*h + uint32(c)
	}
	return int32(h)
}
