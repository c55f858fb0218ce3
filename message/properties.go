package message

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"strings"
)

// MaxPropertiesLength is the most bytes that a sender's properties text may
// take: Java reads its length in a record as a signed 16-bit number. What brokers
// add to a message that they move may take it up to MaxStoredPropertiesLength.
const (
	MaxPropertiesLength       = 32767
	MaxStoredPropertiesLength = 65535
)

// The properties text is name, nameEnd, value, valueEnd, and so on. There is
// no escaping, so neither byte may occur in a name or a value.
const (
	nameEnd  = 0x01
	valueEnd = 0x02
)

// AppendProperty appends one property to a properties text. It checks
// nothing: Message.Validate does. Java: MessageDecoder.messageProperties2String.
func AppendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, nameEnd)
	dst = append(dst, value...)
	return append(dst, valueEnd)
}

func propertySize(name, value string) int { return len(name) + len(value) + 2 }

// EncodeProperties returns the properties text of m, sorted by name, so that
// equal maps give equal texts. It checks nothing.
func EncodeProperties(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	size := 0
	for name, value := range m {
		size += propertySize(name, value)
	}
	var b strings.Builder
	b.Grow(size)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(name)
		b.WriteByte(nameEnd)
		b.WriteString(m[name])
		b.WriteByte(valueEnd)
	}
	return b.String()
}

// Properties yields the properties of a text in the order written. A name
// that occurs twice is yielded twice; the last value counts. An entry without
// a separator, without a name, or without a value is skipped, and the end
// mark of the last entry may be missing, as in Java:
// MessageDecoder.string2messageProperties. The strings share text's memory.
func Properties(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for len(text) > 0 {
			var name, value string
			name, value, text = cutProperty(text)
			if value != "" && !yield(name, value) {
				return
			}
		}
	}
}

// cutProperty takes the first entry off text. value is empty exactly when the
// entry is to be skipped.
func cutProperty(text string) (name, value, rest string) {
	entry := text
	if i := strings.IndexByte(text, valueEnd); i >= 0 {
		entry, rest = text[:i], text[i+1:]
	}
	if i := strings.IndexByte(entry, nameEnd); i > 0 {
		return entry[:i], entry[i+1:], rest
	}
	return "", "", rest
}

// DecodeProperties returns the properties of a text as a map, nil when there
// is none. The strings share text's memory.
func DecodeProperties(text string) map[string]string {
	var m map[string]string
	for name, value := range Properties(text) {
		if m == nil {
			m = make(map[string]string)
		}
		m[name] = value
	}
	return m
}

// AppendWithout appends a properties text without the properties of some names.
// Its last entry has an end mark then, so that more may be appended. Java:
// MessageAccessor.clearProperty.
func AppendWithout(dst []byte, text string, names ...string) []byte {
	for len(text) > 0 {
		entry := text
		if i := strings.IndexByte(text, valueEnd); i >= 0 {
			entry, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		name, _, _ := strings.Cut(entry, string(rune(nameEnd)))
		if entry == "" || slices.Contains(names, name) {
			continue
		}
		dst = append(dst, entry...)
		dst = append(dst, valueEnd)
	}
	return dst
}

// Property returns the value of one property of a text, and whether it is
// there. It does not allocate; the value shares text's memory.
func Property(text, name string) (value string, ok bool) {
	if name == "" {
		return "", false
	}
	for len(text) > 0 {
		entry := text
		if i := strings.IndexByte(text, valueEnd); i >= 0 {
			entry, text = text[:i], text[i+1:]
		} else {
			text = ""
		}
		if len(entry) > len(name)+1 && entry[len(name)] == nameEnd && entry[:len(name)] == name {
			value, ok = entry[len(name)+1:], true
		}
	}
	if ok && strings.IndexByte(name, nameEnd) >= 0 {
		return "", false // the first separator ends the name, so no name contains one
	}
	return value, ok
}

// PropertyBytes is Property on bytes: the value is a part of text, its
// capacity ends with it.
func PropertyBytes(text []byte, name string) (value []byte, ok bool) {
	if name == "" {
		return nil, false
	}
	for len(text) > 0 {
		entry := text
		if i := bytes.IndexByte(text, valueEnd); i >= 0 {
			entry, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if len(entry) > len(name)+1 && entry[len(name)] == nameEnd && string(entry[:len(name)]) == name {
			value, ok = entry[len(name)+1:len(entry):len(entry)], true
		}
	}
	if ok && strings.IndexByte(name, nameEnd) >= 0 {
		return nil, false
	}
	return value, ok
}

// AppendCRC32Property appends the trailer that a broker with
// enabledAppendPropCRC puts at the end of the properties text: 20 bytes, the
// ten decimal digits least significant first.
// Java: MessageDecoder.createCrc32.
func AppendCRC32Property(dst []byte, crc uint32) []byte {
	dst = append(dst, PropCRC32...)
	dst = append(dst, nameEnd)
	for range 10 {
		dst = append(dst, byte('0'+crc%10))
		crc /= 10
	}
	return append(dst, valueEnd)
}
