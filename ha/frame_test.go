package ha

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// body of the frame that b is.
func body(t testing.TB, b []byte, want frameKind) []byte {
	t.Helper()
	kind, size, err := parseHeader(b, func(frameKind) int { return math.MaxInt32 })
	require.NoError(t, err)
	require.Equal(t, want, kind)
	require.Equal(t, len(b)-headerBytes, size)
	require.True(t, bodyIntact(b))
	return b[headerBytes:]
}

func someSlaveHello() *slaveHello {
	return &slaveHello{
		cluster: "c", group: "broker-a", id: 2, incarnation: 77, highest: 5, first: 3, end: 9, fromLast: true,
		epochs: []Epoch{{1, 3}, {5, 7}},
	}
}

func someMasterHello() *masterHello {
	return &masterHello{
		id: 1, epoch: 6, first: 4, end: 12, confirmed: 11, keep: 9, begin: 4, sums: []recordSum{{9, 0xdeadbeef}, {8, 1}},
		epochs: []Epoch{{1, 4}, {5, 7}, {6, 10}},
	}
}

func TestFramesSayWhatWasPutIn(t *testing.T) {
	h, err := parseSlaveHello(body(t, appendSlaveHello(nil, someSlaveHello()), kindSlaveHello))
	require.NoError(t, err)
	assert.Equal(t, someSlaveHello(), h)

	m, err := parseMasterHello(body(t, appendMasterHello(nil, someMasterHello()), kindMasterHello))
	require.NoError(t, err)
	assert.Equal(t, someMasterHello(), m)

	assert.Equal(t, []byte("state"), body(t, appendState(nil, []byte("state")), kindState))

	head := dataHead{first: 7, count: 3, epoch: 5, confirmed: 6, end: 20}
	records := [][]byte{[]byte("a"), []byte("bcd"), bytes.Repeat([]byte("x"), 1000)}
	frame := appendData(nil, head, records)
	assert.Equal(t, headerBytes+dataSize(records), len(frame))
	gotHead, got, err := parseData(body(t, frame, kindData), nil)
	require.NoError(t, err)
	assert.Equal(t, head, gotHead)
	assert.Equal(t, records, got)

	beat := dataHead{first: 21, epoch: 5, confirmed: 20, end: 20}
	gotHead, got, err = parseData(body(t, appendData(nil, beat, nil), kindData), got[:0])
	require.NoError(t, err)
	assert.Equal(t, beat, gotHead)
	assert.Empty(t, got)

	a, err := parseAck(body(t, appendAck(nil, ackBody{9, 5}), kindAck))
	require.NoError(t, err)
	assert.Equal(t, ackBody{9, 5}, a)

	g, err := parseGoodbye(body(t, appendGoodbye(nil, goodbye{reasonDiverged, "no"}), kindGoodbye))
	require.NoError(t, err)
	assert.Equal(t, goodbye{reasonDiverged, "no"}, g)
	g, err = parseGoodbye(body(t, appendGoodbye(nil, goodbye{reasonDiverged, strings.Repeat("n", 1<<17)}), kindGoodbye))
	require.NoError(t, err)
	assert.Len(t, g.text, maxReasonBytes)
}

// A frame's bytes are a contract with replicas of other builds.
func TestTheBytesOfAFrame(t *testing.T) {
	assert.Equal(t, []byte{
		0x70, 0x48, 1, byte(kindAck), 0, 0, 0, 16,
		0x0c, 0xfe, 0x92, 0xd6,
		0x77, 0xe7, 0xc8, 0xda,
		0, 0, 0, 0, 0, 0, 1, 2,
		0, 0, 0, 0, 0, 0, 0, 3,
	}, appendAck(nil, ackBody{0x102, 3}))
}

func TestWhatIsNoFrameIsRefused(t *testing.T) {
	header := func(change func([]byte)) error {
		b := appendAck(nil, ackBody{1, 1})
		change(b)
		binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
		_, _, err := parseHeader(b, func(k frameKind) int {
			if k == kindAck {
				return ackBytes
			}
			return 0
		})
		return err
	}
	assert.NoError(t, header(func([]byte) {}))
	assert.ErrorIs(t, header(func(b []byte) { b[0] = 0 }), ErrBadFrame)
	assert.ErrorIs(t, header(func(b []byte) { b[2] = 2 }), ErrVersion)
	assert.ErrorIs(t, header(func(b []byte) { b[3] = 0 }), ErrBadFrame)
	assert.ErrorIs(t, header(func(b []byte) { b[3] = 99 }), ErrBadFrame)
	assert.ErrorIs(t, header(func(b []byte) { b[3] = byte(kindData) }), ErrBadFrame, "not due")
	assert.ErrorIs(t, header(func(b []byte) { binary.BigEndian.PutUint32(b[4:], 17) }), ErrFrameTooLarge)
	assert.ErrorIs(t, header(func(b []byte) { binary.BigEndian.PutUint32(b[4:], math.MaxUint32) }), ErrFrameTooLarge)

	for bit := range 64 {
		b := appendAck(nil, ackBody{1, 1})
		b[bit/8] ^= 1 << (bit % 8)
		_, _, err := parseHeader(b, anyFrame)
		require.Error(t, err, "bit %d", bit)
	}

	data := func(change func([]byte)) error {
		b := appendData(nil, dataHead{first: 7, epoch: 5, confirmed: 6, end: 20}, [][]byte{[]byte("ab"), []byte("c")})[headerBytes:]
		change(b)
		_, _, err := parseData(b, nil)
		return err
	}
	assert.NoError(t, data(func([]byte) {}))
	for name, change := range map[string]func([]byte){
		"from position 0":       func(b []byte) { binary.BigEndian.PutUint64(b[0:], 0) },
		"beyond the end":        func(b []byte) { binary.BigEndian.PutUint64(b[28:], 7) },
		"more records":          func(b []byte) { binary.BigEndian.PutUint32(b[8:], 3) },
		"fewer records":         func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1) },
		"as many as there are":  func(b []byte) { binary.BigEndian.PutUint32(b[8:], math.MaxUint32) },
		"an empty record":       func(b []byte) { copy(b[36:], []byte{0, 0, 0, 0, 0, 0, 0, 3}) },
		"a record too long":     func(b []byte) { copy(b[36:], []byte{0, 0, 0, 2, 0, 0, 0, 2}) },
		"a record too short":    func(b []byte) { copy(b[36:], []byte{0, 0, 0, 1, 0, 0, 0, 1}) },
		"a negative epoch":      func(b []byte) { b[12] = 0x80 },
		"negative confirmation": func(b []byte) { b[20] = 0x80 },
		"overflow":              func(b []byte) { copy(b, bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1)) },
	} {
		assert.ErrorIs(t, data(change), ErrBadFrame, name)
	}
	hello := appendSlaveHello(nil, someSlaveHello())[headerBytes:]
	for n := range hello {
		_, err := parseSlaveHello(hello[:n])
		require.ErrorIs(t, err, ErrBadFrame, "cut to %d bytes", n)
	}
	_, err := parseSlaveHello(append(hello, 0))
	assert.ErrorIs(t, err, ErrBadFrame)
}

