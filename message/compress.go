package message

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is a way to compress bodies. Java: CompressionType.
type Compression int

const (
	Zlib Compression = iota // RFC 1950; all that the official Go client inflates
	LZ4                     // the LZ4 frame format
	Zstd                    // Zstandard frames
)

// String returns Java's name: ZLIB, LZ4 or ZSTD.
func (t Compression) String() string {
	switch t {
	case Zlib:
		return "ZLIB"
	case LZ4:
		return "LZ4"
	case Zstd:
		return "ZSTD"
	}
	return fmt.Sprintf("Compression(%d)", int(t))
}

// flag returns the type's bits of a sysflag. Java: CompressionType.getCompressionFlag.
func (t Compression) flag() int32 {
	switch t {
	case LZ4:
		return 0x100
	case Zstd:
		return 0x200
	}
	return 0x300
}

// ParseCompression returns the type of that name, in letters of any case. The
// text of the error is the reference's. Java: CompressionType.of.
func ParseCompression(name string) (Compression, error) {
	for _, t := range []Compression{Zlib, LZ4, Zstd} {
		if strings.EqualFold(name, t.String()) {
			return t, nil
		}
	}
	return 0, &refusal{text: "Unsupported compress type name: " + name}
}

// CompressionOf returns how a body with that sysflag is compressed, if
// FlagCompressed says that it is. An unknown type is ErrBadRecord. Java:
// MessageSysFlag.getCompressionType, CompressionType.findByValue.
func CompressionOf(sysFlag int32) (Compression, error) {
	switch n := (sysFlag & FlagCompressionMask) >> 8; n {
	case 0, 3:
		return Zlib, nil
	case 1:
		return LZ4, nil
	case 2:
		return Zstd, nil
	default:
		return 0, &refusal{fmt.Sprintf("Unknown compress type value: %d", n), ErrBadRecord}
	}
}

const (
	// DefaultInflateLimit is the most bytes that a body may inflate to: 16 MiB.
	DefaultInflateLimit = 16 << 20

	zlibLevel = 5 // Java: compressLevel

	// zstdWindow bounds what a frame may ask a decoder to remember; the
	// format's specification recommends to support as much.
	zstdWindow = 8 << 20
)

// Codec compresses and inflates bodies. It keeps what its libraries need
// between calls and starts no goroutine. It is safe for concurrent use. The
// zero value is ready.
//
// A Codec belongs to a value with a life, such as a producer: were the pools
// the package's, goroutines of two synctest bubbles would meet in them.
type Codec struct {
	// InflateLimit is the most bytes that DecodeExt lets a body inflate to; 0
	// = DefaultInflateLimit. Set it before the first use.
	InflateLimit int

	zlibWriters, zlibReaders sync.Pool // *zlib.Writer, io.ReadCloser that is a zlib.Resetter
	lz4Writers, lz4Readers   sync.Pool // *lz4.Writer, *lz4.Reader
	zstdWriters, zstdReaders sync.Pool // *zstd.Encoder, *zstd.Decoder, each for one caller at a time
}

// NewCodec returns a Codec that holds nothing yet.
func NewCodec() *Codec { return new(Codec) }

// Close lets go of everything that is kept between calls. The Codec may be
// used again and then starts anew.
func (c *Codec) Close() {
	for x := c.zstdReaders.Get(); x != nil; x = c.zstdReaders.Get() {
		x.(*zstd.Decoder).Close()
	}
	for _, p := range []*sync.Pool{&c.zlibWriters, &c.zlibReaders, &c.lz4Writers, &c.lz4Readers, &c.zstdWriters} {
		for p.Get() != nil {
		}
	}
}

// Compress appends the compressed body to dst and returns the bits that the
// sysflag needs: FlagCompressed and the type. The result may be longer than
// the body; whether to use it is the caller's business. zlib compresses with
// level 5 as both official clients do.
func (c *Codec) Compress(dst, body []byte, t Compression) (out []byte, sysFlag int32, err error) {
	switch t {
	case Zlib:
		out, err = c.deflate(dst, body)
	case LZ4:
		out, err = c.compressLZ4(dst, body)
	case Zstd:
		out, err = c.compressZstd(dst, body)
	default:
		return dst, 0, fmt.Errorf("message: %v is no way to compress: use Zlib, LZ4 or Zstd", t)
	}
	if err != nil {
		return dst, 0, fmt.Errorf("message: compress %d bytes by %v: %w", len(body), t, err)
	}
	return out, FlagCompressed | t.flag(), nil
}

