package ha

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// A replication connection carries frames, big endian:
//
//	0  u16  0x7048
//	2  u8   version
//	3  u8   kind
//	4  u32  size of the body
//	8  u32  CRC-32C of the 8 bytes before: nobody waits for a body of a wrong size
//	12 u32  CRC-32C of the body
//	16      the body
//
// The slave speaks first:
//
//	slave                                  master
//	  hello {who, epochs, bounds}  ------>
//	                               <------  hello {who, epochs, bounds, what to keep}
//	                               <------  state, when the slave begins anew
//	  cuts its log, keeps the epoch
//	  ack {its end}                ------>
//	                               <------  data {records}, or none: a heartbeat
//	  ack {its end}                ------>
//	  goodbye {why}                <----->  at any time: nothing follows
//
// A text is a u16 and as many bytes; a history a u32 and as many pairs of i64. Nothing
// may follow the last field of a body.
const (
	frameMagic   = 0x7048
	frameVersion = 1
	headerBytes  = 16

	// maxHelloBytes bounds a hello: 64 Ki epochs.
	maxHelloBytes   = 64<<10*16 + 4096
	maxGoodbyeBytes = 4096
	maxNameBytes    = 255
	// maxReasonBytes bounds the text of a refusal; a longer one is cut.
	maxReasonBytes = 2048
	ackBytes       = 16
	dataHeadBytes  = 36
)

type frameKind uint8

const (
	kindSlaveHello frameKind = iota + 1
	kindMasterHello
	kindState
	kindData
	kindAck
	kindGoodbye
)