func TestEachReasonIsOneError(t *testing.T) {
	seen := make(map[error]reason)
	for r := reasonDiverged; r <= reasonOther; r++ {
		err := r.sentinel()
		assert.Zero(t, seen[err], "%v", err)
		seen[err] = r
		assert.Equal(t, r, reasonOf(err))
		assert.ErrorIs(t, refusedBy("10.0.0.1:1", goodbye{r, "because"}), err)
	}
	assert.Equal(t, reasonOther, reasonOf(assert.AnError))
	assert.EqualError(t, refusedBy("10.0.0.1:1", goodbye{reason: reasonDiverged}), "ha: 10.0.0.1:1 refuses: the logs have diverged")
	assert.ErrorIs(t, refusedBy("10.0.0.1:1", goodbye{}), ErrStopped)
	assert.ErrorIs(t, refusedBy("10.0.0.1:1", goodbye{reason: 200}), errOther)
}

// What a decoder accepts is what its encoder makes, byte for byte.
func FuzzFrameBodies(f *testing.F) {
	for _, b := range [][]byte{
		appendSlaveHello(nil, someSlaveHello()),
		appendSlaveHello(nil, &slaveHello{}),
		appendMasterHello(nil, someMasterHello()),
		appendState(nil, []byte("state")),
		appendData(nil, dataHead{first: 7, epoch: 5, confirmed: 6, end: 20}, [][]byte{[]byte("ab"), []byte("c")}),
		appendData(nil, dataHead{first: 1}, nil),
		appendAck(nil, ackBody{5, 1}),
		appendGoodbye(nil, goodbye{reasonDiverged, "no"}),
	} {
		f.Add(b[3], b[headerBytes:])
	}
	f.Fuzz(func(t *testing.T, kind byte, in []byte) {
		var out []byte
		var err error
		switch frameKind(kind) {
		case kindSlaveHello:
			var h *slaveHello
			if h, err = parseSlaveHello(in); err == nil {
				out = appendSlaveHello(nil, h)
			}
		case kindMasterHello:
			var h *masterHello
			if h, err = parseMasterHello(in); err == nil {
				out = appendMasterHello(nil, h)
			}
		case kindData:
			var h dataHead
			var records [][]byte
			if h, records, err = parseData(in, nil); err == nil {
				require.Len(t, records, h.count)
				out = appendData(nil, h, records)
			}
		case kindAck:
			var a ackBody
			if a, err = parseAck(in); err == nil {
				out = appendAck(nil, a)
			}
		case kindGoodbye:
			var g goodbye
			if g, err = parseGoodbye(in); err == nil {
				out = appendGoodbye(nil, g)
			}
		default:
			return
		}
		if err != nil {
			require.ErrorIs(t, err, ErrBadFrame)
			return
		}
		require.Equal(t, in, out[headerBytes:])
	})
}

// Whatever comes in whatever pieces, reading it ends, takes no more memory than came,
// and gives frames with a right checksum only.
func FuzzWire(f *testing.F) {
	whole := appendAck(appendData(nil, dataHead{first: 1, end: 2}, [][]byte{[]byte("ab"), []byte("c")}), ackBody{2, 0})
	f.Add(whole, uint16(7))
	f.Add(whole[:20], uint16(1))
	huge := bytes.Clone(whole)
	binary.BigEndian.PutUint32(huge[4:], 60<<20)
	binary.BigEndian.PutUint32(huge[8:], crc32.Checksum(huge[:8], castagnoli))
	f.Add(huge, uint16(100))
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		w := newWire(&scripted{in: in, piece: int(piece)%512 + 1}, readBytes, DefaultHousekeeping, func(frameKind) int { return 64 << 20 })
		taken := 0
		for {
			kind, b, err := w.next(w.lastWrite.Add(DefaultHeartbeat))
			if err != nil {
				break
			}
			again := endFrame(append(beginFrame(nil, kind), b...), 0)
			require.Equal(t, in[taken:taken+len(again)], again)
			taken += len(again)
		}
		require.LessOrEqual(t, len(w.buf), max(readBytes, 2*len(in)))
	})
}