// Inflate returns the body that was compressed as sysFlag says, in memory of
// its own. Without FlagCompressed, and for an empty body, it returns body
// itself. More than limit bytes (0 = DefaultInflateLimit), or bytes that are
// not of the stated format, are ErrBadRecord. However the bytes lie, no more
// memory is taken than the limit, once more while it grows, and up to some
// 16 MiB that the formats may ask for.
func (c *Codec) Inflate(body []byte, sysFlag int32, limit int) ([]byte, error) {
	if sysFlag&FlagCompressed == 0 || len(body) == 0 {
		return body, nil
	}
	if limit <= 0 {
		limit = DefaultInflateLimit
	}
	t, err := CompressionOf(sysFlag)
	if err != nil {
		return nil, err
	}
	var out []byte
	switch t {
	case LZ4:
		out, err = c.inflateLZ4(body, limit)
	case Zstd:
		out, err = c.inflateZstd(body, limit)
	default:
		out, err = c.inflateZlib(body, limit)
	}
	if errors.Is(err, errOverLimit) {
		return nil, fmt.Errorf("%w: a %v body of %d bytes inflates to more than %d bytes, the limit of this reader", ErrBadRecord, t, len(body), limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: inflate a body of %d bytes by %v: %w", ErrBadRecord, len(body), t, err)
	}
	return out, nil
}

var errOverLimit = errors.New("over the limit")

// sink is an io.Writer that appends.
type sink []byte

func (s *sink) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

func (c *Codec) deflate(dst, body []byte) ([]byte, error) {
	out := sink(dst)
	w, _ := c.zlibWriters.Get().(*zlib.Writer)
	if w == nil {
		var err error
		if w, err = zlib.NewWriterLevel(&out, zlibLevel); err != nil {
			return nil, err
		}
	} else {
		w.Reset(&out)
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	w.Reset(io.Discard) // it must not keep the caller's memory
	c.zlibWriters.Put(w)
	return out, nil
}

func (c *Codec) inflateZlib(body []byte, limit int) ([]byte, error) {
	src := bytes.NewReader(body)
	defer src.Reset(nil) // a pooled reader must not keep the caller's memory
	r, _ := c.zlibReaders.Get().(io.ReadCloser)
	var err error
	if r == nil {
		r, err = zlib.NewReader(src)
	} else {
		err = r.(zlib.Resetter).Reset(src, nil)
	}
	if err != nil {
		return nil, err // a reader that refused a header is not worth keeping
	}
	out, err := readAll(r, 4*len(body), limit)
	c.zlibReaders.Put(r)
	return out, err
}

func (c *Codec) compressLZ4(dst, body []byte) ([]byte, error) {
	out := sink(dst)
	w, _ := c.lz4Writers.Get().(*lz4.Writer)
	if w == nil {
		w = lz4.NewWriter(&out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ConcurrencyOption(1)); err != nil {
			return nil, err
		}
	} else {
		w.Reset(&out)
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	w.Reset(io.Discard)
	c.lz4Writers.Put(w)
	return out, nil
}

func (c *Codec) inflateLZ4(body []byte, limit int) ([]byte, error) {
	src := bytes.NewReader(body)
	defer src.Reset(nil)
	r, _ := c.lz4Readers.Get().(*lz4.Reader)
	if r == nil {
		r = lz4.NewReader(src)
		if err := r.Apply(lz4.ConcurrencyOption(1)); err != nil {
			return nil, err
		}
	} else {
		r.Reset(src)
	}
	out, err := readAll(r, 4*len(body), limit)
	r.Reset(nil)
	c.lz4Readers.Put(r)
	return out, err
}

func (c *Codec) compressZstd(dst, body []byte) ([]byte, error) {
	w, _ := c.zstdWriters.Get().(*zstd.Encoder)
	if w == nil {
		var err error
		w, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
		if err != nil {
			return nil, err
		}
	}
	out := w.EncodeAll(body, dst)
	c.zstdWriters.Put(w)
	return out, nil
}

// inflateZstd reads the body as a stream: Decoder.DecodeAll bounds each frame
// but not a row of them.
func (c *Codec) inflateZstd(body []byte, limit int) ([]byte, error) {
	r, _ := c.zstdReaders.Get().(*zstd.Decoder)
	if r == nil {
		var err error
		r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
	}
	if err := r.Reset(bytes.NewReader(body)); err != nil {
		return nil, err
	}
	out, err := readAll(r, 4*len(body), limit)
	if r.Reset(nil) == nil {
		c.zstdReaders.Put(r)
	}
	return out, err
}

// readAll reads r to its end, at most limit bytes, into memory that starts
// with room for hint.
func readAll(r io.Reader, hint, limit int) ([]byte, error) {
	out := make([]byte, 0, min(max(hint, 512), limit))
	for {
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(out) < cap(out) {
			continue
		}
		if len(out) >= limit {
			var one [1]byte
			switch n, err := io.ReadFull(r, one[:]); {
			case n > 0:
				return nil, errOverLimit
			case err != io.EOF:
				return nil, err
			}
			return out, nil
		}
		grown := make([]byte, len(out), min(2*cap(out), limit))
		copy(grown, out)
		out = grown
	}
}
