package remoting

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"

	"github.com/pocketmq/pocketmq/protocol"
)

// MaxFrame is the most bytes of a frame, its length word included.
// Java: com.rocketmq.remoting.frameMaxLength.
const MaxFrame = 16 << 20

// maxHeader is the most bytes of a header; that of a message is hardly larger
// than its properties, 32 KiB.
//
// Differs: in RocketMQ a header may be as large as a frame.
const maxHeader = 1 << 20

// Version is the version that our frames bear. Java: MQVersion.CURRENT_VERSION.
const Version = protocol.ClientVersion

// Bits of Frame.Flag.
const (
	FlagResponse = 1 // the frame answers the request with its Opaque
	FlagOneway   = 2 // nobody waits for an answer
)

// Serialize is the form of a frame's header. Java: SerializeType.
type Serialize byte

const (
	JSON   Serialize = 0
	Binary Serialize = 1 // Java: ROCKETMQ
)

// ErrBadFrame is matched by the errors of frames that cannot be understood.
var ErrBadFrame = errors.New("bad remoting frame")

func badFrame(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadFrame, fmt.Sprintf(format, args...))
}

// Frame is one request or response. Java: RemotingCommand.
type Frame struct {
	Code      int32 // of the request, or of the answer when FlagResponse is set
	Language  Language
	Version   int32 // of the sender
	Opaque    int32 // pairs a response with its request
	Flag      int32
	Remark    string
	Ext       Fields
	Body      []byte // nil when there is none
	Serialize Serialize

	// parts go over the wire in place of Body when there are any, one behind the
	// other. They are for reading.
	parts [][]byte
	// bodies bounds what is made of bodies that are read; nil: nothing does.
	bodies *bodies
}

// Response reports whether the frame is one.
func (f *Frame) Response() bool { return f.Flag&FlagResponse != 0 }

// Oneway reports whether nobody waits for an answer.
func (f *Frame) Oneway() bool { return f.Flag&FlagOneway != 0 }

// Field is one of a frame's named texts.
type Field struct{ Name, Value string }

// Fields are the named texts of a frame. Java: extFields.
type Fields []Field

// Get returns the value of a field; of several with one name the last counts.
func (f Fields) Get(name string) (value string, ok bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if f[i].Name == name {
			return f[i].Value, true
		}
	}
	return "", false
}

// size is about how many bytes the frame has.
func (f *Frame) size() int {
	n := 64 + len(f.Remark) + len(f.Body)
	for _, x := range f.Ext {
		n += len(x.Name) + len(x.Value) + 6
	}
	for _, p := range f.parts {
		n += len(p)
	}
	return n
}

// Append appends the frame as it goes over the wire. It fails for one that is
// larger than MaxFrame, or that its header form cannot express.
func (f *Frame) Append(dst []byte) ([]byte, error) {
	if f.parts == nil {
		dst, err := f.AppendHead(dst, len(f.Body))
		if err != nil {
			return dst, err
		}
		return append(dst, f.Body...), nil
	}
	size := 0
	for _, p := range f.parts {
		size += len(p)
	}
	dst, err := f.AppendHead(dst, size)
	if err != nil {
		return dst, err
	}
	for _, p := range f.parts {
		dst = append(dst, p...)
	}
	return dst, nil
}

// AppendHead appends everything but the body, which is to have the given size
// and goes over the wire next.
func (f *Frame) AppendHead(dst []byte, body int) ([]byte, error) {
	start := len(dst)
	out := append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	switch f.Serialize {
	case JSON:
		out = f.appendJSON(out)
	case Binary:
		var err error
		if out, err = f.appendBinary(out); err != nil {
			return dst, err
		}
	default:
		return dst, badFrame("unknown form of header %d", f.Serialize)
	}
	head := len(out) - start - 8
	if total := 8 + head + body; total > MaxFrame || head >= 1<<24 {
		return dst, badFrame("it would have %d bytes, at most %d are allowed", total, MaxFrame)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(4+head+body))
	binary.BigEndian.PutUint32(out[start+4:], uint32(f.Serialize)<<24|uint32(head))
	return out, nil
}

