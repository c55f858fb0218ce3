package remoting

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goldenFrames are what RocketMQ's Java and Go code made of frames.
type goldenFrames struct {
	Java []struct {
		Name      string
		Serialize string
		Frame     string
		Fast      string        `json:"frameViaFastEncodeHeader"`
		Decoded   goldenDecoded `json:"decoded"`
	}
	Variants []struct {
		What       string
		HeaderText *string
		Frame      string
		Decoded    goldenDecoded
	} `json:"decode_variants"`
	Languages []struct {
		Name string
		Code int64
	} `json:"language_codes"`
	Bodies  []struct{ Name, JSON string } `json:"json_bodies"`
	Headers []struct {
		Header    string
		ExtFields map[string]string
		Result    struct{ Error string }
	} `json:"header_check"`
	Go []struct {
		Kind, Name, Serialize, Frame string
		HeaderText                   *string
	} `json:"go_frames"`
}

type goldenDecoded struct {
	Error     string
	Code      int32
	Language  *string
	Version   int32
	Opaque    json.RawMessage
	Flag      int32
	Remark    *string
	ExtFields map[string]*string
	Body      *string
}

func golden(t testing.TB) (g goldenFrames) {
	t.Helper()
	readGolden(t, "testdata/frames.json", &g)
	return g
}

func readGolden(t testing.TB, file string, to any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, to))
}

// is compares a frame with what Java made of it. A text that is null there, or
// empty, is empty or absent here.
func (d goldenDecoded) is(t *testing.T, f *Frame) {
	t.Helper()
	assert.Equal(t, d.Code, f.Code)
	want := LanguageUnknown
	if d.Language != nil {
		want = languageOf(*d.Language)
	}
	assert.Equal(t, want, f.Language)
	assert.Equal(t, d.Version, f.Version)
	assert.Equal(t, d.Flag, f.Flag)
	var opaque int32
	if json.Unmarshal(d.Opaque, &opaque) == nil {
		assert.Equal(t, opaque, f.Opaque)
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	assert.Equal(t, text(d.Remark), f.Remark)
	for name, value := range d.ExtFields {
		have, _ := f.Ext.Get(name)
		assert.Equal(t, text(value), have, name)
	}
	for _, x := range f.Ext {
		assert.Contains(t, d.ExtFields, x.Name)
	}
	assert.Equal(t, text(d.Body), hex.EncodeToString(f.Body))
}

// frameOf puts a JSON header into a frame.
func frameOf(header string) []byte {
	n := len(header)
	b := []byte{0, 0, byte((n + 4) >> 8), byte(n + 4), 0, 0, byte(n >> 8), byte(n)}
	return append(b, header...)
}

func TestGoldenFramesOfJavaMeanTheSame(t *testing.T) {
	g := golden(t)
	passed := 0
	for _, row := range g.Java {
		ok := t.Run(row.Name+" "+row.Serialize, func(t *testing.T) {
			for _, text := range []string{row.Frame, row.Fast} {
				if text == "" {
					continue
				}
				wire, err := hex.DecodeString(text)
				require.NoError(t, err)
				f, err := Read(bytes.NewReader(wire))
				require.NoError(t, err)
				row.Decoded.is(t, f)

				again, err := f.Append(nil)
				require.NoError(t, err)
				back, err := Read(bytes.NewReader(again))
				require.NoError(t, err)
				assert.Equal(t, f, back)
				if row.Serialize == "ROCKETMQ" {
					assert.Equal(t, wire, again, "the binary form has one text")
				} else if row.Decoded.Remark == nil || f.Remark != "" { // we leave an empty one out
					assert.Len(t, again, len(wire), "the same members, in some order")
				}
			}
		})
		if ok {
			passed++
		}
	}
	t.Logf("java: %d of %d passed, 0 skipped", passed, len(g.Java))
}

func TestGoldenVariantsAreReadAsJavaReadsThem(t *testing.T) {
	g := golden(t)
	passed := 0
	for _, row := range g.Variants {
		what := row.What
		if row.HeaderText != nil {
			what = *row.HeaderText
		}
		ok := t.Run(what, func(t *testing.T) {
			wire, err := hex.DecodeString(row.Frame)
			require.NoError(t, err)
			if row.HeaderText != nil {
				wire = frameOf(*row.HeaderText)
			}
			f, err := Read(bytes.NewReader(wire))
			if row.Decoded.Error != "" {
				assert.ErrorIs(t, err, ErrBadFrame)
				return
			}
			require.NoError(t, err)
			row.Decoded.is(t, f)
		})
		if ok {
			passed++
		}
	}
	t.Logf("decode_variants: %d of %d passed, 0 skipped", passed, len(g.Variants))
}

func TestGoldenLanguages(t *testing.T) {
	g := golden(t)
	for _, row := range g.Languages {
		assert.Equal(t, languageAt(row.Code), languageOf(row.Name))
		assert.Equal(t, row.Name, languageAt(row.Code).String())
	}
	t.Logf("language_codes: %d passed, 0 skipped", len(g.Languages))
}

func TestGoldenFramesOfGoAreRead(t *testing.T) {
	g := golden(t)
	passed, skipped := 0, 0
	for _, row := range g.Go {
		if row.Kind != "go_encode" {
			skipped++ // what Go makes of Java's frames says nothing about us
			continue
		}
		wire, err := hex.DecodeString(row.Frame)
		require.NoError(t, err)
		f, err := Read(bytes.NewReader(wire))
		require.NoError(t, err, row.Name)
		assert.Equal(t, LanguageGo, f.Language)
		assert.EqualValues(t, 317, f.Version)
		passed++
	}
	t.Logf("go_frames: %d passed, %d skipped", passed, skipped)
	assert.Positive(t, passed)
}
