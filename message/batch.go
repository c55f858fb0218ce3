package message

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// batchHeader is what an item of a batch body takes besides its body and
// properties: size, magic, checksum, flag, body length, properties length.
const batchHeader = 5*4 + 2

// AppendBatch appends one message to the body of a batch. properties is an
// encoded text of at most MaxPropertiesLength bytes, as Message.Validate
// grants; a longer one makes an item that BatchItems refuses.
// Java: MessageDecoder.encodeMessage.
func AppendBatch[T string | []byte](dst []byte, flag int32, body []byte, properties T) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(batchHeader+len(body)+len(properties)))
	dst = be.AppendUint64(dst, 0) // magic and checksum are not used
	dst = be.AppendUint32(dst, uint32(flag))
	dst = be.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, body...)
	dst = be.AppendUint16(dst, uint16(min(len(properties), 0xFFFF)))
	return append(dst, properties...)
}

// BatchItem is one message of a batch body. Its slices are parts of that
// body, their capacities end with them.
type BatchItem struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// BatchItems yields the messages of a batch body. At the first item that is
// cut off or does not fit together it yields an error of kind
// ErrIllegalMessage that names it, and ends.
// Java: MessageDecoder.decodeMessages, MessageExtEncoder.encode.
func BatchItems(body []byte) iter.Seq2[BatchItem, error] {
	return func(yield func(BatchItem, error) bool) {
		rest := body
		for i := 0; len(rest) > 0; i++ {
			item, n, err := cutBatchItem(rest)
			if err != nil {
				yield(BatchItem{}, fmt.Errorf("%w: message %d of the batch: %s", ErrIllegalMessage, i, err))
				return
			}
			if !yield(item, nil) {
				return
			}
			rest = rest[n:]
		}
	}
}

// CountBatch checks a whole batch body and returns the number of messages in
// it. An empty body holds none.
func CountBatch(body []byte) (int, error) {
	n := 0
	for _, err := range BatchItems(body) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// cutBatchItem reads the item at the start of b, which takes n bytes.
func cutBatchItem(b []byte) (item BatchItem, n int, err error) {
	be := binary.BigEndian
	if len(b) < batchHeader {
		return item, 0, fmt.Errorf("%d bytes left, the smallest takes %d", len(b), batchHeader)
	}
	size := int64(int32(be.Uint32(b)))
	if size < batchHeader || size > int64(len(b)) {
		return item, 0, fmt.Errorf("it claims %d bytes, %d are left", size, len(b))
	}
	b = b[:size:size]
	item.Flag = int32(be.Uint32(b[12:]))
	bodyLen := int64(int32(be.Uint32(b[16:])))
	if bodyLen < 0 || bodyLen > size-batchHeader {
		return item, 0, fmt.Errorf("a body of %d bytes does not fit its %d bytes", bodyLen, size)
	}
	end := 20 + int(bodyLen)
	propsLen := int64(int16(be.Uint16(b[end:])))
	if propsLen != size-batchHeader-bodyLen {
		return item, 0, fmt.Errorf("properties of %d bytes do not end with its %d bytes", propsLen, size)
	}
	item.Body = b[20:end:end]
	item.Properties = b[end+2:]
	return item, int(size), nil
}