// Length checks the first four bytes of a frame and returns how many follow.
func Length(word [4]byte) (int, error) {
	n := binary.BigEndian.Uint32(word[:])
	if n < 4 || n > MaxFrame-4 {
		return 0, badFrame("a length of %d bytes, 4 to %d are allowed", int32(n), MaxFrame-4)
	}
	return int(n), nil
}

// splitHead checks the word behind the length of a frame, of which size bytes
// follow the length: the form of the header, and how long that is.
func splitHead(b []byte, size int) (form Serialize, head int, err error) {
	word := binary.BigEndian.Uint32(b)
	form, head = Serialize(word>>24), int(word&0xFFFFFF)
	switch {
	case head > size-4:
		err = badFrame("a header of %d bytes in a frame of %d", head, size)
	case head > maxHeader:
		err = badFrame("a header of %d bytes, at most %d are allowed", head, maxHeader)
	case form != JSON && form != Binary:
		err = badFrame("unknown form of header %d", form)
	}
	return form, head, err
}

// Parse reads a frame without its length word. Body is a part of b; everything
// else is copied.
func Parse(b []byte) (*Frame, error) {
	f := new(Frame)
	if err := f.parse(b, false); err != nil {
		return nil, err
	}
	return f, nil
}

// parse is Parse into an empty frame. With own set nobody else has b, nor ever
// writes what lies before the body: the texts of a small frame are then parts of b,
// too.
func (f *Frame) parse(b []byte, own bool) error {
	if len(b) < 4 {
		return badFrame("%d bytes", len(b))
	}
	form, head, err := splitHead(b, len(b))
	if err != nil {
		return err
	}
	f.Serialize = form
	var text string
	if own && len(b) <= smallFrame {
		text = unsafe.String(unsafe.SliceData(b[4:]), head)
	} else {
		text = string(b[4 : 4+head])
	}
	switch form {
	case JSON:
		err = f.parseJSON(text)
	case Binary:
		err = f.parseBinary(text)
	}
	if err != nil {
		return err
	}
	if body := b[4+head:]; len(body) > 0 {
		f.Body = body
	}
	if head > smallFrame {
		f.own()
	}
	return nil
}

// own copies the texts of a frame, so that one that is kept does not keep the
// whole header.
func (f *Frame) own() {
	f.Remark = strings.Clone(f.Remark)
	for i, x := range f.Ext {
		f.Ext[i] = Field{strings.Clone(x.Name), strings.Clone(x.Value)}
	}
}

// Read reads one frame. Nothing larger than the bytes that have arrived is
// allocated beyond the first piece, however long the frame claims to be.
// io.EOF when r ends before a frame begins, io.ErrUnexpectedEOF within one.
func Read(r io.Reader) (*Frame, error) {
	var word [4]byte
	if _, err := io.ReadFull(r, word[:]); err != nil {
		return nil, err
	}
	n, err := Length(word)
	if err != nil {
		return nil, err
	}
	b, err := readPieces(r, n, firstPiece, func() error { return nil })
	if err != nil {
		return nil, err
	}
	return Parse(b)
}

// piece is what is allocated for a frame at most before more of it has arrived.
const piece = 64 << 10

// readPieces reads n bytes into a buffer that grows with what arrives, from
// first bytes. large is asked when a piece has arrived and more is to come.
func readPieces(r io.Reader, n, first int, large func() error) ([]byte, error) {
	b := make([]byte, min(n, first))
	for at := 0; ; {
		m, err := io.ReadFull(r, b[at:])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
		if at += m; at == n {
			return b, nil
		}
		if at == piece {
			if err := large(); err != nil {
				return nil, err
			}
		}
		larger := make([]byte, min(n, 4*len(b)))
		copy(larger, b)
		b = larger
	}
}
