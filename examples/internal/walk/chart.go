package walk

import (
	"bufio"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// Chart shows who did what when: a lane for each thing, windows in them over
// time. All times are cluster time.
type Chart struct {
	Title, Subtitle string
	Lanes           []Lane // from top to bottom; equal groups follow each other
	Windows         []Window
	Ticks           []Tick
	Bars            []Bar
	Moments         []Moment // what happened, as lines through all lanes
	Legend          []Key
	Until           time.Duration // end of the time axis
}

// Lane is one row.
type Lane struct{ Group, Name string }

// Window is a span of time in a lane.
type Window struct {
	Lane       int
	From, Till time.Duration
	Style      Style
	Text       string // shown when the pointer rests on it
}

// Tick is a moment in a lane.
type Tick struct {
	Lane int
	At   time.Duration
}

// Bar is how much there was of something in a lane, over a span of time.
type Bar struct {
	Lane       int
	From, Till time.Duration
	Height     float64 // 1 fills the lane
	Style      Style
	Text       string // shown when the pointer rests on it
}

// Moment is something that happened.
type Moment struct {
	At   time.Duration
	Text string
}

// Key explains a style.
type Key struct {
	Style Style
	Text  string
}

// Style is a colour, and whether it is only a shade of it.
type Style struct {
	Colour int // an index of the palette
	Faded  bool
	Tick   bool // in a legend: a Tick
}

// palette is that of Okabe and Ito, whose colours can be told apart by everybody,
// and some more.
func palette(i int) string {
	colours := []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f", "#661a4d", "#1a1a1a"}
	return colours[i%len(colours)]
}

// Measures of a chart in pixels.
const (
	chartWidth = 1120
	left       = 178 // of the time axis
	right      = 28
	top        = 74 // of the first line of moments
	laneHeight = 17
	groupGap   = 14
	charWidth  = 6.3 // of a small letter, on average
)

// Write draws the chart into a file.
func (c *Chart) Write(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = c.WriteSVG(f)
	return cmp.Or(err, f.Close())
}

// WriteSVG draws the chart: one rect of class "window" for each window, one of
// class "lane" for each lane. It refers to nothing outside of it.
func (c *Chart) WriteSVG(to io.Writer) error {
	w := bufio.NewWriter(to)
	labels, labelRows := c.placeMoments()
	lanesTop := top + labelRows*14 + 10
	bottom := c.laneTop(lanesTop, len(c.Lanes))
	legend, legendRows := c.placeLegend(bottom + 58)
	height := bottom + 58 + legendRows*20 + 6

	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#333333">`+"\n", chartWidth, height, chartWidth, height)
	fmt.Fprintf(w, "<title>%s</title>\n", escape(c.Title))
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, height)
	fmt.Fprintf(w, `<text x="16" y="28" font-size="18" font-weight="bold">%s</text>`+"\n", escape(c.Title))
	fmt.Fprintf(w, `<text x="16" y="48" fill="#666666">%s</text>`+"\n", escape(c.Subtitle))

	c.drawLanes(w, lanesTop)
	c.drawAxis(w, lanesTop, bottom)
	for _, v := range c.Windows {
		x, y := c.x(v.From), c.laneTop(lanesTop, v.Lane)
		edge, opacity := "", "1"
		if v.Style.Faded {
			opacity = "0.35"
			edge = fmt.Sprintf(` stroke="%s" stroke-dasharray="3 2"`, palette(v.Style.Colour))
		}
		fmt.Fprintf(w, `<rect class="window" x="%.1f" y="%d" width="%.1f" height="%d" rx="1.5" fill="%s" fill-opacity="%s"%s><title>%s</title></rect>`+"\n",
			x, y+2, max(c.x(v.Till)-x, 1), laneHeight-4, palette(v.Style.Colour), opacity, edge, escape(v.Text))
	}
	for _, b := range c.Bars {
		x, height := c.x(b.From), min(max(b.Height, 0), 1)*(laneHeight-2)
		fmt.Fprintf(w, `<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`+"\n",
			x, float64(c.laneTop(lanesTop, b.Lane)+laneHeight-1)-height, max(c.x(b.Till)-x, 0.5), height, palette(b.Style.Colour), escape(b.Text))
	}
	for _, t := range c.Ticks {
		y := c.laneTop(lanesTop, t.Lane)
		fmt.Fprintf(w, `<line class="tick" x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#111111" stroke-width="1.2"/>`+"\n", c.x(t.At), y+1, c.x(t.At), y+laneHeight-1)
	}
	for _, l := range labels {
		fmt.Fprintf(w, `<line class="moment" x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#555555" stroke-dasharray="2 3"/>`+"\n", l.line, l.y+3, l.line, bottom)
	}
	for _, l := range labels { // after all lines: that of a moment in a row above may cross a text
		from, till := l.span()
		fmt.Fprintf(w, `<rect class="behind" x="%.1f" y="%d" width="%.1f" height="13" fill="#ffffff"/>`+"\n", from-2, l.y-10, till-from+4)
		fmt.Fprintf(w, `<text class="label" x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", l.x, l.y, l.anchor, escape(l.text))
	}
	for i, l := range legend {
		drawKey(w, c.Legend[i], l)
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

// x is where a moment is on the time axis.
func (c *Chart) x(at time.Duration) float64 {
	at = min(max(at, 0), c.Until)
	return left + float64(at)/float64(max(c.Until, 1))*(chartWidth-left-right)
}

// laneTop is where lane i begins; of the lane after the last one, where the
// lanes end.
func (c *Chart) laneTop(lanesTop, i int) int {
	y := lanesTop + i*laneHeight
	for j := 1; j <= i && j < len(c.Lanes); j++ {
		if c.Lanes[j].Group != c.Lanes[j-1].Group {
			y += groupGap
		}
	}
	return y
}

func (c *Chart) drawLanes(w io.Writer, lanesTop int) {
	for i, lane := range c.Lanes {
		y := c.laneTop(lanesTop, i)
		fmt.Fprintf(w, `<rect class="lane" x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left, y, chartWidth-left-right, laneHeight-1, "#f3f3f3")
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-8, y+12, escape(lane.Name))
		if i == 0 || c.Lanes[i-1].Group != lane.Group {
			fmt.Fprintf(w, `<text x="16" y="%d" font-weight="bold">%s</text>`+"\n", y+12, escape(lane.Group))
		}
	}
}

