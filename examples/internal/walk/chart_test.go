package walk

import (
	"bytes"
	"encoding/xml"
	"io"
	"path/filepath"
	"strconv"
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
	assert.Equal(t, map[string]int{"lane": 3, "window": 3, "tick": 1, "bar": 2, "moment": 3, "behind": 3, "label": 3, "key": 2}, count)
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
		from, till := l.span()
		assert.GreaterOrEqual(t, from, ends[l.y], "row at %d", l.y)
		ends[l.y] = till
		assert.LessOrEqual(t, ends[l.y], float64(chartWidth))
	}
}

// A line may pass where a text of a moment is, but not over it: what is drawn between
// them hides it.
func TestNoLineCrossesTheTextOfAMoment(t *testing.T) {
	c := &Chart{
		Until: 60 * time.Second, Lanes: []Lane{{"g", "1"}},
		Moments: []Moment{{At: 18 * time.Second, Text: "back"}, {At: 20 * time.Second, Text: "a text that reaches far"}, {At: 25 * time.Second, Text: "x"}, {At: 59 * time.Second, Text: "near the right edge"}},
	}
	var out bytes.Buffer
	require.NoError(t, c.WriteSVG(&out))
	type box struct{ x1, y1, x2, y2 float64 }
	within := func(a, b box) bool { return a.x1 >= b.x1 && a.x2 <= b.x2 && a.y1 >= b.y1 && a.y2 <= b.y2 }
	var lines, hidden []box // so far; hidden: what covers lines before it
	texts, crossings := 0, 0
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		text := make(map[string]string)
		number := func(name string) float64 {
			n, _ := strconv.ParseFloat(text[name], 64) // absent is 0
			return n
		}
		for _, a := range e.Attr {
			text[a.Name.Local] = a.Value
		}
		switch {
		case e.Name.Local == "line":
			l := box{number("x1"), number("y1"), number("x2"), number("y2")}
			for _, h := range hidden {
				assert.False(t, l.x1 > h.x1 && l.x1 < h.x2 && l.y1 < h.y2 && l.y2 > h.y1, "%v is drawn over %v", l, h)
			}
			lines = append(lines, l)
		case text["class"] == "behind":
			hidden = append(hidden, box{number("x"), number("y"), number("x") + number("width"), number("y") + number("height")})
		case text["class"] == "label":
			size := charWidth * float64(len(c.Moments[texts].Text))
			at := box{number("x"), number("y") - 8, number("x") + size, number("y") + 2}
			if text["text-anchor"] == "end" {
				at.x1, at.x2 = number("x")-size, number("x")
			}
			require.NotEmpty(t, hidden)
			assert.True(t, within(at, hidden[len(hidden)-1]), "%v is not all before %v", at, hidden[len(hidden)-1])
			for _, l := range lines {
				if l.x1 > at.x1 && l.x1 < at.x2 && l.y1 < at.y2 && l.y2 > at.y1 {
					crossings++
				}
			}
			texts++
		}
	}
	assert.Equal(t, len(c.Moments), texts)
	assert.Positive(t, crossings, "there is something to hide")
}

func TestAxisHasRoundSteps(t *testing.T) {
	for atLeast, want := range map[float64]float64{0: 0.1, 0.7: 1, 1: 1, 1.1: 2, 4: 5, 6: 10, 21.7: 50, 100: 100} {
		assert.InDelta(t, want, niceStep(atLeast), 1e-9, "%v", atLeast)
	}
}