func (k frameKind) String() string {
	switch k {
	case kindSlaveHello:
		return "slave's hello"
	case kindMasterHello:
		return "master's hello"
	case kindState:
		return "state"
	case kindData:
		return "data"
	case kindAck:
		return "ack"
	case kindGoodbye:
		return "goodbye"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// ErrBadFrame means that a peer sent what is no frame, or not one that was due. The
// connection is closed.
var ErrBadFrame = errors.New("not a replication frame")

// ErrVersion means that a peer speaks another version of the replication protocol:
// upgrade the older one.
var ErrVersion = errors.New("unknown version of the replication protocol")

// ErrFrameTooLarge means that a frame, or a record that was to go into one, is larger
// than MaxFrameBytes.
var ErrFrameTooLarge = errors.New("replication frame too large")

// slaveHello is what a slave says of itself.
type slaveHello struct {
	cluster, group string
	id             int64
	incarnation    int64
	highest        int64 // epoch that it knows of
	first, end     int64
	fromLast       bool // an empty log is to begin with the master's last file
	epochs         []Epoch
}

// masterHello is what a master answers.
type masterHello struct {
	id         int64
	epoch      int64
	first, end int64
	confirmed  int64
	keep       int64       // position up to which the slave keeps its log
	begin      int64       // 0, or the position at which its log begins anew: a state frame follows
	sums       []recordSum // of the master's records at keep and before, newest first
	epochs     []Epoch
}

// recordSum is the CRC-32C of the record at a position.
type recordSum struct {
	position int64
	sum      uint32
}

// dataHead begins a data frame. Then come the sizes of the records, u32 each, then
// the records.
type dataHead struct {
	first     int64 // position of the first record, or of the next one to be sent
	count     int   // 0: a heartbeat
	epoch     int64 // of the records; of the master, in a heartbeat
	confirmed int64
	end       int64 // of the master's log
}

// ackBody is what a slave has.
type ackBody struct{ position, epoch int64 }

// goodbye ends a connection.
type goodbye struct {
	reason reason
	text   string
}

// beginFrame appends the header of a frame, to be completed by endFrame.
func beginFrame(b []byte, kind frameKind) []byte {
	b = binary.BigEndian.AppendUint16(b, frameMagic)
	b = append(b, frameVersion, byte(kind))
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// endFrame completes the frame that begins at start.
func endFrame(b []byte, start int) []byte {
	f := b[start:]
	binary.BigEndian.PutUint32(f[4:], uint32(len(f)-headerBytes))
	binary.BigEndian.PutUint32(f[8:], crc32.Checksum(f[:8], castagnoli))
	binary.BigEndian.PutUint32(f[12:], crc32.Checksum(f[headerBytes:], castagnoli))
	return b
}

// bodyIntact tells whether the body of a frame is what its header says.
func bodyIntact(frame []byte) bool {
	return crc32.Checksum(frame[headerBytes:], castagnoli) == binary.BigEndian.Uint32(frame[12:])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parseHeader reads the header of a frame. Its body may have up to max bytes.
func parseHeader(h []byte, max func(frameKind) int) (kind frameKind, size int, err error) {
	if m := binary.BigEndian.Uint16(h); m != frameMagic {
		return 0, 0, fmt.Errorf("%w: it begins with %#04x", ErrBadFrame, m)
	}
	if h[2] != frameVersion {
		return 0, 0, fmt.Errorf("%w: %d, this side speaks %d", ErrVersion, h[2], frameVersion)
	}
	if crc32.Checksum(h[:8], castagnoli) != binary.BigEndian.Uint32(h[8:]) {
		return 0, 0, fmt.Errorf("%w: the checksum of its header is wrong", ErrBadFrame)
	}
	kind = frameKind(h[3])
	if kind < kindSlaveHello || kind > kindGoodbye {
		return 0, 0, fmt.Errorf("%w: %v", ErrBadFrame, kind)
	}
	n, most := binary.BigEndian.Uint32(h[4:]), max(kind)
	if most == 0 {
		return 0, 0, fmt.Errorf("%w: a %v is not due", ErrBadFrame, kind)
	}
	if int64(n) > int64(most) {
		return 0, 0, fmt.Errorf("%w: %v of %d bytes, at most %d", ErrFrameTooLarge, kind, n, most)
	}
	return kind, int(n), nil
}

func appendSlaveHello(b []byte, h *slaveHello) []byte {
	start := len(b)
	b = beginFrame(b, kindSlaveHello)
	b = appendText(b, h.cluster)
	b = appendText(b, h.group)
	b = appendInts(b, h.id, h.incarnation, h.highest, h.first, h.end)
	b = append(b, flag(h.fromLast))
	b = appendEpochs(b, h.epochs)
	return endFrame(b, start)
}

func parseSlaveHello(body []byte) (*slaveHello, error) {
	r := reader{b: body}
	h := &slaveHello{cluster: r.text(maxNameBytes), group: r.text(maxNameBytes)}
	r.ints(&h.id, &h.incarnation, &h.highest, &h.first, &h.end)
	h.fromLast = r.flag()
	h.epochs = r.epochs()
	return h, r.done(kindSlaveHello)
}

func appendMasterHello(b []byte, h *masterHello) []byte {
	start := len(b)
	b = beginFrame(b, kindMasterHello)
	b = appendInts(b, h.id, h.epoch, h.first, h.end, h.confirmed)
	b = appendInts(b, h.keep, h.begin)
	b = append(b, byte(len(h.sums)))
	for _, s := range h.sums {
		b = appendInts(b, s.position)
		b = binary.BigEndian.AppendUint32(b, s.sum)
	}
	b = appendEpochs(b, h.epochs)
	return endFrame(b, start)
}

func parseMasterHello(body []byte) (*masterHello, error) {
	r := reader{b: body}
	h := &masterHello{}
	r.ints(&h.id, &h.epoch, &h.first, &h.end, &h.confirmed)
	r.ints(&h.keep, &h.begin)
	for range r.byte() {
		var s recordSum
		r.ints(&s.position)
		s.sum = r.u32()
		h.sums = append(h.sums, s)
	}
	h.epochs = r.epochs()
	return h, r.done(kindMasterHello)
}

func appendState(b, state []byte) []byte {
	start := len(b)
	return endFrame(append(beginFrame(b, kindState), state...), start)
}

// appendData appends a data frame. It copies the records: at the sizes of a batch one
// write costs less than the pieces of a vectored one.
func appendData(b []byte, h dataHead, records [][]byte) []byte {
	start := len(b)
	b = beginFrame(b, kindData)
	b = appendInts(b, h.first)
	b = binary.BigEndian.AppendUint32(b, uint32(len(records)))
	b = appendInts(b, h.epoch, h.confirmed, h.end)
	for _, rec := range records {
		b = binary.BigEndian.AppendUint32(b, uint32(len(rec)))
	}
	for _, rec := range records {
		b = append(b, rec...)
	}
	return endFrame(b, start)
}

// dataSize is the size of the body of a data frame.
func dataSize(records [][]byte) int {
	n := dataHeadBytes
	for _, rec := range records {
		n += 4 + len(rec)
	}
	return n
}

// parseData appends the records of a data frame to those given. They lie in body.
func parseData(body []byte, records [][]byte) (dataHead, [][]byte, error) {
	r := reader{b: body}
	var h dataHead
	r.ints(&h.first)
	count := r.u32()
	r.ints(&h.epoch, &h.confirmed, &h.end)
	if r.short || uint64(count) > uint64(len(r.b)/5) { // a record has a byte at least
		return h, records, r.bad(kindData)
	}
	h.count = int(count)
	sizes, rest := r.b[:4*h.count], r.b[4*h.count:]
	for ; len(sizes) > 0; sizes = sizes[4:] {
		n := binary.BigEndian.Uint32(sizes)
		if n == 0 || uint64(n) > uint64(len(rest)) {
			return h, records, r.bad(kindData)
		}
		records = append(records, rest[:n:n])
		rest = rest[n:]
	}
	if len(rest) > 0 || h.first < 1 || h.epoch < 0 || h.confirmed < 0 || h.end < h.first-1+int64(h.count) || h.first > math.MaxInt64-int64(h.count) {
		return h, records, r.bad(kindData)
	}
	return h, records, nil
}

func appendAck(b []byte, a ackBody) []byte {
	start := len(b)
	return endFrame(appendInts(beginFrame(b, kindAck), a.position, a.epoch), start)
}

func parseAck(body []byte) (ackBody, error) {
	r := reader{b: body}
	var a ackBody
	r.ints(&a.position, &a.epoch)
	return a, r.done(kindAck)
}

func appendGoodbye(b []byte, g goodbye) []byte {
	start := len(b)
	b = append(beginFrame(b, kindGoodbye), byte(g.reason))
	return endFrame(appendText(b, cutText(g.text)), start)
}

func parseGoodbye(body []byte) (goodbye, error) {
	r := reader{b: body}
	g := goodbye{reason: reason(r.byte()), text: r.text(maxReasonBytes)}
	return g, r.done(kindGoodbye)
}

// cutText cuts the text of an error to what a frame may carry.
func cutText(s string) string { return s[:min(len(s), maxReasonBytes)] }

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func appendInts(b []byte, ints ...int64) []byte {
	for _, n := range ints {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func appendEpochs(b []byte, list []Epoch) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(list)))
	for _, e := range list {
		b = appendInts(b, e.Number, e.First)
	}
	return b
}

// reader takes the fields of a body one after the other. Once it was short, or a field
// was not what it may be, all fields are zero.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if r.short || n > len(r.b) {
		r.short = true
		return nil
	}
	field := r.b[:n]
	r.b = r.b[n:]
	return field
}

func (r *reader) byte() byte {
	if f := r.take(1); f != nil {
		return f[0]
	}
	return 0
}

func (r *reader) flag() bool {
	v := r.byte()
	r.short = r.short || v > 1
	return v == 1
}

func (r *reader) u32() uint32 {
	if f := r.take(4); f != nil {
		return binary.BigEndian.Uint32(f)
	}
	return 0
}

func (r *reader) ints(fields ...*int64) {
	for _, to := range fields {
		if f := r.take(8); f != nil {
			*to = int64(binary.BigEndian.Uint64(f))
		}
	}
}

func (r *reader) text(max int) string {
	f := r.take(2)
	if f == nil {
		return ""
	}
	n := int(binary.BigEndian.Uint16(f))
	if n > max {
		r.short = true
	}
	return string(r.take(n))
}

func (r *reader) epochs() []Epoch {
	n := r.u32()
	if r.short || uint64(n) > uint64(len(r.b)/16) {
		r.short = true
		return nil
	}
	if n == 0 {
		return nil
	}
	list := make([]Epoch, n)
	for i := range list {
		r.ints(&list[i].Number, &list[i].First)
	}
	return list
}

func (r *reader) bad(kind frameKind) error {
	return fmt.Errorf("%w: a %v is not what it should be", ErrBadFrame, kind)
}

func (r *reader) done(kind frameKind) error {
	if r.short || len(r.b) > 0 {
		return r.bad(kind)
	}
	return nil
}