// drawAxis draws the time axis below the lanes, with about ten labels.
func (c *Chart) drawAxis(w io.Writer, lanesTop, bottom int) {
	step := niceStep(c.Until.Seconds() / 10)
	for i := 0; ; i++ {
		at := time.Duration(float64(i) * step * float64(time.Second))
		if at > c.Until {
			break
		}
		x := c.x(at)
		fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#d0d0d0"/>`+"\n", x, lanesTop, x, bottom+5)
		fmt.Fprintf(w, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x, bottom+18, float64(i)*step)
	}
	fmt.Fprintf(w, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#333333"/>`+"\n", left, bottom+1, chartWidth-right, bottom+1)
	fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="middle">cluster time in seconds</text>`+"\n", left+(chartWidth-left-right)/2, bottom+36)
}

// niceStep is the least of 1, 2, 5, 10 ... that is not below atLeast.
func niceStep(atLeast float64) float64 {
	atLeast = max(atLeast, 0.1)
	power := math.Pow(10, math.Floor(math.Log10(atLeast)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= atLeast*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}

// label is a text of the chart in its place.
type label struct {
	line, x float64
	y       int
	anchor  string
	text    string
}

// span is about where its text begins and ends.
func (l label) span() (from, till float64) {
	size := charWidth * float64(len(l.text))
	if l.anchor == "end" {
		return l.x - size, l.x
	}
	return l.x, l.x + size
}

// placeMoments gives each moment a row above the lanes in which its text is
// beside, not above, the texts of others.
func (c *Chart) placeMoments() (labels []label, rows int) {
	moments := slices.Clone(c.Moments)
	slices.SortStableFunc(moments, func(a, b Moment) int { return cmp.Compare(a.At, b.At) })
	var ends []float64 // of the last text of each row
	for _, m := range moments {
		l := label{line: c.x(m.At), anchor: "start", text: m.Text}
		l.x = l.line - 3
		from, till := l.span()
		if till > chartWidth-10 {
			l.x, l.anchor = l.line+3, "end"
			from, till = l.span()
		}
		row := slices.IndexFunc(ends, func(end float64) bool { return end+12 < from })
		if row < 0 {
			row = len(ends)
			ends = append(ends, 0)
		}
		ends[row] = till
		l.y = row
		labels = append(labels, l)
	}
	for i := range labels {
		labels[i].y = top + labels[i].y*14
	}
	return labels, len(ends)
}

// placeLegend puts the keys beside each other, in as many rows as it takes.
func (c *Chart) placeLegend(y int) (places []label, rows int) {
	x := float64(left)
	rows = 1
	for _, k := range c.Legend {
		size := 40 + charWidth*float64(len(k.Text))
		if x+size > chartWidth-10 && x > left {
			x = left
			rows++
		}
		places = append(places, label{x: x, y: y + (rows-1)*20})
		x += size
	}
	return places, rows
}

func drawKey(w io.Writer, k Key, at label) {
	if k.Style.Tick {
		fmt.Fprintf(w, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#111111" stroke-width="1.2"/>`+"\n", at.x+8, at.y-11, at.x+8, at.y+3)
	} else {
		edge, opacity := "", "1"
		if k.Style.Faded {
			opacity = "0.35"
			edge = fmt.Sprintf(` stroke="%s" stroke-dasharray="3 2"`, palette(k.Style.Colour))
		}
		fmt.Fprintf(w, `<rect class="key" x="%.1f" y="%d" width="16" height="12" rx="1.5" fill="%s" fill-opacity="%s"%s/>`+"\n", at.x, at.y-10, palette(k.Style.Colour), opacity, edge)
	}
	fmt.Fprintf(w, `<text x="%.1f" y="%d">%s</text>`+"\n", at.x+22, at.y, escape(k.Text))
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder fails at nothing
	return b.String()
}
