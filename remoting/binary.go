package remoting

import (
	"encoding/binary"
	"math"
	"slices"
)

// binaryFixed is the size of a binary header without remark and fields.
const binaryFixed = 21

// appendBinary appends the header in binary form. Java:
// RocketMQSerializable.rocketMQProtocolEncode.
//
// Differs: a code that does not fit into 16 bits is refused; Java cuts it off.
func (f *Frame) appendBinary(dst []byte) ([]byte, error) {
	be := binary.BigEndian
	if f.Code != int32(int16(f.Code)) || f.Version != int32(int16(f.Version)) {
		return dst, badFrame("code %d or version %d does not fit into a binary header, send it as JSON", f.Code, f.Version)
	}
	dst = be.AppendUint16(dst, uint16(f.Code))
	dst = append(dst, byte(f.Language))
	dst = be.AppendUint16(dst, uint16(f.Version))
	dst = be.AppendUint32(dst, uint32(f.Opaque))
	dst = be.AppendUint32(dst, uint32(f.Flag))
	dst = be.AppendUint32(dst, uint32(len(f.Remark)))
	dst = append(dst, f.Remark...)
	size := 0
	for _, x := range f.Ext {
		if len(x.Name) > math.MaxInt16 {
			return dst, badFrame("the name of a field has %d bytes, at most %d are allowed", len(x.Name), math.MaxInt16)
		}
		size += 2 + len(x.Name) + 4 + len(x.Value)
	}
	dst = be.AppendUint32(dst, uint32(size))
	for _, x := range f.Ext {
		dst = be.AppendUint16(dst, uint16(len(x.Name)))
		dst = append(dst, x.Name...)
		dst = be.AppendUint32(dst, uint32(len(x.Value)))
		dst = append(dst, x.Value...)
	}
	return dst, nil
}

// parseBinary reads a header in binary form; its texts are parts of b. Java:
// RocketMQSerializable.rocketMQProtocolDecode. A value without bytes is "";
// Java reads null.
func (f *Frame) parseBinary(b string) error {
	if len(b) < binaryFixed {
		return badFrame("a binary header of %d bytes, at least %d are needed", len(b), binaryFixed)
	}
	r := binaryReader{b: b}
	f.Code = int32(int16(r.uint(2)))
	f.Language = languageAt(int64(r.uint(1)))
	f.Version = int32(int16(r.uint(2)))
	f.Opaque = int32(r.uint(4))
	f.Flag = int32(r.uint(4))
	f.Remark = r.text(r.uint(4))
	fields := binaryReader{b: r.text(r.uint(4)), bad: r.bad}
	if len(fields.b) > 0 {
		f.Ext = slices.Grow(f.Ext, usualFields)
	}
	for len(fields.b) > 0 && !fields.bad {
		if len(f.Ext) == maxFields {
			return badFrame("a binary header has more than %d fields", maxFields)
		}
		f.Ext = append(f.Ext, Field{Name: fields.text(fields.uint(2)), Value: fields.text(fields.uint(4))})
	}
	if fields.bad {
		return badFrame("a text reaches beyond the end of a binary header of %d bytes", len(b))
	}
	return nil
}

// binaryReader takes numbers and texts off b. Beyond its end everything is
// empty, and bad is set.
type binaryReader struct {
	b   string
	bad bool
}

func (r *binaryReader) uint(size uint32) (n uint32) {
	text := r.text(size)
	for i := range len(text) {
		n = n<<8 | uint32(text[i])
	}
	return n
}

func (r *binaryReader) text(size uint32) string {
	if uint64(size) > uint64(len(r.b)) {
		r.b, r.bad = "", true
		return ""
	}
	text := r.b[:size]
	r.b = r.b[size:]
	return text
}
