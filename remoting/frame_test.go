package remoting

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLengthsOutsideTheLimitsAreRefusedUnread(t *testing.T) {
	for _, word := range [][4]byte{{}, {0, 0, 0, 3}, {0xFF, 0xFF, 0xFF, 0xFF}, {0x80}, {0x01, 0, 0, 0}, {'P', 'R', 'I', ' '}, {'G', 'E', 'T', ' '}} {
		_, err := Read(io.MultiReader(bytes.NewReader(word[:]), failing{}))
		assert.ErrorIs(t, err, ErrBadFrame, "%x", word)
	}
	n, err := Length([4]byte{0, 0xFF, 0xFF, 0xFC})
	require.NoError(t, err)
	assert.Equal(t, MaxFrame, n+4, "the limit counts the length word")
}

// failing is a reader that must not be asked.
type failing struct{}

var errAsked = errors.New("read beyond the length")

func (failing) Read([]byte) (int, error) { return 0, errAsked }

func TestAFrameThatClaimsMuchCostsLittle(t *testing.T) {
	wire := append([]byte{0, 0xFF, 0xFF, 0xFC}, make([]byte, 100)...)
	r := bytes.NewReader(wire)
	used := testing.AllocsPerRun(1, func() {
		r.Reset(wire)
		_, err := Read(r)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	assert.Less(t, used, 20.0)
	b, err := readPieces(io.LimitReader(zeros{}, MaxFrame), MaxFrame, firstPiece, nothingToAsk)
	require.NoError(t, err)
	assert.Len(t, b, MaxFrame)
	_, err = readPieces(io.LimitReader(zeros{}, 3*piece), MaxFrame, piece, nothingToAsk)
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func nothingToAsk() error { return nil }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestTheEndBetweenFramesIsNoError(t *testing.T) {
	_, err := Read(strings.NewReader(""))
	assert.Equal(t, io.EOF, err)
	_, err = Read(bytes.NewReader([]byte{0, 0}))
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	wire, err := (&Frame{Code: 105, Body: []byte("x")}).Append(nil)
	require.NoError(t, err)
	for n := 1; n < len(wire); n++ {
		_, err := Read(bytes.NewReader(wire[:n]))
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF, n)
	}
}

func TestFramesBeyondTheLimitsAreNotWritten(t *testing.T) {
	for _, f := range []*Frame{
		{Body: make([]byte, MaxFrame)},
		{Remark: strings.Repeat("x", MaxFrame)},
		{Serialize: 2},
		{Serialize: Binary, Code: 200050},
		{Serialize: Binary, Version: 1 << 15},
		{Serialize: Binary, Ext: Fields{{strings.Repeat("n", 1<<15), ""}}},
	} {
		b, err := f.Append([]byte("before"))
		assert.ErrorIs(t, err, ErrBadFrame)
		assert.Equal(t, "before", string(b))
	}
}

func TestHostileJSONHeaders(t *testing.T) {
	for _, header := range []string{
		strings.Repeat("[", 100), `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}",
		`{"a":` + strings.Repeat(`{"b":`, 100), `{"code":1}x`, `{"code":99999999999}`, `{"code":1e300}`, `{"code":x}`,
		`{"code":[1]}`, `{"extFields":[]}`, `{"extFields":"x"}`, `{"remark":"\u12"}`, `{"remark":"\`, `{"a" 1}`, `{"a":1 "b":2}`, `{a:}`, `{,:}`,
		`{"extFields":{` + strings.Repeat(`"a":"b",`, maxFields+1) + `}}`,
	} {
		_, err := Parse(frameOf(header)[4:])
		if len(header) < 1<<12 {
			assert.ErrorIs(t, err, ErrBadFrame, header)
		} else {
			assert.Error(t, err)
		}
	}
}

func TestTextsOfAHeader(t *testing.T) {
	f, err := Parse(frameOf(`{'remark':"\ud83d\ude00 \ud83d x \u00e9\/\q",extFields:{n:'a"b',"m":[1,{"x":2}],k:1.50}}`)[4:])
	require.NoError(t, err)
	assert.Equal(t, "😀 \ufffd x é/q", f.Remark)
	assert.Equal(t, Fields{{"n", `a"b`}, {"m", `[1,{"x":2}]`}, {"k", "1.50"}}, f.Ext)

	f = &Frame{Remark: "\x00\x01\x1f\"\\é\xff\u2028", Ext: Fields{{"a", "1"}, {"a", "2"}}}
	wire, err := f.Append(nil)
	require.NoError(t, err)
	back, err := Parse(wire[4:])
	require.NoError(t, err)
	assert.Equal(t, "\x00\x01\x1f\"\\é\ufffd\u2028", back.Remark)
	last, ok := back.Ext.Get("a")
	assert.True(t, ok)
	assert.Equal(t, "2", last, "of two fields with one name the last counts")
	_, ok = back.Ext.Get("b")
	assert.False(t, ok)
}

func FuzzFrame(f *testing.F) {
	g := golden(f)
	for _, row := range g.Java {
		wire, _ := hex.DecodeString(row.Frame)
		f.Add(wire)
	}
	for _, row := range g.Variants {
		wire, _ := hex.DecodeString(row.Frame)
		if row.HeaderText != nil {
			wire = frameOf(*row.HeaderText)
		}
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		frame, err := Read(bytes.NewReader(wire))
		if err != nil {
			return
		}
		again, err := frame.Append(nil)
		if err != nil {
			require.ErrorIs(t, err, ErrBadFrame)
			return
		}
		back, err := Read(bytes.NewReader(again))
		require.NoError(t, err)
		once, err := back.Append(nil)
		require.NoError(t, err)
		require.Equal(t, again, once, "what was written once reads as what it was")
	})
}

func TestTextsOfASmallFrameAreItsBytes(t *testing.T) {
	for _, form := range []Serialize{JSON, Binary} {
		for _, size := range []int{0, 1, 100, smallFrame - 200, smallFrame, piece} {
			f := &Frame{Code: 310, Serialize: form, Remark: "r", Ext: Fields{{"a", "first"}, {"b", ""}, {"A", "no letter"}, {"a", "last"}}, Body: make([]byte, size)}
			wire, err := f.Append(nil)
			require.NoError(t, err)
			want, err := Parse(wire[4:])
			require.NoError(t, err)
			var got Frame
			require.NoError(t, got.parse(bytes.Clone(wire[4:]), true))
			assert.Equal(t, want, &got)
			h, lettered := got.header(), got.lettered()
			for _, name := range []string{"a", "b", "c", "z", "A", "{", "", "aa"} {
				value, ok := h.get(name)
				have, known := lettered.get(name)
				assert.Equal(t, value, have, name)
				assert.Equal(t, ok, known, name)
			}
		}
	}
}
