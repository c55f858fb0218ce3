package walk

import (
	"bytes"
	"encoding/xml"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChartIsWellFormedAndHasOneElementPerThing(t *testing.T) {
	c := &Chart{
		Title: `"<&>"`, Until: 90 * time.Second,
		Lanes:   []Lane{{"g", "1"}, {"g", "2"}, {"h", "<3>"}},
		Windows: []Window{{Lane: 0, From: 0, Till: time.Second, Text: "a & b"}, {Lane: 2, From: time.Second, Till: 200 * time.Second, Style: Style{Colour: 25, Faded: true}}, {Lane: 1}},
		Ticks:   []Tick{{Lane: 1, At: time.Second}},
		Bars:    []Bar{{Lane: 1, From: time.Second, Till: 2 * time.Second, Height: 0.5, Text: "<half>"}, {Lane: 1, Height: 7}},
		Moments: []Moment{{At: time.Second, Text: "<one>"}, {At: time.Second, Text: "two"}, {At: 89 * time.Second, Text: "one near the right edge"}},
		Legend:  []Key{{Text: "x"}, {Style: Style{Faded: true}, Text: "y"}, {Style: Style{Tick: true}, Text: "z"}},
	}
	var out bytes.Buffer
	require.NoError(t, c.WriteSVG(&out))
	count := make(map[string]int)
	d := xml.NewDecoder(&out)
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					count[a.Value]++
				}
				assert.NotContains(t, a.Value, "url(", "nothing is loaded")
				assert.NotContains(t, a.Value, "NaN")
				assert.NotEqual(t, "href", a.Name.Local)
			}
		}
	}
	assert.Equal(t, map[string]int{"lane": 3, "window": 3, "tick": 1, "bar": 2, "moment": 3, "key": 2}, count)
}

func TestChartOfNothing(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&Chart{}).WriteSVG(&out))
	assert.NotContains(t, out.String(), "NaN")
	assert.True(t, strings.HasSuffix(out.String(), "</svg>\n"))
	assert.Error(t, (&Chart{}).Write(filepath.Join(t.TempDir(), "no", "folder")))
}

func TestMomentsDoNotCoverEachOther(t *testing.T) {
	c := &Chart{Until: 100 * time.Second}
	for i := range 12 {
		c.Moments = append(c.Moments, Moment{At: time.Duration(i*i) * time.Second / 2, Text: "something of some length"})
	}
	labels, rows := c.placeMoments()
	require.Len(t, labels, 12)
	assert.LessOrEqual(t, rows, 8)
	ends := make(map[int]float64)
	for _, l := range labels {
		from := l.x
		if l.anchor == "end" {
			from -= charWidth * float64(len(l.text))
		}
		assert.GreaterOrEqual(t, from, ends[l.y], "row at %d", l.y)
		ends[l.y] = from + charWidth*float64(len(l.text))
		assert.LessOrEqual(t, ends[l.y], float64(chartWidth))
	}
}

func TestAxisHasRoundSteps(t *testing.T) {
	for atLeast, want := range map[float64]float64{0: 0.1, 0.7: 1, 1: 1, 1.1: 2, 4: 5, 6: 10, 21.7: 50, 100: 100} {
		assert.InDelta(t, want, niceStep(atLeast), 1e-9, "%v", atLeast)
	}
}
